"""One row of skip-gram scores, compiled: its loss, the lowest loss, the loss without vectors, and
the two halves of the gradient by its scores.

A row has the counts ``seen`` of the words ``columns`` beside it, and a score ``s`` for every word,
in whose place the half that pushes down is left. ``total`` (loss, bound, start, pairs) grows by the
weight of the row times its own; ``pull`` by sum_v (the half that pulls up)_v right_v. See
``certify.pairs``.

GloVe by AdaGrad, compiled: the entries of one block of the matrix, one step for each.

Entry (i, j) with target y = log N and weight f has the residual d = <u_i, v_j> + b_i + c_j - y. A
step in the manner of GloVe's own tool: with g = lr f d v_j for u_i (its twin lr f d u_i for v_j, lr
f d for the biases), cut off at -1 and 1,

    u_i -= g H_i,   then  G_i += g^2,  H_i = 1 / sqrt(G_i),      G = 1 at the start.

H follows G by one Newton step, H (3 - G H^2) / 2, instead of a root and a division. Each row of
``own`` and ``other`` holds [u, b, G, H] with k + 1 numbers for each of (u, b), G and H. Blocks that
share no row and no column may run at the same time.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from eckart.compiling import OUTSIDE
from eckart.engines.cpu.registers.windows import prefetch, prefetch_to_write


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


FAST = {"contract", "reassoc", "nsz"}
AHEAD = 4


@njit(**OUTSIDE)
def count_blocks(indptr, indices, strata, sizes):
    """How many entries each block has; block (a, b) holds the rows i = a and columns j = b modulo
    ``strata``, and is number a strata + b."""
    for i in range(indptr.shape[0] - 1):
        a = (i % strata) * strata
        for p in range(indptr[i], indptr[i + 1]):
            sizes[a + indices[p] % strata] += 1


@njit(**OUTSIDE)
def deal(indptr, indices, targets, weights, strata, at, entries):
    """Entries by blocks; ``at`` is where each block begins, and is moved to its end."""
    rows, columns, ys, fs = entries
    for i in range(indptr.shape[0] - 1):
        a = (i % strata) * strata
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            t = at[a + j % strata]
            at[a + j % strata] = t + 1
            rows[t], columns[t], ys[t], fs[t] = i, j, targets[p], weights[p]


@njit(**OUTSIDE)
def shuffle(seed, first, last, entries):
    """A random order of the entries first..last (Fisher and Yates, xorshift64*)."""
    rows, columns, ys, fs = entries
    state = np.uint64(seed) | np.uint64(1)
    for t in range(last - 1, first, -1):
        state ^= state >> np.uint64(12)
        state ^= state << np.uint64(25)
        state ^= state >> np.uint64(27)
        drawn = (state * np.uint64(2685821657736338717)) >> np.uint64(11)
        s = first + np.int64(np.float64(drawn) / 9007199254740992.0 * (t - first + 1))
        rows[t], rows[s] = rows[s], rows[t]
        columns[t], columns[s] = columns[s], columns[t]
        ys[t], ys[s] = ys[s], ys[t]
        fs[t], fs[s] = fs[s], fs[t]


@njit(**OUTSIDE, fastmath=FAST)
def glove_losses(entries, first, last, k, own, other):
    """The sum of f d^2 over the entries first..last."""
    rows, columns, ys, fs = entries
    line = 64 // own.itemsize
    loss = 0.0
    for t in range(first, last):
        soon = min(t + AHEAD, last - 1)
        for c in range(0, k + 1, line):
            prefetch(own, np.int64(rows[soon]), c)
            prefetch(other, np.int64(columns[soon]), c)
        i, j = rows[t], columns[t]
        d = own[i, k] + other[j, k] - ys[t]
        for c in range(k):
            d += own[i, c] * other[j, c]
        loss += np.float64(fs[t]) * d * d
    return loss


@njit(**OUTSIDE, fastmath=FAST)
def glove_steps(entries, first, last, lr, k, own, other):
    """One step for each of the entries first..last."""
    rows, columns, ys, fs = entries
    width = k + 1
    line = 64 // own.itemsize
    most, half, three = own.dtype.type(1), own.dtype.type(0.5), own.dtype.type(1.5)
    old, new = np.empty(width, own.dtype), np.empty(width, own.dtype)
    old[k] = new[k] = most
    for t in range(first, last):
        soon = min(t + AHEAD, last - 1)
        for c in range(0, 3 * width, line):
            prefetch_to_write(own, np.int64(rows[soon]), c)
            prefetch_to_write(other, np.int64(columns[soon]), c)
        i, j = rows[t], columns[t]
        d = own[i, k] + other[j, k] - ys[t]
        for c in range(k):
            old[c] = own[i, c]
            new[c] = other[j, c]
            d += old[c] * new[c]
        step = lr * fs[t] * d
        for c in range(width):
            g = min(max(step * new[c], -most), most)
            h = own[i, 2 * width + c]
            own[i, c] -= g * h
            square = own[i, width + c] + g * g
            own[i, width + c] = square
            own[i, 2 * width + c] = h * (three - half * square * h * h)
        for c in range(width):
            g = min(max(step * old[c], -most), most)
            h = other[j, 2 * width + c]
            other[j, c] -= g * h
            square = other[j, width + c] + g * g
            other[j, width + c] = square
            other[j, 2 * width + c] = h * (three - half * square * h * h)
