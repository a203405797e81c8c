"""Mixtures of any family: p(x) = sum_z weight_z p(x; theta_z), by the same EM loop as everything else that climbs a bound.

    E:  q_tz in proportion to weight_z p(x_t; theta_z), in log space
    M:  weight_z = mean_t q_tz,   theta_z = the family's q-weighted maximum-likelihood fit

The certificate shows that the bound never fell and that one more step does not move it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from eckart.certify.ascent import certify_ascent
from eckart.certify.certificate import Certificate
from eckart.engines import engine_named
from eckart.engines.cpu.row_blocks import jobs
from eckart.engines.protocol import Engine, GapsFound, refuse_bad
from eckart.engines.protocol.mixtures import Posteriors
from eckart.errors import InputError, InputTypeError, wrong
from eckart.explain.em import Ascent, best_of, climb
from eckart.explain.mixtures.families import Family, family_named
from eckart.explain.mixtures.gaussian_options import whole
from eckart.explain.mixtures.gaussian_solve import EMPTY, REVIVALS
from eckart.explain.mixtures.gaussian_steps import Scale, scale_of
from eckart.explain.mixtures.starts import WAYS, filled_in, sample_of, seeds, units
from eckart.explain.mixtures.verbs import MixtureVerbs, known_weights, readable_twice
from eckart.factors import Mixture as Components
from eckart.fit import Fit, one_kind_of_names
from eckart.io.read import read
from eckart.matrix import Matrix
from eckart.rng import generator
from eckart.trace import Trace, progress


class Theta(NamedTuple):
    """Weights of the components and the parameters of their family."""

    weights: np.ndarray
    parameters: Any


@dataclass(frozen=True, eq=False)
class FamilyStatistics:
    """Sums over rows, with the family's own."""

    weight: float
    bound: float
    counts: np.ndarray
    found: Any

    def merge(self, other: FamilyStatistics) -> FamilyStatistics:
        return FamilyStatistics(
            self.weight + other.weight,
            self.bound + other.bound,
            self.counts + other.counts,
            self.found.merge(other.found),
        )


@dataclass(eq=False)
class FamilyProblem:
    """Rows and a family: the two steps of EM for ``em.climb``."""

    x: Matrix
    weights: np.ndarray | None
    family: Any
    engine: Engine

    def expect(self, theta: Theta) -> FamilyStatistics:
        return FamilyStatistics(*self.engine.family_statistics(self.x, self.family, *theta, self.weights))

    def maximise(self, s: FamilyStatistics) -> Theta:
        return Theta(s.counts / s.counts.sum(), self.family.maximise(s.found))


@dataclass(frozen=True, eq=False)
class _Held:
    """Rows and shares kept as they are, for a family that can only be fitted to all of them."""

    x: np.ndarray
    q: np.ndarray

    def merge(self, other: _Held) -> _Held:
        return _Held(np.concatenate([self.x, other.x]), np.concatenate([self.q, other.q]))


class _Holding:
    """A family without statistics of its own, given some."""

    def __init__(self, family: Family):
        self.family, self.name = family, getattr(family, "name", type(family).__name__)
        self.log_prob = family.log_prob

    def statistics(self, x: np.ndarray, q: np.ndarray) -> _Held:
        return _Held(x.copy(), q)

    def maximise(self, held: _Held) -> Any:
        return self.family.weighted_fit(held.x, held.q)


