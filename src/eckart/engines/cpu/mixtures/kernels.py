"""The E step of Gaussian mixtures on a block of rows: log densities, shares, and sums about the
present means, chunk by chunk in cache.

A chunk of rows is turned over into xt (columns x rows), so that the rows are the lanes of vector
registers. For every component

    diagonal    log density = c_z - sum_j (a_zj x_j - b_zj)^2, a = sqrt(1 / (2 variance)), b = a m:
    four components for 2 B rows, in registers
    triangular  log density = c_z - 1/2 ||(x - m_z) C_z||^2 with C_z upper triangular: B columns of
    C_z at a time for 2 B rows, in registers (``add_squares``)

Differences are taken before anything is squared (x is counted from an origin amid the data), so
little cancels, whatever the condition of the covariance. Shares below e^-46 are exactly zero and
cost nothing more: the sums of w q (x - m) and w q (x - m)(x - m)^T run over the other rows only.

Arrays over columns are padded to p, whole tiles of B; ``panels`` holds the roots C_z as
``pack_panels`` lays them out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from eckart.compiling import INSIDE, OUTSIDE
from eckart.engines.cpu.registers.mixtures import TILE, add_squares, scaled_squares, take_moments
from eckart.engines.cpu.registers.tiles import add_rows, grow_gram

DIAGONAL, TIED, FULL = 0, 1, 2
"""Which density and which sums: of diagonal components, of one covariance for all, of one each."""
CHUNK = 256
"""Rows in a chunk at the most: what one chunk works on stays in the second cache."""
BEYOND = -46.0
"""Logarithm of a share, beside the largest of its row, below which it is lost in the rounding of a
sum of float64."""
FAST = {"contract", "reassoc", "nsz"}
MAGIC = 1.5 * 2.0**52
LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10


class KernelComponents(NamedTuple):
    """The components as the kernels want them; ``centres`` are the means less the origin, constants
    c_z, scales a_z, offsets b_z."""

    origin: np.ndarray
    centres: np.ndarray
    constants: np.ndarray
    scales: np.ndarray
    offsets: np.ndarray
    panels: np.ndarray
    near: np.ndarray


class Room(NamedTuple):
    """Working space of a thread for one chunk."""

    xc: np.ndarray
    xt: np.ndarray
    logp: np.ndarray
    spare: np.ndarray
    rows: np.ndarray
    packed: np.ndarray
    pair: np.ndarray


class Targets(NamedTuple):
    """What rows are added to: sums of shares (k), of s (x - m) (k x p) and of their squares, k x 1
    x p for diagonal components, else k (or 1) x p x p."""

    counts: np.ndarray
    shift: np.ndarray
    scatter: np.ndarray


def chunk_rows(n: int) -> int:
    """Rows in a chunk: xt stays in the second cache; an odd number of pairs of vectors, so that the
    rows of xt do not compete for the same cache lines."""
    return 16 * (int(np.clip(2**17 // max(n, 1) // 16, 1, CHUNK // 16)) - 1 | 1)


@njit(**INSIDE)
def centre(x, a, count, origin, xc):
    """xc[:count] = rows a.. of x less the origin."""
    for i in range(count):
        for j in range(x.shape[1]):
            xc[i, j] = x[a + i, j] - origin[j]


@njit(**INSIDE)
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


@njit(**INSIDE)
def diagonal_chunk(xt, n, scales, offsets, constants, logp):
    """logp[z, i] = c_z - sum_j (a_zj xt_ji - b_zj)^2; scales, offsets and logp have rows for whole
    fours of components."""
    for z in range(0, len(constants), 4):
        for i in range(0, xt.shape[1], 2 * TILE):
            scaled_squares(xt, i, n, scales, offsets, z, logp)
    for z in range(len(constants)):
        for i in range(xt.shape[1]):
            logp[z, i] = constants[z] - min(logp[z, i], 1e300)


@njit(**INSIDE)
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


@njit(**OUTSIDE, fastmath={"contract"})
def exp_below(a, top, powers, parts, bits, power_bits):
    """a[i] = exp(a[i] - top[i]), zero below e^-46: 2^q times a polynomial, q taken from the last
    bits of a rounded sum.

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


@njit(**INSIDE, fastmath=FAST)
def share_chunk(logp, k, count, weights, counts, spare):
    """logp becomes w q, its sums go to ``counts``; returns sum w log p of the chunk. ``spare`` is 4
    x rows of working space."""
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


@njit(**OUTSIDE, fastmath=FAST)
def add_diagonal(xc, count, n, k, shares, c, sums, room):
    """shift[z] += sum_i s_i (x - m), scatter[z] += sum_i s_i (x - m)^2.

    Where most rows have a share, four components at once by moments about the origin, if these are
    ``near`` enough to it for that to be exact; else over the rows with a share only, four at a
    time.
    """
    shift, square, one, two = sums.shift, sums.scatter, room.pair[0], room.pair[1]
    for first in range(0, k, 4):
        last = min(first + 4, k)
        used, all_near = 0, True
        for z in range(first, last):
            all_near = all_near and c.near[z]
            for i in range(count):
                used += shares[z, i] > 0.0
        if all_near and 4 * used > (last - first) * count:
            for j in range(0, xc.shape[1], TILE):
                take_moments(xc, count, j, shares, first, one, two)
            for z in range(first, last):
                mass = 0.0
                for i in range(count):
                    mass += shares[z, i]
                a, b, m, to, square_to = (
                    one[z - first],
                    two[z - first],
                    c.centres[z],
                    shift[z],
                    square[z, 0],
                )
                for j in range(n):
                    to[j] += a[j] - mass * m[j]
                    square_to[j] += b[j] - 2.0 * m[j] * a[j] + mass * m[j] * m[j]
        elif used > 0:
            for z in range(first, last):
                add_some(
                    xc,
                    count,
                    n,
                    shares[z],
                    c.centres[z],
                    shift[z],
                    square[z, 0],
                    room.rows,
                    room.spare[0],
                )


