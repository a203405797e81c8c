"""Blend: shares that hidden entries chose."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone
from tests.test_items import labelled_eye, taken

import eckart
from eckart import ALS, EASE, SLIM, Blend, Observed, SpectralFilter
from eckart.complete.items.blend_weights import Pool, alone, choose, climb
from eckart.metrics import ndcg_at_k

MEMBERS = {
    "ease": EASE(l2=2.0),
    "gf-cf": SpectralFilter(4),
    "als": ALS(3, feedback="implicit", tol=1e-12, max_iter=2000),
}


def pool_of(scores, relevant, at=5):
    return Pool.of([np.asarray(s, float) for s in scores], sparse.csr_array(relevant), at)


@pytest.fixture(scope="module")
def model():
    """All members have a share, whatever hidden entries say of so small a table."""
    x = taken(120, 24)
    built = Blend(MEMBERS, at=5, random_state=0).fit(x)
    members = {name: clone(m).set_params(random_state=0).fit(x) for name, m in MEMBERS.items()}
    built._become(members, np.array([0.5, 0.3, 0.2]), x, built.fit_.plan["told"], {})
    return built


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 3))
def test_a_climb_never_ends_below_the_best_member_and_its_ndcg_is_that_of_the_lists(seed, members):
    rng = np.random.default_rng(seed)
    truth = rng.random((12, 30)) < 0.2
    truth[:, 0] = True
    scores = [truth + rng.normal(size=truth.shape) for _ in range(members)]
    pool = pool_of(scores, truth)
    shares = climb(pool)
    assert shares.sum() == pytest.approx(1.0)
    assert (shares >= 0).all()
    assert pool.ndcg(shares).mean() >= pool.ndcg(alone(pool)).mean()
    lists = np.argsort(-sum(c * s for c, s in zip(shares, scores)), axis=1, kind="stable")[:, :5]
    assert pool.ndcg(shares).mean() == pytest.approx(ndcg_at_k(lists, sparse.csr_array(truth), 5))


def test_two_members_that_know_different_things_are_mixed_and_the_gain_is_told():
    rng = np.random.default_rng(1)
    truth = rng.random((600, 60)) < 0.1
    truth[:, 0] = True
    scores = [truth + 1.2 * rng.normal(size=truth.shape) for _ in range(2)]
    found = choose(pool_of(scores, truth), np.random.default_rng(0))
    assert found.shares.min() > 0.2
    assert found.gain > 5 * found.error > 0
    assert found.blended > found.members.max()


def test_a_member_that_knows_nothing_gets_no_share():
    rng = np.random.default_rng(2)
    truth = rng.random((400, 40)) < 0.1
    truth[:, 0] = True
    scores = [truth + 0.5 * rng.normal(size=truth.shape), rng.normal(size=truth.shape)]
    found = choose(pool_of(scores, truth), np.random.default_rng(0))
    assert found.shares[1] <= 0.05
    assert found.gain <= 3 * found.error


def test_scores_are_the_sum_of_even_rows_of_the_members(model):
    x = model.observed_
    wanted = np.zeros(x.shape)
    for share, member in zip(model.shares_.values(), model.members_.values()):
        block = member._lowrank().block(np.arange(x.shape[0]))
        size = np.sqrt(np.mean(block**2, axis=1, keepdims=True))
        wanted += share * block / np.where(size > 0, size, 1)
    np.testing.assert_allclose(
        np.concatenate([b for _, b in model.complete(keep=False)]), wanted, rtol=1e-9, atol=1e-12
    )
    np.testing.assert_allclose(
        model.predict(["u3", "u90"], ["c2", "c20"]), wanted[[3, 90], [2, 20]], rtol=1e-9
    )
    seen = x.to_scipy().toarray() > 0
    order = np.argsort(-np.where(seen, -np.inf, wanted), axis=1, kind="stable")[:, :4]
    np.testing.assert_array_equal(model.recommend(n=4).positions, order)
    some = model.recommend(
        "u3", n=3, candidates=["c5", "c6", "c7", "c8"], exclude="c8", exclude_seen=False
    )
    assert set(some.columns[0]) == {"c5", "c6", "c7"}


def test_new_rows_have_the_scores_that_fitted_rows_with_the_same_entries_have(model):
    x = model.observed_
    new = Observed(x.indptr, x.indices, x.data, x.n_columns, None, x.columns)
    np.testing.assert_allclose(
        model.fold_in(new), model.predict(x.rows), atol=1e-3
    )  # ALS ends its sweeps near it, not at it
    with pytest.raises(eckart.InputError, match="new fit"):
        model.fold_in(new, axis="columns")


def test_explanations_add_up_and_say_what_each_member_adds(model):
    why = model.explain("u2", "c4", n=100)
    assert why.prediction == pytest.approx(float(model.predict("u2", "c4")[0]), rel=1e-4)
    assert sum(share for _, _, share in why.shares) + why.base == pytest.approx(
        why.prediction, rel=1e-6
    )
    assert set(why.parts) == set(MEMBERS)
    assert "in parts: ease" in str(why)


def test_alike_is_what_is_taken_together(model):
    found = model.similar(columns="c2", n=5)
    assert "c2" not in found.columns[0]
    alone_there = model.fold_in(labelled_eye(model))[2]
    alone_there[2] = -np.inf
    np.testing.assert_array_equal(found.positions[0], np.argsort(-alone_there, kind="stable")[:5])
    assert "u7" not in model.similar(rows="u7", n=10).columns[0]


def test_files_and_pickles_give_the_same_answers(model, tmp_path):
    model.save(tmp_path / "m.safetensors")
    for back in (eckart.load(tmp_path / "m.safetensors"), pickle.loads(pickle.dumps(model))):
        assert list(back.recommend(n=3).entries()) == list(model.recommend(n=3).entries())
        assert back.certificate_ == model.certificate_
        assert back.shares_ == model.shares_
        assert {name: type(m).__name__ for name, m in back.models.items()} == {
            name: type(m).__name__ for name, m in MEMBERS.items()
        }
        assert back.certify(model.observed_)["ease: relative gap"] < 1e-9


def test_a_given_validation_half_chooses_and_is_part_of_the_final_fit():
    x = taken(300, 30, seed=3)
    parts = eckart.split(x, 0.2, random_state=0)
    found = Blend({"ease": EASE(l2=2.0), "slim": SLIM(l2=1.0, l1=0.1)}, at=5, random_state=0).fit(
        parts.train, validation=parts.test
    )
    assert found.observed_.nnz == x.nnz
    np.testing.assert_array_equal(
        found.observed_.to_scipy().toarray() > 0, x.to_scipy().toarray() > 0
    )
    assert found.certificate_["hidden entries"] == parts.test.nnz
    assert found.certificate_["ndcg@5 of ease"] > 0
    assert sum(found.shares_.values()) == pytest.approx(1.0)
    assert found.certificate_.holds, found.certificate_


def test_a_certificate_fails_with_that_of_a_member(model):
    weights = model.members_["ease"].fit_.factors.weights
    before = weights.copy()
    try:
        weights[0, 1] += 1.0
        broken = model.certify(model.observed_)
        assert not broken.holds
        assert "ease: relative gap" in broken.reason
    finally:
        weights[:] = before


def test_rows_are_taken_in_without_a_fit():
    x = taken()
    some = replace(
        x,
        indptr=x.indptr[:71],
        indices=x.indices[: x.indptr[70]],
        data=x.data[: x.indptr[70]],
        rows=x.rows[:70],
    )
    found = Blend({"ease": EASE(l2=2.0)}, random_state=0).fit(some)
    start = x.indptr[68]
    found.update(
        replace(
            x,
            indptr=x.indptr[68:] - start,
            indices=x.indices[start:],
            data=x.data[start:],
            rows=x.rows[68:],
        )
    )
    assert found.observed_.shape == (80, 20)
    assert len(found.recommend("u79", n=3).columns[0]) == 3
    with pytest.raises(eckart.InputError, match="new fit"):
        found.update(x, axis="columns")


def test_what_cannot_be_blended_is_refused_in_words():
    x = taken()
    for models, words in (
        ({"pca": eckart.PCA()}, "EASE, SLIM, SpectralFilter"),
        ({}, "estimators by name"),
        ({"als": ALS(2)}, "feedback='implicit'"),
    ):
        with pytest.raises(eckart.InputError, match=words):
            Blend(models).fit(x)
    with pytest.raises(
        eckart.InputError,
        match=r"validation must have the rows and columns of X, shape \(80, 20\), with the same ids, got",
    ):
        Blend(MEMBERS).fit(x, validation=taken(10, 4))
    with pytest.raises(eckart.InputError, match="Negative values"):
        Blend(MEMBERS, random_state=0).fit(replace(x, data=-x.data))
    with pytest.raises(
        eckart.InputError,
        match="weights are not taken: the strengths are in X itself, with strengths='raw' in the",
    ):
        Blend(MEMBERS).fit(x, weights=np.ones(x.nnz))
