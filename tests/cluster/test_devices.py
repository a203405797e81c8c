"""Workers with a device of their own. The device is that of CPU tensors here;
``tests/test_device_blocks.py`` fits every model on such blocks."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from eckart import ALS, NMF, PCA, GaussianMixture
from eckart.engines import engine_named
from eckart.engines.dask import worker
from eckart.engines.dask.engine import DaskEngine
from eckart.errors import InputError

da = pytest.importorskip("dask.array")
torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'eckart[torch]'")

MODELS = {
    "PCA": (PCA(3, svd_solver="randomized"), lambda m: m.components_),
    "NMF": (NMF(3, solver="mu", max_iter=20), lambda m: m.components_),
    "ALS": (
        ALS(3, feedback="implicit", max_iter=4),
        lambda m: m.predict(np.arange(9), np.arange(9)),
    ),
    "GaussianMixture": (GaussianMixture(2, max_iter=5), lambda m: m.means_),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", MODELS)
def test_the_answer_is_that_of_workers_without_a_device_and_repeats(name, threads, rows):
    model, answer = MODELS[name]
    x = (rows > 4).astype(float) if name == "ALS" else np.abs(rows)
    found = []
    for device in (None, "cpu", "cpu"):
        model.set_params(engine=DaskEngine(1, threads, cut=5, device=device), random_state=0).fit(x)
        found.append((answer(model).copy(), model.certificate_.holds, model.fit_.plan["engine"]))
    one, there, again = found
    np.testing.assert_allclose(there[0], one[0], atol=1e-6 * np.abs(one[0]).max())
    assert there[0].tobytes() == again[0].tobytes()
    assert there[1] == one[1]
    assert (one[2], there[2]) == ("dask", "dask-cuda")


@pytest.mark.parametrize(
    ("visible", "name", "wanted"),
    [
        # whoever started the worker chose: the first it sees is its own
        ("1,0", "worker-1", "cuda"),
        (None, 0, "cuda:0"),
        (None, 3, "cuda:1"),  # two GPUs, taken in turn
        (None, "tcp-node7-4", "cuda:0"),
        (None, "nameless", "cuda"),
    ],
)
def test_every_worker_has_a_gpu_of_its_own(visible, name, wanted, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr("distributed.get_worker", lambda: SimpleNamespace(name=name))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert worker.own_device("cuda") == wanted
    assert worker.own_device("cpu") == "cpu"


def test_a_worker_without_a_gpu_is_named(threads, rows):
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(
        InputError,
        match=r"engine='dask-cuda' came, but worker .* has no PyTorch that sees a device "
        r"'cuda'",
    ):
        PCA(2, engine=engine_named("dask-cuda")).fit(da.from_array(rows, chunks=(1000, 12)))
