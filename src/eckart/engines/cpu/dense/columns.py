"""Sums and squared sums of the columns of a dense block in one pass at the speed of memory."""

from __future__ import annotations

from numba import njit


@njit(nogil=True, cache=True, fastmath={"contract", "nsz"})
def column_sums(block, weights, shift, total, square):
    """total_j += w_i (x_ij - shift_j), square_j += w_i (x_ij - shift_j)^2 in float64."""
    for i in range(block.shape[0]):
        w = weights[i]
        for j in range(block.shape[1]):
            d = block[i, j] - shift[j]
            total[j] += w * d
            square[j] += w * d * d
