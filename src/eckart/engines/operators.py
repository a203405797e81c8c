"""The operators of arrays that an engine holds: each is NumPy's function, which asks the array
itself (``__array_ufunc__``).

Unlike NumPy's own mixin for such classes it leaves equality and hashing as they are (two handles
are equal when they are the same one), and ``a += b`` makes another array: what an engine holds may
be shared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def _both(function: Any) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]:
    return (lambda self, other: function(self, other)), (lambda self, other: function(other, self))


class ArrayOperators:
    """``+``, ``-``, ``*``, ``/`` from both sides, ``@`` and the sign."""

    __add__, __radd__ = _both(np.add)
    __sub__, __rsub__ = _both(np.subtract)
    __mul__, __rmul__ = _both(np.multiply)
    __truediv__, __rtruediv__ = _both(np.true_divide)
    __matmul__, __rmatmul__ = _both(np.matmul)

    def __neg__(self: Any) -> Any:
        return np.negative(self)
