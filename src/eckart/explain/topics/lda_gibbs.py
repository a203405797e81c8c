"""LDA by collapsed Gibbs sampling, started where EM ends, averaged over sweeps.

    p(z_i = z | the rest)  proportional to  (n_dz + alpha_z) (n_wz + eta) / (n_z + n eta)

EM (``topic_em``) finds the neighbourhood in a few dozen cheap sweeps; the chain starts at draws from its posterior, learns alpha and eta while it burns in, and
the words' counts are then averaged over ``n_samples`` sweeps: phi_zw = (mean n_wz + eta) / sum, an estimate of the posterior mean that no single draw reaches.

References: Griffiths and Steyvers (2004); Newman, Asuncion, Smyth and Welling (2009) for lanes that exchange their counts after each sweep.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eckart.explain.topics.lda_em import solve as ascend
from eckart.explain.topics.priors import Priors
from eckart.matrix import Counts
from eckart.trace import StopReason, Trace, Watcher, silent

LEARN_FROM, LEARN_EVERY = 6, 4


@dataclass(frozen=True)
class Sampled:
    """Mean counts of words by topic, the priors that were learned, the trace, and the EM sweeps before the chain."""

    counts: np.ndarray
    priors: Priors
    trace: Trace
    ascent: int

    @property
    def value(self) -> float:
        """Mean log-likelihood of a token given the others over the last half of the trace."""
        v = self.trace.values
        return float(np.mean(v[len(v) // 2 :])) if v else -np.inf


def solve(
    x: Counts,
    priors: Priors,
    *,
    max_iter: int,
    burn_in: int,
    n_samples: int,
    n_init: int,
    engine: Any,
    rng: np.random.Generator,
    first: np.ndarray | None = None,
    watch: Watcher = silent,
) -> tuple[Sampled, list[Sampled]]:
    """The best of ``n_init`` chains, and all of them; an interrupt keeps what there is."""
    chains: list[Sampled] = []
    for stream in rng.spawn(n_init):
        chains.append(_one(x, priors, max_iter, burn_in, n_samples, engine, stream, first, watch))
        if chains[-1].trace.reason is StopReason.INTERRUPTED:
            break
    best = max(chains, key=lambda c: c.value)
    return best, chains


def _one(
    x: Counts,
    priors: Priors,
    max_iter: int,
    burn_in: int,
    n_samples: int,
    engine: Any,
    rng: np.random.Generator,
    first: np.ndarray | None,
    watch: Watcher,
) -> Sampled:
    trace = Trace("log-likelihood of a token given the others", reason=StopReason.MAX_ITER)
    fixed = replace(priors, learn_alpha=False, learn_eta=False)
    begun = ascend(x, fixed, tol=0.0, max_iter=max_iter, engine=engine, rng=rng, first=first, watch=watch)
    ascent = len(begun.ascent.trace)
    if begun.ascent.trace.reason is StopReason.INTERRUPTED:
        trace.reason = StopReason.INTERRUPTED
        trace.add(begun.ascent.bound)
        return Sampled(begun.counts, priors, trace, ascent)
    state = begun.state
    shape = state.words.shape
    chain = engine.topic_chain(
        x, state.words, state.shares, np.broadcast_to(priors.words, shape), int(rng.integers(2**31))
    )
    total, learns = burn_in + n_samples, priors.learn_alpha or priors.learn_eta
    try:
        for sweep in range(total):
            value = chain.sweep(priors.alpha, average=sweep >= burn_in)
            trace.add(value / max(1, chain.tokens))
            if learns and LEARN_FROM <= sweep < burn_in and sweep % LEARN_EVERY == 0:
                priors = priors.learned(chain.document_counts(), chain.counts())
                chain.set_prior(np.broadcast_to(priors.words, shape))
            watch("sampling", sweep + 1, total)
        trace.reason = StopReason.CONVERGED
    except KeyboardInterrupt:
        trace.reason = StopReason.INTERRUPTED
    return Sampled(chain.mean_counts(), priors, trace, ascent)
