"""Batch variational LDA: q(theta_d) = Dir(gamma_d), q(beta_z) = Dir(lambda_z), topics of tokens summed out at their best.

    F = sum_dw c_dw log sum_z exp(E log theta_dz + E log beta_zw) - sum_d KL(q(theta_d) | Dir(alpha)) - sum_z KL(q(beta_z) | Dir(eta))

    E   gamma_d  <- alpha + sum_w c_dw phi_dw until it stands still, from where the last step left it
    M   lambda_z <- eta + sum_d c_dw phi_dwz;  alpha and eta at their maximum of F where they are learned

Every step raises F: the documents keep their gamma, and each update maximises F over one block of it.

Reference: Blei, Ng and Jordan (2003); Hoffman, Blei and Bach (2010).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.special import digamma

from eckart.certify.topics import expected_words, log_norm, topics_bound
from eckart.explain.em import Ascent, best_of, climb
from eckart.explain.topics.lda_em import solve as ascend
from eckart.explain.topics.priors import Priors, dirichlet_of_logs, symmetric_of_logs
from eckart.matrix import Counts
from eckart.trace import Watcher, silent

AHEAD = 20
"""EM steps that a variational climb starts from."""


class State(NamedTuple):
    """lambda (words x k), gamma (documents x k), and the priors they go with."""

    counts: np.ndarray
    gamma: np.ndarray
    priors: Priors


@dataclass(frozen=True)
class Sweep:
    """One E step: expected counts of words by topic, gamma, the bound, the tokens; sum_d E log theta_d."""

    counts: np.ndarray
    gamma: np.ndarray
    logs: np.ndarray
    bound: float
    weight: float
    priors: Priors

    def merge(self, other: Sweep) -> Sweep:
        """Of two parts of the documents, in their order."""
        gamma, logs = np.concatenate([self.gamma, other.gamma]), self.logs + other.logs
        bound, weight = self.bound + other.bound, self.weight + other.weight
        return Sweep(self.counts + other.counts, gamma, logs, bound, weight, self.priors)


class VariationalProblem:
    """Documents as a problem of ``em.climb``."""

    def __init__(self, x: Counts, engine: Any, steps: int, tol: float):
        self.x, self.engine, self.steps, self.tol = x, engine, steps, tol
        self.tokens = max(float(x.data.sum(dtype=np.float64)), 1e-300)

    def expect(self, state: State) -> Sweep:
        alpha = state.priors.alpha
        words, shift = expected_words(state.counts)
        found = self.engine.topic_bayes(self.x, words, alpha, state.gamma, steps=self.steps, tol=self.tol)
        bound = found.value + float(self.x.data.astype(np.float64) @ shift[self.x.indices])
        bound += self.x.shape[0] * log_norm(alpha) + topics_bound(state.counts, state.priors.words)
        return Sweep(found.counts, found.shares, found.logs, bound, self.tokens, state.priors)

    def maximise(self, sweep: Sweep) -> State:
        priors = sweep.priors
        counts = sweep.counts + priors.words
        if priors.learn_alpha and self.x.shape[0]:
            priors = replace(priors, alpha=dirichlet_of_logs(sweep.logs / self.x.shape[0], priors.alpha))
        if priors.learn_eta and priors.boost is None:
            logs = digamma(counts) - digamma(counts.sum(axis=0))
            priors = replace(priors, eta=symmetric_of_logs(float(logs.mean()), priors.eta, len(counts)))
        return State(counts, sweep.gamma, priors)


def solve(
    x: Counts,
    priors: Priors,
    *,
    tol: float,
    max_iter: int,
    n_init: int,
    inner: int,
    inner_tol: float,
    engine: Any,
    rng: np.random.Generator,
    first: np.ndarray | None = None,
    watch: Watcher = silent,
) -> tuple[Ascent[State, Sweep], list[float]]:
    """The best of ``n_init`` climbs, each from where a few EM steps lead from random topics, or all from ``first`` (phi, words x k).

    Near the saddle where all topics are equal the bound rises so slowly, and alpha falls so fast, that a climb would stop there.
    """
    k = len(priors.alpha)
    problem = VariationalProblem(x, engine, inner, inner_tol)

    def one(stream: np.random.Generator) -> Ascent[State, Sweep]:
        words = first
        if words is None:
            fixed = replace(priors, learn_alpha=False, learn_eta=False)
            words = ascend(x, fixed, tol=0.0, max_iter=min(AHEAD, max_iter), engine=engine, rng=stream).state.words
        counts = words.astype(np.float64) * (problem.tokens / k) + priors.words
        gamma = np.full((x.shape[0], k), 1.0) + problem.tokens / (max(1, x.shape[0]) * k)
        return climb(problem, State(counts, gamma, priors), tol=tol, max_iter=max_iter, least=15, watch=watch)

    return best_of(partial(one, stream) for stream in rng.spawn(n_init))
