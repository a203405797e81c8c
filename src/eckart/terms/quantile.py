"""The quantile (pinball) loss: predictions that a share of the values stays below."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from eckart.terms.absolute import CORNER
from eckart.terms.loss import Loss, known, quantile, robust_deviation


@dataclass(frozen=True)
class Quantile(Loss):
    """l = q r for r > 0 and (q - 1) r below, r = a - s: half the absolute error plus (q - 1/2) r,
    with its corner rounded at |r| < e as that of ``Absolute``.

    l*(a, y) = a y + e (4 z^2 - 1) / 4 for |z| <= 1/2, z = y + q - 1/2.
    """

    level: float = 0.5
    corner: float = 0.0

    name: ClassVar[str] = "quantile"
    summary: ClassVar[str] = "numbers, of which a share is to lie below: 'quantile 0.9'"
    location: ClassVar[bool] = True

    def value(self, a: np.ndarray, s: np.ndarray) -> np.ndarray:
        r, e = a - s, self.corner
        size = np.abs(r)
        if e > 0:
            size = np.where(size >= e, size, 0.5 * (r * r / e + e))
        return 0.5 * size + (self.level - 0.5) * r

    def gradient(self, a: np.ndarray, s: np.ndarray) -> np.ndarray:
        away = s - a
        slope = np.sign(away) if self.corner == 0 else np.clip(away / self.corner, -1.0, 1.0)
        return 0.5 * slope - (self.level - 0.5)

    def curvature(self, a: np.ndarray, s: np.ndarray) -> np.ndarray:
        """Half that of the absolute error: the rest is linear."""
        with np.errstate(divide="ignore"):
            return 0.5 / np.maximum(np.abs(a - s), self.corner)

    def conjugate(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        z = y + self.level - 0.5
        # a gradient at the edge may exceed it by rounding
        inside = np.abs(z) <= 0.5 * (1 + 1e-12)
        return np.where(inside, a * y + 0.25 * self.corner * (4 * z * z - 1), np.inf)

    def draw(self, s: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Exponential on either side of s: above with probability 1 - q and mean 1 / q, below with
        probability q and mean 1 / (1 - q)."""
        above = rng.random(np.shape(s)) >= self.level
        size = rng.exponential(size=np.shape(s))
        return s + np.where(above, size / self.level, -size / (1 - self.level))

    def fitted_to(self, values: np.ndarray, weights: np.ndarray | None = None) -> Self:
        a, w = known(values, weights)
        return self.of_deviation(robust_deviation(self.encode(a), w)) if len(a) else self

    def of_deviation(self, deviation: float) -> Self:
        return self if self.corner else replace(self, corner=CORNER * deviation)

    def check(self) -> bool:
        numbers = all(isinstance(v, (int, float)) for v in (self.level, self.corner))
        return numbers and 0 < self.level < 1 and 0 <= self.corner < np.inf

    def best_constant(self, a: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """The quantile of the values, moved within the corner to where the slopes add up to 0."""
        middle = quantile(a, weights, self.level)
        low, high = middle - self.corner, middle + self.corner
        for _ in range(60):  # halves the corner to the rounding of its ends
            middle = 0.5 * (low + high)
            rises = float(weights @ self.gradient(a, np.full(a.shape, middle))) > 0
            low, high = (low, middle) if rises else (middle, high)
        return np.asarray(middle)

    def unit(self, a: np.ndarray, weights: np.ndarray) -> float:
        return robust_deviation(a, weights)
