"""Squared error: l = (a - s)^2 / 2, normal errors of deviation 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from eckart.terms.loss import Loss


@dataclass(frozen=True)
class Squared(Loss):
    """l = (a - s)^2 / 2; l* = a y + y^2 / 2."""

    name: ClassVar[str] = "squared"
    summary: ClassVar[str] = "numbers with errors of about the same size"
    location: ClassVar[bool] = True
    bound: ClassVar[float | None] = 1.0

    def value(self, a: np.ndarray, s: np.ndarray) -> np.ndarray:
        return 0.5 * (a - s) ** 2

    def gradient(self, a: np.ndarray, s: np.ndarray) -> np.ndarray:
        return s - a

    def curvature(self, a: np.ndarray, s: np.ndarray) -> np.ndarray:
        return np.ones_like(s)

    def conjugate(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        return y * (a + 0.5 * y)

    def draw(self, s: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return s + rng.standard_normal(np.shape(s))

    def best_constant(self, a: np.ndarray, weights: np.ndarray) -> np.ndarray:
        return np.average(a, weights=weights)

    def unit(self, a: np.ndarray, weights: np.ndarray) -> float:
        """The standard deviation."""
        mean = np.average(a, weights=weights)
        return float(np.sqrt(np.average((a - mean) ** 2, weights=weights))) or 1.0
