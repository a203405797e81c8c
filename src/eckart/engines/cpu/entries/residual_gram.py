"""M^T diag(q) M V for M = R - a0 U V^T, R the negative gradient of the data term on the stored
entries, made anew in every pass.

With G = V^T Z for the block Z, row i has y_i = q_i (R_i Z - a0 u_i G); then M^T y = R^T y - a0 V
(U^T y), U^T y being small. A pass costs a dot product of length k for every entry and keeps the
residuals of one row at a time, in place of one number for every entry.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from eckart.compiling import OUTSIDE
from eckart.engines.cpu.dense.thin import inner, outer, tree_sum
from eckart.engines.cpu.entries.entry import (
    AHEAD,
    ALL,
    FAST,
    entries_of,
    known_room,
    looking,
    next_rows,
)
from eckart.engines.cpu.entries.sparse import cuts_of
from eckart.engines.cpu.native.pool import address_of, call_kernel, run_parts
from eckart.engines.cpu.registers.windows import prefetch
from eckart.engines.cpu.ridge.schedule import ranges
from eckart.engines.host import Host
from eckart.engines.protocol import RidgeRule
from eckart.scheduler import lanes_for


class GramSides(NamedTuple):
    """The factors U and V, q, the block Z, a0 G (no row: none), whether feedback is implicit, and
    what ``kept`` of a kernel is: room for the longest row (0), for all entries (1), or R itself
    (2)."""

    left: Any
    right: Any
    q: Any
    v: Any
    small: Any
    implicit: Any
    held: Any


@njit(**OUTSIDE, fastmath=FAST)
def residual_gram_range(indptr, indices, known, sides, first, last, kept, total, back):
    """total += sum over rows first..last, whose w, y and q are ``known``, of r_i y_i^T, back += u_i
    y_i^T."""
    left, right, q, v, small, implicit, held = sides
    k, b, before = right.shape[1], v.shape[1], indptr[first]
    line = 64 // right.itemsize
    end = indices.shape[0] - 1
    y, zero = np.empty(b, v.dtype), right.dtype.type(0)
    for i in range(first, last):
        start = indptr[i]
        away = start if held == 0 else 0
        for c in range(b):
            y[c] = zero
        if b == 2 and held == 2:  # two columns in two numbers: half the time of a loop over columns
            one, two = zero, zero
            for p in range(start, indptr[i + 1]):
                j = indices[p]
                one += kept[p] * v[j, 0]
                two += kept[p] * v[j, 1]
            y[0], y[1] = one, two
        else:
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
        if b == 2:
            one, two = y[0], y[1]
            for p in range(start, indptr[i + 1]):
                r, j = kept[p - away], indices[p]
                total[j, 0] += r * one
                total[j, 1] += r * two
        else:
            for p in range(start, indptr[i + 1]):
                r, j = kept[p - away], indices[p]
                for c in range(b):
                    total[j, c] += r * y[c]


@njit(**OUTSIDE)
def residual_gram_lane(lane, who, cuts, codes, chosen, e, known, sides, kept, totals, backs):
    """Every range of rows that belongs to a lane, in their order, into the lane's own sums."""
    look, kernel = codes
    rows = kept[who if kept.shape[0] > 1 else 0]
    for part in range(lane, cuts.shape[0] - 1, totals.shape[0]):
        first, last = cuts[part], cuts[part + 1]
        while first < last:
            end = next_rows(e.indptr, chosen, first, last) if sides.held < 2 else last
            if sides.held < 2:
                call_kernel(look, (e, chosen, first, end, known[who]))
            call_kernel(
                kernel,
                (
                    e.indptr,
                    e.indices,
                    known[who],
                    sides,
                    first,
                    end,
                    rows,
                    totals[lane],
                    backs[lane],
                ),
            )
            first = end


def residual_gram(
    x: Host,
    left: np.ndarray,
    right: np.ndarray,
    v: np.ndarray,
    q: np.ndarray,
    rule: RidgeRule,
    *,
    mean: float = 0.0,
    own: Any = None,
    other: Any = None,
    spread: float = 0.0,
    threads: int,
) -> np.ndarray:
    """M^T diag(q) M V, columns x b; for implicit feedback R stays with the placed matrix while the
    factors are the same."""
    dtype = np.dtype(right.dtype)
    e = entries_of(x, dtype, rule, bias=own, offset=other, mean=mean)
    u, w = np.ascontiguousarray(left, dtype), np.ascontiguousarray(right)
    block, scale = np.ascontiguousarray(v, dtype), np.ascontiguousarray(q, dtype).ravel()
    small = (
        (spread * inner(w, block, None, threads)).astype(dtype)
        if spread
        else np.empty((0, block.shape[1]), dtype)
    )
    cuts = cuts_of(e.indptr, ranges(len(e.data)))
    lanes = lanes_for(len(cuts) - 1, block.nbytes)
    totals, backs = np.zeros((lanes, *block.shape), dtype), np.zeros((lanes, *small.shape))

    held, whole = 0, np.empty(0, dtype)
    if spread:
        before = x.kept.get("residual")
        held = 2 if before is not None and before[0] is left and before[1] is right else 1
        whole = before[2] if held == 2 else np.empty(len(e.data), dtype)
        x.kept["residual"] = left, right, whole
    sides = GramSides(u, w, scale, block, small, bool(e.alpha > 0), held)
    longest, threads = int(x.counts.max(initial=0)), min(threads, lanes)
    kept = whole.reshape(1, -1) if held else np.empty((threads, longest), dtype)
    known = known_room(x, e.data.dtype, threads)
    kernel = address_of(
        residual_gram_range,
        (e.indptr, e.indices, known[0], sides, 0, 0, kept[0], totals[0], backs[0]),
    )
    codes = looking(e, ALL, known), kernel
    arguments = cuts, codes, ALL, e, known, sides, kept, totals, backs
    run_parts(residual_gram_lane, lanes, arguments, threads)
    total, back = tree_sum(list(totals), threads), tree_sum(list(backs), 1)
    return outer(w, -spread * back, total, 1.0, threads) if spread else total
