"""Counts: l = e^s - a s + log a!, s the log of the rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import gammaln, xlogy

from eckart.terms.loss import Loss, refuse

LARGEST = 700.0
"""e^s is finite in double precision up to here."""


@dataclass(frozen=True)
class Poisson(Loss):
    """l = e^s - a s + log a!; l* = q log q - q - log a! with q = a + y >= 0.

    No parabola lies above e^s everywhere. Between s and the minimum log a there is one: where the
    rate is above a, with the second derivative e^s, which only falls on the way; where it is below,
    with the slope of the chord of e^s, (a - e^s) / (log a - s), whose least value is at log a
    itself. A solver that steps further halves its step until the loss has fallen.
    """

    name: ClassVar[str] = "poisson"
    summary: ClassVar[str] = "counts: 0, 1, 2, ..."
    # near the best held-out likelihood on simulated counts
    ridge: ClassVar[tuple[float, float] | None] = (1.0, 0.5)
    everywhere: ClassVar[bool] = False

    def value(self, a: np.ndarray, s: np.ndarray) -> np.ndarray:
        return np.exp(np.minimum(s, LARGEST)) - a * s + gammaln(a + 1)

    def gradient(self, a: np.ndarray, s: np.ndarray) -> np.ndarray:
        return np.exp(np.minimum(s, LARGEST)) - a

    def curvature(self, a: np.ndarray, s: np.ndarray) -> np.ndarray:
        rate = np.exp(np.minimum(s, LARGEST))
        # nearer than this the chord is the tangent, and its quotient rounding
        up = a > rate * (1 + 1e-6)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(up, (a - rate) / (np.log(a) - s), rate)

    def conjugate(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        q = a + y
        inside = np.maximum(q, 0.0)
        return np.where(
            q >= -1e-12 * (1 + np.abs(a)), xlogy(inside, inside) - inside - gammaln(a + 1), np.inf
        )

    def mean(self, s: np.ndarray) -> np.ndarray:
        """The rate."""
        return np.exp(np.minimum(s, LARGEST))

    def variance(self, s: np.ndarray) -> np.ndarray:
        return self.mean(s)

    def draw(self, s: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return rng.poisson(np.exp(s)).astype(np.float64)

    def encode(self, values: np.ndarray) -> np.ndarray:
        a = np.asarray(values, np.float64)
        refuse(self.name, a, (a < 0) | np.isinf(a), "counts >= 0")
        return a

    def best_constant(self, a: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """log of the mean; of half an event where there was none, since the best would be
        infinite."""
        return np.log(max(np.average(a, weights=weights), 0.5 / len(a)))
