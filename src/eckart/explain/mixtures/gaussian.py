"""Gaussian mixtures: soft clusters with means, covariances and weights, by expectation and
maximisation.

    p(x) = sum_z weight_z N(x; mean_z, S_z),      maximise  sum_t w_t log p(x_t)

The steps are in ``gaussian_steps``, the loop in ``em``, starts and restarts in ``gaussian_solve``.
The certificate shows that the likelihood never fell and that one more step does not move it: a
stationary point.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Literal

import numpy as np

from eckart.certify.certificate import Certificate
from eckart.engines.protocol.mixtures import KINDS, Gaussians, Posteriors, inverse_roots
from eckart.errors import InputError, invalid
from eckart.explain.mixtures.gaussian_solve import (
    MixtureOptions,
    certify,
    checked_scale,
    from_factors,
    rules_for,
    solve,
    with_steps,
)
from eckart.explain.mixtures.gaussian_steps import GaussianProblem, draw, free_parameters
from eckart.explain.mixtures.given import SettableMixture, given_start, settable
from eckart.explain.mixtures.starts import WAYS
from eckart.explain.mixtures.stepwise import take
from eckart.explain.mixtures.verbs import readable_twice
from eckart.fit import fitted, one_kind_of_names, rows_to_fill, sample_weights
from eckart.io.models.checkpoint import resuming
from eckart.io.namespaces import in_kind
from eckart.io.read import read
from eckart.matrix import Matrix
from eckart.parameters import (
    check,
    either,
    file_name,
    flag,
    number,
    one_of,
    optional,
    param,
    starts,
    whole,
)
from eckart.rng import generator
from eckart.trace import progress

LARGE = 10**8
"""Numbers in covariances that are formed on request, at most."""


@dataclass(eq=False, repr=False)
class GaussianMixture(SettableMixture):
    """A mixture of k Gaussians for dense, streamed, weighted or incomplete rows, with a
    certificate.

    Maximises the log-likelihood by EM. NaN entries are missing at random and are integrated out
    exactly; no variance falls below a floor that is scaled to the data, so that duplicates,
    constant columns and more columns than rows are no error.

    Parameters
    ----------
    n_components : int or "auto"
        k; "auto" takes the k of least BIC, starting from 1, of the kind of covariance that was
        named or of all kinds; ``fit_.plan["table"]`` shows all tried.
    covariance_type : None, "full", "tied", "diag", "spherical", "unit" or "factor"
        None is "full" for a given k, and all but "unit" for "auto", the cheapest first, each within
        a budget that the plan names. One covariance each; one for all; diagonal; multiples of the
        identity; the identity; low-rank + diagonal with ``n_factors`` directions (a mixture of
        factor analysers, for wide data: no matrix of columns x columns is formed).
    tol, max_iter : stop when the mean log-likelihood rises by less than ``tol``, after ``max_iter``
        steps at the latest.
    reg_covar : None or float
        None keeps variances above 1e-6 of their column's variance, and above h^2 / (2 pi) where a
        column is written in steps of h (whole years, grades): no written value has a probability
        above one. A number is added to variances, as scikit-learn does; the floor is then 1e-12.
    n_init, init_params : how many starts, and how: "k-means++" (own, with a few Lloyd steps),
        "kmeans" (scikit-learn's), "random", "random_from_data"; on a sample of at most 32768 rows.
        Starts measure in scaled and in whitened units by turns.
    weights_init, means_init, precisions_init : a start to use instead, or parts of one.
    warm_start : go on from the present components.
    n_factors : directions of each component, for "factor".
    checkpoint : file in which the state is kept every few seconds; the same fit resumes from it
        after a crash, with the same bits.
    random_state, engine, n_threads, verbose, verbose_interval
        Seed; which engine ("auto", "cpu", "numpy"); most threads (the result does not depend on
        them); progress bars; accepted for compatibility.

    Attributes
    ----------
    weights_, means_, covariances_, precisions_, precisions_cholesky_, converged_, n_iter_,
    lower_bound_, n_features_in_, feature_names_in_
        As in scikit-learn, in the precision of the data; ``lower_bound_`` is that of the returned
        components. For "factor" also ``loadings_``,
        ``noise_variances_``.
    fit_, certificate_ : factors, certificate, trace, plan (with components that were put back to
        use).

    >>> from sklearn.datasets import load_iris
    >>> model = GaussianMixture(3, random_state=0).fit(load_iris().data)
    >>> sorted(model.weights_.round(2).tolist()), model.certificate_.holds
    ([0.3, 0.33, 0.36], True)

    References: Dempster, Laird and Rubin 1977; Ghahramani and Jordan 1994 (missing entries);
    Ghahramani and Hinton 1996 (factor analysers).
    """

    n_components: Any = param(1, either(whole(1), one_of("auto")))
    _: KW_ONLY
    covariance_type: Literal[None, "unit", "spherical", "diag", "tied", "full", "factor"] = param(
        None, one_of(None, *KINDS)
    )
    tol: float = param(1e-3, number(0))
    reg_covar: float | None = param(None, optional(number(0)))
    max_iter: int = param(100, whole(0))
    n_init: int = param(1, starts())
    init_params: Literal["k-means++", "kmeans", "random", "random_from_data"] = param(
        "k-means++", one_of(*WAYS)
    )
    weights_init: Any = param(None)
    means_init: Any = param(None)
    precisions_init: Any = param(None)
    warm_start: bool = param(False, flag())
    n_factors: int = param(2, whole(1))
    verbose_interval: int = param(10, whole(1))
    checkpoint: Any = param(None, file_name())

    _stream: dict[str, Any] = field(init=False)
    _parts: dict[str, Any] = field(init=False)

    _early = (
        "Best performing initialization did not converge. Try different init parameters, or "
        "increase max_iter, tol, or check for degenerate data."
    )

    @in_kind
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> GaussianMixture:
        """Fit to rows of X: array, frame, file or list of row blocks; NaN marks a missing entry.
        Memory does not grow with the number of rows."""
        matrix = readable_twice(one_kind_of_names(read(X)))
        options = self._options(matrix.shape[1])
        weights = sample_weights(sample_weight, matrix.shape[0])
        engine, start = self._engine(), self._before(matrix, options)
        where = None if start is None else start.means
        with (
            progress(bool(self.verbose)) as watch,
            resuming(self, matrix, weights, y=where) as (memory, rng),
        ):
            how: dict[str, Any] = {"engine": engine, "rng": rng, "watch": watch, "memory": memory}
            if options.k == 0:
                from eckart.explain.mixtures.select import grow

                fit = grow(matrix, options, weights, **how)
            else:
                fit = solve(matrix, options, weights, start=start, **how)
        memory.end(fit.trace)
        self.fit_ = fit
        self.__dict__.pop("_stream", None)
        self._say_if_early(fit)
        return self

    @in_kind
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> GaussianMixture:
        """Take in more rows by stepwise EM: their statistics are merged into running ones, older
        rows fade as (share of rows seen)^0.7.

        The first rows (a thousand or so) are kept and fitted together, later ones are not kept. The
        first call needs at least k rows; ``fit`` starts over.
        """
        fresh = "_stream" not in vars(self)
        if fresh and "fit_" in vars(self) and "batches" in self.fit_.plan:
            raise InputError(
                "this model was loaded from a file, which does not hold its running "
                "statistics; call fit, or start with a new GaussianMixture"
            )
        matrix = readable_twice(one_kind_of_names(read(X)) if fresh else self._new_rows(X))
        options = self._options(matrix.shape[1])
        if options.k == 0:
            raise invalid("n_components", self.n_components, "an int for partial_fit")
        weights = sample_weights(sample_weight, matrix.shape[0])
        engine, rng = self._engine(), generator(self.random_state)
        before, state = (None, {}) if fresh else (self.fit_, self._stream)
        self.fit_, self._stream = take(
            matrix, options, weights, before, state, engine=engine, rng=rng
        )
        return self

    @in_kind
    def impute(self, X: Any = None, *, return_variance: bool = False) -> Any:
        """X with every missing entry at its expectation given the observed entries of its row; with
        ``return_variance`` also its variances (0 where seen)."""
        engine = self._engine()
        found = engine.gaussian_posteriors(
            engine.put(self._new_rows(rows_to_fill(self, X))), self._theta(), fill=True
        )
        filled = found.filled.astype(self._dtype)
        return (filled, found.variance.astype(self._dtype)) if return_variance else filled

    @in_kind
    def certify(self, X: Any, sample_weight: Any = None) -> Certificate:
        """Measure the certificate again from this model and data: one more EM step, taken through
        the rows."""
        matrix = readable_twice(self._new_rows(X))
        theta, plan = self._theta(), self.fit_.plan
        options = self._options(matrix.shape[1], k=theta.k, kind=theta.kind)
        weights = sample_weights(sample_weight, matrix.shape[0])
        engine = self._engine()
        with engine.at_work():
            x = engine.put(matrix, weights)
            scale = checked_scale(x, options, weights, engine)
            if "steps" in plan:  # models of earlier versions were fitted without them
                scale = with_steps(x, scale, replace(options, bounded=True), weights, engine)
            rules = rules_for(scale, options)
            return certify(
                GaussianProblem(x, rules, engine),
                theta,
                self.fit_.trace,
                float(plan.get("tol", self.tol)),
                ends=plan.get("ends", ()),
                events=plan.get("revived", ()),
                notes=("measured again from model and data",),
            )

    @settable
    def means_(self) -> np.ndarray:
        """k x n."""
        return self._fitted("means_").factors.parameters["means"].astype(self._dtype)

    @settable
    def covariances_(self) -> np.ndarray:
        """(k, n, n) for full and factor, (n, n) for tied, (k, n) for diag, (k,) for spherical and
        unit."""
        theta = self._theta("covariances_")
        if theta.kind == "unit":
            return np.ones(theta.k, self._dtype)
        if theta.kind != "factor":
            return theta.spread.astype(self._dtype)
        return self._dense("covariances_", theta).astype(self._dtype)

    @settable
    def precisions_(self) -> np.ndarray:
        """Inverses of ``covariances_``."""
        c = np.asarray(self.precisions_cholesky_, np.float64)
        square = (
            c**2
            if c.ndim < 2 or self._theta().kind == "diag"
            else np.matmul(c, np.swapaxes(c, -1, -2))
        )
        return square.astype(self._dtype)

    @settable
    def precisions_cholesky_(self) -> np.ndarray:
        """Upper triangular C with precision C C^T; square roots of precisions for diagonal
        kinds."""
        theta = self._theta("precisions_cholesky_")
        if theta.kind == "unit":
            return np.ones(theta.k, self._dtype)
        if theta.kind in ("spherical", "diag"):
            return (1.0 / np.sqrt(theta.spread)).astype(self._dtype)
        roots = (
            theta.roots
            if theta.kind != "factor"
            else inverse_roots(self._dense("precisions_cholesky_", theta))
        )
        return roots.astype(self._dtype)

    @fitted
    def loadings_(self) -> np.ndarray:
        """W of each component, (k, n, n_factors), for covariance_type="factor"."""
        return self._parameter("loadings_", "loadings")

    @fitted
    def noise_variances_(self) -> np.ndarray:
        """Diagonal part of each covariance, (k, n), for covariance_type="factor"."""
        self._parameter("noise_variances_", "loadings")
        return self._parameter("noise_variances_", "spread")

    def _parameter(self, name: str, kept: str) -> np.ndarray:
        parameters = self._fitted(name).factors.parameters
        if kept not in parameters:
            raise AttributeError(f"{name} is absent: the covariance is not of the type 'factor'")
        return parameters[kept].astype(self._dtype)

    def _dense(self, name: str, theta: Gaussians) -> np.ndarray:
        if theta.k * theta.n**2 > LARGE:
            raise AttributeError(
                f"{name} would hold {theta.k} x {theta.n} x {theta.n} numbers; use "
                "loadings_ and noise_variances_"
            )
        return np.array([theta.covariance(z) for z in range(theta.k)])

    def _theta(self, name: str = "components") -> Gaussians:
        return from_factors(self._fitted(name).factors)

    def _posteriors(self, matrix: Matrix, shares: bool = False) -> Posteriors:
        engine = self._engine()
        return engine.gaussian_posteriors(engine.put(matrix), self._theta(), shares=shares)

    def _n_parameters(self) -> int:
        theta = self._theta()
        return free_parameters(
            theta.kind, theta.k, theta.n, 0 if theta.loadings is None else theta.loadings.shape[2]
        )

    def _draw(self, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return draw(self._theta(), labels, rng)

    def _before(self, matrix: Matrix, options: MixtureOptions) -> Gaussians | None:
        """The present components, where they are to be gone on from."""
        if not self.warm_start or "fit_" not in vars(self):
            return None
        theta = self._theta()
        if (theta.k, theta.n, theta.kind) != (options.k, matrix.shape[1], options.kind):
            return None
        return theta

    def _options(self, n: int, k: int | None = None, kind: str | None = None) -> MixtureOptions:
        """Parameters, checked; k = 0 stands for "auto"."""
        check(self)
        if k is None:
            k = 0 if self.n_components == "auto" else int(self.n_components)
        kind = kind or self.covariance_type or ("full" if k else "any")
        return MixtureOptions(
            k,
            kind,
            float(self.tol),
            None if self.reg_covar is None else float(self.reg_covar),
            int(self.max_iter),
            int(self.n_init),
            self.init_params,
            int(self.n_factors),
            *(given_start(self, k, n, kind) if k else (None, None, None)),
        )
