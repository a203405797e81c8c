"""Kernels and the types of their arguments in words, so that another process knows which is
meant."""

from __future__ import annotations

import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any

from numba.core import event, types
from numba.core.caching import NullCache

from eckart.engines.cpu.ahead import Kernel


def spelled(kind: types.Type) -> Any:
    """A type of numba in words and lists of them; ValueError for one that no kernel of a first fit
    takes.

    >>> spelled(types.Array(types.float64, 2, "C"))
    ['array', 'float64', 2, 'C', True]
    """
    if isinstance(kind, types.Array):
        return ["array", spelled(kind.dtype), kind.ndim, kind.layout, kind.mutable]
    if isinstance(kind, (types.NamedTuple, types.NamedUniTuple)):  # the second: fields of one type
        made = kind.instance_class
        return ["record", made.__module__, made.__qualname__, [spelled(t) for t in kind.types]]
    if isinstance(kind, (types.Tuple, types.UniTuple)):
        return ["tuple", [spelled(t) for t in kind.types]]
    if isinstance(kind, (types.Number, types.Boolean, types.NoneType)):
        return str(kind)
    raise ValueError(f"a kernel takes {kind}, which cannot be spelled")


def unspelled(words: Any) -> types.Type:
    """The type that ``spelled`` wrote."""
    if isinstance(words, str):
        return getattr(types, words)
    head, *rest = words
    if head == "array":
        dtype, ndim, layout, mutable = rest
        return types.Array(unspelled(dtype), ndim, layout, readonly=not mutable)
    if head == "record":
        module, name, fields = rest
        return types.BaseTuple.from_types(
            tuple(map(unspelled, fields)), getattr(import_module(module), name)
        )
    return types.Tuple(tuple(map(unspelled, rest[0])))


def dispatcher_of(place: str) -> Any:
    """The kernel at ``module:name``."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def name_of(data: dict[str, Any]) -> Kernel | None:
    """How the list calls a kernel that is being compiled; None for one that the cache does not keep
    or that has no place of its own in a module."""
    kernel = data["dispatcher"]
    place = f"{kernel.py_func.__module__}:{kernel.py_func.__name__}"
    try:
        if isinstance(kernel._cache, NullCache) or dispatcher_of(place) is not kernel:
            return None
        return place, [spelled(t) for t in data["args"]]
    except (AttributeError, ValueError):
        return None


class _Listener(event.Listener):  # type: ignore[misc]
    """Hears of the kernels that a fit has compiled and tells ``send``, until that has sent others
    ahead for the model."""

    def __init__(self, send: Callable[[str, Kernel], bool]) -> None:
        self.model, self.sent, self.lock, self.send = "", set[str](), threading.Lock(), send

    def on_start(self, event: Any) -> None:
        with self.lock:
            model = self.model
            if (
                model not in self.sent
                and (name := name_of(event.data)) is not None
                and self.send(model, name)
            ):
                self.sent.add(model)

    def on_end(self, event: Any) -> None:
        pass


_listener: _Listener | None = None


def listen(model: str, send: Callable[[str, Kernel], bool]) -> None:
    """From now on kernels are compiled for this model."""
    global _listener
    if _listener is None:
        _listener = _Listener(send)
        event.register("numba:compile", _listener)
    _listener.model = model
