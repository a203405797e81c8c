"""Principal component analysis: the k directions that capture the most variance.

    minimise  R(U) = 1/2 E ||(x - mu) - U U^T (x - mu)||^2 = 1/2 (tr C - tr U^T C U)   over  U^T U =
    I_k

The optimum is spanned by the k leading eigenvectors of the covariance C (Eckart and Young 1936) and
the risk is half the sum of the eigenvalues left out. The certificate shows Ritz residuals, the
captured variance and an upper bound on what any other k directions could capture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Literal, TypeVar

import numpy as np

from eckart.bases import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from eckart.certify.certificate import Certificate
from eckart.engines.protocol import Moments, Sketch
from eckart.errors import FileError, InputError
from eckart.fit import (
    Estimator,
    Fit,
    fitted,
    on_data,
    one_kind_of_names,
    rows_to_fill,
    sample_weights,
)
from eckart.io.models.checkpoint import NOTHING, Memory, resuming
from eckart.io.namespaces import in_kind, on_host, way_back
from eckart.io.read import read
from eckart.io.tables.frames import same_kind
from eckart.io.tables.missing import numeric
from eckart.matrix import Dense, Matrix, Observed
from eckart.parameters import check, either, file_name, flag, number, one_of, optional, param, whole
from eckart.reduce import basis_attributes as basis_gaussian
from eckart.reduce import missing as gaps
from eckart.reduce.charts import ComponentTables
from eckart.reduce.covariance import Covariance
from eckart.reduce.encode import encoder_of, filled, reusable
from eckart.reduce.given import SettableBasis, solve_running
from eckart.reduce.krylov import FINEST
from eckart.reduce.rotate import Rotation, rotation_of
from eckart.reduce.solve import SpectralOptions, certify, solve_scaled
from eckart.reduce.standardise import divided, in_range
from eckart.rng import generator
from eckart.trace import Watcher, progress, silent

SHOWN = ("copy", "whiten", "rotation", "power_iteration_normalizer")
"""Parameters that change how the answer is shown, not the fit."""
T = TypeVar("T")


@dataclass(eq=False, repr=False)
class PCA(
    SettableBasis, ComponentTables, ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator
):
    """Principal components of dense, sparse, streamed or incomplete data, with a certificate.

    Minimises the risk 1/2 E||x - x_hat||^2 over all affine maps of rank k; solved by the
    eigenvectors of the covariance. NaN entries are missing entries: the model is then fitted by
    maximum likelihood on what was observed.

    Parameters
    ----------
    n_components : int, share in (0, 1), "auto", "mle" or None
        How many components; a share of the variance; "auto" is the Gavish-Donoho threshold, "mle"
        Minka's evidence; None keeps all.
    whiten : bool
        Codes of unit variance. Directions without variance give zeros, never noise blown up;
        ``n_rank_deficient_`` counts them.
    svd_solver : "auto", "eigh", "svd", "power", "randomized", "lanczos", "gradient"
        Also scikit-learn's names "full", "covariance_eigh", "arpack". The choice of "auto" and its
        reason are in ``fit_.plan``.
    tol : float
        Share of the captured variance that an iterative solver may miss; 0 is each solver's default
        (1e-4 randomized, 1e-7 Lanczos, and machine precision for svd_solver="arpack").
    iterated_power : "auto" or int
        This many steps after the first for svd_solver="randomized" and "lanczos", whatever ``tol``
        says (fewer where nothing but rounding is left), and the most for the others; "auto" stops
        on the error bound.
    max_iter : None or int
        Most steps of an iterative solver.
    n_oversamples : int
        Least block size of the randomized solver: as many directions are multiplied in each step,
        or ``n_components`` where that is more.
    center : bool
        False gives the truncated singular value decomposition of the data as they are.
    scale : bool
        True divides every column by its standard deviation first (``scale_``), so that units do not
        matter: the components of the correlations. They, their variances and errors are then in
        these units; ``mean_``, ``inverse_transform`` and ``impute`` are in those of the data.
    rotation : None, "varimax" or "promax"
        Rotate the loadings towards few large entries each; codes are then the rotated scores of
        unit variance, and ``explained_variance_`` and ``explained_variance_ratio_`` those of the
        rotated components (``components_`` and ``singular_values_`` stay those of the subspace).
    checkpoint : None or path
        Keep the state here every few seconds; the same call after a crash goes on from there, with
        the same bits. The file is removed at the end. Solvers that work at a stroke ("svd", "eigh"
        of few rows) and the sketch of an iterator keep none.
    random_state, engine, n_threads, verbose
        Seed; what computes, "auto", "cpu", "numpy" or an engine; most threads to use (results do
        not depend on it); progress bars.
    copy, power_iteration_normalizer
        Accepted for compatibility: data are never overwritten, and every step is orthonormalised.

    Attributes
    ----------
    components_, explained_variance_, explained_variance_ratio_, singular_values_, mean_,
    noise_variance_, n_components_, n_samples_, n_features_in_, feature_names_in_
        As in scikit-learn.
    fit_, certificate_
        All of the fit: factors, certificate, trace, plan. ``fit_.plan["units"]`` says how far the
        standard deviations of columns are apart; where they seem
        to be those of different units, a note of the certificate says so.
    scale_
        Standard deviations that columns were divided by; None without ``scale``.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> pca = PCA(n_components=10).fit(load_digits().data)
    >>> round(float(pca.explained_variance_ratio_.sum()), 4), pca.certificate_.holds
    (0.7382, True)

    References
    ----------
    C. Eckart and G. Young, "The approximation of one matrix by another of lower rank",
    Psychometrika 1 (1936).
    """

    n_components: Any = param(None)
    _: KW_ONLY
    copy: bool = param(True, flag())
    whiten: bool = param(False, flag())
    svd_solver: Literal[
        "auto",
        "eigh",
        "svd",
        "power",
        "randomized",
        "lanczos",
        "gradient",
        "full",
        "covariance_eigh",
        "arpack",
    ] = param("auto")
    tol: float = param(0.0, number(0, 1, below=True))
    iterated_power: Any = param("auto", either(one_of("auto"), whole(0)))
    n_oversamples: int = param(10, whole(1))
    power_iteration_normalizer: Literal["auto", "QR", "LU", "none"] = param("auto")
    center: bool = param(True, flag())
    scale: bool = param(False, flag())
    rotation: Literal[None, "varimax", "promax"] = param(None)
    max_iter: int | None = param(None, optional(whole(1)))
    checkpoint: Any = param(None, file_name())

    _stream: Moments | Sketch = field(init=False)
    _rotation: Rotation | None = field(init=False)
    _parts: dict[str, Any] = field(init=False)
    _scale: np.ndarray | None = field(init=False)

    @in_kind
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> PCA:
        """Fit to rows of X: array, frame, sparse matrix, file, or iterator of row blocks; NaN marks
        a missing entry."""
        options = self._options()
        matrix = one_kind_of_names(read(X))
        weights = sample_weights(sample_weight, matrix.shape[0])
        with (
            progress(bool(self.verbose)) as watch,
            resuming(self, matrix, weights, ignored=SHOWN) as (memory, rng),
        ):
            fit, scale = solve_scaled(
                matrix, options, weights, engine=self._engine(), rng=rng, watch=watch, memory=memory
            )
        memory.end(fit.trace)
        self._become(fit, scale)
        self.__dict__.pop("_stream", None)
        if self.iterated_power == "auto":
            self._say_if_early(fit)
        return self

    @in_kind
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> PCA:
        """Take in more rows; any number at a time, in any order of blocks. The rows themselves are
        not kept.

        The first call starts a running statistic; ``fit`` drops it, so the next call starts over; a
        loaded model has none and says so.
        """
        options = self._options()
        matrix = read(X)
        if isinstance(matrix, Observed):
            raise InputError(
                "X must have complete rows for partial_fit, got missing entries. Call fit on all "
                "rows, or impute(X) first."
            )
        fresh = "_stream" not in vars(self)
        if fresh and "fit_" in vars(self) and self.fit_.plan.get("solver") == "stream":
            raise InputError(
                "this model was loaded from a file, which does not hold its running "
                "statistic; call fit, or start with a new PCA"
            )
        if not fresh:
            matrix = self._new_rows(X)
        self._take_in(
            [matrix],
            options,
            sample_weights(sample_weight, matrix.shape[0]),
            None if fresh else self._stream,
            generator(self.random_state),
        )
        return self

    def _take_in(
        self,
        parts: Iterable[Matrix],
        options: SpectralOptions,
        weights: np.ndarray | None,
        state: Moments | Sketch | None,
        rng: np.random.Generator,
        memory: Memory = NOTHING,
        watch: Watcher = silent,
    ) -> None:
        """Take blocks of rows into the running statistic. Nothing changes where a block is
        refused."""
        old = None if state is None else self.fit_.factors
        fit, scale, after = solve_running(
            parts,
            options,
            weights,
            state,
            old,
            engine=self._engine(),
            rng=rng,
            memory=memory,
            watch=watch,
        )
        self._become(fit, scale)
        self._stream = after

    @in_kind
    def transform(self, X: Any) -> np.ndarray:
        """Codes of rows: (x - mean) U, scaled to unit variance if ``whiten``; a row with gaps gets
        its expected code given what is there.

        Codes of rows that lie on a GPU (a CUDA tensor, a CuPy array) lie there too.
        """
        return same_kind(X, self._encode(X))

    @in_kind
    def fit_transform(self, X: Any, y: Any = None, sample_weight: Any = None) -> np.ndarray:
        """fit(X).transform(X), reading X once."""
        matrix = X if hasattr(X, "columns") or isinstance(X, np.ndarray) else read(X)
        if isinstance(matrix, Dense) and not matrix.in_memory and not matrix.stream.rereadable:
            raise InputError(
                "X is an iterator that can be read once only; fit on it, then transform "
                "a second iterator, or pass a list of blocks"
            )
        return self.fit(matrix, sample_weight=sample_weight).transform(matrix)

    @in_kind
    def inverse_transform(self, X: Any) -> np.ndarray:
        """Points of the subspace from codes: mean + codes U^T."""
        codes, b = self._codes(X), self.fit_.factors
        decoder = self._decoder().astype(b.components.dtype, copy=False)
        return self._in_units(codes @ decoder + b.mean)

    @in_kind
    def impute(self, X: Any = None) -> np.ndarray:
        """X with every missing entry replaced by its expectation given the observed entries of its
        row."""
        return self._in_units(
            self._of_rows(reusable(self._new_rows(rows_to_fill(self, X))), filled)
        )

    @in_kind
    def reconstruction_error(self, X: Any) -> float:
        """The risk 1/2 mean ||x - x_hat||^2 on X; with gaps, over observed entries only."""
        return 0.5 * float(np.mean(self.spe(X)))

    @in_kind
    def score_samples(self, X: Any) -> np.ndarray:
        """Log-likelihood of each row under N(mean, U (L - s I) U^T + s I); with gaps, of its
        observed entries."""
        return self._of_rows(reusable(self._new_rows(X)), basis_gaussian.log_likelihoods)

    @in_kind
    def score(self, X: Any, y: Any = None) -> float:
        """Mean log-likelihood of the rows."""
        return float(np.mean(self.score_samples(X)))

    def get_covariance(self) -> np.ndarray:
        """U (L - s I) U^T + s I, n x n."""
        return basis_gaussian.covariance(self._fitted("get_covariance").factors)

    def get_precision(self) -> np.ndarray:
        """Inverse of ``get_covariance`` by the matrix inversion lemma; the pseudo-inverse where it
        is singular."""
        return basis_gaussian.precision(self._fitted("get_precision").factors)

    @in_kind
    def certify(self, X: Any, sample_weight: Any = None) -> Certificate:
        """Measure the certificate again from this model and data, by products with the data
        alone."""
        matrix, engine, b = self._divided(self._new_rows(X)), self._engine(), self.fit_.factors
        weights = sample_weights(sample_weight, matrix.shape[0])

        def judged(x: Any) -> Certificate:
            x, basis, notes = in_range(matrix, x, b, engine)
            if x.kind == "observed":
                return gaps.certificate_of(x, basis, engine=engine, notes=notes)
            c = Covariance.by_products(engine, x, b.centered)
            found = certify(
                c, basis, float(self.fit_.plan.get("tol", 1e-8)), generator(self.random_state)
            )
            return replace(found, notes=(*found.notes, *notes))

        with engine.at_work():
            return on_data(engine, matrix, judged, weights)

    def _options(self) -> SpectralOptions:
        check(self)
        steps = self.max_iter if self.iterated_power == "auto" else int(self.iterated_power) + 1
        tol = FINEST if self.svd_solver == "arpack" and self.tol == 0 else float(self.tol)
        return SpectralOptions(
            self.n_components,
            bool(self.center),
            self.svd_solver,
            tol,
            int(self.n_oversamples),
            steps,
            self.iterated_power != "auto",
            bool(self.scale),
        )

    def _become(self, fit: Fit, scale: np.ndarray | None) -> None:
        """Take a fit and the units of its columns, all at once."""
        rotation = rotation_of(fit.factors, self.rotation)
        self.fit_, self._rotation, self._scale = fit, rotation, scale
        self.__dict__.pop("_parts", None)

    def extra_state(self) -> dict[str, np.ndarray]:
        """The standard deviations that columns were divided by, for the model file."""
        return {} if self._scale is None else {"scale": self._scale}

    def _store(self, fit: Fit, arrays: dict[str, np.ndarray] | None = None) -> None:
        scale = vars(self).get("_scale") if arrays is None else arrays.get("scale")
        # attributes were set by hand, the mean in the units of the data
        if arrays is None and scale is not None:
            fit = replace(fit, factors=replace(fit.factors, mean=fit.factors.mean / scale))
        if scale is not None and (
            scale.shape != (fit.factors.n,) or scale.dtype.kind != "f" or (scale <= 0).any()
        ):
            raise FileError(
                f"scale must be {fit.factors.n} numbers > 0, one for each column, got shape "
                f"{scale.shape}"
            )
        self._become(fit, scale)

    @fitted
    def scale_(self) -> np.ndarray | None:
        """Standard deviations that columns were divided by; None without ``scale``."""
        self._fitted("scale_")
        return self._scale

    @fitted
    def explained_variance_(self) -> np.ndarray:
        """Variance along each component, divisor N - 1; with ``rotation`` that of the rotated ones,
        which sum to the same."""
        variances = self._fitted("explained_variance_").factors.variances
        return variances if self._rotation is None else self._rotation.variances

    @explained_variance_.setter
    def explained_variance_(self, value: Any) -> None:
        self._set("explained_variance_", value)

    @fitted
    def explained_variance_ratio_(self) -> np.ndarray:
        """Share of the total variance of each component; with ``rotation`` that of the rotated
        ones, which sum to the same."""
        b = self._fitted("explained_variance_ratio_").factors
        scatter = b.scatter if self._rotation is None else self._rotation.variances * b.degrees
        return scatter / b.total if b.total > 0 else np.zeros(b.k)

    @explained_variance_ratio_.setter
    def explained_variance_ratio_(self, value: Any) -> None:
        self._set("explained_variance_ratio_", value)

    @fitted
    def mean_(self) -> np.ndarray:
        """Mean of the rows, in the units of the data; zero where they were not centered."""
        return self._in_units(self._fitted("mean_").factors.mean)

    @mean_.setter
    def mean_(self, value: Any) -> None:
        self._set("mean_", value)

    def _of_rows(self, x: Any, do: Callable[[Any, Any, Any], T]) -> T:
        """``do(placed, factors, engine)`` of new rows in the units of the factors."""
        matrix, engine = self._divided(self._new_rows(x)), self._engine()
        with engine.at_work():
            return on_data(engine, matrix, lambda placed: do(placed, self.fit_.factors, engine))

    def _divided(self, matrix: Matrix) -> Matrix:
        """Rows of the data in the units of the factors."""
        return matrix if self._scale is None else divided(matrix, self._scale)

    def _in_units(self, rows: np.ndarray) -> np.ndarray:
        """Rows in the units of the factors in those of the data."""
        return rows if self._scale is None else (rows * self._scale).astype(rows.dtype, copy=False)

    @fitted
    def rotation_(self) -> Rotation | None:
        """The rotation of the loadings, where one was asked for."""
        self._fitted("rotation_")
        return self._rotation

    def _encode(self, X: Any) -> Any:
        codes = self._of_rows(X, encoder_of(X))
        b = self.fit_.factors
        if self.whiten or self._rotation is not None:
            scale = np.zeros(b.k)
            scale[: b.rank] = 1.0 / np.sqrt(b.variances[: b.rank])
            codes = codes * scale.astype(codes.dtype)
        if self._rotation is not None:
            codes = codes @ self._rotation.scores.astype(codes.dtype)
        return codes

    def _decoder(self) -> np.ndarray:
        """k x n matrix that turns codes into deviations from the mean."""
        b = self.fit_.factors
        if self._rotation is not None:
            return self._rotation.pattern.T
        if self.whiten:
            return b.components * np.sqrt(b.variances)[:, None].astype(b.components.dtype)
        return b.components

    def _codes(self, X: Any) -> np.ndarray:
        b = self._fitted("inverse_transform").factors
        codes = numeric(
            on_host(X) if way_back(X) else np.asarray(X.to_numpy() if hasattr(X, "to_numpy") else X)
        )
        if codes.ndim != 2 or codes.shape[1] != b.k:
            raise InputError(f"codes must have shape (rows, {b.k}), got {codes.shape}")
        return codes
