"""Every verb with --checkpoint, killed after some states and run again: the model file holds the
arrays of a command that was left alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from eckart.complete.items import slim
from eckart.io.models.checkpoint import Checkpoint

LONG = ("--rows", "user", "--columns", "item", "--values", "value")
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


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    cells = [
        (i, j, int(rng.integers(1, 6))) for i in range(40) for j in range(20) if rng.random() < 0.5
    ]
    (folder / "r.csv").write_text(
        "user,item,value\n" + "\n".join(f"u{i},i{j},{v}" for i, j, v in cells)
    )
    x = np.abs(rng.standard_normal((60, 8)))
    np.savetxt(folder / "x.csv", x, delimiter=",", header="a,b,c,d,e,f,g,h", comments="")
    (folder / "t.txt").write_text("\n".join(" ".join(rng.choice(WORDS, 5)) for _ in range(80)))
    return folder


COMMANDS = {
    "als": ("complete", "r.csv", *LONG, "-k", 2, "--l2", 0.1, "--method", "als"),
    "tuned als": ("complete", "r.csv", *LONG, "--method", "als"),
    "bayes": ("complete", "r.csv", *LONG, "-k", 2, "--method", "bayes"),
    "soft-impute": ("complete", "r.csv", *LONG, "--method", "soft-impute"),
    "svt": ("complete", "r.csv", *LONG, "--method", "svt"),
    "svp": ("complete", "r.csv", *LONG, "-k", 2, "--method", "svp"),
    "exact": ("complete", "r.csv", *LONG, "-k", 2, "--method", "exact"),
    "slim": ("complete", "r.csv", *LONG, "--method", "slim", "--feedback", "implicit"),
    "lanczos": ("reduce", "x.csv", "-k", 2, "--solver", "lanczos"),
    "autoencoder": ("reduce", "x.csv", "-k", 2, "--method", "autoencoder", "--max-iter", 5),
    "nmf": ("explain", "x.csv", "--method", "nmf", "-k", 2),
    "mixture": ("explain", "x.csv", "--method", "mixture", "-k", 2),
    "lda": ("explain", "t.txt", "--method", "lda", "-k", 2, "--max-iter", 20),
    "plsa": ("explain", "t.txt", "--method", "plsa", "-k", 2),
}
QUICK = ("slim", "lanczos", "plsa")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in COMMANDS],
)
def test_a_killed_command_goes_on_to_the_same_arrays(name, eckart_, monkeypatch):
    if name == "autoencoder":
        pytest.importorskip("torch")
    monkeypatch.setattr(slim, "AT_ONCE", 4)
    words = (*COMMANDS[name], "-q", "--model")
    eckart_(*words, "whole.safetensors")
    save, written = Checkpoint.save, []

    def killed(self, arrays):
        save(self, arrays)
        written.append(1)
        if len(written) == 3:
            raise SystemError("killed")

    with monkeypatch.context() as m:
        m.setattr(Checkpoint, "due", lambda self: True)
        m.setattr(Checkpoint, "save", killed)
        assert "killed" in eckart_(*words, "m.safetensors", "--checkpoint", "state")[2]
    assert list(Path().glob("state*"))
    assert not Path("m.safetensors").exists()
    eckart_(*words, "m.safetensors", "--checkpoint", "state")
    assert not list(Path().glob("state*"))
    whole, again = load_file("whole.safetensors"), load_file("m.safetensors")
    assert {n: a.tobytes() for n, a in whole.items()} == {n: a.tobytes() for n, a in again.items()}


def test_a_closed_form_has_no_checkpoint(eckart_):
    words = (
        "complete",
        "r.csv",
        *LONG,
        "--method",
        "ease",
        "--feedback",
        "implicit",
        "--checkpoint",
        "state",
    )
    code, _, told = eckart_(*words)
    assert code == 2
    assert "--checkpoint state came with --method ease" in told
