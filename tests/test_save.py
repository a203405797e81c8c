"""Saved models come back bit for bit; anything else that calls itself a model is refused, and
nothing of it is run."""

from __future__ import annotations

import json
import os
import pickle
import struct

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import save as to_bytes

from eckart import PCA, FileError, InputError, LinearAutoencoder, load
from eckart.io.models import save as saving


@pytest.fixture(scope="module")
def x():
    rng = np.random.default_rng(0)
    return rng.standard_normal((30, 4)) @ rng.standard_normal((4, 4)) + 1


@pytest.fixture
def path(tmp_path):
    return tmp_path / "m.safetensors"


@pytest.fixture(scope="module")
def model(x):
    return PCA(2, random_state=0).fit(pd.DataFrame(x, columns=list("abcd")))


@pytest.fixture(scope="module")
def good(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("good") / "m.safetensors"
    model.save(path)
    return path.read_bytes()


def gaps(x):
    y = x.copy()
    y[::5, 1] = np.nan
    return y


MODELS = {
    "plain": lambda x: PCA(2).fit(x),
    "float32": lambda x: PCA(2).fit(x.astype(np.float32)),
    "gaps": lambda x: PCA(2).fit(gaps(x)),
    "whiten": lambda x: PCA(3, whiten=True).fit(x),
    "varimax": lambda x: PCA(2, rotation="varimax").fit(x),
    "promax": lambda x: PCA(2, rotation="promax").fit(x),
    "svd": lambda x: PCA(2, center=False).fit(x),
    "none": lambda x: PCA(0).fit(x),
    "one row": lambda x: PCA(1).fit(x[:1]),
    "huge": lambda x: PCA(2).fit(x * 1e150),
    "tiny": lambda x: PCA(2).fit(x * 1e-150),
    "partial": lambda x: PCA(2).partial_fit(x),
    "lanczos": lambda x: PCA(2, svd_solver="lanczos", random_state=0).fit(x),
    "text names": lambda x: PCA(2).fit(pd.DataFrame(x, columns=["é", "日", "x y", '"\\\n'])),
    "int names": lambda x: PCA(2).fit(pd.DataFrame(x)),
    "autoencoder": lambda x: LinearAutoencoder(2, random_state=0).fit(x),
    "autoencoder float32": lambda x: LinearAutoencoder(2, random_state=0).fit(x.astype(np.float32)),
    "autoencoder batches": lambda x: LinearAutoencoder(
        1, batch_size=7, max_iter=20, random_state=0
    ).fit(x),
}


@pytest.mark.parametrize("name", MODELS)
def test_round_trip_is_exact(x, path, name):
    m = MODELS[name](x)
    m.save(path)
    back = load(path)
    assert type(back) is type(m)
    assert back.get_params() == m.get_params()
    f, g = m.fit_.factors, back.fit_.factors
    for part in ("mean", "components", "scatter"):
        assert getattr(f, part).dtype == getattr(g, part).dtype
        assert getattr(f, part).tobytes() == getattr(g, part).tobytes()
    for part in ("total", "noise", "weight", "rows", "centered", "tail_shape"):
        assert getattr(f, part) == getattr(g, part)
        assert type(getattr(f, part)) is type(getattr(g, part))
    assert (f.columns is None) == (g.columns is None)
    assert f.columns is None or [(type(a), a) for a in f.columns.tolist()] == [
        (type(a), a) for a in g.columns.tolist()
    ]
    assert back.certificate_ == m.certificate_
    assert str(back.fit_) == str(m.fit_)
    assert back.fit_.trace.to_dict() == m.fit_.trace.to_dict()
    assert back.fit_.plan == m.fit_.plan
    new = pd.DataFrame(x, columns=f.columns) if f.columns is not None else x.astype(f.mean.dtype)
    np.testing.assert_array_equal(np.asarray(back.transform(new)), np.asarray(m.transform(new)))
    codes = np.asarray(m.transform(new))
    np.testing.assert_array_equal(back.inverse_transform(codes), m.inverse_transform(codes))
    again = path.with_name("again.safetensors")
    back.save(again)
    assert again.read_bytes() == path.read_bytes()


@given(
    hnp.arrays(
        np.float64,
        st.tuples(st.integers(2, 6), st.integers(1, 5)),
        elements=st.floats(-1e6, 1e6).map(lambda v: round(v, 6)),
    ),
    st.integers(0, 2),
)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_round_trip_of_any_data(path, x, k):
    m = PCA(min(k, *x.shape)).fit(x)
    m.save(path)
    assert load(path).transform(x).tobytes() == m.transform(x).tobytes()


@pytest.mark.parametrize("state", [np.random.default_rng(0), np.random.RandomState(0)])
def test_a_generator_does_not_break_saving(x, path, state):
    PCA(2, random_state=state).fit(x).save(path)
    back = load(path)
    assert back.random_state is None
    np.testing.assert_array_equal(back.components_, PCA(2).fit(x).components_)


def test_names_that_json_lacks_come_back_as_they_are(x, path):
    PCA(1).fit(pd.DataFrame(x, columns=pd.MultiIndex.from_product([["p", "q"], ["u", "v"]]))).save(
        path
    )
    assert load(path).fit_.factors.columns[0] == ("p", "u")
    PCA(1).fit(pd.DataFrame(x, columns=pd.date_range("2020", periods=4))).save(path)
    assert str(load(path).fit_.factors.columns[0]).startswith("2020-01-01")


def test_only_classes_that_can_be_loaded_are_saved(x, path):
    mine = type("PCA", (PCA,), {})
    with pytest.raises(
        InputError,
        match="model must be one of PCA, Autoencoder, ",
    ):
        mine(1).fit(x).save(path)
    with pytest.raises(ValueError, match="not fitted"):
        PCA().save(path)
    assert not path.exists()


# ---- files that are not what they seem: FileError and nothing else


def refused(path, data):
    path.write_bytes(data)
    with pytest.raises(FileError) as caught:
        load(path)
    assert str(path) in str(caught.value)


def test_truncated_anywhere(path, good):
    for length in range(0, len(good), 7):
        refused(path, good[:length])
    refused(path, good[:-1])
    refused(path, good + b"\0")


@pytest.mark.parametrize("mask", [0x01, 0x20, 0xFF])
def test_one_flipped_byte_anywhere(path, good, mask):
    """Header length, JSON, checksum and arrays: every byte counts."""
    rng = np.random.default_rng(mask)
    spots = {
        *range(16),
        *rng.choice(len(good), 300, replace=False).tolist(),
        len(good) - 1,
        good.index(b"checksum") + 14,
    }
    spots |= set(
        range(good.index(b"tail_shape") - 60, good.index(b"tail_shape"))
    )  # digits of numbers: same value, other text
    for at in spots:
        bad = bytearray(good)
        bad[at] ^= mask
        refused(path, bytes(bad))


def forge(model, edit=None, arrays=None):
    """A file with a valid checksum and whatever content."""
    a, header = saving.pack(model)
    a, header = (
        {name: part.copy() for name, part in a.items()},
        json.loads(json.dumps(header)),
    )  # the model stays as it is for the next test
    if edit is not None:
        edit(header)
    if arrays is not None:
        arrays(a)
    return to_bytes(a, metadata={"eckart": saving.seal(a, json.dumps(header))})


def test_a_forged_file_is_read_when_nothing_was_changed(path, model):
    path.write_bytes(forge(model))
    assert load(path).n_components_ == 2


@pytest.mark.parametrize(
    "edit",
    [
        lambda h: h.update({"version": 3}),
        lambda h: h.update({"version": 10**30}),
        lambda h: h.update({"version": 0}),
        lambda h: h.update({"version": -1}),
        lambda h: h.update({"version": True}),
        lambda h: h.update({"version": "1"}),
        lambda h: h.pop("version"),
        lambda h: h.update({"format": "other"}),
        lambda h: h.update({"class": "os.system"}),
        lambda h: h.update({"class": "Nothing"}),
        lambda h: h.update({"class": ["PCA"]}),
        lambda h: h.update({"class": None}),
        lambda h: h.pop("class"),
        lambda h: h["params"].update(zzz=1),
        lambda h: h.update(params=[1]),
        lambda h: h.update(params=None),
        lambda h: h.update(columns=["a"]),
        lambda h: h.update(columns="abcd"),
        lambda h: h.update(columns=5),
        lambda h: h.update(columns=[["a"], ["b"], ["c"], ["d"]]),
        lambda h: h["factors"].pop("total"),
        lambda h: h["factors"].update(total="x"),
        lambda h: h["factors"].update(rows=1.5),
        lambda h: h["factors"].update(zz=1),
        lambda h: h.update(factors=None),
        lambda h: h.update(certificate=None),
        lambda h: h["certificate"].update(checks=[1]),
        lambda h: h["certificate"]["checks"][0].update(value="x"),
        lambda h: h["trace"].update(reason="zz"),
        lambda h: h.update(trace=3),
        lambda h: h.update(plan=None),
    ],
)
def test_a_valid_checksum_does_not_help_a_bad_header(path, model, edit):
    refused(path, forge(model, edit))


@pytest.mark.parametrize(
    "arrays",
    [
        lambda a: a.update(components=a["components"][:, :3].copy()),
        lambda a: a.update(components=a["components"][0].copy()),
        lambda a: a.update(components=a["components"].astype(int)),
        lambda a: a.update(components=a["components"].astype(np.float16)),
        lambda a: a.update(scatter=a["scatter"][:1].copy()),
        lambda a: a.update(mean=np.zeros((2, 2))),
        lambda a: a.pop("mean"),
    ],
)
def test_arrays_that_do_not_fit_together(path, model, arrays):
    refused(path, forge(model, arrays=arrays))


def with_metadata(text):
    return to_bytes({"a": np.zeros(3)}, metadata={"eckart": text})


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 8,
        b"hello, this is a text and no model" * 9,
        pickle.dumps({"a": 1}),
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 2**64 - 1) + b"{}",
        struct.pack("<Q", 2) + b"{}",
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 4) + b"\xff\xff\xff\xff",
        struct.pack("<Q", 100_000) + b"[" * 100_000,
        to_bytes({"a": np.zeros(3)}),
        to_bytes({"a": np.zeros(3)}, metadata={"format": "pt"}),
        with_metadata(""),
        with_metadata("[1]"),
        with_metadata('"x"'),
        with_metadata("null"),
        with_metadata("[" * 200_000),
        with_metadata(
            '{"format":"eckart-model","version":1,"x":' + "[" * 100_000 + "]" * 100_000 + "}"
        ),
        with_metadata('{"format":"eckart-model","version":1,"x":' + "[" * 900 + "]" * 900 + "}"),
        with_metadata('{"format":"eckart-model","version":' + "9" * 5000 + "}"),
        with_metadata('{"format":"eckart-model","version":1}'),
    ],
)
def test_foreign_and_hostile_files(path, data):
    refused(path, data)


