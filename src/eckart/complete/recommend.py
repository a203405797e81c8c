"""Recommending from factors (2.11): the best columns for a row, rows and columns that are alike, and why.

Scores are the model's values B_ij without what is the same for all columns of a row. Seen columns are left out unless asked for.

Why: with the columns fixed, the code of row i is linear in its observed targets, u_i = M^-1 sum_p w_p y_p v_p with M = sum_p w_p v_p v_p^T + P, so the
prediction splits exactly into one share for each observed entry, share_p = w_p y_p v_j^T M^-1 v_p.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from eckart.errors import InputError, wrong
from eckart.factors import LowRank
from eckart.index.labels import Labels
from eckart.matrix import Observed
from eckart.matrix_blocks import some_rows


@dataclass(frozen=True, eq=False)
class Recommendations:
    """The n best columns for each row: ids, scores and positions (rows x n, best first; id None, position -1 and score -inf where there are fewer).

    >>> r = Recommendations(np.array(["ann"]), np.array([["tea", "rye"]]), np.array([[4.5, 4.0]]), np.array([[3, 1]]))
    >>> list(r)
    [('ann', 1, 'tea', 4.5), ('ann', 2, 'rye', 4.0)]
    """

    rows: np.ndarray
    columns: np.ndarray
    scores: np.ndarray
    positions: np.ndarray

    def __iter__(self) -> Iterator[tuple[Any, int, Any, float]]:
        """(row, rank, column, score), the gaps left out."""
        for i, row in enumerate(self.rows):
            for t in range(self.columns.shape[1]):
                if self.positions[i, t] >= 0:
                    yield _plain(row), t + 1, _plain(self.columns[i, t]), float(self.scores[i, t])

    def __len__(self) -> int:
        return len(self.rows)

    def to_table(self) -> dict[str, np.ndarray]:
        """Columns row, rank, column, score, one line for each recommendation."""
        kept = self.positions.ravel() >= 0
        count, n = self.positions.shape
        return {
            "row": np.repeat(self.rows, n)[kept],
            "rank": np.tile(np.arange(1, n + 1), count)[kept],
            "column": self.columns.ravel()[kept],
            "score": self.scores.ravel()[kept],
        }


@dataclass(frozen=True)
class Explanation:
    """Why a cell is predicted as it is: base (mean and biases) plus the share of each observed entry, largest first."""

    row: Any
    column: Any
    prediction: float
    base: float
    shares: list[tuple[Any, float, float]]

    def __str__(self) -> str:
        lines = [f"row {self.row}, column {self.column}: {self.prediction:.4g} = {self.base:.4g} from mean and biases"]
        lines += [f"  {share:+.4g} because column {column} is {value:.4g}" for column, value, share in self.shares]
        return "\n".join(lines)


class Recommender:
    """recommend, similar and explain of a ``Completer``."""

    def recommend(
        self: Any,
        rows: Any = None,
        n: int = 10,
        *,
        X: Any = None,
        exclude_seen: bool = True,
        candidates: Any = None,
        exclude: Any = None,
    ) -> Recommendations:
        """The ``n`` best columns for the rows with these ids (one id, several, or None for all), or for new rows ``X`` folded in.

        ``candidates`` restricts the answer to some columns, ``exclude`` leaves some out; both are ids. Seen columns are left out unless
        ``exclude_seen=False``.
        """
        _check_number(n)
        f: LowRank = self._lowrank()
        if X is not None:
            if rows is not None:
                raise InputError(
                    "rows= and X= came, wanted one of them: ids of fitted rows, or the entries of new rows"
                )
            f, seen = self._folded(X)
            at = np.arange(f.shape[0])
            ids = Labels(f.rows, f.shape[0], "row")
        else:
            seen, ids = self.observed_, self.row_ids
            at = np.arange(f.shape[0]) if rows is None else ids.indices_of(one_or_many(rows))
        columns = (
            np.arange(f.n) if candidates is None else np.unique(self.column_ids.indices_of(one_or_many(candidates)))
        )
        if exclude is not None:
            columns = np.setdiff1d(columns, self.column_ids.indices_of(one_or_many(exclude)))
        if not len(columns):
            raise InputError("no column is left to recommend, wanted at least one; check candidates= and exclude=")
        left, right, offset = scoring(f, at, columns)
        hidden = None
        if exclude_seen:
            seen, where = some_rows(seen, at)
            hidden = (seen.indptr, seen.indices, where) if len(columns) == f.n else (*_on(seen, columns), where)
        best, scores = self._engine().top_columns(left, right, int(n), offset, hidden)
        whole = np.where(best >= 0, columns[best], -1)
        return Recommendations(ids.names(at), _names(self.column_ids, whole), _full_scores(f, at, whole, scores), whole)

    def similar(
        self: Any,
        *,
        rows: Any = None,
        columns: Any = None,
        n: int = 10,
    ) -> Recommendations:
        """The ``n`` rows (or columns) whose codes point in the most similar direction: cosines of u (or v), itself left out."""
        if (rows is None) == (columns is None):
            raise InputError(f"rows={rows!r} and columns={columns!r} came, wanted ids for exactly one of them")
        _check_number(n)
        f: LowRank = self._lowrank()
        ids, factor = (self.row_ids, f.left) if columns is None else (self.column_ids, f.right)
        at = ids.indices_of(one_or_many(rows if columns is None else columns))
        size = np.linalg.norm(factor, axis=1, keepdims=True)
        unit = np.divide(factor, size, out=np.zeros_like(factor), where=size > 0)
        own = np.arange(len(at) + 1), at, np.arange(len(at))
        best, scores = self._engine().top_columns(unit[at], unit, int(n), None, own)
        return Recommendations(ids.names(at), _names(ids, best), scores, best)

    def explain(self: Any, row: Any, column: Any, n: int = 10) -> Explanation:
        """The observed entries of the row that contributed most to the value predicted at (row, column)."""
        f: LowRank = self._lowrank()
        i, j = self.row_ids.index_of(row), self.column_ids.index_of(column)
        x, (at,) = some_rows(self.observed_, np.array([i]))
        part = slice(x.indptr[at], x.indptr[at + 1])
        seen, values = x.indices[part], x.data[part].astype(np.float64)
        shares, base = self._shares(f, i, j, seen, values)
        order = np.argsort(-np.abs(shares), kind="stable")[:n]
        names = self.column_ids.names(seen[order])
        listed = [(_plain(name), float(values[p]), float(shares[p])) for name, p in zip(names, order)]
        return Explanation(row, column, float(base + shares.sum()), float(base), listed)

    def _shares(
        self: Any,
        f: LowRank,
        i: int,
        j: int,
        seen: np.ndarray,
        values: np.ndarray,
    ) -> tuple[np.ndarray, float]:
        """One share for each observed entry, and what is left: mean and biases."""
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
        weights, pulls = (
            (rule.alpha * values, np.where(values > 0, rule.alpha * values + rule.shift, 0.0))
            if rule.alpha
            else (np.ones(len(v)), targets)
        )
        matrix = (v.T * weights) @ v + np.diag(penalty)
        if (gram := self._fold_base(f)) is not None:
            matrix += gram[np.ix_(used, used)]
        row_of = np.linalg.lstsq(matrix, goal, rcond=None)[0]
        factor = stretch * (1.0 if f.column_scale is None else float(f.column_scale[j]))
        return factor * pulls * (v @ row_of), float(clean.at([i], [j])[0])


def scoring(f: LowRank, rows: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Left and right factors and offsets whose scores rank the columns of every row as B does."""
    left, right = f.left[rows], f.right if len(columns) == f.n else f.right[columns]
    if f.row_scale is not None:
        left = left * f.row_scale[rows, None]
    if f.column_scale is not None:
        right = right * f.column_scale[columns, None]
        if f.row_bias is not None:
            left = np.column_stack([left, f.row_bias[rows]])
            right = np.column_stack([right, f.column_scale[columns]])
    return left, right, None if f.column_bias is None else f.column_bias[columns]


def _full_scores(f: LowRank, rows: np.ndarray, whole: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Scores as values of B."""
    out = scores + scores.dtype.type(f.mean)
    if f.row_bias is not None and f.column_scale is None:
        out += f.row_bias[rows, None].astype(out.dtype)
    out[whole < 0] = -np.inf
    return out


def _on(seen: Observed, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """indptr and indices of what was seen of some columns."""
    csr = seen.to_scipy()[:, columns].tocsr()
    return csr.indptr, csr.indices


def _check_number(n: Any) -> None:
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
        raise wrong("n", n, "an int >= 1")


def one_or_many(ids: Any) -> Any:
    """One id as a list of one."""
    return [ids] if isinstance(ids, (str, bytes)) or np.ndim(ids) == 0 else ids


def _names(ids: Labels, positions: np.ndarray) -> np.ndarray:
    """Ids at the positions, None at -1."""
    names = ids.names(np.maximum(positions, 0))
    if (positions >= 0).all():
        return names
    names = names.astype(object)
    names[positions < 0] = None
    return names


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) and value.dtype.kind != "M" else value
