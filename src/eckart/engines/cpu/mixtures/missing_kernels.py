"""The E step of full and tied Gaussian mixtures on rows with missing entries, row by row.

A row sees the columns O and misses M. With S the covariance of a component, P = S^-1 and d = x - m its deviation on O, the missing part has mean
d_M = S_MO S_OO^-1 d_O = -P_MM^-1 P_MO d_O and covariance S_MM - S_MO S_OO^-1 S_OM = P_MM^-1. The shorter way is taken: a Cholesky factor of P_MM where few
entries are missing, of S_OO where few are there. Then log |S_OO| = log |S| + log |P_MM| and d_O^T S_OO^-1 d_O = d^T P d at the d just completed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from eckart.compiling import INSIDE, OUTSIDE
from eckart.engines.cpu.small_systems import factor_in_place, solve

BEYOND = -46.0
LOG_2PI = np.log(2 * np.pi)


class Stack(NamedTuple):
    """Components, for rows with gaps: means (k x n), covariances, their inverses and roots (k of each, or one for all), constants (k)."""

    means: np.ndarray
    spread: np.ndarray
    precision: np.ndarray
    roots: np.ndarray
    constants: np.ndarray


@njit(**INSIDE)
def factor(a, take, size, low):
    """low = Cholesky factor of a[take, take]; returns the sum of the logarithms of its diagonal."""
    for r in range(size):
        for c in range(r + 1):
            low[r, c] = a[take[r], take[c]]
    return 0.5 * factor_in_place(low, size)


@njit(**INSIDE)
def complete_row(seen, o, missing, m, spread, precision, root, low, v, d):
    """d (deviations at the seen columns) is completed at the missing ones; returns d_O^T S_OO^-1 d_O + 2 (log |S_OO|^(1/2) - log |S|^(1/2)) and leaves
    the factor of the shorter way in ``low``. The second value is the sum of logarithms to take off log |S|^(-1/2)."""
    n = len(d)
    if m <= o:
        logs = factor(precision, missing, m, low)
        for r in range(m):
            v[r] = 0.0
            for q in range(o):
                v[r] += precision[missing[r], seen[q]] * d[seen[q]]
        solve(low, m, v)
        for r in range(m):
            d[missing[r]] = -v[r]
        square = 0.0
        for j in range(n):
            y = 0.0
            for l in range(j + 1):
                y += root[l, j] * d[l]
            square += y * y
        return square, logs
    logs = factor(spread, seen, o, low)
    for r in range(o):
        v[r] = d[seen[r]]
    square = solve(low, o, v)
    for r in range(m):
        s = 0.0
        for q in range(o):
            s += spread[missing[r], seen[q]] * v[q]
        d[missing[r]] = s
    for j in range(n):  # log |S_OO|^(1/2) = logs here; relative to |S|^(1/2) as above
        logs += np.log(root[j, j])
    return square, logs


@njit(**INSIDE)
def add_missing_covariance(seen, o, missing, m, spread, precision, low, v, share, target):
    """target[M, M] += share times the covariance of the missing entries."""
    if m <= o:
        factor(precision, missing, m, low)
        for c in range(m):
            for r in range(m):
                v[r] = 1.0 if r == c else 0.0
            solve(low, m, v)
            for r in range(m):
                target[missing[r], missing[c]] += share * v[r]
        return
    factor(spread, seen, o, low)
    for c in range(m):
        for q in range(o):
            v[q] = spread[seen[q], missing[c]]
        solve(low, o, v)
        for r in range(m):
            s = spread[missing[r], missing[c]]
            for q in range(o):
                s -= spread[missing[r], seen[q]] * v[q]
            target[missing[r], missing[c]] += share * s


@njit(**OUTSIDE)
def gap_rows(x, weights, stack, loglik, shares, counts, shift, scatter):
    """log p of each row and shares; where ``counts`` has entries, sums about the means are added too. One matrix for all where there is one only."""
    means, spread, precision, roots, constants = stack
    n, k = x.shape[1], len(constants)
    low, v, d = np.empty((n, n)), np.empty(n), np.empty((k, n))
    seen, missing, logp = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(k)
    for i in range(len(x)):
        o, m = 0, 0
        for j in range(n):
            if np.isnan(x[i, j]):
                missing[m] = j
                m += 1
            else:
                seen[o] = j
                o += 1
        top = -np.inf
        for z in range(k):
            at = z % len(spread)
            for q in range(o):
                d[z, seen[q]] = x[i, seen[q]] - means[z, seen[q]]
            square, logs = complete_row(seen, o, missing, m, spread[at], precision[at], roots[at], low, v, d[z])
            logp[z] = constants[z] + 0.5 * m * LOG_2PI - logs - 0.5 * min(square, 1e300)
            top = max(top, logp[z])
        total = 0.0
        for z in range(k):
            shares[i, z] = np.exp(logp[z] - top) if logp[z] - top >= BEYOND else 0.0
            total += shares[i, z]
        loglik[i] = top + np.log(total)
        for z in range(k):
            shares[i, z] /= total
            share = shares[i, z] * (weights[i] if len(weights) else 1.0)
            if len(counts) == 0 or share <= 0:
                continue
            at = z % len(scatter)
            counts[z] += share
            for r in range(n):
                shift[z, r] += share * d[z, r]
                for c in range(n):
                    scatter[at, r, c] += share * d[z, r] * d[z, c]
            from_one = z % len(spread)
            add_missing_covariance(
                seen, o, missing, m, spread[from_one], precision[from_one], low, v, share, scatter[at]
            )
