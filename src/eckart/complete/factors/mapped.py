"""Alternating least squares with attributes (6.5): codes given the maps, maps given the codes, for
rows and then for columns.

The objective is in ``certify.mapped``. Each of the four blocks is solved exactly:

    U: every row is a ridge problem around its own prior mean A^T f_i (``engine.ridge_rows`` with
    h_i = l_i A^T f_i)
    A: (F^T L F + rho I) A = F^T L U, a system as large as the number of attributes

so the objective falls at every half sweep (U with A, V with B). Under a loss (6.2) rows and columns
minimise the ridge problem that lies above it. A constant stands among the attributes: the prior
mean of a row of which nothing is known is learned as well. A row without an entry has the code A^T
f_i in the end; it has no share in A.

Reference: the form of prior means by ridge maps is that of feature-aware implicit ALS and of
Agarwal and Chen 2009 (regression-based latent factors).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from eckart.certify.mapped import MappedProblem, SideMap
from eckart.certify.stationary import RidgePoint, RidgeProblem
from eckart.complete.factors.alternate import AlternatingState, balance
from eckart.complete.factors.majorise import FOLD_STEPS, FOLD_TOL, threshold_step
from eckart.complete.side_information import SideInformation
from eckart.engines.protocol import Engine, RidgeRule, Tall
from eckart.terms import Loss
from eckart.trace import Trace

FEATURE_RIDGE = 3.0
"""The ridge of a map, in mean ridges of a code times the root of the number of codes: a coefficient
moves many codes at once. On MovieLens-100K (943 rows) multiples of 1, 10, 30, 100, 300 and 1000
mean ridges were tried on entries and on rows held out: 100 predicted best, 1 and 10 worse than no
attributes; on 60 rows with planted attributes 100 is too much."""


def with_constant(features: np.ndarray | None, n: int) -> np.ndarray:
    """F with a column of ones in front; that column alone where a side has no attributes."""
    ones = np.ones((n, 1))
    return ones if features is None else np.hstack([ones, features])


def mapped(
    engine: Engine,
    problem: RidgeProblem,
    features: tuple[np.ndarray | None, np.ndarray | None],
    rho: float | None,
) -> MappedProblem:
    """The problem with attributes in place of the plain one; rho None: by the ridges of the codes
    that have entries."""
    rule = problem.rule
    stretch = float(np.sqrt(rule.l2 / rule.bias_l2)) if rule.bias else 0.0
    sides = []
    for x, own, f in (
        (problem.x, problem.rule, features[0]),
        (problem.x.T, problem.rule_t, features[1]),
    ):
        ridge = own.ridges(x.counts)[0]
        if not rule.alpha:  # with implicit feedback a row without entries has said weak noes
            ridge = np.where(np.asarray(x.counts) > 0, ridge, 0.0)
        some = ridge[ridge > 0]
        own_rho = FEATURE_RIDGE * np.sqrt(len(some)) * float(some.mean()) if rho is None else rho
        sides.append(SideMap.of(engine, with_constant(f, len(ridge)), ridge, own_rho, x.dtype))
    plain = problem._replace(rule=_bare(problem.rule), rule_t=_bare(problem.rule_t), cg_steps=0)
    return MappedProblem(plain, sides[0], sides[1], stretch)


def _bare(rule: RidgeRule) -> RidgeRule:
    return rule._replace(bias=False, bias_l2=0.0)


def begin(
    p: MappedProblem,
    right: np.ndarray,
    column_bias: np.ndarray | None,
    mean: float,
    loss: Loss | None,
    engine: Engine,
) -> AlternatingState:
    """V and column biases from the start without attributes, maps at zero."""
    if p.stretch:
        last = (
            np.zeros(len(right))
            if column_bias is None
            else np.asarray(column_bias).ravel() / p.stretch
        )
        right = np.column_stack([right, last]).astype(right.dtype)
    d, rows = right.shape[1], p.plain.x.shape[0] or 0
    maps = [np.zeros((len(side.gram), d)) for side in (p.rows, p.columns)]
    left = engine.take(np.zeros((rows, d), right.dtype))
    return AlternatingState(
        RidgePoint(left, engine.take(right), None, None, mean, maps[0], maps[1], loss)
    )


def sweep(
    p: MappedProblem, state: AlternatingState, engine: Engine, trace: Trace
) -> AlternatingState:
    """Rows and their map given the columns, then columns and their map; under a loss also the
    thresholds. The trace gets the objective after each half, or before it, where a loss is
    bounded."""
    at = balanced(p, state.point, engine) if state.sweeps else state.point
    assert at.row_map is not None
    assert at.column_map is not None
    fixed = p.penalty(engine, p.columns, at.right, at.column_map)
    left, a, value = _half(p, at, engine, turned=False)
    trace.add(value + fixed)
    at = at._replace(left=left, row_map=a)
    fixed = p.penalty(engine, p.rows, left, a)
    right, b, value = _half(p, at, engine, turned=True)
    trace.add(value + fixed)
    at = at._replace(right=right, column_map=b)
    if at.loss is not None:
        at = at._replace(loss=threshold_step(p.plain, plain_point(p, at, engine), engine).loss)
    return AlternatingState(at, state.sweeps + 1, list(trace.values))


def _half(
    p: MappedProblem, at: RidgePoint, engine: Engine, turned: bool
) -> tuple[Any, np.ndarray, float]:
    """Codes of the rows (or columns) around their prior means, then the map; and data term +
    penalty of this side at both, or, under a loss, before: a loss is bounded by the ridge problem
    that touches it at the present codes."""
    side, others, x, rule = (
        (p.columns, p.rows, p.plain.x.T, p.plain.rule_t)
        if turned
        else (p.rows, p.columns, p.plain.x, p.plain.rule)
    )
    own, other, maps = (
        (at.right, at.left, at.column_map) if turned else (at.left, at.right, at.row_map)
    )
    assert maps is not None
    design, offset = p.design(engine, others, other)
    base = p.plain.base(engine, design)
    h, before = engine.outer(side.heavy, maps), 0.0
    if at.loss is not None:
        x, before = engine.linearised(x, at.loss, own, design, mean=at.mean, other=offset)
        before += p.penalty(engine, side, own, maps)
    found = engine.ridge_rows(x, design, rule, offset=offset, mean=at.mean, base=base, prior=h)
    pull = side.pull(engine, found.left)
    new = side.best(pull)
    # ridge_rows counts 1/2 l ||u||^2 - h.u, and h.u sums to <A, F^T L U> as a state that is taken
    # back lies in memory, without padding: products differ by it in the last bit
    codes = engine.outer(found.left, np.eye(found.left.shape[1]))
    return (
        codes,
        new,
        before
        if at.loss is not None
        else found.value + float(np.sum(maps * pull)) + side.cost(new, pull),
    )


def balanced(p: MappedProblem, at: RidgePoint, engine: Engine) -> RidgePoint:
    """The same U V^T at the least penalty: codes and maps of a side turn together. Biases stay.

    At the best A the penalty of the rows is 1/2 tr(U^T L U - U^T L F A), a quadratic form in U.
    """
    k = at.left.shape[1] - (1 if p.stretch else 0)
    grams = []
    for side, codes, maps in ((p.rows, at.left, at.row_map), (p.columns, at.right, at.column_map)):
        assert maps is not None
        gram = engine.inner(codes, codes, side.ridge) - side.pull(engine, codes).T @ maps
        grams.append(((gram + gram.T) / 2)[:k, :k])
    turns = balance(*grams)
    if turns is None:
        return at
    whole = []
    for turn in turns:
        full = np.eye(at.left.shape[1])
        full[:k, :k] = turn
        whole.append(full)
    assert at.row_map is not None
    assert at.column_map is not None
    return at._replace(
        left=engine.outer(at.left, whole[0]),
        right=engine.outer(at.right, whole[1]),
        row_map=at.row_map @ whole[0],
        column_map=at.column_map @ whole[1],
    )


def plain_point(p: MappedProblem, at: RidgePoint, engine: Engine) -> RidgePoint:
    """Codes and biases apart, as without attributes."""
    if not p.stretch:
        return RidgePoint(at.left, at.right, None, None, at.mean, loss=at.loss)
    k = at.left.shape[1] - 1
    own, other = (
        engine.outer(codes, np.append(np.zeros(k), p.stretch)[:, None])
        for codes in (at.left, at.right)
    )
    return RidgePoint(at.left[:, :k], at.right[:, :k], own, other, at.mean, loss=at.loss)


def folded_rows(
    engine: Engine,
    x: Any,
    loss: Loss | None,
    design: Tall,
    rule: RidgeRule,
    *,
    offset: Tall | None,
    base: Any,
    prior: Tall,
    start: Tall,
) -> Tall:
    """Codes of new rows around their prior means; under a loss by steps from ``start``, until they
    stand still."""
    at = start
    for _ in range(1 if loss is None else FOLD_STEPS):
        bound = x if loss is None else engine.linearised(x, loss, at, design, other=offset)[0]
        new = engine.ridge_rows(bound, design, rule, base=base, offset=offset, prior=prior).left
        moved = float(
            np.abs(np.asarray(engine.get(new)) - np.asarray(engine.get(at))).max(initial=0.0)
        )
        at = new
        if moved <= np.sqrt(FOLD_TOL):  # the objective is of second order in it
            break
    return at


class Fitted(NamedTuple):
    """What new rows and columns need: the maps and s (0: no biases)."""

    rows: np.ndarray
    columns: np.ndarray
    stretch: float

    @classmethod
    def of(cls, p: MappedProblem, at: RidgePoint) -> Fitted:
        assert at.row_map is not None
        assert at.column_map is not None
        return cls(at.row_map, at.column_map, p.stretch)

    def flipped(self) -> Fitted:
        return Fitted(self.columns, self.rows, self.stretch)

    def means(self, features: np.ndarray | None, n: int) -> np.ndarray:
        """A^T f of rows; of one of which nothing is known where there are no features."""
        width = len(self.rows) - 1
        return with_constant(np.zeros((n, width)) if features is None else features, n) @ self.rows


def finished(
    p: MappedProblem, at: RidgePoint, side_information: SideInformation, engine: Engine
) -> RidgePoint:
    """Codes and biases on the host; those of rows and columns without an entry are what their
    attributes say."""
    fitted = Fitted.of(p, at)
    codes = []
    sides = (
        (p.rows, at.left, fitted, side_information.rows),
        (p.columns, at.right, fitted.flipped(), side_information.columns),
    )
    for side, tall, maps, known in sides:
        own = np.array(engine.get(tall))
        empty = np.flatnonzero(np.asarray(engine.get(side.ridge)).ravel() == 0)
        if len(empty):
            own[empty] = maps.means(None if known is None else known.numbers[empty], len(empty))
        codes.append(own)
    if not p.stretch:
        return RidgePoint(codes[0], codes[1], None, None, at.mean)
    b, c = (np.ascontiguousarray(own[:, -1] * own.dtype.type(p.stretch)) for own in codes)
    return RidgePoint(codes[0][:, :-1], codes[1][:, :-1], b, c, at.mean)
