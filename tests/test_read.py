"""The door: every kind of table comes in right, with its labels, or is refused with one clear
error."""

from __future__ import annotations

import contextlib
import datetime as dt
import gzip
import io
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

import eckart.io.read as door
from eckart import PCA, Counts, Dense, FileError, InputError, Observed, observed, read
from eckart.errors import EckartError, MissingError

NAMES = list("abcd")


@pytest.fixture
def x(rng):
    return rng.standard_normal((40, 4)) @ rng.standard_normal((4, 4)) + 3


@pytest.fixture
def file(tmp_path):
    """A function that writes text or bytes to a named file."""

    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def same_pca(source, x, tol=1e-10):
    got, want = PCA(2).fit(source), PCA(2).fit(x)
    np.testing.assert_allclose(got.components_, want.components_, atol=tol)
    np.testing.assert_allclose(got.explained_variance_, want.explained_variance_, rtol=tol)
    return got


# ---- npy, npz


@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_is_memory_mapped_and_never_loaded_whole(tmp_path, rng, order):
    big = np.asarray(rng.standard_normal((60_000, 64)), dtype=np.float32, order=order)
    np.save(tmp_path / "x.npy", big)
    matrix = read(tmp_path / "x.npy")
    assert isinstance(matrix.values, np.memmap)
    assert matrix.values.mode == "r"
    assert matrix.values.flags["C_CONTIGUOUS" if order == "C" else "F_CONTIGUOUS"]
    assert matrix.dtype == np.float32
    got = PCA(2, svd_solver="eigh").fit(tmp_path / "x.npy")
    want = PCA(2, svd_solver="eigh").fit(np.ascontiguousarray(big))
    np.testing.assert_allclose(got.components_, want.components_, atol=1e-5)


def test_fit_from_npy_allocates_far_less_than_the_file(tmp_path, rng):
    import tracemalloc

    np.save(tmp_path / "x.npy", np.ones((2000, 64)))
    PCA(2, svd_solver="eigh").fit(tmp_path / "x.npy")  # compile first
    big = rng.standard_normal((200_000, 64))
    np.save(tmp_path / "x.npy", big)
    size = big.nbytes
    del big
    tracemalloc.start()
    PCA(2, svd_solver="eigh").fit(tmp_path / "x.npy")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < size / 2


@pytest.mark.parametrize(
    "dtype", ["u1", "i1", "i8", "u8", "?", "f2", "f4", "f8", "g", ">f8", ">f4", ">i4"]
)
def test_npy_of_any_number_type(tmp_path, x, dtype):
    y = (np.abs(x) * 10).astype(dtype) if dtype != "?" else x > 3
    np.save(tmp_path / "x.npy", y)
    same_pca(
        tmp_path / "x.npy",
        y.astype(float),
        1e-4 if np.dtype(dtype).itemsize <= 4 and np.dtype(dtype).kind == "f" else 1e-10,
    )


