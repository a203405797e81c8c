"""Alternating least squares under any loss (6.2): every half sweep solves the ridge problem that
lies above the objective and touches it where we are.

    F = sum w_ij l(a_ij, s_ij) + 1/2 sum_i l_i ||u_i||^2 + 1/2 sum_j m_j ||v_j||^2 + bias penalties,
    s_ij = mean + b_i + c_j + u_i.v_j

The loss of every entry is bounded by a parabola in s (``terms``), so the bound is a ridge problem
with other targets and weights, which the engine makes (``linearised``) and solves by the kernels of
least squares (``ridge_rows``). Its minimum is lower than the bound at the present point, which is F
itself: F never rises. Counts have no such parabola far away; their steps are shortened, row by row,
where the loss would rise (``shortened_rows``). Thresholds of ordered levels take a Newton step a
sweep, halved until the loss has fallen.

References: Jaakkola and Jordan 2000 (the bound of the logistic loss); Hunter and Lange 2004
(majorising); Collins, Dasgupta and Schapire 2001; Udell et al. 2016.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from eckart.certify.losses import given
from eckart.certify.stationary import RidgePoint, RidgeProblem
from eckart.engines.protocol import Engine, RowSolution
from eckart.errors import InputError
from eckart.matrix import Observed
from eckart.matrix_blocks import facts_of, of_each_part, parts_of, with_values
from eckart.parameters import Rule
from eckart.terms import LOSSES, Loss, Ordered, loss_named, loss_or_none
from eckart.terms.loss import LossError
from eckart.terms.multinomial import levels_of
from eckart.trace import Trace

FOLD_STEPS, FOLD_TOL = 100, 1e-7
"""Steps of a new row, and the relative fall of its objective at which they end."""


def factorized() -> Rule:
    """The names of losses with one natural parameter for each entry.

    >>> factorized().fits("quantile 0.9"), factorized().fits("quantile 2")
    (True, False)
    """
    names = [name for name in LOSSES if name != "multinomial"]
    words = ", ".join(map(repr, names[:-1])) + f" or {names[-1]!r}"
    return Rule(words, lambda name: getattr(loss_or_none(name), "name", None) in names)


def loss_for(name: str, x: Observed, weights: np.ndarray | None) -> Loss:
    """The loss with its own parameters set by the entries."""
    loss = loss_named(name)
    if parts_of(x) is None:
        return loss.fitted_to(x.data, weights)
    if weights is not None:
        raise InputError(
            "weights need data in memory, got data in parts. Repeat entries that count more."
        )
    facts = facts_of(x)
    if isinstance(loss, Ordered):
        return graded(loss, x)
    return loss.of_deviation(facts.deviation or 1.0)


def graded(loss: Ordered, x: Observed) -> Ordered:
    """The loss of grades with their levels and thresholds, of entries in parts."""
    values, counts = levels_of_parts(x)
    return loss.with_shares(tuple(levels_of(values)), counts)


def levels_of_parts(x: Observed) -> tuple[np.ndarray, np.ndarray]:
    """The different values of the entries and how often each came, looked for where the parts
    are."""
    found = of_each_part(x, _levels)
    values, place = np.unique(np.concatenate([v for v, _ in found]), return_inverse=True)
    return values, np.bincount(place, np.concatenate([n for _, n in found]), len(values))


def _levels(part: Observed) -> tuple[np.ndarray, np.ndarray]:
    values, counts = np.unique(part.data, return_counts=True)
    # more than that are numbers, which nobody takes for grades
    return values[:MOST_LEVELS], counts[:MOST_LEVELS]


MOST_LEVELS = 2**12
"""Different values that are counted."""


def _encoded(loss: Loss, part: Observed) -> Observed:
    return replace(part, data=loss.encode(part.data).astype(part.dtype, copy=False))


def encoded(x: Observed, loss: Loss) -> Observed:
    """The entries as the loss takes them; the first that it cannot have is named with its row and
    column."""
    if parts_of(x) is not None and isinstance(loss, Ordered):
        return with_values(x, partial(_encoded, loss))
    if parts_of(x) is not None:
        facts = facts_of(x)
        loss.encode(np.array([facts.least, facts.most]))
        return x
    try:
        return replace(x, data=loss.encode(x.data).astype(x.dtype, copy=False))
    except LossError as error:
        bad = next(p for p in range(x.nnz) if _refused(loss, x.data[p : p + 1]))
        row, column = int(np.searchsorted(x.indptr, bad, side="right")) - 1, int(x.indices[bad])
        raise InputError(
            f"X must hold {error.rule} with loss={loss.name!r}, got {x.data[bad]} at row {row}, "
            f"column {column}"
        ) from None


def _refused(loss: Loss, value: np.ndarray) -> bool:
    try:
        loss.encode(value)
    except InputError:
        return True
    return False


def centre(x: Observed, loss: Loss, weights: np.ndarray | None) -> float:
    """The best constant natural parameter of encoded entries."""
    if parts_of(x) is not None:
        if isinstance(loss, Ordered):
            return float(loss.best_constant(*levels_of_parts(x)))
        facts = facts_of(x)
        mean = facts.total / facts.entries
        return mean if loss.location else float(loss.best_constant(np.array([mean]), np.ones(1)))
    return float(
        loss.best_constant(
            x.data.astype(np.float64), np.ones(x.nnz) if weights is None else weights
        )
    )


def touched(problem: RidgeProblem, loss: Loss, mean: float, engine: Engine) -> RidgeProblem:
    """The ridge problem that touches F at the mean alone: where a fit begins."""
    n, m = problem.x.shape
    none = [engine.take(np.zeros((size or 0, 1)), problem.x.dtype) for size in (n, m)]
    return problem._replace(x=engine.linearised(problem.x, loss, *none, mean=mean)[0])


def half_sweep(
    problem: RidgeProblem, at: RidgePoint, engine: Engine, turned: bool
) -> tuple[RowSolution, float]:
    """Rows (or, ``turned``, columns) at the minimum of the bound; and the data term before that."""
    x, rule = (problem.x.T, problem.rule_t) if turned else (problem.x, problem.rule)
    left, right = (at.right, at.left) if turned else (at.left, at.right)
    here = given(at, turned)
    bound, value = engine.linearised(x, at.loss, left, right, **here)
    warm = rule.nonnegative or problem.cg_steps > 0
    found = engine.ridge_rows(
        bound,
        right,
        rule,
        mean=at.mean,
        offset=here["other"],
        start=left if warm else None,
        cg_steps=problem.cg_steps,
    )
    if not at.loss.everywhere:
        found = engine.shortened_rows(
            x, at.loss, right, rule, left, found.left, new_own=found.bias, **here
        )
    return found, value


def loss_sweep(problem: RidgeProblem, at: RidgePoint, engine: Engine, trace: Trace) -> RidgePoint:
    """All rows, all columns, and the thresholds; F before each half goes to the trace."""
    for turned in (False, True):
        found, value = half_sweep(problem, at, engine, turned)
        penalty = engine.ridge_penalty(problem.x, problem.rule, at.left, at.row_bias)
        penalty += engine.ridge_penalty(problem.x.T, problem.rule_t, at.right, at.column_bias)
        trace.add(value + penalty)
        names = ("right", "column_bias") if turned else ("left", "row_bias")
        at = at._replace(**dict(zip(names, found[:2])))
    return threshold_step(problem, at, engine)


def threshold_step(problem: RidgeProblem, at: RidgePoint, engine: Engine) -> RidgePoint:
    """A Newton step of the thresholds, halved until the loss does not rise; a point without
    thresholds as it is."""
    if not isinstance(at.loss, Ordered) or not at.loss.thresholds:
        return at
    now = engine.threshold_sums(problem.x, at.loss, at.left, at.right, **given(at))
    step = -np.linalg.lstsq(now.bend, now.gradient, rcond=None)[0]
    for _ in range(20):  # a millionth of the step: beyond it nothing is left to gain
        loss = at.loss.moved(step)
        if loss is not None:
            value = engine.loss_sums(problem.x, loss, at.left, at.right, **given(at)).value
            if value <= now.value:
                return at._replace(loss=loss)
        step = step / 2
    return at


def folded(
    engine: Engine, x: Any, loss: Loss, right: Any, rule: Any, offset: Any, k: int
) -> RowSolution:
    """New rows given the columns: half sweeps of rows alone, until their objective stands still."""
    n, dtype = x.shape[0], x.dtype
    none = engine.take(np.zeros((n, k)), dtype)
    bias = engine.take(np.zeros(n), dtype) if rule.bias else None
    problem = RidgeProblem(x, rule, rule, None, None)
    at, last = RidgePoint(none, right, bias, offset, 0.0, loss=loss), np.inf
    for _ in range(FOLD_STEPS):
        found, value = half_sweep(problem, at, engine, turned=False)
        value += engine.ridge_penalty(x, rule, at.left, at.row_bias)
        if last - value <= FOLD_TOL * abs(value):
            break
        at, last = at._replace(left=found.left, row_bias=found.bias), value
    return RowSolution(at.left, at.row_bias, value)
