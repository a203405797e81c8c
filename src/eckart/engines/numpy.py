"""The engine that needs no compiler: array primitives on NumPy, and the reference implementation of
the families that are not written so yet."""

from __future__ import annotations

from eckart.engines.arrays.dense import ArrayDense, ArrayWhole
from eckart.engines.arrays.evidence import ArrayEntries
from eckart.engines.arrays.gaps import ArrayGaps
from eckart.engines.arrays.items import ArrayItems
from eckart.engines.arrays.losses import ArrayLosses
from eckart.engines.arrays.mixtures import ArrayMixtures
from eckart.engines.arrays.numpy import NumpyLibrary
from eckart.engines.arrays.parts import ArrayParts
from eckart.engines.arrays.series import ArraySeries
from eckart.engines.arrays.tables import ArrayTables
from eckart.engines.arrays.thin import ArrayThin
from eckart.engines.arrays.topic_chain import ArrayChains
from eckart.engines.arrays.topics import ArrayTopics
from eckart.engines.arrays.windows import ArrayWindows
from eckart.engines.arrays.words import ArrayWords
from eckart.engines.plain import PlainEngine


class NumpyEngine(
    ArrayDense,
    ArrayWhole,
    ArrayThin,
    ArrayGaps,
    ArrayMixtures,
    ArrayParts,
    ArrayEntries,
    ArrayLosses,
    ArrayTables,
    ArrayTopics,
    ArrayChains,
    ArrayItems,
    ArraySeries,
    ArrayWords,
    ArrayWindows,
    PlainEngine,
):
    """Mixtures, non-negative factorization and ridge problems by array arithmetic, on one
    thread."""

    name = "numpy"
    threads = 1
    lib = NumpyLibrary()
