"""The words in which vector kernels are written: loads, stores, sums and multiply-adds of whole
registers, and loops around them, as LLVM.

A register has B lanes (B = 16 float32 or 8 float64 with 512 bits, half of that with 256, and 4 with
128).

Bounds of the steps that are written as LLVM vectors: with ``NUMBA_BOUNDSCHECK=1`` they raise
IndexError as plain indexing does; without it nothing is compiled. numba checks the indexing that it
compiles itself, and these steps compute addresses.

How wide the vectors of the kernels are: what numba compiles for decides, and a test may force
another width.

LLVM splits a vector that is wider than the processor's registers, so every width is right on every
processor; one fits best.
"""

from __future__ import annotations

import functools
import os

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core import cgutils


def tile_size(dtype: np.dtype) -> int:
    """B: lanes of a vector, and rows of a tile."""
    return lanes_of(np.dtype(dtype).itemsize)


class Tile:
    """What every step needs: the types, addresses of array entries, loads and stores of vectors,
    splats and FMAs."""

    def __init__(self, context, builder, array_type):
        self.context, self.builder = context, builder
        self.scalar = context.get_value_type(array_type.dtype)
        self.bytes = array_type.dtype.bitwidth // 8
        self.lanes = lanes_of(self.bytes)
        self.vector = ir.VectorType(self.scalar, self.lanes)
        self.word = ir.IntType(64)
        name = "f32" if self.bytes == 4 else "f64"
        kind = ir.FunctionType(self.vector, [self.vector] * 3)
        # without the instruction, fma is a call for every number; fmuladd is then a product and a
        # sum
        fused = "fma" if multiplies_and_adds_at_once() else "fmuladd"
        self.fma = cgutils.get_or_insert_function(
            builder.module, kind, f"llvm.{fused}.v{self.lanes}{name}"
        )
        root = ir.FunctionType(self.scalar, [self.scalar])
        self.sqrt = cgutils.get_or_insert_function(builder.module, root, f"llvm.sqrt.{name}")
        self.zeros = ir.Constant(ir.VectorType(ir.IntType(32), self.lanes), [0] * self.lanes)
        self.bounds = Bounds(context, builder)

    def array(self, array_type, value):
        """A matrix as the address of its first number and the length of its rows; of one dimension
        as numba's structure of it."""
        view = self.context.make_array(array_type)(self.context, self.builder, value)
        if array_type.ndim == 1:
            return view
        self.bounds.add(view)
        return view.data, cgutils.unpack_tuple(self.builder, view.shape)[1]

    def const(self, number):
        return ir.Constant(self.word, number)

    def at(self, array, row, column):
        """Address of array[row, column]."""
        data, stride = array
        place = self.builder.gep(data, [self.builder.add(self.builder.mul(row, stride), column)])
        self.bounds.check(place, 1)
        return place

    def load(self, address):
        self.bounds.check(address, self.lanes * self.bytes)
        pointer = self.builder.bitcast(address, self.vector.as_pointer())
        return self.builder.load(pointer, align=self.bytes)

    def store(self, value, address):
        self.bounds.check(address, self.lanes * self.bytes)
        pointer = self.builder.bitcast(address, self.vector.as_pointer())
        self.builder.store(value, pointer, align=self.bytes)

    def splat(self, value):
        empty = ir.Constant(self.vector, ir.Undefined)
        one = self.builder.insert_element(empty, value, ir.Constant(ir.IntType(32), 0))
        return self.builder.shuffle_vector(one, empty, self.zeros)

    def rows(self, array, row, column):
        """The B addresses of a tile's rows."""
        first = self.at(array, row, column)
        return [
            self.builder.gep(first, [self.builder.mul(self.const(i), array[1])])
            for i in range(self.lanes)
        ]

    def multiply_add(self, a, b, c):
        return self.builder.call(self.fma, [a, b, c])

    def loop(self, first, last, step, carried):
        """for (i = first; i < last; i += step) carried = body(i, carried): returns the final
        values; the body is a function of (i, values)."""

        def run(body):
            b = self.builder
            before = b.block
            head, inside, done = (b.append_basic_block(name) for name in ("head", "inside", "done"))
            b.branch(head)
            b.position_at_end(head)
            index = b.phi(self.word)
            values = [b.phi(v.type) for v in carried]
            b.cbranch(b.icmp_signed("<", index, last), inside, done)
            b.position_at_end(inside)
            new = body(index, values)
            following = b.add(index, self.const(step))
            b.branch(head)
            index.add_incoming(first, before)
            index.add_incoming(following, b.block)
            for value, start, end in zip(values, carried, new):
                value.add_incoming(start, before)
                value.add_incoming(end, b.block)
            b.position_at_end(done)
            return values

        return run

    def lane(self, vector, i):
        return self.builder.extract_element(vector, ir.Constant(ir.IntType(32), i))

    def sum(self, vector):
        """All lanes added up, pairwise."""
        size = self.lanes
        while size > 1:
            size //= 2
            order = [(i + size) % self.lanes for i in range(self.lanes)]
            mask = ir.Constant(ir.VectorType(ir.IntType(32), self.lanes), order)
            vector = self.builder.fadd(vector, self.builder.shuffle_vector(vector, vector, mask))
        return self.lane(vector, 0)


