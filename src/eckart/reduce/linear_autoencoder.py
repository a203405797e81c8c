"""Linear autoencoder x_hat = mu + V W (x - mu), trained by gradient methods; its optimum is the PCA
subspace.

    minimise  R(V, W) = 1/2 E ||(I - V W)(x - mu)||^2   (+ ridge/2 (||V||^2 + ||W||^2))

V and W are not identifiable (V A, A^-1 W give the same map), so results are reported in canonical
form: the orthonormal, variance-ordered basis of the range of V W. The certificate is PCA's, for
that subspace, plus the gradient norm at the end.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import numpy as np

from eckart.bases import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from eckart.certify.certificate import Certificate, Check
from eckart.engines.protocol import Engine
from eckart.errors import InputError
from eckart.explained import explained_share
from eckart.factors import signs
from eckart.fit import Estimator, Fit, fitted, on_data, one_kind_of_names, plan_of
from eckart.io.models.checkpoint import Memory, kept_trace, resumed_trace, resuming
from eckart.io.read import read
from eckart.io.tables.frames import same_kind
from eckart.io.tables.missing import numeric
from eckart.matrix import Matrix, squarable
from eckart.optim.descend import Objective
from eckart.optim.rules import RULES, rule_named
from eckart.parameters import check, either, file_name, flag, number, one_of, optional, param, whole
from eckart.reduce import missing as gaps
from eckart.reduce.basis_attributes import BasisAttributes
from eckart.reduce.covariance import Covariance
from eckart.reduce.encode import encoder_of, squared_errors
from eckart.reduce.krylov import block_krylov
from eckart.reduce.plan import STATISTIC_COLUMNS, validate_components
from eckart.reduce.solve import SpectralOptions as PcaOptions
from eckart.reduce.solve import certify, solve, to_basis
from eckart.reduce.spectral import Spectrum, canonical
from eckart.reduce.train_linear import Trained, risk_objective, train
from eckart.rng import generator
from eckart.trace import StopReason, Trace, Watcher, progress

GRADIENT_LIMIT = 1e-4
"""Of all rows at once: what is left to gain is of the order of its square, a hundred-millionth of
the largest eigenvalue."""


@dataclass(eq=False, repr=False)
class LinearAutoencoder(
    BasisAttributes, ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator
):
    """Encoder W and decoder V of a linear autoencoder, by gradient descent on the risk 1/2 E||x -
    x_hat||^2.

    Parameters
    ----------
    n_components : int
        Code size k.
    optimizer : "gd", "heavy_ball", "nesterov", "adagrad", "adam"
    learning_rate : "auto" or float
        Step in units of 1 / largest eigenvalue of the covariance; "auto" is 1/L, or the rule's own
        default.
    batch_size : None or int
        None descends on the covariance, a sufficient statistic of all rows; a number descends on
        minibatches of rows.
    tied : bool
        One matrix, V = W^T.
    ridge : float
        Weight of the penalty on V and W, in units of the data's variance.
    max_iter, tol : int, float
        Most steps (epochs for minibatches), and the gradient norm to stop at, in units of the
        largest eigenvalue.
    checkpoint : None or path
        File in which the state is kept every few seconds; the same fit resumes from it after a
        crash, with the same bits.
    random_state, engine, n_threads, verbose
        Seed; what computes, "auto", "cpu", "numpy" or an engine; most threads to use (results do
        not depend on it); progress bars.

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
    P. Baldi and K. Hornik, "Neural networks and principal component analysis", Neural Networks 2
    (1989).
    """

    n_components: int = param(2, whole(0))
    _: KW_ONLY
    optimizer: Literal["gd", "heavy_ball", "nesterov", "adagrad", "adam"] = param(
        "nesterov", one_of(*RULES)
    )
    learning_rate: Any = param("auto", either(one_of("auto"), number(0, above=True)))
    batch_size: int | None = param(None, optional(whole(1)))
    tied: bool = param(False, flag())
    ridge: float = param(0.0, number(0))
    max_iter: int = param(20_000, whole(1))
    tol: float = param(1e-7, number(0))
    checkpoint: Any = param(None, file_name())

    def fit(self, X: Any, y: Any = None) -> LinearAutoencoder:
        """Train on rows of X; with missing entries, on the covariance that explains the observed
        ones best."""
        check(self)
        rule_named(self.optimizer)
        matrix = squarable(one_kind_of_names(read(X)))
        validate_components(self.n_components, matrix.shape[0], matrix.shape[1])
        engine = self._engine()
        with (
            progress(bool(self.verbose)) as watch,
            engine.at_work(),
            resuming(self, matrix) as (memory, rng),
        ):
            c, rows = on_data(
                engine, matrix, lambda x: self._data(x, matrix, engine, rng, watch, memory)
            )
            gappy = c.statistic is None and c.data is None
            inner = memory.inner(
                [c.mean, c.total, c.weight, c.rows, c.matrix, rng.bit_generator.state]
                if gappy
                else []
            )
            trained = self._train(c, rows, rng, watch, inner)
            values, components = canonical(c, trained.decoder)
            spectrum = Spectrum(
                values, components * signs(components)[:, None], trained.trace, 1e-6
            )
            basis = to_basis(c, spectrum, matrix.columns)
            certificate = _certify(c, basis, trained, self.batch_size, self.ridge, gappy, rng)
        plan = {
            "solver": self.optimizer,
            "reason": "asked for by name",
            "k": basis.k,
            "tol": 1e-6,
            **plan_of(engine),
            "learning_rate": trained.lr,
            "rows at a time": self.batch_size or "all, as their covariance",
        }
        memory.end(trained.trace)
        self._store(
            Fit(basis, certificate, trained.trace, plan),
            {"encoder": trained.encoder, "decoder": trained.decoder},
        )
        self._say_if_early(self.fit_)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Codes in canonical form: decorrelated, ordered by variance; on the GPU where X lies
        there."""
        return same_kind(X, self._of_rows(X, encoder_of(X)))

    def inverse_transform(self, X: Any) -> np.ndarray:
        """mean + codes U^T."""
        b = self._fitted("inverse_transform").factors
        codes = numeric(np.asarray(X.to_numpy() if hasattr(X, "to_numpy") else X))
        if codes.shape[1] != b.k:
            raise InputError(f"codes must have shape (rows, {b.k}), got {codes.shape}")
        return b.decode(codes)

    def reconstruction_error(self, X: Any) -> float:
        """1/2 mean ||x - x_hat||^2, over observed entries where some are missing."""
        return 0.5 * float(np.mean(self._of_rows(X, squared_errors)))

    def score(self, X: Any, y: Any = None) -> float:
        """The share of the variance of X that the reconstruction explains, over its observed
        entries."""
        return explained_share(
            self._new_rows(X),
            lambda part: self.inverse_transform(self.transform(part)),
            centred=True,
        )

    def certify(self, X: Any) -> Certificate:
        """Measure the certificate of the subspace again from this model and data alone."""

        def judged(x: Any, b: Any, engine: Engine) -> Certificate:
            if x.kind == "observed":
                return gaps.certificate_of(x, b, engine=engine)
            tol = 1e-6 if self.batch_size is None else 1e-3
            return certify(
                Covariance.by_products(engine, x, True), b, tol, generator(self.random_state)
            )

        return self._of_rows(squarable(self._new_rows(X)), judged)

    @fitted
    def encoder_(self) -> np.ndarray:
        """W, k x n, as trained."""
        self._fitted("encoder_")
        return self._weights[0]

    @fitted
    def decoder_(self) -> np.ndarray:
        """V, n x k, as trained."""
        self._fitted("decoder_")
        return self._weights[1]

    def extra_state(self) -> dict[str, np.ndarray]:
        """Arrays beside the factors, by name, for a model file."""
        return {"encoder": self._weights[0], "decoder": self._weights[1]}

    def _store(self, fit: Fit, arrays: dict[str, np.ndarray]) -> None:
        self.fit_ = fit
        self._weights = (arrays["encoder"], arrays["decoder"])

    def _data(
        self,
        x: Any,
        matrix: Matrix,
        engine: Engine,
        rng: np.random.Generator,
        watch: Watcher,
        memory: Memory,
    ) -> tuple[Covariance, np.ndarray | None]:
        """The covariance to descend on, and the rows themselves where batches of them are."""
        if x.kind == "observed":
            if kept := memory.last():  # a killed run had found it
                mean, total, weight, count, square, rng.bit_generator.state = kept
                return Covariance(
                    mean, total, weight, count, matrix.dtype, True, engine, matrix=square
                ), None
            return _expected_covariance(
                matrix, int(self.n_components), engine, rng, watch, memory.inner(None)
            ), None
        rows = None if self.batch_size is None else engine.entries(x).astype(np.float64)
        if x.shape[1] <= STATISTIC_COLUMNS:
            return Covariance.by_statistic(engine, x, True, rng, watch), rows
        return Covariance.by_products(engine, x, True, None, watch), rows

    def _train(
        self,
        c: Covariance,
        rows: np.ndarray | None,
        rng: np.random.Generator,
        watch: Watcher,
        memory: Memory,
    ) -> Trained:
        k = int(self.n_components)
        top = block_krylov(
            c.product,
            c.n,
            1,
            dtype=np.dtype(np.float64),
            rng=rng,
            engine=c.engine,
            block=2,
            tol=1e-3,
            max_steps=60,
        ).values
        largest = float(top[0]) if c.total > 0 else 0.0
        if rows is None or c.total == 0 or k == 0:
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
                memory=memory,
            )
        return _train_minibatch(c, rows, k, largest, self, rng, watch, memory)


