"""What implicit feedback takes by default: the weight of what was not observed, ridges, and the
method of ``eckart complete --feedback implicit``."""

from pathlib import Path

import numpy as np
import pytest

from eckart import ALS, EASE, load, split, tune
from eckart.errors import InputError
from eckart.matrix import Observed
from eckart.metrics import ranking

CLICKS = ("log.csv", "--rows", "user", "--columns", "page", "--feedback", "implicit")


def purchases(rows, columns, mean, tastes, seed=0):
    """Rows draw columns by popularity and by tastes of four dimensions."""
    rng = np.random.default_rng(seed)
    u, v = rng.standard_normal((rows, 4)), rng.standard_normal((columns, 4))
    keys = -np.log(np.arange(1, columns + 1)) + tastes * u @ v.T + rng.gumbel(size=(rows, columns))
    taken = np.argsort(-keys, axis=1) < 0
    for i, n in enumerate(np.clip(rng.poisson(mean, rows), 2, columns - 1)):
        taken[i, np.argpartition(-keys[i], n)[:n]] = True
    i, j = np.nonzero(taken)
    return Observed.from_codes(i, j, np.ones(len(i)), (rows, columns))


def ndcg(model, parts, at=10):
    rows = np.flatnonzero(parts.test.row_counts())
    fitted = model.fit(parts.train)
    return ranking(
        fitted.recommend(rows, n=at).positions, parts.test.to_scipy()[rows], at, ("ndcg",)
    ).mean["ndcg"]


