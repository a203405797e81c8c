"""The primitives of non-negative factorization, as part of ``CpuEngine``: ranges of rows on lanes, sums over rows merged in a fixed order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import Any, cast

import numpy as np

from eckart.engines.cpu.row_blocks import THIN, Job, jobs, scratch_array
from eckart.engines.host import Host, place
from eckart.engines.protocol import CrossSums, Descent, FactorSums, KlRule, KlSums, Pass, SignSums, Totals, refuse_bad
from eckart.errors import InputError
from eckart.matrix import Counts, Dense, Matrix
from eckart.scheduler import lanes_for, run_lanes

GRAIN = 2**22
"""Multiply-adds in a part: about a millisecond, so that handing it to a thread costs little against it."""
GATHER = 4
"""Multiply-adds with gathered rows take about so many times as long as those of a dense product."""
PARTS = 128
"""Parts at the most: two for each of 64 threads."""
FEWEST = 128
"""Rows of a dense block at the least: shorter products with the other factor run far below the speed of longer ones."""
LEAST = 1e-10
"""Share of a row below which a multiplicative step does not take a component, so that it can come back."""
TINY = 1e-37
"""Denominators at the least: above it a float32 is normal."""

Step = Callable[[Any, Any, dict[str, Any]], None]


class NonnegativePrimitives:
    """The family ``parts`` on ``threads`` threads; numba is loaded when the first kernel is called."""

    threads: int

    def totals(self, x: Host | Matrix) -> Totals:
        x = place(x)
        lanes = _lanes(Totals(0, 0.0, 0.0, 0.0, 0.0, np.zeros(x.shape[1]) if x.kind == "dense" else None), PARTS)
        if x.kind == "dense":
            run_lanes(jobs(x.matrix, self._block(x, 8 * x.shape[1])), lanes, self._dense_totals(x), self.threads)
        else:
            run_lanes(_parts_of(x, 32), lanes, self._stored_totals(x), self.threads)
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
            lane[0] = lane[0].merge(Totals(rows, weight, weight * block.shape[1], float(w @ total), square, columns))

        return step

    def _stored_totals(self, x: Host) -> Step:
        m = x.matrix

        def step(lane: list[Totals], part: tuple[int, int], scratch: dict[str, Any]) -> None:
            (first, last), ends = part, slice(m.indptr[part[0]], m.indptr[part[1]])
            a = m.data[ends].astype(np.float64)
            if len(a) and a.min() < 0:
                at = int(ends.start + np.argmax(a < 0))
                raise _negative(m.data[at], int(np.searchsorted(m.indptr, at, side="right")) - 1, int(m.indices[at]))
            heavy = a if x.entry_weights is None else a * x.entry_weights[ends]
            counts, weight, cells = np.diff(m.indptr[first : last + 1]), float(last - first), float(len(a))
            if x.weights is not None:
                w = x.weights[first:last]
                weight, cells, heavy = float(w.sum()), float(w @ counts), heavy * np.repeat(w, counts)
            cells = cells if x.kind == "observed" else weight * x.shape[1]
            lane[0] = lane[0].merge(Totals(last - first, weight, cells, float(heavy.sum()), float(heavy @ a)))

        return step

    def zero_filled(self, x: Host | Matrix) -> Host:
        x = place(x)
        m = x.matrix
        if x.kind != "observed":
            return x
        return replace(x, matrix=Counts(m.indptr, m.indices, m.data, m.n_columns), kept={})

    def as_rows(self, tall: np.ndarray, x: Host | Matrix) -> Host:
        return Host(Dense(tall), place(x).weights, checked=True)

    def factor_mass(self, factor: np.ndarray, x: Host | Matrix | None = None) -> np.ndarray:
        f, weights = np.asarray(factor), None if x is None else place(x).weights

        def mass(a: int, b: int) -> np.ndarray:
            return f[a:b].sum(axis=0, dtype=np.float64) if weights is None else weights[a:b] @ f[a:b]

        return reduce(np.add, self._each(len(f), 32 * f.shape[1], mass), np.zeros(f.shape[1]))

    def factor_sums(self, factor: np.ndarray, x: Host | Matrix | None = None) -> FactorSums:
        f, weights, k = np.asarray(factor), None if x is None else place(x).weights, factor.shape[1]
        none = FactorSums(np.zeros(k), np.zeros((k, k)), np.inf, np.full(k, -np.inf))

        def sums(a: int, b: int) -> FactorSums:
            part = f[a:b]
            heavy = part if weights is None else part * weights[a:b, None].astype(part.dtype)
            most = part.max(axis=0, initial=-np.inf).astype(np.float64)
            square = (part.T @ heavy).astype(np.float64)
            return FactorSums(heavy.sum(axis=0, dtype=np.float64), square, float(part.min(initial=np.inf)), most)

        return reduce(FactorSums.merge, self._each(len(f), k * (k + 8), sums), none)

    def sign_sums(self, factor: np.ndarray, x: Host | Matrix | None = None) -> SignSums:
        f, weights, k = np.asarray(factor), None if x is None else place(x).weights, factor.shape[1]

        def sums(a: int, b: int) -> SignSums:
            parts = [np.maximum(sign * f[a:b].astype(np.float64), 0) for sign in (1, -1)]
            squares = [np.einsum("ij,ij->j", p, p if weights is None else weights[a:b, None] * p) for p in parts]
            return SignSums(np.array(squares), np.array([p.max(axis=0, initial=0.0) for p in parts]))

        return reduce(SignSums.merge, self._each(len(f), 16 * k, sums), SignSums(*np.zeros((2, 2, k))))

    def rectified(self, factor: np.ndarray, scale: np.ndarray, least: float = 0.0, fill: float = 0.0) -> np.ndarray:
        s = scale.astype(factor.dtype)

        def rows(a: int, b: int, out: np.ndarray) -> None:
            np.multiply(factor[a:b], s, out=out)
            out[~(out > factor.dtype.type(least))] = fill

        return self._mapped(factor, rows)

    def projected_rows(self, pull: np.ndarray, inverse: np.ndarray, l1: float) -> np.ndarray:
        def rows(a: int, b: int, out: np.ndarray) -> None:
            np.maximum((pull[a:b].astype(np.float64) - l1) @ inverse, 0, out=out, casting="same_kind")

        return self._mapped(pull, rows)

    def leap(self, new: np.ndarray, old: np.ndarray, stride: float) -> np.ndarray:
        u, v, dtype = _whole(new), _whole(old), new.dtype
        if u.shape != v.shape:
            u, v = np.asarray(new), np.asarray(old)

        def rows(a: int, b: int, out: np.ndarray) -> None:
            np.subtract(u[a:b], v[a:b], out=out)
            out *= dtype.type(stride)
            out += u[a:b]
            np.maximum(out, 0, out=out)

        return _real(self._mapped(u, rows), new.shape[1])

    def cleaned(self, factor: np.ndarray, mass: np.ndarray, share: float) -> np.ndarray:
        f, heavy = np.asarray(factor), mass.astype(factor.dtype)

        def rows(a: int, b: int, out: np.ndarray) -> None:
            np.multiply(f[a:b], heavy, out=out)
            small = ~(out > share * out.sum(axis=1, keepdims=True))
            out[:] = f[a:b]
            out[small] = 0

        return self._mapped(f, rows)

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
        p, sweep = np.ascontiguousarray(pull, u.dtype), _hals(gram, u.dtype, l1, sweeps, shrink)
        out, level = np.empty_like(u), np.empty((len(u), 2))
        self._each(len(u), gram.size * (min(sweeps, 8) + 1), lambda a, b: sweep(p[a:b], u[a:b], out[a:b], level[a:b]))
        return Descent(out, *_weighted(level, None))

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
        old, n, k, weights = np.ascontiguousarray(left), x.shape[1], left.shape[1], x.weights
        out, level, sweep = np.empty_like(old), np.empty((len(old), 2)), _hals(gram, old.dtype, l1, sweeps, shrink)
        inner = k * k * (min(sweeps, 8) + 1)
        if x.kind == "counts":
            return self._stored_pass(x, right, (old, out, level), sweep, inner)
        v = np.ascontiguousarray(right, old.dtype)

        def step(lane: _CrossLane, job: Job, scratch: dict[str, Any]) -> None:
            start, rows, fetch = job
            block, part = fetch(scratch), slice(start, start + rows)
            pull = np.matmul(block, v, out=scratch_array(scratch, "pull", (rows, k), old.dtype))
            w = out[part]
            sweep(pull, old[part], w, level[part])
            lane.take(block, w, None if weights is None else weights[part], scratch)

        lanes = self._cross_lanes(x, k, 2 * n * k + inner)
        run_lanes(jobs(x.matrix, self._block(x, 2 * n * k + inner, len(old))), lanes, step, self.threads)
        square = reduce(np.add, (lane.square for lane in lanes))
        return Pass(out, CrossSums(*_weighted(level, weights), self._tree([lane.total for lane in lanes]), square))

    def _stored_pass(self, x: Host, right: np.ndarray, rows: Any, sweep: Any, inner: int) -> Pass:
        """hals_pass where zeros are not stored: products by rows, then by columns."""
        from eckart.engines.cpu.entries.sparse import times_rows
        from eckart.engines.cpu.registers.prefetch import aligned_zeros

        (old, out, level), m, k = rows, x.matrix, rows[0].shape[1]
        v, heavy = aligned_zeros(right.shape, old.dtype), aligned_zeros(old.shape, old.dtype)
        v[:] = right
        parts = _parts_of(x, GATHER * k, inner)
        squares = np.zeros((len(parts), k, k))

        def by_rows(square: np.ndarray, part: tuple[int, int], scratch: dict[str, Any]) -> None:
            a, b = part
            pull = scratch_array(scratch, "pull", (b - a, k), old.dtype)
            times_rows(m.indptr[a:], m.indices, m.data, v, 0, b - a, pull)
            sweep(pull, old[a:b], out[a:b], level[a:b])
            np.multiply(out[a:b], 1 if x.weights is None else x.weights[a:b, None].astype(old.dtype), out=heavy[a:b])
            square += out[a:b].T @ heavy[a:b]

        run_lanes(parts, list(squares), by_rows, self.threads)
        t = x.T.matrix
        cross = np.empty((t.shape[0], k), old.dtype)
        self._over_ranges(
            _parts_of(x.T, GATHER * k), lambda a, b: times_rows(t.indptr, t.indices, t.data, heavy, a, b, cross)
        )
        return Pass(out, CrossSums(*_weighted(level, x.weights), cross, squares.sum(axis=0)))

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
        from eckart.engines.cpu.parts.kernels import seen_range
        from eckart.engines.cpu.registers.tiles import tile_size
        from eckart.engines.cpu.ridge.schedule import _scratch

        x, dtype, k = place(x), start.dtype, start.shape[1]
        h, given, out = padded(other, dtype), np.asarray(start), _new(len(start), k, dtype)
        entries, level, sweep_rows = _entries(x, dtype), np.zeros((len(out), 2)), cast(Any, seen_range)
        rule, size = (dtype.type(l1), dtype.type(l2), sweeps, float(shrink)), tile_size(dtype)

        def step(_: Any, part: tuple[int, int], scratch: dict[str, Any]) -> None:
            chunk, gram = _scratch(scratch, h.shape[1], dtype)
            sweep_rows(entries, h, given, out, k, rule, size, *part, chunk, gram, level)

        parts = _parts_of(x, k * k // 2, k * k * (min(sweeps, 8) + 1))
        run_lanes(parts, [None] * max(1, len(parts)), step, self.threads)
        return Descent(_real(out, k), *_weighted(level, x.weights))

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
        dtype, k = start.dtype, start.shape[1]
        if x.kind == "dense" and not rule.tol:
            return self._dense_kl(x, other, start, rule, mass, steps)
        h, given, out = padded(other, dtype), np.asarray(start), _new(len(start), k, dtype)
        level, work = np.zeros((len(out), 2)), 2 * k * (min(steps, 8) + 1)
        step_rows = _kl(h, np.zeros(0, dtype) if x.kind == "observed" else mass.astype(dtype), k, rule, steps)
        if x.kind == "dense":  # each row stops on its own, so it goes by its entries > 0
            rows = self._stored_blocks(x, step_rows, given, out, level)
            run_lanes(jobs(x.matrix, self._block(x, work * x.shape[1], len(out))), [None] * PARTS, rows, self.threads)
        else:
            entries = _entries(x, dtype)
            self._over_ranges(_parts_of(x, GATHER * work), lambda a, b: step_rows(entries, given, out, a, b, level))
        return Descent(_real(out, k), *_weighted(level, x.weights))

    def _stored_blocks(self, x: Host, step_rows: Any, given: Any, out: Any, level: Any) -> Step:
        from eckart.engines.cpu.parts.kernels import stored_rows

        def step(_: Any, job: Job, scratch: dict[str, Any]) -> None:
            start, rows, fetch = job
            block, part = fetch(scratch), slice(start, start + rows)
            indptr, indices = np.empty(rows + 1, np.int64), scratch_array(scratch, "j", (block.size,), np.int32)
            data = scratch_array(scratch, "a", (block.size,), block.dtype)
            stored_rows(block, indptr, indices, data)
            entries = indptr, indices, data, np.empty(0, block.dtype)
            step_rows(entries, given[part], out[part], 0, rows, level[part])

        return step

    def _dense_kl(
        self, x: Host, right: np.ndarray, left: np.ndarray, rule: KlRule, mass: np.ndarray, steps: int
    ) -> Descent:
        """kl_rows where every entry is there: blocks of rows by products with the other factor."""
        out, level, v = np.array(left, order="C"), np.empty((len(left), 2)), np.asarray(right)

        def step(_: Any, job: Job, scratch: dict[str, Any]) -> None:
            start, rows, fetch = job
            block, part = fetch(scratch), slice(start, start + rows)
            totals = block.sum(axis=1, dtype=np.float64)
            out[part] = _floored(out[part].astype(np.float64), mass, totals, rule)
            for s in range(steps):
                ratio, values = _ratios(block, out[part], v, scratch, s == 0)
                out[part], own, gap = _multiplied(out[part], ratio @ v, mass, totals, rule)
                if s == 0:
                    level[part, 0], level[part, 1] = values + own, gap

        work = 2 * steps * x.shape[1] * (v.shape[1] + 16)
        run_lanes(jobs(x.matrix, self._block(x, work, len(out))), [None] * PARTS, step, self.threads)
        return Descent(out, *_weighted(level, x.weights))

    def kl_sums(self, x: Host | Matrix, left: np.ndarray, right: np.ndarray, valued: bool = True) -> KlSums:
        x = place(x)
        u, v, k = np.asarray(left), np.asarray(right), left.shape[1]

        def step(lane: _CrossLane, job: Job, scratch: dict[str, Any]) -> None:
            start, rows, fetch = job
            part = slice(start, start + rows)
            w = None if x.weights is None else x.weights[part]
            ratio, values = _ratios(fetch(scratch), u[part], v, scratch, valued)
            lane.value += float(values.sum() if w is None else values @ w)
            lane.take(ratio, u[part], w, scratch)

        work = 2 * x.shape[1] * (k + 16)
        lanes = self._cross_lanes(x, k, work)
        run_lanes(jobs(x.matrix, self._block(x, work, len(u))), lanes, step, self.threads)
        return KlSums(self._tree([lane.total for lane in lanes]), float(sum(lane.value for lane in lanes)))

    def kl_step(self, right: np.ndarray, sums: KlSums, mass: np.ndarray, totals: np.ndarray, rule: KlRule) -> Descent:
        out, level = np.empty_like(right), np.empty((len(right), 2))

        def rows(a: int, b: int) -> None:
            out[a:b], level[a:b, 0], level[a:b, 1] = _multiplied(right[a:b], sums.up[a:b], mass, totals[a:b], rule)

        self._each(len(right), 32 * right.shape[1], rows)
        value, kkt = _weighted(level, None)
        return Descent(out, sums.value + value, kkt)

    def square_error(self, x: Host | Matrix, left: np.ndarray, right: np.ndarray) -> float:
        x = place(x)
        u, v = np.ascontiguousarray(left, x.dtype), np.ascontiguousarray(right, x.dtype)
        if x.kind != "dense":
            return self._stored_error(x, u, v)
        lanes = [np.zeros(1) for _ in range(PARTS)]

        def step(total: np.ndarray, job: Job, scratch: dict[str, Any]) -> None:
            start, rows, fetch = job
            block, part = fetch(scratch), slice(start, start + rows)
            rest = np.matmul(u[part], v.T, out=scratch_array(scratch, "s", block.shape, block.dtype))
            rest -= block
            square = np.einsum("ij,ij->i", rest, rest).astype(np.float64)
            total += square.sum() if x.weights is None else x.weights[part] @ square

        size = self._block(x, x.shape[1] * (u.shape[1] + 4), len(u))
        run_lanes(jobs(x.matrix, size), lanes, step, self.threads)
        return float(np.sum(lanes))

    def _stored_error(self, x: Host, u: np.ndarray, v: np.ndarray) -> float:
        from eckart.engines.cpu.parts.kernels import error_range

        entries, absent = _entries(x, x.dtype), x.kind == "counts"
        rows = np.empty(0) if x.weights is None else x.weights
        parts = _parts_of(x, GATHER * u.shape[1])
        sums = np.zeros((max(1, len(parts)), 1))

        def step(total: np.ndarray, part: tuple[int, int], scratch: dict[str, Any]) -> None:
            total += error_range(entries, u, v, rows, absent, *part)

        run_lanes(parts, list(sums), step, self.threads)
        if not absent:
            return float(sums.sum())
        return float(sums.sum() + (self.factor_sums(u, x).square * self.factor_sums(v).square).sum())

    def _each(self, rows: int, work: int, do: Callable[[int, int], Any]) -> list[Any]:
        """``do(first, last)`` over ranges of rows with so many multiply-adds each; the answers in order."""
        count = int(np.clip(rows * work // GRAIN, 1, PARTS))
        size = -(-max(1, -(-rows // count)) // 64) * 64  # whole tiles of every width
        parts = [(a, min(a + size, rows)) for a in range(0, rows, size)]
        answers: list[Any] = [None] * len(parts)

        def step(_: Any, at: int, scratch: dict[str, Any]) -> None:
            answers[at] = do(*parts[at])

        run_lanes(range(len(parts)), [None] * max(1, len(parts)), step, self.threads)
        return answers

    def _over_ranges(self, parts: list[tuple[int, int]], do: Callable[[int, int], Any]) -> None:
        run_lanes(parts, [None] * max(1, len(parts)), lambda _, part, scratch: do(*part), self.threads)

    def _mapped(self, factor: np.ndarray, rows: Callable[[int, int, np.ndarray], None]) -> np.ndarray:
        """A new array of the same shape, filled by ranges of rows."""
        out = np.empty(factor.shape, factor.dtype)
        self._each(len(factor), 32 * factor.shape[1], lambda a, b: rows(a, b, out[a:b]))  # bound by memory, not by sums
        return out

    def _block(self, x: Host, work: int, rows: int | None = None) -> int:
        """Bytes of a block whose rows take ``work`` multiply-adds each: two grains, but few enough blocks, long enough ones, and none larger than a cache."""
        rows, width = rows or x.shape[0], x.shape[1] * x.dtype.itemsize
        if not rows:
            return THIN
        count = int(np.clip(rows * work // (2 * GRAIN), 1, 2 * PARTS))
        return int(min(max(FEWEST, -(-rows // count)) * width, THIN))

    def _cross_lanes(self, x: Host, k: int, work: int) -> list[_CrossLane]:
        """Lanes with partial sums n x k, which together take no more than an eighth of the data (or 64 MB): more would cost more than it gains."""
        rows, n = x.shape[0], x.shape[1]
        blocks = MANY if not rows else -(-rows * n * x.dtype.itemsize // self._block(x, work))
        room = max(2**26, (rows or 0) * n * x.dtype.itemsize // 8)
        count = lanes_for(blocks, n * k * x.dtype.itemsize, room)
        return [_CrossLane(n, k, x.dtype) for _ in range(count)]

    def _tree(self, parts: list[np.ndarray]) -> np.ndarray:
        """The sum of partial sums, pairwise in a fixed order, by ranges of rows; the first of them is overwritten."""

        def add(a: int, b: int) -> None:
            step = 1
            while step < len(parts):
                for i in range(0, len(parts) - step, 2 * step):
                    parts[i][a:b] += parts[i + step][a:b]
                step *= 2

        self._each(len(parts[0]), len(parts) * parts[0].shape[1] * 2, add)
        return parts[0]


MANY = 2**10
"""Blocks of a stream of unknown length."""


class _CrossLane:
    """A^T D W and W^T D W of the rows of one lane."""

    def __init__(self, n: int, k: int, dtype: Any):
        self.total, self.square, self.value = np.zeros((n, k), dtype), np.zeros((k, k)), 0.0

    def take(self, block: np.ndarray, w: np.ndarray, weights: np.ndarray | None, scratch: dict[str, Any]) -> None:
        heavy = w if weights is None else w * weights[:, None].astype(w.dtype)
        out = scratch_array(scratch, "cross", self.total.shape, self.total.dtype)
        self.total += np.matmul(block.T, heavy, out=out)
        self.square += w.T @ heavy


class _Wide(np.ndarray):
    """The first k columns of ``whole``, whose other columns, up to whole registers, are zero: what the kernels of sparse data return and take again
    without a copy. A view of it has no ``whole``, so nothing can be mistaken for one."""

    whole: np.ndarray | None = None


def _new(rows: int, k: int, dtype: np.dtype) -> np.ndarray:
    """Zeros for k columns and those that fill up registers."""
    from eckart.engines.cpu.registers.prefetch import aligned_zeros
    from eckart.engines.cpu.registers.tiles import tile_size

    size = tile_size(dtype)
    return aligned_zeros((rows, -(-max(1, k) // size) * size), dtype)


def _real(whole: np.ndarray, k: int) -> np.ndarray:
    """The k real columns of an array of whole registers."""
    if whole.shape[1] == k:
        return whole
    out = whole[:, :k].view(_Wide)
    out.whole = whole
    return out


def _whole(factor: np.ndarray) -> np.ndarray:
    return factor.whole if isinstance(factor, _Wide) and factor.whole is not None else np.asarray(factor)


def padded(factor: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The factor with zero columns up to whole registers; not copied where it has them."""
    whole, out = _whole(factor), None
    k = factor.shape[1]
    if whole.dtype != dtype or not whole.flags.c_contiguous or whole.shape[1] != _new(0, k, dtype).shape[1]:
        out = _new(len(factor), k, dtype)
        out[:, :k] = factor
    return whole if out is None else out


