"""A model that keeps the entries it was fitted to: positions of ids, the same data again, and a
model file that holds them."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from eckart.complete.folding import pairs
from eckart.errors import FileError, InputError
from eckart.fit import Estimator, Fit
from eckart.index.labels import Labels
from eckart.io.tables.triples import observed
from eckart.matrix import Counts, Observed

PARTS = ("indptr", "indices", "data")


class KeptEntries(Estimator):
    """``observed_`` beside a fit whose factors have the labels of its rows and columns."""

    observed_: Observed
    _row_ids: Labels | None = None
    _column_ids: Labels | None = None
    _columns_of_table: dict[str, Any] | None = None

    def score(
        self, X: Any, y: Any = None, *, rows: Any = None, columns: Any = None, values: Any = None
    ) -> float:
        """How well cells are predicted that the fit has not seen: 1 - sum (x - p)^2 / sum (x - m)^2
        with the mean m of the fit, or NDCG@10 for models that answer with lists.

        X is a table of triples (with the names of its columns, by default those of the fit) or an
        ``Observed`` with the rows of the fit; arrays, sparse matrices and frames hold new rows, of
        which a fifth of the entries is hidden (of ``TimeFactors``: the series of the fit). See
        ``EntryKFold`` for ``GridSearchCV``.
        """
        from eckart.complete.score import score_cells, score_rows

        self._fitted("score")
        named = {"rows": rows, "columns": columns, "values": values}
        if not any(name is not None for name in named.values()):
            named = self._columns_of_table or {}
        positions = isinstance(X, np.ndarray) and isinstance(
            named.get("rows"), str
        )  # no table: its columns have no names
        if named and not positions and not isinstance(X, (Observed, Counts)):
            return score_cells(self, observed(X, **named, duplicates="last"))
        if isinstance(X, (Observed, Counts)) or not hasattr(self, "_folded"):
            return score_cells(self, self._as_of_fit(observed(X)))
        return score_rows(self, cast(Any, self)._aligned(X))

    def _name_table(self, rows: Any, columns: Any, values: Any) -> None:
        """Keep the names of a table's columns: ``score`` reads one of the same form."""
        self._columns_of_table = (
            None if rows is None else {"rows": rows, "columns": columns, "values": values}
        )

    def _take(self, fit: Fit, x: Observed) -> None:
        self.fit_, self.observed_ = fit, x
        self._row_ids = self._column_ids = None

    @property
    def row_ids(self) -> Labels:
        """From row ids to positions and back."""
        if self._row_ids is None:
            f = self._fitted("row_ids").factors
            self._row_ids = Labels(f.rows, f.shape[0], "row")
        return self._row_ids

    @property
    def column_ids(self) -> Labels:
        """From column ids to positions and back."""
        if self._column_ids is None:
            f = self._fitted("column_ids").factors
            self._column_ids = Labels(f.columns, f.shape[1], "column")
        return self._column_ids

    def _cells(self, rows: Any, columns: Any) -> tuple[np.ndarray, np.ndarray]:
        """Positions of the cells (rows[p], columns[p]), by id; one id on either side stands for
        all."""
        self._fitted("cells")
        i, j = pairs(rows, columns)
        return self.row_ids.indices_of(i), self.column_ids.indices_of(j)

    def _found(self, rows: Any, columns: Any) -> tuple[np.ndarray, np.ndarray]:
        """The same, with -1 for ids that the model does not know."""
        i, j = pairs(rows, columns)
        return self.row_ids.find(i), self.column_ids.find(j)

    def _as_of_fit(self, x: Observed) -> Observed:
        """Entries of the shape that the model was fitted to, for a certificate."""
        shape = self.fit_.factors.shape
        if x.shape != shape:
            raise InputError(
                f"X must be the data that the model was fitted to, of shape {shape}, got shape "
                f"{x.shape}"
            )
        return x

    def extra_state(self) -> dict[str, np.ndarray]:
        """The observed entries, for the model file."""
        return {f"observed.{part}": getattr(self.observed_, part) for part in PARTS}

    def _entries_of(self, arrays: dict[str, np.ndarray], f: Any, kept: str) -> Observed:
        """The observed entries of a model file; refused where they do not fit what else was
        ``kept``."""
        indptr, indices, data = (arrays[f"observed.{part}"] for part in PARTS)
        x = Observed(indptr, indices, data, f.n, f.rows, f.columns)
        if (
            x.shape != f.shape
            or data.dtype not in (np.float32, np.float64)
            or {indptr.dtype.kind, indices.dtype.kind} - set("iu")
        ):
            raise FileError(
                f"observed entries of a matrix of shape {x.shape} came with {kept} shape {f.shape}"
            )
        return x
