"""Mixture: families by name and of one's own, weights, gaps, empty components, evidence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammaln
from scipy.stats import multinomial as scipy_multinomial

import eckart
from eckart import GaussianMixture, InputError, Mixture
from eckart.explain.mixtures.families import family_named
from eckart.explain.mixtures.families_discrete import (
    EDGE,
    Bernoulli,
    MultinomialComponents,
    probabilities,
)

FAMILIES = (
    "bernoulli",
    "multinomial",
    "gaussian",
    "gaussian diag",
    "gaussian tied",
    "gaussian spherical",
    "gaussian unit",
)
families = pytest.mark.parametrize("family", FAMILIES)


class Poisson:
    """Independent counts; knows nothing beyond the two verbs that are asked for."""

    name = "poisson"

    def log_prob(self, x, parameters):
        rates = parameters["rates"]
        return x @ np.log(rates).T - rates.sum(axis=1) - gammaln(x + 1).sum(axis=1, keepdims=True)

    def weighted_fit(self, x, q):
        return {"rates": np.maximum(q.T @ x / q.sum(axis=0)[:, None], 1e-9)}


def rows_for(family, rng, rows=300):
    z = rng.integers(0, 2, rows)
    if family == "bernoulli":
        return (rng.random((rows, 8)) < rng.random((2, 8))[z]).astype(float)
    if family == "multinomial":
        return np.array([rng.multinomial(20, p) for p in rng.dirichlet(np.ones(7), 2)[z]], float)
    return rng.standard_normal((rows, 3)) + 4 * z[:, None]


@families
def test_the_bound_never_falls_and_the_certificate_holds(family, rng):
    x = rows_for(family, rng)
    model = Mixture(2, family=family, random_state=0, tol=1e-7, max_iter=500, n_init=2).fit(x)
    assert (np.diff(model.lower_bounds_) > -1e-10).all()
    assert model.converged_
    assert model.certificate_.holds, model.certificate_
    assert model.lower_bound_ == pytest.approx(model.score(x))
    assert model.certify(x).holds
    assert "spread over starts" in model.certificate_.facts


@families
def test_perturbed_parameters_fail_the_certificate(family, rng):
    x = rows_for(family, rng)
    model = Mixture(2, family=family, random_state=0, tol=1e-7, max_iter=500).fit(x)
    f = model.fit_.factors
    name = next(iter(f.parameters))
    moved = f.parameters[name] * 0.8 + 0.02
    if name == "probabilities":
        moved /= moved.sum(axis=1, keepdims=True)
    model.fit_ = replace(model.fit_, factors=replace(f, parameters=f.parameters | {name: moved}))
    assert not model.certify(x).holds


def test_gaussian_families_are_gaussian_mixtures(rng):
    x = rows_for("gaussian", rng)
    for kind in ("full", "diag", "tied", "spherical", "unit"):
        how = {"random_state": 0, "tol": 1e-10, "max_iter": 300}
        a = Mixture(2, family=f"gaussian {kind}", **how).fit(x)
        b = GaussianMixture(2, covariance_type=kind, **how).fit(x)
        assert a.lower_bound_ == pytest.approx(b.lower_bound_, abs=1e-7)
        assert a.bic(x) == pytest.approx(b.bic(x), abs=1e-3)
        order = np.argsort(a.parameters_["means"][:, 0]), np.argsort(b.means_[:, 0])
        np.testing.assert_allclose(a.parameters_["means"][order[0]], b.means_[order[1]], atol=1e-3)


@families
def test_integer_weights_are_repeated_rows(family, rng):
    x = rows_for(family, rng, 80)
    w = rng.integers(0, 3, 80)
    a = Mixture(2, family=family, random_state=0).fit(x, sample_weight=w)
    b = Mixture(2, family=family, random_state=0).fit(np.repeat(x, w, axis=0))
    np.testing.assert_allclose(a.weights_, b.weights_, atol=1e-8)
    for name, value in a.parameters_.items():
        np.testing.assert_allclose(value, b.parameters_[name], atol=1e-7)
    assert a.bic(x, sample_weight=w) == pytest.approx(b.bic(np.repeat(x, w, axis=0)))


@families
def test_samples_blocks_and_files(family, rng, tmp_path):
    x = rows_for(family, rng)
    model = Mixture(2, family=family, random_state=0).fit(x)
    drawn, labels = model.sample(4000)
    assert drawn.shape == (4000, x.shape[1])
    np.testing.assert_allclose(np.bincount(labels, minlength=2) / 4000, model.weights_, atol=0.03)
    np.testing.assert_allclose(drawn.mean(axis=0), x.mean(axis=0), atol=0.35 * (1 + x.std()))
    blocks = Mixture(2, family=family, random_state=0).fit([x[:100], x[100:]])
    np.testing.assert_allclose(blocks.weights_, model.weights_, atol=1e-7)
    model.save(tmp_path / "m.safetensors")
    back = eckart.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(back.predict_proba(x), model.predict_proba(x))
    assert back.certify(x).holds == model.certify(x).holds
    assert back.outlier_score(x).shape == (300,)


def test_densities_are_those_of_the_books(rng):
    x = rows_for("multinomial", rng, 20)
    p = rng.dirichlet(np.ones(7), 3)
    want = np.stack([scipy_multinomial.logpmf(x, 20, v) for v in p], axis=1)
    np.testing.assert_allclose(MultinomialComponents().log_prob(x, {"probabilities": p}), want)
    b = rows_for("bernoulli", rng, 20)
    m = rng.random((3, 8))
    want = np.log(np.where(b[:, None] == 1, m, 1 - m)).sum(axis=2)
    np.testing.assert_allclose(Bernoulli().log_prob(b, {"means": m}), want)


def test_a_family_of_ones_own(rng):
    x = np.concatenate([rng.poisson([2, 9, 4], (200, 3)), rng.poisson([8, 1, 4], (100, 3))])
    model = Mixture(2, family=Poisson(), random_state=0, n_init=2, tol=1e-8).fit(x)
    assert model.certificate_.holds
    assert sorted(model.weights_.round(1)) == [0.3, 0.7]
    np.testing.assert_allclose(sorted(model.parameters_["rates"][:, 1]), [1, 9], atol=0.5)
    assert model.aic(x) == pytest.approx(-2 * model.score(x) * 300 + 2 * (6 + 1))
    with pytest.raises(
        TypeError,
        match=r"family must be a name \('gaussian', 'bernoulli', 'multinomial'\) to be saved, got a",
    ):
        model.save("nowhere.safetensors")
    with pytest.raises(eckart.InputError, match="cannot be sampled"):
        model.sample(3)
    with pytest.raises(
        eckart.InputError,
        match="X must have complete rows for family='poisson', got NaN at row 0, column 0",
    ):
        model.predict([[np.nan, 1.0, 2.0]])


def test_missing_answers_are_left_out(rng):
    odds = np.where(rng.random(8) < 0.5, 0.15, 0.85)
    x = (rng.random((2000, 8)) < np.array([odds, 1 - odds])[rng.integers(0, 2, 2000)]).astype(float)
    holes = np.where(rng.random(x.shape) < 0.3, np.nan, x)
    whole = Mixture(2, family="bernoulli", random_state=0, n_init=3).fit(x)
    model = Mixture(2, family="bernoulli", random_state=0, n_init=3).fit(holes)
    assert model.certificate_.holds
    a, b = (np.array(sorted(m.parameters_["means"].tolist())) for m in (whole, model))
    # deviation of a mean without 300 of its 1000 answers: sqrt(0.13 * 0.3 / 700) = 0.008
    np.testing.assert_allclose(a, b, atol=0.06)
    with pytest.raises(
        eckart.InputError,
        match="X must have complete rows for family='multinomial', got NaN at row 0, column 1",
    ):
        Mixture(2, family="multinomial").fit([[1.0, np.nan], [1.0, 2.0]])
    with pytest.raises(
        eckart.InputError,
        match="X must have complete rows for family='gaussian full', got NaN at row 0, column 1",
    ):
        Mixture(2, family="gaussian").fit([[1.0, np.nan], [1.0, 2.0]])


def test_an_empty_component_gets_rows(rng):
    """All but a few rows are the same, so that a component starves."""
    x = np.zeros((200, 4))
    x[:3] = 1.0
    model = Mixture(3, family="bernoulli", random_state=1, init_params="random", tol=1e-9).fit(x)
    assert np.isfinite(model.score(x))
    assert (model.weights_ >= 0).all()


@given(seed=st.integers(0, 10**6), size=st.integers(2, 9))
@settings(max_examples=40, deadline=None)
def test_probabilities_maximise_over_their_range(seed, size):
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 5, size).astype(float)
    least = 0.5 / size * rng.random()
    p = probabilities(counts, least)
    assert p.sum() == pytest.approx(1.0)
    assert (p >= least * (1 - 1e-12)).all()
    value = counts @ np.log(p)
    for _ in range(20):
        other = least + (1 - least * size) * rng.dirichlet(np.ones(size))
        assert counts @ np.log(other) <= value + 1e-9


def test_impossible_rows_stay_finite():
    model = Mixture(1, family="bernoulli").fit(np.ones((5, 2)))
    assert model.parameters_["means"].max() == pytest.approx(1 - EDGE)
    assert np.isfinite(model.score_samples([[0.0, 0.0]])).all()
    counts = Mixture(2, family="multinomial", random_state=0).fit(
        np.array([[3.0, 0.0, 0.0], [0.0, 2.0, 0.0]])
    )
    assert np.isfinite(counts.score_samples([[0.0, 0.0, 5.0], [0.0, 0.0, 0.0]])).all()


@pytest.mark.parametrize(
    ("params", "x", "words"),
    [
        (
            {"family": "cauchy"},
            [[1.0]],
            "family must be 'gaussian', 'bernoulli', 'multinomial', or an object with log_prob and",
        ),
        (
            {"family": 3},
            [[1.0]],
            "family must be 'gaussian', 'bernoulli', 'multinomial', or an object with log_prob and",
        ),
        (
            {"n_components": 3},
            [[1.0], [2.0]],
            r"n_components must be at most 2, got 3: X has 2 sample\(s\) \(rows with weight\)",
        ),
        (
            {"family": "bernoulli"},
            [[0.0], [2.0]],
            r"X must hold numbers from 0 to 1 for family='bernoulli', got 2\.0 at row 1, column 0",
        ),
        (
            {"family": "multinomial"},
            [[0.0], [-2.0]],
            r"Negative values in data: X must hold counts >= 0 for family='multinomial', got -2\.0 at",
        ),
        (
            {"family": "gaussian round"},
            [[1.0]],
            "covariance_type must be 'unit', 'spherical', 'diag', 'tied', 'full', got 'round'",
        ),
        ({"tol": -1}, [[1.0]], "tol must be a number >= 0, got -1"),
        (
            {"init_params": "x"},
            [[1.0]],
            r"init_params must be 'k-means\+\+', 'kmeans', 'random' or 'random_from_data', got 'x'",
        ),
    ],
)
def test_errors_name_the_argument_and_the_value(params, x, words):
    with pytest.raises(eckart.InputError, match=words):
        Mixture(**params).fit(x)


def test_families_are_found_by_name():
    assert family_named("gaussian").name == "gaussian full"
    own = Poisson()
    assert family_named(own) is own


def test_missing_entries_at_their_expectation():
    """sum_z q_z E[x_j | z], with q from what is observed; for full covariances the conditional mean
    of each component."""
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=400)
    answers = (rng.random((400, 6)) < np.where(labels[:, None] == 1, 0.9, 0.1)).astype(float)
    model = Mixture(2, family="bernoulli", random_state=0).fit(answers)
    gaps = np.where(rng.random(answers.shape) < 0.2, np.nan, answers)
    filled = model.impute(gaps)
    lost = np.isnan(gaps)
    np.testing.assert_array_equal(filled[~lost], gaps[~lost])
    np.testing.assert_allclose(
        filled[lost], (model.predict_proba(gaps) @ model.parameters_["means"])[lost]
    )
    assert np.mean((filled - answers)[lost] ** 2) < 0.6 * np.mean(
        (answers.mean(axis=0) - answers)[lost] ** 2
    )
    points = (
        rng.standard_normal((300, 3)) @ rng.standard_normal((3, 3))
        + 4 * rng.integers(2, size=300)[:, None]
    )
    mixture = Mixture(2, family="gaussian", random_state=0).fit(points)
    theta = mixture.parameters_
    row = points[0].copy()
    row[1] = np.nan
    seen, q = [0, 2], []
    guesses = []
    for z in range(2):
        m, s = theta["means"][z], theta["spread"][z]
        inner, d = s[np.ix_(seen, seen)], row[seen] - m[seen]
        q.append(
            mixture.weights_[z]
            * np.exp(-0.5 * d @ np.linalg.solve(inner, d))
            / np.sqrt(np.linalg.det(inner))
        )
        guesses.append(m[1] + s[1, seen] @ np.linalg.solve(inner, d))
    want = np.dot(q, guesses) / np.sum(q)
    np.testing.assert_allclose(mixture.impute(row[None])[0, 1], want, rtol=1e-8)
    with pytest.raises(InputError, match="multinomial"):
        Mixture(2, family="multinomial", random_state=0).fit(answers + 1).impute(answers)
