"""Rows that are time series, as part of ``CpuEngine``; numba is loaded when the first of these is
called.

Rows are independent of one another and are dealt out to threads; the chain over all rows is one
after another by its nature, and LAPACK's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eckart.engines.arrays.series import ArraySeries
from eckart.loading import lazy
from eckart.scheduler import lanes_for, run_lanes

sparse = lazy("eckart.engines.cpu.entries.sparse")
kernels = lazy("eckart.engines.cpu.series.kernels")

LANE_ENTRIES = 2**12
"""Entries that are worth a lane: some tens of microseconds of work."""


class SeriesPrimitives(ArraySeries):
    """The primitives of ``protocol.series`` on ``threads`` threads."""

    # Time of arrays over that of kernels, 2,000 rows of 200, a third missing, 5 factors, one thread
    # of an AMD EPYC: own_likelihood 6.7, own_rows 10, state_rows 1.7, less_states 2.1. Fits ask for
    # them some thousand times, so that small data gain by kernels, too.
    threads: int

    def own_likelihood(self, x: Any, data: np.ndarray, own: np.ndarray) -> np.ndarray:
        out = np.empty((x.shape[0], 1))
        self._by_rows(x, lambda a, b: kernels.own_likelihood(*_pattern(x), data, own, a, b, out))
        return out

    def own_rows(
        self,
        x: Any,
        data: np.ndarray,
        right: np.ndarray,
        own: np.ndarray,
        base: np.ndarray,
        prior: np.ndarray,
        noise: np.ndarray | None,
    ) -> np.ndarray:
        out = np.empty((x.shape[0], right.shape[1]))
        z = np.zeros_like(out) if noise is None else noise
        self._by_rows(
            x,
            lambda a, b: kernels.own_rows(
                *_pattern(x), data, right, own, base, prior, z, a, b, out
            ),
        )
        return out

    def state_rows(
        self, x: Any, data: np.ndarray, length: int, rule: np.ndarray, noise: np.ndarray | None
    ) -> np.ndarray:
        out = np.empty((x.shape[0], length))
        z = np.zeros_like(out) if noise is None else noise
        self._by_rows(
            x, lambda a, b: kernels.state_rows(*_pattern(x), data, length, rule, z, a, b, out)
        )
        return out

    def less_states(
        self, x: Any, data: np.ndarray, states: np.ndarray, sign: float = 1.0
    ) -> np.ndarray:
        out = np.empty(len(data))
        self._by_rows(
            x, lambda a, b: kernels.less_states(*_pattern(x), data, states, sign, a, b, out)
        )
        return out

    def _by_rows(self, x: Any, do: Callable[[int, int], None]) -> None:
        """``do(first, last)`` for ranges of rows, each with about as many entries."""
        parts = x.kept.get("ranges of series")
        if parts is None:
            parts = x.kept["ranges of series"] = sparse.balanced(
                x.matrix.indptr, lanes_for(x.nnz // LANE_ENTRIES)
            )
        if len(parts) == 1:
            do(*parts[0])
        else:
            run_lanes(parts, [None] * len(parts), lambda _, part, scratch: do(*part), self.threads)


def _pattern(x: Any) -> tuple[np.ndarray, np.ndarray]:
    return x.matrix.indptr, x.matrix.indices
