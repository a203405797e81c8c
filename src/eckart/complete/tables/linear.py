"""Linear regression of every score on all others, with gaps anywhere: the Gaussian of all scores
with a full covariance, found by EM over missing cells. It is what chained regressions settle at.

A column that is nearly a sum of others (a price between the least and the largest) follows from it
exactly, by a factor model only as far as its noises have shrunk.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.complete.tables.factor_em import GaussianFactors
from eckart.complete.tables.fit_table import PlacedTable, Scores, settled
from eckart.complete.tables.held_out import GAIN, PARTS, SURELY
from eckart.decompositions import eigh

RIDGE = 1.0
"""In rows: of the covariance of scores of variance 1."""
STEPS = 5
"""Of EM: gaps are few among the cells of most tables."""
CHUNK = 2**14
"""Rows that are answered together: a table of any length costs their memory alone."""
MOST_SCORES = 200
"""Scores beyond which it is not tried: its cost grows with their cube."""


def regression(table: PlacedTable) -> GaussianFactors:
    """The Gaussian of a table with a full covariance, as factors and the ridge for noise."""
    n = table.x.shape[1]
    g = GaussianFactors(np.zeros((n, n)), np.zeros(n), np.ones(n))
    for _ in range(STEPS):
        m, _ = table.moments(g)
        mu = m.first / table.rows
        values, vectors = eigh(m.second / table.rows - np.outer(mu, mu))
        w = vectors * np.sqrt(np.maximum(values, 0.0))
        g = GaussianFactors(w, mu, np.full(n, RIDGE / table.rows))
    return g


def left_out_linear(table: Scores, rows: np.ndarray, engine: Any) -> np.ndarray:
    """Expected scores of cells of some rows from the other cells of their rows, by regressions on
    the others of these rows."""
    few = table.some(rows)
    parts = np.array([[p.at.start, p.at.stop] for p in table.parts])
    out = np.empty_like(few.y)
    for first in range(PARTS):
        apart = np.arange(len(rows)) % PARTS == first
        g = regression(PlacedTable.of(few.some(~apart), engine))
        out[apart] = PlacedTable.of(few.some(apart), engine).left_out(g, parts)
    return out


def linear_share(y: np.ndarray, low_rank: np.ndarray, linear: np.ndarray) -> float:
    """The least-squares share of regressions beside the factor model at seen scores of a column of
    numbers, 0 where it does not surely take away some of the squared error."""
    away, apart = y - low_rank, linear - low_rank
    share = min(max(float(apart @ away) / max(float(apart @ apart), 1e-300), 0.0), 1.0)
    gain = away**2 - (away - share * apart) ** 2
    least = max(GAIN * float(away @ away), SURELY * float(np.sqrt(gain @ gain)))
    return share if gain.sum() > least else 0.0


def expected_scores(
    table: Scores, g: GaussianFactors, linear: GaussianFactors | None, engine: Any
) -> np.ndarray:
    """Expected scores of rows given their seen cells, gaps of columns of numbers with the share of
    regressions that they have."""
    scores = settled(table, g, engine)[1]
    if linear is not None:
        owners = [p for p in table.parts if p.linear]
        rows = np.flatnonzero(np.isnan(table.y[:, [p.first for p in owners]]).any(axis=1))
        for first in range(0, len(rows), CHUNK):
            some = rows[first : first + CHUNK]
            other = settled(table.some(some), linear, engine)[1]
            for p in owners:
                scores[some, p.first] += p.linear * (other[:, p.first] - scores[some, p.first])
    return scores
