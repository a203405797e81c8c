"""Gaussian mixtures, as part of ``CpuEngine``: blocks of rows on lanes, sums about the present
means, merged in a fixed order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from eckart.engines.arrays.mixtures import ArrayMixtures
from eckart.engines.cpu.mixtures.layout import NO_ROWS, NONE, WIDE, MixtureSums, ParameterLayout
from eckart.engines.cpu.small import or_arrays
from eckart.engines.cpu.spread import by_rows
from eckart.engines.host import Host, place
from eckart.engines.protocol import GapsFound, refuse_bad
from eckart.engines.protocol.mixtures import (
    DIAGONAL,
    Gaussians,
    GaussianStatistics,
    GroupSums,
    Posteriors,
    raw_to_statistics,
)
from eckart.engines.row_blocks import THIN, Job, block_count, block_rows, jobs, watched_jobs
from eckart.loading import lazy
from eckart.scheduler import MOST_LANES, lanes_for, run_lanes
from eckart.trace import Watcher, silent

pool = lazy("eckart.engines.cpu.mixtures.pool_sums")
missing_kernels = lazy("eckart.engines.cpu.mixtures.missing_kernels")
wide_rows = lazy("eckart.engines.cpu.mixtures.layout")

BLOCK = 2**20
"""Bytes in a block of rows at the most: a few chunks of the kernels, little beside the sums."""
WORK = 2**28
"""Multiplications in a block at the most, some tens of milliseconds: about one block a lane, since
handing out many short ones kept threads waiting for Python's lock (in a profile at 16 threads)."""
LEAST = 2**20
"""The same at the least, some tenths of a millisecond: much more than handing the block to a thread
costs."""
SOME = 256
"""Rows in a block at the least: a chunk of the kernels, and enough for BLAS."""


def _many_inverses(engine: Any, x: Host, theta: Gaussians, *_: Any, **__: Any) -> bool:
    """Whether whole covariances meet missing entries in more than a few rows: an inverse for each
    component and pattern takes arrays 8 to 17 times as long as the kernel (20 ms against 1.1 for
    400 x 20 rows and k = 10; one thread of an AMD EPYC)."""
    if theta.kind not in ("tied", "full") or engine.lib.complete(x):
        return False
    return x.shape[0] * theta.n * theta.k > engine.small  # type: ignore[operator]


def _loadings(theta: Gaussians, **_: Any) -> int:
    return 2 * theta.loadings.size  # type: ignore[union-attr]


def _parameters(parameters: Any, **_: Any) -> int:
    """The statistics of a family are about as large as its parameters."""
    some = parameters.values() if isinstance(parameters, dict) else ()
    return sum(np.size(a) for a in some)


def _group_block(engine: Any, x: Host, centres: np.ndarray) -> GroupSums:
    """Each row to the group of its nearest centre: 3 times as fast as by a product with ones."""
    from eckart.engines.cpu.mixtures.kernels import group_rows

    c = np.ascontiguousarray(centres, np.float64)
    sums, half = GroupSums(np.zeros(len(c)), np.zeros(c.shape)), 0.5 * np.einsum("ij,ij->i", c, c)
    for rows, at in engine._complete(x, 16 * x.shape[1]):
        group_rows(rows, rows @ c.T, half, NONE if x.weights is None else x.weights[at], *sums)
    return sums


