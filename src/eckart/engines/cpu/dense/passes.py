"""Row-block kernels on dense blocks: scatter, products with tall thin matrices. Level-3 BLAS, one block a call."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eckart.engines.cpu.row_blocks import Job, scratch_array
from eckart.engines.protocol import Moments, refuse_bad

CANCELLATION = 100.0
"""A column whose squared mean exceeds this many variances is centered before it is multiplied."""
ROUNDING = 80.0
"""Rounding units, of the average variance, that the product of raw entries may cost."""
ROUNDED_MEAN = 1e4
"""Beyond this ratio of squared mean to variance, what was lost in rounding the mean is measured and put back."""


@dataclass
class MomentsLane:
    """Partial statistics of the blocks dealt to one lane.

    Rank-one corrections c d d^T (a block's own mean, and the pairwise merge) are collected and applied 64 at a time as one product.
    """

    moments: Moments
    weights: np.ndarray | None
    dtype: np.dtype
    blocks: int = 1
    shift_first: bool = False
    ranks: list[tuple[float, np.ndarray]] = field(default_factory=list)

    def take(
        self, rows: int, weight: float, mean: np.ndarray, rest: np.ndarray, product: np.ndarray, probed: np.ndarray
    ) -> None:
        """Merge a block whose scatter about ``mean`` is product - weight rest rest^T."""
        m = self.moments
        total = m.weight + weight
        delta = mean - m.mean
        factor = m.weight * weight / total
        m.scatter += product
        m.probed += probed
        for c, d in ((-weight, rest), (factor, delta)):
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


def moments_step(lane: MomentsLane, job: Job, scratch: dict[str, Any]) -> None:
    """Scatter of one block about its own mean, merged into the lane by the pairwise update.

    A float32 block is multiplied in float32 and summed over blocks in float64. Where the mean is large against the spread, the
    product of raw entries would cancel, so the block's mean is taken off first (and from then on at once).
    """
    start, rows, fetch = job
    block = fetch(scratch)
    n = block.shape[1]
    w = None if lane.weights is None else lane.weights[start : start + rows]
    weight = float(rows) if w is None else float(w.sum())
    if weight <= 0:
        lane.moments.rows += rows
        return
    share = np.full(rows, 1.0 / rows, lane.dtype) if w is None else (w / weight).astype(lane.dtype)
    out = scratch_array(scratch, "gram", (n, n), lane.dtype)
    probe = lane.moments.probe.astype(lane.dtype)
    if w is None and not lane.shift_first:
        with np.errstate(invalid="ignore"):
            mean, probed = np.stack([share, block @ probe]) @ block
        if not np.isfinite(mean).all():
            refuse_bad(block, start)
        np.matmul(block.T, block, out=out)
        m = mean.astype(np.float64)
        if _raw_is_fine(m, np.diagonal(out) / weight - m * m, lane.blocks):
            lane.take(rows, weight, m, m, out, probed)
            return
        lane.shift_first = True
    mean = share @ block
    if not np.isfinite(mean).all():
        refuse_bad(block, start)
    centered = np.subtract(block, mean, out=scratch_array(scratch, "centered", block.shape, lane.dtype))
    if w is not None:
        centered *= np.sqrt(w).astype(lane.dtype)[:, None]
    np.matmul(centered.T, centered, out=out)
    rest = np.zeros(n)
    spread = np.diagonal(out).astype(np.float64) / weight
    if w is not None or (mean.astype(np.float64) ** 2 > ROUNDED_MEAN * spread).any():
        root = None if w is None else np.sqrt(share)
        rest = ((share if w is None else root / np.sqrt(weight)) @ centered).astype(np.float64)
    lane.take(rows, weight, mean + rest, rest, out, (centered @ probe) @ centered)


def _raw_is_fine(mean: np.ndarray, variance: np.ndarray, blocks: int) -> bool:
    """Whether a product of raw entries, corrected by the mean afterwards, keeps its precision.

    Each entry of the product carries a few rounding units of m_i m_j; over independent blocks they average out, and as a random matrix their norm is
    about 2 sqrt(n) times that. Data of few blocks are quick either way and always centered.
    """
    square, left = float(mean @ mean), float(variance.sum())
    return (
        blocks >= 16
        and left > 0
        and 6 * square * np.sqrt(len(mean) / blocks) <= ROUNDING * left
        and not (mean**2 > CANCELLATION * variance).any()
    )


@dataclass
class ProductLane:
    """Partial sums of one lane for ``gram_times`` and ``times_t``."""

    total: np.ndarray
    v: np.ndarray
    mean: np.ndarray | None
    weights: np.ndarray | None = None
    offset: np.ndarray | None = None
    sums: Any = 0.0


def gram_times_step(lane: ProductLane, job: Job, scratch: dict[str, Any]) -> None:
    """total += Bc^T diag(w) Bc V for one block, Bc = B - 1 mean^T, formed only in cache."""
    start, rows, fetch = job
    block = _centered(fetch(scratch), lane, scratch)
    y = np.matmul(block, lane.v, out=scratch_array(scratch, "y", (rows, lane.v.shape[1]), lane.v.dtype))
    if lane.weights is not None:
        y *= lane.weights[start : start + rows, None]
    out = scratch_array(scratch, "out", lane.total.shape, lane.v.dtype)
    lane.total += np.matmul(block.T, y, out=out)


def raw_gram_times_step(lane: ProductLane, job: Job, scratch: dict[str, Any]) -> None:
    """total += B^T diag(w) (B V - 1 offset), offset = mean^T V; what the mean takes off is known from the sums of the bracket."""
    start, rows, fetch = job
    block = fetch(scratch)
    y = np.matmul(block, lane.v, out=scratch_array(scratch, "y", (rows, lane.v.shape[1]), lane.v.dtype))
    y -= lane.offset
    if lane.weights is not None:
        y *= lane.weights[start : start + rows, None]
    lane.sums = lane.sums + y.sum(axis=0)
    out = scratch_array(scratch, "out", lane.total.shape, lane.v.dtype)
    lane.total += np.matmul(block.T, y, out=out)


def times_step(lane: ProductLane, job: Job, scratch: dict[str, Any]) -> None:
    """total[block] = Bc V."""
    start, rows, fetch = job
    np.matmul(_centered(fetch(scratch), lane, scratch), lane.v, out=lane.total[start : start + rows])


def misfit_step(lane: ProductLane, job: Job, scratch: dict[str, Any]) -> None:
    """total[block] = squared length of what U leaves of each centered row."""
    start, rows, fetch = job
    block = _centered(fetch(scratch), lane, scratch)
    rest = block - (block @ lane.v) @ lane.v.T
    lane.total[start : start + rows] = np.einsum("ij,ij->i", rest, rest, dtype=np.float64)


def times_t_step(lane: ProductLane, job: Job, scratch: dict[str, Any]) -> None:
    """total += Bc^T Y[block]."""
    start, rows, fetch = job
    lane.total += _centered(fetch(scratch), lane, scratch).T @ lane.v[start : start + rows]


def column_step(lane: ColumnLane, job: Job, scratch: dict[str, Any]) -> None:
    """Mean and squared deviation of each column of one block in float64, merged pairwise."""
    from eckart.engines.cpu.dense.columns import column_sums

    start, rows, fetch = job
    block = fetch(scratch)
    w = np.ones(rows) if lane.weights is None else np.asarray(lane.weights[start : start + rows], np.float64)
    weight = float(w.sum())
    if weight <= 0:
        return
    shift = block[0].astype(np.float64)
    total, square = np.zeros((2, block.shape[1]))
    column_sums(block, w, shift, total, square)
    if not np.isfinite(total).all():
        refuse_bad(block, start)
    lane.merge(rows, weight, shift + total / weight, np.maximum(square - total * total / weight, 0.0))


@dataclass
class ColumnLane:
    """Partial column statistics of one lane."""

    n: int
    weights: np.ndarray | None
    rows: int = 0
    weight: float = 0.0

    def __post_init__(self) -> None:
        self.mean, self.square = np.zeros(self.n), np.zeros(self.n)

    def merge(self, rows: int, weight: float, mean: np.ndarray, square: np.ndarray) -> None:
        if weight <= 0:
            return
        total = self.weight + weight
        delta = mean - self.mean
        self.square += square + delta**2 * (self.weight * weight / total)
        self.mean += delta * (weight / total)
        self.rows, self.weight = self.rows + rows, total


def _centered(block: np.ndarray, lane: ProductLane, scratch: dict[str, Any]) -> np.ndarray:
    if lane.mean is None:
        return block
    return np.subtract(block, lane.mean, out=scratch_array(scratch, "centered", block.shape, block.dtype))
