"""How much faster each model becomes with more threads, on any machine: seconds at 1, 2, 4, 8, 16
threads, the gain, and the gain that is wanted.

Every work is one fit (or one answer) on generated data, in a process of its own; the data are made
from a fixed seed and kept in ``benchmarks/cache/``. The kernels are compiled on a small problem of
the same kind before the clock starts; should a run compile something all the same, it is run again.
The threads of BLAS are limited to the same number, so that one thread is one. The most threads come
first. A second run follows where the first took less than 5 seconds; the best counts. A digest of
the fitted arrays is compared over all thread counts: "same bits", or "DIFFERENT".

``busy`` in the kept lines is CPU seconds over seconds: how many cores worked on the average.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata as metadata
import inspect
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from harness import CACHE  # noqa: E402

COUNTS = (1, 2, 4, 8, 16)
LONG = 5.0  # seconds: a run that takes longer is not repeated
SLOWER = 1.03  # --compare: what may not be exceeded
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# ---- data: vectorised, from fixed seeds, kept


def kept(name: str, make: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Arrays from the cache, made once. Each process writes under a name of its own first, so that
    several may do so at once."""
    CACHE.mkdir(exist_ok=True)
    path = CACHE / f"cores-{name}.npz"
    if not path.exists():
        part = CACHE / f"part-{os.getpid()}-{path.name}"
        with part.open("wb") as out:
            np.savez(out, **make())
        part.replace(path)
    with np.load(path) as found:
        return {key: found[key] for key in found.files}


def dense_rows(rows: int, n: int) -> np.ndarray:
    """float32 rows with a power-law spectrum, four reflections so that no axis is special, and a
    mean."""

    def make() -> dict[str, np.ndarray]:
        rng = np.random.default_rng(7)
        scale = 10 * (np.arange(n, dtype=np.float32) + 1) ** -0.6
        mean = (rng.standard_normal(n) * 2).astype(np.float32)
        mirrors = rng.standard_normal((4, n), dtype=np.float32)
        mirrors /= np.linalg.norm(mirrors, axis=1, keepdims=True)
        x = np.empty((rows, n), np.float32)
        edges = np.linspace(0, rows, 65).astype(int)

        def part(at: int) -> None:
            y = x[edges[at] : edges[at + 1]]
            np.random.default_rng([7, at]).standard_normal(dtype=np.float32, out=y)
            y *= scale
            for v in mirrors:
                y -= np.outer(2 * (y @ v), v)
            y += mean

        with ThreadPoolExecutor(CORES) as pool:
            list(pool.map(part, range(64)))
        return {"x": x}

    return kept(f"rows-{rows}x{n}", make)["x"]


def sparse_rows(rows: int, n: int) -> Any:
    from reduce import sparse_data

    return sparse_data(rows, n)


