"""Each room in a real browser: what a person does there, and what the page then shows."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest

from eckart import ALS

pytestmark = pytest.mark.slow

LIST = ".ranked .what > span:first-child"
CHANGED = (
    f"(old) => [...document.querySelectorAll('{LIST}')].map((e) => e.innerText).join() !== old"
)
UNCHANGED = CHANGED.replace("!==", "===")
# The share of pixels of the picture below the labels that hold a point.
INKED = """() => { const c = document.querySelector('.map-box canvas'); const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
  let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return n / (d.length / 4); }"""


def lasso(page, box, inset=0.25):
    """Draw a rectangle around the middle of the map with the lasso, holding shift."""
    left, right = box["x"] + inset * box["width"], box["x"] + (1 - inset) * box["width"]
    top, bottom = box["y"] + inset * box["height"], box["y"] + (1 - inset) * box["height"]
    page.keyboard.down("Shift")
    page.mouse.move(left, top)
    page.mouse.down()
    for x, y in ((right, top), (right, bottom), (left, bottom), (left, top)):
        page.mouse.move(x, y, steps=8)
    page.mouse.up()
    page.keyboard.up("Shift")


def selected(page) -> int:
    page.wait_for_function(
        "() => /selected/.test(document.querySelector('.map-caption').textContent)"
    )
    return int(
        re.search(r"([\d,]+) selected", page.inner_text(".map-caption")).group(1).replace(",", "")
    )


def cards(page, title):
    return page.locator("section.card", has=page.get_by_role("heading", name=title, exact=True))


# start, data, jobs


def test_start_lists_the_folder_and_leads_into_it(visit):
    page = visit.go("#/")
    for name in ("digits", "films", "news", "iris", "parts", "words"):
        assert page.locator("main a.row-link", has_text=name).count() >= 1
    page.locator("main a.row-link", has_text="iris.csv").click()
    page.get_by_role("heading", name="iris.csv").wait_for()
    assert page.evaluate("location.hash") == "#/data/iris.csv"


def test_a_file_is_taken_in_and_shown_with_its_columns_gaps_and_rows(visit, tmp_path):
    upload = tmp_path / "heights.csv"
    upload.write_text(
        "height,weight,name\n"
        + "".join(f"{150 + i},{50 + i % 7 if i % 5 else ''},person {i}\n" for i in range(40))
    )
    page = visit.go("#/")
    page.set_input_files("input[type=file]", upload)
    page.get_by_role("heading", name="heights.csv").wait_for()
    visit.ready()
    columns = cards(page, "Columns")
    assert "20.0 %" in columns.locator("tr", has_text="weight").inner_text()
    assert "none" in columns.locator("tr", has_text="height").first.inner_text()
    rows = cards(page, "Rows").locator("tbody tr")
    assert rows.first.inner_text().split() == ["150", "–", "person", "0"]
    cards(page, "Rows").get_by_role("button", name="height").click()
    cards(page, "Rows").get_by_role("button", name="height").click()
    page.wait_for_function(
        "() => document.querySelector('.long-table tbody tr')?.innerText.startsWith('189')"
    )
    assert "sort=height" in page.evaluate("location.hash")
    assert page.locator(".verb").count() == 4
    assert all(len(words) > 20 for words in page.locator(".verb .small").all_inner_texts())


def test_a_file_of_texts_is_shown_as_documents(visit):
    page = visit.go("#/data/words.txt")
    cards(page, "Documents").wait_for()
    first = visit.studio.folder.joinpath("words.txt").read_text(encoding="utf-8").splitlines()[0]
    assert first[:40] in cards(page, "Documents").inner_text()
    assert page.locator(".verb", has_text="explain").is_enabled()
    assert page.locator(".verb", has_text="reduce").is_disabled()
    assert page.get_by_label("text", exact=True).input_value() == ""


def test_a_file_is_dropped(visit):
    page = visit.go("#/")
    page.evaluate("""() => { const held = new DataTransfer(); held.items.add(new File(["a,b\\n1,2\\n3,4\\n5,7\\n"], "dropped.csv"));
      document.querySelector('.drop').dispatchEvent(new DragEvent('drop', {dataTransfer: held, bubbles: true, cancelable: true})); }""")
    page.get_by_role("heading", name="dropped.csv").wait_for()
    visit.ready()
    assert (visit.studio.folder / "dropped.csv").read_text() == "a,b\n1,2\n3,4\n5,7\n"


def test_a_plan_is_measured_and_a_job_runs_to_a_model(visit):
    page = visit.go("#/data/digits.csv?verb=reduce")
    page.get_by_label("components", exact=True).fill("5")
    page.get_by_role("button", name="Plan first").click()
    page.locator(".plan .figures").wait_for(timeout=60_000)
    assert "eckart reduce" in page.locator(".plan pre").inner_text()
    page.get_by_label("Name of the result").fill("five")
    page.get_by_role("button", name="Run").click()
    page.get_by_role("link", name="Open the model").wait_for(timeout=90_000)
    assert page.locator(".room-head .state").inner_text() == "done"
    assert page.locator(".verdict.holds").count() == 1
    assert (visit.studio.folder / "five.safetensors").is_file()
    page.get_by_role("link", name="Open the model").click()
    page.get_by_role("heading", name="five").wait_for()
    visit.ready()
    page = visit.go("#/jobs")
    line = page.locator("tr", has_text="five.safetensors")
    assert "done" in line.inner_text()
    line.get_by_role("button", name="forget").click()
    page.wait_for_function("() => !document.body.innerText.includes('five.safetensors\\tforget')")


def test_a_job_shows_its_curve_and_is_stopped_and_resumed(visit):
    page = visit.go("#/data/news.csv?verb=embed")
    for group in page.locator("details.more summary").all():
        group.click()
    page.get_by_label("max iter", exact=True).fill("20000")  # hours of work, if nobody stopped it
    page.get_by_label("min count", exact=True).fill("2")
    page.get_by_label("Name of the result").fill("long")
    page.get_by_role("button", name="Run").click()
    page.get_by_role("button", name="Stop").wait_for(timeout=60_000)
    page.wait_for_function(
        "() => document.querySelector('.chart path.line')?.getAttribute('d').length > 40",
        timeout=60_000,
    )
    page.get_by_role("button", name="Stop").click()
    page.wait_for_function(
        "() => document.querySelector('.room-head .state')?.textContent === 'stopped'",
        timeout=60_000,
    )
    page.get_by_role("button", name="Resume").click()
    page.wait_for_function(
        "() => document.querySelector('.room-head .state')?.textContent === 'running'",
        timeout=60_000,
    )
    page.get_by_role("button", name="Stop").click()
    page.wait_for_function(
        "() => document.querySelector('.room-head .state')?.textContent === 'stopped'",
        timeout=60_000,
    )


def test_wrong_options_are_answered_in_the_words_of_the_shell(browser, studio):
    from .conftest import Visit

    here = Visit(browser, studio)
    page = here.go("#/data/digits.csv?verb=reduce")
    page.get_by_label("components", exact=True).fill("many")
    page.get_by_role("button", name="Plan first").click()
    page.locator(".words.bad").wait_for(timeout=60_000)
    assert "many" in page.locator(".words.bad").inner_text()
    here.close()


# reduce


def test_reduce_map_draws_colours_selects_sorts_and_exports(visit, tmp_path):
    page = visit.go("#/model/digits.safetensors/map?by=none")
    page.wait_for_timeout(300)
    assert 0.005 < page.evaluate(INKED) < 0.6
    page.get_by_label("colour", exact=True).select_option("digit")
    page.locator(".legend li").first.wait_for()
    assert page.locator(".legend li").count() == 10
    lasso(page, page.locator(".map-box").bounding_box())
    count = selected(page)
    assert 10 < count < 1797
    table = cards(page, "Selection")
    table.locator("tbody tr button").first.wait_for()
    assert int(table.locator("table").get_attribute("aria-rowcount")) == count + 1
    with page.expect_download() as download:
        page.get_by_role("button", name="Export as CSV").click()
    download.value.save_as(tmp_path / "chosen.csv")
    rows = list(csv.reader((tmp_path / "chosen.csv").open(encoding="utf-8")))
    assert len(rows) == count + 1
    address = page.evaluate("location.href")
    page.reload()
    visit.ready()
    assert page.evaluate("location.href") == address
    assert selected(page) == count
    page.locator("canvas.over").focus()
    page.keyboard.press("Escape")
    page.wait_for_function(
        "() => !/selected/.test(document.querySelector('.map-caption').textContent)"
    )


def test_reduce_map_moves_by_mouse_wheel_keys_and_buttons(visit):
    page = visit.go("#/model/digits.safetensors/map")
    box = page.locator(".map-box").bounding_box()
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)

    seen = [page.evaluate("location.hash")]

    def look():
        # it follows a pause after the last step
        page.wait_for_function("(old) => location.hash !== old", arg=seen[-1])
        page.wait_for_timeout(350)
        seen.append(page.evaluate("location.hash"))
        return tuple(map(float, re.search(r"v=([^&]+)", unquote(seen[-1])).group(1).split(",")))

    page.mouse.move(*middle)
    page.mouse.down()
    page.mouse.move(middle[0] + 100, middle[1], steps=5)
    page.mouse.up()
    dragged = look()
    page.mouse.wheel(0, -400)
    zoomed = look()
    assert zoomed[2] > dragged[2]
    page.locator("canvas.over").focus()
    page.keyboard.press("ArrowRight")
    assert look()[0] > zoomed[0]
    page.keyboard.press("+")
    assert look()[2] > zoomed[2]
    page.get_by_role("button", name="zoom out").click()
    page.get_by_role("button", name="whole map").click()
    page.wait_for_function("() => !location.hash.includes('v=')")


def test_reduce_rebuilds_a_picked_row_at_any_k(visit):
    page = visit.go("#/model/digits.safetensors/row?pick=7")
    assert page.locator(".pictures canvas").count() == 3

    def error():
        visit.ready()
        page.wait_for_timeout(300)
        return float(re.search(r"rms ([\d.]+)", page.locator(".pictures").inner_text()).group(1))

    all_of_them = error()
    before = page.locator(".pictures").inner_text()
    page.get_by_label("components used").fill("1")
    page.wait_for_function(
        "(old) => document.querySelector('.pictures')?.innerText !== old", arg=before
    )
    assert error() > all_of_them
    assert "k=1" in page.evaluate("location.hash")
    first = page.locator(".chips button").first
    first.click()
    visit.ready()
    assert "pick=7&" not in page.evaluate("location.hash")


def test_reduce_components_and_outliers(visit):
    page = visit.go("#/model/digits.safetensors/components")
    assert page.locator(".bars tbody tr").count() == 20
    page.locator(".gallery .tile").nth(2).click()
    page.get_by_role("heading", name="Component 3").wait_for()
    page = visit.go("#/model/digits.safetensors/outliers")
    row = page.locator("tbody tr button").first
    row.click()
    page.wait_for_function("() => location.hash.includes('/row?')")


def test_a_point_under_the_mouse_is_named(visit):
    page = visit.go("#/model/iris.safetensors/map?v=1.4,0.2,30&x=petal%20length&y=petal%20width")
    box = page.locator(".map-box").bounding_box()
    page.wait_for_timeout(400)
    page.mouse.move(box["x"] + box["width"] / 2 + 1, box["y"] + box["height"] / 2)
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.locator(".tip").wait_for()
    assert page.locator(".tip").inner_text().strip()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_function("() => location.hash.includes('pick=')")


# complete


def test_complete_recommends_says_why_and_follows_what_if(visit):
    page = visit.go("#/model/films.safetensors/recommend")
    page.locator(".ranked li").first.wait_for()  # of the first row
    first = page.locator(LIST).all_inner_texts()
    field = page.get_by_role("combobox", name="user, by id or title")
    field.fill("user 12")
    page.get_by_role("option", name="user 12", exact=False).first.wait_for()
    field.press("Enter")
    page.wait_for_function("() => location.hash.includes('row=')")
    page.wait_for_function(CHANGED, arg=",".join(first))
    visit.ready()
    before = page.locator(LIST).all_inner_texts()
    assert len(before) == 15
    page.locator(".ranked li button", has_text="why").first.click()
    cards(page, f"Why {before[0]}?").locator("tbody tr").first.wait_for()
    entry = page.locator("input.rating").first
    entry.fill("1")
    entry.press("Tab")
    page.wait_for_function("() => location.hash.includes('what=')")
    visit.ready()
    page.wait_for_function(CHANGED, arg=",".join(before))
    page.get_by_role("button", name="undo all").click()
    page.wait_for_function(UNCHANGED, arg=",".join(before))


def test_complete_opens_with_row_0_of_a_model_without_ids(visit):
    """The number 0 was taken for nobody."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(20, 2)) @ rng.normal(size=(2, 12))
    values[rng.random(values.shape) < 0.4] = np.nan
    file = visit.studio.folder / "positions.safetensors"
    ALS(2, random_state=0).fit(values).save(file)
    try:
        page = visit.go("#/model/positions.safetensors/recommend")
        page.locator(".ranked li").first.wait_for()
        assert "Nobody is chosen" not in page.inner_text("main")
        page = visit.go("#/model/positions.safetensors/predict?columns=1|2")
        page.get_by_role("heading", name="Predictions").wait_for()
        assert "No cell is chosen" not in page.inner_text("main")
    finally:
        file.unlink()


