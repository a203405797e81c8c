"""Rows with gaps under a Gaussian of low rank on threads: the part of the dense family that PCA
with missing entries asks for: ``arrays.gaps``, some rows on each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eckart.engines.arrays.gaps import ArrayGaps
from eckart.engines.cpu.dense import thin
from eckart.engines.cpu.spread import by_rows
from eckart.scheduler import lanes_for, run_lanes

ROOM = 2**26
"""Bytes for the sums of all lanes."""


class GapPrimitives(ArrayGaps):
    """Statistics, codes and expected entries of x_i ~ N(mean, W W^T + noise I), each row seen in
    part."""

    threads: int
    seen_columns = by_rows(ArrayGaps, "seen_columns", lambda x, **_: 3 * x.shape[1])

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
