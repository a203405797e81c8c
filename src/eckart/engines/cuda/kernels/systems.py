"""One small positive definite system for every row, solved by blocks: a warp takes a matrix of up
to 64 columns as blocks of 16, so that nothing waits for another warp; up to 128 columns as blocks
of 32 (65,535 matrices of 100 columns take 22 ms on an H200 so, 37 with four warps each and 60 with
eight).

    F_i = A_i0 A_00^-1,   A_ij <- A_ij - F_i A_j0^T,   r_i <- r_i - F_i r_0,   and so on;      u_i =
    A_ii^-1 r_i - sum_{j>i} F_ji^T u_j

Products are three of TF32 for one of float32. The value of a row is measured with the residual of
its solution, so that rounding enters it by its square.
"""

from __future__ import annotations

import torch

from eckart.engines.cuda.kernels.language import jit, power_of_two, tl

SOLVED = 128
"""Columns up to which a program can hold the blocks of a matrix; larger ones go by a batched
Cholesky factor."""
BLOCKS = 4
"""Blocks on the diagonal at the most."""


@jit
def _tile(
    gram, side, base, ridge, share, k, row, column, BIASED: tl.constexpr, BASED: tl.constexpr
):
    """These rows and columns of G + P + l I - a a^T / s of the row whose numbers are pointed at,
    with ones on the diagonal beyond k."""
    inside = (row < k)[:, None] & (column < k)[None, :]
    at = row[:, None] * k + column[None, :]
    a = tl.load(gram + at, mask=inside, other=0.0)
    if BASED:
        a += tl.load(base + at, mask=inside, other=0.0)
    if BIASED:
        down = tl.load(side + row, mask=row < k, other=0.0)
        across = tl.load(side + column, mask=column < k, other=0.0)
        a -= (share * down)[:, None] * across[None, :]
    return a + tl.where(
        row[:, None] == column[None, :], tl.where(row < k, ridge, 1.0)[:, None], 0.0
    )


@jit
def _inverse(a, least, SIZE: tl.constexpr):
    """A^-1 of a symmetric matrix by sweeps, which keep it symmetric: a_jj <- -1 / p, a_ij <- a_ij /
    p, a_il <- a_il - a_ij a_jl / p end at -A^-1. And the least pivot p so far."""
    down, across = tl.arange(0, SIZE)[:, None], tl.arange(0, SIZE)[None, :]
    for j in range(0, SIZE):
        own = down == j
        row = tl.sum(tl.where(own, a, 0.0), 0)
        column = tl.sum(tl.where(across == j, a, 0.0), 1)
        pivot = tl.sum(tl.where(tl.arange(0, SIZE) == j, row, 0.0), 0)
        least = tl.minimum(least, pivot)
        inverse = 1.0 / pivot
        swept = a - column[:, None] * (row * inverse)[None, :]
        swept = tl.where(own, (row * inverse)[None, :], swept)
        swept = tl.where(across == j, (column * inverse)[:, None], swept)
        a = tl.where(own & (across == j), -inverse, swept)
    return -a, least


@jit
def _times(a, b, PRECISION: tl.constexpr):
    return tl.dot(a, b, input_precision=PRECISION)


@jit
def _left(a, u):
    """A u."""
    return tl.sum(a * u[None, :], 1)


@jit
def _below(a, u):
    """A^T u."""
    return tl.sum(a * u[:, None], 0)


