"""Multiplicative steps on the divergence for sparse rows: a program walks over the entries of a row, as often as there are steps.

    s_j = u . h_j,      up = sum_j (w_j a_j / s_j) h_j,      u <- u r,   r = 2 up / (d + sqrt(d^2 + 4 l2 u up)),   d = mass + l1

Value and violations of the optimality conditions before the first step, as in ``protocol.parts.Descent``, for each row.
"""

from __future__ import annotations

from typing import Any

import torch

from eckart.engines.cuda.kernels.language import jit, power_of_two, tl
from eckart.engines.cuda.kernels.products import Pieces

MOST = 8192
"""Numbers of H that a program keeps for all steps of a row, 64 in each of its threads. Longer rows are cut into pieces that several programs walk over; then
every step is a launch of its own."""
HELD = 2048
"""Numbers that a warp keeps: 64 in a thread."""
SHORTEST = 32
"""Entries up to which rows go together as the shortest; from there to the longest in steps of four, each of which is a kernel to compile."""
STEP = 32
"""Entries that a program gathers at once."""
LINES = 16
"""Sums of pieces of a long row that are added up at once, each in its order: one after the other they would wait for memory every time."""
FAST = 1.75
"""The power of over-relaxed factors."""


@jit
def _floored(u, down, share):
    return tl.where(down > 0, tl.maximum(u, share / tl.where(down > 0, down, 1.0)), 0.0)


