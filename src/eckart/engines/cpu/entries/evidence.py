"""What a certificate needs to know of a factorization, in one pass over the entries and without storing more than asked.

At every stored entry let s = u_i.v_j and R = q - w s the negative gradient of the data term by B_ij (``entry``). Per row: sum_j R v_j and sum_j R; in all:
the sums of ``protocol.EvidenceSums``, in float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from eckart.compiling import OUTSIDE
from eckart.engines.cpu.dense.thin import inner
from eckart.engines.cpu.entries.entry import AHEAD, FAST, entries_of, looked_at
from eckart.engines.cpu.entries.sparse import balanced
from eckart.engines.cpu.registers.prefetch import prefetch
from eckart.engines.cpu.ridge.schedule import padded, ranges, ridges
from eckart.engines.host import Host
from eckart.engines.protocol import Evidence, EvidenceSums, RidgeRule
from eckart.scheduler import lanes_for, run_lanes

ROWS = 1024
"""Rows of a block whose gradient is measured at once: its arrays stay in cache."""


@njit(**OUTSIDE, fastmath=FAST)
def evidence_range(indptr, indices, data, mean, implicit, known, left, right, spread, first, last, pull, row_sum, sums):
    """Rows first..last, whose w, y and q are ``known``; ``spread`` is a0."""
    k, away = right.shape[1], indptr[first]
    line = 64 // right.itemsize
    end = indices.shape[0] - 1
    out = np.empty(k, right.dtype)
    zero = right.dtype.type(0)
    value, linear, square, cross, constant, dots, zero_value = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(first, last):
        total = 0.0
        for c in range(k):
            out[c] = zero
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            soon = indices[min(p + AHEAD, end)]
            for c in range(0, k, line):
                prefetch(right, soon, c)
            s = zero
            for c in range(k):
                s += left[i, c] * right[j, c]
            w, q = known[0, p - away], known[2, p - away]
            if implicit:
                r = q - w * s
                value += 0.5 * (q - 2.0 * q * s + w * s * s)
                whole = spread + w
                z = spread * s - r
                square += z * z / (2.0 * whole)
                cross += z * q / whole
                constant += q * q / (2.0 * whole) - 0.5 * q
                dots += np.float64(s) * s
                zero_value += 0.5 * q
            else:
                d = known[1, p - away] - s
                r = w * d
                value += 0.5 * np.float64(r) * d
                bare = np.float64(data[p] - mean)
                linear += bare * r
                zero_value += 0.5 * w * bare * bare
            total += r
            for c in range(k):
                out[c] += r * right[j, c]
        for c in range(k):
            pull[i, c] = out[c]
        row_sum[i] = total
    sums[0] += value
    sums[1] += linear
    sums[2] += square if implicit else value
    sums[3] += cross
    sums[4] += constant
    sums[5] += dots
    sums[6] += zero_value


@njit(**OUTSIDE, fastmath=FAST)
def misfit_range(indptr, indices, known, left, right, first, last, out):
    """out_i = sum_j w (y - s)^2 in float64 for rows first..last, whose w, y and q are ``known``."""
    k, away = right.shape[1], indptr[first]
    line = 64 // right.itemsize
    end = indices.shape[0] - 1
    for i in range(first, last):
        total = 0.0
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            soon = indices[min(p + AHEAD, end)]
            for c in range(0, k, line):
                prefetch(right, soon, c)
            s = right.dtype.type(0)
            for c in range(k):
                s += left[i, c] * right[j, c]
            d = np.float64(known[1, p - away] - s)
            total += known[0, p - away] * d * d
        out[i, 0] = total


@njit(**OUTSIDE, fastmath=FAST)
def offset_times_range(indptr, indices, known, row_scale, column_scale, v, first, last, out):
    """out[i] = row_scale_i sum_j y column_scale_j v_j for rows first..last, whose w, y and q are ``known``; weights do not count."""
    k, away = v.shape[1], indptr[first]
    line = 64 // v.itemsize
    end = indices.shape[0] - 1
    scaled = column_scale.shape[0] > 0
    for i in range(first, last):
        for c in range(k):
            out[i, c] = 0
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            soon = indices[min(p + AHEAD, end)]
            for c in range(0, k, line):
                prefetch(v, soon, c)
            y = known[1, p - away] * column_scale[j] if scaled else known[1, p - away]
            for c in range(k):
                out[i, c] += y * v[j, c]
        if row_scale.shape[0] > 0:
            for c in range(k):
                out[i, c] *= row_scale[i]


def evidence_rows(
    x: Host, left: np.ndarray, right: np.ndarray, rule: RidgeRule, *, own: Any, other: Any, spread: float, gram: np.ndarray | None = None, threads: int,
    **given: Any,
) -> Evidence:  # fmt: skip
    """One pass over the entries of x; see the head of this file. ``gram`` is V^T V where that is known already."""
    dtype = np.dtype(right.dtype)
    u, v = np.ascontiguousarray(left, dtype), np.ascontiguousarray(right, dtype)
    pull, row_sum = np.empty(u.shape, dtype), np.empty(len(u))
    e = entries_of(x, dtype, rule, bias=own, offset=other, **given)
    shared = spread * (inner(v, v, None, threads) if gram is None else gram) if spread else None
    scale, implicit = dtype.type(spread), bool(e.alpha > 0)
    parts = balanced(e.indptr, ranges(x.nnz))
    lanes = [np.zeros(len(EvidenceSums._fields)) for _ in range(lanes_for(len(parts)))]
    penalties = ridges(x, rule)

    def step(sums: np.ndarray, part: tuple[int, int], scratch: Any) -> None:
        for first, last, known in looked_at(e, *part, scratch):
            evidence_range(
                e.indptr, e.indices, e.data, e.mean, implicit, known, u, v, scale, first, last, pull, row_sum, sums
            )
        for a in range(*part, ROWS):
            rows = slice(a, min(a + ROWS, part[1]))
            ridge, bias_ridge = (r[rows] for r in penalties)
            sums[7:10] += _slopes(u[rows], pull[rows], ridge, shared, rule.nonnegative)
            if own is not None:
                sums[10:] += _bias_slopes(e.bias[rows], row_sum[rows], bias_ridge)

    run_lanes(parts, lanes, step, threads)
    return Evidence(pull, row_sum, EvidenceSums(*map(float, np.sum(lanes, axis=0))))


def _slopes(
    own: np.ndarray, pull: np.ndarray, ridge: np.ndarray, shared: Any, nonnegative: bool
) -> tuple[float, float, float]:
    """Squared norms of the gradient and of its two parts over a block of rows, by one's own codes."""
    u, got = own.astype(np.float64), pull.astype(np.float64)
    push = u * ridge[:, None]
    if shared is not None:
        push += u @ shared
    g = push - got
    if nonnegative:
        g = np.where(u > 0, g, np.minimum(g, 0.0))
    return _square(g), _square(got), _square(push)


