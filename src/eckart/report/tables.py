"""The report of a mixed table: what was missing, what each column is, how well the others speak for
it, how sure fills are, what goes together, evidence.

Rows of the data for a report: a sample that fits, names that can be read, and examples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from eckart import plots
from eckart.complete.tables.fit_table import Scores
from eckart.complete.tables.solve_table import scores_of
from eckart.matrix import Dense, Matrix
from eckart.report.html import Report

ROWS = 2000
"""Rows by which columns are judged: their errors are known to a few per cent by then."""
LINES, NAMED = 400, 24
"""Of the map of gaps: as many lines as a screen shows, and columns that are named below it."""
SIMPLE = "neighbours", "linear"
STRONGEST = 6
"""Columns that are named for a direction."""


def table_report(model: Any, X: Any, *, name: str = "") -> Report:
    """A page for a fitted ``MixedTable`` and the table that it was fitted to."""
    fit, frame = model.fit_, model._checked_frame(X)
    gaps = {cells.name: int(np.isnan(cells.values).sum()) for cells in frame.columns}
    page = Report(
        f"Complete: {name}" if name else "Complete",
        f"{frame.rows:,} rows and {len(frame.columns):,} columns, "
        f"{sum(gaps.values()):,} gaps; MixedTable of rank {fit.plan['rank']}",
    )
    page.holds(fit.certificate)
    page.section("What was missing")
    page.pictures(
        (
            _gap_map(frame),
            "Gaps (dark) of rows from top to bottom, as shares of neighbouring rows "
            "where they are many",
        )
    )
    page.section("What the other columns say of each")
    if errors := fit.plan.get("errors"):
        page.text(
            "Errors at rows that the fit had not seen, each cell from the other cells "
            "of its row. Numbers: as a share of the standard deviation of the column. "
            "Levels: the share of wrong ones. One answer for all is the mean, or the "
            "commonest level."
        )
        simple = model.simple_errors(X)
        page.table(
            [
                "column",
                "loss",
                "gaps",
                "error",
                "factor model alone",
                "one answer for all",
                "near rows",
                "linear regression",
            ],
            [
                [name, model.losses_[name], f"{gaps[name]:,}", of[2], of[1], of[0]]
                + [simple[name][kind] if name in simple else "" for kind in SIMPLE]
                for name, of in errors.items()
            ],
        )
        page.text(f"Trees: {fit.plan['trees']}.")
    else:
        page.text(
            "Every seen cell is predicted from the other cells of its row. Numbers: the "
            "error as a share of the standard deviation of the column. Levels: the "
            "share of wrong ones, and that of always saying the commonest. The fit has "
            "seen these cells, so new tables may do a little worse."
        )
        page.table(
            ["column", "loss", "gaps", "error", "without the others"], _judged(model, frame, gaps)
        )
    if sure := model.uncertainty(X):
        page.section("How sure the filled cells are")
        page.text(
            "Numbers: the standard deviation of the error, in the unit of the column. "
            "Levels: the probability that the level is another one."
        )
        page.table(
            [
                "column",
                "filled",
                "surest tenth",
                "middle",
                "least sure tenth",
                "at the least or largest value",
            ],
            _certain(model, X, sure),
        )
    if fit.factors.aside:
        page.text("Left as they are:")
        page.table(
            ["column", "why"],
            [
                [column, aside_column["reason"]]
                for column, aside_column in fit.factors.aside.items()
            ],
        )
    page.section("What goes together")
    page.table(["direction", "columns that it moves most"], _directions(model))
    page.section("How the rank was chosen")
    page.text(str(fit.plan["rank_reason"]))
    page.table(
        ["rank", "ridge", "error at hidden cells"], [list(c) for c in fit.plan["candidates"]]
    )
    page.section("Evidence").certificate(fit.certificate)
    if len(fit.trace):
        page.pictures(
            (
                plots.objective(fit.trace),
                f"{fit.trace.quantity.capitalize()}: {len(fit.trace)} values",
            )
        )
    return page.computed(
        fit, ("candidates", "losses", "aside", "rank_reason", "errors", "forms", "trees")
    )


def _gap_map(frame: Any) -> Any:
    """Where gaps are: rows from top to bottom, columns side by side."""
    from eckart.plots.style import new_axes

    gaps = np.column_stack([np.isnan(cells.values) for cells in frame.columns]).astype(float)
    edges = np.unique(np.linspace(0, frame.rows, min(frame.rows, LINES) + 1).astype(np.intp))
    shares = np.add.reduceat(gaps, edges[:-1], axis=0) / np.diff(edges)[:, None]
    ax = new_axes(None)
    ax.imshow(
        shares,
        aspect="auto",
        interpolation="nearest",
        cmap="Greys",
        vmin=0,
        vmax=1,
        extent=(-0.5, gaps.shape[1] - 0.5, frame.rows, 0),
    )
    few = np.unique(np.linspace(0, gaps.shape[1] - 1, min(gaps.shape[1], NAMED)).astype(int))
    ax.set_xticks(few, [frame.columns[j].name[:14] for j in few], rotation=60, ha="right")
    ax.set_ylabel("row")
    return ax


def _certain(model: Any, X: Any, sure: dict[str, np.ndarray]) -> list[list[Any]]:
    """Of each column the spread of uncertainties of its filled cells, and how many lie at an end of
    the range."""
    ends = model.at_the_ends(X)
    return [
        [name, f"{len(each):,}", *np.quantile(each, (0.1, 0.5, 0.9)).tolist(), ends.get(name, 0)]
        for name, each in sure.items()
    ]


def _judged(model: Any, frame: Any, gaps: dict[str, int]) -> list[list[Any]]:
    """Each column that has a loss: how wrong the other columns are about its seen cells, and how
    wrong one answer for all is."""
    rows = np.unique(np.linspace(0, frame.rows - 1, min(frame.rows, ROWS)).astype(np.intp))
    some = [cells._replace(values=cells.values[rows]) for cells in frame.columns]
    table, codes, _ = scores_of(model.parts_, some)
    out: list[list[Any]] = []
    for part, a in zip(model.parts_, codes):
        seen = np.flatnonzero(~np.isnan(a))
        if part.cycle or not len(seen):
            continue
        found = model._answered(part, model._from_others(Scores(table.parts, table.y[seen]), part))
        if part.discrete:
            share = np.bincount(a[seen].astype(np.intp), minlength=len(part.levels)).max() / len(
                seen
            )
            wrong, plain = float(np.mean(found.argmax(axis=1) != a[seen])), 1 - float(share)
        else:
            values = next(cells.values for cells in some if cells.name == part.name)[seen]
            spread = float(values.std()) or 1.0
            wrong, plain = float(np.sqrt(np.mean((found - values) ** 2))) / spread, 1.0
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


MOST_ROWS = 5000
"""Rows whose posteriors are computed for pictures and examples."""

Excerpts = Callable[[np.ndarray], dict[int, str]] | Sequence[str] | None
"""The texts of documents: all of them, or a function from positions to a dictionary position:
text."""


def some_rows(x: Matrix, most: int = MOST_ROWS) -> tuple[Matrix, np.ndarray]:
    """Evenly spaced rows (the first ones of a stream) and their positions.

    >>> part, at = some_rows(Dense(np.arange(10.0)[:, None]), 4)
    >>> part.values.ravel().tolist(), at.tolist()
    ([0.0, 3.0, 6.0, 9.0], [0, 3, 6, 9])
    """
    if isinstance(x, Dense) and not x.in_memory:
        block = np.asarray(next(x.stream.blocks(most)))
        return Dense(block, columns=x.columns), np.arange(len(block))
    count = int(x.shape[0] or 0)
    at = np.unique(np.linspace(0, count - 1, min(count, most)).astype(int))
    rows = None if x.rows is None else x.rows[at]
    if isinstance(x, Dense):
        return Dense(np.asarray(x.array[at]), rows, x.columns), at
    return type(x).from_scipy(x.to_scipy()[at], rows, x.columns), at


def row_name(x: Matrix, i: int) -> str:
    """What row i is called."""
    return f"row {i + 1}" if x.rows is None else str(x.rows[i])


def texts_at(excerpts: Excerpts, at: np.ndarray, most: int = 240) -> dict[int, str]:
    """The beginnings of some documents, where their texts are there."""
    if excerpts is None:
        return {}
    found = excerpts(at) if callable(excerpts) else {int(i): excerpts[int(i)] for i in at}
    cut = {i: " ".join(str(text)[: 4 * most].split()) for i, text in found.items()}
    return {i: text if len(text) <= most else text[: most - 1] + "…" for i, text in cut.items()}
