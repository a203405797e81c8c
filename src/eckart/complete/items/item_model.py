"""ItemModel: what ``EASE``, ``SLIM`` and ``SpectralFilter`` share. A row x scores the columns by x
W; nothing of a row but its entries is learned.

So a new row needs no fit: its scores are a product. They are exact for it: those that a fitted row
with the same entries has.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any, Literal, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from eckart.complete.completer import Completer
from eckart.complete.folding import merge_entries, refuse_negative
from eckart.complete.items.row_scores import RowScores
from eckart.complete.kept_entries import KeptEntries
from eckart.complete.recommend import Explanation, Recommendations, one_or_many, one_side
from eckart.engines import available_memory
from eckart.engines.protocol import SparseRows
from eckart.errors import FileError, InputError
from eckart.factors import ItemWeights
from eckart.fit import Fit
from eckart.io.tables.triples import observed
from eckart.matrix import Observed
from eckart.matrix_blocks import as_counts, with_values
from eckart.parameters import param

DOUBLE = 8192
"""Columns up to which n x n weights are found in double precision (half a gigabyte); beyond, single
precision halves memory and time."""


class RowScorer(Completer):
    """A completer that scores the columns for a row by its entries, and learns nothing else of
    rows: what ``ItemModel`` and ``Blend`` share."""

    def fold_in(self, X: Any, *, axis: str = "rows") -> np.ndarray:
        """Scores of all columns for new rows, without refitting. A new column needs a fit."""
        refuse_columns(axis)
        return self._folded(X)[0].block(slice(None))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        return tags


def refuse_columns(axis: str) -> None:
    """New columns are no rows."""
    if axis != "rows":
        raise InputError(
            f"axis must be 'rows', got {axis!r}: the weights of new columns need a new fit"
        )


@dataclass(eq=False, repr=False)
class ItemModel(RowScorer):
    """Parameters and verbs of all item models."""

    _: KW_ONLY
    strengths: Literal["binary", "raw"] = param("binary")
    feedback: Literal["implicit"] = param("implicit")

    def _check_entries(self, x: Observed, weights: np.ndarray | None) -> None:
        if weights is not None:
            raise InputError(
                "weights are not taken: the strengths are in X itself, with strengths='raw'"
            )
        refuse_negative(x, "of what a row took up")

    def _as_fitted(self, x: Observed) -> Observed:
        """Strengths: 1 for every value above 0, or the values."""
        return x if self.strengths == "raw" else with_values(x, _taken_up)

    def _placed(self, x: Observed, engine: Any, dtype: Any) -> Any:
        """The strengths, absent ones zero, in the engine."""
        y = as_counts(with_values(self._as_fitted(x), partial(_cast, np.dtype(dtype)), dtype))
        return engine.put(y)

    def _lowrank(self) -> Any:
        check_is_fitted(self)
        return self._scores(self.observed_)

    def _scores(self, x: Observed) -> RowScores:
        fit = self._fitted("scores")
        return RowScores(self._as_fitted(x), fit.factors, self._linear(fit.factors), self._engine())

    def _rows_by_parts(self, x: Any) -> list[Any]:
        return [None] * len(x.parts.lengths)  # a part's own entries are all that is needed

    def _of_part(self, part: Observed, own: Any) -> RowScores:
        return self._scores(part)

    def _linear(self, w: ItemWeights) -> Any:
        """S of W = S + L R^T."""
        if w.weights is not None:
            return w.weights
        return SparseRows(w.indptr, w.indices, w.data)  # type: ignore[arg-type]

    def _folded(self, X: Any) -> tuple[Any, Observed]:
        x = self._aligned(X)
        return self._scores(x), x

    def update(self, X: Any, *, axis: str = "rows") -> Self:
        """Take in the full history of some rows: known ids are replaced, new ids are added; the
        weights stay as they are."""
        refuse_columns(axis)
        x, ids = self._aligned(observed(X)), self.row_ids
        self._check_entries(x, None)
        if (x.rows is None) != (ids.labels is None):
            raise InputError(
                "X and the model must both have row ids, or both have none; read both with rows="
            )
        labels = (
            np.arange(ids.size, ids.size + x.shape[0]) if x.rows is None else np.asarray(x.rows)
        )
        fresh = labels[ids.find(labels) < 0]
        rows = None if ids.labels is None else np.concatenate([np.asarray(ids.labels), fresh])
        entries = merge_entries(self.observed_, x, labels, ids, rows)
        factors = replace(self.fit_.factors, n_rows=entries.shape[0], rows=rows)
        self._take(replace(self.fit_, factors=factors), entries)
        return self

    def _by_prediction(
        self, f: Any, at: np.ndarray, columns: np.ndarray, n: int, seen: Observed, hidden: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        return f.best(at, n, columns, None if hidden is None else (seen.indptr, seen.indices, at))

    def similar(self, *, rows: Any = None, columns: Any = None, n: int = 10) -> Recommendations:
        """For columns: those to which an entry there adds most (the largest W_ji). For rows: those
        with the most similar entries (cosines)."""
        one_side(rows, columns)
        scores = self._lowrank()
        if columns is not None:
            ids = self.column_ids
            at = ids.indices_of(one_or_many(columns))
            single = Observed(np.arange(len(at) + 1), at, np.ones(len(at), scores.dtype), scores.n)
            own = (np.arange(len(at) + 1), at, np.arange(len(at)))
            best, values = replace(scores, entries=single).best(
                np.arange(len(at)), int(n), np.arange(scores.n), own
            )
            return Recommendations.of(ids, columns, best, values, by="weight")
        return rows_alike(scores.entries, self.row_ids, rows, n, scores.engine)

    def explain(self, row: Any, column: Any, n: int = 10) -> Explanation:
        """The score of (row, column) as a sum over the entries of the row: share_i = x_i W_ij,
        exactly."""
        scores, i, j = self._lowrank(), self.row_ids.index_of(row), self.column_ids.index_of(column)
        x, y = self.observed_, scores.entries
        part = slice(x.indptr[i], x.indptr[i + 1])
        seen = x.indices[part]
        single = Observed(
            np.arange(len(seen) + 1), seen, np.ones(len(seen), scores.dtype), scores.n
        )
        weights = replace(scores, entries=single).at(np.arange(len(seen)), np.full(len(seen), j))
        shares = y.data[part].astype(np.float64) * weights
        order = np.argsort(-np.abs(shares), kind="stable")[:n]
        listed = [
            (name, float(x.data[part][p]), float(shares[p]))
            for name, p in zip(self.column_ids.names(seen[order]).tolist(), order)
        ]
        return Explanation(row, column, float(shares.sum()), 0.0, listed)

    extra_state = KeptEntries.extra_state  # there is no normaliser and no demand

    def _store(self, fit: Fit, arrays: dict[str, np.ndarray]) -> None:
        f = fit.factors
        if not isinstance(f, ItemWeights):
            raise FileError(f"factors must be ItemWeights, got kind {type(f).__name__}")
        self._take(fit, self._entries_of(arrays, f, "weights for"))


def _taken_up(x: Observed) -> Observed:
    return replace(x, data=(x.data > 0).astype(x.dtype))


def _cast(dtype: np.dtype, x: Observed) -> Observed:
    return replace(x, data=x.data.astype(dtype), rows=None, columns=None)


def rows_alike(x: Observed, ids: Any, rows: Any, n: int, engine: Any) -> Recommendations:
    """The n rows whose entries have the largest cosine with those of the rows with these ids."""
    at = ids.indices_of(one_or_many(rows))
    size = np.sqrt(
        np.add.reduceat(np.append(x.data.astype(np.float64) ** 2, 0), x.indptr[:-1])
        * (x.row_counts() > 0)
    )
    unit = replace(
        x, data=(x.data / np.repeat(np.where(size > 0, size, 1), x.row_counts())).astype(x.dtype)
    )
    t = unit.transposed()
    own = (np.arange(len(at) + 1), at, np.arange(len(at)))
    best, values = engine.best_products(
        SparseRows(unit.indptr, unit.indices, unit.data),
        at,
        SparseRows(t.indptr, t.indices, t.data),
        len(size),
        int(n),
        None,
        None,
        own,
    )
    return Recommendations.of(ids, rows, best, values, by="cosine")


def require_square(name: str, n: int, other: str) -> np.dtype:
    """The precision of n x n weights; refused where they do not fit in memory."""
    dtype = np.dtype(np.float64 if n <= DOUBLE else np.float32)
    needed, free = 1.1 * n * n * dtype.itemsize, available_memory()
    if needed > free:
        raise InputError(
            f"X has {n:,} columns: the weights between them take {needed / 2**30:,.1f} "
            f"GiB, {free / 2**30:,.1f} GiB are free; leave out columns that "
            f"few rows have, or use {other} instead of {name}"
        )
    return dtype
