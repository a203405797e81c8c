"""What the normal equations of sparse rows need, without an array of gathered rows in between.

    grams             G_i = sum_j w_ij v_j v_j^T            on tensor cores, three products of TF32 for one of float32
    weighted_images   sum_j w_ij (v_j . d_i) v_j             for conjugate gradients, where G is never formed

A program takes a piece of a row (see ``products``) and, of G, one tile on or above the diagonal.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from eckart.engines.cuda.kernels.language import jit, power_of_two, tl
from eckart.engines.cuda.kernels.products import Pieces, join

TOP, LOW = 14, 2048.0
"""As in ``halves``: the power of two that the largest number of a column takes, and what brings a lower half to the size of an upper one."""
WIDEST = 2048
"""Columns up to which a program can hold a row of V."""


@jit
def _grams(
    first, last, line, indices, weights, right, out, k, offset, WEIGHTED: tl.constexpr, STEP: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    piece, tile = tl.program_id(0), tl.program_id(1)
    across = (k + TILE - 1) // TILE
    a = 0
    left_over = tile
    while left_over >= across - a:  # the number of a tile on or above the diagonal, as (a, b)
        left_over -= across - a
        a += 1
    b = a + left_over
    ca, cb = a * TILE + tl.arange(0, TILE), b * TILE + tl.arange(0, TILE)
    begin, end = tl.load(first + piece) + offset, tl.load(last + piece) + offset
    total = tl.zeros([TILE, TILE], dtype=tl.float32)
    for e in range(begin, end, STEP):
        at = e + tl.arange(0, STEP)
        seen = at < end
        j = tl.load(indices + at, mask=seen, other=0)
        va = tl.load(right + j[None, :] * k + ca[:, None], mask=seen[None, :] & (ca < k)[:, None], other=0.0)
        vb = tl.load(right + j[:, None] * k + cb[None, :], mask=seen[:, None] & (cb < k)[None, :], other=0.0)
        if WEIGHTED:
            vb = vb * tl.load(weights + at, mask=seen, other=0.0)[:, None]
        total = tl.dot(va, vb, total, input_precision="tf32x3")
    base = out + tl.load(line + piece) * k * k
    inside = (ca < k)[:, None] & (cb < k)[None, :]
    tl.store(base + ca[:, None] * k + cb[None, :], total, mask=inside)
    if a != b:
        tl.store(base + cb[None, :] * k + ca[:, None], total, mask=inside)


def grams(
    pieces: Pieces, indices: torch.Tensor, weights: torch.Tensor | None, right: torch.Tensor, offset: int
) -> torch.Tensor:
    """G of the rows of these pieces, rows x k x k in float32; pieces count entries from ``offset`` on."""
    k = right.shape[1]
    out, tile = right.new_empty(pieces.lines, k * k), min(64 if k <= 64 else 128, power_of_two(k))
    across = -(-k // tile)
    _grams[(len(pieces.first), across * (across + 1) // 2)](
        pieces.first, pieces.last, pieces.line, indices, indices if weights is None else weights, right, out, k, offset,
        WEIGHTED=weights is not None, STEP=32 if tile <= 64 else 16, TILE=tile, num_warps=4 if tile <= 64 else 8,
    )  # fmt: skip
    join(pieces, out)
    return out[: pieces.rows].view(-1, k, k)


@jit
def _split_moments(
    first, last, line, indices, targets, pairs, back, gram, pull, side, sums, k, offset, STEP: tl.constexpr, TILE: tl.constexpr, LOW: tl.constexpr,
):  # fmt: skip
    piece = tl.program_id(0)
    columns = tl.arange(0, TILE)
    begin, end = tl.load(first + piece) + offset, tl.load(last + piece) + offset
    high, cross = tl.zeros([TILE, TILE], dtype=tl.float32), tl.zeros([TILE, TILE], dtype=tl.float32)
    pulled, beside = tl.zeros([STEP, TILE], dtype=tl.float32), tl.zeros([STEP, TILE], dtype=tl.float32)
    total = tl.zeros([STEP], dtype=tl.float64)
    for e in range(begin, end, STEP):
        at = e + tl.arange(0, STEP)
        seen = at < end
        j = tl.load(indices + at, mask=seen, other=0)
        place = pairs + j[:, None] * (2 * TILE) + columns[None, :]
        h = tl.load(place, mask=seen[:, None], other=0.0)
        l = tl.load(place + TILE, mask=seen[:, None], other=0.0)
        q = tl.load(targets + at, mask=seen, other=0.0)
        turned = tl.trans(h)
        high = tl.dot(turned, h, high)
        cross = tl.dot(turned, l, cross)
        v = h.to(tl.float32) + l.to(tl.float32) * (1.0 / LOW)
        pulled += q[:, None] * v
        beside += v
        total += q.to(tl.float64)
    scale = tl.load(back + columns)
    own, inside = tl.load(line + piece), columns < k
    g = (high + (cross + tl.trans(cross)) * (1.0 / LOW)) * scale[:, None] * scale[None, :]
    tl.store(gram + own * k * k + columns[:, None] * k + columns[None, :], g, mask=inside[:, None] & inside[None, :])
    tl.store(pull + own * k + columns, tl.sum(pulled, 0) * scale, mask=inside)
    tl.store(side + own * k + columns, tl.sum(beside, 0) * scale, mask=inside)
    tl.store(sums + own, tl.sum(total, 0))


def split_moments(
    pieces: Pieces, indices: torch.Tensor, targets: torch.Tensor, halves: Halved, offset: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """sum_j v_j v_j^T (rows x k x k), sum_j q_j v_j, sum_j v_j in float32 and sum_j q_j in float64 of the rows of these pieces, their entries counted from
    ``offset`` on, by one walk over them. Rows of V come as halves: of v = h + l / 2048 the products h h^T + (h l^T + l h^T) / 2048 are made on tensor cores."""
    k, tile, device = halves.k, halves.pairs.shape[1] // 2, targets.device
    gram, pull, side = (targets.new_empty(pieces.lines, n) for n in (k * k, k, k))
    sums = torch.empty((pieces.lines, 1), dtype=torch.float64, device=device)
    if pieces.rows:
        _split_moments[(len(pieces.first),)](
            pieces.first, pieces.last, pieces.line, indices, targets, halves.pairs, halves.back, gram, pull, side, sums, k, offset,
            STEP=32, TILE=tile, LOW=LOW, num_warps=4 if tile <= 64 else 8,
        )  # fmt: skip
        for lines in (gram, pull, side, sums):
            join(pieces, lines)
    rows = pieces.rows
    return gram[:rows].view(-1, k, k), pull[:rows], side[:rows], sums[:rows, 0]


class Halved(NamedTuple):
    """Rows of V times powers of two as upper halves, then lower ones, each with zeros up to a power of two columns; and one over these powers."""

    pairs: torch.Tensor
    back: torch.Tensor
    k: int

    @classmethod
    def of(cls, v: torch.Tensor) -> Halved:
        k = v.shape[1]
        wide = torch.nn.functional.pad(v, (0, power_of_two(k) - k))
        most = wide.abs().amax(0) if len(v) else wide.new_zeros(wide.shape[1])
        scale = torch.exp2((TOP - torch.frexp(most).exponent).clamp(-100, 100).float())
        scaled = wide * scale
        high = scaled.half()
        return cls(torch.cat([high, ((scaled - high.float()) * LOW).half()], 1), 1.0 / scale, k)


@jit
def _images(
    first, last, row, line, indices, weights, targets, right, vectors, out, pulls, k, WEIGHTED: tl.constexpr, PULLED: tl.constexpr, STEP: tl.constexpr,
    WIDTH: tl.constexpr,
):  # fmt: skip
    piece = tl.program_id(0)
    columns = tl.arange(0, WIDTH)
    inside = columns < k
    begin, end = tl.load(first + piece), tl.load(last + piece)
    d = tl.load(vectors + tl.load(row + piece) * k + columns, mask=inside, other=0.0)
    total, pulled = tl.zeros([STEP, WIDTH], dtype=right.dtype.element_ty), tl.zeros([STEP, WIDTH], dtype=right.dtype.element_ty)
    for e in range(begin, end, STEP):
        at = e + tl.arange(0, STEP)
        seen = at < end
        j = tl.load(indices + at, mask=seen, other=0)
        v = tl.load(right + j[:, None] * k + columns[None, :], mask=seen[:, None] & inside[None, :], other=0.0)
        s = tl.sum(v * d[None, :], 1)
        if WEIGHTED:
            s = s * tl.load(weights + at, mask=seen, other=0.0)
        total += s[:, None] * v
        if PULLED:
            pulled += tl.load(targets + at, mask=seen, other=0.0)[:, None] * v
    own = tl.load(line + piece) * k + columns
    tl.store(out + own, tl.sum(total, 0), mask=inside)
    if PULLED:
        tl.store(pulls + own, tl.sum(pulled, 0), mask=inside)


def weighted_images(
    pieces: Pieces,
    indices: torch.Tensor,
    weights: torch.Tensor | None,
    right: torch.Tensor,
    vectors: torch.Tensor,
    targets: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """sum_j w_ij (v_j . d_i) v_j of every row; and, where there are targets, sum_j q_ij v_j by the same walk. Up to 256 columns a warp has a row to itself:
    with four of them, which wait for one another at every few entries, it takes twice as long."""
    k = right.shape[1]
    out, width = right.new_empty(pieces.lines, k), power_of_two(k)
    pulls = None if targets is None else torch.empty_like(out)
    if pieces.rows:
        _images[(len(pieces.first),)](
            pieces.first, pieces.last, pieces.row, pieces.line, indices, right if weights is None else weights, right if targets is None else targets,
            right, vectors.contiguous(), out, out if pulls is None else pulls, k, WEIGHTED=weights is not None, PULLED=targets is not None,
            STEP=8 if width <= 64 else 4, WIDTH=width, num_warps=max(1, width // 256),
        )  # fmt: skip
        join(pieces, out)
        if pulls is not None:
            join(pieces, pulls)
    return out[: pieces.rows], None if pulls is None else pulls[: pieces.rows]


@jit
def _advance(image, more, ridges, d, u, r, squares, firsts, k, FIRST: tl.constexpr, BASED: tl.constexpr, WIDTH: tl.constexpr):
    """A step of conjugate gradients of a row along d, G d = image + d P + l d; FIRST: d is u, and what is left of r becomes the first direction."""
    i = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, WIDTH)
    inside = columns < k
    at = i * k + columns
    own = tl.load((u if FIRST else d) + at, mask=inside, other=0.0)
    g = tl.load(image + at, mask=inside, other=0.0) + tl.load(ridges + i) * own
    if BASED:
        g += tl.load(more + at, mask=inside, other=0.0)
    rest = tl.load(r + at, mask=inside, other=0.0)
    if FIRST:
        rest -= g
        square = tl.sum(rest.to(tl.float64) * rest.to(tl.float64), 0)
        tl.store(firsts + i, square)
        along = rest
    else:
        before, along = tl.load(squares + i), tl.sum(own.to(tl.float64) * g.to(tl.float64), 0)
        going = (before > 1e-14 * tl.load(firsts + i)) & (along > 0)
        step = tl.where(going, before / tl.where(going, along, 1.0), 0.0).to(own.dtype)
        tl.store(u + at, tl.load(u + at, mask=inside, other=0.0) + step * own, mask=inside)
        rest -= step * g
        new = tl.sum(rest.to(tl.float64) * rest.to(tl.float64), 0)
        turn = tl.where(going, new / tl.where(going, before, 1.0), 0.0).to(own.dtype)
        square = tl.where(going, new, 0.0)
        along = rest + turn * own
    tl.store(r + at, rest, mask=inside)
    tl.store(d + at, along, mask=inside)
    tl.store(squares + i, square)


class Descents(NamedTuple):
    """Rows on their way by conjugate gradients: codes, what is left of the right-hand sides, directions, squares of what is left now and at first."""

    u: torch.Tensor
    rest: torch.Tensor
    d: torch.Tensor
    squares: torch.Tensor
    firsts: torch.Tensor

    @classmethod
    def of(cls, u: torch.Tensor, rhs: torch.Tensor) -> Descents:
        squares, firsts = (torch.empty(len(u), dtype=torch.float64, device=u.device) for _ in range(2))
        return cls(u.clone(), rhs.clone(), torch.empty_like(rhs), squares, firsts)

    def advance(self, image: torch.Tensor, more: torch.Tensor | None, ridge: torch.Tensor, first: bool = False) -> None:
        """A step with the image of d under sum_j w v v^T, and ``more`` of it; the first call takes the image of u and begins. A row that has arrived stays."""
        rows, k = self.u.shape
        width = power_of_two(k)
        if rows:
            _advance[(rows,)](
                image, image if more is None else more, ridge, self.d, self.u, self.rest, self.squares, self.firsts, k, FIRST=first,
                BASED=more is not None, WIDTH=width, num_warps=1 if width <= 256 else 4,
            )  # fmt: skip


SOLVED = 128
"""Columns up to which a program can hold the blocks of a matrix; larger ones go by a batched Cholesky factor."""
BLOCKS = 4
"""Blocks on the diagonal at the most."""


@jit
def _tile(gram, side, base, ridge, share, k, row, column, BIASED: tl.constexpr, BASED: tl.constexpr):
    """These rows and columns of G + P + l I - a a^T / s of the row whose numbers are pointed at, with ones on the diagonal beyond k."""
    inside = (row < k)[:, None] & (column < k)[None, :]
    at = row[:, None] * k + column[None, :]
    a = tl.load(gram + at, mask=inside, other=0.0)
    if BASED:
        a += tl.load(base + at, mask=inside, other=0.0)
    if BIASED:
        down = tl.load(side + row, mask=row < k, other=0.0)
        across = tl.load(side + column, mask=column < k, other=0.0)
        a -= (share * down)[:, None] * across[None, :]
    return a + tl.where(row[:, None] == column[None, :], tl.where(row < k, ridge, 1.0)[:, None], 0.0)


@jit
def _inverse(a, least, SIZE: tl.constexpr):
    """A^-1 of a symmetric matrix by sweeps, which keep it symmetric: a_jj <- -1 / p, a_ij <- a_ij / p, a_il <- a_il - a_ij a_jl / p end at -A^-1. And the
    least pivot p so far."""
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
    gram, rhs, side, base, ridges, shares, out, gains, pivots, k, BIASED: tl.constexpr, BASED: tl.constexpr, SIZE: tl.constexpr, N: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, SIZE)
    c0, c1, c2, c3 = lanes, SIZE + lanes, 2 * SIZE + lanes, 3 * SIZE + lanes
    ridge, share = tl.load(ridges + i), tl.load(shares + i)
    gram, side, rhs, out = gram + i * k * k, side + i * k, rhs + i * k, out + i * k
    r0 = tl.load(rhs + lanes, mask=lanes < k, other=0.0)
    least = tl.full([], float("inf"), tl.float32)
    i0, least = _inverse(_tile(gram, side, base, ridge, share, k, c0, c0, BIASED, BASED), least, SIZE)
    # F_i = A_i0 A_00^-1;  A_ij <- A_ij - F_i A_j0^T;  r_i <- r_i - F_i r_0
    if N > 1:
        a10 = _tile(gram, side, base, ridge, share, k, c1, c0, BIASED, BASED)
        f10, t10 = _times(a10, i0, PRECISION), tl.trans(a10)
        a11 = _tile(gram, side, base, ridge, share, k, c1, c1, BIASED, BASED) - _times(f10, t10, PRECISION)
        i1, least = _inverse(a11, least, SIZE)
        r1 = tl.load(rhs + c1, mask=c1 < k, other=0.0)
        b1 = r1 - _left(f10, r0)
    if N > 2:
        a20 = _tile(gram, side, base, ridge, share, k, c2, c0, BIASED, BASED)
        f20, t20 = _times(a20, i0, PRECISION), tl.trans(a20)
        a21 = _tile(gram, side, base, ridge, share, k, c2, c1, BIASED, BASED) - _times(f20, t10, PRECISION)
        f21, t21 = _times(a21, i1, PRECISION), tl.trans(a21)
        a22 = _tile(gram, side, base, ridge, share, k, c2, c2, BIASED, BASED) - _times(f20, t20, PRECISION)
        i2, least = _inverse(a22 - _times(f21, t21, PRECISION), least, SIZE)
        r2 = tl.load(rhs + c2, mask=c2 < k, other=0.0)
        b2 = r2 - _left(f20, r0) - _left(f21, b1)
    if N > 3:
        a30 = _tile(gram, side, base, ridge, share, k, c3, c0, BIASED, BASED)
        f30 = _times(a30, i0, PRECISION)
        a31 = _tile(gram, side, base, ridge, share, k, c3, c1, BIASED, BASED) - _times(f30, t10, PRECISION)
        f31 = _times(a31, i1, PRECISION)
        a32 = _tile(gram, side, base, ridge, share, k, c3, c2, BIASED, BASED) - _times(f30, t20, PRECISION)
        a32 -= _times(f31, t21, PRECISION)
        f32 = _times(a32, i2, PRECISION)
        a33 = _tile(gram, side, base, ridge, share, k, c3, c3, BIASED, BASED) - _times(f30, tl.trans(a30), PRECISION)
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
    gram: torch.Tensor, rhs: torch.Tensor, side: torch.Tensor | None, base: torch.Tensor | None, ridge: torch.Tensor, share: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """u = (G + P + l I - share a a^T)^-1 r of every row by blocks, u.(r + rest) in float64, and the least pivot, which is not above 0 (or not a
    number) where a matrix is not positive definite. A warp takes a matrix of up to 64 columns: nothing waits for another warp."""
    rows, k = rhs.shape
    out, gains = torch.empty_like(rhs), torch.empty(rows, dtype=torch.float64, device=rhs.device)
    pivots, size = rhs.new_empty(rows), power_of_two(-(-k // BLOCKS))
    if rows:
        _solve[(rows,)](
            gram, rhs, rhs if side is None else side, rhs if base is None else base, ridge, share, out, gains, pivots, k,
            BIASED=side is not None, BASED=base is not None, SIZE=size, N=-(-k // size), PRECISION="tf32x3", num_warps=1 if size <= 16 else 8,
        )  # fmt: skip
    return out, gains, pivots
