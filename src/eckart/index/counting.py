"""Counting sorts of sparse entries, compiled: two linear passes put triples in row order with columns ascending.

Pass one sorts (i, j, a) by j, pass two is the transpose of the result, which sorts by i and keeps the order of j inside a row.
Both are stable: of two entries at one place, the one that came first stands first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from eckart.compiling import OUTSIDE


@njit(**OUTSIDE)
def by_key(keys: Any, others: Any, values: Any, size: int) -> Any:
    """Entries in order of ``keys``: pointers of length size + 1, the other index and the value of each."""
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
def flip(indptr: Any, indices: Any, values: Any, out_indptr: Any, out_indices: Any, out_values: Any) -> None:
    """The transpose of compressed rows; ``out_indptr`` has one more place than there are columns."""
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
            out_indices[w] = i
            out_values[w] = values[p]


@njit(**OUTSIDE)
def dealt(keys: Any, owner: Any, ranges: int, words: Any) -> Any:
    """Records (as ``words``, a row each) in order of the range ``owner[key]`` of their key, those of a range as they came, and where each range starts."""
    at = np.zeros(ranges + 1, np.int64)
    for p in range(keys.shape[0]):
        at[owner[keys[p]] + 1] += 1
    for r in range(ranges):
        at[r + 1] += at[r]
    starts, out = at.copy(), np.empty_like(words)
    for p in range(keys.shape[0]):
        r = owner[keys[p]]
        for c in range(words.shape[1]):
            out[at[r], c] = words[p, c]
        at[r] += 1
    return starts, out
