"""NetworkClassifier and NetworkRegressor."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.datasets import load_digits

import eckart
from eckart import NetworkClassifier, NetworkRegressor

pytest.importorskip("torch", reason="networks need PyTorch")

QUICK = {"hidden": [16], "max_iter": 5, "random_state": 0, "n_threads": 1}


@pytest.fixture
def spiral(rng):
    """Two arms that no line separates."""
    t = rng.uniform(0.5, 2.5, 400) * np.pi
    side = rng.integers(0, 2, 400)
    arm = t + np.pi * side
    x = np.column_stack([t * np.cos(arm), t * np.sin(arm)]) + 0.1 * rng.standard_normal((400, 2))
    return x, np.array(["left", "right"])[side]


def test_an_mlp_learns_what_no_line_separates(spiral):
    x, y = spiral
    model = NetworkClassifier(
        hidden=[64, 64],
        max_iter=100,
        patience=40,
        learning_rate=5e-3,
        validation_fraction=0.1,
        random_state=0,
        n_threads=1,
    ).fit(x[:300], y[:300])
    assert model.score(x[300:], y[300:]) > 0.95
    p = model.predict_proba(x[300:])
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert list(model.classes_) == ["left", "right"]
    np.testing.assert_array_equal(model.classes_[p.argmax(axis=1)], model.predict(x[300:]))
    c = model.certificate_
    assert c["held-out error"] < 0.3 * c["held-out error by the class shares"]
    assert c["accuracy"] > 0.9
    assert model.certify(x[:300], y[:300]).facts == pytest.approx(c.facts)


def test_few_rows_of_classes_are_all_trained_on():
    """A tenth of 150 rows says nothing of when to stop, and the network needs them."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((600, 12)).astype(np.float32)
    y = (x[:, 0] * x[:, 1] > 0) * 2 + (x[:, 2] > 0)
    by_default, held_out = (
        NetworkClassifier(random_state=0, n_threads=1, **more).fit(x[:150], y[:150])
        for more in ({}, {"validation_fraction": 0.1})
    )
    assert by_default.score(x[150:], y[150:]) > held_out.score(x[150:], y[150:]) + 0.02
    assert by_default.certificate_["rows judged"] == 150
    with pytest.raises(eckart.InputError, match="validation_fraction"):
        NetworkClassifier(validation_fraction="few").fit(x, y)


def test_convolution_and_pooling_read_shifted_digits():
    """Images moved by a pixel or two: the CNN keeps what it knows better than a dense network of as
    many weights."""
    digits = load_digits()
    images = np.pad(digits.images, ((0, 0), (3, 3), (3, 3)))
    rng = np.random.default_rng(0)
    moved = np.stack([np.roll(i, rng.integers(-3, 4, 2), (0, 1)) for i in images]).reshape(
        len(images), -1
    )
    options = {"max_iter": 10, "learning_rate": 2e-3, "random_state": 0, "n_threads": 1}
    cnn = NetworkClassifier(image=(14, 14), channels=(8, 16), hidden=[32], **options)
    mlp = NetworkClassifier(hidden=[64], **options)
    a, b = (
        m.fit(moved[:1200], digits.target[:1200]).score(moved[1200:], digits.target[1200:])
        for m in (cnn, mlp)
    )
    assert a > b + 0.1
    assert a > 0.5
    assert "pool" in cnn.fit_.plan["layers"]


def test_labels_of_one_class_and_of_any_kind(rng):
    x = rng.standard_normal((20, 3))
    one = NetworkClassifier(**QUICK).fit(x, np.full(20, 7))
    assert (one.predict(x) == 7).all()
    np.testing.assert_array_equal(one.predict_proba(x), 1.0)
    for y in (
        [True, False] * 10,
        ["a", "b"] * 10,
        [1.0, 2.0] * 10,
        np.array(["x", "y"], object)[np.arange(20) % 2],
    ):
        model = NetworkClassifier(**QUICK).fit(x, y)
        assert set(model.predict(x)) <= set(np.unique(y))
    with pytest.raises(eckart.InputError, match="labels of several types"):
        NetworkClassifier(**QUICK).fit(x, np.array(["a", 1], object)[np.arange(20) % 2])
    with pytest.raises(
        eckart.InputError,
        match=r"y must hold one of the classes of the training data, got np\.str_\('z'\)",
    ):
        model.certify(x, ["z"] * 20)


def test_a_regressor_of_one_and_of_several_targets(rng):
    x = rng.uniform(-1, 1, (500, 2))
    y = np.column_stack([np.sin(3 * x[:, 0]) * 100 + 5, x[:, 0] * x[:, 1]])
    model = NetworkRegressor(
        hidden=[64], max_iter=60, learning_rate=1e-2, random_state=0, n_threads=1
    ).fit(x[:400], y[:400])
    assert model.predict(x).shape == (500, 2)
    assert model.score(x[400:], y[400:]) > 0.9
    single = NetworkRegressor(**QUICK).fit(x, y[:, 0])
    assert single.predict(x).shape == (500,)
    constant = NetworkRegressor(**QUICK).fit(x, np.full(500, 3.0))
    np.testing.assert_allclose(constant.predict(x), 3.0, atol=1.0)
    with pytest.raises(
        eckart.InputError, match=r"y must hold finite numbers, got nan \(NaN or infinity\) at row 2"
    ):
        single.fit(x, np.where(np.arange(500) == 2, np.nan, 1.0))


@pytest.mark.parametrize(
    "model", [NetworkClassifier(**QUICK), NetworkRegressor(**QUICK)], ids=["classes", "targets"]
)
def test_promises(model, rng, tmp_path):
    x, y = rng.standard_normal((60, 4)), rng.integers(0, 3, 60)
    before = model.get_params()
    model.fit(x, y)
    assert model.get_params() == before
    model.save(tmp_path / "m.safetensors")
    for back in (eckart.load(tmp_path / "m.safetensors"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(back.predict(x), model.predict(x))
        assert back.certificate_ == model.certificate_
    holes = x.copy()
    holes[rng.random(x.shape) < 0.2] = np.nan
    assert len(model.predict(holes)) == 60
    model.fit(holes, y)
    with pytest.raises(
        eckart.InputError,
        match="y must have 60 entries, one for each row of X, got 3: inconsistent numbers of samples",
    ):
        model.fit(x, y[:3])
    with pytest.raises(eckart.InputError, match="target y is None"):
        model.fit(x)
