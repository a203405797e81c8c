"""Evidence that a bound was climbed to a point where it climbs no more.

EM raises F(q, theta) with every step, and its fixed points are the stationary points of the
likelihood. So two things are measured: by how much the trace ever fell, and what one more step
would do at the returned point. Neither excludes a better summit elsewhere: how far restarts ended
apart says how rough the landscape is, and the kind is "stationary".
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from eckart.certify.certificate import Certificate, Check
from eckart.trace import Trace

FALL = 1e-9
"""Fall of the bound that rounding may cause, as a share of its size."""
STILL = 1e-8
"""Rise of the bound that counts as none, where the tolerance is zero."""


def certify_ascent(
    problem: str,
    *,
    trace: Trace,
    bound: float,
    gain: float,
    tol: float,
    fall: float = FALL,
    ends: Sequence[float] = (),
    excused: Collection[int] = (),
    facts: dict[str, Any] | None = None,
    notes: tuple[str, ...] = (),
) -> Certificate:
    """The certificate of a climb: ``bound`` is F at the returned point and ``gain`` what one more
    step adds to it, both a row's share.

    ``fall`` is what a step may lose, where it maximises something slightly else. ``ends`` are the
    bounds at which restarts ended, ``excused`` the places in the trace where theta was moved by
    other means than a step.

    >>> t = Trace("bound"); t.add(-2.0); t.add(-1.0)
    >>> certify_ascent("likelihood", trace=t, bound=-1.0, gain=1e-9, tol=1e-6).holds
    True
    """
    checks = (
        Check(
            "largest fall",
            largest_fall(trace.values, excused),
            fall,
            "fall of the bound in one step, / its size",
        ),
        Check(
            "one more step",
            abs(gain),
            max(tol, STILL),
            "change of the bound by one more EM step, a row's share",
        ),
    )
    known: dict[str, Any] = {"bound": bound, "EM steps": max(len(trace) - 1, 0)}
    if len(ends) > 1:
        known["starts"] = len(ends)
        known["spread over starts"] = float(max(ends) - min(ends))
    return Certificate(problem, "stationary", checks, known | (facts or {}), notes)


def largest_fall(values: Sequence[float], excused: Collection[int] = ()) -> float:
    """The largest fall between neighbours, / (1 + size), 0 where there is none; places in
    ``excused`` do not count.

    >>> largest_fall([1.0, 3.0, 2.0, 4.0]), largest_fall([1.0, 3.0, 2.0, 4.0], {2})
    (0.25, 0.0)
    """
    falls = [
        (before - after) / (1 + abs(before))
        for at, (before, after) in enumerate(itertools.pairwise(values), start=1)
        if at not in excused
    ]
    worst = max(falls, default=0.0)
    return float("inf") if not np.isfinite(worst) else max(worst, 0.0)
