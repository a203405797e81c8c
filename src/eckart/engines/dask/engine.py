"""DaskEngine: blocks of rows on a Dask cluster, whatever the data come in."""

from __future__ import annotations

from typing import Any

from eckart.engines.blocks.engine import BlocksEngine
from eckart.engines.dask.runner import DaskRunner


class DaskEngine(BlocksEngine):
    """``client``: a Dask client or the address of a scheduler; None takes the running client, else
    threads of this process.

    Matrices in memory are cut into at least ``cut`` blocks, so that a small one stays here.
    """

    name = "dask"

    def __init__(self, n_threads: int | None = None, client: Any = None, cut: int = 1):
        super().__init__(n_threads, DaskRunner(client, n_threads), cut)
