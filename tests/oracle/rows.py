"""Rows of stored entries one after another."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from eckart.matrix import Observed


def ones_or(weights: np.ndarray | None, rows: int) -> np.ndarray:
    """Weights in float64, ones where there are none."""
    return np.ones(rows) if weights is None else np.asarray(weights, np.float64)


def entry_rows(x: Observed) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Columns and values of every row."""
    for i in range(x.shape[0]):
        part = slice(x.indptr[i], x.indptr[i + 1])
        yield x.indices[part], x.data[part].astype(np.float64)
