"""A table from its columns to a fitted model: parts, scores, rank and ridge, the factor model,
links, evidence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from eckart.certify.certificate import Certificate
from eckart.certify.tables import certify_table
from eckart.complete.tables.choose import TableChoice, choose
from eckart.complete.tables.columns import Part, laid_out, parts_for, turned
from eckart.complete.tables.factor_em import GaussianFactors, em_move, factor_gradient, penalty
from eckart.complete.tables.fit_table import (
    Climb,
    PlacedTable,
    Scores,
    descend,
    expected,
    filled,
)
from eckart.complete.tables.forests import (
    FEW_ROWS,
    MOST_OUTPUTS,
    ROWS,
    TRIED_COLUMNS,
    TRIED_GAIN,
    TRIED_ROWS,
    Forest,
    answers,
    grown,
    inputs,
    promised_gain,
    truths,
)
from eckart.complete.tables.held_out import (
    Linked,
    error_of,
    held_out,
    left_out,
    linked,
    numbers_error,
    plain_error,
    refit,
    trusted,
)
from eckart.complete.tables.linear import (
    MOST_SCORES,
    expected_scores,
    left_out_linear,
    linear_share,
    regression,
)
from eckart.complete.tables.links import link_gradient
from eckart.decompositions import svd
from eckart.engines.protocol import FilledMoments
from eckart.errors import InputError, invalid
from eckart.factors import MixedColumns
from eckart.fit import Fit, plan_of
from eckart.io.models.checkpoint import NOTHING, Memory
from eckart.io.tables.mixed import Cells
from eckart.trace import Trace, Watcher, silent


class SolvedTable(NamedTuple):
    """A fitted table, its scores, and where they are placed."""

    fit: Fit
    table: Scores
    placed: PlacedTable


class TableSettings(NamedTuple):
    """What is asked of a fit: losses by column; rank and ridge, chosen where they are None; when to
    stop; forests or none ("auto": where they gain); how often rows count."""

    losses: dict[str, str]
    k: int | None
    l2: float | None
    tol: float
    max_iter: int
    trees: bool | str
    weights: np.ndarray | None = None


FORM_ROWS = 1000
"""Rows by which ways to see the columns are compared."""
FORM_GAIN = 0.01
"""Share of the error of numbers that plain squares must gain: skewed columns are counts and amounts
until then."""
FORM_TOL = 3e-3
FORM_PARTS = 2
"""Of the rows, out of ``held_out.PARTS``, at which they are compared."""
WELL_TOLD = 0.1
"""Error of a column at cells held out, in its standard deviations, from which down answers may lie
beyond what was seen: a line through the others says more there than the last cell that was seen."""
LEAST_ROWS = 20
"""Rows below which nothing is held out: a quarter of them says nothing."""


class _Climbed(NamedTuple):
    """A factor model with its links."""

    table: Scores
    codes: list[np.ndarray]
    chosen: TableChoice
    placed: PlacedTable
    climb: Climb
    seen: dict[int, Linked]


def solve(
    columns: list[Cells],
    asked: TableSettings,
    *,
    rng: np.random.Generator,
    engine: Any,
    watch: Watcher,
    memory: Memory = NOTHING,
) -> SolvedTable:
    """Fit a table: the form of its columns, the factor model, links, forests where they gain."""
    if len(columns[0].values) < 2:
        raise InputError(
            "X must have 2 rows or more, got 1 sample: one row says nothing of how its columns "
            "go together"
        )
    form, forms, before = "usual losses", {}, {}
    parts, reasons, aside = _parts(columns, asked)
    skewed = [p.name for p in parts if p.loss.name == "poisson" and p.name not in asked.losses]
    if skewed and len(columns[0].values) >= LEAST_ROWS:
        plain = asked._replace(losses=asked.losses | dict.fromkeys(skewed, "squared"))
        before = _compared(
            columns,
            {"usual losses": asked, "plain squares": plain},
            int(rng.integers(2**31)),
            engine,
        )
        forms = {name: one.error for name, one in before.items()}
        if forms["plain squares"] < (1 - FORM_GAIN) * forms["usual losses"]:
            form, (parts, reasons, aside) = "plain squares", _parts(columns, plain)
            reasons |= dict.fromkeys(
                skewed,
                "squared: skewed, but errors of all numbers together are smaller "
                "without counts and amounts",
            )
    best = before.get(form)
    found = _climbed(columns, parts, asked, rng, engine, watch, memory, best and best.chosen)
    table, codes, chosen, placed, climb, seen = found
    forests, errors, tried, parts, linear = _grown(
        table, codes, climb.g, chosen.best.l2, asked.trees, rng, engine
    )
    table = replace(
        table, parts=tuple(_freed(p, a, errors.get(p.name)) for p, a in zip(parts, codes))
    )
    g = _signed(climb.g)
    # axes turned: the moments of complete rows are those of the last step
    moments = None if table.robust else climb.moments
    certificate = measured(table, placed, g, chosen.best.l2, codes, climb.trace, seen, moments)
    plan = {
        **plan_of(engine),
        "solver": "EM over missing cells, factor analysis of n x n moments",
        "rank": chosen.best.k,
        "l2": chosen.best.l2,
        "rank_reason": _words(chosen, asked.k, asked.l2),
        "candidates": [list(c) for c in chosen.table],
        "losses": reasons,
        "aside": {name: a["reason"] for name, a in aside.items()},
        "form": form,
        "forms": forms,
        "trees": tried,
        "errors": errors,
    }
    fit = Fit(
        _factors(g, table.parts, aside, [c.name for c in columns], forests, linear),
        certificate,
        climb.trace,
        plan,
    )
    return SolvedTable(fit, table, placed)


def _parts(
    columns: list[Cells], asked: TableSettings
) -> tuple[tuple[Part, ...], dict[str, str], dict[str, Any]]:
    """Parts of columns, reasons of their losses, and what is left aside. Levels keep all their
    contrasts where a rank is asked for that fewer scores have not."""
    parts, reasons, aside = [], {}, {}
    for cells in columns:
        found, why = parts_for(cells, asked.losses.get(cells.name), asked.weights)
        parts += found
        if found:
            reasons[cells.name] = f"{found[0].loss.name}: {why}"
        else:
            aside[cells.name] = {"reason": why, "fill": _constant(cells)}
    if not parts:
        description = "; ".join(f"{name}: {a['reason']}" for name, a in list(aside.items())[:3])
        raise InputError(
            f"at least one column of X must have values that differ, got none ({description})"
        )
    few = turned(parts, columns, asked.weights)
    return (
        laid_out(parts if asked.k is not None and asked.k >= sum(p.width for p in few) else few),
        reasons,
        aside,
    )


def _climbed(
    columns: list[Cells],
    parts: tuple[Part, ...],
    asked: TableSettings,
    rng: np.random.Generator,
    engine: Any,
    watch: Watcher = silent,
    memory: Memory = NOTHING,
    chosen: TableChoice | None = None,
) -> _Climbed:
    """The factor model; ``chosen``: what was chosen on some of the rows."""
    table, codes, _ = scores_of(parts, columns, asked.weights)
    most = max(1, table.y.shape[1] - 1)
    if asked.k is not None and asked.k > most:
        raise invalid(
            "n_components",
            asked.k,
            f"at most {most}, one less than the scores of the columns",
            "lower it",
        )
    if chosen is None or len(chosen.g.mu) != table.y.shape[1]:
        chosen = choose(table, asked.k, asked.l2, rng, engine)
    placed = PlacedTable.of(table, engine)
    climb = descend(placed, chosen.g, chosen.best.l2, asked.tol, asked.max_iter, watch, memory)
    parts, seen = linked(table, placed, climb.g, codes, climb.codes)
    return _Climbed(replace(table, parts=parts), codes, chosen, placed, climb, seen)


class _Form(NamedTuple):
    """A way to see the columns, at some of the rows: its error at cells that no fit has seen, and
    what it chose."""

    error: float
    chosen: TableChoice


def _compared(
    columns: list[Cells], forms: dict[str, TableSettings], seed: int, engine: Any
) -> dict[str, _Form]:
    """Errors of numbers under ways to see the columns, at the same cells, which no fit has seen;
    rank and ridge are chosen under the first."""
    rows = np.random.default_rng(seed).permutation(len(columns[0].values))[:FORM_ROWS]
    some, out = [cells._replace(values=cells.values[rows]) for cells in columns], {}
    first: TableChoice | None = None
    for name, asked in forms.items():
        asked = asked._replace(weights=None if asked.weights is None else asked.weights[rows])
        parts, _, _ = _parts(some, asked)
        k = None if asked.k is None else min(asked.k, max(1, sum(p.width for p in parts) - 1))
        l2 = asked.l2
        if first is not None:
            k, l2 = first.best.k, first.best.l2
        found = _climbed(
            some,
            parts,
            asked._replace(k=k, l2=l2, tol=FORM_TOL),
            np.random.default_rng(seed),
            engine,
        )
        g, chosen = found.climb.g, found.chosen
        first = first or chosen
        every = np.arange(len(rows))
        again = refit(g, chosen.best.l2)
        apart = held_out(found.table, found.codes, again, every, engine, None, FORM_PARTS)
        error = numbers_error(found.table, found.codes, apart)
        chosen = chosen._replace(table=first.table, budget=first.budget, g=g)
        out[name] = _Form(error, chosen)
    return out


def _grown(
    table: Scores,
    codes: list[np.ndarray],
    g: GaussianFactors,
    l2: float,
    trees: bool | str,
    rng: np.random.Generator,
    engine: Any,
) -> tuple[
    dict[int, Forest], dict[str, list[float]], str, tuple[Part, ...], GaussianFactors | None
]:
    """Forests of columns that gain by them; of each column the errors of one answer for all, of the
    factor model, and of both, at cells held out; words; the parts, with the share of regressions
    and how far both are trusted; and regressions, where some column has them."""
    parts = list(table.parts)
    if table.rows < LEAST_ROWS:
        return {}, {}, f"none: {table.rows} rows", table.parts, None
    times = np.ones(table.rows) if table.weights is None else table.weights
    rows = rng.permutation(table.rows)[:ROWS]
    apart = held_out(table, codes, refit(g, l2), rows, engine, g)
    base, seed = list(apart.answers), int(rng.integers(2**31))
    linear = None
    numbers = [i for i, p in enumerate(parts) if not p.linked and not p.cycle and not table.robust]
    if numbers and 1 < table.y.shape[1] <= MOST_SCORES:
        other = left_out_linear(table, rows, engine)
        for i in numbers:
            at = parts[i].first
            y, low_rank = table.y[rows, at], apart.scores[:, at]
            seen = ~np.isnan(y)
            share = linear_share(y[seen], low_rank[seen], other[seen, at])
            if share:
                parts[i] = replace(parts[i], linear=share)
                low_rank += share * (other[:, at] - low_rank)
        if any(p.linear for p in parts):
            linear = regression(PlacedTable.of(table.some(rows), engine))
    at = [
        i
        for i, (p, a) in enumerate(zip(parts, codes))
        if not p.cycle and np.count_nonzero(~np.isnan(a[rows])) >= LEAST_ROWS
    ]
    apt = [i for i in at if not parts[i].discrete or len(parts[i].levels) <= MOST_OUTPUTS]

    def of_column(i: int, most: int) -> tuple[Any, ...]:
        part, known = parts[i], np.flatnonzero(~np.isnan(codes[i][rows]))[:most]
        y = table.y[rows[known]].copy()
        for p in parts:
            if p.name == part.name:
                y[:, p.at] = np.nan
        scores = filled(y, expected_scores(Scores(tuple(parts), y), g, linear, engine))
        scores[:, part.at] = apart.scores[known][:, part.at]
        return (
            inputs(table.parts, part, scores),
            truths(part, codes[i][rows[known]]),
            base[i][known],
            seed + i,
            None if table.weights is None else times[rows[known]],
        )

    errors = {}
    for i in at:
        a = codes[i][rows]
        known = np.flatnonzero(~np.isnan(a))
        w = times[rows[known]]
        alone = error_of(parts[i], a[known], base[i][known], w)
        if parts[i].linear:
            base[i] = answers(parts[i], apart.scores[:, parts[i].at])
        parts[i], base[i] = trusted(parts[i], a, base[i], w)
        both = error_of(parts[i], a[known], base[i][known], w)
        errors[parts[i].name] = [plain_error(parts[i], a[known], w), alone, both]
    if trees is False or not apt or table.y.shape[1] < 2:
        why = "none asked for" if trees is False else "none: no column that could have them"
        return {}, errors, why, tuple(parts), linear
    if trees == "auto" and table.rows >= FEW_ROWS:
        some = np.unique(np.linspace(0, len(apt) - 1, min(len(apt), TRIED_COLUMNS)).astype(int))
        gain = np.mean([promised_gain(*of_column(apt[j], TRIED_ROWS)) for j in some])
        if gain < TRIED_GAIN:
            why = (
                f"none: small ones of {len(some)} columns would take {gain:.1%} of the "
                "squared error away, the low rank suffices"
            )
            return {}, errors, why, tuple(parts), linear
    forests = {}
    for i in apt:
        known = np.flatnonzero(~np.isnan(codes[i][rows]))
        made, joined = grown(*of_column(i, len(rows)))
        if made is not None:
            forests[i] = made
            errors[parts[i].name][2] = error_of(
                parts[i], codes[i][rows[known]], joined, times[rows[known]]
            )
    words = f"forests for {len(forests)} of {len(at)} columns"
    if forests:
        words += f", {sum(len(f.roots) for f in forests.values()):,} trees"
    return forests, errors, words, tuple(parts), linear


def scores_of(
    parts: tuple[Part, ...], columns: list[Cells], weights: np.ndarray | None = None
) -> tuple[Scores, list[np.ndarray], dict[str, list[Any]]]:
    """Scores of columns, their codes by part, and levels that the parts do not know."""
    by_name = {cells.name: cells for cells in columns}
    found = [p.codes(by_name[p.name]) for p in parts]
    codes = [a for a, _ in found]
    strange = {p.name: levels for p, (_, levels) in zip(parts, found) if levels}
    return (
        Scores(parts, np.hstack([p.encode(a) for p, a in zip(parts, codes)]), weights),
        codes,
        strange,
    )


def _freed(part: Part, a: np.ndarray, errors: list[float] | None) -> Part:
    """A column of numbers that the others tell well, without the ends that a single cell holds: one
    that several hold (0 of amounts, 100 of shares) is a bound."""
    if part.linked or part.cycle or errors is None or errors[2] > WELL_TOLD:
        return part
    low, high = (np.count_nonzero(a == end) > 1 for end in (part.low, part.high))
    return replace(part, low=part.low if low else -np.inf, high=part.high if high else np.inf)


def _constant(cells: Cells) -> Any:
    """The only value of a column, as a plain value; None where there is none or where values
    differ."""
    met = np.unique(cells.values[~np.isnan(cells.values)])
    if len(met) != 1:
        return None
    found = cells.levels[int(met[0])] if cells.levels else float(met[0])
    return found if isinstance(found, (str, int, float)) else str(found)


def _signed(g: GaussianFactors) -> GaussianFactors:
    """Principal axes of W psi^-1/2 in falling order, the largest weight of each positive: the same
    fit has one answer."""
    scale = np.sqrt(g.psi)[:, None]
    _, _, turn = svd(g.w / scale, full_matrices=False)
    w = g.w @ turn.T
    largest = w[np.abs(w).argmax(axis=0), np.arange(w.shape[1])]
    return replace(g, w=w * np.where(largest < 0, -1.0, 1.0))


def measured(
    table: Scores,
    placed: PlacedTable,
    g: GaussianFactors,
    l2: float,
    codes: list[np.ndarray],
    trace: Trace | None,
    seen: dict[int, Linked] | None = None,
    m: FilledMoments | None = None,
) -> Certificate:
    """The certificate from data and model alone; ``seen``: cells and what is expected of them,
    ``m``: moments of complete rows, where both are known."""
    z = (
        placed.engine.take(expected(table, g).codes)
        if table.robust and (m is None or seen is None)
        else None
    )
    if m is None:
        m, _ = placed.moments(g, z)
    value = float((m.wild / g.psi).sum()) - m.loglik + penalty(g, l2)
    seen = left_out(table, placed, g, codes, z) if seen is None else seen
    links = {table.parts[i].name: link_gradient(table.parts[i], *at) for i, at in seen.items()}
    count = placed.seen
    facts: dict[str, object] = {
        "seen scores": count if table.weights is not None else int(count),
        "rows": table.rows,
        "objective per seen score": value / max(count, 1),
    }
    at = g, m, table.total, l2
    return certify_table(value, factor_gradient(*at), em_move(*at), links, trace, facts)


def _factors(
    g: GaussianFactors,
    parts: tuple[Part, ...],
    aside: dict[str, Any],
    names: list[str],
    forests: dict[int, Forest],
    linear: GaussianFactors | None,
) -> MixedColumns:
    described: list[dict[str, Any]] = []
    tables: dict[str, np.ndarray] = {}
    for i, p in enumerate(parts):
        arrays, description = p.to_state()
        described.append(description)
        tables |= {f"{name}.{i}": array for name, array in arrays.items() if array.size}
    columns = np.empty(len(names), object)
    columns[:] = names
    if linear is not None:
        tables |= {"linear.weights": linear.w, "linear.numbers": np.array([linear.mu, linear.psi])}
    trees = {
        f"{name}.{i}": array
        for i, forest in forests.items()
        for name, array in forest.to_state().items()
    }
    return MixedColumns(len(names), g.w, g.mu, g.psi, described, tables, aside, columns, trees)


def _words(chosen: TableChoice, k: int | None, l2: float | None) -> str:
    if k is not None and l2 is not None:
        return "asked for"
    what = "rank and ridge" if k is None and l2 is None else "rank" if k is None else "ridge"
    end = "; higher ranks, beyond the budget, were not tried" if chosen.budget else ""
    return (
        f"{what} of {len(chosen.table)} candidates with the least error "
        f"({chosen.best.error:.3f} variances) at cells hidden for it{end}"
    )
