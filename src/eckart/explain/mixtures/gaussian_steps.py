"""The M step of Gaussian mixtures: from statistics to the components of greatest expected likelihood, no variance below its floor.

    weight_z = N_z / N,   mean_z = sum q x / N_z,   S_z = scatter_z / N_z  (diag: its diagonal; spherical: their mean; tied: sum_z scatter_z / N)

The floor F = diag(f_j) is a share of each column's variance. Over S >= F the maximiser of -log |S| - tr(S^-1 S_z) keeps the eigenvectors of F^-1/2 S_z F^-1/2
and raises its eigenvalues to one where they are less, so the constrained step is exact and the bound cannot fall. For factor analysers, row j of
[W, mean] solves the normal equations cross_j second^-1, and what is left of square_j is the variance s_j >= f_j; then W and mean take over the
moments of the codes (parameter expansion, Liu, Rubin and Wu 1998), which is faster and as monotone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from eckart.engines.protocol import Engine
from eckart.engines.protocol.mixtures import DIAGONAL, FactorStatistics, Gaussians
from eckart.matrix import Matrix
from eckart.trace import Watcher, silent

FLOOR = 1e-6
"""Least variance of a component, as a share of the variance of the column."""
LOWEST = 1e-12
"""The same where ``reg_covar`` says what is added to variances."""


@dataclass(frozen=True, eq=False)
class Scale:
    """What the data look like from afar: rows, weight, mean and variance of each column over what was observed."""

    rows: int
    weight: float
    mean: np.ndarray
    variance: np.ndarray
    gaps: bool

    @property
    def sizes(self) -> np.ndarray:
        """Variances, with a stand-in where a column does not vary."""
        some = self.variance[self.variance > 0]
        return np.where(self.variance > 0, self.variance, some.mean() if len(some) else 1.0)


def scale_of(x: Matrix, weights: np.ndarray | None, engine: Engine, watch: Watcher = silent) -> Scale:
    """One pass over the rows, as the E step of a single component near the first rows."""
    from eckart.engines.cpu.row_blocks import jobs

    start = np.array(next(iter(jobs(x)))[2]({})[:64], np.float64)
    there = np.isfinite(start)
    anchor = np.where(there, start, 0.0).sum(axis=0) / np.maximum(there.sum(axis=0), 1)
    one = Gaussians("unit", np.ones(1), anchor[None], np.empty(0))
    s = engine.gaussian_statistics(x, one, weights, watch)
    seen = np.broadcast_to(s.seen, s.mean.shape)[0]
    rows = int(s.weight) if weights is None else int(np.count_nonzero(weights))
    mean = np.where(seen > 0, s.mean[0], np.nan)
    return Scale(rows, s.weight, mean, s.scatter[0] / np.where(seen > 0, seen, 1.0), s.seen.shape[1] > 1)


@dataclass(frozen=True, eq=False)
class Rules:
    """How components are made: kind, floor of the variances (one for each column), what is added to them."""

    kind: str
    floor: np.ndarray
    reg: float = 0.0
    factors: int = 0
    origin: np.ndarray | None = None

    def maximise(self, s: Any) -> Gaussians:
        """The components of greatest expected likelihood."""
        weights = s.counts / max(float(s.counts.sum()), 1e-300)
        if isinstance(s, FactorStatistics):
            return self._factors(s, weights)
        k, n = s.mean.shape
        seen = np.broadcast_to(s.seen, (k, n))
        safe = np.where(seen > 0, seen, 1.0)
        if self.kind == "unit":
            spread = np.empty(0)
        elif self.kind == "spherical":
            total = seen.sum(axis=1)
            mine = s.scatter.sum(axis=1) / np.where(total > 0, total, 1.0)
            spread = np.maximum(np.where(total > 0, mine, self.floor.mean()) + self.reg, self.floor.mean())
        elif self.kind == "diag":
            spread = np.maximum(np.where(seen > 0, s.scatter / safe, self.floor) + self.reg, self.floor)
        elif self.kind == "tied":
            spread = self.raised(s.scatter / s.counts.sum())
        else:
            spread = np.array([self.raised(a / c[0]) for a, c in zip(s.scatter, safe)])
        return Gaussians(self.kind, weights, s.mean, spread)

    def raised(self, s: np.ndarray) -> np.ndarray:
        """S with ``reg`` on its diagonal, no eigenvalue (relative to the floor) below one."""
        s = 0.5 * (s + s.T)
        s[np.diag_indices(len(s))] += self.reg
        root = np.sqrt(self.floor)
        scaled = s / np.outer(root, root)
        try:
            np.linalg.cholesky(scaled - np.eye(len(s)))
            return s
        except np.linalg.LinAlgError:
            values, vectors = np.linalg.eigh(scaled)
            lifted = (vectors * np.maximum(values, 1.0)) @ vectors.T
            return 0.5 * (lifted + lifted.T) * np.outer(root, root)

    def _factors(self, s: FactorStatistics, weights: np.ndarray) -> Gaussians:
        k, n, wide = s.cross.shape
        assert self.origin is not None
        means, spread, loadings = np.empty((k, n)), np.empty((k, n)), np.empty((k, n, wide - 1))
        for z in range(k):
            count = max(float(s.counts[z]), 1e-300)
            second = s.second[z] if count > 1e-12 * s.weight else s.second[z] + np.eye(wide)
            both = np.linalg.solve(second, s.cross[z].T).T
            left = s.square[z] - np.einsum("ij,ij->i", both, s.cross[z])
            spread[z] = np.maximum(left / count + self.reg, self.floor)
            code = second[:-1, -1] / second[-1, -1]
            inner = second[:-1, :-1] / second[-1, -1] - np.outer(code, code)
            loadings[z] = both[:, :-1] @ np.linalg.cholesky(inner)
            means[z] = both[:, -1] + both[:, :-1] @ code + self.origin
        return Gaussians(self.kind, weights, means, spread, loadings, self.origin)

    def admit(self, theta: Gaussians) -> Gaussians:
        """Components from elsewhere, their variances raised to the floor."""
        if self.kind == "unit":
            return theta
        if self.kind == "spherical":
            spread = np.maximum(theta.spread, self.floor.mean())
        elif self.kind in ("diag", "factor"):
            spread = np.maximum(theta.spread, self.floor)
        else:
            bare = Rules(self.kind, self.floor)
            spread = (
                bare.raised(theta.spread) if self.kind == "tied" else np.array([bare.raised(a) for a in theta.spread])
            )
        return Gaussians(self.kind, theta.weights, theta.means, spread, theta.loadings, self.origin)

    def at_floor(self, theta: Gaussians) -> list[int]:
        """Components with a direction in which they have no more than the least variance."""
        if self.kind == "unit":
            return []
        if self.kind in (*DIAGONAL, "factor"):
            floor = self.floor.mean() if self.kind == "spherical" else self.floor
            return [z for z in range(theta.k) if (theta.variances[z] <= floor * (1 + 1e-9)).any()]
        root = np.sqrt(self.floor)
        stack = theta.spread[None] if self.kind == "tied" else theta.spread
        return [z for z, s in enumerate(stack) if np.linalg.eigvalsh(s / np.outer(root, root))[0] <= 1 + 1e-6]


@dataclass(eq=False)
class GaussianProblem:
    """Rows and rules: the two steps of EM for ``em.climb``."""

    x: Matrix
    weights: np.ndarray | None
    rules: Rules
    engine: Engine

    def expect(self, theta: Gaussians) -> Any:
        return self.engine.gaussian_statistics(self.x, theta, self.weights)

    def maximise(self, statistics: Any) -> Gaussians:
        return self.rules.maximise(statistics)


def free_parameters(kind: str, k: int, n: int, factors: int = 0) -> int:
    """Numbers that a mixture of this kind can choose; loadings up to a rotation."""
    spread = {
        "unit": 0,
        "spherical": k,
        "diag": k * n,
        "tied": n * (n + 1) // 2,
        "full": k * n * (n + 1) // 2,
        "factor": k * (n * (factors + 1) - factors * (factors - 1) // 2),
    }[kind]
    return spread + k * n + k - 1


def draw(theta: Gaussians, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One row of the component of each label."""
    out, noise = theta.means[labels], rng.standard_normal((len(labels), theta.n))
    if theta.loadings is not None:
        codes = rng.standard_normal((len(labels), theta.loadings.shape[2]))
    for z in np.unique(labels):
        mine = labels == z
        if theta.kind in (*DIAGONAL, "factor"):
            out[mine] += noise[mine] * np.sqrt(theta.variances[z])
        else:
            root = theta.roots if theta.kind == "tied" else theta.roots[z]
            out[mine] += np.linalg.solve(root.T, noise[mine].T).T
        if theta.loadings is not None:
            out[mine] += codes[mine] @ theta.loadings[z].T
    return out
