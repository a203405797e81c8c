"""EM for pLSA and for LDA in its MAP form, over counts.

    maximise  sum_dw c_dw log sum_z theta_dz phi_zw  +  sum_dz a_z log theta_dz  +  sum_zw b_zw log
    phi_zw

    E   gamma_dwz proportional to theta_dz phi_zw
    M   theta_dz proportional to a_z + sum_w c_dw gamma_dwz,      phi_zw proportional to b_zw +
    sum_d c_dw gamma_dwz

With a = b = 0 this is pLSA, and KL-NMF up to scaling. With a = alpha, b = eta it is LDA: the update
of collapsed variational Bayes of order zero (CVB0) with a token's own count left in, which is MAP
under Dir(alpha + 1), Dir(eta + 1). A few extra updates of theta alone, at fixed phi, cost less than
they gain. Neither step can lower the objective. theta stays in the engine: phi goes in, the words'
counts by topic come out.

References: Hofmann (1999); Asuncion, Welling, Smyth and Teh (2009).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from eckart.engines.protocol.topics import TopicWords
from eckart.factors import Topics


@dataclass(frozen=True)
class Sweep:
    """Statistics of one E step: the words' counts by topic, their sums over words, the
    log-likelihood, the objective, the tokens."""

    counts: np.ndarray
    sizes: np.ndarray
    likelihood: float
    bound: float
    weight: float

    def merge(self, other: Sweep) -> Sweep:
        """Of two parts of the documents."""
        sums = (
            self.counts + other.counts,
            self.sizes + other.sizes,
            self.likelihood + other.likelihood,
        )
        return Sweep(*sums, self.bound + other.bound, self.weight + other.weight)


class TopicProblem:
    """Placed documents with priors, as a problem of ``em.climb``; ``eta`` is one number or words x
    k. ``shares`` is theta, from the prior's mean on."""

    def __init__(
        self, docs: Any, engine: Any, alpha: np.ndarray, eta: Any, steps: int = 1, dtype: Any = None
    ):
        self.docs, self.engine, self.alpha, self.eta, self.steps = docs, engine, alpha, eta, steps
        self.dtype = np.dtype(docs.dtype if dtype is None else dtype)
        self.shares: Any = mean_shares(alpha)

    def begin(self, words: np.ndarray) -> TopicWords:
        """A theta of ``em.climb``: phi (words x k) with the log of its prior."""
        words = np.asarray(words, self.dtype)
        if not np.any(self.eta):
            return TopicWords(words, 0.0)
        return TopicWords(
            words, float(np.sum(self.eta * np.log(np.maximum(words, 1e-45)), dtype=np.float64))
        )

    def settled(self, t: Topics, steps: int, tol: float) -> TopicWords:
        """Begin at given topics with documents that are folded in there."""
        words = np.ascontiguousarray(t.words.T, self.dtype)
        start = np.full(t.k, 1.0 / t.k)
        self.shares = self.engine.topic_fold(
            self.docs, words, self.alpha, start, steps=steps, tol=tol
        )
        return self.begin(words)

    def expect(self, phi: TopicWords) -> Sweep:
        self.shares, found = self.engine.topic_sweep(
            self.docs, phi.words, self.alpha, self.shares, steps=self.steps
        )
        bound, weight = found.value + phi.log_prior, max(found.seen, 1e-300)
        return Sweep(found.counts, found.sizes, found.likelihood, bound, weight)

    def remember(self, sweep: Sweep) -> dict[str, Any]:
        return {"sweep": sweep, "shares": lambda: self.engine.get(self.shares)}

    def recall(self, kept: Any) -> Sweep:
        self.shares = self.engine.take(kept["shares"])
        return Sweep(**kept["sweep"])

    def maximise(self, sweep: Sweep) -> TopicWords:
        return self.engine.topic_words(sweep.counts, sweep.sizes, self.eta)


def mean_shares(alpha: np.ndarray) -> np.ndarray:
    """The prior's mean, where every document starts (equal shares where there is no prior)."""
    return alpha / alpha.sum() if alpha.sum() > 0 else np.full(len(alpha), 1.0 / len(alpha))


def start(
    docs: Any,
    k: int,
    rng: np.random.Generator,
    dtype: Any,
    engine: Any,
    boost: np.ndarray | None = None,
) -> np.ndarray:
    """phi to begin with: the words of the corpus with a little noise, near the saddle where all
    topics are equal; ``boost`` (words x k) leans it to seed words.

    From there EM follows the strongest differences first. Topics made of single documents part
    sooner and end lower.
    """
    totals = engine.topic_totals(docs)
    # a word that does not occur gets a thousandth of a mean share, so that no topic rules it out
    corpus = totals / max(totals.sum(), 1e-300) + 1e-3 / len(totals)
    words = engine.topic_start(corpus, k, int(rng.integers(2**31)), dtype)
    if boost is None:
        return words
    leaning = words + boost / np.maximum(boost.sum(axis=0), 1.0)
    return engine.topic_words(leaning, leaning.sum(axis=0), 0.0, dtype).words


def as_topics(counts: np.ndarray, eta: Any, alpha: np.ndarray, dtype: Any, columns: Any) -> Topics:
    """Topics of the words' counts (words x k) and their prior; where a topic has neither it is
    uniform."""
    sizes = counts.sum(axis=0, dtype=np.float64)
    sizes = sizes / sizes.sum() if sizes.sum() > 0 else np.full(len(sizes), 1.0 / len(sizes))
    whole = np.maximum(counts + np.asarray(eta, counts.dtype), 0)
    whole[:, ~(whole.sum(axis=0) > 0)] = 1.0 / len(whole)
    return Topics(
        np.ascontiguousarray(whole.T, dtype), np.asarray(alpha, np.float64), sizes, columns
    )
