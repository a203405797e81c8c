"""The door of models that learn from co-occurrence: text, items, sequences, or counts that are there already."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from eckart.embed.cooccurrence import cooccurrence
from eckart.embed.model import WordModel
from eckart.errors import InputError
from eckart.io.tables.frames import titles
from eckart.io.text.tokens import Tokenizer
from eckart.matrix import Counts


class Pairs(NamedTuple):
    """Co-occurrences n x n with their words, how often each word was seen (None: not known), and how text became words."""

    n: Counts
    words: np.ndarray
    counts: np.ndarray | None
    rules: dict[str, Any]


def pairs_of(model: WordModel, X: Any) -> Pairs:
    """Counts as they are (also a SciPy sparse matrix), or counted in sentences with the parameters of the model."""
    if hasattr(X, "tocsr"):
        X = Counts.from_scipy(X)
    if isinstance(X, Counts):
        p = model.get_params(deep=False)
        rule = Tokenizer(p["lowercase"], p["numbers"], p["min_length"], p["tokenizer"])
        words = X.columns if X.columns is not None else titles(list(range(X.n_columns)))
        return Pairs(checked(X), words, None, rule.to_dict())
    s = model._sequences(X)
    p = model.get_params(deep=False)
    counts = cooccurrence(
        s, window=p["window"], weighting=p["weighting"], n_threads=p["n_threads"], verbose=bool(p["verbose"])
    )
    return Pairs(checked(counts), s.words, s.counts, s.rules)


def checked(x: Counts) -> Counts:
    """Refuse what cannot be counts of pairs: not square, other words in rows than in columns, negative or not finite, nothing at all."""
    if x.shape[0] != x.shape[1]:
        raise InputError(
            f"co-occurrences of shape {x.shape} came, wanted words x words; make them with eckart.cooccurrence"
        )
    if x.rows is not None and x.columns is not None and list(x.rows) != list(x.columns):
        raise InputError(
            "rows and columns of the co-occurrences have other names, wanted the same words in the same order"
        )
    bad = np.flatnonzero(~(np.isfinite(x.data) & (x.data >= 0)))
    if len(bad):
        row = int(np.searchsorted(x.indptr, bad[0], side="right")) - 1
        raise InputError(
            f"co-occurrences hold {x.data[bad[0]]} at row {row}, column {x.indices[bad[0]]}, wanted finite counts >= 0"
        )
    if not (x.data > 0).any():
        raise InputError(
            "no two words stand near each other, wanted at least one pair; widen window or lower min_count"
        )
    return x
