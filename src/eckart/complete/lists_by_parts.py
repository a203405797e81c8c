"""Lists of the best columns for rows whose entries are parts: made where the parts are, so that
nobody holds more than one.

A part is worked on by a copy of the model without entries and rows (``OnParts._lean``), which is
given the part and its rows of the factors.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np

from eckart.factors import LowRank
from eckart.matrix import Observed
from eckart.matrix_blocks import by_parts, of_each_part


class OnParts:
    """What a model gives to the places where its parts are."""

    def _rows_by_parts(self: Any, x: Any) -> list[Any]:
        """What ``_of_part`` needs for the rows of each part of x."""
        cut = {name: by_parts(x, a) for name, a in _of_rows(self.fit_.factors).items()}
        return [dict(zip(cut, rows)) for rows in zip(*cut.values())]

    def _lean(self: Any) -> Any:
        """A copy that works on one thread, without entries, labels and rows of factors."""
        lean = copy(self)
        lean.n_threads, lean.engine, lean.verbose, lean.observed_ = 1, "cpu", False, None
        f = lean.fit_.factors
        less = {name: a[:0] for name, a in _of_rows(f).items()}
        lean.fit_ = replace(lean.fit_, factors=replace(f, rows=None, columns=None, **less))
        lean._row_ids = lean._column_ids = lean._demand = None
        return lean

    def _of_part(self: Any, part: Observed, own: Any) -> Any:
        """The completed rows of a part, by a lean copy."""
        return replace(self.fit_.factors, **own)


def _of_rows(f: Any) -> dict[str, np.ndarray]:
    """The fields of factors with a row for each row; weights between columns have none."""
    held = (
        {name: getattr(f, name) for name in ("left", "row_bias", "row_scale")}
        if isinstance(f, LowRank)
        else {}
    )
    return {name: a for name, a in held.items() if a is not None}


def best_by_parts(
    model: Any,
    at: np.ndarray,
    n: int,
    columns: np.ndarray,
    exclude_seen: bool,
    chance: Any,
    dtype: np.dtype,
) -> tuple[np.ndarray, np.ndarray]:
    """Positions (-1 where there are fewer) and scores of the n best of ``columns`` for the rows
    ``at``; as ``Recommender._best``."""
    x = model.observed_
    ends = np.cumsum(x.parts.lengths)
    owner = np.searchsorted(ends, at, side="right")
    place = [np.flatnonzero(owner == p) for p in range(len(ends))]
    rows = [at[where] - (ends[p] - x.parts.lengths[p]) for p, where in enumerate(place)]
    chances = [None if chance is None else chance.of(where) for where in place]
    given = list(zip(rows, model._rows_by_parts(x), chances))
    found = of_each_part(x, _lists, given, (model._lean(), n, columns, exclude_seen))
    best = np.full((len(at), min(n, len(columns))), -1)
    scores = np.full(best.shape, -np.inf, dtype)
    for where, (positions, values) in zip(place, found):
        best[where, : positions.shape[1]], scores[where, : positions.shape[1]] = positions, values
    return best, scores


def _lists(
    part: Any,
    rows: np.ndarray,
    own: Any,
    chance: Any,
    lean: Any,
    n: int,
    columns: np.ndarray,
    exclude_seen: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Positions and scores for some rows of a part."""
    if not len(rows):
        return np.zeros((0, 0), np.int64), np.zeros((0, 0))
    return lean._best(lean._of_part(part, own), rows, columns, n, part, exclude_seen, chance)
