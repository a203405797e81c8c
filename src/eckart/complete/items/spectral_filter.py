"""SpectralFilter: recommending as smoothing on the graph of rows and columns (GF-CF).

With the degrees d_i of rows and e_j of columns and the normalised adjacency A = D^-1/2 X E^-1/2, a
row x scores the columns by

    x W,    W = A^T A + alpha E^-1/2 V V^T E^1/2

A^T A is a linear filter: it damps every frequency of the graph by its eigenvalue. V holds the k
leading right singular vectors of A: V V^T is the ideal filter that keeps the k lowest frequencies
and drops the others. There is nothing to learn but V, and the certificate is that of a principal
component analysis: no other k directions hold more of A.

Reference: Y. Shen et al., "How powerful is graph convolution for recommendation?" (2021).
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from eckart.certify.certificate import Certificate
from eckart.certify.spectral import SPARSE_PROBE, certify_subspace
from eckart.complete.items.item_model import ItemModel
from eckart.factors import ItemWeights
from eckart.fit import Fit, plan_of, require_room
from eckart.io.models.checkpoint import resuming
from eckart.matrix import Counts, Observed
from eckart.matrix_blocks import as_counts, of_each_part, with_values
from eckart.parameters import file_name, number, param, whole
from eckart.reduce.covariance import Covariance
from eckart.reduce.solve import SpectralOptions, solve
from eckart.rng import generator
from eckart.trace import progress

TOL = 1e-4
"""Share of the squares of A that V may miss: lists do not change by it."""
RANK = {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 1e-12}
"""Squared singular values below this share of the largest are rounding."""
PROBLEM = (
    "keep the k lowest frequencies of the graph: max tr(V^T A^T A V), V^T V = I, A the "
    "normalised adjacency"
)


@dataclass(eq=False, repr=False)
class SpectralFilter(ItemModel):
    """Recommend by smoothing each row on the graph of rows and columns: a linear filter and an
    ideal low-pass filter (GF-CF).

    Parameters
    ----------
    n_components : k, frequencies that the ideal filter keeps; at most as many as there are.
    alpha : weight of the ideal filter beside the linear one; 0 leaves it out.
    strengths : "binary" (every value above 0 counts 1) or "raw" (values as they are).
    feedback : "implicit", the only one: absent means not taken up.
    checkpoint : file in which the state is kept; the same fit resumes from it after a crash, with
        the same bits.
    random_state, engine, n_threads, verbose : as in ``ALS``.

    Attributes
    ----------
    fit_ : factors (``ItemWeights`` with L = alpha E^-1/2 V and R = E^1/2 V), certificate, trace,
        plan.
    certificate_ : its evidence.

    ``update`` takes new entries into A^T A; V stays as it is. A file of the model holds the entries
    and V; A^T A is made from the entries when it is first used.

    The certificate is global: no other k directions hold more of A, by the bound of Ky Fan.

    >>> import numpy as np
    >>> x = np.array([[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 1, 1, 1]], float)
    >>> model = SpectralFilter(2, random_state=0).fit(np.where(x > 0, x, np.nan))
    >>> model.recommend(X=np.array([[np.nan, np.nan, 1, np.nan]]), n=1).columns.tolist(), model.certificate_.holds
    ([[3]], True)
    """

    n_components: int = param(256, whole(1))
    _: KW_ONLY
    alpha: float = param(0.3, number(0))
    checkpoint: Any = param(None, file_name())

    def _solve(self, x: Observed, weights: np.ndarray | None) -> Fit:
        self._check_entries(x, weights)
        require_room(
            "n_components",
            self.n_components,
            x.n_columns * float(self.n_components),
            x.dtype.itemsize,
        )
        engine, k = self._engine(), min(int(self.n_components), *x.shape)
        a, e = self._adjacency(x)
        with progress(bool(self.verbose)) as watch, resuming(self, x) as (memory, rng):
            how: dict[str, Any] = {"engine": engine, "rng": rng, "watch": watch, "memory": memory}
            found = solve(a, SpectralOptions(k, False, "auto", TOL), None, **how)
        squares = found.factors.scatter
        # what A does not reach has no frequency
        kept = squares > RANK[x.dtype] * squares.max(initial=0.0)
        v, squares = found.factors.components[kept].T.astype(np.float64), squares[kept]
        root = np.sqrt(e)
        inverse = np.divide(1.0, root, out=np.zeros_like(root), where=root > 0)
        left, right = float(self.alpha) * inverse[:, None] * v, root[:, None] * v
        factors = ItemWeights(
            x.shape[0],
            x.n_columns,
            left=left.astype(x.dtype),
            right=right.astype(x.dtype),
            rows=x.rows,
            columns=x.columns,
        )
        plan = plan_of(engine) | {
            "solver": str(found.plan.get("solver")),
            "k": factors.k,
            "tol": TOL,
        }
        fit = Fit(
            factors,
            found.certificate,
            found.trace,
            plan | {"singular values": np.sqrt(squares).tolist()},
        )
        fit = replace(fit, certificate=self._certificate(fit, x, engine))
        memory.end(fit.trace)
        return fit

    def certify(self, X: Any) -> Certificate:
        """Measure the certificate again from this model and data, by products with the data
        alone."""
        return self._certificate(self._fitted("certify"), self._judged(X), self._engine())

    def _certificate(self, fit: Fit, x: Observed, engine: Any) -> Certificate:
        a, e = self._adjacency(x)
        root, right = np.sqrt(e)[:, None], fit.factors.right.astype(np.float64)
        v = np.divide(right, root, out=np.zeros_like(right), where=root > 0)
        values = np.asarray(fit.plan["singular values"]) ** 2
        rng = generator(0 if self.random_state is None else self.random_state)
        with engine.at_work():
            c = Covariance.by_products(engine, engine.put(a), False)
            found = certify_subspace(
                c.product,
                np.ascontiguousarray(v.T, x.dtype),
                values / c.weight,
                c.total,
                rng=rng,
                tol=TOL,
                floor=c.rounding,
                probe=SPARSE_PROBE,
            )
        return replace(found, problem=PROBLEM)

    def _adjacency(self, x: Observed) -> tuple[Counts, np.ndarray]:
        """A, absent entries zero, and the degrees of columns."""
        y = self._as_fitted(x)
        e = np.sum(of_each_part(y, _column_sums), axis=0)
        return as_counts(with_values(y, partial(_normalised, e))), e

    def _linear(self, w: ItemWeights) -> Any:
        """A^T A of the entries that the model knows, without its zeros."""
        if w.indptr is not None:  # those of a lean copy
            return super()._linear(w)
        if "gram" not in self._made:
            engine = self._engine()
            with engine.at_work():
                self._made["gram"] = engine.sparse_gram(
                    engine.put(self._adjacency(self.observed_)[0])
                )
        return self._made["gram"]

    def _lean(self) -> Any:
        gram, lean = self._linear(self.fit_.factors), super()._lean()
        factors = replace(
            lean.fit_.factors, indptr=gram.indptr, indices=gram.indices, data=gram.data
        )
        lean.fit_ = replace(lean.fit_, factors=factors)
        return lean

    def _take(self, fit: Fit, x: Observed) -> None:
        super()._take(fit, x)
        # a verb fills it and leaves the model's own fields as they are
        self._made: dict[str, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        return state | {"_made": {}} if "_made" in state else state


def _column_sums(y: Observed) -> np.ndarray:
    return np.bincount(y.indices, y.data.astype(np.float64), minlength=y.n_columns)


def _normalised(e: np.ndarray, y: Observed) -> Observed:
    """Rows of A, given the degrees of columns; without labels."""
    rows, values = np.repeat(np.arange(y.shape[0]), y.row_counts()), y.data.astype(np.float64)
    scale = np.sqrt(np.bincount(rows, values, minlength=y.shape[0])[rows] * e[y.indices])
    data = np.divide(values, scale, out=np.zeros_like(values), where=scale > 0).astype(y.dtype)
    return replace(y, data=data, rows=None, columns=None)
