"""The engine of blocks that a device works on: placed matrices are the host's, as blocks are made,
cut and sent there, and primitives run on the device.

A block is moved once and stays on the device as long as somebody keeps it here. Tall arrays come
with the arguments of a call and go back with its answer.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from weakref import ref

import numpy as np

from eckart.engines.blocks.spreading import RULES
from eckart.engines.cpu.engine import CpuEngine
from eckart.engines.cuda.arrays import DeviceArray
from eckart.engines.cuda.engine import TorchEngine, to_host
from eckart.engines.cuda.held import DeviceMatrix
from eckart.engines.host import Host

SHARED = ("right", "v")
"""Arguments that all blocks share and that may be as large as a block: the factors of the other
side, and blocks of vectors."""


class DeviceBlocks(CpuEngine):
    """``TorchEngine`` on ``device`` for primitives that walk over a block, ``CpuEngine`` for all
    else."""

    name = "cuda"

    def __init__(self, n_threads: int | None = None, device: Any = "cuda"):
        super().__init__(n_threads)
        self.there = TorchEngine(n_threads, device)
        self.there.reason, self.device = "", self.there.device
        self._held: dict[int, tuple[Any, DeviceMatrix]] = {}
        self._turn = threading.RLock()

    def moved(self, shared: dict[str, Any]) -> dict[str, Any]:
        """Arguments of one call, those that are large on the device: all blocks of the call take
        them from there."""
        with self._turn:
            return {
                name: self.there.take(a) if name in SHARED and _numbers(a) else a
                for name, a in shared.items()
            }

    def held(self, host: Host) -> DeviceMatrix:
        """The block on the device. What is kept for it rests on a copy of its description, so that
        the block itself can go, and then this goes, too."""
        known = self._held.get(id(host))
        if known is None or known[0]() is not host:
            key = id(host)
            known = ref(host, lambda gone: self._forget(key, gone)), self.there.held(replace(host))
            self._held[key] = known
        return known[1]

    def _forget(self, key: int, gone: Any) -> None:
        """A block is gone; another one may have come to its place in memory meanwhile."""
        if key in self._held and self._held[key][0] is gone:
            del self._held[key]

    def _there(self, name: str, x: Host, own: tuple[str, ...], arguments: dict[str, Any]) -> Any:
        with (
            self._turn,
            self.there.at_work(),
        ):  # one piece of work fills a device, and settings of PyTorch are the whole process's
            before, block = self.there.reason, self.held(x)
            given = {
                key: self.there.take(a) if key in own and _numbers(a) else a
                for key, a in arguments.items()
            }
            answer = to_host(getattr(self.there, name)(block, **given))
            x.checked = x.checked or block.checked
            if self.there.reason != before:
                logging.getLogger("eckart").warning("%s", self.there.reason.lstrip("; "))
            return answer


def _numbers(a: Any) -> bool:
    return isinstance(a, np.ndarray) and a.ndim > 0 and a.dtype in (np.float32, np.float64)


def _on_device(name: str, own: tuple[str, ...]) -> Callable[..., Any]:
    """The primitive on the device; on the host where it was given something else than a block."""

    def method(self: DeviceBlocks, x: Any, *args: Any, **named: Any) -> Any:
        if args or not isinstance(x, Host):
            return getattr(CpuEngine, name)(
                self, x, *args, **{key: _fetched(a) for key, a in named.items()}
            )
        return self._there(name, x, own, named)

    method.__name__ = name
    return method


def _fetched(a: Any) -> Any:
    return to_host(a) if isinstance(a, DeviceArray) else a


for _name, _rule in RULES.items():
    if hasattr(TorchEngine, _name):
        setattr(DeviceBlocks, _name, _on_device(_name, (*_rule.rows, *_rule.entries)))
