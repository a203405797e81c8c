"""Marks that stand for a missing entry: words in a text file, and numbers such as 0 or -999
anywhere.

What counts as a table of numbers: arrays of any kind, masked arrays and nested lists, or one
clear error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from eckart.errors import InputError, InputTypeError, invalid, written
from eckart.matrix import Counts, Dense, Matrix, Observed, floating, wrong_ndim


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


def numeric(values: np.ndarray) -> np.ndarray:
    """A two-dimensional array of real numbers, or one clear error."""
    if values.dtype.kind == "c":
        raise InputError(
            "Complex data not supported: X must hold real numbers, got complex ones. Pass "
            "X.real, or X.real and X.imag side by side."
        )
    if values.ndim != 2:
        raise wrong_ndim(values.ndim)
    if values.dtype.kind in "OUS":
        try:
            return values.astype(np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            for i, row in enumerate(values):
                for j, value in enumerate(row):
                    _entry(value, i, j, error)
    if values.dtype.kind not in "fiub":
        raise InputTypeError(
            f"X must hold numbers, got {values.dtype}. Convert dates or text to numbers first."
        )
    return values


def from_masked(source: np.ma.MaskedArray) -> Dense | Observed:
    """A masked entry is unknown, whatever stands under the mask."""
    filled = masked_values(source)
    return Observed.from_nan(filled) if np.ma.is_masked(source) else Dense(filled)


def masked_values(source: np.ma.MaskedArray) -> np.ndarray:
    """A masked array with NaN at every masked entry."""
    kept = source
    if source.dtype.kind in "OUS":
        kept = np.ma.array(
            np.where(np.ma.getmaskarray(source), np.nan, np.ma.getdata(source).astype(object))
        )
    values = numeric(np.ma.getdata(kept))
    values = values.astype(floating(values.dtype))
    values[np.ma.getmaskarray(source)] = np.nan
    return values


def from_nested(source: Any) -> np.ndarray:
    """Nested lists, or an object that NumPy can turn into an array."""
    try:
        return numeric(np.asarray(source))
    except InputError:
        raise
    except ValueError as error:
        sizes = [len(row) if hasattr(row, "__len__") else -1 for row in source]
        odd = next((i for i, size in enumerate(sizes) if size != sizes[0]), None)
        if odd is None:
            raise InputError(f"X is not a table of numbers ({error})") from None
        raise InputError(
            f"X must have {max(sizes[0], 1)} cells in every row as at row 0, got "
            f"{max(sizes[odd], 1)} at row {odd}. Give each row the same length."
        ) from None


def _entry(value: Any, i: int, j: int, error: Exception) -> None:
    value = value.item() if isinstance(value, np.generic) else value
    try:
        float(value)
    except TypeError as reason:
        raise InputTypeError(
            f"X must hold numbers, got {value!r} at row {i}, column {j} ({reason})"
        ) from None
    except OverflowError:
        raise InputError(
            f"X has a number at row {i}, column {j} that is too large for float64; rescale it"
        ) from None
    except ValueError:
        raise InputError(
            f"X must hold numbers, got {value!r} at row {i}, column {j}. Drop or encode that "
            "column."
        ) from error
