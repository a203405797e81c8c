"""Tasks: made under a name of their own, run until their values are there, or until it is clear
that they will not be."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from contextlib import suppress
from operator import attrgetter
from typing import Any
from weakref import WeakSet

from eckart.clusters.client import ClusterError, least_memory, load_dask, waiting

ROUNDS = 6
"""How often tasks are sent anew after workers died under them; Dask itself runs a task four times
before it gives up on it."""
TIMES_OVER = 3.0
"""A task holds its block as it came, in working precision, and what it makes of it."""
RESPITE = 1.0
"""Seconds before tasks of the same name are sent again, so that the scheduler has let go of those
that failed."""
RECONNECT = 10.0
"""Seconds in which a client that was cut off may be connected again, which Dask tries by itself;
one whose scheduler died never is."""
PATIENCE = 300.0
"""Seconds without a single worker after which the cluster counts as gone: a nanny starts a worker
again within some seconds, a batch system within minutes."""


def later(do: Callable[..., Any], key: str, *args: Any) -> Any:
    """``do(*args)`` as a task; arguments that are tasks are replaced by their values."""
    from dask import delayed

    return delayed(do, pure=False, traverse=False)(*args, dask_key_name=key)


def quiet() -> Any:
    """Arguments of a call travel in its graph; that is meant, and not worth a warning."""
    import dask

    return dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"})


class HeldFuture:
    """Tasks whose ``values`` stay on the workers as long as somebody has this."""

    def __init__(self, client: Any, tasks: list[Any]):
        self.client, self.tasks, self.number = client, tasks, next(_numbers)
        self.values = self._sent()
        _held.add(self)

    def _sent(self) -> list[Any]:
        with quiet():
            return self.client.persist(self.tasks, optimize_graph=False)

    @staticmethod
    def all_of(client: Any) -> list[HeldFuture]:
        """In the order in which they were made."""
        return sorted((each for each in _held if each.client is client), key=attrgetter("number"))

    @staticmethod
    def dropped(client: Any) -> None:
        """All that a client holds is forgotten by the scheduler, failures included: it answers for
        a task that it gave up with the old failure while anybody, an earlier model say, wants
        something that is made of it."""
        client.cancel(
            [
                future
                for held in HeldFuture.all_of(client)
                for future in load_dask().futures_of(held.values)
            ],
            force=True,
        )

    @staticmethod
    def again(client: Any) -> None:
        """All that a client held: under the same names, which other tasks know them by, and one
        after another, since the later ones may be made of the earlier. One that cannot be made,
        since nobody has what it is made of, is no longer needed either."""
        distributed = load_dask()
        for held in HeldFuture.all_of(client):
            held.values = held._sent()
            with suppress(distributed.client.FuturesCancelledError, distributed.CancelledError):
                wait(client, distributed.futures_of(held.values))


_held: WeakSet[HeldFuture] = WeakSet()
_numbers = itertools.count()


def computed(
    client: Any, build: Callable[[str], list[Any]], name: Callable[[], str], needs: float = 0.0
) -> list[Any]:
    """The values of the tasks that ``build`` makes; made anew, under another name, when workers
    died under them or the client was cut off for a moment, after what they are made of. ``needs``
    is about what the largest of them takes, in bytes, where that is known."""
    distributed = load_dask()
    lost: BaseException | None = None
    away = False
    limit = least_memory(client)  # now: later there may be none
    for _ in range(ROUNDS):
        futures: list[Any] = []
        try:
            if away:
                HeldFuture.again(client)
                away = False
            with quiet():
                futures = client.compute(build(name()), optimize_graph=False)
            with waiting():
                wait(client, futures)
                return client.gather(futures)
        except distributed.KilledWorker as error:
            lost = error.with_traceback(
                None
            )  # its frames would hold the tasks, and Dask would answer with the old failure
            client.cancel(futures, force=True)
            del futures
            HeldFuture.dropped(client)
            away = True
            time.sleep(RESPITE)
        except KeyboardInterrupt:
            client.cancel(futures, force=True)
            raise
        except (
            distributed.client.FuturesCancelledError,
            distributed.CancelledError,
            OSError,
        ) as error:
            lost = error.with_traceback(None)
            if not _connected(client):
                raise _gone(client) from None
            del futures
            away = True
            time.sleep(RESPITE)
    if not isinstance(lost, distributed.KilledWorker):
        raise _gone(client) from None
    # a task holds the partition, a copy in working precision and what it makes of it; a quarter of
    # the memory is for all else
    most = (
        f". The largest takes about {needs / 2**20:.0f} MiB while it is worked on" if needs else ""
    )
    most += (
        f". A worker has {limit / 2**30:.2f} GiB: partitions of at most "
        f"{limit / 2**20 / 4:.0f} MiB would do"
        if limit < float("inf")
        else ""
    )
    why = str(lost).split(". ")[0]
    raise ClusterError(
        f"tasks on blocks of the data ended their workers again and again ({why}); most "
        f"often a partition is too large for a worker's memory{most}"
    ) from None


def wait(client: Any, futures: list[Any]) -> None:
    """Until all are done, or the cluster is gone."""
    distributed = load_dask()
    alone_since: float | None = None
    silent = False
    while True:
        try:
            with client.as_current():
                distributed.wait(futures, timeout=2)
            return
        except TimeoutError:
            if not _connected(client):
                raise _gone(client) from None
            before, silent = silent, not _answered(client)
            if before and silent:  # twice: it may just be about to be known
                client.loop.add_callback(
                    client.scheduler_comm.comm.abort
                )  # so that it connects anew, and tasks are sent again
            if client.scheduler_info(n_workers=-1)["workers"]:
                alone_since = None
                continue
            alone_since = alone_since or time.monotonic()
            if time.monotonic() - alone_since > PATIENCE:
                client.cancel(futures, force=True)
                raise ClusterError(
                    f"the cluster at {client.scheduler.address} has had no worker for "
                    f"{PATIENCE:.0f} seconds; start workers and call again"
                ) from None


def _connected(client: Any) -> bool:
    """Whether the client has its scheduler, or has it again soon."""
    end = time.monotonic() + RECONNECT
    while client.status == "connecting" and time.monotonic() < end:
        time.sleep(0.1)
    return client.status == "running"


def _answered(client: Any) -> bool:
    """Whether the scheduler knows the client, and how to tell it what is done. One that was cut off
    and came back at once may be forgotten with the connection it had: the scheduler takes its time
    to clear that away, by the client's name, which is the new one's, too. Such a client would wait
    for ever."""
    name = client.id

    def known(dask_scheduler: Any) -> bool:  # sent by value: a scheduler needs no eckart
        return name in dask_scheduler.clients and name in dask_scheduler.client_comms

    try:
        return bool(client.run_on_scheduler(known))
    except (ValueError, OSError):  # functions are not allowed there, or it is away
        return True


def _gone(client: Any) -> ClusterError:
    address = getattr(getattr(client, "scheduler", None), "address", "its address")
    return ClusterError(
        f"the connection to the Dask scheduler at {address} was lost; start the cluster "
        "again and repeat the call (with checkpoint= it goes on from the "
        "last state it kept)"
    )
