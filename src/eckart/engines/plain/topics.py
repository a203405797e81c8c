"""The primitives of topic models in NumPy, one document after another: the specification and the judge of the other engines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.special import digamma, gammaln

from eckart.engines.protocol import TopicStatistics
from eckart.matrix import Counts


class PlainTopics:
    """topic_sweep, topic_bayes, topic_scores and topic_chain as part of ``PlainEngine``."""

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
        theta, counts, value, seen = shares.astype(np.float64), np.zeros(words.shape), 0.0, 0.0
        for d, (w, c) in enumerate(_documents(x)):
            for step in range(steps):
                s = words[w] @ theta[d]
                held = s > 0
                gamma = np.where(held, c / np.where(held, s, 1.0), 0.0)[:, None] * words[w] * theta[d]
                new = gamma.sum(axis=0) + prior
                new = new / new.sum() if new.sum() > 0 else theta[d]
                last = step == steps - 1
                if last:
                    np.add.at(counts, w, gamma)
                    value += float(c[held] @ np.log(s[held]) + prior @ np.log(np.where(prior > 0, theta[d], 1.0)))
                    seen += float(c[held].sum())
                theta[d] = new
        return TopicStatistics(theta, counts if collect else None, value if collect else 0.0, seen if collect else 0.0)

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
        gamma, counts, value, seen = gamma.astype(np.float64), np.zeros(words.shape), 0.0, 0.0
        logs = np.zeros(len(prior))
        for d, (w, c) in enumerate(_documents(x)):
            theta = np.exp(digamma(gamma[d]) - digamma(gamma[d].sum()))
            for _ in range(steps):
                new = prior + theta * (words[w].T @ (c / (words[w] @ theta)))
                moved = np.abs(new - gamma[d]).mean()
                gamma[d] = new
                theta = np.exp(digamma(gamma[d]) - digamma(gamma[d].sum()))
                if moved < tol:
                    break
            s = words[w] @ theta
            np.add.at(counts, w, (c / s)[:, None] * words[w] * theta)
            value += float(c @ np.log(s) + (prior - gamma[d]) @ np.log(theta))
            value += float(gammaln(gamma[d]).sum() - gammaln(gamma[d].sum()))
            seen += float(c.sum())
            logs += np.log(theta)
        return TopicStatistics(gamma, counts if collect else None, value, seen, logs)

    def topic_scores(
        self, x: Counts, words: np.ndarray, shares: np.ndarray, floor: float
    ) -> tuple[np.ndarray, np.ndarray]:
        rows = [
            (c @ np.log(np.maximum(words[w] @ shares[d], floor)), c.sum()) for d, (w, c) in enumerate(_documents(x))
        ]
        out = np.array(rows, np.float64).reshape(-1, 2)
        return out[:, 0], out[:, 1]

    def topic_chain(self, x: Counts, words: np.ndarray, shares: np.ndarray, prior: np.ndarray, seed: int) -> Any:
        return PlainChain(x, words, shares, prior, seed)


class PlainChain:
    """The exact collapsed sampler, token after token."""

    def __init__(self, x: Counts, words: np.ndarray, shares: np.ndarray, prior: np.ndarray, seed: int):
        self.prior, self.rng, self.averaged = np.asarray(prior, np.float64), np.random.default_rng(seed), 0
        self.tokens_of = [np.repeat(w, c.astype(int)) for w, c in _documents(x)]
        self.tokens = sum(map(len, self.tokens_of))
        self.topics = [
            np.array([self._draw(words[w] * shares[d]) for w in tokens], int) for d, tokens in enumerate(self.tokens_of)
        ]
        self.table, self.mean = np.zeros(words.shape), np.zeros(words.shape)
        for w, z in zip(self.tokens_of, self.topics):
            np.add.at(self.table, (w, z), 1)

    def set_prior(self, prior: np.ndarray) -> None:
        self.prior = np.asarray(prior, np.float64)

    def sweep(self, alpha: np.ndarray, average: bool = False) -> float:
        value = 0.0
        for tokens, topics in zip(self.tokens_of, self.topics):
            here = np.bincount(topics, minlength=len(alpha)).astype(float)
            for i, w in enumerate(tokens):
                here[topics[i]] -= 1
                self.table[w, topics[i]] -= 1
                sizes = (self.table + self.prior).sum(axis=0)
                weight = (here + alpha) * (self.table[w] + self.prior[w]) / sizes
                value += float(np.log(weight.sum() / (len(tokens) - 1 + alpha.sum())))
                topics[i] = self._draw(weight)
                here[topics[i]] += 1
                self.table[w, topics[i]] += 1
        self.averaged += average
        self.mean += average * self.table
        return value

    def counts(self) -> np.ndarray:
        return self.table.copy()

    def mean_counts(self) -> np.ndarray:
        return self.mean / self.averaged if self.averaged else self.counts()

    def document_counts(self) -> np.ndarray:
        k = len(self.table[0])
        return np.array([np.bincount(z, minlength=k) for z in self.topics], np.float64)

    def _draw(self, weight: np.ndarray) -> int:
        running = np.cumsum(weight)
        return int(np.searchsorted(running, self.rng.random() * running[-1], side="right").clip(0, len(weight) - 1))


def _documents(x: Counts) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for a, b in zip(x.indptr[:-1], x.indptr[1:]):
        yield x.indices[a:b], x.data[a:b].astype(np.float64)
