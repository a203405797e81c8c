"""Text, baskets, sessions or walks as sequences of word numbers: what every embedding is learned
from.

One pass. Words are numbered as they come (``eckart.io.text.tokens`` finds them on threads), their
numbers are put aside in memory or, when there are many, in a temporary file. At the end the
vocabulary is chosen, when all counts are known, and the numbers are changed to positions in it.
Words outside of it are taken out of their sentence, so that windows close over them, as word2vec
and GloVe have it.

Words stand in the order of falling counts, equals in the order of the words themselves: the result
depends on the text only, not on threads.

Vectors out of files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eckart.arguments import held
from eckart.embed.cache import CorpusCache, SpillFile
from eckart.embed.item_lists import ItemNumbers, look
from eckart.embed.vectors import Vectors
from eckart.errors import InputError, InputTypeError, NoWordsError, invalid
from eckart.io.models.save import load
from eckart.io.tables.frames import titles
from eckart.io.text.documents import documents
from eckart.io.text.tokens import BATCH_CHARACTERS, Tokenizer, token_batches
from eckart.io.text.vocabulary import Lexicon, chosen
from eckart.io.vectors.files import is_model, read_words
from eckart.parameters import optional, whole
from eckart.trace import Watcher, progress

LISTS, PART = 10, 2**20
"""Lists without a repetition that make a pattern: a few sentences, or one walk, may have none by
chance. Items that are looked at together."""


@dataclass(frozen=True, eq=False)
class Sequences:
    """Sentence s is ``ids[pointers[s]:pointers[s + 1]]``, positions in ``words``; ``counts`` tells
    how often each word stands in all sentences.

    ``words_read`` is the number of words in the source, ``words_dropped`` how many of them are
    outside of the vocabulary, ``replaced`` how many characters stand for bytes that were no text,
    ``rules`` how text was cut into words. ``ids`` may be memory-mapped.

    >>> s = Sequences.of([["milk", "bread"], ["bread", "tea", "bread"]], min_count=1)
    >>> s.words.tolist(), s.counts.tolist(), s.sentence(1)
    (['bread', 'milk', 'tea'], [3, 1, 1], ['bread', 'tea', 'bread'])
    """

    ids: np.ndarray
    pointers: np.ndarray
    words: np.ndarray
    counts: np.ndarray
    words_read: int = 0
    words_dropped: int = 0
    replaced: int = 0
    rules: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, source: Any, **options: Any) -> Sequences:
        """Sequences as they are, or made of a source with the options of ``sequences``."""
        return source if isinstance(source, cls) else sequences(source, **options)

    def __len__(self) -> int:
        """Sentences, those that are empty included."""
        return len(self.pointers) - 1

    @property
    def n_tokens(self) -> int:
        """Words in all sentences, all of them in the vocabulary."""
        return len(self.ids)

    def sentence(self, s: int) -> list[Any]:
        """The words of one sentence."""
        if not -len(self) <= s < len(self):
            raise invalid("s", s, f"the number of a sentence, 0 to {len(self) - 1}")
        s %= len(self)
        return self.words[self.ids[self.pointers[s] : self.pointers[s + 1]]].tolist()


@held
def sequences(
    source: Any,
    *,
    min_count: int = 5,
    max_words: int | None = None,
    tokenizer: Any = None,
    lowercase: bool = True,
    numbers: bool = True,
    min_length: int = 1,
    text: str | int | None = None,
    lines: bool | None = None,
    encoding: str = "utf-8",
    undecodable: str = "error",
    delimiter: str | None = None,
    header: bool | None = None,
    quotes: bool = True,
    split: str | None = None,
    cache: Any = None,
    n_threads: int | None = None,
    verbose: bool = False,
) -> Sequences:
    """Number the words of sentences, in their order.

    Parameters
    ----------
    source : everything that ``eckart.corpus`` takes (each line, document or row of text is a
        sentence), or any iterable of lists of items: words, products of a basket, steps of a
        session or of a walk, each a text or an integer. It is read once; an iterator will do. A
        pair is a list of two.
    min_count : drop words that occur less often.
    max_words : keep the most frequent words only.
    tokenizer, lowercase, numbers, min_length : how text becomes words, as for ``eckart.corpus``,
        but numbers and single letters are kept. Lists of items are taken as they are.
    text, lines, encoding, delimiter, header, quotes, split : of files and tables, as for
        ``eckart.corpus``. Each line of a single text file is a sentence; in a folder each file is
        one, unless ``lines=True``.
    undecodable : ``"error"`` refuses bytes that are no text, ``"replace"`` puts U+FFFD, which ends
        a word, and counts them in ``replaced``.
    cache : a folder, or the beginning of a file name, where the result is kept. A second call for
        the same files and options maps it into memory.
    n_threads : most threads; the result does not depend on it. A ``tokenizer`` function runs in
        one.
    verbose : show progress.

    Returns
    -------
    Sequences : ``ids``, ``pointers``, ``words`` in the order of falling ``counts``.

    >>> s = sequences(["to be or not to be", "", "be that as it may"], min_count=2)
    >>> s.words.tolist(), s.ids.tolist(), s.pointers.tolist(), s.words_dropped
    (['be', 'to'], [1, 0, 1, 0, 0], [0, 4, 4, 5], 6)
    """
    rule = Tokenizer(lowercase, numbers, min_length, tokenizer)
    for name, value, allowed in (
        ("min_count", min_count, whole(1)),
        ("max_words", max_words, optional(whole(1))),
    ):
        if not allowed.fits(value):
            raise invalid(name, value, allowed.wanted)
    how = {
        "text": text,
        "lines": lines,
        "encoding": encoding,
        "undecodable": undecodable,
        "split": split,
        "delimiter": delimiter,
        "header": header,
        "quotes": quotes,
    }
    kept = None
    if cache is not None:
        kept = CorpusCache.of(
            cache, source, rule, {"min_count": min_count, "max_words": max_words, **how}
        )
        if (found := kept.load()) is not None:
            return Sequences(**found)
    with progress(verbose) as watch, SpillFile() as spilled:
        rows, source = look(source)
        read = (
            _texts(source, rule, how, spilled, n_threads, watch)
            if rows is None
            else _items(rows, how, spilled, watch)
        )
        if not spilled.sentences:
            raise InputError("the source must hold at least one sentence, got none")
        table, words, counts = _vocabulary(read, min_count, max_words)
        ids, pointers = spilled.renumbered(
            table, int(counts.sum()), None if kept is None else kept.folder
        )
        dropped = int(read.counts.sum()) - len(ids)
        out = Sequences(
            ids, pointers, words, counts, len(ids) + dropped, dropped, read.replaced, rule.to_dict()
        )
        if kept is not None:
            out = Sequences(**kept.save(vars(out)))
    return out


def are_sets(s: Sequences) -> bool:
    """Whether no list has an item twice: baskets, shelves, what a person rated. Order means nothing
    there. Text repeats its words within some sentences.

    >>> are_sets(sequences([["tea", "milk"], ["milk", "bread", "tea"]] * 5, min_count=1)), are_sets(sequences(["to be or not to be"] * 10, min_count=1))
    (True, False)
    """
    if len(s) < LISTS:
        return False
    at, pointers, n = 0, np.asarray(s.pointers, np.int64), len(s.words)
    while at < len(s):  # text ends this in its first part
        to = max(at + 1, int(np.searchsorted(pointers, pointers[at] + PART)) - 1)
        pairs = (
            np.repeat(np.arange(to - at, dtype=np.int64), np.diff(pointers[at : to + 1])) * n
            + s.ids[pointers[at] : pointers[to]]
        )
        if len(np.unique(pairs)) < len(pairs):
            return False
        at = to
    return True


def keep_probability(counts: np.ndarray, sample: float | None) -> np.ndarray:
    """The chance that an occurrence of each word is kept when frequent words are thinned out, the
    rule of word2vec:

        min(1, sqrt(sample / f) + sample / f),   f = counts / sum.

    None or 0 keeps everything.

    >>> keep_probability(np.array([900, 90, 10]), 0.01).round(3).tolist()
    [0.117, 0.444, 1.0]
    """
    if sample is None or sample == 0:
        return np.ones(len(counts))
    if (
        isinstance(sample, bool)
        or not isinstance(sample, (int, float, np.number))
        or not 0 < sample < np.inf
    ):
        raise invalid("sample", sample, "None, 0 or a positive number, such as 1e-4")
    share = np.asarray(counts, np.float64) / max(float(np.sum(counts)), 1.0)
    with np.errstate(divide="ignore"):
        ratio = np.where(share > 0, sample / np.maximum(share, np.finfo(float).tiny), 1.0)
    return np.minimum(1.0, np.sqrt(ratio) + ratio)


@dataclass(frozen=True)
class _Read:
    """What a pass over the source found: how often each number came, its words (of some numbers),
    and replaced characters."""

    counts: np.ndarray
    words: Callable[[np.ndarray], list[Any]]
    replaced: int = 0


def _texts(
    source: Any,
    rule: Tokenizer,
    how: dict[str, Any],
    spilled: SpillFile,
    n_threads: Any,
    watch: Watcher,
) -> _Read:
    docs = documents(source, **how)
    lexicon, tally = Lexicon(), _Occurrences()
    parts = _Parts(docs.texts(), whole=rule.tokenizer is not None)
    for batch in token_batches(parts, rule, n_threads):
        numbers = lexicon.add(batch.words)
        tally.add(numbers, np.bincount(batch.ids, minlength=len(batch.words)))
        spilled.put(
            numbers[batch.ids], np.diff(batch.pointers), parts.begins(batch.first, len(batch))
        )
        watch("words", tally.total, None)
    return _Read(tally.counts(len(lexicon)), lexicon.words, docs.replaced)


def _items(rows: Iterator[Any], how: dict[str, Any], spilled: SpillFile, watch: Watcher) -> _Read:
    for name in ("text", "lines", "delimiter", "header"):
        if how[name] is not None:
            raise InputError(
                f"{name}={how[name]!r} is for text only, got lists of items. Leave it out."
            )
    numbers, tally = ItemNumbers(), _Occurrences()
    for ids, lengths in numbers.batches(rows):
        seen, times = np.unique(ids, return_counts=True)
        tally.add(seen, times)
        spilled.put(ids, lengths)
        watch("words", tally.total, None)
    return _Read(tally.counts(len(numbers)), numbers.words)


class _Occurrences:
    """How often each number came."""

    def __init__(self) -> None:
        self._counts, self.total = np.zeros(2**12, np.int64), 0

    def add(self, numbers: np.ndarray, times: np.ndarray) -> None:
        """Distinct numbers and how often each came."""
        if not len(numbers):
            return
        top = int(numbers.max()) + 1
        if top > len(self._counts):
            self._counts = np.concatenate(
                [self._counts, np.zeros(2 * top - len(self._counts), np.int64)]
            )
        self._counts[numbers] += times
        self.total += int(times.sum())

    def counts(self, size: int) -> np.ndarray:
        return np.concatenate(
            [self._counts[:size], np.zeros(max(0, size - len(self._counts)), np.int64)]
        )


class _Parts:
    """Texts, very long ones in parts that end with a space, so that a text of one line is worked on
    by all threads in little memory.

    A function or an expression of the caller sees each text ``whole``.
    """

    def __init__(self, texts: Iterable[str], whole: bool):
        self._source, self._whole = texts, whole
        self._begins: list[bool] = []
        self._first = 0

    def __iter__(self) -> Iterator[str]:
        for text in self._source:
            begin = 0
            while not self._whole and len(text) - begin > BATCH_CHARACTERS:
                cut = text.rfind(" ", begin, begin + BATCH_CHARACTERS) + 1
                if cut == 0:  # a word longer than a batch
                    cut = text.find(" ", begin + BATCH_CHARACTERS) + 1 or len(text)
                self._begins.append(begin == 0)
                yield text[begin:cut]
                begin = cut
            if begin == 0 or begin < len(text):
                self._begins.append(begin == 0)
                yield text[begin:] if begin else text

    def begins(self, first: int, count: int) -> np.ndarray:
        """Which of the parts first..first + count begin a text; those before are forgotten."""
        del self._begins[: first - self._first]
        self._first = first
        return np.array(self._begins[:count], bool)


def vocabulary_of_counts(
    counts: np.ndarray,
    words: Callable[[np.ndarray], list[Any]],
    min_count: int,
    max_words: int | None,
) -> tuple[np.ndarray, np.ndarray]:
    """The words that are kept, in their order, and their counts; ``words`` gives those of some
    numbers.

    >>> kept, times = vocabulary_of_counts(np.array([1, 5, 3]), lambda at: [["b", "c", "a"][i] for i in at], 2, None)
    >>> kept.tolist(), times.tolist()
    (['c', 'a'], [5, 3])
    """
    _, kept, times = _vocabulary(_Read(counts, words), min_count, max_words)
    return kept, times


def _vocabulary(
    read: _Read, min_count: int, max_words: int | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The position of each number in the vocabulary (-1: none), its words, their counts."""
    good = np.flatnonzero(read.counts >= min_count)
    if not len(good):
        raise NoWordsError(
            f"at least one word must be left, got none of {len(read.counts):,} in a text of "
            f"{int(read.counts.sum()):,}. Lower min_count={min_count}."
        )
    at = chosen(good, read.counts, read.words, max_words)
    table = np.full(len(read.counts), -1, np.int32)
    table[at] = np.arange(len(at), dtype=np.int32)
    return table, titles(read.words(at)), read.counts[at]


