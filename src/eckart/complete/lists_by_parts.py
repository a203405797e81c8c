"""Lists of the best columns for rows whose entries are parts: made where the parts are, so that nobody holds more than one.

A part is worked on by a small copy of the model: the rows of the factors that belong to the part, and its entries.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np

from eckart.complete.folding import on_a_scale
from eckart.factors import LowRank
from eckart.matrix_blocks import by_parts, of_each_part

OF_ROWS = ("left", "row_bias", "row_scale")
"""Fields of factors with a row for each row."""


def best_by_parts(
    model: Any, at: np.ndarray, n: int, columns: np.ndarray, by: str, exclude_seen: bool, support: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Positions (-1 where there are fewer) and scores of the n best of ``columns`` for the rows ``at``."""
    x, demand = model.observed_, model.demand() if by == "chance" else None
    ends = np.cumsum(x.parts.lengths)
    owner = np.searchsorted(ends, at, side="right")
    place = [np.flatnonzero(owner == p) for p in range(len(ends))]
    own = [at[where] - (ends[p] - x.parts.lengths[p]) for p, where in enumerate(place)]
    f = model.fit_.factors
    cut = {name: by_parts(x, getattr(f, name)) for name in OF_ROWS if isinstance(f, LowRank) and getattr(f, name) is not None}
    likely = None if demand is None else by_parts(x, demand.model.fit_.factors.left)
    given = [
        (rows, {name: parts[p] for name, parts in cut.items()}, None if likely is None else likely[p]) for p, rows in enumerate(own)
    ]
    candidates = None if len(columns) == x.n_columns else columns
    how = {"n": n, "by": by, "exclude_seen": exclude_seen, "candidates": candidates}
    made = {"gram": model._linear(f)} if hasattr(model, "_made") else None
    found = of_each_part(x, _lists, given, (_without_rows(model, demand), how, support, made))
    best = np.full((len(at), min(n, len(columns))), -1)
    scores = np.full(best.shape, -np.inf, f.dtype)
    for where, (positions, values) in zip(place, found):
        best[where, : positions.shape[1]], scores[where, : positions.shape[1]] = positions, values
    return best, scores


def _without_rows(model: Any, demand: Any) -> Any:
    """A copy that works on one thread, without entries, labels and rows of factors."""
    lean = copy(model)
    f = lean.fit_.factors
    less = {name: getattr(f, name)[:0] for name in OF_ROWS if isinstance(f, LowRank) and getattr(f, name) is not None}
    lean.n_threads, lean.engine, lean.verbose, lean.observed_ = 1, "cpu", False, None
    lean.fit_ = replace(lean.fit_, factors=replace(f, rows=None, columns=None, **less))
    lean._row_ids = lean._column_ids = lean._demand = None
    if demand is not None:
        lean._scale = on_a_scale(model.observed_)
        d = copy(demand.model)
        d.observed_ = None
        d.fit_ = replace(d.fit_, factors=replace(d.fit_.factors, left=d.fit_.factors.left[:0], rows=None, columns=None))
        lean._demand = replace(demand, model=d, n_rows=model.observed_.shape[0])
    return lean


def _lists(
    part: Any, rows: np.ndarray, own: dict[str, np.ndarray], likely: np.ndarray | None, lean: Any, how: dict[str, Any], support: np.ndarray,
    made: dict[str, Any] | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Positions and scores for some rows of a part; ``made`` is what a graph filter makes of all entries."""
    if not len(rows):
        return np.zeros((0, 0), np.int64), np.zeros((0, 0))
    small = copy(lean)
    f = lean.fit_.factors
    small.fit_ = replace(lean.fit_, factors=replace(f, **own) if own else replace(f, n_rows=part.shape[0]))
    small.observed_ = replace(part, rows=None, columns=None)
    small._support = support
    if made is not None:
        small._made = made
    if likely is not None:
        d = copy(lean._demand.model)
        d.fit_ = replace(d.fit_, factors=replace(d.fit_.factors, left=likely))
        small._demand = replace(lean._demand, model=d)
    found = small.recommend(rows, **how)
    return found.positions, found.scores
