"""An engine for tests: the oracle behind a wall. Tall arrays come out as handles, and every byte
through the doors is counted.

A handle knows ``shape`` and ``dtype``, gives slices of columns and goes back into primitives; any
arithmetic on it fails, as it would on arrays of another device. A tall array of the host that
reaches a primitive without ``take`` fails as well. ``between(name)`` says how much crossed between
the sweeps of a fit.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from eckart.engines.host import Host
from eckart.matrix import Counts, Dense, Observed
from oracle import OracleEngine

DOORS = ("put", "take", "get")


class Handle:
    """An array of the engine, out of reach."""

    __array_ufunc__ = None  # so that NumPy's operators refuse it too

    def __init__(self, array: np.ndarray):
        self._array = array

    @property
    def shape(self) -> tuple[int, ...]:
        return self._array.shape

    @property
    def dtype(self) -> np.dtype:
        return self._array.dtype

    def __getitem__(self, at: Any) -> Handle:
        if not (
            isinstance(at, tuple)
            and len(at) == 2
            and at[0] == slice(None)
            and isinstance(at[1], slice)
        ):
            raise TypeError(
                f"[{at!r}] came, wanted a slice of columns: a tall array belongs to the engine"
            )
        return Handle(self._array[at])

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise TypeError(
            "a tall array belongs to the engine; ask for it with engine.get at the end of the fit"
        )

    def __repr__(self) -> str:
        return f"Handle({self.shape}, {self.dtype})"


class HiddenMatrix:
    """A placed matrix that shows what ``protocol.Placed`` allows."""

    SHOWN = (
        "kind",
        "rows",
        "columns",
        "shape",
        "dtype",
        "nnz",
        "counts",
        "column_counts",
        "weighted",
    )

    def __init__(self, host: Host):
        self._host = host

    def __getattr__(self, name: str) -> Any:
        if name not in self.SHOWN:
            raise AttributeError(
                f"a chapter asked a placed matrix for {name!r}, which only its engine may know"
            )
        return getattr(self._host, name)

    @property
    def T(self) -> HiddenMatrix:
        return HiddenMatrix(self._host.T)


class OpaqueEngine:
    """``tall`` holds the sizes (N, m, z) whose arrays stay inside; ``strict`` refuses host arrays
    of these sizes at every primitive."""

    name = "opaque"

    def __init__(self, *tall: int, strict: bool = True, inner: Any = None):
        self.tall, self.strict, self.inner_engine = set(tall), strict, inner or OracleEngine()
        self.log: list[tuple[str, int]] = []

    def __getattr__(self, name: str) -> Any:
        do = getattr(self.inner_engine, name)
        if not callable(do):
            return do

        def call(*args: Any, **named: Any) -> Any:
            self.log.append((name, 0))
            args, named = self._inside(args, name), self._inside(named, name)
            return self._outside(do(*args, **named))

        return call

    def together(self, x: Any, works: list[Any]) -> list[Any]:
        """Each piece of work has this engine, through which it asks for all that is tall."""
        self.log.append(("together", 0))
        return [work(self) for work in works]

    def put(self, *args: Any, **named: Any) -> HiddenMatrix:
        self.log.append(("put", 0))
        return HiddenMatrix(
            self.inner_engine.put(*self._inside(args, "put"), **self._inside(named, "put"))
        )

    def take(self, array: Any, dtype: Any = None) -> Any:
        """An array of the host, or one of the engine in another precision."""
        self.log.append(("take", np.asarray(array).nbytes if self._is_tall(array) else 0))
        return self._outside(self.inner_engine.take(self._inside(array, "take"), dtype))

    def get(self, array: Any) -> np.ndarray:
        inside = array._array if isinstance(array, Handle) else np.asarray(array)
        self.log.append(("get", inside.nbytes if isinstance(array, Handle) else 0))
        return self.inner_engine.get(inside)

    def calls(self, name: str) -> int:
        return sum(each == name for each, _ in self.log)

    def between(self, name: str) -> int:
        """Bytes through ``take`` and ``get`` between the first and the last call of a primitive."""
        at = [i for i, (each, _) in enumerate(self.log) if each == name]
        assert len(at) >= 2, f"{name} was called {len(at)} times, wanted two sweeps at least"
        return sum(size for _, size in self.log[at[0] : at[-1]])

    def _is_tall(self, array: Any) -> bool:
        return isinstance(array, np.ndarray) and array.ndim > 0 and array.shape[0] in self.tall

    def _inside(self, value: Any, name: str) -> Any:
        if isinstance(value, Handle):
            return value._array
        if isinstance(value, HiddenMatrix):
            return value._host
        if isinstance(value, (Dense, Counts, Observed)):
            if self.strict and name not in DOORS:
                raise TypeError(f"{name} was given a matrix that did not come through engine.put")
            return value
        if self._is_tall(value) and self.strict and name not in DOORS:
            raise TypeError(
                f"{name} was given a host array of shape {value.shape}; tall arrays "
                "come in by engine.take"
            )
        return _rebuilt(value, lambda each: self._inside(each, name))

    def _outside(self, value: Any) -> Any:
        if self._is_tall(value):
            return Handle(value)
        return value if isinstance(value, Host) else _rebuilt(value, self._outside)


def _rebuilt(value: Any, do: Any) -> Any:
    """Records, tuples, lists and dictionaries with ``do`` of what they hold; anything else as it
    is."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(do, value))
    if isinstance(value, (tuple, list)):
        return type(value)(map(do, value))
    if isinstance(value, dict):
        return {name: do(each) for name, each in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        held = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
        changed = {name: do(each) for name, each in held.items()}
        if any(
            changed[name] is not held[name] and not isinstance(held[name], (dict, list, tuple))
            for name in held
        ):
            return dataclasses.replace(value, **changed)
    return value
