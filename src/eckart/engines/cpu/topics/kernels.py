"""Sweeps over the counts of documents for topic models, as serial numba kernels over a range of rows.

    s_p = sum_z theta_dz phi_wz          r_p = c_p / s_p          gamma_pz = r_p theta_dz phi_wz

for the entry p = (d, w) with count c_p. A row gathers its words' phi once into ``buffer`` (entries of the longest row, rounded up to 4, x k), where its
steps find them in cache.
gamma is added to ``total`` (words x k) and forgotten: the cost is non-zeros x k for each step, and nothing of that size is kept. Rows of ``words``,
``total`` and ``shares`` start on cache lines and are padded with zeros to whole vectors.

``map_rows``    theta_dz <- (sum_p gamma_pz + a_z) / sum: EM of pLSA (a = 0), of KL-NMF, and of LDA in its MAP form
``bayes_rows``  gamma_dz <- a_z + sum_p gamma_pz with theta_dz = exp(psi(gamma_dz) - psi(sum gamma_d)): variational LDA
``score_rows``  log s_p summed over each row
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from eckart.engines.cpu.registers.prefetch import prefetch
from eckart.engines.cpu.registers.tiles import add_rows, row_dots

FAST = {"contract", "reassoc", "nsz"}
AHEAD = 12  # entries between a prefetch and its use


@njit(nogil=True, cache=True, fastmath=FAST)
def _gather(indices, words, a, b, buffer):
    k = words.shape[1]
    line = 64 // words.itemsize
    end = indices.shape[0] - 1
    for p in range(a, b):
        soon = indices[min(p + AHEAD, end)]
        for c in range(0, k, line):
            prefetch(words, soon, c)
        j = indices[p]
        for c in range(k):
            buffer[p - a, c] = words[j, c]


@njit(nogil=True, cache=True, fastmath=FAST)
def _ratios(data, a, b, buffer, theta, ratio, least):
    """ratio_p = s_p, then r_p = c_p / s_p; 0 for entries that no topic holds."""
    row_dots(buffer, b - a, theta, ratio)
    for p in range(b - a):
        s = ratio[0, p]
        ratio[0, p] = data[a + p] / s if s > least else least - least


@njit(nogil=True, cache=True, fastmath=FAST)
def _pull(data, a, b, buffer, theta, pull, ratio, least):
    """pull_z = sum_p r_p phi_wz, so that theta pull is the row's counts by topic."""
    _ratios(data, a, b, buffer, theta, ratio, least)
    for c in range(pull.shape[1]):
        pull[0, c] = 0
    add_rows(buffer, ratio, b - a, pull)


@njit(nogil=True, cache=True, fastmath=FAST)
def _scatter(indices, data, a, b, buffer, theta, pull, ratio, total, least):
    """The same, with gamma added to ``total``; returns sum c_p log s_p and the count it is over."""
    k = theta.shape[1]
    line = 64 // total.itemsize
    end = indices.shape[0] - 1
    _pull(data, a, b, buffer, theta, pull, ratio, least)
    value, seen = 0.0, 0.0
    for p in range(a, b):
        soon = indices[min(p + AHEAD, end)]
        for c in range(0, k, line):
            prefetch(total, soon, c)
        r = ratio[0, p - a]
        if r > 0:
            value += data[p] * math.log(data[p] / r)
            seen += data[p]
            j = indices[p]
            for c in range(k):
                total[j, c] += r * theta[0, c] * buffer[p - a, c]
    return value, seen


@njit(nogil=True, cache=True, fastmath=FAST)
def map_rows(indptr, indices, data, words, prior, shares, first, last, steps, tol, total, buffer):
    """``steps`` updates of each row's shares, in place, the last of them with its gamma added to ``total``; earlier ones stop when theta moves by
    less than ``tol`` in all. A ``total`` without rows is left alone. Returns log-likelihood + prior . log theta at the shares before the last update, and
    the counts it is over."""
    k = words.shape[1]
    theta, pull = np.empty((1, k), words.dtype), np.empty((1, k), words.dtype)
    ratio = np.empty((1, buffer.shape[0]), words.dtype)
    collect = total.shape[0] > 0
    value, seen = 0.0, 0.0
    least = np.finfo(words.dtype).tiny * words.dtype.type(1e3)
    for d in range(first, last):
        a, b = indptr[d], indptr[d + 1]
        _gather(indices, words, a, b, buffer)
        for c in range(k):
            theta[0, c] = shares[d, c]
        for step in range(steps):
            if collect and step == steps - 1:
                v, n = _scatter(indices, data, a, b, buffer, theta, pull, ratio, total, least)
                value += v + _log_prior(theta[0], prior)
                seen += n
            else:
                _pull(data, a, b, buffer, theta, pull, ratio, least)
            moved = _share(theta[0], pull[0], prior)
            if moved < tol:
                if not collect:
                    break
                if step < steps - 2:
                    v, n = _scatter(indices, data, a, b, buffer, theta, pull, ratio, total, least)
                    value += v + _log_prior(theta[0], prior)
                    seen += n
                    _share(theta[0], pull[0], prior)
                    break
        for c in range(k):
            shares[d, c] = theta[0, c]
    return value, seen


