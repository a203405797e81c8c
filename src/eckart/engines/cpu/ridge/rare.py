"""Rows whose normal equations need more than a Cholesky factor: minimum-norm solutions, and
non-negative ones.

``minimum_norm_row``   u = G^+ r by eigenvalues of G, those under the rounding level dropped: the
least-squares solution of least norm (lambda = 0). Where
                       the old u has a part in the dropped directions that the fit needs, that part
                       stays: the objective never rises.
``nonnegative_row``    min 1/2 u^T G u - r.u over u >= 0 by coordinate descent from the old u; stops
when no coordinate moves by more than 1e-6 of the largest.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from eckart.compiling import INSIDE, OUTSIDE
from eckart.engines.cpu.entries.entry import FAST
from eckart.engines.cpu.ridge.cholesky import equations

PASSES = 200


@njit(**INSIDE)
def minimum_norm_row(gram, rhs, old, cut, square):
    """The solution of least norm of G u = r, G given by its upper triangle; eigenvalues up to
    ``cut`` count as zero.

    ``square`` is the scale of the objective: the old u keeps its dropped part if that lowers the
    objective by more than rounding.
    """
    n = gram.shape[0]
    full = np.empty((n, n))
    for r in range(n):
        for c in range(r, n):
            full[r, c] = gram[r, c]
            full[c, r] = gram[r, c]
    values, vectors = np.linalg.eigh(full)  # noqa: TID251  (compiled)
    out, kept = np.zeros(n), np.zeros(n)
    worth = 0.0
    for t in range(n):
        pull, at = 0.0, 0.0
        for r in range(n):
            pull += vectors[r, t] * rhs[0, r]
            at += vectors[r, t] * old[r]
        if values[t] > cut:
            for r in range(n):
                out[r] += pull / values[t] * vectors[r, t]
        else:
            worth += 2.0 * at * pull - values[t] * at * at
            for r in range(n):
                kept[r] += at * vectors[r, t]
    if worth > 1e-11 * square and np.isfinite(worth):
        out += kept
    return out


@njit(**INSIDE, fastmath=FAST)
def nonnegative_row(gram, rhs, start, floor):
    """Coordinate descent on u >= 0, G given by its upper triangle; a coordinate whose diagonal
    entry is under ``floor`` has no curvature and stays 0."""
    n = gram.shape[0]
    u = start.copy()
    for r in range(n):
        if gram[r, r] <= floor:
            u[r] = 0.0
    slope = np.empty(n)
    for r in range(n):
        s = -np.float64(rhs[0, r])
        for c in range(n):
            s += (gram[r, c] if c >= r else gram[c, r]) * u[c]
        slope[r] = s
    for _ in range(PASSES):
        largest, moved = 0.0, 0.0
        for r in range(n):
            d = gram[r, r]
            if d <= floor:
                continue
            new = max(u[r] - slope[r] / d, 0.0)
            step = new - u[r]
            if step != 0.0:
                u[r] = new
                for c in range(n):
                    slope[c] += step * (gram[r, c] if c >= r else gram[c, r])
            largest, moved = max(largest, new), max(moved, abs(step))
        if moved <= 1e-6 * largest:
            break
    return u


@njit(**OUTSIDE, fastmath=FAST)
def rare_range(rows, known, right, penalties, form, chosen, first, last, chunk, gram, out):
    """Rows chosen[first..last] solved by one of the methods above: non-negative codes where
    ``form.steps`` is 1."""
    k = right.shape[1]
    left, bias, value = out
    biased = bias.shape[0] > 0
    rhs, side = np.empty((1, k), right.dtype), np.empty((1 if biased else 0, k), right.dtype)
    scaled, indptr, at = np.empty((2, chunk.shape[0]), right.dtype), rows.indptr, np.int64(0)
    start = np.zeros(k)
    for m in range(first, last):
        i = chosen[m]
        square, total, scale, trace = equations(
            rows, right, penalties, i, known, at, chunk, scaled, gram, rhs, side, form.size
        )
        at += indptr[i + 1] - indptr[i]
        if form.steps:
            floor = 0.0
            for r in range(k):
                start[r] = max(left[i, r], 0.0)
                floor = max(floor, gram[r, r] + side[0, r] ** 2 if biased else gram[r, r])
            u = nonnegative_row(gram, rhs, start, 16.0 * np.finfo(right.dtype).eps * floor)
        else:
            for r in range(k):
                start[r] = left[i, r]
            # against the trace before the bias took its part: what remains of it may be rounding
            # alone
            u = minimum_norm_row(gram, rhs, start, form.level * trace, square)
        gain = scale * total * total
        for r in range(k):
            left[i, r] = u[r]
            s = 2.0 * rhs[0, r] - gram[r, r] * u[r]
            for c in range(r + 1, k):
                s -= 2.0 * gram[r, c] * u[c]
            gain += s * u[r]
        if biased:
            s = 0.0
            for r in range(k):
                s += side[0, r] * u[r]
            bias[i] = total * scale - s * np.sqrt(scale)
        value[i] = 0.5 * (square - gain)
