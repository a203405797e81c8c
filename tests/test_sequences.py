"""Sequences of word numbers: of text and of lists, in order, with a vocabulary, kept on disk."""

from __future__ import annotations

import gzip
import os
import warnings
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eckart import FileError, InputError, corpus, sequences
from eckart.embed import cache as shelf
from eckart.embed.sequences import Sequences, keep_probability
from eckart.errors import InputTypeError


def sentences(s):
    return [s.sentence(i) for i in range(len(s))]


def same(a, b):
    assert a.words.tolist() == b.words.tolist()
    for name in ("ids", "pointers", "counts"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    assert (a.words_read, a.words_dropped, a.replaced, a.rules) == (
        b.words_read,
        b.words_dropped,
        b.replaced,
        b.rules,
    )


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(st.sampled_from(["a", "bb", "c", "d'e", "東"]), max_size=12),
        min_size=1,
        max_size=10,
    ).filter(any),
    st.integers(1, 3),
    st.none() | st.integers(1, 4),
)
def test_words_are_those_of_a_plain_count(rows, min_count, max_words):
    count = Counter(w for row in rows for w in row)
    kept = sorted((w for w in count if count[w] >= min_count), key=lambda w: (-count[w], w))[
        :max_words
    ]
    if not kept:
        with pytest.raises(InputError, match="at least one word must be left, got none of"):
            sequences(rows, min_count=min_count)
        return
    for source in (
        rows,
        iter(rows),
        [" ".join(row) for row in rows],
        (" ".join(row) for row in rows),
    ):
        s = sequences(source, min_count=min_count, max_words=max_words)
        assert s.words.tolist() == kept
        assert s.counts.tolist() == [count[w] for w in kept]
        assert sentences(s) == [[w for w in row if w in kept] for row in rows]
        assert s.ids.dtype == np.int32
        assert s.words_read == sum(count.values())
        assert s.words_dropped == s.words_read - s.n_tokens


def test_integers_stay_integers_and_order_by_value():
    s = sequences(np.array([[10, 9, 10], [2, 9, 2]]), min_count=1)
    assert s.words.tolist() == [2, 9, 10]  # equal counts: by value, not by text
    assert type(s.words[0]) is int
    assert sequences([{3, 1, 2}], min_count=1).sentence(0) == [1, 2, 3]
    assert sequences({"ann": ["tea", "milk"]}, min_count=1).sentence(0) == ["tea", "milk"]


def test_threads_and_batches_change_nothing(monkeypatch):
    texts = [f"word{i % 97} and word{i % 31} or {i}" for i in range(20_000)]
    one = sequences(texts, n_threads=1)
    same(one, sequences(texts, n_threads=3))
    same(one, sequences(iter(texts)))
    monkeypatch.setattr(shelf, "IN_MEMORY", 1000)  # everything goes through a temporary file
    same(one, sequences(texts))


def test_numbers_and_letters_are_kept_by_default():
    assert sequences(["I saw 2 cats"], min_count=1).sentence(0) == ["i", "saw", "2", "cats"]
    assert sequences(["I saw 2 cats"], min_count=1, numbers=False, min_length=2).sentence(0) == [
        "saw",
        "cats",
    ]
    assert sequences(["I saw"], min_count=1, lowercase=False).sentence(0) == ["I", "saw"]
    assert sequences(["a-b c"], min_count=1, tokenizer=str.split).sentence(0) == ["a-b", "c"]
    assert sequences(["a-b c"], min_count=1, tokenizer=r"\S+").rules == {
        "numbers": True,
        "min_length": 1,
        "tokenizer": r"\S+",
    }


def test_a_line_of_ten_megabytes(tmp_path):
    words = [f"w{i % 5000}" for i in range(1_900_000)]
    text = " ".join(words)
    assert len(text) > 10 * 2**20
    (tmp_path / "long.txt").write_text(text)
    s = sequences(tmp_path / "long.txt")
    assert len(s) == 1
    assert s.sentence(0) == words
    assert sequences([text], n_threads=1).ids.tobytes() == s.ids.tobytes()
    assert sequences(["x" * (10 * 2**20)], min_count=1).n_tokens == 1  # one word
    more = sequences(["a " + "x" * (2**20) + " b", "c"], min_count=1)
    assert [len(x) for x in sentences(more)] == [3, 1]
    assert sequences([text], tokenizer=str.split).n_tokens == len(words)