@njit(nogil=True, cache=True)
def _log_prior(theta, prior):
    """sum_z a_z log theta_z over a_z > 0."""
    value = 0.0
    for c in range(len(theta)):
        if prior[c] > 0:
            value += prior[c] * math.log(max(theta[c], 1e-37))
    return value


@njit(nogil=True, cache=True, fastmath=FAST)
def _share(theta, pull, prior):
    """theta <- (theta pull + prior) / sum, in place; where that is 0 it stays. Returns how far it moved, sum |change|."""
    k = len(theta)
    size = pull[0] - pull[0]
    for c in range(k):
        pull[c] = theta[c] * pull[c] + prior[c]
        size += pull[c]
    if not size > 0:
        return 0.0
    moved = size - size
    scale = 1 / size
    for c in range(k):
        new = pull[c] * scale
        moved += abs(new - theta[c])
        theta[c] = new
    return float(moved)


@njit(nogil=True, cache=True, fastmath=FAST)
def score_rows(indptr, indices, data, words, shares, first, last, floor, out, seen):
    """out_d = sum_p c_p log max(s_p, floor), seen_d = sum_p c_p."""
    k = words.shape[1]
    for d in range(first, last):
        value, count = 0.0, 0.0
        for p in range(indptr[d], indptr[d + 1]):
            s = floor - floor
            j = indices[p]
            for c in range(k):
                s += shares[d, c] * words[j, c]
            value += data[p] * math.log(max(s, floor))
            count += data[p]
        out[d] = value
        seen[d] = count


@njit(nogil=True, cache=True)
def digamma(x):
    """psi(x) for x > 0: the recurrence up to 6, then the asymptotic series (error below 1e-11)."""
    y = 0.0
    while x < 6.0:
        y -= 1.0 / x
        x += 1.0
    f = 1.0 / (x * x)
    tail = f * (1 / 12 - f * (1 / 120 - f * (1 / 252 - f * (1 / 240 - f * (1 / 132 - f * 691 / 32760)))))
    return y + math.log(x) - 0.5 / x - tail


@njit(nogil=True, cache=True)
def _expect_log(gamma, k, log_theta):
    """log_theta_z = psi(gamma_z) - psi(sum gamma)."""
    size = 0.0
    for c in range(k):
        size += gamma[c]
    whole = digamma(size)
    for c in range(k):
        log_theta[c] = digamma(gamma[c]) - whole


@njit(nogil=True, cache=True)
def bayes_rows(indptr, indices, data, words, prior, k, gammas, first, last, steps, tol, total, logs, buffer):
    """Variational steps of each row from its gamma (in place), then phi collected in ``total``; ``words`` is exp(E log beta), k topics are no padding.

    Adds E log theta to ``logs`` (k). Returns the rows' part of the bound at (gamma, words), less the terms in alpha alone, and the counts.
    """
    wide = words.shape[1]
    theta, pull = np.zeros((1, wide), words.dtype), np.empty((1, wide), words.dtype)
    ratio = np.empty((1, buffer.shape[0]), words.dtype)
    log_theta = np.empty(k)
    collect = total.shape[0] > 0
    value, seen = 0.0, 0.0
    least = np.finfo(words.dtype).tiny * words.dtype.type(1e3)
    for d in range(first, last):
        a, b = indptr[d], indptr[d + 1]
        _gather(indices, words, a, b, buffer)
        gamma = gammas[d]
        _expect_log(gamma, k, log_theta)
        for c in range(k):
            theta[0, c] = math.exp(log_theta[c])
        for _ in range(steps):
            _pull(data, a, b, buffer, theta, pull, ratio, least)
            moved = 0.0
            for c in range(k):
                new = prior[c] + float(theta[0, c]) * float(pull[0, c])
                moved += abs(new - gamma[c])
                gamma[c] = new
            _expect_log(gamma, k, log_theta)
            for c in range(k):
                theta[0, c] = math.exp(log_theta[c])
            if moved < tol * k:
                break
        if not collect:
            continue
        v, n = _scatter(indices, data, a, b, buffer, theta, pull, ratio, total, least)
        size = 0.0
        for c in range(k):
            v += (prior[c] - gamma[c]) * log_theta[c] + math.lgamma(gamma[c])
            size += gamma[c]
            logs[c] += log_theta[c]
        value += v - math.lgamma(size)
        seen += n
    return value, seen
