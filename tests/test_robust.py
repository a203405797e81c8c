"""Robust principal components: the split is exact where theory says so, and proven everywhere."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eckart
from eckart import PCA, InputError, RobustPCA
from eckart.trace import StopReason


def spoiled(seed, rows=80, columns=40, rank=3, share=0.08, missing=0.0, shift=0.0):
    """A matrix of low rank, the same with a share of entries replaced, and where."""
    rng = np.random.default_rng(seed)
    clean = rng.standard_normal((rows, rank)) @ rng.standard_normal((rank, columns)) + shift
    wrong = rng.random(clean.shape) < share
    x = clean + np.where(wrong, 30 * rng.standard_normal(clean.shape), 0)
    x[rng.random(clean.shape) < missing] = np.nan
    return clean, x, wrong


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("shape", [(80, 40), (60, 120)])
def test_both_parts_are_recovered(shape, missing):
    clean, x, _ = spoiled(0, *shape, rank=2, share=0.05, missing=missing)
    model = RobustPCA(center=False).fit(x)
    scale = np.abs(clean).max()
    assert model.n_components_ == 2
    assert model.certificate_.holds
    assert np.abs(model.low_rank_ - clean).max() < 1e-2 * scale
    seen = ~np.isnan(x)
    assert np.allclose(
        (model.low_rank_ + model.sparse_.toarray())[seen], x[seen], atol=1e-2 * scale
    )
    assert not model.sparse_.toarray()[~seen].any()
    assert np.abs(model.impute(x) - clean)[~seen].max(initial=0.0) < 1e-2 * scale


def test_one_wrong_entry_turns_pca_but_not_this():
    clean, x, _ = spoiled(1, share=0.0)
    x[0, 0] += 1e4
    true = PCA(3).fit(clean)
    turned = eckart.subspace_distance(PCA(3).fit(x).components_.T, true.components_.T)
    kept = eckart.subspace_distance(RobustPCA(3).fit(x).components_.T, true.components_.T)
    assert turned > 0.5
    assert kept < 0.15  # the medians are not the means


def test_codes_of_new_rows_do_not_move_with_wrong_entries():
    clean, x, _ = spoiled(2, rows=120)
    model = RobustPCA(center=False).fit(x[:80])
    back = model.inverse_transform(model.transform(x[80:]))
    assert np.abs(back - clean[80:]).max() < 1e-2 * np.abs(clean).max()


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([1e-6, 1e-2, 1e6]))
def test_the_unit_of_the_data_does_not_matter(seed, unit):
    _, x, _ = spoiled(seed, rows=20, columns=12, rank=2, missing=0.1, shift=2.0)
    one, other = RobustPCA(max_iter=60).fit(x), RobustPCA(max_iter=60).fit(unit * x)
    assert np.allclose(other.low_rank_, unit * one.low_rank_, rtol=1e-6, atol=1e-9 * unit)
    assert np.allclose(other.sparse_.toarray(), unit * one.sparse_.toarray(), atol=1e-6 * unit)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000))
def test_no_other_split_is_better(seed):
    """The certified bound is below the objective of any split; the gap is that of the answer."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((12, 8))
    model = RobustPCA(center=False, tol=1e-3).fit(x)
    bound, lam = model.certificate_.facts["bound"], model.fit_.plan["l1"]
    unit = np.abs(x).max()  # the objective is measured in units of the largest entry

    def objective(low):
        return (np.linalg.norm(low, "nuc") + lam * np.abs(x - low).sum()) / unit

    assert objective(model.low_rank_) <= model.certificate_.facts["objective"] * (1 + 1e-9)
    for _ in range(20):
        other = model.low_rank_ + rng.standard_normal(x.shape) * 10.0 ** rng.uniform(-6, 0)
        assert objective(other) >= bound


def test_a_gap_that_is_too_large_is_not_certified():
    _, x, _ = spoiled(3)
    with pytest.warns(UserWarning, match="max_iter"):
        model = RobustPCA(max_iter=2).fit(x)
    assert not model.certificate_.holds


def test_a_saved_model_answers_the_same(tmp_path):
    _, x, _ = spoiled(4, missing=0.1)
    names = [f"c{j}" for j in range(x.shape[1])]
    model = RobustPCA(2).fit(pd.DataFrame(x, columns=names))
    model.save(tmp_path / "m.safetensors")
    back = eckart.load(tmp_path / "m.safetensors")
    assert np.array_equal(back.low_rank_, model.low_rank_)
    assert (back.sparse_ != model.sparse_).nnz == 0
    new = pd.DataFrame(x[:5], columns=names)
    assert np.array_equal(back.transform(new), model.transform(new))
    assert next(t[0] for t in back.top_features(1)[0]) in names


def test_the_certificate_is_measured_again_and_bites():
    _, x, _ = spoiled(6, missing=0.1)
    model = RobustPCA().fit(x)
    again = model.certify(x)
    assert again.holds
    assert again.facts["objective"] == pytest.approx(
        model.certificate_.facts["objective"], rel=1e-6
    )
    arrays, fit = model.extra_state(), model.fit_
    other = RobustPCA()
    arrays = arrays | {"codes": 1.05 * arrays["codes"]}  # another L
    other.restore(fit.factors, fit.certificate, fit.trace, fit.plan, arrays)
    assert not other.certify(x).holds
    with pytest.raises(InputError, match="rows of the fit"):
        model.certify(x[:10])


def test_an_interrupted_fit_keeps_its_best_state(monkeypatch):
    _, x, _ = spoiled(5)
    calls = []

    def stop(stage, done, total):
        calls.append(done)
        if len(calls) == 2:
            raise KeyboardInterrupt

    from contextlib import contextmanager

    @contextmanager
    def watched(show):
        yield stop

    monkeypatch.setattr("eckart.reduce.robust.progress", watched)
    with pytest.warns(UserWarning, match="interrupted"):
        model = RobustPCA().fit(x)
    assert model.fit_.trace.reason is StopReason.INTERRUPTED
    assert np.isfinite(model.low_rank_).all()


def test_data_in_parts_are_refused_in_words():
    with pytest.raises(InputError, match="Use PCA"):
        RobustPCA().fit(iter([np.ones((3, 2)), np.ones((4, 2))]))


def test_constant_and_empty_columns():
    model = RobustPCA().fit(np.full((6, 3), 7.0))
    assert model.n_components_ == 0
    assert np.array_equal(model.low_rank_, np.full((6, 3), 7.0))
    x = np.random.default_rng(0).standard_normal((9, 4))
    x[:, 2] = np.nan
    assert np.isfinite(RobustPCA(max_iter=50, tol=0.5).fit(x).low_rank_).all()
