"""Rows with the same gaps share one Cholesky factor: M = I + W_O^T noise_O^-1 W_O = L L^T for what they see, O.

A row's code is m = M^-1 W_O^T noise_O^-1 (y_O - mean_O); the covariance of its gaps H is W_H M^-1 W_H^T = A^T A with A = L^-1 W_H^T, which is added as often as
there are rows. Only gaps are touched: the cost of a pattern is |O| k^2 / 2 + k^3 / 6 + |H| k^2 / 2 + |H|^2 k / 2.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from eckart.compiling import INSIDE, OUTSIDE
from eckart.engines.cpu.small_systems import factor_in_place, solve

FAST = {"contract", "nsz", "arcp"}


class Seen(NamedTuple):
    """What is seen, by rows, and rows by their pattern: those of pattern p are order[starts[p]] .. order[starts[p + 1] - 1]."""

    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray
    order: np.ndarray
    starts: np.ndarray


class Scheme(NamedTuple):
    """W, W / noise, means, noise, widths of Huber's loss, and the codes from which those are measured."""

    factors: np.ndarray
    scaled: np.ndarray
    mean: np.ndarray
    noise: np.ndarray
    width: np.ndarray
    start: np.ndarray


@njit(**INSIDE, fastmath=FAST)
def _system(seen, scheme, lead, m, missing):
    """M of the row ``lead``, factored in place; returns log |M| + log |noise_O|. ``missing`` is set for every column."""
    k, total = m.shape[0], 0.0
    missing[:] = True
    m[:] = 0.0
    for e in range(seen.indptr[lead], seen.indptr[lead + 1]):
        j = seen.indices[e]
        missing[j] = False
        total += np.log(scheme.noise[j])
        for r in range(k):
            v = scheme.scaled[j, r]
            for c in range(r + 1):
                m[r, c] += v * scheme.factors[j, c]
    for r in range(k):
        m[r, r] += 1.0
    return total + factor_in_place(m)


@njit(**INSIDE, fastmath=FAST)
def _pulled(seen, scheme, i, row, b, wild):
    """b = W_O^T noise_O^-1 (y_O - mean_O) of row i, its scores drawn to their widths and put into ``row``; returns the square of what is seen, over noise."""
    k, square = b.shape[0], 0.0
    b[:] = 0.0
    for e in range(seen.indptr[i], seen.indptr[i + 1]):
        j, y = seen.indices[e], seen.data[e]
        d = scheme.width[j]
        if d < np.inf:
            t = scheme.mean[j]
            for r in range(k):
                t += scheme.factors[j, r] * scheme.start[i, r]
            if y - t > d:
                wild[j] += d * (y - t - d)
                y = t + d
            elif t - y > d:
                wild[j] += d * (t - y - d)
                y = t - d
        row[j] = y
        away = y - scheme.mean[j]
        square += away * away / scheme.noise[j]
        for r in range(k):
            b[r] += away * scheme.scaled[j, r]
    return square


@njit(**INSIDE, fastmath=FAST)
def _add_covariance(m, scheme, gaps, times, a, block, second):
    """second[H, H] += times (A^T A + noise_H), A = L^-1 W_H^T, the lower triangle of it; ``a`` and ``block`` are room."""
    k, h = m.shape[0], gaps.shape[0]
    for r in range(k):  # a row of A at a time
        for g in range(h):
            a[r, g] = scheme.factors[gaps[g], r]
        for q in range(r):
            v = m[r, q]
            for g in range(h):
                a[r, g] -= v * a[q, g]
        v = 1.0 / m[r, r]
        for g in range(h):
            a[r, g] *= v
    for g in range(h):
        for f in range(g + 1):
            block[g, f] = 0.0
    for r in range(k):
        for g in range(h):
            v = times * a[r, g]
            for f in range(g + 1):
                block[g, f] += v * a[r, f]
    for g in range(h):
        j = gaps[g]
        for f in range(g + 1):
            second[j, gaps[f]] += block[g, f]
        second[j, j] += times * scheme.noise[j]


@njit(**OUTSIDE, fastmath=FAST)
def filled_patterns(seen, scheme, first, last, full, codes, second, wild):
    """Patterns first..last: fills ``full`` (their complete rows, from 0 on) and ``codes``, adds the covariance of gaps to ``second`` (lower triangle) and what
    Huber's loss leaves to ``wild``; returns the log-likelihood."""
    n, k = scheme.factors.shape
    m, b = np.empty((k, k)), np.empty(k)
    a, block = np.empty((k, n)), np.empty((n, n))
    gaps, missing = np.empty(n, np.int64), np.empty(n, np.bool_)
    loglik = 0.0
    for p in range(first, last):
        begin, end = seen.starts[p], seen.starts[p + 1]
        lead = seen.order[begin]
        logs = _system(seen, scheme, lead, m, missing)
        h = 0
        for j in range(n):
            if missing[j]:
                gaps[h] = j
                h += 1
        constant = (n - h) * np.log(2.0 * np.pi) + logs
        for at in range(begin, end):
            i = seen.order[at]
            row, z = full[at - seen.starts[first]], codes[i]
            square = _pulled(seen, scheme, i, row, b, wild)
            for r in range(k):
                z[r] = b[r]
            loglik -= 0.5 * (constant + square - solve(m, k, z))
            for g in range(h):
                j = gaps[g]
                s = scheme.mean[j]
                for r in range(k):
                    s += scheme.factors[j, r] * z[r]
                row[j] = s
        if h:
            _add_covariance(m, scheme, gaps[:h], float(end - begin), a, block, second)
    return loglik
