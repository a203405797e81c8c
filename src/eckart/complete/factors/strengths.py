"""Strengths of implicit feedback brought together: plays, counts and seconds, of which a few would
outweigh all else.

3 log(1 + r / median) / mean, with the median of the strengths above 0 and the mean of the
logarithms. Of data in parts the median is found in two passes that hold little: how many values
share their leading bits, then the values that stand where the middle is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from eckart.matrix import Observed
from eckart.matrix_blocks import facts_of, of_each_part, with_values

SKEWED = 20.0
"""Largest strength, in medians, from which a few entries outweigh all others: weights of ratings or
of clicks stay below it, those of plays are far above."""
REPEATED = 3.0
"""Mean weight of strengths brought together: what was repeated often says more than one click of
weight 1. Measured on log-normal plays of Gowalla's pairs."""
BITS = 16
"""Leading bits of a number (its exponent and four more) by which values are counted first."""


@dataclass(frozen=True)
class LogScaling:
    """Strengths on a scale on which none outweighs all others, of mean 3."""

    median: float
    mean: float

    def of(self, x: Observed) -> Observed:
        return with_values(x, partial(_scale_logs, self))


def _scale_logs(by: LogScaling, x: Observed) -> Observed:
    values = REPEATED * np.log1p(x.data.astype(np.float64) / by.median) / by.mean
    return replace(x, data=values.astype(x.dtype))


def log_scaling(x: Observed, asked: bool, usual: bool) -> LogScaling | None:
    """How the strengths of x are brought together; None where they stay as they are. ``asked``: in
    any case; ``usual``: where a few outweigh all others."""
    most = facts_of(x).most
    if most <= 0:
        return None
    low = sum(
        of_each_part(x, partial(_below, most / SKEWED))
    )  # zeros among them: the median is sought only where it may be that low
    if not asked and (not usual or 2 * low < x.nnz):
        return None
    median = _median(x)
    if not asked and not most > SKEWED * median:
        return None
    logs, count = np.sum(of_each_part(x, partial(_logs, median)), axis=0)
    return LogScaling(median, float(logs / count))


def _below(limit: float, x: Observed) -> int:
    return int(np.count_nonzero(x.data <= limit))


def _logs(median: float, x: Observed) -> np.ndarray:
    """Sum of log(1 + r / median) over r > 0, and how many these are."""
    some = x.data[x.data > 0].astype(np.float64)
    return np.array([np.log1p(some / median).sum(), len(some)])


def _heads(x: Observed) -> np.ndarray:
    """How many values above 0 share their leading bits; numbers above 0 are in the order of their
    bits."""
    some = x.data[x.data > 0].astype(np.float64).view(np.uint64) >> np.uint64(64 - BITS)
    return np.bincount(some.astype(np.int64), minlength=2**BITS)


def _inside(low: int, high: int, x: Observed) -> tuple[np.ndarray, np.ndarray]:
    """The different values whose leading bits are low to high, and how often each stands there."""
    some = x.data[x.data > 0].astype(np.float64)
    head = some.view(np.uint64) >> np.uint64(64 - BITS)
    some = np.sort(some[(head >= low) & (head <= high)])
    starts = np.flatnonzero(np.diff(some, prepend=-1.0))
    return some[starts], np.diff(np.append(starts, len(some)))


def _median(x: Any) -> float:
    """Of the values above 0: the middle one, or the mean of the two in the middle."""
    ends = np.cumsum(np.sum(of_each_part(x, _heads), axis=0))
    middle = np.array([(ends[-1] - 1) // 2, ends[-1] // 2])
    low, high = np.searchsorted(ends, middle, side="right")
    found = of_each_part(x, partial(_inside, int(low), int(high)))
    values, counts = (np.concatenate(each) for each in zip(*found))
    order = np.argsort(values, kind="stable")
    before = ends[low - 1] if low else 0
    at = np.searchsorted(np.cumsum(counts[order]), middle - before, side="right")
    return float(values[order][at].mean())
