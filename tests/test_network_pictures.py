"""Pictures and reports of networks: the filters that are shown are those of the first convolution,
gaps or none, saved and loaded."""

from __future__ import annotations

import numpy as np
import pytest

import eckart
from eckart import PCA, Autoencoder, ConvAutoencoder, NetworkClassifier, plots
from eckart.reduce import compare
from eckart.report.networks import network_report

torch = pytest.importorskip("torch", reason="networks need PyTorch")

QUICK = {"hidden": [8], "max_iter": 2, "random_state": 0, "n_threads": 1}


@pytest.fixture
def images(rng):
    return rng.random((60, 64))


def test_filters_are_those_of_the_first_convolution_after_a_load_too(images, tmp_path):
    model = ConvAutoencoder(2, channels=(4, 6), **QUICK).fit(images)
    model.save(tmp_path / "m.safetensors")
    back = eckart.load(tmp_path / "m.safetensors")
    # what is stored comes back sorted
    assert list(back.fit_.factors.weights) != list(model.fit_.factors.weights)
    np.testing.assert_array_equal(model.filters_, model.fit_.factors.weights["encoder.1.weight"])
    np.testing.assert_array_equal(back.filters_, model.filters_)
    pictures = [plots.filters(m).images[0].get_array() for m in (model, back)]
    np.testing.assert_array_equal(*pictures)


def test_filters_of_a_classifier_are_those_of_its_first_convolution_after_a_load_too(
    images, tmp_path
):
    """Many layers: "layers.10" comes before "layers.2" in a file."""
    options = {"image": (8, 8), "channels": (2, 3, 4, 5), **QUICK}
    model = NetworkClassifier(**options).fit(images, np.arange(60) % 2)
    model.save(tmp_path / "m.safetensors")
    pictures = [
        plots.filters(m).images[0].get_array()
        for m in (model, eckart.load(tmp_path / "m.safetensors"))
    ]
    np.testing.assert_array_equal(*pictures)


@pytest.mark.parametrize("activation", ["identity", "tanh"])
@pytest.mark.parametrize("channels", [(4,), (4, 6)])
def test_feature_maps_are_the_first_convolution_and_its_activation(
    images, activation, channels, monkeypatch
):
    shown = []
    monkeypatch.setattr(
        "eckart.plots.networks.montage", lambda tiles, *a: shown.append(tiles) or tiles[0]
    )
    monkeypatch.setattr("eckart.plots.networks.coloured", lambda tiles, *a: tiles)
    model = ConvAutoencoder(2, channels=channels, activation=activation, **QUICK).fit(images)
    plots.feature_maps(model, images[0])
    f = model.fit_.factors
    scaled = np.pad(((images[0] - f.mean) / f.spread).reshape(8, 8), 1)
    w, b = f.weights["encoder.1.weight"], f.weights["encoder.1.bias"]
    want = np.array(
        [
            [
                [np.sum(scaled[i : i + 3, j : j + 3] * w[c, 0]) + b[c] for j in range(0, 8, 2)]
                for i in range(0, 8, 2)
            ]
            for c in range(4)
        ]
    )
    want = np.tanh(want) if activation == "tanh" else want
    assert shown[0].shape == (5, 8, 8)
    np.testing.assert_allclose(shown[0][0], images[0].reshape(8, 8))
    np.testing.assert_allclose(shown[0][1:, ::2, ::2], want, atol=1e-6)


def test_pictures_of_filters_want_a_network_of_images(images):
    for model in (Autoencoder(2, **QUICK).fit(images), PCA(2).fit(images)):
        for draw in (lambda m: plots.feature_maps(m, images[0]), plots.filters):
            with pytest.raises(
                eckart.InputError, match="the model must be a network of images, got a"
            ):
                draw(model)


def test_a_report_of_a_column_without_an_entry_leaves_pca_out(images):
    images[:, 3] = np.nan
    page = network_report(Autoencoder(2, **QUICK).fit(images), images, image=(8, 8)).render()
    assert "PCA is not shown" in page
    assert page.count("<img") == 3
    assert "Inputs, autoencoder at k = 2" in page


def test_a_report_of_many_gaps_waits_for_no_pca(images, monkeypatch):
    images[0, 3] = np.nan
    model = Autoencoder(2, **QUICK).fit(images)
    assert (
        "Inputs, PCA and autoencoder at k = 2"
        in network_report(model, images, image=(8, 8)).render()
    )
    monkeypatch.setattr(compare, "MOST_GAPPY", 10)
    assert "PCA is not shown" in network_report(model, images, image=(8, 8)).render()
    assert "PCA is not shown" not in network_report(model, images[1:], image=(8, 8)).render()
