"""A chain of the collapsed Gibbs sampler in NumPy: in each step the next token of every document,
against the counts of words that the step before left.

Two tokens of a step do not see each other move; of a corpus so small that this would show every
token is a step of its own, which is the exact sampler.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.engines.host import place
from eckart.engines.protocol.topics import TopicDraw, spacing

EXACT = 256
"""Tokens up to which each is a step of its own: a step takes 40 microseconds."""
STATE = ("seed", "sweeps", "averaged", "topics", "prior", "table", "mean")
"""What a chain carries from sweep to sweep; the rest follows from the documents."""


class ArrayChains:
    """The chains of the family ``topics``."""

    def topic_chain(self, x: Any, words: np.ndarray, shares: Any, prior: Any, seed: int) -> Any:
        return ArrayChain(place(x).matrix, words, np.asarray(shares), prior, seed)


class ArrayChain:
    """A topic for each token, and the counts that follow from them (see
    ``protocol.topics.Chain``)."""

    def __init__(self, m: Any, words: np.ndarray, shares: np.ndarray, prior: Any, seed: int):
        self.seed, self.sweeps, self.averaged, (self.n, self.k) = seed, 0, 0, words.shape
        counts, rows = m.data.astype(np.int64), m.shape[0]
        self.words = np.repeat(m.indices, counts)
        self.documents = np.repeat(np.repeat(np.arange(rows), m.row_counts()), counts)
        self.tokens = len(self.words)
        self.lengths = np.bincount(self.documents, minlength=rows)
        self.steps = self._steps()
        theta = np.broadcast_to(shares, (rows, self.k))
        weight = theta[self.documents].astype(np.float64) * words[self.words]
        self.topics = _drawn(weight, np.random.default_rng([seed, 0]).random(self.tokens))
        self.table = _tally(self.words, self.topics, (self.n, self.k))
        self.mean = np.zeros_like(self.table)
        self.set_prior(prior)

    def _steps(self) -> list[np.ndarray]:
        if self.tokens <= EXACT:
            return list(np.arange(self.tokens)[:, None])
        first = np.cumsum(self.lengths) - self.lengths
        at = np.arange(self.tokens) - first[self.documents]
        return np.split(np.argsort(at, kind="stable"), np.cumsum(np.bincount(at))[:-1])

    def set_prior(self, prior: Any) -> None:
        self.prior = np.array(np.broadcast_to(np.asarray(prior, np.float64), self.table.shape))

    def sweep(self, alpha: np.ndarray, average: bool = False) -> float:
        self.sweeps += 1
        draws = np.random.default_rng([self.seed, self.sweeps]).random(self.tokens)
        here = _tally(self.documents, self.topics, (len(self.lengths), self.k)) + alpha
        table = self.table + self.prior
        sizes = table.sum(axis=0)
        rest, value = np.sum(alpha) - 1 + self.lengths, 0.0
        for at in self.steps:
            word, document, old = self.words[at], self.documents[at], self.topics[at]
            weight, own, size = here[document], table[word], np.tile(sizes, (len(at), 1))
            each = np.arange(len(at))
            for counts in (weight, own, size):  # without the token itself
                counts[each, old] -= 1.0
            weight *= own / size
            value += float(np.log(weight.sum(axis=1) / rest[document]).sum())
            new = self.topics[at] = _drawn(weight, draws[at])
            here[document, old] -= 1.0  # of each document there is one token
            here[document, new] += 1.0
            np.subtract.at(table, (word, old), 1.0)
            np.add.at(table, (word, new), 1.0)
            sizes += np.bincount(new, minlength=self.k) - np.bincount(old, minlength=self.k)
        self.table = _tally(self.words, self.topics, self.table.shape)
        if average:
            self.mean = self.mean + self.table
        self.averaged += average
        return value

    def counts(self) -> np.ndarray:
        return self.table.astype(np.float32)

    def mean_counts(self) -> np.ndarray:
        return (self.mean / self.averaged).astype(np.float32) if self.averaged else self.counts()

    def draw(self, documents: int, words: int) -> TopicDraw:
        shape = len(self.lengths), self.k
        some = _tally(self.documents, self.topics, shape)[:: spacing(shape[0], documents)]
        of_words = self.table[:: spacing(self.n, words)]
        return TopicDraw(some, of_words.copy(), self.n, self.table.sum(axis=0))

    def state(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in STATE}

    def restore(self, state: dict[str, Any]) -> None:
        for name in STATE:
            setattr(self, name, state[name])


def _drawn(weight: np.ndarray, chances: np.ndarray) -> np.ndarray:
    """A topic for each row of weights."""
    running = np.cumsum(weight, axis=1)
    passed = running <= (chances * running[:, -1])[:, None]
    return np.minimum(passed.sum(axis=1), weight.shape[1] - 1)


def _tally(rows: np.ndarray, topics: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """How often each row holds each topic."""
    found = np.bincount(rows * np.int64(shape[1]) + topics, minlength=shape[0] * shape[1])
    return found.reshape(shape).astype(np.float64)
