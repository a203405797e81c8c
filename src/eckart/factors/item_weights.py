"""ItemWeights: what every column adds to the score of every other, dense, sparse or of low rank; or
the shares of a blend of such models."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eckart.errors import FileError
from eckart.factors.checks import Stored, names, numbers, value


@dataclass(frozen=True, eq=False)
class ItemWeights(Stored):
    """Weights between the n columns of a matrix of ``n_rows`` rows: a row x scores the columns by x
    W, W = S + L R^T.

    S is ``weights`` (dense) or ``indptr``, ``indices``, ``data`` (compressed rows) or absent;
    ``left`` is L and ``right`` is R (n x k), or absent. ``multipliers`` d belong to the constraint
    diag W = 0: (X^T X + l2 I)(I - W) = diag(d). ``shares`` are those of the members of a blend,
    whose weights stand with the members.

    >>> w = ItemWeights(2, 3, left=np.ones((3, 1)), right=np.ones((3, 1)))
    >>> w.shape, w.k, w.dtype.name
    ((2, 3), 1, 'float64')
    """

    VALUES = ("n_rows", "n")

    n_rows: int
    n: int
    weights: np.ndarray | None = None
    indptr: np.ndarray | None = None
    indices: np.ndarray | None = None
    data: np.ndarray | None = None
    left: np.ndarray | None = None
    right: np.ndarray | None = None
    multipliers: np.ndarray | None = None
    shares: np.ndarray | None = None
    rows: np.ndarray | None = None
    columns: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return self.n_rows, self.n

    @property
    def k(self) -> int:
        """Rank of L R^T; 0 without."""
        return 0 if self.left is None else self.left.shape[1]

    @property
    def dtype(self) -> np.dtype:
        """Of the scores."""
        return next(
            a for a in (self.weights, self.data, self.left, self.shares) if a is not None
        ).dtype

    def check(self) -> None:
        """Refuse what does not fit together (a file may hold anything)."""
        value("n_rows", self.n_rows, 0, whole=True)
        value("n", self.n, 1, whole=True)
        if all(a is None for a in (self.weights, self.data, self.left, self.shares)):
            raise FileError("one of weights, data, left and shares must be there, got none")
        if self.shares is not None:
            numbers("shares", self.shares, (None,), 0.0)
        if self.weights is not None:
            numbers("weights", self.weights, (self.n, self.n))
        if self.data is not None:
            self._check_sparse()
        if self.left is not None:
            numbers("left", self.left, (self.n, None))
            numbers("right", self.right, (self.n, self.k), dtype=self.left.dtype)
        if self.multipliers is not None:
            numbers("multipliers", self.multipliers, (self.n,))
        names(self.rows, self.n_rows, "rows", distinct=True)
        names(self.columns, self.n, "columns", distinct=True)

    def _check_sparse(self) -> None:
        assert self.data is not None
        numbers("data", self.data, (None,))
        for name, wanted in (("indptr", self.n + 1), ("indices", len(self.data))):
            array = getattr(self, name)
            if array is None or array.dtype.kind not in "iu" or array.shape != (wanted,):
                raise FileError(f"{name} does not hold {wanted} whole numbers")
        assert self.indptr is not None
        assert self.indices is not None
        rising = (
            self.indptr[0] == 0
            and self.indptr[-1] == len(self.data)
            and bool((np.diff(self.indptr) >= 0).all())
        )
        if not rising or (
            len(self.indices) and not 0 <= self.indices.min() <= self.indices.max() < self.n
        ):
            raise FileError(f"indptr and indices are not compressed rows of {self.n} columns")
