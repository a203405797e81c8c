"""GaussianMixture: against scikit-learn from the same start, on data that break mixtures, with
weights, gaps, batches, files, and its evidence."""

from __future__ import annotations

import pickle
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture as Sklearn

import eckart
from eckart import GaussianMixture
from eckart.engines.protocol.mixtures import KINDS
from eckart.explain.mixtures.gaussian_solve import from_factors, to_factors
from eckart.explain.mixtures.gaussian_steps import common_step

SHARED = ("full", "tied", "diag", "spherical")
kinds = pytest.mark.parametrize("kind", KINDS)


def groups(rng, rows=300, n=4, k=3, apart=3.0):
    """Rows from k Gaussians with their own covariances."""
    centres = apart * rng.standard_normal((k, n))
    roots = 0.4 * rng.standard_normal((k, n, n)) + np.eye(n)
    z = rng.integers(0, k, rows)
    return centres[z] + np.einsum("ij,ijl->il", rng.standard_normal((rows, n)), roots[z])


def start(x, k, kind):
    n = x.shape[1]
    precisions = {
        "full": np.tile(np.eye(n), (k, 1, 1)),
        "tied": np.eye(n),
        "diag": np.ones((k, n)),
        "spherical": np.ones(k),
    }[kind]
    return {
        "covariance_type": kind,
        "means_init": x[:: len(x) // k][:k],
        "weights_init": np.full(k, 1 / k),
        "precisions_init": precisions,
    }


def quiet_fit(model, x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(x)


@pytest.mark.parametrize("kind", SHARED)
@pytest.mark.parametrize("steps", [1, 8])
def test_the_same_as_scikit_learn_from_the_same_start(rng, kind, steps):
    x = groups(rng)
    how = start(x, 3, kind) | {"max_iter": steps, "tol": 0.0, "reg_covar": 1e-6}
    ours, theirs = GaussianMixture(3, **how).fit(x), quiet_fit(Sklearn(3, **how), x)
    for name in ("weights_", "means_", "covariances_", "precisions_", "precisions_cholesky_"):
        np.testing.assert_allclose(
            getattr(ours, name), getattr(theirs, name), rtol=1e-6, atol=1e-9, err_msg=name
        )
    assert ours.lower_bounds_ == pytest.approx(
        getattr(theirs, "lower_bounds_", [*ours.lower_bounds_[:-1], theirs.lower_bound_]), rel=1e-9
    )
    assert len(ours.lower_bounds_) == steps
    assert ours.n_iter_ == theirs.n_iter_ == steps
    for name in ("score_samples", "predict_proba", "predict", "bic", "aic", "score"):
        np.testing.assert_allclose(
            getattr(ours, name)(x), getattr(theirs, name)(x), rtol=1e-8, atol=1e-9
        )


@kinds
def test_the_bound_never_falls_and_the_certificate_holds(rng, kind):
    x = groups(rng)
    model = GaussianMixture(3, covariance_type=kind, tol=1e-5, max_iter=600, random_state=0).fit(x)
    assert (np.diff(model.lower_bounds_) > -1e-10).all()
    assert model.converged_
    assert model.certificate_.holds, model.certificate_
    assert model.certificate_.kind == "stationary"
    assert model.lower_bound_ == pytest.approx(model.score(x))
    again = model.certify(x)
    assert again.holds
    assert again["bound"] == pytest.approx(model.certificate_["bound"], rel=1e-9)


@kinds
def test_perturbed_components_fail_the_certificate(rng, kind):
    x = groups(rng)
    model = GaussianMixture(3, covariance_type=kind, tol=1e-5, max_iter=600, random_state=0).fit(x)
    theta = from_factors(model.fit_.factors)
    moved = np.array(theta.means)
    moved[0] += 0.3
    weights = np.roll(theta.weights, 1) * [1.3, 1.0, 0.7]
    for changed in ({"means": moved}, {"weights": weights / weights.sum()}):
        other = clone(model)
        other.fit_ = replace(model.fit_, factors=to_factors(replace(theta, **changed), None))
        assert not other.certify(x).holds
        assert "one more step" in other.certify(x).reason
    assert not model.certify(x * 1.2).holds


def test_stopping_early_is_said(rng):
    model = GaussianMixture(3, max_iter=1, tol=1e-9, random_state=0).fit(groups(rng, apart=1.0))
    assert not model.converged_
    assert not model.certificate_.holds
    assert any("max_iter" in note for note in model.certificate_.notes)


@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 4),
    k=st.integers(1, 4),
    kind=st.sampled_from(KINDS),
)
@settings(max_examples=25, deadline=None)
def test_any_data_any_kind_finite_and_monotone(seed, n, k, kind):
    rng = np.random.default_rng(seed)
    x = np.round(rng.standard_normal((12, n)) * rng.choice([1e-6, 1.0, 1e6]), rng.integers(0, 3))
    model = GaussianMixture(k, covariance_type=kind, random_state=0, max_iter=30).fit(x)
    excused = {event["step"] for event in model.fit_.plan.get("revived", ())}
    falls = np.diff(model.lower_bounds_)
    assert all(
        fall > -1e-8 * (1 + abs(model.lower_bound_))
        for i, fall in enumerate(falls)
        if i not in excused
    )
    assert np.isfinite(model.means_).all()
    assert np.isfinite(model.score_samples(x)).all()
    theta = from_factors(model.fit_.factors)
    assert all(np.linalg.eigvalsh(theta.covariance(z))[0] > 0 for z in range(k))
    np.testing.assert_allclose(model.predict_proba(x).sum(axis=1), 1.0)


