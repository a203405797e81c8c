"""Documents under a topic model, all of them at once.

s_dw = theta_d . phi_w,      r_dw = c_dw / s_dw,      theta_dz <- theta_dz sum_w r_dw phi_wz +
prior,      n_wz = phi_wz sum_d r_dw theta_dz

A chain of the collapsed Gibbs sampler in NumPy: in each step the next token of every document,
against the counts of words that the step before left.

Two tokens of a step do not see each other move; of a corpus so small that this would show every
token is a step of its own, which is the exact sampler.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

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

LEFT = 0.5
"""Share of the documents that still move below which the others are left out of the steps: to pick
rows costs about as much as one step of them."""


class ArrayTopics:
    """The family ``topics`` but for chains."""

    lib: Any

    def topic_totals(self, x: Any) -> np.ndarray:
        lib = self.lib
        x = lib.placed(x)
        e = lib.entries(x)
        return lib.fetch(lib.product_t(e, lib.wide(e.data), lib.zeros(x.shape[0], 1) + 1.0)[:, 0])

    def topic_start(self, totals: np.ndarray, k: int, seed: int, dtype: Any) -> np.ndarray:
        """Drawn on the host, from the same streams on every engine."""
        n = len(totals)
        words = np.empty((n, k), dtype)
        for first in range(0, n, NOISE_WORDS):
            part = words[first : first + NOISE_WORDS]
            part[:] = np.random.default_rng([seed, first]).gamma(NOISE, 1.0 / NOISE, part.shape)
            part *= totals[first : first + NOISE_WORDS, None]
        return self.topic_words(words, words.sum(axis=0, dtype=np.float64), 0.0, dtype).words

    def topic_words(
        self, counts: Any, sizes: np.ndarray, prior: Any, dtype: Any = None
    ) -> TopicWords:
        lib, xp = self.lib, self.lib.xp
        n, given = counts.shape[0], np.asarray(prior, np.float64)
        b = lib.given(np.atleast_1d(given))
        total = lib.given(sizes) + b.sum(axis=0) * (1 if given.ndim == 2 else n)
        some = total > 0
        words = (lib.given(counts) + b) / xp.where(some, total, 1.0)
        words = xp.where(some, words, 1.0 / n)
        value = float((b * xp.log(xp.clip(words, 1e-45, None))).sum()) if given.any() else 0.0
        return TopicWords(lib.twin(lib.array(words, dtype or counts.dtype)), value)

    def topic_beliefs(self, counts: Any, prior: Any) -> TopicBeliefs:
        lib, xp = self.lib, self.lib.xp
        c, b = lib.given(counts), lib.given(np.asarray(prior, np.float64))
        totals = c.sum(axis=0)
        logs = lib.digamma(c) - lib.digamma(totals)
        shift = xp.amax(logs, axis=1)
        rest = (lib.log_gamma(c) - c * logs).sum() - lib.log_gamma(totals).sum()
        shifts, *sums = lib.host(shift, logs.sum(), (b * logs).sum(), rest)
        words = lib.twin(xp.exp(logs - shift[:, None]))
        return TopicBeliefs(words, shifts, *(float(each) for each in sums))

    def topic_fold(
        self, x: Any, words: Any, prior: np.ndarray, shares: Any, *, steps: int, tol: float = 0.0
    ) -> Any:
        x, theta = self._start(x, shares, words.dtype)
        return self.lib.tall(self._folded(x, words, prior, theta, steps, tol))

    def topic_sweep(
        self,
        x: Any,
        words: Any,
        prior: np.ndarray,
        shares: Any,
        *,
        steps: int = 1,
        tol: float = 0.0,
    ) -> tuple[Any, TopicStatistics]:
        lib = self.lib
        x, start = self._start(x, shares, words.dtype)
        theta, phi = self._folded(x, words, prior, start, steps - 1, tol), lib.array(words)
        e, a = lib.entries(x), lib.array(np.asarray(prior), words.dtype)
        s, r = _ratios(lib, e, theta, phi)
        after = _normal(lib, theta * lib.product(e, r, phi) + a, theta)
        c = lib.wide(e.data)
        sums = lib.stacked(_log_sum(lib, c, s), lib.xp.where(s > 0, c, 0.0).sum())
        return lib.tall(after), self._sweep_statistics(x, phi, prior, theta, r, sums)

    def _sweep_statistics(
        self, x: Any, phi: Any, prior: np.ndarray, theta: Any, ratios: Any, sums: Any
    ) -> TopicStatistics:
        """What a sweep leaves, from the shares before it and the ratios at the entries."""
        lib = self.lib
        counts, sizes = _word_counts(lib, x, phi, ratios, theta)
        logs = lib.xp.log(lib.xp.clip(lib.wide(theta), 1e-37, None)).sum(axis=0)
        (value, seen), logs, sizes = lib.host(sums, logs, sizes)
        given = np.asarray(prior, np.float64)
        penalty = float(given @ np.where(given > 0, logs, 0.0))
        return TopicStatistics(
            lib.twin(counts), sizes, float(value) + penalty, float(value), float(seen)
        )

    def topic_bayes(
        self,
        x: Any,
        words: Any,
        prior: np.ndarray,
        gamma: Any,
        *,
        steps: int = 100,
        tol: float = 1e-3,
    ) -> tuple[Any, TopicStatistics]:
        lib = self.lib
        x, g = self._start(x, gamma, np.float64)
        phi, a = lib.array(words), lib.given(np.asarray(prior))

        def step(e: Any, own: Any) -> tuple[Any, Any]:
            share = lib.like(lib.xp.exp(_expected(lib, own)), phi)
            pulled = lib.product(e, _ratios(lib, e, share, phi)[1], phi)
            new = a + lib.wide(share * pulled)
            return new, lib.xp.abs(new - own).mean(axis=1)

        g = _until_still(lib, lib.entries(x), g, step, steps, tol)
        e, logs = lib.entries(x), _expected(lib, g)
        share = lib.like(lib.xp.exp(logs), phi)
        s, r = _ratios(lib, e, share, phi)
        counts, sizes = _word_counts(lib, x, phi, r, share)
        rest = ((a - g) * logs + lib.log_gamma(g)).sum() - lib.log_gamma(g.sum(axis=1)).sum()
        c = lib.wide(e.data)
        value, seen, rest, sizes, logs = lib.host(
            _log_sum(lib, c, s), c.sum(), rest, sizes, logs.sum(axis=0)
        )
        return lib.tall(g), TopicStatistics(
            lib.twin(counts), sizes, float(value + rest), float(value), float(seen), logs
        )

    def topic_scores(self, x: Any, words: Any, shares: Any, floor: float) -> tuple[float, float]:
        lib = self.lib
        x, theta = self._start(x, shares, words.dtype)
        e = lib.entries(x)
        c, s = lib.wide(e.data), lib.dots(e, theta, lib.array(words))
        value = (c * lib.xp.log(lib.wide(lib.xp.clip(s, floor, None)))).sum()
        return tuple(float(each) for each in lib.host(value, c.sum()))  # type: ignore[return-value]

    def _start(self, x: Any, shares: Any, dtype: Any) -> tuple[Any, Any]:
        """The documents, and one row of shares for each."""
        lib = self.lib
        x, start = lib.placed(x), lib.array(shares, dtype)
        return x, lib.xp.broadcast_to(start, (x.shape[0], start.shape[-1]))

    def _folded(
        self, x: Any, words: Any, prior: np.ndarray, theta: Any, steps: int, tol: float
    ) -> Any:
        """Shares after some updates at the same words; a document whose shares move less than
        ``tol`` stays."""
        lib = self.lib
        phi, a = lib.array(words), lib.array(np.asarray(prior), words.dtype)

        def step(e: Any, own: Any) -> tuple[Any, Any]:
            pulled = lib.product(e, _ratios(lib, e, own, phi)[1], phi)
            new = _normal(lib, own * pulled + a, own)
            return new, lib.xp.abs(new - own).sum(axis=1)

        return _until_still(lib, lib.entries(x), theta, step, steps, tol)


def _until_still(
    lib: Any, e: Any, start: Any, step: Callable[[Any, Any], Any], steps: int, tol: float
) -> Any:
    """At most so many steps, which say how far each row moved; a row that moved less than ``tol``
    stays."""
    whole, rows, own, going = None, None, start, None
    for _ in range(steps):
        new, moved = step(e, own)
        own = new if going is None else lib.xp.where(going[:, None], new, own)
        if tol <= 0:
            continue
        going = moved >= tol if going is None else going & (moved >= tol)
        count = int(going.sum())
        if not count:
            break
        if count < LEFT * own.shape[0]:
            whole, rows = _put(whole, rows, own), _numbers(lib, rows, going)
            e, own, going = lib.some_rows(e, going), own[going], None
    return _put(whole, rows, own)


def _numbers(lib: Any, rows: Any, going: Any) -> Any:
    """Which of all rows these are."""
    return (lib.arange(going.shape[0]) if rows is None else rows)[going]


def _put(whole: Any, rows: Any, own: Any) -> Any:
    """All rows, these in their places."""
    if whole is None:
        return own
    whole[rows] = own
    return whole


def _ratios(lib: Any, e: Any, theta: Any, phi: Any) -> tuple[Any, Any]:
    """s and c / s at the entries; 0 where a word has no chance."""
    s = lib.dots(e, theta, phi)
    some = s > 0
    return s, lib.xp.where(some, lib.like(e.data, s) / lib.xp.where(some, s, 1.0), 0.0)


def _log_sum(lib: Any, c: Any, s: Any) -> Any:
    """sum c log s over the words that have a chance."""
    wide = lib.wide(s)
    return lib.xp.where(wide > 0, c * lib.xp.log(lib.xp.where(wide > 0, wide, 1.0)), 0.0).sum()


def _word_counts(lib: Any, x: Any, phi: Any, ratios: Any, theta: Any) -> tuple[Any, Any]:
    """Counts of words in topics, and their sums over words."""
    counts = phi * lib.product_t(lib.entries(x), ratios, theta)
    return counts, lib.wide(counts).sum(axis=0)


def _normal(lib: Any, new: Any, old: Any) -> Any:
    """Rows that sum to one; where there is nothing to divide, as they were."""
    total = new.sum(axis=1)[:, None]
    return lib.xp.where(total > 0, new / lib.xp.where(total > 0, total, 1.0), old)


def _expected(lib: Any, gamma: Any) -> Any:
    """E log theta under Dir(gamma)."""
    return lib.digamma(gamma) - lib.digamma(gamma.sum(axis=1))[:, None]


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