def written(write):
    """The code of an intrinsic: ``write(tile, *args)`` with arrays as ``tile.array`` has them; what
    it returns, or nothing."""

    def codegen(context, builder, signature, args):
        tile = Tile(context, builder, signature.args[0])
        given = [
            tile.array(kind, a) if isinstance(kind, types.Array) else a
            for kind, a in zip(signature.args, args)
        ]
        found = write(tile, *given)
        return context.get_dummy_value() if found is None else found

    return codegen


WORD = ir.IntType(64)


class Bounds:
    """The arrays of one step; an address of a step must lie in one of them."""

    def __init__(self, context, builder):
        self.context, self.builder = context, builder
        self.arrays = []
        # numba sets its attributes when it is loaded
        self.asked = bool(getattr(config, "BOUNDSCHECK", False))

    def add(self, view):
        """An array of the step, as numba's structure of it."""
        if self.asked:
            first = self.builder.ptrtoint(view.data, WORD)
            size = self.builder.mul(view.nitems, view.itemsize)
            self.arrays.append((first, self.builder.add(first, size)))

    def check_own(self, view, address):
        """An address lies in this array, which other addresses of the step need not know (its
        bounds may be computed in a loop)."""
        own = Bounds(self.context, self.builder)
        own.add(view)
        own.check(address, 1)

    def check(self, address, size):
        """``size`` bytes from an address on lie in one array of the step."""
        if not self.asked:
            return
        b = self.builder
        begin = b.ptrtoint(address, WORD)
        end = b.add(begin, ir.Constant(WORD, size))
        inside = ir.Constant(ir.IntType(1), 0)
        for first, last in self.arrays:
            here = b.and_(b.icmp_unsigned(">=", begin, first), b.icmp_unsigned("<=", end, last))
            inside = b.or_(inside, here)
        with cgutils.if_unlikely(b, b.not_(inside)):
            self.context.call_conv.return_user_exc(b, IndexError, ("a vector outside its array",))


FORCED = "ECKART_VECTOR_BITS"
"""Environment variable that forces 128, 256 or 512 bits. Compiled kernels are cached by processor,
not by width: give each width its own NUMBA_CACHE_DIR."""


@functools.cache
def features() -> frozenset[str]:
    """Names of what the processor that numba compiles for can do (``NUMBA_CPU_NAME`` and
    ``NUMBA_CPU_FEATURES`` included)."""
    from llvmlite import binding
    from numba.core import config

    asked = getattr(config, "CPU_FEATURES", None)
    if asked is not None:
        return frozenset(name[1:] for name in asked.split(",") if name.startswith("+"))
    return frozenset(name for name, there in binding.get_host_cpu_features().items() if there)


@functools.cache
def vector_bytes() -> int:
    """64 with AVX-512, 32 with AVX, else 16 (SSE, NEON and whatever else there is)."""
    forced = os.environ.get(FORCED)
    if forced:
        if forced not in ("128", "256", "512"):
            raise ValueError(f"{FORCED} must be 128, 256 or 512, got {forced}")
        return int(forced) // 8
    return 64 if "avx512f" in features() else 32 if "avx" in features() else 16


def lanes_of(itemsize: int) -> int:
    """Numbers in a vector. Never fewer than four: the kernels take rows by fours, and arrays are
    padded to whole vectors."""
    return max(4, vector_bytes() // itemsize)


def multiplies_and_adds_at_once() -> bool:
    """Whether a product and a sum are one instruction (FMA on x86, always on 64-bit ARM)."""
    return bool({"fma", "neon", "sve"} & features())
