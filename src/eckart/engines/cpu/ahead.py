"""A first fit compiles its kernels one after the other, and each waits for the last. Here other processes compile those that will be asked for later, the last
first, so that they are in numba's cache when their turn comes.

Which kernels a model asks for, and with arguments of which types, was recorded from first fits of small data (``tests/first_kernels.py`` writes
``ahead.json`` anew). A fit that asks for others compiles them as if there were no such list; what is compiled twice is the same code.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from numba.core import event, types
from numba.core.caching import NullCache

LIST = Path(__file__).with_name("ahead.json")
MOST = 3
"""Processes beside this one: a model has 5 to 12 kernels, and the longest of them is a third of the work."""
WORTH = 2
"""Kernels that must be left: a process needs about as long to start as one kernel takes to compile."""
SWITCH = "ECKART_COMPILERS"
"""The environment's word on how many processes may help; 0 for none."""

Kernel = tuple[str, Any]
"""``module:name`` and the spelled types of the arguments."""


def spelled(kind: types.Type) -> Any:
    """A type of numba in words and lists of them; ValueError for one that no kernel of a first fit takes.

    >>> spelled(types.Array(types.float64, 2, "C"))
    ['array', 'float64', 2, 'C', True]
    """
    if isinstance(kind, types.Array):
        return ["array", spelled(kind.dtype), kind.ndim, kind.layout, kind.mutable]
    if isinstance(kind, types.NamedTuple):
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
        return types.NamedTuple(tuple(map(unspelled, fields)), getattr(import_module(module), name))
    return types.Tuple(tuple(map(unspelled, rest[0])))


def dispatcher_of(place: str) -> Any:
    """The kernel at ``module:name``."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


@cache
def recorded() -> dict[str, list[list[Kernel]]]:
    """For every model the kernels of its first fits in their order; a model has several lists, by the kind of its data."""
    content = json.loads(LIST.read_text())
    kernels = [(place, args) for place, args in content["kernels"]]
    return {model: [[kernels[i] for i in order] for order in orders] for model, orders in content["models"].items()}


class _Listener(event.Listener):  # type: ignore[misc]
    """Hears of the first kernel that a model has compiled and sends the others ahead."""

    def __init__(self) -> None:
        self.model, self.sent, self.lock = "", set[tuple[str, int]](), threading.Lock()

    def on_start(self, event: Any) -> None:
        model = self.model
        if model and _helpers() and (name := name_of(event.data)) is not None:
            with self.lock:
                orders = recorded().get(model, [])
                found = [at for at, order in enumerate(orders) if name in order]
                if found and not any((model, at) in self.sent for at in found):
                    self.sent.add((model, found[0]))
                    _send(model, found[0], orders[found[0]].index(name) + 1, len(orders[found[0]]))

    def on_end(self, event: Any) -> None:
        pass


_listener: _Listener | None = None


def expect(model: str) -> None:
    """A fit of this model begins."""
    global _listener
    if _listener is None:
        _listener = _Listener()
        event.register("numba:compile", _listener)
    _listener.model = model


def name_of(data: dict[str, Any]) -> Kernel | None:
    """How the list calls a kernel that is being compiled; None for one that the cache does not keep or that has no place of its own in a module."""
    kernel = data["dispatcher"]
    place = f"{kernel.py_func.__module__}:{kernel.py_func.__name__}"
    try:
        if isinstance(kernel._cache, NullCache) or dispatcher_of(place) is not kernel:
            return None
        return place, [spelled(t) for t in data["args"]]
    except (AttributeError, ValueError):
        return None


def _helpers() -> int:
    """How many processes may help: those of other cores, none where this program is not Python's own."""
    if not Path(sys.executable or "").name.startswith("python"):
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    asked = os.environ.get(SWITCH, "")
    return min(cores - 1, int(asked) if asked.isdigit() else MOST)


def _send(model: str, at: int, first: int, count: int) -> None:
    helpers = min(_helpers(), (count - first) // WORTH)
    home = str(Path(__file__).parents[3])
    code = f"import sys; sys.path.append({home!r}); from eckart.engines.cpu.ahead import compile_share; compile_share({model!r}, {at}, {first}, %d, {helpers})"
    for share in range(helpers):
        try:
            # a session of its own: an interrupt of the fit does not end what the next fit needs, too
            subprocess.Popen(
                [sys.executable, "-P", "-W", "ignore", "-c", code % share],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env=os.environ | {SWITCH: "0"},
            )
        except OSError:
            return  # no room for a process: this one compiles all by itself


def compile_share(model: str, at: int, first: int, share: int, shares: int) -> None:
    """The work of one process: every ``shares``-th kernel from the end of a list down to ``first``, as long as the process that asked is there."""
    asked_by = os.getppid()
    for place, args in recorded()[model][at][first:][::-1][share::shares]:
        if os.getppid() != asked_by:
            return
        dispatcher_of(place).compile(tuple(map(unspelled, args)))
