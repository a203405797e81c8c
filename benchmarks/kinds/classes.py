"""Classes (tables of the kind "g"): ``NetworkClassifier()`` beside logistic regression and
scikit-learn's ``MLPClassifier()``; each quarter of the rows is left out in turn, and the loss of a
row is 1 where its class is wrong. All get standardised columns."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np
from defaults import Case, timed
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from eckart import NetworkClassifier

BASELINES, RIVALS = ("logistic regression",), ("MLPClassifier",)
ROWS = 4000


def sets(tables: Any) -> list[str]:
    return list(tables.names("g"))


def cases(tables: Any, name: str) -> Any:
    found = tables.load(name)
    x, y = (
        np.asarray(found["data"], float),
        np.unique(np.asarray(found["target"]).astype(str), return_inverse=True)[1],
    )
    order = np.random.default_rng(0).permutation(len(x))[:ROWS]
    x, y = x[order][:, x.std(axis=0) > 0], y[order]
    quarter = np.arange(len(x)) % 4
    losses: dict[str, list[np.ndarray]] = {}
    seconds: dict[str, float] = {}
    for part in range(4):
        train, test = quarter != part, quarter == part
        mean, deviation = x[train].mean(axis=0), x[train].std(axis=0)
        z = ((x - mean) / np.where(deviation > 0, deviation, 1)).astype(np.float32)
        methods = {
            "eckart": NetworkClassifier(random_state=part, n_threads=1),
            "logistic regression": LogisticRegression(max_iter=500),
            "MLPClassifier": MLPClassifier(random_state=part),
        }
        for method, model in methods.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                _, taken = timed(partial(model.fit, z[train], y[train]))
            seconds[method] = seconds.get(method, 0.0) + taken / 4
            losses.setdefault(method, []).append((model.predict(z[test]) != y[test]).astype(float))
    yield Case(
        name,
        {method: np.concatenate(found) for method, found in losses.items()},
        seconds,
        f"{len(x) * 3 // 4} x {x.shape[1]}, {y.max() + 1} classes; {seconds['eckart']:.1f} s, MLP "
        f"{seconds['MLPClassifier']:.1f} s",
    )