def test_npy_with_pickled_objects_is_refused_and_not_run(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "pwned",))

    np.save(tmp_path / "x.npy", np.array([[Bomb()]], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "x.npz", np.array([[Bomb()]], dtype=object))
    np.savez_compressed(tmp_path / "c.npz", np.array([[Bomb()]], dtype=object))
    for name in ("x.npy", "x.npz", "c.npz"):
        with pytest.raises(FileError):
            read(tmp_path / name)
    assert not (tmp_path / "pwned").exists()


def test_truncated_npy_is_refused_at_every_length(file, x):
    raw = io.BytesIO()
    np.save(raw, x)
    data = raw.getvalue()
    for length in [*range(1, 140), len(data) // 2, len(data) - 1]:
        with pytest.raises(FileError):
            read(file("x.npy", data[:length]))


@pytest.mark.parametrize("shape", [(2**40, 2**20), (2**62, 2**62), (-1, 4), (5, 5)])
def test_npy_header_that_lies_about_its_size(file, shape):
    raw = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        raw, {"descr": "<f8", "fortran_order": False, "shape": shape}
    )
    with pytest.raises(FileError):
        read(file("x.npy", raw.getvalue() + b"\0" * 80))


@pytest.mark.parametrize(
    "content",
    [
        b"junk" * 99,
        b"\x93NUMPY\x09\x00" + b"\0" * 99,
        b"\x93NUMPY\x01\x00\x40\x00" + b"__import__('os')".ljust(64),
    ],
)
def test_foreign_npy(file, content):
    with pytest.raises(FileError):
        read(file("x.npy", content))


@pytest.mark.parametrize(
    "array",
    [np.empty((0, 3)), np.empty((3, 0)), np.arange(3.0), np.zeros((2, 2, 2)), np.float64(3)],
)
def test_npy_that_is_no_table(tmp_path, array):
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(InputError):
        read(tmp_path / "x.npy")


def test_npz_stored_is_mapped_and_compressed_is_read(tmp_path, x):
    np.savez(tmp_path / "s.npz", x)
    np.savez_compressed(tmp_path / "c.npz", x)
    assert isinstance(read(tmp_path / "s.npz").values, np.memmap)
    for name in ("s.npz", "c.npz"):
        np.testing.assert_array_equal(read(tmp_path / name).values, x)
        same_pca(tmp_path / name, x)


def test_npz_with_several_arrays_needs_key(tmp_path, x):
    np.savez(tmp_path / "x.npz", first=x, second=2 * x)
    with pytest.raises(InputError, match=r"first.*second.*key="):
        read(tmp_path / "x.npz")
    with pytest.raises(InputError, match="third"):
        read(tmp_path / "x.npz", key="third")
    np.testing.assert_array_equal(read(tmp_path / "x.npz", key="second").values, 2 * x)
    np.savez(tmp_path / "f.npz", format=x)
    np.testing.assert_array_equal(read(tmp_path / "f.npz").values, x)


def test_damaged_npz(tmp_path, file, x):
    np.savez_compressed(tmp_path / "x.npz", x)
    data = (tmp_path / "x.npz").read_bytes()
    for length in (1, 20, 100, len(data) - 30, len(data) - 1):
        with pytest.raises(FileError):
            read(file("t.npz", data[:length]))
    bad = bytearray(data)
    bad[200] ^= 255
    with pytest.raises(FileError):
        read(file("t.npz", bytes(bad)))
    with zipfile.ZipFile(tmp_path / "text.npz", "w") as archive:
        archive.writestr("hello.txt", "hi")
    with pytest.raises(InputError, match="key="):
        read(tmp_path / "text.npz")


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr", "dia"])
def test_sparse_npz(tmp_path, form):
    s = sparse.random(30, 6, 0.3, random_state=0)
    sparse.save_npz(tmp_path / "s.npz", s.asformat(form))
    counts, unknown = read(tmp_path / "s.npz"), read(tmp_path / "s.npz", absent="unknown")
    assert type(counts) is Counts
    assert type(unknown) is Observed
    np.testing.assert_array_equal(counts.to_scipy().toarray(), s.toarray())


@pytest.mark.parametrize("change", ["beyond", "negative", "backwards", "format"])
def test_sparse_npz_with_indices_that_lead_out_of_bounds(tmp_path, change):
    sparse.save_npz(tmp_path / "s.npz", sparse.random(30, 6, 0.3, format="csr", random_state=0))
    arrays = dict(np.load(tmp_path / "s.npz"))
    if change == "beyond":
        arrays["indices"] = arrays["indices"] + 100_000
    elif change == "negative":
        arrays["indices"] = -1 - arrays["indices"]
    elif change == "backwards":
        arrays["indptr"][1:-1] = arrays["indptr"][1:-1][::-1].copy()
    else:
        arrays["format"] = np.array(b"zzz")
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(FileError):
        read(tmp_path / "bad.npz")


# ---- CSV


@pytest.mark.parametrize(
    ("text", "columns", "values"),
    [
        ("a,b\n1,2\n3,4\n", "ab", [[1, 2], [3, 4]]),
        ("1,2\n3,4\n", None, [[1, 2], [3, 4]]),
        ("a;b\n1;2\n", "ab", [[1, 2]]),
        ("a\tb\n1\t2\n", "ab", [[1, 2]]),
        ("a|b\n1|2\n", "ab", [[1, 2]]),
        ('"a","b"\n"1","2"\n3,4\n', "ab", [[1, 2], [3, 4]]),
        ('"a,x";b\n1;2\n', ["a,x", "b"], [[1, 2]]),
        ("a,b\n1,\n,4\n", "ab", [[1, np.nan], [np.nan, 4]]),
        ("a,b\n1,NA\nNaN,4\nnull,N/A\n", "ab", [[1, np.nan], [np.nan, 4], [np.nan, np.nan]]),
        ("NA,2\n3,4\n", None, [[np.nan, 2], [3, 4]]),
        (",2\n3,4\n", None, [[np.nan, 2], [3, 4]]),
        ("\ufeffa,b\n1,2\n", "ab", [[1, 2]]),
        ("\ufeff1,2\n3,4\n", None, [[1, 2], [3, 4]]),
        ("a,b\r\n1,2\r\n", "ab", [[1, 2]]),
        ("a,b\n\n1,2\n\n", "ab", [[1, 2]]),
        ("a,b\n1,\n2,\n", "ab", [[1, np.nan], [2, np.nan]]),
        ("1", None, [[1]]),
        ("1,2", None, [[1, 2]]),
        ("1e-300,1E5\n-3,+4\n", None, [[1e-300, 1e5], [-3, 4]]),
        ("a,b\n123456789012345678901234567890,2\n", "ab", [[123456789012345678901234567890.0, 2]]),
        ("a,b\ntrue,2\nfalse,3\n,4\n", "ab", [[1, 2], [0, 3], [np.nan, 4]]),
        # what pandas writes for unnamed columns
        ("0,1,2\n0.5,1.5,2.5\n", ["0", "1", "2"], [[0.5, 1.5, 2.5]]),
        ("0,1,2\n3,4,5\n", None, [[0, 1, 2], [3, 4, 5]]),
        ("5,1,2\n0.5,1.5,2.5\n", None, [[5, 1, 2], [0.5, 1.5, 2.5]]),
    ],
)
def test_csv(file, text, columns, values):
    matrix = read(file("x.csv", text))
    assert (None if matrix.columns is None else list(matrix.columns)) == (
        None if columns is None else list(columns)
    )
    np.testing.assert_array_equal(matrix.values, values)
    assert matrix.values.dtype == np.float64


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n3\n", "Expected 2 columns, got 1"),
        ("a,b\n1,2,3\n", "Expected 2 columns, got 3"),
        ("a,b\n1,x\n", "column 'b'.*string"),
        ("a,b\n2020-01-01,2\n", "column 'a'.*date"),
        ("a,b\n", "header and no row"),
        ("a,b", "header and no row"),
        ("a,b\n\n\n", "header and no row"),
        ("\n\n", "no row"),
        ("a,a\n1,2\n", "columns of"),
        ("a,b\n0x10,2\n", "column 'a'.*0x10"),
        ("é,b\n1,2\n".encode("latin1"), "UTF-8"),
        ("a,b\n1,é\n".encode("latin1"), "UTF-8"),
        ("a,b\n1,2\n".encode("utf-16-le"), "utf-16-le"),
        (b"\x00\x01\x02" * 99, "not text"),
    ],
)
def test_csv_that_is_refused_says_where(file, text, words):
    with pytest.raises((FileError, InputError), match=words):
        read(file("x.csv", text))


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252", "latin-1", "utf-16-le"]
)
@pytest.mark.parametrize("delimiter", [",", "::"])
def test_encodings_of_tables(file, encoding, delimiter):
    """UTF-8 and what a mark at the start tells are found; others are said. Ids of every kind of
    table have their letters."""
    text = "größe,b,c\né,1,2\nœ,3,4\nñ,5,6\n".replace(
        "œ", "oe" if encoding == "latin-1" else "œ"
    ).replace(",", delimiter)
    path, said = (
        file("x.csv", text.encode(encoding)),
        {} if encoding.endswith(("8", "sig", "16")) else {"encoding": encoding},
    )
    m = read(path, index="größe", delimiter=delimiter, **said)
    assert list(m.rows) == ["é", "oe" if encoding == "latin-1" else "œ", "ñ"]
    np.testing.assert_array_equal(m.values, [[1, 2], [3, 4], [5, 6]])
    seen = read(path, rows="größe", columns="b", values="c", delimiter=delimiter, **said)
    assert "é" in seen.rows
    assert (
        observed(path, rows="größe", columns="b", values="c", delimiter=delimiter, **said).nnz == 3
    )


