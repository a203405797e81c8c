"""Modules that are loaded when something of them is first used: numba, PyTorch and PyArrow take
longer to load than many a fit takes that does without them.

Heavy packages that are loaded when something of them is asked for, in processes that belong to
eckart: the shell and the workers of the service.

scikit-learn imports ``scipy.stats`` and pandas at its head, and asks them nothing before someone
passes a frame: together they are half of the time until a command of the shell does its work. A
process that a user owns is left as it is; ``import eckart`` never calls ``delay``.
"""

from __future__ import annotations

import importlib
import sys
import threading
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
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


HEAVY = ("numpy.f2py", "scipy.stats", "pandas")
"""What other packages import without asking anything of it at that moment."""
_taking_turns = threading.Lock()


class Delayed(ModuleType):
    """Stands for a package until an attribute of it is asked for. (The ``LazyLoader`` of the
    standard library loads at the second import.)"""

    def __getattr__(self, name: str) -> Any:
        """Called for what is not there, which is all but the name and the spec: load the package
        and answer by it."""
        if not self.__dict__.get("stands"):  # the import that makes the stand-in looks at it, too
            raise AttributeError(name)
        return getattr(_load(self), name)


class DelayedFinder:
    """Answers the first import of a heavy package by a stand-in, and an import of a part of it by
    the part of the real one."""

    def __init__(self, names: tuple[str, ...]):
        self.waiting, self.below = set(names), tuple(f"{name}." for name in names)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name in self.waiting:
            self.waiting.discard(name)
            others = (finder for finder in sys.meta_path if finder is not self)
            installed = any(finder.find_spec(name, path, target) is not None for finder in others)
            return ModuleSpec(name, _StandIn()) if installed else None  # type: ignore[arg-type]
        if not name.startswith(self.below):
            return None
        above = sys.modules.get(name.rpartition(".")[0])
        if isinstance(above, Delayed):
            _load(above)
        held = sys.modules.get(name)  # loading the whole has loaded this part
        return None if held is None else ModuleSpec(name, _Held(held))  # type: ignore[arg-type]


class _StandIn:
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return Delayed(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["stands"] = True


class _Held:
    """Gives out a module that is loaded, and leaves it as it was."""

    def __init__(self, module: ModuleType):
        self.module, self.spec = module, module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec


def _load(stand_in: Delayed) -> ModuleType:
    with _taking_turns:  # not around the import, which has a lock of its own
        if sys.modules.get(stand_in.__name__) is stand_in:
            del sys.modules[stand_in.__name__]
    return importlib.import_module(stand_in.__name__)


def delay(names: tuple[str, ...] = HEAVY) -> None:
    """Let ``import name`` cost nothing until the package is used. Packages that are loaded already
    are left alone."""
    if not any(isinstance(finder, DelayedFinder) for finder in sys.meta_path):
        sys.meta_path.insert(
            0, DelayedFinder(tuple(name for name in names if name not in sys.modules))
        )  # type: ignore[arg-type]
