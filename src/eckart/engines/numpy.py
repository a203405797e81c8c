"""The engine that needs no compiler: every primitive by array arithmetic, on one thread."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np

from eckart.engines.arrays.dense import ArrayDense, ArrayThin, ArrayWhole
from eckart.engines.arrays.evidence import ArrayEntries
from eckart.engines.arrays.gaps import ArrayGaps
from eckart.engines.arrays.items import ArrayItems
from eckart.engines.arrays.losses import ArrayLosses
from eckart.engines.arrays.mixtures import ArrayMixtures
from eckart.engines.arrays.numpy import NumpyLibrary
from eckart.engines.arrays.parts import ArrayParts
from eckart.engines.arrays.series import ArraySeries
from eckart.engines.arrays.tables import ArrayTables
from eckart.engines.arrays.topics import ArrayChains, ArrayTopics
from eckart.engines.arrays.words import ArrayWindows, ArrayWords
from eckart.engines.host import Host, place
from eckart.matrix import Matrix
from eckart.rng import normal


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
):
    """All families on NumPy and SciPy."""

    name = "numpy"
    threads = 1
    lib = NumpyLibrary()

    def __init__(self, n_threads: int | None = None):
        """One thread, whatever is asked for."""

    def put(
        self,
        matrix: Matrix,
        weights: np.ndarray | None = None,
        entry_weights: np.ndarray | None = None,
    ) -> Host:
        return place(matrix, weights, entry_weights)

    def take(self, array: np.ndarray, dtype: Any = None) -> np.ndarray:
        return np.array(array, dtype, order="C")

    def get(self, array: np.ndarray) -> np.ndarray:
        return np.asarray(array)

    def normal(self, seed: int | tuple[int, ...], shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        return self.lib.normal(seed, shape).astype(dtype, copy=False)

    def drawn(self, rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        return normal(rng, shape, dtype)

    def together(self, x: Any, works: list[Callable[[Any], Any]]) -> list[Any]:
        return [work(self) for work in works]

    def at_work(self) -> Any:
        return nullcontext()
