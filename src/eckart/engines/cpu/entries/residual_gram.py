"""R^T diag(q) R V for the residual R = w (a - mean - b_i - c_j - u_i.v_j) on the stored entries, R made anew in every pass.

A pass costs a dot product of length k for every entry and keeps the residuals of one row at a time, in place of one number for every entry.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from eckart.engines.cpu.entries.sparse import balanced
from eckart.engines.cpu.registers.prefetch import prefetch
from eckart.matrix import Observed
from eckart.scheduler import run_lanes

AHEAD = 8
LANES = 4


@njit(nogil=True, cache=True, fastmath={"contract", "reassoc", "nsz"})
def residual_gram_range(indptr, indices, data, weights, mean, left, right, own, other, q, v, first, last, kept, total):
    """total += sum over rows first..last of q_i r_i (r_i^T V); ``kept`` has room for the longest row."""
    k, b = right.shape[1], v.shape[1]
    line = 64 // right.itemsize
    end = indices.shape[0] - 1
    weighted, biased = weights.shape[0] > 0, own.shape[0] > 0
    y = np.empty(b, v.dtype)
    zero = right.dtype.type(0)
    for i in range(first, last):
        start = indptr[i]
        for c in range(b):
            y[c] = zero
        for p in range(start, indptr[i + 1]):
            j = indices[p]
            soon = indices[min(p + AHEAD, end)]
            for c in range(0, k, line):
                prefetch(right, soon, c)
            s = zero
            for c in range(k):
                s += left[i, c] * right[j, c]
            r = data[p] - mean - s
            if biased:
                r -= own[i] + other[j]
            if weighted:
                r *= weights[p]
            kept[p - start] = r
            for c in range(b):
                y[c] += r * v[j, c]
        for c in range(b):
            y[c] *= q[i]
        for p in range(start, indptr[i + 1]):
            r, j = kept[p - start], indices[p]
            for c in range(b):
                total[j, c] += r * y[c]


def residual_gram(
    x: Observed,
    left: np.ndarray,
    right: np.ndarray,
    v: np.ndarray,
    q: np.ndarray,
    *,
    mean: float,
    own: np.ndarray | None,
    other: np.ndarray | None,
    weights: np.ndarray | None,
    threads: int,
) -> np.ndarray:
    """R^T diag(q) R V, columns x b."""
    dtype = np.dtype(right.dtype)
    none = np.empty(0, dtype)
    biases = (none, none) if own is None or other is None else (np.asarray(own, dtype), np.asarray(other, dtype))
    arrays = x.indptr, x.indices, np.asarray(x.data, dtype), none if weights is None else np.asarray(weights, dtype)
    u, w = np.ascontiguousarray(left, dtype), np.ascontiguousarray(right)
    block, scale = np.ascontiguousarray(v, dtype), np.asarray(q, dtype)
    longest = int(np.diff(x.indptr).max(initial=0))
    lanes = [np.zeros((x.n_columns, v.shape[1]), dtype) for _ in range(LANES)]

    def step(total: np.ndarray, part: tuple[int, int], scratch: dict) -> None:
        if "residual" not in scratch:
            scratch["residual"] = np.empty(longest, dtype)
        residual_gram_range(*arrays, dtype.type(mean), u, w, *biases, scale, block, *part, scratch["residual"], total)

    run_lanes(balanced(x.indptr, 8 * LANES), lanes, step, threads)
    total: Any = lanes[0]
    for lane in lanes[1:]:
        total += lane
    return total
