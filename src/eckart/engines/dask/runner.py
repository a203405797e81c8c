"""Blocks as tasks of a Dask cluster.

Data come in as tasks that can be run again, never scattered; a task is a pure function of its block
and of the arguments of one call. What a call needs and what it gives back goes through the process
that runs the solver, so a call is a graph of constant size with no past, and a lost worker costs
the tasks it had. Sums are merged on the workers in the tree of ``merging``: the same partition
gives the same bits, whoever worked on it.

What a worker works with: the CPU engine on one thread, and the arguments of a call as it uses
them.

DaskEngine: blocks of rows on a Dask cluster, whatever the data come in.
"""

from __future__ import annotations

import itertools
import mmap
import sys
import uuid
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, get_type_hints

import numpy as np

from eckart.clusters.client import (
    ClusterError,
    bytes_of,
    client_of,
    cluster_memory,
    counting,
    least_memory,
    load_dask,
)
from eckart.clusters.tasks import TIMES_OVER, HeldFuture, computed, later
from eckart.engines.blocks import spreading as work
from eckart.engines.blocks.engine import BlocksEngine
from eckart.engines.blocks.spreading import Join
from eckart.engines.cpu.engine import CpuEngine
from eckart.engines.host import Host, aligned
from eckart.engines.protocol import Engine
from eckart.engines.protocol.placed import Place, Refused, first_refused, raise_first
from eckart.matrix import Dense
from eckart.matrix_parts import Parts
from eckart.merging import FAN, folded

INLINE = 2**16
"""Bytes of shared arguments that go along with every task; more than that becomes a task of its
own, which a worker fetches once."""
MOST_LOOKED = 2**16
"""Blocks that a worker remembers to have looked at."""
KEPT = 0.4
"""Share of the cluster's memory that blocks may take for good; larger data are read again in every
pass. Workers spill from 0.6 on."""


