"""CpuEngine: the primitives of ``protocol`` by row blocks on threads."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from copy import copy
from typing import Any

import numpy as np

from eckart.engines.arrays.numpy import NumpyLibrary
from eckart.engines.cpu.dense.gaps import GapPrimitives
from eckart.engines.cpu.dense.primitives import DensePrimitives
from eckart.engines.cpu.entries.primitives import EntryPrimitives
from eckart.engines.cpu.items.primitives import ItemPrimitives
from eckart.engines.cpu.mixtures.primitives import MixturePrimitives
from eckart.engines.cpu.parts.primitives import NonnegativePrimitives
from eckart.engines.cpu.ridge.primitives import RidgePrimitives
from eckart.engines.cpu.series.primitives import SeriesPrimitives
from eckart.engines.cpu.small import SMALL, is_small
from eckart.engines.cpu.tables.primitives import TablePrimitives
from eckart.engines.cpu.topics.primitives import TopicPrimitives
from eckart.engines.cpu.words import WordPrimitives
from eckart.engines.host import Host, place
from eckart.matrix import Matrix
from eckart.rng import normal, streams
from eckart.scheduler import resolve_threads, run_lanes, single_threaded_blas

COPIED = 2**21
"""Bytes of an array from which a copy of it (another type, rows for columns) is worth threads: a
millisecond of one core."""


class CpuEngine(
    DensePrimitives,
    GapPrimitives,
    EntryPrimitives,
    RidgePrimitives,
    TopicPrimitives,
    MixturePrimitives,
    NonnegativePrimitives,
    WordPrimitives,
    ItemPrimitives,
    SeriesPrimitives,
    TablePrimitives,
):
    """BLAS and numba on row blocks; results do not depend on ``n_threads``."""

    name = "cpu"
    lib = NumpyLibrary()
    small: float = SMALL
    whole = True
    """Whether matrices are data as a whole, and not blocks whose memory adds up."""

    def __init__(self, n_threads: int | None = None):
        self.threads = resolve_threads(n_threads)

    def put(
        self,
        matrix: Matrix,
        weights: np.ndarray | None = None,
        entry_weights: np.ndarray | None = None,
    ) -> Host:
        placed = place(matrix, weights, entry_weights)
        if is_small(placed, self.small):
            return placed
        if placed.turn is None and placed.kind != "dense":
            placed.turn = self._transposed
        return placed

    def _transposed(self, matrix: Any) -> Any:
        from eckart.engines.cpu.entries.sparse import transposed

        return transposed(matrix, self.threads)

    def take(self, array: np.ndarray, dtype: Any = None) -> np.ndarray:
        array = np.asarray(array)
        kind = array.dtype if dtype is None else np.dtype(dtype)
        if (
            array.ndim != 2
            or array.nbytes < COPIED
            or (array.dtype == kind and array.flags.c_contiguous)
        ):
            return np.ascontiguousarray(array, kind)
        out = np.empty(array.shape, kind)
        cuts = np.linspace(0, len(array), 65).astype(int).tolist()

        def step(_: None, part: tuple[int, int], scratch: dict) -> None:
            out[part[0] : part[1]] = array[part[0] : part[1]]

        run_lanes(list(itertools.pairwise(cuts)), [None] * 64, step, self.threads)
        return out

    def get(self, array: np.ndarray) -> np.ndarray:
        return np.asarray(array)

    def normal(self, seed: int | tuple[int, ...], shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        out = np.empty(shape, dtype)

        def step(_: None, item: tuple[slice, np.random.Generator], scratch: dict) -> None:
            part = out[item[0]]
            if part.dtype == np.float64:
                item[1].standard_normal(out=part)
            else:
                part[...] = item[1].standard_normal(part.shape)

        run_lanes(streams(seed, shape[0]), [None] * 64, step, self.threads)
        return out

    def drawn(self, rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        return normal(rng, shape, dtype)

    def together(self, x: Any, works: list[Callable[[Any], Any]]) -> list[Any]:
        at_once = (
            min(self.threads, len(works)) if isinstance(x, Host) else 1
        )  # what lies elsewhere has threads of its own
        own = self if at_once <= 1 else copy(self)
        own.threads = max(1, self.threads // max(1, at_once))
        answers: list[Any] = [None] * len(works)

        def step(_: None, at: int, scratch: dict) -> None:
            answers[at] = works[at](own)

        run_lanes(range(len(works)), [None] * len(works), step, at_once)
        return answers

    def at_work(self) -> Any:
        return single_threaded_blas()
