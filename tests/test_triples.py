"""Observations as (row id, column id, value): from arrays, tables and files, with real ids, or refused by place, row and column."""

from __future__ import annotations

import datetime as dt
import tracemalloc
from collections import defaultdict

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import eckart.compress
import eckart.io.csv_file
import eckart.io.long_tables
import eckart.io.triples
from eckart import Counts, FileError, InputError, Observed, read
from eckart.compress import compress, index_dtype, transpose
from eckart.ids import factorise
from eckart.io.triples import observed

ASK = {"rows": "user", "columns": "film", "values": "stars"}
TABLE = {"user": ["bob", "ann", "bob", "cy"], "film": [20, 10, 10, 30], "stars": [5.0, 4.0, 0.0, 2.5]}


def triples(x):
    """What a matrix holds, by label."""
    rows = x.row_index.names(np.repeat(np.arange(x.shape[0]), x.row_counts()))
    return dict(zip(zip(rows.tolist(), x.column_index.names(x.indices).tolist()), x.data.tolist()))


WANTED = dict(zip(zip(TABLE["user"], TABLE["film"]), TABLE["stars"]))

ids = st.one_of(
    st.lists(st.integers(-5, 5), min_size=1, max_size=40),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=40),
    st.lists(st.text(max_size=3), min_size=1, max_size=40),
    st.lists(st.tuples(st.integers(0, 3), st.text(max_size=1)), min_size=1, max_size=40),
    st.lists(st.integers(0, 3) | st.text("ab", min_size=1, max_size=1), min_size=1, max_size=40),
)
numbers = st.floats(-1e6, 1e6)


# ---- arrays


