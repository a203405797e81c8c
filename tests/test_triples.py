"""Observations as (row id, column id, value) from arrays, with real ids, and the door of
completion: kept, or refused by place."""

from __future__ import annotations

import datetime as dt
import tracemalloc
from collections import defaultdict

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import eckart.index.compress
import eckart.io.tables.triples
from eckart import Counts, FileError, InputError, Observed, read
from eckart.index.compress import compress, index_dtype, transpose
from eckart.index.ids import factorise
from eckart.io.tables.triples import observed


def triples(x):
    """What a matrix holds, by label."""
    rows = x.row_index.names(np.repeat(np.arange(x.shape[0]), x.row_counts()))
    return dict(zip(zip(rows.tolist(), x.column_index.names(x.indices).tolist()), x.data.tolist()))


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
    wanted = {
        k: {"last": v[-1], "sum": sum(v), "mean": sum(v) / len(v)}[rule] for k, v in met.items()
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(eckart.index.compress, "LEAST_COMPILED", 0 if compiled else 2**62)
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
    values = np.array(
        [1, 0, 1] if info is None else [info.max, info.min, info.max, 3], object
    ).astype(dtype)
    codes, labels = factorise(values.astype(values.dtype.newbyteorder("=")))
    assert labels[codes].tolist() == values.tolist()
    assert labels.tolist() == sorted(set(values.tolist()))
    assert codes.dtype == np.int32
    x = Observed.from_triples(values, np.arange(len(values)), values.astype(float))
    assert x.rows.dtype == (bool if dtype == "?" else np.uint64 if dtype == "u8" else np.int64)


def test_order_of_labels():
    assert list(Observed.from_triples(["b", "a"], [2, 1], [1, 1]).rows) == ["a", "b"]
    mixed = Observed.from_triples(["b", 3, "a"], [2, 1, 0], [1, 1, 1])
    assert list(mixed.rows) == ["b", 3, "a"], (
        "ids that cannot be compared stay in order of appearance"
    )
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
    assert (
        Observed.from_triples([0], [2**31 - 2], [1.0], shape=(1, 2**31 - 1)).indices.dtype
        == np.int32
    )


def test_a_fixed_universe_keeps_its_order_and_its_empty_rows_and_columns():
    x = Observed.from_triples(
        ["b", "a"], [7, 7], [1.0, 0.0], row_labels=["c", "b", "a"], column_labels=[9, 7]
    )
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
        ({"rows": ["a", None, "b"]}, "rows must hold an id, got None at position 1"),
        ({"rows": [1.0, np.nan, 2.0]}, "rows must hold an id, got nan at position 1"),
        (
            {"columns": np.array(["2020-01-01", "NaT", "NaT"], "M8[D]")},
            "columns must hold an id, got NaT at position 1",
        ),
        (
            {"columns": pd.Series([1, 2, None], dtype="Int64")},
            "columns must hold an id, got no value at position 2",
        ),
        (
            {"columns": pd.Series(["a", "b", None])},
            "columns must hold an id, got no value at position 2",
        ),
        ({"rows": pl.Series(["a", None, "b"])}, "rows must hold an id, got no value at position 1"),
        (
            {"rows": ["a", ["b"], "c"]},
            r"rows must hold an id that can be hashed: text, a number, a date, a tuple, got \['b'\] at",
        ),
        ({"rows": ["a", "b"]}, "rows and values must have as many values, got 2 ids and 3 values"),
        (
            {"values": [1.0, np.nan, 2.0]},
            r"values must hold finite numbers, got nan at position 1 \(row 'b', column 2\)",
        ),
        (
            {"values": [1.0, 2.0, -np.inf]},
            r"values must hold finite numbers, got -inf at position 2 \(row 'c', column 3\)",
        ),
        (
            {"values": [1.0, 1e200, 2.0], "dtype": np.float32},
            r"values must hold finite numbers, got inf at position 1 \(row 'b', column 2\)",
        ),
        (
            {"values": [1, None, 2]},
            r"values must hold finite numbers, got nan at position 1 \(row 'b', column 2\)",
        ),
        (
            {"values": np.array([1, "x", 2], object)},
            "values must hold a number, got 'x' at position 1",
        ),
        ({"values": ["1", "2", "3"]}, "values must hold numbers, got <U1"),
        ({"values": [1j, 2, 3]}, "omplex"),
        ({"values": [[1.0, 2.0, 3.0]]}, "2 dimensions"),
        ({"values": [1, 2, 3], "dtype": int}, "float32 or float64"),
        (
            {"rows": ["a", "b", "a"], "columns": [1, 2, 1]},
            "each entry must have one value, got row 'a', column 1 at position 0 and again at",
        ),
        (
            {"duplicates": "first"},
            "duplicates must be one of 'error', 'last', 'mean', 'sum', got 'first'",
        ),
        (
            {"row_labels": ["a", "c"]},
            "rows has 'b' at position 1, which is not among the 2 row labels",
        ),
        ({"column_labels": [1, 2, 2, 3]}, "column_labels must differ, got 2 more than once"),
        ({"row_labels": [1, 2, 3]}, "labels are integers"),
        (
            {"shape": (3, 3)},
            "rows must hold positions of 0 to 2 because shape= is given, got text or objects",
        ),
        ({"shape": (None, 3)}, "columns must hold positions of 0 to 2, got 3 at position 2"),
        (
            {"shape": (None, 9), "columns": [0, -1, 2]},
            "columns must hold positions of 0 to 8, got -1 at position 1",
        ),
        ({"shape": 3}, "two sizes"),
        ({"shape": (3, 4, 5)}, "two sizes"),
        ({"shape": (9, None), "row_labels": list("abc")}, "as shape= says"),
        ({"rows": "abc"}, "ids must be a list of ids, got 'abc'"),
        ({"rows": np.zeros((3, 1))}, "2 dimensions"),
        (
            {"rows": [], "columns": [], "values": []},
            "rows must hold at least one observation, got none",
        ),
    ],
)
def test_what_cannot_be_an_observation_is_named(change, words):
    ask = {"rows": ["a", "b", "c"], "columns": [1, 2, 3], "values": [1.0, 2.0, 3.0], **change}
    with pytest.raises(InputError, match=words):
        Observed.from_triples(ask.pop("rows"), ask.pop("columns"), ask.pop("values"), **ask)


