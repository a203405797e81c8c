"""eckart reduce --model autoencoder: files in, files out, and pictures and reports of networks."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.datasets import load_digits

import eckart
from eckart import Autoencoder, ConvAutoencoder, NetworkClassifier, plots
from eckart.cli.reading import Table
from eckart.report.networks import in_one_sentence, network_report

pytest.importorskip("torch", reason="networks need PyTorch")

QUICK = {"max_iter": 3, "random_state": 0, "n_threads": 1}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    np.save(folder / "images.npy", load_digits().data[:300])
    return folder


@pytest.fixture(scope="module")
def conv():
    return ConvAutoencoder(3, channels=(4, 6), hidden=[16], **QUICK).fit(load_digits().data[:300])


def test_reduce_by_an_autoencoder_writes_everything(done):
    words = [
        "reduce",
        "images.npy",
        "--method",
        "autoencoder",
        "--components",
        4,
        "--epochs",
        3,
        "--hidden",
        "32,16",
    ]
    out = done(
        *words,
        "--threads",
        1,
        "--report",
        "r.html",
        "--model",
        "m.safetensors",
        "--out",
        "codes.npy",
    )
    x = np.load("images.npy")
    want = Autoencoder(4, hidden=[32, 16], init="pca", **QUICK).fit(x)
    model = eckart.load("m.safetensors")
    np.testing.assert_array_equal(np.load("codes.npy"), model.transform(x))
    np.testing.assert_allclose(model.transform(x), want.transform(x), atol=1e-6)
    assert "64-32-16-4-16-32-64 + linear" in out
    assert re.search(r"At k = 4 the held-out risk is [\d.]+, that of PCA [\d.]+: [\d.]+ of it", out)
    page = Path("r.html").read_text()
    assert page.count("data:image/") == 4
    for title in ("How it learned", "Where the rows are", "How well it reconstructs"):
        assert title in page
    assert not re.search(r"(?:src|href)=\"(?!data:|#)", page)
    again = done("certify", "m.safetensors", "images.npy")
    assert "risk / PCA" in again


def test_reduce_by_convolutions_shows_filters(done):
    done(
        "reduce",
        "images.npy",
        "--method",
        "conv-autoencoder",
        "-k",
        2,
        "--epochs",
        1,
        "--report",
        "r.html",
        "--quiet",
    )
    assert "What the first layer sees" in Path("r.html").read_text()


def test_the_engine_of_a_network_is_asked_for_as_that_of_other_models(done, refused):
    words = [
        "reduce",
        "images.npy",
        "--method",
        "autoencoder",
        "-k",
        2,
        "--hidden",
        "4",
        "--epochs",
        2,
        "--threads",
        1,
    ]
    done(*words, "--engine", "cpu", "--model", "m.safetensors")
    assert eckart.load("m.safetensors").fit_.plan["engine_reason"] == "asked for"
    assert "must be 'auto', 'cpu' or 'cuda': networks run in PyTorch" in refused(
        *words, "--engine", "numpy"
    )
    assert "leave one of them out" in refused(*words, "--engine", "cpu", "--device", "cuda")


def test_what_does_not_belong_together_is_refused(refused, data, tmp_path):
    assert "--rotation varimax came with --method autoencoder" in refused(
        "reduce", "images.npy", "--method", "autoencoder", "--rotation", "varimax"
    )
    assert "--hidden [3] came with --method pca" in refused("reduce", "images.npy", "--hidden", "3")
    assert "--method must be pca, autoencoder" in refused(
        "reduce", "images.npy", "--method", "forest"
    )
    assert "one kind of model" in refused(
        "reduce", "images.npy", "--method", "pca", "--model", "autoencoder"
    )
    assert "a number, for an autoencoder" in refused(
        "reduce", "images.npy", "--method", "autoencoder", "-k", "0.9"
    )
    assert "widths separated by commas" in refused(
        "reduce", "images.npy", "--method", "autoencoder", "--hidden", "a,b"
    )
    x = load_digits().data[:50]
    NetworkClassifier(hidden=[4], **QUICK).fit(x, np.arange(50) % 2).save("c.safetensors")
    assert "needs answers y" in refused("certify", "c.safetensors", "images.npy")


def test_pictures_take_axes_and_show_what_they_should(conv):
    x = load_digits().data[:300]
    draw = {
        "compare_rows": lambda ax: plots.compare_rows(x[:5], {"a": x[:5], "b": x[:5]}, (8, 8), ax),
        "loss_curves": lambda ax: plots.loss_curves(conv, ax),
        "filters": lambda ax: plots.filters(conv, ax),
        "feature_maps": lambda ax: plots.feature_maps(conv, x[0], ax),
        "code_walk": lambda ax: plots.code_walk(conv, x[0], x[1], (8, 8), ax),
    }
    for name, make in draw.items():
        ax = Figure().add_subplot()
        assert make(ax) is ax, name
        assert make(None) is not ax
        ax.figure.savefig("/dev/null", format="png")
        assert ax.get_title(loc="left")
    lines = plots.loss_curves(conv).lines
    np.testing.assert_array_equal(lines[0].get_ydata(), conv.loss_curve_)
    np.testing.assert_array_equal(lines[1].get_ydata(), conv.held_out_curve_)
    figure = plots.code_maps(
        {"PCA": x[:, :2], "net": conv.transform(x)}, load_digits().target[:300]
    )
    assert [a.get_title(loc="left") for a in figure.axes] == ["PCA", "net"]
    dense = Autoencoder(2, hidden=[4], **QUICK).fit(x[:40])
    with pytest.raises(
        eckart.InputError,
        match="the model must be a network of images, got a Autoencoder without convolution",
    ):
        plots.filters(dense)
    with pytest.raises(eckart.InputError, match="row must have 64 numbers, one image, got 3"):
        plots.feature_maps(conv, np.zeros(3))
    with pytest.raises(
        eckart.InputError, match=r"b must have shape \(5, 64\) and at least one row, got \(4, 64\)"
    ):
        plots.compare_rows(x[:5], {"b": x[:4]}, (8, 8))


def test_a_report_says_when_pca_is_better(conv):
    x = load_digits().data[:300].copy()
    words, good = in_one_sentence(conv.certificate_, 3)
    assert good == (conv.certificate_["risk / PCA"] <= 1)
    assert f"{conv.certificate_['risk / PCA']:.3f}" in words
    x[3, 4] = np.nan
    page = network_report(conv, x, labels=load_digits().target[:300], image=(8, 8)).render()
    assert ('verdict no"' in page) == (not good or not conv.certificate_.holds)
    assert network_report(conv).render().count("<img") == 2


def test_rows_shown_in_a_report_keep_their_gaps():
    x = np.array([[1.0, np.nan, 0.0], [np.nan, 2.0, 3.0]])
    np.testing.assert_array_equal(Table(eckart.Observed.from_nan(x)).sample()[0], x)