@given(ids, ids, st.data(), st.sampled_from(["last", "mean", "sum"]), st.booleans())
@settings(max_examples=150, deadline=None)
def test_triples_come_back_and_duplicates_follow_their_rule(rows, columns, data, rule, compiled):
    size = min(len(rows), len(columns))
    rows, columns = rows[:size], columns[:size]
    values = data.draw(st.lists(numbers, min_size=size, max_size=size))
    met = defaultdict(list)
    for key, value in zip(zip(rows, columns), values):
        met[key].append(value)
    wanted = {k: {"last": v[-1], "sum": sum(v), "mean": sum(v) / len(v)}[rule] for k, v in met.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(eckart.compress, "LEAST_COMPILED", 0 if compiled else 2**62)
        x = Observed.from_triples(rows, columns, values, duplicates=rule)
        y = x.T
    got = triples(x)
    assert set(got) == set(wanted)
    for key in got:
        assert got[key] == pytest.approx(wanted[key], rel=1e-12, abs=1e-9)
    assert x.shape == (len(set(rows)), len(set(columns)))
    for z in (x, y):
        assert all((np.diff(part) > 0).all() for part in np.split(z.indices, z.indptr[1:-1]))
        assert (z.row_counts() > 0).all()
    np.testing.assert_array_equal(y.to_scipy().toarray(), x.to_scipy().toarray().T)
    assert y.rows is x.columns
    assert y.columns is x.rows
    if len(met) == size:
        assert triples(Observed.from_triples(rows, columns, values)) == got
    else:
        with pytest.raises(InputError, match="again at position"):
            Observed.from_triples(rows, columns, values)


@given(st.lists(st.integers(-(2**63), 2**64 - 1), min_size=1, max_size=30))
@settings(max_examples=100, deadline=None)
def test_integers_of_any_width_keep_their_values(values):
    x = Observed.from_triples(values, range(len(values)), np.ones(len(values)))
    assert list(x.rows) == sorted(set(values))


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u4", "i8", "u8", ">i4", "f4", "f8", "?"])
def test_ids_of_every_number_type(dtype):
    info = np.iinfo(dtype) if np.dtype(dtype).kind in "iu" else None
    values = np.array([1, 0, 1] if info is None else [info.max, info.min, info.max, 3], object).astype(dtype)
    codes, labels = factorise(values.astype(values.dtype.newbyteorder("=")))
    assert labels[codes].tolist() == values.tolist()
    assert labels.tolist() == sorted(set(values.tolist()))
    assert codes.dtype == np.int32
    x = Observed.from_triples(values, np.arange(len(values)), values.astype(float))
    assert x.rows.dtype == (bool if dtype == "?" else np.uint64 if dtype == "u8" else np.int64)


def test_order_of_labels():
    assert list(Observed.from_triples(["b", "a"], [2, 1], [1, 1]).rows) == ["a", "b"]
    mixed = Observed.from_triples(["b", 3, "a"], [2, 1, 0], [1, 1, 1])
    assert list(mixed.rows) == ["b", 3, "a"], "ids that cannot be compared stay in order of appearance"
    days = [dt.date(2024, 5, 2), dt.date(2024, 5, 1)]
    times = np.array(["2024-05-01T10", "2024-05-01T09"], "M8[s]")
    x = Observed.from_triples(days, times, [1, 2])
    assert x.rows.dtype == "M8[D]"
    assert x.columns.dtype == "M8[s]"
    assert x.row_of(days[0]) == 1
    assert x.column_of(dt.datetime(2024, 5, 1, 10)) == 1
    np.testing.assert_array_equal(x.to_scipy().toarray(), [[2, 0], [0, 1]])


@pytest.mark.parametrize(
    ("values", "dtype", "wanted"),
    [
        (np.ones(2, "f4"), None, "f4"),
        (np.ones(2, "f2"), None, "f4"),
        (np.ones(2, "i4"), None, "f8"),
        (np.ones(2, "?"), None, "f8"),
        (np.ones(2, ">f8"), None, "f8"),
        ([1, 2], np.float32, "f4"),
        (None, None, "f8"),
        (None, "f4", "f4"),
        (pd.Series([1, 2], dtype="Int64"), None, "f8"),
        (pl.Series([1.0, 2.0], dtype=pl.Float32), None, "f4"),
    ],
)
def test_precision_of_values(values, dtype, wanted):
    x = Observed.from_triples([0, 1], [0, 1], values, dtype=dtype)
    assert x.data.dtype == np.dtype(wanted)
    assert x.indptr.dtype == np.int64
    assert x.indices.dtype == np.int32


def test_width_of_indices_at_the_boundary():
    assert index_dtype(2**31 - 1) == np.int32
    assert index_dtype(2**31) == np.int64
    x = Observed.from_triples([0, 1], [2**31 - 1, 5], [1.0, 2.0], shape=(2, 2**31))
    assert x.indices.dtype == np.int64
    assert x.indices.tolist() == [2**31 - 1, 5]
    assert Observed.from_triples([0], [2**31 - 2], [1.0], shape=(1, 2**31 - 1)).indices.dtype == np.int32


def test_a_fixed_universe_keeps_its_order_and_its_empty_rows_and_columns():
    x = Observed.from_triples(["b", "a"], [7, 7], [1.0, 0.0], row_labels=["c", "b", "a"], column_labels=[9, 7])
    assert x.shape == (3, 2)
    assert list(x.rows) == ["c", "b", "a"]
    assert x.row_counts().tolist() == [0, 1, 1]
    assert x.column_counts().tolist() == [0, 2]
    assert x.nnz == 2, "a stored zero is an observation"
    assert x.T.T.indptr.tolist() == x.indptr.tolist()
    assert x.T.row_counts().tolist() == [0, 2]
    again = Observed.from_triples(["a"], [9], [1.0], row_labels=x.rows, column_labels=x.columns)
    assert again.shape == x.shape
    empty = Observed.from_triples([], [], [], row_labels=["a"], column_labels=["b", "c"])
    assert empty.shape == (1, 2)
    assert empty.nnz == 0
    assert empty.T.shape == (2, 1)
    one = Observed.from_triples(["a"], ["b"], [3.0])
    assert (one.shape, one.nnz) == ((1, 1), 1)


def test_shape_makes_positions_of_the_ids():
    x = Observed.from_triples([2, 0], np.array([1, 3], np.int8), [1.0, 2.0], shape=(3, 5))
    assert x.shape == (3, 5)
    assert x.rows is None
    assert x.columns is None
    assert x.row_of(2) == 2
    assert triples(x) == {(2, 1): 1.0, (0, 3): 2.0}
    half = Observed.from_triples([2, 0], ["b", "a"], [1.0, 2.0], shape=(3, None))
    assert half.shape == (3, 2)
    assert half.rows is None
    assert list(half.columns) == ["a", "b"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rows": ["a", None, "b"]}, "rows has None at position 1, wanted an id"),
        ({"rows": [1.0, np.nan, 2.0]}, "rows has nan at position 1"),
        ({"columns": np.array(["2020-01-01", "NaT", "NaT"], "M8[D]")}, "columns has NaT at position 1"),
        ({"columns": pd.Series([1, 2, None], dtype="Int64")}, "columns has no value at position 2"),
        ({"columns": pd.Series(["a", "b", None])}, "columns has .* at position 2"),
        ({"rows": pl.Series(["a", None, "b"])}, "rows has no value at position 1"),
        ({"rows": ["a", ["b"], "c"]}, r"rows has \['b'\] at position 1, wanted an id that can be hashed"),
        ({"rows": ["a", "b"]}, "rows has 2 ids and values has 3 values"),
        (
            {"values": [1.0, np.nan, 2.0]},
            r"values has nan at position 1 \(row 'b', column 2\), wanted a finite number; drop",
        ),
        ({"values": [1.0, 2.0, -np.inf]}, r"values has -inf at position 2 \(row 'c', column 3\)"),
        ({"values": [1.0, 1e200, 2.0], "dtype": np.float32}, "values has inf at position 1"),
        ({"values": [1, None, 2]}, "values has nan at position 1"),
        ({"values": np.array([1, "x", 2], object)}, "values has 'x' at position 1, wanted a number"),
        ({"values": ["1", "2", "3"]}, "wanted numbers"),
        ({"values": [1j, 2, 3]}, "omplex"),
        ({"values": [[1.0, 2.0, 3.0]]}, "2 dimensions"),
        ({"values": [1, 2, 3], "dtype": int}, "float32 or float64"),
        (
            {"rows": ["a", "b", "a"], "columns": [1, 2, 1]},
            "row 'a', column 1 came at position 0 and again at position 2",
        ),
        ({"duplicates": "first"}, "duplicates='first' came, wanted one of 'error', 'last'"),
        ({"row_labels": ["a", "c"]}, "rows has 'b' at position 1, which is not among the 2 row labels"),
        ({"column_labels": [1, 2, 2, 3]}, "column_labels has 2 more than once"),
        ({"row_labels": [1, 2, 3]}, "labels are integers"),
        ({"shape": (3, 3)}, "rows holds text.*leave shape= out"),
        ({"shape": (None, 3)}, "columns has 3 at position 2, wanted positions of 0 to 2"),
        ({"shape": (None, 9), "columns": [0, -1, 2]}, "columns has -1 at position 1"),
        ({"shape": 3}, "two sizes"),
        ({"shape": (3, 4, 5)}, "two sizes"),
        ({"shape": (9, None), "row_labels": list("abc")}, "as shape= says"),
        ({"rows": "abc"}, "wanted a list of ids"),
        ({"rows": np.zeros((3, 1))}, "2 dimensions"),
        ({"rows": [], "columns": [], "values": []}, "rows is empty.*shape="),
    ],
)
def test_what_cannot_be_an_observation_is_named(change, words):
    ask = {"rows": ["a", "b", "c"], "columns": [1, 2, 3], "values": [1.0, 2.0, 3.0], **change}
    with pytest.raises(InputError, match=words):
        Observed.from_triples(ask.pop("rows"), ask.pop("columns"), ask.pop("values"), **ask)


