"""``engine="auto"`` on a machine with a GPU: the first matrix that is placed decides, by its size.

Moving data to a GPU and starting it there cost time that small work never earns back; on a machine
without a GPU this file is not used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from importlib.util import find_spec
from typing import Any

from eckart.matrix import Counts

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
