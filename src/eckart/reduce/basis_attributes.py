"""What scikit-learn users read off a fitted linear model, all of it from the factors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from eckart.fit import fitted


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
