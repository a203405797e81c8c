"""The room of vectors: neighbours among a million, analogies, the odd one out, and two models side
by side.

Neighbours are exact: one pass over the unit vectors in single precision, which is bounded by the
speed of memory.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from eckart.embed.neighbours import nearest
from eckart.embed.table import unit_rows
from eckart.query.ids import parse_ids
from eckart.serve.lists import _least
from eckart.serve.problems import Problem
from eckart.studio.library import Library
from eckart.studio.opened import Opened, run_verb
from eckart.studio.places import MapSide, codes_of
from eckart.studio.tables import cell

COMPARED = 2000
"""Ids whose neighbours are compared between two models: the most frequent that both have."""


def one(opened: Opened, word: Any) -> Any:
    """A word as the kind of id that the vectors have; an unknown one is refused with those near to
    it."""
    v = opened.vectors
    if isinstance(word, bool) or not isinstance(word, (str, int, float)) or word == "":
        raise Problem(422, f"word must be a word or an id, got {str(word)[:80]!r}")
    id = parse_ids(np.array([word], object), v._labels)[0]
    run_verb(
        lambda: v._find(np.array([id], object) if isinstance(id, str) else np.array([id]), "error")
    )
    return id


def neighbours(side: MapSide, i: int, n: int) -> dict[str, Any]:
    """The nearest points of a side to one of them: by the cosine of vectors or factors, by the
    distance of codes for rows of a reduction."""
    begin = time.perf_counter()
    if side.opened.room == "mixture":
        raise Problem(
            422, "rows of a mixture have no neighbours by their shares; look at its components"
        )
    if side.opened.room in ("reduce", "table"):
        assert side.rows is not None
        best, scores = _by_distance(np.asarray(codes_of(side.opened, side.rows)), i, n)
    else:
        unit = (
            side.opened.kept.get(("unit", side.side), lambda: _unit(side))
            if side.rows is None
            else side.rows.kept.get("unit", lambda: _unit(side))
        )
        best, scores = by_cosine(unit, i, n)
    took = round(1e3 * (time.perf_counter() - begin), 2)
    listed = [
        {
            "at": int(j),
            "id": cell(side.id_of(int(j))),
            "title": side.title_of(int(j)),
            "score": float(s),
        }
        for j, s in zip(best, scores)
        if j >= 0
    ]
    return {
        "of": {"at": i, "id": cell(side.id_of(i)), "title": side.title_of(i)},
        "milliseconds": took,
        "neighbours": listed,
    }


def _unit(side: MapSide) -> np.ndarray:
    """Vectors of length 1 in single precision."""
    if side.opened.room == "embed":
        vectors = side.opened.vectors.unit
    elif side.opened.room == "complete":
        f = side.opened.factors
        vectors = unit_rows(f.left if side.side == "rows" else f.right)
    else:
        assert side.rows is not None
        vectors = unit_rows(
            np.sqrt(np.maximum(codes_of(side.opened, side.rows), 0))
            if side.opened.room == "topics"
            else codes_of(side.opened, side.rows)
        )
    return np.ascontiguousarray(vectors, np.float32)


def by_cosine(unit: np.ndarray, i: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The n rows of the largest cosine with row i, itself left out: one product of a matrix and a
    vector, and the maxima of its parts.

    >>> by_cosine(np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8], [0.0, 0.0]], np.float32), 1, 1)
    (array([2]), array([0.8], dtype=float32))
    """
    n = min(n, len(unit) - 1)
    if n < 1 or not unit[i].any():
        return np.zeros(0, np.int64), np.zeros(0, unit.dtype)
    scores = unit @ unit[i]
    scores[i] = -np.inf
    few = np.flatnonzero(scores >= _least(scores[None], n)[0])
    best = few[np.argsort(-scores[few], kind="stable")[:n]]
    return best, np.clip(scores[best], -1, 1)


