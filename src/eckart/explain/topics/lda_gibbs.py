"""LDA by collapsed Gibbs sampling, started where EM ends, averaged over sweeps.

    p(z_i = z | the rest)  proportional to  (n_dz + alpha_z) (n_wz + eta) / (n_z + n eta)

EM (``topic_em``) finds the neighbourhood in a few dozen cheap sweeps; a chain does not leave it.
Where topics are of very unequal size about every second climb splits the largest and loses the
smallest, and ends clearly lower: so several are tried, on some of the documents where there are
many, and the highest is kept. The chain starts at draws from its posterior, learns alpha and eta
while it burns in, and the words' counts are then averaged over ``n_samples`` sweeps: phi_zw = (mean
n_wz + eta) / sum, an estimate of the posterior mean that no single draw reaches.

References: Griffiths and Steyvers (2004); Newman, Asuncion, Smyth and Welling (2009) for documents
that are sampled side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from eckart.explain.topics.judge import align_topics
from eckart.explain.topics.priors import DOCUMENTS, WORDS, Priors, SolvedPrior
from eckart.explain.topics.topic_em import Climbed, ascend
from eckart.io.models.checkpoint import NOTHING, Memory, kept_trace, like, resumed_trace
from eckart.trace import StopReason, Trace, Watcher, silent

LEARN_FROM, LEARN_EVERY = 6, 4
"""The sweep from which priors are learned (the first draws are still those of EM), and how
often."""
BURN_TOKENS = 2.5e8
"""Draws spent on burning in: chains start where EM ends, so that a large corpus needs few sweeps,
and a small one has them cheaply."""
STARTS = 12
"""Climbs that are tried for one fit: if half of them lose a topic, all of them do once in four
thousand times."""
TRIAL_TOKENS, TOPIC_TOKENS = 2**17, 2**12
"""Tokens on which they are tried, and for every topic at least: enough to see a topic of a
hundredth of the corpus, few enough to cost less than the chain."""
QUANTITY = "log-likelihood of a token given the others"


def solve(
    docs: Any,
    priors: Priors,
    *,
    max_iter: int,
    burn_in: int,
    n_samples: int,
    n_init: int,
    engine: Any,
    rng: np.random.Generator,
    first: np.ndarray | None = None,
    some: Any = None,
    watch: Watcher = silent,
    memory: Memory = NOTHING,
) -> SolvedPrior:
    """The best of ``n_init`` chains; an interrupt keeps what there is. ``some``: the documents on
    which starts are tried, where they are not all."""
    chains = [_resumed(kept, priors) for kept in memory.last() or ()]
    for stream in rng.spawn(n_init)[len(chains) :]:
        inner = memory.inner(lambda: [c._asdict() | {"trace": kept_trace(c.trace)} for c in chains])
        how: dict[str, Any] = {"engine": engine, "rng": stream, "watch": watch}
        begin = partial(_climbed, docs, some, first, -(-STARTS // n_init), max_iter=max_iter, **how)
        chains.append(_one(docs, priors, begin, burn_in, n_samples, memory=inner, **how))
        if chains[-1].trace.reason is StopReason.INTERRUPTED:
            break
    best = max(chains, key=_value)
    if len(chains) == 1:
        return best
    others = [c for c in chains if c is not best]
    overlap = [align_topics((best.counts + 1e-9).T, (c.counts + 1e-9).T)[1].mean() for c in others]
    return best._replace(
        facts={"starts": len(chains), "overlap between starts": float(np.mean(overlap))}
    )


def _climbed(
    docs: Any,
    some: Any,
    first: np.ndarray | None,
    starts: int,
    priors: Priors,
    memory: Memory,
    *,
    max_iter: int,
    rng: np.random.Generator,
    watch: Watcher,
    engine: Any,
) -> Climbed:
    """Where EM ends: from ``first``, or the highest of several climbs, of which the one on some of
    the documents goes on over all."""
    how: dict[str, Any] = {"tol": 0.0, "max_iter": max_iter, "engine": engine}
    if first is not None or starts == 1 or max_iter == 0:
        return ascend(docs, priors, first=first, rng=rng, watch=watch, memory=memory, **how)
    best: Climbed | None = None
    for tried, stream in enumerate(rng.spawn(starts)):
        found = ascend(docs if some is None else some, priors, rng=stream, **how)
        stopped = found.ascent.trace.reason is StopReason.INTERRUPTED
        if best is None or (found.ascent.bound > best.ascent.bound and not stopped):
            best = found
        try:
            watch("starts", tried + 1, starts)
        except KeyboardInterrupt:
            stopped = True
        if stopped:
            best.ascent.trace.reason = StopReason.INTERRUPTED
            return best
    assert best is not None
    if some is None:
        return best
    return ascend(docs, priors, first=best.words, rng=rng, watch=watch, memory=memory, **how)


def _one(
    docs: Any,
    priors: Priors,
    begin: Callable[[Priors, Memory], Climbed],
    burn_in: int,
    n_samples: int,
    *,
    engine: Any,
    rng: np.random.Generator,
    watch: Watcher,
    memory: Memory,
) -> SolvedPrior:
    """EM, then the chain. A killed run left its EM, or (a level further in) the chain and its
    number of EM sweeps."""
    trace = Trace(QUANTITY, reason=StopReason.MAX_ITER)
    fixed = replace(priors, learn_alpha=False, learn_eta=False)
    ascent = memory.last()
    if ascent is None:
        start_fit = begin(fixed, memory.inner(None))
        ascent = len(start_fit.ascent.trace) - 1
        if start_fit.ascent.trace.reason is StopReason.INTERRUPTED:
            trace.reason = StopReason.INTERRUPTED
            trace.add(start_fit.ascent.bound)
            return SolvedPrior(
                start_fit.ascent.statistics.counts,
                priors,
                trace,
                {"sweeps": ascent, "EM sweeps": ascent},
                {},
            )
        chain = engine.topic_chain(
            docs, start_fit.words, start_fit.problem.shares, priors.words, int(rng.integers(2**31))
        )
    sampling = memory.inner(ascent)
    if (kept := sampling.last()) is not None:
        k = len(priors.alpha)
        chain = engine.topic_chain(
            docs, np.ones((docs.shape[1], k), np.float32), np.ones(k), priors.words, 0
        )
        chain.restore(kept["chain"])
        priors, trace = like(priors, kept["priors"]), resumed_trace(QUANTITY, kept["trace"])
    total, learns = burn_in + n_samples, priors.learn_alpha or priors.learn_eta
    try:
        for sweep in range(len(trace), total):
            sampling.offer({"chain": chain.state, "priors": priors, "trace": kept_trace(trace)})
            value = chain.sweep(priors.alpha, average=sweep >= burn_in)
            trace.add(value / max(1, chain.tokens))
            if learns and LEARN_FROM <= sweep < burn_in and sweep % LEARN_EVERY == 0:
                priors = priors.learned(chain.draw(DOCUMENTS, WORDS))
                chain.set_prior(priors.words)
            watch("sampling", sweep + 1, total)
        trace.reason = StopReason.CONVERGED
    except KeyboardInterrupt:
        trace.reason = StopReason.INTERRUPTED
    return SolvedPrior(
        chain.mean_counts(), priors, trace, {"sweeps": ascent + len(trace), "EM sweeps": ascent}, {}
    )


def _resumed(kept: Any, priors: Priors) -> SolvedPrior:
    """A chain that a killed run had finished."""
    trace = resumed_trace(QUANTITY, kept["trace"])
    return SolvedPrior(
        kept["counts"], like(priors, kept["priors"]), trace, kept["plan"], kept["facts"]
    )


def _value(found: SolvedPrior) -> float:
    """Mean log-likelihood of a token given the others over the last half of the trace."""
    v = found.trace.values
    return float(np.mean(v[len(v) // 2 :])) if v else -np.inf


def trial_step(tokens: float, k: int) -> int:
    """Every how many-th document the starts are tried on.

    >>> [trial_step(tokens, 10) for tokens in (1e4, 2.5e6, 1e9)], trial_step(2.5e6, 100)
    ([1, 20, 7630], 7)
    """
    return max(int(np.ceil(tokens / max(TRIAL_TOKENS, TOPIC_TOKENS * k))), 1)


def burn_in_for(tokens: float) -> int:
    """Sweeps before averaging: those that sample BURN_TOKENS in all, 20 to 200.

    >>> [burn_in_for(tokens) for tokens in (1e4, 2.5e6, 1e9)]
    [200, 100, 20]
    """
    return int(np.clip(BURN_TOKENS / max(tokens, 1.0), 20, 200))
