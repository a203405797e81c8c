"""Squares from the products of halves, in one walk over them: a program takes a tile of a matrix on
or below the diagonal.

G_i = b (H_i + (C_i + C_i^T) / 2048) + P + l_i I

Shares of components from logs of joint probabilities, in place: q_tz = w_t exp(l_tz - log sum_z
exp l_tz), a few rows in a program.
"""

from __future__ import annotations

import torch

from eckart.engines.cuda.kernels.language import jit, power_of_two, tl

LOW, TILE = 2048.0, 64
"""What brings a lower half to the size of an upper one, as in ``halves``; columns of a tile."""


@jit
def _add_up(
    whole, cross, back, base, ridge, n, LOW: tl.constexpr, BASED: tl.constexpr, TILE: tl.constexpr
):
    i, tile = tl.program_id(0).to(tl.int64), tl.program_id(1)
    a = 0
    while tile > a:  # the number of a tile on or below the diagonal, as (a, b)
        tile -= a + 1
        a += 1
    r, c = a * TILE + tl.arange(0, TILE), tile * TILE + tl.arange(0, TILE)
    inside = (r < n)[:, None] & (c < n)[None, :]
    own = i * n * n + r[:, None] * n + c[None, :]
    turned = tl.load(
        cross + i * n * n + c[:, None] * n + r[None, :],
        mask=(c < n)[:, None] & (r < n)[None, :],
        other=0.0,
    )
    g = tl.load(whole + own, mask=inside, other=0.0)
    g += (tl.load(cross + own, mask=inside, other=0.0) + tl.trans(turned)) * (1.0 / LOW)
    g *= tl.load(back)
    if BASED:
        g += tl.load(base + r[:, None] * n + c[None, :], mask=inside, other=0.0)
    g = tl.where(r[:, None] == c[None, :], g + tl.load(ridge + i), g)
    tl.store(whole + own, g, mask=inside)


def add_up(
    whole: torch.Tensor,
    cross: torch.Tensor,
    back: torch.Tensor,
    base: torch.Tensor | None,
    ridge: torch.Tensor,
) -> torch.Tensor:
    """The lower triangles of all G, in place of ``whole``."""
    batch, n = whole.shape[:2]
    whole, cross = whole.contiguous(), cross.contiguous()
    across = -(-n // TILE)
    if batch and n:
        _add_up[(batch, across * (across + 1) // 2)](
            whole,
            cross,
            back,
            whole if base is None else base,
            ridge.contiguous(),
            n,
            LOW=LOW,
            BASED=base is not None,
            TILE=TILE,
            num_warps=4,
        )
    return whole


MOST = 4096
"""Components up to which a program can hold a row."""


@jit
def _shared(
    logs, weights, loglik, rows, k, WEIGHTED: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr
):
    i = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    columns = tl.arange(0, WIDTH)
    whole = (i < rows)[:, None] & (columns < k)[None, :]
    at = logs + i[:, None] * k + columns[None, :]
    l = tl.load(at, mask=whole, other=-float("inf"))
    most = tl.max(l, 1)
    most = tl.where(most > -float("inf"), most, 0.0)
    e = tl.exp(l - most[:, None])
    total = tl.sum(e, 1)
    tl.store(loglik + i, most + tl.log(total), mask=i < rows)
    q = e / total[:, None]
    if WEIGHTED:
        q = q * tl.load(weights + i, mask=i < rows, other=0.0)[:, None]
    tl.store(at, q, mask=whole)


def shared(logs: torch.Tensor, weights: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """log p of each row, and shares times weights, which take the place of the logs."""
    rows, k = logs.shape
    loglik, width = logs.new_empty(rows), power_of_two(k)
    several = max(1, 1024 // width)
    if rows:
        _shared[(-(-rows // several),)](
            logs,
            logs if weights is None else weights,
            loglik,
            rows,
            k,
            WEIGHTED=weights is not None,
            ROWS=several,
            WIDTH=width,
            num_warps=4,
        )
    return loglik, logs
