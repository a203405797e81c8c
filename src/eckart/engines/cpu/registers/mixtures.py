"""Sums over rows and columns that stay in registers, for the mixture kernels; B lanes of float64 as
in ``registers``.

``add_squares``     squared length of (x - m) C for B columns of C and 2 B rows
``scaled_squares``  sum of (a x - b)^2 over columns for 4 components and 2 B rows
``take_moments``    sums of s x and s x^2 over rows for 4 components and B columns

The same small sums for B components at once, one in each lane of a register: a row of these
arrays holds one number of every component.

``lanes_sum(out, i, a, p, b, q, count)``    out[i] = sum_{t < count} a[p + t] b[q + t]
``lanes_line(out, i, s, j, b, q, count)``   out[i + t] = s[j] b[q + t] for t < count
``lanes_add(out, i, s, j, b, q, count)``    out[i + t] += s[j] b[q + t] for t < count

All arrays have B columns, so that no loop has a remainder.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from eckart.engines.cpu.registers.vectors import tile_size, written

TILE = tile_size(np.dtype(np.float64))


def padded(n: int) -> int:
    """n rounded up to whole tiles."""
    return -(-n // TILE) * TILE


def pack_panels(roots: np.ndarray) -> np.ndarray:
    """Upper triangular matrices k x n x n, B columns at a time, one group below the other: row (z
    p/B + j/B) p + l, column j mod B holds C_z[l, j]."""
    k, n, _ = roots.shape
    p = padded(n)
    wide = np.zeros((k, p, p))
    wide[:, :n, :n] = roots
    return np.ascontiguousarray(wide.reshape(k, p, p // TILE, TILE).transpose(0, 2, 1, 3)).reshape(
        -1, TILE
    )


@intrinsic
def add_squares(typingctx, xt, i, means, z, panels, first, count, out):
    """out[z, i:i+2B] += sum_{j<B} (sum_{l<count} panels[first + l, j] (xt[l, i:i+2B] - means[z,
    l]))^2, sums in 2 B registers."""

    def write(t, x, i, m, z, c, first, count, o):
        builder = t.builder
        upper = builder.add(i, t.const(t.lanes))
        empty = ir.Constant(t.vector, [0.0] * t.lanes)

        def column(l, sums):
            centre = t.splat(builder.load(t.at(m, z, l), align=t.bytes))
            halves = [builder.fsub(t.load(t.at(x, l, at)), centre) for at in (i, upper)]
            row, new = t.at(c, builder.add(first, l), t.const(0)), []
            for j in range(t.lanes):
                factor = t.splat(builder.load(builder.gep(row, [t.const(j)]), align=t.bytes))
                new += [t.multiply_add(factor, halves[h], sums[2 * j + h]) for h in (0, 1)]
            return new

        sums = t.loop(t.const(0), count, 1, [empty] * (2 * t.lanes))(column)
        for h, at in enumerate((i, upper)):
            place = t.at(o, z, at)
            total = t.load(place)
            for j in range(t.lanes):
                total = t.multiply_add(sums[2 * j + h], sums[2 * j + h], total)
            t.store(total, place)

    where = types.intp
    return types.void(xt, where, means, where, panels, where, where, out), written(write)


@intrinsic
def scaled_squares(typingctx, xt, i, n, scales, offsets, z, out):
    """out[z+q, i:i+2B] = sum_{j<n} (scales[z+q, j] xt[j, i:i+2B] - offsets[z+q, j])^2 for q < 4,
    sums in 8 registers."""

    def write(t, x, i, n, s, b, z, o):
        builder = t.builder
        upper = builder.add(i, t.const(t.lanes))
        each = [builder.add(z, t.const(q)) for q in range(4)]

        def column(j, sums):
            halves, new = [t.load(t.at(x, j, at)) for at in (i, upper)], []
            for q, row in enumerate(each):
                scale = t.splat(builder.load(t.at(s, row, j), align=t.bytes))
                offset = t.splat(builder.fneg(builder.load(t.at(b, row, j), align=t.bytes)))
                for h in (0, 1):
                    y = t.multiply_add(halves[h], scale, offset)
                    new.append(t.multiply_add(y, y, sums[2 * q + h]))
            return new

        sums = t.loop(t.const(0), n, 1, [ir.Constant(t.vector, [0.0] * t.lanes)] * 8)(column)
        for q, row in enumerate(each):
            for h, at in enumerate((i, upper)):
                t.store(sums[2 * q + h], t.at(o, row, at))

    where = types.intp
    return types.void(xt, where, where, scales, offsets, where, out), written(write)


@intrinsic
def take_moments(typingctx, x, count, j, shares, z, one, two):
    """one[q, j:j+B] = sum_{i<count} shares[z+q, i] x[i, j:j+B] and two[q, j:j+B] the same of
    squares, for q < 4, sums in 8 registers."""

    def write(t, source, count, j, s, z, *targets):
        builder = t.builder

        def row(i, sums):
            value, new = t.load(t.at(source, i, j)), []
            square = builder.fmul(value, value)
            for q in range(4):
                share = t.splat(builder.load(t.at(s, builder.add(z, t.const(q)), i), align=t.bytes))
                new += [
                    t.multiply_add(share, part, sums[2 * q + h])
                    for h, part in enumerate((value, square))
                ]
            return new

        sums = t.loop(t.const(0), count, 1, [ir.Constant(t.vector, [0.0] * t.lanes)] * 8)(row)
        for q in range(4):
            for h, target in enumerate(targets):
                t.store(sums[2 * q + h], t.at(target, t.const(q), j))

    where = types.intp
    return types.void(x, where, where, shares, where, one, two), written(write)


@intrinsic
def lanes_sum(typingctx, out, i, a, p, b, q, count):
    def write(t, out, i, a, p, b, q, count):
        def body(at, sums):
            one, two = (
                t.load(t.at(array, t.builder.add(first, at), t.const(0)))
                for array, first in ((a, p), (b, q))
            )
            return [t.multiply_add(one, two, sums[0])]

        empty = ir.Constant(t.vector, [0.0] * t.lanes)
        t.store(t.loop(t.const(0), count, 1, [empty])(body)[0], t.at(out, i, t.const(0)))

    where = types.intp
    return types.void(out, where, a, where, b, where, where), written(write)


def _line(more: bool):
    """The code of the two steps that write a line: in the place of what is there, or on top of
    it."""

    def write(t, out, i, s, j, b, q, count):
        scale = t.load(t.at(s, j, t.const(0)))

        def body(at, _):
            place = t.at(out, t.builder.add(i, at), t.const(0))
            value = t.load(t.at(b, t.builder.add(q, at), t.const(0)))
            t.store(
                t.multiply_add(scale, value, t.load(place))
                if more
                else t.builder.fmul(scale, value),
                place,
            )
            return []

        t.loop(t.const(0), count, 1, [])(body)

    return written(write)


@intrinsic
def lanes_line(typingctx, out, i, s, j, b, q, count):
    where = types.intp
    return types.void(out, where, s, where, b, where, where), _line(more=False)


@intrinsic
def lanes_add(typingctx, out, i, s, j, b, q, count):
    where = types.intp
    return types.void(out, where, s, where, b, where, where), _line(more=True)
