"""MixedTable: columns of several kinds with gaps. The numbered lines of the specification are in
tests/spec/test_6_mixed_tables.py."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import eckart
from campaign.differential_more import tables
from eckart import FileError, InputError, MixedTable
from eckart.io.tables.mixed import mixed_frame


def people(n: int = 300, seed: int = 0) -> pd.DataFrame:
    """Every kind of column, all driven by two hidden numbers."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, 2))

    def noise() -> np.ndarray:
        return 0.4 * rng.standard_normal(n)

    grade = np.digitize(z[:, 0] + noise(), [-0.8, 0.0, 0.8])
    town = np.array(["Bonn", "Kiel", "Ulm"])[
        np.argmax(
            np.column_stack([z[:, 0], -z[:, 0], z[:, 1]]) + rng.gumbel(size=(n, 3)) / 3, axis=1
        )
    ]
    return pd.DataFrame(
        {
            "size": 170 + 9 * (z[:, 0] + noise()),
            "age": np.round(40 + 10 * (z[:, 1] + noise())).astype(int),
            "smokes": pd.array(z[:, 0] - z[:, 1] + noise() > 0, dtype="boolean"),
            "town": town,
            "grade": pd.Categorical.from_codes(
                grade, ["poor", "fair", "good", "best"], ordered=True
            ),
            "colour": pd.Categorical(
                np.where(z[:, 1] + noise() > 0, "red", "blue"), ["red", "blue", "green"]
            ),
            "visits": pd.array(rng.poisson(np.exp(1.5 * z[:, 0])), dtype="Int64"),
            "when": pd.Timestamp("2020-01-01")
            + pd.to_timedelta(np.round(400 + 90 * (z[:, 1] + noise())), unit="D"),
        },
        index=[f"p{i}" for i in range(n)],
    )


def with_gaps(
    frame: pd.DataFrame, share: float = 0.15, seed: int = 1
) -> tuple[pd.DataFrame, np.ndarray]:
    mask = np.random.default_rng(seed).random(frame.shape) < share
    mask[:, list(frame.columns).index("age")] = False  # plain int64 has no gaps
    return frame.mask(pd.DataFrame(mask, columns=frame.columns, index=frame.index)).astype(
        {"visits": "Int64"}
    ), mask


@pytest.fixture(scope="module")
def whole() -> pd.DataFrame:
    return people()


@pytest.fixture(scope="module")
def gaps(whole: pd.DataFrame) -> tuple[pd.DataFrame, np.ndarray]:
    return with_gaps(whole)


@pytest.fixture(scope="module")
def model(gaps: tuple[pd.DataFrame, np.ndarray]) -> MixedTable:
    return MixedTable(random_state=0).fit(gaps[0])


def test_losses_by_type_with_reasons(model):
    wanted = {
        "size": "squared",
        "age": "squared",
        "smokes": "logistic",
        "town": "multinomial",
        "grade": "ordered",
        "colour": "multinomial",
        "visits": "poisson",
        "when": "squared",
    }
    assert model.losses_ == wanted
    assert all(":" in reason for reason in model.fit_.plan["losses"].values())
    assert model.fit_.plan["rank"] == model.fit_.factors.k
    assert len(model.fit_.plan["candidates"]) > 3


def test_impute_gives_back_types_index_and_seen_cells(model, gaps):
    frame, _ = gaps
    out = model.impute(frame)
    assert (out.dtypes == frame.dtypes).all()
    assert out.index.equals(frame.index)
    assert not out.isna().any().any()
    for name in frame:
        seen = frame[name].notna()
        assert (out[name][seen] == frame[name][seen]).all()


def test_imputed_cells_are_better_than_means_and_modes(model, gaps, whole):
    frame, mask = gaps
    out = model.impute(frame)
    for j, name in enumerate(whole):
        hidden = mask[:, j]
        if not hidden.any():
            continue
        if name in ("size", "visits", "when"):
            truth, found, seen = (
                pd.to_numeric(part).to_numpy(float)
                for part in (whole[name][hidden], out[name][hidden], frame[name].dropna())
            )
            assert np.mean((found - truth) ** 2) < 0.8 * np.mean((seen.mean() - truth) ** 2), name
        else:
            assert (out[name][hidden] == whole[name][hidden]).mean() > (
                frame[name].mode()[0] == whole[name][hidden]
            ).mean() + 0.05, name


