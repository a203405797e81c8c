"""Lists of items to numbers: words that are found already, products of baskets, steps of sessions
and of walks."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any

import numpy as np

from eckart.errors import InputTypeError
from eckart.io.tables.frames import is_arrow, is_frame
from eckart.io.text.documents import Documents

BATCH_ITEMS = 2**18
"""Items that are handed on together: 2 MB of numbers."""


def look(source: Any) -> tuple[Iterator[Any] | None, Any]:
    """The rows of a source of lists (None where it holds text), and the source, whole again where
    it is an iterator.

    >>> list(look([["a", "b"], ["c"]])[0])
    [['a', 'b'], ['c']]
    >>> look(["a text", "another"])
    (None, ['a text', 'another'])
    """
    plain = isinstance(source, (str, bytes, os.PathLike, Documents)) or not isinstance(
        source, Iterable
    )
    if (
        plain or is_arrow(source) or is_frame(source) or getattr(source, "ndim", 1) == 0
    ):  # an array without dimensions has nothing to go through
        return None, source
    if isinstance(source, Iterator):
        head = list(islice(source, 1))
        source = chain(head, source)
        return (source, None) if head and _is_row(head[0]) else (None, source)
    values = source.values() if isinstance(source, dict) else source
    head = list(islice(iter(values), 1))
    return (iter(values), source) if head and _is_row(head[0]) else (None, source)


def _is_row(row: Any) -> bool:
    return isinstance(row, Iterable) and not isinstance(row, (str, bytes))


class ItemNumbers:
    """Items numbered in the order in which they came: all texts, or all integers. A set is taken in
    the order of its items.

    >>> numbers = ItemNumbers()
    >>> [(ids.tolist(), lengths.tolist()) for ids, lengths in numbers.batches(iter([["tea", "milk"], [], ["milk"]]))]
    [([0, 1, 1], [2, 0, 1])]
    >>> numbers.words(np.array([1]))
    ['milk']
    """

    def __init__(self) -> None:
        self._numbers: defaultdict[Any, int] = defaultdict()
        self._numbers.default_factory = self._numbers.__len__
        self._kind: type | None = None

    def __len__(self) -> int:
        return len(self._numbers)

    def batches(self, rows: Iterator[Any]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Numbers of the items of consecutive rows, and the lengths of these rows."""
        ids: list[int] = []
        lengths: list[int] = []
        for i, row in enumerate(rows):
            items = _items(row, i)
            known, held = len(self._numbers), len(ids)
            try:
                ids.extend(map(self._numbers.__getitem__, items))
            except TypeError:
                bad = next(item for item in items if not _hashable(item))
                raise _refused(bad, i) from None
            if len(self._numbers) > known:
                self._check(islice(reversed(self._numbers), len(self._numbers) - known), i)
            lengths.append(len(ids) - held)
            if len(ids) >= BATCH_ITEMS or len(lengths) >= BATCH_ITEMS:
                yield np.array(ids, np.int32), np.array(lengths, np.int64)
                ids, lengths = [], []
        if lengths:
            yield np.array(ids, np.int32), np.array(lengths, np.int64)

    def words(self, at: np.ndarray) -> list[Any]:
        """The items of some numbers."""
        items = list(self._numbers)
        kind = self._kind or str
        return [kind(items[i]) for i in at.tolist()]

    def _check(self, items: Iterable[Any], row: int) -> None:
        for item in items:
            kind = str if isinstance(item, str) else int
            if isinstance(item, (bool, np.bool_)) or not isinstance(item, (str, int, np.integer)):
                raise _refused(item, row)
            if self._kind not in (None, kind):
                raise InputTypeError(
                    f"lists must hold all texts or all integers, got item {item!r} of list {row}, which "
                    f"is {'a text' if kind is str else 'a number'}"
                )
            self._kind = kind


def _items(row: Any, i: int) -> list[Any]:
    if isinstance(row, np.ndarray):
        if row.ndim != 1:
            raise InputTypeError(f"list {i} must be an array of one dimension, got {row.ndim}")
        return row.tolist()
    if isinstance(row, (set, frozenset)):
        return sorted(
            row,
            key=lambda item: (str(type(item)), item) if isinstance(item, (str, int)) else ("", 0),
        )
    if not _is_row(row):
        raise InputTypeError(
            f"list {i} must be a list of items, got a {type(row).__name__} ({str(row)[:30]!r})"
        )
    return list(row)


def _hashable(item: Any) -> bool:
    try:
        hash(item)
    except TypeError:
        return False
    return True


def _refused(item: Any, row: int) -> InputTypeError:
    return InputTypeError(
        f"list {row} must hold texts (str) or integers, got {str(item)[:40]!r} "
        f"({type(item).__name__}). Name other things by one of these."
    )
