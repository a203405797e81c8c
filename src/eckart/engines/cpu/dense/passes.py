"""Row-block kernels on dense blocks: scatter, products with tall thin matrices. Level-3 BLAS, one
block a call."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eckart.engines.cpu.dense.thin import tree_sum
from eckart.engines.host import Host
from eckart.engines.protocol import Moments, refuse_bad
from eckart.engines.row_blocks import Job, scratch_array
from eckart.loading import lazy
from eckart.matrix import Dense

column_kernels = lazy("eckart.engines.cpu.dense.columns")

CANCELLATION = 100.0
"""A column whose squared mean exceeds this many variances is centered before it is multiplied."""
ROUNDING = 80.0
"""Rounding units, of the average variance, that the product of raw entries may cost."""
FEW = 16
"""Data of fewer blocks are quick either way and always centered."""
FIRST_ROWS = 1024
"""Rows by which means are separated from spread before the blocks are dealt."""
ROUNDED_MEAN = 1e4
"""Beyond this ratio of squared mean to variance, what was lost in rounding the mean is measured and
put back."""
SLAB = 2**15
"""Columns whose sums are made together: what is held of them beside the result (float64, often more
than the data have rows) then stays in a cache."""


@dataclass
class MomentsLane:
    """Partial statistics of the blocks dealt to one lane.

    Rank-one corrections c d d^T (a block's own mean, and the pairwise merge) are collected and
    applied 64 at a time as one product.
    """

    moments: Moments
    weights: np.ndarray | None
    dtype: np.dtype
    blocks: int = 1
    shift_first: bool = False
    ranks: list[tuple[float, np.ndarray]] = field(default_factory=list)

    def room(self, scratch: dict[str, Any]) -> np.ndarray:
        """Where a block's product goes: straight into the sum while that is empty."""
        if self.moments.weight == 0 and self.dtype == np.float64:
            return self.moments.scatter
        return scratch_array(scratch, "gram", self.moments.scatter.shape, self.dtype)

    def take(
        self,
        rows: int,
        weight: float,
        mean: np.ndarray,
        rest: np.ndarray,
        product: np.ndarray,
        probed: np.ndarray,
    ) -> None:
        """Merge a block whose scatter about ``mean`` is product - weight rest rest^T."""
        m = self.moments
        total = m.weight + weight
        delta = mean - m.mean
        factor = m.weight * weight / total
        if product is not m.scatter:
            m.scatter += product
        m.probed += probed
        for c, d in ((-weight, rest), (factor, delta)):
            if c:
                self.ranks.append((c, d))
                m.probed += c * d * (d @ m.probe)
        m.mean += delta * (weight / total)
        m.rows, m.weight = m.rows + rows, total
        if len(self.ranks) >= 64:
            self.flush()

    def flush(self) -> None:
        if self.ranks:
            d = np.array([v for _, v in self.ranks])
            self.moments.scatter += d.T @ (np.array([c for c, _ in self.ranks])[:, None] * d)
            self.ranks.clear()


def means_stand_out(x: Host, blocks: int) -> bool:
    """Whether means are so large against the spread of the first rows that every lane takes them
    off at once, instead of finding out by a product of its own. Rows that come as a stream are not
    looked at, nor those with weights, whose means are taken off in any case."""
    array = (
        x.matrix.array if isinstance(x.matrix, Dense) and x.matrix.in_memory else np.zeros((0, 0))
    )
    if len(array) < FIRST_ROWS or blocks < FEW or x.weights is not None:
        return False
    some = array[:FIRST_ROWS]
    with np.errstate(over="ignore", invalid="ignore"):
        mean, spread = some.mean(axis=0, dtype=np.float64), some.var(axis=0, dtype=np.float64)
        return bool(np.isfinite(spread).all() and not _raw_is_fine(mean, spread, blocks))


def merge_lanes(lanes: list[MomentsLane], threads: int) -> Moments:
    """All lanes as one: their scatters added in a fixed tree, and the spread of their means in one
    product."""
    parts = [lane.moments for lane in lanes if lane.moments.weight > 0]
    rows = sum(lane.moments.rows for lane in lanes)
    if not parts:
        lanes[0].moments.rows = rows
        return lanes[0].moments
    weights = np.array([m.weight for m in parts])
    weight = float(weights.sum())
    apart = np.array([m.mean - parts[0].mean for m in parts])
    shift = weights @ apart / weight
    apart -= shift
    heavy = weights[:, None] * apart
    scatter = tree_sum([m.scatter for m in parts], threads).copy()
    scatter += apart.T @ heavy
    probed = np.sum([m.probed for m in parts], axis=0) + (apart @ parts[0].probe) @ heavy
    return Moments(rows, weight, parts[0].mean + shift, scatter, parts[0].probe, probed)


def lanes_state(lanes: list[MomentsLane]) -> dict[str, np.ndarray]:
    """All partial sums as named arrays."""
    state: dict[str, np.ndarray] = {"probe": lanes[0].moments.probe}
    for i, lane in enumerate(lanes):
        m = lane.moments
        state[f"numbers {i}"] = np.array([m.rows, m.weight, float(lane.shift_first)])
        state |= {f"mean {i}": m.mean, f"scatter {i}": m.scatter, f"probed {i}": m.probed}
    return state


def restore_lanes(lanes: list[MomentsLane], kept: tuple[int, dict[str, np.ndarray]] | None) -> int:
    """Put partial sums back; how many blocks they stand for."""
    if kept is None:
        return 0
    done, state = kept
    for i, lane in enumerate(lanes):
        rows, weight, shift = state[f"numbers {i}"]
        arrays = (state[f"{name} {i}"].copy() for name in ("mean", "scatter", "probed"))
        mean, scatter, probed = arrays
        lane.moments = Moments(int(rows), float(weight), mean, scatter, state["probe"], probed)
        lane.shift_first = bool(shift)
    return done


@np.errstate(
    over="ignore", invalid="ignore"
)  # the chapter rescales entries whose squares overflow; threads do not inherit its setting
def moments_step(lane: MomentsLane, job: Job, scratch: dict[str, Any]) -> None:
    """Scatter of one block about its own mean, merged into the lane by the pairwise update.

    A float32 block is multiplied in float32 and summed over blocks in float64. Where the mean is
    large against the spread, the product of raw entries would cancel, so the block's mean is taken
    off first (and from then on at once).
    """
    start, rows, fetch = job
    block = fetch(scratch)
    n = block.shape[1]
    w = None if lane.weights is None else lane.weights[start : start + rows]
    weight = float(rows) if w is None else float(w.sum())
    if weight <= 0:
        lane.moments.rows += rows
        return
    if w is None and not lane.shift_first and lane.blocks >= FEW:
        mean, probed = np.zeros((2, n))
        column_kernels.probed_sums(block, lane.moments.probe, mean, probed)
        mean /= rows
        if not np.isfinite(mean).all():
            refuse_bad(block, start)
        out = np.matmul(block.T, block, out=lane.room(scratch))
        if _raw_is_fine(mean, np.diagonal(out) / weight - mean * mean, lane.blocks):
            lane.take(rows, weight, mean, mean, out, probed)
            return
        lane.shift_first = True
    share = np.full(rows, 1.0 / rows, lane.dtype) if w is None else (w / weight).astype(lane.dtype)
    probe = lane.moments.probe.astype(lane.dtype)
    mean = share @ block
    if not np.isfinite(mean).all():
        refuse_bad(block, start)
    centered = np.subtract(
        block, mean, out=scratch_array(scratch, "centered", block.shape, lane.dtype)
    )
    if w is not None:
        centered *= np.sqrt(w).astype(lane.dtype)[:, None]
    out = np.matmul(centered.T, centered, out=lane.room(scratch))
    rest = np.zeros(n)
    spread = np.diagonal(out).astype(np.float64) / weight
    if w is not None or (mean.astype(np.float64) ** 2 > ROUNDED_MEAN * spread).any():
        root = None if w is None else np.sqrt(share)
        rest = ((share if w is None else root / np.sqrt(weight)) @ centered).astype(np.float64)
    lane.take(rows, weight, mean + rest, rest, out, (centered @ probe) @ centered)


def _raw_is_fine(mean: np.ndarray, variance: np.ndarray, blocks: int) -> bool:
    """Whether a product of raw entries, corrected by the mean afterwards, keeps its precision.

    Each entry of the product carries a few rounding units of m_i m_j; over independent blocks they
    average out, and as a random matrix their norm is about 2 sqrt(n) times that.
    """
    square, left = float(mean @ mean), float(variance.sum())
    return (
        left > 0
        and 6 * square * np.sqrt(len(mean) / blocks) <= ROUNDING * left
        and not (mean**2 > CANCELLATION * variance).any()
    )


@dataclass
class ProductLane:
    """Partial sums of one lane for ``gram_times`` and ``times_t``: not filled before the first
    block is there, so that no thread writes zeros for all."""

    total: np.ndarray
    v: np.ndarray
    mean: np.ndarray | None
    weights: np.ndarray | None = None
    offset: np.ndarray | None = None
    sums: Any = 0.0
    has_rows: bool = False

    def add(self, block: np.ndarray, y: np.ndarray, scratch: dict[str, Any]) -> None:
        """total += B^T Y."""
        if self.has_rows:
            out = scratch_array(scratch, "out", self.total.shape, self.total.dtype)
            self.total += np.matmul(block.T, y, out=out)
        else:
            self.has_rows = True
            np.matmul(block.T, y, out=self.total)


def gram_times_step(lane: ProductLane, job: Job, scratch: dict[str, Any]) -> None:
    """total += Bc^T diag(w) Bc V for one block, Bc = B - 1 mean^T, formed only in cache."""
    start, rows, fetch = job
    block = _centered(fetch(scratch), lane, scratch)
    y = np.matmul(
        block, lane.v, out=scratch_array(scratch, "y", (rows, lane.v.shape[1]), lane.v.dtype)
    )
    if lane.weights is not None:
        y *= lane.weights[start : start + rows, None]
    lane.add(block, y, scratch)


def raw_gram_times_step(lane: ProductLane, job: Job, scratch: dict[str, Any]) -> None:
    """total += B^T diag(w) (B V - 1 offset), offset = mean^T V; what the mean takes off is known
    from the sums of the bracket."""
    start, rows, fetch = job
    block = fetch(scratch)
    y = np.matmul(
        block, lane.v, out=scratch_array(scratch, "y", (rows, lane.v.shape[1]), lane.v.dtype)
    )
    y -= lane.offset
    if lane.weights is not None:
        y *= lane.weights[start : start + rows, None]
    lane.sums = lane.sums + y.sum(axis=0)
    lane.add(block, y, scratch)


def times_step(lane: ProductLane, job: Job, scratch: dict[str, Any]) -> None:
    """total[block] = Bc V."""
    start, rows, fetch = job
    np.matmul(
        _centered(fetch(scratch), lane, scratch), lane.v, out=lane.total[start : start + rows]
    )


def times_t_step(lane: ProductLane, job: Job, scratch: dict[str, Any]) -> None:
    """total += Bc^T Y[block]."""
    start, rows, fetch = job
    lane.add(_centered(fetch(scratch), lane, scratch), lane.v[start : start + rows], scratch)


def _centered(block: np.ndarray, lane: ProductLane, scratch: dict[str, Any]) -> np.ndarray:
    if lane.mean is None:
        return block
    return np.subtract(
        block, lane.mean, out=scratch_array(scratch, "centered", block.shape, block.dtype)
    )
