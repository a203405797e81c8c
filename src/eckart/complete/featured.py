"""Completion with attributes by id (6.5): what ``ALS`` and ``BayesianMF`` can do with rows and
columns of which little or nothing was observed.

Attributes come as frames keyed by id (``io.tables.attributes``). Ids that only a frame has become
rows and columns of the model at the end of the fit, with the factors that their attributes speak
for: every verb takes them as it takes others. Ids that come later are given with ``row_features=``
or ``column_features=`` to the verb itself, which answers as if they had been there, or to
``update``, which keeps them.

A subclass provides ``_solve(x, weights, side_information)`` and, in ``_folded``, solves rows around the prior
means that ``_numbers`` speak for.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np

from eckart.complete.completer import Completer
from eckart.complete.folding import entry_weights
from eckart.complete.recommend import Explanation, Recommendations
from eckart.complete.side_information import Cold, KnownFeatures, SideInformation, TimeBins, known
from eckart.complete.timed_tables import timed
from eckart.errors import FileError, InputError, invalid
from eckart.fit import Fit
from eckart.index.labels import Labels, shown, tidy
from eckart.io.tables.attributes import Encoding
from eckart.io.tables.triples import observed
from eckart.matrix import Observed, squarable
from eckart.matrix_blocks import larger, parts_of
from eckart.parameters import check


class Features(NamedTuple):
    """The attributes that a model was fitted with, one row of numbers for each row and column of
    the model."""

    rows: KnownFeatures | None = None
    columns: KnownFeatures | None = None

    def flipped(self) -> Features:
        return Features(self.columns, self.rows)


class Featured(Completer, auto_wrap_output_keys=None):
    """A completer that knows attributes of rows and columns; ``transform`` is wrapped for
    scikit-learn's set_output in ``Completer``."""

    features_: Features | None = None
    _fresh: Cold | None = None

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        sql: str | None = None,
        weights: Any = None,
        rows: Any = None,
        columns: Any = None,
        values: Any = None,
        duplicates: str = "error",
        memory: Any = None,
        row_features: Any = None,
        column_features: Any = None,
        time: Any = None,
    ) -> Self:
        """Fit to the observed entries of X.

        X is an ``Observed``, a dense array or frame with NaN where nothing was seen, a sparse
        matrix whose stored entries are the observations, or a table or file of triples with the
        names of its columns in ``rows=``, ``columns=`` and ``values=``. With ``sql=`` X is a
        database (see ``eckart.read``), and the answer of the query is such a table. ``weights`` (>=
        0, one for each entry: an array of the shape of X, or one number for each stored entry in
        row order) say how much each observation counts. ``memory`` (such as ``"4GB"``; None: most
        of what is free) is what the observations of a file may take: more than that is sorted into
        shards on the disk first.

        ``row_features`` and ``column_features`` are frames (pandas, polars, Arrow), mappings of
        columns or files with one row for each id: the ids stand in the column of the same name as
        in X (``rows=``, ``columns=``), else in the index of a pandas frame; ``(frame, "name")``
        names another column. The kind of a column decides how it is written: numbers and dates
        standardised with gaps at the mean, booleans (and numbers that are only 0 and 1) as flags,
        categories and texts as one number for each level that stands at least twice, lists of texts
        the same. A level that comes up later counts as not known. Ids that a frame lacks are named
        in a note of the certificate: they have their entries only. Ids that only a frame has become
        rows or columns of the model. ``time`` is the name of the column of X that says when an
        entry was observed, numbers or dates, or an array of times in the order of the stored
        entries (``BayesianMF``).
        """
        check(self)
        table = {
            "rows": rows,
            "columns": columns,
            "values": values,
            "duplicates": duplicates,
            "memory": memory,
        }
        if time is None:
            x, when = self._entries(observed(X, sql, **table)), None
        else:
            x, when = timed(X, sql, time, table)
        self._name_table(rows, columns, values)
        parts = parts_of(x) is not None
        if parts and time is not None:
            raise InputError(
                "time needs data in memory, got data in parts. Leave it out to fit the ids alone."
            )
        notes, cold = list[str](), list[tuple[bool, Cold]]()
        sides: list[KnownFeatures | None] = []
        for source, key, labels, where in (
            (row_features, rows, x.row_index, "row_features"),
            (column_features, columns, x.column_index, "column_features"),
        ):
            if source is None:
                sides.append(None)
                continue
            side, beyond, note = known(source, key, labels, where)
            sides.append(side)
            cold.append((where == "column_features", beyond))
            notes += [] if note is None else [note]
        bins, bin_of = (None, None) if when is None else TimeBins.of(when.numbers)
        side_information = SideInformation(sides[0], sides[1], bins, bin_of)
        fit = self._solve(squarable(x), entry_weights(weights, x), side_information)  # type: ignore[arg-type]
        if when is not None:
            fit.plan["time"] = "dates" if when.dates else "numbers"
        certificate = replace(fit.certificate, notes=(*fit.certificate.notes, *notes))
        self.features_ = None if sides == [None, None] else Features(sides[0], sides[1])
        self._keep(replace(fit, certificate=certificate), x)
        for turned, beyond in cold:
            self._add(beyond, turned)
        self.fit_ = replace(self.fit_, certificate=certificate)
        return self

    def predict(
        self,
        rows: Any,
        columns: Any = None,
        *,
        unknown: str = "raise",
        row_features: Any = None,
        column_features: Any = None,
    ) -> np.ndarray:
        """The model's values at the cells (rows[p], columns[p]), by id; one id on either side
        stands for all.

        ``unknown`` ids: ``"raise"`` (the default), ``"mean"`` (a new row gets mean + c_j, a new
        column mean + b_i, both new: the mean) or ``"nan"``. With a matrix of new rows instead of
        ids, every cell of these rows (see ``transform``, which keeps what was observed). Ids that
        the fit did not know are predicted from their attributes where a frame in ``row_features``
        or ``column_features`` has them.
        """
        if row_features is not None or column_features is not None:
            return self._extended(row_features, column_features).predict(
                rows, columns, unknown=unknown
            )
        return super().predict(rows, columns, unknown=unknown)

    def recommend(
        self,
        rows: Any = None,
        n: int = 10,
        *,
        row_features: Any = None,
        column_features: Any = None,
        **more: Any,
    ) -> Recommendations:
        """The ``n`` best columns for rows; see ``Recommender.recommend`` for all that may be asked.

        ``row_features`` alone asks for the ids of that frame, known or not; columns of
        ``column_features`` are recommended beside those of the fit.
        """
        if row_features is None and column_features is None:
            return super().recommend(rows, n, **more)
        model = self._extended(row_features, column_features)
        if rows is None and row_features is not None and more.get("X") is None:
            rows = self._ids_of(row_features, "rows")
        return model.recommend(rows, n, **more)

    def similar(
        self,
        *,
        rows: Any = None,
        columns: Any = None,
        n: int = 10,
        row_features: Any = None,
        column_features: Any = None,
    ) -> Recommendations:
        """The ``n`` rows (or columns) whose codes point in the most similar direction: cosines of u
        (or v), itself left out.

        ``row_features`` or ``column_features`` alone ask for the ids of that frame, known or not.
        """
        if row_features is None and column_features is None:
            return super().similar(rows=rows, columns=columns, n=n)
        if rows is None and columns is None and (row_features is None or column_features is None):
            rows = None if row_features is None else self._ids_of(row_features, "rows")
            columns = None if column_features is None else self._ids_of(column_features, "columns")
        return self._extended(row_features, column_features).similar(
            rows=rows, columns=columns, n=n
        )

    def explain(
        self,
        row: Any,
        column: Any,
        n: int = 10,
        *,
        row_features: Any = None,
        column_features: Any = None,
        **more: Any,
    ) -> Explanation:
        """The observed entries of the row that contributed most to the value predicted at (row,
        column), and what its other parts are: the mean, biases, attributes and, where the model has
        it, time."""
        if row_features is not None or column_features is not None:
            return self._extended(row_features, column_features).explain(row, column, n, **more)
        return super().explain(row, column, n, **more)

    def transform(self, X: Any = None, *, row_features: Any = None) -> np.ndarray:
        """New rows with their unknown entries filled in: each row is solved while the columns stay
        (fold-in); what was observed is kept.

        ``row_features`` has attributes of these rows, by the row ids of X (by position where X has
        none). Without X every id of the frame is answered: from its attributes, and from its
        entries where it was in the fit.
        """
        if row_features is None:
            if X is None:
                raise InputError(
                    "X=None needs row_features=: give new rows, attributes of rows, or both"
                )
            return super().transform(X)
        side = self._known("rows", "row_features")
        if X is None:
            model, ids = self._extended(row_features, None), self._ids_of(row_features, "rows")
            blocks = [block for _, block in model.complete(rows=ids)]
            return np.concatenate(blocks)
        model = copy(self)
        model._fresh = Cold(*side.encoding.read(row_features, "row_features"))
        x = model._aligned(X)
        ids = np.arange(x.shape[0]) if x.rows is None else x.rows
        self._refuse_lacking(
            ids, model._fresh, "row_features", known=None if x.rows is None else self.row_ids
        )
        return Completer.transform(model, x)

    def update(
        self,
        X: Any = None,
        *,
        axis: str = "rows",
        row_features: Any = None,
        column_features: Any = None,
    ) -> Self:
        """Take in the full history of some rows (or columns): known ids are solved anew, new ids
        are added; all else stays as it is.

        Frames give attributes of new ids; without X their ids are added with what their attributes
        speak for.
        """
        if row_features is None and column_features is None:
            return super().update(X, axis=axis)
        model = copy(self)
        for turned, source, where in (
            (False, row_features, "row_features"),
            (True, column_features, "column_features"),
        ):
            if source is not None:
                side = model._known("columns" if turned else "rows", where)
                model._add(Cold(*side.encoding.read(source, where)), turned)
        if X is not None:
            model.update(X, axis=axis)
        self.__dict__.update(model.__dict__)
        return self

    def _extended(self, row_features: Any, column_features: Any) -> Self:
        """A copy of this model that knows the ids of the frames as well."""
        self._lowrank()
        return copy(self).update(row_features=row_features, column_features=column_features)

    def _add(self, cold: Cold, turned: bool) -> None:
        """Ids that are not known yet become rows (``turned``: columns) without entries."""
        seen = self.observed_
        if parts_of(seen) is not None:
            none = (
                np.zeros(seen.shape[0] + 1, np.int64),
                np.zeros(0, np.int32),
                np.zeros(0, seen.dtype),
            )
            self.observed_ = Observed(*none, seen.n_columns, seen.rows, seen.columns)
            try:
                self._add(cold, turned)
            finally:  # no entry is new: those that there are stay where they are
                f = self._lowrank()
                self.observed_ = (
                    seen if f.shape == seen.shape else larger(seen, f.shape, f.rows, f.columns)
                )
            return
        model = self._turned() if turned else self
        f, fresh = model._lowrank(), model.row_ids.find(cold.ids) < 0
        ids = tidy(cold.ids)[fresh]
        if not len(ids):
            return
        if f.rows is None:
            raise InputError(
                f"ids of {'columns' if turned else 'rows'} must be positions of 0 to {f.shape[0]} "
                f"less one: the model has no ids, got {shown(ids[0])}. Fit with ids."
            )
        empty = np.zeros(len(ids) + 1, np.int64)
        x = Observed(empty, np.zeros(0, np.int32), np.zeros(0, f.dtype), f.n, ids, f.columns)
        model._fresh = Cold(ids, cold.numbers[fresh])
        try:
            self._take_in(model, x, turned)
        finally:
            model._fresh = None

    def _take_in(self, model: Completer, x: Observed, turned: bool) -> None:
        assert isinstance(model, Featured)
        ids, numbers = model.row_ids, model._numbers(x)
        super()._take_in(model, x, turned)
        if self.features_ is None:
            return
        at = ids.find(np.arange(ids.size, ids.size + x.shape[0]) if x.rows is None else x.rows)
        side = self.features_.columns if turned else self.features_.rows
        if side is not None and numbers is not None:
            side = side._replace(numbers=np.concatenate([side.numbers, numbers[at < 0]]))
        self.features_ = self.features_._replace(**{"columns" if turned else "rows": side})

    def _numbers(self, x: Observed) -> np.ndarray | None:
        """Attributes of the rows of x: those of the fit for known ids, those that came with the
        call for others, zeros where there are none."""
        side = None if self.features_ is None else self.features_.rows
        if side is None:
            return None
        out = np.zeros((x.shape[0], side.encoding.width))
        if self._fresh is not None:
            fresh = Labels(self._fresh.ids, len(self._fresh.ids), "row").find(
                np.arange(x.shape[0]) if x.rows is None else x.rows
            )
            out[fresh >= 0] = self._fresh.numbers[fresh[fresh >= 0]]
        if x.rows is not None and self._lowrank().rows is not None:
            at = self.row_ids.find(x.rows)
            out[at >= 0] = side.numbers[at[at >= 0]]
        return out

    def _aligned(self, X: Any) -> Observed:
        # rows without entries, made here
        if isinstance(X, Observed) and X.nnz == 0 and self._fresh is not None:
            return X
        return super()._aligned(X)

    def _known(self, side: str, where: str) -> KnownFeatures:
        self._lowrank()
        found = None if self.features_ is None else getattr(self.features_, side)
        if found is None:
            raise InputError(f"{where} needs a model that was fitted with fit(..., {where}=frame)")
        return found

    def _ids_of(self, source: Any, side: str) -> np.ndarray:
        where = "row_features" if side == "rows" else "column_features"
        return self._known(side, where).encoding.read(source, where)[0]

    def _refuse_lacking(self, ids: Any, cold: Cold, where: str, known: Labels | None) -> None:
        """Ids of new rows that a frame lacks are named; those of the fit have theirs."""
        found = Labels(cold.ids, len(cold.ids), "row").find(ids) >= 0
        if known is not None:
            found |= known.find(ids) >= 0
        if not found.all():
            raise invalid(
                where,
                f"a frame without the id {shown(np.asarray(ids)[~found][0])}",
                "one row for each new row of X",
            )

    def _turned(self) -> Featured:
        other = super()._turned()
        assert isinstance(other, Featured)
        other.features_ = None if self.features_ is None else self.features_.flipped()
        return other

    def _with_all_rows(self, x: Observed) -> Observed:
        """The rows of x in the order of the model, rows that only a frame had left empty."""
        f = self._lowrank()
        if x.rows is None or f.rows is None or x.shape == f.shape:
            return x
        if parts_of(x) is not None and np.array_equal(f.rows[: x.shape[0]], x.rows):
            return larger(x, f.shape, f.rows, f.columns)
        rows = np.repeat(self.row_ids.indices_of(x.rows), x.row_counts())
        return Observed.from_codes(rows, x.indices, x.data, f.shape, f.rows, f.columns)

    def extra_state(self) -> dict[str, np.ndarray]:
        """What completers keep, and the attributes with how they are written, for the model
        file."""
        state = super().extra_state()
        self.fit_.plan.pop("features", None)
        if self.features_ is not None:
            self.fit_.plan["features"] = {}
            for name, side in zip(Features._fields, self.features_):
                if side is not None:
                    state[f"features.{name}"] = side.numbers
                    self.fit_.plan["features"][name] = side.encoding.to_dict()
        return state

    def _store(self, fit: Fit, arrays: dict[str, np.ndarray]) -> None:
        kept, sides = fit.plan.get("features"), list[KnownFeatures | None]()
        if kept is not None and not isinstance(kept, dict):
            raise FileError(
                f"features must be how the attributes of rows and columns are written, got {kept!r}"
            )
        for name, size in zip(Features._fields, fit.factors.shape):
            if kept is None or name not in kept:
                sides.append(None)
                continue
            encoding, numbers = Encoding.from_dict(kept[name]), arrays.get(f"features.{name}")
            if (
                numbers is None
                or numbers.shape != (size, encoding.width)
                or numbers.dtype.kind != "f"
            ):
                raise FileError(
                    f"attributes of {name} came that do not fit their encoding and the "
                    f"{size} {name} of the model"
                )
            sides.append(KnownFeatures(encoding, numbers))
        super()._store(fit, arrays)
        self.features_ = None if sides == [None, None] else Features(sides[0], sides[1])