def test_two_far_points_in_float32_keep_positive_variances():
    x = np.array([[9999.0], [0.0]] * 5, np.float32)
    for kind in ("spherical", "diag", "full", "tied"):
        for k in (1, 2):
            model = GaussianMixture(k, covariance_type=kind, random_state=0).fit(x)
            assert model.covariances_.dtype == np.float32
            assert model.covariances_.min() > 0
            if k == 1:
                assert model.covariances_.ravel()[0] == pytest.approx(9999.0**2 / 4, rel=1e-5)


@kinds
def test_data_that_break_mixtures(kind):
    rng = np.random.default_rng(0)
    same = np.ones((20, 3))
    constant = np.column_stack([rng.standard_normal(40), np.full(40, 7.0)])
    singular = rng.standard_normal((50, 1)) @ np.ones((1, 4))
    wide = rng.standard_normal((6, 40))
    huge = rng.standard_normal((30, 2)) * 1e120
    for x, k in (
        (same, 3),
        (constant, 2),
        (singular, 2),
        (wide, 2),
        (huge, 2),
        (same[:1], 1),
        (same[:2], 2),
    ):
        model = GaussianMixture(k, covariance_type=kind, random_state=0).fit(x)
        assert np.isfinite(model.score_samples(x)).all()
        assert np.isfinite(model.means_).all()
        assert model.predict(x).shape == (len(x),)


def test_empty_components_are_put_back_to_use_and_reported(rng):
    x = np.concatenate([rng.standard_normal((100, 2)), rng.standard_normal((100, 2)) + 30.0])
    far = np.array([[0.0, 0.0], [1e4, 1e4]])
    model = GaussianMixture(
        2,
        means_init=far,
        weights_init=[0.5, 0.5],
        precisions_init=np.tile(np.eye(2), (2, 1, 1)),
        random_state=0,
    ).fit(x)
    assert model.fit_.plan["revived"][0]["component"] == 1
    assert sorted(model.weights_.round(2)) == [0.5, 0.5]
    assert any("put back to use" in note for note in model.certificate_.notes)
    assert model.certificate_.holds, model.certificate_


@kinds
def test_integer_weights_are_repeated_rows(rng, kind):
    x = groups(rng, 60, 3)
    w = rng.integers(0, 4, 60)
    how = {"covariance_type": kind, "random_state": 0, "n_init": 2}
    a, b = (
        GaussianMixture(2, **how).fit(x, sample_weight=w),
        GaussianMixture(2, **how).fit(np.repeat(x, w, axis=0)),
    )
    np.testing.assert_allclose(a.weights_, b.weights_, atol=1e-9)
    np.testing.assert_allclose(a.means_, b.means_, atol=1e-8)
    np.testing.assert_allclose(a.covariances_, b.covariances_, atol=1e-8)
    repeated = np.repeat(x, w, axis=0)
    assert a.score(x, sample_weight=w) == pytest.approx(b.score(repeated))
    assert a.bic(x, sample_weight=w) == pytest.approx(b.bic(repeated))
    assert a.aic(x, sample_weight=w) == pytest.approx(b.aic(repeated))
    assert a.certify(x, sample_weight=w).holds


@kinds
def test_seed_and_threads_do_not_change_a_bit(kind):
    x = groups(np.random.default_rng(1), 20000, 5)
    states = set()
    for threads in (1, 2, 3):
        f = (
            GaussianMixture(3, covariance_type=kind, random_state=7, n_threads=threads, max_iter=5)
            .fit(x)
            .fit_.factors
        )
        states.add(b"".join(a.tobytes() for a in f.to_state()[0].values()))
    assert len(states) == 1


