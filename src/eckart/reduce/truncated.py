"""Truncated singular value decomposition of the data as they are, under scikit-learn's name, so
that changing the import is enough.

    X ~ U S V^T with the k largest singular values: the best approximation of rank k, without
    centering, so that sparse data stay sparse

``explained_variance_`` is the variance of each column of X V, as scikit-learn means it: s_j^2 / N -
(mean . v_j)^2, not the share of the squares.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Literal

import numpy as np

from eckart.bases import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from eckart.certify.certificate import Certificate
from eckart.engines.protocol import GapsFound
from eckart.errors import InputError, invalid
from eckart.explained import explained_share
from eckart.fit import Estimator, Fit, fitted, one_kind_of_names
from eckart.io.models.checkpoint import resuming
from eckart.io.read import read
from eckart.io.tables.missing import numeric
from eckart.matrix import Observed
from eckart.parameters import check, file_name, number, param, whole
from eckart.reduce.covariance import Covariance
from eckart.reduce.encode import encode, reusable
from eckart.reduce.krylov import FINEST
from eckart.reduce.solve import SpectralOptions, certify, solve
from eckart.reduce.standardise import in_range
from eckart.rng import generator
from eckart.trace import progress

INCOMPLETE = (
    "Input X contains NaN or entries that are unknown. X must have complete rows for "
    "TruncatedSVD. Use PCA, which takes missing entries."
)


@dataclass(eq=False, repr=False)
class TruncatedSVD(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator):
    """The k largest singular values and their vectors, without centering, with a certificate.

    Parameters
    ----------
    n_components : int
        k.
    algorithm : "randomized" or "arpack"
        Block Krylov steps, or Lanczos steps to machine precision (to ``tol`` where that is above
        0).
    n_iter, n_oversamples : int
        "randomized": steps after the first, and least columns of a step. All steps are kept (a
        Krylov space), so they see more than as many power iterations.
    tol : float
        "arpack": share of the squares that may be missed.
    power_iteration_normalizer
        Accepted for compatibility: every step is orthonormalised.
    checkpoint : None or path
        File in which the state is kept; the same fit resumes from it after a crash, with the same
        bits.
    random_state, engine, n_threads, verbose
        As in ``PCA``.

    Attributes
    ----------
    components_, singular_values_, explained_variance_, explained_variance_ratio_, n_features_in_,
    feature_names_in_
        As in scikit-learn.
    fit_, certificate_
        All of the fit; evidence that no other k directions hold more of the squares.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.standard_normal((50, 3)) @ rng.standard_normal((3, 20)) + 2.0
    >>> model = TruncatedSVD(3, random_state=0).fit(x)
    >>> bool(np.allclose(model.explained_variance_, model.transform(x).var(axis=0))), model.certificate_.holds
    (True, True)

    References
    ----------
    C. Eckart and G. Young, "The approximation of one matrix by another of lower rank",
    Psychometrika 1 (1936).
    """

    n_components: int = param(2, whole(1))
    _: KW_ONLY
    algorithm: Literal["randomized", "arpack"] = param("randomized")
    n_iter: int = param(5, whole(0))
    n_oversamples: int = param(10, whole(1))
    power_iteration_normalizer: Literal["auto", "QR", "LU", "none"] = param("auto")
    tol: float = param(0.0, number(0, 1, below=True))
    checkpoint: Any = param(None, file_name())

    _columns: tuple[np.ndarray, float] = field(init=False)
    """Mean of each column, and the sum of their variances."""

    def fit(self, X: Any, y: Any = None) -> TruncatedSVD:
        """Fit to rows of X: array, frame, sparse matrix or file."""
        check(self)
        matrix = reusable(one_kind_of_names(read(X)))
        if isinstance(matrix, Observed):
            raise InputError(INCOMPLETE)
        most = matrix.shape[1] if matrix.shape[0] is None else min(matrix.shape[0], matrix.shape[1])
        if self.algorithm == "arpack" and self.n_components >= most:
            raise invalid(
                "n_components",
                self.n_components,
                f"less than {most} with algorithm='arpack'",
                "use 'randomized'",
            )
        lanczos = self.algorithm == "arpack"
        options = SpectralOptions(
            int(self.n_components),
            False,
            "lanczos" if lanczos else "randomized",
            float(self.tol) or FINEST,
            int(self.n_oversamples),
            None if lanczos else int(self.n_iter) + 1,
        )
        engine = self._engine()
        with progress(bool(self.verbose)) as watch, resuming(self, matrix) as (memory, rng):
            with engine.at_work():
                moments = _of_complete(lambda: engine.column_moments(engine.put(matrix), watch))
            fit = solve(matrix, options, None, engine=engine, rng=rng, watch=watch, memory=memory)
        self._store(
            fit,
            {
                "column_mean": moments.mean,
                "column_variance": np.array([moments.square.sum() / moments.weight]),
            },
        )
        memory.end(fit.trace)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """fit(X).transform(X)."""
        matrix = X if hasattr(X, "columns") or isinstance(X, np.ndarray) else reusable(read(X))
        return self.fit(matrix).transform(matrix)

    def transform(self, X: Any) -> np.ndarray:
        """X V."""
        return self._of_complete_rows(X, encode)

    def inverse_transform(self, X: Any) -> np.ndarray:
        """codes V^T."""
        b = self._fitted("inverse_transform").factors
        codes = numeric(np.asarray(X.to_numpy() if hasattr(X, "to_numpy") else X))
        if codes.ndim != 2 or codes.shape[1] != b.k:
            raise InputError(f"codes must have shape (rows, {b.k}), got {codes.shape}")
        return codes @ b.components

    def score(self, X: Any, y: Any = None) -> float:
        """The share of the squares of X that the reconstruction explains: 1 - ||X - X V V^T||^2 /
        ||X||^2."""
        return explained_share(
            self._new_rows(X),
            lambda part: self.inverse_transform(self.transform(part)),
            centred=False,
        )

    def certify(self, X: Any) -> Certificate:
        """Measure the certificate again from this model and data, by products with the data
        alone."""

        def judged(x: Any, b: Any, engine: Any) -> Certificate:
            x, b, notes = in_range(matrix, x, b, engine)
            c = Covariance.by_products(engine, x, False)
            found = certify(
                c, b, float(self.fit_.plan.get("tol", 1e-8)), generator(self.random_state)
            )
            return replace(found, notes=(*found.notes, *notes))

        matrix = reusable(self._new_rows(X))
        return self._of_complete_rows(matrix, judged)

    def _of_complete_rows(self, X: Any, do: Any) -> Any:
        matrix, engine = self._new_rows(X), self._engine()
        if isinstance(matrix, Observed):
            raise InputError(INCOMPLETE)
        with engine.at_work():
            return _of_complete(lambda: do(engine.put(matrix), self.fit_.factors, engine))

    @fitted
    def components_(self) -> np.ndarray:
        """V^T, k x columns, by falling singular value."""
        return self._fitted("components_").factors.components

    @fitted
    def singular_values_(self) -> np.ndarray:
        """The k largest singular values of X."""
        return np.sqrt(self._fitted("singular_values_").factors.scatter)

    @fitted
    def explained_variance_(self) -> np.ndarray:
        """Variance of each column of X V, divisor N."""
        b = self._fitted("explained_variance_").factors
        return np.maximum(
            b.scatter / b.weight - (b.components.astype(np.float64) @ self._columns[0]) ** 2, 0.0
        )

    @fitted
    def explained_variance_ratio_(self) -> np.ndarray:
        """The same as a share of the variances of the columns of X."""
        variance = np.asarray(self.explained_variance_)
        return variance / self._columns[1] if self._columns[1] > 0 else np.zeros_like(variance)

    @property
    def _n_features_out(self) -> int:
        return self._fitted("components_").factors.k

    def extra_state(self) -> dict[str, np.ndarray]:
        """What a model file holds besides the directions."""
        return {"column_mean": self._columns[0], "column_variance": np.array([self._columns[1]])}

    def _store(self, fit: Fit, arrays: dict[str, np.ndarray]) -> None:
        self.fit_ = fit
        self._columns = (
            np.asarray(arrays["column_mean"], np.float64),
            float(arrays["column_variance"][0]),
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = False
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _of_complete(do: Any) -> Any:
    """``do()``, refused in words where it meets NaN."""
    try:
        return do()
    except GapsFound as found:
        raise InputError(
            f"{INCOMPLETE} (the first is at row {found.row}, column {found.column})"
        ) from None