class MixturePrimitives(ArrayMixtures):
    """Mixtures on ``threads`` threads: kernels for Gaussians, array primitives for families, samples
    and covariances of low rank. numba is loaded when first needed."""

    # Time of arrays over that of kernels, complete rows, float64, one thread of an AMD EPYC:
    # gaussian_statistics of 50,000 x 20, k = 8: diag 5, full 5, tied 10; 8,000 x 256: full 14. Low
    # rank by arrays: 78 ms where pattern after pattern took 4,296 (20,000 x 50 rows, a tenth missing
    # at random, 5 factors, k = 3)
    threads: int
    check_family = by_rows(ArrayMixtures, "check_family", filled=True)
    family_statistics = by_rows(ArrayMixtures, "family_statistics", _parameters, filled=True)
    family_posteriors = by_rows(ArrayMixtures, "family_posteriors", filled=True)
    distances = by_rows(ArrayMixtures, "distances", filled=True)
    nearest = by_rows(ArrayMixtures, "nearest", filled=True)
    group_sums = by_rows(
        ArrayMixtures,
        "group_sums",
        lambda centres, **_: centres.size,
        kernel=_group_block,
        filled=True,
    )
    _low_rank_statistics = by_rows(ArrayMixtures, "gaussian_statistics", _loadings)
    _array_posteriors = by_rows(ArrayMixtures, "gaussian_posteriors")

    @or_arrays(ArrayMixtures, filled=True, unless=_many_inverses)
    def gaussian_statistics(self, x: Any, theta: Gaussians, watch: Watcher = silent) -> Any:
        if theta.kind == "factor":
            return self._low_rank_statistics(x, theta, watch)
        layout = ParameterLayout(theta)
        total = self._by_pool(x, layout, watch) or self._sums(
            x, layout, watch, lambda block, start, w, t, scratch: _add(layout, block, w, t, scratch)
        )
        return raw_to_statistics(theta, total.unpadded(layout))

    @or_arrays(ArrayMixtures, filled=True)
    def share_statistics(self, x: Any, shares: np.ndarray, kind: str) -> GaussianStatistics:
        x = place(x)
        q = np.asarray(shares, np.float64)
        q = q if x.weights is None else q * x.weights[:, None]
        counts = q.sum(axis=0)
        sums = self.times_t(x, q, None).T.astype(np.float64)  # type: ignore[attr-defined]
        if not np.isfinite(sums).all():
            self.check_family(x, None)  # says where
        means = sums / np.where(counts > 0, counts, 1.0)[:, None]
        # sums about the means alone are asked of the layout, so any variances do
        spread = {"full": np.empty((len(counts), 0, 0)), "tied": NO_ROWS}.get(
            kind, np.ones_like(means)
        )
        even = np.full(len(counts), 1.0 / len(counts))
        layout = ParameterLayout(
            Gaussians("diag" if kind in DIAGONAL else kind, even, means, spread), density=False
        )

        def add(
            block: np.ndarray, start: int, w: np.ndarray, t: MixtureSums, scratch: dict
        ) -> None:
            q = np.ascontiguousarray(shares[start : start + len(block)], np.float64)
            _add_complete(layout, block, q, w, t, scratch)

        total = self._sums(x, layout, silent, add)
        found = raw_to_statistics(layout.theta, total.unpadded(layout))
        return replace(found, kind=kind, bound=0.0)

    @or_arrays(ArrayMixtures, filled=True, unless=_many_inverses)
    def gaussian_posteriors(
        self, x: Any, theta: Gaussians, *, shares: bool = False, fill: bool = False
    ) -> Posteriors:
        x = place(x)
        if fill or theta.kind == "factor":
            return self._array_posteriors(x, theta, shares=shares, fill=fill)
        layout, complete = ParameterLayout(theta), x.checked and x.kind != "observed"
        found: dict[int, Any] = {}

        def step(_: Any, job: Job, scratch: dict[str, Any]) -> None:
            logs = _log_probs(block_of(job[2], scratch), job[0], theta, layout, scratch, complete)
            loglik, q = normalised(logs)
            found[job[0]] = (loglik, q) if shares else (loglik,)

        run_lanes(_cut(x, theta, silent)[0], list(range(MOST_LANES)), step, self.threads)
        parts = [found[start] for start in sorted(found)]
        return Posteriors(*map(np.concatenate, zip(*parts)))

    def _by_pool(self, x: Host, layout: ParameterLayout, watch: Watcher) -> MixtureSums | None:
        """The sums in compiled code alone, to the same bits, where the rows allow it."""
        if not pool.suits(x, layout, self.threads):
            return None
        height, rows = (
            block_rows(x.shape[1], x.dtype.itemsize, _block_bytes(x, layout.theta)),
            len(x.matrix.values),
        )
        found = pool.sums_by_pool(
            x, layout, height, _lanes(layout, _blocks(x, layout.theta)), self.threads
        )
        watch("reading rows", rows, rows)
        return found

    def _sums(
        self, x: Host, layout: ParameterLayout, watch: Watcher, add: Callable[..., None]
    ) -> MixtureSums:
        """Everything added up; a lane has sums of its own for all components."""
        complete = x.checked and x.kind != "observed"
        work, count = _cut(x, layout.theta, watch)
        lanes = MixtureSums.lanes(layout, _lanes(layout, count))
        found: list[int] = []

        def step(total: MixtureSums, job: Job, scratch: dict[str, Any]) -> None:
            start, rows, fetch = job
            block = block_of(fetch, scratch)
            w = NONE if x.weights is None else x.weights[start : start + rows]
            total.weight += float(rows) if x.weights is None else float(w.sum())
            gaps = None if complete else rows_with_gaps(block, start)
            if gaps is not None:
                found.append(start)
                _add_gaps(layout, block[gaps], w[gaps] if len(w) else w, total)
                if gaps.all():
                    return
                block, w = block[~gaps], w[~gaps] if len(w) else w
            if total.seen is None:
                add(block, start, w, total, scratch)
            else:
                before = total.counts.copy()
                add(block, start, w, total, scratch)
                total.seen += (total.counts - before)[:, None]

        run_lanes(work, lanes, step, self.threads)
        if x.kind == "dense" and not found:
            x.checked = True  # later passes need not look again
        return MixtureSums.total(lanes)


