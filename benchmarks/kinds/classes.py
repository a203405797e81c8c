"""Classes (tables of the kind "g"): ``NetworkClassifier()`` beside logistic regression and
scikit-learn's ``MLPClassifier()``; a quarter of the rows is left out, and the loss is 1 for a wrong
class. All get standardised columns."""

from __future__ import annotations

import warnings
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
    cut = len(x) * 3 // 4
    mean, deviation = x[:cut].mean(axis=0), x[:cut].std(axis=0)
    x = ((x - mean) / np.where(deviation > 0, deviation, 1)).astype(np.float32)
    methods = {
        "eckart": NetworkClassifier(random_state=0, n_threads=1),
        "logistic regression": LogisticRegression(max_iter=500),
        "MLPClassifier": MLPClassifier(random_state=0),
    }
    losses, seconds = {}, {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for method, model in methods.items():
            _, seconds[method] = timed(lambda model=model: model.fit(x[:cut], y[:cut]))
            losses[method] = (model.predict(x[cut:]) != y[cut:]).astype(float)
    yield Case(
        name,
        losses,
        seconds,
        f"{cut} x {x.shape[1]}, {y.max() + 1} classes; {seconds['eckart']:.1f} s, MLP "
        f"{seconds['MLPClassifier']:.1f} s",
    )
