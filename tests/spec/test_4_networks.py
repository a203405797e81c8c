"""Lines 1.8, 4.1, 4.2 and 4.3 of the specification, for networks in PyTorch."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from eckart import PCA, Autoencoder, ConvAutoencoder, NetworkClassifier, Observed

torch = pytest.importorskip("torch", reason="networks need PyTorch")

from eckart.nn.architecture import conv_coder, conv_head, dense_coder  # noqa: E402
from eckart.nn.batches import RowBatch  # noqa: E402
from eckart.nn.modules import build, layer  # noqa: E402
from eckart.nn.rules import (  # noqa: E402
    class_loss,
    coding_loss,
    optimizer_of,
    target_loss,
)

LAYERS = {
    "dense": ({"layer": "dense", "in": 6, "out": 4}, (3, 6)),
    "relu": ({"layer": "activation", "name": "relu"}, (3, 6)),
    "gelu": ({"layer": "activation", "name": "gelu"}, (3, 6)),
    "tanh": ({"layer": "activation", "name": "tanh"}, (3, 6)),
    "sigmoid": ({"layer": "activation", "name": "sigmoid"}, (3, 6)),
    "convolution": (
        {"layer": "convolution", "in": 2, "out": 3, "size": 3, "stride": 2, "padding": 1},
        (2, 2, 5, 4),
    ),
    "transposed": (
        {
            "layer": "transposed",
            "in": 2,
            "out": 3,
            "size": 3,
            "stride": 2,
            "padding": 1,
            "extra": [1, 0],
        },
        (2, 2, 3, 4),
    ),
    "max_pool": ({"layer": "max_pool", "size": 2}, (2, 2, 4, 4)),
    "flatten": ({"layer": "flatten"}, (2, 2, 2, 2)),
    "unflatten": ({"layer": "unflatten", "shape": [2, 3]}, (2, 6)),
    "to_image": ({"layer": "to_image", "shape": [2, 3, 2]}, (2, 12)),
    "from_image": ({"layer": "from_image"}, (2, 2, 2, 3)),
}


def spread(rng, shape):
    """Numbers away from each other and from 0, where ReLU and max-pooling have kinks."""
    return torch.as_tensor(
        (rng.permutation(int(np.prod(shape))) - np.prod(shape) / 2 + 0.5).reshape(shape) / 10
    )


def differences(f, x, h=1e-6):
    """Central differences of a function of one array."""
    out = np.zeros(x.size)
    for i in range(x.size):
        for sign in (1, -1):
            moved = x.copy().ravel()
            moved[i] += sign * h
            out[i] += sign * f(moved.reshape(x.shape)) / (2 * h)
    return out.reshape(x.shape)


@pytest.mark.parametrize("name", LAYERS)
def test_4_1_backpropagation_through_every_layer_and_activation(name, rng):
    """delta_k = J_{k+1}^T delta_{k+1}: by PyTorch and by finite differences, for the input and for
    every parameter."""
    description, shape = LAYERS[name]
    part, x = layer(description).double(), spread(rng, shape)
    with torch.no_grad():
        for p in part.parameters():
            p.copy_(torch.as_tensor(rng.standard_normal(p.shape)))
    pull = torch.as_tensor(rng.standard_normal(part(x).shape))
    given = x.clone().requires_grad_()
    (part(given) * pull).sum().backward()

    def at(values):
        with torch.no_grad():
            return float((part(torch.as_tensor(values)) * pull).sum())

    np.testing.assert_allclose(given.grad, differences(at, x.numpy()), atol=1e-6)
    for p in part.parameters():

        def by(values, p=p):
            with torch.no_grad():
                old = p.clone()
                p.copy_(torch.as_tensor(values))
                value = float((part(x) * pull).sum())
                p.copy_(old)
            return value

        np.testing.assert_allclose(p.grad, differences(by, p.detach().numpy().copy()), atol=1e-6)


def test_4_1_the_derivative_by_a_weight_is_delta_phi_prime_z(rng):
    """[delta]_i phi'((W z)_i) z_j for a sigmoid layer, written out."""
    z, w, delta = rng.standard_normal(4), rng.standard_normal((3, 4)), rng.standard_normal(3)
    weights = torch.as_tensor(w, dtype=torch.float64).requires_grad_()
    (torch.sigmoid(weights @ torch.as_tensor(z)) * torch.as_tensor(delta)).sum().backward()
    s = 1 / (1 + np.exp(-w @ z))
    np.testing.assert_allclose(weights.grad, (delta * s * (1 - s))[:, None] * z)


LOSSES = {
    "squared": coding_loss("squared", 6.0),
    "bernoulli": coding_loss(
        "bernoulli",
        6.0,
        back=(torch.full((6,), 0.5).double(), torch.full((6,), 0.1).double()),
        offset=torch.zeros(6).double(),
    ),
}