def _add(
    layout: ParameterLayout,
    block: np.ndarray,
    w: np.ndarray,
    t: MixtureSums,
    scratch: dict[str, Any],
) -> None:
    """Rows without gaps, with their shares under the components."""
    if not layout.wide:
        t.bound += layout.add(block, NO_ROWS, w, t, scratch)
        return
    loglik, q = normalised(_complete_log_probs(block, layout, scratch))
    t.bound += float(np.where(w > 0, w * loglik, 0.0).sum()) if len(w) else float(loglik.sum())
    _add_complete(layout, block, q, w, t, scratch)


def _add_complete(
    layout: ParameterLayout,
    block: np.ndarray,
    q: np.ndarray,
    w: np.ndarray,
    t: MixtureSums,
    scratch: dict[str, Any],
) -> None:
    """Rows without gaps, with shares that are given."""
    if layout.wide:
        wide_rows.add_rows(block, q * w[:, None] if len(w) else q, w, layout, t)
    else:
        layout.add(block, q, w, t, scratch)


def _add_gaps(layout: ParameterLayout, block: np.ndarray, w: np.ndarray, t: MixtureSums) -> None:
    """Rows with missing entries."""
    theta = layout.theta
    if theta.kind in DIAGONAL:
        parts, n = layout.observed_parts, theta.n
        if t.seen is None:
            t.seen = np.repeat(t.counts[:, None], n, axis=1)
        made = parts.of_rows(block)
        loglik, q = normalised(np.maximum(parts.logs(made), -1e300))
        counts, shift, scatter, seen = parts.sums(made, q * w[:, None] if len(w) else q)
        t.counts += counts
        t.seen += seen
        t.shift[:, :n] += shift
        t.scatter[:, 0, :n] += scatter
    else:
        loglik, _ = _gap_rows(layout, block, w, t)
    t.bound += float(np.where(w > 0, w * loglik, 0.0).sum()) if len(w) else float(loglik.sum())


