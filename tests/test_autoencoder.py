"""Autoencoder and ConvAutoencoder: what they learn, what they do with gaps, and data at the
edge."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

import eckart
from conftest import planted
from eckart import PCA, Autoencoder, ConvAutoencoder, principal_angles

torch = pytest.importorskip("torch", reason="networks need PyTorch")

QUICK = {"hidden": [16], "max_iter": 4, "random_state": 0, "n_threads": 1}
CODERS = [
    Autoencoder(2, **QUICK),
    Autoencoder(2, tied=True, **QUICK),
    ConvAutoencoder(2, channels=(4,), **QUICK),
]


@pytest.fixture(params=CODERS, ids=lambda e: repr(e)[:40])
def coder(request):
    return clone(request.param)


@pytest.fixture
def x(rng):
    return planted(rng, rows=120, n=16, rank=3)


@pytest.mark.parametrize("optimizer", ["nesterov", "adam"])
def test_without_hidden_layers_it_reaches_the_pca_subspace(rng, optimizer):
    x = planted(rng, rows=300, n=12, rank=3)
    lr = {"nesterov": 0.2, "adam": 0.1}[optimizer]
    options = {
        "hidden": [],
        "optimizer": optimizer,
        "learning_rate": lr,
        "batch_size": 300,
        "max_iter": 1500,
        "tol": 0.0,
    }
    model = Autoencoder(
        3,
        validation_fraction=0,
        patience=1500,
        precision="float64",
        random_state=0,
        n_threads=1,
        **options,
    ).fit(x)
    best = PCA(3).fit(x)
    assert (
        principal_angles(model.fit_.factors.weights["decoder.0.weight"], best.components_.T).max()
        <= 1e-3
    )
    assert model.reconstruction_error(x) == pytest.approx(best.reconstruction_error(x), rel=1e-3)
    assert model.certificate_["risk / PCA"] == pytest.approx(1, rel=1e-3)
    assert model.certificate_["relative gradient"] < 0.1


def test_hidden_layers_beat_pca_on_curved_data_and_the_certificate_says_so(rng):
    angle = rng.uniform(0, 2 * np.pi, 600)
    x = np.column_stack(
        [np.cos(a * angle) for a in (1, 2, 3)] + [np.sin(a * angle) for a in (1, 2, 3)]
    )
    model = Autoencoder(2, hidden=[64], max_iter=60, random_state=0, n_threads=1).fit(x)
    c = model.certificate_
    assert c.kind == "stationary"
    # sixty passes unroll a closed curve of three harmonics more or less: 0.13 to 0.38 of the risk
    # on six seeds
    assert c["held-out risk"] < 0.6 * c["held-out risk by PCA at equal k"]
    assert c["risk / PCA"] == pytest.approx(
        c["held-out risk"] / c["held-out risk by PCA at equal k"]
    )
    held = eckart.nn.shell.split_rows(600, 0.1, model.fit_.plan["seed"])[1]
    train = np.setdiff1d(np.arange(600), held)
    assert c["held-out risk"] == pytest.approx(model.reconstruction_error(x[held]))
    assert c["held-out risk by PCA at equal k"] == pytest.approx(
        PCA(2).fit(x[train]).reconstruction_error(x[held]), rel=1e-6
    )
    assert model.certify(x) == c


@pytest.mark.parametrize("hidden", [[], [8]])
@pytest.mark.parametrize("tied", [False, True])
def test_init_pca_starts_at_the_error_of_pca(rng, hidden, tied):
    x = planted(rng, rows=200, n=10, rank=4)
    model = Autoencoder(
        3,
        hidden=hidden,
        tied=tied,
        init="pca",
        max_iter=1,
        learning_rate=1e-9,
        validation_fraction=0,
        random_state=0,
        n_threads=1,
    ).fit(x)
    start = model.reconstruction_error(x) / PCA(3).fit(x).reconstruction_error(x)
    assert start < 1.3 if tied and hidden else start == pytest.approx(1, rel=1e-3)
    conv = ConvAutoencoder(
        3,
        image=(2, 5),
        channels=(4,),
        hidden=[8],
        init="pca",
        max_iter=1,
        learning_rate=1e-9,
        validation_fraction=0,
    ).fit(x)
    assert conv.reconstruction_error(x) == pytest.approx(
        PCA(3).fit(x).reconstruction_error(x), rel=1e-3
    )


def test_tied_weights_are_kept_once():
    x = np.random.default_rng(0).standard_normal((50, 8))
    tied, free = (
        Autoencoder(2, hidden=[4], tied=t, max_iter=2, random_state=0).fit(x).fit_.factors
        for t in (True, False)
    )
    matrices = [w.shape for w in tied.weights.values() if w.ndim == 2]
    assert sorted(matrices) == [(2, 4), (4, 8)]
    assert len([w for w in free.weights.values() if w.ndim == 2]) == 4
    with pytest.raises(
        eckart.InputError,
        match="tied=True needs variational=0: an encoder with 2k outputs has no transpose",
    ):
        Autoencoder(2, tied=True, variational=1.0).fit(x)


def test_denoising_beats_plain_codes_on_noisy_rows(rng):
    truth = planted(rng, rows=800, n=20, rank=2, noise=0.0)
    noisy = truth + 2.0 * rng.standard_normal(truth.shape)
    options = {"hidden": [64], "max_iter": 30, "random_state": 0, "n_threads": 1}
    plain, denoising = (Autoencoder(8, noise=s, **options).fit(truth) for s in (0.0, 0.6))
    errors = [np.mean((m.reconstruct(noisy) - truth) ** 2) for m in (plain, denoising)]
    assert errors[1] < 0.9 * errors[0]


def test_bernoulli_gives_probabilities_and_wants_shares(rng):
    p = 1 / (1 + np.exp(-3 * rng.standard_normal((400, 1)) * np.sign(np.arange(10) - 4.5)))
    x = (rng.random(p.shape) < p).astype(float)
    model = Autoencoder(
        1, hidden=[16], loss="bernoulli", max_iter=40, random_state=0, n_threads=1
    ).fit(x)
    out = model.reconstruct(x)
    assert out.min() >= 0
    assert out.max() <= 1
    assert np.mean((out - p) ** 2) < 0.6 * np.mean((x.mean(axis=0) - p) ** 2)
    with pytest.raises(
        eckart.InputError,
        match="X must hold numbers from 0 to 1 for loss='bernoulli', got numbers from 0 to 3",
    ):
        Autoencoder(1, loss="bernoulli").fit(x * 3)


def test_variational_codes_are_near_normal_and_samples_look_like_data(rng):
    x = planted(rng, rows=1000, n=10, rank=2, noise=0.05)
    # a weight of 0.02 pulls too little in 40 passes: means of codes up to 0.48 and deviations of
    # 1.42; with 0.1 at most 0.04 and 1.19 on six seeds
    model = Autoencoder(
        2,
        hidden=[32],
        variational=0.1,
        max_iter=40,
        learning_rate=5e-3,
        random_state=0,
        n_threads=1,
    ).fit(x)
    codes, new = model.transform(x), model.sample(2000, random_state=1)
    assert np.abs(codes.mean(axis=0)).max() < 0.2
    assert 0.5 < codes.std() < 1.4
    assert new.shape == (2000, 10)
    off = np.linalg.norm(np.cov(new.T) - np.cov(x.T)) / np.linalg.norm(np.cov(x.T))
    assert off < 0.5
    np.testing.assert_allclose(model.sample(3, random_state=1), new[:3])
    np.testing.assert_array_equal(model.transform(x), codes)  # nothing is drawn in use
    with pytest.raises(eckart.InputError, match="no known distribution to draw from"):
        Autoencoder(2, **QUICK).fit(x).sample()


def test_gaps_play_no_part_in_training(x):
    """What stands under a gap cannot matter: it is not there. An entry that is observed does
    matter."""
    holes = x.copy()
    holes[np.random.default_rng(1).random(x.shape) < 0.2] = np.nan
    models = [
        Autoencoder(2, **QUICK).fit(given) for given in (holes, eckart.Observed.from_nan(holes))
    ]
    for name, w in models[0].fit_.factors.weights.items():
        np.testing.assert_allclose(w, models[1].fit_.factors.weights[name], atol=2e-5)
    filled = models[0].impute(holes)
    np.testing.assert_array_equal(filled[~np.isnan(holes)], holes[~np.isnan(holes)])
    assert np.isfinite(filled).all()


def test_unseen_ratings_are_completed_better_than_by_column_means(rng):
    """AutoRec: rows of an Observed matrix, an absent entry is unknown."""
    truth = 3 + rng.standard_normal((300, 2)) @ rng.standard_normal((2, 40))
    seen = rng.random(truth.shape) < 0.3
    x = eckart.Observed.from_nan(
        np.where(seen, truth, np.nan), rows=np.array([f"u{i}" for i in range(300)], object)
    )
    model = Autoencoder(
        8,
        hidden=[64],
        noise=0.2,
        corruption="mask",
        max_iter=60,
        learning_rate=3e-3,
        random_state=0,
        n_threads=1,
    ).fit(x)
    names, blocks = zip(*model.complete(x))
    guess = np.concatenate(blocks)
    assert list(np.concatenate(names))[:2] == ["u0", "u1"]
    np.testing.assert_array_equal(guess[seen], truth[seen])
    means = np.nanmean(np.where(seen, truth, np.nan), axis=0)
    error, plain = (np.sqrt(np.mean((g - truth)[~seen] ** 2)) for g in (guess, means[None]))
    assert error < 0.75 * plain
    assert np.isfinite(model.transform(eckart.Observed.from_nan(np.full((2, 40), np.nan)))).all()


def test_a_complete_row_with_holes_is_encoded_near_its_code(x, rng):
    model = Autoencoder(3, hidden=[32], max_iter=60, random_state=0, n_threads=1).fit(x)
    holes = x.copy()
    holes[rng.random(x.shape) < 0.15] = np.nan
    codes = model.transform(x)
    assert np.median(np.abs(model.transform(holes) - codes) / codes.std(axis=0)) < 0.2


def test_data_at_the_edge(coder, rng):
    constant = np.full((12, 16), 7.0)
    model = clone(coder).fit(constant)
    np.testing.assert_allclose(model.reconstruct(constant), 7.0, atol=0.5)
    one = clone(coder).fit(planted(rng, rows=1, n=16))
    assert one.transform(planted(rng, rows=1, n=16)).shape == (1, 2)
    never = planted(rng, rows=30, n=16)
    never[:, 5] = np.nan
    model = clone(coder).fit(never)
    np.testing.assert_allclose(
        model.reconstruct(never)[:, 5], np.nanmean(never[:, np.arange(16) != 5]), rtol=1e-6
    )
    assert model.transform(never).shape == (30, 2)
    blank = clone(coder).fit(np.full((8, 16), np.nan))
    assert np.isfinite(blank.transform(never)).all()
    large = clone(coder).set_params(batch_size=10_000).fit(planted(rng, rows=20, n=16))
    assert large.fit_.plan["batch_size"] == 20
    with pytest.raises(ValueError, match="expecting 16 features"):
        large.transform(np.zeros((2, 15)))
    with pytest.raises(eckart.InputError, match=r"codes must have shape \(rows, 2\), got \(2, 3\)"):
        large.inverse_transform(np.zeros((2, 3)))
    with pytest.raises(eckart.InputError, match="2D array"):
        clone(coder).fit(np.zeros((5, 4, 4)))


def test_promises(coder, x, tmp_path):
    before = coder.get_params()
    model = coder.fit(x)
    assert model.get_params() == before
    again = clone(coder).fit(x)
    assert numbers(again) == numbers(model)
    model.save(tmp_path / "m.safetensors")
    for back in (eckart.load(tmp_path / "m.safetensors"), pickle.loads(pickle.dumps(model))):
        assert numbers(back) == numbers(model)
        np.testing.assert_array_equal(back.transform(x), model.transform(x))
        assert back.certificate_ == model.certificate_
        np.testing.assert_array_equal(back.held_out_curve_, model.held_out_curve_)
    assert [e.name for e in tmp_path.iterdir()] == ["m.safetensors"]
    again = model.certify(x)
    assert again.facts == pytest.approx(model.certificate_.facts)
    bad = x.copy()
    bad[3, 2] = np.inf
    with pytest.raises(eckart.InputError, match="inf at row 3, column 2"):
        model.fit(bad)
    assert numbers(model) == numbers(back)
    assert np.allclose(model.inverse_transform(model.transform(x)), model.reconstruct(x), atol=1e-6)
    codes = model.transform(x).astype(np.float64)
    double, single = (
        model.inverse_transform(codes.astype(kind)) for kind in (np.float64, np.float32)
    )
    assert (double.dtype, single.dtype) == (np.float64, np.float32)
    assert (
        model.inverse_transform(codes + 1e-9 * np.abs(codes).max()) != double
    ).mean() > 0.9  # decoded in the precision of the codes
    np.testing.assert_allclose(single, double, atol=1e-4)
    risk = 0.5 * np.mean(np.sum((x - model.reconstruct(x)) ** 2, axis=1))
    assert model.reconstruction_error(x) == pytest.approx(risk)
    for dtype in (np.float32, np.float64):
        assert model.transform(x.astype(dtype)).dtype == dtype
        assert model.reconstruct(x.astype(dtype)).dtype == dtype


def numbers(model) -> bytes:
    return b"".join(
        np.ascontiguousarray(a).tobytes()
        for _, a in sorted(model.fit_.factors.to_state()[0].items())
    )


def test_sparse_rows_are_zeros_and_streams_are_read(coder, x):
    x = np.where(np.abs(x) < 2, 0.0, x)
    whole, thin, blocks = (
        clone(coder).fit(g) for g in (x, sparse.csr_array(x), iter([x[:50], x[50:]]))
    )
    for name, w in whole.fit_.factors.weights.items():
        np.testing.assert_allclose(thin.fit_.factors.weights[name], w, atol=2e-5)
        np.testing.assert_array_equal(blocks.fit_.factors.weights[name], w)


def test_partial_fit_goes_on_and_learns(rng, tmp_path):
    x = planted(rng, rows=400, n=12, rank=2)
    model = Autoencoder(2, hidden=[32], learning_rate=3e-3, random_state=0, n_threads=1)
    errors = [model.partial_fit(x[i % 4 :: 4]).reconstruction_error(x) for i in range(60)]
    assert errors[-1] < 0.3 * errors[0]
    assert model.fit_.plan["rows"] == 60 * 100
    with pytest.raises(ValueError, match="expecting 12 features"):
        model.partial_fit(x[:, :5])
    model.save(tmp_path / "m.safetensors")
    for whole in (
        eckart.load(tmp_path / "m.safetensors"),
        clone(model).set_params(max_iter=40).fit(x),
    ):
        before = whole.reconstruction_error(x)
        assert (
            whole.set_params(learning_rate=1e-5).partial_fit(x[:50]).reconstruction_error(x)
            < 1.05 * before
        )


def test_wrong_parameters_are_named(x):
    wrong = {
        "n_components": 0,
        "hidden": [0],
        "activation": "swish",
        "loss": "huber",
        "noise": -1,
        "dropout": 1.0,
        "variational": -0.5,
        "init": "svd",
        "optimizer": "lion",
        "learning_rate": 0,
        "schedule": "step",
        "max_iter": 0,
        "batch_size": 0,
        "validation_fraction": 1,
        "patience": 0,
        "clip": 0,
        "weight_decay": -1,
        "tied": "yes",
        "corruption": "salt",
    }
    for name, value in wrong.items():
        with pytest.raises(eckart.InputError, match=f"^{name} must be"):
            Autoencoder(**{name: value}).fit(x)
    for value in ((3, 5), (4, 4, 2), "4x4", (4,), (4.5, 4)):
        with pytest.raises(eckart.InputError, match="image must be"):
            ConvAutoencoder(image=value).fit(x)
    with pytest.raises(
        eckart.InputError,
        match=r"channels must be a list of at least one number of filters, got \(\)",
    ):
        ConvAutoencoder(channels=()).fit(x)


@pytest.mark.parametrize("shape", [(4, 4), (2, 8), (1, 16), (2, 4, 2), (16, 1)])
def test_images_of_any_shape_come_back_in_their_shape(x, shape):
    model = ConvAutoencoder(
        2, image=shape, channels=(4, 6), hidden=[], max_iter=2, random_state=0, n_threads=1
    ).fit(x)
    assert model.reconstruct(x).shape == x.shape
    assert model.filters_.shape == (4, 1 if len(shape) == 2 else shape[2], 3, 3)


def test_colours_are_flattened_as_image_arrays_are(rng):
    from eckart.nn.modules import layer

    images = rng.standard_normal((2, 4, 5, 3))
    rows = torch.as_tensor(images.reshape(2, -1))
    maps = layer({"layer": "to_image", "shape": [4, 5, 3]})(rows)
    np.testing.assert_array_equal(maps[:, 1].numpy(), images[..., 1])
    np.testing.assert_array_equal(layer({"layer": "from_image"})(maps).numpy(), rows.numpy())


def test_without_torch_the_classes_answer_with_the_install_line():
    code = (
        "import sys\n"
        "class Hidden:\n    def find_spec(self, name, *_):\n"
        "        if name.split('.')[0] == 'torch':\n            raise "
        "ModuleNotFoundError('hidden', name='torch')\n"
        "sys.meta_path.insert(0, Hidden())\n"
        "import eckart, numpy as np\n"
        "for name in ('Autoencoder', 'ConvAutoencoder', 'NetworkClassifier', 'NetworkRegressor'):\n"
        "    try:\n        getattr(eckart, name)().fit(np.eye(3), [0, 1, 0])\n"
        "    except ImportError as e:\n        print(e)\n"
        "print(eckart.PCA(1).fit(np.eye(3)).n_components_)\n"
        "for name in ('Autoencoder', 'ConvAutoencoder', 'NetworkClassifier', 'NetworkRegressor'):\n"
        "    for verb in ('score', 'certify', 'transform', 'inverse_transform', "
        "'reconstruct', 'predict'):\n"
        "        model = getattr(eckart, name)()\n"
        "        try:\n            count = 2 if 'Network' in name and verb in ('score', "
        "'certify') else 1\n"
        "            getattr(model, verb, lambda *_: 0)(*[np.eye(3)] * count)\n"
        "        except Exception as e:\n            assert 'not fitted yet' in str(e), "
        "(name, verb, e)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    lines = out.stdout.strip().splitlines()
    assert len(lines) == 5, out.stderr
    assert not out.stderr  # a model that is not fitted says so first
    assert all('pip install "eckart[torch]"' in line for line in lines[:4])
    assert lines[4] == "1"


def test_making_a_model_loads_no_torch():
    code = (
        "import sys, eckart; eckart.Autoencoder(2), eckart.NetworkClassifier(); print('torch' "
        "in sys.modules)"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip()
        == "False"
    )


def test_a_tampered_description_is_refused(x, tmp_path):
    from dataclasses import replace

    from eckart.factors import Network

    f = Autoencoder(2, **QUICK).fit(x).fit_.factors
    bad = [
        replace(f, architecture={"kind": 3}),
        replace(f, k=-1),
        replace(f, spread=f.spread[:3]),
        replace(f, mean=f.mean * np.nan),
        replace(f, columns=np.array(["a"], object)),
    ]
    for broken in bad:
        with pytest.raises(eckart.FileError):
            broken.check()
    other = replace(f, weights={n: w for n, w in f.weights.items() if "bias" not in n})
    with pytest.raises(eckart.FileError, match="the weights do not fit the layers"):
        eckart.nn.shell.live(other, torch.float32, "cpu")
    assert isinstance(f, Network)


def test_a_network_that_was_not_trained_fails_its_certificate(x):
    options = {
        "hidden": [32],
        "learning_rate": 1e-12,
        "max_iter": 1,
        "random_state": 0,
        "n_threads": 1,
    }
    c = Autoencoder(3, **options).fit(x).certificate_
    assert not c.holds
    assert "error against trivial" in c.reason
    assert (
        Autoencoder(3, **{**options, "learning_rate": 3e-3, "max_iter": 40})
        .fit(x)
        .certificate_.holds
    )


def test_impute_leaves_the_zeros_of_a_sparse_matrix(rng):
    x = rng.random((60, 8)) * (rng.random((60, 8)) < 0.4)
    model = Autoencoder(2, hidden=[8], max_iter=3, random_state=0).fit(sparse.csr_array(x))
    np.testing.assert_allclose(model.impute(sparse.csr_array(x)), x)


def test_a_reconstruction_that_is_no_number_is_no_good_one(x):
    model = Autoencoder(2, hidden=[8], max_iter=2, random_state=0).fit(x)
    model.fit_.factors.mean[3] = np.nan
    assert np.isnan(model.reconstruction_error(x))


def test_certify_knows_the_training_rows(x):
    model = Autoencoder(2, hidden=[8], max_iter=3, random_state=0).fit(x)
    again = model.certify(x)
    assert again["rows judged"] == model.certificate_["rows judged"] < len(x)
    assert again["held-out risk"] == pytest.approx(model.certificate_["held-out risk"])
    other = model.certify(x + 1e-3)
    assert other["rows judged"] == len(x)
    assert "risk / PCA" not in other.facts


def test_partial_fit_keeps_to_its_weights(x):
    model = Autoencoder(2, hidden=[8], random_state=0).partial_fit(x[:40])
    with pytest.raises(
        eckart.InputError, match="n_components must be 2, that of the weights; fit anew, got 3"
    ):
        model.set_params(n_components=3).partial_fit(x[40:])
    model.set_params(n_components=2, optimizer="gd").partial_fit(x[40:])
    assert type(model._stream["optimizer"]).__name__ == "SGD"
    gappy = x.copy()
    gappy[0, 0] = np.nan
    for part in (gappy, x):
        model.partial_fit(part)
    assert model.fit_.factors.architecture["rounds"] == 0
    shares = Autoencoder(2, hidden=[8], loss="bernoulli", random_state=0).partial_fit(
        np.clip(x, 0, 1)
    )
    with pytest.raises(eckart.InputError, match="numbers from 0 to 1"):
        shares.partial_fit(np.clip(x, 0, 1) + 5)
    with pytest.raises(eckart.InputError, match="noise must be a finite number >= 0, got inf"):
        Autoencoder(2, noise=np.inf).fit(x)


def test_rows_with_gaps_are_judged_by_entries_that_were_hidden(rng):
    """Ratings of planted rank 3 with noise: a wide network copies what it sees, and the epoch that
    is kept is one that fills what it does not see."""
    truth = rng.standard_normal((300, 3)) @ rng.standard_normal(
        (3, 40)
    ) + 0.5 * rng.standard_normal((300, 40))
    seen = rng.random(truth.shape) < 0.3
    model = Autoencoder(40, hidden=[], max_iter=80, n_threads=1, random_state=0).fit(
        np.where(seen, truth, np.nan)
    )
    curve = model.held_out_curve_
    assert curve.argmin() < len(curve) - 1
    assert model.loss_curve_[-1] < model.loss_curve_[curve.argmin()]
    filled = model.impute(np.where(seen, truth, np.nan))
    by_mean = np.nanmean(np.where(seen, truth, np.nan), axis=0)
    assert np.mean((filled - truth)[~seen] ** 2) < 0.8 * np.mean((by_mean - truth)[~seen] ** 2)
