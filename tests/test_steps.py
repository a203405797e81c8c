"""Work in steps that was killed: what was done is not done again, what the time decided stays
decided, and files of other work or with damage are refused."""

from __future__ import annotations

import time
from functools import cache

import numpy as np
import pytest

from eckart import ALS, BayesianMF
from eckart.complete import compare as comparing
from eckart.complete.compare import biases_only, compare
from eckart.errors import FileError
from eckart.io.models.checkpoint import Checkpoint, Steps, spent_in, steps_in
from eckart.io.tables.triples import observed


class Killed(Exception):
    pass


def entries(seed=0):
    rng = np.random.default_rng(seed)
    a = (
        rng.standard_normal((30, 1)) @ rng.standard_normal((1, 16))
        + 0.2 * rng.standard_normal((30, 16))
        + 3
    )
    a[rng.random(a.shape) < 0.4] = np.nan
    return observed(a)


@pytest.fixture
def quick(monkeypatch):
    """Most states are written, and draws are few."""
    monkeypatch.setattr(Checkpoint, "due", lambda self: self.path.name in ("c", "c.bayes", "c.als"))
    monkeypatch.setattr(comparing, "DRAWS", {"n_samples": 6, "burn_in": 6, "thin": 1})


def builder(folder):
    """Estimators whose checkpoints lie in a folder; None: without."""

    def build(method, part, **more):
        path = folder / f"c.{part}" if folder is not None and part else None
        kind = {"biases": biases_only, "als": ALS, "bayes": BayesianMF}[method]
        return kind(random_state=0, checkpoint=path, **more)

    return build


def compared(x, folder=None, budget=60.0):
    with steps_in(folder and folder / "c", "a comparison", x, {"k": 1}) as steps:
        return compare(x, builder(folder), 1, steps=steps, budget=budget)


def told(found):
    """All of a comparison but its times."""
    tuning = None if found.tuning is None else [t._replace(seconds=0.0) for t in found.tuning.table]
    return (
        found.method,
        found.parameters,
        [(*row[:3], row.words) for row in found.table],
        tuning,
        found.reason,
    )


@cache
def whole_run():
    """A comparison that was left alone."""
    return told(compared(entries()))


def killed_at(monkeypatch, name, count, work, by=Killed):
    """Work that ends after the ``count``-th state of the file of that name was written."""
    save, seen = Checkpoint.save, []

    def at(self, arrays):
        save(self, arrays)
        seen.append(1) if self.path.name == name else None
        if len(seen) == count:
            raise by

    with monkeypatch.context() as m:
        m.setattr(Checkpoint, "save", at)
        m.setattr(Checkpoint, "due", lambda self: self.path.name in ("c", "c.bayes", "c.als", name))
        with pytest.raises(by):
            work()


@pytest.mark.parametrize(
    ("name", "count"),
    [("c.bayes", 5), ("c.tune.candidate-1.fold-0", 1), ("c.bayes-2", 3)]
    + [
        pytest.param(*at, marks=pytest.mark.slow)
        for at in (
            ("c", 1),
            ("c", 5),
            ("c.biases", 1),
            ("c.als", 1),
            ("c.tune", 2),
            ("c.tune.final", 1),
        )
    ],
)
def test_a_killed_comparison_goes_on_to_the_same_choice(name, count, quick, monkeypatch, tmp_path):
    x = entries()
    killed_at(monkeypatch, name, count, lambda: compared(x, tmp_path))
    assert told(compared(x, tmp_path)) == whole_run()
    # its steps stay until the work around it is complete
    assert [file.name for file in tmp_path.iterdir()] == ["c"]


def test_candidates_that_were_judged_are_not_fitted_again(quick, monkeypatch, tmp_path):
    x = entries()
    killed_at(monkeypatch, "c.tune", 2, lambda: compared(x, tmp_path))
    fits = []
    fit = BayesianMF.fit
    monkeypatch.setattr(
        BayesianMF, "fit", lambda self, *a, **b: fits.append(self) or fit(self, *a, **b)
    )
    compared(x, tmp_path)
    # rounds that had not begun
    assert {fit.checkpoint.name for fit in fits} == {"c.bayes-2", "c.bayes-3", "c.bayes-4"}


@pytest.mark.slow
def test_an_interrupted_candidate_is_not_judged(quick, monkeypatch, tmp_path):
    x = entries()
    killed_at(
        monkeypatch, "c.bayes", 5, lambda: compared(x, tmp_path), KeyboardInterrupt
    )  # BayesianMF ends with what it has drawn
    assert told(compared(x, tmp_path)) == whole_run()


class Clock:
    """Processor time that passes only where a state is written: a second each."""

    def __init__(self, monkeypatch):
        self.now, self.states = 0.0, {}
        save = Checkpoint.save

        def counted(this, arrays):
            name = this.path.name
            if name in ("c.bayes", "c.als"):
                self.now += 1.0
                self.states[name] = self.states.get(name, 0) + 1
            save(this, arrays)

        monkeypatch.setattr(Checkpoint, "save", counted)
        monkeypatch.setattr(time, "process_time", lambda: self.now)