def test_a_file_of_another_encoding_says_where_and_what_to_do(file):
    late = "a,name\n" + "1,x\n" * 3000 + "2,né\n"
    for text in ("a,né\n1,2\n2,3\n", late):
        at = text.index("é")
        with pytest.raises(
            FileError,
            match=rf"not UTF-8 text: byte 0xe9 at offset {at}, line "
            rf"{text[:at].count(chr(10)) + 1}.*'cp1252', 'latin-1' or 'utf-16'",
        ):
            read(file("x.csv", text.encode("latin-1")), index="name" if "name" in text else None)
    with pytest.raises(
        InputError,
        match="encoding must be the name of an encoding, such as 'utf-8', 'cp1252', 'latin-1' or",
    ):
        read(file("x.csv", "a,b\n1,2\n"), encoding="klingon")
    with pytest.raises(FileError, match="not ascii text"):
        read(file("x.csv", "é,b\n1,2\n2,3\n"), encoding="ascii")


@pytest.mark.parametrize(
    ("text", "column", "how"),
    [
        ('a,b\n"1,234",2.5\n56,3\n', [1234, 56], {}),  # decimals elsewhere have a point
        ('a,b\n"1,234,567",2\n56,3\n', [1234567, 56], {}),
        ('a,b\n"-1,234.5",2\n,3\nNA,4\n', [-1234.5, np.nan, np.nan], {}),
        ('a,b\n"1,234",2\n56,3\n', [1234, 56], {"decimal": "."}),
        ("a;b\n1.234,5;2\n56;3\n", [1234.5, 56], {}),
        ("a;b\n1.234;2,5\n56;3\n", [1234, 56], {"decimal": ","}),
        ("a;b\n1.234;7.890,5\n56;3\n", [1234, 56], {}),
        ("a,b\n1 234,2\n7,3\n", [1234, 7], {}),
        ("a,b\n1\u202f234.5,2\n7,3\n", [1234.5, 7], {}),
        ("a,b\n1'234,2\n7,3\n", [1234, 7], {}),
        ("a,b\n12 %,2\n7.5%,3\n", [12, 7.5], {}),
        ("a;b\n12,5 %;2\n7,5%;3\n", [12.5, 7.5], {}),
    ],
)
def test_numbers_that_are_written_for_people(file, text, column, how):
    path = file("x.csv", text)
    np.testing.assert_array_equal(read(path, **how).values[:, 0], column)
    held = door.IN_MEMORY_BYTES
    try:  # as blocks of a file that is not held in memory
        door.IN_MEMORY_BYTES = 0
        np.testing.assert_array_equal(
            np.concatenate(list(read(path, **how).stream.blocks(10)))[:, 0], column
        )
    finally:
        door.IN_MEMORY_BYTES = held


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('a,b\n"1,234",2\n56,3\n', "thousands apart: say decimal='.', or save"),
        ("a;b\n1,234;2\n5,678;3\n", "thousands apart: say decimal='.', or decimal=','"),
        # a number of four digits without the mark
        ('a,b\n"1,234",2.5\n4567,3\n', "The first text is '1,234'"),
        ('a,b\n"0,234",2.5\n4,3\n', "The first text is '0,234'"),  # no thousand begins with 0
        # nor does 1.500 tell which mark is which
        ('a,b\n"1,234",1.500\n4,3.000\n', "thousands apart"),
        ("a,b\nthe quick brown fox jumps,2\nx y,3\n", "eckart explain FILE --text COLUMN"),
        ("a,b\n12 %,2\n7.5,3\n", "The first text is '12 %'"),
        ('a,b\n"$1,234",2.5\n4,3\n', "The first text is"),
        (
            'a,b\n"1,234.5",2\n' + "7,3\n" * 2500 + "x,3\n",
            "column 'a' of",
        ),
    ],
)
def test_numbers_that_could_mean_two_things_are_refused(file, text, words):
    with pytest.raises((FileError, InputError), match=words):
        read(file("x.csv", text))


def test_values_of_long_tables_and_columns_of_mixed_ones_may_be_written_for_people(file):
    path = file("x.csv", 'who,what,much\nann,a,"1,234.5"\nann,b,7\nbob,a,12\n')
    assert read(path, rows="who", columns="what", values="much").data.max() == 1234.5
    from eckart.io.tables.columns import head_of

    assert [c.kind for c in head_of(str(path)).columns] == ["text", "text", "number"]


def test_csv_options(file):
    comma = file("x.csv", "1,5;2,25\n3;4,25\n")
    np.testing.assert_array_equal(read(comma, decimal=",").values, [[1.5, 2.25], [3, 4.25]])
    space = file("x.txt", "1 2\n3 4\n")
    np.testing.assert_array_equal(read(space, delimiter=" ").values, [[1, 2], [3, 4]])
    assert read(file("y.csv", "1,2\n3,4\n"), header=True).values.tolist() == [[3, 4]]
    assert list(read(file("y.csv", "1,2\n3,4\n"), header=True).columns) == ["1", "2"]
    for bad in ({"delimiter": "ab"}, {"decimal": ""}, {"delimiter": ",", "decimal": ","}):
        with pytest.raises(InputError):
            read(comma, **bad)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a;b\n1,5;2\n", 1.5),
        ("a;b\n1;2\n0,125;2\n", 1.0),
        ("a\tb\n-2,5e-1\t2\n", -0.25),
        ("a;b\n1.5;2\n", 1.5),
        ("a;b\n1,234;2\n", None),  # a decimal comma, or a thousand?
        ("a;b\n1,5;2.5\n", None),
    ],
)
def test_decimal_commas_are_found_where_they_are_sure(file, text, value):
    path = file("x.csv", text)
    if value is None:
        with pytest.raises(InputError, match="column 'a'"):
            read(path)
    else:
        assert read(path).values[0, 0] == value


def test_csv_columns_and_index(file):
    path = file("x.csv", "id,a,b,c\nx,1,2,q\ny,3,4,r\n")
    m = read(path, columns=["b", "a"], index="id")
    assert list(m.columns) == ["b", "a"]
    assert list(m.rows) == ["x", "y"]
    np.testing.assert_array_equal(m.values, [[2, 1], [4, 3]])
    for bad in (["a", "zz"], "a", [], ["a", "a"]):
        with pytest.raises(InputError):
            read(path, columns=bad)
    with pytest.raises(InputError, match="zz"):
        read(path, columns=["a"], index="zz")
    with pytest.raises(
        InputError,
        match=r"must have at least one column beside the index, got none\. Check columns= and index=\.",
    ):
        read(file("i.csv", "id\nx\n"), index="id")


