"""The primitives of topic models, as part of ``CpuEngine``: ranges of documents on lanes, counts of words merged in a fixed order."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.engines.protocol import TopicStatistics
from eckart.matrix import Counts
from eckart.scheduler import run_lanes

LANE_BYTES = 48 * 2**20
PIECES = 16
"""Ranges of documents in a pass that adds nothing up."""


class TopicPrimitives:
    """topic_sweep, topic_bayes, topic_scores and topic_chain on ``threads`` threads; numba is loaded when the first of them is called."""

    threads: int

    def topic_sweep(
        self,
        x: Counts,
        words: np.ndarray,
        prior: np.ndarray,
        shares: np.ndarray,
        *,
        steps: int = 1,
        tol: float = 0.0,
        collect: bool = True,
    ) -> TopicStatistics:
        from eckart.engines.cpu.topics.kernels import map_rows

        k, dtype = words.shape[1], words.dtype
        w, a, theta = _wide(words), _wide(prior[None].astype(dtype))[0], _wide(shares.astype(dtype, copy=False))
        data = x.data.astype(dtype, copy=False)

        def work(lane: _Lane, part: tuple[int, int], buffer: np.ndarray) -> tuple[float, float]:
            return map_rows(x.indptr, x.indices, data, w, a, theta, *part, steps, tol, lane.total, buffer)

        counts, value, seen, _ = self._lanes(x, w, k, collect, work)
        return TopicStatistics(theta[:, :k], None if counts is None else counts[:, :k], value, seen)

    def topic_bayes(
        self,
        x: Counts,
        words: np.ndarray,
        prior: np.ndarray,
        gamma: np.ndarray,
        *,
        steps: int = 100,
        tol: float = 1e-3,
        collect: bool = True,
    ) -> TopicStatistics:
        from eckart.engines.cpu.topics.kernels import bayes_rows

        k, dtype = words.shape[1], words.dtype
        w, g, a = _wide(words), gamma.astype(np.float64), prior.astype(np.float64)
        rows = x.indptr, x.indices, x.data.astype(dtype, copy=False)

        def work(lane: _Lane, part: tuple[int, int], buffer: np.ndarray) -> tuple[float, float]:
            return bayes_rows(*rows, w, a, k, g, *part, steps, tol, lane.total, lane.logs, buffer)

        counts, value, seen, logs = self._lanes(x, w, k, collect, work)
        return TopicStatistics(g, None if counts is None else counts[:, :k], value, seen, logs)

    def topic_scores(
        self, x: Counts, words: np.ndarray, shares: np.ndarray, floor: float
    ) -> tuple[np.ndarray, np.ndarray]:
        from eckart.engines.cpu.entries.sparse import balanced
        from eckart.engines.cpu.topics.kernels import score_rows

        w, theta = _wide(words), _wide(shares.astype(words.dtype, copy=False))
        out, seen = np.zeros(x.shape[0]), np.zeros(x.shape[0])
        parts = balanced(x.indptr, PIECES)
        least = words.dtype.type(floor)

        def step(lane: int, part: tuple[int, int], scratch: dict) -> None:
            score_rows(x.indptr, x.indices, x.data, w, theta, *part, least, out, seen)

        run_lanes(parts, list(range(len(parts))), step, self.threads)
        return out, seen

    def topic_chain(self, x: Counts, words: np.ndarray, shares: np.ndarray, prior: np.ndarray, seed: int) -> Any:
        from eckart.engines.cpu.topics.chain import TopicChain

        return TopicChain(x, words, shares, prior, seed, self.threads)

    def _lanes(
        self, x: Counts, words: np.ndarray, k: int, collect: bool, work: Any
    ) -> tuple[np.ndarray | None, float, float, np.ndarray]:
        """``work`` on ranges of rows: the sums of the lanes' counts, of the two numbers that it returns, and of the lanes' logs."""
        from eckart.engines.cpu.entries.sparse import balanced
        from eckart.engines.cpu.registers.prefetch import aligned_zeros

        count = lanes_of(words.nbytes, x.nnz * words.shape[1]) if collect else PIECES
        longest = int(np.diff(x.indptr).max(initial=1)) + 3
        lanes = [_Lane(words.shape if collect else (0, words.shape[1]), words.dtype, k) for _ in range(count)]

        def step(lane: _Lane, part: tuple[int, int], scratch: dict) -> None:
            if "buffer" not in scratch:
                scratch["buffer"] = aligned_zeros((longest, words.shape[1]), words.dtype)
            lane.value, lane.seen = work(lane, part, scratch["buffer"])

        run_lanes(balanced(x.indptr, count), lanes, step, self.threads)
        value, seen = sum(lane.value for lane in lanes), sum(lane.seen for lane in lanes)
        total = tree_sum([lane.total for lane in lanes]) if collect else None
        return total, value, seen, np.sum([lane.logs for lane in lanes], axis=0)


class _Lane:
    """Partial sums of one lane."""

    def __init__(self, shape: tuple[int, int], dtype: np.dtype, k: int):
        from eckart.engines.cpu.registers.prefetch import aligned_zeros

        self.total, self.logs = aligned_zeros(shape, dtype), np.zeros(k)
        self.value, self.seen = 0.0, 0.0


def lanes_of(lane_bytes: int, work: int) -> int:
    """A power of two from 1 to 8, by the size of a partial sum and of the work only: adding up must not cost more than the rows do."""
    most = int(np.clip(np.log2(LANE_BYTES / max(1, lane_bytes)), 1, 3))
    worth = int(np.clip(np.log2(max(1, 4 * work) / max(1, lane_bytes)), 0, 3))
    return 2 ** min(most, worth)


def tree_sum(parts: list[np.ndarray]) -> np.ndarray:
    """Pairwise sum in place, in a fixed order."""
    while len(parts) > 1:
        for a, b in zip(parts[::2], parts[1::2]):
            a += b
        parts = parts[::2]
    return parts[0]


def _wide(a: np.ndarray) -> np.ndarray:
    """A copy whose rows start on cache lines and are padded with zeros to whole vectors."""
    from eckart.engines.cpu.registers.prefetch import aligned_zeros

    out = aligned_zeros((len(a), width(a.shape[1])), a.dtype)
    out[:, : a.shape[1]] = a
    return out


def width(k: int) -> int:
    """k rounded up to whole vectors."""
    return -(-k // 16) * 16
