"""Top lists of many small requests: what all of them share is made ready once, and those that wait together are answered by one product.

The score of column j for row i is b_j + <u_i, v_j> (plus what is the same for all columns of the row), so the lists of B rows are B x n numbers
U_B V^T + b, of which the n best of each row are found by the maxima of parts of it, not by sorting.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.complete.recommend import Recommendations, scoring
from eckart.factors import LowRank

TOGETHER = 32
"""Rows answered by one product: their scores still fit in the cache of a core (32 x 27,000 x 4 bytes = 3.5 MB)."""


class Lists:
    """The lists of a completion ordered by its values. ``rows`` is the number of known rows."""

    def __init__(self, model: Any, f: LowRank):
        self.model, self.f = model, f
        self.rows, self.seen = f.shape[0], model.observed_
        self.support = self.seen.column_counts()
        _, self.right, self.offset = scoring(f, np.arange(0), np.arange(f.n))
        self.names = model.column_ids.names(np.arange(f.n))

    @classmethod
    def of(cls, model: Any) -> Lists | None:
        """None for a model that has no lists, or whose columns have scales of their own (the general way answers those)."""
        f = model.fit_.factors
        return (
            cls(model, f) if hasattr(model, "recommend") and isinstance(f, LowRank) and f.column_scale is None else None
        )

    def best(self, at: Any, n: int, exclude_seen: bool) -> Recommendations:
        """As ``model.recommend(..., by="prediction")`` of rows at these positions."""
        at, f = np.asarray(at), self.f
        n = min(n, f.n)
        left = f.left[at] if f.row_scale is None else f.left[at] * f.row_scale[at, None]
        found, scores = np.empty((len(at), n), np.int64), np.empty((len(at), n), f.left.dtype)
        for a in range(0, len(at), TOGETHER):
            part = slice(a, a + TOGETHER)
            found[part], scores[part] = self._of(at[part], left[part], n, exclude_seen)
        scores += scores.dtype.type(f.mean)
        if f.row_bias is not None:
            scores += f.row_bias[at, None].astype(scores.dtype)
        found[~np.isfinite(scores)] = -1
        low_high = self.model.fit_.plan.get("clip") if "ranking" in self.model.fit_.plan else None
        if low_high is not None:
            scores[found >= 0] = np.clip(scores[found >= 0], *low_high)
        names = self.names[np.maximum(found, 0)]
        often = np.where(found >= 0, self.support[found], 0)
        return Recommendations(self.model.row_ids.names(at), names, scores, found, often, "prediction")

    def _of(self, at: np.ndarray, left: np.ndarray, n: int, exclude_seen: bool) -> tuple[np.ndarray, np.ndarray]:
        scores = left @ self.right.T
        if self.offset is not None:
            scores += self.offset
        if exclude_seen:
            indptr, indices = self.seen.indptr, self.seen.indices
            for line, i in enumerate(at.tolist()):
                scores[line, indices[indptr[i] : indptr[i + 1]]] = -np.inf
        found, kept = np.empty((len(at), n), np.int64), np.empty((len(at), n), scores.dtype)
        for line, least in enumerate(_least(scores, n)):
            row = scores[line]
            few = np.flatnonzero(row >= least)  # in the order of the columns, which is also that of equal scores
            few = few[np.argsort(-row[few], kind="stable")[:n]]
            found[line], kept[line] = few, row[few]
        return found, kept


def _least(scores: np.ndarray, n: int) -> np.ndarray:
    """For each row a number that at least n of its scores reach, and few more: the n-th largest of the maxima of its parts.

    >>> _least(np.array([[3.0, 1.0, 2.0, 5.0]]), 2)
    array([3.])
    """
    m = scores.shape[1]
    parts = m // max(4 * n, 64)  # enough maxima that the n-th of them is not far below the n-th score
    if parts < 2:
        return np.partition(scores, m - n, axis=1)[:, m - n]
    wide = m // parts
    maxima = scores[:, : parts * wide].reshape(len(scores), parts, wide).max(axis=1)
    maxima = np.concatenate([maxima, scores[:, parts * wide :]], axis=1)
    return np.partition(maxima, maxima.shape[1] - n, axis=1)[:, maxima.shape[1] - n]
