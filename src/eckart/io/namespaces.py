"""Arrays of other libraries: a tensor in means a tensor out, in its library, on its device.

Whatever speaks the array API standard (or is a PyTorch tensor) is copied to the host, computed with, and the answer goes back.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import numpy as np

M = TypeVar("M", bound=Callable[..., Any])


def way_back(x: Any) -> Callable[[np.ndarray], Any] | None:
    """From NumPy arrays to arrays of the library and the device of x; None where x is no array of another library.

    >>> way_back(np.zeros(3)) is None, way_back([[1.0]]) is None
    (True, True)
    """
    if isinstance(x, (np.ndarray, np.generic)):
        return None
    if _is_tensor(x):
        import torch

        return lambda a: torch.from_numpy(np.array(a)).to(x.device)
    if hasattr(x, "__array_namespace__"):
        library = x.__array_namespace__()
        return lambda a: library.asarray(np.array(a), device=getattr(x, "device", None))
    return None


def on_host(x: Any) -> np.ndarray:
    """An array of another library as one of NumPy."""
    if _is_tensor(x):
        return x.detach().cpu().numpy()
    return np.asarray(x) if hasattr(x, "__array__") else np.from_dlpack(x)


def in_kind(method: M) -> M:
    """A method of rows X that answers in the library of X."""

    @wraps(method)
    def call(self: Any, X: Any, *args: Any, **named: Any) -> Any:
        back = way_back(X)
        if back is None:
            return method(self, X, *args, **named)
        return _returned(method(self, on_host(X), *args, **named), back)

    return call  # type: ignore[return-value]


def _is_tensor(x: Any) -> bool:
    return type(x).__module__.partition(".")[0] == "torch" and hasattr(x, "detach")


def _returned(value: Any, back: Callable[[np.ndarray], Any]) -> Any:
    if isinstance(value, tuple):
        return tuple(_returned(v, back) for v in value)
    return back(value) if isinstance(value, np.ndarray) else value
