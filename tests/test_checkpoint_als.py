"""A fit that is killed goes on from its checkpoint, with the same bits as one that was not."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import pytest

import eckart
from eckart import ALS
from eckart.complete.factors import als, alternate
from eckart.io.models import checkpoint
from test_als import holes

RUN = """
import json, sys, time
import numpy as np
from eckart import ALS
from eckart.complete.factors import alternate
from eckart.io.models import checkpoint

checkpoint.SECONDS = 0.0  # keep after every sweep
sweep = alternate.sweep
def slow(*args):
    time.sleep(float(sys.argv[4]))
    return sweep(*args)
alternate.sweep = slow
options = json.loads(sys.argv[5])
ALS(4, l2=0.02, max_iter=25, tol=0.0, checkpoint=sys.argv[2], random_state=0, n_threads=1, **options).fit(np.load(sys.argv[1])).save(sys.argv[3])
"""


@pytest.mark.slow
def test_a_killed_fit_resumes_to_the_same_bits(tmp_path, rng):
    np.save(tmp_path / "x.npy", holes(rng, 200, 60, rank=4, share=0.6, mean=2.0))
    state, model = tmp_path / "state.safetensors", tmp_path / "m.safetensors"
    command = [sys.executable, "-c", RUN, str(tmp_path / "x.npy"), str(state), str(model)]
    child = subprocess.Popen([*command, "0.2", "{}"])
    for _ in range(1200):
        if state.exists():
            break
        time.sleep(0.02)
    child.kill()
    child.wait()
    assert state.exists()
    assert not model.exists()
    subprocess.run([*command, "0", "{}"], check=True)
    assert not state.exists()  # removed when the fit was complete
    resumed = eckart.load(model)
    whole = ALS(4, l2=0.02, max_iter=25, tol=0.0, random_state=0, n_threads=2).fit(
        np.load(tmp_path / "x.npy")
    )
    assert_same(resumed, whole)
    assert resumed.n_iter_ == 25


def assert_same(one, two):
    for name in ("row_factors_", "column_factors_", "row_biases_", "column_biases_"):
        a, b = getattr(one, name), getattr(two, name)
        assert (a is None) == (b is None)
        assert a is None or a.tobytes() == b.tobytes()
    assert one.fit_.trace.values == two.fit_.trace.values
    assert one.certificate_ == two.certificate_
    assert one.held_out_errors_ == two.held_out_errors_


class Killed(Exception):
    pass


OPTIONS = {
    "plain": {},
    "held out": {"stop": "held_out", "patience": 4, "l2": 1e-3, "max_iter": 200},
    "gradient": {"stop": "gradient", "tol": 1e-3},
    "nonnegative": {"nonnegative": True},
    "normalised": {"biases": False, "scale": True},
    "implicit": {"feedback": "implicit", "l2": 1e-3, "tol": 1e-12},
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("at", [1, 6, "last"])
def test_a_fit_stopped_after_any_sweep_resumes_to_the_same_bits(
    tmp_path, rng, monkeypatch, name, at
):
    """Also when it is stopped after the last sweep, before the model was handed over; and for
    held-out errors with their best sweep."""
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)
    a = np.abs(holes(rng, 60, 25, noise=1.0, share=0.4))
    options = {"n_components": 5, "random_state": 0, "max_iter": 12, **OPTIONS[name]}
    whole = ALS(**options).fit(a)
    sweeps = len(whole.fit_.trace) // 2
    assert sweeps > 4
    at = min(at, sweeps - 1) if at != "last" else at
    calls = []

    def watched(*args):
        calls.append(1)
        if len(calls) == (sweeps if at == "last" else at):
            monkeypatch.setattr(als, "certify_factors", fail)
        return original(*args)

    def fail(*_, **__):
        raise Killed

    original = alternate.sweep
    saved, written = checkpoint.Checkpoint.save, []

    def save(self, arrays):
        saved(self, arrays)
        written.append(1)  # one for each sweep
        if len(written) == at:
            raise Killed

    with monkeypatch.context() as m:
        m.setattr(alternate, "sweep", watched)
        m.setattr(checkpoint.Checkpoint, "save", save)
        with pytest.raises(Killed):
            ALS(**options, checkpoint=tmp_path / "s").fit(a)
    monkeypatch.undo()
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)
    assert (tmp_path / "s").exists()
    assert_same(ALS(**options, checkpoint=tmp_path / "s").fit(a), whole)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "weights"),
    [
        ({"l2": 0.3}, None),
        ({"n_components": 3}, None),
        ({"random_state": 1}, None),
        ({}, 2.0),
        ({"biases": False}, None),
    ],
)
def test_a_checkpoint_of_other_work_is_refused(tmp_path, rng, monkeypatch, change, weights):
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)
    a = holes(rng)
    path = left_behind(tmp_path, monkeypatch, a)
    w = None if weights is None else np.full(a.shape, weights)
    with pytest.raises(eckart.FileError, match="checkpoint of other work"):
        ALS(**{"n_components": 2, "random_state": 0, "checkpoint": path, **change}).fit(
            a, weights=w
        )
    with pytest.raises(eckart.FileError, match="checkpoint of other work"):
        ALS(2, random_state=0, checkpoint=path).fit(a + 1)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(eckart.FileError, match="not a complete checkpoint"):
        ALS(2, random_state=0, checkpoint=path).fit(a)


def left_behind(tmp_path, monkeypatch, a):
    """The checkpoint of a fit that was stopped."""
    path = tmp_path / "s"
    with monkeypatch.context() as m:
        m.setattr(als, "certify_factors", lambda *_, **__: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            ALS(2, random_state=0, checkpoint=path).fit(a)
    assert path.exists()
    return path


def test_a_fit_with_a_checkpoint_is_the_same_fit(tmp_path, rng):
    a = holes(rng)
    assert_same(
        ALS(2, random_state=0, checkpoint=tmp_path / "s").fit(a), ALS(2, random_state=0).fit(a)
    )
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(eckart.FileError, match="is not a folder"):
        ALS(2, checkpoint=tmp_path / "nowhere" / "s").fit(a)
