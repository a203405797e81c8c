"""Columns in the order of time: sorted where their labels have an order, with a column for every
step that nobody observed."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.matrix import Observed

MOST = 4
"""Columns after the steps in between were added, as a multiple of those before: beyond it the
labels are no regular times with gaps."""


def in_time(x: Observed) -> tuple[Observed, str]:
    """The same entries with columns in the order of time, and what was done. Labels that are
    numbers or times are sorted; where all their distances are multiples of the smallest, a column
    is put in for each step in between. Other labels (texts) stay in the order in which they
    came."""
    labels = _ordered(x.columns)
    if labels is None:
        return x, "columns in the order in which they came"
    order = np.argsort(labels, kind="stable")
    sorted_labels = labels[order]
    kind = "whole" if labels.dtype.kind in "iuM" else "other"
    place, full = np.arange(len(labels)), sorted_labels
    if kind == "whole" and len(labels) > 2:
        at = (
            sorted_labels.view(np.int64)
            if labels.dtype.kind == "M"
            else sorted_labels.astype(np.int64)
        )
        steps = np.diff(at)
        if (
            steps.min() > 0
            and (steps % steps.min() == 0).all()
            and (at[-1] - at[0]) // steps.min() < MOST * len(at)
        ):
            place = (at - at[0]) // steps.min()
            whole = at[0] + steps.min() * np.arange(place[-1] + 1)
            full = (
                whole.view(labels.dtype) if labels.dtype.kind == "M" else whole.astype(labels.dtype)
            )
    said = "columns in the order of their labels"
    if len(full) > len(labels):
        said += f", with {len(full) - len(labels)} added for times that nobody observed"
    if len(full) == len(labels) and (order == np.arange(len(order))).all():
        return x, said
    to = np.empty(len(labels), np.int64)
    to[order] = place
    rows = np.repeat(np.arange(x.shape[0]), x.row_counts())
    return Observed.from_codes(
        rows, to[x.indices], x.data, (x.shape[0], len(full)), x.rows, full
    ), said


def later(labels: np.ndarray | None, columns: int, steps: int) -> np.ndarray:
    """Labels of the next columns: positions, or numbers and times that go on by their usual
    distance; where labels have none, steps counted from 1."""
    ordered = _ordered(labels)
    if labels is None:
        return np.arange(columns, columns + steps)
    if ordered is None or len(ordered) < 2:
        return np.array([f"+{i}" for i in range(1, steps + 1)], object)
    return ordered[-1] + np.median(
        np.diff(ordered).astype(np.int64 if ordered.dtype.kind == "M" else ordered.dtype)
    ).astype(
        "m8" + ordered.dtype.str[3:] if ordered.dtype.kind == "M" else ordered.dtype
    ) * np.arange(1, steps + 1)


def _ordered(labels: Any) -> np.ndarray | None:
    """Labels as numbers or times, or None where they are neither."""
    if labels is None or len(labels) == 0:
        return None
    labels = np.asarray(labels)
    if labels.dtype == object:
        kinds = {type(label) for label in labels}
        if (
            kinds <= {int}
            or kinds <= {int, float}
            or all(isinstance(label, np.datetime64) for label in labels)
        ):
            labels = (
                np.array(labels.tolist())
                if not isinstance(labels[0], np.datetime64)
                else labels.astype("M8[ns]")
            )
        elif all(hasattr(label, "isoformat") for label in labels):
            labels = labels.astype("M8[us]")
    return labels if labels.dtype.kind in "iufM" else None
