"""Matrices that are known by their products: sparse + low rank, their leading singular triples, and
the facts about them.

    Sparse plus low rank    Z = S + U diag(s) V^T,   Z X = S X + U (s * (V^T X)),   Z^T Y likewise;
    n x m is never formed.
    Norms                   ||Z||_F^2 = sum sigma_i^2,  ||Z||_2 = sigma_1,  ||Z||_* = sum sigma_i
    Eckart-Young            min over rank k of ||Z - B||_F^2 = sum_{i>k} sigma_i^2, attained by the
    k leading triples

``partial_svd`` is block Golub-Kahan iteration from a given block (the last iterate's right
vectors): with X an orthonormal basis of what was tried, Z X = Q R is kept, so a Ritz triple (u,
theta, v) has Z v = theta u exactly, and Z^T Q gives the other residual ||Z^T u - theta v|| without
another product. A warm start that is good enough ends after one product with Z and one with Z^T.

``randomized_svd`` is the range finder with oversampling and power iterations, and its single-pass
variant, which meets the entries once.

References: Golub, Luk and Overton (1981); Halko, Martinsson and Tropp, "Finding structure with
randomness" (2011), 4.3, 4.5 and 5.5; Tropp et al. (2017).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from eckart.arguments import held, numbers
from eckart.decompositions import svd
from eckart.engines import engine_named
from eckart.errors import InputError, invalid
from eckart.matrix import Counts, Dense, Observed
from eckart.matrix_blocks import parts_of
from eckart.optim.tangent import Sampling, placed
from eckart.rng import generator, normal
from eckart.trace import Trace

Product = Callable[[np.ndarray], np.ndarray]


class Triples(NamedTuple):
    """Leading singular triples: ``left`` n x k, ``values`` falling, ``right`` m x k; ``residuals``
    ||Z^T u - theta v||; ``spare`` further right vectors."""

    left: np.ndarray
    values: np.ndarray
    right: np.ndarray
    residuals: np.ndarray
    products: int = 0
    spare: np.ndarray | None = None


@dataclass(eq=False)
class Operator:
    """S + U diag(s) V^T with S sparse on a pattern (row-order ``data``; None for S = 0) and the
    low-rank part optional."""

    pattern: Sampling
    data: np.ndarray | None
    left: np.ndarray | None = None
    values: np.ndarray | None = None
    right: np.ndarray | None = None
    t_data: np.ndarray | None = field(default=None, repr=False)
    placed = True

    def __post_init__(self) -> None:
        if isinstance(self.data, np.ndarray):
            self.data = placed(self.pattern.engine, self.data)

    @property
    def shape(self) -> tuple[int, int]:
        return self.pattern.shape

    @property
    def dtype(self) -> np.dtype:
        known = self.data if self.data is not None else self.left
        assert known is not None
        return known.dtype

    def times(self, v: np.ndarray) -> np.ndarray:
        """Z V."""
        sparse = None if self.data is None else self.pattern.times(self.data, v)
        return self._with_low_rank(sparse, self.left, self.right, v)

    def times_t(self, y: np.ndarray) -> np.ndarray:
        """Z^T Y."""
        if self.data is None:
            return self._with_low_rank(None, self.right, self.left, y)
        if self.t_data is None:
            self.t_data = self.pattern.by_columns(self.data)
        return self._with_low_rank(self.pattern.times_t(self.t_data, y), self.right, self.left, y)

    @property
    def engine(self) -> Any:
        return self.pattern.engine

    def _with_low_rank(self, sparse: Any, own: Any, other: Any, block: np.ndarray) -> np.ndarray:
        """The sparse part plus own diag(s) other^T block."""
        if own is None:
            return sparse
        return self.engine.outer(
            own, _scaled(self.values, self.engine.inner(other, block).astype(self.dtype)), sparse
        )


@dataclass(eq=False)
class Products:
    """Any matrix as its two products; ``placed``: of arrays of the engine."""

    shape: tuple[int, int]
    dtype: np.dtype
    times: Product
    times_t: Product
    engine: Any = field(default_factory=engine_named)
    placed: bool = False


def operator(given: Any) -> Any:
    """An array, a SciPy sparse matrix or LinearOperator, or an object with ``times`` and
    ``times_t``, as an operator on blocks."""
    a: Any = given
    if hasattr(a, "times") and hasattr(a, "times_t"):
        return a if hasattr(a, "engine") else Products(a.shape, a.dtype, a.times, a.times_t)
    if isinstance(a, (Dense, Observed, Counts)):
        a = _in_memory(a)
    if not hasattr(a, "shape") or not hasattr(a, "dtype") or a.dtype == object:
        a = numbers("a", given, "a matrix of numbers, or an operator")
    if len(a.shape) != 2:
        raise InputError(f"a must have rows and columns, got {len(a.shape)} dimension(s)")
    kind = np.dtype(np.float32) if a.dtype == np.float32 else np.dtype(np.float64)
    if isinstance(a, np.ndarray):
        if not np.isfinite(a).all():
            i, j = np.argwhere(~np.isfinite(a))[0]
            raise InputError(f"a must hold finite numbers, got {a[i, j]} at row {i}, column {j}")
        a = a.astype(kind, copy=False)
    times, times_t = (
        (a.matmat, a.rmatmat) if hasattr(a, "rmatmat") else (lambda v: a @ v, lambda y: a.T @ y)
    )
    return Products(
        a.shape, kind, lambda v: np.asarray(times(v), kind), lambda y: np.asarray(times_t(y), kind)
    )


def _in_memory(a: Any) -> Any:
    """The array or SciPy matrix of one of eckart's own, where it has all of its entries in
    memory."""
    if (
        isinstance(a, Observed)
        or parts_of(a) is not None
        or (isinstance(a, Dense) and not a.in_memory)
    ):
        came = (
            "entries that nobody knows"
            if isinstance(a, Observed)
            else "rows that are not in memory"
        )
        raise InputError(
            f"a must be a whole matrix, got {came}. PCA and TruncatedSVD take rows from files, "
            "PCA and SoftImpute missing entries."
        )
    return a.array if isinstance(a, Dense) else a.to_scipy()


def partial_svd(
    z: Any,
    k: int,
    *,
    rng: np.random.Generator,
    start: np.ndarray | None = None,
    tol: float = 1e-6,
    max_steps: int = 60,
    oversample: int = 4,
    basis_limit: int | None = None,
) -> Triples:
    """The k leading singular triples to residuals ||Z^T u - theta v|| <= ``tol`` theta_1, starting
    from the columns of ``start``.

    Values that are zero up to rounding are left out, so there may be fewer than k.
    """
    n, m = z.shape
    k = min(k, n, m)
    if k == 0:
        return Triples(
            np.zeros((n, 0), z.dtype), np.zeros(0), np.zeros((m, 0), z.dtype), np.zeros(0)
        )
    width = min(k + oversample, n, m)
    first = (
        np.zeros((m, 0), z.dtype) if start is None else start[:, :width].astype(z.dtype, copy=False)
    )
    first = np.column_stack([first, normal(rng, (m, max(0, width - first.shape[1])), z.dtype)])
    limit = basis_limit or max(6 * width, width + 40)
    eps = float(np.finfo(z.dtype).eps)
    e = z.engine
    if isinstance(first, np.ndarray) and getattr(z, "placed", False):
        first = placed(e, first)
    fresh, products = e.orth(first), 0
    xs, qs, backs = (_Columns(e, size, limit + width, fresh) for size in (m, n, m))
    x, q, back, r = xs.filled, qs.filled, backs.filled, np.zeros((0, 0))
    step = 0
    while True:
        step += 1
        image = z.times(fresh)
        new = _basis(e, image, q)
        x = xs.append(fresh)
        upper = e.inner(q, image) if q.shape[1] else np.zeros((0, fresh.shape[1]))
        r = np.block([[r, upper], [np.zeros((new.shape[1], r.shape[1])), e.inner(new, image)]])
        q = qs.append(new)
        back = backs.append(z.times_t(new)) if new.shape[1] else back
        products += fresh.shape[1] + new.shape[1]
        a, theta, bt = svd(r, full_matrices=False)  # right-restricted: Z (X b) = theta (Q a)
        wanted = min(k, len(theta))
        missed = e.outer(x, -bt[:wanted].T * theta[:wanted], e.outer(back, a[:, :wanted]))
        residuals = np.sqrt(np.diagonal(e.inner(missed, missed)))
        scale = float(theta[0]) if len(theta) else 0.0
        if len(theta) < k:
            residuals = np.append(residuals, np.inf)  # the basis does not hold k triples yet
        done = bool((residuals <= max(tol, 8 * eps) * scale).all())
        following = (
            _basis(e, back[:, back.shape[1] - new.shape[1] :], x)
            if not done and step < max_steps
            else x[:, :0]
        )
        if done or step >= max_steps or following.shape[1] == 0 or scale == 0.0:
            break
        if x.shape[1] + following.shape[1] > limit:
            x, q = xs.restart(e.outer(x, bt[:width].T)), qs.restart(e.outer(q, a[:, :width]))
            r, back = np.diag(theta[:width]), backs.restart(e.outer(back, a[:, :width]))
            following = _basis(e, back[:, :k] - x[:, :k] * theta[:k].astype(z.dtype), x)
            if following.shape[1] == 0:
                break
        fresh = following
    # one half step better: the left space alone, Q^T Z = (Z^T Q)^T
    _, s, ut = svd(e.triangle(back), full_matrices=False)
    real = int((s > 50 * eps * max(scale, np.finfo(float).tiny)).sum())
    kept = min(k, real)
    left = e.outer(q, ut[:kept].T)
    right = e.outer(back, ut[:real].T / s[:real])
    return Triples(
        left, s[:kept], right[:, :kept].copy(), residuals[:kept], products, right[:, kept:width]
    )


class _Columns:
    """Columns of a basis that grows, in one array: what is there is not copied when more comes."""

    def __init__(self, engine: Any, rows: int, room: int, like: np.ndarray):
        self.engine, self.used = engine, 0
        # rows together, as products want them
        self.room = np.empty_like(like, shape=(rows, room), order="C")

    @property
    def filled(self) -> np.ndarray:
        return self.room[:, : self.used]

    def append(self, more: np.ndarray) -> np.ndarray:
        end = self.used + more.shape[1]
        if end > self.room.shape[1]:
            old, self.room = (
                self.filled,
                np.empty_like(self.room, shape=(len(self.room), 2 * end), order="C"),
            )
            self.engine.write_columns(self.room, 0, old)
        self.engine.write_columns(self.room, self.used, more)
        self.used = end
        return self.filled

    def restart(self, columns: np.ndarray) -> np.ndarray:
        """These instead of all."""
        self.used = 0
        return self.append(columns)


def _basis(engine: Any, v: np.ndarray, against: np.ndarray) -> np.ndarray:
    return engine.orth(v, against if against.shape[1] else None)


def _scaled(values: np.ndarray | None, block: np.ndarray) -> np.ndarray:
    return block if values is None else block * values[:, None].astype(block.dtype, copy=False)


def low_rank_svd(
    engine: Any, left: np.ndarray, right: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """U, s, V of the product ``left right^T`` from orthonormal bases of both."""
    ql, qr = engine.orth(left), engine.orth(right)
    a, s, bt = svd(engine.inner(ql, left) @ engine.inner(qr, right).T, full_matrices=False)
    return engine.outer(ql, a), s, engine.outer(qr, bt.T)


def shrink(z: Triples, tau: float) -> Triples:
    """U diag(max(sigma - tau, 0)) V^T of the given triples; zero values are dropped."""
    keep = z.values > tau
    return z._replace(
        left=z.left[:, keep],
        values=z.values[keep] - tau,
        right=z.right[:, keep],
        residuals=z.residuals[keep],
    )


@held
def randomized_svd(
    a: Any,
    k: int,
    *,
    oversampling: int = 10,
    power_iterations: int = 2,
    single_pass: bool = False,
    random_state: Any = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """U, s, V with A ~ U diag(s) V^T, by a random range finder on products alone.

    Y = (A A^T)^q A Omega, Q = orth(Y), then the SVD of Q^T A. With ``single_pass`` the two sketches
    Y = A Omega and W = A^T Psi are taken in one pass over the entries and Q^T A is recovered from
    (Psi^T Q)(Q^T A) = W^T by least squares; ``power_iterations`` is then not used.

    Parameters
    ----------
    a : array, SciPy sparse matrix, LinearOperator, or any object with ``shape``, ``dtype``,
        ``times`` and ``times_t``
    k : number of triples
    oversampling : columns of the sketch beyond k
    power_iterations : q, each sharpens the decay of the spectrum by a factor sigma^2
    random_state : seed or generator

    >>> a = np.diag([5.0, 4.0, 1e-3, 1e-4])
    >>> randomized_svd(a, 2, random_state=0)[1].round(6).tolist()
    [5.0, 4.0]
    """
    z = operator(a)
    n, m = z.shape
    if not 0 <= k <= min(n, m):
        raise invalid("k", k, f"0 to {min(n, m)} for a matrix of {n} rows and {m} columns")
    rng = generator(random_state)
    width = min(k + max(0, oversampling), n, m)
    omega = normal(rng, (m, width), z.dtype)
    if single_pass:
        wide = min(2 * width + 1, n)
        psi = normal(rng, (n, wide), z.dtype)
        y, w = z.times(omega), z.times_t(psi)
        q = z.engine.orth(y)
        small = np.linalg.lstsq((psi.T @ q).astype(np.float64), w.T.astype(np.float64), rcond=None)[
            0
        ].T
    else:
        q = z.engine.orth(z.times(omega))
        for _ in range(power_iterations):
            q = z.engine.orth(z.times(z.engine.orth(z.times_t(q))))
        small = z.times_t(q).astype(np.float64)
    v, s, ut = svd(small, full_matrices=False)
    kept = min(k, len(s))
    left, values, right = q @ ut[:kept].T.astype(z.dtype), s[:kept], v[:, :kept].astype(z.dtype)
    # the matrix has fewer directions than asked for: zeros with any orthonormal vectors
    if kept < k:
        left = np.hstack([left, _basis(z.engine, normal(rng, (n, k - kept), z.dtype), left)])
        right = np.hstack([right, _basis(z.engine, normal(rng, (m, k - kept), z.dtype), right)])
        values = np.append(values, np.zeros(k - kept))
    return left, values, right


def rank_one(
    a: Any, *, tol: float = 1e-12, max_iter: int = 10_000, random_state: Any = None
) -> tuple[np.ndarray, float, np.ndarray]:
    """The best rank-one approximation sigma u v^T by u <- A v / ||A v||, v <- A^T u / ||A^T u||.

    >>> u, sigma, v = rank_one(np.diag([3.0, 1.0]), random_state=0)
    >>> round(sigma, 9)
    3.0
    """
    z = operator(a)
    v = generator(random_state).standard_normal((z.shape[1], 1)).astype(z.dtype)
    v /= np.linalg.norm(v)
    u, sigma = np.zeros((z.shape[0], 1), z.dtype), 0.0
    for _ in range(max_iter):
        u = z.times(v)
        if (size := float(np.linalg.norm(u))) == 0.0:
            return u[:, 0], 0.0, v[:, 0]
        u = u / size
        v = z.times_t(u)
        before, sigma = sigma, float(np.linalg.norm(v))
        v = v / sigma
        if abs(sigma - before) <= tol * sigma:
            break
    return u[:, 0], sigma, v[:, 0]


class Solution(NamedTuple):
    """What a completion solver returns: B = U diag(s) V^T, U and V with orthonormal columns, and
    what it met on the way."""

    U: np.ndarray
    s: np.ndarray
    V: np.ndarray
    trace: Trace
    evidence: dict[str, Any]


class Norms(NamedTuple):
    """Frobenius, spectral and nuclear norm, and the squared error of the best approximation of each
    rank 0, 1, ..."""

    frobenius: float
    spectral: float
    nuclear: float
    tails: np.ndarray


def norms(values: np.ndarray) -> Norms:
    """Everything that the singular values alone tell.

    >>> norms(np.array([2.0, 1.0])).tails.tolist()
    [5.0, 1.0, 0.0]
    """
    s = np.sort(np.asarray(values, np.float64))[::-1]
    tails = np.append(np.cumsum((s**2)[::-1])[::-1], 0.0)
    return Norms(float(np.sqrt(tails[0])), float(s[0]) if len(s) else 0.0, float(s.sum()), tails)