@kinds
def test_missing_entries_are_integrated_out(rng, kind):
    """log p and E[x | seen] against Gaussian algebra by hand, one component at a time."""
    x = groups(rng, 80, 3)
    holes = np.where(rng.random(x.shape) < 0.25, np.nan, x)
    holes[3] = np.nan
    model = GaussianMixture(
        2, covariance_type=kind, n_factors=1, random_state=0, tol=1e-5, max_iter=5000
    ).fit(holes)
    assert (np.diff(model.lower_bounds_) > -1e-9).all()
    assert model.certificate_.holds, model.certificate_
    theta = from_factors(model.fit_.factors)
    filled, variance = model.impute(holes, return_variance=True)
    loglik = model.score_samples(holes)
    for i in range(10):
        o = ~np.isnan(holes[i])
        logp, means, variances = [], [], []
        for z in range(2):
            s, m = theta.covariance(z), theta.means[z]
            d = (holes[i] - m)[o]
            inverse = np.linalg.inv(s[np.ix_(o, o)])
            logp.append(
                np.log(theta.weights[z])
                - 0.5 * (np.linalg.slogdet(2 * np.pi * s[np.ix_(o, o)])[1] + d @ inverse @ d)
            )
            gain = s[np.ix_(~o, o)] @ inverse
            means.append(m[~o] + gain @ d)
            variances.append(np.diagonal(s[np.ix_(~o, ~o)] - gain @ s[np.ix_(o, ~o)]))
        total = np.logaddexp(*logp)
        q = np.exp(np.array(logp) - total)
        assert loglik[i] == pytest.approx(total, abs=1e-8)
        expected = q @ np.array(means)
        np.testing.assert_allclose(filled[i][~o], expected, atol=1e-8)
        np.testing.assert_allclose(
            variance[i][~o],
            q @ (np.array(variances) + np.array(means) ** 2) - expected**2,
            atol=1e-8,
        )
        np.testing.assert_array_equal(filled[i][o], x[i][o])
        assert (variance[i][o] == 0).all()
    assert loglik[3] == pytest.approx(0.0, abs=1e-9)


def test_imputation_is_better_than_the_mean_and_its_variance_is_honest(rng):
    x = groups(rng, 2000, 5)
    hidden = rng.random(x.shape) < 0.2
    model = GaussianMixture(3, random_state=0, n_init=2).fit(np.where(hidden, np.nan, x))
    filled, variance = model.impute(np.where(hidden, np.nan, x), return_variance=True)
    error = (filled - x)[hidden]
    assert np.sqrt(np.mean(error**2)) < 0.7 * x[hidden].std()
    assert np.mean(np.abs(error) < 1.645 * np.sqrt(variance[hidden])) == pytest.approx(
        0.9, abs=0.05
    )


def test_observed_matrices_and_sparse_rows_come_in_too(rng):
    x = groups(rng, 100, 3)
    holes = np.where(rng.random(x.shape) < 0.2, np.nan, x)
    a = GaussianMixture(2, random_state=0).fit(holes)
    b = GaussianMixture(2, random_state=0).fit(eckart.Observed.from_nan(holes))
    np.testing.assert_allclose(a.means_, b.means_)
    from scipy import sparse

    s = sparse.random(200, 4, 0.5, random_state=0, format="csr")
    np.testing.assert_allclose(
        GaussianMixture(2, random_state=0).fit(s).means_,
        GaussianMixture(2, random_state=0).fit(s.toarray()).means_,
    )


@pytest.mark.parametrize("kind", ["full", "diag", "factor"])
def test_rows_from_blocks_and_files_give_the_same(rng, kind, tmp_path):
    x = groups(rng, 3000, 4)
    how = {"covariance_type": kind, "random_state": 0, "max_iter": 10, "tol": 0.0}
    held = GaussianMixture(3, **how).fit(x)
    np.save(tmp_path / "x.npy", x)
    for source in ([x[i : i + 700] for i in range(0, 3000, 700)], str(tmp_path / "x.npy")):
        other = GaussianMixture(3, **how).fit(source)
        np.testing.assert_allclose(other.means_, held.means_, rtol=1e-7, atol=1e-8)
        np.testing.assert_allclose(other.covariances_, held.covariances_, rtol=1e-6, atol=1e-8)
    with pytest.raises(eckart.InputError, match="read once only"):
        GaussianMixture(2).fit(iter([x]))


def test_memory_does_not_grow_with_the_rows():
    import tracemalloc

    peaks = []
    for rows in (20000, 160000):
        x = groups(np.random.default_rng(0), rows, 4)
        GaussianMixture(8, random_state=0, max_iter=2).fit(x[:2000])
        tracemalloc.start()
        GaussianMixture(8, random_state=0, max_iter=2, init_params="random_from_data").fit(x)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 4e6, peaks  # rows x k alone would be 10 MB more


