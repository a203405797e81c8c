"""Evidence of skip-gram scores: blocks of rows on threads. Scores of a block are a BLAS product,
what follows from them is compiled.

GloVe by AdaGrad: blocks of entries that share no word run at the same time, so that threads
change no bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.engines.arrays.words import ArrayWords
from eckart.engines.cpu.small import SMALL, or_arrays, or_arrays_on_factor
from eckart.engines.host import Host, place
from eckart.engines.protocol import GloveTable, strata_of
from eckart.engines.protocol.words import ScoreEvidence, ScoreRule
from eckart.loading import lazy
from eckart.scheduler import run_lanes

ROWS = 8
"""Rows of a block: a product with all words that is large enough for BLAS, and blocks enough for 64
threads where a thousand rows are measured."""


class PairScores(ArrayWords):
    """pair_scores on ``threads`` threads."""

    # 1.8 (softmax) and 2.7 (noise) times as fast as by arrays: 1,000 rows of 64 numbers, 5,000
    # words, float32, one thread of an AMD EPYC
    threads: int

    @or_arrays(ArrayWords)
    def pair_scores(
        self,
        x: Host,
        left: np.ndarray,
        right: np.ndarray,
        offset: np.ndarray | None,
        rule: ScoreRule,
    ) -> ScoreEvidence:
        from eckart.engines.cpu.words.score_kernels import negative_row, softmax_row

        placed = place(x)
        m, row = placed.matrix, softmax_row if rule.softmax else negative_row
        weights = np.ones(len(left)) if placed.weights is None else placed.weights
        noise, transposed = rule.noise.astype(np.float64), np.ascontiguousarray(right.T)
        sums = np.zeros((-(-len(left) // ROWS), len(ScoreEvidence._fields)))

        def step(_: None, part: int, scratch: dict) -> None:
            rows = slice(part * ROWS, min((part + 1) * ROWS, len(left)))
            scores = left[rows] @ transposed
            if offset is not None:
                scores += offset
            pull, total = np.zeros((len(scores), right.shape[1])), sums[part]
            for i, at in enumerate(range(rows.start, rows.stop)):
                p, q = m.indptr[at], m.indptr[at + 1]
                row(
                    m.indices[p:q],
                    m.data[p:q],
                    scores[i],
                    right,
                    noise,
                    rule.negatives,
                    weights[at],
                    total,
                    pull[i],
                )
            # the rows now hold what pushes the scores down
            push = (scores @ right).astype(np.float64)
            heavy = weights[rows, None]
            for j, side in enumerate((pull, push, pull - push), 4):
                total[j] += np.sum((heavy * side) ** 2)

        run_lanes(range(len(sums)), [None] * len(sums), step, self.threads)
        return ScoreEvidence(*sums.sum(axis=0).tolist())


glove_kernels = lazy("eckart.engines.cpu.words.score_kernels")


def _numbers(table: GloveTable, own: np.ndarray, other: np.ndarray, *_: Any) -> int:
    """What ``is_small`` counts of the matrix that the table was made of."""
    return len(table.targets) + len(own) + len(other)


class GloveSteps(ArrayWords):
    """glove_table, glove_step and glove_loss on ``threads`` threads; numba is loaded when the first
    of them is called."""

    threads: int

    @or_arrays(ArrayWords)
    def glove_table(self, x: Host, seed: int) -> GloveTable:
        placed = place(x)
        m = placed.matrix
        weights = np.ones(m.nnz, m.dtype) if placed.entry_weights is None else placed.entry_weights
        strata = strata_of(m.shape[0])
        sizes = np.zeros(strata * strata, np.int64)
        glove_kernels.count_blocks(m.indptr, m.indices, strata, sizes)
        ends = np.concatenate([[0], np.cumsum(sizes)])
        words = np.empty(m.nnz, np.int32), np.empty(m.nnz, np.int32)
        entries = (*words, np.empty(m.nnz, np.float32), np.empty(m.nnz, np.float32))
        glove_kernels.deal(m.indptr, m.indices, m.data, weights, strata, ends[:-1].copy(), entries)
        blocks = list(range(len(sizes)))
        run_lanes(
            blocks,
            blocks,
            lambda _, b, scratch: glove_kernels.shuffle(seed + b, ends[b], ends[b + 1], entries),
            self.threads,
        )
        return GloveTable(*entries, ends, strata)

    @or_arrays_on_factor(ArrayWords, _numbers, SMALL)
    def glove_step(
        self, table: GloveTable, own: np.ndarray, other: np.ndarray, rate: float, order: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        k, lr = own.shape[1] // 3 - 1, own.dtype.type(rate)
        own, other = own.copy(), other.copy()

        def step(_: None, b: int, scratch: dict) -> None:
            glove_kernels.glove_steps(
                table[:4], table.ends[b], table.ends[b + 1], lr, k, own, other
            )

        for turn in order:
            run_lanes(table.round(int(turn)), [None] * table.strata, step, self.threads)
        return own, other

    @or_arrays_on_factor(ArrayWords, _numbers, SMALL)
    def glove_loss(self, table: GloveTable, own: np.ndarray, other: np.ndarray) -> float:
        k = own.shape[1] // 3 - 1
        lanes = [np.zeros(1) for _ in range(len(table.ends) - 1)]

        def add(total: np.ndarray, b: int, scratch: dict) -> None:
            total += glove_kernels.glove_losses(
                table[:4], table.ends[b], table.ends[b + 1], k, own, other
            )

        run_lanes(range(len(lanes)), lanes, add, self.threads)
        return float(np.sum(lanes))
