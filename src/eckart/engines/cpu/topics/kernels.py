"""The words' side of topic models, as serial numba kernels over a range of words.

``count_entries``, ``place_entries``  the entries of documents sorted by word
``gather_words``   n_wz = phi_wz sum_d theta_dz c_dw / s_dw with s = theta . phi
``normal_words``   phi = (n + b) / sum over words, and sum b log phi

Sweeps over the counts of documents for topic models, as serial numba kernels over a range of
rows.

    s_p = sum_z theta_dz phi_wz          r_p = c_p / s_p          gamma_pz = r_p theta_dz phi_wz

for the entry p = (d, w) with count c_p. A row gathers its words' phi once into ``buffer`` (entries
of the longest row, rounded up to 4, x k), where its steps find them in cache. Nothing of the size
non-zeros x k is kept: a sweep leaves theta, from which ``word_kernels`` adds up the words' counts.
Rows of ``words`` and ``shares`` start on cache lines and are padded with zeros to whole vectors.

``map_rows``    theta_dz <- (sum_p gamma_pz + a_z) / sum at fixed topics, with the evidence of a
sweep: EM of pLSA (a = 0), of KL-NMF, LDA in its MAP form
``bayes_rows``  gamma_dz <- a_z + sum_p gamma_pz with theta_dz = exp(psi(gamma_dz) - psi(sum
gamma_d)): variational LDA
``score_rows``  sum_p c_p log s_p
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from eckart.compiling import INSIDE, OUTSIDE
from eckart.engines.cpu.registers.tiles import add_rows, row_dots
from eckart.engines.cpu.registers.windows import prefetch

FAST = {"contract", "reassoc", "nsz"}
AHEAD = (
    # entries between a prefetch and its use: a gather from beyond the second cache takes as long as
    # about ten rows
    12
)


@njit(**OUTSIDE)
def count_entries(indptr, indices, first, last, counts):
    """counts_w += entries of word w in documents first..last."""
    for p in range(indptr[first], indptr[last]):
        counts[indices[p]] += 1


@njit(**OUTSIDE)
def place_entries(rows, first, last, places, documents, values):
    """Write each entry of documents first..last where its word's next one goes."""
    for d in range(first, last):
        for p in range(rows.indptr[d], rows.indptr[d + 1]):
            j = rows.indices[p]
            at = places[j]
            places[j] = at + 1
            documents[at] = d
            values[at] = rows.data[p]


@njit(**OUTSIDE, fastmath=FAST)
def gather_words(columns, theta, words, first, last, counts, sizes):
    """n_wz of words first..last into ``counts``; their sums over words are added to ``sizes``. Four
    entries at a time, so that sums are stored less often.

    The ratios c / s are found again: a dot product with a row that has to be read anyway costs less
    than reading a number from a random place.
    """
    k = words.shape[1]
    line = 64 // theta.itemsize
    whole = np.empty(k, theta.dtype)
    documents, values = columns.documents, columns.values
    end = documents.shape[0] - 1
    least = np.finfo(words.dtype).tiny * words.dtype.type(1e3)
    zero = words.dtype.type(0)
    for j in range(first, last):
        a, b = columns.ends[j], columns.ends[j + 1]
        phi = words[j]
        for c in range(k):
            whole[c] = zero
        q = a
        while q < b:
            for i in range(q, min(q + 4, b)):
                soon = documents[min(i + AHEAD, end)]
                for c in range(0, k, line):
                    prefetch(theta, soon, c)
            t0 = theta[documents[q]]
            if q + 4 <= b:
                t1, t2, t3 = (
                    theta[documents[q + 1]],
                    theta[documents[q + 2]],
                    theta[documents[q + 3]],
                )
                s0, s1, s2, s3 = zero, zero, zero, zero
                for c in range(k):
                    s0 += t0[c] * phi[c]
                    s1 += t1[c] * phi[c]
                    s2 += t2[c] * phi[c]
                    s3 += t3[c] * phi[c]
                r0 = values[q] / s0 if s0 > least else zero
                r1 = values[q + 1] / s1 if s1 > least else zero
                r2 = values[q + 2] / s2 if s2 > least else zero
                r3 = values[q + 3] / s3 if s3 > least else zero
                for c in range(k):
                    whole[c] += (r0 * t0[c] + r1 * t1[c]) + (r2 * t2[c] + r3 * t3[c])
                q += 4
            else:
                s0 = zero
                for c in range(k):
                    s0 += t0[c] * phi[c]
                r0 = values[q] / s0 if s0 > least else zero
                for c in range(k):
                    whole[c] += r0 * t0[c]
                q += 1
        for c in range(k):
            n = whole[c] * phi[c]
            counts[j, c] = n
            sizes[c] += n


