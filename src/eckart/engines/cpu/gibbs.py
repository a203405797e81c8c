"""One Gibbs half step: a draw of every row's factors from its Gaussian conditional, as serial numba kernels over ranges of rows.

Row i has the prior N(P^-1 h_i, P^-1) and sees entries a_ij = o_j + x_j^T u_i + noise of variance 1 / (p_i q_j w_ij). Its conditional has

    precision  G_i = P + p_i sum_j q_j w_ij x_j x_j^T          (d x d, Cholesky G = L L^T)
    mean       G_i^-1 (h_i + p_i sum_j q_j w_ij (a_ij - o_j) x_j)

and the draw is mean + L^-T z_i. The normal numbers z are made before, from one generator, so the draw does not depend on threads. On the way
back the kernel measures the misfit of the row it drew, sum_j q_j w_ij (a_ij - o_j - x_j^T u_i)^2, which is what the noise precision needs next.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from eckart.engines.cpu.sparse import balanced
from eckart.engines.pool import run_lanes
from eckart.matrix import Observed

PARTS = 32


class Draw(NamedTuple):
    """The factors drawn (rows x d) and the weighted squared misfit of each row."""

    factors: np.ndarray
    misfit: np.ndarray


@njit(nogil=True, cache=True, fastmath={"contract", "reassoc", "nsz"})
def _draw_rows(indptr, indices, data, weights, design, offset, p, q, base, prior, z, first, last, out, misfit):
    d = design.shape[1]
    weighted = weights.shape[0] > 0
    g = np.empty((d, d), design.dtype)
    b = np.empty(d, design.dtype)
    for i in range(first, last):
        lo, hi = indptr[i], indptr[i + 1]
        for r in range(d):
            b[r] = 0
            for c in range(r + 1):
                g[r, c] = 0
        t = lo
        while t + 3 < hi:  # four entries a pass: each element of G is read and written once for the four
            j0, j1, j2, j3 = indices[t], indices[t + 1], indices[t + 2], indices[t + 3]
            x0, x1, x2, x3 = design[j0], design[j1], design[j2], design[j3]
            w0, w1, w2, w3 = q[j0], q[j1], q[j2], q[j3]
            if weighted:
                w0, w1, w2, w3 = w0 * weights[t], w1 * weights[t + 1], w2 * weights[t + 2], w3 * weights[t + 3]
            a0, a1, a2, a3 = (
                data[t] - offset[j0],
                data[t + 1] - offset[j1],
                data[t + 2] - offset[j2],
                data[t + 3] - offset[j3],
            )
            for r in range(d):
                y0, y1, y2, y3 = w0 * x0[r], w1 * x1[r], w2 * x2[r], w3 * x3[r]
                b[r] += y0 * a0 + y1 * a1 + y2 * a2 + y3 * a3
                for c in range(r + 1):
                    g[r, c] += y0 * x0[c] + y1 * x1[c] + y2 * x2[c] + y3 * x3[c]
            t += 4
        while t < hi:
            j = indices[t]
            x = design[j]
            a = data[t] - offset[j]
            w = q[j] * weights[t] if weighted else q[j]
            for r in range(d):
                y = w * x[r]
                b[r] += y * a
                for c in range(r + 1):
                    g[r, c] += y * x[c]
            t += 1
        for r in range(d):
            b[r] = prior[i, r] + p[i] * b[r]
            for c in range(r + 1):
                g[r, c] = base[r, c] + p[i] * g[r, c]
        for r in range(d):  # G = L L^T in place, and b <- L^-1 b on the way
            for c in range(r + 1):
                s = g[r, c]
                for e in range(c):
                    s -= g[r, e] * g[c, e]
                if r == c:
                    g[r, r] = np.sqrt(max(s, np.finfo(np.float32).tiny))
                else:
                    g[r, c] = s / g[c, c]
            s = b[r]
            for e in range(r):
                s -= g[r, e] * b[e]
            b[r] = s / g[r, r]
        u = out[i]
        for r in range(d):
            u[r] = b[r] + z[i, r]
        for r in range(d - 1, -1, -1):  # u = L^-T (L^-1 b + z)
            u[r] /= g[r, r]
            for e in range(r):
                u[e] -= g[r, e] * u[r]
        total = 0.0
        for t in range(lo, hi):
            j = indices[t]
            s = data[t] - offset[j]
            for r in range(d):
                s -= design[j, r] * u[r]
            total += (q[j] * weights[t] if weighted else q[j]) * s * s
        misfit[i] = total


def draw_rows(
    x: Observed,
    weights: np.ndarray | None,
    design: np.ndarray,
    offset: np.ndarray,
    p: np.ndarray,
    q: np.ndarray,
    base: np.ndarray,
    prior: np.ndarray,
    z: np.ndarray,
    threads: int,
) -> Draw:
    """Draw all rows of ``x``, everything in its precision.

    ``weights`` one for each entry (None: 1), ``design`` m x d, ``offset`` o and ``q`` of length m, ``p`` of length n, ``base`` P d x d, ``prior`` h and
    ``z`` n x d. With z = 0 the rows are their conditional means.
    """
    out, misfit = np.empty_like(z), np.empty(len(z))
    w = np.empty(0, design.dtype) if weights is None else weights
    parts = balanced(x.indptr, PARTS)

    def step(_, part, scratch):
        _draw_rows(
            x.indptr, x.indices, x.data, w, design, offset, p, q, base, prior, z, part[0], part[1], out, misfit
        )

    run_lanes(parts, parts, step, threads)
    return Draw(out, misfit)
