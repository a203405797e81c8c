"""Commands that choose and measure before they fit, killed in any of these: run again, the words
and the model are those of a command that was left alone."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from functools import wraps
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from eckart import LDA, BayesianMF
from eckart.complete import compare as comparing
from eckart.io.models.checkpoint import Checkpoint

LONG = ("--rows", "user", "--columns", "item", "--values", "value")
AUTO = ("complete", "r.csv", *LONG, "-k", 1)
WORDS = [
    "apple",
    "plum",
    "pear",
    "moon",
    "star",
    "night",
    "north",
    "south",
    "river",
    "stone",
    "glass",
    "paper",
]
TOPICS = ("explain", "t.txt", "--method", "lda", "-k", "auto", "--max-iter", 10)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    for name in ("r", "other"):
        a = (
            12
            + rng.standard_normal((30, 1)) @ rng.standard_normal((1, 16))
            + 0.2 * rng.standard_normal((30, 16))
        )
        cells = [(i, j, a[i, j]) for i in range(30) for j in range(16) if rng.random() < 0.6]
        (folder / f"{name}.csv").write_text(
            "user,item,value\n" + "\n".join(f"u{i},i{j},{v:.3f}" for i, j, v in cells)
        )
    (folder / "t.txt").write_text("\n".join(" ".join(rng.choice(WORDS, 6)) for _ in range(60)))
    (folder / "u.csv").write_text("user,age\n" + "\n".join(f"u{i},{20 + i}" for i in range(30)))
    (folder / "v.csv").write_text("user,age\n" + "\n".join(f"u{i},{21 + i}" for i in range(30)))
    return folder


@pytest.fixture(autouse=True)
def few_draws(monkeypatch):
    monkeypatch.setattr(comparing, "DRAWS", {"n_samples": 6, "burn_in": 6, "thin": 1})
    usual = BayesianMF.__init__

    @wraps(usual)
    def init(self, *a, **more):
        usual(self, *a, **{"n_samples": 6, "burn_in": 6} | more)

    monkeypatch.setattr(BayesianMF, "__init__", init)


def said(out):
    """What a command printed, without times."""
    out = re.sub(r"\n  .*choosing and measuring took .*", "", out)
    return re.sub(r"in [\d.e+-]+ s\b", "in some seconds", out).replace(
        "whole.safetensors", "m.safetensors"
    )


def bits(name):
    return {key: array.tobytes() for key, array in load_file(name).items()}


def killed(eckart_, monkeypatch, name, count, words):
    """The command, ended after the ``count``-th state of the file of that name."""
    save, seen = Checkpoint.save, []

    def at(self, arrays):
        save(self, arrays)
        seen.append(1) if self.path.name == name else None
        if len(seen) == count:
            raise SystemError("killed")

    with monkeypatch.context() as m:
        m.setattr(Checkpoint, "due", lambda self: self.path.name in (name, "state.steps"))
        m.setattr(Checkpoint, "save", at)
        assert "killed" in eckart_(*words, "--checkpoint", "state")[2]
    assert not Path("m.safetensors").exists()


PLACES = {
    "the comparison": (AUTO, "state.held-out.bayes", 3),
    "the measured fit": (AUTO, "state.held-out", 3),
    "the final fit": (AUTO, "state", 3),
    "tuning in the comparison": (AUTO, "state.held-out.tune", 2),
    "the final fit without a measure": ((*AUTO, "--held-out", 0), "state", 3),
    "tuning": ((*AUTO, "--method", "als"), "state.held-out", 2),
    "the final fit after tuning": ((*AUTO, "--method", "als"), "state", 1),
    "the final fit of one method": ((*AUTO, "--method", "als", "--l2", 0.1), "state", 1),
    "the final fit of implicit feedback": ((*AUTO, "--feedback", "implicit"), "state", 1),
    "the final fit of soft-impute": ((*AUTO[:-2], "--method", "soft-impute"), "state", 1),
    "candidates": (TOPICS, "state.candidates", 2),
    "a candidate": (TOPICS, "state.candidates.candidate-2", 2),
    "the measured topics": (TOPICS, "state.held-out", 2),
    "the final topics": (TOPICS, "state", 2),
}
QUICK = ("the final fit",)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "place", [p if p in QUICK else pytest.param(p, marks=pytest.mark.slow) for p in PLACES]
)
def test_a_killed_command_says_and_finds_the_same(place, eckart_, monkeypatch):
    words, name, count = PLACES[place]
    whole = eckart_(*words, "--model", "whole.safetensors")
    words = (*words, "--model", "m.safetensors")
    killed(eckart_, monkeypatch, name, count, words)
    assert list(Path().glob("state*"))
    again = eckart_(*words, "--checkpoint", "state")
    assert not list(Path().glob("state*"))
    assert (again[0], said(again[1]), again[2]) == (whole[0], said(whole[1]), whole[2])
    assert bits("m.safetensors") == bits("whole.safetensors")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_what_was_measured_is_not_fitted_again(eckart_, monkeypatch):
    words = (*AUTO, "--method", "bayes", "-q", "--model", "m.safetensors")
    killed(eckart_, monkeypatch, "state", 3, words)
    fits, fit = [], BayesianMF.fit
    monkeypatch.setattr(
        BayesianMF,
        "fit",
        lambda self, *a, **more: fits.append(self.checkpoint) or fit(self, *a, **more),
    )
    eckart_(*words, "--checkpoint", "state")
    assert [path.name for path in fits] == ["state"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_topics_that_were_tried_are_not_fitted_again(eckart_, monkeypatch):
    words = (*TOPICS, "-q", "--model", "m.safetensors")
    killed(eckart_, monkeypatch, "state", 2, words)
    fits, fit = [], LDA.fit
    monkeypatch.setattr(
        LDA, "fit", lambda self, *a, **more: fits.append(self.checkpoint) or fit(self, *a, **more)
    )
    eckart_(*words, "--checkpoint", "state")
    assert [path.name for path in fits] == ["state"]


@pytest.mark.filterwarnings("ignore")
def test_steps_of_other_data_or_options_and_damaged_ones_are_refused(eckart_, refused, monkeypatch):
    words = ("--model", "m.safetensors", "--checkpoint", "state")
    killed(eckart_, monkeypatch, "state.held-out.bayes", 2, (*AUTO, "--model", "m.safetensors"))
    assert "other work (its data have another content)" in refused(
        "complete", "other.csv", *AUTO[2:], *words
    )
    assert "seed must be '1', got '0'" in refused(*AUTO, "--seed", 1, *words)
    assert "rank must be '2', got '1'" in refused(*AUTO[:-1], 2, *words)
    assert "held out must be '0.2', got '0.1'" in refused(*AUTO, "--held-out", 0.2, *words)
    assert "method must be 'als', got 'auto'" in refused(*AUTO, "--method", "als", *words)
    sound = Path("state.steps").read_bytes()
    for damaged in (
        sound[:-1],
        sound[: len(sound) // 2],
        sound[:-9] + bytes([sound[-9] ^ 1]) + sound[-8:],
        b"",
    ):
        Path("state.steps").write_bytes(damaged)
        assert "state.steps is not a complete checkpoint" in refused(*AUTO, *words)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_steps_with_other_attributes_are_refused(eckart_, refused, monkeypatch):
    words = (*AUTO, "--method", "als", "--row-features")
    killed(eckart_, monkeypatch, "state", 1, (*words, "u.csv:user", "--model", "m.safetensors"))
    assert "attributes is" in refused(
        *words, "v.csv:user", "--model", "m.safetensors", "--checkpoint", "state"
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_plan_leaves_a_checkpoint_alone(eckart_, monkeypatch):
    killed(eckart_, monkeypatch, "state.held-out.bayes", 2, (*AUTO, "--model", "m.safetensors"))
    before = {file.name: file.read_bytes() for file in Path().glob("state*")}
    assert eckart_(*AUTO, "--checkpoint", "state", "--plan")[0] == 0
    assert {file.name: file.read_bytes() for file in Path().glob("state*")} == before


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL here")
@pytest.mark.parametrize("steps", [1, 3, 5])
def test_a_process_that_was_killed(steps, data, tmp_path):
    command = [
        sys.executable,
        "-m",
        "eckart",
        *map(str, AUTO[:1]),
        str(data / "r.csv"),
        *map(str, AUTO[2:]),
        "--model",
    ]
    whole = subprocess.run(
        [*command, "whole.safetensors"], cwd=tmp_path, capture_output=True, text=True
    )
    again = [*command, "m.safetensors", "--checkpoint", "state"]
    child = subprocess.Popen(
        again, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    seen, last, end = 0, None, time.monotonic() + 120
    while seen < steps and time.monotonic() < end:
        try:
            now = os.stat(tmp_path / "state.steps").st_mtime_ns
        except FileNotFoundError:
            now = last
        seen, last = seen + (now != last), now
        time.sleep(0.002)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert (tmp_path / "state.steps").exists()
    assert not (tmp_path / "m.safetensors").exists()
    resumed = subprocess.run(again, cwd=tmp_path, capture_output=True, text=True)
    assert (resumed.returncode, said(resumed.stdout), resumed.stderr) == (
        whole.returncode,
        said(whole.stdout),
        whole.stderr,
    )
    assert bits(tmp_path / "m.safetensors") == bits(tmp_path / "whole.safetensors")
    assert not list(tmp_path.glob("state*"))
