"""What every topic model does once it is fitted: shares of new documents, words of topics, scores."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from eckart.engines import engine_named
from eckart.errors import wrong
from eckart.explain.topics.documents import as_counts
from eckart.explain.topics.judge import document_completion, split_tokens
from eckart.factors import Topics
from eckart.fit import Estimator
from eckart.matrix import Counts

FOLD_STEPS, FOLD_TOL = 200, 1e-4


class TopicModel(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator):
    """Fitted attributes and verbs of PLSA and LDA; ``fit_.factors`` is a ``Topics``."""

    n_threads: int | None

    @property
    def components_(self) -> np.ndarray:
        """k x words: the (expected) count of each word in each topic, the prior's pseudo-counts included."""
        return self._topics().counts

    @property
    def topic_word_(self) -> np.ndarray:
        """p(w|z), k x words."""
        return self._topics().words

    @property
    def sizes_(self) -> np.ndarray:
        """The share of all tokens in each topic."""
        return self._topics().sizes

    @property
    def n_iter_(self) -> int:
        """Sweeps over the documents."""
        return int(self._fitted("n_iter_").plan["sweeps"])

    @property
    def _n_features_out(self) -> int:
        return self._topics().k

    def transform(self, X: Any) -> np.ndarray:
        """p(z|d) for documents, rows that sum to 1. A word that no training document held says nothing; a document without known words gets the prior's
        mean (equal shares where there is no prior)."""
        return self._shares(self._documents(X))

    def perplexity(self, X: Any) -> float:
        """exp(-score(X)): how many equally likely words the model hesitates between, by document completion."""
        return float(np.exp(-self.score(X)))

    def score(self, X: Any, y: Any = None) -> float:
        """Mean log p(w) of a held-out word: half of the tokens of each document are folded in, the others are scored (``judge.document_completion``).

        It is a mean over words, so that ten documents and a thousand give numbers that can be compared.
        """
        x = self._documents(X)
        seen, scored = split_tokens(x, random_state=0)
        t = self._topics()
        return document_completion(t.words, seen, scored, prior=t.prior, n_threads=self.n_threads).log_likelihood

    def top_words(self, n: int = 10, by: str = "probability") -> list[list[Any]]:
        """The n words of each topic that are most probable in it, or (``by="lift"``) most typical of it: p(w|z) / p(w)."""
        from eckart.explain.topics.judge import top_words

        return top_words(self._topics(), n, by)

    def _documents(self, X: Any) -> Counts:
        return as_counts(self._new_rows(X), type(self).__name__)

    def _shares(self, x: Counts) -> np.ndarray:
        return fold_in(x, self._topics(), self.n_threads)

    def _topics(self) -> Topics:
        return self._fitted("its topics").factors

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = False
        tags.input_tags.positive_only = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def fold_in(x: Counts, t: Topics, n_threads: int | None = None) -> np.ndarray:
    """Shares of documents at fixed topics: theta_z <- (counts of the document in topic z + prior_z) / sum, until they stand still."""
    words = np.ascontiguousarray(t.words.T)
    start = np.full((x.shape[0], t.k), 1.0 / t.k, words.dtype)
    engine = engine_named("cpu", n_threads)
    found = engine.topic_sweep(x, words, t.prior, start, steps=FOLD_STEPS, tol=FOLD_TOL, collect=False)
    return np.ascontiguousarray(found.shares, x.dtype)


def by_size(t: Topics) -> np.ndarray:
    """The order of topics from the largest to the smallest; equals keep their order."""
    return np.argsort(-t.sizes, kind="stable")


def reordered(t: Topics, order: np.ndarray) -> Topics:
    """The same topics under other numbers."""
    return Topics(np.ascontiguousarray(t.counts[order]), t.prior[order], t.sizes[order], t.columns)


def check_common(model: Any) -> None:
    """Refuse parameters that no topic model can use."""
    k = model.n_components
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
        raise wrong("n_components", k, "an int >= 1")
    for name, least in (("max_iter", 1), ("n_init", 1)):
        value = getattr(model, name)
        if name == "max_iter" and value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
            raise wrong(name, value, f"an int >= {least}")
    if isinstance(model.tol, bool) or not isinstance(model.tol, (int, float, np.number)) or not 0 <= model.tol < np.inf:
        raise wrong("tol", model.tol, "a finite number >= 0")