def popular(parts, at=10):
    rows, counts = (
        np.flatnonzero(parts.test.row_counts()),
        parts.train.column_counts().astype(float),
    )
    seen = parts.train.to_scipy().toarray()[rows] > 0
    lists = np.argsort(-np.where(seen, -np.inf, counts[None]), axis=1, kind="stable")[:, :at]
    return ranking(lists, parts.test.to_scipy()[rows], at, ("ndcg",)).mean["ndcg"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clicks")
    x = purchases(120, 40, 8, 1.0)
    lines = [f"u{i},p{j}" for i, j in zip(np.repeat(np.arange(120), x.row_counts()), x.indices)]
    (folder / "log.csv").write_text("\n".join(["user,page", *lines, *lines[:40]]) + "\n")
    hours = np.exp(np.random.default_rng(0).normal(3.0, 1.5, len(lines)))
    (folder / "hours.csv").write_text(
        "\n".join(["user,page,hours", *(f"{line},{h:.2f}" for line, h in zip(lines, hours))]) + "\n"
    )
    return folder


@pytest.mark.parametrize("mean", [5, 20])
def test_the_default_is_near_the_best_of_a_grid(mean):
    """Fixed weights had half the NDCG of the best ones on five entries a row."""
    parts = split(purchases(500, 300, mean, 1.0), 0.2, random_state=0)
    how = {"feedback": "implicit", "random_state": 0, "max_iter": 15, "tol": 1e-3}
    fill = parts.train.nnz / (500 * 300)
    best = max(
        ndcg(ALS(16, unobserved_weight=c * fill, l2=l2, **how), parts)
        for c in (3.0, 10.0)
        for l2 in (0.01, 0.03, 0.1, 0.3)
    )
    found = ALS(16, feedback="implicit", random_state=0)
    assert ndcg(found, parts) > 0.95 * best
    assert fill < found.fit_.plan["unobserved_weight"] < 81 * fill
    assert "hidden entries" in found.fit_.plan["l2_reason"]


def test_where_everybody_buys_everything_lists_are_no_worse_than_popularity():
    parts = split(purchases(400, 60, 25, 0.1), 0.2, random_state=0)
    assert ndcg(ALS(16, feedback="implicit", random_state=0), parts) > 0.97 * popular(parts)


@pytest.mark.parametrize("seed", [0, 1])
def test_popularity_decides_where_codes_are_no_better(seed):
    """Everybody buys the same: codes alone were up to 2.7 standard errors behind popularity."""
    parts = split(purchases(500, 60, 20, 0.0, seed), 0.2, random_state=seed)
    model = ALS(16, feedback="implicit", random_state=0)
    assert ndcg(model, parts) == pytest.approx(popular(parts), rel=0.005)
    assert any("popularity decides" in note for note in model.certificate_.notes)
    told = ALS(16, feedback="implicit", random_state=0).fit(purchases(500, 60, 12, 2.0, seed))
    assert not any("popularity decides" in note for note in told.certificate_.notes)


def test_where_codes_say_nothing_popularity_does(tmp_path):
    """Five entries a row and no tastes: codes alone were two standard errors behind popularity."""
    x = purchases(600, 800, 4, 0.0)
    parts = split(x, 0.25, random_state=0)
    model = ALS(16, feedback="implicit", random_state=0)
    assert ndcg(model, parts) > 0.99 * popular(parts)
    lean, counts = model.fit_.plan["popularity"], parts.train.column_counts()
    assert lean > 0
    np.testing.assert_allclose(model.column_biases_, lean * np.log1p(counts), rtol=1e-6)
    assert "popularity adds" in model.fit_.plan["l2_reason"]
    model.save(tmp_path / "m.safetensors")
    for one in (model, load(tmp_path / "m.safetensors")):
        assert one.certify(parts.train).holds
        codes = model.row_factors_  # solved in a new row as in the fit, whatever popularity adds
        np.testing.assert_allclose(
            one.fold_in(parts.train), codes, rtol=0, atol=0.02 * np.abs(codes).max()
        )
        new = np.full((600, 1), np.nan)
        new[:300] = 1.0  # a column that half of the rows have
        one.update(Observed.from_nan(new), axis="columns")
        assert one.column_biases_[-1] == pytest.approx(lean * np.log(301), rel=1e-6)
        assert (one.recommend([500], n=1).positions == 800).all()


def test_what_is_given_is_taken():
    x = purchases(60, 40, 6, 1.0)
    plan = (
        ALS(4, feedback="implicit", unobserved_weight=0.2, l2=0.05, random_state=0).fit(x).fit_.plan
    )
    assert (plan["unobserved_weight"], plan["l2"]) == (0.2, 0.05)
    assert "l2_reason" not in plan
    few = ALS(2, feedback="implicit", random_state=0).fit(np.where(np.eye(5) > 0, 1.0, np.nan))
    assert "too few entries" in few.fit_.plan["l2_reason"]


def test_new_rows_have_the_codes_of_the_chosen_weight(tmp_path):
    x = purchases(120, 40, 8, 1.0)
    model = ALS(4, feedback="implicit", random_state=0, tol=1e-12, max_iter=300).fit(x)
    model.save(tmp_path / "m.safetensors")
    for one in (model, load(tmp_path / "m.safetensors")):
        np.testing.assert_allclose(
            one.fold_in(x), model.row_factors_, rtol=0, atol=1e-3 * np.abs(model.row_factors_).max()
        )
        assert one.certify(x).holds


def test_ease_chooses_its_ridge():
    """100 is far too little where rows have few entries and tastes are weak."""
    for mean, tastes in ((5, 0.3), (20, 1.0)):
        parts = split(purchases(500, 200, mean, tastes), 0.2, random_state=0)
        found = EASE()
        least = max(ndcg(EASE(l2), parts) for l2 in (30.0, 100.0, 300.0, 1000.0))
        assert ndcg(found, parts) > 0.95 * least
        assert found.certify(parts.train).holds
    assert EASE().fit(np.where(np.eye(3) > 0, 1.0, np.nan)).fit_.plan["l2"] == 100.0


def test_tune_tries_weights_and_the_ridge_of_ease():
    x = purchases(150, 60, 8, 1.0)
    found = tune(
        x,
        model=ALS(feedback="implicit"),
        n_components=4,
        l2=[0.03, 0.3],
        unobserved_weight=[0.5, 0.05],
        random_state=0,
    )
    assert {(t.l2, t.unobserved_weight) for t in found.table} == {
        (a, b) for a in (0.03, 0.3) for b in (0.05, 0.5)
    }
    assert (
        found.best["unobserved_weight"]
        == found.model.unobserved_weight
        == found.table[found.chosen].unobserved_weight
    )
    assert set(found.to_table()["unobserved_weight"]) == {0.05, 0.5}
    assert "unobserved" in str(found)
    assert tune(x, model=EASE(), random_state=0, metric="ndcg").best["l2"] > 0
    with pytest.raises(InputError, match="unobserved_weight"):
        tune(x, unobserved_weight=0.1)


def test_the_shell_chooses_among_all_recommenders_and_tells(eckart_):
    code, out, err = eckart_(
        "complete", *CLICKS, "--model", "m.safetensors", "--report", "r.html", "--held-out", 0
    )
    assert code == 0
    assert "40 of" in err
    assert "repeat a pair: they are counted" in err
    method = next(line for line in out.splitlines() if line.startswith("method "))
    for name in ("als", "ease", "slim", "gf-cf", "blend", "popularity", "within a budget of 60 s"):
        assert name in method
    assert "takes at most 60 s" in next(
        line for line in out.splitlines() if line.startswith("methods")
    )
    model = load("m.safetensors")
    assert "had the best lists" in model.fit_.plan["method"]
    assert "had the best lists" in Path("r.html").read_text()
    assert model.recommend("u0", n=3).columns.shape == (1, 3)


def test_the_plan_does_not_compare(eckart_):
    code, out, _ = eckart_("complete", *CLICKS, "--plan")
    assert code == 0
    assert "the time of als" in out


@pytest.mark.parametrize(("option", "method"), [(("-k", 3), "-k"), (("--out", "o.csv"), "--out")])
def test_options_of_als_take_it(eckart_, option, method):
    code, out, _ = eckart_("complete", *CLICKS, *option, "--held-out", 0)
    assert code == 0
    assert f"als: {method} is an option of it" in out


@pytest.mark.parametrize("method", ["ease", "gf-cf"])
def test_models_with_weights_between_columns_have_a_report(eckart_, method):
    code, _, _ = eckart_("complete", *CLICKS, "--method", method, "--report", "r.html", "-q")
    assert code == 0
    assert "weights between columns" in Path("r.html").read_text()


def test_amounts_get_a_note(eckart_):
    words = (
        "complete",
        "hours.csv",
        "--rows",
        "user",
        "--columns",
        "page",
        "--values",
        "hours",
        "--method",
        "biases",
        "-q",
    )
    _, _, err = eckart_(*words)
    assert "say --feedback implicit" in err
    assert "logarithm" in err
    assert "logarithm" not in eckart_(*words, "--feedback", "implicit")[2]


def test_als_is_tuned_only_where_it_may_be_the_best(monkeypatch):
    """Twelve fits of a method that is far behind had been a third of the time."""
    from eckart import BayesianMF
    from eckart.complete import compare as module

    monkeypatch.setattr(module, "FAR", -1e9)
    rng = np.random.default_rng(0)
    a = rng.standard_normal((30, 2)) @ rng.standard_normal((2, 20)) + 0.3 * rng.standard_normal(
        (30, 20)
    )
    a[rng.random(a.shape) < 0.5] = np.nan
    kinds = {"als": ALS, "bayes": BayesianMF}

    def build(method, part, **more):
        return (
            module.biases_only(random_state=0)
            if method == "biases"
            else kinds[method](random_state=0, **more)
        )

    found = module.compare(Observed.from_nan(a), build, 2, budget=5.0)
    assert found.tuning is None
    words = next(row.words for row in found.table if row.method == "als")
    assert "too far to be tuned" in words


def test_a_method_that_memory_does_not_hold_is_left_out(monkeypatch):
    """It ended the comparison of 100 million ratings, which ALS in parts is there for."""
    from eckart import BayesianMF
    from eckart.complete import compare as module
    from eckart.complete.bayes import bayesian_mf
    from eckart.fit import require_room

    a = np.add.outer(np.arange(30.0), np.arange(20.0) % 7)
    a[np.random.default_rng(0).random(a.shape) < 0.5] = np.nan
    monkeypatch.setattr(
        bayesian_mf, "require_room", lambda name, value, *_: require_room(name, value, 1e18)
    )

    def build(method, part, **more):
        if method == "biases":
            return module.biases_only(random_state=0)
        return {"als": ALS, "bayes": BayesianMF}[method](random_state=0, **more)

    found = module.compare(Observed.from_nan(a), build, 2, budget=5.0)
    words = next(row.words for row in found.table if row.method == "bayes")
    assert words.startswith("left out: n_components must be a number whose arrays fit in memory")
    assert found.method in ("als", "biases")
    assert words in found.reason


def test_of_large_data_a_million_entries_are_hidden(monkeypatch):
    from eckart.complete import split as module

    x = Observed.from_nan(np.ones((40, 30)))
    assert module.usual_share(x) == 0.1
    monkeypatch.setattr(module, "MOST_HIDDEN", 60)
    assert split(x, module.usual_share(x), random_state=0).test.nnz == 60
