"""Biases of rows and columns together: the minimiser of  sum (a_ij - mean - b_i - c_j)^2 + l2 (sum
b_i^2 + sum c_j^2),

    (D_r + R) b + P c   = f,   f = row sums of a - mean,      D_r, D_c: counts, P: 1 where observed,
    R: the ridge
    P^T b + (D_c + R) c = g,   g = column sums

With c given, b_i = sum_j (a_ij - mean - c_j) / (count_i + l2), and so for c with b given.
Alternating these two steps converges, but creeps along the direction that raises all b and lowers
all c. Conjugate gradients on the equations left for c when b is eliminated,

    S c = g - P^T (D_r + R)^-1 f,  S = D_c + R - P^T (D_r + R)^-1 P,  with D_c + R as
    preconditioner,

make one such pair of steps an iteration and have no slow direction. The residual is measured at the
returned point: the largest |gradient| relative to that at b = c = 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

TOLERANCE = 1e-12
"""Gradient of the bias problem, relative to that at zero, at which the iteration stops."""


def ridged(counts: np.ndarray, l2: float, by_count: bool) -> np.ndarray:
    """count + l2 (or count + l2 count), 1 where that is 0: an empty row has offset 0."""
    diagonal = counts * (1.0 + l2) if by_count else counts + l2
    return np.where(diagonal > 0, diagonal, 1.0)


class BiasSums(NamedTuple):
    """P c, P^T b, f and g."""

    row_sums: Callable[[np.ndarray], np.ndarray]
    column_sums: Callable[[np.ndarray], np.ndarray]
    f: np.ndarray
    g: np.ndarray

    @classmethod
    def of(
        cls, rows: np.ndarray, columns: np.ndarray, values: np.ndarray, shape: tuple[int, int]
    ) -> BiasSums:
        """Of entries in memory."""
        n, m = shape
        both = np.bincount(rows, values, n), np.bincount(columns, values, m)
        return cls(
            lambda c: np.bincount(rows, c[columns], n),
            lambda b: np.bincount(columns, b[rows], m),
            *both,
        )


def balanced(
    sums: BiasSums, of_rows: np.ndarray, of_columns: np.ndarray, iterations: int
) -> tuple[np.ndarray, np.ndarray, float]:
    """b, c and the residual, by conjugate gradients."""
    row_sums, column_sums, f, g = sums
    m = len(g)
    first = max(np.abs(f).max(initial=0.0), np.abs(g).max(initial=0.0)) or 1.0
    f, g = f / first, g / first  # the problem is linear; in these units no square underflows
    c = np.zeros(m)
    r = g - column_sums(f / of_rows)
    z = r / of_columns
    direction, power = z, float(r @ z)
    for _ in range(iterations):
        if np.abs(r).max(initial=0.0) <= TOLERANCE:
            break
        image = of_columns * direction - column_sums(row_sums(direction) / of_rows)
        curvature = float(direction @ image)
        if curvature <= 0:  # l2 = 0 and only the direction that changes nothing is left
            break
        c += power / curvature * direction
        r = r - power / curvature * image
        z = r / of_columns
        before, power = power, float(r @ z)
        direction = z + power / before * direction
    b = (f - row_sums(c)) / of_rows
    gradient = g - column_sums(b) - of_columns * c
    return first * b, first * c, float(np.abs(gradient).max(initial=0.0))
