"""Linear autoencoder x_hat = mu + V W (x - mu), trained by gradient methods; its optimum is the PCA subspace.

    minimise  R(V, W) = 1/2 E ||(I - V W)(x - mu)||^2   (+ ridge/2 (||V||^2 + ||W||^2))

V and W are not identifiable (V A, A^-1 W give the same map), so results are reported in canonical form: the orthonormal, variance-ordered basis of the
range of V W. The certificate is PCA's, for that subspace, plus the gradient norm at the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from eckart.certify.certificate import Certificate, Check
from eckart.engines import engine_named
from eckart.engines.protocol import Engine, GapsFound
from eckart.errors import wrong
from eckart.factors import signs
from eckart.fit import Estimator, Fit, one_kind_of_names
from eckart.io.read import read
from eckart.matrix import Dense, Matrix, Observed
from eckart.optim.descend import Objective
from eckart.optim.rules import rule_named
from eckart.reduce import missing as gaps
from eckart.reduce.attributes import BasisAttributes
from eckart.reduce.covariance import Covariance
from eckart.reduce.encode import as_observed, encode
from eckart.reduce.krylov import block_krylov
from eckart.reduce.plan import STATISTIC_COLUMNS, validate_components
from eckart.reduce.solve import Options as PcaOptions
from eckart.reduce.solve import certify, solve, to_basis
from eckart.reduce.spectral import Spectrum, canonical, densify
from eckart.reduce.train_linear import Trained, risk_objective, train
from eckart.rng import generator
from eckart.trace import StopReason, Trace, Watcher, progress

GRADIENT_LIMIT = 1e-4


class LinearAutoencoder(BasisAttributes, ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator):
    """Encoder W and decoder V of a linear autoencoder, by gradient descent on the risk 1/2 E||x - x_hat||^2.

    Parameters
    ----------
    n_components : int
        Code size k.
    optimizer : "gd", "heavy_ball", "nesterov", "adagrad", "adam"
    learning_rate : "auto" or float
        Step in units of 1 / largest eigenvalue of the covariance; "auto" is 1/L, or the rule's own default.
    batch_size : None or int
        None descends on the covariance, a sufficient statistic of all rows; a number descends on minibatches of rows.
    tied : bool
        One matrix, V = W^T.
    ridge : float
        Weight of the penalty on V and W, in units of the data's variance.
    max_iter, tol : int, float
        Most steps (epochs for minibatches), and the gradient norm to stop at, in units of the largest eigenvalue.

    Attributes
    ----------
    components_ : canonical form, k x n, orthonormal and ordered by variance
    encoder_, decoder_ : W (k x n) and V (n x k) as trained
    fit_, certificate_

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> model = LinearAutoencoder(n_components=2, random_state=0).fit(load_iris().data)
    >>> model.certificate_.holds, round(model.reconstruction_error(load_iris().data), 3)
    (True, 0.051)

    References
    ----------
    P. Baldi and K. Hornik, "Neural networks and principal component analysis", Neural Networks 2 (1989).
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        optimizer: str = "nesterov",
        learning_rate: Any = "auto",
        batch_size: int | None = None,
        tied: bool = False,
        ridge: float = 0.0,
        max_iter: int = 20_000,
        tol: float = 1e-7,
        random_state: Any = None,
        n_threads: int | None = None,
        verbose: bool = False,
    ):
        self.n_components = n_components
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.tied = tied
        self.ridge = ridge
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.n_threads = n_threads
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> LinearAutoencoder:
        """Train on rows of X; with missing entries, on the covariance that explains the observed ones best."""
        self._check()
        matrix = one_kind_of_names(read(X))
        validate_components(self.n_components, matrix.shape[0], matrix.shape[1])
        engine, rng = engine_named("cpu", self.n_threads), generator(self.random_state)
        with progress(bool(self.verbose)) as watch:
            c, basis_columns = _covariance(matrix, int(self.n_components), engine, rng, watch), matrix.columns
            trained = self._train(c, matrix, rng, watch)
        values, components = canonical(c, trained.decoder)
        spectrum = Spectrum(values, components * signs(components)[:, None], trained.trace, 1e-6)
        basis = to_basis(c, spectrum, Dense(np.empty((0, c.n), c.dtype), columns=basis_columns))
        plan = {
            "solver": self.optimizer,
            "reason": "asked for by name",
            "k": basis.k,
            "tol": 1e-6,
            "engine": engine.name,
            "learning_rate": trained.lr,
            "rows at a time": self.batch_size or "all, as their covariance",
        }
        certificate = _certify(
            c, basis, trained, self.batch_size, self.ridge, c.statistic is None and c.data is None, rng
        )
        self._store(
            Fit(basis, certificate, trained.trace, plan), {"encoder": trained.encoder, "decoder": trained.decoder}
        )
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Codes in canonical form: decorrelated, ordered by variance."""
        matrix = self._new_rows(X)
        seen = as_observed(matrix)
        return encode(matrix if seen is None else seen, self.fit_.factors, engine_named("cpu", self.n_threads))

    def inverse_transform(self, X: Any) -> np.ndarray:
        """mean + codes U^T."""
        return self._fitted("inverse_transform").factors.decode(
            np.asarray(X.to_numpy() if hasattr(X, "to_numpy") else X)
        )

    def reconstruction_error(self, X: Any) -> float:
        """1/2 mean ||x - x_hat||^2, over observed entries where some are missing."""
        matrix, b = self._new_rows(X), self.fit_.factors
        engine = engine_named("cpu", self.n_threads)
        if (seen := as_observed(matrix)) is not None:
            g = gaps.gaussian_of(b)
            return 0.5 * float(np.mean(engine.gap_codes(seen, g.w, g.mu, g.s2).misfit))
        return 0.5 * float(np.mean(engine.misfit(matrix, b.components.T, b.mean.astype(np.float64))))

    def certify(self, X: Any) -> Certificate:
        """Measure the certificate of the subspace again from this model and data alone."""
        matrix, b = self._new_rows(X), self.fit_.factors
        engine, rng = engine_named("cpu", self.n_threads), generator(self.random_state)
        if (seen := as_observed(matrix)) is not None:
            return gaps.certify_gaps(seen, b, None, engine=engine)
        assert not isinstance(matrix, Observed)
        tol = 1e-6 if self.batch_size is None else 1e-3
        return certify(Covariance.by_products(engine, matrix, True, None), b, tol, rng)

    @property
    def encoder_(self) -> np.ndarray:
        """W, k x n, as trained."""
        self._fitted("encoder_")
        return self._weights[0]

    @property
    def decoder_(self) -> np.ndarray:
        """V, n x k, as trained."""
        self._fitted("decoder_")
        return self._weights[1]

    def extra_state(self) -> dict[str, np.ndarray]:
        return {"encoder": self._weights[0], "decoder": self._weights[1]}

    def _store(self, fit: Fit, arrays: dict[str, np.ndarray]) -> None:
        self.fit_ = fit
        self._weights = (arrays["encoder"], arrays["decoder"])

    def _check(self) -> None:
        k = self.n_components
        if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 0:
            raise wrong("n_components", k, "an int >= 0")
        rule_named(self.optimizer)
        if self.learning_rate != "auto" and not (
            isinstance(self.learning_rate, (int, float)) and self.learning_rate > 0
        ):
            raise wrong("learning_rate", self.learning_rate, "'auto' or a number > 0")
        if self.batch_size is not None and (not isinstance(self.batch_size, (int, np.integer)) or self.batch_size < 1):
            raise wrong("batch_size", self.batch_size, "None or an int >= 1")
        if self.ridge < 0:
            raise wrong("ridge", self.ridge, "a number >= 0")

    def _train(self, c: Covariance, matrix: Matrix, rng: np.random.Generator, watch: Watcher) -> Trained:
        k = int(self.n_components)
        top = block_krylov(
            c.product, c.n, 1, dtype=np.dtype(np.float64), rng=rng, engine=c.engine, block=2, tol=1e-3, max_steps=60
        ).values
        largest = float(top[0]) if c.total > 0 else 0.0
        if self.batch_size is None or c.total == 0 or k == 0 or isinstance(matrix, Observed):
            return train(
                c.product,
                c.n,
                k,
                c.total,
                largest,
                optimizer=self.optimizer,
                learning_rate=self.learning_rate,
                tied=self.tied,
                ridge=self.ridge * largest,
                tol=self.tol,
                max_iter=self.max_iter,
                rng=rng,
                watch=watch,
            )
        return _train_minibatch(c, densify(matrix), k, largest, self, rng, watch)


def _covariance(matrix: Matrix, k: int, engine: Engine, rng: np.random.Generator, watch: Watcher) -> Covariance:
    """The covariance to descend on; with gaps, the maximum-likelihood one of probabilistic PCA."""
    try:
        if not isinstance(matrix, Observed):
            if matrix.shape[1] <= STATISTIC_COLUMNS:
                return Covariance.by_statistic(engine, matrix, True, None, rng, watch)
            return Covariance.by_products(engine, matrix, True, None, watch)
    except GapsFound:
        pass
    wanted = PcaOptions(min(k + 5, matrix.shape[1], matrix.shape[0] or k))
    b = solve(matrix, wanted, None, engine=engine, rng=rng, watch=watch).factors
    u = b.components.astype(np.float64)
    values, noise = b.scatter / b.weight, b.noise * b.degrees / b.weight
    c = (u.T * (values - noise)) @ u + noise * np.eye(b.n)
    return Covariance(
        b.mean.astype(np.float64), float(np.trace(c)), b.weight, b.rows, b.mean.dtype, True, engine, matrix=c
    )


def _train_minibatch(
    c: Covariance,
    rows: np.ndarray,
    k: int,
    largest: float,
    model: LinearAutoencoder,
    rng: np.random.Generator,
    watch: Watcher,
) -> Trained:
    """One pass over shuffled rows an epoch, full steps for the first half, then falling to nothing; the risk of each epoch is measured on all rows."""
    rule = rule_named(model.optimizer)
    size = int(model.batch_size or len(rows))
    lr = model.learning_rate
    if lr == "auto":
        lr = rule.default_lr if model.optimizer in ("adagrad", "adam") else rule.default_lr / (6 if model.tied else 3)
        lr *= {"heavy_ball": 0.1, "nesterov": 0.05, "adam": 0.5}.get(model.optimizer, 1.0)
    centered = (rows - c.mean) / np.sqrt(largest)
    v = np.linalg.qr(rng.standard_normal((c.n, k)))[0]
    params = [v] if model.tied else [v, v.T.copy()]
    full = risk_objective(
        lambda a: np.asarray(c.product(a), np.float64) / largest, c.total / largest, model.tied, model.ridge
    )
    state = rule.init(params)
    best, best_value, gradient = params, np.inf, np.inf
    trace = Trace("objective", reason=StopReason.MAX_ITER)
    epochs = min(model.max_iter, 200)
    try:
        for epoch in range(epochs):
            order = rng.permutation(len(centered))
            fade = min(1.0, max(2 * (1 - epoch / epochs), 0.01) ** 2)
            for start in range(0, len(order), size):
                part = centered[order[start : start + size]]
                _, grads = _batch_objective(part, model)(rule.ahead(params, state))
                params, state = rule.step(params, grads, state, lr * fade)
            value, grads = full(params)
            trace.add(value)
            watch("epochs", epoch + 1, epochs)
            if not np.isfinite(value):
                lr, params = lr / 4, best
                state = rule.init(params)
                continue
            size_now = float(np.sqrt(sum(np.vdot(g, g) for g in grads)))
            if value < best_value:
                best, best_value, gradient = params, value, size_now
            if size_now <= model.tol:
                trace.reason = StopReason.CONVERGED
                break
    except KeyboardInterrupt:
        trace.reason = StopReason.INTERRUPTED
    return Trained(best[0], best[0].T if model.tied else best[1], trace, gradient, float(lr))


def _batch_objective(part: np.ndarray, model: LinearAutoencoder) -> Objective:
    """The risk on the second moments of one batch, up to its constant."""
    return risk_objective(lambda a: part.T @ (part @ a) / len(part), 0.0, model.tied, model.ridge)


def _certify(
    c: Covariance, basis: Any, trained: Trained, batch: int | None, ridge: float, gappy: bool, rng: np.random.Generator
) -> Certificate:
    """PCA's certificate for the subspace, with the gradient norm; minibatches are held to a looser one, since their steps are noisy."""
    tol = 1e-6 if batch is None else 1e-3
    certificate = certify(c, basis, tol, rng)
    limit = GRADIENT_LIMIT if batch is None else 5e-2
    check = Check("gradient", float(trained.gradient), limit, "norm of the risk's gradient / largest eigenvalue")
    notes, kind = certificate.notes, certificate.kind
    if gappy:
        notes = (
            *notes,
            "about the covariance that explains the observed entries best, which is itself a stationary point",
        )
        kind = "stationary"
    if ridge:
        notes = (*notes, "ridge shrinks V W, not its subspace; the checks are about the subspace")
    return Certificate(certificate.problem, kind, (*certificate.checks, check), certificate.facts, notes)