def test_probabilities_are_those_of_levels_and_ignore_the_cell(model, gaps):
    frame, _ = gaps
    for name, levels in model.levels_.items():
        p = model.predict_proba(frame, name)
        assert p.shape == (len(frame), len(levels))
        np.testing.assert_allclose(p.sum(axis=1), 1)
        other = frame.copy()
        other[name] = (
            other[name].sample(frac=1, random_state=0).to_numpy()
            if name == "town"
            else other[name].iloc[::-1].array
        )
        np.testing.assert_allclose(model.predict_proba(other, name), p)
    # a level that was never seen has no probability
    assert set(model.levels_["colour"]) == {"red", "blue"}


def test_shares_of_an_explanation_add_up_and_follow_the_model(model, gaps):
    frame, _ = gaps
    row = frame.iloc[[3]].copy()
    told = model.explain(row, "size")
    assert told.natural == pytest.approx(told.base + sum(share for _, share in told.shares))
    assert told.value == pytest.approx(float(model.expect(row, "size")[0]))
    assert "size" not in dict(told.shares)
    told = model.explain(frame, "smokes", row=5)
    p = model.predict_proba(frame.iloc[[5]], "smokes")[0, 1]
    assert told.natural == pytest.approx(np.log(p / (1 - p)))
    assert told.value == (p > 0.5)


def test_an_arrow_table_has_the_same_answer_in_its_own_types(gaps):
    frame = gaps[0].reset_index(drop=True)
    table = pa.Table.from_pandas(frame, preserve_index=False)
    found, model = (MixedTable(2, l2=10.0, random_state=0).fit(each) for each in (table, frame))
    np.testing.assert_allclose(found.transform(table), model.transform(frame), atol=1e-8)
    out = found.impute(table)
    assert out.schema == table.schema
    again, wanted = out.to_pandas(), model.impute(frame)
    for name in ("town", "grade", "smokes", "visits"):
        assert (again[name].astype(str) == wanted[name].astype(str)).all(), name


def test_a_polars_frame_comes_back_as_one(gaps):
    table = pl.from_pandas(gaps[0].reset_index(drop=True))
    out = MixedTable(2, l2=10.0, random_state=0).fit_impute(table)
    assert isinstance(out, pl.DataFrame)
    assert out.schema == table.schema
    assert sum(out.null_count().row(0)) == 0
    for name in table.columns:
        seen = table[name].is_not_null()
        assert (out[name].filter(seen) == table[name].filter(seen)).all()


def test_a_file_is_a_table_of_its_own(gaps, tmp_path):
    path = tmp_path / "t.csv"
    gaps[0].to_csv(path, index=False)
    found = MixedTable(2, l2=10.0, random_state=0).fit(path)
    out = found.impute(path)
    assert isinstance(out, pa.Table)
    assert sum(column.null_count for column in out.columns) == 0
    assert found.losses_["town"] == "multinomial"
    assert found.losses_["when"] == "squared"


def test_numbers_in_an_array_come_back_as_an_array():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 2)) @ rng.standard_normal((2, 6))
    gaps = np.where(rng.random(x.shape) < 0.2, np.nan, x)
    out = MixedTable(random_state=0).fit_impute(gaps)
    assert isinstance(out, np.ndarray)
    hidden = np.isnan(gaps)
    assert np.sqrt(np.mean((out - x)[hidden] ** 2)) < 0.35 * x.std()
    np.testing.assert_array_equal(out[~hidden], gaps[~hidden])


def test_an_unseen_level_is_a_gap_and_is_said(model, gaps):
    frame = gaps[0].iloc[:20].copy()
    frame["town"] = "Rom"
    blank = frame.copy()
    blank["town"] = pd.Series([None] * 20, dtype=object, index=frame.index)
    with pytest.warns(UserWarning, match="'Rom'"):
        codes = model.transform(frame)
    np.testing.assert_allclose(codes, model.transform(blank))


