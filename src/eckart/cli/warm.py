"""eckart warm: compile all kernels now, so that no first fit has to wait for it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np

import eckart
from eckart.cli import options
from eckart.cli.options import option
from eckart.cli.shell import Shell, lasting
from eckart.errors import invalid


def small_table(dtype: str = "float64", gaps: float = 0.0) -> Any:
    """Sixty rows of rank three with a little noise, ``gaps`` of the entries missing: a fit of them
    is its compiling."""
    rng = np.random.default_rng(0)
    x = (rng.random((60, 3)) @ rng.random((3, 12)) + 0.01 * rng.random((60, 12))).astype(dtype)
    x[rng.random(x.shape) < gaps] = np.nan
    return x


def small_texts() -> list[str]:
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice([f"w{i}" for i in range(40)], 25)) for _ in range(80)]


def _complete(name: str, *args: Any, **params: Any) -> None:
    for dtype in ("float64", "float32"):
        model = getattr(eckart, name)(*args, random_state=0, **params).fit(small_table(dtype, 0.4))
        model.recommend([0], 2)


def _explain(name: str, **params: Any) -> None:
    counts = eckart.corpus(small_texts())
    getattr(eckart, name)(3, random_state=0, **params).fit(counts)


def _embed(name: str) -> None:
    vectors = getattr(eckart, name)(4, random_state=0).fit(small_texts()).vectors_
    vectors.neighbours("w1", 2)


def _mixture(**params: Any) -> None:
    for dtype in ("float64", "float32"):
        for gaps in (0.0, 0.1):
            eckart.GaussianMixture(2, random_state=0, **params).fit(small_table(dtype, gaps))


def _reduce() -> None:
    for dtype in ("float64", "float32"):
        for gaps in (0.0, 0.1):
            x = small_table(dtype, gaps)
            eckart.PCA(2, random_state=0).fit(x).transform(x)


def _short_rows() -> None:
    """Enough rows with fewer entries than components: they have a kernel of their own, which
    smaller data does without."""
    x = np.random.default_rng(0).random((1200, 60))
    x[x < 0.7] = np.nan
    for dtype in ("float64", "float32"):
        eckart.ALS(40, max_iter=1, random_state=0).fit(x.astype(dtype))


def _items() -> None:
    for name, params in (
        ("EASE", {}),
        ("SLIM", {}),
        ("SpectralFilter", {"n_components": 2, "random_state": 0}),
    ):
        getattr(eckart, name)(**params).fit(small_table(gaps=0.4)).recommend([0], 2)


def _parts(dtype: str) -> None:
    for loss in ("frobenius", "kullback-leibler"):
        for x in (small_table(dtype), small_table(dtype, 0.1), eckart.corpus(small_texts())):
            eckart.NMF(2, beta_loss=loss, random_state=0).fit(x)


CASES: dict[str, Callable[[], None]] = {
    "lda": lambda: _explain("LDA"),
    "als": lambda: _complete("ALS", 2),
    "mixture": lambda: _mixture(),
    "nmf": lambda: _parts("float64"),
    "skipgram": lambda: _embed("SkipGram"),
    "glove": lambda: _embed("GloVe"),
    "als, implicit": lambda: _complete("ALS", 2, feedback="implicit"),
    "als, rows with few entries": _short_rows,
    "als, non-negative": lambda: _complete("ALS", 2, nonnegative=True),
    "lda, variational": lambda: _explain("LDA", learning_method="variational"),
    "plsa": lambda: _explain("PLSA"),
    "bayes": lambda: _complete("BayesianMF", 2),
    "nmf, single precision": lambda: _parts("float32"),
    "mixture, diagonal": lambda: _mixture(covariance_type="diag"),
    "mixture, tied": lambda: _mixture(covariance_type="tied"),
    "mixture, spherical": lambda: _mixture(covariance_type="spherical"),
    "pmi": lambda: _embed("PMI"),
    "soft-impute": lambda: _complete("SoftImpute"),
    "svp": lambda: _complete("SVP", 2),
    "items": _items,
    "pca": _reduce,
}
"""A small fit for each family of kernels, the longest to compile first."""


@options.spread
def warm(
    *,
    jobs: Annotated[
        int | None, option(help="Processes side by side.  [default: one for each core]")
    ] = None,
    shell: Shell,
) -> None:
    """Compile all kernels now, side by side, so that no first fit has to wait.

    Compiled kernels are kept beside the package (or where NUMBA_CACHE_DIR says) and serve all later
    runs of this version on this machine.

    Example:

        eckart warm
    """
    jobs = jobs or os.cpu_count() or 1
    if jobs < 1:
        raise invalid("--jobs", jobs, "a number of 1 or more")
    begin, waiting, failed = time.perf_counter(), list(CASES), {}
    running: dict[str, tuple[subprocess.Popen[str], float]] = {}
    done: dict[str, float] = {}
    with shell.phase(f"compiling {len(CASES)} families of kernels in {jobs} processes"):
        try:
            while waiting or running:
                for name in waiting[: max(0, jobs - len(running))]:
                    waiting.remove(name)
                    running[name] = (_start(name), time.perf_counter())
                time.sleep(0.05)
                for name in [n for n, (job, _) in running.items() if job.poll() is not None]:
                    job, since = running.pop(name)
                    done[name] = time.perf_counter() - since
                    if job.returncode:
                        failed[name] = (job.communicate()[1] or "").strip().splitlines()[-1:]
                    shell.say(
                        name,
                        f"failed: {' '.join(failed[name])}"
                        if name in failed
                        else f"ready in {lasting(done[name])}",
                    )
        finally:
            for job, _ in running.values():
                job.kill()
    shell.holds = not failed
    shell.answer |= {"seconds": time.perf_counter() - begin, "families": done, "failed": failed}
    shell.say("all", f"in {lasting(time.perf_counter() - begin)}")


def _start(name: str) -> subprocess.Popen[str]:
    code = f"from eckart.cli.warm import CASES; CASES[{name!r}]()"
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code],
        env=os.environ | {"ECKART_COMPILERS": "0"},  # every core has a family of its own to compile
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
