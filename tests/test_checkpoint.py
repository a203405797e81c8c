"""A pass that is killed goes on from its checkpoint, with the same bits as one that was not."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time

import numpy as np
import pytest

import eckart
from conftest import planted
from eckart import PCA
from eckart.io.models.checkpoint import Checkpoint

RUN = """
import sys, time
import numpy as np
from eckart.io.models import checkpoint
from eckart import PCA
from eckart.engines.cpu.dense import passes as dense
from eckart.engines.cpu.dense import primitives

checkpoint.SECONDS = 0.0  # keep after every segment
primitives.SEGMENT = 1
step = dense.moments_step
def slow(*args):
    time.sleep(0.02)
    step(*args)
dense.moments_step = slow
PCA(3, checkpoint=sys.argv[2], random_state=0).fit(sys.argv[1]).save(sys.argv[3])
"""


@pytest.fixture
def data(tmp_path, rng):
    np.save(tmp_path / "x.npy", planted(rng, rows=400_000, n=32, dtype=np.float32))
    return tmp_path / "x.npy"


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_bits(data, tmp_path):
    state, model = tmp_path / "state.safetensors", tmp_path / "m.safetensors"
    script = RUN.replace(
        "import primitives\n",
        "import primitives\nprimitives.SQUARE = 2**18\n",
    )
    command = [sys.executable, "-c", script, str(data), str(state), str(model)]
    child = subprocess.Popen(command)
    for _ in range(600):
        if state.exists():
            break
        time.sleep(0.05)
    child.kill()
    child.wait()
    assert state.exists()
    assert not model.exists()
    subprocess.run(command, check=True)
    assert not state.exists()  # removed when the pass was complete
    subprocess.run(
        [
            *command[:3],
            str(data),
            str(tmp_path / "other.safetensors"),
            str(tmp_path / "whole.safetensors"),
        ],
        check=True,
    )
    resumed, whole = eckart.load(model), eckart.load(tmp_path / "whole.safetensors")
    assert resumed.components_.tobytes() == whole.components_.tobytes()
    assert resumed.fit_.factors.scatter.tobytes() == whole.fit_.factors.scatter.tobytes()
    assert resumed.n_samples_ == 400_000
    assert resumed.certificate_.holds


def test_a_checkpoint_of_other_work_is_refused(tmp_path):
    path = tmp_path / "state.safetensors"
    Checkpoint(path, {"rows": 10}, seconds=0.0).save({"a": np.ones(2)})
    np.testing.assert_array_equal(Checkpoint(path, {"rows": 10}).load()["a"], np.ones(2))
    with pytest.raises(
        eckart.FileError,
        match=r"state\.safetensors is a checkpoint of other work \(rows must be 11, got 10\); delete it to",
    ):
        Checkpoint(path, {"rows": 11}).load()
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(eckart.FileError, match="not a complete checkpoint"):
        Checkpoint(path, {"rows": 10}).load()
    with pytest.raises(eckart.FileError, match="is not a folder"):
        PCA(1, svd_solver="eigh", checkpoint=tmp_path / "nowhere" / "s").fit(np.eye(5))


def test_a_checkpoint_is_written_only_every_so_often(tmp_path):
    keeper = Checkpoint(tmp_path / "s", {}, seconds=1000.0)
    keeper.save({"a": np.ones(1)})
    assert not (tmp_path / "s").exists()


def test_fit_with_a_checkpoint_is_the_same_fit(tmp_path, rng):
    x = planted(rng, rows=3000, n=20)
    a, b = (
        PCA(3, svd_solver="eigh", checkpoint=tmp_path / "s", random_state=0).fit(x),
        PCA(3, svd_solver="eigh", random_state=0).fit(x),
    )
    assert a.components_.tobytes() == b.components_.tobytes()
    assert list(tmp_path.iterdir()) == []


def test_a_state_that_takes_long_to_write_is_written_less_often(monkeypatch, tmp_path):
    """A twentieth of the time at most goes into writing, whatever the size of the state."""
    import eckart.io.models.checkpoint as module

    now = [0.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(module, "atomic_write", lambda path, data: now.__setitem__(0, now[0] + 3.0))
    file = Checkpoint(tmp_path / "state", {}, seconds=10.0)
    times = []
    for _ in range(400):
        now[0] += 1.0
        if file.due():
            times.append(now[0])
            file.save({"a": np.ones(2)})
    assert times[0] == 10.0
    # 3 of writing, 20 times that until the next
    assert {b - a for a, b in itertools.pairwise(times)} == {63.0}
