"""From a matrix to a Fit: choose the solver, run it, put the answer in canonical form, certify
it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from eckart.certify.certificate import Certificate, Check
from eckart.certify.spectral import PROBE, SPARSE_PROBE, certify_rows, certify_subspace, mean_check
from eckart.decompositions import svd
from eckart.engines import available_memory
from eckart.engines.protocol import ROUGH, Engine
from eckart.errors import InputError
from eckart.factors import Basis, signs
from eckart.fit import Fit, on_data, plan_of
from eckart.io.models.checkpoint import NOTHING, Memory
from eckart.matrix import SQUARABLE, Dense, Matrix
from eckart.reduce import missing as gaps
from eckart.reduce import rank, spectral
from eckart.reduce.covariance import Covariance
from eckart.reduce.plan import (
    STATISTIC_COLUMNS,
    Plan,
    choose,
    em_plan,
    require_memory,
    validate_components,
)
from eckart.reduce.standardise import (
    Units,
    divided,
    in_words,
    lost,
    power_of_two,
    scale_of,
    unscaled,
)
from eckart.reduce.stream import sketch_covariance
from eckart.trace import Trace, Watcher, silent

FIRST_TRIED, MOST_TRIED = 8, 200
"""Components of the first and of the widest fit to rows with gaps by which an open number is
chosen."""
FEW_ROWS = 64
"""Rows up to which their products are the cheaper evidence: about as many as the directions that a
bound by random starts multiplies."""


@dataclass(frozen=True)
class SpectralOptions:
    """What a user may ask of PCA, resolved from the estimator's parameters."""

    k: Any = None
    centered: bool = True
    solver: str = "auto"
    tol: float = 0.0
    oversample: int = 10
    max_iter: int | None = None
    all_steps: bool = False
    scale: bool = False


def solve(
    x: Matrix,
    options: SpectralOptions,
    weights: np.ndarray | None,
    *,
    engine: Engine,
    rng: np.random.Generator,
    watch: Watcher = silent,
    memory: Memory = NOTHING,
) -> Fit:
    """PCA of x. NaN met on the way turns the problem into one with missing entries; entries too
    large or small to square are rescaled."""
    return solve_scaled(x, options, weights, engine=engine, rng=rng, watch=watch, memory=memory)[0]


def solve_scaled(
    x: Matrix,
    options: SpectralOptions,
    weights: np.ndarray | None,
    *,
    engine: Engine,
    rng: np.random.Generator,
    watch: Watcher = silent,
    memory: Memory = NOTHING,
) -> tuple[Fit, np.ndarray | None]:
    """The fit, and the standard deviations that columns were divided by before it (None without
    ``scale``): its factors are in these units."""
    validate_components(options.k, x.shape[0], x.shape[1])
    s = scale_of(x, weights, engine) if options.scale else None
    task = _Task(x if s is None else divided(x, s), options, weights, engine, rng, watch, memory)
    with engine.at_work():
        fit = on_data(engine, task.x, task.fit, weights)
    if s is not None:
        fit.plan.pop("units", None)
        fit.plan["standardised"] = scaled_in_words(s)
    return fit, s


def scaled_in_words(s: np.ndarray) -> str:
    """For the plan: what was done to the columns."""
    return f"columns were divided by their standard deviations, {s.min():.3g} to {s.max():.3g}"


@dataclass(frozen=True)
class _Task:
    """One call of ``solve``: the matrix for what its form tells (streams, files), and what was
    asked for."""

    x: Matrix
    options: SpectralOptions
    weights: np.ndarray | None
    engine: Engine
    rng: np.random.Generator
    watch: Watcher
    memory: Memory

    def fit(self, placed: Any) -> Fit:
        kind = "gaps" if placed.kind == "observed" else "complete"
        # a killed run that had met NaN left nothing of the pass in which it met it
        apart = {None: False, kind: False, "gaps": True}[self.memory.last()]
        task = replace(self, memory=NOTHING if apart else self.memory.inner(kind))
        if kind == "complete":
            return _solve_complete(task, placed)
        low, high = SQUARABLE[self.x.dtype]
        if low <= self.engine.largest(placed) <= high:
            return _solve_gaps(task, placed)
        factor = power_of_two(self.x, placed, self.engine)
        fit = _solve_gaps(task, self.engine.scaled(placed, factor))
        return fit if factor == 1.0 else unscaled(fit, factor, self.x)


