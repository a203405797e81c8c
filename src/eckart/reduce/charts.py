"""What components mean and which rows do not fit: loadings, top features, Hotelling T2, SPE,
contributions.

T2 = sum_i code_i^2 / variance_i measures distance inside the subspace, SPE = ||x - x_hat||^2
distance from it. Limits are frozen at fit: T2 by the F distribution of a new observation, k (N^2 -
1) / (N (N - k)) F_{k, N-k}; SPE by Box's scaled chi-square g chi2_h with g h = sum l and 2 g^2 h =
2 sum l^2 over the eigenvalues l left out (Box 1954; Jackson and Mudholkar 1979).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from eckart.errors import invalid
from eckart.factors import Basis
from eckart.fit import fitted
from eckart.reduce.encode import encode, reusable, squared_errors
from eckart.reduce.rotate import loadings_of


@dataclass(frozen=True, eq=False)
class Outliers:
    """Scores of rows against the limits of the fit."""

    t2: np.ndarray
    spe: np.ndarray
    t2_limit: float
    spe_limit: float
    level: float

    @property
    def flagged(self) -> np.ndarray:
        """Rows beyond either limit."""
        return (self.t2 > self.t2_limit) | (self.spe > self.spe_limit)


class ComponentTables:
    """Tables and charts of a fitted PCA (mixed into the estimator)."""

    if TYPE_CHECKING:
        rotation_: Any
        fit_: Any

        def _fitted(self, name: str) -> Any: ...
        def _new_rows(self, x: Any) -> Any: ...
        def _of_rows(self, x: Any, do: Any) -> Any: ...

    @fitted
    def loadings_(self) -> np.ndarray:
        """n x k: covariance of each column with each unit-variance component; rotated where a
        rotation was asked for."""
        b = self._fitted("loadings_").factors
        return loadings_of(b) if self.rotation_ is None else self.rotation_.pattern

    def loadings(self) -> dict[str, Any]:
        """The loadings as a table: column names and one list for each component;
        pandas.DataFrame(...) and polars.DataFrame(...) take it."""
        table = {"column": list(self._names())}
        return table | {
            f"component {i + 1}": column.tolist() for i, column in enumerate(self.loadings_.T)
        }

    def top_features(self, n: int = 5) -> list[list[tuple[Any, float]]]:
        """For each component the n columns with the largest loadings, with their sign.

        >>> from eckart import PCA
        >>> x = np.random.default_rng(0).standard_normal((50, 1)) @ np.array([[0.0, 3.0, 1.0]])
        >>> PCA(1).fit(x).top_features(1)[0][0][0]
        1
        """
        names = self._names()
        out = []
        for column in self.loadings_.T:
            order = np.argsort(-np.abs(column), kind="stable")[:n]
            out.append([(names[j], float(column[j])) for j in order])
        return out

    def hotelling_t2(self, X: Any) -> np.ndarray:
        """Squared distance of each code from the mean, in standard deviations; directions without
        variance are left out."""
        b = self._fitted("hotelling_t2").factors
        codes = self._plain_codes(X)[:, : b.rank]
        return (codes.astype(np.float64) ** 2 / b.variances[: b.rank]).sum(axis=1)

    def spe(self, X: Any) -> np.ndarray:
        """Squared prediction error ||x - x_hat||^2 of each row; over observed entries where some
        are missing."""
        return self._of_rows(X, squared_errors)

    def outliers(self, X: Any, level: float = 0.99) -> Outliers:
        """T2 and SPE of new rows against limits that a share ``level`` of ordinary rows stays
        under."""
        matrix = reusable(self._new_rows(X))
        return Outliers(
            self.hotelling_t2(matrix),
            self.spe(matrix),
            t2_limit(self.fit_.factors, level),
            spe_limit(self.fit_.factors, level),
            level,
        )

    def contributions(self, X: Any) -> np.ndarray:
        """N x n: how much each column adds to the SPE of each row (missing entries add nothing)."""

        def rest(x: Any, b: Basis, engine: Any) -> np.ndarray:
            fitted = encode(x, b, engine).astype(np.float64) @ b.components + b.mean
            return np.nan_to_num((engine.entries(x) - fitted) ** 2, nan=0.0)

        return self._of_rows(reusable(self._new_rows(X)), rest)

    def _plain_codes(self, X: Any) -> np.ndarray:
        return self._of_rows(X, encode)

    def _names(self) -> Any:
        b = self._fitted("loadings").factors
        return range(b.n) if b.columns is None else b.columns


def t2_limit(basis: Basis, level: float) -> float:
    """The T2 that a new ordinary row exceeds with probability 1 - level; infinite without degrees
    of freedom."""
    from scipy import stats

    _check_level(level)
    k, rows = basis.rank, basis.weight
    if k == 0 or rows <= k + 1:
        return float("inf")
    return float(k * (rows**2 - 1) / (rows * (rows - k)) * stats.f.ppf(level, k, rows - k))


def spe_limit(basis: Basis, level: float) -> float:
    """The SPE that an ordinary row exceeds with probability 1 - level; a tail of unknown shape
    counts as flat, rounding alone is no outlier."""
    from scipy import stats

    _check_level(level)
    left = max((basis.total - float(basis.scatter.sum())) / basis.degrees, 0.0)
    rounding = 1e3 * float(np.finfo(basis.components.dtype).eps)
    floor = rounding**2 * (
        basis.total / basis.degrees + float(basis.mean.astype(np.float64) @ basis.mean)
    )
    if basis.n == basis.k or left <= floor:
        return floor
    shape = basis.tail_shape or 1.0 / (basis.n - basis.k)
    return float(left * shape * stats.chi2.ppf(level, 1.0 / shape))


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise invalid("level", level, "a share between 0 and 1")
