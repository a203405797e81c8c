"""Rows of one small matrix against each other, by whole registers, for kernels that meet a system
of some tens of unknowns in every row or pattern.

``line_dot(a, i, b, j)``        a[i, :].b[j, :]
``sweep_lines(a, q, s, v, k)``  a[q, :] *= s, then a[r, :] -= v[0, r] a[q, :] for the other r < k
``four_lines(a, i, b, n, c)``  c[i:i+4, :] = a[i:i+4, :n] b[:n, :], four sums in registers

All rows are padded with zeros to whole registers: loops of LLVM's own over a handful of numbers
spend their time on what is left over.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from eckart.engines.cpu.registers.vectors import written


@intrinsic
def line_dot(typingctx, a, i, b, j):
    def write(t, a, i, b, j):
        one, two = t.at(a, i, t.const(0)), t.at(b, j, t.const(0))

        def body(c, sums):
            return [
                t.multiply_add(*(t.load(t.builder.gep(line, [c])) for line in (one, two)), sums[0])
            ]

        return t.sum(
            t.loop(t.const(0), a[1], t.lanes, [ir.Constant(t.vector, [0.0] * t.lanes)])(body)[0]
        )

    return a.dtype(a, types.intp, b, types.intp), written(write)


@intrinsic
def sweep_lines(typingctx, a, q, s, v, k):
    def write(t, a, q, s, v, k):
        builder, scale = t.builder, t.splat(s)

        def block(c, _):
            own = t.at(a, q, c)
            pivot = builder.fmul(scale, t.load(own))

            def body(r, _):
                place, less = (
                    t.at(a, r, c),
                    builder.fneg(builder.load(t.at(v, t.const(0), r), align=t.bytes)),
                )
                t.store(t.multiply_add(t.splat(less), pivot, t.load(place)), place)
                return []

            t.loop(t.const(0), k, 1, [])(body)
            t.store(pivot, own)
            return []

        t.loop(t.const(0), a[1], t.lanes, [])(block)

    return types.void(a, types.intp, a.dtype, v, types.intp), written(write)


@intrinsic
def four_lines(typingctx, a, i, b, n, c):
    def write(t, a, i, b, n, c):
        builder, rows = t.builder, [t.builder.add(i, t.const(r)) for r in range(4)]

        def block(at, _):
            def body(q, sums):
                line = t.load(t.at(b, q, at))
                return [
                    t.multiply_add(t.splat(builder.load(t.at(a, r, q), align=t.bytes)), line, s)
                    for r, s in zip(rows, sums)
                ]

            for r, s in zip(
                rows, t.loop(t.const(0), n, 1, [ir.Constant(t.vector, [0.0] * t.lanes)] * 4)(body)
            ):
                t.store(s, t.at(c, r, at))
            return []

        t.loop(t.const(0), c[1], t.lanes, [])(block)

    return types.void(a, types.intp, b, types.intp, c), written(write)
