"""Sparse rows laid out for repeated block products: chunks of rows, each stored by columns.

A^T A V needs, for every stored entry, a row of V and a row of the result. Row by row these are
random accesses to arrays larger than the cache, bound by latency. In a chunk of rows stored by
columns, V and the result are streamed and the random accesses go to the chunk's Y = A V, which
stays in cache: first Y[i] += a_ij V[j], then total[j] += sum_i a_ij Y[i]. Totals of a few groups of
chunks are added up. Few threads take a group each, chunk by chunk; more of them share the first
step by chunks, and the second by groups and by a few ranges of columns, each of which owns its part
of the result. The copy (a 16-bit row and a value an entry, and the column pointers of each chunk)
costs one pass; it pays from the second product on.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from numba import njit

from eckart.compiling import OUTSIDE
from eckart.engines.cpu.buffers import aligned_empty
from eckart.engines.cpu.dense.thin import tree_sum
from eckart.engines.row_blocks import even_rows
from eckart.matrix import Counts
from eckart.scheduler import lanes_for, run_lanes

CHUNK = 4096
MOST_CHUNK = 65536
LEAST_ENTRIES = 2**20
"""Smaller matrices fit into the cache as they are."""
IMAGE_BYTES = 2**26
"""Of Y at a time; more rows are worked in several rounds."""
TOTAL_BYTES = 48 * 2**20
"""Results of all groups together stay under this where the shape allows."""
GROUPS = 4
"""Groups of chunks: more would cost as much in adding up as they save."""
RANGES = 4
"""Ranges of columns: each reads all of a chunk's Y again, which costs nothing up to here."""


class Tiles(NamedTuple):
    """A second copy of the entries by chunk and column: ``starts[c, j]`` to ``starts[c, j + 1]`` in
    chunk c."""

    rows: int
    chunk: int
    starts: np.ndarray
    local: np.ndarray
    values: np.ndarray
    column_ranges: list[tuple[int, int]]
    """Ranges of columns with about equally many entries and pointers."""


