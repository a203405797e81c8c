"""PCA of rows that come in batches, under scikit-learn's name, so that changing the import is
enough.

What is kept between batches is E[x] and E[x x^T], which add up exactly (a sketch with a bound on
its error where there are more than 2048 columns), so the answer does not depend on the size of the
batches. ``fit`` leaves that statistic behind, and ``partial_fit`` goes on from there.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from eckart.engines.protocol import Moments
from eckart.errors import InputError, invalid
from eckart.fit import fitted, one_kind_of_names, sample_weights
from eckart.io.models.checkpoint import resuming
from eckart.io.read import read
from eckart.matrix import Matrix, Observed, row_parts
from eckart.parameters import check, optional, param, whole
from eckart.reduce.pca import PCA
from eckart.trace import progress

BATCH = 5
"""Rows of a batch for each column by default, as in scikit-learn."""


@dataclass(eq=False, repr=False)
class IncrementalPCA(PCA):
    """Principal components from batches of rows, without keeping the rows.

    Parameters
    ----------
    n_components, whiten, copy
        As in ``PCA``; None keeps as many as there are rows and columns for.
    batch_size : None or int
        Rows that ``fit`` takes at a time; None is five for each column. The answer does not depend
        on it.

    Attributes
    ----------
    components_, explained_variance_, explained_variance_ratio_, singular_values_, mean_,
    noise_variance_, n_components_, n_samples_seen_
        As in ``PCA``.
    var_, batch_size_
        Variance of each column over the rows seen; rows of a batch in ``fit``.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> x = load_digits().data
    >>> model = IncrementalPCA(10, batch_size=200).fit(x[:1000])
    >>> for part in np.array_split(x[1000:], 4):
    ...     model = model.partial_fit(part)
    >>> bool(np.allclose(model.explained_variance_, PCA(10).fit(x).explained_variance_)), int(model.n_samples_seen_)
    (True, 1797)
    """

    n_components: Any = param(None, optional(whole(1)))
    _: KW_ONLY
    batch_size: int | None = param(None, optional(whole(1)))

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> IncrementalPCA:
        """Start over with the rows of X, ``batch_size`` at a time; ``partial_fit`` goes on from
        there."""
        check(self)
        matrix = self._complete(one_kind_of_names(read(X)))
        weights = sample_weights(sample_weight, matrix.shape[0])
        # rows are cut into batches, their weights are not
        parts = row_parts(matrix, self._batch(matrix.shape[1])) if weights is None else [matrix]
        with (
            progress(bool(self.verbose)) as watch,
            resuming(self, matrix, weights) as (memory, rng),
        ):
            self._take_in(parts, self._options(), weights, None, rng, memory, watch)
        memory.end()
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> IncrementalPCA:
        """Take in more rows, after ``fit`` or after other batches."""
        check(self)
        if "_stream" in vars(self):
            kept, asked = self.fit_.factors.k, self.n_components
            if asked is not None and asked != kept and not kept < asked <= self.n_features_in_:
                raise invalid(
                    "n_components",
                    asked,
                    f"{kept}, as in the fit that partial_fit goes on from",
                    "call fit to start over",
                )
            super().partial_fit(X, sample_weight=sample_weight)
            return self
        matrix = self._complete(read(X))
        rows = matrix.shape[0]
        if self.n_components is not None and rows is not None and self.n_components > rows:
            raise invalid(
                "n_components",
                self.n_components,
                f"at most {rows}, the rows of the first batch",
                f"n_components={self.n_components} must be less or equal to the batch number of "
                f"samples {rows} for the first partial_fit call",
            )
        super().partial_fit(matrix, sample_weight=sample_weight)
        return self

    @fitted
    def var_(self) -> np.ndarray:
        """Variance of each column over the rows seen, divisor N."""
        self._fitted("var_")
        state = vars(self).get("_stream")
        if not isinstance(state, Moments):
            raise AttributeError(
                "var_ is absent: the model was loaded from a file, or the rows are too "
                "wide for their covariance"
            )
        return np.diagonal(state.scatter) / state.weight

    @fitted
    def batch_size_(self) -> int:
        """Rows that ``fit`` takes at a time."""
        return self._batch(self._fitted("batch_size_").factors.n)

    def _batch(self, columns: int) -> int:
        return BATCH * columns if self.batch_size is None else int(self.batch_size)

    def _complete(self, matrix: Matrix) -> Matrix:
        if isinstance(matrix, Observed):
            raise InputError(
                "X must have complete rows for IncrementalPCA, got missing entries. Use PCA, which "
                "takes missing entries, or impute(X) first."
            )
        return matrix

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = False
        return tags