@njit(**INSIDE, fastmath=FAST)
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


@njit(**INSIDE)
def add_full(xc, count, n, k, shares, centres, sums, packed, roots):
    """scatter[z] += sum_i s_i (x - m)(x - m)^T over rows with a share, upper tiles; one scatter for
    all where there is one only."""
    for z in range(k):
        # a plain 0 would compile what it is passed to twice: for the constant, then for integers
        used = np.int64(0)
        for i in range(count):
            if shares[z, i] > 0.0:
                root = np.sqrt(shares[z, i])
                for j in range(n):
                    packed[used, j] = root * (xc[i, j] - centres[z, j])
                roots[0, used] = root
                used += 1
        if used > 0:
            add_upper(packed, used, sums.scatter[z % len(sums.scatter)])
            add_rows(packed, roots[:1], used, sums.shift[z : z + 1])


@njit(**INSIDE)
def add_upper(packed, used, target):
    """target += packed^T packed, upper tiles."""
    grow_gram(packed, used, target, TILE)


@njit(**INSIDE, fastmath=FAST)
def add_tied(xc, count, n, k, shares, weights, c, sums, room):
    """The same sums for one covariance near the origin: sum_z s (x - m)(x - m)^T = w x x^T - sum_z
    [m o^T + o m^T - mass m m^T] with o = sum_i s x."""
    packed, one, two, target = room.packed, room.pair[0], room.pair[1], sums.scatter[0]
    for i in range(count):
        root = np.sqrt(weights[i]) if len(weights) else 1.0
        for j in range(n):
            packed[i, j] = root * xc[i, j]
    add_upper(packed, count, target)
    for first in range(0, k, 4):
        for j in range(0, xc.shape[1], TILE):
            take_moments(xc, count, j, shares, first, one, two)
        for z in range(first, min(first + 4, k)):
            mass = 0.0
            for i in range(count):
                mass += shares[z, i]
            o, m = one[z - first], c.centres[z]
            for r in range(n):
                sums.shift[z, r] += o[r] - mass * m[r]
                left = mass * m[r] - o[r]
                for j in range(r, n):
                    target[r, j] += left * m[j] - m[r] * o[j]


@njit(**INSIDE)
def given_chunk(shares, a, count, k, weights, logp, counts):
    """logp = w q of rows a.. whose shares are given, its sums go to ``counts``."""
    for z in range(k):
        mass = 0.0
        for i in range(count):
            logp[z, i] = shares[a + i, z] * (weights[i] if len(weights) else 1.0)
            mass += logp[z, i]
        logp[z, count:] = 0.0
        counts[z] += mass
    logp[k:] = 0.0


def _over_chunks(kind):
    """``over_chunks`` for one kind of components: the others are not compiled with it, which takes
    longer than most fits."""

    @njit(**OUTSIDE)
    def over_chunks(x, white, shares, weights, c, room, sums, out):
        """The one loop over chunks of rows: density, then what is asked for. Returns the bound.

        Rows are added to ``sums``; where ``out`` has rows, log weight + log density is written
        there instead; where ``shares`` (rows x k) has rows, it takes the place of the density. For
        kind TIED, ``white`` holds the rows (and ``c.offsets`` the means) less the origin, times the
        root.
        """
        n, k, size, bound = x.shape[1], len(c.constants), room.xt.shape[1], 0.0
        xc, xt, logp, spare = room.xc, room.xt, room.logp, room.spare
        for a in range(0, len(x), size):
            count = min(size, len(x) - a)
            w = weights[a : a + count]
            centre(x, a, count, c.origin, xc)
            if len(shares) > 0:
                given_chunk(shares, a, count, k, w, logp, sums.counts)
            else:
                if kind == TIED:
                    turn(white[a : a + count], count, n, xt)
                else:
                    turn(xc, count, n, xt)
                if kind == FULL:
                    triangular_chunk(xt, n, c.centres, c.panels, c.constants, logp)
                else:
                    diagonal_chunk(xt, n, c.scales, c.offsets, c.constants, logp)
                if len(out) > 0:
                    for i in range(count):
                        for z in range(k):
                            out[a + i, z] = logp[z, i]
                    continue
                bound += share_chunk(logp, k, count, w, sums.counts, spare)
            if kind == DIAGONAL:
                add_diagonal(xc, count, n, k, logp, c, sums, room)
            elif kind == TIED and c.near[0]:
                add_tied(xc, count, n, k, logp, w, c, sums, room)
            else:
                add_full(xc, count, n, k, logp, c.centres, sums, room.packed, spare)
        return bound

    return over_chunks


OVER_CHUNKS = {kind: _over_chunks(kind) for kind in (DIAGONAL, TIED, FULL)}


@njit(**OUTSIDE)
def group_rows(x, products, half, weights, counts, sums):
    """Adds each row, with its weight, to the group of the centre with the least |c|^2 / 2 - x c;
    ``products`` holds x c, ``half`` the other term."""
    for i in range(len(x)):
        best, least = 0, half[0] - products[i, 0]
        for c in range(1, len(half)):
            far = half[c] - products[i, c]
            if far < least:
                best, least = c, far
        w = weights[i] if len(weights) else 1.0
        counts[best] += w
        for j in range(x.shape[1]):
            sums[best, j] += w * x[i, j]
