"""The room of a completion: rows and columns by id or title, predictions with intervals, lists with
their reasons, and what would change if ratings did.

Intervals are those of the posterior where the model is Bayesian. Elsewhere they are measured: the
interval around a prediction is that of the errors at entries hidden from their rows (see
``errors``).
"""

from __future__ import annotations

import contextlib
import copy
import time
from typing import Any

import numpy as np

from eckart.cli.id_files import Titles
from eckart.errors import EckartError
from eckart.matrix import Observed
from eckart.query.ids import parse_ids
from eckart.serve.problems import Problem
from eckart.studio.hidden_errors import hidden_errors, order_of, ranks_values
from eckart.studio.library import Library
from eckart.studio.opened import Opened, run_verb
from eckart.studio.tables import cell

MOST_RATINGS = 10_000
"""Ratings of a what-if."""


def labels_of(opened: Opened, side: str) -> Any:
    return opened.model.row_ids if side == "rows" else opened.model.column_ids


def position(opened: Opened, side: str, id: Any) -> int:
    """The position of an id that came as text or number."""
    labels = labels_of(opened, side)
    if isinstance(id, bool) or not isinstance(id, (str, int, float)):
        raise Problem(422, f"{side[:-1]} must be an id, got {str(id)[:80]!r}")
    return int(run_verb(lambda: labels.indices_of(parse_ids(np.array([id], object), labels)))[0])


def titles_of(library: Library, opened: Opened) -> Any:
    """Titles of columns, where the model was given a table of them that lies in the folder."""

    def find() -> Any:
        spec = opened.plan.get("titles")
        if not isinstance(spec, str):
            return None
        with contextlib.suppress(EckartError, Problem, OSError, ValueError):
            file, *names = spec.rsplit(":", 2)
            path = library.folder.existing(file)
            return Titles(":".join([str(path), *names]), opened.model.column_ids)
        return None

    return opened.kept.get("titles", find)


def named(library: Library, opened: Opened, at: Any) -> tuple[list[Any], list[str | None]]:
    """Ids and titles of columns at positions."""
    ids = opened.model.column_ids.names(np.asarray(at))
    titles = titles_of(library, opened)
    return [cell(i) for i in ids], [None] * len(ids) if titles is None else [
        str(t) for t in titles(ids)
    ]


