"""Collapsed Gibbs sampling of topics, as serial numba kernels over a range of documents.

    p(z_i = z | all other topics)  proportional to  (n_dz + a_z) (n_wz + b_wz) / (n_z + b_z),      token i itself left out of the counts

``table`` (words x k, padded) holds n_wz + b_wz and ``sizes`` n_z + b_z, both the lane's own copy for a sweep (their changes are merged after it); n_dz lives
while its document is visited. ``topics`` holds one number a token, c_p consecutive ones for the entry p, from ``starts[p]`` on. Random numbers come from a
counter: token i of sweep t draws the same number wherever it runs.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from eckart.engines.cpu.registers.prefetch import prefetch

FAST = {"contract", "reassoc", "nsz"}
AHEAD = 8
BLOCK = 16


@njit(nogil=True, cache=True, inline="always")
def uniform(seed, counter):
    """A number in (0, 1) from a seed and a counter, by two rounds of multiply and shift."""
    x = np.uint64(seed) + np.uint64(counter) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return (float(x >> np.uint64(41)) + 0.5) * (1.0 / 8388608.0)


@njit(nogil=True, cache=True, fastmath=FAST)
def draw_rows(indptr, indices, starts, words, shares, seed, first, last, topics):
    """Topics of the tokens drawn from theta_dz phi_wz alone: where a chain begins."""
    k = words.shape[1]
    weight = np.empty(k, words.dtype)
    for d in range(first, last):
        for p in range(indptr[d], indptr[d + 1]):
            j = indices[p]
            whole = words[0, 0] - words[0, 0]
            for c in range(k):
                weight[c] = shares[d, c] * words[j, c]
                whole += weight[c]
            for i in range(starts[p], starts[p + 1]):
                rest = words.dtype.type(uniform(seed, i)) * whole
                z = 0
                while z < k - 1 and rest >= weight[z]:
                    rest -= weight[z]
                    z += 1
                while weight[z] <= 0 and z > 0:
                    z -= 1
                topics[i] = z


@njit(nogil=True, cache=True)
def tally_rows(indptr, indices, starts, topics, first, last, table, shares):
    """table_wz += n_wz and shares_dz = n_dz of a range of documents; one without rows is left alone."""
    for d in range(first, last):
        if shares.shape[0]:
            shares[d] = 0
        for p in range(indptr[d], indptr[d + 1]):
            for i in range(starts[p], starts[p + 1]):
                if table.shape[0]:
                    table[indices[p], topics[i]] += 1
                if shares.shape[0]:
                    shares[d, topics[i]] += 1


@njit(nogil=True, cache=True, fastmath=FAST)
def gibbs_rows(indptr, indices, starts, prior, seed, first, last, topics, table, sizes):
    """One sweep over documents first..last, all in place. Returns sum_i log p(w_i | all other tokens), in which only b and the counts enter."""
    k = table.shape[1]
    line = 64 // table.itemsize
    end = indices.shape[0] - 1
    here, weight = np.zeros(k, table.dtype), np.empty(k, table.dtype)
    inverse = np.empty(k, table.dtype)
    one = table.dtype.type(1.0)
    zero = one - one
    alpha = 0.0
    for c in range(k):
        inverse[c] = 1.0 / sizes[c] if sizes[c] > 0 else zero
        alpha += prior[c]
    value = 0.0
    for d in range(first, last):
        a, b = indptr[d], indptr[d + 1]
        if a == b:
            continue
        for c in range(k):
            here[c] = prior[c]
        for i in range(starts[a], starts[b]):
            here[topics[i]] += one
        length = starts[b] - starts[a]
        value -= length * math.log(max(length - 1 + alpha, 1e-30))
        product = 1.0
        for p in range(a, b):
            soon = indices[min(p + AHEAD, end)]
            for c in range(0, k, line):
                prefetch(table, soon, c)
            row = table[indices[p]]
            for i in range(starts[p], starts[p + 1]):
                old = np.int64(topics[i])
                whole = zero
                for c in range(k):
                    w = here[c] * row[c] * inverse[c]
                    weight[c] = w
                    whole += w
                # its own topic comes first: most tokens stay there, and nothing is written unless the topic changes
                own = (here[old] - one) * (row[old] - one) * table.dtype.type(1.0 / (sizes[old] - 1.0))
                whole += own - weight[old]
                weight[old] = zero
                rest = table.dtype.type(uniform(seed, i)) * whole - own
                new = old if rest < 0 else _find(weight, rest, old)
                product *= whole
                if product < 1e-200 or product > 1e200:
                    value += math.log(max(product, 1e-300))
                    product = 1.0
                if new != old:
                    topics[i] = new
                    here[old] -= one
                    here[new] += one
                    row[old] -= one
                    row[new] += one
                    sizes[old] -= 1.0
                    sizes[new] += 1.0
                    inverse[old] = 1.0 / sizes[old]
                    inverse[new] = 1.0 / sizes[new]
        value += math.log(max(product, 1e-300))
    return value


@njit(nogil=True, cache=True, fastmath=FAST, inline="always")
def _find(weight, rest, old):
    """The first z at which the running sum of weights passes ``rest``, found by blocks; ``old`` where all weights are 0."""
    z, last = 0, len(weight) - BLOCK
    while z < last:
        part = weight[0] - weight[0]
        for c in range(BLOCK):
            part += weight[z + c]
        if rest < part:
            break
        rest -= part
        z += BLOCK
    end = z + BLOCK - 1
    while z < end and rest >= weight[z]:
        rest -= weight[z]
        z += 1
    while weight[z] <= 0 and z > 0:
        z -= 1
    return z if weight[z] > 0 else old


@njit(nogil=True, cache=True)
def merge_rows(lanes, table, prior, first, last, mean):
    """n + b of words first..last after a sweep, n = n_before + sum over lanes of what changed, into ``table`` and every lane; n is added to ``mean``."""
    for j in range(first, last):
        for c in range(table.shape[1]):
            before = table[j, c]
            change = before - before
            for s in range(lanes.shape[0]):
                change += lanes[s, j, c] - before
            n = np.rint(before - prior[j, c]) + np.rint(change)
            if mean.shape[0]:
                mean[j, c] += n
            table[j, c] = n + prior[j, c]
            for s in range(lanes.shape[0]):
                lanes[s, j, c] = n + prior[j, c]
