"""From what size on does a GPU pay? Seconds of a fit against the size of the data: all cores, the
GPU with data on the host, the GPU with data that lie there, and what a user of PyTorch would write
or call on the same GPU.

    python benchmarks/gpu_sizes.py [--limit SECONDS] [--small]

Every fit is the second of its kind, certificate included; rivals have none. One JSON line for each
size goes to ``results/gpu_sizes.jsonl``, from which ``docs/make_images.py gpu`` draws. ``--limit``
begins no other work after so many seconds, ``--small`` tries the script on tiny data.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpu_rivals import als_loop, pca_lowrank

from gpu import als, data, lda, mixture, pca, resident_engine

HERE = Path(__file__).resolve().parent
WORKS: dict[
    str, tuple[list[tuple[int, ...]], str, Callable[..., Any], Callable[..., Any] | None]
] = {
    "PCA, 512 columns, k = 32": (
        [(n, 512) for n in (2_000, 10_000, 50_000, 200_000, 1_000_000)],
        "dense_rows",
        pca("auto", 32),
        pca_lowrank,
    ),
    "ALS, k = 64, 8 sweeps": (
        [
            (n // 130, 27 * n // 18_000 + 300, n)
            for n in (100_000, 1_000_000, 4_000_000, 18_000_000)
        ],
        "ratings",
        als(64, 8, biases=True),
        als_loop(64, 8),
    ),
    "mixture, diag, 32 columns and components, 50 steps": (
        [(n, 32, 32) for n in (2_000, 20_000, 200_000, 1_000_000)],
        "gaussians",
        mixture("diag", 32, 50),
        None,
    ),
    "LDA, 50 topics, 20 sweeps": (
        [(n, 20_000, 50) for n in (500, 2_000, 9_000, 18_000)],
        "word_counts",
        lda(20),
        None,
    ),
}


def entries(x: Any) -> int:
    """Numbers that are stored."""
    return int(getattr(x, "nnz", getattr(x, "size", 0)))


def measured(
    x: Any, do: Callable[[Any, Any], Any], rival: Callable[[Any], Callable[[], Any]] | None
) -> dict[str, Any]:
    import torch

    from eckart.engines import engine_named
    from eckart.engines.cuda import made

    device = "cuda" if torch.cuda.is_available() else "cpu"
    wait = torch.cuda.synchronize if device == "cuda" else (lambda: None)

    def second(call: Callable[[], Any]) -> float:
        call()
        wait()
        begun = time.perf_counter()
        call()
        wait()
        return time.perf_counter() - begun

    kept, cores = resident_engine(made(None, device)), engine_named("cpu")
    out = {"entries": entries(x), "from host": second(lambda: do(x, made(None, device)))}
    out |= {"resident": second(lambda: do(x, kept)), "cores": second(lambda: do(x, cores))}
    if rival is not None:
        out["rival"] = second(rival(x))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--limit", type=float, default=600.0)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "gpu_sizes.jsonl")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    begun = time.perf_counter()
    with asked.out.open("w") as out:
        for title, (sizes, make, do, rival) in WORKS.items():
            for size in sizes[:1] if asked.small else sizes:
                if time.perf_counter() - begun > asked.limit:
                    continue
                row = {"work": title, **measured(data(make, *size)(False), do, rival)}
                out.write(json.dumps(row) + "\n")
                print(row, flush=True)


if __name__ == "__main__":
    main()
