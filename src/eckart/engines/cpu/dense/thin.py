"""Products and sums of tall thin matrices by ranges of rows on threads, each with the same bits for
any thread count."""

from __future__ import annotations

import itertools
from functools import lru_cache
from typing import Any

import numpy as np

from eckart.loading import lazy
from eckart.scheduler import lanes_for, run_lanes, single_threaded_blas

native_products = lazy("eckart.engines.cpu.native.products")

PART = 2**20
"""Multiply-adds in a range of rows: some 50 to 100 microseconds of one core, many times what it
costs a thread of the thread pool to take a range."""
READ = 2**19
"""Bytes in a range of rows: few columns take longer to read than to multiply."""
LINE = 64
"""Bytes of a cache line."""
SHORT = 2**12
"""Rows up to which ranges are worked on by threads of Python: a second of compiling for a fit of a
tenth of that."""
FEW_THREADS = 4
"""Threads above which the thread pool adds up arrays: with fewer, threads of Python lose less than it
takes to load what is compiled."""


@lru_cache(maxsize=4096)  # a growing basis asks for hundreds of them
def cuts_of(rows: int, work: int, partial_bytes: int = 0, read: int = 0) -> np.ndarray:
    """Where ranges of rows begin and end; ``work`` is the number of multiply-adds a row, ``read``
    the bytes of a row, ``partial_bytes`` the size of a range's own sum.

    All sums together take no more than half a byte for each multiply-add: adding more of them up
    would cost more than the ranges gain.
    """
    lanes = lanes_for(
        min(rows, max(rows * work // PART, rows * read // READ)),
        partial_bytes,
        max(2**16, rows * work // 2),
    )
    cuts = np.linspace(0, rows, lanes + 1).astype(np.int64)
    cuts.flags.writeable = False  # the same array for whoever asks again
    return cuts


def parts_of(rows: int, work: int, partial_bytes: int = 0, read: int = 0) -> list[tuple[int, int]]:
    """The same as pairs."""
    return list(itertools.pairwise(cuts_of(rows, work, partial_bytes, read).tolist()))


def by_rows(a: np.ndarray, dtype: Any) -> np.ndarray:
    """The matrix with contiguous rows in a type: itself, or a copy. A single column is copied where
    its numbers lie apart: sums over it would take another order, and a fit that is resumed has them
    side by side."""
    good = (
        a.dtype == dtype and a.strides[1] == a.itemsize and a.strides[0] >= a.shape[1] * a.itemsize
    )
    apart = a.shape[1] == 1 and a.strides[0] != a.itemsize
    return (
        a
        if good and not apart and a.strides[0] % a.itemsize == 0
        else np.ascontiguousarray(a, dtype)
    )


def thin(
    cuts: np.ndarray,
    out: np.ndarray,
    *,
    left: np.ndarray | None = None,
    s: np.ndarray | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    plus: np.ndarray | None = None,
    scale: float = 1.0,
    other: np.ndarray | None = None,
    threads: int,
) -> np.ndarray | None:
    """Out = alpha Left S + beta Out by ranges of rows, and Other^T Out in float64 where ``other``
    is given; where ``plus`` is, Out starts from ``scale plus`` and beta is one. All matrices have
    contiguous rows and Out's type. ``left`` may be Out itself. A single range needs no thread, and
    nothing that is compiled."""
    if len(cuts) > 2 and len(out) > SHORT:
        return native_products.products(
            cuts, out, (left, s, alpha), (beta, plus, scale), other, threads
        )
    found: list[Any] = [None] * max(1, len(cuts) - 1)

    def step(_: Any, i: int, scratch: dict) -> None:
        at = slice(*cuts[i : i + 2])
        own = out[at]
        if plus is not None:
            np.multiply(plus[at], out.dtype.type(scale), out=own)
        if left is not None and s is not None:
            if plus is None and beta == 0.0:
                np.matmul(left[at], s, out=own)  # which sees where both are one
            else:
                own += alpha * (left[at] @ s)
        if other is not None:
            found[i] = (other[at].T @ own).astype(np.float64)

    if len(found) > 1:
        run_lanes(range(len(found)), found, step, threads)
    else:
        with single_threaded_blas():
            step(None, 0, {})
    return None if other is None else sum(found[1:], found[0])


def inner(
    q: np.ndarray, w: np.ndarray, weights: np.ndarray | None = None, threads: int = 1
) -> np.ndarray:
    """Q^T diag(weights) W in float64, summed over fixed ranges of rows."""
    if weights is not None:
        w = w * weights[:, None]
    dtype = np.result_type(q, w)
    q, w = by_rows(q, dtype), by_rows(w, dtype)
    columns = q.shape[1] + w.shape[1]
    cuts = cuts_of(
        len(q), q.shape[1] * w.shape[1], 8 * q.shape[1] * w.shape[1], columns * q.itemsize
    )
    return np.asarray(thin(cuts, w, other=q, threads=threads))


def outer(
    q: np.ndarray,
    s: np.ndarray,
    plus: np.ndarray | None = None,
    scale: float = 1.0,
    threads: int = 1,
) -> np.ndarray:
    """Q S + scale P."""
    dtype = q.dtype
    q, s = by_rows(q, dtype), by_rows(s, dtype)
    out = np.empty((len(q), s.shape[1]), dtype)
    cuts = cuts_of(len(q), q.shape[1] * s.shape[1], 0, sum(s.shape) * q.itemsize)
    plus = None if plus is None else by_rows(plus, dtype)
    thin(cuts, out, left=q, s=s, plus=plus, scale=scale, threads=threads)
    return out


def triangle(v: np.ndarray, threads: int) -> np.ndarray:
    """R of a QR factorization of V: those of ranges of rows, stacked and factored again."""
    parts = parts_of(len(v), 2 * v.shape[1] ** 2) if len(v) else []
    found: list[list[np.ndarray]] = [[] for _ in parts]

    def step(own: list, part: tuple[int, int], scratch: dict) -> None:
        own.append(_top_of_qr(v[part[0] : part[1]]))

    run_lanes(parts, found, step, threads)
    tops = [r for own in found for r in own]
    return _top_of_qr(np.vstack(tops)) if tops else np.zeros((0, v.shape[1]))


def _top_of_qr(v: np.ndarray) -> np.ndarray:
    """R of one range of rows. LAPACK by SciPy lets other threads work meanwhile; ``np.linalg.qr``
    keeps the interpreter to itself."""
    from scipy.linalg.lapack import dgeqrf

    if not v.size:
        return np.zeros((0, v.shape[1]))
    return np.triu(dgeqrf(np.array(v, np.float64, order="F"), overwrite_a=True)[0][: v.shape[1]])


def write_columns(into: np.ndarray, first: int, columns: np.ndarray, threads: int) -> None:
    """into[:, first:] = columns, as far as these go: a copy that is worth threads where it is the
    first to touch the memory."""
    part = into[:, first : first + columns.shape[1]]
    if part.size:
        # a cache line is fetched whole
        row = max(part.shape[1] * part.itemsize, min(part.strides[0], LINE))
        cuts = cuts_of(len(part), 0, 0, 2 * row)
        thin(cuts, part, plus=by_rows(columns, into.dtype), threads=threads)


def outer_inner(
    v: np.ndarray, s: np.ndarray | float, q: np.ndarray | None, threads: int, inside: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """W = V S, and Q^T W (W^T W where there is no Q) in float64, in one pass over the rows;
    ``inside`` V's own place, where W is as wide."""
    dtype, scaled = v.dtype, isinstance(s, float)
    v, by = by_rows(v, dtype), None if scaled else by_rows(np.asarray(s), dtype)
    width = v.shape[1] if by is None else by.shape[1]
    out = v if inside and width == v.shape[1] else np.empty((len(v), width), dtype)
    left = out if q is None else by_rows(q, dtype)
    columns = v.shape[1] + width + (0 if q is None else left.shape[1])
    work = width * ((1 if scaled else v.shape[1]) + left.shape[1])
    cuts = cuts_of(len(v), work, 8 * left.shape[1] * width, columns * v.itemsize)
    how = {"plus": v, "scale": s} if scaled else {"left": v, "s": by}
    return out, np.asarray(thin(cuts, out, other=left, threads=threads, **how))  # type: ignore[arg-type]


def subtract_inner(w: np.ndarray, q: np.ndarray, h: np.ndarray, threads: int) -> np.ndarray:
    """W <- W - Q H in place, and then W^T W in float64, in one pass over the rows."""
    width, rows = w.shape[1], by_rows(w, w.dtype)
    cuts = cuts_of(
        len(w), width * (q.shape[1] + width), 8 * width * width, (q.shape[1] + width) * w.itemsize
    )
    found = thin(
        cuts,
        rows,
        left=by_rows(q, w.dtype),
        s=by_rows(h, w.dtype),
        alpha=-1.0,
        beta=1.0,
        other=rows,
        threads=threads,
    )
    if rows is not w:
        w[...] = rows
    return np.asarray(found)


def largest(v: np.ndarray, threads: int) -> float:
    """max |v|; infinite, or not a number, where an entry is not finite."""
    cuts = cuts_of(len(v), v.shape[1], 0, v.shape[1] * v.itemsize)
    if len(cuts) > 2:
        return native_products.largest(v, cuts, threads)
    return max(float(v.max(initial=0.0)), -float(v.min(initial=0.0)))


def tree_sum(parts: list[np.ndarray], threads: int) -> np.ndarray:
    """The pairwise sum of arrays of one shape, in place and in a fixed order; ranges of entries on
    threads."""
    flat = [part.reshape(-1) for part in parts]
    if len(parts) > 1 and threads > FEW_THREADS and flat[0].dtype in (np.float32, np.float64):
        native_products.tree_sum(flat, threads)
        return parts[0]
    count = max(1, flat[0].size // 2**16)

    def step(_: None, i: int, scratch: dict) -> None:
        at = slice(i * 2**16, None if i == count - 1 else (i + 1) * 2**16)
        some = [part[at] for part in flat]
        while len(some) > 1:
            for a, b in zip(some[::2], some[1::2]):
                a += b
            some = some[::2]

    run_lanes(range(count), [None] * count, step, threads if len(parts) > 1 else 1)
    return parts[0]