class DaskRunner:
    """``client`` as in ``client_of``."""

    name = "dask"

    def __init__(self, client: Any = None, threads: int | None = None):
        load_dask()
        self.client = client_of(client, threads)
        self.version = version()
        self.prefix, self.calls = f"eckart-{uuid.uuid4().hex[:8]}", itertools.count()
        self.needs = 0.0
        # for the words of an error, when the first tasks end all workers at once
        least_memory(self.client)

    def place(
        self, parts: Parts, places: list[Place], weights: list[Any], entry_weights: list[Any]
    ) -> list[Any]:
        name = self._name("place")
        rows = max(at.rows for at in places)
        share = rows / max(1, sum(at.rows for at in places))
        stored = (
            rows * parts.n_columns * parts.dtype.itemsize
            if parts.kind == "dense"
            else share * (getattr(parts, "nbytes", None) or 0.0)
        )
        self.needs = max(self.needs, TIMES_OVER * stored)
        handles = [
            _Handle(source_of(parts, at), (at, w, e, name))
            for at, w, e in zip(places, weights, entry_weights)
        ]
        size = getattr(parts, "nbytes", None)
        # rows of a file are read through small buffers, out of the system's cache where it has them
        if (
            size is not None
            and size <= KEPT * cluster_memory(self.client)
            and not isinstance(handles[0].source, FileRows)
        ):
            self._hold(handles)
        return handles

    def derive(
        self,
        handles: list[Any],
        places: list[Place],
        do: Callable[..., Any],
        arguments: dict[str, Any],
        own: list[dict[str, Any]] | None = None,
    ) -> list[Any]:
        call = self._name(do)
        given: Any = (
            later(_same, f"{call}-shared", arguments) if bytes_of(arguments) > INLINE else arguments
        )
        made = [
            _Handle(
                later(_attempt, f"{call}-{at.number}", do, *h.block, at, given, mine, self.version)
            )
            for h, at, mine in zip(handles, places, own or [{} for _ in places])
        ]
        if own is None and handles[0].held is not None:
            self._hold(made)
        return made

    def turn(self, x: Any, cuts: np.ndarray, places: list[Place]) -> list[Any]:
        call, starts = self._name("turn"), [at.first for at in x.places]
        split = [
            later(
                _attempt,
                f"{call}-split-{at.number}",
                work.pieces,
                *h.block,
                at,
                {"cuts": cuts},
                {},
                self.version,
            )
            for h, at in zip(x.handles, x.places)
        ]
        made = []
        for at in places:
            pieces = [
                later(_item, f"{call}-piece-{i}-{at.number}", block, at.number)
                for i, block in enumerate(split)
            ]
            made.append(
                _Handle(later(_columns, f"{call}-{at.number}", x.kind, starts, x.shape[0], pieces))
            )
        self._hold(made)
        return made

    def call(
        self,
        handles: list[Any],
        places: list[Place],
        do: Callable[..., Any],
        shared: dict[str, Any],
        own: list[dict[str, Any]],
        join: Any,
        # left alone: a task may have to run again from the rows it was given
        into: np.ndarray | None = None,
    ) -> Any:
        size = bytes_of(shared)
        if size > INLINE:
            self._fits(size)

        def build(name: str) -> list[Any]:
            given: Any = shared
            if size > INLINE:
                given = later(_same, f"{name}-shared", shared)
            answers = [
                later(_attempt, f"{name}-{at.number}", do, *h.block, at, given, mine, self.version)
                for h, at, mine in zip(handles, places, own)
            ]
            if join == "sum":
                return [_merged(answers, name)]
            if join == ("rows", "sum"):  # large sums beside tall rows: they part on the workers
                rows = [
                    later(_item, f"{name}-rows-{at.number}", a, 0) for a, at in zip(answers, places)
                ]
                sums = [
                    later(_item, f"{name}-sums-{at.number}", a, 1) for a, at in zip(answers, places)
                ]
                return [*rows, _merged(sums, name)]
            return answers

        found = computed(self.client, build, lambda: self._name(do), self.needs)
        raise_first(found)
        if (traffic := counting()) is not None:
            traffic.add(
                len(self.client.scheduler_info(n_workers=-1)["workers"]), shared, own, found
            )
        if join == "sum":
            return found[0]
        if join == ("rows", "sum"):
            return _pair(do)(np.concatenate(found[:-1]), found[-1])
        joined = Join(join, sum(at.rows for at in places))
        for answer, at in zip(found, places):
            joined.add(answer, at.rows)
        return joined.joined()

    def _fits(self, size: int) -> None:
        """Arguments that all blocks share lie in every worker twice: as they came, and in fresh
        memory (``settled``)."""
        least = least_memory(self.client)
        if 2 * size > least:
            raise ClusterError(
                f"factors of {size / 2**30:.2f} GiB go to every worker, which holds "
                f"them twice, and a worker has {least / 2**30:.2f} GiB; use fewer "
                "components, or workers with more memory"
            )

    def _hold(self, handles: list[Any]) -> None:
        """Blocks that stay in the memory of the workers; one that is lost is made again by its
        task."""
        if not handles:
            return
        call = self._name("place")
        tasks = [
            h.source
            if h.how is None
            else later(_placed, f"{call}-{h.how[0].number}", h.source, *h.how)
            for h in handles
        ]
        kept = HeldFuture(self.client, tasks)
        for handle, held in zip(handles, kept.values):
            handle.held, handle.kept = held, kept

    def _name(self, do: Any) -> str:
        word = do if isinstance(do, str) else getattr(do, "name", None) or do.__name__
        return f"{self.prefix}-{next(self.calls)}-{word}"


class _Handle:
    """A block: what gives it, how that is placed (its place and weights, and the name of the
    matrix; None: it is placed), and the block itself while workers hold it, with what keeps it
    there."""

    def __init__(self, source: Any, how: tuple[Place, Any, Any, str] | None = None):
        self.source, self.how, self.held = source, how, None
        self.kept: HeldFuture | None = None

    @property
    def block(self) -> tuple[Any, Any]:
        """The block and how it is placed, as arguments of a task: reading, placing and working on
        it are one task, which leaves nothing but its answer."""
        return (self.source, self.how) if self.held is None else (self.held, None)


def _merged(parts: list[Any], name: str) -> Any:
    """One task for the sum, by the tree of ``merging``."""
    for level in itertools.count():
        if len(parts) == 1 and level:
            return parts[0]
        groups = [parts[i : i + FAN] for i in range(0, len(parts), FAN)]
        parts = [later(_folded, f"{name}-sum-{level}-{i}", group) for i, group in enumerate(groups)]
    raise AssertionError


class FileRows(NamedTuple):
    """Rows of a file that every worker can see."""

    path: str
    offset: int
    shape: tuple[int, int]
    dtype: np.dtype

    def read(self) -> Any:
        """As a memory map, of which the engine reads as much at a time as its caches hold."""
        return Dense(np.memmap(self.path, self.dtype, "r", self.offset, self.shape))


