"""A matrix of any kind as parts of consecutive rows, each of which can be read again: from memory,
from files, by tasks of a cluster.

``Dense`` holds parts as its row blocks. ``ObservedParts`` and ``CountsParts`` are an ``Observed``
and a ``Counts`` whose entries are read when somebody asks for all of them at once: whatever works
on entries in memory works on parts, and what works part by part (``engines.blocks``) never holds
them all.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter, methodcaller
from pathlib import Path
from typing import Any

import numpy as np

from eckart.entry_facts import EntryFacts, LazyFacts
from eckart.errors import InputError
from eckart.index.compress import index_dtype
from eckart.matrix import Counts, Dense, Matrix, Observed, row_parts
from eckart.matrix_parts import (
    FewerParts,
    LargerParts,
    MemoryParts,
    PartsOver,
    ValueParts,
    larger_part,
)

FILE_BLOCK, LEAST_FILE_BLOCK = 2**24, 2**20
"""Most and least bytes of a file whose known entries are listed at a time: as entries they take
three times as much, and the next block is made while one is worked on."""


def facts_of(matrix: Any) -> EntryFacts | LazyFacts:
    """The facts of a sparse or partly observed matrix; of one in parts without reading it into
    memory."""
    return matrix.facts if isinstance(matrix, _Parted) else LazyFacts(matrix.data)


@dataclass(frozen=True, eq=False)
class GapParts(PartsOver):
    """Dense parts whose NaN are entries that nobody knows; an engine may keep so many bytes of
    them."""

    room: float = float("inf")

    kind = "observed"

    def load(self, part: int) -> Observed:
        return without_gaps(self.parts.load(part))


@dataclass(frozen=True, eq=False)
class ZeroParts(PartsOver):
    """Partly observed parts whose absent entries are zero."""

    kind = "counts"

    @property
    def turned(self) -> Any:
        other = getattr(self.parts, "turned", None)
        return None if other is None else ZeroParts(other)

    def load(self, part: int) -> Counts:
        return as_counts(self.parts.load(part))


def as_counts(x: Observed) -> Counts:
    """The same entries, the absent ones zero; of a matrix in parts without reading it.

    >>> as_counts(Observed(np.array([0, 1]), np.array([1]), np.array([2.0]), 3)).shape
    (1, 3)
    """
    if isinstance(x, ObservedParts):
        parts = x.parts.as_counts() if hasattr(x.parts, "as_counts") else ZeroParts(x.parts)
        return CountsParts(parts, x.rows, x.columns)
    return Counts(x.indptr, x.indices, x.data, x.n_columns, x.rows, x.columns)


def with_values(
    x: Any, do: Callable[..., Any], dtype: Any = None, rows: np.ndarray | None = None
) -> Any:
    """``do(x)``, a function of each entry's value; of a matrix in parts when they are read.
    ``dtype`` is that of the new values where it is another one. With ``rows``, an array with a row
    for each row of x, ``do(x, rows)``."""
    if not isinstance(x, _Parted):
        return do(x) if rows is None else do(x, rows)
    dtype = np.dtype(dtype or x.parts.dtype)
    given = None if rows is None else [(part,) for part in by_parts(x, rows)]
    if hasattr(x.parts, "mapped"):
        return of_parts(x.parts.mapped(do, given=given, dtype=dtype), x.rows, x.columns)
    return of_parts(ValueParts(x.parts, do, dtype, given), x.rows, x.columns)


def fewer(
    x: Any, do: Callable[..., Any], given: list[tuple[Any, ...]], lengths: list[int] | None = None
) -> Any:
    """A matrix in parts with some of its entries, or (``lengths`` of each part) of its rows, whose
    labels are lost then: ``do(part, *given[part])``."""
    rows = x.rows if lengths is None else None
    known = list(x.parts.lengths) if lengths is None else lengths
    if hasattr(x.parts, "mapped"):
        return of_parts(
            x.parts.mapped(do, given=given, entries=None, lengths=known), rows, x.columns
        )
    return of_parts(FewerParts(x.parts, do, given, known), rows, x.columns)


def larger(
    x: Any, shape: tuple[int, int], rows: np.ndarray | None, columns: np.ndarray | None
) -> Any:
    """A matrix in parts with more rows and columns behind its own, all of them empty; its entries
    stay where they are."""
    more = shape[0] - x.shape[0]
    grown = LargerParts(x.parts, shape[1], more)
    if hasattr(x.parts, "mapped"):
        given = [(shape[1], 0)] * (len(x.parts.lengths) - 1) + [(shape[1], more)]
        grown = x.parts.mapped(larger_part, given=given, n_columns=shape[1], lengths=grown.lengths)
    return of_parts(grown, rows, columns)


def by_parts(x: Any, rows: np.ndarray) -> list[np.ndarray]:
    """An array with a row for each row of a matrix in parts, cut as it is."""
    return np.split(rows, np.cumsum(x.parts.lengths)[:-1])


def of_each_part(
    x: Any,
    do: Callable[..., Any],
    given: list[tuple[Any, ...]] | None = None,
    shared: tuple[Any, ...] = (),
) -> list[Any]:
    """``do(part, *given[part], *shared)`` of every part of a matrix, where they are; of one piece
    ``[do(x)]``."""
    if not isinstance(x, _Parted):
        return [do(x, *(given[0] if given else ()), *shared)]
    if hasattr(x.parts, "each"):
        return x.parts.each(do, given, shared)
    return [
        do(x.parts.load(p), *(given[p] if given else ()), *shared)
        for p in range(len(x.parts.lengths))
    ]


def without_gaps(rows: Any) -> Observed:
    """Dense rows as what is known of them."""
    return Observed.from_nan(np.asarray(rows.array, rows.dtype))


@dataclass(frozen=True, eq=False)
class DenseParts:
    """Parts as the row blocks of a ``Dense``."""

    parts: Any
    columns: np.ndarray | None = None
    rereadable = True

    @property
    def shape(self) -> tuple[int | None, int]:
        return int(sum(self.parts.lengths)), self.parts.n_columns

    @property
    def dtype(self) -> np.dtype:
        return self.parts.dtype

    def blocks(self, rows: int) -> Iterator[np.ndarray]:
        for p in range(len(self.parts.lengths)):
            yield from (
                part.array
                for part in row_parts(self.parts.load(p), rows)
                if isinstance(part, Dense)
            )

    def with_gaps(self, rows: np.ndarray | None, columns: np.ndarray | None) -> Observed:
        """The same rows, NaN for unknown."""
        parts = self.parts.with_gaps() if hasattr(self.parts, "with_gaps") else GapParts(self.parts)
        return ObservedParts(parts, rows, columns)


class _Parted:
    """What ``ObservedParts`` and ``CountsParts`` share: sizes are known, entries are read together
    only when they are asked for."""

    parts: Any
    n_columns: int
    rows: np.ndarray | None
    columns: np.ndarray | None

    def __new__(cls, *args: Any, **named: Any) -> Any:
        # type(x)(indptr, indices, ...): other entries, which are in memory
        if "indptr" in named or len(args) >= 4:
            return (Observed if issubclass(cls, Observed) else Counts)(*args, **named)
        return super().__new__(cls)

    def __init__(
        self, parts: Any, rows: np.ndarray | None = None, columns: np.ndarray | None = None
    ):
        for name, value in {
            "parts": parts,
            "n_columns": parts.n_columns,
            "rows": rows,
            "columns": columns,
        }.items():
            object.__setattr__(self, name, value)

    @property
    def shape(self) -> tuple[int, int]:
        return int(sum(self.parts.lengths)), self.n_columns

    @property
    def dtype(self) -> np.dtype:
        return self.parts.dtype

    @cached_property
    def _whole(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """All entries: those of parts that stand in files as a map of one temporary file, so that
        who reads them one after another holds few."""
        parts, sizes = self.parts, getattr(self.parts, "entries", None)
        loaded = (parts.load(p) for p in range(len(parts.lengths)))
        if sizes is None or not hasattr(parts, "folder"):
            return _one_below_another(list(loaded), self.n_columns)
        kinds = index_dtype(self.n_columns), np.dtype(parts.dtype)
        indices, data = (_mapped(int(sum(sizes)), kind, parts.folder) for kind in kinds)
        counts, end = [], 0
        for part in loaded:
            at = slice(end, end := end + part.nnz)
            indices[at], data[at] = part.indices, part.data
            counts.append(part.row_counts())
        return (
            np.concatenate([[0], np.cumsum(np.concatenate(counts), dtype=np.int64)]),
            indices,
            data,
        )

    @cached_property
    def facts(self) -> EntryFacts:
        """See ``facts_of``."""
        if hasattr(self.parts, "facts"):
            return self.parts.facts()
        found = EntryFacts.of(self.parts.load(0))
        for p in range(1, len(self.parts.lengths)):
            found = found.merge(EntryFacts.of(self.parts.load(p)))
        return found

    def row_counts(self) -> np.ndarray:
        return np.concatenate(of_each_part(self, methodcaller("row_counts")))

    def column_counts(self) -> np.ndarray:
        return sum(of_each_part(self, methodcaller("column_counts")))  # type: ignore[return-value]

    @property
    def indptr(self) -> np.ndarray:
        return self._whole[0]

    @property
    def indices(self) -> np.ndarray:
        return self._whole[1]

    @property
    def data(self) -> np.ndarray:
        return self._whole[2]

    @property
    def nnz(self) -> int:
        known = getattr(self.parts, "entries", None)
        return self.facts.entries if known is None else int(sum(known))


def _mapped(count: int, dtype: np.dtype, folder: Path) -> np.ndarray:
    """An array in a file of this folder that goes with the array."""
    with tempfile.TemporaryFile(dir=folder) as file:
        return np.memmap(file, dtype, shape=count) if count else np.empty(0, dtype)


def _one_below_another(
    parts: list[Any], n_columns: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    counts = np.concatenate([part.row_counts() for part in parts])
    indptr = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    indices = np.concatenate(
        [part.indices.astype(index_dtype(n_columns), copy=False) for part in parts]
    )
    return indptr, indices, np.concatenate([part.data for part in parts])


def stacked(pieces: list[Any]) -> Any:
    """Matrices of one kind and as many columns as one, the first one's rows first; labels of rows
    where all have them."""
    first = pieces[0]
    if len(pieces) == 1:
        return first
    rows = (
        None
        if any(piece.rows is None for piece in pieces)
        else np.concatenate([piece.rows for piece in pieces])
    )
    if isinstance(first, Dense):
        return Dense(np.concatenate([piece.array for piece in pieces]), rows, first.columns)
    return type(first)(
        *_one_below_another(pieces, first.n_columns), first.n_columns, rows, first.columns
    )


class ObservedParts(_Parted, Observed):
    """A partly observed matrix as parts of its rows."""


class CountsParts(_Parted, Counts):
    """A sparse matrix as parts of its rows."""


def some_entries(matrix: Any, entries: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, columns and values of stored entries, given by their numbers in rising order; parts
    answer where they are.

    >>> x = Observed(np.array([0, 1, 1, 3]), np.array([1, 0, 2]), np.array([5.0, 6.0, 7.0]), 3)
    >>> [each.tolist() for each in some_entries(x, np.array([0, 2]))]
    [[0, 2], [1, 2], [5.0, 7.0]]
    """
    if parts_of(matrix) is None:
        return _picked(matrix, entries, 0)
    ends = np.cumsum(
        getattr(matrix.parts, "entries", None) or of_each_part(matrix, attrgetter("nnz"))
    )
    mine = np.split(entries, np.searchsorted(entries, ends[:-1]))
    first = np.concatenate([[0], ends[:-1]])
    starts = np.concatenate([[0], np.cumsum(matrix.parts.lengths)[:-1]])
    found = of_each_part(
        matrix, _picked, [(own - a, int(row)) for own, a, row in zip(mine, first, starts)]
    )
    rows, columns, values = (np.concatenate(each) for each in zip(*found))
    return rows, columns, values


