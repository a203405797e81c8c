"""Labels: one id in whatever type it comes, unknown ids refused with those near to them, kinds
never mixed up."""

from __future__ import annotations

import datetime as dt
import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eckart import InputError
from eckart.index.alike import MOST_COMPARED, alike
from eckart.index.labels import Labels

DAY = dt.date(2024, 2, 29)


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=30, unique=True)
    | st.lists(st.integers(-20, 20), min_size=1, max_size=30, unique=True)
    | st.lists(st.text(max_size=4), min_size=1, max_size=30, unique=True)
    | st.lists(st.dates(), min_size=1, max_size=30, unique=True)
    | st.lists(st.integers(0, 5) | st.text(max_size=2), min_size=1, max_size=9, unique=True)
    | st.lists(st.tuples(st.integers(), st.text()), min_size=1, max_size=9, unique=True)
    | st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=9, unique=True)
    | st.lists(st.floats(allow_nan=False), min_size=1, max_size=9, unique=True)
)
@settings(max_examples=150, deadline=None)
def test_every_label_is_found_where_it_stands(ids):
    labels = Labels(ids, len(ids))
    assert labels.indices_of(ids).tolist() == list(range(len(ids)))
    assert labels.indices_of(ids[::-1]).dtype == np.int64
    assert [labels.index_of(x) for x in ids] == list(range(len(ids)))
    assert not labels.unknown(ids).any()
    assert labels.indices_of(labels.names(np.arange(len(ids)))).tolist() == list(range(len(ids)))


@pytest.mark.parametrize("far", [0, 10**12])
@pytest.mark.parametrize(
    "form",
    [
        int,
        np.int64,
        np.uint64,
        float,
        lambda x: np.array([x]).astype(object)[0],
        lambda x: pd.Series([x])[0],
        lambda x: pa.scalar(x).as_py(),
    ],
)
def test_an_integer_is_found_in_any_type(form, far):
    labels = Labels(np.array([7, 42 + far, 3]), 3)
    assert labels.index_of(form(42 + far)) == 1
    assert Labels(np.array([7, 42 + far, 3], object), 3).index_of(form(42 + far)) == 1
    assert Labels(pd.Index([7, 42 + far, 3]), 3).index_of(form(42 + far)) == 1
    assert labels.unknown([form(41), form(7)]).tolist() == [True, False]


def test_many_ids_come_from_columns_of_tables():
    labels = Labels(np.array([7, 42, 3]), 3)
    for ids in (
        pd.Series([3, 7]),
        pd.Series([3, 7], dtype="Int64"),
        pa.array([3, 7]),
        [3.0, np.int8(7)],
        np.array([3, 7], ">i4"),
    ):
        assert labels.indices_of(ids).tolist() == [2, 0]
    text = Labels(["b", "a"], 2)
    for ids in (
        pd.Series(["a", "b"]),
        np.array(["a", "b"]),
        pa.array(["a", "b"]),
        [np.str_("a"), "b"],
    ):
        assert text.indices_of(ids).tolist() == [1, 0]
    assert Labels(["b"], 1).indices_of([]).tolist() == []


def test_text_is_never_taken_for_a_number_nor_the_reverse():
    with pytest.raises(
        InputError, match="row must be an integer, got '42': the labels are integers"
    ):
        Labels(np.array([7, 42]), 2).index_of("42")
    with pytest.raises(
        InputError, match="column must be an integer, got '42': the labels are integers"
    ):
        Labels(np.array([7, 42]), 2, "column").unknown(np.array(["42", "43"]))
    with pytest.raises(
        InputError, match="row must be an integer, got 'x': the labels are integers"
    ):
        Labels(np.array([7, 42]), 2).indices_of([7, "x"])
    with pytest.raises(InputError, match="row must be text, got 42: the labels are text"):
        Labels(["7", "42"], 2).index_of(np.int64(42))
    mixed = Labels(["42", 42], 2)
    assert mixed.indices_of([42, "42"]).tolist() == [1, 0]


def test_dates_in_any_type_and_unit():
    days = Labels(np.array(["2024-02-28", "2024-02-29"], "M8[D]"), 2)
    for form in (
        DAY,
        dt.datetime(2024, 2, 29),
        pd.Timestamp(DAY),
        np.datetime64(DAY),
        np.datetime64("2024-02-29T00:00", "ns"),
    ):
        assert days.index_of(form) == 1
        assert Labels([dt.date(2024, 2, 28), DAY], 2).index_of(form) == 1
        assert Labels(pd.DatetimeIndex(["2024-02-28", DAY]), 2).index_of(form) == 1
    assert days.unknown([dt.datetime(2024, 2, 29, 12), dt.datetime(2024, 2, 29)]).tolist() == [
        True,
        False,
    ]
    with pytest.raises(
        InputError, match="row must be a date, got '2024-02-29': the labels are dates"
    ):
        days.index_of("2024-02-29")
    with pytest.raises(InputError, match="row must be one of the 2 row labels, got 2024-03-01"):
        days.index_of(dt.date(2024, 3, 1))
    aware = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    assert Labels([aware, aware + dt.timedelta(1)], 2).index_of(aware) == 0


