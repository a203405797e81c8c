"""Exact recovery from near the least number of entries."""

from __future__ import annotations

import numpy as np
import pytest

import eckart
from eckart.complete.nuclear.exact import ExactRecovery
from eckart.engines import engine_named
from eckart.matrix import Observed
from eckart.optim.tangent import Coordinates, Sampling, Tangent, least_squares
from test_soft_impute import ODD, planted, random_observed, whole


def hard(seed, n=150, k=3, oversampling=2.0, kappa=10.0):
    """A rank-k matrix with the given condition number, seen at oversampling x degrees of freedom
    entries, at least k in every row and column."""
    rng = np.random.default_rng(seed)
    u, v = (np.linalg.qr(rng.standard_normal((n, k)))[0] for _ in range(2))
    a = (u * np.linspace(kappa, 1, k) * n) @ v.T
    count = int(oversampling * k * (2 * n - k))
    while True:
        seen = np.zeros(n * n, bool)
        seen[rng.choice(n * n, count, replace=False)] = True
        seen = seen.reshape(n, n)
        if min(seen.sum(0).min(), seen.sum(1).min()) > k:
            return a, np.where(seen, a, np.nan)


@pytest.mark.parametrize("kappa", [1.0, 10.0, 1e4])
def test_few_entries_and_any_condition_number(kappa):
    a, x = hard(0, oversampling=2.5, kappa=kappa)
    model = ExactRecovery(3, random_state=0).fit(x)
    assert np.linalg.norm(whole(model) - a) < 1e-10 * np.linalg.norm(a)
    assert model.certificate_.holds


@pytest.mark.slow
def test_most_instances_at_twice_the_degrees_of_freedom():
    good = 0
    for seed in range(4):
        a, x = hard(seed, oversampling=2.0)
        good += np.linalg.norm(
            whole(ExactRecovery(3, random_state=0).fit(x)) - a
        ) < 1e-6 * np.linalg.norm(a)
    assert good >= 3


def test_noisy_data_gives_the_least_squares_fit_and_says_so():
    from eckart.complete.nuclear.svp import SVP

    _, x = planted(noise=0.05)
    model = ExactRecovery(3, random_state=0).fit(x)
    other = SVP(3, tol=1e-6, random_state=0).fit(x)
    assert np.allclose(whole(model), whole(other), atol=1e-3)
    assert not model.certificate_.holds
    assert "agreement" in model.certificate_.reason


def test_too_few_entries_are_told():
    _, x = hard(0, n=40, k=3, oversampling=2.0)
    model = ExactRecovery(12, random_state=0, max_iter=40, attempts=1).fit(x)
    assert not model.certificate_.holds
    assert model.certificate_["verdict"] in ("disproven", "not proven")
    if (
        model.certificate_["verdict"] == "not proven"
    ):  # the entries fit: a rank that is too high says nothing about the matrix
        assert "give n_components" in model.certificate_.notes[0]


@pytest.mark.slow
@pytest.mark.parametrize("allowed", [5, 10])
def test_a_rank_above_that_of_the_matrix_is_found_out(allowed):
    a, x = planted(noise=0.0)
    k = np.linalg.matrix_rank(a)
    model = ExactRecovery(allowed, random_state=0).fit(x)
    assert model.rank_ == k < allowed
    assert np.allclose(whole(model), a, atol=1e-8)
    assert model.certificate_.holds
    assert model.certificate_["verdict"] != "disproven"
    assert "found" in model.fit_.plan["rank"]


@pytest.mark.slow
def test_threads_seed_precision():
    _, x = hard(1, n=80, oversampling=3.0)
    one, two = (ExactRecovery(3, n_threads=t, random_state=0).fit(x).fit_.factors for t in (1, 2))
    assert one.left.tobytes() == two.left.tobytes()
    small = ExactRecovery(3, random_state=0).fit(x.astype(np.float32))
    assert small.fit_.factors.left.dtype == np.float32
    assert small.certificate_.holds


@pytest.mark.parametrize(
    "x", [ODD[name] for name in ("equal", "one", "empty row and column", "zeros")]
)
@pytest.mark.parametrize("k", [1, 7])
def test_odd_data_has_a_defined_answer(x, k):
    model = ExactRecovery(k, random_state=0, max_iter=100).fit(x)
    b, seen = whole(model), ~np.isnan(x)
    assert np.isfinite(b).all()
    assert np.allclose(b[seen], x[seen], atol=1e-6)


def test_tangent_coordinates_are_an_isometry_and_adjoint():
    x, rng = random_observed(0, 20, 15, 0.4), np.random.default_rng(0)
    u, v = (np.linalg.qr(rng.standard_normal((n, 2)))[0] for n in (20, 15))
    t = Tangent(Sampling(x, engine_named()), u, v)
    g = t.inside(
        Coordinates(
            rng.standard_normal((2, 2)), rng.standard_normal((20, 2)), rng.standard_normal((15, 2))
        )
    )
    left, right = t.factors(g)
    assert g.dot(g) == pytest.approx(np.sum((left @ right.T) ** 2))
    assert g.dot(t.adjoint(x.data)) == pytest.approx(float(t.forward(g) @ x.data))
    z = rng.standard_normal((20, 15))
    p, q = u @ u.T, v @ v.T
    inside = t.project(z, np.eye(15))
    left, right = t.factors(inside)
    assert np.allclose(left @ right.T, p @ z + z @ q - p @ z @ q)


def test_retraction_is_the_best_rank_k_approximation():
    rng = np.random.default_rng(0)
    u, v = (np.linalg.qr(rng.standard_normal((n, 2)))[0] for n in (12, 9))
    t = Tangent(Sampling(random_observed(0, 12, 9), engine_named()), u, v)
    g = t.inside(
        Coordinates(
            rng.standard_normal((2, 2)), rng.standard_normal((12, 2)), rng.standard_normal((9, 2))
        )
    )
    left, right = t.factors(Coordinates(np.diag([3.0, 2.0]) + g.m, g.x, g.y))
    a, s, bt = np.linalg.svd(left @ right.T)
    w, found, z = t.retract(np.array([3.0, 2.0]), g)
    assert np.allclose((w * found) @ z.T, (a[:, :2] * s[:2]) @ bt[:2])


def test_least_squares_on_the_tangent_space():
    x, rng = random_observed(0, 20, 15, 0.6), np.random.default_rng(0)
    u, v = (np.linalg.qr(rng.standard_normal((n, 2)))[0] for n in (20, 15))
    t = Tangent(Sampling(x, engine_named()), u, v)
    zero = np.zeros(1)
    g, steps, error = least_squares(
        t, x.data, Coordinates(zero, zero, zero), t.zero(), tol=1e-12, drop=0.0, max_iter=500
    )
    left_over = t.adjoint(x.data - t.forward(g))
    assert np.sqrt(left_over.dot(left_over)) < 1e-9
    assert steps > 0
    assert error < 1e-11


def test_bad_arguments_are_named():
    with pytest.raises(
        eckart.InputError,
        match="n_components must be an int >= 1; SVT and SoftImpute find the rank by themselves, got 0",
    ):
        ExactRecovery(0).fit(np.eye(3))
    with pytest.raises(
        eckart.InputError,
        match="X must have at least one observed entry among 2 rows and 2 columns, got none",
    ):
        ExactRecovery(1).fit(Observed.from_nan(np.full((2, 2), np.nan)))
