"""Register-blocked steps on square tiles, written as LLVM vectors because no compiler finds them
from loops.

A tile is B x B numbers held in B vector registers of B lanes (``vectors``). All arrays are
row-major; only the upper triangle of a symmetric matrix is used.

``grow_gram(x, count, g, B)``        g += x[:count]^T x[:count], the upper triangle by tiles
``take_gram(x, count, r, s, g, B)``  g[r:s] -= x[:count, r:s]^T x[:count], the same part of it
``factor_tile(g, t)``                g[t:t+B, t:t+B] = R with R^T R = that tile, upper triangle;
returns the smallest pivot met
``solve_panel(g, t, c)``             g[t:t+B, c:c+B] = R^-T g[t:t+B, c:c+B] with R the factored tile
at (t, t)
``pack_row(x, j, scale, y, t)``      y[t] = scale x[j]
``scale_row(x, j, f, y, t)``         y[t] = f[0] * x[j], number by number
``dot_tile(x, r, c, g)``             g[r:r+4, c:c+4] = x[r:r+4] x[c:c+4]^T
``row_dots(x, count, y, f)``         f[0, :count] = x[:count] y[0], four rows at a time (count is
rounded up to 4)
``add_rows(x, f, count, y)``         y[0] += sum_t f[0, t] x[t]
``forward_tile(g, t, y)``            one block of y[0] <- R^-T y[0]: y[t:t+B] is solved and taken
from the blocks after it
``backward_tile(g, t, y)``           one block of y[0] <- R^-1 y[0]: the blocks after it are solved
already

Rows of one small matrix against each other, by whole registers, for kernels that meet a system
of some tens of unknowns in every row or pattern.

``line_dot(a, i, b, j)``        a[i, :].b[j, :]
``sweep_lines(a, q, s, v, k)``  a[q, :] *= s, then a[r, :] -= v[0, r] a[q, :] for the other r < k
``four_lines(a, i, b, n, c)``  c[i:i+4, :] = a[i:i+4, :n] b[:n, :], four sums in registers

All rows are padded with zeros to whole registers: loops of LLVM's own over a handful of numbers
spend their time on what is left over.
"""

from __future__ import annotations

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from eckart.compiling import INSIDE
from eckart.engines.cpu.registers.vectors import written


def _strip_update(t, source, first, count, r, c, target, wide, sign):
    """g strip +- sum over rows first..first+count of x_row[r:r+R] x_row[c:c+wide B]^T, the strip in
    R x wide registers throughout.

    R is 4 with 256-bit registers and 8 with 512: three vectors wide, R numbers and 3 vectors are
    loaded for 3R multiply-adds, so that the loads keep up with the arithmetic, and the sums (12 of
    16 registers, 24 of 32) are enough to hide its latency.
    """
    builder, high = t.builder, t.lanes * t.bytes // 8
    columns = [builder.add(c, t.const(w * t.lanes)) for w in range(wide)]
    places = [
        t.at(target, builder.add(r, t.const(i)), column) for i in range(high) for column in columns
    ]

    def entry(index, sums):
        row = builder.add(first, index)
        across, down = (
            [t.load(t.at(source, row, column)) for column in columns],
            t.at(source, row, r),
        )
        new = []
        for i in range(high):
            value = builder.load(builder.gep(down, [t.const(i)]), align=t.bytes)
            factor = t.splat(builder.fneg(value) if sign < 0 else value)
            new += [t.multiply_add(factor, across[w], sums[i * wide + w]) for w in range(wide)]
        return new

    sums = t.loop(t.const(0), count, 1, [t.load(place) for place in places])(entry)
    for value, place in zip(sums, places):
        t.store(value, place)


def _strip(wide, sign):
    """An intrinsic f(x, first, count, r, c, g) for strips of one width."""

    @intrinsic
    def update(typingctx, x, first, count, r, c, g):
        def write(tile, *args):
            _strip_update(tile, *args, wide, sign)

        return types.void(x, types.intp, types.intp, types.intp, types.intp, g), written(write)

    return update


_add_1, _add_2, _add_3 = (_strip(wide, 1) for wide in (1, 2, 3))
_take_1, _take_2, _take_3 = (_strip(wide, -1) for wide in (1, 2, 3))


