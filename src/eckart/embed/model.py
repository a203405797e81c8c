"""What all word models share: text or items in, a table of vectors out, and means of vectors for
new texts."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from eckart.bases import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from eckart.embed.cooccurrence import MOST_WINDOW, pair_rule
from eckart.embed.item_lists import look
from eckart.embed.sequences import Sequences, are_sets
from eckart.embed.vectors import Vectors
from eckart.engines import engine_named
from eckart.engines.protocol import PairRule
from eckart.errors import InputTypeError
from eckart.factors import Embedding
from eckart.fit import Estimator, fitted
from eckart.index.labels import Labels, tidy
from eckart.io.dask.known import is_collection
from eckart.io.text.tokens import Tokenizer
from eckart.io.text.vocabulary import corpus
from eckart.parameters import check, flag, optional, param, whole

LONGEST = 1000
"""Items of a list that stand beside one of them, at most: pairs grow with the square of a list, and
of longer ones a thousand say enough."""


@dataclass(eq=False, repr=False)
class WordModel(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator):
    """An estimator whose factors are an ``Embedding``, with the parameters that all word models
    share: those of ``eckart.sequences`` among them; ``fit_.plan["words"]`` keeps the rule by which
    text became words."""

    usual_window: ClassVar[int] = 10
    n_components: int = param(100, whole(1))
    _: KW_ONLY
    window: int | None = param(None, optional(whole(1, MOST_WINDOW)))
    add_context: bool = param(False, flag())
    min_count: int = param(5, whole(1))
    max_words: int | None = param(None, optional(whole(1)))
    tokenizer: Any = param(None)
    lowercase: bool = param(True, flag())
    numbers: bool = param(True, flag())
    min_length: int = param(1, whole(1))

    @fitted
    def vectors_(self) -> Vectors:
        """The words and their vectors, ready for questions."""
        f = self._embedding()
        return Vectors(f.columns, self._final(f), f.counts)

    @fitted
    def components_(self) -> np.ndarray:
        """Vectors as rows of k numbers, one for each word, in the order of ``vectors_.words``."""
        return self._final(self._embedding())

    @property
    def _n_features_out(self) -> int:
        return self._embedding().k

    def transform(self, X: Any) -> np.ndarray:
        """The mean vector of the words of each text (or of the items of each list); unknown words
        are skipped, a text without a known one is zero."""
        check_is_fitted(self)
        f = self._embedding()
        counts = self._bags(X, f)
        total = counts.sum(axis=1)
        vectors = self._final(f)
        means = (counts @ vectors.astype(np.float64)) / np.where(total > 0, total, 1.0)[:, None]
        return means.astype(vectors.dtype)

    def _check(self) -> None:
        """Parameters against their rules; the shell asks before it reads a long text."""
        check(self)

    def _window(self, s: Sequences | None) -> tuple[int, bool, str]:
        """The window, whether it is a whole list, and why; None: sentences that were not looked
        at."""
        if self.window is not None:
            return int(self.window), False, "asked for"
        if s is None or not are_sets(s):
            return self.usual_window, False, "sentences, whose order counts"
        longest = int(np.clip(np.diff(s.pointers).max(), 1, LONGEST))
        return (
            longest,
            True,
            "no list has an item twice: they are sets, so the window is the list and "
            "all pairs count alike",
        )

    def _window_plan(self, source: Any) -> dict[str, Any]:
        """For the plan of a fit to sentences."""
        window, _, why = self._window(source if isinstance(source, Sequences) else None)
        return {"window": window, "window_reason": why} if isinstance(source, Sequences) else {}

    def _pair_rule(self, s: Sequences | None) -> PairRule:
        """What a neighbour counts at each distance."""
        window, sets, _ = self._window(s)
        return pair_rule(window, self.weighting or ("flat" if sets else "harmonic"))  # type: ignore[attr-defined]

    def _settled(self, s: Sequences) -> dict[str, Any]:
        """Parameters that follow the text, as they are for this one: a part of it is then fitted
        like the whole."""
        return {"window": self._window(s)[0]}

    def _final(self, f: Embedding) -> np.ndarray:
        """The vectors that are handed out."""
        return f.vectors

    def _embedding(self) -> Embedding:
        return self._fitted("vectors").factors

    def _sequences(self, X: Any) -> Sequences:
        """Read sentences of anything that ``eckart.sequences`` takes."""
        if is_collection(X):
            raise InputTypeError(
                f"X is a {type(X).__name__} of Dask, and {type(self).__name__} walks "
                "through sentences that are in one place; use PMI or GloVe, which "
                "count "
                "where the partitions are, or give list(X)"
            )
        return Sequences.of(X, **self._word_options)

    @property
    def _word_options(self) -> dict[str, Any]:
        """What ``eckart.sequences`` is asked for."""
        names = (
            "min_count",
            "max_words",
            "tokenizer",
            "lowercase",
            "numbers",
            "min_length",
            "n_threads",
            "verbose",
        )
        return {name: getattr(self, name) for name in names}

    def _engine_for(self, X: Any) -> Any:
        """The engine that was asked for; of a Dask collection that of its cluster, where none
        was."""
        if is_collection(X) and self.engine == "auto":
            return engine_named("dask", self.n_threads)
        return self._engine()

    def _bags(self, X: Any, f: Embedding) -> sparse.csr_array:
        """Texts x words: how often each known word stands in each text."""
        rows, source = look(X)
        if rows is None:
            rule = self.fit_.plan["words"]
            own = callable(self.tokenizer) and rule.get("function")
            options = {"tokenizer": self.tokenizer} if own else Tokenizer.from_dict(rule).to_dict()
            return corpus(
                source, vocabulary=f.columns.tolist(), n_threads=self.n_threads, **options
            ).to_scipy()
        lists = [tidy(list(row)) for row in rows]
        lengths = np.array([len(items) for items in lists], np.int64)
        labels = Labels(f.columns, f.n, "word")
        found = [labels.find(items) for items in lists if len(items)]
        at = np.concatenate(found) if found else np.zeros(0, np.int64)
        of = np.repeat(np.arange(len(lists)), lengths)
        known = at >= 0
        shape = (len(lists), f.n)
        return sparse.csr_array((np.ones(int(known.sum())), (of[known], at[known])), shape=shape)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.string = True
        tags.input_tags.sparse = False
        tags.input_tags.allow_nan = False
        return tags
