"""Scores of rows by weights between columns: x W, evaluated on request, with the names that
``Completer`` asks of a completed matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from eckart.engines.protocol import SparseRows
from eckart.factors import ItemWeights
from eckart.matrix import Observed

AT_ONCE = 2**25
"""Bytes of scores that are held at once."""


class ScoresOfRows:
    """What scores of the rows of ``entries`` for the columns of ``factors`` are called and how many
    there are."""

    entries: Observed
    factors: ItemWeights

    @property
    def rows(self) -> np.ndarray | None:
        return self.entries.rows

    @property
    def columns(self) -> np.ndarray | None:
        return self.factors.columns

    @property
    def n(self) -> int:
        return self.factors.n

    @property
    def shape(self) -> tuple[int, int]:
        return self.entries.shape[0], self.n

    def positions(self, rows: Any) -> np.ndarray:
        """Rows that a slice or a list stands for."""
        return (
            np.arange(self.shape[0])[rows]
            if isinstance(rows, slice)
            else np.atleast_1d(np.asarray(rows, np.intp))
        )

    def at(self: Any, rows: Any, columns: Any) -> np.ndarray:
        """The cells (rows[p], columns[p]), by position."""
        i, j = np.asarray(rows, np.intp), np.asarray(columns, np.intp)
        out = np.empty(len(i), self.dtype)
        asked, where = np.unique(i, return_inverse=True)
        order, start = np.argsort(where, kind="stable"), 0
        for tile in tiles(asked, self.n * self.held):
            low, high = np.searchsorted(where[order], [start, start + len(tile)])
            part = order[low:high]
            out[part] = self.block(tile)[where[part] - start, j[part]]
            start += len(tile)
        return out


def tiles(rows: np.ndarray, size: int) -> list[np.ndarray]:
    """Rows of so many bytes each, as many at a time as may be held."""
    step = max(1, AT_ONCE // max(1, size))
    return [rows[first : first + step] for first in range(0, len(rows), step)]


@dataclass(frozen=True, eq=False)
class RowScores(ScoresOfRows):
    """B = X W with W = S + L R^T: ``entries`` X (strengths as the fit sees them), ``linear`` S
    (dense, compressed rows, or None), ``factors`` with L and R."""

    entries: Observed
    factors: ItemWeights
    linear: Any
    engine: Any
    mean: float = 0.0
    row_bias: None = None
    column_bias: None = None

    @property
    def dtype(self) -> np.dtype:
        return self.factors.dtype

    @property
    def held(self) -> int:
        """Bytes of a score while it is made."""
        return self.dtype.itemsize

    @property
    def sparse(self) -> SparseRows:
        return SparseRows(self.entries.indptr, self.entries.indices, self.entries.data)

    def codes(self, rows: np.ndarray) -> np.ndarray:
        """X[rows] L."""
        f = self.factors
        return self.engine.row_products(self.sparse, rows, np.ascontiguousarray(f.left), f.k)

    def block(self, rows: Any) -> np.ndarray:
        """Scores of all columns for the rows at these positions."""
        at = self.positions(rows)
        out = (
            None
            if self.linear is None
            else self.engine.row_products(self.sparse, at, self.linear, self.n)
        )
        if self.factors.left is None:
            assert out is not None
            return out
        low = self.codes(at) @ self.factors.right.T  # type: ignore[union-attr]
        return low if out is None else out + low

    def best(
        self, rows: np.ndarray, n: int, columns: np.ndarray, hidden: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        """Positions and scores of the n best of ``columns`` for each row; ``hidden`` as in
        ``top_columns``, of all columns."""
        allowed = None
        if len(columns) < self.n:
            allowed = np.zeros(self.n, bool)
            allowed[columns] = True
        more = None if self.factors.left is None else (self.codes(rows), self.factors.right)
        n = min(n, len(columns))
        return self.engine.best_products(
            self.sparse, rows, self.linear, self.n, n, more, allowed, hidden
        )
