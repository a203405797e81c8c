"""Dense and sparse rows against thin matrices; rows with gaps under a Gaussian: the primitives and their records. Shapes and letters as in ``protocol``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from eckart.matrix import Counts, Dense, Observed
from eckart.trace import Watcher, silent


@dataclass
class Moments:
    """Additive statistics of rows: weight = sum w, mean, and scatter = sum w (x - mean)(x - mean)^T, all in float64.

    ``merge`` is the pairwise update, so raw second moments are never subtracted. ``probe`` is a fixed vector g and ``probed`` the
    product scatter g accumulated on its own way through the data: comparing the two checks the arithmetic of ``scatter``.
    """

    rows: int
    weight: float
    mean: np.ndarray
    scatter: np.ndarray
    probe: np.ndarray
    probed: np.ndarray

    @classmethod
    def empty(cls, n: int, probe: np.ndarray) -> Moments:
        return cls(0, 0.0, np.zeros(n), np.zeros((n, n)), probe, np.zeros(n))

    def merge(self, rows: int, weight: float, mean: np.ndarray, scatter: np.ndarray, probed: np.ndarray) -> None:
        """Take in the statistics of other rows, in place."""
        if weight <= 0:
            self.rows += rows
            return
        total = self.weight + weight
        delta = mean - self.mean
        factor = self.weight * weight / total
        self.scatter += scatter
        self.probed += probed
        if factor > 0:
            self.scatter += np.outer(factor * delta, delta)
            self.probed += factor * delta * (delta @ self.probe)
        self.mean += delta * (weight / total)
        self.rows, self.weight = self.rows + rows, total

    def merge_with(self, other: Moments) -> None:
        self.merge(other.rows, other.weight, other.mean, other.scatter, other.probed)

    def probe_error(self, floor: float = 0.0) -> float:
        """||scatter g - probed|| / max(||probed||, floor): rounding only, if the statistic is right."""
        size = max(float(np.linalg.norm(self.probed)), floor)
        return float(np.linalg.norm(self.scatter @ self.probe - self.probed)) / size if size > 0 else 0.0


class ColumnMoments(NamedTuple):
    """Weight, mean and sum of squared deviations of each column."""

    rows: int
    weight: float
    mean: np.ndarray
    square: np.ndarray


class GapStatistics(NamedTuple):
    """One E step of probabilistic PCA on observed entries (see ``reduce.missing``)."""

    loglik: float
    gram: np.ndarray  # n x (k+1) x (k+1): sum over rows that observe column j of w E[(z,1)(z,1)^T]
    cross: np.ndarray  # n x (k+1): sum of w x_ij E[(z,1)]
    square: np.ndarray  # n: sum of w x_ij^2
    second: np.ndarray  # (k+1) x (k+1): sum over all rows of w E[(z,1)(z,1)^T]


class GapCodes(NamedTuple):
    """Posterior means E[z | observed], log-likelihood and squared misfit of the observed entries, per row."""

    codes: np.ndarray
    loglik: np.ndarray
    misfit: np.ndarray


class Keeper(Protocol):
    """Where a long pass keeps its state between segments."""

    def load(self) -> tuple[int, dict[str, np.ndarray]] | None: ...

    def save(self, done: int, arrays: dict[str, np.ndarray]) -> None: ...


class DenseFamily(Protocol):
    """Dense and sparse rows against thin matrices; rows with gaps under a Gaussian."""

    def moments(
        self,
        x: Dense | Counts,
        probe: np.ndarray,
        weights: np.ndarray | None = None,
        watch: Watcher = silent,
        keeper: Keeper | None = None,
    ) -> Moments:
        """Weight, mean and scatter in one pass over row blocks; raises GapsFound at the first NaN."""
        ...

    def column_moments(
        self, x: Dense | Counts, weights: np.ndarray | None = None, watch: Watcher = silent
    ) -> ColumnMoments:
        """The diagonal part of ``moments``."""
        ...

    def times(self, x: Dense | Counts, v: np.ndarray, mean: np.ndarray | None) -> np.ndarray:
        """Xc V, N x b."""
        ...

    def times_t(self, x: Dense | Counts, y: np.ndarray, mean: np.ndarray | None) -> np.ndarray:
        """Xc^T Y, n x b."""
        ...

    def gram_times(
        self,
        x: Dense | Counts,
        v: np.ndarray,
        mean: np.ndarray | None,
        weights: np.ndarray | None = None,
        implicit: bool = False,
    ) -> np.ndarray:
        """Xc^T diag(w) Xc V in one pass, n x b; ``implicit`` allows raw products, where means are not large against spreads."""
        ...

    def misfit(self, x: Dense | Counts, u: np.ndarray, mean: np.ndarray) -> np.ndarray:
        """||xc - U U^T xc||^2 of each row, U with orthonormal columns; in float64."""
        ...

    def row_gram(self, x: Dense | Counts, mean: np.ndarray | None) -> np.ndarray:
        """Xc Xc^T, N x N, for short and wide data."""
        ...

    def orth(self, v: np.ndarray, against: np.ndarray | None = None) -> np.ndarray:
        """An orthonormal basis of the range of V minus its part in ``against``; dependent columns are dropped."""
        ...

    def inner(self, q: np.ndarray, w: np.ndarray) -> np.ndarray:
        """Q^T W in float64 for tall thin Q and W."""
        ...

    def outer(self, q: np.ndarray, s: np.ndarray) -> np.ndarray:
        """Q S for a tall Q and a small S."""
        ...

    def eigh_top(self, c: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k largest eigenvalues, falling, and their eigenvectors as columns."""
        ...

    def gap_statistics(
        self, x: Observed, w: np.ndarray, mean: np.ndarray, noise: float, weights: np.ndarray | None
    ) -> GapStatistics:
        """The expected complete-data statistics of x = W z + mean + noise given the observed entries."""
        ...

    def gap_codes(self, x: Observed, w: np.ndarray, mean: np.ndarray, noise: float) -> GapCodes:
        """Posterior means per row."""
        ...
