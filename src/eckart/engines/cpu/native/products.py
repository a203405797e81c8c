"""Products of tall thin matrices by BLAS inside the threads of the thread pool: no thread asks for the
interpreter.

Matrices come as addresses and leading dimensions, so that one compiled kernel serves both
precisions and every layout with contiguous rows.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.core import cgutils
from numba.extending import get_cython_function_address, intrinsic

from eckart.compiling import OUTSIDE
from eckart.engines.cpu.native.pool import WORD, run_parts

SUMS = 2**15
"""Entries of sums below which one thread adds them up: 64 sums of so many take about a
millisecond."""

TREE = 2**14
"""Entries in a range of a pairwise sum: some 10 microseconds for each of the arrays."""


@intrinsic
def gemm(typingctx, function, turned, m, n, k, numbers, a, lda, b, ldb, c, ldc):
    """C (n x m by rows) = alpha B A + beta C, or alpha B^T A + beta C where ``turned``, with A k x
    m, by BLAS's gemm at an address; alpha and beta of the matrices' type lie at ``numbers`` eight
    bytes apart. BLAS counts by columns: what is a matrix by rows here is its transpose there."""

    def codegen(context, builder, signature, args):
        function, turned, *sizes = args
        m, n, k, numbers, a, lda, b, ldb, c, ldc = sizes
        letter, whole = ir.IntType(8), ir.IntType(32)

        def lies(value):
            # once a call of the kernel, not at each product
            place = cgutils.alloca_once(builder, value.type)
            builder.store(value, place)
            return builder.ptrtoint(place, WORD)

        def whole_number(value):
            return lies(builder.trunc(value, whole))

        plain = lies(letter(ord("N")))
        second = lies(builder.select(turned, letter(ord("T")), letter(ord("N"))))
        given = [
            plain,
            second,
            *(whole_number(size) for size in (m, n, k)),
            numbers,
            a,
            whole_number(lda),
            b,
            whole_number(ldb),
            builder.add(numbers, WORD(8)),
            c,
            whole_number(ldc),
        ]
        kind = ir.FunctionType(ir.VoidType(), [WORD] * 13)
        builder.call(builder.inttoptr(function, kind.as_pointer()), given)
        return context.get_dummy_value()

    return types.void(types.int64, types.boolean, *(types.int64,) * 10), codegen


@intrinsic
def _pointer(typingctx, address, like):
    """An address as a pointer to numbers of one type."""
    target = types.CPointer(like)

    def codegen(context, builder, signature, args):
        return builder.inttoptr(args[0], context.get_value_type(target))

    return target(types.int64, like), codegen


@njit(**OUTSIDE)
def _scaled(out, given, size, by, like):
    """out = by given, of so many numbers of one type; by may not be rounded first."""
    to, of = carray(_pointer(out, like), size), carray(_pointer(given, like), size)
    for i in range(size):
        to[i] = by * of[i]


@njit(**OUTSIDE)
def _rows(out, out_ld, given, given_ld, rows, width, by, size):
    """The same for rows that lie so many numbers apart, of four or eight bytes each."""
    for i in range(rows):
        to, of = out + i * out_ld * size, given + i * given_ld * size
        if size == 4:
            _scaled(to, of, width, np.float32(by), np.float32(0))
        else:
            _scaled(to, of, width, by, 0.0)


@njit(**OUTSIDE)
def thin_part(part, who, cuts, plan, scale):
    """Rows cuts[part] .. cuts[part + 1]: Out = alpha Left S + beta Out (or Out = scale Plus before
    it), and Sums[part] = Other^T Out; an address of zero leaves its step out. Where Left is Out its
    rows are copied first, each thread to its own place."""
    function, size, width, out, out_ld, plus, plus_ld = (
        plan[0],
        plan[1],
        plan[2],
        plan[3],
        plan[4],
        plan[5],
        plan[6],
    )
    left, left_ld, inner, s, s_ld, numbers = plan[7], plan[8], plan[9], plan[10], plan[11], plan[12]
    other, other_ld, columns, sums = plan[13], plan[14], plan[15], plan[16]
    first, rows = cuts[part], cuts[part + 1] - cuts[part]
    here = out + first * out_ld * size
    if plus:
        _rows(here, out_ld, plus + first * plus_ld * size, plus_ld, rows, width, scale, size)
    if left:
        theirs = left + first * left_ld * size
        if plan[18]:
            own = plan[18] + who * plan[19]
            _rows(own, left_ld, theirs, left_ld, rows, inner, 1.0, size)
            theirs = own
        gemm(function, False, width, rows, inner, numbers, s, s_ld, theirs, left_ld, here, out_ld)
    if other:
        total = sums + part * columns * width * size
        theirs = other + first * other_ld * size
        gemm(
            function,
            True,
            width,
            columns,
            rows,
            plan[17],
            here,
            out_ld,
            theirs,
            other_ld,
            total,
            width,
        )


@njit(**OUTSIDE)
def added_part(part, who, cuts, sums, total):
    """total[e] = sum_p sums[p, e] for a range of entries, in float64 and in the order of p."""
    for e in range(cuts[part], cuts[part + 1]):
        total[e] = 0.0
    for p in range(sums.shape[0]):
        for e in range(cuts[part], cuts[part + 1]):
            total[e] += sums[p, e]


@cache
def blas(dtype: Any) -> int:
    """The address of gemm for a type."""
    return int(
        get_cython_function_address(
            "scipy.linalg.cython_blas", f"{'s' if dtype == np.float32 else 'd'}gemm"
        )
    )


@cache
def scalars(dtype: Any, alpha: float, beta: float) -> np.ndarray:
    """alpha and beta, eight bytes apart."""
    found = np.zeros(16 // dtype.itemsize, dtype)
    found[0], found[8 // dtype.itemsize] = alpha, beta
    return found


def _lies(a: np.ndarray | None) -> tuple[int, int]:
    """Where a matrix with contiguous rows lies, and the numbers from one row to the next (at least
    one, as BLAS wants it)."""
    if a is None:
        return 0, 1
    step = max(1, a.shape[1], a.strides[0] // a.itemsize if len(a) > 1 else 1)
    return a.__array_interface__["data"][0], step  # a.ctypes takes several times as long


def products(
    cuts: np.ndarray,
    out: np.ndarray,
    product: tuple[Any, Any, float],
    start: tuple[float, Any, float],
    other: np.ndarray | None,
    threads: int,
) -> np.ndarray | None:
    """``thin`` of ``dense.thin`` with (left, s, alpha) and (beta, plus, scale), by the thread pool."""
    (left, s, alpha), (beta, plus, scale) = product, start
    dtype, width = out.dtype, out.shape[1]
    sums = None if other is None else np.empty((len(cuts) - 1, other.shape[1] * width), dtype)
    room = (
        None
        if left is not out
        else np.empty((threads, int(np.diff(cuts).max()) * _lies(left)[1]), dtype)
    )
    kept = scalars(dtype, alpha, 1.0 if plus is not None else beta), scalars(dtype, 1.0, 0.0)
    plan = np.array(
        [
            blas(dtype),
            dtype.itemsize,
            width,
            *_lies(out),
            *_lies(plus),
            *_lies(left),
            0 if left is None else left.shape[1],
            *_lies(s),
            kept[0].ctypes.data,
            *_lies(other),
            0 if other is None else other.shape[1],
            0 if sums is None else sums.ctypes.data,
            kept[1].ctypes.data,
            0 if room is None else room.ctypes.data,
            0 if room is None else room.strides[0],
        ]
    )
    if width and len(out):
        run_parts(thin_part, len(cuts) - 1, (cuts, plan, float(scale)), threads)
    if sums is None:
        return None
    assert other is not None
    shape = other.shape[1], width
    return added_up(sums, threads).reshape(shape) if len(out) else np.zeros(shape)


def added_up(sums: np.ndarray, threads: int) -> np.ndarray:
    """The sum of the rows of ``sums`` in float64, in their order."""
    entries = sums.shape[1]
    total = np.empty(entries)
    parts = max(1, min(64, entries * len(sums) // SUMS))
    run_parts(added_part, parts, (_even_cuts(entries, parts), sums, total), threads)
    return total


@lru_cache(maxsize=256)
def _even_cuts(entries: int, parts: int) -> np.ndarray:
    return np.linspace(0, entries, parts + 1).astype(np.int64)


@njit(**OUTSIDE)
def largest_part(part, who, cuts, v, found):
    """The largest |v| of a range of rows; infinite where an entry is not finite."""
    most = 0.0
    for i in range(cuts[part], cuts[part + 1]):
        for c in range(v.shape[1]):
            size = abs(v[i, c])
            if not size < np.inf:
                size = v.dtype.type(np.inf)
            most = max(most, np.float64(size))
    found[part] = most


def largest(v: np.ndarray, cuts: np.ndarray, threads: int) -> float:
    found = np.zeros(len(cuts) - 1)
    run_parts(largest_part, len(found), (cuts, v, found), threads)
    return float(found.max(initial=0.0))


@njit(**OUTSIDE)
def _added(to, of, size, like):
    """to += of, of so many numbers of one type."""
    a, b = carray(_pointer(to, like), size), carray(_pointer(of, like), size)
    for i in range(size):
        a[i] += b[i]


@njit(**OUTSIDE)
def tree_part(part, who, cuts, arrays, size):
    """The pairwise sum of arrays at these addresses over a range of entries of ``size`` bytes, in
    place: 1 into 0, 3 into 2, ..., then 2 into 0, ..."""
    first, count, apart = cuts[part] * size, cuts[part + 1] - cuts[part], 1
    while apart < len(arrays):
        for p in range(0, len(arrays) - apart, 2 * apart):
            if size == 4:
                _added(arrays[p] + first, arrays[p + apart] + first, count, np.float32(0))
            else:
                _added(arrays[p] + first, arrays[p + apart] + first, count, 0.0)
        apart *= 2


def tree_sum(parts: list[np.ndarray], threads: int) -> None:
    """``tree_sum`` of ``dense.thin`` by the thread pool."""
    entries = parts[0].size
    cuts = _even_cuts(entries, int(np.clip(entries // TREE, 1, 256)))
    arrays = np.array([part.__array_interface__["data"][0] for part in parts])
    run_parts(tree_part, len(cuts) - 1, (cuts, arrays, parts[0].itemsize), threads)
