"""EM for Gaussian mixtures from several starts, with empty components put back to use; what
``GaussianMixture`` runs.

    maximise  F(q, theta) = sum_t w_t sum_z q_tz [log weight_z + log N(x_t; mean_z, S_z) - log q_tz]

E: q_tz in proportion to weight_z N(x_t; mean_z, S_z), in log space. M: ``gaussian_steps``. A
component that no row belongs to is moved to a row that the others explain badly, with their average
covariance, and a small weight; the plan says when.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from eckart.certify.ascent import FALL, certify_ascent
from eckart.certify.certificate import Certificate
from eckart.engines.protocol import Engine, Placed
from eckart.engines.protocol.mixtures import Gaussians
from eckart.errors import InputError
from eckart.explain.em import EQUAL, Ascent, best_of, climb, index_of
from eckart.explain.mixtures.gaussian_steps import (
    FLOOR,
    LOWEST,
    GaussianProblem,
    Rules,
    Scale,
    scale_of,
    steps_of,
)
from eckart.explain.mixtures.starts import Sample, gaussians_from
from eckart.factors import Components
from eckart.fit import Fit, plan_of
from eckart.io.models.checkpoint import NOTHING, Memory
from eckart.matrix import Matrix
from eckart.trace import StopReason, Trace, Watcher, silent

EMPTY = 0.1
"""A component with less than this many rows' weight is empty."""
REVIVALS = 2
"""Times that a component may be put back to use."""


SHORT_RUNS, SHORT_STEPS = 4, 15
"""Starts on the sample (shared among ``n_init``, two of each at least), and steps of each: the fit
begins with the one that led highest. One start alone often ends in a lower maximum, and after fewer
steps the order of the maxima is not seen yet."""


@dataclass(frozen=True)
class MixtureOptions:
    """Checked parameters of a fit."""

    k: int
    kind: str
    tol: float = 1e-3
    reg: float | None = None
    max_iter: int = 100
    n_init: int = 1
    way: str = "k-means++"
    factors: int = 0
    weights: np.ndarray | None = None
    means: np.ndarray | None = None
    spread: np.ndarray | None = None
    # prefer starts whose components have more rows than their covariances need
    bounded: bool = False


def solve(
    x: Matrix,
    options: MixtureOptions,
    weights: np.ndarray | None,
    *,
    engine: Engine,
    rng: np.random.Generator,
    watch: Watcher = silent,
    start: Gaussians | None = None,
    memory: Memory = NOTHING,
) -> Fit:
    """The best of ``n_init`` climbs; from ``start`` alone where it is given."""
    with engine.at_work():
        placed = engine.put(x, weights)
        scale = with_steps(
            placed, checked_scale(placed, options, weights, engine, watch), options, weights, engine
        )
        rules = rules_for(scale, options)
        problem = GaussianProblem(placed, rules, engine)
        sample = Sample.of(placed, scale, weights, rng, 20 * options.k, engine)
        reviver = [_ComponentReviver(sample, rules, rng, scale) for _ in range(options.n_init)]
        for one, events in zip(reviver, memory.last() or ()):
            one.events += events

        def from_start(i: int) -> Callable[[Memory], Ascent[Gaussians, Any]]:
            def run(memory: Memory) -> Ascent[Gaussians, Any]:
                theta = (
                    start
                    if start is not None
                    else first_theta(sample, rules, options, rng, i % 2 == 1, scale.rows)
                )
                trace = Trace("log-likelihood a row")
                return climb(
                    problem,
                    rules.admit(theta),
                    tol=options.tol,
                    max_iter=options.max_iter,
                    trace=trace,
                    watch=watch,
                    each=reviver[i],
                    memory=memory,
                )

            return run

        given = start is not None or (
            options.weights is not None and options.means is not None and options.spread is not None
        )
        starts = [from_start(i) for i in range(1 if given else options.n_init)]
        sound = lambda climb: not options.bounded or has_rows_enough(climb.theta, scale.weight)  # noqa: E731
        best, ends = best_of(starts, memory.inner(lambda: [one.events for one in reviver]), sound)
        events = reviver[index_of(best, ends)].events
        notes = _notes(best, rules, scale, events)
        certificate = certify(
            problem,
            best.theta,
            best.trace,
            options.tol,
            statistics=best.statistics,
            ends=ends,
            events=events,
            notes=notes,
        )
        plan: dict[str, Any] = {
            **plan_of(engine),
            "k": options.k,
            "covariance": options.kind,
            "start": "given" if given else options.way,
            "sample": len(sample),
            "rows": scale.rows,
            "weight": scale.weight,
            "tol": options.tol,
            "floor": FLOOR if options.reg is None else LOWEST,
            "dtype": x.dtype.name,
        }
        if scale.steps is not None and scale.steps.any():
            plan["steps"] = scale.steps.tolist()
        if len(ends) > 1:
            plan["ends"] = ends
        if events:
            plan["revived"] = events
        if options.kind == "factor":
            plan["factors"] = rules.factors
        return Fit(to_factors(best.theta, x.columns), certificate, best.trace, plan)


