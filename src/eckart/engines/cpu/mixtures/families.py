"""Mixtures of any family, as part of ``CpuEngine``: blocks of rows are handed to the family, what it makes of them is merged in a fixed order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from eckart.engines.cpu.row_blocks import Job, jobs
from eckart.engines.protocol.mixtures import Posteriors
from eckart.matrix import Matrix
from eckart.scheduler import run_lanes

BLOCK = 2**20
"""Bytes in a block of rows: a few chunks of the kernels, little beside the sums."""


class FamilyPrimitives:
    """family_statistics and family_posteriors on ``threads`` threads."""

    threads: int

    def family_statistics(
        self, x: Matrix, family: Any, weights: np.ndarray, parameters: Any, row_weights: np.ndarray | None = None
    ) -> tuple[float, float, np.ndarray, Any]:
        logs = np.log(np.maximum(weights, 1e-300))
        lanes = [_FamilyLane() for _ in range(4)]

        def step(lane: _FamilyLane, job: Job, scratch: dict) -> None:
            start, rows, fetch = job
            block = block_of(fetch, scratch)
            loglik, q = normalised(logs + family.log_prob(block, parameters))
            w = np.ones(rows)
            if row_weights is not None:
                w = row_weights[start : start + rows]
                q *= w[:, None]
            lane.add(float(w.sum()), float(np.where(w > 0, w * loglik, 0.0).sum()), q, family.statistics(block, q))

        run_lanes(jobs(x, BLOCK), lanes, step, self.threads)
        used = [lane for lane in lanes if lane.statistics is not None]
        whole = used[0].statistics
        for lane in used[1:]:
            whole = whole.merge(lane.statistics)
        counts = np.sum([lane.counts for lane in used], axis=0)
        return sum(lane.weight for lane in used), sum(lane.bound for lane in used), counts, whole

    def family_posteriors(self, x: Matrix, family: Any, weights: np.ndarray, parameters: Any) -> Posteriors:
        logs = np.log(np.maximum(weights, 1e-300))
        return collect(x, lambda block, *_: normalised(logs + family.log_prob(block, parameters)), BLOCK, self.threads)


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


def collect(x: Matrix, work: Callable[..., Any], size: int, threads: int) -> Posteriors:
    """What ``work`` makes of every block, in their order."""
    found: dict[int, Any] = {}

    def step(_: Any, job: Job, scratch: dict) -> None:
        found[job[0]] = work(block_of(job[2], scratch), job[0], scratch)

    run_lanes(jobs(x, size), list(range(8)), step, threads)
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
