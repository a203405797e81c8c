"""The primitives of non-negative factorization, as part of ``CpuEngine``: kernels for coordinate
descent and for Kullback-Leibler steps of stored entries, array primitives on threads for the rest.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.engines.arrays.parts import ArrayParts
from eckart.engines.cpu.buffers import aligned_zeros, padded, real_columns
from eckart.engines.cpu.parts.hals import HalsPrimitives
from eckart.engines.cpu.parts.ranges import (
    GATHER,
    entries_of,
    parts_of_entries,
    register_width,
    weighted,
)
from eckart.engines.cpu.small import is_small
from eckart.engines.cpu.spread import by_rows
from eckart.engines.host import Host, place
from eckart.engines.protocol import Descent, KlRule
from eckart.matrix import Matrix


def _columns(right: np.ndarray, **_: Any) -> int:
    return right.size


class NonnegativePrimitives(HalsPrimitives, ArrayParts):
    """The families ``parts`` and ``divergences`` on ``threads`` threads; numba is loaded when the
    first kernel is called."""

    totals = by_rows(ArrayParts, "totals")
    square_error = by_rows(ArrayParts, "square_error")
    kl_sums = by_rows(ArrayParts, "kl_sums", _columns)
    multiplied_pass = by_rows(ArrayParts, "multiplied_pass", _columns)
    beta_size = by_rows(ArrayParts, "beta_size")
    beta_rows = by_rows(ArrayParts, "beta_rows")
    beta_sums = by_rows(ArrayParts, "beta_sums", _columns)
    _dense_kl = by_rows(ArrayParts, "kl_rows")

    # 6 times as fast as by arrays: 1,000,000 entries, one thread of an AMD EPYC; rows of dense data
    # are faster by arrays where each stops on its own, and a sixth slower where none does
    def kl_rows(
        self,
        x: Host | Matrix,
        other: np.ndarray,
        start: np.ndarray,
        rule: KlRule,
        mass: np.ndarray,
        *,
        steps: int = 1,
    ) -> Descent:
        x = place(x)
        if x.kind == "dense" or is_small(x, self.small):
            return self._dense_kl(x, other, start, rule, mass, steps=steps)
        from eckart.engines.cpu.parts.kernels import kl_range

        dtype, k = start.dtype, start.shape[1]
        kind = dtype.type
        wide, given = register_width(k, dtype), np.asarray(start)
        h, out = padded(other, wide, dtype), aligned_zeros((len(given), wide), dtype)
        level, work = np.zeros((len(out), 2)), 2 * k * (min(steps, 8) + 1)
        own = np.zeros(0, dtype) if x.kind == "observed" else mass.astype(dtype)
        how = kind(rule.l1), kind(rule.l2), steps, rule.fast, kind(rule.tol), rule.valued
        entries = entries_of(x, dtype)
        self._over_ranges(
            parts_of_entries(x, GATHER * work),
            lambda a, b: kl_range(entries, h, own, given, out, k, how, a, b, level),
        )
        return Descent(real_columns(out, k), *weighted(level, x.weights))
