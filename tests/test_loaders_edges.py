"""Readers at their edges: where chunks are cut, where a file ends, and the words in which what does
not fit is refused."""

from __future__ import annotations

import json
import struct

import numpy as np
import pyarrow as pa
import pytest
from safetensors.numpy import save_file
from scipy import sparse

import eckart
from eckart import PCA, FileError, InputError, read, read_vectors
from eckart.index.labels import Labels
from eckart.io.models import checkpoint
from eckart.io.models.memory_maps import load_mapped
from eckart.io.tables import csv_file, entry_shards
from eckart.io.tables.attributes import Encoding, joined
from eckart.io.tables.columns import _counts, head_of
from eckart.io.tables.csv_file import LONG_MARK, CsvLayout, _OneMark
from eckart.io.tables.memory import memory_of
from eckart.io.tables.row_blocks import IteratorBlocks, npy_array
from eckart.io.tables.write import write_long
from eckart.io.text.shards import record_mark, shards, write_shards
from eckart.io.text.tokens import ALONE, classes, token_batches
from eckart.io.text.word_kernels import SINGLE
from eckart.io.vectors import files, word_rows
from eckart.io.vectors.text_format import _check_size, _size


@pytest.mark.parametrize("rows", [3, 40])
def test_ranges_of_a_long_csv_file_are_long_and_lose_no_row(tmp_path, monkeypatch, rows):
    monkeypatch.setattr(csv_file, "RANGE_BYTES", 50)
    x = np.arange(2.0 * rows).reshape(rows, 2)
    file = tmp_path / "x.csv"
    file.write_text("a,b\n" + "".join(f"{a},{b}\n" for a, b in x))
    layout = CsvLayout.of(file, ",", ".", None)
    cuts, text = layout._cuts(), file.read_bytes()
    assert (cuts[0], cuts[-1]) == (0, len(text))
    assert all(text[cut - 1 : cut] == b"\n" for cut in cuts[1:])
    whole = np.diff(cuts)[:-1]  # a range ends with the line in which its bytes do
    assert ((whole >= 50) & (whole <= 70)).all()
    np.testing.assert_array_equal(read(str(file)).array, x)


@pytest.mark.parametrize("mark", [b"::", b"ab~"])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 100, -1])
def test_a_long_delimiter_is_found_where_chunks_cut_it(tmp_path, mark, size):
    text = b"1" + mark + b"2" + mark[:1] + b"3" + mark + mark + b"4\n" + mark[:-1] + b"5" + mark[:1]
    (tmp_path / "x").write_bytes(text)
    raw, out = _OneMark(tmp_path / "x", mark), []
    while part := raw.read(size):
        out.append(part)
        assert size < 0 or len(part) <= size
    raw.close()
    assert b"".join(out) == text.replace(mark, LONG_MARK.encode())


def test_an_array_file_that_ends_too_early_says_what_is_missing(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((4, 3)))
    whole = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(whole[:-8])
    with pytest.raises(FileError, match=r"truncated: shape \(4, 3\) needs 96 bytes, 88 are there"):
        npy_array(tmp_path / "x.npy")


def test_sparse_data_of_one_axis_is_refused_by_its_axes():
    with pytest.raises(InputError, match="1"):
        read(sparse.coo_array(np.ones(3)))


def test_blocks_that_do_not_belong_together_are_named():
    import pandas as pd

    wide = [f"c{i}" for i in range(9)]
    frames = [
        pd.DataFrame(np.ones((2, 9)), columns=wide),
        pd.DataFrame(np.ones((2, 9)), columns=wide[::-1]),
    ]
    with pytest.raises(
        InputError,
        match=r"X must have the columns c0, c1, c2, c3, c4, c5, c6, c7 \.\.\. in this order in every",
    ):
        list(IteratorBlocks(iter(frames)).blocks(10))
    with pytest.raises(
        InputError,
        match="X must have 2 columns in every block, got 3 in the block that starts at row 2",
    ):
        list(IteratorBlocks(iter([np.ones((2, 2)), np.ones((2, 3))])).blocks(1))
    once = IteratorBlocks(iter([np.arange(10.0).reshape(5, 2)]))
    assert [len(block) for block in once.blocks(2)] == [2, 2, 1]
    with pytest.raises(InputError, match="read already"):
        list(once.blocks(2))


