"""Search by id and title, among millions: all names are one text in which the asked one is found,
so that nothing is done for each name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from eckart.studio.maps import point
from eckart.studio.places import MapSide

MOST_HITS = 20_000
"""Places that are looked at: what is found more often than that is not found by searching."""


@dataclass(frozen=True, eq=False)
class Names:
    """All names in lower case, each between line ends; ``begins`` are their places in the text."""

    text: str
    begins: np.ndarray

    @classmethod
    def of(cls, side: MapSide) -> Names:
        ids = (
            [str(side.id_of(i)) for i in range(len(side))]
            if side.labels is None
            else [str(v) for v in side.labels.names(np.arange(len(side))).tolist()]
        )
        if side.called is not None:
            titles = side.called(np.array(side.labels.names(np.arange(len(side))), object))
            ids = [f"{id}\t{title}" for id, title in zip(ids, titles)]
        lower = [id.lower().replace("\n", " ") for id in ids]
        sizes = np.fromiter((len(id) + 1 for id in lower), np.int64, len(lower))
        return cls("\n" + "\n".join(lower) + "\n", np.cumsum(sizes) - sizes + 1)

    def places(self, asked: str) -> list[np.ndarray]:
        """Positions of names that are the asked one, that begin with it, and that hold it."""
        exact = (
            self._found(f"\n{asked}\n", 1)
            + self._found(f"\n{asked}\t", 1)
            + self._found(f"\t{asked}\n", 1)
        )
        first = self._found(f"\n{asked}", 1) + self._found(f"\t{asked}", 1)
        return [self._at(hits) for hits in (exact, first, self._found(asked, 0))]

    def _found(self, asked: str, step: int) -> list[int]:
        hits: list[int] = []
        at = self.text.find(asked)
        while at >= 0 and len(hits) < MOST_HITS:
            hits.append(at + step)
            at = self.text.find(asked, at + len(asked) - step)
        return hits

    def _at(self, hits: list[int]) -> np.ndarray:
        return np.unique(np.searchsorted(self.begins, np.asarray(hits, np.int64), side="right") - 1)


def found_by(side: MapSide, asked: str, n: int) -> dict[str, Any]:
    """The n names that fit best: the same, then beginnings, then any place; among equals the
    weightier. Without a text the weightiest."""
    asked = " ".join(asked.lower().split())[:200]
    if not asked:
        at = side.order[:n]
        return {"found": [_entry_of(side, int(i)) for i in at], "total": len(side)}
    cache = side.opened.kept if side.rows is None else side.rows.kept
    names = cache.get(("names", side.side), lambda: Names.of(side))
    weight = side.weights if side.weights is not None else np.zeros(len(side))
    ranked: list[int] = []
    seen: set[int] = set()
    parts = names.places(asked)
    for part in parts:
        for i in part[np.argsort(-weight[part], kind="stable")].tolist():
            if i not in seen:
                seen.add(i)
                ranked.append(i)
        if len(ranked) >= n:
            break
    return {"found": [_entry_of(side, i) for i in ranked[:n]], "total": len(parts[2])}


def _entry_of(side: MapSide, i: int) -> dict[str, Any]:
    weight = None if side.weights is None else float(side.weights[i])
    what = {"complete": "observations", "series": "observations", "embed": "count"}.get(
        side.opened.room, "weight"
    )
    return point(side, i) | {what: weight}
