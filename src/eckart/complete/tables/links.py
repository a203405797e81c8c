"""From expected scores to probabilities and rates: one small convex problem for each column that is not plain numbers.

    min over A (and thresholds)   sum_cells l(a, A [1, y]) + l2/2 |slopes|^2,     y the scores of the cell expected from all *other* columns of its row

y are the leave-one-out predictions that the factor model gives in closed form (``left_out_rows`` of an engine), so what is calibrated is what imputation does.

Newton steps in slopes and thresholds together, halved until the sum falls; those of a category with many levels, whose curvature is a large matrix, take its
bound 1/2 instead.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from eckart.complete.tables.columns import Part
from eckart.terms import Loss, Ordered

RIDGE = 1.0
"""Of slopes, in cells: a link of few cells stays finite where levels are separated exactly, and that of many does not notice."""
INTERCEPT = 1e-6
"""Ridge of an intercept, for each cell: next to none, and the answer is one."""
STEPS = 2000
LEVELS = 8
"""Of a category up to which steps are Newton's: eight levels and seven scores have 64 unknowns. They need some five steps, those by the bound a hundred."""
GAIN, STILL = 1e-7, 1e-4
"""Stop when a step gains less than the first for a cell and the gradient is below the second of what adds up to it, a tenth of what its certificate allows."""
CELLS = 1000
"""Cells that a link is fitted to: its few numbers are known to a few per cent by then."""


