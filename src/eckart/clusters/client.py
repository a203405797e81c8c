"""Which cluster: the one that was given, the running one, or threads of this process.

Seconds of work, wherever it is done: the processor time of this process, and the time for which
it waits for a cluster and does nothing itself.

Processor time alone would call a fit on a cluster free, and what else the machine does has no say
in it; of the workers' time only what was waited for counts.

What goes to the workers of a cluster and what comes back, counted while somebody asks for it:
the plan of a fit is made of it.

A plan is measured on a part of the rows: they go to the cluster where all of them would.
"""

from __future__ import annotations

import atexit
import math
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

from eckart.errors import EckartError, MissingError

_own: list[Any] = []


class ClusterError(EckartError, RuntimeError):
    """The cluster, not the data, ended the work; the message says what is known and what to do."""


def load_dask() -> Any:
    """``distributed``, or the line that installs it."""
    try:
        import dask.array  # noqa: F401  (distributed alone could be there without it)
        import distributed
    except ImportError:
        raise MissingError(
            "engine='dask' needs Dask, which is not installed; pip install 'eckart[dask]'"
        ) from None
    return distributed


def client_of(given: Any = None, threads: int | None = None) -> Any:
    """A connected client: the given one (or the address of a scheduler), else the running one, else
    one of our own with threads of this process."""
    distributed = load_dask()
    if isinstance(given, str):
        try:
            return distributed.Client(given, timeout="20s")
        except (OSError, TimeoutError) as error:
            raise ClusterError(
                f"no Dask scheduler answers at {given} ({error}); start one, or check the address"
            ) from None
    if given is not None:
        return given
    try:
        return distributed.default_client()
    except ValueError:
        pass
    if not _own or _own[0].status != "running":
        import dask

        # a dashboard nobody asked for would take a port; processes would need a guarded main module
        with dask.config.set({"distributed.worker.memory.terminate": False}):
            made = distributed.Client(
                processes=False,
                n_workers=1,
                threads_per_worker=threads or os.cpu_count() or 1,
                dashboard_address=":0",
                set_as_default=False,
                memory_limit=0,
            )
        _own[:] = [made]
        atexit.register(made.close)
    return _own[0]


def least_memory(client: Any) -> float:
    """Bytes that the smallest worker may use, or, where all have just died, could when somebody
    last asked; infinite where none has a limit."""
    limits = [
        worker["memory_limit"] for worker in client.scheduler_info(n_workers=-1)["workers"].values()
    ]
    if limits:
        _least[client.id] = float(min((limit for limit in limits if limit), default=float("inf")))
    return _least.get(client.id, float("inf"))


_least: dict[str, float] = {}
"""The last answer for each client."""


def cluster_memory(client: Any) -> float:
    """Bytes that all workers together may use; infinite where none has a limit."""
    limits = [
        worker["memory_limit"] for worker in client.scheduler_info(n_workers=-1)["workers"].values()
    ]
    return float(sum(limits)) if limits and all(limits) else float("inf")


_waited, _lock = [0.0], threading.Lock()


def spent() -> float:
    """Such seconds since this process began."""
    return time.process_time() + _waited[0]


@contextmanager
def waiting() -> Iterator[None]:
    """Around work that a cluster does. Workers may be threads of this process: what they work is
    counted by the processor already."""
    begin, own = time.monotonic(), time.process_time()
    try:
        yield
    finally:
        with _lock:
            _waited[0] += max(0.0, time.monotonic() - begin - (time.process_time() - own))


BLOCK_BYTES = 2**25
"""Bytes in a block of a matrix that is cut before it is sent: tenths of a second of work, little
beside the memory of a worker."""
FILE_BLOCK_BYTES = 2**28
"""The same for rows of a file, which no process holds: tasks of more than a tenth of a second,
beside which what the scheduler does for one is little."""
FILE_BLOCKS = 16
"""Blocks of a file at the least, as long as they are not smaller than those of a matrix in memory:
every worker of a small cluster has several."""
PLANNED_BLOCKS = 2
"""Blocks at the least of a part whose whole has several: sums and rows are joined as there."""


@dataclass
class Traffic:
    """Passes over the data; bytes through the network in all; the largest arguments that all blocks
    of a pass share; the largest answer with the rows it is made of; whether a matrix was one block,
    which stays in this process. The data are ``times`` as large as what is counted."""

    times: float = 1.0
    passes: int = 0
    moved: float = 0.0
    shared: float = 0.0
    held: float = 0.0
    stayed: bool = False

    def add(self, workers: int, shared: Any, own: Any, answer: Any) -> None:
        """One pass: shared arguments go to every worker, rows of arguments and answers travel
        once."""
        common, mine, back = bytes_of(shared), bytes_of(own), bytes_of(answer)
        self.passes += 1
        self.moved += common * workers + mine + back
        self.shared, self.held = max(self.shared, common), max(self.held, mine + back)


_counting: ContextVar[Traffic | None] = ContextVar("counting", default=None)


@contextmanager
def counted(times: float = 1.0) -> Iterator[Traffic]:
    """Count what this thread sends to clusters; the matrices it places are those of 1 / ``times``
    of the data."""
    traffic = Traffic(times)
    token = _counting.set(traffic)
    try:
        yield traffic
    finally:
        _counting.reset(token)


def block_bytes(stored: float, in_file: bool) -> float:
    """Bytes of a block of so many: a function of the data alone, so that the same data have the
    same blocks on every cluster.

    >>> [block_bytes(gigabytes * 2**30, in_file=True) / 2**20 for gigabytes in (0.25, 1, 20)]
    [32.0, 64.0, 256.0]
    """
    return min(max(stored / FILE_BLOCKS, BLOCK_BYTES), FILE_BLOCK_BYTES) if in_file else BLOCK_BYTES


def blocks_of(stored: float, in_file: bool = False) -> int:
    """Into how many blocks so many bytes are cut; one stays in the process that has it.

    >>> blocks_of(5_000 * 12), blocks_of(20e6 * 12)
    (1, 8)
    """
    most = block_bytes(stored, in_file)
    blocks, traffic = math.ceil(stored / most), counting()
    if traffic is None:
        return blocks
    if stored * traffic.times > most:
        return max(blocks, PLANNED_BLOCKS)
    traffic.stayed = True
    return 1


def counting() -> Traffic | None:
    """The count that is going on."""
    return _counting.get()


def bytes_of(value: Any) -> int:
    """Bytes of the arrays in a value: an array, or a list, tuple, dictionary or record of them.

    >>> bytes_of({"a": np.zeros(3), "b": [np.zeros(2, np.float32), None]})
    32
    """
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, dict):
        return sum(map(bytes_of, value.values()))
    if isinstance(value, (list, tuple)):
        return sum(map(bytes_of, value))
    return (
        bytes_of(vars(value)) if hasattr(value, "__dict__") and not isinstance(value, type) else 0
    )
