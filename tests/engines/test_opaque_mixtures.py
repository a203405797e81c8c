"""Mixtures never touch shares of rows: between two steps of EM only sums over components leave the
engine."""

from __future__ import annotations

import numpy as np
import pytest

from eckart import GaussianMixture, Mixture
from eckart.explain.mixtures import gaussian_steps, starts
from oracle import JUDGE

opaque = pytest.importorskip("opaque")
ROWS = 71

MODELS = {
    "full": GaussianMixture(2, max_iter=9, tol=0.0, random_state=0),
    "tied": GaussianMixture(2, covariance_type="tied", max_iter=9, tol=0.0, random_state=0),
    "diagonal": GaussianMixture(2, covariance_type="diag", max_iter=9, tol=0.0, random_state=0),
    "family": Mixture(2, family="multinomial", max_iter=9, tol=0.0, random_state=0),
}


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_nothing_tall_crosses_between_two_steps(name, gaps, monkeypatch):
    # a sample of all rows would be as tall as they are
    monkeypatch.setattr(starts, "SAMPLE_ROWS", 60)
    monkeypatch.setattr(gaussian_steps, "STEP_ROWS", 60)
    rng = np.random.default_rng(0)
    x = rng.poisson(np.where(np.arange(ROWS)[:, None] % 2, 2.0, 9.0), (ROWS, 3)).astype(float)
    if gaps and name != "family":
        x[5, 1] = x[30, 0] = np.nan
    engine = opaque.OpaqueEngine(ROWS, ROWS * 3)
    model = MODELS[name].set_params(engine=engine).fit(x)
    primitive = "family_statistics" if name == "family" else "gaussian_statistics"
    assert engine.calls(primitive) > 5
    assert engine.between(primitive) == 0
    wanted = MODELS[name].set_params(engine=JUDGE).fit(x)
    np.testing.assert_array_equal(model.predict_proba(x), wanted.predict_proba(x))
    assert str(model.certificate_) == str(wanted.certificate_)
