"""What a newcomer waits for: import, the first fit with no compiled kernels, and the same in the
next process. Tiny data, so that a fit is its compiling.

    python benchmarks/first_fit.py [MODEL ...]             a table: wall and processor seconds
    python benchmarks/first_fit.py --kernels [MODEL ...]   and which kernels took them, without
    those that each called
    python benchmarks/first_fit.py --warmed                the same after ``eckart warm``: what was
    compiled all the same

Every figure is of a process of its own, with a cache of kernels (``NUMBA_CACHE_DIR``) of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np


def table(gaps: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(0)
    x = rng.random((60, 3)) @ rng.random((3, 12)) + 0.01 * rng.random((60, 12))
    x[rng.random(x.shape) < gaps] = np.nan
    return x


def texts() -> list[str]:
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice([f"w{i}" for i in range(40)], 25)) for _ in range(80)]


def case(
    name: str, *args: Any, on: Callable[[], Any] = lambda: table(0.4), **params: Any
) -> Callable[[], None]:
    def fit() -> None:
        import eckart

        data = on()
        data = eckart.corpus(data) if on is texts and name in ("LDA", "PLSA", "NMF") else data
        getattr(eckart, name)(*args, random_state=0, **params).fit(data)

    return fit


CASES: dict[str, Callable[[], None]] = {
    "PCA": case("PCA", 2, on=table),
    "PCA, gaps": case("PCA", 2),
    "ALS": case("ALS", 2),
    "ALS, implicit": case("ALS", 2, feedback="implicit"),
    "BayesianMF": case("BayesianMF", 2),
    "SoftImpute": case("SoftImpute"),
    "GaussianMixture": case("GaussianMixture", 2, on=table),
    "GaussianMixture, gaps": case("GaussianMixture", 2),
    "GaussianMixture, diag": case("GaussianMixture", 2, on=table, covariance_type="diag"),
    "NMF": case("NMF", 2, on=table),
    "LDA": case("LDA", 3, on=texts),
    "PLSA": case("PLSA", 3, on=texts),
    "SkipGram": case("SkipGram", 4, on=texts),
    "GloVe": case("GloVe", 4, on=texts),
    "PMI": case("PMI", 4, on=texts),
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
                name = f"{kernel.__module__.removeprefix('eckart.')}.{kernel.__name__}({', '.join(map(str, event.data['args']))})"
                outer.own[name] = outer.own.get(name, 0.0) + lasted - inner
                if stack:
                    stack[-1][1] += lasted
                else:
                    outer.total += lasted

        event.register("numba:compile", Listener())


def once(name: str) -> None:
    """One case in this process; its figures as a line of JSON."""
    begin = time.perf_counter(), time.process_time()
    import eckart

    _ = eckart.PCA
    middle = time.perf_counter(), time.process_time()
    compiled = Compiled()
    CASES[name]()
    end = time.perf_counter(), time.process_time()
    figures = {
        "import": middle[0] - begin[0],
        "wall": end[0] - middle[0],
        "cpu": end[1] - middle[1],
        "compiling": compiled.total,
        "kernels": compiled.own,
    }
    print(json.dumps(figures))


def fresh(name: str, cache: str) -> dict[str, Any]:
    """The same in a process of its own."""
    command = [sys.executable, "-W", "ignore", __file__, "--once", name]
    done = subprocess.run(
        command, env=os.environ | {"NUMBA_CACHE_DIR": cache}, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", help=f"some of: {', '.join(CASES)}; default all")
    parser.add_argument(
        "--kernels",
        action="store_true",
        help="list kernels by the seconds that they took to compile",
    )
    parser.add_argument(
        "--warmed",
        action="store_true",
        help="run eckart warm first; a fit that compiles for half a second is a failure",
    )
    parser.add_argument("--once", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.once:
        return once(args.once)
    unknown = [name for name in args.models if name not in CASES]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(CASES)}")
    late = []
    with tempfile.TemporaryDirectory() as shared:
        if args.warmed:
            subprocess.run(
                [sys.executable, "-m", "eckart", "warm"],
                env=os.environ | {"NUMBA_CACHE_DIR": shared},
                check=True,
            )
        print(
            f"{'':24}{'import':>8}{'first fit':>11}{'cpu':>7}{'compiling':>11}{'next process':>14}"
        )
        for name in args.models or CASES:
            with tempfile.TemporaryDirectory() as own:
                cold = fresh(name, shared if args.warmed else own)
                warm = fresh(name, shared if args.warmed else own)
            figures = f"{cold['import']:8.2f}{cold['wall']:11.2f}{cold['cpu']:7.2f}{cold['compiling']:11.2f}{warm['wall']:14.2f}"
            print(f"{name:24}{figures}", flush=True)
            if args.kernels:
                for kernel, seconds in sorted(cold["kernels"].items(), key=lambda item: -item[1])[
                    :40
                ]:
                    print(f"    {seconds:6.2f}  {kernel}")
            if args.warmed and cold["compiling"] > 0.5:
                late.append(name)
    if late:
        raise SystemExit(f"still compiled after eckart warm: {', '.join(late)}")


if __name__ == "__main__":
    main()
