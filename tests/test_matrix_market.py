"""Matrix Market files: the same matrix as SciPy's reader gives, and damage refused with its line,
never by a crash."""

import gzip

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import io, sparse

from eckart import read
from eckart.errors import EckartError, FileError
from eckart.io.tables import matrix_market
from eckart.io.tables.matrix_market import read_matrix_market

HEAD = "%%MatrixMarket matrix coordinate real general\n"


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**31),
    st.sampled_from(["general", "symmetric", "skew-symmetric"]),
    st.sampled_from(["coordinate", "array"]),
    st.sampled_from(["real", "integer", "pattern"]),
)
def test_the_same_matrix_as_scipys_reader(tmp_path_factory, seed, symmetry, layout, field):
    rng = np.random.default_rng(seed)
    n, m = rng.integers(1, 9, 2)
    x = (
        rng.integers(-9, 10, (n, m))
        if field != "real"
        else rng.normal(size=(n, m)) * 10.0 ** rng.integers(-300, 300)
    )
    if symmetry != "general":
        x = x[: min(n, m), : min(n, m)]
        x = (
            np.tril(x) + np.tril(x, -1).T
            if symmetry == "symmetric"
            else np.tril(x, -1) - np.tril(x, -1).T
        )
    if layout == "coordinate":
        x = sparse.coo_array(x * (rng.random(x.shape) < 0.5) if symmetry == "general" else x)
    elif field == "pattern":
        field = "real"
    file = tmp_path_factory.mktemp("m") / "x.mtx"
    io.mmwrite(file, x, field=field, symmetry=symmetry, precision=int(rng.integers(3, 18)))
    dense = lambda a: a.toarray() if hasattr(a, "toarray") else a  # noqa: E731
    np.testing.assert_array_equal(dense(read_matrix_market(file)), dense(io.mmread(file)))


def test_layouts_that_writers_use(tmp_path, monkeypatch):
    # many chunks: lines that span them, and their numbers
    monkeypatch.setattr(matrix_market, "CHUNK", 16)
    text = (
        "%%MatrixMarket MATRIX Coordinate Real General\r\n% a\r\n\r\n 3\t2  4\r\n1 1 "
        "+4.5\r\n\r\n  3   2\t-1e0 \r\n2 1 1.2345678901234567890123\n2 2 1"
    )
    (tmp_path / "x.mtx").write_text(text, newline="")
    wanted = [[4.5, 0], [1.2345678901234567, 1], [0, -1]]
    np.testing.assert_array_equal(read_matrix_market(tmp_path / "x.mtx").toarray(), wanted)
    (tmp_path / "x.mtx.gz").write_bytes(gzip.compress(text.encode()))
    np.testing.assert_array_equal(read_matrix_market(tmp_path / "x.mtx.gz").toarray(), wanted)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            HEAD + "2 2 1\n1 1 1.5x",
            r"bad\.mtx cannot be read as Matrix Market, line 3: the entry must be a number, got '1\.5x'",
        ),  # no newline after it: SciPy's reader aborts the process
        (
            HEAD + "2 2 1\n1 1 1.5 7\n",
            r"bad\.mtx cannot be read as Matrix Market, line 3: a row, a column and a value expected,",
        ),
        (
            HEAD + "2 2 1\n1 1\n",
            r"bad\.mtx cannot be read as Matrix Market, line 3: a row, a column and a value expected,",
        ),
        (
            HEAD + "2 2 2\n1 1 1\n3 1 1\n",
            r"bad\.mtx cannot be read as Matrix Market, line 4: the entry must have a row of 1 to 2",
        ),
        (
            HEAD + "2 2 1\n0 1 1\n",
            r"bad\.mtx cannot be read as Matrix Market, line 3: the entry must have a row of 1 to 2",
        ),
        (
            HEAD + "2 2 1\n1.0 1 1\n",
            r"bad\.mtx cannot be read as Matrix Market, line 3: the entry must have a row of 1 to 2",
        ),
        (HEAD + f"2 2 1\n{'9' * 30} 1 1\n", "line 3"),
        (HEAD + "2 2 2\n1 1 1\n", "2 entries are promised, 1 came; it was cut short"),
        (HEAD + "2 2 1\n1 1 1\n\n1 2 1\n", "line 5: 1 entries are promised, and here is one more"),
        (
            HEAD + "2 2\n1 1 1\n",
            r"bad\.mtx cannot be read as Matrix Market: line 2 must hold the numbers of rows, columns",
        ),
        (HEAD + f"{10**15} 2 1\n1 1 1\n", "nearly all would be empty"),
        (
            HEAD + "-2 2 1\n1 1 1\n",
            r"bad\.mtx cannot be read as Matrix Market: line 2 must hold the numbers of rows, columns",
        ),
        (
            HEAD,
            r"bad\.mtx cannot be read as Matrix Market: line 2 must hold the numbers of rows, columns",
        ),
        ("%%MatrixMarket nonsense\n", "line 1"),
        (
            HEAD.replace("real", "complex") + "1 1 1\n1 1 1 1\n",
            r"bad\.mtx must hold real numbers, got complex ones",
        ),
        (
            HEAD.replace("real", "odd") + "1 1 1\n1 1 1\n",
            r"bad\.mtx cannot be read as Matrix Market: line 1 must have coordinate or array, one of",
        ),
        (
            HEAD.replace("general", "symmetric") + "2 3 1\n1 1 1\n",
            r"bad\.mtx cannot be read as Matrix Market: line 2 must give a square size for a symmetric",
        ),
        (
            HEAD.replace("general", "symmetric") + "3 3 2\n2 1 1\n1 3 1\n",
            r"bad\.mtx cannot be read as Matrix Market, line 4: it must be in one triangle of a",
        ),
        (HEAD.replace("coordinate", "array") + "2 2\n1\n2\n3\n", "4 entries are promised, 3 came"),
        (
            HEAD.replace("coordinate", "array") + f"{10**9} {10**9}\n1\n",
            "entries are promised, 1 came",
        ),
        (
            HEAD + "1 1 1\n1 1 1_0\n",
            r"bad\.mtx cannot be read as Matrix Market, line 3: the entry must be a number, got '1_0'",
        ),
    ],
)
def test_damage_is_refused_with_its_line(tmp_path, text, words):
    (tmp_path / "bad.mtx").write_text(text)
    with pytest.raises(FileError, match=words):
        read(tmp_path / "bad.mtx")


