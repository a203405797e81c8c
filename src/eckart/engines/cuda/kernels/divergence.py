"""Multiplicative steps on the divergence for sparse rows: a step is a walk over the entries of all
rows, then one over the rows.

    s_j = u . h_j,      up = sum_j (w_j a_j / s_j) h_j,      u <- u r,   r = 2 up / (d + sqrt(d^2 +
    4 l2 u up)),   d = mass + l1

A warp has a piece of a row to itself: several of them, or one that keeps the rows of H for all
steps, wait for one another longer than H, which lies in the cache, takes to be read again. Value
and violations of the optimality conditions before the first step, as in ``protocol.parts.Descent``,
for each row.
"""

from __future__ import annotations

from typing import Any

import torch

from eckart.engines.cuda.kernels.language import jit, power_of_two, tl

PIECE = 256
"""Entries that a program walks over: a longer one would end long after all others."""
LINES = 4
"""Sums of pieces of a row that are added up at once, each in its order: one after the other they
would wait for memory every time."""
ASKED = 8
"""Steps after which it is asked whether a row still moves: asking stops the device, so it is done
now and then."""
FAST = 1.75
"""The power of over-relaxed factors."""


@jit
def _floored(u, down, share):
    return tl.where(down > 0, tl.maximum(u, share / tl.where(down > 0, down, 1.0)), 0.0)


