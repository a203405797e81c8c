"""Evidence about a ridge factorization: how large the gradient is, and how far any matrix of any rank could lie below.

At the point (U, V, b, c) let R hold w (a - B) at the observed entries (implicit feedback: the negative gradient of the data term by B, which is sparse
plus low rank). The gradient is L U - R V for the rows and M V - R^T U for the columns, L = diag(l_i), M = diag(m_j). It is given relative to the
sizes of its two parts (without ridge: of A V), so that 1 is far away and 0 is critical.

The ridge on U and V is a nuclear norm: min 1/2 (||L^1/2 U||^2 + ||M^1/2 V||^2) over U V^T = B is ||L^1/2 B M^1/2||_*. So the problem over all ranks is
convex, and any R' with ||L^-1/2 R' M^-1/2||_2 <= 1 bounds it from below by

    <a - mean, R'> - 1/2 sum R'^2 / w - 1/2 sum_i (sum_j R'_ij)^2 / (bias ridge of row i) - the same for columns.

R' = R, scaled down to norm 1 where it must be, gives a duality gap. If the gap closes the factorization is a global minimiser, also over all larger ranks.

``sides`` and ``state`` are those of ``complete.factors.alternate``.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np

from eckart.certify.certificate import Certificate, Check
from eckart.certify.spectral import remainder_norm
from eckart.engines.protocol import Evidence
from eckart.matrix import Counts, Observed

GLOBAL_GAP = 1e-3
GRADIENT_LIMIT = 0.02
SMALL, FIRST_LOOK, ROWS = 2 * 10**5, 4, 4096
"""Lanczos steps that show most points to be far from a global minimum of the convex problem."""
FLOOR = 1e-30


class Point(NamedTuple):
    """Both sides of the data term at a point, and its value."""

    rows: Evidence
    columns: Evidence
    value: float


def look(sides: Any, state: Any, engine: Any, keep: bool = False) -> Point:
    """One pass over the entries by rows and one by columns; ``keep`` holds on to R."""
    shared = {"mean": state.mean, "spread": sides.unobserved}
    rows = engine.evidence_rows(
        sides.x,
        state.left,
        state.right,
        sides.rule,
        own=state.row_bias,
        other=state.column_bias,
        weights=sides.weights,
        keep=keep,
        **shared,
    )
    columns = engine.evidence_rows(
        sides.xt,
        state.right,
        state.left,
        sides.rule_t,
        own=state.column_bias,
        other=state.row_bias,
        weights=sides.weights_t,
        **shared,
    )
    value = rows.value
    if sides.unobserved:
        value += 0.5 * sides.unobserved * _all_squares(state)
    return Point(rows, columns, value)


def _all_squares(state: Any) -> float:
    """sum of (u_i.v_j)^2 over all cells."""
    u, v = (f.astype(np.float64) for f in (state.left, state.right))
    return float(((u.T @ u) * (v.T @ v)).sum())


def gradient(sides: Any, state: Any, point: Point, engine: Any, nonnegative: bool = False) -> float:
    """||gradient|| / (sum of the norms of its parts) over all four blocks."""
    square = size = 0.0
    blocks = (
        (point.rows, state.left, state.right, state.row_bias, sides.rule, sides.x),
        (point.columns, state.right, state.left, state.column_bias, sides.rule_t, sides.xt),
    )
    for seen, own, other, bias, rule, x in blocks:
        ridge, bias_ridge = rule.ridges(x.row_counts())
        shared = sides.unobserved * (other.T @ other) if sides.unobserved else None
        bare = None if rule.l2 or sides.unobserved else _data_pull(x, other, engine)
        block = np.array(
            [_gradient_rows(seen.pull, own, ridge, shared, bare, nonnegative, a) for a in range(0, len(own), ROWS)]
        )
        gradients, pulls, scales = block.sum(axis=0)
        square += float(gradients)
        size += float(np.sqrt(pulls) + np.sqrt(scales)) ** 2
        if bias is not None:
            push = bias_ridge * bias
            square += float(np.sum((push - seen.row_sum) ** 2))
            size += float(np.linalg.norm(seen.row_sum) + np.linalg.norm(push)) ** 2
    return float(np.sqrt(square / size)) if size > FLOOR else 0.0


def _gradient_rows(
    pull: np.ndarray, own: np.ndarray, ridge: np.ndarray, shared: Any, bare: Any, nonnegative: bool, a: int
) -> tuple[float, float, float]:
    """Squared norms of gradient, pull and scale over a block of rows."""
    rows = slice(a, a + ROWS)
    u, got = own[rows].astype(np.float64), pull[rows].astype(np.float64)
    push = u * ridge[rows, None]
    if shared is not None:
        push += u @ shared
    g = push - got
    if nonnegative:
        g = np.where(u > 0, g, np.minimum(g, 0.0))
    scale = push if bare is None else bare[rows]
    return float(np.sum(g * g)), float(np.sum(got * got)), float(np.sum(scale * scale))


def _data_pull(x: Observed, other: np.ndarray, engine: Any) -> np.ndarray:
    """A V: the scale of a gradient that no ridge balances."""
    return engine.offset_times(x, other, 0.0, None, None).astype(np.float64)


def relative_gradient(sides: Any, state: Any, engine: Any) -> float:
    """The gradient alone, for a stopping rule."""
    return gradient(sides, state, look(sides, state, engine), engine, sides.rule.nonnegative)


def certify_factors(
    sides: Any, state: Any, engine: Any, trace: Any, nonnegative: bool, errors: list[float] | None = None
) -> Certificate:
    """The certificate of a ridge factorization, from its data and its factors; ``errors`` on held-out entries make it a statistical one."""
    convex = not nonnegative and sides.rule.l2 > 0
    point = look(sides, state, engine, keep=convex and sides.unobserved > 0)
    value = point.value + penalty(sides.x, sides.rule, state.left, state.row_bias)
    value += penalty(sides.xt, sides.rule_t, state.right, state.column_bias)
    slope = gradient(sides, state, point, engine, nonnegative)
    limit = 1.0 if errors else GRADIENT_LIMIT
    checks = [
        Check("relative gradient", slope, limit, "size of the gradient against the two parts that cancel in it"),
        Check("finite", 0.0 if np.isfinite(value) else 1.0, 0.0, "the objective is a finite number"),
    ]
    if len(trace.values) > 1:
        rise = max(max(b - a for a, b in itertools.pairwise(trace.values)), 0.0) / _scale(sides, state, trace)
        rounding = 50 * float(np.finfo(state.left.dtype).eps)
        checks.append(Check("never rises", rise, rounding, "largest rise of the objective at a half sweep, relative"))
    facts: dict[str, Any] = {"objective": value, "data term": point.value, "stopped": trace.reason.value}
    kind, notes = "statistical" if errors else "stationary", []
    if errors:
        facts |= {"held-out error": min(errors), "sweeps after the best": len(errors) - 1 - int(np.argmin(errors))}
        notes.append("stopped early on held-out entries: a good predictor, not a minimiser of the training objective")
    if convex:
        gap, norm, words = duality_gap(sides, state, point, value, engine)
        facts |= {"duality gap": gap, "residual norm / ridge": norm}
        if gap <= GLOBAL_GAP:
            kind = "global"
            checks.append(Check("duality gap", gap, GLOBAL_GAP, "relative distance from the best matrix of any rank"))
            notes.append(f"a global minimiser of the nuclear-norm problem over all ranks: {words}")
        else:
            notes.append(f"no matrix of any rank has an objective more than {gap:.1%} lower: {words}")
    problem = "ridge factorization by alternating least squares" + (", implicit feedback" if sides.rule.alpha else "")
    return Certificate(problem, kind, tuple(checks), facts, tuple(notes))


def _scale(sides: Any, state: Any, trace: Any) -> float:
    """The size of the numbers whose rounding the trace carries: the objective at zero."""
    a, mean = sides.x.data, state.mean
    total = float(a.sum(dtype=np.float64))
    zero = 0.5 * (sides.rule.alpha * total if sides.rule.alpha else float(a @ a) - 2 * mean * total + mean**2 * len(a))
    return max(zero, *map(abs, trace.values)) or 1.0


def duality_gap(sides: Any, state: Any, point: Point, value: float, engine: Any) -> tuple[float, float, str]:
    """(relative gap, ||L^-1/2 R M^-1/2||_2 from below, how it was bounded)."""
    ridge, bias_ridge = sides.rule.ridges(sides.x.row_counts())
    ridge_t, bias_ridge_t = sides.rule_t.ridges(sides.xt.row_counts())
    if (sides.rule.bias and min(bias_ridge.min(), bias_ridge_t.min()) <= 0) or min(ridge.min(), ridge_t.min()) <= 0:
        return float("inf"), float("nan"), "no bound where a ridge is zero"
    x = sides.x
    columns = (1 / np.sqrt(ridge_t))[:, None]
    if sides.unobserved:
        product, limit = _implicit_product(sides, state, point, 1 / ridge, columns, engine), np.inf
    else:
        product, limit = (
            _explicit_product(sides, state, 1 / ridge, columns, engine),
            2 * point.rows.square / (ridge.min() * ridge_t.min()),
        )

    def bounds(steps: int) -> tuple[float, float, str]:
        start = np.zeros((x.n_columns, 0))
        return remainder_norm(product, start, state.left.dtype, np.random.default_rng(7), limit, steps, 2)

    def gap_at(square: float) -> float:
        shrink = min(1.0, 1.0 / float(np.sqrt(max(square, FLOOR))))
        dual = _dual(sides, state, point, shrink, bias_ridge, bias_ridge_t)
        return max(float((value - dual) / abs(value)), 0.0) if value else 0.0

    low, high, words = bounds(FIRST_LOOK)
    if x.nnz <= SMALL or gap_at(low) <= 3 * GLOBAL_GAP:  # worth a closer look: the norm may be small enough
        low, high, words = bounds(int(np.clip(4e7 / x.nnz, 12, 60)))
    return gap_at(high), float(np.sqrt(max(low, 0.0))), words.replace("Ky Fan, ", "")


def _explicit_product(sides: Any, state: Any, rows: np.ndarray, columns: np.ndarray, engine: Any) -> Any:
    """block -> M^T M block with M = L^-1/2 R M^-1/2, R made anew in every pass."""
    more = {"mean": state.mean, "own": state.row_bias, "other": state.column_bias, "weights": sides.weights}

    def apply(block: np.ndarray) -> np.ndarray:
        return engine.residual_gram(sides.x, state.left, state.right, block * columns, rows, **more) * columns

    return apply


def _implicit_product(sides: Any, state: Any, point: Point, rows: np.ndarray, columns: np.ndarray, engine: Any) -> Any:
    """The same with M = L^-1/2 (R - a0 U V^T) M^-1/2."""
    u, v, x = state.left, state.right, sides.x
    assert point.rows.residual is not None
    r = Counts(x.indptr, x.indices, point.rows.residual, x.n_columns)

    def apply(block: np.ndarray) -> np.ndarray:
        z = (block * columns).astype(u.dtype)
        y = engine.times(r, z, None) - sides.unobserved * (u @ (v.T @ z))
        y = (y * rows[:, None]).astype(u.dtype)
        return (engine.times_t(r, y, None) - sides.unobserved * (v @ (u.T @ y))) * columns

    return apply


def _dual(
    sides: Any, state: Any, point: Point, shrink: float, bias_ridge: np.ndarray, bias_ridge_t: np.ndarray
) -> float:
    """The bound from below at R' = shrink R.

    Implicit feedback: the conjugate of the data term, cell by cell. An observed cell has weight W = a0 + w, and h*(z) = z^2 / 2W + z q / W + q^2 / 2W - q / 2
    at z = -R' = shrink (a0 s - R); elsewhere h*(z) = z^2 / 2 a0 at z = shrink a0 s.
    """
    e = point.rows
    if sides.unobserved:
        elsewhere = 0.5 * sides.unobserved * (_all_squares(state) - e.dots)
        return -(shrink**2 * (e.square + elsewhere) + shrink * e.cross + e.constant)
    total = shrink * e.linear - shrink**2 * e.square
    if sides.rule.bias:
        for sums, ridge in ((e.row_sum, bias_ridge), (point.columns.row_sum, bias_ridge_t)):
            total -= 0.5 * shrink**2 * float(np.sum(sums**2 / ridge))
    return total


def penalty(x: Observed, rule: Any, factor: np.ndarray, bias: np.ndarray | None) -> float:
    """1/2 sum_i l_i ||u_i||^2, and the same for the biases."""
    ridge, bias_ridge = rule.ridges(x.row_counts())
    square = np.einsum("ij,ij->i", factor, factor, dtype=np.float64)
    return 0.5 * float(ridge @ square) + (
        0.0 if bias is None else 0.5 * float(bias_ridge @ bias.astype(np.float64) ** 2)
    )
