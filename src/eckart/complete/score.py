"""How good is a completer on cells that it has not seen? (scikit-learn's ``score``)

    values   1 - sum (x - p)^2 / sum (x - m)^2,  m the mean of what the model was fitted to: 1 is
    exact, 0 as good as m
    lists    NDCG@10 of the columns that rows took up, where the model ranks (implicit feedback,
    item models)

Cells of fitted rows are looked up by id. Of new rows a fifth of the entries is hidden, the others
fold the row in, and the hidden ones are judged.

Why a cell is predicted as it is. With the columns fixed, the code of row i is linear in its
observed targets,

    u_i = M^-1 sum_p w_p y_p v_p,    M = sum_p w_p v_p v_p^T + P,

so the prediction splits exactly into one share for each observed entry, share_p = w_p y_p v_j^T
M^-1 v_p.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from eckart.complete.split import hidden_of_rows
from eckart.errors import InputError
from eckart.factors import LowRank
from eckart.matrix import Observed
from eckart.metrics import ranking

HIDDEN = 0.2
"""The share of a new row's entries that is hidden: as in ``split(by="row")``."""
LENGTH = 10
"""Of the lists."""


def score_cells(model: Any, x: Observed) -> float:
    """The score on cells of known rows and columns, by id; what the fit does not know is answered
    by the mean, and left out of lists."""
    rows = np.repeat(np.arange(x.shape[0]), x.row_counts())
    row_ids = rows if x.rows is None else x.rows[rows]
    column_ids = x.indices if x.columns is None else x.columns[x.indices]
    if not ranks(model):
        return _of_values(model, x.data, model.predict(row_ids, column_ids, unknown="mean"))
    at, to = model._found(row_ids, column_ids)
    known = (at >= 0) & (to >= 0)
    if not known.any():
        raise InputError(
            "X must have pairs of rows and columns that the model knows to be scored, got none"
        )
    asked, place = np.unique(at[known], return_inverse=True)
    relevant = Observed.from_codes(
        place, to[known], np.ones(len(place)), (len(asked), model.fit_.factors.n), duplicates="last"
    )
    lists = model.recommend(model.row_ids.names(asked), LENGTH)
    return _of_lists(lists, relevant)


def score_rows(model: Any, x: Observed) -> float:
    """The score on hidden entries of new rows."""
    hidden = hidden_of_rows(x, HIDDEN, seed=0)
    if not hidden.any():
        raise InputError(
            "X must have a row of two entries or more to be scored: one to fold it in, "
            "one to judge by"
        )
    shown, judged = (_kept(x, which) for which in (~hidden, hidden))
    rows = np.repeat(np.arange(x.shape[0]), judged.row_counts())
    if not ranks(model):
        factors, _ = model._folded(shown)
        return _of_values(model, judged.data, model._clipped(factors.at(rows, judged.indices)))
    lists = model.recommend(X=shown, n=LENGTH)
    return _of_lists(lists, judged)


def ranks(model: Any) -> bool:
    """Whether what the model answers with are lists, and its values no predictions of data."""
    return getattr(model, "feedback", "explicit") == "implicit"


def _kept(x: Observed, entries: np.ndarray) -> Observed:
    ends = np.concatenate([[0], np.cumsum(entries)])
    return replace(x, indptr=ends[x.indptr], indices=x.indices[entries], data=x.data[entries])


def _of_lists(lists: Any, relevant: Observed) -> float:
    length = min(LENGTH, lists.positions.shape[1])  # of a model of fewer columns lists are shorter
    return float(ranking(lists.positions, relevant, length, ("ndcg",)).mean["ndcg"])


def _of_values(model: Any, truth: np.ndarray, predicted: np.ndarray) -> float:
    truth = truth.astype(np.float64)
    away = float(np.sum((truth - float(model.observed_.data.mean(dtype=np.float64))) ** 2))
    if not away > 0:
        raise InputError(
            "X must have values that differ from the mean of the fit to be scored, got "
            "none that does"
        )
    return 1.0 - float(np.sum((truth - predicted) ** 2)) / away


class Lean(NamedTuple):
    """The prior mean of a row's code (with its bias last, where there is one), and the part of a
    column's bias that its attributes give."""

    row: np.ndarray
    column_bias: float


class SharesOfEntries:
    """Shares of a cell by factors that are solved row by row."""

    def _shares(
        self: Any,
        f: LowRank,
        i: int,
        j: int,
        seen: np.ndarray,
        values: np.ndarray,
        weights: np.ndarray | None = None,
    ) -> tuple[np.ndarray, float, dict[str, float]]:
        """One share for each observed entry, what is left (mean, biases and attributes), and its
        parts where attributes are known."""
        rule = self._fold_rule()
        ridge, bias_ridge = (float(r[0]) for r in rule.ridges(np.array([len(seen)])))
        at = np.full(len(seen), i)
        clean = f.with_rows(np.zeros_like(f.left), None if rule.bias else f.row_bias, f.row_scale)
        scale = 1.0 if f.column_scale is None else f.column_scale[seen].astype(np.float64)
        stretch = 1.0 if f.row_scale is None else float(f.row_scale[i])
        targets = (values - clean.at(at, seen)) / scale / stretch
        used = (
            np.flatnonzero(f.left[i]) if rule.nonnegative else np.arange(f.k)
        )  # a row at the bound is linear in what is off it
        v = f.right[np.ix_(seen, used)].astype(np.float64)
        penalty = np.full(len(used), ridge)
        goal = f.right[j, used].astype(np.float64)
        if rule.bias:
            v, goal = np.column_stack([v, np.ones(len(v))]), np.append(goal, 1.0)
            penalty = np.append(penalty, bias_ridge)
        heavy = np.ones(len(v)) if weights is None else weights
        heavy, pulls = (
            (rule.alpha * values, np.where(values > 0, rule.alpha * values + rule.shift, 0.0))
            if rule.alpha
            else (heavy, heavy * targets)
        )
        matrix = (v.T * heavy) @ v + np.diag(penalty)
        if (gram := self._fold_base(f)) is not None:
            matrix += gram[np.ix_(used, used)]
        # in units of its own: the ridge of codes may be 1e20 times that of the bias, which least
        # squares would take for rounding
        unit = 1.0 / np.sqrt(np.where(np.diagonal(matrix) > 0, np.diagonal(matrix), 1.0))
        row_of = unit * np.linalg.lstsq(matrix * np.outer(unit, unit), goal * unit, rcond=None)[0]
        factor = stretch * (1.0 if f.column_scale is None else float(f.column_scale[j]))
        base, parts = float(clean.at([i], [j])[0]), dict[str, float]()
        if (means := self._prior_of(i, j)) is not None:
            lean = factor * float(row_of @ (penalty * means.row))
            parts = {"attributes": lean + means.column_bias, "bias": base - means.column_bias}
            base += lean
        return factor * pulls * (v @ row_of), base, parts

    def _prior_of(self: Any, i: int, j: int) -> Lean | None:
        """Where attributes let the code of row i and the bias of column j lean; None without."""
        return None
