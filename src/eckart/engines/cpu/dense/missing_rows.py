"""Probabilistic PCA on observed entries: posterior of each row's code, and the normal equations of
each column.

Row i sees the columns O_i. With M_i = W_O^T W_O + s2 I (k x k) the posterior of its code is z ~
N(M_i^-1 W_O^T (x_O - mu_O), s2 M_i^-1), and log N(x_O; mu_O, W_O W_O^T + s2 I) follows from the
Cholesky factor of M_i. Rows are worked in chunks: first posteriors (threads over rows), then the
sums of each column (threads over columns). No two threads add to the same number, so their count
does not change the result.
"""

from __future__ import annotations

import itertools

import numpy as np
from numba import njit

from eckart.compiling import OUTSIDE
from eckart.engines.cpu.small_systems import factor_in_place, solve
from eckart.engines.protocol import GapCodes, GapStatistics
from eckart.matrix import Observed
from eckart.scheduler import run_lanes

CHUNK_BYTES = 32 * 2**20


@njit(**OUTSIDE)
def _posterior_rows(entries, w, mean, noise, first, last, base, moment, codes, loglik, misfit):
    """Posterior of rows first..last; ``moment`` (may be empty) takes E[(z,1)(z,1)^T], rows counted
    from ``base``."""
    indptr, indices, data = entries
    k = w.shape[1]
    m = np.empty((k, k))
    inv = np.empty((k, k))
    b = np.empty(k)
    full = moment.shape[0] > 0
    for i in range(first, last):
        seen = indptr[i + 1] - indptr[i]
        for r in range(k):
            b[r] = 0.0
            for c in range(r + 1):
                m[r, c] = 0.0
            m[r, r] = noise
        square = 0.0
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            x = data[p] - mean[j]
            square += x * x
            for r in range(k):
                v = w[j, r]
                b[r] += v * x
                for c in range(r + 1):
                    m[r, c] += v * w[j, c]
        logdet = factor_in_place(m, k)
        z = codes[i - base]
        for r in range(k):
            z[r] = b[r]
        quad = solve(m, k, z)
        loglik[i - base] = -0.5 * (
            seen * np.log(2.0 * np.pi)
            + logdet
            + (seen - k) * np.log(noise)
            + (square - quad) / noise
        )
        fit = square
        for r in range(k):
            fit -= z[r] * b[r]
        # |x - Wz|^2 = |x|^2 - 2 z.b + z.(M - s2 I)z and Mz = b
        for r in range(k):
            fit -= noise * z[r] * z[r]
        misfit[i - base] = max(fit, 0.0)
        if full:
            for col in range(k):  # M^-1 by two triangular solves
                for r in range(k):
                    s = 1.0 if r == col else 0.0
                    for q in range(col, r):
                        s -= m[r, q] * inv[q, col]
                    inv[r, col] = s / m[r, r] if r >= col else 0.0
                for r in range(k - 1, -1, -1):
                    s = inv[r, col]
                    for q in range(r + 1, k):
                        s -= m[q, r] * inv[q, col]
                    inv[r, col] = s / m[r, r]
            e = moment[i - base]
            for r in range(k):
                for c in range(k):
                    e[r, c] = noise * inv[r, c] + z[r] * z[c]
                e[r, k] = z[r]
                e[k, r] = z[r]
            e[k, k] = 1.0


@njit(**OUTSIDE)
def _column_sums(entries, weights, first, last, lo, hi, moment, gram, cross, square):
    """Add rows first..last (posterior moments in ``moment``) to the sums of columns lo..hi."""
    indptr, indices, data = entries
    size = moment.shape[1]
    for i in range(first, last):
        om = weights[i]
        e = moment[i - first]
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            if j < lo or j >= hi:
                continue
            x = data[p]
            square[j] += om * x * x
            for r in range(size):
                cross[j, r] += om * x * e[r, size - 1]
                for c in range(size):
                    gram[j, r, c] += om * e[r, c]


