"""Optimisers and learning-rate schedules by name: those of ``optim.rules``, from PyTorch where it
has them.

gd, heavy_ball    torch.optim.SGD without and with momentum 0.9: theta' = theta - lr g + 0.9 (theta
- theta_before)
nesterov          below: the gradient is taken at the point ahead, with the weights t' = (1 + sqrt(1
+ 4 t^2)) / 2
adagrad, adam     torch.optim.Adagrad, torch.optim.Adam

``weight_decay`` is the penalty weight_decay / 2 ||W||^2 on matrices and filters; biases are free.

What networks minimise, per row and averaged over the rows of a batch; every loss is about 1 an
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

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F
from torch.optim.adam import adam

from eckart.errors import invalid
from eckart.nn.batches import RowBatch
from eckart.nn.modules import Draws
from eckart.optim.rules import RULES

LEARNING_RATES = {"gd": 0.1, "heavy_ball": 0.02, "nesterov": 0.02, "adagrad": 0.02, "adam": 1e-3}
"""Steps for a loss of about 1 an entry, where none was asked for."""
SCHEDULES = ("constant", "cosine", "linear")
WARM_STEPS = 200
"""Steps in which the rate rises, a tenth of all at the most: the second moments of Adam are not
known before."""


class NesterovSgd(torch.optim.Optimizer):
    """Accelerated gradient: x' = y - lr g(y), y' = x' + (t' - 1) / t'' (x' - x). The parameters
    hold y, where gradients are taken."""

    def __init__(self, params: Any, lr: float, weight_decay: float = 0.0):
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "t": 1.0})

    def restart(self) -> None:
        """Forget the momentum: a stochastic gradient would be carried too far."""
        for group in self.param_groups:
            group["t"] = 1.0
            for p in group["params"]:
                self.state[p].pop("before", None)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            t = (1 + math.sqrt(1 + 4 * group["t"] ** 2)) / 2
            ahead = (t - 1) / ((1 + math.sqrt(1 + 4 * t**2)) / 2)
            for p in group["params"]:
                if p.grad is None:
                    continue
                g = p.grad if not group["weight_decay"] else p.grad + group["weight_decay"] * p
                before = self.state[p].get("before", p.detach().clone())
                x = p - group["lr"] * g
                p.copy_(x + ahead * (x - before))
                self.state[p]["before"] = x
            group["t"] = t


class QuickAdam(torch.optim.Adam):
    """Adam on a CPU without what PyTorch does in Python around each step, which takes three times
    as long as a step of a small network."""

    @torch.no_grad()
    def quick_step(self) -> None:
        """A step; the first one, and one where a weight has no gradient, in PyTorch's way."""
        groups = self.param_groups
        if not self.state or any(p.grad is None for group in groups for p in group["params"]):
            self.step()
            return
        for group in groups:
            weights, (beta1, beta2) = group["params"], group["betas"]
            states = [self.state[p] for p in weights]
            adam(
                weights,
                [p.grad for p in weights],
                [state["exp_avg"] for state in states],
                [state["exp_avg_sq"] for state in states],
                [],
                [state["step"] for state in states],
                fused=True,
                amsgrad=False,
                beta1=beta1,
                beta2=beta2,
                lr=group["lr"],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                maximize=False,
            )


def optimizer_of(
    name: str, net: torch.nn.Module, lr: float, weight_decay: float = 0.0
) -> torch.optim.Optimizer:
    """The optimiser of that name over the weights of a network.

    >>> net = torch.nn.Linear(1, 1)
    >>> type(optimizer_of("heavy_ball", net, 0.1)).__name__
    'SGD'
    """
    if name not in RULES:
        raise invalid("optimizer", name, f"one of {', '.join(RULES)}")
    params = [p for p in net.parameters() if p.requires_grad]
    groups: list[dict[str, Any]] = [
        {"params": [p for p in params if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in params if p.ndim <= 1], "weight_decay": 0.0},
    ]
    groups = [g for g in groups if g["params"]]
    if not weight_decay:  # one group is half the work of two
        groups = [{"params": params, "weight_decay": 0.0}]
    if name == "nesterov":
        return NesterovSgd(groups, lr)
    if name == "adagrad":
        return torch.optim.Adagrad(groups, lr, eps=1e-10)
    if name == "adam":
        if all(p.is_cuda for p in params):
            rate = torch.tensor(lr, device=params[0].device)
            return torch.optim.Adam(groups, rate, eps=1e-8, fused=True, capturable=True)
        return QuickAdam(groups, lr, eps=1e-8, fused=True)
    return torch.optim.SGD(groups, lr, momentum=0.9 if name == "heavy_ball" else 0.0, fused=True)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """The learning rate of the next step; where it lies on the device, it is set there."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def schedule_of(name: str, steps: int) -> Callable[[int], float]:
    """Factor of the learning rate at each step: a short rise, then constant, or falling to 0 as
    half a cosine or a line.

    >>> f = schedule_of("cosine", 1000)
    >>> round(f(0), 3), f(500) < 1, round(f(1000), 3)
    (0.01, True, 0.0)
    """
    if name not in SCHEDULES:
        raise invalid("schedule", name, f"one of {', '.join(SCHEDULES)}")
    warm = 0 if name == "constant" else max(1, min(WARM_STEPS, steps // 10))

    def factor(step: int) -> float:
        done = min(1.0, step / max(1, steps))
        fall = {
            "constant": 1.0,
            "cosine": 0.5 * (1 + math.cos(math.pi * done)),
            "linear": 1 - done,
        }[name]
        return min(1.0, (step + 1) / warm) * fall if warm else fall

    return factor


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