def test_odd_text_is_defined(tmp_path):
    (tmp_path / "odd.txt").write_bytes(b"\n\none\n\r\na\x00b \x00\n   \nlast one")
    s = sequences(tmp_path / "odd.txt", min_count=1)
    # a NUL ends a word
    assert sentences(s) == [[], [], ["one"], [], ["a", "b"], [], ["last", "one"]]
    alone = sequences(["word"], min_count=1)
    assert (alone.n_tokens, len(alone.words), alone.pointers.tolist()) == (1, 1, [0, 1])
    assert sequences([None, "a", float("nan")], min_count=1).pointers.tolist() == [0, 0, 1, 1]
    # an item is what it is
    assert sequences([["a\x00b"]], min_count=1).words.tolist() == ["a\x00b"]


BAD = b"good caf\xe9 end\n\xff\xfe also \xef\xbf\xbd kept\nfine\n"


@pytest.mark.parametrize("name", ["t.txt", "t.txt.gz", "t.md"])
def test_invalid_utf8_is_refused_or_replaced_and_counted(tmp_path, name):
    (tmp_path / name).write_bytes(gzip.compress(BAD) if name.endswith("gz") else BAD)
    with pytest.raises(
        FileError, match=r"byte 0xe9 at offset 8 cannot be decoded.*undecodable='replace'"
    ):
        sequences(tmp_path / name, min_count=1)
    s = sequences(tmp_path / name, min_count=1, undecodable="replace")
    assert sentences(s) == [["good", "caf", "end"], ["also", "kept"], ["fine"]]
    assert s.replaced == 3  # the U+FFFD that was written as such is not counted
    c = corpus(tmp_path / name, undecodable="replace")
    assert c.replaced == 3
    assert "caf" in c.columns
    with pytest.raises(InputError, match="undecodable must be 'error' or 'replace', got 'ignore'"):
        sequences(tmp_path / name, undecodable="ignore")


def test_invalid_utf8_in_tables_and_json(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"id,text\n1,caf\xe9 au lait\n2,tea\n")
    s = sequences(tmp_path / "t.csv", text="text", min_count=1, undecodable="replace")
    assert sentences(s) == [["caf", "au", "lait"], ["tea"]]
    assert s.replaced == 1
    (tmp_path / "t.jsonl").write_bytes(b'{"text": "caf\xe9 au"}\n')
    assert sequences(tmp_path / "t.jsonl", min_count=1, undecodable="replace").replaced == 1
    assert sequences(["plain"], min_count=1).replaced == 0


def test_folders_gzip_and_tables(tmp_path):
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "a.txt").write_text("one two\nthree\n")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"four one\n"))
    assert sentences(sequences(tmp_path, min_count=1)) == [["one", "two", "three"], ["four", "one"]]
    assert sentences(sequences(tmp_path, min_count=1, lines=True)) == [
        ["one", "two"],
        ["three"],
        ["four", "one"],
    ]
    frame = pd.DataFrame({"text": ["one two", None, "two"]})
    assert sentences(sequences(frame, min_count=1)) == [["one", "two"], [], ["two"]]
    pq.write_table(pa.table({"text": ["one two", "two"]}), tmp_path / "t.parquet")
    assert sentences(sequences(tmp_path / "t.parquet", min_count=1)) == [["one", "two"], ["two"]]
    assert sentences(sequences(pd.Series([["a", "b"], ["c"]]), min_count=1)) == [["a", "b"], ["c"]]


def test_wrong_input_is_named():
    for bad, words in (
        ([["a"], "b"], r"list 1 must be a list of items, got a str \('b'\)"),
        ([["a", None]], r"list 0 must hold texts \(str\) or integers, got 'None' \(NoneType\)"),
        ([["a"], [1.5]], r"list 1 must hold texts \(str\) or integers, got '1\.5' \(float\)"),
        ([[["a"]]], "list 0 must hold texts \\(str\\) or integers, got \"\\['a'\\]\" \\(list\\)"),
        (
            [["a"], [1]],
            "lists must hold all texts or all integers, got item 1 of list 1, which is a number",
        ),
        ([[True]], r"list 0 must hold texts \(str\) or integers, got 'True' \(bool\)"),
        (np.zeros((2, 2, 2), int), "list 0 must be an array of one dimension, got 2"),
        (5, "documents must be a path, a table, or a list of texts, got a int"),
    ):
        with pytest.raises(InputTypeError, match=words):
            sequences(bad, min_count=1)
    for bad in ([], iter(()), {}):
        with pytest.raises(
            InputError, match="the source must hold at least one sentence, got none"
        ):
            sequences(bad)
    for how in ({"min_count": 0}, {"min_count": 1.5}, {"max_words": 0}, {"max_words": True}):
        with pytest.raises(InputError, match=next(iter(how))):
            sequences(["a"], **how)
    with pytest.raises(
        InputError, match="at least one word must be left, got none of 3 in a text of 3"
    ):
        sequences(["a b c"])
    with pytest.raises(InputError, match="text='x' is for text only, got lists of items"):
        sequences([["a"]], text="x")
    s = sequences(["a b"], min_count=1)
    assert Sequences.of(s) is s
    with pytest.raises(InputError, match="s must be the number of a sentence, 0 to 0, got 1"):
        s.sentence(1)