def test_nothing_of_a_file_is_run(path, model, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "system", lambda *a: pytest.fail("code of the file was run"))
    for name in ("os.system", "builtins.eval", "subprocess.Popen", "__import__('os')"):
        refused(
            path,
            forge(
                model,
                lambda h, name=name: h.update(
                    {"class": name, "params": {"command": "touch pwned"}}
                ),
            ),
        )


def test_paths_that_hold_no_model(tmp_path):
    for bad in (tmp_path, tmp_path / "nope", "a\0b"):
        with pytest.raises(FileError):
            load(bad)
    for bad in (None, 3):
        with pytest.raises(InputError):
            load(bad)
        with pytest.raises(InputError):
            PCA(1).fit(np.eye(3)).save(bad)


# ---- writing


def test_a_failed_save_leaves_the_old_file_and_nothing_else(model, path, good, monkeypatch):
    path.write_bytes(good)

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(FileError, match="No space left"):
        model.save(path)
    assert path.read_bytes() == good
    assert os.listdir(path.parent) == [path.name]

    def stop(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", stop)
    with pytest.raises(KeyboardInterrupt):
        model.save(path)
    assert path.read_bytes() == good
    assert os.listdir(path.parent) == [path.name]


def test_places_that_cannot_be_written(model, tmp_path):
    with pytest.raises(FileError, match="not a folder"):
        model.save(tmp_path / "nofolder" / "m.safetensors")
    with pytest.raises(FileError, match="path must be the name of a file, got the folder"):
        model.save(tmp_path)
    assert os.listdir(tmp_path) == []


def test_the_file_has_ordinary_permissions(model, path):
    old = os.umask(0o027)
    try:
        model.save(path)
    finally:
        os.umask(old)
    assert path.stat().st_mode & 0o777 == 0o640


def test_any_safetensors_reader_can_read_the_arrays(model, path):
    from safetensors.numpy import load_file

    model.save(path)
    np.testing.assert_array_equal(load_file(path)["components"], model.components_)
