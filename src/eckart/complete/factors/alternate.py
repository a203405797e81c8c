"""Alternating least squares: the loop (2.5).

Explicit feedback minimises, over the observed entries with weights w,

    F = 1/2 sum w_ij (a_ij - mean - b_i - c_j - u_i.v_j)^2 + 1/2 sum_i l_i ||u_i||^2 + 1/2 sum_j m_j ||v_j||^2 + bias penalties,

l_i = l2 n_i^power with n_i the observations of row i (power 0: one ridge for all; power 1: weighted by count). Implicit feedback, over all cells,

    F = 1/2 sum_observed alpha r_ij (1 - s_ij)^2 + 1/2 a0 sum_all s_ij^2 + penalties,     s_ij = u_i.v_j,   n_i counted as n_i + a0 m,

and with ``zeros="unobserved"`` the second sum leaves the observed cells out, whose weight becomes a0 + alpha r_ij. With one side fixed every row of the
other is a small ridge problem (``engine.ridge_rows``), so F falls at each half sweep. The start is a randomized range of the normalised residual matrix
D^-1/2 R D^-1/2 (D the counts to the power of the ridge), which lies near the signal and far from the saddle at 0.

Factors and biases stay inside the engine from the start to the end; between sweeps only k x k matrices and numbers cross.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from eckart.certify.stationary import GRADIENT_LIMIT, RidgePoint, RidgeProblem
from eckart.complete.factors.majorise import loss_sweep
from eckart.decompositions import eigh
from eckart.engines.protocol import Engine
from eckart.terms import Loss, Ordered
from eckart.trace import StopReason, Trace, Watcher, silent

MAPS = RidgePoint._fields[5:7]


@dataclass
class State:
    """Where the factors are, sweeps done, and F after each half sweep."""

    point: RidgePoint
    sweeps: int = 0
    values: list[float] = field(default_factory=list)

    def arrays(self, engine: Engine) -> dict[str, np.ndarray]:
        """For a checkpoint."""
        named = {name: engine.get(a) for name, a in self.point.tall().items()}
        if isinstance(self.point.loss, Ordered):
            named["thresholds"] = np.array(self.point.loss.thresholds)
        named |= {name: a for name, a in zip(MAPS, self.point[5:7]) if a is not None}
        return named | {"mean": np.array([self.point.mean]), "values": np.array(self.values)}

    @classmethod
    def of(cls, sweeps: int, arrays: dict[str, np.ndarray], engine: Engine, loss: Loss | None = None) -> State:
        left, right, b, c = (engine.take(arrays[name]) if name in arrays else None for name in RidgePoint._fields[:4])
        if isinstance(loss, Ordered):
            loss = replace(loss, thresholds=tuple(arrays["thresholds"].tolist()))
        maps = (arrays.get("row_map"), arrays.get("column_map"))
        point = RidgePoint(left, right, b, c, float(arrays["mean"][0]), maps[0], maps[1], loss)
        return cls(point, sweeps, arrays["values"].tolist())


class Progress(NamedTuple):
    """The best state so far and the held-out error after each sweep."""

    best: State
    errors: list[float]


def snapshot(state: State, judged: Progress, engine: Engine) -> dict[str, np.ndarray]:
    """Everything that a resumed run needs, as arrays."""
    if not judged.errors:
        return state.arrays(engine)
    best = {f"best.{name}": a for name, a in judged.best.arrays(engine).items()}
    return state.arrays(engine) | best | {"errors": np.array(judged.errors), "best.sweeps": np.array([judged.best.sweeps])}


def resumed(
    sweeps: int, arrays: dict[str, np.ndarray], engine: Engine, loss: Loss | None = None
) -> tuple[State, Progress | None]:
    """The inverse of ``snapshot``."""
    state = State.of(sweeps, arrays, engine, loss)
    if "errors" not in arrays:
        return state, None
    best = {name[5:]: a for name, a in arrays.items() if name.startswith("best.")}
    return state, Progress(State.of(int(best["sweeps"][0]), best, engine, loss), arrays["errors"].tolist())


class Stop(NamedTuple):
    """When to end: at a relative decrease of F a sweep below ``tol`` and a gradient that the certificate accepts, at a relative gradient below ``tol``,
    or when ``error(point)`` has not improved for ``patience`` sweeps; after ``max_iter`` sweeps at the latest."""

    rule: str
    tol: float
    max_iter: int
    patience: int = 3
    error: Callable[[RidgePoint], float] | None = None
    gradient: Callable[[RidgePoint], float] | None = None


def alternate(
    problem: Any,
    state: State,
    stop: Stop,
    engine: Engine,
    watch: Watcher = silent,
    keep: Callable[[State, Progress], None] | None = None,
    judged: Progress | None = None,
    step: Callable[[Any, State, Engine, Trace], State] | None = None,
) -> tuple[State, Trace, list[float]]:
    """Sweep until the stopping rule is met; an interrupt keeps the last half sweep that was whole (of a loss, of maps and of held-out errors the last whole
    sweep). Returns the best state, F after every half sweep, held-out errors.

    ``keep`` is called between sweeps, never after the last: a run resumed from what it kept (``state``, ``judged``) makes the same sweeps. ``step`` is the
    sweep that belongs to the problem (None: that of a ``RidgeProblem``).
    """
    step = step or sweep
    when = "after" if state.point.loss is None else "before"  # the value of a loss is known when it is bounded again
    trace = Trace(f"objective {when} each half sweep", reason=StopReason.MAX_ITER)
    trace.values, trace.seconds = list(state.values), [0.0] * len(state.values)
    best, errors = (state, []) if judged is None else (judged.best, list(judged.errors))
    try:
        while state.sweeps < stop.max_iter:
            # a sweep may put balanced factors into the state it starts from; the best of held-out errors stays as it was judged and kept
            state = step(problem, replace(state) if stop.rule == "held_out" else state, engine, trace)
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
            if keep:
                keep(state, Progress(best, errors))
    except KeyboardInterrupt:
        trace.reason = StopReason.INTERRUPTED
        if best.sweeps == 0:
            raise
        del trace.values[len(state.values) :], trace.seconds[len(state.values) :]
    return best, trace, errors


def _met(stop: Stop, state: State, trace: Trace) -> bool:
    if stop.rule == "gradient" and stop.gradient:
        return stop.gradient(state.point) <= stop.tol
    if len(trace) < 4 or trace.values[-3] - trace.values[-1] > stop.tol * abs(trace.values[-3]):
        return False
    return stop.gradient is None or stop.gradient(state.point) <= GRADIENT_LIMIT


def sweep(problem: RidgeProblem, state: State, engine: Engine, trace: Trace) -> State:
    """All rows given the (balanced) columns, then all columns given the rows. The state moves along with each half, so that no factor is held that is no
    longer needed: there may be millions of rows."""
    at = balanced(problem, state.point, engine) if state.sweeps else state.point
    state.point = at  # the same U V^T at a lower penalty
    if at.loss is not None:
        return State(loss_sweep(problem, at, engine, trace), state.sweeps + 1, list(trace.values))
    x, rule, rule_t = problem.x, problem.rule, problem.rule_t
    warm = rule.nonnegative or problem.cg_steps > 0
    more: dict[str, Any] = {"mean": at.mean, "cg_steps": problem.cg_steps}
    fixed = engine.ridge_penalty(x.T, rule_t, at.right, at.column_bias)
    rows = engine.ridge_rows(
        x, at.right, rule, offset=at.column_bias, base=problem.base(engine, at.right), start=at.left if warm else None, **more
    )  # fmt: skip
    trace.add(rows.value + fixed)
    at = at._replace(left=rows.left, row_bias=rows.bias)
    state.point, state.values = at, list(trace.values)
    fixed = engine.ridge_penalty(x, rule, at.left, at.row_bias)
    columns = engine.ridge_rows(
        x.T, at.left, rule_t, offset=at.row_bias, base=problem.base(engine, at.left), start=at.right if warm else None, **more
    )  # fmt: skip
    trace.add(columns.value + fixed)
    state.point = at._replace(right=columns.left, column_bias=columns.bias)
    state.sweeps, state.values = state.sweeps + 1, list(trace.values)
    return state


def balanced(problem: RidgeProblem, at: RidgePoint, engine: Engine) -> RidgePoint:
    """U T, V T^-T with the T that makes U^T L U and V^T M V equal and diagonal: the same U V^T at the least penalty.

    R^T R = U^T L U, and Q S^2 Q^T = R (V^T M V) R^T give T = R^-1 Q S^1/2. Without it the two sides creep towards balance over many sweeps.
    """
    if problem.rule.nonnegative or problem.rule.l2 <= 0:
        return at
    u, v = engine.inner(at.left, at.left, problem.ridge), engine.inner(at.right, at.right, problem.ridge_t)
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
    if not square[0] > 1e-10 * square[-1]:  # a direction that carries nothing: its balance would divide by rounding
        return None
    size = square**0.25
    return np.linalg.solve(root, turn * size), (root.T @ turn) / size


def start(problem: RidgeProblem, k: int, mean: float, engine: Engine, rng: np.random.Generator) -> tuple[RidgePoint, np.ndarray]:
    """The point with U = 0 and V spanning a randomized range of D^-1/2 R D^-1/2, R the entries less mean and plain biases (for implicit feedback: the
    weights); V is on the host."""
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
    right = engine.get(block) * (columns * dtype.type(0.3 / (size or 1.0)))[:, None]
    if got < k:
        more = engine.get(engine.normal(int(rng.integers(2**62)), (m, k - got), dtype))
        right = np.hstack([right, more * dtype.type(0.1 / np.sqrt(k))])
    if rule.nonnegative:
        right = np.abs(right)
    nothing = engine.outer(found, np.zeros((found.shape[1], k)))  # zeros where the engine's arrays are
    return RidgePoint(nothing, None, row_bias, column_bias, mean), right
