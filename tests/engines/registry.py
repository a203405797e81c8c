"""The engines that every contract test judges, listed once: an engine is added by one line."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import oracle
from eckart.engines import engine_named
from eckart.engines.blocks.engine import BlocksEngine
from eckart.engines.cpu.engine import CpuEngine


class Fetched:
    """An engine whose answers come back as arrays of the host, so that contract tests can look at
    them."""

    def __init__(self, engine: Any):
        self.engine = engine

    def __getattr__(self, name: str) -> Any:
        do = getattr(self.engine, name)
        return (
            do
            if name in ("put", "at_work") or not callable(do)
            else lambda *a, **named: self._back(do(*a, **named))
        )

    def _back(self, value: Any) -> Any:
        if type(value).__name__ == "DeviceArray":
            return self.engine.get(value)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(self._back, value))
        return type(value)(map(self._back, value)) if isinstance(value, (tuple, list)) else value


def cpu(threads: int, small: float) -> CpuEngine:
    """The CPU engine with another size up to which it answers with the array primitives: 0, so that
    its kernels are judged, or infinite."""
    engine = CpuEngine(threads)
    engine.small = small
    return engine


JUDGE = oracle.JUDGE
ENGINES = {
    "cpu, 1 thread": cpu(1, 0),
    "cpu, 3 threads": cpu(3, 0),
    "arrays": cpu(1, float("inf")),
    "numpy": engine_named("numpy"),
}
DEVICE = os.environ.get("ECKART_TORCH_DEVICE", "cpu")
if importlib.util.find_spec("torch"):
    from eckart.engines.cuda import made

    if DEVICE == "pretended":
        from pretended import PretendedCard

        PretendedCard().__enter__()  # for the whole process
        DEVICE = "cuda"
    ENGINES["torch"] = Fetched(made(1, DEVICE))
"""``torch`` runs on CPU tensors, or on the device that ECKART_TORCH_DEVICE names ("cuda", or
"pretended": see ``pretended.py``); not judged where PyTorch is absent."""
SLOW = {"three parts": BlocksEngine(1, cut=3)}
"""Judged by `make test-slow`; `tests/test_parts.py` fits every model on it in every run."""