def in_tiles(x: Counts, threads: int) -> Tiles | None:
    """The tiled layout; None where the matrix is small, or so wide that the column pointers would
    outweigh the entries."""
    rows, n = x.shape
    chunk = CHUNK
    while chunk < MOST_CHUNK and -(-rows // chunk) * (n + 1) > x.nnz // 4:
        chunk *= 2
    chunks = -(-rows // chunk)
    if x.nnz < LEAST_ENTRIES or chunks * (n + 1) > x.nnz // 4:
        return None
    even = even_rows(rows, chunk, chunk // 2)
    if -(-rows // even) * (n + 1) <= x.nnz // 4:
        chunk, chunks = even, -(-rows // even)
    starts = np.empty((chunks, n + 1), x.indptr.dtype)
    local, values = np.empty(x.nnz, np.uint16), np.empty_like(x.data)

    def step(_: int, c: int, scratch: dict) -> None:
        _tile(
            x.indptr,
            x.indices,
            x.data,
            c * chunk,
            min((c + 1) * chunk, rows),
            starts[c],
            local,
            values,
        )

    run_lanes(range(chunks), list(range(chunks)), step, threads)
    return Tiles(rows, chunk, starts, local, values, _column_ranges(starts))


def gram_times(tiles: Tiles, v: np.ndarray, weights: np.ndarray, threads: int) -> np.ndarray:
    """A^T diag(w) A V; ``weights`` of length 0 means all ones."""
    chunks = len(tiles.starts)
    at_once = min(chunks, max(1, IMAGE_BYTES // (tiles.chunk * v.shape[1] * v.itemsize)))
    totals = [
        aligned_empty(v.shape, v.dtype)
        for _ in range(lanes_for(at_once, v.nbytes, TOTAL_BYTES, GROUPS))
    ]
    ends = [min(begin + at_once, chunks) for begin in range(0, chunks, at_once)]
    rounds = [
        np.linspace(begin, end, len(totals) + 1).astype(int) for begin, end in zip([0, *ends], ends)
    ]

    def times(c: int, y: np.ndarray) -> np.ndarray:
        first = c * tiles.chunk
        y = y[: min(tiles.chunk, tiles.rows - first)]
        _tile_times(tiles.starts[c], tiles.local, tiles.values, v, weights, first, y)
        return y

    def group(total: np.ndarray, g: int, scratch: dict) -> None:
        """All of a group's chunks by one thread: Y is used while it is in the cache. The same sums
        in the same order as by ranges of columns."""
        total[:] = 0
        y = aligned_empty((tiles.chunk, v.shape[1]), v.dtype)
        for cuts in rounds:
            for c in range(cuts[g], cuts[g + 1]):
                _tiles_times_t(
                    tiles.starts[c : c + 1],
                    tiles.local,
                    tiles.values,
                    times(c, y),
                    tiles.chunk,
                    0,
                    len(total),
                    total,
                )

    if len(totals) % threads == 0:  # else some threads would wait for the others' last group
        run_lanes(range(len(totals)), totals, group, threads)
        return tree_sum(totals, threads)
    image = aligned_empty((at_once * tiles.chunk, v.shape[1]), v.dtype)
    for cuts in rounds:
        begin, end = int(cuts[0]), int(cuts[-1])

        def times_t(_: None, part: tuple, scratch: dict, begin: int = begin) -> None:
            total, group, columns = part
            if begin == 0:
                total[slice(*columns)] = 0
            y = image[(group[0] - begin) * tiles.chunk :]
            _tiles_times_t(
                tiles.starts[slice(*group)],
                tiles.local,
                tiles.values,
                y,
                tiles.chunk,
                *columns,
                total,
            )

        run_lanes(
            range(begin, end),
            [None] * (end - begin),
            lambda _, c, scratch, begin=begin: times(c, image[(c - begin) * tiles.chunk :]),
            threads,
        )
        parts = [
            (*one, columns)
            for one, columns in itertools.product(
                zip(totals, itertools.pairwise(cuts.tolist())), tiles.column_ranges
            )
        ]
        run_lanes(parts, [None] * len(parts), times_t, threads)
    return tree_sum(totals, threads)


def _column_ranges(starts: np.ndarray) -> list[tuple[int, int]]:
    load = starts.sum(axis=0, dtype=np.int64) + len(starts) * np.arange(starts.shape[1])
    load -= load[0]
    cuts = np.unique(np.searchsorted(load, np.linspace(0, load[-1], RANGES + 1)))
    return list(itertools.pairwise(cuts.tolist()))


@njit(**OUTSIDE)
def _tile(indptr, indices, data, first, last, starts, local, values):
    """Counting sort of the entries of rows first..last by column, rows in order inside a column."""
    n = starts.shape[0] - 1
    at = np.zeros(n + 1, np.int64)
    for p in range(indptr[first], indptr[last]):
        at[indices[p] + 1] += 1
    at[0] = indptr[first]
    for j in range(n):
        at[j + 1] += at[j]
    for j in range(n + 1):
        starts[j] = at[j]
    for i in range(first, last):
        for p in range(indptr[i], indptr[i + 1]):
            w = at[indices[p]]
            local[w] = i - first
            values[w] = data[p]
            at[indices[p]] = w + 1


@njit(**OUTSIDE, fastmath={"contract", "reassoc", "nsz"})
def _tile_times(starts, local, values, v, weights, first_row, y):
    """Y = diag(w) A_c V for one chunk."""
    b, n = v.shape[1], starts.shape[0] - 1
    for i in range(y.shape[0]):
        for c in range(b):
            y[i, c] = 0
    for j in range(n):
        vj = v[j]
        for p in range(starts[j], starts[j + 1]):
            a = values[p]
            i = local[p]
            for c in range(b):
                y[i, c] += a * vj[c]
    if weights.shape[0] > 0:
        for i in range(y.shape[0]):
            for c in range(b):
                y[i, c] *= weights[first_row + i]


@njit(**OUTSIDE, fastmath={"contract", "reassoc", "nsz"})
def _tiles_times_t(starts, local, values, image, chunk, first, last, total):
    """total[j] += A_c^T Y_c of columns first..last, over chunks in order."""
    b = total.shape[1]
    for c in range(starts.shape[0]):
        y = image[c * chunk : (c + 1) * chunk]
        for j in range(first, last):
            tj = total[j]
            p = starts[c, j]
            end = starts[c, j + 1]
            # four entries at a time: total[j] is loaded and stored once for them
            while p + 3 < end:
                a0, a1, a2, a3 = values[p], values[p + 1], values[p + 2], values[p + 3]
                i0, i1, i2, i3 = local[p], local[p + 1], local[p + 2], local[p + 3]
                for r in range(b):
                    tj[r] += (a0 * y[i0, r] + a1 * y[i1, r]) + (a2 * y[i2, r] + a3 * y[i3, r])
                p += 4
            while p < end:
                a0 = values[p]
                i0 = local[p]
                for r in range(b):
                    tj[r] += a0 * y[i0, r]
                p += 1
