"""What ``tune`` tries: the estimator, its error, ranks and ridges, checked once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import clone

from eckart.complete.factors.als import ALS
from eckart.errors import InputTypeError, invalid, written
from eckart.matrix import Observed
from eckart.matrix_blocks import facts_of

METRICS = ("rmse", "mae", "ndcg", "recall")


def base_of(model: Any, n_threads: int | None) -> Any:
    """A fresh estimator with the caller's choices."""
    if isinstance(model, str):
        if model != "ALS":
            raise invalid("model", model, "'ALS' or an estimator such as ALS(biases=False)")
        model = ALS()
    if not hasattr(model, "get_params") or not {"n_components", "l2"} & set(
        model.get_params(deep=False)
    ):
        raise InputTypeError(
            f"model must be 'ALS' or an estimator with n_components or l2, got {written(model)}"
        )
    base = clone(model)
    params = base.get_params(deep=False)
    if n_threads is not None and "n_threads" in params:
        base.set_params(n_threads=n_threads)
    return base.set_params(**{name: None for name in ("checkpoint",) if name in params})


def seeded(base: Any, seed: int) -> dict[str, Any]:
    return {"random_state": seed} if "random_state" in base.get_params(deep=False) else {}


def yes_no(x: Observed) -> bool:
    """Whether the entries are 0 and 1, and both came."""
    facts = facts_of(x)
    return (
        facts.values is not None
        and np.array_equal(facts.values, [0.0, 1.0])
        and facts.whole
        and facts.least == 0
        and facts.most == 1
    )


def metric_of(metric: str, at: int, base: Any) -> str:
    if metric == "auto":
        metric = "ndcg" if getattr(base, "feedback", "explicit") == "implicit" else "rmse"
    if metric not in METRICS:
        raise invalid("metric", metric, f"'auto', {', '.join(map(repr, METRICS))}")
    if metric in ("rmse", "mae") and getattr(base, "feedback", "explicit") == "implicit":
        raise invalid(
            "metric",
            metric,
            "'ndcg' or 'recall' with feedback='implicit': scores are no predictions of strengths",
        )
    if isinstance(at, bool) or not isinstance(at, (int, np.integer)) or at < 1:
        raise invalid("at", at, "an int >= 1")
    return metric


def ranks_of(base: Any, n_components: Any, strategy: str, shape: tuple[int, int]) -> list[int]:
    """The ranks to try; [0] for a model that has none."""
    if "n_components" in base.get_params(deep=False):
        return _rising(
            (4, 8, 16, 32) if n_components is None else n_components,
            strategy,
            shape,
            n_components is None,
        )
    if n_components is not None:
        raise invalid(
            "n_components", n_components, f"None: {type(base).__name__} has no n_components"
        )
    return [0]


def rank_parameter(k: int) -> dict[str, int]:
    """The rank as a parameter; nothing for a model that has none."""
    return {"n_components": k} if k else {}


def _rising(n_components: Any, strategy: str, shape: tuple[int, int], usual: bool) -> list[int]:
    """Rising ranks."""
    given = [n_components] if np.ndim(n_components) == 0 else list(n_components)
    if not given or any(
        isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1 for k in given
    ):
        raise invalid("n_components", n_components, "an int >= 1 or several")
    if strategy == "grid":
        ranks = sorted({int(k) for k in given})
        return [k for k in ranks if k <= min(shape)] or [max(1, min(shape))] if usual else ranks
    if strategy != "doubling":
        raise invalid("strategy", strategy, "'grid' or 'doubling'")
    most = min(shape) if len(given) == 1 else int(max(given))
    ranks = [int(min(given))]
    while 2 * ranks[-1] <= most:
        ranks.append(2 * ranks[-1])
    return ranks


def ridges_of(
    l2: Any, base: Any, x: Observed
) -> tuple[list[float | None], Callable[[float | None], dict[str, Any]]]:
    """Falling ridges, [None] where the model has none; and from a ridge to parameters: where the
    model chooses its ridge by the entries, the powers and the ridge of biases stay as it chooses
    them."""

    def plain(ridge: float | None) -> dict[str, Any]:
        return {} if ridge is None else {"l2": ridge}

    if "l2" not in base.get_params(deep=False):
        if l2 is not None:
            raise invalid("l2", l2, f"None: {type(base).__name__} has no l2")
        return [None], plain
    if l2 is None:
        own = base.ridge_for(x)._asdict() if hasattr(base, "ridge_for") else {"l2": base.l2}
        attribute_ridge = (
            {}
            if base.l2 is not None
            else {name: value for name, value in own.items() if name != "l2" and value is not None}
        )
        return [own["l2"] * f for f in (4.0, 2.0, 1.0, 0.5)] if own["l2"] else [
            own["l2"]
        ], lambda ridge: plain(ridge) | attribute_ridge
    return sorted(_numbers("l2", l2), reverse=True), plain  # type: ignore[return-value]


def weights_of(unobserved_weight: Any, base: Any) -> list[float | None]:
    """Weights of what was not observed, [None] where none are given; the ridges are those of the
    first."""
    if unobserved_weight is None:
        return [None]
    if getattr(
        base, "feedback", "explicit"
    ) != "implicit" or "unobserved_weight" not in base.get_params(deep=False):
        raise invalid(
            "unobserved_weight",
            unobserved_weight,
            "None unless the model is ALS(feedback='implicit')",
        )
    weights = _numbers("unobserved_weight", unobserved_weight)
    base.set_params(unobserved_weight=weights[0])
    return list(weights)


def weight_parameter(weight: float | None) -> dict[str, float]:
    """The weight as a parameter; nothing where it was not tried."""
    return {} if weight is None else {"unobserved_weight": weight}


def _numbers(name: str, given: Any) -> list[float]:
    """Different numbers of 0 or more."""
    numbers = [given] if np.ndim(given) == 0 else list(given)
    if not numbers or any(
        isinstance(v, bool)
        or not isinstance(v, (int, float, np.integer, np.floating))
        or not 0 <= v < np.inf
        for v in numbers
    ):
        raise invalid(name, given, "a number >= 0 or several")
    return sorted({float(v) for v in numbers})
