"""The ridge of ``EASE`` where none is given: chosen on entries that are hidden for it.

Without the hidden entries X^T X = Q L Q^T, and the scores of all columns for a row are, up to a
factor of 1 where the row has a column,

    x W = x - (x Q (L + l2)^-1 Q^T) / diag(Q (L + l2)^-1 Q^T)

so that one eigendecomposition serves every ridge, and a further ridge costs a product. Ridges of
100, 50, 200, ... are tried while the mean of 1 / log2(1 + rank) of the hidden entries gets better.
Of many columns those that most rows have are taken.
"""

from __future__ import annotations

import numpy as np

from eckart.complete.factors.hidden_lists import ENOUGH, FEWEST, ROUNDS, SHARE, hide, places, search
from eckart.decompositions import eigh
from eckart.matrix import Observed
from eckart.rng import generator

USUAL = 100.0
"""The ridge that is tried first, and where too few entries can be hidden."""
ENDS = (1.0, 1e5)
"""The ends of the search."""
LITTLE = 0.005
"""Share by which a ridge must be better for the search to go on: the curve is flat, and chance
would carry it far."""
ROWS = 2000
"""The most rows whose lists are looked at."""
COLUMNS = 1000
"""Columns that are looked at: the eigenvectors of so many take a second."""


def choose(x: Observed) -> tuple[float, str]:
    """The ridge for these strengths, and why."""
    top = np.sort(np.argsort(-x.column_counts(), kind="stable")[:COLUMNS])
    few = Observed.from_scipy(x.to_scipy()[:, top])
    number = int(np.clip(np.ceil(ENOUGH / (SHARE * max(few.nnz, 1))), 1, ROUNDS))
    rounds = (
        [_RidgeRound(*found) for seed in range(number) if (found := hide(few, seed))]
        if few.nnz >= FEWEST
        else []
    )
    if not rounds:
        return USUAL, "the usual one: there are too few entries to hide some"
    l2, tried = search(
        lambda l2: -float(np.mean(np.concatenate([r.places(l2) for r in rounds]))),
        USUAL,
        ENDS,
        LITTLE,
    )
    return l2, (
        f"the best places of {sum(len(r.rows) for r in rounds):,} hidden entries under "
        f"{tried} ridges"
    )


class _RidgeRound:
    """One hidden share, and the eigenvectors of what is left."""

    def __init__(self, train: Observed, hidden: Observed):
        asked = np.flatnonzero(hidden.row_counts())
        if len(asked) > ROWS:
            asked = np.sort(generator(0).choice(asked, ROWS, replace=False))
        known, away = train.to_scipy().astype(np.float64), hidden.to_scipy()[asked]
        self.values, self.q = eigh((known.T @ known).toarray())
        self.shown, self.rows, self.columns = (
            known[asked],
            np.repeat(np.arange(len(asked)), np.diff(away.indptr)),
            away.indices,
        )
        self.turned, self.squares = self.shown @ self.q, self.q * self.q

    def places(self, l2: float) -> np.ndarray:
        """1 / log2(1 + rank) of every hidden entry under this ridge."""
        inverse = 1.0 / (np.maximum(self.values, 0.0) + l2)
        return places(
            -((self.turned * inverse) @ self.q.T) / (self.squares @ inverse),
            self.shown,
            self.rows,
            self.columns,
        )
