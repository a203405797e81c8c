"""Chains of columns, as serial kernels over ranges of rows.

``own_*``: the Kalman filter of r + e, entry by entry. With m and P the mean and variance of r
before entry p, F = P + s and K = P / F,

    likelihood  -1/2 (log 2 pi F + (y - m)^2 / F),    m <- m + K (y - m),  P <- (1 - K) P,    over d
    columns  m <- phi^d m,  P <- v + phi^2d (P - v).

The gains do not depend on the data, so the same filter on the columns of ``right`` gives rows t
with  V^T C^-1 V = sum t t^T / F  (generalised least
squares in one pass, without C).

``state_rows``: the precision is tridiagonal, its Cholesky factor bidiagonal.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from eckart.compiling import INSIDE, OUTSIDE

FAST = {"contract", "reassoc", "nsz"}


@njit(**OUTSIDE, inline="always")
def _power(phi, d):
    """phi^d; neighbours, by far the most, without a call."""
    return phi if d == 1 else phi**d


@njit(**OUTSIDE)
def own_likelihood(indptr, indices, data, own, first, last, out):
    for i in range(first, last):
        phi, v, s = own[i, 0], own[i, 1], own[i, 2]
        m, p, total, before = 0.0, v, 0.0, -1
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            if before >= 0:
                f = _power(phi, j - before)
                m *= f
                p = v + f * f * (p - v)
            whole = p + s
            miss = data[e] - m
            total -= 0.5 * (np.log(2 * np.pi * whole) + miss * miss / whole)
            gain = p / whole
            m += gain * miss
            p *= 1.0 - gain
            before = j
        out[i, 0] = total


@njit(**OUTSIDE, fastmath=FAST)
def own_rows(indptr, indices, data, right, own, base, prior, noise, first, last, out):
    k = right.shape[1]
    gram, h, m, t = np.empty((k, k)), np.empty(k), np.empty(k), np.empty(k)
    for i in range(first, last):
        phi, v, s = own[i, 0], own[i, 1], own[i, 2]
        gram[:] = base
        h[:] = prior
        m[:] = 0.0
        my, p, before = 0.0, v, -1
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            if before >= 0:
                f = _power(phi, j - before)
                my *= f
                for a in range(k):
                    m[a] *= f
                p = v + f * f * (p - v)
            whole = p + s
            gain = p / whole
            ty = data[e] - my
            my += gain * ty
            for a in range(k):
                t[a] = right[j, a] - m[a]
                m[a] += gain * t[a]
            for a in range(k):
                scaled = t[a] / whole
                h[a] += scaled * ty
                for b in range(a + 1):
                    gram[a, b] += scaled * t[b]
            p *= 1.0 - gain
            before = j
        _cholesky(gram)
        _forward(gram, h)
        for a in range(k):
            h[a] += noise[i, a]
        _backward(gram, h)
        out[i] = h


@njit(**OUTSIDE, fastmath=FAST)
def state_rows(indptr, indices, data, length, rule, noise, first, last, out):
    d, h, low = np.empty(length), np.empty(length), np.empty(length)
    for i in range(first, last):
        phi, a, q, p = rule[i, 0], rule[i, 1], rule[i, 2], rule[i, 3]
        d[:] = q + phi * phi * q
        d[0] = a + phi * phi * q
        d[length - 1] -= phi * phi * q
        h[:] = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e] % length
            d[j] += p
            h[j] += p * data[e]
        d[0] = np.sqrt(d[0])
        h[0] /= d[0]
        for t in range(1, length):
            low[t] = -phi * q / d[t - 1]
            d[t] = np.sqrt(d[t] - low[t] * low[t])
            h[t] = (h[t] - low[t] * h[t - 1]) / d[t]
        out[i, length - 1] = (h[length - 1] + noise[i, length - 1]) / d[length - 1]
        for t in range(length - 2, -1, -1):
            out[i, t] = (h[t] + noise[i, t] - low[t + 1] * out[i, t + 1]) / d[t]


@njit(**OUTSIDE)
def less_states(indptr, indices, data, states, sign, first, last, out):
    length = states.shape[1]
    for i in range(first, last):
        for e in range(indptr[i], indptr[i + 1]):
            out[e] = data[e] - sign * states[i, indices[e] % length]


@njit(**INSIDE, fastmath=FAST)
def _cholesky(a):
    """The lower triangle in place."""
    k = a.shape[0]
    for i in range(k):
        for j in range(i + 1):
            total = a[i, j]
            for c in range(j):
                total -= a[i, c] * a[j, c]
            a[i, j] = np.sqrt(total) if i == j else total / a[j, j]


@njit(**INSIDE, fastmath=FAST)
def _forward(root, z):
    """z <- L^-1 z."""
    for a in range(len(z)):
        total = z[a]
        for b in range(a):
            total -= root[a, b] * z[b]
        z[a] = total / root[a, a]


@njit(**INSIDE, fastmath=FAST)
def _backward(root, z):
    """z <- L^-T z."""
    for a in range(len(z) - 1, -1, -1):
        total = z[a]
        for b in range(a + 1, len(z)):
            total -= root[b, a] * z[b]
        z[a] = total / root[a, a]
