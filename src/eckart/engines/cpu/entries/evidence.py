"""What a certificate needs to know of a factorization, in one pass over the entries and without
storing more than asked.

At every stored entry let s = u_i.v_j and R = q - w s the negative gradient of the data term by B_ij
(``entry``). Per row: sum_j R v_j and sum_j R; in all: the sums of ``protocol.EvidenceSums``, in
float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from eckart.compiling import OUTSIDE
from eckart.engines.cpu.dense.thin import inner
from eckart.engines.cpu.entries.entry import (
    AHEAD,
    ALL,
    FAST,
    entries_of,
    known_room,
    looking,
    next_rows,
)
from eckart.engines.cpu.entries.sparse import cuts_of
from eckart.engines.cpu.native.pool import address_of, call_kernel, run_parts
from eckart.engines.cpu.registers.windows import prefetch
from eckart.engines.cpu.ridge.schedule import padded, ranges, ridges
from eckart.engines.host import Host
from eckart.engines.protocol import Evidence, EvidenceSums, RidgeRule


@njit(**OUTSIDE, fastmath=FAST)
def evidence_range(entries, known, factors, spread, first, last, out_rows, sums):
    """Rows first..last, whose w, y and q are ``known``; ``spread`` is a0."""
    indptr, indices, data, mean, implicit = entries
    (left, right), (pull, row_sum) = factors, out_rows
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
def slopes(left, pull, bias, row_sum, penalties, first, last, sums):
    """Squared norms of the gradient by the codes of rows first..last, and of its two parts, into
    sums[7:10]; the same by their biases, where there are any, and sum_i (sum_j R_ij)^2 / m_i
    (infinite where a ridge is zero), into sums[10:]. A ``shared`` matrix of length 0 is absent."""
    ridge, bias_ridge, shared, nonnegative = penalties
    k = left.shape[1]
    push = np.empty(k)
    whole, pulled, pushed = 0.0, 0.0, 0.0
    for i in range(first, last):
        for c in range(k):
            push[c] = ridge[i] * left[i, c]
        for d in range(shared.shape[0]):
            for c in range(k):
                push[c] += left[i, d] * shared[d, c]
        for c in range(k):
            got = np.float64(pull[i, c])
            g = push[c] - got
            if nonnegative and not left[i, c] > 0:
                g = min(g, 0.0)
            whole += g * g
            pulled += got * got
            pushed += push[c] * push[c]
    sums[7] += whole
    sums[8] += pulled
    sums[9] += pushed
    for i in range(first, last if bias.shape[0] > 0 else first):
        there = bias_ridge[i] * np.float64(bias[i])
        sums[10] += (there - row_sum[i]) ** 2
        sums[11] += row_sum[i] ** 2
        sums[12] += there**2
        if bias_ridge[i] > 0:
            sums[13] += row_sum[i] ** 2 / bias_ridge[i]
        elif row_sum[i] != 0:
            sums[13] = np.inf


@njit(**OUTSIDE)
def evidence_part(part, who, cuts, codes, e, known, factors, spread, penalties, out):
    """A range of rows: what is known of their entries, their evidence, and the slopes by their
    codes and biases. ``codes`` are addresses."""
    left, (pull, row_sum, sums) = factors[0], out
    first, last, own = cuts[part], cuts[part + 1], sums[part]
    while first < last:
        end = next_rows(e.indptr, ALL, first, last)
        call_kernel(codes[0], (e, ALL, first, end, known[who]))
        call_kernel(
            codes[1],
            (
                (e.indptr, e.indices, e.data, e.mean, e.alpha > 0),
                known[who],
                factors,
                spread,
                first,
                end,
                (pull, row_sum),
                own,
            ),
        )
        first = end
    call_kernel(codes[2], (left, pull, e.bias, row_sum, penalties, cuts[part], last, own))


@njit(**OUTSIDE)
def rows_part(part, who, cuts, codes, e, known, before, after):
    """A range of rows by a kernel ``(indptr, indices, known, *before, first, last, *after)``."""
    first, last = cuts[part], cuts[part + 1]
    while first < last:
        end = next_rows(e.indptr, ALL, first, last)
        call_kernel(codes[0], (e, ALL, first, end, known[who]))
        call_kernel(codes[1], (e.indptr, e.indices, known[who], *before, first, end, *after))
        first = end


def evidence_rows(
    x: Host,
    left: np.ndarray,
    right: np.ndarray,
    rule: RidgeRule,
    *,
    own: Any = None,
    other: Any = None,
    spread: float = 0.0,
    gram: np.ndarray | None = None,
    threads: int,
    **given: Any,
) -> Evidence:
    """One pass over the entries of x; see the head of this file. ``gram`` is V^T V where that is
    known already."""
    dtype = np.dtype(right.dtype)
    u, v = np.ascontiguousarray(left, dtype), np.ascontiguousarray(right, dtype)
    pull, row_sum = np.empty(u.shape, dtype), np.empty(len(u))
    e = entries_of(x, dtype, rule, bias=own, offset=other, **given)
    shared = (
        spread * (inner(v, v, None, threads) if gram is None else gram)
        if spread
        else np.empty((0, v.shape[1]))
    )
    scale, implicit, (ridge, bias_ridge) = dtype.type(spread), bool(e.alpha > 0), ridges(x, rule)
    cuts = cuts_of(e.indptr, ranges(x.nnz))
    sums = np.zeros((max(1, len(cuts) - 1), len(EvidenceSums._fields)))
    penalties = ridge, bias_ridge, np.ascontiguousarray(shared, np.float64), bool(rule.nonnegative)
    entries, rows = (e.indptr, e.indices, e.data, e.mean, implicit), (pull, row_sum)
    known = known_room(x, dtype, threads)
    codes = (
        looking(e, ALL, known),
        address_of(evidence_range, (entries, known[0], (u, v), scale, 0, 0, rows, sums[0])),
        address_of(slopes, (u, pull, e.bias, row_sum, penalties, 0, 0, sums[0])),
    )
    arguments = cuts, codes, e, known, (u, v), scale, penalties, (pull, row_sum, sums)
    run_parts(evidence_part, len(cuts) - 1, arguments, threads)
    return Evidence(pull, row_sum, EvidenceSums(*map(float, sums.sum(axis=0))))


def misfit_rows(
    x: Host, left: np.ndarray, right: np.ndarray, *, threads: int, **given: Any
) -> np.ndarray:
    """sum_j w (y - s)^2 of every row, as one column."""
    dtype = np.dtype(right.dtype)
    e, out = entries_of(x, dtype, **given), np.empty((len(left), 1))
    before = padded(left, dtype, None, threads), padded(right, dtype, None, threads)
    cuts, known = cuts_of(e.indptr, ranges(x.nnz)), known_room(x, dtype, threads)
    given = (e.indptr, e.indices, known[0], *before, 0, 0, out)
    codes = looking(e, ALL, known), address_of(misfit_range, given)
    run_parts(rows_part, len(cuts) - 1, (cuts, codes, e, known, before, (out,)), threads)
    return out
