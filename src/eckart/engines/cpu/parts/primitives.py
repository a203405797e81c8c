"""The primitives of non-negative factorization, as part of ``CpuEngine``: ranges of rows on lanes,
sums over rows merged in a fixed order."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from eckart.engines.arrays.parts import ArrayParts, negative, refuse_negative
from eckart.engines.cpu.parts.hals import HalsPrimitives
from eckart.engines.cpu.parts.kl import KlPrimitives
from eckart.engines.cpu.parts.ranges import (
    GATHER,
    PARTS,
    Step,
    entries_of,
    lanes_of,
    parts_of_entries,
)
from eckart.engines.cpu.small import or_arrays
from eckart.engines.host import Host, place
from eckart.engines.protocol import Totals, refuse_bad
from eckart.engines.row_blocks import Job, jobs, scratch_array
from eckart.matrix import Matrix
from eckart.scheduler import run_lanes


class NonnegativePrimitives(HalsPrimitives, KlPrimitives, ArrayParts):
    """The family ``parts`` on ``threads`` threads; numba is loaded when the first kernel is
    called."""

    @or_arrays(ArrayParts)
    def totals(self, x: Host | Matrix) -> Totals:
        x = place(x)
        lanes = lanes_of(
            Totals(0, 0.0, 0.0, 0.0, 0.0, np.zeros(x.shape[1]) if x.kind == "dense" else None),
            PARTS,
        )
        if x.kind == "dense":
            run_lanes(
                jobs(x.matrix, self._block(x, 8 * x.shape[1])),
                lanes,
                self._dense_totals(x),
                self.threads,
            )
        else:
            run_lanes(parts_of_entries(x, 32), lanes, self._stored_totals(x), self.threads)
        x.checked = True
        return reduce(Totals.merge, (lane[0] for lane in lanes))

    def _dense_totals(self, x: Host) -> Step:
        def step(lane: list[Totals], job: Job, scratch: dict[str, Any]) -> None:
            start, rows, fetch = job
            block = fetch(scratch)
            total = (block @ np.ones(block.shape[1], block.dtype)).astype(np.float64)
            _refuse_block(block, start, bool(np.isfinite(total).all()))
            w = np.ones(rows) if x.weights is None else x.weights[start : start + rows]
            square = float(w @ np.einsum("ij,ij->i", block, block))
            columns = (w.astype(block.dtype) @ block).astype(np.float64)
            weight = float(w.sum())
            lane[0] = lane[0].merge(
                Totals(rows, weight, weight * block.shape[1], float(w @ total), square, columns)
            )

        return step

    def _stored_totals(self, x: Host) -> Step:
        m = x.matrix

        def step(lane: list[Totals], part: tuple[int, int], scratch: dict[str, Any]) -> None:
            (first, last), ends = part, slice(m.indptr[part[0]], m.indptr[part[1]])
            a = m.data[ends].astype(np.float64)
            if len(a) and a.min() < 0:
                at = int(ends.start + np.argmax(a < 0))
                raise negative(
                    m.data[at],
                    int(np.searchsorted(m.indptr, at, side="right")) - 1,
                    int(m.indices[at]),
                )
            heavy = a if x.entry_weights is None else a * x.entry_weights[ends]
            counts, weight, cells = (
                np.diff(m.indptr[first : last + 1]),
                float(last - first),
                float(len(a)),
            )
            if x.weights is not None:
                w = x.weights[first:last]
                weight, cells, heavy = (
                    float(w.sum()),
                    float(w @ counts),
                    heavy * np.repeat(w, counts),
                )
            cells = cells if x.kind == "observed" else weight * x.shape[1]
            lane[0] = lane[0].merge(
                Totals(last - first, weight, cells, float(heavy.sum()), float(heavy @ a))
            )

        return step

    @or_arrays(ArrayParts)
    def square_error(self, x: Host | Matrix, left: np.ndarray, right: np.ndarray) -> float:
        x = place(x)
        u, v = np.ascontiguousarray(left, x.dtype), np.ascontiguousarray(right, x.dtype)
        if x.kind != "dense":
            return self._stored_error(x, u, v)
        lanes = [np.zeros(1) for _ in range(PARTS)]

        def step(total: np.ndarray, job: Job, scratch: dict[str, Any]) -> None:
            start, rows, fetch = job
            block, part = fetch(scratch), slice(start, start + rows)
            rest = np.matmul(
                u[part], v.T, out=scratch_array(scratch, "s", block.shape, block.dtype)
            )
            rest -= block
            square = np.einsum("ij,ij->i", rest, rest).astype(np.float64)
            total += square.sum() if x.weights is None else x.weights[part] @ square

        size = self._block(x, x.shape[1] * (u.shape[1] + 4), len(u))
        run_lanes(jobs(x.matrix, size), lanes, step, self.threads)
        return float(np.sum(lanes))

    def _stored_error(self, x: Host, u: np.ndarray, v: np.ndarray) -> float:
        from eckart.engines.cpu.parts.kernels import error_range

        entries, absent = entries_of(x, x.dtype), x.kind == "counts"
        rows = np.empty(0) if x.weights is None else x.weights
        parts = parts_of_entries(x, GATHER * u.shape[1])
        sums = np.zeros((max(1, len(parts)), 1))

        def step(total: np.ndarray, part: tuple[int, int], scratch: dict[str, Any]) -> None:
            total += error_range(entries, u, v, rows, absent, *part)

        run_lanes(parts, list(sums), step, self.threads)
        if not absent:
            return float(sums.sum())
        return float(
            sums.sum() + (self.factor_sums(u, x).square * self.factor_sums(v).square).sum()
        )


def _refuse_block(block: np.ndarray, first: int, finite: bool) -> None:
    if not finite:
        refuse_bad(block, first)
    refuse_negative(block, first)