def _gap_rows(
    layout: ParameterLayout, block: np.ndarray, w: np.ndarray, t: MixtureSums | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """log p and shares of rows with missing entries, under full or tied covariances; the rows are
    added to the sums."""
    kernels, theta = missing_kernels, layout.theta
    k, n = theta.k, theta.n
    gone = np.packbits(np.isnan(block), axis=1)
    order = np.lexsort(gone.T)  # rows with the same gaps side by side: they share their inverses
    loglik, q, stack = np.empty(len(block)), np.empty((len(block), k)), layout.gap_stack
    lanes = stack.constants.shape[1]
    shift, scatter = (
        np.zeros((0 if t is None else len(like), lanes)) for like in (stack.means, stack.spread)
    )
    rows: Any = kernels.gap_rows
    found = (np.empty_like(loglik), np.empty_like(q))
    rows(
        block[order],
        w[order] if len(w) else w,
        stack,
        *found,
        NONE if t is None else t.counts,
        shift,
        scatter,
    )
    loglik[order], q[order] = found
    if t is not None:
        t.shift[:, :n] += np.moveaxis(shift.reshape(-1, n, lanes), 2, 1).reshape(-1, n)[:k]
        sums = np.moveaxis(scatter.reshape(-1, n * n, lanes), 2, 1).reshape(-1, n, n)[:k]
        t.scatter[:, :n, :n] += sums if theta.kind == "full" else sums.sum(axis=0)
    return loglik, q


def _log_probs(
    block: np.ndarray,
    start: int,
    theta: Gaussians,
    layout: Any,
    scratch: dict[str, Any],
    complete: bool,
) -> np.ndarray:
    """rows x k: log weight + log density of what is there."""
    gaps = None if complete else rows_with_gaps(block, start)
    if gaps is None:
        return _complete_log_probs(block, layout, scratch)
    out = np.empty((len(block), theta.k))
    out[~gaps] = _complete_log_probs(np.ascontiguousarray(block[~gaps]), layout, scratch)
    if theta.kind in DIAGONAL:
        parts = layout.observed_parts
        out[gaps] = np.maximum(parts.logs(parts.of_rows(block[gaps])), -1e300)
    else:
        loglik, q = _gap_rows(layout, block[gaps], NONE)
        with np.errstate(divide="ignore"):
            out[gaps] = loglik[:, None] + np.log(q)
    return out


def _complete_log_probs(
    rows: np.ndarray, layout: ParameterLayout, scratch: dict[str, Any]
) -> np.ndarray:
    """The same for rows without gaps."""
    if layout.wide and layout.theta.kind == "full":
        return wide_rows.log_probs(rows, layout)
    return layout.log_probs(rows, scratch)


def rows_with_gaps(block: np.ndarray, start: int) -> np.ndarray | None:
    """Which rows miss an entry, None where none does; an infinity is refused."""
    with np.errstate(invalid="ignore", over="ignore"):
        if np.isfinite(block.sum()):
            return None
    try:
        refuse_bad(block, start)
    except GapsFound:
        return np.isnan(block).any(axis=1)
    return None


def _lanes(layout: ParameterLayout, blocks: int) -> int:
    return lanes_for(blocks, 8 * int(np.prod(layout.scatter_shape)))


def _block_bytes(x: Host, theta: Gaussians) -> int:
    """Bytes in a block: as many blocks as there may be lanes (or twice, three times as many), none
    too large or too small; by the shape only."""
    n, wide = theta.n, theta.n >= WIDE or theta.kind == "factor"
    row = n * x.dtype.itemsize
    most = THIN if wide else BLOCK  # larger blocks where BLAS works on them
    rows = x.shape[0]
    if rows is None:
        return most
    # multiplications for a row
    each = theta.k * n * (2 * n if theta.kind in ("tied", "full") else 8)
    least = max(SOME, LEAST // each)
    blocks = max(rows * row / most, rows * each / WORK if not wide else 0, MOST_LANES)
    blocks = MOST_LANES * int(np.ceil(blocks / MOST_LANES))
    return row * max(-(-rows // blocks), min(least, rows))


def _cut(x: Host, theta: Gaussians, watch: Watcher) -> tuple[Any, int]:
    """The blocks of x, and how many there are."""
    size = _block_bytes(x, theta)
    return jobs(x.matrix, size) if watch is silent else watched_jobs(
        x.matrix, watch, size
    ), _blocks(x, theta)


def _blocks(x: Host, theta: Gaussians) -> int:
    """How many blocks x has; many, where that is unknown."""
    return block_count(
        x.shape[0], max(1, _block_bytes(x, theta) // (theta.n * x.dtype.itemsize)), MOST_LANES
    )


def normalised(logp: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log sum_z exp and shares of each row."""
    top = logp.max(axis=1, keepdims=True)
    q = np.exp(logp - top)
    total = q.sum(axis=1, keepdims=True)
    q /= total
    return (top + np.log(total))[:, 0], q


def block_of(fetch: Callable[[dict], np.ndarray], scratch: dict) -> np.ndarray:
    return np.ascontiguousarray(fetch(scratch), np.float64)
