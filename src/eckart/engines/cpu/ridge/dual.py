"""Rows with few entries, solved in the space of their entries.

With P = diag(d) + l_i I a row's code is u = P^-1 V^T y, where (W^-1 + V P^-1 V^T + 1/m_i 11^T) y = W^-1 p: n_i unknowns in place of k. V holds the columns that
the row observes, W their weights, p their right-hand side weights; b = sum(y) / m_i is the bias. The fitted values are V u + b = W^-1 (p - y), so
the objective is 1/2 (constant - p.W^-1 (p - y)).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from eckart.engines.cpu.registers.prefetch import prefetch
from eckart.engines.cpu.registers.tiles import add_rows, backward_tile, dot_tile, forward_tile, scale_row
from eckart.engines.cpu.ridge.cholesky import AHEAD, FAST, cholesky


@njit(nogil=True, cache=True, fastmath=FAST)
def dual_range(
    indptr, indices, data, weights, right, offset, alpha, shift,
    diagonal, ridge, bias_ridge, size, level, chosen, first, last, chunk, flat, left, bias, value,
):  # fmt: skip
    """Rows chosen[first..last]; ``chunk`` has room for the longest of them, ``flat`` for its square. Other arguments as in ``ridge.ridge_range``."""
    k = right.shape[1]
    one = right.dtype.type(1)
    line = 64 // right.itemsize
    biased, weighted = bias.shape[0] > 0, weights.shape[0] > 0
    roots, out = np.empty((1, k), right.dtype), np.empty((1, k), right.dtype)
    inverse, pull = np.empty(chunk.shape[0], right.dtype), np.empty(chunk.shape[0], right.dtype)
    wide = np.zeros((1, chunk.shape[0]), right.dtype)
    end = indices.shape[0] - 1
    for q in range(first, last):
        i = chosen[q]
        a = indptr[i]
        n = indptr[i + 1] - a
        if n == 0:
            for t in range(k):
                left[i, t] = 0
            if biased:
                bias[i] = 0
            value[i] = 0.0
            continue
        whole = (n + size - 1) // size * size
        for t in range(k):
            p = diagonal[t] + ridge[i]
            roots[0, t] = np.sqrt(one / p) if p > 0 else 0
        constant = 0.0
        for e in range(n):
            j = indices[a + e]
            soon = indices[min(a + e + AHEAD, end)]
            for c in range(0, k, line):
                prefetch(right, soon, c)
            scale_row(right, j, roots, chunk, e)
            if alpha > 0:
                w = alpha * data[a + e]
                pull[e] = w + shift if w > 0 else 0
                constant += pull[e]
            else:
                w = weights[a + e] if weighted else one
                y = data[a + e] - offset[j]
                pull[e] = w * y
                constant += w * y * y
            inverse[e] = one / w if w > 0 else 0
        for e in range(n, whole):
            for t in range(k):
                chunk[e, t] = 0
        gram = flat[: whole * whole].reshape(whole, whole)
        for r in range(0, whole, 4):
            for c in range(r // size * size, whole, 4):
                dot_tile(chunk, r, c, gram)
        extra = one / bias_ridge[i] if biased else 0 * one
        top = gram[0, 0] + inverse[0]
        for e in range(n):
            if biased:
                for c in range(n):
                    gram[e, c] += extra
            if inverse[e] > 0:
                gram[e, e] += inverse[e]
            else:
                for c in range(n):
                    gram[e, c] = 0
                    gram[c, e] = 0
                gram[e, e] = top
            top = max(top, gram[e, e])
            wide[0, e] = inverse[e] * pull[e]
        for e in range(n, whole):
            gram[e, e] = top
            wide[0, e] = 0
        if not cholesky(gram, size) > level * top:
            value[i] = np.nan
            continue
        for t in range(0, whole, size):
            forward_tile(gram, t, wide)
        for t in range(whole - size, -1, -size):
            backward_tile(gram, t, wide)
        for t in range(k):
            out[0, t] = 0
        add_rows(chunk, wide, n, out)
        for t in range(k):
            left[i, t] = out[0, t] * roots[0, t]
        gain, total = 0.0, 0.0
        for e in range(n):
            gain += pull[e] * inverse[e] * (pull[e] - wide[0, e])
            total += wide[0, e]
        if biased:
            bias[i] = total * extra
        value[i] = 0.5 * (constant - gain)
