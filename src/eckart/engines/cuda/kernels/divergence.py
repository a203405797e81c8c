"""Multiplicative steps on the divergence for sparse rows: a program walks over the entries of a row, as often as there are steps.

    s_j = u . h_j,      up = sum_j (w_j a_j / s_j) h_j,      u <- u r,   r = 2 up / (d + sqrt(d^2 + 4 l2 u up)),   d = mass + l1

Value and violations of the optimality conditions before the first step, as in ``protocol.parts.Descent``, for each row.
"""

from __future__ import annotations

from typing import Any

import torch

from eckart.engines.cuda.kernels.language import jit, power_of_two, tl

SHORT = 256
"""Entries up to which a row is walked over by few threads, 32 entries at a time; longer ones by many threads, 128 at a time."""


@jit
def _floored(u, down, share):
    return tl.where(down > 0, tl.maximum(u, share / tl.where(down > 0, down, 1.0)), 0.0)


@jit
def _steps(
    rows, indptr, indices, data, weights, other, start, mass, out, values, violations, k, l1, l2, power, tol, steps, least,
    WEIGHTED: tl.constexpr, OWN: tl.constexpr, FAST: tl.constexpr, STEP: tl.constexpr, WIDTH: tl.constexpr,
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
                ratio = tl.where(a > 0, a / s, 1.0).to(tl.float64)
                logs += heavy.to(tl.float64) * (tl.log(ratio) - 1.0)
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
        if FAST:
            r = tl.where(r > 0, tl.exp(power * tl.log(tl.where(r > 0, r, 1.0))), 0.0)
        new = _floored(u * r, down, share)
        moved = tl.sum(tl.abs(new - u) * down, 0)
        u = new
        step = tl.where(moved <= tol * total, steps, step + 1)
    tl.store(out + i * k + columns, u, mask=inside)


def kl_steps(
    entries: Any, other: torch.Tensor, start: torch.Tensor, mass: torch.Tensor, rule: Any, steps: int, least: float, own: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """New rows, and value and violations of each before the first step (float64); rows without entries are left at zero. ``own``: the mass is that of the
    entries of the row alone."""
    other, start, k = other.contiguous(), start.contiguous(), other.shape[1]
    out = torch.zeros_like(start)
    values, violations = (torch.zeros(len(start), dtype=torch.float64, device=start.device) for _ in range(2))
    weights = entries.data if entries.weights is None else entries.weights
    for rows, step, warps in entries.by_length(SHORT):
        if len(rows):
            _steps[(len(rows),)](
                rows, entries.indptr, entries.indices, entries.data, weights, other, start, mass.to(other.dtype), out, values, violations,
                k, float(rule.l1), float(rule.l2), 1.75, float(rule.tol), steps, float(least), WEIGHTED=entries.weights is not None, OWN=own,
                FAST=bool(rule.fast), STEP=step, WIDTH=power_of_two(k), num_warps=warps * min(4, max(1, power_of_two(k) // 64)),
            )  # fmt: skip
    return out, values, violations
