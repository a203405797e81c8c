"""What a newcomer waits for: the first fit of each model in a new process with no compiled kernel,
and the same in the next process.

    python benchmarks/first_fit.py [MODEL ...]             wall and processor seconds, small data
    python benchmarks/first_fit.py --large [MODEL ...]     the same on data that need kernels
    python benchmarks/first_fit.py --kernels [MODEL ...]   and which kernels took them, without
    those that each called

Small: a table of 400 x 20, 300 short texts, 10,000 ratings. Large: 100,000 ratings, 10,000
documents. Every figure is of a process of its own, with a cache of kernels (``NUMBA_CACHE_DIR``) of
its own, after ``import eckart``; what a model loads counts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

LARGE = False
"""Whether the data are those that need kernels."""


def table(gaps: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(0)
    x = rng.random((400, 3)) @ rng.random((3, 20)) + 0.05 * rng.random((400, 20))
    x[rng.random(x.shape) < gaps] = np.nan
    return x


def ratings(implicit: bool = False) -> Any:
    import eckart

    rng = np.random.default_rng(0)
    count, rows, columns = (100_000, 2000, 1500) if LARGE else (10_000, 600, 400)
    cells = np.unique(
        (rng.zipf(1.3, 2 * count) % rows) * columns + rng.integers(columns, size=2 * count)
    )
    row, column = np.divmod(rng.permutation(cells)[:count], columns)
    if implicit:
        return eckart.observed({"u": row, "i": column}, rows="u", columns="i")
    level = rng.standard_normal(rows)[row] + rng.standard_normal(columns)[column]
    values = np.clip(np.round(3.5 + 0.5 * level + 0.5 * rng.standard_normal(len(row))), 1, 5)
    return eckart.observed({"u": row, "i": column, "v": values}, rows="u", columns="i", values="v")


def clicks() -> Any:
    return ratings(implicit=True)


def texts() -> list[str]:
    rng = np.random.default_rng(0)
    count, length, words = (10_000, 60, 5000) if LARGE else (300, 20, 400)
    return [" ".join(f"w{i}" for i in rng.zipf(1.4, length) % words) for _ in range(count)]


def corpus() -> Any:
    import eckart

    return eckart.corpus(texts())


def mixed() -> Any:
    import pandas as pd

    rng = np.random.default_rng(0)
    frame = pd.DataFrame(table(0.1)[:, :17], columns=[f"x{i}" for i in range(17)])
    for i in range(3):
        frame[f"c{i}"] = rng.choice(list("abcd"), len(frame))
    return frame


def gaps() -> np.ndarray:
    return table(0.4)


def case(name: str, *args: Any, on: Callable[[], Any] = gaps, **params: Any) -> Any:
    return name, args, on, params


CASES: dict[str, Any] = {
    "PCA": case("PCA", 2, on=table),
    "PCA, gaps": case("PCA", 2),
    "PCA, auto": case("PCA", "auto", on=table),
    "IncrementalPCA": case("IncrementalPCA", 2, on=table),
    "TruncatedSVD": case("TruncatedSVD", 2, on=corpus),
    "LinearAutoencoder": case("LinearAutoencoder", 2, on=table),
    "ALS": case("ALS", on=ratings),
    "ALS, k": case("ALS", 10, on=ratings),
    "ALS, implicit": case("ALS", feedback="implicit", on=clicks),
    "BayesianMF": case("BayesianMF", on=ratings),
    "SoftImpute": case("SoftImpute", on=ratings),
    "SVT": case("SVT"),
    "SVP": case("SVP", 2),
    "ExactRecovery": case("ExactRecovery"),
    "EASE": case("EASE", on=clicks),
    "SLIM": case("SLIM", on=clicks),
    "SpectralFilter": case("SpectralFilter", on=clicks),
    "MixedTable": case("MixedTable", on=mixed),
    "TimeFactors": case("TimeFactors"),
    "GaussianMixture": case("GaussianMixture", 2, on=table),
    "GaussianMixture, auto": case("GaussianMixture", "auto", on=table),
    "GaussianMixture, gaps": case("GaussianMixture", 2),
    "Mixture": case("Mixture", 2, on=corpus, family="multinomial"),
    "NMF": case("NMF", 2, on=table),
    "NMF, gaps": case("NMF", 2),
    "MiniBatchNMF": case("MiniBatchNMF", 2, on=table),
    "LDA": case("LDA", 3, on=corpus),
    "PLSA": case("PLSA", 3, on=corpus),
    "SkipGram": case("SkipGram", 20, on=texts),
    "GloVe": case("GloVe", 20, on=texts),
    "PMI": case("PMI", 20, on=texts),
}


class Compiled:
    """Seconds of processors that numba compiled for each kernel, without the kernels that it
    called."""

    def __init__(self) -> None:
        from numba.core import event

        self.own: dict[str, float] = {}
        self.total = 0.0
        stack: list[list[float]] = []
        outer = self

        class Listener(event.Listener):
            def on_start(self, event: Any) -> None:
                stack.append([time.process_time(), 0.0])

            def on_end(self, event: Any) -> None:
                begin, inner = stack.pop()
                lasted = time.process_time() - begin
                kernel = event.data["dispatcher"].py_func
                module = kernel.__module__.removeprefix("eckart.")
                name = f"{module}.{kernel.__name__}({', '.join(map(str, event.data['args']))})"
                outer.own[name] = outer.own.get(name, 0.0) + lasted - inner
                if stack:
                    stack[-1][1] += lasted
                else:
                    outer.total += lasted

        event.register("numba:compile", Listener())


def once(name: str, kernels: bool) -> None:
    """One case in this process; its figures as a line of JSON."""
    begin = time.perf_counter()
    import eckart

    imported = time.perf_counter() - begin
    model, args, on, params = CASES[name]
    compiled = Compiled() if kernels else None  # numba is loaded for it, and that takes time
    data = on()
    before = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        getattr(eckart, model)(*args, random_state=0, **params).fit(data)
    figures = {
        "import": imported,
        "wall": time.perf_counter() - before[0],
        "cpu": time.process_time() - before[1],
        "numba": "numba" in sys.modules,
        "compiling": compiled.total if compiled else 0.0,
        "kernels": compiled.own if compiled else {},
    }
    print(json.dumps(figures))


def fresh(name: str, cache: str, options: list[str]) -> dict[str, Any]:
    """The same in a process of its own."""
    command = [sys.executable, "-W", "ignore", __file__, "--once", name, *options]
    done = subprocess.run(
        command, env=os.environ | {"NUMBA_CACHE_DIR": cache}, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    global LARGE
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", help=f"some of: {', '.join(CASES)}; default all")
    parser.add_argument("--large", action="store_true", help="data that need kernels")
    parser.add_argument("--kernels", action="store_true", help="list what was compiled")
    parser.add_argument("--once", help=argparse.SUPPRESS)
    args = parser.parse_args()
    LARGE = args.large
    if args.once:
        return once(args.once, args.kernels)
    unknown = [name for name in args.models if name not in CASES]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(CASES)}")
    options = ["--large"] * args.large + ["--kernels"] * args.kernels
    print(
        f"{'':24}{'import':>8}{'first fit':>11}{'cpu':>7}{'numba':>7}{'next process':>14}{'cpu':>7}"
    )
    for name in args.models or CASES:
        if args.large and CASES[name][2] not in (ratings, clicks, corpus, texts):
            continue
        with tempfile.TemporaryDirectory() as own:
            cold, warm = fresh(name, own, options), fresh(name, own, options)
        loaded = "yes" if cold["numba"] else ""
        print(
            f"{name:24}{cold['import']:8.2f}{cold['wall']:11.2f}{cold['cpu']:7.2f}{loaded:>7}"
            f"{warm['wall']:14.2f}{warm['cpu']:7.2f}",
            flush=True,
        )
        for kernel, seconds in sorted(cold["kernels"].items(), key=lambda item: -item[1])[:40]:
            print(f"    {seconds:6.2f}  {kernel}")


if __name__ == "__main__":
    main()
