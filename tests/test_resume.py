"""Every fit and every choice with a checkpoint, killed after some sweeps and resumed, ends with the
bits of one that was not killed."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import eckart
from eckart import (
    ALS,
    LDA,
    NMF,
    PLSA,
    select_components,
    select_mixture,
    select_rank,
    select_topics,
    tune,
)
from eckart.complete.items import slim
from eckart.embed import pairs, pmi
from eckart.io.models.checkpoint import Checkpoint
from eckart.io.models.header_checks import like, pack, unpack
from eckart.reduce import plan
from eckart.reduce import solve as reduce_solve
from resumable_fits import FITS, counts, fitted, groups, holes, parts


class Killed(Exception):
    pass


ONCE = {"PCA eigh", "PCA gradient", "GloVe", "NMF of rank 1"}
"""Fits that come to the head of their loop once: of one pass over the rows, which here is one
segment, or a loop of two steps."""
SMALLER = {
    "PCA power": [(reduce_solve, "STATISTIC_COLUMNS", 1)],
    "PMI": [(pmi, "SMALL", 0), (pairs, "MAX_MEMORY", 2**14)],
    "SLIM": [(slim, "AT_ONCE", 3)],
    "SpectralFilter": [(plan, "STATISTIC_COLUMNS", 1)],
}
"""Limits that small data do not reach, lowered for them."""
AT = (40, 9, 2, 1)
"""Writings after which a fit is killed, the first two that it comes to: in the loop that follows
another or in a later start, and in the first."""


def kill_after(monkeypatch, at, run):
    """Run until the state was to be written for the ``at``-th time, write it, and end there; True
    if it came so far."""
    kept, count = Checkpoint.save, []

    def save(self, arrays):
        count.append(1)
        if len(count) == at:
            kept(self, arrays)
            raise Killed

    with monkeypatch.context() as m:
        m.setattr(Checkpoint, "due", lambda self: True)
        m.setattr(Checkpoint, "save", save)
        try:
            run()
        except Killed:
            return True
    return False


@pytest.mark.parametrize("name", FITS)
def test_a_killed_fit_resumes_to_the_same_bits(name, monkeypatch, tmp_path):
    make, data = FITS[name]
    for place, limit, value in SMALLER.get(name, SMALLER.get(name.partition(" ")[0], ())):
        monkeypatch.setattr(place, limit, value)
    whole, path = fitted(make().fit(data())), tmp_path / "state"
    killed = []
    for at in AT:
        if not kill_after(monkeypatch, at, lambda: make(checkpoint=path).fit(data())):
            continue
        killed.append(at)
        assert path.exists()
        assert fitted(make(checkpoint=path).fit(data())) == whole
        assert not any(tmp_path.iterdir())  # removed when the fit was complete
        if len(killed) == 2:
            break
    assert len(killed) >= (1 if name in ONCE else 2)


def test_every_estimator_can_be_resumed_or_has_a_reason():
    """Networks are stopped and resumed in ``test_nn_train``."""
    kinds = [getattr(eckart, name) for name in eckart.__all__]
    models = {
        kind.__name__: kind
        for kind in kinds
        if inspect.isclass(kind) and hasattr(kind, "get_params")
    }
    listed = {type(make()).__name__ for make, _ in FITS.values()}
    networks = {"Autoencoder", "ConvAutoencoder", "NetworkClassifier", "NetworkRegressor"}
    assert set(models) == listed | networks | {
        "EASE",
        "Blend",
    }  # EASE is one factorization, a blend is fitted anew: there is no loop to resume
    assert [name for name, kind in models.items() if "checkpoint" not in kind().get_params()] == [
        "EASE",
        "Blend",
    ]


CHOICES = {
    "tune": (
        lambda **k: tune(
            holes(), n_components=(1, 2), l2=(0.1, 0.01), folds=2, random_state=0, **k
        ),
        lambda t: ([row[:6] for row in t.table], t.best, fitted(t.model)[0]),
    ),
    "tune beyond the edge": (
        lambda **k: tune(holes(), n_components=1, model=ALS(max_iter=3), random_state=0, **k),
        lambda t: ([row[:6] for row in t.table], t.best, fitted(t.model)[0]),
    ),
    "select_mixture": (
        lambda **k: select_mixture(groups(), (1, 2, 3), ("diag", "full"), random_state=0, **k),
        lambda t: (t.table, t.choices, t.notes, fitted(t.model)[0]),
    ),
    "select_mixture held out": (
        lambda **k: select_mixture(
            groups(), (1, 2), ("diag",), criterion="held_out", random_state=0, **k
        ),
        lambda t: (t.table, t.choices, t.notes, fitted(t.model)[0]),
    ),
    "select_rank": (
        lambda **k: select_rank(parts(), (2, 3), n_init=2, random_state=0, **k),
        lambda t: (t.table, t.choices),
    ),
    "select_topics": (
        lambda **k: select_topics(
            LDA(random_state=0, max_iter=4, learning_method="cvb0"), counts(), (2, 3), **k
        ),
        lambda t: [{name: value for name, value in row.items() if name != "seconds"} for row in t],
    ),
    "select_components": (
        lambda **k: select_components(parts(), random_state=0, max_components=4, shuffles=3, **k),
        lambda t: (str(t.table), t.choices),
    ),
}


@pytest.mark.parametrize("name", CHOICES)
def test_a_killed_choice_resumes_to_the_same_bits(name, monkeypatch, tmp_path):
    call, told = CHOICES[name]
    whole, path = told(call()), tmp_path / "state"
    for at in (2, 9, 31):
        if not kill_after(monkeypatch, at, lambda: call(checkpoint=path)):
            assert at > 2
            break
        assert told(call(checkpoint=path)) == whole
        assert not any(tmp_path.iterdir())


def test_a_killed_choice_goes_on_inside_its_candidate(monkeypatch, tmp_path):
    """What the folds had done of the candidate at work is not done again, and the fit to all
    entries neither."""
    call, told = CHOICES["tune"]
    sweeps, path, whole = [], tmp_path / "state", told(CHOICES["tune"][0]())
    from eckart.complete.factors import als

    count = als.alternate
    monkeypatch.setattr(
        als,
        "alternate",
        lambda problem, state, *a: (sweeps.append(state.sweeps), count(problem, state, *a))[1],
    )
    kept, written = Checkpoint.save, []

    def save(self, arrays):
        kept(self, arrays)
        written.append(self.path.name)
        if self.path.name == kill:
            raise Killed

    for kill in ("state.candidate-2.fold-1", "state.final"):
        with monkeypatch.context() as m:
            m.setattr(Checkpoint, "due", lambda self: True)
            m.setattr(Checkpoint, "save", save)
            with pytest.raises(Killed):
                call(checkpoint=path)
        assert (tmp_path / kill).exists()
        sweeps.clear()
        assert told(call(checkpoint=path)) == whole
        assert max(sweeps) > 0  # a fit began in the middle
        assert (
            len(sweeps) <= 5
            # of the eight fits of folds and the last one, those of the first two candidates were
            # not repeated
        )
        assert not any(tmp_path.iterdir())


def test_a_choice_that_is_asked_to_stop_keeps_the_fits_at_work(monkeypatch, tmp_path):
    """No candidate is judged by a fit that was interrupted; the word to stop is taken back."""
    from eckart.complete import tune as module

    call, told = CHOICES["tune"]
    whole, path, trial = told(call()), tmp_path / "state", module._trial

    def stop(runs, k, l2, weight, kept, number):
        Checkpoint.ending = number == 2
        return trial(runs, k, l2, weight, kept, number)

    with monkeypatch.context() as m:
        m.setattr(module, "_trial", stop)
        with pytest.raises(KeyboardInterrupt):
            call(checkpoint=path)
    assert not Checkpoint.ending
    assert list(tmp_path.glob("state.candidate-2.fold-*"))
    assert told(call(checkpoint=path)) == whole
    assert not any(tmp_path.iterdir())


def test_a_warm_start_is_part_of_what_a_checkpoint_is_about(monkeypatch, tmp_path):
    path, x = tmp_path / "state", holes()
    one, other = (ALS(2, l2=l2, max_iter=6, tol=0.0, random_state=0).fit(x) for l2 in (0.1, 10.0))
    how = {"l2": 0.5, "warm_start": True}
    whole = fitted(
        ALS(2, l2=0.1, max_iter=6, tol=0.0, random_state=0).fit(x).set_params(**how).fit(x)
    )
    assert kill_after(monkeypatch, 2, lambda: one.set_params(checkpoint=path, **how).fit(x))
    with pytest.raises(
        eckart.FileError,
        match=r"state is a checkpoint of other work \(start must be",
    ):
        other.set_params(checkpoint=path, **how).fit(x)
    assert fitted(one.fit(x)) == whole


def test_a_fit_without_a_seed_goes_on_with_the_draws_of_the_killed_one(monkeypatch, tmp_path):
    """What is prepared before the loops (the sample of rows, the streams of several starts) is
    prepared again."""
    path, x = tmp_path / "state", counts()
    model = PLSA(3, n_init=2, max_iter=10, tol=0.0, checkpoint=path)
    assert kill_after(monkeypatch, 4, lambda: model.fit(x))
    raw = path.read_bytes()
    found = []
    for _ in range(2):
        path.write_bytes(raw)
        found.append(fitted(PLSA(3, n_init=2, max_iter=10, tol=0.0, checkpoint=path).fit(x)))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "name",
    [
        "GaussianMixture",
        "LDA gibbs",
        "NMF hals",
        "PCA lanczos",
        "LinearAutoencoder",
        "BayesianMF",
        "ALS",
        "GloVe adagrad",
    ],
)
def test_a_state_of_another_shape_is_refused_in_words(name, monkeypatch, tmp_path):
    """As another version may leave it, or a hand that can count checksums."""
    from safetensors.numpy import load_file

    make, data = FITS[name]
    path = tmp_path / "state"
    assert kill_after(monkeypatch, 2, lambda: make(checkpoint=path).fit(data()))
    arrays = load_file(path)
    held = "json" in arrays
    state = unpack(arrays) if held else None
    wrong = (
        [pack([state[0], *[{} for _ in state[1:]]]), pack([state[0], 3, 4]), pack({"a": 1})]
        if held
        else [{"a": np.ones(3)}]
    )
    about = header_of(path)["about"]
    for arrays in wrong:
        file = Checkpoint(path, {}, seconds=0.0)
        file.about = about
        file.save(arrays)
        with pytest.raises(eckart.FileError, match="delete it to start over"):
            make(checkpoint=path).fit(data())


def header_of(path):
    import json

    from safetensors import safe_open

    with safe_open(path, "np") as file:
        return json.loads(file.metadata()["checkpoint"])


def test_another_version_is_refused(monkeypatch, tmp_path):
    make, data = FITS["PLSA"]
    path = tmp_path / "state"
    assert kill_after(monkeypatch, 2, lambda: make(checkpoint=path).fit(data()))
    monkeypatch.setattr(eckart, "__version__", "99.0")
    with pytest.raises(
        eckart.FileError,
        match=r"state is a checkpoint of other work \(eckart must be '99\.0', got '0\.1\.0'\); delete it to",
    ):
        make(checkpoint=path).fit(data())


def test_an_interrupted_fit_keeps_its_checkpoint(monkeypatch, tmp_path):
    """Ctrl-C returns what there is; the same call goes on from there."""
    path, x = tmp_path / "state", counts()
    whole = fitted(PLSA(3, random_state=0).fit(x))
    monkeypatch.setattr(Checkpoint, "due", lambda self: True)
    from eckart.explain.topics.topic_em import TopicProblem

    maximise, calls = TopicProblem.maximise, []

    def stop(self, sweep):
        calls.append(1)
        if len(calls) == 7:
            raise KeyboardInterrupt
        return maximise(self, sweep)

    with monkeypatch.context() as m:
        m.setattr(TopicProblem, "maximise", stop)
        assert (
            PLSA(3, random_state=0, checkpoint=path).fit(x).fit_.trace.reason.name == "INTERRUPTED"
        )
    assert path.exists()
    assert fitted(PLSA(3, random_state=0, checkpoint=path).fit(x)) == whole


def test_a_stream_that_cannot_be_read_again_has_no_checkpoint(tmp_path):
    with pytest.raises(
        eckart.InputError,
        match="checkpoint must be None for an iterator: a fit that goes on reads its blocks again; use",
    ):
        LDA(2, checkpoint=tmp_path / "s").fit(block for block in [counts()])


def test_states_come_back_as_they_were():
    """Arrays of any order in memory, numbers of NumPy, records."""
    from eckart.engines.protocol.mixtures import Gaussians

    rng = np.random.default_rng(0)
    arrays = [
        np.asfortranarray(rng.random((3, 4))),
        rng.random((2, 3, 4)).transpose(2, 0, 1),
        np.array(2.0),
        np.zeros((0, 3)),
    ]
    record = Gaussians("diag", np.ones(2), np.zeros((2, 3)), np.ones((2, 3)))
    back = unpack(pack({"arrays": arrays, "record": record, "n": np.int64(3), "x": (1, np.inf)}))
    for a, b in zip(arrays, back["arrays"]):
        assert (a.shape, a.dtype, a.tobytes()) == (b.shape, b.dtype, b.tobytes())
        assert np.argsort(a.strides).tolist() == np.argsort(b.strides).tolist()
    again = like(record, back["record"])
    assert isinstance(again, Gaussians)
    assert again.means.tobytes() == record.means.tobytes()
    assert back["n"] == 3
    assert like((1, 2.0), back["x"]) == (1, np.inf)


RUN = """
import sys, time
import numpy as np
import eckart
from eckart.io.models import checkpoint
from eckart.explain.parts import loop
checkpoint.SECONDS = 0.0  # keep after every sweep
pause, rows = float(sys.argv[3]), loop.Sides.rows
def slow(self, *args, **options):
    time.sleep(pause)
    return rows(self, *args, **options)
