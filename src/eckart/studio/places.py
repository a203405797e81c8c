"""Sides of a model that have a place in a plane: rows on components, rows and columns of a
completion on its strongest directions, words, documents.

reduce     codes of the rows of the data
complete   P S^1/2 and Q S^1/2 of the factors U V^T = P S Q^T
topics     principal components of the square roots of the documents' shares (their distances are
Hellinger's)
parts      shares of the parts in each row
mixture    the columns of the data themselves
table      principal components of the expected hidden numbers of rows
embed      principal components of the unit vectors
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from eckart.decompositions import eigh
from eckart.serve.problems import Problem
from eckart.studio.library import Library
from eckart.studio.opened import Opened, OpenedRows

AXES = 12
"""Directions that are computed for a map; more are rarely looked at, and each is 4 bytes a
point."""
DIRECTIONS_FROM = 100_000
"""Rows, evenly spaced, from which the directions of a map are found: more would turn them by less
than one can see."""
BLOCK = 2**16
"""Rows of vectors that are multiplied at a time."""


@dataclass(eq=False)
class MapSide:
    """Points with names. ``axes`` is n x a (single precision), ``weights`` say which names are
    written first; ``numbers`` and ``groups`` colour them."""

    opened: Opened
    side: str
    axes: np.ndarray
    keys: list[str]
    titles: list[str]
    shares: np.ndarray | None = None
    rows: OpenedRows | None = None
    labels: Any = None
    called: Any = None
    weights: np.ndarray | None = None
    numbers: dict[str, Any] = field(default_factory=dict)
    groups: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.axes)

    @cached_property
    def order(self) -> np.ndarray:
        """Positions by falling weight."""
        if self.weights is None:
            return np.arange(len(self))
        return np.argsort(-self.weights, kind="stable")

    def axis(self, key: Any, what: str) -> np.ndarray:
        return self.axes[:, self.at(key, what)]

    def at(self, key: Any, what: str) -> int:
        if key not in self.keys:
            raise Problem(
                422, f"{what} must be one of {', '.join(self.keys[:30])}, got {str(key)[:80]!r}"
            )
        return self.keys.index(key)

    def id_of(self, i: int) -> Any:
        if self.labels is not None:
            return self.labels.names(np.array([i]))[0]
        return self.rows.id_of(i) if self.rows is not None else i

    def title_of(self, i: int) -> str | None:
        return (
            None if self.called is None else str(self.called(np.array([self.id_of(i)], object))[0])
        )

    def colours(self) -> list[str]:
        """All that points can be coloured by."""
        own = [*self.groups, *self.numbers]
        sheet = self.rows.sheet if self.rows is not None else None
        return own + (
            [] if sheet is None else [c["name"] for c in sheet.columns if c["name"] not in own]
        )


def side_of(library: Library, opened: Opened, data: str | None, side: str | None) -> MapSide:
    """A side of a model, computed once."""
    known = {"complete": ("columns", "rows"), "embed": ("words",)}.get(opened.room, ("rows",))
    side = side or known[0]
    if side not in known:
        raise Problem(
            422,
            f"side must be {' or '.join(known)} for a {type(opened.model).__name__}, got "
            f"{side[:40]!r}",
        )
    if opened.room in ("network", "series"):
        raise Problem(422, f"a {type(opened.model).__name__} has no map")
    if not opened.needs_data:
        make = {"complete": _completion, "embed": _words}[opened.room]
        return opened.kept.get(("side", side), lambda: make(library, opened, side))
    rows = library.rows(opened, data)
    made = {
        "table": _table_rows,
        "reduce": _reduction,
        "topics": _documents,
        "parts": _parts,
        "mixture": _mixture,
    }[opened.room]
    return rows.kept.get(("side", side), lambda: made(opened, rows))


def codes_of(opened: Opened, rows: OpenedRows) -> np.ndarray:
    """transform of all rows, kept; posteriors of a mixture."""
    do = opened.model.predict_proba if opened.room == "mixture" else opened.model.transform
    return rows.kept.get("codes", lambda: np.asarray(do(rows.matrix)))


def _reduction(opened: Opened, rows: OpenedRows) -> MapSide:
    codes = codes_of(opened, rows)
    count = min(codes.shape[1], max(AXES, 2))
    ratio = np.asarray(getattr(opened.model, "explained_variance_ratio_", ()))
    shares_shown = [
        f" ({ratio[i]:.1%})" if len(ratio) == codes.shape[1] else "" for i in range(count)
    ]
    axes = np.ascontiguousarray(codes[:, :count], np.float32)
    if count == 1:
        axes = np.column_stack([axes, np.zeros(len(axes), np.float32)])
    keys = [str(i + 1) for i in range(axes.shape[1])]
    titles = [
        f"component {i + 1}{shares_shown[i] if i < count else ''}" for i in range(axes.shape[1])
    ]
    away = np.sqrt((axes[:, :2].astype(np.float64) ** 2).sum(axis=1))
    numbers = {f"component:{i + 1}": codes[:, i] for i in range(count)}
    shares = ratio[:count] if len(ratio) == codes.shape[1] else None
    return MapSide(opened, "rows", axes, keys, titles, shares, rows, weights=away, numbers=numbers)


def _documents(opened: Opened, rows: OpenedRows) -> MapSide:
    from eckart.studio.topics import grouped_shares, groups_of

    shares = codes_of(opened, rows)
    groups = groups_of(opened)
    own = grouped_shares(shares, groups)
    axes, kept = principal_axes(np.sqrt(np.maximum(shares, 0)).astype(np.float32), AXES)
    keys = [str(i + 1) for i in range(axes.shape[1])]
    names = [g.title for g in groups]
    return MapSide(
        opened,
        "rows",
        axes,
        keys,
        [f"direction {k}" for k in keys],
        kept,
        rows,
        weights=own.max(axis=1),
        groups={"topic": (own.argmax(axis=1), names)},
        numbers={f"share of {g.title}": own[:, z] for z, g in enumerate(groups[:AXES])},
    )


def _parts(opened: Opened, rows: OpenedRows) -> MapSide:
    codes = codes_of(opened, rows)
    scale = np.asarray(opened.model.components_, np.float64).sum(axis=1)
    weight = codes * scale
    share = weight / np.maximum(weight.sum(axis=1, keepdims=True), np.finfo(float).tiny)
    count = min(codes.shape[1], AXES)
    axes = np.ascontiguousarray(weight[:, :count], np.float32)
    if count == 1:
        axes = np.column_stack([axes, np.zeros(len(axes), np.float32)])
    keys = [str(i + 1) for i in range(axes.shape[1])]
    names = [f"part {z + 1}" for z in range(codes.shape[1])]
    return MapSide(
        opened,
        "rows",
        axes,
        keys,
        [f"part {k}" for k in keys],
        None,
        rows,
        weights=share.max(axis=1),
        groups={"part": (share.argmax(axis=1), names)},
        numbers={f"part:{z + 1}": weight[:, z] for z in range(count)},
    )


def _mixture(opened: Opened, rows: OpenedRows) -> MapSide:
    q = codes_of(opened, rows)
    names = [str(c) for c in opened.column_names()][:200]
    axes = np.ascontiguousarray(rows.dense(slice(None))[:, : len(names)], np.float32)
    return MapSide(
        opened,
        "rows",
        axes,
        names,
        names,
        None,
        rows,
        weights=q.max(axis=1),
        groups={"component": (q.argmax(axis=1), [str(z + 1) for z in range(q.shape[1])])},
        numbers={"certainty": q.max(axis=1)}
        | {f"component:{z + 1}": q[:, z] for z in range(min(q.shape[1], AXES))},
    )


def _table_rows(opened: Opened, rows: OpenedRows) -> MapSide:
    codes = codes_of(opened, rows)
    axes, kept = principal_axes(np.ascontiguousarray(codes, np.float32), AXES)
    keys = [str(i + 1) for i in range(axes.shape[1])]
    numbers = {f"hidden number {z + 1}": codes[:, z] for z in range(min(codes.shape[1], AXES))}
    return MapSide(
        opened, "rows", axes, keys, [f"direction {k}" for k in keys], kept, rows, numbers=numbers
    )


def _completion(library: Library, opened: Opened, side: str) -> MapSide:
    from eckart.plots.complete import principal
    from eckart.studio.complete import titles_of
    from eckart.studio.hidden_errors import means_of

    f, model = opened.factors, opened.model
    if getattr(f, "left", None) is None or not hasattr(f, "mean") or not f.k:
        raise Problem(
            422, f"{opened.file} holds no factors, so its rows and columns have no place in a map"
        )
    count = min(AXES, f.k, *f.shape)
    both = opened.kept.get("principal", lambda: principal(f, count))
    axes = np.ascontiguousarray(both[0 if side == "rows" else 1], np.float32)
    if axes.shape[1] == 1:
        axes = np.column_stack([axes, np.zeros(len(axes), np.float32)])
    keys = [str(i + 1) for i in range(axes.shape[1])]
    x = model.observed_
    counts = np.asarray(x.row_counts() if side == "rows" else x.column_counts())
    bias = f.row_bias if side == "rows" else f.column_bias
    numbers = {"observations": counts.astype(np.float64), "mean value": means_of(x, side)} | (
        {} if bias is None else {"bias": bias}
    )
    labels = model.row_ids if side == "rows" else model.column_ids
    called = titles_of(library, opened) if side == "columns" else None
    return MapSide(
        opened,
        side,
        axes,
        keys,
        [f"direction {k}" for k in keys],
        None,
        None,
        labels,
        called,
        counts.astype(np.float64),
        numbers,
    )


def _words(library: Library, opened: Opened, side: str) -> MapSide:
    v = opened.vectors
    axes, kept = principal_axes(v.unit, AXES)
    keys = [str(i + 1) for i in range(axes.shape[1])]
    weights = (
        np.arange(len(v), 0, -1, dtype=np.float64)
        if v.counts is None
        else np.asarray(v.counts, np.float64)
    )
    numbers = {"length": np.sqrt(np.einsum("ij,ij->i", v.vectors, v.vectors))}
    if v.counts is not None:
        numbers = {"log10 of the count": np.log10(np.maximum(weights, 1))} | numbers
    return MapSide(
        opened,
        "words",
        axes,
        keys,
        [f"direction {k}" for k in keys],
        kept,
        None,
        v._labels,
        None,
        weights,
        numbers,
    )


def principal_axes(x: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Leading principal components of the rows of x, and their shares of the variance: the
    eigenvectors of X^T X - N m m^T, by blocks without a copy. Rows of length 1 (unit vectors, roots
    of shares) lose nothing by the difference that a picture would show.

    >>> axes, share = principal_axes(np.array([[0.0, 0.0], [2.0, 0.0], [4.0, 0.0]], np.float32), 2)
    >>> axes[:, 0].tolist(), share.round(3).tolist()
    ([-2.0, 0.0, 2.0], [1.0, 0.0])
    """
    some = x[:: max(1, len(x) // DIRECTIONS_FROM)]
    n, count = x.shape[1], max(1, len(some))
    gram, mean = np.zeros((n, n)), np.zeros(n)
    for a in range(0, len(some), BLOCK):
        part = some[a : a + BLOCK]
        gram += part.T @ part
        mean += np.ones(len(part), x.dtype) @ part
    mean /= count
    values, vectors = eigh(gram - count * np.outer(mean, mean))
    values, vectors = np.clip(values[::-1], 0, None), vectors[:, ::-1]
    vectors = vectors[:, : max(2, min(most, n))]
    sign = np.where(
        vectors[np.abs(vectors).argmax(axis=0), np.arange(vectors.shape[1])] < 0, -1.0, 1.0
    )
    turned = vectors * sign
    axes = np.empty((len(x), vectors.shape[1]), np.float32)
    for a in range(0, len(x), BLOCK):
        axes[a : a + BLOCK] = x[a : a + BLOCK] @ turned.astype(x.dtype)
    axes -= (mean @ turned).astype(np.float32)
    if axes.shape[1] == 1:
        axes, values = (
            np.column_stack([axes, np.zeros(len(axes), np.float32)]),
            np.append(values, 0.0),
        )
    return axes, values[: axes.shape[1]] / (values.sum() or 1.0)
