"""The studio at sizes, in Debian's chromium without a GPU: maps of 1 and 10 million points, a table
of a million rows, neighbours among a million words.

    python benchmarks/studio.py [--points 1000000 10000000] [--words 1000000]

First picture: from the moment at which the numbers of the map are in the page to the first frame
that shows them. Frames: 40 steps of panning and of the wheel, the median of what the page needs for
one. Memory: resident pages of the browser's processes, shared ones counted once. Neighbours: 30
words, asked over HTTP by the page.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

CLOCK = """() => { window.times = {}; const inner = window.fetch;
  window.fetch = async (...asked) => {
    const answer = await inner(...asked);
    if (!String(asked[0]).includes('/model/map')) return answer;
    const read = answer.arrayBuffer.bind(answer);
    answer.arrayBuffer = async () => { const got = await read(); window.times.data = performance.now(); return got; };
    return answer;
  };
  document.addEventListener('frame', () => { window.times.first ??= performance.now(); }); }"""

FRAMES = (Path(__file__).resolve().parents[1] / "tests" / "browser" / "frames.js").read_text()

NEIGHBOURS = """async (words) => {
  const took = [], within = [];
  for (let i = 0; i < 33; i += 1) {
    const begin = performance.now(), answer = await fetch(`/api/model/neighbours?file=words.safetensors&side=words&at=${(i * 7919) % words}&n=10`);
    const found = await answer.json();
    if (!answer.ok) throw new Error(JSON.stringify(found));
    took.push(performance.now() - begin);
    within.push(found.milliseconds);
  }
  return [took, within];
}"""


def cloud(folder: Path, points: int) -> str:
    """Rows of three numbers in seven clouds and their PCA; the name of the model."""
    from eckart import PCA

    rng = np.random.default_rng(1)
    which = rng.integers(0, 7, size=points)
    centres = np.stack(
        [3 * np.cos(np.arange(7)), 3 * np.sin(np.arange(7)), np.zeros(7)], axis=1
    ).astype(np.float32)
    rows = rng.standard_normal((points, 3), dtype=np.float32) * np.float32([0.6, 0.5, 0.2])
    rows += centres[which]
    np.save(folder / f"cloud{points}.npy", rows)
    PCA(2, random_state=0).fit(rows).save(folder / f"cloud{points}.safetensors")
    return f"cloud{points}.safetensors"


def words_model(folder: Path, words: int) -> None:
    """A model of as many words with vectors of 100 random numbers: their directions do not enter
    into the time of a search."""
    from eckart import PMI
    from eckart.factors.embedding import Embedding

    model = PMI(2, random_state=0).fit(
        ["tea rye oat tea", "rye oat tea rye", "oat tea rye oat"] * 9
    )
    rng = np.random.default_rng(0)
    names = np.array([f"w{i}" for i in range(words)])
    vectors = rng.standard_normal((words, 100), dtype=np.float32)
    factors = Embedding(vectors, vectors, counts=np.ones(words, np.int64), columns=names)
    # there are 2 of them
    plan = {name: value for name, value in model.fit_.plan.items() if name != "singular values"}
    model.fit_ = dataclasses.replace(model.fit_, factors=factors, plan=plan)
    model.save(folder / "words.safetensors")


def memory(folder: Path) -> float:
    """Megabytes of the processes that were started with a folder of their own."""
    total = 0
    for status in Path("/proc").glob("[0-9]*"):
        try:
            if (
                str(folder).encode() in (status / "cmdline").read_bytes()
                and b"chrom" in (status / "cmdline").read_bytes()
            ):
                text = (status / "smaps_rollup").read_text()
                total += next(
                    int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")
                )
        except (OSError, StopIteration):
            continue
    return total / 1024


def measure_map(context: Any, base: str, model: str, points: int) -> Any:
    page = context.new_page()
    page.set_default_timeout(180_000)
    page.goto(base + "#/")
    page.wait_for_selector("h1")
    page.evaluate(CLOCK)
    begin = time.perf_counter()
    page.evaluate(f"() => {{ location.hash = '#/model/{model}/map'; }}")
    page.wait_for_function("() => window.times.first")
    whole = time.perf_counter() - begin
    first = page.evaluate("window.times.first - window.times.data")
    page.wait_for_function(
        f"() => /{points:,} points/.test(document.querySelector('.map-caption')?.textContent)"
    )
    page.wait_for_timeout(1000)
    tries = [page.evaluate(FRAMES, 40) for _ in range(3)]
    pan, zoom = (
        [round(statistics.median(t[way]), 1) for t in tries] for way in ("panned", "zoomed")
    )
    worst = max(max(t["panned"] + t["zoomed"]) for t in tries)
    print(
        f"{points:>12,} points: first picture {first:.0f} ms after the data "
        f"({whole:.1f} s after the click); frames, medians of three tries: "
        f"pan {pan} ms, zoom {zoom} ms, longest {worst:.0f} ms",
        flush=True,
    )
    return page


def main() -> None:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=int, nargs="*", default=[1_000_000, 10_000_000])
    parser.add_argument("--words", type=int, default=1_000_000)
    ask = parser.parse_args()
    chromium = os.environ.get("ECKART_CHROMIUM") or shutil.which("chromium")
    with tempfile.TemporaryDirectory() as made, tempfile.TemporaryDirectory() as profile:
        folder = Path(made)
        models = {points: cloud(folder, points) for points in ask.points}
        if ask.words:
            words_model(folder, ask.words)
        command = [sys.executable, "-m", "eckart", "studio", made, "--port", "0", "--no-browser"]
        studio = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"}
        )
        try:
            address = re.search(r"http://[\d.]+:\d+/#token=\S+", studio.stdout.readline()).group(0)
            base = address.split("#")[0]
            with sync_playwright() as play:
                size = {"width": 1280, "height": 800}
                context = play.chromium.launch_persistent_context(
                    profile, executable_path=chromium, args=["--no-sandbox"], viewport=size
                )
                page = context.new_page()
                page.goto(address)
                page.wait_for_selector("h1")
                for points, model in models.items():
                    before = memory(Path(profile))
                    opened = measure_map(context, base, model, points)
                    print(
                        f"{'':>12} the browser holds {memory(Path(profile)) - before:.0f} MB more",
                        flush=True,
                    )
                    opened.close()
                if ask.points:
                    rows = min(ask.points)
                    page.goto(base + f"#/data/cloud{rows}.npy")
                    page.locator(f'.long-table table[aria-rowcount="{rows + 1}"]').wait_for(
                        state="attached", timeout=120_000
                    )
                    times = []
                    for at in np.linspace(0.05, 0.95, 10):
                        begin = time.perf_counter()
                        page.evaluate(
                            f"() => {{ const t = document.querySelector('.long-table'); "
                            f"t.scrollTop = {at} * t.scrollHeight; }}"
                        )
                        page.wait_for_timeout(20)
                        page.wait_for_function(
                            "() => !document.querySelector('.long-table').innerText.includes('…')",
                            polling=5,
                        )
                        times.append(time.perf_counter() - begin)
                    print(
                        f"{rows:>12,} rows: a jump in the table shows its rows after "
                        f"{1e3 * statistics.median(times):.0f} ms (10 jumps)",
                        flush=True,
                    )
                if ask.words:
                    took, within = page.evaluate(NEIGHBOURS, ask.words)
                    usual, longest = statistics.median(took[3:]), max(took[3:])
                    print(
                        f"{ask.words:>12,} words of 100 numbers: first neighbours "
                        f"{took[0]:.0f} ms, then median {usual:.1f} ms, longest "
                        f"{longest:.1f} ms"
                    )
                    print(
                        f"{'':>12} the search itself {statistics.median(within[3:]):.1f} ms",
                        flush=True,
                    )
                context.close()
        finally:
            studio.terminate()
            studio.wait(20)


if __name__ == "__main__":
    main()