class _Rates:
    """Yes and no, and rates: one natural parameter, whose gradient is mean - a and whose curvature is a variance."""

    def __init__(self, part: Part, a: np.ndarray, f: np.ndarray, ridge: np.ndarray):
        self.part, self.loss, self.a, self.f, self.ridge = part, part.loss, a, f, ridge

    def begin(self) -> np.ndarray:
        return np.append(self.loss.best_constant(self.a, np.ones(len(self.a))), np.zeros(self.f.shape[1] - 1))

    def at(self, theta: np.ndarray) -> tuple[float, Any]:
        """The sum, and what ``move`` needs to know of it."""
        s = self.f @ theta
        return float(self.loss.value(self.a, s).sum() + 0.5 * self.ridge @ theta**2), s

    def move(self, theta: np.ndarray, s: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The gradient of each cell (cells x parameters), that of the sum, and a step of all unknowns."""
        g = self.loss.gradient(self.a, s)
        mean = g + self.a
        curved = np.maximum(mean * (1 - mean) if self.part.discrete else mean, 1e-6)
        slope = g @ self.f + self.ridge * theta
        return g[:, None], slope, -np.linalg.solve((self.f * curved[:, None]).T @ self.f + np.diag(self.ridge), slope)

    def made(self, theta: np.ndarray) -> tuple[Loss, np.ndarray]:
        return self.loss, theta[None]


class _Categories(_Rates):
    """One natural parameter for each level, the unknowns of a level side by side."""

    def __init__(self, part: Part, a: np.ndarray, f: np.ndarray, ridge: np.ndarray):
        super().__init__(part, a, f, np.tile(ridge, part.loss.width))
        self.hot = (np.arange(part.loss.width)[:, None] == a).astype(np.float64)
        self.fixed = np.linalg.inv(0.5 * f.T @ f + np.diag(ridge)) if part.loss.width > LEVELS else None

    def begin(self) -> np.ndarray:
        link = np.zeros((len(self.hot), self.f.shape[1]))
        link[:, 0] = self.loss.best_constant(self.a, np.ones(len(self.a)))
        return link.ravel()

    def at(self, theta: np.ndarray) -> tuple[float, Any]:
        s = theta.reshape(len(self.hot), -1) @ self.f.T
        s -= s.max(axis=0)
        p = np.exp(s)
        total = p.sum(axis=0)
        return float(np.log(total).sum() - np.vdot(self.hot, s) + 0.5 * self.ridge @ theta**2), p / total

    def move(self, theta: np.ndarray, p: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Second derivatives are sum (diag p - p p^T) kron f f^T and the ridge."""
        (k, n), g = p.shape, p - self.hot
        slope = (g @ self.f).ravel() + self.ridge * theta
        if self.fixed is not None:
            return g.T, slope, -(slope.reshape(k, -1) @ self.fixed).ravel()
        each = p[:, None, :] * self.f.T
        flat = each.reshape(-1, n)
        bend = np.diag(self.ridge) - flat @ flat.T
        blocks = bend.reshape(k, self.f.shape[1], k, -1)
        for level in range(k):
            blocks[level, :, level] += each[level] @ self.f
        return g.T, slope, -np.linalg.solve(bend, slope)

    def made(self, theta: np.ndarray) -> tuple[Loss, np.ndarray]:
        return self.loss, theta.reshape(len(self.hot), -1)


class _Grades(_Rates):
    """Slopes, and then thresholds: what one would gain alone the other takes back."""

    loss: Ordered

    def __init__(self, part: Part, a: np.ndarray, f: np.ndarray, ridge: np.ndarray):
        super().__init__(part, a, f[:, 1:], ridge[1:])  # thresholds are its intercepts
        self.hot = (np.arange(len(part.levels))[:, None] == a).astype(np.float64)

    def begin(self) -> np.ndarray:
        return np.append(np.zeros(self.f.shape[1]), self.loss.thresholds)

    def at(self, theta: np.ndarray) -> tuple[float, Any]:
        p = self.f.shape[1]
        cuts = theta[p:]
        if not np.all(np.diff(cuts) > 1e-9):
            return np.inf, None
        loss, s = replace(self.loss, thresholds=tuple(cuts.tolist())), self.f @ theta[:p]
        each = loss.value(self.a, s)
        return float(each.sum() + 0.5 * self.ridge @ theta[:p] ** 2), (loss, s, each)

    def move(self, theta: np.ndarray, state: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        loss, s, each = state
        up, down, up_slope, down_slope = loss.tips(self.a, s, each)
        f, p, t, g = self.f, self.f.shape[1], len(theta) - self.f.shape[1], up - down
        own = np.column_stack([-up, up * up - up_slope, down, down * down + down_slope, -up * down])
        mixed = (up_slope - up * g)[:, None] * f, (down * g - down_slope)[:, None] * f  # d2 l / d theta d slopes, of the upper and the lower end
        sums = self.hot @ np.hstack([own, *mixed])  # of each grade: the upper end of grade i is threshold i, its lower end i - 1
        by_cuts = sums[:t, 0] + sums[1:, 2]
        bend, between = np.diag(sums[:t, 1] + sums[1:, 3]), sums[1:t, 4]  # threshold i - 1 with i
        slope = g @ f + self.ridge * theta[:p]
        whole = np.empty((p + t, p + t))
        whole[:p, :p] = (f * np.maximum(down_slope - up_slope + g * g, 1e-6)[:, None]).T @ f + np.diag(self.ridge)
        whole[p:, p:] = bend + np.diag(between, 1) + np.diag(between, -1)
        whole[p:, :p] = sums[:t, 5 : 5 + p] + sums[1:, 5 + p :]
        whole[:p, p:] = whole[p:, :p].T
        return g[:, None], slope, -np.linalg.lstsq(whole, np.concatenate([slope, by_cuts]), rcond=None)[0]

    def made(self, theta: np.ndarray) -> tuple[Loss, np.ndarray]:
        p = self.f.shape[1]
        return replace(self.loss, thresholds=tuple(theta[p:].tolist())), np.append(0.0, theta[:p])[None]


def fit_link(part: Part, a: np.ndarray, y: np.ndarray) -> Part:
    """The part with its link (and thresholds) fitted to codes ``a`` at left-out scores ``y``."""
    f = np.column_stack([np.ones(len(y)), y])
    kind = _Grades if isinstance(part.loss, Ordered) else _Categories if part.loss.width > 1 else _Rates
    problem = kind(part, a, f, _ridge(f))
    theta = problem.begin()
    now, state = problem.at(theta)
    for _ in range(STEPS):
        g, slope, step = problem.move(theta, state)
        for halved in range(20):  # a millionth of the step: nothing is left to gain
            trial = theta + 0.5**halved * step
            new, there = problem.at(trial)
            if new <= now:
                break
        else:
            break
        theta, state, gain, now = trial, there, now - new, new
        if gain <= GAIN * len(a):
            size = (np.abs(g).T @ np.abs(problem.f)).ravel() + np.abs(problem.ridge * theta[: len(slope)])
            if np.linalg.norm(slope) <= STILL * np.linalg.norm(size):
                break
    loss, link = problem.made(theta)
    return replace(part, loss=loss, link=link)


def _ridge(f: np.ndarray) -> np.ndarray:
    ridge = np.full(f.shape[1], RIDGE)
    ridge[0] = INTERCEPT * len(f)
    return ridge


def link_gradient(part: Part, a: np.ndarray, y: np.ndarray) -> float:
    """The gradient of the problem above by A, relative to the sizes of what adds up to it."""
    f = np.column_stack([np.ones(len(y)), y])
    ridge = _ridge(f)
    g = part.loss.gradient(a, part.natural(y)).reshape(len(a), -1)
    slope, size = g.T @ f + ridge * part.link, np.abs(g).T @ np.abs(f) + np.abs(ridge * part.link)
    first = int(isinstance(part.loss, Ordered))  # thresholds are its intercepts
    return float(np.linalg.norm(slope[:, first:])) / max(float(np.linalg.norm(size[:, first:])), 1e-300)
