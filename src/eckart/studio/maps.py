"""Maps: coordinates and colours as raw numbers for a raster, names for the window that is looked
at, what lies under a pointer or in a lasso, and its table."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import numpy as np

from eckart.io.tables.write import FORMULAS
from eckart.loading import pa, pc
from eckart.serve.problems import Problem
from eckart.studio.places import MapSide
from eckart.studio.tables import cell

MOST_CATEGORIES = 20
"""Groups that get a colour of their own; the rest are "others"."""
WEIGHTIEST = 20_000
"""Points of a window among which names are chosen."""
TABLE_COLUMNS = 60
"""Columns of the data that a table of a selection shows; an export has all."""
MOST_POLYGON = 10_000
"""Corners of a lasso."""


def coordinates(side: MapSide, x: Any, y: Any) -> tuple[dict[str, Any], bytes]:
    """x0 y0 x1 y1 ... as little-endian float32, and what the axes are."""
    both = [side.axis(key, name) for key, name in ((x, "x"), (y, "y"))]
    out = np.empty((len(side), 2), "<f4")
    out[:, 0], out[:, 1] = both
    about = {"n": len(side)} | {
        name: {
            "name": side.titles[side.at(key, name)],
            "low": _edge(values, np.nanmin),
            "high": _edge(values, np.nanmax),
        }
        for name, key, values in (("x", x, both[0]), ("y", y, both[1]))
    }
    kept = (
        None
        if side.shares is None
        else float(
            sum(side.shares[side.at(k, "x")] for k in {x, y} if side.at(k, "x") < len(side.shares))
        )
    )
    return about | {"kept": kept}, out.tobytes()


def colours(side: MapSide, by: Any) -> tuple[dict[str, Any], bytes]:
    """A float32 for each point: a number, or the position of its category."""
    if by in side.groups:
        codes, names = side.groups[by]
        return _categories(np.asarray(codes), [str(n) for n in names])
    if by in side.numbers:
        return _numbers(side.numbers[by])
    sheet = side.rows.sheet if side.rows is not None else None
    if sheet is None or by not in sheet.rows.column_names:
        raise Problem(
            422, f"by must be one of {', '.join(side.colours()[:40])}, got {str(by)[:80]!r}"
        )
    column = sheet.rows.column(by)
    kind = column.type
    if (pa.types.is_floating(kind) or pa.types.is_decimal(kind)) or (
        pa.types.is_integer(kind) and pc.count_distinct(column).as_py() > MOST_CATEGORIES
    ):
        return _numbers(np.asarray(column.cast("float64").to_numpy(), np.float64))
    if pa.types.is_temporal(kind):
        return _numbers(pc.cast(column.cast("timestamp[s]"), "int64").to_numpy().astype(np.float64))
    coded = pc.dictionary_encode(column.cast("string")).combine_chunks()
    codes = coded.indices.fill_null(-1).to_numpy().astype(np.int64)
    return _categories(codes, [str(v) for v in coded.dictionary.to_pylist()])


def _numbers(values: Any) -> tuple[dict[str, Any], bytes]:
    numbers = np.asarray(values, np.float64)
    finite = numbers[np.isfinite(numbers)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    # half a percent at either end is left to saturate: one outlier must not take the colours from
    # all others
    inner = (
        np.quantile(finite[:: max(1, len(finite) // 200_000)], [0.005, 0.995])
        if len(finite)
        else [0.0, 1.0]
    )
    about = {
        "kind": "number",
        "low": low,
        "high": high,
        "inner_low": float(inner[0]),
        "inner_high": float(inner[1]),
    }
    return about, numbers.astype("<f4").tobytes()


def _categories(codes: np.ndarray, names: list[str]) -> tuple[dict[str, Any], bytes]:
    counts = np.bincount(codes[codes >= 0], minlength=len(names))
    order = np.argsort(-counts, kind="stable")
    shown = order if len(order) <= MOST_CATEGORIES else order[: MOST_CATEGORIES - 1]
    place = np.full(len(names) + 1, len(shown), np.float32)
    place[shown] = np.arange(len(shown))
    place[-1] = np.nan  # of -1: missing
    categories = [{"name": names[z], "count": int(counts[z])} for z in shown]
    if len(shown) < len(order):
        categories.append({"name": "others", "count": int(counts[order[len(shown) :]].sum())})
    return {"kind": "category", "categories": categories}, place[codes].astype("<f4").tobytes()


def labels(
    side: MapSide, x: Any, y: Any, window: tuple[float, float, float, float], n: int
) -> list[dict[str, Any]]:
    """Names for a window (left, right, bottom, top): the weightiest point of each cell of a grid of
    about n cells."""
    px, py = side.axis(x, "x"), side.axis(y, "y")
    left, right, bottom, top = window
    inside = (px >= left) & (px <= right) & (py >= bottom) & (py <= top)
    at = side.order[inside[side.order]][:WEIGHTIEST]
    if not len(at):
        return []
    across = max(1, round(np.sqrt(n * 1.6)))  # a window is wider than high
    down = max(1, n // across)
    box = (
        np.minimum(((px[at] - left) / max(right - left, 1e-30) * across).astype(int), across - 1)
        * down
    )
    box += np.minimum(((py[at] - bottom) / max(top - bottom, 1e-30) * down).astype(int), down - 1)
    first = np.sort(np.unique(box, return_index=True)[1])[:n]
    weight = side.weights if side.weights is not None else np.ones(len(side))
    return [
        {
            "at": int(i),
            "name": side.title_of(i) or cell(side.id_of(i)),
            "x": float(px[i]),
            "y": float(py[i]),
            "weight": float(weight[i]),
        }
        for i in at[first].tolist()
    ]


def nearest_to(side: MapSide, x: Any, y: Any, place: Any) -> dict[str, Any]:
    """The point nearest to a place, distances in units of the extent of each axis."""
    if (
        not isinstance(place, list)
        or len(place) != 2
        or not all(isinstance(p, (int, float)) and np.isfinite(p) for p in place)
    ):
        raise Problem(422, f"place must be two numbers [x, y], got {str(place)[:80]}")
    px, py = side.axis(x, "x"), side.axis(y, "y")
    wide = (_edge(px, np.nanmax) - _edge(px, np.nanmin)) or 1.0
    high = (_edge(py, np.nanmax) - _edge(py, np.nanmin)) or 1.0
    away = ((px - np.float32(place[0])) / np.float32(wide)) ** 2 + (
        (py - np.float32(place[1])) / np.float32(high)
    ) ** 2
    if np.isnan(away).all():
        raise Problem(422, "no point has a place on these axes; choose others")
    i = int(np.nanargmin(away))
    return point(side, i) | {"x": cell(float(px[i])), "y": cell(float(py[i]))}


def point(side: MapSide, i: int) -> dict[str, Any]:
    return {
        "at": i,
        "id": cell(side.id_of(i)),
        "name": side.title_of(i) or cell(side.id_of(i)),
        "title": side.title_of(i),
    }


def inside(side: MapSide, x: Any, y: Any, polygon: Any) -> np.ndarray:
    """Positions of the points inside a polygon."""
    from matplotlib.path import Path as Outline

    corners = polygon if isinstance(polygon, list) else []
    good = 3 <= len(corners) <= MOST_POLYGON and all(
        isinstance(c, list)
        and len(c) == 2
        and all(
            isinstance(v, (int, float)) and not isinstance(v, bool) and np.isfinite(v) for v in c
        )
        for c in corners
    )
    if not good:
        raise Problem(
            422, f"polygon must be 3 to {MOST_POLYGON:,} corners [x, y], got {str(polygon)[:80]}"
        )
    edge = np.asarray(corners, np.float64)
    px, py = side.axis(x, "x"), side.axis(y, "y")
    (left, bottom), (right, top) = edge.min(axis=0), edge.max(axis=0)
    near = np.flatnonzero((px >= left) & (px <= right) & (py >= bottom) & (py <= top))
    return near[Outline(edge).contains_points(np.column_stack([px[near], py[near]]))]


def chosen(side: MapSide, asked: dict[str, Any]) -> np.ndarray:
    """The positions that a request names, one by one or by a lasso; all without either."""
    if asked.get("polygon") is not None:
        return inside(side, asked.get("x"), asked.get("y"), asked["polygon"])
    at = asked.get("at")
    if at is None:
        return np.arange(len(side))
    if not isinstance(at, list) or not all(type(i) is int and 0 <= i < len(side) for i in at):
        raise Problem(422, f"at must be positions of 0 to {len(side) - 1}, got {str(at)[:80]}")
    return np.asarray(at, np.int64)


def table(
    side: MapSide, at: np.ndarray, first: int, count: int, sort: Any, down: bool
) -> dict[str, Any]:
    """A page of the points of a selection."""
    names = _columns(side)[: TABLE_COLUMNS + 2]
    if sort is not None:
        if sort not in names:
            raise Problem(
                422, f"sort must be one of {', '.join(names[:40])}, got {str(sort)[:80]!r}"
            )
        at = at[_sorted(_values(side, sort, at), down)]
    page = at[first : first + count]
    columns = [[cell(v) for v in _values(side, name, page)] for name in names]
    return {
        "total": len(at),
        "first": first,
        "columns": names,
        "rows": [list(line) for line in zip(*columns)],
        "at": page.tolist(),
    }


def exported(side: MapSide, at: np.ndarray) -> Iterator[bytes]:
    """The selection as CSV, in blocks; texts that a spreadsheet would calculate get an apostrophe
    before them."""
    names = _columns(side)
    yield _line(names)
    for a in range(0, len(at), 10_000):
        part = at[a : a + 10_000]
        columns = [_values(side, name, part) for name in names]
        yield b"".join(_line([_plain(v) for v in line]) for line in zip(*columns))


def header(about: dict[str, Any]) -> dict[str, str]:
    """What goes with raw numbers, as a header."""
    return {"x-eckart": quote(json.dumps(about, ensure_ascii=False), safe="")}


def _columns(side: MapSide) -> list[str]:
    own = ["id", *(["title"] if side.called is not None else []), *side.groups, *side.numbers]
    sheet = side.rows.sheet if side.rows is not None else None
    if sheet is None and side.side == "rows" and side.opened.room == "mixture":
        own += side.keys
    return own + ([] if sheet is None else [n for n in sheet.rows.column_names if n not in own])


def _values(side: MapSide, name: str, at: np.ndarray) -> list[Any]:
    if name == "id":
        return [side.id_of(i) for i in at.tolist()]
    if name == "title" and side.called is not None:
        return list(side.called(np.array([side.id_of(i) for i in at.tolist()], object)))
    if name in side.groups:
        codes, names = side.groups[name]
        return [names[z] for z in np.asarray(codes)[at].tolist()]
    if name in side.numbers:
        return np.asarray(side.numbers[name])[at].tolist()
    if name in side.keys and (side.rows is None or side.rows.sheet is None):
        return side.axis(name, "column")[at].tolist()
    assert side.rows is not None
    assert side.rows.sheet is not None
    return side.rows.sheet.rows.column(name).take(at).to_pylist()


def _sorted(values: list[Any], down: bool) -> np.ndarray:
    """The order of values of one kind, missing ones last."""
    here = [i for i, v in enumerate(values) if v is not None and v == v]
    gone = [i for i, v in enumerate(values) if v is None or v != v]
    try:
        here.sort(key=lambda i: values[i], reverse=down)
    except TypeError:  # of several kinds
        here.sort(key=lambda i: str(values[i]), reverse=down)
    return np.asarray(here + gone, np.int64)


def _line(cells: list[Any]) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(cells)
    return out.getvalue().encode("utf-8", "replace")


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if value == value else ""
    if isinstance(value, str) and re.match(FORMULAS, value):
        return "'" + value
    return "" if value is None else value


def _edge(values: np.ndarray, of: Any) -> float:
    return float(of(values)) if len(values) and not np.isnan(values).all() else 0.0
