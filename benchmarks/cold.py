"""People of whom nothing was seen: 5 % of the users of MovieLens-100K hidden whole, predicted by
their attributes, and by biases alone.

    python benchmarks/cold.py [FIRST] [LAST]

Random sets FIRST .. LAST - 1 (0 .. 20) of 47 users; films without another rating are left out.
Defaults throughout, but for the draws of ``BayesianMF``. Prints the RMSE of each set, and the mean
difference to the biases of the same model with its standard error over the sets.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import pandas as pd
from accuracy import DATA, attributes

from eckart import ALS, BayesianMF

HIDDEN = 47
DRAWS: dict[str, Any] = {"n_samples": 60, "burn_in": 40, "thin": 2}
AGAINST = {"ALS, people": "ALS, biases", "ALS, people and films": "ALS, biases"}
AGAINST |= {
    "BayesianMF, people": "BayesianMF, biases",
    "BayesianMF, people and films": "BayesianMF, biases",
}


def one_set(table: pd.DataFrame, known: dict[str, Any], seed: int) -> dict[str, float]:
    """RMSE by model for one set of hidden users."""
    hidden = table.user.isin(
        np.random.default_rng(100 + seed).choice(np.unique(table.user), HIDDEN, replace=False)
    )
    train, test = table[~hidden], table[hidden]
    test = test[test.film.isin(set(train.film))]
    names, ask = (
        {"rows": "user", "columns": "film", "values": "rating"},
        (test.user.to_numpy(), test.film.to_numpy()),
    )
    films, mean = train.groupby("film").rating, train.rating.mean()
    shrunk = (films.sum() - mean * films.count()) / (films.count() + 5)
    found = {"means of films": mean + test.film.map(shrunk).to_numpy()}
    for name, model in (
        ("ALS", ALS(random_state=0)),
        ("BayesianMF", BayesianMF(16, random_state=0, **DRAWS)),
    ):
        found[f"{name}, biases"] = model.fit(train, **names).predict(*ask, unknown="mean")
        people = {"row_features": known["row_features"]}
        found[f"{name}, people"] = model.fit(train, **names, **people).predict(*ask)
        found[f"{name}, people and films"] = model.fit(train, **names, **known).predict(*ask)
    stars = test.rating.to_numpy(float)
    return {
        name: round(float(np.sqrt(np.mean((np.clip(p, 1, 5) - stars) ** 2))), 5)
        for name, p in found.items()
    }


def main(first: int, last: int) -> None:
    folder = DATA / "movielens-100k"
    table = pd.read_csv(
        folder / "u.data", sep="\t", header=None, names=["user", "film", "rating", "when"]
    )
    table, known, sets = table.drop(columns="when"), attributes(folder), list[dict[str, float]]()
    for seed in range(first, last):
        sets.append(one_set(table, known, seed))
        print(seed, json.dumps(sets[-1]), flush=True)
    for name in sets[0]:
        told = f"{name}: {np.mean([s[name] for s in sets]):.4f}"
        if name in AGAINST and len(sets) > 1:
            away = np.array([s[name] - s[AGAINST[name]] for s in sets])
            error = away.std(ddof=1) / np.sqrt(len(away))
            told += (
                f", {away.mean():+.4f} +- {error:.4f} against {AGAINST[name]}, lower in "
                f"{(away < 0).sum()} of {len(away)}"
            )
        print(told)


if __name__ == "__main__":
    main(*(int(a) for a in (sys.argv[1:3] or ("0", "20"))))