@held
def read_vectors(
    path: Any,
    format: str | None = None,
    *,
    limit: int | None = None,
    encoding: str = "utf-8",
    undecodable: str = "error",
    dtype: Any = None,
    n_threads: int | None = None,
) -> Vectors:
    """Vectors out of a file that word2vec, GloVe, fastText (.vec), gensim or ``Vectors.write``
    wrote, or of a saved embedding model.

    A word that comes twice keeps its first vector, and a warning says so. A file that is not what
    its first line promises, a line of too few numbers and a number that is not finite are refused,
    with the line.

    Parameters
    ----------
    path : the file, compressed (gzip) or not
    format : "text", "glove", "binary" or "safetensors"; found out from the file unless said
    limit : read so many words from the first on (usually the most frequent)
    encoding, undecodable : of the words; what cannot be decoded is refused, or replaced by U+FFFD
        with undecodable="replace"
    dtype : float32 or float64; float32 unless said, and as it is held in .safetensors

    >>> import tempfile, os
    >>> from eckart import Vectors
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = os.path.join(folder, "v.vec")
    ...     Vectors(["new", "york"], [[1.0, 0.5], [0.1, 2.0]]).write(file)
    ...     open(file).read(), read_vectors(file)["york"].tolist()
    ('2 2\\nnew 1 0.5\\nyork 0.1 2\\n', [0.10000000149011612, 2.0])
    """
    if format is None and is_model(path):
        model = load(path)
        if not hasattr(model, "vectors_"):
            raise InputTypeError(
                f"{path} must hold a model of embeddings or be a file of vectors, got a "
                f"{type(model).__name__}"
            )
        found = model.vectors_
        counts = None if found.counts is None else found.counts[:limit]
        return Vectors(
            found.words[:limit],
            found.vectors[:limit].astype(dtype or found.vectors.dtype, copy=False),
            counts,
        )
    return Vectors(
        *read_words(
            path,
            format,
            limit=limit,
            encoding=encoding,
            undecodable=undecodable,
            dtype=dtype,
            n_threads=n_threads,
        )
    )
