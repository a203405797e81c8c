"""Scores of a blend: a sum of the scores of its members, each divided by its root mean square over
the columns of the row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from eckart.complete.items.row_scores import ScoresOfRows, tiles
from eckart.factors import ItemWeights
from eckart.matrix import Observed
from eckart.matrix_blocks import some_rows

HELD = 8
"""Bytes of a score while it is made: some member has it in double precision."""


def comparable(scores: Any, rows: np.ndarray) -> np.ndarray:
    """The scores of whole rows, each row of mean square 1; a row that scores nothing stays zero."""
    parts = [_even(scores.block(part))[0] for part in tiles(rows, HELD * scores.shape[1])]
    return np.concatenate(parts) if parts else np.zeros((0, scores.shape[1]))


def _even(block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A block of scores with rows of mean square 1, and what they were divided by."""
    size = np.sqrt(np.einsum("ij,ij->i", block, block, dtype=np.float64) / block.shape[1])
    size[size == 0] = 1.0
    return block / size[:, None].astype(block.dtype), size


@dataclass(frozen=True, eq=False)
class BlendedScores(ScoresOfRows):
    """The names that ``Completer`` asks of a completed matrix, for ``scores`` of the members with
    the shares of ``factors``."""

    entries: Observed
    factors: ItemWeights
    scores: list[Any]
    engine: Any
    mean: float = 0.0
    row_bias: None = None
    column_bias: None = None
    held = HELD

    @property
    def dtype(self) -> np.dtype:
        return np.result_type(*(s.dtype for s in self.scores))

    def weights(self, row: int) -> list[float]:
        """What the scores of each member are multiplied with in this row."""
        at = np.array([row])
        sizes = [float(_even(s.block(at))[1][0]) for s in self.scores]
        return [float(share) / size for share, size in zip(self._shares(), sizes)]

    def block(self, rows: Any) -> np.ndarray:
        """Scores of all columns for the rows at these positions."""
        at = self.positions(rows)
        out = np.zeros((len(at), self.n), self.dtype)
        for share, s in zip(self._shares(), self.scores):
            out += out.dtype.type(share) * _even(s.block(at))[0]
        return out

    def best(
        self, rows: np.ndarray, n: int, columns: np.ndarray, seen: Observed | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Positions and scores of the n best of ``columns`` for each row, those that it has
        ``seen`` left out; -1 and -inf where there are fewer."""
        n = min(n, len(columns))
        left_out = np.setdiff1d(np.arange(self.n), columns) if len(columns) < self.n else None
        where, best = (
            np.full((len(rows), n), -1, np.int64),
            np.full((len(rows), n), -np.inf, self.dtype),
        )
        start = 0
        for tile in tiles(rows, self.held * self.n):
            block, to = self.block(tile), slice(start, start + len(tile))
            if left_out is not None:
                block[:, left_out] = -np.inf
            if seen is not None:
                near, own = some_rows(seen, tile)
                for q, row in enumerate(own):
                    block[q, near.indices[near.indptr[row] : near.indptr[row + 1]]] = -np.inf
            first = np.argpartition(-block, n - 1, axis=1)[:, :n]
            values = np.take_along_axis(block, first, axis=1)
            # of equal scores the first column, as in the other models
            order = np.lexsort((first, -values), axis=1)
            where[to], best[to] = (
                np.take_along_axis(first, order, axis=1),
                np.take_along_axis(values, order, axis=1),
            )
            start += len(tile)
        where[np.isneginf(best)] = -1
        return where, best

    def _shares(self) -> np.ndarray:
        assert self.factors.shares is not None
        return self.factors.shares
