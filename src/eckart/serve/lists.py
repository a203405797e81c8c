"""Top lists of many small requests: what all of them share is made ready once, and those that wait
together are answered by one product.

The score of column j for row i is b_j + <u_i, v_j> (plus what is the same for all columns of the
row), so the lists of B rows are B x n numbers U_B V^T + b, of which the n best of each row are
found by the maxima of parts of it, not by sorting.

A model in double precision is looked through in single precision first. The rounding error of a
score is at most e = (k + 2) 2^-23 (|u| max |v| + max |b|), so a column whose score in single
precision is more than 2e below the n-th best cannot be among the n best; the few that are left are
scored again in double.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np

from eckart.complete.recommend import Recommendations, scoring
from eckart.factors import LowRank

TOGETHER = 32
"""Rows of requests that are answered by one product, while the others wait: about 3 ms for 27,000
columns."""
BLOCK = 128
"""Rows of one product in a large request: BLAS copies all columns for each product, which 32 rows
do not pay for; 128 x 27,000 scores are 14 MB, and larger blocks measured no faster."""
FEW = 4
"""Rows from which on one product of matrices is faster than products with a vector: 90 to 110
microseconds a row at 4, 200 to 110 at 2."""
MAXIMA = 512
"""Maxima of a row among which the n-th is looked for: the inner loop of the maximum is as long, and
shorter ones are slower."""


@cache
def threads() -> ThreadPoolExecutor:
    """Threads that share a large request, one pool for all models of the process."""
    return ThreadPoolExecutor(min(4, os.cpu_count() or 1), "eckart-lists")


class Lists:
    """The lists of a completion ordered by its values. ``rows`` is the number of known rows."""

    def __init__(self, model: Any, f: LowRank):
        self.model, self.f = model, f
        self.rows, self.seen = f.shape[0], model.observed_
        self.support = self.seen.column_counts()
        _, self.right, self.offset = scoring(f, np.arange(0), np.arange(f.n))
        self.row_ids, self.names = model.row_ids, model.column_ids.names(np.arange(f.n))
        offset = np.zeros((f.n, 0)) if self.offset is None else np.asarray(self.offset)[:, None]
        self.rough = np.ascontiguousarray(np.hstack([self.right, offset]).T, np.float32)
        self.double = self.right.dtype != np.float32
        self.largest = float(
            np.sqrt(np.einsum("jk,jk->j", self.right, self.right, dtype=np.float64).max())
        )
        self.shift = 0.0 if self.offset is None else float(np.abs(self.offset).max())

    @classmethod
    def of(cls, model: Any) -> Lists | None:
        """None for a model that has no lists, or whose columns have scales of their own (the
        general way answers those)."""
        f = model.fit_.factors
        return (
            cls(model, f)
            if hasattr(model, "recommend") and isinstance(f, LowRank) and f.column_scale is None
            else None
        )

    def best(self, at: Any, n: int, exclude_seen: bool) -> Recommendations:
        """As ``model.recommend(..., by="prediction")`` of rows at these positions."""
        at, f = np.asarray(at), self.f
        n = min(n, f.n)
        left = f.left[at] if f.row_scale is None else f.left[at] * f.row_scale[at, None]
        found, scores = np.empty((len(at), n), np.int64), np.empty((len(at), n), f.left.dtype)
        size = BLOCK if len(at) >= 2 * BLOCK else TOGETHER

        def fill(a: int) -> None:
            part = slice(a, a + size)
            found[part], scores[part] = self._of(at[part], left[part], n, exclude_seen)

        list((threads().map if len(at) > 2 * TOGETHER else map)(fill, range(0, len(at), size)))
        scores += scores.dtype.type(f.mean)
        if f.row_bias is not None:
            scores += f.row_bias[at, None].astype(scores.dtype)
        found[~np.isfinite(scores)] = -1
        low_high = self.model.fit_.plan.get("clip") if "ranking" in self.model.fit_.plan else None
        if low_high is not None:
            scores[found >= 0] = np.clip(scores[found >= 0], *low_high)
        found, scores = self.model._reported_scores(f, at, found, scores, "prediction")
        names = self.names[np.maximum(found, 0)]
        often = np.where(found >= 0, self.support[found], 0)
        return Recommendations(
            self.model.row_ids.names(at), names, scores, found, often, "prediction"
        )

    def _of(
        self, at: np.ndarray, left: np.ndarray, n: int, exclude_seen: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        scores = self._scores(left)
        if exclude_seen:
            self._hide(scores, at)
        least = _least(scores, n)
        if self.double:
            error = (
                (self.f.k + 2)
                * 2.0**-23
                * (np.linalg.norm(left, axis=1) * self.largest + self.shift)
            )
            # below the range of single precision nothing is left out
            with np.errstate(over="ignore"):
                least = np.nextafter((least - 2 * error).astype(np.float32), np.float32(-np.inf))
        reach = scores >= least[:, None]
        lines, few = np.divmod(np.flatnonzero(reach), scores.shape[1])
        exact = scores[lines, few]
        if self.double:
            exact = self._exact(left, lines, few, exact)
        order = np.lexsort((-exact, lines))  # stable: equal scores stay in the order of the columns
        starts = np.searchsorted(lines, np.arange(len(at)))
        best = order[starts[:, None] + np.arange(n)]
        return few[best], exact[best]

    def _scores(self, left: np.ndarray) -> np.ndarray:
        """All scores in single precision."""
        # the last column meets the offset
        rough = np.ones((len(left), len(self.rough)), np.float32)
        rough[:, : left.shape[1]] = left
        if len(left) >= FEW:
            return rough @ self.rough
        scores = np.empty((len(left), self.f.n), np.float32)
        for u, line in zip(rough, scores):
            np.matmul(u, self.rough, out=line)
        return scores

    def _hide(self, scores: np.ndarray, at: np.ndarray) -> None:
        """Seen columns never are among the best."""
        begin, counts = self.seen.indptr[at], self.seen.indptr[at + 1] - self.seen.indptr[at]
        ends = np.cumsum(counts)
        where = np.arange(ends[-1]) + np.repeat(begin - (ends - counts), counts)
        scores[np.repeat(np.arange(len(at)), counts), self.seen.indices[where]] = -np.inf

    def _exact(
        self, left: np.ndarray, lines: np.ndarray, few: np.ndarray, rough: np.ndarray
    ) -> np.ndarray:
        """Scores of a few columns in the precision of the model; what was hidden stays so."""
        exact = np.einsum("pk,pk->p", self.right[few], left[lines])
        if self.offset is not None:
            exact += self.offset[few]
        exact[np.isneginf(rough)] = -np.inf
        return exact


def _least(scores: np.ndarray, n: int) -> np.ndarray:
    """For each row a number that at least n of its scores reach, and few more: the n-th largest of
    the maxima of its parts.

    >>> _least(np.array([[3.0, 1.0, 2.0, 5.0]]), 2)
    array([3.])
    """
    m = scores.shape[1]
    # enough maxima that the n-th of them is not far below the n-th score
    parts = m // max(4 * n, MAXIMA)
    if parts < 2:
        return np.partition(scores, m - n, axis=1)[:, m - n]
    wide = m // parts
    maxima = scores[:, : parts * wide].reshape(len(scores), parts, wide).max(axis=1)
    maxima = np.concatenate([maxima, scores[:, parts * wide :]], axis=1)
    return np.partition(maxima, maxima.shape[1] - n, axis=1)[:, maxima.shape[1] - n]
