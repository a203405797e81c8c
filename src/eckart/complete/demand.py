"""What a row is likely to take up: the other half of a good list for ratings.

Ratings are not missing at random: people meet few things and rate those that they expected to like,
so that the largest predicted rating is mostly that of a column which hardly anybody rated. A list
is ordered by the chance that row i takes column j up and likes it,

    score_ij = 2 log p_ij + log P(a_ij >= t),       P(a_ij >= t) = Phi((prediction_ij - t) / s)
    p_ij     = (n_i d_ij + N0 q_j) / (n_i + N0)

d: implicit feedback (``ALS(feedback="implicit")``) fitted to which entries are observed, whatever
their values; q_j: share of rows that observed column j; n_i: entries of row i, so that rows of
which little is known lean on what is popular. t is the median of all values (half a step below it
where values stand on a scale of steps): half of what was rated was liked. s is the standard
deviation of all values: it bounds the error of any model that is better than the mean. The square
of p makes the prediction, whose error is larger for what a row has not met, decide between columns
of similar chance and not against them.

Rank and weight of d are those with the largest NDCG@10 of lists by p on liked entries that were
hidden from it. Where these lists are no better than random ones, entries are missing at random as
far as can be seen, and ``recommend`` orders by predictions alone.

Reference: Marlin and Zemel, "Collaborative prediction and ranking with non-random missing data"
(2009); Steck (2010).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import log_ndtr

from eckart.certify.certificate import Certificate
from eckart.complete.factors.als import ALS
from eckart.complete.factors.choices import LIST_RIDGE
from eckart.complete.split import split
from eckart.errors import FileError
from eckart.factors import LowRank
from eckart.fit import Fit
from eckart.matrix import Observed, row_parts
from eckart.matrix_blocks import first_rows, parts_of, with_values
from eckart.metrics import ranking
from eckart.trace import Trace

CHOICES = ((8, 0.1), (16, 0.3), (16, 1.0))
"""Ranks and weights of unobserved cells that are tried: long sparse histories want few dimensions
and a light zero, dense ones many and a heavy one."""
PRIOR = 5.0
"""N0: entries of a row at which its own history weighs as much as popularity."""
POWER = 2.0
HIDDEN, JUDGED_ROWS, JUDGED_ENTRIES = 0.1, 2000, 300_000
"""The choice is made on a tenth of the entries, of at most so many rows, in the first rows that
hold so many entries: more does not change it."""
SWEEPS, LOOSE = 15, 1e-3
"""Sweeps and tolerance: lists do not change after that."""
SURE = 4.0
"""Standard errors by which the best of the choices must beat random lists: chance alone does that
less than once in ten thousand times."""
LEAST = 1e-9
"""Chances below it are equal."""


@dataclass(frozen=True, eq=False)
class Demand:
    """Chances of being taken up and liked.

    ``model``: d, with its certificate; ``support``: observations of each column in ``n_rows`` rows;
    ``liked``: t; ``spread``: s; ``table``: of each choice the rank, the weight, NDCG@10 on hidden
    entries, and the standard errors by which that is above random lists.
    """

    model: ALS
    support: np.ndarray
    liked: float
    spread: float
    table: list[list[float]]
    n_rows: int

    @classmethod
    def of(cls, x: Observed, *, engine: Any = "auto", n_threads: int | None = None) -> Demand:
        """Learned from the entries of ``x``; the same entries give the same answer."""
        how = {"engine": engine, "n_threads": n_threads}
        some = (
            x if parts_of(x) is None else first_rows(x, JUDGED_ENTRIES)
        )  # t and s of parts are those of as many entries
        liked, spread = _likes(some.data)
        table = _tried(some, liked, how)
        k, weight, *_ = max(table, key=lambda row: row[2])
        model = _model(int(k), weight, how).fit(with_values(x, _mask))
        return cls(model, x.column_counts(), liked, spread, table, x.shape[0])

    @property
    def informative(self) -> bool:
        """Whether it can be predicted which entries are observed: whether they are missing not at
        random."""
        return max(row[3] for row in self.table) > SURE

    @property
    def certificate(self) -> Certificate:
        """Evidence that d is a stationary point of its problem."""
        return self.model.certificate_

    def best(
        self,
        f: LowRank,
        d: LowRank,
        counts: np.ndarray,
        n: int,
        columns: np.ndarray,
        hidden: Any,
        scale: Any,
        engine: Any,
    ) -> np.ndarray:
        """Positions (among ``columns``) of the n best of each row of ``f``, -1 where there are
        fewer. ``d``: the same rows of the demand.

        Phi <= 1, so a column behind the first c by p has at most the score 2 log p of the c-th:
        where the n-th best of the first c has more, the list is that of all columns; else c is
        doubled.
        """
        left, right = _shrunk(d, counts, self.support, self.n_rows)
        right = right[columns]
        out = np.full((len(left), min(n, len(columns))), -1)
        todo, width = np.arange(len(left)), min(len(columns), 8 * n + 64)
        while len(todo):
            without = None if hidden is None else (hidden[0], hidden[1], hidden[2][todo])
            first, chance = engine.top_columns(left[todo], right, width, None, without)
            guess = np.clip(
                f.at(np.repeat(todo, first.shape[1]), columns[np.maximum(first, 0)].ravel()), *scale
            )
            liked = log_ndtr(
                (guess.reshape(first.shape).astype(np.float64) - self.liked) / self.spread
            )
            taken = POWER * np.log(np.maximum(chance.astype(np.float64), LEAST))
            score = np.where(first >= 0, taken + liked, -np.inf)
            order = np.argsort(-score, axis=1, kind="stable")[:, : out.shape[1]]
            found = np.take_along_axis(first, order, axis=1)
            lowest = np.take_along_axis(score, order[:, -1:], axis=1)[:, 0]
            sure = (lowest >= taken[:, -1]) | (first[:, -1] < 0) | (first.shape[1] >= len(columns))
            out[todo[sure]] = found[sure]
            todo, width = todo[~sure], min(len(columns), 2 * width)
        return out

    def rows(self, at: np.ndarray) -> LowRank:
        """d of some fitted rows."""
        f = self.model.fit_.factors
        return LowRank(f.left[at], f.right)

    def without_rows(self) -> Demand:
        """What ``best`` needs, whatever the rows: it can go to where they are."""
        return replace(self, model=None)  # type: ignore[arg-type]

    def fold(self, x: Observed) -> LowRank:
        """d of new rows."""
        return self.model._folded(replace(_mask(x), columns=None))[0]

    def in_words(self) -> str:
        """For the plan of the model."""
        f = self.model.fit_.factors
        return (
            f"chance of being taken up and of a value above {self.liked:.4g}: rank "
            f"{f.k} and weight {self.model.unobserved_weight:g} of what is not "
            f"observed had the best lists of {len(self.table)} choices on hidden entries"
        )

    def to_state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and plain values, for a model file."""
        f, fit = self.model.fit_.factors, self.model.fit_
        kept = {
            "weight": self.model.unobserved_weight,
            "liked": self.liked,
            "spread": self.spread,
            "table": self.table,
        }
        evidence = {"certificate": fit.certificate.to_dict(), "sweeps": fit.plan["sweeps"]}
        return {"demand.left": f.left, "demand.right": f.right}, kept | evidence

    @classmethod
    def from_state(
        cls, x: Observed, arrays: dict[str, np.ndarray], values: Any, how: dict[str, Any]
    ) -> Demand:
        """The inverse of ``to_state``, for the entries that it was learned from; refused where it
        does not fit them."""
        left, right = arrays["demand.left"], arrays["demand.right"]
        k = left.shape[1] if left.ndim == 2 else 0
        if (
            k < 1
            or left.shape != (x.shape[0], k)
            or right.shape != (x.shape[1], k)
            or {left.dtype.kind, right.dtype.kind} != {"f"}
        ):
            raise FileError(
                f"demand factors of shapes {left.shape} and {right.shape} came with "
                f"entries of shape {x.shape}"
            )
        weight, liked, spread = (float(values[name]) for name in ("weight", "liked", "spread"))
        if not (np.isfinite([weight, liked, spread]).all() and weight >= 0 and spread > 0):
            raise FileError(
                f"demand must hold finite numbers, the last above 0, got weight {weight}, liked "
                f"{liked} and spread {spread}"
            )
        model = _model(k, weight, how)
        factors = LowRank(left, right)
        evidence = Certificate.from_dict(values["certificate"])
        model._take(
            Fit(factors, evidence, Trace("objective"), {"sweeps": int(values["sweeps"])}), _mask(x)
        )
        table = [[float(v) for v in row] for row in values["table"]]
        return cls(model, x.column_counts(), liked, spread, table, x.shape[0])


