"""Coordinate descent over u >= 0. With one matrix for all rows a program holds some rows and walks
over their coordinates; ``settle`` has one for each.

    minimise 1/2 u^T G u - p.u:      u_c <- max(0, u_c - (g_c . u - p_c) / G_cc),   c = 1..k, again
    and again

Objective and violations of the optimality conditions before it (``protocol.parts.Descent``) are
measured in float64. A program ends early when no row of it moves by more than a share ``shrink`` of
its first sweep (squared).
"""

from __future__ import annotations

import torch

from eckart.engines.cuda.kernels.language import jit, power_of_two, tl


@jit
def _descend(
    gram,
    wide_gram,
    pull,
    start,
    out,
    values,
    violations,
    rows,
    k,
    l1,
    sweeps,
    shrink,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    i = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    columns = tl.arange(0, WIDTH)
    there = i < rows
    whole = there[:, None] & (columns < k)[None, :]
    u = tl.load(start + i[:, None] * k + columns[None, :], mask=whole, other=0.0)
    value, violated, wide = (
        tl.zeros([ROWS], dtype=tl.float64),
        tl.zeros([ROWS], dtype=tl.float64),
        u.to(tl.float64),
    )
    for c in range(0, k):
        g = tl.load(wide_gram + c * k + columns, mask=columns < k, other=0.0)
        curvature = tl.load(wide_gram + c * k + c)
        p = (tl.load(pull + i * k + c, mask=there, other=0.0) - l1).to(tl.float64)
        old = tl.sum(tl.where((columns == c)[None, :], wide, 0.0), 1)
        slope = tl.sum(wide * g[None, :], 1) - p
        bent = tl.minimum(old, slope / tl.maximum(curvature, 1e-30))
        value += 0.5 * old * (slope - p)
        violated += curvature * bent * bent
    tl.store(values + i, value, mask=there)
    tl.store(violations + i, violated, mask=there)
    first = tl.zeros([ROWS], dtype=u.dtype)
    sweep = 0
    while sweep < sweeps:
        change = tl.zeros([ROWS], dtype=u.dtype)
        for c in range(0, k):
            g = tl.load(gram + c * k + columns, mask=columns < k, other=0.0)
            diagonal = tl.maximum(tl.load(gram + c * k + c), 1e-30)
            p = tl.load(pull + i * k + c, mask=there, other=0.0) - l1
            at = columns == c
            old = tl.sum(tl.where(at[None, :], u, 0.0), 1)
            new = tl.maximum(old - (tl.sum(u * g[None, :], 1) - p) / diagonal, 0.0)
            change += (new - old) * (new - old)
            u = tl.where(at[None, :], new[:, None], u)
        first = tl.where(sweep == 0, change, first)
        going = tl.sum(tl.where(change > shrink * first, 1, 0), 0)
        sweep = tl.where((shrink > 0) & (going == 0), sweeps, sweep + 1)
    tl.store(out + i[:, None] * k + columns[None, :], u, mask=whole)


def descend(
    gram: torch.Tensor,
    pull: torch.Tensor,
    l1: float,
    start: torch.Tensor,
    sweeps: int,
    shrink: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The rows after at most that many sweeps over their coordinates, p being ``pull`` less ``l1``;
    objective and violations of each before (``gram`` and these are in float64)."""
    rows, k = start.shape
    out, width = torch.empty_like(start, memory_format=torch.contiguous_format), power_of_two(k)
    values, violations = (
        torch.zeros(rows, dtype=torch.float64, device=start.device) for _ in range(2)
    )
    if start.numel():
        several = max(1, min(32, 1024 // width))  # a thread holds 32 numbers
        _descend[(-(-rows // several),)](
            gram.to(start.dtype).contiguous(),
            gram.contiguous(),
            pull.contiguous(),
            start.contiguous(),
            out,
            values,
            violations,
            rows,
            k,
            float(l1),
            sweeps,
            float(shrink),
            ROWS=several,
            WIDTH=width,
            num_warps=2 if width <= 64 else 4,
        )
    return out, values, violations


@jit
def _settle(gram, pull, start, inverse, out, k, sweeps, still, WIDTH: tl.constexpr):
    i, columns = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH)
    there, own = columns < k, gram + i * k * k
    u = tl.load(start + i * k + columns, mask=there, other=0.0)
    slope = -tl.load(pull + i * k + columns, mask=there, other=0.0)
    each = tl.load(inverse + i * k + columns, mask=there, other=0.0)
    for c in range(0, k):
        g = tl.load(own + c * k + columns, mask=there, other=0.0).to(tl.float64)
        slope += tl.sum(tl.where(columns == c, u, 0.0), 0) * g
    sweep = 0
    while sweep < sweeps:
        moved = tl.max(tl.where(columns < 0, u, 0.0), 0)
        for c in range(0, k):
            at = columns == c
            old = tl.sum(tl.where(at, u, 0.0), 0)
            new = tl.maximum(old - tl.sum(tl.where(at, slope * each, 0.0), 0), 0.0)
            slope += (new - old) * tl.load(own + c * k + columns, mask=there, other=0.0).to(
                tl.float64
            )
            u = tl.where(at, new, u)
            moved = tl.maximum(moved, tl.abs(new - old))
        sweep = tl.where((still > 0) & (moved <= still * tl.max(u, 0)), sweeps, sweep + 1)
    tl.store(out + i * k + columns, u, mask=there)


def settle(
    gram: torch.Tensor,
    pull: torch.Tensor,
    start: torch.Tensor,
    inverse: torch.Tensor,
    sweeps: int,
    still: float,
) -> torch.Tensor:
    """The same with a matrix for each row and one row in a program, in float64 (``gram`` may be in
    float32): until no coordinate moves by more than a share ``still`` of the largest, or so many
    sweeps. ``inverse`` is 1 / G_cc, or 0 where a coordinate is to stay."""
    rows, k = start.shape
    out, width = torch.empty_like(start, memory_format=torch.contiguous_format), power_of_two(k)
    if start.numel():
        numbers = (a.contiguous() for a in (gram, pull, start, inverse))
        _settle[(rows,)](
            *numbers, out, k, sweeps, float(still), WIDTH=width, num_warps=1 if width <= 64 else 4
        )
    return out
