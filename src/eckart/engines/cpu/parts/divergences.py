"""Multiplicative steps under beta-divergences, as part of ``CpuEngine``: the array primitives on
blocks of dense rows and on ranges of stored ones, a few at a time on each thread.

Powers take most of the time and are NumPy's either way. On observed entries alone the array
primitives take 118 ms where filled rows took 295 (20,000 x 500, a twentieth observed, k = 20, one
thread of an AMD EPYC).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.engines.arrays.divergences import (
    ArrayDivergences,
    DenseCells,
    StoredCells,
    beta_steps,
    beta_sums_of,
    filled_cells,
    multiply,
    size_of_rows,
    transposed,
)
from eckart.engines.cpu.parts.ranges import GATHER, PARTS, parts_of_entries, weighted
from eckart.engines.cpu.small import or_arrays
from eckart.engines.host import Host
from eckart.engines.protocol import BetaRule, BetaSums, Descent, Pass
from eckart.engines.row_blocks import THIN, jobs
from eckart.scheduler import lanes_for, run_lanes

POWER = 32
"""Multiply-adds that take as long as a power."""


class DivergencePrimitives(ArrayDivergences):
    """The family ``divergences``; powers and sums are of float64, whatever the data are."""

    threads: int
    _each: Any
    _block: Any
    _swept_pass: Any

    @or_arrays(ArrayDivergences)
    def beta_size(self, x: Host, beta: float) -> float:
        lanes = [np.zeros(1) for _ in range(PARTS)]

        def step(total: np.ndarray, part: Any, scratch: dict[str, Any]) -> None:
            at, cells = self._cells(x, None, part)
            rows = size_of_rows(self.lib, cells, beta, at.start)
            total += rows.sum() if x.weights is None else x.weights[at] @ rows

        run_lanes(self._cell_parts(x, 1), lanes, step, self.threads)
        return float(np.sum(lanes))

    @or_arrays(ArrayDivergences)
    def beta_rows(
        self,
        x: Host,
        other: np.ndarray,
        start: np.ndarray,
        rule: BetaRule,
        mass: np.ndarray,
        *,
        steps: int = 1,
    ) -> Descent:
        h, out, level = (
            np.asarray(other, np.float64),
            np.array(start, order="C"),
            np.empty((len(start), 2)),
        )

        def step(_: Any, part: Any, scratch: dict[str, Any]) -> None:
            at, cells = self._cells(x, h, part)
            found = beta_steps(self.lib, cells, out[at].astype(np.float64), mass, rule, steps)
            out[at], level[at, 0], level[at, 1] = found

        parts = self._cell_parts(x, steps * h.shape[1])
        run_lanes(parts, [None] * PARTS, step, self.threads)
        return Descent(out, *weighted(level, x.weights))

    @or_arrays(ArrayDivergences)
    def beta_sums(self, x: Host, left: np.ndarray, right: np.ndarray, beta: float) -> BetaSums:
        w, h = np.asarray(left, np.float64), np.asarray(right, np.float64)
        n, k = h.shape
        if x.kind == "observed":
            return self._sums_by_columns(x, w, h, beta)
        blocks = self._cell_parts(x, k)
        count = len(blocks) if isinstance(blocks, list) else PARTS
        zero = BetaSums(np.zeros((n, k)), np.zeros((n, k)), np.zeros(n), 0.0)
        lanes = [[zero] for _ in range(lanes_for(count, 16 * n * (k + 1), 2**26))]

        def step(lane: list[BetaSums], part: Any, scratch: dict[str, Any]) -> None:
            at, cells = self._cells(x, w, part)
            columns = transposed(cells, None if x.weights is None else x.weights[at], w[at])
            lane[0] = lane[0].merge(BetaSums(*beta_sums_of(self.lib, columns, h, beta)))

        run_lanes(blocks, lanes, step, self.threads)
        found = lanes[0][0]
        for lane in lanes[1:]:
            found = found.merge(lane[0])
        return found

    def _sums_by_columns(self, x: Host, w: np.ndarray, h: np.ndarray, beta: float) -> BetaSums:
        """Of observed entries, whose columns are ranges of rows of the transpose."""
        up, down, totals = np.empty_like(h), np.empty_like(h), np.empty(len(h))
        parts = self._cell_parts(x.T, h.shape[1])
        values = np.zeros(max(1, len(parts)))

        def step(_: Any, at: int, scratch: dict[str, Any]) -> None:
            rows, cells = self._cells(x.T, w, parts[at])
            found = beta_sums_of(self.lib, cells, h[rows], beta)
            up[rows], down[rows], totals[rows], values[at] = found

        run_lanes(range(len(parts)), [None] * max(1, len(parts)), step, self.threads)
        return BetaSums(up, down, totals, float(values.sum()))

    def multiplied_rows(
        self, gram: np.ndarray, pull: np.ndarray, start: np.ndarray, l1: float = 0.0
    ) -> Descent:
        out, level, step = (
            np.empty_like(start, order="C"),
            np.empty((len(start), 2)),
            self._multiply(gram, l1),
        )
        self._each(
            len(start),
            2 * gram.size,
            lambda a, b: step(pull[a:b], start[a:b], out[a:b], level[a:b]),
        )
        return Descent(out, *weighted(level, None))

    @or_arrays(ArrayDivergences)
    def multiplied_pass(
        self, x: Host, right: np.ndarray, left: np.ndarray, gram: np.ndarray, l1: float = 0.0
    ) -> Pass:
        return self._swept_pass(x, right, left, self._multiply(gram, l1), 2 * gram.size)

    def _multiply(self, gram: np.ndarray, l1: float) -> Any:
        """The multiplicative step for least squares of some rows: step(pull, start, out, level)."""
        g = np.asarray(gram, np.float64)

        def step(pull: np.ndarray, start: np.ndarray, out: np.ndarray, level: np.ndarray) -> None:
            out[:], level[:, 0], level[:, 1] = multiply(self.lib, g, pull, l1, start)

        return step

    def _cell_parts(self, x: Host, work: int) -> Any:
        """Blocks of dense rows, or ranges of stored ones; an entry takes the given multiply-adds
        and two powers."""
        each = work + 2 * POWER
        if x.kind == "observed":
            return parts_of_entries(x, GATHER * each)
        size = min(self._block(x, x.shape[1] * each), THIN // 4)
        if x.kind == "dense":
            return jobs(x, size)
        rows, step = x.shape[0], max(1, size // (x.shape[1] * x.dtype.itemsize))
        assert rows is not None
        return [(a, min(a + step, rows)) for a in range(0, rows, step)]

    def _cells(self, x: Host, h: Any, part: Any) -> tuple[slice, DenseCells | StoredCells]:
        """Which rows a part has, and their cells in float64."""
        if x.kind == "dense":
            start, rows, fetch = part
            block = np.asarray(fetch({}), np.float64)
            return slice(start, start + rows), DenseCells(block, None, h)
        at, e = slice(*part), self.lib.entries(x)
        if x.kind == "observed":
            return at, StoredCells(self.lib, self.lib.rows_of(e, at.start, at.stop), h)
        return at, filled_cells(self.lib, e, h, at, x.shape[1])
