"""LDA by EM in its MAP form ("cvb0"), with alpha and eta learned on the way.

The climb is that of ``topic_em``. At a few steps the topics of the tokens are drawn (a few Gibbs sweeps from what EM expects), and the Dirichlet
parameters are moved to where the drawn counts are more probable (``priors``); expected counts are smoother than any draw and would make both priors too
large. Between two moves the objective never falls. Weights that are not whole numbers cannot be drawn: the priors then stay where they start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from eckart.explain.em import Ascent, climb
from eckart.explain.topics.documents import whole_numbers
from eckart.explain.topics.priors import Priors
from eckart.explain.topics.topic_em import State, Sweep, TopicProblem, equal_shares, start
from eckart.matrix import Counts
from eckart.trace import StopReason, Trace, Watcher, silent

LEARN_AT, DRAWS = (16, 24, 32, 48), 3
LEAST, SETTLE = 15, 5
"""EM steps at least (a climb starts near a saddle), and after the last move of the priors."""


@dataclass(frozen=True)
class Begun:
    """Where the climb ended, the expected counts of words by topic, and the priors."""

    ascent: Ascent[State, Sweep]
    counts: np.ndarray
    priors: Priors
    moves: tuple[int, ...]

    @property
    def state(self) -> State:
        """phi and theta after one more M step."""
        from eckart.explain.topics.topic_em import normalised

        return State(normalised(self.counts, self.priors.words), self.ascent.statistics.shares)


class LearningProblem(TopicProblem):
    """A topic problem whose priors move."""

    def __init__(self, x: Counts, engine: Any, priors: Priors, steps: int, most: int, seed: int):
        super().__init__(x, engine, priors.alpha, priors.words, steps)
        self.priors, self.most, self.seed = priors, most, seed
        self.learns = (priors.learn_alpha or priors.learn_eta) and whole_numbers(x)
        self.moves: list[int] = []

    def each(self, state: State, sweep: Sweep, trace: Trace) -> State | None:
        """Learn the priors from drawn counts; the climb goes on at the topics and shares that the step leads to."""
        step = len(trace)
        if not self.learns or step not in LEARN_AT or step > self.most - SETTLE:
            return None
        shape = state.words.shape
        prior = np.broadcast_to(np.asarray(self.eta, np.float32), shape)
        drawn = self.engine.topic_chain(self.x, state.words, sweep.shares, prior, self.seed + step)
        for _ in range(DRAWS):
            drawn.sweep(self.priors.alpha)
            self.priors = self.priors.learned(drawn.document_counts(), drawn.counts())
        self.alpha, self.eta = self.priors.alpha, self.priors.words
        self.moves.append(step)
        return self.maximise(sweep)


def solve(
    x: Counts,
    priors: Priors,
    *,
    tol: float,
    max_iter: int,
    engine: Any,
    rng: np.random.Generator,
    steps: int = 3,
    dtype: Any = np.float32,
    first: np.ndarray | None = None,
    watch: Watcher = silent,
) -> Begun:
    """One climb from random topics, or from ``first`` (phi, words x k)."""
    k, kind = len(priors.alpha), np.dtype(dtype)
    words = start(x, k, rng, kind, priors.boost) if first is None else first.astype(kind)
    problem = LearningProblem(x, engine, priors, steps, max_iter, int(rng.integers(2**31)))
    begin = State(words, equal_shares(x.shape[0], priors.alpha, kind))
    found = climb(problem, begin, tol=tol, max_iter=max_iter, least=LEAST, watch=watch, each=problem.each)
    if tol == 0 and found.trace.reason is StopReason.MAX_ITER:
        found.trace.reason = StopReason.CONVERGED
    return Begun(found, found.statistics.counts, problem.priors, tuple(problem.moves))


def best_start(
    x: Counts, priors: Priors, n_init: int, *, rng: np.random.Generator, **options: Any
) -> tuple[Begun, list[float]]:
    """The highest of several climbs, and where each of them ended; an interrupted one is the last."""
    found: list[Begun] = []
    for stream in rng.spawn(n_init):
        found.append(solve(x, priors, rng=stream, **options))
        if found[-1].ascent.trace.reason is StopReason.INTERRUPTED:
            break
    return max(found, key=lambda b: b.ascent.bound), [b.ascent.bound for b in found]
