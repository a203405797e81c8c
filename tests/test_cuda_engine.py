"""The engine in PyTorch on CPU tensors: every model fits on it as on the CPU engine, and what is
special to a device. On a GPU: ``make test-gpu``."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from oracle import JUDGE

sys.path.insert(0, str(Path(__file__).parent / "engines"))
from exchange import CASES, data

import eckart
from eckart import ALS, NMF, PCA, SVP, SVT, GaussianMixture, InputError, SoftImpute
from eckart.engines import choose, engine_named
from eckart.engines.cuda import made
from eckart.matrix import Counts, Dense, Observed

auto = sys.modules["eckart.engines.choose"]
torch = pytest.importorskip("torch", reason="the engine needs PyTorch")

from eckart.engines.cuda import arrays, dense, halves, held  # noqa: E402
from eckart.io.tables.frames import DeviceRows  # noqa: E402

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
            # it has several optima, and begins with the signs of a basis, of which each engine has
            # its own: both go on from one sweep under one ridge
            if case == "ALS nonnegative":
                model.set_params(
                    l2=0.05, engine=engine_named("cpu", 1), max_iter=1, warm_start=True
                ).fit(data()[kind]).set_params(engine=engine, max_iter=10)
            model.fit(data()[kind])
        found.append((model, [np.asarray(getattr(model, verb)(data()[kind])) for verb in verbs]))
    (ours, answers), (theirs, wanted) = found
    assert ours.fit_.plan["engine"] == "cuda"
    assert ours.certificate_.holds == theirs.certificate_.holds, str(ours.certificate_)
    for got, want in zip(answers, wanted):
        # steps over batches stop far from the optimum, where roundings of other sums have grown;
        # elsewhere an optimum draws them together
        near = 1e-4 if name == "MiniBatchNMF" else 1e-6
        np.testing.assert_allclose(got, want, atol=near * np.abs(want).max(), rtol=0)


@pytest.mark.parametrize("model", [ALS(3), PCA(2), NMF(3)], ids=lambda m: type(m).__name__)
def test_the_same_seed_gives_the_same_bits(model):
    x = np.abs(data()["dense"])
    fits = [
        model.set_params(engine=made(1, "cpu"), random_state=0).fit(x).fit_.factors
        for _ in range(2)
    ]
    one, two = (
        f.left if isinstance(model, ALS) else getattr(f, "components", getattr(f, "right", None))
        for f in fits
    )
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
    monkeypatch.setattr(
        engine, "ridge_rows", lambda *a, **b: (sweeps.append(len(moved)), solve(*a, **b))[1]
    )
    rng = np.random.default_rng(0)
    x = np.where(rng.random((400, 300)) < 0.1, rng.standard_normal((400, 300)), np.nan)
    ALS(4, l2=0.05, engine=engine, max_iter=4, tol=0.0, stop="decrease", random_state=0).fit(x)
    assert len(sweeps) == 8
    assert max(moved[sweeps[2] : sweeps[-1]], default=0) <= 25, (
        "more than k + 1 squared numbers crossed"
    )
    assert engine.fallen <= {"inner", "orth"}  # of the certificate's small blocks


def test_a_tall_array_shows_columns_and_no_rows():
    engine = made(1, "cpu")
    tall = engine.take(np.arange(12.0).reshape(4, 3))
    tall[:, 1:2] = engine.take(np.full((4, 1), -1.0))
    tall[:, 2:3] = np.full((4, 1), -2.0)
    assert engine.get(tall[:, 1:])[0].tolist() == [-1.0, -2.0]
    assert (tall.shape, tall.dtype) == ((4, 3), np.float64)
    for touch in (lambda a: a[0], lambda a: a[1:], lambda a: a[:, 0]):
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
    real = held.DeviceMatrix.blocks

    def short_of_memory(self, *args):
        if left[0]:
            left[0] -= 1
            raise torch.OutOfMemoryError("no room")
        return real(self, *args)

    monkeypatch.setattr(held.DeviceMatrix, "blocks", short_of_memory)
    engine, x = made(1, "cpu"), data()["dense"]
    before = engine.room.block
    model = PCA(2, engine=engine, svd_solver="eigh", random_state=0).fit(x)
    assert engine.room.block < before
    np.testing.assert_allclose(
        model.components_,
        PCA(2, engine="cpu", svd_solver="eigh", random_state=0).fit(x).components_,
        atol=1e-12,
    )
    said = (
        "moments ran on the CPU engine, the device had no room for it"
        in model.fit_.plan["engine_reason"]
    )
    assert said == (failures == 100)


def test_a_product_of_split_factors_has_the_precision_of_float32():
    x = torch.as_tensor(
        np.random.default_rng(0).standard_normal((5000, 30)) * np.geomspace(1e-3, 1e3, 30),
        dtype=torch.float32,
    )
    want = x.double().T @ x.double()
    size = want.diagonal().sqrt()
    got = torch.zeros_like(want)
    arrays.add_split_square(got, x)
    assert float(((got - want) / torch.outer(size, size)).abs().max()) < 1e-6
    high = ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)
    coarse = high.double().T @ high.double()
    # eleven bits alone are not enough
    assert float(((coarse - want) / torch.outer(size, size)).abs().max()) > 1e-6
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(1, 3), (700, 30), (2500, 1100)], ids=str)
def test_products_of_halves_have_the_precision_of_float32(shape, weighted):
    """Columns in units that are far apart, a mean far from zero, rows that are no multiple of the
    terms of a sum."""
    rng = np.random.default_rng(0)
    units = 10.0 ** rng.integers(-6, 6, shape[1])
    x = torch.as_tensor((rng.standard_normal(shape) + 3) * units, dtype=torch.float32)
    w = torch.as_tensor(rng.random(shape[0]) * 2) if weighted else None
    probe = torch.as_tensor(rng.standard_normal(shape[1]) / units)
    each = torch.ones(shape[0], dtype=torch.float64) if w is None else w
    mean = each @ x.double() / each.sum()
    apart = x.double() - mean
    want = apart.T @ (each[:, None] * apart)
    size = (want.diagonal() + 1e-6 * each.sum() * torch.as_tensor(units) ** 2).sqrt()
    found = halves.scatter_of(x, w, probe)
    one = halves.scatter_of(x[:300], None if w is None else w[:300], probe)
    joined = (
        one.merge(halves.scatter_of(x[300:], None if w is None else w[300:], probe), probe)
        if shape[0] > 300
        else found
    )
    for got in (found, joined):
        assert float(got.weight) == pytest.approx(float(each.sum()))
        assert float(((got.mean - mean) / torch.as_tensor(units)).abs().max()) < 1e-6
        assert float(((got.scatter - want) / torch.outer(size, size)).abs().max()) < 2e-6
        assert float(((got.probed - want @ probe) / size).abs().max()) < 1e-5 * float(
            (want @ probe / size).abs().max() + 1
        )
    v = torch.as_tensor(rng.standard_normal((shape[1], 5)) / units[:, None], dtype=torch.float32)
    kept = halves.Halves.of(x, halves.columns_of(x, None))
    for centre in (mean, None):
        c = x.double() if centre is None else apart
        image = c.T @ (each[:, None] * (c @ v.double()))
        scale = (c**2).T @ each
        got = kept.gram_times(v, centre, w)
        apart_by = (
            ((got - image) / (scale.sqrt()[:, None] + 1e-3 * torch.as_tensor(units)[:, None]))
            .abs()
            .max()
        )
        assert float(apart_by) < 1e-5 * float(
            (each[:, None] * (c @ v.double()) ** 2).sum(0).max().sqrt() + 1
        )


def test_wide_rows_are_reduced_by_halves_as_by_the_cpu_engine(monkeypatch):
    monkeypatch.setattr(dense, "MANY", 0)
    monkeypatch.setattr(dense.DeviceDense, "_splits", lambda self, x: x.dtype == np.float32)
    x = np.random.default_rng(0).standard_normal((300, 40)).astype(np.float32) * np.geomspace(
        1, 9, 40, dtype=np.float32
    )
    for solver in ("eigh", "randomized"):
        ours, theirs = (
            PCA(3, svd_solver=solver, engine=engine, random_state=0).fit(x)
            for engine in (made(1, "cpu"), engine_named("cpu", 1))
        )
        assert ours.certificate_.holds
        np.testing.assert_allclose(ours.explained_variance_, theirs.explained_variance_, rtol=1e-5)
        np.testing.assert_allclose(ours.components_, theirs.components_, atol=1e-3)


@pytest.mark.parametrize(
    "model", [SVP(2), SoftImpute(tau=1.0), SVT(tol=1e-3)], ids=lambda m: type(m).__name__
)
def test_completion_by_nuclear_norms_stays_on_the_device(monkeypatch, model):
    """Not an array of the device is copied by NumPy's way, and no primitive on thin arrays falls to
    the CPU engine."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 50))
    x = np.where(rng.random(a.shape) < 0.6, a, np.nan)
    copies = []
    monkeypatch.setattr(
        arrays.DeviceArray, "__array__", lambda self, *_, **__: copies.append(self.shape)
    )
    engine = made(1, "cpu")
    ours = model.set_params(engine=engine, random_state=0).fit(x)
    assert not copies
    assert not engine.fallen & {"inner", "outer", "orth", "triangle"}
    assert ours.certificate_.holds
    assert isinstance(ours.fit_.factors.left, np.ndarray)


