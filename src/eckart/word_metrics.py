"""How good are vectors of words? Judgements of people about pairs of words, and analogies; public
as ``eckart.metrics.word_similarity`` and ``analogies``.

word similarity   Spearman's rank correlation, rho = the correlation of the ranks (ties share their
mean rank) of the cosines with those of the scores
                  that people gave; p for rho = 0 from t = rho sqrt((m - 2) / (1 - rho^2)) with m -
                  2 degrees of freedom
analogies         the share of questions "a is to b as c is to ?" whose first answer among the
``restrict`` first words is the expected one;
                  words of the question are no answers

What has no vector is left out and counted: coverage is found / total, and a measure without its
coverage says little. Here ``vectors`` is a ``Vectors``, or anything with ``words`` and ``unit``
(unit-length rows).
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from eckart.arguments import held
from eckart.errors import FileError, InputError, InputTypeError, invalid, written

BLOCK_SCORES = 2**23
"""Scores that are held at once: 32 to 64 MB."""
METHODS = ("add", "multiply")


@dataclass(frozen=True)
class WordSimilarity:
    """What ``word_similarity`` measured: Spearman's rho and its p over the ``found`` of ``total``
    pairs, and the words without a vector."""

    rho: float
    p: float
    found: int
    total: int
    missing: tuple[str, ...]

    @property
    def coverage(self) -> float:
        return self.found / self.total

    def __str__(self) -> str:
        return (
            f"rho {self.rho:.4f} (p {self.p:.2g}) over {self.found} of {self.total} pairs "
            f"({self.coverage:.1%})"
        )


@dataclass(frozen=True)
class Section:
    """Questions of one kind: ``right`` of ``asked`` were answered well; ``total`` stand in the
    file, the rest lacks vectors."""

    name: str
    right: int
    asked: int
    total: int

    @property
    def accuracy(self) -> float | None:
        """None where nothing could be asked."""
        return self.right / self.asked if self.asked else None

    @property
    def coverage(self) -> float:
        return self.asked / self.total if self.total else 0.0

    def __str__(self) -> str:
        share = (
            "nothing asked"
            if not self.asked
            else f"{self.right / self.asked:7.2%} = {self.right} / {self.asked}"
        )
        return f"{self.name:<30} {share} of {self.total}"


@dataclass(frozen=True)
class Analogies:
    """What ``analogies`` measured, by section, and summed over semantic sections, syntactic ones
    (their names start with "gram") and all."""

    sections: tuple[Section, ...]
    method: str

    @property
    def semantic(self) -> Section:
        return self._sum("semantic", [s for s in self.sections if not s.name.startswith("gram")])

    @property
    def syntactic(self) -> Section:
        return self._sum("syntactic", [s for s in self.sections if s.name.startswith("gram")])

    @property
    def all(self) -> Section:
        return self._sum("all", self.sections)

    @property
    def accuracy(self) -> float | None:
        return self.all.accuracy

    @property
    def coverage(self) -> float:
        return self.all.coverage

    def _sum(self, name: str, parts: Iterable[Section]) -> Section:
        parts = list(parts)
        return Section(
            name,
            sum(s.right for s in parts),
            sum(s.asked for s in parts),
            sum(s.total for s in parts),
        )

    def __str__(self) -> str:
        return "\n".join(map(str, (*self.sections, self.semantic, self.syntactic, self.all)))


@held
def word_similarity(
    vectors: Any,
    pairs: Any,
    *,
    ignore_case: bool = True,
    missing: str = "skip",
    encoding: str = "utf-8",
) -> WordSimilarity:
    """Spearman's rank correlation of cosines with the scores that people gave to pairs of words.

    Parameters
    ----------
    vectors : Vectors, or anything with ``words`` and ``unit``
    pairs : (word, word, score) triples, or the name of a file of one such line each, between tabs,
        commas, semicolons or spaces; a first line of titles, empty lines and lines that start with
        # are passed over
    ignore_case : Athens finds athens; the word as it is written comes first
    missing : "skip" leaves a pair out when one of its words has no vector, "zeros" gives it the
        cosine 0, "error" refuses it

    >>> from eckart import Vectors
    >>> v = Vectors(["cat", "dog", "car", "bus"], [[1.0, 0.1], [1.0, 0.3], [0.1, 1.0], [0.3, 1.0]])
    >>> print(word_similarity(v, [("cat", "dog", 9), ("car", "bus", 8), ("Cat", "bus", 3), ("cat", "car", 2), ("cat", "sun", 1)]))
    rho 0.9487 (p 0.051) over 4 of 5 pairs (80.0%)
    """
    if missing not in ("skip", "zeros", "error"):
        raise invalid("missing", missing, "'skip', 'zeros' or 'error'")
    first, second, scores = _triples(pairs, encoding)
    look = _Lookup(_words_of(vectors), ignore_case)
    a, b = look(first), look(second)
    known = (a >= 0) & (b >= 0)
    sides = zip(zip(first, a), zip(second, b))
    lost = tuple(dict.fromkeys(word for pair in sides for word, place in pair if place < 0))
    if lost and missing == "error":
        raise InputError(
            f"{lost[0]!r} has no vector ({len(lost)} words in all); drop it, or pass missing='skip'"
        )
    cosines = np.where(
        known, np.einsum("ij,ij->i", vectors.unit[a], vectors.unit[b], dtype=np.float64), 0.0
    )
    # of a word with itself: by rounding some would rank above others
    cosines[known & (a == b)] = 1.0
    if missing == "skip":
        cosines, scores = cosines[known], scores[known]
    rho, p = spearman(cosines, scores)
    return WordSimilarity(rho, p, int(known.sum()), len(first), lost)


@held
def analogies(
    vectors: Any,
    questions: Any,
    *,
    method: str = "add",
    restrict: int | None = 30_000,
    ignore_case: bool = True,
    encoding: str = "utf-8",
) -> Analogies:
    """The share of analogies that the vectors answer, for each section of the questions.

    Parameters
    ----------
    vectors : Vectors, or anything with ``words`` and ``unit``
    questions : the name of a file in the questions-words format (": section" lines, then four words
        a line), or {section: [(a, b, c, expected), ...]}
    method : "add" (3CosAdd) or "multiply" (3CosMul)
    restrict : only so many words from the first on (the most frequent, as models leave them) may
        ask and answer; None for all
    ignore_case : Athens finds athens; of words that differ in case only, the first is used

    >>> import numpy as np
    >>> from eckart import Vectors
    >>> v = Vectors(["man", "woman", "king", "queen"], [[1.0, 0.0, 0.1], [0.0, 1.0, 0.1], [1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    >>> print(analogies(v, {"royal": [("man", "king", "woman", "queen"), ("man", "king", "woman", "knave")]}))
    royal                          100.00% = 1 / 1 of 2
    semantic                       100.00% = 1 / 1 of 2
    syntactic                      nothing asked of 0
    all                            100.00% = 1 / 1 of 2
    """
    if method not in METHODS:
        raise invalid("method", method, "'add' or 'multiply'")
    if restrict is not None and (
        isinstance(restrict, bool) or not isinstance(restrict, (int, np.integer)) or restrict < 1
    ):
        raise invalid("restrict", restrict, "None or an int >= 1")
    names, of, asked = _questions(questions, encoding)
    words, unit = vectors.words[:restrict], vectors.unit[:restrict]
    look = _Lookup(words, ignore_case)
    at = look([w for question in asked for w in question]).reshape(-1, 4)
    known = (at >= 0).all(axis=1)
    total, had = (np.bincount(part, minlength=len(names)) for part in (of, of[known]))
    kept = np.unique(look.first)
    shrunk = len(kept) < len(words)
    if shrunk:  # words that differ in case only would compete with themselves
        place = np.full(len(words), -1)
        place[kept] = np.arange(len(kept))
        unit, at = unit[kept], np.where(at >= 0, place[look.first[at]], -1)
    right = _right(unit, at[known], method)
    won = np.bincount(of[known][right], minlength=len(names))
    return Analogies(
        tuple(Section(n, int(w), int(h), int(t)) for n, w, h, t in zip(names, won, had, total)),
        method,
    )


def _right(unit: np.ndarray, at: np.ndarray, method: str) -> np.ndarray:
    """Whether the best answer to each question (a, b, c, expected) is the expected word."""
    out = np.zeros(len(at), bool)
    step = max(1, BLOCK_SCORES // max(len(unit), 1))
    for first in range(0, len(at), step):
        part = at[first : first + step]
        scores = analogy_scores(unit, part[:, :3], method)
        best = scores.argmax(axis=1)
        out[first : first + step] = (best == part[:, 3]) & np.isfinite(scores.max(axis=1))
    return out


def analogy_scores(unit: np.ndarray, questions: np.ndarray, method: str) -> np.ndarray:
    """The score of every word as the answer to each question (rows a, b, c of positions); -inf for
    the words of the question.

    >>> unit = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    >>> analogy_scores(unit, np.array([[0, 1, 2]]), "multiply").round(3).tolist()
    [[-inf, -inf, -inf, 0.0]]
    """
    a, b, c = questions.T
    if method == "add":
        goal = unit[b] - unit[a] + unit[c]
        size = np.linalg.norm(goal, axis=1, keepdims=True)
        out = np.divide(goal, size, out=np.zeros_like(goal), where=size > 0) @ unit.T
    else:
        asked, place = np.unique(questions, return_inverse=True)
        near = unit[asked] @ unit.T
        near += 1
        near *= 0.5
        np.maximum(near, 0, out=near)
        x, y, z = place.reshape(questions.shape).T
        out = near[y]
        out *= near[z]
        out /= near[x] + near.dtype.type(1e-3)
    np.put_along_axis(out, questions, -np.inf, axis=1)
    return out


def spearman(x: Any, y: Any) -> tuple[float, float]:
    """Spearman's rho and its two-sided p; ties share their mean rank.

    >>> [round(v, 6) for v in spearman([1.0, 2.0, 2.0, 4.0], [1.0, 3.0, 2.0, 9.0])]
    [0.948683, 0.051317]
    """
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    m = len(x)
    if m < 3:
        raise InputError(
            f"at least 3 pairs of words must have vectors to correlate, got {m}. Train on more "
            "text."
        )
    a, b = _ranks(x), _ranks(y)
    a, b = a - a.mean(), b - b.mean()
    spread = math.sqrt(float(a @ a) * float(b @ b))
    if spread == 0:
        what = "cosines" if not a.any() else "scores"
        raise InputError(
            f"{what} must differ somewhere, got {m} equal ones: ranks of equals say nothing"
        )
    rho = max(-1.0, min(1.0, float(a @ b) / spread))
    from scipy.special import stdtr

    p = (
        0.0
        if abs(rho) == 1
        else 2 * float(stdtr(m - 2, -abs(rho) * math.sqrt((m - 2) / (1 - rho * rho))))
    )
    return rho, p


def _ranks(values: np.ndarray) -> np.ndarray:
    """1 for the smallest; equals share the mean of their ranks."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[place]


def _words_of(vectors: Any) -> Any:
    if not hasattr(vectors, "words") or not hasattr(vectors, "unit"):
        raise invalid("vectors", vectors, "Vectors, or anything with words and unit")
    return vectors.words


class _Lookup:
    """Positions of words: as they are written, else without regard to case (the first such
    word)."""

    def __init__(self, words: Any, ignore_case: bool):
        known = list(words)
        self.exact: dict[Any, int] = {}
        self.folded: dict[Any, int] = {}
        for i, word in enumerate(known):
            self.exact.setdefault(word, i)
        if ignore_case:
            for i, word in enumerate(known):
                self.folded.setdefault(_fold(word), i)
        self.first = np.array(
            [self.folded.get(_fold(w), i) for i, w in enumerate(known)]
            if ignore_case
            else range(len(known))
        )

    def __call__(self, words: Iterable[Any]) -> np.ndarray:
        found = (
            self.exact.get(w, self.folded.get(_fold(w), -1) if self.folded else -1) for w in words
        )
        return np.fromiter(found, np.int64)


def _fold(word: Any) -> Any:
    return word.casefold() if isinstance(word, str) else word


def _triples(pairs: Any, encoding: str) -> tuple[list[Any], list[Any], np.ndarray]:
    """Words, words and scores, of a file or of triples."""
    rows: list[tuple[Any, Any, float]] = []
    if isinstance(pairs, (str, os.PathLike)):
        for number, line in _lines(pairs, encoding):
            cells = _cells(line)
            try:
                if len(cells) < 3:
                    raise ValueError
                rows.append((cells[0], cells[1], _number(cells[2])))
            except ValueError:
                if number == 1 and len(cells) >= 3:
                    continue  # titles
                raise FileError(
                    f"{pairs}, line {number} must be two words and a number, got {line!r}"
                ) from None
    elif isinstance(pairs, Iterable) and getattr(pairs, "ndim", 1) != 0:
        for i, triple in enumerate(pairs):
            try:
                a, b, score = triple
                rows.append((a, b, _number(score)))
            except (TypeError, ValueError, OverflowError):
                raise InputError(
                    f"pairs[{i}] must be (word, word, score), got {written(triple)}"
                ) from None
    else:
        raise InputTypeError(
            f"pairs must be the name of a file or (word, word, score) triples, got {written(pairs)}"
        )
    if not rows:
        raise InputError("pairs must have at least one pair of words, got none")
    first, second, scores = zip(*rows)
    return list(first), list(second), np.array(scores)


def _number(text: Any) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError
    return value


def _cells(line: str) -> list[str]:
    for mark in "\t;,":
        if line.count(mark) >= 2:
            return [cell.strip() for cell in line.split(mark)]
    return line.split()


def _questions(
    questions: Any, encoding: str
) -> tuple[list[str], np.ndarray, list[tuple[Any, ...]]]:
    """Names of sections, the section of each question, and the questions."""
    names: list[str] = []
    of: list[int] = []
    asked: list[tuple[Any, ...]] = []
    if isinstance(questions, (str, os.PathLike)):
        for number, line in _lines(questions, encoding):
            if line.startswith(":"):
                names.append(line[1:].strip())
                continue
            words = tuple(line.split())
            if len(words) != 4:
                raise FileError(
                    f"{questions}, line {number} must be four words, or ': section', got {line!r}"
                )
            if not names:
                names.append("questions")
            of.append(len(names) - 1)
            asked.append(words)
    elif isinstance(questions, dict):
        for name, part in questions.items():
            names.append(str(name))
            if not isinstance(part, (list, tuple, np.ndarray)):
                raise InputError(
                    f"questions[{name!r}] must be a list of four words each, got {written(part)}"
                )
            for i, question in enumerate(part):
                if not isinstance(question, (list, tuple, np.ndarray)) or len(question) != 4:
                    raise InputError(
                        f"questions[{name!r}][{i}] must be four words, got {written(question)}"
                    )
                of.append(len(names) - 1)
                asked.append(tuple(question))
    else:
        raise InputTypeError(
            "questions must be the name of a file or {section: questions}, got a "
            f"{type(questions).__name__}"
        )
    if not asked:
        raise InputError("questions must have at least one question, got none")
    return names, np.array(of), asked


def _lines(path: Any, encoding: str) -> Iterator[tuple[int, str]]:
    """Numbers and texts of the lines that say something."""
    try:
        with open(path, encoding=encoding, newline=None) as text:
            for number, line in enumerate(text, 1):
                line = line.lstrip("\ufeff").strip()
                if line and not line.startswith("#"):
                    yield number, line
    except UnicodeDecodeError as error:
        raise FileError(
            f"{path} cannot be read as {encoding}: {error.reason} at byte {error.start}"
        ) from None
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}") from None
    except (LookupError, ValueError):
        if "\0" in str(path):
            raise FileError(f"path must be the name of a file, got {str(path)!r}") from None
        raise invalid(
            "encoding", encoding, "the name of an encoding, such as 'utf-8' or 'latin-1'"
        ) from None
