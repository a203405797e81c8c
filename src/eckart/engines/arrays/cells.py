"""Cells of a matrix against the other factor H of X ~ W H^T: all cells of some dense rows, or the
stored entries alone, behind the same four products."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

FILLED = 2**20
"""Cells of sparse rows that are filled with zeros at once: 8 MB in float64."""


class DenseCells:
    """All cells of some rows: values a and weights v (None: ones), rows x n, against H (n x k)."""

    def __init__(self, a: Any, v: Any, h: Any):
        self.a, self.v, self.h = a, v, h

    def at(self, u: Any) -> Any:
        """u_i.h_j at the cells."""
        return u @ self.h.T

    def pull(self, r: Any) -> Any:
        """sum_j r_ij h_j of every row."""
        return r @ self.h

    def sums(self, r: Any) -> Any:
        """sum_j r_ij of every row."""
        return r.sum(axis=1)

    def each(self, t: Any) -> Any:
        """Numbers of rows, for their cells."""
        return t[:, None]

    def position(self, index: int) -> tuple[int, int]:
        return divmod(index, self.a.shape[1])


class StoredCells:
    """The same of stored entries alone, one after another."""

    def __init__(self, lib: Any, e: Any, h: Any):
        self.lib, self.e, self.h = lib, e, h
        cast = (lambda a: lib.like(a, h)) if h is not None else lib.wide
        self.a, self.v = cast(e.data), None if e.weights is None else cast(e.weights)

    def at(self, u: Any) -> Any:
        return self.lib.dots(self.e, u, self.h)

    def pull(self, r: Any) -> Any:
        return self.lib.product(self.e, r, self.h)

    def sums(self, r: Any) -> Any:
        return self.lib.row_sums(self.e, r)

    def each(self, t: Any) -> Any:
        return t[self.e.row_of]

    def position(self, index: int) -> tuple[int, int]:
        return int(self.e.row_of[index]), int(self.e.indices[index])


class StoredMatrix:
    """A sparse matrix as an operand of @."""

    def __init__(self, lib: Any, x: Any):
        self.lib, self.x = lib, x

    def __matmul__(self, v: Any) -> Any:
        e = self.lib.entries(self.x)
        return self.lib.product(e, e.data, v)

    @property
    def T(self) -> StoredMatrix:
        return StoredMatrix(self.lib, self.x.T)


def weights_of(lib: Any, x: Any, at: slice, rows: int) -> Any:
    """Weights of some rows in float64, ones where there are none."""
    w = None if x is None else lib.row_weights(x)
    return lib.zeros(rows) + 1.0 if w is None else w[at]


def dense_rows(lib: Any, x: Any, copies: int = 1) -> Iterator[tuple[slice, Any, Any]]:
    """(which, their weights, rows in the precision of the data), so few that some copies of them
    stay in cache; the first pass refuses NaN and infinities."""
    for start, block in lib.checked_blocks(x, copies * x.shape[1] * x.dtype.itemsize):
        at = slice(start, start + block.shape[0])
        yield at, weights_of(lib, x, at, block.shape[0]), block


def cells_of(lib: Any, x: Any, h: Any, zeros: bool = False) -> Iterator[tuple[slice, Any, Any]]:
    """(which rows, their weights, their cells): blocks of dense rows, or all stored entries at
    once. With ``zeros`` rows of counts are filled."""
    rows, n = x.shape
    if x.kind == "dense":
        for at, w, block in dense_rows(lib, x, copies=4):
            yield at, w, DenseCells(block if h is None else lib.like(block, h), None, h)
        return
    e = lib.entries(x)
    if x.kind == "observed" or not zeros:
        yield slice(0, rows), weights_of(lib, x, slice(None), rows), StoredCells(lib, e, h)
        return
    step = max(1, FILLED // n)
    for first in range(0, rows, step):
        at = slice(first, min(first + step, rows))
        w = weights_of(lib, x, at, at.stop - first)
        yield at, w, filled_cells(lib, e, h, at, n)


def filled_cells(lib: Any, e: Any, h: Any, at: slice, n: int) -> DenseCells:
    """All n cells of some rows of stored entries, zeros where nothing is stored."""
    here = lib.rows_of(e, at.start, at.stop)
    where, made = here.row_of * n + here.indices, list[Any]()
    for each in (here.data, here.weights):
        numbers = None if each is None else lib.wide(each) if h is None else lib.like(each, h)
        shape = at.stop - at.start, n
        made.append(None if numbers is None else _placed(lib, numbers, where, shape))
    return DenseCells(made[0], made[1], h)


def _placed(lib: Any, numbers: Any, where: Any, shape: tuple[int, int]) -> Any:
    """Numbers at their places, zeros elsewhere."""
    out = lib.like(lib.zeros(shape[0] * shape[1]), numbers)
    out[where] = numbers
    return out.reshape(shape)
