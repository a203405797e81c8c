"""A matrix of any kind as parts of consecutive rows, each of which can be read again: from memory, from files, by tasks of a cluster.

``Dense`` holds parts as its row blocks. ``ObservedParts`` and ``CountsParts`` are an ``Observed`` and a ``Counts`` whose entries are read when somebody asks
for all of them at once: whatever works on entries in memory works on parts, and what works part by part (``engines.blocks``) never holds them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from eckart.errors import InputError
from eckart.index.compress import index_dtype
from eckart.matrix import Counts, Dense, Matrix, Observed, row_parts

KINDS = {"dense": Dense, "counts": Counts, "observed": Observed}
FILE_BLOCK, LEAST_FILE_BLOCK = 2**24, 2**20
"""Most and least bytes of a file whose known entries are listed at a time: as entries they take three times as much, and the next block is made
while one is worked on."""


class Parts(Protocol):
    """Parts of the rows of one matrix. ``load`` may be called again, in any order; an empty part is left out."""

    kind: str
    """"dense", "counts" or "observed", as in ``engines.protocol.Placed``."""
    lengths: Sequence[int]
    """Rows of each part."""
    n_columns: int
    dtype: np.dtype

    @property
    def token(self) -> str:
        """What tells these data from others, without reading them where that can be helped."""
        ...

    def load(self, part: int) -> Matrix:
        """One part in memory, rows counted from its own start."""
        ...


class EntryFacts(NamedTuple):
    """Of the stored entries of a matrix: how many, their sum and that of their squares, the least and the largest, whether all are whole numbers, and the
    different values among the first 10,000 (or a few more, where parts are merged; None where they are more than 64)."""

    entries: int
    total: float
    square: float
    least: float
    most: float
    whole: bool
    values: np.ndarray | None
    looked: int

    @classmethod
    def of(cls, matrix: Any) -> EntryFacts:
        facts = LookedUp(matrix.data)
        return cls(*(getattr(facts, name) for name in cls._fields))

    def merge(self, other: EntryFacts) -> EntryFacts:
        """Of both, these first."""
        values, looked = self.values, self.looked
        if looked < 10_000:
            both = None if values is None or other.values is None else np.union1d(values, other.values)
            values, looked = (both if both is not None and len(both) <= 64 else None), looked + other.looked
        whole = self.whole and other.whole
        least, most = min(self.least, other.least), max(self.most, other.most)
        sums = self.entries + other.entries, self.total + other.total, self.square + other.square
        return EntryFacts(*sums, least, most, whole, values, looked)

    @property
    def deviation(self) -> float:
        """The standard deviation."""
        return _deviation(self)


def _deviation(facts: Any) -> float:
    count = facts.entries
    return float(np.sqrt(max(facts.square / count - (facts.total / count) ** 2, 0.0))) if count else 0.0


def _squares(a: np.ndarray) -> float:
    total = 0.0
    with np.errstate(over="ignore"):  # entries that cannot be squared are refused elsewhere
        for start in range(0, len(a), 2**16):  # so many numbers in float64 stay in cache
            wide = a[start : start + 2**16].astype(np.float64, copy=False)
            total += float(wide @ wide)
    return total


class LookedUp:
    """The facts of entries in memory, each looked for when it is asked for: every one of them is a pass over the entries."""

    def __init__(self, entries: np.ndarray):
        self._a = entries

    entries = property(lambda self: len(self._a))
    total = cached_property(lambda self: float(self._a.sum(dtype=np.float64)))
    square = cached_property(lambda self: _squares(self._a))
    least = cached_property(lambda self: float(self._a.min(initial=np.inf)))
    most = cached_property(lambda self: float(self._a.max(initial=-np.inf)))
    whole = cached_property(lambda self: bool((self._a == np.rint(self._a)).all()))
    looked = property(lambda self: min(len(self._a), 10_000))
    deviation = property(_deviation)

    @cached_property
    def values(self) -> np.ndarray | None:
        head = np.unique(self._a[:10_000])
        return head if len(head) <= 64 else None


def facts_of(matrix: Any) -> EntryFacts | LookedUp:
    """The facts of a sparse or partly observed matrix; of one in parts without reading it into memory."""
    return matrix.facts if isinstance(matrix, _Parted) else LookedUp(matrix.data)


def kind_of(matrix: Matrix) -> str:
    """The word for a matrix's kind."""
    return next(name for name, base in KINDS.items() if isinstance(matrix, base))


