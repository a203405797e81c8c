"""The M step of Gaussian mixtures: from statistics to the components of greatest expected
likelihood, no variance below its floor.

    weight_z = N_z / N,   mean_z = sum q x / N_z,   S_z = scatter_z / N_z  (diag: its diagonal;
    spherical: their mean; tied: sum_z scatter_z / N)

The floor F = diag(f_j) is a share of each column's variance, and at least h_j^2 / (2 pi) where
column j is written in steps of h_j (whole years, tenths of a millimetre, grades): a density above 1
/ h_j would give one written value a probability above one, and components that serve a single
value, whose likelihood has no bound, would beat every group of rows. Over S >= F the maximiser of
-log |S| - tr(S^-1 S_z) keeps the eigenvectors of F^-1/2 S_z F^-1/2 and raises its eigenvalues to
one where they are less, so the constrained step is exact and the bound cannot fall. For factor
analysers, row j of [W, mean] solves the normal equations cross_j second^-1, and what is left of
square_j is the variance s_j >= f_j; then W and mean take over the moments of the codes (parameter
expansion, Liu, Rubin and Wu 1998), which is faster and as monotone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from eckart.decompositions import eigh, eigvalsh
from eckart.engines.protocol import Engine, Placed
from eckart.engines.protocol.mixtures import DIAGONAL, FactorStatistics, Gaussians, lower_root
from eckart.trace import Watcher, silent

FLOOR = 1e-6
"""Least variance of a component, as a share of the variance of the column."""
LOWEST = 1e-12
"""The same where ``reg_covar`` says what is added to variances."""
WITHIN = 1 / (2 * np.pi)
"""Least variance of a component in a column that is written in steps, in squares of the step: see
above."""
STEP_ROWS = 4096
"""Rows in which the steps of columns are looked for: the common divisor of so many values is that
of all, but for steps that are too fine to matter."""
NEAR = 1e-4
"""Share of a step by which a difference may miss its multiples: decimal fractions miss them by far
less, and values without a step by up to a half."""


@dataclass(frozen=True, eq=False)
class Scale:
    """What the data look like from afar: rows, weight, mean and variance of each column over what
    was observed."""

    rows: int
    weight: float
    mean: np.ndarray
    variance: np.ndarray
    gaps: bool
    steps: np.ndarray | None = None

    def floor(self, share: float) -> np.ndarray:
        """Least variances of a component: a share of those of the columns, and those of their steps
        where these are known."""
        least = share * self.sizes
        return least if self.steps is None else np.maximum(least, WITHIN * self.steps**2)

    @property
    def sizes(self) -> np.ndarray:
        """Variances, with a stand-in where a column does not vary."""
        some = self.variance[self.variance > 0]
        return np.where(self.variance > 0, self.variance, some.mean() if len(some) else 1.0)


def scale_of(
    x: Placed, weights: np.ndarray | None, engine: Engine, watch: Watcher = silent
) -> Scale:
    """One pass over the rows, as the E step of a single component near the first rows."""
    start = engine.rows_at(x, np.arange(64)).astype(np.float64)
    there = np.isfinite(start)
    anchor = np.where(there, start, 0.0).sum(axis=0) / np.maximum(there.sum(axis=0), 1)
    one = Gaussians("unit", np.ones(1), anchor[None], np.empty(0))
    s = engine.gaussian_statistics(x, one, watch)
    seen = np.broadcast_to(s.seen, s.mean.shape)[0]
    rows = int(s.weight) if weights is None else int(np.count_nonzero(weights))
    mean = np.where(seen > 0, s.mean[0], np.nan)
    return Scale(
        rows, s.weight, mean, s.scatter[0] / np.where(seen > 0, seen, 1.0), s.seen.shape[1] > 1
    )


def steps_of(x: Placed, scale: Scale, weights: np.ndarray | None, engine: Engine) -> np.ndarray:
    """For each column the step in which its values are written, from some rows with weight; 0 where
    there is none that matters."""
    usable = np.arange(scale.rows) if weights is None else np.flatnonzero(weights)
    taken = usable[
        np.unique(np.linspace(0, len(usable) - 1, min(len(usable), STEP_ROWS)).astype(np.int64))
    ]
    rows, finest = engine.rows_at(x, taken), np.sqrt(FLOOR * scale.sizes / WITHIN)
    return np.array([common_step(column, fine) for column, fine in zip(rows.T, finest)])


def common_step(values: np.ndarray, finest: float) -> float:
    """The largest h of which all differences are multiples, to rounding; 0 where it is below
    ``finest``, or where there are no two values.

    Euclid's algorithm on all differences at once: what they leave when divided by the least of
    them, until nothing is left.

    >>> common_step(np.array([2007.0, 2009.0, 2012.0, 2009.0]), 0.01), common_step(np.array([0.0, 1.0, np.sqrt(2.0)]), 0.01)
    (1.0, 0.0)
    """
    seen = values[np.isfinite(values)]
    noise = (
        64 * np.finfo(values.dtype).eps * float(np.abs(seen).max(initial=0.0))
    )  # of a decimal fraction and a few sums of it
    left = np.diff(np.unique(seen)).astype(np.float64)
    left, step = left[left > noise], 0.0
    while len(left):
        step = float(left.min())
        if step <= max(finest, 4 * noise):
            return 0.0
        rest = np.abs(left - step * np.round(left / step))
        rest = np.unique(
            rest[rest > max(2 * noise, NEAR * step)]
        )  # a difference has the noise of two values, a multiple of the step that of all its steps
        left = np.append(rest, step) if len(rest) else rest
    return step


@dataclass(frozen=True, eq=False)
class Rules:
    """How components are made: kind, floor of the variances (one for each column), what is added to
    them."""

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
            total, least = seen.sum(axis=1), self.floor.mean()
            mine = np.divide(s.scatter.sum(axis=1), total, out=np.full(k, least), where=total > 0)
            spread = np.maximum(mine + self.reg, least)
        elif self.kind == "diag":
            spread = np.maximum(
                np.where(seen > 0, s.scatter / safe, self.floor) + self.reg, self.floor
            )
        elif self.kind == "tied":
            spread = self.raised((s.scatter / s.counts.sum())[None])[0]
        else:
            spread = self.raised(s.scatter / safe[:, :1, None])
        return Gaussians(self.kind, weights, s.mean, spread)

    def raised(self, stack: np.ndarray) -> np.ndarray:
        """Every S of a stack with ``reg`` on its diagonal, no eigenvalue (relative to the floor)
        below one."""
        stack = 0.5 * (stack + stack.transpose(0, 2, 1))
        at = np.arange(len(self.floor))
        stack[:, at, at] += self.reg
        root = np.sqrt(self.floor)
        size = np.outer(root, root)
        scaled = stack / size
        try:
            np.linalg.cholesky(scaled - np.eye(len(root)))
            return stack
        except np.linalg.LinAlgError:
            for z, s in enumerate(scaled):
                # a tenth of the time of eigenvalues, and most components are far from the floor
                try:
                    np.linalg.cholesky(s - np.eye(len(root)))
                    continue
                except np.linalg.LinAlgError:
                    values, vectors = eigh(s)
                if values[0] < 1.0:
                    lifted = (vectors * np.maximum(values, 1.0)) @ vectors.T
                    stack[z] = 0.5 * (lifted + lifted.T) * size
            return stack

    def _factors(self, s: FactorStatistics, weights: np.ndarray) -> Gaussians:
        k, n, wide = s.cross.shape
        assert self.origin is not None
        means, spread, loadings = np.empty((k, n)), np.empty((k, n)), np.empty((k, n, wide - 1))
        for z in range(k):
            count = max(float(s.counts[z]), 1e-300)
            second = s.second[z] if count > 1e-12 * s.weight else s.second[z] + np.eye(wide)
            both = _times_inverse(s.cross[z], second)
            left = s.square[z] - np.einsum("ij,ij->i", both, s.cross[z])
            spread[z] = np.maximum(left / count + self.reg, self.floor)
            code = second[:-1, -1] / second[-1, -1]
            inner = second[:-1, :-1] / second[-1, -1] - np.outer(code, code)
            loadings[z] = both[:, :-1] @ lower_root(inner)
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
            stack = theta.spread.reshape(-1, theta.n, theta.n)
            spread = Rules(self.kind, self.floor).raised(stack).reshape(theta.spread.shape)
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
        least = eigvalsh(stack / np.outer(root, root))[:, 0]
        # rounding of an eigenvalue that was raised to one, with room
        return np.flatnonzero(least <= 1 + 1e-6).tolist()


def _times_inverse(cross: np.ndarray, second: np.ndarray) -> np.ndarray:
    """cross second^-1 of sums over codes; of least norm where rounding left the codes dependent, as
    where they are huge beside the 1 next to them."""
    try:
        return np.linalg.solve(second, cross.T).T
    except np.linalg.LinAlgError:
        return np.linalg.lstsq(second, cross.T)[0].T


@dataclass(eq=False)
class GaussianProblem:
    """Rows and rules: the two steps of EM for ``em.climb``."""

    x: Placed
    rules: Rules
    engine: Engine

    def expect(self, theta: Gaussians) -> Any:
        return self.engine.gaussian_statistics(self.x, theta)

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
