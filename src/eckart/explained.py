"""How much of a matrix does its reconstruction explain? (scikit-learn's ``score``)

    score = 1 - sum (x - x_hat)^2 / sum (x - c)^2        over the observed cells

c is zero for factors of the matrix itself (TruncatedSVD, NMF), and the mean of each column for
models that are centred: 1 is exact, 0 as good as c.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eckart.errors import InputError
from eckart.matrix import Counts, Dense, Matrix, Observed, row_parts

CELLS = 2**22
"""Cells that are rebuilt at a time: 32 MB of float64."""


def explained_share(matrix: Matrix, rebuild: Callable[[Any], np.ndarray], centred: bool) -> float:
    """The score of a reconstruction ``rebuild(rows)`` of a matrix, read once and by blocks."""
    n = matrix.shape[1]
    error, count, mean, spread = 0.0, np.zeros(n), np.zeros(n), np.zeros(n)
    for part in row_parts(matrix, max(1, CELLS // max(n, 1))):
        values, seen = _cells(part)
        error += float(np.sum(np.where(seen, values - rebuild(part), 0.0) ** 2))
        own = seen.sum(axis=0)
        # Chan's update: sums of squares about a mean that moves
        middle = values.sum(axis=0, where=seen) / np.maximum(own, 1) if centred else mean
        spread += np.sum((values - middle) ** 2, axis=0, where=seen)
        if centred:
            spread += (middle - mean) ** 2 * count * own / np.maximum(count + own, 1)
            mean += (middle - mean) * own / np.maximum(count + own, 1)
        count += own
    total = float(spread.sum())
    if not total > 0:
        raise InputError(
            "X must have cells that differ from "
            f"{'their column means' if centred else 'zero'} to be scored, got none that "
            "does"
        )
    return 1.0 - error / total


def _cells(part: Matrix) -> tuple[np.ndarray, np.ndarray]:
    """The values of rows as float64, and which of them are observed."""
    if isinstance(part, Counts):
        return part.to_scipy().toarray().astype(np.float64), np.ones(part.shape, bool)  # type: ignore[arg-type]
    if isinstance(part, Observed):
        whole = np.full(part.shape, np.nan)
        whole[np.repeat(np.arange(part.shape[0]), part.row_counts()), part.indices] = part.data
    else:
        assert isinstance(part, Dense)
        whole = np.asarray(part.values, np.float64)
    seen = ~np.isnan(whole)
    return np.where(seen, whole, 0.0), seen
