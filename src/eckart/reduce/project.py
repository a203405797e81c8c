"""Orthogonal projections onto affine subspaces, and the geometry between subspaces.

P = U U^T for an orthonormal basis U of the range; for any spanning set V, also a dependent one, P =
V V^+ by a rank-revealing factorization (singular values below eps max(n, m) sigma_1 count as zero),
never by inverting V^T V. With an offset mu the map is x -> mu + U U^T (x - mu), the unique nearest
point of mu + range(V).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from eckart.arguments import numbers
from eckart.decompositions import svd
from eckart.errors import InputError
from eckart.io.dask.known import is_collection


@dataclass(frozen=True, eq=False)
class Projection:
    """The orthogonal projection onto mu + span(columns of ``basis``).

    ``basis`` must be orthonormal; ``Projection.onto(V)`` takes any spanning set.

    >>> p = Projection.onto([[1.0, 2.0], [0.0, 0.0], [1.0, 2.0]])
    >>> p.rank, p([1.0, 5.0, 3.0]).round(6).tolist()
    (1, [2.0, 0.0, 2.0])
    """

    basis: np.ndarray
    offset: Any = None

    def __post_init__(self) -> None:
        basis = _matrix("basis", self.basis)
        object.__setattr__(self, "basis", basis)
        offset = (
            np.zeros(len(basis))
            if self.offset is None
            else numbers("offset", self.offset, "numbers")
        )
        if offset.shape != (len(basis),):
            raise InputError(f"offset must have shape ({len(basis)},), got {offset.shape}")
        object.__setattr__(self, "offset", offset)
        gap = float(np.abs(basis.T @ basis - np.eye(basis.shape[1])).max(initial=0.0))
        if gap > 1e-6:
            raise InputError(
                f"basis is not orthonormal (|U^T U - I| = {gap:.2g}); use "
                "Projection.onto for any spanning set"
            )

    @classmethod
    def onto(cls, span: Any, offset: Any = None, tol: float | None = None) -> Projection:
        """Onto the span of any columns, dependent or not.

        Parameters
        ----------
        span : a matrix whose columns span the subspace
        offset : a point of it; None is the origin
        tol : singular values below this share of the largest are taken for 0; None for rounding

        Returns
        -------
        Projection
            The projection.
        """
        return cls(orthonormal(span, tol), offset)

    @property
    def n(self) -> int:
        """Dimension of the space."""
        return len(self.basis)

    @property
    def rank(self) -> int:
        """Dimension of the subspace."""
        return self.basis.shape[1]

    def __call__(self, x: Any) -> np.ndarray:
        """Nearest point of the subspace to one point, or to each row of many."""
        x = self._points(x)
        return self.offset + ((x - self.offset) @ self.basis) @ self.basis.T

    def codes(self, x: Any) -> np.ndarray:
        """Coordinates of the projection in the basis."""
        return (self._points(x) - self.offset) @ self.basis

    def distance(self, x: Any) -> np.ndarray:
        """Euclidean distance of a point, or of each row, to the subspace."""
        x = self._points(x)
        return np.linalg.norm(x - self(x), axis=-1)

    def complement(self) -> Projection:
        """Onto the orthogonal complement, with the same offset: p(x) + p.complement()(x) = x +
        offset."""
        q = np.linalg.qr(self.basis, mode="complete")[0] if self.rank else np.eye(self.n)
        return Projection(q[:, self.rank :], self.offset)

    def matrix(self) -> np.ndarray:
        """P = U U^T as an n x n array."""
        return self.basis @ self.basis.T

    def __matmul__(self, other: Projection) -> AffineMap:
        """Composition x -> self(other(x)); a projection again exactly when the two commute."""
        if self.n != other.n:
            raise InputError(
                f"projections must be of the same space, got {self.n} and {other.n} dimensions"
            )
        return AffineMap(
            self.basis,
            self.basis.T @ other.basis,
            other.basis.T,
            self.offset
            + self.basis
            @ (
                self.basis.T
                @ (other.offset - self.offset - other.basis @ (other.basis.T @ other.offset))
            ),
        )

    def angles(self, other: Projection) -> np.ndarray:
        """Principal angles to another subspace, rising, in radians."""
        return principal_angles(self.basis, other.basis)

    def _points(self, x: Any) -> Any:
        """One point, or many as rows; a Dask array stays one."""
        x = (
            x.astype(np.float64)
            if is_collection(x) and hasattr(x, "rechunk")
            else np.asarray(x, np.float64)
        )
        if x.ndim not in (1, 2) or x.shape[-1] != self.n:
            raise InputError(f"points must have shape (..., {self.n}), got {x.shape}")
        return x


@dataclass(frozen=True, eq=False)
class AffineMap:
    """x -> left core right x + offset, of low rank and never formed as n x n unless asked."""

    left: np.ndarray
    core: np.ndarray
    right: np.ndarray
    offset: np.ndarray

    def __call__(self, x: Any) -> np.ndarray:
        return np.asarray(x, np.float64) @ self.right.T @ self.core.T @ self.left.T + self.offset

    def matrix(self) -> np.ndarray:
        return self.left @ self.core @ self.right

    def is_projection(self, tol: float = 1e-9) -> bool:
        """Whether the linear part is symmetric and idempotent: the cosines between the subspaces
        are all 0 or 1."""
        cosines = svd(self.core, compute_uv=False) if self.core.size else np.zeros(0)
        return bool(np.all(np.minimum(np.abs(cosines), np.abs(1 - cosines)) <= tol))


def orthonormal(span: Any, tol: float | None = None) -> np.ndarray:
    """An orthonormal basis of the column space by the singular value decomposition; directions
    below ``tol`` sigma_1 count as zero."""
    v = _matrix("span", span)
    size = float(np.abs(v).max(initial=0.0))
    if size == 0.0:
        return np.zeros((len(v), 0))
    u, s, _ = svd(v / size, full_matrices=False)
    cut = (max(v.shape) * np.finfo(np.float64).eps if tol is None else tol) * s[0]
    return u[:, s > cut]


def principal_angles(a: Any, b: Any) -> np.ndarray:
    """Principal angles between the column spaces of a and b, rising, in radians; small angles keep
    their precision.

    cos of the angles are the singular values of U^T V; below 45 degrees the sines, of V - U U^T V,
    are used instead (Bjorck and Golub 1973).

    >>> principal_angles([[1.0], [0.0]], [[1.0], [1e-9]]).round(12).tolist()
    [1e-09]
    """
    u, v = orthonormal(a), orthonormal(b)
    if u.shape[0] != v.shape[0]:
        raise InputError(
            f"subspaces must be of the same space, got {u.shape[0]} and {v.shape[0]} dimensions"
        )
    if u.shape[1] < v.shape[1]:
        u, v = v, u
    if v.shape[1] == 0:
        return np.zeros(0)
    _, cosines, right = svd(u.T @ v)
    aligned = v @ right.T
    sines = np.linalg.norm(aligned - u @ (u.T @ aligned), axis=0)
    return np.where(
        cosines > np.sqrt(0.5),
        np.arcsin(np.minimum(sines, 1.0)),
        np.arccos(np.clip(cosines, -1.0, 1.0)),
    )


def subspace_distance(a: Any, b: Any) -> float:
    """||P_a - P_b||_2 between two column spaces: the sine of the largest angle, or 1 where their
    dimensions differ.

    >>> subspace_distance([[1.0], [0.0]], [[0.0], [1.0]])
    1.0
    """
    u, v = orthonormal(a), orthonormal(b)
    if u.shape[1] != v.shape[1]:
        return 1.0
    angles = principal_angles(u, v)
    return float(np.sin(angles.max(initial=0.0)))


def _matrix(name: str, values: Any) -> np.ndarray:
    v = numbers(name, values, "columns of a matrix of numbers")
    v = v[:, None] if v.ndim == 1 else v
    if v.ndim != 2:
        raise InputError(f"{name} must be columns of a matrix, got {v.ndim} dimensions")
    if not np.isfinite(v).all():
        i, j = np.argwhere(~np.isfinite(v))[0]
        raise InputError(f"{name} must hold finite numbers, got {v[i, j]} at row {i}, column {j}")
    return v
