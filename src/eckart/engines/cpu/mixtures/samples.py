"""Samples of rows and their groups, as part of ``CpuEngine``: what the starts of mixtures are made
of.

Mixtures of any family, as part of ``CpuEngine``: blocks of rows are handed to the family, what
it makes of them is merged in a fixed order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from eckart.engines.arrays.samples import ArraySamples
from eckart.engines.cpu.mixtures.layout import NONE
from eckart.engines.cpu.small import or_arrays
from eckart.engines.host import Host, place
from eckart.engines.protocol import GapsFound, refuse_bad
from eckart.engines.protocol.mixtures import TINY, GroupSums, Posteriors
from eckart.engines.row_blocks import Job, block_rows, jobs, scratch_array
from eckart.errors import EckartError
from eckart.loading import lazy
from eckart.scheduler import MOST_LANES, lanes_for, run_lanes

sample_kernels = lazy("eckart.engines.cpu.mixtures.sample_kernels")

WORK = 2**20
"""Multiplications in a block of rows at the least, some tenths of a millisecond: much more than
handing it to a thread costs."""


ROWS = 2**21
"""Bytes in a block of rows that are only copied or looked at."""


class SamplePrimitives:
    """rows_at, gap_patterns, distances, group_sums and nearest on ``threads`` threads."""

    threads: int

    @or_arrays(ArraySamples, filled=True)
    def rows_at(self, x: Any, rows: np.ndarray | None = None) -> np.ndarray:
        x, found = place(x), dict[int, Any]()
        rows = (
            rows
            if rows is None or x.shape[0] is None
            else rows[: np.searchsorted(rows, x.shape[0])]
        )
        out = None if rows is None else np.empty((len(rows), x.shape[1]), x.dtype)

        def step(_: Any, job: Job, scratch: dict) -> None:
            start, count, fetch = job
            if rows is None or out is None:
                found[start] = np.array(fetch(scratch))
                return
            a, b = np.searchsorted(rows, [start, start + count])
            if a < b:
                np.take(fetch(scratch), rows[a:b] - start, axis=0, out=out[a:b], mode="clip")
                found[start] = out[a:b]

        last = np.inf if rows is None else rows[-1]
        work = itertools.takewhile(lambda job: job[0] <= last, jobs(x.matrix, ROWS))
        run_lanes(work, list(range(MOST_LANES)), step, self.threads)
        if out is not None:
            return out[: sum(len(part) for part in found.values())]
        return np.concatenate([found[start] for start in sorted(found)])

    @or_arrays(ArraySamples, filled=True)
    def gap_patterns(self, x: Any) -> list[tuple[np.ndarray, np.ndarray]]:
        x, found = place(x), dict[int, Any]()

        def step(_: Any, job: Job, scratch: dict) -> None:
            found[job[0]] = [
                (rows + job[0], seen) for rows, seen in _patterns(np.asarray(job[2](scratch)))
            ]

        run_lanes(jobs(x.matrix, ROWS), list(range(MOST_LANES)), step, self.threads)
        groups: dict[bytes, list[np.ndarray]] = {}
        masks: dict[bytes, np.ndarray] = {}
        for start in sorted(found):
            for rows, seen in found[start]:
                groups.setdefault(seen.tobytes(), []).append(rows)
                masks[seen.tobytes()] = seen
        return [(np.concatenate(rows), masks[key]) for key, rows in groups.items()]

    @or_arrays(ArraySamples, filled=True)
    def distances(self, x: Any, centres: np.ndarray) -> np.ndarray:
        x, c = place(x), np.ascontiguousarray(centres, np.float64)
        out: Any = np.empty((len(c), x.shape[0]))  # the columns of the result lie together

        def step(_: Any, job: Job, scratch: dict) -> None:
            sample_kernels.squared_distances(
                block_of(job[2], scratch), c, out[:, job[0] : job[0] + job[1]]
            )

        self._groups(x, len(c), step)
        return out.T

    @or_arrays(ArraySamples, filled=True)
    def group_sums(self, x: Any, centres: np.ndarray) -> GroupSums:
        x, half = place(x), 0.5 * np.einsum("ij,ij->i", centres, centres)

        def step(sums: GroupSums, job: Job, scratch: dict) -> None:
            block = block_of(job[2], scratch)
            products = np.dot(
                block,
                centres.T,
                out=scratch_array(scratch, "products", (len(block), len(half)), float),
            )
            sample_kernels.group_rows(block, products, half, _weights(x, job), *sums)

        return self._groups(x, len(half), step)

    @or_arrays(ArraySamples, filled=True)
    def nearest(self, x: Any, centres: np.ndarray) -> np.ndarray:
        x, half = place(x), 0.5 * np.einsum("ij,ij->i", centres, centres)
        labels: Any = np.empty(x.shape[0], np.int64)

        def step(_: Any, job: Job, scratch: dict) -> None:
            products = block_of(job[2], scratch) @ centres.T
            np.argmin(
                np.subtract(half, products, out=products),
                axis=1,
                out=labels[job[0] : job[0] + job[1]],
            )

        self._groups(x, len(half), step)
        return labels

    def sums_by_share(self, x: Host, shares: np.ndarray) -> GroupSums:
        """Sums of w q and of w q x for shares (rows x k) that are given."""

        def step(sums: GroupSums, job: Job, scratch: dict) -> None:
            q, w = shares[job[0] : job[0] + job[1]], _weights(x, job)
            q = q * w[:, None] if len(w) else q
            sums.counts[:] += q.sum(axis=0)
            sums.sums[:] += q.T @ block_of(job[2], scratch)

        return self._groups(x, shares.shape[1], step)

    def _groups(self, x: Host, k: int, step: Callable[[GroupSums, Job, dict], None]) -> GroupSums:
        """Blocks of rows on as many lanes as have enough to do, by the shape only; their sums
        together."""
        rows, n = x.shape
        assert rows is not None
        count = lanes_for(rows * k * n // WORK, 8 * k * n)
        counts, sums = np.zeros((count, k)), np.zeros((count, k, n))
        lanes = [GroupSums(*part) for part in zip(counts, sums)]
        run_lanes(
            jobs(x.matrix, -(-rows // count) * n * x.dtype.itemsize), lanes, step, self.threads
        )
        return GroupSums(np.add.reduce(counts), np.add.reduce(sums))


def _weights(x: Host, job: Job) -> np.ndarray:
    return NONE if x.weights is None else x.weights[job[0] : job[0] + job[1]]


def _patterns(block: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(rows, seen columns as a mask) for every pattern of missing entries in the block."""
    seen = ~np.isnan(block)
    if seen.all():
        yield np.arange(len(block)), seen[0]
        return
    _, first, which = np.unique(
        np.packbits(seen, axis=1), axis=0, return_index=True, return_inverse=True
    )
    order = np.argsort(which.ravel(), kind="stable")
    ends = np.cumsum(np.bincount(which.ravel()))
    for g, rows in enumerate(np.split(order, ends[:-1])):
        yield rows, seen[first[g]]


