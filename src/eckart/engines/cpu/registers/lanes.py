"""The same small sums for B components at once, one in each lane of a register: a row of these
arrays holds one number of every component.

``lanes_sum(out, i, a, p, b, q, count)``    out[i] = sum_{t < count} a[p + t] b[q + t]
``lanes_line(out, i, s, j, b, q, count)``   out[i + t] = s[j] b[q + t] for t < count
``lanes_add(out, i, s, j, b, q, count)``    out[i + t] += s[j] b[q + t] for t < count

All arrays have B columns, so that no loop has a remainder.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from eckart.engines.cpu.registers.vectors import written


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
