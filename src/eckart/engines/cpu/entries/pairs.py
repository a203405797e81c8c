"""What a third side sees of pairs of two others: designs and offsets of a factorization machine on
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
from eckart.engines.cpu.dense.thin import parts_of
from eckart.engines.cpu.entries.entry import FAST
from eckart.engines.cpu.registers.prefetch import aligned_empty, padded_view
from eckart.engines.cpu.registers.vectors import tile_size
from eckart.scheduler import run_lanes

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
    return padded_view(design, d), offset