def test_csv_written_by_pandas_with_its_index(tmp_path, x):
    frame = pd.DataFrame(x, columns=NAMES, index=np.arange(40) * 7)
    frame.to_csv(tmp_path / "x.csv")
    m = read(tmp_path / "x.csv")
    assert list(m.columns) == NAMES
    assert list(m.rows) == list(frame.index)
    pd.DataFrame(x).to_csv(tmp_path / "y.csv")
    np.testing.assert_allclose(read(tmp_path / "y.csv").values, x)


@pytest.fixture
def two_blocks():
    """A CSV file larger than one block of the reader (4 MiB), and a function to append to it."""
    return "id,a,b\n" + "".join(f"{i},{i % 7},2\n" for i in range(420_000))


def test_csv_whose_later_block_has_another_type(file, two_blocks):
    m = read(file("x.csv", two_blocks + "1,1,3.5\n2,,4\n"), columns=["a", "b"])
    assert m.values[-2:, 1].tolist() == [3.5, 4]
    assert np.isnan(m.values[-1, 0])
    path = file("x.csv", two_blocks + "1,text,3\n")
    with pytest.raises(FileError, match=r"column 'a'.*'text'"):
        read(path, columns=["a", "b"])
    assert read(path, columns=["b"]).shape == (420_001, 1), (
        "a column that was not asked for was converted"
    )


def test_csv_with_rows_longer_than_a_block(tmp_path):
    n = 16_000
    row = ",".join(["0." + "123456789" * 35] * n)
    assert len(row) > 5_000_000
    (tmp_path / "x.csv").write_text(row + "\n" + row + "\n")
    assert read(tmp_path / "x.csv").shape == (2, n)


# ---- Parquet, Arrow, Feather


def write_table(path, frame):
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), path, row_group_size=7)
    elif path.suffix == ".csv":
        frame.to_csv(path, index=False)
    elif path.suffix == ".feather":
        frame.to_feather(path)
    else:
        pl.from_pandas(frame).write_ipc(path)


@pytest.mark.parametrize("ending", [".parquet", ".arrow", ".feather", ".csv"])
def test_tables_in_memory_and_streamed_agree(tmp_path, x, ending, monkeypatch):
    path = tmp_path / f"x{ending}"
    frame = pd.DataFrame(x, columns=NAMES)
    write_table(path, frame)
    held = read(path)
    assert isinstance(held.values, np.ndarray)
    np.testing.assert_array_equal(held.values, x)
    assert list(held.columns) == NAMES
    some = read(path, columns=["c", "a"], index="d")
    assert list(some.columns) == ["c", "a"]
    np.testing.assert_array_equal(some.values, x[:, [2, 0]])
    np.testing.assert_array_equal(some.rows.astype(float), x[:, 3])
    monkeypatch.setattr(door, "IN_MEMORY_BYTES", 0)
    streamed = read(path)
    assert not streamed.in_memory
    assert list(streamed.columns) == NAMES
    for _ in range(2):
        np.testing.assert_array_equal(np.concatenate(list(streamed.stream.blocks(5))), x)
    fitted = same_pca(path, x)
    assert list(fitted.feature_names_in_) == NAMES
    np.testing.assert_allclose(
        PCA(2).fit(path).transform(path), PCA(2).fit(x).transform(x), atol=1e-10
    )
    frame.iloc[3, 1] = np.nan
    write_table(path, frame)
    np.testing.assert_allclose(
        PCA(2).fit(path).components_, PCA(2).fit(frame.to_numpy()).components_, atol=1e-6
    )


