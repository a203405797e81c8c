"""Products and sums of tall thin matrices by ranges of rows on threads, each with the same bits for any thread count."""

from __future__ import annotations

import itertools

import numpy as np

from eckart.engines.cpu.row_blocks import scratch_array
from eckart.scheduler import lanes_for, run_lanes

PART = 2**22
"""Multiply-adds in a range of rows: about 0.4 ms of one core. With ranges of 0.1 ms sixteen threads took longer than one, since each waits for the
interpreter between its products."""
READ = 2**21
"""Bytes in a range of rows: few columns take longer to read than to multiply."""


def parts_of(rows: int, work: int, partial_bytes: int = 0, read: int = 0) -> list[tuple[int, int]]:
    """Ranges of rows; ``work`` is the number of multiply-adds a row, ``read`` the bytes of a row, ``partial_bytes`` the size of a range's own sum.

    All sums together take no more than half a byte for each multiply-add: adding more of them up would cost more than the ranges gain.
    """
    lanes = lanes_for(
        min(rows, max(rows * work // PART, rows * read // READ)), partial_bytes, max(2**16, rows * work // 2)
    )
    cuts = np.linspace(0, rows, lanes + 1).astype(int)
    return [(int(a), int(b)) for a, b in itertools.pairwise(cuts)]


def inner(q: np.ndarray, w: np.ndarray, weights: np.ndarray | None, threads: int) -> np.ndarray:
    """Q^T diag(weights) W in float64, summed over fixed ranges of rows."""
    shape = (q.shape[1], w.shape[1])
    # sums over a single column take another order where its numbers lie apart, and a fit that is resumed has them side by side
    q, w = (np.ascontiguousarray(side) if side.shape[1] == 1 else side for side in (q, w))
    columns = q.shape[1] + w.shape[1]
    parts = parts_of(len(q), q.shape[1] * w.shape[1], 8 * q.shape[1] * w.shape[1], columns * q.itemsize)
    sums = [np.zeros(shape) for _ in parts]

    def step(total: np.ndarray, part: tuple[int, int], scratch: dict) -> None:
        right = w[part[0] : part[1]]
        if weights is not None:
            by = weights[part[0] : part[1], None]
            right = np.multiply(right, by, out=scratch_array(scratch, "heavy", right.shape, np.result_type(right, by)))
        total += q[part[0] : part[1]].T @ right

    run_lanes(parts, sums, step, threads)
    return np.sum(sums, axis=0)


def outer(q: np.ndarray, s: np.ndarray, plus: np.ndarray | None, scale: float, threads: int) -> np.ndarray:
    """Q S + scale P."""
    s = s.astype(q.dtype, copy=False)
    out = np.empty((len(q), s.shape[1]), q.dtype)

    def step(_: None, part: tuple[int, int], scratch: dict) -> None:
        at = slice(*part)
        np.matmul(q[at], s, out=out[at])
        if plus is not None:
            out[at] += plus[at] if scale == 1.0 else q.dtype.type(scale) * plus[at]

    parts = parts_of(len(q), q.shape[1] * s.shape[1], 0, sum(s.shape) * q.itemsize)
    run_lanes(parts, [None] * len(parts), step, threads)
    return out


def triangle(v: np.ndarray, threads: int) -> np.ndarray:
    """R of a QR factorization of V: those of ranges of rows, stacked and factored again."""
    parts = parts_of(len(v), 2 * v.shape[1] ** 2) if len(v) else []
    found: list[list[np.ndarray]] = [[] for _ in parts]

    def step(own: list, part: tuple[int, int], scratch: dict) -> None:
        own.append(np.linalg.qr(v[part[0] : part[1]].astype(np.float64), mode="r"))

    run_lanes(parts, found, step, threads)
    tops = [r for own in found for r in own]
    return np.asarray(np.linalg.qr(np.vstack(tops), mode="r") if tops else np.zeros((0, v.shape[1])))


def outer_inner(
    v: np.ndarray, s: np.ndarray | float, q: np.ndarray | None, threads: int
) -> tuple[np.ndarray, np.ndarray]:
    """W = V S, and Q^T W (W^T W where there is no Q) in float64, in one pass over the rows."""
    scaled = isinstance(s, float)
    by = np.asarray(s, v.dtype)
    width = v.shape[1] if scaled else by.shape[1]
    out = np.empty((len(v), width), v.dtype)
    other = width if q is None else q.shape[1]
    columns = v.shape[1] + width + (0 if q is None else other)
    parts = parts_of(len(v), width * ((1 if scaled else v.shape[1]) + other), 8 * other * width, columns * v.itemsize)
    sums = [np.zeros((other, width)) for _ in parts]

    def step(total: np.ndarray, part: tuple[int, int], scratch: dict) -> None:
        at = slice(*part)
        w = (np.multiply if scaled else np.matmul)(v[at], by, out=out[at])
        total += (w if q is None else q[at]).T @ w

    run_lanes(parts, sums, step, threads)
    return out, np.sum(sums, axis=0)


def subtract_inner(w: np.ndarray, q: np.ndarray, h: np.ndarray, threads: int) -> np.ndarray:
    """W <- W - Q H in place, and then W^T W in float64, in one pass over the rows."""
    h, width = h.astype(w.dtype, copy=False), w.shape[1]
    parts = parts_of(len(w), width * (q.shape[1] + width), 8 * width * width, (q.shape[1] + width) * w.itemsize)
    sums = [np.zeros((width, width)) for _ in parts]

    def step(total: np.ndarray, part: tuple[int, int], scratch: dict) -> None:
        rows = w[part[0] : part[1]]
        rows -= q[part[0] : part[1]] @ h
        total += rows.T @ rows

    run_lanes(parts, sums, step, threads)
    return np.asarray(np.sum(sums, axis=0))


def tree_sum(parts: list[np.ndarray], threads: int) -> np.ndarray:
    """The pairwise sum of arrays of one shape, in place and in a fixed order; ranges of entries on threads."""
    flat = [part.reshape(-1) for part in parts]
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
