"""Cholesky factors and solutions of systems with some tens of unknowns, for kernels that meet one a
row or a pattern."""

from __future__ import annotations

import numpy as np
from numba import njit

from eckart.compiling import INSIDE


@njit(**INSIDE, fastmath=False)
def factor_in_place(m, size):
    """The lower triangle of a positive definite M (size x size) becomes that of L, M = L L^T;
    returns log |M|."""
    logs = 0.0
    for r in range(size):
        for c in range(r + 1):
            s = m[r, c]
            for q in range(c):
                s -= m[r, q] * m[c, q]
            if r == c:
                m[r, r] = np.sqrt(max(s, 1e-300))
                logs += 2.0 * np.log(m[r, r])
            else:
                m[r, c] = s / m[c, c]
    return logs


@njit(**INSIDE, fastmath=False)
def solve(low, size, v):
    """v <- (L L^T)^-1 v; returns ||L^-1 v||^2."""
    square = 0.0
    for r in range(size):
        s = v[r]
        for q in range(r):
            s -= low[r, q] * v[q]
        v[r] = s / low[r, r]
        square += v[r] * v[r]
    for r in range(size - 1, -1, -1):
        s = v[r]
        for q in range(r + 1, size):
            s -= low[q, r] * v[q]
        v[r] = s / low[r, r]
    return square
