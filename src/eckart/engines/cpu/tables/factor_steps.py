"""EM steps of factor analysis on a covariance C (n x n), W as k rows of n numbers, so that the
inner loops run over columns of the table.

A step, with scaled = W / noise and M = I + scaled W^T (k x k): b = M^-1 scaled, cb = b C, zz = b
cb^T + M^-1, then W = (zz + ridge I)^-1 cb and noise_j = (rows (C_jj - w_j.cb_j) + more_j) / (rows +
degrees); last, W becomes U W, zz = U^T U, where that gains more than the ridge costs.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from eckart.compiling import INSIDE, OUTSIDE
from eckart.engines.cpu.registers.mixtures import TILE
from eckart.engines.cpu.registers.tiles import four_lines, line_dot, sweep_lines

FAST = {"contract", "nsz", "arcp", "reassoc"}
INNER, OUTER = 1e-100, 1e100
"""Between these a product of pivots is gathered, so that many of them need one logarithm; pivots
are 1e-300 to 1e300 apart from what no data have."""


@njit(**INSIDE, fastmath=FAST)
def _gram(a, b, k, out):
    """A B^T, which is symmetric."""
    for r in range(k):
        for c in range(r + 1):
            out[r, c] = out[c, r] = line_dot(a, r, b, c)


@njit(**INSIDE, fastmath=FAST)
def _gathered(logs, size, pivot):
    """The logarithm of a product of pivots so far, in two parts, with one more."""
    size *= pivot
    return (logs, size) if INNER < size < OUTER else (logs + np.log(size), 1.0)


@njit(**INSIDE, fastmath=FAST)
def invert(m, k, v):
    """M (k lines of k numbers, padded with zeros), positive definite, becomes M^-1 by Gauss and
    Jordan; returns log |M|. A pivot at a time, every other line gives up its share of the pivot's
    line: none of them waits for another, as the steps of a triangular solution do. ``v`` is room
    for a line."""
    logs, size = 0.0, 1.0
    for q in range(k):
        pivot = max(m[q, q], 1e-300)
        logs, size = _gathered(logs, size, pivot)
        for r in range(k):
            v[0, r] = m[r, q]
            m[r, q] = 0.0
        m[q, q] = 1.0
        sweep_lines(m, q, 1.0 / pivot, v, k)
    return logs + np.log(size)


@njit(**INSIDE, fastmath=FAST)
def _root(m, k, v):
    """M becomes U, upper triangular, M = U^T U; returns log |M|. ``v`` is room for a line."""
    logs, size = 0.0, 1.0
    for q in range(k):
        pivot = max(m[q, q], 1e-300)
        logs, size = _gathered(logs, size, pivot)
        root = 1.0 / np.sqrt(pivot)
        for r in range(k):
            v[0, r] = m[q, r] * root if r > q else 0.0
            m[q, r] = m[q, r] if r >= q else 0.0
        sweep_lines(m, q, root, v, k)
    return logs + np.log(size)


@njit(**INSIDE, fastmath=FAST)
def _times(a, x, count, out):
    """A X for ``count`` lines of X; A and the result have whole fours of lines."""
    for r in range(0, out.shape[0], 4):
        four_lines(a, r, x, count, out)


@njit(**OUTSIDE, fastmath=FAST)
def factor_loop(k, w, noise, cov, numbers, more, steps, still):
    """At most ``steps`` steps of k factors, in place, until no noise changes by more than the share
    ``still``; ``numbers`` are rows, l2, degrees and the least noise. Lines of W and of the
    covariance are padded with zeros to whole registers, and W to whole fours of lines."""
    (high, wide), n, (rows, l2, degrees, least) = w.shape, noise.shape[0], numbers
    across = -(-k // TILE) * TILE
    spread, zz, room = np.zeros((high, across)), np.zeros((high, across)), np.zeros((high, across))
    scaled, b, cb = np.zeros((high, wide)), np.empty((high, wide)), np.empty((high, wide))
    sharp, left, v, share = np.empty(n), np.empty(n), np.empty((1, across)), 1.0 / (rows + degrees)
    for _ in range(steps):
        for j in range(n):
            sharp[j] = 1.0 / noise[j]
            left[j] = cov[j, j]
        for r in range(k):
            for j in range(n):
                scaled[r, j] = w[r, j] * sharp[j]
        _gram(scaled, w, k, spread)
        for r in range(k):
            spread[r, r] += 1.0
        invert(spread, k, v)
        _times(spread, scaled, k, b)
        _times(b, cov, n, cb)
        _gram(b, cb, k, zz)
        zz += spread
        room[:] = zz
        for r in range(k):
            room[r, r] += l2 / rows
        invert(room, k, v)
        _times(room, cb, k, w)
        for r in range(k):
            for j in range(n):
                left[j] -= w[r, j] * cb[r, j]
        most = 0.0
        for j in range(n):
            new = max((rows * left[j] + more[j]) * share, least)
            most = max(most, abs(new * sharp[j] - 1.0))
            noise[j] = new
            sharp[j] = 1.0 / new
        gain, cost = -float(k), 0.0
        for r in range(k):
            gain += zz[r, r]
        gain -= _root(zz, k, v)
        _times(zz, w, k, b)
        for r in range(k):
            for j in range(n):
                cost += (b[r, j] * b[r, j] - w[r, j] * w[r, j]) * sharp[j]
        if rows * gain >= l2 * cost:
            w[:] = b
        if most <= still:
            break
