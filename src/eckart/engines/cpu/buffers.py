"""Arrays whose rows begin on cache lines, padded with zeros to whole registers."""

from __future__ import annotations

from typing import Any

import numpy as np

LINE = 64
"""Bytes of a cache line."""


def aligned_zeros(shape: tuple[int, int], dtype: Any) -> np.ndarray:
    """Zeros whose first number stands at the start of a cache line."""
    return _aligned(np.zeros, shape, np.dtype(dtype))


def aligned_empty(shape: tuple[int, int], dtype: Any) -> np.ndarray:
    """The same unfilled: zeros are written by one thread, and what is filled by several need not
    wait for them."""
    return _aligned(np.empty, shape, np.dtype(dtype))


def _aligned(made: Any, shape: tuple[int, int], dtype: np.dtype) -> np.ndarray:
    size = shape[0] * shape[1]
    raw = made(size + LINE // dtype.itemsize, dtype)
    skip = (-raw.ctypes.data % LINE) // raw.itemsize
    return raw[skip : skip + size].reshape(shape)


class Padded(np.ndarray):
    """The first columns of ``whole``, whose others are zeros. What is made from it (slices, sums)
    is an ordinary array. ``spare`` is a second buffer of a tall array, which the next pass writes
    to."""

    whole: np.ndarray | None = None
    spare: np.ndarray | None = None


def real_columns(whole: np.ndarray, k: int, spare: np.ndarray | None = None) -> Padded:
    """The k real columns of a padded array, which ``padded`` finds again."""
    out = whole[:, :k].view(Padded)
    out.whole, out.spare = whole, spare
    return out


def padded(a: np.ndarray, width: int, dtype: Any, *, own: bool = False) -> np.ndarray:
    """The array with zero columns up to this width: the one that it is a view of, itself where it
    is so already (not where the caller writes to it, ``own``), or a copy."""
    whole = getattr(a, "whole", None)
    if whole is None and not own and a.flags.c_contiguous:
        whole = np.asarray(a)
    if whole is not None and whole.shape[1] == width and whole.dtype == dtype:
        return whole
    out = aligned_zeros((len(a), width), dtype)
    out[:, : a.shape[1]] = a
    return out