@pytest.mark.parametrize("nothing", [None, np.nan])
def test_a_column_of_gaps_alone_is_filled_as_at_the_fit(model, gaps, nothing):
    """Whatever type a table gives a column in which it has seen nothing."""
    for name in gaps[0].columns:
        found = model.impute(gaps[0].head(5).assign(**{name: [nothing] * 5}))[name]
        wanted = model.expect(gaps[0].head(5), name)
        if name == "when":
            assert (
                np.abs(
                    (found - pd.Timestamp("1970-01-01")).dt.total_seconds().to_numpy() - wanted
                ).max()
                < 1e-3
            )
        elif name in model.levels_:
            assert found.tolist() == wanted.tolist()
        else:
            np.testing.assert_allclose(
                found.to_numpy(float), np.round(wanted) if name in ("age", "visits") else wanted
            )


def test_an_arrow_column_without_a_type_is_filled(model, gaps):
    one = pa.Table.from_pandas(gaps[0].head(5), preserve_index=False)
    for name, kind in (
        ("town", pa.string()),
        ("when", pa.timestamp("us")),
        ("size", pa.float64()),
        ("smokes", pa.bool_()),
    ):
        at = one.column_names.index(name)
        found = model.impute(one.set_column(at, name, pa.nulls(5))).column(name)
        assert (found.type, found.null_count) == (kind, 0)
        typed = model.impute(one.set_column(at, name, pa.nulls(5, one.column(at).type))).column(
            name
        )
        assert found.to_pylist() == typed.cast(kind, safe=False).to_pylist()


def test_fit_impute_is_fit_and_impute(gaps):
    assert (
        MixedTable(random_state=0)
        .fit_impute(gaps[0])
        .equals(MixedTable(random_state=0).fit(gaps[0]).impute(gaps[0]))
    )


def test_saved_and_loaded_is_the_same_model(model, gaps, tmp_path):
    path = tmp_path / "m.safetensors"
    model.save(path)
    back = eckart.load(path)
    pd.testing.assert_frame_equal(back.impute(gaps[0]), model.impute(gaps[0]))
    assert back.certify(gaps[0]).holds
    assert back.losses_ == model.losses_


@pytest.mark.parametrize(
    "harm",
    [
        lambda h, a: h["factors"]["described"][0].update(loss="nothing"),
        lambda h, a: h["factors"]["described"][0].update(scale=0.0),
        lambda h, a: h["factors"]["described"][4]["parameters"].update(thresholds=[3.0, 1.0, 2.0]),
        lambda h, a: h["factors"]["described"][1].update(first=7),
        lambda h, a: h["factors"]["described"].pop(),
        lambda h, a: h["factors"].update(aside={"town": 3}),
        lambda h, a: a.update(weights=a["weights"][:-1]),
        lambda h, a: a.update(variances=-a["variances"]),
        lambda h, a: a.update(mean=a["mean"] * np.nan),
        lambda h, a: h["plan"].pop("l2"),
    ],
)
def test_hostile_files_are_refused(model, tmp_path, harm):
    from safetensors.numpy import save as to_bytes

    from eckart.io.models.save import pack, seal

    arrays, header = pack(model)
    header = json.loads(json.dumps(header))
    harm(header, arrays)
    path = tmp_path / "m.safetensors"
    path.write_bytes(to_bytes(arrays, metadata={"eckart": seal(arrays, json.dumps(header))}))
    with pytest.raises(FileError):
        eckart.load(path)


def test_scikit_learn_manners(gaps, model):
    frame, _ = gaps
    before = MixedTable(3, l2=10.0, losses={"age": "huber"}, random_state=0)
    params = before.get_params()
    assert clone(before).get_params() == params
    with pytest.raises(NotFittedError):
        before.impute(frame)
    before.fit(frame)
    assert before.get_params() == params
    assert before.losses_["age"] == "huber"
    assert before.n_features_in_ == 8
    assert list(before.feature_names_in_) == list(frame)
    assert before.fit_transform(frame).shape == (len(frame), 3)
    assert len(before.get_feature_names_out()) == 3
    np.testing.assert_array_equal(
        clone(before).fit(frame).transform(frame), before.transform(frame)
    )
    with pytest.warns(ConvergenceWarning):
        MixedTable(3, l2=10.0, max_iter=1, tol=1e-9, random_state=0).fit(frame)