def _hals(gram: np.ndarray, dtype: np.dtype, l1: float, sweeps: int, shrink: float) -> Callable[..., None]:
    """hals_range of some rows: sweep(pull, start, out, level)."""
    from eckart.engines.cpu.parts.kernels import hals_range
    from eckart.engines.cpu.registers.tiles import tile_size

    g, size, low = np.ascontiguousarray(gram, dtype), tile_size(dtype), dtype.type(l1)
    return lambda pull, start, out, level: hals_range(g, pull, low, start, out, sweeps, float(shrink), size, level)


def _kl(other: np.ndarray, mass: np.ndarray, k: int, rule: KlRule, steps: int) -> Callable[..., None]:
    """kl_range of some rows: step(entries, start, out, first, last, level)."""
    from eckart.engines.cpu.parts.kernels import kl_range

    kind = other.dtype.type
    how = kind(rule.l1), kind(rule.l2), steps, rule.fast, kind(rule.tol), rule.valued
    return lambda entries, start, out, a, b, level: kl_range(entries, other, mass, start, out, k, how, a, b, level)


def _ratios(
    block: np.ndarray, left: np.ndarray, right: np.ndarray, scratch: dict[str, Any], valued: bool
) -> tuple[np.ndarray, np.ndarray]:
    """A / (W V^T) of a block of rows, 0 where A is, and sum_j a log(a / s) - a of each row (zeros unless ``valued``)."""
    s = np.matmul(left, right.T, out=scratch_array(scratch, "s", block.shape, block.dtype))
    least = np.maximum(1e-30 * block.sum(axis=1, keepdims=True), TINY)
    np.maximum(s, least.astype(s.dtype), out=s)
    np.divide(block, s, out=s)
    values = np.zeros(len(block))
    if valued:
        log = np.maximum(s, s.dtype.type(1e-30), out=scratch_array(scratch, "log", block.shape, block.dtype))
        np.log(log, out=log)
        log -= 1
        values = np.einsum("ij,ij->i", block, log).astype(np.float64)
    return s, values


