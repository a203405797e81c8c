"""Ranges of rows on lanes, factors in whole registers, and entries as the kernels of non-negative
factorization want them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eckart.engines.host import Host
from eckart.engines.row_blocks import THIN
from eckart.loading import lazy
from eckart.scheduler import lanes_for, run_lanes

sparse = lazy("eckart.engines.cpu.entries.sparse")
vectors = lazy("eckart.engines.cpu.registers.vectors")

GRAIN = 2**22
"""Multiply-adds in a part: about a millisecond, so that handing it to a thread costs little against
it."""
POOL_GRAIN = 2**18
"""The same for the thread pool, which takes a part in a microsecond: some 50 of them. Rows of a part are
on their own, so no sum depends on it."""
GATHER = 4
"""Multiply-adds with gathered rows take about so many times as long as those of a dense product."""
PARTS = 64
"""Parts at the most: one for each of 64 threads. More would wait for the interpreter more often
than they would even out."""
FEWEST = 128
"""Rows of a dense block at the least: shorter products with the other factor run far below the
speed of longer ones."""
LEAST = 1e-10
"""Share of a row below which a multiplicative step does not take a component, so that it can come
back."""
TINY = 1e-37
"""Denominators at the least: above it a float32 is normal."""
MANY = 2**10
"""Blocks of a stream of unknown length."""

Step = Callable[[Any, Any, dict[str, Any]], None]


class Ranges:
    """Work cut into ranges of rows for ``threads`` threads."""

    threads: int
    small: float

    def _cuts(self, rows: int, work: int, grain: int = GRAIN) -> np.ndarray:
        """Where ranges of rows with so many multiply-adds each begin and end: whole tiles of every
        width."""
        count = int(np.clip(rows * work // grain, 1, PARTS))
        size = -(-max(1, -(-rows // count)) // 64) * 64
        return np.append(np.arange(0, rows, size), rows)

    def _over_ranges(self, parts: list[tuple[int, int]], do: Callable[[int, int], Any]) -> None:
        run_lanes(
            parts, [None] * max(1, len(parts)), lambda _, part, scratch: do(*part), self.threads
        )

    def _block(self, x: Host, work: int, rows: int | None = None) -> int:
        """Bytes of a block whose rows take ``work`` multiply-adds each: two grains, but few enough
        blocks, long enough ones, and none larger than a cache."""
        rows, width = rows or x.shape[0], x.shape[1] * x.dtype.itemsize
        if not rows:
            return THIN
        count = int(np.clip(rows * work // (2 * GRAIN), 1, 2 * PARTS))
        return int(min(max(FEWEST, -(-rows // count)) * width, THIN))

    def _cross_lanes(self, x: Host, k: int, work: int) -> int:
        """Lanes with partial sums n x k, which together take no more than an eighth of the data (or
        64 MB): more would cost more than it gains."""
        rows, n = x.shape[0], x.shape[1]
        blocks = MANY if not rows else -(-rows * n * x.dtype.itemsize // self._block(x, work))
        room = max(2**26, (rows or 0) * n * x.dtype.itemsize // 8)
        return lanes_for(blocks, n * k * x.dtype.itemsize, room)


def register_width(k: int, dtype: np.dtype) -> int:
    """k rounded up to whole registers."""
    size = vectors.tile_size(dtype)
    return -(-max(1, k) // size) * size


def weighted(level: np.ndarray, weights: np.ndarray | None) -> tuple[float, float]:
    value, kkt = level.sum(axis=0) if weights is None else weights @ level
    return float(value), float(kkt)


def entries_of(x: Host, dtype: Any) -> tuple[np.ndarray, ...]:
    w = (
        np.empty(0, dtype)
        if x.entry_weights is None
        else np.ascontiguousarray(x.entry_weights, dtype)
    )
    return x.matrix.indptr, x.matrix.indices, np.ascontiguousarray(x.matrix.data, dtype), w


def parts_of_entries(x: Host, work: int, row: int = 0) -> list[tuple[int, int]]:
    """Ranges of rows of about equal load, ``work`` multiply-adds an entry and ``row`` a row."""
    rows = len(x.matrix.indptr) - 1
    return sparse.balanced(
        x.matrix.indptr, int(np.clip((x.nnz * work + rows * row) // GRAIN, 1, PARTS))
    )
