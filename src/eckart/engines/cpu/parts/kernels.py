"""Sweeps of non-negative factors by least squares, as serial kernels over a range of rows.

``hals_range``   min 1/2 u^T G u - p_i.u over u >= 0 for every row, G common to all: coordinate
descent, u_c <- max(0, u_c - (G u - p)_c / G_cc). Rows are
                 turned into tiles of 4B columns (B lanes of a vector register), so that one
                 coordinate of 4B rows moves at once.
``seen_range``   the same where every row has its own G_i = sum_j w_ij h_j h_j^T over its observed
entries, assembled in cache (``ridge.assemble``).

Sweeps return, for every row, the objective and the squared violation of the optimality conditions
at the row they were given, before the sweep: sum_c G_cc min(u_c, g_c / G_cc)^2, g the gradient, in
units of the objective. Those of the Kullback-Leibler divergence are in ``kl_kernels``.

Factors are padded with zero columns to whole registers (``ranges.padded``); zeros stay zero.

Multiplicative steps of non-negative factors by the Kullback-Leibler divergence, as a serial
kernel over a range of rows.

``kl_range``     min sum_j w_ij (a log(a / u.h_j) - a + u.h_j) + l1 sum u + l2/2 ||u||^2 over u >=
0: steps u_c <- u_c r_c with
                 r_c = sum_j w a/(u.h_j) h_jc / (sum_j w h_jc + l1), which never raise it, or
                 r_c^1.75, which is faster and may.

It returns, for every row, the objective and the squared violation of the optimality conditions at
the row it was given, before the steps: m sum_c min(u_c d_c / m, 1 - r_c)^2, d_c the denominator, m
= max(sum_j w a, sum_c u_c d_c).

Factors are padded with zero columns to whole registers (``ranges.padded``); zeros stay zero.

Kernels of the thread pool do one range of rows, or one lane of blocks.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from eckart.compiling import OUTSIDE
from eckart.engines.cpu.entries.entry import FAST
from eckart.engines.cpu.native.pool import call_kernel
from eckart.engines.cpu.parts.ranges import LEAST
from eckart.engines.cpu.registers.vectors import written
from eckart.engines.cpu.registers.windows import prefetch
from eckart.engines.cpu.ridge.kernels import assemble

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


ROOM = 64
"""Entries of a row whose products stand in the cache at a time."""


def _four_rows(tile, x, view, t):
    """Addresses of the four rows x[index[t]] ... x[index[t + 3]]."""
    builder = tile.builder
    places = [builder.gep(view.data, [builder.add(t, tile.const(i))]) for i in range(4)]
    for place in places:
        tile.bounds.check_own(view, place)
    return [tile.at(x, builder.load(place), tile.const(0)) for place in places]


@intrinsic
def four_dots(typingctx, x, index, t, y, f):
    """f[0, t:t+4] = x[index[t:t+4]] . y[0]; the indices are 64-bit."""

    def write(tile, x, index, t, y, f):
        builder, zero, empty = (
            tile.builder,
            tile.const(0),
            ir.Constant(tile.vector, [0.0] * tile.lanes),
        )
        rows = _four_rows(tile, x, index, t)

        def step(c, sums):
            across = tile.load(tile.at(y, zero, c))
            return [
                tile.multiply_add(tile.load(builder.gep(r, [c])), across, s)
                for r, s in zip(rows, sums)
            ]

        for i, total in enumerate(tile.loop(zero, x[1], tile.lanes, [empty] * 4)(step)):
            place = tile.at(f, zero, builder.add(t, tile.const(i)))
            builder.store(tile.sum(total), place, align=tile.bytes)

    return types.void(x, index, types.intp, y, f), written(write)


@intrinsic
def four_adds(typingctx, x, index, t, f, y):
    """y[0] += sum of f[0, t:t+4] times the rows x[index[t:t+4]]."""

    def write(tile, x, index, t, f, y):
        builder, zero = tile.builder, tile.const(0)
        rows = _four_rows(tile, x, index, t)
        places = [tile.at(f, zero, builder.add(t, tile.const(i))) for i in range(4)]
        factors = [tile.splat(builder.load(place, align=tile.bytes)) for place in places]

        def step(c, _):
            place = tile.at(y, zero, c)
            parts = [tile.load(builder.gep(r, [c])) for r in rows]
            even = tile.multiply_add(factors[0], parts[0], tile.load(place))
            odd = builder.fmul(factors[1], parts[1])
            even, odd = (
                tile.multiply_add(factors[2], parts[2], even),
                tile.multiply_add(factors[3], parts[3], odd),
            )
            tile.store(builder.fadd(even, odd), place)
            return []

        tile.loop(zero, x[1], tile.lanes, [])(step)

    return types.void(x, index, types.intp, f, y), written(write)


@njit(**OUTSIDE)
def _take(indices, begin, m, x, at, ask):
    """at[:m] = the next columns, filled up to a multiple of four; with ``ask`` the rows of x that
    come after them are asked for."""
    line, end = 64 // x.itemsize, indices.shape[0] - 1
    for t in range(m):
        at[t] = indices[begin + t]
    if ask:
        for t in range(m):
            soon = indices[min(begin + ROOM + t, end)]
            for c in range(0, x.shape[1], line):
                prefetch(x, soon, c)
    for t in range(m, (m + 3) // 4 * 4):
        at[t] = at[0]


@njit(**OUTSIDE, fastmath=FAST)
def kl_range(entries, other, mass, start, w, k, rule, first, last, level):
    """Multiplicative steps of rows first..last of ``start`` into w; ``mass`` (length 0: of the
    observed entries) is sum_j h_j. ``entries`` as above, ``rule`` l1, l2, steps, fast, tol and
    valued; k columns are real."""
    indptr, indices, data, weights = entries
    l1, l2, steps, fast, tol, valued = rule
    width = other.shape[1]
    one, zero = w.dtype.type(1), w.dtype.type(0)
    low, least = w.dtype.type(1e-37), np.zeros(k, w.dtype)
    u, up, down = (
        np.zeros((1, width), w.dtype),
        np.zeros((1, width), w.dtype),
        np.zeros((1, width), w.dtype),
    )
    f, at = np.zeros((1, ROOM), w.dtype), np.zeros(ROOM, np.int64)
    weighted = weights.shape[0] > 0
    if mass.shape[0] > 0:
        for c in range(k):
            down[0, c] = mass[c]
    for i in range(first, last):
        a, b = indptr[i], indptr[i + 1]
        if mass.shape[0] == 0:
            down[:] = 0
        count, total = zero, 0.0
        for begin in range(a, b, ROOM):
            m = min(ROOM, b - begin)
            for t in range(m):
                f[0, t] = weights[begin + t] if weighted else one
                count += f[0, t] * data[begin + t]
            if mass.shape[0] == 0:
                _take(indices, begin, m, other, at, True)
                for t in range(m, (m + 3) // 4 * 4):
                    f[0, t] = 0
                for t in range(0, m, 4):
                    four_adds(other, at, t, f, down)
        tiny = max(w.dtype.type(1e-30) * count, w.dtype.type(1e-37))
        for c in range(k):
            d = down[0, c] + l1
            least[c] = w.dtype.type(LEAST) * count / d if d > zero else zero
            u[0, c] = max(start[i, c], least[c]) if d > zero else zero
        for s in range(steps):
            up[:] = 0
            for begin in range(a, b, ROOM):
                m = min(ROOM, b - begin)
                whole = (m + 3) // 4 * 4
                _take(indices, begin, m, other, at, s == 0 and mass.shape[0] > 0)
                for t in range(0, m, 4):
                    four_dots(other, at, t, u, f)
                if s == 0 and valued:
                    for t in range(m):
                        x = data[begin + t]
                        if x > zero:
                            v = weights[begin + t] if weighted else one
                            total += v * x * (np.log(x / max(f[0, t], tiny)) - one)
                if weighted:
                    for t in range(m):
                        f[0, t] = weights[begin + t] * data[begin + t] / max(f[0, t], tiny)
                else:
                    for t in range(m):
                        f[0, t] = data[begin + t] / max(f[0, t], tiny)
                for t in range(m, whole):
                    f[0, t] = 0
                for t in range(0, m, 4):
                    four_adds(other, at, t, f, up)
            if s == 0:
                size = zero
                for c in range(k):
                    total += u[0, c] * (down[0, c] + l1 + w.dtype.type(0.5) * l2 * u[0, c])
                    size += u[0, c] * (down[0, c] + l1 + l2 * u[0, c])
                size = max(size, count)
                gap = zero
                if size > zero:
                    for c in range(k):
                        d = down[0, c] + l1 + l2 * u[0, c]
                        r = up[0, c] / d if d > zero else zero
                        short = max(min(u[0, c] * d / size, one - r), -one)
                        gap += short * short
                level[i, 0], level[i, 1] = total, size * gap
            moved = zero
            for c in range(k):
                d = max(down[0, c] + l1, low)
                r = up[0, c] / d
                if l2 > zero:  # the positive root of l2 x^2 + d x = u up
                    r = (
                        w.dtype.type(2)
                        * up[0, c]
                        / (d + np.sqrt(d * d + w.dtype.type(4) * l2 * u[0, c] * up[0, c]))
                    )
                root = np.sqrt(r)
                r = r * root * np.sqrt(root) if fast else r
                new = max(u[0, c] * r, least[c])
                moved += abs(new - u[0, c]) * d
                u[0, c] = new
            if moved <= tol * count:
                break
        for c in range(k):
            w[i, c] = u[0, c]


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