def _multiplied(
    u: np.ndarray, up: np.ndarray, mass: np.ndarray, totals: np.ndarray, rule: KlRule
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The multiplicative step of rows u whose numerators are known; the part of their objective that is not a sum over entries > 0, and their violations,
    before it."""
    old, top = u.astype(np.float64), up.astype(np.float64)
    down = mass + rule.l1
    slope = down + rule.l2 * old
    share = old * slope
    value = share.sum(axis=1) - 0.5 * rule.l2 * (old * old).sum(axis=1)
    size = np.maximum(share.sum(axis=1), totals)[:, None]
    rest = 1 - np.divide(top, slope, out=np.zeros_like(top), where=slope > 0)
    share = np.divide(share, size, out=np.zeros_like(share), where=size > 0)
    kkt = size[:, 0] * (np.maximum(np.minimum(share, rest), -1) ** 2).sum(axis=1)
    bend = np.sqrt(down**2 + 4 * rule.l2 * old * top) if rule.l2 > 0 else down
    r = 2 * top / np.maximum(down + bend, TINY)  # the positive root of l2 x^2 + d x = u up, over u
    new = old * (r * np.sqrt(r) * np.sqrt(np.sqrt(r)) if rule.fast else r)
    return _floored(new, mass, totals, rule).astype(u.dtype), value, kkt


def _floored(u: np.ndarray, mass: np.ndarray, totals: np.ndarray, rule: KlRule) -> np.ndarray:
    """At least a share LEAST for every component that has mass, nothing for one that has none."""
    down = mass + rule.l1
    least = np.divide(LEAST, down, out=np.zeros_like(down), where=down > 0)
    return np.maximum(u, totals[:, None] * least) * (down > 0)


def _weighted(level: np.ndarray, weights: np.ndarray | None) -> tuple[float, float]:
    value, kkt = level.sum(axis=0) if weights is None else weights @ level
    return float(value), float(kkt)


def _entries(x: Host, dtype: Any) -> tuple[np.ndarray, ...]:
    w = np.empty(0, dtype) if x.entry_weights is None else np.ascontiguousarray(x.entry_weights, dtype)
    return x.matrix.indptr, x.matrix.indices, np.ascontiguousarray(x.matrix.data, dtype), w


def _parts_of(x: Host, work: int, row: int = 0) -> list[tuple[int, int]]:
    """Ranges of rows of about equal load, ``work`` multiply-adds an entry and ``row`` a row."""
    from eckart.engines.cpu.entries.sparse import balanced

    rows = len(x.matrix.indptr) - 1
    return balanced(x.matrix.indptr, int(np.clip((x.nnz * work + rows * row) // GRAIN, 1, PARTS)))


def _lanes(start: Any, count: int) -> list[list[Any]]:
    return [[start] for _ in range(count)]


def _refuse_block(block: np.ndarray, first: int, finite: bool) -> None:
    if not finite:
        refuse_bad(block, first)
    if block.min(initial=0) < 0:
        i, j = np.argwhere(block < 0)[0]
        raise _negative(block[i, j], first + int(i), int(j))


def _negative(value: float, row: int, column: int) -> InputError:
    return InputError(
        f"Negative values in data passed to NMF: X is {value} at row {row}, column {column}, wanted numbers >= 0; shift or clip them, or use PCA"
    )
