"""Optimisers and learning-rate schedules by name: those of ``optim.rules``, from PyTorch where it
has them.

gd, heavy_ball    torch.optim.SGD without and with momentum 0.9: theta' = theta - lr g + 0.9 (theta
- theta_before)
nesterov          below: the gradient is taken at the point ahead, with the weights t' = (1 + sqrt(1
+ 4 t^2)) / 2
adagrad, adam     torch.optim.Adagrad, torch.optim.Adam

``weight_decay`` is the penalty weight_decay / 2 ||W||^2 on matrices and filters; biases are free.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from eckart.errors import invalid
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
    if name == "nesterov":
        return NesterovSgd(groups, lr)
    if name == "adagrad":
        return torch.optim.Adagrad(groups, lr, eps=1e-10)
    if name == "adam":
        if all(p.is_cuda for p in params):
            rate = torch.tensor(lr, device=params[0].device)
            return torch.optim.Adam(groups, rate, eps=1e-8, fused=True, capturable=True)
        return torch.optim.Adam(groups, lr, eps=1e-8, fused=True)
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