@njit(**INSIDE, fastmath=False)
def grow_gram(x, count, g, size):
    k = g.shape[0]
    for r in range(0, k, size * x.itemsize // 8):
        c = r // size * size
        while c < k:
            left = (k - c) // size
            if left == 1:
                _add_1(x, 0, count, r, c, g)
                c += size
            # 4 = 2 + 2: a strip one vector wide would wait for its sums
            elif left == 2 or left == 4:
                _add_2(x, 0, count, r, c, g)
                c += 2 * size
            else:
                _add_3(x, 0, count, r, c, g)
                c += 3 * size


@njit(**INSIDE, fastmath=False)
def take_gram(x, count, first, last, g, size):
    k = g.shape[0]
    for r in range(first, last, size * x.itemsize // 8):
        c = r // size * size
        while c < k:
            left = (k - c) // size
            if left == 1:
                _take_1(x, 0, count, r, c, g)
                c += size
            elif left == 2 or left == 4:
                _take_2(x, 0, count, r, c, g)
                c += 2 * size
            else:
                _take_3(x, 0, count, r, c, g)
                c += 3 * size


@intrinsic
def factor_tile(typingctx, g, t):
    def write(tile, array, first):
        builder, places = tile.builder, tile.rows(array, first, first)
        rows = [tile.load(place) for place in places]
        one = ir.Constant(tile.scalar, 1.0)
        least = None
        for i in range(tile.lanes):
            pivot = builder.extract_element(rows[i], ir.Constant(ir.IntType(32), i))
            least = (
                pivot
                if least is None
                else builder.select(builder.fcmp_ordered("<", pivot, least), pivot, least)
            )
            inverse = builder.fdiv(one, builder.call(tile.sqrt, [pivot]))
            rows[i] = builder.fmul(rows[i], tile.splat(inverse))
            for s in range(i + 1, tile.lanes):
                factor = builder.extract_element(rows[i], ir.Constant(ir.IntType(32), s))
                rows[s] = tile.multiply_add(tile.splat(builder.fneg(factor)), rows[i], rows[s])
        for row, place in zip(rows, places):
            tile.store(row, place)
        return least

    return g.dtype(g, types.intp), written(write)


@intrinsic
def solve_panel(typingctx, g, t, c):
    def write(tile, array, first, column):
        builder, corner = tile.builder, tile.rows(array, first, first)
        places = tile.rows(array, first, column)
        rows = [tile.load(place) for place in places]
        one = ir.Constant(tile.scalar, 1.0)
        for i in range(tile.lanes):
            pivot = builder.load(builder.gep(corner[i], [tile.const(i)]), align=tile.bytes)
            rows[i] = builder.fmul(rows[i], tile.splat(builder.fdiv(one, pivot)))
            for s in range(i + 1, tile.lanes):
                factor = builder.load(builder.gep(corner[i], [tile.const(s)]), align=tile.bytes)
                rows[s] = tile.multiply_add(tile.splat(builder.fneg(factor)), rows[i], rows[s])
        for row, place in zip(rows, places):
            tile.store(row, place)

    return types.void(g, types.intp, types.intp), written(write)


@intrinsic
def pack_row(typingctx, x, j, scale, y, t):
    def write(tile, source, j, scale, target, t):
        builder, wide = tile.builder, tile.splat(scale)

        def step(c, _):
            tile.store(builder.fmul(tile.load(tile.at(source, j, c)), wide), tile.at(target, t, c))
            return []

        tile.loop(tile.const(0), source[1], tile.lanes, [])(step)

    return types.void(x, types.intp, x.dtype, y, types.intp), written(write)


@intrinsic
def scale_row(typingctx, x, j, f, y, t):
    def write(tile, source, j, factors, target, t):
        def step(c, _):
            factor = tile.load(tile.at(factors, tile.const(0), c))
            tile.store(
                tile.builder.fmul(tile.load(tile.at(source, j, c)), factor), tile.at(target, t, c)
            )
            return []

        tile.loop(tile.const(0), source[1], tile.lanes, [])(step)

    return types.void(x, types.intp, f, y, types.intp), written(write)


@intrinsic
def dot_tile(typingctx, x, r, c, g):
    def write(tile, source, r, c, target):
        builder = tile.builder
        empty = ir.Constant(tile.vector, [0.0] * tile.lanes)

        def four(first, column):
            rows = [builder.add(first, tile.const(i)) for i in range(4)]
            return [tile.load(tile.at(source, row, column)) for row in rows]

        def step(column, sums):
            down, across = four(r, column), four(c, column)
            return [
                tile.multiply_add(down[i], across[j], sums[4 * i + j])
                for i in range(4)
                for j in range(4)
            ]

        sums = tile.loop(tile.const(0), source[1], tile.lanes, [empty] * 16)(step)
        for i in range(4):
            for j in range(4):
                place = tile.at(
                    target, builder.add(r, tile.const(i)), builder.add(c, tile.const(j))
                )
                builder.store(tile.sum(sums[4 * i + j]), place, align=tile.bytes)

    return types.void(x, types.intp, types.intp, g), written(write)


@intrinsic
def row_dots(typingctx, x, count, y, f):
    def write(tile, source, count, vector, target):
        builder = tile.builder
        zero, empty = tile.const(0), ir.Constant(tile.vector, [0.0] * tile.lanes)

        def rows(t, _):
            def step(c, sums):
                across = tile.load(tile.at(vector, zero, c))
                places = [tile.at(source, builder.add(t, tile.const(i)), c) for i in range(4)]
                return [tile.multiply_add(tile.load(p), across, s) for p, s in zip(places, sums)]

            for i, total in enumerate(tile.loop(zero, source[1], tile.lanes, [empty] * 4)(step)):
                builder.store(
                    tile.sum(total),
                    tile.at(target, zero, builder.add(t, tile.const(i))),
                    align=tile.bytes,
                )
            return []

        tile.loop(zero, count, 4, [])(rows)

    return types.void(x, types.intp, y, f), written(write)


@intrinsic
def add_rows(typingctx, x, f, count, y):
    def write(tile, source, factors, count, target):
        builder, zero = tile.builder, tile.const(0)

        def columns(wide):  # eight sums at a time hide each other's latency
            def body(c, _):
                at = [builder.add(c, tile.const(w * tile.lanes)) for w in range(wide)]
                places = [tile.at(target, zero, column) for column in at]

                def entry(t, sums):
                    factor = tile.splat(builder.load(tile.at(factors, zero, t), align=tile.bytes))
                    return [
                        tile.multiply_add(factor, tile.load(tile.at(source, t, column)), s)
                        for column, s in zip(at, sums)
                    ]

                for value, place in zip(
                    tile.loop(zero, count, 1, [tile.load(p) for p in places])(entry), places
                ):
                    tile.store(value, place)
                return []

            return body

        group = tile.const(8 * tile.lanes)
        whole = builder.sub(source[1], builder.srem(source[1], group))
        tile.loop(zero, whole, 8 * tile.lanes, [])(columns(8))
        tile.loop(whole, source[1], tile.lanes, [])(columns(1))

    return types.void(x, f, types.intp, y), written(write)


@intrinsic
def forward_tile(typingctx, g, t, y):
    def write(tile, array, first, target):
        builder = tile.builder
        zero, one = tile.const(0), ir.Constant(tile.scalar, 1.0)
        corner = tile.rows(array, first, first)
        rest = tile.load(tile.at(target, zero, first))
        solved = rest
        factors = []
        for i in range(tile.lanes):
            row = tile.load(corner[i])
            value = builder.fmul(tile.lane(rest, i), builder.fdiv(one, tile.lane(row, i)))
            solved = builder.insert_element(solved, value, ir.Constant(ir.IntType(32), i))
            factors.append(tile.splat(builder.fneg(value)))
            rest = tile.multiply_add(factors[i], row, rest)
        tile.store(solved, tile.at(target, zero, first))

        def block(c, _):
            place = tile.at(target, zero, c)
            parts = [tile.load(place), None]
            for i, address in enumerate(tile.rows(array, first, c)):
                row, half = tile.load(address), i % 2
                old = parts[half]
                parts[half] = (
                    builder.fmul(factors[i], row)
                    if old is None
                    else tile.multiply_add(factors[i], row, old)
                )
            tile.store(builder.fadd(*parts), place)
            return []

        tile.loop(builder.add(first, tile.const(tile.lanes)), array[1], tile.lanes, [])(block)

    return types.void(g, types.intp, y), written(write)


@intrinsic
def backward_tile(typingctx, g, t, y):
    def write(tile, array, first, target):
        builder = tile.builder
        zero, one = tile.const(0), ir.Constant(tile.scalar, 1.0)
        empty = ir.Constant(tile.vector, [0.0] * tile.lanes)

        def block(c, sums):
            across = tile.load(tile.at(target, zero, c))
            return [
                tile.multiply_add(tile.load(a), across, s)
                for a, s in zip(tile.rows(array, first, c), sums)
            ]

        after = builder.add(first, tile.const(tile.lanes))
        dots = tile.loop(after, array[1], tile.lanes, [empty] * tile.lanes)(block)
        place = tile.at(target, zero, first)
        values = tile.load(place)
        rest = [builder.fsub(tile.lane(values, i), tile.sum(dots[i])) for i in range(tile.lanes)]
        corner = tile.rows(array, first, first)

        def entry(r, c):
            return builder.load(builder.gep(corner[r], [tile.const(c)]), align=tile.bytes)

        for i in reversed(range(tile.lanes)):
            value = builder.fmul(rest[i], builder.fdiv(one, entry(i, i)))
            values = builder.insert_element(values, value, ir.Constant(ir.IntType(32), i))
            for r in range(i):
                rest[r] = builder.fsub(rest[r], builder.fmul(entry(r, i), value))
        tile.store(values, place)

    return types.void(g, types.intp, y), written(write)


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
