"""Evidence for weights between columns: no other weights are better, by more than a measured
amount.

Both problems are strongly convex with constant l2 in every weight, so the gradient g of F at W
bounds what any other W' can gain:

    zero diagonal       F(W) - min F <= ||R||_F^2 / (2 l2),                 R = off-diagonal of (G +
    l2 I) W - G
    and W >= 0          F_j(w) - min F_j <= sum_i max over t >= -w_i of (-g_i t - l2 t^2 / 2),     g
    = G w - G_j + l1 + l2 w

with G = X^T X met by products with the data alone. Of many columns, R is met by random vectors z:
||R z||^2 has the mean ||R||_F^2, and with 32 Gaussian z the mean of them is below a quarter of it
with probability < 1e-5, whatever R is; four times the mean is the bound. There, R is diag(d) - (G +
l2 I)(I - W) with the multipliers d of the model; what it holds on the diagonal makes the bound
larger, never smaller.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.certify.certificate import Certificate, Check
from eckart.engines.protocol import Engine, SparseRows

EXACT = 2048
"""Columns up to which R is formed."""
PROBES, SURE = 32, 4.0
"""Random vectors, and how many times the mean over them the bound is (see above)."""
STEP = 256
"""Columns or rows of W in a block."""
BETTER = 1e-6
"""Share of the objective that other weights may gain: lists do not change by it."""
RIDGE = "predict every column from the others: min 1/2 ||X - X W||^2 + l2/2 ||W||^2, diag W = 0"
SPARSE = (
    "predict every column from the others: min 1/2 ||X - X W||^2 + l1 sum W + l2/2 ||W||^2, W "
    ">= 0, diag W = 0"
)


def certify_zero_diagonal(
    engine: Engine,
    x: Any,
    weights: np.ndarray,
    multipliers: np.ndarray,
    l2: float,
    rng: np.random.Generator,
) -> Certificate:
    """``x``: the placed data in float64, absent entries zero."""
    n = len(weights)
    diagonal = float(np.abs(np.diagonal(weights)).max(initial=0.0))
    if n <= EXACT:
        square, objective, how = _whole(engine, x, weights, l2)
    else:
        square, objective, how = _probed(engine, x, weights, multipliers, l2, rng)
    gap = square / (2 * l2)
    facts: dict[str, Any] = {
        "columns": n,
        "objective": objective,
        "gap": gap,
        "KKT residual": float(np.sqrt(square)),
        "how the bound is known": how,
    }
    checks = (
        Check(
            "relative gap",
            gap / objective if objective > 0 else 0.0,
            BETTER,
            "what other weights can gain at most, / objective",
        ),
        Check("diagonal", diagonal, 0.0, "largest |W_jj|: no column predicts itself"),
    )
    return Certificate(RIDGE, "global", checks, facts)


def _whole(engine: Engine, x: Any, weights: np.ndarray, l2: float) -> tuple[float, float, str]:
    """||R||_F^2 and F, column by column."""
    n, square, objective = len(weights), 0.0, 0.0
    for first in range(0, n, STEP):
        part = np.arange(first, min(first + STEP, n))
        w = weights[:, part].astype(np.float64)
        m = -w
        m[part, part - first] += 1.0
        image = engine.gram_times(x, m, None)
        objective += 0.5 * float(np.vdot(m, image)) + 0.5 * l2 * float(np.vdot(w, w))
        slope = l2 * w - image
        slope[part, part - first] = 0.0
        square += float(np.vdot(slope, slope))
    return square, objective, "exact: all columns were met"


def _probed(
    engine: Engine,
    x: Any,
    weights: np.ndarray,
    multipliers: np.ndarray,
    l2: float,
    rng: np.random.Generator,
) -> tuple[float, float, str]:
    """A bound of ||R||_F^2, and an estimate of F."""
    n = len(weights)
    z = rng.standard_normal((n, PROBES))
    wz = np.empty_like(z)
    for first in range(0, n, STEP):
        wz[first : first + STEP] = weights[first : first + STEP].astype(np.float64) @ z
    m = z - wz
    image = engine.gram_times(x, m, None)
    residual = image + l2 * m - multipliers[:, None] * z
    objective = 0.5 * (float(np.vdot(m, image)) + l2 * float(np.vdot(wz, wz))) / PROBES
    how = (
        f"{PROBES} random vectors: true except with probability 1e-5; the objective is their "
        "estimate"
    )
    return SURE * float(np.vdot(residual, residual)) / PROBES, objective, how


def certify_sparse(
    engine: Engine, x: Any, weights: SparseRows, l1: float, l2: float, tol: float
) -> Certificate:
    """``weights``: compressed columns of W. All columns are met; ``tol`` is the gap, in halves of
    G_jj, at which a column ends."""
    n = len(weights.indptr) - 1
    gaps, values, sizes = np.zeros(n), np.zeros(n), np.zeros(n)
    outside = 0.0
    for first in range(0, n, STEP):
        part = np.arange(first, min(first + STEP, n))
        ends = weights.indptr[first : part[-1] + 2]
        at = slice(ends[0], ends[-1])
        w, unit = np.zeros((n, len(part))), np.zeros((n, len(part)))
        w[weights.indices[at], np.repeat(part - first, np.diff(ends))] = weights.data[at]
        unit[part, part - first] = 1.0
        image, own = engine.gram_times(x, w, None), engine.gram_times(x, unit, None)
        slope = image - own + l1 + l2 * w
        slope[part, part - first] = 0.0
        outside = max(
            outside,
            float(-w.min(initial=0.0)),
            float(np.abs(w[part, part - first]).max(initial=0.0)),
        )
        t = np.maximum(-slope / l2, -w)
        gaps[part] = (-slope * t - 0.5 * l2 * t**2).sum(axis=0)
        sizes[part] = 0.5 * own[part, part - first]
        values[part] = (
            sizes[part] + (w * (0.5 * image - own + 0.5 * l2 * w)).sum(axis=0) + l1 * w.sum(axis=0)
        )
    shares = np.divide(gaps, sizes, out=np.zeros(n), where=sizes > 0)
    total = float(values.sum())
    facts: dict[str, Any] = {
        "columns": n,
        "weights": len(weights.data),
        "objective": total,
        "gap": float(gaps.sum()),
        "median gap of a column": float(np.median(shares)),
    }
    checks = (
        Check(
            "gap of the worst column",
            float(shares.max(initial=0.0)),
            2 * tol + 1e-9,
            "what other weights of one column can gain at most, / half the squares of that column",
        ),
        Check("constraints", outside, 0.0, "largest negative or diagonal weight"),
    )
    return Certificate(SPARSE, "global", checks, facts)
