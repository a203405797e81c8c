"""Small work without a compiler: below a size that depends on the shape of the matrix alone the CPU
engine answers with the array primitives.

Loading compiled kernels takes .6 s where they are cached and some seconds where they are not; a fit
of so few numbers takes a tenth of that either way. The number of threads and what was compiled
before play no part, so that the bits of an answer do not depend on them.

Primitives that are functions beside their kernels. Loading numba takes half a second, so such a
file is loaded when one of them is first called.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from typing import Any

from eckart.engines.host import Host, place
from eckart.matrix import Counts, Dense, Observed

SMALL = 2**15
"""Numbers of a matrix (cells of dense rows, stored entries with rows and columns of others) up to
which it is small. A first fit of 10,000 ratings with 10 factors takes .15 s by arrays, .65 s by
cached kernels and 6 to 9 s by kernels that are not; they are even at about 50,000 ratings."""


def is_small(x: Host, most: float, filled: bool = False) -> bool:
    """Whether a placed matrix is small; ``filled``: where its rows are made dense."""
    rows, columns = x.shape
    if rows is None:  # a stream, whose end is not known
        return False
    cells = filled or x.kind == "dense"
    return (rows * columns if cells else x.nnz + rows + columns) <= most


ONCE = 4
"""How many times larger a matrix is still small for what a fit asks a few times, in its
certificate. 87,000 ratings and 10 factors: evidence .9 ms by kernels and 2.4 by arrays, products
with the residual 1.1 and 2.2 (one thread of an AMD EPYC); the kernels take two seconds to compile."""


def or_arrays(
    arrays: type,
    filled: bool = False,
    unless: Callable[..., bool] | None = None,
    larger: int = 1,
) -> Callable[[Any], Any]:
    """The primitive that is decorated; for a small matrix, or one ``larger`` times as large that
    is no block of larger data, that
    of ``arrays``, ``unless`` that would do more than a small matrix's work."""

    def decorate(compiled: Any) -> Any:
        body = getattr(arrays, compiled.__name__)

        @functools.wraps(compiled)
        def primitive(self: Any, x: Any, *args: Any, **named: Any) -> Any:
            x = place(x)
            small = is_small(x, (larger if self.whole else 1) * self.small, filled)
            if small and (unless is None or not unless(self, x, *args, **named)):
                return body(self, x, *args, **named)
            return compiled(self, x, *args, **named)

        return primitive

    return decorate


FEW = 2**13
"""Numbers of a factor up to which what is done to it alone is done by arrays: a kernel gains some
tenths of a millisecond there. Data of any size may have so small a factor, of their columns; what
is done to that in every sweep changes to kernels at half of it."""


def or_arrays_on_factor(
    arrays: type, size: Callable[..., int] = lambda a, *_, **__: a.size, few: int = FEW
) -> Callable[[Any], Any]:
    """The primitive that is decorated; that of ``arrays`` for a small factor, or what else has a
    ``size`` by the arguments."""

    def decorate(compiled: Any) -> Any:
        body = getattr(arrays, compiled.__name__)

        @functools.wraps(compiled)
        def primitive(self: Any, *args: Any, **named: Any) -> Any:
            small = size(*args, **named) <= few * (self.small / SMALL)
            return (body if small else compiled)(self, *args, **named)

        return primitive

    return decorate


def later(module: str, name: str) -> Any:
    """The function of this name as a method of the engine, given its threads; a matrix that was not
    placed yet is."""

    whole = f"eckart.engines.cpu.{module}"

    def primitive(self: Any, *args: Any, **named: Any) -> Any:
        do = getattr(import_module(whole), name)  # waits for a thread that imports it
        if args and isinstance(args[0], (Dense, Observed, Counts)):
            args = place(args[0]), *args[1:]
        return do(*args, threads=self.threads, **named)

    primitive.__name__ = name
    return primitive
