"""Non-negative factorization: the loop.

A sweep improves all rows of W given H, then all columns of H given W (``sides``). Coordinate
descent (HALS; Cichocki and Phan 2009, repeated inside a half sweep as in Gillis and Glineur 2012)
and multiplicative steps (Lee and Seung 2001) never raise F. Multiplicative steps are over-relaxed,
factors to the power 1.75: twice as fast near an optimum, and not sure to descend (Salakhutdinov and
Roweis 2003); a sweep that rose is taken back and repeated without. Sweeps of coordinate descent,
and later ones of multiplicative steps, are followed by a leap along their change (Ang and Gillis
2019), undone in the same way. ``projected`` is the plain method: least squares without the sign,
then negative entries set to zero; it may rise, and the best point is kept.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from eckart.engines.protocol import Engine, Tall
from eckart.explain.parts.sides import FactorSides
from eckart.io.models.checkpoint import NOTHING, Memory, kept_trace, resumed_trace
from eckart.trace import StopReason, Trace, Watcher, silent

CAUTIOUS = 3
"""Sweeps before the first over-relaxed one, and after one that rose."""
LEAPS, FIRST_LEAP, GROWTH = 10, 0.5, 1.1
"""Sweeps before the first leap (early ones lead to poorer points), its length, and how that grows
while leaps succeed."""
RELAXED = 40
"""Over-relaxed sweeps at most; leaps, which are better near the end, come after them."""
PATIENCE = 5
"""Sweeps of the plain method without a gain before it ends."""


class LoopState(NamedTuple):
    """W, H^T, F there (NaN while unknown) and the sweeps done."""

    left: Tall
    right: Tall
    value: float
    sweeps: int


def alternate(
    sides: FactorSides,
    left: Tall,
    right: Tall,
    *,
    tol: float = 1e-4,
    max_iter: int = 200,
    fast: bool = False,
    leap: bool = False,
    watch: Watcher = silent,
    memory: Memory = NOTHING,
) -> tuple[LoopState, Trace]:
    """Sweep until the residual of both factors is at most ``tol``; the trace holds F at every point
    kept. An interrupt keeps the last one.

    ``fast`` over-relaxes the first sweeps, ``leap`` goes on beyond a sweep along its change; a
    point where F is higher than before is not kept.
    """
    trace = Trace("objective", reason=StopReason.MAX_ITER)
    kept, swept = LoopState(left, right, float("nan"), 0), (left, right)
    slack = 4 * float(np.finfo(left.dtype).eps) * sides.scale
    careful, stride, hurried, leapt = CAUTIOUS, FIRST_LEAP, False, False
    first_sweep, engine = 0, sides.engine
    if (was := memory.last()) is not None:
        left, right, *points, a, b = _taken(was["factors"], engine)
        kept, swept, trace = (
            LoopState(*points, *was["kept"]),
            (a, b),
            resumed_trace(trace.quantity, was["trace"]),
        )
        first_sweep, careful, stride, hurried, leapt = was["at"]
        trace.reason = StopReason.MAX_ITER
    try:
        for sweep in range(first_sweep, max_iter):
            memory.offer(
                {
                    "factors": _given([left, right, kept.left, kept.right, *swept], engine),
                    "kept": [kept.value, kept.sweeps],
                    "trace": kept_trace(trace),
                    "at": [sweep, careful, stride, hurried, leapt],
                }
            )
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
            kept = LoopState(left, right, rows.value, sweep)
            columns = sides.columns(rows, right, hurry)
            before, swept = swept, (rows.factor, columns.factor)
            (left, right), careful, hurried = swept, careful - 1, hurry
            watch("NMF sweeps", sweep + 1, max_iter)
            if (
                rows.residual <= tol and np.hypot(rows.residual, columns.residual) <= tol
            ):  # the columns' is asked for where it can matter
                trace.reason = StopReason.CONVERGED
                break
            leapt = leap and sweep >= (RELAXED if fast else LEAPS)
            if leapt:
                left, right = (
                    sides.engine.leap(new, old, stride) for new, old in zip(swept, before)
                )
                stride = min(1.0, stride * GROWTH)
        left, right = swept
    except KeyboardInterrupt:
        if not len(trace):  # before there is an answer
            raise
        trace.reason = StopReason.INTERRUPTED
        left, right = kept.left, kept.right
    return LoopState(left, right, float("nan"), len(trace)), trace


def projected(
    sides: FactorSides,
    left: Tall,
    right: Tall,
    *,
    tol: float = 1e-4,
    max_iter: int = 200,
    watch: Watcher = silent,
    memory: Memory = NOTHING,
) -> tuple[LoopState, Trace]:
    """W = max(0, A H^T (H H^T + l2)^-1), then the same for H; ends when F has not fallen by a share
    of ``tol`` for a few sweeps."""
    trace = Trace("best objective so far", reason=StopReason.MAX_ITER)
    best, last = LoopState(left, right, float("inf"), 0), 0
    p, x, engine, first_sweep = sides.penalties, sides.x, sides.engine, 1
    if (was := memory.last()) is not None:
        left, right, *points = _taken(was["factors"], engine)
        best, trace = LoopState(*points, *was["best"]), resumed_trace(trace.quantity, was["trace"])
        first_sweep, last = was["at"]
        trace.reason = StopReason.MAX_ITER
    try:
        for sweep in range(first_sweep, max_iter + 1):
            factors = _given([left, right, best.left, best.right], engine)
            memory.offer(
                {
                    "factors": factors,
                    "best": [best.value, best.sweeps],
                    "trace": kept_trace(trace),
                    "at": [sweep, last],
                }
            )
            pull = engine.times(x, right, None)
            left = engine.projected_rows(
                pull, _inverse(engine.factor_sums(right).square, p.l2), p.l1
            )
            rows = sides.rows(left, right, still=True)
            assert rows.sums is not None
            cross = engine.take(rows.sums.cross, left.dtype)
            right = engine.projected_rows(cross, _inverse(rows.sums.square, p.m2), p.m1)
            value = (
                sides.data_term(rows, left, right) + sides.cost_left(left) + sides.cost_right(right)
            )
            if value < best.value * (1 - tol) or not np.isfinite(best.value):
                last = sweep
            if value < best.value:
                best = LoopState(left, right, value, sweep)
            trace.add(best.value)
            watch("NMF sweeps", sweep, max_iter)
            if sweep - last >= PATIENCE:
                trace.reason = StopReason.STALLED
                break
    except KeyboardInterrupt:
        if not len(trace):
            raise
        trace.reason = StopReason.INTERRUPTED
    return best._replace(sweeps=len(trace)), trace


def _given(factors: list[Tall], engine: Engine) -> dict[str, Any]:
    """Factors for a state, each of them once: several names often stand for one. They leave the
    engine only when the state is written."""
    places = [next(i for i, other in enumerate(factors) if other is factor) for factor in factors]
    found = {str(i): lambda i=i: engine.get(factors[i]) for i in {*places}}
    return {"places": places, "arrays": found}


def _taken(kept: Any, engine: Engine) -> list[Tall]:
    """The inverse of ``_given``."""
    found = {place: engine.take(array) for place, array in kept["arrays"].items()}
    return [found[str(place)] for place in kept["places"]]


def _inverse(gram: np.ndarray, ridge: float) -> np.ndarray:
    """(G + ridge I)^-1, of least norm where that is singular."""
    k = len(gram)
    return np.linalg.pinv(
        gram + ridge * np.eye(k), rcond=k * float(np.finfo(np.float64).eps), hermitian=True
    )
