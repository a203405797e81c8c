"""What the kernels of ridge problems and their evidence know of a stored entry: one record, one
formula.

An entry at column j of row i has a weight w, a target y and a pull q, its share of the right-hand
side; with s = u_i.v_j its part of the data term is

    explicit (alpha = 0)   w = weights_p own_i other_j,   y = a - mean - bias_i - offset_j,   q = w
    y         1/2 w (y - s)^2
    implicit               w = alpha a,                   y = 1,   q = w + shift (0 where w is 0)
    1/2 (q y - 2 q s + w s^2)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from eckart.compiling import INSIDE, OUTSIDE
from eckart.engines.cpu.native.pool import address_of
from eckart.engines.host import Host

FAST = {"contract", "reassoc", "nsz"}
"""Sums may be reordered, nothing else: NaN and infinities keep their meaning."""
ROOM = 2**14
"""Entries whose numbers are worked out at once, or those of one longer row: they stay in the
second-level cache until they are used."""
AHEAD = 8
"""Entries between a prefetch and its use: about the latency of memory at k = 16 to 128."""


class Entries(NamedTuple):
    """Compressed rows and the numbers of the formula; an array of length 0 is absent. ``own`` has
    one number for each row, or one for all."""

    indptr: Any
    indices: Any
    data: Any
    weights: Any
    own: Any
    other: Any
    bias: Any
    offset: Any
    mean: Any
    alpha: Any
    shift: Any


@njit(**OUTSIDE, fastmath=FAST)
def look_at(e, rows, first, last, known):
    """w, y and q of the entries of rows[first..last] (no rows: first..last themselves), one row
    after another, into the rows of ``known``.

    A kernel of its own, called before those that use the numbers: inside each of them it would be
    most of what there is to compile. Arrays are taken out of the record before a loop: inside, each
    mention would count a reference.
    """
    indices, data, weights, other, offset = e.indices, e.data, e.weights, e.other, e.offset
    indptr, bias, each = e.indptr, e.bias, e.own
    one = data.dtype.type(1)
    alpha, shift = e.alpha, e.shift
    at = 0
    for m in range(first, last):
        i = rows[m] if rows.shape[0] > 0 else m
        a = indptr[i]
        count = indptr[i + 1] - a
        # by slices: numbers added to an index might be negative for all that the compiler knows,
        # and it would ask at every entry
        w, y, q = known[0, at : at + count], known[1, at : at + count], known[2, at : at + count]
        seen, values = indices[a : a + count], data[a : a + count]
        at += count
        if alpha > 0:
            for t in range(count):
                w[t] = alpha * values[t]
                y[t] = one
                q[t] = w[t] + shift if w[t] > 0 else 0 * one
            continue
        own = one if each.shape[0] == 0 else each[i if each.shape[0] > 1 else 0]
        less = e.mean + bias[i] if bias.shape[0] > 0 else e.mean
        if (
            weights.shape[0] == 0 and other.shape[0] == 0 and offset.shape[0] > 0
        ):  # most fits: one walk instead of three
            for t in range(count):
                w[t] = own
                y[t] = (values[t] - less) - offset[seen[t]]
                q[t] = own * y[t]
            continue
        for t in range(count):
            w[t] = own
            y[t] = values[t] - less
        if weights.shape[0] > 0:
            given = weights[a : a + count]
            for t in range(count):
                w[t] *= given[t]
        if other.shape[0] > 0:
            for t in range(count):
                w[t] *= other[seen[t]]
        if offset.shape[0] > 0:
            for t in range(count):
                y[t] -= offset[seen[t]]
        for t in range(count):
            q[t] = w[t] * y[t]


ALL = np.empty(0, np.int64)
"""No rows are chosen: all of a range are meant."""


@njit(**INSIDE, fastmath=False)
def next_rows(indptr, chosen, first, last):
    """The end of the rows from ``first`` on (of chosen, or the rows themselves) that together have
    at most ROOM entries; one row at the least."""
    size, end = 0, first
    while end < last:
        i = chosen[end] if chosen.shape[0] > 0 else end
        size += indptr[i + 1] - indptr[i]
        if size > ROOM and end > first:
            break
        end += 1
    return end


def known_room(x: Host, dtype: Any, threads: int) -> np.ndarray:
    """Room for w, y and q of the entries that each thread looks at."""
    return np.empty((threads, 3, max(ROOM, int(x.counts.max(initial=0)))), dtype)


def looking(e: Entries, chosen: np.ndarray, known: np.ndarray) -> int:
    """The address of ``look_at`` for these."""
    return address_of(look_at, (e, chosen, 0, 0, known[0]))


def entries_of(
    x: Host,
    dtype: Any,
    rule: Any = None,
    *,
    weights: Any = None,
    own: Any = None,
    other: Any = None,
    bias: Any = None,
    offset: Any = None,
    mean: float = 0.0,
) -> Entries:
    """The record for the entries of a placed matrix; without ``weights`` its own are taken."""
    m, w = x.matrix, x.entry_weights if weights is None else weights
    arrays = (_given(a, dtype) for a in (w, own, other, bias, offset))
    numbers = (mean, 0.0 if rule is None else rule.alpha, 0.0 if rule is None else rule.shift)
    return Entries(
        m.indptr, m.indices, np.asarray(m.data, dtype), *arrays, *map(np.dtype(dtype).type, numbers)
    )


def _given(a: Any, dtype: Any) -> np.ndarray:
    """A flat array of the working precision, of length 0 where there is none."""
    return np.empty(0, dtype) if a is None else np.ascontiguousarray(a, dtype).ravel()
