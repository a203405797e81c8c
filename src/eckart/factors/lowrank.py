"""LowRank: a completed matrix as two thin factors, biases and scales."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from eckart.factors.checks import Stored, names, numbers, value


@dataclass(frozen=True, eq=False)
class LowRank(Stored):
    """A completed matrix as factors: B_ij = mean + c_j + t_j (b_i + s_i u_i^T v_j).

    ``left`` is U (rows x k), ``right`` is V (columns x k); ``row_bias`` b, ``column_bias`` c,
    ``row_scale`` s and ``column_scale`` t may be None (0, 0, 1, 1). n x m is never stored: cells
    and blocks of rows are evaluated on request.

    >>> b = LowRank(np.array([[1.0], [2.0]]), np.array([[3.0], [4.0]]), mean=1.0)
    >>> b.at([0, 1], [1, 0]).tolist()
    [5.0, 7.0]
    """

    VALUES = ("mean",)

    left: np.ndarray
    right: np.ndarray
    mean: float = 0.0
    row_bias: np.ndarray | None = None
    column_bias: np.ndarray | None = None
    row_scale: np.ndarray | None = None
    column_scale: np.ndarray | None = None
    rows: np.ndarray | None = None
    columns: np.ndarray | None = None

    @property
    def k(self) -> int:
        return self.left.shape[1]

    @property
    def n(self) -> int:
        """How many columns the matrix has."""
        return len(self.right)

    @property
    def dtype(self) -> np.dtype:
        """Of the cells."""
        return self.left.dtype

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.left), len(self.right)

    def at(self, rows: Any, columns: Any) -> np.ndarray:
        """The cells (rows[p], columns[p]), by position."""
        i, j = np.asarray(rows, np.intp), np.asarray(columns, np.intp)
        out = np.empty(len(i), self.left.dtype)
        step = max(1, 2**22 // max(1, self.k * self.left.itemsize))
        for a in range(0, len(i), step):
            part = slice(a, a + step)
            out[part] = np.einsum("ij,ij->i", self.left[i[part]], self.right[j[part]])
        return self._dress(out, i, j)

    def block(self, rows: Any, columns: Any = slice(None)) -> np.ndarray:
        """The rows of B at these positions, for all columns or some."""
        i = (
            np.arange(len(self.left))[rows]
            if isinstance(rows, slice)
            else np.atleast_1d(np.asarray(rows, np.intp))
        )
        j = np.arange(self.n)[columns]
        return self._dress(self.left[i] @ self.right[j].T, i[:, None], j[None, :])

    def blocks(self, size: int = 2**25) -> Iterator[tuple[int, np.ndarray]]:
        """All of B as (first row, rows) in blocks of about ``size`` bytes."""
        step = max(1, size // max(1, self.n * self.left.itemsize))
        for a in range(0, len(self.left), step):
            yield a, self.block(np.arange(a, min(a + step, len(self.left))))

    def with_rows(
        self, left: np.ndarray, row_bias: Any = None, row_scale: Any = None, rows: Any = None
    ) -> LowRank:
        """The same columns with other rows (those folded in, say)."""
        return LowRank(
            left,
            self.right,
            self.mean,
            row_bias,
            self.column_bias,
            row_scale,
            self.column_scale,
            rows,
            self.columns,
        )

    def _dress(self, x: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        if self.row_scale is not None:
            x *= self.row_scale[i]
        if self.row_bias is not None:
            x += self.row_bias[i]
        if self.column_scale is not None:
            x *= self.column_scale[j]
        if self.column_bias is not None:
            x += self.column_bias[j]
        if self.mean:
            x += x.dtype.type(self.mean)
        return x

    def check(self) -> None:
        """Refuse what does not fit together (a file may hold anything)."""
        numbers("left", self.left, (None, None))
        kind = self.left.dtype
        numbers("right", self.right, (None, self.k), dtype=kind)
        value("mean", self.mean)
        for side, size in (("row", len(self.left)), ("column", self.n)):
            for name in (f"{side}_bias", f"{side}_scale"):
                if getattr(self, name) is not None:
                    numbers(name, getattr(self, name), (size,), dtype=kind)
            names(getattr(self, f"{side}s"), size, f"{side}s", distinct=True)
