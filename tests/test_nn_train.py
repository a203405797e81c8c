"""The training loop: optimisers, schedules, early stopping, divergence, interrupts, memory,
checkpoints."""

from __future__ import annotations

import subprocess
import sys
import time
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import eckart
from conftest import planted
from eckart import Autoencoder, ConvAutoencoder, NetworkClassifier
from eckart.io.models.header_checks import unpack
from eckart.optim.rules import RULES, rule_named
from eckart.trace import StopReason

torch = pytest.importorskip("torch", reason="networks need PyTorch")

from eckart.nn import shell, train  # noqa: E402
from eckart.nn.batches import NetworkRows, scale_of, whole  # noqa: E402
from eckart.nn.place import DevicePlace, choose_place, threads  # noqa: E402
from eckart.nn.rules import LEARNING_RATES, optimizer_of, schedule_of  # noqa: E402


@pytest.mark.parametrize("name", list(RULES))
@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_every_optimiser_follows_the_rule_of_the_same_name(name, decay):
    """The same trajectory on a quadratic with different curvatures; a penalty of weight decay / 2
    ||w||^2 beside it."""
    h, start, lr = np.array([[4.0, 1.0], [0.3, 2.0]]), np.array([[1.0, -2.0], [3.0, 0.5]]), 0.05
    rule, ours = rule_named(name), [start.copy()]
    state, path = rule.init(ours), []
    layer = torch.nn.Linear(2, 2, bias=False).double()
    with torch.no_grad():
        layer.weight.copy_(torch.as_tensor(start))
    optimizer = optimizer_of(name, layer, lr, decay)
    for _ in range(25):
        ahead = rule.ahead(ours, state)
        path.append(np.abs(ahead[0] - layer.weight.detach().numpy()).max())
        ours, state = rule.step(ours, [(h + decay) * ahead[0]], state, lr)
        optimizer.zero_grad()
        (0.5 * (torch.as_tensor(h) * layer.weight**2).sum()).backward()
        optimizer.step()
    assert max(path) < 1e-7
    assert set(LEARNING_RATES) == set(RULES)


def test_schedules_rise_and_fall():
    cosine, line, flat = (schedule_of(name, 1000) for name in ("cosine", "linear", "constant"))
    assert cosine(0) < 0.05
    assert max(map(cosine, range(1000))) > 0.95
    assert cosine(999) < 1e-3
    assert line(500) == pytest.approx(0.5)
    assert flat(0) == flat(999) == 1.0
    with pytest.raises(
        eckart.InputError, match="schedule must be one of constant, cosine, linear, got 'no'"
    ):
        schedule_of("no", 10)


def test_early_stopping_restores_the_best_weights(rng):
    """A wide network on few noisy rows fits them too well: the held-out loss rises again, and the
    best epoch is what is returned."""
    x = rng.standard_normal((60, 20))
    model = Autoencoder(
        8,
        hidden=[128],
        max_iter=300,
        patience=30,
        validation_fraction=0.3,
        learning_rate=3e-3,
        random_state=0,
    ).fit(x)
    curve = model.held_out_curve_
    assert model.fit_.trace.reason.name == "CONVERGED"
    assert len(curve) == len(model.loss_curve_) < 300
    assert curve[-1] > curve.min()
    assert model.fit_.plan["best epoch"] == int(curve.argmin()) + 1
    held = shell.split_rows(60, 0.3, model.fit_.plan["seed"])[1]
    spread = model.fit_.factors.spread[0]
    best = model.reconstruction_error(x[held]) / spread**2 / 20
    assert best == pytest.approx(curve.min(), rel=1e-4)