def _solve_complete(task: _Task, placed: Any) -> Fit:
    x, options, engine = task.x, task.options, task.engine
    plan = choose(x, options.k, options.solver)
    if plan.solver in ("eigh", "svd", "gradient"):
        require_memory(plan, available_memory())
    failed = None
    try:
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            c, spectrum = _run(task, placed, plan)
    except np.linalg.LinAlgError as error:  # a small matrix that overflowed
        failed = error
    if failed or lost(c.total, x):
        factor = power_of_two(x, placed, engine)
        if factor != 1.0:
            again = replace(task, memory=NOTHING)  # the state is that of the data as they came
            return unscaled(_solve_complete(again, engine.scaled(placed, factor)), factor, x)
        if failed:
            raise failed
    turn = signs(spectrum.components)
    basis = to_basis(c, spectrum, x.columns, turn)
    known = (
        None
        if spectrum.images is None
        else [engine.outer(a, np.diag(turn)) for a in spectrum.images]
    )
    certificate = certify(c, basis, spectrum.tol, task.rng, spectrum.notes, known)
    described = asdict(plan) | plan_of(engine) | {"k": basis.k, "tol": spectrum.tol}
    spread = None if placed.kind == "counts" else c.deviations  # counts have one unit
    return with_units(Fit(basis, certificate, spectrum.trace, described), spread, c.mean)


def with_units(fit: Fit, deviations: np.ndarray | None, mean: np.ndarray) -> Fit:
    """The fit with the standard deviations of columns in its plan, and with a note where they are
    far apart."""
    b = fit.factors
    found = (
        None
        if deviations is None
        else Units.of(deviations, mean, float(np.finfo(b.mean.dtype).eps))
    )
    if found is None:
        return fit
    units = found.plan(b.columns)
    notes = (*fit.certificate.notes, in_words(units)) if found.differ else fit.certificate.notes
    return replace(
        fit, certificate=replace(fit.certificate, notes=notes), plan=fit.plan | {"units": units}
    )


def _run(task: _Task, placed: Any, plan: Plan) -> tuple[Covariance, spectral.Spectrum]:
    x, options, engine, rng, watch = task.x, task.options, task.engine, task.rng, task.watch
    k, centered = options.k, options.centered
    if plan.solver == "svd":
        spectrum, c = spectral.solve_svd(engine, placed, k, centered)
        return c, spectrum
    stream = isinstance(x, Dense) and not x.in_memory
    if (
        plan.solver == "randomized"
        and isinstance(x, Dense)
        and not x.in_memory
        and not x.stream.rereadable
    ):
        return sketch_covariance(placed, k, centered, engine, watch)
    short = x.shape[0] is not None and x.shape[0] < x.shape[1] and not stream
    statistic = (
        plan.solver == "gradient"
        or (plan.solver == "eigh" and not short)
        or (plan.solver == "power" and x.shape[1] <= STATISTIC_COLUMNS)
    )
    if statistic:
        c = Covariance.by_statistic(engine, placed, centered, rng, watch, task.memory.keeper())
        validate_components(k, c.rows, c.n)
        if _unusable(c):
            return c, _empty(c)
        if plan.solver == "eigh":
            return c, spectral.solve_eigh(c, k)
        if plan.solver == "power":
            return c, spectral.solve_power(
                c, _fixed(k, c), options.tol, options.max_iter, rng, watch
            )
        return c, spectral.solve_gradient(
            c, _fixed(k, c), options.tol, options.max_iter, rng, watch
        )
    c = Covariance.by_products(engine, placed, centered, task.weights, watch)
    validate_components(k, c.rows, c.n)
    if _unusable(c):
        return c, _empty(c)
    if plan.solver == "eigh":
        return c, spectral.solve_rows(c, k)
    if plan.solver == "power":
        return c, spectral.solve_power(
            c, _fixed(k, c), options.tol, options.max_iter, rng, watch, task.memory
        )
    return c, spectral.solve_krylov(
        c,
        k,
        lanczos=plan.solver == "lanczos",
        tol=options.tol,
        oversample=options.oversample,
        max_steps=options.max_iter,
        all_steps=options.all_steps,
        rng=rng,
        watch=watch,
        memory=task.memory,
    )


