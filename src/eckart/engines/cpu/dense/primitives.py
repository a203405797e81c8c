"""Rows against thin matrices on threads: the dense family of ``CpuEngine``.

Lanes follow the shape: as many as there are blocks, and as their partial sums have room for (see
``scheduler.lanes_for``).
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np

from eckart.engines.arrays.dense import ArrayDense, ArrayWhole, eigh_top
from eckart.engines.cpu.buffers import aligned_empty
from eckart.engines.cpu.dense import passes, thin
from eckart.engines.cpu.small import later, or_arrays
from eckart.engines.cpu.spread import by_rows
from eckart.engines.host import Host, place
from eckart.engines.protocol import ColumnMoments, Keeper, Moments
from eckart.engines.row_blocks import (
    ROOM,
    SQUARE,
    Job,
    block_count,
    block_rows,
    even_rows,
    jobs,
    partial_sums,
    product_rows,
    watched_jobs,
)
from eckart.loading import lazy
from eckart.matrix import Counts, Dense, Matrix
from eckart.scheduler import lanes_for, run_lanes
from eckart.trace import Watcher, silent

sparse_rows = lazy("eckart.engines.cpu.entries.sparse")
tiles = lazy("eckart.engines.cpu.entries.tiles")


def _block_moments(engine: Any, x: Host) -> ColumnMoments:
    """Moments of the columns of some rows; those of counts in one pass over what is stored."""
    if x.kind != "counts":
        return ArrayDense.column_moments(engine, x)
    m, w = x.matrix, np.empty(0) if x.weights is None else x.weights
    rows = m.shape[0]
    total, square = np.zeros((2, m.shape[1]))
    sparse_rows.column_sums_rows(m.indptr, m.indices, m.data, w, 0, rows, total, square)
    weight = float(rows) if x.weights is None else float(w.sum())
    mean = total / weight if weight > 0 else total
    return ColumnMoments(rows, weight, mean, np.maximum(square - weight * mean**2, 0.0))


SEGMENT = 16
"""Blocks a lane between two points at which the state of a pass can be kept."""


def _is_dense(_: Any, x: Host, *__: Any, **___: Any) -> bool:
    """Whether the pass can keep its state between blocks: few dense ones need no compiler either,
    and a fit that goes on has the bits of one that keeps nothing."""
    return x.kind == "dense"


class DensePrimitives(ArrayDense, ArrayWhole):
    """Dense and sparse rows against thin matrices."""

    # Time of arrays (SciPy) over that of kernels for sparse rows, 5,000,000 entries of 50,000 x
    # 100,000, 40 columns, float64, one thread of an AMD EPYC: times 2.7, times_t 1.6, gram_times 7;
    # where V stays in a cache (5,000 x 16) .6 to .9.
    threads: int

    @or_arrays(ArrayDense, unless=_is_dense)
    def moments(
        self,
        x: Matrix | Host,
        probe: np.ndarray,
        watch: Watcher = silent,
        keeper: Keeper | None = None,
    ) -> Moments:
        x = place(x)
        n, size = x.shape[1], x.dtype.itemsize
        # two blocks a lane: every one costs a pass over its lane's sum
        rows = even_rows(
            x.shape[0],
            block_rows(n, size, SQUARE),
            1024,
            min(64, 2 * lanes_for(64, 8 * n * n, ROOM)),
        )
        blocks = -(-x.shape[0] // rows) if x.shape[0] else 0
        count, apart = lanes_for(blocks or 64, 8 * n * n, ROOM), passes.means_stand_out(x, blocks)
        lanes = [
            passes.MomentsLane(
                Moments(0, 0.0, np.zeros(n), scatter, probe, np.zeros(n)),
                x.weights,
                x.dtype,
                blocks,
                apart,
            )
            for scatter in partial_sums(count, (n, n))
        ]
        done = passes.restore_lanes(lanes, keeper.load() if keeper else None)
        # the step looks at every block itself
        work = itertools.islice(
            watched_jobs(replace(x, checked=True), watch, rows=rows), done, None
        )
        while True:
            segment = _Counted(itertools.islice(work, SEGMENT * count))
            run_lanes(segment, lanes, passes.moments_step, self.threads)
            if segment.count == 0:
                break
            # at the end of every segment, kept or not, so that a resumed run has the same bits
            run_lanes(
                range(len(lanes)), lanes, lambda lane, at, scratch: lane.flush(), self.threads
            )
            done += segment.count
            if keeper:
                keeper.save(done, passes.lanes_state(lanes))
        x.checked = True
        return passes.merge_lanes(lanes, self.threads)

    @or_arrays(ArrayDense)
    def times(self, x: Matrix | Host, v: np.ndarray, mean: np.ndarray | None) -> np.ndarray:
        x = place(x)
        v = self._thin(x, v)
        if x.kind == "counts":
            m = x.matrix
            out = np.empty((m.shape[0], v.shape[1]), x.dtype)
            self._over_rows(
                m, lambda a, b: sparse_rows.times_rows(m.indptr, m.indices, m.data, v, a, b, out)
            )
            return out if mean is None else np.subtract(out, (mean @ v).astype(x.dtype), out=out)
        if x.shape[0] is None:
            return np.concatenate(
                [self.times(Host(Dense(f({})), checked=True), v, mean) for _, _, f in jobs(x)]
            )
        out = np.empty((x.shape[0], v.shape[1]), x.dtype)
        self._pass(x, passes.times_step, lambda _: passes.ProductLane(out, v, _cast(mean, x.dtype)))
        return out if mean is None else _finer_mean(out, v, mean)

    @or_arrays(ArrayDense)
    def times_t(self, x: Matrix | Host, y: np.ndarray, mean: np.ndarray | None) -> np.ndarray:
        x = place(x)
        y = np.ascontiguousarray(y, dtype=x.dtype)
        shape = (x.shape[1], y.shape[1])
        if x.kind == "counts":
            m = x.matrix

            def work(a: int, b: int, total: np.ndarray) -> None:
                sparse_rows.times_t_rows(m.indptr, m.indices, m.data, y, a, b, total)

            total = self._sum_over_rows(m, shape, work)
            return (
                total
                if mean is None
                else (total - np.outer(mean, y.sum(axis=0, dtype=np.float64))).astype(x.dtype)
            )
        return self._dense_sum(x, passes.times_t_step, shape, y, mean, None)

    @or_arrays(ArrayDense)
    def gram_times(
        self,
        x: Matrix | Host,
        v: np.ndarray,
        mean: np.ndarray | None,
        weights: np.ndarray | None = None,
        implicit: bool = False,
        rough: bool = False,
    ) -> np.ndarray:
        kept = isinstance(x, Host)
        x = place(x, weights)
        if x.kind == "observed" and mean is not None:
            x = _centered(x, mean)
        v = self._thin(x, v)
        if x.kind == "dense":
            w = _cast(x.weights, x.dtype)
            if implicit and mean is not None:
                return self._implicit_gram_times(x, v, mean, w)
            return self._dense_sum(x, passes.gram_times_step, v.shape, v, mean, w)
        w = np.empty(0, x.dtype) if x.weights is None else np.asarray(x.weights, x.dtype)
        total = self._sparse_gram_times(x, v, w, kept)
        if x.kind == "counts" and mean is not None:
            weight = (
                float(x.matrix.shape[0])
                if x.weights is None
                else float(np.sum(x.weights, dtype=np.float64))
            )
            total = thin.outer(
                (-weight * mean).astype(x.dtype)[:, None],
                (mean.astype(x.dtype) @ v)[None],
                total,
                1.0,
                self.threads,
            )
        return total

    def _implicit_gram_times(
        self, x: Host, v: np.ndarray, mean: np.ndarray, weights: Any
    ) -> np.ndarray:
        """The same without a centered copy of each block."""
        offset = (mean @ v).astype(x.dtype)
        lanes = self._pass(
            x,
            passes.raw_gram_times_step,
            lambda total: passes.ProductLane(total, v, None, weights, offset),
            v.shape,
        )
        total = thin.tree_sum([lane.total for lane in lanes], self.threads)
        sums = np.sum([lane.sums + np.zeros(v.shape[1]) for lane in lanes], axis=0)
        return thin.outer(mean[:, None].astype(x.dtype), -sums[None], total, 1.0, self.threads)

    def _sparse_gram_times(self, x: Host, v: np.ndarray, w: np.ndarray, kept: bool) -> np.ndarray:
        """A^T diag(w) A V by the kernel that fits: one vector, tiles (laid out once, for a matrix
        that was put), or plain rows."""
        m = x.matrix
        if v.shape[1] >= 4 and kept:
            if "tiles" not in x.kept:
                x.kept["tiles"] = tiles.in_tiles(m, self.threads)
            if x.kept["tiles"] is not None:
                return tiles.gram_times(x.kept["tiles"], v, w, self.threads)

        def work(a: int, b: int, total: np.ndarray) -> None:
            if v.shape[1] == 1:
                sparse_rows.gram_times_vector_rows(
                    m.indptr, m.indices, m.data, v[:, 0], w, a, b, total[:, 0]
                )
            else:
                sparse_rows.gram_times_rows(m.indptr, m.indices, m.data, v, w, a, b, total)

        return self._sum_over_rows(m, v.shape, work)

    def row_gram(self, x: Matrix | Host, mean: np.ndarray | None) -> np.ndarray:
        x = place(x)
        rows, n = x.shape
        assert rows is not None
        width = max(1, 2**22 // max(1, rows * x.dtype.itemsize))
        sparse = x.kind == "counts"
        columns: Any = x.matrix.to_scipy().tocsc() if sparse else x.matrix.array

        def step(total: np.ndarray, first: int, scratch: dict) -> None:
            part = columns[:, first : first + width]
            part = np.asarray(part.toarray() if sparse else part, x.dtype)
            part = part - (0 if mean is None else mean[first : first + width].astype(x.dtype))
            total += part @ part.T

        lanes = partial_sums(lanes_for(-(-n // width), rows * rows * 8, ROOM), (rows, rows))
        run_lanes(range(0, n, width), lanes, step, self.threads)
        return thin.tree_sum(lanes, self.threads).copy()

    misfit = by_rows(ArrayDense, "misfit")
    # counts by a kernel: 1.9 times as fast as the array body, 24 M entries, two AVX-512 cores
    column_moments = by_rows(
        ArrayDense, "column_moments", lambda x, **_: 2 * x.shape[1], kernel=_block_moments
    )
    largest = by_rows(ArrayWhole, "largest")
    orth = later("dense.linear", "orth")
    covariance = later("dense.linear", "covariance")
    is_below = later("dense.linear", "is_below")
    inner = later("dense.thin", "inner")
    outer = later("dense.thin", "outer")
    triangle = later("dense.thin", "triangle")
    write_columns = later("dense.thin", "write_columns")
    eigh_top = staticmethod(eigh_top)

    def entries(self, x: Matrix | Host) -> np.ndarray:
        x = place(x)
        if x.shape[0] is None:
            blocks = [np.array(fetch({})) for _, _, fetch in jobs(x)]
            return np.concatenate(blocks) if blocks else np.empty((0, x.shape[1]), x.dtype)
        out = np.empty(x.matrix.shape, x.dtype)

        def step(_: None, job: Job, scratch: dict) -> None:
            out[job[0] : job[0] + job[1]] = job[2](scratch)

        run_lanes(jobs(x), [None] * 64, step, self.threads)
        x.checked = True
        return out

    @staticmethod
    def _thin(x: Host, v: np.ndarray) -> np.ndarray:
        """V in working precision; for sparse products its rows start on cache lines."""
        if x.kind == "dense" or v.shape[1] == 1:
            return np.ascontiguousarray(v, dtype=x.dtype)
        out = aligned_empty(v.shape, x.dtype)
        out[:] = v
        return out

    def _pass(self, x: Host, step: Any, lane: Any, shape: tuple[int, int] = (0, 0)) -> list[Any]:
        """One pass over dense rows; the lanes with what they found. ``lane`` makes one from zeros
        of a shape."""
        rows = product_rows(x)
        count = lanes_for(
            block_count(x.shape[0], rows), shape[0] * shape[1] * x.dtype.itemsize, ROOM
        )
        lanes = [lane(total) for total in np.empty((count, *shape), x.dtype)]
        run_lanes(jobs(x, rows=rows), lanes, step, self.threads)
        x.checked = True
        for empty in (lane for lane in lanes if lane.total.shape == shape and not lane.has_rows):
            empty.total[:] = 0
        return lanes

    def _dense_sum(
        self, x: Host, step: Any, shape: tuple[int, int], v: np.ndarray, mean: Any, weights: Any
    ) -> np.ndarray:
        center = _cast(mean, x.dtype)
        lanes = self._pass(
            x, step, lambda total: passes.ProductLane(total, v, center, weights), shape
        )
        return thin.tree_sum([lane.total for lane in lanes], self.threads).copy()

    def _over_rows(self, m: Any, work: Any) -> None:
        parts = sparse_rows.balanced(m.indptr, 128)
        run_lanes(parts, [None] * len(parts), lambda _, part, scratch: work(*part), self.threads)

    def _sum_over_rows(self, m: Counts, shape: tuple[int, int], work: Any) -> np.ndarray:
        count = lanes_for(m.nnz // 2**14, shape[0] * shape[1] * m.dtype.itemsize, ROOM)
        lanes, parts = (
            [aligned_empty(shape, m.dtype) for _ in range(count)],
            sparse_rows.balanced(m.indptr, count),
        )
        for total in lanes[len(parts) :]:
            total[:] = 0

        def step(total: np.ndarray, part: tuple[int, int], scratch: dict) -> None:
            total[:] = 0
            work(*part, total)

        run_lanes(parts, lanes, step, self.threads)
        return thin.tree_sum(lanes, self.threads)


def _centered(x: Host, mean: np.ndarray) -> Host:
    """Observed entries with the column means taken off, made once for these means."""
    held = x.kept.get("centered")
    if held is None or not np.array_equal(held[0], mean):
        m = x.matrix
        held = x.kept["centered"] = (
            mean,
            Host(replace(m, data=m.data - mean[m.indices]), x.weights, checked=True),
        )
    return held[1]


class _Counted:
    """An iterator that knows how many items it has given."""

    def __init__(self, items: Any):
        self.items, self.count = items, 0

    def __iter__(self) -> Any:
        for item in self.items:
            self.count += 1
            yield item


def _cast(a: np.ndarray | None, dtype: np.dtype) -> np.ndarray | None:
    return None if a is None else np.asarray(a, dtype)


def _finer_mean(out: np.ndarray, v: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Take off what was lost when the mean was rounded to working precision."""
    lost = np.zeros(v.shape[1])
    for first in range(0, len(mean), passes.SLAB):
        near = mean[first : first + passes.SLAB]
        lost += (near - near.astype(out.dtype)) @ v[first : first + passes.SLAB]
    return np.subtract(out, lost.astype(out.dtype), out=out) if lost.any() else out
