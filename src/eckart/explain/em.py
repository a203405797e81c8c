"""The one EM loop: mixtures, pLSA and variational LDA climb the same bound.

    F(q, theta) = E_q[log p(x, z; theta)] - E_q[log q(z)]  <=  log p(x; theta)

    expect     q <- argmax F(., theta), one pass over the rows: returns sufficient statistics, which carry F and add up (``merge``)
    maximise   theta <- argmax F(q, .), from the statistics alone

Each half can only raise F. Rows are independent given theta, so the statistics of parts of the data (blocks, threads, files, machines) are merged in a
fixed order, and a minibatch is a running merge with a discount.

References: Dempster, Laird and Rubin (1977); Neal and Hinton (1998); Cappe and Moulines (2009) for the discount.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np

from eckart.trace import StopReason, Trace, Watcher, silent

EQUAL = 1e-9
"""Share of the bound by which a climb must be higher to count as better."""


class Statistics(Protocol):
    """What the E step leaves of the rows: ``bound`` is F at (q, theta), ``weight`` the rows or tokens that it is summed over."""

    @property
    def bound(self) -> float: ...

    @property
    def weight(self) -> float: ...

    def merge(self, other: Self) -> Self:
        """The statistics of both parts together."""
        ...


S = TypeVar("S", bound=Statistics)
Theta = TypeVar("Theta")


class Problem(Protocol[Theta, S]):
    """Data with a model: the two steps."""

    def expect(self, theta: Theta) -> S:
        """E step at theta over all rows; the bound includes log-priors of theta where there are any."""
        ...

    def maximise(self, statistics: S) -> Theta: ...


@dataclass(frozen=True)
class Ascent(Generic[Theta, S]):
    """Where a climb ended: theta with the statistics of the E step at it, and the bounds on the way (one for each E step, a row's share)."""

    theta: Theta
    statistics: S
    trace: Trace

    @property
    def bound(self) -> float:
        return self.statistics.bound / self.statistics.weight


def climb(
    problem: Problem[Theta, S],
    theta: Theta,
    *,
    tol: float = 1e-3,
    max_iter: int = 100,
    least: int = 1,
    trace: Trace | None = None,
    watch: Watcher = silent,
    each: Callable[[Theta, S, Trace], Theta | None] | None = None,
) -> Ascent[Theta, S]:
    """EM from theta until the bound, per unit of weight, rises by less than ``tol`` (after ``least`` steps at the soonest: near a saddle it rises slowly).

    One small rise may be that of a saddle, with larger ones behind it. So the step after it is taken too: where it rises by less than ``tol`` as well, the
    point before it is returned; else the climb goes on. The trace holds F at every theta visited, the last one included, so it is that of the returned
    point. ``each`` is called after every E step (checkpoint, revival of a dead component); where it returns a theta, the climb goes on from there. Ctrl-C
    returns the last complete state.
    """
    trace = Trace("bound") if trace is None else trace
    trace.reason = StopReason.MAX_ITER
    statistics = problem.expect(theta)
    trace.add(statistics.bound / statistics.weight)
    still = False
    try:
        while len(trace) <= max_iter or still:
            moved = each(theta, statistics, trace) if each else None
            following = problem.maximise(statistics) if moved is None else moved
            after = problem.expect(following)
            small = moved is None and abs(after.bound / after.weight - trace.values[-1]) < tol
            if still and (small or len(trace) > max_iter):
                trace.reason = StopReason.CONVERGED if small else StopReason.MAX_ITER
                break
            theta, statistics = following, after
            trace.add(after.bound / after.weight)
            watch("EM", len(trace) - 1, max_iter)
            still = small and len(trace) > least
    except KeyboardInterrupt:
        trace.reason = StopReason.INTERRUPTED
    return Ascent(theta, statistics, trace)


def best_of(
    climbs: Iterable[Callable[[], Ascent[Theta, S]]],
) -> tuple[Ascent[Theta, S], list[float]]:
    """The highest of several climbs (the first of those equal to rounding), and where each of them ended; an interrupted climb is the last one tried."""
    best: Ascent[Theta, S] | None = None
    ends: list[float] = []
    for start in climbs:
        found = start()
        ends.append(found.bound)
        if best is None or found.bound > best.bound + EQUAL * (1 + abs(best.bound)) or not np.isfinite(best.bound):
            best = found
        if found.trace.reason is StopReason.INTERRUPTED:
            best.trace.reason = StopReason.INTERRUPTED
            break
    assert best is not None
    return best, ends


def merged(parts: Iterable[S]) -> S:
    """All parts together, added in their order, so that the sum does not depend on which was ready first."""
    whole: Any = reduce(lambda a, b: a.merge(b), parts)
    return whole
