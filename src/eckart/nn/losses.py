"""What networks minimise, per row and averaged over the rows of a batch; every loss is about 1 an
entry at the start.

squared     1/2 sum_j m_j (x_j - x_hat_j)^2 / (spread^2 entries per row)               m_j = 1 where
observed
bernoulli   - sum_j m_j [x_j log p_j + (1 - x_j) log(1 - p_j)] / (entries per row),    p =
sigmoid(output)
variational adds  weight * KL(N(m, diag v) || N(0, I)) / (entries per row) = weight / 2 sum (m^2 + v
- 1 - log v) / (entries per row)
denoising   the input is corrupted, the target is not: noise e ~ N(0, noise^2), or a share of the
entries set to their mean
classes     - log softmax(output)_y
targets     1/2 ||y - output||^2 / outputs, targets centred and scaled

Values and gradients come from PyTorch; each is a function (network, batch) -> a number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from eckart.nn.batches import RowBatch
from eckart.nn.modules import Draws

Loss = Callable[[Any, RowBatch], torch.Tensor]
LOSSES = ("squared", "bernoulli")


def coding_loss(
    kind: str,
    per_row: float,
    *,
    variational: float = 0.0,
    noise: float = 0.0,
    corruption: str = "gaussian",
    back: tuple[torch.Tensor, torch.Tensor] | None = None,
    offset: torch.Tensor | None = None,
    hide: bool = False,
) -> Loss:
    """The loss of an autoencoder. ``back`` = (mean, spread) turns scaled rows into probabilities
    for "bernoulli", ``offset`` is added to its logits.

    With ``hide`` a fifth of the observed entries of rows with gaps is kept from the encoder, and
    the loss is their mean: how well gaps are filled.
    """

    def loss(net: Any, batch: RowBatch) -> torch.Tensor:
        x, judged = batch.x, batch.seen
        given = corrupt(x, noise, corruption, net.draws) if noise and net.training else x
        if hide and judged is not None:
            judged = judged & a_fifth(x)
            given = given * ~judged
        out, mean, log_var = net(given)
        miss = _misfit(kind, out.to(x.dtype), x, back, offset)
        if judged is not None:
            miss = miss * judged
        value = miss.sum() / (
            judged.sum().clamp(min=1) if hide and judged is not None else len(x) * per_row
        )
        if log_var is not None:
            log_var = log_var.to(x.dtype)
            kl = 0.5 * (mean.to(x.dtype) ** 2 + log_var.exp() - 1 - log_var).sum() / len(x)
            value = value + variational * kl / per_row
        return value

    return loss


def a_fifth(x: torch.Tensor) -> torch.Tensor:
    """A pattern of true at every fifth entry, shifted from row to row.

    >>> a_fifth(torch.zeros(5, 10)).sum(dim=1).tolist()
    [2, 2, 2, 2, 2]
    """
    rows, columns = (torch.arange(size, device=x.device) for size in x.shape)
    return (2 * rows[:, None] + columns[None, :]) % 5 == 0


def _misfit(kind: str, out: torch.Tensor, x: torch.Tensor, back: Any, offset: Any) -> torch.Tensor:
    if kind == "squared":
        return 0.5 * (out - x) ** 2
    return F.binary_cross_entropy_with_logits(out + offset, x * back[1] + back[0], reduction="none")


def corrupt(x: torch.Tensor, noise: float, corruption: str, draws: Draws) -> torch.Tensor:
    """x + noise e, or x with a share ``noise`` of its entries at 0 (the mean)."""
    if corruption == "mask":
        return x * (draws.uniform(x) >= noise)
    return x + noise * draws.normal(x)


def class_loss(net: Any, batch: RowBatch) -> torch.Tensor:
    """Mean of - log softmax(output) at the class of each row."""
    assert batch.y is not None
    return F.cross_entropy(net(batch.x).to(batch.x.dtype), batch.y)


def target_loss(net: Any, batch: RowBatch) -> torch.Tensor:
    """Half the mean squared error an output."""
    assert batch.y is not None
    return 0.5 * ((net(batch.x).to(batch.x.dtype) - batch.y) ** 2).mean()
