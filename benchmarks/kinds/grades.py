"""Grades and judgements (tables of the kind "c"): ``ALS()`` beside shrunken biases, the mean, and
``SoftImpute()``; a tenth of the cells hidden."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from defaults import Case, timed

from eckart import ALS, SoftImpute, split
from eckart.matrix import Observed

BASELINES, RIVALS = ("biases", "mean"), ("SoftImpute",)
LARGEST = 60_000
"""Entries of a set from which rows are drawn: defaults are compared, not machines."""


def sets(tables: Any) -> list[str]:
    return list(tables.names("c"))


def entries(tables: Any, name: str) -> Observed:
    frame = tables.load(name)["data"]
    i, j = (
        np.unique(frame[side].astype(str), return_inverse=True)[1] for side in ("row", "column")
    )
    v = frame["value"].to_numpy(float)
    if len(v) > LARGEST:
        kept = np.random.default_rng(0).permutation(i.max() + 1)[
            : int((i.max() + 1) * LARGEST / len(v))
        ]
        at = np.isin(i, kept)
        i, j, v = np.unique(i[at], return_inverse=True)[1], j[at], v[at]
    return Observed.from_codes(i, j, v, (i.max() + 1, j.max() + 1), duplicates="last")


def biases(train: Observed, seed: int = 0) -> Any:
    """mean + b_i + c_j with shrinkage: damping of 1, 3, 10 and 30 entries for rows and columns, the
    best on a tenth hidden from the training entries."""
    from eckart import normalise

    inner = split(train, 0.1, random_state=seed)
    at = np.repeat(np.arange(inner.test.shape[0]), inner.test.row_counts())

    def error(l2: float) -> float:
        found = normalise(inner.train, "bias", l2=l2)[0]
        return float(
            np.mean(
                (found.invert(np.zeros(inner.test.nnz), at, inner.test.indices) - inner.test.data)
                ** 2
            )
        )

    return normalise(train, "bias", l2=min((1.0, 3.0, 10.0, 30.0), key=error))[0]


def answers(
    train: Observed, rows: np.ndarray, columns: np.ndarray, soft: bool
) -> dict[str, Callable[[], np.ndarray]]:
    """What each method predicts there, ours first."""
    found: dict[str, Callable[[], np.ndarray]] = {
        "ALS": lambda: ALS(random_state=0, n_threads=1).fit(train).predict(rows, columns),
        "biases": lambda: biases(train).invert(np.zeros(len(rows)), rows, columns),
        "mean": lambda: np.full(len(rows), train.data.mean()),
    }
    if soft:
        found["SoftImpute"] = lambda: (
            SoftImpute(random_state=0, n_threads=1).fit(train).predict(rows, columns)
        )
    return found


def compared(name: str, x: Observed, seeds: int, share: float = 0.1, soft: bool = True) -> Case:
    """Squared errors of every answer at the hidden entries of several splits."""
    losses: dict[str, list[np.ndarray]] = {}
    seconds: dict[str, float] = {}
    for seed in range(seeds):
        parts = split(x, share, random_state=seed)
        rows, columns = (
            np.repeat(np.arange(x.shape[0]), parts.test.row_counts()),
            parts.test.indices,
        )
        for method, answer in answers(parts.train, rows, columns, soft).items():
            guess, spent = timed(answer)
            losses.setdefault(method, []).append((parts.test.data - guess) ** 2)
            seconds[method] = seconds.get(method, 0.0) + spent
    return Case(
        name,
        {m: np.concatenate(a) for m, a in losses.items()},
        seconds,
        f"{x.shape[0]} x {x.shape[1]}, {x.nnz}",
        rooted=True,
    )


def cases(tables: Any, name: str) -> Any:
    x = entries(tables, name)
    yield compared(name, x, 3 if x.nnz < 20_000 else 1)
