"""What a loss costs: ALS of yes/no entries under logistic loss against squared error on the same
entries.

    python benchmarks/losses.py [millions of entries] [k] [sweeps]

The table has 138,000 rows and 27,000 columns, columns of very unequal length, and a low-rank truth.
Each model is fitted once for that many sweeps; kernels are compiled on a small table before.
Seconds of the wall and of the processors; certificate included; held-out log loss on a hundredth
that was not fitted.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

from eckart import ALS, Observed

ROWS, COLUMNS = 138_000, 27_000


def entries(millions: float, seed: int = 0) -> tuple[Any, ...]:
    """Yes and no by a logistic model of rank 8; rows, columns and answers, a place at most once."""
    rng = np.random.default_rng(seed)
    count = int(millions * 1e6)
    i = rng.integers(ROWS, size=int(1.3 * count))
    j = np.minimum((COLUMNS * rng.random(len(i)) ** 2.5).astype(np.int64), COLUMNS - 1)
    code = np.unique(i * COLUMNS + j)
    code = np.sort(rng.permutation(code)[:count])
    i, j = np.divmod(code, COLUMNS)
    u, v = (
        rng.standard_normal((ROWS, 8)).astype(np.float32),
        rng.standard_normal((COLUMNS, 8)).astype(np.float32),
    )
    b, c = (
        rng.standard_normal(ROWS).astype(np.float32),
        rng.standard_normal(COLUMNS).astype(np.float32),
    )
    yes = np.empty(len(i), np.float32)
    for first in range(0, len(i), 2**20):
        part = slice(first, first + 2**20)
        s = np.einsum("ek,ek->e", u[i[part]], v[j[part]]) * 0.5 + b[i[part]] + c[j[part]]
        yes[part] = rng.random(len(s)) < 1 / (1 + np.exp(-s))
    return i, j, yes


def log_loss(p: np.ndarray, y: np.ndarray) -> float:
    p = np.clip(p.astype(np.float64), 1e-3, 1 - 1e-3)
    return float(-np.mean(np.where(y > 0, np.log(p), np.log1p(-p))))


def main(millions: float, k: int, sweeps: int) -> None:
    i, j, yes = entries(millions)
    hidden = np.random.default_rng(1).random(len(i)) < 0.01
    x = Observed.from_codes(i[~hidden], j[~hidden], yes[~hidden], (ROWS, COLUMNS))
    print(f"{x.nnz:,} entries, {yes.mean():.2f} yes, k = {k}")
    small = Observed.from_codes(i[:20_000], j[:20_000], yes[:20_000], (ROWS, COLUMNS))
    how = {"max_iter": sweeps, "tol": 0.0, "random_state": 0}
    makes = {"squared": lambda: ALS(k, **how), "logistic": lambda: ALS(k, loss="logistic", **how)}
    for make in makes.values():
        make().set_params(max_iter=2).fit(small)
    for name, make in makes.items():
        begin = time.perf_counter(), time.process_time()
        model = make().fit(x)
        wall, used = time.perf_counter() - begin[0], time.process_time() - begin[1]
        loss = log_loss(model.predict(i[hidden], j[hidden]), yes[hidden])
        print(
            f"{name:<9} {wall:6.1f} s ({used:6.1f} s of processors), "
            f"{used / sweeps:.2f} s of processors a sweep, held-out log loss {loss:.4f}",
            flush=True,
        )


if __name__ == "__main__":
    given = [float(word) for word in sys.argv[1:]]
    main(
        *(
            kind(value)
            for kind, value in zip((float, int, int), [*given, *(20.0, 16, 8)[len(given) :]])
        )
    )
