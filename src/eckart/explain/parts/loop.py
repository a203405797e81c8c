"""Non-negative factorization: the loop.

A sweep improves all rows of W given H, then all columns of H given W (``nmf_sides``). Coordinate descent (HALS; Cichocki and Phan 2009, repeated inside a
half sweep as in Gillis and Glineur 2012) and multiplicative steps (Lee and Seung 2001) never raise F. Multiplicative steps are over-relaxed, factors to the
power 1.75: twice as fast near an optimum, and not sure to descend (Salakhutdinov and Roweis 2003); a sweep that rose is taken back and repeated without.
Sweeps of coordinate descent, and later ones of multiplicative steps, are followed by a leap along their change (Ang and Gillis 2019), undone in the same way.
``projected`` is the plain method: least squares without the sign, then negative entries set to zero; it may rise, and the best point is kept.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from eckart.explain.parts.sides import SquareSides, _gram
from eckart.matrix import Counts, Dense
from eckart.trace import StopReason, Trace, Watcher, silent

CAUTIOUS = 3
"""Sweeps before the first over-relaxed one, and after one that rose."""
LEAPS, FIRST_LEAP, GROWTH = 10, 0.5, 1.1
"""Sweeps before the first leap (early ones lead to poorer points), its length, and how that grows while leaps succeed."""
RELAXED = 40
"""Over-relaxed sweeps at most; leaps, which are better near the end, come after them."""


class State(NamedTuple):
    """W, H^T, F there (NaN while unknown) and the sweeps done."""

    left: np.ndarray
    right: np.ndarray
    value: float
    sweeps: int


def alternate(
    sides: Any,
    left: np.ndarray,
    right: np.ndarray,
    *,
    tol: float = 1e-4,
    max_iter: int = 200,
    fast: bool = False,
    leap: bool = False,
    watch: Watcher = silent,
) -> tuple[State, Trace]:
    """Sweep until the residual of both factors is at most ``tol``; the trace holds F at every point kept. An interrupt keeps the last one.

    ``fast`` over-relaxes the first sweeps, ``leap`` goes on beyond a sweep along its change; a point where F is higher than before is not kept.
    """
    trace = Trace("objective", reason=StopReason.MAX_ITER)
    kept, swept = State(left, right, float("nan"), 0), (left, right)
    slack = 4 * float(np.finfo(left.dtype).eps) * sides.scale
    careful, stride, hurried, leapt = CAUTIOUS, FIRST_LEAP, False, False
    try:
        for sweep in range(max_iter):
            hurry = fast and careful <= 0 and sweep < RELAXED
            rows = sides.rows(left, right, hurry)
            if len(trace) and rows.value > trace.values[-1] + slack:
                if leapt:
                    (left, right), stride, leapt = swept, stride / 2, False
                elif hurried:
                    left, right, careful, hurried = kept.left, kept.right, CAUTIOUS, False
                else:  # neither leap nor over-relaxation: no further progress at this precision
                    swept, trace.reason = (kept.left, kept.right), StopReason.STALLED
                    break
                continue
            trace.add(rows.value)
            kept = State(left, right, rows.value, sweep)
            columns = sides.columns(rows.factor, right, hurry)
            before, swept = swept, (rows.factor, columns.factor)
            (left, right), careful, hurried = swept, careful - 1, hurry
            watch("NMF sweeps", sweep + 1, max_iter)
            if np.hypot(rows.residual, columns.residual) <= tol:
                trace.reason = StopReason.CONVERGED
                break
            leapt = leap and sweep >= (RELAXED if fast else LEAPS)
            if leapt:
                left, right = (beyond(new, old, stride) for new, old in zip(swept, before))
                stride = min(1.0, stride * GROWTH)
        left, right = swept
    except KeyboardInterrupt:
        trace.reason = StopReason.INTERRUPTED
        left, right = kept.left, kept.right
    return State(left, right, float("nan"), len(trace)), trace


def beyond(new: np.ndarray, old: np.ndarray, stride: float) -> np.ndarray:
    """max(0, new + stride (new - old))."""
    out = new - old
    out *= out.dtype.type(stride)
    out += new
    return np.maximum(out, 0, out=out)


def projected(
    sides: SquareSides,
    left: np.ndarray,
    right: np.ndarray,
    *,
    tol: float = 1e-4,
    max_iter: int = 200,
    watch: Watcher = silent,
) -> tuple[State, Trace]:
    """W = max(0, A H^T (H H^T + l2)^-1), then the same for H; ends when F has not fallen by a share of ``tol`` for five sweeps."""
    trace = Trace("best objective so far", reason=StopReason.MAX_ITER)
    best, last = State(left, right, float("inf"), 0), 0
    p, x = sides.penalties, sides.x
    assert isinstance(x, (Dense, Counts))
    try:
        for sweep in range(1, max_iter + 1):
            pull = sides.engine.times(x, right, None)
            left = _clipped(_gram(right, None, p.l2), pull - pull.dtype.type(p.l1))
            cross, gram = sides._products(left)
            right = _clipped(gram + p.m2 * np.eye(len(gram)), cross - cross.dtype.type(p.m1))
            value = sides.loss(left, right) + sides.cost_left(left) + sides.cost_right(right)
            if value < best.value * (1 - tol) or not np.isfinite(best.value):
                last = sweep
            if value < best.value:
                best = State(left, right, value, sweep)
            trace.add(best.value)
            watch("NMF sweeps", sweep, max_iter)
            if sweep - last >= 5:
                trace.reason = StopReason.STALLED
                break
    except KeyboardInterrupt:
        trace.reason = StopReason.INTERRUPTED
    return best._replace(sweeps=len(trace)), trace


def solve_rows(sides: Any, start: np.ndarray, right: np.ndarray, *, tol: float, max_iter: int) -> np.ndarray:
    """W alone, H fixed: sweeps of the rows until their residual is at most ``tol``; a convex problem."""
    left = start
    for _ in range(max_iter):
        found = sides.rows(left, right)
        left = found.factor
        if found.residual <= tol:
            break
    return left


def balanced(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same product with columns of W and H^T of equal length; a component that is zero on one side is zero on both."""
    a, b = (np.sqrt(np.einsum("ij,ij->j", f, f, dtype=np.float64)) for f in (left, right))
    alive = (a > 0) & (b > 0)
    turn = np.where(alive, np.sqrt(np.where(alive, b, 1.0) / np.where(alive, a, 1.0)), 0.0)
    back = np.where(alive, 1 / np.where(alive, turn, 1.0), 0.0)
    return left * turn.astype(left.dtype), right * back.astype(right.dtype)


def _clipped(gram: np.ndarray, pull: np.ndarray) -> np.ndarray:
    """max(0, pull gram^-1), of least norm where gram is singular."""
    return np.maximum(np.linalg.lstsq(gram, pull.T.astype(np.float64), rcond=None)[0].T, 0.0).astype(pull.dtype)
