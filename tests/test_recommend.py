"""Recommending: equal to sorting all values of the model, with what was seen, excluded or not a
candidate left out; alike; and why."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

from eckart import ALS, EASE, SLIM, BayesianMF, InputError, Observed, SpectralFilter
from eckart.complete.recommend import Recommendations
from eckart.errors import InputTypeError
from eckart.factors import LowRank
from test_als import holes, strengths
from test_completer import NORMALISERS, ids_of, labelled

every_normaliser = pytest.mark.parametrize("options", NORMALISERS, ids=str)


def by_sorting(values, hidden, n):
    """Positions of the n largest of each row, -1 where there are fewer; ties to the lower
    column."""
    scores = np.where(hidden, -np.inf, values)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :n]
    best = np.take_along_axis(scores, order, axis=1)
    return np.where(np.isneginf(best), -1, order), best


@every_normaliser
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_recommendations_are_the_sorted_predictions(rng, options, dtype):
    a = (holes(rng, 30, 9, mean=3.0) * np.linspace(1, 2, 9)).astype(dtype)
    model = ALS(3, random_state=0, **options).fit(a)
    values, seen = model.fit_.factors.block(slice(None)), ~np.isnan(a)
    rounding = (
        8 * np.finfo(dtype).eps * np.abs(values).max()
    )  # of a sum of three products and the normaliser's shifts that may cancel
    for n in (1, 4, 20):
        for exclude_seen in (True, False):
            hidden = seen if exclude_seen else np.zeros_like(seen)
            got = model.recommend(n=n, exclude_seen=exclude_seen)
            want, scores = by_sorting(values, hidden, n)
            np.testing.assert_array_equal(got.positions, want)
            np.testing.assert_allclose(
                got.scores, scores, rtol=1e-4 if dtype == np.float32 else 1e-9, atol=rounding
            )
            assert got.scores.dtype == dtype
    some = model.recommend([7, 2, 7], n=3)
    np.testing.assert_array_equal(some.positions, model.recommend(n=3).positions[[7, 2, 7]])


@pytest.mark.parametrize("zeros", ["all", "unobserved"])
def test_implicit_recommendations_are_the_sorted_scores(rng, zeros):
    r = strengths(rng, 20, 15)
    model = ALS(3, feedback="implicit", zeros=zeros, random_state=0).fit(r)
    want, scores = by_sorting(model.row_factors_ @ model.column_factors_.T, ~np.isnan(r), 6)
    got = model.recommend(n=6)
    np.testing.assert_array_equal(got.positions, want)
    np.testing.assert_allclose(got.scores, scores)


@every_normaliser
def test_candidates_and_exclusions_are_ids(rng, options):
    x, a = labelled(rng, "text", "text", mean=3.0)
    model = ALS(3, l2=0.05, random_state=0, **options).fit(x)
    values, seen = model.fit_.factors.block(slice(None)), ~np.isnan(a)
    for candidates, exclude, left in (
        (["r07", "r01", "r03", "r03"], None, [1, 3, 7]),
        (None, "r02", [0, 1, 3, 4, 5, 6, 7, 8]),
        (["r07", "r01", "r03"], ["r03"], [1, 7]),
    ):
        allowed = np.isin(np.arange(9), left)
        for exclude_seen in (True, False):
            hidden = (seen & exclude_seen) | ~allowed
            got = model.recommend(
                n=5, candidates=candidates, exclude=exclude, exclude_seen=exclude_seen
            )
            want, scores = by_sorting(values, hidden, min(5, allowed.sum()))
            np.testing.assert_array_equal(got.positions, want)
            np.testing.assert_allclose(got.scores, scores)
            assert [c for _, _, c, _ in got.entries()] == [
                f"r{j:02d}" for j in want.ravel() if j >= 0
            ]
    with pytest.raises(InputError, match="at least one column must be left to recommend, got none"):
        model.recommend(candidates="r01", exclude="r01")
    with pytest.raises(InputError, match="nothing"):
        model.recommend(candidates=["nothing"])


def with_factors(left, right, **more):
    """A model with these very factors, fitted to one entry."""
    a = np.full((len(left), len(right)), np.nan)
    a[0, 0] = 1.0
    model = ALS(left.shape[1], random_state=0).fit(a)
    model.fit_ = replace(model.fit_, factors=LowRank(left, right, **more))
    model.normaliser_ = None
    return model


def test_ties_go_to_the_lower_column(rng):
    left, right = (
        rng.integers(-1, 2, (300, 3)).astype(float),
        rng.integers(-1, 2, (2100, 3)).astype(float),
    )
    model = with_factors(left, right, column_bias=rng.integers(-1, 2, 2100).astype(float))
    want, _ = by_sorting(model.fit_.factors.block(slice(None)), np.zeros((300, 2100), bool), 40)
    np.testing.assert_array_equal(model.recommend(n=40, exclude_seen=False).positions, want)


def test_new_rows_get_what_the_fitted_row_gets(rng):
    x, a = labelled(rng, "text", "text", n=20, mean=3.0)
    for options in (
        {},
        {"biases": False, "scale": True, "normalise": "both"},
        {"biases": False, "normalise": "row"},
    ):
        model = ALS(2, l2=0.3, tol=1e-13, max_iter=3000, random_state=0, **options).fit(x)
        new, old = (
            model.recommend(X=Observed.from_nan(a[3:6], None, x.columns), n=4),
            model.recommend(["r03", "r04", "r05"], n=4),
        )
        np.testing.assert_array_equal(new.positions, old.positions)
        finite = np.isfinite(old.scores)
        np.testing.assert_allclose(new.scores[finite], old.scores[finite], atol=1e-3)
        assert new.rows.tolist() == [0, 1, 2]
    with pytest.raises(
        InputError,
        match=r"give rows= \(ids of fitted rows\) or X= \(the entries of new rows\), not both",
    ):
        model.recommend("r01", X=a[:1])


def test_rows_that_have_seen_everything_or_nothing(rng):
    a = holes(rng)
    a[2] = 1.0
    a[3] = np.nan
    model = ALS(2, random_state=0).fit(a)
    r = model.recommend([2, 3], n=3)
    assert (r.positions[0] == -1).all()
    assert np.isneginf(r.scores[0]).all()
    assert (r.positions[1] >= 0).all()
    assert [row for row, *_ in r.entries()] == [3, 3, 3]
    table = r.to_table()
    assert table["rank"].tolist() == [1, 2, 3]
    assert table["row"].tolist() == [3, 3, 3]


def test_lists_unpack_as_ids_and_scores(rng):
    a = rng.uniform(1, 5, (6, 9))
    a[0, 2:], a[1, 3:] = np.nan, np.nan
    model = ALS(2, random_state=0).fit(a)
    ids, scores = model.recommend(0, n=5)
    found = model.recommend([0, 1], n=5)
    np.testing.assert_array_equal(ids, found.columns[0])
    np.testing.assert_array_equal(scores, found.scores[0])
    ids, scores = found
    assert ids.shape == scores.shape == (2, 5)
    ids, scores = model.recommend(1, n=8)
    assert len(ids) == len(scores) == 6, "what is missing at the end of one list is left out"
    ids, cosines = model.similar(columns=3, n=4)
    assert ids.shape == cosines.shape == (4,)


@pytest.mark.parametrize("kind", ["text", "int", "date"])
def test_ids_come_back_as_they_were(rng, kind):
    x, _ = labelled(rng, kind, kind)
    model = ALS(2, random_state=0).fit(x)
    ids = ids_of(kind, 12)
    r = model.recommend(ids[4], n=2, exclude_seen=False)
    assert isinstance(r, Recommendations)
    assert list(r.rows) == [ids[4]]
    assert set(r.columns.ravel()) <= set(ids_of(kind, 9))
    assert (
        model.recommend([ids[4], ids[0]], n=2, exclude_seen=False).columns[0].tolist()
        == r.columns[0].tolist()
    )


@pytest.mark.parametrize("bad", [0, -1, 2.5, True, None])
def test_bad_numbers_are_refused(rng, bad):
    model = ALS(2, random_state=0).fit(holes(rng))
    with pytest.raises(InputError, match="n must be an"):
        model.recommend(0, n=bad)
    with pytest.raises(InputError, match="n must be an"):
        model.similar(rows=0, n=bad)


def test_similar_rows_and_columns_are_the_largest_cosines(rng):
    x, _ = labelled(rng)
    model = ALS(3, random_state=0).fit(x)
    for side, factor, ids in (
        ("rows", model.row_factors_, x.rows),
        ("columns", model.column_factors_, x.columns),
    ):
        unit = factor / np.linalg.norm(factor, axis=1, keepdims=True)
        want, scores = by_sorting(unit @ unit.T, np.eye(len(unit), dtype=bool), 4)
        got = model.similar(**{side: list(ids)}, n=4)
        np.testing.assert_array_equal(got.positions, want)
        np.testing.assert_allclose(got.scores, scores)
        one = model.similar(**{side: ids[2]}, n=4)
        assert one.columns[0].tolist() == got.columns[2].tolist()
        assert ids[2] not in one.columns
    with pytest.raises(InputError, match="exactly one"):
        model.similar()
    with pytest.raises(InputError, match="exactly one"):
        model.similar(rows="r01", columns=100)


def test_a_row_without_a_code_is_like_no_other(rng):
    a = holes(rng)
    a[3] = np.nan
    got = ALS(2, random_state=0).fit(a).similar(rows=[3], n=3)
    assert np.isfinite(got.scores).all()
    np.testing.assert_array_equal(got.scores, 0)


# ---- why


EXPLAINED = [
    *NORMALISERS,
    {"biases": True, "l2_power": 0.0, "l2_bias": 3.0},
    {"feedback": "implicit"},
    {"feedback": "implicit", "zeros": "unobserved", "alpha": 2.0},
    {"nonnegative": True, "biases": False},
    {"nonnegative": True},
    {"feedback": "implicit", "nonnegative": True},
]


@pytest.mark.parametrize("options", EXPLAINED, ids=str)
def test_the_shares_of_the_observed_entries_add_up_to_the_prediction(rng, options):
    a = strengths(rng) if "feedback" in options else holes(rng, mean=3.0)
    a = np.abs(a) if options.get("nonnegative") else a
    limits = {"stop": "gradient", "tol": 1e-6, "max_iter": 4000, "random_state": 0}
    model = ALS(2, **{"l2": 0.1, **limits, **options}).fit(a)
    for i, j in ((0, 1), (4, 4), (7, 0)):
        why = model.explain(i, j, n=100)
        seen = np.flatnonzero(~np.isnan(a[i]))
        assert sorted(c for c, _, _ in why.shares) == seen.tolist()
        assert all(value == a[i, c] for c, value, _ in why.shares)
        assert why.base + sum(share for *_, share in why.shares) == pytest.approx(why.prediction)
        assert why.prediction == pytest.approx(model.predict(i, j)[0], abs=3e-3)
        sizes = [abs(share) for *_, share in why.shares]
        assert sizes == sorted(sizes, reverse=True)


def test_a_share_is_what_the_entry_contributes(rng):
    """Linear in the targets: raise one observed value by d, fold the row in again, and the
    prediction moves by share' - share."""
    a = holes(rng, mean=3.0)
    model = ALS(2, l2=0.1, tol=1e-13, max_iter=3000, random_state=0).fit(a)
    seen = np.flatnonzero(~np.isnan(a[4]))
    shares = {c: s for c, _, s in model.explain(4, 1, n=100).shares}
    base = model.mean_ + model.column_biases_
    changed = a[4:5].copy()
    changed[0, seen[0]] += 1.0
    moved = model.predict(changed)[0, 1] - model.predict(a[4:5])[0, 1]
    assert moved == pytest.approx(shares[seen[0]] / (a[4, seen[0]] - base[seen[0]]), rel=1e-6)


