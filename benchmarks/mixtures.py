"""Gaussian mixtures against scikit-learn: 20 EM steps from the same start on the same rows, so that
only EM is on the clock; and from a file.

Quality is the mean log-likelihood of the first 50000 rows at the returned components. Extra memory
is measured for one fit over the held data.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import cached, measure, run

SIZE, QUICK = (200_000, 32, 32), (20_000, 16, 8)
STEPS = 20
TYPES = ("spherical", "diag", "tied", "full")
CASES = [
    *(
        (f"{kind} {dtype}", who)
        for kind in TYPES
        for dtype in ("float64", "float32")
        for who in ("sklearn", "eckart")
    ),
    ("start and fit, diag float64", "sklearn"),
    ("start and fit, diag float64", "eckart"),
    ("full float64 from a file", "eckart"),
    ("full float64 ten times the rows, from a file", "eckart"),
]


def rows(count: int, n: int, k: int, copies: int = 1) -> Path:
    """Rows from k Gaussians with random covariances, some of them nearly singular, as .npy."""

    def make(path: Path) -> None:
        rng = np.random.default_rng(51)
        centres = 1.5 * rng.standard_normal((k, n))
        x = np.empty((count, n))
        label = rng.choice(k, count, p=rng.dirichlet(np.full(k, 5.0)))
        for z in range(k):
            root = 0.25 * rng.standard_normal((n, n)) + np.diag(rng.uniform(0.5, 1.5, n))
            mine = np.flatnonzero(label == z)
            x[mine] = centres[z] + rng.standard_normal((mine.size, n)) @ root.T
        with path.open("wb") as raw:
            np.lib.format.write_array_header_1_0(
                raw, {"descr": "<f8", "fortran_order": False, "shape": (count * copies, n)}
            )
            for _ in range(copies):
                raw.write(x.tobytes())

    return cached(f"mixture-{count}x{n}x{k}x{copies}.npy", make)


def work(task: str, contender: str, quick: bool) -> dict[str, Any]:
    count, n, k = QUICK if quick else SIZE
    file = rows(count, n, k, 10 if "ten times" in task else 1)
    kind, dtype = (
        ("full", "float64") if "file" in task else task.replace("start and fit, ", "").split()
    )
    held = np.load(rows(count, n, k)).astype(dtype, copy=False)
    start = held[np.random.default_rng(1).choice(count, k, replace=False)]
    precision = 1.0 / float(held.var(axis=0).mean())
    shape = {"spherical": (k,), "diag": (k, n)}.get(kind)
    initial = np.full(shape, precision) if shape else precision * np.eye(n)
    initial = np.tile(initial, (k, 1, 1)) if kind == "full" else initial
    # scikit-learn fails in float32 with its default of 1e-6 where a covariance is nearly singular
    added = 1e-3 if dtype == "float32" else 1e-6
    options: dict[str, Any] = {
        "covariance_type": kind,
        "max_iter": STEPS,
        "tol": 0.0,
        "reg_covar": added,
        "random_state": 0,
    }
    if task.startswith("start"):
        options["max_iter"] = 1
    else:
        options |= {
            "means_init": start,
            "weights_init": np.full(k, 1.0 / k, dtype),
            "precisions_init": initial.astype(dtype),
        }
    if contender == "sklearn":
        from sklearn.mixture import GaussianMixture
    else:
        from eckart import GaussianMixture

        GaussianMixture(2, covariance_type=kind).fit(held[:1000])  # compiled
    data: Any = str(file) if "file" in task else held
    found = measure(lambda: GaussianMixture(k, **options).fit(data), 3, 60.0)
    model = found.pop("result")
    flops = (
        {"full": 2 * n * (n + 1), "tied": 2 * n * (n + 1)}.get(kind, 8 * n)
        * k
        * count
        * (10 if "ten times" in task else 1)
        * (STEPS + 1)
    )
    quality = round(float(model.score(held[:50000])), 4)
    return found | {
        "steps": int(model.n_iter_),
        "quality": quality,
        "GFLOP/s": round(flops / found["seconds"] / 1e9, 1),
    }


def report(found: list[dict]) -> None:
    print(f"\n{'task':<46} {'who':<9} {'s':>8} {'best':>8} {'MB':>8} {'log-lik':>10} {'ratio':>7}")
    base = {
        row["task"]: row["seconds"]
        for row in found
        if row["contender"] == "sklearn" and "seconds" in row
    }
    for row in found:
        if "seconds" not in row:
            print(f"{row['task']:<46} {row['contender']:<9} {row.get('error')}")
            continue
        ratio = f"{base[row['task']] / row['seconds']:.1f}x" if row["task"] in base else ""
        numbers = (
            f"{row['seconds']:>8.2f} {row['best']:>8.2f} {row['extra_mb']:>8.1f} "
            f"{row['quality']:>10.4f} {ratio:>7}"
        )
        print(f"{row['task']:<46} {row['contender']:<9} {numbers}")


if __name__ == "__main__":
    run(__file__, CASES, work, report)
