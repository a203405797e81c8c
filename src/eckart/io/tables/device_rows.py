"""Rows that lie on a GPU: a CUDA tensor of PyTorch, an array of CuPy or of any library that shares
memory with it. Nothing is copied through the host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from eckart.errors import InputError
from eckart.matrix import wrong_ndim

CUDA = 2
"""The number of CUDA devices in DLPack."""


def on_device(source: Any) -> bool:
    """Whether an object says that its memory is that of a CUDA device."""
    if hasattr(source, "__cuda_array_interface__"):
        return True
    where = getattr(source, "__dlpack_device__", None)
    try:
        return where is not None and int(where()[0]) == CUDA
    except (RuntimeError, TypeError, ValueError, BufferError):
        return False


class DeviceRows:
    """A dense matrix on a device as row blocks: the CUDA engine takes ``tensor`` as it is, every
    other engine reads blocks of it."""

    columns = None
    rereadable = True
    at_hand = True
    """Passes over the rows cost no reading: solvers are chosen as for rows in memory."""

    def __init__(self, tensor: Any, source: Any = None):
        if tensor.ndim != 2:
            raise wrong_ndim(tensor.ndim)
        if tensor.is_complex():
            raise InputError(
                "Complex data not supported: X must hold real numbers, got complex ones"
            )
        self.tensor, self._source = tensor.detach(), tensor if source is None else source

    @classmethod
    def of(cls, source: Any) -> DeviceRows:
        try:
            import torch
        except ModuleNotFoundError:
            raise InputError(
                "X lies on a GPU, which needs PyTorch; install it with: pip install 'eckart[torch]'"
            ) from None
        if isinstance(source, torch.Tensor):
            return cls(source)
        shared = (
            torch.from_dlpack(source)
            if hasattr(source, "__dlpack__")
            else torch.as_tensor(source, device="cuda")
        )
        return cls(shared, source)

    @property
    def shape(self) -> tuple[int, int]:
        return tuple(self.tensor.shape)

    @property
    def dtype(self) -> np.dtype:
        """float32 for floating numbers of at most 32 bits, else float64."""
        return np.dtype(
            np.float32
            if self.tensor.is_floating_point() and self.tensor.element_size() <= 4
            else np.float64
        )

    def blocks(self, rows: int) -> Iterator[np.ndarray]:
        for a in range(0, len(self.tensor), rows):
            yield self.tensor[a : a + rows].cpu().double().numpy().astype(self.dtype, copy=False)

    def like(self, array: Any) -> Any:
        """An array of the host or of an engine as what came: a tensor on the same device, or an
        array of the library that shares memory with it. One that an engine made on a device does
        not pass through the host."""
        import torch

        tensor = getattr(array, "tensor", None)
        there = (torch.from_numpy(np.ascontiguousarray(array)) if tensor is None else tensor).to(
            self.tensor.device
        )
        made = getattr(
            __import__(type(self._source).__module__.partition(".")[0]), "from_dlpack", None
        )
        return there if isinstance(self._source, torch.Tensor) or made is None else made(there)


def rows_there(source: Any) -> DeviceRows | None:
    """Rows, or a matrix of them, that lie on a device; None for all others."""
    if on_device(source):
        return DeviceRows.of(source)
    rows = getattr(source, "values", None)
    return rows if isinstance(rows, DeviceRows) else None


def same_kind(source: Any, found: Any) -> Any:
    """An answer for each row, where the rows are: on the device that ``source`` (rows, or a matrix
    of them) lies on, else as it is."""
    rows = rows_there(source)
    return found if rows is None else rows.like(found)
