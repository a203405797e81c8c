"""The primitives of topic models, as part of ``CpuEngine``: ranges of documents, then ranges of
words, on the threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from eckart.engines.arrays.topics import ArrayChains, ArrayTopics
from eckart.engines.cpu.buffers import aligned_zeros, real_columns
from eckart.engines.cpu.small import or_arrays, or_arrays_on_factor
from eckart.engines.cpu.spread import by_rows
from eckart.engines.protocol.topics import (
    TopicStatistics,
    TopicWords,
)
from eckart.loading import lazy

chains = lazy("eckart.engines.cpu.topics.gibbs")
kernels = lazy("eckart.engines.cpu.topics.kernels")
layout = lazy("eckart.engines.cpu.topics.layout")
word_kernels = lazy("eckart.engines.cpu.topics.kernels")

if TYPE_CHECKING:
    from eckart.engines.cpu.topics.layout import DocumentLayout


FEW = 2**17
"""Numbers of the words up to which they are worked on by arrays: two milliseconds a sweep, where
documents that are worth kernels take a hundred."""


class TopicPrimitives(ArrayTopics, ArrayChains):
    """The topics' family on ``threads`` threads; numba is loaded when the first of them is
    called."""

    # Time of arrays over that of kernels, 1,000,000 entries of 20,000 x 5,000, 20 topics, float32,
    # one thread of an AMD EPYC: topic_sweep 1.5, topic_bayes 2.9, topic_scores 4.2; topic_words of
    # 50,000 x 50 4.0.
    threads: int
    topic_totals = by_rows(ArrayTopics, "topic_totals", lambda x, **_: x.shape[1])

    @or_arrays_on_factor(ArrayTopics, few=FEW)
    def topic_words(
        self, counts: np.ndarray, sizes: np.ndarray, prior: Any, dtype: Any = None
    ) -> TopicWords:
        (n, k), dtype = counts.shape, np.dtype(dtype or counts.dtype)
        b, words = layout.prior_of(prior, k, dtype), np.empty((n, layout.width(k)), dtype)
        total = np.asarray(sizes, np.float64) + b[:, :k].sum(axis=0, dtype=np.float64) * (
            1 if len(b) > 1 else n
        )
        held = total > 0
        scale = layout.row_of(np.where(held, 1.0 / np.where(held, total, 1.0), 0.0), dtype)
        lift = layout.row_of(np.where(held, 0.0, 1.0 / n), dtype)
        c = layout.wide_of(counts, counts.dtype)
        parts = layout.word_ranges(n, 2 * layout.width(k))
        values = layout.each(
            parts,
            lambda a, z: word_kernels.normal_words(c, b, scale, lift, k, a, z, words),
            self.threads,
        )
        return TopicWords(real_columns(words, k), float(np.sum(values)))

    @or_arrays(ArrayTopics)
    def topic_fold(
        self,
        x: Any,
        words: np.ndarray,
        prior: np.ndarray,
        shares: Any,
        *,
        steps: int,
        tol: float = 0.0,
    ) -> Any:
        at, dtype = layout.documents_of(x, self.threads), words.dtype
        w, a, rows = layout.wide_of(words, dtype), layout.row_of(prior, dtype), at.rows(dtype)
        theta = layout.tall_of(shares, at.matrix.shape[0], dtype)

        def one(first: int, last: int, buffer: np.ndarray) -> None:
            kernels.map_rows(rows, w, a, theta, theta[:0], first, last, steps, tol, buffer)

        self._over_documents(at, steps, w, one)
        return real_columns(theta, words.shape[1])

    @or_arrays(ArrayTopics)
    def topic_sweep(
        self,
        x: Any,
        words: np.ndarray,
        prior: np.ndarray,
        shares: Any,
        *,
        steps: int = 1,
        tol: float = 0.0,
    ) -> tuple[Any, TopicStatistics]:
        at, dtype = layout.documents_of(x, self.threads), words.dtype
        w, a, rows = layout.wide_of(words, dtype), layout.row_of(prior, dtype), at.rows(dtype)
        before = layout.tall_of(shares, at.matrix.shape[0], dtype)
        after = getattr(shares, "spare", None)
        after = np.empty_like(before) if after is None or after.dtype != dtype else after

        def one(first: int, last: int, buffer: np.ndarray) -> tuple[float, float, float]:
            return kernels.map_rows(rows, w, a, before, after, first, last, steps, tol, buffer)

        found = self._over_documents(at, steps, w, one)
        return real_columns(after, words.shape[1], before), self._words(at, before, words, found)

    @or_arrays(ArrayTopics)
    def topic_bayes(
        self,
        x: Any,
        words: np.ndarray,
        prior: np.ndarray,
        gamma: Any,
        *,
        steps: int = 100,
        tol: float = 1e-3,
    ) -> tuple[Any, TopicStatistics]:
        at, dtype, k = layout.documents_of(x, self.threads), words.dtype, words.shape[1]
        n, w, rows, a = (
            at.matrix.shape[0],
            layout.wide_of(words, dtype),
            at.rows(dtype),
            np.asarray(prior, np.float64),
        )
        g = (
            gamma.whole
            if getattr(gamma, "whole", None) is not None and gamma.dtype == np.float64
            else np.array(np.broadcast_to(gamma, (n, k)), np.float64)
        )
        theta = getattr(gamma, "spare", None)
        theta = np.empty((n, w.shape[1]), dtype) if theta is None or theta.dtype != dtype else theta

        def one(
            first: int, last: int, buffer: np.ndarray
        ) -> tuple[float, float, float, np.ndarray]:
            logs = np.zeros(k)
            return *kernels.bayes_rows(
                rows, w, a, g, theta, first, last, steps, tol, logs, buffer
            ), logs

        found = self._over_documents(at, 4 * steps, w, one)
        logs = np.sum([part[3] for part in found], axis=0) if found else np.zeros(k)
        return real_columns(g, k, theta), self._words(at, theta, words, found)._replace(logs=logs)

    @or_arrays(ArrayTopics)
    def topic_scores(
        self, x: Any, words: np.ndarray, shares: Any, floor: float
    ) -> tuple[float, float]:
        at, dtype = layout.documents_of(x, self.threads), words.dtype
        w, rows = layout.wide_of(words, dtype), at.rows(dtype)
        theta, least = layout.tall_of(shares, at.matrix.shape[0], dtype), dtype.type(floor)
        found = layout.each(
            at.parts(w.shape[1]),
            lambda a, b: kernels.score_rows(rows, w, theta, a, b, least),
            self.threads,
        )
        value, seen = np.sum(found, axis=0) if found else (0.0, 0.0)
        return float(value), float(seen)

    @or_arrays(ArrayChains)
    def topic_chain(self, x: Any, words: np.ndarray, shares: Any, prior: Any, seed: int) -> Any:
        return chains.TopicChain(
            layout.documents_of(x, self.threads), words, shares, prior, seed, self.threads
        )

    def _over_documents(
        self, at: DocumentLayout, steps: int, words: np.ndarray, one: Any
    ) -> list[Any]:
        """``one`` of ranges of documents, each thread with a buffer for the words of a row."""
        shape = at.longest, words.shape[1]
        parts = at.parts(2 * min(steps, 8) * words.shape[1])
        return layout.each(parts, one, self.threads, lambda: aligned_zeros(shape, words.dtype))

    def _words(
        self, at: DocumentLayout, theta: np.ndarray, words: np.ndarray, found: list[Any]
    ) -> TopicStatistics:
        """The words' counts by topic from what the documents left, with the sums of their
        evidence."""
        w = layout.wide_of(words, words.dtype)
        counts, columns = np.empty_like(w), at.columns(words.dtype)

        def one(first: int, last: int) -> np.ndarray:
            sizes = np.zeros(w.shape[1])
            word_kernels.gather_words(columns, theta, w, first, last, counts, sizes)
            return sizes

        k = words.shape[1]
        sizes = np.sum(
            layout.each(at.word_parts(3 * w.shape[1], words.dtype), one, self.threads), axis=0
        )[:k]
        likelihood, penalty, seen = (float(sum(part[i] for part in found)) for i in range(3))
        return TopicStatistics(
            real_columns(counts, k), sizes, likelihood + penalty, likelihood, seen
        )
