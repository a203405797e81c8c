"""GloVe by AdaGrad, as part of ``CpuEngine``: blocks of entries that share no word run at the same time, so that threads change no bit."""

from __future__ import annotations

import numpy as np

from eckart.engines.protocol import GloveTable, strata_of
from eckart.matrix import Observed
from eckart.scheduler import run_lanes


class GlovePrimitives:
    """glove_table, glove_step and glove_loss on ``threads`` threads; numba is loaded when the first of them is called."""

    threads: int

    def glove_table(self, x: Observed, weights: np.ndarray, seed: int) -> GloveTable:
        from eckart.engines.cpu.words.glove_kernels import count_blocks, deal, shuffle

        strata = strata_of(x.shape[0])
        sizes = np.zeros(strata * strata, np.int64)
        count_blocks(x.indptr, x.indices, strata, sizes)
        ends = np.concatenate([[0], np.cumsum(sizes)])
        words = np.empty(x.nnz, np.int32), np.empty(x.nnz, np.int32)
        entries = (*words, np.empty(x.nnz, np.float32), np.empty(x.nnz, np.float32))
        deal(x.indptr, x.indices, x.data, weights, strata, ends[:-1].copy(), *entries)
        blocks = list(range(len(sizes)))
        run_lanes(blocks, blocks, lambda _, b, scratch: shuffle(seed + b, ends[b], ends[b + 1], *entries), self.threads)
        return GloveTable(*entries, ends, strata)

    def glove_step(
        self, table: GloveTable, own: np.ndarray, other: np.ndarray, rate: float, order: np.ndarray
    ) -> float:
        from eckart.engines.cpu.words.glove_kernels import glove_steps

        k, lr = own.shape[1] // 3 - 1, own.dtype.type(rate)
        lanes = [np.zeros(1) for _ in range(table.strata)]

        def step(total: np.ndarray, b: int, scratch: dict) -> None:
            total += glove_steps(*table[:4], table.ends[b], table.ends[b + 1], lr, k, own, other)

        for turn in order:
            run_lanes(table.round(int(turn)), lanes, step, self.threads)
        return float(np.sum(lanes))

    def glove_loss(self, table: GloveTable, own: np.ndarray, other: np.ndarray) -> float:
        from eckart.engines.cpu.words.glove_kernels import glove_losses

        k = own.shape[1] // 3 - 1
        lanes = [np.zeros(1) for _ in range(len(table.ends) - 1)]

        def add(total: np.ndarray, b: int, scratch: dict) -> None:
            total += glove_losses(*table[:4], table.ends[b], table.ends[b + 1], k, own, other)

        run_lanes(range(len(lanes)), lanes, add, self.threads)
        return float(np.sum(lanes))
