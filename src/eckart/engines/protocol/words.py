"""Pairs of words: the primitives and their records. Shapes and letters as in ``protocol``.

What skip-gram steps are taken over: pieces of a corpus, chances to keep each word, noise words
by the alias method, and the order of repeatable steps.

Repeatable steps: where the text and the vocabulary are large enough, the samples of a round (pairs
of words that stood beside each other, and of words and noise) are dealt to strata x strata blocks
by the classes of their two words (w modulo ``strata``). Blocks that share no word run at the same
time, turn after turn (Gemulla et al. 2011), so threads change no bit and lose no update. In shorter
texts each window follows the one before.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, NamedTuple, Protocol

import numpy as np

from eckart.engines.protocol.placed import Placed, Tall
from eckart.scheduler import lanes_for


class PairRule(NamedTuple):
    """What a neighbour at distance 1, 2, ... weighs, times ``scale`` (so that weights are whole
    numbers where they can be), and on which sides it is looked for."""

    weights: tuple[float, ...]
    scale: float = 1.0
    left: bool = True
    right: bool = True


class CountRows(NamedTuple):
    """Rows ``first``, ``first`` + 1, ... of a sparse matrix: how many entries each has, and these,
    columns ascending."""

    first: int
    lengths: np.ndarray
    indices: np.ndarray
    data: np.ndarray


class GloveTable(NamedTuple):
    """Entries by blocks: block a strata + b, ``ends[.]`` to ``ends[. + 1]``, holds rows that are a
    and columns that are b modulo ``strata``."""

    rows: np.ndarray
    columns: np.ndarray
    targets: np.ndarray
    weights: np.ndarray
    ends: np.ndarray
    strata: int

    def round(self, turn: int) -> list[int]:
        """Blocks that share no row and no column."""
        return [a * self.strata + (a + turn) % self.strata for a in range(self.strata)]


class PmiRule(NamedTuple):
    """Which pointwise mutual information: the exponent of the contexts' shares, what log is
    subtracted, and whether positive entries alone are kept."""

    smoothing: float = 0.75
    shift: float = 1.0
    positive: bool = True


class ScoreRule(NamedTuple):
    """Shares q of the noise (sum 1), r of its words for each pair, and whether the loss is the
    softmax instead."""

    noise: np.ndarray
    negatives: float
    softmax: bool = False


class ScoreEvidence(NamedTuple):
    """Sums over rows, each times its weight: loss, lowest loss, loss without vectors, pairs; and
    squares: of the half of the gradient that pulls scores up, of the one that pushes them down, and
    of both."""

    loss: float
    bound: float
    start: float
    pairs: float
    pull: float
    push: float
    both: float

    def merge(self, other: ScoreEvidence) -> ScoreEvidence:
        return ScoreEvidence(*(a + b for a, b in zip(self, other)))


def strata_of(n: int) -> int:
    """Into how many classes words are dealt: by their number only, so that a block's rows stay in
    cache and threads have enough of them."""
    return int(np.clip(n // 256, 1, 16))


class WordsFamily(Protocol):
    """Pairs of words."""

    def cooccur(
        self,
        ids: np.ndarray,
        pointers: np.ndarray,
        n: int,
        rule: PairRule,
        span: tuple[int, int] | None = None,
        piece: int = 2**21,
    ) -> Iterator[CountRows]:
        """Weighted counts of neighbours in the same sentence, by ranges of rows in their order:
        N_wv = sum over the positions p of word w and the distances d of weight_d [ids[p -+ d] = v]
        / scale. ``span``: only positions first..last are looked from; neighbours may lie outside.
        ``piece``: most entries of a range (a row may be longer)."""
        ...

    def merge_counts(
        self, runs: Iterator[list[CountRows]], n: int, rule: PairRule
    ) -> Iterator[CountRows]:
        """The sum of counts of the same range of rows, range after range."""
        ...

    def join_counts(self, parts: list[CountRows]) -> tuple[np.ndarray, np.ndarray]:
        """indices and data of consecutive ranges of rows behind each other. The list may be emptied
        meanwhile."""
        ...

    def mutual_information(self, x: Placed, rule: PmiRule, dtype: Any) -> CountRows:
        """log(p(w, v) / (p(w) p_a(v))) - log shift at the stored pairs of counts, p_a(v)
        proportional to (sum_w N_wv)^smoothing; entries that are 0, or not positive where only these
        are kept, are left out."""
        ...

    def pair_scores(
        self,
        x: Placed,
        left: np.ndarray,
        right: np.ndarray,
        offset: np.ndarray | None,
        rule: ScoreRule,
    ) -> ScoreEvidence:
        """Loss and gradient of the scores s = U V^T + offset of rows against all words, given the
        counts x (with a weight for each row) of the words beside them; see ``certify.pairs``. No
        array of rows x words is held."""
        ...

    def glove_table(self, x: Placed, seed: int) -> GloveTable:
        """Entries and their weights by blocks, each block in a random order."""
        ...

    def glove_step(
        self, table: GloveTable, own: Tall, other: Tall, rate: float, order: np.ndarray
    ) -> tuple[Tall, Tall]:
        """An epoch of AdaGrad over all entries, the rounds in this order: ``own`` and ``other``
        (see ``cpu.words.glove_kernels``) after it; what came stays as it was."""
        ...

    def glove_loss(self, table: GloveTable, own: Tall, other: Tall) -> float:
        """The sum of f d^2 over all entries."""
        ...

    def window_table(self, rows: np.ndarray) -> Tall:
        """Inputs or outputs of skip-gram: these rows and a dummy that stays zero, laid out for
        ``pair_step``. ``get`` returns them as they lie, with the padding of the engine behind the
        rows and columns."""
        ...

    def pair_step(
        self,
        pieces: Pieces,
        x: Tall,
        y: Tall,
        part: tuple[int, int],
        rule: WindowRule,
        *,
        rates: tuple[float, float],
        seed: int,
        together: bool = True,
    ) -> PairEvidence:
        """Skip-gram steps over pieces first..last: x and y are changed in place, the rate falls
        from rates[0] to rates[1]. ``together``: threads share x and y without locks; else the bits
        do not depend on their number (see ``windows``)."""
        ...


WHOLE = 2.0**32
PIECE = 1000
"""Longest piece; a longer sentence is cut."""
RUN = 2**13
"""Words of a run, about, whose samples are drawn at a time."""
SAMPLES = 2**23
"""Samples of a round, about: enough that a block takes longer than handing it out; 8 bytes for
each."""
SHORT = 2**21
"""Words of a text up to which windows follow one another on one thread: that takes seconds, and
passes in that order come a little nearer to the optimum than passes by blocks."""
STRATA = 32
"""Classes of words at the most, and so blocks that run at the same time: two for each of 16
threads, since blocks of frequent words are up to twice as long."""
LISTEN = 16
"""The loss is measured at every so many windows, or runs."""


@dataclass(frozen=True, eq=False)
class Pieces:
    """Piece p is ``ids[bounds[p]:bounds[p + 1]]``. ``keep`` holds the chance of each word to be
    kept, times 2^32; ``chance`` and ``alias`` draw noise."""

    ids: np.ndarray
    bounds: np.ndarray
    keep: np.ndarray
    chance: np.ndarray
    alias: np.ndarray

    @classmethod
    def of(
        cls,
        ids: np.ndarray,
        pointers: np.ndarray,
        keep: np.ndarray,
        noise: np.ndarray,
        longest: int = PIECE,
    ) -> Pieces:
        """Sentences cut into pieces; ``keep`` and ``noise`` are chances of the words, the latter in
        any scale.

        >>> p = Pieces.of(np.zeros(5, np.int32), np.array([0, 1, 1, 5]), np.ones(1), np.ones(1), longest=3)
        >>> p.bounds.tolist()
        [0, 1, 4, 5]
        """
        chance, alias = alias_table(noise)
        return cls(
            ids,
            cut(pointers, longest),
            (np.clip(keep, 0, 1) * WHOLE).astype(np.uint64),
            chance,
            alias,
        )

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def shuffled(self) -> Pieces:
        """The pieces in an order of chance that is always the same; their words are copied.

        >>> p = Pieces.of(np.array([7, 8, 8, 9, 9, 9], np.int32), np.array([0, 1, 3, 6]), np.ones(10), np.ones(10)).shuffled()
        >>> p.ids.tolist(), p.bounds.tolist()
        ([9, 9, 9, 7, 8, 8], [0, 3, 4, 6])
        """
        order = np.random.default_rng(0).permutation(len(self))
        bounds = np.concatenate([[0], np.cumsum(np.diff(self.bounds)[order])])
        ids = np.empty(int(bounds[-1]), self.ids.dtype)
        for at, p in zip(bounds.tolist(), order.tolist()):
            ids[at : at + int(self.bounds[p + 1] - self.bounds[p])] = self.ids[
                self.bounds[p] : self.bounds[p + 1]
            ]
        return replace(self, ids=ids, bounds=bounds)

    @property
    def n(self) -> int:
        return len(self.keep)


class WindowRule(NamedTuple):
    """Window, noise words that are drawn for two words of a window, what each of them weighs,
    numbers of a row, and the column of the bias (-1: none)."""

    window: int
    drawn: int
    weight: float
    columns: int
    bias: int = -1


class PairEvidence(NamedTuple):
    """Loss of the windows that were listened to and their pairs; all pairs."""

    loss: float
    listened: int
    pairs: int

    def merge(self, other: PairEvidence) -> PairEvidence:
        return PairEvidence(
            self.loss + other.loss, self.listened + other.listened, self.pairs + other.pairs
        )

    @classmethod
    def sum(cls, parts: Iterable[PairEvidence]) -> PairEvidence:
        """All of them, one after another."""
        return reduce(cls.merge, parts, cls(0.0, 0, 0))


def cut(pointers: np.ndarray, longest: int) -> np.ndarray:
    """Bounds of pieces: those of sentences, and cuts inside of those that are too long."""
    lengths = np.diff(pointers)
    if not (lengths > longest).any():
        ends = np.asarray(pointers[1:], np.int64)
        # empty sentences have no piece
        return np.concatenate([np.asarray(pointers[:1], np.int64), ends[lengths > 0]])
    inside = [np.arange(a, a + n, longest) for a, n in zip(pointers[:-1], lengths) if n > longest]
    return np.unique(np.concatenate([pointers, *inside])).astype(np.int64)


def alias_table(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Walker's table: slot u is drawn uniformly, kept with chance[u] / 2^32, and is alias[u]
    otherwise.

    >>> chance, alias = alias_table(np.array([3.0, 1.0]))
    >>> (chance / 2**32).tolist(), alias.tolist()
    ([1.0, 0.5], [0, 0])
    """
    n = len(weights)
    share = (np.asarray(weights, np.float64) * (n / np.sum(weights, dtype=np.float64))).tolist()
    chance, alias = [1.0] * n, list(range(n))
    small, large = [u for u in range(n) if share[u] < 1], [u for u in range(n) if share[u] >= 1]
    while small and large:
        s, g = small.pop(), large[-1]
        chance[s], alias[s] = share[s], g
        share[g] -= 1.0 - share[s]
        if share[g] < 1:
            small.append(large.pop())
    return (np.array(chance) * WHOLE).astype(np.uint64), np.array(alias, np.int32)


