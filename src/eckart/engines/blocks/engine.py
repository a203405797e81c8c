"""BlocksEngine: ``CpuEngine`` for matrices in memory, and the same primitives as maps and sums over
blocks for those that come as parts.

Which of both a call is, its placed matrix says; where blocks are worked on, their runner says (in
this process, or on a cluster). Tall arrays stay with the process that runs the solver: they are the
whole state of a fit between two passes, so nothing that a lost worker held is missed. A pass sends
every block its rows of them and gets new ones back.
"""

from __future__ import annotations

import inspect
import itertools
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from eckart.clusters.client import blocks_of
from eckart.engines.blocks import far
from eckart.engines.blocks import spreading as work
from eckart.engines.blocks.placed import BlockMatrix, Here, places_of
from eckart.engines.blocks.spreading import RULES, Primitive, SpreadRule
from eckart.engines.cpu.engine import CpuEngine
from eckart.engines.host import Host
from eckart.engines.protocol import CountRows, Decomposition, Engine, PmiRule, RidgeRule, Sketch
from eckart.errors import InputError
from eckart.matrix import Dense, Matrix
from eckart.matrix_blocks import parts_of
from eckart.matrix_parts import MemoryParts, Parts
from eckart.trace import Watcher, silent

NOT_SENT = ("watch", "keeper")
"""Arguments that belong to the process that runs the solver."""
FEW_ROWS = 2**14
"""Rows of tall factors that are looked at in double precision at a time: there may be millions."""
SERIES = ("a table of time series", "fewer rows or times")
"""What needs all entries in one place, and what to do where there is no room."""


