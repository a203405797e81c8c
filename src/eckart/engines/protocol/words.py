"""Pairs of words: the primitives and their records. Shapes and letters as in ``protocol``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np

from eckart.engines.protocol.placed import Placed, Tall
from eckart.engines.protocol.windows import PairEvidence, Pieces, WindowRule


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
