"""The primitives of mixtures, as part of ``CpuEngine``: blocks of rows on lanes, sums about the present means, merged in a fixed order."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.engines.cpu.mixtures.families import BLOCK, FamilyPrimitives, block_of, collect, normalised
from eckart.engines.cpu.mixtures.layout import Layout, Sums
from eckart.engines.cpu.mixtures.wide import WIDE
from eckart.engines.cpu.row_blocks import THIN, Job, jobs, scratch_array
from eckart.engines.protocol import GapsFound, refuse_bad
from eckart.engines.protocol.mixtures import (
    DIAGONAL,
    FactorStatistics,
    Gaussians,
    Posteriors,
    raw_to_statistics,
)
from eckart.matrix import Matrix
from eckart.scheduler import run_lanes
from eckart.trace import Watcher, silent

LANE_BYTES = 64 * 2**20
NO_WEIGHTS = np.empty(0)


class MixturePrimitives(FamilyPrimitives):
    """gaussian_statistics and gaussian_posteriors on ``threads`` threads, beside those of families; numba is loaded when first needed."""

    def gaussian_statistics(
        self, x: Matrix, theta: Gaussians, weights: np.ndarray | None = None, watch: Watcher = silent
    ) -> Any:
        step: Any
        lane: Any
        step, lane = (_factor_step, _FactorLane) if theta.kind == "factor" else (_step, _Lane)
        shared = None if theta.kind == "factor" else _layout(theta)
        lanes = [lane(theta, shared, weights) for _ in range(_lane_count(theta))]
        run_lanes(_watched(x, watch, theta), lanes, step, self.threads)
        if theta.kind != "factor":
            return raw_to_statistics(theta, _unpadded(theta, _total([lane.total for lane in lanes])))
        s = _total([lane.sums for lane in lanes])
        return FactorStatistics(theta.kind, s.weight, s.bound, s.counts, s.second, s.cross, s.square)

    def gaussian_posteriors(
        self, x: Matrix, theta: Gaussians, *, shares: bool = False, fill: bool = False
    ) -> Posteriors:
        layout = None if theta.kind == "factor" else _layout(theta)

        def work(block: np.ndarray, start: int, scratch: dict) -> tuple[np.ndarray, ...]:
            loglik, q = normalised(_log_probs(block, start, theta, layout, scratch))
            out: tuple[np.ndarray, ...] = (loglik, q) if shares or fill else (loglik,)
            if fill:
                from eckart.engines.cpu.mixtures.missing import expected

                out = (*out, *expected(block, q, theta))
            return out

        return collect(x, work, _block_bytes(theta), self.threads)


class _Lane:
    """Partial sums of the blocks dealt to one lane."""

    def __init__(self, theta: Gaussians, layout: Any, weights: np.ndarray | None):
        k, p = theta.k, layout.p
        shape = {"tied": (1, p, p), "full": (k, p, p)}.get(theta.kind, (k, p))
        self.layout, self.weights = layout, weights
        self.total = Sums(np.zeros(k), None, np.zeros((k, p)), np.zeros(shape))


def _unpadded(theta: Gaussians, t: Sums) -> Sums:
    """Without padding, and with both triangles."""
    n, scatter = theta.n, t.scatter
    if theta.kind in DIAGONAL:
        scatter = scatter[:, :n]
    else:
        scatter = np.ascontiguousarray(scatter[:, :n, :n])
        lower = np.tril_indices(n, -1)
        for s in scatter:
            s[lower] = s.T[lower]
        scatter = scatter[0] if theta.kind == "tied" else scatter
    return Sums(t.counts, t.seen, t.shift[:, :n], scatter, t.weight, t.bound)


def _step(lane: _Lane, job: Job, scratch: dict[str, Any]) -> None:
    """Add one block."""
    start, rows, fetch = job
    block = block_of(fetch, scratch)
    w = NO_WEIGHTS if lane.weights is None else np.ascontiguousarray(lane.weights[start : start + rows], np.float64)
    lane.total.weight += float(rows) if lane.weights is None else float(w.sum())
    gaps = _rows_with_gaps(block, start)
    if gaps is not None:
        _add_gaps(lane, block[gaps], w[gaps] if len(w) else w)
        if gaps.all():
            return
        block, w = block[~gaps], w[~gaps] if len(w) else w
    if lane.total.seen is not None:
        before = lane.total.counts.copy()
        _add_complete(lane, block, w, scratch)
        lane.total.seen += (lane.total.counts - before)[:, None]
    else:
        _add_complete(lane, block, w, scratch)


def _add_complete(lane: _Lane, block: np.ndarray, w: np.ndarray, scratch: dict[str, Any]) -> None:
    m, t, kernels, kind = lane.layout, lane.total, lane.layout.kernels, lane.layout.theta.kind
    xc, xt, logp, spare = m.buffers(scratch)
    pair = scratch_array(scratch, "pair", (2, 4, m.p), np.float64)
    if kind in DIAGONAL:
        rows = scratch_array(scratch, "rows", (m.rows + 4,), np.int64)
        t.bound += kernels.diagonal_statistics(
            block, w, m.origin, m.centres, m.near, m.scales, m.offsets, m.constants,
            xc, xt, logp, spare, rows, pair, t.counts, t.shift, t.scatter,
        )  # fmt: skip
        return
    if m.wide:
        from eckart.engines.cpu.mixtures import wide as mixture_wide

        loglik, q = normalised(_complete_log_probs(block, m, scratch))
        t.bound += float(np.where(w > 0, w * loglik, 0.0).sum()) if len(w) else float(loglik.sum())
        mixture_wide.add_rows(block, q * w[:, None] if len(w) else q, w, m, t)
        return
    packed = scratch_array(scratch, "packed", (m.rows, m.p), np.float64)
    packed[:, m.theta.n :] = 0.0
    if kind == "full":
        t.bound += kernels.full_statistics(
            block, w, m.origin, m.centres, m.panels, m.constants,
            xc, xt, logp, spare, packed, t.counts, t.shift, t.scatter,
        )  # fmt: skip
    else:
        t.bound += kernels.tied_statistics(
            block, m.white(block), w, m.origin, m.centres, m.near, m.scales, m.offsets, m.constants,
            xc, xt, logp, spare, packed, pair, t.counts, t.shift, t.scatter,
        )  # fmt: skip


def _add_gaps(lane: _Lane, block: np.ndarray, w: np.ndarray) -> None:
    """Rows with missing entries."""
    m, t, theta = lane.layout, lane.total, lane.layout.theta
    if theta.kind in DIAGONAL:
        from eckart.engines.cpu.mixtures import missing as mixture_gaps

        loglik, q = normalised(mixture_gaps.diagonal_log_probs(block, theta))
        if t.seen is None:
            t.seen = np.repeat(t.counts[:, None], theta.n, axis=1)
        mixture_gaps.add_diagonal(block, q * w[:, None] if len(w) else q, theta, t)
    else:
        from eckart.engines.cpu.mixtures.missing_kernels import gap_rows

        loglik, q = np.empty(len(block)), np.empty((len(block), theta.k))
        spread, precision, roots = m.stacks()
        rows: Any = gap_rows
        rows(block, w, theta.means, spread, precision, roots, m.constants, loglik, q, t.counts, t.shift, t.scatter)
    t.bound += float(np.where(w > 0, w * loglik, 0.0).sum()) if len(w) else float(loglik.sum())


class _FactorLane:
    def __init__(self, theta: Gaussians, layout: Any, weights: np.ndarray | None):
        from eckart.engines.cpu.mixtures.factor import FactorSums

        self.theta, self.weights, self.sums = theta, weights, FactorSums.of(theta)


def _factor_step(lane: _FactorLane, job: Job, scratch: dict[str, Any]) -> None:
    from eckart.engines.cpu.mixtures.factor import add_rows, log_probs

    start, rows, fetch = job
    block = block_of(fetch, scratch)
    _rows_with_gaps(block, start)
    loglik, q = normalised(log_probs(block, lane.theta))
    if lane.weights is not None:
        w = lane.weights[start : start + rows]
        q, loglik = q * w[:, None], np.where(w > 0, w * loglik, 0.0)
    lane.sums.weight += float(rows) if lane.weights is None else float(w.sum())
    lane.sums.bound += float(loglik.sum())
    add_rows(block, q, lane.theta, lane.sums)


def _log_probs(block: np.ndarray, start: int, theta: Gaussians, layout: Any, scratch: dict[str, Any]) -> np.ndarray:
    """rows x k: log weight + log density of what is there."""
    if theta.kind == "factor":
        from eckart.engines.cpu.mixtures.factor import log_probs

        _rows_with_gaps(block, start)
        return log_probs(block, theta)
    gaps = _rows_with_gaps(block, start)
    whole = block if gaps is None else np.ascontiguousarray(block[~gaps])
    part = _complete_log_probs(whole, layout, scratch)
    if gaps is None:
        return part
    out = np.empty((len(block), theta.k))
    out[~gaps] = part
    if theta.kind in DIAGONAL:
        from eckart.engines.cpu.mixtures import missing as mixture_gaps

        out[gaps] = mixture_gaps.diagonal_log_probs(block[gaps], theta)
    else:
        from eckart.engines.cpu.mixtures.missing_kernels import gap_rows

        loglik, q, none = np.empty(int(gaps.sum())), np.empty((int(gaps.sum()), theta.k)), np.empty((0, 0))
        spread, precision, roots = layout.stacks()
        rows: Any = gap_rows
        rows(
            block[gaps], NO_WEIGHTS, theta.means, spread, precision, roots, layout.constants,
            loglik, q, NO_WEIGHTS, none, np.empty((1, 0, 0)),
        )  # fmt: skip
        with np.errstate(divide="ignore"):
            out[gaps] = loglik[:, None] + np.log(q)
    return out


def _complete_log_probs(rows: np.ndarray, m: Layout, scratch: dict[str, Any]) -> np.ndarray:
    """The same for rows without gaps."""
    theta, kernels = m.theta, m.kernels
    if m.wide and theta.kind == "full":
        from eckart.engines.cpu.mixtures import wide as mixture_wide

        return mixture_wide.log_probs(rows, m)
    out = np.empty((len(rows), theta.k))
    xc, xt, logp, _ = m.buffers(scratch)
    if theta.kind == "full":
        kernels.triangular_log_probs(rows, m.origin, m.centres, m.panels, m.constants, xc, xt, logp, out)
    else:
        given, origin = (m.white(rows), m.zero) if theta.kind == "tied" else (rows, m.origin)
        kernels.diagonal_log_probs(given, origin, m.scales, m.offsets, m.constants, xc, xt, logp, out)
    return out


def _layout(theta: Gaussians) -> Layout:
    return Layout(theta, theta.n >= WIDE and theta.kind in ("tied", "full"))


def _block_bytes(theta: Gaussians) -> int:
    """Larger blocks where BLAS works on them."""
    return THIN if theta.n >= WIDE or theta.kind == "factor" else BLOCK


def log_densities(block: np.ndarray, theta: Gaussians) -> np.ndarray:
    """rows x k: log density of what is there, without the weights."""
    block = np.ascontiguousarray(block, np.float64)
    return _log_probs(block, 0, theta, None if theta.kind == "factor" else _layout(theta), {}) - theta.log_weights


def _rows_with_gaps(block: np.ndarray, start: int) -> np.ndarray | None:
    """Which rows miss an entry, None where none does; an infinity is refused."""
    with np.errstate(invalid="ignore", over="ignore"):
        if np.isfinite(block.sum()):
            return None
    try:
        refuse_bad(block, start)
    except GapsFound:
        return np.isnan(block).any(axis=1)
    return None


def _watched(x: Matrix, watch: Watcher, theta: Gaussians) -> Any:
    for job in jobs(x, _block_bytes(theta)):
        yield job
        watch("reading rows", job[0] + job[1], x.shape[0])


def _lane_count(theta: Gaussians) -> int:
    """2 to 8 by the size of the sums only."""
    size = {"tied": theta.n**2, "full": theta.k * theta.n**2}.get(theta.kind, 4 * theta.means.size)
    if theta.loadings is not None:
        size = 2 * theta.loadings.size
    return int(2 ** np.clip(np.log2(LANE_BYTES / (8 * size)), 1, 3))


def _total(parts: list[Any]) -> Any:
    """Everything added up, in order."""
    first = parts[0]
    wide = next((part.seen.shape[1] for part in parts if getattr(part, "seen", None) is not None), 0)
    for part in parts if wide else ():
        if part.seen is None:
            part.seen = np.repeat(part.counts[:, None], wide, axis=1)
    for part in parts[1:]:
        for name, value in vars(part).items():
            if isinstance(value, np.ndarray):
                getattr(first, name).__iadd__(value)
            elif value is not None:
                setattr(first, name, getattr(first, name) + value)
    return first
