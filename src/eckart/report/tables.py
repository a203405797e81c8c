"""The report of a mixed table: what each column is, how well the others speak for it, what goes together, evidence."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart import plots
from eckart.complete.tables.fit_table import Scores
from eckart.complete.tables.solve_table import scores_of
from eckart.report.html import Report

ROWS = 2000
"""Rows by which columns are judged: their errors are known to a few per cent by then."""
STRONGEST = 6
"""Columns that are named for a direction."""


def table_report(model: Any, X: Any, *, name: str = "") -> Report:
    """A page for a fitted ``MixedTable`` and the table that it was fitted to."""
    fit, frame = model.fit_, model._checked_frame(X)
    gaps = {cells.name: int(np.isnan(cells.values).sum()) for cells in frame.columns}
    page = Report(
        f"Complete: {name}" if name else "Complete",
        f"{frame.rows:,} rows and {len(frame.columns):,} columns, {sum(gaps.values()):,} gaps; MixedTable of rank {fit.plan['rank']}",
    )
    page.holds(fit.certificate)
    page.section("What the other columns say of each")
    page.text(
        "Every seen cell is predicted from the other cells of its row. Numbers: the error as a share of the standard deviation of the column. Levels: the "
        "share of wrong ones, and that of always saying the commonest. The fit has seen these cells, so new tables may do a little worse."
    )
    page.table(["column", "loss", "gaps", "error", "without the others"], _judged(model, frame, gaps))
    if fit.factors.aside:
        page.text("Left as they are:")
        page.table(["column", "why"], [[column, told["reason"]] for column, told in fit.factors.aside.items()])
    page.section("What goes together")
    page.table(["direction", "columns that it moves most"], _directions(model))
    page.section("How the rank was chosen")
    page.text(str(fit.plan["rank_reason"]))
    page.table(["rank", "ridge", "error at hidden cells"], [list(c) for c in fit.plan["candidates"]])
    page.section("Evidence").certificate(fit.certificate)
    if len(fit.trace):
        page.pictures((plots.objective(fit.trace), f"{fit.trace.quantity.capitalize()}: {len(fit.trace)} values"))
    return page.computed(fit, ("candidates", "losses", "aside", "rank_reason"))


def _judged(model: Any, frame: Any, gaps: dict[str, int]) -> list[list[Any]]:
    """Each column that has a loss: how wrong the other columns are about its seen cells, and how wrong one answer for all is."""
    rows = np.unique(np.linspace(0, frame.rows - 1, min(frame.rows, ROWS)).astype(np.intp))
    some = [cells._replace(values=cells.values[rows]) for cells in frame.columns]
    table, codes, _ = scores_of(model.parts_, some)
    out: list[list[Any]] = []
    for part, a in zip(model.parts_, codes):
        seen = np.flatnonzero(~np.isnan(a))
        if part.cycle or not len(seen):
            continue
        y = model._from_others(Scores(table.parts, table.y[seen]), part)
        if part.discrete:
            share = np.bincount(a[seen].astype(np.intp), minlength=len(part.levels)).max() / len(seen)
            wrong, plain = float(np.mean(part.probabilities(y).argmax(axis=1) != a[seen])), 1 - float(share)
        else:
            values = next(cells.values for cells in some if cells.name == part.name)[seen]
            spread = float(values.std()) or 1.0
            wrong, plain = float(np.sqrt(np.mean((part.numbers(y) - values) ** 2))) / spread, 1.0
        out.append([part.name, part.loss.name, f"{gaps[part.name]:,}", wrong, plain])
    return out


def _directions(model: Any) -> list[list[Any]]:
    """For each direction the columns whose scores it moves most, in deviations of their noise."""
    f = model.fit_.factors
    scaled = f.weights / np.sqrt(f.noise)[:, None]
    out: list[list[Any]] = []
    for z in range(f.k):
        sizes: dict[str, float] = {}
        for p in model.parts_:
            sizes[p.name] = sizes.get(p.name, 0.0) + float((scaled[p.at, z] ** 2).sum())
        best = sorted(sizes, key=lambda column: -sizes[column])[:STRONGEST]
        out.append([z + 1, ", ".join(best)])
    return out
