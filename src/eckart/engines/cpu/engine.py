"""CpuEngine: the primitives of ``protocol`` by row blocks on threads."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.engines.cpu.dense.primitives import DensePrimitives
from eckart.engines.cpu.mixtures.primitives import MixturePrimitives
from eckart.engines.cpu.parts.primitives import NonnegativePrimitives
from eckart.engines.cpu.ridge.primitives import CompletionPrimitives
from eckart.engines.cpu.topics.primitives import TopicPrimitives
from eckart.engines.cpu.words.glove import GlovePrimitives
from eckart.engines.cpu.words.primitives import PairPrimitives
from eckart.engines.cpu.words.windows import SkipGramPrimitives
from eckart.engines.host import Host, place
from eckart.matrix import Matrix
from eckart.scheduler import resolve_threads, single_threaded_blas


class CpuEngine(
    DensePrimitives,
    CompletionPrimitives,
    TopicPrimitives,
    MixturePrimitives,
    NonnegativePrimitives,
    PairPrimitives,
    GlovePrimitives,
    SkipGramPrimitives,
):
    """BLAS and numba on row blocks; results do not depend on ``n_threads``."""

    name = "cpu"

    def __init__(self, n_threads: int | None = None):
        self.threads = resolve_threads(n_threads)

    def put(self, matrix: Matrix, weights: np.ndarray | None = None, entry_weights: np.ndarray | None = None) -> Host:
        return place(matrix, weights, entry_weights)

    def take(self, array: np.ndarray, dtype: Any = None) -> np.ndarray:
        return np.ascontiguousarray(array, dtype)

    def get(self, array: np.ndarray) -> np.ndarray:
        return np.asarray(array)

    def normal(self, seed: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        return np.random.default_rng(seed).standard_normal(shape).astype(dtype)

    def at_work(self) -> Any:
        return single_threaded_blas()
