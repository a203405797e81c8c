"""The report of a completion: the measured error beside plain answers, the verdict in words, whom
it hits, and real names throughout."""

from __future__ import annotations

import re

import numpy as np
import pytest

from eckart import ALS, Observed
from eckart.complete.bayes.bayesian_mf import BayesianMF
from eckart.complete.nuclear.soft_impute import SoftImpute
from eckart.complete.tune import tune
from eckart.metrics import mae, rmse
from eckart.report.complete import complete_report
from eckart.report.held_out import judge
from eckart.report.html import Report
from pages import Page


@pytest.fixture(scope="module")
def ratings():
    """Rank 2 and biases, 60 x 25, one column seen once; evil names."""
    rng = np.random.default_rng(0)
    a = (
        3
        + rng.standard_normal((60, 1))
        + rng.standard_normal((60, 2)) @ rng.standard_normal((2, 25))
    )
    a[rng.random(a.shape) < 0.4] = np.nan
    a[1:, 24], a[0, 24] = np.nan, 1.0
    names = np.array([f"film {j}" for j in range(24)] + ["<b>seen once</b>"], object)
    return Observed.from_nan(a, np.array([f"user {i}" for i in range(60)], object), names)


@pytest.fixture(scope="module")
def model(ratings):
    return ALS(2, random_state=0).fit(ratings)


@pytest.fixture(scope="module")
def held(ratings):
    return judge(ALS(2, random_state=0).fit, ratings, 0.2, 1)


def test_judge_measures_what_it_says(ratings):
    held = judge(ALS(2, random_state=0).fit, ratings, 0.2, 1)
    assert held.share == pytest.approx(0.2, abs=0.01)
    again = ALS(2, random_state=0).fit(held.train)
    guess = again.fit_.factors.at(held.rows, held.test.indices)
    np.testing.assert_array_equal(held.predicted, guess)
    truth = held.test.data
    assert held.scores["model"] == {"RMSE": rmse(truth, guess), "MAE": mae(truth, guess)}
    mean = np.full(len(truth), held.train.data.mean())
    assert held.scores["mean only"]["RMSE"] == pytest.approx(rmse(truth, mean))
    assert (
        held.scores["model"]["RMSE"]
        < held.scores["biases only"]["RMSE"]
        < held.scores["mean only"]["RMSE"]
    )
    assert held.useful
    assert len(held.lines()) == 4
    assert str(held).count("\n") == 3


def test_judge_of_noise_says_that_the_factors_are_useless(rng):
    x = Observed.from_nan(
        np.where(rng.random((40, 30)) < 0.5, np.nan, rng.standard_normal((40, 30)))
    )
    held = judge(ALS(8, l2=1e-4, random_state=0).fit, x, 0.2)
    assert not held.useful
    page = Page(complete_report(ALS(8, l2=1e-4, random_state=0).fit(x), x, held_out=held).render())
    assert "worse than" in page.text
    assert "The factors add nothing here" in page.text


def test_report_is_self_contained_and_complete(ratings, model, held, tmp_path):
    names = ("user", "film", "stars")
    report = complete_report(model, ratings, held_out=held, name="my <data>", names=names)
    text = report.write(tmp_path / "r.html").read_text(encoding="utf-8")
    page = Page(text)
    assert not re.search(r"https?://", re.sub(r"base64,[^\"]*", "", text))
    assert page.tags.count("img") == 6
    assert f"60 rows and 25 columns, {ratings.nnz} entries observed" in page.text
    assert f"RMSE {held.scores['model']['RMSE']:.4g} on {held.test.nnz} entries" in page.text
    for words in (
        "biases only",
        "mean only",
        "The certificate holds.",
        "a matrix of rank 2",
        "Neighbours",
        "my <data>",
    ):
        assert words in page.text
    assert "<b>seen once</b> (1)" in page.text, (
        "the column that cannot be identified is named, and its name is no HTML"
    )
    for check in model.certificate_.checks:
        assert check.name in page.text
    best = next(iter(model.recommend("user 0", 1).entries()))
    assert len(re.findall(r"film \d+ \(", page.text)) > 10
    most = int(np.argmax(ratings.row_counts()))
    assert f"{ratings.rows[most]} {ratings.row_counts()[most]}" in page.text
    assert best[0] == "user 0"


def test_the_verdict_is_that_of_recovery(ratings, model):
    from eckart.complete.nuclear.recovery import recovery

    text = Page(complete_report(model, ratings).render()).text
    assert recovery(ratings, 2).verdict.partition(": ")[2] in text
    assert "What they leave open the ridge decides" in text
    full = Observed.from_nan(np.outer(np.arange(1.0, 9), np.arange(1.0, 7)))
    text = complete_report(ALS(1, random_state=0).fit(full), full).render()
    assert "can be recovered, comfortably" in Page(text).text
    assert 'class="verdict"' in text
    assert "none" in Page(text).text


def test_candidates_of_the_choice_are_shown(ratings):
    found = tune(ratings, n_components=(1, 2), l2=(0.1, 0.01), random_state=0)
    page = Page(complete_report(found.model, ratings, tuning=found).render())
    assert "How the rank was chosen" in page.text
    for trial in found.table:
        assert f"{trial.error:.6g}" in page.text


def test_a_path_is_drawn_where_the_model_has_one(ratings):
    model = SoftImpute(tau=2.0, path=6, normalise="bias", random_state=0).fit(ratings)
    page = Page(complete_report(model, ratings).render())
    assert "Along the path" in page.text
    assert f"SoftImpute of rank {model.rank_}" in page.text
    assert "taus" not in page.text, "the numbers of the picture are not listed again"


def test_implicit_feedback(ratings):
    clicks = Observed(
        ratings.indptr, ratings.indices, np.ones(ratings.nnz), 25, ratings.rows, ratings.columns
    )
    held = judge(ALS(3, feedback="implicit", random_state=0).fit, clicks, 0.2)
    assert set(held.scores) == {"model", "most popular"}
    assert all(0 <= v <= 1 for s in held.scores.values() for v in s.values())
    model = ALS(3, feedback="implicit", random_state=0).fit(clicks)
    page = Page(complete_report(model, clicks, held_out=held).render())
    assert "recall@20" in page.text
    assert "most popular" in page.text


def test_a_bayesian_model_has_the_same_page(ratings):
    model = BayesianMF(2, n_samples=20, burn_in=10, random_state=0).fit(ratings)
    page = Page(complete_report(model, ratings).render())
    assert "BayesianMF of rank 2" in page.text
    assert "Neighbours" in page.text


@pytest.mark.parametrize("shape", [(1, 1), (1, 4), (4, 1), (2, 2), (3, 3)])
@pytest.mark.parametrize("k", [1, 3])
def test_small_matrices(shape, k):
    x = Observed.from_nan(np.arange(1.0, 1 + np.prod(shape)).reshape(shape))
    page = Page(complete_report(ALS(k, random_state=0).fit(x), x).render())
    assert "everything is observed" in page.text


def test_empty_rows_and_columns_and_constant_values():
    a = np.full((6, 5), np.nan)
    a[:3, :3] = 2.0
    x = Observed.from_nan(a)
    page = Page(complete_report(ALS(2, random_state=0).fit(x), x).render())
    assert "3 (0)" in page.text
    assert "3 of 6" in page.text


def test_verdicts_are_escaped_and_coloured():
    text = Report("t").verdict("<i>good</i>").verdict("bad", False).render()
    assert "&lt;i&gt;good" in text
    assert 'class="verdict no"' in text
