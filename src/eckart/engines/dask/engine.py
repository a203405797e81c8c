"""DaskEngine: blocks of rows on a Dask cluster, whatever the data come in."""

from __future__ import annotations

from typing import Any

from eckart.engines.blocks.engine import BlocksEngine
from eckart.engines.dask.runner import DaskRunner


class DaskEngine(BlocksEngine):
    """``client``: a Dask client or the address of a scheduler; None takes the running client, else
    threads of this process.

    Matrices in memory are cut into at least ``cut`` blocks, so that a small one stays here.
    ``device``: where workers do their part; None stands for their processors, "cuda" for a GPU of
    each worker's own, anything else for a device of PyTorch ("cpu", for tests).
    """

    name = "dask"

    def __init__(
        self,
        n_threads: int | None = None,
        client: Any = None,
        cut: int = 1,
        device: str | None = None,
    ):
        super().__init__(n_threads, DaskRunner(client, n_threads, device), cut)
        self.name = "dask" if device is None else "dask-cuda"


def on_gpus(n_threads: int | None = None) -> DaskEngine:
    """The running cluster, each of whose workers has a GPU."""
    return DaskEngine(n_threads, device="cuda")