def test_a_sum_beyond_the_largest_number_is_refused():
    with pytest.raises(InputError, match="the sum of repeated values is beyond float32"):
        Observed.from_triples([0, 0], [0, 0], np.array([3e38, 3e38], np.float32), duplicates="sum")


def test_without_values_every_observation_is_one():
    assert Observed.from_triples(["a", "b"], [1, 1], None).data.tolist() == [1, 1]
    assert Observed.from_triples(["a", "a"], [1, 1], None, duplicates="sum").data.tolist() == [2]
    with pytest.raises(InputError, match="duplicates='sum' to count them"):
        Observed.from_triples(["a", "a"], [1, 1], None)


def test_ids_in_every_kind_of_column():
    for make in (
        pd.Series,
        pd.Index,
        pd.Categorical,
        pl.Series,
        pa.array,
        np.array,
        lambda x: pa.chunked_array([x[:1], x[1:]]),
    ):
        x = Observed.from_triples(make(["b", "a", "b"]), make([7, 7, 3]), [1.0, 2.0, 3.0])
        assert triples(x) == {("b", 7): 1.0, ("a", 7): 2.0, ("b", 3): 3.0}
        assert (x.row_of("b"), x.column_of(np.int64(7))) == (1, 1)
    chosen = pd.Categorical(["b", "a"], categories=["z", "a", "b"])
    assert list(Observed.from_triples(chosen, [1, 2], [1, 1]).rows) == ["a", "b"], (
        "a category that does not occur is no label"
    )
    periods = pd.PeriodIndex(["2024-02", "2024-01"], freq="M")
    assert list(Observed.from_triples(periods, [1, 2], [1, 1]).rows) == [periods[1], periods[0]]


