"""Huber's loss: squared error near, absolute error far away."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from scipy.special import ndtr, ndtri

from eckart.terms.loss import Loss, known, quantile, robust_deviation

NORMAL_SHARE = 1.345
"""Deviations up to which errors count as normal: 95 % as good as the mean where all are."""


@dataclass(frozen=True)
class Huber(Loss):
    """l = r^2 / 2 for |r| <= d, d |r| - d^2 / 2 beyond, r = a - s; l* = a y + y^2 / 2 for |y| <=
    d."""

    delta: float | None = None
    """d in the unit of the data; None is set by ``fitted_to``: 1.345 robust deviations of the
    values. Used as 1 where nothing set it."""

    name: ClassVar[str] = "huber"
    summary: ClassVar[str] = "numbers, most with errors of about the same size, a few wild ones"
    location: ClassVar[bool] = True
    bound: ClassVar[float | None] = 1.0

    @property
    def d(self) -> float:
        return 1.0 if self.delta is None else self.delta

    def value(self, a: np.ndarray, s: np.ndarray) -> np.ndarray:
        r = np.abs(a - s)
        near = np.minimum(r, self.d)
        return near * (r - 0.5 * near)

    def gradient(self, a: np.ndarray, s: np.ndarray) -> np.ndarray:
        return np.clip(s - a, -self.d, self.d)

    def curvature(self, a: np.ndarray, s: np.ndarray) -> np.ndarray:
        """min(1, d / |r|): the parabola through the same value at -r and at r."""
        return self.d / np.maximum(np.abs(a - s), self.d)

    def conjugate(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        # a gradient at the edge may exceed it by rounding, which is not a reason for an infinite
        # bound
        return np.where(np.abs(y) <= self.d * (1 + 1e-12), y * (a + 0.5 * y), np.inf)

    def draw(self, s: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """A truncated normal between -d and d with its share of the mass, exponential tails with
        theirs."""
        d, shape = self.d, np.shape(s)
        inside, outside = np.sqrt(2 * np.pi) * (2 * ndtr(d) - 1), 2 * np.exp(-0.5 * d * d) / d
        tail = rng.random(shape) * (inside + outside) < outside
        near = ndtri(ndtr(-d) + rng.random(shape) * (2 * ndtr(d) - 1))
        far = (d + rng.exponential(size=shape) / d) * np.where(rng.random(shape) < 0.5, -1.0, 1.0)
        return s + np.where(tail, far, near)

    def fitted_to(self, values: np.ndarray, weights: np.ndarray | None = None) -> Self:
        a, w = known(values, weights)
        return self.of_deviation(robust_deviation(self.encode(a), w)) if len(a) else self

    def of_deviation(self, deviation: float) -> Self:
        return self if self.delta is not None else replace(self, delta=NORMAL_SHARE * deviation)

    def check(self) -> bool:
        return self.delta is None or (isinstance(self.delta, float) and 0 < self.delta < np.inf)

    def best_constant(self, a: np.ndarray, weights: np.ndarray) -> np.ndarray:
        s = quantile(a, weights, 0.5)
        # weighted means converge linearly; columns are short and this is done once
        for _ in range(100):
            w = weights * self.curvature(a, np.full(a.shape, s))
            s, before = float(np.average(a, weights=w)), s
            if abs(s - before) <= 1e-12 * (abs(s) + self.d):
                break
        return np.asarray(s)

    def unit(self, a: np.ndarray, weights: np.ndarray) -> float:
        return robust_deviation(a, weights)
