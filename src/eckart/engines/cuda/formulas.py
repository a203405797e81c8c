"""Formulas of losses on a device: ``Numbers`` answers the functions of NumPy and SciPy that they
are written in, so that a loss is written once (``terms``).

What is not in the tables, and arrays of the host beside those of the device, make ``TypeError``:
the engine then leaves the loss to the CPU engine.

Losses at the stored entries on a device. Those whose formulas ask for more than arithmetic
(grades with thresholds), and entries with a steepness of their own, are the CPU engine's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special
import torch

from eckart.engines.arrays.losses import ArrayLosses
from eckart.engines.cuda.arrays import NUMPY, torch_dtype


def _extreme(pairwise: Callable[..., Any], alone: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """The larger or smaller of two, one of which may be a number."""

    def do(a: Any, b: Any) -> Any:
        if torch.is_tensor(a) and torch.is_tensor(b):
            return pairwise(a, b)
        return alone(a, b) if torch.is_tensor(a) else alone(b, a)

    return do


def _of_numbers(do: Callable[..., Any]) -> Callable[..., Any]:
    """For functions of PyTorch that take tensors alone: numbers become tensors of no axis."""

    def call(*values: Any) -> Any:
        like = next(a for a in values if torch.is_tensor(a))
        return do(
            *(
                a
                if torch.is_tensor(a)
                else torch.as_tensor(a, dtype=like.dtype, device=like.device)
                for a in values
            )
        )

    return call


UFUNCS: dict[Any, Callable[..., Any]] = {
    np.add: lambda a, b: a + b,
    np.subtract: lambda a, b: a - b,
    np.multiply: lambda a, b: a * b,
    np.true_divide: lambda a, b: a / b,
    np.power: lambda a, b: a**b,
    np.negative: lambda a: -a,
    np.square: lambda a: a * a,
    np.less: lambda a, b: a < b,
    np.less_equal: lambda a, b: a <= b,
    np.greater: lambda a, b: a > b,
    np.greater_equal: lambda a, b: a >= b,
    np.equal: lambda a, b: a == b,
    np.logical_and: _of_numbers(torch.logical_and),
    np.bitwise_and: lambda a, b: a & b,
    np.bitwise_or: lambda a, b: a | b,
    np.invert: lambda a: ~a,
    np.absolute: torch.abs,
    np.sign: torch.sign,
    np.sqrt: torch.sqrt,
    np.exp: torch.exp,
    np.expm1: torch.expm1,
    np.log: torch.log,
    np.log1p: torch.log1p,
    np.tanh: torch.tanh,
    np.isinf: torch.isinf,
    np.isnan: torch.isnan,
    np.minimum: _extreme(torch.minimum, lambda a, b: a.clamp(max=b)),
    np.maximum: _extreme(torch.maximum, lambda a, b: a.clamp(min=b)),
    np.copysign: _of_numbers(torch.copysign),
    scipy.special.expit: torch.sigmoid,
    scipy.special.xlogy: _of_numbers(torch.xlogy),
    scipy.special.gammaln: torch.lgamma,
    scipy.special.ndtr: torch.special.ndtr,
    scipy.special.log_ndtr: torch.special.log_ndtr,
}
FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.where: lambda held, a, b: torch.where(held, a, b),
    np.clip: lambda a, low, high: a.clamp(low, high),
    np.ones_like: torch.ones_like,
    np.zeros_like: torch.zeros_like,
}


class Numbers(np.lib.mixins.NDArrayOperatorsMixin):
    """An array of the device inside a formula."""

    def __init__(self, tensor: torch.Tensor):
        self.tensor = tensor

    shape = property(lambda self: tuple(self.tensor.shape))
    dtype = property(lambda self: NUMPY[self.tensor.dtype])

    def astype(self, dtype: Any, copy: bool = True) -> Numbers:
        return Numbers(self.tensor.to(torch_dtype(dtype)))

    def __array_ufunc__(
        self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **named: Any
    ) -> Any:
        do = UFUNCS.get(ufunc)
        if do is None or method != "__call__" or named:
            return NotImplemented
        found = do(*map(_bare, inputs))
        if out is None:
            return Numbers(found)
        out[0].tensor = found  # a += b: the same handle, other numbers
        return out[0]

    def __array_function__(self, function: Any, _: Any, args: Any, named: Any) -> Any:
        do = FUNCTIONS.get(function)
        return NotImplemented if do is None or named else Numbers(do(*map(_bare, args)))

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("a formula asked for its numbers on the host")


def _bare(value: Any) -> Any:
    """A tensor, or a plain number."""
    if isinstance(value, Numbers):
        return value.tensor
    if np.ndim(value):
        raise TypeError("a formula joined an array of the host with one of the device")
    return value.item() if hasattr(value, "item") else value


def _or_on_cpu(body: Any) -> Any:
    """The primitive; that of the CPU engine where a formula is not written for the device."""

    @functools.wraps(body)
    def primitive(self: Any, x: Any, *args: Any, **named: Any) -> Any:
        if not {"row_steep", "column_steep"} & {n for n, a in named.items() if a is not None}:
            try:
                return body(self, x, *args, **named)
            except TypeError:
                pass
        return self.on_cpu(body.__name__, self.held(x), *args, **named)

    return primitive


class DeviceLosses(ArrayLosses):
    """The family ``losses``: ``linearised`` in the place where its answer is used."""

    on_cpu: Any

    linearised = _or_on_cpu(ArrayLosses.linearised)
    loss_sums = _or_on_cpu(ArrayLosses.loss_sums)
    shortened_rows = _or_on_cpu(ArrayLosses.shortened_rows)
    slice_rows = _or_on_cpu(ArrayLosses.slice_rows)

    def threshold_sums(self, *args: Any, **named: Any) -> Any:
        return self.on_cpu("threshold_sums", *args, **named)

    def augmented(self, *args: Any, **named: Any) -> Any:
        return self.on_cpu("augmented", *args, **named)
