"""The primitives that every engine implements under the same names, and the evidence each returns,
by family.

Shapes: X is N x n, V is n x b, mean is n. ``weights`` are N row weights or None (all ones). Xc = X
- 1 mean^T is never formed. A record of sums over rows has an associative ``merge``.
"""

from __future__ import annotations

from typing import Protocol

from eckart.engines.protocol.dense import (
    ROUGH,
    ColumnMoments,
    Decomposition,
    DenseFamily,
    GapCodes,
    GapStatistics,
    Keeper,
    Moments,
    SeenColumns,
    Sketch,
)
from eckart.engines.protocol.entries import (
    EntriesFamily,
    Evidence,
    EvidenceSums,
    LossesFamily,
    LossSums,
    ThresholdSums,
)
from eckart.engines.protocol.items import ItemsFamily, SparseColumns, SparseRows, ZeroDiagonal
from eckart.engines.protocol.mixtures import MixturesFamily
from eckart.engines.protocol.parts import (
    BetaRule,
    BetaSums,
    CrossSums,
    Descent,
    DivergencesFamily,
    FactorSums,
    KlRule,
    KlSums,
    PartsFamily,
    Pass,
    SignSums,
    Totals,
)
from eckart.engines.protocol.placed import (
    GapsFound,
    Placed,
    PlacingFamily,
    Tall,
    first_bad,
    refuse_bad,
)
from eckart.engines.protocol.ridge import PrecisionDraws, RidgeFamily, RidgeRule, RowSolution
from eckart.engines.protocol.series import (
    FactorRule,
    FilledMoments,
    LagProducts,
    SeriesFamily,
    TablesFamily,
)
from eckart.engines.protocol.topics import TopicsFamily, TopicStatistics
from eckart.engines.protocol.words import (
    CountRows,
    GloveTable,
    PairRule,
    PmiRule,
    ScoreEvidence,
    ScoreRule,
    WordsFamily,
    strata_of,
)

__all__ = [
    "ROUGH",
    "BetaRule",
    "BetaSums",
    "ColumnMoments",
    "CountRows",
    "CrossSums",
    "Decomposition",
    "Descent",
    "Engine",
    "Evidence",
    "EvidenceSums",
    "FactorRule",
    "FactorSums",
    "FilledMoments",
    "GapCodes",
    "GapStatistics",
    "GapsFound",
    "GloveTable",
    "Keeper",
    "KlRule",
    "KlSums",
    "LagProducts",
    "LossSums",
    "Moments",
    "PairRule",
    "Pass",
    "Placed",
    "PmiRule",
    "PrecisionDraws",
    "RidgeRule",
    "RowSolution",
    "ScoreEvidence",
    "ScoreRule",
    "SeenColumns",
    "SignSums",
    "Sketch",
    "SparseColumns",
    "SparseRows",
    "Tall",
    "ThresholdSums",
    "TopicStatistics",
    "Totals",
    "ZeroDiagonal",
    "first_bad",
    "refuse_bad",
    "strata_of",
]


class Engine(
    PlacingFamily,
    DenseFamily,
    EntriesFamily,
    RidgeFamily,
    LossesFamily,
    MixturesFamily,
    TopicsFamily,
    PartsFamily,
    DivergencesFamily,
    WordsFamily,
    ItemsFamily,
    SeriesFamily,
    TablesFamily,
    Protocol,
):
    """What a chapter may ask of an engine."""

    name: str
