"""The CUDA engine beside the CPU engine and rivals on the same GPU: seconds from a cold process,
from host memory, and with the data on the device.

    python benchmarks/gpu.py [--quick] [--only NAME ...] [--no-cpu] [--small]
    python benchmarks/gpu.py --profile [--only NAME ...] [--limit SECONDS]

Every work runs in a process of its own. ``cold`` counts from the first import of PyTorch to the end
of the first fit, so it holds the start of CUDA and every compilation; ``from host`` is a later fit
on arrays of the host; ``resident`` one whose data lie on the device already. All hold the
certificate. ``cpu`` is the CPU engine on all cores of the same machine, after a first fit on a
small part that compiles its kernels. Data are made from fixed seeds. ``on cpu`` names the
primitives that the CUDA engine left to the CPU engine. ``rival`` is what a user of PyTorch would
write or call (``gpu_rivals.py``), data resident. ``--quick`` makes one run of each and skips CPU
runs that would take long; ``--small`` tries the script on tiny data, without a GPU on CPU tensors.
``--profile`` fits every work in one process (``gpu_profile.py``) and says where the seconds go.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from gpu_rivals import als_loop, nmf_loop, pca_lowrank, svd_lowrank  # noqa: E402


def pca(solver: str, k: int = 64) -> Callable[[Any, Any], Any]:
    def fit(x: Any, engine: Any) -> Any:
        from eckart import PCA

        return PCA(k, svd_solver=solver, random_state=0, engine=engine).fit(x)

    return fit


def als(k: int, sweeps: int, **more: Any) -> Callable[[Any, Any], Any]:
    def fit(x: Any, engine: Any) -> Any:
        from eckart import ALS

        return ALS(k, max_iter=sweeps, tol=0.0, random_state=0, engine=engine, **more).fit(x)

    return fit


def mixture(kind: str, k: int, steps: int) -> Callable[[Any, Any], Any]:
    def fit(x: np.ndarray, engine: Any) -> Any:
        from eckart import GaussianMixture

        n = x.shape[1]
        precision = np.full((k, n), 0.4) if kind == "diag" else np.tile(0.4 * np.eye(n), (k, 1, 1))
        start = np.nan_to_num(x[np.random.default_rng(1).choice(len(x), k, replace=False)], nan=2.0)
        return GaussianMixture(
            k,
            covariance_type=kind,
            max_iter=steps,
            tol=0.0,
            random_state=0,
            means_init=start,
            weights_init=np.full(k, 1.0 / k),
            precisions_init=precision,
            engine=engine,
        ).fit(x)

    return fit


def nmf(k: int, **more: Any) -> Callable[[Any, Any], Any]:
    def fit(x: Any, engine: Any) -> Any:
        from eckart import NMF

        return NMF(k, random_state=0, engine=engine, **more).fit(x)

    return fit


def lda(steps: int, method: str = "cvb0", **more: Any) -> Callable[[Any, Any], Any]:
    def fit(x: Any, engine: Any) -> Any:
        from eckart import LDA

        return LDA(
            50, learning_method=method, max_iter=steps, random_state=0, engine=engine, **more
        ).fit(x)

    return fit


def from_rows(name: str, k: int, **more: Any) -> Callable[[Any, Any], Any]:
    """A model of ``k`` components with its own start."""

    def fit(x: Any, engine: Any) -> Any:
        import eckart

        return getattr(eckart, name)(k, random_state=0, engine=engine, **more).fit(x)

    return fit


def nuclear(name: str, **more: Any) -> Callable[[Any, Any], Any]:
    def fit(x: Any, engine: Any) -> Any:
        import eckart

        return getattr(eckart, name)(random_state=0, engine=engine, **more).fit(x)

    return fit


def bayes(k: int, sweeps: int) -> Callable[[Any, Any], Any]:
    def fit(x: Any, engine: Any) -> Any:
        from eckart import BayesianMF

        return BayesianMF(
            k, n_samples=sweeps, burn_in=1, thin=1, random_state=0, engine=engine
        ).fit(x)

    return fit


def ten_best(data: tuple[np.ndarray, np.ndarray], engine: Any) -> Any:
    return engine.top_columns(*data, 10)


@dataclass(frozen=True)
class Work:
    """``make(small)`` gives the data, ``do(data, engine)`` the model."""

    title: str
    target: str
    make: Callable[[bool], Any]
    do: Callable[[Any, Any], Any]
    rival: Callable[[Any], Callable[[], Any]] | None = None
    slow_on_cpu: bool = False


def data(name: str, *sizes: int) -> Callable[[bool], Any]:
    """Data of ``gpu_data.py`` or else of ``cores.py``; small ones have a fiftieth of the rows."""

    def make(small: bool) -> Any:
        import cores
        import gpu_data

        sizes_now = (max(sizes[0] // 50, 100), *sizes[1:]) if small else sizes
        if name in ("ratings", "low_rank_entries") and small:
            sizes_now = (*sizes_now[:-1], sizes[-1] // 2500)
        return getattr(gpu_data if hasattr(gpu_data, name) else cores, name)(*sizes_now)

    return make


def thin_factors(small: bool) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return tuple(
        rng.standard_normal((n // (50 if small else 1), 64), dtype=np.float32)
        for n in (138_000, 27_000)
    )  # type: ignore[return-value]


IMPLICIT: dict[str, Any] = {
    "feedback": "implicit",
    "l2": 5.0,
    "l2_power": 0,
    "unobserved_weight": 1.0,
    "zeros": "unobserved",
}
HUGE = data("dense_rows", 1_000_000, 4096)
RATINGS = data("ratings", 138_000, 27_000, 18_000_000)
WORKS = {
    "pca-exact": Work("PCA 1,000,000 x 4,096, k=64, exact", "0.35", HUGE, pca("eigh"), None, True),
    "pca": Work("PCA 1,000,000 x 4,096, k=64", "0.15", HUGE, pca("auto"), pca_lowrank, True),
    "pca-mid": Work(
        "PCA 200,000 x 512, k=32",
        "",
        data("dense_rows", 200_000, 512),
        pca("auto", 32),
        pca_lowrank,
    ),
    "pca-sparse": Work(
        "PCA sparse 200,000 x 50,000, 24 M entries, k=64",
        "0.15",
        data("sparse_rows", 200_000, 50_000),
        pca("auto"),
        svd_lowrank,
    ),
    "als": Work(
        "ALS 18 M ratings, k=64, 8 sweeps", "0.3", RATINGS, als(64, 8, biases=True), als_loop(64, 8)
    ),
    "als-implicit-64": Work(
        "ALS implicit 18 M, k=64, 4 sweeps", "0.12", RATINGS, als(64, 4, **IMPLICIT)
    ),
    "als-implicit-256": Work(
        "ALS implicit 18 M, k=256, 4 sweeps", "0.32", RATINGS, als(256, 4, **IMPLICIT), None, True
    ),
    "als-implicit-1024": Work(
        "ALS implicit 18 M, k=1024, 4 sweeps", "runs", RATINGS, als(1024, 4, **IMPLICIT), None, True
    ),
    "bayes": Work(
        "BayesianMF 10 M ratings, d=64, 4 sweeps",
        "",
        data("ratings", 70_000, 10_000, 10_000_000),
        bayes(64, 3),
    ),
    "bayes-512": Work(
        "BayesianMF 10 M ratings, d=512, 2 chains of 2 sweeps",
        "1.6",
        data("ratings", 70_000, 10_000, 10_000_000),
        bayes(512, 1),
        None,
        True,
    ),
    "soft-impute": Work(
        "SoftImpute 100,000 x 100,000, 10 M entries, tau 60",
        "15",
        data("low_rank_entries", 100_000, 10_000_000),
        nuclear("SoftImpute", tau=60.0),
        None,
        True,
    ),
    "svp": Work(
        "SVP 100,000 x 100,000, 10 M entries, rank 10",
        "1",
        data("low_rank_entries", 100_000, 10_000_000),
        nuclear("SVP", n_components=10),
        None,
        True,
    ),
    "gmm-diag": Work(
        "GaussianMixture diag 1,000,000 x 64, 64 components, 100 steps",
        "0.3",
        data("gaussians", 1_000_000, 64, 64),
        mixture("diag", 64, 100),
        None,
        True,
    ),
    "gmm-full": Work(
        "GaussianMixture full 200,000 x 32, 32 components, 20 steps",
        "0.1",
        data("gaussians", 200_000, 32, 32),
        mixture("full", 32, 20),
    ),
    "nmf": Work(
        "NMF 20,000 x 2,000, k=32",
        "0.08",
        data("nonnegative", 20_000, 2_000, 32),
        nmf(32),
        nmf_loop(32),
    ),
    "nmf-kl": Work(
        "NMF KL, 2 M counts, k=50",
        "0.3",
        data("word_counts", 18_000, 20_000, 50),
        nmf(50, beta_loss="kl"),
    ),
    "lda": Work(
        "LDA cvb0 50 topics, 2.4 M tokens, 40 sweeps",
        "0.5",
        data("word_counts", 18_000, 20_000, 50),
        lda(40),
    ),
    "pca-gaps": Work(
        "PCA 200,000 x 128 with gaps, k=16, 10 steps",
        "",
        data("gappy_rows", 200_000, 128),
        from_rows("PCA", 16, max_iter=10, tol=0.0),
        None,
        True,
    ),
    "gmm-gaps-diag": Work(
        "GaussianMixture diag 200,000 x 64 with gaps, 32 components, 20 steps",
        "",
        data("gappy_rows", 200_000, 64),
        mixture("diag", 32, 20),
        None,
        True,
    ),
    "gmm-gaps-full": Work(
        "GaussianMixture full 200,000 x 16 with gaps, 8 components, 10 steps",
        "",
        data("gappy_rows", 200_000, 16),
        mixture("full", 8, 10),
        None,
        True,
    ),
    "gmm-factor": Work(
        "GaussianMixture factor 200,000 x 128, 8 components, 10 steps",
        "",
        data("dense_rows", 200_000, 128),
        from_rows("GaussianMixture", 8, covariance_type="factor", max_iter=10, tol=0.0),
        None,
        True,
    ),
    "mixture-bernoulli": Work(
        "Mixture of Bernoulli rows 500,000 x 128, 16 components, 20 steps",
        "",
        data("signs", 500_000, 128),
        from_rows("Mixture", 16, family="bernoulli", max_iter=20, tol=0.0),
        None,
        True,
    ),
    "nmf-gaps": Work(
        "NMF of 10 M ratings, k=32, 10 sweeps",
        "",
        data("ratings", 70_000, 10_000, 10_000_000),
        nmf(32, max_iter=10, tol=0.0),
        None,
        True,
    ),
    "als-nonnegative": Work(
        "ALS non-negative 18 M ratings, k=32, 4 sweeps",
        "",
        RATINGS,
        als(32, 4, nonnegative=True),
        None,
        True,
    ),
    "als-huber": Work(
        "ALS with Huber's loss 18 M ratings, k=64, 4 sweeps",
        "",
        RATINGS,
        als(64, 4, loss="huber"),
        None,
        True,
    ),
    "lda-gibbs": Work(
        "LDA Gibbs 50 topics, 2.4 M tokens, 2 chains of 40 sweeps",
        "",
        data("word_counts", 18_000, 20_000, 50),
        lda(10, "gibbs", burn_in=30, n_samples=10),
        None,
        True,
    ),
    "top": Work("top 10 of 27,000 for 138,000 rows, k=64", "0.15", thin_factors, ten_best),
}


def resident_engine(base: Any) -> Any:
    """The engine with a memory: what was placed once lies on the device for the next fit."""
    found: dict[tuple[int, ...], Any] = {}
    put = base.put

    def remembered(matrix: Any, weights: Any = None, entry_weights: Any = None) -> Any:
        own = getattr(matrix, "values", None)
        own = getattr(matrix, "data", matrix) if own is None else own
        key = (id(own), id(weights), id(entry_weights))
        if key not in found:
            found[key] = (put(matrix, weights, entry_weights), own)
        return found[key][0]

    base.put = remembered
    return base


def measure(name: str, small: bool, cpu: bool, repeats: int) -> dict[str, Any]:
    """All figures of one work."""
    work = WORKS[name]
    x = work.make(small)
    begun = time.perf_counter()
    import torch

    from eckart.engines import engine_named
    from eckart.engines.cuda import made

    device = "cuda" if torch.cuda.is_available() else "cpu"
    wait = torch.cuda.synchronize if device == "cuda" else (lambda: None)

    def timed(do: Callable[[], Any]) -> tuple[float, Any]:
        wait()
        start = time.perf_counter()
        got = do()
        wait()
        return time.perf_counter() - start, got

    engine = made(None, device)
    model = work.do(x, engine)
    wait()
    out: dict[str, Any] = {
        "cold": time.perf_counter() - begun,
        "device": device,
        "on cpu": sorted(engine.fallen),
    }
    out["from host"] = min(timed(lambda: work.do(x, made(None, device)))[0] for _ in range(repeats))
    kept = resident_engine(made(None, device))
    work.do(x, kept)
    out["resident"] = min(timed(lambda: work.do(x, kept))[0] for _ in range(max(repeats, 2)))
    if device == "cuda":
        out["GiB"] = torch.cuda.max_memory_allocated() / 2**30
    if hasattr(model, "certificate_"):
        out["holds"] = model.certificate_.holds
        out["checks"] = {check.name: check.value for check in model.certificate_.checks}
        if not model.certificate_.holds:
            out["certificate"] = str(model.certificate_)
    if work.rival is not None:
        do = work.rival(x)
        do()
        out["rival"] = timed(do)[0]
    if cpu:
        host = engine_named("cpu")
        if not small:
            work.do(work.make(True), host)  # kernels are compiled
        out["cpu"], theirs = timed(lambda: work.do(x, host))
        if hasattr(theirs, "certificate_"):
            out["cpu checks"] = {check.name: check.value for check in theirs.certificate_.checks}
    return out


def row(name: str, found: dict[str, Any]) -> str:
    if "error" in found:
        return f"{name:<17} FAILED: {found['error'].strip().splitlines()[-1][:150]}"
    cells = [
        f"{found[c]:>9.3f}" if c in found else f"{'':>9}"
        for c in ("cold", "from host", "resident", "cpu", "rival", "GiB")
    ]
    gain = f"{found['cpu'] / found['resident']:>7.1f}" if "cpu" in found else f"{'':>7}"
    holds = {True: "holds", False: "FAILS"}.get(found.get("holds"), "")
    return (
        f"{name:<17} {WORKS[name].target:>7} {' '.join(cells)} {gain}  {holds:<6} "
        f"{', '.join(found['on cpu'])}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="*", choices=list(WORKS), default=list(WORKS))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--no-cpu", action="store_true")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument(
        "--limit",
        type=float,
        default=600.0,
        help="seconds after which --profile begins no other work",
    )
    parser.add_argument("--json", help="keep all figures in this file")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.work:
        cpu = not asked.no_cpu and not (asked.quick and WORKS[asked.work].slow_on_cpu)
        print(
            "\n"
            + json.dumps(
                measure(asked.work, asked.small, cpu, 1 if asked.quick else 3), default=float
            )
        )
        return
    if asked.profile:
        from gpu_profile import profile

        profile(asked.only, asked.small, asked.limit)
        return
    heads = ("cold", "from host", "resident", "cpu", "rival", "GiB")
    print(
        f"{'seconds':<17} {'target':>7} {' '.join(f'{h:>9}' for h in heads)} "
        f"{'gain':>7}  certificate, primitives on the CPU",
        flush=True,
    )
    everything = {}
    for name in asked.only:
        words = [sys.executable, __file__, "--work", name]
        words += [
            f"--{flag}"
            for flag in ("quick", "no-cpu", "small")
            if getattr(asked, flag.replace("-", "_"))
        ]
        done = subprocess.run(words, capture_output=True, text=True)
        last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else ""
        found = json.loads(last) if done.returncode == 0 else {"error": done.stderr or "no output"}
        everything[name] = found
        print(row(name, found), flush=True)
        if asked.json:
            Path(asked.json).write_text(json.dumps(everything, indent=1))


if __name__ == "__main__":
    main()
