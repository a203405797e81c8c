"""Tables in long form, from memory and from files in blocks: the same matrix, or one error with the
line, the row and the column."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import eckart.io.tables.long_tables
from eckart import FileError, InputError, Observed, read
from eckart.io.tables.csv_file import LONG_MARK, _OneMark
from eckart.io.tables.triples import observed
from eckart.matrix_blocks import ObservedParts

ASK = {"rows": "user", "columns": "film", "values": "stars"}
TABLE = {
    "user": ["bob", "ann", "bob", "cy"],
    "film": [20, 10, 10, 30],
    "stars": [5.0, 4.0, 0.0, 2.5],
}


def triples(x):
    """What a matrix holds, by label."""
    rows = x.row_index.names(np.repeat(np.arange(x.shape[0]), x.row_counts()))
    return dict(zip(zip(rows.tolist(), x.column_index.names(x.indices).tolist()), x.data.tolist()))


WANTED = dict(zip(zip(TABLE["user"], TABLE["film"]), TABLE["stars"]))

FORMS = {
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "arrow": pa.table,
    "batch": lambda t: pa.table(t).to_batches()[0],
    "reader": lambda t: pa.table(t).to_reader(2),
    "dict": dict,
    "dict of arrays": lambda t: {k: np.array(v) for k, v in t.items()},
    "categories": lambda t: pd.DataFrame(t).astype({"user": "category", "film": "category"}),
    "pieces": lambda t: [pd.DataFrame(t)[:2], pd.DataFrame(t)[2:]],
    "generator": lambda t: (pl.DataFrame(t)[k : k + 1] for k in range(4)),
    "record array": lambda t: pd.DataFrame({**t, "user": np.array(t["user"], "U3")}).to_records(
        index=False
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_table_in_long_form(form):
    x = read(FORMS[form](TABLE), **ASK)
    assert type(x) is Observed
    assert triples(x) == WANTED
    assert list(x.rows) == ["ann", "bob", "cy"]
    assert x.columns.tolist() == [10, 20, 30]
    assert triples(observed(FORMS[form](TABLE), **ASK)) == WANTED


def test_positions_instead_of_names():
    rows = list(zip(*TABLE.values()))
    for source in (rows, [list(r) for r in rows], pd.DataFrame(TABLE), pd.DataFrame(rows)):
        assert triples(read(source, rows=0, columns=1, values=2)) == WANTED
    table = np.array([[1, 2, 0.5], [3, 2, 4.5]])
    x = read(table, rows=0, columns=1, values=2)
    assert triples(x) == {(1, 2): 0.5, (3, 2): 4.5}
    assert x.rows.dtype == np.int64, "whole numbers are integers"


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet", "arrow", "feather"])
@pytest.mark.parametrize("pieces", [False, True])
def test_files_in_long_form(tmp_path, monkeypatch, ending, pieces):
    if pieces:
        monkeypatch.setattr(eckart.io.tables.long_tables, "BATCH_BYTES", 8)
        monkeypatch.setattr(eckart.io.tables.long_tables, "BATCH_ROWS", 1)
    frame = pd.DataFrame({"note": ["x"] * 4, **TABLE})
    for name, part in (("all", frame), ("p0", frame[:1]), ("p1", frame[1:])):
        path = tmp_path / f"{name}.{ending}"
        if ending == "parquet":
            part.to_parquet(path)
        elif ending in ("csv", "tsv"):
            part.to_csv(path, index=False, sep="," if ending == "csv" else "\t")
        else:
            pyarrow.feather.write_feather(part.reset_index(drop=True), path)
    for source in (tmp_path / f"all.{ending}", str(tmp_path / f"p*.{ending}")):
        x = read(source, **ASK)
        assert triples(x) == WANTED
        assert x.columns.dtype == np.int64
    with pytest.raises(
        InputError,
        match="the column must be one of the columns of",
    ):
        read(tmp_path / f"all.{ending}", rows="user", columns="movie", values="stars")
    implicit = read(tmp_path / f"all.{ending}", rows="film", columns="note", duplicates="sum")
    assert triples(implicit) == {(10, "x"): 2.0, (20, "x"): 1.0, (30, "x"): 1.0}
    with pytest.raises(InputError, match="duplicates='sum' to count them"):
        read(tmp_path / f"all.{ending}", rows="film", columns="note")


def test_a_large_csv_in_small_blocks_equals_the_one_read_whole(tmp_path, monkeypatch, rng):
    n = 100_000
    pair = rng.choice(3000 * 500, n, replace=False)
    frame = pd.DataFrame(
        {
            "user": [f"u{p}" for p in pair // 500],
            "film": pair % 500 - 7,
            "stars": rng.standard_normal(n),
        }
    )
    frame.to_csv(tmp_path / "x.csv", index=False)
    frame.to_parquet(tmp_path / "x.parquet")
    whole = Observed.from_triples(
        frame["user"].to_numpy(object), frame["film"].to_numpy(), frame["stars"].to_numpy()
    )
    for _ in range(2):
        for name in ("x.csv", "x.parquet"):
            got = read(tmp_path / name, **ASK)
            for part in ("indptr", "indices", "data", "rows", "columns"):
                np.testing.assert_array_equal(getattr(got, part), getattr(whole, part))
        monkeypatch.setattr(eckart.io.tables.long_tables, "BATCH_BYTES", 20_000)
        monkeypatch.setattr(eckart.io.tables.long_tables, "BATCH_ROWS", 777)
    with (tmp_path / "x.csv").open("a") as out:
        out.write(f"{frame['user'][5]},{frame['film'][5]},1\n")
    with pytest.raises(
        InputError, match="each entry must have one value, got row 'u2811', column 337 at line 7 of"
    ):
        read(tmp_path / "x.csv", **ASK)
    assert read(tmp_path / "x.csv", **ASK, duplicates="last").nnz == n


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "user,film,stars\nann,1,2\n\n,2,3\n",
            "column 'user' must hold an id, got no value at line 4 of",
        ),
        (
            "user,film,stars\nann,1,2\nbob,,3\n",
            "column 'film' must hold an id, got no value at line 3 of",
        ),
        (
            "user,film,stars\nann,1,2\nbob,NA,3\n",
            "column 'film' must hold an id, got 'NA' at line 3 of",
        ),
        (
            "user,film,stars\nann,1,2\nbob,1,\n",
            "column 'stars' must hold finite numbers, got nan at line 3 of",
        ),
        (
            "user,film,stars\nann,1,2\n\nbob,1,inf\n",
            "column 'stars' must hold finite numbers, got inf at line 4 of",
        ),
        (
            "user,film,stars\nann,1,2\nbob,1,good\n",
            "must hold numbers only, got 'good' at line 3",
        ),
        ("user,film,stars\nann,1,2\n\nbob,1\n", "line 4: Expected 3 columns, got 2"),
        ("user,film,stars\nann,1,2\nbob,1,2,3\n", "line 3: Expected 3 columns, got 4"),
        (
            "user,film,stars\nann,1,2\nann,1,3\n",
            "each entry must have one value, got row 'ann', column 1 at line 2 of",
        ),
        (
            "user,film,user,stars\nann,1,b,2\n",
            r"must have names that differ, got 'user' 2 times\. Rename it\.",
        ),
        ("user,film,stars\n", "header and no row"),
        (
            "user,film\nann,1\n",
            "the column must be one of the columns of",
        ),
        ("user,film,stars\nann,1,2\n\xff,1,2\n".encode("latin1"), "UTF-?8"),
    ],
)
@pytest.mark.parametrize("block", [1, 2**22])
def test_a_csv_line_that_is_no_observation_is_named(tmp_path, monkeypatch, text, words, block):
    monkeypatch.setattr(eckart.io.tables.long_tables, "BATCH_BYTES", block)
    (tmp_path / "x.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises((InputError, FileError), match=words):
        read(tmp_path / "x.csv", **ASK)


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (
            {"user": pa.array(["a", None])},
            "column 'user' must hold an id, got no value at row 1 of",
        ),
        ({"film": pa.array([None, 3])}, "column 'film' must hold an id, got no value at row 0 of"),
        (
            {"film": pa.array([None, None])},
            "column 'film' must hold an id, got no value at row 0 of",
        ),
        ({"film": pa.array([1.5, np.nan])}, "column 'film' must hold an id, got nan at row 1 of"),
        (
            {"stars": pa.array([1.0, None])},
            "column 'stars' must hold finite numbers, got nan at row 1 of",
        ),
        (
            {"stars": pa.array([1, None])},
            "column 'stars' must hold finite numbers, got nan at row 1 of",
        ),
        (
            {"stars": pa.array(["a", "b"])},
            "column 'stars' must hold numbers, got string at row 0 of",
        ),
        (
            {"user": pa.array([[1], [2]])},
            "column 'user' must hold an id that can be hashed: text, a number, a date, a tuple, got",
        ),
    ],
)
def test_parquet_with_nulls(tmp_path, column, words):
    table = {
        "user": pa.array(["a", "b"]),
        "film": pa.array([1, 2]),
        "stars": pa.array([1.0, 2.0]),
        **column,
    }
    pq.write_table(pa.table(table), tmp_path / "x.parquet")
    with pytest.raises(InputError, match=words):
        read(tmp_path / "x.parquet", **ASK)


def test_types_of_parquet_columns(tmp_path):
    day = [dt.date(2024, 5, 2), dt.date(2024, 5, 1)]
    time = [dt.datetime(2024, 5, 1, 8), dt.datetime(2024, 5, 1, 7)]
    table = {
        "day": pa.array(day),
        "time": pa.array(time, pa.timestamp("ms")),
        "half": pa.array([0.5, 1.5], pa.float32()),
        "truth": pa.array([True, False]),
        "exact": pa.array(["0.25", "0.5"]).cast(pa.decimal128(6, 2)),
        "word": pa.array(["x", "y"]).dictionary_encode(),
        "digits": pa.array(["1", "2"]),
    }
    pq.write_table(pa.table(table), tmp_path / "x.parquet")
    x = read(tmp_path / "x.parquet", rows="day", columns="time", values="half")
    assert x.rows.dtype == "M8[D]"
    assert x.columns.dtype == "M8[ms]"
    assert x.data.dtype == np.float32
    assert (x.row_of(day[0]), x.column_of(time[0])) == (1, 1)
    assert read(
        tmp_path / "x.parquet", rows="word", columns="time", values="truth"
    ).data.tolist() == [1, 0]
    assert read(tmp_path / "x.parquet", rows="exact", columns="time", values="half").shape == (2, 2)
    assert read(
        tmp_path / "x.parquet", rows="word", columns="time", values="exact"
    ).data.tolist() == [0.25, 0.5]
    assert list(read(tmp_path / "x.parquet", rows="digits", columns="time").rows) == ["1", "2"], (
        "text that a file calls text"
    )


def test_ids_of_two_kinds_in_two_files_are_refused(tmp_path):
    pq.write_table(pa.table({"user": [1], "film": [2], "stars": [3.0]}), tmp_path / "p1.parquet")
    pq.write_table(pa.table({"user": ["1"], "film": [2], "stars": [3.0]}), tmp_path / "p2.parquet")
    with pytest.raises(
        InputError,
        match="column 'user' must hold ids of one kind, got text or objects from row 0 of",
    ):
        read(tmp_path / "p*.parquet", **ASK)


def test_ids_of_a_csv_file_are_integers_only_where_nothing_is_lost(tmp_path, monkeypatch):
    def labels(*words):
        (tmp_path / "x.csv").write_text(
            "user,film,stars\n" + "".join(f"{w},{i},1\n" for i, w in enumerate(words))
        )
        return read(tmp_path / "x.csv", **ASK).rows.tolist()

    assert labels("10", "-9", "0") == [-9, 0, 10]
    assert labels(" 10", "9 ", "10") == [9, 10], "spaces around a number are no part of it"
    assert labels("007", "7") == ["007", "7"], "007 is not 7"
    assert labels("7", "x7") == ["7", "x7"]
    monkeypatch.setattr(eckart.io.tables.long_tables, "BATCH_BYTES", 1)
    assert labels(*map(str, range(100)), "x7", "7b") == sorted(
        [*map(str, range(100)), "x7", "7b"]
    ), "text in a later block"
    assert labels(*map(str, range(100)), "007") == sorted([*map(str, range(100)), "007"])
    assert labels("x", *map(str, range(100))) == sorted(["x", *map(str, range(100))])
    assert labels("1e3", "7") == ["1e3", "7"]
    assert labels("NA", "DE") == ["DE", "NA"], "a word among words is an id"
    assert labels("9" * 30, "7") == ["7", "9" * 30]
    assert labels('"a,b"', "c") == ["a,b", "c"]


@given(
    st.text(":ab\n", max_size=40), st.sampled_from(["::", ":", "::::", ":a:"]), st.integers(1, 9)
)
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_delimiter_cut_by_the_end_of_a_chunk_is_still_one(tmp_path, text, mark, size):
    (tmp_path / "x.dat").write_text(text)
    with _OneMark(tmp_path / "x.dat", mark.encode()) as source:
        parts = list(iter(lambda: source.read(size), b""))
    assert b"".join(parts).decode() == text.replace(mark, LONG_MARK)
    assert all(len(part) <= size for part in parts)


def test_delimiters_of_several_characters(tmp_path):
    path = tmp_path / "ratings.dat"
    path.write_text("1::b:c::3.5::99\n2::::d::1::7\n1::e::0::8")
    with pytest.raises((InputError, FileError), match="line 2: Expected 4 columns, got 5"):
        read(path, delimiter="::", header=False, rows=0, columns=1, values=2)
    path.write_text("1::b:c::3.5::99\r\n2:::d::1::7\r\n1::e::0::8")
    x = read(path, delimiter="::", header=False, rows=0, columns=1, values=2)
    assert triples(x) == {(1, "b:c"): 3.5, (2, ":d"): 1.0, (1, "e"): 0.0}
    assert triples(read(path, header=False, rows=0, columns=1, values=2)) == triples(x), (
        "as MovieLens writes its tables"
    )
    (tmp_path / "one.dat").write_text("u1::f1::4")
    assert triples(read(tmp_path / "one.dat", delimiter="::", rows=0, columns=1, values=2)) == {
        ("u1", "f1"): 4.0
    }
    (tmp_path / "dense.csv").write_text("a::b\n1::2\n3::4\n")
    assert read(tmp_path / "dense.csv", delimiter="::").values.tolist() == [[1, 2], [3, 4]]
    path.write_text("1::b\x1f::3\n1::c::3\n")
    with pytest.raises(FileError, match="control character"):
        read(path, delimiter="::", rows=0, columns=1, values=2)


def test_a_header_is_told_from_a_row_by_the_cell_of_the_value(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("ann,alien,4\nbob,brazil,5\n")
    assert read(path, rows=0, columns=1, values=2).nnz == 2
    path.write_text("user,film,stars\nbob,brazil,5\n")
    assert read(path, rows=0, columns=1, values=2).nnz == 1
    path.write_text("1,2,3\n4,5,6\n")
    assert triples(read(path, rows="1", columns="2", values="3")) == {(4, 5): 6.0}, (
        "names need a header"
    )


@pytest.mark.parametrize(
    ("source", "ask", "words"),
    [
        (
            TABLE,
            {"rows": "user"},
            r"rows= and columns= \(and values=\) must all be given, the columns that hold row ids,",
        ),
        (
            TABLE,
            {"rows": "user", "values": "stars"},
            r"rows= and columns= \(and values=\) must all be given, the columns that hold row ids,",
        ),
        (
            TABLE,
            {"values": "stars"},
            r"rows= and columns= \(and values=\) must all be given, the columns that hold row ids,",
        ),
        (
            TABLE,
            {"columns": "film", "values": "stars"},
            r"rows= and columns= \(and values=\) must all be given, the columns that hold row ids,",
        ),
        (
            TABLE,
            {**ASK, "columns": ["film"]},
            r"columns must be the name of one column \(or its position\) because rows= is given, got",
        ),
        (
            TABLE,
            {**ASK, "columns": "user"},
            "rows, columns and values must be different columns of the table, got 'user', 'user' and",
        ),
        (TABLE, {**ASK, "index": "user"}, "index='user' came beside rows="),
        (TABLE, {**ASK, "absent": "unknown"}, "absent='unknown' came beside rows="),
        (
            TABLE,
            {**ASK, "duplicates": "max"},
            "duplicates must be one of 'error', 'last', 'mean', 'sum', got 'max'",
        ),
        (
            TABLE,
            {**ASK, "rows": 9},
            r"the column must be one of the columns of the table \('user', 'film', 'stars'\), got rows=9",
        ),
        ({**TABLE, "user": ["a"]}, ASK, "'film' and 'user' must have as many entries, got 4 and 1"),
        (
            [(1, 2, 3.0), (1, 2)],
            {"rows": 0, "columns": 1, "values": 2},
            "the list must have 3 cells in every row as at row 0, got 2 at row 1",
        ),
        (pd.DataFrame(TABLE)[:0], ASK, "the table must have at least one row, got none"),
        ([], ASK, "the table must have at least one row, got none"),
        (
            [pd.DataFrame(TABLE), pd.DataFrame(TABLE)[1:]],
            ASK,
            r"each entry must have one value, got row 'ann', column 10 at row 1 of the table \(table",
        ),
        (
            3,
            ASK,
            "X must be a table in long form: a file, a frame, a dictionary of arrays or a list of",
        ),
        (
            ["a.csv"],
            ASK,
            "X must be a table in long form: a file, a frame, a dictionary of arrays or a list of",
        ),
        (
            np.zeros(3),
            ASK,
            r"the column must be one of the columns of the array \(none\), got rows='user'",
        ),
        (
            [[1.0, 2.0]],
            {"duplicates": "sum"},
            "duplicates must be rows=, columns= and values= beside it: only a table in long form has",
        ),
        (
            pd.DataFrame(TABLE).assign(stars=["a", "b", "c", "d"]),
            ASK,
            "column 'stars' must hold a number, got 'a' at row 0 of the table",
        ),
        (
            pd.DataFrame(TABLE).assign(stars=[1, 2, np.nan, 3]),
            ASK,
            r"column 'stars' must hold finite numbers, got nan at row 2 of the table \(row 'bob',",
        ),
        (
            pd.DataFrame(TABLE).assign(user=["a", "b", None, "c"]),
            ASK,
            "column 'user' must hold an id, got no value at row 2 of the table",
        ),
    ],
)
def test_half_questions_and_bad_tables(source, ask, words):
    with pytest.raises(InputError, match=words):
        read(source, **ask)


def test_paths_that_lead_nowhere(tmp_path):
    (tmp_path / "e.csv").write_text("")
    (tmp_path / "bad.parquet").write_text("PAR1 no")
    for path, words in (
        ("none.csv", "does not exist"),
        ("none*.csv", "matches no file"),
        ("e.csv", "0 bytes"),
        ("bad.parquet", "cannot be read"),
        ("", "folder"),
    ):
        with pytest.raises(FileError, match=words):
            read(tmp_path / path, **ASK)


def test_real_ratings(shared_data):
    x = observed(
        shared_data("movielens-100k") / "u.data",
        delimiter="\t",
        header=False,
        rows=0,
        columns=1,
        values=2,
    )
    assert (x.shape, x.nnz) == ((943, 1682), 100_000)
    assert (
        x.data[x.indptr[x.row_of(196)] : x.indptr[x.row_of(196) + 1]][
            np.searchsorted(x.indices[x.indptr[195] : x.indptr[196]], x.column_of(242))
        ]
        == 3
    )
    y = read(
        shared_data("movietweetings-100k") / "ratings.dat",
        delimiter="::",
        rows=0,
        columns=1,
        values=2,
    )
    assert (y.shape, y.nnz) == ((16_554, 10_506), 100_000)
    assert y.row_of(2) == 1
    assert y.columns[y.column_of("0104257")] == "0104257", "a leading zero is part of an id"


GAPS = {
    "user": ["bob", "ann", None, "cy", "bob", "NA"],
    "film": ["x", "y", "x", "", "y", "x"],
    "stars": [5.0, np.nan, 3.0, 2.0, 1.0, 4.0],
}
WHOLE = {("bob", "x"): 5.0, ("bob", "y"): 1.0}


@pytest.mark.parametrize(
    "kind", ["csv", "small blocks", "frame", "polars", "arrow", "dictionary", "tuples"]
)
def test_observations_without_an_id_or_a_value_can_be_left_out(tmp_path, monkeypatch, kind):
    frame = pd.DataFrame(GAPS)
    frame.to_csv(tmp_path / "t.csv", index=False)
    source = {
        "frame": frame,
        "polars": pl.DataFrame(GAPS),
        "arrow": pa.table(frame),
        "dictionary": GAPS,
        "tuples": list(zip(*GAPS.values())),
    }.get(kind, tmp_path / "t.csv")
    if kind == "small blocks":
        monkeypatch.setattr(eckart.io.tables.long_tables, "BATCH_BYTES", 40)
    ask = dict(zip(ASK, range(3))) if kind == "tuples" else ASK
    assert triples(observed(source, **ask, missing=["", "NA"])) == WHOLE
    assert triples(observed(source, **ask, missing="")) == {**WHOLE, ("NA", "x"): 4.0}
    with pytest.raises(InputError, match=r"Drop the entries that have none\."):
        observed(source, **ask)


def test_a_file_beyond_memory_leaves_the_same_out(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "user": rng.integers(0, 40, 900),
            "film": rng.integers(0, 30, 900),
            "stars": rng.integers(1, 6, 900),
        }
    )
    frame = frame.drop_duplicates(["user", "film"]).astype({"stars": float})
    frame.loc[frame.index % 7 == 0, "stars"] = np.nan
    frame.to_csv(tmp_path / "t.csv", index=False)
    whole = observed(tmp_path / "t.csv", **ASK, missing="")
    assert whole.nnz == frame.stars.notna().sum()
    parts = read(tmp_path / "t.csv", **ASK, missing="", memory=20_000)
    assert isinstance(parts, ObservedParts)
    for field in ("rows", "columns", "indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(parts, field), getattr(whole, field), err_msg=field)


def test_the_place_of_an_error_is_that_in_the_file_where_lines_were_left_out(tmp_path):
    (tmp_path / "t.csv").write_text("user,film,stars\na,x,\nb,x,1\nb,x,2\n")
    with pytest.raises(InputError, match=r"line 3 of .* and again at line 4"):
        observed(tmp_path / "t.csv", **ASK, missing="")
