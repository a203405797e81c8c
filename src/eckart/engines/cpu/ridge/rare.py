"""Rows whose normal equations need more than a Cholesky factor: minimum-norm solutions, and non-negative ones.

``minimum_norm_row``   u = G^+ r by eigenvalues of G, those under the rounding level dropped: the least-squares solution of least norm (lambda = 0). Where
                       the old u has a part in the dropped directions that the fit needs, that part stays: the objective never rises.
``nonnegative_row``    min 1/2 u^T G u - r.u over u >= 0 by coordinate descent from the old u; stops when no coordinate moves by more than 1e-6 of the largest.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from eckart.engines.cpu.registers.tiles import take_gram
from eckart.engines.cpu.ridge.cholesky import FAST, assemble

PASSES = 200


@njit(nogil=True, cache=True)
def minimum_norm_row(gram, rhs, old, cut, square):
    """The solution of least norm of G u = r, G given by its upper triangle; eigenvalues up to ``cut`` count as zero.

    ``square`` is the scale of the objective: the old u keeps its dropped part if that lowers the objective by more than rounding.
    """
    n = gram.shape[0]
    full = np.empty((n, n))
    for r in range(n):
        for c in range(r, n):
            full[r, c] = gram[r, c]
            full[c, r] = gram[r, c]
    values, vectors = np.linalg.eigh(full)
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


@njit(nogil=True, cache=True, fastmath=FAST)
def nonnegative_row(gram, rhs, start, floor):
    """Coordinate descent on u >= 0, G given by its upper triangle; a coordinate whose diagonal entry is under ``floor`` has no curvature and stays 0."""
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


@njit(nogil=True, cache=True, fastmath=FAST)
def rare_range(
    indptr, indices, data, weights, right, offset, alpha, shift,
    base, ridge, bias_ridge, size, nonnegative, level, chosen, first, last, chunk, gram, left, bias, value,
):  # fmt: skip
    """Rows chosen[first..last] solved by the two methods above; arguments as in ``ridge.ridge_range``."""
    k = right.shape[1]
    biased = bias.shape[0] > 0
    rhs, side = np.empty((1, k), right.dtype), np.empty((1 if biased else 0, k), right.dtype)
    pull = np.empty((2, chunk.shape[0]), right.dtype)
    start = np.zeros(k)
    for q in range(first, last):
        i = chosen[q]
        for r in range(k):
            for c in range(k):
                gram[r, c] = base[r, c]
        for r in range(k):
            gram[r, r] += ridge[i]
            rhs[0, r] = 0
        if biased:
            for r in range(k):
                side[0, r] = 0
        square, total, weight = assemble(
            indices, data, weights, right, offset, alpha, shift,
            indptr[i], indptr[i + 1], chunk, pull, gram, rhs, side, size,
        )  # fmt: skip
        floor, trace = 0.0, 0.0
        for r in range(k):
            floor = max(floor, gram[r, r])
            trace += gram[r, r]
        cut = level * trace  # measured before the bias takes its part: what remains of it may be rounding alone
        floor *= 16.0 * np.finfo(right.dtype).eps
        scale = 0.0
        if biased:
            slack = weight + bias_ridge[i]
            scale = 1.0 / slack if slack > 0 else 0.0
            for r in range(k):
                rhs[0, r] -= side[0, r] * scale * total
                side[0, r] *= np.sqrt(scale)
            for r in range(0, k, size):
                for c in range(r, k, size):
                    take_gram(side, 0, 1, r, c, gram)
        if nonnegative:
            for r in range(k):
                start[r] = max(left[i, r], 0.0)
            u = nonnegative_row(gram, rhs, start, floor)
        else:
            for r in range(k):
                start[r] = left[i, r]
            u = minimum_norm_row(gram, rhs, start, cut, square)
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
