"""The parameters that all networks share: checked, and resolved into a recipe with its reasons."""

from __future__ import annotations

import numbers
from pathlib import Path
from typing import Any

import numpy as np

from eckart.errors import wrong
from eckart.nn.architecture import ACTIVATIONS
from eckart.optim.rules import RULES

STEPS = 8000
"""Gradient steps of a fit where ``max_iter`` is open: as many epochs as that makes, from 30 to 300."""


def check_shared(model: Any) -> None:
    """Refuse parameters that no network takes, one clear error each."""
    if model.optimizer not in RULES:
        raise wrong("optimizer", model.optimizer, f"one of {', '.join(RULES)}")
    if model.schedule not in ("constant", "cosine", "linear"):
        raise wrong("schedule", model.schedule, "'constant', 'cosine' or 'linear'")
    if model.activation not in ACTIVATIONS:
        raise wrong("activation", model.activation, f"one of {', '.join(ACTIVATIONS)}")
    if model.learning_rate != "auto" and not _number(model.learning_rate, above=0):
        raise wrong("learning_rate", model.learning_rate, "'auto' or a number > 0")
    if model.batch_size != "auto" and not _count(model.batch_size, 1):
        raise wrong("batch_size", model.batch_size, "'auto' or an int >= 1")
    if model.max_iter is not None and not _count(model.max_iter, 1):
        raise wrong("max_iter", model.max_iter, "None or a number of epochs >= 1")
    if not _count(model.patience, 1):
        raise wrong("patience", model.patience, "a number of epochs >= 1")
    if model.clip is not None and not _number(model.clip, above=0):
        raise wrong("clip", model.clip, "None or a largest gradient norm > 0")
    for name in ("tol", "weight_decay"):
        if not _number(getattr(model, name), least=0):
            raise wrong(name, getattr(model, name), "a number >= 0")
    for name in ("validation_fraction", "dropout"):
        value = getattr(model, name)
        if not _number(value, least=0) or value >= 1:
            raise wrong(name, value, "a share of 0 (none) to below 1")
    check_widths("hidden", model.hidden)
    if model.checkpoint is not None and not isinstance(model.checkpoint, (str, Path)):
        raise wrong("checkpoint", model.checkpoint, "None or the name of a file")


def check_widths(name: str, widths: Any) -> None:
    """Refuse anything but None or a list of positive ints."""
    if widths is None:
        return
    if isinstance(widths, (str, bytes)) or not hasattr(widths, "__len__") or not all(_count(w, 1) for w in widths):
        raise wrong(name, widths, "None or a list of widths >= 1, such as [512, 256]")


def recipe_of(model: Any, rows: int, cuda: bool) -> Any:
    """The resolved options for data of ``rows`` training rows."""
    from eckart.nn.rules import LEARNING_RATES
    from eckart.nn.train import Recipe

    size = model.batch_size
    if size == "auto":
        size = 32 if rows < 5000 else 128 if rows < 20_000 else 1024 if cuda else 256
    size = min(int(size), max(rows, 1))
    epochs = model.max_iter
    if epochs is None:
        epochs = int(np.clip(STEPS // max(1, -(-rows // size)), 30, 300))
    lr = LEARNING_RATES[model.optimizer] if model.learning_rate == "auto" else float(model.learning_rate)
    if model.learning_rate == "auto" and model.optimizer == "adam":
        lr *= float(np.sqrt(max(size, 256) / 256))
    return Recipe(
        model.optimizer,
        lr,
        model.schedule,
        int(epochs),
        size,
        int(model.patience),
        float(model.tol),
        None if model.clip is None else float(model.clip),
        float(model.weight_decay),
    )


def _count(value: Any, least: int) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool) and int(value) >= least


def _number(value: Any, above: float | None = None, least: float | None = None) -> bool:
    if not isinstance(value, numbers.Real) or isinstance(value, bool) or not np.isfinite(float(value)):
        return False
    number = float(value)
    return (above is None or number > above) and (least is None or number >= least)
