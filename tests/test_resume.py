"""Every fit and every choice with a checkpoint, killed after some sweeps and resumed, ends with the bits of one that was not killed."""

from __future__ import annotations

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
    PCA,
    PLSA,
    SVP,
    SVT,
    BayesianMF,
    ExactRecovery,
    GaussianMixture,
    GloVe,
    LinearAutoencoder,
    Mixture,
    SkipGram,
    SoftImpute,
    TimeFactors,
    select_components,
    select_mixture,
    select_rank,
    select_topics,
    tune,
)
from eckart.io.models import levels
from eckart.io.models.checkpoint import Checkpoint
from eckart.io.models.pack import like, pack, unpack
from eckart.reduce import solve as reduce_solve


class Killed(Exception):
    pass


def groups():
    rng = np.random.default_rng(0)
    return np.concatenate([rng.standard_normal((40, 3)) + c for c in ([0, 0, 0], [3, 0, 0], [0, 4, 1])])


def counts():
    return np.random.default_rng(1).poisson(0.6, (60, 20)).astype(float)


def parts(rows=60, n=20):
    rng = np.random.default_rng(2)
    return np.abs(rng.gamma(0.3, 1, (rows, 4)) @ rng.gamma(0.3, 1, (4, n)))


def holes():
    rng, a = np.random.default_rng(3), parts()
    a[rng.random(a.shape) < 0.2] = np.nan
    return a


def noise():
    return np.random.default_rng(4).standard_normal((50, 25))


def words():
    rng = np.random.default_rng(5)
    return [list(rng.permutation(["a", "b", "c", "d"])) for _ in range(200)]


def of(kind, *args, **options):
    return lambda **more: kind(*args, **options | {"random_state": 0} | more)


FITS = {
    "GaussianMixture": (of(GaussianMixture, 4, n_init=3, tol=1e-8), groups),
    "GaussianMixture auto": (of(GaussianMixture, "auto"), groups),
    "GaussianMixture factor": (of(GaussianMixture, 2, covariance_type="factor", tol=1e-6), groups),
    "GaussianMixture gaps": (of(GaussianMixture, 3, tol=1e-6), holes),
    "Mixture": (of(Mixture, 3, n_init=3, tol=1e-8, family="gaussian diag"), groups),
    "Mixture bernoulli": (of(Mixture, 3, n_init=2, tol=1e-8, family="bernoulli"), lambda: (counts() > 0) * 1.0),
    "PLSA": (of(PLSA, 3, n_init=2), counts),
    "LDA cvb0": (of(LDA, 3, learning_method="cvb0", n_init=2), counts),
    "LDA variational": (of(LDA, 3, learning_method="variational", n_init=2, max_iter=25), counts),
    "LDA gibbs": (of(LDA, 3, learning_method="gibbs", n_init=2, burn_in=20, n_samples=5), counts),
    "LDA gibbs plain": (
        of(LDA, 2, learning_method="gibbs", max_iter=2, burn_in=3, n_samples=2, engine="plain"),
        lambda: counts()[:10],
    ),
    "LDA online": (of(LDA, 3, learning_method="online", max_iter=4, batch_size=7), counts),
    "LDA pieces": (
        of(LDA, 3, learning_method="online", max_iter=4, batch_size=7),
        lambda: [counts()[:30], counts()[30:]],
    ),
    "NMF hals": (of(NMF, 4, n_init=2, tol=1e-5), parts),
    "NMF sketch": (of(NMF, 3, tol=1e-9, max_iter=12), lambda: parts(300, 250)),
    "NMF cd": (of(NMF, 4, solver="cd"), parts),
    "NMF als": (of(NMF, 4, solver="als", n_init=2, max_iter=40), parts),
    "NMF mm": (of(NMF, 4, beta_loss="kl", tol=1e-6), parts),
    "NMF mu": (of(NMF, 4, beta_loss="kl", solver="mu", max_iter=60), parts),
    "NMF gaps": (of(NMF, 4, tol=1e-6, max_iter=50), holes),
    "PCA eigh": (of(PCA, 2, svd_solver="eigh"), lambda: noise()[:, :5]),
    "PCA gaps": (of(PCA, 2), holes),
    "PCA gaps, k open": (of(PCA, "auto"), holes),
    "PCA randomized": (of(PCA, 3, svd_solver="randomized", tol=1e-9), noise),
    "PCA lanczos": (of(PCA, 3, svd_solver="lanczos"), noise),
    "PCA lanczos, k open": (of(PCA, 0.95, svd_solver="lanczos"), noise),
    "PCA power": (of(PCA, 2, svd_solver="power"), noise),
    "PCA gradient": (of(PCA, 2, svd_solver="gradient", max_iter=100), noise),
    "LinearAutoencoder": (of(LinearAutoencoder, 2, max_iter=60), noise),
    "LinearAutoencoder adam": (of(LinearAutoencoder, 2, optimizer="adam", tied=True, max_iter=60), noise),
    "LinearAutoencoder batches": (of(LinearAutoencoder, 2, batch_size=10, max_iter=30), noise),
    "LinearAutoencoder gaps": (of(LinearAutoencoder, 2, max_iter=50), holes),
    "ALS": (of(ALS, 2, tol=0.0, max_iter=8, l2=0.1), holes),
    "BayesianMF": (of(BayesianMF, 2, burn_in=4, n_samples=8), holes),
    "TimeFactors": (of(TimeFactors, 2, burn_in=6, n_samples=10, thin=2), holes),
    "SVP": (of(SVP, 2, tol=0.0, max_iter=20), holes),
    "SVT": (of(SVT, tol=1e-12, max_iter=20), holes),
    "SoftImpute": (of(SoftImpute, tau=0.5, tol=1e-5), holes),
    "ExactRecovery": (of(ExactRecovery, 2, max_iter=12), holes),
    "GloVe": (of(GloVe, 2, min_count=1, tol=0.0), words),
    "GloVe adagrad": (of(GloVe, 2, min_count=1, solver="adagrad", max_iter=10), words),
    "SkipGram": (of(SkipGram, 2, min_count=1, sample=None, deterministic=True, max_iter=4), words),
}
ONCE = {"PCA eigh", "PCA gradient", "GloVe"}
"""Fits that come to the head of their loop once: of one pass over the rows, which here is one segment, or a loop of two steps."""
AT = (40, 9, 2, 1)
"""Writings after which a fit is killed, the first two that it comes to: in the loop that follows another or in a later start, and in the first."""


