"""Tables out: what is written can be read back, and a failure leaves nothing half done."""

from __future__ import annotations

import os

import numpy as np
import pytest

from eckart import FileError, read
from eckart.errors import MissingError
from eckart.io.tables.write import check_target, write_long, write_table


def blocks(x, labels=None, rows=3):
    for a in range(0, len(x), rows):
        yield x[a : a + rows], None if labels is None else labels[a : a + rows]


@pytest.mark.parametrize("ending", [".parquet", ".arrow", ".csv", ".npy", ".CSV"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_round_trip(tmp_path, rng, ending, dtype):
    x = rng.standard_normal((10, 2)).astype(dtype)
    path = tmp_path / f"codes{ending}"
    assert write_table(path, ["u", "v"], blocks(x)) == 10
    back = read(path)
    np.testing.assert_array_equal(back.values.astype(dtype), x)
    assert back.columns is None if ending == ".npy" else list(back.columns) == ["u", "v"]
    assert os.listdir(tmp_path) == [path.name]
    assert path.stat().st_mode & 0o044 == 0o044 & ~_umask()


@pytest.mark.parametrize("ending", [".parquet", ".arrow", ".csv"])
@pytest.mark.parametrize(
    "labels",
    [
        [f"r{i}" for i in range(7)],
        list(range(7)),
        [1.5] * 7,
        ["a", None, "b", "c", None, None, None],
        [1, "two", 3, "x", "y", 5, 6],
        list(np.arange(7)),
    ],
)
def test_labels_of_any_kind(tmp_path, rng, ending, labels):
    x = rng.standard_normal((7, 2))
    column = np.empty(7, object)
    column[:] = labels
    write_table(tmp_path / f"c{ending}", ["u", "v"], blocks(x, column), "id")
    back = read(tmp_path / f"c{ending}", index="id")
    np.testing.assert_array_equal(back.values, x)
    assert [str(v) for v in back.rows] == [
        str(v) if v is not None else ("None" if ending != ".csv" else str(back.rows[i]))
        for i, v in enumerate(labels)
    ]


def test_labels_that_change_kind_between_blocks_are_named(tmp_path, rng):
    labels = np.array([1, 2, 3, "four", 5, 6], dtype=object)
    with pytest.raises(FileError, match="four"):
        write_table(
            tmp_path / "c.parquet", ["u"], blocks(rng.standard_normal((6, 1)), labels), "id"
        )
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("ending", [".parquet", ".arrow", ".csv", ".npy"])
@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), KeyboardInterrupt(), ValueError("x")]
)
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, ending, error):
    path = tmp_path / f"c{ending}"
    path.write_bytes(b"old")

    def broken():
        yield np.ones((3, 1)), None
        raise error

    with pytest.raises(FileError if isinstance(error, OSError) else type(error)):
        write_table(path, ["u"], broken())
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == [path.name]


def test_targets_that_cannot_be_written(tmp_path):
    (tmp_path / "folder.csv").mkdir()
    for name, words in (
        ("x.txt", "must end in one of"),
        ("x", "must end in one of"),
        ("no/x.csv", "not a folder"),
        ("folder.csv", "path must be the name of a file, got the folder"),
    ):
        with pytest.raises(FileError, match=words):
            check_target(tmp_path / name)


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_workbook_holds_numbers_texts_and_gaps_and_no_formula(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    ids = np.array(["=1+1", "b\x07", "c"], object)
    days = np.array(["2024-05-01", "2024-05-02", "NaT"], "M8[D]")
    count = write_long(
        tmp_path / "a.xlsx",
        ["=id", "score", "day"],
        iter([(ids, np.array([1.5, np.nan, np.inf]), days)]),
    )
    sheet = openpyxl.load_workbook(tmp_path / "a.xlsx").worksheets[0]
    lines = list(sheet.iter_rows(values_only=True))
    assert count == 3
    assert lines[0] == ("=id", "score", "day")
    assert [cell.data_type for cell in sheet["A"]] == ["s"] * 4
    assert [line[1] for line in lines[1:]] == [1.5, None, "inf"]
    assert lines[1][2].isoformat()[:10] == "2024-05-01"
    assert write_table(tmp_path / "b.xlsx", ["x"], iter([(np.ones((2, 1)), None)])) == 2
    np.testing.assert_array_equal(read(str(tmp_path / "b.xlsx")).array, np.ones((2, 1)))


def test_what_no_workbook_holds_is_refused_in_words(tmp_path, monkeypatch):
    pytest.importorskip("openpyxl")
    wide = (np.zeros((1, 2**14 + 1)), None)
    with pytest.raises(
        FileError,
        match="a workbook must have at most 16,384 columns, got 16,385",
    ):
        write_table(tmp_path / "a.xlsx", [f"x{j}" for j in range(2**14 + 1)], iter([wide]))
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr("eckart.io.tables.write.find_spec", lambda name: None)
    with pytest.raises(MissingError, match=r"pip install 'eckart\[xlsx\]'; or write \.csv"):
        check_target(tmp_path / "a.xlsx")