def _by_distance(codes: np.ndarray, i: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    away = ((codes - codes[i]) ** 2).sum(axis=1)
    away[i] = np.inf
    n = min(n, len(away) - 1)
    if n < 1:
        return np.zeros(0, int), np.zeros(0)
    best = np.argpartition(away, n - 1)[:n]
    best = best[np.argsort(away[best], kind="stable")]
    return best, -np.sqrt(away[best])


def analogy(opened: Opened, a: Any, b: Any, c: Any, n: int) -> dict[str, Any]:
    """a is to b as c is to which words?"""
    begin = time.perf_counter()
    v = opened.vectors
    words = [one(opened, word) for word in (a, b, c)]
    found = run_verb(lambda: v.analogy([words[0]], [words[1]], [words[2]], n=n))
    at = found.positions[0]
    listed = [
        {"at": int(j), "id": cell(w), "score": float(s)}
        for j, w, s in zip(at, found.words[0], found.scores[0])
        if j >= 0
    ]
    return {"milliseconds": round(1e3 * (time.perf_counter() - begin), 2), "answers": listed}


def odd(opened: Opened, words: list[Any]) -> dict[str, Any]:
    """The word whose cosine with the mean of all is least."""
    if not 3 <= len(words) <= 1000:
        raise Problem(422, f"words must be 3 to 1000, got {len(words)}")
    v = opened.vectors
    ids = [one(opened, word) for word in words]
    rows = np.array([v[id] for id in ids], np.float64)
    unit = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
    mean = unit.mean(axis=0)
    scores = unit @ (mean / max(float(np.linalg.norm(mean)), 1e-300))
    return {
        "odd": cell(run_verb(lambda: v.odd_one_out(ids))),
        "scores": [{"id": cell(i), "score": float(s)} for i, s in zip(ids, scores)],
    }


# two models


def match(side: MapSide, other: MapSide, at: np.ndarray) -> list[int | None]:
    """Positions in the other model of the same ids."""
    found = _found(side, other, at)
    return [int(j) if j >= 0 else None for j in found]


def _found(side: MapSide, other: MapSide, at: np.ndarray) -> np.ndarray:
    place = _index(other)
    return np.array([place.get(_key(side.id_of(i)), -1) for i in at.tolist()], np.int64)


def _index(side: MapSide) -> dict[Any, int]:
    cache = side.opened.kept if side.rows is None else side.rows.kept
    return cache.get(
        ("index", side.side), lambda: {_key(side.id_of(i)): i for i in range(len(side))}
    )


def _key(id: Any) -> Any:
    """Ids of two models are the same where they are written alike."""
    return str(id.item() if isinstance(id, np.generic) and id.dtype.kind != "M" else id)


def side_by_side(left: MapSide, right: MapSide, i: int, n: int) -> dict[str, Any]:
    """Neighbours of one id in both models."""
    j = match(left, right, np.array([i]))[0]
    if j is None:
        raise Problem(
            422,
            f"{left.id_of(i)!r} is not in {right.opened.file}; choose one that both models have",
        )
    ours, theirs = neighbours(left, i, n)["neighbours"], neighbours(right, j, n)["neighbours"]
    shared = [e["id"] for e in ours if _key(e["id"]) in {_key(o["id"]) for o in theirs}]
    return {
        "left": ours,
        "right": theirs,
        "shared": shared,
        "overlap": len(shared) / max(1, min(len(ours), len(theirs))),
    }


def moved(
    library: Library, left: MapSide, right: MapSide, n: int, near: int = 10
) -> dict[str, Any]:
    """Ids whose neighbours differ most between the two models, and those whose neighbours stay,
    among the frequent ones of both."""
    if left.rows is not None or right.rows is not None:
        raise Problem(422, "both models must hold their ids: embeddings, or completions")
    common = left.order[:50_000]
    there = _found(left, right, common)
    both = np.flatnonzero(there >= 0)[:COMPARED]
    if len(both) < 3:
        raise Problem(
            422,
            f"{left.opened.file} and {right.opened.file} must have at least 3 ids in common, "
            f"got {len(both)}",
        )
    a, b = common[both], there[both]
    # neighbours among the common ids only, so that a larger vocabulary does not count as a
    # difference
    lists = []
    for side, at in ((left, a), (right, b)):
        unit = side.opened.kept.get(("unit", side.side), lambda: _unit(side))[at]  # noqa: B023
        lists.append(nearest(unit, unit, min(near, len(at) - 1), np.arange(len(at)))[0])
    share = np.array([len(set(x.tolist()) & set(y.tolist())) / len(x) for x, y in zip(*lists)])
    weight = left.weights if left.weights is not None else np.ones(len(left))
    order = np.argsort(share, kind="stable")

    def points_of(at: np.ndarray) -> list[dict[str, Any]]:
        return [
            {
                "at": int(a[p]),
                "other": int(b[p]),
                "id": cell(left.id_of(int(a[p]))),
                "title": left.title_of(int(a[p])),
                "overlap": float(share[p]),
                "count": float(weight[a[p]]),
            }
            for p in at
        ]

    return {
        "moved": points_of(order[:n]),
        "stable": points_of(order[::-1][:n]),
        "looked_at": len(a),
        "overlap": float(share.mean()),
    }