@jit
def _pulls(
    first,
    last,
    row,
    line,
    indices,
    data,
    weights,
    other,
    u,
    mass,
    totals,
    going,
    out,
    logs,
    k,
    l1,
    least,
    FIRST: tl.constexpr,
    VALUED: tl.constexpr,
    OWN: tl.constexpr,
    WEIGHTED: tl.constexpr,
    STEP: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """up of a piece of a row and, where asked for, its part of the value."""
    piece = tl.program_id(0)
    i, at_line = tl.load(row + piece), tl.load(line + piece)
    if tl.load(going + i) == 0:
        return
    columns = tl.arange(0, WIDTH)
    inside = columns < k
    begin, end = tl.load(first + piece), tl.load(last + piece)
    whole = tl.load(totals + i)
    floor = tl.maximum(whole * 1e-30, 1e-37)
    own = tl.load(u + i * k + columns, mask=inside, other=0.0)
    if FIRST:
        down = tl.load(mass + (i * k if OWN else 0) + columns, mask=inside, other=0.0)
        own = _floored(own, tl.where(inside, down + l1, 0.0).to(own.dtype), least * whole)
    total = tl.zeros([STEP, WIDTH], dtype=other.dtype.element_ty)
    value = tl.zeros([STEP], dtype=tl.float64)
    for e in range(begin, end, STEP):
        at = e + tl.arange(0, STEP)
        seen = at < end
        j = tl.load(indices + at, mask=seen, other=0)
        a = tl.load(data + at, mask=seen, other=0.0)
        heavy = a
        if WEIGHTED:
            heavy = a * tl.load(weights + at, mask=seen, other=0.0)
        h = tl.load(
            other + j[:, None] * k + columns[None, :],
            mask=seen[:, None] & inside[None, :],
            other=0.0,
        )
        s = tl.maximum(tl.sum(h * own[None, :], 1), floor)
        total += (heavy / s)[:, None] * h
        if VALUED:
            value += (heavy * (tl.log(tl.where(a > 0, a / s, 1.0)) - 1.0)).to(tl.float64)
    tl.store(out + at_line * k + columns, tl.sum(total, 0), mask=inside)
    if VALUED:
        tl.store(logs + at_line, tl.sum(value, 0))


@jit
def _stepped(
    first,
    last,
    pulled,
    logs,
    u,
    out,
    mass,
    totals,
    going,
    values,
    violations,
    k,
    l1,
    l2,
    power,
    tol,
    least,
    FIRST: tl.constexpr,
    VALUED: tl.constexpr,
    OWN: tl.constexpr,
    LINES: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """The step of a row whose pieces have been pulled; a row that moves no more stays."""
    i = tl.program_id(0).to(tl.int64)
    if tl.load(going + i) == 0:
        return
    columns = tl.arange(0, WIDTH)
    inside = columns < k
    sum_up, sum_logs = (
        tl.zeros([LINES, WIDTH], dtype=tl.float64),
        tl.zeros([LINES], dtype=tl.float64),
    )
    end = tl.load(last + i)
    for begin in range(tl.load(first + i), end, LINES):
        line = begin + tl.arange(0, LINES)
        there = line < end
        some = tl.load(
            pulled + line[:, None] * k + columns[None, :],
            mask=there[:, None] & inside[None, :],
            other=0.0,
        )
        sum_up += some.to(tl.float64)
        if VALUED:
            sum_logs += tl.load(logs + line, mask=there, other=0.0)
    total = tl.load(totals + i)
    kind = pulled.dtype.element_ty
    up = tl.sum(sum_up, 0).to(kind)
    old = tl.load(u + i * k + columns, mask=inside, other=0.0)
    down = tl.load(mass + (i * k if OWN else 0) + columns, mask=inside, other=0.0)
    down = tl.where(inside, down + l1, 0.0).to(kind)
    if FIRST:
        old = _floored(old, down, least * total)
        wide, slope = old.to(tl.float64), (down + l2 * old).to(tl.float64)
        size = tl.maximum(tl.sum(wide * slope, 0), total.to(tl.float64))
        whole = tl.where(size > 0, size, 1.0)
        rest = 1.0 - tl.where(slope > 0, up.to(tl.float64) / tl.where(slope > 0, slope, 1.0), 0.0)
        bent = tl.where(inside, tl.maximum(tl.minimum(wide * slope / whole, rest), -1.0), 0.0)
        tl.store(
            values + i,
            tl.sum(wide * (down + 0.5 * l2 * old).to(tl.float64), 0) + tl.sum(sum_logs, 0),
        )
        tl.store(violations + i, tl.where(size > 0, size * tl.sum(bent * bent, 0), 0.0))
    r = 2 * up / tl.maximum(down + tl.sqrt(down * down + 4 * l2 * old * up), 1e-37)
    if power != 1.0:
        r = tl.where(r > 0, tl.exp(power * tl.log(tl.where(r > 0, r, 1.0))), 0.0)
    new = _floored(old * r, down, least * total)
    moved = tl.sum(tl.abs(new - old) * down, 0)
    tl.store(out + i * k + columns, new, mask=inside)
    tl.store(going + i, tl.where(moved > tol * total, 1, 0))


def kl_steps(
    entries: Any,
    totals: torch.Tensor,
    other: torch.Tensor,
    start: torch.Tensor,
    mass: torch.Tensor,
    rule: Any,
    steps: int,
    least: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """All rows after the steps, two launches each; values and violations (2 x rows) before the
    first, in float64 (without the entries' part of the value where it is not asked for). ``totals``
    are sums of w a of the rows, ``mass`` is one for all rows, or one for each."""
    k, width, own = other.shape[1], power_of_two(other.shape[1]), mass.ndim == 2
    pieces, first, last = entries.lines(PIECE)
    out, pulled = torch.empty_like(start), other.new_empty(pieces.lines, k)
    both, logs = (
        torch.empty(shape, dtype=torch.float64, device=out.device)
        for shape in ((2, len(start)), pieces.lines)
    )
    going = torch.ones(len(start), dtype=torch.int32, device=out.device)
    weights = entries.data if entries.weights is None else entries.weights
    l1, least = float(rule.l1), float(least)
    numbers = (k, l1, float(rule.l2), FAST if rule.fast else 1.0, float(rule.tol), least)
    for step in range(steps if start.numel() else 0):
        u, kinds = (
            start if step == 0 else out,
            {"FIRST": step == 0, "VALUED": step == 0 and rule.valued, "OWN": own, "WIDTH": width},
        )
        _pulls[(len(pieces.first),)](
            pieces.first,
            pieces.last,
            pieces.row,
            pieces.line,
            entries.indices,
            entries.data,
            weights,
            other,
            u,
            mass,
            totals,
            going,
            pulled,
            logs,
            k,
            l1,
            least,
            **kinds,
            WEIGHTED=entries.weights is not None,
            STEP=8 if width <= 64 else 4,
            num_warps=max(1, width // 256),
        )
        _stepped[(len(start),)](
            first,
            last,
            pulled,
            logs,
            u,
            out,
            mass,
            totals,
            going,
            both[0],
            both[1],
            *numbers,
            **kinds,
            LINES=LINES,
            num_warps=max(1, width // 256),
        )
        if step % ASKED == ASKED - 1 and step + 1 < steps and not bool(going.any()):
            break
    return out, both
