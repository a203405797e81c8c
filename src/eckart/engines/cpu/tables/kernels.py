"""Rows with the same gaps share one Cholesky factor: M = I + W_O^T noise_O^-1 W_O = L L^T for what they see, O.

A row's code is m = M^-1 W_O^T noise_O^-1 (y_O - mean_O); the covariance of its gaps H is W_H M^-1 W_H^T = A^T A with A = L^-1 W_H^T, which is added as often as
there are rows. Only gaps are touched: the cost of a pattern is |O| k^2 / 2 + k^3 / 6 + |H| k^2 / 2 + |H|^2 k / 2.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(nogil=True, cache=True, fastmath={"contract", "nsz", "arcp"})
def filled_patterns(
    indptr, indices, data, factors, scaled, mean, noise, width, start, order, starts, first, last, full, codes, second, wild
):
    """Patterns first..last, whose rows are order[starts[p]] ..: fills ``full`` (their complete rows, from 0 on) and ``codes``, adds the covariance of gaps to
    ``second`` (lower triangle) and to ``wild``; returns the log-likelihood. ``scaled`` is W / noise."""
    n, k = factors.shape
    m = np.empty((k, k))
    b = np.empty(k)
    a = np.empty((k, n))
    block = np.empty((n, n))
    gaps = np.empty(n, np.int64)
    seen = np.empty(n, np.bool_)
    loglik = 0.0
    base = starts[first]
    for p in range(first, last):
        lead = order[starts[p]]
        seen[:] = False
        m[:] = 0.0
        log_noise = 0.0
        for e in range(indptr[lead], indptr[lead + 1]):
            j = indices[e]
            seen[j] = True
            log_noise += np.log(noise[j])
            for r in range(k):
                v = scaled[j, r]
                for c in range(r + 1):
                    m[r, c] += v * factors[j, c]
        h = 0
        for j in range(n):
            if not seen[j]:
                gaps[h] = j
                h += 1
        logdet = 0.0
        for r in range(k):
            m[r, r] += 1.0
            for c in range(r + 1):
                s = m[r, c]
                for q in range(c):
                    s -= m[r, q] * m[c, q]
                if r == c:
                    m[r, r] = np.sqrt(s)
                    logdet += 2.0 * np.log(m[r, r])
                else:
                    m[r, c] = s / m[c, c]
        size = indptr[lead + 1] - indptr[lead]
        constant = size * np.log(2.0 * np.pi) + logdet + log_noise
        for at in range(starts[p], starts[p + 1]):
            i = order[at]
            row = full[at - base]
            b[:] = 0.0
            square = 0.0
            for e in range(indptr[i], indptr[i + 1]):
                j = indices[e]
                y = data[e]
                d = width[j]
                if d < np.inf:
                    t = mean[j]
                    for r in range(k):
                        t += factors[j, r] * start[i, r]
                    if y - t > d:
                        wild[j] += d * (y - t - d)
                        y = t + d
                    elif t - y > d:
                        wild[j] += d * (t - y - d)
                        y = t - d
                row[j] = y
                away = y - mean[j]
                square += away * away / noise[j]
                for r in range(k):
                    b[r] += away * scaled[j, r]
            z = codes[i]
            quad = 0.0
            for r in range(k):
                s = b[r]
                for q in range(r):
                    s -= m[r, q] * z[q]
                z[r] = s / m[r, r]
                quad += z[r] * z[r]
            for r in range(k - 1, -1, -1):
                s = z[r]
                for q in range(r + 1, k):
                    s -= m[q, r] * z[q]
                z[r] = s / m[r, r]
            for g in range(h):
                j = gaps[g]
                s = mean[j]
                for r in range(k):
                    s += factors[j, r] * z[r]
                row[j] = s
            loglik -= 0.5 * (constant + square - quad)
        if h == 0:
            continue
        times = float(starts[p + 1] - starts[p])
        for r in range(k):  # A = L^-1 W_H^T, a row at a time
            for g in range(h):
                a[r, g] = factors[gaps[g], r]
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
            second[j, j] += times * noise[j]
    return loglik
