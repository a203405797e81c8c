"""The parameters of NMF, resolved for data of a given shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from eckart.errors import wrong
from eckart.explain.parts.sides import Penalties
from eckart.fit import require_room
from eckart.parameters import check

LOSSES = {"frobenius": "frobenius", "kullback-leibler": "kl", "kl": "kl", 2: "frobenius", 1: "kl"}
SOLVERS = {"frobenius": ("hals", "cd", "als"), "kl": ("mm", "mu")}
TOL = {"frobenius": 2e-3, "kl": 1e-2}
"""Residuals at which a fit stops by default: a fifth and a half of the limits of the certificate."""


@dataclass(frozen=True)
class Options:
    """What the estimator was asked, resolved."""

    k: int
    loss: str
    solver: str
    init: str | None
    tol: float
    max_iter: int
    penalties: Penalties
    n_init: int = 1


def options_of(model: Any, x: Any, weight: float | None = None) -> Options:
    """The parameters, checked and resolved for data of this shape; ``weight`` is the number of rows with their weights."""
    check(model)
    n, loss = x.shape[1], LOSSES[model.beta_loss]
    if model.n_components not in ("auto", None):
        require_room(
            "n_components", model.n_components, (float(x.shape[0] or 0) + n) * model.n_components, x.dtype.itemsize
        )
    solver = SOLVERS[loss][0] if model.solver == "auto" else model.solver
    if solver not in SOLVERS[loss]:
        names = ", ".join(repr(name) for name in ("auto", *SOLVERS[loss]))
        raise wrong("solver", model.solver, f"one of {names} with beta_loss={model.beta_loss!r}")
    alpha_h = model.alpha_W if model.alpha_H == "same" else model.alpha_H
    rows = float(x.shape[0] or 0) if weight is None else weight
    r, w, h = float(model.l1_ratio), n * float(model.alpha_W), rows * float(alpha_h)
    return Options(
        n if model.n_components in ("auto", None) else int(model.n_components), loss, solver, model.init,
        TOL[loss] if model.tol is None else float(model.tol), int(model.max_iter),
        Penalties(w * r, w * (1 - r), h * r, h * (1 - r)), int(model.n_init),
    )  # fmt: skip
