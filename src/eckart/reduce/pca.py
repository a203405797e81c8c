"""Principal component analysis: the k directions that capture the most variance.

    minimise  R(U) = 1/2 E ||(x - mu) - U U^T (x - mu)||^2 = 1/2 (tr C - tr U^T C U)   over  U^T U = I_k

The optimum is spanned by the k leading eigenvectors of the covariance C (Eckart and Young 1936) and the risk is half the sum of the eigenvalues left out.
The certificate shows Ritz residuals, the captured variance and an upper bound on what any other k directions could capture.
"""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from eckart.certify.certificate import Certificate
from eckart.engines import engine_named
from eckart.engines.protocol import GapsFound, Moments
from eckart.errors import InputError, wrong
from eckart.fit import Estimator, Fit, one_kind_of_names, sample_weights
from eckart.io.read import read
from eckart.io.tables.numbers import numeric
from eckart.matrix import Counts, Dense, Matrix, Observed
from eckart.reduce import missing as gaps
from eckart.reduce.attributes import BasisAttributes
from eckart.reduce.charts import ComponentTables
from eckart.reduce.covariance import Covariance
from eckart.reduce.encode import as_observed, encode, filled, reusable
from eckart.reduce.plan import validate_components
from eckart.reduce.rotate import Rotation, rotation_of
from eckart.reduce.solve import Options, certify, solve, to_basis
from eckart.reduce.spectral import densify, solve_eigh
from eckart.reduce.stream import Sketch, running, spectrum_of_sketch
from eckart.rng import generator
from eckart.trace import progress


