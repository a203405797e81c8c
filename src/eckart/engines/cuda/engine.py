"""TorchEngine: the primitives of ``protocol`` on a device, and every other by the CPU engine.

An array stays where it was made: primitives written here return ``DeviceArray``, those of the CPU
engine arrays of NumPy, and each takes both. So a model none of whose primitives are written here
runs as on the CPU engine, without a copy to the device and back.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from eckart.engines.arrays.mixtures import ArrayMixtures
from eckart.engines.arrays.parts import ArrayParts
from eckart.engines.arrays.torch import TorchLibrary
from eckart.engines.cpu.engine import CpuEngine
from eckart.engines.cuda.arrays import DeviceArray, Promised, Twins, on_host, rounding, torch_dtype
from eckart.engines.cuda.dense import DeviceDense, DeviceGaps, DeviceThin
from eckart.engines.cuda.entries import DeviceEntries
from eckart.engines.cuda.formulas import DeviceLosses
from eckart.engines.cuda.held import DeviceMatrix, RoomLeft, to_device
from eckart.engines.cuda.ridge import DeviceRidge
from eckart.engines.cuda.topics import DeviceTopics
from eckart.engines.cuda.words import DeviceWords
from eckart.engines.host import Host
from eckart.engines.protocol import Engine
from eckart.errors import InputError
from eckart.matrix import Matrix


class TorchEngine(
    DeviceDense,
    DeviceGaps,
    DeviceThin,
    DeviceEntries,
    DeviceLosses,
    DeviceRidge,
    ArrayMixtures,
    ArrayParts,
    DeviceTopics,
    DeviceWords,
):
    """PyTorch on ``device``; ``n_threads`` is for what runs on the CPU engine."""

    name = "cuda"
    reason: str

    def __init__(self, n_threads: int | None = None, device: Any = "cuda"):
        self.device = torch.device(device)
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise InputError(
                "engine='cuda' came, but this PyTorch sees no CUDA device; use "
                "engine='auto' or 'cpu', or install a PyTorch built for your GPU"
            )
        self.back, self.room = CpuEngine(n_threads), RoomLeft(self.device)
        self.fallen: set[str] = set()
        self.twins = Twins()
        self.lib = TorchLibrary(self.device, self.room, self.twins, self.back)

    def put(
        self,
        matrix: Matrix | DeviceMatrix,
        weights: np.ndarray | None = None,
        entry_weights: np.ndarray | None = None,
    ) -> DeviceMatrix:
        if isinstance(matrix, DeviceMatrix):
            if weights is None and entry_weights is None:
                return matrix
            matrix = matrix.host.matrix  # placed before, without these weights
        return DeviceMatrix.of(
            self.back.put(matrix, weights, entry_weights), self.device, self.room
        )

    def take(self, array: Any, dtype: Any = None) -> DeviceArray:
        host = array if isinstance(array, DeviceArray) else np.asarray(array)
        if host.dtype not in (np.float32, np.float64, np.int64):
            host = np.asarray(host, np.float64)
        return DeviceArray(to_device(host, self.device, dtype))

    def get(self, array: Any) -> np.ndarray:
        return on_host(array)

    def normal(
        self, seed: int | tuple[int, ...], shape: tuple[int, ...], dtype: Any
    ) -> DeviceArray:
        """On a GPU by its own generator, whose streams begin at a hash of the seed: other numbers
        than those of the host, drawn where they are used."""
        if self.device.type != "cuda":
            return self.take(self.back.normal(seed, shape, dtype))
        # PyTorch takes 63 bits
        state = int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]) >> 1
        draw = torch.Generator(self.device).manual_seed(state)
        return DeviceArray(
            torch.randn(shape, generator=draw, device=self.device, dtype=torch_dtype(dtype))
        )

    def drawn(self, rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> DeviceArray:
        if self.device.type != "cuda":
            return self.take(self.back.drawn(rng, shape, dtype))
        return self.normal(int(rng.integers(2**63 - 1)), shape, dtype)

    def together(self, x: Any, works: list[Callable[[Any], Any]]) -> list[Any]:
        """One after the other: a single piece of work fills the device."""
        return [work(self) for work in works]

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Products in full float32, put back after. BLAS on the host keeps to one thread, as inside
        the CPU engine: what is left to it is small, and many threads take some milliseconds to meet
        for eigenvalues that one finds in a fraction of that (large matrices are the device's)."""
        with rounding("highest"), self.back.at_work():
            yield

    def held(self, x: Any, weights: Any = None) -> DeviceMatrix:
        """A placed matrix, whatever came."""
        if weights is None:
            return self.lib.placed(x)
        if isinstance(x, Host):
            return self.lib.placed(dataclasses.replace(x, weights=weights))
        return self.put(x, on_host(weights))

    def tensor(self, array: Any, dtype: Any = None) -> torch.Tensor:
        return self.lib.given(array, dtype)

    def on_cpu(self, name: str, *args: Any, **named: Any) -> Any:
        """A primitive of the CPU engine, its arguments brought to the host."""
        self.fallen.add(name)
        args, named = to_host(args), to_host(named)
        found = getattr(self.back, name)(*args, **named)
        if type(found) is tuple:
            return tuple(self.held(each) if isinstance(each, Host) else each for each in found)
        return self.held(found) if isinstance(found, Host) else found

    def __getattr__(self, name: str) -> Any:
        """What is not written for the device runs on the CPU engine."""
        if name.startswith("_") or name == "back" or not callable(getattr(self.back, name, None)):
            raise AttributeError(f"{type(self).__name__} has no {name}")

        def call(*args: Any, **named: Any) -> Any:
            return self.on_cpu(name, *args, **named)

        return call


def _within_memory(name: str, primitive: Any) -> Any:
    """The primitive; where the device runs out of memory, with smaller blocks, and at last on the
    CPU engine. The plan of the fit says so."""

    @functools.wraps(primitive)
    def call(self: TorchEngine, *args: Any, **named: Any) -> Any:
        for _ in range(SMALLER):
            try:
                return primitive(self, *args, **named)
            except torch.OutOfMemoryError:
                self.room.smaller()
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
        words = f"; {name} ran on the CPU engine, the device had no room for it"
        reason = getattr(self, "reason", "asked for")
        self.reason = reason if words in reason else reason + words
        return self.on_cpu(name, *args, **named)

    return call


SMALLER = 4
"""Attempts, each with blocks of a quarter of the size, before the CPU engine takes over: from a
gigabyte to 16 megabytes."""
for _name in set(dir(Engine)) - set(vars(TorchEngine)):
    if not _name.startswith("_") and callable(getattr(TorchEngine, _name, None)):
        setattr(TorchEngine, _name, _within_memory(_name, getattr(TorchEngine, _name)))


def to_host(value: Any) -> Any:
    """Arrays and placed matrices inside records, tuples and dictionaries, on the host; anything
    else as it is."""
    if isinstance(value, DeviceArray):
        return on_host(value)
    if isinstance(value, DeviceMatrix):
        return value.host
    if isinstance(value, Promised):
        return float(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(to_host, value))
    if isinstance(value, (tuple, list)):
        return type(value)(map(to_host, value))
    if isinstance(value, dict):
        return {name: to_host(each) for name, each in value.items()}
    return value
