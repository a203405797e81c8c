"""Columns predicted from columns, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.engines.protocol.items import SparseColumns, SparseRows, ZeroDiagonal


class OracleItems:
    """The primitives of ``protocol.items``."""

    def column_gram(self, x: Any, dtype: Any) -> np.ndarray:
        a = _whole(x.matrix.indptr, x.matrix.indices, x.matrix.data, x.shape[1])
        return (a.T @ a).astype(dtype)

    def sparse_gram(self, x: Any) -> SparseRows:
        gram = self.column_gram(x, x.dtype)
        seen = gram != 0
        counts = seen.sum(axis=1)
        return SparseRows(np.concatenate([[0], np.cumsum(counts)]), np.nonzero(seen)[1], gram[seen])

    def zero_diagonal_ridge(self, gram: np.ndarray, l2: float) -> ZeroDiagonal:
        a = gram.astype(np.float64) + l2 * np.eye(len(gram))
        np.linalg.cholesky(a)  # refuses what is not positive definite
        p = np.linalg.inv(a)
        gram[:] = -p / np.diagonal(p)
        np.fill_diagonal(gram, 0.0)
        return ZeroDiagonal(gram, 1.0 / np.diagonal(p))

    def nonnegative_columns(
        self,
        gram: np.ndarray,
        l1: float,
        l2: float,
        tol: float,
        max_iter: int,
        span: tuple[int, int] | None = None,
    ) -> SparseColumns:
        """Coordinate descent over all weights, one column after another."""
        g, n = gram.astype(np.float64), len(gram)
        rows, values, counts, gaps, sweeps = [], [], [], np.zeros(n), np.zeros(n, np.int64)
        first, last = (0, n) if span is None else span
        for j in range(first, last):
            w, others = np.zeros(n), np.delete(np.arange(n), j)
            while True:
                slope = g @ w - g[j] + l1 + l2 * w
                t = np.maximum(-slope / l2, -w)
                gaps[j] = (-slope * t - 0.5 * l2 * t**2)[others].sum()
                if gaps[j] <= 0.5 * tol * g[j, j] or sweeps[j] >= max_iter:
                    break
                for i in others:
                    w[i] = max(0.0, w[i] - (g[i] @ w - g[i, j] + l1 + l2 * w[i]) / (g[i, i] + l2))
                sweeps[j] += 1
            rows.append(np.flatnonzero(w))
            values.append(w[w > 0])
            counts.append(len(rows[-1]))
        indptr = np.concatenate([[0], np.cumsum(counts)])
        found = np.concatenate(rows), np.concatenate(values).astype(gram.dtype)
        return SparseColumns(indptr, *found, gaps[first:last], sweeps[first:last])

    def row_products(
        self, x: SparseRows, rows: np.ndarray, weights: Any, columns: int
    ) -> np.ndarray:
        dense = _whole(*weights, columns) if isinstance(weights, SparseRows) else weights
        return (_whole(*x, len(dense))[rows] @ dense.astype(np.float64)).astype(dense.dtype)

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
        scores = self.row_products(x, rows, weights, columns)
        if more is not None:
            scores = (scores + more[0] @ more[1].T).astype(scores.dtype)
        if allowed is not None:
            scores[:, ~allowed] = -np.inf
        if excluded is not None:
            indptr, indices, of = excluded
            for q, i in enumerate(of):
                scores[q, indices[indptr[i] : indptr[i + 1]]] = -np.inf
        order = np.argsort(-scores, axis=1, kind="stable")[:, :n]
        best = np.take_along_axis(scores, order, axis=1)
        return np.where(np.isneginf(best), -1, order), best


def _whole(indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, columns: int) -> np.ndarray:
    out = np.zeros((len(indptr) - 1, columns))
    np.add.at(out, (np.repeat(np.arange(len(out)), np.diff(indptr)), indices), data)
    return out
