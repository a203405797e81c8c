"""The covariance C = (1/W) sum_i w_i (x_i - mean)(x_i - mean)^T, either as a matrix (one pass) or
as products (one pass each)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from eckart.engines.protocol import Engine, Keeper, Moments, Tall
from eckart.rng import normal
from eckart.trace import Watcher, silent

IMPLICIT = 100.0
"""Products of large data are centered implicitly while the squared length of the mean is at most
this many total variances: rounding then costs about that many units."""
LARGE = 2**24
"""Entries from which the centered copy of a block is worth avoiding."""


@dataclass
class Covariance:
    """Mean, trace and products of C; ``matrix`` is C itself where it was formed, with the statistic
    it came from; ``deviations`` are the standard deviations of the columns about their means, where
    they were measured; ``gram`` is A A^T of the rows A with C = A^T A, where it was formed."""

    mean: np.ndarray
    total: float
    weight: float
    rows: int
    dtype: np.dtype
    centered: bool
    engine: Engine
    data: Any = None
    weights: np.ndarray | None = None
    matrix: np.ndarray | None = None
    statistic: Moments | None = None
    data_centered: bool = False
    implicit: bool = False
    deviations: np.ndarray | None = None
    gram: np.ndarray | None = None

    @property
    def n(self) -> int:
        return len(self.mean)

    @property
    def rounding(self) -> float:
        """Variance that rounding alone gives a constant column of this mean."""
        return (
            4 * float(np.finfo(self.dtype).eps) * float(np.abs(self.mean).max(initial=0.0))
        ) ** 2 * self.n

    def product(self, v: np.ndarray) -> np.ndarray:
        """C V."""
        if self.matrix is not None:
            return self.matrix @ v
        assert self.data is not None
        out = self.engine.gram_times(self.data, v, self._offset(), implicit=self.implicit)
        out /= np.asarray(self.weight, out.dtype)
        return out

    def inside(self, v: Tall, rough: bool = False) -> Tall:
        """C V of an array of the engine, which stays there; ``rough`` where an exact product judges
        what becomes of it."""
        assert self.data is not None
        out = self.engine.gram_times(
            self.data, v, self._offset(), implicit=self.implicit, rough=rough
        )
        return self.engine.outer(out, np.eye(v.shape[1]) / self.weight)

    def rows_gram(self) -> np.ndarray:
        """A A^T with A = diag(sqrt w) Xc / sqrt(W), rows x rows: for few rows."""
        if self.gram is None:
            gram = self.engine.row_gram(self.data, self._offset())
            gram *= np.outer(self._root, self._root)
            self.gram = (gram + gram.T) / 2
        return self.gram

    def times(self, v: np.ndarray) -> np.ndarray:
        """A V, on the host."""
        return (
            np.asarray(self.engine.get(self.engine.times(self.data, v, self._offset())), np.float64)
            * self._root[:, None]
        )

    def times_t(self, y: np.ndarray) -> np.ndarray:
        """A^T Y, on the host."""
        return np.asarray(
            self.engine.get(self.engine.times_t(self.data, self._root[:, None] * y, self._offset()))
        )

    @property
    def _root(self) -> np.ndarray:
        """sqrt(w / W) of each row."""
        w = (
            np.ones(
                self.rows if self.data is None or self.data.shape[0] is None else self.data.shape[0]
            )
            if self.weights is None
            else self.weights
        )
        return np.sqrt(w / self.weight)

    def image(self, v: np.ndarray) -> np.ndarray:
        """C V for a few wide blocks, by the engine: where it holds a large C itself, nothing of it
        moves."""
        return (
            self.product(v)
            if self.matrix is None
            else self.engine.outer(self.matrix, np.asarray(v, np.float64))
        )

    def _offset(self) -> np.ndarray | None:
        """What is to be taken off each row of ``data``."""
        return self.mean if self.centered and not self.data_centered else None

    @classmethod
    def by_products(
        cls,
        engine: Engine,
        x: Any,
        centered: bool,
        weights: np.ndarray | None = None,
        watch: Watcher = silent,
    ) -> Covariance:
        """One pass over a placed matrix for mean and trace; entries are then touched by products
        only."""
        m = engine.column_moments(x, watch)
        square = m.square if centered else m.square + m.weight * m.mean**2
        mean = m.mean if centered else np.zeros_like(m.mean)
        implicit = (
            m.rows * len(m.mean) >= LARGE
            and float(m.mean @ m.mean) <= IMPLICIT * float(m.square.sum()) / m.weight
        )
        total = float(square.sum()) / m.weight
        spread = np.sqrt(m.square / m.weight)
        return cls(
            mean,
            total,
            m.weight,
            m.rows,
            x.dtype,
            centered,
            engine,
            x,
            weights,
            implicit=implicit,
            deviations=spread,
        )

    @classmethod
    def by_statistic(
        cls,
        engine: Engine,
        x: Any,
        centered: bool,
        rng: np.random.Generator,
        watch: Watcher = silent,
        keeper: Keeper | None = None,
    ) -> Covariance:
        """One pass for E[x] and E[xx^T], which are sufficient: the data is not needed any more."""
        probe = normal(rng, (x.shape[1],), np.float64)
        return cls.from_moments(engine, engine.moments(x, probe, watch, keeper), centered, x.dtype)

    @classmethod
    def from_moments(
        cls, engine: Engine, m: Moments, centered: bool, dtype: np.dtype
    ) -> Covariance:
        spread = np.sqrt(np.maximum(np.diagonal(m.scatter) / m.weight, 0.0))
        c = engine.covariance(m.scatter, m.weight, None if centered else m.mean)
        mean = m.mean if centered else np.zeros_like(m.mean)
        total = float(np.trace(c))
        return cls(
            mean,
            total,
            m.weight,
            m.rows,
            dtype,
            centered,
            engine,
            matrix=c,
            statistic=m,
            deviations=spread,
        )
