"""Rows with gaps under a Gaussian of low rank on threads: the part of the dense family that PCA
with missing entries asks for. Masks and products (``arrays.gaps``) where many entries are observed,
rows of entries where few are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eckart.engines.arrays.gaps import ArrayGaps, rows_by_gaps
from eckart.engines.cpu.dense import thin
from eckart.engines.cpu.small import is_small
from eckart.engines.cpu.spread import by_rows
from eckart.engines.host import Host, place
from eckart.engines.protocol import GapCodes, GapStatistics
from eckart.matrix import Matrix
from eckart.scheduler import lanes_for, run_lanes

FEW = 0.05
"""Share of observed entries from which BLAS on zeros is quicker than scalars on entries."""
ROOM = 2**26
"""Bytes for the sums of all lanes."""


class GapPrimitives(ArrayGaps):
    """Statistics, codes and expected entries of x_i ~ N(mean, W W^T + noise I), each row seen in
    part."""

    threads: int
    small: float
    _over_rows: Any
    seen_columns = by_rows(ArrayGaps, "seen_columns", lambda x, **_: 3 * x.shape[1])

    def gap_statistics(
        self, x: Matrix | Host, w: np.ndarray, mean: np.ndarray, noise: float
    ) -> GapStatistics:
        x = place(x)
        if not self._hardly_seen(x):
            return super().gap_statistics(x, w, mean, noise)
        from eckart.engines.cpu.dense import missing_rows

        seen, weights, _ = rows_by_gaps(x)
        return missing_rows.gap_statistics(seen, w, mean, noise, weights, self.threads)

    def gap_codes(
        self, x: Matrix | Host, w: np.ndarray, mean: np.ndarray, noise: float
    ) -> GapCodes:
        x = place(x)
        if not self._hardly_seen(x):
            return super().gap_codes(x, w, mean, noise)
        from eckart.engines.cpu.dense import missing_rows

        return missing_rows.gap_codes(x.matrix, w, mean, noise, self.threads)

    def gap_expect(
        self, x: Matrix | Host, u: np.ndarray, gain: np.ndarray, mean: np.ndarray, noise: float
    ) -> np.ndarray:
        x = place(x)
        if is_small(x, self.small):
            return super().gap_expect(x, u, gain, mean, noise)
        from eckart.engines.cpu.dense.missing_rows import expected_rows

        m, u = x.matrix, np.ascontiguousarray(u, np.float64)
        z = self.gap_codes(x, u * gain, mean, noise).codes
        out = np.empty(z.shape, x.dtype)
        self._over_rows(
            m, lambda a, b: expected_rows(m.indptr, m.indices, m.data, u, gain, mean, z, a, b, out)
        )
        return out

    def _hardly_seen(self, x: Host) -> bool:
        rows, n = x.shape
        return x.nnz < FEW * rows * n and not is_small(x, self.small)  # type: ignore[operator]

    def _added(self, parts: Any, do: Callable[[Any], tuple[Any, ...]], size: int) -> list[Any]:
        lanes: list[list[Any]] = [[] for _ in range(lanes_for(len(parts), 8 * size, ROOM))]

        def step(sums: list[Any], part: Any, scratch: dict) -> None:
            found = do(part)
            if not sums:
                sums.extend(found)
            for at, more in enumerate(found if sums[0] is not found[0] else ()):
                sums[at] += more

        run_lanes(parts, lanes, step, self.threads)
        return [sum(each[1:], each[0]) for each in zip(*(lane for lane in lanes if lane))]

    def _joined(self, parts: Any, do: Callable[[Any], tuple[Any, ...]]) -> list[Any]:
        found: list[Any] = [None] * len(parts)

        def step(_: None, at: int, scratch: dict) -> None:
            found[at] = do(parts[at])

        run_lanes(range(len(parts)), [None] * len(parts), step, self.threads)
        return [np.concatenate(each) for each in zip(*found)]

    def _side_by_side(
        self, rows: int, work: int, do: Callable[[tuple[int, int]], tuple[Any, ...]]
    ) -> Any:
        return self._joined(thin.parts_of(rows, work) or [(0, 0)], do)
