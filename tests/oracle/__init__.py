"""Every primitive in NumPy, slow and obviously right: the specification and the judge of the
engines. Of the package it knows the protocol, how matrices are placed, and random numbers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np

from eckart.engines.host import Host, place
from eckart.matrix import Matrix
from eckart.rng import normal, streams
from oracle.dense import OracleDense
from oracle.divergences import OracleDivergences
from oracle.entries import OracleEntries
from oracle.items import OracleItems
from oracle.losses import OracleLosses
from oracle.mixtures import OracleMixtures
from oracle.parts import OracleParts
from oracle.ridge import OracleRidge
from oracle.series import OracleSeries
from oracle.tables import OracleTables
from oracle.topics import OracleTopics
from oracle.windows import OracleWindows
from oracle.words import OraclePairs


class OracleEngine(
    OracleDense,
    OracleRidge,
    OracleEntries,
    OracleLosses,
    OracleTopics,
    OracleMixtures,
    OracleParts,
    OracleDivergences,
    OraclePairs,
    OracleWindows,
    OracleItems,
    OracleSeries,
    OracleTables,
):
    """The reference engine: float64, one thread, whole arrays."""

    name = "oracle"

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


JUDGE = OracleEngine()