def test_complete_recommends_to_someone_new(visit):
    page = visit.go("#/model/films.safetensors/recommend")
    page.get_by_role("button", name="someone new instead").click()
    add = page.get_by_role("combobox", name="add a film")
    for title in ("Film 03", "Film 07"):
        add.fill(title)
        page.get_by_role("option", name=title, exact=False).first.wait_for()
        add.press("Enter")
        page.locator("tr.changed", has_text=title).wait_for()
    page.locator(".ranked li").first.wait_for()
    visit.ready()
    page.wait_for_timeout(300)
    assert not any(
        name.startswith(("Film 03", "Film 07")) for name in page.locator(LIST).all_inner_texts()
    )


def test_complete_predicts_with_intervals(visit):
    page = visit.go(
        "#/model/films.safetensors/predict?row=user%203&columns=Film 05 (1974)|Film 06 (1975)"
    )
    line = page.locator("table.ranges tbody tr").first
    low, high = map(float, re.search(r"([\d.]+) to ([\d.]+)", line.inner_text()).groups())
    assert 1 <= low < high <= 5
    page.get_by_text("50 %").click()
    page.wait_for_function("() => location.hash.includes('level=0.5')")
    visit.ready()
    page.wait_for_timeout(300)
    narrow = [float(x) for x in re.search(r"([\d.]+) to ([\d.]+)", line.inner_text()).groups()]
    assert narrow[1] - narrow[0] < high - low


