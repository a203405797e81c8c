"""Alternating least squares: the loop (2.5).

Explicit feedback minimises, over the observed entries with weights w,

    F = 1/2 sum w_ij (a_ij - mean - b_i - c_j - u_i.v_j)^2 + 1/2 sum_i l_i ||u_i||^2 + 1/2 sum_j m_j ||v_j||^2 + bias penalties,

l_i = l2 n_i^power with n_i the observations of row i (power 0: one ridge for all; power 1: weighted by count). Implicit feedback, over all cells,

    F = 1/2 sum_observed alpha r_ij (1 - s_ij)^2 + 1/2 a0 sum_all s_ij^2 + penalties,     s_ij = u_i.v_j,   n_i counted as n_i + a0 m,

and with ``zeros="unobserved"`` the second sum leaves the observed cells out, whose weight becomes a0 + alpha r_ij. With one side fixed every row of the
other is a small ridge problem (``engine.ridge_rows``), so F falls at each half sweep. The start is a randomized range of the normalised residual matrix
D^-1/2 R D^-1/2 (D the counts to the power of the ridge), which lies near the signal and far from the saddle at 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from eckart.certify.stationary import GRADIENT_LIMIT, penalty
from eckart.engines.protocol import Engine, RidgeRule
from eckart.matrix import Observed
from eckart.rng import normal
from eckart.trace import StopReason, Trace, Watcher, silent

POWER_ITERATIONS = 1


class Sides(NamedTuple):
    """The entries by rows and by columns, each with its weights (or None), and the penalties of rows and of columns."""

    x: Observed
    xt: Observed
    weights: np.ndarray | None
    weights_t: np.ndarray | None
    rule: RidgeRule
    rule_t: RidgeRule
    unobserved: float = 0.0
    cg_steps: int = 0


@dataclass
class State:
    """Factors and biases between sweeps."""

    left: np.ndarray
    right: np.ndarray
    row_bias: np.ndarray | None
    column_bias: np.ndarray | None
    mean: float
    sweeps: int = 0
    values: list[float] = field(default_factory=list)

    def arrays(self) -> dict[str, np.ndarray]:
        """For a checkpoint: contiguous, as safetensors writes the memory behind a view."""
        named = {"left": self.left, "right": self.right, "row_bias": self.row_bias, "column_bias": self.column_bias}
        return {n: np.ascontiguousarray(a) for n, a in named.items() if a is not None} | {
            "mean": np.array([self.mean]),
            "values": np.array(self.values),
        }

    @classmethod
    def of(cls, sweeps: int, arrays: dict[str, np.ndarray]) -> State:
        return cls(
            arrays["left"], arrays["right"], arrays.get("row_bias"), arrays.get("column_bias"),
            float(arrays["mean"][0]), sweeps, arrays["values"].tolist(),
        )  # fmt: skip

    def copy(self) -> State:
        def kept(a: np.ndarray | None) -> np.ndarray | None:
            return None if a is None else a.copy()

        return State(
            self.left.copy(),
            self.right.copy(),
            kept(self.row_bias),
            kept(self.column_bias),
            self.mean,
            self.sweeps,
            list(self.values),
        )


class Progress(NamedTuple):
    """The best state so far and the held-out error after each sweep."""

    best: State
    errors: list[float]


def snapshot(state: State, judged: Progress) -> dict[str, np.ndarray]:
    """Everything that a resumed run needs, as arrays."""
    if not judged.errors:
        return state.arrays()
    best = {f"best.{name}": a for name, a in judged.best.arrays().items()}
    return state.arrays() | best | {"errors": np.array(judged.errors), "best.sweeps": np.array([judged.best.sweeps])}


def resumed(sweeps: int, arrays: dict[str, np.ndarray]) -> tuple[State, Progress | None]:
    """The inverse of ``snapshot``."""
    state = State.of(sweeps, arrays)
    if "errors" not in arrays:
        return state, None
    best = {name[5:]: a for name, a in arrays.items() if name.startswith("best.")}
    return state, Progress(State.of(int(best["sweeps"][0]), best), arrays["errors"].tolist())


class Stop(NamedTuple):
    """When to end: at a relative decrease of F a sweep below ``tol`` and a gradient that the certificate accepts, at a relative gradient below ``tol``,
    or when ``error(state)`` has not improved for ``patience`` sweeps; after ``max_iter`` sweeps at the latest."""

    rule: str
    tol: float
    max_iter: int
    patience: int = 3
    error: Callable[[State], float] | None = None
    gradient: Callable[[State], float] | None = None


def alternate(
    sides: Sides,
    state: State,
    stop: Stop,
    engine: Engine,
    watch: Watcher = silent,
    keep: Callable[[State, Progress], None] | None = None,
    judged: Progress | None = None,
) -> tuple[State, Trace, list[float]]:
    """Sweep until the stopping rule is met; an interrupt keeps the last whole sweep. Returns the best state, F after every half sweep, held-out errors.

    ``keep`` is called between sweeps, never after the last: a run resumed from what it kept (``state``, ``judged``) makes the same sweeps.
    """
    trace = Trace("objective after each half sweep", reason=StopReason.MAX_ITER)
    trace.values, trace.seconds = list(state.values), [0.0] * len(state.values)
    best, errors = (state, []) if judged is None else (judged.best, list(judged.errors))
    try:
        while state.sweeps < stop.max_iter:
            state = sweep(sides, state, engine, trace)
            if stop.rule == "held_out" and stop.error:
                errors.append(stop.error(state))
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
        del trace.values[2 * state.sweeps :], trace.seconds[2 * state.sweeps :]
    return best, trace, errors


def _met(stop: Stop, state: State, trace: Trace) -> bool:
    if stop.rule == "gradient" and stop.gradient:
        return stop.gradient(state) <= stop.tol
    if len(trace) < 4 or trace.values[-3] - trace.values[-1] > stop.tol * abs(trace.values[-3]):
        return False
    return stop.gradient is None or stop.gradient(state) <= GRADIENT_LIMIT


def sweep(sides: Sides, state: State, engine: Engine, trace: Trace) -> State:
    """All rows given the (balanced) columns, then all columns given the rows."""
    state = balanced(sides, state)
    warm = sides.rule.nonnegative or sides.cg_steps > 0
    columns = penalty(sides.xt, sides.rule_t, state.right, state.column_bias)
    rows = engine.ridge_rows(
        sides.x, state.right, sides.rule, offset=_offset(state.mean, state.column_bias, state.right),
        weights=sides.weights, base=_base(sides, state.right), start=state.left if warm else None, cg_steps=sides.cg_steps,
    )  # fmt: skip
    trace.add(rows.value + columns)
    own = penalty(sides.x, sides.rule, rows.left, rows.bias)
    other = engine.ridge_rows(
        sides.xt, rows.left, sides.rule_t, offset=_offset(state.mean, rows.bias, rows.left),
        weights=sides.weights_t, base=_base(sides, rows.left), start=state.right if warm else None, cg_steps=sides.cg_steps,
    )  # fmt: skip
    trace.add(other.value + own)
    return State(rows.left, other.left, rows.bias, other.bias, state.mean, state.sweeps + 1, list(trace.values))


def balanced(sides: Sides, state: State) -> State:
    """U T, V T^-T with the T that makes U^T L U and V^T M V equal and diagonal: the same U V^T at the least penalty.

    R^T R = U^T L U, and Q S^2 Q^T = R (V^T M V) R^T give T = R^-1 Q S^1/2. Without it the two sides creep towards balance over many sweeps.
    """
    if sides.rule.nonnegative or sides.rule.l2 <= 0 or not state.sweeps:
        return state
    ridge, ridge_t = sides.rule.ridges(sides.x.row_counts())[0], sides.rule_t.ridges(sides.xt.row_counts())[0]
    u, v = (_weighted_gram(f, r) for f, r in ((state.left, ridge), (state.right, ridge_t)))
    try:
        root = np.linalg.cholesky(u).T
    except np.linalg.LinAlgError:
        return state
    square, turn = np.linalg.eigh(root @ v @ root.T)
    if not square[0] > 1e-10 * square[-1]:
        return state
    size = square**0.25
    t, inverse = np.linalg.solve(root, turn * size), (root.T @ turn) / size
    dtype = state.left.dtype
    return replace(state, left=state.left @ t.astype(dtype), right=state.right @ inverse.astype(dtype))


def _weighted_gram(factor: np.ndarray, ridge: np.ndarray) -> np.ndarray:
    """sum_i l_i u_i u_i^T, added up in double precision over blocks of rows."""
    total = np.zeros((factor.shape[1], factor.shape[1]))
    for a in range(0, len(factor), 2**14):
        part = factor[a : a + 2**14]
        total += part.T @ (part * ridge[a : a + 2**14, None].astype(part.dtype))
    return (total + total.T) / 2


def start(sides: Sides, k: int, mean: float, engine: Engine, rng: np.random.Generator) -> State:
    """V spans a randomized range of D^-1/2 R D^-1/2, R the entries less mean and plain biases (for implicit feedback: the weights)."""
    n, m = sides.x.shape
    dtype = sides.x.dtype
    row_bias = column_bias = None
    if sides.rule.bias:
        column_bias = engine.bias_rows(sides.xt, sides.rule_t, np.full(n, mean, dtype), sides.weights_t)
        row_bias = engine.bias_rows(sides.x, sides.rule, column_bias + dtype.type(mean), sides.weights)
    shade = -0.5 * sides.rule.power
    rows, columns = (
        (np.maximum(side.row_counts(), 1.0) ** shade).astype(dtype)[:, None] for side in (sides.x, sides.xt)
    )
    block = normal(rng, (m, min(k, n, m)), dtype)
    for _ in range(POWER_ITERATIONS):
        found = engine.orth(
            rows * _narrow(engine.offset_times(sides.x, columns * block, mean, row_bias, column_bias), block)
        )
        block = engine.orth(
            columns * _narrow(engine.offset_times(sides.xt, rows * found, mean, column_bias, row_bias), found)
        )
        if block.shape[1] == 0:
            break
    right = normal(rng, (m, k), dtype) * dtype.type(0.1 / np.sqrt(k))
    got = block.shape[1]
    found = block * columns
    size = float(np.sqrt(np.mean(np.square(found, dtype=np.float64)))) if got else 1.0
    right[:, :got] = found * dtype.type(0.3 / (size or 1.0))
    if sides.rule.nonnegative:
        right = np.abs(right)
    return State(np.zeros((n, k), dtype), right, row_bias, column_bias, mean)


def _narrow(padded: np.ndarray, like: np.ndarray) -> np.ndarray:
    return padded[:, : like.shape[1]]


def _offset(mean: float, bias: np.ndarray | None, factor: np.ndarray) -> np.ndarray | None:
    if bias is None:
        return np.full(len(factor), mean, factor.dtype) if mean else None
    return bias + bias.dtype.type(mean)


def _base(sides: Sides, factor: np.ndarray) -> np.ndarray | None:
    """a0 V^T V for implicit feedback."""
    return None if not sides.unobserved else sides.unobserved * (factor.T @ factor).astype(np.float64)
