"""What the normal equations of sparse rows need, without an array of gathered rows in between.

    grams             G_i = sum_j w_ij v_j v_j^T            on tensor cores, three products of TF32
    for one of float32
    weighted_images   sum_j w_ij (v_j . d_i) v_j             for conjugate gradients, where G is
    never formed

A program takes a piece of a row (see ``products``) and, of G, one tile on or above the diagonal.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from eckart.engines.cuda.kernels.language import jit, power_of_two, tl
from eckart.engines.cuda.kernels.products import ProductPieces, join

TOP, LOW = 14, 2048.0
"""As in ``halves``: the power of two that the largest number of a column takes, and what brings a
lower half to the size of an upper one."""
WIDEST = 2048
"""Columns up to which a program can hold a row of V."""


@jit
def _grams(
    first,
    last,
    line,
    indices,
    weights,
    right,
    out,
    k,
    offset,
    WEIGHTED: tl.constexpr,
    STEP: tl.constexpr,
    TILE: tl.constexpr,
):
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
        va = tl.load(
            right + j[None, :] * k + ca[:, None], mask=seen[None, :] & (ca < k)[:, None], other=0.0
        )
        vb = tl.load(
            right + j[:, None] * k + cb[None, :], mask=seen[:, None] & (cb < k)[None, :], other=0.0
        )
        if WEIGHTED:
            vb = vb * tl.load(weights + at, mask=seen, other=0.0)[:, None]
        total = tl.dot(va, vb, total, input_precision="tf32x3")
    base = out + tl.load(line + piece) * k * k
    inside = (ca < k)[:, None] & (cb < k)[None, :]
    tl.store(base + ca[:, None] * k + cb[None, :], total, mask=inside)
    if a != b:
        tl.store(base + cb[None, :] * k + ca[:, None], total, mask=inside)


def grams(
    pieces: ProductPieces,
    indices: torch.Tensor,
    weights: torch.Tensor | None,
    right: torch.Tensor,
    offset: int,
) -> torch.Tensor:
    """G of the rows of these pieces, rows x k x k in float32; pieces count entries from ``offset``
    on."""
    k = right.shape[1]
    out, tile = right.new_empty(pieces.lines, k * k), min(64 if k <= 64 else 128, power_of_two(k))
    across = -(-k // tile)
    _grams[(len(pieces.first), across * (across + 1) // 2)](
        pieces.first,
        pieces.last,
        pieces.line,
        indices,
        indices if weights is None else weights,
        right,
        out,
        k,
        offset,
        WEIGHTED=weights is not None,
        STEP=32 if tile <= 64 else 16,
        TILE=tile,
        num_warps=4 if tile <= 64 else 8,
    )
    join(pieces, out)
    return out[: pieces.rows].view(-1, k, k)


@jit
def _split_moments(
    first,
    last,
    line,
    indices,
    targets,
    pairs,
    back,
    gram,
    pull,
    side,
    sums,
    k,
    offset,
    STEP: tl.constexpr,
    TILE: tl.constexpr,
    LOW: tl.constexpr,
):
    piece = tl.program_id(0)
    columns = tl.arange(0, TILE)
    begin, end = tl.load(first + piece) + offset, tl.load(last + piece) + offset
    high, cross = tl.zeros([TILE, TILE], dtype=tl.float32), tl.zeros([TILE, TILE], dtype=tl.float32)
    pulled, bias_pull = (
        tl.zeros([STEP, TILE], dtype=tl.float32),
        tl.zeros([STEP, TILE], dtype=tl.float32),
    )
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
        bias_pull += v
        total += q.to(tl.float64)
    scale = tl.load(back + columns)
    own, inside = tl.load(line + piece), columns < k
    g = (high + (cross + tl.trans(cross)) * (1.0 / LOW)) * scale[:, None] * scale[None, :]
    tl.store(
        gram + own * k * k + columns[:, None] * k + columns[None, :],
        g,
        mask=inside[:, None] & inside[None, :],
    )
    tl.store(pull + own * k + columns, tl.sum(pulled, 0) * scale, mask=inside)
    tl.store(side + own * k + columns, tl.sum(bias_pull, 0) * scale, mask=inside)
    tl.store(sums + own, tl.sum(total, 0))


def split_moments(
    pieces: ProductPieces, indices: torch.Tensor, targets: torch.Tensor, halves: Halved, offset: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """sum_j v_j v_j^T (rows x k x k), sum_j q_j v_j, sum_j v_j in float32 and sum_j q_j in float64
    of the rows of these pieces, their entries counted from ``offset`` on, by one walk over them.
    Rows of V come as halves: of v = h + l / 2048 the products h h^T + (h l^T + l h^T) / 2048 are
    made on tensor cores."""
    k, tile, device = halves.k, halves.pairs.shape[1] // 2, targets.device
    gram, pull, side = (targets.new_empty(pieces.lines, n) for n in (k * k, k, k))
    sums = torch.empty((pieces.lines, 1), dtype=torch.float64, device=device)
    if pieces.rows:
        _split_moments[(len(pieces.first),)](
            pieces.first,
            pieces.last,
            pieces.line,
            indices,
            targets,
            halves.pairs,
            halves.back,
            gram,
            pull,
            side,
            sums,
            k,
            offset,
            STEP=32,
            TILE=tile,
            LOW=LOW,
            num_warps=4 if tile <= 64 else 8,
        )
        for lines in (gram, pull, side, sums):
            join(pieces, lines)
    rows = pieces.rows
    return gram[:rows].view(-1, k, k), pull[:rows], side[:rows], sums[:rows, 0]


class Halved(NamedTuple):
    """Rows of V times powers of two as upper halves, then lower ones, each with zeros up to a power
    of two columns; and one over these powers."""

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
    first,
    last,
    row,
    line,
    indices,
    weights,
    targets,
    right,
    vectors,
    out,
    pulls,
    k,
    WEIGHTED: tl.constexpr,
    PULLED: tl.constexpr,
    STEP: tl.constexpr,
    WIDTH: tl.constexpr,
):
    piece = tl.program_id(0)
    columns = tl.arange(0, WIDTH)
    inside = columns < k
    begin, end = tl.load(first + piece), tl.load(last + piece)
    d = tl.load(vectors + tl.load(row + piece) * k + columns, mask=inside, other=0.0)
    total, pulled = (
        tl.zeros([STEP, WIDTH], dtype=right.dtype.element_ty),
        tl.zeros([STEP, WIDTH], dtype=right.dtype.element_ty),
    )
    for e in range(begin, end, STEP):
        at = e + tl.arange(0, STEP)
        seen = at < end
        j = tl.load(indices + at, mask=seen, other=0)
        v = tl.load(
            right + j[:, None] * k + columns[None, :],
            mask=seen[:, None] & inside[None, :],
            other=0.0,
        )
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
    pieces: ProductPieces,
    indices: torch.Tensor,
    weights: torch.Tensor | None,
    right: torch.Tensor,
    vectors: torch.Tensor,
    targets: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """sum_j w_ij (v_j . d_i) v_j of every row; and, where there are targets, sum_j q_ij v_j by the
    same walk. Up to 256 columns a warp has a row to itself: with four of them, which wait for one
    another at every few entries, it takes twice as long."""
    k = right.shape[1]
    out, width = right.new_empty(pieces.lines, k), power_of_two(k)
    pulls = None if targets is None else torch.empty_like(out)
    if pieces.rows:
        _images[(len(pieces.first),)](
            pieces.first,
            pieces.last,
            pieces.row,
            pieces.line,
            indices,
            right if weights is None else weights,
            right if targets is None else targets,
            right,
            vectors.contiguous(),
            out,
            out if pulls is None else pulls,
            k,
            WEIGHTED=weights is not None,
            PULLED=targets is not None,
            STEP=8 if width <= 64 else 4,
            WIDTH=width,
            num_warps=max(1, width // 256),
        )
        join(pieces, out)
        if pulls is not None:
            join(pieces, pulls)
    return out[: pieces.rows], None if pulls is None else pulls[: pieces.rows]


@jit
def _advance(
    image,
    more,
    ridges,
    d,
    u,
    r,
    squares,
    firsts,
    k,
    FIRST: tl.constexpr,
    BASED: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """A step of conjugate gradients of a row along d, G d = image + d P + l d; FIRST: d is u, and
    what is left of r becomes the first direction."""
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
    """Rows on their way by conjugate gradients: codes, what is left of the right-hand sides,
    directions, squares of what is left now and at first."""

    u: torch.Tensor
    rest: torch.Tensor
    d: torch.Tensor
    squares: torch.Tensor
    firsts: torch.Tensor

    @classmethod
    def of(cls, u: torch.Tensor, rhs: torch.Tensor) -> Descents:
        squares, firsts = (
            torch.empty(len(u), dtype=torch.float64, device=u.device) for _ in range(2)
        )
        return cls(u.clone(), rhs.clone(), torch.empty_like(rhs), squares, firsts)

    def advance(
        self,
        image: torch.Tensor,
        more: torch.Tensor | None,
        ridge: torch.Tensor,
        first: bool = False,
    ) -> None:
        """A step with the image of d under sum_j w v v^T, and ``more`` of it; the first call takes
        the image of u and begins. A row that has arrived stays."""
        rows, k = self.u.shape
        width = power_of_two(k)
        if rows:
            _advance[(rows,)](
                image,
                image if more is None else more,
                ridge,
                self.d,
                self.u,
                self.rest,
                self.squares,
                self.firsts,
                k,
                FIRST=first,
                BASED=more is not None,
                WIDTH=width,
                num_warps=1 if width <= 256 else 4,
            )
