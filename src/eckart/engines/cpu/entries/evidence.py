"""What a certificate needs to know of a factorization, in one pass over the entries and without storing more than asked.

At every stored entry let s = u_i.v_j and R the negative gradient of the data term by B_ij: w (a - mean - b_i - c_j - s) for explicit feedback,
q - w s with w = alpha r, q = w + shift for implicit. Per row: sum_j R v_j and sum_j R; in all: the sums in ``Sums``, in float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from eckart.engines.cpu.entries.sparse import balanced
from eckart.engines.cpu.registers.prefetch import prefetch
from eckart.engines.protocol import Evidence, RidgeRule
from eckart.matrix import Observed
from eckart.scheduler import run_lanes

AHEAD = 8
PARTS = 32


@njit(nogil=True, cache=True, fastmath={"contract", "reassoc", "nsz"})
def evidence_range(
    indptr,
    indices,
    data,
    weights,
    alpha,
    shift,
    spread,
    mean,
    left,
    right,
    own,
    other,
    first,
    last,
    pull,
    row_sum,
    kept,
    sums,
):
    """Rows first..last; ``kept`` (length 0: not wanted) takes R; ``own``, ``other`` of length 0: no biases; ``spread`` is a0."""
    k = right.shape[1]
    line = 64 // right.itemsize
    end = indices.shape[0] - 1
    weighted, biased, keep = weights.shape[0] > 0, own.shape[0] > 0, kept.shape[0] > 0
    out = np.empty(k, right.dtype)
    zero = right.dtype.type(0)
    value, linear, square, cross, constant, dots = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
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
            if alpha > 0:
                w = alpha * data[p]
                q = w + shift if w > 0 else zero
                r = q - w * s
                value += 0.5 * (q - 2.0 * q * s + w * s * s)
                whole = spread + w
                z = spread * s - r
                square += z * z / (2.0 * whole)
                cross += z * q / whole
                constant += q * q / (2.0 * whole) - 0.5 * q
                dots += np.float64(s) * s
            else:
                w = weights[p] if weighted else right.dtype.type(1)
                y = data[p] - mean
                d = y - s
                if biased:
                    d -= own[i] + other[j]
                r = w * d
                value += 0.5 * r * d
                linear += np.float64(y) * r
                square += 0.5 * np.float64(r) * d
            total += r
            for c in range(k):
                out[c] += r * right[j, c]
            if keep:
                kept[p] = r
        for c in range(k):
            pull[i, c] = out[c]
        row_sum[i] = total
    sums[0] += value
    sums[1] += linear
    sums[2] += square
    sums[3] += cross
    sums[4] += constant
    sums[5] += dots


def evidence_rows(
    x: Observed,
    left: np.ndarray,
    right: np.ndarray,
    rule: RidgeRule,
    *,
    mean: float = 0.0,
    own: np.ndarray | None = None,
    other: np.ndarray | None = None,
    weights: np.ndarray | None = None,
    spread: float = 0.0,
    keep: bool = False,
    threads: int = 1,
) -> Evidence:
    """One pass over the entries of x; see the head of this file."""
    dtype = np.dtype(right.dtype)
    u, v = np.ascontiguousarray(left, dtype), np.ascontiguousarray(right, dtype)
    none = np.empty(0, dtype)
    pull, row_sum = np.empty((x.shape[0], u.shape[1]), dtype), np.empty(x.shape[0])
    kept = np.empty(x.nnz, dtype) if keep else none
    arrays = x.indptr, x.indices, np.asarray(x.data, dtype), none if weights is None else np.asarray(weights, dtype)
    numbers = dtype.type(rule.alpha), dtype.type(rule.shift), dtype.type(spread), dtype.type(mean)
    biases = (none, none) if own is None or other is None else (np.asarray(own, dtype), np.asarray(other, dtype))
    parts = balanced(x.indptr, PARTS)
    lanes = [np.zeros(6) for _ in parts]

    def step(sums: np.ndarray, part: tuple[int, int], scratch: Any) -> None:
        evidence_range(*arrays, *numbers, u, v, *biases, *part, pull, row_sum, kept, sums)

    run_lanes(parts, lanes, step, threads)
    return Evidence(pull, row_sum, kept if keep else None, *(float(t) for t in np.sum(lanes, axis=0)))
