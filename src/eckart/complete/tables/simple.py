"""Simple answers for the cells of a table, to judge a model by: near rows, and linear regression on
the other columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.complete.tables.fit_table import Scores
from eckart.complete.tables.forests import truths
from eckart.complete.tables.held_out import error_of, held_out, plain_error
from eckart.complete.tables.linear import regression

ROWS = 1000
"""Rows at which answers are judged, and which are near rows for each other."""
NEAR = 5
"""Rows whose mean answers."""


def simple_errors(
    table: Scores, codes: list[np.ndarray], rng: np.random.Generator, engine: Any
) -> dict[str, dict[str, float]]:
    """Of each column the errors of the mean (or the commonest level), of near rows, and of linear
    regression at known cells, each from the other cells of its row."""
    rows = rng.permutation(table.rows)[:ROWS]
    if len(rows) <= NEAR:
        return {}
    few, some = table.some(rows), [a[rows] for a in codes]
    every = np.arange(len(rows))
    linear = held_out(few, some, regression, every, engine).answers
    y = np.nan_to_num(few.y)
    square = (y**2).sum(axis=1)
    apart = square[:, None] + square - 2 * y @ y.T
    np.fill_diagonal(apart, np.inf)
    out = {}
    for part, a, answer in zip(table.parts, some, linear):
        known = np.flatnonzero(~np.isnan(a))
        if part.cycle or len(known) <= NEAR:
            continue
        own = y[known, part.at]
        size = (own**2).sum(axis=1)
        of_others = apart[np.ix_(known, known)] - (size[:, None] + size - 2 * own @ own.T)
        near = np.argpartition(of_others, NEAR, axis=1)[:, :NEAR]
        truth = truths(part, a[known])
        weights = None if few.weights is None else few.weights[known]
        out[part.name] = {
            "mean": plain_error(part, a[known], weights),
            "neighbours": error_of(part, a[known], truth[near].mean(axis=1), weights),
            "linear": error_of(part, a[known], answer[known], weights),
        }
    return out
