"""eckart complete of tables with categories, yes/no and dates: taken by itself, written whole in
its own types."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import eckart


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    z = rng.standard_normal(120)
    whole = pd.DataFrame(
        {
            "name": [f"p{i}" for i in range(120)],
            "size": (170 + 9 * z + rng.normal(0, 2, 120)).round(1),
            "weight": (70 + 8 * z + rng.normal(0, 2, 120)).round(1),
            "smokes": np.where(z + rng.normal(0, 0.3, 120) > 0, "true", "false"),
            "town": np.where(z + rng.normal(0, 0.3, 120) > 0, "Bonn", "Kiel"),
        }
    )
    mask = np.hstack([np.zeros((120, 1), bool), rng.random((120, 4)) < 0.15])
    whole.to_csv(folder / "whole.csv", index=False)
    whole.mask(pd.DataFrame(mask, columns=whole.columns)).to_csv(folder / "gaps.csv", index=False)
    whole.mask(pd.DataFrame(mask, columns=whole.columns)).fillna(
        {"town": "unknown", "size": -9}
    ).to_csv(folder / "marks.csv", index=False)
    return folder


def test_a_mixed_table_is_filled_by_itself(eckart_):
    code, out, err = eckart_(
        "complete",
        "gaps.csv",
        "--out",
        "filled.csv",
        "--model",
        "m.safetensors",
        "--report",
        "r.html",
    )
    assert code == 0, err
    assert "mixed table" in out
    assert re.search(
        r"error [.\d]+ \(factor model alone [.\d]+; mean or commonest level [.\d]+, near rows "
        r"[.\d]+, linear regression [.\d]+\)",
        " ".join(out.split()),
    )
    assert "'name' is left as it is" in err
    filled, whole, gaps = (pd.read_csv(name) for name in ("filled.csv", "whole.csv", "gaps.csv"))
    assert list(filled) == list(whole)
    assert not filled.isna().any().any()
    for name in ("town", "smokes"):
        hidden = gaps[name].isna()
        # the sign of z + 0.3 e is that of z, and of what sizes and weights say of it, with a chance
        # of about 0.88; four deviations of so many cells
        least = 0.88 - 4 * np.sqrt(0.88 * 0.12 / hidden.sum())
        assert (filled[name][hidden].astype(str) == whole[name][hidden].astype(str)).mean() > least
        assert (filled[name][~hidden].astype(str) == whole[name][~hidden].astype(str)).all()
    assert eckart.load("m.safetensors").losses_["town"] == "multinomial"
    page = Path("r.html").read_text("utf-8")
    rows = dict(
        re.findall(r"<tr><td[^>]*>(\w+)</td><td[^>]*>(squared|multinomial|logistic)</td>", page)
    )
    assert rows["town"] == "multinomial"
    assert rows["smokes"] == "logistic"
    for words in (
        "What the other columns say of each",
        "What goes together",
        "How the rank was chosen",
        "Evidence",
    ):
        assert words in page


def test_marks_and_an_index(eckart_):
    code, out, err = eckart_(
        "complete",
        "marks.csv",
        "--index",
        "name",
        "--missing",
        "unknown,-9",
        "--out",
        "filled.parquet",
        "-k",
        "1",
        "--json",
    )
    assert code == 0, err
    filled = pd.read_parquet("filled.parquet")
    assert "unknown" not in set(filled["town"])
    assert filled["size"].min() > 100
    assert filled["name"].tolist() == pd.read_csv("whole.csv")["name"].tolist()
    assert json.loads(out)["plan"]["rank"] == 1


def test_the_plan_is_that_of_the_mixed_table(eckart_, data):
    code, out, err = eckart_(
        "complete", "gaps.csv", "--index", "name", "--plan", "--json", "--out", "planned.csv"
    )
    plan = json.loads(out)["plan"]
    # no column is said to be left out
    assert (code, err, plan["rows"], plan["measured_rows"]) == (0, "", 120, 120)
    assert plan["seconds"] > 0
    assert not (data / "planned.csv").exists()


def test_other_methods_stay_and_options_of_theirs_are_refused(eckart_):
    code, _, err = eckart_(
        "complete", "gaps.csv", "--method", "als", "-k", "1", "--out", "numbers.csv"
    )
    assert code in (0, 1), err
    assert "left out of gaps.csv" in err
    code, _, err = eckart_("complete", "gaps.csv", "--method", "mixed", "--held-out", "0.1")
    assert code == 2
    assert "--method mixed" in err


def test_numbers_in_different_units_have_a_scale_each(eckart_):
    """Row biases over columns of different units say nothing: biases and factors in the units of
    the data were worse than column means."""
    rng = np.random.default_rng(1)
    z = rng.standard_normal((150, 1))
    whole = pd.DataFrame(
        np.array([50, 1e3, 0.2, 7])
        + z * [9, 300, 0.02, -1]
        + rng.standard_normal((150, 4)) * [5, 150, 0.01, 0.5],
        columns=["age", "income", "share", "grade"],
    )
    gaps = whole.mask(rng.random(whole.shape) < 0.15).assign(empty=np.nan)
    gaps.insert(0, "row", range(1, 151))
    gaps.to_csv("units.csv", index=False)
    code, out, err = eckart_("complete", "units.csv", "--out", "filled.csv")
    assert code == 0, err
    assert "the standard deviation of income is" in out
    assert "'row' is left as it is" in err
    assert "'empty' is left as it is" in err
    filled, hidden = pd.read_csv("filled.csv"), gaps[whole.columns].isna()
    assert list(filled) == list(gaps)
    assert filled["empty"].isna().all()
    error, plain = (
        np.sqrt((((one - whole) / whole.std()) ** 2).where(hidden).stack().mean())
        for one in (filled[whole.columns], gaps[whole.columns].mean())
    )
    assert error < 0.8 * plain


def test_gaps_among_words_as_other_programs_write_them(eckart_, tmp_path, monkeypatch):
    """R writes NA for every gap, also among texts; it was a level of its own there, and gaps were
    filled with it."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    size = rng.standard_normal(120)
    frame = pd.DataFrame(
        {
            "size": size,
            "weight": 3 * size + rng.standard_normal(120),
            "sex": np.where(size > 0, "male", "female"),
        }
    )
    frame["ward"] = np.where(rng.random(120) < 0.5, "None", "B")
    frame.loc[::10, "sex"] = None
    frame.loc[3::10, "weight"] = np.nan
    frame.to_csv("r.csv", index=False, na_rep="NA")
    code, out, err = eckart_("complete", "r.csv", "--out", "filled.csv")
    assert code == 0
    assert "24 gaps" in out
    assert "NA stands for a gap in sex" in err
    filled = pd.read_csv("filled.csv", keep_default_na=False)
    assert set(filled["sex"]) == {"male", "female"}
    assert set(filled["ward"]) == {"None", "B"}, "an answer, not a gap"
    hidden = frame["sex"].isna()
    assert (filled["sex"] == np.where(size > 0, "male", "female"))[hidden].mean() > 0.7