def test_batches_lead_where_all_rows_lead(rng):
    x = groups(rng, 6000, 2, apart=6.0)
    whole = GaussianMixture(3, random_state=0, n_init=3).fit(x)
    model = GaussianMixture(3, random_state=0, n_init=3)
    for i in range(0, 6000, 500):
        model.partial_fit(x[i : i + 500])
    assert model.fit_.plan["batches"] == 12
    assert model.score(x) > whole.score(x) - 0.02
    assert model.certificate_.holds
    assert model.certificate_.kind == "statistical"
    few = GaussianMixture(2, random_state=0)
    for i in range(0, 101, 10):
        few.partial_fit(x[i : min(i + 10, 101)])
    assert few.fit_.plan["weight"] == 101
    with pytest.raises(eckart.InputError, match="n_components"):
        GaussianMixture("auto").partial_fit(x)


def test_a_loaded_model_has_no_running_statistics(rng, tmp_path):
    x = groups(rng, 200)
    GaussianMixture(2, random_state=0).partial_fit(x).save(tmp_path / "m.safetensors")
    with pytest.raises(eckart.InputError, match="loaded from a file"):
        eckart.load(tmp_path / "m.safetensors").partial_fit(x)


@kinds
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_save_load_pickle_dtype(rng, kind, dtype, tmp_path):
    x = groups(rng, 100).astype(dtype)
    model = GaussianMixture(2, covariance_type=kind, random_state=0).fit(x)
    model.save(tmp_path / "m.safetensors")
    for back in (eckart.load(tmp_path / "m.safetensors"), pickle.loads(pickle.dumps(model))):
        for name in ("weights_", "means_", "covariances_", "precisions_", "precisions_cholesky_"):
            assert getattr(back, name).dtype == dtype
            np.testing.assert_array_equal(getattr(back, name), getattr(model, name))
        np.testing.assert_array_equal(back.predict_proba(x), model.predict_proba(x))
        assert back.certificate_ == model.certificate_
        assert back.get_params() == model.get_params()
    assert model.predict_proba(x).dtype == dtype


@kinds
def test_samples_look_like_the_data(rng, kind):
    x = groups(rng, 500, 3)
    model = GaussianMixture(3, covariance_type=kind, random_state=0).fit(x)
    drawn, labels = model.sample(20000)
    assert drawn.shape == (20000, 3)
    np.testing.assert_allclose(np.bincount(labels) / 20000, model.weights_, atol=0.02)
    theta = from_factors(model.fit_.factors)
    for z in range(3):
        mine = drawn[labels == z]
        np.testing.assert_allclose(
            np.cov(mine.T), theta.covariance(z), atol=0.12 * np.abs(theta.covariance(z)).max()
        )
    assert model.score(drawn) == pytest.approx(model.score(model.sample(5000)[0]), abs=0.2)
    with pytest.raises(eckart.InputError, match="n_samples"):
        model.sample(0)


def test_outliers_stand_out(rng):
    x = groups(rng, 1000, 2)
    model = GaussianMixture(3, random_state=0, n_init=2).fit(x)
    np.testing.assert_allclose(model.outlier_score(x), -model.score_samples(x))
    q = model.outlier_score(np.concatenate([x, [[100.0, 100.0], [np.nan, 100.0]]]), quantile=True)
    assert (q[-2:] > 0.999).all()
    assert np.mean(q[:-2] > 0.95) == pytest.approx(0.05, abs=0.03)


