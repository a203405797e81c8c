"""What engines on the memory of this process hold: the matrix itself beside its weights, its
transpose made once.

The operators of arrays that an engine holds: each is NumPy's function, which asks the array
itself (``__array_ufunc__``).

Unlike NumPy's own mixin for such classes it leaves equality and hashing as they are (two handles
are equal when they are the same one), and ``a += b`` makes another array: what an engine holds may
be shared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from eckart.engines.protocol.placed import refuse_bad_entries
from eckart.index.compress import index_dtype
from eckart.matrix import Dense, Matrix, Observed
from eckart.matrix_parts import kind_of


@dataclass(eq=False)
class Host:
    """A placed matrix (see ``engines.protocol.placed``). ``matrix`` is for engines alone."""

    matrix: Any
    weights: np.ndarray | None = None
    entry_weights: np.ndarray | None = None
    checked: bool = False
    """Whether a pass has seen all entries of dense rows and found them finite; sparse ones are
    checked when it is read."""
    inspected: bool = False
    """Whether such a pass is known to have been, of another copy of these rows: they are not looked
    at again, and all else goes on as if they were new."""
    kept: dict[str, Any] = field(default_factory=dict)
    """Layouts that an engine makes once for this matrix."""
    turn: Callable[[Any], Any] | None = None
    """How the engine transposes a sparse matrix; None: as the matrix does itself."""

    def __getstate__(self) -> dict[str, Any]:
        """Without what is made from the rest: layouts belong to the process that made them, which
        may be adding to them now."""
        kept = ("matrix", "weights", "entry_weights", "checked", "inspected", "turn")
        return {name: self.__dict__[name] for name in kept} | {"kept": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.matrix = _in_line(self.matrix)

    @cached_property
    def kind(self) -> str:
        return kind_of(self.matrix)

    @property
    def rows(self) -> np.ndarray | None:
        return self.matrix.rows

    @property
    def columns(self) -> np.ndarray | None:
        return self.matrix.columns

    @property
    def shape(self) -> tuple[int | None, int]:
        return self.matrix.shape

    @property
    def dtype(self) -> np.dtype:
        return self.matrix.dtype

    @property
    def nnz(self) -> int:
        return self.matrix.nnz

    @cached_property
    def counts(self) -> np.ndarray:
        return self.matrix.row_counts()

    @cached_property
    def column_counts(self) -> np.ndarray:
        return self.matrix.column_counts()

    @property
    def weighted(self) -> bool:
        return self.weights is not None or self.entry_weights is not None

    @cached_property
    def T(self) -> Host:
        turn = self.turn or (lambda matrix: matrix.transposed())
        w = self.entry_weights
        if self.weights is not None:  # weights of rows weigh the entries of the columns' view
            rows = np.repeat(self.weights, self.counts).astype(self.dtype)
            w = rows if w is None else w * rows
        if w is not None:
            w = turn(replace(self.matrix, data=w)).data
        other = Host(turn(self.matrix), None, w, checked=True, turn=self.turn)
        other.__dict__["T"] = self
        return other


def place(
    matrix: Matrix | Host,
    weights: np.ndarray | None = None,
    entry_weights: np.ndarray | None = None,
) -> Host:
    """Place a matrix on the host: sparse and observed entries are cast and checked here,
    dense rows by the first pass over them."""
    if isinstance(matrix, Host):
        return (
            matrix
            if weights is None and entry_weights is None
            else replace(matrix, weights=weights, entry_weights=entry_weights)
        )
    if isinstance(matrix, Dense):
        return Host(_in_line(matrix), _numbers(weights))
    if matrix.data.dtype != matrix.dtype:
        matrix = replace(matrix, data=matrix.data.astype(matrix.dtype))
    # one type of each, as the transpose has them: a kernel that is given others is compiled again
    indptr, indices = matrix.indptr, matrix.indices
    kind = index_dtype(matrix.shape[1])
    if indptr.dtype != np.int64 or indices.dtype != kind:
        indptr, indices = indptr.astype(np.int64, copy=False), indices.astype(kind, copy=False)
        matrix = replace(matrix, indptr=indptr, indices=indices)
    refuse_bad_entries(
        matrix.indptr,
        matrix.indices,
        matrix.data,
        "observed" if isinstance(matrix, Observed) else "counts",
    )
    entries = None if entry_weights is None else np.ascontiguousarray(entry_weights, matrix.dtype)
    return Host(matrix, _numbers(weights), entries, checked=True)


def aligned(a: np.ndarray) -> np.ndarray:
    """The array, or a copy where its numbers do not begin at multiples of their size, as in what
    came through a socket: NumPy would copy it for each product, a transposed one in another order,
    and a sum would have other bits than at another place in memory."""
    return a if a.flags.aligned else a.copy(order="K")


def _in_line(matrix: Any) -> Any:
    """Dense rows in memory, aligned; a map of a file stays one."""
    if (
        isinstance(matrix, Dense)
        and type(matrix.values) is np.ndarray
        and not matrix.values.flags.aligned
    ):
        return replace(matrix, values=aligned(matrix.values))
    return matrix


def _numbers(weights: np.ndarray | None) -> np.ndarray | None:
    return None if weights is None else np.ascontiguousarray(weights, np.float64)


def _both(function: Any) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]:
    return (lambda self, other: function(self, other)), (lambda self, other: function(other, self))


class ArrayOperators:
    """``+``, ``-``, ``*``, ``/`` from both sides, ``@`` and the sign."""

    __add__, __radd__ = _both(np.add)
    __sub__, __rsub__ = _both(np.subtract)
    __mul__, __rmul__ = _both(np.multiply)
    __truediv__, __rtruediv__ = _both(np.true_divide)
    __matmul__, __rmatmul__ = _both(np.matmul)

    def __neg__(self: Any) -> Any:
        return np.negative(self)