def test_a_loss_that_is_not_finite_stops_with_the_last_good_weights(rng):
    x = planted(rng, rows=100, n=8)
    with pytest.warns(ConvergenceWarning, match="lower learning_rate, or set clip"):
        model = Autoencoder(
            2,
            hidden=[16],
            optimizer="gd",
            learning_rate=1e6,
            schedule="constant",
            max_iter=20,
            random_state=0,
        ).fit(x)
    assert model.fit_.trace.reason.name == "DIVERGED"
    assert np.isfinite(model.transform(x)).all()
    assert "no longer finite" in model.certificate_["stopped"]
    assert not model.certificate_.holds
    with pytest.warns(ConvergenceWarning):
        alone = Autoencoder(
            2,
            hidden=[16],
            optimizer="gd",
            learning_rate=1e12,
            schedule="constant",
            max_iter=20,
            validation_fraction=0,
            random_state=0,
        ).fit(x[:40])
    assert alone.reconstruction_error(x) < 10 * Autoencoder(
        2, hidden=[16], max_iter=1, random_state=0
    ).fit(x).reconstruction_error(x)
    assert not alone.certificate_.holds
    with pytest.warns(ConvergenceWarning):
        Autoencoder(
            2, hidden=[16], optimizer="gd", learning_rate=1e30, batch_size=5, random_state=0
        ).partial_fit(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clipped = Autoencoder(
            2, hidden=[16], optimizer="gd", clip=0.1, learning_rate=0.5, max_iter=20, random_state=0
        ).fit(x)
    assert clipped.fit_.trace.reason.name != "DIVERGED"


def test_clipping_bounds_the_step(rng):
    x = planted(rng, rows=64, n=8)
    options = {
        "hidden": [16],
        "optimizer": "gd",
        "schedule": "constant",
        "learning_rate": 1.0,
        "max_iter": 1,
        "batch_size": 64,
    }
    still, moved = (
        Autoencoder(2, clip=c, random_state=0, validation_fraction=0, **options).fit(x)
        for c in (1e-6, 1e3)
    )
    start = Autoencoder(2, clip=1e-12, random_state=0, validation_fraction=0, **options).fit(x)

    def distance(a, b):
        return np.sqrt(
            sum(
                np.sum((a.fit_.factors.weights[n] - w) ** 2)
                for n, w in b.fit_.factors.weights.items()
            )
        )

    assert distance(still, start) < 2e-6
    assert distance(moved, start) > 1e-3


def test_ctrl_c_keeps_the_best_weights(rng, monkeypatch):
    x = planted(rng, rows=100, n=8)
    original, calls = train._judge, []

    def judge(*args):
        calls.append(1)
        original(*args)
        if len(calls) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(train, "_judge", judge)
    model = Autoencoder(2, hidden=[16], max_iter=50, random_state=0).fit(x)
    assert model.fit_.trace.reason.name == "INTERRUPTED"
    assert model.n_iter_ == 3
    assert np.isfinite(model.transform(x)).all()


def test_no_memory_for_a_batch_sums_it_in_parts_with_the_same_gradient(rng, monkeypatch):
    x = planted(rng, rows=90, n=8)
    options = {
        "hidden": [16],
        "max_iter": 3,
        "batch_size": 40,
        "precision": "float64",
        "validation_fraction": 0,
    }
    whole_run = Autoencoder(2, random_state=0, **options).fit(x)
    original = NetworkRows.take

    def small_device(self, at):
        if len(at) > 12:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return original(self, at)

    with monkeypatch.context() as m:
        m.setattr(NetworkRows, "take", small_device)
        model = Autoencoder(2, random_state=0, **options).fit(x)
        judged = Autoencoder(2, random_state=0, **{**options, "validation_fraction": 0.5}).fit(x)
        labels = NetworkClassifier(hidden=[8], max_iter=2, random_state=0).fit(x, x[:, 0] > 0)
    assert len(judged.held_out_curve_) == 3
    assert labels.predict_proba(x).shape == (90, 2)
    assert "summed in 4 parts" in model.fit_.plan["memory"]
    assert "memory" not in whole_run.fit_.plan
    for name, w in whole_run.fit_.factors.weights.items():
        np.testing.assert_allclose(model.fit_.factors.weights[name], w, atol=1e-6)
    with monkeypatch.context() as m:
        m.setattr(
            NetworkRows,
            "take",
            lambda self, at: (_ for _ in ()).throw(torch.OutOfMemoryError("none at all")),
        )
        with pytest.raises(torch.OutOfMemoryError):
            Autoencoder(2, random_state=0, **options).fit(x)


def test_a_place_is_checked_and_said():
    assert choose_place(None, "float64", "auto", 0).dtype == torch.float64
    with pytest.raises(
        eckart.InputError,
        match="precision must be 'float32' or 'float64' on a CPU; bfloat16 products are for a GPU, got",
    ):
        choose_place("cpu", "bfloat16", False, 0)
    for name, bad in (("device", "moon"), ("device", 1.5)):
        with pytest.raises(eckart.InputError, match=name):
            choose_place(bad, "auto", "auto", 0)
    with pytest.raises(
        eckart.InputError,
        match="precision must be one of auto, float32, float64, bfloat16, got 'half'",
    ):
        choose_place(None, "half", "auto", 0)
    if not torch.cuda.is_available():
        with pytest.raises(eckart.InputError, match="sees no CUDA device; leave it out"):
            choose_place("cuda", "auto", "auto", 0)
    before = torch.get_num_threads()
    with threads(1):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


def test_the_generator_of_the_user_is_left_alone(rng):
    torch.manual_seed(3)
    first = torch.rand(2)
    torch.manual_seed(3)
    Autoencoder(
        2, hidden=[8], dropout=0.2, noise=0.1, variational=0.1, max_iter=2, random_state=0
    ).fit(planted(rng, rows=50, n=8))
    assert torch.equal(torch.rand(2), first)


def test_rows_are_scaled_by_one_number_and_gaps_are_masked(rng):
    x = planted(rng, rows=30, n=5)
    x[3, 2] = x[7, 0] = np.nan
    x[:, 4] = np.nan
    for given in (x, eckart.Observed.from_nan(x)):
        matrix = whole(eckart.read(given))
        scale = scale_of(matrix)
        rows = NetworkRows(matrix, scale, DevicePlace(torch.device("cpu"), torch.float64))
        batch = rows.all()
        np.testing.assert_allclose(scale.mean[:4], np.nanmean(x[:, :4], axis=0))
        assert scale.mean[4] == pytest.approx(np.nansum(x[:, :4]) / np.isfinite(x).sum())
        assert scale.spread[4] == 0
        assert batch.seen is not None
        np.testing.assert_array_equal(batch.seen.numpy(), np.isfinite(x))
        got = batch.x.numpy() * scale.spread[0] + scale.mean
        np.testing.assert_allclose(got[np.isfinite(x)], x[np.isfinite(x)])
        assert (batch.x.numpy()[~np.isfinite(x)] == 0).all()
        assert np.mean(batch.x.numpy()[np.isfinite(x)] ** 2) == pytest.approx(1)


RUN = """
import sys, time
import numpy as np
from eckart import Autoencoder
from eckart.io.models import checkpoint
from eckart.nn import train

checkpoint.SECONDS = 0.0  # keep after every epoch
judge = train._judge
def slow(*args):
    time.sleep(float(sys.argv[4]))
    return judge(*args)
train._judge = slow
x = np.load(sys.argv[1])
Autoencoder(2, hidden=[16], dropout=0.1, noise=0.1, max_iter=12, checkpoint=sys.argv[2], random_state=0, n_threads=1).fit(x).save(sys.argv[3])
"""


@pytest.mark.slow
def test_a_killed_fit_resumes_to_the_same_bits(tmp_path, rng):
    np.save(tmp_path / "x.npy", planted(rng, rows=120, n=8))
    state, model = tmp_path / "state.safetensors", tmp_path / "m.safetensors"
    command = [sys.executable, "-c", RUN, str(tmp_path / "x.npy"), str(state), str(model)]
    child = subprocess.Popen([*command, "0.3"])
    for _ in range(3000):
        if epochs_in(state) >= 2:
            break
        time.sleep(0.02)
    child.kill()
    child.wait()
    assert state.exists()
    assert not model.exists()
    subprocess.run([*command, "0"], check=True)
    assert not state.exists()  # removed when the fit was complete
    whole_run = Autoencoder(
        2, hidden=[16], dropout=0.1, noise=0.1, max_iter=12, random_state=0, n_threads=1
    ).fit(np.load(tmp_path / "x.npy"))
    assert_same(eckart.load(model), whole_run)


def epochs_in(path) -> int:
    """Epochs that the state in a file has behind it."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return unpack(load_file(path))[-1]["epoch"]
    except (SafetensorError, OSError):
        return 0


def assert_same(one, two):
    for name, w in two.fit_.factors.weights.items():
        assert one.fit_.factors.weights[name].tobytes() == w.tobytes(), name
    assert one.fit_.trace.values == two.fit_.trace.values
    np.testing.assert_array_equal(one.held_out_curve_, two.held_out_curve_)
    assert one.certificate_ == two.certificate_


class Killed(Exception):
    pass


def stopped(monkeypatch, at, fit):
    """Run a fit that is killed when its checkpoint of epoch ``at`` has been written."""
    saved = eckart.io.models.checkpoint.Checkpoint.save

    def save(self, arrays):
        saved(self, arrays)
        if unpack(arrays)[-1]["epoch"] == at:
            raise Killed

    with monkeypatch.context() as m:
        m.setattr(eckart.io.models.checkpoint.Checkpoint, "save", save)
        with pytest.raises(Killed):
            fit()


@pytest.mark.parametrize("optimizer", list(RULES))
@pytest.mark.parametrize("at", [1, 4])
def test_a_fit_stopped_after_any_epoch_resumes_to_the_same_bits(
    tmp_path, rng, monkeypatch, optimizer, at
):
    monkeypatch.setattr("eckart.io.models.checkpoint.SECONDS", 0.0)
    x, y = planted(rng, rows=80, n=6), rng.integers(0, 3, 80)
    options = {
        "hidden": [8],
        "dropout": 0.2,
        "max_iter": 6,
        "optimizer": optimizer,
        "random_state": 0,
        "weight_decay": 0.01,
    }
    whole_run = NetworkClassifier(**options).fit(x, y)
    stopped(
        monkeypatch, at, lambda: NetworkClassifier(**options, checkpoint=tmp_path / "s").fit(x, y)
    )
    assert (tmp_path / "s").exists()
    with pytest.raises(eckart.FileError, match="checkpoint of other work"):
        NetworkClassifier(**options, checkpoint=tmp_path / "s").fit(x + 1, y)
    assert_same(NetworkClassifier(**options, checkpoint=tmp_path / "s").fit(x, y), whole_run)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("optimizer", ["adam", "heavy_ball", "nesterov", "adagrad"])
def test_a_convolutional_fit_resumes_to_the_same_bits(tmp_path, rng, monkeypatch, optimizer):
    """Filters lie in memory channel by channel, and so must what the optimiser keeps about them."""
    monkeypatch.setattr("eckart.io.models.checkpoint.SECONDS", 0.0)
    x = rng.random((60, 64))
    shape = {"image": (8, 8), "channels": (4, 8), "hidden": [8]}
    options = {**shape, "max_iter": 5, "optimizer": optimizer, "random_state": 0, "n_threads": 1}
    whole_run = ConvAutoencoder(2, **options).fit(x)
    stopped(monkeypatch, 2, lambda: ConvAutoencoder(2, **options, checkpoint=tmp_path / "s").fit(x))
    assert_same(ConvAutoencoder(2, **options, checkpoint=tmp_path / "s").fit(x), whole_run)


def test_a_fit_without_a_seed_goes_on_with_the_rows_it_held_out(tmp_path, rng, monkeypatch):
    monkeypatch.setattr("eckart.io.models.checkpoint.SECONDS", 0.0)
    x, seen, split = planted(rng, rows=80, n=6), [], shell.split_rows
    monkeypatch.setattr(
        "eckart.reduce.network_coder.split_rows", lambda *a: seen.append(split(*a)) or seen[-1]
    )
    model = Autoencoder(2, hidden=[8], max_iter=6, checkpoint=tmp_path / "s")
    stopped(monkeypatch, 3, lambda: model.fit(x))
    first = seen[0][1].tolist()
    model.fit(x)
    assert [s[1].tolist() for s in seen] == [first] * len(seen)


def test_ctrl_c_leaves_the_checkpoint(tmp_path, rng, monkeypatch):
    monkeypatch.setattr("eckart.io.models.checkpoint.SECONDS", 0.0)
    x, judge, left = planted(rng, rows=80, n=6), train._judge, [4]

    def stop(*a):
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt
        return judge(*a)

    options = {"hidden": [8], "max_iter": 8, "random_state": 0}
    with monkeypatch.context() as m:
        m.setattr(train, "_judge", stop)
        part = Autoencoder(2, **options, checkpoint=tmp_path / "s").fit(x)
    assert part.fit_.trace.reason.name == "INTERRUPTED"
    assert_same(
        Autoencoder(2, **options, checkpoint=tmp_path / "s").fit(x),
        Autoencoder(2, **options).fit(x),
    )
    assert not (tmp_path / "s").exists()


def test_a_model_of_a_gpu_works_where_there_is_none(tmp_path, rng, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    x = planted(rng, rows=60, n=6)
    model = Autoencoder(2, hidden=[8], max_iter=3, random_state=0).fit(x)
    codes = model.transform(x)
    np.testing.assert_array_equal(model.set_params(device="cuda").transform(x), codes)
    with pytest.raises(eckart.InputError, match="sees no CUDA device"):
        model.fit(x)


def test_the_rate_falls_when_the_loss_no_longer_does():
    """A fit that patience ended had stopped at full rate, in the middle of its schedule."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((400, 3)) @ rng.standard_normal((3, 20)) + rng.standard_normal(
        (400, 20)
    )
    options = {
        "hidden": [32],
        "max_iter": 300,
        "learning_rate": 2e-2,
        "random_state": 0,
        "n_threads": 1,
    }
    model = Autoencoder(3, patience=4, **options).fit(x)
    found = np.array(model.held_out_curve_)
    assert model.fit_.trace.reason is StopReason.CONVERGED
    assert len(found) < 300
    best = int(np.argmin(found))
    # the best epoch is one in which the rate falls
    assert best >= len(found) - int(np.ceil(0.4 * len(found)))
    before = found[: int(np.argmin(found[:best]) + 1)].min() if best else np.inf
    assert found[best] < before
    # a constant rate ends at once, as it did
    stays = Autoencoder(3, patience=4, schedule="constant", **options).fit(x)
    assert len(stays.held_out_curve_) - 1 - int(np.argmin(stays.held_out_curve_)) <= 8


def test_classes_of_few_columns_have_room(rng):
    """Four columns of data had hidden layers of 16 and 8."""
    from eckart import NetworkClassifier

    x = rng.standard_normal((600, 4))
    y = (x[:, 0] * x[:, 1] > 0) * 2 + (x[:, 2] * x[:, 3] > 0)
    model = NetworkClassifier(random_state=0, n_threads=1).fit(x[:450], y[:450])
    assert "4-256-128-4" in model.fit_.plan["layers"]
    assert model.score(x[450:], y[450:]) > 0.85
