"""Array primitives on threads: blocks of rows are answered by ``arrays``, and what they give is
joined by the rule of the primitive (``blocks.spreading``). Blocks and lanes follow the shape alone,
so the bits do not depend on the threads."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from eckart.engines.blocks.spreading import RULES, attempt
from eckart.engines.cpu.small import is_small
from eckart.engines.host import Host, place
from eckart.engines.protocol.placed import Place, Refused, raise_first
from eckart.engines.row_blocks import THIN, block_count, block_rows, even_rows, jobs
from eckart.matrix import Dense, row_slice
from eckart.merging import added, alone
from eckart.scheduler import lanes_for, run_lanes
from eckart.trace import silent

LEAST = 128
"""Rows of a block at the least: a call of NumPy costs little against them."""
ENTRIES = 2**14
"""Stored entries that are worth a lane: some tenths of a millisecond."""


def by_rows(
    arrays: type,
    name: str,
    partial: Callable[..., int] | None = None,
    *,
    kernel: Any = None,
    filled: bool = False,
    unless: Callable[..., bool] | None = None,
) -> Any:
    """The array primitive on lanes, ``kernel`` in its place at the blocks of what is not small;
    ``partial`` numbers are the sums of a lane, by the arguments."""
    body, rule = getattr(arrays, name), RULES[name]
    declared, of_block = inspect.signature(body), kernel or body
    joins = rule.join if isinstance(rule.join, tuple) else (rule.join,)

    @functools.wraps(body)
    def primitive(self: Any, x: Any, *args: Any, **named: Any) -> Any:
        x = place(x)
        if is_small(x, self.small, filled) and not (unless and unless(self, x, *args, **named)):
            return body(self, x, *args, **named)
        given = declared.bind(self, x, *args, **named).arguments
        watch = given.pop("watch", silent)
        size = 0 if partial is None else 8 * partial(**given | {"x": x})
        del given["self"], given["x"]
        own = {key: given.pop(key) for key in rule.rows if given.get(key) is not None}
        work, count = _blocks(x)
        lanes = [_Lane() for _ in range(lanes_for(count, size))]
        rows = _Rows(x.shape[0])

        def do(_: Any, host: Host, **arguments: Any) -> Any:
            return of_block(self, host, **arguments)

        def step(lane: _Lane, job: Any, scratch: dict[str, Any]) -> None:
            start, many, fetch = job
            part = slice(start, start + many)
            host = _block(x, part, fetch, scratch)
            mine = {key: a[part] for key, a in own.items()}
            answer = attempt(self, do, host, Place(0, start, many), given | mine)
            lane.complete &= host.checked
            if isinstance(answer, Refused):
                rows.refused[start] = answer
                return
            each = answer if isinstance(rule.join, tuple) else (answer,)
            rows.kind = type(answer)
            for at, (how, found) in enumerate(zip(joins, each)):
                if how == "rows":
                    rows.put(at, start, found)
                elif how != "none":
                    lane.add(at, found, max if how == "max" else added)
            watch("reading rows", start + many, x.shape[0])

        run_lanes(work, lanes, step, self.threads)
        raise_first([rows.refused[start] for start in sorted(rows.refused)])
        x.checked = x.checked or all(lane.complete for lane in lanes)
        found: Any = [
            rows.joined(at) if how == "rows" else _total(lanes, at, max if how == "max" else added)
            for at, how in enumerate(joins)
        ]
        if not isinstance(rule.join, tuple):
            return found[0]
        return tuple(found) if rows.kind is tuple else rows.kind(*found)

    return primitive


def _blocks(x: Host) -> tuple[Any, int]:
    """Blocks of rows as jobs, and how many there are; many, where that is unknown."""
    if x.kind == "dense":
        height = even_rows(x.shape[0], block_rows(x.shape[1], x.dtype.itemsize, THIN), LEAST)
        return jobs(x.matrix, rows=height), block_count(x.shape[0], height)
    from eckart.engines.cpu.entries.sparse import balanced

    parts = balanced(x.matrix.indptr, lanes_for(x.nnz // ENTRIES))
    return [(a, b - a, None) for a, b in parts], len(parts)


def _block(x: Host, part: slice, fetch: Any, scratch: dict[str, Any]) -> Host:
    """Some rows as a matrix of their own, with their weights."""
    w = None if x.weights is None else x.weights[part]
    if x.kind == "dense":
        return Host(Dense(fetch(scratch)), w, checked=x.checked)
    m = replace(x.matrix, rows=None, columns=None)
    e = x.entry_weights
    e = None if e is None else e[m.indptr[part.start] : m.indptr[part.stop]]
    return Host(row_slice(m, part.start, part.stop), w, e, checked=True, turn=x.turn)


class _Lane:
    """The sums of a lane, in the order of its blocks."""

    def __init__(self) -> None:
        self.sums: dict[int, Any] = {}
        self.complete = True

    def add(self, at: int, found: Any, join: Any) -> None:
        self.sums[at] = join(self.sums[at], found) if at in self.sums else alone(found)


def _total(lanes: list[_Lane], at: int, join: Any) -> Any:
    found = [lane.sums[at] for lane in lanes if at in lane.sums]
    return functools.reduce(join, found) if found else None


class _Rows:
    """Rows of all blocks, each written to its place where their number is known."""

    def __init__(self, rows: int | None):
        self.rows, self.kind, self.lock = rows, tuple, threading.Lock()
        self.refused: dict[int, Refused] = {}
        self.whole: dict[int, np.ndarray] = {}
        self.parts: dict[int, dict[int, np.ndarray]] = {}

    def put(self, at: int, start: int, part: np.ndarray | None) -> None:
        if part is None:
            return
        if self.rows is None:
            self.parts.setdefault(at, {})[start] = np.array(part)
            return
        with self.lock:
            if at not in self.whole:
                self.whole[at] = np.empty((self.rows, *part.shape[1:]), part.dtype)
        self.whole[at][start : start + len(part)] = part

    def joined(self, at: int) -> np.ndarray | None:
        if at in self.parts:
            return np.concatenate([self.parts[at][start] for start in sorted(self.parts[at])])
        return self.whole.get(at)
