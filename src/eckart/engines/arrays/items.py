"""Columns predicted from columns: Gram matrices and products of sparse rows, by SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.engines.arrays.evidence import best_of_rows
from eckart.engines.arrays.zero_diagonal import zero_diagonal_ridge
from eckart.engines.host import place
from eckart.engines.protocol.items import SparseColumns, SparseRows, ZeroDiagonal


class ArrayItems:
    """The family ``items``."""

    lib: Any
    threads: int

    def column_gram(self, x: Any, dtype: Any) -> np.ndarray:
        a = _rows_of(place(x)).astype(dtype)
        return (a.T @ a).toarray()

    def sparse_gram(self, x: Any) -> SparseRows:
        a = _rows_of(place(x))
        found = (a.T @ a).tocsr()
        found.sort_indices()
        return SparseRows(found.indptr, found.indices, found.data)

    def zero_diagonal_ridge(self, gram: np.ndarray, l2: float) -> ZeroDiagonal:
        return zero_diagonal_ridge(gram, l2, self.threads)

    def nonnegative_columns(
        self,
        gram: np.ndarray,
        l1: float,
        l2: float,
        tol: float,
        max_iter: int,
        span: tuple[int, int] | None = None,
    ) -> SparseColumns:
        """A weight of all columns at a time; a step touches the columns whose weight moves."""
        g, (first, last) = gram.astype(np.float64), span or (0, len(gram))
        own = np.arange(first, last)
        w, slope = np.zeros((len(own), len(g))), l1 - g[own]
        gaps, sweeps = np.zeros(len(own)), np.zeros(len(own), np.int64)
        going, limit = np.arange(len(own)), 0.5 * tol * np.diagonal(g)[own]
        while len(going):
            t = np.maximum(-slope[going] / l2, -w[going])
            fall = -slope[going] * t - 0.5 * l2 * t * t
            fall[np.arange(len(going)), own[going]] = 0.0
            gaps[going] = fall.sum(axis=1)
            going = going[(gaps[going] > limit[going]) & (sweeps[going] < max_iter)]
            sweeps[going] += 1
            for i in range(len(g) if len(going) else 0):
                new = np.maximum(0.0, w[going, i] - slope[going, i] / (g[i, i] + l2))
                move = np.where(own[going] == i, 0.0, new - w[going, i])
                some = np.flatnonzero(move)
                at, step = going[some], move[some]
                w[at, i] += step
                slope[at] += step[:, None] * g[i]
                slope[at, i] += l2 * step
        w[w < 0] = 0.0
        indptr = np.concatenate([[0], np.cumsum((w > 0).sum(axis=1))])
        return SparseColumns(indptr, np.nonzero(w)[1], w[w > 0].astype(gram.dtype), gaps, sweeps)

    def row_products(
        self, x: SparseRows, rows: np.ndarray, weights: Any, columns: int
    ) -> np.ndarray:
        from scipy.sparse import csr_array

        sparse = isinstance(weights, SparseRows)
        dtype = (weights.data if sparse else weights).dtype
        lengths = np.diff(x.indptr)[rows]
        first = np.asarray(x.indptr)[rows] - np.cumsum(lengths) + lengths
        at = np.arange(int(lengths.sum())) + np.repeat(first, lengths)
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        n = len(weights.indptr) - 1 if sparse else len(weights)
        some = csr_array((x.data[at].astype(dtype), x.indices[at], indptr), (len(lengths), n))
        if not sparse:
            return some @ weights
        return (some @ csr_array(weights[::-1], shape=(n, columns))).toarray()

    def best_products(
        self,
        x: SparseRows,
        rows: np.ndarray,
        weights: Any,
        columns: int,
        n: int,
        more: Any = None,
        allowed: Any = None,
        excluded: Any = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        rows = np.asarray(rows)

        def scores(here: slice) -> np.ndarray:
            found = ArrayItems.row_products(self, x, rows[here], weights, columns)
            if more is not None:
                found += (more[0][here] @ more[1].T).astype(found.dtype, copy=False)
            if allowed is not None:
                found[:, ~allowed] = -np.inf
            return found

        return best_of_rows(self.lib, scores, len(rows), columns, n, excluded)


def _rows_of(x: Any) -> Any:
    """A sparse matrix of SciPy."""
    return x.matrix.to_scipy()
