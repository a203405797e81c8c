"""The rooms of a table whose columns are of several kinds and of time series: what was filled in,
how sure it is, and what speaks for it."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.io.tables.mixed import mixed_frame
from eckart.serve.problems import Problem
from eckart.studio.opened import Opened, OpenedRows, run_verb
from eckart.studio.tables import cell

LONGEST = 2000
"""Times of a series that are sent at once: more than a screen has pixels."""
AHEAD = 12
"""Times that are forecast where a series has no period: a year of months."""
MOST_AHEAD = 500
"""Times that are forecast at most: the intervals are as wide as the data long before."""


def table(opened: Opened) -> dict[str, Any]:
    """Each column with its kind, loss, levels and its errors at cells held out, and columns that
    were left aside."""
    errors = opened.plan.get("errors")
    errors = errors if isinstance(errors, dict) else {}
    columns = []
    for part in opened.model.parts_:
        if not part.cycle:
            plain, low_rank, whole = errors.get(part.name) or (None, None, None)
            columns.append(
                {
                    "column": part.name,
                    "kind": part.kind,
                    "loss": part.loss.name,
                    "levels": [str(level) for level in part.levels[:20]],
                    "error": whole,
                    "error_factors": low_rank,
                    "error_plain": plain,
                }
            )
    aside = [
        {"column": name, "reason": str(of["reason"])} for name, of in opened.factors.aside.items()
    ]
    return {
        "columns": columns,
        "aside": aside,
        "meaning": "error: that of cells held out, in standard deviations for numbers and as the "
        "share of wrong levels otherwise, beside the factor "
        "model alone and the mean or the commonest level",
    }


def table_row(opened: Opened, rows: OpenedRows, i: int) -> dict[str, Any]:
    """The cells of a row; gaps with what they are filled with and how sure that is."""
    gaps, filled, unsure = rows.kept.get("filled", lambda: run_verb(_filled, opened, rows))
    kinds = {part.name: part for part in opened.model.parts_ if not part.cycle}
    cells = []
    for name in opened.column_names():
        came = rows.matrix.column(name)[i].as_py()
        part, at = kinds.get(name), int(np.searchsorted(gaps[name], i))
        empty = at < len(gaps[name]) and gaps[name][at] == i
        cells.append(
            {
                "column": name,
                "value": None if empty else cell(came),
                "gap": bool(empty),
                "filled": cell(filled.column(name)[i].as_py()) if empty else None,
                "uncertainty": cell(float(unsure[name][at])) if empty and name in unsure else None,
                "chance": part is not None and bool(part.discrete),
                "explained": part is not None,
            }
        )
    return {
        "at": i,
        "id": cell(rows.id_of(i)),
        "cells": cells,
        "gaps": sum(c["gap"] for c in cells),
    }


def _filled(
    opened: Opened, rows: OpenedRows
) -> tuple[dict[str, np.ndarray], Any, dict[str, np.ndarray]]:
    frame = mixed_frame(rows.matrix)
    gaps = {name: frame.gaps(name) for name in opened.column_names()}
    return gaps, opened.model.impute(rows.matrix), opened.model.uncertainty(rows.matrix)


def table_why(opened: Opened, rows: OpenedRows, i: int, column: str) -> dict[str, Any]:
    """Which columns speak for what is expected in a cell."""
    why = run_verb(opened.model.explain, rows.matrix.slice(i, 1), column, 0)
    return {
        "column": why.column,
        "value": cell(why.value),
        "base": cell(float(why.base)),
        "shares": [{"column": name, "share": float(share)} for name, share in why.shares],
    }


def series(opened: Opened) -> dict[str, Any]:
    """The series by their ids, with the entries and the noise of each."""
    x, model = opened.model.observed_, opened.model
    counts, noise = np.asarray(x.row_counts()), np.asarray(model.noise_, np.float64)
    at = np.arange(min(len(counts), LONGEST))
    names = model.row_ids.names(at)
    return {
        "period": int(model.period_),
        "times": int(x.shape[1]),
        "series_total": len(counts),
        "series": [
            {"at": int(i), "id": cell(names[i]), "seen": int(counts[i]), "noise": float(noise[i])}
            for i in at
        ],
    }


def series_row(
    opened: Opened, i: int, level: float, first: int | None, ahead: int | None
) -> dict[str, Any]:
    """A series: what was seen, what is expected with its interval, and the times to come."""
    model, total = opened.model, int(opened.model.observed_.shape[1])
    if not 0 <= i < opened.model.observed_.shape[0]:
        raise Problem(
            422, f"at must be a series of 0 to {opened.model.observed_.shape[0] - 1}, got {i}"
        )
    begin = min(max(0, total - LONGEST) if first is None else first, total - 1)
    at = np.arange(begin, min(total, begin + LONGEST))
    times, row = model.column_ids.names(at), model.row_ids.names(np.array([i]))
    ids = np.repeat(row, len(at))
    low, high = run_verb(lambda: model.interval(ids, times, level))
    seen = model.observed_.to_scipy()[[i]].tocoo()
    values = np.full(total, np.nan)
    values[seen.col] = seen.data
    period = int(model.period_)
    steps = (period if period > 1 else AHEAD) if ahead is None else ahead
    steps = min(steps, MOST_AHEAD)
    answer: dict[str, Any] = {
        "at": i,
        "id": cell(row[0]),
        "level": level,
        "first": begin,
        "times_total": total,
        "times": [cell(t) for t in times],
        "seen": _numbers(values[at]),
        "expected": _numbers(model.predict(ids, times)),
        "low": _numbers(low),
        "high": _numbers(high),
        "ahead": None,
    }
    if steps:
        found = opened.kept.get(
            ("forecast", steps, level), lambda: run_verb(lambda: model.forecast(steps, level=level))
        )
        answer["ahead"] = {"times": [cell(t) for t in found.columns]} | {
            n: _numbers(getattr(found, n)[i]) for n in ("mean", "low", "high")
        }
    return answer


def _numbers(values: Any) -> list[Any]:
    return [cell(float(v)) for v in values]
