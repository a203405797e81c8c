"""Alternating least squares: the loop (2.5).

Explicit feedback minimises, over the observed entries with weights w,

    F = 1/2 sum w_ij (a_ij - mean - b_i - c_j - u_i.v_j)^2 + 1/2 sum_i l_i ||u_i||^2 + 1/2 sum_j m_j
    ||v_j||^2 + bias penalties,

l_i = l2 n_i^power with n_i the observations of row i (power 0: one ridge for all; power 1: weighted
by count). Implicit feedback, over all cells,

    F = 1/2 sum_observed alpha r_ij (1 - s_ij)^2 + 1/2 a0 sum_all s_ij^2 + penalties,     s_ij =
    u_i.v_j,   n_i counted as n_i + a0 m,

and with ``zeros="unobserved"`` the second sum leaves the observed cells out, whose weight becomes
a0 + alpha r_ij. With one side fixed every row of the other is a small ridge problem
(``engine.ridge_rows``), so F falls at each half sweep. The start is a randomized range of the
normalised residual matrix D^-1/2 R D^-1/2 (D the counts to the power of the ridge), which lies near
the signal and far from the saddle at 0.

Factors and biases stay inside the engine from the start to the end; between sweeps only k x k
matrices and numbers cross.

Strengths of implicit feedback brought together: plays, counts and seconds, of which a few would
outweigh all else.

3 log(1 + r / median) / mean, with the median of the strengths above 0 and the mean of the
logarithms. Of data in parts the median is found in two passes that hold little: how many values
share their leading bits, then the values that stand where the middle is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from eckart.certify.stationary import GRADIENT_LIMIT, RidgePoint, RidgeProblem
from eckart.complete.factors.majorise import loss_sweep
from eckart.decompositions import eigh
from eckart.engines.protocol import Engine
from eckart.io.models.checkpoint import NOTHING, Memory
from eckart.matrix import Observed
from eckart.matrix_blocks import facts_of, of_each_part, with_values
from eckart.terms import loss_from
from eckart.trace import StopReason, Trace, Watcher, silent


@dataclass
class AlternatingState:
    """Where the factors are, sweeps done, and F after each half sweep."""

    point: RidgePoint
    sweeps: int = 0
    values: list[float] = field(default_factory=list)

    def kept(self, engine: Engine) -> dict[str, Any]:
        """For a checkpoint. Factors leave the engine only when they are written."""
        *sides, mean, row_map, column_map, loss = self.point
        tall = [None if a is None else partial(engine.get, a) for a in sides]
        point = [*tall, mean, row_map, column_map, None if loss is None else loss.to_state()]
        return {"point": point, "sweeps": self.sweeps, "values": self.values}

    @classmethod
    def resumed(cls, kept: Any, engine: Engine) -> AlternatingState:
        """The inverse of ``kept``."""
        *sides, mean, row_map, column_map, loss = kept["point"]
        left, right, b, c = (None if a is None else engine.take(a) for a in sides)
        point = RidgePoint(
            left, right, b, c, mean, row_map, column_map, None if loss is None else loss_from(loss)
        )
        return cls(point, kept["sweeps"], kept["values"])


class SweepProgress(NamedTuple):
    """The best state so far and the held-out error after each sweep."""

    best: AlternatingState
    errors: list[float]


def resumed(kept: Any, engine: Engine) -> tuple[AlternatingState, SweepProgress]:
    """Where a killed run was."""
    state = AlternatingState.resumed(kept["state"], engine)
    best = state if kept["best"] is None else AlternatingState.resumed(kept["best"], engine)
    return state, SweepProgress(best, kept["errors"])


class SweepStop(NamedTuple):
    """When to end: at a relative decrease of F a sweep below ``tol`` and a gradient that the
    certificate accepts, at a relative gradient below ``tol``, or when ``error(point)`` has not
    improved for ``patience`` sweeps; after ``max_iter`` sweeps at the latest."""

    rule: str
    tol: float
    max_iter: int
    patience: int = 3
    error: Callable[[RidgePoint], float] | None = None
    gradient: Callable[[RidgePoint], float] | None = None


def alternate(
    problem: Any,
    state: AlternatingState,
    stop: SweepStop,
    engine: Engine,
    watch: Watcher = silent,
    memory: Memory = NOTHING,
    judged: SweepProgress | None = None,
    step: Callable[[Any, AlternatingState, Engine, Trace], AlternatingState] | None = None,
) -> tuple[AlternatingState, Trace, list[float]]:
    """Sweep until the stopping rule is met; an interrupt keeps the last half sweep that was whole
    (of a loss, of maps and of held-out errors the last whole sweep). Returns the best state, F
    after every half sweep, held-out errors.

    ``memory`` is offered the state between sweeps, never after the last: a run that goes on from
    there (``resumed``) makes the same sweeps. ``step`` is the sweep that belongs to the problem
    (None: that of a ``RidgeProblem``).
    """
    step = step or sweep
    # the value of a loss is known when it is bounded again
    when = "after" if state.point.loss is None else "before"
    trace = Trace(f"objective {when} each half sweep", reason=StopReason.MAX_ITER)
    trace.values, trace.seconds = list(state.values), [0.0] * len(state.values)
    best, errors = (state, []) if judged is None else (judged.best, list(judged.errors))
    try:
        while state.sweeps < stop.max_iter:
            # a sweep may put balanced factors into the state it starts from; the best of held-out
            # errors stays as it was judged and kept
            state = step(
                problem, replace(state) if stop.rule == "held_out" else state, engine, trace
            )
            if stop.rule == "held_out" and stop.error:
                errors.append(stop.error(state.point))
                best = state if errors[-1] <= min(errors) else best
                done = len(errors) - 1 - int(np.argmin(errors)) >= stop.patience
            else:
                best = state
                done = _met(stop, state, trace)
            watch("ALS sweeps", state.sweeps, stop.max_iter)
            if done:
                trace.reason = StopReason.CONVERGED
                break
            other = None if best is state else best.kept(engine)
            memory.offer({"state": state.kept(engine), "best": other, "errors": errors})
    except KeyboardInterrupt:
        trace.reason = StopReason.INTERRUPTED
        if best.sweeps == 0:
            raise
        del trace.values[len(state.values) :], trace.seconds[len(state.values) :]
    return best, trace, errors


def _met(stop: SweepStop, state: AlternatingState, trace: Trace) -> bool:
    if stop.rule == "gradient" and stop.gradient:
        return stop.gradient(state.point) <= stop.tol
    if len(trace) < 4 or trace.values[-3] - trace.values[-1] > stop.tol * abs(trace.values[-3]):
        return False
    return stop.gradient is None or stop.gradient(state.point) <= GRADIENT_LIMIT


def sweep(
    problem: RidgeProblem, state: AlternatingState, engine: Engine, trace: Trace
) -> AlternatingState:
    """All rows given the (balanced) columns, then all columns given the rows. The state moves along
    with each half, so that no factor is held that is no longer needed: there may be millions of
    rows."""
    at = balanced(problem, state.point, engine) if state.sweeps else state.point
    state.point = at  # the same U V^T at a lower penalty
    if at.loss is not None:
        return AlternatingState(
            loss_sweep(problem, at, engine, trace), state.sweeps + 1, list(trace.values)
        )
    x, rule, rule_t = problem.x, problem.rule, problem.rule_t
    warm = rule.nonnegative or problem.cg_steps > 0
    more: dict[str, Any] = {"mean": at.mean, "cg_steps": problem.cg_steps}
    fixed = engine.ridge_penalty(x.T, rule_t, at.right, at.column_bias)
    rows = engine.ridge_rows(
        x,
        at.right,
        rule,
        offset=at.column_bias,
        base=problem.base(engine, at.right),
        start=at.left if warm else None,
        **more,
    )
    trace.add(rows.value + fixed)
    at = at._replace(left=rows.left, row_bias=rows.bias)
    state.point, state.values = at, list(trace.values)
    fixed = engine.ridge_penalty(x, rule, at.left, at.row_bias)
    columns = engine.ridge_rows(
        x.T,
        at.left,
        rule_t,
        offset=at.row_bias,
        base=problem.base(engine, at.left),
        start=at.right if warm else None,
        **more,
    )
    trace.add(columns.value + fixed)
    state.point = at._replace(right=columns.left, column_bias=columns.bias)
    state.sweeps, state.values = state.sweeps + 1, list(trace.values)
    return state


def balanced(problem: RidgeProblem, at: RidgePoint, engine: Engine) -> RidgePoint:
    """U T, V T^-T with the T that makes U^T L U and V^T M V equal and diagonal: the same U V^T at
    the least penalty.

    R^T R = U^T L U, and Q S^2 Q^T = R (V^T M V) R^T give T = R^-1 Q S^1/2. Without it the two sides
    creep towards balance over many sweeps.
    """
    if problem.rule.nonnegative or problem.rule.l2 <= 0:
        return at
    u, v = (
        engine.inner(at.left, at.left, problem.ridge),
        engine.inner(at.right, at.right, problem.ridge_t),
    )
    turns = balance((u + u.T) / 2, (v + v.T) / 2)
    if turns is None:
        return at
    return at._replace(left=engine.outer(at.left, turns[0]), right=engine.outer(at.right, turns[1]))


def balance(u: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """T and T^-T with T^T u T = T^-1 v T^-T diagonal; None where a direction carries nothing."""
    try:
        root = np.linalg.cholesky(u).T
    except np.linalg.LinAlgError:
        return None
    square, turn = eigh(root @ v @ root.T)
    # a direction that carries nothing: its balance would divide by rounding
    if not square[0] > 1e-10 * square[-1]:
        return None
    size = square**0.25
    return np.linalg.solve(root, turn * size), (root.T @ turn) / size


def start(
    problem: RidgeProblem,
    k: int,
    mean: float,
    engine: Engine,
    rng: np.random.Generator,
    unit: float = 1.0,
) -> tuple[RidgePoint, np.ndarray]:
    """The point with U = 0 and V spanning a randomized range of D^-1/2 R D^-1/2, R the entries less
    mean and plain biases (for implicit feedback: the weights); V is on the host, and of the size of
    the root of ``unit``, that of the data."""
    x, rule, rule_t = problem.x, problem.rule, problem.rule_t
    n, m, dtype = len(x.counts), x.shape[1], x.dtype
    row_bias = column_bias = None
    if rule.bias:
        column_bias = engine.bias_rows(x.T, rule_t, None, mean=mean)
        row_bias = engine.bias_rows(x, rule, column_bias, mean=mean)
    shade = (np.maximum(side.counts, 1.0) ** (-0.5 * rule.power) for side in (x, x.T))
    rows, columns = (a.astype(dtype) for a in shade)
    scales = engine.take(rows), engine.take(columns)
    block = engine.normal(int(rng.integers(2**62)), (m, min(k, n, m)), dtype)
    found = engine.orth(engine.offset_times(x, block, mean, row_bias, column_bias, *scales))
    block = engine.orth(engine.offset_times(x.T, found, mean, column_bias, row_bias, *scales[::-1]))
    got = block.shape[1]
    square = engine.inner(block, block, engine.take(np.square(columns, dtype=np.float64)))
    size = float(np.sqrt(np.trace(square) / (m * got))) if got else 1.0
    right = engine.get(block) * (columns * dtype.type(0.3 * np.sqrt(unit) / (size or 1.0)))[:, None]
    if got < k:
        more = engine.get(engine.normal(int(rng.integers(2**62)), (m, k - got), dtype))
        right = np.hstack([right, more * dtype.type(0.1 * np.sqrt(unit / k))])
    if rule.nonnegative:
        right = np.abs(right)
    # zeros where the engine's arrays are
    nothing = engine.outer(found, np.zeros((found.shape[1], k)))
    return RidgePoint(nothing, None, row_bias, column_bias, mean), right


SKEWED = 20.0
"""Largest strength, in medians, from which a few entries outweigh all others: weights of ratings or
of clicks stay below it, those of plays are far above."""
REPEATED = 3.0
"""Mean weight of strengths brought together: what was repeated often says more than one click of
weight 1. Measured on log-normal plays of Gowalla's pairs."""
BITS = 16
"""Leading bits of a number (its exponent and four more) by which values are counted first."""


