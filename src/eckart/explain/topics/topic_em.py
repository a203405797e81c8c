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

LDA by EM in its MAP form ("cvb0"), with alpha and eta learned on the way.

The climb is that of ``topic_em``. At a few steps the topics of the tokens are drawn (a few Gibbs
sweeps from what EM expects), and the Dirichlet parameters are moved to where the drawn counts are
more probable (``priors``); expected counts are smoother than any draw and would make both priors
too large. Between two moves the objective never falls. Weights that are not whole numbers cannot be
drawn: the priors then stay where they start.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from eckart.engines.protocol.topics import TopicWords
from eckart.explain.em import Ascent, best_of, climb, index_of
from eckart.explain.topics.priors import DOCUMENTS, WORDS, Priors, SolvedPrior, spread
from eckart.factors import Topics
from eckart.io.models.checkpoint import NOTHING, Memory, like
from eckart.trace import StopReason, Trace, Watcher, silent


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


LEARN_AT, DRAWS = (16, 24, 32, 48), 3
"""EM steps at which the priors move, and Gibbs sweeps at each."""
LEAST, SETTLE = 15, 5
"""EM steps at least (a climb starts near a saddle), and after the last move of the priors."""


@dataclass(frozen=True)
class Climbed:
    """Where a climb ended, with phi and theta after one more M step (theta in the engine), and the
    priors."""

    ascent: Ascent[TopicWords, Sweep]
    problem: LearningProblem

    @property
    def words(self) -> np.ndarray:
        return self.problem.maximise(self.ascent.statistics).words


class LearningProblem(TopicProblem):
    """A topic problem whose priors move, where the counts can be drawn (``whole`` numbers)."""

    def __init__(
        self,
        docs: Any,
        engine: Any,
        priors: Priors,
        steps: int,
        dtype: Any,
        most: int,
        seed: int,
        whole: bool,
    ):
        super().__init__(docs, engine, priors.alpha, priors.words, steps, dtype)
        self.priors, self.most, self.seed = priors, most, seed
        self.learns = (priors.learn_alpha or priors.learn_eta) and whole
        self.moves: list[int] = []

    def remember(self, sweep: Sweep) -> dict[str, Any]:
        return super().remember(sweep) | {"priors": self.priors, "moves": self.moves}

    def recall(self, kept: Any) -> Sweep:
        self.priors, self.moves = like(self.priors, kept["priors"]), list(kept["moves"])
        self.alpha, self.eta = self.priors.alpha, self.priors.words
        return super().recall(kept)

    def each(self, phi: TopicWords, sweep: Sweep, trace: Trace) -> TopicWords | None:
        """Learn the priors from drawn counts; the climb goes on at the topics and shares that the
        step leads to."""
        step = len(trace)
        if not self.learns or step not in LEARN_AT or step > self.most - SETTLE:
            return None
        chain = self.engine.topic_chain(
            self.docs, phi.words, self.shares, self.eta, self.seed + step
        )
        for _ in range(DRAWS):
            chain.sweep(self.priors.alpha)
            self.priors = self.priors.learned(chain.draw(DOCUMENTS, WORDS))
        self.alpha, self.eta = self.priors.alpha, self.priors.words
        self.moves.append(step)
        return self.maximise(sweep)


def ascend(
    docs: Any,
    priors: Priors,
    *,
    tol: float,
    max_iter: int,
    engine: Any,
    rng: np.random.Generator,
    whole: bool = False,
    steps: int = 3,
    dtype: Any = np.float32,
    first: np.ndarray | None = None,
    watch: Watcher = silent,
    memory: Memory = NOTHING,
) -> Climbed:
    """One climb from random topics, or from ``first`` (phi, words x k)."""
    drawn = [
        start(docs, len(priors.alpha), rng, dtype, engine, priors.boost) if first is None else first
    ]
    problem = LearningProblem(
        docs, engine, priors, steps, dtype, max_iter, int(rng.integers(2**31)), whole
    )
    how: dict[str, Any] = {
        "tol": tol,
        "max_iter": max_iter,
        "least": LEAST,
        "watch": watch,
        "each": problem.each,
    }
    # which alone holds where it begins
    found = climb(problem, problem.begin(drawn.pop()), memory=memory, **how)
    if tol == 0 and found.trace.reason is StopReason.MAX_ITER:
        found.trace.reason = StopReason.CONVERGED
    return Climbed(found, problem)


def solve(
    docs: Any,
    priors: Priors,
    *,
    n_init: int,
    rng: np.random.Generator,
    memory: Memory = NOTHING,
    **options: Any,
) -> SolvedPrior:
    """The highest of several climbs (``options`` are those of ``ascend``); an interrupted one is
    the last."""
    ended: list[tuple[Priors, list[int]]] = [
        (like(priors, p), list(moves)) for p, moves in memory.last() or ()
    ]

    def one(stream: np.random.Generator, memory: Memory) -> Ascent[TopicWords, Sweep]:
        found = ascend(docs, priors, rng=stream, memory=memory, **options)
        ended.append((found.problem.priors, found.problem.moves))
        return found.ascent

    best, ends = best_of(
        [partial(one, stream) for stream in rng.spawn(n_init)], memory.inner(lambda: ended)
    )
    learned, moves = ended[index_of(best, ends)]
    plan = {"sweeps": len(best.trace) - 1, "priors moved at": list(moves)}
    return SolvedPrior(best.statistics.counts, learned, best.trace, plan, spread(ends))
