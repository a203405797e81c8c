"""One chain of the collapsed Gibbs sampler: a topic for each token, and the counts that follow from them.

A small corpus is sampled token after token: the exact sampler. In a larger one documents go in groups. The documents of a group are sampled side by
side against the words' counts that the groups before have left, and then each range of words takes up what its tokens have moved to. So a token misses
the moves of its own group only, whatever the number of threads, there is one table of counts, and nothing has to be merged.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from eckart.engines.cpu.entries.sparse import balanced
from eckart.engines.cpu.registers.prefetch import aligned_zeros
from eckart.engines.cpu.topics.gibbs import (
    add_words,
    draw_rows,
    gibbs_rows,
    move_words,
    settle_words,
    tally_documents,
    tally_words,
)
from eckart.engines.cpu.topics.layout import (
    GROUPS,
    WORK,
    Documents,
    each,
    padded,
    prior_of,
    row_of,
    tall_of,
    wide_of,
    width,
    word_ranges,
)
from eckart.engines.protocol.topics import TopicDraw, spacing
from eckart.scheduler import lanes_for

SINGLE = np.dtype(np.float32)
EXACT_TOKENS = 100_000
"""Corpora below this are sampled token after token: a sweep takes a few milliseconds, and groups would be so small that what they miss shows."""


class Tokens(NamedTuple):
    """The rows' words, and where the tokens of each entry begin."""

    indptr: np.ndarray
    indices: np.ndarray
    starts: np.ndarray


