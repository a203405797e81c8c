"""What every mixture can be asked once it is fitted: densities, posteriors, labels, criteria,
samples, outliers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from eckart.bases import DensityMixin
from eckart.engines.protocol.mixtures import Posteriors
from eckart.errors import InputError, invalid
from eckart.fit import Estimator, fitted, require_room, sample_weights
from eckart.io.namespaces import in_kind
from eckart.matrix import WIDELY, Dense, Matrix, squarable
from eckart.parameters import whole
from eckart.rng import generator
from eckart.trace import StopReason

DRAWS, FEW = 4096, 64
"""Draws that a quantile is taken from; fewer where there are more patterns of missing entries than
that."""


class MixtureVerbs(DensityMixin, Estimator, ABC):
    """Verbs of a fitted mixture; below, a model says how posteriors, draws and free parameters come
    about."""

    @abstractmethod
    def _posteriors(self, matrix: Matrix, shares: bool = False) -> Posteriors:
        """Log-likelihoods of rows and, where asked for, shares of the components."""

    @abstractmethod
    def _draw(self, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """One row from each of these components."""

    @abstractmethod
    def _n_parameters(self) -> int:
        """Free parameters."""

    @property
    def _dtype(self) -> np.dtype:
        return np.dtype(self.fit_.plan.get("dtype", "float64"))

    @fitted
    def weights_(self) -> np.ndarray:
        """Share of each component."""
        return self._fitted("weights_").factors.weights.astype(self._dtype)

    @fitted
    def n_components_(self) -> int:
        """How many components there are."""
        return self._fitted("n_components_").factors.k

    @fitted
    def n_iter_(self) -> int:
        """EM steps of the best start; where nothing was left to be done, that was seen in one."""
        trace = self._fitted("n_iter_").trace
        done = trace.reason in (StopReason.CONVERGED, StopReason.DIRECT)
        return max(len(trace) - 1, int(done))

    @fitted
    def converged_(self) -> bool:
        """Whether the stopping rule was met."""
        return self._fitted("converged_").trace.reason is StopReason.CONVERGED

    @fitted
    def lower_bound_(self) -> float:
        """Mean log-likelihood at the returned components."""
        return float(self._fitted("lower_bound_").certificate["bound"])

    @fitted
    def lower_bounds_(self) -> list[float]:
        """The same before each of the ``n_iter_`` steps, as scikit-learn lists them;
        ``lower_bound_`` is that after the last."""
        return list(self._fitted("lower_bounds_").trace.values[: self.n_iter_])

    @in_kind
    def score_samples(self, X: Any) -> np.ndarray:
        """log p(x) of each row; of its observed entries where some are missing."""
        return self._loglik(X).astype(self._dtype, copy=False)

    def _loglik(self, X: Any) -> np.ndarray:
        """log p(x) of each row in double precision, for sums."""
        return self._posteriors(self._new_rows(X)).loglik

    @in_kind
    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Mean of ``score_samples``, weighted where weights are given."""
        loglik = self._loglik(X)
        w = sample_weights(sample_weight, len(loglik))
        return float(loglik.mean() if w is None else w @ np.where(w > 0, loglik, 0.0) / w.sum())

    @in_kind
    def predict_proba(self, X: Any) -> np.ndarray:
        """Posterior shares q_tz of every row, rows x k."""
        shares = self._posteriors(self._new_rows(X), shares=True).shares
        assert shares is not None
        return shares.astype(self._dtype)

    @in_kind
    def predict(self, X: Any) -> np.ndarray:
        """The component with the largest share, for each row."""
        shares = self._posteriors(self._new_rows(X), shares=True).shares
        assert shares is not None
        return shares.argmax(axis=1)

    @in_kind
    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> np.ndarray:
        """fit(X), then predict(X)."""
        return self.fit(X, sample_weight=sample_weight).predict(X)  # type: ignore[attr-defined]

    @in_kind
    def bic(self, X: Any, sample_weight: Any = None) -> float:
        """-2 log-likelihood + parameters log(rows), lower is better; rows and likelihood are
        weighted where weights are given."""
        total, weight = self._total(X, sample_weight)
        return -2 * total + self._n_parameters() * float(np.log(weight))

    @in_kind
    def aic(self, X: Any, sample_weight: Any = None) -> float:
        """-2 log-likelihood + 2 parameters, lower is better."""
        return -2 * self._total(X, sample_weight)[0] + 2 * self._n_parameters()

    def _total(self, X: Any, sample_weight: Any) -> tuple[float, float]:
        loglik = self._loglik(X)
        w = sample_weights(sample_weight, len(loglik))
        if w is None:
            return float(loglik.sum()), float(len(loglik))
        return float(w @ np.where(w > 0, loglik, 0.0)), float(w.sum())

    def sample(self, n_samples: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Rows drawn from the mixture, and the component of each; ordered by component."""
        f = self._fitted("sample").factors
        if not whole(1).fits(n_samples):
            error = invalid("n_samples", n_samples, whole(1).wanted)
            raise InputError(f"Invalid value for 'n_samples': {error}", code=error.code)
        require_room("n_samples", n_samples, float(n_samples) * (f.n + 1))
        rng = generator(self.random_state)
        labels = np.repeat(np.arange(f.k), rng.multinomial(n_samples, f.weights / f.weights.sum()))
        return self._draw(labels, rng).astype(self._dtype), labels

    @in_kind
    def outlier_score(self, X: Any, *, quantile: bool = False) -> np.ndarray:
        """How surprising each row is: -log p(x); or, with ``quantile``, the share of draws from the
        mixture that surprise less.

        A row with missing entries is compared with draws that miss the same ones. A quantile near 1
        marks an outlier.
        """
        matrix = self._new_rows(X)
        surprise = -self._posteriors(matrix).loglik
        if not quantile:
            return surprise
        f = self.fit_.factors
        rng = np.random.default_rng(0)
        engine = self._engine()
        groups = engine.gap_patterns(engine.put(matrix))
        count = max(DRAWS * FEW // max(len(groups), FEW), 256)
        draws = self._draw(rng.choice(f.k, count, p=f.weights / f.weights.sum()), rng)
        out = np.empty(len(surprise))
        for rows, seen in groups:
            masked = np.where(seen, draws, np.nan)
            usual = np.sort(-self._posteriors(Dense(masked)).loglik)
            out[rows] = np.searchsorted(usual, surprise[rows]) / count
        return out


def readable_twice(matrix: Matrix) -> Matrix:
    """The matrix, refused where its rows can be read once only or its entries cannot be squared."""
    if isinstance(matrix, Dense) and not matrix.in_memory and not matrix.stream.rereadable:
        raise InputError(
            "X is an iterator that can be read once only, EM reads its rows many times; "
            "pass a list of blocks or a file, or call partial_fit on each block"
        )
    return squarable(matrix, WIDELY)