def _likes(values: np.ndarray) -> tuple[float, float]:
    """t and s."""
    steps = np.unique(values)
    median = float(np.median(values))
    below = steps[steps < median]
    half = 0.5 * (median - float(below[-1])) if len(below) else 0.0
    return median - half, float(np.std(values, dtype=np.float64)) or 1.0


def _shrunk(
    d: LowRank, counts: np.ndarray, support: np.ndarray, n_rows: int
) -> tuple[np.ndarray, np.ndarray]:
    """Factors of p."""
    lead = counts / (counts + PRIOR)
    left, right = (
        np.column_stack([d.left * lead[:, None], 1 - lead]),
        np.column_stack([d.right, support / max(1, n_rows)]),
    )
    return left.astype(d.left.dtype, copy=False), right.astype(d.left.dtype, copy=False)


def _tried(x: Observed, liked: float, how: dict[str, Any]) -> list[list[float]]:
    """Each choice with its NDCG@10 on hidden likes, and how far that is above random lists; 0 where
    there is nothing to judge by."""
    if x.nnz < 2 or min(x.shape) < 2:
        return [[float(k), weight, 0.0, 0.0] for k, weight in CHOICES]
    ends = int(np.searchsorted(x.indptr, JUDGED_ENTRIES, side="right"))
    some = next(row_parts(replace(x, rows=None, columns=None), max(1, ends)))
    assert isinstance(some, Observed)
    parts = split(some, HIDDEN, random_state=0, keep_rows=False)
    train, relevant = parts.train, parts.test.to_scipy()
    relevant.data = (relevant.data >= liked).astype(relevant.dtype)
    relevant.eliminate_zeros()
    rows = np.flatnonzero(np.diff(relevant.indptr) > 0)
    rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), JUDGED_ROWS)).astype(int)]
    if len(rows) < 2:
        return [[float(k), weight, 0.0, 0.0] for k, weight in CHOICES]
    at, table = min(10, x.n_columns), []
    relevant, seen = relevant[rows], train.row_counts()[rows]
    by_chance = _random_ndcg(np.diff(relevant.indptr), x.n_columns - seen, at)
    for k, weight in CHOICES:
        model = _model(k, weight, how).fit(_mask(train))
        f = model.fit_.factors
        left, right = _shrunk(
            LowRank(f.left[rows], f.right), seen, train.column_counts(), train.shape[0]
        )
        lists, _ = model._engine().top_columns(
            left, right, at, None, (train.indptr, train.indices, rows)
        )
        found = ranking(lists, relevant, at, ("ndcg",), per_row=True)
        assert found.per_row is not None
        gain = found.per_row["ndcg"] - by_chance
        error = float(gain.std(ddof=1)) / np.sqrt(len(gain))
        table.append(
            [float(k), weight, found.mean["ndcg"], float(gain.mean() / error) if error > 0 else 0.0]
        )
    return table


def _random_ndcg(relevant: np.ndarray, candidates: np.ndarray, at: int) -> np.ndarray:
    """Expected NDCG of a list drawn at random: every place is a hit with probability relevant /
    candidates."""
    discount = np.cumsum(1 / np.log2(np.arange(2, at + 2)))
    places = np.minimum(candidates, at)
    return relevant / candidates * discount[places - 1] / discount[np.minimum(relevant, at) - 1]


def _mask(x: Observed) -> Observed:
    """One where an entry is observed."""
    return replace(x, data=np.ones_like(x.data), rows=None, columns=None)


def _model(k: int, weight: float, how: dict[str, Any]) -> ALS:
    return ALS(
        k,
        feedback="implicit",
        unobserved_weight=weight,
        l2=LIST_RIDGE,
        max_iter=SWEEPS,
        tol=LOOSE,
        random_state=0,
        **how,
    )
