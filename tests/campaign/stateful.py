"""Random walks over fit, partial_fit, set_params, save, load, transform: a model always answers as
a fresh one with the same history does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import eckart
from campaign import Broken

FAMILIES: dict[str, tuple[dict[str, Any], dict[str, list[Any]]]] = {
    "PCA": ({"n_components": 2}, {"n_components": [1, 2, 3], "whiten": [False, True]}),
    "LinearAutoencoder": (
        {"n_components": 2},
        {"n_components": [1, 2], "optimizer": ["adam", "nesterov"]},
    ),
    "GaussianMixture": (
        {"n_components": 2, "max_iter": 5},
        {"n_components": [1, 2], "covariance_type": ["full", "diag"]},
    ),
    "NMF": ({"n_components": 2, "max_iter": 10}, {"n_components": [1, 2], "alpha_W": [0.0, 0.1]}),
    "MiniBatchNMF": (
        {"n_components": 2, "max_iter": 3, "batch_size": 7},
        {"n_components": [1, 2], "batch_size": [7, 30]},
    ),
    "ALS": ({"n_components": 2, "max_iter": 5}, {"n_components": [1, 2], "l2": [0.1, 1.0]}),
    "PLSA": ({"n_components": 2, "max_iter": 5}, {"n_components": [1, 2]}),
    "BayesianMF": (
        {"n_components": 2, "n_samples": 4, "burn_in": 2},
        {"n_components": [1, 2], "tails": ["normal", "heavy"], "noise": ["common", "both"]},
    ),
    "TimeFactors": (
        {"n_components": 1, "n_samples": 4, "burn_in": 2, "thin": 1},
        {"n_components": [0, 1], "period": [None, 2]},
    ),
    "MixedTable": (
        {"n_components": 2, "l2": 1.0, "max_iter": 5},
        {"n_components": [1, 2], "losses": [None, {"x0": "huber"}]},
    ),
    "SoftImpute": ({"tau": 1.0}, {"tau": [0.5, 1.0], "loss": ["squared", "huber"]}),
    "EASE": ({"l2": 1.0}, {"l2": [1.0, 10.0], "strengths": ["binary", "raw"]}),
    "SLIM": ({"l2": 1.0}, {"l1": [0.0, 1.0], "strengths": ["binary", "raw"]}),
    "SpectralFilter": ({"n_components": 2}, {"n_components": [1, 2], "alpha": [0.0, 0.3]}),
    "Blend": ({}, {"at": [2, 3], "held_out": [0.1, 0.3]}),
}
LIKES = ("EASE", "SLIM", "SpectralFilter", "Blend")
"""Models of what rows took up: an entry that is not there says something."""


def answers(model: Any, x: np.ndarray) -> np.ndarray:
    if hasattr(model, "forecast"):
        return np.asarray(model.predict(*np.indices(x.shape).reshape(2, -1)))
    verb = "predict_proba" if hasattr(model, "predict_proba") else "transform"
    return np.asarray(getattr(model, verb)(x))


def tables(name: str) -> list[np.ndarray]:
    """Three tables that differ."""
    found = [np.abs(np.random.default_rng(i).standard_normal((30, 5))) for i in range(3)]
    return [np.where(x > 0.5, x, np.nan) for x in found] if name in LIKES else found


def attempts(rng: np.random.Generator, folder: Path) -> Iterator[str]:
    path = folder / "walk.safetensors"
    while True:
        name = str(rng.choice(list(FAMILIES)))
        start, choices = FAMILIES[name]
        model = getattr(eckart, name)(random_state=0, **start)
        data = tables(name)
        history: tuple[dict[str, Any], list[tuple[str, int]]] | None = None
        for _ in range(int(rng.integers(3, 12))):
            step = str(rng.choice(["fit", "partial_fit", "set_params", "save", "ask", "clone"]))
            i = int(rng.integers(len(data)))
            if step == "fit":
                model.fit(data[i])
                history = model.get_params(), [("fit", i)]
            elif (
                step == "partial_fit"
                and hasattr(model, "partial_fit")
                and history
                and history[1][0][0] == "partial_fit"
            ):
                if history[0] != model.get_params():
                    continue  # what changed parameters mean for a stream is each model's own
                model.partial_fit(data[i])
                history[1].append(("partial_fit", i))
            elif step == "partial_fit" and hasattr(model, "partial_fit") and history is None:
                model.partial_fit(data[i])
                history = model.get_params(), [("partial_fit", i)]
            elif step == "set_params":
                key = str(rng.choice(list(choices)))
                value = choices[key][int(rng.integers(len(choices[key])))]
                model.set_params(**{key: value})
                if model.get_params()[key] != value:
                    raise Broken(f"{name}.set_params({key}={value!r}) did not stay")
            elif step == "clone" and history is None:
                model = clone(model)
            elif step == "save" and history:
                before = answers(model, data[0])
                model.save(path)
                if not np.array_equal(answers(eckart.load(path), data[0]), before):
                    raise Broken(f"{name} answers otherwise after save and load, history {history}")
            elif step == "ask":
                judge(model, name, history, data)
            else:
                continue
            yield f"{name}: {step}"


def judge(model: Any, name: str, history: Any, data: list[np.ndarray]) -> None:
    """The answers are those of a fresh model with the same history; before any fit it says that it
    is not fitted."""
    if history is None:
        try:
            answers(model, data[0])
        except (NotFittedError, AttributeError):
            return
        raise Broken(f"{name} answers before it was fitted")
    params, steps = history
    fresh = getattr(eckart, name)(**params)
    for step, i in steps:
        getattr(fresh, step)(data[i])
    if params == model.get_params() and not np.array_equal(
        answers(fresh, data[0]), answers(model, data[0])
    ):
        raise Broken(f"{name} answers otherwise than a fresh model with the history {history}")