def test_a_mapped_model_is_whole_or_refused(tmp_path):
    x = np.random.default_rng(0).standard_normal((20, 4))
    model, path = PCA(2).fit(x), tmp_path / "m.safetensors"
    model.save(path)
    np.testing.assert_array_equal(load_mapped(path).components_, eckart.load(path).components_)
    good = path.read_bytes()
    path.write_bytes(good + b"abc")
    with pytest.raises(FileError, match="3 bytes belong to no array"):
        load_mapped(path)
    (length,) = struct.unpack("<Q", good[:8])
    head = json.loads(good[8 : 8 + length])
    for field, change in (
        ("data_offsets", lambda a: [a[0], a[1] - 8]),
        ("shape", lambda a: [*a, 2]),
        ("dtype", lambda a: "F7"),
    ):
        spoiled = json.loads(json.dumps(head))
        spoiled["mean"][field] = change(spoiled["mean"][field])
        text = json.dumps(spoiled).encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text + good[8 + length :])
        with pytest.raises(FileError, match=r"damaged|changed|safetensors|model"):
            load_mapped(path)


@pytest.mark.parametrize("there", [0, 5, 11])
def test_a_vector_that_is_cut_says_how_many_bytes_are_there(tmp_path, there):
    file, vector = tmp_path / "v.bin", struct.pack("<3f", 1, 2, 3)
    file.write_bytes(b"1 3\na_rather_long_word " + vector[:there])
    with pytest.raises(
        FileError,
        match=f"must hold 12 bytes in its first vector, got {there}: the file is truncated",
    ):
        read_vectors(file)
    file.write_bytes(b"2 3\na_rather_long_word " + vector + b"two " + vector[:there])
    with pytest.raises(FileError, match=r"truncated in vector 2 of 2; pass limit=1"):
        read_vectors(file)
    assert len(read_vectors(file, limit=1)) == 1


def test_vectors_whose_arrays_differ_in_length_are_refused(tmp_path):
    words, ends = np.frombuffer(b"abc", np.uint8), np.array([1, 3])
    sound = {
        "vectors": np.ones((2, 2), np.float32),
        "words": words,
        "ends": ends,
        "counts": np.array([1, 2]),
    }
    file = tmp_path / "v.safetensors"
    save_file(sound, file)
    assert list(read_vectors(file).words) == ["a", "bc"]
    for match, change in {
        "for 2 words": {"vectors": np.ones((3, 2), np.float32)},
        "vectors of shape": {"vectors": np.ones((2, 2), np.int32)},
        r"vectors of shape \(2,\)": {"vectors": np.ones(2, np.float32)},
        "3 counts for 2 words": {"counts": np.ones(3)},
        "vector of 'bc' is not finite": {"vectors": np.array([[1, 1], [1, np.nan]], np.float32)},
        "out of order": {"ends": np.array([1, 2])},
        "ends of words": {"ends": np.array([3, 1])},
        "ends of words are": {"ends": np.array([-1, 3])},
    }.items():
        save_file(sound | change, file)
        with pytest.raises(FileError, match=match):
            read_vectors(file)


def test_the_size_of_a_vector_is_that_of_most_lines():
    assert _size(b"a 1 2 3\nb 1 2 3\nc d 1 2\n") == 3
    assert _size(b"\n \n") == 0

    class Begun:
        file, rest = "v.txt", b"a 1 2 3\nb 1 2 3\nc 1"  # the last line may be cut

    _check_size(Begun, 3)
    with pytest.raises(FileError, match="2 numbers a vector are promised, the lines below hold 3"):
        _check_size(Begun, 2)
    Begun.rest = b"a 1 2 3"
    with pytest.raises(FileError, match="hold 3"):
        _check_size(Begun, 2)


def test_characters_that_are_words_reach_to_both_ends_of_their_ranges():
    import unicodedata

    kinds = classes()
    for begin, end in ALONE:
        letters = [c for c in (begin, end) if unicodedata.category(chr(c))[0] == "L"]
        assert (kinds[letters] == SINGLE).all()
    assert kinds[0x9FFF] == SINGLE
    assert kinds[0x3040] != SINGLE
    assert kinds[0x4DC0] != SINGLE


def test_batches_of_documents_are_cut_by_characters_and_keep_their_order():
    texts = ["aa bb", "cc", "dd ee ff", "gg"] * 5
    whole = next(iter(token_batches(texts, eckart.io.text.tokens.Tokenizer(), 1)))
    parts = list(token_batches(texts, eckart.io.text.tokens.Tokenizer(), 1, characters=32))
    assert sum(map(len, parts)) == len(whole) == 20
    assert [part.first for part in parts] == np.cumsum([0, *map(len, parts[:-1])]).tolist()
    assert len(parts) > 4


