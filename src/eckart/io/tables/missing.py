"""Marks that stand for a missing entry: words in a text file, and numbers such as 0 or -999
anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from eckart.errors import InputError, invalid, written
from eckart.matrix import Counts, Matrix, Observed, floating


class Marks(NamedTuple):
    """``words`` are cells of a text file, ``numbers`` values of any table."""

    words: tuple[str, ...] = ()
    numbers: tuple[float, ...] = ()

    @classmethod
    def of(cls, given: Iterable[Any] | Any) -> Marks:
        """Marks as they are written: what reads as a number is one.

        >>> Marks.of(["?", "-999", 0])
        Marks(words=('?',), numbers=(-999.0, 0.0))
        """
        words, numbers = [], []
        for mark in (
            given
            if isinstance(given, (list, tuple, set, frozenset)) or getattr(given, "ndim", 0) == 1
            else [given]
        ):
            if not isinstance(mark, (str, Real, np.generic)):
                raise invalid("missing", given, "words and numbers that stand for a missing value")
            try:
                numbers.append(float(mark))
            except (TypeError, ValueError, OverflowError):
                words.append(written(mark) if not isinstance(mark, str) else mark)
        return cls(tuple(words), tuple(x for x in numbers if x == x))


@dataclass(frozen=True)
class MarkedBlocks:
    """Row blocks in which some numbers stand for NaN."""

    stream: Any
    numbers: tuple[float, ...]

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "stream"), name)

    def blocks(self, rows: int) -> Iterator[np.ndarray]:
        return (_without(np.asarray(block), self.numbers) for block in self.stream.blocks(rows))


def unmark(matrix: Matrix, numbers: tuple[float, ...]) -> Matrix:
    """The same matrix with the entries that equal one of the numbers unknown."""
    if not numbers:
        return matrix
    if isinstance(matrix, Counts):
        raise InputError(
            f"missing={list(numbers)} came for a sparse matrix in which an absent entry "
            "is zero; say absent='unknown' to leave entries out"
        )
    if isinstance(matrix, Observed):
        return _fewer(matrix, ~np.isin(matrix.data, numbers))
    if matrix.in_memory:
        return replace(matrix, values=_without(np.asarray(matrix.values), numbers))
    return replace(matrix, values=MarkedBlocks(matrix.values, numbers))


def _without(values: np.ndarray, numbers: tuple[float, ...]) -> np.ndarray:
    out = np.array(values, floating(values.dtype))
    out[np.isin(out, numbers)] = np.nan
    return out


def _fewer(x: Observed, kept: np.ndarray) -> Observed:
    """The entries that are kept; rows and columns stay where they are."""
    if not kept.any():
        raise InputError(
            "at least one observed entry must differ from every mark of missing=, got none"
        )
    ends = np.concatenate([[0], np.cumsum(kept)])
    return replace(
        x, indptr=ends[x.indptr].astype(x.indptr.dtype), indices=x.indices[kept], data=x.data[kept]
    )