def _picked(part: Any, entries: np.ndarray, row: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rows = np.searchsorted(part.indptr, entries, side="right") - 1
    return rows + row, part.indices[entries], part.data[entries]


def _in_memory(x: Any) -> type[Observed] | type[Counts]:
    return Observed if isinstance(x, Observed) else Counts


def first_rows(x: Any, entries: int) -> Any:
    """The first rows of a matrix in parts, as one piece: whole parts, until there are so many
    entries."""
    held: list[Any] = []
    for p in range(len(x.parts.lengths)):
        if sum(part.nnz for part in held) < entries:
            held.append(x.parts.load(p))
    return _in_memory(x)(*_one_below_another(held, x.n_columns), x.n_columns)


def some_rows(matrix: Any, rows: np.ndarray) -> tuple[Any, np.ndarray]:
    """A matrix that holds these rows, and where they stand in it: the matrix itself, or the rows
    alone out of the parts that they are in."""
    if parts_of(matrix) is None:
        return matrix, rows
    ends = np.cumsum(matrix.parts.lengths)
    at = np.searchsorted(ends, rows, side="right")
    counts = np.zeros(len(rows), np.int64)
    indices, data = [np.zeros(0, np.int32)] * len(rows), [np.zeros(0)] * len(rows)
    for p in np.unique(at):
        part = matrix.parts.load(int(p))
        for q in np.flatnonzero(at == p):
            i = rows[q] - (ends[p] - matrix.parts.lengths[p])
            span = slice(part.indptr[i], part.indptr[i + 1])
            counts[q], indices[q], data[q] = (
                span.stop - span.start,
                part.indices[span],
                part.data[span],
            )
    indptr = np.concatenate([[0], np.cumsum(counts)])
    at_columns, values = (
        np.concatenate(each) if len(rows) else np.zeros(0) for each in (indices, data)
    )
    return _in_memory(matrix)(indptr, at_columns, values, matrix.n_columns), np.arange(len(rows))


def even_cuts(counts: np.ndarray, blocks: int) -> np.ndarray:
    """Boundaries of at most so many ranges of rows with about equally many entries each (a row
    counts as one entry more).

    >>> even_cuts(np.array([5, 0, 0, 5, 1]), 2).tolist()
    [0, 3, 5]
    """
    ends = np.cumsum(np.asarray(counts, np.int64) + 1)
    goals = ends[-1] * np.arange(1, blocks) // blocks
    return np.unique(
        np.concatenate([[0], np.searchsorted(ends, goals, side="right"), [len(counts)]])
    )


def gaps_of_file(matrix: Dense, room: float) -> Observed:
    """A memory map of rows, NaN for unknown, as parts that are made of the file in every pass;
    ``room`` bytes of them may be kept."""
    # two are held beside what is kept, each several times over: as rows, as the places of its
    # entries, by rows and by columns
    block = min(FILE_BLOCK, max(LEAST_FILE_BLOCK, room / 16))
    rows = max(1, int(block) // max(1, matrix.shape[1] * matrix.dtype.itemsize))
    return ObservedParts(GapParts(MemoryParts(matrix, rows), room), matrix.rows, matrix.columns)


def parts_of(matrix: Matrix) -> Any:
    """The parts that a matrix consists of, or None where it is one piece."""
    rows = matrix.values if isinstance(matrix, Dense) else matrix
    return rows.parts if isinstance(rows, (_Parted, DenseParts)) else None


def of_parts(
    parts: Any, rows: np.ndarray | None = None, columns: np.ndarray | None = None
) -> Matrix:
    """The matrix of these parts."""
    if sum(parts.lengths) == 0:
        raise InputError("X must have at least one row, got none")
    if parts.kind == "dense":
        return Dense(DenseParts(parts, columns), rows, columns)
    return (ObservedParts if parts.kind == "observed" else CountsParts)(parts, rows, columns)
