"""Ids of both sides of observations and how often each came, merged from parts: what a table too
large for memory is numbered by."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.errors import InputError
from eckart.index.compress import index_dtype
from eckart.index.counting import look_up_all, tallied
from eckart.index.ids import Ids, Place, position
from eckart.index.labels import Labels
from eckart.loading import pa
from eckart.merging import Tree


class Side:
    """Ids of one side, in the order that labels have, and how often each came.

    >>> both = Side.of("rows", ["b", "a", "b"]).merge(Side.of("rows", ["c", "a"]))
    >>> both.labels.tolist(), both.counts.tolist()
    (['a', 'b', 'c'], [2, 2, 1])
    """

    def __init__(self, labels: np.ndarray, counts: np.ndarray):
        self.labels, self.counts = labels, counts

    @classmethod
    def of(
        cls, name: str, ids: Any, at: Place = position, blanks: tuple[str, ...] | None = None
    ) -> Side:
        side = Ids(name, blanks)
        side.take(ids, at)
        codes, labels = side.finish(at)
        return cls(labels, np.bincount(codes, minlength=len(labels)))

    def merge(self, other: Side) -> Side:
        ids = Ids("ids")
        ids.take(alike(self.labels, other.labels))
        ids.take(alike(other.labels, self.labels))
        codes, labels = ids.finish()
        both = np.concatenate([self.counts, other.counts])
        return Side(labels, np.bincount(codes, both, len(labels)).astype(np.int64))


def alike(labels: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Whole numbers as the text they were, where other ids of the same column are text.

    >>> alike(np.array([7, 12]), np.array(["a"], object)).tolist(), alike(np.array([7]), np.array([8])).tolist()
    (['7', '12'], [7])
    """
    text = others.dtype == object and len(others) and isinstance(others[0], str)
    return (
        np.array([str(label) for label in labels], object)
        if text and labels.dtype.kind in "iu"
        else labels
    )


class Tally:
    """Ids of one side, block by block: whole numbers are counted in a table of their span while it
    takes at most ``room`` bytes, all else is merged.

    >>> seen = Tally("rows", None, 1e6)
    >>> for block in ([7, 9], [9, 8, 9]):
    ...     seen.take(np.array(block))
    >>> seen.side().labels.tolist(), seen.side().counts.tolist()
    ([7, 8, 9], [1, 1, 3])
    """

    def __init__(self, name: str, blanks: tuple[str, ...] | None, room: float):
        self.name, self.blanks, self.most = name, blanks, int(room / 8)
        self.low, self.counts = 0, np.zeros(0, np.int64)
        self.others: Any = Tree()

    def take(self, ids: Any, at: Place = position) -> None:
        numbers = native(ids)
        if numbers is None or not self._reaches(int(numbers.min()), int(numbers.max())):
            self.others.add(Side.of(self.name, ids, at, self.blanks))
        else:
            tallied(numbers, self.low, self.counts)

    def _reaches(self, low: int, high: int) -> bool:
        """Whether the table holds these numbers, or can be made to."""
        have = len(self.counts)
        if have and self.low <= low and high < self.low + have:
            return True
        first, last = (min(low, self.low), max(high, self.low + have - 1)) if have else (low, high)
        span = last - first + 1
        if span > self.most:
            return False
        wide = min(self.most, max(span, 2 * have))  # twice as long, so that it is seldom moved
        counts = np.zeros(wide, np.int64)
        counts[self.low - first : self.low - first + have] = self.counts
        self.low, self.counts = first, counts
        return True

    def side(self) -> Side:
        """All of them."""
        found = np.flatnonzero(self.counts)
        table = Side(found + self.low, self.counts[found])
        others = self.others.total()
        return table if others is None else others.merge(table) if len(found) else others


class PositionFinder:
    """Positions of ids among the labels of a side: of whole numbers by a table of their span, where
    that takes at most ``room`` bytes."""

    def __init__(
        self, side: Side, axis: str, name: str, blanks: tuple[str, ...] | None, room: float
    ):
        self.labels, self.name, self.blanks = (
            Labels(side.labels, len(side.labels), axis),
            name,
            blanks,
        )
        self.low, self.table = 0, None
        if (
            side.labels.dtype == np.int64
            and (int(side.labels[-1]) - int(side.labels[0]) + 1) * 4 <= room
        ):
            self.low = int(side.labels[0])
            self.table = np.full(
                int(side.labels[-1]) - self.low + 1, -1, index_dtype(len(side.labels))
            )
            self.table[side.labels - self.low] = np.arange(len(side.labels))

    def codes(self, ids: Any, at: Place = position) -> np.ndarray:
        """An id that was not there when the labels were collected is refused."""
        numbers = None if self.table is None else native(ids)
        if numbers is not None and self.table is not None:
            found = look_up_all(numbers, self.low, self.table)
        else:
            side = Ids(self.name, self.blanks)
            side.take(ids, at)
            codes, own = side.finish(at)
            assert self.labels.labels is not None
            places = self.labels.find(alike(own, self.labels.labels))
            found = places.astype(index_dtype(self.labels.size))[codes]
        if len(found) and found.min() < 0:
            raise InputError(
                f"{self.name} must be a table at rest, got an id at {at(int(found.argmin()))} that "
                "was not there when the table was first read"
            )
        return found


def native(ids: Any) -> np.ndarray | None:
    """Whole numbers as the array they are; None for other ids, and where there are gaps."""
    if not isinstance(ids, np.ndarray):
        if not type(ids).__module__.startswith("pyarrow"):
            return None
        if not isinstance(ids, pa.Array) or ids.null_count or not pa.types.is_integer(ids.type):
            return None
        ids = ids.to_numpy(zero_copy_only=False)
    return (
        ids
        if ids.ndim == 1 and len(ids) and ids.dtype.kind in "iu" and ids.dtype != np.uint64
        else None
    )


class Sides:
    """Both sides of some observations, and the precision of their values."""

    def __init__(self, rows: Side, columns: Side, dtype: np.dtype):
        self.rows, self.columns, self.dtype = rows, columns, dtype

    def merge(self, other: Sides) -> Sides:
        dtype = np.promote_types(self.dtype, other.dtype)
        return Sides(self.rows.merge(other.rows), self.columns.merge(other.columns), dtype)
