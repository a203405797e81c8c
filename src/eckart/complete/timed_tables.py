"""Entries and when each was observed: a table of triples with one column more."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np

from eckart.complete.side_information import moments
from eckart.errors import InputError, invalid
from eckart.index.alike import unknown_column
from eckart.io.tables.attributes import table_of
from eckart.io.tables.triples import observed
from eckart.loading import pa
from eckart.matrix import Observed

SUMMED = "sum"
"""The rule for repeated entries after which an entry has no time of its own: it is taken at the
mean of their times."""


class Times(NamedTuple):
    """One number for each stored entry, in row order, and whether they were dates
    (microseconds)."""

    numbers: np.ndarray
    dates: bool


def timed(X: Any, sql: str | None, time: Any, table: dict[str, Any]) -> tuple[Observed, Times]:
    """The observed entries of X and their times; ``time`` is the name of a column of X, times in
    the order of the stored entries, or an ``Observed`` with all entries of X and more (alone, or
    with whether its numbers are the microseconds of dates)."""
    if not isinstance(time, str):
        x = observed(X, sql, **table)
        were = False
        if isinstance(time, tuple) and len(time) == 2 and isinstance(time[0], Observed):
            time, were = time
        numbers, dates = moments(_at_entries(time, x) if isinstance(time, Observed) else time, None)
        if numbers.shape != (x.nnz,):
            raise invalid(
                "time",
                f"{numbers.size} times",
                f"one for each of the {x.nnz} entries, or the name of a column",
            )
        return x, Times(numbers, dates or bool(were))
    if sql is not None or table["rows"] is None or table["columns"] is None:
        raise invalid(
            "time",
            time,
            "an array of times, or a table with rows=, columns= and values= that has this column",
        )
    whole, _ = table_of(os.fspath(X) if isinstance(X, os.PathLike) else X, "X")
    names = [str(table[name]) for name in ("rows", "columns", "values") if table[name] is not None]
    for name in (*names, time):
        if name not in whole.column_names:
            raise unknown_column(name, whole.column_names, "X")
    if table["values"] is not None:
        whole = whole.filter(whole.column(str(table["values"])).is_valid())
    numbers, dates = moments_of(whole.column(time))
    ids = {name: whole.column(name) for name in names}
    named = table | {
        key: None if table[key] is None else str(table[key])
        for key in ("rows", "columns", "values")
    }
    rule = "mean" if table["duplicates"] == SUMMED else table["duplicates"]
    x = observed(_arrow(ids), **named)
    clock = observed(
        _arrow({names[0]: ids[names[0]], names[1]: ids[names[1]], " time": numbers}),
        **(named | {"values": " time", "duplicates": rule}),
    )
    assert np.array_equal(clock.indptr, x.indptr)
    assert np.array_equal(clock.indices, x.indices)
    return x, Times(clock.data.astype(np.float64), dates)


def moments_of(cells: Any) -> tuple[np.ndarray, bool]:
    """An Arrow column of numbers or dates as ``moments`` gives them."""
    return moments(
        cells.to_pandas() if cells.null_count == 0 else np.array(cells.to_pylist(), object), None
    )


def _at_entries(when: Observed, x: Observed) -> np.ndarray:
    """The values of ``when`` at the entries of x, both with the same rows and columns; an entry
    that it lacks is named."""
    if when.shape != x.shape:
        raise invalid(
            "time",
            f"an Observed of shape {when.shape}",
            f"one of shape {x.shape} that has all entries of X",
        )
    place = [
        np.repeat(np.arange(m.shape[0], dtype=np.int64), m.row_counts()) * m.shape[1] + m.indices
        for m in (when, x)
    ]
    order = np.argsort(place[0], kind="stable")
    at = np.minimum(np.searchsorted(place[0][order], place[1]), len(order) - 1)
    lacking = place[0][order[at]] != place[1]
    if lacking.any():
        i, j = divmod(int(place[1][lacking.argmax()]), x.shape[1])
        raise InputError(
            f"time must hold a value for every entry of X, got none at row {i}, column {j}"
        )
    return when.data[order[at]]


def _arrow(columns: dict[str, Any]) -> Any:
    return pa.table(columns)