def test_a_sum_beyond_the_largest_number_is_refused():
    with pytest.raises(
        InputError,
        match="the sum of repeated values must be a finite number, got one beyond float32",
    ):
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
    monkeypatch.setattr(eckart.index.compress, "LEAST_COMPILED", 0)
    for got, want in zip(
        (*compress(i, j, v, (1000, 800)), *transpose(*plain, 800)), (*plain, *back)
    ):
        np.testing.assert_array_equal(got, want)
        assert got.dtype == want.dtype
    i, j = i.astype(np.int64) + 10**6, j.astype(np.int64)
    # what compiling takes is not on the bill
    Observed.from_triples(i[:100], j[:100], v[:100], duplicates="last")
    tracemalloc.start()
    Observed.from_triples(i, j, v, duplicates="last")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * 24 * n


def test_transpose_and_lookups_work_for_counts_too():
    x = Counts.from_scipy(
        sparse.csr_array(np.array([[0, 2.0], [3.0, 0]])), np.array(["a", "b"]), np.array([5, 6])
    )
    assert type(x.T) is Counts
    np.testing.assert_array_equal(x.transposed().to_scipy().toarray(), [[0, 3], [2, 0]])
    assert x.T.row_of(6) == x.column_of(6) == 1
    assert x.rows_of(["b", "a"]).tolist() == [1, 0]
    assert x.columns_of([6]).tolist() == [1]
    with pytest.raises(InputError, match="column must be one of the 2 column labels, got 7"):
        x.column_of(7)


# ---- the door of completion


def test_observed_of_arrays_frames_and_sparse_matrices():
    x = np.array([[1.0, np.nan, 0.0], [np.nan, np.nan, 3.0]])
    want = [(0, 0, 1.0), (0, 2, 0.0), (1, 2, 3.0)]
    frame = pd.DataFrame(x, index=["a", "b"], columns=["p", "q", "r"])
    stored = sparse.coo_array(
        (np.array([1.0, 0.0, 3.0]), (np.array([0, 0, 1]), np.array([0, 2, 2]))), shape=(2, 3)
    )
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
    monkeypatch.setattr(eckart.io.tables.triples, "BLOCK_ENTRIES", 20)
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
        (
            np.full((2, 3), np.nan),
            "X must have at least one observed entry among 2 rows and 3 columns, got none",
        ),
        (
            sparse.csr_array((2, 3)),
            "X must have at least one observed entry among 2 rows and 3 columns, got none",
        ),
        (np.array([[1.0, np.inf]]), "inf at row 0, column 1"),
        (pd.DataFrame({"p": [1.0, -np.inf]}, index=["a", "b"]), "-inf at row 'b', column 'p'"),
        ([np.zeros((2, 2)), np.array([[1.0, np.inf]])], "inf at row 2, column 1"),
        (sparse.csr_array(np.array([[1.0, np.nan]])), "nan at row 0, column 1"),
        (
            Counts.from_scipy(sparse.eye(2)),
            "X must be a matrix in which an absent entry is unknown, got Counts, in which it is zero",
        ),
        (
            [np.zeros((2, 2)), np.zeros((1, 3))],
            "X must have 2 columns in every block, got 3 in the block that starts at row 2",
        ),
        ([np.zeros((2, 2)), np.array([["a", "b"]])], "starts at row 2 cannot be used.*'a'"),
        (
            [pd.DataFrame({"a": [1]}), pd.DataFrame({"b": [1]})],
            "X must have the same column names in the same order in every block, got others in the",
        ),
        (iter([]), "X must yield at least one block of rows, got none"),
        (np.zeros((0, 3)), "no row"),
        (np.zeros(3), "2D"),
        ("nothing.csv", "does not exist"),
        (None, "NoneType"),
    ],
)
def test_what_observed_refuses(source, words):
    with pytest.raises((InputError, FileError), match=words):
        observed(source)