@jit
def _steps(
    rows, indptr, indices, data, weights, other, start, mass, out, values, violations, k, l1, l2, power, tol, steps, least,
    WEIGHTED: tl.constexpr, OWN: tl.constexpr, LENGTH: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """All steps of a row with at most LENGTH entries, whose rows of H are gathered once."""
    i = tl.load(rows + tl.program_id(0))
    columns = tl.arange(0, WIDTH)
    inside = columns < k
    begin, end = tl.load(indptr + i), tl.load(indptr + i + 1)
    kind = other.dtype.element_ty
    at = begin + tl.arange(0, LENGTH)
    seen = at < end
    a = tl.load(data + at, mask=seen, other=0.0)
    j = tl.load(indices + at, mask=seen, other=0)
    h = tl.load(other + j[:, None] * k + columns[None, :], mask=seen[:, None] & inside[None, :], other=0.0)
    heavy = a
    if WEIGHTED:
        heavy = a * tl.load(weights + at, mask=seen, other=0.0)
    total = tl.sum(heavy, 0)
    if OWN:
        w = tl.load(weights + at, mask=seen, other=0.0) if WEIGHTED else tl.where(seen, 1.0, 0.0).to(kind)
        down = tl.sum(w[:, None] * h, 0)
    else:
        down = tl.load(mass + columns, mask=inside, other=0.0)
    down = tl.where(inside, down + l1, 0.0).to(kind)
    share = least * total
    floor = tl.maximum(total * 1e-30, 1e-37)
    u = tl.load(start + i * k + columns, mask=inside, other=0.0)
    u = _floored(u, down, share)
    step = 0
    while step < steps:
        s = tl.maximum(tl.sum(h * u[None, :], 1), floor)
        up = tl.sum((heavy / s)[:, None] * h, 0)
        if step == 0:
            logs = (heavy * (tl.log(tl.where(a > 0, a / s, 1.0)) - 1.0)).to(tl.float64)
            wide, slope = u.to(tl.float64), (down + l2 * u).to(tl.float64)
            value = tl.sum(wide * (down + 0.5 * l2 * u).to(tl.float64), 0) + tl.sum(logs, 0)
            size = tl.maximum(tl.sum(wide * slope, 0), total.to(tl.float64))
            whole = tl.where(size > 0, size, 1.0)
            rest = 1.0 - tl.where(slope > 0, up.to(tl.float64) / tl.where(slope > 0, slope, 1.0), 0.0)
            bent = tl.maximum(tl.minimum(wide * slope / whole, rest), -1.0)
            bent = tl.where(inside, bent, 0.0)
            tl.store(values + i, value)
            tl.store(violations + i, tl.where(size > 0, size * tl.sum(bent * bent, 0), 0.0))
        r = 2 * up / tl.maximum(down + tl.sqrt(down * down + 4 * l2 * u * up), 1e-37)
        if power != 1.0:
            r = tl.where(r > 0, tl.exp(power * tl.log(tl.where(r > 0, r, 1.0))), 0.0)
        new = _floored(u * r, down, share)
        moved = tl.sum(tl.abs(new - u) * down, 0)
        u = new
        step = tl.where(moved <= tol * total, steps, step + 1)
    tl.store(out + i * k + columns, u, mask=inside)


@jit
def _pulls(
    rows, first, last, row, line, indices, data, weights, other, u, mass, totals, going, out, logs, k, l1, least, FIRST: tl.constexpr, OWN: tl.constexpr,
    WEIGHTED: tl.constexpr, STEP: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    piece = tl.program_id(0)
    i, at_line = tl.load(row + piece), tl.load(line + piece)
    if tl.load(going + i) == 0:
        return
    columns = tl.arange(0, WIDTH)
    inside = columns < k
    begin, end = tl.load(first + piece), tl.load(last + piece)
    total_heavy = tl.load(totals + i)
    floor = tl.maximum(total_heavy * 1e-30, 1e-37)
    own = tl.load(u + tl.load(rows + i) * k + columns, mask=inside, other=0.0)
    if FIRST:
        down = tl.load(mass + (i * k if OWN else 0) + columns, mask=inside, other=0.0)
        own = _floored(own, tl.where(inside, down + l1, 0.0).to(own.dtype), least * total_heavy)
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
        h = tl.load(other + j[:, None] * k + columns[None, :], mask=seen[:, None] & inside[None, :], other=0.0)
        s = tl.maximum(tl.sum(h * own[None, :], 1), floor)
        total += (heavy / s)[:, None] * h
        if FIRST:
            value += (heavy * (tl.log(tl.where(a > 0, a / s, 1.0)) - 1.0)).to(tl.float64)
    tl.store(out + at_line * k + columns, tl.sum(total, 0), mask=inside)
    if FIRST:
        tl.store(logs + at_line, tl.sum(value, 0))


@jit
def _joined(
    rows, first, last, pulled, logs, u, out, mass, totals, going, values, violations, k, l1, l2, power, tol, least, FIRST: tl.constexpr,
    OWN: tl.constexpr, LINES: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The step of a long row whose pieces have been pulled; a row that moves no more stays."""
    at = tl.program_id(0)
    if tl.load(going + at) == 0:
        return
    columns = tl.arange(0, WIDTH)
    inside = columns < k
    sum_up, sum_logs = tl.zeros([LINES, WIDTH], dtype=tl.float64), tl.zeros([LINES], dtype=tl.float64)
    end = tl.load(last + at)
    for begin in range(tl.load(first + at), end, LINES):
        line = begin + tl.arange(0, LINES)
        there = line < end
        some = tl.load(pulled + line[:, None] * k + columns[None, :], mask=there[:, None] & inside[None, :], other=0.0)
        sum_up += some.to(tl.float64)
        if FIRST:
            sum_logs += tl.load(logs + line, mask=there, other=0.0)
    total = tl.load(totals + at)
    kind = pulled.dtype.element_ty
    up = tl.sum(sum_up, 0).to(kind)
    i = tl.load(rows + at)
    old = tl.load(u + i * k + columns, mask=inside, other=0.0)
    down = tl.load(mass + (at * k if OWN else 0) + columns, mask=inside, other=0.0)
    down = tl.where(inside, down + l1, 0.0).to(kind)
    if FIRST:
        old = _floored(old, down, least * total)
        wide, slope = old.to(tl.float64), (down + l2 * old).to(tl.float64)
        value = tl.sum(wide * (down + 0.5 * l2 * old).to(tl.float64), 0) + tl.sum(sum_logs, 0)
        size = tl.maximum(tl.sum(wide * slope, 0), total.to(tl.float64))
        whole = tl.where(size > 0, size, 1.0)
        rest = 1.0 - tl.where(slope > 0, up.to(tl.float64) / tl.where(slope > 0, slope, 1.0), 0.0)
        bent = tl.where(inside, tl.maximum(tl.minimum(wide * slope / whole, rest), -1.0), 0.0)
        tl.store(values + i, value)
        tl.store(violations + i, tl.where(size > 0, size * tl.sum(bent * bent, 0), 0.0))
    r = 2 * up / tl.maximum(down + tl.sqrt(down * down + 4 * l2 * old * up), 1e-37)
    if power != 1.0:
        r = tl.where(r > 0, tl.exp(power * tl.log(tl.where(r > 0, r, 1.0))), 0.0)
    new = _floored(old * r, down, least * total)
    moved = tl.sum(tl.abs(new - old) * down, 0)
    tl.store(out + i * k + columns, new, mask=inside)
    tl.store(going + at, tl.where(moved > tol * total, 1, 0))


def long_steps(
    entries: Any, rows: torch.Tensor, pieces: Pieces, totals: torch.Tensor, other: torch.Tensor, start: torch.Tensor, mass: torch.Tensor, rule: Any,
    steps: int, least: float, values: torch.Tensor, violations: torch.Tensor, out: torch.Tensor,
) -> None:  # fmt: skip
    """These rows of ``out`` (every one of several pieces) after the steps, two launches each; ``values`` and ``violations`` of the rows before the first are
    set. ``mass`` is one for all rows, or one for each of these."""
    k, width, own = other.shape[1], power_of_two(other.shape[1]), mass.ndim == 2
    pulled, logs = other.new_empty(pieces.lines, k), torch.empty(pieces.lines, dtype=torch.float64, device=out.device)
    going = torch.ones(len(rows), dtype=torch.int32, device=out.device)
    weights = entries.data if entries.weights is None else entries.weights
    l1, least = float(rule.l1), float(least)
    numbers = (k, l1, float(rule.l2), FAST if rule.fast else 1.0, float(rule.tol), least)
    for step in range(steps):
        u = start if step == 0 else out
        _pulls[(len(pieces.first),)](
            rows, pieces.first, pieces.last, pieces.row, pieces.line, entries.indices, entries.data, weights, other, u, mass, totals, going, pulled, logs, k,
            l1, least, FIRST=step == 0, OWN=own, WEIGHTED=entries.weights is not None, STEP=STEP, WIDTH=width, num_warps=_warps(width),
        )  # fmt: skip
        _joined[(len(rows),)](
            rows, pieces.long_first, pieces.long_last, pulled, logs, u, out, mass, totals, going, values, violations, *numbers, FIRST=step == 0, OWN=own,
            LINES=LINES, WIDTH=width, num_warps=4,
        )  # fmt: skip
        if (
            step % 8 == 7 and step + 1 < steps and not bool(going.any())
        ):  # asking stops the device, so it is done now and then
            break


def kl_steps(
    entries: Any, groups: list[tuple[int, torch.Tensor]], other: torch.Tensor, start: torch.Tensor, mass: torch.Tensor, rule: Any, steps: int,
    least: float, own: bool, out: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """The rows of ``out`` in ``groups`` (most entries of a row, rows) after the steps; value and violations of all rows before the first (float64; zero for
    other rows). ``own``: the mass is that of the entries of the row alone."""
    k, width = other.shape[1], power_of_two(other.shape[1])
    values, violations = (torch.zeros(len(start), dtype=torch.float64, device=start.device) for _ in range(2))
    for length, rows in groups:
        _steps[(len(rows),)](
            rows, entries.indptr, entries.indices, entries.data, entries.data if entries.weights is None else entries.weights, other, start, mass, out,
            values, violations, k, float(rule.l1), float(rule.l2), FAST if rule.fast else 1.0, float(rule.tol), steps, float(least),
            WEIGHTED=entries.weights is not None, OWN=own, LENGTH=length, WIDTH=width, num_warps=min(16, max(1, length * width // HELD)),
        )  # fmt: skip
    return values, violations


def longest(k: int) -> int:
    """Entries up to which a row keeps its rows of H in one program."""
    return max(SHORTEST, MOST // power_of_two(k))


def _warps(width: int) -> int:
    """A thread holds about 16 numbers of a block."""
    return min(8, max(2, width // 16))
