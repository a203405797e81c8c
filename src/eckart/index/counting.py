"""Counting sorts of sparse entries, compiled: two linear passes put triples in row order with
columns ascending.

Pass one sorts (i, j, a) by j, pass two is the transpose of the result, which sorts by i and keeps
the order of j inside a row. Both are stable: of two entries at one place, the one that came first
stands first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from eckart.compiling import OUTSIDE


@njit(**OUTSIDE)
def by_key(keys: Any, others: Any, values: Any, size: int) -> Any:
    """Entries in order of ``keys``: pointers of length size + 1, the other index and the value of
    each."""
    at = np.zeros(size + 1, np.int64)
    for p in range(keys.shape[0]):
        at[keys[p] + 1] += 1
    for j in range(size):
        at[j + 1] += at[j]
    pointers = at.copy()
    moved, data = np.empty_like(others), np.empty_like(values)
    for p in range(keys.shape[0]):
        w = at[keys[p]]
        at[keys[p]] = w + 1
        moved[w] = others[p]
        data[w] = values[p]
    return pointers, moved, data


@njit(**OUTSIDE)
def flip(
    indptr: Any,
    indices: Any,
    values: Any,
    out_indptr: Any,
    out_indices: Any,
    out_values: Any,
    first: int,
) -> None:
    """The transpose of compressed rows, counted from ``first``; ``out_indptr`` has one more place
    than there are columns."""
    n = out_indptr.shape[0] - 1
    out_indptr[:] = 0
    for p in range(indices.shape[0]):
        out_indptr[indices[p] + 1] += 1
    for j in range(n):
        out_indptr[j + 1] += out_indptr[j]
    at = out_indptr.copy()
    for i in range(indptr.shape[0] - 1):
        for p in range(indptr[i], indptr[i + 1]):
            w = at[indices[p]]
            at[indices[p]] = w + 1
            out_indices[w] = first + i
            out_values[w] = values[p]


@njit(**OUTSIDE)
def dealt(keys: Any, owner: Any, ranges: int, others: Any, values: Any) -> Any:
    """Triples in order of the range ``owner[key]`` of their key, those of a range as they came, and
    where each range starts."""
    at, to = np.zeros(ranges + 1, np.int64), np.empty(keys.shape[0], np.int32)
    for p in range(keys.shape[0]):
        r = owner[keys[p]]
        to[p] = r
        at[r + 1] += 1
    for r in range(ranges):
        at[r + 1] += at[r]
    starts, out, neighbours, data = (
        at.copy(),
        np.empty_like(keys),
        np.empty_like(others),
        np.empty_like(values),
    )
    for p in range(keys.shape[0]):
        r = to[p]
        w = at[r]
        at[r] = w + 1
        out[w] = keys[p]
        neighbours[w] = others[p]
        data[w] = values[p]
    return starts, out, neighbours, data


@njit(**OUTSIDE)
def side_by_side(lengths: Any, indptr: Any, indices: Any, values: Any) -> Any:
    """Pieces of the same rows, one after another, as one matrix: ``lengths[s, i]`` entries of row i
    are in piece s, and stand behind those of piece s - 1."""
    at = indptr[:-1].copy()
    out, data = np.empty_like(indices), np.empty_like(values)
    p = 0
    for s in range(lengths.shape[0]):
        for i in range(lengths.shape[1]):
            w = at[i]
            for _ in range(lengths[s, i]):
                out[w] = indices[p]
                data[w] = values[p]
                w += 1
                p += 1
            at[i] = w
    return out, data


@njit(**OUTSIDE)
def tallied(ids: Any, low: int, counts: Any) -> None:
    """``counts[id - low]`` raised by one for every id."""
    for p in range(ids.shape[0]):
        counts[ids[p] - low] += 1


@njit(**OUTSIDE)
def look_up_all(ids: Any, low: int, table: Any) -> Any:
    """``table[id - low]`` of every id; -1 outside."""
    out = np.empty(ids.shape[0], table.dtype)
    for p in range(ids.shape[0]):
        at = np.int64(ids[p]) - low
        out[p] = table[at] if 0 <= at < table.shape[0] else -1
    return out
