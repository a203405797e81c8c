"""Evidence about a ridge factorization under a loss: the gradient of the loss itself, and how far
any matrix of any rank could lie below.

At s = mean + b_i + c_j + B_ij let y hold w dl/ds at the observed entries. Entries with the targets
and weights of the majorising ridge problem have the residual -y (``engines.protocol.losses``), so
gradients and norms are those of ``stationary``. By Fenchel and Young, w l(a, s) >= y' s - w l*(a,
y' / w) for any y', and with ||L^-1/2 y' M^-1/2||_2 <= 1 the least of the other terms is known, so
that every matrix of every rank, with any biases, has an objective of at least

    mean sum y' - sum w l*(a, y' / w) - 1/2 sum_i (sum_j y'_ij)^2 / (bias ridge of row i) - the same
    for columns.

y' = y, scaled down to norm 1 where it must be, gives a duality gap.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from eckart.certify.certificate import Certificate, Check, finite, never_rises, roundings
from eckart.certify.spectral import remainder_norm
from eckart.certify.stationary import (
    FIRST_LOOK,
    FLOOR,
    GLOBAL_GAP,
    GRADIENT_LIMIT,
    SMALL,
    ResidualSums,
    RidgePoint,
    RidgeProblem,
    by_gap,
    gradient,
    stopped_early,
)
from eckart.engines.protocol import Engine, Placed
from eckart.trace import StopReason, Trace


class SeenPoint(NamedTuple):
    """The majorising ridge problem of the rows at a point, sums over both sides, and sum w l(a,
    s)."""

    placed: Placed
    sums: ResidualSums


def given(at: RidgePoint, turned: bool = False) -> dict[str, Any]:
    """What a primitive of losses takes of a point with its factors."""
    own, other = (at.column_bias, at.row_bias) if turned else (at.row_bias, at.column_bias)
    return {"mean": at.mean, "own": own, "other": other}


def look(p: RidgeProblem, at: RidgePoint, engine: Engine) -> SeenPoint:
    """Gradients of both sides, measured at the point."""
    rows, value = engine.linearised(p.x, at.loss, at.left, at.right, **given(at))
    columns, _ = engine.linearised(p.x.T, at.loss, at.right, at.left, **given(at, turned=True))
    one = engine.evidence_rows(rows, at.left, at.right, p.rule, **given(at)).sums
    two = engine.evidence_rows(columns, at.right, at.left, p.rule_t, **given(at, turned=True)).sums
    return SeenPoint(rows, ResidualSums(one, two, value))


def relative_loss_gradient(p: RidgeProblem, at: RidgePoint, engine: Engine) -> float:
    """The gradient alone, for a stopping rule."""
    return gradient(p, at, look(p, at, engine).sums, engine)


def best_thresholds(found: Any, errors: list[float] | None) -> Check:
    """What a Newton step of the thresholds would still gain, from the engine's ``threshold_sums``:
    of second order in the gradient."""
    # of scores that are no numbers nothing is known, and LAPACK would say so in its own words
    gain = float("nan")
    if np.isfinite(found.bend).all() and np.isfinite(found.gradient).all():
        step = np.linalg.lstsq(found.bend, found.gradient, rcond=None)[0]
        gain = float(0.5 * found.gradient @ step / max(abs(found.value), FLOOR))
    wanted = 1.0 if errors else GRADIENT_LIMIT**2
    return Check(
        "thresholds", gain, wanted, "share of the loss that other thresholds would still save"
    )


def certify_loss(
    p: RidgeProblem, at: RidgePoint, engine: Engine, trace: Trace, errors: list[float] | None = None
) -> Certificate:
    """The certificate of a ridge factorization under a loss, from its data and its factors."""
    seen = look(p, at, engine)
    value = seen.sums.value + engine.ridge_penalty(p.x, p.rule, at.left, at.row_bias)
    value += engine.ridge_penalty(p.x.T, p.rule_t, at.right, at.column_bias)
    slope = gradient(p, at, seen.sums, engine)
    limit = 1.0 if errors else GRADIENT_LIMIT
    checks = [
        Check(
            "relative gradient",
            slope,
            limit,
            f"size of the gradient of the {at.loss.name} loss and its ridge against the "
            "two parts that cancel in it",
        ),
        finite(value),
    ]
    if len(getattr(at.loss, "thresholds", ())):
        checks.append(
            best_thresholds(
                engine.threshold_sums(p.x, at.loss, at.left, at.right, **given(at)), errors
            )
        )
    values = (
        [*trace.values, value]
        if trace.reason is not StopReason.INTERRUPTED and not errors
        else trace.values
    )
    checks += never_rises(values, roundings(p.x.dtype))
    facts: dict[str, Any] = {
        "objective": value,
        "data term": seen.sums.value,
        "stopped": trace.reason.value,
        "loss": at.loss.name,
    }
    facts["loss of an entry"] = seen.sums.value / max(p.x.nnz, 1)
    kind, notes = stopped_early(errors, facts)
    if not p.rule.nonnegative and p.rule.l2 > 0:
        gap, norm, words = _gap(p, at, seen, value, engine)
        facts |= {"duality gap": gap, "gradient norm / ridge": norm}
        kind = by_gap(kind, gap, words, "", checks, notes)
        if len(getattr(at.loss, "thresholds", ())):
            notes.append("the bound holds for these thresholds")
    return Certificate(
        f"ridge factorization under the {at.loss.name} loss",
        kind,
        tuple(checks),
        facts,
        tuple(notes),
    )


def _gap(
    p: RidgeProblem, at: RidgePoint, seen: SeenPoint, value: float, engine: Engine
) -> tuple[float, float, str]:
    """(relative gap, ||L^-1/2 y M^-1/2||_2 from below, how it was bounded)."""
    ridge, bias_ridge = p.rule.ridges(p.x.counts)
    ridge_t, bias_ridge_t = p.rule_t.ridges(p.x.T.counts)
    if (p.rule.bias and min(bias_ridge.min(), bias_ridge_t.min()) <= 0) or min(
        ridge.min(), ridge_t.min()
    ) <= 0:
        return float("inf"), float("nan"), "no bound where a ridge is zero"
    columns, scale = (1 / np.sqrt(ridge_t))[:, None], engine.take(1 / ridge, p.x.dtype)

    def product(block: np.ndarray) -> np.ndarray:
        z = engine.take(block * columns, p.x.dtype)
        found = engine.residual_gram(seen.placed, at.left, at.right, z, scale, p.rule, **given(at))
        return engine.get(found) * columns

    def bounds(steps: int) -> tuple[float, float, str]:
        start = np.zeros((p.x.shape[1], 0))
        return remainder_norm(product, start, p.x.dtype, np.random.default_rng(7), np.inf, steps, 2)

    def gap_at(square: float) -> float:
        shrink = min(1.0, 1.0 / float(np.sqrt(max(square, FLOOR))))
        sums = engine.loss_sums(p.x, at.loss, at.left, at.right, shrink=shrink, **given(at))
        dual = shrink * at.mean * sums.slope - sums.conjugate
        if p.rule.bias:
            dual -= 0.5 * shrink**2 * (seen.sums.rows.bias_cost + seen.sums.columns.bias_cost)
        return max(float((value - dual) / abs(value)), 0.0) if value else 0.0

    low, high, words = bounds(FIRST_LOOK)
    # worth a closer look: the norm may be small enough
    if p.x.nnz <= SMALL or gap_at(low) <= 3 * GLOBAL_GAP:
        low, high, words = bounds(int(np.clip(4e7 / p.x.nnz, 12, 60)))
    return gap_at(high), float(np.sqrt(max(low, 0.0))), words.replace("Ky Fan, ", "")
