"""Models saved at commit aa19f7a (item models when they came), one file of each class in
``saved/``, load and answer as they did there.

``saved/make.py`` wrote the files once; it is not run here. What only reads stored numbers
(components, orders, labels, ids) is compared bit for bit. Answers that are sums are compared within
the rounding of those sums, since another CPU adds in another order: 4 eps x terms x size x
condition, worked out in ``saved/rounding.py`` and stored beside the answers.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

import eckart
from saved.answers import NEED_TORCH, ask

FOLDER = Path(__file__).parent / "saved"
NAMES = sorted(path.stem for path in FOLDER.glob("*.safetensors"))


def header(path):
    with safe_open(path, "np") as file:
        return json.loads(file.metadata()["eckart"])


def stored(name):
    """Inputs, answers and tolerances of a case."""
    with np.load(FOLDER / f"{name}.answers.npz", allow_pickle=False) as file:
        inputs, answers = (
            {k.removeprefix(mark): file[k] for k in file if k.startswith(mark)}
            for mark in ("in.", "out.")
        )
        tolerances = dict(zip(file["computed"].tolist(), file["tolerances"].tolist()))
    # scores are in the precision of the data by now: the same numbers, rounded
    if name == "gaussian_mixture_float32":
        answers["score_samples"] = answers["score_samples"].astype(np.float32)
        tolerances["score_samples"] += float(
            np.abs(answers["score_samples"]).max() * np.finfo(np.float32).eps
        )
    if name in (
        "pca_varimax",
        "pca_promax",
        # these were the variances of the unrotated components, by now they are those of the rotated
        # ones
    ):
        for which in ("explained_variance_", "explained_variance_ratio_"):
            answers.pop(which)
    return inputs, answers, tolerances


def differences(came, wanted, tolerances):
    """Names of the answers that are not what they were."""
    return [name for name in wanted if not same(came.get(name), wanted[name], tolerances.get(name))]


def same(came, wanted, tolerance):
    if came is None or came.shape != wanted.shape or came.dtype.kind != wanted.dtype.kind:
        return False
    if tolerance is None:
        # texts have the width of the longest one; numbers keep their type and every bit
        return (
            bool((came == wanted).all())
            if wanted.dtype.kind == "U"
            else came.dtype == wanted.dtype and came.tobytes() == wanted.tobytes()
        )
    finite = np.isfinite(wanted)
    away = np.abs(came[finite].astype(np.float64) - wanted[finite])
    return (
        came.dtype == wanted.dtype
        and np.array_equal(came[~finite], wanted[~finite], equal_nan=True)
        and bool((away <= tolerance).all())  # also False where NaN came
    )


def needs(name):
    kind = header(FOLDER / f"{name}.safetensors")["class"]
    if kind in NEED_TORCH and importlib.util.find_spec("torch") is None:
        pytest.skip(f"{kind} computes with PyTorch, which is not installed")


def test_every_class_that_can_be_saved_has_a_file():
    public = {name: getattr(eckart, name) for name in eckart.__all__}
    savable = {
        name for name, thing in public.items() if inspect.isclass(thing) and hasattr(thing, "save")
    }
    assert savable == {header(FOLDER / f"{name}.safetensors")["class"] for name in NAMES}


def test_every_file_has_its_answers():
    assert (
        sorted(path.name.removesuffix(".answers.npz") for path in FOLDER.glob("*.answers.npz"))
        == NAMES
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_model_comes_back_with_every_number(name, tmp_path):
    """Loaded and saved again, the file holds the same arrays, and the header says the same (a
    parameter may be new, none may be lost)."""
    path, again = FOLDER / f"{name}.safetensors", tmp_path / "again.safetensors"
    model = eckart.load(path)
    model.save(again)
    before, after = load_file(path), load_file(again)
    assert {k: (a.dtype, a.shape, a.tobytes()) for k, a in before.items()} == {
        k: (a.dtype, a.shape, a.tobytes()) for k, a in after.items()
    }
    old, new = header(path), header(again)
    assert type(model) is getattr(eckart, old["class"])
    for key in old.keys() - {"params", "checksum"}:
        assert new[key] == old[key], key
    assert {key: new["params"].get(key) for key in old["params"]} == old["params"]
    params = model.get_params(deep=False)
    assert all(key in params for key in old["params"])


@pytest.mark.one_seed
@pytest.mark.parametrize("name", NAMES)
def test_a_saved_model_answers_as_it_did(name, tmp_path):
    needs(name)
    inputs, answers, tolerances = stored(name)
    model = eckart.load(FOLDER / f"{name}.safetensors")
    came = ask(model, inputs)
    assert differences(came, answers, tolerances) == []
    model.save(tmp_path / "again.safetensors")
    again = ask(eckart.load(tmp_path / "again.safetensors"), inputs)
    assert differences(again, came, {}) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_answer_would_be_noticed(name):
    """Every stored answer counts: one entry moved by a millionth of the largest, or one text, label
    or position changed, is a difference."""
    _, answers, tolerances = stored(name)
    assert tolerances.keys() <= answers.keys()
    for key, a in answers.items():
        if not a.size:
            continue
        wrong = a.copy()
        at = np.unravel_index(int(np.argmax(np.isfinite(a))) if a.dtype.kind == "f" else 0, a.shape)
        if a.dtype.kind == "f":
            step = 1e-6 if a.dtype == np.float64 else 1e-2
            wrong[at] += max(
                step * np.abs(a[np.isfinite(a)]).max(initial=0.0),
                4 * tolerances.get(key, 0.0),
                1e-30,
            )
        elif a.dtype.kind == "U":
            wrong[at] = "?"
        else:
            wrong[at] = not a[at] if a.dtype.kind == "b" else a[at] + 1
        assert differences(answers | {key: wrong}, answers, tolerances) == [key]
    assert differences({}, answers, tolerances) == list(answers)
