"""What a fit leaves behind: frozen, labelled factors that evaluate themselves; and the one sign rule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

TIE = 1e-5
"""Loadings within this relative distance of the largest count as tied; the first of them decides the sign."""


def signs(components: np.ndarray) -> np.ndarray:
    """+1 or -1 for each row such that its entry of largest magnitude becomes positive; ties go to the lowest index.

    The rule looks at the components alone, so it is the same for every solver, engine and call order.

    >>> signs(np.array([[0.6, -0.8], [0.5, -0.5]])).tolist()
    [-1.0, 1.0]
    """
    if components.shape[0] == 0:
        return np.ones(0)
    size = np.abs(components)
    first = np.argmax(size >= size.max(axis=1, keepdims=True) * (1 - TIE), axis=1)
    return np.where(components[np.arange(len(components)), first] < 0, -1.0, 1.0)


@dataclass(frozen=True, eq=False)
class Basis:
    """An affine subspace mean + span(components) with the scatter it captures.

    ``components`` is k x n with orthonormal rows, ordered by falling ``scatter`` (the eigenvalues of sum w (x - mean)(x - mean)^T);
    ``total`` is that matrix's trace, ``tail_shape`` sum(l^2) / sum(l)^2 over the eigenvalues l left out (None where it was not measured),
    ``noise`` the mean variance left out, ``weight`` the sum of row weights, ``rows`` the number of rows.
    """

    mean: np.ndarray
    components: np.ndarray
    scatter: np.ndarray
    total: float
    noise: float
    weight: float
    rows: int
    centered: bool = True
    tail_shape: float | None = None
    columns: np.ndarray | None = None

    @property
    def k(self) -> int:
        return len(self.components)

    @property
    def n(self) -> int:
        return self.components.shape[1]

    @property
    def degrees(self) -> float:
        """weight - 1, the divisor of an unbiased variance; weight itself where that would not be positive."""
        return self.weight - 1 if self.weight > 1 else self.weight

    @property
    def variances(self) -> np.ndarray:
        """Variance along each component, with divisor ``degrees``."""
        return self.scatter / self.degrees

    @property
    def rank(self) -> int:
        """How many components carry variance above rounding."""
        if self.k == 0 or self.scatter[0] <= 0:
            return 0
        eps = float(np.finfo(self.components.dtype).eps)
        return int(np.count_nonzero(self.scatter > 10 * eps * np.sqrt(max(self.n, 1)) * self.scatter[0]))

    def encode(self, x: np.ndarray) -> np.ndarray:
        """(x - mean) U for rows x."""
        return (x - self.mean) @ self.components.T

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """mean + codes U^T."""
        return codes @ self.components + self.mean

    def to_state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and plain values, for a model file."""
        arrays = {"mean": self.mean, "components": self.components, "scatter": self.scatter}
        names = ("total", "noise", "weight", "rows", "centered", "tail_shape")
        return arrays, {name: getattr(self, name) for name in names}

    @classmethod
    def from_state(cls, arrays: dict[str, np.ndarray], values: dict[str, Any], columns: np.ndarray | None) -> Basis:
        return cls(arrays["mean"], arrays["components"], arrays["scatter"], **values, columns=columns)


@dataclass(frozen=True, eq=False)
class LowRank:
    """A completed matrix as factors: B_ij = mean + c_j + t_j (b_i + s_i u_i^T v_j).

    ``left`` is U (rows x k), ``right`` is V (columns x k); ``row_bias`` b, ``column_bias`` c, ``row_scale`` s and ``column_scale`` t may be None
    (0, 0, 1, 1). n x m is never stored: cells and blocks of rows are evaluated on request.

    >>> b = LowRank(np.array([[1.0], [2.0]]), np.array([[3.0], [4.0]]), mean=1.0)
    >>> b.at([0, 1], [1, 0]).tolist()
    [5.0, 7.0]
    """

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
        i = np.arange(len(self.left))[rows] if isinstance(rows, slice) else np.atleast_1d(np.asarray(rows, np.intp))
        j = np.arange(self.n)[columns]
        return self._dress(self.left[i] @ self.right[j].T, i[:, None], j[None, :])

    def blocks(self, size: int = 2**25) -> Iterator[tuple[int, np.ndarray]]:
        """All of B as (first row, rows) in blocks of about ``size`` bytes."""
        step = max(1, size // max(1, self.n * self.left.itemsize))
        for a in range(0, len(self.left), step):
            yield a, self.block(np.arange(a, min(a + step, len(self.left))))

    def with_rows(self, left: np.ndarray, row_bias: Any = None, row_scale: Any = None, rows: Any = None) -> LowRank:
        """The same columns with other rows (those folded in, say)."""
        return LowRank(
            left, self.right, self.mean, row_bias, self.column_bias, row_scale, self.column_scale, rows, self.columns
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

    def to_state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and plain values, for a model file."""
        arrays = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("mean", "rows", "columns")}
        return {name: a for name, a in arrays.items() if a is not None}, {"mean": self.mean}

    @classmethod
    def from_state(
        cls, arrays: dict[str, np.ndarray], values: dict[str, Any], rows: np.ndarray | None, columns: np.ndarray | None
    ) -> LowRank:
        names = [f.name for f in fields(cls) if f.name in arrays]
        return cls(**{name: arrays[name] for name in names}, mean=float(values["mean"]), rows=rows, columns=columns)


Factors = Basis | LowRank
