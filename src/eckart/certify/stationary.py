"""Evidence about a ridge factorization: how large the gradient is, and how far any matrix of any rank could lie below.

At the point (U, V, b, c) let R hold w (a - B) at the observed entries (implicit feedback: the negative gradient of the data term by B, which is sparse
plus low rank). The gradient is L U - R V for the rows and M V - R^T U for the columns, L = diag(l_i), M = diag(m_j). It is given relative to the
sizes of its two parts (without ridge: of A V), so that 1 is far away and 0 is critical.

The ridge on U and V is a nuclear norm: min 1/2 (||L^1/2 U||^2 + ||M^1/2 V||^2) over U V^T = B is ||L^1/2 B M^1/2||_*. So the problem over all ranks is
convex, and any R' with ||L^-1/2 R' M^-1/2||_2 <= 1 bounds it from below by

    <a - mean, R'> - 1/2 sum R'^2 / w - 1/2 sum_i (sum_j R'_ij)^2 / (bias ridge of row i) - the same for columns.

R' = R, scaled down to norm 1 where it must be, gives a duality gap. If the gap closes the factorization is a global minimiser, also over all larger ranks.

``sides`` and ``state`` are those of ``complete.alternate``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.certify.certificate import Certificate, Check
from eckart.certify.spectral import remainder_norm
from eckart.matrix import Counts, Observed

GLOBAL_GAP = 1e-3
GRADIENT_LIMIT = 0.02
FLOOR = 1e-30


def residuals(sides: Any, state: Any, engine: Any) -> tuple[Counts, Counts, float]:
    """R by rows and by columns, and the value of the data term."""
    own = _residual(
        sides.x,
        sides.weights,
        sides.rule,
        state.mean,
        state.left,
        state.right,
        state.row_bias,
        state.column_bias,
        engine,
    )
    other = _residual(
        sides.xt,
        sides.weights_t,
        sides.rule_t,
        state.mean,
        state.right,
        state.left,
        state.column_bias,
        state.row_bias,
        engine,
    )
    value = own[1]
    if sides.unobserved:
        u, v = (f.astype(np.float64) for f in (state.left, state.right))
        value += 0.5 * sides.unobserved * float(((u.T @ u) * (v.T @ v)).sum())
    return own[0], other[0], value


def _residual(
    x: Observed, weights: Any, rule: Any, mean: float, left: Any, right: Any, own: Any, other: Any, engine: Any
) -> tuple[Counts, float]:
    s = engine.sampled(x, left, right)
    if rule.alpha:
        w = rule.alpha * x.data
        pull = w + x.dtype.type(rule.shift)
        value = 0.5 * float(np.sum(pull - 2 * pull * s + w * s * s, dtype=np.float64))
        return Counts(x.indptr, x.indices, pull - w * s, x.n_columns), value
    if own is not None:
        s += np.repeat(own, x.row_counts())
        s += other[x.indices]
    r = x.data - s - x.dtype.type(mean)
    square = float(np.sum((r * r) if weights is None else weights * r * r, dtype=np.float64))
    return Counts(x.indptr, x.indices, r if weights is None else weights * r, x.n_columns), 0.5 * square


def gradient(sides: Any, state: Any, r: Counts, rt: Counts, engine: Any, nonnegative: bool = False) -> float:
    """||gradient|| / (sum of the norms of its parts) over all four blocks."""
    square = size = 0.0
    blocks = (
        (r, state.left, state.right, state.row_bias, sides.rule, sides.x),
        (rt, state.right, state.left, state.column_bias, sides.rule_t, sides.xt),
    )
    for matrix, own, other, bias, rule, x in blocks:
        ridge, bias_ridge = rule.ridges(x.row_counts())
        pull = engine.times(matrix, other, None).astype(np.float64)
        push = own * ridge[:, None] if rule.l2 else _data_pull(x, other, engine)
        if sides.unobserved:
            push = push + sides.unobserved * (own @ (other.T @ other))
        g = push - pull if rule.l2 or sides.unobserved else -pull
        if nonnegative:
            g = np.where(own > 0, g, np.minimum(g, 0.0))
        square += float(np.sum(g**2))
        size += float(np.linalg.norm(pull) + np.linalg.norm(push)) ** 2
        if bias is not None:
            rows = np.repeat(np.arange(len(bias)), np.diff(matrix.indptr))
            pull = np.bincount(rows, matrix.data, len(bias))
            push = bias_ridge * bias
            square += float(np.sum((push - pull) ** 2))
            size += float(np.linalg.norm(pull) + np.linalg.norm(push)) ** 2
    return float(np.sqrt(square / size)) if size > FLOOR else 0.0


def _data_pull(x: Observed, other: np.ndarray, engine: Any) -> np.ndarray:
    """A V: the scale of a gradient that no ridge balances."""
    return engine.times(Counts(x.indptr, x.indices, x.data, x.n_columns), other, None).astype(np.float64)


def relative_gradient(sides: Any, state: Any, engine: Any) -> float:
    """The gradient alone, for a stopping rule."""
    r, rt, _ = residuals(sides, state, engine)
    return gradient(sides, state, r, rt, engine, sides.rule.nonnegative)


def certify_factors(
    sides: Any, state: Any, engine: Any, trace: Any, nonnegative: bool, errors: list[float] | None = None
) -> Certificate:
    """The certificate of a ridge factorization, from its data and its factors; ``errors`` on held-out entries make it a statistical one."""
    r, rt, value = residuals(sides, state, engine)
    data_term = value
    value += penalty(sides.x, sides.rule, state.left, state.row_bias)
    value += penalty(sides.xt, sides.rule_t, state.right, state.column_bias)
    slope = gradient(sides, state, r, rt, engine, nonnegative)
    rises = [b - a for a, b in zip(trace.values, trace.values[1:])]
    scale = max(map(abs, trace.values), default=1.0) or 1.0
    limit = 1.0 if errors else GRADIENT_LIMIT
    checks = [
        Check("relative gradient", slope, limit, "size of the gradient against the two parts that cancel in it"),
        Check("finite", 0.0 if np.isfinite(value) else 1.0, 0.0, "the objective is a finite number"),
    ]
    if len(trace.values) > 1:
        rounding = 50 * float(np.finfo(state.left.dtype).eps)
        checks.append(
            Check(
                "never rises",
                max(max(rises), 0.0) / scale,
                rounding,
                "largest rise of the objective at a half sweep, relative",
            )
        )
    facts: dict[str, Any] = {"objective": value, "data term": data_term, "stopped": trace.reason.value}
    kind, notes = "statistical" if errors else "stationary", []
    if errors:
        facts |= {"held-out error": min(errors), "sweeps after the best": len(errors) - 1 - int(np.argmin(errors))}
        notes.append("stopped early on held-out entries: a good predictor, not a minimiser of the training objective")
    if not nonnegative and sides.rule.l2 > 0:
        gap, norm, words = duality_gap(sides, state, r, rt, value, engine)
        facts |= {"duality gap": gap, "residual norm / ridge": norm}
        if gap <= GLOBAL_GAP:
            kind = "global"
            checks.append(Check("duality gap", gap, GLOBAL_GAP, "relative distance from the best matrix of any rank"))
            notes.append(f"a global minimiser of the nuclear-norm problem over all ranks: {words}")
        else:
            notes.append(f"no matrix of any rank has an objective more than {gap:.1%} lower: {words}")
    problem = "ridge factorization by alternating least squares" + (", implicit feedback" if sides.rule.alpha else "")
    return Certificate(problem, kind, tuple(checks), facts, tuple(notes))


def duality_gap(sides: Any, state: Any, r: Counts, rt: Counts, value: float, engine: Any) -> tuple[float, float, str]:
    """(relative gap, ||L^-1/2 R M^-1/2||_2 from below, how it was bounded)."""
    _n, m = sides.x.shape
    ridge, bias_ridge = sides.rule.ridges(sides.x.row_counts())
    ridge_t, bias_ridge_t = sides.rule_t.ridges(sides.xt.row_counts())
    if (sides.rule.bias and min(bias_ridge.min(), bias_ridge_t.min()) <= 0) or min(ridge.min(), ridge_t.min()) <= 0:
        return float("inf"), float("nan"), "no bound where a ridge is zero"
    rows, columns = 1 / np.sqrt(ridge), 1 / np.sqrt(ridge_t)
    u, v = state.left, state.right

    def product(block: np.ndarray) -> np.ndarray:
        z = (block * columns[:, None]).astype(u.dtype)
        y = engine.times(r, z, None)
        if sides.unobserved:
            y = y - sides.unobserved * (u @ (v.T @ z))
        y = (y * (rows**2)[:, None]).astype(u.dtype)
        out = engine.times(rt, y, None)
        if sides.unobserved:
            out = out - sides.unobserved * (v @ (u.T @ y))
        return out * columns[:, None]

    most = float(np.sum((np.repeat(rows, sides.x.row_counts()) * columns[r.indices] * r.data) ** 2))
    steps = int(np.clip(4e7 / sides.x.nnz, 8, 60))
    low, high, words = remainder_norm(
        product, np.zeros((m, 0)), u.dtype, np.random.default_rng(7), np.inf if sides.unobserved else most, steps, 2
    )
    norm = float(np.sqrt(max(high, FLOOR)))
    shrink = min(1.0, 1.0 / norm)
    dual = _dual(sides, state, r, rt, shrink, bias_ridge, bias_ridge_t)
    gap = (value - dual) / abs(value) if value else 0.0
    return max(float(gap), 0.0), float(np.sqrt(max(low, 0.0))), words.replace("Ky Fan, ", "")


def _dual(
    sides: Any, state: Any, r: Counts, rt: Counts, shrink: float, bias_ridge: np.ndarray, bias_ridge_t: np.ndarray
) -> float:
    """The bound from below at R' = shrink R."""
    x = sides.x
    data = shrink * r.data.astype(np.float64)
    if sides.unobserved:
        return _implicit_dual(sides, state, data, shrink)
    w = 1.0 if sides.weights is None else np.where(sides.weights > 0, sides.weights, 1.0)
    total = float(np.sum((x.data - state.mean) * data)) - 0.5 * float(np.sum(data**2 / w))
    if sides.rule.bias:
        for matrix, ridge in ((r, bias_ridge), (rt, bias_ridge_t)):
            rows = np.repeat(np.arange(len(ridge)), np.diff(matrix.indptr))
            sums = shrink * np.bincount(rows, matrix.data, len(ridge))
            total -= 0.5 * float(np.sum(sums**2 / ridge))
    return total


