"""Checkpoints of every model that has them: a changed bit anywhere, a file cut short, other data or
other parameters are refused in words, never resumed."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse

import eckart
from eckart import (
    ALS,
    LDA,
    NMF,
    PCA,
    PLSA,
    PMI,
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
)
from eckart.io.models.checkpoint import Checkpoint, digest


class Killed(Exception):
    pass


def gaps(seed=0):
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((40, 2)) @ rng.standard_normal((2, 15))
    a[rng.random(a.shape) < 0.3] = np.nan
    return a


def rows(seed=0):
    return np.random.default_rng(seed).standard_normal((20_000, 5))


def groups(seed=0):
    return np.random.default_rng(seed).standard_normal((90, 3)) + np.repeat(
        [[0.0], [3.0], [9.0]], 30, axis=0
    )


def counts(seed=0):
    return np.random.default_rng(seed).poisson(0.7, (40, 12)).astype(float)


def text(seed=0):
    rng = np.random.default_rng(seed)
    # words repeat, so these are sentences and no sets of items: their windows matter
    return [list(rng.choice(["a", "b", "c", "d"], 6)) for _ in range(300)]


def pair_counts(seed=0):
    """Of more words than are decomposed at once."""
    a = sparse.random_array((500, 500), density=0.02, rng=np.random.default_rng(seed), format="csr")
    return a + a.T


def network(name):
    def make(**more):
        pytest.importorskip("torch")
        return getattr(eckart, name)(hidden=[4], max_iter=4, **more)

    return make


CASES = {
    "PCA": (lambda **more: PCA(2, svd_solver="eigh", **more), rows, {"center": False}),
    "ALS": (lambda **more: ALS(2, tol=0.0, **{"max_iter": 8, "l2": 0.1} | more), gaps, {"l2": 0.2}),
    "BayesianMF": (
        lambda **more: BayesianMF(2, burn_in=4, **{"n_samples": 8} | more),
        gaps,
        {"n_samples": 9},
    ),
    "SVP": (lambda **more: SVP(2, tol=0.0, **{"max_iter": 30} | more), gaps, {"max_iter": 31}),
    "SVT": (lambda **more: SVT(tol=1e-12, **{"max_iter": 30} | more), gaps, {"max_iter": 31}),
    "SoftImpute": (
        lambda **more: SoftImpute(**{"tau": 0.5, "tol": 1e-12} | more),
        gaps,
        {"tau": 0.6},
    ),
    "ExactRecovery": (lambda **more: ExactRecovery(2, **more), gaps, {"n_components": 3}),
    "GloVe": (lambda **more: GloVe(2, min_count=1, tol=0.0, **more), text, {"window": 3}),
    "SkipGram": (
        lambda **more: SkipGram(2, min_count=1, **{"sample": None} | more),
        text,
        {"window": 3},
    ),
    "SkipGram exact": (
        lambda **more: SkipGram(
            2, min_count=1, solver="exact", **{"max_iter": 9, "sample": None} | more
        ),
        lambda seed=0: text(seed)[:7],
        {"max_iter": 8},
    ),
    "PMI": (lambda **more: PMI(2, **{"shift": 1.0} | more), pair_counts, {"shift": 2.0}),
    "GaussianMixture": (
        lambda **more: GaussianMixture(3, **{"tol": 1e-9} | more),
        groups,
        {"tol": 1e-8},
    ),
    "Mixture": (lambda **more: Mixture(3, **{"tol": 1e-9} | more), groups, {"tol": 1e-8}),
    "PLSA": (lambda **more: PLSA(3, **{"inner": 2} | more), counts, {"inner": 3}),
    "LDA": (lambda **more: LDA(3, burn_in=9, **{"n_samples": 3} | more), counts, {"n_samples": 4}),
    "NMF": (lambda **more: NMF(2, **{"tol": 1e-6} | more), counts, {"tol": 1e-5}),
    "PCA with gaps": (lambda **more: PCA(2, **more), gaps, {"tol": 1e-3}),
    "PCA by Krylov": (
        lambda **more: PCA(2, svd_solver="lanczos", **more),
        lambda seed=0: rows(seed)[:60],
        {"tol": 1e-3},
    ),
    "LinearAutoencoder": (
        lambda **more: LinearAutoencoder(2, **{"max_iter": 40} | more),
        counts,
        {"max_iter": 41},
    ),
    "Autoencoder": (network("Autoencoder"), gaps, {"tol": 0.5}),
}


@pytest.fixture
def stopped(monkeypatch, tmp_path):
    """The file of a fit that was killed after it had written its state twice."""

    def stop(name):
        make, data, _ = CASES[name]
        kept, path = Checkpoint.save, tmp_path / "state"
        count = []

        def save(self, arrays):
            kept(self, arrays)
            count.append(1)
            if len(count) == 2 or name in ("PCA", "GloVe"):
                raise Killed

        with monkeypatch.context() as m:
            m.setattr(Checkpoint, "due", lambda self: True)
            m.setattr(Checkpoint, "save", save)
            with pytest.raises(Killed):
                make(checkpoint=path, random_state=0).fit(data())
        return path

    return stop


def regions(raw):
    """Where the header of the file, the text of the state and every array lie."""
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    mark = raw.index(b"__metadata__")
    found = {"header": (mark, mark + len(json.dumps(header["__metadata__"])))}
    for name, about in header.items():
        if name != "__metadata__":
            found[name] = tuple(8 + length + end for end in about["data_offsets"])
    return {name: span for name, span in found.items() if span[1] > span[0]}


@pytest.mark.parametrize("name", CASES)
def test_a_changed_bit_in_any_array_is_refused(name, stopped):
    path, (make, data, _) = stopped(name), CASES[name]
    raw, rng = path.read_bytes(), np.random.default_rng(0)
    model = make(checkpoint=path, random_state=0)
    for begin, end in regions(raw).values():
        for at in rng.integers(begin, end, 3):
            bad = bytearray(raw)
            bad[at] ^= 1 << int(rng.integers(8))
            path.write_bytes(bad)
            with pytest.raises(eckart.FileError, match="delete it to start over"):
                model.fit(data())
    for size in (0, 7, 100, len(raw) // 2, len(raw) - 1):
        path.write_bytes(raw[:size])
        with pytest.raises(eckart.FileError, match="not a complete checkpoint"):
            model.fit(data())


@pytest.mark.parametrize("name", CASES)
def test_other_data_and_other_parameters_are_refused(name, stopped):
    path, (make, data, other) = stopped(name), CASES[name]
    with pytest.raises(eckart.FileError, match="checkpoint of other work"):
        make(checkpoint=path, random_state=0).fit(data(1))
    with pytest.raises(eckart.FileError, match="checkpoint of other work"):
        make(checkpoint=path, random_state=0).set_params(**other).fit(data())
    make(checkpoint=path, random_state=0).fit(data())
    assert not path.exists()


def test_weights_of_rows_belong_to_the_data(stopped):
    path, x = stopped("PCA"), rows()
    with pytest.raises(eckart.FileError, match="another content"):
        PCA(2, svd_solver="eigh", checkpoint=path, random_state=0).fit(
            x, sample_weight=np.ones(len(x))
        )


@pytest.mark.parametrize("ending", ["csv", "parquet", "npy"])
def test_a_file_is_known_by_its_content(ending, tmp_path, monkeypatch):
    """Not by its name, size or time of change."""
    import pandas as pd

    from eckart.io import read as door
    from eckart.io.models.checkpoint import about_rows

    monkeypatch.setattr(door, "IN_MEMORY_BYTES", 0)
    path, found = tmp_path / f"x.{ending}", []
    for value in (1.5, 2.5, 1.5):
        table = np.full((5, 2), value)
        if ending == "npy":
            np.save(path, table)
        else:
            getattr(pd.DataFrame(table, columns=["a", "b"]), f"to_{ending}")(path, index=False)
        os.utime(path, (0, 0))
        found.append(about_rows(door.read(str(path)), {})["data"])
    assert found[0] == found[2] != found[1]


def test_the_digest_sees_every_bit_kind_and_order():
    a = np.arange(3 * 2**20, dtype=np.float64).reshape(-1, 3)
    b = a.copy()
    b[2**19, 1] = np.nextafter(b[2**19, 1], 0)
    others = [
        b,
        a.astype(np.float32),
        a.reshape(3, -1),
        a[::-1],
        a[:-1],
        np.datetime64("2020-01-01"),
        np.array(["x"], object),
    ]
    assert len({digest(x) for x in (a, *others)}) == 1 + len(others)
    assert digest(np.asfortranarray(a)) == digest(a)
    assert digest(a, None) != digest(None, a)


def test_what_a_killed_save_left_is_removed_by_the_next(tmp_path):
    script = (
        "import os, sys; from pathlib import Path; from eckart.io.models.whole_files import "
        "temporary_file; temporary_file(Path(sys.argv[1])); os._exit(9)"
    )
    target = tmp_path / "m.safetensors"
    assert subprocess.run([sys.executable, "-c", script, target], check=False).returncode == 9
    (left,) = os.listdir(tmp_path)
    alive = left.replace(left.split("-")[1], str(os.getpid()))
    (tmp_path / alive).write_bytes(b"a save that goes on")
    PCA(1).fit(np.eye(3)).save(target)
    assert sorted(os.listdir(tmp_path)) == sorted([alive, target.name])


def test_a_checkpoint_that_is_no_name_of_a_file_is_refused_in_words():
    with pytest.raises(
        eckart.InputError, match="checkpoint must be None or the name of a file, got 5"
    ):
        ALS(1, checkpoint=5).fit(gaps())
