"""Coordinate descent over u >= 0 on a device, for rows with a matrix of their own each: ``hals_seen``
of what is observed, and the ridge problems of non-negative ``ALS``.

    minimise 1/2 u^T G_i u - r_i.u:      u_c <- max(0, u_c - (G u - r)_c / G_cc),   c = 1..k, again
    and again

The matrices are those of ``normal_equations``; coordinates move in float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from eckart.engines.cuda.held import MOST_ROWS, padded_rows
from eckart.engines.cuda.kernels import usable
from eckart.engines.cuda.kernels.coordinates import settle
from eckart.engines.cuda.normal_equations import NormalMoments, System, heavy_rows, moments
from eckart.engines.cuda.triangles import Known

PASSES, STILL = 200, 1e-6
"""Sweeps over the coordinates at the most, and the share of the largest coordinate by which none
may move in the last one, as on the CPU engine."""
ASKED = 4
"""Sweeps after which the host asks whether a row still moves, where no kernel asks for itself."""


def nonnegative_rows(
    facts: Known, v: torch.Tensor, system: System, start: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """Codes, biases and the objective of all rows at the solution over u >= 0; a coordinate without
    curvature is zero, and so are rows without entries."""
    k, count, biased = v.shape[1], len(facts.entries.counts), system.bias_ridge is not None
    left, bias = v.new_zeros(count, k), v.new_zeros(count) if biased else None
    _, y, q = facts.flat()
    value = 0.5 * (q.double() * y.double()).sum()
    for rows, own in row_moments(facts, v, biased):
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


def row_moments(facts: Known, v: torch.Tensor, biased: bool) -> Iterator[tuple[Any, NormalMoments]]:
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
        yield (
            chunk.rows,
            NormalMoments(gram[:, :k, :k], rhs, gram[:, k, :k] if biased else None, *sums),
        )


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
