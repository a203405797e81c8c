"""Steps of the Kullback-Leibler divergence of non-negative factorization: multiplicative for dense
blocks, by row kernels for stored entries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eckart.engines.arrays.divergences import ArrayDivergences
from eckart.engines.cpu.parts.ranges import (
    GATHER,
    LEAST,
    PARTS,
    TINY,
    CrossLane,
    Ranges,
    Step,
    entries_of,
    new_factor,
    padded,
    parts_of_entries,
    real_columns,
    weighted,
)
from eckart.engines.cpu.small import or_arrays
from eckart.engines.host import Host, place
from eckart.engines.protocol import Descent, KlRule, KlSums
from eckart.engines.row_blocks import Job, jobs, scratch_array
from eckart.matrix import Matrix
from eckart.scheduler import run_lanes


class KlPrimitives(Ranges):
    """Steps of the divergence."""

    @or_arrays(ArrayDivergences)
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
        h, given, out = padded(other, dtype), np.asarray(start), new_factor(len(start), k, dtype)
        level, work = np.zeros((len(out), 2)), 2 * k * (min(steps, 8) + 1)
        step_rows = _kl(
            h, np.zeros(0, dtype) if x.kind == "observed" else mass.astype(dtype), k, rule, steps
        )
        if x.kind == "dense":  # each row stops on its own, so it goes by its entries > 0
            rows = _stored_blocks(step_rows, given, out, level)
            run_lanes(
                jobs(x.matrix, self._block(x, work * x.shape[1], len(out))),
                [None] * PARTS,
                rows,
                self.threads,
            )
        else:
            entries = entries_of(x, dtype)
            self._over_ranges(
                parts_of_entries(x, GATHER * work),
                lambda a, b: step_rows(entries, given, out, a, b, level),
            )
        return Descent(real_columns(out, k), *weighted(level, x.weights))

    def _dense_kl(
        self,
        x: Host,
        right: np.ndarray,
        left: np.ndarray,
        rule: KlRule,
        mass: np.ndarray,
        steps: int,
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
        run_lanes(
            jobs(x.matrix, self._block(x, work, len(out))), [None] * PARTS, step, self.threads
        )
        return Descent(out, *weighted(level, x.weights))

    @or_arrays(ArrayDivergences)
    def kl_sums(
        self, x: Host | Matrix, left: np.ndarray, right: np.ndarray, valued: bool = True
    ) -> KlSums:
        x = place(x)
        u, v, k = np.asarray(left), np.asarray(right), left.shape[1]

        def step(lane: CrossLane, job: Job, scratch: dict[str, Any]) -> None:
            start, rows, fetch = job
            part = slice(start, start + rows)
            w = None if x.weights is None else x.weights[part]
            ratio, values = _ratios(fetch(scratch), u[part], v, scratch, valued)
            lane.value += float(values.sum() if w is None else values @ w)
            lane.take(ratio, u[part], w, scratch)

        work = 2 * x.shape[1] * (k + 16)
        lanes = CrossLane.several(self._cross_lanes(x, k, work), x.shape[1], k, x.dtype)
        run_lanes(jobs(x.matrix, self._block(x, work, len(u))), lanes, step, self.threads)
        return KlSums(
            self._tree([lane.total for lane in lanes]).copy(),
            float(sum(lane.value for lane in lanes)),
        )

    def kl_step(
        self, right: np.ndarray, sums: KlSums, mass: np.ndarray, totals: np.ndarray, rule: KlRule
    ) -> Descent:
        out, level = np.empty_like(right), np.empty((len(right), 2))

        def rows(a: int, b: int) -> None:
            out[a:b], level[a:b, 0], level[a:b, 1] = _multiplied(
                right[a:b], sums.up[a:b], mass, totals[a:b], rule
            )

        self._each(len(right), 32 * right.shape[1], rows)
        value, kkt = weighted(level, None)
        return Descent(out, sums.value + value, kkt)


def _kl(
    other: np.ndarray, mass: np.ndarray, k: int, rule: KlRule, steps: int
) -> Callable[..., None]:
    """kl_range of some rows: step(entries, start, out, first, last, level)."""
    from eckart.engines.cpu.parts.kernels import kl_range

    kind = other.dtype.type
    how = kind(rule.l1), kind(rule.l2), steps, rule.fast, kind(rule.tol), rule.valued
    return lambda entries, start, out, a, b, level: kl_range(
        entries, other, mass, start, out, k, how, a, b, level
    )


def _stored_blocks(step_rows: Any, given: Any, out: Any, level: Any) -> Step:
    """A step over blocks of dense rows by their entries > 0."""
    from eckart.engines.cpu.parts.kernels import stored_rows

    def step(_: Any, job: Job, scratch: dict[str, Any]) -> None:
        start, rows, fetch = job
        block, part = fetch(scratch), slice(start, start + rows)
        indptr, indices = (
            np.empty(rows + 1, np.int64),
            scratch_array(scratch, "j", (block.size,), np.int32),
        )
        data = scratch_array(scratch, "a", (block.size,), block.dtype)
        stored_rows(block, indptr, indices, data)
        entries = indptr, indices, data, np.empty(0, block.dtype)
        step_rows(entries, given[part], out[part], 0, rows, level[part])

    return step


def _ratios(
    block: np.ndarray, left: np.ndarray, right: np.ndarray, scratch: dict[str, Any], valued: bool
) -> tuple[np.ndarray, np.ndarray]:
    """A / (W V^T) of a block of rows, 0 where A is, and sum_j a log(a / s) - a of each row (zeros
    unless ``valued``)."""
    s = np.matmul(left, right.T, out=scratch_array(scratch, "s", block.shape, block.dtype))
    least = np.maximum(1e-30 * block.sum(axis=1, keepdims=True), TINY)
    np.maximum(s, least.astype(s.dtype), out=s)
    np.divide(block, s, out=s)
    values = np.zeros(len(block))
    if valued:
        log = np.maximum(
            s, s.dtype.type(1e-30), out=scratch_array(scratch, "log", block.shape, block.dtype)
        )
        np.log(log, out=log)
        log -= 1
        values = np.einsum("ij,ij->i", block, log).astype(np.float64)
    return s, values


def _multiplied(
    u: np.ndarray, up: np.ndarray, mass: np.ndarray, totals: np.ndarray, rule: KlRule
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The multiplicative step of rows u whose numerators are known; the part of their objective
    that is not a sum over entries > 0, and their violations, before it."""
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
