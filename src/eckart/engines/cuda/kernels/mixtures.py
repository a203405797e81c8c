"""Shares of components from logs of joint probabilities, in place: q_tz = w_t exp(l_tz - log sum_z
exp l_tz), a few rows in a program."""

from __future__ import annotations

import torch

from eckart.engines.cuda.kernels.language import jit, power_of_two, tl

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
