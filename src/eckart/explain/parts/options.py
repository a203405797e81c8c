"""The parameters of NMF, resolved for data of a given shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from eckart.errors import InputError, invalid, written
from eckart.explain.parts.sides import Penalties
from eckart.fit import require_room
from eckart.parameters import check, number

NAMES = {"frobenius": 2.0, "kullback-leibler": 1.0, "kl": 1.0, "itakura-saito": 0.0}
"""Losses that have a name, and their beta."""
SOLVERS = {"frobenius": ("hals", "cd", "als", "mu"), "kl": ("mm", "mu"), "beta": ("mm", "mu")}
TOL = {"frobenius": 2e-3, "kl": 1e-2, "beta": 1e-2}
"""Residuals at which a fit stops by default: a fifth and a half of the limits of the
certificate."""


@dataclass(frozen=True)
class NmfOptions:
    """What the estimator was asked, resolved."""

    k: int
    loss: str
    solver: str
    init: str | None
    tol: float
    max_iter: int
    penalties: Penalties
    n_init: int = 1
    beta: float = 2.0


def beta_of(loss: Any) -> float | None:
    """The beta of a loss given by name or number; None where it is neither.

    >>> beta_of("itakura-saito"), beta_of(1), beta_of(0.5), beta_of("l2"), beta_of(True)
    (0.0, 1.0, 0.5, None, None)
    """
    if isinstance(loss, str):
        return NAMES.get(loss)
    return float(loss) if number().fits(loss) else None


def family_of(beta: float) -> str:
    """The name under which the half sweeps of a beta are written."""
    return {1.0: "kl", 2.0: "frobenius"}.get(beta, "beta")


def options_of(model: Any, x: Any, weight: float | None = None, start: Any = None) -> NmfOptions:
    """The parameters, checked and resolved for data of this shape; ``weight`` is the number of rows
    with their weights, ``start`` the H that a custom start begins with: its rows say how many
    parts, where the model does not."""
    check(model)
    n, beta = x.shape[1], beta_of(model.beta_loss)
    assert beta is not None
    loss = family_of(beta)
    if model.n_components not in ("auto", None):
        require_room(
            "n_components",
            model.n_components,
            (float(x.shape[0] or 0) + n) * model.n_components,
            x.dtype.itemsize,
        )
    text = isinstance(model.solver, str)  # whether an array equals a text has no single answer
    solver = SOLVERS[loss][0] if text and model.solver == "auto" else model.solver
    if not text or solver not in SOLVERS[loss]:
        names = ", ".join(repr(name) for name in ("auto", *SOLVERS[loss]))
        error = invalid("solver", model.solver, f"one of {names}")
        raise InputError(
            f"Invalid beta_loss parameter: solver {written(model.solver)} does not handle "
            f"beta_loss = {model.beta_loss!r}. {error}",
            code=error.code,
        )
    alpha_h = model.alpha_W if model.alpha_H == "same" else model.alpha_H
    rows = float(x.shape[0] or 0) if weight is None else weight
    r, w, h = float(model.l1_ratio), n * float(model.alpha_W), rows * float(alpha_h)
    given = len(start) if model.init == "custom" and np.ndim(start) == 2 else n
    return NmfOptions(
        given if model.n_components in ("auto", None) else int(model.n_components),
        loss,
        solver,
        model.init,
        TOL[loss] if model.tol is None else float(model.tol),
        int(model.max_iter),
        Penalties(w * r, w * (1 - r), h * r, h * (1 - r)),
        int(model.n_init),
        beta,
    )
