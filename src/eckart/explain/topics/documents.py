"""Read documents for topic models as Counts, and what is refused there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from eckart.errors import InputError
from eckart.io.dask.known import is_collection
from eckart.io.text.vocabulary import corpus
from eckart.matrix import Counts, Dense, Matrix, Observed, squarable
from eckart.matrix_blocks import by_parts, facts_of, fewer, of_each_part, parts_of

LARGEST_COUNT = 1e12
"""A count beyond it is no count of words, and a thousand of them lose whole numbers in float64."""

COMMON = 0.5
"""The share of documents beyond which a word is common."""


def as_counts(matrix: Matrix, name: str) -> Counts:
    """Documents x words with finite counts >= 0; an array becomes sparse, gaps are refused.

    >>> as_counts(Dense(np.array([[0.0, 2.0], [1.0, 0.0]])), "X").nnz
    2
    """
    if isinstance(matrix, Observed):
        raise InputError(
            f"Input X contains NaN or entries that are unknown: {name} wants the count "
            "of every word; write 0 where a word does not occur, or read the "
            "sparse matrix (or the table of documents, words and counts) with absent='zero'"
        )
    if isinstance(matrix, Dense):
        matrix = _sparse(matrix, name)
    _refuse_bad(matrix)
    return matrix


def counted(X: Any, vocabulary: Any = None) -> Any:
    """A list (or a bag or a series of Dask) of texts as counts of their words; anything else as it
    is. Words in more than half of the documents are left out: they lead many topics and tell none
    apart. With a ``vocabulary``, that of a fitted model, its words are counted.

    >>> counted(["said cat", "said dog", "said rain"]).columns.tolist()
    ['cat', 'dog', 'rain']
    """
    if is_collection(X):
        from eckart.io.dask.wide import from_collection

        return from_collection(X, max_df=COMMON)
    if isinstance(X, str) or not hasattr(X, "__len__") or getattr(X, "ndim", 1) != 1 or not len(X):
        return X
    if isinstance(X, (dict, set)) or not isinstance(next(iter(X)), str):
        return X
    return corpus(X, max_df=COMMON) if vocabulary is None else corpus(X, vocabulary=vocabulary)


def _sparse(matrix: Dense, name: str) -> Counts:
    if not matrix.in_memory:
        raise InputError(
            f"X must be sparse documents for {name}, got a stream of dense rows. Write them "
            "with eckart.write_shards and fit with learning_method='online'."
        )
    a = np.asarray(matrix.array)
    held = a != 0
    if not np.isfinite(a).all():
        i, j = (int(v[0]) for v in np.nonzero(~np.isfinite(a)))
        raise InputError(
            f"Input X contains NaN or infinity: X must hold counts >= 0, got {a[i, j]} at row "
            f"{i}, word {_word(matrix.columns, j)}"
        )
    indptr = np.concatenate([[0], np.cumsum(held.sum(axis=1))])
    data = a[held].astype(matrix.dtype, copy=False)
    return Counts(indptr, np.nonzero(held)[1], data, a.shape[1], matrix.rows, matrix.columns)


def _refuse_bad(x: Counts) -> None:
    facts = facts_of(x)
    if parts_of(x) is not None:
        if facts.entries and not (
            facts.least >= 0 and np.isfinite(facts.total) and facts.most <= LARGEST_COUNT
        ):
            of_each_part(x, _refuse_bad)  # the first bad count is named where it is
        squarable(x)
        return
    if facts.entries and not (facts.least >= 0 and np.isfinite(facts.total)):
        row, word, value = _first(x, ~(np.isfinite(x.data) & (x.data >= 0)))
        kind = "Negative values in data passed" if value < 0 else "Input X contains NaN or infinity"
        raise InputError(f"{kind}: X must hold counts >= 0, got {value} at row {row}, word {word}")
    if facts.entries and facts.most > LARGEST_COUNT:
        row, word, value = _first(x, x.data > LARGEST_COUNT)
        raise InputError(
            f"X must hold counts up to {LARGEST_COUNT:.0e}, got {value:.0e} at row {row}, word "
            f"{word}: tokens are added up one by one. Divide the counts."
        )
    squarable(x)


def whole_numbers(x: Counts) -> bool:
    """Whether all counts are integers."""
    return facts_of(x).whole


def require_whole_numbers(x: Counts, method: str) -> None:
    """Refuse weights where tokens are sampled."""
    if not whole_numbers(x):
        row, word, value = _first(x, x.data != np.rint(x.data))
        raise InputError(
            f"X must hold whole numbers, got {value} at row {row}, word {word}: "
            f"learning_method={method!r} samples a topic for each token. Use 'cvb0' or "
            "'variational' for weights such as tf-idf."
        )


def batches(x: Counts, size: int, order: np.ndarray) -> Iterator[Counts]:
    """The documents in the given order, ``size`` at a time; of parts one part after another, its
    own documents in that order."""
    if parts_of(x) is not None:
        ends = np.cumsum(x.parts.lengths)  # type: ignore[attr-defined]
        owner = np.searchsorted(ends, order, side="right")
        for p in dict.fromkeys(owner.tolist()):  # parts in the order of their first documents
            own = order[owner == p] - (ends[p] - x.parts.lengths[p])  # type: ignore[attr-defined]
            part = x.parts.load(p)  # type: ignore[attr-defined]
            yield from batches(
                Counts(part.indptr, part.indices, part.data, x.n_columns, None, x.columns),
                size,
                own,
            )
        return
    for first in range(0, len(order), size):
        yield _taken(x, order[first : first + size])


def _taken(x: Counts, rows: np.ndarray) -> Counts:
    part = x.to_scipy()[rows]
    return Counts(part.indptr, part.indices, part.data, x.n_columns, None, x.columns)


def every_other(x: Counts) -> list[Counts]:
    """The documents 0, 2, 4 ... and 1, 3, 5 ..."""
    if parts_of(x) is not None:
        rows = by_parts(x, np.arange(x.shape[0]))
        own = [[np.flatnonzero(part % 2 == first) for part in rows] for first in (0, 1)]
        return [fewer(x, _taken, [(at,) for at in half], [len(at) for at in half]) for half in own]
    return [every(x, 2, first) for first in (0, 1)]


def every(x: Counts, step: int, first: int = 0) -> Counts:
    """Every ``step``-th document."""
    return _taken(x, np.arange(first, x.shape[0], step))


def tokens_of(x: Counts) -> float:
    """The sum of all counts."""
    return facts_of(x).total


def _first(x: Counts, bad: np.ndarray) -> tuple[int, str, float]:
    at = int(np.argmax(bad))
    row = int(np.searchsorted(x.indptr, at, side="right")) - 1
    return row, _word(x.columns, int(x.indices[at])), x.data[at]


def _word(columns: np.ndarray | None, j: int) -> str:
    return str(j) if columns is None else repr(columns[j])


def common_words(x: Counts) -> dict[str, str]:
    """For the plan: words that stand in more than half of the documents, which may lead many topics
    and tell none apart; nothing where there are none.

    >>> from eckart import corpus
    >>> common_words(corpus(["said cat", "said dog", "said rain"]))["common words"][:52]
    '1 word stands in more than half of the documents (sa'
    """
    if parts_of(x) is not None or x.columns is None:  # parts are not read once more for a remark
        return {}
    often = np.flatnonzero(
        np.bincount(x.indices[x.data > 0], minlength=x.n_columns) > COMMON * x.shape[0]
    )
    if not len(often):
        return {}
    few = ", ".join(str(x.columns[j]) for j in often[:5]) + (", ..." if len(often) > 5 else "")
    stand = "word stands" if len(often) == 1 else "words stand"
    return {
        "common words": f"{len(often)} {stand} in more than half of the documents ({few}) and may lead "
        "many topics: "
        "eckart.corpus(..., max_df=0.5), or --max-df 0.5, the default of the shell, "
        "leaves such words out"
    }
