"""Rank and ridge of a table by cells that were hidden: few candidates, each begun where the one before ended."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from eckart.complete.tables.factor_em import Gaussian, start
from eckart.complete.tables.fit_table import Climb, Placed, Scores, descend

ROWS = 1000
"""Rows by which rank and ridge are chosen: more would tell candidates apart that hardly differ."""
SHARE = 0.1
"""Of the known cells that are hidden for it."""
RIDGES = (10.0, 1.0, 100.0)
"""In rows: a column leans on its mean as if it had been seen so many times more without saying anything. The first is used while the rank is chosen."""
RANKS = (1, 2, 4, 8, 16)
"""More has not gained on any table tried, and the cost of a step grows with the cube; ``n_components`` can ask for more."""
LOOSE, STEPS = 2e-3, 8
"""Tolerance and most steps of a candidate: differences between candidates are larger than what is left."""
ENOUGH, MANY = 0.01, 8
"""Share of the error that a rank must gain: two in a row that do not, or one from rank 8 on, are the last that are tried."""
BETTER = 0.002
"""Share of the error that another ridge must gain: with the first one steps are few."""


class Candidate(NamedTuple):
    """Rank, ridge, and the error at hidden cells: the mean over columns of squared errors of scores, in variances of the column."""

    k: int
    l2: float
    error: float


class Choice(NamedTuple):
    """The best candidate, all of them, and the Gaussian that it found on a part of the rows."""

    best: Candidate
    table: list[Candidate]
    g: Gaussian


def choose(table: Scores, k: int | None, l2: float | None, rng: np.random.Generator, engine: Any) -> Choice:
    """Ranks 1, 2, 4, ... while they gain, then other ridges at the best of them; what is given is kept."""
    rows = rng.permutation(table.rows)[
        :ROWS
    ]  # in this order: a mask that a user drew with the same seed is not drawn again
    truth = table.y[rows]
    hidden = np.zeros(truth.shape, bool)
    for p in table.parts:
        if not p.cycle:
            hidden[:, p.at] = (rng.random(len(rows)) < SHARE)[:, None] & ~np.isnan(truth[:, p.at])
    part = Scores(table.parts, np.where(hidden, np.nan, truth))
    placed, n = Placed.of(part, engine), truth.shape[1]
    top = max(1, min(RANKS[-1], n - 1, len(rows) - 1))
    ranks = [k] if k is not None else [r for r in RANKS if r < top] + [top]
    ridges = RIDGES if l2 is None else (l2,)
    away = _Away(part, truth, hidden)
    tried: list[tuple[Candidate, Gaussian]] = []

    def measure(g: Gaussian, ridge: float) -> Climb:
        climb = descend(placed, g, ridge, LOOSE, STEPS)
        tried.append((Candidate(climb.g.k, ridge, away.error(climb.g, engine.get(climb.codes))), climb.g))
        return climb

    climb = None
    for rank in ranks:
        climb = measure(start(part.y, rank) if climb is None else _grown(climb, len(rows), rank), ridges[0])
        errors = [one.error for one, _ in tried]
        small = [errors[i] > (1 - ENOUGH) * min(errors[:i]) for i in range(1, len(errors))]
        if (small[-1:] == [True] and rank >= MANY) or small[-2:] == [True, True]:
            break
    best = ranked = min(tried, key=lambda one: one[0].error)
    for ridge in ridges[1:]:
        measure(ranked[1], ridge)
        if tried[-1][0].error < (1 - BETTER) * best[0].error:
            best = tried[-1]
    return Choice(best[0], [one for one, _ in tried], best[1])


class _Away:
    """The cells that are hidden: their true scores, and how far expected ones are from them."""

    def __init__(self, part: Scores, truth: np.ndarray, hidden: np.ndarray):
        self.i, self.j = np.nonzero(hidden)
        self.truth = truth[self.i, self.j]
        self.owner = np.repeat(np.arange(len(part.parts)), [p.width for p in part.parts])[self.j]
        self.counts = np.bincount(self.owner, minlength=len(part.parts))

    def error(self, g: Gaussian, codes: np.ndarray) -> float:
        """The mean over columns of squared errors at hidden cells."""
        there = g.mu[self.j] + np.einsum("ek,ek->e", codes[self.i], g.w[self.j])
        squares, seen = np.bincount(self.owner, (self.truth - there) ** 2, len(self.counts)), self.counts > 0
        return float(np.mean(squares[seen] / self.counts[seen])) if seen.any() else 1.0


def _grown(climb: Climb, rows: int, k: int) -> Gaussian:
    """With more directions: the leading ones of what is left unexplained."""
    assert climb.moments is not None
    mu = climb.moments.first / rows
    return climb.g.grown(k, climb.moments.second / rows - np.outer(mu, mu))