def _fixed(k: Any, c: Covariance) -> int:
    """Solvers that work component by component need a number."""
    if k is None:
        return min(c.rows, c.n)
    if not isinstance(k, (int, np.integer)):
        raise InputError(
            f"n_components must be an int for this solver, got {k!r}. Use svd_solver='auto'."
        )
    return int(k)


def to_basis(
    c: Covariance, s: spectral.Spectrum, columns: np.ndarray | None, turn: np.ndarray | None = None
) -> Basis:
    """Rows of components with signs fixed (``turn``, where they are known), and what they leave
    out."""
    dtype = c.dtype
    turn = signs(s.components) if turn is None else turn
    components = s.components * turn[:, None].astype(s.components.dtype)
    k = len(components)
    left = max(c.total - float(s.values.sum()), 0.0)
    degrees = c.weight - 1 if c.weight > 1 else c.weight
    others = min(c.rows, c.n) - k
    if s.all_values is not None and len(s.all_values) >= min(c.rows, c.n):
        left = float(s.all_values[k:].sum())
    noise = left / others * c.weight / degrees if others > 0 else 0.0
    return Basis(
        c.mean.astype(dtype),
        np.ascontiguousarray(components, dtype=dtype),
        s.values * c.weight,
        c.total * c.weight,
        noise,
        c.weight,
        c.rows,
        c.centered,
        _tail_shape(c, s, left),
        columns,
    )


def _tail_shape(c: Covariance, s: spectral.Spectrum, left: float) -> float | None:
    """sum(l^2) / sum(l)^2 of the eigenvalues left out: exact where the spectrum or the matrix is
    known."""
    if left <= 1e-12 * c.total or not 1e-150 < left < 1e150:  # its square leaves the range
        return None
    if s.all_values is not None:
        square = float(np.sum(s.all_values[len(s.values) :] ** 2))
    elif c.matrix is not None:
        square = float(np.vdot(c.matrix, c.matrix) - np.sum(s.values**2))
    else:
        return None
    return float(np.clip(square / left**2, 1.0 / c.n, 1.0))


def certify(
    c: Covariance,
    basis: Basis,
    tol: float,
    rng: np.random.Generator,
    notes: dict[str, Any] | None = None,
    known: Any = None,
) -> Certificate:
    """The certificate of a basis for a covariance, with the check of the statistic where it
    replaced the data. ``known`` are these components V as columns and C V, inside the engine, where
    they are."""
    extra: tuple[Check, ...] = ()
    if c.centered:
        extra = (
            mean_check(
                basis.mean, c.mean, np.sqrt(max(c.total, c.rounding, np.finfo(float).tiny)), c.dtype
            ),
        )
    words: tuple[str, ...] = ()
    if c.statistic is not None:
        eps = float(np.finfo(c.dtype).eps)
        image = c.engine.outer(c.statistic.scatter, c.statistic.probe[:, None])[:, 0]
        extra = (
            *extra,
            Check(
                "statistic agrees with data",
                c.statistic.probe_error(c.rounding * c.weight, image),
                30 * eps * np.sqrt(c.n),
                "covariance times a random vector, against the same product taken through the data",
            ),
        )
        words = ("measured on the covariance, a sufficient statistic of the data",)
    if notes and "error" in notes:
        extra = (*extra, notes["error"])
    if notes and "sketch" in notes:
        words = (*words, notes["sketch"])
    judged: dict[str, Any] = {"tol": tol, "floor": c.rounding, "notes": words, "extra": extra}
    if c.gram is not None or _few_rows(c):
        return certify_rows(
            c.rows_gram(),
            c.times,
            c.times_t,
            basis.components,
            basis.scatter / basis.weight,
            c.total,
            **judged,
        )
    return certify_subspace(
        c.image
        if c.matrix is not None or c.data is None
        else lambda v: c.product(v) if isinstance(v, np.ndarray) else c.inside(v),
        basis.components,
        basis.scatter / basis.weight,
        c.total,
        rng=rng,
        held=None if c.matrix is None else (c.engine, c.matrix),
        engine=c.engine if c.data is not None else None,
        probe=SPARSE_PROBE if c.data is not None and c.data.kind == "counts" else PROBE,
        known=known,
        rough=(lambda v: c.inside(v, rough=True), ROUGH)
        if tol >= spectral.ROUGH_TOL and c.data is not None and c.data.kind == "dense"
        else None,
        **judged,
    )


