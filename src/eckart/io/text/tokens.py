"""From text to words: one rule for every script, and a stream of word numbers that counting and
embeddings share.

Text is brought to one form first (Unicode NFKC, casefolded, typographic apostrophes straightened,
invisible joiners and soft hyphens taken out). A word is then a run of letters and digits of any
script with their combining marks; one apostrophe or low line may stand between two of them (don't,
n_components). Chinese characters and hiragana, which are written without spaces, are words one by
one; pass a segmenter as ``tokenizer`` to have longer ones. So do Thai, Lao, Khmer and Burmese need
a segmenter: without it a run between two spaces is one word.

Documents are worked on in batches. The words of a batch are found and numbered by compiled code,
without Python's lock, so batches run on threads.

English words that say how a sentence is built and not what it is about, by their part of
speech.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from eckart.errors import InputError, InputTypeError, invalid, written
from eckart.scheduler import in_order, resolve_threads

BATCH_CHARACTERS = 2**19
"""Text that is worked on at a time."""

JOINERS = "'_·׳״"
INVISIBLE = re.compile("[\u00ad\u200c\u200d\u2060\ufeff]")
TYPOGRAPHIC = re.compile("[\u2018\u2019\u201b\uff07]")
ALONE = (
    (0x3005, 0x3007),
    (0x3041, 0x309F),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x3FFFD),
)
"""Ranges of Chinese characters and hiragana."""
ASSIGNED = ((0, 0x323B0), (0xE0100, 0xE01F0))
"""Everything beyond is unassigned or private."""


@dataclass(frozen=True)
class Tokenizer:
    """How text becomes words.

    ``tokenizer`` replaces the rule: a function from a text, as it was written, to its words, or a
    regular expression of which every match in the normalised text is a word (its first group, where
    it has one). ``min_length`` (in characters) and ``numbers`` (keep words without a letter) belong
    to the rule.

    >>> Tokenizer().words("Don't split the naïve ﬁle_name: 42 h2o, हिन्दी 東京")
    ["don't", 'split', 'the', 'naïve', 'file_name', 'h2o', 'हिन्दी', '東', '京']
    """

    lowercase: bool = True
    numbers: bool = False
    min_length: int = 2
    tokenizer: Callable[[str], Iterable[str]] | str | re.Pattern[str] | None = None

    def __post_init__(self) -> None:
        if (
            isinstance(self.min_length, bool)
            or not isinstance(self.min_length, int)
            or not 1 <= self.min_length < 2**31
        ):
            raise invalid("min_length", self.min_length, "an int >= 1, in characters")
        if isinstance(self.tokenizer, str):
            try:
                re.compile(self.tokenizer)
            except re.error as error:
                raise invalid(
                    "tokenizer", self.tokenizer, f"a regular expression ({error}) or a function"
                ) from None
        elif self.tokenizer is not None and not (
            callable(self.tokenizer) or isinstance(self.tokenizer, re.Pattern)
        ):
            raise invalid(
                "tokenizer",
                self.tokenizer,
                "None, a regular expression, or a function from text to words",
            )

    def words(self, text: str) -> list[str]:
        """The words of one text, in order."""
        batch = self.batch([text])
        names = batch.words.decode()
        return [names[i] for i in batch.ids]

    def normalise(self, text: str) -> str:
        """The form in which words are looked for."""
        if text.isascii():
            return text.lower() if self.lowercase else text
        text = unicodedata.normalize("NFKC", text)
        if self.lowercase:
            text = unicodedata.normalize("NFKC", text.casefold())
        return TYPOGRAPHIC.sub("'", INVISIBLE.sub("", text))

    def batch(self, texts: list[str], first: int = 0) -> Batch:
        """The words of some documents, numbered among themselves; ``first`` is the position of the
        first document."""
        return self.numbered(self.prepared(texts, first))

    def prepared(self, texts: list[str], first: int = 0) -> Prepared:
        """The part that Python does: texts in their normal form as bytes, and the words where a
        tokenizer of the caller finds them."""
        if self.tokenizer is None:
            parts = [self.normalise(text).encode("utf-8", "replace") for text in texts]
            return Prepared(
                b"".join(parts), np.cumsum([len(p) for p in parts], dtype=np.int64), first
            )
        found = [
            [w.encode("utf-8", "replace") for w in self._called(text, first + i)]
            for i, text in enumerate(texts)
        ]
        flat = [w for words in found for w in words]
        pointers = np.concatenate([[0], np.cumsum([len(words) for words in found], dtype=np.int64)])
        return Prepared(
            b"".join(flat), pointers, first, np.fromiter(map(len, flat), np.int64, len(flat))
        )

    def numbered(self, prepared: Prepared) -> Batch:
        """The part that compiled code does, without Python's lock."""
        from eckart.io.text.word_kernels import intern, spans

        text = np.frombuffer(prepared.text, np.uint8)
        if prepared.lengths is None:
            most = len(text) // 2 + len(prepared.ends) + 1
            starts, lengths = np.empty(most, np.int64), np.empty(most, np.int64)
            pointers = np.empty(len(prepared.ends) + 1, np.int64)
            n = spans(
                text,
                prepared.ends,
                classes(),
                self.min_length,
                self.numbers,
                starts,
                lengths,
                pointers,
            )
            starts, lengths = starts[:n], lengths[:n]
        else:
            lengths, pointers = prepared.lengths, prepared.ends
            starts = np.cumsum(lengths) - lengths
        ids = np.empty(len(starts), np.int32)
        table = np.zeros(_slots(len(starts)), np.int32)
        arena, places = np.empty(int(lengths.sum()), np.uint8), np.zeros(len(starts) + 1, np.int64)
        count = intern(
            text, starts, lengths, arena, places, np.empty(len(starts), np.uint64), table, 0, ids
        )
        places = places[: count + 1].copy()
        return Batch(ids, pointers, Packed(arena[: places[-1]].copy(), places), prepared.first)

    def _called(self, text: str, at: int) -> list[str]:
        rule = self.tokenizer
        if isinstance(rule, str):
            rule = re.compile(rule)
        if isinstance(rule, re.Pattern):
            found = rule.findall(self.normalise(text))
            return [f if isinstance(f, str) else f[0] for f in found]
        assert callable(rule)
        words = rule(text)
        if isinstance(words, str) or not isinstance(words, Iterable):
            raise InputTypeError(
                f"tokenizer must return a list of words, got a {type(words).__name__} for document "
                f"{at}"
            )
        words = list(words)
        for word in words:
            if not isinstance(word, str):
                raise InputTypeError(
                    f"tokenizer must return words (str), got {word!r} for document {at}"
                )
        return words

    def to_dict(self) -> dict[str, Any]:
        """The rule as plain values, for the plan of a model; a function is only named."""
        rule = self.tokenizer
        if isinstance(rule, re.Pattern):
            rule = rule.pattern
        elif rule is not None and not isinstance(rule, str):
            return {
                "tokenizer": f"a function: {getattr(rule, '__name__', type(rule).__name__)}",
                "function": True,
            }
        rules = {
            "lowercase": self.lowercase,
            "numbers": self.numbers,
            "min_length": self.min_length,
            "tokenizer": rule,
        }
        default = Tokenizer()
        return {name: value for name, value in rules.items() if value != getattr(default, name)}

    @classmethod
    def from_dict(cls, rules: dict[str, Any]) -> Tokenizer:
        if rules.get("function"):
            raise InputError(
                f"the text was read with {rules['tokenizer']}; count it with "
                "eckart.corpus(..., tokenizer=, vocabulary=)"
            )
        return cls(**rules)


