"""Blocks as tasks of a Dask cluster.

Data come in as tasks that can be run again, never scattered; a task is a pure function of its block and of the arguments of one call. What a call needs and
what it gives back goes through the process that runs the solver, so a call is a graph of constant size with no past, and a lost worker costs the tasks it
had. Sums are merged on the workers in the tree of ``engines.blocks.rules``: the same partition gives the same bits, whoever worked on it.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from eckart.engines.blocks import work
from eckart.engines.blocks.rules import FAN, Join, folded
from eckart.engines.blocks.work import Place, Refused, first_refused, raise_first
from eckart.engines.dask.client import ClusterError, client_of, cluster_memory, load_dask

INLINE = 2**16
"""Bytes of shared arguments that go along with every task; more than that becomes a task of its own, which a worker fetches once."""
KEPT = 0.4
"""Share of the cluster's memory that blocks may take for good; larger data are read again in every pass. Workers spill from 0.6 on."""
ROUNDS = 6
"""How often a call is made anew after workers died under it; Dask itself runs a task four times before it gives up on it."""
PATIENCE = 90.0
"""Seconds without a single worker after which the cluster counts as gone: a nanny starts a worker again within some seconds."""


class DaskRunner:
    """``client`` as in ``client_of``."""

    name = "dask"

    def __init__(self, client: Any = None, threads: int | None = None):
        load_dask()
        self.client = client_of(client, threads)
        self.prefix, self.calls = f"eckart-{uuid.uuid4().hex[:8]}", itertools.count()

    def place(self, parts: Any, places: list[Place], weights: list[Any], entry_weights: list[Any]) -> list[Any]:
        call = self._name("place")
        source = [_task_of(parts, at, f"{call}-read") for at in places]
        made = [
            _later(_placed, f"{call}-{at.number}", task, at, w, e)
            for task, at, w, e in zip(source, places, weights, entry_weights)
        ]
        size = getattr(parts, "nbytes", None)
        kept = size is not None and size <= KEPT * cluster_memory(self.client)
        return self._handles(made, kept)

    def derive(self, handles: list[Any], places: list[Place], do: Callable[..., Any], arguments: dict[str, Any]) -> list[Any]:
        call = self._name(do)
        made = [_later(_attempt, f"{call}-{at.number}", do, h.task, at, arguments, {}) for h, at in zip(handles, places)]
        return self._handles(made, handles[0].held is not None)

    def turn(self, x: Any, cuts: np.ndarray, places: list[Place]) -> list[Any]:
        call, starts = self._name("turn"), [at.first for at in x.places]
        split = [_later(_attempt, f"{call}-split-{at.number}", work.pieces, h.task, at, {"cuts": cuts}, {}) for h, at in zip(x.handles, x.places)]
        made = []
        for at in places:
            pieces = [_later(_item, f"{call}-piece-{i}-{at.number}", block, at.number) for i, block in enumerate(split)]
            made.append(_later(_columns, f"{call}-{at.number}", x.kind, starts, x.shape[0], pieces))
        return self._handles(made, True)

    def call(
        self, handles: list[Any], places: list[Place], do: Callable[..., Any], shared: dict[str, Any], own: list[dict[str, Any]], join: Any
    ) -> Any:
        def build(name: str) -> list[Any]:
            given: Any = shared
            if _size(shared) > INLINE:
                given = _later(_same, f"{name}-shared", shared)
            answers = [
                _later(_attempt, f"{name}-{at.number}", do, h.task, at, given, mine) for h, at, mine in zip(handles, places, own)
            ]
            if join == "sum":
                return [_merged(answers, name)]
            if join == ("rows", "sum"):  # large sums beside tall rows: they part on the workers
                rows = [_later(_item, f"{name}-rows-{at.number}", a, 0) for a, at in zip(answers, places)]
                sums = [_later(_item, f"{name}-sums-{at.number}", a, 1) for a, at in zip(answers, places)]
                return [*rows, _merged(sums, name)]
            return answers

        found = self._run(build, handles, do)
        raise_first(found)
        if join == "sum":
            return found[0]
        if join == ("rows", "sum"):
            return _pair(do)(np.concatenate(found[:-1]), found[-1])
        joined = Join(join)
        for answer in found:
            joined.add(answer)
        return joined.joined()

    def _handles(self, tasks: list[Any], kept: bool) -> list[Any]:
        handles = [_Handle(task) for task in tasks]
        if kept:
            self._hold(handles)
        return handles

    def _hold(self, handles: list[Any]) -> None:
        """Blocks that stay in the memory of the workers; one that is lost is made again by its task."""
        with quiet():
            for handle, held in zip(handles, self.client.persist([h.lazy for h in handles], optimize_graph=False)):
                handle.held = held

    def _name(self, do: Any) -> str:
        word = do if isinstance(do, str) else getattr(do, "name", None) or do.__name__
        return f"{self.prefix}-{next(self.calls)}-{word}"

    def _run(self, build: Callable[[str], list[Any]], handles: list[Any], do: Any) -> list[Any]:
        """The values of the tasks; made anew, under other names, when workers died under them."""
        distributed = load_dask()
        lost: BaseException | None = None
        for _ in range(ROUNDS):
            name = self._name(do)
            futures: list[Any] = []
            try:
                with quiet():
                    futures = self.client.compute(build(name), optimize_graph=False)
                self._wait(futures, name)
                return self.client.gather(futures)
            except distributed.KilledWorker as error:
                lost = error
                held = [h for h in handles if h.held is not None]
                for handle in held:
                    handle.held = None
                del futures
                self._hold(held)
            except KeyboardInterrupt:
                self.client.cancel(futures, force=True)
                raise
            except (distributed.client.FuturesCancelledError, distributed.CancelledError, OSError) as error:
                lost = error
                if self.client.status != "running":
                    raise self._gone() from None
        raise self._worn_out(lost, handles)

    def _wait(self, futures: list[Any], name: str) -> None:
        """Until all are done, or the cluster is gone."""
        distributed = load_dask()
        alone_since: float | None = None
        while True:
            try:
                with self.client.as_current():
                    distributed.wait(futures, timeout=2)
                return
            except TimeoutError:
                if self.client.status != "running":
                    raise self._gone() from None
                if self.client.scheduler_info(n_workers=-1)["workers"]:
                    alone_since = None
                else:
                    alone_since = alone_since or time.monotonic()
                    if time.monotonic() - alone_since > PATIENCE:
                        self.client.cancel(futures, force=True)
                        raise ClusterError(
                            f"the cluster at {self.client.scheduler.address} has had no worker for {PATIENCE:.0f} seconds; start workers and call again"
                        ) from None

    def _gone(self) -> ClusterError:
        address = getattr(getattr(self.client, "scheduler", None), "address", "its address")
        return ClusterError(
            f"the connection to the Dask scheduler at {address} was lost; start the cluster again and repeat the call (with checkpoint= it goes on from "
            "the last state it kept)"
        )

    def _worn_out(self, lost: BaseException | None, handles: list[Any]) -> ClusterError:
        limits = [w["memory_limit"] for w in self.client.scheduler_info(n_workers=-1)["workers"].values() if w["memory_limit"]]
        most = f" A worker has {min(limits) / 2**30:.2f} GiB: partitions of at most {min(limits) / 2**20 / 8:.0f} MiB would do." if limits else ""
        return ClusterError(
            f"tasks on blocks of the data ended their workers again and again ({lost}); most often a partition is too large for a worker's memory.{most}"
        )


