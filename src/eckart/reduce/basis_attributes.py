"""What scikit-learn users read off a fitted linear model, all of it from the factors.

A basis as a Gaussian: N(mean, U (L - s I) U^T + s I), s the mean variance that the components
leave out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from eckart.factors import Basis
from eckart.fit import fitted
from eckart.reduce.encode import encode, squared_errors
from eckart.reduce.missing import gaussian_of


class BasisAttributes:
    """Attributes of a model whose factors are a ``Basis`` (mixed into the estimators)."""

    if TYPE_CHECKING:

        def _fitted(self, name: str) -> Any: ...

    @fitted
    def components_(self) -> np.ndarray:
        """k x n: orthonormal directions as rows, by falling variance."""
        return self._fitted("components_").factors.components

    @fitted
    def mean_(self) -> np.ndarray:
        """Mean of the rows; zero where data were not centered."""
        return self._fitted("mean_").factors.mean

    @fitted
    def explained_variance_(self) -> np.ndarray:
        """Variance along each component, divisor N - 1."""
        return self._fitted("explained_variance_").factors.variances

    @fitted
    def explained_variance_ratio_(self) -> np.ndarray:
        """Share of the total variance of each component."""
        b = self._fitted("explained_variance_ratio_").factors
        return b.scatter / b.total if b.total > 0 else np.zeros(b.k)

    @fitted
    def singular_values_(self) -> np.ndarray:
        """Singular values of the centered data."""
        return np.sqrt(self._fitted("singular_values_").factors.scatter)

    @fitted
    def noise_variance_(self) -> float:
        """Mean variance of the directions left out."""
        return float(self._fitted("noise_variance_").factors.noise)

    @fitted
    def n_components_(self) -> int:
        return self._fitted("n_components_").factors.k

    @fitted
    def n_samples_(self) -> int:
        return self._fitted("n_samples_").factors.rows

    @fitted
    def n_samples_seen_(self) -> int:
        return self._fitted("n_samples_seen_").factors.rows

    @fitted
    def n_iter_(self) -> int:
        """Iterations of the solver; 1 for a direct one."""
        return max(1, len(self._fitted("n_iter_").trace))

    @fitted
    def n_rank_deficient_(self) -> int:
        """Components without variance: their whitened codes are zero."""
        b = self._fitted("n_rank_deficient_").factors
        return b.k - b.rank

    @property
    def _n_features_out(self) -> int:
        return self._fitted("n_components_").factors.k


LEAST = 1e-12
"""Share of the largest variance below which the noise is rounding: the covariance counts as
singular."""


def log_likelihoods(x: Any, b: Basis, engine: Any) -> np.ndarray:
    """Of each row of a placed matrix; with gaps, of its observed entries."""
    g = gaussian_of(b, LEAST)
    if x.kind == "observed":
        return engine.get(engine.gap_codes(x, g.w, g.mu, g.s2).loglik)
    codes = encode(x, b, engine).astype(np.float64)
    values = np.maximum(b.variances, g.s2)
    rest = np.maximum(squared_errors(x, b, engine), 0.0)
    log_det = float(np.log(values).sum()) + ((b.n - b.k) * np.log(g.s2) if b.n > b.k else 0.0)
    quadratic = (codes**2 / values).sum(axis=1) + (rest / g.s2 if b.n > b.k else 0.0)
    return -0.5 * (b.n * np.log(2 * np.pi) + log_det + quadratic)


def covariance(b: Basis) -> np.ndarray:
    """n x n."""
    gain = np.maximum(b.variances - b.noise, 0.0)
    u = b.components.astype(np.float64)
    return (u.T * gain) @ u + b.noise * np.eye(b.n)


def precision(b: Basis) -> np.ndarray:
    """Its inverse by the matrix inversion lemma; the pseudo-inverse where it is singular."""
    if b.noise <= LEAST * (float(b.variances[0]) if b.k else 1.0):
        return np.linalg.pinv(covariance(b), hermitian=True)
    u = b.components.astype(np.float64)
    return np.eye(b.n) / b.noise - (u.T * (1 / b.noise - 1 / np.maximum(b.variances, b.noise))) @ u
