"""The one EM loop: mixtures, pLSA and variational LDA climb the same bound.

    F(q, theta) = E_q[log p(x, z; theta)] - E_q[log q(z)]  <=  log p(x; theta)

    expect     q <- argmax F(., theta), one pass over the rows: returns sufficient statistics, which
    carry F and add up (``merge``)
    maximise   theta <- argmax F(q, .), from the statistics alone

Each half can only raise F. Rows are independent given theta, so the statistics of parts of the data
(blocks, threads, files, machines) are merged in a fixed order, and a minibatch is a running merge
with a discount.

References: Dempster, Laird and Rubin (1977); Neal and Hinton (1998); Cappe and Moulines (2009) for
the discount.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np

from eckart.io.models.checkpoint import NOTHING, Memory, kept_trace, like, resumed_trace
from eckart.trace import StopReason, Trace, Watcher, silent

EQUAL = 1e-9
"""Share of the bound by which a climb must be higher to count as better."""


class Statistics(Protocol):
    """What the E step leaves of the rows: ``bound`` is F at (q, theta), ``weight`` the rows or
    tokens that it is summed over."""

    @property
    def bound(self) -> float: ...

    @property
    def weight(self) -> float: ...

    def merge(self, other: Self) -> Self:
        """The statistics of both parts together."""
        ...


S = TypeVar("S", bound=Statistics)
Theta = TypeVar("Theta")


class EmProblem(Protocol[Theta, S]):
    """Data with a model: the two steps. One whose E step goes on from what the last one left of the
    rows, so that it cannot be repeated, keeps that and the statistics itself:
    ``remember(statistics)`` gives both, ``recall(kept)`` takes them back."""

    def expect(self, theta: Theta) -> S:
        """E step at theta over all rows; the bound includes log-priors of theta where there are
        any."""
        ...

    def maximise(self, statistics: S) -> Theta: ...


@dataclass(frozen=True)
class Ascent(Generic[Theta, S]):
    """Where a climb ended: theta with the statistics of the E step at it, and the bounds on the way
    (one for each E step, a row's share)."""

    theta: Theta
    statistics: S
    trace: Trace

    @property
    def bound(self) -> float:
        return self.statistics.bound / self.statistics.weight


def climb(
    problem: EmProblem[Theta, S],
    theta: Theta,
    *,
    tol: float = 1e-3,
    max_iter: int = 100,
    least: int = 1,
    trace: Trace | None = None,
    watch: Watcher = silent,
    each: Callable[[Theta, S, Trace], Theta | None] | None = None,
    memory: Memory = NOTHING,
    enough: Callable[[Trace], tuple[bool, str]] | None = None,
) -> Ascent[Theta, S]:
    """EM from theta until the bound, per unit of weight, rises by less than ``tol`` (after
    ``least`` steps at the soonest: near a saddle it rises slowly).

    One small rise may be that of a saddle, with larger ones behind it. So the step after it is
    taken too: where it rises by less than ``tol`` as well, the point before it is returned; else
    the climb goes on. The trace holds F at every theta visited, the last one included, so it is
    that of the returned point. ``each`` is called after every E step (revival of a dead component);
    where it returns a theta, the climb goes on from there. ``enough`` is a second rule to stop,
    with words for the watcher. Ctrl-C returns the last complete state. ``memory`` gets theta, the
    trace and what the problem remembers at every step; a climb that was killed goes on from there,
    instead of from ``theta``.
    """
    trace = Trace("bound") if trace is None else trace
    if (kept := memory.last()) is not None:
        theta, trace = like(theta, kept["theta"]), resumed_trace(trace.quantity, kept["trace"])
        statistics = (
            problem.recall(kept["rows"]) if hasattr(problem, "recall") else problem.expect(theta)
        )
    else:
        statistics = problem.expect(theta)
        trace.add(statistics.bound / statistics.weight)
    trace.reason = StopReason.MAX_ITER
    still = len(trace) > max(least, 1) and abs(trace.values[-1] - trace.values[-2]) < tol
    try:
        while len(trace) <= max_iter or still:
            memory.offer(lambda: _state(problem, theta, statistics, trace))  # noqa: B023
            moved = each(theta, statistics, trace) if each else None
            following = problem.maximise(statistics) if moved is None else moved
            after = problem.expect(following)
            small = moved is None and abs(after.bound / after.weight - trace.values[-1]) < tol
            if still and (small or len(trace) > max_iter):
                trace.reason = StopReason.CONVERGED if small else StopReason.MAX_ITER
                break
            theta, statistics = following, after
            trace.add(after.bound / after.weight)
            met, said = enough(trace) if enough else (False, "")
            watch("EM" + said, len(trace) - 1, max_iter)
            if met:
                trace.reason = StopReason.CONVERGED
                break
            still = small and len(trace) > least
    except KeyboardInterrupt:
        trace.reason = StopReason.INTERRUPTED
    return Ascent(theta, statistics, trace)


def _state(problem: Any, theta: Any, statistics: Any, trace: Trace) -> dict[str, Any]:
    rows = problem.remember(statistics) if hasattr(problem, "remember") else None
    return {"theta": theta, "trace": kept_trace(trace), "rows": rows}


def best_of(
    climbs: Iterable[Callable[[Memory], Ascent[Theta, S]]],
    memory: Memory = NOTHING,
    sound: Callable[[Ascent[Theta, S]], bool] = lambda _: True,
) -> tuple[Ascent[Theta, S], list[float]]:
    """The highest of several climbs (the first of those equal to rounding), and where each of them
    ended; an interrupted climb is the last one tried. Of climbs that are ``sound`` and others,
    however high, it is the highest sound one.

    Each climb is called with the memory of its level. Those that a killed run had finished are not
    repeated.
    """
    kept = memory.last() or {"ends": [], "best": None}
    best: Ascent[Theta, S] | None = None
    ends: list[float] = list(kept["ends"])
    before = kept["best"]
    for start in [*climbs][len(ends) :]:
        found = start(memory.inner({"ends": ends, "best": before if best is None else _kept(best)}))
        # what was kept of the best takes the shape of this one
        if before is not None and best is None:
            trace = resumed_trace(found.trace.quantity, before["trace"])
            best = Ascent(
                like(found.theta, before["theta"]),
                like(found.statistics, before["statistics"]),
                trace,
            )
        ends.append(found.bound)
        higher = (
            best is None
            or found.bound > best.bound + EQUAL * (1 + abs(best.bound))
            or not np.isfinite(best.bound)
        )
        if best is None or (higher and sound(found) >= sound(best)) or sound(found) > sound(best):
            best = found
        if found.trace.reason is StopReason.INTERRUPTED:
            best.trace.reason = StopReason.INTERRUPTED
            break
    assert best is not None
    return best, ends


def index_of(best: Ascent[Any, Any], ends: list[float]) -> int:
    """Which of the climbs the best one is."""
    return next(i for i, end in enumerate(ends) if end == best.bound or i == len(ends) - 1)


def _kept(best: Ascent[Any, Any]) -> dict[str, Any]:
    return {"theta": best.theta, "statistics": best.statistics, "trace": kept_trace(best.trace)}


def merged(parts: Iterable[S]) -> S:
    """All parts together, added in their order, so that the sum does not depend on which was ready
    first."""
    whole: Any = reduce(lambda a, b: a.merge(b), parts)
    return whole