def test_shards_of_other_widths_are_named(tmp_path):
    write_shards([sparse.eye_array(3, 4), sparse.eye_array(2, 4)], tmp_path)
    assert [block.shape for block in shards(f"{tmp_path}/*.npz")] == [(3, 4), (2, 4)]
    sparse.save_npz(tmp_path / "z.npz", sparse.csr_array(np.eye(5)))
    with pytest.raises(InputError, match="files must have the same number of columns, got 5 in"):
        list(shards(f"{tmp_path}/*.npz"))
    np.savez(tmp_path / "a.npz", np.ones((2, 2)))
    with pytest.raises(InputError, match="dense array"):
        list(shards(f"{tmp_path}/*.npz"))
    with pytest.raises(FileError, match="matches no file"):
        shards(f"{tmp_path}/*.none")


def test_a_digest_sees_every_byte_of_every_piece(monkeypatch):
    a = np.arange(24.0).reshape(8, 3)
    for block in (checkpoint.BLOCK, 48, 1):
        monkeypatch.setattr(checkpoint, "BLOCK", block)
        found = {
            checkpoint.digest(a),
            checkpoint.digest(a.astype(np.float32)),
            checkpoint.digest(a.reshape(3, 8)),
        }
        for at in range(a.size):
            b = a.copy()
            b.flat[at] += 1
            found.add(checkpoint.digest(b))
        assert len(found) == a.size + 3


def test_a_mapped_array_beyond_the_end_is_named(tmp_path):
    path = tmp_path / "m.safetensors"
    PCA(2).fit(np.random.default_rng(0).standard_normal((20, 4))).save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-8])
    with pytest.raises(FileError, match="does not lie where its header says"):
        load_mapped(path)


def test_columns_that_only_count_are_told_from_numbers():
    def counts(cells):
        return _counts(pa.array(cells))

    assert counts(range(10))
    assert counts(range(1, 12))
    for other in (
        range(2, 14),
        range(9),
        [*range(9), 10],
        [*range(11), None],
        [float(i) for i in range(12)],
    ):
        assert not counts(list(other))


def test_names_of_a_long_table_differ(tmp_path):
    block = (np.arange(3), np.arange(3.0))
    assert write_long(tmp_path / "t.csv", ["a", "b"], iter([block, block])) == 6
    assert (tmp_path / "t.csv").read_text().count("\n") == 7
    with pytest.raises(FileError, match="column names must differ, got 'a', 'a'"):
        write_long(tmp_path / "t.csv", ["a", "a"], iter([block]))
    assert (tmp_path / "t.csv").read_text().count("\n") == 7
    with pytest.raises(FileError, match="one array of numbers"):
        write_long(tmp_path / "t.npy", ["a", "b"], iter([block]))


def attribute_frame(columns=10):
    return {"id": [3, 4, 5]} | {f"c{j}": [1.0, 2.0, 4.0 + j] for j in range(columns)}


@pytest.mark.parametrize("columns", [8, 9])
def test_an_encoding_names_its_columns_and_comes_back(columns):
    encoding, found = Encoding.of(attribute_frame(columns), "id", "row_features")
    again = Encoding.from_dict(json.loads(json.dumps(encoding.to_dict())))
    assert again == encoding
    np.testing.assert_array_equal(
        again.encode(found, "row_features"), encoding.encode(found, "row_features")
    )
    short = "c0, c1, c2, c3, c4, c5, c6, c7" + (" ..." if columns > 8 else "")
    with pytest.raises(
        InputError, match=rf"must have the columns of the fit \({short}\), got none called 'c1'$"
    ):
        encoding.read({"id": [1], "c0": [2.0]}, "row_features")


@pytest.mark.parametrize(
    "change",
    [
        {"deviation": 0.0},
        {"deviation": -1.0},
        {"mean": float("nan")},
        {"mean": True},
        {"kind": "other"},
        {"name": 3},
        {"levels": ["a"]},
        {"kind": "category"},
        {"kind": "category", "levels": ["a", "a"]},
        {"kind": "category", "levels": ["a", 3]},
    ],
)
def test_an_encoding_that_cannot_have_been_fitted_is_refused(change):
    encoding, _ = Encoding.of(attribute_frame(2), "id", "row_features")
    values = encoding.to_dict()
    values["columns"][0] |= change
    with pytest.raises(FileError, match="an encoding must"):
        Encoding.from_dict(values)


def test_attributes_are_joined_by_ids():
    labels = Labels(np.array([5, 3, 9]), 3, "row")
    ids, numbers = np.array([3, 7, 5, 8]), np.arange(8.0).reshape(4, 2) + 1
    out, lacking, beyond = joined(ids, numbers, labels, "row_features")
    np.testing.assert_array_equal(out, [numbers[2], numbers[0], [0, 0]])
    assert lacking.tolist() == [False, False, True]
    assert beyond.tolist() == [1, 3]
    with pytest.raises(
        InputError,
        match="row_features must be those of the data, such as 5, 3, 9, got 'ids such as 7'",
    ):
        joined(ids[1:2], numbers[:1], labels, "row_features")
    with pytest.raises(
        InputError,
        match="row_features must have a column, beside the ids, that differs between ids, got none",
    ):
        Encoding.of({"id": [1, 2], "x": [3.0, 3.0]}, "id", "row_features")


