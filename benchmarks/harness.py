"""One process a case: time, peak memory over the baseline, quality. Results as a table and as JSON
lines with versions."""

from __future__ import annotations

import argparse
import importlib.metadata as metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CACHE = HERE / "cache"
THREADS = str(os.environ.get("BENCH_THREADS", "2"))
OWN_SETTINGS = {"implicit": {"OPENBLAS_NUM_THREADS": "1"}}
"""What a rival's own documentation asks for, by the first word of its name: implicit shares rows
among its threads and warns where BLAS has threads too."""
PACKAGES = ("eckart", "numpy", "scipy", "scikit-learn", "numba")


def _status(field: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    return float("nan")


def measure(work: Callable[[], Any], repeats: int = 3, budget: float = 60.0) -> dict[str, Any]:
    """Run up to ``repeats`` times within ``budget`` seconds: median and best seconds, peak resident
    MB over the start, last result."""
    import gc

    gc.collect()
    base = _status("VmRSS")
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        base = float("nan")
    seconds, result = [], None
    for _ in range(repeats):
        result = None
        begin = time.perf_counter()
        result = work()
        seconds.append(time.perf_counter() - begin)
        if sum(seconds) > budget:
            break
    return {
        "seconds": round(statistics.median(seconds), 4),
        "best": round(min(seconds), 4),
        "runs": len(seconds),
        "extra_mb": round(_status("VmHWM") - base, 1),
        "result": result,
    }


def cached(name: str, make: Callable[[Path], None]) -> Path:
    """A file in the cache, made once, under a temporary name until complete."""
    CACHE.mkdir(exist_ok=True)
    path = CACHE / name
    if not path.exists():
        part = path.with_name("part-" + name)
        make(part)
        part.rename(path)
    return path


def run(
    script: str,
    cases: list[tuple[str, str]],
    work: Callable[[str, str, bool], dict[str, Any]],
    report: Callable[[list[dict]], None],
) -> None:
    """Command line of a benchmark file: starts one child for each (task, contender) and prints the
    report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--child", nargs=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if options.child:
        row = {
            "task": options.child[0],
            "contender": options.child[1],
            **work(*options.child, options.quick),
        }
        row.pop("result", None)
        print("RESULT " + json.dumps(row), flush=True)
        return
    environment = dict(
        os.environ,
        OMP_NUM_THREADS=THREADS,
        OPENBLAS_NUM_THREADS=THREADS,
        NUMBA_NUM_THREADS=THREADS,
        PYTHONWARNINGS="ignore",
    )
    rows = []
    for task, contender in cases:
        if options.only not in f"{task} {contender}":
            continue
        command = [
            sys.executable,
            script,
            "--child",
            task,
            contender,
            *(["--quick"] if options.quick else []),
        ]
        own = environment | OWN_SETTINGS.get(contender.split()[0], {})
        child = subprocess.run(command, env=own, capture_output=True, text=True)
        found = [line for line in child.stdout.splitlines() if line.startswith("RESULT ")]
        row = (
            json.loads(found[-1][7:])
            if found
            else {
                "task": task,
                "contender": contender,
                "error": child.stderr.strip().splitlines()[-1:],
            }
        )
        rows.append(row)
        print(json.dumps(row), flush=True)
    report(rows)
    if not options.quick and not options.only:
        keep(rows, Path(script).stem)


def keep(rows: list[dict], name: str) -> None:
    """Append the run to benchmarks/results/NAME.jsonl with what it ran on."""
    folder = HERE / "results"
    folder.mkdir(exist_ok=True)
    cpu = next(
        (
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        "",
    )
    where = {
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "cpu": cpu,
        "threads": int(THREADS),
        **{p: metadata.version(p) for p in PACKAGES},
    }
    with (folder / f"{name}.jsonl").open("a") as out:
        out.write(json.dumps({"where": where, "rows": rows}) + "\n")
