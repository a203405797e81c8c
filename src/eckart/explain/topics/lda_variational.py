"""Batch variational LDA: q(theta_d) = Dir(gamma_d), q(beta_z) = Dir(lambda_z), topics of tokens
summed out at their best.

    F = sum_dw c_dw log sum_z exp(E log theta_dz + E log beta_zw) - sum_d KL(q(theta_d) |
    Dir(alpha)) - sum_z KL(q(beta_z) | Dir(eta))

    E   gamma_d  <- alpha + sum_w c_dw phi_dw until it stands still, from where the last step left
    it
    M   lambda_z <- eta + sum_d c_dw phi_dwz;  alpha and eta at their maximum of F where they are
    learned

Every step raises F: the documents keep their gamma (in the engine), and each update maximises F
over one block of it.

Reference: Blei, Ng and Jordan (2003); Hoffman, Blei and Bach (2010).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln

from eckart.engines.protocol.topics import TopicBeliefs
from eckart.explain.em import Ascent, best_of, climb
from eckart.explain.topics.priors import (
    Priors,
    SolvedPrior,
    dirichlet_of_logs,
    spread,
    symmetric_of_logs,
)
from eckart.explain.topics.topic_em import ascend
from eckart.factors import Topics
from eckart.io.models.checkpoint import NOTHING, Memory, like
from eckart.trace import Trace, Watcher, silent

AHEAD = 20
"""EM steps that a variational climb starts from."""


class VariationalState(NamedTuple):
    """lambda (words x k) with what the bound needs of it, and the priors that it goes with."""

    counts: np.ndarray
    beliefs: TopicBeliefs
    priors: Priors


@dataclass(frozen=True)
class VariationalSweep:
    """One E step: expected counts of words by topic, sum_d E log theta_d, the bound, the tokens."""

    counts: np.ndarray
    logs: np.ndarray
    bound: float
    weight: float
    priors: Priors

    def merge(self, other: VariationalSweep) -> VariationalSweep:
        """Of two parts of the documents."""
        bound, weight = self.bound + other.bound, self.weight + other.weight
        return VariationalSweep(
            self.counts + other.counts, self.logs + other.logs, bound, weight, self.priors
        )


class VariationalProblem:
    """Placed documents as a problem of ``em.climb``; gamma starts where all tokens are shared out
    equally."""

    def __init__(self, docs: Any, priors: Priors, engine: Any, steps: int, tol: float):
        self.docs, self.priors, self.engine, self.steps, self.tol = docs, priors, engine, steps, tol
        self.totals = engine.topic_totals(docs)
        self.tokens = max(float(self.totals.sum()), 1e-300)
        k, self.documents = len(priors.alpha), docs.shape[0]
        self.gamma: Any = np.full(k, 1.0 + self.tokens / (max(1, self.documents) * k))

    def begin(self, counts: np.ndarray) -> VariationalState:
        """A theta of ``em.climb`` at lambda = ``counts`` (words x k)."""
        return VariationalState(
            counts, self.engine.topic_beliefs(counts, self.priors.words), self.priors
        )

    def settled(self, t: Topics, steps: int, tol: float) -> VariationalState:
        """Begin at given topics; every step settles the documents."""
        self.steps, self.tol = steps, tol
        return self.begin(np.ascontiguousarray(t.counts.T, np.float64))

    def expect(self, state: VariationalState) -> VariationalSweep:
        alpha = state.priors.alpha
        options = {"steps": self.steps, "tol": self.tol}
        self.gamma, found = self.engine.topic_bayes(
            self.docs, state.beliefs.words, alpha, self.gamma, **options
        )
        bound = found.value + float(self.totals @ state.beliefs.shift)
        bound += self.documents * log_norm(alpha) + topics_bound(state.beliefs, state.priors)
        return VariationalSweep(found.counts, found.logs, bound, self.tokens, state.priors)

    def remember(self, sweep: VariationalSweep) -> dict[str, Any]:
        return {"sweep": sweep, "gamma": lambda: self.engine.get(self.gamma)}

    def recall(self, kept: Any) -> VariationalSweep:
        self.gamma = self.engine.take(kept["gamma"])
        return VariationalSweep(
            **kept["sweep"] | {"priors": like(self.priors, kept["sweep"]["priors"])}
        )

    def maximise(self, sweep: VariationalSweep) -> VariationalState:
        priors = sweep.priors
        counts = sweep.counts + priors.words
        beliefs = self.engine.topic_beliefs(counts, priors.words)
        if priors.learn_alpha and self.documents:
            priors = replace(
                priors, alpha=dirichlet_of_logs(sweep.logs / self.documents, priors.alpha)
            )
        if priors.learn_eta and priors.boost is None:
            eta = symmetric_of_logs(beliefs.logs / counts.size, priors.eta, len(counts))
            priors, beliefs = replace(priors, eta=eta), beliefs._replace(cross=eta * beliefs.logs)
        return VariationalState(counts, beliefs, priors)


def topics_bound(q: TopicBeliefs, priors: Priors) -> float:
    """-KL(q(beta) | Dir(eta)) over all topics."""
    n, k = q.words.shape
    eta = np.asarray(priors.words)
    if eta.ndim == 0:
        return float(q.cross + q.entropy + k * (gammaln(n * eta) - n * gammaln(eta)))
    return float(q.cross + q.entropy + np.sum(gammaln(eta.sum(axis=0))) - np.sum(gammaln(eta)))


def log_norm(alpha: np.ndarray) -> float:
    """log Gamma(sum alpha) - sum log Gamma(alpha_z)."""
    return float(gammaln(alpha.sum()) - gammaln(alpha).sum())


def solve(
    docs: Any,
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
    memory: Memory = NOTHING,
    enough: Callable[[Trace], tuple[bool, str]] | None = None,
) -> SolvedPrior:
    """The best of ``n_init`` climbs, each from where a few EM steps lead from random topics, or all
    from ``first`` (phi, words x k).

    Near the saddle where all topics are equal the bound rises so slowly, and alpha falls so fast,
    that a climb would stop there.
    """

    def one(
        stream: np.random.Generator, memory: Memory
    ) -> Ascent[VariationalState, VariationalSweep]:
        problem = VariationalProblem(docs, priors, engine, inner, inner_tol)
        words = first
        if words is None:
            fixed = replace(priors, learn_alpha=False, learn_eta=False)
            # a climb that goes on needs no start
            ahead = 0 if memory.last() is not None else min(AHEAD, max_iter)
            words = ascend(docs, fixed, tol=0.0, max_iter=ahead, engine=engine, rng=stream).words
        counts = words.astype(np.float64) * (problem.tokens / len(priors.alpha)) + priors.words
        return climb(
            problem,
            problem.begin(counts),
            tol=tol,
            max_iter=max_iter,
            least=15,
            watch=watch,
            memory=memory,
            enough=enough,
        )

    best, ends = best_of([partial(one, stream) for stream in rng.spawn(n_init)], memory)
    found = best.statistics
    return SolvedPrior(
        found.counts, found.priors, best.trace, {"sweeps": len(best.trace) - 1}, spread(ends)
    )
