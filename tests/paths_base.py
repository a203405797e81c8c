"""Further runs that are written down (see ``recorded_paths``): how a case is listed, and data that
several have.

A case is a function that returns what is to be compared; ``fitted`` returns the path of a model and
what it says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

MORE: dict[str, Callable[[], Any]] = {}


def case(make: Callable[[], Any]) -> Callable[[], Any]:
    """List a function by its name."""

    def run() -> Any:
        from recorded_paths import told

        return told(make())

    MORE[make.__name__.replace("_", " ")] = run
    return make


def fitted(model: Any, x: Any, then: Callable[[Any], Any] | None = None, **more: Any) -> Any:
    """The path of a fit, and what ``then`` asks of the model."""
    from recorded_paths import Recorder, path_of, use_listener

    heard = Recorder()
    asked = model.get_params()
    model.set_params(
        **{name: value for name, value in (("n_threads", 1), ("random_state", 0)) if name in asked}
    )
    with use_listener(heard):
        model.fit(x, **more)
    out = path_of(model, heard)
    return out if then is None else out | {"then": then(model)}


def several(**models: Any) -> dict[str, Any]:
    """Paths of several (model, data) by name."""
    return {name: fitted(*one) for name, one in models.items()}


def near() -> np.ndarray:
    """Close to rank two, with gaps, not whole."""
    rng = np.random.default_rng(13)
    a = rng.standard_normal((20, 2)) @ rng.standard_normal((2, 12)) + 0.05 * rng.standard_normal(
        (20, 12)
    )
    a[rng.random(a.shape) < 0.25] = np.nan
    return a


def exact() -> np.ndarray:
    rng = np.random.default_rng(14)
    a = rng.standard_normal((20, 2)) @ rng.standard_normal((2, 15))
    a[rng.random(a.shape) < 0.25] = np.nan
    return a
