"""What goes to the workers of a cluster and what comes back, counted while somebody asks for it:
the plan of a fit is made of it.

A plan is measured on a part of the rows: they go to the cluster where all of them would.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

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
