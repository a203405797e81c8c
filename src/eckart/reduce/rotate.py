"""Varimax and promax: turn the loadings so that each column of the data leans on few components.

Loadings L = U sqrt(variance) (n x k). Varimax: the orthogonal T that maximises the variance of the
squared entries of L T, plane by plane (Kaiser 1958). Promax: least squares of L T towards its
signed fourth power, then unit factor variances (Hendrickson and White 1964); the factors may then
correlate. The subspace, and so every reconstruction, stays as it is: pattern L A, scores Z A^-T.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eckart.factors import Basis, signs


@dataclass(frozen=True, eq=False)
class Rotation:
    """``pattern`` n x k rotated loadings, ``scores`` k x k from unit-variance scores to rotated
    ones, ``correlation`` of the factors."""

    kind: str
    pattern: np.ndarray
    scores: np.ndarray
    correlation: np.ndarray

    @property
    def variances(self) -> np.ndarray:
        """Variance that each rotated component explains: of P z with corr(z) = C the diagonal of C
        P^T P, whose sum is that of the unrotated ones.

        Varimax: the sums of squared loadings. Promax: a component is credited with what it has in
        common with the others in proportion to both loadings.
        """
        return np.einsum("ij,ji->i", self.correlation, self.pattern.T @ self.pattern)


def loadings_of(basis: Basis) -> np.ndarray:
    """n x k: components scaled by their standard deviations."""
    return basis.components.T.astype(np.float64) * np.sqrt(basis.variances)


def varimax(loadings: np.ndarray, max_iter: int = 500, tol: float = 1e-9) -> np.ndarray:
    """The orthogonal k x k matrix T of the varimax rotation of the rows' directions (Kaiser
    normalised).

    >>> L = np.array([[1.0, 1.0], [1.0, -1.0]]) / np.sqrt(2)
    >>> np.abs(L @ varimax(L)).round(6).tolist() in ([[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]])
    True
    """
    k = loadings.shape[1]
    length = np.linalg.norm(loadings, axis=1, keepdims=True)
    r = loadings / np.where(length > 0, length, 1.0)
    t = np.eye(k)
    for _ in range(max_iter):
        largest = 0.0
        for p in range(k):
            for q in range(p + 1, k):
                angle = _planar_angle(r[:, p], r[:, q])
                largest = max(largest, abs(angle))
                turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
                r[:, [p, q]] = r[:, [p, q]] @ turn
                t[:, [p, q]] = t[:, [p, q]] @ turn
        if largest <= tol:
            break
    return t


def _planar_angle(x: np.ndarray, y: np.ndarray) -> float:
    """The angle that maximises the variance of the squared loadings in the plane of two factors
    (Kaiser 1958)."""
    u, v = x**2 - y**2, 2 * x * y
    n, a, b = len(x), u.sum(), v.sum()
    return float(np.arctan2(2 * (u @ v) - 2 * a * b / n, u @ u - v @ v - (a * a - b * b) / n)) / 4


def promax(loadings: np.ndarray, power: int = 4) -> np.ndarray:
    """The k x k matrix A of the promax rotation; (A^T A)^-1 is the correlation of the factors."""
    t = varimax(loadings)
    r = loadings @ t
    target = np.sign(r) * np.abs(r) ** power
    a = np.linalg.lstsq(r, target, rcond=None)[0]
    a = a * np.sqrt(np.diagonal(np.linalg.inv(a.T @ a)))
    return t @ a


def rotation_of(basis: Basis, kind: str | None) -> Rotation | None:
    """The rotation of a basis, columns ordered by the variance they explain, signs by the common
    rule."""
    rank = basis.rank
    if kind is None or rank == 0:
        return None
    full = loadings_of(basis)
    a = np.eye(basis.k)
    a[:rank, :rank] = varimax(full[:, :rank]) if kind == "varimax" else promax(full[:, :rank])
    pattern = full @ a
    order = np.argsort(-(pattern**2).sum(axis=0), kind="stable")
    a = a[:, order]
    a = a * signs((full @ a).T)
    inverse = np.linalg.inv(a)
    return Rotation(kind, full @ a, inverse.T, inverse @ inverse.T)
