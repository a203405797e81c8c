"""Sweeps of non-negative factors by least squares, as serial kernels over a range of rows.

``hals_range``   min 1/2 u^T G u - p_i.u over u >= 0 for every row, G common to all: coordinate
descent, u_c <- max(0, u_c - (G u - p)_c / G_cc). Rows are
                 turned into tiles of 4B columns (B lanes of a vector register), so that one
                 coordinate of 4B rows moves at once.
``seen_range``   the same where every row has its own G_i = sum_j w_ij h_j h_j^T over its observed
entries, assembled in cache (``ridge.assemble``).
``error_range``  squared errors at the stored entries; ``stored_rows``  dense rows as entries > 0.

Sweeps return, for every row, the objective and the squared violation of the optimality conditions
at the row they were given, before the sweep: sum_c G_cc min(u_c, g_c / G_cc)^2, g the gradient, in
units of the objective. Those of the Kullback-Leibler divergence are in ``kl_kernels``.

Factors are padded with zero columns to whole registers (``ranges.padded``); zeros stay zero.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from eckart.compiling import OUTSIDE
from eckart.engines.cpu.entries.entry import FAST
from eckart.engines.cpu.registers.vectors import written
from eckart.engines.cpu.ridge.cholesky import assemble

WIDE = 4


def _slopes(tile, gram, c, pull, w):
    """(G w - p)_c of the 4B rows that are the columns of w, as four vectors."""
    builder, row = tile.builder, tile.at(gram, c, tile.const(0))

    def step(d, sums):
        factor = tile.splat(builder.load(builder.gep(row, [d]), align=tile.bytes))
        return [
            tile.multiply_add(factor, tile.load(tile.at(w, d, tile.const(i * tile.lanes))), s)
            for i, s in enumerate(sums)
        ]

    start = [
        builder.fneg(tile.load(tile.at(pull, c, tile.const(i * tile.lanes)))) for i in range(WIDE)
    ]
    return tile.loop(tile.const(0), gram[1], 1, start)(step)


@intrinsic
def move(typingctx, gram, c, inverse, pull, w, moved):
    """w[c] <- max(0, w[c] - (G w - p)_c inverse) for 4B rows; moved[0] += the squared changes."""

    def write(tile, gram, c, inverse, pull, w, moved):
        builder, inverse, zero = tile.builder, tile.splat(inverse), tile.const(0)
        empty = ir.Constant(tile.vector, [0.0] * tile.lanes)
        total = tile.load(tile.at(moved, zero, zero))
        for i, slope in enumerate(_slopes(tile, gram, c, pull, w)):
            place = tile.at(w, c, tile.const(i * tile.lanes))
            old = tile.load(place)
            new = builder.fsub(old, builder.fmul(slope, inverse))
            new = builder.select(builder.fcmp_ordered(">", new, empty), new, empty)
            tile.store(new, place)
            step = builder.fsub(new, old)
            total = tile.multiply_add(step, step, total)
        tile.store(total, tile.at(moved, zero, zero))

    return types.void(gram, types.intp, gram.dtype, pull, w, moved), written(write)


@intrinsic
def measure(typingctx, gram, c, inverse, pull, w, out):
    """out[0] += G_cc min(w_c, g_c / G_cc)^2 and out[1] += 1/2 w_c (g - p)_c for 4B rows, g = G w -
    p."""

    def write(tile, gram, c, inverse, pull, w, out):
        builder, inverse = tile.builder, tile.splat(inverse)
        top, half = (
            tile.splat(builder.load(tile.at(gram, c, c), align=tile.bytes)),
            tile.splat(tile.scalar(0.5)),
        )
        for i, slope in enumerate(_slopes(tile, gram, c, pull, w)):
            column = tile.const(i * tile.lanes)
            old, given = tile.load(tile.at(w, c, column)), tile.load(tile.at(pull, c, column))
            step = builder.fmul(slope, inverse)
            gap = builder.select(builder.fcmp_ordered("<", old, step), old, step)
            for row, add in (
                (0, builder.fmul(top, builder.fmul(gap, gap))),
                (1, builder.fmul(builder.fmul(half, old), builder.fsub(slope, given))),
            ):
                place = tile.at(out, tile.const(row), column)
                tile.store(builder.fadd(tile.load(place), add), place)

    return types.void(gram, types.intp, gram.dtype, pull, w, out), written(write)


@njit(**OUTSIDE, fastmath=FAST)
def hals_range(gram, pull, l1, start, w, sweeps, shrink, size, level):
    """Sweep the rows of ``start`` into w, at most ``sweeps`` times; a tile stops when its squared
    change is under ``shrink`` of its first. level[i] is the objective and the violation of row i
    before."""
    k, tile, rows = gram.shape[0], WIDE * size, w.shape[0]
    wt, pt = np.zeros((k, tile), w.dtype), np.zeros((k, tile), w.dtype)
    moved, seen = np.zeros((1, size), w.dtype), np.zeros((2, tile), w.dtype)
    inverse = np.empty(k, w.dtype)
    for c in range(k):
        inverse[c] = 1 / max(
            gram[c, c], w.dtype.type(1e-30)
        )  # a component that is zero stays where it is: its slope is zero too
    for a in range(0, rows, tile):
        m = min(tile, rows - a)
        if m < tile:
            wt[:] = 0
            pt[:] = 0
        for r in range(m):
            for c in range(k):
                wt[c, r] = start[a + r, c]
                pt[c, r] = pull[a + r, c] - l1
        seen[:] = 0
        for c in range(k):
            measure(gram, c, inverse[c], pt, wt, seen)
        for r in range(m):
            level[a + r, 0] = seen[1, r]
            level[a + r, 1] = seen[0, r]
        first = 0.0
        for s in range(sweeps):
            moved[:] = 0
            for c in range(k):
                move(gram, c, inverse[c], pt, wt, moved)
            change = 0.0
            for j in range(size):
                change += moved[0, j]
            if s == 0:
                first = change
            elif change <= shrink * first:
                break
        for r in range(m):
            for c in range(k):
                w[a + r, c] = wt[c, r]


@njit(**OUTSIDE)
def hals_block(block, other, weights, gram, l1, start, w, sweeps, shrink, size, room, sums):
    """hals_range of the rows of a dense block, whose products with the other factor and with the
    result are made here: a thread is away from Python for all of it. ``room`` holds the pull of
    some rows, which are worked at a time, their levels and products; ``sums`` A^T D W, W^T D W and
    the levels, to which this block adds."""
    height, square, cross = room[0].shape[0], room[4], room[3]
    for first in range(0, block.shape[0], height):
        last = min(first + height, block.shape[0])
        rows, part, own = last - first, block[first:last], w[first:last]
        pull, level, heavy = room[0][:rows], room[1][:rows], room[2][:rows]
        np.dot(part, other, pull)
        hals_range(gram, pull, l1, start[first:last], own, sweeps, shrink, size, level)
        if weights.shape[0]:
            for i in range(rows):
                for c in range(w.shape[1]):
                    heavy[i, c] = own[i, c] * weights[first + i]
                sums[2][0] += weights[first + i] * level[i, 0]
                sums[2][1] += weights[first + i] * level[i, 1]
        else:
            # an assignment of arrays would compile its error message too, for longer than all the
            # rest
            for i in range(rows):
                for c in range(w.shape[1]):
                    heavy[i, c] = own[i, c]
                sums[2][0] += level[i, 0]
                sums[2][1] += level[i, 1]
        np.dot(part.T, heavy, cross)
        np.dot(own.T, heavy, square)
        for j in range(cross.shape[0]):
            for c in range(cross.shape[1]):
                sums[0][j, c] += cross[j, c]
        for a in range(square.shape[0]):
            for c in range(square.shape[1]):
                sums[1][a, c] += square[a, c]


@njit(**OUTSIDE, fastmath=FAST)
def seen_range(entries, other, start, w, k, rule, size, first, last, chunk, gram, level):
    """The same for rows first..last whose observed entries give each its own matrix. ``entries``
    are indptr, indices, data and weights (none: all 1), ``rule`` l1, l2, sweeps and shrink; k
    columns are real, and the rows of w are those of the range."""
    indptr, indices, data, weights = entries
    l1, l2, sweeps, shrink = rule
    width = other.shape[1]
    rhs, side = np.empty((1, width), w.dtype), np.empty((0, width), w.dtype)
    scaled, longest, zero = np.empty((2, chunk.shape[0]), w.dtype), 0, w.dtype.type(0)
    for i in range(first, last):
        longest = max(longest, indptr[i + 1] - indptr[i])
    known = np.ones((3, longest), w.dtype)
    u, inverse = np.zeros(width, w.dtype), np.zeros(k, w.dtype)
    for i in range(first, last):
        gram[:] = 0
        rhs[:] = 0
        a = indptr[i]
        count = indptr[i + 1] - a
        for t in range(count):
            if weights.shape[0] > 0:
                known[0, t] = weights[a + t]
            known[1, t] = data[a + t]
            known[2, t] = known[0, t] * known[1, t]
        square, _, _ = assemble(
            indices, other, a, count, known, np.int64(0), chunk, scaled, gram, rhs, side, size
        )
        for c in range(k):
            for d in range(c):
                gram[c, d] = gram[d, c]
            gram[c, c] += l2
            inverse[c] = 1 / max(gram[c, c], w.dtype.type(1e-30))
            u[c] = start[i, c]
        total, gap = 0.5 * square, 0.0
        for c in range(k):
            slope = l1 - rhs[0, c]
            for d in range(k):
                slope += gram[c, d] * u[d]
            low = min(u[c], slope * inverse[c])
            gap += gram[c, c] * low * low
            total += 0.5 * u[c] * (slope - rhs[0, c] + l1)
        level[i, 0], level[i, 1] = total, gap
        initial = 0.0
        for s in range(sweeps):
            change = 0.0
            for c in range(k):
                slope = l1 - rhs[0, c]
                for d in range(k):
                    slope += gram[c, d] * u[d]
                new = max(u[c] - slope * inverse[c], zero)
                change += gram[c, c] * (new - u[c]) ** 2
                u[c] = new
            if s == 0:
                initial = change
            elif change <= shrink * initial:
                break
        for c in range(k):
            w[i, c] = u[c]


@njit(**OUTSIDE, fastmath=FAST)
def error_range(entries, left, right, rows, absent, first, last):
    """sum v (a - s)^2, s = u.h, over the stored entries of rows first..last, rows weighted (none:
    all 1); with ``absent`` less s^2, which is then counted for all columns elsewhere."""
    indptr, indices, data, weights = entries
    k, weighted, total = left.shape[1], weights.shape[0] > 0, 0.0
    zero = left.dtype.type(0)
    for i in range(first, last):
        own = rows[i] if rows.shape[0] > 0 else 1.0
        for p in range(indptr[i], indptr[i + 1]):
            s, j = zero, indices[p]
            for c in range(k):
                s += left[i, c] * right[j, c]
            rest = np.float64(data[p]) - s
            rest = rest * rest - np.float64(s) * s if absent else rest * rest
            total += own * (rest * weights[p] if weighted else rest)
    return total


@njit(**OUTSIDE)
def stored_rows(block, indptr, indices, data):
    """The entries > 0 of a dense block as compressed rows; the arrays have room for all."""
    at = 0
    indptr[0] = 0
    for i in range(block.shape[0]):
        for j in range(block.shape[1]):
            if block[i, j] > 0:
                indices[at] = j
                data[at] = block[i, j]
                at += 1
        indptr[i + 1] = at
