"""What a worker works with: the CPU engine on one thread, and the arguments of a call as it uses
them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from eckart.engines.cpu.engine import CpuEngine
from eckart.engines.host import aligned

LARGE = 2**22
"""Bytes from which NumPy asks for large pages."""


@cache
def worker_engine() -> CpuEngine:
    """One thread, because a worker runs as many tasks as it has threads."""
    return CpuEngine(1)


def settled(shared: dict[str, Any]) -> dict[str, Any]:
    """Arguments that all blocks of a call share, once for each worker and call: large arrays in
    fresh memory, since what came through a socket lies on small pages and across cache lines, and
    kernels gather rows of it at random."""
    last = _settled[0]  # taken once: tasks of another fit may come between
    if last is None or last[0] is not shared:
        last = _settled[0] = shared, {name: _fresh(a) for name, a in shared.items()}
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
