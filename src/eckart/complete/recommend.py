"""Recommending from factors (2.11): the best columns for a row, rows and columns that are alike,
and why.

Columns are ordered by the chance that a row takes them up and likes them where that can be learned
(``demand``), else by the model's values B_ij. Scores are these values, on the scale where there is
one. Seen columns are left out unless asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from eckart.complete.folding import on_a_scale
from eckart.complete.lists_by_parts import OnParts, best_by_parts
from eckart.complete.score import SharesOfEntries
from eckart.errors import InputError, invalid
from eckart.factors import LowRank
from eckart.index.labels import Labels, is_one, one_or_many, tidy
from eckart.matrix import Observed
from eckart.matrix_blocks import parts_of, some_rows
from eckart.notebook import table

MOST_SHOWN = 50
"""Lines of lists that a notebook shows."""


@dataclass(frozen=True, eq=False)
class Recommendations:
    """The n best columns for each row: ids, scores and positions (rows x n, best first; id None,
    position -1 and score -inf where there are fewer).

    ``support`` says how often each of them was observed, ``by`` how they were ordered ("chance" or
    "prediction"; "cosine" or "weight" for what is alike).

    >>> r = Recommendations(np.array(["ann"]), np.array([["tea", "rye"]]), np.array([[4.5, 4.0]]), np.array([[3, 1]]))
    >>> list(r.entries())
    [('ann', 1, 'tea', 4.5), ('ann', 2, 'rye', 4.0)]

    They unpack as ids and scores, rows x n, or of n where one id was asked for:

    >>> ids, scores = r
    >>> ids.shape, scores.tolist()
    ((1, 2), [[4.5, 4.0]])
    """

    rows: np.ndarray
    columns: np.ndarray
    scores: np.ndarray
    positions: np.ndarray
    support: np.ndarray | None = None
    by: str = "prediction"
    one: bool = False

    @classmethod
    def of(
        cls, ids: Labels, asked: Any, best: np.ndarray, scores: np.ndarray, by: str
    ) -> Recommendations:
        """What is alike to the ids that were asked for, by positions on one side of the matrix."""
        rows = ids.names(ids.indices_of(one_or_many(asked)))
        return cls(rows, _names(ids, best), scores, best, by=by, one=is_one(asked))

    def __iter__(self) -> Iterator[np.ndarray]:
        """Ids and scores; of one row, where one id was asked for, without what is missing at the
        end."""
        if not self.one:
            return iter((self.columns, self.scores))
        found = self.positions[0] >= 0
        return iter((self.columns[0][found], self.scores[0][found]))

    def entries(self) -> Iterator[tuple[Any, int, Any, float]]:
        """(row, rank, column, score), the gaps left out."""
        for i, row in enumerate(self.rows):
            for t in range(self.columns.shape[1]):
                if self.positions[i, t] >= 0:
                    yield _plain(row), t + 1, _plain(self.columns[i, t]), float(self.scores[i, t])

    def __len__(self) -> int:
        return len(self.rows)

    def _repr_html_(self) -> str:
        """The lists of the first rows."""
        lines = list(islice(self.entries(), MOST_SHOWN))
        more = int((self.positions >= 0).sum()) - len(lines)
        return table(
            ("row", "rank", "column", "score"),
            lines,
            f"the first lines; {more:,} more follow" if more else "",
        )

    def part(self, rows: slice) -> Recommendations:
        """The lists of some of the rows."""
        often = None if self.support is None else self.support[rows]
        return Recommendations(
            self.rows[rows],
            self.columns[rows],
            self.scores[rows],
            self.positions[rows],
            often,
            self.by,
        )

    def to_table(self) -> dict[str, np.ndarray]:
        """Columns row, rank, column, score and, where it is known, observations (of the column),
        one line for each recommendation."""
        kept = self.positions.ravel() >= 0
        count, n = self.positions.shape
        table = {
            "row": np.repeat(self.rows, n)[kept],
            "rank": np.tile(np.arange(1, n + 1), count)[kept],
            "column": self.columns.ravel()[kept],
            "score": self.scores.ravel()[kept],
        }
        return (
            table if self.support is None else table | {"observations": self.support.ravel()[kept]}
        )


@dataclass(frozen=True)
class Explanation:
    """Why a cell is predicted as it is: base (mean and biases) plus the share of each observed
    entry, largest first.

    Where the model knows attributes or time, ``parts`` splits the prediction into "history",
    "attributes", "time" and "bias" (mean and biases); they add up. For a blend ``parts`` are what
    its members add. Under a loss the shares add up to the natural parameter (log odds, say), and
    ``on_scale`` is what that means on the scale of the data.
    """

    row: Any
    column: Any
    prediction: float
    base: float
    shares: list[tuple[Any, float, float]]
    parts: dict[str, float] = field(default_factory=dict)
    on_scale: float | None = None

    def __str__(self) -> str:
        parts_named = (
            "mean, biases, attributes and time" if "history" in self.parts else "mean and biases"
        )
        lines = [
            f"row {self.row}, column {self.column}: {self.prediction:.4g} = "
            f"{self.base:.4g} from {parts_named}"
        ]
        if self.on_scale is not None:
            lines[0] += f"; {self.on_scale:.4g} on the scale of the data"
        if self.parts:
            lines.append(
                "  in parts: "
                + ", ".join(f"{name} {value:+.4g}" for name, value in self.parts.items())
            )
        lines += [
            f"  {share:+.4g} because column {column} is {value:.4g}"
            for column, value, share in self.shares
        ]
        return "\n".join(lines)


class Chance(NamedTuple):
    """What orders lists by chance: the demand, its factors of the rows that are asked for, and the
    range of values."""

    demand: Any
    rows: LowRank
    scale: Any

    def of(self, at: np.ndarray) -> Chance:
        """For some of the rows."""
        return self._replace(rows=LowRank(self.rows.left[at], self.rows.right))


class Recommender(OnParts, SharesOfEntries):
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
        by: str = "auto",
        min_support: int = 0,
        unknown: str = "raise",
        N: int | None = None,
        filter_already_liked_items: bool | None = None,
    ) -> Recommendations:
        """The ``n`` best columns for the rows with these ids (one id, several, or None for all), or
        for new rows ``X`` folded in.

        ``candidates`` restricts the answer to some columns, ``exclude`` leaves some out; both are
        ids. Seen columns are left out unless ``exclude_seen=False``, and columns with fewer than
        ``min_support`` observations always.

        ``by`` says what best means: "chance" (of being taken up and liked, see
        ``complete.demand``), "prediction" (the largest value of the model) or "auto": "chance"
        where it can be predicted which entries are observed, as it is for what people choose, else
        "prediction" (implicit feedback, whose values are such chances, too). Scores are the model's
        values in either case. What rows are likely to take up is learned from the observed entries
        at the first call, and kept with the model. ``unknown="popular"`` answers ids that the fit
        did not know with the columns that most rows have, whose scores are these numbers. ``N`` and
        ``filter_already_liked_items`` are implicit's names for ``n`` and ``exclude_seen``.
        """
        n = n if N is None else N
        exclude_seen = (
            exclude_seen if filter_already_liked_items is None else filter_already_liked_items
        )
        if unknown not in ("raise", "popular"):
            raise invalid("unknown", unknown, "'raise' or 'popular'")
        f: LowRank = self._lowrank()
        _check_number(n)
        if (
            unknown == "popular"
            and rows is not None
            and (new := self.row_ids.find(one_or_many(rows)) < 0).any()
        ):
            how = {
                "exclude_seen": exclude_seen,
                "candidates": candidates,
                "exclude": exclude,
                "by": by,
                "min_support": min_support,
            }
            found = self._with_popular(tidy(one_or_many(rows)), new, int(n), how)
            return replace(found, one=is_one(rows))
        if by not in ("auto", "chance", "prediction"):
            raise invalid("by", by, "'auto', 'chance' or 'prediction'")
        if (
            isinstance(min_support, bool)
            or not isinstance(min_support, (int, np.integer))
            or min_support < 0
        ):
            raise invalid("min_support", min_support, "a number of observations, 0 or more")
        if by == "auto":
            by = self._ranking()
        if by == "chance" and self._loss() is not None:
            raise invalid(
                "by",
                by,
                "'auto' or 'prediction' for a model with a loss",
                "its values are chances or grades themselves",
            )
        if by == "chance" and not isinstance(f, LowRank):
            raise invalid(
                "by",
                by,
                f"'auto' or 'prediction' for {type(self).__name__}",
                "its lists are ordered by scores of its own",
            )
        if X is not None:
            if rows is not None:
                raise InputError(
                    "give rows= (ids of fitted rows) or X= (the entries of new rows), not both"
                )
            f, seen = self._folded(X)
            at = np.arange(f.shape[0])
            ids = Labels(f.rows, f.shape[0], "row")
        else:
            seen, ids = self.observed_, self.row_ids
            at = np.arange(f.shape[0]) if rows is None else ids.indices_of(one_or_many(rows))
        columns, support = self._open_columns(candidates, exclude, min_support)
        chance = None
        if by == "chance":
            demand = self.demand()
            scale = self.fit_.plan.get("clip") or on_a_scale(self.observed_) or (-np.inf, np.inf)
            chance = Chance(
                demand.without_rows(), demand.rows(at) if X is None else demand.fold(seen), scale
            )
        if X is None and parts_of(seen) is not None:
            best, scores = best_by_parts(self, at, int(n), columns, exclude_seen, chance, f.dtype)
        else:
            best, scores = self._best(f, at, columns, int(n), seen, exclude_seen, chance)
        best, scores = self._reported_scores(f, at, best, scores, by)
        often = np.where(best >= 0, support[best], 0)
        return Recommendations(
            ids.names(at),
            _names(self.column_ids, best),
            scores,
            best,
            often,
            by,
            rows is not None and is_one(rows),
        )

    def _open_columns(
        self: Any, candidates: Any, exclude: Any, min_support: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Positions of the columns that may be recommended, and how often each of all columns was
        observed."""
        ids, support = self.column_ids, self.observed_.column_counts()
        columns = (
            np.arange(len(support))
            if candidates is None
            else np.unique(ids.indices_of(one_or_many(candidates)))
        )
        if exclude is not None:
            columns = np.setdiff1d(columns, ids.indices_of(one_or_many(exclude)))
        if min_support:
            columns = columns[support[columns] >= min_support]
        if not len(columns):
            named = (
                "candidates=, exclude= and min_support="
                if min_support
                else "candidates= and exclude="
            )
            raise InputError(
                f"at least one column must be left to recommend, got none. Check {named}."
            )
        return columns, support

    def _with_popular(
        self: Any, rows: np.ndarray, new: np.ndarray, n: int, how: dict[str, Any]
    ) -> Recommendations:
        """Lists of the rows that the fit knew, and for the ``new`` ones the columns that most rows
        have."""
        columns, support = self._open_columns(how["candidates"], how["exclude"], how["min_support"])
        first = columns[np.argsort(-support[columns], kind="stable")[:n]]
        best, scores = (
            np.full((len(rows), n), -1),
            np.full((len(rows), n), -np.inf, self._lowrank().dtype),
        )
        best[new, : len(first)], scores[new, : len(first)] = first, support[first]
        by = "popularity"
        if not new.all():
            known = self.recommend(rows[~new], n, **how)
            wide = known.positions.shape[1]
            best[~new, :wide], scores[~new, :wide], by = known.positions, known.scores, known.by
        return Recommendations(
            rows,
            _names(self.column_ids, best),
            scores,
            best,
            np.where(best >= 0, support[best], 0),
            by,
        )

    def _best(
        self: Any,
        f: Any,
        at: np.ndarray,
        columns: np.ndarray,
        n: int,
        seen: Observed,
        exclude_seen: bool,
        chance: Chance | None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Positions and scores of the n best of ``columns`` for the rows ``at`` of ``f``, whose
        entries are ``seen``."""
        hidden = None
        if exclude_seen:
            seen = self._entries(seen)
            near, where = some_rows(seen, at)
            hidden = (
                (near.indptr, near.indices, where)
                if len(columns) == f.n
                else (*_on(near, columns), where)
            )
        if chance is not None:
            best, scores = self._by_chance(f, at, columns, n, seen, hidden, chance)
        else:
            best, scores = self._by_prediction(f, at, columns, n, seen, hidden)
        if "ranking" in self.fit_.plan:
            scores[best >= 0] = self._clipped(scores[best >= 0])
        return best, scores

    def _reported_scores(
        self: Any, f: Any, at: np.ndarray, best: np.ndarray, scores: np.ndarray, by: str
    ) -> tuple[np.ndarray, np.ndarray]:
        """Lists with the scores that are handed out; a model whose predictions are more than values
        of its factors says so here."""
        return best, scores

    def _ranking(self: Any) -> str:
        """What "auto" stands for; models saved before there was a choice order by predictions."""
        if self.fit_.plan.get("ranking") != "auto" or self._loss() is not None:
            return "prediction"
        return "chance" if self.demand().informative else "prediction"

    def _by_chance(
        self: Any,
        f: LowRank,
        at: np.ndarray,
        columns: np.ndarray,
        n: int,
        seen: Observed,
        hidden: Any,
        chance: Chance,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Positions of columns and values of the model at them, by falling chance."""
        demand, d, scale = chance
        rows = LowRank(
            f.left[at],
            f.right,
            f.mean,
            _taken(f.row_bias, at),
            f.column_bias,
            _taken(f.row_scale, at),
            f.column_scale,
        )
        found = demand.best(
            rows, d, seen.row_counts()[at], n, columns, hidden, scale, self._engine()
        )
        values = rows.at(
            np.repeat(np.arange(len(at)), found.shape[1]), columns[np.maximum(found, 0)].ravel()
        )
        values = np.clip(values.reshape(found.shape), *scale).astype(f.left.dtype, copy=False)
        best = np.where(found >= 0, columns[found], -1)
        return best, np.where(found >= 0, values, -np.inf).astype(values.dtype)

    def _by_prediction(
        self: Any,
        f: LowRank,
        at: np.ndarray,
        columns: np.ndarray,
        n: int,
        seen: Observed,
        hidden: Any,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Positions and values of the columns with the largest values of the model."""
        left, right, offset = scoring(f, at, columns)
        found, scores = self._engine().top_columns(left, right, n, offset, hidden)
        best = np.where(found >= 0, columns[found], -1)
        return best, _full_scores(f, at, best, scores)

    def similar(
        self: Any, *, rows: Any = None, columns: Any = None, n: int = 10
    ) -> Recommendations:
        """The ``n`` rows (or columns) whose codes point in the most similar direction: cosines of u
        (or v), itself left out."""
        one_side(rows, columns)
        _check_number(n)
        f: LowRank = self._lowrank()
        ids, factor = (self.row_ids, f.left) if columns is None else (self.column_ids, f.right)
        asked = rows if columns is None else columns
        at = ids.indices_of(one_or_many(asked))
        size = np.linalg.norm(factor, axis=1, keepdims=True)
        unit = np.divide(factor, size, out=np.zeros_like(factor), where=size > 0)
        own = np.arange(len(at) + 1), at, np.arange(len(at))
        best, scores = self._engine().top_columns(unit[at], unit, int(n), None, own)
        return Recommendations.of(ids, asked, best, scores, by="cosine")

    def explain(self: Any, row: Any, column: Any, n: int = 10) -> Explanation:
        """The observed entries of the row that contributed most to the value predicted at (row,
        column)."""
        f: LowRank = self._lowrank()
        i, j = self.row_ids.index_of(row), self.column_ids.index_of(column)
        x, (at,) = some_rows(self.observed_, np.array([i]))
        part = slice(x.indptr[at], x.indptr[at + 1])
        seen, values = x.indices[part], x.data[part].astype(np.float64)
        own = Observed(np.array([0, len(seen)]), seen, values, x.n_columns)
        fitted, loss, more = self._as_fitted(own).data, self._loss(), {}
        # the ridge problem that touches the loss at the model has the same code
        if loss is not None:
            s = f.at(np.full(len(seen), i), seen).astype(np.float64)
            more["weights"] = np.maximum(loss.curvature(fitted, s), 1e-12)
            fitted = s - loss.gradient(fitted, s) / more["weights"]
        shares, base, parts = self._shares(f, i, j, seen, fitted, **more)
        order = np.argsort(-np.abs(shares), kind="stable")[:n]
        names = self.column_ids.names(seen[order])
        listed = [
            (_plain(name), float(values[p]), float(shares[p])) for name, p in zip(names, order)
        ]
        total = float(base + shares.sum())
        on_scale = None if loss is None else float(loss.mean(np.array([total]))[0])
        if parts:  # what is neither bias nor attributes nor time is history
            parts = {"history": total - sum(parts.values()), **parts}
        return Explanation(row, column, total, float(base), listed, parts, on_scale)


def _taken(a: np.ndarray | None, at: np.ndarray) -> np.ndarray | None:
    return None if a is None else a[at]


def scoring(
    f: LowRank, rows: np.ndarray, columns: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
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
        raise invalid("n", n, "an int >= 1")


def one_side(rows: Any, columns: Any) -> None:
    """What is alike is asked of one side."""
    if (rows is None) == (columns is None):
        raise InputError(
            f"give ids of rows or of columns, exactly one of them, got rows={rows!r} and "
            f"columns={columns!r}"
        )


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