@pytest.mark.parametrize("ending", [".parquet", ".arrow", ".csv"])
@pytest.mark.parametrize("held", [2**30, 0])
def test_damaged_tables_are_file_errors(tmp_path, x, ending, held, monkeypatch):
    monkeypatch.setattr(door, "IN_MEMORY_BYTES", held)
    path = tmp_path / f"x{ending}"
    write_table(path, pd.DataFrame(x, columns=NAMES))
    data = path.read_bytes()
    lengths = [4, 20, len(data) // 2, len(data) - 1] if ending != ".csv" else [4]
    for length in lengths:
        path.write_bytes(data[:length])
        with pytest.raises((FileError, InputError)):
            PCA(1).fit(path)
    for at in range(0, len(data), max(1, len(data) // 60)):
        bad = bytearray(data)
        bad[at] ^= 0xFF
        path.write_bytes(bytes(bad))
        with contextlib.suppress(FileError, InputError):
            PCA(1).fit(path)


def test_the_index_that_pandas_wrote_is_never_data(tmp_path, x):
    frame = pd.DataFrame(x, columns=NAMES, index=np.arange(40) * 3)
    frame.to_parquet(tmp_path / "x.parquet")
    for m in (read(tmp_path / "x.parquet"), read(pa.Table.from_pandas(frame))):
        assert list(m.columns) == NAMES
        assert list(m.rows) == list(frame.index)
    frame.index = pd.MultiIndex.from_arrays([np.arange(40), np.arange(40)])
    frame.to_parquet(tmp_path / "x.parquet")
    assert list(read(tmp_path / "x.parquet").columns) == NAMES


def test_arrow_tables_and_batches():
    table = pa.table(
        {"a": [1.0, None, 3.0], "b": [1, 2, None], "c": [True, None, False], "d": pa.nulls(3)}
    )
    wanted = [[1, 1, 1, np.nan], [np.nan, 2, np.nan, np.nan], [3, np.nan, 0, np.nan]]
    for source in (
        table,
        table.to_batches()[0],
        pa.RecordBatchReader.from_batches(table.schema, table.to_batches()),
    ):
        m = read(source)
        np.testing.assert_array_equal(m.values, wanted)
        assert list(m.columns) == NAMES
    assert read(pa.table({"a": pa.array([1, 2], pa.float32())})).dtype == np.float32
    np.testing.assert_array_equal(
        read(pa.table({"a": pa.array([1, 2]).cast(pa.decimal128(22, 2))})).values, [[1], [2]]
    )
    for bad, words in (
        (pa.table({"a": ["x"], "b": [1]}), "column 'a'.*string.*b"),
        (pa.table({"a": [[1]]}), "list"),
        (pa.table({"a": [dt.date(2020, 1, 1)]}), "date"),
        (pa.table([[1], [2]], names=["a", "a"]), "2 times"),
        (
            pa.table({}),
            r"must have at least one column beside the index, got none\. Check columns= and index=\.",
        ),
        (table.slice(0, 0), "0 sample"),
        (table["a"], "ChunkedArray"),
    ):
        with pytest.raises(InputError, match=words):
            read(bad)


# ---- pandas, polars


@pytest.mark.parametrize(
    ("columns", "values"),
    [
        ({"a": [1, 2], "b": [3, 4]}, [[1, 3], [2, 4]]),
        ({"a": pd.array([1, None], "Float64"), "b": [3, 4]}, [[1, 3], [np.nan, 4]]),
        ({"a": pd.array([1, None], "Int64"), "b": [3, 4]}, [[1, 3], [np.nan, 4]]),
        ({"a": pd.array([1, None], "Int64")}, [[1], [np.nan]]),
        ({"a": pd.array([1, 2], "Int64"), "b": [3, 4]}, [[1, 3], [2, 4]]),
        ({"a": pd.array([True, None], "boolean"), "b": [3, 4]}, [[1, 3], [np.nan, 4]]),
        ({"a": pd.array([1, None], "Float32")}, [[1], [np.nan]]),
        ({"a": pd.array([1.5, None], "double[pyarrow]"), "b": [1, 2]}, [[1.5, 1], [np.nan, 2]]),
        ({"a": np.array([1, 2.5], object), "b": [3, 4]}, [[1, 3], [2.5, 4]]),
        ({"a": np.array([1, None], object)}, [[1], [np.nan]]),
        ({"a": np.array([1, pd.NA], object)}, [[1], [np.nan]]),
        ({"a": [True, False], "b": [3, 4]}, [[1, 3], [0, 4]]),
        ({"a": pd.Categorical([1, 2]), "b": [3, 4]}, [[1, 3], [2, 4]]),
        ({"a": pd.arrays.SparseArray([1.0, np.nan]), "b": [3, 4]}, [[1, 3], [np.nan, 4]]),
        ({"a": pd.arrays.SparseArray([1.0, np.nan])}, [[1], [np.nan]]),
        ({"a": pd.arrays.SparseArray([1.0, 5], fill_value=1)}, [[1], [5]]),
    ],
)
def test_pandas_columns_of_every_kind(columns, values):
    m = read(pd.DataFrame(columns, index=["r", "s"]))
    assert isinstance(m, Dense)
    np.testing.assert_array_equal(m.values.astype(float), values)
    assert list(m.columns) == list(columns)
    assert list(m.rows) == ["r", "s"]


@pytest.mark.parametrize(
    "column",
    [
        ["x", "y"],
        ["x", None],
        pd.to_datetime(["2020-01-01", "2020-01-02"]),
        pd.to_datetime(["2020-01-01", None]).tz_localize("UTC"),
        pd.to_timedelta([1, 2]),
        pd.period_range("2020", periods=2),
        pd.Categorical(["u", "v"]),
        [1j, 2],
        [{"a": 1}, {}],
        [[1], [2]],
    ],
)
@pytest.mark.parametrize("alone", [True, False])
def test_a_pandas_column_that_is_not_numeric_is_named(column, alone):
    frame = pd.DataFrame({"odd": column} if alone else {"fine": [1, 2], "odd": column})
    with pytest.raises(InputError, match="column 'odd'"):
        read(frame)


def test_pandas_names_of_every_kind(x):
    mixed = read(pd.DataFrame(x, columns=["a", 1, 2.5, ("t", "u")]))
    assert mixed.columns.tolist() == ["a", 1, 2.5, ("t", "u")]
    double = read(pd.DataFrame(x, columns=["a", "a", "b", "b"]))
    np.testing.assert_array_equal(double.values, x)
    nested = pd.DataFrame(x, columns=pd.MultiIndex.from_product([["p", "q"], ["u", "v"]]))
    assert read(nested).columns.tolist() == [("p", "u"), ("p", "v"), ("q", "u"), ("q", "v")]
    assert read(pd.DataFrame(x[:, :2], columns=[None, "b"])).shape == (40, 2)


def test_sparse_pandas_columns_stay_sparse():
    s = sparse.random(20, 4, 0.3, random_state=0).tocsr()
    m = read(pd.DataFrame.sparse.from_spmatrix(s, columns=NAMES))
    assert type(m) is Counts
    np.testing.assert_array_equal(m.to_scipy().toarray(), s.toarray())
    assert list(m.columns) == NAMES


def test_polars(x):
    frame = pl.DataFrame(x, schema=NAMES)
    m = read(frame, columns=["d", "b"], index="a")
    np.testing.assert_array_equal(m.values, x[:, [3, 1]])
    assert list(m.columns) == ["d", "b"]
    np.testing.assert_array_equal(m.rows, x[:, 0])
    assert list(PCA(2).fit(frame).feature_names_in_) == NAMES
    nulls = pl.DataFrame({"a": [1.0, None], "b": [None, 2], "c": [True, None]})
    np.testing.assert_array_equal(read(nulls).values, [[1, np.nan, 1], [np.nan, 2, np.nan]])
    assert read(pl.DataFrame({"a": [1.0]}, schema={"a": pl.Float32})).dtype == np.float32
    for odd in (["x", None], [dt.date(2020, 1, 1), None], [dt.timedelta(1), None], [[1], [2]]):
        with pytest.raises(InputError, match="column 'odd'"):
            read(pl.DataFrame({"fine": [1.0, 2.0], "odd": odd}))
    with pytest.raises(InputError):
        read(frame.lazy())


def test_frames_without_rows_or_columns(x):
    frame = pd.DataFrame(x, columns=NAMES)
    for bad in (frame.iloc[:0], frame[[]], pl.DataFrame(), pd.DataFrame({"a": []})):
        with pytest.raises(InputError):
            read(bad)
    assert read(frame.iloc[:1]).shape == (1, 4)


# ---- arrays, lists, masks, sparse


def test_masked_entries_are_unknown_whatever_lies_under_the_mask():
    for data in (
        np.array([[1.0, 9], [3, 4]]),
        np.array([[1, 9], [3, 4]]),
        np.array([[1, 9], [3, 4]], np.int8),
    ):
        m = read(np.ma.masked_equal(data, 9))
        assert type(m) is Observed
        assert m.nnz == 3
        assert m.dtype == np.float64
    text = np.ma.array(np.array([[1, "not a number"]], object), mask=[[False, True]])
    assert read(text).nnz == 1
    assert type(read(np.ma.array([[1.0, 2.0]]))) is Dense
    assert read(np.ma.array([[np.nan, 1, 2]], mask=[[0, 0, 1]])).nnz == 1
    for bad in (
        np.ma.masked_equal([1, 2], 2),
        np.ma.array([["a", "b"]], mask=[[0, 1]]),
        np.ma.array([[1j]], mask=[[0]]),
        np.ma.array(np.array([["2020-01-01"]], "M8[D]"), mask=[[0]]),
        np.ma.array(np.zeros((0, 2))),
    ):
        with pytest.raises(InputError):
            read(bad)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil", "dok", "bsr", "dia"])
@pytest.mark.parametrize("kind", ["matrix", "array"])
def test_sparse_in_every_format(form, kind):
    s = sparse.random(30, 6, 0.4, random_state=1)
    m = read(getattr(sparse, f"{form}_{kind}")(s.tocsr()))
    assert type(m) is Counts
    np.testing.assert_array_equal(m.to_scipy().toarray(), s.toarray())
    same_pca(getattr(sparse, f"{form}_{kind}")(s.tocsr()), s.toarray())


def test_sparse_details():
    s = sparse.random(30, 6, 0.4, format="csr", random_state=1)
    wide = s.copy()
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    same_pca(wide, s.toarray())
    assert read(wide).indices.dtype == np.int64
    twice = sparse.coo_matrix(([1.0, 2.0, 3.0], ([0, 0, 1], [0, 0, 1])), shape=(3, 2))
    np.testing.assert_array_equal(read(twice).to_scipy().toarray(), [[3, 0], [0, 3], [0, 0]])
    zero = sparse.csr_matrix(
        (np.array([0.0, 1.0]), np.array([0, 1]), np.array([0, 2, 2])), shape=(2, 2)
    )
    assert read(zero, absent="unknown").nnz == 2, "a stored zero is an observation"
    for kind in (bool, np.int8, np.float32, np.longdouble):
        assert (
            read(sparse.csr_array(np.eye(3).astype(kind))).to_scipy().toarray().tolist()
            == np.eye(3).tolist()
        )
    with pytest.raises(InputError, match="omplex"):
        read(sparse.csr_array(np.eye(2) * 1j))
    for shape in ((0, 3), (3, 0)):
        with pytest.raises(InputError):
            read(sparse.csr_array(shape))
    with pytest.raises(InputError, match="absent"):
        read(s, absent="nothing")


@pytest.mark.parametrize(
    ("source", "values"),
    [
        ([[1, 2], [3, 4]], [[1, 2], [3, 4]]),
        (((1, 2), (3, 4)), [[1, 2], [3, 4]]),
        ([[1, None]], [[1, np.nan]]),
        ([["1", "2.5"]], [[1, 2.5]]),
        ([[10**30, 1]], [[1e30, 1]]),
        ([np.arange(3.0), np.arange(3.0)], [[0, 1, 2], [0, 1, 2]]),
        (np.array([[1, None]], object), [[1, np.nan]]),
    ],
)
def test_lists_and_objects(source, values):
    np.testing.assert_array_equal(read(source).values, values)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ([[1, 2], [3]], "X must have 2 cells in every row as at row 0, got 1 at row 1"),
        ([], "2D"),
        ([[]], "0 feature"),
        ([1, 2], "2D"),
        ([["a"]], "'a' at row 0, column 0"),
        ([[1, dt.date(2020, 1, 1)]], "row 0, column 1"),
        ([[10**400]], "too large"),
        (np.array([[1, {}]], object), "row 0, column 1"),
        (np.full((2, 2), "2020-01-01", "M8[D]"), "dates"),
        (np.zeros((2, 2), [("a", "f8")]), r"X must hold numbers, got \[\('a', '<f8'\)\]"),
        (np.ones((2, 2)) * 1j, "omplex"),
        (None, "NoneType"),
        (3, "int"),
        ({"a": 1}, "dict"),
        (b"x.npy", "bytes"),
        (pd.Series([1.0]), "2D"),
        (range(3), "range"),
    ],
)
def test_what_is_no_table_is_refused_with_one_input_error(source, words):
    for use in (read, PCA(1).fit, PCA(1).fit(np.eye(2)).transform):
        with pytest.raises(InputError, match=words):
            use(source)


def test_columns_are_refused_where_there_are_no_names(tmp_path, x):
    np.save(tmp_path / "x.npy", x)
    for source in (x, tmp_path / "x.npy", sparse.eye(3), read(x)):
        for ask in ({"columns": ["a"]}, {"index": "a"}):
            with pytest.raises(InputError, match="no column names"):
                read(source, **ask)


LAYOUTS = {
    "read-only": lambda x: np.require(x.copy(), requirements=[]).copy(),
    "negative strides": lambda x: x[::-1, ::-1].copy()[::-1, ::-1],
    "every second row": lambda x: np.repeat(x, 2, axis=0)[::2],
    "every second column": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "fortran": np.asfortranarray,
    "big-endian": lambda x: x.astype(">f8"),
    "longdouble": lambda x: x.astype(np.longdouble),
    "object": lambda x: x.astype(object),
    "subclass": lambda x: x.view(type("Sub", (np.ndarray,), {})),
    "list": lambda x: x.tolist(),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("gaps", [False, True])
def test_layout_does_not_matter(x, layout, gaps):
    if gaps:
        x = x.copy()
        x[::7, 1] = np.nan
    y = LAYOUTS[layout](x)
    if layout == "read-only":
        y.flags.writeable = False
    model = PCA(2).fit(x)
    np.testing.assert_allclose(PCA(2).fit(y).components_, model.components_, atol=1e-12)
    for verb in ("transform", "impute", "score_samples", "spe", "hotelling_t2", "contributions"):
        got, want = getattr(model, verb)(y), getattr(model, verb)(x)
        assert type(got) is np.ndarray
        np.testing.assert_allclose(got.astype(float), want, atol=1e-9)


@pytest.mark.parametrize("dtype", [np.uint8, bool, np.int64, np.float16, np.float32])
def test_small_types_do_not_wrap_around(x, dtype):
    y = (np.abs(x) * 20).astype(dtype)
    z = y.astype(float)
    p, q = PCA(2).fit(y), PCA(2).fit(z)
    for verb in ("transform", "impute", "score_samples", "spe", "hotelling_t2", "contributions"):
        got, want = getattr(p, verb)(y), getattr(q, verb)(z)
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=2e-3 * np.abs(want).max())
    assert p.certify(y).holds


@pytest.mark.parametrize(
    "verb",
    [
        "transform",
        "impute",
        "score",
        "score_samples",
        "outliers",
        "spe",
        "hotelling_t2",
        "contributions",
        "certify",
    ],
)
@pytest.mark.parametrize("bad", ["strings", "dates", "1d", "no row", "inf", "complex", "narrow"])
def test_every_verb_refuses_bad_rows_with_a_value_error(x, verb, bad):
    rows = {
        "strings": [["a"] * 4],
        "dates": np.full((2, 4), "2020-01-01", "M8[D]"),
        "1d": x[0],
        "no row": x[:0],
        "inf": np.full((2, 4), np.inf),
        "complex": x * 1j,
        "narrow": x[:, :3],
    }[bad]
    with pytest.raises(ValueError, match=r"row|2D|omplex|features|must hold"):
        getattr(PCA(2).fit(x), verb)(rows)


# ---- iterators, patterns, paths


def test_blocks_from_a_generator(x):
    same_pca((x[i : i + 3] for i in range(0, 40, 3)), x)
    same_pca(iter([x[:0], x[:5].tolist(), x[5:]]), x)
    same_pca([x[:20], x[20:]], x)
    frames = [
        pd.DataFrame(x[:20], columns=NAMES),
        pl.DataFrame(x[20:30], schema=NAMES),
        pa.Table.from_pandas(pd.DataFrame(x[30:], columns=NAMES)),
    ]
    for source in (frames, iter(frames)):
        assert list(same_pca(source, x).feature_names_in_) == NAMES
    s = sparse.random(50, 5, 0.5, format="csr", random_state=0)
    same_pca(iter([s[:20], s[20:]]), s.toarray())


def test_masked_blocks_keep_their_gaps(x):
    masked = np.ma.masked_greater(x, 5)
    got = PCA(2).fit([masked[:20], masked[20:]])
    assert got.fit_.plan["gaps"] == np.ma.count_masked(masked) > 0
    np.testing.assert_allclose(got.components_, PCA(2).fit(masked).components_, atol=1e-8)


def test_an_iterator_is_read_once_and_a_list_again(x):
    once = read(iter([x]))
    PCA(1).fit(once)
    with pytest.raises(InputError, match="read already"):
        PCA(1).fit(once)
    again = read([x])
    np.testing.assert_array_equal(PCA(1).fit(again).components_, PCA(1).fit(again).components_)


@pytest.mark.parametrize(
    ("blocks", "words"),
    [
        ([], "yields nothing"),
        (
            [np.zeros((3, 2)), np.zeros((3, 3))],
            "X must have 2 columns in every block, got 3 in the block that starts at row 3",
        ),
        ([np.zeros(3)], "row 0.*2D"),
        ([np.zeros((3, 2)), np.zeros(2)], "row 3.*2D"),
        ([np.zeros((3, 2)), None], "row 3"),
        ([[["a", "b"]]], "row 0.*'a'"),
        ([np.ones((3, 2)) * 1j], "omplex"),
        ([np.full((3, 2), "2020-01-01", "M8[D]")], "dates"),
        ([np.zeros((3, 2)), np.full((1, 2), np.inf)], "inf at row 3"),
        (
            [pd.DataFrame({"a": [1.0], "b": [2.0]}), pd.DataFrame({"b": [1.0], "a": [2.0]})],
            "X must have the columns a, b in this order in every block, got b, a in the block that",
        ),
        ([np.zeros((0, 2))], "0 rows"),
    ],
)
def test_bad_blocks_are_named_by_their_row(blocks, words):
    with pytest.raises(InputError, match=words):
        PCA(1).fit(iter(blocks))


def test_patterns_chain_files(tmp_path, x, monkeypatch):
    for i in range(3):
        pd.DataFrame(x[i * 10 : i * 10 + 10], columns=NAMES).to_csv(
            tmp_path / f"p{i}.csv", index=False
        )
    pattern = str(tmp_path / "p*.csv")
    m = read(pattern)
    assert m.shape == (30, 4)
    assert list(m.columns) == NAMES
    same_pca(pattern, x[:30])
    labelled = read(pattern, index="a")
    np.testing.assert_array_equal(labelled.rows.astype(float), x[:30, 0])
    monkeypatch.setattr(door, "IN_MEMORY_BYTES", (tmp_path / "p0.csv").stat().st_size * 2)
    assert not any(part.in_memory for part in read(pattern).stream.parts), (
        "each file is small, all together are not"
    )
    same_pca(pattern, x[:30])
    pd.DataFrame(x[:5], columns=list("badc")).to_csv(tmp_path / "p9.csv", index=False)
    with pytest.raises(
        InputError, match="files must have the same columns in the same order, got b, a, d, c in"
    ):
        read(pattern)
    assert sum(len(b) for b in read(pattern, columns=NAMES).stream.blocks(9)) == 35
    pd.DataFrame(x[:5, :2], columns=list("ab")).to_csv(tmp_path / "p9.csv", index=False)
    with pytest.raises(InputError, match="files must have the same number of columns, got 2 in"):
        read(pattern)


def test_patterns_of_sparse_and_mixed_files(tmp_path, x):
    s = sparse.random(20, 4, 0.4, format="csr", random_state=0)
    sparse.save_npz(tmp_path / "s1.npz", s)
    sparse.save_npz(tmp_path / "s2.npz", 2 * s)
    m = read(tmp_path / "s*.npz")
    assert type(m) is Counts
    np.testing.assert_array_equal(m.to_scipy().toarray(), np.vstack([s.toarray(), 2 * s.toarray()]))
    np.savez(tmp_path / "s3.npz", x)
    with pytest.raises(InputError, match="dense and sparse"):
        read(tmp_path / "s*.npz")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nope.npy", "does not exist"),
        ("", "does not exist"),
        ("nothing*.csv", "matches no file"),
        (".", "folder"),
        ("a\0b.npy", "does not exist"),
    ],
)
def test_paths_that_lead_nowhere(tmp_path, monkeypatch, name, words):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileError, match=words):
        read(name)


