"""PCA(scale=True): units do not matter; and what a fit says where they do."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.datasets import load_digits, load_wine

from eckart import PCA, load
from eckart.errors import InputError
from eckart.reduce.standardise import Units

WINE = load_wine().data


def standardised(x):
    s = np.nanstd(x, axis=0)
    return x / np.where(s > 0, s, 1.0)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.lists(st.integers(-6, 6), min_size=4, max_size=4))
def test_codes_do_not_depend_on_units(seed, powers):
    x = np.random.default_rng(seed).standard_normal((30, 4)) @ np.random.default_rng(
        seed + 1
    ).standard_normal((4, 4))
    units = 10.0 ** np.array(powers)
    a, b = PCA(2, scale=True).fit(x), PCA(2, scale=True).fit(x * units)
    assert np.allclose(a.explained_variance_, b.explained_variance_)
    gap = (
        a.explained_variance_[0] - a.explained_variance_[1] > 1e-3
        and a.explained_variance_[1] - a.noise_variance_ > 1e-3
    )
    if gap:  # directions of equal variance may turn
        assert np.allclose(np.abs(a.transform(x)), np.abs(b.transform(x * units)), atol=1e-6)
        assert np.allclose(
            a.inverse_transform(a.transform(x)) * units, b.inverse_transform(b.transform(x * units))
        )


@pytest.mark.parametrize("solver", ["svd", "eigh", "randomized", "lanczos", "power"])
def test_it_is_the_pca_of_standardised_columns(solver):
    a, b = (
        PCA(3, scale=True, svd_solver=solver, random_state=0),
        PCA(3, svd_solver=solver, random_state=0),
    )
    codes, wanted = a.fit_transform(WINE), b.fit_transform(standardised(WINE))
    assert np.allclose(np.abs(codes), np.abs(wanted), atol=1e-3)
    assert np.allclose(a.mean_, WINE.mean(axis=0))
    assert np.allclose(a.scale_, WINE.std(axis=0))
    assert a.certificate_.holds
    assert a.certify(WINE).holds
    assert np.allclose(a.score_samples(WINE), b.score_samples(standardised(WINE)), atol=1e-2)
    assert np.allclose(a.spe(WINE), b.spe(standardised(WINE)), atol=1e-3)


def test_gaps_are_filled_in_the_units_of_the_data():
    x = WINE.copy()
    x[np.random.default_rng(0).random(x.shape) < 0.1] = np.nan
    model = PCA(3, scale=True, random_state=0).fit(x)
    filled = model.impute(x)
    assert np.allclose(filled[~np.isnan(x)], x[~np.isnan(x)])
    plain, means = (
        PCA(3, random_state=0).fit(x).impute(x),
        np.where(np.isnan(x), np.nanmean(x, axis=0), x),
    )
    error = [
        np.mean(((f - WINE) / WINE.std(axis=0))[np.isnan(x)] ** 2) for f in (filled, plain, means)
    ]
    assert error[0] < 0.9 * min(error[1:])


def test_sparse_blocks_and_partial_fit_agree_with_the_array():
    x = np.random.default_rng(0).poisson(0.5, (300, 8)) * 10.0 ** np.arange(8)
    whole = PCA(2, scale=True).fit(x)
    blocks = [x[:100], x[100:]]
    parts = PCA(2, scale=True).partial_fit(blocks[0]).partial_fit(blocks[1])
    for other in (
        PCA(2, scale=True).fit(sparse.csr_array(x)),
        PCA(2, scale=True).fit(blocks),
        parts,
    ):
        assert np.allclose(other.scale_, whole.scale_)
        assert np.allclose(other.explained_variance_, whole.explained_variance_)
        assert np.allclose(np.abs(other.transform(x)), np.abs(whole.transform(x)), atol=1e-6)
        assert other.certificate_.holds
    with pytest.raises(InputError, match="read once"):
        PCA(2, scale=True).fit(iter(blocks))


def test_saved_with_its_units(tmp_path):
    model = PCA(2, scale=True).fit(WINE)
    model.save(tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors")
    assert (again.transform(WINE) == model.transform(WINE)).all()
    assert (
        again.inverse_transform(again.transform(WINE))
        == model.inverse_transform(model.transform(WINE))
    ).all()


def test_a_constant_column_stays():
    x = np.column_stack([WINE[:, :3], np.full(len(WINE), 1e9)])
    model = PCA(2, scale=True).fit(x)
    assert model.scale_[3] == 1.0
    assert np.allclose(model.components_[:, 3], 0, atol=1e-6)


def test_units_that_differ_are_named_and_pixels_are_not():
    wine = load_wine(as_frame=True).data
    plan = PCA(2).fit(wine).fit_.plan["units"]
    assert plan["differ"]
    assert plan["largest"] == "proline"
    assert plan["ratio"] == pytest.approx(WINE.std(0).max() / WINE.std(0).min())
    assert any("scale=True" in note for note in PCA(2).fit(wine).certificate_.notes)
    for quiet in (PCA(2).fit(load_digits().data), PCA(2, scale=True).fit(WINE)):
        assert not any("scale=True" in note for note in quiet.certificate_.notes)
    assert Units.of(np.array([1.0, 0.0]), np.ones(2), 1e-16) is None
