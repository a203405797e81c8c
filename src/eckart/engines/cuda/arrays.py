"""Arrays of a device: copies on the host, and products whose precision is said.

No float atomics anywhere in this engine: sums run over padded buckets, sorted segments or whole
axes, so that the same device gives the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import ref

import numpy as np
import torch

from eckart.engines.cuda.device_array import NUMPY, TORCH, DeviceArray, Turned


class Twins:
    """Arrays of the host that were copied from the device, which need not go back: each is known by
    itself while it lives, and cannot be written to."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, torch.Tensor]] = {}

    def copy(self, tensor: torch.Tensor) -> np.ndarray:
        host = fetched(tensor) if tensor.is_cuda else tensor.numpy().copy()
        host.flags.writeable = False
        key = id(host)
        self._known[key] = (ref(host, lambda _: self._known.pop(key, None)), tensor)
        return host

    def find(self, array: Any) -> torch.Tensor | None:
        held = self._known.get(id(array))
        return held[1] if held is not None and held[0]() is array else None


LOCKED = 2**20, 2**25
"""Bytes of an array that is copied to the host through locked memory: the device writes there
thirty times as fast, and PyTorch keeps it for the next copy. Smaller ones gain nothing; larger
ones, which stay with a model, take longer to lock than to copy, and go through a locked buffer of
the larger size."""


def on_host(array: Any) -> np.ndarray:
    """Any array of the engine, or the transpose of one, as one of NumPy."""
    if isinstance(array, Turned):
        return fetched(array.array.tensor.detach().T.contiguous())
    return fetched(array.tensor.detach()) if isinstance(array, DeviceArray) else np.asarray(array)


def fetched(tensor: torch.Tensor) -> np.ndarray:
    """A copy on the host. Large ones go piece by piece: PyTorch then touches the new memory on many
    threads, which takes a single one longer than the copy."""
    size = tensor.numel() * tensor.element_size()
    if not tensor.is_cuda or size < LOCKED[0]:
        return tensor.cpu().numpy()
    if size <= LOCKED[1]:
        return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor).numpy()
    host, step = (
        np.empty(tuple(tensor.shape), NUMPY[tensor.dtype]),
        LOCKED[1] // tensor.element_size(),
    )
    flat, there = torch.from_numpy(host).view(-1), tensor.reshape(-1)
    buffer = torch.empty(step, dtype=tensor.dtype, pin_memory=True)
    for a in range(0, len(flat), step):
        part = there[a : a + step]
        flat[a : a + step] = buffer[: len(part)].copy_(part)
    return host


def all_fetched(*tensors: torch.Tensor) -> list[np.ndarray]:
    """Small tensors in float64 on the host, by one copy: each would wait for the device by
    itself."""
    flat = torch.cat([each.reshape(-1).double() for each in tensors]).cpu().numpy()
    ends = np.cumsum([each.numel() for each in tensors])[:-1]
    return [part.reshape(each.shape) for part, each in zip(np.split(flat, ends), tensors)]


class Promised:
    """A number that the device has yet to make. The numbers of one tensor come to the host
    together, when the first of them is asked for, and the host goes on until then."""

    def __init__(self, source: list[Any], at: int):
        self._source, self._at = source, at

    def __float__(self) -> float:
        if isinstance(self._source[0], torch.Tensor):
            self._source[:] = self._source[0].tolist()
        return self._source[self._at]

    def __add__(self, other: Any) -> float:
        return float(self) + float(other)

    __radd__ = __add__

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(float(self), dtype)


def promised(numbers: torch.Tensor) -> list[Any]:
    """The numbers of a vector, as floats that are fetched when one of them is asked for."""
    source = [numbers]
    return [Promised(source, at) for at in range(len(numbers))]


def torch_dtype(dtype: Any) -> torch.dtype:
    return TORCH[np.dtype(dtype)]


@contextmanager
def rounding(precision: str) -> Iterator[None]:
    """Products in float32 with factors of 24 bits ("highest") or 11 bits (TF32, "high") inside the
    block; the setting of the user comes back."""
    before = torch.get_float32_matmul_precision()
    if before == precision:
        yield
        return
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


TF32_ROWS = 4096
"""Rows of a product in TF32: its sums are in float32 and lose a bit for about every four-fold
number of terms; the sum over blocks is in float64."""
WORTH_SPLITTING = 512
"""Columns from which the square of rows costs more than reading them, so that two products in TF32
beat one in float64."""


def add_square(total: torch.Tensor, rows: torch.Tensor) -> None:
    """total += A^T A, in float64, with the precision of products in float32 or better.

    Float32 rows with many columns go by ``add_split_square`` on a GPU. Elsewhere the product is
    made in float64, which costs no more than float32 on data-centre GPUs.
    """
    if rows.is_cuda and rows.dtype == torch.float32 and rows.shape[1] >= WORTH_SPLITTING:
        add_split_square(total, rows)
    else:
        wide = rows.double()
        total.addmm_(wide.T, wide)


def add_split_square(total: torch.Tensor, rows: torch.Tensor) -> None:
    """The same for float32 rows on tensor cores: A = H + L, H with the 11 leading bits of each
    entry, and H^T H + H^T L + (H^T L)^T.

    Tensor cores multiply factors of 11 bits exactly, so what is lost is L^T L and the bits of L
    beyond its own 11: both 2^-22 of the product.
    """
    with rounding("high"):
        for a in range(0, len(rows), TF32_ROWS):
            part = rows[a : a + TF32_ROWS].contiguous()
            high = leading(part)
            cross = high.T @ (part - high)
            whole = high.T @ high
            whole += cross
            whole += cross.T
            total += whole


def leading(a: torch.Tensor) -> torch.Tensor:
    """The 11 leading bits of contiguous float32 numbers, rounded."""
    return ((a.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def squares(rows: torch.Tensor, across: bool = False) -> torch.Tensor:
    """R^T R of every matrix of a batch (``across``: R R^T); in float32 on a GPU from two products
    on tensor cores, as in ``add_split_square``."""
    if not (rows.is_cuda and rows.dtype == torch.float32):
        return torch.bmm(rows, rows.mT) if across else torch.bmm(rows.mT, rows)
    rows = rows.contiguous()
    high = leading(rows)
    left, right = (high, (rows - high).mT) if across else (high.mT, rows - high)
    with rounding("high"):
        cross, whole = torch.bmm(left, right), torch.bmm(left, high.mT if across else high)
    whole += cross
    whole += cross.mT
    return whole