def test_arrays_of_a_device_answer_as_numpy_does():
    rng = np.random.default_rng(0)
    host, other, row = (
        rng.standard_normal((7, 3)),
        rng.standard_normal((7, 3)),
        rng.standard_normal(3),
    )
    there, beside = (arrays.DeviceArray(torch.as_tensor(a)) for a in (host, other))
    turned = np.array([2, 0])
    for do in (
        lambda a, b: a + b,
        lambda a, b: 2.0 * a - b,
        lambda a, b: row * a / 3,
        lambda a, b: 1 - a * row,
        lambda a, b: -a,
        lambda a, b: np.float64(0.5) * a,
        lambda a, b: np.hstack([a, b]),
        lambda a, b: np.square(a),
        lambda a, b: a[:, turned],
        lambda a, b: a[:, row > 0],
        lambda a, b: a @ np.diag(row),
        lambda a, b: a.T @ b,
        lambda a, b: np.vdot(a, b),
        lambda a, b: np.linalg.norm(a, axis=0),
        lambda a, b: np.linalg.norm(a),
        lambda a, b: np.linalg.norm(a, 2),
        lambda a, b: np.zeros_like(a),
        lambda a, b: a.sum(axis=0),
        lambda a, b: np.sum(a),
        lambda a, b: np.cumsum(a),
        lambda a, b: np.exp(a),
    ):
        got, want = do(there, beside), do(host, other)
        np.testing.assert_allclose(np.asarray(got), want, atol=1e-12)
    assert there.astype(np.float32).dtype == np.float32
    assert there.copy().tensor is not there.tensor
    with pytest.raises(TypeError, match="belongs to the engine"):
        there[1:]


