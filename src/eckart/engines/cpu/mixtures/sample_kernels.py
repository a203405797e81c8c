"""Distances and groups of a block of rows, for the starts of mixtures."""

from __future__ import annotations

from numba import njit

from eckart.compiling import OUTSIDE

FAST = {"contract", "reassoc", "nsz"}


@njit(**OUTSIDE, fastmath=FAST)
def squared_distances(x, centres, out):
    """out[c, i] = ||x_i - centre_c||^2."""
    for i in range(len(x)):
        for c in range(len(centres)):
            s = 0.0
            for j in range(x.shape[1]):
                d = x[i, j] - centres[c, j]
                s += d * d
            out[c, i] = s


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
