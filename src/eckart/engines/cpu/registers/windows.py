"""A prefetch hint for numba kernels whose next rows are known ahead: gathers from a cache that is
too small are bound by latency.

The two products of a skip-gram window, written as LLVM vectors: SIX outputs stand in registers
while the inputs of the window pass by.

``window_scores(x, rows, i, y, targets, j, s, k)``        s[i:i+2, :6] = x[rows[i:i+2]]
y[targets[j:j+6]]^T     (s has 8 columns)
``window_update(x, rows, count, y, targets, j, g, k)``    x[rows[i]] += sum_j g[i, j] y[targets[j]],
y[targets[j]] += sum_i g[i, j] x[rows[i]]  for i < count

``sample_scores(x, y, samples, t, s, k)``                 s[i] = <x[w_i], y[v_i]> for the samples
t..t+3 (v below 0 stands for -1 - v)
``sample_update(x, w, y, v, g, k)``                       x[w] += g y[v],  y[v] += g x[w], both from
what was there before

The first k numbers of the rows of x and y are used, rounded up to whole vectors, to which they are
padded. Rows that repeat are updated one after another; targets must differ, except where their g is
zero.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from eckart.engines.cpu.registers.vectors import written


def _hint(to_write: int):
    def codegen(context, builder, signature, args):
        view = context.make_array(signature.args[0])(context, builder, args[0])
        strides = cgutils.unpack_tuple(builder, view.strides)
        word, i32 = ir.IntType(64), ir.IntType(32)
        offset = builder.add(builder.mul(args[1], strides[0]), builder.mul(args[2], strides[1]))
        address = builder.inttoptr(
            builder.add(builder.ptrtoint(view.data, word), offset), ir.PointerType(ir.IntType(8))
        )
        kind = ir.FunctionType(ir.VoidType(), [address.type, i32, i32, i32])
        hint = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(hint, [address, i32(to_write), i32(3), i32(1)])
        return context.get_dummy_value()

    return codegen


@intrinsic
def prefetch(typingctx, array, row, column):
    """Ask for the cache line of array[row, column]; never faults and changes nothing."""
    return types.void(array, types.intp, types.intp), _hint(0)


@intrinsic
def prefetch_to_write(typingctx, array, row, column):
    """The same for a line that will be written: it is taken from the other cores at once, not a
    second time when the writing comes."""
    return types.void(array, types.intp, types.intp), _hint(1)


SIX = 6
WIDE = 8
"""Columns of the scores and gradients: SIX and two that stay unused."""


def _entry(t, view, at):
    """A number of a one-dimensional integer array, as a 64-bit word."""
    place = t.builder.gep(view.data, [at])
    t.bounds.check_own(view, place)
    value = t.builder.load(place)
    return t.builder.sext(value, t.word) if value.type.width < 64 else value


def _next(t, at, by):
    return t.builder.add(at, t.const(by))


def _sums(t, vectors):
    """The sums over lanes of 16 vectors of 16 lanes (8 of 8, 4 of 4), as one vector: halves of two
    are put side by side and added, again and again."""
    width = t.lanes
    while len(vectors) > 1:
        half, sources = width // 2, t.lanes // width
        first = [s * width + i for s in range(sources) for i in range(half)]
        low = first + [t.lanes + i for i in first]
        masks = [
            ir.Constant(ir.VectorType(ir.IntType(32), t.lanes), order)
            for order in (low, [i + half for i in low])
        ]
        vectors = [
            t.builder.fadd(*(t.builder.shuffle_vector(a, b, mask) for mask in masks))
            for a, b in zip(vectors[::2], vectors[1::2])
        ]
        width = half
    return vectors[0]


@intrinsic
def window_scores(typingctx, x, rows, i, y, targets, j, s, k):
    def write(t, left, rows, i, right, targets, j, out, k):
        builder, zero = t.builder, t.const(0)
        own = [t.at(left, _entry(t, rows, _next(t, i, a)), zero) for a in range(2)]
        other = [t.at(right, _entry(t, targets, _next(t, j, b)), zero) for b in range(SIX)]
        nothing = ir.Constant(t.vector, [0.0] * t.lanes)

        def body(c, sums):
            mine = [t.load(builder.gep(a, [c])) for a in own]
            theirs = [t.load(builder.gep(b, [c])) for b in other]
            return [
                t.multiply_add(m, o, sums[a * SIX + b])
                for a, m in enumerate(mine)
                for b, o in enumerate(theirs)
            ]

        sums = t.loop(zero, k, t.lanes, [nothing] * (2 * SIX))(body)
        padded = [[*sums[a * SIX : (a + 1) * SIX], nothing, nothing] for a in range(2)]
        if t.lanes == 2 * WIDE:
            t.store(_sums(t, padded[0] + padded[1]), t.at(out, i, zero))
        else:
            for a in range(2):
                # as many scores as a vector has lanes: all eight, or twice four
                for c in range(0, WIDE, t.lanes):
                    t.store(
                        _sums(t, padded[a][c : c + t.lanes]), t.at(out, _next(t, i, a), t.const(c))
                    )

    return types.void(x, rows, types.intp, y, targets, types.intp, s, types.intp), written(write)


@intrinsic
def window_update(typingctx, x, rows, count, y, targets, j, g, k):
    def write(t, left, rows, count, right, targets, j, steps, k):
        builder, zero = t.builder, t.const(0)
        other = [t.at(right, _entry(t, targets, _next(t, j, b)), zero) for b in range(SIX)]

        def column(c, _):
            places = [builder.gep(b, [c]) for b in other]
            before = [t.load(p) for p in places]

            def row(i, sums):
                place = builder.gep(t.at(left, _entry(t, rows, i), zero), [c])
                old = new = t.load(place)
                weights = [t.splat(builder.load(t.at(steps, i, t.const(b)))) for b in range(SIX)]
                for w, b in zip(weights, before):
                    new = t.multiply_add(w, b, new)
                t.store(new, place)
                return [t.multiply_add(w, old, total) for w, total in zip(weights, sums)]

            after = t.loop(zero, count, 1, before)(row)
            for value, place in zip(after, places):
                t.store(value, place)
            return []

        t.loop(zero, k, t.lanes, [])(column)

    return types.void(x, rows, types.intp, y, targets, types.intp, g, types.intp), written(write)


@intrinsic
def sample_scores(typingctx, x, y, samples, first, s, k):
    def write(t, left, right, pairs, first, out, k):
        builder, zero, sides = t.builder, t.const(0), ([], [])
        for i in range(4):
            for side, (table, column) in enumerate(((left, 0), (right, 1))):
                word = builder.sext(
                    builder.load(t.at(pairs, _next(t, first, i), t.const(column))), t.word
                )
                if side:
                    word = builder.select(
                        builder.icmp_signed("<", word, zero), builder.not_(word), word
                    )
                sides[side].append(t.at(table, word, zero))

        def body(c, sums):
            return [
                t.multiply_add(t.load(builder.gep(a, [c])), t.load(builder.gep(b, [c])), total)
                for a, b, total in zip(*sides, sums)
            ]

        sums = t.loop(zero, k, t.lanes, [ir.Constant(t.vector, [0.0] * t.lanes)] * 4)(body)
        for i, total in enumerate(sums):
            place = builder.gep(out.data, [t.const(i)])
            t.bounds.check_own(out, place)
            builder.store(t.sum(total), place)

    return types.void(x, y, samples, types.intp, s, types.intp), written(write)


@intrinsic
def sample_update(typingctx, x, w, y, v, g, k):
    def write(t, x, w, y, v, g, k):
        mine, other = t.at(x, w, t.const(0)), t.at(y, v, t.const(0))
        builder, step = t.builder, t.splat(g)

        def column(c, _):
            places = [builder.gep(a, [c]) for a in (mine, other)]
            old, second = (t.load(place) for place in places)
            t.store(t.multiply_add(step, second, old), places[0])
            t.store(t.multiply_add(step, old, second), places[1])
            return []

        t.loop(t.const(0), k, t.lanes, [])(column)

    return types.void(x, types.intp, y, types.intp, x.dtype, types.intp), written(write)
