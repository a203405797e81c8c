"""Grades: ordered categories by thresholds on a line, P(a <= g) = F(theta_g - s), with F logistic
or normal."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import expit, log_ndtr, ndtr, ndtri, xlogy

from eckart.terms.logistic import softplus, tangent_in_squares
from eckart.terms.loss import Loss, conjugate_by_root, known
from eckart.terms.multinomial import coded, levels_of

FARTHEST = 40.0
"""Beyond so many deviations from every threshold a level is certain in double precision."""

LEAST_MASS = 1e-290
"""Tails below lose digits as numbers, and are taken as logarithms, which costs some ten times
more."""


@dataclass(frozen=True)
class Ordered(Loss):
    """l = -log(F(theta_a - s) - F(theta_(a-1) - s)), a the code 0 .. K - 1 of a grade, theta_(-1) =
    -inf and theta_(K-1) = inf."""

    levels: tuple[Any, ...] = ()
    """The grades in order; set by ``fitted_to``."""
    thresholds: tuple[float, ...] = ()
    """theta_0 < ... < theta_(K-2); ``fitted_to`` sets them so that s = 0 gives the shares of the
    column."""

    discrete: ClassVar[bool] = True
    steep: ClassVar[Any] = 1.0
    """F(e (theta - s)) in place of F(theta - s); see ``OrderedProbit.steeper``."""
    deviation: ClassVar[float] = 1.0
    """Of the errors, whose distribution is F."""

    def ends(self, a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """theta_(a-1) and theta_a."""
        cuts = np.concatenate([[-np.inf], self.thresholds, [np.inf]])
        g = np.asarray(a, np.intp)
        return cuts[g], cuts[g + 1]

    @abstractmethod
    def inverse(self, p: np.ndarray) -> np.ndarray:
        """F^-1."""

    @abstractmethod
    def noise(self, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        """Draws of F."""

    @abstractmethod
    def density(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """f = F' and f', both 0 at infinity."""

    def tips(
        self, a: np.ndarray, s: np.ndarray, value: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """f(u) / Z, f(v) / Z, f'(u) / Z and f'(v) / Z, with Z the mass of the grade (``value``,
        where it is known, its -log), u and v its upper and lower end less s: dl/dtheta_a is minus
        the first, dl/dtheta_(a-1) the second, dl/ds their difference."""
        e, mass = (
            self.steep,
            np.maximum(np.exp(-(self.value(a, s) if value is None else value)), 1e-300),
        )
        (up, up_slope), (down, down_slope) = (
            self.density(e * (end - s)) for end in self.ends(a)[::-1]
        )
        return e * up / mass, e * down / mass, e * e * up_slope / mass, e * e * down_slope / mass

    def by_thresholds(
        self, a: np.ndarray, s: np.ndarray, w: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Gradient and second derivatives of sum w l by the thresholds; l is convex in them, since
        log-concave densities have log-concave masses."""
        g, t = np.asarray(a, np.intp), len(self.thresholds)
        up, down, up_slope, down_slope = self.tips(a, s)

        def summed(at: np.ndarray, part: np.ndarray) -> np.ndarray:
            kept = (at >= 0) & (at < t)
            return np.bincount(at[kept], (w * part)[kept], t)

        slope = summed(g, -up) + summed(g - 1, down)
        bend = np.diag(summed(g, up * up - up_slope) + summed(g - 1, down * down + down_slope))
        inner = (g >= 1) & (g < t)
        off_diagonal = np.bincount(g[inner], -(w * up * down)[inner], t)[
            1:
        ]  # theta_(g-1) with theta_g
        return slope, bend + np.diag(off_diagonal, 1) + np.diag(off_diagonal, -1)

    def moved(self, step: np.ndarray) -> Self | None:
        """The loss with its thresholds moved by a step; None where they would change order."""
        cuts = np.asarray(self.thresholds) + step
        return (
            replace(self, thresholds=tuple(map(float, cuts)))
            if np.all(np.diff(cuts) > 1e-9)
            else None
        )

    def mean(self, s: np.ndarray) -> np.ndarray:
        """The expected grade; of the codes where grades are not numbers."""
        return self.probabilities(s) @ self.grades()

    def variance(self, s: np.ndarray) -> np.ndarray:
        return self.mean_and_variance(s)[1]

    def mean_and_variance(self, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        p, grades = self.probabilities(s), self.grades()
        mean = p @ grades
        return mean, np.maximum(p @ grades**2 - mean**2, 0.0)

    def grades(self) -> np.ndarray:
        """The levels as numbers: themselves, or their codes."""
        numeric = all(isinstance(v, (int, float, np.number)) for v in self.levels)
        return np.asarray(self.levels if numeric else range(len(self.levels)), np.float64)

    def probabilities(self, s: np.ndarray) -> np.ndarray:
        s = np.asarray(s)[..., None]
        return np.exp(
            -self.value(
                np.broadcast_to(np.arange(len(self.levels)), (*s.shape[:-1], len(self.levels))), s
            )
        )

    def draw(self, s: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """s + noise, cut at the thresholds."""
        return np.searchsorted(self.thresholds, s + self.noise(np.shape(s), rng)).astype(np.float64)

    def encode(self, values: np.ndarray) -> np.ndarray:
        return coded(
            self.name, np.asarray(values), {level: float(g) for g, level in enumerate(self.levels)}
        )

    def fitted_to(self, values: np.ndarray, weights: np.ndarray | None = None) -> Self:
        a, w = known(values, weights)
        levels = self.levels or tuple(levels_of(a))
        if self.thresholds or len(levels) < 2:
            return replace(self, levels=levels)
        codes = replace(self, levels=levels).encode(a).astype(np.intp)
        return self.with_shares(levels, np.bincount(codes, w, len(levels)), 0.5 * w.mean())

    def with_shares(self, levels: tuple[Any, ...], counts: np.ndarray, least: float = 0.5) -> Self:
        """The levels and thresholds of so many observations of each; ``least`` is half of one, for
        a grade that was not seen."""
        shares = np.maximum(counts, least)
        cuts = self.inverse(np.cumsum(shares)[:-1] / shares.sum())
        return replace(self, levels=levels, thresholds=tuple(map(float, cuts)))

    def check(self) -> bool:
        cuts = self.thresholds
        if (
            not isinstance(self.levels, tuple)
            or not isinstance(cuts, tuple)
            or len(cuts) != max(len(self.levels) - 1, 0)
        ):
            return False
        return all(isinstance(t, (int, float)) for t in cuts) and bool(np.all(np.diff(cuts) > 0))

    def best_constant(self, a: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """By steps of the majoriser; 0 where ``fitted_to`` set the thresholds by the same
        column."""
        s = 0.0
        for _ in range(200):
            whole = np.full(a.shape, s)
            step = (
                weights @ self.gradient(a, whole) / max(weights @ self.curvature(a, whole), 1e-300)
            )
            # one grade alone would drive it to infinity
            s = float(np.clip(s - step, -FARTHEST, FARTHEST))
            if abs(step) <= 1e-10:
                break
        return np.asarray(s)


@dataclass(frozen=True)
class OrderedLogit(Ordered):
    """F(x) = 1 / (1 + e^-x): l = log(1 + e^-u) + log(1 + e^v) - log(1 - e^(v - u)), u = theta_a -
    s, v = theta_(a-1) - s, two logistic terms."""

    name: ClassVar[str] = "ordered"
    summary: ClassVar[str] = "grades in an order, by logits"
    # near the best held-out likelihood on grades of MovieLens-100K, Jester and bfi
    ridge: ClassVar[tuple[float, float] | None] = (0.9, 0.5)
    bound: ClassVar[float | None] = 0.5
    deviation: ClassVar[float] = np.pi / np.sqrt(3)

    def value(self, a: np.ndarray, s: np.ndarray) -> np.ndarray:
        v, u = self.ends(a)
        return softplus(s - u) + softplus(v - s) - np.log1p(-np.exp(v - u))

    def gradient(self, a: np.ndarray, s: np.ndarray) -> np.ndarray:
        v, u = self.ends(a)
        return expit(s - u) - expit(v - s)

    def curvature(self, a: np.ndarray, s: np.ndarray) -> np.ndarray:
        v, u = self.ends(a)
        return tangent_in_squares(u - s) + tangent_in_squares(v - s)

    def conjugate(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        """z = e^(s - middle) solves (1 - y) z^2 - 2 y cosh(d) z - (1 + y) = 0, 2 d the width of the
        grade; the ends are logistic losses."""
        y = np.asarray(y, np.float64)
        v, u = self.ends(a)
        first, last = np.isinf(v), np.isinf(u)
        sign = np.where(first, 1.0, -1.0)
        p = np.clip(sign * y, 0.0, 1.0)
        edge = np.where(
            np.abs(p - sign * y) <= 1e-12,
            y * np.where(first, u, v) + xlogy(p, p) + xlogy(1 - p, 1 - p),
            np.inf,
        )
        low, high = np.where(first | last, -1.0, v), np.where(first | last, 1.0, u)
        half, inside = 0.5 * (high - low), np.clip(y, -1.0, 1.0)
        wide = inside * np.cosh(half)
        root = np.sqrt(wide * wide + 1 - inside * inside)
        # of the two forms of the root the one without cancellation
        with np.errstate(divide="ignore", invalid="ignore"):
            z = np.where(inside > 0, (wide + root) / (1 - inside), (1 + inside) / (root - wide))
            s = np.clip(0.5 * (low + high) + np.log(z), low - FARTHEST, high + FARTHEST)
        middle = inside * s - softplus(s - high) - softplus(low - s) + np.log1p(-np.exp(low - high))
        return np.where(first | last, edge, np.where(np.abs(y) <= 1 + 1e-12, middle, np.inf))

    def density(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        p = expit(x)
        f = p * (1 - p)
        return f, f * (1 - 2 * p)

    def inverse(self, p: np.ndarray) -> np.ndarray:
        return np.log(p / (1 - p))

    def noise(self, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        return rng.logistic(size=shape)


@dataclass(frozen=True)
class OrderedProbit(Ordered):
    """F normal: a is where s + a standard normal error falls among the thresholds. -log of a normal
    mass has second derivatives between 0 and 1."""

    name: ClassVar[str] = "ordered_probit"
    summary: ClassVar[str] = "grades in an order, by normal errors"
    # a probit is 0.6 of a logit, so its ridge is larger
    ridge: ClassVar[tuple[float, float] | None] = (1.5, 0.5)
    bound: ClassVar[float | None] = 1.0

    def value(self, a: np.ndarray, s: np.ndarray) -> np.ndarray:
        v, u = self.ends(a)
        return -_log_mass(self.steep * (v - s), self.steep * (u - s))

    def gradient(self, a: np.ndarray, s: np.ndarray) -> np.ndarray:
        v, u = (self.steep * (end - s) for end in self.ends(a))
        mass = _log_mass(v, u)
        at = [np.exp(-0.5 * end * end - mass) / np.sqrt(2 * np.pi) for end in (u, v)]
        return self.steep * (at[0] - at[1])

    def curvature(self, a: np.ndarray, s: np.ndarray) -> np.ndarray:
        return np.full(
            np.broadcast_shapes(np.shape(a), np.shape(s)),
            np.square(self.steep),
            np.asarray(s).dtype,
        )

    def steeper(self, steep: np.ndarray) -> OrderedProbit:
        """The same with errors of the standard deviations 1 / steep, one number for each entry that
        it is asked about."""
        return SteepProbit(self.levels, self.thresholds, steep)

    def conjugate(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        y = np.asarray(y, np.float64)
        v, u = self.ends(a)
        room = np.abs(y) + FARTHEST
        middle = np.where(np.isinf(v), u, np.where(np.isinf(u), v, 0.5 * (v + u)))
        found = conjugate_by_root(self, a, y, middle - room, middle + room)
        apt = (~np.isinf(v) | (y >= -1e-12)) & (~np.isinf(u) | (y <= 1e-12))
        return np.where(apt, found, np.inf)

    def density(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        f = np.exp(-0.5 * x * x) / np.sqrt(2 * np.pi)
        return f, np.where(np.isinf(x), 0.0, -np.where(np.isinf(x), 0.0, x) * f)

    def latent(self, a: np.ndarray, s: np.ndarray, uniform: np.ndarray) -> np.ndarray:
        """s + a normal error, given that it falls into grade a, by the inverse of its distribution
        at ``uniform`` numbers."""
        low, high = (self.steep * (end - s) for end in self.ends(a))
        # on the right side both masses are near 1: the mirror image has the digits
        flip = low + high > 0
        low, high = np.where(flip, -high, low), np.where(flip, -low, high)
        below, above = ndtr(low), ndtr(high)
        with np.errstate(divide="ignore", invalid="ignore"):
            z = ndtri(below + uniform * (above - below))
            # beyond all masses of double precision a tail is exponential
            far = np.maximum(high + np.log(uniform) / np.maximum(-high, 1.0), low)
        z = np.clip(np.where(high < -37, far, z), np.maximum(low, -1e3), high)
        return s + np.where(flip, -z, z) / self.steep

    def inverse(self, p: np.ndarray) -> np.ndarray:
        return ndtri(p)

    def noise(self, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        return rng.standard_normal(shape) / self.steep


@dataclass(frozen=True, eq=False)
class SteepProbit(OrderedProbit):
    """Grades whose errors have deviations of their own; made by ``steeper`` for the entries at
    hand, and never kept."""

    steep: Any = 1.0  # type: ignore[misc]

    def probabilities(self, s: np.ndarray) -> np.ndarray:
        each = replace(self, steep=np.asarray(self.steep)[..., None])
        grades = np.broadcast_to(np.arange(len(self.levels)), (*np.shape(s), len(self.levels)))
        return np.exp(-each.value(grades, np.asarray(s)[..., None]))


def _log_mass(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """log(Phi(high) - Phi(low)), from the tail that is smaller."""
    flip = low + high > 0  # on the right side both are near 1: the mirror image has the digits
    low, high = np.where(flip, -high, low), np.where(flip, -low, high)
    top = ndtr(high)
    with np.errstate(divide="ignore", invalid="ignore"):  # a grade of no width has no mass
        out = np.log(top - ndtr(low))
        far = top < LEAST_MASS
        if np.any(far):
            logs = log_ndtr(high)
            out = np.where(far, logs + np.log1p(-np.exp(log_ndtr(low) - logs)), out)
    return out
