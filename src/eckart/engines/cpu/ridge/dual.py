"""Rows with few entries, solved in the space of their entries.

With P = diag(d) + l_i I a row's code is u = P^-1 V^T y, where (W^-1 + V P^-1 V^T + 1/m_i 11^T) y =
W^-1 p: n_i unknowns in place of k. V holds the columns that the row observes, W their weights, p
their right-hand side weights; b = sum(y) / m_i is the bias. The fitted values are V u + b = W^-1 (p
- y), so the objective is 1/2 (constant - p.W^-1 (p - y)).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from eckart.compiling import OUTSIDE
from eckart.engines.cpu.entries.entry import AHEAD, FAST
from eckart.engines.cpu.registers.prefetch import prefetch
from eckart.engines.cpu.registers.tiles import (
    add_rows,
    backward_tile,
    dot_tile,
    forward_tile,
    scale_row,
)
from eckart.engines.cpu.ridge.cholesky import cholesky


@njit(**OUTSIDE, fastmath=FAST)
def dual_range(rows, known, right, penalties, form, chosen, first, last, chunk, flat, out):
    """Rows chosen[first..last]; ``chunk`` has room for the longest of them, ``flat`` for its
    square; P is given by its diagonal."""
    k, size, real, level = right.shape[1], form.size, form.real, form.level
    indptr, indices, base, ridge, bias_ridge = (
        rows.indptr,
        rows.indices,
        penalties.base,
        penalties.ridge,
        penalties.bias_ridge,
    )
    one = right.dtype.type(1)
    line = 64 // right.itemsize
    left, bias, value = out
    biased = bias.shape[0] > 0
    roots, code = np.empty((1, k), right.dtype), np.empty((1, k), right.dtype)
    inverse, pull = np.empty(chunk.shape[0], right.dtype), np.empty(chunk.shape[0], right.dtype)
    at = 0
    wide = np.zeros((1, chunk.shape[0]), right.dtype)
    end = indices.shape[0] - 1
    for m in range(first, last):
        i = chosen[m]
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
            p = base[t, t] + ridge[i] if t < real else one
            roots[0, t] = np.sqrt(one / p) if p > 0 else 0
        constant = 0.0
        for t in range(n):
            soon = indices[min(a + t + AHEAD, end)]
            for c in range(0, k, line):
                prefetch(right, soon, c)
            scale_row(right, indices[a + t], roots, chunk, t)
        for t in range(n):
            w, pull[t] = known[0, at + t], known[2, at + t]
            constant += pull[t] * known[1, at + t]
            inverse[t] = one / w if w > 0 else 0
        at += n
        for t in range(n, whole):
            for c in range(k):
                chunk[t, c] = 0
        gram = flat[: whole * whole].reshape(whole, whole)
        for r in range(0, whole, 4):
            for c in range(r // size * size, whole, 4):
                dot_tile(chunk, r, c, gram)
        extra = one / bias_ridge[i] if biased else 0 * one
        top = gram[0, 0] + inverse[0]
        for t in range(n):
            if biased:
                for c in range(n):
                    gram[t, c] += extra
            if inverse[t] > 0:
                gram[t, t] += inverse[t]
            else:
                for c in range(n):
                    gram[t, c] = 0
                    gram[c, t] = 0
                gram[t, t] = top
            top = max(top, gram[t, t])
            wide[0, t] = inverse[t] * pull[t]
        for t in range(n, whole):
            gram[t, t] = top
            wide[0, t] = 0
        if not cholesky(gram, size) > level * top:
            value[i] = np.nan
            continue
        for t in range(0, whole, size):
            forward_tile(gram, t, wide)
        for t in range(whole - size, -1, -size):
            backward_tile(gram, t, wide)
        for t in range(k):
            code[0, t] = 0
        add_rows(chunk, wide, n, code)
        for t in range(k):
            left[i, t] = code[0, t] * roots[0, t]
        gain, total = 0.0, 0.0
        for t in range(n):
            gain += pull[t] * inverse[t] * (pull[t] - wide[0, t])
            total += wide[0, t]
        if biased:
            bias[i] = total * extra
        value[i] = 0.5 * (constant - gain)