@pytest.mark.parametrize("activation", ["sigmoid", "tanh", "gelu"])
@pytest.mark.parametrize(
    "kind", ["dense", "tied", "shortcut", "variational", "conv", "bernoulli", "classes", "targets"]
)
def test_4_1_gradients_of_whole_networks(kind, activation, rng):
    """Every loss and every way to wire a network, against finite differences in random
    directions."""
    if kind == "conv":
        net = build(conv_coder([2, 3, 1], 2, [3], [4], activation), 0)
    elif kind in ("classes", "targets"):
        net = build(conv_head([2, 3, 1], 3, [3], [4], activation), 0)
    else:
        wiring = {kind: True} if kind in ("tied", "shortcut", "variational") else {}
        net = build(dense_coder(6, 2, [5], activation, **wiring), 0)
    net = net.double().eval()
    with torch.no_grad():
        for p in net.parameters():
            p.add_(0.3 * torch.as_tensor(rng.standard_normal(p.shape)))
    x = torch.as_tensor(rng.standard_normal((4, 6)))
    seen = torch.as_tensor(rng.random((4, 6)) < 0.7)
    y = {
        "classes": torch.tensor([0, 2, 1, 0]),
        "targets": torch.as_tensor(rng.standard_normal((4, 3))),
    }.get(kind)
    loss = {"classes": class_loss, "targets": target_loss, "bernoulli": LOSSES["bernoulli"]}.get(
        kind
    )
    loss = loss or coding_loss("squared", 6.0, variational=0.3)
    batch = RowBatch(x, seen, y)
    loss(net, batch).backward()
    for _ in range(3):
        ways = [torch.as_tensor(rng.standard_normal(p.shape)) for p in net.parameters()]
        slope = sum(float((w * p.grad).sum()) for w, p in zip(ways, net.parameters()))
        h, ends = 1e-6, []
        for sign in (1, -2, 1):
            with torch.no_grad():
                for w, p in zip(ways, net.parameters()):
                    p.add_(sign * h * w)
                ends.append(float(loss(net, batch)))
        assert (ends[0] - ends[1]) / (2 * h) == pytest.approx(slope, rel=1e-5, abs=1e-8)


@pytest.mark.parametrize("seed", range(3))
def test_4_2_smooth_descent_in_torch_finds_a_critical_point_in_time(seed):
    """L-smooth, step 1/L: within 2 L (l0 - l*) / eps^2 steps some gradient is below eps."""
    torch.manual_seed(seed)
    part = torch.nn.Linear(4, 1, bias=False).double()
    optimizer, eps, lowest = optimizer_of("gd", part, 1.0), 1e-2, -4.0
    first = float(torch.cos(part.weight.detach()).sum())
    limit, sizes = int(2 * (first - lowest) / eps**2), []
    for _ in range(limit):
        optimizer.zero_grad()
        torch.cos(part.weight).sum().backward()
        sizes.append(float(part.weight.grad.norm()))
        if sizes[-1] <= eps:
            break
        optimizer.step()
    assert min(sizes) <= eps


