"""Gaussian components and the statistics that an E step leaves of the rows: what the mixture
primitives take and give.

    p(x) = sum_z weights_z N(x; mean_z, S_z),      S_z by kind:

    unit       I                               spherical  spread_z I
    diag       diag(spread_z)                  tied       spread, one for all
    full       spread_z                        factor     loadings_z loadings_z^T + diag(spread_z)

Statistics are sums over rows with weights w_t q_tz; those of parts of the rows are put together by
``merge``. All numbers are float64.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from eckart.decompositions import eigh
from eckart.engines.protocol.placed import Tall
from eckart.trace import Watcher, silent

LOG_2PI = float(np.log(2 * np.pi))
DIAGONAL = ("unit", "spherical", "diag")
KINDS = (*DIAGONAL, "tied", "full", "factor")
TINY = 1e-300
"""In the place of a zero whose logarithm is taken."""


@dataclass(frozen=True, eq=False)
class Gaussians:
    """The components; ``spread`` has the shape (0,), (k,), (k, n), (n, n), (k, n, n) or, for
    factor, (k, n) with ``loadings`` (k, n, r).

    ``origin`` is the point that the moments of kind factor are taken about: near the mean of the
    data.

    >>> g = Gaussians("spherical", np.array([1.0]), np.zeros((1, 2)), np.array([4.0]))
    >>> g.covariance(0).tolist(), round(float(g.constants[0]), 4)
    ([[4.0, 0.0], [0.0, 4.0]], -3.2242)
    """

    kind: str
    weights: np.ndarray
    means: np.ndarray
    spread: np.ndarray
    loadings: np.ndarray | None = None
    origin: np.ndarray | None = None

    @property
    def k(self) -> int:
        return len(self.weights)

    @property
    def n(self) -> int:
        return self.means.shape[1]

    @cached_property
    def variances(self) -> np.ndarray:
        """k x n: the diagonals of the covariances, of their diagonal part for kind factor."""
        if self.kind == "unit":
            return np.ones((self.k, self.n))
        if self.kind == "spherical":
            return np.repeat(self.spread[:, None], self.n, axis=1)
        if self.kind == "tied":
            return np.tile(np.diagonal(self.spread), (self.k, 1))
        return (
            np.diagonal(self.spread, axis1=1, axis2=2).copy()
            if self.kind == "full"
            else self.spread
        )

    def covariance(self, z: int) -> np.ndarray:
        """S_z, n x n."""
        if self.kind == "tied":
            return self.spread
        if self.kind == "full":
            return self.spread[z]
        out = np.diag(self.variances[z])
        return out if self.loadings is None else out + self.loadings[z] @ self.loadings[z].T

    @cached_property
    def roots(self) -> np.ndarray:
        """Upper triangular C with C C^T = S^-1 (tied: n x n, full: k x n x n), so that (x - m)^T
        S^-1 (x - m) = ||(x - m) C||^2."""
        return inverse_roots(self.spread)

    @cached_property
    def latent(self) -> tuple[np.ndarray, np.ndarray]:
        """Kind factor: P = diag(1/spread) loadings (k, n, r) and M = I + loadings^T P (k, r, r), so
        that S^-1 = diag(1/spread) - P M^-1 P^T."""
        assert self.loadings is not None
        p = self.loadings / self.spread[:, :, None]
        return p, np.eye(p.shape[2]) + np.matmul(self.loadings.transpose(0, 2, 1), p)

    @cached_property
    def constants(self) -> np.ndarray:
        """log weight_z - 1/2 log det(2 pi S_z)."""
        if self.kind in DIAGONAL:
            half = -0.5 * np.log(self.variances).sum(axis=1)
        elif self.kind in ("tied", "full"):
            half = np.log(np.diagonal(self.roots, axis1=-2, axis2=-1)).sum(axis=-1)
        else:
            half = -0.5 * (np.log(self.spread).sum(axis=1) + np.linalg.slogdet(self.latent[1])[1])
        return self.log_weights + half - 0.5 * self.n * LOG_2PI

    @property
    def log_weights(self) -> np.ndarray:
        return np.log(np.maximum(self.weights, TINY))


def inverse_roots(covariance: np.ndarray) -> np.ndarray:
    """Upper triangular C with C C^T = S^-1 for one matrix or a stack; where rounding left S
    indefinite, its small eigenvalues are raised."""
    from scipy.linalg.lapack import dtrtri

    stack = covariance if covariance.ndim == 3 else covariance[None]
    try:
        lower = np.linalg.cholesky(stack)
    except np.linalg.LinAlgError:
        lower = np.array([lower_root(s) for s in stack])
    # LAPACK reads columns first: the lower triangle of L is the upper one of L^T, and C = (L^-1)^T
    # = (L^T)^-1
    roots = np.array([dtrtri(low.T, lower=0)[0] for low in lower])
    return roots if covariance.ndim == 3 else roots[0]


def lower_root(s: np.ndarray) -> np.ndarray:
    """Lower triangular L with L L^T = S, or near it where S is not positive definite."""
    try:
        return np.linalg.cholesky(s)
    except np.linalg.LinAlgError:
        values, vectors = eigh(s)
        # what rounding may hide in an eigenvalue
        floor = max(values[-1] * len(values) * np.finfo(float).eps, TINY)
        lower = np.asarray(
            np.linalg.qr((vectors * np.sqrt(np.maximum(values, floor))).T, mode="r")
        ).T
        return lower * np.sign(np.diagonal(lower))


@dataclass(frozen=True, eq=False)
class GaussianStatistics:
    """``weight`` = sum w, ``bound`` = sum w log p(x), ``counts`` = sum w q (k), ``mean`` (k, n) and
    ``scatter`` about it: (k, n) squares for diagonal kinds, (k, n, n) for full, (n, n) for tied.
    ``seen`` is the weight behind each mean: (k, 1), or (k, n) where entries are missing."""

    kind: str
    weight: float
    bound: float
    counts: np.ndarray
    seen: np.ndarray
    mean: np.ndarray
    scatter: np.ndarray

    def merge(self, other: GaussianStatistics) -> GaussianStatistics:
        """Both parts together, by the pairwise update."""
        total = self.seen + other.seen
        share = other.seen / np.where(total > 0, total, 1.0)
        delta = other.mean - self.mean
        factor = self.seen * share
        return GaussianStatistics(
            self.kind,
            self.weight + other.weight,
            self.bound + other.bound,
            self.counts + other.counts,
            total,
            self.mean + delta * share,
            self.scatter + other.scatter + _between(self.kind, factor, delta),
        )

    def scaled(self, factor: float) -> GaussianStatistics:
        """As if every row had ``factor`` times its weight."""
        changed = {
            name: factor * getattr(self, name)
            for name in ("weight", "bound", "counts", "seen", "scatter")
        }
        return replace(self, **changed)


def _between(kind: str, factor: np.ndarray, delta: np.ndarray) -> np.ndarray:
    """sum over components (or for each) of factor delta delta^T, or its diagonal."""
    if kind in DIAGONAL:
        return factor * delta**2
    if kind == "tied":
        return (factor * delta).T @ delta
    return (factor * delta)[:, :, None] * delta[:, None, :]


@dataclass(frozen=True, eq=False)
class FactorStatistics:
    """With a = (z, 1) and y = x - origin: ``second`` = sum w q E[a a^T] (k, r+1, r+1), ``cross`` =
    sum w q E[y a^T] (k, n, r+1), ``square`` = sum w q E[y^2] (k, n)."""

    kind: str
    weight: float
    bound: float
    counts: np.ndarray
    second: np.ndarray
    cross: np.ndarray
    square: np.ndarray

    def merge(self, other: FactorStatistics) -> FactorStatistics:
        sums = {name: getattr(self, name) + getattr(other, name) for name in _FACTOR_SUMS}
        return replace(self, **sums)

    def scaled(self, factor: float) -> FactorStatistics:
        return replace(self, **{name: factor * getattr(self, name) for name in _FACTOR_SUMS})


_FACTOR_SUMS = ("weight", "bound", "counts", "second", "cross", "square")


class Posteriors(NamedTuple):
    """log p(x_t) of the observed entries of each row, q_tz where asked for, and E[x_t | observed]
    with its variances where asked for."""

    loglik: np.ndarray
    shares: np.ndarray | None = None
    filled: np.ndarray | None = None
    variance: np.ndarray | None = None


class Linear(NamedTuple):
    """A log density that is linear in the entries of a row: log p(x; theta_z) = sum over seen
    entries of entries_zj x_j + seen_zj, and, where rows are ``counted``, the multinomial
    coefficient log (sum x)! - sum log x_j!.

    A family with ``linear(parameters)`` that answers so, ``within`` (the least and the largest
    entry that it can explain) and ``summed(entries, seen, counts)``, which makes its statistics of
    sum q x_j, sum q over rows that see j (both k x n) and sum q (k), can be worked on by every
    engine.
    """

    entries: np.ndarray
    seen: np.ndarray | None = None
    counted: bool = False


def raw_to_statistics(theta: Gaussians, sums: Any) -> GaussianStatistics:
    """From sums about the means of theta (``counts``, ``seen``, ``shift``, ``scatter``, ``weight``,
    ``bound``) to statistics about their own means."""
    seen = sums.counts[:, None] if sums.seen is None else sums.seen
    move = sums.shift / np.where(seen > 0, seen, 1.0)
    scatter = sums.scatter - _between(theta.kind, seen, move)
    if theta.kind in DIAGONAL:
        scatter = np.maximum(scatter, 0.0)
    return GaussianStatistics(
        theta.kind, sums.weight, sums.bound, sums.counts, seen, theta.means + move, scatter
    )


class GroupSums(NamedTuple):
    """Rows by their nearest centre: ``counts`` = sum w (k), ``sums`` = sum w x (k x n)."""

    counts: np.ndarray
    sums: np.ndarray

    def merge(self, other: GroupSums) -> GroupSums:
        return GroupSums(self.counts + other.counts, self.sums + other.sums)


class MixturesFamily(Protocol):
    """Rows under a mixture. Weights of rows are those that the placed matrix has; NaN and absent
    entries of Observed are missing."""

    def gaussian_statistics(self, x: Any, theta: Any, watch: Watcher = silent) -> Any:
        """The E step of ``Gaussians`` over all rows, missing entries integrated out:
        GaussianStatistics or FactorStatistics."""
        ...

    def share_statistics(self, x: Any, shares: Tall, kind: str) -> GaussianStatistics:
        """The same sums (not those of kind factor) of complete rows in memory whose shares (rows x
        k) are given; the bound is 0."""
        ...

    def gaussian_posteriors(
        self, x: Any, theta: Any, *, shares: bool = False, fill: bool = False
    ) -> Any:
        """``Posteriors`` of every row: log p, with shares of the components and expected entries
        where asked for."""
        ...

    def check_family(self, x: Any, family: Any) -> None:
        """Refuse the first row that a family cannot explain: an infinity, what
        ``family.check(block, first_row)`` refuses, and (by GapsFound) NaN where the family has no
        ``gaps``."""
        ...

    def family_statistics(
        self, x: Any, family: Any, weights: np.ndarray, parameters: Any
    ) -> tuple[float, float, np.ndarray, Any]:
        """The E step of a mixture of any family: sum w, sum w log p, sum w q of each component, and
        the family's own statistics."""
        ...

    def family_posteriors(self, x: Any, family: Any, weights: np.ndarray, parameters: Any) -> Any:
        """``Posteriors`` with shares."""
        ...

    def rows_at(self, x: Any, rows: np.ndarray | None = None) -> np.ndarray:
        """Rows of these numbers (ascending; those beyond the end are left out), or all: on the
        host, in the precision of x, NaN where missing."""
        ...

    def gap_patterns(self, x: Any) -> list[tuple[np.ndarray, np.ndarray]]:
        """(rows, mask of the columns that they see) for every pattern of missing entries."""
        ...

    def distances(self, x: Any, centres: np.ndarray) -> Tall:
        """Squared distances of rows (in memory, as for the next two) from centres, rows x
        centres."""
        ...

    def group_sums(self, x: Any, centres: np.ndarray) -> GroupSums:
        """Rows summed by their nearest centre, the first of those as near."""
        ...

    def nearest(self, x: Any, centres: np.ndarray) -> Tall:
        """The number of the nearest centre of each row."""
        ...
