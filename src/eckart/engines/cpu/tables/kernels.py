"""Rows with the same gaps share one Cholesky factor, in the smaller of two systems. O are the scores that they see, H their gaps, r = y - mean.

codes      M = I + W_O^T noise_O^-1 W_O = L L^T. The code of a row is m = M^-1 W_O^T noise_O^-1 r_O, a gap is mean_j + w_j.m, and the covariance of the gaps,
           W_H M^-1 W_H^T = A^T A with A = L^-1 W_H^T (and their noise). |O| k^2 / 2 + k^3 / 6 + |H| k^2 / 2 + |H|^2 k / 2 for a pattern.
precision  with P = (W W^T + noise)^-1, made once for all rows, gaps are mean_H - P_HH^-1 P_HO r_O, and P_HH^-1 = A^T A with A = L^-1, P_HH = L L^T, is their
           covariance. |H|^3 / 2 for a pattern and |H| |O| for a row: where gaps are few, as they are in most rows of most tables, a tenth of the other.

In both, log |cov of r_O| is that of the whole and log |P_HH|, or log |M| + log |noise_O|.
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
    """W, W / noise, P, log of the determinant of P^-1, means, noise, widths of Huber's loss, and the codes from which those are measured."""

    factors: np.ndarray
    scaled: np.ndarray
    precision: np.ndarray
    whole: float
    mean: np.ndarray
    noise: np.ndarray
    width: np.ndarray
    start: np.ndarray


@njit(**INSIDE, fastmath=FAST)
def _system(seen, scheme, lead, m):
    """M of the row ``lead``, factored in place; returns log |M| + log |noise_O|."""
    k, total = m.shape[0], 0.0
    m[:] = 0.0
    for e in range(seen.indptr[lead], seen.indptr[lead + 1]):
        j = seen.indices[e]
        total += np.log(scheme.noise[j])
        for r in range(k):
            v = scheme.scaled[j, r]
            for c in range(r + 1):
                m[r, c] += v * scheme.factors[j, c]
    for r in range(k):
        m[r, r] += 1.0
    return total + factor_in_place(m)


@njit(**INSIDE, fastmath=FAST)
def _away(seen, scheme, i, row, wild):
    """The scores that row i sees, drawn to their widths, less the means, in ``row``."""
    for e in range(seen.indptr[i], seen.indptr[i + 1]):
        j, y = seen.indices[e], seen.data[e]
        d = scheme.width[j]
        if d < np.inf:
            t = scheme.mean[j]
            for r in range(scheme.factors.shape[1]):
                t += scheme.factors[j, r] * scheme.start[i, r]
            if y - t > d:
                wild[j] += d * (y - t - d)
                y = t + d
            elif t - y > d:
                wild[j] += d * (t - y - d)
                y = t - d
        row[j] = y - scheme.mean[j]


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


@njit(**INSIDE, fastmath=FAST)
def _add_inverse(m, gaps, times, a, second):
    """second[H, H] += times A^T A, A = L^-1, the lower triangle of it: A is a triangle itself; ``a`` is room."""
    h = gaps.shape[0]
    for r in range(h):  # a row of A at a time
        for g in range(r):
            a[r, g] = 0.0
        a[r, r] = 1.0
        for q in range(r):
            v = m[r, q]
            for g in range(q + 1):
                a[r, g] -= v * a[q, g]
        v = 1.0 / m[r, r]
        for g in range(r + 1):
            a[r, g] *= v
    for g in range(h):
        j = gaps[g]
        for f in range(g + 1):
            s = 0.0
            for r in range(g, h):
                s += a[r, g] * a[r, f]
            second[j, gaps[f]] += times * s


@njit(**OUTSIDE, fastmath=FAST)
def filled_patterns(seen, scheme, first, last, away, second, wild):
    """Patterns first..last: fills ``away`` (their complete rows less the means, from 0 on), adds the covariance of gaps to ``second`` (lower triangle) and what
    Huber's loss leaves to ``wild``; returns the sum over rows of |O| log 2 pi + log |cov of r_O|."""
    n, k = scheme.factors.shape
    room, z = np.empty((max(n, k), max(n, k))), np.empty(max(n, k))
    a, block = np.empty((max(n, k), n)), np.empty((n, n))
    gaps = np.empty(n, np.int64)
    missing = np.empty(n, np.bool_)
    total = 0.0
    for p in range(first, last):
        begin, end = seen.starts[p], seen.starts[p + 1]
        lead, rows = seen.order[begin], float(end - begin)
        missing[:] = True
        for e in range(seen.indptr[lead], seen.indptr[lead + 1]):
            missing[seen.indices[e]] = False
        h = 0
        for j in range(n):
            if missing[j]:
                gaps[h] = j
                h += 1
        own = (n - h) * np.log(2.0 * np.pi)
        by_codes = 3 * h**3 + 6 * h * (n - h) > (n - h) * k * k * 3 + k**3 + 3 * h * k * k + 3 * h * h * k
        m = room[:k, :k] if by_codes else room[:h, :h]
        if by_codes:
            own += _system(seen, scheme, lead, m)
        else:
            for g in range(h):
                for f in range(g + 1):
                    m[g, f] = scheme.precision[gaps[g], gaps[f]]
            own += scheme.whole + factor_in_place(m)
        total += rows * own
        for at in range(begin, end):
            i, row = seen.order[at], away[at - seen.starts[first]]
            _away(seen, scheme, i, row, wild)
            if by_codes:
                z[:k] = 0.0
                for e in range(seen.indptr[i], seen.indptr[i + 1]):
                    j = seen.indices[e]
                    for r in range(k):
                        z[r] += row[j] * scheme.scaled[j, r]
                solve(m, k, z)
                for g in range(h):
                    s = 0.0
                    for r in range(k):
                        s += scheme.factors[gaps[g], r] * z[r]
                    row[gaps[g]] = s
            elif h:
                for g in range(h):
                    s = 0.0
                    for e in range(seen.indptr[i], seen.indptr[i + 1]):
                        j = seen.indices[e]
                        s -= scheme.precision[gaps[g], j] * row[j]
                    z[g] = s
                solve(m, h, z)
                for g in range(h):
                    row[gaps[g]] = z[g]
        if by_codes and h:
            _add_covariance(m, scheme, gaps[:h], rows, a, block, second)
        elif h:
            _add_inverse(m, gaps[:h], rows, a, second)
    return total
