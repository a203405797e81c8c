"""Columns predicted from columns: the primitives of item models and their records. X is N x n and
sparse, W is n x n; absent entries are zero."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np


class SparseRows(NamedTuple):
    """Compressed rows: the entries of row i stand at columns ``indices[indptr[i]:indptr[i + 1]]``,
    in ascending order."""

    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray

    def merge(self, other: SparseRows) -> SparseRows:
        """The sum of two matrices of the same shape."""
        from scipy.sparse import csr_array

        columns = 1 + max(int(each.indices.max(initial=-1)) for each in (self, other))
        shape = len(self.indptr) - 1, max(columns, 1)
        found = csr_array(self[::-1], shape=shape) + csr_array(other[::-1], shape=shape)
        found.sort_indices()
        return SparseRows(found.indptr, found.indices, found.data)


class ZeroDiagonal(NamedTuple):
    """``weights`` W with a zero diagonal, and ``multipliers`` d of that constraint: (G + l2 I) (I -
    W) = diag(d)."""

    weights: np.ndarray
    multipliers: np.ndarray


class SparseColumns(NamedTuple):
    """Compressed columns of W, the gap of each column's problem as the solver knows it, and the
    sweeps that each took."""

    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray
    gaps: np.ndarray
    sweeps: np.ndarray

    @classmethod
    def joined(cls, parts: list[SparseColumns]) -> SparseColumns:
        """Columns side by side."""
        lengths = np.concatenate([np.diff(part.indptr) for part in parts])
        sides = (
            np.concatenate([getattr(part, name) for part in parts]) for name in cls._fields[1:]
        )
        return cls(np.concatenate([[0], np.cumsum(lengths)]), *sides)


class ItemsFamily(Protocol):
    """Gram matrices of sparse rows, weights between columns from them, and products of sparse rows
    with such weights."""

    def column_gram(self, x: Any, dtype: Any) -> np.ndarray:
        """G = X^T X as a dense n x n array of that dtype, added up in it."""
        ...

    def sparse_gram(self, x: Any) -> SparseRows:
        """G = X^T X without its zeros, in the dtype of X."""
        ...

    def zero_diagonal_ridge(self, gram: np.ndarray, l2: float) -> ZeroDiagonal:
        """The W that minimises 1/2 ||X - X W||^2 + l2/2 ||W||^2 under diag W = 0: W_ij = -P_ij /
        P_jj, P = (G + l2 I)^-1.

        W stands in the memory of ``gram``, which is lost. numpy.linalg.LinAlgError where G + l2 I
        is not positive definite in this precision.
        """
        ...

    def nonnegative_columns(
        self,
        gram: np.ndarray,
        l1: float,
        l2: float,
        tol: float,
        max_iter: int,
        span: tuple[int, int] | None = None,
    ) -> SparseColumns:
        """For each column j: min over w >= 0, w_j = 0 of 1/2 ||x_j - X w||^2 + l1 sum w + l2/2
        ||w||^2, by coordinate descent on G.

        ``span``: the first column, and the one after the last; None takes all.
        A column ends when its gap is at most tol G_jj / 2, or after ``max_iter`` rounds.
        """
        ...

    def row_products(
        self, x: SparseRows, rows: np.ndarray, weights: np.ndarray | SparseRows, columns: int
    ) -> np.ndarray:
        """X[rows] W for dense or sparse W of so many columns, as a dense array in the dtype of
        W."""
        ...

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
        """Positions (-1 where there are fewer) and scores of the n best columns of each row of
        X[rows] W + L R^T, best first.

        ``more``: (L, R). ``allowed``: True for columns that may be chosen. ``excluded``: (indptr,
        indices, row of each row), as in ``top_columns``.
        """
        ...
