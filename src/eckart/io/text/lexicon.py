"""A dictionary of words that grows while text is read: words packed one behind the other, found by
their hashes."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from eckart.io.text.tokens import Packed, _slots


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
