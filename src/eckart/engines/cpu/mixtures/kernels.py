"""The E step of Gaussian mixtures on a block of rows: log densities, shares, and sums about the present means, chunk by chunk in cache.

A chunk of rows is turned over into xt (columns x rows), so that the rows are the lanes of vector registers. For every component

    diagonal    log density = c_z - sum_j (a_zj x_j - b_zj)^2, a = sqrt(1 / (2 variance)), b = a m: four components for 2 B rows, in registers
    triangular  log density = c_z - 1/2 ||(x - m_z) C_z||^2 with C_z upper triangular: B columns of C_z at a time for 2 B rows, in registers (``add_squares``)

Differences are taken before anything is squared (x is counted from an origin amid the data), so little cancels, whatever the condition of the
covariance. Shares below e^-46 are exactly zero and cost nothing more: the sums of w q (x - m) and w q (x - m)(x - m)^T run over the other rows only.

Arrays over columns are padded to p, whole tiles of B; ``panels`` holds the roots C_z as ``pack_panels`` lays them out.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from eckart.engines.cpu.registers.mixtures import TILE, add_squares, scaled_squares, take_moments
from eckart.engines.cpu.registers.tiles import add_gram, add_rows

CHUNK = 256
BEYOND = -46.0
FAST = {"contract", "reassoc", "nsz"}
MAGIC = 1.5 * 2.0**52
LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10


def chunk_rows(n: int) -> int:
    """Rows in a chunk: xt stays in the second cache; an odd number of pairs of vectors, so that the rows of xt do not compete for the same cache lines."""
    return 16 * (int(np.clip(2**17 // max(n, 1) // 16, 1, CHUNK // 16)) - 1 | 1)


@njit(nogil=True, cache=True)
def centre(x, a, count, origin, xc):
    """xc[:count] = rows a.. of x less the origin."""
    for i in range(count):
        for j in range(x.shape[1]):
            xc[i, j] = x[a + i, j] - origin[j]


@njit(nogil=True, cache=True)
def turn(xc, count, n, xt):
    """xt = the first n columns of xc turned over; the rest of the chunk repeats its first row."""
    for i0 in range(0, count, 16):
        last = min(i0 + 16, count)
        for j in range(n):
            for i in range(i0, last):
                xt[j, i] = xc[i, j]
    for j in range(n):
        for i in range(count, xt.shape[1]):
            xt[j, i] = xt[j, 0]


@njit(nogil=True, cache=True)
def diagonal_chunk(xt, n, scales, offsets, constants, logp):
    """logp[z, i] = c_z - sum_j (a_zj xt_ji - b_zj)^2; scales, offsets and logp have rows for whole fours of components."""
    for z in range(0, len(constants), 4):
        for i in range(0, xt.shape[1], 2 * TILE):
            scaled_squares(xt, i, n, scales, offsets, z, logp)
    for z in range(len(constants)):
        for i in range(xt.shape[1]):
            logp[z, i] = constants[z] - min(logp[z, i], 1e300)


@njit(nogil=True, cache=True)
def triangular_chunk(xt, n, means, panels, constants, logp):
    """logp[z, i] = c_z - 1/2 ||(x_i - m_z) C_z||^2."""
    rows, p = xt.shape[1], means.shape[1]
    for z in range(len(constants)):
        out = logp[z]
        for i in range(rows):
            out[i] = 0.0
        for b in range(p // TILE):
            first, count = (z * (p // TILE) + b) * p, min((b + 1) * TILE, n)
            for i in range(0, rows, 2 * TILE):
                add_squares(xt, i, means, z, panels, first, count, logp)
        for i in range(rows):
            out[i] = constants[z] - 0.5 * min(out[i], 1e300)


@njit(nogil=True, cache=True, fastmath={"contract"})
def exp_below(a, top, powers, parts, bits, power_bits):
    """a[i] = exp(a[i] - top[i]), zero below e^-46: 2^q times a polynomial, q taken from the last bits of a rounded sum.

    ``bits`` and ``power_bits`` are integer views of ``parts`` and ``powers``.
    """
    for i in range(len(a)):
        v = max(a[i] - top[i], -50.0)
        t = v * 1.4426950408889634 + MAGIC
        q = t - MAGIC
        r = (v - q * LN2_HIGH) - q * LN2_LOW
        e = 1.6059043836821613e-10
        e = e * r + 2.08767569878681e-09
        e = e * r + 2.505210838544172e-08
        e = e * r + 2.755731922398589e-07
        e = e * r + 2.7557319223985893e-06
        e = e * r + 2.48015873015873e-05
        e = e * r + 1.984126984126984e-04
        e = e * r + 1.388888888888889e-03
        e = e * r + 8.333333333333333e-03
        e = e * r + 4.1666666666666664e-02
        e = e * r + 1.6666666666666666e-01
        e = e * r + 0.5
        powers[i] = t
        parts[i] = (e * r) * r + r + 1.0
    for i in range(len(a)):
        bits[i] += power_bits[i] << 52
    for i in range(len(a)):
        a[i] = parts[i] if a[i] - top[i] >= BEYOND else 0.0


@njit(nogil=True, cache=True, fastmath=FAST)
def share_chunk(logp, k, count, weights, counts, spare):
    """logp becomes w q, its sums go to ``counts``; returns sum w log p of the chunk. ``spare`` is 4 x rows of working space."""
    top, total, powers, parts = spare[0], spare[1], spare[2], spare[3]
    bits, power_bits = parts.view(np.int64), powers.view(np.int64)
    rows = len(top)
    for i in range(rows):
        top[i] = logp[0, i]
        total[i] = 0.0
    for z in range(1, k):
        for i in range(rows):
            top[i] = max(top[i], logp[z, i])
    for z in range(k):
        exp_below(logp[z], top, powers, parts, bits, power_bits)
        for i in range(rows):
            total[i] += logp[z, i]
    bound = 0.0
    for i in range(count):
        w = weights[i] if len(weights) else 1.0
        if w > 0:
            bound += w * (top[i] + np.log(total[i]))
        total[i] = w / total[i]
    for i in range(count, rows):
        total[i] = 0.0
    for z in range(k):
        mass = 0.0
        for i in range(rows):
            logp[z, i] *= total[i]
            mass += logp[z, i]
        counts[z] += mass
    logp[k:] = 0.0
    return bound


@njit(nogil=True, cache=True, fastmath=FAST)
def add_diagonal(xc, count, n, k, shares, centres, near, shift, square, rows, parts, one, two):
    """shift[z] += sum_i s_i (x - m), square[z] += sum_i s_i (x - m)^2.

    Where most rows have a share, four components at once by moments about the origin, if these are ``near`` enough to it for that to be exact; else
    over the rows with a share only, four at a time.
    """
    for first in range(0, k, 4):
        last = min(first + 4, k)
        used, all_near = 0, True
        for z in range(first, last):
            all_near = all_near and near[z]
            for i in range(count):
                used += shares[z, i] > 0.0
        if all_near and 4 * used > (last - first) * count:
            for j in range(0, xc.shape[1], TILE):
                take_moments(xc, count, j, shares, first, one, two)
            for z in range(first, last):
                mass = 0.0
                for i in range(count):
                    mass += shares[z, i]
                a, b, c = one[z - first], two[z - first], centres[z]
                for j in range(n):
                    shift[z, j] += a[j] - mass * c[j]
                    square[z, j] += b[j] - 2.0 * c[j] * a[j] + mass * c[j] * c[j]
        elif used > 0:
            for z in range(first, last):
                add_some(xc, count, n, shares[z], centres[z], shift[z], square[z], rows, parts)


@njit(nogil=True, cache=True, fastmath=FAST)
def add_some(x, count, n, shares, m, one, two, rows, parts):
    """The sums of one component over its rows with a share."""
    used = 0
    for i in range(count):
        if shares[i] > 0.0:
            rows[used], parts[used] = i, shares[i]
            used += 1
    for t in range(used, -(-used // 4) * 4):
        rows[t], parts[t] = rows[0], 0.0
    for t in range(0, used, 4):
        x0, x1, x2, x3 = x[rows[t]], x[rows[t + 1]], x[rows[t + 2]], x[rows[t + 3]]
        s0, s1, s2, s3 = parts[t], parts[t + 1], parts[t + 2], parts[t + 3]
        for j in range(n):
            d0, d1, d2, d3 = x0[j] - m[j], x1[j] - m[j], x2[j] - m[j], x3[j] - m[j]
            t0, t1, t2, t3 = s0 * d0, s1 * d1, s2 * d2, s3 * d3
            one[j] += (t0 + t1) + (t2 + t3)
            two[j] += (t0 * d0 + t1 * d1) + (t2 * d2 + t3 * d3)


@njit(nogil=True, cache=True)
def add_full(xc, count, n, k, shares, centres, shift, scatter, packed, roots):
    """scatter[z] += sum_i s_i (x - m)(x - m)^T over rows with a share, upper tiles; one scatter for all where there is one only."""
    for z in range(k):
        used = 0
        for i in range(count):
            if shares[z, i] > 0.0:
                root = np.sqrt(shares[z, i])
                for j in range(n):
                    packed[used, j] = root * (xc[i, j] - centres[z, j])
                roots[0, used] = root
                used += 1
        if used > 0:
            add_upper(packed, used, scatter[z % len(scatter)])
            add_rows(packed, roots, used, shift[z : z + 1])


@njit(nogil=True, cache=True)
def add_upper(packed, used, target):
    """target += packed^T packed, upper tiles."""
    for r in range(0, packed.shape[1], TILE):
        for c in range(r, packed.shape[1], TILE):
            add_gram(packed, used, r, c, target)


@njit(nogil=True, cache=True, fastmath=FAST)
def add_tied(xc, count, n, k, shares, weights, centres, shift, scatter, packed, one, two):
    """The same sums for one covariance near the origin: sum_z s (x - m)(x - m)^T = w x x^T - sum_z [m o^T + o m^T - mass m m^T] with o = sum_i s x."""
    for i in range(count):
        root = np.sqrt(weights[i]) if len(weights) else 1.0
        for j in range(n):
            packed[i, j] = root * xc[i, j]
    target = scatter[0]
    add_upper(packed, count, target)
    for first in range(0, k, 4):
        for j in range(0, xc.shape[1], TILE):
            take_moments(xc, count, j, shares, first, one, two)
        for z in range(first, min(first + 4, k)):
            mass = 0.0
            for i in range(count):
                mass += shares[z, i]
            o, c = one[z - first], centres[z]
            for r in range(n):
                shift[z, r] += o[r] - mass * c[r]
                left = mass * c[r] - o[r]
                for j in range(r, n):
                    target[r, j] += left * c[j] - c[r] * o[j]


@njit(nogil=True, cache=True)
def diagonal_statistics(
    x,
    weights,
    origin,
    centres,
    near,
    scales,
    offsets,
    constants,
    xc,
    xt,
    logp,
    spare,
    rows,
    pair,
    counts,
    shift,
    square,
):
    """Adds the rows of x to counts, shift and square; returns the bound. ``centres`` are the means less the origin."""
    n = x.shape[1]
    k, size, bound = len(constants), xt.shape[1], 0.0
    for a in range(0, len(x), size):
        count = min(size, len(x) - a)
        centre(x, a, count, origin, xc)
        turn(xc, count, n, xt)
        diagonal_chunk(xt, n, scales, offsets, constants, logp)
        bound += share_chunk(logp, k, count, weights[a : a + count], counts, spare)
        add_diagonal(xc, count, n, k, logp, centres, near, shift, square, rows, spare[0], pair[0], pair[1])
    return bound


@njit(nogil=True, cache=True)
def full_statistics(
    x, weights, origin, centres, panels, constants, xc, xt, logp, spare, packed, counts, shift, scatter
):
    """Adds the rows of x to counts, shift and scatter; returns the bound."""
    n = x.shape[1]
    k, size, bound = len(constants), xt.shape[1], 0.0
    for a in range(0, len(x), size):
        count = min(size, len(x) - a)
        centre(x, a, count, origin, xc)
        turn(xc, count, n, xt)
        triangular_chunk(xt, n, centres, panels, constants, logp)
        bound += share_chunk(logp, k, count, weights[a : a + count], counts, spare)
        add_full(xc, count, n, k, logp, centres, shift, scatter, packed, spare[:1])
    return bound


@njit(nogil=True, cache=True)
def tied_statistics(
    x,
    white,
    weights,
    origin,
    centres,
    near,
    scales,
    offsets,
    constants,
    xc,
    xt,
    logp,
    spare,
    packed,
    pair,
    counts,
    shift,
    scatter,
):
    """The same with one covariance for all; ``white`` holds the rows (and ``offsets`` the means) less the origin, times its root."""
    n = x.shape[1]
    k, size, bound = len(constants), xt.shape[1], 0.0
    for a in range(0, len(x), size):
        count = min(size, len(x) - a)
        turn(white[a : a + count], count, n, xt)
        diagonal_chunk(xt, n, scales, offsets, constants, logp)
        bound += share_chunk(logp, k, count, weights[a : a + count], counts, spare)
        centre(x, a, count, origin, xc)
        if near:
            w = weights[a : a + count]
            add_tied(xc, count, n, k, logp, w, centres, shift, scatter, packed, pair[0], pair[1])
        else:
            add_full(xc, count, n, k, logp, centres, shift, scatter, packed, spare[:1])
    return bound


@njit(nogil=True, cache=True)
def diagonal_log_probs(x, origin, scales, offsets, constants, xc, xt, logp, out):
    """out[i, z] = log weight_z + log density, for each row."""
    size, n = xt.shape[1], x.shape[1]
    for a in range(0, len(x), size):
        count = min(size, len(x) - a)
        centre(x, a, count, origin, xc)
        turn(xc, count, n, xt)
        diagonal_chunk(xt, n, scales, offsets, constants, logp)
        for i in range(count):
            for z in range(len(constants)):
                out[a + i, z] = logp[z, i]


@njit(nogil=True, cache=True)
def triangular_log_probs(x, origin, centres, panels, constants, xc, xt, logp, out):
    """The same with full covariances."""
    size, n = xt.shape[1], x.shape[1]
    for a in range(0, len(x), size):
        count = min(size, len(x) - a)
        centre(x, a, count, origin, xc)
        turn(xc, count, n, xt)
        triangular_chunk(xt, n, centres, panels, constants, logp)
        for i in range(count):
            for z in range(len(constants)):
                out[a + i, z] = logp[z, i]
