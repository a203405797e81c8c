"""The engine in PyTorch on CPU tensors: every model fits on it as on the CPU engine, and what is special to a device. On a GPU: ``make test-gpu``."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent / "engines"))
from exchange import CASES, data

import eckart
from eckart import ALS, NMF, PCA, InputError
from eckart.engines import auto, choose, engine_named
from eckart.engines.cuda import made
from eckart.matrix import Counts, Dense, Observed

torch = pytest.importorskip("torch", reason="the engine needs PyTorch")

from eckart.engines.cuda import arrays, held  # noqa: E402
from eckart.io.tables.device_rows import DeviceRows  # noqa: E402

ON_CPU_ALONE = ("PMI", "GloVe", "SkipGram", "Mixture bernoulli", "Mixture multinomial", "LDA gibbs")
"""Models all of whose primitives the CPU engine does: nothing to compare."""


@pytest.mark.parametrize("case", [name for name in CASES if not name.startswith(ON_CPU_ALONE)])
def test_every_model_fits_as_on_the_cpu_engine(case):
    name, options, kind, verbs = CASES[case]
    found = []
    for engine in (made(1, "cpu"), engine_named("cpu", 1)):
        model = getattr(eckart, name)(**options, engine=engine).set_params(random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # few iterations: some do not converge
            model.fit(data()[kind])
        found.append((model, [np.asarray(getattr(model, verb)(data()[kind])) for verb in verbs]))
    (ours, answers), (theirs, wanted) = found
    assert ours.fit_.plan["engine"] == "cuda"
    assert ours.certificate_.holds == theirs.certificate_.holds, str(ours.certificate_)
    for got, want in zip(answers, wanted):
        np.testing.assert_allclose(got, want, atol=1e-6 * np.abs(want).max(), rtol=0)


@pytest.mark.parametrize("model", [ALS(3), PCA(2), NMF(3)], ids=lambda m: type(m).__name__)
def test_the_same_seed_gives_the_same_bits(model):
    x = np.abs(data()["dense"])
    fits = [model.set_params(engine=made(1, "cpu"), random_state=0).fit(x).fit_.factors for _ in range(2)]
    one, two = (f.left if isinstance(model, ALS) else getattr(f, "components", getattr(f, "right", None)) for f in fits)
    assert one.tobytes() == two.tobytes()


def test_factors_of_als_stay_on_the_device_between_sweeps(monkeypatch):
    """Nothing with as many rows as the data crosses between two half sweeps."""
    engine, moved, sweeps = made(1, "cpu"), [], []

    def fetched(a, real=arrays.on_host):
        moved.append(int(np.prod(a.shape)))
        return real(a)

    def sent(a, *more, real=held.to_device):
        moved.append(0 if hasattr(a, "tensor") else int(np.prod(np.shape(a))))
        return real(a, *more)

    solve, doors = engine.ridge_rows, sys.modules["eckart.engines.cuda.engine"]
    monkeypatch.setattr(doors, "on_host", fetched)
    monkeypatch.setattr(doors, "to_device", sent)
    monkeypatch.setattr(engine, "ridge_rows", lambda *a, **b: (sweeps.append(len(moved)), solve(*a, **b))[1])
    rng = np.random.default_rng(0)
    x = np.where(rng.random((400, 300)) < 0.1, rng.standard_normal((400, 300)), np.nan)
    ALS(4, engine=engine, max_iter=4, tol=0.0, stop="decrease", random_state=0).fit(x)
    assert len(sweeps) == 8
    assert max(moved[sweeps[2] : sweeps[-1]], default=0) <= 25, "more than k + 1 squared numbers crossed"
    assert engine.fallen <= {"inner", "orth"}  # of the certificate's small blocks


def test_a_tall_array_shows_columns_and_no_more():
    engine = made(1, "cpu")
    tall = engine.take(np.arange(12.0).reshape(4, 3))
    tall[:, 1:2] = engine.take(np.full((4, 1), -1.0))
    tall[:, 2:3] = np.full((4, 1), -2.0)
    assert engine.get(tall[:, 1:])[0].tolist() == [-1.0, -2.0]
    assert (tall.shape, tall.dtype) == ((4, 3), np.float64)
    for touch in (lambda a: a + 1, lambda a: np.ones((2, 4)) @ a, lambda a: a[0], lambda a: a[:, 0]):
        with pytest.raises(TypeError):
            touch(tall)


def test_without_a_gpu_the_error_says_what_to_do():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(InputError, match="sees no CUDA device; use engine='auto' or 'cpu'"):
        PCA(2, engine="cuda").fit(data()["dense"])
    assert "cpu" in choose("auto").engine.name


@pytest.mark.parametrize("failures", [1, 3, 100])
def test_out_of_memory_gives_smaller_blocks_and_then_the_cpu_engine(monkeypatch, failures):
    left = [failures]
    real = held.Held.blocks

    def short_of_memory(self, *args):
        if left[0]:
            left[0] -= 1
            raise torch.OutOfMemoryError("no room")
        return real(self, *args)

    monkeypatch.setattr(held.Held, "blocks", short_of_memory)
    engine, x = made(1, "cpu"), data()["dense"]
    before = engine.room.block
    model = PCA(2, engine=engine, svd_solver="eigh", random_state=0).fit(x)
    assert engine.room.block < before
    np.testing.assert_allclose(
        model.components_, PCA(2, engine="cpu", svd_solver="eigh", random_state=0).fit(x).components_, atol=1e-12
    )
    said = "moments ran on the CPU engine, the device had no room for it" in model.fit_.plan["engine_reason"]
    assert said == (failures == 100)


def test_a_product_of_split_factors_has_the_precision_of_float32():
    x = torch.as_tensor(
        np.random.default_rng(0).standard_normal((5000, 30)) * np.geomspace(1e-3, 1e3, 30), dtype=torch.float32
    )
    want = x.double().T @ x.double()
    size = want.diagonal().sqrt()
    got = torch.zeros_like(want)
    arrays.add_split_square(got, x)
    assert float(((got - want) / torch.outer(size, size)).abs().max()) < 1e-6
    high = ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)
    coarse = high.double().T @ high.double()
    assert float(((coarse - want) / torch.outer(size, size)).abs().max()) > 1e-6  # eleven bits alone are not enough
    assert torch.get_float32_matmul_precision() == "highest"


def test_rows_on_a_device_are_taken_as_they_lie():
    x = data()["dense"]
    rows = DeviceRows(torch.as_tensor(x))
    engine = made(1, "cpu")
    assert engine.put(Dense(rows)).resident.data_ptr() == rows.tensor.data_ptr()
    want = PCA(2, random_state=0, engine="cpu", svd_solver="eigh").fit(x)
    for on in (engine, "cpu"):
        model = PCA(2, random_state=0, engine=on, svd_solver="eigh")
        codes = model.fit_transform(Dense(rows))
        assert isinstance(codes, torch.Tensor)
        np.testing.assert_allclose(codes.numpy(), want.transform(x), atol=1e-10)
    spoilt = rows.tensor.clone()
    spoilt[7, 3] = torch.inf
    with pytest.raises(InputError, match="inf at row 7, column 3"):
        PCA(2, engine=engine).fit(Dense(DeviceRows(spoilt)))
    with pytest.raises(InputError, match="1 dimension"):
        DeviceRows(rows.tensor[0])


@pytest.mark.parametrize(("least", "name"), [(10, "cuda"), (10**6, "cpu")])
def test_auto_asks_whether_the_way_is_worth_it(monkeypatch, least, name):
    monkeypatch.setattr(auto, "WORTH_DENSE", least)
    engines = sys.modules["eckart.engines.choose"]
    monkeypatch.setattr(engines, "gpu_seen", lambda: True)
    monkeypatch.setitem(engines.BUILT_IN, "cuda", "eckart.engines.cuda:made_on_cpu_tensors")
    monkeypatch.setattr("eckart.engines.cuda.made_on_cpu_tensors", lambda n: made(n, "cpu"), raising=False)
    plan = PCA(2, random_state=0).fit(data()["dense"]).fit_.plan
    assert plan["engine"] == name
    assert "480 entries" in plan["engine_reason"]
    assert f"{4 * least:,} are worth the way to the GPU and its start" in plan["engine_reason"]


@pytest.mark.parametrize(
    ("kind", "stored", "worth"), [("counts", 5, True), ("counts", 10**6, False), ("observed", 10, False)]
)
def test_auto_takes_stored_zeros_to_the_gpu_and_leaves_observed_entries(monkeypatch, kind, stored, worth):
    monkeypatch.setattr(auto, "WORTH_COUNTS", stored)
    made_of = Counts if kind == "counts" else Observed
    x = made_of(np.array([0, 20]), np.arange(20), np.ones(20), 20)
    found, words = auto.worth_moving(x, True)
    assert found is worth
    assert ("20 entries" in words) == (kind == "counts")
    assert auto.worth_moving(x, False)[0] is (worth and auto.START * stored <= 20)
