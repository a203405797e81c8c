"""Every primitive in NumPy, slow and obviously right: the specification and the judge of the other
engines."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np

from eckart.engines.host import Host, place
from eckart.engines.plain.dense import PlainDense
from eckart.engines.plain.divergences import PlainDivergences
from eckart.engines.plain.entries import PlainEntries
from eckart.engines.plain.items import PlainItems
from eckart.engines.plain.losses import PlainLosses
from eckart.engines.plain.mixtures import PlainMixtures
from eckart.engines.plain.parts import PlainParts
from eckart.engines.plain.ridge import PlainRidge
from eckart.engines.plain.series import PlainSeries
from eckart.engines.plain.tables import PlainTables
from eckart.engines.plain.topics import PlainTopics
from eckart.engines.plain.windows import PlainWindows
from eckart.engines.plain.words import PlainPairs
from eckart.matrix import Matrix
from eckart.rng import normal, streams


class PlainEngine(
    PlainDense,
    PlainRidge,
    PlainEntries,
    PlainLosses,
    PlainTopics,
    PlainMixtures,
    PlainParts,
    PlainDivergences,
    PlainPairs,
    PlainWindows,
    PlainItems,
    PlainSeries,
    PlainTables,
):
    """The reference engine: float64, one thread, whole arrays."""

    name = "plain"

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
        return np.array(array, dtype)

    def get(self, array: np.ndarray) -> np.ndarray:
        return np.asarray(array)

    def normal(self, seed: int | tuple[int, ...], shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        out = np.empty(shape, dtype)
        for part, rng in streams(seed, shape[0]):
            out[part] = rng.standard_normal(out[part].shape)
        return out

    def drawn(self, rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        return normal(rng, shape, dtype)

    def together(self, x: Any, works: list[Callable[[Any], Any]]) -> list[Any]:
        return [work(self) for work in works]

    def at_work(self) -> Any:
        return nullcontext()
