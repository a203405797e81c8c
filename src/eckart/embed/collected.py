"""Co-occurrences of a Dask bag of texts (or of lists of items), counted where its partitions are.

Two passes over the bag: the words and how often each occurs; then, with the vocabulary that these
make, the pairs of every partition, which are added up on the way. Weights are whole numbers over
one scale (``cooccurrence``), and whole numbers add up without rounding: the sum is that of the same
texts in one place, to the last bit. Sentences do not reach over partitions.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from eckart.embed.sequences import Sequences, sequences, vocabulary_of_counts
from eckart.engines import engine_named
from eckart.engines.protocol import PairRule
from eckart.errors import InputError, NoWordsError
from eckart.io.dask.parts import each, partitions, summed
from eckart.io.text.tokens import Tokenizer
from eckart.matrix import Counts

RULES = ("tokenizer", "lowercase", "numbers", "min_length")
"""Options that say how text becomes words."""


class Words(NamedTuple):
    """The words of a partition, how often each occurs, and sentences."""

    words: list[Any]
    counts: np.ndarray
    sentences: int


def collected(
    source: Any, rule: PairRule, min_count: int = 5, max_words: int | None = None, **how: Any
) -> tuple[Counts, np.ndarray, dict[str, Any]]:
    """Words x words, how often each word stands in the text, and how text became words; ``how`` are
    options of ``eckart.sequences``."""
    how = {name: value for name, value in how.items() if name not in ("n_threads", "verbose")}
    if others := [name for name, value in how.items() if name not in RULES and value is not None]:
        raise InputError(
            f"{others[0]}={how[others[0]]!r} is for files and tables only, got a Dask "
            "collection. Leave it out."
        )
    parts = partitions(source)
    number: dict[Any, int] = {}
    seen = [found for found in each(partial(_words, how), parts) if found is not None]
    for found in seen:
        for word in found.words:
            number.setdefault(word, len(number))
    if not sum(found.sentences for found in seen):
        raise InputError("the collection must hold at least one sentence, got none")
    counts = np.zeros(len(number), np.int64)
    for found in seen:
        counts[[number[word] for word in found.words]] += found.counts
    named = list(number)
    words, kept = vocabulary_of_counts(
        counts, lambda at: [named[i] for i in at], min_count, max_words
    )
    total = summed(partial(_pairs, how, rule), parts, words.tolist())
    m = total if total is not None else sparse.csr_array((len(words), len(words)))
    m.sort_indices()
    pairs = Counts(
        m.indptr.astype(np.int64),
        m.indices.astype(np.int32),
        m.data / rule.scale,
        len(words),
        words,
        words,
    )
    return pairs, kept, Tokenizer(**{name: how[name] for name in RULES if name in how}).to_dict()


def _numbered(items: list[Any], how: dict[str, Any]) -> Sequences | None:
    """All words of a partition; None where it has none."""
    try:
        return sequences(items, min_count=1, n_threads=1, **how) if items else None
    except NoWordsError:
        return None


def _words(how: dict[str, Any], items: Any) -> Words | None:
    items = list(items)
    s = _numbered(items, how)
    if s is None:
        return Words([], np.zeros(0, np.int64), len(items)) if items else None
    return Words(s.words.tolist(), s.counts, len(s))


def _pairs(how: dict[str, Any], rule: PairRule, items: Any, words: list[Any]) -> Any:
    """The pairs of a partition as whole numbers, words x words."""
    s, n = _numbered(list(items), how), len(words)
    if s is None:
        return None
    place = dict(zip(words, range(n)))
    ids = np.array([place.get(word, -1) for word in s.words.tolist()], np.int32)[s.ids]
    pointers = np.concatenate([[0], np.cumsum(ids >= 0)])[s.pointers]
    engine = engine_named("cpu", 1)
    with engine.at_work():
        found = list(engine.cooccur(ids[ids >= 0], pointers, n, rule))
    lengths = np.concatenate([rows.lengths for rows in found])
    indptr = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    indices, data = engine.join_counts(found)
    data = np.rint(data * rule.scale) if rule.scale > 1 else data
    return sparse.csr_array((data, indices, indptr), shape=(n, n))