def test_columns_that_say_nothing_are_left_aside(gaps):
    frame = gaps[0].copy()
    frame["one"] = pd.Series([None, "same"] * (len(frame) // 2), dtype=object, index=frame.index)
    frame["id"] = [f"id {i}" for i in range(len(frame))]
    frame.loc["p0", "id"] = None
    frame["empty"] = np.nan
    found = MixedTable(2, l2=10.0, random_state=0).fit(frame)
    assert {"one", "id", "empty"} == set(found.fit_.plan["aside"])
    out = found.impute(frame)
    assert (out["one"] == "same").all()
    assert out["empty"].isna().all()
    assert out["id"].isna().sum() == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"losses": {"nobody": "huber"}}, "nobody"),
        ({"losses": {"town": "squared"}}, "multinomial"),
        ({"losses": {"town": "nothing"}}, "nothing"),
        ({"losses": "huber"}, "dict"),
        ({"n_components": 99}, "at most"),
        ({"engine": "nothing"}, "engine"),
        ({"l2": -1.0}, "l2"),
    ],
)
def test_errors_name_what_came(gaps, change, words):
    found = MixedTable(**change)
    with pytest.raises(InputError, match=words):
        found.fit(gaps[0])
    assert not hasattr(found, "fit_")


def test_bad_tables_are_refused_in_words(model, gaps):
    frame = gaps[0]
    with pytest.raises(
        InputError,
        match=r"X must have all columns of the training data \(size, age, smokes, town, grade, colour,",
    ):
        model.impute(frame.drop(columns="town"))
    with pytest.raises(InputError, match="infinity at row 4"):
        MixedTable().fit(pd.DataFrame({"a": [1.0, 2, 3, 4, np.inf], "b": [1.0, 2, 1, 2, 1]}))
    with pytest.raises(
        InputError,
        match=r"at least one column of X must have values that differ, got none \(a: every value is the",
    ):
        MixedTable().fit(pd.DataFrame({"a": [1.0, 1.0], "b": [np.nan, np.nan]}))
    with pytest.raises(
        TypeError, match="column 'size' must hold numbers as in the training data, got str"
    ):
        model.impute(frame.assign(size="tall"))
    with pytest.raises(
        InputError,
        match="column must be one of smokes, town, grade, colour, which have levels, got 'size'",
    ):
        model.predict_proba(frame, "size")


def test_dates_with_a_zone_and_small_types_come_back():
    rng = np.random.default_rng(0)
    z = rng.standard_normal(120)
    frame = pd.DataFrame(
        {
            "when": pd.date_range("2024-03-30", periods=120, freq="h", tz="Europe/Berlin"),
            "small": (z + 0.1 * rng.standard_normal(120)).astype(np.float32),
            "flag": (z > 0).astype(object),
            "long": pd.to_timedelta(np.round(100 + 10 * z), unit="s"),
        }
    )
    frame.loc[3, ["when", "small", "flag", "long"]] = None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out = MixedTable(random_state=0).fit_impute(frame)
    assert (out.dtypes == frame.dtypes).all()
    assert not out.isna().any().any()
    assert isinstance(out.loc[3, "flag"], bool)


def test_the_door_tells_kinds():
    frame = pd.DataFrame({"a": [1, 2], "b": [1.5, None], "c": ["x", None], "d": [True, None]})
    assert [c.kind for c in mixed_frame(frame).columns] == [
        "integer",
        "number",
        "category",
        "boolean",
    ]
    with pytest.raises(
        TypeError,
        match="column 'e' must hold numbers, yes/no, texts, categories or dates, got values of type",
    ):
        mixed_frame(pd.DataFrame({"e": [1, "x"]}))
    with pytest.raises(
        InputError, match="columns of X must have names that differ, got 'a' 2 times"
    ):
        mixed_frame(pd.DataFrame([[1, 2]], columns=["a", "a"]))