@dataclass(frozen=True, eq=False)
class Prepared:
    """Bytes of some documents: where each document ends, or (with ``lengths`` of the words) where
    the words of each end."""

    text: bytes
    ends: np.ndarray
    first: int
    lengths: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Packed:
    """Words one after another: word w is ``arena[places[w]:places[w + 1]]``, in UTF-8."""

    arena: np.ndarray
    places: np.ndarray

    def __post_init__(self) -> None:
        # read-only as bytes are, so that kernels are compiled for one of the two
        arena = self.arena.view()
        arena.flags.writeable = False
        object.__setattr__(self, "arena", arena)

    def __len__(self) -> int:
        return len(self.places) - 1

    @classmethod
    def of(cls, words: Iterable[str]) -> Packed:
        parts = [word.encode("utf-8", "replace") for word in words]
        places = np.concatenate([[0], np.cumsum([len(p) for p in parts], dtype=np.int64)]).astype(
            np.int64
        )
        return cls(np.frombuffer(b"".join(parts), np.uint8), places)

    def decode(self, at: np.ndarray | None = None) -> list[str]:
        """The words as text: all of them, or those at some positions."""
        raw = self.arena.tobytes()
        begins, ends = self.places[:-1], self.places[1:]
        if at is not None:
            begins, ends = begins[at], ends[at]
        return [raw[a:b].decode() for a, b in zip(begins.tolist(), ends.tolist())]