class Mixture(MixtureVerbs):
    """A mixture of k components of any family, with a certificate.

    Parameters
    ----------
    n_components : k.
    family : "gaussian" (full covariances; "gaussian diag" and so on), "bernoulli", "multinomial", or an object with ``log_prob(x, parameters)`` (rows x k)
        and ``weighted_fit(x, q)`` (parameters from rows and shares, rows x k). With ``statistics`` and ``maximise`` too it never sees all rows together (see
        ``eckart.explain.mixtures.families``).
    tol, max_iter : stop when the mean log-likelihood rises by less than ``tol``, after ``max_iter`` steps at the latest.
    n_init, init_params : how many starts, and how: "k-means++", "kmeans", "random" or "random_from_data", on a sample of the rows.
    random_state, n_threads, verbose : seed; most threads (the result does not depend on them); progress bars.

    Attributes
    ----------
    weights_, parameters_ (named arrays of the family), converged_, n_iter_, lower_bound_, n_features_in_, fit_, certificate_.

    A family of one's own takes a few lines; here, independent Poisson counts:

    >>> import numpy as np
    >>> from scipy.special import gammaln
    >>> class Poisson:
    ...     name = "poisson"
    ...     def log_prob(self, x, parameters):
    ...         rates = parameters["rates"]
    ...         return x @ np.log(rates).T - rates.sum(axis=1) - gammaln(x + 1).sum(axis=1, keepdims=True)
    ...     def weighted_fit(self, x, q):
    ...         return {"rates": np.maximum(q.T @ x / q.sum(axis=0)[:, None], 1e-9)}
    >>> rng = np.random.default_rng(0)
    >>> x = np.concatenate([rng.poisson([1, 9], (300, 2)), rng.poisson([8, 2], (100, 2))])
    >>> model = Mixture(2, family=Poisson(), random_state=0).fit(x)
    >>> sorted(model.parameters_["rates"].round(1).tolist()), model.certificate_.holds
    ([[1.0, 9.0], [7.9, 1.9]], True)
    """

    def __init__(
        self,
        n_components: int = 1,
        *,
        family: Any = "gaussian",
        tol: float = 1e-3,
        max_iter: int = 100,
        n_init: int = 1,
        init_params: str = "k-means++",
        random_state: Any = None,
        n_threads: int | None = None,
        verbose: Any = 0,
    ):
        self.n_components = n_components
        self.family = family
        self.tol = tol
        self.max_iter = max_iter
        self.n_init = n_init
        self.init_params = init_params
        self.random_state = random_state
        self.n_threads = n_threads
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Mixture:
        """Fit to rows of X: array, frame, sparse counts, file or list of row blocks."""
        matrix = readable_twice(one_kind_of_names(read(X)))
        k, tries = whole("n_components", self.n_components), whole("n_init", self.n_init)
        steps = whole("max_iter", self.max_iter)
        if not isinstance(self.tol, (int, float)) or not 0 <= self.tol < np.inf:
            raise wrong("tol", self.tol, "a number >= 0")
        if self.init_params not in WAYS:
            raise wrong("init_params", self.init_params, ", ".join(map(repr, WAYS)))
        weights = known_weights(matrix, sample_weight)
        engine, rng = engine_named("cpu", self.n_threads), generator(self.random_state)
        scale, family = prepared(matrix, family_named(self.family), weights, engine)
        if scale.rows < k:
            raise InputError(
                f"n_components={k} came, wanted at most {scale.rows}: X has {scale.rows} sample(s) (rows with weight); lower it"
            )
        problem = FamilyProblem(matrix, weights, family, engine)
        sample, w = sample_of(matrix, scale.rows, weights, rng, 20 * k)
        revivers = [_Reviver(sample, w, problem, scale) for _ in range(tries)]
        with progress(bool(self.verbose)) as watch:

            def run(i: int) -> Ascent[Theta, FamilyStatistics]:
                q = seeds(units(filled_in(sample, scale), w, i % 2 == 1), w, k, self.init_params, rng)
                theta = from_shares(family, sample, (0.9 * q + 0.1 / k) * w[:, None])
                trace = Trace("log-likelihood a row")
                return climb(
                    problem, theta, tol=self.tol, max_iter=steps, trace=trace, watch=watch, each=revivers[i]
                )  # fmt: skip

            best, ends = best_of(partial(run, i) for i in range(tries))
        at = next(i for i, end in enumerate(ends) if end == best.bound or i == len(ends) - 1)
        events = revivers[at].events
        plan: dict[str, Any] = {
            "engine": engine.name, "k": k, "family": family.name, "start": self.init_params, "sample": len(sample),
            "rows": scale.rows, "weight": scale.weight, "tol": self.tol, "dtype": matrix.dtype.name,
        }  # fmt: skip
        plan |= ({"ends": ends} if len(ends) > 1 else {}) | ({"revived": events} if events else {})
        certificate = certify(problem, best.theta, best.trace, plan, best.statistics)
        kept = {name: np.asarray(a, np.float64) for name, a in best.theta.parameters.items()}
        factors = Components(best.theta.weights, family.name, kept, matrix.shape[1], matrix.columns)
        self.fit_ = Fit(factors, certificate, best.trace, plan)
        return self

    def certify(self, X: Any, sample_weight: Any = None) -> Certificate:
        """Measure the certificate again from this model and data: one more EM step, taken through the rows."""
        matrix = readable_twice(self._new_rows(X))
        weights = known_weights(matrix, sample_weight)
        engine, f = engine_named("cpu", self.n_threads), self.fit_.factors
        _, family = prepared(matrix, self._family(), weights, engine)
        problem = FamilyProblem(matrix, weights, family, engine)
        return certify(problem, Theta(f.weights, f.parameters), self.fit_.trace, self.fit_.plan)

    @property
    def parameters_(self) -> dict[str, np.ndarray]:
        """The family's arrays by name."""
        return {name: a.astype(self._dtype) for name, a in self._fitted("parameters_").factors.parameters.items()}

    def extra_state(self) -> dict[str, np.ndarray]:
        """Nothing beside the factors; a family that no file can bring back is refused."""
        if not isinstance(self.family, str):
            raise InputTypeError(
                f"family is a {type(self.family).__name__} object, wanted a name ('gaussian', 'bernoulli', 'multinomial') to save it: a file holds no code"
            )
        return {}

    def _family(self) -> Any:
        """The family that the model was fitted with."""
        return family_named(self.fit_.factors.family if isinstance(self.family, str) else self.family)

    def _posteriors(self, matrix: Matrix, shares: bool = False) -> Posteriors:
        f, family = self.fit_.factors, self._family()
        check_rows(matrix, family)
        return engine_named("cpu", self.n_threads).family_posteriors(matrix, family, f.weights, f.parameters)

    def _draw(self, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        family = self._family()
        if not hasattr(family, "draw"):
            raise InputError(
                f"family {self.fit_.factors.family!r} has no draw(parameters, labels, rng), so it cannot be sampled"
            )
        return np.asarray(family.draw(self.fit_.factors.parameters, labels, rng), np.float64)

    def _n_parameters(self) -> int:
        f, family = self.fit_.factors, self._family()
        own = (
            family.n_parameters(f.k, f.n)
            if hasattr(family, "n_parameters")
            else sum(a.size for a in f.parameters.values())
        )
        return int(own) + f.k - 1

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = self.family in ("multinomial", "bernoulli")
        tags.input_tags.allow_nan = self.family == "bernoulli"
        return tags


def prepared(x: Matrix, family: Any, weights: np.ndarray | None, engine: Engine) -> tuple[Scale, Any]:
    """The scale of the data, and the family ready for them: rows checked, floors set, statistics where it has none."""
    check_rows(x, family)
    scale = scale_of(x, weights, engine)
    if hasattr(family, "for_data"):
        family = family.for_data(scale.sizes)
    return scale, family if hasattr(family, "statistics") and hasattr(family, "maximise") else _Holding(family)


def check_rows(x: Matrix, family: Any) -> None:
    """Refuse rows that the family cannot explain, with their place."""
    for start, _, fetch in jobs(x):
        block = np.asarray(fetch({}))
        try:
            refuse_bad(block, start)
        except GapsFound as gap:
            if not getattr(family, "gaps", False):
                raise InputError(
                    f"X contains NaN at row {gap.row}, column {gap.column}, wanted complete rows for family={getattr(family, 'name', '')!r}; "
                    "GaussianMixture, 'gaussian diag' and 'bernoulli' take missing entries"
                ) from None
        if hasattr(family, "check"):
            family.check(block, start)


def from_shares(family: Any, x: np.ndarray, q: np.ndarray) -> Theta:
    """One M step on rows whose shares are given."""
    counts = q.sum(axis=0)
    return Theta(counts / counts.sum(), family.maximise(family.statistics(x, q)))


def certify(
    problem: FamilyProblem, theta: Theta, trace: Trace, plan: dict[str, Any], statistics: FamilyStatistics | None = None
) -> Certificate:
    """One more step from theta, measured through the data."""
    here = problem.expect(theta) if statistics is None else statistics
    gain = (problem.expect(problem.maximise(here)).bound - here.bound) / here.weight
    return certify_ascent(
        f"mixture of {len(theta.weights)} components, {problem.family.name}: log-likelihood of {here.weight:g} rows",
        trace=trace,
        bound=here.bound / here.weight,
        gain=gain,
        tol=float(plan["tol"]),
        ends=plan.get("ends", ()),
        excused={event["step"] + 1 for event in plan.get("revived", ())},
    )


@dataclass
class _Reviver:
    """Gives an empty component the rows of the sample that are explained worst."""

    sample: np.ndarray
    w: np.ndarray
    problem: FamilyProblem
    scale: Scale
    events: list[dict[str, int]] = field(default_factory=list)

    def __call__(self, theta: Theta, s: FamilyStatistics, trace: Trace) -> Theta | None:
        tried = [event["component"] for event in self.events]
        row = self.scale.weight / self.scale.rows
        dead = [int(z) for z in np.flatnonzero(s.counts < EMPTY * row) if tried.count(int(z)) < REVIVALS]
        k = len(theta.weights)
        if not dead or k == 1:
            return None
        logp = np.log(np.maximum(theta.weights, 1e-300)) + self.problem.family.log_prob(self.sample, theta.parameters)
        loglik = np.logaddexp.reduce(logp, axis=1)
        q = np.exp(logp - loglik[:, None])
        worst = np.argsort(loglik, kind="stable")[: max(len(dead), len(loglik) // (2 * k))]
        for z, rows in zip(dead, np.array_split(worst, len(dead))):
            q[rows] = 0.1 * q[rows]
            q[rows, z] += 0.9
        self.events += [{"step": len(trace) - 1, "component": z} for z in dead]
        return from_shares(self.problem.family, self.sample, q * self.w[:, None])
