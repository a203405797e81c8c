"""What a worker works with: the CPU engine on one thread, or a device of its own; and the arguments
of a call as it uses them."""

from __future__ import annotations

import os
import re
from functools import cache
from typing import Any

import numpy as np

from eckart.engines.blocks import work
from eckart.engines.host import aligned

LARGE = 2**22
"""Bytes from which NumPy asks for large pages."""


@cache
def engine_of(device: str | None) -> Any:
    """One thread, because a worker runs as many tasks as it has threads."""
    if device is None:
        from eckart.engines.cpu.engine import CpuEngine

        return CpuEngine(1)
    from eckart.engines.cuda.blocks import DeviceBlocks

    return DeviceBlocks(1, own_device(device))


def own_device(device: str) -> str:
    """The GPU of this worker: the first it sees, where whoever started it said which ones
    (``CUDA_VISIBLE_DEVICES``, as dask-cuda does); else those of the machine in turn, by the number
    at the end of the worker's name (a local cluster counts its workers). Any other device as it
    is."""
    if device != "cuda" or os.environ.get("CUDA_VISIBLE_DEVICES"):
        return device
    import torch
    from distributed import get_worker

    number, count = re.search(r"\d+$", str(get_worker().name)), torch.cuda.device_count()
    return f"cuda:{int(number.group()) % count}" if number and count else device


def settled(shared: dict[str, Any], do: Any, engine: Any) -> dict[str, Any]:
    """Arguments that all blocks of a call share, once for each worker and call: on the engine's
    device where it has one, else large arrays in fresh memory, since what came through a socket
    lies on small pages and across cache lines, and kernels gather rows of it at random."""
    last = _settled[0]  # taken once: tasks of another fit may come between
    if last is None or last[0] is not shared:
        there = hasattr(engine, "moved") and isinstance(do, work.Primitive)
        last = _settled[0] = (
            shared,
            engine.moved(shared) if there else {name: _fresh(a) for name, a in shared.items()},
        )
    return last[1]


_settled: list[Any] = [None]
"""The last arguments as they came, and as they are used."""


def _fresh(a: Any) -> Any:
    if not isinstance(a, np.ndarray):
        return a
    return roomy(a) if a.nbytes >= LARGE and a.flags.c_contiguous else aligned(a)


def roomy(a: np.ndarray) -> np.ndarray:
    """A copy that starts on a cache line, in memory that NumPy asks large pages for."""
    raw = np.empty(a.nbytes + 64, np.uint8)
    skip = -raw.ctypes.data % 64
    out = raw[skip : skip + a.nbytes].view(a.dtype).reshape(a.shape)
    out[...] = a
    return out