@dataclass(frozen=True, eq=False)
class MemoryParts:
    """A matrix in memory (or a memory map), cut after every ``rows`` rows."""

    matrix: Matrix
    rows: int

    @property
    def kind(self) -> str:
        return kind_of(self.matrix)

    @property
    def n_columns(self) -> int:
        return self.matrix.shape[1]

    @property
    def dtype(self) -> np.dtype:
        return self.matrix.dtype

    @property
    def nbytes(self) -> float:
        m = self.matrix
        return float(m.array.nbytes if isinstance(m, Dense) else m.indptr.nbytes + m.indices.nbytes + m.data.nbytes)

    @cached_property
    def lengths(self) -> list[int]:
        count = self.matrix.shape[0]
        assert count is not None
        return [min(self.rows, count - a) for a in range(0, count, self.rows)]

    def load(self, part: int) -> Matrix:
        a = part * self.rows
        m, b = self.matrix, a + self.lengths[part]
        if isinstance(m, Dense):
            return Dense(m.array[a:b])
        first, last = m.indptr[a], m.indptr[b]
        return type(m)(m.indptr[a : b + 1] - first, m.indices[first:last], m.data[first:last], m.n_columns)


@dataclass(frozen=True, eq=False)
class _Over:
    """Parts that are others, read in another way: what is not said here, those answer."""

    parts: Any

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.parts, name)


@dataclass(frozen=True, eq=False)
class GapParts(_Over):
    """Dense parts whose NaN are entries that nobody knows; an engine may keep so many bytes of them."""

    room: float = float("inf")

    kind = "observed"

    def load(self, part: int) -> Observed:
        return without_gaps(self.parts.load(part))


@dataclass(frozen=True, eq=False)
class ZeroParts(_Over):
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


@dataclass(frozen=True, eq=False)
class ValueParts(_Over):
    """Parts with other values, of type ``dtype``, at the same places: ``do`` of each, with arguments of its own where there are some."""

    do: Callable[..., Any]
    dtype: np.dtype
    given: list[tuple[Any, ...]] | None = None

    @property
    def token(self) -> str:
        return f"{self.parts.token} {words_for(self.do)}"

    @property
    def turned(self) -> Any:
        other = getattr(self.parts, "turned", None)
        return None if other is None or self.given is not None else ValueParts(other, self.do, self.dtype)

    def load(self, part: int) -> Any:
        return self.do(self.parts.load(part), *(self.given[part] if self.given is not None else ()))


@dataclass(frozen=True, eq=False)
class FewerParts(_Over):
    """Parts with some of the entries of others, or with some of their rows: ``do`` of each with arguments of its own."""

    do: Callable[..., Any]
    given: list[tuple[Any, ...]]
    lengths: list[int]

    entries = None
    turned = None

    def load(self, part: int) -> Any:
        return self.do(self.parts.load(part), *self.given[part])


def words_for(do: Callable[..., Any]) -> str:
    """A function and what it was given, in words that are the same in every process: a checkpoint names its data by them.

    >>> words_for(without_gaps)
    'eckart.matrix_blocks.without_gaps'
    """
    if isinstance(do, partial):
        return f"{words_for(do.func)} {do.args!r}"
    return f"{do.__module__}.{do.__qualname__}"


def with_values(x: Any, do: Callable[..., Any], dtype: Any = None, rows: np.ndarray | None = None) -> Any:
    """``do(x)``, a function of each entry's value; of a matrix in parts when they are read. ``dtype`` is that of the new values where it is another one.
    With ``rows``, an array with a row for each row of x, ``do(x, rows)``."""
    if not isinstance(x, _Parted):
        return do(x) if rows is None else do(x, rows)
    dtype = np.dtype(dtype or x.parts.dtype)
    given = None if rows is None else [(part,) for part in by_parts(x, rows)]
    if hasattr(x.parts, "mapped"):
        return of_parts(x.parts.mapped(do, given=given, dtype=dtype), x.rows, x.columns)
    return of_parts(ValueParts(x.parts, do, dtype, given), x.rows, x.columns)


def fewer(x: Any, do: Callable[..., Any], given: list[tuple[Any, ...]], lengths: list[int] | None = None) -> Any:
    """A matrix in parts with some of its entries, or (``lengths`` of each part) of its rows, whose labels are lost then: ``do(part, *given[part])``."""
    rows = x.rows if lengths is None else None
    known = list(x.parts.lengths) if lengths is None else lengths
    if hasattr(x.parts, "mapped"):
        return of_parts(x.parts.mapped(do, given=given, entries=None, lengths=known), rows, x.columns)
    return of_parts(FewerParts(x.parts, do, given, known), rows, x.columns)


