"""What a loss is: a function of an observed value a and a natural parameter s, and everything a
solver asks of it.

A loss is a frozen value. Its methods are vectorised: ``a`` and ``s`` have one shape (``s`` one more
axis of length ``width`` where an entry has several natural parameters), and results have it too.
Values ``a`` are those that ``encode`` returned: numbers, or the codes 0, 1, ... of levels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from eckart.errors import InputError


class Placement(NamedTuple):
    """Where the natural parameters of a column live: s = offset + scale z with z of the size of 1;
    ``cost`` is the mean loss at the offset, so that columns whose losses are divided by it count
    alike."""

    offset: np.ndarray
    scale: float
    cost: float


@dataclass(frozen=True)
class Loss(ABC):
    """Base of all losses. A subclass gives the formulas; those below hold for numbers with one
    natural parameter."""

    name: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    bound: ClassVar[float | None] = None
    """The largest second derivative by s, over all a and s; None where there is none."""
    everywhere: ClassVar[bool] = True
    """Whether the parabola with ``curvature(a, s)`` lies above l(a, t) for every t, or (False) only
    for t from s to the minimum of l(a, .)."""
    discrete: ClassVar[bool] = False
    """Whether values are levels with probabilities."""
    location: ClassVar[bool] = False
    """Whether the natural parameter is in the unit of the data, so that what is taken out of the
    data is taken out of it."""
    ridge: ClassVar[tuple[float, float] | None] = None
    """Ridge of a factorization and its power of counts (three tenths of it for biases) where the
    natural parameter has no unit."""

    @property
    def width(self) -> int:
        """Natural parameters of one entry."""
        return 1

    @abstractmethod
    def value(self, a: np.ndarray, s: np.ndarray) -> np.ndarray:
        """l(a, s), up to a constant the negative log-likelihood of a."""

    @abstractmethod
    def gradient(self, a: np.ndarray, s: np.ndarray) -> np.ndarray:
        """dl/ds."""

    @abstractmethod
    def curvature(self, a: np.ndarray, s: np.ndarray) -> np.ndarray:
        """A number c > 0 with l(a, t) <= l(a, s) + g (t - s) + c / 2 (t - s)^2 for all t (see
        ``everywhere``), as small as is cheap to say."""

    def parts(self, a: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Value, gradient and curvature at once, for the inner loops of engines."""
        return self.value(a, s), self.gradient(a, s), self.curvature(a, s)

    @abstractmethod
    def conjugate(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        """l*(a, y) = sup_s y s - l(a, s); infinite where there is no such bound."""

    def mean(self, s: np.ndarray) -> np.ndarray:
        """The expected value of a on the scale of the data."""
        return s

    def variance(self, s: np.ndarray) -> np.ndarray:
        """The variance of a on the scale of the data; 1 where the loss has no likelihood of its
        own."""
        return np.ones(np.shape(s))

    def mean_and_variance(self, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Both at once, where what they share is costly."""
        return self.mean(s), self.variance(s)

    @abstractmethod
    def draw(self, s: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Values of the distribution exp(-l(., s)), encoded."""

    def probabilities(self, s: np.ndarray) -> np.ndarray:
        """The probability of each level, on a last axis."""
        raise InputError(
            f"the loss must be for yes/no, ordered or plain categories, got {self.name}, which "
            "has no levels with probabilities"
        )

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Values as this loss takes them, finite numbers unless it says otherwise; refuses what it
        cannot have come from."""
        a = np.asarray(values, np.float64)
        refuse(self.name, a, np.isinf(a), "finite numbers")
        return a

    def fitted_to(self, values: np.ndarray, weights: np.ndarray | None = None) -> Self:
        """The loss with its own parameters (levels, thresholds, widths) set by a column of values;
        NaN are left out."""
        return self

    def of_deviation(self, deviation: float) -> Self:
        """The same of data of which only the standard deviation is known."""
        return self

    def parameters(self) -> dict[str, Any]:
        """Its own parameters as plain values, for a file."""
        return asdict(self)

    def to_state(self) -> dict[str, Any]:
        """Name and parameters, as ``terms.loss_from`` takes them."""
        return {"name": self.name, **self.parameters()}

    def check(self) -> bool:
        """Whether its own parameters fit together (a file may hold anything)."""
        return True

    @abstractmethod
    def best_constant(self, a: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """The natural parameters (``width`` of them) with the least loss on encoded values."""

    def unit(self, a: np.ndarray, weights: np.ndarray) -> float:
        """The size of a step in s that matters: 1 for logits, a deviation where s has the unit of
        the data."""
        return 1.0

    def offset_and_scale(self, values: np.ndarray, weights: np.ndarray | None = None) -> Placement:
        """Where the natural parameters of this column live. Unknown values (NaN) are left out; a
        column without any value gets (0, 1, 1)."""
        values, weights = known(values, weights)
        if not len(values):
            return Placement(np.zeros(self.width), 1.0, 1.0)
        a = self.encode(values)
        offset = np.atleast_1d(self.best_constant(a, weights))
        s = (
            np.broadcast_to(offset[0], a.shape)
            if self.width == 1
            else np.broadcast_to(offset, (*a.shape, self.width))
        )
        cost = float(np.average(self.value(a, s), weights=weights))
        # a column with a single value costs nothing: it must not count for infinitely much
        return Placement(offset, self.unit(a, weights), cost if cost > 1e-12 else 1.0)


def known(values: Any, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """The values that are not missing and have a weight, and their weights."""
    values = np.asarray(values)
    seen = np.ones(values.shape, bool)
    if values.dtype.kind == "f":
        seen = ~np.isnan(values)
    elif values.dtype.kind == "O":
        seen = np.array([v is not None and v == v for v in values.ravel()], bool).reshape(
            values.shape
        )
    w = np.ones(values.shape) if weights is None else np.asarray(weights, np.float64)
    seen &= w > 0
    return values[seen], w[seen]


class LossError(InputError):
    """A value that a loss cannot have; ``rule`` says which it can."""

    code = "input.loss"

    def __init__(self, name: str, rule: str, found: str):
        super().__init__(f"values must be {rule} for loss={name!r}, got {found}")
        self.name, self.rule, self.found = name, rule, found

    def __reduce__(self) -> tuple[type[LossError], tuple[str, str, str]]:
        return LossError, (self.name, self.rule, self.found)


def refuse(name: str, values: np.ndarray, bad: np.ndarray, rule: str) -> None:
    """Name the first value that a loss cannot have."""
    if np.any(bad):
        at = int(np.argmax(np.ravel(bad)))
        raise LossError(name, rule, f"{np.ravel(values)[at]!s} at position {at}")


def quantile(values: np.ndarray, weights: np.ndarray, q: float) -> float:
    """The least value with a share q of the weight at or below it; the middle of two where the
    share is met exactly."""
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weights[order])
    share = q * below[-1]
    at = int(np.searchsorted(below, share * (1 - 1e-12)))
    following = min(at + 1, len(order) - 1)
    meets = abs(below[at] - share) <= 1e-12 * below[-1]
    return (
        float(0.5 * (values[order[at]] + values[order[following]]))
        if meets
        else float(values[order[at]])
    )


def robust_deviation(values: np.ndarray, weights: np.ndarray) -> float:
    """1.4826 median |a - median|, a standard deviation where errors are normal; the mean deviation
    where most values are the same; 1 where all are."""
    away = np.abs(values - quantile(values, weights, 0.5))
    return 1.4826 * quantile(away, weights, 0.5) or float(np.average(away, weights=weights)) or 1.0


def conjugate_by_root(
    loss: Loss, a: np.ndarray, y: np.ndarray, low: np.ndarray, high: np.ndarray
) -> np.ndarray:
    """sup_s y s - l(a, s) over [low, high] by bisection on dl/ds = y, where no formula is known.
    The error is of second order in the width of the interval."""
    low, high = (np.array(np.broadcast_to(end, np.shape(y)), np.float64) for end in (low, high))
    for _ in range(64):  # halves an interval of any size in double precision to its rounding
        middle = 0.5 * (low + high)
        above = loss.gradient(a, middle) > y
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    s = 0.5 * (low + high)
    return y * s - loss.value(a, s)