class BlocksEngine(CpuEngine):
    """``runner`` (None: this process) works on matrices that come as parts; with ``cut`` > 0 those
    in memory are cut too, into so many blocks or as many as keep a block below 32 MB (256 MB where
    they are a file)."""

    def __init__(self, n_threads: int | None = None, runner: Any = None, cut: int = 0):
        super().__init__(n_threads)
        self.runner, self.cut, self.reason = runner, cut, ""

    def put(
        self, matrix: Matrix, weights: np.ndarray | None = None, entry_weights: Any = None
    ) -> Any:
        if isinstance(matrix, (BlockMatrix, Host)):
            return matrix
        parts = parts_of(matrix)
        if parts is not None:
            return self._placed(parts, matrix, weights, entry_weights)
        parts = self._cut(matrix) if self.cut else None
        if parts is None:
            return super().put(matrix, weights, entry_weights)
        host = super().put(matrix, weights, entry_weights)  # checked here, once
        x = self._placed(parts, host.matrix, weights, entry_weights)
        x.kept["together"] = lambda: host
        return x

    def _cut(self, matrix: Matrix) -> MemoryParts | None:
        """A matrix in memory as parts; None where it is one block, which is not worth sending, or a
        stream."""
        if isinstance(matrix, Dense) and not matrix.in_memory:
            return None
        rows, size = matrix.shape[0], matrix.dtype.itemsize
        assert rows is not None
        stored = (
            rows * matrix.shape[1] * size
            if isinstance(matrix, Dense)
            else matrix.nnz * (size + 4) + 8 * rows
        )
        in_file = isinstance(matrix, Dense) and isinstance(matrix.values, np.memmap)
        step = -(-rows // max(self.cut, blocks_of(stored, in_file)))
        return MemoryParts(matrix, step) if step < rows else None

    def _runner(self, parts: Parts) -> Any:
        """The one that was asked for; else by the data: tasks of a cluster run there."""
        if self.runner is None and hasattr(parts, "tasks"):
            from eckart.engines.dask.runner import DaskRunner

            self.runner = DaskRunner(None, self.threads)
            self.name, self.reason = "dask", "auto: X is a Dask collection"
        if self.runner is None and getattr(parts, "turned", None) is not None:
            self.reason = (
                f"auto: the processors of this machine, on {len(parts.lengths)} shards of the "
                "disk, since the entries would take too much memory"
            )
        engine = CpuEngine(self.threads)
        engine.small, engine.whole = self.small, False
        return self.runner or Here(engine, getattr(parts, "room", float("inf")))

    def _placed(
        self, parts: Parts, matrix: Matrix, weights: Any, entry_weights: Any
    ) -> BlockMatrix:
        places = places_of(parts)
        w = None if weights is None else np.ascontiguousarray(weights, np.float64)
        runner = self._runner(parts)
        shown = matrix.rows, matrix.columns
        own = [None if w is None else w[at.first : at.first + at.rows] for at in places]
        x = BlockMatrix(parts.kind, parts.n_columns, parts.dtype, places, [], runner, *shown, w)
        # a function of each part, made where it is
        if entry_weights is None or callable(entry_weights):
            x.handles = runner.place(parts, places, own, [entry_weights] * len(places))
        else:
            x.handles = runner.place(parts, places, [None] * len(places), [None] * len(places))
            ends = x.entry_starts
            e = np.ascontiguousarray(entry_weights, parts.dtype)
            x.handles = runner.place(
                parts, places, own, [e[a:b] for a, b in itertools.pairwise(ends)]
            )
        x.weighted = w is not None or entry_weights is not None
        x.kept["turned"] = getattr(parts, "turned", None)
        return x

    def scaled(self, x: Any, factor: float) -> Any:
        return (
            x.derived(work.scaled, factor=factor)
            if isinstance(x, BlockMatrix)
            else super().scaled(x, factor)
        )

    def zero_filled(self, x: Any) -> Any:
        if not isinstance(x, BlockMatrix):
            return super().zero_filled(x)
        return x.derived(work.zero_filled, "counts") if x.kind == "observed" else x

    def linearised(
        self, x: Any, loss: Any, left: np.ndarray, right: np.ndarray, **at: Any
    ) -> tuple[Any, float]:
        if not isinstance(x, BlockMatrix):
            return super().linearised(x, loss, left, right, **at)
        of_rows = {"left": left} | {name: at.pop(name, None) for name in ("own", "row_steep")}
        made = x.derived(work.linearised, own=_by_places(x, of_rows), loss=loss, right=right, **at)
        made.weighted = True
        return made, self.loss_sums(x, loss, right=right, **of_rows, **at).value

    def augmented(
        self, x: Any, loss: Any, left: np.ndarray, right: np.ndarray, noise: Any, **at: Any
    ) -> Any:
        if not isinstance(x, BlockMatrix):
            return super().augmented(x, loss, left, right, noise, **at)
        of_rows = {"left": left} | {name: at.pop(name, None) for name in ("own", "row_steep")}
        mine = _by_places(x, of_rows)
        for each, (a, b) in zip(mine, itertools.pairwise(x.entry_starts)):
            each["noise"] = (
                (noise, int(a), int(b)) if isinstance(noise, tuple) else np.ravel(noise)[a:b]
            )
        return x.derived(work.augmented, own=mine, loss=loss, right=right, **at)

    def as_rows(self, tall: np.ndarray, x: Any) -> Any:
        return super().as_rows(tall, _weights_of(x))

    def factor_mass(self, factor: np.ndarray, x: Any = None) -> np.ndarray:
        return super().factor_mass(factor, _weights_of(x))

    def factor_sums(self, factor: np.ndarray, x: Any = None) -> Any:
        return super().factor_sums(factor, _weights_of(x))

    def sign_sums(self, factor: np.ndarray, x: Any = None) -> Any:
        return super().sign_sums(factor, _weights_of(x))

    def ridge_penalty(
        self, x: Any, rule: RidgeRule, factor: np.ndarray, bias: np.ndarray | None
    ) -> float:
        if not isinstance(x, BlockMatrix):
            return super().ridge_penalty(x, rule, factor, bias)
        ridge, bias_ridge = rule.ridges(x.counts)
        ridge, total = np.broadcast_to(ridge, len(factor)), 0.0
        for a in range(0, len(factor), FEW_ROWS):
            part = factor[a : a + FEW_ROWS].astype(np.float64)
            total += float(ridge[a : a + FEW_ROWS] @ np.einsum("ij,ij->i", part, part))
        return 0.5 * (
            total + (0.0 if bias is None else float(bias_ridge @ np.square(bias, dtype=np.float64)))
        )

    def _once(self, x: BlockMatrix, name: str, given: dict[str, Any]) -> dict[str, Any]:
        """What every block would make of the factors that all share, made once for the kernels of
        the CPU engine: they may have millions of rows."""
        from eckart.engines.cpu.ridge.schedule import turned_once, turns

        if name == "ridge_rows" and turns(given.get("base"), given.get("noise"), given["rule"]):
            return turned_once(given["right"], given["base"], self.threads)
        if name == "evidence_rows" and given.get("spread"):
            return {"gram": self.inner(given["right"], given["right"])}
        return {}

    def entries(self, x: Any) -> np.ndarray:
        return x.each(work.all_rows) if isinstance(x, BlockMatrix) else super().entries(x)

    def rows_at(self, x: Any, rows: np.ndarray | None = None) -> np.ndarray:
        if not isinstance(x, BlockMatrix):
            return super().rows_at(x, rows)
        if rows is None:
            return x.each(Primitive("rows_at"))
        ends = np.searchsorted(rows, [at.first for at in x.places] + [x.shape[0]])
        own = [{"rows": rows[a:b] - at.first} for at, a, b in zip(x.places, ends[:-1], ends[1:])]
        return x.each(work.some_rows, own=own)

    def gap_patterns(self, x: Any) -> list[tuple[np.ndarray, np.ndarray]]:
        if not isinstance(x, BlockMatrix):
            return super().gap_patterns(x)
        found = x.each(work.patterns, own=[{"first": at.first} for at in x.places], join="sum")
        groups: dict[bytes, tuple[list[np.ndarray], np.ndarray]] = {}
        for rows, mask in found:
            groups.setdefault(mask.tobytes(), ([], mask))[0].append(rows)
        return [(np.concatenate(rows), mask) for rows, mask in groups.values()]

    def sketch(self, x: Any, state: Sketch, watch: Watcher = silent) -> Sketch:
        if not isinstance(x, BlockMatrix):
            return super().sketch(x, state, watch)
        empty = Sketch(state.n, state.size, state.dtype, state.centered)
        return state.merge(x.each(work.sketched, {"empty": empty}, join="sum"))

    def by_columns(self, x: Any, data: Any) -> Any:
        if isinstance(data, far.FarEntries):
            return data  # in whichever order they are made
        if not isinstance(x, BlockMatrix):
            return super().by_columns(x, data)
        if "order" not in x.kept:
            x.kept["order"] = np.argsort(
                np.concatenate(x.each(work.column_indices, join="sum")), kind="stable"
            )
        return data[x.kept["order"]]

    def entry_times_t(self, x: Any, t_data: Any, y: np.ndarray) -> np.ndarray:
        if isinstance(t_data, far.FarEntries):
            return t_data.times_t(y)
        return (
            self.entry_times(x.T, t_data, y)
            if isinstance(x, BlockMatrix)
            else super().entry_times_t(x, t_data, y)
        )

    def mutual_information(self, x: Any, rule: PmiRule, dtype: Any) -> CountRows:
        if not isinstance(x, BlockMatrix):
            return super().mutual_information(x, rule, dtype)
        shared = {"columns": self.topic_totals(x), "rule": rule, "dtype": dtype}
        return CountRows(0, *x.each(work.information, shared, join=("rows", "rows", "rows")))

    def svd(self, x: Any, centered: bool) -> Decomposition:
        return super().svd(
            self._together(x, "svd_solver='svd'", "svd_solver='randomized'"), centered
        )

    def row_gram(self, x: Any, mean: np.ndarray | None) -> np.ndarray:
        return super().row_gram(
            self._together(x, "svd_solver='eigh' of few rows", "svd_solver='randomized'"), mean
        )

    def topic_chain(self, x: Any, words: np.ndarray, shares: Any, prior: Any, seed: int) -> Any:
        x = _not_by_blocks(x, "Gibbs sampling", "learning_method='cvb0', 'variational' or 'online'")
        return super().topic_chain(x, words, shares, prior, seed)

    def glove_table(self, x: Any, seed: int) -> Any:
        return super().glove_table(_not_by_blocks(x, "AdaGrad", "solver='als'"), seed)

    def chain_rows(self, x: Any, *args: Any, **named: Any) -> np.ndarray:
        """The rows are times, all of which follow one another: those of the matrix whose columns
        they are, in one place."""
        whole = self._together(x.T, *SERIES).T if isinstance(x, BlockMatrix) else x
        return super().chain_rows(whole, *args, **named)

    def _together(self, x: Any, what: str, instead: str) -> Any:
        """All blocks as one matrix of this process, where it has the memory."""
        if not isinstance(x, BlockMatrix):
            return x
        if "together" in x.kept:
            return x.kept["together"]()
        from eckart.engines.choose import available_memory

        size = (
            x.shape[0] * x.shape[1] * x.dtype.itemsize
            if x.kind == "dense"
            else x.nnz * (x.dtype.itemsize + 4)
        )
        if 3 * size > available_memory():  # the matrix, its centered copy and the decomposition
            raise InputError(
                f"{what} needs all entries in one place, about {3 * size / 2**30:.1f} "
                f"GiB, {available_memory() / 2**30:.1f} GiB are free; use {instead}"
            )
        return super().put(work.stacked(x.each(_listed, join="sum")), x.weights)


def _listed(engine: Any, host: Host) -> list[Matrix]:
    return [host.matrix]


def _by_places(x: Any, of_rows: dict[str, Any]) -> list[dict[str, Any]]:
    """Arrays with as many rows as x, cut into those of its parts."""
    return [
        {name: None if a is None else a[p.first : p.first + p.rows] for name, a in of_rows.items()}
        for p in x.places
    ]


def _weights_of(x: Any) -> Any:
    """A stand-in with the weights of the rows of x, where these alone are asked for."""
    if not isinstance(x, BlockMatrix):
        return x
    return Host(Dense(np.empty((x.shape[0], 1), x.dtype)), x.weights, checked=True)


def _not_by_blocks(x: Any, what: str, instead: str) -> Any:
    """The matrix in one piece, which it is in this process, or was before it was cut."""
    if isinstance(x, BlockMatrix) and "together" in x.kept:
        return x.kept["together"]()
    if isinstance(x, BlockMatrix):
        raise InputError(
            f"{what} walks through all entries in turn and cannot work on parts of the "
            f"data; use {instead}"
        )
    return x


def _spread(name: str, rule: SpreadRule) -> Callable[..., Any]:
    """The method of a primitive: as it is for a matrix in memory, else over blocks."""
    declared = inspect.signature(getattr(Engine, name))

    def method(self: Any, x: Any, *args: Any, **named: Any) -> Any:
        if not isinstance(x, BlockMatrix):
            if not self.cut or isinstance(x, Host):
                return getattr(super(BlocksEngine, self), name)(x, *args, **named)
            x = self.put(x)
            if isinstance(x, Host):
                return getattr(super(BlocksEngine, self), name)(x, *args, **named)
        answer = far.PRIMITIVES[name](x, *args, **named) if name in far.PRIMITIVES else None
        if answer is not None:
            return answer
        bound = declared.bind(self, x, *args, **named).arguments
        bound |= bound.pop("at", {})  # arguments that a family shares
        given = {key: value for key, value in bound.items() if key not in ("self", "x", *NOT_SENT)}
        given |= self._once(x, name, given)
        own: list[dict[str, Any]] = [{} for _ in x.places]
        last = x.kept.get("made", lambda: None)()
        into = last if last is not None and given.get(rule.inside) is last else None
        for key in (key for key in rule.rows + rule.entries if key in given):
            value = given[key]
            if key in rule.entries:
                cuts = (
                    None
                    if value is None
                    else [(int(a), int(b)) for a, b in zip(x.entry_starts[:-1], x.entry_starts[1:])]
                )
            else:
                cuts = (
                    [(at.first, at.first + at.rows) for at in x.places]
                    if _follows(value, key, x.shape[0])
                    else None
                )
            if cuts is not None:
                del given[key]
                for mine, (a, b) in zip(own, cuts):
                    mine[key] = value[a:b]
        answer = x.each(Primitive(name), given, own, rule.join, into)
        if rule.inside:
            x.kept["made"] = weakref.ref(answer[0] if isinstance(answer, tuple) else answer)
        bound.get("watch", silent)("reading rows", x.shape[0], x.shape[0])
        return answer

    method.__name__, method.__doc__ = name, getattr(Engine, name).__doc__
    return method


def _follows(value: Any, key: str, rows: int) -> bool:
    """Whether an argument has one row for each row of the matrix; k numbers of a topic model and
    one prior for all stand for every row."""
    if value is None or np.ndim(value) == 0 or len(value) != rows:
        return False
    return np.ndim(value) == 2 or key not in ("shares", "gamma", "prior")


def _in_one_place(name: str) -> Callable[..., Any]:
    """A primitive of time series: its tall arrays are as large as the table, which is in memory
    anyway."""

    def method(self: BlocksEngine, x: Any, *args: Any, **named: Any) -> Any:
        return getattr(CpuEngine, name)(self, self._together(x, *SERIES), *args, **named)

    method.__name__, method.__doc__ = name, getattr(Engine, name).__doc__
    return method


for _name in ("own_likelihood", "own_rows", "state_rows", "less_states"):
    setattr(BlocksEngine, _name, _in_one_place(_name))
for _name, _rule in RULES.items():
    setattr(BlocksEngine, _name, _spread(_name, _rule))
