"""Networks on a GPU: what differs from the CPU is placement alone. Skipped where there is none; run
by hand on a machine that has one."""

from __future__ import annotations

import numpy as np
import pytest

from conftest import planted
from eckart import Autoencoder, ConvAutoencoder, NetworkClassifier

torch = pytest.importorskip("torch", reason="networks need PyTorch")

from eckart.nn import steps, train  # noqa: E402

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no CUDA device on this machine"
)
EXACT = {"precision": "float32", "compile": False, "random_state": 0, "device": "cuda"}


def test_the_gpu_gives_what_the_cpu_gives(rng):
    x = planted(rng, rows=500, n=20).astype(np.float32)
    options = {"hidden": [32], "max_iter": 10, **EXACT}
    cpu, gpu = (Autoencoder(3, **{**options, "device": d}).fit(x) for d in ("cpu", "cuda"))
    assert gpu.reconstruction_error(x) == pytest.approx(cpu.reconstruction_error(x), rel=0.05)
    mixed = Autoencoder(3, hidden=[32], max_iter=10, random_state=0).fit(torch.as_tensor(x).cuda())
    assert "bfloat16" in mixed.fit_.plan["device"]
    assert mixed.reconstruction_error(x) == pytest.approx(cpu.reconstruction_error(x), rel=0.2)


@pytest.mark.parametrize(
    "more", [{}, {"noise": 0.5, "clip": 0.05}, {"weight_decay": 1e-3, "dropout": 0.2}]
)
@pytest.mark.parametrize("batch_size", [100, 128])
def test_recorded_steps_are_the_steps(rng, monkeypatch, more, batch_size):
    """450 training rows: batches of 100 differ in size, batches of 128 too; the same bits as step
    by step, random numbers included."""
    x = planted(rng, rows=500, n=20).astype(np.float32)
    options = {"hidden": [32], "max_iter": 12, "batch_size": batch_size, **EXACT, **more}
    played = Autoencoder(3, **options).fit(x)
    monkeypatch.setattr(train, "steps_of", steps.TrainingSteps)
    single = Autoencoder(3, **options).fit(x)
    assert played.loss_curve_.tolist() == single.loss_curve_.tolist()
    for name, w in single.fit_.factors.weights.items():
        np.testing.assert_array_equal(played.fit_.factors.weights[name], w)


@pytest.mark.parametrize("recorded", [True, False])
def test_fits_in_threads_repeat_their_seeds(rng, monkeypatch, recorded):
    """Every network draws from a generator of its own on the device, on tape or not; that of the
    process is left alone."""
    from concurrent.futures import ThreadPoolExecutor

    if not recorded:
        monkeypatch.setattr(train, "steps_of", steps.TrainingSteps)
    x = planted(rng, rows=300, n=12).astype(np.float32)

    def fit(seed):
        options = {
            "hidden": [16],
            "max_iter": 8,
            "dropout": 0.2,
            "noise": 0.3,
            **EXACT,
            "random_state": seed,
        }
        return Autoencoder(2, **options).fit(x).loss_curve_.tolist()

    before = torch.cuda.get_rng_state()
    alone = [fit(seed) for seed in range(4)]
    assert torch.equal(torch.cuda.get_rng_state(), before)
    assert len({tuple(curve) for curve in alone}) == 4
    with ThreadPoolExecutor(1 if recorded else 4) as pool:  # CUDA records one tape at a time
        assert list(pool.map(fit, range(4))) == alone


def test_steps_are_recorded_where_they_can_be(rng, monkeypatch):
    made = []
    monkeypatch.setattr(train, "steps_of", lambda *a: made.append(steps.steps_of(*a)) or made[-1])
    x = planted(rng, rows=200, n=10).astype(np.float32)
    for optimizer in ("adam", "heavy_ball"):
        Autoencoder(2, hidden=[8], max_iter=4, optimizer=optimizer, **EXACT).fit(x)
    assert [type(s).__name__ for s in made] == ["RecordedSteps", "Steps"]
    assert made[0].tapes


def test_images_and_classes(rng):
    x = rng.random((600, 64)).astype(np.float32)
    y = (x[:, :32].sum(axis=1) > x[:, 32:].sum(axis=1)).astype(int)
    options = {
        "image": (8, 8),
        "channels": (8,),
        "max_iter": 40,
        "random_state": 0,
        "device": "cuda",
    }
    assert NetworkClassifier(**options).fit(x, y).score(x, y) > 0.9
    coder = ConvAutoencoder(8, **options).fit(x)
    assert coder.reconstruction_error(x) < 0.5 * x.var(axis=0).sum()


def test_a_stopped_fit_goes_on(rng, tmp_path, monkeypatch):
    """The state of the optimiser lies on the device; it is kept and taken back."""
    x = planted(rng, rows=300, n=10).astype(np.float32)
    options = {"hidden": [16], "max_iter": 12, **EXACT}
    whole = Autoencoder(2, **options).fit(x)
    monkeypatch.setattr("eckart.io.models.checkpoint.SECONDS", 0.0)
    judge, left = train._judge, [5]

    def stop(*a):
        left[0] -= 1
        if not left[0]:
            raise SystemError("killed")
        return judge(*a)

    with monkeypatch.context() as m:
        m.setattr(train, "_judge", stop)
        with pytest.raises(SystemError):
            Autoencoder(2, checkpoint=tmp_path / "c", **options).fit(x)
    again = Autoencoder(2, checkpoint=tmp_path / "c", **options).fit(x)
    np.testing.assert_allclose(again.loss_curve_, whole.loss_curve_, rtol=1e-6)


def test_a_device_without_room_sums_in_parts(rng):
    """One gigabyte for a batch whose hidden layers need several."""
    x = rng.random((200_000, 64)).astype(np.float32)
    torch.cuda.empty_cache()
    room = (2**30 + torch.cuda.memory_reserved()) / torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction(room)
    try:
        model = Autoencoder(
            2, hidden=[512, 512], max_iter=5, batch_size=200_000, validation_fraction=0, **EXACT
        ).fit(x)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert "parts, with the same gradient" in model.fit_.plan["memory"]
