"""Model files with a right checksum and a wrong content: they are refused in words when they are
loaded, or the model that comes out works.

Every array of every saved model is given another shape, kind and values, and every field of its
header another value; the checksum is then computed again. The suite tries some of these, the same
ones every time; ``HOSTILE=all`` tries each.
"""

from __future__ import annotations

import json
import os
import warnings

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file
from safetensors.numpy import save as to_bytes

import eckart
from eckart.errors import EckartError
from eckart.io.models import save as saving
from saved.answers import NEED_TORCH, ask
from test_saved_models import FOLDER, NAMES, stored

EACH = 20
"""Changes of arrays, and of headers, that the suite tries on each file."""


def put(a, at, value):
    a = a.copy()
    a.reshape(-1)[at] = value
    return a


ARRAYS = {
    "a column less": lambda a: a[..., :-1].copy(),
    "a row less": lambda a: a[:-1].copy(),
    "one column": lambda a: a[..., :1].copy(),
    "empty": lambda a: a[:0].copy(),
    "another axis": lambda a: a[None].copy(),
    "flat": lambda a: a.reshape(-1).copy(),
    "twice": lambda a: np.concatenate([a, a]),
    "transposed": lambda a: np.ascontiguousarray(a.T),
    "whole numbers": lambda a: a.astype(np.int64),
    "half": lambda a: a.astype(np.float16),
    "float32": lambda a: a.astype(np.float32),
    "float64": lambda a: a.astype(np.float64),
    "truth": lambda a: a.astype(bool),
    "nan": lambda a: put(a, 0, np.nan),
    "infinite": lambda a: put(a, -1, -np.inf),
    "negative": lambda a: -1 - np.abs(a),
    "zero": lambda a: np.zeros_like(a),
    "huge": lambda a: np.full_like(a, 1e30),
    "minus one": lambda a: put(a, -1, -1),
    "beyond": lambda a: put(a, 0, 2**31 - 2),
    "in the middle": lambda a: put(a, a.size // 2, 10**6),
    "reversed": lambda a: a[::-1].copy(),
    "gone": lambda a: None,
}
VALUES = [None, "x", "", -1, 0, 2**40, 0.5, True, [], {}, [1, "x"], {"x": 1}]


def read(name):
    with safe_open(FOLDER / f"{name}.safetensors", "np") as file:
        header = json.loads(file.metadata()["eckart"])
    del header["checksum"]
    return load_file(FOLDER / f"{name}.safetensors"), header


def places(value, path=()):
    """Every place in a header, as the keys that lead to it."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value[:4])
        if isinstance(value, list)
        else ()
    )
    for key, part in items:
        yield (*path, key)
        yield from places(part, (*path, key))


def changed(header, path, value):
    header = json.loads(json.dumps(header))
    inner = header
    for key in path[:-1]:
        inner = inner[key]
    if value is DELETED:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return header


DELETED = object()


def outcome(path, arrays, header, inputs, later=()):
    """None where the file is refused in words when it is loaded (in ``later`` cases, when it is
    used), or answers; else what went wrong."""
    path.write_bytes(to_bytes(arrays, metadata={"eckart": saving.seal(arrays, json.dumps(header))}))
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            model = eckart.load(path)
    except EckartError:
        return None
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            ask(model, inputs)
    except later:
        return None
    except Exception as error:
        return f"loaded, then {type(error).__name__}: {error}"
    return None


def some(cases, name):
    if os.environ.get("HOSTILE") == "all" or len(cases) <= EACH:
        return cases
    chosen = np.random.default_rng(len(name)).choice(len(cases), EACH, replace=False)
    return [cases[i] for i in sorted(chosen)]


def skip_without_torch(header):
    if header["class"] in NEED_TORCH:
        pytest.importorskip("torch")


@pytest.mark.parametrize("name", NAMES)
def test_arrays_that_no_model_has(name, tmp_path):
    (arrays, header), (inputs, _, _) = read(name), stored(name)
    skip_without_torch(header)
    wrong = {}
    for part, change in some([(p, c) for p in arrays for c in ARRAYS if arrays[p].size], name):
        try:
            with np.errstate(all="ignore"):
                other = ARRAYS[change](arrays[part])
        except (ValueError, OverflowError):  # integers hold no NaN
            continue
        forged = {p: a for p, a in (arrays | {part: other}).items() if a is not None}
        # arrays that fit each other are a model of other data: it refuses these inputs by their
        # number of columns
        if found := outcome(tmp_path / "m.safetensors", forged, header, inputs, later=EckartError):
            wrong[part, change] = found
    assert not wrong


@pytest.mark.parametrize("name", NAMES)
def test_headers_that_no_model_has(name, tmp_path):
    (arrays, header), (inputs, _, _) = read(name), stored(name)
    skip_without_torch(header)
    wrong = {}
    # which engines there are is known on the machine that uses the model; which solvers fit which
    # loss is decided with the data
    paths = [p for p in places(header) if p[-1] != "engine" and p != ("params", "solver")]
    for path, value in some([(p, v) for p in paths for v in [*VALUES, DELETED]], name):
        # other labels are a model of other data, and parameters are those of the next fit: both may
        # be refused in words by what is asked
        later = EckartError if path[0] in ("params", "rows", "columns") else ()
        if found := outcome(
            tmp_path / "m.safetensors", arrays, changed(header, path, value), inputs, later
        ):
            wrong[path, repr(value)] = found
    assert not wrong


def test_a_mixture_with_means_of_one_column_is_refused_in_words(tmp_path):
    arrays, header = read("mixture_bernoulli")
    arrays["parameter.means"] = arrays["parameter.means"][:, :1].copy()
    path = tmp_path / "m.safetensors"
    path.write_bytes(to_bytes(arrays, metadata={"eckart": saving.seal(arrays, json.dumps(header))}))
    with pytest.raises(
        eckart.FileError,
        match=r"m\.safetensors cannot be loaded: means must have shape \(2, 5\), got \(2, 1\)",
    ):
        eckart.load(path)


@pytest.mark.parametrize(
    ("name", "edit", "words"),
    [
        (
            "truncated_svd",
            lambda a, h: a.update(column_mean=a["column_mean"][:1]),
            r"m\.safetensors cannot be loaded: column_mean must have shape \(6,\), got \(1,\)",
        ),
        (
            "latent_dirichlet_allocation",
            lambda a, h: a.update(prior=0 * a["prior"]),
            "prior holds no such value",
        ),
        (
            "pmi_context",
            lambda a, h: h["plan"].update({"singular values": None}),
            "singular values holds no such value",
        ),
        (
            "glove",
            lambda a, h: h["plan"]["words"].update(min_length=-1),
            "words holds no such value",
        ),
        (
            "als",
            lambda a, h: h["factors"].pop("mean"),
            r"m\.safetensors cannot be loaded: factors must hold the values mean, got \{\}",
        ),
    ],
)
def test_what_once_loaded_and_then_failed_is_refused_in_words(name, edit, words, tmp_path):
    """Found with other seeds than the one that chooses the cases of the suite."""
    arrays, header = read(name)
    edit(arrays, header)
    path = tmp_path / "m.safetensors"
    path.write_bytes(to_bytes(arrays, metadata={"eckart": saving.seal(arrays, json.dumps(header))}))
    with pytest.raises(eckart.FileError, match=words):
        eckart.load(path)


def test_no_clip_of_a_posterior_is_none(tmp_path):
    (arrays, header), (inputs, _, _) = read("bayesian_mf"), stored("bayesian_mf")
    header["plan"]["clip"] = None
    assert outcome(tmp_path / "m.safetensors", arrays, header, inputs) is None
