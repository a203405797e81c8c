"""Yes and no: l = log(1 + e^s) - a s, s the log odds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import expit, xlogy

from eckart.terms.loss import Loss, refuse


def softplus(s: np.ndarray) -> np.ndarray:
    """log(1 + e^s)."""
    return np.maximum(s, 0) + np.log1p(np.exp(-np.abs(s)))


def tangent_in_squares(s: np.ndarray) -> np.ndarray:
    """tanh(s / 2) / (2 s): log(2 cosh(t / 2)) is concave in t^2, so its tangent there at s^2 lies
    above it for every t (Jaakkola and Jordan 2000)."""
    half = 0.5 * np.abs(s)
    safe = np.maximum(half, 1e-4)  # below it the quotient is 1 - half^2 / 3 to rounding
    with np.errstate(invalid="ignore"):
        return np.where(
            half < 1e-4,
            0.25 - half * half / 12,
            np.where(np.isinf(half), 0.0, 0.25 * np.tanh(safe) / safe),
        )


@dataclass(frozen=True)
class Logistic(Loss):
    """l = log(1 + e^s) - a s for a in [0, 1]; l* = p log p + (1 - p) log(1 - p) with p = a + y in
    [0, 1]."""

    name: ClassVar[str] = "logistic"
    summary: ClassVar[str] = "yes and no, as 1 and 0 or True and False"
    # Near the best held-out likelihood on MovieLens-100K, Jester and bfi. Yes and no say less than
    # grades do: with the power 1/2 all of Jester was behind squared error, with 3/4 it is ahead.
    ridge: ClassVar[tuple[float, float] | None] = (0.2, 0.75)
    bound: ClassVar[float | None] = 0.25
    discrete: ClassVar[bool] = True

    def value(self, a: np.ndarray, s: np.ndarray) -> np.ndarray:
        return softplus(s) - a * s

    def gradient(self, a: np.ndarray, s: np.ndarray) -> np.ndarray:
        return expit(s) - a

    def curvature(self, a: np.ndarray, s: np.ndarray) -> np.ndarray:
        return tangent_in_squares(s)

    def parts(self, a: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """With one exponential and one logarithm: e = exp(-|s|), h = 1 / (1 + e), tanh(|s| / 2) =
        (1 - e) h, and log(1 + e) = -log h."""
        size = np.abs(s)
        e = np.exp(-size)
        h = 1 / (1 + e)
        value = np.maximum(s, 0)
        value -= np.log(h)
        value -= a * s
        e -= 1
        e *= h  # now -tanh(|s| / 2)
        g = np.copysign(e, s)
        g *= 0.5
        g += 0.5 - a
        # near 0 the quotient is 1/4 less s^2 / 48, to rounding
        c = np.where(size < 1e-3, 0.25 - size * size / 48, -0.5 * e / np.maximum(size, 1e-3))
        return value, g, c.astype(s.dtype, copy=False)

    def conjugate(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        p = a + y
        inside = np.clip(p, 0.0, 1.0)
        # a gradient of a probability next to 0 or 1 may leave [0, 1] by rounding
        return np.where(
            np.abs(p - inside) <= 1e-12,
            xlogy(inside, inside) + xlogy(1 - inside, 1 - inside),
            np.inf,
        )

    def mean(self, s: np.ndarray) -> np.ndarray:
        """The probability of a yes."""
        return expit(s)

    def variance(self, s: np.ndarray) -> np.ndarray:
        return expit(s) * expit(-s)

    def draw(self, s: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return (rng.random(np.shape(s)) < expit(s)).astype(np.float64)

    def probabilities(self, s: np.ndarray) -> np.ndarray:
        return np.stack([expit(-s), expit(s)], axis=-1)

    def encode(self, values: np.ndarray) -> np.ndarray:
        a = np.asarray(values, np.float64)
        refuse(self.name, a, (a < 0) | (a > 1), "0 and 1 (or shares between them)")
        return a

    def best_constant(self, a: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """log odds of the share; of half an observation where all say the same, since the best
        would be infinite."""
        half = 0.5 / len(a)
        p = np.clip(np.average(a, weights=weights), half, 1 - half)
        return np.log(p / (1 - p))
