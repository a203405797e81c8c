"""L-BFGS: steps along -H g, where H is built from the last few changes of the point (s) and of the
gradient (y).

    H = V_m^T ... V_1^T (s_m . y_m / y_m . y_m) V_1 ... V_m + ...,     V = I - y s^T / s . y

by the two loops of Nocedal, never as a matrix. A step t along a direction d is taken where it is
neither too long nor too short (the weak conditions of Wolfe):

    f(x + t d) <= f(x) + 1e-4 t d . g(x),        d . g(x + t d) >= 0.9 d . g(x)

found by doubling and halving (Lewis and Overton), the first trial being t = 1. The second condition
makes s . y > 0, so that every direction falls.

All that a run knows (point, gradient, the pairs s and y) is offered at the head of each step, so
that a killed one goes on with the same bits.

References: Liu and Nocedal (1989); Lewis and Overton (2013).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from eckart.optim.descend import StepMemory
from eckart.trace import StopReason, Trace, Watcher, silent

HISTORY = 20
"""Pairs that are kept: more cost their two products each and change little."""
DECREASE, CURVATURE = 1e-4, 0.9
"""The usual constants of Wolfe's conditions for quasi-Newton steps."""
TRIALS = 50
"""Halvings after which 2^-50 of a step is left: below that the value is rounding."""
FLAT = 1e-12
"""The largest slope that counts as none."""

Objective = Callable[[np.ndarray], tuple[float, np.ndarray]]


def minimise(
    objective: Objective,
    x: np.ndarray,
    *,
    tol: float,
    max_iter: int,
    quantity: str = "objective",
    watch: Watcher = silent,
    memory: StepMemory | None = None,
) -> tuple[np.ndarray, Trace]:
    """The last point, at which the objective is the least that was met, and the objective after
    each step.

    Ends when a step lowers the objective by less than ``tol`` of max(1, |f|), where the gradient is
    zero, after ``max_iter`` steps, or on an interrupt.

    >>> f = lambda p: (float((p**4).sum() + p @ p), 4 * p**3 + 2 * p)
    >>> x, trace = minimise(f, np.array([3.0, -2.0]), tol=1e-14, max_iter=50)
    >>> trace.reason.name, bool(np.abs(x).max() < 1e-6)
    ('CONVERGED', True)
    """
    trace = Trace(quantity, reason=StopReason.MAX_ITER)
    changes: list[tuple[np.ndarray, np.ndarray]] = []
    if memory is not None and (kept := memory.last()) is not None:
        x, value, slope = kept["x"], float(kept["value"]), kept["slope"]
        changes = [(s, y) for s, y in kept["changes"]]
        trace.values, trace.seconds = kept["trace"]
    else:
        value, slope = objective(x)
    try:
        while len(trace) < max_iter:
            if memory is not None:
                kept_state = {
                    "changes": [list(pair) for pair in changes],
                    "trace": [trace.values, trace.seconds],
                }
                memory.offer(kept_state | {"x": x, "value": value, "slope": slope})
            if np.abs(slope).max(initial=0.0) <= FLAT:
                trace.reason = StopReason.CONVERGED
                break
            found = _along(objective, x, value, slope, _direction(slope, changes))
            if found is None and changes:  # what was learned of the curvature does not hold here
                changes = []
                continue
            if found is None:
                trace.reason = StopReason.STALLED
                break
            before = value
            changes = [*changes[1 - HISTORY :], (found[0] - x, found[2] - slope)]
            x, value, slope = found
            trace.add(value)
            watch("steps", len(trace), max_iter)
            if before - value <= tol * max(1.0, abs(before), abs(value)):
                trace.reason = StopReason.CONVERGED
                break
    except KeyboardInterrupt:
        trace.reason = StopReason.INTERRUPTED
    return x, trace


def _direction(slope: np.ndarray, changes: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """-H g; before anything is known of the curvature, -g of length 1 at most."""
    d = -slope
    if not changes:
        return d / max(1.0, float(np.linalg.norm(slope)))
    shares = []
    for s, y in reversed(changes):
        shares.append(float(s @ d) / float(s @ y))
        d = d - shares[-1] * y
    s, y = changes[-1]
    d = d * (float(s @ y) / float(y @ y))
    for (s, y), share in zip(changes, reversed(shares)):
        d = d + s * (share - float(y @ d) / float(s @ y))
    return d


def _along(
    objective: Objective, x: np.ndarray, value: float, slope: np.ndarray, d: np.ndarray
) -> tuple[np.ndarray, float, np.ndarray] | None:
    """The point, value and gradient of a step along d that satisfies both conditions; None where
    there is none."""
    fall = float(d @ slope)
    if not fall < 0.0:
        return None
    short, long, t = 0.0, np.inf, 1.0
    for _ in range(TRIALS):
        point = x + t * d
        there, g = objective(point)
        if not there <= value + DECREASE * t * fall:  # also where it is not a number
            long = t
        elif float(d @ g) < CURVATURE * fall:
            short = t
        else:
            return (point, there, g) if float((point - x) @ (g - slope)) > 0.0 else None
        t = 2.0 * t if long == np.inf else 0.5 * (short + long)
    return None
