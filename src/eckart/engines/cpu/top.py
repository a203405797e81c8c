"""The n best columns of each row of U V^T + c, by tiles of scores that never leave the cache.

A tile is a product of a few hundred rows with a few thousand columns. Scores of excluded columns are set to -inf, then each row is scanned against the
worst of its n best so far: sixteen scores at a time are compared through their maximum, so that almost all are dismissed without a look.
Ties go to the lower column.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from eckart.engines.pool import run_lanes

ROWS, COLUMNS, GROUP = 256, 2048, 16


@njit(nogil=True, cache=True)
def _mask(indptr, indices, rows, first, last, begin, tile):
    """Excluded columns of the given rows become -inf in the tile of columns begin.."""
    width = tile.shape[1]
    for q in range(first, last):
        i = rows[q]
        a, b = indptr[i], indptr[i + 1]
        lo, hi = a, b
        while lo < hi:
            mid = (lo + hi) // 2
            if indices[mid] < begin:
                lo = mid + 1
            else:
                hi = mid
        p = lo
        while p < b and indices[p] < begin + width:
            tile[q - first, indices[p] - begin] = -np.inf
            p += 1


@njit(nogil=True, cache=True, fastmath={"contract", "nsz"})
def _keep_best(tile, begin, best, where):
    """Merge a tile into the n best per row, kept in falling order."""
    rows, width = tile.shape
    n = best.shape[1]
    whole = width // GROUP * GROUP
    for q in range(rows):
        worst = best[q, n - 1]
        for g in range(0, whole, GROUP):
            top = tile[q, g]
            for c in range(g + 1, g + GROUP):
                top = max(top, tile[q, c])
            if top > worst:
                for c in range(g, g + GROUP):
                    if tile[q, c] > worst:
                        _insert(best, where, q, tile[q, c], begin + c)
                        worst = best[q, n - 1]
        for c in range(whole, width):
            if tile[q, c] > worst:
                _insert(best, where, q, tile[q, c], begin + c)
                worst = best[q, n - 1]


@njit(nogil=True, cache=True)
def _insert(best, where, q, value, column):
    t = best.shape[1] - 1
    while t > 0 and best[q, t - 1] < value:
        best[q, t] = best[q, t - 1]
        where[q, t] = where[q, t - 1]
        t -= 1
    best[q, t] = value
    where[q, t] = column


def top_columns(
    left: np.ndarray,
    right: np.ndarray,
    n: int,
    offset: np.ndarray | None,
    excluded: tuple[np.ndarray, np.ndarray, np.ndarray] | None,
    threads: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Positions (-1 where there are fewer than n) and scores of the n best columns; ``excluded`` is (indptr, sorted indices, row of each row of U)."""
    rows, m = len(left), len(right)
    n = min(n, m)
    dtype = np.result_type(left.dtype, right.dtype)
    where, best = np.full((rows, n), -1, np.int64), np.full((rows, n), -np.inf, dtype)
    left, columns = np.ascontiguousarray(left, dtype), np.ascontiguousarray(right.T, dtype)

    def step(_: int, first: int, scratch: dict) -> None:
        last = min(first + ROWS, rows)
        if "tile" not in scratch:
            scratch["tile"] = np.empty(ROWS * COLUMNS, dtype)
        for begin in range(0, m, COLUMNS):
            end = min(begin + COLUMNS, m)
            tile = scratch["tile"][: (last - first) * (end - begin)].reshape(last - first, end - begin)
            np.matmul(left[first:last], columns[:, begin:end], out=tile)
            if offset is not None:
                tile += offset[begin:end]
            if excluded is not None:
                _mask(*excluded, first, last, begin, tile)
            _keep_best(tile, begin, best[first:last], where[first:last])

    run_lanes(range(0, rows, ROWS), list(range(64)), step, threads)
    where[np.isneginf(best)] = -1
    return where, best
