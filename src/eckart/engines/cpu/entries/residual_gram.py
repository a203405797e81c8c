"""M^T diag(q) M V for M = R - a0 U V^T, R the negative gradient of the data term on the stored entries, made anew in every pass.

With G = V^T Z for the block Z, row i has y_i = q_i (R_i Z - a0 u_i G); then M^T y = R^T y - a0 V (U^T y), U^T y being small. A pass costs a dot product of
length k for every entry and keeps the residuals of one row at a time, in place of one number for every entry.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from eckart.compiling import OUTSIDE
from eckart.engines.cpu.dense.thin import inner, outer
from eckart.engines.cpu.entries.entry import AHEAD, FAST, Entries, looked_at
from eckart.engines.cpu.entries.sparse import balanced
from eckart.engines.cpu.registers.prefetch import prefetch
from eckart.engines.cpu.ridge.schedule import ranges
from eckart.scheduler import lanes_for, run_lanes


@njit(**OUTSIDE, fastmath=FAST)
def residual_gram_range(
    indptr, indices, implicit, known, left, right, q, v, small, first, last, kept, held, total, back
):
    """total += sum over rows first..last, whose w, y and q are ``known``, of r_i y_i^T, back += u_i y_i^T; ``small`` is a0 G (no row: none), ``kept`` has room
    for the longest row, or (``held`` 1) for all entries, or (2) holds R already."""
    k, b, before = right.shape[1], v.shape[1], indptr[first]
    line = 64 // right.itemsize
    end = indices.shape[0] - 1
    y, zero = np.empty(b, v.dtype), right.dtype.type(0)
    for i in range(first, last):
        start = indptr[i]
        away = start if held == 0 else 0
        for c in range(b):
            y[c] = zero
        for p in range(start, indptr[i + 1] if held == 2 else start):
            for c in range(b):
                y[c] += kept[p] * v[indices[p], c]
        for p in range(start, indptr[i + 1] if held < 2 else start):
            t, j = p - before, indices[p]
            soon = indices[min(p + AHEAD, end)]
            for c in range(0, k, line):
                prefetch(right, soon, c)
            s = zero
            for c in range(k):
                s += left[i, c] * right[j, c]
            r = known[2, t] - known[0, t] * s if implicit else known[0, t] * (known[1, t] - s)
            kept[p - away] = r
            for c in range(b):
                y[c] += r * v[j, c]
        for d in range(small.shape[0]):
            for c in range(b):
                y[c] -= left[i, d] * small[d, c]
        for c in range(b):
            y[c] *= q[i]
        for d in range(small.shape[0]):
            for c in range(b):
                back[d, c] += left[i, d] * y[c]
        for p in range(start, indptr[i + 1]):
            r, j = kept[p - away], indices[p]
            for c in range(b):
                total[j, c] += r * y[c]


def residual_gram(
    e: Entries,
    left: np.ndarray,
    right: np.ndarray,
    v: np.ndarray,
    q: np.ndarray,
    spread: float,
    threads: int,
    memory: dict,
) -> np.ndarray:
    """M^T diag(q) M V, columns x b; for implicit feedback R stays in ``memory``, that of the placed matrix, while the factors are the same."""
    dtype = np.dtype(right.dtype)
    u, w = np.ascontiguousarray(left, dtype), np.ascontiguousarray(right)
    block, scale = np.ascontiguousarray(v, dtype), np.ascontiguousarray(q, dtype).ravel()
    longest, b = int(np.diff(e.indptr).max(initial=0)), block.shape[1]
    small = (spread * inner(w, block, None, threads)).astype(dtype) if spread else np.empty((0, b), dtype)
    parts = balanced(e.indptr, ranges(len(e.data)))
    lanes = [(np.zeros(block.shape, dtype), np.zeros(small.shape)) for _ in range(lanes_for(len(parts), block.nbytes))]

    held, whole, nothing, implicit = 0, np.empty(0, dtype), np.empty((3, 0), dtype), bool(e.alpha > 0)
    if spread:
        before = memory.get("residual")
        held = 2 if before is not None and before[0] is left and before[1] is right else 1
        whole = before[2] if held == 2 else np.empty(len(e.data), dtype)
        memory["residual"] = left, right, whole

    def step(sums: tuple[np.ndarray, np.ndarray], part: tuple[int, int], scratch: dict) -> None:
        if "residual" not in scratch:
            scratch["residual"] = whole if held else np.empty(longest, dtype)
        known_parts = looked_at(e, *part, scratch) if held < 2 else [(*part, nothing)]
        for first, last, known in known_parts:
            residual_gram_range(
                e.indptr, e.indices, implicit, known, u, w, scale, block, small, first, last, scratch["residual"], held, *sums
            )  # fmt: skip

    run_lanes(parts, lanes, step, threads)
    while len(lanes) > 1:
        for one, two in zip(lanes[::2], lanes[1::2]):
            for a, more in zip(one, two):
                a += more
        lanes = lanes[::2]
    total, back = lanes[0]
    return outer(w, -spread * back, total, 1.0, threads) if spread else total