@njit(**OUTSIDE)
def normal_words(counts, prior, scale, lift, k, first, last, words):
    """words = (counts + prior) scale + lift, all padded; ``prior`` has a row for each word, or one
    for all. Returns sum prior log words over the range, by the logarithms of products that are
    about to leave the range of numbers where the prior is the same for all."""
    many = prior.shape[0] > 1
    value, product = 0.0, 1.0
    for j in range(first, last):
        b = prior[j if many else 0]
        for c in range(words.shape[1]):
            words[j, c] = (counts[j, c] + b[c]) * scale[c] + lift[c]
        if many:
            for c in range(k):
                if b[c] > 0:
                    value += b[c] * math.log(max(float(words[j, c]), 1e-45))
        elif b[0] > 0:
            for c in range(k):
                product *= max(float(words[j, c]), 1e-45)
                if product < 1e-250:
                    value += b[0] * math.log(product)
                    product = 1.0
    return value + (prior[0, 0] * math.log(product) if not many else 0.0)


@njit(**OUTSIDE, fastmath=False)
def digamma(x):
    """psi(x) for x > 0: the recurrence up to 6, then the asymptotic series (error below 1e-11)."""
    y = 0.0
    while x < 6.0:
        y -= 1.0 / x
        x += 1.0
    f = 1.0 / (x * x)
    tail = f * (
        1 / 12 - f * (1 / 120 - f * (1 / 252 - f * (1 / 240 - f * (1 / 132 - f * 691 / 32760))))
    )
    return y + math.log(x) - 0.5 / x - tail


@njit(**INSIDE, fastmath=FAST)
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


@njit(**INSIDE, fastmath=FAST)
def _pull(data, a, b, buffer, theta, pull, ratio, least):
    """r_p of the row (0 for entries that no topic holds) and pull_z = sum_p r_p phi_wz, so that
    theta pull is the row's counts by topic."""
    row_dots(buffer, b - a, theta, ratio)
    for p in range(b - a):
        s = ratio[0, p]
        ratio[0, p] = data[a + p] / s if s > least else least - least
    for c in range(pull.shape[1]):
        pull[0, c] = 0
    add_rows(buffer, ratio, b - a, pull)


@njit(**INSIDE, fastmath=FAST)
def _value(data, a, b, ratio):
    """sum c_p log s_p of the row and the count it is over; single tokens, the most, by the
    logarithm of their product."""
    value, seen, product = 0.0, 0.0, 1.0
    for p in range(a, b):
        r = ratio[0, p - a]
        if r > 0:
            seen += data[p]
            if data[p] == 1:
                product *= r
                if product > 1e200 or product < 1e-200:
                    value -= math.log(product)
                    product = 1.0
            else:
                value += data[p] * math.log(data[p] / r)
    return value - math.log(product), seen


@njit(**INSIDE, fastmath=FAST)
def _share(theta, pull, prior):
    """theta <- (theta pull + prior) / sum, in place; where that is 0 it stays. Returns how far it
    moved, sum |change|."""
    k = len(theta)
    size = pull[0] - pull[0]
    # sums have loops of their own: one that writes, too, is taken by vectors or one by one as its
    # arrays happen to lie, and its sum rounded as that goes
    for c in range(k):
        pull[c] = theta[c] * pull[c] + prior[c]
    for c in range(k):
        size += pull[c]
    if not size > 0:
        return 0.0
    moved = size - size
    scale = 1 / size
    for c in range(k):
        moved += abs(pull[c] * scale - theta[c])
    for c in range(k):
        theta[c] = pull[c] * scale
    return float(moved)


@njit(**INSIDE, fastmath=FAST)
def _settle(rows, words, prior, theta, d, steps, tol, pull, ratio, buffer):
    """The row's words into ``buffer``, then at most ``steps`` updates of theta, fewer where it
    moves by less than ``tol`` in all."""
    a, b = rows.indptr[d], rows.indptr[d + 1]
    least = np.finfo(words.dtype).tiny * words.dtype.type(1e3)
    _gather(rows.indices, words, a, b, buffer)
    for _ in range(steps):
        _pull(rows.data, a, b, buffer, theta, pull, ratio, least)
        if _share(theta[0], pull[0], prior) < tol:
            break


