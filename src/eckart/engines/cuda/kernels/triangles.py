"""Cholesky factors of many small matrices and their inverses in one launch: a warp takes a matrix
of up to 64 columns, as blocks of 16.

    S_pp = C_p C_p^T,   L_ip = S_ip C_p^-T,   S_ij <- S_ij - L_ip L_jp^T,      X_pp = C_p^-1,   X_ip
    = -C_i^-1 sum_{p<=j<i} L_ij X_jp

Products are three of TF32 for one of float32. From a pivot on that is not positive, numbers are not
numbers.
"""

from __future__ import annotations

import torch

from eckart.engines.cuda.kernels.language import jit, tl

SIZE, WIDEST = 16, 64
"""Columns of a block, and of a matrix at the most."""


@jit
def _load(matrix, stride, n, i, j, SIZE: tl.constexpr):
    """Block (i, j), with ones on the diagonal beyond n; of blocks on the diagonal the lower
    triangle is read."""
    row, column = i * SIZE + tl.arange(0, SIZE), j * SIZE + tl.arange(0, SIZE)
    up, down = tl.maximum(row[:, None], column[None, :]), tl.minimum(row[:, None], column[None, :])
    a = tl.load(matrix + up * stride + down, mask=up < n, other=0.0)
    return tl.where(row[:, None] == column[None, :], tl.where(row[:, None] < n, a, 1.0), a)


@jit
def _store(lowers, inverses, lower, inverse, n, i, j, SIZE: tl.constexpr):
    """Block (i, j) of both."""
    row, column = i * SIZE + tl.arange(0, SIZE), j * SIZE + tl.arange(0, SIZE)
    at, mask = row[:, None] * n + column[None, :], (row < n)[:, None] & (column < n)[None, :]
    tl.store(lowers + at, lower, mask=mask)
    tl.store(inverses + at, inverse, mask=mask)


@jit
def _root(a, SIZE: tl.constexpr):
    """C and C^-1 of a block: rows are taken off one another, and the same ones off the identity."""
    lanes = tl.arange(0, SIZE)
    down, across = lanes[:, None], lanes[None, :]
    inverse = tl.where(down == across, 1.0, 0.0)
    lower = tl.zeros([SIZE, SIZE], dtype=tl.float32)
    for j in range(0, SIZE):
        column = tl.sum(tl.where(across == j, a, 0.0), 1)
        pivot = tl.sum(tl.where(lanes == j, column, 0.0), 0)
        scale = tl.where(pivot > 0, 1.0, float("nan")) / tl.sqrt(pivot)
        below = tl.where(lanes > j, column * scale, 0.0)
        own = tl.sum(tl.where(down == j, inverse, 0.0), 0) * scale
        lower = tl.where(
            across == j, (below + tl.where(lanes == j, pivot * scale, 0.0))[:, None], lower
        )
        row = tl.sum(tl.where(down == j, a, 0.0), 0) * scale
        a -= below[:, None] * row[None, :]
        inverse = tl.where(down == j, own[None, :], inverse - below[:, None] * own[None, :])
    return lower, inverse


@jit
def _dot(a, b):
    return tl.dot(a, b, input_precision="tf32x3")


@jit
def _roots(
    matrices, batch_stride, stride, lowers, inverses, n, SIZE: tl.constexpr, N: tl.constexpr
):
    i = tl.program_id(0).to(tl.int64)
    s, low, inv = matrices + i * batch_stride, lowers + i * n * n, inverses + i * n * n
    zero = tl.zeros([SIZE, SIZE], dtype=tl.float32)
    c0, x0 = _root(_load(s, stride, n, 0, 0, SIZE), SIZE)
    _store(low, inv, c0, x0, n, 0, 0, SIZE)
    if N > 1:
        t0 = tl.trans(x0)
        l10 = _dot(_load(s, stride, n, 1, 0, SIZE), t0)
        c1, x1 = _root(_load(s, stride, n, 1, 1, SIZE) - _dot(l10, tl.trans(l10)), SIZE)
        x10 = -_dot(x1, _dot(l10, x0))
        _store(low, inv, l10, x10, n, 1, 0, SIZE)
        _store(low, inv, c1, x1, n, 1, 1, SIZE)
        _store(low, inv, zero, zero, n, 0, 1, SIZE)
    if N > 2:
        t1 = tl.trans(x1)
        l20 = _dot(_load(s, stride, n, 2, 0, SIZE), t0)
        l21 = _dot(_load(s, stride, n, 2, 1, SIZE) - _dot(l20, tl.trans(l10)), t1)
        rest = _load(s, stride, n, 2, 2, SIZE) - _dot(l20, tl.trans(l20)) - _dot(l21, tl.trans(l21))
        c2, x2 = _root(rest, SIZE)
        x20 = -_dot(x2, _dot(l20, x0) + _dot(l21, x10))
        x21 = -_dot(x2, _dot(l21, x1))
        _store(low, inv, l20, x20, n, 2, 0, SIZE)
        _store(low, inv, l21, x21, n, 2, 1, SIZE)
        _store(low, inv, c2, x2, n, 2, 2, SIZE)
        for j in tl.static_range(2):
            _store(low, inv, zero, zero, n, j, 2, SIZE)
    if N > 3:
        l30 = _dot(_load(s, stride, n, 3, 0, SIZE), t0)
        l31 = _dot(_load(s, stride, n, 3, 1, SIZE) - _dot(l30, tl.trans(l10)), t1)
        l32 = _load(s, stride, n, 3, 2, SIZE) - _dot(l30, tl.trans(l20)) - _dot(l31, tl.trans(l21))
        l32 = _dot(l32, tl.trans(x2))
        rest = _load(s, stride, n, 3, 3, SIZE) - _dot(l30, tl.trans(l30)) - _dot(l31, tl.trans(l31))
        c3, x3 = _root(rest - _dot(l32, tl.trans(l32)), SIZE)
        x30 = -_dot(x3, _dot(l30, x0) + _dot(l31, x10) + _dot(l32, x20))
        x31 = -_dot(x3, _dot(l31, x1) + _dot(l32, x21))
        x32 = -_dot(x3, _dot(l32, x2))
        _store(low, inv, l30, x30, n, 3, 0, SIZE)
        _store(low, inv, l31, x31, n, 3, 1, SIZE)
        _store(low, inv, l32, x32, n, 3, 2, SIZE)
        _store(low, inv, c3, x3, n, 3, 3, SIZE)
        for j in tl.static_range(3):
            _store(low, inv, zero, zero, n, j, 3, SIZE)


def roots(matrices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """L and L^-1 of every matrix of a batch in float32, of which the lower triangle is read."""
    batch, n = matrices.shape[:2]
    if matrices.stride(2) != 1:
        matrices = matrices.contiguous()
    lower, inverse = (matrices.new_empty(batch, n, n) for _ in range(2))
    if batch:
        _roots[(batch,)](
            matrices,
            matrices.stride(0),
            matrices.stride(1),
            lower,
            inverse,
            n,
            SIZE=SIZE,
            N=-(-n // SIZE),
            num_warps=1,
        )
    return lower, inverse