def test_wrong_endings_and_empty_files(file):
    for name, content, words in (
        ("x.ods", "z", "ods"),
        ("x", "z", "nothing"),
        ("x.npy", "", "0 bytes"),
        ("x.csv", "", "0 bytes"),
        ("x.parquet", "", "0 bytes"),
    ):
        with pytest.raises((FileError, MissingError), match=words):
            read(file(name, content))
    assert read(file("x[1].csv", "a,b\n1,2\n")).shape == (1, 2), (
        "a file that exists is not a pattern"
    )


def test_names_come_back_in_loadings_and_top_features(x):
    model = PCA(2).fit(pd.DataFrame(x, columns=NAMES))
    assert model.loadings()["column"] == NAMES
    assert {name for top in model.top_features(4) for name, _ in top} == set(NAMES)
    assert list(model.get_feature_names_out()) == ["pca0", "pca1"]


tables = hnp.arrays(
    np.float64,
    hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=7),
    elements=st.floats(-1e300, 1e300),
)


@given(tables)
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_round_trip_through_files_is_exact(tmp_path, x):
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "x.npz", x)
    frame = pd.DataFrame(x, columns=[f"c{j}" for j in range(x.shape[1])])
    frame.to_csv(tmp_path / "x.csv", index=False, float_format="%.17g")
    frame.to_parquet(tmp_path / "x.parquet")
    for name in ("x.npy", "x.npz", "x.csv", "x.parquet"):
        np.testing.assert_array_equal(read(tmp_path / name).values, x)


