"""``score`` and ``impute`` of every model that has cells to be judged by or to fill, and
scikit-learn's searches over them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.model_selection import GridSearchCV, cross_val_score

import eckart

CHAINS = {"n_samples": 20, "burn_in": 20}
COMPLETERS = {
    "ALS": eckart.ALS(3, random_state=0),
    "SoftImpute": eckart.SoftImpute(),
    "SVP": eckart.SVP(3),
    "SVT": eckart.SVT(tol=1e-2),
    "BayesianMF": eckart.BayesianMF(3, random_state=0, **CHAINS),
}
LISTS = {
    "EASE": eckart.EASE(),
    "SLIM": eckart.SLIM(),
    "SpectralFilter": eckart.SpectralFilter(5),
    "Blend": eckart.Blend(),
    "ALS": eckart.ALS(5, feedback="implicit"),
}


@pytest.fixture(scope="module")
def whole():
    rng = np.random.default_rng(0)
    return rng.normal(size=(80, 3)) @ rng.normal(size=(3, 30)) + 0.3 * rng.normal(size=(80, 30))


@pytest.fixture(scope="module")
def holes(whole):
    return np.where(np.random.default_rng(1).random(whole.shape) < 0.5, whole, np.nan)


@pytest.fixture(scope="module")
def table(holes):
    i, j = np.nonzero(~np.isnan(holes))
    return pd.DataFrame({"user": [f"u{a}" for a in i], "item": j, "stars": holes[i, j]})


NAMES = {"rows": "user", "columns": "item", "values": "stars"}


def test_a_search_over_triples_finds_the_rank(table):
    splitter = eckart.EntryKFold(3, random_state=0)
    found = GridSearchCV(eckart.ALS(random_state=0), {"n_components": [1, 3]}, cv=splitter).fit(
        table, **NAMES
    )
    assert found.best_params_ == {"n_components": 3}
    assert found.cv_results_["mean_test_score"].max() > 0.6


def test_the_splitter_leaves_every_row_an_entry_and_deals_all(table):
    splits = list(eckart.EntryKFold(4, random_state=3).split(table))
    assert np.array_equal(
        np.sort(np.concatenate([test for _, test in splits])), np.arange(len(table))
    )
    for train, test in splits:
        assert not set(train) & set(test)
        assert set(table.user.iloc[train]) == set(table.user)
        assert abs(len(test) - len(table) / 4) <= 1
    with pytest.raises(eckart.InputError, match="n_splits"):
        eckart.EntryKFold(1)
    with pytest.raises(eckart.InputError, match="table of triples"):
        eckart.EntryKFold(2).split(np.zeros(5))


@pytest.mark.parametrize("name", COMPLETERS)
def test_new_rows_and_hidden_cells_are_scored(name, holes, whole):
    model = COMPLETERS[name]
    scores = cross_val_score(model, holes, cv=2)
    assert (scores > 0.6).all(), "a rank that is there says far more than the mean"
    model = model.fit(holes)
    hidden = np.where(np.isnan(holes), whole, np.nan)
    i, j = np.nonzero(~np.isnan(hidden))
    away = hidden[i, j] - np.nanmean(holes)
    wanted = 1 - np.sum((hidden[i, j] - model.predict(i, j)) ** 2) / np.sum(away**2)
    assert model.score(eckart.observed(hidden)) == pytest.approx(wanted, rel=1e-6)


def test_cells_of_a_time_series_and_of_strangers(table):
    series = eckart.TimeFactors(3, random_state=0, n_samples=10, burn_in=10).fit(table, **NAMES)
    assert series.score(table) > 0.8
    with pytest.raises(eckart.InputError, match="shape"):
        series.score(np.zeros((2, 2)))
    strangers = table.assign(user="x" + table.user)
    model = eckart.SoftImpute().fit(table, **NAMES)
    means = model.predict(strangers.user, table.item, unknown="mean")
    away = table.stars - table.stars.mean()
    assert model.score(strangers) == pytest.approx(
        1 - np.sum((table.stars - means) ** 2) / np.sum(away**2)
    )


@pytest.mark.parametrize("name", LISTS)
def test_lists_are_scored_and_beat_chance(name):
    rng = np.random.default_rng(0)
    likes = np.exp(2 * rng.normal(size=(200, 2)) @ rng.normal(size=(2, 40)) - 2)
    clicks = sp.csr_matrix((rng.random(likes.shape) < np.clip(likes, 0, 0.9)) * 1.0)
    assert (cross_val_score(LISTS[name], clicks, cv=3) > 0.4).all()
    pairs = clicks.tocoo()
    log = pd.DataFrame({"who": pairs.row, "what": pairs.col, "often": pairs.data})
    found = cross_val_score(
        LISTS[name],
        log,
        cv=eckart.EntryKFold(3, random_state=0),
        params={"rows": "who", "columns": "what", "values": "often"},
    )
    assert (found > 0.2).all()


@pytest.mark.parametrize(
    "model",
    [eckart.TruncatedSVD(3), eckart.NMF(3), eckart.MiniBatchNMF(3)],
    ids=lambda m: type(m).__name__,
)
def test_factors_are_scored_by_the_squares_they_explain(model, whole):
    x = np.abs(whole)
    rebuilt = model.fit(x).inverse_transform(model.transform(x))
    assert model.score(x) == pytest.approx(1 - np.sum((x - rebuilt) ** 2) / np.sum(x**2), rel=1e-6)
    assert model.score(sp.csr_matrix(x)) == pytest.approx(model.score(x), rel=1e-6)
    assert (cross_val_score(model, x, cv=3) > 0.7).all()


def test_centred_models_are_scored_by_the_variance_they_explain(whole):
    x = whole + 1e3
    model = eckart.LinearAutoencoder(3).fit(x)
    rebuilt = model.inverse_transform(model.transform(x))
    assert model.score(x) == pytest.approx(
        1 - np.sum((x - rebuilt) ** 2) / np.sum((x - x.mean(axis=0)) ** 2), rel=1e-5
    )
    pytest.importorskip("torch")
    assert 0 < eckart.Autoencoder(3, max_iter=60, random_state=0).fit(x).score(x) < 1


def test_gaps_count_only_where_observed(holes):
    x = np.abs(holes)
    model = eckart.NMF(3).fit(x)
    seen = ~np.isnan(x)
    rebuilt = model.inverse_transform(model.transform(x))
    assert model.score(x) == pytest.approx(
        1 - np.sum((x - rebuilt)[seen] ** 2) / np.sum(x[seen] ** 2), rel=1e-5
    )


def test_what_cannot_be_scored_is_refused(holes):
    model = eckart.SoftImpute().fit(holes)
    with pytest.raises(eckart.InputError, match="two entries"):
        model.score(np.where(np.eye(3, 30) > 0, 1.0, np.nan))
    with pytest.raises(eckart.InputError, match="differ from zero"):
        eckart.TruncatedSVD(2).fit(np.abs(np.nan_to_num(holes))).score(np.zeros((4, 30)))


@pytest.mark.parametrize("name", COMPLETERS)
def test_impute_fills_the_data_of_the_fit_and_new_rows(name, holes):
    model = COMPLETERS[name].fit(holes)
    full, seen = model.impute(), ~np.isnan(holes)
    assert full.shape == holes.shape
    assert np.isfinite(full).all()
    np.testing.assert_array_equal(full[seen], holes[seen].astype(full.dtype))
    i, j = np.nonzero(~seen)
    np.testing.assert_allclose(full[i, j], model.predict(i, j), rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(model.impute(holes[:5]), model.transform(holes[:5]))


@pytest.mark.parametrize(
    "model",
    [eckart.PCA(2), eckart.GaussianMixture(2), eckart.MixedTable(2, random_state=0)],
    ids=lambda m: type(m).__name__,
)
def test_models_that_keep_no_data_ask_for_them(model, whole):
    with pytest.raises(eckart.InputError, match="X must be given to impute"):
        model.fit(whole).impute()


def test_a_table_of_several_kinds_is_scored_cell_by_cell_from_the_others():
    rng = np.random.default_rng(0)
    z = rng.normal(size=120)
    frame = pd.DataFrame({"a": z, "b": np.where(z > 0, "x", "y"), "c": 2 * z, "noise": 0.0})
    frame["c"] += 0.1 * rng.normal(size=120)
    frame = frame.mask(rng.random(frame.shape) < 0.1)
    model = eckart.MixedTable(1, trees=False, random_state=0).fit(frame)
    numbers = frame.assign(b=None)
    byhand = []
    for name in ("a", "c"):
        x, told = frame[name], model.expect(numbers, name)
        byhand.append(1 - np.nansum((x - told) ** 2) / np.nansum((x - x.mean()) ** 2))
    assert min(byhand) > 0.9
    assert model.score(numbers) == pytest.approx(np.mean(byhand))
    assert 0.7 < model.score(frame) < 1
    shuffled = frame.apply(lambda column: rng.permutation(column))
    assert model.score(shuffled) < 0.1
    found = GridSearchCV(eckart.MixedTable(random_state=0), {"n_components": [1, 2]}, cv=2)
    assert cross_val_score(model, frame, cv=2).min() > 0.6
    assert found.fit(frame).best_score_ > 0.6
    with pytest.raises(eckart.InputError, match="column of several values"):
        model.score(frame.iloc[:1])