@dataclass(frozen=True, eq=False)
class Batch:
    """Words of consecutive documents: document ``first + d`` is ``ids[pointers[d]:pointers[d +
    1]]``, numbers of ``words``."""

    ids: np.ndarray
    pointers: np.ndarray
    words: Packed
    first: int

    def __len__(self) -> int:
        return len(self.pointers) - 1


def token_batches(
    texts: Iterable[str],
    tokenizer: Tokenizer,
    n_threads: int | None = None,
    characters: int = BATCH_CHARACTERS,
) -> Iterator[Batch]:
    """All documents in their order, as batches; a function of the caller runs in this thread, the
    rest on ``n_threads``."""
    threads = resolve_threads(n_threads)
    return in_order(_cut(texts, tokenizer, characters), tokenizer.numbered, threads)


def _cut(texts: Iterable[str], tokenizer: Tokenizer, characters: int) -> Iterator[Prepared]:
    held: list[str] = []
    size = seen = 0
    for text in texts:
        held.append(text)
        size += len(text)
        if size >= characters or len(held) >= characters // 16:
            yield tokenizer.prepared(held, seen)
            seen += len(held)
            held, size = [], 0
    if held:
        yield tokenizer.prepared(held, seen)


@lru_cache(maxsize=1)
def classes() -> np.ndarray:
    """The class of every code point, from its Unicode category."""
    from eckart.io.text.word_kernels import DIGIT, JOINER, LETTER, MARK, SINGLE

    kinds = {"L": LETTER, "N": DIGIT, "M": MARK}
    out = np.zeros(0x110000, np.uint8)
    for begin, end in ASSIGNED:
        out[begin:end] = [kinds.get(unicodedata.category(chr(c))[0], 0) for c in range(begin, end)]
    for begin, end in ALONE:
        part = out[begin : end + 1]
        part[part == LETTER] = SINGLE
    out[[ord(c) for c in JOINERS]] = JOINER
    return out


def _slots(words: int) -> int:
    """Slots of a table that is at most half full."""
    return 1 << max(4, (2 * words).bit_length())


_TEXT = """
a an the this that these those
i me my mine myself you your yours yourself yourselves he him his himself she her hers herself it its itself
we us our ours ourselves they them their theirs themselves one ones oneself
who whom whose which what whatever whichever whoever
all any both each either every few less least many more most much neither no none other others another same several some such
anybody anyone anything everybody everyone everything nobody nothing somebody someone something
about above across after against along among amongst around as at before behind below beneath beside besides between beyond by
despite down during except for from in inside into like near of off on onto out outside over past per since through throughout
till to toward towards under until up upon via with within without
and but or nor so yet if unless although though because while whereas whether than then else
am is are was were be been being do does did doing done have has had having
can could may might must shall should will would cannot
not never ever always often sometimes usually already still just only also too very quite rather almost even again once here there
where when why how however therefore thus hence instead otherwise indeed perhaps maybe now
aren't can't couldn't didn't doesn't don't hadn't hasn't haven't isn't mightn't mustn't needn't shouldn't wasn't weren't won't wouldn't
i'd i'll i'm i've you'd you'll you're you've he'd he'll he's she'd she'll she's it'd it'll it's we'd we'll we're we've
they'd they'll they're they've that's there's what's who's let's where's here's how's
get gets got getting make makes made making use used uses using see seen go goes went gone come comes came take takes taken
"""

ENGLISH = frozenset(_TEXT.split())

LISTS = ("english", "scikit-learn")
"""Lists that have a name: eckart's own, and the one that scikit-learn calls "english", word for
word."""


def stop_list(words: Any) -> frozenset[str]:
    """The words to leave out: a list by its name, or an iterable of words; None for none.

    >>> len(stop_list("english")) > 200, sorted(stop_list(["foo", "bar"]))
    (True, ['bar', 'foo'])
    """
    if words is None:
        return frozenset()
    if isinstance(words, str):
        if words not in LISTS:
            raise invalid(
                "stop_words", words, f"{', '.join(map(repr, LISTS))}, a list of words, or None"
            )
        return ENGLISH if words == "english" else _scikit_learn()
    found = (
        list(words) if isinstance(words, Iterable) and getattr(words, "ndim", 1) != 0 else [words]
    )
    for word in found:
        if not isinstance(word, str):
            raise InputTypeError(f"stop_words must hold words (str), got {written(word)}")
    return frozenset(found)


def _scikit_learn() -> frozenset[str]:
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    return frozenset(ENGLISH_STOP_WORDS)
