"""What skip-gram steps are taken over: pieces of a corpus, chances to keep each word, and noise words by the alias method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

WHOLE = 2.0**32
PIECE = 1000
"""Longest piece; a longer sentence is cut."""


@dataclass(frozen=True, eq=False)
class Pieces:
    """Piece p is ``ids[bounds[p]:bounds[p + 1]]``. ``keep`` holds the chance of each word to be kept, times 2^32; ``chance`` and ``alias`` draw noise."""

    ids: np.ndarray
    bounds: np.ndarray
    keep: np.ndarray
    chance: np.ndarray
    alias: np.ndarray

    @classmethod
    def of(
        cls, ids: np.ndarray, pointers: np.ndarray, keep: np.ndarray, noise: np.ndarray, longest: int = PIECE
    ) -> Pieces:
        """Sentences cut into pieces; ``keep`` and ``noise`` are chances of the words, the latter in any scale.

        >>> p = Pieces.of(np.zeros(5, np.int32), np.array([0, 1, 1, 5]), np.ones(1), np.ones(1), longest=3)
        >>> p.bounds.tolist()
        [0, 1, 4, 5]
        """
        chance, alias = alias_table(noise)
        return cls(ids, cut(pointers, longest), (np.clip(keep, 0, 1) * WHOLE).astype(np.uint64), chance, alias)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @property
    def n(self) -> int:
        return len(self.keep)


class WindowRule(NamedTuple):
    """Window, noise words that are drawn for two words of a window, what each of them weighs, and the column of the bias (-1: none)."""

    window: int
    drawn: int
    weight: float
    bias: int = -1


class PairEvidence(NamedTuple):
    """Loss of the windows that were listened to and their pairs; all pairs."""

    loss: float
    heard: int
    pairs: int

    def merge(self, other: PairEvidence) -> PairEvidence:
        return PairEvidence(self.loss + other.loss, self.heard + other.heard, self.pairs + other.pairs)


def cut(pointers: np.ndarray, longest: int) -> np.ndarray:
    """Bounds of pieces: those of sentences, and cuts inside of those that are too long."""
    lengths = np.diff(pointers)
    if not (lengths > longest).any():
        return np.unique(pointers).astype(np.int64)
    inside = [np.arange(a, a + n, longest) for a, n in zip(pointers[:-1], lengths) if n > longest]
    return np.unique(np.concatenate([pointers, *inside])).astype(np.int64)


def alias_table(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Walker's table: slot u is drawn uniformly, kept with chance[u] / 2^32, and is alias[u] otherwise.

    >>> chance, alias = alias_table(np.array([3.0, 1.0]))
    >>> (chance / 2**32).tolist(), alias.tolist()
    ([1.0, 0.5], [0, 0])
    """
    n = len(weights)
    share = np.asarray(weights, np.float64) * (n / np.sum(weights, dtype=np.float64))
    chance, alias = np.ones(n), np.arange(n, dtype=np.int32)
    small, large = list(np.flatnonzero(share < 1)), list(np.flatnonzero(share >= 1))
    while small and large:
        s, g = small.pop(), large[-1]
        chance[s], alias[s] = share[s], g
        share[g] -= 1.0 - share[s]
        if share[g] < 1:
            small.append(large.pop())
    return (chance * WHOLE).astype(np.uint64), alias


def tables(n: int, k: int, dtype: Any = np.float32) -> np.ndarray:
    """Zeros for n words and a dummy: n + 1 rows of k numbers, padded to whole cache lines."""
    per_line = 64 // np.dtype(dtype).itemsize
    columns = -(-k // per_line) * per_line
    raw = np.zeros((n + 1) * columns + per_line, dtype)
    skip = (-raw.ctypes.data % 64) // raw.itemsize
    return raw[skip : skip + (n + 1) * columns].reshape(n + 1, columns)
