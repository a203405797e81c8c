"""The one gradient loop: run a rule until the gradient is small, keep the best point, tame the step
where it is too long.

The objective is evaluated with each gradient. Momentum is dropped when the objective rises
(adaptive restart). A value that is not finite, or a plateau of ``patience`` steps, halves the step
and goes back to the best point. The loop ends on ||gradient|| <= tol, on a step that has become
useless, on ``max_iter``, or on an interrupt; in every case the best point is returned.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from eckart.optim.rules import Params, UpdateRule
from eckart.trace import StopReason, Trace, Watcher, silent


class StepMemory(Protocol):
    """Where a loop that may be killed keeps its state (``io.models.levels``)."""

    def last(self) -> Any: ...

    def offer(self, state: Any) -> None: ...


Objective = Callable[[Params], tuple[float, Params]]
"""Value and gradients at a point."""


def norm(grads: Params) -> float:
    """Euclidean norm of all gradients together."""
    return float(np.sqrt(sum(float(np.vdot(g, g)) for g in grads)))


def descend(
    objective: Objective,
    params: Params,
    rule: UpdateRule,
    *,
    lr: float,
    tol: float,
    max_iter: int,
    patience: int = 100,
    watch: Watcher = silent,
    memory: StepMemory | None = None,
) -> tuple[Params, Trace, float]:
    """The best point, the trace of objective values, and the gradient norm there.

    >>> from eckart.optim.rules import rule_named
    >>> f = lambda p: (0.5 * float(p[0] @ p[0]), [p[0]])
    >>> best, trace, size = descend(f, [np.array([4.0])], rule_named("gd"), lr=0.5, tol=1e-6, max_iter=100)
    >>> trace.reason.name, size < 1e-6
    ('CONVERGED', True)
    """
    state = rule.init(params)
    best, best_value, best_norm = params, np.inf, np.inf
    trace = Trace("objective", reason=StopReason.MAX_ITER)
    since, first_lr, before = 0, lr, np.inf
    if memory is not None and (kept := memory.last()) is not None:
        params, state, best = kept["params"], kept["state"], kept["best"]
        best_value, best_norm, since, lr, before = kept["numbers"]
        trace.values, trace.seconds = kept["trace"]
    try:
        for step in range(len(trace), max_iter):
            if memory is not None:
                kept_state = {
                    "numbers": [best_value, best_norm, since, lr, before],
                    "trace": [trace.values, trace.seconds],
                }
                memory.offer(kept_state | {"params": params, "state": state, "best": best})
            point = rule.ahead(params, state)
            value, grads = objective(point)
            size = norm(grads)
            trace.add(value)
            watch("gradient steps", step + 1, max_iter)
            if not np.isfinite(value) or not np.isfinite(size):
                lr, params, since, before = lr / 4, best, 0, np.inf
                state = rule.init(params)
                if lr < 1e-8 * first_lr:
                    trace.reason = StopReason.STALLED
                    break
                continue
            better = value < best_value - 1e-12 * abs(best_value)
            if value < best_value or (value == best_value and size < best_norm):
                best, best_value, best_norm = point, value, size
            since = 0 if better else since + 1
            if size <= tol:
                best, best_norm = point, size
                trace.reason = StopReason.CONVERGED
                break
            if since > patience:
                lr, params, since = lr / 2, best, 0
                state = rule.init(params)
                if lr < 1e-6 * first_lr:
                    trace.reason = StopReason.STALLED
                    break
                continue
            if value > before and "before" in state:
                state = rule.init(params)
            before = value
            params, state = rule.step(params, grads, state, lr)
    except KeyboardInterrupt:
        trace.reason = StopReason.INTERRUPTED
    return best, trace, best_norm
