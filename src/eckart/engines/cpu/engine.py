"""CpuEngine: the primitives of ``protocol`` by row blocks on threads."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from eckart.engines.cpu.dense import passes as dense
from eckart.engines.cpu.dense import thin as tall
from eckart.engines.cpu.dense.linear import eigh_top, orth
from eckart.engines.cpu.mixtures.primitives import MixturePrimitives
from eckart.engines.cpu.parts.primitives import NonnegativePrimitives
from eckart.engines.cpu.ridge.primitives import CompletionPrimitives
from eckart.engines.cpu.row_blocks import SQUARE, THIN, Job, block_rows, jobs
from eckart.engines.cpu.topics.primitives import TopicPrimitives
from eckart.engines.cpu.words.glove import GlovePrimitives
from eckart.engines.cpu.words.primitives import PairPrimitives
from eckart.engines.cpu.words.windows import SkipGramPrimitives
from eckart.engines.host import Host, place
from eckart.engines.protocol import ColumnMoments, GapCodes, GapStatistics, Keeper, Moments
from eckart.matrix import Counts, Dense, Matrix, Observed
from eckart.scheduler import resolve_threads, run_lanes, single_threaded_blas
from eckart.trace import Watcher, silent

LANE_BYTES = 48 * 2**20
"""Partial sums of all lanes together stay under this where the shape allows."""


SEGMENT = 16
"""Blocks a lane between two points at which the state of a pass can be kept."""


class CpuEngine(
    CompletionPrimitives,
    TopicPrimitives,
    MixturePrimitives,
    NonnegativePrimitives,
    PairPrimitives,
    GlovePrimitives,
    SkipGramPrimitives,
):
    """BLAS and numba on row blocks; results do not depend on ``n_threads``."""

    name = "cpu"

    def __init__(self, n_threads: int | None = None):
        self.threads = resolve_threads(n_threads)

    def put(self, matrix: Matrix, weights: np.ndarray | None = None, entry_weights: np.ndarray | None = None) -> Host:
        return place(matrix, weights, entry_weights)

    def tiled(self, matrix: Matrix) -> Matrix:
        """Sparse rows laid out for repeated products (until ``put`` does so)."""
        if not isinstance(matrix, Counts):
            return matrix
        from eckart.engines.cpu.entries.tiles import in_tiles

        return in_tiles(matrix, self.threads)

    def take(self, array: np.ndarray, dtype: Any = None) -> np.ndarray:
        return np.ascontiguousarray(array, dtype)

    def get(self, array: np.ndarray) -> np.ndarray:
        return np.asarray(array)

    def normal(self, seed: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        return np.random.default_rng(seed).standard_normal(shape).astype(dtype)

    def at_work(self) -> Any:
        return single_threaded_blas()

    def moments(
        self,
        x: Dense | Counts,
        probe: np.ndarray,
        weights: np.ndarray | None = None,
        watch: Watcher = silent,
        keeper: Keeper | None = None,
    ) -> Moments:
        n = x.shape[1]
        large = x.shape[0] is None or x.shape[0] * n * n >= 2**40
        count = min(8 if large else 4, _lanes(n * n * (16 + x.dtype.itemsize)))
        blocks = max(1, (x.shape[0] or 1) // block_rows(n, x.dtype.itemsize))
        lanes = [dense.MomentsLane(Moments.empty(n, probe), weights, x.dtype, blocks) for _ in range(count)]
        done = dense.restore_lanes(lanes, keeper.load() if keeper else None)
        work = itertools.islice(_watched(x, watch, SQUARE), done, None)
        while True:
            segment = _Counted(itertools.islice(work, SEGMENT * count))
            run_lanes(segment, lanes, dense.moments_step, self.threads)
            if segment.count == 0:
                break
            for lane in lanes:  # at the end of every segment, kept or not, so that a resumed run has the same bits
                lane.flush()
            done += segment.count
            if keeper:
                keeper.save(done, dense.lanes_state(lanes))
        for lane in lanes[1:]:
            lanes[0].moments.merge_with(lane.moments)
        return lanes[0].moments

    def column_moments(
        self, x: Dense | Counts, weights: np.ndarray | None = None, watch: Watcher = silent
    ) -> ColumnMoments:
        n = x.shape[1]
        if isinstance(x, Counts):
            return self._sparse_columns(x, weights)
        lanes = [dense.ColumnLane(n, weights) for _ in range(8)]
        run_lanes(_watched(x, watch), lanes, dense.column_step, self.threads)
        for lane in lanes[1:]:
            lanes[0].merge(lane.rows, lane.weight, lane.mean, lane.square)
        return ColumnMoments(lanes[0].rows, lanes[0].weight, lanes[0].mean, lanes[0].square)

    def times(self, x: Dense | Counts, v: np.ndarray, mean: np.ndarray | None) -> np.ndarray:
        v = self._thin(x, v)
        if isinstance(x, Counts):
            from eckart.engines.cpu.entries.sparse import times_rows

            out = np.empty((x.shape[0], v.shape[1]), x.dtype)
            self._over_rows(x, lambda a, b: times_rows(x.indptr, x.indices, x.data, v, a, b, out))
            return out if mean is None else np.subtract(out, (mean @ v).astype(x.dtype), out=out)
        if x.shape[0] is None:
            parts = [self.times(Dense(f({})), v, mean) for _, _, f in jobs(x)]
            return np.concatenate(parts)
        out = np.empty((x.shape[0], v.shape[1]), x.dtype)
        lanes = [dense.ProductLane(out, v, _cast(mean, x.dtype)) for _ in range(8)]
        run_lanes(jobs(x), lanes, dense.times_step, self.threads)
        return out if mean is None else _finer_mean(out, v, mean)

    def times_t(self, x: Dense | Counts, y: np.ndarray, mean: np.ndarray | None) -> np.ndarray:
        y = np.ascontiguousarray(y, dtype=x.dtype)
        shape = (x.shape[1], y.shape[1])
        if isinstance(x, Counts):
            from eckart.engines.cpu.entries.sparse import times_t_rows

            def work(a: int, b: int, total: np.ndarray) -> None:
                times_t_rows(x.indptr, x.indices, x.data, y, a, b, total)

            total = self._sum_over_rows(x, shape, work)
            return total if mean is None else (total - np.outer(mean, y.sum(axis=0, dtype=np.float64))).astype(x.dtype)
        return self._dense_sum(x, dense.times_t_step, shape, y, mean, None)

    def gram_times(
        self,
        x: Dense | Counts,
        v: np.ndarray,
        mean: np.ndarray | None,
        weights: np.ndarray | None = None,
        implicit: bool = False,
    ) -> np.ndarray:
        v = self._thin(x, v)
        if not isinstance(x, Counts):
            if implicit and mean is not None:
                return self._implicit_gram_times(x, v, mean, _cast(weights, x.dtype))
            return self._dense_sum(x, dense.gram_times_step, v.shape, v, mean, _cast(weights, x.dtype))
        w = np.empty(0, x.dtype) if weights is None else np.asarray(weights, x.dtype)
        total = self._sparse_gram_times(x, v, w)
        if mean is not None:
            weight = float(x.shape[0]) if weights is None else float(np.sum(weights, dtype=np.float64))
            total -= np.outer((weight * mean).astype(x.dtype), mean.astype(x.dtype) @ v)
        return total

    def _implicit_gram_times(self, x: Dense, v: np.ndarray, mean: np.ndarray, weights: Any) -> np.ndarray:
        """The same without a centered copy of each block."""
        offset = (mean @ v).astype(x.dtype)
        count = min(4, _lanes(v.size * x.dtype.itemsize * 2))
        lanes = [dense.ProductLane(np.zeros(v.shape, x.dtype), v, None, weights, offset) for _ in range(count)]
        run_lanes(jobs(x), lanes, dense.raw_gram_times_step, self.threads)
        total = _tree_sum([lane.total for lane in lanes])
        total -= np.outer(mean, np.sum([lane.sums + np.zeros(v.shape[1]) for lane in lanes], axis=0)).astype(x.dtype)
        return total

    def _sparse_gram_times(self, x: Counts, v: np.ndarray, w: np.ndarray) -> np.ndarray:
        """A^T diag(w) A V by the kernel that fits: one vector, tiles, or plain rows."""
        from eckart.engines.cpu.entries.sparse import gram_times_rows, gram_times_vector_rows
        from eckart.engines.cpu.entries.tiles import TiledCounts

        if isinstance(x, TiledCounts) and v.shape[1] >= 4:
            return self._tiled_gram_times(x, v, w)

        def work(a: int, b: int, total: np.ndarray) -> None:
            if v.shape[1] == 1:
                gram_times_vector_rows(x.indptr, x.indices, x.data, v[:, 0], w, a, b, total[:, 0])
            else:
                gram_times_rows(x.indptr, x.indices, x.data, v, w, a, b, total)

        return self._sum_over_rows(x, v.shape, work)

    def _tiled_gram_times(self, x: Any, v: np.ndarray, w: np.ndarray) -> np.ndarray:
        from eckart.engines.cpu.entries.tiles import tile_gram_times
        from eckart.engines.cpu.registers.prefetch import aligned_zeros

        def step(total: np.ndarray, c: int, scratch: dict) -> None:
            if "y" not in scratch:
                scratch["y"] = aligned_zeros((min(x.chunk, x.shape[0]), v.shape[1]), x.dtype)
            first = c * x.chunk
            y = scratch["y"][: min(x.chunk, x.shape[0] - first)]
            tile_gram_times(x.starts[c], x.local, x.values, v, w, first, y, total)

        lanes = [aligned_zeros(v.shape, x.dtype) for _ in range(_lanes(v.size * x.dtype.itemsize))]
        run_lanes(range(len(x.starts)), lanes, step, self.threads)
        return _tree_sum(lanes)

    def misfit(self, x: Dense | Counts, u: np.ndarray, mean: np.ndarray) -> np.ndarray:
        if isinstance(x, Counts):
            codes = self.times(x, u, mean).astype(np.float64)
            inside = np.einsum("ij,ij->i", codes, codes)
            square = Counts(x.indptr, x.indices, x.data * (x.data - 2 * mean[x.indices].astype(x.dtype)), x.n_columns)
            return np.maximum(
                self.times(square, np.ones((x.shape[1], 1)), None)[:, 0] + float(mean @ mean) - inside, 0.0
            )
        if x.shape[0] is None:
            return np.concatenate([self.misfit(Dense(f({})), u, mean) for _, _, f in jobs(x)])
        lanes = [dense.ProductLane(np.empty(x.shape[0]), self._thin(x, u), _cast(mean, x.dtype))] * 8
        run_lanes(jobs(x), lanes, dense.misfit_step, self.threads)
        return lanes[0].total

    def row_gram(self, x: Dense | Counts, mean: np.ndarray | None) -> np.ndarray:
        rows, n = x.shape
        assert rows is not None
        width = max(1, 2**22 // max(1, rows * x.dtype.itemsize))
        columns: Any = x.to_scipy().tocsc() if isinstance(x, Counts) else x.array

        def step(total: np.ndarray, first: int, scratch: dict) -> None:
            part = columns[:, first : first + width]
            part = np.asarray(part.toarray() if isinstance(x, Counts) else part, x.dtype)
            part = part - (0 if mean is None else mean[first : first + width].astype(x.dtype))
            total += part @ part.T

        lanes = [np.zeros((rows, rows)) for _ in range(_lanes(rows * rows * 8))]
        run_lanes(range(0, n, width), lanes, step, self.threads)
        return _tree_sum(lanes)

    def orth(self, v: np.ndarray, against: np.ndarray | None = None) -> np.ndarray:
        return orth(v, against, self.threads)

    def inner(self, q: np.ndarray, w: np.ndarray) -> np.ndarray:
        return tall.inner(q, w, self.threads)

    def outer(self, q: np.ndarray, s: np.ndarray) -> np.ndarray:
        return tall.outer(q, s, self.threads)

    def eigh_top(self, c: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        return eigh_top(c, k)

    def gap_statistics(
        self, x: Observed, w: np.ndarray, mean: np.ndarray, noise: float, weights: np.ndarray | None
    ) -> GapStatistics:
        return _gap_kernels(x).gap_statistics(x, w, mean, noise, weights, self.threads)

    def gap_codes(self, x: Observed, w: np.ndarray, mean: np.ndarray, noise: float) -> GapCodes:
        return _gap_kernels(x).gap_codes(x, w, mean, noise, self.threads)

    @staticmethod
    def _thin(x: Dense | Counts, v: np.ndarray) -> np.ndarray:
        """V in working precision; for sparse products its rows start on cache lines."""
        if not isinstance(x, Counts) or v.shape[1] == 1:
            return np.ascontiguousarray(v, dtype=x.dtype)
        from eckart.engines.cpu.registers.prefetch import aligned_zeros

        out = aligned_zeros(v.shape, x.dtype)
        out[:] = v
        return out

    def _dense_sum(
        self, x: Dense, step: Any, shape: tuple[int, int], v: np.ndarray, mean: Any, weights: Any
    ) -> np.ndarray:
        count = min(4, _lanes(int(np.prod(shape)) * x.dtype.itemsize * 2))
        center = _cast(mean, x.dtype)
        lanes = [dense.ProductLane(np.zeros(shape, x.dtype), v, center, weights) for _ in range(count)]
        run_lanes(jobs(x), lanes, step, self.threads)
        return _tree_sum([lane.total for lane in lanes])

    def _over_rows(self, x: Counts, work: Any) -> None:
        from eckart.engines.cpu.entries.sparse import balanced

        parts = balanced(x.indptr, 32)
        run_lanes(parts, list(range(len(parts))), lambda _, part, scratch: work(*part), self.threads)

    def _sum_over_rows(self, x: Counts, shape: tuple[int, int], work: Any) -> np.ndarray:
        from eckart.engines.cpu.entries.sparse import balanced
        from eckart.engines.cpu.registers.prefetch import aligned_zeros

        lanes = [aligned_zeros(shape, x.dtype) for _ in range(_lanes(int(np.prod(shape)) * x.dtype.itemsize))]
        run_lanes(balanced(x.indptr, len(lanes)), lanes, lambda total, part, scratch: work(*part, total), self.threads)
        return _tree_sum(lanes)

    def _sparse_columns(self, x: Counts, weights: np.ndarray | None) -> ColumnMoments:
        from eckart.engines.cpu.entries.sparse import balanced, column_sums_rows

        _refuse_bad_entries(x)
        w = np.empty(0) if weights is None else np.asarray(weights, np.float64)
        lanes = [np.zeros((2, x.shape[1])) for _ in range(4)]

        def step(sums: np.ndarray, part: tuple[int, int], scratch: dict) -> None:
            column_sums_rows(x.indptr, x.indices, x.data, w, *part, sums[0], sums[1])

        run_lanes(balanced(x.indptr, 4), lanes, step, self.threads)
        total, square = _tree_sum(lanes)
        weight = float(x.shape[0]) if weights is None else float(w.sum())
        mean = total / weight if weight > 0 else total
        return ColumnMoments(x.shape[0], weight, mean, np.maximum(square - weight * mean**2, 0.0))


def _gap_kernels(x: Observed) -> Any:
    """Mask products where many entries are observed, rows of entries where few are."""
    if x.nnz >= 0.05 * x.shape[0] * x.shape[1]:
        from eckart.engines.cpu.dense import missing_masks as gaps_dense

        return gaps_dense
    from eckart.engines.cpu.dense import missing_rows as gaps

    return gaps


def _lanes(lane_bytes: int) -> int:
    """A power of two from 2 to 8, by the size of a partial sum only."""
    return 2 ** int(np.clip(np.log2(LANE_BYTES / max(1, lane_bytes)), 1, 3))


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
    lost = (mean - mean.astype(out.dtype)) @ v
    return np.subtract(out, lost.astype(out.dtype), out=out) if lost.any() else out


def _tree_sum(parts: list[np.ndarray]) -> np.ndarray:
    """Pairwise sum in place, in a fixed order."""
    while len(parts) > 1:
        for a, b in zip(parts[::2], parts[1::2]):
            a += b
        parts = parts[::2]
    return parts[0]


def _watched(x: Any, watch: Watcher, size: int = THIN):
    """The jobs of x, reporting rows as they are handed out."""
    total = x.shape[0]
    job: Job
    for job in jobs(x, size):
        yield job
        watch("reading rows", job[0] + job[1], total)


def _refuse_bad_entries(x: Counts) -> None:
    from eckart.engines.protocol import GapsFound
    from eckart.errors import InputError

    if np.isfinite(x.data.sum(dtype=np.float64)):
        return
    bad = ~np.isfinite(x.data)
    if bad.any():
        at = int(np.argmax(bad))
        row = int(np.searchsorted(x.indptr, at, side="right")) - 1
        if np.isnan(x.data[at]):
            raise GapsFound(row, int(x.indices[at]))
        raise InputError(
            f"X contains inf at row {row}, column {int(x.indices[at])}, wanted finite numbers; replace it or mark it NaN"
        )
