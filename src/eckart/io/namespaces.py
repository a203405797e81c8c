"""Arrays of other libraries: a tensor in means a tensor out, in its library, on its device.

Whatever speaks the array API standard (or is a PyTorch tensor) is copied to the host, computed
with, and the answer goes back; rows on a GPU stay there (``tables.device_rows``). A model that was
fitted to such arrays shows its fitted attributes as such arrays, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from typing import Any, TypeVar

import numpy as np

from eckart.io.tables.frames import on_device

M = TypeVar("M", bound=Callable[..., Any])


@dataclass(frozen=True)
class Back:
    """From NumPy arrays to copies in another library (its array namespace by name), on a device."""

    library: str
    device: Any

    def __call__(self, a: np.ndarray) -> Any:
        library = import_module(self.library)
        if self.library == "torch":
            return library.from_numpy(np.array(a)).to(self.device)
        return library.asarray(np.array(a), device=self.device)


def way_back(x: Any) -> Back | None:
    """From NumPy arrays to arrays of the library and the device of x; None where x is no array of
    another library.

    >>> way_back(np.zeros(3)) is None, way_back([[1.0]]) is None
    (True, True)
    """
    if isinstance(x, (np.ndarray, np.generic)):
        return None
    if _is_tensor(x):
        return Back("torch", x.device)
    if hasattr(x, "__array_namespace__"):
        return Back(x.__array_namespace__().__name__, getattr(x, "device", None))
    return None


def on_host(x: Any) -> np.ndarray:
    """An array of another library as one of NumPy."""
    if _is_tensor(x):
        return x.detach().cpu().numpy()
    return np.asarray(x) if hasattr(x, "__array__") else np.from_dlpack(x)


def in_kind(method: M) -> M:
    """A method of rows X that answers in the library of X; after a fit, fitted attributes answer in
    it, too (``fit.fitted`` asks for ``_answers_in``)."""

    @wraps(method)
    def call(self: Any, X: Any = None, *args: Any, **named: Any) -> Any:
        back, before = way_back(X), vars(self).get("fit_")
        value = method(self, X if back is None or on_device(X) else on_host(X), *args, **named)
        if vars(self).get("fit_") is not before:
            vars(self).pop("_answers_in", None)
            if back is not None:
                self._answers_in = back
        return value if back is None else _returned(value, back)

    return call  # type: ignore[return-value]


def _is_tensor(x: Any) -> bool:
    return type(x).__module__.partition(".")[0] == "torch" and hasattr(x, "detach")


def _returned(value: Any, back: Callable[[np.ndarray], Any]) -> Any:
    if isinstance(value, tuple):
        return tuple(_returned(v, back) for v in value)
    return back(value) if isinstance(value, np.ndarray) else value
