"""Pairs of words: the primitives and their records. Shapes and letters as in ``protocol``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np

from eckart.engines.protocol.windows import PairEvidence, Pieces, WindowRule
from eckart.matrix import Observed


class PairRule(NamedTuple):
    """What a neighbour at distance 1, 2, ... weighs, times ``scale`` (so that weights are whole numbers where they can be), and on which sides it is looked
    for."""

    weights: tuple[float, ...]
    scale: float = 1.0
    left: bool = True
    right: bool = True


class CountRows(NamedTuple):
    """Rows ``first``, ``first`` + 1, ... of a sparse matrix: how many entries each has, and these, columns ascending."""

    first: int
    lengths: np.ndarray
    indices: np.ndarray
    data: np.ndarray


class GloveTable(NamedTuple):
    """Entries by blocks: block a strata + b, ``ends[.]`` to ``ends[. + 1]``, holds rows that are a and columns that are b modulo ``strata``."""

    rows: np.ndarray
    columns: np.ndarray
    targets: np.ndarray
    weights: np.ndarray
    ends: np.ndarray
    strata: int

    def round(self, turn: int) -> list[int]:
        """Blocks that share no row and no column."""
        return [a * self.strata + (a + turn) % self.strata for a in range(self.strata)]


def strata_of(n: int) -> int:
    """Into how many classes words are dealt: by their number only, so that a block's rows stay in cache and threads have enough of them."""
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
        """Weighted counts of neighbours in the same sentence, by ranges of rows in their order: N_wv = sum over the positions p of word w and the
        distances d of weight_d [ids[p -+ d] = v] / scale. ``span``: only positions first..last are looked from; neighbours may lie outside.
        ``piece``: most entries of a range (a row may be longer)."""
        ...

    def merge_counts(self, runs: Iterator[list[CountRows]], n: int, rule: PairRule) -> Iterator[CountRows]:
        """The sum of counts of the same range of rows, range after range."""
        ...

    def glove_table(self, x: Observed, weights: np.ndarray, seed: int) -> GloveTable:
        """Entries and weights by blocks, each block in a random order."""
        ...

    def glove_step(
        self, table: GloveTable, own: np.ndarray, other: np.ndarray, rate: float, order: np.ndarray
    ) -> float:
        """An epoch of AdaGrad over all entries, the rounds in this order; ``own`` and ``other`` (see ``cpu.words.glove_kernels``) are changed. Returns
        the sum of f d^2, each before its step."""
        ...

    def glove_loss(self, table: GloveTable, own: np.ndarray, other: np.ndarray) -> float:
        """The sum of f d^2 over all entries."""
        ...

    def pair_step(
        self,
        pieces: Pieces,
        x: np.ndarray,
        y: np.ndarray,
        part: tuple[int, int],
        rule: WindowRule,
        *,
        rates: tuple[float, float],
        seed: int,
        together: bool = True,
    ) -> PairEvidence:
        """Skip-gram steps over pieces first..last: x and y (see ``cpu.words.window_kernels``) are changed, the rate falls from rates[0] to rates[1].
        ``together``: threads share x and y without locks; else the bits do not depend on their number."""
        ...
