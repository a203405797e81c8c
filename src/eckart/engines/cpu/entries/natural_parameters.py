"""Natural parameters at the stored entries: s = mean + b_i + c_j + u_i.v_j, compiled."""

from __future__ import annotations

from numba import njit

from eckart.compiling import OUTSIDE
from eckart.engines.cpu.entries.sampled import _dots


@njit(**OUTSIDE)
def parameters_range(indptr, indices, left, right, mean, own, other, first, last, out):
    """out_p = s for the entries p of rows first..last; ``own`` and ``other`` of length 0 are
    absent."""
    _dots(indptr, indices, left, right, first, last, out)
    for i in range(first, last):
        more = mean + own[i] if own.shape[0] > 0 else mean
        if other.shape[0] > 0:
            for p in range(indptr[i], indptr[i + 1]):
                out[p] += more + other[indices[p]]
        else:
            for p in range(indptr[i], indptr[i + 1]):
                out[p] += more
