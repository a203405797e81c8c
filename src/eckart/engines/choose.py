"""Which engine: ``"auto"`` by what the machine has, or by name. The one place where engines are
registered.

Another package adds an engine by an entry point of the group ``eckart.engines`` whose name is the
engine's and whose value is a class that takes ``n_threads`` and implements ``engines.protocol``.

``engine="auto"`` on a machine with a GPU: the first matrix that is placed decides, by its size.

Moving data to a GPU and starting it there cost time that small work never earns back; on a machine
without a GPU this file is not used.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache, partial
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from eckart.errors import invalid
from eckart.matrix import Counts

BUILT_IN = {
    "cpu": "eckart.engines.cpu.engine:CpuEngine",
    "numpy": "eckart.engines.numpy:NumpyEngine",
    "cuda": "eckart.engines.cuda:made",
    "torch": "eckart.engines.cuda:on_torch",
    "dask": "eckart.engines.dask.runner:DaskEngine",
}
"""Engines of this package, by name; loaded when they are asked for."""
AUTOMATIC = "eckart.engines.blocks.engine:BlocksEngine"
"""The processors of this machine for data in memory; for data in parts, wherever these are."""


class Choice(NamedTuple):
    """An engine and why it was taken."""

    engine: Any
    reason: str


def engine_names() -> list[str]:
    """All engines that can be asked for, those of other packages included.

    >>> engine_names()[:2]
    ['cpu', 'numpy']
    """
    return [*BUILT_IN, *sorted({point.name for point in _added()} - set(BUILT_IN))]


def choose(engine: Any = "auto", n_threads: int | None = None) -> Choice:
    """The engine of that name, with the reason for the plan of a fit; an engine itself is taken as
    it is.

    >>> choose("numpy").reason
    'asked for'
    """
    if not isinstance(engine, str):
        if not all(
            callable(getattr(engine, verb, None)) for verb in ("put", "at_work")
        ):  # NumPy's arrays have a ``put``, too
            raise invalid("engine", engine, _wanted())
        return Choice(engine, "asked for")
    if engine == "auto":
        if not gpu_seen():
            return _made(_load(AUTOMATIC)(n_threads), "auto: the processors of this machine")
        waiting = Undecided(
            *(partial(_load(place), n_threads) for place in (AUTOMATIC, BUILT_IN["cuda"]))
        )
        return Choice(waiting, waiting.reason)
    if engine in BUILT_IN:
        return _made(_load(BUILT_IN[engine])(n_threads), "asked for")
    for point in _added():
        if point.name == engine:
            return _made(point.load()(n_threads), "asked for")
    raise invalid("engine", engine, _wanted())


def engine_named(name: Any = "auto", n_threads: int | None = None) -> Any:
    """The engine alone."""
    return choose(name, n_threads).engine


def available_memory() -> float:
    """Bytes that this machine can allocate now; infinite where the system does not say."""
    try:
        return {"linux": _free_on_linux, "darwin": _free_on_macos, "win32": _free_on_windows}[
            sys.platform
        ]()
    except (KeyError, OSError, ValueError, AttributeError, IndexError, subprocess.SubprocessError):
        return float("inf")


def _free_on_linux() -> float:
    lines = Path("/proc/meminfo").read_text().splitlines()
    machine = next(
        float(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")
    )
    return min(machine, free_in_group())


def free_in_group(
    process: Path = Path("/proc/self/cgroup"), groups: Path = Path("/sys/fs/cgroup")
) -> float:
    """Bytes that the control group of this process (a container, a service, a job) may still take,
    the groups above it counted in; infinite without one.

    Pages of files do not count: they are given away when memory is wanted, also those that were
    read more than once, as shards of the disk are in every pass."""
    free = float("inf")
    for line in process.read_text().splitlines() if process.exists() else ():
        _, kinds, own = line.split(":", 2)
        if kinds == "":  # version 2
            top, names = groups, ("memory.max", "memory.current", ("inactive_file", "active_file"))
        elif "memory" in kinds.split(","):
            top, names = (
                groups / "memory",
                (
                    "memory.limit_in_bytes",
                    "memory.usage_in_bytes",
                    ("total_inactive_file", "total_active_file"),
                ),
            )
        else:
            continue
        inside = top / own.lstrip("/")
        # in a container the own group may be mounted as the top
        for group in (inside, *inside.parents):
            if not group.is_relative_to(top):
                break
            with contextlib.suppress(OSError, ValueError):  # "max": no limit
                most, used = (float((group / name).read_text()) for name in names[:2])
                stat = (row.split() for row in (group / "memory.stat").read_text().splitlines())
                files = sum(float(row[1]) for row in stat if row[0] in names[2])
                free = min(free, max(most - used + files, 0.0))
    return free


def _free_on_macos() -> float:
    """Pages that are free or that the system gives away when they are wanted, as vm_stat counts
    them."""
    said = subprocess.run(
        ["/usr/bin/vm_stat"], capture_output=True, text=True, timeout=5, check=True
    ).stdout
    page = int(said.partition("page size of ")[2].split()[0])
    counts = dict(line.split(":", 1) for line in said.splitlines()[1:] if ":" in line)
    return float(page) * sum(
        int(counts[f"Pages {kind}"].strip(" ."))
        for kind in ("free", "inactive", "speculative", "purgeable")
    )


def _free_on_windows() -> float:
    import ctypes

    class Status(ctypes.Structure):
        """MEMORYSTATUSEX: two numbers of 32 bits, seven of 64."""

        _fields_ = (
            ("length", ctypes.c_ulong),
            ("load", ctypes.c_ulong),
            ("total", ctypes.c_ulonglong),
            ("free", ctypes.c_ulonglong),
            ("more", ctypes.c_ulonglong * 5),
        )

    status = Status(length=ctypes.sizeof(Status))
    kernel: Any = ctypes.WinDLL("kernel32")  # type: ignore[attr-defined, unused-ignore]
    if not kernel.GlobalMemoryStatusEx(ctypes.byref(status)):
        raise OSError("the size of the memory is not known")
    return float(status.free)


def _made(engine: Any, reason: str) -> Choice:
    """The engine remembers why it was taken: ``fit.plan_of`` puts it into the plan of every fit."""
    engine.reason = reason
    return Choice(engine, reason)


def _wanted() -> str:
    return ", ".join(repr(name) for name in ["auto", *engine_names()]) + " or an engine"


def _load(place: str) -> Callable[..., Any]:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def _added() -> Any:
    return entry_points(group="eckart.engines")


WORTH_DENSE = 2**26
"""Entries of dense rows from which a GPU that runs already is asked: PCA of so many takes a third
of the time of 16 cores on an H200."""
WORTH_COUNTS = 2**20
"""The same for stored entries whose absent ones are zeros: LDA of 1.6 million takes a third of the
time of 16 cores, PCA of 24 million half of it. Observed entries stay on the processors: large
tables are faster on a GPU under ALS and the nuclear family, small ones are not, and a matrix does
not say who asks."""
START = 4
"""How much larger the work must be where CUDA has not been started in this process: that alone
takes some seconds."""


@cache
def gpu_seen() -> bool:
    """Whether PyTorch is installed and sees a CUDA device; PyTorch is imported only where the
    machine seems to have one."""
    try:
        if find_spec("torch") is None:
            return False
    except (ImportError, ValueError):  # it cannot be looked for
        return False
    if "torch" not in sys.modules and not (os.path.exists("/dev/nvidiactl") or os.name == "nt"):
        return False
    import torch

    return bool(torch.cuda.is_available())


def worth_moving(matrix: Any, started: bool) -> tuple[bool, str]:
    """Whether a GPU is worth the way for this matrix, and why."""
    if getattr(getattr(matrix, "values", None), "tensor", None) is not None:
        return True, "the rows lie on the GPU already"
    stored = getattr(matrix, "nnz", None)
    if stored is not None and not isinstance(matrix, Counts):
        return False, "observed entries; engine='cuda' asks for the GPU, which pays for ALS"
    rows, n = matrix.shape
    entries, worth = ((rows or 0) * n, WORTH_DENSE) if stored is None else (stored, WORTH_COUNTS)
    least = worth if started else START * worth
    words = f"{entries:,} entries, {least:,} are worth the way to the GPU" + (
        "" if started else " and its start"
    )
    return entries >= least, words


class Undecided:
    """Forwards to the engine that the first placed matrix asks for; before that, to the CPU
    engine."""

    def __init__(self, cpu: Callable[[], Any], cuda: Callable[[], Any]):
        self._cpu, self._cuda = cpu(), cuda
        self._chosen: Any = None
        self._reason = "auto: the processors of this machine"

    def put(self, matrix: Any, weights: Any = None, entry_weights: Any = None) -> Any:
        if self._chosen is None:
            import torch

            worth, words = worth_moving(matrix, torch.cuda.is_initialized())
            self._chosen = self._cuda() if worth else self._cpu
            self._reason = f"auto: {'the GPU' if worth else 'the processors'} ({words})"
        return self._chosen.put(matrix, weights, entry_weights)

    @property
    def reason(self) -> str:
        return getattr(self._chosen, "reason", None) or self._reason

    @reason.setter
    def reason(self, words: str) -> None:
        """Its own reason is known once a matrix has come."""

    def at_work(self) -> AbstractContextManager[None]:
        return self._cpu.at_work()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._chosen or self._cpu, name)
