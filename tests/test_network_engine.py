"""engine= of networks: by name, with its reason in the plan, and in words where it cannot be."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone

import eckart
from eckart import Autoencoder, ConvAutoencoder, NetworkClassifier, NetworkRegressor

torch = pytest.importorskip("torch", reason="networks need PyTorch")

QUICK = {"hidden": [4], "max_iter": 2, "random_state": 0, "n_threads": 1}
NETWORKS = [
    Autoencoder(2, **QUICK),
    ConvAutoencoder(2, image=(4, 4), channels=(2,), **QUICK),
    NetworkClassifier(**QUICK),
    NetworkRegressor(**QUICK),
]
no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a CUDA device")


@pytest.fixture(params=NETWORKS, ids=lambda model: type(model).__name__)
def model(request):
    return clone(request.param)


@pytest.fixture
def data(rng):
    return rng.normal(size=(40, 16)), np.arange(40) % 2


def test_the_engine_is_taken_and_its_reason_kept(model, data, tmp_path):
    auto, cpu = (clone(model).set_params(engine=name).fit(*data) for name in ("auto", "cpu"))
    assert (auto.fit_.plan["engine"], auto.fit_.plan["engine_reason"]) == (
        "cpu",
        "auto: the processors of this machine",
    )
    assert (cpu.fit_.plan["engine"], cpu.fit_.plan["engine_reason"]) == ("cpu", "asked for")
    for name, w in auto.fit_.factors.weights.items():
        np.testing.assert_array_equal(w, cpu.fit_.factors.weights[name])
    by_device = clone(model).set_params(device="cpu").fit(*data)
    assert by_device.fit_.plan["engine_reason"] == "auto: device='cpu' was asked for"
    cpu.save(tmp_path / "m.safetensors")
    for again in (eckart.load(tmp_path / "m.safetensors"), pickle.loads(pickle.dumps(cpu))):
        assert again.engine == "cpu"
        assert again.fit_.plan["engine_reason"] == "asked for"


@pytest.mark.parametrize("engine", ["numpy", "dask", "tpu", None, object()])
def test_what_is_no_engine_of_networks_is_refused_in_words(model, data, engine):
    with pytest.raises(
        eckart.InputError,
        match="engine must be 'auto', 'cpu' or 'cuda': networks run in PyTorch, on the processors or on a GPU of this machine, got",
    ):
        model.set_params(engine=engine).fit(*data)
    assert not hasattr(model, "fit_")


@pytest.mark.parametrize(
    ("engine", "device"), [("cpu", "cuda"), ("cpu", "cuda:1"), ("cuda", "cpu")]
)
def test_an_engine_and_a_device_of_another_contradict_each_other(model, data, engine, device):
    words = (
        f"engine='{engine}' came with device='{device}', which is no device of it; leave one of "
        "them out"
    )
    with pytest.raises(eckart.InputError, match=words):
        model.set_params(engine=engine, device=device).fit(*data)
    fitted = (
        clone(model)
        .set_params(engine="auto", device=None)
        .fit(*data)
        .set_params(engine=engine, device=device)
    )
    use = fitted.transform if hasattr(fitted, "transform") else fitted.predict
    with pytest.raises(eckart.InputError, match=words):
        use(data[0])


@no_gpu
def test_a_gpu_that_is_not_there_is_named_by_the_parameter_that_asked(model, data):
    for asked in ({"engine": "cuda"}, {"device": "cuda"}):
        name = next(iter(asked))
        with pytest.raises(
            eckart.InputError, match=f"{name}='cuda' came, but this PyTorch sees no CUDA device"
        ):
            clone(model).set_params(**asked).fit(*data)
    fitted = model.fit(*data).set_params(engine="cuda")  # trained there, say, and brought here
    use = fitted.transform if hasattr(fitted, "transform") else fitted.predict
    assert np.isfinite(use(data[0])).all()


def test_a_model_from_before_there_was_an_engine_takes_auto(model, data):
    state = vars(model.fit(*data)).copy()
    del state["engine"]
    old = type(model).__new__(type(model))
    vars(old).update(state)
    assert old.get_params()["engine"] == "auto"
    assert clone(old).engine == "auto"
    use = "transform" if hasattr(model, "transform") else "predict"
    np.testing.assert_array_equal(getattr(old, use)(data[0]), getattr(model, use)(data[0]))