def test_a_covariance_is_judged_where_it_was_made():
    engine, rng = made(1, "cpu"), np.random.default_rng(0)
    scatter = rng.standard_normal((6, 6))
    kept = engine.twins.copy(torch.as_tensor(scatter))
    c = engine.covariance(kept, 2.0, np.arange(6.0))
    assert engine.twins.find(c) is not None
    np.testing.assert_allclose(c, JUDGE.covariance(scatter, 2.0, np.arange(6.0)))
    q, r = rng.standard_normal((2, 6, 2))
    top = float(np.linalg.eigvalsh(c + q @ r.T + r @ q.T)[-1])
    assert engine.is_below(c, q, r, top + 1e-9)
    assert not engine.is_below(c, q, r, top - 1e-9)
    assert not engine.fallen


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


def test_a_tensor_on_a_device_does_not_go_through_the_host(monkeypatch):
    """A tensor of the CPU stands in for one of a GPU."""
    x = data()["dense"]
    tensor, engine = torch.as_tensor(x), made(1, "cpu")
    for place in ("eckart.io.read", "eckart.io.namespaces", "eckart.io.tables.frames"):
        monkeypatch.setattr(f"{place}.on_device", lambda a: a is tensor)
    monkeypatch.setattr(
        "eckart.io.namespaces.on_host", lambda a: pytest.fail("rows were copied to the host")
    )
    want = PCA(2, random_state=0, engine="cpu", svd_solver="eigh").fit(x)
    model = PCA(2, random_state=0, engine=engine, svd_solver="eigh").fit(tensor)
    codes = model.transform(tensor)
    assert isinstance(codes, torch.Tensor)
    assert isinstance(model.components_, torch.Tensor)
    np.testing.assert_allclose(codes.numpy(), want.transform(x), atol=1e-10)
    mixture = GaussianMixture(2, random_state=0, engine=engine).fit(tensor)
    assert isinstance(mixture.predict(tensor), torch.Tensor)


