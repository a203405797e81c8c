"""The plan of a fit on a cluster: passes, bytes through the network, memory; measured on a part of the rows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from eckart import ALS, LDA, PCA
from eckart.cli import estimate as module
from eckart.clusters.traffic import counted
from eckart.matrix import Counts, Dense, Observed

pytestmark = pytest.mark.usefixtures("threads")


def test_what_is_counted_is_what_went_through_the_network(rows):
    """Arguments to one worker and what comes back; nothing is counted when nobody asks."""
    from eckart.engines.dask.engine import DaskEngine

    engine, v = DaskEngine(1), np.zeros((12, 3))
    with counted() as traffic:
        x = engine.put(Dense(rows))
        engine.times(x, v, None)
        assert (traffic.passes, traffic.shared) == (1, v.nbytes)
        assert traffic.moved == v.nbytes + len(rows) * 3 * 8
        assert traffic.held == len(rows) * 3 * 8
        engine.times_t(x, np.zeros((len(rows), 3)), None)  # rows go there, a sum comes back
        assert traffic.moved == 2 * (v.nbytes + len(rows) * 3 * 8)
    engine.times(x, v, None)
    assert traffic.passes == 2


@pytest.mark.parametrize("verb", ["reduce", "complete", "explain"])
def test_every_verb_has_a_plan_of_its_own_on_a_cluster(rows, verb, monkeypatch):
    """Bytes of all rows from those of a part, within a tenth of what the whole fit moves; as many passes as it has (where it does not end early)."""
    monkeypatch.setattr(module, "LONG_SECONDS", 0.0)
    monkeypatch.setattr(module, "SHORT_SECONDS", 0.0)
    counts = sparse.csr_array(np.random.default_rng(0).poisson(2.0, (3000, 15)).astype(float))
    x, model = {
        "reduce": (Dense(rows), PCA(3, svd_solver="eigh")),
        "complete": (Observed.from_scipy(counts), ALS(2, feedback="implicit", max_iter=3, tol=0.0)),
        "explain": (Counts.from_scipy(counts), LDA(3, learning_method="cvb0", max_iter=3, tol=0.0)),
    }[verb]
    model.set_params(random_state=0, engine="dask")
    found = module.estimate(x, model.fit)
    assert found["measured_rows"] < found["rows"]
    with counted() as traffic:
        model.fit(x)
    assert found["passes"] == traffic.passes
    assert found["network_bytes"] == pytest.approx(traffic.moved, rel=0.1)
    assert 0 < found["worker_bytes"] < 1e8
    assert found["client_bytes"] >= traffic.held


def test_a_plan_without_a_cluster_says_nothing_of_one(rows):
    assert "passes" not in module.estimate(Dense(rows), PCA(3, random_state=0, engine="cpu").fit)