def checked_scale(
    x: Placed,
    options: MixtureOptions,
    weights: np.ndarray | None,
    engine: Engine,
    watch: Watcher = silent,
) -> Scale:
    """The scale of the data, refused where no mixture of k components can be fitted to it."""
    scale = scale_of(x, weights, engine, watch)
    n = x.shape[1]
    absent = np.flatnonzero(np.isnan(scale.mean))
    if len(absent):
        name = int(absent[0]) if x.columns is None else x.columns[absent[0]]
        more = f", nor have {len(absent) - 1} others" if len(absent) > 1 else ""
        raise InputError(f"column {name!r} of X has no observed entry{more}; leave it out")
    if not np.isfinite(scale.variance).all():
        raise InputError(
            f"column {int(np.argmin(np.isfinite(scale.variance)))} of X has entries "
            "whose squares overflow; divide it by a constant first"
        )
    if scale.rows < options.k:
        raise InputError(
            f"n_components must be at most {scale.rows}, got {options.k}: X has {scale.rows} "
            f"sample(s) (rows with weight) and {n} columns. Lower it."
        )
    return scale


def rules_for(scale: Scale, options: MixtureOptions) -> Rules:
    share = FLOOR if options.reg is None else LOWEST
    r = min(options.factors, len(scale.mean)) if options.kind == "factor" else 0
    return Rules(options.kind, scale.floor(share), options.reg or 0.0, r, scale.mean)


def with_steps(
    x: Placed, scale: Scale, options: MixtureOptions, weights: np.ndarray | None, engine: Engine
) -> Scale:
    """The scale with the steps in which columns are written; without them where ``reg_covar`` says
    what variances are, nothing has one, or a single component was asked for: it serves all rows, so
    it cannot serve a single value, and has their covariance. In a search all k have the same
    floor."""
    if (
        options.reg is not None
        or options.kind == "unit"
        or (options.k == 1 and not options.bounded)
    ):
        return scale
    return replace(scale, steps=steps_of(x, scale, weights, engine))


