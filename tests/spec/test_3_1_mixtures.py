"""Section 3.1 of the specification, one test for each of its statements."""

from __future__ import annotations

import numpy as np
import pytest

from eckart import GaussianMixture, Mixture
from eckart.explain.mixtures.gaussian_solve import from_factors

KINDS = ("unit", "spherical", "diag", "tied", "full", "factor")


@pytest.fixture
def x(rng):
    return np.concatenate(
        [rng.standard_normal((80, 3)) @ np.diag([1, 2, 0.5]) + 5 * i for i in range(3)]
    )


def test_3_1_p_of_x_is_the_weighted_sum_of_its_components(x):
    model = GaussianMixture(3, random_state=0).fit(x)
    theta = from_factors(model.fit_.factors)
    d = x[:, None] - theta.means
    quad = np.einsum("tzi,zij,tzj->tz", d, np.linalg.inv(theta.spread), d)
    density = theta.weights * np.exp(-0.5 * quad) / np.sqrt(np.linalg.det(2 * np.pi * theta.spread))
    np.testing.assert_allclose(model.score_samples(x), np.log(density.sum(axis=1)), rtol=1e-9)


def test_3_1_the_e_step_gives_shares_in_log_space(x):
    model = GaussianMixture(3, random_state=0).fit(x)
    far = np.full((1, 3), 1e5)
    assert np.isfinite(model.score_samples(far)).all()
    np.testing.assert_allclose(model.predict_proba(np.concatenate([x, far])).sum(axis=1), 1.0)


def test_3_1_the_m_step_is_the_weighted_maximum_likelihood_fit(x):
    model = GaussianMixture(3, random_state=0, tol=1e-12, max_iter=2000).fit(x)
    q = model.predict_proba(x)
    np.testing.assert_allclose(model.weights_, q.mean(axis=0), atol=1e-5)
    for z in range(3):
        np.testing.assert_allclose(
            model.means_[z], np.average(x, axis=0, weights=q[:, z]), atol=1e-4
        )
        np.testing.assert_allclose(
            model.covariances_[z], np.cov(x.T, aweights=q[:, z], ddof=0), atol=1e-3
        )


@pytest.mark.parametrize("kind", KINDS)
def test_3_1_the_bound_never_falls(x, kind):
    for way in ("k-means++", "random", "random_from_data"):
        bounds = (
            GaussianMixture(
                3, covariance_type=kind, init_params=way, tol=0.0, max_iter=25, random_state=1
            )
            .fit(x)
            .lower_bounds_
        )
        assert (np.diff(bounds) > -1e-10).all()


@pytest.mark.parametrize("family", ["gaussian", "bernoulli", "multinomial"])
def test_3_1_the_family_is_pluggable(rng, family):
    x = (rng.random((100, 5)) < 0.4).astype(float)
    model = Mixture(2, family=family, random_state=0, tol=0.0, max_iter=20).fit(x)
    assert (np.diff(model.lower_bounds_) > -1e-10).all()


@pytest.mark.parametrize("kind", KINDS)
def test_3_1_every_covariance_is_there(x, kind):
    model = GaussianMixture(2, covariance_type=kind, random_state=0).fit(x)
    theta = from_factors(model.fit_.factors)
    s = theta.covariance(0)
    if kind == "unit":
        np.testing.assert_array_equal(s, np.eye(3))
    elif kind in ("spherical", "diag"):
        assert np.count_nonzero(s - np.diag(np.diagonal(s))) == 0
    elif kind == "tied":
        assert s is theta.covariance(1)
    assert np.linalg.eigvalsh(s)[0] > 0


def test_3_1_posteriors_samples_scores_and_criteria(x):
    model = GaussianMixture(3, random_state=0).fit(x)
    assert model.predict_proba(x).shape == (240, 3)
    assert model.sample(7)[0].shape == (7, 3)
    assert model.score(x) == pytest.approx(model.score_samples(x).mean())
    assert model.aic(x) == pytest.approx(-2 * 240 * model.score(x) + 2 * 29)
    assert model.bic(x) == pytest.approx(-2 * 240 * model.score(x) + 29 * np.log(240))


def test_3_1_k_means_plus_plus_starts_and_restarts(x):
    model = GaussianMixture(3, n_init=4, random_state=0).fit(x)
    assert model.fit_.plan["start"] == "k-means++"
    assert len(model.fit_.plan["ends"]) == 4
    assert model.lower_bound_ == pytest.approx(max(model.fit_.plan["ends"]))


def test_3_1_an_empty_component_is_handled(x):
    start = {
        "means_init": [x[0], [1e5] * 3],
        "weights_init": [0.5, 0.5],
        "precisions_init": [1.0, 1.0],
    }
    model = GaussianMixture(2, covariance_type="spherical", random_state=0, **start).fit(x)
    assert model.weights_.min() > 0.05
    assert model.fit_.plan["revived"]


@pytest.mark.parametrize("kind", KINDS)
def test_3_1_entries_missing_at_random_are_marginalised(x, rng, kind):
    holes = np.where(rng.random(x.shape) < 0.2, np.nan, x)
    model = GaussianMixture(2, covariance_type=kind, n_factors=1, random_state=0).fit(holes)
    assert (np.diff(model.lower_bounds_) > -1e-9).all()
    row = np.array([[np.nan, 1.0, np.nan]])
    theta = from_factors(model.fit_.factors)
    variances = np.array([theta.covariance(z)[1, 1] for z in range(2)])
    density = theta.weights @ (
        np.exp(-0.5 * (1 - theta.means[:, 1]) ** 2 / variances) / np.sqrt(2 * np.pi * variances)
    )
    assert model.score_samples(row)[0] == pytest.approx(np.log(density))