def test_links_of_categories_settle_before_they_are_judged():
    """Levels that nothing predicts are the slowest: the steps of a category take a bound of the
    curvature."""
    at = np.arange(1, 81)
    income = np.where(at % 5 == 0, np.nan, 1000 + at * 13 % 700)
    table = pd.DataFrame(
        {
            "age": 20.0 + at % 50,
            "sex": np.array(["f", "m"])[at % 2],
            "town": [f"c{i}" for i in at % 4],
            "income": income,
        }
    )
    assert eckart.MixedTable(random_state=0).fit(table).certificate_.holds


def yes_and_no_as_numbers():
    """Columns of one hidden number; yes and no as 0 and 1 of several types, ids, and years, which
    rise and are no ids."""
    rng = np.random.default_rng(0)
    z = rng.standard_normal(200)
    yes = (z > 0).astype(float)
    return pd.DataFrame(
        {
            "size": 170 + 10 * z + rng.standard_normal(200),
            "weight": 60 + 5 * z + rng.standard_normal(200),
            "user_id": rng.permutation(1400)[:200],
            "nth": np.arange(1, 201),
            "year": np.arange(1900, 2100),
            "paid": rng.permutation(1400)[:200],
            "yes": yes,
            "single": yes.astype(np.float32),
            "whole": pd.array(yes.astype(int), dtype="Int64"),
            "bits": yes.astype(np.int8),
        }
    )


@pytest.mark.parametrize("kind", ["pandas", "arrow", "array"])
def test_zeros_and_ones_are_yes_and_no(kind):
    frame = yes_and_no_as_numbers()
    gaps = frame.copy()
    gaps.loc[::7, "yes"], gaps.loc[1::7, "single"], gaps.loc[2::7, "whole"] = np.nan, np.nan, pd.NA
    given = gaps if kind == "pandas" else pa.Table.from_pandas(gaps, preserve_index=False)
    if kind == "array":
        given = gaps.to_numpy(np.float64, na_value=np.nan)
    model = MixedTable(random_state=0).fit(given)
    names = ("yes", "single", "whole", "bits") if kind != "array" else ("x6", "x7", "x8", "x9")
    assert {model.losses_[name] for name in names} == {"logistic"}
    assert "0 and 1 alone: yes and no" in model.fit_.plan["losses"][names[0]]
    assert all(tuple(model.levels_[name]) == (0, 1) for name in names)
    filled = model.impute(given)
    if kind == "pandas":
        assert (filled.dtypes == gaps.dtypes).all()
    elif kind == "arrow":
        assert filled.schema.equals(given.schema)
        filled = filled.to_pandas()
    else:
        filled = pd.DataFrame(filled, columns=frame.columns)
    for name in ("yes", "single", "whole"):
        told = filled[name].to_numpy(float)
        assert set(told) == {0.0, 1.0}
        assert (told == frame[name].to_numpy(float)).mean() > 0.95


def test_zeros_and_ones_are_numbers_where_that_is_asked_for():
    frame = yes_and_no_as_numbers()
    model = MixedTable(random_state=0, losses={"yes": "squared", "user_id": "squared"}).fit(frame)
    assert model.losses_["yes"] == model.losses_["user_id"] == "squared"
    with pytest.raises(
        InputError,
        match=r"losses\['size'\]='logistic' needs a column of 0 and 1 alone, got 170\.594",
    ):
        MixedTable(losses={"size": "logistic"}).fit(frame)


def test_ids_that_are_not_the_first_column_are_left_aside():
    frame = yes_and_no_as_numbers()
    model = MixedTable(random_state=0).fit(frame)
    aside = model.fit_.plan["aside"]
    assert set(aside) == {"user_id", "nth"}
    assert "it counts the rows" in aside["nth"]
    assert "all different, in a column of that name: ids" in aside["user_id"]
    assert model.impute(frame).equals(frame)
    few = MixedTable(random_state=0).fit(frame.head(9))  # nine numbers may rise by themselves
    assert "nth" in few.losses_


