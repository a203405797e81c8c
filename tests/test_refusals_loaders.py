"""What readers and files of models refuse, in words: one line for each refusal. A refusal that is
gone gives a wrong matrix, or an error that names nothing."""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
import struct
import sys
import time
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file
from scipy import sparse

import eckart
from eckart import PMI, BayesianMF, FileError, InputError, read, read_vectors
from eckart.errors import InputTypeError, MissingError
from eckart.factors.mixed_columns import MixedColumns
from eckart.factors.network import _labels
from eckart.io.models import save
from eckart.io.models.checkpoint import Checkpoint
from eckart.io.models.header_checks import resumed_trace
from eckart.io.models.memory_maps import load_mapped
from eckart.io.models.whole_files import check_place
from eckart.io.tables import entry_shards, other_files
from eckart.io.tables.attributes import Encoding, attributes
from eckart.io.tables.csv_file import LONG_MARK, CsvLayout, _OneMark
from eckart.io.tables.missing import Marks, unmark
from eckart.io.tables.mixed import mixed_frame
from eckart.io.tables.other_files import excel_table, read_images
from eckart.io.tables.row_blocks import IteratorBlocks, npy_array
from eckart.io.tables.write import write_table
from eckart.io.text.documents import Documents, documents
from eckart.io.text.shards import write_shards
from eckart.io.text.tokens import Tokenizer
from eckart.io.vectors.write import check_names, vectors_target
from eckart.matrix import Counts, Observed

LONG = {"rows": "u", "columns": "i", "values": "r"}


def one_score(share):
    """Scores of one column whose sum of w^2 / noise is ``share``."""
    return MixedColumns(
        1, np.array([[share**0.5]]), np.zeros(1), np.ones(1), columns=np.array(["a"], object)
    )