class PCA(BasisAttributes, ComponentTables, ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator):
    """Principal components of dense, sparse, streamed or incomplete data, with a certificate.

    Minimises the risk 1/2 E||x - x_hat||^2 over all affine maps of rank k; solved by the eigenvectors of the covariance. NaN entries are missing
    entries: the model is then fitted by maximum likelihood on what was observed.

    Parameters
    ----------
    n_components : int, share in (0, 1), "auto", "mle" or None
        How many components; a share of the variance; "auto" is the Gavish-Donoho threshold, "mle" Minka's evidence; None keeps all.
    whiten : bool
        Codes of unit variance. Directions without variance give zeros, never noise blown up; ``n_rank_deficient_`` counts them.
    svd_solver : "auto", "eigh", "svd", "power", "randomized", "lanczos", "gradient"
        Also scikit-learn's names "full", "covariance_eigh", "arpack". The choice of "auto" and its reason are in ``fit_.plan``.
    tol : float
        Share of the captured variance that an iterative solver may miss; 0 is each solver's default (1e-4 randomized, 1e-7 Lanczos).
    iterated_power, max_iter : "auto" or int
        Most steps of an iterative solver; by default it stops on its error bound.
    n_oversamples : int
        Least block size of the randomized solver.
    center : bool
        False gives the truncated singular value decomposition of the data as they are.
    rotation : None, "varimax" or "promax"
        Rotate the loadings towards few large entries each; codes are then the rotated scores of unit variance.
    checkpoint : None or path
        While rows are read in one pass, keep the state here every half minute; the same call after a crash goes on from there, with the
        same bits. The file is removed at the end.
    random_state, n_threads, verbose
        Seed; most threads to use (results do not depend on it); progress bars.
    copy, power_iteration_normalizer
        Accepted for compatibility: data are never overwritten, and every step is orthonormalised.

    Attributes
    ----------
    components_, explained_variance_, explained_variance_ratio_, singular_values_, mean_, noise_variance_, n_components_, n_samples_,
    n_features_in_, feature_names_in_
        As in scikit-learn.
    fit_, certificate_
        All of the fit: factors, certificate, trace, plan.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> pca = PCA(n_components=10).fit(load_digits().data)
    >>> round(float(pca.explained_variance_ratio_.sum()), 4), pca.certificate_.holds
    (0.7382, True)

    References
    ----------
    C. Eckart and G. Young, "The approximation of one matrix by another of lower rank", Psychometrika 1 (1936).
    """

    _stream: Moments | Sketch
    _rotation: Rotation | None

    def __init__(
        self,
        n_components: Any = None,
        *,
        copy: bool = True,
        whiten: bool = False,
        svd_solver: str = "auto",
        tol: float = 0.0,
        iterated_power: Any = "auto",
        n_oversamples: int = 10,
        power_iteration_normalizer: str = "auto",
        random_state: Any = None,
        center: bool = True,
        rotation: str | None = None,
        max_iter: int | None = None,
        n_threads: int | None = None,
        checkpoint: Any = None,
        verbose: bool = False,
    ):
        self.n_components = n_components
        self.copy = copy
        self.whiten = whiten
        self.svd_solver = svd_solver
        self.tol = tol
        self.iterated_power = iterated_power
        self.n_oversamples = n_oversamples
        self.power_iteration_normalizer = power_iteration_normalizer
        self.random_state = random_state
        self.center = center
        self.rotation = rotation
        self.max_iter = max_iter
        self.n_threads = n_threads
        self.checkpoint = checkpoint
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> PCA:
        """Fit to rows of X: array, frame, sparse matrix, file, or iterator of row blocks; NaN marks a missing entry."""
        options = self._options()
        matrix = one_kind_of_names(read(X))
        weights = self._weights(matrix, sample_weight)
        with progress(bool(self.verbose)) as watch:
            fit = solve(
                matrix,
                options,
                weights,
                engine=engine_named("cpu", self.n_threads),
                rng=generator(self.random_state),
                watch=watch,
            )
        self._store(fit)
        self.__dict__.pop("_stream", None)
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> PCA:
        """Take in more rows; any number at a time, in any order of blocks. The rows themselves are not kept.

        The first call starts a running statistic; ``fit`` drops it, so the next call starts over; a loaded
        model has none and says so.
        """
        options = self._options()
        matrix = read(X)
        if isinstance(matrix, Observed):
            raise InputError(
                "X has missing entries, wanted complete rows for partial_fit; call fit on all rows, or impute(X) first"
            )
        fresh = "_stream" not in vars(self)
        if fresh and "fit_" in vars(self) and self.fit_.plan.get("solver") == "stream":
            raise InputError(
                "this model was loaded from a file, which does not hold its running statistic; call fit, or start with a new PCA"
            )
        if not fresh:
            matrix = self._new_rows(X)
        engine, rng = engine_named("cpu", self.n_threads), generator(self.random_state)
        n = matrix.shape[1]
        state = running(n, options.k, matrix.dtype, options.centered, rng) if fresh else self._stream
        weights = self._weights(matrix, sample_weight)
        if isinstance(state, Sketch):
            sketch = Sketch(**vars(state))
            sketch.add(densify(matrix), weights)
            c, spectrum = spectrum_of_sketch(sketch, _at_most(options.k, sketch.rows, n), engine)
            state = sketch
        else:
            try:
                more = engine.moments(matrix, state.probe, weights)
            except GapsFound as found:
                raise InputError(
                    f"X contains NaN at row {found.row}, column {found.column}, wanted complete rows for partial_fit; "
                    "call fit on all rows, or impute(X) first"
                ) from None
            more.merge_with(state)
            state = more
            c = Covariance.from_moments(
                engine, state, options.centered, matrix.dtype if fresh else self.fit_.factors.mean.dtype
            )
            spectrum = solve_eigh(c, _at_most(options.k, c.rows, n))
        columns = matrix.columns if fresh else self.fit_.factors.columns
        basis = to_basis(c, spectrum, Dense(np.empty((0, n), matrix.dtype), columns=columns))
        plan = {
            "solver": "stream",
            "reason": "partial_fit: running statistic of the rows seen",
            "k": basis.k,
            "tol": spectrum.tol,
            "rows": c.rows,
        }
        self._store(Fit(basis, certify(c, basis, spectrum.tol, rng, spectrum.notes), spectrum.trace, plan))
        self._stream = state
        return self

    def transform(self, X: Any) -> Any:
        """Codes of rows: (x - mean) U, scaled to unit variance if ``whiten``; a row with gaps gets its expected code given what is there."""
        return self._encode(self._new_rows(X))

    def fit_transform(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """fit(X).transform(X), reading X once through the door."""
        matrix = X if hasattr(X, "columns") or isinstance(X, np.ndarray) else read(X)
        if isinstance(matrix, Dense) and not matrix.in_memory and not matrix.stream.rereadable:
            raise InputError(
                "X is an iterator that can be read once only; fit on it, then transform a second iterator, or pass a list of blocks"
            )
        return self.fit(matrix, sample_weight=sample_weight).transform(matrix)

    def inverse_transform(self, X: Any) -> np.ndarray:
        """Points of the subspace from codes: mean + codes U^T."""
        codes = self._codes(X)
        b = self._fitted("inverse_transform").factors
        decoder = self._decoder().astype(b.components.dtype, copy=False)
        return codes @ decoder + b.mean

    def impute(self, X: Any) -> np.ndarray:
        """X with every missing entry replaced by its expectation given the observed entries of its row."""
        return filled(self._new_rows(X), self.fit_.factors, engine_named("cpu", self.n_threads))

    def reconstruction_error(self, X: Any) -> float:
        """The risk 1/2 mean ||x - x_hat||^2 on X; with gaps, over observed entries only."""
        return 0.5 * float(np.mean(self.spe(X)))

    def score_samples(self, X: Any) -> np.ndarray:
        """Log-likelihood of each row under N(mean, U (L - s I) U^T + s I); with gaps, of its observed entries."""
        matrix, b = reusable(self._new_rows(X)), self.fit_.factors
        g = gaps.gaussian_of(b, 1e-12)
        if (seen := as_observed(matrix)) is not None:
            return engine_named("cpu", self.n_threads).gap_codes(seen, g.w, g.mu, g.s2).loglik
        codes = encode(matrix, b, engine_named("cpu", self.n_threads)).astype(np.float64)
        values = np.maximum(b.variances, g.s2)
        rest = np.maximum(self.spe(matrix), 0.0)
        log_det = float(np.log(values).sum()) + (b.n - b.k) * np.log(g.s2) if b.n > b.k else float(np.log(values).sum())
        quadratic = (codes**2 / values).sum(axis=1) + (rest / g.s2 if b.n > b.k else 0.0)
        return -0.5 * (b.n * np.log(2 * np.pi) + log_det + quadratic)

    def score(self, X: Any, y: Any = None) -> float:
        """Mean log-likelihood of the rows."""
        return float(np.mean(self.score_samples(X)))

    def get_covariance(self) -> np.ndarray:
        """U (L - s I) U^T + s I, n x n."""
        b = self._fitted("get_covariance").factors
        gain = np.maximum(b.variances - b.noise, 0.0)
        u = b.components.astype(np.float64)
        return (u.T * gain) @ u + b.noise * np.eye(b.n)

    def get_precision(self) -> np.ndarray:
        """Inverse of ``get_covariance`` by the matrix inversion lemma; the pseudo-inverse where it is singular."""
        b = self._fitted("get_precision").factors
        if b.noise <= 1e-12 * (float(b.variances[0]) if b.k else 1.0):
            return np.linalg.pinv(self.get_covariance(), hermitian=True)
        u = b.components.astype(np.float64)
        return np.eye(b.n) / b.noise - (u.T * (1 / b.noise - 1 / np.maximum(b.variances, b.noise))) @ u

    def certify(self, X: Any, sample_weight: Any = None) -> Certificate:
        """Measure the certificate again from this model and data, by products with the data alone."""
        matrix = self._new_rows(X)
        engine, rng, b = engine_named("cpu", self.n_threads), generator(self.random_state), self.fit_.factors
        weights = self._weights(matrix, sample_weight)
        if (seen := as_observed(matrix)) is not None:
            return gaps.certify_gaps(seen, b, weights, engine=engine)
        assert isinstance(matrix, (Dense, Counts))
        c = Covariance.by_products(engine, matrix, b.centered, weights)
        return certify(c, b, float(self.fit_.plan.get("tol", 1e-8)), rng)

    def _options(self) -> Options:
        for name in ("whiten", "center"):
            if not isinstance(getattr(self, name), (bool, np.bool_)):
                raise wrong(name, getattr(self, name), "True or False")
        if not isinstance(self.tol, numbers.Real) or not 0 <= self.tol < 1:
            raise wrong("tol", self.tol, "a number from 0 to 1")
        if self.rotation not in (None, "varimax", "promax"):
            raise wrong("rotation", self.rotation, "None, 'varimax' or 'promax'")
        if not isinstance(self.n_oversamples, (int, np.integer)) or self.n_oversamples < 1:
            raise wrong("n_oversamples", self.n_oversamples, "an int >= 1")
        if self.iterated_power != "auto" and (
            not isinstance(self.iterated_power, (int, np.integer)) or self.iterated_power < 0
        ):
            raise wrong("iterated_power", self.iterated_power, "'auto' or an int >= 0")
        if self.power_iteration_normalizer not in ("auto", "QR", "LU", "none"):
            raise wrong("power_iteration_normalizer", self.power_iteration_normalizer, "'auto', 'QR', 'LU' or 'none'")
        if self.max_iter is not None and (not isinstance(self.max_iter, (int, np.integer)) or self.max_iter < 1):
            raise wrong("max_iter", self.max_iter, "None or an int >= 1")
        steps = self.max_iter if self.iterated_power == "auto" else int(self.iterated_power) + 1
        return Options(
            self.n_components,
            bool(self.center),
            self.svd_solver,
            float(self.tol),
            int(self.n_oversamples),
            steps,
            self.checkpoint,
        )

    def _weights(self, matrix: Matrix, sample_weight: Any) -> np.ndarray | None:
        if sample_weight is None:
            return None
        if matrix.shape[0] is None:
            raise InputError(
                "sample_weight came with a stream of unknown length, wanted data whose number of rows is known"
            )
        return sample_weights(sample_weight, matrix.shape[0])

    def _store(self, fit: Fit, arrays: dict[str, np.ndarray] | None = None) -> None:
        rotation = rotation_of(fit.factors, self.rotation)
        self.fit_ = fit
        self._rotation = rotation

    @property
    def rotation_(self) -> Rotation | None:
        """The rotation of the loadings, where one was asked for."""
        self._fitted("rotation_")
        return self._rotation

    def _encode(self, matrix: Matrix) -> np.ndarray:
        b, engine = self.fit_.factors, engine_named("cpu", self.n_threads)
        codes = encode(matrix if (seen := as_observed(matrix)) is None else seen, b, engine)
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
        codes = numeric(np.asarray(X.to_numpy() if hasattr(X, "to_numpy") else X))
        if codes.ndim != 2 or codes.shape[1] != b.k:
            raise InputError(f"codes of shape {codes.shape} came, wanted (rows, {b.k})")
        return codes


def _at_most(k: Any, rows: int, n: int) -> Any:
    """In a stream, k components appear as soon as there are rows for them."""
    validate_components(k, None, n)
    return min(int(k), rows) if isinstance(k, (int, np.integer)) and not isinstance(k, bool) else k