class TopicChain:
    """State of one chain over whole counts; ``prior`` is b, one number or words x k."""

    def __init__(self, x: Documents, words: np.ndarray, shares: np.ndarray, prior: Any, seed: int, threads: int):
        self.k, self.threads, self.seed, self.sweeps, self.averaged = words.shape[1], threads, seed, 0, 0
        m = x.matrix
        self.columns, self.shape = x.columns, m.shape
        self.rows = Tokens(m.indptr, m.indices, x.starts)
        self.tokens = int(x.starts[-1])
        self.exact = self.tokens < EXACT_TOKENS
        self.topics = np.zeros(self.tokens, np.uint16 if self.k <= 2**16 else np.int32)
        self.before = self.topics if self.exact else np.zeros_like(self.topics)
        wide, groups = width(self.k), 1 if self.exact else GROUPS
        ranges = [(0, m.shape[0])] if self.exact else balanced(m.indptr, lanes_for(self.tokens * wide // (GROUPS * WORK)))
        self.groups = [[(a, b, (g, groups)) for a, b in ranges] for g in range(groups)]
        self.ranges = balanced(x.columns.ends, lanes_for(4 * self.tokens // WORK))
        self.even = word_ranges(m.shape[1], wide)
        w, theta = wide_of(words, SINGLE), tall_of(shares, m.shape[0], SINGLE)
        self.prior = prior_of(prior, self.k, SINGLE)
        self.table, self.mean = aligned_zeros((m.shape[1], wide), SINGLE), np.zeros((0, wide), SINGLE)
        parts = x.parts(2 * wide)
        self._each(parts, lambda a, b: draw_rows(self.rows, w, theta, self._stream(), a, b, self.topics))
        self._each(self.ranges, lambda a, b: tally_words(x.columns, x.starts, self.topics, a, b, self.table))
        self._each(self.even, lambda a, b: settle_words(self.table, np.zeros((1, wide), SINGLE), self.prior, a, b))
        self._sum_up()

    def set_prior(self, prior: Any) -> None:
        """Exchange b and keep the counts."""
        old, self.prior = self.prior, prior_of(prior, self.k, SINGLE)
        self._each(self.even, lambda a, b: settle_words(self.table, old, self.prior, a, b))
        self._sum_up()

    def sweep(self, alpha: np.ndarray, average: bool = False) -> float:
        """Every token once; returns sum_i log p(w_i | all other tokens). ``average`` adds the counts after it to their mean."""
        self.sweeps += 1
        a, seed, values = row_of(alpha, SINGLE), self._stream(), []
        if not self.exact:
            self.before, self.topics = self.topics, self.before
        for g, parts in enumerate(self.groups):
            values += self._sample(a, seed, parts)
            if not self.exact:
                self._move(self.columns.groups[g], self.columns.groups[g + 1])
        if self.exact:
            self._each(self.even, lambda a, b: settle_words(self.table, self.prior, self.prior, a, b))
        if average:
            self.mean = self.mean if len(self.mean) else aligned_zeros(self.table.shape, SINGLE)
            self._each(self.even, lambda a, b: add_words(self.table, self.prior, a, b, self.mean))
        self.averaged += average
        return float(np.sum(values))

    def _sample(self, alpha: np.ndarray, seed: np.uint64, parts: list[tuple]) -> list[float]:
        state = self.before, self.topics, self.table, self.sizes, self.exact

        def one(first: int, last: int, deal: tuple[int, int]) -> float:
            return gibbs_rows(self.rows, alpha, seed, first, last, deal, *state)

        return self._each(parts, one)

    def _move(self, begin: np.ndarray, end: np.ndarray) -> None:
        """Bring the words' counts up to date with a group."""

        def one(first: int, last: int) -> np.ndarray:
            moved = np.zeros(len(self.sizes))
            topics = self.before, self.topics
            move_words(self.columns, self.rows.starts, begin, end, *topics, first, last, self.table, self.prior, moved)
            return moved

        self.sizes = self.sizes + np.sum(self._each(self.ranges, one), axis=0)

    def counts(self) -> np.ndarray:
        """n_wz now, words x k."""
        out = aligned_zeros(self.table.shape, SINGLE)
        self._each(self.even, lambda a, b: add_words(self.table, self.prior, a, b, out))
        return padded(out, self.k)

    def mean_counts(self) -> np.ndarray:
        """The mean of n_wz over the sweeps that were averaged; those of now where there were none."""
        if not self.averaged:
            return self.counts()
        return padded(self.mean / SINGLE.type(self.averaged), self.k)

    def draw(self, documents: int, words: int) -> TopicDraw:
        """n_dz and n_wz now of at most so many documents and words, evenly spaced, and n_z."""
        far = spacing(self.shape[0], documents)
        count = -(-self.shape[0] // far)
        out = np.zeros((count, self.k), SINGLE)
        cuts = np.linspace(0, count, 17).astype(int).tolist()
        rows = self.rows
        at = rows.indptr, rows.starts
        self._each(itertools.pairwise(cuts), lambda a, b: tally_documents(*at, self.topics, far, a, b, out))
        every = spacing(self.shape[1], words)
        prior = self.prior[::every] if len(self.prior) > 1 else self.prior
        some = np.rint(self.table[::every] - prior)[:, : self.k]
        return TopicDraw(out, some, self.shape[1], np.rint(self.sizes - self._prior_sizes())[: self.k])

    def _prior_sizes(self) -> np.ndarray:
        return self.prior.sum(axis=0, dtype=np.float64) * (1 if len(self.prior) > 1 else self.shape[1])

    def _sum_up(self) -> None:
        """n_z + b_z: whole numbers are added up first, so that the sum does not depend on how the words are cut."""

        def one(a: int, b: int) -> np.ndarray:
            prior = self.prior[a:b] if len(self.prior) > 1 else self.prior
            return np.rint(self.table[a:b] - prior).sum(axis=0, dtype=np.float64)

        self.sizes = np.sum(self._each(self.even, one), axis=0) + self._prior_sizes()

    def _each(self, parts: Any, do: Callable[..., Any]) -> list[Any]:
        return each(parts, do, self.threads)

    def _stream(self) -> np.uint64:
        """The seed of this sweep."""
        return np.uint64((self.seed * 0x2545F4914F6CDD1D + self.sweeps * 0xD1342543DE82EF95) % 2**64)

