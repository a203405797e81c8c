"""Rank and ridge of a table by cells that were hidden: few candidates, each begun where the one
before ended."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from eckart.complete.tables.factor_em import (
    INNER,
    LEAST_NOISE,
    GaussianFactors,
    m_step,
    start,
)
from eckart.complete.tables.fit_table import PlacedTable, Scores
from eckart.decompositions import eigh, svd
from eckart.engines.protocol import FilledMoments, Tall

ROWS = 1000
"""Rows by which rank and ridge are chosen: more would tell candidates apart that hardly differ."""
SHARE = 0.1
"""Of the known cells that are hidden for it."""
RIDGE, WEAKER, STRONGER = 10.0, (1.0, 0.1, 0.01, 1e-3, 1e-4), (100.0,)
"""In rows: a column leans on its mean as if it had been seen so many times more without saying
anything. The first is used while the rank is chosen. Below one row only columns that tell each other
nearly exactly gain, as those of a spectrum do: a ridge of one row keeps a noise of 1 / rows."""
RANKS, FIRST = (1, 2, 4, 8, 16, 32, 64, 128), 4
"""The ladder goes on while the error falls. The first that is tried leads up,
or down where the next one gains nothing: of most tables the lowest need not be tried."""
STEPS = 2
"""Of a candidate, from the moments that the one before has left: differences between candidates are
larger than what is left."""
ENOUGH, MANY = 0.01, 8
"""Share of the error that a rank must gain: two in a row that do not, or one from rank 8 on, are
the last that are tried."""
BETTER, FAR_BETTER = 0.002, 0.1
"""Share of the error that another ridge must gain: with the first one steps are few. And one below
one row: small tables of loose columns gain some per cent by chance, nearly exact ones a third."""


MOST_COST = 2e11
"""Multiplications of a candidate at the most, some twenty processor seconds: counted, not timed, so
that the same data have the same answer."""


def _cost(k: int, n: int, rows: int) -> float:
    """Of the steps of a candidate: a system of gaps or codes for each row, and inner steps on the
    moments."""
    return STEPS * (rows * (min(n, k) ** 3 / 3 + n * k * k) + INNER * n * n * k)


class Candidate(NamedTuple):
    """Rank, ridge, and the error at hidden cells: the mean over columns of squared errors of
    scores, in variances of the column."""

    k: int
    l2: float
    error: float


class TableChoice(NamedTuple):
    """The best candidate, all of them, and the Gaussian that it found on a part of the rows."""

    best: Candidate
    table: list[Candidate]
    g: GaussianFactors
    budget: bool
    """Whether higher ranks might have gained but were beyond it."""


def choose(
    table: Scores, k: int | None, l2: float | None, rng: np.random.Generator, engine: Any
) -> TableChoice:
    """Ranks 4, 8, 16, ... while they gain, or 2 and 1, then other ridges at the best of them; what
    is given is kept."""
    rows = rng.permutation(table.rows)[
        :ROWS
    ]  # in this order: a mask that a user drew with the same seed is not drawn again
    truth = table.y[rows]
    hidden = np.zeros(truth.shape, bool)
    for p in table.parts:
        if not p.cycle:
            hidden[:, p.at] = (rng.random(len(rows)) < SHARE)[:, None] & ~np.isnan(truth[:, p.at])
    part = replace(table.some(rows), y=np.where(hidden, np.nan, truth))
    n = truth.shape[1]
    top = max(1, min(RANKS[-1], n - 1, len(rows) - 1))
    ranks = [k] if k is not None else [r for r in RANKS if r < top] + [top]
    ridge = RIDGE if l2 is None else l2
    tried = _Tried(PlacedTable.of(part, engine), _Away(part, truth, hidden))
    middle = max((i for i, rank in enumerate(ranks) if rank <= FIRST), default=0)
    first = last = tried.measure(start(part.y, ranks[middle]), ridge)
    budget = False
    for rank in ranks[middle + 1 :]:
        if budget := _cost(rank, n, len(rows)) > MOST_COST:
            break
        last = tried.measure(tried.grown(last, rank), ridge, last)
        errors = [one.candidate.error for one in tried.all]
        small = [errors[i] > (1 - ENOUGH) * min(errors[:i]) for i in range(1, len(errors))]
        if (small[-1] and rank >= MANY) or small[-2:] == [True, True]:
            break
    last = first
    for rank in reversed(ranks[:middle]):
        if tried.best() is not last:
            break
        last = tried.measure(_leading(last.g, rank), ridge, last)
    best = ranked = tried.best()
    for ladder in (WEAKER, STRONGER) if l2 is None else ():
        for ridge in ladder:
            near = best.g if ridge >= 1 else tried.sharpened(best)
            other = tried.measure(near, ridge, best)
            gain = BETTER if ridge >= 1 else FAR_BETTER
            if not other.candidate.error < (1 - gain) * best.candidate.error:
                break
            best = other
        if best is not ranked:
            break  # a weaker ridge that gains leaves nothing to a stronger one
    return TableChoice(best.candidate, [one.candidate for one in tried.all], best.g, budget)


class _Try(NamedTuple):
    """A candidate, its Gaussian, and moments of complete rows and codes of rows there."""

    candidate: Candidate
    g: GaussianFactors
    moments: FilledMoments
    codes: Tall


class _Tried:
    """Candidates measured so far."""

    def __init__(self, placed: PlacedTable, away: _Away):
        self.placed, self.away, self.all = placed, away, list[_Try]()

    def measure(self, g: GaussianFactors, ridge: float, before: _Try | None = None) -> _Try:
        """A few steps from g, the first with the moments of the candidate ``before`` it."""
        placed = self.placed
        m, codes = placed.moments(g) if before is None else (before.moments, None)
        for _ in range(STEPS):
            g = m_step(g, m, placed.rows, ridge, placed.engine)
            m, codes = placed.moments(g, codes)
        self.all.append(
            _Try(Candidate(g.k, ridge, self.away.error(g, placed.engine.get(codes))), g, m, codes)
        )
        return self.all[-1]

    def grown(self, one: _Try, k: int) -> GaussianFactors:
        """With more directions: the leading ones of what is left unexplained."""
        mu = one.moments.first / self.placed.rows
        return one.g.grown(k, one.moments.second / self.placed.rows - np.outer(mu, mu))

    def sharpened(self, one: _Try) -> GaussianFactors:
        """The noises that its moments leave beside their leading directions: where they are small, EM
        would take hundreds of steps to get there."""
        mu, scale, k = one.moments.first / self.placed.rows, np.sqrt(one.g.psi), one.g.k
        cov = one.moments.second / self.placed.rows - np.outer(mu, mu)
        values, vectors = eigh(cov / np.outer(scale, scale))
        size = np.sqrt(np.maximum(values[-k:] - values[:-k].mean(), 0.0))
        w = scale[:, None] * vectors[:, -k:] * size
        psi = np.maximum(np.diag(cov) - (w**2).sum(axis=1), LEAST_NOISE)
        return replace(one.g, w=w, psi=psi)

    def best(self) -> _Try:
        return min(self.all, key=lambda one: one.candidate.error)


def _leading(g: GaussianFactors, k: int) -> GaussianFactors:
    """With fewer directions: those of W that stand out most of the noise."""
    scale = np.sqrt(g.psi)[:, None]
    turn = svd(g.w / scale, full_matrices=False)[2][:k]
    return replace(g, w=g.w @ turn.T)


class _Away:
    """The cells that are hidden: their true scores, and how far expected ones are from them."""

    def __init__(self, part: Scores, truth: np.ndarray, hidden: np.ndarray):
        self.i, self.j = np.nonzero(hidden)
        self.truth = truth[self.i, self.j]
        self.owner = np.repeat(np.arange(len(part.parts)), [p.width for p in part.parts])[self.j]
        self.times = 1.0 if part.weights is None else part.weights[self.i]
        self.counts = np.bincount(self.owner, self.times * np.ones(len(self.i)), len(part.parts))

    def error(self, g: GaussianFactors, codes: np.ndarray) -> float:
        """The mean over columns of squared errors at hidden cells."""
        there = g.mu[self.j] + np.einsum("ek,ek->e", codes[self.i], g.w[self.j])
        squares, seen = (
            np.bincount(self.owner, self.times * (self.truth - there) ** 2, len(self.counts)),
            self.counts > 0,
        )
        return float(np.mean(squares[seen] / self.counts[seen])) if seen.any() else 1.0
