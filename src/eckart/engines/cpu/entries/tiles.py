"""Sparse rows laid out for repeated block products: chunks of rows, each stored by columns.

A^T A V needs, for every stored entry, a row of V and a row of the result. Row by row these are random accesses to arrays larger than the cache, bound by
latency. In a chunk of rows stored by columns, V and the result are streamed once and the random accesses go to the chunk's Y = A V, which stays in
cache: Y[i] += a_ij V[j] for every column j, then total[j] += sum_i a_ij Y[i]. The copy (a 16-bit row and a value an entry, and the column pointers
of each chunk) costs one pass; it pays from the second product on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from eckart.matrix import Counts
from eckart.scheduler import run_lanes

CHUNK = 4096
MOST_CHUNK = 65536
LEAST_ENTRIES = 2**20


@dataclass(frozen=True, eq=False)
class TiledCounts(Counts):
    """A sparse matrix with a second copy of its entries by chunk and column: ``starts[c, j]`` to ``starts[c, j + 1]`` in chunk c."""

    chunk: int = 0
    starts: Any = None
    local: Any = None
    values: Any = None


def in_tiles(x: Counts, threads: int) -> Counts:
    """The matrix with its tiled layout; itself where it is small, or so wide that the column pointers would outweigh the entries."""
    rows, n = x.shape
    chunk = CHUNK
    while chunk < MOST_CHUNK and -(-rows // chunk) * (n + 1) > x.nnz // 4:
        chunk *= 2
    chunks = -(-rows // chunk)
    if isinstance(x, TiledCounts) or x.nnz < LEAST_ENTRIES or chunks * (n + 1) > x.nnz // 4:
        return x
    starts = np.empty((chunks, n + 1), x.indptr.dtype)
    local, values = np.empty(x.nnz, np.uint16), np.empty_like(x.data)

    def step(_: int, c: int, scratch: dict) -> None:
        _tile(x.indptr, x.indices, x.data, c * chunk, min((c + 1) * chunk, rows), starts[c], local, values)

    run_lanes(range(chunks), list(range(chunks)), step, threads)
    return TiledCounts(x.indptr, x.indices, x.data, n, x.rows, x.columns, chunk, starts, local, values)


@njit(nogil=True, cache=True)
def _tile(indptr, indices, data, first, last, starts, local, values):
    """Counting sort of the entries of rows first..last by column, rows in order inside a column."""
    n = starts.shape[0] - 1
    at = np.zeros(n + 1, np.int64)
    for p in range(indptr[first], indptr[last]):
        at[indices[p] + 1] += 1
    at[0] = indptr[first]
    for j in range(n):
        at[j + 1] += at[j]
    for j in range(n + 1):
        starts[j] = at[j]
    for i in range(first, last):
        for p in range(indptr[i], indptr[i + 1]):
            w = at[indices[p]]
            local[w] = i - first
            values[w] = data[p]
            at[indices[p]] = w + 1


@njit(nogil=True, cache=True, fastmath={"contract", "reassoc", "nsz"})
def tile_gram_times(starts, local, values, v, weights, first_row, y, total):
    """total += A_c^T diag(w) A_c V for one chunk; ``y`` is its scratch space, ``weights`` of length 0 means all ones."""
    b, n = v.shape[1], starts.shape[0] - 1
    for i in range(y.shape[0]):
        for c in range(b):
            y[i, c] = 0
    for j in range(n):
        vj = v[j]
        for p in range(starts[j], starts[j + 1]):
            a = values[p]
            i = local[p]
            for c in range(b):
                y[i, c] += a * vj[c]
    if weights.shape[0] > 0:
        for i in range(y.shape[0]):
            for c in range(b):
                y[i, c] *= weights[first_row + i]
    for j in range(n):
        tj = total[j]
        p = starts[j]
        end = starts[j + 1]
        while p + 3 < end:  # four entries at a time: total[j] is loaded and stored once for them
            a0, a1, a2, a3 = values[p], values[p + 1], values[p + 2], values[p + 3]
            i0, i1, i2, i3 = local[p], local[p + 1], local[p + 2], local[p + 3]
            for c in range(b):
                tj[c] += (a0 * y[i0, c] + a1 * y[i1, c]) + (a2 * y[i2, c] + a3 * y[i3, c])
            p += 4
        while p < end:
            a0 = values[p]
            i0 = local[p]
            for c in range(b):
                tj[c] += a0 * y[i0, c]
            p += 1
