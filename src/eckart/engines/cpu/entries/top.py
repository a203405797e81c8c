"""The n best columns of each row of U V^T + c, by tiles of scores that never leave the cache.

A tile is a product of a few hundred rows with a few thousand columns. Scores of excluded columns
are set to -inf, then each row is scanned against the worst of its n best so far: sixteen scores at
a time are compared through their maximum, so that almost all are dismissed without a look. Ties go
to the lower column.

What a third side sees of pairs of two others: designs and offsets of a factorization machine on
three ids, one row for each pair.

With x = (u, b) the row of one side and y = (w, d) that of the other, k numbers and a bias each, the
pair is (u + w, 1) with the offset b + d + u.w. One pass reads both rows where they stand and writes
the pair: in steps of NumPy each of these is a pass over all pairs. Pairs are written with zeros up
to whole registers, as those who solve with them want them: a copy of them costs as much as half of
the solving.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from eckart.compiling import OUTSIDE
from eckart.engines.cpu.buffers import aligned_empty, real_columns
from eckart.engines.cpu.dense.thin import parts_of
from eckart.engines.cpu.entries.entry import FAST
from eckart.engines.cpu.registers.vectors import tile_size
from eckart.scheduler import run_lanes

ROWS, COLUMNS, GROUP = 256, 2048, 16
LEAST_ITEMS, ITEMS_OF_ONE = 16, 4
"""Pieces of work wanted, so that threads have some to share: of many rows, and of a single one, for
which handing out a piece takes as long as its work."""

SORTED = 512
"""Number of best columns from which on all scores of a row are sorted: putting one into its place
takes steps in proportion to n, so that n of m = 6,600 columns take 0.3 ms a row at n = 512 and 4 ms
at 3,000, a sort 0.5."""


@njit(**OUTSIDE, fastmath=False)
def _mask(indptr, indices, rows, first, last, begin, tile, ascend):
    """Excluded columns of the given rows become -inf in the tile of columns begin... The indices of
    a row may stand in any order; ``ascend`` says where they are known to ascend (1) or not (0):
    there all are looked through, and where nothing is known (-1) that is found out."""
    width = tile.shape[1]
    for q in range(first, last):
        a, b = indptr[rows[q]], indptr[rows[q] + 1]
        known, before = ascend[q - first], -1
        if known > 0:
            end = b
            while a < end:
                middle = (a + end) // 2
                if indices[middle] < begin:
                    a = middle + 1
                else:
                    end = middle
        elif known < 0:
            ascend[q - first] = 1
        for p in range(a, b):
            j = indices[p] - begin
            if known > 0 and j >= width:
                break
            if known < 0 and indices[p] < before:
                ascend[q - first] = 0
            before = indices[p]
            if 0 <= j < width:
                tile[q - first, j] = -np.inf


@njit(**OUTSIDE, fastmath={"contract", "nsz"})
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


@njit(**OUTSIDE)
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
    offset: np.ndarray | None = None,
    excluded: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None,
    *,
    threads: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Positions (-1 where there are fewer than n) and scores of the n best columns; ``excluded`` is
    (indptr, indices, row of each row of U).

    Few rows are shared out by ranges of columns (as the shapes alone say), each with its own n
    best; these are merged in the order of the ranges.
    """
    rows, m = len(left), len(right)
    n = min(n, m)
    dtype = np.result_type(left.dtype, right.dtype)
    left, columns = np.ascontiguousarray(left, dtype), np.ascontiguousarray(right, dtype).T
    blocks = -(-rows // ROWS)
    items, wide = (ITEMS_OF_ONE, 8 * COLUMNS) if rows == 1 else (LEAST_ITEMS, COLUMNS)
    parts = max(1, min(items // max(blocks, 1), m // (4 * COLUMNS)))
    width = -(-m // parts)
    where, best = np.full((parts, rows, n), -1, np.int64), np.full((parts, rows, n), -np.inf, dtype)

    def step(_: int, item: int, scratch: dict) -> None:
        first, part = item // parts * ROWS, item % parts
        last = min(first + ROWS, rows)
        if "tile" not in scratch:
            scratch["tile"] = np.empty(ROWS * COLUMNS, dtype)
        stop, ascend = min(width * (part + 1), m), np.full(last - first, -1, np.int8)
        for begin in range(width * part, stop, wide):
            end = min(begin + wide, stop)
            tile = scratch["tile"][: (last - first) * (end - begin)].reshape(
                last - first, end - begin
            )
            if rows == 1:
                np.dot(columns.T[begin:end], left[0], out=tile[0])
            else:
                np.matmul(left[first:last], columns[:, begin:end], out=tile)
            if offset is not None:
                tile += offset[begin:end]
            if excluded is not None:
                _mask(*excluded, first, last, begin, tile, ascend)
            if n < SORTED:
                _keep_best(tile, begin, best[part, first:last], where[part, first:last])
            else:
                both = best[part, first:last], where[part, first:last]
                values = np.concatenate([both[0], tile], axis=1)
                names = np.concatenate(
                    [both[1], np.broadcast_to(np.arange(begin, end), tile.shape)], axis=1
                )
                # stable: what stands before, the lower columns, stays before its equals
                order = np.argsort(-values, axis=1, kind="stable")[:, :n]
                both[0][:] = np.take_along_axis(values, order, axis=1)
                both[1][:] = np.take_along_axis(names, order, axis=1)

    run_lanes(range(blocks * parts), list(range(64)), step, threads)
    found, scores = _merged(where, best, n)
    found[np.isneginf(scores)] = -1
    return found, scores


def _merged(where: np.ndarray, best: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The n best of all ranges; a stable sort keeps the lower column first among equals."""
    if len(where) == 1:
        return where[0], best[0]
    where, best = (np.concatenate(list(a), axis=1) for a in (where, best))
    order = np.argsort(-best, axis=1, kind="stable")[:, :n]
    return np.take_along_axis(where, order, axis=1), np.take_along_axis(best, order, axis=1)


TILE = tile_size(np.dtype(np.float64))


@njit(**OUTSIDE, fastmath=FAST)
def pair_range(one, two, first, second, begin, end, design, offset):
    """Pairs begin..end: design (pairs x d, and zeros up to its width) and offset (pairs x 1)."""
    k, wide = one.shape[1] - 1, design.shape[1]
    for p in range(begin, end):
        a, b = one[first[p]], two[second[p]]
        s, row = a[k] + b[k], design[p]
        for c in range(k):
            s += a[c] * b[c]
            row[c] = a[c] + b[c]
        row[k] = 1.0
        for c in range(k + 1, wide):
            row[c] = 0.0
        offset[p, 0] = s


def pair_rows(
    one: np.ndarray, two: np.ndarray, first: np.ndarray, second: np.ndarray, threads: int
) -> tuple[np.ndarray, np.ndarray]:
    """Designs and offsets of the pairs (one[first[p]], two[second[p]])."""
    one, two = (np.ascontiguousarray(a, np.float64) for a in (one, two))
    pairs, d = len(first), one.shape[1]
    design, offset = (
        aligned_empty((pairs, -(-d // TILE) * TILE), np.dtype(np.float64)),
        np.empty((pairs, 1)),
    )
    parts = parts_of(pairs, 2 * d, read=24 * d)

    def step(_: None, part: tuple[int, int], scratch: dict) -> None:
        pair_range(one, two, first, second, *part, design, offset)

    run_lanes(parts, [None] * len(parts), step, threads)
    return real_columns(design, d), offset
