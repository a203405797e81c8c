"""Phase transition of exact recovery: how few entries determine the matrix, method by method.

1000 x 1000, rank 5, condition number 10 (singular values spaced evenly), entries = rho k (n + m -
k) at random with at least k in every row and column, several instances for each rho. An instance
counts as recovered at relative Frobenius error below 1e-3. Published on the same problem (100
instances): R2RILS 90 % from rho 1.6, MatrixIRLS 1.7, Riemannian methods 2.1 to 3.1, ScaledGD 3.4,
NIHT never.

One task is one (kappa, rho); ``--quick`` runs 200 x 200 with three instances.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import run

INSTANCES = 10
RATES = {
    "ExactRecovery": (1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 2.0, 3.0),
    "SVP": (2.0, 2.5, 3.0, 4.0),
    "SVT": (4.0, 6.0),
}
CASES = [(f"kappa 10 rho {rho}", name) for name, rates in RATES.items() for rho in rates]
CASES += [(f"kappa 100000 rho {rho}", "ExactRecovery") for rho in (1.7, 2.0)]


def instance(
    n: int, k: int, rho: float, kappa: float, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, Any]:
    """U, s, V and the observed entries."""
    from scipy import sparse

    from eckart.matrix import Observed

    rng = np.random.default_rng(seed)
    u, v = (np.linalg.qr(rng.standard_normal((n, k)))[0] for _ in range(2))
    s = np.linspace(kappa, 1, k) * n
    count = round(rho * k * (2 * n - k))
    for _ in range(1000):
        at = np.sort(rng.choice(n * n, count, replace=False))
        i, j = at // n, at % n
        if min(np.bincount(i, minlength=n).min(), np.bincount(j, minlength=n).min()) >= k:
            break
    data = np.einsum("pc,pc->p", (u * s)[i], v[j])
    return u, s, v, Observed.from_scipy(sparse.coo_array((data, (i, j)), shape=(n, n)))


def distance(u: np.ndarray, s: np.ndarray, v: np.ndarray, model: Any) -> float:
    """||B - U diag(s) V^T||_F / ||s|| in a common basis."""
    f = model.fit_.factors
    p, q = (np.linalg.qr(np.hstack(pair))[0] for pair in ((u, f.left), (v, f.right)))
    gap = (p.T @ (u * s)) @ (v.T @ q) - (p.T @ f.left) @ (f.right.T @ q)
    return float(np.linalg.norm(gap) / np.linalg.norm(s))


def work(task: str, contender: str, quick: bool) -> dict[str, Any]:
    from eckart.complete.nuclear.exact import ExactRecovery
    from eckart.complete.nuclear.svp import SVP
    from eckart.complete.nuclear.svt import SVT

    words = task.split()
    kappa, rho = float(words[1]), float(words[3])
    n, instances = (200, 3) if quick else (1000, INSTANCES)
    make = {
        "ExactRecovery": lambda: ExactRecovery(5, random_state=0),
        "SVP": lambda: SVP(5, random_state=0, max_iter=1000),
        "SVT": lambda: SVT(random_state=0, tol=1e-4, max_iter=1000),
    }[contender]
    make().fit(instance(60, 5, 4.0, 2.0, 0)[3])  # compile
    errors, seconds = [], []
    for seed in range(instances):
        u, s, v, x = instance(n, 5, rho, kappa, seed)
        begin = time.perf_counter()
        model = make().fit(x)
        seconds.append(time.perf_counter() - begin)
        errors.append(distance(u, s, v, model))
    return {
        "instances": instances,
        "recovered": float(np.mean(np.array(errors) < 1e-3)),
        "error": float(np.median(errors)),
        "seconds": float(np.median(seconds)),
    }


def report(rows: list[dict]) -> None:
    print(f"\n{'task':<24} {'method':<14} {'recovered':>9} {'median error':>13} {'seconds':>8}")
    for r in rows:
        if "recovered" in r:
            print(
                f"{r['task']:<24} {r['contender']:<14} {r['recovered']:>9.0%} "
                f"{r['error']:>13.2g} {r['seconds']:>8.2f}"
            )
        else:
            print(f"{r['task']:<24} {r['contender']:<14} failed: {r['error']}")


if __name__ == "__main__":
    run(__file__, CASES, work, report)
