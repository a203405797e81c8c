"""Coordinate descent by rows (HALS) of non-negative factorization: of dense, stored and gappy
data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np

from eckart.engines.arrays.parts import ArrayParts
from eckart.engines.cpu.buffers import aligned_zeros, padded, real_columns
from eckart.engines.cpu.parts.ranges import (
    GATHER,
    POOL_GRAIN,
    Ranges,
    entries_of,
    parts_of_entries,
    register_width,
    weighted,
)
from eckart.engines.cpu.small import FEW, or_arrays, or_arrays_on_factor
from eckart.engines.host import Host, place
from eckart.engines.protocol import CrossSums, Descent, Pass
from eckart.engines.row_blocks import THIN, Job, block_rows, jobs, scratch_array
from eckart.loading import lazy
from eckart.matrix import Matrix
from eckart.scheduler import run_lanes

sparse = lazy("eckart.engines.cpu.entries.sparse")
pool = lazy("eckart.engines.cpu.native.pool")
products = lazy("eckart.engines.cpu.native.products")
kernels = lazy("eckart.engines.cpu.parts.kernels")
vectors = lazy("eckart.engines.cpu.registers.vectors")
schedule = lazy("eckart.engines.cpu.ridge.schedule")


class HalsPrimitives(Ranges):
    """Steps of the squared error."""

    @or_arrays_on_factor(ArrayParts, lambda gram, pull, factor, *_, **__: factor.size, FEW // 2)
    def hals_rows(
        self,
        gram: np.ndarray,
        pull: np.ndarray,
        start: np.ndarray,
        l1: float = 0.0,
        *,
        sweeps: int = 1,
        shrink: float = 0.0,
    ) -> Descent:
        u = np.ascontiguousarray(start)
        dtype, p = u.dtype, np.ascontiguousarray(pull, u.dtype)
        if p.shape != u.shape:  # the kernel reads both by the rows of one
            raise ValueError(f"pull is {p.shape}, start {u.shape}")
        g, low = np.ascontiguousarray(gram, dtype), dtype.type(l1)
        out, level, how = (
            np.empty_like(u),
            np.empty((len(u), 2)),
            (sweeps, float(shrink), vectors.tile_size(dtype)),
        )
        cuts = self._cuts(len(u), gram.size * (min(sweeps, 8) + 1), POOL_GRAIN)
        code = pool.address_of(kernels.hals_range, (g, p[:1], low, u[:1], out[:1], *how, level[:1]))
        pool.run_parts(
            kernels.descent_part,
            len(cuts) - 1,
            (cuts, code, g, p, low, u, out, how, level),
            self.threads,
        )
        return Descent(out, *weighted(level, None))

    @or_arrays(ArrayParts)
    def hals_pass(
        self,
        x: Host | Matrix,
        right: np.ndarray,
        left: np.ndarray,
        gram: np.ndarray,
        l1: float,
        *,
        sweeps: int = 1,
        shrink: float = 0.0,
    ) -> Pass:
        x = place(x)
        old, n, k = np.ascontiguousarray(left), x.shape[1], left.shape[1]
        out, inner, kind = np.empty_like(old), k * k * (min(sweeps, 8) + 1), old.dtype
        if x.kind == "counts":
            rows = old, out, np.empty((len(old), 2))
            return self._stored_pass(x, right, rows, _hals(gram, kind, l1, sweeps, shrink), inner)
        v, g = np.ascontiguousarray(right, kind), np.ascontiguousarray(gram, kind)
        weights = np.empty(0, kind) if x.weights is None else x.weights.astype(kind)
        rule, how = (g, kind.type(l1)), (sweeps, float(shrink), vectors.tile_size(kind))
        work, sweep, width = 2 * n * k + inner, cast(Any, kernels.hals_block), n * x.dtype.itemsize
        count = self._cross_lanes(x, k, work)
        # one block a lane where it fits a cache; the kernel works ``at_once`` rows of it at a time
        at_once = max(1, self._block(x, work, len(old)) // width)
        size = max(at_once, min(-(-len(old) // count), THIN // width)) * width

        def room(threads: int) -> tuple[np.ndarray, ...]:
            pull, heavy, pulled, square = (
                np.empty((threads, *shape), kind)
                for shape in ((at_once, k), (at_once, k), (n, k), (k, k))
            )
            return pull, np.empty((threads, at_once, 2)), heavy, pulled, square

        def partial() -> tuple[np.ndarray, ...]:
            return np.zeros((count, n, k), kind), np.zeros((count, k, k)), np.zeros((count, 2))

        values = x.matrix.values if x.checked else None
        if (
            type(values) is np.ndarray
            and values.dtype == kind
            and values.flags.c_contiguous
            and len(old)
        ):
            # kept between two passes: the system's pages would be asked for, and filled with zeros,
            # by all threads at once in each of them
            key = f"room of passes {count} {n} {k} {at_once} {self.threads} {kind}"
            if key not in x.kept:
                x.kept[key] = room(self.threads), partial()
            (own, sums), given = x.kept[key], (v, weights, *rule)
            like = tuple(a[0] for a in own), tuple(a[0] for a in sums)
            code = pool.address_of(
                kernels.hals_block, (values[:1], *given, old[:1], out[:1], *how, *like)
            )
            rows = block_rows(n, x.dtype.itemsize, size)
            pool.run_parts(
                kernels.lane_part,
                count,
                (code, rows, values, v, weights, rule, (old, out), how, own, sums),
                self.threads,
            )
        else:
            sums = partial()

            def step(own: tuple[np.ndarray, ...], job: Job, scratch: dict[str, Any]) -> None:
                start, rows, fetch = job
                block, part = np.ascontiguousarray(fetch(scratch), kind), slice(start, start + rows)
                if "room" not in scratch:
                    scratch["room"] = tuple(a[0] for a in room(1))
                sweep(
                    block, v, weights[part], *rule, old[part], out[part], *how, scratch["room"], own
                )

            run_lanes(jobs(x.matrix, size), list(zip(*sums)), step, self.threads)
        cross, squares, levels = sums
        level = levels.sum(axis=0)
        pulled = (
            products.added_up(cross.reshape(count, -1), self.threads).reshape(n, k).astype(kind)
        )
        return Pass(out, CrossSums(float(level[0]), float(level[1]), pulled, squares.sum(axis=0)))

    def _stored_pass(self, x: Host, right: np.ndarray, rows: Any, sweep: Any, inner: int) -> Pass:
        """hals_pass where zeros are not stored: products by rows, then by columns."""
        (old, out, level), m, k = rows, x.matrix, rows[0].shape[1]
        v, heavy = (
            aligned_zeros(right.shape, old.dtype),
            aligned_zeros(old.shape, old.dtype),
        )
        v[:] = right
        parts = parts_of_entries(x, GATHER * k, inner)
        squares = np.zeros((len(parts), k, k))

        def by_rows(square: np.ndarray, part: tuple[int, int], scratch: dict[str, Any]) -> None:
            a, b = part
            pull = scratch_array(scratch, "pull", (b - a, k), old.dtype)
            sparse.times_rows(m.indptr[a:], m.indices, m.data, v, 0, b - a, pull)
            sweep(pull, old[a:b], out[a:b], level[a:b])
            np.multiply(
                out[a:b],
                1 if x.weights is None else x.weights[a:b, None].astype(old.dtype),
                out=heavy[a:b],
            )
            square += out[a:b].T @ heavy[a:b]

        run_lanes(parts, list(squares), by_rows, self.threads)
        t = x.T.matrix
        cross = np.empty((t.shape[0], k), old.dtype)
        self._over_ranges(
            parts_of_entries(x.T, GATHER * k),
            lambda a, b: sparse.times_rows(t.indptr, t.indices, t.data, heavy, a, b, cross),
        )
        return Pass(out, CrossSums(*weighted(level, x.weights), cross, squares.sum(axis=0)))

    @or_arrays(ArrayParts)
    def hals_seen(
        self,
        x: Host | Matrix,
        other: np.ndarray,
        start: np.ndarray,
        *,
        l1: float = 0.0,
        l2: float = 0.0,
        sweeps: int = 1,
        shrink: float = 0.0,
    ) -> Descent:
        x, dtype, k = place(x), start.dtype, start.shape[1]
        wide, given = register_width(k, dtype), np.asarray(start)
        h, out = padded(other, wide, dtype), aligned_zeros((len(given), wide), dtype)
        entries, level, sweep_rows = (
            entries_of(x, dtype),
            np.zeros((len(out), 2)),
            cast(Any, kernels.seen_range),
        )
        rule, size = (
            (dtype.type(l1), dtype.type(l2), sweeps, float(shrink)),
            vectors.tile_size(dtype),
        )

        def step(_: Any, part: tuple[int, int], scratch: dict[str, Any]) -> None:
            if "room" not in scratch:
                scratch["room"] = [room[0] for room in schedule.row_scratch(h.shape[1], dtype)]
            sweep_rows(entries, h, given, out, k, rule, size, *part, *scratch["room"], level)

        parts = parts_of_entries(x, k * k // 2, k * k * (min(sweeps, 8) + 1))
        run_lanes(parts, [None] * max(1, len(parts)), step, self.threads)
        return Descent(real_columns(out, k), *weighted(level, x.weights))


def _hals(
    gram: np.ndarray, dtype: np.dtype, l1: float, sweeps: int, shrink: float
) -> Callable[..., None]:
    """hals_range of some rows: sweep(pull, start, out, level)."""
    g, size, low = np.ascontiguousarray(gram, dtype), vectors.tile_size(dtype), dtype.type(l1)
    return lambda pull, start, out, level: kernels.hals_range(
        g, pull, low, start, out, sweeps, float(shrink), size, level
    )
