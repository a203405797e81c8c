"""SVP, SVT, SoftImpute and ExactRecovery go on from their checkpoint, with the same bits as a fit
that was not killed."""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import clone

import eckart
from eckart import SVP, SVT, ExactRecovery, SoftImpute
from eckart.complete.nuclear import path as active
from eckart.complete.nuclear import riemannian as descend
from eckart.complete.nuclear import svp
from eckart.io.models.checkpoint import Checkpoint, Memory, generator_at, pack, unpack
from eckart.trace import StopReason
from test_soft_impute import planted


def noisy(dtype=np.float64, k=3, n=30):
    return planted(0, n, 25, k, share=0.5, noise=0.3, dtype=dtype)[1]


def single(k=3):
    return noisy(np.float32, k)


def small():
    return planted(0, 24, 20, 2, share=0.6, noise=0.3)[1]


def plain(dtype=np.float64):
    return planted(1, 30, 25, 2, share=0.6, noise=0.0, dtype=dtype)[1]


def spiky(seed=149):
    """Heavy tails and few entries: projections exchange directions here, which they hardly ever
    do."""
    rng = np.random.default_rng(seed)
    rng.integers(1, 4)
    n, m, share = int(rng.integers(8, 22)), int(rng.integers(8, 22)), rng.uniform(0.15, 0.9)
    a = rng.standard_normal((n, m)) ** 3 * np.exp(rng.normal(size=(n, 1)))
    return np.where(rng.random(a.shape) > share, np.nan, a)


CASES = {
    "svp": (SVP(3, tol=1e-6), noisy),
    "svp of rank one that exchanges directions": (SVP(1, tol=1e-2, max_iter=200), spiky),
    "svp in single precision": (SVP(3, normalise="column"), single),
    "svp by plain steps": (SVP(3, step=0.5, tol=5e-2), noisy),
    "svp at the limit": (SVP(3, tol=0.0, max_iter=12), noisy),
    "svt": (SVT(tol=5e-3), plain),
    "svt without momentum": (SVT(accelerate=False, tol=5e-2, normalise="row"), plain),
    "svt with a step that is too long": (SVT(step=12.0, tol=5e-2), plain),
    "svt in single precision": (SVT(tol=5e-2), lambda: plain(np.float32)),
    "soft-impute": (SoftImpute(tau=2.0), noisy),
    "soft-impute with tau chosen": (SoftImpute(), small),
    "soft-impute with tau chosen, path and debias": (SoftImpute(path=3, debias=True), small),
    "soft-impute along a path": (SoftImpute(tau=2.0, path=4, normalise="both"), noisy),
    "soft-impute debiased": (SoftImpute(tau=4.0, debias=True), noisy),
    "soft-impute at the limit": (SoftImpute(tau=0.5, path=3, max_iter=20), noisy),
    "soft-impute in single precision": (SoftImpute(tau=3.0, debias=True), single),
    "proximal steps": (SoftImpute(tau=3.0, method="proximal", tol=1e-2), noisy),
    "proximal steps along a path": (
        SoftImpute(tau=3.0, method="proximal", path=3, tol=1e-1),
        noisy,
    ),
    "proximal steps in single precision": (SoftImpute(tau=3.0, method="proximal", tol=0.1), single),
    "exact": (ExactRecovery(2), plain),
    "exact of rank one": (ExactRecovery(1), lambda: planted(1, 30, 25, 1, share=0.4, noise=0.0)[1]),
    "exact, second attempt": (
        ExactRecovery(1),
        lambda: planted(0, 12, 10, 1, share=0.6, noise=0.1)[1],
    ),
}
for model, _ in CASES.values():
    model.set_params(random_state=0, n_threads=1)


def assert_same(one, two):
    for a, b in zip(vars(one.fit_.factors).values(), vars(two.fit_.factors).values()):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
    assert one.fit_.trace.values == two.fit_.trace.values
    assert one.fit_.trace.reason is two.fit_.trace.reason
    assert one.certificate_ == two.certificate_
    assert one.fit_.plan == two.fit_.plan


class Killed(Exception):
    pass


class Runs:
    """Fits that are kept at every step; ``states`` are those that were written, ``killed_at`` ends
    a fit after so many of them."""

    def __init__(self, monkeypatch, folder):
        self.patch, self.path = monkeypatch, folder / "s"
        monkeypatch.setattr("eckart.io.models.checkpoint.SECONDS", 0.0)
        monkeypatch.setattr("os.fsync", lambda _: None)

    def fit(self, model, a, killed_at=None, error=Killed):
        written = Checkpoint.save
        self.states = []

        def save(file, arrays):
            written(file, arrays)
            self.states.append(arrays)
            if len(self.states) == killed_at:
                raise error

        with self.patch.context() as m:
            m.setattr(Checkpoint, "save", save)
            try:
                return clone(model).set_params(checkpoint=self.path).fit(a)
            except Killed:
                assert self.path.exists()
                return None


