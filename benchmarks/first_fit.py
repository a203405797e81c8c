"""What a newcomer waits for: import, the first fit with no compiled kernels, and the same in the
next process. Small data (a table of 400 x 20, 300 short texts, 10,000 ratings), which two seconds
are promised for.

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
    x = rng.random((400, 3)) @ rng.random((3, 20)) + 0.1 * rng.random((400, 20))
    x[rng.random(x.shape) < gaps] = np.nan
    return x


def yes_or_no() -> np.ndarray:
    return (table() > 0.9) * 1.0


def holes() -> np.ndarray:
    return table(0.4)


def mixed() -> Any:
    import pandas as pd

    x = table(0.1)
    frame = pd.DataFrame(x, columns=[f"c{i}" for i in range(20)])
    for i in range(0, 20, 4):
        frame[f"c{i}"] = pd.cut(x[:, i], 4).astype(str)
        frame.loc[np.isnan(x[:, i]), f"c{i}"] = None
    return frame


def ratings() -> Any:
    from scipy import sparse

    rng, at = np.random.default_rng(0), np.random.default_rng(1).choice(240_000, 10_000, False)
    return sparse.csr_array((rng.integers(1, 6, 10_000) * 1.0, (at // 400, at % 400)), (600, 400))


def liked() -> Any:
    a = ratings()
    a.data = (a.data > 3) * 1.0
    return a


def texts() -> list[str]:
    """300 of 25 words each."""
    rng = np.random.default_rng(0)
    words = np.minimum(rng.zipf(1.4, (300, 25)) - 1, 499)
    return [" ".join(f"w{i}" for i in row) for row in words]


def case(name: str, *args: Any, on: Callable[[], Any] = table, **params: Any) -> Callable[[], None]:
    def fit() -> None:
        import eckart

        data = on()
        data = eckart.corpus(data) if on is texts and name in ("LDA", "PLSA", "NMF") else data
        seed = {} if name in ("EASE", "SLIM", "SpectralFilter") else {"random_state": 0}
        getattr(eckart, name)(*args, **seed, **params).fit(data)

    return fit


CASES: dict[str, Callable[[], None]] = {
    "PCA": case("PCA", 2),
    "PCA, gaps": case("PCA", 2, on=holes),
    "PCA, counts": case("PCA", 5, on=ratings, center=False),
    "LinearAutoencoder": case("LinearAutoencoder", 2),
    "ALS": case("ALS", 10, on=ratings),
    "ALS, implicit": case("ALS", 10, on=ratings, feedback="implicit"),
    "ALS, logistic": case("ALS", 5, on=liked, loss="logistic"),
    "BayesianMF": case("BayesianMF", 5, on=ratings),
    "SoftImpute": case("SoftImpute", on=holes),
    "SoftImpute, ratings": case("SoftImpute", on=ratings, tau=20.0),
    "SVT": case("SVT", on=holes, tol=1e-2),
    "SVP": case("SVP", 3, on=holes),
    "EASE": case("EASE", on=ratings),
    "SLIM": case("SLIM", on=ratings),
    "SpectralFilter": case("SpectralFilter", 10, on=ratings),
    "TimeFactors": case("TimeFactors", 3, on=holes),
    "MixedTable": case("MixedTable", 3, on=mixed),
    "GaussianMixture": case("GaussianMixture", 2),
    "GaussianMixture, gaps": case("GaussianMixture", 2, on=holes),
    "GaussianMixture, diag": case("GaussianMixture", 2, covariance_type="diag"),
    "Mixture": case("Mixture", 2, on=yes_or_no, family="bernoulli"),
    "NMF": case("NMF", 5),
    "NMF, words": case("NMF", 5, on=texts),
    "LDA": case("LDA", 5, on=texts),
    "LDA, variational": case("LDA", 5, on=texts, learning_method="variational"),
    "PLSA": case("PLSA", 5, on=texts),
    "SkipGram": case("SkipGram", 8, on=texts),
    "GloVe": case("GloVe", 8, on=texts),
    "GloVe, adagrad": case("GloVe", 8, on=texts, solver="adagrad"),
    "PMI": case("PMI", 8, on=texts),
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


def once(name: str, kernels: bool = False) -> None:
    """One case in this process; its figures as a line of JSON."""
    begin = time.perf_counter(), time.process_time()
    import eckart

    _ = eckart.PCA
    middle = time.perf_counter(), time.process_time()
    compiled = Compiled() if kernels else None
    CASES[name]()
    end = time.perf_counter(), time.process_time()
    figures = {
        "import": middle[0] - begin[0],
        "wall": end[0] - middle[0],
        "cpu": end[1] - middle[1],
        "compiling": compiled.total if compiled else 0.0,
        "kernels": compiled.own if compiled else {},
        "numba": "numba" in sys.modules,
    }
    print(json.dumps(figures))


def fresh(name: str, cache: str, kernels: bool) -> dict[str, Any]:
    """The same in a process of its own."""
    command = [sys.executable, "-W", "ignore", __file__, "--once", name]
    command += ["--kernels"] if kernels else []
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
        return once(args.once, args.kernels)
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
                cold = fresh(name, shared if args.warmed else own, args.kernels or args.warmed)
                warm = fresh(name, shared if args.warmed else own, args.kernels)
            figures = f"{cold['import']:8.2f}{cold['wall']:11.2f}{cold['cpu']:7.2f}{cold['compiling']:11.2f}{warm['wall']:14.2f}"
            print(f"{name:24}{figures}{'  numba' if cold['numba'] else ''}", flush=True)
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