@jit
def _solve(
    gram,
    rhs,
    side,
    base,
    ridges,
    shares,
    out,
    gains,
    pivots,
    k,
    BIASED: tl.constexpr,
    BASED: tl.constexpr,
    SIZE: tl.constexpr,
    N: tl.constexpr,
    PRECISION: tl.constexpr,
):
    i = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, SIZE)
    c0, c1, c2, c3 = lanes, SIZE + lanes, 2 * SIZE + lanes, 3 * SIZE + lanes
    ridge, share = tl.load(ridges + i), tl.load(shares + i)
    gram, side, rhs, out = gram + i * k * k, side + i * k, rhs + i * k, out + i * k
    r0 = tl.load(rhs + lanes, mask=lanes < k, other=0.0)
    least = tl.full([], float("inf"), tl.float32)
    i0, least = _inverse(
        _tile(gram, side, base, ridge, share, k, c0, c0, BIASED, BASED), least, SIZE
    )
    # F_i = A_i0 A_00^-1;  A_ij <- A_ij - F_i A_j0^T;  r_i <- r_i - F_i r_0
    if N > 1:
        a10 = _tile(gram, side, base, ridge, share, k, c1, c0, BIASED, BASED)
        f10, t10 = _times(a10, i0, PRECISION), tl.trans(a10)
        a11 = _tile(gram, side, base, ridge, share, k, c1, c1, BIASED, BASED) - _times(
            f10, t10, PRECISION
        )
        i1, least = _inverse(a11, least, SIZE)
        r1 = tl.load(rhs + c1, mask=c1 < k, other=0.0)
        b1 = r1 - _left(f10, r0)
    if N > 2:
        a20 = _tile(gram, side, base, ridge, share, k, c2, c0, BIASED, BASED)
        f20, t20 = _times(a20, i0, PRECISION), tl.trans(a20)
        a21 = _tile(gram, side, base, ridge, share, k, c2, c1, BIASED, BASED) - _times(
            f20, t10, PRECISION
        )
        f21, t21 = _times(a21, i1, PRECISION), tl.trans(a21)
        a22 = _tile(gram, side, base, ridge, share, k, c2, c2, BIASED, BASED) - _times(
            f20, t20, PRECISION
        )
        i2, least = _inverse(a22 - _times(f21, t21, PRECISION), least, SIZE)
        r2 = tl.load(rhs + c2, mask=c2 < k, other=0.0)
        b2 = r2 - _left(f20, r0) - _left(f21, b1)
    if N > 3:
        a30 = _tile(gram, side, base, ridge, share, k, c3, c0, BIASED, BASED)
        f30 = _times(a30, i0, PRECISION)
        a31 = _tile(gram, side, base, ridge, share, k, c3, c1, BIASED, BASED) - _times(
            f30, t10, PRECISION
        )
        f31 = _times(a31, i1, PRECISION)
        a32 = _tile(gram, side, base, ridge, share, k, c3, c2, BIASED, BASED) - _times(
            f30, t20, PRECISION
        )
        a32 -= _times(f31, t21, PRECISION)
        f32 = _times(a32, i2, PRECISION)
        a33 = _tile(gram, side, base, ridge, share, k, c3, c3, BIASED, BASED) - _times(
            f30, tl.trans(a30), PRECISION
        )
        a33 -= _times(f31, tl.trans(a31), PRECISION)
        i3, least = _inverse(a33 - _times(f32, tl.trans(a32), PRECISION), least, SIZE)
        r3 = tl.load(rhs + c3, mask=c3 < k, other=0.0)
        u3 = _left(i3, r3 - _left(f30, r0) - _left(f31, b1) - _left(f32, b2))
        tl.store(out + c3, u3, mask=c3 < k)
    # u_i = A_ii^-1 r_i - sum_j>i F_ji^T u_j
    if N > 2:
        u2 = _left(i2, b2)
        if N > 3:
            u2 -= _below(f32, u3)
        tl.store(out + c2, u2, mask=c2 < k)
    if N > 1:
        u1 = _left(i1, b1)
        if N > 2:
            u1 -= _below(f21, u2)
        if N > 3:
            u1 -= _below(f31, u3)
        tl.store(out + c1, u1, mask=c1 < k)
    u0 = _left(i0, r0)
    if N > 1:
        u0 -= _below(f10, u1)
    if N > 2:
        u0 -= _below(f20, u2)
    if N > 3:
        u0 -= _below(f30, u3)
    tl.store(out + lanes, u0, mask=lanes < k)
    tl.debug_barrier()  # u is read again, whole
    columns = tl.arange(0, 4 * SIZE)
    u = tl.load(out + columns, mask=columns < k, other=0.0)
    gain = tl.zeros([SIZE], dtype=tl.float64)
    for j in range(0, k, SIZE):
        a = _tile(gram, side, base, ridge, share, k, j + lanes, columns, BIASED, BASED)
        own = tl.load(out + j + lanes, mask=j + lanes < k, other=0.0)
        twice = 2 * tl.load(rhs + j + lanes, mask=j + lanes < k, other=0.0)
        gain += own.to(tl.float64) * (twice - _left(a, u)).to(tl.float64)
    tl.store(gains + i, tl.sum(gain, 0))
    tl.store(pivots + i, least)


def solved_blocks(
    gram: torch.Tensor,
    rhs: torch.Tensor,
    side: torch.Tensor | None,
    base: torch.Tensor | None,
    ridge: torch.Tensor,
    share: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """u = (G + P + l I - share a a^T)^-1 r of every row by blocks, u.(r + rest) in float64, and the
    least pivot, which is not above 0 (or not a number) where a matrix is not positive definite."""
    rows, k = rhs.shape
    out, gains = torch.empty_like(rhs), torch.empty(rows, dtype=torch.float64, device=rhs.device)
    pivots, size = rhs.new_empty(rows), power_of_two(-(-k // BLOCKS))
    if rows:
        _solve[(rows,)](
            gram,
            rhs,
            rhs if side is None else side,
            rhs if base is None else base,
            ridge,
            share,
            out,
            gains,
            pivots,
            k,
            BIASED=side is not None,
            BASED=base is not None,
            SIZE=size,
            N=-(-k // size),
            PRECISION="tf32x3",
            num_warps=1,
        )
    return out, gains, pivots