def test_4_2_pl_rate_in_torch():
    """mu-PL: l_k - l* <= (1 - mu/L)^k (l0 - l*), on least squares with more weights than rows."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((5, 9)), rng.standard_normal(5)
    values = np.linalg.eigvalsh(a @ a.T)
    part = torch.nn.Linear(9, 1, bias=False).double()
    optimizer = optimizer_of("gd", part, 1 / values[-1])
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = 0.5 * ((torch.as_tensor(a) @ part.weight[0] - torch.as_tensor(b)) ** 2).sum()
        losses.append(float(loss.detach()))
        loss.backward()
        optimizer.step()
    for k, value in enumerate(losses):
        assert value <= (1 - values[0] / values[-1]) ** k * losses[0] * (1 + 1e-9)


@pytest.mark.parametrize("shift", [(0, 1), (2, 0), (1, 3)])
def test_4_3_convolution_commutes_with_shifts(rng, shift):
    """(f * h)(u + d) is the shifted f * h, wherever the filter does not reach the border."""
    conv = layer(
        {"layer": "convolution", "in": 1, "out": 4, "size": 3, "stride": 1, "padding": 1}
    ).double()
    image = torch.zeros(1, 1, 14, 14, dtype=torch.float64)
    image[0, 0, 4:8, 4:8] = torch.as_tensor(rng.standard_normal((4, 4)))
    moved = torch.roll(image, shift, (2, 3))
    with torch.no_grad():
        here, there = conv(image), conv(moved)
    np.testing.assert_allclose(torch.roll(here, shift, (2, 3)), there, atol=1e-12)
    assert not np.allclose(here, there)
    dense = torch.nn.Linear(196, 196).double()
    with torch.no_grad():
        a, b = (dense(i.reshape(1, -1)).reshape(1, 1, 14, 14) for i in (image, moved))
    assert not np.allclose(torch.roll(a, shift, (2, 3)), b)


def test_4_3_convolution_is_the_sum_it_says(rng):
    """(f * h)(u) = sum_v f(u + v) h(v) with zeros outside, by hand; max-pooling takes the largest
    of each window."""
    f, h = rng.standard_normal((5, 6)), rng.standard_normal((3, 3))
    conv = layer(
        {"layer": "convolution", "in": 1, "out": 1, "size": 3, "stride": 1, "padding": 1}
    ).double()
    with torch.no_grad():
        conv.weight.copy_(torch.as_tensor(h[None, None]))
        conv.bias.zero_()
        out = conv(torch.as_tensor(f[None, None]))[0, 0].numpy()
    wide = np.pad(f, 1)
    by_hand = np.array(
        [[np.sum(wide[i : i + 3, j : j + 3] * h) for j in range(6)] for i in range(5)]
    )
    np.testing.assert_allclose(out, by_hand)
    pool = layer({"layer": "max_pool", "size": 2})(torch.as_tensor(f[None, None, :4]))[0, 0].numpy()
    np.testing.assert_array_equal(pool, f[:4].reshape(2, 2, 3, 2).max(axis=(1, 3)))


def test_4_3_a_small_image_classifier(digits):
    from sklearn.datasets import load_digits

    y = load_digits().target
    options = {
        "channels": (16, 32),
        "hidden": [32],
        "max_iter": 14,
        "learning_rate": 3e-3,
        "random_state": 0,
    }
    model = NetworkClassifier(image=(8, 8), n_threads=1, **options).fit(digits[:1200], y[:1200])
    assert (
        model.score(digits[1200:], y[1200:]) > 0.88
    )  # other writers than those of the training: 0.90 to 0.94 over seeds


def test_1_8_a_deep_autoencoder_beats_pca_on_digits_at_equal_k(digits):
    model = Autoencoder(8, hidden=[128, 64], max_iter=30, random_state=0, n_threads=1).fit(
        digits[:1400]
    )
    best = PCA(8).fit(digits[:1400])
    assert model.reconstruction_error(digits[1400:]) < 0.85 * best.reconstruction_error(
        digits[1400:]
    )
    assert model.certificate_["risk / PCA"] < 0.85


def test_1_8_missing_entries_are_masked_and_filled(digits):
    holes = digits[:600].copy()
    hidden = np.random.default_rng(0).random(holes.shape) < 0.2
    truth, holes[hidden] = holes[hidden], np.nan
    options = {
        "channels": (8,),
        "hidden": [64],
        "max_iter": 15,
        "learning_rate": 3e-3,
        "random_state": 0,
        "n_threads": 1,
    }
    for model in (
        Autoencoder(8, hidden=[64], max_iter=30, random_state=0, n_threads=1),
        ConvAutoencoder(8, **options),
    ):
        filled = model.fit(Observed.from_nan(holes)).impute(holes)
        error = np.mean((filled[hidden] - truth) ** 2)
        means = np.broadcast_to(np.nanmean(holes, axis=0), holes.shape)[hidden]
        assert error < 0.7 * np.mean((means - truth) ** 2)


def test_1_8_two_numbers_make_a_map_that_separates_better_than_pca(digits):
    from sklearn.datasets import load_digits
    from sklearn.neighbors import KNeighborsClassifier

    y = load_digits().target
    model = Autoencoder(2, hidden=[128, 64], max_iter=50, random_state=0, n_threads=1).fit(
        digits[:1400]
    )
    found = [
        KNeighborsClassifier(10)
        .fit(m.transform(digits[:1400]), y[:1400])
        .score(m.transform(digits[1400:]), y[1400:])
        for m in (model, PCA(2).fit(digits[:1400]))
    ]
    assert found[0] > 1.05 * found[1]  # 1.12 at the least on 15 seeds


@pytest.mark.slow
def test_1_8_fashion_images_through_thirty_numbers(shared_data):
    """Real images, a subset: the full figures are in benchmarks/networks.py."""
    with gzip.open(shared_data("fashion-mnist") / "t10k-images-idx3-ubyte.gz") as raw:
        x = np.frombuffer(raw.read(), np.uint8, offset=16).reshape(-1, 784).astype(np.float32) / 255
    model = Autoencoder(30, hidden=[512, 256], max_iter=30, random_state=0).fit(x[:8000])
    assert model.reconstruction_error(x[8000:]) < 0.85 * PCA(30).fit(x[:8000]).reconstruction_error(
        x[8000:]
    )


def test_1_8_faces_through_twenty_numbers(shared_data):
    from scipy.io import loadmat

    rows = loadmat(shared_data("cbcl-faces") / "CBCL_Face.mat")["M"].T.astype(np.float32)
    rows = rows[np.random.default_rng(0).permutation(len(rows))]
    model = Autoencoder(20, hidden=[256], init="pca", max_iter=8, random_state=0, n_threads=1).fit(
        rows[500:]
    )
    assert model.reconstruction_error(rows[:500]) < 0.9 * PCA(20).fit(
        rows[500:]
    ).reconstruction_error(rows[:500])
