"""The columns' view of compressed rows on threads: a counting sort whose ranges of rows count apart
and write apart.

Every lane counts the columns of its rows; sums of these counts over the lanes before it say where
each lane puts its entries of a column. The result has the bits of the serial sort: inside a column,
rows ascend.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from eckart.compiling import OUTSIDE
from eckart.engines.cpu.entries.sparse import balanced
from eckart.index.compress import index_dtype
from eckart.matrix import Counts, Observed
from eckart.scheduler import lanes_for, run_lanes

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