def test_an_explanation_reads_like_a_sentence(rng):
    x, _ = labelled(rng)
    why = ALS(2, random_state=0).fit(x).explain("r04", 107, n=2)
    assert len(why.shares) == 2
    assert str(why).startswith("row r04, column 107: ")
    assert "because column" in str(why)
    with pytest.raises(InputError, match="nobody"):
        ALS(2, random_state=0).fit(x).explain("nobody", 107)


def test_a_row_without_entries_is_explained_by_its_base(rng):
    a = holes(rng)
    a[3] = np.nan
    model = ALS(2, random_state=0).fit(a)
    why = model.explain(3, 2)
    assert why.shares == []
    assert why.prediction == pytest.approx(model.predict(3, 2)[0])


@pytest.mark.parametrize(
    "model",
    [ALS(3, feedback="implicit", random_state=0), EASE(), SLIM(), SpectralFilter()],
    ids=lambda m: type(m).__name__,
)
def test_zeros_of_a_full_table_of_clicks_are_not_seen(rng, model):
    """A dense table of 0 and 1: new rows and known ones are recommended what they did not take up;
    lists are those of the same clicks as a sparse matrix."""
    x = (rng.random((40, 9)) < 0.35).astype(float)
    x[0], x[1, 1:] = 1.0, 0.0  # one row took up everything
    dense = clone(model).fit(x)
    lists = dense.recommend(rows=np.arange(40), n=4).positions
    np.testing.assert_array_equal(dense.recommend(X=x[:5], n=4).positions[:2] < 0, lists[:2] < 0)
    for row, found in enumerate(lists):
        assert (found >= 0).sum() == min(4, int((x[row] == 0).sum()))
        assert not x[row, found[found >= 0]].any()
    stored = clone(model).fit(sparse.csr_array(x))
    np.testing.assert_array_equal(stored.recommend(rows=np.arange(40), n=4).positions, lists)
    if not isinstance(model, ALS):  # rows solved once more are not those of the last half sweep
        np.testing.assert_array_equal(dense.recommend(X=x[:5], n=4).positions, lists[:5])