def _expected_covariance(
    matrix: Matrix, k: int, engine: Engine, rng: np.random.Generator, watch: Watcher, memory: Memory
) -> Covariance:
    """The maximum-likelihood covariance of data with gaps, by probabilistic PCA."""
    wanted = PcaOptions(min(k + 5, matrix.shape[1], matrix.shape[0] or k))
    b = solve(matrix, wanted, None, engine=engine, rng=rng, watch=watch, memory=memory).factors
    u = b.components.astype(np.float64)
    values, noise = b.scatter / b.weight, b.noise * b.degrees / b.weight
    c = (u.T * (values - noise)) @ u + noise * np.eye(b.n)
    return Covariance(
        b.mean.astype(np.float64),
        float(np.trace(c)),
        b.weight,
        b.rows,
        b.mean.dtype,
        True,
        engine,
        matrix=c,
    )


def _train_minibatch(
    c: Covariance,
    rows: np.ndarray,
    k: int,
    largest: float,
    model: LinearAutoencoder,
    rng: np.random.Generator,
    watch: Watcher,
    memory: Memory,
) -> Trained:
    """One pass over shuffled rows an epoch, full steps for the first half, then falling to nothing;
    the risk of each epoch is measured on all rows."""
    rule = rule_named(model.optimizer)
    size = int(model.batch_size or len(rows))
    lr = model.learning_rate
    if lr == "auto":
        lr = (
            rule.default_lr
            if model.optimizer in ("adagrad", "adam")
            else rule.default_lr / (6 if model.tied else 3)
        )
        lr *= {"heavy_ball": 0.1, "nesterov": 0.05, "adam": 0.5}.get(model.optimizer, 1.0)
    centered = (rows - c.mean) / np.sqrt(largest)
    v = np.linalg.qr(rng.standard_normal((c.n, k)))[0]
    params = [v] if model.tied else [v, v.T.copy()]
    full = risk_objective(
        lambda a: np.asarray(c.product(a), np.float64) / largest,
        c.total / largest,
        model.tied,
        model.ridge,
    )
    state = rule.init(params)
    best, best_value, gradient = params, np.inf, np.inf
    trace = Trace("objective", reason=StopReason.MAX_ITER)
    epochs = min(model.max_iter, 200)
    if (kept := memory.last()) is not None:
        params, state, best = kept["params"], kept["state"], kept["best"]
        (best_value, gradient, lr), trace = (
            kept["numbers"],
            resumed_trace(trace.quantity, kept["trace"]),
        )
    try:
        for epoch in range(len(trace), epochs):
            numbers = {"numbers": [best_value, gradient, lr], "trace": kept_trace(trace)}
            memory.offer(numbers | {"params": params, "state": state, "best": best})
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
    c: Covariance,
    basis: Any,
    trained: Trained,
    batch: int | None,
    ridge: float,
    gappy: bool,
    rng: np.random.Generator,
) -> Certificate:
    """PCA's certificate for the subspace, with the gradient norm; minibatches are held to a looser
    one, since their steps are noisy."""
    tol = 1e-6 if batch is None else 1e-3
    certificate = certify(c, basis, tol, rng)
    limit = GRADIENT_LIMIT if batch is None else 5e-2
    check = Check(
        "gradient",
        float(trained.gradient),
        limit,
        "norm of the risk's gradient / largest eigenvalue",
    )
    notes, kind = certificate.notes, certificate.kind
    if gappy:
        notes = (
            *notes,
            "about the covariance that explains the observed entries best, which is "
            "itself a stationary point",
        )
        kind = "stationary"
    if ridge:
        notes = (*notes, "ridge shrinks V W, not its subspace; the checks are about the subspace")
    return Certificate(
        certificate.problem, kind, (*certificate.checks, check), certificate.facts, notes
    )
