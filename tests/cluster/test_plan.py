"""The plan of a fit on a cluster: passes, bytes through the network, memory; measured on a part of
the rows."""

from __future__ import annotations

import contextlib
import time

import numpy as np
import pytest
from scipy import sparse

from eckart import ALS, LDA, PCA
from eckart.cli import estimate as module
from eckart.clusters import client as blocks
from eckart.clusters.client import counted
from eckart.matrix import Counts, Dense, Observed

pytestmark = pytest.mark.usefixtures("threads")


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks so small that a few rows are several."""
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 2**16)


@pytest.mark.usefixtures("small_blocks")
def test_what_is_counted_is_what_went_through_the_network(rows):
    """Arguments to one worker and what comes back; nothing is counted when nobody asks."""
    from eckart.engines.dask.runner import DaskEngine

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


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("verb", ["reduce", "complete", "explain"])
def test_every_verb_has_a_plan_of_its_own_on_a_cluster(rows, verb, monkeypatch):
    """Bytes of all rows from those of a part, within a tenth of what the whole fit moves; as many
    passes as it has (where it does not end early)."""
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


def test_a_plan_of_one_block_is_made_in_this_process_and_says_so(rows, monkeypatch):
    """Where all rows would stay here, a part of them goes to no worker either: a sweep of a tiny
    table would cost more as tasks than by itself."""
    from eckart.engines.dask.runner import DaskRunner

    monkeypatch.setattr(DaskRunner, "call", lambda *_: pytest.fail("a task was sent"))
    found = module.estimate(Dense(rows), PCA(3, random_state=0, engine="dask").fit)
    assert (found["passes"], found["network_bytes"]) == (0, 0.0)
    told = list[str]()
    shell = type(
        "Shell",
        (),
        {
            "phase": lambda *_: contextlib.nullcontext(),
            "say": lambda _, *words: told.append(" ".join(words)),
            "answer": {},
        },
    )()
    module.tell_plan(shell, Dense(rows), PCA(3, random_state=0, engine="dask").fit)
    assert any("one block, which stays in this process" in line for line in told)


def test_a_part_goes_to_the_cluster_where_the_whole_would(rows):
    """The 384 KB of these rows stay here by themselves, and not as a hundredth of 38 MB, which are
    two blocks."""
    from eckart.engines.dask.runner import DaskEngine

    for times, passes in ((1, 0), (100, 1)):
        with counted(times) as traffic:
            engine = DaskEngine(1)
            engine.times(engine.put(Dense(rows)), np.zeros((12, 3)), None)
        assert (traffic.passes, traffic.stayed) == (passes, not passes)


def test_what_a_cluster_is_waited_for_counts_as_time_spent():
    """A budget of processor time would be endless where others work; threads of this process are
    not counted twice."""
    from eckart.clusters.client import client_of, spent
    from eckart.clusters.tasks import computed, later
    from eckart.io.models.checkpoint import Steps

    def took(work):
        steps, start, cpu, wall = Steps(), spent(), time.process_time(), time.monotonic()
        computed(client_of(), lambda name: [later(work, name)], lambda: f"{work.__name__}-{wall}")
        return spent() - start, steps.spent, time.process_time() - cpu, time.monotonic() - wall

    def idle():
        time.sleep(0.5)

    def busy():
        begin = time.thread_time()
        while time.thread_time() - begin < 0.3:
            pass

    slept, by_steps, _, _ = took(idle)
    assert slept >= 0.45
    assert by_steps >= slept
    worked, _, cpu, wall = took(busy)
    assert worked <= 1.05 * max(cpu, wall) + 0.05
