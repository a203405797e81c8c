"""The handle of an array on a device that chapters see. It adds, scales, joins and reduces by
NumPy's own names, on the device; what it has no answer for is done on the host, with a copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from eckart.engines.operators import ArrayOperators

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
