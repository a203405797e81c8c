"""Sums and squared sums of the columns of a dense block in one pass at the speed of memory."""

from __future__ import annotations

from numba import njit

from eckart.compiling import OUTSIDE


@njit(**OUTSIDE, fastmath={"contract", "reassoc", "nsz"})
def probed_sums(block, probe, total, probed):
    """total += sum_i x_i and probed += sum_i x_i (x_i^T probe) in float64: one way through memory,
    four rows at a time."""
    n = block.shape[1]
    i = 0
    while i + 3 < block.shape[0]:
        r0, r1, r2, r3 = block[i], block[i + 1], block[i + 2], block[i + 3]
        y0 = y1 = y2 = y3 = 0.0
        for j in range(n):
            g = probe[j]
            y0 += r0[j] * g
            y1 += r1[j] * g
            y2 += r2[j] * g
            y3 += r3[j] * g
        for j in range(n):
            total[j] += (r0[j] + r1[j]) + (r2[j] + r3[j])
            probed[j] += (y0 * r0[j] + y1 * r1[j]) + (y2 * r2[j] + y3 * r3[j])
        i += 4
    while i < block.shape[0]:
        y = 0.0
        for j in range(n):
            y += block[i, j] * probe[j]
        for j in range(n):
            total[j] += block[i, j]
            probed[j] += y * block[i, j]
        i += 1
