"""Low rank met at the observed entries: (U V^T)_ij on Omega, residuals there, and products of a
sparse residual with thin blocks.

With Omega stored by rows (CSR) and, once, by columns (CSC with the position of every entry in the
row order):

    sampled    out_p = u_i . v_j                              for entry p = (i, j)
    residual   out_p = a_p - u_i . v_j,  and sum_p out_p^2 in float64
    times      R V   row by row,          times_t   R^T Y   column by column

Both products gather and write one row of the result at a time: no two ranges touch the same output,
so any number of threads gives the same bits. Dots are summed in the working precision over vector
lanes (an error of about k/16 roundings), sums over entries in float64.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numba import njit

from eckart.compiling import INSIDE, OUTSIDE
from eckart.engines.cpu.entries.sparse import by_columns as by_columns_of
from eckart.engines.cpu.entries.sparse import cuts_of
from eckart.engines.cpu.native.pool import run_parts
from eckart.engines.host import Host
from eckart.index.compress import index_dtype
from eckart.matrix import Observed
from eckart.scheduler import lanes_for

SMALL = 2**18
"""Multiply-adds below which a product is not worth a thread (about 50 microseconds of one core)."""
LEAST = 2**12
"""Entries of a range at the least."""
FAST = {"contract", "reassoc", "nsz"}


class Pattern:
    """Where the observed entries stand, by rows and, from when that is asked for, by columns."""

    def __init__(self, x: Observed, threads: int):
        self.indptr, self.indices, self.shape, self.threads = x.indptr, x.indices, x.shape, threads

    @property
    def nnz(self) -> int:
        return len(self.indices)

    @cached_property
    def columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Pointers, rows, and the row-order position of every entry in the order of columns; one
        counting sort."""
        positions = np.arange(self.nnz, dtype=index_dtype(self.nnz))
        return by_columns_of(self.indptr, self.indices, positions, self.shape[1], self.threads)

    @cached_property
    def cuts(self) -> np.ndarray:
        return cuts_of(self.indptr, lanes_for(self.nnz // LEAST))

    @cached_property
    def t_cuts(self) -> np.ndarray:
        return cuts_of(self.columns[0], lanes_for(self.nnz // LEAST))


def _pattern(x: Host, threads: int) -> Pattern:
    """Where the entries of x stand; kept with it, its columns found when they are asked for."""
    if "pattern" not in x.kept:
        x.kept["pattern"] = Pattern(x.matrix, threads)
    return x.kept["pattern"]


def sampled(x: Host, left: np.ndarray, right: np.ndarray, threads: int) -> np.ndarray:
    """(U V^T) at the observed entries, in row order."""
    pattern = _pattern(x, threads)
    out = np.empty(pattern.nnz, left.dtype)
    given = pattern.indptr, pattern.indices, _thin(left), _thin(right), out
    _over(_dots_part, pattern.cuts, given, out.size * left.shape[1], threads)
    return out


def residual(
    x: Host, data: np.ndarray, left: np.ndarray, right: np.ndarray, threads: int
) -> tuple[np.ndarray, float]:
    """a - (U V^T) at the observed entries in row order, and its squared norm."""
    pattern = _pattern(x, threads)
    left, right = (
        _thin(left.astype(data.dtype, copy=False)),
        _thin(right.astype(data.dtype, copy=False)),
    )
    out, squares = np.empty_like(data), np.zeros(max(1, len(pattern.cuts) - 1))
    given = pattern.indptr, pattern.indices, data, left, right, out, squares
    _over(_residuals_part, pattern.cuts, given, out.size * left.shape[1], threads)
    return out, float(squares.sum())


def by_columns(x: Host, data: np.ndarray, threads: int) -> np.ndarray:
    """Entries in row order put into column order."""
    pattern = _pattern(x, threads)
    pointers, _, order = pattern.columns
    out = np.empty_like(data)
    _over(_gather_part, pattern.t_cuts, (pointers, data, order, out), 16 * out.size, threads)
    return out


def entry_times(x: Host, data: np.ndarray, v: np.ndarray, threads: int) -> np.ndarray:
    """R V for the sparse R with ``data`` (row order) on the pattern."""
    pattern = _pattern(x, threads)
    return _product(pattern.indptr, pattern.indices, pattern.cuts, data, v, threads)


def entry_times_t(x: Host, t_data: np.ndarray, y: np.ndarray, threads: int) -> np.ndarray:
    """R^T Y for the sparse R with ``t_data`` (column order, see ``by_columns``)."""
    pattern = _pattern(x, threads)
    return _product(*pattern.columns[:2], pattern.t_cuts, t_data, y, threads)


def _over(kernel: Any, cuts: np.ndarray, given: tuple, work: int, threads: int) -> None:
    """``kernel(part, who, cuts, *given)`` of every range of rows, on one thread where there are few
    multiply-adds in all."""
    run_parts(kernel, len(cuts) - 1, (cuts, *given), threads if work >= SMALL else 1)


def _product(indptr, indices, cuts, data, v, threads: int) -> np.ndarray:
    v = _thin(v.astype(data.dtype, copy=False))
    out = np.empty((len(indptr) - 1, v.shape[1]), data.dtype)
    _over(_rows_part, cuts, (indptr, indices, data, v, out), len(data) * v.shape[1], threads)
    return out


def _thin(a: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(a)


@njit(**OUTSIDE)
def _gather_part(part, who, cuts, pointers, data, order, out):
    for q in range(pointers[cuts[part]], pointers[cuts[part + 1]]):
        out[q] = data[order[q]]


@njit(**OUTSIDE)
def _dots_part(part, who, cuts, indptr, indices, left, right, out):
    _dots(indptr, indices, left, right, cuts[part], cuts[part + 1], out)


@njit(**INSIDE, fastmath=FAST)
def _dots(indptr, indices, left, right, first, last, out):
    """out_p = u_i . v_j, four entries at a time: their sums hide each other's latency."""
    k = left.shape[1]
    zero = left.dtype.type(0)
    for i in range(first, last):
        p = indptr[i]
        stop = indptr[i + 1]
        while p + 3 < stop:
            j0, j1, j2, j3 = indices[p], indices[p + 1], indices[p + 2], indices[p + 3]
            d0 = d1 = d2 = d3 = zero
            for c in range(k):
                u = left[i, c]
                d0 += u * right[j0, c]
                d1 += u * right[j1, c]
                d2 += u * right[j2, c]
                d3 += u * right[j3, c]
            out[p] = d0
            out[p + 1] = d1
            out[p + 2] = d2
            out[p + 3] = d3
            p += 4
        while p < stop:
            j0 = indices[p]
            d0 = zero
            for c in range(k):
                d0 += left[i, c] * right[j0, c]
            out[p] = d0
            p += 1


@njit(**OUTSIDE, fastmath=FAST)
def _residuals_part(part, who, cuts, indptr, indices, data, left, right, out, squares):
    """out_p = a_p - u_i . v_j, and the sum of their squares."""
    first, last = cuts[part], cuts[part + 1]
    _dots(indptr, indices, left, right, first, last, out)
    total = 0.0
    for p in range(indptr[first], indptr[last]):
        r = data[p] - out[p]
        out[p] = r
        total += np.float64(r) * np.float64(r)
    squares[part] = total


@njit(**OUTSIDE, fastmath=FAST)
def _rows_part(part, who, cuts, indptr, indices, data, v, out):
    """out[i] = sum_p data_p v[j_p] for a range of rows; four entries share one load and store of
    out[i]."""
    first, last = cuts[part], cuts[part + 1]
    b = v.shape[1]
    for i in range(first, last):
        row = out[i]
        for c in range(b):
            row[c] = 0
        p = indptr[i]
        stop = indptr[i + 1]
        while p + 3 < stop:
            a0, a1, a2, a3 = data[p], data[p + 1], data[p + 2], data[p + 3]
            j0, j1, j2, j3 = indices[p], indices[p + 1], indices[p + 2], indices[p + 3]
            for c in range(b):
                row[c] += (a0 * v[j0, c] + a1 * v[j1, c]) + (a2 * v[j2, c] + a3 * v[j3, c])
            p += 4
        while p < stop:
            a0 = data[p]
            j0 = indices[p]
            for c in range(b):
                row[c] += a0 * v[j0, c]
            p += 1