BLOCK = 2**18
"""Bytes in a block of rows: some arrays of this size stay in the second cache together, and few
rows make enough blocks for many threads."""


class FamilyPrimitives:
    """check_family, family_statistics and family_posteriors on ``threads`` threads."""

    threads: int

    @or_arrays(ArraySamples, filled=True)
    def check_family(self, x: Any, family: Any) -> None:
        x = place(x)
        bad: dict[int, EckartError] = {}
        gaps = x.kind == "observed"

        def step(_: Any, job: Job, scratch: dict) -> None:
            nonlocal gaps
            start, _, fetch = job
            block = np.asarray(fetch(scratch))
            try:
                try:
                    refuse_bad(block, start)
                except GapsFound:
                    gaps = True
                    if not getattr(family, "gaps", False):
                        raise
                if hasattr(family, "check"):
                    family.check(block, start)
            except EckartError as error:
                bad[start] = error

        run_lanes(jobs(x.matrix, BLOCK), list(range(MOST_LANES)), step, self.threads)
        if bad:
            raise bad[min(bad)]  # the first, whichever thread was first
        x.checked = x.checked or not gaps

    @or_arrays(ArraySamples, filled=True)
    def family_statistics(
        self, x: Any, family: Any, weights: np.ndarray, parameters: Any
    ) -> tuple[float, float, np.ndarray, Any]:
        x, logs = place(x), np.log(np.maximum(weights, TINY))
        lanes = [_FamilyLane() for _ in range(self._family_lanes(x, parameters))]

        def step(lane: _FamilyLane, job: Job, scratch: dict) -> None:
            start, rows, fetch = job
            block = block_of(fetch, scratch)
            loglik, q = normalised(logs + family.log_prob(block, parameters))
            w = np.ones(rows)
            if x.weights is not None:
                w = x.weights[start : start + rows]
                q *= w[:, None]
            lane.add(
                float(w.sum()),
                float(np.where(w > 0, w * loglik, 0.0).sum()),
                q,
                family.statistics(block, q),
            )

        run_lanes(jobs(x.matrix, BLOCK), lanes, step, self.threads)
        used = [lane for lane in lanes if lane.statistics is not None]
        whole = used[0].statistics
        for lane in used[1:]:
            whole = whole.merge(lane.statistics)
        counts = np.sum([lane.counts for lane in used], axis=0)
        return sum(lane.weight for lane in used), sum(lane.bound for lane in used), counts, whole

    @or_arrays(ArraySamples, filled=True)
    def family_posteriors(
        self, x: Any, family: Any, weights: np.ndarray, parameters: Any
    ) -> Posteriors:
        logs = np.log(np.maximum(weights, TINY))

        def work(block: np.ndarray, *_: Any) -> tuple[np.ndarray, np.ndarray]:
            return normalised(logs + family.log_prob(block, parameters))

        return collect(place(x), work, BLOCK, self.threads)

    def _family_lanes(self, x: Host, parameters: Any) -> int:
        """By the shape: the statistics of a family are about as large as its parameters."""
        size = (
            sum(np.asarray(a).nbytes for a in parameters.values())
            if isinstance(parameters, dict)
            else 0
        )
        rows = MOST_LANES * 128 if x.shape[0] is None else x.shape[0]
        return lanes_for(-(-rows // block_rows(x.shape[1], x.dtype.itemsize, BLOCK)), size)


@dataclass(eq=False)
class _FamilyLane:
    """A lane of a family's E step: sums so far, and the family's statistics, merged."""

    weight: float = 0.0
    bound: float = 0.0
    counts: Any = 0.0
    statistics: Any = None

    def add(self, weight: float, bound: float, shares: np.ndarray, found: Any) -> None:
        self.weight, self.bound = self.weight + weight, self.bound + bound
        self.counts = self.counts + shares.sum(axis=0)
        self.statistics = found if self.statistics is None else self.statistics.merge(found)


def collect(x: Host, work: Callable[..., Any], size: int, threads: int) -> Posteriors:
    """What ``work`` makes of every block, in their order."""
    found: dict[int, Any] = {}

    def step(_: Any, job: Job, scratch: dict) -> None:
        found[job[0]] = work(block_of(job[2], scratch), job[0], scratch)

    run_lanes(jobs(x.matrix, size), list(range(MOST_LANES)), step, threads)
    parts = [found[start] for start in sorted(found)]
    return Posteriors(*(np.concatenate([part[i] for part in parts]) for i in range(len(parts[0]))))


def normalised(logp: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log sum_z exp and shares of each row."""
    top = logp.max(axis=1, keepdims=True)
    q = np.exp(logp - top)
    total = q.sum(axis=1, keepdims=True)
    q /= total
    return (top + np.log(total))[:, 0], q


def block_of(fetch: Callable[[dict], np.ndarray], scratch: dict) -> np.ndarray:
    return np.ascontiguousarray(fetch(scratch), np.float64)
