"""Training of a linear autoencoder x_hat = V W x on a covariance that is known by its products.

Risk R(V, W) = 1/2 tr (I - P) C (I - P)^T with P = V W (V: n x k, W: k x n). With S = C W^T and T =
C V

    dR/dV = (P - I) C W^T = V (W S) - S
    dR/dW = V^T (P - I) C = (V^T V) S^T - T^T
    R     = 1/2 tr C - tr V^T S + 1/2 tr (V^T V)(W S)

so one product of C with 2k columns gives value and both gradients. Tied weights (V = W^T) add the
two. Ridge adds rho/2 (||V||^2 + ||W||^2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from eckart.io.models.checkpoint import NOTHING, Memory
from eckart.optim.descend import Objective, descend
from eckart.optim.rules import Params, rule_named
from eckart.trace import Trace, Watcher, silent

Product = Callable[[np.ndarray], np.ndarray]


@dataclass
class Trained:
    """Decoder V, encoder W, trace of the risk (in units of the largest eigenvalue), gradient norm,
    and the step used."""

    decoder: np.ndarray
    encoder: np.ndarray
    trace: Trace
    gradient: float
    lr: float


def risk_objective(product: Product, total: float, tied: bool, ridge: float) -> Objective:
    """Value and gradients of R for params [V, W], or [V] when tied."""

    def both(v: np.ndarray, w: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        k = v.shape[1]
        images = np.asarray(product(np.hstack([w.T, v])), np.float64)
        s, t = images[:, :k], images[:, k:]
        ws, vv = w @ s, v.T @ v
        value = 0.5 * total - float(np.vdot(v, s)) + 0.5 * float(np.vdot(vv, ws))
        return value, v @ ws - s, vv @ s.T - t.T

    def untied_objective(params: Params) -> tuple[float, Params]:
        v, w = params
        value, dv, dw = both(v, w)
        return value + 0.5 * ridge * float(np.vdot(v, v) + np.vdot(w, w)), [
            dv + ridge * v,
            dw + ridge * w,
        ]

    def tied_objective(params: Params) -> tuple[float, Params]:
        (v,) = params
        value, dv, dw = both(v, v.T)
        return value + ridge * float(np.vdot(v, v)), [dv + dw.T + 2 * ridge * v]

    return tied_objective if tied else untied_objective


def train(
    product: Product,
    n: int,
    k: int,
    total: float,
    largest: float,
    *,
    optimizer: str,
    learning_rate: Any,
    tied: bool,
    ridge: float,
    tol: float,
    max_iter: int,
    rng: np.random.Generator,
    watch: Watcher = silent,
    memory: Memory = NOTHING,
) -> Trained:
    """Descend the risk of the covariance divided by its ``largest`` eigenvalue, so that steps mean
    the same on every scale.

    ``learning_rate="auto"`` is 1/L for the methods that have a theory of it (L = 3 untied, 6 tied,
    near balanced weights) and the rule's own default for AdaGrad and Adam.
    """
    rule = rule_named(optimizer)
    scale = largest if largest > 0 else 1.0
    start = np.linalg.qr(rng.standard_normal((n, k)))[0] if k else np.zeros((n, 0))
    params = [start] if tied else [start, start.T.copy()]
    lr = learning_rate
    if learning_rate == "auto":
        lr = (
            rule.default_lr
            if optimizer in ("adagrad", "adam")
            else rule.default_lr / (6 if tied else 3)
        )
    objective = risk_objective(
        lambda a: np.asarray(product(a), np.float64) / scale, total / scale, tied, ridge / scale
    )
    best, trace, gradient = descend(
        objective, params, rule, lr=lr, tol=tol, max_iter=max_iter, watch=watch, memory=memory
    )
    v = best[0]
    return Trained(v, v.T if tied else best[1], trace, gradient, lr)
