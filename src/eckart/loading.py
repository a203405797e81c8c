"""Modules that are loaded when something of them is first used: numba, PyTorch and PyArrow take
longer to load than many a fit takes that does without them."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class _Module:
    """Stands for a module until an attribute of it is asked for."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what others ask of any object is no use of it
            raise AttributeError(name)
        return getattr(import_module(self._name), name)


def lazy(name: str) -> Any:
    """The module of this name, loaded at its first use.

    >>> numbers = lazy("fractions")
    >>> numbers.Fraction(1, 2)
    Fraction(1, 2)
    """
    return _Module(name)


pa, pc, pq, arrow_csv = (
    lazy(name) for name in ("pyarrow", "pyarrow.compute", "pyarrow.parquet", "pyarrow.csv")
)