@dataclass(frozen=True)
class LogScaling:
    """Strengths on a scale on which none outweighs all others, of mean 3."""

    median: float
    mean: float

    def of(self, x: Observed) -> Observed:
        return with_values(x, partial(_scale_logs, self))


def _scale_logs(by: LogScaling, x: Observed) -> Observed:
    values = REPEATED * np.log1p(x.data.astype(np.float64) / by.median) / by.mean
    return replace(x, data=values.astype(x.dtype))


def log_scaling(x: Observed, asked: bool, usual: bool) -> LogScaling | None:
    """How the strengths of x are brought together; None where they stay as they are. ``asked``: in
    any case; ``usual``: where a few outweigh all others."""
    most = facts_of(x).most
    if most <= 0:
        return None
    low = sum(
        of_each_part(x, partial(_below, most / SKEWED))
    )  # zeros among them: the median is sought only where it may be that low
    if not asked and (not usual or 2 * low < x.nnz):
        return None
    median = _median(x)
    if not asked and not most > SKEWED * median:
        return None
    logs, count = np.sum(of_each_part(x, partial(_logs, median)), axis=0)
    return LogScaling(median, float(logs / count))


def _below(limit: float, x: Observed) -> int:
    return int(np.count_nonzero(x.data <= limit))


def _logs(median: float, x: Observed) -> np.ndarray:
    """Sum of log(1 + r / median) over r > 0, and how many these are."""
    some = x.data[x.data > 0].astype(np.float64)
    return np.array([np.log1p(some / median).sum(), len(some)])


