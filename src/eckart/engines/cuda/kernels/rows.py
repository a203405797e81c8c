"""Dense rows about a centre c, read once: sums of columns, products with a vector, and rows as
pairs of half-precision numbers.

    column_sums   sum_i w_i d_ij,  sum_i w_i d_ij^2,  sum_i w_i d_ij y_i,  max_i sqrt(w_i) |d_ij|
    d_ij = x_ij - c_j
    row_dots      y_i = sum_j d_ij g_j
    halves        s_j sqrt(w_i) d_ij = h_ij + l_ij / 2048, both with 11 bits
    added         sums of float32 arrays in float64, without a wide copy of them

Sums are in float64: of some thousand rows in a program, then over programs in their order.
"""

from __future__ import annotations

import torch

from eckart.engines.cuda.kernels import usable
from eckart.engines.cuda.kernels.language import jit, power_of_two, tl

CHUNK = 2048
"""Rows of a program of ``column_sums``."""


@jit
def _column_sums(
    x,
    centre,
    weights,
    y,
    out,
    rows,
    n,
    CHUNK: tl.constexpr,
    STEP: tl.constexpr,
    WIDTH: tl.constexpr,
    WEIGHTED: tl.constexpr,
    TIMES: tl.constexpr,
):
    chunk = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = columns < n
    c = tl.load(centre + columns, mask=inside, other=0.0)
    first, square = (
        tl.zeros([STEP, WIDTH], dtype=tl.float64),
        tl.zeros([STEP, WIDTH], dtype=tl.float64),
    )
    times = tl.zeros([STEP, WIDTH], dtype=tl.float64)
    most = tl.zeros([STEP, WIDTH], dtype=x.dtype.element_ty)
    for a in range(0, CHUNK, STEP):
        i = chunk * CHUNK + a + tl.arange(0, STEP)
        there = (i < rows)[:, None] & inside[None, :]
        d = tl.load(x + i[:, None] * n + columns[None, :], mask=there, other=0.0)
        d = tl.where(there, d - c[None, :], 0.0)
        wide = d.to(tl.float64)
        heavy = wide
        size = tl.abs(d)
        if WEIGHTED:
            w = tl.load(weights + i, mask=i < rows, other=0.0)
            heavy = wide * w[:, None]
            size = size * tl.sqrt(w).to(d.dtype)[:, None]
        first += heavy
        square += heavy * wide
        if TIMES:
            times += heavy * tl.load(y + i, mask=i < rows, other=0.0)[:, None]
        most = tl.maximum(most, size)
    line = out + chunk * 4 * n + columns
    tl.store(line, tl.sum(first, 0), mask=inside)
    tl.store(line + n, tl.sum(square, 0), mask=inside)
    if TIMES:
        tl.store(line + 2 * n, tl.sum(times, 0), mask=inside)
    tl.store(line + 3 * n, tl.max(most, 0).to(tl.float64), mask=inside)


