"""LDA from a stream: stepwise EM over batches of documents that are looked at once.

    S <- (1 - r_t) S + r_t s(batch) / tokens(batch),    r_t = (offset + t)^-decay,    phi_zw = (T S_wz + eta) / sum

with s the expected counts of the batch's words by topic at the present phi (documents folded in from equal shares) and T the tokens of the corpus (of what was
seen so far, where that is not known). Memory: a few arrays of words x k and one batch.

References: Cappe and Moulines (2009); Foulds, Boyles, DuBois, Smyth and Welling (2013) for the collapsed form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eckart.explain.topics.documents import tokens_of, whole_numbers
from eckart.explain.topics.priors import Priors
from eckart.explain.topics.topic_em import equal_shares, normalised, start
from eckart.matrix import Counts

STEPS, TOL = 12, 0.05
LEARN_EVERY, DRAWS = 16, 3
FIRST, PASSES = 16_384, 24
"""Documents that a stream begins with, and how often they are gone over."""


@dataclass(frozen=True)
class Running:
    """S (words x k, a token's share), phi, the priors, batches and tokens seen, and the log-likelihood of a token in the last batch."""

    share: np.ndarray
    words: np.ndarray
    priors: Priors
    batches: int
    tokens: float
    documents: int
    value: float

    def counts(self, total: float) -> np.ndarray:
        """Expected counts for a corpus of ``total`` tokens."""
        return self.share * self.share.dtype.type(total)


def begin(x: Counts, priors: Priors, rng: np.random.Generator, first: np.ndarray | None = None) -> Running:
    """Topics from a first batch, or from ``first`` (phi, words x k)."""
    k = len(priors.alpha)
    words = start(x, k, rng, np.dtype(np.float32), priors.boost) if first is None else first.astype(np.float32)
    return Running(words / np.float32(k), words, priors, 0, 0.0, 0, -np.inf)


def step(
    x: Counts, r: Running, *, decay: float, offset: float, total: float | None, engine: Any, passes: int = 1
) -> Running:
    """One batch; the first one is gone over several times (``passes``), because near the start all topics are alike."""
    tokens = tokens_of(x)
    if tokens <= 0:
        return replace(r, batches=r.batches + 1, documents=r.documents + x.shape[0])
    alpha, share, words, value = r.priors.alpha, r.share, r.words, r.value
    whole = max(r.tokens + tokens, total or 0.0)
    shares = equal_shares(x.shape[0], alpha, np.dtype(np.float32))
    for i in range(passes):
        found = engine.topic_sweep(x, words, alpha, shares, steps=STEPS if i == 0 else 3, tol=TOL if i == 0 else 0.0)
        shares = found.shares
        rate = 1.0 if i < passes - 1 or r.batches == 0 else (offset + r.batches) ** -decay
        fresh = found.counts * np.float32(rate / tokens)
        share = fresh if rate == 1.0 else share * np.float32(1.0 - rate) + fresh
        words = normalised(share * np.float32(whole), r.priors.words)
        value = found.value / max(found.seen, 1e-300)
    priors = r.priors
    if (priors.learn_alpha or priors.learn_eta) and r.batches % LEARN_EVERY == 0 and whole_numbers(x):
        drawn = engine.topic_chain(x, words, shares, share * np.float32(whole) + priors.words, r.batches)
        for _ in range(DRAWS):
            drawn.sweep(alpha)
        priors = priors.learned(drawn.document_counts(), drawn.counts())
    return Running(share, words, priors, r.batches + 1, r.tokens + tokens, r.documents + x.shape[0], value)


def ahead(batches: Iterable[Counts], documents: int) -> Iterator[Counts]:
    """The batches, the first of them put together until they hold ``documents`` documents: topics that part on too few never meet the others again."""
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
    indptr = np.concatenate([[0], *(p.indptr[1:].astype(np.int64) + a for p, a in zip(parts, ends))])
    indices, data = (np.concatenate([getattr(p, name) for p in parts]) for name in ("indices", "data"))
    return Counts(indptr, indices, data, parts[0].n_columns, None, parts[0].columns)
