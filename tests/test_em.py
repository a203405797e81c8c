"""The one EM loop, on a problem small enough to follow by hand: weights of two coins of known bias;
and the evidence of a climb."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from eckart.certify.ascent import FALL, certify_ascent, largest_fall
from eckart.explain.em import best_of, climb, merged
from eckart.trace import StopReason, Trace


@dataclass(frozen=True)
class Sums:
    bound: float
    weight: float
    first: float

    def merge(self, other):
        return Sums(self.bound + other.bound, self.weight + other.weight, self.first + other.first)


@dataclass
class Coins:
    """theta is the share of coin one; heads have probability 0.9 and 0.2."""

    heads: np.ndarray
    interrupt_at: int = -1
    calls: int = 0

    def expect(self, theta):
        self.calls += 1
        if self.calls == self.interrupt_at:
            raise KeyboardInterrupt
        one, two = (
            theta * np.where(self.heads, 0.9, 0.1),
            (1 - theta) * np.where(self.heads, 0.2, 0.8),
        )
        return merged(Sums(float(np.log(o + t)), 1.0, float(o / (o + t))) for o, t in zip(one, two))

    def maximise(self, s):
        return s.first / s.weight


HEADS = np.array([1, 1, 1, 0, 1, 0, 1, 1, 0, 1], bool)


def test_it_climbs_to_the_maximum_and_the_trace_is_that_of_the_returned_point():
    problem = Coins(HEADS)
    found = climb(problem, 0.5, tol=1e-12, max_iter=1000)
    # share of heads: 0.2 + 0.7 theta = 0.7
    assert found.theta == pytest.approx(5 / 7, abs=1e-4)
    assert (np.diff(found.trace.values) > -1e-15).all()
    assert found.trace.reason is StopReason.CONVERGED
    assert (
        found.bound
        == found.trace.values[-1]
        == pytest.approx(Coins(HEADS).expect(found.theta).bound / 10)
    )


def test_the_limit_counts_steps_of_maximisation():
    found = climb(Coins(HEADS), 0.5, tol=0.0, max_iter=3)
    assert len(found.trace) == 4
    assert found.trace.reason is StopReason.MAX_ITER


def test_an_interrupt_keeps_the_last_complete_state():
    whole = climb(Coins(HEADS), 0.5, tol=0.0, max_iter=2)
    found = climb(Coins(HEADS, interrupt_at=4), 0.5, tol=0.0, max_iter=50)
    assert found.trace.reason is StopReason.INTERRUPTED
    assert found.theta == whole.theta


def test_a_theta_from_outside_is_gone_on_from():
    def each(theta, s, trace):
        return 0.05 if len(trace) == 3 else None

    found = climb(Coins(HEADS), 0.5, tol=1e-12, max_iter=1000, each=each)
    assert np.argmin(np.diff(found.trace.values)) == 2
    assert found.theta == pytest.approx(5 / 7, abs=1e-4)


def test_a_sound_climb_is_taken_before_a_higher_one():
    climbs = [lambda _, s=s: climb(Coins(HEADS), s, tol=0.0, max_iter=2) for s in (0.1, 0.7, 0.4)]
    _, ends = best_of(climbs)
    order = np.argsort(ends)
    best, _ = best_of(climbs, sound=lambda found: found.bound < max(ends))
    assert best.bound == ends[order[1]]
    best, _ = best_of(climbs, sound=lambda found: False)
    assert best.bound == max(ends)


def test_the_best_of_several_climbs():
    best, ends = best_of(
        [lambda _, s=s: climb(Coins(HEADS), s, tol=0.0, max_iter=2) for s in (0.1, 0.7, 0.4)]
    )
    assert best.bound == max(ends) == ends[1]
    best, ends = best_of(
        [lambda _: climb(Coins(HEADS, interrupt_at=2), 0.5), lambda _: pytest.fail("went on")]
    )
    assert best.trace.reason is StopReason.INTERRUPTED
    assert len(ends) == 1


def trace_of(*values):
    t = Trace("bound")
    for value in values:
        t.add(value)
    return t


def test_evidence_of_a_climb_fails_where_it_should():
    good = {"trace": trace_of(-3.0, -2.0), "bound": -2.0, "gain": 1e-5, "tol": 1e-4}
    assert certify_ascent("p", **good).holds
    assert certify_ascent("p", **good).kind == "stationary"
    assert not certify_ascent("p", **good | {"gain": 1e-3}).holds
    assert not certify_ascent("p", **good | {"gain": float("nan")}).holds
    assert not certify_ascent("p", **good | {"trace": trace_of(-3.0, -2.0, -2.1)}).holds
    assert certify_ascent("p", **good | {"trace": trace_of(-3.0, -2.0, -2.1)}, excused={2}).holds
    assert not certify_ascent("p", **good | {"trace": trace_of(-3.0, float("nan"))}).holds
    c = certify_ascent("p", **good, ends=[-2.0, -2.5])
    assert c["spread over starts"] == pytest.approx(0.5)
    assert largest_fall([1.0, 1.0 - FALL / 10]) < FALL


def test_one_small_rise_before_larger_ones_is_no_end():
    """A bound that pauses and goes on: the climb goes on with it, and ends where the step after the
    last is small as well."""
    bounds = [0.0, 1.0, 1.0005, 2.0, 2.5, 2.5005, 2.5006, 2.5006]

    class Pausing:
        def expect(self, theta):
            return Row(bounds[min(theta, len(bounds) - 1)], theta)

        def maximise(self, s):
            return s.theta + 1

    class Row:
        weight = 1.0

        def __init__(self, bound, theta):
            self.bound, self.theta = bound, theta

        def merge(self, other):
            return self

    found = climb(Pausing(), 0, tol=1e-3)
    assert (found.theta, found.trace.reason) == (5, StopReason.CONVERGED)
    assert found.trace.values == bounds[:6]
    assert climb(Pausing(), 0, tol=1e-3, max_iter=2).trace.reason is StopReason.MAX_ITER