@pytest.fixture
def runs(monkeypatch, tmp_path):
    return Runs(monkeypatch, tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        *itertools.islice(CASES, 0, None, 5),
        *(pytest.param(n, marks=pytest.mark.slow) for i, n in enumerate(CASES) if i % 5),
    ],
)
def test_a_fit_killed_over_and_over_ends_with_the_same_bits(runs, tmp_path, name):
    """Killed after two writings (of which the first is the state it began from), resumed, killed
    again: a short fit after every step."""
    check_all_moments(runs, CASES[name][0], CASES[name][1]())
    assert list(tmp_path.iterdir()) == []


def check_all_moments(runs, model, a):
    whole = clone(model).fit(a)
    assert_same(runs.fit(model, a), whole)
    assert not runs.path.exists()
    steps = len(runs.states)
    stride = 1 + steps // 16
    resumed, kills = None, 0
    while resumed is None:
        resumed = runs.fit(model, a, killed_at=1 + stride)
        kills += resumed is None
        assert kills <= steps
    assert kills > 5
    assert_same(resumed, whole)


def test_a_value_of_tau_that_is_only_passed_is_left_after_the_same_rounds(runs, monkeypatch):
    monkeypatch.setattr(active, "PASSING", (4, 1))
    check_all_moments(runs, SoftImpute(tau=0.3, max_iter=25, random_state=0), noisy())


@pytest.mark.slow
def test_every_stage_of_soft_impute_is_resumed(runs):
    """While tau is chosen, along the path, while the shrinkage is taken back: at the first and the
    last moment of each."""
    model, data = CASES["soft-impute with tau chosen, path and debias"]
    a = data()
    whole = runs.fit(model, a)
    behind = ["+".join(unpack(arrays)[1]) for arrays in runs.states]
    stages = ["", "tau+table+top", "tau+table+top+found+path"]
    assert list(dict.fromkeys(behind)) == stages
    for stage in stages:
        moments = [i for i, found in enumerate(behind, 1) if found == stage]
        for moment in (moments[0], moments[-1]):
            assert runs.fit(model, a, killed_at=moment) is None
            assert_same(runs.fit(model, a), whole)


@pytest.mark.one_seed
def test_the_cases_meet_what_is_hard_to_resume(monkeypatch):
    """Newton steps, exchanged directions, a shorter dual step, a second attempt."""
    met = set()

    def watched(owner, name):
        original = getattr(owner, name)

        def call(*args, **options):
            found = original(*args, **options)
            if found is not None:
                met.add(name)
            return found

        monkeypatch.setattr(owner, name, call)

    watched(descend.TangentDescent, "newton")
    watched(descend.TangentDescent, "proximal")
    watched(svp, "_projected")
    clone(CASES["soft-impute"][0]).fit(noisy())
    assert met == {"newton", "proximal"}
    clone(CASES["svp of rank one that exchanges directions"][0]).fit(spiky())
    assert met == {"newton", "proximal", "_projected"}
    fits = {
        name: clone(CASES[name][0]).fit(CASES[name][1]())
        for name in ("exact, second attempt", "svt with a step that is too long")
    }
    assert fits["exact, second attempt"].fit_.plan["attempts"] == 2
    assert fits["svt with a step that is too long"].fit_.plan["step"] < 12.0


