"""Clicks, baskets and counts thinned to 5, 10, 20 and 40 entries a row: the defaults for implicit
feedback beside popularity.

``ECKART_DATA`` names the folder with gowalla, movielens-100k, movietweetings-100k, jester-1,
octis-corpora and 20newsgroups-etm; the count tables are those of ``tables.py``; the logs are
generated. A fifth of the entries is hidden, and the loss of a row is 1 - NDCG@10. Sets are sources,
so that the half that judges has data that had no part in a choice.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from defaults import Case, timed
from items import read
from lists import jester, movielens, movietweetings

from eckart import ALS, EASE, SLIM, SpectralFilter, split
from eckart.complete.compare_lists import _popular
from eckart.matrix import Observed
from eckart.metrics import ranking

BASELINES, RIVALS = ("popularity", "fixed weights"), ("EASE", "SLIM", "SpectralFilter")
LEFT, ROWS, AT, SQUARE = (5, 10, 20, 40), 3000, 10, 4500
"""Entries a row, rows, length of the lists, and columns up to which weights between them are
fitted."""
LIKED = {"movielens": movielens, "movietweetings": movietweetings, "jester": jester}
CORPORA = ("BBC_News", "M10", "DBLP")
TABLES = ("supermarket", "hotel_places", "planes", "deliveries", "strikes_by_species")
LOGS = {
    "log_sparse": (4000, 6000, 30, 1.2),
    "log_wide": (3000, 15000, 60, 1.5),
    "log_dense": (2000, 400, 60, 1.0),
    "log_staples": (2000, 120, 45, 0.3),
}
"""Generated logs: rows, columns, mean entries of a row, and how far tastes differ beside popularity
(staples: everybody buys nearly the same)."""
Entries = tuple[np.ndarray, np.ndarray, np.ndarray]


def sets(tables: Any) -> list[str]:
    return ["gowalla", *LIKED, *CORPORA, "newsgroups", *TABLES, *LOGS]


def words(documents: list[list[Any]]) -> Entries:
    """Document, word and how often it stands there."""
    i = np.repeat(np.arange(len(documents)), [len(d) for d in documents])
    j = np.unique(np.array([w for d in documents for w in d]), return_inverse=True)[1]
    pairs, counts = np.unique(i * (j.max() + 1) + j, return_counts=True)
    return pairs // (j.max() + 1), pairs % (j.max() + 1), counts.astype(float)


def log(rows: int, columns: int, mean: float, tastes: float, seed: int = 0) -> Entries:
    """Each row draws columns by exp(log popularity + tastes of a common space of 12 dimensions)."""
    rng = np.random.default_rng(seed)
    popular = -1.0 * np.log(np.arange(1, columns + 1))
    u, v = rng.standard_normal((rows, 12)), rng.standard_normal((columns, 12)) / np.sqrt(12)
    i, j = [], []
    for row in range(rows):
        keys = popular + 2.0 * tastes * (v @ u[row]) + rng.gumbel(size=columns)
        n = min(columns - 1, max(2, int(rng.gamma(2.0, mean / 2.0))))
        own = np.argpartition(-keys, n)[:n]
        i += [row] * n
        j += own.tolist()
    return np.array(i), np.array(j), 1.0 + rng.poisson(0.5, len(i))


def entries(tables: Any, name: str) -> Entries:
    folder = Path(os.environ["ECKART_DATA"])
    if name == "gowalla":
        i, j = read(folder / "gowalla" / "train.txt")
        return i, j, np.ones(len(i))
    if name in LIKED:
        i, j, v, like = LIKED[name](folder)
        return i[v >= like], j[v >= like], np.ones(int((v >= like).sum()))
    if name in CORPORA:
        lines = (folder / "octis-corpora" / f"{name}_corpus.tsv").read_text().splitlines()
        return words([line.split("\t")[0].split() for line in lines])
    if name == "newsgroups":
        from scipy.io import loadmat

        return words(
            [
                list(d.ravel())
                for d in loadmat(folder / "20newsgroups-etm" / "bow_tr_tokens.mat")[
                    "tokens"
                ].ravel()
            ]
        )
    if name in LOGS:
        return log(*LOGS[name])
    frame = tables.load(name)["data"]
    i, j = (
        np.unique(frame[side].astype(str), return_inverse=True)[1] for side in ("row", "column")
    )
    return i, j, frame["value"].to_numpy(float)


def thinned(
    i: np.ndarray, j: np.ndarray, v: np.ndarray, left: int, seed: int = 0
) -> Observed | None:
    """At most so many entries of each of some rows of three or more; None where rows have too few
    for this to differ from a smaller number."""
    rng = np.random.default_rng(seed)
    counts = np.bincount(i)
    rows = rng.permutation(np.flatnonzero(counts >= 3))[:ROWS]
    if np.minimum(counts[rows], left).mean() < (0.6 if left > LEFT[0] else 0.0) * left:
        return None
    at = np.isin(i, rows)
    i, j, v = np.unique(i[at], return_inverse=True)[1], j[at], v[at]
    order = np.lexsort((rng.random(len(i)), i))
    place = np.empty(len(i), np.int64)
    place[order] = np.arange(len(i)) - np.repeat(
        np.searchsorted(i[order], np.arange(i.max() + 1)), np.bincount(i)
    )
    kept = place < left
    i, j = (np.unique(side[kept], return_inverse=True)[1] for side in (i, j))
    return Observed.from_codes(
        i, j, v[kept].astype(np.float32), (i.max() + 1, j.max() + 1), duplicates="last"
    )


def losses(lists: np.ndarray, relevant: Any) -> np.ndarray:
    return 1.0 - ranking(lists, relevant, lists.shape[1], ("ndcg",), per_row=True).per_row["ndcg"]


def answers(columns: int) -> dict[str, Any]:
    """Ours first, and its defaults as fixed weights; models with weights between columns where
    these are few."""
    same: dict[str, Any] = {"random_state": 0, "n_threads": 1}
    found = {
        "ALS": ALS(feedback="implicit", **same),
        "fixed weights": ALS(feedback="implicit", unobserved_weight=0.1, l2=0.003, **same),
    }
    found["SpectralFilter"] = SpectralFilter(**same)
    return (
        found
        if columns > SQUARE
        else found
        | {"EASE": EASE(**same), "fixed ridge": EASE(100.0, **same), "SLIM": SLIM(**same)}
    )


def compared(name: str, x: Observed) -> Case:
    parts = split(x, 0.2, random_state=1)
    rows = np.flatnonzero(parts.test.row_counts())
    relevant, k = parts.test.to_scipy()[rows], min(AT, x.n_columns)
    found, seconds = {}, {}
    for method, model in answers(x.n_columns).items():
        _, seconds[method] = timed(partial(model.fit, parts.train))
        found[method] = losses(model.recommend(rows, n=k).positions, relevant)
    found["popularity"], seconds["popularity"] = (
        losses(_popular(parts.train, rows, k), relevant),
        0.0,
    )
    return Case(name, found, seconds, f"{x.shape[0]} x {x.shape[1]}, {x.nnz}")


def cases(tables: Any, name: str) -> Any:
    raw = entries(tables, name)
    for left in LEFT:
        if (x := thinned(*raw, left)) is not None:
            yield compared(f"{name} {left}", x)
