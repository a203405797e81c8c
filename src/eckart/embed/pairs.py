"""Reading for models that learn from co-occurrence: text, items, sequences, or counts that are
there already."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from eckart.embed.collected import collected
from eckart.embed.cooccurrence import MAX_MEMORY, count
from eckart.embed.sequences import Sequences
from eckart.errors import InputError
from eckart.io.dask.known import is_collection
from eckart.io.models.checkpoint import NOTHING, Memory
from eckart.io.tables.frames import titles
from eckart.io.text.tokens import Tokenizer
from eckart.matrix import Counts
from eckart.trace import progress


class Pairs(NamedTuple):
    """Co-occurrences n x n with their words, how often each word was seen (None: not known), and
    how text became words."""

    n: Counts
    words: np.ndarray
    counts: np.ndarray | None
    rules: dict[str, Any]


def source_of(model: Any, X: Any) -> Counts | Sequences | Pairs:
    """Counts as they are (also a SciPy sparse matrix), sentences with the words that the model asks
    for, or the pairs of a Dask collection of them."""
    if hasattr(X, "tocsr"):
        X = Counts.from_scipy(X)
    if is_collection(X):
        found, counts, rules = collected(X, model._pair_rule(None), **model._word_options)
        return Pairs(checked(found), np.asarray(found.columns), counts, rules)
    return X if isinstance(X, Counts) else model._sequences(X)


def contents_of(source: Counts | Sequences | Pairs) -> tuple[np.ndarray, ...]:
    """The arrays that name a source by its content."""
    if isinstance(source, Pairs):
        source = source.n
    if isinstance(source, Counts):
        names = () if source.columns is None else (np.asarray(source.columns),)
        return (source.indptr, source.indices, source.data, *names)
    return np.asarray(source.pointers), source.ids, np.asarray(source.words)


def pairs_of(model: Any, X: Any, engine: Any = None, memory: Memory = NOTHING) -> Pairs:
    """Counts as they are, or counted in sentences with the parameters of the model."""
    X = X if isinstance(X, Pairs) else source_of(model, X)
    if isinstance(X, Pairs):
        return X
    if isinstance(X, Counts):
        rule = Tokenizer(model.lowercase, model.numbers, model.min_length, model.tokenizer)
        words = X.columns if X.columns is not None else titles(list(range(X.n_columns)))
        return Pairs(checked(X), words, None, rule.to_dict())
    rule = model._pair_rule(X)
    with progress(bool(model.verbose)) as watch:
        n = count(X, rule, engine or model._engine(), MAX_MEMORY, watch, memory)
    return Pairs(checked(n), X.words, X.counts, X.rules)


def pairs_of_fit(model: Any, X: Any, engine: Any, words: Any) -> Pairs:
    """The same for a certificate, of the ``words`` that the model was fitted to."""
    pairs = pairs_of(model, X, engine)
    if list(pairs.words) != list(words):
        raise InputError("X must be the data that the model was fitted to, got other words")
    return pairs


def checked(x: Counts) -> Counts:
    """Refuse what cannot be counts of pairs: not square, other words in rows than in columns,
    negative or not finite, nothing at all."""
    if x.shape[0] != x.shape[1]:
        raise InputError(
            f"co-occurrences must be words x words, got shape {x.shape}. Make them with "
            "eckart.cooccurrence."
        )
    if x.rows is not None and x.columns is not None and list(x.rows) != list(x.columns):
        raise InputError(
            "rows and columns of the co-occurrences must have the same words in the same "
            "order, got other names"
        )
    bad = np.flatnonzero(~(np.isfinite(x.data) & (x.data >= 0)))
    if len(bad):
        row = int(np.searchsorted(x.indptr, bad[0], side="right")) - 1
        raise InputError(
            f"co-occurrences must hold finite counts >= 0, got {x.data[bad[0]]} at row {row}, "
            f"column {x.indices[bad[0]]}"
        )
    if not (x.data > 0).any():
        raise InputError(
            "at least one pair of words must stand near each other, got none. Widen window or "
            "lower min_count."
        )
    return x
