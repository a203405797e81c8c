"""Shares of documents at given topics: a program walks over the words of a document, as often as
there are steps.

    s_w = theta . phi_w,      theta <- (theta sum_w (c_w / s_w) phi_w + prior) / sum

The ratios c_w / s_w of the last step, its log-likelihood and the tokens that it is of are left for
the counts of words by topic.
"""

from __future__ import annotations

import torch

from eckart.engines.cuda.kernels.language import jit, power_of_two, tl

STEP = 32
"""Words that a program gathers at once."""


@jit
def _pulled(
    begin,
    end,
    indices,
    data,
    phi,
    theta,
    columns,
    inside,
    k,
    STEP: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """sum_w (c_w / s_w) phi_w."""
    total = tl.zeros([STEP, WIDTH], dtype=phi.dtype.element_ty)
    for e in range(begin, end, STEP):
        at = e + tl.arange(0, STEP)
        seen = at < end
        j = tl.load(indices + at, mask=seen, other=0)
        c = tl.load(data + at, mask=seen, other=0.0)
        p = tl.load(
            phi + j[:, None] * k + columns[None, :], mask=seen[:, None] & inside[None, :], other=0.0
        )
        s = tl.sum(p * theta[None, :], 1)
        total += tl.where(s > 0, c / tl.where(s > 0, s, 1.0), 0.0)[:, None] * p
    return tl.sum(total, 0)


@jit
def _shares(theta, pull, prior):
    """theta after a step; as it was where there is nothing to divide."""
    new = theta * pull + prior
    total = tl.sum(new, 0)
    return tl.where(total > 0, new / tl.where(total > 0, total, 1.0), theta)


@jit
def _folded(
    indptr,
    indices,
    data,
    phi,
    prior,
    start,
    out,
    k,
    steps,
    tol,
    STEP: tl.constexpr,
    WIDTH: tl.constexpr,
):
    d = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, WIDTH)
    inside = columns < k
    begin, end = tl.load(indptr + d), tl.load(indptr + d + 1)
    a = tl.load(prior + columns, mask=inside, other=0.0)
    theta = tl.load(start + d * k + columns, mask=inside, other=0.0)
    step = 0
    while step < steps:
        pull = _pulled(begin, end, indices, data, phi, theta, columns, inside, k, STEP, WIDTH)
        new = _shares(theta, pull, a)
        moved = tl.sum(tl.abs(new - theta), 0)
        theta = new
        step = tl.where((tol > 0) & (moved < tol), steps, step + 1)
    tl.store(out + d * k + columns, theta, mask=inside)


@jit
def _swept(
    indptr,
    indices,
    data,
    phi,
    prior,
    start,
    out,
    ratios,
    likelihood,
    tokens,
    k,
    STEP: tl.constexpr,
    WIDTH: tl.constexpr,
):
    d = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, WIDTH)
    inside = columns < k
    begin, end = tl.load(indptr + d), tl.load(indptr + d + 1)
    a = tl.load(prior + columns, mask=inside, other=0.0)
    theta = tl.load(start + d * k + columns, mask=inside, other=0.0)
    total = tl.zeros([STEP, WIDTH], dtype=phi.dtype.element_ty)
    logs, seen_tokens = tl.zeros([STEP], dtype=tl.float64), tl.zeros([STEP], dtype=tl.float64)
    for e in range(begin, end, STEP):
        at = e + tl.arange(0, STEP)
        seen = at < end
        j = tl.load(indices + at, mask=seen, other=0)
        c = tl.load(data + at, mask=seen, other=0.0)
        p = tl.load(
            phi + j[:, None] * k + columns[None, :], mask=seen[:, None] & inside[None, :], other=0.0
        )
        s = tl.sum(p * theta[None, :], 1)
        held = s > 0
        r = tl.where(held, c / tl.where(held, s, 1.0), 0.0)
        total += r[:, None] * p
        tl.store(ratios + at, r, mask=seen)
        logs += tl.where(held, c * tl.log(tl.where(held, s, 1.0)), 0.0).to(tl.float64)
        seen_tokens += tl.where(held, c, 0.0).to(tl.float64)
    tl.store(out + d * k + columns, _shares(theta, tl.sum(total, 0), a), mask=inside)
    tl.store(likelihood + d, tl.sum(logs, 0))
    tl.store(tokens + d, tl.sum(seen_tokens, 0))


def folded(
    entries: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    phi: torch.Tensor,
    prior: torch.Tensor,
    theta: torch.Tensor,
    steps: int,
    tol: float,
) -> torch.Tensor:
    """Shares after at most ``steps`` updates; a document stops after one that moves it by less than
    ``tol``. ``entries``: indptr, indices and counts."""
    k, theta = phi.shape[1], theta.contiguous()
    out = torch.empty_like(theta)
    if len(theta):
        _folded[(len(theta),)](
            *entries,
            phi.contiguous(),
            prior,
            theta,
            out,
            k,
            steps,
            float(tol),
            STEP=STEP,
            WIDTH=power_of_two(k),
            num_warps=_warps(k),
        )
    return out


def swept(
    entries: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    phi: torch.Tensor,
    prior: torch.Tensor,
    theta: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Shares after one update; the ratios at the entries; log-likelihood and tokens (2 numbers)
    before it."""
    k, theta = phi.shape[1], theta.contiguous()
    out, ratios = torch.empty_like(theta), phi.new_zeros(len(entries[1]))
    sums = torch.zeros((2, len(theta)), dtype=torch.float64, device=theta.device)
    if len(theta):
        _swept[(len(theta),)](
            *entries,
            phi.contiguous(),
            prior,
            theta,
            out,
            ratios,
            sums[0],
            sums[1],
            k,
            STEP=STEP,
            WIDTH=power_of_two(k),
            num_warps=_warps(k),
        )
    return out, ratios, sums.sum(1)


def _warps(k: int) -> int:
    """A thread holds about 16 numbers of a block."""
    return min(8, max(2, power_of_two(k) // 16))
