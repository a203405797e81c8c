"""The linear model beside a nonlinear one: PCA of the training rows at equal k, judged on the same
rows."""

from __future__ import annotations

import numpy as np

from eckart.matrix import Counts, Dense, Matrix, Observed
from eckart.reduce.encode import as_observed
from eckart.reduce.pca import PCA

MOST_GAPPY = 3 * 10**5
"""Entries of data with gaps up to which PCA is fitted beside the network: its EM steps take longer
than the network."""


def linear_risk(training: Matrix, judged: Matrix, k: int) -> float | None:
    """The risk of PCA at k on rows; None where it was not measured (too many gaps to be worth
    it)."""
    seen = as_observed(training)
    if seen is not None and not (seen.column_counts() > 0).all():
        some = np.flatnonzero(seen.column_counts())
        if len(some) == 0:
            return None
        training, judged = (
            Observed.from_scipy(_observed(m).to_scipy()[:, some]) for m in (training, judged)
        )
    model = linear_model(training, k)
    return None if model is None else model.reconstruction_error(judged)


def _observed(matrix: Matrix) -> Observed:
    """The matrix as observed entries."""
    seen = as_observed(matrix)
    return seen if seen is not None else Observed.from_nan(np.asarray(matrix.values))  # type: ignore[union-attr]


def principal_subspace(training: Matrix, k: int, seed: int = 0) -> np.ndarray:
    """n x k orthonormal: the principal directions; where the data has fewer, random ones beside
    them; gaps at their column's mean."""
    training = _at_means(training)
    most = min(k, *training.shape)  # type: ignore[type-var]
    u = PCA(most, random_state=seed).fit(training).components_.T.astype(np.float64)
    if u.shape[1] == k:
        return u
    more = np.random.default_rng(seed).standard_normal((u.shape[0], k - u.shape[1])) / np.sqrt(
        u.shape[0]
    )
    return np.hstack([u, more])


def linear_model(training: Matrix, k: int) -> PCA | None:
    """PCA at k; None without rows, and with gaps: where a column was never observed, k is more than
    half the columns, or the entries are too many."""
    rows, n = int(training.shape[0] or 0), training.shape[1]
    seen = as_observed(training)
    if rows == 0:
        return None
    if seen is not None and (
        rows * n > MOST_GAPPY or 2 * k > n or not (seen.column_counts() > 0).all()
    ):
        return None
    return PCA(min(k, rows, n), random_state=0).fit(training)


def _at_means(x: Matrix) -> Matrix:
    """Gaps at the mean of their column. Of sparse entries the mean is taken off: the gaps are then
    the zeros that are not stored."""
    seen = as_observed(x)
    if seen is None:
        return x
    mean = np.bincount(seen.indices, seen.data, minlength=seen.n_columns) / np.maximum(
        seen.column_counts(), 1
    )
    if isinstance(x, Dense):
        return Dense(np.where(np.isnan(x.array), mean, x.array))
    return Counts(seen.indptr, seen.indices, seen.data - mean[seen.indices], seen.n_columns)
