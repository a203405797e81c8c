"""The primitives of non-negative factorization, as part of ``CpuEngine``: ranges of rows on lanes, sums over rows merged in a fixed order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np

from eckart.engines.cpu.row_blocks import Job, jobs, scratch_array
from eckart.engines.plain.parts import floored, multiplied
from eckart.engines.protocol import Descent, KlRule, Pass, Totals, refuse_bad
from eckart.errors import InputError
from eckart.matrix import Counts, Dense, Observed
from eckart.scheduler import run_lanes

RANGE = 1024
"""Rows in a range of a sweep: a multiple of every tile."""
SMALL = 2**16
"""Entries times k below which a sweep is not worth a thread."""


class NonnegativePrimitives:
    """hals_rows, hals_pass, hals_seen, kl_rows and kl_pass on ``threads`` threads; numba is loaded when the first of them is called."""

    threads: int

    def totals(self, x: Dense | Counts | Observed, weights: np.ndarray | None = None) -> Totals:
        if not isinstance(x, Dense):
            _refuse_entries(x)
            w = None if weights is None else np.repeat(weights, x.row_counts())
            a = x.data.astype(np.float64)
            return Totals(x.shape[0], float(a.sum() if w is None else w @ a), float(a @ (a if w is None else w * a)))
        lanes = [np.zeros(3) for _ in range(8)]

        def step(sums: np.ndarray, job: Job, scratch: dict[str, Any]) -> None:
            start, rows, fetch = job
            block = fetch(scratch)
            total = np.einsum("ij->i", block).astype(np.float64)
            square = np.einsum("ij,ij->i", block, block).astype(np.float64)
            _refuse_block(block, start, bool(np.isfinite(total).all()))
            w = np.ones(rows) if weights is None else weights[start : start + rows]
            sums += (rows, w @ total, w @ square)

        run_lanes(jobs(x), lanes, step, self.threads)
        rows, total, square = np.sum(lanes, axis=0)
        return Totals(int(rows), float(total), float(square))

    def hals_rows(
        self,
        gram: np.ndarray,
        pull: np.ndarray,
        start: np.ndarray,
        *,
        sweeps: int = 1,
        shrink: float = 0.0,
        weights: np.ndarray | None = None,
    ) -> Descent:
        out = np.array(start, order="C")
        g, p = np.ascontiguousarray(gram, out.dtype), np.ascontiguousarray(pull, out.dtype)
        value, kkt = np.zeros((2, len(out)))
        run_lanes(
            range(0, len(out), RANGE),
            [None] * 8,
            lambda _, a, scratch: _hals(g, p, out, sweeps, shrink, a, min(a + RANGE, len(out)), value, kkt),
            self.threads if out.size * g.shape[0] >= SMALL else 1,
        )
        return Descent(out, *_sums(value, kkt, weights))

    def hals_pass(
        self,
        x: Dense,
        right: np.ndarray,
        left: np.ndarray,
        gram: np.ndarray,
        l1: float,
        *,
        sweeps: int = 1,
        weights: np.ndarray | None = None,
    ) -> Pass:
        out, n, k = np.array(left, order="C"), x.shape[1], right.shape[1]
        g, v = np.ascontiguousarray(gram, out.dtype), np.ascontiguousarray(right, out.dtype)
        value, kkt = np.zeros((2, len(out)))

        def step(lane: _CrossLane, job: Job, scratch: dict[str, Any]) -> None:
            start, rows, fetch = job
            block, part = fetch(scratch), slice(start, start + rows)
            pull = np.matmul(block, v, out=scratch_array(scratch, "pull", (rows, k), out.dtype))
            if l1:
                pull -= out.dtype.type(l1)
            w = out[part]
            _hals(g, pull, w, sweeps, 0.0, 0, rows, value[part], kkt[part])
            lane.take(block, w, None if weights is None else weights[part], scratch)

        lanes = _cross_lanes(n, k, out.dtype)
        run_lanes(jobs(x), lanes, step, self.threads)
        cross, square = _merged(lanes)
        return Pass(Descent(out, *_sums(value, kkt, weights)), cross, square)

    def hals_seen(
        self,
        x: Observed,
        other: np.ndarray,
        start: np.ndarray,
        *,
        l1: float = 0.0,
        l2: float = 0.0,
        sweeps: int = 1,
        shrink: float = 0.0,
        entry_weights: np.ndarray | None = None,
        weights: np.ndarray | None = None,
    ) -> Descent:
        from eckart.engines.cpu.parts.kernels import seen_range
        from eckart.engines.cpu.registers.tiles import tile_size
        from eckart.engines.cpu.ridge.schedule import _scratch, padded

        dtype, k = start.dtype, start.shape[1]
        h, out = padded(other, dtype), padded(start, dtype).copy()
        entries = _entries(x, entry_weights, dtype)
        value, kkt = np.zeros((2, len(out)))
        size, sweep_rows = tile_size(dtype), cast(Any, seen_range)

        def step(_: Any, part: tuple[int, int], scratch: dict[str, Any]) -> None:
            chunk, gram = _scratch(scratch, h.shape[1], dtype)
            penalties = dtype.type(l1), dtype.type(l2)
            sweep_rows(*entries, h, out, k, *penalties, sweeps, shrink, size, *part, chunk, gram, value, kkt)

        self._over_entries(x, k, step)
        return Descent(np.ascontiguousarray(out[:, :k]), *_sums(value, kkt, weights))

    def kl_rows(
        self,
        x: Counts | Observed | Dense,
        other: np.ndarray,
        start: np.ndarray,
        rule: KlRule,
        *,
        steps: int = 1,
        entry_weights: np.ndarray | None = None,
        entry_scale: np.ndarray | None = None,
        weights: np.ndarray | None = None,
        real: int | None = None,
    ) -> Descent:
        if isinstance(x, Dense):
            return self._kl_dense(x, start, other, rule, steps, weights)
        from eckart.engines.cpu.parts.kernels import kl_range
        from eckart.engines.cpu.registers.prefetch import aligned_zeros
        from eckart.engines.cpu.ridge.schedule import padded

        dtype, k = start.dtype, start.shape[1] if real is None else real
        h, given = padded(other, dtype), padded(start, dtype)
        out = aligned_zeros(given.shape, dtype)
        out[:] = given
        mass = np.zeros(0, dtype)
        if not isinstance(x, Observed):
            mass = _mass(h, entry_scale)[:k].astype(dtype)
        if entry_scale is not None:
            each = entry_scale[x.indices]
            entry_weights = each if entry_weights is None else each * entry_weights
        entries = _entries(x, entry_weights, dtype)
        value, kkt = np.zeros((2, len(out)))
        step_rows = cast(Any, kl_range)
        how = dtype.type(rule.l1), dtype.type(rule.l2), steps, rule.fast, dtype.type(rule.tol), rule.valued

        def step(_: Any, part: tuple[int, int], scratch: dict[str, Any]) -> None:
            step_rows(*entries, h, mass, out, k, *how, *part, value, kkt)

        self._over_entries(x, k, step)
        return Descent(np.ascontiguousarray(out[:, :k]) if real is None else out, *_sums(value, kkt, weights))

    def kl_pass(
        self,
        x: Dense,
        left: np.ndarray,
        right: np.ndarray,
        rule: KlRule,
        totals: np.ndarray,
        weights: np.ndarray | None = None,
    ) -> Descent:
        lanes, mass = _cross_lanes(x.shape[1], right.shape[1], right.dtype), _mass(left, weights)
        right = floored(right.astype(np.float64), mass, totals, rule).astype(right.dtype)

        def step(lane: _CrossLane, job: Job, scratch: dict[str, Any]) -> None:
            start, rows, fetch = job
            part = slice(start, start + rows)
            w = left[part] if weights is None else left[part] * weights[part, None].astype(left.dtype)
            ratio, values = _ratios(fetch(scratch), left[part], right, scratch)
            lane.value += float(values.sum() if weights is None else values @ weights[part])
            lane.total += ratio.T @ w

        run_lanes(jobs(x), lanes, step, self.threads)
        up, _ = _merged(lanes)
        new, value, kkt = _multiplied(right, up, mass, totals, rule)
        return Descent(new, float(np.sum([lane.value for lane in lanes]) + value.sum()), float(kkt.sum()))

    def _kl_dense(
        self, x: Dense, left: np.ndarray, right: np.ndarray, rule: KlRule, steps: int, weights: np.ndarray | None
    ) -> Descent:
        """kl_rows where every entry is there: blocks of rows by products with the other factor."""
        out, mass = np.array(left, order="C"), _mass(right, None)
        value, kkt = np.zeros((2, len(out)))

        def step(_: Any, job: Job, scratch: dict[str, Any]) -> None:
            start, rows, fetch = job
            block, part = fetch(scratch), slice(start, start + rows)
            totals = block.sum(axis=1, dtype=np.float64)
            out[part] = floored(out[part].astype(np.float64), mass, totals, rule)
            for s in range(steps):
                ratio, values = _ratios(block, out[part], right, scratch, bool(s))
                before = out[part].copy()
                out[part], own, gap = _multiplied(out[part], ratio @ right, mass, totals, rule)
                if s == 0:
                    value[part], kkt[part] = values + own, gap
                if s and rule.tol and float(np.max(np.abs(out[part] - before).dot(mass) - rule.tol * totals)) <= 0:
                    break

        run_lanes(jobs(x), [None] * 8, step, self.threads)
        return Descent(out, *_sums(value, kkt, weights))

    def square_error(
        self, x: Dense | Counts, left: np.ndarray, right: np.ndarray, weights: np.ndarray | None = None
    ) -> float:
        u, v = np.ascontiguousarray(left, x.dtype), np.ascontiguousarray(right, x.dtype)
        if isinstance(x, Counts):
            from eckart.engines.cpu.ridge.schedule import dots

            s = dots(x, u, v, self.threads).astype(np.float64)  # type: ignore[arg-type]
            w = np.ones(x.nnz) if weights is None else np.repeat(weights, x.row_counts())
            heavy = u if weights is None else u * weights[:, None]
            gram, square = heavy.T.astype(np.float64) @ u, v.T.astype(np.float64) @ v
            return float(w @ ((x.data - s) ** 2 - s**2) + (gram * square).sum())
        lanes = [np.zeros(1) for _ in range(8)]

        def step(total: np.ndarray, job: Job, scratch: dict[str, Any]) -> None:
            start, rows, fetch = job
            block, part = fetch(scratch), slice(start, start + rows)
            rest = np.matmul(u[part], v.T, out=scratch_array(scratch, "s", block.shape, block.dtype))
            rest -= block
            square = np.einsum("ij,ij->i", rest, rest).astype(np.float64)
            total += square.sum() if weights is None else weights[part] @ square

        run_lanes(jobs(x), lanes, step, self.threads)
        return float(np.sum(lanes))

    def _over_entries(self, x: Counts | Observed, k: int, step: Callable[[Any, tuple[int, int], dict], None]) -> None:
        from eckart.engines.cpu.entries.sparse import balanced
        from eckart.engines.cpu.ridge.schedule import ranges

        small = x.nnz * k < SMALL
        parts = balanced(x.indptr, 1 if small else ranges(x.nnz))
        run_lanes(parts, [None] * max(1, len(parts)), step, 1 if small else self.threads)


class _CrossLane:
    """A^T D W and W^T D W of the rows of one lane."""

    def __init__(self, n: int, k: int, dtype: Any):
        self.total, self.square, self.value = np.zeros((n, k), dtype), np.zeros((k, k)), 0.0

    def take(self, block: np.ndarray, w: np.ndarray, weights: np.ndarray | None, scratch: dict[str, Any]) -> None:
        heavy = w if weights is None else w * weights[:, None].astype(w.dtype)
        out = scratch_array(scratch, "cross", self.total.shape, self.total.dtype)
        self.total += np.matmul(block.T, heavy, out=out)
        self.square += w.T @ heavy


def _cross_lanes(n: int, k: int, dtype: Any) -> list[_CrossLane]:
    return [_CrossLane(n, k, dtype) for _ in range(4)]


def _merged(lanes: list[_CrossLane]) -> tuple[np.ndarray, np.ndarray]:
    totals = [lane.total for lane in lanes]
    return (totals[0] + totals[1]) + (totals[2] + totals[3]), np.sum([lane.square for lane in lanes], axis=0)


def _hals(g: Any, p: Any, w: Any, sweeps: int, shrink: float, a: int, b: int, value: Any, kkt: Any) -> None:
    from eckart.engines.cpu.parts.kernels import hals_range
    from eckart.engines.cpu.registers.tiles import tile_size

    hals_range(g, p, w, sweeps, shrink, tile_size(w.dtype), a, b, value, kkt)


def _ratios(
    block: np.ndarray, left: np.ndarray, right: np.ndarray, scratch: dict[str, Any], again: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """A / (W V^T) of a block of rows, 0 where A is, and sum_j a log(a / s) - a of each row (zeros where it was measured before)."""
    s = np.matmul(left, right.T, out=scratch_array(scratch, "s", block.shape, block.dtype))
    least = np.maximum(1e-30 * block.sum(axis=1, keepdims=True), s.dtype.type(1e-37))
    np.maximum(s, least.astype(s.dtype), out=s)
    np.divide(block, s, out=s)
    values = np.zeros(len(block))
    if not again:
        log = np.maximum(s, s.dtype.type(1e-30), out=scratch_array(scratch, "log", block.shape, block.dtype))
        np.log(log, out=log)
        log -= 1
        values = np.einsum("ij,ij->i", block, log).astype(np.float64)
    return s, values


def _mass(factor: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    return factor.sum(axis=0, dtype=np.float64) if weights is None else weights @ factor.astype(np.float64)


def _multiplied(
    u: np.ndarray, up: np.ndarray, mass: np.ndarray, totals: np.ndarray, rule: KlRule
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The multiplicative step of rows u whose numerators are known; the rest of their objective and their violations before it."""
    new, value, kkt = multiplied(u.astype(np.float64), up.astype(np.float64), mass, totals, rule)
    return new.astype(u.dtype), value, kkt


