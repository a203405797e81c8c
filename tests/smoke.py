"""A few seconds of every verb, for an installed eckart: `make test-wheel` runs this where only the
wheel and what it requires are installed.

It uses no test package and no optional one, and fails with an assertion that names what went wrong.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

import numpy as np

import eckart


def installed() -> None:
    """It is the wheel that is imported, not a checkout, and one version is told everywhere."""
    folder = Path(eckart.__file__).parent
    assert "site-packages" in folder.parts, (
        f"eckart was imported from {folder}, wanted an installed wheel"
    )
    assert metadata.version("eckart") == eckart.__version__
    assert (folder / "py.typed").is_file()


def reduce() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 8)) + 0.1 * rng.standard_normal(
        (60, 8)
    )
    model = eckart.PCA(2, random_state=0).fit(x)
    assert model.certificate_.holds, model.certificate_.reason
    gappy = np.where(rng.random(x.shape) < 0.2, np.nan, x)
    assert np.isfinite(eckart.PCA(2, random_state=0).fit(gappy).impute(gappy)).all()


def complete() -> None:
    rng = np.random.default_rng(0)
    stars = 3 + rng.standard_normal((40, 1)) @ rng.standard_normal((1, 30))
    i, j = np.nonzero(rng.random(stars.shape) < 0.5)
    table = {"person": i, "film": [f"film {n}" for n in j], "stars": stars[i, j]}
    model = eckart.ALS(1, random_state=0).fit(table, rows="person", columns="film", values="stars")
    assert model.recommend(3, n=2).columns.shape == (1, 2)


def explain() -> None:
    counts = eckart.corpus(
        ["sun and moon", "moon and star", "apple and plum", "plum and pear"], stop_words="english"
    )
    assert eckart.LDA(2, random_state=0).fit(counts).transform(counts).shape == (4, 2)
    x = np.concatenate([np.random.default_rng(0).standard_normal((50, 2)) + 9 * c for c in (0, 1)])
    assert len(set(eckart.GaussianMixture(2, random_state=0).fit(x).predict(x))) == 2


def embed() -> None:
    text = ["the cat sat", "the dog sat", "a cat ran", "a dog ran"] * 5
    model = eckart.PMI(2, window=2, random_state=0).fit(text)
    assert model.vectors_.neighbours("cat", 1)[0][0] == "dog"


def shell() -> None:
    """The command is on the path beside the interpreter; a model survives a file."""
    with tempfile.TemporaryDirectory() as folder:
        np.savetxt(
            Path(folder) / "x.csv",
            np.random.default_rng(0).standard_normal((30, 4)),
            delimiter=",",
            header="a,b,c,d",
            comments="",
        )
        command = Path(sys.executable).with_name("eckart.exe" if os.name == "nt" else "eckart")
        for words in (
            ["reduce", "x.csv", "-k", "2", "--model", "m.safetensors", "--report", "r.html"],
            ["certify", "m.safetensors", "x.csv"],
        ):
            done = subprocess.run(
                [str(command), *words], cwd=folder, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stdout + done.stderr
        assert eckart.load(Path(folder) / "m.safetensors").components_.shape == (2, 4)


if __name__ == "__main__":
    for verb in (installed, reduce, complete, explain, embed, shell):
        verb()
        print(f"{verb.__name__:<10} ok", flush=True)
