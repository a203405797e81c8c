"""Coordinate descent over u >= 0 on a device: rows with a matrix of their own each (``hals_seen``
of what is seen, and the ridge problems of non-negative ``ALS``), and rows that share one.

    minimise 1/2 u^T G_i u - r_i.u:      u_c <- max(0, u_c - (G u - r)_c / G_cc),   c = 1..k, again
    and again

The matrices are those of ``normal_equations``; coordinates move in float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from eckart.engines.cuda.arrays import DeviceArray, promised
from eckart.engines.cuda.dense import entry_product
from eckart.engines.cuda.kernels import usable
from eckart.engines.cuda.kernels.coordinates import descend, settle
from eckart.engines.cuda.known import Known, row_sums
from eckart.engines.cuda.normal_equations import Moments, System, heavy_rows, moments
from eckart.engines.cuda.sampled import at_entries
from eckart.engines.cuda.stored import MOST_ROWS, padded_rows
from eckart.engines.protocol import Descent

PASSES, STILL = 200, 1e-6
"""Sweeps over the coordinates at the most, and the share of the largest coordinate by which none
may move in the last one, as on the CPU engine."""
ASKED = 4
"""Sweeps after which the host asks whether a row still moves, where no kernel asks for itself."""


class DeviceNonnegative:
    """Coordinate descent over the seen entries of every row."""

    device: torch.device
    tensor: Any
    held: Any
    known: Any

    def hals_seen(
        self,
        x: Any,
        other: Any,
        start: Any,
        *,
        l1: float = 0.0,
        l2: float = 0.0,
        sweeps: int = 1,
        shrink: float = 0.0,
    ) -> Descent:
        """Objective and violations from the residuals themselves. No row stops early."""
        x = self.held(x)
        u, h = self.tensor(start), self.tensor(other, start.dtype)
        facts = self.known(x, start.dtype)
        w, y, _ = facts.flat()
        rest = y - at_entries(facts.entries, u, h)
        heavy = rest if w is None else w * rest
        wide = u.double()
        value = 0.5 * row_sums(facts.entries, heavy.double() * rest.double()) + (
            l1 * wide + 0.5 * l2 * wide * wide
        ).sum(1)
        slope = l1 + l2 * wide - entry_product(facts.entries, heavy, h).double()
        curvature = (
            entry_product(
                facts.entries, torch.ones_like(heavy) if w is None else w.to(h.dtype), h * h
            ).double()
            + l2
        )
        kkt = (curvature * torch.minimum(wide, slope / curvature.clamp(min=1e-30)) ** 2).sum(1)
        level = torch.stack([value, kkt])
        level = level.sum(1) if x.weights is None else level @ x.weights
        if not sweeps:
            return Descent(DeviceArray(u), *promised(level))
        new = (
            (wide - slope / curvature.clamp(min=1e-30)).clamp(min=0).to(u.dtype)
        )  # that is all for rows without entries
        for rows, own in _row_moments(facts, h, False):
            own.gram.diagonal(dim1=1, dim2=2).add_(l2)
            inverse = 1 / own.gram.diagonal(dim1=1, dim2=2).double().clamp(min=1e-30)
            new[rows] = settled(
                own.gram, own.rhs.double() - l1, u[rows].double(), inverse, sweeps
            ).to(u.dtype)
        return Descent(DeviceArray(new), *promised(level))


def nonnegative_rows(
    facts: Known, v: torch.Tensor, system: System, start: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """Codes, biases and the objective of all rows at the solution over u >= 0; a coordinate without
    curvature is zero, and so are rows without entries."""
    k, count, biased = v.shape[1], len(facts.entries.counts), system.bias_ridge is not None
    left, bias = v.new_zeros(count, k), v.new_zeros(count) if biased else None
    _, y, q = facts.flat()
    value = 0.5 * (q.double() * y.double()).sum()
    for rows, own in _row_moments(facts, v, biased):
        a = own.gram.double() if system.base is None else own.gram.double() + system.base
        a.diagonal(dim1=1, dim2=2).add_(system.ridge[rows][:, None])
        r, gain = own.rhs.double(), torch.zeros((), dtype=torch.float64, device=v.device)
        floor = 16 * torch.finfo(v.dtype).eps * a.diagonal(dim1=1, dim2=2).amax(1, keepdim=True)
        side, inverse = own.side, own.pull
        if side is not None and system.bias_ridge is not None:
            side, slack = side.double(), own.weight + system.bias_ridge[rows]
            inverse = torch.where(slack > 0, 1 / torch.where(slack > 0, slack, 1.0), 0.0)
            a -= (side * inverse[:, None])[:, :, None] * side[:, None, :]
            r = r - side * (own.pull * inverse)[:, None]
        d = a.diagonal(dim1=1, dim2=2)
        bent = d > floor
        start_rows = torch.zeros_like(r) if start is None else start[rows].double().clamp(min=0)
        u = settled(
            a,
            r,
            torch.where(bent, start_rows, 0.0),
            torch.where(bent, 1 / torch.where(bent, d, 1.0), 0.0),
            PASSES,
            STILL,
        )
        gain = (u * (2 * r - torch.bmm(a, u[:, :, None])[:, :, 0])).sum()
        left[rows] = u.to(v.dtype)
        if side is not None and bias is not None:
            bias[rows] = ((own.pull - (side * u).sum(1)) * inverse).to(v.dtype)
            gain = gain + (own.pull**2 * inverse).sum()
        value = value - 0.5 * gain
    return left, bias, value


def _row_moments(facts: Known, v: torch.Tensor, biased: bool) -> Iterator[tuple[Any, Moments]]:
    """Rows and their moments, by kernels or by batches of padded rows (those without entries are in
    none)."""
    k, e = v.shape[1], facts.entries
    if usable(v) and v.dtype == torch.float32:
        w, _, q = facts.flat()
        yield from moments(
            facts,
            v.contiguous(),
            w,
            q,
            biased,
            max(1, min(MOST_ROWS, e.room.chunk // (32 * (k + 1) ** 2))),
        )
        return
    below = padded_rows(v, biased)
    for chunk in e.chunks(k + biased, 4 * (k + 1) ** 2):
        w, _, q = facts.at(chunk)
        w, q = None if w is None else w.to(v.dtype), q.to(v.dtype)
        seen = chunk.seen if w is None else w
        heavy, pulls = heavy_rows(below[chunk.columns], w, q)
        heavy = chunk.pieces(heavy)
        gram = chunk.whole(torch.bmm(heavy.mT, heavy))
        rhs = chunk.whole(torch.bmm(heavy.mT, pulls.reshape(len(heavy), -1, 1)))[:, :k, 0]
        sums = q.sum(1, dtype=torch.float64), seen.sum(1, dtype=torch.float64)
        yield chunk.rows, Moments(gram[:, :k, :k], rhs, gram[:, k, :k] if biased else None, *sums)


def settled(
    gram: torch.Tensor,
    pull: torch.Tensor,
    start: torch.Tensor,
    inverse: torch.Tensor,
    sweeps: int,
    still: float = 0.0,
) -> torch.Tensor:
    """u after so many sweeps, or when no coordinate of a row moves by more than a share ``still``
    of its largest; ``inverse`` is 1 / G_cc, 0 for a coordinate that stays. Beside ``gram`` all is
    in float64."""
    if usable(gram):
        return settle(gram, pull, start, inverse, sweeps, still)
    wide, u = gram.double(), start.clone()
    slope = torch.bmm(wide, u[:, :, None])[:, :, 0] - pull
    for s in range(sweeps):
        before = u.clone() if still else u
        for c in range(u.shape[1]):
            new = (u[:, c] - slope[:, c] * inverse[:, c]).clamp(min=0)
            slope += (new - u[:, c])[:, None] * wide[:, c]
            u[:, c] = new
        if (
            still
            and s % ASKED == ASKED - 1
            and not bool(((u - before).abs().amax(1) > still * u.amax(1)).any())
        ):
            break
    return u


def coordinates(
    gram: torch.Tensor,
    pull: torch.Tensor,
    l1: float,
    start: torch.Tensor,
    sweeps: int,
    w: torch.Tensor | None,
    shrink: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Coordinate descent on 1/2 u^T G u - (p - l1).u over u >= 0 in all rows; the objective and the
    violations before it, summed."""
    if usable(start):
        new, value, kkt = descend(gram, pull, l1, start, sweeps, shrink)
        both = torch.stack([value, kkt])
        return new, both.sum(1) if w is None else both @ w
    pull = pull - l1
    diagonal = gram.diagonal().clamp(min=1e-30)
    wide, p = start.double(), pull.double()
    slope = wide @ gram - p
    both = torch.stack(
        [
            0.5 * (wide * (slope - p)).sum(1),
            (gram.diagonal() * torch.minimum(wide, slope / diagonal) ** 2).sum(1),
        ]
    )
    # by columns: a coordinate of all rows lies together in memory
    u, target = start.T.clone(memory_format=torch.contiguous_format), pull.T.contiguous()
    g, inverse = gram.to(u.dtype), (1 / diagonal).to(u.dtype)
    for _ in range(sweeps):
        for c in range(len(u)):
            u[c] = (u[c] - (g[c] @ u - target[c]) * inverse[c]).clamp_(min=0)
    return u.T.contiguous(), both.sum(1) if w is None else both @ w
