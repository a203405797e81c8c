"""Rows solved by a few warm-started steps of conjugate gradients: for large k, where a k x k matrix for every row costs too much.

M u = sum_j w v_j (v_j.u + b) + P u + l_i u is applied entry by entry, never formed; n_i k work a step in place of n_i k^2. Each step lowers the row's
objective, so sweeps still never rise. Entries are gathered once into a buffer that stays in cache where the row fits, else chunk by chunk.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from eckart.engines.cpu.registers.prefetch import prefetch
from eckart.engines.cpu.registers.tiles import add_rows, pack_row, row_dots
from eckart.engines.cpu.ridge.cholesky import AHEAD, FAST


@njit(nogil=True, cache=True, fastmath=FAST)
def _gather(indices, right, scales, a, count, at, chunk):
    """Rows sqrt(w) v of entries a.. into the chunk, zeros up to a multiple of four."""
    k = right.shape[1]
    line = 64 // right.itemsize
    end = indices.shape[0] - 1
    for t in range(count):
        soon = indices[min(a + t + AHEAD, end)]
        for c in range(0, k, line):
            prefetch(right, soon, c)
        pack_row(right, indices[a + t], scales[at + t], chunk, t)
    for t in range(count, (count + 3) // 4 * 4):
        for c in range(k):
            chunk[t, c] = 0


@njit(nogil=True, cache=True, fastmath=FAST)
def _apply(indices, right, base, ridge, scales, a, n, held, chunk, dots, u, out):
    """out <- M u without the bias; ``dots`` is scratch."""
    k = right.shape[1]
    for c in range(k):
        out[0, c] = ridge * u[0, c]
    if base.shape[0] > 0:
        row_dots(base, k, u, dots)
        for c in range(k):
            out[0, c] += dots[0, c]
    done = 0
    while done < n:
        count = n if held else min(chunk.shape[0] - 4, n - done)
        if not held:
            _gather(indices, right, scales, a + done, count, done, chunk)
        row_dots(chunk, count, u, dots)
        add_rows(chunk, dots, count, out)
        done += count


@njit(nogil=True, cache=True, fastmath=FAST)
def cg_range(
    indptr, indices, data, weights, right, offset, alpha, shift,
    base, ridge, steps, wanted, first, last, chunk, left, value,
):  # fmt: skip
    """Improve the codes ``left`` of the wanted rows first..last by ``steps`` steps; arguments as in ``ridge.ridge_range``, no bias."""
    k = right.shape[1]
    weighted = weights.shape[0] > 0
    u, r, d, q = (
        np.zeros((1, k), right.dtype),
        np.zeros((1, k), right.dtype),
        np.zeros((1, k), right.dtype),
        np.zeros((1, k), right.dtype),
    )
    longest = 0
    for i in range(first, last):
        longest = max(longest, indptr[i + 1] - indptr[i])
    scales, pulls = np.empty(longest, right.dtype), np.empty((1, longest), right.dtype)
    dots = np.zeros((1, max(chunk.shape[0], k) + 4), right.dtype)
    rhs = np.zeros((1, k), right.dtype)
    for i in range(first, last):
        if not wanted[i]:
            continue
        a = indptr[i]
        n = indptr[i + 1] - a
        constant = 0.0
        for e in range(n):
            if alpha > 0:
                w = alpha * data[a + e]
                scales[e] = np.sqrt(w)
                pulls[0, e] = (w + shift) / scales[e] if w > 0 else 0
                constant += w + shift if w > 0 else 0
            else:
                w = weights[a + e] if weighted else right.dtype.type(1)
                y = data[a + e] - offset[indices[a + e]]
                scales[e] = np.sqrt(w)
                pulls[0, e] = scales[e] * y
                constant += w * y * y
        held = n <= chunk.shape[0] - 4
        for c in range(k):
            rhs[0, c] = 0
            u[0, c] = left[i, c]
        done = 0
        while done < n:
            count = min(chunk.shape[0] - 4, n - done)
            _gather(indices, right, scales, a + done, count, done, chunk)
            add_rows(chunk, pulls[:, done:], count, rhs)
            done += count
        _apply(indices, right, base, ridge[i], scales, a, n, held, chunk, dots, u, q)
        rr = 0.0
        for c in range(k):
            r[0, c] = rhs[0, c] - q[0, c]
            d[0, c] = r[0, c]
            rr += np.float64(r[0, c]) * r[0, c]
        start = rr
        for _ in range(steps):
            if not rr > 1e-14 * start or rr <= 0:
                break
            _apply(indices, right, base, ridge[i], scales, a, n, held, chunk, dots, d, q)
            dq = 0.0
            for c in range(k):
                dq += np.float64(d[0, c]) * q[0, c]
            if not dq > 0:
                break
            step = right.dtype.type(rr / dq)
            new = 0.0
            for c in range(k):
                u[0, c] += step * d[0, c]
                r[0, c] -= step * q[0, c]
                new += np.float64(r[0, c]) * r[0, c]
            turn = right.dtype.type(new / rr)
            rr = new
            for c in range(k):
                d[0, c] = r[0, c] + turn * d[0, c]
        gain = 0.0
        for c in range(k):
            left[i, c] = u[0, c]
            gain += np.float64(u[0, c]) * (rhs[0, c] + r[0, c])
        value[i] = 0.5 * (constant - gain)
