"""Top lists of many small requests: what all of them share is made ready once, and those that wait together are answered by one product.

The score of column j for row i is b_j + <u_i, v_j> (plus what is the same for all columns of the row), so the lists of B rows are B x n numbers
U_B V^T + b, of which the n best of each row are found by the maxima of parts of it, not by sorting.

A model in double precision is looked through in single precision first. The rounding error of a score is at most e = (k + 2) 2^-23 (|u| max |v| + max |b|), so
a column whose score in single precision is more than 2e below the n-th best cannot be among the n best; the few that are left are scored again in double.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
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
        self.rough = np.ascontiguousarray(self.right, np.float32)
        self.rough_offset = None if self.offset is None else np.asarray(self.offset, np.float32)
        self.double = self.right.dtype != np.float32
        self.largest = float(np.sqrt(np.einsum("jk,jk->j", self.rough, self.rough, dtype=np.float64).max()))
        self.shift = 0.0 if self.offset is None else float(np.abs(self.offset).max())
        self.pool = ThreadPoolExecutor(min(4, os.cpu_count() or 1), "eckart-lists")

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

        def fill(a: int) -> None:
            part = slice(a, a + TOGETHER)
            found[part], scores[part] = self._of(at[part], left[part], n, exclude_seen)

        list((self.pool.map if len(at) > 2 * TOGETHER else map)(fill, range(0, len(at), TOGETHER)))
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
        scores = left.astype(np.float32, copy=False) @ self.rough.T
        if self.rough_offset is not None:
            scores += self.rough_offset
        if exclude_seen:
            indptr, indices = self.seen.indptr, self.seen.indices
            for line, i in enumerate(at.tolist()):
                scores[line, indices[indptr[i] : indptr[i + 1]]] = -np.inf
        least = _least(scores, n).astype(np.float64)
        if self.double:
            least -= 2 * (self.f.k + 2) * 2.0**-23 * (np.linalg.norm(left, axis=1) * self.largest + self.shift)
        found, kept = np.empty((len(at), n), np.int64), np.empty((len(at), n), left.dtype)
        for line, low in enumerate(least):
            few = np.flatnonzero(scores[line] >= low)  # in the order of the columns, which is also that of equal scores
            exact = self._exact(left[line], few, scores[line, few])
            best = np.argsort(-exact, kind="stable")[:n]
            found[line], kept[line] = few[best], exact[best]
        return found, kept

    def _exact(self, u: np.ndarray, few: np.ndarray, rough: np.ndarray) -> np.ndarray:
        """Scores of a few columns in the precision of the model; what was hidden stays so."""
        if not self.double:
            return rough
        exact = self.right[few] @ u
        if self.offset is not None:
            exact += self.offset[few]
        exact[np.isneginf(rough)] = -np.inf
        return exact


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
