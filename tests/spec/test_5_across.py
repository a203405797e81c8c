"""What holds across all chapters, shown on every estimator there is."""

from __future__ import annotations

import numpy as np
import pytest

from conftest import planted
from eckart import PCA, LinearAutoencoder, principal_angles

MODELS = [
    PCA(3, random_state=0),
    PCA(3, svd_solver="randomized", random_state=0),
    LinearAutoencoder(3, random_state=0),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda m: repr(m)[:40])
def test_5_1_every_fit_leaves_evidence_that_can_be_measured_again(model, rng):
    x = planted(rng, n=14)
    c = model.fit(x).certificate_
    assert c.problem
    assert c.kind == "global"
    exact = np.linalg.eigvalsh(np.cov(x.T, bias=True))[::-1][:3].sum()
    assert c["captured variance"] == pytest.approx(exact, rel=1e-3)
    assert c["upper bound for any k directions"] >= exact * (1 - 1e-9)
    again = model.certify(x)
    assert again.holds
    assert again["captured variance"] == pytest.approx(c["captured variance"], rel=1e-6)
    short = type(model)(
        **model.get_params()
        | {"max_iter": 1}
        | ({"svd_solver": "randomized"} if isinstance(model, PCA) else {})
    ).fit(x)
    assert not short.certificate_.holds
    assert short.certificate_.reason


def test_5_2_one_meaning_everywhere(rng):
    x = planted(rng, rows=3000, n=14, dtype=np.float32)
    for model in MODELS:
        assert model.fit(x).n_components_ == model.transform(x).shape[1] == 3
        first = model.components_.tobytes()
        assert model.set_params(random_state=0).fit(x).components_.tobytes() == first
        for threads in (1, 2):
            assert model.set_params(n_threads=threads).fit(x).components_.tobytes() == first
        model.set_params(n_threads=None)
    other = PCA(3, svd_solver="randomized", random_state=5).fit(x)
    assert (
        other.components_.tobytes()
        != PCA(3, svd_solver="randomized", random_state=0).fit(x).components_.tobytes()
    )


@pytest.mark.parametrize("model", MODELS, ids=lambda m: repr(m)[:40])
def test_5_3_missing_entries_are_first_class(model, rng):
    x = planted(rng, n=14, rank=3, noise=0.2)
    whole = model.fit(x).components_.copy()
    holes = x.copy()
    holes[rng.random(x.shape) < 0.15] = np.nan
    gappy = model.fit(holes)
    assert principal_angles(gappy.components_.T, whole.T).max() < 0.1
    assert gappy.certificate_.holds
    assert gappy.certificate_.kind == "stationary"
    for method in (gappy.transform, gappy.reconstruction_error):
        assert np.isfinite(method(holes)).all()
