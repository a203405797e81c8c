"""From expected scores to probabilities and rates: one small convex problem for each column that is not plain numbers.

    min over A (and thresholds)   sum_cells l(a, A [1, y]) + l2/2 |slopes|^2,     y the scores of the cell expected from all *other* columns of its row

y are the leave-one-out predictions that the factor model gives in closed form, so what is calibrated is what imputation does. With the posterior mean s and
covariance C = W S W^T of the scores of the cell and their noise Psi (all given the cell itself), the prediction without the cell is

    y - Psi (Psi - C)^-1 (y - s).

Newton steps in slopes and thresholds together, halved until the sum falls; those of a category with many levels, whose curvature is a large matrix, take its
bound 1/2 instead.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

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


def fit_link(part: Part, a: np.ndarray, y: np.ndarray) -> Part:
    """The part with its link (and thresholds) fitted to codes ``a`` at left-out scores ``y``."""
    x = np.column_stack([np.ones(len(y)), y])
    loss, wide = part.loss, part.loss.width
    ridge = np.full(x.shape[1], RIDGE)
    ridge[0] = INTERCEPT * len(a)
    first = int(isinstance(loss, Ordered))  # thresholds are its intercepts
    link = np.zeros((wide, x.shape[1]))
    if not first:
        link[:, 0] = loss.best_constant(a, np.ones(len(a)))
    f, own = x[:, first:], ridge[first:]
    fixed = np.linalg.inv(0.5 * f.T @ f + np.diag(own)) if wide > LEVELS else None

    def natural(m: np.ndarray) -> np.ndarray:
        s = x @ m.T
        return s if wide > 1 else s[:, 0]

    def value(m: np.ndarray, l: Loss, s: np.ndarray) -> float:
        return float(l.value(a, s).sum() + 0.5 * (ridge * m**2).sum())

    s = natural(link)
    now = value(link, loss, s)
    for _ in range(STEPS):
        cuts: np.ndarray | None = None
        g = loss.gradient(a, s).reshape(len(a), wide)
        slope = g.T @ f + (ridge * link)[:, first:]
        if fixed is not None:
            step = -slope @ fixed
        elif wide > 1:
            step = -np.linalg.solve(_bend_of_levels(loss.mean(s), f, own), slope.ravel()).reshape(slope.shape)
        elif isinstance(loss, Ordered):
            both = _graded_step(loss, a, s, f, own, slope[0])
            step, cuts = both[None, : f.shape[1]], both[f.shape[1] :]
        else:
            mean = g[:, 0] + a  # both losses that come here have the gradient mean - a, and their curvature is a variance
            curved = mean * (1 - mean) if part.discrete else mean
            step = -np.linalg.solve((f * np.maximum(curved, 1e-6)[:, None]).T @ f + np.diag(own), slope[0])[None]
        for halved in range(20):  # a millionth of the step: nothing is left to gain
            trial, moved = link.copy(), loss
            trial[:, first:] += 0.5**halved * step
            if cuts is not None:
                moved = cast("Any", loss).moved(0.5**halved * cuts)
            there = natural(trial)
            new = np.inf if moved is None else value(trial, moved, there)
            if new <= now:
                break
        else:
            break
        link, loss, s, gain = trial, moved, there, now - new
        now = new
        size = np.abs(g).T @ np.abs(f) + np.abs(ridge * link)[:, first:]
        if gain <= GAIN * len(a) and np.linalg.norm(slope) <= STILL * np.linalg.norm(size):
            break
    return replace(part, loss=loss, link=link)


def link_gradient(part: Part, a: np.ndarray, y: np.ndarray) -> float:
    """The gradient of the problem above by A, relative to the sizes of what adds up to it."""
    x = np.column_stack([np.ones(len(y)), y])
    ridge = np.full(x.shape[1], RIDGE)
    ridge[0] = INTERCEPT * len(a)
    g = part.loss.gradient(a, part.natural(y)).reshape(len(a), -1)
    slope, size = g.T @ x + ridge * part.link, np.abs(g).T @ np.abs(x) + np.abs(ridge * part.link)
    first = int(isinstance(part.loss, Ordered))  # thresholds are its intercepts
    return float(np.linalg.norm(slope[:, first:])) / max(float(np.linalg.norm(size[:, first:])), 1e-300)


def _bend_of_levels(p: np.ndarray, f: np.ndarray, ridge: np.ndarray) -> np.ndarray:
    """Second derivatives of the sum by A (levels x scores), sum (diag p - p p^T) kron f f^T and the ridge."""
    n, k = p.shape
    each = (p[:, :, None] * f[:, None, :]).reshape(n, -1)
    out = -(each.T @ each).reshape(k, f.shape[1], k, f.shape[1])
    for g in range(k):
        out[g, :, g] += (each.reshape(n, k, -1)[:, g].T @ f) + np.diag(ridge)
    return out.reshape(each.shape[1], each.shape[1])


def _graded_step(
    loss: Ordered, a: np.ndarray, s: np.ndarray, f: np.ndarray, ridge: np.ndarray, slope: np.ndarray
) -> np.ndarray:
    """A Newton step of slopes and thresholds together: what one would gain alone the other takes back."""
    up, down, up_slope, down_slope = loss.tips(a, s)
    code, t, p = np.asarray(a, np.intp), len(loss.thresholds), f.shape[1]
    by_cuts, bend = loss.by_thresholds(a, s, np.ones(len(a)))
    g = up - down
    mixed = np.zeros((t + 1, p))  # d2 l / d theta d slopes
    for j in range(p):
        mixed[:, j] = np.bincount(code, (up_slope - up * g) * f[:, j], t + 1)
        mixed[:t, j] += np.bincount(code, (down * g - down_slope) * f[:, j], t + 1)[1:]
    whole = np.empty((p + t, p + t))
    whole[:p, :p] = (f * np.maximum(down_slope - up_slope + g * g, 1e-6)[:, None]).T @ f + np.diag(ridge)
    whole[p:, p:], whole[p:, :p], whole[:p, p:] = bend, mixed[:t], mixed[:t].T
    return -np.linalg.lstsq(whole, np.concatenate([slope, by_cuts]), rcond=None)[0]
