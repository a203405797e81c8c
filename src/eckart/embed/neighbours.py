"""Nearest vectors and analogies: exact searches by cosine over unit vectors, in blocks.

With unit rows u_w, the neighbours of a vector q are the words of the largest cosines <u_w, q> /
|q|. An analogy "a is to b as c is to ?" is answered by the word x outside the question with the
largest

    add        cos(u_x, u_b - u_a + u_c)                                   3CosAdd, Mikolov et al.
    2013
    multiply   s(x, b) s(x, c) / (s(x, a) + 0.001), s = (1 + cos) / 2      3CosMul, Levy and
    Goldberg 2014

Ties go to the word that stands first. A vector of zeros has no direction: its cosines count as 0,
and it has no neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from eckart.engines import engine_named
from eckart.word_metrics import analogy_scores

BLOCK_SCORES = 2**24
"""Scores of analogies that are held at a time."""


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The n best words for each of several queries: words, scores and positions (queries x n, best
    first; None, -inf and -1 where there are fewer).

    Each item is the list of one query.

    >>> found = Neighbours(np.array(["tea", "rye"]), np.array([["mate", "milk"], ["oat", None]]), np.array([[0.9, 0.5], [0.75, -np.inf]]),
    ...     np.array([[2, 3], [5, -1]]))
    >>> found[1], len(found)
    ([('oat', 0.75)], 2)
    >>> found.to_table()["word"].tolist()
    ['tea', 'tea', 'rye']
    """

    queries: np.ndarray
    words: np.ndarray
    scores: np.ndarray
    positions: np.ndarray

    def __len__(self) -> int:
        return len(self.queries)

    def __getitem__(self, i: int) -> list[tuple[Any, float]]:
        kept = self.positions[i] >= 0
        return list(zip(self.words[i][kept].tolist(), self.scores[i][kept].tolist()))

    def __iter__(self) -> Iterator[list[tuple[Any, float]]]:
        return (self[i] for i in range(len(self)))

    def to_table(self) -> dict[str, np.ndarray]:
        """Columns word, rank, neighbour, score, one line for each neighbour."""
        kept = self.positions.ravel() >= 0
        count, n = self.positions.shape
        return {
            "word": np.repeat(self.queries, n)[kept],
            "rank": np.tile(np.arange(1, n + 1), count)[kept],
            "neighbour": self.words.ravel()[kept],
            "score": self.scores.ravel()[kept],
        }


def nearest(
    unit: np.ndarray,
    queries: np.ndarray,
    n: int,
    own: np.ndarray | None = None,
    kept: np.ndarray | None = None,
    n_threads: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Positions and cosines of the n rows of ``unit`` nearest to each of the unit-length queries.

    ``own`` is a position for each query that is left out of its list (-1 for none), ``kept`` tells
    which rows may be found at all.

    >>> nearest(np.eye(3, dtype=np.float32), np.array([[0.6, 0.8, 0.0]], np.float32), 2)[0].tolist()
    [[1, 0]]
    """
    queries = np.asarray(queries, unit.dtype)
    left, offset, rows = None, None, unit
    if kept is not None:
        left = np.flatnonzero(kept)
        if 2 * len(left) <= len(unit):
            rows = unit[left]
        else:
            left, offset = None, np.where(kept, 0.0, -np.inf).astype(unit.dtype)
    hidden = None
    if own is not None and (own >= 0).any():
        at = np.asarray(own)
        if left is not None:
            place = np.full(len(unit), -1)
            place[left] = np.arange(len(left))
            at = np.where(at >= 0, place[at], -1)
        hidden = np.concatenate([[0], np.cumsum(at >= 0)]), at[at >= 0], np.arange(len(at))
    if not len(rows):
        return np.full((len(queries), 0), -1), np.zeros((len(queries), 0), unit.dtype)
    best, scores = engine_named("cpu", n_threads).top_columns(queries, rows, n, offset, hidden)
    if left is not None:
        best = np.where(best >= 0, left[best], -1)
    none = ~queries.any(axis=1)
    best[none], scores[none] = -1, -np.inf
    return best, np.clip(scores, -1, 1, out=scores, where=best >= 0)


def answers(
    unit: np.ndarray, questions: np.ndarray, n: int, method: str, kept: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Positions and scores of the n best answers to questions (rows a, b, c of positions); the
    words of a question never answer it.

    >>> unit = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    >>> answers(unit, np.array([[0, 1, 2]]), 1, "add")[0].tolist()
    [[3]]
    """
    m = len(unit)
    n = min(n, m)
    best, scores = (
        np.full((len(questions), n), -1),
        np.full((len(questions), n), -np.inf, unit.dtype),
    )
    step = max(1, BLOCK_SCORES // m)
    for first in range(0, len(questions), step):
        block = analogy_scores(unit, questions[first : first + step], method)
        if kept is not None:
            block[:, ~kept] = -np.inf
        for q, row in enumerate(block):
            at = _largest(row, n)
            best[first + q, : len(at)], scores[first + q, : len(at)] = at, row[at]
    return best, scores


def _largest(row: np.ndarray, n: int) -> np.ndarray:
    """Positions of the n largest finite numbers, in falling order; the lower position first among
    equals."""
    least = np.partition(row, len(row) - n)[len(row) - n]
    at = np.flatnonzero((row >= least) & (row > -np.inf))
    return at[np.argsort(-row[at], kind="stable")[:n]]