def test_a_cut_or_damaged_gz_is_refused(tmp_path):
    whole = gzip.compress((HEAD + "2 2 2\n1 1 1\n2 2 1\n").encode())
    for damaged in (whole[:-12], whole[:20] + b"\0\0\0" + whole[23:], b"\x1f\x8b" + whole[12:]):
        (tmp_path / "x.mtx.gz").write_bytes(damaged)
        with pytest.raises(FileError, match=r"x\.mtx\.gz cannot be read"):
            read(tmp_path / "x.mtx.gz")


def test_mutations_give_a_matrix_or_words(tmp_path):
    rng = np.random.default_rng(3)
    good = [
        HEAD + "% c\n3 4 3\n1 1 1.25\n3 4 -2e-3\n2 2 123456789.123456789\n",
        HEAD.replace("coordinate", "array") + "2 2\n1\n2\n3\n4\n",
        HEAD.replace("real general", "integer symmetric") + "3 3 2\n2 1 5\n3 3 1\n",
    ]
    seen = {True: 0, False: 0}
    for trial in range(1000):
        data = bytearray(good[trial % 3].encode())
        for _ in range(rng.integers(1, 4)):
            at = rng.integers(len(data))
            change = rng.integers(4)
            if change == 0:
                data[at] = rng.integers(256)
            elif change == 1:
                del data[at : at + rng.integers(1, 6)]
            elif change == 2:
                data[at:at] = bytes(
                    rng.choice(list(b"0123456789 .-+eE\n%x\0"), rng.integers(1, 5)).tolist()
                )
            else:
                del data[at:]
            if not data:
                break
        (tmp_path / "x.mtx").write_bytes(bytes(data))
        try:
            read(tmp_path / "x.mtx")
            seen[True] += 1
        except EckartError:
            seen[False] += 1
    assert (
        min(seen.values()) > 5
    )  # both ends of the reader were met: some 25 of the 1000 are still a matrix, give or take 5


def test_a_line_of_a_matrix_that_never_ends_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(matrix_market, "CHUNK", 10)
    file = tmp_path / "x.mtx"
    file.write_text("%%MatrixMarket matrix array real general\n2 1\n1.5\n" + "2" * 60)
    with pytest.raises(
        FileError,
        match=r"x\.mtx cannot be read as Matrix Market, line 4: it must be one entry, got more than 10",
    ):
        read(file)
    file.write_text("%%MatrixMarket matrix array real general\n2 1\n1.5\n" + "2.000000000001\n")
    np.testing.assert_array_equal(read(file).array, [[1.5], [2.000000000001]])


def test_more_entries_than_promised_are_named_by_their_line_in_any_chunk(tmp_path, monkeypatch):
    lines = [f"{i} 1 {i}.5\n" for i in range(1, 10)]
    for chunk in (10**6, 14, 25, 40):
        monkeypatch.setattr(matrix_market, "CHUNK", chunk)
        for promised in range(1, 9):
            file = tmp_path / "x.mtx"
            file.write_text(
                f"%%MatrixMarket matrix coordinate real general\n9 1 {promised}\n" + "".join(lines)
            )
            with pytest.raises(
                FileError,
                match=f"line {promised + 3}: {promised} entries are promised, and here is one more",
            ):
                read(file)
