"""Networks draw from generators of their own: fits side by side repeat their seeds, and the
generator of the process is left alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from eckart import Autoencoder, NetworkClassifier, NetworkRegressor

torch = pytest.importorskip("torch")

X = np.random.default_rng(0).standard_normal((120, 6)).astype(np.float32)
HOW = {"hidden": [8], "max_iter": 6, "n_threads": 1}
MODELS = {
    "dropout": lambda seed: Autoencoder(2, dropout=0.3, random_state=seed, **HOW).fit(X),
    "noise": lambda seed: Autoencoder(2, noise=0.5, random_state=seed, **HOW).fit(X),
    "mask": lambda seed: Autoencoder(2, noise=0.3, corruption="mask", random_state=seed, **HOW).fit(
        X
    ),
    "variational": lambda seed: Autoencoder(2, variational=1.0, random_state=seed, **HOW).fit(X),
    "classifier": lambda seed: NetworkClassifier(dropout=0.3, random_state=seed, **HOW).fit(
        X, X[:, 0] > 0
    ),
    "regressor": lambda seed: NetworkRegressor(dropout=0.3, random_state=seed, **HOW).fit(
        X, X[:, 0]
    ),
}


def weights(model):
    return {name: a.tobytes() for name, a in model.fit_.factors.to_state()[0].items()}


@pytest.mark.filterwarnings("ignore")
def test_fits_in_threads_repeat_their_seeds():
    jobs = [(name, seed) for seed in range(3) for name in MODELS]
    alone = [weights(MODELS[name](seed)) for name, seed in jobs]
    assert alone[0] != alone[len(MODELS)]  # another seed, other weights
    with ThreadPoolExecutor(8) as side_by_side:
        together = list(side_by_side.map(lambda job: weights(MODELS[job[0]](job[1])), jobs))
    assert together == alone


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_the_generator_of_the_process_is_not_touched(name, monkeypatch):
    def refuse(*_, **__):
        pytest.fail("the generator of the process was seeded")

    torch.manual_seed(7)
    before = torch.random.get_rng_state()
    monkeypatch.setattr(torch, "manual_seed", refuse)
    MODELS[name](0)
    assert torch.equal(torch.random.get_rng_state(), before)