def ratings(m: int, n: int, count: int) -> Any:
    """About ``count`` ratings 1..5: log-normal activity of rows, power-law popularity of columns,
    rank 10 + biases + noise. Made in 64 parts of the rows."""
    from eckart import Observed

    def make() -> dict[str, np.ndarray]:
        rng = np.random.default_rng(11)
        active = np.maximum(rng.lognormal(0, 1.1, m), 0.1)
        popular = rng.permutation(1.0 / (np.arange(n) + 30.0) ** 1.1)
        columns = np.cumsum(popular / popular.sum())
        row_bias, column_bias = rng.normal(0, 0.4, m), rng.normal(0, 0.45, n)
        left, right = (rng.normal(0, 0.4, (size, 10)).astype(np.float32) for size in (m, n))
        edges = np.linspace(0, m, 65).astype(np.int64)

        def part(at: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            low, high = edges[at], edges[at + 1]
            draw, share = np.random.default_rng([11, at]), active[low:high]
            wanted = min(int(count * share.sum() / active.sum()), (high - low) * n // 2)
            cdf, key = np.cumsum(share / share.sum()), np.empty(0, np.int64)
            while key.size < wanted:
                more = int((wanted - key.size) * 1.5) + 100
                u = np.minimum(np.searchsorted(cdf, draw.random(more)), high - low - 1)
                i = np.minimum(np.searchsorted(columns, draw.random(more)), n - 1)
                key = np.unique(np.concatenate([key, u * n + i]))
            key = np.delete(key, draw.choice(key.size, key.size - wanted, replace=False))
            u, i = key // n + low, key % n
            y = 3.55 + row_bias[u] + column_bias[i] + np.einsum("ij,ij->i", left[u], right[i])
            y = np.clip(np.rint(y + draw.normal(0, 0.85, wanted)), 1, 5).astype(np.float32)
            return np.bincount(u - low, minlength=high - low), i.astype(np.int32), y

        with ThreadPoolExecutor(CORES) as pool:
            sizes, indices, data = zip(*pool.map(part, range(64)))
        indptr = np.concatenate([[0], np.cumsum(np.concatenate(sizes))]).astype(np.int64)
        return {"indptr": indptr, "indices": np.concatenate(indices), "data": np.concatenate(data)}

    z = kept(f"ratings-{m}x{n}x{count}", make)
    return Observed(z["indptr"], z["indices"], z["data"], n)


def low_rank_entries(n: int, entries: int) -> Any:
    """n x n of rank 10 with noise 0.1, of which about ``entries`` are seen."""
    from eckart import Observed

    def make() -> dict[str, np.ndarray]:
        rng = np.random.default_rng(5)
        u, v = rng.standard_normal((n, 10)), rng.standard_normal((n, 10))
        at = np.unique(rng.integers(0, n * n, entries))
        i, j = at // n, at % n
        data = np.einsum("pc,pc->p", u[i], v[j]) + 0.1 * rng.standard_normal(at.size)
        return {
            "indptr": np.searchsorted(i, np.arange(n + 1)),
            "indices": j.astype(np.int32),
            "data": data,
        }

    z = kept(f"entries-{n}-{entries}", make)
    return Observed(z["indptr"], z["indices"], z["data"], n)


def gaussians(rows: int, n: int, k: int) -> np.ndarray:
    """float64 rows from k Gaussians with random covariances."""

    def make() -> dict[str, np.ndarray]:
        rng = np.random.default_rng(51)
        x, label = rng.standard_normal((rows, n)), rng.integers(0, k, rows)
        for z in range(k):
            root = 0.25 * rng.standard_normal((n, n)) + np.diag(rng.uniform(0.5, 1.5, n))
            x[label == z] = x[label == z] @ root.T + 1.5 * rng.standard_normal(n)
        return {"x": x}

    return kept(f"gaussians-{rows}x{n}x{k}", make)["x"]


def word_counts(documents: int, n: int, k: int) -> Any:
    """Word counts of a latent Dirichlet model with Zipf topics, about 134 tokens a document."""
    from scipy import sparse

    def make() -> dict[str, np.ndarray]:
        rng = np.random.default_rng(21)
        base = 1.0 / (np.arange(n) + 5.0) ** 1.05
        base /= base.sum()
        phi = base * rng.gamma(0.06, 1 / 0.06, (k, n)) + 0.03 * base
        cdf = np.cumsum(phi, axis=1)
        length = np.clip(rng.lognormal(np.log(112), 0.6, documents), 20, 2000).astype(np.int64)
        of_topic = rng.multinomial(length, rng.dirichlet(np.full(k, 0.1), documents))
        rows, columns = [], []
        for z in range(k):
            rows.append(np.repeat(np.arange(documents), of_topic[:, z]))
            found = np.searchsorted(cdf[z], rng.random(rows[-1].size) * cdf[z, -1])
            columns.append(np.minimum(found, n - 1))
        at = np.concatenate(rows), np.concatenate(columns)
        x = sparse.csr_matrix((np.ones(at[0].size, np.float32), at), shape=(documents, n))
        x.sum_duplicates()
        return {"data": x.data, "indices": x.indices, "indptr": x.indptr}

    z = kept(f"counts-{documents}x{n}x{k}", make)
    return sparse.csr_matrix((z["data"], z["indices"], z["indptr"]), shape=(documents, n))


def nonnegative(rows: int, n: int, k: int) -> np.ndarray:
    """Sparse gamma factors and half-normal noise of a tenth of the mean, float32."""

    def make() -> dict[str, np.ndarray]:
        rng = np.random.default_rng(31)
        w, h = (rng.gamma(0.5, 1.0, s) * (rng.random(s) < 0.3) for s in ((rows, k), (k, n)))
        x = w.astype(np.float32) @ h.astype(np.float32)
        x += np.float32(0.1 * x.mean()) * np.abs(rng.standard_normal(x.shape, dtype=np.float32))
        return {"x": x}

    return kept(f"nonnegative-{rows}x{n}", make)["x"]


def sentences(count: int) -> Any:
    """Sentences of 20 words from 30,000 words and 100 topics, through a text file of words of equal
    length."""
    from eckart import sequences

    def make() -> dict[str, np.ndarray]:
        rng, size = np.random.default_rng(41), count * 20
        p = 1.0 / (np.arange(30_000) + 3.0)
        common = np.minimum(np.searchsorted(np.cumsum(p / p.sum()), rng.random(size)), 29_999)
        own = common // 100 * 100 + np.repeat(rng.integers(0, 100, count), 20)
        return {
            "ids": np.where((rng.random(size) < 0.6) & (own >= 1000), own, common).astype(np.int32)
        }

    ids = kept(f"sentences-{count}", make)["ids"]
    names = np.frombuffer("".join(f"w{i:05d} " for i in range(30_000)).encode(), np.uint8).reshape(
        -1, 7
    )
    text = names[ids]
    text[19::20, 6] = ord("\n")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "words.txt"
        path.write_bytes(text.tobytes())
        return sequences(path)


# ---- works: (data, threads) -> arrays whose bits are compared


def model_of(name: str, *args: Any, threads: int, **options: Any) -> Any:
    """The model of that name on the CPU engine. ``--compare`` may ask states of the library in
    which there was no other engine to choose."""
    import eckart

    kind = getattr(eckart, name)
    by = {"engine": "cpu"} if "engine" in inspect.signature(kind).parameters else {}
    return kind(*args, random_state=0, n_threads=threads, **by, **options)


def pca(x: Any, threads: int, k: int, **more: Any) -> list[Any]:
    model = model_of("PCA", k, threads=threads, **more).fit(x)
    return [model.components_, model.singular_values_]


def rival_pca(x: Any, k: int, solver: str) -> None:
    from sklearn.decomposition import PCA

    PCA(k, svd_solver=solver, random_state=0).fit(x)


def als(x: Any, threads: int, k: int, **more: Any) -> list[Any]:
    model = model_of("ALS", k, max_iter=3, tol=0.0, threads=threads, **more).fit(x)
    return [model.fit_.factors.left, model.fit_.factors.right]


def bayes(x: Any, threads: int) -> list[Any]:
    model = model_of("BayesianMF", 32, n_samples=4, burn_in=3, thin=1, threads=threads).fit(x)
    return [model.fit_.factors.left, model.fit_.factors.right]


def gaussian_mixture(x: np.ndarray, threads: int, kind: str, steps: int) -> list[Any]:
    k, n = 32, x.shape[1]
    start = x[np.random.default_rng(1).choice(len(x), k, replace=False)]
    precision = np.full((k, n), 0.4) if kind == "diag" else np.tile(0.4 * np.eye(n), (k, 1, 1))
    model = model_of(
        "GaussianMixture",
        k,
        covariance_type=kind,
        max_iter=steps,
        tol=0.0,
        reg_covar=1e-6,
        threads=threads,
        means_init=start,
        weights_init=np.full(k, 1.0 / k),
        precisions_init=precision,
    ).fit(x)
    return [model.weights_, model.means_, model.covariances_]


def lda(x: Any, threads: int, method: str, **more: Any) -> list[Any]:
    model = model_of("LDA", 50, learning_method=method, threads=threads, **more).fit(x)
    return [model.components_]


def nmf(x: Any, threads: int, k: int, **more: Any) -> list[Any]:
    model = model_of("NMF", k, tol=0.0, threads=threads, **more)
    return [model.fit_transform(x), model.components_]


def soft_impute(x: Any, threads: int) -> list[Any]:
    model = model_of("SoftImpute", tau=3.0, max_iter=5, threads=threads).fit(x)
    return [model.fit_.factors.left, model.fit_.factors.right]


def skip_gram(x: Any, threads: int, deterministic: bool) -> list[Any]:
    model = model_of("SkipGram", 100, max_iter=1, deterministic=deterministic, threads=threads).fit(
        x
    )
    return [model.vectors_.vectors]


def count_pairs(x: Any, threads: int) -> list[Any]:
    from eckart import cooccurrence

    found = cooccurrence(x, window=10, max_memory=2**32, n_threads=threads).to_scipy()
    return [found.indptr, found.indices, found.data]


def for_recommending(rows: int, n: int, count: int) -> Any:
    from eckart import ALS

    return ALS(64, feedback="implicit", max_iter=1, random_state=0).fit(ratings(rows, n, count))


def top_ten(model: Any, threads: int) -> list[Any]:
    return [model.set_params(n_threads=threads).recommend(n=10).positions]


@dataclass(frozen=True)
class Work:
    """``make(small)`` gives the data, ``do(data, threads)`` the arrays; ``gain`` is wanted of 16
    threads over one."""

    title: str
    gain: float
    make: Callable[[bool], Any]
    do: Callable[[Any, int], list[Any]]
    rival: Callable[[Any], None] | None = None
    over_rival: float = 0.0
    exact: bool = True  # the bits may not depend on the threads


def _part(full: int, small: bool, by: int = 20) -> int:
    return full // by if small else full


IMPLICIT: dict[str, Any] = {
    "feedback": "implicit",
    "l2": 5.0,
    "l2_power": 0,
    "unobserved_weight": 1.0,
    "zeros": "unobserved",
}
WORKS: dict[str, Work] = {
    "pca-tall": Work(
        "PCA 200,000 x 512, k=32",
        7,
        lambda s: dense_rows(_part(200_000, s), 512),
        lambda x, t: pca(x, t, 32),
        lambda x: rival_pca(x, 32, "covariance_eigh"),
        1.3,
    ),
    "pca-wide": Work(
        "PCA 20,000 x 4,096, k=64",
        7,
        lambda s: dense_rows(_part(20_000, s), 4096),
        lambda x, t: pca(x, t, 64),
        lambda x: rival_pca(x, 64, "auto"),
        2.0,
    ),
    "pca-sparse": Work(
        "PCA sparse 200,000 x 50,000, k=64",
        7,
        lambda s: sparse_rows(_part(200_000, s), _part(50_000, s, 4)),
        lambda x, t: pca(x, t, 64),
    ),
    "als": Work(
        "ALS 20M ratings, k=64, 3 sweeps",
        10,
        lambda s: ratings(_part(138_000, s), _part(27_000, s, 8), _part(20_000_000, s)),
        lambda x, t: als(x, t, 64, l2=0.5, l2_power=0.7),
    ),
    "als-implicit": Work(
        "ALS implicit 20M, k=128, 3 sweeps",
        10,
        lambda s: ratings(_part(138_000, s), _part(27_000, s, 8), _part(20_000_000, s)),
        lambda x, t: als(x, t, 128, **IMPLICIT),
    ),
    "bayes": Work(
        "BayesianMF 2M ratings, k=32",
        9,
        lambda s: ratings(_part(20_000, s), _part(4_000, s, 4), _part(2_000_000, s)),
        bayes,
    ),
    "gmm-full": Work(
        "mixture full 200,000 x 32, 10 steps",
        10,
        lambda s: gaussians(_part(200_000, s), 32, 32),
        lambda x, t: gaussian_mixture(x, t, "full", 10),
    ),
    "gmm-diag": Work(
        "mixture diag 200,000 x 32, 10 steps",
        10,
        lambda s: gaussians(_part(200_000, s), 32, 32),
        lambda x, t: gaussian_mixture(x, t, "diag", 10),
    ),
    "lda-cvb0": Work(
        "LDA cvb0 2.4M tokens, k=50, 10 steps",
        8,
        lambda s: word_counts(_part(18_000, s), _part(30_000, s, 4), 50),
        lambda x, t: lda(x, t, "cvb0", max_iter=10, tol=0.0),
    ),
    "lda-gibbs": Work(
        "LDA Gibbs 2.4M tokens, k=50, 12 sweeps",
        8,
        lambda s: word_counts(_part(18_000, s), _part(30_000, s, 4), 50),
        lambda x, t: lda(x, t, "gibbs", max_iter=3, burn_in=6, n_samples=6),
    ),
    "nmf": Work(
        "NMF dense 20,000 x 2,000, k=32, 30 steps",
        8,
        lambda s: nonnegative(_part(20_000, s), 2000, 32),
        lambda x, t: nmf(x, t, 32, max_iter=30),
    ),
    "nmf-kl": Work(
        "NMF KL counts 18,000 x 30,000, k=50, 8 steps",
        8,
        lambda s: word_counts(_part(18_000, s), _part(30_000, s, 4), 50),
        lambda x, t: nmf(x, t, 50, beta_loss="kullback-leibler", max_iter=8),
    ),
    "softimpute": Work(
        "SoftImpute 50,000 x 50,000, 5M, 5 steps",
        6,
        lambda s: low_rank_entries(_part(50_000, s), _part(5_000_000, s)),
        soft_impute,
    ),
    "skipgram": Work(
        "skip-gram 5M words, 1 pass",
        9,
        lambda s: sentences(_part(250_000, s)),
        lambda x, t: skip_gram(x, t, False),
        exact=False,
    ),
    "skipgram-exact": Work(
        "skip-gram deterministic 5M, 1 pass",
        6,
        lambda s: sentences(_part(250_000, s)),
        lambda x, t: skip_gram(x, t, True),
    ),
    "cooccurrence": Work(
        "co-occurrence 17M words, window 10", 8, lambda s: sentences(_part(850_000, s)), count_pairs
    ),
    "top10": Work(
        "top 10 of 27,000 for 20,000 rows",
        10,
        lambda s: for_recommending(_part(20_000, s), _part(27_000, s, 8), _part(3_000_000, s)),
        top_ten,
    ),
}


# ---- one work in this process


def digest(arrays: list[Any]) -> str:
    told = hashlib.sha256()
    for array in arrays:
        a = np.ascontiguousarray(array)
        told.update(f"{a.dtype}{a.shape}".encode())
        told.update(a.data.cast("B") if a.size else b"")
    return told.hexdigest()[:16]


def timed(do: Callable[[], Any], threads: int) -> tuple[dict[str, float], Any]:
    """Seconds, CPU seconds over seconds, and how much was compiled meanwhile; BLAS has as many
    threads."""
    from numba.core import event
    from threadpoolctl import threadpool_limits

    with threadpool_limits(threads), event.install_recorder("numba:compile") as compiled:
        begin, cpu = time.perf_counter(), time.process_time()
        result = do()
        seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    return {
        "seconds": seconds,
        "cpu": cpu,
        "busy": round(cpu / seconds, 2),
        "compiled": len(compiled.buffer),
    }, result


def best(do: Callable[[], Any], threads: int, repeat: int) -> tuple[dict[str, float], Any]:
    """The best of ``repeat`` runs that compiled nothing; one run is enough where it is long."""
    found: list[dict[str, float]] = []
    result, tries = None, 0
    while len(found) < repeat and tries < repeat + 2:
        result, tries = None, tries + 1
        run, result = timed(do, threads)
        if not run["compiled"] or tries == repeat + 2:
            found.append(run)
            if run["seconds"] > LONG:
                break
    run = min(found, key=lambda r: r["seconds"])
    cpu = round(min(r["cpu"] for r in found), 4)
    return {**run, "seconds": round(run["seconds"], 4), "cpu": cpu, "runs": len(found)}, result


def warm(work: Work, counts: list[int]) -> None:
    data = work.make(True)
    for threads in sorted({counts[0], counts[-1]}):
        work.do(data, threads)
    if work.rival is not None:
        work.rival(data)


def child(name: str, counts: list[int], options: argparse.Namespace) -> None:
    """Compile, make the data, measure, and print a line for each thread count."""
    import eckart

    work, most = WORKS[name], max(counts)
    begin = time.perf_counter()
    warm(work, counts)
    say({"warm": round(time.perf_counter() - begin, 2), "from": str(Path(eckart.__file__).parent)})
    if options.warm_only:
        return
    begin = time.perf_counter()
    data = work.make(options.small)
    say({"made": round(time.perf_counter() - begin, 2)})
    if options.profile:
        profile(lambda: work.do(data, most), most)
        return
    for threads in sorted(counts, reverse=True):
        run, arrays = best(lambda n=threads: work.do(data, n), threads, options.repeat)
        say({"threads": threads, **run, "digest": digest(arrays)})
        del arrays
    if work.rival is not None and not options.no_rival:
        run, _ = best(lambda: work.rival(data), most, max(options.repeat, 2))  # type: ignore[misc]
        say({"rival": run["seconds"], "busy": run["busy"]})


def say(row: dict[str, Any]) -> None:
    print("RESULT " + json.dumps(row), flush=True)


def profile(do: Callable[[], Any], threads: int) -> None:
    """Where the seconds go: pieces of work on threads (how often, seconds of the clock, seconds of
    cores inside, threads called; of the thread pool's pieces the seconds of cores count what threads wait
    awake, and a piece inside another is shown as well), and what lies between them on one thread,
    by cProfile, which sleeps while threads work."""
    import cProfile
    import pstats
    from threading import get_ident

    from eckart import teams
    from eckart.engines.cpu.native import pool

    do()
    run, _ = timed(do, threads)
    found: dict[Any, list[float]] = {}
    profiler, caller, team = cProfile.Profile(), get_ident(), teams.Team
    helping, running, serving = team.help_out, team.run, pool._ThreadPool.run
    depth = 0

    @contextmanager
    def apart(name: Callable[[], Any], inside: Callable[[], tuple[float, float]]) -> Iterator[None]:
        """A piece of work under its name: not the profiler's, which sleeps until the outermost
        piece of the caller is done."""
        nonlocal depth
        own = get_ident() == caller
        if own:
            depth += 1
            profiler.disable()
        begin = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - begin
            row = found.setdefault(name(), [0.0] * 5)
            for at, more in enumerate(
                (1, seconds, *inside(), seconds if own and depth == 1 else 0.0)
            ):
                row[at] += more
            if own:
                depth -= 1
                if not depth:
                    profiler.enable()

    def help_out(self: Any) -> int:
        begin = time.thread_time()
        try:
            return helping(self)
        finally:
            self.inside = getattr(self, "inside", 0.0) + time.thread_time() - begin

    def run_team(self: Any) -> None:
        code = getattr(self.step, "__code__", None)
        where = (
            (code.co_filename, code.co_firstlineno, code.co_name)
            if code
            else ("", 0, str(self.step))
        )
        with apart(lambda: where, lambda: (self.inside, self.called + 1)):
            running(self)

    def run_pool(self: Any, kernel: int, count: int, arguments: tuple, most: int) -> None:
        code = next(
            (form[0].py_func.__code__ for form, at in pool._addresses.items() if at == kernel), None
        )
        where = (code.co_filename, code.co_firstlineno, code.co_name) if code else ("", 0, "kernel")
        begun: list[float] = []
        with apart(lambda: where, lambda: (time.process_time() - begun[0], most)):
            begun.append(time.process_time())
            serving(self, kernel, count, arguments, most)

    team.help_out, team.run, pool._ThreadPool.run = help_out, run_team, run_pool  # type: ignore[method-assign]
    try:
        seen, _ = timed(lambda: profiler.runcall(do), threads)
    finally:
        team.help_out, team.run, pool._ThreadPool.run = helping, running, serving  # type: ignore[method-assign]
    inside = sum(row[4] for row in found.values())
    print(
        f"{run['seconds']:.3f} s at {threads} threads, {run['busy']} cores busy; "
        f"watched {seen['seconds']:.3f}, of which {inside:.3f} in pieces"
    )
    print(f"{'pieces of work':<58}{'times':>7}{'clock':>9}{'core s':>9}{'threads':>9}{'lost':>9}")
    for (file, line, name), row in sorted(found.items(), key=lambda pair: -pair[1][1])[:20]:
        label = f"{'/'.join(Path(file).parts[-2:])}:{line} {name}"
        print(
            f"{label[:57]:<58}{row[0]:>7.0f}{row[1]:>9.3f}{row[2]:>9.3f}{row[3] / row[0]:>9.1f}{row[1] - row[2] / threads:>9.3f}"
        )
    pstats.Stats(profiler, stream=sys.stdout).sort_stats("tottime").print_stats(16)


def ceiling(counts: list[int]) -> None:
    """What this machine itself gains from threads that share nothing: products of small matrices
    (arithmetic), sums of a large array (memory), and reads at random places. No program gains more
    than these: two threads on one core, a shared clock and one memory are inside."""
    from threadpoolctl import threadpool_limits

    block, large = np.ones((1024, 1024), np.float32), np.ones(2**28, np.float32)
    at = np.random.default_rng(0).integers(0, large.size, 2**24)

    def arithmetic(_: int) -> None:
        # 2 GFlop: asking for the interpreter's lock between two of them costs nothing
        np.dot(block, block)

    def memory(i: int) -> None:
        large[i * large.size // 64 : (i + 1) * large.size // 64].max()

    def gathers(i: int) -> None:
        large.take(at[i * at.size // 64 : (i + 1) * at.size // 64])

    with threadpool_limits(1):
        for name, do in (("arithmetic", arithmetic), ("memory", memory), ("random reads", gathers)):
            times = []
            for threads in counts:
                with ThreadPoolExecutor(threads) as pool:
                    rounds = []
                    for _ in range(4):
                        begin = time.perf_counter()
                        list(pool.map(do, range(64)))
                        rounds.append(time.perf_counter() - begin)
                times.append(min(rounds))
            print(
                f"{'the machine: ' + name:<46}"
                + "".join(f"{t:>9.3f}" for t in times)
                + f"{times[0] / times[-1]:>6.2f}x",
                flush=True,
            )


# ---- the processes


def start(
    name: str, counts: list[int], options: argparse.Namespace, source: str = "", **more: Any
) -> subprocess.Popen:
    """A child; its threads are limited to the most that it will use."""
    most = str(max(counts))
    limits = dict.fromkeys(
        (f"{name}_NUM_THREADS" for name in ("OMP", "OPENBLAS", "MKL", "NUMBA")), most
    )
    environment = dict(
        os.environ, PYTHONWARNINGS="ignore", CUDA_VISIBLE_DEVICES="", **limits
    )  # a GPU would take some of the works
    if source:
        environment["PYTHONPATH"] = os.pathsep.join(
            filter(None, [source, os.environ.get("PYTHONPATH", "")])
        )
    command = [
        sys.executable,
        __file__,
        "--child",
        name,
        "--threads",
        ",".join(map(str, counts)),
        "--repeat",
        str(options.repeat),
    ]
    flags = {"small": options.small, "no_rival": options.no_rival, **more}
    command += [f"--{flag.replace('_', '-')}" for flag, on in flags.items() if on]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def answers(process: subprocess.Popen) -> tuple[list[dict[str, Any]], str]:
    """The child's lines, and the end of its errors if it failed."""
    out, errors = process.communicate()
    rows = [json.loads(line[7:]) for line in out.splitlines() if line.startswith("RESULT ")]
    return rows, "" if process.returncode == 0 else " / ".join(
        errors.strip().splitlines()[-3:]
    ) or str(process.returncode)


def compile_all(
    names: list[str],
    counts: list[int],
    options: argparse.Namespace,
    sources: tuple[str, ...] = ("",),
) -> None:
    """Fill numba's cache with as many processes as there are cores: on a new machine compiling
    takes longer than measuring."""
    begin = time.perf_counter()

    def one(job: tuple[str, str]) -> str:
        error = answers(start(job[0], counts, options, job[1], warm_only=True))[1]
        return f"{job[0]}: {error}" if error else ""

    with ThreadPoolExecutor(CORES) as pool:
        failed = [
            f for f in pool.map(one, [(name, source) for source in sources for name in names]) if f
        ]
    print(f"compiled in {time.perf_counter() - begin:.0f} s", *failed, sep="\n", flush=True)


def where(counts: list[int]) -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    info = {line.split(":")[0].strip(): line.split(":")[1].strip() for line in lines if ":" in line}
    versions = {}
    for package in ("numpy", "scipy", "scikit-learn", "numba"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "?"
    # siblings over cores: 2 means that two threads share a core
    return {
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "cpu": info.get("model name", ""),
        "cores": CORES,
        "siblings": info.get("siblings", ""),
        "cpu_cores": info.get("cpu cores", ""),
        "avx512": "avx512f" in info.get("flags", ""),
        "threads": counts,
        **versions,
    }


def measure_all(names: list[str], counts: list[int], options: argparse.Namespace) -> None:
    place, most, least = where(counts), max(counts), min(counts)
    print(json.dumps(place), flush=True)
    compile_all(names, counts, options)
    head = "".join(f"{n:>9}" for n in counts)
    print(
        f"\n{'seconds at n threads':<46}{head}{'gain':>7}{'wanted':>8}  "
        f"{'bits':<12}{'over scikit-learn':<24}busy  made"
    )
    ceiling(counts)
    for name in names:
        work = WORKS[name]
        rows, error = answers(start(name, counts, options))
        runs = {row["threads"]: row for row in rows if "threads" in row}
        row: dict[str, Any] = {
            "work": name,
            "title": work.title,
            "small": options.small,
            "runs": runs,
        }
        made = next((r["made"] for r in rows if "made" in r), float("nan"))
        line = f"{work.title:<46}" + "".join(
            f"{runs[n]['seconds']:>9.3f}" if n in runs else f"{'-':>9}" for n in counts
        )
        if least in runs and most in runs:
            row["gain"] = round(runs[least]["seconds"] / runs[most]["seconds"], 2)
            row["wanted"] = work.gain
            row["bits"] = (
                "lock-free"
                if not work.exact
                else "same bits"
                if len({r["digest"] for r in runs.values()}) == 1
                else "DIFFERENT"
            )
            rival = next((r["rival"] for r in rows if "rival" in r), None)
            told = ""
            if rival is not None:
                row |= {"sklearn": rival, "over_sklearn": round(rival / runs[most]["seconds"], 2)}
                told = f"{row['over_sklearn']:.2f}x (wanted {work.over_rival}x)"
            asked = f"{work.gain:g}x" + ("" if (least, most) == (1, 16) else "@16")
            line += (
                f"{row['gain']:>6.2f}x{asked:>8}  "
                f"{row['bits']:<12}{told:<24}{runs[most]['busy']:<6}{made:.1f}"
            )
        if error:
            row["error"] = error
            line += f"  failed: {error[-400:]}"
        print(line, flush=True)
        if options.out:
            with Path(options.out).open("a") as out:
                out.write(json.dumps({"where": place, "rows": [row]}) + "\n")


def source_of(given: str) -> str:
    """A checkout, or its folder src."""
    path = Path(given).resolve()
    path = path / "src" if (path / "src" / "eckart").is_dir() else path
    if not (path / "eckart" / "__init__.py").exists():
        sys.exit(f"{given}: there is no eckart in it")
    return str(path)


def compare(names: list[str], counts: list[int], options: argparse.Namespace) -> None:
    """A, B, A, B ... in fresh processes; the ratio of the best times says how much longer B takes.
    The ratio of CPU seconds is told beside it: it changes less where other programs run, but does
    not see time spent waiting."""
    pair = tuple(source_of(given) for given in options.compare)
    print(f"A {pair[0]}\nB {pair[1]}\n{max(counts)} threads, {options.rounds} rounds")
    compile_all(names, counts, options, pair)
    options.no_rival, worse = True, []
    print(f"\n{'seconds':<46}{'A':>9}{'B':>9}{'B / A':>8}{'CPU B / A':>11}  bits of A and B")
    for name in names:
        times: list[list[float]] = [[], []]
        cpu: list[list[float]] = [[], []]
        digests: list[set[str]] = [set(), set()]
        error = ""
        for turn in range(2 * options.rounds):
            rows, failed = answers(start(name, [max(counts)], options, pair[turn % 2]))
            error = error or failed
            told = next((r["from"] for r in rows if "from" in r), "")
            if told and Path(told).parent != Path(pair[turn % 2]):
                sys.exit(f"{told} was imported instead of {pair[turn % 2]}")
            times[turn % 2] += [row["seconds"] for row in rows if "threads" in row]
            cpu[turn % 2] += [row["cpu"] for row in rows if "threads" in row]
            digests[turn % 2] |= {row["digest"] for row in rows if "threads" in row}
        if not all(times):
            print(f"{WORKS[name].title:<46}  failed: {error[-400:]}", flush=True)
            worse.append(name)
            continue
        a, b = (min(t) for t in times)
        bits = (
            "lock-free"
            if not WORKS[name].exact
            else "same"
            if digests[0] == digests[1]
            else "different"
        )
        worse += [name] if b > SLOWER * a else []
        used = min(cpu[1]) / min(cpu[0])
        print(
            f"{WORKS[name].title:<46}{a:>9.3f}{b:>9.3f}{b / a:>8.3f}{used:>11.3f}  "
            f"{bits:<10}{'SLOWER' if b > SLOWER * a else ''}",
            flush=True,
        )
        if options.out:
            row = {
                "work": name,
                "small": options.small,
                "a": times[0],
                "b": times[1],
                "ratio": round(b / a, 4),
                "cpu": cpu,
                "bits": bits,
            }
            with Path(options.out).open("a") as out:
                out.write(json.dumps({"where": where([max(counts)]), "rows": [row]}) + "\n")
    print(f"\nmore than {SLOWER - 1:.0%} slower: {', '.join(worse) or 'none'}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--threads",
        default="",
        help="such as 1,16; all of 1, 2, 4, 8, 16 up to the number of cores",
    )
    parser.add_argument(
        "--only", default="", help="names with commas between them: " + ", ".join(WORKS)
    )
    parser.add_argument("--repeat", type=int, default=2, help="the best of so many runs")
    parser.add_argument("--out", default="", help="append the results to this file, as JSON lines")
    parser.add_argument(
        "--small", action="store_true", help="about 20 times less data, to see that it runs"
    )
    parser.add_argument(
        "--profile",
        default="",
        metavar="NAME",
        help="works at the most threads: pieces on threads, and what is serial",
    )
    parser.add_argument(
        "--compare", nargs=2, metavar=("A", "B"), help="two source trees at 2 threads, in turn"
    )
    parser.add_argument("--rounds", type=int, default=3, help="of --compare")
    parser.add_argument("--no-rival", action="store_true", help="leave scikit-learn out")
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    parser.add_argument("--warm-only", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    default = [2] if options.compare else [n for n in COUNTS if n <= CORES]
    counts = sorted({int(n) for n in options.threads.split(",")}) if options.threads else default
    if not options.child and max(counts) > CORES:
        sys.exit(f"--threads {max(counts)}: this process may use {CORES} cores")
    if options.child:
        child(options.child, counts, options)
        return
    if options.profile:
        for name in options.profile.split(","):
            print(f"---- {WORKS[name].title}", flush=True)
            child(name, counts, options)
        return
    names = options.only.split(",") if options.only else list(WORKS)
    if unknown := [name for name in names if name not in WORKS]:
        sys.exit(f"--only {','.join(unknown)}: the works are {', '.join(WORKS)}")
    begin = time.perf_counter()
    (compare if options.compare else measure_all)(names, counts, options)
    print(f"{time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    main()
