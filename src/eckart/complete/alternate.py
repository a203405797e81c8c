"""Alternating least squares: the loop (2.5).

Explicit feedback minimises, over the observed entries with weights w,

    F = 1/2 sum w_ij (a_ij - mean - b_i - c_j - u_i.v_j)^2 + 1/2 sum_i l_i ||u_i||^2 + 1/2 sum_j m_j ||v_j||^2 + bias penalties,

l_i = l2 n_i^power with n_i the observations of row i (power 0: one ridge for all; power 1: weighted by count). Implicit feedback, over all cells,

    F = 1/2 sum_observed alpha r_ij (1 - s_ij)^2 + 1/2 a0 sum_all s_ij^2 + penalties,     s_ij = u_i.v_j,   n_i counted as n_i + a0 m,

and with ``zeros="unobserved"`` the second sum leaves the observed cells out, whose weight becomes a0 + alpha r_ij. With one side fixed every row of the
other is a small ridge problem (``engine.ridge_rows``), so F falls at each half sweep. The start is a randomized range of the normalised residual matrix
D^-1/2 R D^-1/2, which lies near the signal and far from the saddle at 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from eckart.certify.stationary import penalty
from eckart.engines.protocol import Engine, RidgeRule
from eckart.matrix import Counts, Observed
from eckart.rng import normal
from eckart.trace import StopReason, Trace, Watcher, silent

POWER_ITERATIONS = 2


class Sides(NamedTuple):
    """The entries by rows and by columns, each with its weights (or None), and the penalties of rows and of columns."""

    x: Observed
    xt: Observed
    weights: np.ndarray | None
    weights_t: np.ndarray | None
    rule: RidgeRule
    rule_t: RidgeRule
    unobserved: float = 0.0


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
        """For a checkpoint."""
        named = {"left": self.left, "right": self.right, "row_bias": self.row_bias, "column_bias": self.column_bias}
        return {n: a for n, a in named.items() if a is not None} | {
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


class Stop(NamedTuple):
    """When to end: at a relative decrease of F a sweep below ``tol``, at a relative gradient below ``tol``, or when ``error(state)`` has not improved for
    ``patience`` sweeps; after ``max_iter`` sweeps at the latest."""

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
    keep: Callable[[State], None] | None = None,
) -> tuple[State, Trace, list[float]]:
    """Sweep until the stopping rule is met; an interrupt keeps the last whole sweep. Returns the best state, F after every half sweep, held-out errors."""
    trace = Trace("objective after each half sweep", reason=StopReason.MAX_ITER)
    trace.values, trace.seconds = list(state.values), [0.0] * len(state.values)
    errors: list[float] = []
    best = state
    try:
        while state.sweeps < stop.max_iter:
            state = sweep(sides, state, engine, trace)
            watch("ALS sweeps", state.sweeps, stop.max_iter)
            if keep:
                keep(state)
            if stop.rule == "held_out" and stop.error:
                errors.append(stop.error(state))
                if errors[-1] <= min(errors):
                    best = state
                elif len(errors) - 1 - int(np.argmin(errors)) >= stop.patience:
                    trace.reason = StopReason.CONVERGED
                    return best, trace, errors
                continue
            best = state
            if stop.rule == "gradient" and stop.gradient:
                if stop.gradient(state) <= stop.tol:
                    trace.reason = StopReason.CONVERGED
                    break
            elif len(trace) >= 4 and trace.values[-3] - trace.values[-1] <= stop.tol * abs(trace.values[-3]):
                trace.reason = StopReason.CONVERGED
                break
    except KeyboardInterrupt:
        trace.reason = StopReason.INTERRUPTED
        if best.sweeps == 0:
            raise
    return best, trace, errors


def sweep(sides: Sides, state: State, engine: Engine, trace: Trace) -> State:
    """All rows given the columns, then all columns given the rows."""
    columns = penalty(sides.xt, sides.rule_t, state.right, state.column_bias)
    rows = engine.ridge_rows(
        sides.x, state.right, sides.rule, offset=_offset(state.mean, state.column_bias, state.right),
        weights=sides.weights, base=_base(sides, state.right), start=state.left if sides.rule.nonnegative else None,
    )  # fmt: skip
    trace.add(rows.value + columns)
    own = penalty(sides.x, sides.rule, rows.left, rows.bias)
    other = engine.ridge_rows(
        sides.xt, rows.left, sides.rule_t, offset=_offset(state.mean, rows.bias, rows.left),
        weights=sides.weights_t, base=_base(sides, rows.left), start=state.right if sides.rule.nonnegative else None,
    )  # fmt: skip
    trace.add(other.value + own)
    return State(rows.left, other.left, rows.bias, other.bias, state.mean, state.sweeps + 1, list(trace.values))


def start(sides: Sides, k: int, mean: float, engine: Engine, rng: np.random.Generator) -> State:
    """V spans a randomized range of D^-1/2 R D^-1/2, R the entries less mean and plain biases (for implicit feedback: the weights)."""
    n, m = sides.x.shape
    dtype = sides.x.dtype
    row_bias = column_bias = None
    if sides.rule.bias:
        column_bias = engine.bias_rows(sides.xt, sides.rule_t, np.full(n, mean, dtype), sides.weights_t)
        row_bias = engine.bias_rows(sides.x, sides.rule, column_bias + dtype.type(mean), sides.weights)
    r, rt = (_scaled(a, b, mean, own, other) for a, b, own, other in
             ((sides.x, sides.xt, row_bias, column_bias), (sides.xt, sides.x, column_bias, row_bias)))  # fmt: skip
    block = normal(rng, (m, min(k, n, m)), dtype)
    for _ in range(POWER_ITERATIONS):
        block = engine.orth(engine.times(rt, engine.orth(engine.times(r, block, None)), None))
        if block.shape[1] == 0:
            break
    right = normal(rng, (m, k), dtype) * dtype.type(0.1 / np.sqrt(k))
    scale = 1.0 / np.sqrt(np.maximum(sides.xt.row_counts(), 1))
    found = block.shape[1]
    size = np.sqrt(m / max(1, found)) * float(np.sqrt(np.mean(sides.xt.row_counts())))
    right[:, :found] = block * (scale * size * 0.3)[:, None].astype(dtype)
    if sides.rule.nonnegative:
        right = np.abs(right)
    return State(np.zeros((n, k), dtype), right, row_bias, column_bias, mean)


def _scaled(x: Observed, xt: Observed, mean: float, own: Any, other: Any) -> Counts:
    """(a_ij - mean - b_i - c_j) / sqrt(n_i n_j) as a sparse matrix."""
    rows = np.repeat(np.arange(x.shape[0], dtype=np.int32), x.row_counts())
    data = x.data - x.dtype.type(mean)
    if own is not None:
        data -= own[rows]
        data -= other[x.indices]
    data *= (1.0 / np.sqrt(np.maximum(x.row_counts(), 1))).astype(x.dtype)[rows]
    data *= (1.0 / np.sqrt(np.maximum(xt.row_counts(), 1))).astype(x.dtype)[x.indices]
    return Counts(x.indptr, x.indices, data, x.n_columns)


def _offset(mean: float, bias: np.ndarray | None, factor: np.ndarray) -> np.ndarray | None:
    if bias is None:
        return np.full(len(factor), mean, factor.dtype) if mean else None
    return bias + bias.dtype.type(mean)


def _base(sides: Sides, factor: np.ndarray) -> np.ndarray | None:
    """a0 V^T V for implicit feedback."""
    return None if not sides.unobserved else sides.unobserved * (factor.T @ factor).astype(np.float64)