def test_names_that_are_alike_are_found_among_many_in_a_bounded_time():
    """A hundred thousand names: one slip anywhere in the name is forgiven, and the work stays
    within what is said."""
    rng = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    names = ["".join(word) for word in letters[rng.integers(0, 26, (100_000, 9))]]
    wanted = names[12_345]
    for at in (0, 4, 8):
        slip = wanted[:at] + "_" + wanted[at + 1 :]
        begin = time.process_time()
        assert alike(slip, names)[0] == wanted
        assert time.process_time() - begin < 10  # a tenth of a second where this was measured
    assert alike("", names) == []


def test_an_unknown_id_is_refused_with_the_ids_near_to_it():
    with pytest.raises(
        InputError,
        match="row must be one of the 3 row labels, got 'alica'",
    ):
        Labels(["alice", "bob", "carol"], 3).index_of("alica")
    with pytest.raises(
        InputError,
        match=r"row must be one of the 3 row labels, got 40 at position 1 \(1 more are unknown\)",
    ):
        Labels(np.array([99, 42, 7]), 3).indices_of([42, 40, 8])
    many = [f"user{i:06d}" for i in range(MOST_COMPARED + 1)]
    with pytest.raises(InputError, match="row must be one of the 10001 row labels, got"):
        Labels(many, len(many)).index_of("user000012x")
    with pytest.raises(
        InputError, match="row must be one of the 10001 row labels, got"
    ):  # its neighbours in order were 'user009998' to 'user010000'
        Labels(many, len(many)).index_of("xuser000012")
    with pytest.raises(InputError, match="row must be one of the 3 row labels, got 'Bob '"):
        Labels(["alice", "bob", "carol"], 3).index_of("Bob ")
    with pytest.raises(
        InputError, match="row must be one of the 4 row labels, got '12345'"
    ):  # they were called near ones
        Labels(["alice", "bob", "carol", "dora"], 4).index_of("12345")
    with pytest.raises(InputError, match=r"row must be one of the 2 row labels, got \(3, 4\)"):
        Labels([1, "a"], 2).index_of((3, 4))
    assert Labels([1, "a"], 2).unknown([2.5, "a"]).tolist() == [True, False]
    assert Labels(np.array([1, 2]), 2).unknown([2.5, 1.0, 2**70, -(2**70), np.inf]).tolist() == [
        True,
        False,
        True,
        True,
        True,
    ]


def test_without_labels_positions_are_the_ids_and_their_bounds_are_checked():
    labels = Labels(None, 3, "column")
    assert labels.index_of(2) == 2
    assert labels.indices_of(np.array([0, 2], np.uint8)).dtype == np.int64
    assert labels.unknown([-1, 0, 3]).tolist() == [True, False, True]
    assert labels.names([2, 0]).tolist() == [2, 0]
    for bad in (3, -1, 1.5):
        with pytest.raises(InputError, match="column must be a position of 0 to 2, got"):
            labels.index_of(bad)
    with pytest.raises(
        InputError,
        match="column must be a position of 0 to 2, got 'a': the matrix has no column labels",
    ):
        labels.index_of("a")


@pytest.mark.parametrize("null", [None, np.nan, pd.NA, pd.NaT, np.datetime64("NaT")])
@pytest.mark.parametrize("labels", [None, np.array([1, 2]), ["a", "b"], [DAY, dt.date(2020, 1, 1)]])
def test_no_id_at_all_is_refused(null, labels):
    with pytest.raises(InputError, match=r"at position 0\. Drop what has none\."):
        Labels(labels, 2).index_of(null)


@pytest.mark.parametrize(
    "ids",
    [["a", "b", "a", "c"], [4, 5, 4, 6], [DAY, dt.date(2020, 1, 1), DAY, dt.date(2021, 1, 1)]],
)
def test_a_label_that_stands_twice_is_refused_only_when_asked_for(ids):
    labels = Labels(ids, 4)
    assert labels.repeats.tolist() == [True, False, True, False]
    assert labels.indices_of([ids[1], ids[3]]).tolist() == [1, 3]
    with pytest.raises(InputError, match="row must be the label of one row, got"):
        labels.index_of(ids[0])


def test_a_word_is_not_a_list_of_letters():
    with pytest.raises(InputError, match="ids must be a list of ids, got 'ab'"):
        Labels(["a", "b"], 2).indices_of("ab")
    with pytest.raises(InputError, match="2 dimensions"):
        Labels(None, 2).indices_of(np.zeros((1, 1), int))