def _few_rows(c: Covariance) -> bool:
    """Whether the products of rows with each other cost less than random directions of all
    columns."""
    rows = getattr(c.data, "matrix", None)
    return (
        c.matrix is None
        and isinstance(rows, Dense)
        and rows.in_memory
        and len(rows.array) <= min(FEW_ROWS, c.n - 1)
    )


def _solve_gaps(task: _Task, x: Any) -> Fit:
    options, engine, weights = task.options, task.engine, task.weights
    if not options.centered:
        raise InputError(
            "center must be True with missing entries, got False: without a mean, an absent "
            "entry would be read as zero"
        )
    seen = engine.seen_columns(x)
    gaps.check_observed(x, seen)
    rows, n = x.shape
    most = min(rows, n)
    weight = float(rows) if weights is None else float(weights.sum())
    tol, limit = options.tol or 1e-7, options.max_iter or 2000
    how: dict[str, Any] = {
        "engine": engine,
        "rng": task.rng,
        "tol": tol,
        "max_iter": limit,
        "watch": task.watch,
    }
    k = options.k
    if k is None:
        k = most
    elif k == "mle":
        raise InputError(
            "n_components must be an int, a share or 'auto' with missing entries, got 'mle'"
        )
    elif not isinstance(k, (int, np.integer)):
        k = _open_k(
            task, x, weight, how | {"tol": 100 * tol}
        )  # where the spectrum falls shows long before its last digits
    g, trace = gaps.fit_gaussian(
        x, min(int(k), n - 1), weight, **how, memory=task.memory.inner((0, int(k)))
    )
    basis = gaps.to_basis(g, int(k), weight, x)
    empty = int(np.count_nonzero(x.counts == 0))
    notes = (
        (f"{empty} rows have no observed entry; they say nothing and get the mean",)
        if empty
        else ()
    )
    certificate = gaps.certificate_of(x, basis, engine=engine, trace=trace, notes=notes)
    described = (
        asdict(em_plan(x, int(k), options.solver))
        | plan_of(engine)
        | {"k": basis.k, "tol": tol, "gaps": rows * n - x.nnz}
    )
    return with_units(
        Fit(basis, certificate, trace, described), np.sqrt(seen.square / seen.seen), seen.mean
    )


def _open_k(task: _Task, x: Any, weight: float, how: dict[str, Any]) -> int:
    """A share or "auto" as a number, from fits to the observed entries of which each has twice the
    components of the one before.

    A fit of few components spreads what they leave evenly over the others. A share is answered by
    the first fit of which it takes half of the components at the most; "auto" needs the median of
    the spectrum, which half of all components show: all of them would fit the noise away, at eight
    times the work.
    """
    k, (rows, n) = task.options.k, x.shape
    limit = min(n - 1, rows, MOST_TRIED)
    width, known = task.memory.last() or (FIRST_TRIED if isinstance(k, float) else n // 2 + 1, None)
    while known is None:
        width = min(width, limit)
        g, _ = gaps.fit_gaussian(x, width, weight, **how, memory=task.memory.inner((width, None)))
        values = np.concatenate([svd(g.w, compute_uv=False) ** 2, np.zeros(n)])[:n] + g.s2
        if isinstance(k, float):
            found = rank.by_share(values, float(values.sum()), k)
            known = found if 2 * found <= width or width == limit else None
        else:
            known = rank.gavish_donoho(values[: min(rows, n)], rows, n)
        width *= 2
    return known


def _unusable(c: Covariance) -> bool:
    return not np.isfinite(c.total)


def _empty(c: Covariance) -> spectral.Spectrum:
    return spectral.Spectrum(np.zeros(0), np.zeros((0, c.n)), Trace("none"), 1.0)