def test_keep_probability_is_the_rule_of_word2vec():
    counts = np.array([1000, 100, 10, 0])
    f = counts / counts.sum()
    want = np.minimum(1, np.sqrt(1e-2 / f[:3]) + 1e-2 / f[:3])
    np.testing.assert_allclose(keep_probability(counts, 1e-2)[:3], want)
    assert keep_probability(counts, 1e-2)[3] == 1
    assert (
        keep_probability(counts, None).tolist() == keep_probability(counts, 0).tolist() == [1] * 4
    )
    with pytest.raises(
        InputError, match="sample must be None, 0 or a positive number, such as 1e-4, got -1"
    ):
        keep_probability(counts, -1)


# ---- the cache


@pytest.fixture
def file(tmp_path):
    (tmp_path / "t.txt").write_text("to be or not to be\nthat is the question\nbe\n")
    return tmp_path / "t.txt"


@pytest.mark.parametrize("where", ["kept", "folder"])
def test_the_cache_gives_the_same_without_reading(file, tmp_path, where, monkeypatch):
    place = tmp_path / where
    if where == "folder":
        place.mkdir()
    plain = sequences(file, min_count=1)
    same(plain, sequences(file, min_count=1, cache=place))
    monkeypatch.setattr("eckart.embed.sequences.documents", None)  # reading would fail
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = sequences(file, min_count=1, cache=place)
    same(plain, again)
    again.ids[0] = 0  # a private copy: the file does not change
    same(plain, sequences(file, min_count=1, cache=place))


def test_a_changed_source_is_read_again_and_said(file, tmp_path):
    sequences(file, min_count=1, cache=tmp_path / "kept")
    file.write_text("another text now\n")
    with pytest.warns(UserWarning, match="the source has changed"):
        s = sequences(file, min_count=1, cache=tmp_path / "kept")
    assert s.sentence(0) == ["another", "text", "now"]
    os.utime(file, ns=(1, 1))
    with pytest.warns(UserWarning, match="read again"):
        sequences(file, min_count=1, cache=tmp_path / "kept")
    with pytest.warns(UserWarning, match="options were"):
        assert len(sequences(file, min_count=1, max_words=2, cache=tmp_path / "kept").words) == 2


@pytest.mark.parametrize("harm", ["ids", "ids short", "pointers", "json", "word", "gone"])
def test_a_damaged_cache_is_never_used(file, tmp_path, harm):
    plain = sequences(file, min_count=1)
    sequences(file, min_count=1, cache=tmp_path / "kept")
    ids, pointers, told = (tmp_path / f"kept.{end}" for end in ("ids.npy", "pointers.npy", "json"))
    if harm in ("ids", "pointers"):
        victim = ids if harm == "ids" else pointers
        data = bytearray(victim.read_bytes())
        data[-4] ^= 1
        victim.write_bytes(data)
    elif harm == "ids short":
        ids.write_bytes(ids.read_bytes()[:-4])
    elif harm == "json":
        told.write_text(told.read_text()[:-20])
    elif harm == "word":
        told.write_text(told.read_text().replace("question", "quest1on"))
    else:
        ids.unlink()
    with pytest.warns(UserWarning, match="is damaged"):
        same(plain, sequences(file, min_count=1, cache=tmp_path / "kept"))
    same(plain, sequences(file, min_count=1, cache=tmp_path / "kept"))


def test_what_cannot_be_cached_is_refused(file, tmp_path):
    with pytest.raises(
        InputError,
        match=r"cache=.* needs a file, a folder or a pattern, where a change can be",
    ):
        sequences(["a"], cache=tmp_path / "kept")
    with pytest.raises(InputError, match="a function may change unseen"):
        sequences(file, tokenizer=str.split, cache=tmp_path / "kept")
    with pytest.raises(FileError, match="is not a folder"):
        sequences(file, cache=tmp_path / "no" / "kept")
    with pytest.raises(FileError, match="cannot be read"):
        sequences(tmp_path / "absent.txt", cache=tmp_path / "kept")
