"""A model that is open, the rows of a file in its columns, and a shelf for what is made of both."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from eckart.cli.reading import Reading
from eckart.errors import EckartError
from eckart.factors import (
    Basis,
    Components,
    Embedding,
    ItemWeights,
    LowRank,
    MixedColumns,
    Network,
    Series,
    Topics,
)
from eckart.matrix import Dense, Observed
from eckart.registry import BY_NAME
from eckart.serve.lists import Lists
from eckart.serve.problems import Problem
from eckart.studio.tables import Sheet


class RecentCache:
    """A few things by key, the least recently used given back first; what two ask for at once is
    made once."""

    def __init__(self, most: int):
        self.most, self.held, self.lock = most, OrderedDict[Any, Any](), threading.Lock()
        self.making: dict[Any, threading.Lock] = {}

    def get(self, key: Any, make: Callable[[], Any]) -> Any:
        with self.lock:
            if key in self.held:
                self.held.move_to_end(key)
                return self.held[key]
            mine = self.making.setdefault(key, threading.Lock())
        with mine:
            with self.lock:
                if key in self.held:
                    return self.held[key]
            try:
                made = make()
            finally:
                with self.lock:
                    self.making.pop(key, None)
            with self.lock:
                self.held[key] = made
                while len(self.held) > self.most:
                    self.held.popitem(last=False)
            return made


@dataclass(eq=False)
class OpenedRows:
    """The rows of a data file, in the columns of a model. ``sheet`` has all columns of the file,
    beside them; None for texts."""

    file: str
    matrix: Any
    reading: Reading
    sheet: Sheet | None
    names: list[Any] | None = None
    kept: RecentCache = field(default_factory=lambda: RecentCache(16))

    @property
    def count(self) -> int:
        return int(self.matrix.shape[0])

    def id_of(self, i: int) -> Any:
        """What row i is called: its id; else the text of a column that tells all rows apart; else
        its position."""
        own = getattr(self.matrix, "rows", None)  # an Arrow table has none
        ids = own if own is not None else self.names
        return i if ids is None else ids[i]

    def dense(self, at: Any) -> np.ndarray:
        """Some rows as numbers, with NaN where an entry is missing."""
        if isinstance(self.matrix, Dense):
            return np.asarray(self.matrix.array[at], np.float64)
        part = self.matrix.to_scipy()[at]
        values = part.toarray().astype(np.float64)
        if isinstance(self.matrix, Observed):
            seen = part.copy()
            seen.data = np.ones_like(seen.data)
            values[seen.toarray() == 0] = np.nan
        return values

    def part(self, at: np.ndarray) -> Any:
        """Some rows as the same kind of matrix."""
        if isinstance(self.matrix, Dense):
            return Dense(np.asarray(self.matrix.array[at]), None, self.matrix.columns)
        return type(self.matrix).from_scipy(self.matrix.to_scipy()[at], None, self.matrix.columns)


@dataclass(eq=False)
class Opened:
    """A model of the folder, ready to be asked."""

    file: str
    path: Path
    model: Any
    mark: Any
    kept: RecentCache = field(default_factory=lambda: RecentCache(32))
    recent: RecentCache = field(default_factory=lambda: RecentCache(64))

    @property
    def factors(self) -> Any:
        return self.model.fit_.factors

    @property
    def plan(self) -> dict[str, Any]:
        return self.model.fit_.plan

    @cached_property
    def verb(self) -> str:
        return verb_of(type(self.model).__name__)

    @cached_property
    def room(self) -> str:
        f = self.factors
        if isinstance(f, Topics):
            return "topics"
        if isinstance(f, Network):
            return "reduce" if hasattr(self.model, "inverse_transform") else "network"
        kinds = {
            Basis: "reduce",
            Components: "mixture",
            Embedding: "embed",
            ItemWeights: "complete",
            MixedColumns: "table",
            Series: "series",
        }
        if type(f) in kinds:
            return kinds[type(f)]
        assert isinstance(f, LowRank)
        return "complete" if hasattr(self.model, "recommend") else "parts"

    @property
    def needs_data(self) -> bool:
        """Whether rows are in a file of data, not in the model."""
        return self.room not in ("complete", "embed", "series")

    @cached_property
    def vectors(self) -> Any:
        """The vectors of an embedding, made once: a million words are looked up by a table of
        them."""
        return self.model.vectors_

    @cached_property
    def lists(self) -> Lists | None:
        return Lists.of(self.model)

    def column_names(self) -> list[Any]:
        names = self.factors.columns
        return [f"x{j}" for j in range(self.factors.n)] if names is None else list(names)

    def wants(self, *rooms: str) -> None:
        """Refuse a question that belongs to another room."""
        if self.room not in rooms:
            raise Problem(
                422,
                f"{self.file} must hold a model of {' or '.join(rooms)}, got a "
                f"{type(self.model).__name__}",
            )


def verb_of(name: str) -> str:
    """The verb that makes models of a class."""
    return BY_NAME[name].verb


def run_verb(do: Callable[..., Any], *given: Any) -> Any:
    """``do``, with an error of eckart as a problem in its words."""
    try:
        return do(*given)
    except EckartError as error:
        raise Problem(422, " ".join(str(error).split())) from None
    except (OSError, MemoryError) as error:
        raise Problem(422, f"{type(error).__name__}: {error}") from None
