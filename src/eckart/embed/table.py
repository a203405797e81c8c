"""Words and their vectors side by side: looking up, and choosing among them; the questions are in
``eckart.embed.vectors``."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from eckart.errors import InputError, UnknownWord, invalid
from eckart.index.alike import alike
from eckart.index.labels import Labels, shown, tidy

MISSING = ("error", "skip", "zeros")


class VectorTable:
    """n words, n x k numbers, and counts where they are known."""

    def __init__(self, words: Any, vectors: Any, counts: Any = None):
        self.words = tidy(words)
        self.vectors = _matrix(vectors, self.words)
        self._labels = Labels(self.words, len(self.words), "word")
        if (repeats := self._labels.repeats) is not None:
            twice = shown(self.words[int(repeats.argmax())])
            raise InputError(f"words must differ, got {twice} twice. Drop the repeats.")
        self.counts = None if counts is None else np.asarray(counts)
        if self.counts is not None and (
            self.counts.shape != self.words.shape
            or self.counts.dtype.kind not in "iuf"
            or not (self.counts >= 0).all()
        ):
            raise InputError(f"counts are not {len(self.words)} numbers >= 0, one for each word")

    @cached_property
    def unit(self) -> np.ndarray:
        """The vectors scaled to length 1 (zeros stay zeros)."""
        return unit_rows(self.vectors)

    @property
    def k(self) -> int:
        """Numbers in a vector."""
        return self.vectors.shape[1]

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: Any) -> bool:
        try:
            return bool(self._labels.find([word])[0] >= 0)
        except (InputError, TypeError):
            return False

    @cached_property
    def key_to_index(self) -> dict[Any, int]:
        """{word: its row in ``vectors``}, as gensim names it."""
        return {word: i for i, word in enumerate(self.words.tolist())}

    @property
    def index_to_key(self) -> list[Any]:
        """The words in the order of their rows, as gensim names them."""
        return self.words.tolist()

    def __getitem__(self, words: Any) -> np.ndarray:
        """The vector of a word, or the matrix of a list of words."""
        return self.get(words)

    def __repr__(self) -> str:
        return f"Vectors of {len(self):,} words x {self.k} numbers, {self.vectors.dtype}"

    def get(self, words: Any, missing: str = "error") -> np.ndarray:
        """The vector of a word, or the matrix of a list of words; ``missing="skip"`` gives no row
        to an unknown word (or None for one alone).

        >>> VectorTable([7, 9], [[1.0, 2.0], [3.0, 4.0]]).get([9, 8, 7], missing="zeros").tolist()
        [[3.0, 4.0], [0.0, 0.0], [1.0, 2.0]]
        """
        one, ids = self._asked(words)
        at = self._find(ids, missing)
        out = self._rows(self.vectors, at[at >= 0] if missing == "skip" else at)
        return out if not one else out[0] if len(out) else None  # type: ignore[return-value]

    def _asked(self, words: Any) -> tuple[bool, np.ndarray]:
        """Whether one word came, and the words as an array of ids."""
        one = (
            isinstance(words, (str, bytes, np.generic))
            or not hasattr(words, "__iter__")
            or getattr(words, "ndim", 1) == 0
        )
        if isinstance(words, tuple) and self._labels.kind == "ids" and words in self:
            one = True
        return one, tidy([words] if one else words)

    def _find(self, ids: np.ndarray, missing: str) -> np.ndarray:
        """Positions, -1 for an unknown word where that is allowed."""
        if missing not in MISSING:
            raise invalid("missing", missing, "'error', 'skip' or 'zeros'")
        at = self._labels.find(ids)
        if missing == "error" and (at < 0).any():
            lost = np.flatnonzero(at < 0)
            more = f" ({len(lost) - 1} more are unknown)" if len(lost) > 1 else ""
            near = ", ".join(map(shown, self._near(ids[lost[0]])))
            raise UnknownWord(
                f"word must be one of the {len(self)} words, got {shown(ids[lost[0]])}{more}"
                + (f". Near ones are {near}." if near else "")
            )
        return at

    def _near(self, word: Any) -> list[Any]:
        """Up to three words that the caller may have meant."""
        return (
            alike(word, self.words)
            if isinstance(word, str) and self._labels.kind in ("text", "ids")
            else []
        )

    @staticmethod
    def _rows(of: np.ndarray, at: np.ndarray) -> np.ndarray:
        """Rows at the positions, zeros at -1."""
        out = of[at]
        out[at < 0] = 0
        return out

    def _kept(self, among: Any, without: Any, min_count: float | None) -> np.ndarray | None:
        """Which words may be found; None where all may."""
        if among is None and without is None and min_count is None:
            return None
        kept = np.ones(len(self), bool) if among is None else self._mask("among", among)
        if without is not None:
            kept &= ~self._mask("without", without)
        if min_count is not None:
            if self.counts is None:
                raise InputError(
                    f"min_count={min_count!r} came, but these vectors have no counts; "
                    "pass counts= to Vectors"
                )
            kept &= self.counts >= min_count
        return kept

    def _mask(self, name: str, words: Any) -> np.ndarray:
        if callable(words):
            return np.fromiter((bool(words(word)) for word in self.words.tolist()), bool, len(self))
        if isinstance(words, np.ndarray) and words.dtype == bool:
            if words.shape != (len(self),):
                raise invalid(
                    name, f"a mask of shape {words.shape}", f"one of {len(self)} booleans"
                )
            return words.copy()
        out = np.zeros(len(self), bool)
        out[self._find(self._asked(words)[1], "error")] = True
        return out


def _matrix(vectors: Any, words: np.ndarray) -> np.ndarray:
    try:
        out = np.asarray(vectors)
        if out.dtype.kind not in "fiu" or out.dtype.itemsize > 8:
            out = out.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise invalid("vectors", type(vectors).__name__, "a matrix of numbers") from None
    if out.dtype not in (np.float32, np.float64):
        out = out.astype(np.float32 if out.dtype == np.float16 else np.float64)
    if out.ndim != 2 or len(out) != len(words) or not out.size:
        raise invalid(
            "vectors",
            f"an array of shape {out.shape}",
            f"{len(words)} rows, one for each word, at least one number each",
        )
    if not np.isfinite(out).all():
        row = int(np.argwhere(~np.isfinite(out))[0][0])
        raise InputError(
            f"the vector of word {shown(words[row])} holds a number that is not finite; "
            "drop the word"
        )
    return np.ascontiguousarray(out)


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """Rows scaled to length 1, zeros left as they are; lengths are summed in double precision."""
    with np.errstate(over="ignore"):
        square = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
    odd = ~((square > 1e-280) & (square < 1e280))
    size = np.sqrt(np.where(odd, 1.0, square))
    out = (vectors / size[:, None]).astype(vectors.dtype)
    for row in np.flatnonzero(odd):  # lengths that double precision cannot square
        v = vectors[row].astype(np.float64)
        top = np.abs(v).max()
        v = v / top if top > 0 else v
        out[row] = v / (np.linalg.norm(v) or 1.0)
    return out
