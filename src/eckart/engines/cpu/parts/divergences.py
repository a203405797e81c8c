"""Multiplicative steps under beta-divergences, as part of ``CpuEngine``: blocks of rows by products
with the other factor, powers entry by entry.

Zeros of sparse data matter to every divergence but Kullback-Leibler's and least squares, so rows
are filled block by block; memory does not grow with their number.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.engines.cpu.parts.ranges import LEAST, PARTS, weighted
from eckart.engines.cpu.row_blocks import THIN, Job, jobs, scratch_array
from eckart.engines.host import Host, place
from eckart.engines.protocol import BetaRule, BetaSums, Descent, Pass
from eckart.engines.protocol.divergences import LOWEST, no_zeros
from eckart.matrix import Matrix
from eckart.scheduler import lanes_for, run_lanes

POWER = 32
"""Multiply-adds that take as long as a power."""


class DivergencePrimitives:
    """The family ``divergences``; powers and sums are of float64, whatever the data are."""

    threads: int
    _each: Any
    _block: Any
    _swept_pass: Any

    def beta_size(self, x: Host | Matrix, beta: float) -> float:
        x = place(x)
        lanes = [np.zeros(1) for _ in range(PARTS)]

        def step(total: np.ndarray, job: Job, scratch: dict[str, Any]) -> None:
            a, v = _cells(x, job, scratch)
            some = a > 0
            if beta <= 0 and not (some | (v == 0)).all():
                i, j = np.argwhere(~some & (v > 0))[0]
                raise no_zeros(job[0] + int(i), int(j), beta)
            rows = (np.where(some, a, 1.0) ** beta * v * some).sum(axis=1)
            total += rows.sum() if x.weights is None else x.weights[job[0] : job[0] + job[1]] @ rows

        run_lanes(self._beta_jobs(x, 1), lanes, step, self.threads)
        return float(np.sum(lanes))

    def beta_rows(
        self,
        x: Host | Matrix,
        other: np.ndarray,
        start: np.ndarray,
        rule: BetaRule,
        mass: np.ndarray,
        *,
        steps: int = 1,
    ) -> Descent:
        x, h = place(x), np.asarray(other, np.float64)
        out, level = np.array(start, order="C"), np.empty((len(start), 2))

        def step(_: Any, job: Job, scratch: dict[str, Any]) -> None:
            part = slice(job[0], job[0] + job[1])
            a, v = _cells(x, job, scratch)
            totals, floor = (v * a).sum(axis=1), _floor(a, v)
            least = _least(mass, totals)
            u = ended = _start(out[part].astype(np.float64), least)
            moving = np.arange(len(u))  # rows whose steps have not ended: each ends on its own
            for s in range(steps):
                up, down, values = _sums(a, v, u, h, rule.beta, floor, s == 0)
                if s == 0:
                    own, kkt = _judged(u, up, down, rule)
                    level[part, 0], level[part, 1] = values + own, kkt
                new = _stepped(u, up, down, least, rule)
                moved = np.abs(new - u) @ mass > rule.tol * (new @ mass)
                ended[moving] = u = new
                if not moved.any():
                    break
                if not moved.all():
                    moving = moving[moved]
                    a, v, u, least, floor = (some[moved] for some in (a, v, u, least, floor))
            out[part] = ended

        run_lanes(self._beta_jobs(x, steps * h.shape[1]), [None] * PARTS, step, self.threads)
        return Descent(out, *weighted(level, x.weights))

    def beta_sums(
        self, x: Host | Matrix, left: np.ndarray, right: np.ndarray, beta: float
    ) -> BetaSums:
        x, w, h = place(x), np.asarray(left, np.float64), np.asarray(right, np.float64)
        n, k = h.shape
        blocks = self._beta_jobs(x, k)
        count = lanes_for(
            len(blocks) if isinstance(blocks, list) else PARTS, 16 * n * (k + 1), 2**26
        )
        lanes = [
            [BetaSums(np.zeros((n, k)), np.zeros((n, k)), np.zeros(n), 0.0)] for _ in range(count)
        ]

        def step(lane: list[BetaSums], job: Job, scratch: dict[str, Any]) -> None:
            part = slice(job[0], job[0] + job[1])
            a, v = _cells(x, job, scratch)
            v = v if x.weights is None else v * x.weights[part, None]
            up, down, values = _sums(a.T, v.T, h, w[part], beta, _floor(a.T, v.T), True)
            lane[0] = lane[0].merge(BetaSums(up, down, (v * a).sum(axis=0), float(values.sum())))

        run_lanes(blocks, lanes, step, self.threads)
        found = lanes[0][0]
        for lane in lanes[1:]:
            found = found.merge(lane[0])
        return found

    def beta_step(
        self, right: np.ndarray, sums: BetaSums, mass: np.ndarray, rule: BetaRule
    ) -> Descent:
        u = np.asarray(right, np.float64)
        own, kkt = _judged(u, sums.up, sums.down, rule)
        new = _stepped(u, sums.up, sums.down, _least(mass, sums.totals), rule)
        return Descent(new.astype(right.dtype), sums.value + float(own.sum()), float(kkt.sum()))

    def multiplied_rows(
        self, gram: np.ndarray, pull: np.ndarray, start: np.ndarray, l1: float = 0.0
    ) -> Descent:
        out, level, step = (
            np.empty_like(start, order="C"),
            np.empty((len(start), 2)),
            _multiply(gram, l1),
        )
        self._each(
            len(start),
            2 * gram.size,
            lambda a, b: step(pull[a:b], start[a:b], out[a:b], level[a:b]),
        )
        return Descent(out, *weighted(level, None))

    def multiplied_pass(
        self,
        x: Host | Matrix,
        right: np.ndarray,
        left: np.ndarray,
        gram: np.ndarray,
        l1: float = 0.0,
    ) -> Pass:
        return self._swept_pass(place(x), right, left, _multiply(gram, l1), 2 * gram.size)

    def _beta_jobs(self, x: Host, work: int) -> Any:
        """Blocks of rows; an entry takes the given multiply-adds and two powers."""
        return jobs(x.matrix, min(self._block(x, x.shape[1] * (work + 2 * POWER)), THIN // 4))


def _cells(x: Host, job: Job, scratch: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """A block in float64, zeros where nothing is known, and the weights of its cells (without those
    of the rows)."""
    first, rows, fetch = job
    a = np.asarray(fetch(scratch), np.float64)
    if x.kind != "observed" and x.entry_weights is None:
        return a, np.ones_like(a)
    if x.kind == "observed":
        gaps = np.isnan(a)
        a = np.where(gaps, 0.0, a)
    if x.entry_weights is None:
        return a, (~gaps).astype(np.float64)
    from eckart.engines.cpu.entries.sparse import scatter_rows

    v = scratch_array(scratch, "weights", a.shape, x.entry_weights.dtype)
    scatter_rows(x.matrix.indptr, x.matrix.indices, x.entry_weights, first, first + rows, v)
    return a, v.astype(np.float64)


def _least(mass: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """A share LEAST of each component of a row, so that it can come back."""
    return LEAST * totals[:, None] * np.divide(1.0, mass, out=np.zeros_like(mass), where=mass > 0)


def _start(u: np.ndarray, least: np.ndarray) -> np.ndarray:
    """At least that; equal shares where there is nothing."""
    return np.where(
        u.any(axis=1, keepdims=True), np.maximum(u, least), least / (LEAST * u.shape[1])
    )


def _floor(a: np.ndarray, v: np.ndarray) -> np.ndarray:
    """What s = u.h is at the least in each row."""
    known = v > 0
    mean = np.where(known, a, 0.0).sum(axis=1, keepdims=True) / np.maximum(
        known.sum(axis=1, keepdims=True), 1
    )
    return np.maximum(LOWEST * mean, 1e-150)


def _sums(
    a: np.ndarray,
    v: np.ndarray,
    u: np.ndarray,
    h: np.ndarray,
    b: float,
    floor: np.ndarray,
    valued: bool,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """num and den of some rows, and the divergence of each (zeros unless ``valued``)."""
    s = np.maximum(u @ h.T, floor)
    rest = v / (s * s) if b == 0 else v * s ** (b - 2)  # a power of -2 costs ten times a division
    values = np.zeros(len(a))
    if valued and b == 0:
        ratio = np.where(v > 0, a / s, 1.0)
        values = (v * (ratio - np.log(ratio) - 1)).sum(axis=1)
    elif valued and b == 1:
        ratio = np.where((v > 0) & (a > 0), a / s, 1.0)
        values = (v * (a * np.log(ratio) - a + s)).sum(axis=1)
    elif valued:
        own = np.where(a > 0, a, 1.0) ** b * (a > 0)
        values = (v * own + rest * s * ((b - 1) * s - b * a)).sum(axis=1) / (b * (b - 1))
    return (rest * a) @ h, (rest * s) @ h, values


def _judged(
    u: np.ndarray, up: np.ndarray, down: np.ndarray, rule: BetaRule
) -> tuple[np.ndarray, np.ndarray]:
    """The penalties of some rows, and their violations."""
    slope = down + rule.l1 + rule.l2 * u
    own = rule.l1 * u.sum(axis=1) + 0.5 * rule.l2 * np.einsum("ij,ij->i", u, u)
    size = np.maximum(np.einsum("ij,ij->i", u, up), np.einsum("ij,ij->i", u, slope))[:, None]
    rest = 1 - np.divide(up, slope, out=np.zeros_like(up), where=slope > 0)
    share = np.divide(u * slope, size, out=np.zeros_like(u), where=size > 0)
    return own, size[:, 0] * (np.maximum(np.minimum(share, rest), -1) ** 2).sum(axis=1)


def _stepped(
    u: np.ndarray, up: np.ndarray, down: np.ndarray, least: np.ndarray, rule: BetaRule
) -> np.ndarray:
    """Rows after a step."""
    first = down + rule.l1
    bend = first + np.sqrt(first**2 + 4 * rule.l2 * u * up) if rule.l2 else 2 * first
    root = np.divide(2 * up, bend, out=np.zeros_like(up), where=bend > 0)
    return np.maximum(u * root**rule.power, least)


def _multiply(gram: np.ndarray, l1: float) -> Any:
    """The multiplicative step for least squares of some rows: step(pull, start, out, level)."""
    g = np.asarray(gram, np.float64)
    size = np.diagonal(g)
    inverse = np.divide(1.0, size, out=np.zeros_like(size), where=size > 0)

    def step(pull: np.ndarray, start: np.ndarray, out: np.ndarray, level: np.ndarray) -> None:
        p = np.asarray(pull, np.float64)
        least = LEAST * p * inverse
        u = np.maximum(np.asarray(start, np.float64), least)
        down = u @ g + l1
        slope = down - p
        level[:, 0] = 0.5 * np.einsum("ij,ij->i", u, slope - p + l1)
        level[:, 1] = np.minimum(u, slope * inverse) ** 2 @ size
        out[:] = np.maximum(u * np.divide(p, down, out=np.zeros_like(p), where=down > 0), least)

    return step
