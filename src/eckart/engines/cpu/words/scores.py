"""Evidence of skip-gram scores: blocks of rows on threads. Scores of a block are a BLAS product,
what follows from them is compiled."""

from __future__ import annotations

import numpy as np

from eckart.engines.arrays.words import ArrayWords
from eckart.engines.cpu.small import or_arrays
from eckart.engines.host import Host, place
from eckart.engines.protocol.words import ScoreEvidence, ScoreRule
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
