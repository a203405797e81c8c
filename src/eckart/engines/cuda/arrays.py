"""Arrays of a device: copies on the host, and products whose precision is said.

No float atomics anywhere in this engine: sums run over padded buckets, sorted segments or whole
axes, so that the same device gives the same bits.

The handle of an array on a device that chapters see. It adds, scales, joins and reduces by
NumPy's own names, on the device; what it has no answer for is done on the host, with a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import ref

import numpy as np
import torch

from eckart.engines.host import ArrayOperators


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


NUMPY: dict[torch.dtype, np.dtype] = {
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
    torch.int64: np.dtype(np.int64),
}
TORCH = {dtype: key for key, dtype in NUMPY.items()}

ELEMENTWISE: dict[Any, Callable[..., torch.Tensor]] = {
    np.add: torch.add,
    np.subtract: torch.subtract,
    np.multiply: torch.multiply,
    np.true_divide: torch.true_divide,
    np.negative: torch.negative,
    np.square: torch.square,
    np.sqrt: torch.sqrt,
}


class DeviceArray(ArrayOperators):
    """``shape``, NumPy's ``dtype``, some of the columns; ``a.T @ b`` of two of them is small and on
    the host, ``a @ s`` with a small s of the host is not."""

    def __init__(self, tensor: torch.Tensor):
        self.tensor = tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    @property
    def dtype(self) -> np.dtype:
        return NUMPY[self.tensor.dtype]

    size = property(lambda self: self.tensor.numel())
    ndim = property(lambda self: self.tensor.ndim)

    @property
    def T(self) -> Turned:
        return Turned(self)

    def __len__(self) -> int:
        return len(self.tensor)

    def __getitem__(self, at: Any) -> DeviceArray:
        if isinstance(at, tuple) and len(at) == 2 and at[0] == slice(None):
            if isinstance(at[1], slice):
                return DeviceArray(self.tensor[at])
            # some of the columns, by number or by a yes for each
            if isinstance(at[1], np.ndarray) and at[1].ndim == 1:
                chosen = np.flatnonzero(at[1]) if at[1].dtype == bool else at[1]
                return DeviceArray(
                    self.tensor[:, torch.from_numpy(chosen.astype(np.int64)).to(self.tensor.device)]
                )
        raise TypeError(
            f"only columns of a tall array can be chosen, got [{at!r}]: it belongs to the engine"
        )

    def __setitem__(self, at: Any, columns: Any) -> None:
        """Columns of another array of the engine, or of the host."""
        self[at].tensor.copy_(
            columns.tensor
            if isinstance(columns, DeviceArray)
            else torch.from_numpy(np.array(columns))
        )

    def copy(self) -> DeviceArray:
        return DeviceArray(self.tensor.clone())

    def astype(self, dtype: Any, copy: bool = True) -> DeviceArray:
        return DeviceArray(self.tensor.to(TORCH[np.dtype(dtype)], copy=copy))

    def sum(self, axis: int | None = None) -> Any:
        """A number, or one for each column, in float64."""
        found = (
            self.tensor.sum(dtype=torch.float64)
            if axis is None
            else self.tensor.sum(axis, dtype=torch.float64)
        )
        return float(found) if axis is None else found.cpu().numpy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        found = self.tensor.detach().cpu().numpy()
        return found if dtype is None else found.astype(dtype, copy=False)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **named: Any) -> Any:
        do = ELEMENTWISE.get(ufunc)
        if do is None or method != "__call__" or named:
            return getattr(ufunc, method)(
                *(np.asarray(a) if isinstance(a, DeviceArray) else a for a in inputs), **named
            )
        return DeviceArray(do(*(self._on_same_device(a) for a in inputs)))

    def __array_function__(self, function: Any, _: Any, args: Any, named: Any) -> Any:
        do = FUNCTIONS.get(function)
        if do is None:
            return function(*_host(args), **_host(named))
        return do(*args, **named)

    def _on_same_device(self, other: Any) -> Any:
        """An operand where this array is: numbers as they are."""
        if isinstance(other, DeviceArray):
            return other.tensor
        if np.ndim(other) == 0:
            return float(other)
        return torch.from_numpy(np.ascontiguousarray(other)).to(self.tensor.device)

    def __matmul__(self, small: Any) -> Any:
        if self.ndim == 1:
            return _vdot(self, small)
        return DeviceArray(self.tensor @ self._on_same_device(small).to(self.tensor.dtype))

    def __repr__(self) -> str:
        return f"DeviceArray({self.shape}, {self.dtype}, {self.tensor.device})"


class Turned:
    """The transpose, for products with another tall array and for the host."""

    __array_ufunc__ = None

    def __init__(self, array: DeviceArray):
        self.array = array

    def __matmul__(self, other: DeviceArray) -> np.ndarray:
        return (
            (self.array.tensor.double().T @ self.array._on_same_device(other).double())
            .cpu()
            .numpy()
        )


def _host(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)(map(_host, value))
    if isinstance(value, dict):
        return {name: _host(each) for name, each in value.items()}
    return np.asarray(value) if isinstance(value, DeviceArray) else value


def _joined(parts: Any) -> DeviceArray:
    """Columns side by side, in the first precision that holds all."""
    own = next(a for a in parts if isinstance(a, DeviceArray))
    kind = TORCH[np.result_type(*(a.dtype for a in parts))]
    return DeviceArray(torch.cat([own._on_same_device(a).to(kind) for a in parts], 1))


def _vdot(a: Any, b: Any) -> float:
    own = a if isinstance(a, DeviceArray) else b
    return float((own._on_same_device(a).double() * own._on_same_device(b).double()).sum())


def _norm(a: DeviceArray, order: Any = None, axis: int | None = None) -> Any:
    """Of the whole (Frobenius, or the largest singular value with ``order`` 2), or of each
    column."""
    wide = a.tensor.double()
    if order == 2 and axis is None:
        return (
            float(torch.linalg.eigvalsh(wide.T @ wide)[-1].clamp(min=0).sqrt()) if a.size else 0.0
        )
    assert order is None
    return np.sqrt(a.__class__(wide * wide).sum(axis))


def _like(a: DeviceArray, dtype: Any = None, order: str = "K", shape: Any = None) -> DeviceArray:
    kind = a.tensor.dtype if dtype is None else TORCH[np.dtype(dtype)]
    return DeviceArray(
        torch.zeros(a.shape if shape is None else shape, dtype=kind, device=a.tensor.device)
    )


FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.hstack: _joined,
    np.column_stack: _joined,
    np.vdot: _vdot,
    np.zeros_like: _like,
    np.empty_like: _like,
    np.linalg.norm: _norm,
    np.sum: lambda a, axis=None: a.sum(axis),
}
