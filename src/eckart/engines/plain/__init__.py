"""Every primitive in NumPy, slow and obviously right: the specification and the judge of the other engines."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np

from eckart.engines.host import Host, place
from eckart.engines.plain.dense import PlainDense
from eckart.engines.plain.entries import PlainEntries
from eckart.engines.plain.mixtures import PlainMixtures
from eckart.engines.plain.parts import PlainNonnegative
from eckart.engines.plain.ridge import PlainRidge
from eckart.engines.plain.topics import PlainTopics
from eckart.engines.plain.windows import PlainSkipGram
from eckart.engines.plain.words import PlainPairs
from eckart.matrix import Matrix


class PlainEngine(
    PlainDense, PlainRidge, PlainEntries, PlainTopics, PlainMixtures, PlainNonnegative, PlainPairs, PlainSkipGram
):
    """The reference engine: float64, one thread, whole arrays."""

    name = "plain"

    def __init__(self, n_threads: int | None = None):
        """One thread, whatever is asked for."""

    def put(self, matrix: Matrix, weights: np.ndarray | None = None, entry_weights: np.ndarray | None = None) -> Host:
        return place(matrix, weights, entry_weights)

    def tiled(self, matrix: Matrix) -> Matrix:
        """As it is (until ``put`` lays out)."""
        return matrix

    def take(self, array: np.ndarray, dtype: Any = None) -> np.ndarray:
        return np.array(array, dtype)

    def get(self, array: np.ndarray) -> np.ndarray:
        return np.asarray(array)

    def normal(self, seed: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        return np.random.default_rng(seed).standard_normal(shape).astype(dtype)

    def at_work(self) -> Any:
        return nullcontext()
