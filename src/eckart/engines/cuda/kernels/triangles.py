"""Cholesky factors and inverse triangles of many small matrices: a program keeps its matrix to itself, column by column.

    factor     A = L L^T                    invert     (L + s I)^-1
"""

from __future__ import annotations

import torch

from eckart.engines.cuda.kernels.language import jit, power_of_two, tl

WIDEST = 64
"""Columns that a program can hold in float64 without spilling."""


@jit
def _factor(given, out, n, row, step, WIDTH: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, WIDTH)
    down, across = lanes[:, None], lanes[None, :]
    inside = (down < n) & (across < n)
    a = tl.load(given + i * step + down * row + across, mask=inside & (across <= down), other=0.0)
    a = tl.where(inside, a, tl.where(down == across, 1.0, 0.0))
    for j in range(0, n):
        # of what is not eliminated yet the lower triangle alone is used
        column = tl.sum(tl.where(across == j, a, 0.0), 1)
        pivot = tl.sum(tl.where(lanes == j, column, 0.0), 0)
        column = tl.where(lanes >= j, column / tl.sqrt(pivot), 0.0)
        below = tl.where(lanes > j, column, 0.0)
        a = tl.where(across == j, column[:, None], a - below[:, None] * below[None, :])
    tl.store(out + i * n * n + down * n + across, tl.where(across <= down, a, 0.0), mask=inside)


@jit
def _invert(given, out, n, plus, WIDTH: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, WIDTH)
    down, across = lanes[:, None], lanes[None, :]
    inside = (down < n) & (across < n)
    low = tl.load(given + i * n * n + down * n + across, mask=inside, other=0.0)
    found = tl.where(down == across, 1.0, 0.0).to(low.dtype)
    for j in range(0, n):
        column = tl.sum(tl.where(across == j, low, 0.0), 1)
        pivot = tl.sum(tl.where(lanes == j, column, 0.0), 0) + plus
        row = tl.sum(tl.where(down == j, found, 0.0), 0) / pivot
        below = tl.where(lanes > j, column, 0.0)
        found = tl.where(down == j, row[None, :], found - below[:, None] * row[None, :])
    tl.store(out + i * n * n + down * n + across, found, mask=inside)


def _warps(width: int) -> int:
    return 1 if width <= 16 else 2 if width <= 32 else 4


def factor(a: torch.Tensor) -> torch.Tensor:
    """L of a batch of matrices with n <= ``WIDEST`` columns, whose rows may be parts of longer ones; not numbers where a pivot is not positive."""
    batch, n = a.shape[0], a.shape[1]
    out, width = torch.empty((batch, n, n), dtype=a.dtype, device=a.device), power_of_two(n)
    if batch:
        _factor[(batch,)](a, out, n, a.stride(1), a.stride(0), WIDTH=width, num_warps=_warps(width))
    return out


def invert(lower: torch.Tensor, plus: float) -> torch.Tensor:
    """(L + plus I)^-1 of a batch of lower triangles."""
    out, n = torch.empty_like(lower), lower.shape[1]
    if len(lower):
        width = power_of_two(n)
        _invert[(len(lower),)](lower, out, n, plus, WIDTH=width, num_warps=_warps(width))
    return out