def test_complete_errors_coverage_and_map(visit):
    page = visit.go("#/model/films.safetensors/errors")
    assert page.locator(".figures dd").first.inner_text() != "–"
    assert page.locator("table.plain tbody tr").count() > 3
    page = visit.go("#/model/films.safetensors/coverage")
    assert page.locator(".figures dd").first.inner_text().endswith("%")
    page = visit.go("#/model/films.safetensors/map?pick=3")
    page.get_by_role("heading", name="Like Film 04", exact=False).wait_for()
    page.get_by_text("users", exact=True).click()
    page.wait_for_function("() => location.hash.includes('side=rows')")
    visit.ready()


# explain


def test_topics_are_renamed_merged_and_split_in_the_model_file(visit):
    page = visit.go("#/model/news.safetensors/topics?topic=1")
    assert page.locator(".topic-list li").count() == 4
    page.get_by_label("name", exact=True).fill("my topic")
    page.get_by_role("button", name="Keep the name").click()
    page.locator(".topic-list strong", has_text="my topic").wait_for()
    page.reload()
    visit.ready()
    assert page.locator(".topic-list strong", has_text="my topic").count() == 1
    for at in (0, 1):
        page.locator(".topic-list input").nth(at).check()
    page.get_by_role("button", name="Merge 2").click()
    page.wait_for_function("() => document.querySelectorAll('.topic-list li').length === 3")
    page.get_by_role("button", name="split", exact=False).click()
    page.wait_for_function("() => document.querySelectorAll('.topic-list li').length === 4")


