"""Lists by the chance of being taken up and liked: the formula, what it is for, and when it is not
used."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from eckart import ALS, BayesianMF, InputError, Observed, SoftImpute, load
from eckart.complete.demand import LEAST, PRIOR, Demand
from eckart.metrics import ranking


def chosen_by_people(seed=0, n=300, m=120, hide=0.2):
    """Ratings 1 to 5 of what people of three tastes meet: popular things, of their taste, and
    seldom what they dislike; and likes that were hidden."""
    rng = np.random.default_rng(seed)
    taste, kind = rng.integers(3, size=n), rng.integers(3, size=m)
    match = taste[:, None] == kind
    popular = rng.pareto(1.0, m) + 0.05
    met = rng.random((n, m)) < np.minimum(0.9, 0.12 * popular * np.where(match, 1.5, 0.15))
    value = np.clip(
        np.round(3 + match + 0.5 * rng.standard_normal(m) + 0.8 * rng.standard_normal((n, m))), 1, 5
    )
    hidden = met & (value >= 4) & (rng.random((n, m)) < hide)
    return Observed.from_nan(np.where(met & ~hidden, value, np.nan)), hidden


@pytest.fixture(scope="module")
def people():
    return chosen_by_people()


@pytest.fixture(scope="module")
def model(people):
    return ALS(4, random_state=0).fit(people[0])


def test_the_lists_are_the_sorted_formula(people, model):
    x, _ = people
    demand, f = model.demand(), model.fit_.factors
    d = demand.model.fit_.factors
    counts = x.row_counts()[:, None]
    p = (counts * d.block(slice(None)) + PRIOR * x.column_counts() / x.shape[0]) / (counts + PRIOR)
    liked = norm.cdf((np.clip(f.block(slice(None)), 1, 5) - demand.liked) / demand.spread)
    assert demand.liked == np.median(x.data) - 0.5
    seen = x.to_scipy().toarray() > 0
    score = np.where(seen, -np.inf, 2 * np.log(np.maximum(p, LEAST)) + np.log(liked))
    for n in (1, 3, 10):
        found = model.recommend(n=n)
        assert found.by == "chance"
        got = np.take_along_axis(score, found.positions, axis=1)
        np.testing.assert_allclose(got, -np.sort(-score, axis=1)[:, :n], rtol=1e-9)
        values = np.clip(np.take_along_axis(f.block(slice(None)), found.positions, axis=1), 1, 5)
        np.testing.assert_allclose(found.scores, values)
        np.testing.assert_array_equal(found.support, x.column_counts()[found.positions])


@pytest.mark.parametrize(
    "estimator",
    [ALS(4), BayesianMF(4, n_samples=10, burn_in=20, thin=1), SoftImpute()],
    ids=lambda e: type(e).__name__,
)
def test_hidden_likes_are_found_and_rare_columns_do_not_lead(people, estimator):
    x, hidden = people
    fitted = type(estimator)(**estimator.get_params(deep=False) | {"random_state": 0}).fit(x)
    rows = np.flatnonzero(hidden.any(axis=1))
    relevant = [np.flatnonzero(hidden[i]) for i in rows]
    seen = x.to_scipy().toarray()[rows] > 0
    popular = np.argsort(-np.where(seen, -1.0, x.column_counts()), axis=1, kind="stable")[:, :10]
    ours = fitted.recommend(rows)
    by_stars = fitted.recommend(rows, by="prediction")
    score = [
        ranking(lists, relevant, 10, ("ndcg",)).mean["ndcg"]
        for lists in (ours.positions, popular, by_stars.positions)
    ]
    assert score[0] > 1.1 * max(score[1:])
    assert ours.scores.max() <= 5
    assert ours.scores.min() >= 1
    rare = np.flatnonzero(x.column_counts() < 5)
    assert np.bincount(ours.positions.ravel(), minlength=x.n_columns)[rare].max() <= 0.01 * len(
        rows
    )


def test_at_random_means_by_prediction():
    rng = np.random.default_rng(0)
    a = np.round(3 + rng.standard_normal((200, 3)) @ rng.standard_normal((3, 40)))
    model = ALS(3, random_state=0).fit(np.where(rng.random(a.shape) < 0.4, a, np.nan))
    assert not model.demand().informative
    assert model.recommend(n=3).by == "prediction"
    assert model.recommend(n=3, by="chance").by == "chance"


def test_support(people, model):
    x, _ = people
    counts = x.column_counts()
    few = model.recommend(n=5, by="prediction", min_support=20)
    assert counts[few.positions].min() >= 20
    assert set(few.to_table()) == {"row", "rank", "column", "score", "observations"}
    with pytest.raises(InputError, match="min_support="):
        model.recommend(min_support=10**6)
    for wrong in (-1, 1.5, True):
        with pytest.raises(InputError, match="min_support"):
            model.recommend(min_support=wrong)
    with pytest.raises(InputError, match="'chance'"):
        model.recommend(by="stars")


def test_saved_with_its_lists(people, model, tmp_path):
    lists = model.recommend(n=5)
    model.save(tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors")
    assert again._demand is not None
    np.testing.assert_array_equal(again.recommend(n=5).positions, lists.positions)
    assert again.demand().certificate.holds == model.demand().certificate.holds
    bare = replace(again.fit_, plan={k: v for k, v in again.fit_.plan.items() if k != "ranking"})
    again.fit_ = bare  # as saved before there was a choice
    assert again.recommend(n=5).by == "prediction"


def test_new_rows_get_about_what_fitted_rows_get(people, model):
    x, _ = people
    some = replace(
        x, indptr=x.indptr[:21], indices=x.indices[: x.indptr[20]], data=x.data[: x.indptr[20]]
    )
    new, old = model.recommend(X=some, n=10), model.recommend(np.arange(20), n=10)
    same = [len(set(a) & set(b)) for a, b in zip(new.positions.tolist(), old.positions.tolist())]
    assert np.mean(same) > 8.5


def test_little_data():
    for a in ([[1.0, np.nan], [2.0, 3.0]], [[1.0, np.nan, 5.0]], [[4.0], [np.nan]]):
        assert not Demand.of(Observed.from_nan(np.array(a))).informative
