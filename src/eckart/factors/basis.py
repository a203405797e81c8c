"""Basis: an affine subspace, what a reduction leaves behind; and the one sign rule."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eckart.errors import FileError
from eckart.factors.checks import Stored, names, numbers, value

TIE = 1e-5
"""Loadings within this relative distance of the largest count as tied; the first of them decides
the sign."""


def signs(components: np.ndarray) -> np.ndarray:
    """+1 or -1 for each row such that its entry of largest magnitude becomes positive; ties go to
    the lowest index.

    The rule looks at the components alone, so it is the same for every solver, engine and call
    order.

    >>> signs(np.array([[0.6, -0.8], [0.5, -0.5]])).tolist()
    [-1.0, 1.0]
    """
    if components.shape[0] == 0:
        return np.ones(0)
    size = np.abs(components)
    first = np.argmax(size >= size.max(axis=1, keepdims=True) * (1 - TIE), axis=1)
    return np.where(components[np.arange(len(components)), first] < 0, -1.0, 1.0)


@dataclass(frozen=True, eq=False)
class Basis(Stored):
    """An affine subspace mean + span(components) with the scatter it captures.

    ``components`` is k x n with orthonormal rows, ordered by falling ``scatter`` (the eigenvalues
    of sum w (x - mean)(x - mean)^T); ``total`` is that matrix's trace, ``tail_shape`` sum(l^2) /
    sum(l)^2 over the eigenvalues l left out (None where it was not measured), ``noise`` the mean
    variance left out, ``weight`` the sum of row weights, ``rows`` the number of rows.
    """

    VALUES = ("total", "noise", "weight", "rows", "centered", "tail_shape")

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
        """weight - 1, the divisor of an unbiased variance; weight itself where that would not be
        positive."""
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
        return int(
            np.count_nonzero(self.scatter > 10 * eps * np.sqrt(max(self.n, 1)) * self.scatter[0])
        )

    def encode(self, x: np.ndarray) -> np.ndarray:
        """(x - mean) U for rows x."""
        return (x - self.mean) @ self.components.T

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """mean + codes U^T."""
        return codes @ self.components + self.mean

    def check(self) -> None:
        """Refuse what does not fit together (a file may hold anything)."""
        numbers("components", self.components, (None, None))
        if not self.n or self.k > self.n:
            raise FileError(
                "components must have at most as many rows as columns, got shape "
                f"{self.components.shape}"
            )
        gram = np.abs(self.components @ self.components.T)
        # far above the rounding of float32; a row of zeros, of data without variance, passes
        if (
            gram.max(initial=0.0) > 1 + 1e-3
            or (gram - np.diag(np.diagonal(gram))).max(initial=0.0) > 1e-3
        ):
            raise FileError("components are not orthonormal rows")
        numbers("mean", self.mean, (self.n,))
        numbers("scatter", self.scatter, (self.k,), 0.0)
        names(self.columns, self.n, "columns")
        for name in ("total", "noise", "weight"):
            value(name, getattr(self, name), 0.0)
        if self.weight == 0:
            raise FileError("weight must be that of some rows, got 0")
        value("rows", self.rows, 0, whole=True)
        if self.tail_shape is not None:
            value("tail_shape", self.tail_shape, 0.0)
        if not isinstance(self.centered, bool):
            raise FileError(f"centered={self.centered!r} is not True or False")
