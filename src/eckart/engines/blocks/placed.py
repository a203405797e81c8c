"""A placed matrix as blocks of rows, and the runner that works on them in this process, one block
after another."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from eckart.engines.blocks import spreading as work
from eckart.engines.blocks.far import FarEntries, stored
from eckart.engines.blocks.spreading import Join
from eckart.engines.protocol.placed import Place, Refused
from eckart.matrix_blocks import even_cuts
from eckart.matrix_parts import Parts
from eckart.scheduler import give_back


@dataclass(eq=False)
class BlockMatrix:
    """A placed matrix (see ``engines.protocol.placed``) as blocks of rows; ``runner`` works on
    them: ``Here``, or another class with the same methods."""

    kind: str
    n_columns: int
    dtype: np.dtype
    places: list[Place]
    handles: list[Any]
    runner: Any
    rows: np.ndarray | None = None
    columns: np.ndarray | None = None
    weights: np.ndarray | None = None
    weighted: bool = False
    kept: dict[str, Any] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, int]:
        return self.places[-1].first + self.places[-1].rows, self.n_columns

    @cached_property
    def counts(self) -> np.ndarray:
        return self.each(work.row_counts, join="rows")

    @cached_property
    def column_counts(self) -> np.ndarray:
        return self.each(work.column_counts, join="sum")

    @property
    def nnz(self) -> int:
        return int(self.counts.sum())

    @cached_property
    def entry_starts(self) -> np.ndarray:
        """Where the entries of each block start among all."""
        ends = np.concatenate([[0], np.cumsum(self.counts, dtype=np.int64)])
        return np.array([ends[at.first] for at in self.places] + [ends[-1]])

    def each(
        self,
        do: Callable[..., Any],
        shared: dict[str, Any] | None = None,
        own: list[dict[str, Any]] | None = None,
        join: Any = "rows",
        into: np.ndarray | None = None,
    ) -> Any:
        """``do`` of every block, joined."""
        return self.runner.call(
            self.handles,
            self.places,
            do,
            shared or {},
            own or [{} for _ in self.places],
            join,
            into,
        )

    def stored(self, scale: float, dtype: Any) -> FarEntries:
        """The stored values times ``scale``, which stay where they are."""
        return stored(self, scale, dtype)

    def derived(
        self,
        do: Callable[..., Any],
        kind: str | None = None,
        own: list[dict[str, Any]] | None = None,
        **arguments: Any,
    ) -> BlockMatrix:
        """Another matrix of the same rows, columns, weights and labels; ``own`` are arguments of
        each block."""
        handles = self.runner.derive(self.handles, self.places, do, arguments, own)
        other = BlockMatrix(
            kind or self.kind,
            self.n_columns,
            self.dtype,
            self.places,
            handles,
            self.runner,
            self.rows,
            self.columns,
            self.weights,
            self.weighted,
        )
        if "counts" in self.__dict__ and (kind or self.kind) == self.kind:
            other.__dict__["counts"] = self.counts
        return other

    @cached_property
    def T(self) -> BlockMatrix:
        turned = None if self.weighted else self.kept.get("turned")
        if turned is None:
            cuts = even_cuts(self.column_counts, len(self.places))
            places = [
                Place(i, int(a), int(b - a)) for i, (a, b) in enumerate(itertools.pairwise(cuts))
            ]
            handles = self.runner.turn(self, cuts, places)
        else:
            places, none = places_of(turned), [None] * len(turned.lengths)
            handles = self.runner.place(turned, places, none, none)
        other = BlockMatrix(
            self.kind,
            self.shape[0],
            self.dtype,
            places,
            handles,
            self.runner,
            self.columns,
            self.rows,
            None,
            self.weighted,
        )
        other.__dict__["T"], other.__dict__["counts"] = self, self.column_counts
        return other


def places_of(parts: Parts) -> list[Place]:
    """Where the parts stand that have rows."""
    starts = np.concatenate([[0], np.cumsum(parts.lengths)])
    return [Place(p, int(starts[p]), int(n)) for p, n in enumerate(parts.lengths) if n]


class Here:
    """Blocks in this process, one after another, each on all threads of the inner engine. Blocks
    are read again for every pass, except those that fit into ``room`` bytes, which are kept. A
    handle stands for a block (a ``Host``, or what was refused when it was placed)."""

    name = "blocks"

    def __init__(self, engine: Any, room: float = float("inf")):
        self.engine, self.room = engine, room

    def place(
        self, parts: Parts, places: list[Place], weights: list[Any], entry_weights: list[Any]
    ) -> list[Any]:
        """A handle for each part."""

        def load(at: Place, w: Any, e: Any) -> Callable[[], Any]:
            return lambda: work.placed(self.engine, parts.load(at.number), at, w, e)

        return [_Loaded(load(at, w, e), self) for at, w, e in zip(places, weights, entry_weights)]

    def derive(
        self,
        handles: list[Any],
        places: list[Place],
        do: Callable[..., Any],
        arguments: dict[str, Any],
        own: list[dict[str, Any]] | None = None,
    ) -> list[Any]:
        """Handles of other blocks made of these, by arguments that all share and, where given,
        their own: such blocks belong to one pass and are not kept."""

        def make(handle: Any, at: Place, mine: dict[str, Any]) -> Callable[[], Any]:
            return lambda: work.attempt(self.engine, do, handle(), at, arguments | mine)

        made = [
            make(handle, at, mine)
            for handle, at, mine in zip(handles, places, own or [{} for _ in places])
        ]
        return list(made) if own is not None else [_Loaded(each, self) for each in made]

    def call(
        self,
        handles: list[Any],
        places: list[Place],
        do: Callable[..., Any],
        shared: dict[str, Any],
        own: list[dict[str, Any]],
        join: Any,
        into: np.ndarray | None = None,
    ) -> Any:
        """``do`` of every block with the arguments that all share and its own, joined; the first
        refusal in the order of blocks is raised. ``into`` is an array that the first answer may
        overwrite, block by block."""
        found, gaps = Join(join, sum(at.rows for at in places), into), None
        with ThreadPoolExecutor(1) as ahead:  # the next block is read while this one is worked on
            coming = ahead.submit(handles[0])
            for i, (at, mine) in enumerate(zip(places, own)):
                host = coming.result()
                if i + 1 < len(handles):
                    coming = ahead.submit(handles[i + 1])
                answer = work.attempt(self.engine, do, host, at, shared | mine)
                if isinstance(answer, Refused):
                    if not answer.gaps:
                        raise answer.error()
                    gaps = gaps or answer  # an infinity further on would count more
                elif gaps is None:
                    found.add(answer, at.rows)
                host = answer = None  # neither this block nor its answer lies beside the next
        if gaps is not None:
            raise gaps.error()
        answer = found.joined()
        if self.room < float("inf"):
            # blocks of a pass leave holes of their size, and the next pass needs other sizes
            give_back()
        return answer

    def turn(self, x: BlockMatrix, cuts: np.ndarray, places: list[Place]) -> list[Any]:
        """Handles of ranges of columns, as rows of the transpose."""
        starts = [at.first for at in x.places]
        split = [
            work.attempt(self.engine, work.pieces, handle(), at, {"cuts": cuts})
            for handle, at in zip(x.handles, x.places)
        ]
        made = [
            work.columns_of(x.kind, starts, x.shape[0], [block[j] for block in split])
            for j in range(len(places))
        ]
        hosts = [self.engine.put(matrix, None, w) for matrix, w in made]
        return [_Loaded(itertools.repeat(host).__next__, self) for host in hosts]


class _Loaded:
    """A block that is loaded when it is needed, and kept while the runner has room."""

    def __init__(self, load: Callable[[], Any], runner: Here):
        self.load, self.runner, self.host = load, runner, None

    def __call__(self) -> Any:
        if self.host is not None:
            return self.host
        host = self.load()
        size = size_of(host)
        if size <= self.runner.room:
            self.runner.room -= size
            self.host = host
        return host


def size_of(host: Any) -> int:
    """Bytes of a block."""
    m = getattr(host, "matrix", None)
    if m is None:
        return 0
    return (
        m.array.nbytes
        if hasattr(m, "values")
        else m.indptr.nbytes + m.indices.nbytes + m.data.nbytes
    )
