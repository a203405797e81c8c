"""Stepwise EM: statistics of batches merged into running ones, the components maximised after each.

    S <- (1 - r) S + r s(batch) / weight(batch),   r = (weight of the batch / weight of all
    seen)^0.7,   theta <- argmax from S

The power lets early rows, whose statistics were taken at early components, fade. The first rows, up
to a bounded number, are kept and fitted together, because components that start on a handful of
rows rarely recover. Reference: Cappe and Moulines (2009).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from eckart.certify.certificate import Certificate, Check
from eckart.engines.protocol import Engine, Placed
from eckart.explain.mixtures.gaussian_solve import (
    MixtureOptions,
    checked_scale,
    from_factors,
    rules_for,
    solve,
    to_factors,
    with_steps,
)
from eckart.explain.mixtures.gaussian_steps import GaussianProblem, free_parameters
from eckart.fit import Fit
from eckart.matrix import Dense, Matrix
from eckart.trace import StopReason, Trace

FADE = 0.7
"""Exponent of the step sizes: above 1/2 their noise dies out, up to 1 they reach any point (Cappe
and Moulines 2009)."""
KEPT = 1000
"""Batches whose log-likelihood the trace holds, the last ones: more than a chart shows."""
FIRST_BYTES = 2**25
"""Bytes of first rows that are kept, at most."""


def take(
    x: Matrix,
    options: MixtureOptions,
    weights: np.ndarray | None,
    before: Fit | None,
    state: dict[str, Any],
    *,
    engine: Engine,
    rng: np.random.Generator,
) -> tuple[Fit, dict[str, Any]]:
    """The fit and the state after one more batch; an empty state at first."""
    with engine.at_work():
        placed = engine.put(x, weights)
        if "running" in state:
            assert before is not None
            return _step(placed, options, before, state, engine)
        rows = np.concatenate([*state.get("rows", ()), engine.rows_at(placed)])
        w = np.concatenate(
            [
                *state.get("weights", ()),
                np.ones(len(rows) - _length(state)) if weights is None else weights,
            ]
        )
        columns = x.columns if before is None else before.factors.columns
        fit = solve(Dense(rows, None, columns), options, w, engine=engine, rng=rng)
        kept = engine.put(Dense(rows, None, columns), w)
        scale = with_steps(kept, checked_scale(kept, options, w, engine), options, w, engine)
        theta, rules = from_factors(fit.factors), rules_for(scale, options)
        found = engine.gaussian_statistics(kept, theta)
        batches = state.get("batches", 0) + 1
        new: dict[str, Any] = {"rules": rules, "batches": batches, "weight": found.weight}
        enough = max(1000, 50 * options.k, 5 * options.k * kept.shape[1])
        if len(rows) < min(enough, FIRST_BYTES // (8 * kept.shape[1])):
            new |= {"rows": [rows], "weights": [w]}
        else:
            new |= {"running": found.scaled(1.0 / found.weight)}
        trace = (
            Trace("log-likelihood of each batch", [], [], StopReason.MAX_ITER)
            if before is None
            else _copy(before.trace)
        )
        trace.add(found.bound / found.weight)
        return _fit(kept, new, theta, trace, fit.plan, options, (found, engine), columns), new


def _step(
    x: Placed, options: MixtureOptions, before: Fit, state: dict[str, Any], engine: Engine
) -> tuple[Fit, dict[str, Any]]:
    theta = from_factors(before.factors)
    found = engine.gaussian_statistics(x, theta)
    seen = state["weight"] + found.weight
    rate = (found.weight / seen) ** FADE
    running = state["running"].scaled(1.0 - rate).merge(found.scaled(rate / found.weight))
    state = state | {"running": running, "weight": seen, "batches": state["batches"] + 1}
    trace = _copy(before.trace)
    trace.add(found.bound / found.weight)
    theta = state["rules"].maximise(running)
    after = engine.gaussian_statistics(x, theta)
    return _fit(
        x, state, theta, trace, before.plan, options, (after, engine), before.factors.columns
    ), state


def _length(state: dict[str, Any]) -> int:
    return sum(len(part) for part in state.get("rows", ()))


def _copy(trace: Trace) -> Trace:
    """The trace so far, of its last batches: a stream has no end, a model file should have one."""
    return replace(trace, values=trace.values[-KEPT:], seconds=trace.seconds[-KEPT:])


def _fit(
    x: Placed,
    state: dict[str, Any],
    theta: Any,
    trace: Trace,
    plan: dict[str, Any],
    options: MixtureOptions,
    last: Any,
    columns: Any,
) -> Fit:
    found, engine = last
    problem = GaussianProblem(x, state["rules"], engine)
    gain = (problem.expect(problem.maximise(found)).bound - found.bound) / found.weight
    free = free_parameters(theta.kind, theta.k, theta.n, state["rules"].factors)
    check = Check(
        "fit of the last batch",
        gain,
        options.tol + free / found.weight,
        "what a step on the last batch alone would gain a row; chance allows about "
        "parameters / (2 rows)",
    )
    certificate = Certificate(
        f"mixture of {theta.k} Gaussians, {theta.kind} covariance, by batches",
        "statistical",
        (check,),
        {"bound": found.bound / found.weight, "batches": state["batches"], "rows": state["weight"]},
        ("bound and check are those of the last batch",),
    )
    more = {"batches": state["batches"], "weight": state["weight"], "rows": int(state["weight"])}
    return Fit(to_factors(theta, columns), certificate, trace, plan | more)