def test_matrix_market_files(tmp_path):
    from scipy import io

    counts = sparse.coo_array(np.array([[1, 0, 2], [0, 0, 3]]))
    io.mmwrite(tmp_path / "c.mtx", counts)
    got = read(tmp_path / "c.mtx")
    assert isinstance(got, Counts)
    np.testing.assert_array_equal(got.to_scipy().toarray(), counts.toarray())
    assert isinstance(read(tmp_path / "c.mtx", absent="unknown"), Observed)
    (tmp_path / "c.mtx.gz").write_bytes(gzip.compress((tmp_path / "c.mtx").read_bytes()))
    assert read(tmp_path / "c.mtx.gz").nnz == 3
    io.mmwrite(tmp_path / "d.mtx", np.eye(2))
    np.testing.assert_array_equal(read(tmp_path / "d.mtx").values, np.eye(2))
    (tmp_path / "bad.mtx").write_text("%%MatrixMarket nonsense\n")
    with pytest.raises(FileError, match=r"bad.mtx cannot be read as Matrix Market"):
        read(tmp_path / "bad.mtx")
    with pytest.raises(InputError, match="no column names"):
        read(tmp_path / "c.mtx", columns=["a"])


def test_ranges_of_a_file_on_threads_are_the_file(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    rows = [
        f"k{i},{a:.6g},{'' if i % 7 == 3 else i}" for i, a in enumerate(rng.standard_normal(500))
    ]
    file = tmp_path / "a.csv"
    file.write_text("\n".join(["id,a,b", *rows[:250], "", *rows[250:]]))
    whole = read(file, index="id")
    monkeypatch.setattr("eckart.io.tables.csv_file.RANGE_BYTES", 300)
    parts = read(file, index="id")
    np.testing.assert_array_equal(parts.values, whole.values)
    assert parts.rows.tolist() == whole.rows.tolist()
    file.write_text(file.read_text() + "\nlast,1.5")
    with pytest.raises(FileError, match="cells"):
        read(file, index="id")


def _damaged_npy(header):
    text = header.ljust(118).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(64)


def _zip_of(name, data, version=20):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(name, data)
    raw = bytearray(out.getvalue())
    # the version needed to extract, in the central directory
    raw[raw.rindex(b"PK\x01\x02") + 6] = version
    return bytes(raw)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        (
            "a.npy",
            _damaged_npy("{'descr': '<f8', 'fortran_order': False, 'shape': (4, 2), "),
        ),  # Python stops in the middle of it
        ("a.npy", _damaged_npy("{'descr': '<f8', 'fortran_order' False, 'shape': (4, 2)}")),
        ("a.npy", _damaged_npy("{'descr': '<f8', 'fortran_order': False, 'shape': (4, 2**70)}")),
        (
            "a.npy",
            _damaged_npy(
                "{'descr': '<f8', 'fortran_order': False, 'shape': (" + "9" * 30 + ", 2)}"
            ),
        ),
        ("a.npy", _damaged_npy("{'descr': 'O', 'fortran_order': False, 'shape': (4, 2)}")),
        (
            "a.npz",
            _zip_of(
                "x.npy", _damaged_npy("{'descr': '<f8', 'fortran_order': False, 'shape': (4, 2), ")
            ),
        ),
        ("a.npz", _zip_of("x.npy", b"", version=254)),
        ("a.npz", b"PK\x05\x06" + bytes(18)),
    ],
)
def test_damaged_headers_end_in_words(tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(EckartError, match=name):
        read(tmp_path / name)


def test_a_sparse_file_of_a_shape_beyond_its_entries_is_refused(tmp_path):
    sparse.save_npz(tmp_path / "s.npz", sparse.coo_matrix(([1.0], ([0], [0])), shape=(10**12, 3)))
    with pytest.raises(FileError, match="nearly all would be empty"):
        read(tmp_path / "s.npz")


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_text_that_is_not_utf8_or_points_out_of_bounds_is_refused(tmp_path, ending):
    """Offsets of texts beyond their buffer once ended the process."""

    def written(labels):
        table = pa.table({"id": labels, "x": pa.array([1.0, 2.0])})
        if ending == "parquet":
            pq.write_table(table, tmp_path / "t.parquet", use_dictionary=False)
        else:
            with pa.ipc.new_file(tmp_path / "t.arrow", table.schema) as out:
                out.write_table(table)
        return tmp_path / f"t.{ending}"

    def texts(offsets, data):
        buffers = [None, pa.py_buffer(np.array(offsets, np.int32)), pa.py_buffer(data)]
        return pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)

    assert read(written(texts([0, 1, 2], b"ab")), index="id").rows.tolist() == ["a", "b"]
    with pytest.raises(FileError, match="it is damaged"):
        read(written(texts([0, 1, 2], b"a\xff")), index="id")
    if ending == "arrow":
        file = written(texts([0, 1, 2], b"ab"))
        raw = file.read_bytes()
        good, bad = np.array([0, 1, 2], "<i4").tobytes(), np.array([0, 1, 2**30], "<i4").tobytes()
        assert raw.count(good) == 1
        file.write_bytes(raw.replace(good, bad))
        with pytest.raises(FileError, match="it is damaged"):
            read(file, index="id")


def test_an_npy_header_whose_keys_do_not_compare_is_refused_in_words(tmp_path):
    np.save(tmp_path / "x.npy", np.eye(3))
    raw = (tmp_path / "x.npy").read_bytes()
    # a key of bytes beside keys of text
    (tmp_path / "y.npy").write_bytes(raw.replace(b", 'fortran", b",B'fortran"))
    with pytest.raises(FileError, match=r"y\.npy cannot be read"):
        read(tmp_path / "y.npy")
