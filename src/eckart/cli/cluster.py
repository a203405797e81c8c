"""--workers and --cluster, which every command with --engine takes: a Dask cluster around the
command, and --engine dask in it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Annotated, Any

from eckart.cli.options import option
from eckart.errors import InputError, invalid


@dataclass
class ClusterOptions:
    """On many machines"""

    workers: Annotated[
        int | None,
        option(metavar="N", help="Compute on so many processes of this machine (Dask)."),
    ] = None
    cluster: Annotated[
        str | None, option(metavar="ADDRESS", help="Compute on the Dask cluster at this address.")
    ] = None

    def enter(self, own: dict[str, Any], groups: dict[str, Any]) -> AbstractContextManager[None]:
        """The cluster while the command runs, and the engine that uses it."""
        if self.workers is None and self.cluster is None:
            return nullcontext()
        if self.workers is not None and self.cluster is not None:
            raise InputError(
                "give --workers or --cluster, not both: a cluster of this machine, or a running one"
            )
        holder = own if "engine" in own else vars(groups["how"])
        if holder["engine"] not in ("auto", "dask"):
            name = "--workers" if self.cluster is None else "--cluster"
            raise invalid("--engine", holder["engine"], f"dask, or none, beside {name}")
        if self.workers is not None and self.workers < 1:
            raise invalid("--workers", self.workers, "a number of processes, 1 or more")
        holder["engine"] = "dask"
        return _running(str(self.cluster)) if self.workers is None else _local(self.workers)


@contextmanager
def _local(count: int) -> Iterator[None]:
    """So many processes of this machine, one thread each."""
    from eckart.clusters.client import load_dask

    distributed = load_dask()
    import dask

    # a worker that is started again is no news to a user
    logging.getLogger("distributed").setLevel(logging.ERROR)
    # Dask would give a worker up for good that is being started again for the second time when this
    # is over
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1h"}),
        distributed.LocalCluster(
            n_workers=count,
            threads_per_worker=1,
            dashboard_address=":0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
        distributed.Client(cluster),
    ):
        yield


@contextmanager
def _running(address: str) -> Iterator[None]:
    from eckart.clusters.client import client_of, load_dask

    load_dask()
    with client_of(address):
        yield
