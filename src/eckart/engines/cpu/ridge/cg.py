"""Rows solved by a few warm-started steps of conjugate gradients: for large k, where a k x k matrix
for every row costs too much.

M u = sum_j w v_j (v_j.u + b) + P u + l_i u is applied entry by entry, never formed; n_i k work a
step in place of n_i k^2. Each step lowers the row's objective, so sweeps still never rise. Entries
are gathered once into a buffer that stays in cache where the row fits, else chunk by chunk.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from eckart.compiling import INSIDE, OUTSIDE
from eckart.engines.cpu.entries.entry import AHEAD, FAST
from eckart.engines.cpu.registers.prefetch import prefetch
from eckart.engines.cpu.registers.tiles import add_rows, pack_row, row_dots


@njit(**INSIDE, fastmath=FAST)
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


@njit(**INSIDE, fastmath=FAST)
def _apply(indices, right, penalties, i, scales, at, a, n, chunk, dots, u, out):
    """out <- M u without the bias, the numbers of the row being at.. in ``scales``; ``dots`` is
    scratch. A row that fits into the chunk is there already."""
    k, base, ridge = right.shape[1], penalties.base, penalties.ridge[i]
    held = n <= chunk.shape[0] - 4
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
            _gather(indices, right, scales, a + done, count, at + done, chunk)
        row_dots(chunk, count, u, dots)
        add_rows(chunk, dots, count, out)
        done += count


@njit(**OUTSIDE, fastmath=FAST)
def cg_range(rows, known, right, penalties, form, chosen, first, last, chunk, nothing, out):
    """Improve the codes of the rows chosen[first..last] by ``form.steps`` steps; no bias, no
    prior."""
    k, indices, indptr = right.shape[1], rows.indices, rows.indptr
    left, value = out.left, out.value
    u, r, d, q, rhs = (
        np.zeros((1, k), right.dtype),
        np.zeros((1, k), right.dtype),
        np.zeros((1, k), right.dtype),
        np.zeros((1, k), right.dtype),
        np.zeros((1, k), right.dtype),
    )
    at, n = np.int64(0), np.int64(0)
    scales, pulls = known[0], known[2:]
    dots = np.zeros((1, max(chunk.shape[0], k) + 4), right.dtype)
    for m in range(first, last):
        i = chosen[m]
        a = indptr[i]
        at += n  # behind the row before
        n = indptr[i + 1] - a
        constant = 0.0
        for t in range(at, at + n):
            constant += pulls[0, t] * known[1, t]
            scales[t] = np.sqrt(scales[t])
            pulls[0, t] = pulls[0, t] / scales[t] if scales[t] > 0 else 0
        for c in range(k):
            rhs[0, c] = 0
            u[0, c] = left[i, c]
        done = np.int64(0)
        while done < n:
            count = min(chunk.shape[0] - 4, n - done)
            _gather(indices, right, scales, a + done, count, at + done, chunk)
            add_rows(chunk, pulls[:, at + done :], count, rhs)
            done += count
        _apply(indices, right, penalties, i, scales, at, a, n, chunk, dots, u, q)
        rr = 0.0
        for c in range(k):
            r[0, c] = rhs[0, c] - q[0, c]
            d[0, c] = r[0, c]
            rr += np.float64(r[0, c]) * r[0, c]
        start = rr
        for _ in range(form.steps):
            if not rr > 1e-14 * start or rr <= 0:
                break
            _apply(indices, right, penalties, i, scales, at, a, n, chunk, dots, d, q)
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