@pytest.mark.parametrize("loss", ["multinomial", "ordered"])
def test_numbers_with_few_values_are_filled_by_them_in_any_type(loss):
    frame = yes_and_no_as_numbers()
    grades = np.clip(np.rint((frame["size"] - 170) / 8), -1, 1).to_numpy() + 2
    for kind in (np.float64, np.float32, "Int64"):
        gaps = frame[["size", "weight"]].assign(grade=pd.array(grades, dtype=kind))
        gaps.loc[::5, "grade"] = pd.NA if kind == "Int64" else np.nan
        filled = MixedTable(random_state=0, losses={"grade": loss}).fit_impute(gaps)
        assert filled["grade"].dtype == gaps["grade"].dtype
        assert set(filled["grade"]) <= {1, 2, 3}


def test_a_category_with_many_rare_levels_has_a_link_at_its_minimum(rng):
    """A level of a cell or two bends the sum by next to nothing: steps by a bound of all curvatures
    had not arrived after thousands of them."""
    z = rng.standard_normal(300)
    level = np.floor(12 + 4 * z).clip(0, 24).astype(int)
    frame = pd.DataFrame({f"x{j}": z + 0.5 * rng.standard_normal(300) for j in range(4)}).assign(
        kind=[f"level {v}" for v in level]
    )
    assert (pd.Series(level).value_counts() <= 2).any()
    frame.loc[::11, "kind"] = None
    m = MixedTable(random_state=0).fit(frame)
    assert m.certificate_.holds, str(m.certificate_)


@pytest.mark.one_seed
@pytest.mark.parametrize("seed", [1960127676, 2572])
def test_a_fit_does_not_end_beside_a_saddle(seed):
    """On these tables steps of EM were short near a saddle, the fit ended there, and its
    certificate held 2.5 and 8.3 nats above the minimum beside it."""
    assert tables(np.random.default_rng(seed)) == "MixedTable"


def test_a_fit_does_not_end_while_a_noise_still_moves():
    """One noise among many scores gains little for each of them: the fit ended with a step of 6 %
    to come, and its certificate did not hold."""
    rng = np.random.default_rng(33)
    z = rng.normal(size=(60, 6))
    x = z @ (rng.normal(size=(6, 12)) * rng.choice([0.1, 1, 3], 12)) + rng.normal(
        size=(60, 12)
    ) * rng.choice([0.01, 0.3, 2], 12)
    x = np.column_stack([x, np.eye(30)[rng.integers(0, 30, 60)]])
    x[rng.random(x.shape) < 0.25] = np.nan
    m = MixedTable(16, l2=1.0, random_state=0).fit(x)
    assert m.certificate_.holds, str(m.certificate_)


def test_columns_with_nothing_in_common_have_a_certificate(rng):
    """The best W is 0: steps shrink toward it by the same share for ever, and a gradient relative
    to W itself never vanished."""
    x = rng.normal(size=(80, 3))
    x[::7, 1] = np.nan
    m = MixedTable(1, l2=100.0, random_state=0).fit(x)
    assert np.abs(m.components_).max() < 0.1
    assert m.certificate_.holds, str(m.certificate_)


def test_categories_that_repeat_one_another_have_links_at_their_minimum():
    """Names of teams and their short forms: the spread of scores around a level is next to none,
    and links began with slopes of thousands, from where they did not come back (nor soon: three
    minutes for two columns of 150 levels)."""
    rng = np.random.default_rng(0)
    team = rng.integers(0, 30, 400)
    frame = pd.DataFrame(
        {
            "team": [f"team {t}" for t in team],
            "short": [f"t{t}" for t in team],
            "size": rng.normal(size=400),
        }
    )
    gaps = frame.mask(rng.random(frame.shape) < 0.15)
    m = MixedTable(16, l2=1.0, random_state=0).fit(gaps)
    assert m.certificate_.holds, str(m.certificate_)