class _Handle:
    """A block: the task that makes it, and the block itself while workers hold it."""

    def __init__(self, lazy: Any):
        self.lazy, self.held = lazy, None

    @property
    def task(self) -> Any:
        return self.lazy if self.held is None else self.held


def quiet() -> Any:
    """Arguments of a call travel in its graph; that is meant, and not worth a warning."""
    import dask

    return dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"})


def _later(do: Callable[..., Any], key: str, *args: Any) -> Any:
    from dask import delayed

    return delayed(do, pure=False, traverse=False)(*args, dask_key_name=key)


def _merged(parts: list[Any], name: str) -> Any:
    """One task for the sum, by the tree of ``rules``."""
    for level in itertools.count():
        if len(parts) == 1 and level:
            return parts[0]
        groups = [parts[i : i + FAN] for i in range(0, len(parts), FAN)]
        parts = [_later(_folded, f"{name}-sum-{level}-{i}", group) for i, group in enumerate(groups)]
    raise AssertionError


def _task_of(parts: Any, at: Place, name: str) -> Any:
    """A part as a task that reads it; one in memory goes along."""
    tasks = getattr(parts, "tasks", None)
    if tasks is not None:
        return tasks[at.number]
    matrix = parts.load(at.number)
    values = getattr(matrix, "values", None)
    if isinstance(values, np.memmap) and values.filename is not None and values.flags.c_contiguous:
        return _later(_file_rows, f"{name}-{at.number}", str(values.filename), values.offset, values.shape, values.dtype)
    return matrix


def _size(arguments: dict[str, Any]) -> int:
    """Bytes of the arrays among arguments, those inside records included."""
    total = 0
    for value in arguments.values():
        if isinstance(value, np.ndarray):
            total += value.nbytes
        elif isinstance(value, tuple) or hasattr(value, "__dict__"):
            inside = value if isinstance(value, tuple) else vars(value).values()
            total += sum(each.nbytes for each in inside if isinstance(each, np.ndarray))
    return total


@cache
def _engine() -> Any:
    """The inner engine of a worker: one thread, because a worker runs as many tasks as it has threads."""
    from eckart.engines.cpu.engine import CpuEngine

    return CpuEngine(1)


def _same(value: Any) -> Any:
    return value


def _item(answer: Any, i: int) -> Any:
    return answer if isinstance(answer, Refused) else answer[i]


def _folded(parts: list[Any]) -> Any:
    return first_refused(parts) or folded(parts)


def _pair(do: Any) -> Callable[..., Any]:
    """What a primitive of two parts returns."""
    from eckart.engines.protocol import Pass

    return Pass if getattr(do, "name", "") == "hals_pass" else lambda *both: both


def _file_rows(path: str, offset: int, shape: tuple[int, int], dtype: np.dtype) -> Any:
    from eckart.matrix import Dense

    with open(path, "rb") as file:
        file.seek(offset)
        return Dense(np.fromfile(file, dtype, shape[0] * shape[1]).reshape(shape))


def _placed(matrix: Any, at: Place, weights: Any, entry_weights: Any) -> Any:
    return work.placed(_engine(), matrix, at, weights, entry_weights)


def _attempt(do: Callable[..., Any], host: Any, at: Place, shared: dict[str, Any], own: dict[str, Any]) -> Any:
    # some primitives overwrite the rows they are given, and a task may have to run again from the same ones
    mine = {name: a.copy() if isinstance(a, np.ndarray) else a for name, a in own.items()}
    return work.attempt(_engine(), do, host, at, shared | mine)


def _columns(kind: str, starts: list[int], rows: int, pieces: list[Any]) -> Any:
    bad = first_refused(pieces)
    if bad is not None:
        return bad
    matrix, weights = work.columns_of(kind, starts, rows, pieces)
    return _engine().put(matrix, None, weights)
