"""Primitives that are functions beside their kernels. Loading numba takes half a second, so such a
file is loaded when one of them is first called."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from eckart.engines.host import place
from eckart.matrix import Counts, Dense, Observed


def later(module: str, name: str) -> Any:
    """The function of this name as a method of the engine, given its threads; a matrix that was not
    placed yet is."""

    def primitive(self: Any, *args: Any, **named: Any) -> Any:
        do = getattr(import_module(f"eckart.engines.cpu.{module}"), name)
        if args and isinstance(args[0], (Dense, Observed, Counts)):
            args = place(args[0]), *args[1:]
        return do(*args, threads=self.threads, **named)

    primitive.__name__ = name
    return primitive
