"""Rows and columns that come after the fit: solved while the other side stays (``fold_in``), taken
into the model (``update``)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from sklearn.utils.validation import validate_data

from eckart.complete.factors.majorise import folded
from eckart.complete.folding import (
    cast,
    flipped,
    flipped_normaliser,
    learned_columns,
    merge_entries,
    merge_rows,
    on_columns,
    taken_up,
    with_rows_of,
)
from eckart.complete.normalise import Normaliser
from eckart.engines.protocol import RowSolution
from eckart.errors import InputError, wrong
from eckart.factors import LowRank
from eckart.io.tables.triples import observed
from eckart.matrix import Counts, Dense, Observed, squarable, wrong_ndim

T = TypeVar("T", bound=Any)
UPDATED = "measured before the last update; certify(X) measures the present model"


class NewRows:
    """fold_in and update of a ``Completer``, and the door for the rows that its other verbs are
    given."""

    def fold_in(self: Any, X: Any, *, axis: str = "rows") -> np.ndarray:
        """The codes u of new rows (or, with ``axis="columns"``, v of new columns of X) given the
        fitted model, without refitting."""
        if _of_columns(axis):
            return self._turned()._folded(observed(X).transposed())[0].left
        return self._folded(X)[0].left

    def update(self: T, X: Any, *, axis: str = "rows") -> T:
        """Take in the full history of some rows (or columns): known ids are solved anew, new ids
        are added; all else stays as it is."""
        turned = _of_columns(axis)
        model = self._turned() if turned else self
        self._take_in(
            model, model._aligned(observed(X).transposed() if turned else observed(X)), turned
        )
        return self

    def _take_in(self: Any, model: Any, x: Observed, turned: bool) -> None:
        """Rows of ``model`` (this one, or with rows and columns exchanged) solved anew or added, as
        ``update`` says."""
        new, _ = model._folded(x)
        ids = model.row_ids
        labels = np.arange(ids.size, ids.size + x.shape[0]) if x.rows is None else x.rows
        if x.rows is None and ids.labels is not None:
            raise InputError(
                "X has no row ids while the model has, wanted the ids of the rows to "
                "update; read it with rows="
            )
        fresh = np.asarray(labels)[ids.find(labels) < 0]
        if ids.labels is None and list(fresh) != list(range(ids.size, ids.size + len(fresh))):
            raise InputError(
                f"row ids {list(fresh[:3])} came for a model whose {ids.size} rows have "
                f"none, wanted positions up to {ids.size - 1}, or {ids.size}, ... "
                "for new rows; fit with row ids to add any"
            )
        merged = merge_rows(model._lowrank(), new, labels, ids)
        entries = merge_entries(model.observed_, x, labels, ids, merged.rows)
        norm = None if model.normaliser_ is None else with_rows_of(model.normaliser_, merged)
        self._take(
            replace(
                self.fit_,
                factors=flipped(merged) if turned else merged,
                certificate=replace(
                    self.fit_.certificate, notes=(*self.fit_.certificate.notes, UPDATED)
                ),
            ),
            entries.transposed() if turned else entries,
        )
        self.normaliser_ = flipped_normaliser(norm) if turned else norm

    def _turned(self: Any) -> Any:
        """The same model with rows and columns exchanged."""
        other = self.__class__(**self.get_params(deep=False))
        other._take(
            replace(self.fit_, factors=flipped(self._lowrank())), self.observed_.transposed()
        )
        other.normaliser_ = flipped_normaliser(self.normaliser_)
        return other

    def _folded(self: Any, X: Any) -> tuple[LowRank, Observed]:
        """New rows through the door and solved: their LowRank and their observed entries."""
        x = self._aligned(X)
        f = self._lowrank()
        norm = Normaliser(None, f.shape) if self.normaliser_ is None else self.normaliser_
        norm = norm.for_rows(x)
        y = replace(x, data=norm.apply(self._as_fitted(x)).data)
        engine = self._engine()
        with engine.at_work():
            found = self._folded_rows(y, f, norm, engine)
            left = np.ascontiguousarray(engine.get(found.left), f.right.dtype)
            bias = self._row_offset(x, f, norm) if found.bias is None else engine.get(found.bias)
        return f.with_rows(left, cast(bias, left), cast(norm.row_scale, left), x.rows), x

    def _folded_rows(
        self: Any, y: Observed, f: LowRank, norm: Normaliser, engine: Any
    ) -> RowSolution:
        """Codes and biases of new rows, given the columns."""
        offset, loss = self._offset(f, norm), self._loss()
        beside = None if offset is None else engine.take(offset, y.dtype)
        if loss is not None:
            return folded(
                engine,
                engine.put(y),
                loss,
                engine.take(f.right, y.dtype),
                self._fold_rule(),
                beside,
                f.k,
            )
        return engine.ridge_rows(
            engine.put(y),
            engine.take(f.right),
            self._fold_rule(),
            offset=beside,
            base=self._fold_base(f),
        )

    def _offset(self: Any, f: LowRank, norm: Normaliser) -> np.ndarray | None:
        """What the model says of columns before there are codes."""
        return learned_columns(f, norm)

    def _row_offset(self: Any, x: Observed, f: LowRank, norm: Normaliser) -> np.ndarray | None:
        """What new rows have beside their codes, where that is not solved for."""
        return norm.row_offset

    def _entries(self: Any, x: Observed) -> Observed:
        """What counts as an entry: of clicks, what was taken up."""
        return taken_up(x) if getattr(self, "feedback", "explicit") == "implicit" else x

    def _as_fitted(self: Any, x: Observed) -> Observed:
        """Entries as the fit sees them (implicit feedback brings strengths together)."""
        return x

    def _fold_base(self: Any, f: LowRank) -> np.ndarray | None:
        """What every row's matrix holds before its entries are added (implicit feedback)."""
        return None

    def _aligned(self: Any, X: Any) -> Observed:
        """New rows as Observed with the columns of the model, in its order."""
        f = self._lowrank()
        if hasattr(X, "shape") and not isinstance(X, (Dense, Observed, Counts)):
            if len(X.shape) != 2:
                raise wrong_ndim(len(X.shape))
            try:
                validate_data(self, X, reset=False, skip_check_array=True)
            except ValueError as error:  # scikit-learn's words, in an error of ours
                raise InputError(str(error)) from None
        x = self._entries(observed(X))
        if x.columns is not None and f.columns is not None:
            return on_columns(x, self.column_ids)
        if x.n_columns != f.n:
            raise InputError(
                f"X has {x.n_columns} features, but {type(self).__name__} is expecting "
                f"{f.n} features as input"
            )
        return x

    def _judged(self: Any, X: Any) -> Observed:
        """The same for a certificate, whose sums must not leave the range of numbers: refused in
        words, as in ``fit``."""
        return squarable(self._aligned(X))


def _of_columns(axis: str) -> bool:
    if axis not in ("rows", "columns"):
        raise wrong("axis", axis, "'rows' or 'columns'")
    return axis == "columns"