def first_theta(
    sample: Sample,
    rules: Rules,
    options: MixtureOptions,
    rng: np.random.Generator,
    whiten: bool,
    rows: int,
) -> Gaussians:
    """A start from the sample (of so many rows), with what the user gave put in its place."""
    given = (options.weights, options.means, options.spread)
    if all(part is not None for part in given):
        return Gaussians(rules.kind, *given, origin=rules.origin)  # type: ignore[arg-type]
    named: Any = {
        name: part for name, part in zip(("weights", "means", "spread"), given) if part is not None
    }
    several = options.way == "k-means++" and options.k > 1 and not named
    tried = []
    for i in range(max(2, SHORT_RUNS // options.n_init) if several else 1):
        # the starts of a larger n_init are those of a smaller one and more: it is never behind
        tried.append(
            gaussians_from(
                sample,
                sample.shares(options.k, options.way, rng, i % 2 == 1 if several else whiten),
                rules,
            )
        )
    if several:
        return _highest(
            GaussianProblem(sample.placed, rules, sample.engine),
            tried,
            len(sample) == rows and not options.bounded,
        )
    return replace(tried[0], **named)


def _highest(problem: GaussianProblem, starts: list[Gaussians], whole: bool) -> Gaussians:
    """Of several starts the one from which a few steps lead highest; of those whose components all
    have rows enough, where there are any.

    The start itself where the sample is the ``whole`` of the rows: ``max_iter`` and the trace then
    count every step, as in scikit-learn. Elsewhere, and in a search, the point that these steps
    reached: a step on the sample costs a fraction of one on all rows."""
    best: tuple[bool, float, Gaussians] | None = None
    for start in starts:
        theta = problem.rules.admit(start)
        for _ in range(SHORT_STEPS):
            theta = problem.maximise(problem.expect(theta))
        s = problem.expect(theta)
        sound, bound = has_rows_enough(theta, s.weight), s.bound / s.weight
        if (
            best is None
            or (sound, bound - EQUAL * (1 + abs(bound)) * (sound == best[0])) > best[:2]
        ):
            best = sound, bound, start if whole else theta
    assert best is not None
    return best[2]


def to_factors(theta: Gaussians, columns: np.ndarray | None) -> Components:
    """The components as they are kept."""
    parameters = {"means": theta.means}
    if theta.kind != "unit":
        parameters["spread"] = theta.spread
    if theta.loadings is not None and theta.origin is not None:
        parameters |= {"loadings": theta.loadings, "origin": theta.origin}
    return Components(theta.weights, f"gaussian {theta.kind}", parameters, theta.n, columns)


def from_factors(f: Components) -> Gaussians:
    p = f.parameters
    kind = f.family.removeprefix("gaussian ")
    return Gaussians(
        kind,
        f.weights,
        p["means"],
        p.get("spread", np.empty(0)),
        p.get("loadings"),
        p.get("origin"),
    )


def has_rows_enough(theta: Gaussians, weight: float) -> bool:
    """Has every component more rows than those whose covariance is singular: as many as columns for
    a full one, one for variances alone, none for a shared?"""
    factors = 0 if theta.loadings is None else theta.loadings.shape[2]
    needed = {"full": theta.n, "factor": min(factors + 1, theta.n), "tied": 0, "unit": 0}.get(
        theta.kind, 1
    )
    # shares are not whole
    return theta.k == 1 or float(theta.weights.min()) * weight > needed + 0.5


def certify(
    problem: GaussianProblem,
    theta: Gaussians,
    trace: Trace,
    tol: float,
    *,
    statistics: Any = None,
    ends: Any = (),
    events: Any = (),
    notes: tuple[str, ...] = (),
) -> Certificate:
    """One more step from theta, measured through the data."""
    here = problem.expect(theta) if statistics is None else statistics
    after = problem.maximise(here)
    gain = (problem.expect(after).bound - here.bound) / here.weight
    spread = (
        theta.variances
        if theta.loadings is None
        else theta.spread + (theta.loadings**2).sum(axis=2)
    )
    move = np.sqrt(((after.means - theta.means) ** 2 / spread).mean(axis=1))
    alive = theta.weights * here.weight >= EMPTY
    return certify_ascent(
        f"mixture of {theta.k} Gaussians, {theta.kind} covariance: log-likelihood of "
        f"{here.weight:g} rows",
        trace=trace,
        bound=here.bound / here.weight,
        gain=gain,
        tol=tol,
        fall=max(FALL, tol) if problem.rules.reg else FALL,
        ends=ends,
        excused={event["step"] + 1 for event in events},
        facts={"largest move of a mean": float(move[alive].max(initial=0.0))},
        notes=notes,
    )


def _notes(
    best: Ascent[Gaussians, Any], rules: Rules, scale: Scale, events: list[dict[str, int]]
) -> tuple[str, ...]:
    """What a reader should know beside the numbers."""
    notes = []
    if low := rules.at_floor(best.theta):
        notes.append(
            f"{len(low)} component(s) have a direction in which their rows are alike, "
            f"as where a value repeats (first: {low[0]})"
        )
    if events:
        notes.append(f"{len(events)} empty component(s) were put back to use, see plan['revived']")
    empty = int(np.count_nonzero(best.statistics.counts < EMPTY * scale.weight / scale.rows))
    if empty:
        notes.append(f"{empty} component(s) are empty: fewer would do")
    if rules.reg:
        notes.append(
            f"reg_covar={rules.reg:g} is added to variances, so the bound may fall a "
            "little near the end"
        )
    if best.trace.reason is StopReason.MAX_ITER:
        notes.append("the iteration limit was reached first; raise max_iter")
    return tuple(notes)


@dataclass
class _ComponentReviver:
    """Moves a component that has become empty to a row of the sample that is explained badly."""

    sample: Sample
    rules: Rules
    rng: np.random.Generator
    scale: Scale
    events: list[dict[str, int]] = field(default_factory=list)

    def __call__(self, theta: Gaussians, s: Any, trace: Trace) -> Gaussians | None:
        row = self.scale.weight / self.scale.rows
        tried = [event["component"] for event in self.events]
        dead = [
            int(z) for z in np.flatnonzero(s.counts < EMPTY * row) if tried.count(int(z)) < REVIVALS
        ]
        if not dead or theta.k == 1:
            return None
        engine = self.sample.engine
        loglik = engine.get(engine.gaussian_posteriors(self.sample.placed, theta).loglik)
        worst = np.argsort(loglik, kind="stable")[: max(4 * len(dead), len(loglik) // 20)]
        chosen = self.rng.choice(worst, len(dead), replace=len(worst) < len(dead))
        means, weights = theta.means.copy(), theta.weights.copy()
        means[dead] = self.sample.filled[chosen]
        weights[dead] = max(row / self.scale.weight, 0.05 / theta.k)
        spread, loadings = theta.spread, theta.loadings
        alive = np.setdiff1d(np.arange(theta.k), dead)
        if self.rules.kind not in ("unit", "tied"):
            spread = spread.copy()
            spread[dead] = np.tensordot(
                theta.weights[alive] / theta.weights[alive].sum(), theta.spread[alive], axes=1
            )
        if loadings is not None:
            loadings = loadings.copy()
            loadings[dead] = loadings[alive[np.argmax(theta.weights[alive])]]
        self.events += [{"step": len(trace) - 1, "component": z} for z in dead]
        return replace(
            theta, weights=weights / weights.sum(), means=means, spread=spread, loadings=loadings
        )