def test_compiled_and_plain_sorts_agree_and_memory_stays_small(monkeypatch, rng):
    n = 200_000
    i, j = rng.integers(0, 900, n).astype(np.int32), rng.integers(0, 700, n).astype(np.int32)
    v = rng.standard_normal(n)
    plain = compress(i, j, v, (1000, 800))
    back = transpose(*plain, 800)
    monkeypatch.setattr(eckart.compress, "LEAST_COMPILED", 0)
    for got, want in zip((*compress(i, j, v, (1000, 800)), *transpose(*plain, 800)), (*plain, *back)):
        np.testing.assert_array_equal(got, want)
        assert got.dtype == want.dtype
    i, j = i.astype(np.int64) + 10**6, j.astype(np.int64)
    tracemalloc.start()
    Observed.from_triples(i, j, v, duplicates="last")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * 24 * n


def test_transpose_and_lookups_work_for_counts_too():
    x = Counts.from_scipy(sparse.csr_array(np.array([[0, 2.0], [3.0, 0]])), np.array(["a", "b"]), np.array([5, 6]))
    assert type(x.T) is Counts
    np.testing.assert_array_equal(x.transposed().to_scipy().toarray(), [[0, 3], [2, 0]])
    assert x.T.row_of(6) == x.column_of(6) == 1
    assert x.rows_of(["b", "a"]).tolist() == [1, 0]
    assert x.columns_of([6]).tolist() == [1]
    with pytest.raises(InputError, match="column 7 came"):
        x.column_of(7)