def source_of(parts: Any, at: Place) -> Any:
    """A part as a task or as a place in a file; one in memory goes along."""
    tasks = getattr(parts, "tasks", None)
    if tasks is not None:
        return tasks[at.number]
    whole = getattr(parts.matrix, "values", None)
    # a memory map as it was opened: slices of one keep the offset of the whole, so its own would be
    # wrong
    if (
        isinstance(whole, np.memmap)
        and isinstance(whole.base, mmap.mmap)
        and whole.filename is not None
        and whole.flags.c_contiguous
    ):
        offset = whole.offset + at.first * whole.strides[0]
        return FileRows(str(whole.filename), offset, (at.rows, whole.shape[1]), whole.dtype)
    return parts.load(at.number)


def version() -> str:
    """Of the package, in this process."""
    return sys.modules["eckart"].__version__


def _other_version(made_by: str) -> Refused:
    from distributed import get_worker

    words = (
        f"worker {get_worker().address} has eckart {version()}, this process has {made_by}; "
        "install the same version on both"
    )
    return Refused(False, words)


def _same(value: Any) -> Any:
    return value


def _item(answer: Any, i: int) -> Any:
    return answer if isinstance(answer, Refused) else answer[i]


def _folded(parts: list[Any]) -> Any:
    return first_refused(parts) or folded(parts)


def _pair(do: Any) -> Callable[..., Any]:
    """What a primitive of two parts returns: the record that the protocol names, or both as they
    are."""
    record_type = get_type_hints(getattr(Engine, do.name))["return"]
    return record_type if hasattr(record_type, "_fields") else lambda *both: both


def _placed(source: Any, at: Place, weights: Any, entry_weights: Any, name: str) -> Any:
    matrix = source.read() if isinstance(source, FileRows) else source
    host = work.placed(worker_engine(), matrix, at, weights, entry_weights)
    if isinstance(host, Host):
        host.inspected = (name, at.number) in _inspected
    return host


_inspected: set[tuple[str, int]] = set()
"""Blocks, by matrix and number, whose entries a task of this worker has found finite: a block that
is read again in every pass is looked at in the first."""


def _attempt(
    do: Callable[..., Any],
    block: Any,
    how: tuple[Any, ...] | None,
    at: Place,
    shared: dict[str, Any],
    own: dict[str, Any],
    made_by: str,
) -> Any:
    if made_by != version():
        return _other_version(made_by)
    host = block if how is None else _placed(block, *how)
    # some primitives overwrite the rows they are given, and a task may have to run again from the
    # same ones
    mine = {name: a.copy() if isinstance(a, np.ndarray) else a for name, a in own.items()}
    answer = work.attempt(worker_engine(), do, host, at, settled(shared) | mine)
    if how is not None and getattr(host, "checked", False):
        if len(_inspected) >= MOST_LOOKED:
            _inspected.clear()
        _inspected.add((how[3], how[0].number))
    return answer


def _columns(kind: str, starts: list[int], rows: int, pieces: list[Any]) -> Any:
    bad = first_refused(pieces)
    if bad is not None:
        return bad
    matrix, weights = work.columns_of(kind, starts, rows, pieces)
    return worker_engine().put(matrix, None, weights)


LARGE = 2**22
"""Bytes from which NumPy asks for large pages."""


@cache
def worker_engine() -> CpuEngine:
    """One thread, because a worker runs as many tasks as it has threads."""
    return CpuEngine(1)


def settled(shared: dict[str, Any]) -> dict[str, Any]:
    """Arguments that all blocks of a call share, once for each worker and call: large arrays in
    fresh memory, since what came through a socket lies on small pages and across cache lines, and
    kernels gather rows of it at random."""
    last = _settled[0]  # taken once: tasks of another fit may come between
    if last is None or last[0] is not shared:
        last = _settled[0] = shared, {name: _fresh(a) for name, a in shared.items()}
    return last[1]


_settled: list[Any] = [None]
"""The last arguments as they came, and as they are used."""


def _fresh(a: Any) -> Any:
    if not isinstance(a, np.ndarray):
        return a
    return roomy(a) if a.nbytes >= LARGE and a.flags.c_contiguous else aligned(a)


def roomy(a: np.ndarray) -> np.ndarray:
    """A copy that starts on a cache line, in memory that NumPy asks large pages for."""
    raw = np.empty(a.nbytes + 64, np.uint8)
    skip = -raw.ctypes.data % 64
    out = raw[skip : skip + a.nbytes].view(a.dtype).reshape(a.shape)
    out[...] = a
    return out


class DaskEngine(BlocksEngine):
    """``client``: a Dask client or the address of a scheduler; None takes the running client, else
    threads of this process.

    Matrices in memory are cut into at least ``cut`` blocks, so that a small one stays here.
    """

    name = "dask"

    def __init__(self, n_threads: int | None = None, client: Any = None, cut: int = 1):
        super().__init__(n_threads, DaskRunner(client, n_threads), cut)
