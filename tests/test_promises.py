"""What every estimator promises. A new one joins by being listed once, in ESTIMATORS."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

import eckart
from conftest import planted
from eckart import PCA, LinearAutoencoder

ESTIMATORS = [
    PCA(n_components=3),
    PCA(n_components=3, svd_solver="randomized", random_state=0),
    PCA(n_components=3, whiten=True, rotation="varimax"),
    LinearAutoencoder(n_components=3, random_state=0),
]

ALL_COMPONENTS = "n_components=None keeps min(rows, columns) components, as scikit-learn does, so repeating a row changes their number"


@parametrize_with_checks(
    [
        PCA(),
        PCA(n_components=2),
        PCA(n_components=1, svd_solver="lanczos", random_state=0),
        LinearAutoencoder(max_iter=500, random_state=0),
    ],
    expected_failed_checks=lambda e: (
        {
            "check_sample_weight_equivalence_on_dense_data": ALL_COMPONENTS,
            "check_sample_weight_equivalence_on_sparse_data": ALL_COMPONENTS,
        }
        if isinstance(e, PCA) and e.n_components is None
        else {}
    ),
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture(params=ESTIMATORS, ids=lambda e: repr(e)[:60])
def estimator(request):
    return clone(request.param)


@pytest.fixture
def x(rng):
    return planted(rng, rows=300, n=12, rank=3)


def state(model):
    b = model.fit_.factors
    return b.components.tobytes() + b.mean.tobytes() + b.scatter.tobytes() + str(b.total).encode()


def test_certificate_holds_and_reads_like_a_sentence(estimator, x):
    c = estimator.fit(x).certificate_
    assert c.holds, c
    assert "HOLDS" in str(c)
    assert c.reason == ""
    assert {"captured variance", "total variance"} <= set(c.facts)


def test_seed_and_threads_do_not_change_a_bit(estimator, rng):
    x = planted(rng, rows=5000, n=40, dtype=np.float32)
    first = clone(estimator).set_params(random_state=7, n_threads=1).fit(x)
    for threads in (1, 2, 3):
        assert state(clone(estimator).set_params(random_state=7, n_threads=threads).fit(x)) == state(first)


def test_parameters_are_untouched(estimator, x):
    before = estimator.get_params()
    assert estimator.fit(x).get_params() == before


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype_is_kept(estimator, x, dtype):
    model = estimator.fit(x.astype(dtype))
    assert model.components_.dtype == dtype
    assert model.mean_.dtype == dtype
    codes = model.transform(x.astype(dtype))
    assert codes.dtype == dtype
    assert model.inverse_transform(codes).dtype == dtype


def test_save_and_load_give_the_same_bits(estimator, x, tmp_path):
    model = estimator.fit(x)
    model.save(tmp_path / "m.safetensors")
    back = eckart.load(tmp_path / "m.safetensors")
    assert type(back) is type(model)
    assert back.get_params() == model.get_params()
    np.testing.assert_array_equal(back.transform(x), model.transform(x))
    assert back.certificate_ == model.certificate_
    assert back.fit_.trace.to_dict() == model.fit_.trace.to_dict()


def test_pickle_and_clone(estimator, x):
    model = estimator.fit(x)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).transform(x), model.transform(x))
    assert not hasattr(clone(model), "fit_")


def test_new_rows_one_at_a_time(estimator, x):
    model = estimator.fit(x)
    whole = model.transform(x[:5])
    for i in range(5):
        np.testing.assert_allclose(model.transform(x[i : i + 1]), whole[i : i + 1], atol=1e-9)


def test_rows_with_gaps_are_encoded_near_their_complete_codes(estimator, x, rng):
    model = estimator.fit(x)
    holes = x.copy()
    holes[rng.random(x.shape) < 0.1] = np.nan
    codes = model.transform(holes)
    assert np.isfinite(codes).all()
    spread = model.transform(x).std(axis=0)
    assert np.median(np.abs(codes - model.transform(x)) / spread) < 0.2
    full = ~np.isnan(holes).any(axis=1)
    np.testing.assert_allclose(codes[full], model.transform(x[full]), atol=1e-6 * spread.max())


def test_training_data_with_gaps(estimator, x, rng):
    holes = x.copy()
    holes[rng.random(x.shape) < 0.1] = np.nan
    model = estimator.fit(holes)
    assert eckart.principal_angles(model.components_.T, clone(estimator).fit(x).components_.T).max() < 0.2
    assert np.isfinite(model.transform(holes)).all()


def test_a_failed_fit_leaves_the_old_state(estimator, x):
    model = estimator.fit(x)
    before = state(model)
    bad = x.copy()
    bad[3, 2] = np.inf
    with pytest.raises(eckart.InputError, match="inf at row 3, column 2"):
        model.fit(bad)
    assert state(model) == before


def test_the_blas_setting_of_the_user_comes_back(estimator, x):
    from threadpoolctl import threadpool_info

    before = [(lib["filepath"], lib["num_threads"]) for lib in threadpool_info() if lib["user_api"] == "blas"]
    estimator.fit(x)
    after = [(lib["filepath"], lib["num_threads"]) for lib in threadpool_info() if lib["user_api"] == "blas"]
    assert before == after


def test_pandas_in_pandas_out(estimator, x):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(x, columns=[f"c{i}" for i in range(12)], index=range(1000, 1300))
    out = estimator.set_output(transform="pandas").fit(frame).transform(frame)
    assert list(out.index) == list(frame.index)
    assert list(out.columns) == list(estimator.get_feature_names_out())
    assert list(estimator.feature_names_in_) == list(frame.columns)
    with pytest.raises(ValueError, match="feature names should match"):
        estimator.transform(frame.rename(columns={"c0": "other"}))
