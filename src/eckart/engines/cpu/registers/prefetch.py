"""A prefetch hint for numba kernels whose next rows are known ahead: gathers from a cache that is
too small are bound by latency."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


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


def aligned_zeros(shape: tuple[int, int], dtype: np.dtype) -> np.ndarray:
    """Zeros whose first entry starts a cache line, so that short rows do not straddle two."""
    return _aligned(np.zeros, shape, dtype)


def aligned_empty(shape: tuple[int, int], dtype: np.dtype) -> np.ndarray:
    """The same unfilled: zeros are written by one thread, and what is filled by several need not
    wait for them."""
    return _aligned(np.empty, shape, dtype)


def _aligned(made: Any, shape: tuple[int, int], dtype: np.dtype) -> np.ndarray:
    size = shape[0] * shape[1]
    per_line = 64 // np.dtype(dtype).itemsize
    raw = made(size + per_line, dtype)
    skip = (-raw.ctypes.data % 64) // raw.itemsize
    return raw[skip : skip + size].reshape(shape)


class _Lines(np.ndarray):
    """The first columns of an array whose others are zeros; ``whole`` is that array. What is made
    from it (slices, sums) has none."""

    whole: np.ndarray | None = None


def padded_view(whole: np.ndarray, k: int) -> np.ndarray:
    """The first k columns of an array whose others are zeros, which ``padded_already`` finds
    again."""
    view = whole[:, :k].view(_Lines)
    view.whole = whole
    return view


def padded_already(factor: np.ndarray, width: int, dtype: np.dtype) -> np.ndarray | None:
    """The array of this width with zeros behind the factor's columns, where the factor is a view of
    one."""
    whole = getattr(factor, "whole", None)
    return whole if whole is not None and whole.shape[1] == width and whole.dtype == dtype else None
