"""Small dense linear algebra on threads: orthonormalisation, covariances."""

from __future__ import annotations

import numpy as np

from eckart.decompositions import eigh
from eckart.engines.cpu.dense import thin as tall
from eckart.scheduler import run_lanes

ACROSS = 64
"""Rows of a symmetric part that are made together: as many numbers of a column stand side by side,
and a range stays in a core's own cache."""


def orth(v: np.ndarray, against: np.ndarray | None = None, threads: int = 1) -> np.ndarray:
    """An orthonormal basis of range(V) minus its part in range(``against``); numerically dependent
    columns are dropped.

    Classical Gram-Schmidt against the given orthonormal columns and an eigenvalue-based
    orthonormalisation of V^T V in float64, both repeated: level-3 products only, and orthogonal to
    working precision after the repetition.
    """
    eps = float(np.finfo(v.dtype).eps)
    size = tall.largest(v, threads)
    if size == 0.0 or not np.isfinite(size):
        return v[:, :0]
    if size <= np.finfo(v.dtype).tiny:  # its inverse would overflow
        v, size = np.divide(v, np.asarray(size, v.dtype)), 1.0
    against = against if against is not None and against.shape[1] else None
    turn: np.ndarray | float = 1.0 / size
    for attempt in range(3):
        # the first is a matrix of our own: the next ones take its place, since there may be
        # millions of rows
        v, gram = tall.outer_inner(v, turn, against, threads, inside=attempt > 0)
        if against is not None:
            gram = tall.subtract_inner(v, against, gram, threads)
        values, vectors = eigh((gram + gram.T) / 2)
        if attempt and np.abs(values - 1.0).max(initial=0.0) < 100 * eps:
            return v
        # what survived the first round but is still mostly noise of the subtraction is dropped in
        # the second
        keep = values > (values[-1] * 100 * eps**2 if attempt == 0 else 0.25)
        if attempt == 0:
            keep &= values > len(v) * (10 * eps) ** 2
        if not keep.any():
            return v[:, :0]
        turn = vectors[:, keep] / np.sqrt(values[keep])
    return tall.outer(v, np.asarray(turn), None, 1.0, threads)


def covariance(
    scatter: np.ndarray, weight: float, mean: np.ndarray | None = None, threads: int = 1
) -> np.ndarray:
    """S / weight made symmetric, plus mean mean^T where a mean is given; by ranges of rows, each
    with the columns that stand across from it."""
    out, n = np.empty(scatter.shape), len(scatter)

    def step(_: None, first: int, scratch: dict) -> None:
        rows = slice(first, first + ACROSS)
        part, across = scatter[rows] / weight, scatter[:, rows].T / weight
        if mean is not None:
            part += np.outer(mean[rows], mean)
            across += np.outer(mean, mean[rows]).T
        np.add(part, across, out=out[rows])
        out[rows] /= 2

    run_lanes(range(0, n, ACROSS), [None] * max(1, -(-n // ACROSS)), step, threads)
    return out


def is_below(c: np.ndarray, q: np.ndarray, r: np.ndarray, bound: float, threads: int = 1) -> bool:
    """Whether bound I - (C + Q R^T + R Q^T) has a Cholesky factor; of the difference one triangle
    is looked at."""
    from scipy.linalg.lapack import dpotrf

    below = tall.outer(np.hstack([q, r]), -np.hstack([r, q]).T, c, -1.0, threads)
    below[np.diag_indices(len(below))] += bound
    return dpotrf(below.T, lower=0, clean=0, overwrite_a=1)[1] == 0
