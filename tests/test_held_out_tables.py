"""What MixedTable chooses on cells that were held out: forests, forms of columns, ranks; rare
levels; units."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.impute import KNNImputer

import eckart
from eckart import FileError, MixedTable
from eckart.complete.tables.forests import features_of


def bent(n: int = 300, seed: int = 0) -> pd.DataFrame:
    """A column that is the square of another, which no linear combination says."""
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((n, 3))
    square, sign = (
        a[:, 0] ** 2 + 0.1 * rng.standard_normal(n),
        np.where(np.abs(a[:, 1]) > 0.7, "far", "near"),
    )
    return pd.DataFrame({"a": a[:, 0], "b": a[:, 1], "c": a[:, 2], "square": square, "sign": sign})


def hidden(
    frame: pd.DataFrame, share: float = 0.15, seed: int = 1
) -> tuple[pd.DataFrame, np.ndarray]:
    mask = np.random.default_rng(seed).random(frame.shape) < share
    return frame.mask(pd.DataFrame(mask, columns=frame.columns, index=frame.index)), mask


@pytest.fixture(scope="module")
def curved() -> tuple[pd.DataFrame, pd.DataFrame, np.ndarray, MixedTable]:
    frame = bent(400)
    gaps, mask = hidden(frame)
    return frame, gaps, mask, MixedTable(random_state=0).fit(gaps)


def test_forests_are_taken_where_they_gain(curved):
    frame, gaps, mask, model = curved
    straight = MixedTable(trees=False, random_state=0).fit(gaps)
    rows = mask[:, 3]
    errors = [
        float(np.sqrt(np.mean((m.impute(gaps)["square"] - frame["square"])[rows] ** 2)))
        for m in (model, straight)
    ]
    assert errors[0] < 0.7 * errors[1]
    plain, low_rank, whole = model.fit_.plan["errors"]["square"]
    assert whole < 0.7 * low_rank <= 0.75 * plain + 0.1
    wrong = [
        float((m.impute(gaps)["sign"] != frame["sign"])[mask[:, 4]].mean())
        for m in (model, straight)
    ]
    assert wrong[0] < wrong[1]


def test_errors_that_were_held_out_are_those_of_new_cells(curved):
    """A table of pure noise has no error below that of the mean, whatever the rank: errors that
    were not held out would."""
    rng = np.random.default_rng(3)
    noise = pd.DataFrame(rng.standard_normal((60, 12)), columns=[f"x{j}" for j in range(12)])
    model = MixedTable(8, l2=1.0, random_state=0).fit(noise.mask(rng.random(noise.shape) < 0.1))
    plain, low_rank, _ = np.array(list(model.fit_.plan["errors"].values())).T
    assert low_rank.mean() > 0.97 * plain.mean()


def test_models_with_forests_are_saved_and_loaded(curved, tmp_path):
    _, gaps, _, model = curved
    model.save(tmp_path / "m.safetensors")
    back = eckart.load(tmp_path / "m.safetensors")
    pd.testing.assert_frame_equal(back.impute(gaps), model.impute(gaps))
    np.testing.assert_array_equal(
        back.predict_proba(gaps, "sign"), model.predict_proba(gaps, "sign")
    )


@pytest.mark.parametrize(
    "harm",
    [
        lambda a: a.update({"trees.children.3": a["trees.children.3"] * 0}),
        lambda a: a.update({"trees.feature.3": a["trees.feature.3"] + 99}),
        lambda a: a.update({"trees.roots.3": a["trees.roots.3"] - 9}),
        lambda a: a.update({"trees.share.3": a["trees.share.3"] + 9}),
        lambda a: a.update({"trees.values.3": a["trees.values.3"] * np.nan}),
        lambda a: a.pop("trees.threshold.3"),
        lambda a: a.update({"trees.share.77": a["trees.share.3"]}),
    ],
)
def test_forests_of_hostile_files_are_refused(curved, tmp_path, harm):
    import json

    from safetensors.numpy import save as to_bytes

    from eckart.io.models.save import pack, seal

    arrays, header = pack(curved[3])
    harm(arrays)
    arrays = {name: np.ascontiguousarray(a) for name, a in arrays.items()}
    path = tmp_path / "m.safetensors"
    path.write_bytes(to_bytes(arrays, metadata={"eckart": seal(arrays, json.dumps(header))}))
    with pytest.raises(FileError):
        eckart.load(path)


def test_explanations_add_up_with_forests(curved):
    _, gaps, _, model = curved
    for column in ("square", "sign"):
        told = model.explain(gaps, column, row=4)
        assert told.natural == pytest.approx(told.base + sum(share for _, share in told.shares))
    told = model.explain(gaps, "square", row=4)
    assert told.value == pytest.approx(float(model.expect(gaps, "square")[4]))
    zero = gaps["square"].min()
    assert np.exp(told.natural) + zero == pytest.approx(told.value)  # a rate above the least value
    assert model.losses_["square"] == "poisson"


def countries(seed: int = 0) -> pd.DataFrame:
    """193 countries, ten of them with one row, and twelve columns that differ by country."""
    rng = np.random.default_rng(seed)
    of = np.append(np.repeat(np.arange(183), 12), np.arange(183, 193))
    each = rng.standard_normal((193, 6)) @ rng.standard_normal((6, 12)) + 0.8 * rng.standard_normal(
        (193, 12)
    )
    x = each[of] + 0.35 * rng.standard_normal((len(of), 12))
    return pd.DataFrame(x, columns=[f"v{j}" for j in range(12)]).assign(
        country=[f"c{i}" for i in of]
    )


def test_countries_of_one_row_have_no_extreme_fills():
    frame = countries()
    mask = np.random.default_rng(1).random(frame.shape) < 0.15
    mask[:, -1], mask[-10:, :4] = False, True
    gaps = frame.mask(pd.DataFrame(mask, columns=frame.columns))
    model = MixedTable(random_state=0).fit(gaps)
    names = list(frame)[:-1]
    found, seen = model.impute(gaps)[names].to_numpy(), gaps[names].to_numpy()
    ends = (found == np.nanmin(seen, axis=0)) | (found == np.nanmax(seen, axis=0))
    assert not ends[mask[:, :-1]].any()
    assert model.at_the_ends(gaps) == {}
    neighbours = KNNImputer().fit_transform(seen)
    truth = frame[names].to_numpy()
    errors = [
        np.sqrt(np.mean(((a - truth) / truth.std(axis=0))[mask[:, :-1]] ** 2))
        for a in (found, neighbours)
    ]
    assert errors[0] < errors[1]


def test_fills_at_the_ends_are_counted():
    rng = np.random.default_rng(0)
    z = rng.standard_normal(200)
    frame = pd.DataFrame({"a": z, "b": np.clip(z, -1, 1), "c": z + 0.01 * rng.standard_normal(200)})
    frame.loc[frame["a"] > 1.5, "b"] = np.nan
    model = MixedTable(trees=False, random_state=0).fit(frame)
    assert model.at_the_ends(frame) == {"b": int(frame["b"].isna().sum())}


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_fills_follow_units_and_shifts(factor):
    rng = np.random.default_rng(0)
    z = rng.standard_normal((150, 2))
    frame = pd.DataFrame(
        z @ rng.standard_normal((2, 4)) + 0.2 * rng.standard_normal((150, 4)), columns=list("abcd")
    )
    frame["counts"] = rng.poisson(np.exp(1.5 * z[:, 0])).astype(float)
    frame["amount"] = np.exp(1.5 * z[:, 1])
    gaps, _ = hidden(frame, 0.1)
    other = gaps * factor + 3 * factor
    found, again = (MixedTable(random_state=0).fit_impute(g) for g in (gaps, other))
    np.testing.assert_allclose(
        (again / factor - 3).to_numpy(), found.to_numpy(), rtol=1e-3, atol=2e-3
    )


def test_uncertainty_is_as_large_as_the_errors():
    rng = np.random.default_rng(2)
    z = rng.standard_normal((400, 2))
    frame = pd.DataFrame(
        z @ rng.standard_normal((2, 6)) + 0.3 * rng.standard_normal((400, 6)),
        columns=list("abcdef"),
    )
    gaps, mask = hidden(frame, 0.2)
    model = MixedTable(random_state=0).fit(gaps)
    error, told = (model.impute(gaps) - frame).to_numpy(), model.uncertainty(gaps)
    ratio = np.concatenate([error[mask[:, j], j] / told[name] for j, name in enumerate(frame)])
    assert 0.8 < np.sqrt(np.mean(ratio**2)) < 1.25


def test_rare_levels_are_not_called_where_others_say_nothing_of_them(tmp_path):
    """Of columns of yes and no that say nothing of each other the commonest answer is best."""
    rng = np.random.default_rng(5)
    frame = pd.DataFrame(
        {f"flag {j}": pd.array(rng.random(60) < 0.2, dtype="boolean") for j in range(20)}
    )
    frame["size"] = rng.standard_normal(60)
    gaps, mask = hidden(frame, 0.2, seed=3)
    model = MixedTable(trees=False, n_components=12, l2=1.0, random_state=0).fit(gaps)
    errors = np.array([of for name, of in model.fit_.plan["errors"].items()])
    assert errors[:, 2].mean() < 0.9 * errors[:, 1].mean()
    filled = model.impute(gaps)
    wrong = (filled != frame).to_numpy()[:, :20][mask[:, :20]].mean()
    yes = frame.iloc[:, :20].to_numpy().astype(float)[mask[:, :20]].mean()
    assert wrong <= 1.3 * yes
    model.save(tmp_path / "m.safetensors")
    back = eckart.load(tmp_path / "m.safetensors")
    pd.testing.assert_frame_equal(back.impute(gaps), filled)
    name = next(p.name for p in model.parts_ if p.trust < 1)
    told = model.explain(frame.mask(mask & False), name, row=1)
    assert np.isclose(told.base + sum(share for _, share in told.shares), told.natural)
    assert "(mean)" in dict(told.shares)


def test_a_column_that_is_a_sum_of_others_is_filled_by_regression(tmp_path):
    """Prices between a least and a largest, beside other columns: a factor model shrinks its noise
    slowly, linear regression tells them exactly."""
    rng = np.random.default_rng(2)
    z = rng.standard_normal((150, 3))
    cars = z @ rng.standard_normal((3, 8)) + 0.5 * rng.standard_normal((150, 8))
    frame = pd.DataFrame(cars, columns=[f"c{j}" for j in range(8)])
    frame["price"] = (frame["c0"] + frame["c1"]) / 2
    gaps, mask = hidden(frame, 0.1)
    model = MixedTable(n_components=3, random_state=0).fit(gaps)
    _, low_rank, whole = model.fit_.plan["errors"]["price"]
    assert whole < 0.8 * low_rank
    filled = model.impute(gaps)
    off = (filled["price"] - frame["price"])[mask[:, 8]]
    assert np.sqrt((off**2).mean()) < 0.8 * low_rank * frame["price"].std()
    model.save(tmp_path / "m.safetensors")
    pd.testing.assert_frame_equal(eckart.load(tmp_path / "m.safetensors").impute(gaps), filled)
    told = model.explain(gaps, "price", row=0)
    assert np.isclose(told.base + sum(share for _, share in told.shares), told.natural)
    assert "(linear)" in dict(told.shares)
    assert model.simple_errors(gaps)["price"]["linear"] < 0.9 * low_rank


def test_a_forest_looks_at_the_same_scores_whatever_its_column_is_trusted():
    """Trained before and asked after the shares of a column are known."""
    model = MixedTable(random_state=0).fit(bent(60))
    part = model.parts_[1]
    for other in (replace(part, trust=0.5, plain=np.zeros(1)), replace(part, linear=0.5)):
        np.testing.assert_array_equal(
            features_of(model.parts_, other), features_of(model.parts_, part)
        )