def runs_of(bounds: np.ndarray, first: int, last: int, words: int) -> list[tuple[int, int]]:
    """Ranges of the pieces first..last of about so many words.

    >>> runs_of(np.array([0, 3, 6, 9, 12]), 0, 4, 5)
    [(0, 2), (2, 4)]
    """
    at = [first]
    while at[-1] < last:
        following = int(np.searchsorted(bounds, bounds[at[-1]] + words))
        at.append(min(max(following, at[-1] + 1), last))
    return list(itertools.pairwise(at))


def rounds_of(
    pieces: Pieces, part: tuple[int, int], rule: WindowRule
) -> tuple[int, list[list[tuple[int, int]]]]:
    """Into how many classes words are dealt, and the runs of every round of repeatable steps: by
    text and vocabulary alone, never by threads."""
    words = int(pieces.bounds[part[1]] - pieces.bounds[part[0]])
    strata = lanes_for(pieces.n // 256, most=STRATA) if int(pieces.bounds[-1]) > SHORT else 1
    runs = runs_of(pieces.bounds, *part, RUN)
    rounds = max(1, words * (rule.window + 1) * (1 + rule.drawn) // SAMPLES)
    return strata, [each.tolist() for each in np.array_split(np.array(runs).reshape(-1, 2), rounds)]


def turn(strata: int, t: int) -> list[int]:
    """Blocks that share no row and no column."""
    return [a * strata + (a + t) % strata for a in range(strata)]
