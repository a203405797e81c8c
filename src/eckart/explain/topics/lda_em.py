"""LDA by EM in its MAP form ("cvb0"), with alpha and eta learned on the way.

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
from eckart.explain.topics.topic_em import Sweep, TopicProblem, start
from eckart.io.models.levels import NOTHING, Memory, like
from eckart.trace import StopReason, Trace, Watcher, silent

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
