"""LDA from a stream: stepwise EM over batches of documents that are looked at once.

    S <- (1 - r_t) S + r_t s(batch) / tokens(batch),    r_t = (offset + t)^-decay,    phi_zw = (T
    S_wz + eta) / sum

with s the expected counts of the batch's words by topic at the present phi (documents folded in
from equal shares) and T the tokens of the corpus (of what was seen so far, where that is not
known). Memory: a few arrays of words x k and one batch.

References: Cappe and Moulines (2009); Foulds, Boyles, DuBois, Smyth and Welling (2013) for the
collapsed form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from eckart.explain.topics.documents import tokens_of, whole_numbers
from eckart.explain.topics.priors import DOCUMENTS, WORDS, Priors
from eckart.explain.topics.topic_em import mean_shares, start
from eckart.io.models.checkpoint import NOTHING, Memory, kept_trace, resumed_trace
from eckart.matrix import Counts
from eckart.trace import StopReason, Trace

MOST_SAMPLED = 2**30
"""Tokens of a batch by which priors are learned: a chain keeps ten bytes for each."""
STEPS, TOL = 12, 0.05
"""Updates of the shares of documents that are met for the first time, and the change at which they
stop."""
LEARN_EVERY, DRAWS = 16, 3
"""Batches between two moves of the priors, and Gibbs sweeps at each."""
FIRST, PASSES = 16_384, 24
"""Documents that a stream begins with, and how often they are gone over."""


class Rates(NamedTuple):
    """r_t = (offset + t)^-decay."""

    decay: float
    offset: float


@dataclass(frozen=True)
class Running:
    """S (words x k, a token's share), phi, the priors, batches, tokens and documents seen, and the
    log-likelihood of a token in the last batch."""

    share: np.ndarray
    words: np.ndarray
    priors: Priors
    batches: int = 0
    tokens: float = 0.0
    documents: int = 0
    value: float = -np.inf

    def counts(self, total: float) -> np.ndarray:
        """Expected counts for a corpus of ``total`` tokens."""
        return self.share * self.share.dtype.type(total)


def begin(
    x: Counts,
    priors: Priors,
    rng: np.random.Generator,
    engine: Any,
    first: np.ndarray | None = None,
) -> Running:
    """Topics from a first batch, or from ``first`` (phi, words x k)."""
    k = len(priors.alpha)
    words = (
        start(engine.put(x), k, rng, np.float32, engine, priors.boost)
        if first is None
        else first.astype(np.float32)
    )
    return Running(words / np.float32(k), words, priors)


def step(x: Counts, r: Running, rates: Rates, total: float | None, engine: Any) -> Running:
    """One batch; the first one is gone over several times, because near the start all topics are
    alike."""
    tokens = tokens_of(x)
    if tokens <= 0:
        return replace(r, batches=r.batches + 1, documents=r.documents + x.shape[0])
    docs, alpha, share, words, value = engine.put(x), r.priors.alpha, r.share, r.words, r.value
    passes = PASSES if r.batches == 0 else 1
    whole = max(r.tokens + tokens, total or 0.0)
    shares: Any = mean_shares(alpha)
    for i in range(passes):
        steps, tol = (STEPS, TOL) if i == 0 else (3, 0.0)
        shares, found = engine.topic_sweep(docs, words, alpha, shares, steps=steps, tol=tol)
        rate = (
            1.0 if i < passes - 1 or r.batches == 0 else (rates.offset + r.batches) ** -rates.decay
        )
        fresh = np.asarray(found.counts) * np.float32(rate / tokens)
        share = fresh if rate == 1.0 else share * np.float32(1.0 - rate) + fresh
        counts = share * np.float32(whole)
        words = engine.topic_words(
            counts, counts.sum(axis=0, dtype=np.float64), r.priors.words
        ).words
        value = found.value / max(found.seen, 1e-300)
    priors = r.priors
    learns = (
        (priors.learn_alpha or priors.learn_eta)
        and r.batches % LEARN_EVERY == 0
        and tokens <= MOST_SAMPLED
    )
    if learns and whole_numbers(x):
        chain = engine.topic_chain(
            docs, words, shares, share * np.float32(whole) + priors.words, r.batches
        )
        for _ in range(DRAWS):
            chain.sweep(alpha)
        priors = priors.learned(chain.draw(DOCUMENTS, WORDS))
    return Running(
        share, words, priors, r.batches + 1, r.tokens + tokens, r.documents + x.shape[0], value
    )


def run(
    batches: Callable[[], Iterable[Counts]],
    passes: int,
    r: Running | None,
    take: Callable[[Counts, Running | None], Running],
    first: int,
    rng: np.random.Generator,
    memory: Memory = NOTHING,
) -> tuple[Running | None, Trace, Counts | None]:
    """``take`` of every batch of so many passes, the first ``first`` documents together; the
    running state, its trace, and the last batch. An interrupt keeps what there is. A run that was
    killed draws the order of its pass again and reads over the batches that it had taken."""
    trace, x, first_pass, done = new_trace(), None, 0, 0
    if (kept := memory.last()) is not None:
        r, trace = Running(**kept["running"]), resumed_trace(trace.quantity, kept["trace"])
        r = replace(r, priors=Priors(**kept["running"]["priors"]))
        first_pass, done, rng.bit_generator.state = kept["pass"], kept["done"], kept["drawn"]
    trace.reason = StopReason.CONVERGED
    try:
        for turn in range(first_pass, passes):
            drawn = rng.bit_generator.state
            for i, x in enumerate(_ahead(batches(), 0 if turn else first)):
                if i < done:
                    continue
                if r is not None:
                    memory.offer(
                        {
                            "running": r,
                            "trace": kept_trace(trace),
                            "pass": turn,
                            "done": i,
                            "drawn": drawn,
                        }
                    )
                r = take(x, r)
                trace.add(r.value)
            done = 0
    except KeyboardInterrupt:
        if r is None or not len(trace):  # before there is an answer
            raise
        trace.reason = StopReason.INTERRUPTED
    return r, trace, x


def new_trace() -> Trace:
    """The trace of a stream."""
    return Trace("log-likelihood of a token in each batch", reason=StopReason.CONVERGED)


def _ahead(batches: Iterable[Counts], documents: int) -> Iterator[Counts]:
    """The batches, the first of them put together until they hold ``documents`` documents: topics
    that part on too few never meet the others again."""
    kept: list[Counts] = []
    held = 0
    for x in batches:
        if held >= documents:
            yield x
            continue
        kept.append(x)
        held += x.shape[0]
        if held >= documents:
            yield _joined(kept)
    if held < documents and kept:
        yield _joined(kept)


def _joined(parts: list[Counts]) -> Counts:
    ends = np.cumsum([0, *(p.nnz for p in parts)])
    indptr = np.concatenate(
        [[0], *(p.indptr[1:].astype(np.int64) + a for p, a in zip(parts, ends))]
    )
    indices, data = (
        np.concatenate([getattr(p, name) for p in parts]) for name in ("indices", "data")
    )
    return Counts(indptr, indices, data, parts[0].n_columns, None, parts[0].columns)
