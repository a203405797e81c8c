"""What the factor model says of cells at rows that it has not seen: each from the other cells of
its row, by a model of the other rows.

Errors of cells that a fit has seen are too small, the more so the fewer the rows and the higher the
rank: judged by them, no forest would add anything to a table of a hundred rows, and it often takes
a quarter of the error away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from eckart.complete.tables.columns import Part, spread_of
from eckart.complete.tables.factor_em import GaussianFactors
from eckart.complete.tables.fit_table import PlacedTable, Scores, descend, expected
from eckart.complete.tables.forests import GAIN, answers, truths
from eckart.complete.tables.links import CELLS, fit_link
from eckart.engines.protocol import Tall

PARTS = 4
"""Of the rows, each left out of a fit once."""
TOL, STEPS = 3e-3, 15
"""Of these fits, which begin where the whole one ended."""


SURELY = 2.0
"""Standard errors of a gain: one wild cell of a column decides the sum of squares, and has one."""


Linked = tuple[np.ndarray, np.ndarray, np.ndarray]
"""What a link is fitted to: codes of cells, their expected scores, and how often they count."""


class HeldOutCells(NamedTuple):
    """Rows of a table; expected scores of their cells (rows x scores), the cell itself unused; of
    each part answers there."""

    rows: np.ndarray
    scores: np.ndarray
    answers: list[np.ndarray]


def left_out(
    table: Scores, placed: PlacedTable, g: GaussianFactors, codes: list[np.ndarray], z: Tall | None
) -> dict[int, Linked]:
    """For each part with a link: codes of cells, their scores as the other cells of their rows
    predict them, and how often they count; z are codes of rows under g, which robust columns need.
    Cells are the first that a column sees in one order of all rows, as many as a link needs, so
    that columns ask for the same rows."""
    order = np.argsort(
        np.arange(table.rows) * 0.5 * (np.sqrt(5) - 1) % 1.0
    )  # multiples of the golden ratio: evenly spread however many are taken
    rows, asked = {}, np.zeros(table.rows, bool)
    for i, (p, a) in enumerate(zip(table.parts, codes)):
        if p.linked and len(at := order[~np.isnan(a[order])][:CELLS]):
            rows[i] = at
            asked[at] = True
    if not rows:
        return {}
    if 2 * np.count_nonzero(asked) >= table.rows:  # to place some rows anew would cost more
        asked[:] = True
    else:
        z = None if z is None else placed.engine.take(placed.engine.get(z)[asked])
        placed = PlacedTable.of(table.some(asked), placed.engine)
    found = placed.left_out(
        g, np.array([[table.parts[i].at.start, table.parts[i].at.stop] for i in rows]), z
    )
    place = np.cumsum(asked) - 1
    times = np.ones(table.rows) if table.weights is None else table.weights
    return {
        i: (codes[i][at], found[place[at], table.parts[i].at], times[at]) for i, at in rows.items()
    }


def linked(
    table: Scores, placed: PlacedTable, g: GaussianFactors, codes: list[np.ndarray], z: Tall | None
) -> tuple[tuple[Part, ...], dict[int, Linked]]:
    """Parts with their links fitted, and what these were fitted to."""
    seen = left_out(table, placed, g, codes, z)
    return tuple(fit_link(p, *seen[i]) if i in seen else p for i, p in enumerate(table.parts)), seen


def refit(g: GaussianFactors, l2: float) -> Callable[[PlacedTable], GaussianFactors]:
    """How the factor model is fitted to other rows: from g."""
    return lambda placed: descend(placed, g, l2, TOL, STEPS).g


def held_out(
    table: Scores,
    codes: list[np.ndarray],
    fit: Callable[[PlacedTable], GaussianFactors],
    rows: np.ndarray,
    engine: Any,
    g: GaussianFactors | None = None,
    parts_asked: int = PARTS,
) -> HeldOutCells:
    """Answers at some rows, by fits of the others of them; of a table with many more rows than
    these by the fit ``g`` as it is, to which each means nothing. ``table`` has fitted links;
    ``parts_asked``: at so many of the PARTS of these rows alone."""
    few = table.some(rows)
    part_codes = [a[rows] for a in codes]
    if g is not None and table.rows >= 2 * len(rows):
        scores = _scores(few, g, engine)
        return HeldOutCells(rows, scores, [answers(p, scores[:, p.at]) for p in table.parts])
    scores = np.empty_like(few.y)
    found: list[Any] = [None] * len(table.parts)
    for first in range(parts_asked):
        apart = np.zeros(len(rows), bool)
        apart[first::PARTS] = True  # rows come in a random order
        rest = few.some(~apart)
        placed = PlacedTable.of(rest, engine)
        own = fit(placed)
        z = placed.moments(own)[1] if table.robust else None
        parts, _ = linked(rest, placed, own, [a[~apart] for a in part_codes], z)
        scores[apart] = _scores(Scores(parts, few.y[apart]), own, engine)
        for i, p in enumerate(parts):
            new = answers(p, scores[apart][:, p.at])
            found[i] = np.empty((len(rows), new.shape[1])) if found[i] is None else found[i]
            found[i][apart] = new
    at = np.arange(len(rows)) % PARTS < parts_asked
    return HeldOutCells(rows[at], scores[at], [a[at] for a in found])


def _scores(table: Scores, g: GaussianFactors, engine: Any) -> np.ndarray:
    z = engine.take(expected(table, g).codes) if table.robust else None
    return PlacedTable.of(table, engine).left_out(
        g, np.array([[p.at.start, p.at.stop] for p in table.parts]), z
    )


def error_of(part: Part, a: np.ndarray, answer: np.ndarray, weights: np.ndarray | None) -> float:
    """Of numbers the root mean squared error in standard deviations of the column, of levels the
    share of wrong ones."""
    if part.discrete:
        return float(np.average(answer.argmax(axis=1) != a, weights=weights))
    return float(np.sqrt(np.average((answer - truths(part, a))[:, 0] ** 2, weights=weights)))


def trusted(
    part: Part, a: np.ndarray, answer: np.ndarray, weights: np.ndarray
) -> tuple[Part, np.ndarray]:
    """The part, and answers at rows, with the least-squares share of the factor model's beside one
    answer for all, where that surely takes away some of the squared error at seen cells."""
    seen = ~np.isnan(a)
    truth = truths(part, a[seen])
    plain = np.average(truth, axis=0, weights=weights)
    apart, away = answer[seen] - plain, truth - plain
    size, pull = (float(weights @ (apart * other).sum(axis=1)) for other in (apart, away))
    share = min(max(pull / max(size, 1e-300), 0.0), 1.0)
    left = ((away - apart) ** 2).sum(axis=1)
    gain = weights * (left - ((away - share * apart) ** 2).sum(axis=1))
    if gain.sum() <= max(GAIN * float(weights @ left), SURELY * np.sqrt(gain @ gain)):
        return part, answer
    number = plain if part.discrete else part.middle + part.spread * plain
    return replace(part, trust=share, plain=number), plain + share * (answer - plain)


def plain_error(part: Part, a: np.ndarray, weights: np.ndarray | None) -> float:
    """That of the mean, or of the commonest level."""
    if part.discrete:
        counts = np.bincount(a.astype(np.intp), weights)
        return 1.0 - float(counts.max() / counts.sum())
    return spread_of(truths(part, a)[:, 0], weights)


def numbers_error(table: Scores, codes: list[np.ndarray], found: HeldOutCells) -> float:
    """The mean error over columns of numbers."""
    errors = []
    for p, a, answer in zip(table.parts, codes, found.answers):
        seen = ~np.isnan(a[found.rows])
        if not p.discrete and not p.cycle and seen.any():
            weights = None if table.weights is None else table.weights[found.rows][seen]
            errors.append(error_of(p, a[found.rows][seen], answer[seen], weights))
    return float(np.mean(errors)) if errors else 0.0