def column_sums(
    x: torch.Tensor,
    centre: torch.Tensor,
    weights: torch.Tensor | None,
    y: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sums, squares, products with ``y`` (zeros without) and largest sizes of every column, in
    float64."""
    rows, n = x.shape
    if rows and not usable(x):
        wide = (x - centre).double()
        heavy, size = (
            (wide, wide)
            if weights is None
            else (wide * weights[:, None], wide * weights.sqrt()[:, None])
        )
        times = torch.zeros_like(wide[0]) if y is None else y @ heavy
        return heavy.sum(0), (heavy * wide).sum(0), times, size.abs().amax(0)
    chunks, width = -(-rows // CHUNK), min(256, power_of_two(n))
    out = torch.zeros((max(1, chunks), 4, n), dtype=torch.float64, device=x.device)
    if rows and n:
        _column_sums[(chunks, -(-n // width))](
            x,
            centre,
            out if weights is None else weights,
            out if y is None else y,
            out,
            rows,
            n,
            CHUNK=CHUNK,
            STEP=8,
            WIDTH=width,
            WEIGHTED=weights is not None,
            TIMES=y is not None,
            num_warps=4,
        )
    sums = out[:, :3].sum(0)
    return sums[0], sums[1], sums[2], out[:, 3].amax(0)


@jit
def _row_dots(x, centre, vector, out, rows, n, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros([ROWS, WIDTH], dtype=tl.float64)
    for a in range(0, n, WIDTH):
        columns = a + tl.arange(0, WIDTH)
        inside = columns < n
        there = (i < rows)[:, None] & inside[None, :]
        d = tl.load(x + i[:, None] * n + columns[None, :], mask=there, other=0.0)
        d = d - tl.load(centre + columns, mask=inside, other=0.0)[None, :]
        total += d.to(tl.float64) * tl.load(vector + columns, mask=inside, other=0.0)[None, :]
    tl.store(out + i, tl.sum(total, 1), mask=i < rows)


def row_dots(x: torch.Tensor, centre: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    """(x_i - c).g of every row, in float64."""
    rows, n = x.shape
    if not usable(x):
        return (x - centre).double() @ vector
    out, several = torch.zeros(rows, dtype=torch.float64, device=x.device), 8
    if rows and n:
        _row_dots[(-(-rows // several),)](
            x,
            centre,
            vector,
            out,
            rows,
            n,
            ROWS=several,
            WIDTH=min(256, power_of_two(n)),
            num_warps=4,
        )
    return out


@jit
def _halves(
    x,
    centre,
    scales,
    weights,
    out,
    rows,
    n,
    m,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    WEIGHTED: tl.constexpr,
):
    i = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = columns < n
    there = (i < rows)[:, None]
    d = tl.load(x + i[:, None] * n + columns[None, :], mask=there & inside[None, :], other=0.0)
    d = tl.where(there, d - tl.load(centre + columns, mask=inside, other=0.0)[None, :], 0.0)
    if WEIGHTED:
        d = d * tl.sqrt(tl.load(weights + i, mask=i < rows, other=0.0)).to(d.dtype)[:, None]
    d = d * tl.load(scales + columns, mask=inside, other=0.0)[None, :]
    high = d.to(tl.float16)
    low = ((d - high.to(tl.float32)) * 2048.0).to(tl.float16)
    at = out + i[:, None] * (2 * m) + columns[None, :]
    tl.store(at, high, mask=there & (columns < m)[None, :])
    tl.store(at + m, low, mask=there & (columns < m)[None, :])


def halves(
    x: torch.Tensor,
    centre: torch.Tensor,
    scales: torch.Tensor,
    weights: torch.Tensor | None,
    m: int,
) -> torch.Tensor:
    """Rows of h, then of l, each with zeros up to m columns: rows x 2 m."""
    rows, n = x.shape
    if not usable(x):
        d = (
            (x - centre) * scales
            if weights is None
            else (x - centre) * weights.sqrt().to(x.dtype)[:, None] * scales
        )
        d = torch.nn.functional.pad(d, (0, m - n))
        high = d.half()
        return torch.cat([high, ((d - high.float()) * 2048.0).half()], 1)
    out = torch.empty((rows, 2 * m), dtype=torch.float16, device=x.device)
    if rows and m:
        _halves[(-(-rows // 16), -(-m // 256))](
            x,
            centre,
            scales,
            scales if weights is None else weights,
            out,
            rows,
            n,
            m,
            ROWS=16,
            WIDTH=256,
            WEIGHTED=weights is not None,
            num_warps=4,
        )
    return out


@jit
def _added(parts, out, count, size, WIDTH: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * WIDTH + tl.arange(0, WIDTH)
    inside = at < size
    total, here = tl.zeros([WIDTH], dtype=tl.float64), parts + at
    for _ in range(0, count):
        total += tl.load(here, mask=inside, other=0.0).to(tl.float64)
        here += size
    tl.store(out + at, total, mask=inside)


def added(parts: torch.Tensor) -> torch.Tensor:
    """The sum over the first axis, in float64 and in its order."""
    if not usable(parts) or len(parts) < 2:
        return parts.sum(0, dtype=torch.float64)
    out, parts = (
        torch.empty(parts.shape[1:], dtype=torch.float64, device=parts.device),
        parts.contiguous(),
    )
    if out.numel():
        _added[(-(-out.numel() // 1024),)](
            parts, out, len(parts), out.numel(), WIDTH=1024, num_warps=4
        )
    return out