@njit(**OUTSIDE)
def expected_rows(indptr, indices, data, u, gain, mean, z, first, last, out):
    """out[i] = U_O^T (x_O - mean_O - W_O z_i) + gain z_i with W = U diag(gain): the code of the row
    with its gaps at their expectation."""
    k = u.shape[1]
    code = np.empty(k)
    for i in range(first, last):
        for r in range(k):
            code[r] = gain[r] * z[i, r]
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            rest = data[p] - mean[j]
            for r in range(k):
                rest -= u[j, r] * gain[r] * z[i, r]
            for r in range(k):
                code[r] += u[j, r] * rest
        for r in range(k):
            out[i, r] = code[r]


def gap_statistics(
    x: Observed,
    w: np.ndarray,
    mean: np.ndarray,
    noise: float,
    weights: np.ndarray | None,
    threads: int,
) -> GapStatistics:
    """The E step over all rows and the sums that the M step needs."""
    rows, n = x.shape
    k = w.shape[1]
    entries = (x.indptr, x.indices, x.data)
    w, mean = np.ascontiguousarray(w, np.float64), np.ascontiguousarray(mean, np.float64)
    omega = np.ones(rows) if weights is None else np.asarray(weights, np.float64)
    gram, cross, square = np.zeros((n, k + 1, k + 1)), np.zeros((n, k + 1)), np.zeros(n)
    second, loglik = np.zeros((k + 1, k + 1)), 0.0
    chunk = int(np.clip(CHUNK_BYTES // (8 * (k + 1) ** 2), 64, rows))
    moment, codes = np.empty((chunk, k + 1, k + 1)), np.empty((chunk, k))
    ll, misfit = np.empty(chunk), np.empty(chunk)
    columns = _ranges(0, n, 32)
    for first in range(0, rows, chunk):
        last = min(first + chunk, rows)
        parts = _ranges(first, last, 128)
        sums = np.zeros((len(parts), k + 1, k + 1))

        def posterior(_, i, scratch, first=first, parts=parts, sums=sums):
            a, b = parts[i]
            _posterior_rows(entries, w, mean, noise, a, b, first, moment, codes, ll, misfit)
            sums[i] = np.tensordot(omega[a:b], moment[a - first : b - first], axes=1)

        def column_sums(_, part, scratch, first=first, last=last):
            _column_sums(entries, omega, first, last, part[0], part[1], moment, gram, cross, square)

        run_lanes(range(len(parts)), parts, posterior, threads)
        run_lanes(columns, columns, column_sums, threads)
        second += sums.sum(axis=0)
        loglik += float(omega[first:last] @ ll[: last - first])
    return GapStatistics(loglik, gram, cross, square, second)


def gap_codes(x: Observed, w: np.ndarray, mean: np.ndarray, noise: float, threads: int) -> GapCodes:
    """Posterior mean, log-likelihood and misfit of each row."""
    rows, k = x.shape[0], w.shape[1]
    w, mean = np.ascontiguousarray(w, np.float64), np.ascontiguousarray(mean, np.float64)
    codes, loglik, misfit = np.empty((rows, k)), np.empty(rows), np.empty(rows)
    none = np.empty((0, k + 1, k + 1))
    parts = _ranges(0, rows, 128)

    def posterior(_, part, scratch):
        entries = (x.indptr, x.indices, x.data)
        _posterior_rows(entries, w, mean, noise, part[0], part[1], 0, none, codes, loglik, misfit)

    run_lanes(parts, parts, posterior, threads)
    return GapCodes(codes, loglik, misfit)


def _ranges(first: int, last: int, parts: int) -> list[tuple[int, int]]:
    cuts = np.linspace(first, last, min(parts, last - first) + 1).astype(int)
    return [(int(a), int(b)) for a, b in itertools.pairwise(cuts)]