def _bias_slopes(bias: np.ndarray, row_sum: np.ndarray, ridge: np.ndarray) -> tuple[float, float, float, float]:
    """The same by the biases, and sum_i (sum_j R_ij)^2 / m_i (infinite where a ridge is zero)."""
    push = ridge * bias.astype(np.float64)
    free = ridge <= 0
    cost = np.inf if row_sum[free].any() else float(np.sum(row_sum[~free] ** 2 / ridge[~free]))
    return _square(push - row_sum), _square(row_sum), _square(push), cost


def _square(a: np.ndarray) -> float:
    return float(np.vdot(a, a))


def misfit_rows(x: Host, left: np.ndarray, right: np.ndarray, threads: int, **given: Any) -> np.ndarray:
    """sum_j w (y - s)^2 of every row, as one column."""
    dtype = np.dtype(right.dtype)
    e, out = entries_of(x, dtype, **given), np.empty((len(left), 1))
    u, v = padded(left, dtype, None, threads), padded(right, dtype, None, threads)
    parts = balanced(e.indptr, ranges(x.nnz))

    def step(_: None, part: tuple[int, int], scratch: dict) -> None:
        for first, last, known in looked_at(e, *part, scratch):
            misfit_range(e.indptr, e.indices, known, u, v, first, last, out)

    run_lanes(parts, [None] * len(parts), step, threads)
    return out


def offset_times(x: Host, v: np.ndarray, row_scale: Any, column_scale: Any, threads: int, **given: Any) -> np.ndarray:
    """D (A - mean - b 1^T - 1 c^T) C V on the stored entries."""
    dtype = np.dtype(x.dtype)
    e, v = entries_of(x, dtype, **given), np.ascontiguousarray(v, dtype)
    scales = [
        np.empty(0, dtype) if s is None else np.ascontiguousarray(s, dtype).ravel() for s in (row_scale, column_scale)
    ]
    out = np.empty((len(e.indptr) - 1, v.shape[1]), dtype)
    parts = balanced(e.indptr, ranges(x.nnz))

    def step(_: None, part: tuple[int, int], scratch: dict) -> None:
        for first, last, known in looked_at(e, *part, scratch):
            offset_times_range(e.indptr, e.indices, known, *scales, v, first, last, out)

    run_lanes(parts, [None] * len(parts), step, threads)
    return out
