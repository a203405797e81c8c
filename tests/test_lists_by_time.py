"""Recommenders compared by time, models that cannot take the data, rows that nobody knows, and
measures of lists by id."""

import numpy as np
import pytest

from eckart import ALS, EASE, compare
from eckart.errors import InputError
from eckart.matrix import Observed
from eckart.metrics import ndcg_at_k, ranking, recall_at_k


def trend(rows=120, columns=30, each=8, seed=0):
    """Every row takes columns that were new at its time: what is popular of late says more than
    what is popular."""
    rng = np.random.default_rng(seed)
    i, j, when = [], [], []
    for row in range(rows):
        start = rng.random() * 0.3
        for p in range(each):
            now = start + 0.6 * p / each + 0.1 * rng.random()
            i, j, when = [*i, row], [*j, int(columns * now)], [*when, now]
    ids = np.array([f"u{k}" for k in range(rows)]), np.array([f"p{k}" for k in range(columns)])
    x = Observed.from_codes(
        np.array(i), np.array(j), np.ones(len(i)), (rows, columns), *ids, duplicates="last"
    )
    return x, Observed.from_codes(
        np.array(i), np.array(j), np.array(when), (rows, columns), *ids, duplicates="last"
    )


def test_recent_popularity_stands_in_the_table_where_times_are_given():
    x, when = trend()
    found = compare(x, models={"ease": EASE(10.0)}, times=when, held_out=1, at=5)
    assert {row.model for row in found.table} == {"ease", "popularity", "recent"}
    by = {row.model: row.ndcg for row in found.table}
    assert by["recent"] > by["popularity"]
    assert found.hidden == 120  # the last of every row
    again = compare(x, models={"ease": EASE(10.0)}, times=when.data, held_out=1, at=5)
    assert again.table[0].ndcg == found.table[0].ndcg
    with pytest.raises(InputError, match="times"):
        compare(x, models={"ease": EASE(10.0)}, times=when, test=x)


def test_models_that_cannot_take_the_data_are_left_out():
    rng = np.random.default_rng(0)
    x = Observed.from_codes(
        np.repeat(np.arange(60), 5),
        np.concatenate([rng.permutation(20)[:5] for _ in range(60)]),
        rng.normal(size=300),
        (60, 20),
    )
    found = compare(x, models={"ease": EASE(10.0), "als": ALS(2, random_state=0)}, at=5)
    assert {row.model for row in found.table} == {"als", "popularity"}
    assert set(found.models) == {"als"}
    assert "ease is left out: " + found.left_out["ease"] in str(found)


def test_rows_that_nobody_knows_get_what_is_popular():
    x, _ = trend()
    model = EASE(10.0).fit(x)
    first = np.argsort(-x.column_counts(), kind="stable")[:3]
    for asked, new in (("nobody", [0]), (["u3", "nobody", "u4"], [1])):
        found = model.recommend(asked, n=3, unknown="popular")
        for at in new:
            assert found.columns[at].tolist() == [f"p{j}" for j in first]
            assert found.scores[at].tolist() == x.column_counts()[first].tolist()
    np.testing.assert_array_equal(found.columns[[0, 2]], model.recommend(["u3", "u4"], n=3).columns)
    assert found.rows.tolist() == ["u3", "nobody", "u4"]
    assert (
        model.recommend("nobody", n=2, unknown="popular", exclude=[f"p{first[0]}"])
        .positions[0]
        .tolist()
        == first[1:3].tolist()
    )
    with pytest.raises(InputError, match="nobody"):
        model.recommend("nobody")
    with pytest.raises(InputError, match="unknown"):
        model.recommend("nobody", unknown="mean")


def test_measures_take_recommendations():
    x, _ = trend()
    model = EASE(10.0).fit(x)
    found = model.recommend(n=5, exclude_seen=False)
    assert ranking(found, x, 5).mean == ranking(found.positions, x, 5).mean
    some = ["u7", "u3"]
    shown = model.recommend(some, n=5, exclude_seen=False)
    expected = ranking(shown.positions, x.to_scipy()[[7, 3]], 5).mean
    assert ranking(shown, x, 5).mean == expected
    assert (recall_at_k(shown, x, 5), ndcg_at_k(shown, x, 5)) == (
        expected["recall"],
        expected["ndcg"],
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("log")
    x, when = trend()
    lines = [
        f"u{i},p{j},{t:.4f}"
        for i, j, t in zip(np.repeat(np.arange(120), x.row_counts()), x.indices, when.data)
    ]
    (folder / "log.csv").write_text("\n".join(["user,page,when", *lines, *lines[:5]]) + "\n")
    return folder


def test_the_shell_compares_by_time(eckart_):
    code, out, _ = eckart_(
        "compare",
        "log.csv",
        "--rows",
        "user",
        "--columns",
        "page",
        "--time",
        "when",
        "--methods",
        "ease",
        "--at",
        5,
    )
    assert code == 0
    assert "recent" in out