def entries_of(opened: Opened, side: str, i: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions on the other side and values of what was observed."""
    x = opened.model.observed_
    if side == "rows":
        part = slice(x.indptr[i], x.indptr[i + 1])
        return x.indices[part], x.data[part]
    turned = opened.kept.get("turned", x.transposed)
    part = slice(turned.indptr[i], turned.indptr[i + 1])
    return turned.indices[part], turned.data[part]


def row(
    library: Library, opened: Opened, side: str, id: Any, first: int, count: int
) -> dict[str, Any]:
    """What was observed of a row (or column), the largest values first, and what the model says
    there."""
    i = position(opened, side, id)
    other, values = entries_of(opened, side, i)
    order = np.argsort(-values, kind="stable")[first : first + count]
    at = other[order]
    if side == "rows":
        ids, titles = named(library, opened, at)
        predicted = _values(opened, np.full(len(at), i), at)
    else:
        ids, titles = [cell(v) for v in opened.model.row_ids.names(at)], [None] * len(at)
        predicted = _values(opened, at, np.full(len(at), i))
    f = opened.factors
    bias = getattr(f, "row_bias" if side == "rows" else "column_bias", None)
    own_ids, own_titles = (
        named(library, opened, [i])
        if side == "columns"
        else ([cell(opened.model.row_ids.names([i])[0])], [None])
    )
    return {
        "id": own_ids[0],
        "title": own_titles[0],
        "at": i,
        "observations": len(other),
        "mean": float(values.mean()) if len(values) else None,
        "bias": None if bias is None else float(bias[i]),
        "first": first,
        "entries": [
            {
                "id": a,
                "title": t,
                "value": float(values[p]),
                "predicted": None if predicted is None else float(predicted[q]),
            }
            for q, (a, t, p) in enumerate(zip(ids, titles, order))
        ],
    }


def _values(opened: Opened, i: np.ndarray, j: np.ndarray) -> np.ndarray | None:
    """The model's values by position; None for models that only rank."""
    if not ranks_values(opened):
        return None
    return opened.model._clipped(opened.factors.at(i, j))


def predict(
    library: Library, opened: Opened, rows: Any, columns: Any, level: float
) -> dict[str, Any]:
    """Cells with intervals."""
    if not ranks_values(opened):
        raise Problem(
            422,
            f"a {type(opened.model).__name__} orders columns and predicts no values; "
            "ask for recommendations",
        )
    both = []
    for side, ids in (("rows", rows), ("columns", columns)):
        if not isinstance(ids, list) or not ids or len(ids) > 1000:
            raise Problem(422, f"{side} must be a list of 1 to 1000 ids, got {str(ids)[:80]}")
        both.append(np.array([position(opened, side, one) for one in ids]))
    i, j = (np.repeat(a, len(b)) if len(a) == 1 else a for a, b in (both, both[::-1]))
    if len(i) != len(j):
        raise Problem(
            422,
            f"rows and columns must be as many, or one of a side, got {len(i)} rows and "
            f"{len(j)} columns",
        )
    values = _values(opened, i, j)
    assert values is not None
    low, high, words = intervals(opened, i, j, values, level)
    ids, titles = named(library, opened, j)
    seen = _observed_at(opened, i, j)
    names = [cell(v) for v in opened.model.row_ids.names(i)]
    cells = [
        {"row": r, "column": c, "title": t, "prediction": float(v), "low": a, "high": b, "value": s}
        for r, c, t, v, a, b, s in zip(names, ids, titles, values, low, high, seen)
    ]
    return {"cells": cells, "interval": words, "level": level}


def intervals(
    opened: Opened, i: np.ndarray, j: np.ndarray, values: np.ndarray, level: float
) -> tuple[list[Any], list[Any], str]:
    """Ends of the intervals around values at known cells, and how they were made."""
    model = opened.model
    if hasattr(model, "interval"):
        low, high = model.interval(model.row_ids.names(i), model.column_ids.names(j), level)
        return (
            low.tolist(),
            high.tolist(),
            f"holds a new observation with probability {level:.0%}, by the posterior",
        )
    none = [None] * len(values)
    if getattr(model, "feedback", "explicit") == "implicit":
        return (
            none,
            list(none),
            "implicit feedback has no intervals: its values order columns, they are no "
            "measurements",
        )
    found = hidden_errors(opened)
    if found is None:
        return none, list(none), "too few entries to hide some and measure the error"
    low, high = np.quantile(found.error, [0.5 - level / 2, 0.5 + level / 2])
    reach = model._clipped(np.array([values - high, values - low]))
    return (
        reach[0].tolist(),
        reach[1].tolist(),
        (
            f"where {level:.0%} of {len(found.error):,} entries fell that were hidden "
            "from their row; the columns had seen them, so it is a little narrow"
        ),
    )


def _observed_at(opened: Opened, i: np.ndarray, j: np.ndarray) -> list[float | None]:
    x, out = opened.model.observed_, []
    for a, b in zip(i.tolist(), j.tolist()):
        part = x.indices[x.indptr[a] : x.indptr[a + 1]]
        found = np.flatnonzero(part == b)
        out.append(float(x.data[x.indptr[a] + found[0]]) if len(found) else None)
    return out


# what-if


def changed(opened: Opened, row: Any, ratings: Any) -> tuple[np.ndarray, np.ndarray]:
    """The entries of a row (None: of nobody) with some changed, added or taken away: positions and
    values."""
    if not isinstance(ratings, list) or len(ratings) > MOST_RATINGS:
        raise Problem(
            422,
            "ratings must be a list such as [{'column': 7, 'value': 4}], got "
            f"{str(ratings)[:80]}",
        )
    now: dict[int, float] = {}
    if row is not None:
        now = dict(
            zip(
                *(
                    part.tolist()
                    for part in entries_of(opened, "rows", position(opened, "rows", row))
                )
            )
        )
    for one in ratings:
        if not isinstance(one, dict) or set(one) - {"column", "value"} or "column" not in one:
            raise Problem(
                422, f"ratings must hold objects with column and value, got {str(one)[:80]}"
            )
        j, value = position(opened, "columns", one["column"]), one.get("value")
        if value is None:
            now.pop(j, None)
        elif (
            isinstance(value, bool)
            or not isinstance(value, (int, float))
            or not np.isfinite(value)
            or abs(value) > 1e12
        ):
            raise Problem(
                422,
                f"value must be a number, or null to take it away, for column {one['column']!r}, "
                f"got {str(value)[:80]!r}",
            )
        else:
            now[j] = float(value)
    if not now:
        raise Problem(422, "at least one rating must be left, got none")
    at = np.array(sorted(now), np.int64)
    return at, np.array([now[j] for j in at.tolist()], opened.model.observed_.dtype)


def as_rows(opened: Opened, at: np.ndarray, values: np.ndarray) -> Observed:
    return Observed(np.array([0, len(at)]), at, values, opened.factors.n)


def recommend(library: Library, opened: Opened, asked: dict[str, Any], n: int) -> dict[str, Any]:
    """A list, for a row as it is or with its ratings changed; with a change, each column also has
    the rank that it had before."""
    begin = time.perf_counter()
    model, row, ratings = opened.model, asked.get("row"), asked.get("ratings")
    how = _how(opened, asked) | {"n": n}
    if row is None and ratings is None:
        raise Problem(422, "row or ratings must be given, an id, ratings, or both, got neither")
    if ratings is None:
        i = position(opened, "rows", row)
        found = _known(opened, i, how)
        low, high = _ends(opened, np.full(found.positions.shape[1], i), found)
        before = None
    else:
        x = as_rows(opened, *changed(opened, row, ratings))
        found = run_verb(lambda: model.recommend(X=x, **how))
        low = high = [None] * found.positions.shape[1]
        before = (
            None
            if row is None
            else _known(
                opened, position(opened, "rows", row), how | {"n": min(1000, max(n, 100))}
            ).positions[0]
        )
    kept = np.flatnonzero(found.positions[0] >= 0)
    ids, titles = named(library, opened, found.positions[0][kept])
    often = found.support if found.support is not None else np.zeros_like(found.positions)
    rank = (
        {} if before is None else {int(j): r + 1 for r, j in enumerate(before.tolist()) if j >= 0}
    )
    return {
        "by": found.by,
        "milliseconds": round(1e3 * (time.perf_counter() - begin), 2),
        "list": [
            {
                "rank": r + 1,
                "at": int(found.positions[0, p]),
                "column": ids[r],
                "title": titles[r],
                "score": float(found.scores[0, p]),
                "low": low[p],
                "high": high[p],
                "observations": int(often[0, p]),
                "before": rank.get(int(found.positions[0, p])),
            }
            for r, p in enumerate(kept.tolist())
        ],
    }


def _how(opened: Opened, asked: dict[str, Any]) -> dict[str, Any]:
    by = asked.get("by") or "auto"
    if by not in ("auto", "chance", "prediction"):
        raise Problem(422, f"by must be auto, chance or prediction, got {str(by)[:40]!r}")
    support = asked.get("min_support") or 0
    if type(support) is not int or support < 0:
        raise Problem(
            422, f"min_support must be a number of observations, got {str(support)[:40]!r}"
        )
    seen = asked.get("exclude_seen", True)
    if not isinstance(seen, bool):
        raise Problem(422, f"exclude_seen must be true or false, got {str(seen)[:40]!r}")
    by = order_of(opened) if by == "auto" else by
    return {"by": by, "min_support": support, "exclude_seen": seen}


def _known(opened: Opened, i: int, how: dict[str, Any]) -> Any:
    """The list of a row of the model; kept, since every change of a rating is compared with it."""
    return opened.recent.get(("list", i, *how.values()), lambda: _list_of(opened, i, how))


def _list_of(opened: Opened, i: int, how: dict[str, Any]) -> Any:
    if opened.lists is not None and how["by"] == "prediction" and not how["min_support"]:
        return opened.lists.best([i], how["n"], how["exclude_seen"])
    return run_verb(lambda: opened.model.recommend(opened.model.row_ids.names([i]), **how))


def _ends(opened: Opened, i: np.ndarray, found: Any) -> tuple[list[Any], list[Any]]:
    """Intervals of a list, where the model has a posterior; measured ones are the same for all
    columns and stand with the predictions."""
    if not hasattr(opened.model, "interval"):
        return [None] * len(i), [None] * len(i)
    j = np.maximum(found.positions[0], 0)
    low, high, _ = intervals(opened, i, j, found.scores[0], 0.9)
    return low, high


def why(library: Library, opened: Opened, asked: dict[str, Any], n: int) -> dict[str, Any]:
    """The shares of the observed entries in a prediction, for a row as it is or with its ratings
    changed."""
    model, row, ratings = opened.model, asked.get("row"), asked.get("ratings")
    j = position(opened, "columns", asked.get("column"))
    column = model.column_ids.names([j])[0]
    if ratings is None:
        i = position(opened, "rows", row)
        e = run_verb(lambda: model.explain(model.row_ids.names([i])[0], column, n))
    else:
        e = _explained(opened, row, ratings, column, n)
    at = np.array([model.column_ids.index_of(name) for name, _, _ in e.shares], np.int64)
    ids, titles = named(library, opened, at)
    shares = [
        {"column": a, "title": t, "value": float(v), "share": float(s)}
        for a, t, (_, v, s) in zip(ids, titles, e.shares)
    ]
    return {
        "prediction": e.prediction,
        "base": e.base,
        "shares": shares,
        "words": str(e).splitlines(),
    }


def _explained(opened: Opened, row: Any, ratings: Any, column: Any, n: int) -> Any:
    """An explanation after the change: the row is taken in by a copy of the model, whose other rows
    stay."""
    at, values = changed(opened, row, ratings)
    model = copy.copy(opened.model)
    ids = model.row_ids
    id = _free_id(ids) if row is None else ids.names([position(opened, "rows", row)])[0]
    own = np.array([id], np.int64 if ids.labels is None else ids.labels.dtype)
    x = Observed(np.array([0, len(at)]), at, values, opened.factors.n, own, opened.factors.columns)
    run_verb(lambda: model.update(x))
    return run_verb(lambda: model.explain(id, column, n))


def _free_id(labels: Any) -> Any:
    """An id that no row has."""
    if labels.labels is None:
        return labels.size
    if labels.kind == "integers":
        return int(labels.labels.max()) + 1
    if labels.kind == "dates":
        return labels.labels.max() + np.timedelta64(1, "D")
    return "what-if " + "x" * max(len(str(v)) for v in labels.labels[:1000])
