"""What the normal equations of sparse rows need, without an array of gathered rows in between.

    grams             G_i = sum_j w_ij v_j v_j^T            on tensor cores, three products of TF32 for one of float32
    weighted_images   sum_j w_ij (v_j . d_i) v_j             for conjugate gradients, where G is never formed

A program takes a piece of a row (see ``products``) and, of G, one tile on or above the diagonal.
"""

from __future__ import annotations

import torch

from eckart.engines.cuda.kernels.language import jit, power_of_two, tl
from eckart.engines.cuda.kernels.products import Pieces, join

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
def _images(
    first, last, row, line, indices, weights, right, vectors, out, k, WEIGHTED: tl.constexpr, STEP: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    piece = tl.program_id(0)
    columns = tl.arange(0, WIDTH)
    inside = columns < k
    begin, end = tl.load(first + piece), tl.load(last + piece)
    d = tl.load(vectors + tl.load(row + piece) * k + columns, mask=inside, other=0.0)
    total = tl.zeros([STEP, WIDTH], dtype=right.dtype.element_ty)
    for e in range(begin, end, STEP):
        at = e + tl.arange(0, STEP)
        seen = at < end
        j = tl.load(indices + at, mask=seen, other=0)
        v = tl.load(right + j[:, None] * k + columns[None, :], mask=seen[:, None] & inside[None, :], other=0.0)
        s = tl.sum(v * d[None, :], 1)
        if WEIGHTED:
            s = s * tl.load(weights + at, mask=seen, other=0.0)
        total += s[:, None] * v
    tl.store(out + tl.load(line + piece) * k + columns, tl.sum(total, 0), mask=inside)


def weighted_images(
    pieces: Pieces, indices: torch.Tensor, weights: torch.Tensor | None, right: torch.Tensor, vectors: torch.Tensor
) -> torch.Tensor:
    """sum_j w_ij (v_j . d_i) v_j of every row."""
    k = right.shape[1]
    out, width = right.new_empty(pieces.lines, k), power_of_two(k)
    if pieces.rows:
        _images[(len(pieces.first),)](
            pieces.first, pieces.last, pieces.row, pieces.line, indices, right if weights is None else weights, right, vectors.contiguous(), out, k,
            WEIGHTED=weights is not None, STEP=16, WIDTH=width, num_warps=min(8, max(2, width // 64)),
        )  # fmt: skip
        join(pieces, out)
    return out[: pieces.rows]


SOLVED = 128
"""Columns up to which a program can hold a matrix and eliminate in it; larger ones go by a batched Cholesky factor."""


@jit
def _matrix(gram, side, base, ridge, share, k, BIASED: tl.constexpr, BASED: tl.constexpr, WIDTH: tl.constexpr):
    """G + P + l I - a a^T / s of the row whose numbers are pointed at, with ones on the diagonal beyond k."""
    lanes = tl.arange(0, WIDTH)
    row, column = lanes[:, None], lanes[None, :]
    inside = (row < k) & (column < k)
    a = tl.load(gram + row * k + column, mask=inside, other=0.0)
    if BASED:
        a += tl.load(base + row * k + column, mask=inside, other=0.0)
    if BIASED:
        left = tl.load(side + lanes, mask=lanes < k, other=0.0)
        a -= (share * left)[:, None] * left[None, :]
    return a + tl.where(row == column, tl.where(row < k, ridge, 1.0), 0.0)


@jit
def _eliminate(
    gram, rhs, side, base, ridges, shares, out, gains, pivots, k, BIASED: tl.constexpr, BASED: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, WIDTH)
    ridge, share = tl.load(ridges + i), tl.load(shares + i)
    a = _matrix(gram + i * k * k, side + i * k, base, ridge, share, k, BIASED, BASED, WIDTH)
    r = tl.load(rhs + i * k + lanes, mask=lanes < k, other=0.0)
    b, diagonal, least = r, tl.full([WIDTH], 1.0, tl.float32), float("inf")
    for j in range(0, k):
        # what is not eliminated yet is symmetric: its row j is its column j
        column = tl.sum(tl.where(lanes[None, :] == j, a, 0.0), 1)
        pivot = tl.sum(tl.where(lanes == j, column, 0.0), 0)
        own = tl.sum(tl.where(lanes == j, b, 0.0), 0)
        least = tl.minimum(least, pivot)
        factor = tl.where(lanes == j, 0.0, column / pivot)
        a -= factor[:, None] * tl.where(lanes > j, column, 0.0)[None, :]
        b -= factor * own
        diagonal = tl.where(lanes == j, pivot, diagonal)
    u = b / diagonal
    a = _matrix(gram + i * k * k, side + i * k, base, ridge, share, k, BIASED, BASED, WIDTH)
    rest = r - tl.sum(a * u[None, :], 1)
    tl.store(out + i * k + lanes, u, mask=lanes < k)
    tl.store(gains + i, tl.sum(u.to(tl.float64) * (r + rest).to(tl.float64), 0))
    tl.store(pivots + i, least)


def eliminated(
    gram: torch.Tensor, rhs: torch.Tensor, side: torch.Tensor | None, base: torch.Tensor | None, ridge: torch.Tensor, share: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """u = (G + P + l I - share a a^T)^-1 r of every row by elimination, u.(r + rest) in float64, and the least pivot, which is not above 0 (or not a
    number) where a matrix is not positive definite."""
    rows, k = rhs.shape
    out, gains = torch.empty_like(rhs), torch.empty(rows, dtype=torch.float64, device=rhs.device)
    pivots, width = rhs.new_empty(rows), power_of_two(k)
    if rows:
        _eliminate[(rows,)](
            gram, rhs, rhs if side is None else side, rhs if base is None else base, ridge, share, out, gains, pivots, k,
            BIASED=side is not None, BASED=base is not None, WIDTH=width, num_warps=1 if width <= 32 else (4 if width <= 64 else 16),
        )  # fmt: skip
    return out, gains, pivots
