"""A table from its columns to a fitted model: parts, scores, rank and ridge, the factor model, links, evidence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from eckart.certify.certificate import Certificate
from eckart.certify.tables import certify_table
from eckart.complete.tables.choose import Choice, choose
from eckart.complete.tables.columns import Part, laid_out, parts_for
from eckart.complete.tables.factor_em import Gaussian, em_move, factor_gradient, penalty
from eckart.complete.tables.fit_table import Placed, Scores, descend, expected
from eckart.complete.tables.links import CELLS, fit_link, link_gradient
from eckart.decompositions import svd
from eckart.engines.protocol import FilledMoments, Tall
from eckart.errors import InputError, wrong
from eckart.factors import MixedColumns
from eckart.fit import Fit, plan_of
from eckart.io.models.levels import NOTHING, Memory
from eckart.io.tables.mixed import Cells
from eckart.trace import Trace, Watcher


class Solved(NamedTuple):
    """A fitted table, its scores, and where they are placed."""

    fit: Fit
    table: Scores
    placed: Placed


def solve(
    columns: list[Cells],
    asked: dict[str, str],
    k: int | None,
    l2: float | None,
    tol: float,
    max_iter: int,
    *,
    rng: np.random.Generator,
    engine: Any,
    watch: Watcher,
    memory: Memory = NOTHING,
) -> Solved:
    """Fit a table; ``asked`` names losses of columns, k and l2 are chosen where they are None."""
    if len(columns[0].values) < 2:
        raise InputError("X has 1 sample, wanted 2 rows or more: one row says nothing of how its columns go together")
    parts, reasons, aside = [], {}, {}
    for cells in columns:
        found, why = parts_for(cells, asked.get(cells.name))
        parts += found
        if found:
            reasons[cells.name] = f"{found[0].loss.name}: {why}"
        else:
            aside[cells.name] = {"reason": why, "fill": _constant(cells)}
    if not parts:
        told = "; ".join(f"{name}: {a['reason']}" for name, a in list(aside.items())[:3])
        raise InputError(f"no column of X says anything ({told}), wanted one whose values differ")
    laid = laid_out(parts)
    table, codes, _ = scores_of(laid, columns)
    most = max(1, table.y.shape[1] - 1)
    if k is not None and k > most:
        raise wrong("n_components", k, f"at most {most}, one less than the scores of the columns", "lower it")
    chosen = choose(table, k, l2, rng, engine)
    placed = Placed.of(table, engine)
    climb = descend(placed, chosen.g, chosen.best.l2, tol, max_iter, watch, memory)
    g = _signed(climb.g)
    seen = _left_out(table, placed, climb.g, codes, climb.codes)
    laid = tuple(fit_link(p, *seen[i]) if i in seen else p for i, p in enumerate(laid))
    # axes turned: the moments of complete rows are those of the last step
    moments = None if table.robust else climb.moments
    certificate = measured(replace(table, parts=laid), placed, g, chosen.best.l2, codes, climb.trace, seen, moments)
    plan = {
        **plan_of(engine),
        "solver": "EM over missing cells, factor analysis of n x n moments", "rank": chosen.best.k, "l2": chosen.best.l2,
        "rank_reason": _words(chosen, k, l2), "candidates": [list(c) for c in chosen.table], "losses": reasons,
        "aside": {name: a["reason"] for name, a in aside.items()},
    }  # fmt: skip
    fit = Fit(_factors(g, laid, aside, [c.name for c in columns]), certificate, climb.trace, plan)
    return Solved(fit, table, placed)


def scores_of(parts: tuple[Part, ...], columns: list[Cells]) -> tuple[Scores, list[np.ndarray], dict[str, list[Any]]]:
    """Scores of columns, their codes by part, and levels that the parts do not know."""
    by_name = {cells.name: cells for cells in columns}
    found = [p.codes(by_name[p.name]) for p in parts]
    codes = [a for a, _ in found]
    strange = {p.name: levels for p, (_, levels) in zip(parts, found) if levels}
    return Scores(parts, np.hstack([p.encode(a) for p, a in zip(parts, codes)])), codes, strange


def _constant(cells: Cells) -> Any:
    """The only value of a column, as a plain value; None where there is none or where values differ."""
    met = np.unique(cells.values[~np.isnan(cells.values)])
    if len(met) != 1:
        return None
    found = cells.levels[int(met[0])] if cells.levels else float(met[0])
    return found if isinstance(found, (str, int, float)) else str(found)


def _signed(g: Gaussian) -> Gaussian:
    """Principal axes of W psi^-1/2 in falling order, the largest weight of each positive: the same fit has one answer."""
    scale = np.sqrt(g.psi)[:, None]
    _, _, turn = svd(g.w / scale, full_matrices=False)
    w = g.w @ turn.T
    largest = w[np.abs(w).argmax(axis=0), np.arange(w.shape[1])]
    return replace(g, w=w * np.where(largest < 0, -1.0, 1.0))


def _left_out(
    table: Scores, placed: Placed, g: Gaussian, codes: list[np.ndarray], z: Tall | None
) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """For each part with a link: codes of cells, and their scores as the other cells of their rows predict them; z are codes of rows under g, which robust
    columns need. Cells are the first that a column sees in one order of all rows, as many as a link needs, so that columns ask for the same rows."""
    order = np.argsort(np.arange(table.rows) * 0.5 * (np.sqrt(5) - 1) % 1.0)  # multiples of the golden ratio: evenly spread however many are taken
    rows, asked = {}, np.zeros(table.rows, bool)
    for i, (p, a) in enumerate(zip(table.parts, codes)):
        if p.linked and len(at := order[~np.isnan(a[order])][:CELLS]):
            rows[i] = at
            asked[at] = True
    if not rows:
        return {}
    if 2 * np.count_nonzero(asked) >= table.rows:  # to place some rows anew would cost more
        asked[:] = True
    else:
        z = None if z is None else placed.engine.take(placed.engine.get(z)[asked])
        placed = Placed.of(Scores(table.parts, table.y[asked]), placed.engine)
    found = placed.left_out(g, np.array([[table.parts[i].at.start, table.parts[i].at.stop] for i in rows]), z)
    place = np.cumsum(asked) - 1
    return {i: (codes[i][at], found[place[at], table.parts[i].at]) for i, at in rows.items()}


def measured(
    table: Scores,
    placed: Placed,
    g: Gaussian,
    l2: float,
    codes: list[np.ndarray],
    trace: Trace | None,
    seen: dict[int, tuple[np.ndarray, np.ndarray]] | None = None,
    m: FilledMoments | None = None,
) -> Certificate:
    """The certificate from data and model alone; ``seen``: cells and what is expected of them, ``m``: moments of complete rows, where both are known."""
    z = placed.engine.take(expected(table, g).codes) if table.robust and (m is None or seen is None) else None
    if m is None:
        m, _ = placed.moments(g, z)
    value = float((m.wild / g.psi).sum()) - m.loglik + penalty(g, l2)
    seen = _left_out(table, placed, g, codes, z) if seen is None else seen
    links = {table.parts[i].name: link_gradient(table.parts[i], *at) for i, at in seen.items()}
    count = int(np.count_nonzero(~np.isnan(table.y)))
    facts: dict[str, object] = {
        "seen scores": count,
        "rows": table.rows,
        "objective per seen score": value / max(count, 1),
    }
    at = g, m, table.rows, l2
    return certify_table(value, factor_gradient(*at), em_move(*at), links, trace, facts)


def _factors(g: Gaussian, parts: tuple[Part, ...], aside: dict[str, Any], names: list[str]) -> MixedColumns:
    described: list[dict[str, Any]] = []
    tables: dict[str, np.ndarray] = {}
    for i, p in enumerate(parts):
        arrays, told = p.to_state()
        described.append(told)
        tables |= {f"{name}.{i}": array for name, array in arrays.items() if array.size}
    columns = np.empty(len(names), object)
    columns[:] = names
    return MixedColumns(len(names), g.w, g.mu, g.psi, described, tables, aside, columns)


def _words(chosen: Choice, k: int | None, l2: float | None) -> str:
    if k is not None and l2 is not None:
        return "asked for"
    what = "rank and ridge" if k is None and l2 is None else "rank" if k is None else "ridge"
    return f"{what} of {len(chosen.table)} candidates with the least error ({chosen.best.error:.3f} variances) at cells hidden for it"
