"""Groups (tables of the kind "g"): ``GaussianMixture("auto")`` beside a single Gaussian and
scikit-learn's mixture with k of least BIC; a fifth of the rows is left out, and the loss is minus
the log-density of such a row.

The density of values on a grid (whole numbers, codes) has no bound: a component as narrow as its
``reg_covar`` allows wins by any amount on what is one value. So the values of such columns are
spread evenly over their step before anyone sees them, which leaves every method a proper density.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from defaults import Case, timed
from sklearn.mixture import GaussianMixture as Theirs

from eckart import GaussianMixture

BASELINES, RIVALS = ("one Gaussian",), ("scikit-learn by BIC",)
ROWS, COLUMNS = 1500, 20
"""Rows that are fitted and columns of a set at the most: the rival's covariances of all k take
minutes beyond."""
MOST = 12
"""Components that the rival tries: BIC of full covariances chooses fewer on all these sets but
two."""


def sets(tables: Any) -> list[str]:
    return list(tables.names("g"))


def rows_of(tables: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    x = np.asarray(tables.load(name)["data"], float)
    x = x[:, np.unique(np.linspace(0, x.shape[1] - 1, min(x.shape[1], COLUMNS)).astype(int))]
    x = spread(x[:, x.std(axis=0) > 0])
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    x = x[np.random.default_rng(0).permutation(len(x))]
    cut = min(ROWS, len(x) * 4 // 5)
    return x[:cut], x[cut : cut + 1000]


def spread(x: np.ndarray) -> np.ndarray:
    """Columns whose values are multiples of a step, spread evenly over it.

    >>> (np.abs(spread(np.array([[1.0, 0.1], [3.0, 0.25], [2.0, 0.7321]]))[:, 0] - [1, 3, 2]) <= 0.5).all()
    True
    """
    rng, x = np.random.default_rng(1), x.copy()
    for column in x.T:
        gaps = np.diff(np.unique(column))
        step = gaps.min()
        if np.abs(gaps / step - np.round(gaps / step)).max() < 1e-3 and len(gaps) < len(x) / 4:
            column += step * (rng.random(len(x)) - 0.5)
    return x


def by_bic(x: np.ndarray) -> Any:
    fits = [
        Theirs(k, n_init=1, random_state=0).fit(x)
        for k in range(1, MOST + 1)
        if k * x.shape[1] < len(x)
    ]
    return min(fits, key=lambda fit: fit.bic(x))


def shape_of(model: Any) -> str:
    """The kind of covariances."""
    return model.fit_.plan["covariance"] if hasattr(model, "fit_") else model.covariance_type


def cases(tables: Any, name: str) -> Any:
    train, test = rows_of(tables, name)
    methods = {
        "eckart": lambda: GaussianMixture("auto", random_state=0, n_threads=1).fit(train),
        "one Gaussian": lambda: Theirs(1).fit(train),
        "scikit-learn by BIC": lambda: by_bic(train),
    }
    losses, seconds, notes = {}, {}, []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for method, fit in methods.items():
            model, seconds[method] = timed(fit)
            losses[method] = -np.asarray(model.score_samples(test), float)
            notes.append(
                f"{getattr(model, 'n_components_', None) or model.n_components} {shape_of(model)}"
            )
    yield Case(
        name, losses, seconds, f"{train.shape[0]} x {train.shape[1]}; components {', '.join(notes)}"
    )
