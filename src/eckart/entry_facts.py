"""What is known of the stored entries of a matrix: sums, limits, whether they are whole numbers.
Facts of parts merge to those of the whole."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np


class EntryFacts(NamedTuple):
    """Of the stored entries of a matrix: how many, their sum and that of their squares, the least
    and the largest, whether all are whole numbers, and the different values among the first 10,000
    (or a few more, where parts are merged; None where they are more than 64)."""

    entries: int
    total: float
    square: float
    least: float
    most: float
    whole: bool
    values: np.ndarray | None
    inspected: int

    @classmethod
    def of(cls, matrix: Any) -> EntryFacts:
        facts = LazyFacts(matrix.data)
        return cls(*(getattr(facts, name) for name in cls._fields))

    def merge(self, other: EntryFacts) -> EntryFacts:
        """Of both, these first."""
        values, inspected = self.values, self.inspected
        if inspected < 10_000:
            both = (
                None if values is None or other.values is None else np.union1d(values, other.values)
            )
            values, inspected = (
                (both if both is not None and len(both) <= 64 else None),
                inspected + other.inspected,
            )
        whole = self.whole and other.whole
        least, most = min(self.least, other.least), max(self.most, other.most)
        sums = self.entries + other.entries, self.total + other.total, self.square + other.square
        return EntryFacts(*sums, least, most, whole, values, inspected)

    @property
    def deviation(self) -> float:
        """The standard deviation."""
        return _deviation(self)


def _deviation(facts: Any) -> float:
    count = facts.entries
    return (
        float(np.sqrt(max(facts.square / count - (facts.total / count) ** 2, 0.0)))
        if count
        else 0.0
    )


def _squares(a: np.ndarray) -> float:
    total = 0.0
    with np.errstate(over="ignore"):  # entries that cannot be squared are refused elsewhere
        for start in range(0, len(a), 2**16):  # so many numbers in float64 stay in cache
            wide = a[start : start + 2**16].astype(np.float64, copy=False)
            total += float(wide @ wide)
    return total


class LazyFacts:
    """The facts of entries in memory, each looked for when it is asked for: every one of them is a
    pass over the entries."""

    def __init__(self, entries: np.ndarray):
        self._a = entries

    entries = property(lambda self: len(self._a))
    total = cached_property(lambda self: float(self._a.sum(dtype=np.float64)))
    square = cached_property(lambda self: _squares(self._a))
    least = cached_property(lambda self: float(self._a.min(initial=np.inf)))
    most = cached_property(lambda self: float(self._a.max(initial=-np.inf)))
    whole = cached_property(lambda self: bool((self._a == np.rint(self._a)).all()))
    inspected = property(lambda self: min(len(self._a), 10_000))
    deviation = property(_deviation)

    @cached_property
    def values(self) -> np.ndarray | None:
        head = np.unique(self._a[:10_000])
        return head if len(head) <= 64 else None
