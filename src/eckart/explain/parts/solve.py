"""One fit of A ~ W H, from the placed matrix to a Fit: start, sweeps, clean zeros, certificate.
Several starts: the best of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from eckart.certify.nonnegative import certify_parts, with_trace
from eckart.engines.protocol import BetaRule, Engine, KlRule, Placed, Tall
from eckart.errors import invalid
from eckart.explain.parts.loop import alternate, projected
from eckart.explain.parts.options import NmfOptions
from eckart.explain.parts.sides import STEPS, FactorSides, Penalties, sides_of
from eckart.explain.parts.start import Start, begin, compressed, sketch, worthwhile
from eckart.factors import LowRank
from eckart.fit import Fit, kept_fit, resumed_fit
from eckart.fit import plan_of as engine_plan
from eckart.io.models.checkpoint import NOTHING, Memory
from eckart.trace import StopReason, Watcher, silent

CLEAN = 1e-8
"""Shares below this become zeros at the end of a fit under the divergence, whose steps approach
zero and never reach it."""
STEP = 1e-4
"""Steps of codes, as shares of them, that need not be followed while H still moves."""
JUDGES = 500
"""Rows, evenly spaced, whose largest components tell whether restarts agree."""


class Ends(NamedTuple):
    """Where the starts ended: the best Fit and its number, the objective of each, H^T of each, and
    the largest component of some rows in each."""

    fit: Fit
    best: int
    values: list[float]
    rights: list[np.ndarray]
    largest: list[np.ndarray]


def solve(
    x: Placed,
    options: NmfOptions,
    *,
    engine: Engine,
    rng: np.random.Generator,
    given: tuple[np.ndarray, np.ndarray] | None = None,
    watch: Watcher = silent,
    memory: Memory = NOTHING,
) -> Ends:
    """Fit ``options.n_init`` times, the first from ``options.init``, the others from random
    starts."""
    if options.solver == "als" and x.kind == "observed":
        raise invalid("solver", "als", "'hals' for data with missing entries")
    sides = sides_of(x, options, engine)
    fits = [resumed_fit(kept, LowRank, x.rows, x.columns) for kept in memory.last() or ()]
    for run in range(len(fits), options.n_init):

        def start(run: int = run) -> Start:
            if given and run == 0:
                return Start(*(engine.take(f, x.dtype) for f in given))
            return begin(sides, options.k, options.init if run == 0 else "random", rng)

        inner = memory.inner(lambda: [kept_fit(fit) for fit in fits])
        try:
            fits.append(_one(sides, start, options, rng, watch, inner))
        except KeyboardInterrupt:
            if not fits:
                raise
            break  # the starts that came to their end are kept
        if fits[-1].trace.reason is StopReason.INTERRUPTED:
            break
    values = [float(fit.certificate["objective"]) for fit in fits]
    some = np.unique(
        np.linspace(0, sides.totals.rows - 1, min(sides.totals.rows, JUDGES)).astype(int)
    )
    largest = [fit.factors.left[some].argmax(axis=1) for fit in fits]
    # an objective is a difference of sums of this size, known to a few roundings of it: of starts
    # that end as low, the first is taken, whatever form the data have (a matrix of exact rank has
    # many factorizations without an error)
    same = 10 * float(np.finfo(x.dtype).eps) * sides.scale
    best = int(np.argmax(np.asarray(values) <= min(values) + same))
    return Ends(fits[best], best, values, [fit.factors.right for fit in fits], largest)


def _one(
    sides: FactorSides,
    start_factors: Callable[[], Start],
    options: NmfOptions,
    rng: np.random.Generator,
    watch: Watcher,
    memory: Memory,
) -> Fit:
    """A fit from a start; one that goes on from a checkpoint needs neither the start nor the sweeps
    on its sketch, only what was said of them."""
    engine, (notes, on_data) = sides.engine, memory.last() or ({}, False)
    start = (
        start_factors()
        if not on_data
        else Start(
            engine.take(np.zeros((1, 1), sides.x.dtype)),
            engine.take(np.zeros((1, 1), sides.x.dtype)),
        )
    )
    left, right = start.left, start.right
    if options.solver == "hals" and worthwhile(sides, options.k) and not on_data:
        start = start if start.sketch else start._replace(sketch=sketch(sides, options.k, rng))
        left, right, extra = compressed(sides, start, options.tol)
        size = start.sketch[0].shape[1]  # type: ignore[index]
        notes = {
            "sketch": f"{extra} sweeps on a sketch of {size} columns first: they cost little there"
        }
    del start  # its arrays have as many rows as the data
    how: dict[str, Any] = {
        "tol": options.tol,
        "max_iter": options.max_iter,
        "watch": watch,
        "memory": memory.inner((notes, True)),
    }
    if options.solver == "als":
        state, trace = projected(sides, left, right, **how)
    else:
        careful = options.solver in ("hals", "mm")
        state, trace = alternate(
            sides, left, right, fast=options.solver == "mm", leap=careful, **how
        )
    left, right = state.left, state.right
    if _tidy(options):
        masses = [engine.factor_mass(f) for f in (right, left)]
        left, right = (engine.cleaned(f, mass, CLEAN) for f, mass in zip((left, right), masses))
    if options.solver in ("hals", "mm") and trace.reason is not StopReason.INTERRUPTED:
        # rows to their optimum: F can only fall
        left = encode(sides.x, right, options, engine, left)
    measured = sides.measured(left, right)
    certificate = certify_parts(measured, trace, _notes(options.penalties))
    if options.solver != "als":
        trace.add(measured.objective)
        certificate = with_trace(certificate, measured, trace)
    plan = plan_of(engine, options, state.sweeps) | notes
    w, h = (np.ascontiguousarray(engine.get(f)) for f in (left, right))
    return Fit(LowRank(w, h, rows=sides.x.rows, columns=sides.x.columns), certificate, trace, plan)


def _tidy(options: NmfOptions) -> bool:
    """Whether small shares may become zeros: for beta < 1 an entry > 0 is infinitely far from 0."""
    return options.beta >= 1 and (options.loss != "frobenius" or options.solver == "mu")


def plan_of(engine: Engine, options: NmfOptions, sweeps: int) -> dict[str, Any]:
    """What was chosen, for the Fit."""
    return {
        **engine_plan(engine),
        "solver": options.solver,
        "loss": options.loss if options.loss != "beta" else f"beta {options.beta:g}",
        "sweeps": sweeps,
        "tol": options.tol,
    }


def _notes(p: Penalties) -> tuple[str, ...]:
    if any(p.left) != any(p.right):
        free = "H" if any(p.left) else "W"
        return (
            f"{free} is not penalised: it can grow and let the penalised factor shrink, "
            "so the penalty can be made as small as one likes",
        )
    return ()


def encode(
    x: Placed,
    right: Tall,
    options: NmfOptions,
    engine: Engine,
    start: Tall | None = None,
    tol: float = STEP,
) -> Tall:
    """W for given H: every row's convex problem, from the same start for every row to rounding, or
    from ``start`` until steps are shorter than ``tol``."""
    (l1, l2), fine = options.penalties.left, float(np.finfo(x.dtype).eps)
    shape, many = (x.shape[0] or 0, right.shape[1]), 20 if tol == STEP else 2000
    if options.loss == "kl":
        mass = engine.factor_mass(right)
        rule, steps = KlRule(l1, l2, tol < STEP, tol, False), many
        if (
            start is None
            # the same share of every row for every component; the size of a start does not matter
            # to a step
        ):
            each = engine.get(mass)
            even = np.divide(1.0, each, out=np.zeros_like(each), where=each > 0)
            start = engine.take(np.broadcast_to(even, shape), x.dtype)
            start = engine.kl_rows(
                x, right, start, rule._replace(fast=False), mass, steps=10
            ).factor
            rule, steps = rule._replace(fast=True, tol=4 * fine), 2000
        found = engine.kl_rows(x, right, start, rule, mass, steps=steps).factor
        return engine.cleaned(found, mass, CLEAN)
    if options.loss == "beta":
        return _encode_beta(x, right, options, engine, start, tol)
    how: dict[str, Any] = (
        {"sweeps": 2000, "shrink": fine**2} if start is None else {"sweeps": many, "shrink": tol**2}
    )
    start = engine.take(np.broadcast_to(x.dtype.type(0), shape)) if start is None else start
    if x.kind == "observed":
        return engine.hals_seen(x, right, start, l1=l1, l2=l2, **how).factor
    pull = engine.times(x, right, None)
    gram = engine.factor_sums(right).square + l2 * np.eye(shape[1])
    return engine.hals_rows(gram, pull, start, l1, **how).factor


def _encode_beta(
    x: Placed, right: Tall, options: NmfOptions, engine: Engine, start: Tall | None, tol: float
) -> Tall:
    """The same under a beta-divergence: plain steps, and for new rows over-relaxed ones until
    nothing moves."""
    rule, mass = (
        BetaRule(options.beta, *options.penalties.left, tol=tol, fast=tol < STEP),
        engine.factor_mass(right),
    )
    if start is not None:
        found = engine.beta_rows(
            x, right, start, rule, mass, steps=STEPS if tol == STEP else 2000
        ).factor
    else:  # a row of zeros begins at equal shares
        start = engine.take(np.broadcast_to(x.dtype.type(0), (x.shape[0] or 0, right.shape[1])))
        start_factors = engine.beta_rows(
            x, right, start, rule._replace(tol=0.0, fast=False), mass, steps=50
        ).factor
        fast = rule._replace(fast=True, tol=4 * float(np.finfo(x.dtype).eps))
        found = engine.beta_rows(x, right, start_factors, fast, mass, steps=2000).factor
    return engine.cleaned(found, mass, CLEAN) if _tidy(options) else found