loop.Sides.rows = slow
for kind in (loop.Sides, *loop.Sides.__subclasses__()):
    kind.rows = (lambda of: lambda self, *a, **o: (time.sleep(pause), of(self, *a, **o))[1])(kind.rows)
x = np.load(sys.argv[1])
eckart.NMF(4, n_init=2, tol=1e-9, max_iter=12, random_state=0, checkpoint=sys.argv[2]).fit(x).save(sys.argv[4])
"""


@pytest.mark.slow
def test_sigkill_at_several_moments(tmp_path):
    """A process that is killed again and again, each time a little later, ends where one ends that
    was left alone."""
    np.save(tmp_path / "x.npy", parts())
    state, model = tmp_path / "state", tmp_path / "m.safetensors"
    command = [sys.executable, "-c", RUN, str(tmp_path / "x.npy"), str(state)]
    kills = 0
    for more in (1, 4):
        child = subprocess.Popen([*command, "0.1", str(model)])
        seen, last = 0, None
        for _ in range(4000):
            now = state.stat().st_mtime_ns if state.exists() else None
            seen += now != last and now is not None
            last = now
            if seen >= more or child.poll() is not None:
                break
            time.sleep(0.01)
        assert child.poll() is None
        os.kill(child.pid, signal.SIGKILL)
        kills += child.wait() == -signal.SIGKILL
    assert kills == 2
    assert state.exists()
    assert not model.exists()
    subprocess.run([*command, "0", str(model)], check=True)
    assert not state.exists()
    whole = NMF(4, n_init=2, tol=1e-9, max_iter=12, random_state=0).fit(parts())
    assert fitted(eckart.load(model)) == fitted(whole)


def test_seconds_between_two_writings(monkeypatch, tmp_path):
    """Without the patience to write, a short fit writes nothing."""
    written = []
    monkeypatch.setattr(Checkpoint, "save", lambda self, arrays: written.append(1))
    make, data = FITS["PLSA"]
    make(checkpoint=tmp_path / "s").fit(data())
    assert not written
    monkeypatch.setattr("eckart.io.models.checkpoint.SECONDS", 0.0)
    make(checkpoint=tmp_path / "s").fit(data())
    assert written