def test_topics_have_words_and_documents_with_coloured_words(visit):
    page = visit.go("#/model/news.safetensors/topics?topic=2")
    assert page.locator(".bars tbody tr").count() >= 10
    assert page.locator(".plane a").count() == 4
    page.locator(".documents a").first.click()
    page.wait_for_function("() => location.hash.includes('/documents?')")
    visit.ready()
    text = visit.studio.folder.joinpath("news.csv").read_text(encoding="utf-8")
    assert page.locator(".reading").inner_text()[:60] in text
    assert page.locator(".reading .coloured").count() > 10
    page.locator(".shares button").first.click()
    assert (
        page.locator(".reading .coloured.off").count() < page.locator(".reading .coloured").count()
    )
    page.get_by_role("button", name="Next").click()
    visit.ready()


def test_mixture_has_ellipses_on_any_two_columns(visit):
    page = visit.go("#/model/iris.safetensors/map")
    page.get_by_label("across", exact=True).select_option("petal length")
    page.wait_for_function(
        "() => document.querySelector('.map-caption').innerText.includes('petal length')"
    )
    visit.ready()
    page.wait_for_timeout(400)
    # The ellipses are lines of the upper canvas in the colours of the components.
    coloured = page.evaluate("""() => {
      const c = document.querySelector('canvas.over'), d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
      let n = 0;
      for (let i = 0; i < d.length; i += 4) {
        const [r, g, b, a] = d.subarray(i, i + 4);
        n += a > 200 && Math.max(r, g, b) - Math.min(r, g, b) > 80;
      }
      return n;
    }""")
    assert coloured > 500
    page = visit.go("#/model/iris.safetensors/map?pick=4")
    page.get_by_role("heading", name="Row 4").wait_for()
    page = visit.go("#/model/iris.safetensors/components")
    assert page.locator(".tiles .card").count() == 3