@pytest.mark.parametrize(("least", "name"), [(10, "cuda"), (10**6, "cpu")])
def test_auto_asks_whether_the_way_is_worth_it(monkeypatch, least, name):
    monkeypatch.setattr(auto, "WORTH_DENSE", least)
    engines = sys.modules["eckart.engines.choose"]
    monkeypatch.setattr(engines, "gpu_seen", lambda: True)
    monkeypatch.setitem(engines.BUILT_IN, "cuda", "eckart.engines.cuda:made_on_cpu_tensors")
    monkeypatch.setattr(
        "eckart.engines.cuda.made_on_cpu_tensors", lambda n: made(n, "cpu"), raising=False
    )
    plan = PCA(2, random_state=0).fit(data()["dense"]).fit_.plan
    assert plan["engine"] == name
    assert "480 entries" in plan["engine_reason"]
    assert f"{4 * least:,} are worth the way to the GPU and its start" in plan["engine_reason"]


@pytest.mark.parametrize(
    ("kind", "stored", "worth"),
    [("counts", 5, True), ("counts", 10**6, False), ("observed", 10, False)],
)
def test_auto_takes_stored_zeros_to_the_gpu_and_leaves_observed_entries(
    monkeypatch, kind, stored, worth
):
    monkeypatch.setattr(auto, "WORTH_COUNTS", stored)
    made_of = Counts if kind == "counts" else Observed
    x = made_of(np.array([0, 20]), np.arange(20), np.ones(20), 20)
    found, words = auto.worth_moving(x, True)
    assert found is worth
    assert ("20 entries" in words) == (kind == "counts")
    assert auto.worth_moving(x, False)[0] is (worth and auto.START * stored <= 20)


def test_certificate_takes_products_that_the_solver_made(monkeypatch):
    """Settled vectors are multiplied once: the certificate adds its own probes, and says what one
    made anew from the data says."""
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((3000, 120)) * np.arange(1, 121) ** -0.7).astype(np.float32)
    engine, widths = made(1, "cpu"), []
    times = engine.gram_times
    monkeypatch.setattr(
        engine,
        "gram_times",
        lambda x, v, *a, **b: widths.append(v.shape[1]) or times(x, v, *a, **b),
    )
    model = PCA(10, svd_solver="randomized", random_state=0, engine=engine).fit(x)
    # the probes; with the vectors their first product would have 18 columns
    assert widths[-5:] == [8] * 5
    again = model.certify(x)
    assert model.certificate_.holds
    assert again.holds
    for name in ("captured variance", "largest residual", "upper bound for any k directions"):
        assert model.certificate_[name] == pytest.approx(again[name], rel=0.02)


def test_rows_on_a_device_never_come_to_the_host(monkeypatch):
    """Tensors that say they are a GPU's: fit, transform and fit_transform read them where they are,
    and answer in tensors."""
    from eckart.io import namespaces, read
    from eckart.io.tables import frames as device_rows

    for module in (namespaces, read, device_rows):
        monkeypatch.setattr(module, "on_device", lambda x: isinstance(x, torch.Tensor))

    def refused(*_):
        raise AssertionError("rows were copied to the host")

    monkeypatch.setattr(namespaces, "on_host", refused)
    monkeypatch.setattr(DeviceRows, "blocks", refused)
    rng = np.random.default_rng(0)
    x = torch.as_tensor(
        (rng.standard_normal((300, 40)) * np.arange(1, 41) ** -0.7).astype(np.float32)
    )
    model = PCA(3, svd_solver="eigh", random_state=0, engine=made(1, "cpu"))
    codes = model.fit_transform(x)
    assert isinstance(codes, torch.Tensor)
    assert torch.equal(codes, model.fit(x).transform(x))
    assert model.fit_.plan["solver"] == "eigh"
    plan = PCA(3, random_state=0, engine=made(1, "cpu")).fit(x).fit_.plan
    assert "row blocks" not in plan["reason"]  # they are at hand


def test_torch_is_the_engine_of_whatever_torch_has(monkeypatch):
    """An accelerator where PyTorch sees one that knows float64, else its tensors on the
    processors."""
    x = np.random.default_rng(0).random((60, 5))
    model = eckart.PCA(2, engine="torch").fit(x)
    assert model.fit_.plan["engine"] == "torch"
    np.testing.assert_allclose(
        abs(model.components_), abs(eckart.PCA(2, engine="cpu").fit(x).components_), atol=1e-10
    )
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("mps"))
    assert engine_named("torch").device.type == "cpu"
