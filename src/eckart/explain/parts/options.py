"""The parameters of NMF, checked and resolved for data of a given shape."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Any

import numpy as np

from eckart.errors import wrong
from eckart.explain.parts.sides import Penalties
from eckart.matrix import Matrix, Observed

LOSSES = {"frobenius": "frobenius", "kullback-leibler": "kl", "kl": "kl", 2: "frobenius", 1: "kl"}
SOLVERS = {"frobenius": ("hals", "cd", "als"), "kl": ("mm", "mu")}
TOL = {"frobenius": 2e-3, "kl": 1e-2}


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


def options_of(model: Any, matrix: Matrix, weight: float | None = None) -> Options:
    """The parameters, checked and resolved for data of this shape; ``weight`` is the number of rows with their weights."""
    n = matrix.shape[1]
    k = n if model.n_components in ("auto", None) else model.n_components
    _check_int("n_components", k)
    _check_int("max_iter", model.max_iter)
    _check_int("n_init", model.n_init)
    if not isinstance(model.beta_loss, (str, int)) or model.beta_loss not in LOSSES:
        raise wrong("beta_loss", model.beta_loss, "'frobenius' or 'kullback-leibler'")
    loss = LOSSES[model.beta_loss]
    solver = SOLVERS[loss][0] if model.solver == "auto" else model.solver
    if solver not in SOLVERS[loss]:
        names = ", ".join(repr(name) for name in ("auto", *SOLVERS[loss]))
        raise wrong("solver", model.solver, f"one of {names} with beta_loss={model.beta_loss!r}")
    if solver == "als" and isinstance(matrix, Observed):
        raise wrong("solver", "als", "'hals' for data with missing entries")
    if model.init not in (None, "nndsvd", "nndsvda", "random", "custom"):
        raise wrong("init", model.init, "None, 'nndsvd', 'nndsvda', 'random' or 'custom'")
    alpha_h = model.alpha_W if model.alpha_H == "same" else model.alpha_H
    for name, value in (("alpha_W", model.alpha_W), ("alpha_H", alpha_h)):
        if not isinstance(value, numbers.Real) or not 0 <= float(value) < np.inf:
            raise wrong(name, value, "a number >= 0" + (" or 'same'" if name == "alpha_H" else ""))
    if not isinstance(model.l1_ratio, numbers.Real) or not 0 <= float(model.l1_ratio) <= 1:
        raise wrong("l1_ratio", model.l1_ratio, "a number from 0 to 1")
    if model.tol is not None and (not isinstance(model.tol, numbers.Real) or not 0 <= float(model.tol) < np.inf):
        raise wrong("tol", model.tol, "None or a number >= 0")
    rows = float(matrix.shape[0] or 0) if weight is None else weight
    r, w, h = float(model.l1_ratio), n * float(model.alpha_W), rows * float(alpha_h)
    penalties = Penalties(w * r, w * (1 - r), h * r, h * (1 - r))
    tol = TOL[loss] if model.tol is None else float(model.tol)
    return Options(int(k), loss, solver, model.init, tol, int(model.max_iter), penalties, int(model.n_init))


def _check_int(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise wrong(name, value, "an int >= 1" + (", 'auto' or None" if name == "n_components" else ""))
