"""Everyone reaches everything: no serious finding by axe, narrow screens, keys alone; and a million
points move."""

from __future__ import annotations

import os
import statistics
from pathlib import Path

import pytest

from .conftest import Visit

pytestmark = pytest.mark.slow

PLACES = {
    "start": "#/",
    "jobs": "#/jobs",
    "data": "#/data/digits.csv",
    "data with gaps": "#/data/gaps.csv",
    "texts": "#/data/news.csv",
    "reduce": "#/model/digits.safetensors/map?by=digit&pick=3",
    "components": "#/model/digits.safetensors/components",
    "row": "#/model/digits.safetensors/row?pick=3",
    "outliers": "#/model/digits.safetensors/outliers",
    "recommend": "#/model/films.safetensors/recommend?row=user%205",
    "predict": "#/model/films.safetensors/predict?row=user%205&columns=Film 05 (1974)",
    "map of films": "#/model/films.safetensors/map?pick=2",
    "errors": "#/model/films.safetensors/errors",
    "coverage": "#/model/films.safetensors/coverage",
    "topics": "#/model/news.safetensors/topics",
    "documents": "#/model/news.safetensors/documents?pick=2",
    "map of documents": "#/model/news.safetensors/map?pick=2",
    "mixture": "#/model/iris.safetensors/map?pick=2",
    "mixture components": "#/model/iris.safetensors/components",
    "parts": "#/model/parts.safetensors/parts",
    "embed": "#/model/words.safetensors/map?pick=2",
    "questions": "#/model/words.safetensors/questions?a=song&b=album&c=goal&odd=song|album|goal",
    "two models": "#/model/words.safetensors/compare?other=words-two.safetensors&pick=2",
}


def axe_source() -> str:
    """axe-core, from ECKART_AXE or a node_modules above; it is not part of the project."""
    named = os.environ.get("ECKART_AXE")
    places = (
        [Path(named)]
        if named
        else [
            folder / "node_modules" / "axe-core" / "axe.min.js"
            for folder in Path(__file__).resolve().parents
        ]
    )
    for place in places:
        if place.is_file():
            return place.read_text(encoding="utf-8")
    pytest.skip(
        "axe-core is not on this machine: npm install axe-core, or name axe.min.js by ECKART_AXE"
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_has_no_serious_finding(browser, studio, scheme):
    source = axe_source()
    here = Visit(browser, studio, color_scheme=scheme)
    found = []
    for name, place in PLACES.items():
        page = here.go(place)
        page.wait_for_timeout(250)  # what fades in has its full colour
        page.evaluate(source)
        for one in page.evaluate(
            "axe.run(document, {resultTypes: ['violations']}).then((r) => r.violations)"
        ):
            if one["impact"] in ("serious", "critical"):
                found.append(
                    (
                        name,
                        one["id"],
                        [node["html"][:120] for node in one["nodes"][:3]],
                        one["nodes"][0]["failureSummary"][:200],
                    )
                )
    here.close()
    assert found == []
    assert here.complaints == []


def test_every_room_fits_into_400_pixels(browser, studio):
    here = Visit(browser, studio, width=400, height=800)
    wide = []
    for name, place in PLACES.items():
        page = here.go(place)
        over = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        if over > 0:
            wide.append((name, over))
    page = here.go("#/")
    page.get_by_role("button", name="files and models").click()
    page.locator("nav.side a", has_text="iris.csv").click()
    page.get_by_role("heading", name="iris.csv").wait_for()
    here.close()
    assert wide == []
    assert here.foreign == []
    assert here.complaints == []


def test_keys_alone_reach_a_recommendation(browser, studio):
    here = Visit(browser, studio)
    page = here.go("#/model/films.safetensors/recommend")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.getAttribute('role') === 'combobox'"):
            break
    page.keyboard.type("user 4")
    page.locator("li[role=option]").first.wait_for()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    page.wait_for_timeout(400)
    page.keyboard.press("Enter")
    page.locator(".ranked li").first.wait_for()
    here.close()
    assert here.complaints == []


FRAMES = (Path(__file__).parent / "frames.js").read_text()
"""Milliseconds of each frame while the map is dragged and zoomed so many steps;
benchmarks/studio.py measures by it too."""


def test_a_million_points_move_at_40_milliseconds_a_frame(browser, large_studio):
    here = Visit(browser, large_studio)
    page = here.go("#/model/million.safetensors/map")
    page.wait_for_function(
        "() => /1,000,000 points/.test(document.querySelector('.map-caption')?.textContent)"
    )
    page.wait_for_timeout(800)
    # The machine may be busy with other things: the best of three tries is what the page can do,
    # and the limit is that of the promise.
    tries = [page.evaluate(FRAMES, 40) for _ in range(3)]
    here.close()
    for way in ("panned", "zoomed"):
        medians = [statistics.median(frames[way]) for frames in tries]
        print(
            f"\n{way} at 1 M points, median frame of each try: "
            f"{[round(ms, 1) for ms in medians]} ms"
        )
        assert all(len(frames[way]) >= 8 for frames in tries)
        assert min(medians) <= 40
    assert here.complaints == []


def test_the_first_picture_of_a_million_points_takes_a_second_after_the_data(browser, large_studio):
    here = Visit(browser, large_studio)
    page = here.page
    page.evaluate("""() => { window.times = {}; const inner = window.fetch;
      window.fetch = async (...asked) => {
        const answer = await inner(...asked);
        if (!String(asked[0]).includes('/model/map')) return answer;
        const read = answer.arrayBuffer.bind(answer);
        answer.arrayBuffer = async () => { const got = await read(); window.times.data = performance.now(); return got; };
        return answer;
      };
      document.addEventListener('frame', () => { window.times.first ??= performance.now(); }); }""")
    page.evaluate("() => { location.hash = '#/model/million.safetensors/map'; }")
    page.wait_for_function("() => window.times.first")
    took = page.evaluate("window.times.first - window.times.data")
    print(f"\nfirst picture of 1 M points after the data: {took:.0f} ms")
    here.close()
    assert took <= 1000


# The first or last row in sight has a number within limits, and all rows in sight have come.
SHOWN = """([low, high, which]) => {
  const rows = [...document.querySelectorAll('.long-table tbody tr')], at = Number(rows.at(which).getAttribute('aria-rowindex'));
  return at >= low && at <= high && !document.querySelector('.long-table').innerText.includes('…');
}"""


def test_a_table_of_a_million_rows_scrolls(browser, large_studio):
    here = Visit(browser, large_studio)
    page = here.go("#/data/million.npy")
    table = page.locator(".long-table")
    table.wait_for()
    page.locator('.long-table table[aria-rowcount="1000001"]').wait_for(
        state="attached"
    )  # the count comes with the first rows
    table.focus()
    page.keyboard.press("End")
    page.wait_for_function(SHOWN, arg=[1_000_001, 1_000_001, -1])
    page.evaluate("() => { document.querySelector('.long-table').scrollTop = 4000000; }")
    page.wait_for_function(SHOWN, arg=[400_000, 600_000, 0])
    assert page.locator(".long-table tbody tr").count() < 40
    here.close()
    assert here.complaints == []
