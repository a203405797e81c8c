"""Arithmetic on tall non-negative factors for the threads of the thread pool: each kernel does one range
of rows, or one lane of blocks."""

from __future__ import annotations

import numpy as np
from numba import njit

from eckart.compiling import OUTSIDE
from eckart.engines.cpu.native.memory_words import call_kernel
from eckart.engines.cpu.native.products import gemm

AT_ONCE = 256
"""Rows whose weighted copy is multiplied at once: it stays in the second-level cache."""


@njit(**OUTSIDE)
def sums_part(part, who, cuts, f, weights, function, ones, squares, mass, ends):
    """F^T D F, the sums of D F, and the least and the largest entries of F over a range of rows;
    weights of length 0 are all one. ``ones`` holds alpha and beta of the product ``function``."""
    k, first, last = f.shape[1], cuts[part], cuts[part + 1]
    heavy = np.empty((AT_ONCE, k), f.dtype)
    size, step = f.itemsize, f.strides[0]
    for a in range(first, last, AT_ONCE):
        rows = min(AT_ONCE, last - a)
        for r in range(rows):
            by = weights[a + r] if weights.shape[0] > 0 else 1.0
            for c in range(k):
                value = f[a + r, c]
                ends[part, 0, c] = min(ends[part, 0, c], value)
                ends[part, 1, c] = max(ends[part, 1, c], value)
                heavy[r, c] = value * f.dtype.type(by)
                mass[part, c] += heavy[r, c]
        where = f.ctypes.data + a * step
        gemm(
            function,
            True,
            k,
            k,
            rows,
            ones,
            heavy.ctypes.data,
            k,
            where,
            step // size,
            squares[part].ctypes.data,
            k,
        )


@njit(**OUTSIDE)
def leap_part(part, who, cuts, new, old, stride, out):
    """out = max(new + stride (new - old), 0) over a range of rows."""
    zero = new.dtype.type(0)
    for i in range(cuts[part], cuts[part + 1]):
        for c in range(new.shape[1]):
            out[i, c] = max((new[i, c] - old[i, c]) * stride + new[i, c], zero)


@njit(**OUTSIDE)
def descent_part(part, who, cuts, code, gram, pull, l1, start, out, how, level):
    """``hals_range``, whose address is ``code``, of a range of rows; ``how`` are sweeps, shrink and
    the rows of a tile."""
    a, b = cuts[part], cuts[part + 1]
    given = gram, pull[a:b], l1, start[a:b], out[a:b], how[0], how[1], how[2], level[a:b]
    call_kernel(code, given)


@njit(**OUTSIDE)
def lane_part(part, who, code, rows, x, other, weights, rule, codes, how, room, sums):
    """``hals_block``, whose address is ``code``, of every block of ``rows`` rows that belongs to a
    lane; ``codes`` are those before and after."""
    lanes, (start, out) = sums[0].shape[0], codes
    (gram, l1), (sweeps, shrink, size) = rule, how
    pull, levels, heavy, cross, square = room
    own = pull[who], levels[who], heavy[who], cross[who], square[who]
    totals = sums[0][part], sums[1][part], sums[2][part]
    totals[0][:], totals[1][:], totals[2][:] = 0, 0, 0  # what an earlier pass left there
    for a in range(part * rows, x.shape[0], lanes * rows):
        b = min(a + rows, x.shape[0])
        if weights.shape[0] > 0:
            call_kernel(
                code,
                (
                    x[a:b],
                    other,
                    weights[a:b],
                    gram,
                    l1,
                    start[a:b],
                    out[a:b],
                    sweeps,
                    shrink,
                    size,
                    own,
                    totals,
                ),
            )
        else:
            call_kernel(
                code,
                (
                    x[a:b],
                    other,
                    weights,
                    gram,
                    l1,
                    start[a:b],
                    out[a:b],
                    sweeps,
                    shrink,
                    size,
                    own,
                    totals,
                ),
            )
