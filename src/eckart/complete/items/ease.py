"""EASE: every column as a ridge regression on all others, in closed form.

    min 1/2 ||X - X W||_F^2 + l2/2 ||W||_F^2     subject to diag W = 0

With P = (X^T X + l2 I)^-1 the answer is W_ij = -P_ij / P_jj. It is found in the memory of X^T X: n
columns take n^2 numbers and n^3 operations, however many rows there are. The certificate bounds
what any other weights can gain, by products with the data (see ``certify.items``).

Reference: H. Steck, "Embarrassingly shallow autoencoders for sparse data" (2019).

The ridge of ``EASE`` where none is given: chosen on entries that are hidden for it.

Without the hidden entries X^T X = Q L Q^T, and the scores of all columns for a row are, up to a
factor of 1 where the row has a column,

    x W = x - (x Q (L + l2)^-1 Q^T) / diag(Q (L + l2)^-1 Q^T)

so that one eigendecomposition serves every ridge, and a further ridge costs a product. Ridges of
100, 50, 200, ... are tried while the mean of 1 / log2(1 + rank) of the hidden entries gets better.
Of many columns those that most rows have are taken.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

import numpy as np

from eckart.certify.certificate import Certificate
from eckart.certify.items import certify_zero_diagonal
from eckart.complete.factors.hidden_lists import (
    ENOUGH,
    FEWEST,
    ROUNDS,
    SAMPLE,
    SHARE,
    hide,
    places,
    search,
)
from eckart.complete.factors.hidden_share import sampled
from eckart.complete.items.item_model import ItemModel, require_square
from eckart.decompositions import eigh
from eckart.errors import invalid
from eckart.factors import ItemWeights
from eckart.fit import Fit, plan_of
from eckart.matrix import Observed
from eckart.matrix_blocks import parts_of
from eckart.parameters import number, optional, param
from eckart.rng import generator
from eckart.trace import Trace


class ItemRidge(NamedTuple):
    """The ridge of weights between columns."""

    l2: float


@dataclass(eq=False, repr=False)
class EASE(ItemModel):
    """Recommend by a linear model of every column on all others with a ridge and a zero diagonal,
    in closed form.

    Parameters
    ----------
    l2 : the ridge, above 0. None chooses it on hidden entries of the thousand most frequent columns
        (``items.hidden_ridge``).
    strengths : "binary" (every value above 0 counts 1) or "raw" (values as they are).
    feedback : "implicit", the only one: absent means not taken up.
    random_state, engine, n_threads, verbose : as in ``ALS``; the seed is that of the certificate's
        random vectors.

    Attributes
    ----------
    fit_ : factors (``ItemWeights``), certificate, trace, plan.
    certificate_ : its evidence.

    Up to 8,192 columns weights are found in double precision, beyond in single: 41,000 columns take
    7 GB.

    The certificate is global: no weights with a zero diagonal are better by more than the stated
    gap.

    >>> import numpy as np
    >>> x = np.array([[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 1, 1, 1]], float)
    >>> model = EASE(l2=1.0).fit(np.where(x > 0, x, np.nan))
    >>> model.recommend(X=np.array([[np.nan, 1, np.nan, np.nan]]), n=1).columns.tolist(), model.certificate_.holds
    ([[0]], True)
    """

    l2: float | None = param(None, optional(number(0, above=True)))
    _: KW_ONLY

    def ridge_for(self, x: Observed) -> ItemRidge:
        """The ridge for these entries: as asked for, or chosen on hidden ones."""
        return ItemRidge(self._chosen(x)[0])

    def _chosen(self, x: Observed) -> tuple[float, str]:
        """The ridge and why; of entries in parts by some rows, in memory."""
        if self.l2 is not None:
            return float(self.l2), ""
        return choose(self._as_fitted(x if parts_of(x) is None else sampled(x, None, SAMPLE)[0]))

    def _solve(self, x: Observed, weights: np.ndarray | None) -> Fit:
        self._check_entries(x, weights)
        n = x.n_columns
        dtype, engine = require_square("EASE", n, "SpectralFilter"), self._engine()
        with engine.at_work():
            gram = engine.column_gram(self._placed(x, engine, dtype), dtype)
            l2, reason = self._chosen(x)
            try:
                found = engine.zero_diagonal_ridge(gram, l2)
            except np.linalg.LinAlgError:
                raise invalid(
                    "l2", l2, f"a larger ridge: X^T X + l2 I cannot be inverted in {dtype}"
                ) from None
            w = (
                found.weights if n * n > 2**26 else found.weights.astype(x.dtype, copy=False)
            )  # no copy of what is large
            factors = ItemWeights(
                x.shape[0],
                n,
                weights=w,
                multipliers=found.multipliers,
                rows=x.rows,
                columns=x.columns,
            )
            certificate = self._certificate(factors, x, engine, l2)
        plan = (
            plan_of(engine)
            | {
                "solver": "closed form, in the memory of X^T X",
                "precision": str(dtype),
                "l2": l2,
            }
            | ({"l2_reason": reason} if reason else {})
        )
        return Fit(factors, certificate, Trace("none"), plan)

    def certify(self, X: Any) -> Certificate:
        """Measure the certificate again from this model and data, by products with the data
        alone."""
        x, engine = self._judged(X), self._engine()
        with engine.at_work():
            fit = self._fitted("certify")
            return self._certificate(fit.factors, x, engine, float(fit.plan["l2"]))

    def _certificate(self, f: ItemWeights, x: Observed, engine: Any, l2: float) -> Certificate:
        placed = self._placed(x, engine, np.float64)
        assert f.weights is not None
        assert f.multipliers is not None
        seed = 0 if self.random_state is None else self.random_state
        return certify_zero_diagonal(engine, placed, f.weights, f.multipliers, l2, generator(seed))


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
