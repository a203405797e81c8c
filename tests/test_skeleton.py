"""The skeleton of CONTRIBUTING runs: who copies it starts from a model that keeps the promises."""

from __future__ import annotations

import doctest

import numpy as np
import pytest
from sklearn.base import clone

import eckart
import skeleton_model
from conftest import planted
from oracle import JUDGE
from skeleton_model import LeadingDirection

try:
    JUDGE.column_moments(JUDGE.put(eckart.Dense(np.eye(2))))
except AttributeError:  # to go when the dense family takes placed matrices
    pytest.skip("the dense family does not take placed matrices yet", allow_module_level=True)


def test_its_example_is_true():
    assert doctest.testmod(skeleton_model).failed == 0


@pytest.mark.parametrize("engine", ["cpu", "numpy"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_it_finds_the_first_component_on_every_engine(rng, engine, dtype):
    x, w = planted(rng, rows=400, n=12, dtype=dtype) + 3, rng.integers(0, 4, 400)
    model = LeadingDirection(tol=1e-5, engine=engine, random_state=0).fit(x, sample_weight=w)
    wanted = eckart.PCA(1, svd_solver="eigh").fit(x, sample_weight=w)
    np.testing.assert_allclose(model.components_, wanted.components_, atol=1e-3)
    np.testing.assert_allclose(model.transform(x), wanted.transform(x), atol=2e-2)
    assert model.certificate_.holds
    assert model.certify(x, w).holds
    assert model.fit_.plan["engine"] == engine
    assert model.components_.dtype == dtype


def test_a_spoiled_answer_fails_by_the_check_that_names_it(rng):
    x = planted(rng, rows=400, n=12)
    model = LeadingDirection(max_iter=1, random_state=0).fit(x)
    assert not model.certificate_.holds
    assert "distance from an eigenpair" in model.certificate_.reason


def test_its_manners(rng):
    x = planted(rng, rows=100, n=5)
    model = LeadingDirection(random_state=0)
    before = model.get_params()
    first = clone(model).fit(x).components_
    assert model.fit(x).components_.tobytes() == first.tobytes()
    assert model.get_params() == before
    for bad in ({"tol": 0.0}, {"max_iter": 0}, {"max_iter": 2.5}, {"engine": "abacus"}):
        with pytest.raises(eckart.InputError, match=f"^{next(iter(bad))} must be"):
            LeadingDirection(**bad).fit(x)
    with pytest.raises(ValueError, match="expecting 5 features"):
        model.transform(x[:, :3])
    assert np.isfinite(LeadingDirection(random_state=0).fit(np.ones((6, 3))).components_).all()
