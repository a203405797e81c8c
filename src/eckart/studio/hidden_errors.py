"""How good a completion is, and for whom: errors at entries hidden from their rows, by how often
rows and columns were observed; and what its lists cover.

A fifth of the entries of some rows is hidden, the rows are folded in from the rest, and what is
predicted at the hidden entries is compared with them. The columns have seen those entries, so these
errors are a little too small; the words beside the numbers say so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from eckart.cli.shell import plain
from eckart.matrix import Observed
from eckart.plots.complete import popularity_bins
from eckart.serve.problems import Problem
from eckart.studio.opened import Opened, run_verb

MOST_ROWS = 2000
"""Rows that are folded in to measure errors, and whose lists are looked at for coverage: enough for
two digits."""
HIDDEN = 0.2
"""Share of a row's entries that are hidden."""


def ranks_values(opened: Opened) -> bool:
    return hasattr(opened.factors, "mean") and opened.factors.left is not None


def order_of(opened: Opened) -> str:
    """What "auto" stands for: the order by chance where the shell has learned it for the model
    file. It is never learned while someone waits."""
    demand = getattr(opened.model, "_demand", None)
    return "chance" if demand is not None and demand.informative else "prediction"


def means_of(x: Observed, side: str) -> np.ndarray:
    """The mean observed value of each row or column; NaN without any."""
    at = np.repeat(np.arange(x.shape[0]), x.row_counts()) if side == "rows" else x.indices
    size = x.shape[0] if side == "rows" else x.n_columns
    counts = np.bincount(at, minlength=size)
    return np.bincount(at, x.data, minlength=size) / np.where(counts, counts, np.nan)


@dataclass(frozen=True, eq=False)
class Errors:
    """Prediction minus value at entries hidden from their rows; how often their row (the rest of
    it) and column were observed; error of the column's mean."""

    error: np.ndarray
    rows: np.ndarray
    columns: np.ndarray
    plain: np.ndarray


def hidden_errors(opened: Opened) -> Errors | None:
    """Measured once for a model; None where rows have too few entries."""
    return opened.kept.get("hidden errors", lambda: _hidden_errors(opened))


def _hidden_errors(opened: Opened) -> Errors | None:
    model = opened.model
    x, rng = model.observed_, np.random.default_rng(0)
    counts = np.asarray(x.row_counts())
    enough = np.flatnonzero(counts >= 3)
    if not len(enough):
        return None
    at = np.sort(rng.permutation(enough)[:MOST_ROWS])
    part = x.to_scipy()[at]
    i = np.repeat(np.arange(len(at)), np.diff(part.indptr))
    # one entry of each row at least, the first in a random order
    draw = rng.random(len(i))
    order = np.lexsort((draw, i))
    within = np.arange(len(i)) - part.indptr[i]
    hide = np.zeros(len(i), bool)
    hide[order] = within < np.maximum(1, (HIDDEN * np.diff(part.indptr)[i]).astype(int))
    j, values = part.indices.astype(np.int64), part.data.astype(np.float64)
    keep = ~hide
    shown = Observed.from_codes(i[keep], j[keep], part.data[keep], (len(at), x.n_columns))
    folded = run_verb(lambda: model._folded(shown))[0]
    predicted = model._clipped(folded.at(i[hide], j[hide])).astype(np.float64)
    means = means_of(x, "columns")[j[hide]]
    support = np.asarray(x.column_counts())[j[hide]]
    return Errors(predicted - values[hide], counts[at][i[hide]], support, means - values[hide])


def support(opened: Opened) -> dict[str, Any]:
    """Errors by number of observations."""
    if not ranks_values(opened) or getattr(opened.model, "feedback", "explicit") == "implicit":
        raise Problem(
            422,
            f"a {type(opened.model).__name__} that ranks has no errors to measure; see "
            "the coverage of its lists",
        )
    found = hidden_errors(opened)
    if found is None:
        raise Problem(
            422, "every row has fewer than 3 entries, so none can be hidden to measure the error"
        )
    all_measured = _measured(found.error)
    return {
        "meaning": f"{len(found.error):,} entries were hidden from their rows, which were folded "
        "in from the rest; the columns had seen them, so the errors "
        "are a little too small. The error on entries that nothing had seen is in the report.",
        "rows": _by(found.rows, found.error),
        "columns": _by(found.columns, found.error),
        "all": all_measured,
        "baseline": {"rmse": _measured(found.plain)["rmse"], "meaning": "the mean of the column"},
        "held_out": _held_out(opened),
    }


def _held_out(opened: Opened) -> Any:
    held = opened.plan.get("held_out")
    return plain(held) if isinstance(held, dict) else None


def _measured(error: np.ndarray) -> dict[str, Any]:
    return {
        "rmse": float(np.sqrt(np.mean(error**2))),
        "mae": float(np.abs(error).mean()),
        "entries": len(error),
    }


def _by(counts: np.ndarray, error: np.ndarray) -> list[dict[str, Any]]:
    edges = popularity_bins(counts)
    out = []
    for low, high in zip(edges[:-1].tolist(), edges[1:].tolist()):
        part = error[(counts >= low) & (counts < high)]
        if len(part):
            out.append({"from": int(low), "to": int(high) - 1} | _measured(part))
    return out


def coverage(opened: Opened, n: int) -> dict[str, Any]:
    """Which columns the lists of some rows hold, and how they are spread over popular and rare
    ones."""
    model, f = opened.model, opened.factors
    count = model.row_ids.size
    at = np.unique(np.linspace(0, count - 1, min(count, MOST_ROWS)).astype(int))
    by = order_of(opened)
    if opened.lists is not None and by == "prediction":
        found = opened.lists.best(at, n, True).positions
    else:
        found = run_verb(lambda: model.recommend(model.row_ids.names(at), n, by=by)).positions
    times = np.bincount(found[found >= 0], minlength=f.n)
    popularity = np.asarray(model.observed_.column_counts())
    order = np.argsort(-popularity, kind="stable")
    tenths = np.array_split(order, min(10, f.n))
    total = max(1, int(times.sum()))
    return {
        "meaning": f"lists of {n} for {len(at):,} rows: which of the {f.n:,} columns are in any of "
        "them, by tenth of popularity",
        "columns": int(f.n),
        "listed": int((times > 0).sum()),
        "share": float((times > 0).mean()),
        "rows": len(at),
        "concentration": gini(times),
        "popular": [
            {
                "from": int(popularity[part].max()),
                "to": int(popularity[part].min()),
                "columns": len(part),
                "listed": int((times[part] > 0).sum()),
                "share_of_lists": float(times[part].sum() / total),
            }
            for part in tenths
        ],
    }


def gini(times: np.ndarray) -> float:
    """0 where all are listed as often, near 1 where one takes all: 1 + 1/n - 2 sum_i (n + 1 - i)
    t_i / (n sum t), t rising.

    >>> gini(np.array([1, 1, 1, 1])), gini(np.array([0, 0, 0, 4]))
    (0.0, 0.75)
    """
    n, total = len(times), float(times.sum())
    if not total:
        return 0.0
    rising = np.sort(times).astype(np.float64)
    return float(1 + 1 / n - 2 * (np.arange(n, 0, -1) @ rising) / (n * total))