def test_factor_analysers_on_wide_rows(rng):
    """More columns than any n x n matrix should be formed for; the planted groups are found."""
    n, k, r = 700, 2, 3
    z = rng.integers(0, k, 120)
    centres, loads = 2 * rng.standard_normal((k, n)), rng.standard_normal((k, n, r))
    x = (
        centres[z]
        + np.einsum("ij,inj->in", rng.standard_normal((120, r)), loads[z])
        + 0.5 * rng.standard_normal((120, n))
    )
    import tracemalloc

    quiet_fit(
        GaussianMixture(k, covariance_type="factor", n_factors=r, random_state=0, max_iter=1), x
    )  # what compiling takes is not on the bill
    tracemalloc.start()
    model = GaussianMixture(
        k, covariance_type="factor", n_factors=r, random_state=0, max_iter=10
    ).fit(x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * n * n * k
    agree = np.mean(model.predict(x) == z)
    assert max(agree, 1 - agree) > 0.95
    assert model.loadings_.shape == (k, n, r)
    assert model.noise_variances_.shape == (k, n)
    with pytest.raises(AttributeError, match="factor"):
        _ = GaussianMixture(1).fit(x[:, :3]).loadings_


def test_no_component_of_a_chosen_mixture_has_fewer_rows_than_its_covariance_needs():
    """The likelihood of such a component has no bound: two groups of ten rows in six columns were
    seven components by BIC."""
    rng = np.random.default_rng(3)
    x = np.concatenate(
        [rng.standard_normal((10, 6)), rng.standard_normal((10, 6)) + 20]
    )  # so far apart that 28 parameters more pay
    assert GaussianMixture("auto", covariance_type="full", random_state=0).fit(x).n_components_ == 2
    found = eckart.select_mixture(x, (1, 2, 3, 7), ("full",), random_state=0)
    assert found.choices["bic"] == (2, "full")
    assert np.argmin(found.table["BIC"]) > 1
    assert (
        GaussianMixture("auto", covariance_type="full", random_state=0).fit(x[:4]).n_components_
        == 1
    )


@pytest.mark.one_seed  # of 60 others none has such a start
def test_a_start_without_an_upper_bound_does_not_hide_a_sound_one():
    """One of the two starts gave a component so few rows that its likelihood has no bound: one
    component was chosen for groups 22 deviations apart."""
    rng = np.random.default_rng(2004006015)
    x = np.concatenate([rng.standard_normal((18, 6)), rng.standard_normal((18, 6)) + 9])
    model = GaussianMixture("auto", covariance_type="full", random_state=0).fit(x)
    assert model.n_components_ == 2
    assert sorted(np.bincount(model.predict(x))) == [18, 18]
    assert eckart.select_mixture(x, (1, 2, 3), ("full",), random_state=0).choices["bic"] == (
        2,
        "full",
    )


def test_long_tails_that_cost_components_are_told():
    rng = np.random.default_rng(0)
    amounts = pd.DataFrame(
        {"income": np.exp(1.5 * rng.standard_normal(600)), "age": 40 + 9 * rng.standard_normal(600)}
    )
    told = GaussianMixture("auto", covariance_type="full", random_state=0).fit(amounts)
    assert told.n_components_ > 1
    assert any(
        "column 'income' has a long tail" in note and "logarithm" in note
        for note in told.certificate_.notes
    )
    quiet = GaussianMixture("auto", covariance_type="full", random_state=0).fit(
        amounts.assign(income=np.log(amounts.income))
    )
    assert quiet.n_components_ == 1
    assert not any("tail" in note for note in quiet.certificate_.notes)


def test_number_of_components_by_itself(rng, tmp_path):
    x = np.concatenate([rng.standard_normal((120, 2)) + np.array([7 * i, 0]) for i in range(4)])
    model = GaussianMixture("auto", covariance_type="spherical", random_state=0).fit(x)
    assert model.n_components_ == 4
    assert model.fit_.plan["chosen by"].startswith("BIC")
    assert model.n_components == "auto"
    model.save(tmp_path / "m.safetensors")
    table = eckart.load(tmp_path / "m.safetensors").fit_.plan["table"]
    assert np.argmin(table["BIC"]) == 3
    s = eckart.select_mixture(
        x, (3, 4, 5), ("diag", "spherical"), criterion="held_out", random_state=0
    )
    assert s.choices["bic"] == (4, "spherical")
    assert s.model.n_components_ == s.choices["held_out"][0]
    assert "chosen: bic 4 spherical" in str(s)
    assert isinstance(s.agree, bool)
    assert s.model.predict(x).shape == (480,)
    for bad in ({"criterion": "luck"}, {"held_out": 2.0}, {"n_components": ()}):
        with pytest.raises(eckart.InputError):
            eckart.select_mixture(x, **bad)


def test_starts(rng):
    # groups that lie apart on every seed: of two that overlap, starts find either place of the
    # boundary
    x = (
        rng.standard_normal((400, 2))
        + 9.0 * np.array([[0, 0], [1, 0], [0, 1]])[rng.integers(0, 3, 400)]
    )
    best = GaussianMixture(3, n_init=6, random_state=0).fit(x).lower_bound_
    for way in ("k-means++", "kmeans", "random", "random_from_data"):
        model = GaussianMixture(3, init_params=way, n_init=3, random_state=0, max_iter=300).fit(x)
        assert len(model.fit_.plan["ends"]) == 3
        assert model.lower_bound_ == pytest.approx(max(model.fit_.plan["ends"]))
        # three rows at random are of three groups in 2 of 9 starts alone
        if not way.startswith("random"):
            assert model.lower_bound_ > best - 0.05
    once = GaussianMixture(3, random_state=0, max_iter=1).fit(x)
    warm = once.set_params(warm_start=True, max_iter=100, tol=1e-6)
    begin = once.lower_bound_
    assert warm.fit(x).lower_bounds_[0] == pytest.approx(begin)
    means = GaussianMixture(3, means_init=x[:3], max_iter=1, random_state=0).fit(x)
    assert means.n_iter_ == 1
    verbose = GaussianMixture(2, verbose=1, random_state=0).fit(x)
    assert verbose.n_iter_ >= 1


@pytest.mark.in_one_piece
def test_ctrl_c_keeps_the_best_state(rng, monkeypatch):
    from eckart.engines.cpu.engine import CpuEngine

    calls, real = [], CpuEngine.gaussian_statistics

    def after_a_few(self, *args, **more):
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return real(self, *args, **more)

    monkeypatch.setattr(CpuEngine, "gaussian_statistics", after_a_few)
    model = GaussianMixture(3, init_params="random", random_state=0, tol=0.0).fit(groups(rng))
    assert model.fit_.trace.reason.name == "INTERRUPTED"
    assert model.n_iter_ == 2
    assert np.isfinite(model.means_).all()


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"n_components": 0}, "n_components must be an int >= 1 or 'auto', got 0"),
        ({"n_components": 1.5}, r"n_components must be an int >= 1 or 'auto', got 1\.5"),
        ({"n_components": "many"}, "n_components must be an int >= 1 or 'auto', got 'many'"),
        (
            {"covariance_type": "round"},
            "covariance_type must be None, 'unit', 'spherical', 'diag', 'tied', 'full' or 'factor',",
        ),
        ({"tol": -1.0}, r"tol must be a number >= 0, got -1\.0"),
        ({"max_iter": -1}, "max_iter must be an int >= 0, got -1"),
        ({"n_init": 0}, "n_init must be an int from 1 to 100000, got 0"),
        (
            {"init_params": "lucky"},
            r"init_params must be 'k-means\+\+', 'kmeans', 'random' or 'random_from_data', got 'lucky'",
        ),
        ({"reg_covar": -1e-6}, "reg_covar must be None or a number >= 0, got -1e-06"),
        ({"warm_start": "yes"}, "warm_start must be True or False, got 'yes'"),
        ({"n_components": 2, "weights_init": [0.2, 0.2]}, "weights_init"),
        (
            {"n_components": 2, "means_init": [[0.0]]},
            r"shape of \(2, 2\), but got \(1, 1\): set means_init",
        ),
        (
            {"n_components": 2, "means_init": [["a"]]},
            r"means_init must be an array of numbers of shape \(2, 2\), got something else \(could not",
        ),
        ({"n_components": 1, "precisions_init": -np.ones((1, 2, 2))}, "positive-definite"),
        (
            {"covariance_type": "diag", "precisions_init": -np.ones((1, 2))},
            r"precisions_init must hold numbers > 0, got -1\.0",
        ),
        ({"covariance_type": "unit", "precisions_init": np.ones(1)}, "precisions_init"),
        (
            {"n_components": 31},
            r"n_components must be at most 30, got 31: X has 30 sample\(s\) \(rows with weight\) and 2",
        ),
        ({"n_factors": 0}, "n_factors must be an int >= 1, got 0"),
    ],
)
def test_errors_name_the_argument_and_the_value(rng, params, words):
    with pytest.raises(eckart.InputError, match=words):
        GaussianMixture(**params).fit(rng.standard_normal((30, 2)))