def _sums(value: np.ndarray, kkt: np.ndarray, weights: np.ndarray | None) -> tuple[float, float]:
    return (float(value.sum()), float(kkt.sum())) if weights is None else (float(weights @ value), float(weights @ kkt))


def _entries(x: Any, entry_weights: np.ndarray | None, dtype: Any) -> tuple[np.ndarray, ...]:
    w = np.empty(0, dtype) if entry_weights is None else np.ascontiguousarray(entry_weights, dtype)
    return x.indptr, x.indices, np.ascontiguousarray(x.data, dtype), w


def _refuse_entries(x: Counts | Observed) -> None:
    if (x.nnz and not x.data.min() >= 0) or not np.isfinite(x.data.sum(dtype=np.float64)):
        at = int(np.argmax(~((x.data >= 0) & np.isfinite(x.data))))
        row = int(np.searchsorted(x.indptr, at, side="right")) - 1
        raise _negative(x.data[at], row, int(x.indices[at]))


def _refuse_block(block: np.ndarray, first: int, finite: bool) -> None:
    if not finite:
        refuse_bad(block, first)
    if not block.min(initial=0) >= 0:
        i, j = np.argwhere(block < 0)[0]
        raise _negative(block[i, j], first + int(i), int(j))


def _negative(value: float, row: int, column: int) -> InputError:
    if not np.isfinite(value):
        return InputError(f"X contains {value} at row {row}, column {column}, wanted finite numbers >= 0")
    return InputError(
        f"Negative values in data passed to NMF: X is {value} at row {row}, column {column}, wanted numbers >= 0; shift or clip them, or use PCA"
    )
