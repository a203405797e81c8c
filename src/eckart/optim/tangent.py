"""The tangent space of the rank-k matrices at B = U diag(s) V^T, and least squares on it from the
observed entries.

    T = { U M V^T + X V^T + U Y^T :  U^T X = 0,  V^T Y = 0 },   dim T = k (n + m - k)
    P_T Z = U U^T Z + Z V V^T - U U^T Z V V^T

In the coordinates (M, X, Y), which are orthonormal, ``forward`` is Pi restricted to T (values at
the observed entries) and ``adjoint`` its transpose P_T Pi^T: one sampled product with 2k columns,
two sparse products with k columns. ``least_squares`` is preconditioned conjugate gradients on

    (Pi_T^T Pi_T + diag(d)) g = Pi_T^T b,

the preconditioner being the share of each row and column that was observed, plus d.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from eckart.decompositions import svd
from eckart.engines.protocol import Engine, Tall
from eckart.matrix import Observed


def placed(engine: Engine, array: Any) -> Any:
    """An array of the host where the engine works; as it is for engines that work on arrays of
    NumPy."""
    return array if isinstance(engine.take(np.zeros(1)), np.ndarray) else engine.take(array)


class Sampling:
    """Pi: the observed entries of a matrix, met by an engine. Numbers at the entries are in row
    order."""

    def __init__(self, x: Observed, engine: Engine):
        self.engine, self.x, self.given = engine, engine.put(x), x
        self.shape: tuple[int, int] = x.shape
        self.nnz = x.nnz

    @cached_property
    def shares(self) -> tuple[Tall, Tall]:
        """The share of each row and of each column that was observed, a tenth of the mean at
        least."""
        rows, columns = self.shape
        least = 0.1 * max(self.nnz / (rows * columns), 1e-300)
        own = self.x.counts[:, None] / columns, self.x.column_counts[:, None] / rows
        by_row, by_column = (placed(self.engine, np.maximum(a, least)) for a in own)
        return by_row, by_column

    def values(self, size: float, dtype: Any) -> Tall:
        """The entries divided by ``size``; those of a matrix in parts stay where they are."""
        if hasattr(self.x, "stored"):
            return self.x.stored(1.0 / size, dtype)
        return placed(self.engine, (self.given.data / size).astype(dtype))

    def at(self, left: Tall, right: Tall) -> Tall:
        """U V^T at the entries."""
        return self.engine.sampled(self.x, left, right)

    def residual(self, data: Tall, left: Tall, right: Tall) -> tuple[Tall, float]:
        """data - U V^T at the entries, and its squared norm."""
        return self.engine.residual(self.x, data, left, right)

    def by_columns(self, data: Tall) -> Tall:
        """The same numbers in the order of columns."""
        return self.engine.by_columns(self.x, data)

    def times(self, data: Tall, v: Tall) -> Tall:
        """R V for the sparse R with these numbers."""
        return self.engine.entry_times(self.x, data, v)

    def times_t(self, t_data: Tall, y: Tall) -> Tall:
        """R^T Y for the sparse R with these numbers, which are in the order of columns."""
        return self.engine.entry_times_t(self.x, t_data, y)


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

    def __init__(self, pattern: Sampling, left: np.ndarray, right: np.ndarray):
        self.pattern, self.left, self.right, self.engine = pattern, left, right, pattern.engine

    def zero(self) -> Coordinates:
        k = self.left.shape[1]
        return Coordinates(np.zeros((k, k)), np.zeros_like(self.left), np.zeros_like(self.right))

    def factors(self, g: Coordinates) -> tuple[np.ndarray, np.ndarray]:
        """L, R with 2k columns such that the element is L R^T."""
        return np.hstack([self.engine.outer(self.left, g.m, g.x), self.left]), np.hstack(
            [self.right, g.y]
        )

    def forward(self, g: Coordinates) -> np.ndarray:
        """The element's values at the observed entries."""
        return self.pattern.at(*self.factors(g))

    def adjoint(self, data: np.ndarray) -> Coordinates:
        """P_T of the sparse matrix with this data."""
        across = self.pattern.times(data, self.right)
        return self._split(across, self.pattern.times_t(self.pattern.by_columns(data), self.left))

    def _split(self, across: np.ndarray, down: np.ndarray) -> Coordinates:
        """P_T Z from Z V and Z^T U."""
        core = self.engine.inner(self.left, across).astype(self.left.dtype)
        return Coordinates(
            core,
            self.engine.outer(self.left, -core, across),
            self.engine.outer(self.right, -core.T, down),
        )

    def retract(self, s: np.ndarray, g: Coordinates) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """[U diag(s) V^T + g]_k: the best rank-k approximation of a point plus a tangent element,
        by a 2k x 2k SVD."""
        k = len(s)
        qx, qy = self.engine.orth(g.x), self.engine.orth(g.y)
        rx, ry = self.engine.inner(qx, g.x), self.engine.inner(qy, g.y)
        core = np.zeros((k + len(rx), k + len(ry)))
        core[:k, :k] = np.diag(s) + g.m
        core[k:, :k], core[:k, k:] = rx, ry.T
        a, values, bt = svd(core)
        kind = self.left.dtype
        turn_left, turn_right = a[:, :k].astype(kind), bt[:k].T.astype(kind)
        left = self.engine.outer(self.left, turn_left[:k], self.engine.outer(qx, turn_left[k:]))
        right = self.engine.outer(self.right, turn_right[:k], self.engine.outer(qy, turn_right[k:]))
        return left, values[:k], right

    def project(self, left: np.ndarray, right: np.ndarray) -> Coordinates:
        """P_T of the low-rank matrix ``left right^T``."""
        e, kind = self.engine, self.left.dtype
        across = e.outer(left, e.inner(right, self.right).astype(kind))
        return self._split(across, e.outer(right, e.inner(left, self.left).astype(kind)))

    def inside(self, g: Coordinates) -> Coordinates:
        """X and Y made orthogonal to U and V."""
        e, kind = self.engine, self.left.dtype
        off = [
            e.outer(q, -e.inner(q, part).astype(kind), part)
            for q, part in ((self.left, g.x), (self.right, g.y))
        ]
        return Coordinates(g.m, *off)


def shares(t: Tangent, ridge: Coordinates | None = None) -> Callable[[Coordinates], Coordinates]:
    """g -> P_T (D + ridge)^-1 g, with D the share of each row and each column that was observed (a
    tenth of the mean at least)."""
    rows, columns = t.pattern.shape
    mean = max(t.pattern.nnz / (rows * columns), 1e-300)
    kind = t.left.dtype
    by_row, by_column = t.pattern.shares
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

    ``b`` is given at the entries, or as the right-hand side itself; ``ridge`` holds d (its parts
    broadcast over rows), ``extra`` is added to the operator. Stops at residual ``tol`` of the
    right-hand side or ``drop`` of the first residual, or where the operator is not positive.
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
