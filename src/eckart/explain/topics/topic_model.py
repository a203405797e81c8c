"""What every topic model does once it is fitted: shares of new documents, words of topics,
scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from eckart.bases import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from eckart.explain.topics.documents import as_counts, counted
from eckart.explain.topics.judge import document_completion, split_tokens, top_words
from eckart.factors import Topics
from eckart.fit import Estimator, fitted
from eckart.matrix import Counts

FOLD_STEPS, FOLD_TOL = 200, 1e-4
"""Updates of a new document's shares at the most, and the change at which they stop: less than a
reader of the shares would see."""


@dataclass(eq=False, repr=False)
class TopicModel(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator):
    """Fitted attributes and verbs of PLSA and LDA; ``fit_.factors`` is a ``Topics``."""

    @fitted
    def components_(self) -> np.ndarray:
        """k x words: the (expected) count of each word in each topic, the prior's pseudo-counts
        included."""
        return self._topics().counts

    @fitted
    def topic_word_(self) -> np.ndarray:
        """p(w|z), k x words."""
        return self._topics().words

    @fitted
    def sizes_(self) -> np.ndarray:
        """The share of all tokens in each topic."""
        return self._topics().sizes

    @fitted
    def n_iter_(self) -> int:
        """Sweeps over the documents."""
        return int(self._fitted("n_iter_").plan["sweeps"])

    @property
    def _n_features_out(self) -> int:
        return self._topics().k

    def transform(self, X: Any, *, normalize: bool = True) -> np.ndarray:
        """p(z|d) for documents, rows that sum to 1. A word that no training document held says
        nothing; a document without known words gets the prior's mean (equal shares where there is
        no prior). ``normalize=False`` gives expected counts of topics, the prior's included."""
        x = self._documents(X)
        shares = self._shares(x)
        if normalize:
            return shares
        size = np.asarray(x.to_scipy().sum(axis=1)).ravel() + self._topics().prior.sum()
        return (shares * size[:, None]).astype(shares.dtype)

    def perplexity(self, X: Any, sub_sampling: bool = False) -> float:
        """exp(-score(X)): how many equally likely words the model hesitates between, by document
        completion. A mean over words is the same for a part of the documents and for all, so
        ``sub_sampling`` makes no difference."""
        return float(np.exp(-self.score(X)))

    def score(self, X: Any, y: Any = None) -> float:
        """Mean log p(w) of a held-out word: half of the tokens of each document are folded in, the
        others are scored (``judge.document_completion``).

        It is a mean over words, so that ten documents and a thousand give numbers that can be
        compared.
        """
        x = self._documents(X)
        seen, scored = split_tokens(x, random_state=0)
        t = self._topics()
        return document_completion(
            t.words, seen, scored, prior=t.prior, engine=self._engine()
        ).log_likelihood

    def top_words(self, n: int = 10, by: str = "probability") -> list[list[Any]]:
        """The n words of each topic that are most probable in it, or (``by="lift"``) most typical
        of it: p(w|z) / p(w)."""
        return top_words(self._topics(), n, by)

    def _documents(self, X: Any) -> Counts:
        return as_counts(self._new_rows(counted(X, self)), type(self).__name__)

    def _shares(self, x: Counts) -> np.ndarray:
        """Shares at fixed topics: theta_z <- (counts of the document in topic z + prior_z) / sum,
        until they stand still."""
        t, engine = self._topics(), self._engine()
        words, start = np.ascontiguousarray(t.words.T), np.full(t.k, 1.0 / t.k)
        with engine.at_work():
            found = engine.topic_fold(
                engine.put(x), words, t.prior, start, steps=FOLD_STEPS, tol=FOLD_TOL
            )
        return np.ascontiguousarray(engine.get(found), x.dtype)

    def _topics(self) -> Topics:
        return self._fitted("its topics").factors

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = False
        tags.input_tags.positive_only = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def by_size(t: Topics) -> np.ndarray:
    """The order of topics from the largest to the smallest; those equal to nine digits, all that a
    sum in another order leaves, keep their order."""
    return np.argsort(-np.round(t.sizes, 9), kind="stable")


def reordered(t: Topics, order: np.ndarray) -> Topics:
    """The same topics under other numbers."""
    return Topics(np.ascontiguousarray(t.counts[order]), t.prior[order], t.sizes[order], t.columns)