def fitted(model):
    """All that a fit found: arrays by name, the trace, the certificate."""
    arrays = dict(model.fit_.factors.to_state()[0])
    arrays |= model.extra_state() if hasattr(model, "extra_state") else {}
    told = model.certificate_.to_dict(), model.fit_.trace.values, model.fit_.trace.reason, len(model.fit_.plan)
    return {name: (a.dtype, a.shape, a.tobytes()) for name, a in arrays.items()}, str(told)


def kill_after(monkeypatch, at, run):
    """Run until the state was to be written for the ``at``-th time, write it, and end there; True if it came so far."""
    kept, count = Checkpoint.save, []

    def save(self, done, arrays):
        count.append(1)
        if len(count) == at:
            kept(self, done, arrays)
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
    if name == "PCA power":
        monkeypatch.setattr(reduce_solve, "STATISTIC_COLUMNS", 1)
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


CHOICES = {
    "tune": (
        lambda **k: tune(holes(), n_components=(1, 2), l2=(0.1, 0.01), folds=2, random_state=0, **k),
        lambda t: ([row[:6] for row in t.table], t.best, fitted(t.model)[0]),
    ),
    "select_mixture": (
        lambda **k: select_mixture(groups(), (1, 2, 3), ("diag", "full"), random_state=0, **k),
        lambda t: (t.table, t.choices, t.notes, fitted(t.model)[0]),
    ),
    "select_mixture held out": (
        lambda **k: select_mixture(groups(), (1, 2), ("diag",), criterion="held_out", random_state=0, **k),
        lambda t: (t.table, t.choices, t.notes, fitted(t.model)[0]),
    ),
    "select_rank": (
        lambda **k: select_rank(parts(), (2, 3), n_init=2, random_state=0, **k),
        lambda t: (t.table, t.choices),
    ),
    "select_topics": (
        lambda **k: select_topics(LDA(random_state=0, max_iter=4, learning_method="cvb0"), counts(), (2, 3), **k),
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
    for at in (2, 9):
        if not kill_after(monkeypatch, at, lambda: call(checkpoint=path)):
            assert at > 2
            break
        assert told(call(checkpoint=path)) == whole
        assert not any(tmp_path.iterdir())


def test_a_fit_without_a_seed_goes_on_with_the_draws_of_the_killed_one(monkeypatch, tmp_path):
    """What is prepared before the loops (the sample of rows, the streams of several starts) is prepared again."""
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
    make, data = FITS[name]
    path = tmp_path / "state"
    assert kill_after(monkeypatch, 2, lambda: make(checkpoint=path).fit(data()))
    done, arrays = read_raw(path)
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
        file.save(done, arrays)
        with pytest.raises(eckart.FileError, match="delete it to start over"):
            make(checkpoint=path).fit(data())


def header_of(path):
    import json

    from safetensors import safe_open

    with safe_open(path, "np") as file:
        return json.loads(file.metadata()["checkpoint"])


def read_raw(path):
    from safetensors.numpy import load_file

    return header_of(path)["done"], load_file(path)


def test_another_version_is_refused(monkeypatch, tmp_path):
    make, data = FITS["PLSA"]
    path = tmp_path / "state"
    assert kill_after(monkeypatch, 2, lambda: make(checkpoint=path).fit(data()))
    monkeypatch.setattr(eckart, "__version__", "99.0")
    with pytest.raises(eckart.FileError, match=r"eckart is '0.*wanted '99.0'"):
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
        assert PLSA(3, random_state=0, checkpoint=path).fit(x).fit_.trace.reason.name == "INTERRUPTED"
    assert path.exists()
    assert fitted(PLSA(3, random_state=0, checkpoint=path).fit(x)) == whole


def test_a_stream_that_cannot_be_read_again_has_no_checkpoint(tmp_path):
    with pytest.raises(eckart.InputError, match=r"checkpoint=.*wanted None for an iterator"):
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
from eckart.io.models import levels
from eckart.explain.parts import loop
levels.SECONDS = 0.0  # keep after every sweep
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


def test_sigkill_at_several_moments(tmp_path):
    """A process that is killed again and again, each time a little later, ends where one ends that was left alone."""
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
    monkeypatch.setattr(Checkpoint, "save", lambda self, done, arrays: written.append(done))
    make, data = FITS["PLSA"]
    make(checkpoint=tmp_path / "s").fit(data())
    assert not written
    monkeypatch.setattr(levels, "SECONDS", 0.0)
    make(checkpoint=tmp_path / "s").fit(data())
    assert written
