"""``engine="auto"`` on a machine with a GPU: the first matrix that is placed decides, by its size.

Moving data to a GPU and starting it there cost time that small work never earns back; on a machine without a GPU this file is not used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib.util import find_spec
from typing import Any

WORTH_DENSE, WORTH_STORED = 2**26, 2**22
"""Entries of dense rows, and stored entries of sparse ones, from which a GPU that runs already is asked: about a second of a CPU with 16 cores."""
START = 4
"""How much larger the work must be where CUDA has not been started in this process: that alone takes some seconds."""


def gpu_seen() -> bool:
    """Whether PyTorch is installed and sees a CUDA device; PyTorch is imported only where the machine seems to have one."""
    if find_spec("torch") is None:
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
    rows, n = matrix.shape
    entries, least = (stored, WORTH_STORED) if stored is not None else ((rows or 0) * n, WORTH_DENSE)
    least = least if started else START * least
    words = f"{entries:,} entries, {least:,} are worth the way to the GPU" + ("" if started else " and its start")
    return entries >= least, words


class Undecided:
    """Forwards to the engine that the first placed matrix asks for; before that, to the CPU engine."""

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