@pytest.mark.parametrize(
    ("name", "late"), [("c.bayes", 8), pytest.param("c.als", 1, marks=pytest.mark.slow)]
)
def test_the_time_of_a_killed_run_counts(name, late, quick, monkeypatch, tmp_path):
    x, clock = entries(), Clock(monkeypatch)
    folders = [tmp_path / name for name in ("first", "whole", "killed")]
    for folder in folders:
        folder.mkdir()
    compared(x, folders[0], 1e6)
    draws, sweeps = clock.states["c.bayes"], clock.states["c.als"]
    budget = draws + sweeps + comparing.CANDIDATES * sweeps  # just too little: tuning is left out
    whole = compared(x, folders[1], budget)
    assert whole.tuning is None
    assert "to tune them would take" in whole.table[-1].words
    assert compared(x, tmp_path, budget + 1).tuning is not None
    clock.now = 0.0
    killed_at(monkeypatch, name, late, lambda: compared(x, folders[2], budget))
    # beside what tests before waited for clusters
    assert spent_in(folders[2] / name) == pytest.approx(late)
    clock.now = 0.0  # another process
    assert told(compared(x, folders[2], budget)) == told(whole)


@pytest.mark.parametrize("first", [1e9, pytest.param(0.0, marks=pytest.mark.slow)])
def test_what_the_time_decided_stays_decided(first, quick, monkeypatch, tmp_path):
    x = entries()
    with monkeypatch.context() as m:
        m.setattr(comparing, "_seconds_of_draws", lambda *a: first)
        whole = compared(x)
        killed_at(monkeypatch, "c.als", 1, lambda: compared(x, tmp_path))
    monkeypatch.setattr(comparing, "_seconds_of_draws", lambda *a: 1e9 - first)
    assert told(compared(x, tmp_path)) == told(whole)
    assert (whole.table[1].error is None) == (first > 0)


def test_steps_of_other_work_are_refused(tmp_path):
    x, path = entries(), tmp_path / "c"
    with steps_in(path, "work", x, {"k": 1}) as steps:
        steps.take("sum", lambda: 2)
    for name, data, options, words in (
        ("work", entries(1), {"k": 1}, "other work"),
        (
            "work",
            x,
            {"k": 2},
            "c is a checkpoint of other work",
        ),
        (
            "other",
            x,
            {"k": 1},
            "c is a checkpoint of other work",
        ),
    ):
        with pytest.raises(FileError, match=words), steps_in(path, name, data, options):
            pass
    with steps_in(path, "work", x, {"k": 1}) as steps:
        assert steps.take("sum", lambda: 3) == 2
    steps.end()
    assert not path.exists()


def test_every_changed_byte_is_refused(tmp_path):
    x, path = entries(), tmp_path / "c"
    with steps_in(path, "work", x, {"k": 1}) as steps:
        steps.take("sum", lambda: [2.5, np.arange(3)])
    sound = path.read_bytes()
    for at in range(0, len(sound), 7):
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 4]) + sound[at + 1 :])
        with (
            pytest.raises(FileError, match="delete it to start over"),
            steps_in(path, "work", x, {"k": 1}) as steps,
        ):
            pass
    for end in (0, 1, 8, len(sound) // 2, len(sound) - 1):
        path.write_bytes(sound[:end])
        with (
            pytest.raises(FileError, match="not a complete checkpoint"),
            steps_in(path, "work", x, {"k": 1}),
        ):
            pass


@pytest.mark.parametrize(
    "hostile",
    [
        7,
        "text",
        [],
        {"done": 3},
        {"done": {"began": "x"}, "spent": 0.0},
        {"done": {"began": 0.0, "biases": [1]}, "spent": 0.0},
        {"done": {}, "spent": "long"},
    ],
)
def test_steps_of_a_wrong_shape_under_a_right_checksum_are_refused(hostile, tmp_path):
    x = entries()
    with steps_in(tmp_path / "c", "a comparison", x, {"k": 1}) as steps:
        steps._memory.offer(hostile)
    with pytest.raises(FileError, match="not a complete checkpoint"):
        compared(x, tmp_path)


def test_an_error_of_the_work_is_not_blamed_on_the_file(tmp_path):
    x = entries()
    with steps_in(tmp_path / "c", "work", x, {}) as steps:
        steps.take("one", lambda: 1)
    with (
        pytest.raises(ValueError, match="of the work"),
        steps_in(tmp_path / "c", "work", x, {}) as steps,
    ):
        steps.take("two" if steps.take("one", lambda: 1) else "", lambda: float("of the work"))


def test_without_a_file_steps_give_what_a_file_would(tmp_path):
    value = {"a": (1, 2.5, None), "b": np.arange(3), "c": np.float64(0.1)}
    plain = Steps().take("x", lambda: value)
    with steps_in(tmp_path / "c", "work", entries(), {}) as steps:
        steps.take("x", lambda: value)
    with steps_in(tmp_path / "c", "work", entries(), {}) as steps:
        again = steps.take("x", lambda: None)
    assert plain.keys() == again.keys()
    assert (plain["a"], plain["c"]) == (again["a"], again["c"]) == ([1, 2.5, None], 0.1)
    assert plain["b"].tobytes() == again["b"].tobytes() == value["b"].tobytes()
