"""Multiplicative steps on the divergence for sparse rows: a program walks over the entries of a row, as often as there are steps.

    s_j = u . h_j,      up = sum_j (w_j a_j / s_j) h_j,      u <- u r,   r = 2 up / (d + sqrt(d^2 + 4 l2 u up)),   d = mass + l1

Value and violations of the optimality conditions before the first step, as in ``protocol.parts.Descent``, for each row.
"""

from __future__ import annotations

from typing import Any

import torch

from eckart.engines.cuda.kernels.language import jit, power_of_two, tl
from eckart.engines.cuda.kernels.products import Pieces

LONG = 512
"""Entries from which a row is cut into pieces that several programs walk over; then every step is a launch of its own."""
STEP = 32
"""Entries that a program gathers at once."""
FAST = 1.75
"""The power of over-relaxed factors."""


@jit
def _floored(u, down, share):
    return tl.where(down > 0, tl.maximum(u, share / tl.where(down > 0, down, 1.0)), 0.0)


@jit
def _steps(
    rows, indptr, indices, data, weights, other, start, mass, out, values, violations, k, l1, l2, power, tol, steps, least,
    WEIGHTED: tl.constexpr, OWN: tl.constexpr, STEP: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    i = tl.load(rows + tl.program_id(0))
    columns = tl.arange(0, WIDTH)
    inside = columns < k
    begin, end = tl.load(indptr + i), tl.load(indptr + i + 1)
    kind = other.dtype.element_ty
    heavy_sum, own = tl.zeros([STEP], dtype=kind), tl.zeros([STEP, WIDTH], dtype=kind)
    for e in range(begin, end, STEP):
        at = e + tl.arange(0, STEP)
        seen = at < end
        a = tl.load(data + at, mask=seen, other=0.0)
        w = tl.load(weights + at, mask=seen, other=0.0) if WEIGHTED else tl.where(seen, 1.0, 0.0).to(kind)
        heavy_sum += w * a
        if OWN:
            j = tl.load(indices + at, mask=seen, other=0)
            h = tl.load(other + j[:, None] * k + columns[None, :], mask=seen[:, None] & inside[None, :], other=0.0)
            own += w[:, None] * h
    total = tl.sum(heavy_sum, 0)
    down = tl.sum(own, 0) if OWN else tl.load(mass + columns, mask=inside, other=0.0)
    down = tl.where(inside, down + l1, 0.0).to(kind)
    share = least * total
    floor = tl.maximum(total * 1e-30, 1e-37)
    u = tl.load(start + i * k + columns, mask=inside, other=0.0)
    u = _floored(u, down, share)
    step = 0
    while step < steps:
        logs = tl.zeros([STEP], dtype=tl.float64)
        pulled = tl.zeros([STEP, WIDTH], dtype=kind)
        for e in range(begin, end, STEP):
            at = e + tl.arange(0, STEP)
            seen = at < end
            j = tl.load(indices + at, mask=seen, other=0)
            a = tl.load(data + at, mask=seen, other=0.0)
            heavy = a
            if WEIGHTED:
                heavy = a * tl.load(weights + at, mask=seen, other=0.0)
            h = tl.load(other + j[:, None] * k + columns[None, :], mask=seen[:, None] & inside[None, :], other=0.0)
            s = tl.maximum(tl.sum(h * u[None, :], 1), floor)
            pulled += (heavy / s)[:, None] * h
            if step == 0:
                logs += (heavy * (tl.log(tl.where(a > 0, a / s, 1.0)) - 1.0)).to(tl.float64)
        up = tl.sum(pulled, 0)
        if step == 0:
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
    first, last, row, line, indices, data, weights, other, u, floors, going, out, logs, k, VALUED: tl.constexpr, WEIGHTED: tl.constexpr,
    STEP: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    piece = tl.program_id(0)
    i, at_line = tl.load(row + piece), tl.load(line + piece)
    if tl.load(going + i) == 0:
        return
    columns = tl.arange(0, WIDTH)
    inside = columns < k
    begin, end = tl.load(first + piece), tl.load(last + piece)
    own, floor = tl.load(u + i * k + columns, mask=inside, other=0.0), tl.load(floors + i)
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
        if VALUED:
            value += (heavy * (tl.log(tl.where(a > 0, a / s, 1.0)) - 1.0)).to(tl.float64)
    tl.store(out + at_line * k + columns, tl.sum(total, 0), mask=inside)
    if VALUED:
        tl.store(logs + at_line, tl.sum(value, 0))


@jit
def _joined(
    rows, first, last, pulled, logs, u, mass, totals, going, values, violations, k, l1, l2, power, tol, least, FIRST: tl.constexpr, OWN: tl.constexpr,
    WIDTH: tl.constexpr,
):  # fmt: skip
    """The step of a long row whose pieces have been pulled; a row that moves no more stays."""
    at = tl.program_id(0)
    if tl.load(going + at) == 0:
        return
    columns = tl.arange(0, WIDTH)
    inside = columns < k
    sum_up, sum_logs = tl.zeros([WIDTH], dtype=tl.float64), tl.zeros([1], dtype=tl.float64)
    for line in range(tl.load(first + at), tl.load(last + at)):
        sum_up += tl.load(pulled + line * k + columns, mask=inside, other=0.0).to(tl.float64)
        if FIRST:
            sum_logs += tl.load(logs + line)
    total = tl.load(totals + at)
    kind = pulled.dtype.element_ty
    up = sum_up.to(kind)
    own = u + at * k + columns
    old = tl.load(own, mask=inside, other=0.0)
    down = tl.load(mass + (at * k if OWN else 0) + columns, mask=inside, other=0.0)
    down = tl.where(inside, down + l1, 0.0).to(kind)
    if FIRST:
        wide, slope = old.to(tl.float64), (down + l2 * old).to(tl.float64)
        value = tl.sum(wide * (down + 0.5 * l2 * old).to(tl.float64), 0) + tl.sum(sum_logs, 0)
        size = tl.maximum(tl.sum(wide * slope, 0), total.to(tl.float64))
        whole = tl.where(size > 0, size, 1.0)
        rest = 1.0 - tl.where(slope > 0, up.to(tl.float64) / tl.where(slope > 0, slope, 1.0), 0.0)
        bent = tl.where(inside, tl.maximum(tl.minimum(wide * slope / whole, rest), -1.0), 0.0)
        i = tl.load(rows + at)
        tl.store(values + i, value)
        tl.store(violations + i, tl.where(size > 0, size * tl.sum(bent * bent, 0), 0.0))
    r = 2 * up / tl.maximum(down + tl.sqrt(down * down + 4 * l2 * old * up), 1e-37)
    if power != 1.0:
        r = tl.where(r > 0, tl.exp(power * tl.log(tl.where(r > 0, r, 1.0))), 0.0)
    new = _floored(old * r, down, least * total)
    moved = tl.sum(tl.abs(new - old) * down, 0)
    tl.store(own, new, mask=inside)
    tl.store(going + at, tl.where(moved > tol * total, 1, 0))


def long_steps(
    entries: Any, rows: torch.Tensor, pieces: Pieces, totals: torch.Tensor, other: torch.Tensor, u: torch.Tensor, mass: torch.Tensor, rule: Any, steps: int,
    least: float, values: torch.Tensor, violations: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    """``u`` (of these rows, every one of several pieces) after the steps, two launches each; ``values`` and ``violations`` of the rows before the first are
    set. ``mass`` is one for all rows, or one for each."""
    k, width, own = other.shape[1], power_of_two(other.shape[1]), mass.ndim == 2
    pulled, logs = other.new_empty(pieces.lines, k), torch.empty(pieces.lines, dtype=torch.float64, device=u.device)
    going = torch.ones(len(rows), dtype=torch.int32, device=u.device)
    floors, u = (1e-30 * totals).clamp(min=1e-37), u.contiguous()
    numbers = (k, float(rule.l1), float(rule.l2), FAST if rule.fast else 1.0, float(rule.tol), float(least))
    for step in range(steps):
        _pulls[(len(pieces.first),)](
            pieces.first, pieces.last, pieces.row, pieces.line, entries.indices, entries.data, entries.data if entries.weights is None else entries.weights,
            other, u, floors, going, pulled, logs, k, VALUED=step == 0, WEIGHTED=entries.weights is not None, STEP=STEP, WIDTH=width,
            num_warps=_warps(width),
        )  # fmt: skip
        _joined[(len(rows),)](
            rows, pieces.long_first, pieces.long_last, pulled, logs, u, mass, totals, going, values, violations, *numbers, FIRST=step == 0, OWN=own,
            WIDTH=width, num_warps=1,
        )  # fmt: skip
        if step % 8 == 7 and not bool(going.any()):  # asking stops the device, so it is done now and then
            break
    return u


def kl_steps(
    entries: Any, rows: torch.Tensor, other: torch.Tensor, start: torch.Tensor, mass: torch.Tensor, rule: Any, steps: int, least: float, own: bool,
    out: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """These rows of ``out`` after the steps; value and violations of all rows before the first (float64; zero for other rows). ``own``: the mass is that of
    the entries of the row alone."""
    k, width = other.shape[1], power_of_two(other.shape[1])
    values, violations = (torch.zeros(len(start), dtype=torch.float64, device=start.device) for _ in range(2))
    if len(rows):
        _steps[(len(rows),)](
            rows, entries.indptr, entries.indices, entries.data, entries.data if entries.weights is None else entries.weights, other, start, mass, out,
            values, violations, k, float(rule.l1), float(rule.l2), FAST if rule.fast else 1.0, float(rule.tol), steps, float(least),
            WEIGHTED=entries.weights is not None, OWN=own, STEP=STEP, WIDTH=width, num_warps=_warps(width),
        )  # fmt: skip
    return values, violations


def _warps(width: int) -> int:
    """A thread holds about 16 numbers of a block."""
    return min(8, max(2, width // 16))
