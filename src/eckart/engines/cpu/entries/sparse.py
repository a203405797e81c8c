"""Products of compressed rows with tall thin matrices, as serial numba kernels over a range of
rows.

The fused kernel makes A^T diag(w) A V in one pass: y = a_i V is gathered, then a_i^T y is
scattered, while row i is in cache. Neither A^T nor A V is ever stored. Per entry 2b multiply-adds
meet one gathered and one scattered row of V: the loop over b vectorises, and the limit is the
cache, not memory.

The columns' view of compressed rows on threads: a counting sort whose ranges of rows count apart
and write apart.

Every lane counts the columns of its rows; sums of these counts over the lanes before it say where
each lane puts its entries of a column. The result has the bits of the serial sort: inside a column,
rows ascend.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numba import njit

from eckart.compiling import OUTSIDE
from eckart.engines.cpu.registers.windows import prefetch
from eckart.index.compress import index_dtype
from eckart.matrix import Counts, Observed
from eckart.scheduler import lanes_for, run_lanes

AHEAD = 12  # entries between a prefetch and its use


@njit(**OUTSIDE, fastmath={"contract", "reassoc", "nsz"})
def gram_times_rows(indptr, indices, data, v, weights, first, last, total):
    """total += sum over rows first..last of w_i a_i (a_i^T V); ``weights`` of length 0 means all
    ones."""
    b = v.shape[1]
    y = np.empty(b, v.dtype)
    weighted = weights.shape[0] > 0
    line = 64 // v.itemsize
    end = indices.shape[0] - 1
    for i in range(first, last):
        for c in range(b):
            y[c] = 0
        for p in range(indptr[i], indptr[i + 1]):
            a = data[p]
            j = indices[p]
            soon = indices[min(p + AHEAD, end)]
            for c in range(0, b, line):
                prefetch(v, soon, c)
                prefetch(total, soon, c)
            for c in range(b):
                y[c] += a * v[j, c]
        if weighted:
            for c in range(b):
                y[c] *= weights[i]
        for p in range(indptr[i], indptr[i + 1]):
            a = data[p]
            j = indices[p]
            for c in range(b):
                total[j, c] += a * y[c]


@njit(**OUTSIDE, fastmath={"contract", "reassoc", "nsz"})
def gram_times_vector_rows(indptr, indices, data, v, weights, first, last, total):
    """The same for one vector."""
    weighted = weights.shape[0] > 0
    zero = v[0] - v[0]
    for i in range(first, last):
        y = zero
        for p in range(indptr[i], indptr[i + 1]):
            y += data[p] * v[indices[p]]
        if weighted:
            y *= weights[i]
        for p in range(indptr[i], indptr[i + 1]):
            total[indices[p]] += data[p] * y


@njit(**OUTSIDE, fastmath={"contract", "reassoc", "nsz"})
def times_rows(indptr, indices, data, v, first, last, out):
    """out[i] = a_i^T V for rows first..last."""
    b = v.shape[1]
    line = 64 // v.itemsize
    end = indices.shape[0] - 1
    for i in range(first, last):
        for c in range(b):
            out[i, c] = 0
        for p in range(indptr[i], indptr[i + 1]):
            a = data[p]
            j = indices[p]
            soon = indices[min(p + AHEAD, end)]
            for c in range(0, b, line):
                prefetch(v, soon, c)
            for c in range(b):
                out[i, c] += a * v[j, c]


@njit(**OUTSIDE, fastmath={"contract", "reassoc", "nsz"})
def times_t_rows(indptr, indices, data, y, first, last, total):
    """total += sum over rows first..last of a_i y_i^T."""
    b = y.shape[1]
    for i in range(first, last):
        for p in range(indptr[i], indptr[i + 1]):
            a = data[p]
            j = indices[p]
            for c in range(b):
                total[j, c] += a * y[i, c]


@njit(**OUTSIDE)
def column_sums_rows(indptr, indices, data, weights, first, last, total, square):
    """total_j += w_i a_ij and square_j += w_i a_ij^2 in float64."""
    weighted = weights.shape[0] > 0
    for i in range(first, last):
        w = weights[i] if weighted else 1.0
        for p in range(indptr[i], indptr[i + 1]):
            a = np.float64(data[p])
            total[indices[p]] += w * a
            square[indices[p]] += w * a * a


@njit(**OUTSIDE)
def scatter_rows(indptr, indices, data, first, last, out):
    """out = rows first..last as a dense block."""
    for i in range(first, last):
        for j in range(out.shape[1]):
            out[i - first, j] = 0
        for p in range(indptr[i], indptr[i + 1]):
            out[i - first, indices[p]] += data[p]


@njit(**OUTSIDE)
def place_rows(indptr, indices, data, first, last, out):
    """out = rows first..last as a dense block, NaN where nothing is stored."""
    for i in range(first, last):
        for j in range(out.shape[1]):
            out[i - first, j] = np.nan
        for p in range(indptr[i], indptr[i + 1]):
            out[i - first, indices[p]] = data[p]


FEW_ROWS = 2**17
"""Rows up to which indptr[i] + i is written out to be searched: a tenth of the time of the
bisection, and a megabyte."""


def cuts_of(indptr: np.ndarray, parts: int) -> np.ndarray:
    """Where ``parts`` ranges of rows with about equal numbers of stored entries plus rows begin and
    end; ranges without rows are left out."""
    rows = len(indptr) - 1
    targets = np.linspace(0, int(indptr[-1]) + rows, parts + 1)
    cuts, past = np.zeros(parts + 1, np.int64), np.full(parts + 1, rows)
    if rows <= FEW_ROWS:
        past = cuts = np.minimum(np.searchsorted(indptr + np.arange(rows + 1), targets), rows)
    while (cuts < past).any():  # bisection of indptr[i] + i, which is not written out
        middle = (cuts + past) // 2
        before = indptr[middle] + middle < targets
        cuts, past = (
            np.where(before, np.minimum(middle + 1, past), cuts),
            np.where(before, past, middle),
        )
    cuts[0], cuts[-1] = 0, rows
    return np.unique(cuts)


def balanced(indptr: np.ndarray, parts: int) -> list[tuple[int, int]]:
    """The same as pairs."""
    return list(itertools.pairwise(cuts_of(indptr, parts).tolist()))


Compressed = tuple[np.ndarray, np.ndarray, np.ndarray]

LEAST = 2**18
"""Entries from which a lane is worth its table of counts."""


@njit(**OUTSIDE)
def _count(indices, first, last, counts):
    for p in range(first, last):
        counts[indices[p]] += 1


@njit(**OUTSIDE)
def _move(indptr, indices, data, first, last, at, out_indices, out_data):
    for i in range(first, last):
        for p in range(indptr[i], indptr[i + 1]):
            w = at[indices[p]]
            at[indices[p]] = w + 1
            out_indices[w] = i
            out_data[w] = data[p]


def transposed(x: Observed | Counts, threads: int) -> Any:
    """The transpose, of the same kind, labels swapped."""
    if x.nnz < LEAST:
        return x.transposed()
    found = by_columns(x.indptr, x.indices, x.data, x.shape[1], threads)
    return (Observed if isinstance(x, Observed) else Counts)(*found, x.shape[0], x.columns, x.rows)


def by_columns(
    indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, n: int, threads: int
) -> Compressed:
    """Pointers of the n columns, rows, and ``data`` in the order of columns."""
    parts = balanced(indptr, lanes_for(len(indices) // LEAST, 8 * n))
    at = np.zeros((len(parts), n), np.int64)
    lanes = list(range(len(parts)))
    run_lanes(
        lanes,
        lanes,
        lambda _, t, scratch: _count(indices, indptr[parts[t][0]], indptr[parts[t][1]], at[t]),
        threads,
    )
    pointers = np.concatenate([[0], np.cumsum(at.sum(axis=0))])
    before = np.cumsum(at, axis=0)
    before -= at
    before += pointers[:-1]
    out = np.empty(len(indices), index_dtype(len(indptr) - 1)), np.empty_like(data)
    move: Any = _move
    run_lanes(
        lanes,
        lanes,
        lambda _, t, scratch: move(indptr, indices, data, *parts[t], before[t], *out),
        threads,
    )
    return pointers, *out
