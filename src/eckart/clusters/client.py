"""Which cluster: the one that was given, the running one, or threads of this process."""

from __future__ import annotations

import atexit
import os
from typing import Any

from eckart.errors import EckartError, MissingError

_own: list[Any] = []


class ClusterError(EckartError, RuntimeError):
    """The cluster, not the data, ended the work; the message says what is known and what to do."""


def load_dask() -> Any:
    """``distributed``, or the line that installs it."""
    try:
        import dask.array  # noqa: F401  (distributed alone could be there without it)
        import distributed
    except ImportError:
        raise MissingError(
            "engine='dask' needs Dask, which is not installed; pip install 'eckart[dask]'"
        ) from None
    return distributed


def client_of(given: Any = None, threads: int | None = None) -> Any:
    """A connected client: the given one (or the address of a scheduler), else the running one, else
    one of our own with threads of this process."""
    distributed = load_dask()
    if isinstance(given, str):
        try:
            return distributed.Client(given, timeout="20s")
        except (OSError, TimeoutError) as error:
            raise ClusterError(
                f"no Dask scheduler answers at {given} ({error}); start one, or check the address"
            ) from None
    if given is not None:
        return given
    try:
        return distributed.default_client()
    except ValueError:
        pass
    if not _own or _own[0].status != "running":
        import dask

        # a dashboard nobody asked for would take a port; processes would need a guarded main module
        with dask.config.set({"distributed.worker.memory.terminate": False}):
            made = distributed.Client(
                processes=False,
                n_workers=1,
                threads_per_worker=threads or os.cpu_count() or 1,
                dashboard_address=":0",
                set_as_default=False,
                memory_limit=0,
            )
        _own[:] = [made]
        atexit.register(made.close)
    return _own[0]


def least_memory(client: Any) -> float:
    """Bytes that the smallest worker may use, or, where all have just died, could when somebody
    last asked; infinite where none has a limit."""
    limits = [
        worker["memory_limit"] for worker in client.scheduler_info(n_workers=-1)["workers"].values()
    ]
    if limits:
        _least[client.id] = float(min((limit for limit in limits if limit), default=float("inf")))
    return _least.get(client.id, float("inf"))


_least: dict[str, float] = {}
"""The last answer for each client."""


def cluster_memory(client: Any) -> float:
    """Bytes that all workers together may use; infinite where none has a limit."""
    limits = [
        worker["memory_limit"] for worker in client.scheduler_info(n_workers=-1)["workers"].values()
    ]
    return float(sum(limits)) if limits and all(limits) else float("inf")
