"""The primitives of topic models in NumPy, one document after another: the specification and the
judge of the other engines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.special import digamma, gammaln

from eckart.engines.host import place
from eckart.engines.protocol.topics import (
    NOISE,
    NOISE_WORDS,
    TopicBeliefs,
    TopicDraw,
    TopicStatistics,
    TopicWords,
    spacing,
)


class OracleTopics:
    """The topics' family as part of ``OracleEngine``."""

    def topic_totals(self, x: Any) -> np.ndarray:
        return np.asarray(place(x).matrix.to_scipy().astype(np.float64).sum(axis=0)).ravel()

    def topic_start(self, totals: np.ndarray, k: int, seed: int, dtype: Any) -> np.ndarray:
        firsts = range(0, len(totals), NOISE_WORDS)
        sizes = [min(NOISE_WORDS, len(totals) - first) for first in firsts]
        noise = [
            np.random.default_rng([seed, f]).gamma(NOISE, 1.0 / NOISE, (n, k))
            for f, n in zip(firsts, sizes)
        ]
        words = totals[:, None] * np.concatenate(noise)
        return self.topic_words(words, words.sum(axis=0), 0.0, dtype).words

    def topic_words(
        self, counts: np.ndarray, sizes: np.ndarray, prior: Any, dtype: Any = None
    ) -> TopicWords:
        whole = counts.astype(np.float64) + prior
        whole[:, ~(whole.sum(axis=0) > 0)] = 1.0
        words = whole / whole.sum(axis=0)
        value = np.sum(np.asarray(prior) * np.log(np.maximum(words, 1e-45)))
        return TopicWords(words.astype(dtype or counts.dtype), float(value))

    def topic_beliefs(self, counts: np.ndarray, prior: Any) -> TopicBeliefs:
        logs = digamma(counts) - digamma(counts.sum(axis=0))
        shift = logs.max(axis=1)
        rest = np.sum(gammaln(counts) - counts * logs) - np.sum(gammaln(counts.sum(axis=0)))
        cross = np.sum(np.asarray(prior) * logs)
        return TopicBeliefs(
            np.exp(logs - shift[:, None]), shift, float(logs.sum()), float(cross), float(rest)
        )

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
        theta = _tall(x, shares)
        for d, (w, c) in enumerate(_documents(x)):
            for _ in range(steps):
                old, theta[d] = theta[d].copy(), _share(words[w], c, prior, theta[d])[0]
                if np.abs(theta[d] - old).sum() < tol:
                    break
        return theta.astype(words.dtype)

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
        theta, counts = (
            self.topic_fold(x, words, prior, shares, steps=steps - 1, tol=tol),
            np.zeros(words.shape),
        )
        value, penalty, seen = 0.0, 0.0, 0.0
        for d, (w, c) in enumerate(_documents(x)):
            new, gamma, s = _share(words[w], c, prior, theta[d].astype(np.float64))
            held = s > 0
            np.add.at(counts, w, gamma)
            value += float(c[held] @ np.log(s[held]))
            penalty += float(prior @ np.log(np.where(prior > 0, np.maximum(theta[d], 1e-37), 1.0)))
            seen += float(c[held].sum())
            theta[d] = new
        counts = counts.astype(words.dtype)
        return theta, TopicStatistics(
            counts, counts.sum(axis=0, dtype=np.float64), value + penalty, value, seen
        )

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
        gamma, counts = _tall(x, gamma), np.zeros(words.shape)
        value, rest, seen, logs = 0.0, 0.0, 0.0, np.zeros(len(prior))
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
            value += float(c @ np.log(s))
            rest += float(
                (prior - gamma[d]) @ np.log(theta)
                + gammaln(gamma[d]).sum()
                - gammaln(gamma[d].sum())
            )
            seen += float(c.sum())
            logs += np.log(theta)
        return gamma, TopicStatistics(counts, counts.sum(axis=0), value + rest, value, seen, logs)

    def topic_scores(
        self, x: Any, words: np.ndarray, shares: Any, floor: float
    ) -> tuple[float, float]:
        theta, value, seen = _tall(x, shares), 0.0, 0.0
        for d, (w, c) in enumerate(_documents(x)):
            value += float(c @ np.log(np.maximum(words[w] @ theta[d], floor)))
            seen += float(c.sum())
        return value, seen

    def topic_chain(self, x: Any, words: np.ndarray, shares: Any, prior: Any, seed: int) -> Any:
        return OracleChain(x, words, shares, prior, seed)


def _share(
    words: np.ndarray, c: np.ndarray, prior: np.ndarray, theta: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The next theta of a document, gamma of its words, and their probabilities."""
    s = words.astype(np.float64) @ theta
    gamma = np.where(s > 0, c / np.where(s > 0, s, 1.0), 0.0)[:, None] * words * theta
    new = gamma.sum(axis=0) + prior
    return (new / new.sum() if new.sum() > 0 else theta), gamma, s


def _tall(x: Any, start: np.ndarray) -> np.ndarray:
    """A float64 copy, one row for each document."""
    return np.array(np.broadcast_to(start, (place(x).matrix.shape[0], start.shape[-1])), np.float64)


class OracleChain:
    """The exact collapsed sampler, token after token."""

    def __init__(self, x: Any, words: np.ndarray, shares: Any, prior: Any, seed: int):
        self.rng, self.averaged, self.k = np.random.default_rng(seed), 0, words.shape[1]
        shares = _tall(x, shares)
        self.tokens_of = [np.repeat(w, c.astype(int)) for w, c in _documents(x)]
        self.tokens = sum(map(len, self.tokens_of))
        self.topics = [
            np.array([self._draw(words[w] * shares[d]) for w in tokens], int)
            for d, tokens in enumerate(self.tokens_of)
        ]
        self.table, self.mean = np.zeros(words.shape), np.zeros(words.shape)
        self.set_prior(prior)
        for w, z in zip(self.tokens_of, self.topics):
            np.add.at(self.table, (w, z), 1)

    def set_prior(self, prior: Any) -> None:
        self.prior = np.broadcast_to(np.asarray(prior, np.float64), self.table.shape)

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

    def draw(self, documents: int, words: int) -> TopicDraw:
        n, k = len(self.table), self.k
        some = self.topics[:: spacing(len(self.topics), documents)]
        counts = np.array([np.bincount(z, minlength=k) for z in some], np.float64).reshape(-1, k)
        return TopicDraw(counts, self.table[:: spacing(n, words)].copy(), n, self.table.sum(axis=0))

    def state(self) -> dict[str, Any]:
        return {
            "drawn": self.rng.bit_generator.state,
            "averaged": self.averaged,
            "topics": np.concatenate([*self.topics, np.zeros(0, int)]),
            "table": self.table,
            "mean": self.mean,
            "prior": np.array(self.prior),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.rng.bit_generator.state, self.averaged = state["drawn"], state["averaged"]
        self.topics = np.split(
            state["topics"], np.cumsum([len(tokens) for tokens in self.tokens_of])[:-1]
        )
        self.table, self.mean, self.prior = state["table"], state["mean"], state["prior"]

    def _draw(self, weight: np.ndarray) -> int:
        running = np.cumsum(weight)
        return int(
            np.searchsorted(running, self.rng.random() * running[-1], side="right").clip(
                0, len(weight) - 1
            )
        )


def _documents(x: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    m = place(x).matrix
    for a, b in zip(m.indptr[:-1], m.indptr[1:]):
        yield m.indices[a:b], m.data[a:b].astype(np.float64)