def by_parts(x: Any, rows: np.ndarray) -> list[np.ndarray]:
    """An array with a row for each row of a matrix in parts, cut as it is."""
    return np.split(rows, np.cumsum(x.parts.lengths)[:-1])


def of_each_part(
    x: Any, do: Callable[..., Any], given: list[tuple[Any, ...]] | None = None, shared: tuple[Any, ...] = ()
) -> list[Any]:
    """``do(part, *given[part], *shared)`` of every part of a matrix, where they are; of one piece ``[do(x)]``."""
    if not isinstance(x, _Parted):
        return [do(x, *(given[0] if given else ()), *shared)]
    if hasattr(x.parts, "each"):
        return x.parts.each(do, given, shared)
    return [do(x.parts.load(p), *(given[p] if given else ()), *shared) for p in range(len(x.parts.lengths))]


def _entries_of(part: Any) -> int:
    return part.nnz


def _row_counts(part: Any) -> np.ndarray:
    return part.row_counts()


def _column_counts(part: Any) -> np.ndarray:
    return part.column_counts()


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
            yield from (part.array for part in row_parts(self.parts.load(p), rows) if isinstance(part, Dense))

    def with_gaps(self, rows: np.ndarray | None, columns: np.ndarray | None) -> Observed:
        """The same rows, NaN for unknown."""
        parts = self.parts.with_gaps() if hasattr(self.parts, "with_gaps") else GapParts(self.parts)
        return ObservedParts(parts, rows, columns)


