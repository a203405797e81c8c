"""Rows of the data for a report: a sample that fits, names that can be read, and examples."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from eckart.matrix import Dense, Matrix

MOST_ROWS = 5000
"""Rows whose posteriors are computed for pictures and examples."""

Excerpts = Callable[[np.ndarray], dict[int, str]] | Sequence[str] | None
"""The texts of documents: all of them, or a function from positions to a dictionary position:
text."""


def some_rows(x: Matrix, most: int = MOST_ROWS) -> tuple[Matrix, np.ndarray]:
    """Evenly spaced rows (the first ones of a stream) and their positions.

    >>> part, at = some_rows(Dense(np.arange(10.0)[:, None]), 4)
    >>> part.values.ravel().tolist(), at.tolist()
    ([0.0, 3.0, 6.0, 9.0], [0, 3, 6, 9])
    """
    if isinstance(x, Dense) and not x.in_memory:
        block = np.asarray(next(x.stream.blocks(most)))
        return Dense(block, columns=x.columns), np.arange(len(block))
    count = int(x.shape[0] or 0)
    at = np.unique(np.linspace(0, count - 1, min(count, most)).astype(int))
    rows = None if x.rows is None else x.rows[at]
    if isinstance(x, Dense):
        return Dense(np.asarray(x.array[at]), rows, x.columns), at
    return type(x).from_scipy(x.to_scipy()[at], rows, x.columns), at


def row_name(x: Matrix, i: int) -> str:
    """What row i is called."""
    return f"row {i + 1}" if x.rows is None else str(x.rows[i])


def texts_at(excerpts: Excerpts, at: np.ndarray, most: int = 240) -> dict[int, str]:
    """The beginnings of some documents, where their texts are there."""
    if excerpts is None:
        return {}
    found = excerpts(at) if callable(excerpts) else {int(i): excerpts[int(i)] for i in at}
    cut = {i: " ".join(str(text)[: 4 * most].split()) for i, text in found.items()}
    return {i: text if len(text) <= most else text[: most - 1] + "…" for i, text in cut.items()}
