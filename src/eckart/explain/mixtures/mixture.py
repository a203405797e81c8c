"""Mixtures of any family: p(x) = sum_z weight_z p(x; theta_z), by the same EM loop as everything
else that climbs a bound.

    E:  q_tz in proportion to weight_z p(x_t; theta_z), in log space
    M:  weight_z = mean_t q_tz,   theta_z = the family's q-weighted maximum-likelihood fit

The certificate shows that the bound never fell and that one more step does not move it.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple

import numpy as np

from eckart.certify.ascent import certify_ascent
from eckart.certify.certificate import Certificate
from eckart.engines.protocol import Engine, GapsFound, Placed
from eckart.engines.protocol.mixtures import Posteriors
from eckart.errors import InputError, InputTypeError
from eckart.explain.em import Ascent, best_of, climb, index_of
from eckart.explain.mixtures.families import FAMILY, family_named
from eckart.explain.mixtures.gaussian_solve import EMPTY, REVIVALS
from eckart.explain.mixtures.gaussian_steps import Scale, scale_of
from eckart.explain.mixtures.starts import WAYS, Sample
from eckart.explain.mixtures.verbs import MixtureVerbs, readable_twice
from eckart.factors import Components
from eckart.fit import (
    Fit,
    fitted,
    on_data,
    one_kind_of_names,
    plan_of,
    rows_to_fill,
    sample_weights,
)
from eckart.io.models.checkpoint import Memory, resuming
from eckart.io.read import read
from eckart.matrix import Matrix, squarable
from eckart.parameters import check, file_name, number, one_of, param, starts, whole
from eckart.trace import Trace, Watcher, progress


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
        sums = self.weight + other.weight, self.bound + other.bound, self.counts + other.counts
        return FamilyStatistics(*sums, self.found.merge(other.found))


@dataclass(eq=False)
class FamilyProblem:
    """Rows and a family: the two steps of EM for ``em.climb``. Gaussians have primitives of their
    own."""

    x: Placed
    family: Any
    engine: Engine

    def expect(self, theta: Theta) -> FamilyStatistics:
        if hasattr(self.family, "gaussians"):
            s = self.engine.gaussian_statistics(self.x, self.family.gaussians(*theta))
            return FamilyStatistics(s.weight, s.bound, s.counts, s)
        return FamilyStatistics(*self.engine.family_statistics(self.x, self.family, *theta))

    def maximise(self, s: FamilyStatistics) -> Theta:
        return Theta(s.counts / s.counts.sum(), self.family.maximise(s.found))


@dataclass(eq=False)
class HeldProblem(FamilyProblem):
    """The same for a family that can only be fitted to all rows at once: they and their shares are
    held on the host."""

    weights: np.ndarray | None = None

    @cached_property
    def rows(self) -> np.ndarray:
        return self.engine.rows_at(self.x).astype(np.float64, copy=False)

    def expect(self, theta: Theta) -> FamilyStatistics:
        found = self.engine.family_posteriors(self.x, self.family, *theta)
        loglik, q = self.engine.get(found.loglik), self.engine.get(found.shares)
        w = np.ones(len(loglik)) if self.weights is None else self.weights
        q = q * w[:, None]
        return FamilyStatistics(
            float(w.sum()), float(np.where(w > 0, w * loglik, 0.0).sum()), q.sum(axis=0), q
        )

    def maximise(self, s: FamilyStatistics) -> Theta:
        return Theta(s.counts / s.counts.sum(), self.family.weighted_fit(self.rows, s.found))


@dataclass(eq=False, repr=False)
class Mixture(MixtureVerbs):
    """A mixture of k components of any family, with a certificate.

    Parameters
    ----------
    n_components : k.
    family : "gaussian" (full covariances; "gaussian diag" and so on), "bernoulli", "multinomial",
        or an object with ``log_prob(x, parameters)`` (rows x k) and ``weighted_fit(x, q)``
        (parameters from rows and shares, rows x k). With ``statistics`` and ``maximise`` too it
        never sees all rows together (see ``eckart.explain.mixtures.families``).
    tol, max_iter : stop when the mean log-likelihood rises by less than ``tol``, after ``max_iter``
        steps at the latest.
    n_init, init_params : how many starts, and how: "k-means++", "kmeans", "random" or
        "random_from_data", on a sample of the rows.
    checkpoint : file in which the state is kept every few seconds; the same fit resumes from it
        after a crash, with the same bits.
    random_state, engine, n_threads, verbose : seed; which engine ("auto", "cpu", "numpy"); most
        threads (the result does not depend on them); progress bars.

    Attributes
    ----------
    weights_, parameters_ (named arrays of the family), converged_, n_iter_, lower_bound_,
    n_features_in_, fit_, certificate_.

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

    n_components: int = param(1, whole(1))
    _: KW_ONLY
    family: Any = param("gaussian", FAMILY)
    tol: float = param(1e-3, number(0))
    max_iter: int = param(100, whole(1))
    n_init: int = param(1, starts())
    init_params: Literal["k-means++", "kmeans", "random", "random_from_data"] = param(
        "k-means++", one_of(*WAYS)
    )
    checkpoint: Any = param(None, file_name())

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Mixture:
        """Fit to rows of X: array, frame, sparse counts, file or list of row blocks."""
        matrix = squarable(readable_twice(one_kind_of_names(read(X))))
        check(self)
        weights = sample_weights(sample_weight, matrix.shape[0])
        engine = self._engine()
        with (
            engine.at_work(),
            progress(bool(self.verbose)) as watch,
            resuming(self, matrix, weights) as (memory, rng),
        ):
            fit = self._solve(engine.put(matrix, weights), weights, engine, rng, watch, memory)
        memory.end(fit.trace)
        self.fit_ = fit
        self._say_if_early(fit)
        return self

    def _solve(
        self,
        x: Placed,
        weights: np.ndarray | None,
        engine: Engine,
        rng: np.random.Generator,
        watch: Watcher,
        memory: Memory,
    ) -> Fit:
        k, tries = self.n_components, self.n_init
        scale, problem = prepared(x, family_named(self.family), weights, engine)
        family = problem.family
        if scale.rows < k:
            raise InputError(
                f"n_components must be at most {scale.rows}, got {k}: X has {scale.rows} sample(s) "
                "(rows with weight). Lower it."
            )
        sample = Sample.of(x, scale, weights, rng, 20 * k, engine)
        revivers = [_Reviver(sample, problem, scale) for _ in range(tries)]
        for one, events in zip(revivers, memory.last() or ()):
            one.events += events

        def run(i: int, memory: Memory) -> Ascent[Theta, FamilyStatistics]:
            q = sample.shares(k, self.init_params, rng, whiten=i % 2 == 1)
            theta = from_shares(family, sample.rows, (0.9 * q + 0.1 / k) * sample.w[:, None])
            trace = Trace("log-likelihood a row")
            how: dict[str, Any] = {
                "tol": self.tol,
                "max_iter": self.max_iter,
                "watch": watch,
                "each": revivers[i],
            }
            return climb(problem, theta, trace=trace, memory=memory, **how)

        starts = [partial(run, i) for i in range(tries)]
        best, ends = best_of(starts, memory.inner(lambda: [one.events for one in revivers]))
        events = revivers[index_of(best, ends)].events
        plan: dict[str, Any] = {
            **plan_of(engine),
            "k": k,
            "family": name_of(family),
            "start": self.init_params,
            "sample": len(sample),
            "rows": scale.rows,
            "weight": scale.weight,
            "tol": self.tol,
            "dtype": x.dtype.name,
        }
        plan |= ({"ends": ends} if len(ends) > 1 else {}) | ({"revived": events} if events else {})
        certificate = certify(problem, best.theta, best.trace, plan, best.statistics)
        kept = {name: np.asarray(a, np.float64) for name, a in best.theta.parameters.items()}
        factors = Components(best.theta.weights, name_of(family), kept, x.shape[1], x.columns)
        return Fit(factors, certificate, best.trace, plan)

    def certify(self, X: Any, sample_weight: Any = None) -> Certificate:
        """Measure the certificate again from this model and data: one more EM step, taken through
        the rows."""
        matrix = readable_twice(self._new_rows(X))
        weights = sample_weights(sample_weight, matrix.shape[0])
        engine, f = self._engine(), self.fit_.factors
        with engine.at_work():
            _, problem = prepared(engine.put(matrix, weights), self._family(), weights, engine)
            return certify(problem, Theta(f.weights, f.parameters), self.fit_.trace, self.fit_.plan)

    @fitted
    def parameters_(self) -> dict[str, np.ndarray]:
        """The family's arrays by name."""
        return {
            name: a.astype(self._dtype)
            for name, a in self._fitted("parameters_").factors.parameters.items()
        }

    def impute(self, X: Any = None) -> np.ndarray:
        """X with every missing entry at its expectation given the observed entries of its row:
        sum_z q_z E[x_j | z, observed].

        For Gaussian components of every covariance, for "bernoulli", and for a family whose entries
        are independent given the component (``gaps``) and whose parameters hold their ``means``.
        """
        matrix, engine = self._new_rows(rows_to_fill(self, X)), self._engine()
        f, family = self.fit_.factors, self._family()
        if hasattr(family, "gaussians"):
            theta = family.gaussians(f.weights, f.parameters)
            return engine.gaussian_posteriors(engine.put(matrix), theta, fill=True).filled.astype(
                self._dtype
            )
        if not (getattr(family, "gaps", False) and "means" in f.parameters):
            raise InputError(
                f"family must be of Gaussian or Bernoulli components to impute, got {f.family!r}: "
                "others do not say what to expect of a missing entry"
            )
        values = on_data(engine, matrix, engine.entries)
        shares = self._posteriors(matrix, shares=True).shares
        return np.where(np.isnan(values), shares @ f.parameters["means"], values).astype(
            self._dtype
        )

    def extra_state(self) -> dict[str, np.ndarray]:
        """Nothing beside the factors; a family that no file can bring back is refused."""
        if not isinstance(self.family, str):
            raise InputTypeError(
                "family must be a name ('gaussian', 'bernoulli', 'multinomial') to be saved, got a "
                f"{type(self.family).__name__} object: a file holds no code"
            )
        return {}

    def _family(self) -> Any:
        """The family that the model was fitted with."""
        return family_named(
            self.fit_.factors.family if isinstance(self.family, str) else self.family
        )

    def _posteriors(self, matrix: Matrix, shares: bool = False) -> Posteriors:
        f, family, engine = self.fit_.factors, self._family(), self._engine()
        x = engine.put(matrix)
        check_rows(x, family, engine)
        if hasattr(family, "gaussians"):
            return engine.gaussian_posteriors(
                x, family.gaussians(f.weights, f.parameters), shares=shares
            )
        return engine.family_posteriors(x, family, f.weights, f.parameters)

    def _draw(self, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        family = self._family()
        if not hasattr(family, "draw"):
            raise InputError(
                f"family {self.fit_.factors.family!r} has no draw(parameters, labels, "
                "rng), so it cannot be sampled"
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


def prepared(
    x: Placed, family: Any, weights: np.ndarray | None, engine: Engine
) -> tuple[Scale, FamilyProblem]:
    """The scale of the data, and the problem with the family ready for them: rows checked, floors
    set."""
    check_rows(x, family, engine)
    scale = scale_of(x, weights, engine)
    if hasattr(family, "for_data"):
        family = family.for_data(scale.sizes)
    adds_up = hasattr(family, "gaussians") or hasattr(family, "statistics")
    if adds_up and hasattr(family, "maximise"):
        return scale, FamilyProblem(x, family, engine)
    return scale, HeldProblem(x, family, engine, weights)


def check_rows(x: Placed, family: Any, engine: Engine) -> None:
    """Refuse rows that the family cannot explain, with their place."""
    try:
        engine.check_family(x, family)
    except GapsFound as gap:
        raise InputError(
            f"X must have complete rows for family={getattr(family, 'name', '')!r}, got NaN at "
            f"row {gap.row}, column {gap.column}. GaussianMixture, 'gaussian diag' and "
            "'bernoulli' take missing entries."
        ) from None


def name_of(family: Any) -> str:
    return getattr(family, "name", type(family).__name__)


def from_shares(family: Any, x: np.ndarray, q: np.ndarray) -> Theta:
    """One M step on rows whose shares are given."""
    counts = q.sum(axis=0)
    return Theta(counts / counts.sum(), family.weighted_fit(x, q))


def certify(
    problem: FamilyProblem,
    theta: Theta,
    trace: Trace,
    plan: dict[str, Any],
    statistics: FamilyStatistics | None = None,
) -> Certificate:
    """One more step from theta, measured through the data."""
    here = problem.expect(theta) if statistics is None else statistics
    gain = (problem.expect(problem.maximise(here)).bound - here.bound) / here.weight
    return certify_ascent(
        f"mixture of {len(theta.weights)} components, {name_of(problem.family)}: "
        f"log-likelihood of {here.weight:g} rows",
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

    sample: Sample
    problem: FamilyProblem
    scale: Scale
    events: list[dict[str, int]] = field(default_factory=list)

    def __call__(self, theta: Theta, s: FamilyStatistics, trace: Trace) -> Theta | None:
        tried = [event["component"] for event in self.events]
        row = self.scale.weight / self.scale.rows
        dead = [
            int(z) for z in np.flatnonzero(s.counts < EMPTY * row) if tried.count(int(z)) < REVIVALS
        ]
        k = len(theta.weights)
        if not dead or k == 1:
            return None
        logp = np.log(np.maximum(theta.weights, 1e-300)) + self.problem.family.log_prob(
            self.sample.rows, theta.parameters
        )
        loglik = np.logaddexp.reduce(logp, axis=1)
        q = np.exp(logp - loglik[:, None])
        worst = np.argsort(loglik, kind="stable")[: max(len(dead), len(loglik) // (2 * k))]
        for z, rows in zip(dead, np.array_split(worst, len(dead))):
            q[rows] = 0.1 * q[rows]
            q[rows, z] += 0.9
        self.events += [{"step": len(trace) - 1, "component": z} for z in dead]
        return from_shares(self.problem.family, self.sample.rows, q * self.sample.w[:, None])
