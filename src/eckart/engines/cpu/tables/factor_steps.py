"""EM steps of factor analysis on a covariance C (n x n), W as k rows of n numbers, so that the inner loops run over columns of the table.

A step, with scaled = W / noise and M = I + scaled W^T = L L^T (k x k): b = M^-1 scaled, cb = b C, zz = b cb^T + M^-1, then W = (zz + ridge I)^-1 cb and
noise_j = (rows (C_jj - w_j.cb_j) + more_j) / (rows + degrees); last, W becomes root^T W, zz = root root^T, where that gains more than the ridge costs.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from eckart.compiling import INSIDE, OUTSIDE

FAST = {"contract", "nsz", "arcp", "reassoc"}


@njit(**INSIDE, fastmath=FAST)
def _gram(a, b, out):
    """The lower triangle of A B^T, which is symmetric."""
    for r in range(a.shape[0]):
        for c in range(r + 1):
            s = 0.0
            for j in range(a.shape[1]):
                s += a[r, j] * b[c, j]
            out[r, c] = s


@njit(**INSIDE, fastmath=FAST)
def _root(m):
    """The lower triangle of M becomes L, M = L L^T."""
    for r in range(m.shape[0]):
        for c in range(r):
            s = m[r, c]
            for q in range(c):
                s -= m[r, q] * m[c, q]
            m[r, c] = s / m[c, c]
        s = m[r, r]
        for q in range(r):
            s -= m[r, q] * m[r, q]
        m[r, r] = np.sqrt(max(s, 1e-300))


@njit(**INSIDE, fastmath=FAST)
def _solve(low, x):
    """X becomes (L L^T)^-1 X, a row at a time."""
    k, n = x.shape
    for r in range(k):
        for q in range(r):
            v = low[r, q]
            for j in range(n):
                x[r, j] -= v * x[q, j]
        v = 1.0 / low[r, r]
        for j in range(n):
            x[r, j] *= v
    for r in range(k - 1, -1, -1):
        for q in range(r + 1, k):
            v = low[q, r]
            for j in range(n):
                x[r, j] -= v * x[q, j]
        v = 1.0 / low[r, r]
        for j in range(n):
            x[r, j] *= v


@njit(**OUTSIDE, fastmath=FAST)
def factor_loop(w, noise, cov, numbers, more, steps, still):
    """At most ``steps`` steps, in place, until no noise changes by more than the share ``still``; ``numbers`` are rows, l2, degrees and the least noise."""
    (k, n), (rows, l2, degrees, least) = w.shape, numbers
    m, zz, inverse, b, cb = np.empty((k, k)), np.empty((k, k)), np.empty((k, k)), np.empty((k, n)), np.empty((k, n))
    for _ in range(steps):
        for r in range(k):
            for j in range(n):
                b[r, j] = w[r, j] / noise[j]
        _gram(b, w, m)
        inverse[:] = 0.0
        for r in range(k):
            m[r, r] += 1.0
            inverse[r, r] = 1.0
        _root(m)
        _solve(m, b)
        _solve(m, inverse)
        cb[:] = 0.0
        for r in range(k):
            for i in range(n):
                v = b[r, i]
                for j in range(n):
                    cb[r, j] += v * cov[i, j]
        _gram(b, cb, zz)
        for r in range(k):
            for c in range(r + 1):
                zz[r, c] += inverse[r, c]
                m[r, c] = zz[r, c]
            m[r, r] += l2 / rows
        _root(m)
        w[:] = cb
        _solve(m, w)
        most = 0.0
        for j in range(n):
            left = cov[j, j]
            for r in range(k):
                left -= w[r, j] * cb[r, j]
            new = max((rows * left + more[j]) / (rows + degrees), least)
            most = max(most, abs(new / noise[j] - 1.0))
            noise[j] = new
        gain, cost = -float(k), 0.0
        for r in range(k):
            gain += zz[r, r]
        _root(zz)
        for c in range(k):
            gain -= 2.0 * np.log(zz[c, c])
            for j in range(n):
                b[c, j] = zz[c, c] * w[c, j]
            for r in range(c + 1, k):
                v = zz[r, c]
                for j in range(n):
                    b[c, j] += v * w[r, j]
            for j in range(n):
                cost += (b[c, j] * b[c, j] - w[c, j] * w[c, j]) / noise[j]
        if rows * gain >= l2 * cost:
            w[:] = b
        if most <= still:
            break