def _implicit_dual(sides: Any, state: Any, data: np.ndarray, shrink: float) -> float:
    """The data term is h(B) = 1/2 sum_S (q - 2 q s + w s^2) + 1/2 a0 sum s^2; its conjugate at -R' = -shrink (q - w s)_S + shrink a0 s, cell by cell."""
    x, rule, a0 = sides.x, sides.rule, sides.unobserved
    w = rule.alpha * x.data.astype(np.float64)
    q = w + rule.shift
    s = _sampled64(x, state)
    u, v = state.left.astype(np.float64), state.right.astype(np.float64)
    everywhere = a0 * float(((u.T @ u) * (v.T @ v)).sum())
    # a cell of S has weight W = a0 + w and target q / W; h*(z) = z^2 / (2 W) + z q / W + q^2 / (2 W) - q / 2, elsewhere z^2 / (2 a0)
    z = -(data - shrink * a0 * s)
    weight = a0 + w
    inside = float(np.sum(z**2 / (2 * weight) + z * q / weight + q**2 / (2 * weight) - q / 2))
    elsewhere = 0.5 * shrink**2 * (everywhere - a0 * float(np.sum(s**2)))
    return -(inside + elsewhere)


def _sampled64(x: Observed, state: Any) -> np.ndarray:
    rows = np.repeat(np.arange(x.shape[0]), x.row_counts())
    out = np.empty(x.nnz)
    for a in range(0, x.nnz, 2**19):
        part = slice(a, a + 2**19)
        out[part] = np.einsum("ij,ij->i", state.left[rows[part]], state.right[x.indices[part]], dtype=np.float64)
    return out


def penalty(x: Observed, rule: Any, factor: np.ndarray, bias: np.ndarray | None) -> float:
    """1/2 sum_i l_i ||u_i||^2, and the same for the biases."""
    ridge, bias_ridge = rule.ridges(x.row_counts())
    square = np.einsum("ij,ij->i", factor, factor, dtype=np.float64)
    return 0.5 * float(ridge @ square) + (
        0.0 if bias is None else 0.5 * float(bias_ridge @ bias.astype(np.float64) ** 2)
    )
