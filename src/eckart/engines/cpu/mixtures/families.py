"""Mixtures of any family, as part of ``CpuEngine``: blocks of rows are handed to the family, what
it makes of them is merged in a fixed order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from eckart.engines.arrays.samples import ArraySamples
from eckart.engines.cpu.small import or_arrays
from eckart.engines.host import Host, place
from eckart.engines.protocol import GapsFound, refuse_bad
from eckart.engines.protocol.mixtures import TINY, Posteriors
from eckart.engines.row_blocks import Job, block_rows, jobs
from eckart.errors import EckartError
from eckart.scheduler import MOST_LANES, lanes_for, run_lanes

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
