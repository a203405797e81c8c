"""Update rules of gradient methods, each as ``init(params) -> state`` and ``step(params, grads,
state, lr) -> params, state``.

gd           theta' = theta - lr g
heavy_ball   theta' = theta - lr g + beta (theta - theta_before)
nesterov     y = theta + t (theta - theta_before), theta' = y - lr g(y)         (the loop asks for
gradients at ``ahead``)
adagrad      G += g^2, theta' = theta - lr g / (sqrt(G) + eps)
adam         m, v: running means of g and g^2, divided by 1 - b^t (bias correction); theta' = theta
- lr m / (sqrt(v) + eps)

Parameters are lists of arrays; states are small dictionaries; nothing is changed in place.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from eckart.errors import invalid

Params = list[np.ndarray]
State = dict[str, Any]


class UpdateRule(Protocol):
    """One update rule."""

    name: str
    default_lr: float

    def init(self, params: Params) -> State: ...

    def ahead(self, params: Params, state: State) -> Params:
        """Where the next gradient is wanted."""
        ...

    def step(
        self, params: Params, grads: Params, state: State, lr: float
    ) -> tuple[Params, State]: ...


class GradientDescent:
    """theta' = theta - lr g."""

    name, default_lr = "gd", 1.0

    def init(self, params: Params) -> State:
        return {}

    def ahead(self, params: Params, state: State) -> Params:
        return params

    def step(self, params: Params, grads: Params, state: State, lr: float) -> tuple[Params, State]:
        return [p - lr * g for p, g in zip(params, grads)], state


class HeavyBall(GradientDescent):
    """theta' = theta - lr g + beta (theta - theta_before)."""

    name, default_lr = "heavy_ball", 1.0

    def __init__(self, beta: float = 0.9):
        self.beta = beta

    def init(self, params: Params) -> State:
        return {"before": params}

    def step(self, params: Params, grads: Params, state: State, lr: float) -> tuple[Params, State]:
        new = [p - lr * g + self.beta * (p - b) for p, g, b in zip(params, grads, state["before"])]
        return new, {"before": params}


class Nesterov(GradientDescent):
    """Accelerated gradient with the weights t_{k+1} = (1 + sqrt(1 + 4 t_k^2)) / 2; the gradient is
    taken at the point ahead."""

    name, default_lr = "nesterov", 1.0

    def init(self, params: Params) -> State:
        return {"before": params, "t": 1.0}

    def ahead(self, params: Params, state: State) -> Params:
        after = (1 + np.sqrt(1 + 4 * state["t"] ** 2)) / 2
        return [p + (state["t"] - 1) / after * (p - b) for p, b in zip(params, state["before"])]

    def step(self, params: Params, grads: Params, state: State, lr: float) -> tuple[Params, State]:
        new = [y - lr * g for y, g in zip(self.ahead(params, state), grads)]
        return new, {"before": params, "t": (1 + np.sqrt(1 + 4 * state["t"] ** 2)) / 2}


class AdaGrad(GradientDescent):
    """Steps shrink with the accumulated squared gradient of each coordinate."""

    name, default_lr = "adagrad", 0.1

    def __init__(self, eps: float = 1e-10):
        self.eps = eps

    def init(self, params: Params) -> State:
        return {"square": [np.zeros_like(p) for p in params]}

    def step(self, params: Params, grads: Params, state: State, lr: float) -> tuple[Params, State]:
        square = [s + g * g for s, g in zip(state["square"], grads)]
        return [p - lr * g / (np.sqrt(s) + self.eps) for p, g, s in zip(params, grads, square)], {
            "square": square
        }


class Adam(GradientDescent):
    """Adam with bias correction."""

    name, default_lr = "adam", 0.02

    def __init__(self, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8):
        self.beta1, self.beta2, self.eps = beta1, beta2, eps

    def init(self, params: Params) -> State:
        zeros = [np.zeros_like(p) for p in params]
        return {"mean": zeros, "square": zeros, "t": 0}

    def step(self, params: Params, grads: Params, state: State, lr: float) -> tuple[Params, State]:
        t = state["t"] + 1
        mean = [self.beta1 * m + (1 - self.beta1) * g for m, g in zip(state["mean"], grads)]
        square = [self.beta2 * s + (1 - self.beta2) * g * g for s, g in zip(state["square"], grads)]
        c1, c2 = 1 - self.beta1**t, 1 - self.beta2**t
        new = [
            p - lr * (m / c1) / (np.sqrt(s / c2) + self.eps)
            for p, m, s in zip(params, mean, square)
        ]
        return new, {"mean": mean, "square": square, "t": t}


RULES = {rule.name: rule for rule in (GradientDescent, HeavyBall, Nesterov, AdaGrad, Adam)}


def rule_named(name: str) -> UpdateRule:
    """The rule of that name, with its usual constants.

    >>> rule_named("adam").default_lr
    0.02
    """
    if name not in RULES:
        raise invalid("optimizer", name, f"one of {', '.join(RULES)}")
    return RULES[name]()
