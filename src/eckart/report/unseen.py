"""A topic model judged on documents it has not seen, beside the answer that anybody has without it.

Documents are split. The model is fitted to one part. Of each other document half of the words are
shown, its shares of topics are found from them, and the other half is predicted. Perplexity is
exp(-mean log p(w)); beside it stands that of one distribution for all documents, the frequencies of
words in training.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from eckart.errors import invalid
from eckart.explain.topics.judge import document_completion, split_tokens
from eckart.matrix import Counts

LEAST_PRIOR = 1e-3
"""Pseudo-counts that keep a model without a prior from giving a word probability 0."""


@dataclass(frozen=True)
class Unseen:
    """``perplexities`` by name of the answer ("model" first), on ``words`` words of ``documents``
    documents."""

    perplexities: dict[str, float]
    documents: int
    words: int

    @property
    def useful(self) -> bool:
        """Whether topics predict words better than their frequencies do."""
        return self.perplexities["model"] < self.perplexities["word frequencies"]

    @property
    def verdict(self) -> str:
        ours, plain = self.perplexities["model"], self.perplexities["word frequencies"]
        words = (
            f"Perplexity {ours:,.1f} on {self.words:,} words of {self.documents:,} documents "
            "that the fit did not see; "
        )
        if self.useful:
            return words + (
                f"by word frequencies alone it is {plain / ours:.2f} times as large ({plain:,.1f})."
            )
        return words + (
            f"word frequencies alone do better ({plain:,.1f}). Try fewer topics or more documents."
        )

    def lines(self) -> list[str]:
        """The numbers as a small table."""
        head = f"{self.words:,} words of {self.documents:,} documents"
        width = max(len(head), *map(len, self.perplexities))
        return [
            f"{head:<{width}}  perplexity",
            *(f"{who:<{width}}{v:>12,.1f}" for who, v in self.perplexities.items()),
        ]

    def plan(self) -> dict[str, Any]:
        """For the plan of a model."""
        return {"documents": self.documents, "words": self.words, "perplexity": self.perplexities}


def judge_topics(
    fit: Callable[[Counts], Any], x: Counts, share: float = 0.1, seed: int = 0
) -> Unseen:
    """Let ``fit`` (from counts to a fitted topic model) see a part of the documents, and measure
    its model on words of the others."""
    rng = np.random.default_rng(seed)
    full = np.flatnonzero(x.to_scipy().sum(axis=1) >= 2)  # one word to show, one to predict
    count = round(share * len(full))
    if count < 1 or len(full) - count < 2:
        raise invalid(
            "held_out",
            share,
            f"a share that leaves some of the {len(full)} documents of two words or "
            "more on both sides",
        )
    hidden = np.sort(rng.permutation(full)[:count])
    csr = x.to_scipy()
    shown = np.setdiff1d(np.arange(x.shape[0]), hidden)
    train, test = (type(x).from_scipy(csr[at], None, x.columns) for at in (shown, hidden))
    model = fit(train)
    seen, scored = split_tokens(test, random_state=seed)
    topics = model.fit_.factors
    prior = np.maximum(topics.prior, LEAST_PRIOR)
    found = document_completion(topics.words, seen, scored, prior=prior, n_threads=model.n_threads)
    often = np.bincount(train.indices, train.data, x.n_columns) + 0.5
    plain = np.log(often / often.sum())
    words = float(scored.data.sum())
    alone = float(np.exp(-(scored.data @ plain[scored.indices]) / words))
    return Unseen({"model": found.perplexity, "word frequencies": alone}, count, round(words))