@njit(**OUTSIDE, fastmath=FAST)
def map_rows(rows, words, prior, before, after, first, last, steps, tol, buffer):
    """``steps`` updates of each row's shares from ``before``, which is left at the shares before
    the last of them, while ``after`` gets those after it.

    Returns the log-likelihood and prior . log theta at ``before``, and the counts it is over.
    Without rows in ``after``, ``before`` gets the last shares and nothing is counted: folding in, by
    the same code so that it is compiled once.
    """
    k = words.shape[1]
    theta, pull = np.empty((1, k), words.dtype), np.empty((1, k), words.dtype)
    ratio = np.empty((1, buffer.shape[0]), words.dtype)
    least = np.finfo(words.dtype).tiny * words.dtype.type(1e3)
    value, penalty, seen = 0.0, 0.0, 0.0
    wants_after = after.shape[0] > 0
    for d in range(first, last):
        a, b = rows.indptr[d], rows.indptr[d + 1]
        for c in range(k):
            theta[0, c] = before[d, c]
        _settle(
            rows,
            words,
            prior,
            theta,
            d,
            steps - 1 if wants_after else steps,
            tol,
            pull,
            ratio,
            buffer,
        )
        for c in range(k):
            before[d, c] = theta[0, c]
        if not wants_after:
            continue
        _pull(rows.data, a, b, buffer, theta, pull, ratio, least)
        v, n = _value(rows.data, a, b, ratio)
        value += v
        seen += n
        penalty += _log_prior(theta[0], prior)
        _share(theta[0], pull[0], prior)
        for c in range(k):
            after[d, c] = theta[0, c]
    return value, penalty, seen


@njit(**INSIDE)
def _log_prior(theta, prior):
    """sum_z a_z log theta_z over a_z > 0."""
    value = 0.0
    for c in range(len(theta)):
        if prior[c] > 0:
            value += prior[c] * math.log(max(theta[c], 1e-37))
    return value


@njit(**OUTSIDE, fastmath=FAST)
def score_rows(rows, words, shares, first, last, floor):
    """sum_p c_p log max(s_p, floor) and sum_p c_p."""
    k = words.shape[1]
    value, seen = 0.0, 0.0
    for d in range(first, last):
        for p in range(rows.indptr[d], rows.indptr[d + 1]):
            s = floor - floor
            j = rows.indices[p]
            for c in range(k):
                s += shares[d, c] * words[j, c]
            value += rows.data[p] * math.log(max(s, floor))
            seen += rows.data[p]
    return value, seen


@njit(**INSIDE)
def _expect_log(gamma, log_theta, theta):
    """log_theta_z = psi(gamma_z) - psi(sum gamma), and theta its exponential."""
    k = len(log_theta)
    size = 0.0
    for c in range(k):
        size += gamma[c]
    whole = digamma(size)
    for c in range(k):
        log_theta[c] = digamma(gamma[c]) - whole
        theta[0, c] = math.exp(log_theta[c])
    return size


@njit(**OUTSIDE)
def bayes_rows(rows, words, prior, gammas, thetas, first, last, steps, tol, logs, buffer):
    """Variational steps of each row from its gamma (in place) at words = exp(E log beta); leaves
    theta = exp(E log theta) for the words' counts.

    Adds E log theta to ``logs`` (k). Returns the log-likelihood, the rest of the rows' part of the
    bound less the terms in alpha alone, and the counts.
    """
    wide, k = words.shape[1], len(prior)
    theta, pull = np.zeros((1, wide), words.dtype), np.empty((1, wide), words.dtype)
    ratio = np.empty((1, buffer.shape[0]), words.dtype)
    log_theta = np.empty(k)
    value, penalty, seen = 0.0, 0.0, 0.0
    least = np.finfo(words.dtype).tiny * words.dtype.type(1e3)
    for d in range(first, last):
        a, b = rows.indptr[d], rows.indptr[d + 1]
        _gather(rows.indices, words, a, b, buffer)
        gamma = gammas[d]
        size = _expect_log(gamma, log_theta, theta)
        for _ in range(steps):
            _pull(rows.data, a, b, buffer, theta, pull, ratio, least)
            moved = 0.0
            for c in range(k):
                new = prior[c] + float(theta[0, c]) * float(pull[0, c])
                moved += abs(new - gamma[c])
                gamma[c] = new
            size = _expect_log(gamma, log_theta, theta)
            if moved < tol * k:
                break
        _pull(rows.data, a, b, buffer, theta, pull, ratio, least)
        v, n = _value(rows.data, a, b, ratio)
        value += v
        seen += n
        penalty -= math.lgamma(size)
        for c in range(wide):
            thetas[d, c] = theta[0, c]
        for c in range(k):
            penalty += (prior[c] - gamma[c]) * log_theta[c] + math.lgamma(gamma[c])
            logs[c] += log_theta[c]
    return value, penalty, seen
