"""Targets and weights of the logistic loss, compiled: yes and no is by far the most frequent of the
losses, and this is half the time of its fit."""

from __future__ import annotations

import math

from numba import njit

from eckart.compiling import OUTSIDE
from eckart.engines.cpu.entries.entry import FAST


@njit(**OUTSIDE, fastmath=FAST)
def logistic_bound(data, first, last, target, weights):
    """For the entries first..last, with s in ``target``: s - g / c in its place, c into
    ``weights``; returns the sum of the losses.

    e = exp(-|s|), h = 1 / (1 + e), tanh(|s| / 2) = (1 - e) h, log(1 + e) = -log h; c = tanh(|s| /
    2) / (2 |s|), 1/4 near 0, which lies above it.
    """
    kind = target.dtype.type
    one, half, quarter, near = kind(1), kind(0.5), kind(0.25), kind(1e-3)
    total = 0.0
    for p in range(first, last):
        s, a = target[p], data[p]
        size = abs(s)
        e = math.exp(-size)
        h = one / (one + e)
        bend = (one - e) * h
        total += (s if s > 0 else 0 * one) - a * s - math.log(h)
        g = half + (half * bend if s >= 0 else -half * bend) - a
        c = quarter if size < near else half * bend / size
        weights[p] = c
        target[p] = s - g / c
    return total
