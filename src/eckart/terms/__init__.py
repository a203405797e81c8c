"""Losses and penalties as values: formulas side by side, one file each. A new loss is a file and a
line of ``LOSSES``."""

from __future__ import annotations

from typing import Any

from eckart.errors import FileError, invalid
from eckart.terms.absolute import Absolute
from eckart.terms.huber import Huber
from eckart.terms.logistic import Logistic
from eckart.terms.loss import Loss, Placement
from eckart.terms.multinomial import Multinomial
from eckart.terms.ordered import Ordered, OrderedLogit, OrderedProbit
from eckart.terms.penalties import Lasso, Nonnegative, Nuclear, Penalty, Ridge, Rows
from eckart.terms.poisson import Poisson
from eckart.terms.quantile import Quantile
from eckart.terms.squared import Squared

LOSSES: dict[str, type[Loss]] = {
    loss.name: loss
    for loss in (
        Squared,
        Absolute,
        Huber,
        Logistic,
        OrderedLogit,
        OrderedProbit,
        Poisson,
        Quantile,
        Multinomial,
    )
}
PENALTIES: dict[str, type[Penalty]] = {
    penalty.name: penalty for penalty in (Ridge, Lasso, Nonnegative, Rows, Nuclear)
}

__all__ = [
    "LOSSES",
    "PENALTIES",
    "Absolute",
    "Huber",
    "Lasso",
    "Logistic",
    "Loss",
    "Multinomial",
    "Nonnegative",
    "Nuclear",
    "Ordered",
    "OrderedLogit",
    "OrderedProbit",
    "Penalty",
    "Placement",
    "Poisson",
    "Quantile",
    "Ridge",
    "Rows",
    "Squared",
    "loss_from",
    "loss_named",
    "loss_or_none",
]


def loss_named(name: str) -> Loss:
    """A loss by its name, its own parameters not yet set (``fitted_to`` does that).

    >>> import numpy as np
    >>> grades = loss_named("ordered").fitted_to(np.array([1, 2, 2, 3]))
    >>> grades.levels, [round(t, 2) for t in grades.thresholds], float(grades.mean(np.array(0.0)).round(3))
    ((1, 2, 3), [-1.1, 1.1], 2.0)
    """
    loss = loss_or_none(name)
    if loss is None:
        raise invalid(
            "loss", name, "one of " + ", ".join(f"{n!r} ({LOSSES[n].summary})" for n in LOSSES)
        )
    return loss


def loss_or_none(name: Any) -> Loss | None:
    """The loss of a name, or of a name and the number that it takes; None where there is none."""
    word, _, number = name.partition(" ") if isinstance(name, str) else ("", "", "")
    try:
        loss = LOSSES[word](**({"level": float(number)} if number else {}))
        return loss if loss.check() else None
    except (KeyError, TypeError, ValueError):
        return None


def loss_from(state: Any) -> Loss:
    """The loss that ``to_state`` described; a file may hold anything, so what does not fit together
    is refused."""
    try:
        parameters: dict[str, Any] = {
            key: tuple(v) if isinstance(v, list) else v for key, v in state.items()
        }
        loss = LOSSES[parameters.pop("name")](**parameters)
        apt = loss.check()
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FileError(
            f"the loss must be one of {sorted(LOSSES)} with its own parameters, got {state!r:.200}"
        ) from error
    if not apt:
        raise FileError(f"the parameters of the loss must fit together, got {state!r:.200}")
    return loss