# ---- tables in long form

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
    "record array": lambda t: pd.DataFrame({**t, "user": np.array(t["user"], "U3")}).to_records(index=False),
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
        monkeypatch.setattr(eckart.io.csv_file, "BLOCK_BYTES", 8)
        monkeypatch.setattr(eckart.io.long_tables, "BATCH_ROWS", 1)
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
        match=r"columns='movie' came, wanted one of the columns of .*'note', 'user', 'film', 'stars'",
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
        {"user": [f"u{p}" for p in pair // 500], "film": pair % 500 - 7, "stars": rng.standard_normal(n)}
    )
    frame.to_csv(tmp_path / "x.csv", index=False)
    frame.to_parquet(tmp_path / "x.parquet")
    whole = Observed.from_triples(frame["user"].to_numpy(object), frame["film"].to_numpy(), frame["stars"].to_numpy())
    for _ in range(2):
        for name in ("x.csv", "x.parquet"):
            got = read(tmp_path / name, **ASK)
            for part in ("indptr", "indices", "data", "rows", "columns"):
                np.testing.assert_array_equal(getattr(got, part), getattr(whole, part))
        monkeypatch.setattr(eckart.io.csv_file, "BLOCK_BYTES", 20_000)
        monkeypatch.setattr(eckart.io.long_tables, "BATCH_ROWS", 777)
    with (tmp_path / "x.csv").open("a") as out:
        out.write(f"{frame['user'][5]},{frame['film'][5]},1\n")
    with pytest.raises(InputError, match=r"came at line 7 of .*x.csv and again at line 100002 of"):
        read(tmp_path / "x.csv", **ASK)
    assert read(tmp_path / "x.csv", **ASK, duplicates="last").nnz == n


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("user,film,stars\nann,1,2\n\n,2,3\n", "column 'user' has no value at line 4"),
        ("user,film,stars\nann,1,2\nbob,,3\n", "column 'film' has no value at line 3"),
        ("user,film,stars\nann,1,2\nbob,NA,3\n", "column 'film' has 'NA' at line 3"),
        ("user,film,stars\nann,1,2\nbob,1,\n", r"column 'stars' has nan at line 3 of .* \(row 'bob', column 1\)"),
        ("user,film,stars\nann,1,2\n\nbob,1,inf\n", "column 'stars' has inf at line 4"),
        ("user,film,stars\nann,1,2\nbob,1,good\n", "column 'stars' of .* has 'good' at line 3, wanted numbers"),
        ("user,film,stars\nann,1,2\n\nbob,1\n", "line 4: Expected 3 columns, got 2"),
        ("user,film,stars\nann,1,2\nbob,1,2,3\n", "line 3: Expected 3 columns, got 4"),
        ("user,film,stars\nann,1,2\nann,1,3\n", "row 'ann', column 1 came at line 2 .* and again at line 3"),
        ("user,film,user,stars\nann,1,b,2\n", "column 'user' stands 2 times"),
        ("user,film,stars\n", "header and no row"),
        ("user,film\nann,1\n", "values='stars' came, wanted one of the columns of .*: 'user', 'film'"),
        ("user,film,stars\nann,1,2\n\xff,1,2\n".encode("latin1"), "UTF-?8"),
    ],
)
@pytest.mark.parametrize("block", [1, 2**22])
def test_a_csv_line_that_is_no_observation_is_named(tmp_path, monkeypatch, text, words, block):
    monkeypatch.setattr(eckart.io.csv_file, "BLOCK_BYTES", block)
    (tmp_path / "x.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises((InputError, FileError), match=words):
        read(tmp_path / "x.csv", **ASK)


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ({"user": pa.array(["a", None])}, "column 'user' has no value at row 1 of .*x.parquet"),
        ({"film": pa.array([None, 3])}, "column 'film' has no value at row 0"),
        ({"film": pa.array([None, None])}, "column 'film' has no value at row 0"),
        ({"film": pa.array([1.5, np.nan])}, "column 'film' has nan at row 1"),
        ({"stars": pa.array([1.0, None])}, r"column 'stars' has nan at row 1 of .*x.parquet \(row 'b', column 2\)"),
        ({"stars": pa.array([1, None])}, "column 'stars' has nan at row 1"),
        ({"stars": pa.array(["a", "b"])}, "column 'stars' holds string"),
        ({"user": pa.array([[1], [2]])}, "column 'user' has .* at row 0.*hashed"),
    ],
)
def test_parquet_with_nulls(tmp_path, column, words):
    table = {"user": pa.array(["a", "b"]), "film": pa.array([1, 2]), "stars": pa.array([1.0, 2.0]), **column}
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
    assert read(tmp_path / "x.parquet", rows="word", columns="time", values="truth").data.tolist() == [1, 0]
    assert read(tmp_path / "x.parquet", rows="exact", columns="time", values="half").shape == (2, 2)
    assert read(tmp_path / "x.parquet", rows="word", columns="time", values="exact").data.tolist() == [0.25, 0.5]
    assert list(read(tmp_path / "x.parquet", rows="digits", columns="time").rows) == ["1", "2"], (
        "text that a file calls text"
    )


