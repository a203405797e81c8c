"""Non-negative matrix factorization: a table as a sum of parts.

    minimise  D(A, W H) + penalties   over   W, H >= 0,     D = 1/2 ||A - W H||^2   or   sum a log(a / s) - a + s,  s = (W H)_ij

Nothing can be taken away again, so components become parts that add up (Lee and Seung 1999). With the divergence, scaled so that rows of H and of W sum to 1,
it is probabilistic latent semantic analysis. The loop is in ``nmf_loop``, the half sweeps in ``nmf_sides``, the start in ``nmf_start``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from eckart.certify.certificate import Certificate
from eckart.certify.nonnegative import certify_parts
from eckart.engines import engine_named
from eckart.errors import InputError
from eckart.explain.parts.consensus import Consensus, agree
from eckart.explain.parts.online import Stream, take
from eckart.explain.parts.options import SOLVERS, Options, options_of
from eckart.explain.parts.sides import sides_of
from eckart.explain.parts.solve import door, encode, solve, traced
from eckart.factors import LowRank
from eckart.fit import Estimator, Fit, one_kind_of_names, sample_weights
from eckart.io.read import read
from eckart.io.tables.numbers import numeric
from eckart.matrix import Counts, Dense, Matrix, Observed, row_parts
from eckart.rng import generator
from eckart.scheduler import single_threaded_blas
from eckart.trace import progress

FIRST = 50
"""Sweeps on the first block of a stream."""


class NormalForm(NamedTuple):
    """A ~ diag(totals) shares parts: rows of ``parts`` p(column | z) and of ``shares`` p(z | row) sum to 1 (to 0 where there is nothing)."""

    shares: np.ndarray
    parts: np.ndarray
    totals: np.ndarray


class NMF(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator):
    """Non-negative factors W, H of dense, sparse or partly observed data, with a certificate.

    Minimises D(A, W H) + n a_W (r sum W + (1 - r)/2 ||W||^2) + N a_H (r sum H + (1 - r)/2 ||H||^2) over W, H >= 0 for N rows and n columns,
    a_W = ``alpha_W``, a_H = ``alpha_H``, r = ``l1_ratio``. NaN entries, and those absent from ``Observed``, are unknown: only observed entries count. Entries
    absent from a sparse matrix are zero.

    Parameters
    ----------
    n_components : int, "auto" or None
        k; "auto" and None take the number of columns.
    init : None, "nndsvd", "nndsvda", "random" or "custom"
        Start; "custom" takes W and H from ``fit_transform(X, W=, H=)``. None: "nndsvda", but "random" where k is larger than the data or entries are
        unknown.
    solver : "auto", "hals", "cd", "als", "mm" or "mu"
        Least squares: "hals" (coordinate descent with repeated inner sweeps, the first of them on a sketch of large data), "cd" (one inner sweep, as
        scikit-learn's), "als" (projected least squares, the plain method). Divergence: "mm" (over-relaxed multiplicative steps, taken back where they
        rise), "mu" (plain ones). "auto": "hals" or "mm".
    beta_loss : "frobenius" or "kullback-leibler" (also "kl")
    tol : float or None
        Residual of the optimality conditions at which the fit stops (its square is about the share of the objective that one more sweep could take
        off); None: 2e-3 for least squares, 1e-2 for the divergence.
    max_iter : most sweeps.
    alpha_W, alpha_H, l1_ratio : penalties; ``alpha_H="same"`` is ``alpha_W``. With unknown entries a small one keeps predictions from growing where
        little was seen.
    n_init : fits from several starts (the first from ``init``, others random); the best is kept and ``consensus_`` tells how far they agree.
    random_state, n_threads, verbose : seed; most threads (the result does not depend on them); progress bars.
    shuffle : accepted for compatibility; coordinates are visited in order.

    Attributes
    ----------
    components_ (H), reconstruction_err_, n_iter_, n_components_, n_features_in_, feature_names_in_ : as in scikit-learn.
    fit_, certificate_ : all of the fit; the certificate measures how far min(entry, gradient) is from 0 in W and in H.
    consensus_ : agreement of the restarts (``Consensus``).

    Examples
    --------
    >>> a = np.array([[1.0, 2.0, 0.0], [2.0, 4.0, 0.0], [0.0, 1.0, 3.0], [1.0, 3.0, 3.0]])
    >>> model = NMF(2, random_state=0, tol=1e-6).fit(a)
    >>> round(float(model.reconstruction_err_), 4), model.certificate_.holds
    (0.0, True)
    >>> NMF(2, beta_loss="kl", random_state=0).fit(a).normal_form().parts.sum(axis=1).round(6).tolist()
    [1.0, 1.0]

    References
    ----------
    D. Lee and H. S. Seung, Nature 401 (1999); N. Gillis and F. Glineur, "Accelerated multiplicative updates and hierarchical ALS" (2012).
    """

    _stream: Stream
    _consensus: Consensus

    def __init__(
        self,
        n_components: Any = "auto",
        *,
        init: str | None = None,
        solver: str = "auto",
        beta_loss: Any = "frobenius",
        tol: float | None = None,
        max_iter: int = 200,
        random_state: Any = None,
        alpha_W: float = 0.0,
        alpha_H: Any = "same",
        l1_ratio: float = 0.0,
        n_init: int = 1,
        n_threads: int | None = None,
        verbose: bool = False,
        shuffle: bool = False,
    ):
        self.n_components = n_components
        self.init = init
        self.solver = solver
        self.beta_loss = beta_loss
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.alpha_W = alpha_W
        self.alpha_H = alpha_H
        self.l1_ratio = l1_ratio
        self.n_init = n_init
        self.n_threads = n_threads
        self.verbose = verbose
        self.shuffle = shuffle

    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, W: Any = None, H: Any = None, weights: Any = None
    ) -> NMF:
        """Fit to X: array, frame, sparse matrix, file or row blocks; NaN marks a missing entry.

        ``sample_weight`` weighs rows (2 is the row twice). ``weights`` weighs entries: an array of X's shape, 0 where an entry is not to count.
        """
        matrix, entry = self._door(X, weights)
        if isinstance(matrix, Dense) and not matrix.in_memory and not matrix.stream.rereadable:
            return self._fit_blocks(matrix)
        options = self._options_of(matrix)
        row_weights = None if sample_weight is None else sample_weights(sample_weight, _rows(matrix))
        options = self._options_of(matrix, None if row_weights is None else float(row_weights.sum()))
        given = self._given(W, H, matrix, options)
        with progress(bool(self.verbose)) as watch:
            ends = solve(
                matrix, options, engine=engine_named("cpu", self.n_threads), rng=generator(self.random_state),
                weights=row_weights, entry_weights=entry, given=given, watch=watch,
            )  # fmt: skip
        self.fit_ = ends.fit
        self._consensus = agree(ends)
        self.__dict__.pop("_stream", None)
        return self

    def fit_transform(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, W: Any = None, H: Any = None
    ) -> np.ndarray:
        """W of the fit; with ``init="custom"`` it starts from the given W and H."""
        return self.fit(X, sample_weight=sample_weight, W=W, H=H).fit_.factors.left

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> NMF:
        """Take in more rows; the rows themselves are not kept (``nmf_online``). The certificate is about the last block given H."""
        fresh = "_stream" not in vars(self)
        if fresh and "fit_" in vars(self) and self.fit_.plan.get("solver") == "stream":
            raise InputError(
                "this model was loaded from a file, which does not hold its running statistic; call fit, or start with a new NMF"
            )
        matrix = self._door(X, None)[0] if fresh else door(self._new_rows(X))
        if isinstance(matrix, Observed):
            raise InputError("X has missing entries, wanted complete rows for partial_fit; call fit on all rows")
        weights = None if sample_weight is None else sample_weights(sample_weight, _rows(matrix))
        self._take(matrix, weights, None if fresh else self._stream)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """W for new rows, H fixed: min over W >= 0, row by row."""
        matrix = door(self._new_rows(X))
        engine = engine_named("cpu", self.n_threads)
        if matrix.shape[0] is not None:
            engine.totals(matrix)
        return encode(matrix, self.fit_.factors.right, self._options_of(matrix), engine)

    def inverse_transform(self, X: Any) -> np.ndarray:
        """W H for given codes."""
        f = self._fitted("inverse_transform").factors
        codes = numeric(np.asarray(X.to_numpy() if hasattr(X, "to_numpy") else X))
        if codes.ndim != 2 or codes.shape[1] != f.k:
            raise InputError(f"codes of shape {codes.shape} came, wanted (rows, {f.k})")
        return codes @ f.right.T

    def normal_form(self) -> NormalForm:
        """The factorization on the simplex: p(z | row), p(column | z), and the mass of every row."""
        f = self._fitted("normal_form").factors
        size = f.right.sum(axis=0, dtype=np.float64)
        parts = (f.right / np.where(size > 0, size, 1.0)).T.astype(f.right.dtype)
        mass = f.left * size
        totals = mass.sum(axis=1)
        shares = mass / np.where(totals > 0, totals, 1.0)[:, None]
        return NormalForm(shares.astype(f.left.dtype), parts, totals.astype(f.left.dtype))

    def certify(self, X: Any, sample_weight: Any = None, weights: Any = None) -> Certificate:
        """Measure the certificate again from this model and the data it was fitted to."""
        f = self._fitted("certify").factors
        self._new_rows(X)
        matrix, entry = self._door(X, weights)
        if matrix.shape[0] != len(f.left):
            raise InputError(
                f"X has {matrix.shape[0]} rows, wanted {len(f.left)}: the data that the model was fitted to"
            )
        row_weights = None if sample_weight is None else sample_weights(sample_weight, _rows(matrix))
        options = self._options_of(matrix, None if row_weights is None else float(row_weights.sum()))
        engine = engine_named("cpu", self.n_threads)
        with single_threaded_blas():
            sides = sides_of(matrix, options.loss, options.penalties, engine, row_weights, entry)
            return certify_parts(sides, f.left, f.right, self.fit_.trace, options.loss, self.fit_.certificate.notes)

    @property
    def components_(self) -> np.ndarray:
        """H, k x columns."""
        return self._fitted("components_").factors.right.T

    @property
    def n_components_(self) -> int:
        return self._fitted("n_components_").factors.k

    @property
    def n_iter_(self) -> int:
        """Sweeps over the data."""
        return int(self._fitted("n_iter_").plan["sweeps"])

    @property
    def reconstruction_err_(self) -> float:
        """sqrt(2 D): ||A - W H|| for least squares."""
        return float(np.sqrt(2 * self._fitted("reconstruction_err_").certificate["data term"]))

    @property
    def consensus_(self) -> Consensus:
        """How far the restarts of the last fit agree."""
        self._fitted("consensus_")
        if "_consensus" not in vars(self):
            raise AttributeError("consensus_ is absent: the model was loaded from a file or fitted in blocks; call fit")
        return self._consensus

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def _door(self, X: Any, weights: Any) -> tuple[Matrix, np.ndarray | None]:
        """The data, and one weight for each stored entry where entries are weighted."""
        matrix = door(one_kind_of_names(read(X)))
        if weights is None:
            return matrix, None
        w = numeric(np.asarray(weights))
        if w.shape != matrix.shape or not (np.isfinite(w) & (w >= 0)).all():
            raise InputError(
                f"weights of shape {w.shape} came, wanted {matrix.shape}: a finite number >= 0 for each entry"
            )
        if isinstance(matrix, Counts) or (isinstance(matrix, Dense) and matrix.in_memory):
            values = (
                matrix.to_scipy().toarray() if isinstance(matrix, Counts) else np.asarray(matrix.array, matrix.dtype)
            )
            matrix = Observed.from_nan(values, matrix.rows, matrix.columns)
        if not isinstance(matrix, Observed):
            raise InputError("weights came with a stream of rows, wanted data in memory")
        return matrix, w[np.repeat(np.arange(matrix.shape[0]), matrix.row_counts()), matrix.indices].astype(np.float64)

    def _given(self, W: Any, H: Any, matrix: Matrix, options: Options) -> tuple[np.ndarray, np.ndarray] | None:
        if self.init != "custom":
            return None
        shapes = {"W": (W, (matrix.shape[0], options.k)), "H": (H, (options.k, matrix.shape[1]))}
        for name, (value, shape) in shapes.items():
            if np.shape(value) != shape:
                raise InputError(f"{name} of shape {np.shape(value)} came with init='custom', wanted {shape}")
            if not (np.isfinite(value).all() and (np.asarray(value) >= 0).all()):
                raise InputError(f"{name} holds a negative or infinite number, wanted numbers >= 0")
        return np.array(W, matrix.dtype, order="C"), np.array(np.transpose(H), matrix.dtype, order="C")

    def _fit_blocks(self, matrix: Dense) -> NMF:
        """A stream that can be read once only: block after block."""
        stream, lefts = None, []
        for part in row_parts(matrix, max(256, 2**22 // matrix.shape[1])):
            self._take(Dense(np.asarray(part.values, matrix.dtype), None, matrix.columns), None, stream)  # type: ignore[union-attr]
            stream = self._stream
            lefts.append(self.fit_.factors.left)
        f, fit = self.fit_.factors, self.fit_
        self.fit_ = Fit(
            LowRank(np.concatenate(lefts), f.right, columns=f.columns), fit.certificate, fit.trace, fit.plan
        )
        return self

    def _take(self, matrix: Matrix, weights: np.ndarray | None, stream: Stream | None) -> None:
        engine, rng = engine_named("cpu", self.n_threads), generator(self.random_state)
        size = float(_rows(matrix) if weights is None else weights.sum())
        faded = 0.0 if stream is None else stream.weight * (1 - 1 / (stream.blocks + 1))
        options = self._options_of(matrix, faded + size)
        with single_threaded_blas():
            if stream is None:
                init = None if self.init == "custom" or options.k > min(_rows(matrix), matrix.shape[1]) else self.init
                first = replace(options, init=init, n_init=1, solver=SOLVERS[options.loss][0], max_iter=FIRST)
                found = solve(matrix, first, engine=engine, rng=rng, weights=weights).fit.factors
                stream = Stream.begin(found.right, options.loss)
            stream, left = take(stream, matrix, options, engine, weights)
            sides = sides_of(matrix, options.loss, options.penalties._replace(m1=0.0, m2=0.0), engine, weights)
            rows = sides.rows(left, stream.right, still=True)
        columns = matrix.columns if "fit_" not in vars(self) or stream.blocks == 1 else self.fit_.factors.columns
        note = f"after {stream.blocks} blocks of rows: measured on the last block, whose W was solved given H"
        trace = traced(rows.value)
        c = certify_parts(sides, left, stream.right, trace, options.loss, (note,))
        checks = tuple(check for check in c.checks if check.name != "residual of H")
        plan = {
            "engine": engine.name,
            "solver": "stream",
            "loss": options.loss,
            "sweeps": stream.blocks,
            "tol": options.tol,
        }
        factors = LowRank(left, stream.right, rows=matrix.rows, columns=columns)
        self.fit_ = Fit(factors, Certificate(c.problem, c.kind, checks, c.facts, c.notes), trace, plan)
        self._stream = stream

    def _options_of(self, matrix: Matrix, weight: float | None = None) -> Options:
        """The parameters, checked and resolved for data of this shape; ``weight`` is the number of rows with their weights."""
        return options_of(self, matrix, weight)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _rows(matrix: Matrix) -> int:
    if matrix.shape[0] is None:
        raise InputError(
            "sample_weight came with a stream of unknown length, wanted data whose number of rows is known"
        )
    return matrix.shape[0]
