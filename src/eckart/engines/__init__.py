"""Engines touch the entries; they never decide to stop, log or warn."""

from __future__ import annotations

from typing import Any

from eckart.errors import wrong


def engine_named(name: str = "auto", n_threads: int | None = None) -> Any:
    """The engine of that name: ``"cpu"`` (also ``"auto"``) or ``"plain"``, the slow specification."""
    if name in ("auto", "cpu"):
        from eckart.engines.cpu.engine import CpuEngine

        return CpuEngine(n_threads)
    if name == "plain":
        from eckart.engines.plain import PlainEngine

        return PlainEngine()
    raise wrong("engine", name, "'auto', 'cpu' or 'plain'")
