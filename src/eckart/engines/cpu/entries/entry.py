"""What the kernels of ridge problems and their evidence know of a stored entry: one record, one formula.

An entry at column j of row i has a weight w, a target y and a pull q, its share of the right-hand side; with s = u_i.v_j its part of the data term is

    explicit (alpha = 0)   w = weights_p own_i other_j,   y = a - mean - bias_i - offset_j,   q = w y         1/2 w (y - s)^2
    implicit               w = alpha a,                   y = 1,   q = w + shift (0 where w is 0)             1/2 (q y - 2 q s + w s^2)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from eckart.engines.host import Host

FAST = {"contract", "reassoc", "nsz"}
"""Sums may be reordered, nothing else: NaN and infinities keep their meaning."""
ROOM = 256
"""Entries whose numbers are worked out at once: they stay in the first-level cache."""
AHEAD = 8
"""Entries between a prefetch and its use: about the latency of memory at k = 16 to 128."""


class Entries(NamedTuple):
    """Compressed rows and the numbers of the formula; an array of length 0 is absent. ``own`` has one number for each row, or one for all."""

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


@njit(nogil=True, cache=True, fastmath=FAST)
def look_at(e, i, first, count, known):
    """w, y and q of the entries first..first+count of row i into the rows of ``known``.

    Arrays are taken out of the record before a loop: inside, each mention would count a reference.
    """
    indices, data, weights, other, offset = e.indices, e.data, e.weights, e.other, e.offset
    one = data.dtype.type(1)
    own = one if e.own.shape[0] == 0 else e.own[i if e.own.shape[0] > 1 else 0]
    less = e.mean + e.bias[i] if e.bias.shape[0] > 0 else e.mean
    alpha, shift = e.alpha, e.shift
    if alpha > 0:
        for t in range(count):
            w = alpha * data[first + t]
            known[0, t] = w
            known[1, t] = one
            known[2, t] = w + shift if w > 0 else 0 * one
        return
    for t in range(count):
        known[0, t] = own
        known[1, t] = data[first + t] - less
    if weights.shape[0] > 0:
        for t in range(count):
            known[0, t] *= weights[first + t]
    if other.shape[0] > 0:
        for t in range(count):
            known[0, t] *= other[indices[first + t]]
    if offset.shape[0] > 0:
        for t in range(count):
            known[1, t] -= offset[indices[first + t]]
    for t in range(count):
        known[2, t] = known[0, t] * known[1, t]


def entries_of(
    x: Host, dtype: Any, rule: Any = None, *, weights: Any = None, own: Any = None, other: Any = None, bias: Any = None, offset: Any = None, mean: float = 0.0
) -> Entries:  # fmt: skip
    """The record for the entries of a placed matrix; without ``weights`` its own are taken."""
    m, w = x.matrix, x.entry_weights if weights is None else weights
    arrays = (_given(a, dtype) for a in (w, own, other, bias, offset))
    numbers = (mean, 0.0 if rule is None else rule.alpha, 0.0 if rule is None else rule.shift)
    return Entries(m.indptr, m.indices, np.asarray(m.data, dtype), *arrays, *map(np.dtype(dtype).type, numbers))


def _given(a: Any, dtype: Any) -> np.ndarray:
    """A flat array of the working precision, of length 0 where there is none."""
    return np.empty(0, dtype) if a is None else np.ascontiguousarray(a, dtype).ravel()
