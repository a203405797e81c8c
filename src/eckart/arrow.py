"""PyArrow, loaded when something of it is first used: arrays and fits do without, and loading it takes longer than fitting a small table."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class _Part:
    """Stands for a module until an attribute of it is asked for."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what others ask of any object is no use of it
            raise AttributeError(name)
        return getattr(import_module(self._name), name)


pa: Any = _Part("pyarrow")
pc: Any = _Part("pyarrow.compute")
pq: Any = _Part("pyarrow.parquet")
arrow_csv: Any = _Part("pyarrow.csv")
