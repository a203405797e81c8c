"""Multiplicative steps of non-negative factors by the Kullback-Leibler divergence, as a serial
kernel over a range of rows.

``kl_range``     min sum_j w_ij (a log(a / u.h_j) - a + u.h_j) + l1 sum u + l2/2 ||u||^2 over u >=
0: steps u_c <- u_c r_c with
                 r_c = sum_j w a/(u.h_j) h_jc / (sum_j w h_jc + l1), which never raise it, or
                 r_c^1.75, which is faster and may.

It returns, for every row, the objective and the squared violation of the optimality conditions at
the row it was given, before the steps: m sum_c min(u_c d_c / m, 1 - r_c)^2, d_c the denominator, m
= max(sum_j w a, sum_c u_c d_c).

Factors are padded with zero columns to whole registers (``ranges.padded``); zeros stay zero.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from eckart.compiling import OUTSIDE
from eckart.engines.cpu.entries.entry import FAST
from eckart.engines.cpu.parts.ranges import LEAST
from eckart.engines.cpu.registers.prefetch import prefetch
from eckart.engines.cpu.registers.vectors import written

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
