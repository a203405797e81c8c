"""Chapter 2 of the specification, one test (or several) for each numbered line, named after it."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse
from scipy.sparse.linalg import aslinearoperator

import eckart
from eckart import ALS, InputError, Observed
from eckart.complete.normalise import normalise
from eckart.complete.nuclear.exact import ExactRecovery
from eckart.complete.nuclear.operators import (
    Operator,
    norms,
    operator,
    partial_svd,
    randomized_svd,
    rank_one,
    shrink,
)
from eckart.complete.nuclear.recovery import incoherence, recovery, recovery_certificate
from eckart.complete.nuclear.soft_impute import SoftImpute
from eckart.complete.nuclear.svp import SVP
from eckart.complete.nuclear.svt import SVT
from eckart.complete.split import folds, split
from eckart.complete.tune import tune
from eckart.engines import engine_named
from eckart.factors import LowRank
from eckart.metrics import mae, map_at_k, ndcg_at_k, recall_at_k, rmse
from eckart.optim.tangent import Sampling


def low_rank(rng, n, m, k):
    return rng.standard_normal((n, k)) @ rng.standard_normal((k, m))


def hide(rng, a, share):
    return np.where(rng.random(a.shape) < share, np.nan, a)


def shrunk(a, tau):
    u, s, vt = np.linalg.svd(a, full_matrices=False)
    return (u * np.maximum(s - tau, 0)) @ vt


def nuclear(a):
    return float(np.linalg.svd(a, compute_uv=False).sum())


# ---- 2.1


def test_2_1_triples_frames_arrays_and_sparse_matrices_are_the_same_observations(rng):
    a = hide(rng, rng.integers(0, 3, (6, 5)).astype(float), 0.4)
    a[np.arange(6), np.arange(6) % 5] = (
        0.0  # a row without an entry has no name in a long table; zeros are what must not be lost
    )
    names, columns = [f"u{i}" for i in range(6)], [f"m{j}" for j in range(5)]
    i, j = np.nonzero(~np.isnan(a))
    long = pd.DataFrame(
        {"user": [names[p] for p in i], "movie": [columns[p] for p in j], "rating": a[i, j]}
    )
    stored = sparse.csr_array((a[i, j], (i, j)), shape=a.shape)
    forms = [
        eckart.observed(long, rows="user", columns="movie", values="rating"),
        eckart.observed(pd.DataFrame(a, names, columns)),
        eckart.observed(a),
        eckart.observed(stored),
    ]
    for x in forms:
        assert x.nnz == len(i)  # a stored zero is an observation, an absent entry is not
        np.testing.assert_array_equal(x.data, a[i, j])
        np.testing.assert_array_equal(x.indices, j)
    assert (a[i, j] == 0).any()
    assert list(forms[0].rows) == list(forms[1].rows) == names


def test_2_1_duplicates_follow_an_explicit_rule():
    rows, columns, values = ["a", "a", "b"], [1, 1, 2], [1.0, 4.0, 2.0]
    with pytest.raises(InputError, match="a"):
        Observed.from_triples(rows, columns, values)
    for rule, want in (("last", 4.0), ("mean", 2.5), ("sum", 5.0)):
        assert Observed.from_triples(rows, columns, values, duplicates=rule).data[0] == want


# ---- 2.2


def test_2_2_means_are_over_observed_entries_only(rng):
    a = hide(rng, rng.standard_normal((8, 6)) + 5, 0.4)
    a[:, 2] = np.nan
    norm, x = normalise(Observed.from_nan(a), "column")
    counts = (~np.isnan(a)).sum(axis=0)
    mean = np.nanmean(a)
    want = mean + np.nansum(np.where(np.isnan(a), 0, a - mean), axis=0) / np.maximum(1, counts)
    np.testing.assert_allclose(norm.mean + norm.column_offset, want)
    assert norm.column_offset[2] == 0
    np.testing.assert_allclose(np.bincount(x.indices, x.data, 6), 0, atol=1e-12)


@pytest.mark.parametrize("by", ["row", "column", "both", "bias", "global"])
@pytest.mark.parametrize("scale", [False, True])
def test_2_2_normalisation_is_always_inverted_on_output(rng, by, scale):
    if by == "bias" and scale:
        pytest.skip("biases are learned without a scale")
    whole = low_rank(rng, 25, 20, 2) * np.linspace(1, 5, 20) + 50
    whole += rng.normal(0, 10, (25, 1)) + rng.normal(0, 10, 20)
    a = hide(rng, whole, 0.3)
    norm, x = normalise(Observed.from_nan(a), by, scale=scale)
    rows = np.repeat(np.arange(25), x.row_counts())
    np.testing.assert_allclose(norm.invert(x.data, rows, x.indices), a[~np.isnan(a)])
    # offsets of rows and of columns add a rank each and scales none, so 4 components leave nothing
    # over but what 60 sweeps have not reached yet; offsets or scales that were not put back would
    # leave errors of half the spread and more
    model = ALS(
        4, biases=False, normalise=by, scale=scale, l2=1e-6, tol=1e-10, max_iter=60, random_state=0
    ).fit(a)
    assert np.sqrt(np.nanmean((model.predict(np.arange(25)) - a) ** 2)) < 0.2 * np.std(whole)


def test_2_2_the_column_is_the_default_and_biases_are_ridge_minimisers(rng):
    a = Observed.from_nan(hide(rng, rng.standard_normal((8, 6)) + 5, 0.4))
    assert normalise(a)[0].by == "column"
    norm, _ = normalise(a, "bias", l2=2.0)
    rows = np.repeat(np.arange(8), a.row_counts())
    left = a.data - norm.mean - norm.row_offset[rows] - norm.column_offset[a.indices]
    np.testing.assert_allclose(np.bincount(rows, left, 8), 2.0 * norm.row_offset, atol=1e-9)
    np.testing.assert_allclose(np.bincount(a.indices, left, 6), 2.0 * norm.column_offset, atol=1e-9)


# ---- 2.3


matrices = arrays(
    np.float64,
    st.tuples(st.integers(1, 7), st.integers(1, 7)),
    elements=st.floats(-9, 9).map(lambda v: round(v, 3)),
)


@settings(max_examples=60, deadline=None)
@given(matrices)
def test_2_3_norms_are_functions_of_the_singular_values(a):
    s = np.linalg.svd(a, compute_uv=False)
    got = norms(s)
    assert got.frobenius**2 == pytest.approx(np.sum(a**2), abs=1e-9)
    assert got.spectral == pytest.approx(np.linalg.norm(a, 2), abs=1e-9)
    assert got.nuclear == pytest.approx(np.linalg.norm(a, "nuc"), abs=1e-9)
    u, s, vt = np.linalg.svd(a, full_matrices=False)
    for k in range(len(s) + 1):
        assert got.tails[k] == pytest.approx(
            np.sum((a - (u[:, :k] * s[:k]) @ vt[:k]) ** 2), abs=1e-8
        )


def test_2_3_the_best_rank_k_error_is_the_tail_and_no_other_rank_k_matrix_has_less(rng):
    a = rng.standard_normal((9, 7))
    found = partial_svd(operator(a), 3, rng=rng, tol=1e-12)
    best = (found.left * found.values) @ found.right.T
    error = np.sum((a - best) ** 2)
    assert error == pytest.approx(norms(np.linalg.svd(a, compute_uv=False)).tails[3])
    for _ in range(50):
        other = best + 0.1 * low_rank(rng, 9, 7, 3)
        u, s, vt = np.linalg.svd(other)
        assert np.sum((a - (u[:, :3] * s[:3]) @ vt[:3]) ** 2) > error


def test_2_3_alternating_finds_the_rank_one_optimum(rng):
    a = rng.standard_normal((8, 6))
    u, sigma, v = rank_one(a, random_state=0)
    exact = np.linalg.svd(a)
    assert sigma == pytest.approx(exact[1][0])
    np.testing.assert_allclose(np.outer(u, v), np.outer(exact[0][:, 0], exact[2][0]), atol=1e-4)
    # a fixed point of the two steps
    np.testing.assert_allclose(u, a @ v / np.linalg.norm(a @ v), atol=1e-4)
    np.testing.assert_allclose(v, a.T @ u / np.linalg.norm(a.T @ u), atol=1e-12)


# ---- 2.4


def loss(z, a):
    return 0.5 * (a - z[0] * z[1]) ** 2


@pytest.mark.parametrize("a", [1.5, -0.7])
def test_2_4_the_hessian_of_the_scalar_problem_and_its_saddle(rng, a):
    h = 1e-4
    for u, v in ((0.0, 0.0), (0.3, -1.2), (2.0, 1.0)):
        want = np.array([[v * v, 2 * u * v - a], [2 * u * v - a, u * u]])
        got = np.empty((2, 2))
        steps = np.eye(2) * h
        z = np.array([u, v])
        for i in range(2):
            for j in range(2):
                p, q = steps[i], steps[j]
                got[i, j] = (
                    loss(z + p + q, a)
                    - loss(z + p - q, a)
                    - loss(z - p + q, a)
                    + loss(z - p - q, a)
                ) / (4 * h * h)
        np.testing.assert_allclose(got, want, atol=1e-5)
    eigenvalues = np.linalg.eigvalsh(np.array([[0.0, -a], [-a, 0.0]]))
    assert eigenvalues[0] < 0 < eigenvalues[1]


def test_2_4_small_step_gradient_descent_follows_the_logistic_flow():
    """u' = v (a - uv), v' = u (a - uv), u0 = v0: x = uv has x(t) = a c e^{2at} / (c e^{2at} + a -
    c)."""
    a, c, eta = 2.0, 1e-3, 1e-4
    u = v = np.sqrt(c)
    for step in range(60_000):
        if step % 2000 == 0:
            t = step * eta
            grown = c * np.exp(2 * a * t)
            assert u * v == pytest.approx(a * grown / (grown + a - c), rel=5e-3)
        miss = a - u * v
        u, v = u + eta * v * miss, v + eta * u * miss
    assert u * v == pytest.approx(a, rel=1e-6)  # escaped the saddle


# ---- 2.5


def test_2_5_row_solutions_and_a_falling_objective(rng):
    a = hide(rng, low_rank(rng, 14, 10, 2) + 0.1 * rng.standard_normal((14, 10)), 0.4)
    w = rng.random(a.shape) + 0.2
    lam = 0.3
    model = ALS(
        3, l2=lam, l2_power=0.0, biases=False, normalise=None, max_iter=9, tol=0.0, random_state=0
    ).fit(a, weights=w)
    u, v = model.row_factors_, model.column_factors_
    seen = ~np.isnan(a)
    for j in range(10):
        rows = seen[:, j]
        matrix = (u[rows].T * w[rows, j]) @ u[rows] + lam * np.eye(3)
        np.testing.assert_allclose(
            v[j], np.linalg.solve(matrix, (w[rows, j] * a[rows, j]) @ u[rows]), atol=1e-9
        )
    values = np.array(model.fit_.trace.values)
    assert len(values) == 18
    assert (np.diff(values) <= 1e-12 * values[0]).all()
    direct = 0.5 * np.nansum(w * (a - u @ v.T) ** 2) + lam / 2 * (np.sum(u**2) + np.sum(v**2))
    assert values[-1] == pytest.approx(direct)


def test_2_5_options(rng):
    truth = np.abs(low_rank(rng, 30, 20, 2)) + 0.1
    a = hide(rng, truth, 0.4)
    base = {"random_state": 0, "max_iter": 30}
    exact = low_rank(rng, 30, 20, 2)
    none = ALS(
        2, l2=0.0, biases=False, normalise=None, tol=1e-13, max_iter=2000, random_state=0
    ).fit(hide(rng, exact, 0.3))
    np.testing.assert_allclose(none.predict(np.arange(30)), exact, atol=1e-4)  # lambda = 0
    assert ALS(3, nonnegative=True, **base).fit(a).row_factors_.min() >= 0
    assert ALS(3, biases=True, **base).fit(a).row_biases_ is not None
    by_count = ALS(1, l2=0.5, l2_power=1.0, biases=False, normalise=None, **base).fit(a)
    alike = ALS(1, l2=0.5, l2_power=0.0, biases=False, normalise=None, **base).fit(a)
    assert np.linalg.norm(by_count.predict(np.arange(30))) < np.linalg.norm(
        alike.predict(np.arange(30))
    )
    for stop in ("decrease", "gradient", "held_out"):
        assert ALS(3, stop=stop, tol=1e-2, random_state=0, max_iter=500).fit(a).fit_.trace.converged
    grown = ALS(1, warm_start=True, **base).fit(a)
    before = grown.objective_
    assert grown.set_params(n_components=3).fit(a).objective_ < before
    new = hide(rng, truth[:2], 0.4)
    rows = grown.fit_.factors.shape[0]
    assert grown.fold_in(new).shape == (2, 3)
    assert grown.fold_in(a[:, :1], axis="columns").shape == (1, 3)
    assert grown.update(new).fit_.factors.shape == (rows + 2, 20)


def test_2_5_implicit_feedback_counts_every_cell(rng):
    """The Gram trick gives the row solution of the dense problem with confidence 1 + alpha r."""
    r = hide(rng, rng.integers(1, 6, (12, 9)).astype(float), 0.6)
    model = ALS(
        3,
        feedback="implicit",
        alpha=4.0,
        unobserved_weight=1.0,
        zeros="unobserved",
        l2=0.2,
        l2_power=0.0,
        max_iter=7,
        random_state=0,
    ).fit(r)
    u, v = model.row_factors_, model.column_factors_
    confidence, target = 1 + 4.0 * np.nan_to_num(r), (~np.isnan(r)).astype(float)
    for j in range(9):
        matrix = (u.T * confidence[:, j]) @ u + 0.2 * np.eye(3)
        np.testing.assert_allclose(
            v[j], np.linalg.solve(matrix, u.T @ (confidence[:, j] * target[:, j])), atol=1e-9
        )


# ---- 2.6


def test_2_6_projection_fits_exact_data_and_ends_at_its_fixed_point(rng):
    a = low_rank(rng, 40, 30, 2)
    seen = hide(rng, a, 0.4)
    model = SVP(2, random_state=0).fit(seen)
    np.testing.assert_allclose(model.predict(np.arange(40)), a, atol=1e-5 * np.abs(a).max())
    noisy = hide(rng, a + 0.3 * rng.standard_normal(a.shape), 0.3)
    for step in (None, 1.0):
        b = (
            SVP(2, step=step, tol=1e-6, max_iter=5000, random_state=0)
            .fit(noisy)
            .predict(np.arange(40))
        )
        moved = b + np.where(np.isnan(noisy), 0.0, np.nan_to_num(noisy) - b)
        u, s, vt = np.linalg.svd(moved)
        np.testing.assert_allclose((u[:, :2] * s[:2]) @ vt[:2], b, atol=1e-2)
        assert np.linalg.matrix_rank(b, tol=1e-8) == 2


def test_2_6_n_times_m_is_never_formed(rng):
    n, nnz = 10_000, 60_000
    i, j = rng.integers(0, n, nnz), rng.integers(0, n, nnz)
    u, v = rng.standard_normal((n, 1)), rng.standard_normal((n, 1))
    keep = np.unique(i * n + j)
    x = Observed.from_codes(keep // n, keep % n, np.sum(u[keep // n] * v[keep % n], axis=1), (n, n))
    small = Observed.from_nan(np.where(rng.random((20, 20)) < 0.5, 1.0, np.nan))
    for model in (
        SVP(1, max_iter=5, random_state=0),
        SoftImpute(tau=1.0, max_iter=5, random_state=0),
    ):
        model.fit(small)  # what compiling takes is not on the bill
    tracemalloc.start()
    SVP(1, max_iter=5, random_state=0).fit(x)
    SoftImpute(tau=50.0, max_iter=5, random_state=0).fit(x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.05 * 8 * n * n


# ---- 2.7


def test_2_7_shrinkage_is_the_minimiser_and_its_rank_never_rises(rng):
    m = rng.standard_normal((8, 6))
    triples = partial_svd(operator(m), 6, rng=rng, tol=1e-13)
    ranks = []
    for tau in (0.0, 0.5, 1.0, 2.0, 3.0, 10.0):
        z = shrink(triples, tau)
        b = (z.left * z.values) @ z.right.T
        np.testing.assert_allclose(b, shrunk(m, tau), atol=1e-9)
        ranks.append(len(z.values))
        value = 0.5 * np.sum((m - b) ** 2) + tau * nuclear(b)
        for _ in range(20):
            other = b + 0.1 * rng.standard_normal(b.shape)
            assert 0.5 * np.sum((m - other) ** 2) + tau * nuclear(other) >= value
    assert ranks == sorted(ranks, reverse=True)
    assert ranks[-1] == 0


def test_2_7_a_svt_ends_at_the_constrained_minimiser(rng):
    # where a row or a column is small or nearly unseen, the steps of the dual hardly move: more
    # than 20,000 of them on half of the seeds with normal loadings
    loadings = (rng.choice([-1.0, 1.0], n) * rng.uniform(1, 2, n) for n in (14, 12))
    a = np.outer(*loadings)
    seen = hide(rng, a, 0.15)
    mask, tau = ~np.isnan(seen), 20.0
    y = np.zeros(a.shape)
    # Y <- Y + Pi(A - shrink(Y)), the plain iteration with the step that is always safe
    for _ in range(20_000):
        rest = np.where(mask, a - shrunk(y, tau), 0.0)
        y += rest
        if np.abs(rest).max() < 1e-9:
            break
    want = shrunk(y, tau)
    for accelerate in (True, False):
        b = (
            SVT(tau=tau, tol=1e-7, max_iter=20_000, accelerate=accelerate, random_state=0)
            .fit(seen)
            .predict(np.arange(14))
        )
        np.testing.assert_allclose(b, want, atol=1e-4)
        np.testing.assert_allclose(b[mask], a[mask], atol=1e-5)


def test_2_7_b_soft_impute_is_the_nuclear_norm_minimiser_and_zero_from_tau_max_on(rng):
    seen = hide(rng, low_rank(rng, 14, 12, 2) + 0.1 * rng.standard_normal((14, 12)), 0.3)
    mask, filled = ~np.isnan(seen), np.nan_to_num(seen)
    top = np.linalg.norm(filled, 2)
    for method in ("descent", "proximal"):
        for tau in (0.1 * top, 0.5 * top):
            b = np.zeros(seen.shape)
            for _ in range(2000):
                b = shrunk(b + np.where(mask, filled - b, 0.0), tau)
            model = SoftImpute(
                tau=tau, method=method, tol=1e-5, max_iter=20_000, random_state=0
            ).fit(seen)
            np.testing.assert_allclose(model.predict(np.arange(14)), b, atol=0.02)
            assert model.certificate_.kind == "global"
            assert model.certificate_.holds
        assert (
            np.abs(
                SoftImpute(tau=1.001 * top, method=method, random_state=0)
                .fit(seen)
                .predict(np.arange(14))
            ).max()
            == 0
        )
        assert (
            np.abs(
                SoftImpute(tau=0.99 * top, method=method, random_state=0)
                .fit(seen)
                .predict(np.arange(14))
            ).max()
            > 0
        )
    path = SoftImpute(tau=0.1 * top, path=6, random_state=0).fit(seen)
    assert path.path_taus_[0] == pytest.approx(top, rel=1e-3)
    assert (np.diff(path.path_taus_) < 0).all()


# ---- 2.8


def test_2_8_degrees_of_freedom_thin_rows_and_disconnected_blocks_are_named(rng):
    a = hide(rng, low_rank(rng, 10, 8, 2), 0.1)
    a[3] = np.nan
    a[3, 0] = 1.0
    rows, columns = (
        np.array([f"u{i}" for i in range(10)], object),
        np.array([f"m{j}" for j in range(8)], object),
    )
    report = recovery(Observed.from_nan(a, rows, columns), 2)
    assert report.degrees == 2 * (10 + 8 - 2)
    assert report.entries == np.isfinite(a).sum()
    assert list(report.thin_rows) == ["u3"]
    assert not report.possible
    assert "u3" in str(report)
    blocks = np.full((6, 6), np.nan)
    blocks[:3, :3], blocks[3:, 3:] = 1.0, 2.0
    report = recovery(Observed.from_nan(blocks), 1)
    assert len(report.parts) == 2
    assert not report.connected
    assert "cannot be related" in report.verdict
    whole = recovery(Observed.from_nan(low_rank(rng, 10, 8, 2)), 2)
    assert whole.possible
    assert len(whole.parts) == 1


@pytest.mark.parametrize("shape", [(7, 7), (9, 5)])
def test_2_8_incoherence_is_the_smallest_mu(rng, shape):
    n, m = shape
    k = 2
    f = LowRank(rng.standard_normal((n, k)), rng.standard_normal((m, k)))
    u, _, vt = np.linalg.svd(f.left @ f.right.T)
    p, q, e = u[:, :k] @ u[:, :k].T, vt[:k].T @ vt[:k], u[:, :k] @ vt[:k]
    parts = [np.abs(x - k / len(x) * np.eye(len(x))).max() * len(x) / np.sqrt(k) for x in (p, q)]
    mu = max(*parts, np.abs(e).max() * np.sqrt(n * m) / np.sqrt(k))
    assert incoherence(f) == pytest.approx(mu)
    report = recovery(Observed.from_nan(rng.standard_normal(shape)), k, fit=f)
    assert report.bound == pytest.approx(mu**2 * max(shape) * k * np.log(max(shape)) ** 6)


def test_2_8_the_dual_certificate_proves_what_is_recovered_and_nothing_else(rng):
    a = low_rank(rng, 30, 30, 1)
    seen = hide(rng, a, 0.3)
    model = ExactRecovery(1, random_state=0).fit(seen)
    np.testing.assert_allclose(model.predict(np.arange(30)), a, atol=1e-6)
    assert recovery_certificate(model)["verdict"] == "proven"
    u, s, vt = np.linalg.svd(a)
    x = Observed.from_nan(seen)
    wrong = LowRank(u[:, :1] * s[0] * 1.01, vt[:1].T)
    assert recovery_certificate(wrong, x)["verdict"] == "disproven"  # not the entries
    few = np.where(rng.random(a.shape) < 0.9, np.nan, a)
    few[3] = np.nan  # a row that is free
    right = LowRank(u[:, :1] * s[0], vt[:1].T)
    assert recovery_certificate(right, Observed.from_nan(few))["verdict"] != "proven"


def test_2_8_recovery_has_a_phase_transition(rng):
    """Rank 2 of 40 x 40: from four times the degrees of freedom on it is recovered, below them it
    is not."""
    got = {}
    for oversampling in (0.7, 4.0):
        wins = 0
        for _ in range(2):
            a = low_rank(rng, 40, 40, 2)
            count = int(oversampling * 2 * 78)
            at = rng.permutation(1600)[:count]
            seen = np.full(1600, np.nan)
            seen[at] = a.ravel()[at]
            b = (
                ExactRecovery(2, max_iter=60, random_state=0)
                .fit(seen.reshape(40, 40))
                .predict(np.arange(40))
            )
            wins += np.linalg.norm(b - a) < 1e-3 * np.linalg.norm(a)
        got[oversampling] = wins
    assert got == {0.7: 0, 4.0: 2}


# ---- 2.9


def test_2_9_randomized_svd_on_any_operator(rng):
    a = low_rank(rng, 80, 60, 5) + 1e-6 * rng.standard_normal((80, 60))
    s = np.linalg.svd(a, compute_uv=False)
    x = Observed.from_nan(a)
    kinds = {
        "array": a,
        "sparse": sparse.csr_array(a),
        "operator": aslinearoperator(a),
        "sparse + low rank": Operator(Sampling(x, engine_named()), x.data),
    }
    for name, kind in kinds.items():
        for single_pass in (False, True):
            u, values, v = randomized_svd(kind, 5, single_pass=single_pass, random_state=0)
            np.testing.assert_allclose(values, s[:5], rtol=1e-4, err_msg=name)
            np.testing.assert_allclose(u.T @ u, np.eye(5), atol=1e-10)
            np.testing.assert_allclose((u * values) @ v.T, a, atol=1e-3)


def test_2_9_oversampling_and_power_iterations_help(rng):
    u, v = (
        np.linalg.qr(rng.standard_normal((100, 60)))[0],
        np.linalg.qr(rng.standard_normal((60, 60)))[0],
    )
    a = (u * 0.95 ** np.arange(60)) @ v.T

    def error(**options):
        left, s, right = randomized_svd(a, 5, random_state=0, **options)
        return np.linalg.norm(a - (left * s) @ right.T, 2)

    best = 0.95**5
    plain = error(oversampling=0, power_iterations=0)
    assert (
        best
        <= error(oversampling=10, power_iterations=4) * (1 + 1e-12)
        < error(oversampling=10, power_iterations=0)
        < plain
    )
    assert error(oversampling=10, power_iterations=4) < 1.05 * best


def test_2_9_a_single_pass_meets_the_entries_once(rng):
    class Counted:
        shape, dtype, passes = (50, 40), np.dtype(float), 0
        a = low_rank(rng, 50, 40, 3)

        def times(self, v):
            self.passes += 1
            return self.a @ v

        def times_t(self, y):
            self.passes += 1
            return self.a.T @ y

    once = Counted()
    randomized_svd(once, 3, single_pass=True, random_state=0)
    assert once.passes == 2  # both sketches, neither waiting for the other


# ---- 2.10


def test_2_10_splits_measures_and_the_choice_of_rank_and_ridge(rng):
    a = hide(rng, low_rank(rng, 50, 30, 2) + 0.2 * rng.standard_normal((50, 30)), 0.4)
    x = Observed.from_nan(a)
    for parts in (split(x, 0.2, random_state=0), split(x, 0.2, by="time", times=np.arange(x.nnz))):
        assert parts.train.nnz + parts.test.nnz == x.nnz
    by_row = split(x, 0.2, by="row", random_state=0)
    assert by_row.train.nnz + by_row.fold_in.nnz + by_row.test.nnz == x.nnz
    assert sum(p.test.nnz for p in folds(x, 4, random_state=0)) == x.nnz
    assert rmse([1, 2, 3], [1, 2, 6]) == pytest.approx(np.sqrt(3))
    assert mae([1, 2, 3], [1, 2, 6]) == 1
    lists, relevant = [[4, 1, 2]], [[1, 2, 3]]
    assert recall_at_k(lists, relevant, 3) == pytest.approx(2 / 3)
    discount = 1 / np.log2([2, 3, 4])
    assert ndcg_at_k(lists, relevant, 3) == pytest.approx(
        (discount[1] + discount[2]) / discount.sum()
    )
    assert map_at_k(lists, relevant, 3) == pytest.approx((1 / 2 + 2 / 3) / 3)
    found = tune(x, n_components=(1, 2, 4, 8, 16), l2=(0.5, 0.02), folds=2, random_state=0)
    assert found.best["l2"] == 0.02
    assert found.best["n_components"] in (2, 4)
    assert max(t.n_components for t in found.table) < 16  # stopped early


# ---- 2.11


def test_2_11_recommending_for_one_row_and_for_all(rng):
    a = hide(rng, low_rank(rng, 20, 15, 2) + 3, 0.5)
    rows, columns = np.arange(100, 120), np.array([f"m{j}" for j in range(15)], object)
    model = ALS(2, random_state=0).fit(Observed.from_nan(a, rows, columns))
    b = model.predict(rows)
    every = model.recommend(n=4)
    for i, row in enumerate(rows):
        order = [j for j in np.argsort(-b[i], kind="stable") if np.isnan(a[i, j])][:4]
        assert [c for c, p in zip(every.columns[i], every.positions[i]) if p >= 0] == columns[
            order
        ].tolist()
        assert [c for _, _, c, _ in model.recommend(row, n=4).entries()] == columns[order].tolist()
    only = model.recommend(105, n=3, candidates=columns[:6], exclude=["m2"], exclude_seen=False)
    assert set(only.columns[0]) <= set(columns[:6]) - {"m2"}
    alike = model.similar(columns="m3", n=2).positions[0]
    v = model.column_factors_ / np.linalg.norm(model.column_factors_, axis=1, keepdims=True)
    cosines = v @ v[3]
    cosines[3] = -np.inf
    assert alike.tolist() == np.argsort(-cosines)[:2].tolist()
    assert model.similar(rows=103, n=2).rows.tolist() == [103]
    why = model.explain(103, "m3", n=50)
    assert {c for c, _, _ in why.shares} == set(columns[~np.isnan(a[3])])
    assert why.base + sum(s for *_, s in why.shares) == pytest.approx(why.prediction)
