"""PCA with missing entries: maximum likelihood on what was observed."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import eckart
from conftest import planted
from eckart import PCA, Observed, principal_angles


def with_holes(x, share, seed=0):
    holes = x.copy()
    holes[np.random.default_rng(seed).random(x.shape) < share] = np.nan
    return holes


def test_with_nothing_missing_it_is_pca(digits):
    x = digits[:, 10:30]
    a, b = PCA(4, tol=1e-13).fit(Observed.from_nan(x)), PCA(4).fit(x)
    np.testing.assert_allclose(a.explained_variance_, b.explained_variance_, rtol=1e-5)
    np.testing.assert_allclose(a.components_, b.components_, atol=1e-3)
    assert a.noise_variance_ == pytest.approx(b.noise_variance_, rel=1e-5)
    np.testing.assert_allclose(a.mean_, b.mean_, atol=1e-6)


def test_the_likelihood_is_the_one_it_claims_and_is_a_maximum(rng):
    x = with_holes(planted(rng, rows=150, n=6, rank=2), 0.25)
    pca = PCA(2, random_state=0, tol=1e-12).fit(x)

    def loglik(mean, covariance):
        total = 0.0
        for row in x:
            seen = ~np.isnan(row)
            if seen.any():
                total += stats.multivariate_normal(
                    mean[seen], covariance[np.ix_(seen, seen)]
                ).logpdf(row[seen])
        return total

    scale = (len(x) - 1) / len(x)
    best = loglik(pca.mean_, pca.get_covariance() * scale)
    assert best == pytest.approx(pca.certificate_["log-likelihood"], rel=1e-6)
    for seed in range(10):
        r = np.random.default_rng(seed)
        u = pca.components_.T + 0.02 * r.standard_normal((6, 2))
        u = np.linalg.qr(u)[0]
        noise = pca.noise_variance_
        c = (u * (pca.explained_variance_ - noise)) @ u.T + noise * np.eye(6)
        assert loglik(pca.mean_, c * scale) < best
        assert loglik(pca.mean_ + 0.05 * r.standard_normal(6), pca.get_covariance() * scale) < best
    for factor in (0.97, 1.03):
        assert loglik(pca.mean_, pca.get_covariance() * scale * factor) < best


def test_the_likelihood_never_falls(rng):
    for seed in range(5):
        x = with_holes(planted(rng, rows=100, n=8, rank=3), 0.4, seed)
        trace = PCA(3, random_state=seed, tol=1e-12).fit(x).fit_.trace
        assert (np.diff(trace.values) > -1e-10).all()


def test_it_beats_mean_imputation_and_finds_the_planted_subspace(rng):
    truth = planted(rng, rows=500, n=20, rank=3, noise=0.1)
    holes = with_holes(truth, 0.3)
    pca = PCA(3, random_state=0).fit(holes)
    gaps = np.isnan(holes)
    ours = np.sqrt(np.mean((pca.impute(holes) - truth)[gaps] ** 2))
    means = np.sqrt(
        np.mean((np.broadcast_to(np.nanmean(holes, axis=0), truth.shape) - truth)[gaps] ** 2)
    )
    assert ours < 0.15  # the noise is 0.1
    assert means > 5 * ours
    assert principal_angles(pca.components_.T, PCA(3).fit(truth).components_.T).max() < 0.05
    np.testing.assert_array_equal(pca.impute(holes)[~gaps], holes[~gaps])


def test_noise_free_low_rank_data_are_completed_exactly(rng):
    truth = rng.standard_normal((200, 2)) @ rng.standard_normal((2, 15)) + 3
    holes = with_holes(truth, 0.3)
    filled = PCA(2, random_state=0, tol=1e-12).fit(holes).impute(holes)
    assert np.sqrt(np.mean((filled - truth) ** 2)) < 1e-3


def test_rows_and_columns_without_observations(rng):
    x = with_holes(planted(rng, rows=60, n=5, rank=2), 0.2)
    x[7] = np.nan
    pca = PCA(2, random_state=0).fit(x)
    np.testing.assert_allclose(pca.transform(x)[7], 0, atol=1e-6)
    np.testing.assert_allclose(pca.impute(x)[7], pca.mean_, atol=1e-6)
    assert any("no observed entry" in note for note in pca.certificate_.notes)
    x[:, 3] = np.nan
    with pytest.raises(eckart.InputError, match="column 3 of X has no observed entry"):
        PCA(2).fit(x)


def test_k_by_share_auto_none_and_all(rng):
    x = with_holes(planted(rng, rows=500, n=12, rank=3, noise=0.2), 0.2)
    assert PCA("auto", random_state=0).fit(x).n_components_ == 3
    assert PCA(0.8, random_state=0).fit(x).n_components_ in (2, 3)
    for k in (None, 12):
        full = PCA(k, random_state=0).fit(x)
        assert full.components_.shape == (12, 12)
        np.testing.assert_allclose(full.components_ @ full.components_.T, np.eye(12), atol=1e-8)
    assert PCA(0).fit(x).transform(x).shape == (500, 0)


def test_gaps_in_sparse_uncentered_streams_and_partial_fits_are_refused_with_the_remedy(rng):
    from scipy import sparse

    x = with_holes(planted(rng, rows=60, n=5, rank=2), 0.2)
    with pytest.raises(
        eckart.InputError,
        match="center must be True with missing entries, got False: without a mean, an absent entry",
    ):
        PCA(2, center=False).fit(x)
    with pytest.raises(eckart.InputError, match="absent='unknown'"):
        PCA(2).fit(sparse.csr_array(x))
    with pytest.raises(eckart.InputError, match="read once only"):
        PCA(2).fit(iter([x]))
    with pytest.raises(eckart.InputError, match="complete rows for partial_fit"):
        PCA(2).partial_fit(x)
    assert PCA(2, random_state=0).fit([x[:30], x[30:]]).fit_.plan["gaps"] == np.isnan(x).sum()


def test_sparse_observations_use_the_row_kernel_and_agree(rng):
    truth = rng.standard_normal((2000, 2)) @ rng.standard_normal((2, 300)) * 2
    seen = rng.random(truth.shape) < 0.04
    x = Observed.from_nan(np.where(seen, truth, np.nan))
    pca = PCA(2, random_state=0).fit(x)
    assert pca.certificate_.holds, pca.certificate_
    assert np.sqrt(np.mean((pca.impute(x) - truth) ** 2)) < 0.1 * truth.std()


def test_real_gaps_of_a_survey_and_of_sensors(shared_data):
    """Hide a tenth of the real readings; PCA predicts them far better than column means."""
    path = shared_data("air-quality-uci") / "AirQualityUCI.csv"
    names = path.read_text().splitlines()[0].split(",")[2:]
    table = np.array(eckart.read(path, columns=names).values)
    table[table == -200] = np.nan
    table = (table - np.nanmean(table, axis=0)) / np.nanstd(table, axis=0)
    hidden = ~np.isnan(table) & (np.random.default_rng(0).random(table.shape) < 0.1)
    training = np.where(hidden, np.nan, table)
    pca = PCA(4, random_state=0).fit(training)
    assert pca.certificate_.holds, pca.certificate_
    error = np.sqrt(np.mean((pca.impute(training) - table)[hidden] ** 2))
    assert error < 0.5  # column means have error 1


def test_an_exact_table_with_gaps_has_a_certificate():
    """At the least noise the likelihood is a small difference of large numbers: its rounding is no
    fall."""
    rng = np.random.default_rng(5)
    for _ in range(4):
        x = rng.standard_normal((100, 2)) @ rng.standard_normal((2, 6))
        x = np.where(rng.random(x.shape) < 0.2, np.nan, x)
        pca = PCA(2, random_state=0).fit(x)
        assert pca.certificate_.holds, pca.certificate_.reason
