"""Words of memory that threads share, and calls by address, for kernels: no thread that uses them
needs the interpreter.

Every reading and writing here is sequentially consistent: two threads that each write one word and
then read the other's cannot both see the old one, which is what falling asleep and being woken
rests on.
"""

from __future__ import annotations

import platform
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

WORD = ir.IntType(64)
PAUSE = "llvm.x86.sse2.pause" if platform.machine() in ("x86_64", "AMD64") else ""
"""The instruction that tells a core that it only waits, so that a thread beside it on the same core
gets its turn."""


def _at(builder, address):
    return builder.inttoptr(address, WORD.as_pointer())


@intrinsic
def load(typingctx, address):
    """The word at an address."""

    def codegen(context, builder, signature, args):
        return builder.load_atomic(_at(builder, args[0]), "seq_cst", 8)

    return types.int64(types.int64), codegen


@intrinsic
def exchange(typingctx, address, value):
    """Write a word; returns what was there."""

    def codegen(context, builder, signature, args):
        return builder.atomic_rmw("xchg", _at(builder, args[0]), args[1], "seq_cst")

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def fetch_add(typingctx, address, value):
    """Add to a word; returns what was there."""

    def codegen(context, builder, signature, args):
        return builder.atomic_rmw("add", _at(builder, args[0]), args[1], "seq_cst")

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def exchange_if(typingctx, address, old, new):
    """Write ``new`` where ``old`` is; whether it was."""

    def codegen(context, builder, signature, args):
        found = builder.cmpxchg(_at(builder, args[0]), args[1], args[2], "seq_cst", "seq_cst")
        return builder.extract_value(found, 1)

    return types.boolean(types.int64, types.int64, types.int64), codegen


@intrinsic
def pause(typingctx):
    """Wait for some tens of cycles."""

    def codegen(context, builder, signature, args):
        if PAUSE:
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.call(cgutils.get_or_insert_function(builder.module, kind, PAUSE), [])
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def call_c(typingctx, function, argument):
    """``int function(void *)`` of the C library by its address."""

    def codegen(context, builder, signature, args):
        kind = ir.FunctionType(ir.IntType(32), [WORD])
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), [args[1]])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def call_part(typingctx, function, given, part, who):
    """``function(given, part, who)``, a function that ``published`` made."""

    def codegen(context, builder, signature, args):
        kind = ir.FunctionType(ir.VoidType(), [WORD] * 3)
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, types.int64), codegen


def _called(context, builder, answer, kinds, address, values):
    """``kernel(*values)`` by the address of its code, with numba's own convention for arguments of
    these types."""
    kind = context.call_conv.get_function_type(answer, kinds)
    pointer = builder.inttoptr(address, kind.as_pointer())
    return context.call_conv.call_function(builder, pointer, answer, kinds, values)[1]


@intrinsic
def call_kernel(typingctx, kernel, arguments):
    """``kernel(*arguments)``, whose address was found for exactly these types
    (``pool.address_of``). Called by its name its code would be compiled once more inside the
    caller."""

    def codegen(context, builder, signature, args):
        values = cgutils.unpack_tuple(builder, args[1])
        _called(context, builder, types.none, tuple(signature.args[1].types), args[0], values)
        return context.get_dummy_value()

    return types.void(types.int64, arguments), codegen


@intrinsic
def call_for_number(typingctx, kernel, arguments):
    """The same for a kernel that returns a float64."""

    def codegen(context, builder, signature, args):
        values = cgutils.unpack_tuple(builder, args[1])
        return _called(
            context, builder, types.float64, tuple(signature.args[1].types), args[0], values
        )

    return types.float64(types.int64, arguments), codegen


def _lent(context, builder, kind, value):
    """The same value with arrays that own nothing: what counts their references lives only as long
    as the call from Python that brought them."""
    if isinstance(kind, types.Array):
        view = context.make_array(kind)(context, builder, value)
        view.meminfo = cgutils.get_null_value(view.meminfo.type)
        return view._getvalue()
    if isinstance(kind, types.BaseTuple):
        values = cgutils.unpack_tuple(builder, value)
        kinds: Any = kind
        return context.make_tuple(
            builder, kind, [_lent(context, builder, k, v) for k, v in zip(kinds, values)]
        )
    return value


ROOM = 4096
"""Bytes for the arguments of a kernel: 80 matrices."""


@intrinsic
def published(typingctx, board, kernel, arguments):
    """Write the address of a kernel and its arguments into the memory at ``board``; returns the
    address of a function ``(board, part, who)`` that reads them from there and calls ``kernel(part,
    who, *arguments)``.

    The kernel is called by its address, so that its code is compiled once, however it is called.
    The caller keeps the arguments alive.
    """
    kinds = (types.int64, types.int64, *arguments.types)

    def codegen(context, builder, signature, args):
        lent = _lent(context, builder, signature.args[2], args[2])
        values = [args[1], *cgutils.unpack_tuple(builder, lent)]
        layout = ir.LiteralStructType([value.type for value in values])
        if context.get_abi_sizeof(layout) > ROOM:
            raise ValueError("the arguments of a kernel take more room than there is")
        place = builder.inttoptr(args[0], layout.as_pointer())
        for i, value in enumerate(values):
            builder.store(value, cgutils.gep_inbounds(builder, place, 0, i))
        module = builder.module
        kind = ir.FunctionType(ir.VoidType(), [WORD] * 3)
        entry = ir.Function(module, kind, module.get_unique_name("eckart_part"))
        entry.linkage = "internal"
        inside = ir.IRBuilder(entry.append_basic_block())
        place = inside.inttoptr(entry.args[0], layout.as_pointer())
        address, *rest = (
            inside.load(cgutils.gep_inbounds(inside, place, 0, i))
            for i in range(len(layout.elements))
        )
        _called(context, inside, types.none, kinds, address, [*entry.args[1:], *rest])
        inside.ret_void()
        return builder.ptrtoint(entry, WORD)

    return types.int64(types.int64, types.int64, arguments), codegen
