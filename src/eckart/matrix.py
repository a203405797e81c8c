"""Dense, Observed, Counts: what an absent entry means is decided once, here, and never asked again.

``Dense``     every entry is there (an array, a memory map, or a stream of row blocks).
``Observed``  absent = unknown; a stored zero is an observation.
``Counts``    absent = zero.

All three are frozen, keep row and column labels, and know their shape and floating dtype. Entries
are touched by engines only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from eckart.errors import InputError, invalid
from eckart.index.compress import check_compressed, check_pointers, index_dtype, transpose
from eckart.index.entries import assemble, floating, placed, sizes
from eckart.index.ids import Place, position
from eckart.index.labels import Labels


@runtime_checkable
class RowBlocks(Protocol):
    """A matrix that can only be read in blocks of consecutive rows, in order."""

    @property
    def columns(self) -> np.ndarray | None: ...

    @property
    def rereadable(self) -> bool: ...

    @property
    def shape(self) -> tuple[int | None, int]:
        """Rows (None while unknown) and columns."""
        ...

    @property
    def dtype(self) -> np.dtype: ...

    def blocks(self, rows: int) -> Iterator[np.ndarray]:
        """Arrays of at most ``rows`` rows; may be called again when ``rereadable``."""
        ...


@dataclass(frozen=True, eq=False)
class Dense:
    """A matrix whose entries are all present: ``values`` is an array, a memory map, or row blocks.

    >>> d = Dense(np.arange(6.0).reshape(3, 2), columns=np.array(["a", "b"]))
    >>> d.shape, d.dtype.name
    ((3, 2), 'float64')
    """

    values: np.ndarray | RowBlocks
    rows: np.ndarray | None = None
    columns: np.ndarray | None = None

    def __post_init__(self) -> None:
        if not hasattr(self.values, "shape") or not hasattr(self.values, "dtype"):
            raise invalid(
                "values",
                self.values,
                "an array of rows and columns; eckart.read takes lists, tables and files",
            )
        if isinstance(self.values, np.ndarray) and self.values.ndim != 2:
            raise wrong_ndim(self.values.ndim)
        _check_labels(self)

    @property
    def shape(self) -> tuple[int | None, int]:
        return self.values.shape  # type: ignore[return-value]

    @property
    def dtype(self) -> np.dtype:
        return floating(self.values.dtype)

    @property
    def in_memory(self) -> bool:
        """True for an array that can be indexed freely (memory maps included)."""
        return isinstance(self.values, np.ndarray)

    @property
    def array(self) -> np.ndarray:
        """The values of a matrix that is ``in_memory``."""
        assert isinstance(self.values, np.ndarray)
        return self.values

    @property
    def stream(self) -> RowBlocks:
        """The row blocks of a matrix that is not."""
        assert not isinstance(self.values, np.ndarray)
        return self.values


@dataclass(frozen=True, eq=False)
class _Compressed:
    """Compressed rows: entries ``data[indptr[i]:indptr[i+1]]`` stand in row i at columns
    ``indices[...]``."""

    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray
    n_columns: int
    rows: np.ndarray | None = None
    columns: np.ndarray | None = None

    def __post_init__(self) -> None:
        check_compressed(self.indptr, self.indices, self.data, self.n_columns)
        _check_labels(self)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.indptr) - 1, self.n_columns

    @property
    def dtype(self) -> np.dtype:
        return floating(self.data.dtype)

    @property
    def nnz(self) -> int:
        """How many entries are stored."""
        return len(self.data)

    def row_counts(self) -> np.ndarray:
        """Stored entries per row."""
        return np.diff(self.indptr)

    def column_counts(self) -> np.ndarray:
        """Stored entries per column."""
        return self._column_counts

    @cached_property
    def _column_counts(self) -> np.ndarray:
        counts = np.zeros(self.n_columns, np.int64)
        # some at a time: bincount makes integers of 8 bytes of them
        for at in range(0, len(self.indices), 2**18):
            counts += np.bincount(self.indices[at : at + 2**18], minlength=self.n_columns)
        counts.flags.writeable = False
        return counts

    def transposed(self) -> Any:
        """The transpose, of the same kind, labels swapped, each row in ascending order of columns;
        a new matrix, in linear time."""
        parts = transpose(self.indptr, self.indices, self.data, self.n_columns)
        return (Observed if isinstance(self, Observed) else Counts)(
            *parts, self.shape[0], self.columns, self.rows
        )

    @property
    def T(self) -> Any:
        """The same as ``transposed()``."""
        return self.transposed()

    @cached_property
    def row_index(self) -> Labels:
        """From row ids to positions and back."""
        return Labels(self.rows, self.shape[0], "row")

    @cached_property
    def column_index(self) -> Labels:
        """From column ids to positions and back."""
        return Labels(self.columns, self.shape[1], "column")

    def row_of(self, label: Any) -> int:
        """Position of the row of this label (or of this position, in a matrix without row
        labels)."""
        return self.row_index.index_of(label)

    def column_of(self, label: Any) -> int:
        """Position of the column of this label (or of this position, in a matrix without column
        labels)."""
        return self.column_index.index_of(label)

    def rows_of(self, labels: Any) -> np.ndarray:
        """Positions of many rows (int64)."""
        return self.row_index.indices_of(labels)

    def columns_of(self, labels: Any) -> np.ndarray:
        """Positions of many columns (int64)."""
        return self.column_index.indices_of(labels)

    @classmethod
    def from_scipy(
        cls, matrix: Any, rows: np.ndarray | None = None, columns: np.ndarray | None = None
    ) -> Any:
        """From any SciPy sparse matrix or array; duplicate entries are added up, as SciPy defines
        them.

        Parameters
        ----------
        matrix : the matrix, in any of SciPy's formats
        rows, columns : labels, where it has any

        Returns
        -------
        Any
            A matrix of this class.
        """
        csr = matrix.tocsr()
        check_pointers(csr.indptr, csr.indices, csr.data)
        if not csr.has_canonical_format:
            csr = csr.copy() if csr is matrix else csr
            csr.sum_duplicates()
        data = (
            csr.data
            if csr.data.dtype in (np.float32, np.float64)
            else csr.data.astype(floating(csr.data.dtype))
        )
        return cls(csr.indptr, csr.indices, data, csr.shape[1], rows, columns)

    def to_scipy(self) -> Any:
        """As a SciPy CSR array that shares memory."""
        from scipy import sparse

        out = sparse.csr_array(self.shape, dtype=self.data.dtype)
        kind = (
            np.int32 if self.nnz < 2**31 and self.indices.dtype == np.int32 else np.int64
        )  # SciPy wants one type for both
        out.data, out.indices, out.indptr = (
            self.data,
            self.indices.astype(kind, copy=False),
            self.indptr.astype(kind, copy=False),
        )
        return out  # the constructor would copy and check what was checked


@dataclass(frozen=True, eq=False)
class Observed(_Compressed):
    """A partially observed matrix: an absent entry is unknown, a stored zero is an observation.

    >>> x = np.array([[1.0, np.nan], [0.0, 3.0]])
    >>> Observed.from_nan(x).nnz
    3
    """

    @classmethod
    def from_nan(
        cls, values: np.ndarray, rows: np.ndarray | None = None, columns: np.ndarray | None = None
    ) -> Observed:
        """From a dense array in which NaN marks what was not observed.

        Parameters
        ----------
        values : the array
        rows, columns : labels, where it has any

        Returns
        -------
        Observed
            Its observed entries.
        """
        values = np.asarray(values)
        seen = ~np.isnan(values)
        indptr = np.concatenate([[0], np.cumsum(seen.sum(axis=1))])
        indices = np.broadcast_to(
            np.arange(values.shape[1], dtype=index_dtype(values.shape[1])), values.shape
        )[seen]
        return cls(
            indptr,
            indices,
            values[seen].astype(floating(values.dtype), copy=False),
            values.shape[1],
            rows,
            columns,
        )

    @classmethod
    def from_triples(
        cls,
        rows: Any,
        columns: Any,
        values: Any,
        *,
        shape: tuple[int | None, int | None] | None = None,
        duplicates: str = "error",
        row_labels: Any = None,
        column_labels: Any = None,
        dtype: Any = None,
    ) -> Observed:
        """From observations (row id, column id, value), one in each place of three arrays, lists or
        table columns.

        Parameters
        ----------
        rows, columns : ids: text, integers, dates or anything that can be hashed. They are kept as
            labels, in ascending order where they can be compared with each other, in order of
            appearance where they cannot.
        values : finite numbers, or None for observations that are all 1. float32 stays float32, all
            else becomes float64.
        shape : when given, the ids are positions in a matrix of this shape and there are no labels;
            None for one side keeps its labels.
        duplicates : what to do with several values at one place: refuse (``"error"``), or keep the
            ``"last"``, the ``"mean"`` or the ``"sum"``.
        row_labels, column_labels : all labels, in the order wanted; a label without an observation
            becomes an empty row or column.
        dtype : float32 or float64.

        Returns
        -------
        Observed
            A matrix with an entry for each place that was observed.

        Examples
        --------
        >>> x = Observed.from_triples(["bob", "ann", "bob"], [20, 10, 10], [5, 4, 0])
        >>> x.shape, list(x.rows), x.columns, x.nnz
        ((2, 2), ['ann', 'bob'], array([10, 20]), 3)
        >>> x.row_of("bob"), x.T.row_of(20)
        (1, 1)
        """
        n, m = sizes(shape, row_labels, column_labels)
        i, row_labels = placed("row", rows, n, row_labels)
        j, column_labels = placed("column", columns, m, column_labels)
        return cls.from_codes(i, j, values, (n, m), row_labels, column_labels, duplicates, dtype)

    @classmethod
    def from_codes(
        cls,
        rows: np.ndarray,
        columns: np.ndarray,
        values: Any,
        shape: tuple[int | None, int | None] = (None, None),
        row_labels: np.ndarray | None = None,
        column_labels: np.ndarray | None = None,
        duplicates: str = "error",
        dtype: Any = None,
        at: Place = position,
        name: str = "values",
    ) -> Observed:
        """From triples whose ids are positions already.

        Parameters
        ----------
        rows, columns, values : positions and values, one in each place of three arrays
        shape : numbers of rows and columns; None stands for that of the labels
        row_labels, column_labels : labels in the order of the positions
        duplicates : ``"error"``, ``"last"``, ``"mean"`` or ``"sum"``, as in ``from_triples``
        dtype : float32 or float64
        at, name : where a line stands and what the values are called, in errors

        Returns
        -------
        Observed
            A matrix with an entry for each place that was observed.

        Examples
        --------
        >>> Observed.from_codes(np.array([0, 1]), np.array([1, 1]), np.array([2.0, 3.0]), (2, 2)).indptr
        array([0, 1, 2])
        """
        kept = assemble(
            rows, columns, values, shape, row_labels, column_labels, duplicates, dtype, at, name
        )
        return cls(*kept, row_labels, column_labels)


@dataclass(frozen=True, eq=False)
class Counts(_Compressed):
    """A sparse matrix: an absent entry is zero.

    >>> from scipy import sparse
    >>> Counts.from_scipy(sparse.eye(3, format="coo")).shape
    (3, 3)
    """


Matrix = Dense | Observed | Counts
Kind = TypeVar("Kind", bound=Matrix)


def row_parts(matrix: Matrix, rows: int = 65536) -> Iterator[Matrix]:
    """The matrix as consecutive parts of at most ``rows`` rows, of the same kind, labels included.

    >>> [part.shape for part in row_parts(Dense(np.zeros((5, 2))), 2)]
    [(2, 2), (2, 2), (1, 2)]
    """
    if isinstance(matrix, Dense) and not isinstance(matrix.values, np.ndarray):
        seen = 0
        for block in matrix.values.blocks(rows):
            yield Dense(
                block,
                None if matrix.rows is None else matrix.rows[seen : seen + len(block)],
                matrix.columns,
            )
            seen += len(block)
        return
    parts = getattr(matrix, "parts", None)
    if parts is not None:  # entries that are not in memory together: one part after the other
        seen = 0
        for number, length in enumerate(parts.lengths):
            labels = None if matrix.rows is None else matrix.rows[seen : seen + length]
            yield from row_parts(
                replace(parts.load(number), rows=labels, columns=matrix.columns), rows
            )
            seen += length
        return
    count = matrix.shape[0]
    assert count is not None
    for a in range(0, count, rows):
        yield row_slice(matrix, a, min(a + rows, count))


def row_slice(matrix: Any, a: int, b: int) -> Any:
    """The rows a to b of a matrix in memory, of the same kind, labels included."""
    labels = None if matrix.rows is None else matrix.rows[a:b]
    if isinstance(matrix, Dense):
        return Dense(matrix.array[a:b], labels, matrix.columns)
    first, last = matrix.indptr[a], matrix.indptr[b]
    entries = matrix.indptr[a : b + 1] - first, matrix.indices[first:last], matrix.data[first:last]
    return type(matrix)(*entries, matrix.n_columns, labels, matrix.columns)


SQUARABLE = {np.dtype(np.float32): (1e-18, 1e18), np.dtype(np.float64): (1e-75, 1e75)}
"""Sizes of the largest entry that all models take. Certificates add up fourth powers in float64
(1e-300 to 1e300), factors of single precision are squared in it; on either side results would be
infinite, or silently zero."""


WIDELY = {np.dtype(np.float32): (1e-37, 3.5e38), np.dtype(np.float64): (1e-140, 1e140)}
"""The same for models that calculate in float64 and add up squares only."""


def squarable(matrix: Kind, limits: dict[Any, tuple[float, float]] = SQUARABLE) -> Kind:
    """The matrix, refused where its entries are too large or too small to calculate with. Streams
    are not read for it; NaN and infinity have their own errors.

    >>> squarable(Dense(np.array([[1e200, 1.0]])))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    eckart.errors.InputError: the largest entry of X must be 1e-75 to 1e+75 in float64, got entries as large as 1e+200: ... Multiply X by 1e-200 first.
    """
    largest = _largest(matrix)
    low, high = limits[matrix.dtype]
    if largest == 0.0 or not np.isfinite(largest) or low <= largest <= high:
        return matrix
    raise InputError(
        f"the largest entry of X must be {low:.0e} to {high:.0e} in {matrix.dtype.name}, "
        f"got {'entries as large as' if largest > high else 'no entry beyond'} "
        f"{largest:.0e}: powers of it leave the range. Multiply X by "
        f"1e{-int(np.floor(np.log10(largest))):+03d} first."
    )


LOOKED = 2**17
"""Numbers whose smallest and largest are looked for together: the second look finds them in the
cache."""


def _largest(matrix: Matrix) -> float:
    """The largest absolute value of an entry in memory, NaN aside; 0 for streams and where there is
    none."""
    facts = getattr(matrix, "facts", None)
    if facts is not None:  # of a matrix in parts, which is not read into memory for this
        return max(-facts.least, facts.most) if facts.entries else 0.0
    if isinstance(matrix, Dense) and (not matrix.in_memory or matrix.array.dtype.kind != "f"):
        return 0.0  # whole numbers have at most twenty digits
    whole = matrix.array if isinstance(matrix, Dense) else matrix.data
    step = max(1, LOOKED * len(whole) // max(1, whole.size))
    parts = [whole[a : a + step] for a in range(0, len(whole), step)]
    ends = [
        (np.fmin.reduce(part, axis=None), np.fmax.reduce(part, axis=None))
        for part in parts
        if part.size
    ]
    return max(
        (max(-float(low), float(high)) for low, high in ends if not np.isnan(high)), default=0.0
    )


def wrong_ndim(ndim: int) -> InputError:
    """The error for data that is not a table."""
    return InputError(
        f"Expected 2D array, got {ndim}D array instead: X must have rows and columns, got "
        f"{ndim} dimension(s). Reshape your data with X.reshape(-1, 1) if it has one column "
        "or X.reshape(1, -1) if it is one row."
    )


def _check_labels(matrix: Any) -> None:
    for name, labels, size in (
        ("rows", matrix.rows, matrix.shape[0]),
        ("columns", matrix.columns, matrix.shape[1]),
    ):
        if labels is not None and (
            not hasattr(labels, "__len__") or getattr(labels, "ndim", 1) == 0
        ):
            raise invalid(name, labels, "None or an array of labels")
        if labels is not None and size is not None and len(labels) != size:
            raise invalid(name, f"{len(labels)} labels", f"{size}, one for each of the {name}")