def test_parts_are_images(visit):
    page = visit.go("#/model/parts.safetensors/parts")
    assert page.locator(".gallery canvas").count() == 9
    page.locator(".gallery .tile").nth(4).click()
    page.wait_for_function("() => location.hash.includes('part=')")


# embed


def test_embed_finds_neighbours_by_search_and_click(visit):
    page = visit.go("#/model/words.safetensors/map")
    page.get_by_role("combobox", name="find a word").fill("goal")
    page.keyboard.press(
        "Enter"
        # faster than the answer: it picks from the list of what was typed, not from the one that
        # still stands there
    )
    page.get_by_role("heading", name="Nearest to goal").wait_for()
    visit.ready()
    near = cards(page, "Nearest to goal").locator("tbody th").all_inner_texts()
    from .folder import THEMES

    assert sum(word in THEMES["sport"] for word in near[:10]) >= 6
    cards(page, "Nearest to goal").locator("tbody button").first.click()
    page.get_by_role("heading", name=f"Nearest to {near[0]}").wait_for()


def test_embed_answers_analogies_and_the_odd_one_out(visit):
    page = visit.go("#/model/words.safetensors/questions")
    fields = cards(page, "Analogy").locator("input")
    for at, word in enumerate(("song", "album", "goal")):
        fields.nth(at).fill(word)
    cards(page, "Analogy").get_by_role("button", name="Ask").click()
    cards(page, "Analogy").locator("tbody tr").first.wait_for()
    page.get_by_label("three words or more").fill("song album goal band")
    cards(page, "The odd one out").get_by_role("button", name="Ask").click()
    cards(page, "The odd one out").locator("p strong").wait_for()
    assert cards(page, "The odd one out").locator("p strong").inner_text() == "goal"


def test_two_models_share_one_selection(visit):
    page = visit.go("#/model/words.safetensors/compare?other=words-two.safetensors")
    page.wait_for_timeout(500)
    lasso(page, page.locator(".map-box").first.bounding_box())
    page.wait_for_function(
        "() => [...document.querySelectorAll('.map-caption')].every((c) => "
        "/selected/.test(c.textContent))"
    )
    left, right = (
        re.search(r"([\d,]+) selected", text).group(1)
        for text in page.locator(".map-caption").all_inner_texts()
    )
    assert left == right
    page.get_by_role("combobox", name="find a word in both").fill("market")
    page.get_by_role("option", name="market", exact=False).first.wait_for()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Nearest to market").wait_for()
    visit.ready()
    assert page.locator(".near").count() == 2


# everywhere


def test_certificate_trace_plan_and_copies_stand_beside_the_picture(browser, studio):
    from .conftest import Visit

    here = Visit(browser, studio, permissions=["clipboard-read", "clipboard-write"])
    page = here.go("#/model/news.safetensors/topics")
    for title in (
        "Certificate",
        "How the fit went",
        "What was chosen, and why",
        "The same without the studio",
    ):
        assert cards(page, title).count() == 1, title
    for button, word in (("Copy as Python", "eckart.load"), ("Copy as shell", "eckart ")):
        page.get_by_role("button", name=button).click()
        assert word in page.evaluate("navigator.clipboard.readText()")
    here.close()
    assert here.complaints == []


def test_the_theme_is_turned_and_kept(visit):
    page = visit.go("#/")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="use dark colours").click()
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert dark != light
    page.reload()
    page.wait_for_selector("h1")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark


def test_a_page_without_the_token_sees_nothing(browser, studio):
    context = browser.new_context()
    page = context.new_page()
    page.goto(studio.base)
    page.locator(".words.bad").wait_for()
    assert "digits" not in page.inner_text("body")
    context.close()


def test_the_address_forgets_the_token(visit):
    assert "token" not in visit.page.url
    kept = json.dumps(visit.page.evaluate("({...localStorage, ...sessionStorage})"))
    assert Path(visit.studio.address).name.split("token=")[1] not in kept