def test_ids_of_two_kinds_in_two_files_are_refused(tmp_path):
    pq.write_table(pa.table({"user": [1], "film": [2], "stars": [3.0]}), tmp_path / "p1.parquet")
    pq.write_table(pa.table({"user": ["1"], "film": [2], "stars": [3.0]}), tmp_path / "p2.parquet")
    with pytest.raises(
        InputError, match=r"column 'user' holds text or objects from row 0 of .*p2.parquet on and numbers before"
    ):
        read(tmp_path / "p*.parquet", **ASK)


def test_ids_of_a_csv_file_are_integers_only_where_nothing_is_lost(tmp_path):
    def labels(*words):
        (tmp_path / "x.csv").write_text("user,film,stars\n" + "".join(f"{w},{i},1\n" for i, w in enumerate(words)))
        return read(tmp_path / "x.csv", **ASK).rows.tolist()

    assert labels("10", "-9", "0") == [-9, 0, 10]
    assert labels(" 10", "9 ", "10") == [9, 10], "spaces around a number are no part of it"
    assert labels("007", "7") == ["007", "7"], "007 is not 7"
    assert labels("7", "x7") == ["7", "x7"]
    assert labels("1e3", "7") == ["1e3", "7"]
    assert labels("NA", "DE") == ["DE", "NA"], "a word among words is an id"
    assert labels("9" * 30, "7") == ["7", "9" * 30]
    assert labels('"a,b"', "c") == ["a,b", "c"]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 2**22])
def test_delimiters_of_several_characters(tmp_path, monkeypatch, size):
    monkeypatch.setattr(eckart.io.csv_file, "BLOCK_BYTES", size)
    path = tmp_path / "ratings.dat"
    path.write_text("1::b:c::3.5::99\n2::::d::1::7\n1::e::0::8")
    with pytest.raises((InputError, FileError), match="line 2: Expected 4 columns, got 5"):
        read(path, delimiter="::", header=False, rows=0, columns=1, values=2)
    path.write_text("1::b:c::3.5::99\r\n2:::d::1::7\r\n1::e::0::8")
    x = read(path, delimiter="::", header=False, rows=0, columns=1, values=2)
    assert triples(x) == {(1, "b:c"): 3.5, (2, ":d"): 1.0, (1, "e"): 0.0}
    with pytest.raises(FileError, match="say delimiter="):
        read(path, header=False, rows=0, columns=1, values=2)
    (tmp_path / "one.dat").write_text("u1::f1::4")
    assert triples(read(tmp_path / "one.dat", delimiter="::", rows=0, columns=1, values=2)) == {("u1", "f1"): 4.0}
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
    assert triples(read(path, rows="1", columns="2", values="3")) == {(4, 5): 6.0}, "names need a header"


