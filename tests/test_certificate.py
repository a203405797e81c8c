"""A right answer has a certificate that holds; a wrong one does not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import planted
from eckart import PCA, LinearAutoencoder
from eckart.certify.certificate import Certificate, Check
from eckart.certify.spectral import certify_subspace, remainder_norm

ALL = ("eigh", "svd", "power", "randomized", "lanczos", "gradient")


def perturbed(model, components):
    """The same model with other components; variances claimed for them are their true ones."""
    model.fit_ = replace(
        model.fit_, factors=replace(model.fit_.factors, components=np.ascontiguousarray(components))
    )
    return model


@pytest.mark.parametrize("solver", ALL)
def test_every_solver_is_certified_again_from_model_and_data(solver, rng):
    x = planted(rng, n=15)
    pca = PCA(3, svd_solver=solver, random_state=0).fit(x)
    again = pca.certify(x)
    assert pca.certificate_.holds
    assert again.holds, again
    assert again["captured variance"] == pytest.approx(
        pca.certificate_["captured variance"], rel=1e-6
    )
    assert again["captured variance"] <= again["upper bound for any k directions"] * (1 + 1e-9)
    exact = np.linalg.eigvalsh(np.cov(x.T, bias=True))[::-1][:3].sum()
    for c in (again, pca.certificate_):
        assert c["upper bound for any k directions"] >= exact * (1 - 1e-9)


@pytest.mark.parametrize("solver", ALL)
def test_a_turned_basis_fails(solver, rng):
    x = planted(rng, n=15)
    pca = PCA(3, svd_solver=solver, random_state=0).fit(x)
    noise = np.linalg.qr(pca.components_.T + 0.05 * rng.standard_normal((15, 3)))[0].T
    c = perturbed(pca, noise * np.sign((noise * pca.components_).sum(axis=1))[:, None]).certify(x)
    assert not c.holds
    assert "Ritz residual" in c.reason


def test_eigenvectors_that_are_not_the_leading_ones_fail(rng):
    x = planted(rng, n=15)
    full = PCA().fit(x)
    for chosen in ([1, 2, 3], [0, 1, 3]):
        pca = PCA(3).fit(x)
        b = pca.fit_.factors
        pca.fit_ = replace(
            pca.fit_,
            factors=replace(
                b, components=full.components_[chosen], scatter=full.fit_.factors.scatter[chosen]
            ),
        )
        c = pca.certify(x)
        assert not c.holds
        assert "nothing larger left out" in c.reason
        assert (
            "Ritz residual" not in c.reason
        )  # they are eigenvectors; only the independent start shows what is missing


def test_components_that_are_not_orthonormal_fail(rng):
    x = planted(rng, n=15)
    pca = PCA(3).fit(x)
    c = perturbed(pca, pca.components_ * 1.001).certify(x)
    assert "orthonormality" in c.reason


def test_variances_that_were_changed_fail(rng):
    x = planted(rng, n=15)
    pca = PCA(3).fit(x)
    pca.fit_ = replace(
        pca.fit_, factors=replace(pca.fit_.factors, scatter=pca.fit_.factors.scatter * 1.01)
    )
    assert "Ritz residual" in pca.certify(x).reason


def test_a_wrong_mean_fails(rng):
    x = planted(rng, n=15)
    for model in (PCA(3).fit(x), LinearAutoencoder(3, random_state=0).fit(x)):
        assert model.certify(x).holds
        assert "mean is" in model.certify(x + 0.1).reason


def test_other_data_fail(rng):
    pca = PCA(3).fit(planted(rng, n=15))
    assert not pca.certify(planted(rng, n=15)).holds


def test_a_statistic_that_disagrees_with_the_data_fails(rng, monkeypatch):
    from eckart.engines.cpu.engine import CpuEngine

    original = CpuEngine.moments

    def broken(self, x, probe, *rest):
        m = original(self, x, probe, *rest)
        m.scatter[2, 5] += 0.01 * m.scatter[5, 5]
        m.scatter[5, 2] += 0.01 * m.scatter[5, 5]
        return m

    monkeypatch.setattr(CpuEngine, "moments", broken)
    c = PCA(3, svd_solver="eigh").fit(planted(rng, n=15)).certificate_
    assert not c.holds
    assert "statistic agrees with data" in c.reason


def test_an_iteration_cut_short_fails(rng):
    x = planted(rng, rows=2000, n=200, rank=30, noise=1.0, dtype=np.float32)
    c = PCA(10, svd_solver="randomized", iterated_power=0, random_state=0).fit(x).certificate_
    assert not c.holds


def test_gap_certificate_fails_away_from_the_optimum(rng):
    x = planted(rng, n=10, rank=2)
    x[rng.random(x.shape) < 0.2] = np.nan
    pca = PCA(2, random_state=0).fit(x)
    assert pca.certificate_.holds
    assert pca.certificate_.kind == "stationary"
    assert pca.certify(x).holds
    turned = np.linalg.qr(pca.components_.T + 0.1 * rng.standard_normal((10, 2)))[0].T
    assert not perturbed(pca, turned).certify(x).holds
    assert not PCA(2, random_state=0, max_iter=1).fit(x).certificate_.holds


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6))
def test_the_upper_bound_is_above_every_subspace(seed, k):
    rng = np.random.default_rng(seed)
    n = 40
    values = np.sort(rng.exponential(1, n))[::-1]
    q = np.linalg.qr(rng.standard_normal((n, n)))[0]
    c = (q * values) @ q.T
    guess = np.linalg.qr(q[:, :k] + 0.3 * rng.standard_normal((n, k)))[0]
    theta = np.diagonal(guess.T @ c @ guess)
    got = certify_subspace(lambda v: c @ v, guess.T, theta, values.sum(), rng=rng, tol=1e-8)
    assert got["upper bound for any k directions"] >= values[:k].sum() * (1 - 1e-9)
    assert got["captured variance"] == pytest.approx(theta.sum())


def test_remainder_norm_is_below_the_truth_and_its_bound_above(rng):
    values = np.concatenate([[10.0, 8.0], np.linspace(3, 0, 500)])
    v = np.eye(502)[:, :2]
    for seed in range(10):
        xi, beta, _ = remainder_norm(
            lambda a: values[:, None] * a,
            v,
            np.dtype(float),
            np.random.default_rng(seed),
            values[2:].sum(),
        )
        assert 0.8 * 3 < xi <= 3 + 1e-9
        assert beta >= 3


def test_reads_by_name_and_says_what_was_not_measured():
    c = Certificate(
        "p", "global", (Check("gap", 2.0, 1.0, "too far"),), {"value": 3.0}, ("a note",)
    )
    assert not c.holds
    assert c["gap"] == 2.0
    assert c["value"] == 3.0
    with pytest.raises(KeyError, match="not measured"):
        c["dual"]
    text = str(c)
    for words in ("DOES NOT HOLD", "gap is 2, allowed 1 (too far)", "a note", "FAIL"):
        assert words in text
    assert Certificate.from_dict(c.to_dict()) == c
    assert not Certificate("p", "global", (Check("gap", float("nan"), 1.0, ""),)).holds


@pytest.mark.parametrize("margin", [2.0**-11, 0.0])
def test_rough_products_of_the_remainder_raise_its_bound(margin):
    """Rows whose entries were all rounded towards zero have a smaller remainder; with the margin
    the bound covers that of the rows themselves."""
    x = np.random.default_rng(5).standard_normal((300, 30)) * np.linspace(2, 1, 30)
    rounded = (1 - 2.0**-11) * x
    c, smaller = x.T @ x / 300, rounded.T @ rounded / 300
    values, vectors = np.linalg.eigh(c)
    v = np.ascontiguousarray(
        vectors[:, -2:-1]
    )  # the first direction is left out, so that the bound is that of the remainder
    told = certify_subspace(
        lambda a: c @ a,
        v.T,
        values[-2:-1],
        float(np.trace(c)),
        rng=np.random.default_rng(0),
        tol=1e-4,
        probe=(4, 8),
        known=(v, c @ v),
        rough=(lambda a: smaller @ a, margin),
    )
    assert told["remainder norm"] < values[-1]
    assert bool(told["upper bound for any k directions"] >= values[-1]) is (margin > 0)