def test_amounts_are_filled_alike_in_any_unit(rng):
    """log(1 + a) of amounts below 1 is a itself, and the exponential of it a wild answer: shares of
    a town were filled worse than by their mean."""
    z = rng.standard_normal((400, 2))
    frame = pd.DataFrame(
        {f"x{j}": z @ rng.normal(size=2) + 0.3 * rng.standard_normal(400) for j in range(4)}
    )
    frame["amount"] = np.exp(1.5 * z[:, 0] + 0.2 * rng.standard_normal(400))
    hidden = rng.random(400) < 0.25
    told, found = frame["amount"][hidden], []
    for unit in (1.0, 1e-7, 1e7):
        gaps = frame.assign(amount=frame["amount"].mask(hidden) * unit)
        m = MixedTable(2, l2=1.0, random_state=0).fit(gaps)
        assert m.losses_["amount"] == "poisson"
        assert m.certificate_.holds, str(m.certificate_)
        found.append(m.impute(gaps)["amount"][hidden] / unit)
        rate = m.explain(gaps, "amount", row=int(np.flatnonzero(hidden)[0]))
        least = gaps["amount"].min()  # the rate is that above the least value
        assert np.isclose(least + np.exp(rate.natural), rate.value, rtol=1e-9)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)
    np.testing.assert_allclose(found[2], found[0], rtol=1e-6)
    assert ((found[0] - told) ** 2).mean() < 0.5 * told.var()


def test_rates_stay_in_the_range_of_those_that_were_fitted(rng):
    """An exponential was fitted to nothing beyond it; the largest cell of a skewed column is no
    bound."""
    z = np.append(rng.standard_normal(300), 9.0)
    frame = pd.DataFrame(
        {
            "x": z,
            "y": z + 0.1 * rng.standard_normal(301),
            "count": rng.poisson(np.exp(z.clip(max=2)) * 5).astype(float),
        }
    )
    frame.loc[0, "count"], frame.loc[300, "count"] = 5000.0, np.nan
    m = MixedTable(1, l2=1.0, random_state=0).fit(frame)
    assert m.losses_["count"] == "poisson"
    seen = frame.dropna()
    assert m.impute(frame)["count"][300] <= m.expect(seen, "count").max() < 5000


def test_categories_that_are_no_texts_come_back_as_they_were(rng, tmp_path):
    """Intervals of pd.cut, dates: the fit ended with an error about a file."""
    x = rng.normal(size=(80, 2))
    frame = pd.DataFrame({"x": x[:, 0], "y": x[:, 0] + 0.2 * x[:, 1], "part": pd.cut(x[:, 0], 4)})
    gaps = frame.assign(part=frame["part"].mask(rng.random(80) < 0.2))
    m = MixedTable(1, random_state=0).fit(gaps)
    filled = m.impute(gaps)
    assert filled["part"].dtype == frame["part"].dtype
    assert (filled["part"] == frame["part"]).mean() > 0.85
    m.save(tmp_path / "m.safetensors")
    pd.testing.assert_frame_equal(eckart.load(tmp_path / "m.safetensors").impute(gaps), filled)


def spectra(rng, rows=150, columns=12, noise=1e-3):
    """Smooth curves: every column is told nearly exactly by the others."""
    at = np.linspace(0, 1, columns)
    curves = np.array([np.sin((1 + p) * at + p) for p in range(4)])
    return rng.standard_normal((rows, 4)) @ curves + noise * rng.standard_normal((rows, columns))


def test_columns_that_tell_each_other_exactly_are_filled_exactly(rng):
    """With a ridge of one row at the least, and the ends of what was seen, a twentieth of a standard
    deviation was left of columns whose noise is a thousandth."""
    whole = spectra(rng)
    gaps = np.where(rng.random(whole.shape) < 0.1, np.nan, whole)
    gaps[whole[:, 0].argmax(), 0] = np.nan  # beyond all that is seen
    model = MixedTable(random_state=0).fit(gaps)
    away = (np.asarray(model.impute(gaps)) - whole)[np.isnan(gaps)]
    assert np.sqrt(np.mean(away**2)) < 5e-3
    assert model.certificate_.holds


def test_ends_that_many_cells_hold_are_bounds(rng):
    whole = spectra(rng)
    whole[:, 0] = np.maximum(whole[:, 0], np.quantile(whole[:, 0], 0.02))
    gaps = np.where(rng.random(whole.shape) < 0.1, np.nan, whole)
    filled = np.asarray(MixedTable(random_state=0).fit(gaps).impute(gaps))
    assert filled[:, 0].min() >= whole[:, 0].min()