@pytest.mark.parametrize(
    ("source", "ask", "words"),
    [
        (TABLE, {"rows": "user"}, "rows='user' came without columns="),
        (TABLE, {"rows": "user", "values": "stars"}, "rows='user', values='stars' came without columns="),
        (TABLE, {"values": "stars"}, "values='stars' came without rows="),
        (TABLE, {"columns": "film", "values": "stars"}, "came without rows="),
        (TABLE, {**ASK, "columns": ["film"]}, r"columns=\['film'\] came, wanted the name of one column"),
        (TABLE, {**ASK, "columns": "user"}, "wanted different columns"),
        (TABLE, {**ASK, "index": "user"}, "index='user' came beside rows="),
        (TABLE, {**ASK, "absent": "unknown"}, "absent='unknown' came beside rows="),
        (TABLE, {**ASK, "duplicates": "max"}, "duplicates='max'"),
        (TABLE, {**ASK, "rows": 9}, "rows=9 came, wanted one of the columns of the table: 'user', 'film', 'stars'"),
        ({**TABLE, "user": ["a"]}, ASK, "'film' has 4 entries and 'user' has 1"),
        ([(1, 2, 3.0), (1, 2)], {"rows": 0, "columns": 1, "values": 2}, "2 cells at row 1, wanted 3"),
        (pd.DataFrame(TABLE)[:0], ASK, "no row, wanted at least one observation"),
        ([], ASK, "no row"),
        (3, ASK, "X is a int, wanted a table in long form"),
        (["a.csv"], ASK, "X is a str, wanted a table"),
        (np.zeros(3), ASK, "came, wanted one of the columns"),
        ([[1.0, 2.0]], {"duplicates": "sum"}, "duplicates='sum' came, wanted rows="),
        (pd.DataFrame(TABLE).assign(stars=["a", "b", "c", "d"]), ASK, "'stars' has 'a' at row 0.*wanted a number"),
        (
            pd.DataFrame(TABLE).assign(stars=[1, 2, np.nan, 3]),
            ASK,
            r"nan at row 2 of the table \(row 'bob', column 10\).*drop",
        ),
        (pd.DataFrame(TABLE).assign(user=["a", "b", None, "c"]), ASK, "'user' has no value at row 2"),
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


# ---- the door of completion


def test_observed_of_arrays_frames_and_sparse_matrices():
    x = np.array([[1.0, np.nan, 0.0], [np.nan, np.nan, 3.0]])
    want = [(0, 0, 1.0), (0, 2, 0.0), (1, 2, 3.0)]
    frame = pd.DataFrame(x, index=["a", "b"], columns=["p", "q", "r"])
    stored = sparse.coo_array((np.array([1.0, 0.0, 3.0]), (np.array([0, 0, 1]), np.array([0, 2, 2]))), shape=(2, 3))
    masked = np.ma.masked_invalid(x)
    for source in (
        x,
        x.tolist(),
        frame,
        stored,
        stored.tocsc(),
        masked,
        Observed.from_nan(x),
        [x[:1], x[1:]],
        iter([x[:1], x[:0], x[1:]]),
    ):
        got = observed(source)
        assert type(got) is Observed
        rows = np.repeat(np.arange(2), got.row_counts())
        assert list(zip(rows, got.indices, got.data)) == want
        assert got.shape == (2, 3)
    labelled = observed(frame)
    assert (list(labelled.rows), list(labelled.columns)) == (["a", "b"], ["p", "q", "r"])
    assert observed(frame, columns=["r", "p"]).columns.tolist() == ["r", "p"]
    bare = observed(pd.DataFrame(x))
    assert bare.rows is None
    assert bare.columns is None
    assert observed(pd.DataFrame(x, index=[5, 6])).row_of(6) == 1
    assert observed(pl.DataFrame({"p": [1, None], "q": [2, 3]})).nnz == 3
    assert observed(np.eye(2, dtype=np.float32)).dtype == np.float32
    assert observed(np.eye(2, dtype=int)).nnz == 4, "a zero in an array is an observation"
    assert observed(np.eye(2, dtype=bool)).dtype == np.float64
    same = observed(x)
    assert observed(same) is same


def test_observed_of_blocks_and_files(tmp_path, monkeypatch, rng):
    x = rng.standard_normal((23, 4))
    x[rng.random(x.shape) < 0.4] = np.nan
    want = Observed.from_nan(x)
    names = list("abcd")
    pd.DataFrame(x, columns=names).to_csv(tmp_path / "x.csv", index=False, float_format="%.17g")
    pd.DataFrame(x, columns=names).to_parquet(tmp_path / "x.parquet")
    np.save(tmp_path / "x.npy", x)
    parts = [want.to_scipy()[:9], want.to_scipy()[9:]]
    frames = [
        pd.DataFrame(x[k : k + 5], columns=names, index=[f"r{i}" for i in range(k, min(k + 5, 23))])
        for k in range(0, 23, 5)
    ]
    monkeypatch.setattr(eckart.io.triples, "BLOCK_ENTRIES", 20)
    for held in (2**20, -1):
        monkeypatch.setattr("eckart.io.read.IN_MEMORY_BYTES", held)
        for source in (
            *(tmp_path / f"x.{e}" for e in ("csv", "parquet", "npy")),
            parts,
            iter(parts),
            frames,
            read(x),
            read([x]),
        ):
            got = observed(source)
            for part in ("indptr", "indices", "data"):
                np.testing.assert_array_equal(getattr(got, part), getattr(want, part))
            assert got.indices.dtype == np.int32
    assert observed(frames).row_of("r7") == 7
    assert list(observed(tmp_path / "x.csv").columns) == names
    sparse.save_npz(tmp_path / "s.npz", want.to_scipy())
    assert observed(tmp_path / "s.npz").nnz == want.nnz


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (np.full((2, 3), np.nan), "no observed entry among 2 rows and 3 columns"),
        (sparse.csr_array((2, 3)), "no observed entry"),
        (np.array([[1.0, np.inf]]), "inf at row 0, column 1"),
        (pd.DataFrame({"p": [1.0, -np.inf]}, index=["a", "b"]), "-inf at row 'b', column 'p'"),
        ([np.zeros((2, 2)), np.array([[1.0, np.inf]])], "inf at row 2, column 1"),
        (sparse.csr_array(np.array([[1.0, np.nan]])), "nan at row 0, column 1"),
        (Counts.from_scipy(sparse.eye(2)), "absent entry is zero.*absent='unknown'"),
        ([np.zeros((2, 2)), np.zeros((1, 3))], "starts at row 2 has 3 columns, wanted 2"),
        ([np.zeros((2, 2)), np.array([["a", "b"]])], "starts at row 2 cannot be used.*'a'"),
        ([pd.DataFrame({"a": [1]}), pd.DataFrame({"b": [1]})], "other column names"),
        (iter([]), "yields no row"),
        (np.zeros((0, 3)), "no row"),
        (np.zeros(3), "2D"),
        ("nothing.csv", "does not exist"),
        (None, "NoneType"),
    ],
)
def test_what_observed_refuses(source, words):
    with pytest.raises((InputError, FileError), match=words):
        observed(source)


def test_real_ratings(shared_data):
    x = observed(shared_data("movielens-100k") / "u.data", delimiter="\t", header=False, rows=0, columns=1, values=2)
    assert (x.shape, x.nnz) == ((943, 1682), 100_000)
    assert (
        x.data[x.indptr[x.row_of(196)] : x.indptr[x.row_of(196) + 1]][
            np.searchsorted(x.indices[x.indptr[195] : x.indptr[196]], x.column_of(242))
        ]
        == 3
    )
    y = read(shared_data("movietweetings-100k") / "ratings.dat", delimiter="::", rows=0, columns=1, values=2)
    assert (y.shape, y.nnz) == ((16_554, 10_506), 100_000)
    assert y.row_of(2) == 1
    assert y.columns[y.column_of("0104257")] == "0104257", "a leading zero is part of an id"
