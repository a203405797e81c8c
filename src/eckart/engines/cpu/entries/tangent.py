"""The tangent space of the rank-k matrices at B = U diag(s) V^T, and least squares on it from the observed entries.

    T = { U M V^T + X V^T + U Y^T :  U^T X = 0,  V^T Y = 0 },   dim T = k (n + m - k)
    P_T Z = U U^T Z + Z V V^T - U U^T Z V V^T

In the coordinates (M, X, Y), which are orthonormal, ``forward`` is Pi restricted to T (values at the observed entries) and ``adjoint`` its transpose
P_T Pi^T: one sampled product with 2k columns, two sparse products with k columns. ``least_squares`` is preconditioned conjugate gradients on

    (Pi_T^T Pi_T + diag(d)) g = Pi_T^T b,

the preconditioner being the share of each row and column that was observed, plus d.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from eckart.engines.cpu.entries import sampled
from eckart.engines.cpu.entries.sampled import Pattern


class Coordinates(NamedTuple):
    """(M, X, Y): k x k, n x k, m x k."""

    m: np.ndarray
    x: np.ndarray
    y: np.ndarray

    def plus(self, step: float, other: Coordinates) -> Coordinates:
        return Coordinates(*(a + a.dtype.type(step) * b for a, b in zip(self, other)))

    def dot(self, other: Coordinates) -> float:
        return float(sum(np.vdot(a, b) for a, b in zip(self, other)))


class Tangent:
    """T at orthonormal U, V, met on a pattern."""

    def __init__(self, pattern: Pattern, left: np.ndarray, right: np.ndarray, threads: int = 1):
        self.pattern, self.left, self.right, self.threads = pattern, left, right, threads

    def zero(self) -> Coordinates:
        k = self.left.shape[1]
        return Coordinates(np.zeros((k, k)), np.zeros_like(self.left), np.zeros_like(self.right))

    def factors(self, g: Coordinates) -> tuple[np.ndarray, np.ndarray]:
        """L, R with 2k columns such that the element is L R^T."""
        return np.hstack([self.left @ g.m + g.x, self.left]), np.hstack([self.right, g.y])

    def forward(self, g: Coordinates) -> np.ndarray:
        """The element's values at the observed entries."""
        return sampled.sampled(self.pattern, *self.factors(g), self.threads)

    def adjoint(self, data: np.ndarray) -> Coordinates:
        """P_T of the sparse matrix with this data."""
        across = sampled.residual_times(self.pattern, data, self.right, self.threads)
        down = sampled.residual_times_t(
            self.pattern, sampled.by_columns(self.pattern, data, self.threads), self.left, self.threads
        )
        core = self.left.T @ across
        return Coordinates(core, across - self.left @ core, down - self.right @ core.T)

    def retract(self, s: np.ndarray, g: Coordinates) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """[U diag(s) V^T + g]_k: the best rank-k approximation of a point plus a tangent element, by a 2k x 2k SVD."""
        k = len(s)
        qx, rx = np.linalg.qr(g.x)
        qy, ry = np.linalg.qr(g.y)
        core = np.zeros((k + len(rx), k + len(ry)))
        core[:k, :k] = np.diag(s) + g.m
        core[k:, :k], core[:k, k:] = rx, ry.T
        a, values, bt = np.linalg.svd(core)
        kind = self.left.dtype
        left = np.hstack([self.left, qx]) @ a[:, :k].astype(kind)
        right = np.hstack([self.right, qy]) @ bt[:k].T.astype(kind)
        return left, values[:k], right

    def project(self, left: np.ndarray, right: np.ndarray) -> Coordinates:
        """P_T of the low-rank matrix ``left right^T``."""
        across, down = left @ (right.T @ self.right), right @ (left.T @ self.left)
        core = self.left.T @ across
        return Coordinates(core, across - self.left @ core, down - self.right @ core.T)

    def inside(self, g: Coordinates) -> Coordinates:
        """X and Y made orthogonal to U and V."""
        return Coordinates(g.m, g.x - self.left @ (self.left.T @ g.x), g.y - self.right @ (self.right.T @ g.y))


def shares(t: Tangent, ridge: Coordinates | None = None) -> Callable[[Coordinates], Coordinates]:
    """g -> P_T (D + ridge)^-1 g, with D the share of each row and each column that was observed (a tenth of the mean at least)."""
    rows, columns = t.pattern.shape
    mean = max(t.pattern.nnz / (rows * columns), 1e-300)
    kind = t.left.dtype
    by_row = np.maximum(np.diff(t.pattern.indptr)[:, None] / columns, 0.1 * mean)
    by_column = np.maximum(np.diff(t.pattern.t_indptr)[:, None] / rows, 0.1 * mean)
    d = ridge or Coordinates(*(np.zeros(1),) * 3)
    scale = [(1 / (a + b)).astype(kind) for a, b in zip((mean, by_row, by_column), d)]
    return lambda g: t.inside(Coordinates(*(a * c for a, c in zip(g, scale))))


def least_squares(
    t: Tangent,
    b: np.ndarray | Coordinates,
    ridge: Coordinates,
    start: Coordinates,
    *,
    tol: float,
    drop: float,
    max_iter: int,
    extra: Callable[[Coordinates], Coordinates] | None = None,
) -> tuple[Coordinates, int, float]:
    """Coordinates g, steps, and the preconditioned residual relative to the right-hand side.

    ``b`` is given at the entries, or as the right-hand side itself; ``ridge`` holds d (its parts broadcast over rows), ``extra`` is added to the operator.
    Stops at residual ``tol`` of the right-hand side or ``drop`` of the first residual, or where the operator is not positive.
    """
    solve = shares(t, ridge)

    def normal(g: Coordinates) -> Coordinates:
        image = Coordinates(*(a + d * c for a, d, c in zip(t.adjoint(t.forward(g)), ridge, g)))
        return image if extra is None else image.plus(1.0, extra(g))

    rhs = b if isinstance(b, Coordinates) else t.adjoint(b)
    size = np.sqrt(max(rhs.dot(solve(rhs)), 0.0))
    g = start
    r = rhs.plus(-1.0, normal(g))
    z = solve(r)
    q, rz = z, r.dot(z)
    first, steps = np.sqrt(max(rz, 0.0)), 0
    while steps < max_iter and np.sqrt(max(rz, 0.0)) > max(tol * size, drop * first):
        image = normal(q)
        curvature = q.dot(image)
        if not curvature > 0:
            break
        g, r = g.plus(rz / curvature, q), r.plus(-rz / curvature, image)
        z = solve(r)
        before, rz = rz, r.dot(z)
        q = z.plus(rz / before, q)
        steps += 1
    return g, steps, float(np.sqrt(max(rz, 0.0)) / size) if size > 0 else 0.0
