"""ridge_rows: the normal equations of a range of rows, assembled and solved in cache.

Row i sees the columns j of its stored entries with weight w and target y. Its code u (and, where asked, its bias b) minimises

    1/2 sum_j w (y - b - u.v_j)^2 + 1/2 u^T P u - h_i.u + 1/2 l_i ||u||^2 + 1/2 m_i b^2,

so (sum_j w v_j v_j^T + P + l_i I) u = sum_j w (y - b) v_j + h_i. P is one matrix for all rows (the Gram matrix of implicit feedback, a prior
precision), h an optional right-hand side, and noise z turns the solution into a draw: u + R^-1 z, R^T R being the matrix above.

Entries are gathered in chunks that stay in cache, scaled by sqrt(w), and the Gram matrix grows tile by tile in registers (``registers``); the bias is
eliminated (a rank-one downdate), the matrix is factored by tiles, two triangular solves follow. The value of the objective at the solution
comes for free: 1/2 (sum w y^2 - u.r - b t). Factors are padded to whole tiles with zeros, which stay zero.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from eckart.engines.cpu.registers.prefetch import prefetch
from eckart.engines.cpu.registers.tiles import (
    add_gram,
    add_rows,
    backward_tile,
    factor_tile,
    forward_tile,
    pack_row,
    solve_panel,
    take_gram,
)

FAST = {"contract", "reassoc", "nsz"}
AHEAD = 8


@njit(nogil=True, cache=True, fastmath=FAST)
def cholesky(g, size):
    """Factor the upper triangle of g in place, R^T R = g; returns the smallest pivot (not positive: the factor is useless)."""
    n = g.shape[0]
    least = g[0, 0]
    for t in range(0, n, size):
        least = min(least, factor_tile(g, t))
        for c in range(t + size, n, size):
            solve_panel(g, t, c)
        for r in range(t + size, n, size):
            for c in range(r, n, size):
                take_gram(g, t, size, r, c, g)
    return least


@njit(nogil=True, cache=True, fastmath=FAST)
def assemble(indices, data, weights, right, offset, alpha, shift, a, b, chunk, pull, gram, rhs, side, size):
    """Gram matrix, right-hand side and (``side``) weighted sum of v of one row; returns sum w y^2, sum w y and sum w in float64.

    Explicit (``alpha`` 0): w = weights[p] or 1, y = data[p] - offset[j]. Implicit: w = alpha data[p], y = 1 with weight w + shift.
    ``pull`` holds, for the entries of a chunk, the factors of sqrt(w) v in the right-hand side and in ``side``.
    """
    k = right.shape[1]
    line = 64 // right.itemsize
    weighted = weights.shape[0] > 0
    square, total, weight = 0.0, 0.0, 0.0
    end = indices.shape[0] - 1
    done = a
    while done < b:
        count = min(chunk.shape[0], b - done)
        for t in range(count):
            p = done + t
            j = indices[p]
            soon = indices[min(p + AHEAD, end)]
            for c in range(0, k, line):
                prefetch(right, soon, c)
            if alpha > 0:
                w = alpha * data[p]
                root = np.sqrt(w)
                if root > 0:
                    pull[0, t] = (w + shift) / root
                    square += w + shift
                else:  # no strength: as if the cell were not stored
                    pull[0, t] = 0
            else:
                y = data[p] - offset[j]
                w = weights[p] if weighted else right.dtype.type(1)
                root = np.sqrt(w)
                pull[0, t] = root * y
                pull[1, t] = root
                square += w * y * y
                total += w * y
                weight += w
            pack_row(right, j, root, chunk, t)
        for r in range(0, k, size):
            for c in range(r, k, size):
                add_gram(chunk, count, r, c, gram)
        add_rows(chunk, pull, count, rhs)
        if side.shape[0] > 0:
            add_rows(chunk, pull[1:], count, side)
        done += count
    return square, total, weight


@njit(nogil=True, cache=True, fastmath=FAST)
def ridge_range(
    indptr, indices, data, weights, right, offset, alpha, shift,
    base, ridge, bias_ridge, prior, noise, real, size, level, wanted, first, last, chunk, gram, left, bias, value,
):  # fmt: skip
    """Solve the ``wanted`` rows among first..last; ``left``, ``bias`` (length 0: none) and ``value`` take the results.

    Columns from ``real`` on are padding. A row whose matrix is singular at this precision (a pivot under ``level`` of the largest diagonal
    entry) gets the value NaN and is left to ``ridge_rare``.
    """
    k = right.shape[1]
    biased = bias.shape[0] > 0
    rhs, side, keep = np.empty((1, k), right.dtype), np.empty((1 if biased else 0, k), right.dtype), np.empty(k)
    pull = np.empty((2, chunk.shape[0]), right.dtype)
    for i in range(first, last):
        if not wanted[i]:
            continue
        for r in range(k):
            for c in range(k):
                gram[r, c] = base[r, c]
        for r in range(k):
            gram[r, r] += ridge[i]
            rhs[0, r] = prior[i, r] if prior.shape[0] > 0 else 0
        if biased:
            for r in range(k):
                side[0, r] = 0
        square, total, weight = assemble(
            indices,
            data,
            weights,
            right,
            offset,
            alpha,
            shift,
            indptr[i],
            indptr[i + 1],
            chunk,
            pull,
            gram,
            rhs,
            side,
            size,
        )
        scale = 0.0
        if biased:
            slack = weight + bias_ridge[i]
            scale = 1.0 / slack if slack > 0 else 0.0
            root = np.sqrt(scale)
            for r in range(k):
                rhs[0, r] -= side[0, r] * scale * total
                side[0, r] *= root
            for r in range(0, k, size):
                for c in range(r, k, size):
                    take_gram(side, 0, 1, r, c, gram)
        for r in range(k):
            keep[r] = rhs[0, r]
        top = gram[0, 0]
        for r in range(real):
            top = max(top, gram[r, r])
        for r in range(real, k):
            gram[r, r] = top
        if not cholesky(gram, size) > level * top:
            value[i] = np.nan
            continue
        for t in range(0, k, size):
            forward_tile(gram, t, rhs)
        if noise.shape[0] > 0:
            for r in range(k):
                rhs[0, r] += noise[i, r]
        for t in range(k - size, -1, -size):
            backward_tile(gram, t, rhs)
        gain = 0.0
        for r in range(k):
            left[i, r] = rhs[0, r]
            gain += rhs[0, r] * keep[r]
        if biased:
            s = 0.0
            for r in range(k):
                s += side[0, r] * rhs[0, r]
            bias[i] = total * scale - s * np.sqrt(scale)
            gain += scale * total * total
        value[i] = 0.5 * (square - gain)


@njit(nogil=True, cache=True)
def bias_range(indptr, indices, data, weights, offset, ridge, first, last, bias):
    """bias_i = sum w (a_ij - offset_j) / (sum w + ridge_i) for rows first..last; 0 where nothing is seen."""
    weighted = weights.shape[0] > 0
    for i in range(first, last):
        total, weight = 0.0, ridge[i]
        for p in range(indptr[i], indptr[i + 1]):
            w = weights[p] if weighted else 1.0
            total += w * (data[p] - offset[indices[p]])
            weight += w
        bias[i] = total / weight if weight > 0 else 0.0


@njit(nogil=True, cache=True, fastmath=FAST)
def offset_times_range(indptr, indices, data, own, other, v, first, last, out):
    """out[i] = sum_j (a_ij - own_i - other_j) v_j for rows first..last."""
    k = v.shape[1]
    line = 64 // v.itemsize
    end = indices.shape[0] - 1
    for i in range(first, last):
        for c in range(k):
            out[i, c] = 0
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            soon = indices[min(p + AHEAD, end)]
            for c in range(0, k, line):
                prefetch(v, soon, c)
            a = data[p] - own[i] - other[j]
            for c in range(k):
                out[i, c] += a * v[j, c]