def _heads(x: Observed) -> np.ndarray:
    """How many values above 0 share their leading bits; numbers above 0 are in the order of their
    bits."""
    some = x.data[x.data > 0].astype(np.float64).view(np.uint64) >> np.uint64(64 - BITS)
    return np.bincount(some.astype(np.int64), minlength=2**BITS)


def _inside(low: int, high: int, x: Observed) -> tuple[np.ndarray, np.ndarray]:
    """The different values whose leading bits are low to high, and how often each stands there."""
    some = x.data[x.data > 0].astype(np.float64)
    head = some.view(np.uint64) >> np.uint64(64 - BITS)
    some = np.sort(some[(head >= low) & (head <= high)])
    starts = np.flatnonzero(np.diff(some, prepend=-1.0))
    return some[starts], np.diff(np.append(starts, len(some)))


def _median(x: Any) -> float:
    """Of the values above 0: the middle one, or the mean of the two in the middle."""
    ends = np.cumsum(np.sum(of_each_part(x, _heads), axis=0))
    middle = np.array([(ends[-1] - 1) // 2, ends[-1] // 2])
    low, high = np.searchsorted(ends, middle, side="right")
    found = of_each_part(x, partial(_inside, int(low), int(high)))
    values, counts = (np.concatenate(each) for each in zip(*found))
    order = np.argsort(values, kind="stable")
    before = ends[low - 1] if low else 0
    at = np.searchsorted(np.cumsum(counts[order]), middle - before, side="right")
    return float(values[order][at].mean())