def test_errors_name_the_place(rng):
    x = rng.standard_normal((30, 2))
    x[7, 1] = np.inf
    with pytest.raises(eckart.InputError, match="inf at row 7, column 1"):
        GaussianMixture(2).fit(x)
    x[:, 1] = np.nan
    with pytest.raises(eckart.InputError, match="column 1 of X has no observed entry"):
        GaussianMixture(2).fit(x)
    model = GaussianMixture(1).fit(np.ones((4, 2)))
    before = model.means_.tobytes()
    with pytest.raises(eckart.InputError, match="inf"):
        model.fit([[1.0, np.inf]])
    assert model.means_.tobytes() == before
    with pytest.raises(eckart.InputError, match="expecting 2 features"):
        model.predict(np.ones((2, 3)))
    with pytest.raises(AttributeError, match="no means_ before fit"):
        _ = GaussianMixture().means_
    with pytest.raises(eckart.InputError, match="sample_weight"):
        GaussianMixture().fit(np.ones((3, 2)), sample_weight=[1.0, -1.0, 1.0])
    with pytest.raises(eckart.InputError, match="leave the range"):
        GaussianMixture().fit(np.array([[1e200], [-1e200]]))


def test_columns_in_other_units_do_not_matter(rng):
    """The floor is scaled to each column: a column in tiny units is not drowned."""
    x = groups(rng, 400, 2, k=2, apart=5.0)
    scale = np.array([1e-6, 1e5])
    a, b = (
        GaussianMixture(2, random_state=0).fit(x),
        GaussianMixture(2, random_state=0).fit(x * scale),
    )
    np.testing.assert_allclose(b.means_, a.means_ * scale, rtol=1e-6)
    np.testing.assert_allclose(b.covariances_, a.covariances_ * np.outer(scale, scale), rtol=1e-5)