def test_a_column_that_counts_rows_is_one_beside_others_only(tmp_path):
    for columns, kinds in ((("n", "a"), ["row number", "number"]), (("n",), ["number"])):
        file = tmp_path / "x.csv"
        file.write_text(
            ",".join(columns)
            + "\n"
            + "".join(",".join([str(i)] * len(columns)) + "\n" for i in range(12))
        )
        assert [c.kind for c in head_of(str(file)).columns] == kinds


def test_words_for_memory():
    for word, wanted in {
        "3": 3.0,
        "2k": 2**11,
        "2KB": 2**11,
        "1.5MiB": 1.5 * 2**20,
        "4G": 2**32,
        "4 gb": 2**32,
    }.items():
        assert memory_of(word) == wanted


def test_records_are_told_from_lines_by_the_share_of_their_tags():
    record = ["<D>", "some words", "</D>"]
    assert record_mark(record * 5) == "</D>"
    # the outer one
    assert record_mark(["<D>", "some words", "<N>", "more", "</N>", "</D>"] * 5) == "</D>"
    assert record_mark(["some words", "</D>"]) is None  # one tag may be anything
    assert record_mark([*record, *["a line"] * 500]) is None
    assert record_mark(["<D>", "some words"] * 5) is None


@pytest.mark.parametrize("chunk", [1, 7, 30, 10**6])
def test_binary_vectors_are_found_wherever_chunks_cut_them(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(files, "LONGEST_WORD", 40)
    rng = np.random.default_rng(0)
    words = [
        letter * size for letter, size in zip("abcdefghij", (1, 40, 3, 39, 20, 21, 35, 2, 30, 19))
    ]
    vectors = rng.standard_normal((10, 5)).astype(np.float32)
    file = tmp_path / "v.bin"
    file.write_bytes(
        b"10 5\n" + b"".join(w.encode() + b" " + v.tobytes() for w, v in zip(words, vectors))
    )
    for module in (files, word_rows):
        monkeypatch.setattr(module, "CHUNK", max(chunk, 5) if module is word_rows else chunk)
    found = read_vectors(file, format="binary")
    assert found.words.tolist() == words
    np.testing.assert_array_equal(found.vectors, vectors)


def test_indices_of_shards_have_the_type_of_their_range(tmp_path, monkeypatch):
    """A range of few rows far down a table is written and read by the number of its own rows; here
    2^31 is 20."""
    monkeypatch.setattr(
        entry_shards, "index_dtype", lambda size: np.dtype(np.int32 if size < 20 else np.int64)
    )
    monkeypatch.setattr(entry_shards, "LEAST_SHARD", 256)
    file, how = tmp_path / "r.csv", {"rows": "u", "columns": "i", "values": "r"}
    file.write_text(
        "u,i,r\n" + "".join(f"{a},{b},{a - b}.5\n" for a in range(60) for b in range(9))
    )
    whole, shards = (read(file, **how, memory=memory) for memory in ("1GB", 1000))
    assert max(shards.parts.lengths) < 20
    assert len(shards.parts.lengths) > 5
    for field in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(shards, field), getattr(whole, field), err_msg=field)


def test_numbers_are_standardised_and_tiny_deviations_are_deviations():
    frame = {
        "id": [1, 2, 3],
        "a": [10.0, 20.0, 60.0],
        "b": [0.0, 1e-11, 2e-11],
        "c": [1e6, 1e6, 1e6 + 1e-9],
    }
    encoding, found = Encoding.of(frame, "id", "row_features")
    assert encoding.names() == ["a", "b"]  # c differs by less than 1e-12 of its mean
    x = encoding.encode(found, "row_features")
    np.testing.assert_allclose(x.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(x.std(axis=0), 1)
    other = {"id": [4], "a": [30.0 + np.std(frame["a"])], "b": [None]}
    np.testing.assert_allclose(encoding.read(other, "row_features")[1], [[1.0, 0.0]])
    flags, found = Encoding.of(
        {"id": [1, 2, 3], "f": [0, 1, 1], "g": [True, False, False]}, "id", "row_features"
    )
    third = 1 / 3  # yes and no keep their size, about their mean
    np.testing.assert_allclose(
        flags.encode(found, "row_features"),
        [[-2 * third, 2 * third], [third, -third], [third, -third]],
    )