RUN = """
import sys, time
import numpy as np
from eckart import SVP, SVT, ExactRecovery, SoftImpute
from eckart.io.models import checkpoint
from eckart.io.models.checkpoint import Checkpoint

checkpoint.SECONDS = 0.0
written, count = Checkpoint.save, []
def save(*args):
    written(*args)
    print("kept", flush=True)
    count.append(1)
    time.sleep(0.02 if len(count) < 12 else 60)
Checkpoint.save = save
eval(sys.argv[1]).set_params(checkpoint=sys.argv[3], n_threads=1).fit(np.load(sys.argv[2]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        SVP(3, tol=1e-6, random_state=0),
        SVT(tol=1e-2, random_state=0),
        SoftImpute(debias=True, random_state=0),
        ExactRecovery(2, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_killed_process(tmp_path, model):
    a = plain() if isinstance(model, SVT | ExactRecovery) else noisy()
    np.save(tmp_path / "a.npy", a)
    command = [sys.executable, "-c", RUN, repr(model), str(tmp_path / "a.npy"), str(tmp_path / "s")]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    for _ in range(10):
        assert child.stdout.readline() == "kept\n"
    child.kill()
    child.wait()
    child.stdout.close()
    assert (tmp_path / "s").exists()
    resumed = clone(model).set_params(checkpoint=tmp_path / "s", n_threads=2).fit(a)
    assert_same(resumed, model.fit(a))
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("name", ["svp", "svt", "soft-impute", "exact"])
def test_a_checkpoint_of_other_work_is_refused(runs, name):
    model, data = CASES[name]
    a = data()
    assert runs.fit(model, a, killed_at=4) is None
    for change in ({"tol": 0.02}, {"random_state": 1}, {"normalise": "column"}, {"max_iter": 3}):
        with pytest.raises(eckart.FileError, match="checkpoint of other work"):
            runs.fit(clone(model).set_params(**change), a)
    with pytest.raises(eckart.FileError, match="checkpoint of other work"):
        runs.fit(model, a + 1)
    with pytest.raises(eckart.FileError, match="checkpoint of other work"):
        runs.fit(SVP(5) if name != "svp" else SVT(), a)
    assert_same(runs.fit(model.set_params(n_threads=2), a), clone(model).fit(a))


def test_a_file_that_is_no_checkpoint_is_refused(runs):
    model, data = CASES["svp"]
    assert runs.fit(model, data(), killed_at=4) is None
    runs.path.write_bytes(runs.path.read_bytes()[:-3])
    with pytest.raises(eckart.FileError, match="not a complete checkpoint"):
        runs.fit(model, data())
    with pytest.raises(eckart.FileError, match="is not a folder"):
        SVP(2, checkpoint=runs.path / "s").fit(data())


@pytest.mark.parametrize(
    "seed", ["generator", *(pytest.param(s, marks=pytest.mark.slow) for s in (None, "old"))]
)
def test_any_random_state_resumes(runs, seed):
    """Without a seed the draws go on from the file: the resumed fit ends where the killed one would
    have."""
    kinds = {
        "generator": np.random.Generator(np.random.MT19937(3)),
        "old": np.random.RandomState(3),
    }
    model, data = SoftImpute(random_state=kinds.get(seed)), small()
    assert runs.fit(model, data, killed_at=12) is None
    kept = runs.path.read_bytes()
    one = runs.fit(model, data)
    runs.path.write_bytes(kept)
    assert_same(runs.fit(model, data), one)


@pytest.mark.parametrize(
    ("name", "late"),
    [
        ("svp", False),
        ("svt", True),
        pytest.param("soft-impute debiased", False, marks=pytest.mark.slow),
        ("soft-impute debiased", True),
        pytest.param("exact, second attempt", True, marks=pytest.mark.slow),
        ("exact", False),
    ],
)
def test_an_interrupted_fit_keeps_its_file(runs, name, late):
    model, data = CASES[name]
    a = data()
    whole = runs.fit(model, a)
    moment = len(runs.states) - 2 if late else 3
    try:
        short = runs.fit(model, a, killed_at=moment, error=KeyboardInterrupt)
        assert short.fit_.trace.reason is StopReason.INTERRUPTED
        assert short.fit_.plan["stopped"] == StopReason.INTERRUPTED.value
    except KeyboardInterrupt:
        assert name == "exact"  # before the first attempt is over there is nothing to hand over
    assert_same(runs.fit(model, a), whole)


def test_an_interrupt_while_tau_is_chosen_ends_the_fit(runs):
    model, data = CASES["soft-impute with tau chosen"]
    a = data()
    whole = clone(model).fit(a)
    with pytest.raises(KeyboardInterrupt):
        runs.fit(model, a, killed_at=9, error=KeyboardInterrupt)
    assert len(runs.states) == 9
    assert_same(runs.fit(model, a), whole)


def test_states_are_packed_and_unpacked():
    turned = np.arange(6.0).reshape(3, 2).T
    state = {
        "a": [turned, np.zeros((4, 0), np.float32), None],
        "b": {"c": 0.1 + 0.2, "d": np.inf, "e": True},
        "f": lambda: 2**100,
    }
    back = unpack(pack(state))
    assert back["a"][0].flags.f_contiguous
    assert np.array_equal(back["a"][0], turned)
    assert back["a"][1].shape == (4, 0)
    assert back["a"][1].dtype == np.float32
    assert back["a"][2] is None
    assert back["b"] == {"c": 0.1 + 0.2, "d": np.inf, "e": True}
    assert back["f"] == 2**100


def test_levels_resume_once(tmp_path):
    """A level takes its state back once; the second call of an inner loop begins anew."""
    rng = np.random.default_rng(0)
    file = Checkpoint(tmp_path / "s", {}, seconds=0.0)
    outer = Memory.of(file, rng)
    assert outer.last() is None
    begin = rng.bit_generator.state
    outer.inner({"at": 1}).inner([2]).offer("here")
    drawn = rng.standard_normal(3)
    again = np.random.default_rng(5)
    outer = Memory.of(file, again)
    assert outer.last() == {"at": 1}
    inner = outer.inner({"at": 1})
    assert inner.last() == [2]
    assert inner.inner([2]).last() == "here"
    assert inner.inner([3]).last() is None
    assert outer.inner({"at": 2}).last() is None
    assert np.array_equal(again.standard_normal(3), drawn)
    assert np.array_equal(generator_at(rng, begin).standard_normal(3), drawn)


def test_nothing_is_done_where_no_checkpoint_is_asked_for():
    assert Memory().inner(lambda: 1 / 0).offer(lambda: 1 / 0) is None
