"""Clusters for tests: threads of this process, which start at once, and processes, whose workers
can be killed."""

from __future__ import annotations

import logging

import numpy as np
import pytest

pytest.importorskip("distributed", reason="Dask is not installed: pip install 'eckart[dask]'")


@pytest.fixture(scope="module")
def threads():
    """The running client of this module: one worker with two threads in this process."""
    from distributed import Client

    with Client(
        processes=False, n_workers=1, threads_per_worker=2, dashboard_address=None
    ) as client:
        yield client


@pytest.fixture(scope="module")
def processes():
    """The running client of a cluster of two processes with nannies."""
    import dask
    from distributed import Client, LocalCluster

    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    patient = {
        # on a busy machine a worker needs long to start, and its nanny gives up on one that fails
        # to
        "distributed.comm.timeouts.connect": "300s",
        # the cluster looks once, so long after a worker was lost, whether it is back, and gives its
        # place up if it is not: one that was killed again is not
        "distributed.deploy.lost-worker-timeout": "1h",
        # a worker is there when it can work: on a busy machine imports take longer than some of
        # them live
        "distributed.worker.preload": [
            "eckart.engines.dask.runner",
            "eckart.reduce.pca",
            "eckart.explain.parts.nmf",
            "eckart.io.text.vocabulary",
        ],
    }
    with (
        dask.config.set(patient),
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, memory_limit="2GB"
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    return (
        rng.standard_normal((4000, 3)) @ rng.standard_normal((3, 12))
        + 0.1 * rng.standard_normal((4000, 12))
        + 3
    )


@pytest.fixture
def ratings():
    """A table of ratings with text ids, each pair once."""
    import pandas as pd

    rng = np.random.default_rng(1)
    user, item = rng.integers(0, 300, 9000), rng.integers(100, 180, 9000)
    u, v = rng.standard_normal((300, 3)), rng.standard_normal((80, 3))
    rating = np.clip(
        np.round(3 + (u[user] * v[item - 100]).sum(axis=1) + 0.3 * rng.standard_normal(9000)), 1, 5
    )
    table = pd.DataFrame({"user": [f"u{i}" for i in user], "item": item, "rating": rating})
    return table.drop_duplicates(["user", "item"], ignore_index=True)
