"""One row of skip-gram scores, compiled: its loss, the lowest loss, the loss without vectors, and
the two halves of the gradient by its scores.

A row has the counts ``seen`` of the words ``columns`` beside it, and a score ``s`` for every word,
in whose place the half that pushes down is left. ``total`` (loss, bound, start, pairs) grows by the
weight of the row times its own; ``pull`` by sum_v (the half that pulls up)_v right_v. See
``certify.pairs``.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from eckart.compiling import OUTSIDE


@njit(inline="always")
def _xlogx(x):
    return x * np.log(x) if x > 0.0 else 0.0


@njit(**OUTSIDE)
def negative_row(columns, seen, s, right, noise, negatives, weight, total, pull):
    """softplus(-s) for words beside, softplus(s) for noise."""
    pairs = 0.0
    for p in range(len(columns)):
        pairs += seen[p]
    loss, bound = 0.0, 0.0
    away = negatives * pairs
    for p in range(len(columns)):
        v, count = columns[p], np.float64(seen[p])
        score = np.float64(s[v])
        small = np.exp(-abs(score))
        loss += count * (np.log1p(small) + max(-score, 0.0))
        noisy = away * noise[v]
        bound += _xlogx(count + noisy) - _xlogx(count) - _xlogx(noisy)
        up = count * ((small if score >= 0.0 else 1.0) / (1.0 + small))
        for c in range(right.shape[1]):
            pull[c] += up * right[v, c]
    for v in range(len(s)):
        score = np.float64(s[v])
        small = np.exp(-abs(score))
        noisy = away * noise[v]
        loss += noisy * (np.log1p(small) + max(score, 0.0))
        s[v] = noisy * ((1.0 if score >= 0.0 else small) / (1.0 + small))
    # without vectors the best single score has sigma = 1 / (1 + r)
    start = pairs * (np.log1p(negatives) + negatives * np.log1p(1.0 / negatives))
    total[0] += weight * loss
    total[1] += weight * bound
    total[2] += weight * start
    total[3] += weight * pairs


@njit(**OUTSIDE)
def softmax_row(columns, seen, s, right, noise, negatives, weight, total, pull):
    """- log softmax(s) for words beside."""
    pairs, top, size = 0.0, -np.inf, 0.0
    for p in range(len(columns)):
        pairs += seen[p]
    for v in range(len(s)):
        top = max(top, np.float64(s[v]))
    for v in range(len(s)):
        size += np.exp(np.float64(s[v]) - top)
    norm = top + np.log(size)
    for p in range(len(columns)):
        v, count = columns[p], np.float64(seen[p])
        total[0] += weight * count * (norm - s[v])
        if count > 0.0:
            total[1] -= weight * count * np.log(count / pairs)
            total[2] -= weight * count * np.log(noise[v])
        for c in range(right.shape[1]):
            pull[c] += count * right[v, c]
    for v in range(len(s)):
        s[v] = pairs * np.exp(np.float64(s[v]) - norm)
    total[3] += weight * pairs