@pytest.mark.parametrize("kind", [ALS, EASE])
def test_what_is_alike_says_which_side_was_meant(kind):
    """Python's own words would count arguments."""
    x = strengths(np.random.default_rng(0), 20, 15)
    model = kind(feedback="implicit").fit(x) if kind is ALS else kind().fit(x)
    with pytest.raises(InputTypeError, match=r"by name, got similar\('x'\)"):
        model.similar("x")
    with pytest.raises(TypeError):
        model.similar("x")


@pytest.mark.parametrize(
    "options", [{}, {"clip": False}, {"clip": (2, 4)}, {"likelihood": "ordinal"}], ids=str
)
@pytest.mark.parametrize("by", ["chance", "prediction"])
def test_lists_reasons_and_predictions_say_one_number_of_a_cell(options, by):
    rng = np.random.default_rng(0)
    a = (
        3.6
        + rng.standard_normal((40, 1))
        + rng.standard_normal((40, 2)) @ rng.standard_normal((2, 25))
    )
    a = np.where(rng.random(a.shape) < 0.5, np.nan, np.clip(np.rint(a), 1, 5))
    model = BayesianMF(3, n_samples=20, burn_in=20, thin=1, random_state=0, **options).fit(a)
    if by == "chance" and model._loss() is not None:
        pytest.skip("a model with a loss has no lists by chance")
    lists = model.recommend([3, 0, 7], 6, by=by)
    np.testing.assert_allclose(
        lists.scores.ravel(),
        model.predict(np.repeat(lists.rows, 6), lists.columns.ravel()),
        rtol=1e-12,
    )
    if by == "prediction":
        assert (np.diff(lists.scores) <= 0).all()
        new = model.recommend(X=a[:4], n=6, by=by)
        np.testing.assert_allclose(
            new.scores, np.take_along_axis(model.predict(a[:4]), new.positions, axis=1), rtol=1e-12
        )
    for column in (0, 7, 20):
        why = model.explain(3, column, n=100)
        told = why.prediction if why.on_scale is None else why.on_scale
        assert told == pytest.approx(model.predict(3, column)[0], rel=1e-12)
        assert why.base + sum(share for *_, share in why.shares) == pytest.approx(why.prediction)