class _Parted:
    """What ``ObservedParts`` and ``CountsParts`` share: sizes are known, entries are read together only when they are asked for."""

    parts: Any
    n_columns: int
    rows: np.ndarray | None
    columns: np.ndarray | None

    def __new__(cls, *args: Any, **named: Any) -> Any:
        if "indptr" in named:  # dataclasses.replace: other entries, which are in memory
            return (Observed if issubclass(cls, Observed) else Counts)(**named)
        return super().__new__(cls)

    def __init__(self, parts: Any, rows: np.ndarray | None = None, columns: np.ndarray | None = None):
        for name, value in {"parts": parts, "n_columns": parts.n_columns, "rows": rows, "columns": columns}.items():
            object.__setattr__(self, name, value)

    @property
    def shape(self) -> tuple[int, int]:
        return int(sum(self.parts.lengths)), self.n_columns

    @property
    def dtype(self) -> np.dtype:
        return self.parts.dtype

    @cached_property
    def _whole(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        loaded = [self.parts.load(p) for p in range(len(self.parts.lengths))]
        counts = np.concatenate([part.row_counts() for part in loaded])
        indptr = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        indices = np.concatenate([part.indices.astype(index_dtype(self.n_columns), copy=False) for part in loaded])
        return indptr, indices, np.concatenate([part.data for part in loaded])

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
        return np.concatenate(of_each_part(self, _row_counts))

    def column_counts(self) -> np.ndarray:
        return sum(of_each_part(self, _column_counts))  # type: ignore[return-value]

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


class ObservedParts(_Parted, Observed):
    """A partly observed matrix as parts of its rows."""


class CountsParts(_Parted, Counts):
    """A sparse matrix as parts of its rows."""


def some_entries(matrix: Any, entries: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, columns and values of stored entries, given by their numbers in rising order; parts answer where they are.

    >>> x = Observed(np.array([0, 1, 1, 3]), np.array([1, 0, 2]), np.array([5.0, 6.0, 7.0]), 3)
    >>> [each.tolist() for each in some_entries(x, np.array([0, 2]))]
    [[0, 2], [1, 2], [5.0, 7.0]]
    """
    if parts_of(matrix) is None:
        return np.searchsorted(matrix.indptr, entries, side="right") - 1, matrix.indices[entries], matrix.data[entries]
    ends = np.cumsum(getattr(matrix.parts, "entries", None) or of_each_part(matrix, _entries_of))
    mine = np.split(entries, np.searchsorted(entries, ends[:-1]))
    first = np.concatenate([[0], ends[:-1]])
    starts = np.concatenate([[0], np.cumsum(matrix.parts.lengths)[:-1]])
    found = of_each_part(matrix, _picked, [(own - a, int(row)) for own, a, row in zip(mine, first, starts)])
    rows, columns, values = (np.concatenate(each) for each in zip(*found))
    return rows, columns, values


def _picked(part: Any, entries: np.ndarray, row: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rows = np.searchsorted(part.indptr, entries, side="right") - 1
    return rows + row, part.indices[entries], part.data[entries]


def first_rows(x: Any, entries: int) -> Any:
    """The first rows of a matrix in parts, as one piece: whole parts, until there are so many entries."""
    held: list[Any] = []
    for p in range(len(x.parts.lengths)):
        if sum(part.nnz for part in held) < entries:
            held.append(x.parts.load(p))
    indptr = np.concatenate([[0], np.cumsum(np.concatenate([part.row_counts() for part in held]), dtype=np.int64)])
    indices, data = (np.concatenate([getattr(part, name) for part in held]) for name in ("indices", "data"))
    return KINDS["observed" if isinstance(x, Observed) else "counts"](indptr, indices, data, x.n_columns)  # type: ignore[abstract]


def some_rows(matrix: Any, rows: np.ndarray) -> tuple[Any, np.ndarray]:
    """A matrix that holds these rows, and where they stand in it: the matrix itself, or the rows alone out of the parts that they are in."""
    if parts_of(matrix) is None:
        return matrix, rows
    ends = np.cumsum(matrix.parts.lengths)
    at = np.searchsorted(ends, rows, side="right")
    counts, indices, data = (
        [np.zeros(0, np.int64)] * len(rows),
        [np.zeros(0, np.int32)] * len(rows),
        [np.zeros(0)] * len(rows),
    )
    for p in np.unique(at):
        part = matrix.parts.load(int(p))
        for q in np.flatnonzero(at == p):
            i = rows[q] - (ends[p] - matrix.parts.lengths[p])
            span = slice(part.indptr[i], part.indptr[i + 1])
            counts[q], indices[q], data[q] = np.array([span.stop - span.start]), part.indices[span], part.data[span]
    indptr = np.concatenate([[0], np.cumsum(np.concatenate(counts or [np.zeros(0, np.int64)]))]).astype(np.int64)
    at_columns, values = (np.concatenate(each) if len(rows) else np.zeros(0) for each in (indices, data))
    kind = Observed if isinstance(matrix, Observed) else Counts
    return kind(indptr, at_columns, values, matrix.n_columns), np.arange(len(rows))


def even_cuts(counts: np.ndarray, blocks: int) -> np.ndarray:
    """Boundaries of at most so many ranges of rows with about equally many entries each (a row counts as one entry more).

    >>> even_cuts(np.array([5, 0, 0, 5, 1]), 2).tolist()
    [0, 3, 5]
    """
    ends = np.cumsum(np.asarray(counts, np.int64) + 1)
    goals = ends[-1] * np.arange(1, blocks) // blocks
    return np.unique(np.concatenate([[0], np.searchsorted(ends, goals, side="right"), [len(counts)]]))


def gaps_of_file(matrix: Dense, room: float) -> Observed:
    """A memory map of rows, NaN for unknown, as parts that are made of the file in every pass; ``room`` bytes of them may be kept."""
    # two are held beside what is kept, each several times over: as rows, as the places of its entries, by rows and by columns
    block = min(FILE_BLOCK, max(LEAST_FILE_BLOCK, room / 16))
    rows = max(1, int(block) // max(1, matrix.shape[1] * matrix.dtype.itemsize))
    return ObservedParts(GapParts(MemoryParts(matrix, rows), room), matrix.rows, matrix.columns)


def parts_of(matrix: Matrix) -> Any:
    """The parts that a matrix consists of, or None where it is one piece."""
    return getattr(matrix.values if isinstance(matrix, Dense) else matrix, "parts", None) if _parted(matrix) else None


def _parted(matrix: Matrix) -> bool:
    return isinstance(matrix, _Parted) or (isinstance(matrix, Dense) and isinstance(matrix.values, DenseParts))


def of_parts(parts: Any, rows: np.ndarray | None = None, columns: np.ndarray | None = None) -> Matrix:
    """The matrix of these parts."""
    if sum(parts.lengths) == 0:
        raise InputError("X has no row, wanted at least one")
    if parts.kind == "dense":
        return Dense(DenseParts(parts, columns), rows, columns)
    return (ObservedParts if parts.kind == "observed" else CountsParts)(parts, rows, columns)
