"""Attributes and times through the doors: frames of every kind, ids that are lacking, files, the
shell, resumed fits."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from tests.spec.test_6_5_features import NAMES, planted
from typer.testing import CliRunner

from eckart import ALS, BayesianMF, FileError, InputError, SoftImpute, load, observed
from eckart.cli.main import app
from eckart.complete.factors.majorise import FOLD_TOL
from eckart.io.models.checkpoint import Checkpoint
from eckart.io.models.save import pack, unpack
from eckart.io.tables.attributes import Encoding
from oracle import JUDGE

BAYES = {"n_samples": 4, "burn_in": 4, "thin": 1, "random_state": 0}
NEW = pd.DataFrame({"user": [900, 901], "age": [20.0, 70.0], "job": ["x", "a job that nobody had"]})


@pytest.fixture(scope="module")
def data():
    return planted(n=40, m=25)


@pytest.fixture(scope="module")
def als(data):
    return ALS(2, random_state=0, max_iter=15, tol=1e-3).fit(data[0], **NAMES, row_features=data[1])


@pytest.fixture(scope="module")
def bayes(data):
    return BayesianMF(2, **BAYES, noise="row", implicit_features=True).fit(
        data[0], **NAMES, row_features=data[1], time="when"
    )


def encoded(frame, key="id"):
    encoding, found = Encoding.of(frame, key, "row_features")
    return encoding, encoding.encode(found, "row_features")


def test_pandas_polars_arrow_mappings_and_files_are_written_alike(tmp_path):
    columns = {
        "id": ["a", "b", "c", "d"],
        "n": [1.0, 2.0, None, 4.0],
        "flag": [True, False, True, None],
        "kind": ["u", "u", "v", "v"],
        "day": pd.to_datetime(["2020-01-01", "2020-01-03", "2020-02-01", "2021-01-01"]),
    }
    pandas = pd.DataFrame(columns)
    first, wanted = encoded(pandas)
    assert first.names() == ["n", "flag", "kind=u", "kind=v", "day"]
    assert first.groups.tolist() == [0, 1, 2, 2, 0]
    pandas.to_csv(tmp_path / "f.csv", index=False)
    arrow = pa.Table.from_pandas(pandas, preserve_index=False)
    others = [
        pl.from_pandas(pandas),
        arrow,
        pandas.assign(kind=pandas.kind.astype("category")),
        pandas.set_index("id"),
        arrow.to_pydict(),
    ]
    for other in [*others, str(tmp_path / "f.csv")]:
        assert np.allclose(encoded(other)[1], wanted), type(other)
    assert np.allclose(encoded((pandas.rename(columns={"id": "key"}), "key"))[1], wanted)


def test_lists_of_texts_have_several_levels():
    encoding, f = encoded({"id": [1, 2, 3], "genres": [["war", "love"], ["war"], None]})
    assert encoding.names() == ["genres=war"]
    assert f.ravel().tolist() == [1, 1, 0]


def test_an_encoding_survives_a_file_and_refuses_what_is_none():
    encoding, _ = encoded({"id": [1, 2, 3], "x": [1.0, 2.0, 4.0], "g": ["a", "a", "b"]})
    kept = json.loads(json.dumps(encoding.to_dict()))
    assert Encoding.from_dict(kept) == encoding
    for change in (
        {"deviation": 0.0},
        {"kind": "poison"},
        {"mean": "1"},
        {"levels": ["a", "a"]},
        {"mean": float("nan")},
    ):
        bad = json.loads(json.dumps(kept))
        bad["columns"][0] |= change
        with pytest.raises(FileError):
            Encoding.from_dict(bad)
    for bad in (
        None,
        [],
        {"key": 3, "columns": []},
        {"key": None},
        {"key": "id", "columns": [{"name": "x"}]},
    ):
        with pytest.raises(FileError):
            Encoding.from_dict(bad)


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (
            {"id": [1, 1], "x": [1.0, 2.0]},
            "row_features must have one row for each id, got 1 more than once",
        ),
        (
            {"id": [1, None], "x": [1.0, 2.0]},
            "row_features must have an id in every row, got none in row 1",
        ),
        ({"other": [1, 2], "x": [1.0, 2.0]}, "the column of ids 'id'"),
        (
            {"id": [1, 2], "x": [3.0, 3.0]},
            "row_features must have a column, beside the ids, that differs between ids, got none",
        ),
        (
            {"id": [1, 2], "x": [1.0, float("inf")]},
            "column 'x' of row_features must hold finite numbers, got inf in row 1",
        ),
        (
            {"id": [1, 2], "x": [{"a": 1}, {"a": 2}]},
            "column 'x' of row_features must hold numbers, booleans, dates, text, categories or",
        ),
        (
            [1, 2],
            r"row_features must be a frame \(pandas, polars, Arrow\), a mapping of columns or a file,",
        ),
    ],
)
def test_frames_that_cannot_be_used_are_refused_in_words(frame, words):
    with pytest.raises((InputError, TypeError), match=words):
        encoded(frame)


def test_ids_that_a_frame_lacks_are_named(data):
    table, frame, *_ = data
    model = ALS(2, random_state=0, max_iter=3, tol=0).fit(
        table, **NAMES, row_features=frame[~frame.user.isin([3, 7])]
    )
    assert any("lacks 2 of 32 rows (3, 7)" in note for note in model.certificate_.notes)
    with pytest.raises(InputError, match="row_features"):
        ALS(2).fit(table, **NAMES, row_features=frame.assign(user=frame.user + 1000))
    with pytest.raises(
        InputError,
        match=r"row_features must have the columns of the fit \(age, job\), got none called 'job'",
    ):
        model.predict(900, 3, row_features=NEW.drop(columns="job"))
    with pytest.raises(InputError, match="needs a model that was fitted with"):
        model.predict(3, 900, column_features=pd.DataFrame({"item": [900], "x": [1.0]}))


@pytest.mark.parametrize("which", ["als", "bayes"])
def test_every_verb_takes_ids_of_which_only_attributes_are_known(which, request):
    model = request.getfixturevalue(which)
    size = model.row_ids.size
    one = model.predict([900, 901], 4, row_features=NEW)
    assert np.isfinite(one).all()
    assert one[0] != one[1]
    lists = model.recommend(row_features=NEW, n=3, by="prediction")
    assert lists.rows.tolist() == [900, 901]
    assert (lists.positions >= 0).all()
    assert model.similar(row_features=NEW, n=2).rows.tolist() == [900, 901]
    filled = model.transform(row_features=NEW)
    assert filled.shape == (2, model.fit_.factors.n)
    assert np.allclose(filled[:, model.column_ids.index_of(4)], one)
    assert model.row_ids.size == size  # a question changes nothing
    with pytest.raises(InputError):
        model.predict(900, 4)


def test_a_cold_row_says_how_little_is_known_of_it(bayes, data):
    """On average over rows and columns: of a single one four draws say little."""
    first, columns = data[3], bayes.column_ids.labels
    warm, cold = (
        np.mean([bayes.deviation([row] * len(columns), columns, noise=False) for row in rows])
        for rows in (range(first), range(first, 40))
    )
    assert cold > 1.05 * warm


def test_new_rows_with_entries_and_attributes(als, data):
    x = observed(data[0][data[0].user == 5].assign(user=900), **NAMES)
    with_both, alone = als.transform(x, row_features=NEW), als.transform(x)
    assert not np.allclose(with_both, alone)
    with pytest.raises(InputError, match="without the id 900"):
        als.transform(x, row_features=NEW[1:])


def test_columns_have_attributes_as_rows_have(data):
    table, frame, *_ = data
    turned = {"rows": "item", "columns": "user", "values": "value"}
    a = ALS(2, random_state=0, max_iter=60, tol=1e-8).fit(table, **NAMES, row_features=frame)
    b = ALS(2, random_state=0, max_iter=60, tol=1e-8).fit(table, **turned, column_features=frame)
    assert b.predict(4, 900, column_features=NEW) == pytest.approx(
        a.predict(900, 4, row_features=NEW), abs=0.1
    )
    assert b.similar(column_features=NEW, n=1).rows.tolist() == [900, 901]


@pytest.mark.parametrize("which", ["als", "bayes"])
def test_a_model_comes_back_from_its_file_and_changed_files_are_refused(which, request, tmp_path):
    model = request.getfixturevalue(which)
    model.save(tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors")
    assert np.array_equal(
        again.predict([900, 901], 4, row_features=NEW),
        model.predict([900, 901], 4, row_features=NEW),
    )
    if which == "bayes":
        assert np.array_equal(again.predict(5, 4, time=0.3), model.predict(5, 4, time=0.3))
    arrays, header = pack(model)
    changes = [
        lambda a, h: a.pop("features.rows"),
        lambda a, h: a.update({"features.rows": a["features.rows"][:-1]}),
    ]
    changes += [
        lambda a, h: h["plan"]["features"].update(rows={"key": None, "columns": []}),
        lambda a, h: h["plan"].update(features=[1]),
    ]
    if which == "als":
        changes += [
            lambda a, h: a.pop("features.row_map"),
            lambda a, h: h["plan"]["features"].update(stretch=-1.0),
        ]
        changes += [
            lambda a, h: h["plan"].update(l2_features=0.0),
            lambda a, h: a.update({"features.column_map": a["features.row_map"]}),
        ]
    else:
        changes += [
            lambda a, h: a.pop("posterior.time_ends"),
            lambda a, h: a.update({"posterior.time_ends": a["posterior.time_ends"][::-1].copy()}),
        ]
        changes += [
            lambda a, h: h["plan"].update(time="never"),
            lambda a, h: a.update({"posterior.time": a["posterior.time"][:, :-1]}),
        ]
    for change in changes:
        arrays, header = pack(model)
        header = json.loads(json.dumps(header))
        change(arrays, header)
        with pytest.raises((FileError, KeyError)):
            unpack(arrays, header)


def test_times_are_dates_or_numbers_and_nothing_else(data, bayes):
    table = data[0].assign(
        when=pd.Timestamp("2020-01-01") + pd.to_timedelta(data[0].when * 100, unit="D")
    )
    model = BayesianMF(2, **BAYES).fit(table, **NAMES, time="when")
    assert model.fit_.plan["time"] == "dates"
    assert np.isfinite(model.predict(5, [4, 5], time=pd.Timestamp("2020-02-01"))).all()
    for wrong, words in (
        (0.5, "dates, as at the fit"),
        ([pd.Timestamp("2020-02-01")] * 3, "3 times"),
    ):
        with pytest.raises(InputError, match=words):
            model.predict(5, [4, 5], time=wrong)
    with pytest.raises(InputError, match="needs a model that was fitted with"):
        BayesianMF(2, **BAYES).fit(data[0], **NAMES).predict(5, 4, time=1.0)
    with pytest.raises(InputError, match="row 2"):
        BayesianMF(2, **BAYES).fit(
            data[0].assign(when=[0.0, 1.0, np.nan] + [1.0] * (len(data[0]) - 3)),
            **NAMES,
            time="when",
        )
    with pytest.raises(
        InputError,
        match=r"the column must be one of the columns of X \('user', 'item', 'value', 'when'\), got",
    ):
        BayesianMF(2, **BAYES).fit(data[0], **NAMES, time="nothing")
    with pytest.raises(InputError, match="BayesianMF"):
        ALS(2).fit(data[0], **NAMES, time="when")


@pytest.mark.parametrize(
    "wrong",
    [
        {"loss": "poisson"},
        {"nonnegative": True},
        {"l2": 0.0},
        {"l2_bias": 0.0},
        {"solver": "cg", "biases": False},
    ],
)
def test_choices_that_attributes_have_no_rule_for_are_refused(data, wrong):
    with pytest.raises(InputError, match="row_features"):
        ALS(2, **wrong).fit(data[0], **NAMES, row_features=data[1])
    with pytest.raises(TypeError):
        SoftImpute().fit(data[0], **NAMES, row_features=data[1])


def test_certificates_are_measured_again_with_attributes(als, data):
    again = als.certify(observed(data[0], **NAMES))
    assert again["relative gradient"] == pytest.approx(
        als.certificate_["relative gradient"], rel=1e-6
    )
    assert again["objective"] == pytest.approx(als.objective_, rel=1e-6)


@pytest.mark.parametrize("loss", ["logistic", "ordered_probit"])
def test_attributes_go_together_with_losses(loss, tmp_path):
    """Rows without an entry are predicted by their attributes alone; the objective never rises;
    certificate, file and fold-in say the same."""
    rng = np.random.default_rng(0)
    f, g = rng.standard_normal((60, 2)), rng.standard_normal((40, 2))
    s = (f @ rng.standard_normal((2, 2)) + 0.3 * rng.standard_normal((60, 2))) @ g.T
    a = (
        (s + rng.logistic(size=s.shape) > 0) * 1.0
        if loss == "logistic"
        else 1.0 + np.digitize(s + rng.standard_normal(s.shape), [-1, 1])
    )
    seen = rng.random(s.shape) < 0.5
    seen[:10] = False
    i, j = np.nonzero(seen)
    table = pd.DataFrame({"user": i, "item": j, "value": a[i, j]})
    rows = pd.DataFrame({"user": np.arange(60), "one": f[:, 0], "two": f[:, 1]})
    columns = pd.DataFrame({"item": np.arange(40), "one": g[:, 0], "two": g[:, 1]})
    model = ALS(2, loss=loss, random_state=0, tol=1e-8, max_iter=150)
    model.fit(table, **NAMES, row_features=rows, column_features=columns)
    assert model.certificate_.holds, model.certificate_.reason
    assert loss in model.certificate_.problem
    cold = np.indices((10, 40)).reshape(2, -1)
    assert np.mean((model.predict(*cold) - a[:10].ravel()) ** 2) < 0.85 * a[:10].var()
    again = model.certify(observed(table, **NAMES))
    assert again["objective"] == pytest.approx(model.objective_, rel=1e-6)
    model.save(tmp_path / "m.safetensors")
    back = load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(back.predict_proba(*cold), model.predict_proba(*cold))
    part = observed(table[table.user == 20], **NAMES)
    # steps of a fold-in end where codes move by sqrt(FOLD_TOL); each is a share of the one before,
    # so that all that are left out are a few times that
    np.testing.assert_allclose(back.predict(part), model.predict([20]), atol=10 * np.sqrt(FOLD_TOL))
    later = pd.DataFrame({"user": [99], "one": [1.0], "two": [-1.0]})
    assert np.isfinite(model.predict(99, 3, row_features=later)).all()


@pytest.mark.parametrize(
    ("model", "more"),
    [
        (ALS(2, random_state=0, tol=0, max_iter=6), {}),
        (ALS(2, random_state=0, tol=0, max_iter=6, loss="huber"), {}),
        (
            BayesianMF(2, n_samples=4, burn_in=4, thin=1, random_state=0, implicit_features=True),
            {"time": "when"},
        ),
    ],
)
def test_a_killed_fit_resumes_only_with_the_same_attributes(model, more, data, tmp_path):
    table, frame, *_ = data
    whole = clone(model).fit(table, **NAMES, row_features=frame, **more)
    kept = clone(model).set_params(checkpoint=tmp_path / "c.safetensors")

    class Killed(Exception):
        pass

    written = []

    def save(self, arrays, original=Checkpoint.save):
        original(self, arrays)
        written.append(1)  # one for each sweep
        if len(written) == 3:
            raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoint, "due", lambda self: True)
        patch.setattr(Checkpoint, "save", save)
        with pytest.raises(Killed):
            clone(kept).fit(table, **NAMES, row_features=frame, **more)
    with pytest.raises(FileError, match="other work"):
        clone(kept).fit(table, **NAMES, row_features=frame.assign(age=1.0 + frame.user), **more)
    resumed = clone(kept).fit(table, **NAMES, row_features=frame, **more)
    assert np.array_equal(resumed.fit_.factors.left, whole.fit_.factors.left)


def test_scikit_learns_manners(data):
    model = clone(ALS(2, l2_features=5.0, random_state=0))
    assert model.get_params()["l2_features"] == 5.0
    fitted = model.fit(data[0], **NAMES, row_features=data[1])
    assert model.fit(data[0], **NAMES).features_ is None
    assert fitted is model
    out = (
        ALS(2, random_state=0)
        .fit(data[0], **NAMES)
        .set_output(transform="pandas")
        .transform(observed(data[0], **NAMES))
    )
    assert isinstance(out, pd.DataFrame)


def test_the_shell_takes_files_of_attributes_and_times(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data[0].to_csv("r.csv", index=False)
    data[1].to_csv("users.csv", index=False)
    NEW.rename(columns={"user": "id"}).to_csv("new.csv", index=False)
    run = CliRunner()
    triples = [
        "--rows",
        "user",
        "--columns",
        "item",
        "--values",
        "value",
        "-k",
        "2",
        "--held-out",
        "0",
        "--quiet",
    ]
    done = run.invoke(
        app,
        ["complete", "r.csv", *triples, "--row-features", "users.csv", "--model", "m.safetensors"],
    )
    assert done.exit_code == 0, done.output
    listed = run.invoke(
        app,
        [
            "recommend",
            "m.safetensors",
            "--row-features",
            "new.csv:id",
            "-n",
            "2",
            "--by",
            "prediction",
        ],
    )
    assert listed.exit_code == 0, listed.output
    assert [line.split()[0] for line in listed.output.splitlines()[1:]] == [
        "900",
        "900",
        "901",
        "901",
    ]
    why = run.invoke(
        app,
        [
            "recommend",
            "m.safetensors",
            "--row-features",
            "new.csv:id",
            "--row",
            "900",
            "--explain",
            "4",
        ],
    )
    assert "attributes" in why.output
    for wrong in (
        ["--row-features", "absent.csv:user"],
        ["--row-features", "users.csv:nobody"],
        ["--time", "nothing"],
        ["--time", "when", "--method", "als"],
    ):
        failed = run.invoke(
            app, ["complete", "r.csv", *triples, *wrong, "--model", "n.safetensors"]
        )
        assert failed.exit_code != 0
        assert wrong[0] in str(failed.exception)


def test_the_slow_specification_gives_the_same(data):
    table, frame, *_ = data
    small = table[table.user < 15]
    for make in (
        lambda engine: ALS(2, random_state=0, max_iter=4, tol=0, engine=engine),
        lambda engine: BayesianMF(1, **BAYES, engine=engine),
    ):
        more = {"row_features": frame[frame.user < 17]} | (
            {"time": "when"} if isinstance(make("cpu"), BayesianMF) else {}
        )
        ours, plain = (make(engine).fit(small, **NAMES, **more) for engine in ("cpu", JUDGE))
        assert np.allclose(ours.predict([3, 16], 4), plain.predict([3, 16], 4), atol=1e-6)


def test_a_cold_row_and_a_cold_column_are_drawn_apart():
    """Of neither is an entry known: their factors are independent draws from priors around zero, so
    that their product is about none; drawn by the same numbers it was the sum of their
    variances."""
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((80, 3)) @ rng.standard_normal((3, 40))
    i, j = np.nonzero(rng.random(truth.shape) < 0.4)
    table = {"who": [f"p{a}" for a in i], "what": [f"f{a}" for a in j], "y": truth[i, j]}
    people = pd.DataFrame(
        {"who": [*(f"p{a}" for a in range(80)), "new"], "age": rng.integers(18, 70, 81)}
    )
    films = pd.DataFrame(
        {"what": [*(f"f{a}" for a in range(40)), "late"], "year": rng.integers(1950, 2000, 41)}
    )
    model = BayesianMF(3, n_samples=100, burn_in=30, thin=1, random_state=0).fit(
        table, rows="who", columns="what", values="y", row_features=people, column_features=films
    )
    # a product of two such vectors has a standard deviation of sqrt(3) or so, its mean over 50
    # pairs of draws a seventh of it
    assert abs(float(model.predict("new", "late")[0])) < 0.25 * 3
