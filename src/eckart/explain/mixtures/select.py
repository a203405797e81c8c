"""How many components, and with which covariances? One table of criteria, what each would choose,
and whether they and the starts agree.

    BIC = -2 log L + p log N        AIC = -2 log L + 2 p        held out: mean log-likelihood of
    rows that were given no weight in the fit

Every model starts from seeds in scaled and in whitened units; where the two would lead to different
choices, a note says so.

The likelihood of a component with a covariance of its own has no upper bound once it has no more
rows than columns: its covariance is singular, and a criterion that weighs likelihood against
parameters would end with a component for every few rows. Of the starts of a model such an end is
taken only where all end so; it is in the table then and is not chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eckart.arguments import held
from eckart.engines import engine_named
from eckart.engines.protocol import Engine
from eckart.errors import InputError, invalid
from eckart.explain.mixtures.gaussian_solve import (
    MixtureOptions,
    checked_scale,
    from_factors,
    has_rows_enough,
    solve,
)
from eckart.explain.mixtures.gaussian_steps import free_parameters, scale_of
from eckart.explain.mixtures.verbs import readable_twice
from eckart.factors import Components
from eckart.fit import Fit, kept_fit, resumed_fit, sample_weights
from eckart.io.models.checkpoint import NOTHING, Checkpoint, Memory, resumed
from eckart.io.read import read
from eckart.matrix import Matrix
from eckart.trace import StopReason, Watcher, progress, silent

CRITERIA = ("bic", "aic", "held_out")
RUNGS = (1, 2, 3, 4, 6, 8, 11, 15, 20, 27, 36, 48)
"""Numbers of components that are tried in turn: beyond four about a third apart, since what lies
between is tried near the best of them."""
PATIENCE, MOST = 3, RUNGS[-1]
"""Further k that are tried after the best, since the BIC is not convex in k; and the largest k."""
ANY = "any"
"""The kind of covariance that stands for all that a search goes through."""
BUDGET = 2e9
"""Multiply-adds of EM steps for each kind of covariance: some two seconds of one processor, and the
first three k in any case."""
SKEWED = 2.0
"""Skewness of an exponential: amounts beyond it are closer to lognormal, whose tail a Gaussian does
not follow."""
TAIL_ROWS = 4096
"""Rows in which long tails are looked for: the standard error of a skewness near two is 0.12
(exponential) to 0.21 (log-normal) there."""


@dataclass(frozen=True, eq=False)
class MixtureSelection:
    """``table``: a row for each model tried; ``choices``: (k, covariance type) by criterion;
    ``model``: the one chosen, fitted to all rows."""

    table: dict[str, list[Any]]
    choices: dict[str, tuple[int, str]]
    model: Any
    notes: tuple[str, ...] = ()

    @property
    def agree(self) -> bool:
        """Whether all criteria choose the same model."""
        return len(set(self.choices.values())) <= 1

    def __str__(self) -> str:
        names = list(self.table)
        lines = ["  ".join(f"{name:>16}" for name in names)]
        for cells in zip(*self.table.values()):
            lines.append(
                "  ".join(f"{c if isinstance(c, str) else format(c, '.6g'):>16}" for c in cells)
            )
        lines.append(
            "chosen: " + ", ".join(f"{name} {k} {kind}" for name, (k, kind) in self.choices.items())
        )
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


@held
def select_mixture(
    X: Any,
    n_components: Sequence[int] = tuple(range(1, 11)),
    covariance_types: Sequence[str] = ("spherical", "diag", "tied", "full"),
    *,
    criterion: str = "bic",
    held_out: float = 0.2,
    sample_weight: Any = None,
    random_state: Any = None,
    engine: Any = "auto",
    n_threads: int | None = None,
    verbose: bool = False,
    checkpoint: Any = None,
    **params: Any,
) -> MixtureSelection:
    """Gaussian mixtures over k and covariance types, judged by BIC, AIC and rows held out.

    Parameters
    ----------
    X : anything that ``GaussianMixture.fit`` takes
    n_components, covariance_types : what is tried
    criterion : "bic", "aic" or "held_out": by which the returned model is chosen; "held_out" fits
        every model a second time
    held_out : share of the rows that get no weight in that second fit
    engine, n_threads, verbose : which engine ("auto", "cpu", "numpy"); most threads; progress bars
    checkpoint : file in which the state is kept every few seconds; the same call resumes from it
        after a crash, with the same bits
    **params : other parameters of ``GaussianMixture``

    >>> rng = np.random.default_rng(0)
    >>> x = np.concatenate([rng.standard_normal((150, 2)) + [6 * i, 0] for i in range(3)])
    >>> s = select_mixture(x, (1, 2, 3, 4), ("spherical", "full"), random_state=0)
    >>> s.choices["bic"], s.model.n_components_
    ((3, 'spherical'), 3)
    """
    from eckart.explain.mixtures.gaussian import GaussianMixture

    if criterion not in CRITERIA:
        raise invalid("criterion", criterion, ", ".join(map(repr, CRITERIA)))
    if not 0 < held_out < 1:
        raise invalid("held_out", held_out, "a share between 0 and 1")
    if not len(n_components) or not len(covariance_types):
        raise InputError(
            "n_components and covariance_types must have at least one value each, got none"
        )
    matrix = readable_twice(read(X))
    weights = sample_weights(sample_weight, matrix.shape[0])
    chosen_engine = engine_named(engine, n_threads)
    params = {"n_init": 2} | params
    table: dict[str, list[Any]] = {
        name: [] for name in _COLUMNS if name != "held out" or criterion == "held_out"
    }
    models: list[tuple[int, Any]] = [
        (int(k), kind) for kind in covariance_types for k in n_components
    ]
    about = {
        "models": models,
        "criterion": criterion,
        "held_out": held_out,
        "engine": engine,
        "random_state": random_state,
        **params,
    }
    file = Checkpoint.of_call(checkpoint, "select_mixture", matrix, about, weights)
    with progress(verbose) as watch, resumed(file, random_state) as (memory, rng):
        split = (
            _split(matrix, weights, held_out, rng, chosen_engine)
            if criterion == "held_out"
            else None
        )
        kept = memory.last() or {"fits": [], "held out": []}
        fits, judged = (
            [resumed_fit(one, Components, None, matrix.columns) for one in kept["fits"]],
            list(kept["held out"]),
        )
        for fit, value in zip(fits, judged):
            _add(table, fit, value)
        for k, kind in models[len(judged) :]:
            model = GaussianMixture(k, covariance_type=kind, n_threads=n_threads, **params)
            options = replace(model._options(matrix.shape[1]), bounded=True)
            if len(fits) == len(judged):  # a killed run may have left the fit without its judgement
                inner = memory.inner(
                    lambda: {"fits": [kept_fit(fit) for fit in fits], "held out": judged}
                )
                fits.append(
                    solve(matrix, options, weights, engine=chosen_engine, rng=rng, memory=inner)
                )
            inner = memory.inner(
                lambda: {"fits": [kept_fit(fit) for fit in fits], "held out": judged}
            )
            judged.append(
                _judged(matrix, options, split, chosen_engine, rng, inner) if split else None
            )
            _add(table, fits[-1], judged[-1])
            watch("mixtures", len(judged), len(models))
    memory.end()
    choices = {
        name: models[
            _best(fits, table[column] if name != "held_out" else -np.asarray(table[column]))
        ]
        for name, column in (("bic", "BIC"), ("aic", "AIC"), ("held_out", "held out"))
        if column in table
    }
    best = models.index(choices[criterion])
    chosen = GaussianMixture(
        models[best][0],
        covariance_type=models[best][1],
        random_state=random_state,
        engine=engine,
        n_threads=n_threads,
        **params,
    )
    chosen.fit_ = fits[best]
    return MixtureSelection(table, choices, chosen, _disagreements(models, fits, table))


_COLUMNS = ("k", "covariance", "parameters", "log-likelihood", "BIC", "AIC", "held out", "steps")


def grow(
    x: Matrix,
    options: MixtureOptions,
    weights: np.ndarray | None,
    *,
    engine: Engine,
    rng: np.random.Generator,
    watch: Watcher = silent,
    memory: Memory = NOTHING,
) -> Fit:
    """k = 1, 2, ... until the BIC has not improved for three of them, for one kind of covariance or
    for each, the cheapest first: the fit of least BIC, with the table in its plan."""
    placed, n = engine.put(x, weights), x.shape[1]
    kinds = (options.kind,) if options.kind != ANY else _forms(n, options.factors)
    rows = checked_scale(placed, replace(options, k=1, kind=kinds[0]), weights, engine).rows
    options = replace(options, n_init=max(options.n_init, 2), bounded=True)
    budget = BUDGET if len(kinds) > 1 else np.inf
    table: dict[str, list[Any]] = {name: [] for name in _COLUMNS if name != "held out"}
    fits = [resumed_fit(kept, Components, None, x.columns) for kept in memory.last() or ()]
    for fit in fits:
        _add(table, fit, None)
    short: list[str] = []
    for kind in kinds:
        while True:
            own = [i for i, tried in enumerate(table["covariance"]) if tried == kind]
            steps = sum(table["k"][i] * (table["steps"][i] + 1) for i in own)
            spent = options.n_init * steps * rows * _work(kind, n, options.factors)
            bic = np.array([table["BIC"][i] for i in own])
            k = _next(
                [table["k"][i] for i in own],
                _best([fits[i] for i in own], bic) if own else 0,
                min(MOST, rows),
            )
            if k is not None and spent > budget and len(own) >= PATIENCE:
                short, k = [*short, kind], None
            if k is None or (fits and fits[-1].trace.reason is StopReason.INTERRUPTED):
                break
            inner = memory.inner(lambda: [kept_fit(fit) for fit in fits])
            more = replace(options, k=k, kind=kind)
            fits.append(solve(x, more, weights, engine=engine, rng=rng, watch=watch, memory=inner))
            _add(table, fits[-1], None)
    best = fits[_best(fits, table["BIC"])]
    if fits[-1].trace.reason is StopReason.INTERRUPTED:
        best = replace(best, trace=replace(best.trace, reason=StopReason.INTERRUPTED))
    models = list(zip(table["k"], table["covariance"]))
    usable = np.arange(rows) if weights is None else np.flatnonzero(weights)
    some = engine.rows_at(
        placed, usable[np.unique(np.linspace(0, rows - 1, min(rows, TAIL_ROWS)).astype(np.int64))]
    )
    notes = (*_disagreements(models, fits, table), *_tails(some, x.columns, best.factors.k))
    if short:
        notes = (
            *notes,
            f"the search of {', '.join(short)} covariances ended with its budget: name "
            "one (covariance_type=) for all of its k",
        )
    words = (
        f"BIC over k = 1 to {max(table['k'])}, "
        f"{' and '.join(kinds) if len(kinds) < 3 else ', '.join(kinds)} covariances"
    )
    plan = best.plan | {"chosen by": words, "table": table}
    if len(kinds) > 1:
        plan |= {
            "budget": f"{budget:g} multiply-adds for each kind of covariance",
            "ended by the budget": short,
        }
    certificate = replace(best.certificate, notes=(*best.certificate.notes, *notes))
    return Fit(best.factors, certificate, best.trace, plan)


def _forms(n: int, factors: int) -> tuple[str, ...]:
    """The kinds of covariances that are searched, the cheapest first; some directions only where
    that saves numbers."""
    factor = free_parameters("factor", 1, n, min(factors, n)) < free_parameters("full", 1, n, 0)
    return (
        ("spherical", "diag", "tied", *(("factor",) if factor else ()), "full")
        if n > 1
        else ("tied", "full")
    )


def _work(kind: str, n: int, factors: int) -> float:
    """Multiply-adds of one EM step for a row and a component, some of them for its share."""
    return 16.0 + {"full": n * n, "factor": 4 * n * (factors + 1)}.get(kind, 2 * n)


def _next(tried: list[int], best: int, most: int) -> int | None:
    """The k to try next: the next rung while one of the last three was the best, then between the
    best and its neighbours, each a twelfth of it at most."""
    last = max(tried, default=0)
    if not tried or (
        last < most and sum(k > tried[best] for k in tried) < PATIENCE and last in (0, *RUNGS)
    ):
        return min(next((k for k in RUNGS if k > last), most), most)
    k = tried[best]
    below, above = (
        max((j for j in tried if j < k), default=k),
        min((j for j in tried if j > k), default=k),
    )
    gap = max(k - below, above - k)
    if gap <= max(1, k // 12):
        return None
    return (below + k) // 2 if k - below == gap else (k + above + 1) // 2


def _tails(rows: np.ndarray, columns: np.ndarray | None, k: int) -> tuple[str, ...]:
    """Columns of amounts whose long tail several components may serve: what to do about it."""
    if k == 1:
        return ()
    seen = np.isfinite(rows)
    count = np.maximum(seen.sum(axis=0), 1)
    apart = np.where(seen, rows - np.where(seen, rows, 0.0).sum(axis=0) / count, 0.0)
    variance = (apart**2).sum(axis=0) / count
    skewness = (apart**3).sum(axis=0) / count / np.where(variance > 0, variance, 1.0) ** 1.5
    amounts = np.where(seen, rows, 0.0).min(axis=0) >= 0
    found = [
        j if columns is None else columns[j] for j in np.flatnonzero(amounts & (skewness > SKEWED))
    ]
    if not found:
        return ()
    shown = ", ".join(map(repr, found[:4])) + (
        f" and {len(found) - 4} more" if len(found) > 4 else ""
    )
    one = len(found) == 1
    return (
        f"column{'' if one else 's'} {shown} {'has' if one else 'have'} a long tail, "
        "which several components may share though it is one group: take "
        f"{'its' if one else 'their'} logarithm{'' if one else 's'} (of 1 + x where "
        "there are zeros) and see whether fewer do",
    )


def _best(fits: list[Fit], criterion: Any) -> int:
    """Which fit has the least criterion, of those in which every component has more rows than its
    covariance needs; one component always counts."""
    bounded = [has_rows_enough(from_factors(fit.factors), fit.plan["weight"]) for fit in fits]
    return int(np.argmin(np.where(bounded if any(bounded) else True, criterion, np.inf)))


def _free(fit: Fit) -> int:
    theta = from_factors(fit.factors)
    return free_parameters(
        theta.kind, theta.k, theta.n, 0 if theta.loadings is None else theta.loadings.shape[2]
    )


def _add(table: dict[str, list[Any]], fit: Fit, judged: float | None) -> None:
    p, weight, bound = _free(fit), fit.plan["weight"], fit.certificate["bound"]
    row = {
        "k": fit.factors.k,
        "covariance": fit.plan["covariance"],
        "parameters": p,
        "log-likelihood": bound,
        "BIC": -2 * bound * weight + p * float(np.log(weight)),
        "AIC": -2 * bound * weight + 2 * p,
        "held out": judged,
        "steps": len(fit.trace) - 1,
    }
    for name in table:
        table[name].append(row[name])


def _split(
    x: Matrix, weights: np.ndarray | None, share: float, rng: np.random.Generator, engine: Engine
) -> tuple[np.ndarray, np.ndarray]:
    """Row weights for the fit and for the judgement."""
    rows = x.shape[0] if x.shape[0] is not None else scale_of(engine.put(x), None, engine).rows
    w = np.ones(rows) if weights is None else weights
    hidden = np.zeros(rows, bool)
    hidden[rng.permutation(rows)[: max(1, round(share * rows))]] = True
    if not (w[~hidden] > 0).any() or not (w[hidden] > 0).any():
        raise invalid("held_out", share, "a share that leaves rows on both sides")
    return np.where(hidden, 0.0, w), np.where(hidden, w, 0.0)


def _judged(
    x: Matrix,
    options: MixtureOptions,
    split: tuple[np.ndarray, np.ndarray],
    engine: Engine,
    rng: np.random.Generator,
    memory: Memory,
) -> float:
    """Mean log-likelihood of the rows held out."""
    train, test = split
    if np.count_nonzero(train) < options.k:
        return float("-inf")
    fit = solve(x, options, train, engine=engine, rng=rng, memory=memory)
    found = engine.gaussian_statistics(engine.put(x, test), from_factors(fit.factors))
    return found.bound / found.weight


def _disagreements(
    models: list[tuple[int, str]], fits: list[Fit], table: dict[str, list[Any]]
) -> tuple[str, ...]:
    """Whether starts in scaled and in whitened units alone would have led elsewhere."""
    if not all(len(fit.plan.get("ends", ())) > 1 for fit in fits):
        return ()
    chosen = []
    for way in (0, 1):
        bounds = [max(fit.plan["ends"][way::2]) for fit in fits]
        bic = [
            -2 * b * fit.plan["weight"] + p * np.log(fit.plan["weight"])
            for b, fit, p in zip(bounds, fits, table["parameters"])
        ]
        chosen.append(models[_best(fits, bic)])
    if chosen[0] == chosen[1]:
        return ()
    (a, ak), (b, bk) = chosen
    return (
        f"starts in scaled units lead to {a} {ak}, in whitened units to {b} {bk} "
        "components by BIC: look at both",
    )
