"""One chain of the collapsed Gibbs sampler: a topic for each token, and the counts that follow from them.

Documents are dealt to lanes (their number depends on the data only). A lane samples its documents against its own copy of the words' counts, and after
a sweep the changes of all lanes are added up. Small data have one lane, which is the exact sampler; with several, a lane sees the others' counts
one sweep late.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from eckart.engines.cpu.entries.sparse import balanced
from eckart.engines.cpu.registers.prefetch import aligned_zeros
from eckart.engines.cpu.topics.gibbs import draw_rows, gibbs_rows, merge_rows, tally_rows
from eckart.engines.cpu.topics.primitives import _wide
from eckart.matrix import Counts
from eckart.scheduler import run_lanes

SINGLE = np.dtype(np.float32)
TOKENS_A_LANE = 50_000
MOST_LANES = 4


class TopicChain:
    """State of one chain over the counts ``x`` (whole numbers); ``prior`` is b, words x k."""

    def __init__(self, x: Counts, words: np.ndarray, shares: np.ndarray, prior: np.ndarray, seed: int, threads: int):
        self.x, self.k, self.threads, self.seed, self.sweeps = x, words.shape[1], threads, seed, 0
        self.starts = np.concatenate([[0], np.cumsum(x.data, dtype=np.int64)])
        self.tokens = int(self.starts[-1])
        self.topics = np.zeros(self.tokens, np.uint16 if self.k <= 2**16 else np.int32)
        lanes = int(np.clip(self.tokens // TOKENS_A_LANE, 1, MOST_LANES))
        self.parts = balanced(x.indptr, lanes)
        w, theta = _wide(words.astype(np.float32)), _wide(shares.astype(np.float32))
        self.table, self.mean = aligned_zeros(w.shape, SINGLE), np.zeros((0, w.shape[1]), np.float32)
        self.averaged = 0
        self.lanes = np.stack([self.table] * len(self.parts))
        self.prior = aligned_zeros(w.shape, SINGLE)
        rows = x.indptr, x.indices, self.starts
        nothing = np.zeros((0, 0), np.float32)

        def begin(lane: np.ndarray, part: tuple[int, int], scratch: dict) -> None:
            draw_rows(*rows, w, theta, self._stream(), *part, self.topics)
            tally_rows(*rows, self.topics, *part, lane, nothing)

        self._run(begin)
        self._merge()
        self.set_prior(prior)

    def set_prior(self, prior: np.ndarray) -> None:
        """Exchange b and keep the counts."""
        counts = self.counts()
        self.prior[:, : self.k] = prior
        self.table[:, : self.k] = counts + self.prior[:, : self.k]
        self.lanes[:] = self.table

    def sweep(self, alpha: np.ndarray, average: bool = False) -> float:
        """Every token once; returns sum_i log p(w_i | all other tokens). ``average`` adds the counts after it to ``mean``."""
        self.sweeps += 1
        a = _wide(alpha[None].astype(np.float32))[0]
        sizes = self.table.sum(axis=0, dtype=np.float64)
        rows = self.x.indptr, self.x.indices, self.starts
        values = [0.0] * len(self.parts)

        def step(lane: int, part: tuple[int, int], scratch: dict) -> None:
            values[lane] = gibbs_rows(*rows, a, self._stream(), *part, self.topics, self.lanes[lane], sizes.copy())

        run_lanes(self.parts, list(range(len(self.parts))), step, self.threads)
        if average and not len(self.mean):
            self.mean = np.zeros_like(self.table)
        self.averaged += average
        self._merge(average)
        return float(np.sum(values))

    def counts(self) -> np.ndarray:
        """n_wz now, words x k."""
        return np.rint(self.table - self.prior)[:, : self.k]

    def mean_counts(self) -> np.ndarray:
        """The mean of n_wz over the sweeps that were averaged; those of now where there were none."""
        return self.mean[:, : self.k] / np.float32(self.averaged) if self.averaged else self.counts()

    def document_counts(self) -> np.ndarray:
        """n_dz now, documents x k."""
        out = np.zeros((self.x.shape[0], self.k), np.float32)
        rows = self.x.indptr, self.x.indices, self.starts
        nothing = np.zeros((0, 0), np.float32)

        def step(lane: np.ndarray, part: tuple[int, int], scratch: dict) -> None:
            first, last = part
            tally_rows(*rows, self.topics, first, last, nothing, out)

        self._run(step)
        return out

    def _run(self, step: Any) -> None:
        run_lanes(self.parts, list(self.lanes), step, self.threads)

    def _merge(self, average: bool = False) -> None:
        mean = self.mean if average else np.zeros((0, 0), np.float32)
        cuts = np.linspace(0, len(self.table), 9).astype(int).tolist()

        def step(lane: int, part: tuple[int, int], scratch: dict) -> None:
            first, last = part
            merge_rows(self.lanes, self.table, self.prior, first, last, mean)

        run_lanes(itertools.pairwise(cuts), list(range(8)), step, self.threads)

    def _stream(self) -> np.uint64:
        """The seed of this sweep."""
        return np.uint64((self.seed * 0x2545F4914F6CDD1D + self.sweeps * 0xD1342543DE82EF95) % 2**64)