REFUSED = {
    "marks": (
        lambda: Marks.of([object()]),
        InputError,
        r"missing must be words and numbers that stand for a missing value, got \[<object object",
    ),
    "marks of counts": (
        lambda: unmark(Counts.from_scipy(sparse.eye_array(2)), (0.0,)),
        InputError,
        "absent entry is zero",
    ),
    "all marked": (
        lambda: unmark(Observed.from_nan(np.array([[1.0, np.nan]])), (1.0,)),
        InputError,
        "at least one observed entry must differ from every mark of missing=, got none",
    ),
    "a word of shards": (
        lambda: write_shards("word", "."),
        InputError,
        "blocks must be sparse matrices, one after another, got 'word'",
    ),
    "a number of shards": (
        lambda: write_shards(np.array(3.0), "."),
        InputError,
        r"blocks must be sparse matrices, one after another, got array\(3\.\)",
    ),
    "a word in shards": (
        lambda: write_shards(["word"], "."),
        InputError,
        r"blocks\[0\] must be a sparse matrix, got 'word'",
    ),
    "a function of words": (
        lambda: Tokenizer.from_dict(Tokenizer(tokenizer=str.split).to_dict()),
        InputError,
        "read with a function: split",
    ),
    "names with spaces": (
        lambda: check_names(np.array(["a b"]), "text"),
        InputError,
        "words must have no white space for this format, got 'a b'",
    ),
    "a path of vectors": (
        lambda: vectors_target(3),
        InputError,
        "path must be the name of a file, got 3",
    ),
    "nothing to write": (
        lambda: write_table("x.npy", ["a"], iter([])),
        FileError,
        "at least one row is needed to write, got none",
    ),
    "a zero byte": (
        lambda: check_place(eckart.io.models.whole_files.named("a\0b")),
        FileError,
        r"the name of a file must be one that a file can have, got 'a\\x00b'",
    ),
    "no folder": (
        lambda: check_place(eckart.io.models.whole_files.named("none/m")),
        FileError,
        "none is not a folder; make it first",
    ),
    "a checkpoint": (
        lambda: Checkpoint("a\0b", {}),
        InputError,
        r"checkpoint must be None or the name of a file, got 'a\\x00b'",
    ),
    "kinds of labels": (
        lambda: save.unpack_ids({"dtype": "<f8"}, "rows", {}),
        FileError,
        "labels must be integers, dates or durations, got kind '<f8'",
    ),
    "kinds of classes": (
        lambda: _labels({"dtype": "<M8[s]", "values": [1]}),
        FileError,
        r"classes must be numbers or texts, got kind '<M8\[s\]'",
    ),
    "codes": (
        lambda: one_score(1.1e14).check(),
        FileError,
        r"the sum of w\^2 / noise must be less than 1e\+14, got 1\.1e\+14: the codes of these weights",
    ),
    "undecodable": (
        lambda: Documents(["a"], undecodable="drop"),
        InputError,
        "undecodable must be 'error' or 'replace', got 'drop'",
    ),
    "split": (
        lambda: Documents(["a"], split=" "),
        InputError,
        "split must be the beginning of the lines that divide documents, such as '</DOC>' or",
    ),
    "a scalar of documents": (
        lambda: list(documents(np.array("a"))),
        InputTypeError,
        "documents must be a path, a table, or a list of texts, got a ndarray without dimensions",
    ),
    "complex table": (
        lambda: mixed_frame(np.ones((2, 2), complex)),
        InputError,
        "Complex data not supported: X",
    ),
    "complex column": (
        lambda: mixed_frame(pd.DataFrame({"z": np.ones(2, complex)})),
        InputError,
        "not supported: column 'z'",
    ),
    "words as a table": (
        lambda: mixed_frame([["a"], ["b"]]),
        InputTypeError,
        "X must be a data frame, an Arrow table, a file or numbers, got a list that is not",
    ),
    "a line as a table": (
        lambda: mixed_frame(np.ones(3)),
        InputError,
        "X must be a table, rows and columns, got 1 dimensions",
    ),
    "no rows of a table": (
        lambda: mixed_frame(np.ones((0, 3))),
        InputError,
        r"X has 0 sample\(s\) and 3 feature\(s\)",
    ),
    "no file of a table": (
        lambda: mixed_frame("none.csv"),
        InputError,
        r"none\.csv must be a \.csv, \.tsv, \.parquet, \.arrow, \.jsonl or \.xlsx file that exists, got",
    ),
    "times of day": (
        lambda: mixed_frame(pa.table({"t": pa.array([1], pa.time32("s"))})),
        InputTypeError,
        r"column 't' must hold numbers, yes/no, texts, categories or dates, got time32\[s\]",
    ),
    "attributes of nobody": (
        lambda: attributes({"id": []}, "id", "row_features"),
        InputError,
        "row_features must have at least one row and one column beside the ids, got 0 and 0",
    ),
    "attributes of no file": (
        lambda: attributes("none.csv", "id", "row_features"),
        InputError,
        "row_features must be a table: a CSV, Parquet, Arrow, JSON lines or Excel file that",
    ),
    "attributes of several kinds": (
        lambda: attributes({"id": [1, 2], "a": [1, "b"]}, "id", "row_features"),
        InputError,
        "a column of several kinds",
    ),
    "a block of words": (
        lambda: IteratorBlocks(iter([[["a"]]])),
        InputError,
        "the block that starts at row 0 ",
    ),
    "no observations": (
        lambda: entry_shards.sharded(lambda: iter([]), ("u", "i", "r"), None, 1e6),
        InputError,
        "the table must have at least one row, got none",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_or_written_is_refused_in_words(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call, kind, words = REFUSED[case]
    with pytest.raises(kind, match=words):
        call()
    assert not os.listdir(tmp_path)


def test_what_is_at_the_limit_is_taken(tmp_path):
    one_score(0.9e14).check()
    x = np.where(np.eye(6, 5) > 0, np.nan, np.arange(30.0).reshape(6, 5))
    chains = BayesianMF(1, n_samples=2, n_chains=2, burn_in=1, thin=1, random_state=0).fit(
        x
    )  # a draw of one number from each
    chains.save(tmp_path / "m.safetensors")
    assert (
        eckart.load(tmp_path / "m.safetensors").fit_.plan["posterior"]["chains"]
        == chains.fit_.factors.k
        == 2
    )


def npy(shape):
    """An .npy file of eight bytes whose header names a shape."""
    head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + bytes(8)


FILES = {
    "pickle": (
        "v.kv",
        b"\x80\x04rest",
        read_vectors,
        "is a pickle, as gensim's save writes it, and is not loaded",
    ),
    "negative shape": (
        "x.npy",
        npy((-1, 2)),
        npy_array,
        r"cannot be read as .npy: its header names the shape \(-1, 2\)",
    ),
    "index of bytes": (
        "x.csv",
        b"id,a\n" + 9999 * b"good,1\n" + b"\xff,1\n",
        lambda file: read(file, index="id"),
        "byte 0xff at offset 69998, line 10001",
    ),
    "no names": (
        "x.csv",
        b",,a\n1,2,3\n",
        mixed_frame,
        "columns of",
    ),
    "twice a name": (
        "x.csv",
        b"b,a,b\n1,2,3\n",
        mixed_frame,
        "columns of",
    ),
    "header too long": (
        "m.safetensors",
        struct.pack("<Q", 100) + b"{}",
        eckart.load,
        "truncated or foreign: its header wants 100 bytes, 2 are there",
    ),
    "second line": (
        "d.txt",
        b"good\nbad \xff\n",
        lambda file: list(documents(file)),
        "byte 0xff at offset 9 cannot be decoded",
    ),
    "first byte of a table": (
        "d.csv",
        b"text\nbad \xff\n",
        lambda file: list(documents(file)),
        "byte 0xff at offset 9 cannot be decoded",
    ),
    "quotes": (
        "d.csv",
        b'text,b\n"open,1\n',
        lambda file: list(documents(file, text="text")),
        "say quotes=False if quotation marks are part of the text",
    ),
    "no lines of JSON": (
        "x.jsonl",
        b"[1, 2]\n{\n",
        read,
        r"x\.jsonl must hold one JSON object of numbers and texts a line, got something else: JSON",
    ),
    "no image": (
        "x.png",
        b"nothing",
        lambda file: read(file.parent),
        "x.png cannot be read as an image",
    ),
}


@pytest.mark.parametrize("case", FILES)
def test_files_that_cannot_be_read_are_refused_in_words(case, tmp_path):
    name, content, door, words = FILES[case]
    (tmp_path / name).write_bytes(content)
    with pytest.raises((FileError, InputError), match=words):
        door(tmp_path / name)


def test_undecodable_bytes_of_a_table_are_replaced_where_that_is_asked_for(tmp_path):
    file = tmp_path / "d.csv"
    file.write_bytes(b"text\ngood\nbad \xff\n")
    found = documents(file, undecodable="replace")
    assert [text for _, text in found] == ["good", "bad \ufffd"]
    assert found.replaced == 1


@pytest.mark.parametrize("door", [read, lambda file: read(file, **LONG)])
def test_a_database_is_asked_for_its_query(tmp_path, door):
    file = tmp_path / "x.db"
    base = sqlite3.connect(file)
    base.execute("create table t (u, i, r)")
    base.commit()
    base.close()
    for source in (str(file), "postgresql://me@somewhere/base"):
        with pytest.raises(
            InputError,
            match=r"is a database and needs a query\. Say sql='select \.\.\. from \.\.\.'\.",
        ):
            door(source)


def test_sparse_files_of_other_widths_are_not_put_together(tmp_path):
    for name, columns in (("a", 4), ("b", 5)):
        sparse.save_npz(tmp_path / f"{name}.npz", sparse.eye_array(3, columns, format="csr"))
    with pytest.raises(InputError, match="files must have the same number of columns, got 5 in"):
        read(str(tmp_path / "*.npz"))


def test_a_mark_that_stands_for_the_delimiter_may_not_come_in_the_text(tmp_path):
    (tmp_path / "x").write_text("1::2" + LONG_MARK)
    with pytest.raises(FileError, match="holds the control character"):
        _OneMark(tmp_path / "x", b"::").read()


def test_a_folder_that_cannot_be_written_to_is_named_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(FileError, match="cannot be written to; choose another folder"):
        check_place(tmp_path / "m")


def test_numbers_at_the_fit_stay_numbers():
    encoding, _ = Encoding.of({"id": [1, 2, 3], "a": [1.0, 2.0, 4.0]}, "id", "row_features")
    with pytest.raises(
        InputError, match="column 'a' of row_features must hold numbers as at the fit, got string"
    ):
        encoding.read({"id": [1], "a": ["b"]}, "row_features")
    with pytest.raises(
        InputError, match="column 'a' of row_features must hold finite numbers, got inf in row 1"
    ):
        encoding.read({"id": [1, 2], "a": [1.0, np.inf]}, "row_features")


def _workbook(file, rows, change=lambda xml: xml):
    """A workbook of one sheet, whose XML may be changed."""
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    plain = file.with_suffix(".plain")
    book.save(plain)
    with (
        zipfile.ZipFile(plain) as before,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as after,
    ):
        for part in before.infolist():
            content = before.read(part)
            after.writestr(
                part.filename, change(content) if part.filename.endswith("sheet1.xml") else content
            )
    return file


def test_a_workbook_has_names_and_rows(tmp_path):
    file = _workbook(
        tmp_path / "x.xlsx", [("a", None, "c"), (None, None, None), (1, 2.5, "x"), (3, 4, 5)]
    )
    assert excel_table(file).to_pydict() == {"a": [1, 3], "column 2": [2.5, 4.0], "c": ["x", "5"]}
    with pytest.raises(
        FileError,
        match="the first sheet of",
    ):
        excel_table(_workbook(tmp_path / "y.xlsx", [("a",), (None,)]))
    (tmp_path / "z.xlsx").write_bytes(b"no archive")
    with pytest.raises(FileError, match="cannot be read as a workbook: File is not a zip file"):
        excel_table(tmp_path / "z.xlsx")


@pytest.mark.parametrize("far", [b"B999999999999", b"ZZZZZZ3"])
def test_a_cell_beyond_the_sheet_is_refused_at_once(tmp_path, far):
    file = _workbook(
        tmp_path / "x.xlsx",
        [("a", "b"), (1, 2), (3, 4)],
        lambda xml: xml.replace(b'"B3"', b'"' + far + b'"'),
    )
    with pytest.raises(FileError, match="beyond the rows and columns"):
        excel_table(file)


def test_workbooks_say_what_reads_them(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(
        MissingError,
        match=r"needs openpyxl: pip install 'eckart\[xlsx\]'; or save the sheet as .csv",
    ):
        excel_table(tmp_path / "x.xlsx")


def test_a_line_of_millions_of_cells_is_refused(tmp_path):
    (tmp_path / "long.csv").write_text("a," * 9_000_000 + "\n1,2\n")
    (tmp_path / "wide.csv").write_text("a," * 250_000 + "\n1,2\n")
    for file, words in (
        ("long.csv", "a line of more than"),
        (
            "wide.csv",
            r"wide\.csv must have at most 200,000 columns in a text file, got 250,001",
        ),
    ):
        with pytest.raises(FileError, match=words):
            eckart.read(tmp_path / file)


def test_images_of_one_size_are_rows_of_grey_values(tmp_path):
    from PIL import Image

    with pytest.raises(
        FileError,
        match=r" must be a folder of images, files that end in \.png, \.jpg, \.jpeg, \.gif \.\.\., got none",
    ):
        read_images(tmp_path)
    first, second = np.arange(6, dtype=np.uint8).reshape(2, 3), np.full((2, 3), 7, np.uint8)
    Image.fromarray(second).save(tmp_path / "b.png")
    Image.fromarray(first).save(tmp_path / "a.png")
    values, names, size = read_images(tmp_path)
    np.testing.assert_array_equal(values, [first.ravel(), second.ravel()])
    assert (names.tolist(), size) == (["a.png", "b.png"], (2, 3))
    Image.fromarray(np.zeros((4, 6), np.uint8)).save(tmp_path / "c.png")
    with pytest.raises(
        FileError, match=r"c.png is 4x6 pixels and .*a.png is 2x3; say --image 2x3 to bring"
    ):
        read_images(tmp_path)
    values, _, size = read_images(tmp_path, (2, 3))
    np.testing.assert_array_equal(values, [first.ravel(), second.ravel(), np.zeros(6)])
    assert size == (2, 3)


def test_rows_on_a_device_are_two_dimensions_of_real_numbers():
    torch = pytest.importorskip("torch")
    from eckart.io.tables.frames import DeviceRows, same_kind

    with pytest.raises(InputError, match="3"):
        DeviceRows.of(torch.zeros(2, 2, 2))
    with pytest.raises(
        InputError, match="Complex data not supported: X must hold real numbers, got complex ones"
    ):
        DeviceRows.of(torch.zeros(2, 2, dtype=torch.complex64))
    for kind, wanted in (
        (torch.float16, "f4"),
        (torch.float32, "f4"),
        (torch.float64, "f8"),
        (torch.int32, "f8"),
    ):
        rows = DeviceRows.of(torch.arange(10).reshape(5, 2).to(kind))
        blocks = list(rows.blocks(2))
        assert [len(block) for block in blocks] == [2, 2, 1]
        assert {block.dtype for block in blocks} == {rows.dtype} == {np.dtype(wanted)}
        np.testing.assert_array_equal(np.concatenate(blocks), np.arange(10).reshape(5, 2))
        assert rows.shape == (5, 2)
        assert isinstance(rows.like(np.ones(5)), torch.Tensor)
    assert same_kind(np.ones(2), "as it is") == "as it is"


def test_a_shard_that_was_changed_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr(entry_shards, "LEAST_SHARD", 64)
    file = tmp_path / "r.csv"
    file.write_text(
        "u,i,r\n" + "".join(f"{a},{b},{a + b}.5\n" for a in range(20) for b in range(6))
    )
    parts = read(file, **LONG, memory=1000).parts
    assert len(parts.lengths) > 2
    lengths, data, indices = (
        parts.folder / f"rows-00001-{what}" for what in ("lengths", "data", "indices")
    )
    kept = lengths.read_bytes()
    lengths.write_bytes((np.frombuffer(kept, np.int32) + 1).tobytes())
    with pytest.raises(FileError, match="rows-00001-lengths was changed; read the table again"):
        parts.load(1)
    lengths.write_bytes(kept)
    whole = data.read_bytes()
    data.write_bytes(whole[:-8])
    with pytest.raises(FileError, match="rows-00001-data ended early; read the table again"):
        parts.load(1)
    data.write_bytes(whole)
    assert parts.load(1).nnz == parts.entries[1]
    indices.unlink()
    with pytest.raises(FileError, match="a shard of the data cannot be read"):
        parts.load(1)


def spoiled(path, change):
    """A saved model whose arrays and header were changed, with a right checksum."""
    with safe_open(path, "np") as tensors:
        held = {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118
        header = json.loads(tensors.metadata()["eckart"])
    del header["checksum"]
    change(held, header)
    save_file(held, path, metadata={"eckart": save.seal(held, json.dumps(header))})
    return path


def test_a_model_has_a_known_class_and_all_arrays_of_its_kind(tmp_path):
    path = tmp_path / "m.safetensors"
    PMI(2, random_state=0, min_count=1).fit(["a b c d a b", "b c d a", "c a d b"]).save(path)
    with pytest.raises(
        FileError,
        match=r"m\.safetensors cannot be loaded: context must be there in a PMI, got none",
    ):
        eckart.load(spoiled(path, lambda held, header: held.pop("context")))
    for other in ("Other", 3):
        with pytest.raises(FileError, match=f"class must be one of .*PCA.*, got {other!r}"):
            eckart.load(
                spoiled(path, lambda held, header, other=other: header.update({"class": other}))
            )


def test_the_clock_of_a_trace_goes_on_where_it_was():
    trace = resumed_trace("value", ([3.0], [1000.0]))
    trace.add(2.0)
    assert trace.values == [3.0, 2.0]
    assert 1000.0 <= trace.seconds[1] < 1100.0


def test_lines_of_rows_are_counted_with_blank_ones(tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n1,2\n\n3,4\n")
    layout = CsvLayout.of(tmp_path / "x.csv", ",", ".", None)
    # of one that is not there: as if none were blank
    assert [layout.line(row) for row in (0, 1, 9)] == [2, 4, 11]


def test_a_mapped_model_that_cannot_be_opened_is_named(tmp_path):
    with pytest.raises(FileError, match=r"none cannot be read: .*No such file"):
        load_mapped(tmp_path / "none")
    (tmp_path / "m").write_bytes(json.dumps({}).encode())
    with pytest.raises(FileError, match=r"m is truncated: 2 bytes$"):
        load_mapped(tmp_path / "m")


def test_vectors_of_a_file_that_ends_between_two_are_counted(tmp_path):
    vector = struct.pack("<2f", 1, 2)
    for packed in (False, True):
        file = tmp_path / ("v.bin.gz" if packed else "v.bin")
        data = b"3 2\n" + b"a_rather_long_word " + vector + b"another_long_word " + vector
        file.write_bytes(gzip.compress(data) if packed else data)
        with pytest.raises(
            FileError,
            match=r"truncated: 3 vectors are promised, it ends after 2; pass limit=2 to read "
            r"those",
        ):
            read_vectors(file)
        assert len(read_vectors(file, limit=2)) == 2


@pytest.mark.parametrize(("name", "number"), [("v.bin", 14), ("v.txt", 7)])
def test_a_header_promises_no_more_than_the_bytes_can_hold(tmp_path, name, number):
    """A vector of 3 numbers takes 4 x 3 bytes, a letter and a space; as text a letter, and a space
    and a digit for each number."""
    file = tmp_path / name
    vector = b"a " + struct.pack("<3f", 1, 2, 3) if name == "v.bin" else b"a 1 2 3\n"
    file.write_bytes(b"99 3\n" + vector)
    with pytest.raises(
        FileError,
        match=f"99 vectors of 3 numbers are promised, which need {99 * number} bytes at "
        f"least; {len(vector) + 5} are there",
    ):
        read_vectors(file)


def test_a_vector_too_large_for_single_precision_is_named_in_any_block(tmp_path, monkeypatch):
    from eckart.io.vectors import write

    monkeypatch.setattr(write, "BLOCK_NUMBERS", 4)
    vectors = np.ones((7, 2))
    vectors[5, 1] = 1e300
    words = np.array(list("abcdefg"), object)
    with pytest.raises(InputError, match="the vector of 'f' is too large for float32"):
        write.write_words(tmp_path / "v.bin", words, vectors)
    with pytest.raises(InputError, match=r"words must be text or integers to be written, got 3\.5"):
        write.write_words(tmp_path / "v.safetensors", np.array([3.5, "a"], object), np.ones((2, 2)))


def test_a_tokenizer_that_gives_no_words_is_named_with_its_document():
    rule = Tokenizer(tokenizer=lambda text: text.split() if text != "odd" else 3)
    with pytest.raises(
        InputTypeError, match="tokenizer must return a list of words, got a int for document 12"
    ):
        rule.batch(["a b", "c", "odd"], first=10)
    rule = Tokenizer(tokenizer=lambda text: [text] if text != "odd" else [3])
    with pytest.raises(
        InputTypeError, match=r"tokenizer must return words \(str\), got 3 for document 11"
    ):
        rule.batch(["a b", "odd"], first=10)


def test_a_cell_in_the_last_corner_of_a_sheet_takes_no_time(tmp_path, monkeypatch):
    """Its reader fills up the 17 billion cells before it."""

    def corner(xml):
        xml = xml.replace(b'r="3"', b'r="1048576"').replace(b'r="A3"', b'r="A1048576"')
        return xml.replace(b'r="B3"', b'r="XFD1048576"').replace(b"A1:B3", b"A1:XFD1048576")

    file = _workbook(tmp_path / "x.xlsx", [("a", "b"), (1, 2), (3, 4)], corner)
    begin = time.process_time()
    table = excel_table(file)
    assert time.process_time() - begin < 5
    assert (table.num_rows, table.num_columns) == (2, 2**14)
    monkeypatch.setattr(other_files, "MOST_CELLS", 2**15)
    with pytest.raises(FileError, match="span more than 32,768 cells"):
        excel_table(file)


@pytest.mark.parametrize(
    ("filling", "words"),
    [
        (b" " * 80 * 2**20, "it would take more than 67,108,864 bytes"),
        (b'<row r="2"/>' * (2**20 + 100), "beyond the rows and columns of a sheet"),
    ],
    ids=["inflating", "rows without end"],
)
def test_a_workbook_that_inflates_is_refused_at_once(tmp_path, filling, words):
    """1.1 MB became 3 GB in half a minute."""
    file = _workbook(
        tmp_path / "x.xlsx",
        [("a", "b"), (1, 2), (3, 4)],
        lambda xml: xml.replace(b"<sheetData>", b"<sheetData>" + filling),
    )
    begin = time.process_time()
    with pytest.raises(FileError, match=words):
        excel_table(file)
    assert time.process_time() - begin < 2


def test_rows_of_a_workbook_may_have_several_widths(tmp_path):
    """Without the size of the sheet its reader gives each row as it stands."""

    def bare(xml):
        begin = xml.index(b"<dimension")
        end = xml.index(b"/>", begin) + 2
        return xml[:begin] + xml[end:]

    file = _workbook(tmp_path / "x.xlsx", [("a", "b"), (1,), (3, 4), (5, 6, 7)], bare)
    assert excel_table(file).to_pydict() == {
        "a": [1, 3, 5],
        "b": [None, 4, 6],
        "column 3": [None, None, 7],
    }
