"""SLIM: every column as a sparse, non-negative regression on all others.

    min over w >= 0, w_j = 0 of  1/2 ||x_j - X w||^2 + l1 sum w + l2/2 ||w||^2       for every
    column j

by coordinate descent on X^T X, columns side by side. The problems are convex: the certificate
bounds, for every column, what any other weights can gain.

Reference: X. Ning and G. Karypis, "SLIM: Sparse linear methods for top-n recommender systems"
(2011).
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from eckart.certify.certificate import Certificate
from eckart.certify.items import certify_sparse
from eckart.complete.items.item_model import ItemModel, require_square
from eckart.engines.protocol import SparseColumns, SparseRows
from eckart.factors import ItemWeights
from eckart.fit import Fit, fitted, plan_of
from eckart.index.compress import transpose
from eckart.io.models.checkpoint import Memory, resuming
from eckart.matrix import Observed
from eckart.parameters import file_name, number, param, whole
from eckart.trace import StopReason, Trace, Watcher, progress

AT_ONCE = 512
"""Columns between two points at which those that are finished can be kept: enough for all
threads."""


@dataclass(eq=False, repr=False)
class SLIM(ItemModel):
    """Recommend by sparse non-negative weights between columns.

    Parameters
    ----------
    l2 : the ridge, above 0; ``tune`` chooses it on hidden entries.
    l1 : the price of a weight, 0 or more: weights whose column adds less than that stay zero. In
        units of rows that have both columns.
    tol : a column ends when no other weights can be better by more than this share of half its
        squares.
    max_iter : most rounds for a column.
    strengths : "binary" (every value above 0 counts 1) or "raw" (values as they are).
    feedback : "implicit", the only one: absent means not taken up.
    checkpoint : file in which finished columns are kept; the same fit resumes from it after a
        crash, with the same bits.
    random_state, engine, n_threads, verbose : as in ``ALS``; nothing is random here.

    Attributes
    ----------
    fit_ : factors (``ItemWeights``, sparse), certificate, trace, plan.
    certificate_, n_iter_ : of the fit.

    The certificate is global, column by column: no other non-negative weights are better by more
    than the stated gap.

    >>> import numpy as np
    >>> x = np.array([[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 1, 1, 1]], float)
    >>> model = SLIM(l2=1.0, l1=0.1).fit(np.where(x > 0, x, np.nan))
    >>> model.explain(0, 1).shares[0][0], model.certificate_.holds
    (0, True)
    """

    l2: float = param(50.0, number(0, above=True))
    _: KW_ONLY
    l1: float = param(1.0, number(0))
    tol: float = param(1e-6, number(0, 1, above=True))
    max_iter: int = param(200, whole(1))
    checkpoint: Any = param(None, file_name())

    @fitted
    def n_iter_(self) -> int:
        """Sweeps of the column that took most."""
        return int(self._fitted("n_iter_").plan["sweeps"])

    def _solve(self, x: Observed, weights: np.ndarray | None) -> Fit:
        self._check_entries(x, weights)
        n = x.n_columns
        dtype, engine = require_square("SLIM", n, "SpectralFilter"), self._engine()
        with (
            engine.at_work(),
            resuming(self, x) as (memory, _),
            progress(bool(self.verbose)) as watch,
        ):
            gram = engine.column_gram(self._placed(x, engine, dtype), dtype)
            allowed = 0.5 * self.tol * np.diagonal(gram)
            found = self._columns(gram, engine, memory, watch)
            del gram
            columns = SparseRows(
                found.indptr, found.indices, found.data.astype(x.dtype, copy=False)
            )
            certificate = self._certificate(columns, x, engine)
        indptr, indices, data = transpose(*columns, n)
        factors = ItemWeights(
            x.shape[0], n, indptr=indptr, indices=indices, data=data, rows=x.rows, columns=x.columns
        )
        late = int((found.gaps > allowed).sum())
        trace = Trace("gap")
        trace.reason = StopReason.MAX_ITER if late else StopReason.CONVERGED
        plan = plan_of(engine) | {
            "solver": "coordinate descent on X^T X, column by column",
            "precision": str(dtype),
            "l2": float(self.l2),
            "l1": float(self.l1),
            "sweeps": int(found.sweeps.max(initial=0)),
            "columns that reached max_iter": late,
        }
        memory.end()
        return Fit(factors, certificate, trace, plan)

    def _columns(
        self, gram: np.ndarray, engine: Any, memory: Memory, watch: Watcher
    ) -> SparseColumns:
        """The weights of all columns, some at a time."""
        how = float(self.l1), float(self.l2), float(self.tol), int(self.max_iter)
        found = [SparseColumns(**part) for part in memory.last() or []]
        n, done = len(gram), sum(len(part.gaps) for part in found)
        while done < n:
            memory.offer([part._asdict() for part in found])
            end = min(done + AT_ONCE, n)
            found.append(engine.nonnegative_columns(gram, *how, (done, end)))
            done = end
            watch("columns", done, n)
        return SparseColumns.joined(found)

    def certify(self, X: Any) -> Certificate:
        """Measure the certificate again from this model and data, by products with the data
        alone."""
        x, engine, f = self._judged(X), self._engine(), self._fitted("certify").factors
        with engine.at_work():
            return self._certificate(
                SparseRows(*transpose(f.indptr, f.indices, f.data, f.n)), x, engine
            )

    def _certificate(self, columns: SparseRows, x: Observed, engine: Any) -> Certificate:
        placed = self._placed(x, engine, np.float64)
        return certify_sparse(
            engine, placed, columns, float(self.l1), float(self.l2), float(self.tol)
        )
