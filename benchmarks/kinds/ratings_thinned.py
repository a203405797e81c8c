"""Ratings thinned to 2, 4, 8, 16 and 32 entries a row: ``ALS()`` beside shrunken biases and the
mean.

``ECKART_DATA`` names the folder with movielens-100k, movietweetings-100k and jester-1.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from kinds.grades import compared
from lists import jester, movielens, movietweetings

from eckart.matrix import Observed

BASELINES, RIVALS = ("biases", "mean"), ()
READ = {"movielens": movielens, "movietweetings": movietweetings, "jester": jester}
LEFT, ROWS, SEEDS = (2, 4, 8, 16, 32), 1500, 2
"""Entries a row, rows, and samples of each."""


def sets(tables: Any) -> list[str]:
    return [f"{name} {left}" for name in READ for left in LEFT]


def thinned(i: np.ndarray, j: np.ndarray, v: np.ndarray, left: int, seed: int) -> Observed:
    """At most so many entries of each of some rows."""
    rng = np.random.default_rng(seed)
    i = np.unique(i, return_inverse=True)[1]
    order = np.lexsort((rng.random(len(i)), i))
    place = np.empty(len(i), np.int64)
    place[order] = np.arange(len(i)) - np.repeat(
        np.searchsorted(i[order], np.arange(i.max() + 1)), np.bincount(i)
    )
    kept = (place < left) & np.isin(i, rng.permutation(i.max() + 1)[:ROWS])
    i, j = (np.unique(side[kept], return_inverse=True)[1] for side in (i, j))
    return Observed.from_codes(i, j, v[kept], (i.max() + 1, j.max() + 1), duplicates="last")


def cases(tables: Any, name: str) -> Any:
    source, left = name.split()
    i, j, v, _ = READ[source](Path(os.environ["ECKART_DATA"]))
    for seed in range(SEEDS):
        yield compared(f"{name} sample {seed}", thinned(i, j, v, int(left), seed), 1, soft=False)
