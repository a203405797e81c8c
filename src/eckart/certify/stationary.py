"""Evidence about a ridge factorization: how large the gradient is, and how far any matrix of any
rank could lie below.

At the point (U, V, b, c) let R hold w (a - B) at the observed entries (implicit feedback: the
negative gradient of the data term by B, which is sparse plus low rank). The gradient is L U - R V
for the rows and M V - R^T U for the columns, L = diag(l_i), M = diag(m_j). It is given relative to
the sizes of its two parts (without ridge: of A V), so that 1 is far away and 0 is critical.

The ridge on U and V is a nuclear norm: min 1/2 (||L^1/2 U||^2 + ||M^1/2 V||^2) over U V^T = B is
||L^1/2 B M^1/2||_*. So the problem over all ranks is convex, and any R' with ||L^-1/2 R' M^-1/2||_2
<= 1 bounds it from below by

    <a - mean, R'> - 1/2 sum R'^2 / w - 1/2 sum_i (sum_j R'_ij)^2 / (bias ridge of row i) - the same
    for columns.

R' = R, scaled down to norm 1 where it must be, gives a duality gap. If the gap closes the
factorization is a global minimiser, also over all larger ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from eckart.certify.certificate import Certificate, Check, finite, never_rises, roundings
from eckart.certify.spectral import remainder_norm
from eckart.engines.protocol import Engine, EvidenceSums, Placed, RidgeRule, Tall
from eckart.trace import Trace

GLOBAL_GAP = 1e-3
"""Relative duality gap up to which a point counts as a global minimiser: far above what rounding
leaves, far below what a user would see."""
GRADIENT_LIMIT = 0.02
"""Relative gradient up to which a point counts as stationary: one more sweep would lower the
objective by about its square."""
SMALL, FIRST_LOOK = 2 * 10**5, 4
"""Entries up to which the norm is always measured closely; else Lanczos steps that show most points
to be far from a global minimum of the convex problem."""
FLOOR = 1e-30
"""A sum of squares below it is that of zeros and their roundings."""


class RidgeProblem(NamedTuple):
    """Placed entries (with their weights), the penalties of rows and of columns, their ridges l and
    m inside the engine, a0, and steps of conjugate gradients a row (0: exact solutions)."""

    x: Placed
    rule: RidgeRule
    rule_t: RidgeRule
    ridge: Tall
    ridge_t: Tall
    unobserved: float = 0.0
    cg_steps: int = 0

    @classmethod
    def of(
        cls, engine: Engine, x: Placed, rule: RidgeRule, unobserved: float = 0.0, cg_steps: int = 0
    ) -> RidgeProblem:
        """``rule`` with the unobserved weight of all cells of a row or column counted in."""
        n, m = x.shape
        rule, rule_t = (
            rule._replace(extra=unobserved * m),
            rule._replace(extra=unobserved * (n or 0)),
        )
        ridge, ridge_t = (
            engine.take(r.ridges(side.counts)[0], x.dtype) for r, side in ((rule, x), (rule_t, x.T))
        )
        return cls(x, rule, rule_t, ridge, ridge_t, unobserved, cg_steps)

    def base(self, engine: Engine, factor: Tall) -> np.ndarray | None:
        """a0 V^T V for implicit feedback."""
        return self.unobserved * engine.inner(factor, factor) if self.unobserved else None


class RidgePoint(NamedTuple):
    """Factors, biases (or None), mean and loss (None: squared error) of a factorization; with
    attributes also the maps A and B on the host (``certify.mapped``)."""

    left: Tall
    right: Tall
    row_bias: Tall | None
    column_bias: Tall | None
    mean: float
    row_map: np.ndarray | None = None
    column_map: np.ndarray | None = None
    loss: Any = None

    def tall(self) -> dict[str, Tall]:
        """What belongs to the engine, by name."""
        return {name: a for name, a in zip(self._fields[:4], self[:4]) if a is not None}


class ResidualSums(NamedTuple):
    """Both sides of the data term at a point, and its value."""

    rows: EvidenceSums
    columns: EvidenceSums
    value: float


def look(p: RidgeProblem, at: RidgePoint, engine: Engine) -> ResidualSums:
    """One pass over the entries by rows and one by columns."""
    shared: dict[str, Any] = {"mean": at.mean, "spread": p.unobserved}
    rows = engine.evidence_rows(
        p.x, at.left, at.right, p.rule, own=at.row_bias, other=at.column_bias, **shared
    ).sums
    columns = engine.evidence_rows(
        p.x.T, at.right, at.left, p.rule_t, own=at.column_bias, other=at.row_bias, **shared
    ).sums
    return ResidualSums(
        rows, columns, rows.value + 0.5 * p.unobserved * _all_squares(p, at, engine)
    )


def _all_squares(p: RidgeProblem, at: RidgePoint, engine: Engine) -> float:
    """sum of (u_i.v_j)^2 over all cells, where it counts."""
    if not p.unobserved:
        return 0.0
    return float((engine.inner(at.left, at.left) * engine.inner(at.right, at.right)).sum())


def gradient(p: RidgeProblem, at: RidgePoint, seen: ResidualSums, engine: Engine) -> float:
    """||gradient|| / (sum of the norms of its parts) over all four blocks."""
    square = size = 0.0
    for sums, x, other in ((seen.rows, p.x, at.right), (seen.columns, p.x.T, at.left)):
        scale = sums.push
        if not p.rule.l2 and not p.unobserved:  # no ridge balances the pull: A V is its scale
            bare = engine.offset_times(x, other, 0.0, None, None)
            scale = float(np.trace(engine.inner(bare, bare)))
        square += sums.slope + sums.bias_slope
        size += (np.sqrt(sums.pull) + np.sqrt(scale)) ** 2 + (
            np.sqrt(sums.bias_pull) + np.sqrt(sums.bias_push)
        ) ** 2
    return float(np.sqrt(square / size)) if size > FLOOR else 0.0


def relative_gradient(p: RidgeProblem, at: RidgePoint, engine: Engine) -> float:
    """The gradient alone, for a stopping rule."""
    return gradient(p, at, look(p, at, engine), engine)


def stopped_early(errors: Any, facts: dict[str, Any]) -> tuple[str, list[str]]:
    """Kind and notes of a certificate, and facts added, by the held-out errors that a fit was
    stopped by (none: it was not)."""
    if not errors:
        return "stationary", []
    facts |= {
        "held-out error": min(errors),
        "sweeps after the best": len(errors) - 1 - int(np.argmin(errors)),
    }
    return "statistical", [
        "stopped early on held-out entries: a good predictor, not a minimiser of the "
        "training objective"
    ]


def by_gap(
    kind: str, gap: float, words: str, of: str, checks: list[Check], notes: list[str]
) -> str:
    """The kind of a certificate whose duality gap is known; a small gap is a check, any other a
    note."""
    if gap > GLOBAL_GAP:
        notes.append(f"no matrix of any rank has an objective more than {gap:.1%} lower: {words}")
        return kind
    checks.append(
        Check("duality gap", gap, GLOBAL_GAP, "relative distance from the best matrix of any rank")
    )
    notes.append(f"a global minimiser{of} over all ranks: {words}")
    return "global"


def certify_factors(
    p: RidgeProblem, at: RidgePoint, engine: Engine, trace: Trace, errors: list[float] | None = None
) -> Certificate:
    """The certificate of a ridge factorization, from its data and its factors; ``errors`` on
    held-out entries make it a statistical one."""
    seen = look(p, at, engine)
    value = seen.value + engine.ridge_penalty(p.x, p.rule, at.left, at.row_bias)
    value += engine.ridge_penalty(p.x.T, p.rule_t, at.right, at.column_bias)
    limit = 1.0 if errors else GRADIENT_LIMIT
    slope = gradient(p, at, seen, engine)
    checks = [
        Check(
            "relative gradient",
            slope,
            limit,
            "size of the gradient against the two parts that cancel in it",
        ),
        finite(value),
        *never_rises(trace.values, roundings(p.x.dtype), seen.rows.zero),
    ]
    facts: dict[str, Any] = {
        "objective": value,
        "data term": seen.value,
        "stopped": trace.reason.value,
    }
    kind, notes = stopped_early(errors, facts)
    if not p.rule.nonnegative and p.rule.l2 > 0:
        gap, norm, words = duality_gap(p, at, seen, value, engine)
        facts |= {"duality gap": gap, "residual norm / ridge": norm}
        kind = by_gap(kind, gap, words, " of the nuclear-norm problem", checks, notes)
    problem = "ridge factorization by alternating least squares" + (
        ", implicit feedback" if p.rule.alpha else ""
    )
    return Certificate(problem, kind, tuple(checks), facts, tuple(notes))


def duality_gap(
    p: RidgeProblem, at: RidgePoint, seen: ResidualSums, value: float, engine: Engine
) -> tuple[float, float, str]:
    """(relative gap, ||L^-1/2 R M^-1/2||_2 from below, how it was bounded)."""
    ridge, bias_ridge = p.rule.ridges(p.x.counts)
    ridge_t, bias_ridge_t = p.rule_t.ridges(p.x.T.counts)
    if (p.rule.bias and min(bias_ridge.min(), bias_ridge_t.min()) <= 0) or min(
        ridge.min(), ridge_t.min()
    ) <= 0:
        return float("inf"), float("nan"), "no bound where a ridge is zero"
    product = _product(p, at, 1 / ridge, (1 / np.sqrt(ridge_t))[:, None], engine)
    limit = np.inf if p.unobserved else 2 * seen.rows.square / (ridge.min() * ridge_t.min())
    elsewhere = 0.5 * p.unobserved * (_all_squares(p, at, engine) - seen.rows.dots)

    def bounds(steps: int) -> tuple[float, float, str]:
        start = np.zeros((p.x.shape[1], 0))
        return remainder_norm(product, start, p.x.dtype, np.random.default_rng(7), limit, steps, 2)

    def gap_at(square: float) -> float:
        shrink = min(1.0, 1.0 / float(np.sqrt(max(square, FLOOR))))
        dual = _dual(p, seen, shrink, elsewhere)
        return max(float((value - dual) / abs(value)), 0.0) if value else 0.0

    low, high, words = bounds(FIRST_LOOK)
    # worth a closer look: the norm may be small enough
    if p.x.nnz <= SMALL or gap_at(low) <= 3 * GLOBAL_GAP:
        low, high, words = bounds(int(np.clip(4e7 / p.x.nnz, 12, 60)))
    return gap_at(high), float(np.sqrt(max(low, 0.0))), words.replace("Ky Fan, ", "")


def _product(
    p: RidgeProblem, at: RidgePoint, rows: np.ndarray, columns: np.ndarray, engine: Engine
) -> Callable[[np.ndarray], np.ndarray]:
    """block -> M^T M block with M = L^-1/2 R M^-1/2 (implicit feedback: R less a0 U V^T), R made
    anew in every pass."""
    more: dict[str, Any] = {
        "mean": at.mean,
        "own": at.row_bias,
        "other": at.column_bias,
        "spread": p.unobserved,
    }
    scale = engine.take(rows, p.x.dtype)

    def apply(block: np.ndarray) -> np.ndarray:
        z = engine.take(block * columns, p.x.dtype)
        return (
            engine.get(engine.residual_gram(p.x, at.left, at.right, z, scale, p.rule, **more))
            * columns
        )

    return apply


def _dual(p: RidgeProblem, seen: ResidualSums, shrink: float, elsewhere: float) -> float:
    """The bound from below at R' = shrink R.

    Implicit feedback: the conjugate of the data term, cell by cell. An observed cell has weight W =
    a0 + w, and h*(z) = z^2 / 2W + z q / W + q^2 / 2W - q / 2 at z = -R' = shrink (a0 s - R);
    ``elsewhere`` h*(z) = z^2 / 2 a0 at z = shrink a0 s.
    """
    e = seen.rows
    if p.unobserved:
        return -(shrink**2 * (e.square + elsewhere) + shrink * e.cross + e.constant)
    total = shrink * e.linear - shrink**2 * e.square
    if p.rule.bias:
        total -= 0.5 * shrink**2 * (e.bias_cost + seen.columns.bias_cost)
    return total


def penalty(x: Any, rule: RidgeRule, factor: np.ndarray, bias: np.ndarray | None) -> float:
    """1/2 sum_i l_i ||u_i||^2, and the same for the biases, of arrays on the host (GloVe;
    ``engine.ridge_penalty`` elsewhere)."""
    ridge, bias_ridge = rule.ridges(x.row_counts())
    square = np.einsum("ij,ij->i", factor, factor, dtype=np.float64)
    return 0.5 * float(ridge @ square) + (
        0.0 if bias is None else 0.5 * float(bias_ridge @ bias.astype(np.float64) ** 2)
    )
