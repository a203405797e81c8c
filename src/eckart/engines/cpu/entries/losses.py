"""A loss met at the stored entries on threads: natural parameters by a compiled kernel, formulas of
the loss in NumPy on pieces that stay in cache (``arrays.losses``).

NumPy lets go of the interpreter while it works on a piece, so threads help.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.engines.arrays.losses import ArrayLosses, Work, steep_losses
from eckart.engines.cpu.small import is_small
from eckart.engines.host import Host, place
from eckart.scheduler import run_lanes
from eckart.terms import Logistic


class LossPrimitives(ArrayLosses):
    """The family ``losses`` on ``threads`` threads."""

    threads: int
    small: float

    def linearised(
        self, x: Any, loss: Any, left: np.ndarray, right: np.ndarray, **at: Any
    ) -> tuple[Host, float]:
        x = place(x)
        if type(loss) is not Logistic or x.entry_weights is not None or is_small(x, self.small):
            return super().linearised(x, loss, left, right, **at)
        from eckart.engines.cpu.entries.logistic import logistic_bound

        data = x.matrix.data
        target, weights = np.empty(x.nnz, x.dtype), np.empty(x.nnz, x.dtype)

        def do(_: Any, here: slice, s: np.ndarray) -> tuple[Any, ...]:
            return (logistic_bound(data, here.start, here.stop, target, weights),)

        (value,) = self._over_entries(x, loss, left, right, at, do, target)
        return self.lib.with_entries(x, target, weights), float(value)

    def _over_entries(
        self, x: Host, loss: Any, left: Any, right: Any, at: Any, do: Work, room: Any = None
    ) -> list[Any]:
        if is_small(x, self.small):
            return super()._over_entries(x, loss, left, right, at, do, room)
        from eckart.engines.cpu.entries.natural_parameters import parameters_range
        from eckart.engines.cpu.entries.sparse import balanced
        from eckart.engines.cpu.ridge.schedule import ranges

        lib, m = self.lib, x.matrix
        each, at = steep_losses(lib, x, loss, at)
        out = np.empty(x.nnz, x.dtype) if room is None else room
        u, v = (np.ascontiguousarray(a, x.dtype) for a in (left, right))
        own, other = (
            np.ascontiguousarray([] if a is None else a, x.dtype).ravel()
            for a in (at.get("own"), at.get("other"))
        )
        mean = x.dtype.type(at.get("mean", 0.0))
        parts = balanced(m.indptr, ranges(x.nnz))
        sums: list[list[Any]] = [[] for _ in parts]

        def step(found: list[Any], part: tuple[int, int], scratch: dict) -> None:
            parameters_range(m.indptr, m.indices, u, v, mean, own, other, *part, out)
            last = int(m.indptr[part[1]])
            for a in range(int(m.indptr[part[0]]), last, lib.piece):
                here = slice(a, min(a + lib.piece, last))
                found.append(do(each(here), here, out[here]))

        run_lanes(parts, sums, step, self.threads)
        pieces = [found for part in sums for found in part]
        if not pieces:
            return super()._over_entries(x, loss, left, right, at, do, room)
        return [sum(every[1:], every[0]) for every in zip(*pieces)]
