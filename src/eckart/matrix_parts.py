"""Parts of the rows of a matrix, each of which can be read again: those of a matrix in memory, and
others that are read in another way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np

from eckart.matrix import Counts, Dense, Matrix, Observed, row_slice

KINDS = {"dense": Dense, "counts": Counts, "observed": Observed}


class Parts(Protocol):
    """Parts of the rows of one matrix. ``load`` may be called again, in any order; an empty part is
    left out.

    Those of data that are not in memory have a ``token``, too: what tells these data from others,
    without reading them where that can be helped.
    """

    @property
    def kind(self) -> str:
        """One of "dense", "counts" and "observed", as in ``engines.protocol.Placed``."""
        ...

    @property
    def lengths(self) -> Sequence[int]:
        """Rows of each part."""
        ...

    @property
    def n_columns(self) -> int: ...

    @property
    def dtype(self) -> np.dtype: ...

    def load(self, part: int) -> Matrix:
        """One part in memory, rows counted from its own start."""
        ...


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
        return float(
            m.array.nbytes
            if isinstance(m, Dense)
            else m.indptr.nbytes + m.indices.nbytes + m.data.nbytes
        )

    @cached_property
    def lengths(self) -> list[int]:
        count = self.matrix.shape[0]
        assert count is not None
        return [min(self.rows, count - a) for a in range(0, count, self.rows)]

    def load(self, part: int) -> Matrix:
        a = part * self.rows
        return replace(row_slice(self.matrix, a, a + self.lengths[part]), rows=None, columns=None)


@dataclass(frozen=True, eq=False)
class PartsOver:
    """Parts that are others, read in another way: what is not said here, those answer."""

    parts: Any

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.parts, name)


@dataclass(frozen=True, eq=False)
class ValueParts(PartsOver):
    """Parts with other values, of type ``dtype``, at the same places: ``do`` of each, with
    arguments of its own where there are some."""

    do: Callable[..., Any]
    dtype: np.dtype
    given: list[tuple[Any, ...]] | None = None

    @property
    def token(self) -> str:
        return f"{self.parts.token} {words_for(self.do)}"

    @property
    def turned(self) -> Any:
        other = getattr(self.parts, "turned", None)
        return (
            None
            if other is None or self.given is not None
            else ValueParts(other, self.do, self.dtype)
        )

    def load(self, part: int) -> Any:
        return self.do(self.parts.load(part), *(self.given[part] if self.given is not None else ()))


@dataclass(frozen=True, eq=False)
class FewerParts(PartsOver):
    """Parts with some of the entries of others, or with some of their rows: ``do`` of each with
    arguments of its own."""

    do: Callable[..., Any]
    given: list[tuple[Any, ...]]
    lengths: list[int]

    entries = None
    turned = None

    def load(self, part: int) -> Any:
        return self.do(self.parts.load(part), *self.given[part])


@dataclass(frozen=True, eq=False)
class LargerParts(PartsOver):
    """Parts of a larger matrix with the same entries: columns up to ``n_columns``, and ``more``
    rows at the end of the last part."""

    n_columns: int
    more: int

    @property
    def lengths(self) -> list[int]:
        *others, last = self.parts.lengths
        return [*others, last + self.more]

    @property
    def token(self) -> str:
        return f"{self.parts.token} {self.n_columns} {self.more}"

    @property
    def turned(self) -> Any:
        other = getattr(self.parts, "turned", None)
        return (
            None
            if other is None
            else LargerParts(other, sum(self.lengths), self.n_columns - self.parts.n_columns)
        )

    def load(self, part: int) -> Any:
        return larger_part(
            self.parts.load(part),
            self.n_columns,
            self.more if part == len(self.parts.lengths) - 1 else 0,
        )


def larger_part(part: Any, n_columns: int, more: int) -> Any:
    """The same entries with more columns, and more empty rows below.

    >>> larger_part(Observed(np.array([0, 1]), np.array([1]), np.array([2.0]), 3), 5, 2).shape
    (3, 5)
    """
    return type(part)(
        np.append(part.indptr, np.full(more, part.indptr[-1])), part.indices, part.data, n_columns
    )


def words_for(do: Callable[..., Any]) -> str:
    """A function and what it was given, in words that are the same in every process: a checkpoint
    names its data by them.

    >>> words_for(partial(kind_of, None))
    'eckart.matrix_parts.kind_of (None,)'
    """
    if isinstance(do, partial):
        return f"{words_for(do.func)} {do.args!r}"
    return f"{do.__module__}.{do.__qualname__}"
