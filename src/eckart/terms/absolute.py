"""Absolute error: l = |a - s|, whose best constant is the median; its corner may be rounded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from eckart.terms.loss import Loss, known, quantile, robust_deviation

CORNER = 0.05
"""Width of the rounded corner in robust deviations, where a column decides it: the loss of an entry
is at most half of that too large, and the weights of entries differ little enough for steps to
arrive."""


@dataclass(frozen=True)
class Absolute(Loss):
    """l = |r|, r = a - s, for |r| >= e and (r^2 / e + e) / 2 below, e = ``corner``; l* = a y + e
    (y^2 - 1) / 2 for |y| <= 1."""

    corner: float = 0.0

    name: ClassVar[str] = "absolute"
    summary: ClassVar[str] = "numbers with a few wild ones: the median"
    location: ClassVar[bool] = True

    def value(self, a: np.ndarray, s: np.ndarray) -> np.ndarray:
        r = np.abs(a - s)
        return (
            r
            if self.corner == 0
            else np.where(r >= self.corner, r, 0.5 * (r * r / self.corner + self.corner))
        )

    def gradient(self, a: np.ndarray, s: np.ndarray) -> np.ndarray:
        return np.sign(s - a) if self.corner == 0 else np.clip((s - a) / self.corner, -1.0, 1.0)

    def curvature(self, a: np.ndarray, s: np.ndarray) -> np.ndarray:
        """1 / max(|r|, e): the parabola through the same value at -r and at r. Without a rounded
        corner it is infinite at r = 0."""
        with np.errstate(divide="ignore"):
            return 1.0 / np.maximum(np.abs(a - s), self.corner)

    def conjugate(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.where(np.abs(y) <= 1, a * y + 0.5 * self.corner * (y * y - 1), np.inf)

    def draw(self, s: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return s + rng.laplace(size=np.shape(s))

    def fitted_to(self, values: np.ndarray, weights: np.ndarray | None = None) -> Self:
        a, w = known(values, weights)
        return self.of_deviation(robust_deviation(self.encode(a), w)) if len(a) else self

    def of_deviation(self, deviation: float) -> Self:
        return self if self.corner else replace(self, corner=CORNER * deviation)

    def check(self) -> bool:
        return isinstance(self.corner, (int, float)) and 0 <= self.corner < np.inf

    def best_constant(self, a: np.ndarray, weights: np.ndarray) -> np.ndarray:
        return np.asarray(quantile(a, weights, 0.5))

    def unit(self, a: np.ndarray, weights: np.ndarray) -> float:
        return robust_deviation(a, weights)
