"""Means and squared deviations of columns on threads, of dense rows, of counts, and of the entries
that were observed.

Lanes follow the shape (see ``scheduler.lanes_for``); what they found is merged in their order.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from eckart.engines.cpu.dense import passes, thin
from eckart.engines.host import Host
from eckart.engines.protocol import ColumnMoments, SeenColumns
from eckart.engines.row_blocks import (
    ROOM,
    block_count,
    partial_sums,
    product_rows,
    watched_jobs,
)
from eckart.loading import lazy
from eckart.scheduler import lanes_for, run_lanes
from eckart.trace import Watcher, silent

sparse = lazy("eckart.engines.cpu.entries.sparse")


def column_moments(x: Host, watch: Watcher = silent, *, threads: int) -> ColumnMoments:
    """Weight, mean and squared deviations of every column; absent counts are zeros."""
    if x.kind == "counts":
        return _of_counts(x, threads)
    n, rows = x.shape[1], product_rows(x)
    lanes = [
        passes.ColumnLane(ColumnMoments(0, 0.0, np.zeros(n), np.zeros(n)), x.weights)
        for _ in range(lanes_for(block_count(x.shape[0], rows), 16 * n, ROOM))
    ]
    run_lanes(
        watched_jobs(replace(x, checked=True), watch, rows=rows), lanes, passes.column_step, threads
    )
    x.checked = True
    found = lanes[0].found
    for lane in lanes[1:]:
        found = found.merge(lane.found)
    return found


def seen_columns(x: Host, *, threads: int) -> SeenColumns:
    """Count, mean and squared deviations of the observed entries of every column."""
    m = x.matrix
    mean = np.zeros(m.shape[1])
    # about zero, then about the mean: squares keep their precision where means are large
    for _ in range(2):
        count, total, square = _sums(
            m,
            lambda a, b, sums, at=mean: sparse.seen_sums_rows(
                m.indptr, m.indices, m.data, at, a, b, *sums
            ),
            threads,
        )
        mean = mean + total / np.maximum(count, 1.0)
    return SeenColumns(count.astype(np.int64), mean, square)


def _of_counts(x: Host, threads: int) -> ColumnMoments:
    m, w = x.matrix, np.empty(0) if x.weights is None else x.weights
    _, total, square = _sums(
        m,
        lambda a, b, sums: sparse.column_sums_rows(
            m.indptr, m.indices, m.data, w, a, b, sums[1], sums[2]
        ),
        threads,
    )
    weight = float(m.shape[0]) if x.weights is None else float(w.sum())
    mean = total / weight if weight > 0 else total
    return ColumnMoments(m.shape[0], weight, mean, np.maximum(square - weight * mean**2, 0.0))


def _sums(m: Any, work: Any, threads: int) -> np.ndarray:
    """Three sums for each column, of ranges of rows on lanes."""
    lanes = partial_sums(lanes_for(m.nnz // 2**14, 24 * m.shape[1], ROOM), (3, m.shape[1]))
    parts = sparse.balanced(m.indptr, len(lanes))
    run_lanes(parts, lanes, lambda sums, part, scratch: work(*part, sums), threads)
    return thin.tree_sum(lanes, threads)
