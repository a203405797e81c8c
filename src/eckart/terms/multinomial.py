"""Categories without an order: l = log sum_g e^(s_g) - s_a, one natural parameter for each of K
levels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import softmax, xlogy

from eckart.terms.loss import Loss, LossError, known


@dataclass(frozen=True)
class Multinomial(Loss):
    """l = log sum_g e^(s_g) - s_a, a the code of a level; l* = sum p log p where p = y + e_a has no
    negative entry and the sum 1.

    The second derivative diag(p) - p p^T is at most 1/2 (Boehning 1992), in every direction.
    """

    levels: tuple[Any, ...] = ()
    """The categories, in the order of their natural parameters; set by ``fitted_to``."""

    name: ClassVar[str] = "multinomial"
    summary: ClassVar[str] = "categories without an order"
    bound: ClassVar[float | None] = 0.5
    discrete: ClassVar[bool] = True

    @property
    def width(self) -> int:
        return max(len(self.levels), 1)

    def value(self, a: np.ndarray, s: np.ndarray) -> np.ndarray:
        top = s.max(axis=-1)
        return top + np.log(np.exp(s - top[..., None]).sum(axis=-1)) - _picked(a, s)

    def gradient(self, a: np.ndarray, s: np.ndarray) -> np.ndarray:
        g = softmax(s, axis=-1)
        at = np.asarray(a, np.intp)[..., None]
        np.put_along_axis(g, at, np.take_along_axis(g, at, -1) - 1, -1)
        return g

    def curvature(self, a: np.ndarray, s: np.ndarray) -> np.ndarray:
        """One number for every natural parameter; c |t - s|^2 / 2 is above in all directions at
        once."""
        return np.full(np.shape(s), 0.5)

    def conjugate(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        p = np.array(y, np.float64)
        at = np.asarray(a, np.intp)[..., None]
        np.put_along_axis(p, at, np.take_along_axis(p, at, -1) + 1, -1)
        apt = (p.min(axis=-1) >= -1e-12) & (np.abs(p.sum(axis=-1) - 1) <= 1e-9)
        p = np.maximum(p, 0.0)
        return np.where(apt, xlogy(p, p).sum(axis=-1), np.inf)

    def mean(self, s: np.ndarray) -> np.ndarray:
        """The probabilities: categories have no mean."""
        return softmax(s, axis=-1)

    def probabilities(self, s: np.ndarray) -> np.ndarray:
        return softmax(s, axis=-1)

    def draw(self, s: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.argmax(s + rng.gumbel(size=np.shape(s)), axis=-1).astype(np.float64)

    def encode(self, values: np.ndarray) -> np.ndarray:
        code = {level: float(g) for g, level in enumerate(self.levels)}
        return coded(self.name, np.asarray(values), code)

    def fitted_to(self, values: np.ndarray, weights: np.ndarray | None = None) -> Self:
        return (
            self
            if self.levels
            else replace(self, levels=tuple(levels_of(known(values, weights)[0])))
        )

    def best_constant(self, a: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """log shares about their mean; half an observation for a level that was not seen."""
        shares = np.maximum(
            np.bincount(a.astype(np.intp), weights, self.width), 0.5 * weights.mean()
        )
        logs = np.log(shares)
        return logs - logs.mean()


def levels_of(values: np.ndarray) -> list[Any]:
    """The distinct values as plain Python values, in order."""
    return (
        np.unique(values).tolist()
        if values.dtype.kind != "O"
        else sorted(set(values.tolist()), key=lambda v: (str(type(v)), v))
    )


def coded(name: str, values: np.ndarray, code: dict[Any, float]) -> np.ndarray:
    """The code of each value; names the first that has none."""
    kinds, at = np.unique(values, return_inverse=True) if values.dtype.kind != "O" else (None, None)
    try:
        if kinds is not None and at is not None:
            return np.array([code[v] for v in kinds.tolist()])[at].reshape(values.shape)
        return np.array([code[v] for v in values.ravel().tolist()]).reshape(values.shape)
    except KeyError as error:
        some = ", ".join(repr(level) for level in list(code)[:6])
        rule = f"one of {some}{', ...' if len(code) > 6 else ''}"
        raise LossError(name, rule, repr(error.args[0])) from None


def _picked(a: np.ndarray, s: np.ndarray) -> np.ndarray:
    return np.take_along_axis(s, np.asarray(a, np.intp)[..., None], axis=-1)[..., 0]
