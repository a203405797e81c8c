"""Ids of both sides of observations and how often each came, merged from parts: what a table too large for memory is numbered by."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.index.ids import Ids, Place, position
from eckart.index.labels import Labels


class Side:
    """Ids of one side, in the order that labels have, and how often each came.

    >>> both = Side.of("rows", ["b", "a", "b"]).merge(Side.of("rows", ["c", "a"]))
    >>> both.labels.tolist(), both.counts.tolist()
    (['a', 'b', 'c'], [2, 2, 1])
    """

    def __init__(self, labels: np.ndarray, counts: np.ndarray):
        self.labels, self.counts = labels, counts

    @classmethod
    def of(cls, name: str, ids: Any, at: Place = position, blanks: tuple[str, ...] | None = None) -> Side:
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
    return np.array([str(label) for label in labels], object) if text and labels.dtype.kind in "iu" else labels


def numbered(
    labels: Labels, name: str, ids: Any, at: Place = position, blanks: tuple[str, ...] | None = None
) -> np.ndarray:
    """Positions of ids among all labels of their side."""
    side = Ids(name, blanks)
    side.take(ids, at)
    codes, own = side.finish(at)
    return labels.find(own if labels.labels is None else alike(own, labels.labels))[codes]


class Sides:
    """Both sides of some observations, and the precision of their values."""

    def __init__(self, rows: Side, columns: Side, dtype: np.dtype):
        self.rows, self.columns, self.dtype = rows, columns, dtype

    def merge(self, other: Sides) -> Sides:
        dtype = np.promote_types(self.dtype, other.dtype)
        return Sides(self.rows.merge(other.rows), self.columns.merge(other.columns), dtype)
