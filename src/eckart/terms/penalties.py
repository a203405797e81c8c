"""Penalties: value, prox and conjugate of each.

prox(v, t) = argmin_x  penalty(x) + |x - v|^2 / 2t,          conjugate(y) = sup_x <x, y> -
penalty(x)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from eckart.decompositions import svd


@dataclass(frozen=True)
class Penalty(ABC):
    """Base of all penalties; ``strength`` is lambda."""

    strength: float = 1.0
    name: ClassVar[str] = ""

    @abstractmethod
    def value(self, x: np.ndarray) -> float:
        """penalty(x)."""

    @abstractmethod
    def prox(self, v: np.ndarray, t: float) -> np.ndarray:
        """argmin_x penalty(x) + |x - v|^2 / 2t."""

    @abstractmethod
    def conjugate(self, y: np.ndarray) -> float:
        """sup_x <x, y> - penalty(x)."""


ROUNDING = 1 + 1e-9
"""How far beyond its edge a dual point may lie by rounding alone."""


@dataclass(frozen=True)
class Ridge(Penalty):
    """lambda / 2 ||x||^2."""

    name: ClassVar[str] = "ridge"

    def value(self, x: np.ndarray) -> float:
        return 0.5 * self.strength * float(np.vdot(x, x))

    def prox(self, v: np.ndarray, t: float) -> np.ndarray:
        return v / (1 + t * self.strength)

    def conjugate(self, y: np.ndarray) -> float:
        return float(np.vdot(y, y)) / (2 * self.strength)


@dataclass(frozen=True)
class Lasso(Penalty):
    """lambda sum |x|."""

    name: ClassVar[str] = "lasso"

    def value(self, x: np.ndarray) -> float:
        return self.strength * float(np.abs(x).sum())

    def prox(self, v: np.ndarray, t: float) -> np.ndarray:
        return np.sign(v) * np.maximum(np.abs(v) - t * self.strength, 0)

    def conjugate(self, y: np.ndarray) -> float:
        return 0.0 if np.abs(y).max(initial=0.0) <= self.strength * ROUNDING else np.inf


@dataclass(frozen=True)
class Nonnegative(Penalty):
    """lambda sum x over x >= 0, infinite elsewhere; lambda 0 is the constraint alone."""

    name: ClassVar[str] = "nonnegative"

    def value(self, x: np.ndarray) -> float:
        return self.strength * float(np.sum(x)) if np.min(x, initial=0.0) >= 0 else np.inf

    def prox(self, v: np.ndarray, t: float) -> np.ndarray:
        return np.maximum(v - t * self.strength, 0)

    def conjugate(self, y: np.ndarray) -> float:
        return 0.0 if np.max(y, initial=-np.inf) <= self.strength + (ROUNDING - 1) else np.inf


@dataclass(frozen=True)
class Rows(Penalty):
    """lambda sum of the norms of the rows of x: whole rows vanish."""

    name: ClassVar[str] = "rows"

    def value(self, x: np.ndarray) -> float:
        return self.strength * float(np.linalg.norm(x, axis=-1).sum())

    def prox(self, v: np.ndarray, t: float) -> np.ndarray:
        size = np.linalg.norm(v, axis=-1, keepdims=True)
        return v * np.maximum(1 - t * self.strength / np.where(size > 0, size, 1.0), 0)

    def conjugate(self, y: np.ndarray) -> float:
        return (
            0.0
            if np.linalg.norm(y, axis=-1).max(initial=0.0) <= self.strength * ROUNDING
            else np.inf
        )


@dataclass(frozen=True)
class Nuclear(Penalty):
    """lambda times the sum of the singular values of x."""

    name: ClassVar[str] = "nuclear"

    def value(self, x: np.ndarray) -> float:
        return self.strength * float(svd(x, compute_uv=False).sum())

    def prox(self, v: np.ndarray, t: float) -> np.ndarray:
        left, size, right = svd(v, full_matrices=False)
        return (left * np.maximum(size - t * self.strength, 0)) @ right

    def conjugate(self, y: np.ndarray) -> float:
        return 0.0 if np.linalg.norm(y, 2) <= self.strength * ROUNDING else np.inf
