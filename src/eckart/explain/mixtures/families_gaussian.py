"""Gaussian components as a family for ``Mixture``."""

from __future__ import annotations

import numpy as np

from eckart.engines.protocol.mixtures import DIAGONAL, KINDS, LOG_2PI, Gaussians, GaussianStatistics
from eckart.errors import invalid
from eckart.explain.mixtures.gaussian_steps import FLOOR, Rules, draw, free_parameters

Parameters = dict[str, np.ndarray]


class Gaussian:
    """Gaussian components with the covariances of ``GaussianMixture``; ``GaussianMixture`` is
    faster and knows more.

    >>> Gaussian("diag").weighted_fit(np.array([[0.0], [2.0]]), np.ones((2, 1)))["spread"].tolist()
    [[1.0]]
    """

    def __init__(self, covariance_type: str = "full"):
        if covariance_type not in KINDS[:-1]:
            raise invalid("covariance_type", covariance_type, ", ".join(map(repr, KINDS[:-1])))
        self.kind = covariance_type
        self.floor: np.ndarray | None = None

    @property
    def gaps(self) -> bool:
        """Whether missing entries are understood: where columns are independent given the
        component."""
        return self.kind in DIAGONAL

    @property
    def name(self) -> str:
        return f"gaussian {self.kind}"

    def for_data(self, sizes: np.ndarray) -> Gaussian:
        """The same with a floor for the variances, a share of those of the columns."""
        out = Gaussian(self.kind)
        out.floor = FLOOR * sizes
        return out

    def log_prob(self, x: np.ndarray, parameters: Parameters) -> np.ndarray:
        theta = self.gaussians(np.ones(len(parameters["means"])), parameters)
        if self.kind not in DIAGONAL:
            roots = theta.roots[None] if self.kind == "tied" else theta.roots
            squares = [
                (((x - m) @ roots[z % len(roots)]) ** 2).sum(axis=1)
                for z, m in enumerate(theta.means)
            ]
            return theta.constants - 0.5 * np.array(squares).T
        seen = ~np.isnan(x)
        squares = [
            np.where(seen, x - m, 0.0) ** 2 @ (1.0 / v)
            for m, v in zip(theta.means, theta.variances)
        ]
        return -0.5 * (seen @ (np.log(theta.variances) + LOG_2PI).T + np.array(squares).T)

    def weighted_fit(self, x: np.ndarray, q: np.ndarray) -> Parameters:
        counts = q.sum(axis=0)
        seen = ~np.isnan(x)
        mass = q.T @ seen if not seen.all() else counts[:, None]
        filled = np.where(seen, x, 0.0)
        mean = q.T @ filled / np.where(mass > 0, mass, 1.0)
        d = [np.where(seen, x - m, 0.0) for m in mean]
        if self.kind in DIAGONAL:
            scatter = np.array([q[:, z] @ d[z] ** 2 for z in range(len(counts))])
        else:
            scatter = np.array([d[z].T @ (q[:, z, None] * d[z]) for z in range(len(counts))])
            scatter = scatter.sum(axis=0) if self.kind == "tied" else scatter
        return self.maximise(
            GaussianStatistics(self.kind, float(counts.sum()), 0.0, counts, mass, mean, scatter)
        )

    def maximise(self, s: GaussianStatistics) -> Parameters:
        floor = np.full(s.mean.shape[1], 1e-12) if self.floor is None else self.floor
        theta = Rules(self.kind, floor).maximise(s)
        return {"means": theta.means} | ({} if self.kind == "unit" else {"spread": theta.spread})

    def draw(
        self, parameters: Parameters, labels: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        return draw(self.gaussians(np.ones(len(parameters["means"])), parameters), labels, rng)

    def n_parameters(self, k: int, n: int) -> int:
        return free_parameters(self.kind, k, n) - (k - 1)

    def gaussians(self, weights: np.ndarray, parameters: Parameters) -> Gaussians:
        """The components, for primitives of engines that know Gaussians."""
        return Gaussians(
            self.kind, weights, parameters["means"], parameters.get("spread", np.empty(0))
        )