@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical", "unit", "factor"])
def test_bits_do_not_depend_on_the_number_of_threads(kind):
    """Starts, EM and certificate together, on rows that make many blocks."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((9000, 6)) + 3 * rng.integers(3, size=(9000, 1))
    found = []
    for threads in (1, 2, 3, 5, 16):
        m = GaussianMixture(
            3, covariance_type=kind, max_iter=3, n_init=2, random_state=0, n_threads=threads
        ).fit(x)
        found.append(
            (
                m.means_.tobytes(),
                m.weights_.tobytes(),
                m.lower_bound_,
                str(m.certificate_),
                m.score_samples(x).tobytes(),
            )
        )
    assert found.count(found[0]) == 5


def test_between_two_steps_only_small_arrays_cross():
    """Nothing that the E step hands to the chapter grows with the number of rows."""
    import eckart.engines as engines

    rows, seen = 3000, []

    class Watched(type(engines.engine_named("cpu"))):
        def gaussian_statistics(self, *args, **options):
            found = super().gaussian_statistics(*args, **options)
            seen.append(max(np.size(value) for value in vars(found).values()))
            return found

        def get(self, array):
            assert len(seen) < 2, "a tall array was fetched in the loop"
            return super().get(array)

    x = np.random.default_rng(0).standard_normal((rows, 3))
    GaussianMixture(2, max_iter=4, tol=0, random_state=0, engine=Watched(2), means_init=x[:2]).fit(
        x
    )
    assert len(seen) > 4
    assert max(seen) < rows


def _groups_beside_a_year(rng, rows=330):
    """Three groups in four measurements, and a column of whole years that says nothing about
    them."""
    label = np.arange(rows) % 3
    centres = np.array(
        [[38.8, 18.3, 190.0, 3.7], [48.8, 18.4, 197.0, 3.8], [47.5, 15.0, 217.0, 5.1]]
    )
    x = centres[label] + rng.standard_normal((rows, 4)) * [1.8, 0.7, 4.0, 0.25]
    return np.column_stack([x, rng.integers(2007, 2010, rows)]), label


@pytest.mark.parametrize("unit", [1.0, 365.25, 1e-3])
@pytest.mark.parametrize("gaps", [False, True])
def test_a_column_of_few_values_is_no_group(rng, unit, gaps):
    x, label = _groups_beside_a_year(rng)
    x[:, 4] *= unit
    if gaps:
        x[rng.random(x.shape) < 0.05] = np.nan
    m = GaussianMixture("auto", covariance_type="full", random_state=0).fit(x)
    assert (
        3 <= m.n_components_ <= 4
        # an even spread over three years is no normal one, which is worth a component on one seed
        # in 25; there were seven
    )
    # the groups overlap a little, and gaps hide some of them
    assert adjusted_rand_score(label, m.predict(x)) > 0.75
    assert m.certificate_.holds
    assert m.certify(x).holds
    np.testing.assert_allclose(m.fit_.plan["steps"], [0, 0, 0, 0, unit], rtol=1e-9)


@pytest.mark.parametrize("kind", ["full", "tied", "diag", "factor"])
def test_no_written_value_has_a_probability_above_one(kind):
    x = np.repeat(np.arange(3) * 7.0, 60)[:, None]
    start = {"means_init": np.unique(x, axis=0), "covariance_type": kind, "n_factors": 1}
    assert np.exp(GaussianMixture(3, **start).fit(x).score_samples(x)).max() * 7 <= 1 + 1e-9
    # what the user says about variances is done
    asked = GaussianMixture(3, reg_covar=0.0, **start).fit(x)
    assert np.exp(asked.score_samples(x)).max() * 7 > 100


def test_the_default_start_ends_where_the_best_of_many_do():
    """From most single starts the flowers end at -1.26 a row."""
    iris = load_iris().data
    for seed in range(4):
        assert GaussianMixture(3, random_state=seed).fit(iris).score(iris) > -1.21


def test_rare_answers_are_no_groups(rng):
    """Three groups in four measurements, and eight questions that one in thirty says yes to: the
    step of an answer holds for every k of a search."""
    x, label = _groups_beside_a_year(rng)
    x = np.column_stack([x[:, :4], rng.random((len(x), 8)) < 0.03])
    model = GaussianMixture("auto", covariance_type="tied", random_state=0).fit(x)
    assert model.n_components_ == 3
    assert adjusted_rand_score(label, model.predict(x)) > 0.75
    assert model.certify(x).holds


@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
def test_steps_do_not_swallow_the_spread_of_all_rows(kind, rng):
    """A yes in twenty, two points, answers that agree: their covariance is less than a step allows,
    and still that of a single component."""
    agree = (rng.random((300, 1)) < 0.5) ^ (rng.random((300, 3)) < 0.02)
    for x in (np.array([[0.0, 0.0], [1.0, 3.0]]), (rng.random((300, 1)) < 0.05) * 7.0, agree * 1.0):
        model = GaussianMixture(1, covariance_type=kind).fit(x)
        want = np.atleast_2d(np.cov(x.T, bias=True))
        got = {
            "full": lambda c: c[0],
            "tied": lambda c: c,
            "diag": lambda c: np.diag(c[0]),
            "spherical": lambda c: c[0],
        }[kind](model.covariances_)
        want = (
            want
            if kind in ("full", "tied")
            else np.diag(np.diag(want))
            if kind == "diag"
            else np.trace(want) / len(want)
        )
        np.testing.assert_allclose(got, want, atol=1e-5 * np.max(want))
        assert model.certify(x).holds
    rare = (np.arange(60)[:, None] % 12 == 0) * 1.0
    alone = GaussianMixture("auto", covariance_type=kind).fit(rare)
    assert alone.n_components_ == 1
    assert alone.certify(rare).holds


@given(
    st.lists(st.integers(-10_000, 10_000), min_size=2, max_size=30),
    st.sampled_from([1.0, 0.1, 0.25, 1 / 3, 1e-7, 1e9]),
)
def test_the_step_is_the_common_divisor(whole, unit):
    values = np.array(whole, np.float64)
    wanted = np.gcd.reduce(np.diff(np.unique(values)).astype(int), initial=0)
    found = common_step(values * unit + 3 * unit, 0.0)
    # a rest of rests has the noise of many values
    assert found == pytest.approx(wanted * unit, rel=1e-4)


def test_measurements_have_no_step(rng):
    x = rng.standard_normal(5000)
    assert common_step(x, 1e-3) == 0
    assert common_step(x.astype(np.float32), np.float32(1e-3)) == 0
    assert common_step(np.round(x, 1).astype(np.float32), 1e-3) == pytest.approx(0.1, rel=1e-4)
    assert common_step(np.full(5, np.nan), 1e-3) == 0
    assert common_step(np.full(5, 2.0), 1e-3) == 0


def test_the_kind_of_covariance_is_chosen_too():
    """Of "full" alone 26 groups were eight components: so many covariances cost more than they
    gain."""
    rng = np.random.default_rng(0)
    centres = 9 * rng.standard_normal((7, 5))
    label = np.repeat(np.arange(7), 20)
    x = centres[label] + rng.standard_normal((140, 5)) @ rng.standard_normal((5, 5))
    chosen = GaussianMixture("auto", random_state=0).fit(x)
    full = GaussianMixture("auto", covariance_type="full", random_state=0).fit(x)
    assert chosen.bic(x) < full.bic(x)
    assert chosen.fit_.plan["covariance"] == "tied"
    assert 7 <= chosen.n_components_ <= 8
    table = chosen.fit_.plan["table"]
    assert set(table["covariance"]) >= {"spherical", "diag", "tied", "full"}
    assert min(table["BIC"]) == pytest.approx(chosen.bic(x), rel=1e-6)
    assert "multiply-adds" in chosen.fit_.plan["budget"]
    assert set(full.fit_.plan["table"]["covariance"]) == {"full"}
    assert chosen.certify(x).holds


def test_a_search_that_ends_with_its_budget_says_so(monkeypatch):
    from eckart.explain.mixtures import select

    monkeypatch.setattr(select, "BUDGET", 1e3)
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.standard_normal((60, 3)) + 9 * i for i in range(5)])
    chosen = GaussianMixture("auto", random_state=0).fit(x)
    assert chosen.fit_.plan["ended by the budget"]
    assert any("budget" in note for note in chosen.certificate_.notes)
