"""Columns predicted from columns, as part of ``CpuEngine``; numba is loaded when the first of these is called."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.engines.protocol.items import SparseColumns, SparseRows, ZeroDiagonal


class ItemPrimitives:
    """column_gram, sparse_gram, zero_diagonal_ridge, nonnegative_columns, row_products, best_products on ``threads`` threads."""

    threads: int

    def column_gram(self, x: Any, dtype: Any) -> np.ndarray:
        from eckart.engines.cpu.items.gram import column_gram

        return column_gram(x.matrix, x.T.matrix, dtype, self.threads)

    def sparse_gram(self, x: Any) -> SparseRows:
        from eckart.engines.cpu.items.gram import sparse_gram

        return sparse_gram(x.matrix, x.T.matrix)

    def zero_diagonal_ridge(self, gram: np.ndarray, l2: float) -> ZeroDiagonal:
        from eckart.engines.cpu.items.ridge import zero_diagonal_ridge

        return zero_diagonal_ridge(gram, l2, self.threads)

    def nonnegative_columns(
        self, gram: np.ndarray, l1: float, l2: float, tol: float, max_iter: int, span: tuple[int, int] | None = None
    ) -> SparseColumns:
        from eckart.engines.cpu.items.slim import nonnegative_columns

        columns = (0, len(gram)) if span is None else span
        return nonnegative_columns(gram, float(l1), float(l2), float(tol), int(max_iter), columns, self.threads)

    def row_products(
        self, x: SparseRows, rows: np.ndarray, weights: np.ndarray | SparseRows, columns: int
    ) -> np.ndarray:
        from eckart.engines.cpu.items.gram import row_products

        return row_products(x, np.asarray(rows, np.int64), weights, columns, self.threads)

    def best_products(
        self,
        x: SparseRows,
        rows: np.ndarray,
        weights: np.ndarray | SparseRows,
        columns: int,
        n: int,
        more: tuple[np.ndarray, np.ndarray] | None = None,
        allowed: np.ndarray | None = None,
        excluded: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        from eckart.engines.cpu.items.gram import best_products

        rows = np.asarray(rows, np.int64)
        return best_products(x, rows, weights, columns, n, more, allowed, excluded, self.threads)
