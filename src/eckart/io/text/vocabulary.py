"""Text to counts: N_ij is how often word j stands in document i.

One pass. Each batch of documents is numbered by itself (``eckart.io.text.tokens``), its few
distinct words are looked up in one growing dictionary, and what is kept of the text is one number
and one count for each distinct word of a document. Words are chosen at the end, when their
frequencies are known, and sorted, so columns do not depend on the order of the documents, on
batches or on threads.

A dictionary of words that grows while text is read: words packed one behind the other, found by
their hashes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eckart.arguments import held, precision
from eckart.errors import InputError, InputTypeError, NoWordsError, invalid
from eckart.index.compress import index_dtype, transpose
from eckart.io.tables.frames import titles
from eckart.io.text.documents import documents
from eckart.io.text.tokens import Batch, Packed, Tokenizer, _slots, stop_list, token_batches
from eckart.matrix import Counts
from eckart.trace import progress


@dataclass(frozen=True, eq=False)
class Corpus(Counts):
    """Counts of words: rows are documents, columns words in ascending order.

    ``words_read`` is the number of words in the text, ``words_dropped`` how many of them are not in
    the columns (rare, frequent, on the stop list, or never seen when the vocabulary was given),
    ``rules`` how the text was cut into words, ``replaced`` how many characters stand for bytes that
    were no text.
    """

    words_read: int = 0
    words_dropped: int = 0
    rules: dict[str, Any] = field(default_factory=dict)
    replaced: int = 0


@held
def corpus(
    source: Any,
    *,
    text: str | int | None = None,
    index: str | int | None = None,
    vocabulary: Any = None,
    min_df: int | float = 1,
    max_df: int | float = 1.0,
    max_features: int | None = None,
    stop_words: Any = None,
    tokenizer: Any = None,
    lowercase: bool = True,
    numbers: bool = False,
    min_length: int = 2,
    lines: bool | None = None,
    encoding: str = "utf-8",
    delimiter: str | None = None,
    header: bool | None = None,
    quotes: bool = True,
    undecodable: str = "error",
    split: str | None = None,
    dtype: Any = np.float64,
    n_threads: int | None = None,
    verbose: bool = False,
) -> Corpus:
    """Count the words of documents: N_ij is how often word j stands in document i.

    Parameters
    ----------
    source : a folder or a pattern (each file is a document), a text file (each line), .jsonl, .csv,
        .tsv, .parquet, .arrow, a frame or an Arrow table (each row), a dictionary name: text, or
        any iterable of texts or of (name, text) pairs. Text files may be compressed (.gz). It is
        read once.
    text, index : the columns that hold the texts and the names of the documents, by name or
        position. Without ``text``, the only column of text.
    vocabulary : count these words only: a list of words, a Counts, or a fitted model. The columns
        are exactly these, in their order; other words are dropped and counted in ``words_dropped``.
        The rules below it that choose words are then not used.
    min_df, max_df : keep words that stand in at least and at most so many documents: a number (int)
        or a share (float).
    max_features : keep the most frequent words only.
    stop_words : words to leave out: ``"english"``, ``"scikit-learn"`` (the list that scikit-learn
        calls "english"), or a list of words.
    tokenizer : a function from a text to its words, or a regular expression of which every match in
        the normalised text is a word. By default a word is a run of letters and digits of any
        script with their combining marks; one apostrophe or low line may stand inside. Chinese
        characters and hiragana are words one by one: pass a segmenter for longer ones.
    lowercase, numbers, min_length : of the default rule: fold case; keep words without a letter;
        the fewest characters of a word.
    lines : whether each line of a text file is a document (True), or each file (False); by default
        lines of a single file, files of a folder.
    encoding, delimiter, header, quotes : of text files and of CSV; ``quotes=False`` takes quotation
        marks as text.
    undecodable : what to do with bytes that are no text: ``"error"`` names the first, ``"replace"``
        puts U+FFFD, which ends a word, and counts.
    split : the beginning of the lines that divide the documents of a text file, such as
        ``"</DOC>"`` or ``"%%"``; tags are then no text.
    dtype : float32 or float64.
    n_threads : most threads; the result does not depend on it. A ``tokenizer`` function runs in
        one.
    verbose : show progress.

    Returns
    -------
    Corpus : Counts with the words as ``columns``, the names as ``rows`` (None where documents have
        none), ``words_read`` and ``words_dropped``. A document without a word that is kept is an
        empty row.

    >>> c = corpus(["the cat saw the dog", "", "a dog, a dog!"])
    >>> c.columns.tolist(), c.to_scipy().toarray().astype(int).tolist()
    (['cat', 'dog', 'saw', 'the'], [[1, 1, 1, 2], [0, 0, 0, 0], [0, 2, 0, 0]])
    >>> new = corpus({"n": "the bird saw the dog"}, vocabulary=c)
    >>> new.rows.tolist(), new.to_scipy().toarray().astype(int).tolist(), new.words_dropped
    (['n'], [[0, 1, 1, 2]], 1)
    """
    rule = Tokenizer(lowercase, numbers, min_length, tokenizer)
    choice = _Choice(min_df, max_df, max_features, stop_list(stop_words))
    precision(dtype)
    if vocabulary is not None:
        choice.refuse()
    given = None if vocabulary is None else vocabulary_of(vocabulary)
    docs = documents(
        source,
        text=text,
        index=index,
        lines=lines,
        encoding=encoding,
        delimiter=delimiter,
        header=header,
        quotes=quotes,
        undecodable=undecodable,
        split=split,
    )
    with progress(verbose) as watch:
        tally = _Tally(given)
        names: list[Any] = []
        for batch in token_batches(_texts(docs, names), rule, n_threads):
            tally.take(batch)
            watch("documents", tally.documents, None)
    if not tally.documents:
        raise InputError("the source must hold at least one document, got none")
    labels = None if all(name is None for name in names) else titles(names)
    kept, columns = (None, titles(given)) if given is not None else choice.words(tally)
    dropped = tally.tokens - tally.kept_tokens(kept)
    entries = tally.compressed(kept, len(columns), np.dtype(dtype))
    return Corpus(
        *entries,
        len(columns),
        labels,
        columns,
        tally.tokens,
        dropped,
        rule.to_dict(),
        docs.replaced,
    )


def vocabulary_of(source: Any) -> list[str]:
    """The words of a vocabulary: a list, the columns of Counts, or those of a fitted model."""
    words = getattr(source, "columns", None)
    if words is None and hasattr(source, "fit_"):
        words = source.fit_.factors.columns
        if words is None:
            raise InputError(
                f"the vocabulary must come from columns with names, got a {type(source).__name__} "
                "that was fitted without"
            )
    if words is None:
        if (
            isinstance(source, str)
            or not isinstance(source, Iterable)
            or getattr(source, "ndim", 1) == 0
        ):
            raise InputTypeError(
                f"vocabulary must be words, Counts or a fitted model, got a {type(source).__name__}"
            )
        words = source
    words = list(words)
    for j, word in enumerate(words):
        if not isinstance(word, str):
            raise InputTypeError(f"word {j} of the vocabulary must be a text (str), got {word!r}")
    if len(set(words)) < len(words):
        twice = next(w for w in words if words.count(w) > 1)
        raise InputError(f"words of the vocabulary must differ, got {twice!r} more than once")
    if not words:
        raise InputError("the vocabulary must have at least one word, got none")
    return words


class _Tally:
    """Counts as they come: for each batch, the words of each document and how often."""

    def __init__(self, given: list[str] | None):
        self.lexicon, self.given = Lexicon(given or ()), given is not None
        self.documents = self.tokens = 0
        self.parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def take(self, batch: Batch) -> None:
        from eckart.io.text.word_kernels import tally

        ids = self.lexicon.find(batch.words) if self.given else self.lexicon.add(batch.words)
        n = len(batch.ids)
        indices, counts, indptr = (
            np.empty(n, np.int32),
            np.empty(n, np.int32),
            np.empty(len(batch) + 1, np.int64),
        )
        slots = np.full(len(batch.words), -1, np.int64)
        found = tally(batch.ids, batch.pointers, slots, indices, counts, indptr)
        self.parts.append(
            (ids[indices[:found]], counts[:found].copy(), np.diff(indptr).astype(np.int32))
        )
        self.documents += len(batch)
        self.tokens += n

    def frequencies(self) -> tuple[np.ndarray, np.ndarray]:
        """In how many documents each word stands, and how often in all."""
        size = len(self.lexicon)
        df, cf = np.zeros(size, np.int64), np.zeros(size, np.int64)
        for ids, counts, _ in self.parts:
            df += np.bincount(ids, minlength=size)
            cf += np.bincount(ids, counts, size).astype(np.int64)
        return df, cf

    def kept_tokens(self, kept: np.ndarray | None) -> int:
        """How many words of the text have a column."""
        return sum(
            int(counts[self._columns(ids, kept) >= 0].sum()) for ids, counts, _ in self.parts
        )

    def compressed(
        self, kept: np.ndarray | None, n_columns: int, dtype: np.dtype
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """indptr, indices and data; ``kept`` holds the column of each word, -1 for words that are
        left out. What was taken is let go on the way."""
        sizes, columns, data = [], [], []
        self.parts.reverse()
        while self.parts:
            ids, counts, lengths = self.parts.pop()
            at = self._columns(ids, kept)
            there = at >= 0
            rows = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
            sizes.append(np.bincount(rows[there], minlength=len(lengths)))
            columns.append(at[there].astype(index_dtype(n_columns), copy=False))
            data.append(counts[there])
        indptr = np.concatenate([[0], np.cumsum(np.concatenate(sizes))]).astype(np.int64)
        indices, counts = np.concatenate(columns), np.concatenate(data)
        del columns, data
        flipped = transpose(indptr, indices, counts, n_columns)
        del indices, counts
        # twice: columns ascend in every row
        indptr, indices, counts = transpose(*flipped, self.documents)
        del flipped
        return indptr, indices, counts.astype(dtype)

    @staticmethod
    def _columns(ids: np.ndarray, kept: np.ndarray | None) -> np.ndarray:
        return ids if kept is None else kept[ids]


@dataclass(frozen=True)
class _Choice:
    """Which words become columns."""

    min_df: int | float
    max_df: int | float
    max_features: int | None
    stops: frozenset[str]

    def __post_init__(self) -> None:
        for name, value in (("min_df", self.min_df), ("max_df", self.max_df)):
            number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
            share = number and not isinstance(value, (int, np.integer))
            if not number or not (0 <= value <= 1 if share else value >= 1):
                raise invalid(
                    name,
                    value,
                    "a number of documents (int >= 1) or a share of them (float of 0 to 1)",
                )
        most = self.max_features
        if most is not None and (
            isinstance(most, bool) or not isinstance(most, (int, np.integer)) or most < 1
        ):
            raise invalid("max_features", most, "None or an int >= 1")

    def refuse(self) -> None:
        """A vocabulary that was given is not chosen again."""
        default = _Choice(1, 1.0, None, frozenset())
        if self != default:
            raise InputError(
                "give vocabulary=, or min_df, max_df, max_features and stop_words, not both: a "
                "given vocabulary is used whole"
            )

    def words(self, tally: _Tally) -> tuple[np.ndarray, np.ndarray]:
        """The column of each word (-1: none), and the words of the columns."""
        df, cf = tally.frequencies()
        low, high = (
            v if isinstance(v, (int, np.integer)) else v * tally.documents
            for v in (self.min_df, self.max_df)
        )
        if low > high:
            raise InputError(
                f"min_df must be below max_df, got min_df={self.min_df} and max_df={self.max_df}, "
                f"at least {low:g} and at most {high:g} of {tally.documents} documents. With "
                "min_df=1 and max_df=1.0 all words are kept."
            )
        good = np.flatnonzero((df >= low) & (df <= high))
        if self.stops:
            good = np.setdiff1d(good, tally.lexicon.find(Packed.of(self.stops)))
        if not len(good):
            raise NoWordsError(
                f"at least one word must be left, got none of {len(df):,} in {tally.documents:,} "
                f"documents. Lower min_df={self.min_df}, raise max_df={self.max_df}, or check "
                "stop_words and min_length."
            )
        most = chosen(good, cf, tally.lexicon.words, self.max_features)
        ordered = sorted(zip(tally.lexicon.words(most), most.tolist()))
        kept = np.full(len(df), -1, np.int32)
        kept[[number for _, number in ordered]] = np.arange(len(ordered), dtype=np.int32)
        return kept, titles([word for word, _ in ordered])


def chosen(
    good: np.ndarray, counts: np.ndarray, words: Callable[[np.ndarray], list[Any]], most: int | None
) -> np.ndarray:
    """The numbers ``good`` in the order of falling counts, equals in the order of their words; the
    first ``most`` of them.

    >>> chosen(np.array([0, 1, 2]), np.array([1, 5, 1]), lambda at: [["b", "c", "a"][i] for i in at], 2).tolist()
    [1, 2]
    """
    if most is not None and len(good) > most:  # ties are still to be settled by the words
        good = good[counts[good] >= np.partition(counts[good], -most)[-most]]
    named = words(good)
    good = good[np.array(sorted(range(len(good)), key=named.__getitem__), np.int64)]
    return good[np.argsort(-counts[good], kind="stable")][:most]


def _texts(docs: Iterable[tuple[Any, str]], names: list[Any]) -> Iterator[str]:
    """The texts; their names are put aside."""
    for name, text in docs:
        names.append(name)
        yield text


class Lexicon:
    """A growing dictionary from words to numbers, in the order in which they came.

    >>> lexicon = Lexicon(["to", "be"])
    >>> lexicon.add(Packed.of(["be", "or", "not", "be"])).tolist(), len(lexicon)
    ([1, 2, 3, 1], 4)
    >>> lexicon.find(Packed.of(["not", "that"])).tolist()
    [3, -1]
    """

    def __init__(self, words: Iterable[str] = ()):
        self.count = 0
        self._arena, self._places = np.empty(2**16, np.uint8), np.zeros(2**12, np.int64)
        self._hashes, self._table = np.empty(2**12, np.uint64), np.zeros(2**13, np.int32)
        first = Packed.of(words)
        if len(first):
            self.add(first)

    def __len__(self) -> int:
        return self.count

    def add(self, words: Packed) -> np.ndarray:
        """Numbers of words; those that are new get the next ones."""
        from eckart.io.text.word_kernels import intern

        self._reserve(len(words), len(words.arena))
        ids = np.empty(len(words), np.int32)
        places = words.places
        self.count = intern(
            words.arena,
            places[:-1],
            np.diff(places),
            self._arena,
            self._places,
            self._hashes,
            self._table,
            self.count,
            ids,
        )
        return ids

    def find(self, words: Packed) -> np.ndarray:
        """Numbers of words that are known, -1 for others."""
        known = self.count
        ids = self.add(words)
        if self.count > known:  # forget what came with the question
            ids[ids >= known] = -1
            self.count = known
            self._fill(len(self._table))
        return ids

    def words(self, at: np.ndarray | None = None) -> list[str]:
        """All words, or those of some numbers."""
        return Packed(self._arena, self._places[: self.count + 1]).decode(at)

    def _reserve(self, words: int, characters: int) -> None:
        size = self.count + words
        if size >= len(self._hashes):
            self._places = _grown(self._places, 2 * size + 1, self.count + 1)
            self._hashes = _grown(self._hashes, 2 * size, self.count)
        used = int(self._places[self.count])
        if used + characters > len(self._arena):
            self._arena = _grown(self._arena, 2 * (used + characters), used)
        if 2 * size > len(self._table):
            self._fill(_slots(2 * size))

    def _fill(self, slots: int) -> None:
        from eckart.io.text.word_kernels import rehash

        self._table = np.zeros(slots, np.int32)
        rehash(self._hashes, self.count, self._table)


def _grown(array: np.ndarray, size: int, used: int) -> np.ndarray:
    out = np.empty(size, array.dtype)
    out[:used] = array[:used]
    return out
