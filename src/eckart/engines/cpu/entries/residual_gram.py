"""R^T diag(q) R V for the residual R = w (a - mean - b_i - c_j - u_i.v_j) on the stored entries, R made anew in every pass.

A pass costs a dot product of length k for every entry and keeps the residuals of one row at a time, in place of one number for every entry.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from eckart.engines.cpu.entries.entry import AHEAD, FAST, ROOM, Entries, look_at
from eckart.engines.cpu.entries.sparse import balanced
from eckart.engines.cpu.registers.prefetch import prefetch
from eckart.engines.cpu.ridge.schedule import ranges
from eckart.scheduler import lanes_for, run_lanes


@njit(nogil=True, cache=True, fastmath=FAST)
def residual_gram_range(e, left, right, q, v, first, last, kept, total):
    """total += sum over rows first..last of q_i r_i (r_i^T V); ``kept`` has room for the longest row."""
    k, b, indptr, indices = right.shape[1], v.shape[1], e.indptr, e.indices
    line = 64 // right.itemsize
    end = indices.shape[0] - 1
    known, y = np.empty((3, ROOM), right.dtype), np.empty(b, v.dtype)
    zero = right.dtype.type(0)
    for i in range(first, last):
        start = indptr[i]
        for c in range(b):
            y[c] = zero
        for a in range(start, indptr[i + 1], ROOM):
            count = min(ROOM, indptr[i + 1] - a)
            look_at(e, i, a, count, known)
            for t in range(count):
                j = indices[a + t]
                soon = indices[min(a + t + AHEAD, end)]
                for c in range(0, k, line):
                    prefetch(right, soon, c)
                s = zero
                for c in range(k):
                    s += left[i, c] * right[j, c]
                r = known[0, t] * (known[1, t] - s)
                kept[a + t - start] = r
                for c in range(b):
                    y[c] += r * v[j, c]
        for c in range(b):
            y[c] *= q[i]
        for p in range(start, indptr[i + 1]):
            r, j = kept[p - start], indices[p]
            for c in range(b):
                total[j, c] += r * y[c]


def residual_gram(e: Entries, left: np.ndarray, right: np.ndarray, v: np.ndarray, q: np.ndarray, threads: int) -> np.ndarray:
    """R^T diag(q) R V, columns x b."""
    dtype = np.dtype(right.dtype)
    u, w = np.ascontiguousarray(left, dtype), np.ascontiguousarray(right)
    block, scale = np.ascontiguousarray(v, dtype), np.ascontiguousarray(q, dtype).ravel()
    longest = int(np.diff(e.indptr).max(initial=0))
    parts = balanced(e.indptr, ranges(len(e.data)))
    lanes = [np.zeros(block.shape, dtype) for _ in range(lanes_for(len(parts), block.nbytes))]

    def step(total: np.ndarray, part: tuple[int, int], scratch: dict) -> None:
        if "residual" not in scratch:
            scratch["residual"] = np.empty(longest, dtype)
        residual_gram_range(e, u, w, scale, block, *part, scratch["residual"], total)

    run_lanes(parts, lanes, step, threads)
    while len(lanes) > 1:
        for one, two in zip(lanes[::2], lanes[1::2]):
            one += two
        lanes = lanes[::2]
    return lanes[0]
