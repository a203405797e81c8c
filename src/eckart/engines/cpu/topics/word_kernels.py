"""The words' side of topic models, as serial numba kernels over a range of words.

``count_entries``, ``place_entries``  the entries of documents sorted by word
``gather_words``   n_wz = phi_wz sum_d theta_dz c_dw / s_dw with s = theta . phi
``normal_words``   phi = (n + b) / sum over words, and sum b log phi
``expect_words``   exp(E log beta) under q(beta) = Dir(lambda), and the parts of its bound
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from eckart.compiling import OUTSIDE
from eckart.engines.cpu.registers.prefetch import prefetch

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


@njit(**OUTSIDE)
def expect_words(counts, totals, prior, first, last, words, shift, sums):
    """words = exp(E log beta - shift) with the largest of each word at 1; ``sums`` collects E log
    beta, prior . E log beta, and log Gamma(lambda) - lambda . E log beta, over the range.
    ``totals`` is psi of the sums over words."""
    k, many = len(totals), prior.shape[0] > 1
    logs = np.empty(k)
    for j in range(first, last):
        b = prior[j if many else 0]
        most = -np.inf
        for c in range(k):
            n = float(counts[j, c])
            logs[c] = digamma(n) - totals[c]
            most = max(most, logs[c])
            sums[0] += logs[c]
            sums[1] += b[c] * logs[c]
            sums[2] += math.lgamma(n) - n * logs[c]
        shift[j] = most
        for c in range(k):
            words[j, c] = math.exp(logs[c] - most)
