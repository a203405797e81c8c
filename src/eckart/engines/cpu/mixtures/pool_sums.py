"""Sums of Gaussian mixtures by the thread pool: every lane runs through its blocks of rows in compiled
code, so that no thread asks for the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from eckart.compiling import OUTSIDE
from eckart.engines.cpu.dense.thin import largest
from eckart.engines.cpu.mixtures.kernels import OVER_CHUNKS, TIED, Room, Targets
from eckart.engines.cpu.mixtures.layout import NO_ROWS, NONE, MixtureSums, ParameterLayout
from eckart.engines.cpu.native.pool import address_of, call_for_number, run_parts
from eckart.engines.cpu.native.products import added_up
from eckart.engines.host import Host

WORTH = 2**23
"""Rows times columns times components, about 2 ms a step of the cheapest kind: below, threads of
Python lose little, and nothing more has to be compiled."""


GAPS = "gaps found by the thread pool"


@njit(**OUTSIDE)
def add_lane(lane, who, height, code, x, weights, empty, c, room, chunks, sums, bounds):
    """Blocks lane, lane + lanes, ... of ``height`` rows into the lane's own sums, which need not be
    zero before. Rows come to the kernel in float64, some at a time."""
    lanes, own = bounds.shape[0], Targets(sums.counts[lane], sums.shift[lane], sums.scatter[lane])
    own.counts[:], own.shift[:], own.scatter[:] = 0.0, 0.0, 0.0
    here = Room(
        room.xc[who],
        room.xt[who],
        room.logp[who],
        room.spare[who],
        room.rows[who],
        room.packed[who],
        room.pair[who],
    )
    size, total = chunks.shape[1], 0.0
    for start in range(lane * height, x.shape[0], lanes * height):
        stop, bound = min(start + height, x.shape[0]), 0.0
        for a in range(start, stop, size):
            count = min(size, stop - a)
            chunk = chunks[who, :count]
            for i in range(count):
                for j in range(x.shape[1]):
                    chunk[i, j] = x[a + i, j]
            w = weights[a : a + count] if weights.shape[0] > 0 else weights
            bound += call_for_number(code, (chunk, empty, empty, w, c, here, own, empty))  # type: ignore[call-arg]
        total += bound
    bounds[lane] = total


def suits(x: Host, layout: ParameterLayout, threads: int) -> bool:
    """Whether rows lie in memory, none has a gap, and the work repays what is compiled for it."""
    return (
        layout.theta.k * layout.theta.n * (x.shape[0] or 0) >= WORTH
        and x.kind == "dense"
        and type(x.matrix.values) is np.ndarray
        and x.matrix.values.dtype == x.dtype
        and not layout.wide
        and layout.kind != TIED  # its rows are turned by BLAS, a block at a time
        and layout.theta.k > 1
        and (x.checked or _complete(x, threads))
    )


def _complete(x: Host, threads: int) -> bool:
    """Whether all entries are finite: a look by the thread pool, before the first pass, costs less than a
    pass that looks by itself on threads of Python loses."""
    if GAPS not in x.kept:
        x.kept[GAPS] = not np.isfinite(largest(x.matrix.values, threads))
        x.checked = not x.kept[GAPS]
    return x.checked


def sums_by_pool(
    x: Host, layout: ParameterLayout, height: int, lanes: int, threads: int
) -> MixtureSums:
    """What ``_sums`` of the primitives adds up over blocks of ``height`` rows, to the same bits;
    the room for it stays with the matrix between two steps."""
    k, p = layout.theta.k, layout.p
    shapes = {"counts": (k,), "shift": (k, p), "scatter": layout.scatter_shape}
    key = f"sums of mixtures {threads} {lanes} {layout.shapes} {shapes}"
    if key not in x.kept:
        room = [
            np.zeros((threads, *s), np.int64 if name == "rows" else np.float64)
            for name, s in layout.shapes.items()
        ]
        sums = Targets(*(np.empty((lanes, *shape)) for shape in shapes.values()))
        x.kept[key] = (
            Room(*room),
            np.empty((threads, layout.rows, layout.theta.n)),
            sums,
            np.empty(lanes),
        )
    room, chunks, sums, bounds = x.kept[key]
    values, w = x.matrix.values, NONE if x.weights is None else x.weights
    code = address_of(
        OVER_CHUNKS[layout.kind],
        (
            chunks[0],
            NO_ROWS,
            NO_ROWS,
            w,
            layout.components,
            Room(*(each[0] for each in room)),
            Targets(*(each[0] for each in sums)),
            NO_ROWS,
        ),
    )
    run_parts(
        add_lane,
        lanes,
        (height, code, values, w, NO_ROWS, layout.components, room, chunks, sums, bounds),
        threads,
    )
    counts, shift, scatter = (
        added_up(each.reshape(lanes, -1), threads).reshape(each.shape[1:]) for each in sums
    )
    return MixtureSums(
        counts, None, shift, scatter, _weight(x, height, lanes), sum(bounds.tolist())
    )


def _weight(x: Host, height: int, lanes: int) -> float:
    """The sum of the weights in the order of the lanes."""
    rows: Any = x.shape[0]
    if x.weights is None:
        return float(rows)
    own = [0.0] * lanes
    for i, start in enumerate(range(0, rows, height)):
        own[i % lanes] += float(x.weights[start : start + height].sum())
    return sum(own)
