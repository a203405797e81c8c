"""From expected scores to probabilities and rates: one small convex problem for each column that is
not plain numbers.

    min over A (and thresholds)   sum_cells l(a, A [1, y]) + l2/2 |slopes|^2,     y the scores of
    the cell expected from all *other* columns of its row

y are the leave-one-out predictions that the factor model gives in closed form (``left_out_rows`` of
an engine), so what is calibrated is what imputation does.

Newton steps in slopes and thresholds together, halved until the sum falls. Those of a category with
many levels, whose curvature is a large matrix, are found by conjugate gradients from products with
it: a level of few cells bends the sum little, and steps by the bound 1/2 of all curvatures would
need thousands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from eckart.complete.tables.columns import Part
from eckart.decompositions import eigh
from eckart.terms import Loss, Ordered

RIDGE = 1.0
"""Of slopes, in cells: a link of few cells stays finite where levels are separated exactly, and
that of many does not notice."""
INTERCEPT = 1e-6
"""Ridge of an intercept, for each cell: next to none, and the answer is one."""
STEPS = 200
"""Most steps of a link: Newton's need some five, and this many only where they are cut short again
and again."""
LEVELS = 8
"""Of a category up to which the curvature is a matrix: eight levels and seven scores have 64
unknowns."""
PRODUCTS, LEFT = 100, 0.05
"""Products with the curvature for a step at the most, and the share of the gradient that a step may
leave: the next one begins with another curvature."""
STILL = 1e-5
"""Stop when the gradient is below this share of what adds up to it, a hundredth of what its
certificate allows: a Newton step beyond it gains nothing."""
AXES = 1e-14
"""Share of the largest second moment of scores from which on an axis is more than rounding."""
CELLS = 1000
"""Cells that a link is fitted to: its few numbers are known to a few per cent by then."""


class _Rates:
    """Yes and no, and rates: one natural parameter, whose gradient is mean - a and whose curvature
    is a variance."""

    def __init__(
        self, part: Part, a: np.ndarray, f: np.ndarray, ridge: np.ndarray, times: np.ndarray
    ):
        self.part, self.loss, self.a, self.f, self.ridge, self.size = (
            part,
            part.loss,
            a,
            f,
            ridge,
            np.abs(f),
        )
        self.times, self.count = times, float(times.sum())

    def begin(self) -> np.ndarray:
        """Near the answer: by normal scores of equal spread for yes and no, by the scores' own
        logarithms (or the mean alone) for rates."""
        if not self.part.discrete:
            level = np.log(max(self.times @ self.a, 0.5) / self.count)
            return self.nearer(
                np.array([self.part.offset, self.part.scale]), np.array([level, 0.0])
            )
        no, yes = _by_spreads(self.f, np.array([1 - self.a, self.a]) * self.times)
        return yes - no

    def nearer(self, *starts: np.ndarray) -> np.ndarray:
        return min(starts, key=lambda theta: self.at(theta)[0])

    def at(self, theta: np.ndarray) -> tuple[float, Any]:
        """The sum, and what ``slope`` needs to know of it."""
        s = self.f @ theta
        return float(self.times @ self.loss.value(self.a, s) + 0.5 * self.ridge @ theta**2), s

    def slope(self, theta: np.ndarray, s: Any) -> tuple[np.ndarray, np.ndarray, Any]:
        """The gradient of the sum, sizes of what adds up to it, and what ``step`` needs to know."""
        g, own = self.loss.gradient(self.a, s), self.ridge * theta
        each = self.times * g
        return each @ self.f + own, np.abs(each) @ self.size + np.abs(own), g

    def step(self, slope: np.ndarray, g: Any) -> np.ndarray:
        mean = g + self.a
        curved = self.times * np.maximum(mean * (1 - mean) if self.part.discrete else mean, 1e-6)
        return -np.linalg.solve((self.f * curved[:, None]).T @ self.f + np.diag(self.ridge), slope)

    def made(self, theta: np.ndarray) -> tuple[Loss, np.ndarray]:
        return self.loss, theta[None]


class _Categories(_Rates):
    """One natural parameter for each level, the unknowns of a level side by side."""

    def __init__(
        self, part: Part, a: np.ndarray, f: np.ndarray, ridge: np.ndarray, times: np.ndarray
    ):
        super().__init__(part, a, f, np.tile(ridge, part.loss.width), times)
        self.hot = (np.arange(part.loss.width)[:, None] == a) * times

    def begin(self) -> np.ndarray:
        """By normal scores of equal spread, or by the shares of the levels alone where these are
        nearer: of columns that repeat one another the spread is next to none, and the first would
        begin with slopes of thousands."""
        by_spreads = _by_spreads(self.f, self.hot)
        by_shares = np.zeros_like(by_spreads)
        by_shares[:, 0] = np.log(np.maximum(self.hot.sum(axis=1), 0.5))
        return self.nearer(
            *((link - link.mean(axis=0)).ravel() for link in (by_spreads, by_shares))
        )

    def at(self, theta: np.ndarray) -> tuple[float, Any]:
        s = theta.reshape(len(self.hot), -1) @ self.f.T
        s -= s.max(axis=0)
        p = np.exp(s)
        total = p.sum(axis=0)
        return float(
            self.times @ np.log(total) - np.vdot(self.hot, s) + 0.5 * self.ridge @ theta**2
        ), p / total

    def slope(self, theta: np.ndarray, p: Any) -> tuple[np.ndarray, np.ndarray, Any]:
        g, own = p * self.times - self.hot, self.ridge * theta
        return (g @ self.f).ravel() + own, (np.abs(g) @ self.size).ravel() + np.abs(own), p

    def step(self, slope: np.ndarray, p: Any) -> np.ndarray:
        """Second derivatives are sum (diag p - p p^T) kron f f^T and the ridge."""
        k, n = p.shape
        if k > LEVELS:
            diagonal = ((p * (1 - p) * self.times) @ self.f**2).ravel() + self.ridge
            return -_solved(lambda v: self.bent(p, v), diagonal, slope)
        each = p[:, None, :] * self.f.T
        flat = each.reshape(-1, n)
        bend = np.diag(self.ridge) - (flat * self.times) @ flat.T
        each = each * self.times
        blocks = bend.reshape(k, self.f.shape[1], k, -1)
        for level in range(k):
            blocks[level, :, level] += each[level] @ self.f
        return -np.linalg.solve(bend, slope)

    def bent(self, p: np.ndarray, v: np.ndarray) -> np.ndarray:
        """The second derivatives times v."""
        s = v.reshape(len(p), -1) @ self.f.T
        return ((p * (s - (p * s).sum(axis=0)) * self.times) @ self.f).ravel() + self.ridge * v

    def made(self, theta: np.ndarray) -> tuple[Loss, np.ndarray]:
        return self.loss, theta.reshape(len(self.hot), -1)


class _Grades(_Rates):
    """Slopes, and then thresholds: what one would gain alone the other takes back."""

    loss: Ordered

    def __init__(
        self, part: Part, a: np.ndarray, f: np.ndarray, ridge: np.ndarray, times: np.ndarray
    ):
        super().__init__(part, a, f[:, 1:], ridge[1:], times)  # thresholds are its intercepts
        self.hot = (np.arange(len(part.levels))[:, None] == a) * times

    def begin(self) -> np.ndarray:
        """As if the scores of grades were what is seen of a normal variable: y leaves the share r
        of its variance, so thresholds and slope grow by 1/sqrt r."""
        score, y = self.part.scores[self.a.astype(np.intp), 0], self.f[:, 0]
        slope = (self.times * score) @ y / max((self.times * y) @ y, 1e-12)
        rest = np.sqrt(max(self.times @ (score - slope * y) ** 2 / self.count, 0.05))
        return np.append(
            self.loss.deviation * slope / rest, np.asarray(self.loss.thresholds) / rest
        )

    def at(self, theta: np.ndarray) -> tuple[float, Any]:
        p = self.f.shape[1]
        cuts = theta[p:]
        if not np.all(np.diff(cuts) > 1e-9):
            return np.inf, None
        loss, s = replace(self.loss, thresholds=tuple(cuts.tolist())), self.f @ theta[:p]
        each = loss.value(self.a, s)
        return float(self.times @ each + 0.5 * self.ridge @ theta[:p] ** 2), (loss, s, each)

    def slope(self, theta: np.ndarray, state: Any) -> tuple[np.ndarray, np.ndarray, Any]:
        loss, s, each = state
        up, down, up_slope, down_slope = loss.tips(self.a, s, each)
        f, p, g, t = self.f, self.f.shape[1], up - down, len(loss.thresholds)
        parts = [up, down, up * up - up_slope, down * down + down_slope, -up * down]
        mixed = (
            (up_slope - up * g)[:, None] * f,
            (down * g - down_slope)[:, None] * f,
        )  # d2 l / d theta d slopes, of the upper and the lower end
        sums = self.hot @ np.hstack(
            [np.column_stack(parts), *mixed]
        )  # of each grade: the upper end of grade i is threshold i, its lower end i - 1
        own = self.ridge * theta[:p]
        slope = np.append((self.times * g) @ f + own, sums[1:, 1] - sums[:t, 0])
        size = np.append(
            (self.times * np.abs(g)) @ self.size + np.abs(own), sums[1:, 1] + sums[:t, 0]
        )
        return (
            slope,
            size,
            (
                sums,
                (f * (self.times * np.maximum(down_slope - up_slope + g * g, 1e-6))[:, None]).T @ f,
            ),
        )

    def step(self, slope: np.ndarray, state: Any) -> np.ndarray:
        (sums, bend), p = state, self.f.shape[1]
        t = len(slope) - p
        between = sums[1:t, 4]  # threshold i - 1 with i
        whole = np.empty((p + t, p + t))
        whole[:p, :p] = bend + np.diag(self.ridge)
        whole[p:, p:] = (
            np.diag(sums[:t, 2] + sums[1:, 3]) + np.diag(between, 1) + np.diag(between, -1)
        )
        whole[p:, :p] = sums[:t, 5 : 5 + p] + sums[1:, 5 + p :]
        whole[:p, p:] = whole[p:, :p].T
        return -np.linalg.lstsq(whole, slope, rcond=None)[0]

    def made(self, theta: np.ndarray) -> tuple[Loss, np.ndarray]:
        p = self.f.shape[1]
        return replace(self.loss, thresholds=tuple(theta[p:].tolist())), np.append(0.0, theta[:p])[
            None
        ]


def _solved(
    times: Callable[[np.ndarray], np.ndarray], diagonal: np.ndarray, b: np.ndarray
) -> np.ndarray:
    """x with |A x - b| at most a share of |b|, by conjugate gradients on a positive definite A, in
    units of its diagonal."""
    x, rest = np.zeros_like(b), b
    scaled = rest / diagonal
    way, now = scaled, float(rest @ scaled)
    for _ in range(PRODUCTS):
        if np.linalg.norm(rest) <= LEFT * np.linalg.norm(b):
            break
        image = times(way)
        length = now / float(way @ image)
        x, rest = x + length * way, rest - length * image
        scaled = rest / diagonal
        before, now = now, float(rest @ scaled)
        way = scaled + now / before * way
    return x


def _by_spreads(f: np.ndarray, hot: np.ndarray) -> np.ndarray:
    """log p_g - m_g^T S^-1 m_g / 2 and S^-1 m_g of each level: its logits, were scores normal
    around m_g with one spread S. f begins with a column of ones; hot (levels x cells) is how often
    each cell counts for its level."""
    count, total = np.maximum(hot.sum(axis=1), 0.5), hot.sum()
    centre = hot @ f[:, 1:] / count[:, None]
    spread = (
        (f[:, 1:].T * hot.sum(axis=0)) @ f[:, 1:] - (centre * count[:, None]).T @ centre
    ) / total + 1e-3 * np.eye(f.shape[1] - 1)
    slopes = np.linalg.solve(spread, centre.T).T
    return np.column_stack([np.log(count / total) - 0.5 * (slopes * centre).sum(axis=1), slopes])


def fit_link(part: Part, a: np.ndarray, y: np.ndarray, times: np.ndarray | None = None) -> Part:
    """The part with its link (and thresholds) fitted to codes ``a`` at left-out scores ``y``, cells
    as often as they count (``times``); rates stay in the range of those at ``y``, beyond which the
    exponential was fitted to nothing."""
    axes, times = _axes(y), np.ones(len(a)) if times is None else times
    f = np.column_stack([np.ones(len(y)), y @ axes.T])
    kind = (
        _Grades
        if isinstance(part.loss, Ordered)
        else _Categories
        if part.loss.width > 1
        else _Rates
    )
    problem = kind(part, a, f, _ridge(f, times), times)
    theta = problem.begin()
    now, state = problem.at(theta)
    for _ in range(STEPS):
        slope, size, known = problem.slope(theta, state)
        if np.linalg.norm(slope) <= STILL * np.linalg.norm(size):
            break
        step = problem.step(slope, known)
        for halved in range(20):  # a millionth of the step: nothing is left to gain
            trial = theta + 0.5**halved * step
            new, there = problem.at(trial)
            if new <= now:
                break
        else:
            break
        theta, state, now = trial, there, new
    loss, link = problem.made(theta)
    made = replace(part, loss=loss, link=np.column_stack([link[:, 0], link[:, 1:] @ axes]))
    if part.discrete:
        return made
    rates = made.numbers(y)
    return replace(made, low=float(rates.min()), high=float(rates.max()))


def _axes(y: np.ndarray) -> np.ndarray:
    """Orthonormal axes in which all scores lie (axes x scores): a category of 200 levels is known by
    as few numbers as the model has, and the best slopes lie in the same axes, since the ridge would
    punish all else."""
    if y.shape[1] < LEVELS:
        return np.eye(y.shape[1])
    values, vectors = eigh(y.T @ y)
    return vectors[:, values > AXES * values[-1]].T


def _ridge(f: np.ndarray, times: np.ndarray) -> np.ndarray:
    ridge = np.full(f.shape[1], RIDGE)
    ridge[0] = INTERCEPT * times.sum()
    return ridge


def link_gradient(
    part: Part, a: np.ndarray, y: np.ndarray, times: np.ndarray | None = None
) -> float:
    """The gradient of the problem above by A, relative to the sizes of what adds up to it."""
    f, times = np.column_stack([np.ones(len(y)), y]), np.ones(len(a)) if times is None else times
    ridge = _ridge(f, times)
    g = part.loss.gradient(a, part.natural(y)).reshape(len(a), -1) * times[:, None]
    slope, size = g.T @ f + ridge * part.link, np.abs(g).T @ np.abs(f) + np.abs(ridge * part.link)
    first = int(isinstance(part.loss, Ordered))  # thresholds are its intercepts
    return float(np.linalg.norm(slope[:, first:])) / max(
        float(np.linalg.norm(size[:, first:])), 1e-300
    )
