"""Evidence for nuclear-norm completion under a convex loss: a duality gap through the conjugate.

P(B) = sum l(a_ij, o_ij + B_ij) + tau ||B||_* over the observed entries, o fixed. By Fenchel and
Young, for any y on the entries with ||y||_2 <= tau (as a matrix),

    P(B') >= sum y o - sum l*(a, y)      for every B' of every rank.

With G the gradient dl/ds at B, y = min(1, tau / ||G||_2) G is such a point; at the minimum ||G||_2
= tau (or B = 0) and the gap is zero. ||G||_2 is found by block Lanczos from random starts, which
misses it by a known factor with a known small probability (``spectral.remainder_norm``).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.certify.certificate import Certificate, Check
from eckart.certify.nuclear import PROBES, SURE
from eckart.certify.spectral import remainder_norm
from eckart.decompositions import svd
from eckart.engines.protocol import Engine
from eckart.factors import LowRank
from eckart.matrix import Observed
from eckart.optim.tangent import Sampling
from eckart.terms import Loss


def offsets(x: Observed, f: LowRank) -> np.ndarray:
    """o at the entries: mean and biases of a model."""
    rows = np.repeat(np.arange(x.shape[0]), x.row_counts())
    o = np.full(x.nnz, float(f.mean))
    if f.row_bias is not None:
        o += f.row_bias[rows]
    return o if f.column_bias is None else o + f.column_bias[x.indices]


def lower_bound(loss: Loss, a: np.ndarray, o: np.ndarray, g: np.ndarray, shrink: float) -> float:
    """What no matrix is below, from y = ``shrink`` g."""
    return shrink * float(g @ o) - float(np.sum(loss.conjugate(a, shrink * g)))


def loss_gap_certificate(
    x: Observed,
    f: LowRank,
    loss: Loss,
    tau: float,
    *,
    tol: float,
    rng: np.random.Generator,
    engine: Engine,
) -> Certificate:
    """The gap of a model on the encoded entries ``x``, as a share of the value."""
    with engine.at_work():
        pattern, a, o = Sampling(x, engine), x.data.astype(np.float64), offsets(x, f)
        left, right = f.left.astype(np.float64), f.right.astype(np.float64)
        s = o + pattern.at(left, right)
        g = np.ascontiguousarray(loss.gradient(a, s))
        by_column = pattern.by_columns(g)
        # ||U V^T||_* from the k x k triangles of both
        sizes = (
            svd(engine.triangle(left) @ engine.triangle(right).T, compute_uv=False)
            if f.k
            else np.zeros(0)
        )
        value = float(np.sum(loss.value(a, s))) + tau * float(sizes.sum())

        def product(block: np.ndarray) -> np.ndarray:
            return pattern.times_t(by_column, pattern.times(g, block))

        none = np.zeros((x.shape[1], 0))
        for steps, block in PROBES:
            found, bound, words = remainder_norm(
                product, none, np.dtype(np.float64), rng, float(g @ g), steps, block
            )
            low, high = float(np.sqrt(found)), float(np.sqrt(bound))
            gap, likely = (
                value - lower_bound(loss, a, o, g, min(1.0, tau / max(norm, 1e-300)))
                for norm in (high, low)
            )
            if gap <= tol * value or likely > tol * value:
                break
    how = (
        "exact up to rounding"
        if words.startswith("exact")
        else f"{SURE} ({steps} Lanczos steps, {block} starts)"
    )
    share = max(gap / value, 0.0) if value > 0 else 0.0
    facts: dict[str, Any] = {
        "value": value,
        "no matrix is below": value - gap,
        "tau": float(tau),
        "rank": int((sizes > 0).sum()),
        "loss": loss.name,
        "loss of an entry": float(np.mean(loss.value(a, s))) if len(a) else 0.0,
        "gradient norm ||G||_2": low,
        "gradient norm is at most": high,
        "how the bound is known": how,
    }
    checks = (
        Check(
            "duality gap", share, tol, "how far the value can be above the best, as a share of it"
        ),
    )
    notes = ("thresholds, mean and biases are as they are: the bound is over all matrices B",)
    return Certificate(
        f"min sum l(A, o + B) + tau ||B||_*, l the {loss.name} loss", "global", checks, facts, notes
    )
