"""Text in: the same words whatever holds them, in every script, with any number of threads; and
counts that are exact."""

from __future__ import annotations

import gzip
import json
import re
import unicodedata
from collections import Counter

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer

import eckart
from eckart import Counts, FileError, InputError, corpus
from eckart.errors import InputTypeError
from eckart.io.datasets import docstrings
from eckart.io.text.documents import Documents, documents
from eckart.io.text.tokens import ENGLISH, JOINERS, Packed, Tokenizer, token_batches
from eckart.io.text.vocabulary import Lexicon

TEXTS = ["The cat saw the dog.", "", "Dogs don't see a cat: naïve cats!", "the end"]


def table(c):
    """Counts as {document: {word: count}}."""
    rows = c.to_scipy().toarray().astype(int)
    names = range(c.shape[0]) if c.rows is None else c.rows.tolist()
    return {
        n: {w: v for w, v in zip(c.columns.tolist(), row) if v}
        for n, row in zip(names, rows.tolist())
    }


def same(a, b):
    assert a.columns.tolist() == b.columns.tolist()
    for name in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


# ---- words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "Don't stop; it’s 'quoted' rock'n'roll '''",
            ["don't", "stop", "it's", "quoted", "rock'n'roll"],
        ),
        ("file_name __init__ _x_ a__b n_samples", ["file_name", "init", "n_samples"]),
        ("42 3d h2o 1st 2.5e-3 ½", ["3d", "h2o", "1st", "5e"]),
        ("STRASSE Straße straße", ["strasse", "strasse", "strasse"]),
        ("ﬁne Ｆｕｌｌ ½", ["fine", "full"]),
        ("cafe\u0301 café CAFÉ", ["café", "café", "café"]),
        ("हिन्दी में लिखा", ["हिन्दी", "में", "लिखा"]),
        ("שָׁלוֹם العربية Ελλάδα Россия", ["שָׁלוֹם", "العربية", "ελλάδα", "россия"]),
        ("co\u00adoperate می\u200cخواهم", ["cooperate", "میخواهم"]),
        ("東京に行く。カタカナ", ["東", "京", "に", "行", "く", "カタカナ"]),
        ("한국어 문장", ["한국어", "문장"]),
        ("x 😀 \ud800 y\u0301z", ["ýz"]),
        ("state-of-the-art e.g. AT&T", ["state", "of", "the", "art", "at"]),
        ("", []),
        ("' _ '' -- 7", []),
    ],
)
def test_words_of_every_script(text, words):
    assert Tokenizer().words(text) == [unicodedata.normalize("NFKC", w) for w in words]


def test_choices_of_the_rule():
    assert Tokenizer(lowercase=False).words("The CAT") == ["The", "CAT"]
    assert Tokenizer(numbers=True).words("42 apples 7") == ["42", "apples"]
    assert Tokenizer(min_length=1, numbers=True).words("a 7 bc") == ["a", "7", "bc"]
    assert Tokenizer(tokenizer=r"#\w+").words("#One two #three") == ["#one", "#three"]
    assert Tokenizer(tokenizer=re.compile(r"(\w)\w*-")).words("ab-cd-e") == ["a", "c"]
    assert Tokenizer(tokenizer=str.split).words("As It  IS, written") == [
        "As",
        "It",
        "IS,",
        "written",
    ]
    for bad in ({"min_length": 0}, {"min_length": True}, {"tokenizer": "("}, {"tokenizer": 3}):
        with pytest.raises(InputError, match=next(iter(bad))):
            Tokenizer(**bad)
    for rule in (lambda t: "text", lambda t: [1], lambda t: 5):
        with pytest.raises(InputTypeError, match="document 0"):
            Tokenizer(tokenizer=rule).words("x")


def slow_words(text, least=2, numbers=False):
    """The rule of the module's docstring, one character at a time."""
    kinds = []
    for c in Tokenizer().normalise(text).encode("utf-8", "replace").decode():
        o, kind = ord(c), unicodedata.category(c)[0]
        alone = any(
            a <= o <= b
            for a, b in (
                (0x3005, 0x3007),
                (0x3041, 0x309F),
                (0x3400, 0x4DBF),
                (0x4E00, 0x9FFF),
                (0xF900, 0xFAFF),
                (0x20000, 0x3FFFD),
            )
        )
        if c in JOINERS:
            kind = "J"
        elif kind == "L" and alone:
            kind = "S"
        elif (
            0x323B0 <= o < 0xE0100
            or o >= 0xE01F0
            or kind not in "LNMS"
            or (kind == "S" and not alone)
        ):
            kind = "-"
        kinds.append((c, kind))
    line = "".join(k for _, k in kinds)
    out = []
    for found in re.finditer(r"[LN]M*(?:J?[LN]M*)*|S", line):
        word, kind = "".join(c for c, _ in kinds[found.start() : found.end()]), found.group()
        if kind == "S" or (len(kind) >= least and (numbers or "L" in kind)):
            out.append(word)
    return out


@settings(deadline=None)
@given(
    st.text(
        alphabet=st.one_of(st.characters(), st.sampled_from("ab'_’ \u0301東न्é9·ﬁß")), max_size=40
    )
)
def test_compiled_rule_is_the_written_rule(text):
    assert Tokenizer().words(text) == slow_words(text)
    assert Tokenizer(numbers=True, min_length=1).words(text) == slow_words(text, 1, True)


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.text(alphabet="abé '", max_size=12), min_size=1, max_size=30), st.integers(1, 40)
)
def test_counts_are_those_of_counting(texts, characters):
    words = [w for t in texts for w in slow_words(t)]
    if not words:
        with pytest.raises(InputError, match="at least one word must be left, got none of 0 in"):
            corpus(texts)
        return
    c = corpus(texts)
    assert c.columns.tolist() == sorted(set(words))
    assert table(c) == {i: dict(Counter(slow_words(t))) for i, t in enumerate(texts)}
    assert (c.words_read, c.words_dropped) == (len(words), 0)
    ids = []
    lexicon = Lexicon()
    for batch in token_batches(texts, Tokenizer(), 2, characters):
        found = lexicon.add(batch.words)[batch.ids]
        assert len(batch) == len(batch.pointers) - 1
        ids += lexicon.words(found)
    assert ids == words, "the stream of words is the text, in order"


def test_lexicon_grows_and_forgets_questions():
    words = [f"w{i}" for i in range(30_000)]
    lexicon = Lexicon(words[:10])
    assert lexicon.find(Packed.of(["w3", "zz", "w9", "zz"])).tolist() == [3, -1, 9, -1]
    assert len(lexicon) == 10
    assert lexicon.find(Packed.of(["zz"])).tolist() == [-1], "a question leaves nothing behind"
    np.testing.assert_array_equal(lexicon.add(Packed.of(words)), np.arange(30_000))
    np.testing.assert_array_equal(lexicon.add(Packed.of(words[::-1])), np.arange(30_000)[::-1])
    assert lexicon.words() == words


# ---- counts


@pytest.fixture(scope="module")
def sklearn_docs():
    return docstrings(("sklearn",))


def test_counts_agree_with_scikit_learn(sklearn_docs):
    texts = [t for _, t in sklearn_docs]
    rival = CountVectorizer(token_pattern=r"(?u)\b[^\W\d]\w+\b", min_df=3, max_df=0.5)
    want = rival.fit_transform(texts)
    got = corpus(texts, tokenizer=r"\b[^\W\d]\w+\b", min_df=3, max_df=0.5, lowercase=True)
    assert got.columns.tolist() == rival.get_feature_names_out().tolist()
    assert abs(got.to_scipy() - want).sum() == 0


def test_result_does_not_depend_on_threads_or_batches(sklearn_docs, monkeypatch):
    one = corpus(sklearn_docs, n_threads=1)
    for threads in (2, 5):
        same(corpus(sklearn_docs, n_threads=threads), one)
    monkeypatch.setattr(token_batches, "__defaults__", (None, 999))
    same(corpus(sklearn_docs, n_threads=3), one)
    assert one.rows.tolist() == [name for name, _ in sklearn_docs]
    assert isinstance(one, Counts)
    assert one.dtype == np.float64
    assert corpus(TEXTS, dtype=np.float32).dtype == np.float32


def test_words_are_chosen_by_frequency():
    texts = ["a1 b1 c1", "a1 b1", "a1 d1 d1 d1", "a1"]
    assert corpus(texts, min_df=2).columns.tolist() == ["a1", "b1"]
    assert corpus(texts, min_df=0.5).columns.tolist() == ["a1", "b1"]
    assert corpus(texts, max_df=0.5).columns.tolist() == ["b1", "c1", "d1"]
    assert corpus(texts, max_df=3).columns.tolist() == ["b1", "c1", "d1"]
    assert corpus(texts, max_features=2).columns.tolist() == ["a1", "d1"]
    c = corpus(texts, stop_words=["a1", "nothing"], max_df=1)
    assert c.columns.tolist() == ["c1", "d1"]
    assert (c.words_read, c.words_dropped) == (10, 6)
    assert c.row_counts().tolist() == [1, 0, 1, 0], "documents that lose every word keep their rows"
    assert "the" not in corpus(TEXTS, stop_words="english").columns.tolist()
    assert {"the", "don't", "which"} <= ENGLISH


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (
            {"min_df": 0},
            r"min_df must be a number of documents \(int >= 1\) or a share of them \(float of 0 to 1\),",
        ),
        (
            {"min_df": 1.5},
            r"min_df must be a number of documents \(int >= 1\) or a share of them \(float of 0 to 1\),",
        ),
        ({"max_df": -0.1}, "max_df"),
        ({"max_df": True}, "max_df"),
        ({"min_df": 3, "max_df": 2}, "below max_df"),
        ({"min_df": 4}, "at least one word must be left, got none of 10 in 4 documents"),
        ({"max_features": 0}, "max_features"),
        ({"stop_words": "klingon"}, "'english'"),
        ({"stop_words": [1]}, r"stop_words must hold words \(str\), got 1"),
        ({"dtype": int}, "float32 or float64"),
        ({"n_threads": 0}, "n_threads"),
        (
            {"encoding": "morse"},
            "encoding must be the name of an encoding, such as 'utf-8' or 'latin-1', got 'morse'",
        ),
        (
            {"vocabulary": ["cat"], "min_df": 2},
            "give vocabulary=, or min_df, max_df, max_features and stop_words, not both: a given",
        ),
        ({"vocabulary": ["cat", "cat"]}, "more than once"),
        ({"vocabulary": []}, "the vocabulary must have at least one word, got none"),
        ({"vocabulary": "cat"}, "vocabulary must be words, Counts or a fitted model, got a str"),
        ({"vocabulary": [3]}, "word 0"),
        ({"text": "body"}, "has no columns"),
    ],
)
def test_what_cannot_be_asked_is_refused(how, words):
    with pytest.raises(InputError, match=words):
        corpus(TEXTS, **how)


def test_new_documents_in_a_fitted_vocabulary():
    c = corpus(TEXTS)
    new = corpus(["The bird, the cat; a bird!", "unknown words"], vocabulary=c)
    assert new.columns.tolist() == c.columns.tolist()
    assert table(new) == {0: {"the": 2, "cat": 1}, 1: {}}
    assert (new.words_read, new.words_dropped) == (7, 4)
    swapped = corpus(TEXTS, vocabulary=["dog", "cat", "zebra"])
    assert swapped.columns.tolist() == ["dog", "cat", "zebra"]
    assert swapped.to_scipy().toarray()[0].tolist() == [1, 1, 0]
    model = eckart.PCA(1).fit(c)
    same(corpus(TEXTS, vocabulary=model), c)
    with pytest.raises(
        InputError,
        match="the vocabulary must come from columns with names, got a PCA that was fitted without",
    ):
        corpus(TEXTS, vocabulary=eckart.PCA(1).fit(np.eye(3)))


# ---- sources


def test_the_same_counts_from_every_source(tmp_path):
    rows = [{"id": f"d{i}", "body": t, "n": i} for i, t in enumerate(TEXTS)]
    frame = pd.DataFrame(rows)
    (tmp_path / "a.txt").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    with gzip.open(tmp_path / "b.txt.gz", "wt", encoding="utf-8") as out:
        out.write("\r\n".join(TEXTS))
    (tmp_path / "c.jsonl").write_text(
        "\n".join(json.dumps(r) for r in rows) + "\n\n", encoding="utf-8"
    )
    frame.to_csv(tmp_path / "d.csv", index=False)
    frame.to_csv(tmp_path / "e.tsv.gz", index=False, sep="\t")
    frame.to_parquet(tmp_path / "f.parquet")
    pl.DataFrame(rows).write_ipc(tmp_path / "g.arrow")
    (tmp_path / "h.csv").write_bytes(frame.to_csv(index=False).encode("latin-1"))
    folder = tmp_path / "docs"
    (folder / "sub").mkdir(parents=True)
    for i, t in enumerate(TEXTS):
        (folder / ("sub" if i == 3 else ".") / f"d{i}.txt").write_text(t, encoding="utf-8")
    want = corpus(TEXTS)
    named = {"text": "body", "index": "id"}
    ids = [f"d{i}" for i in range(4)]
    nameless = [
        TEXTS,
        tuple(TEXTS),
        iter(TEXTS),
        (t for t in TEXTS),
        np.array(TEXTS, object),
        Documents(TEXTS),
    ]
    for source in [*nameless, tmp_path / "a.txt", str(tmp_path / "b.txt.gz")]:
        c = corpus(source)
        same(c, want)
        assert c.rows is None
    tables = [
        frame,
        pl.DataFrame(rows),
        pa.table(frame),
        *(tmp_path / f for f in ("c.jsonl", "d.csv", "e.tsv.gz")),
    ]
    for source in [*tables, tmp_path / "f.parquet", tmp_path / "g.arrow"]:
        c = corpus(source, **named)
        same(c, want)
        assert c.rows.tolist() == ids
    same(corpus(tmp_path / "h.csv", encoding="latin-1", **named), want)
    same(corpus(tmp_path / "d.csv", text=1), want)
    for source in (dict(zip(ids, TEXTS)), list(zip(ids, TEXTS)), pd.Series(TEXTS, ids)):
        c = corpus(source)
        same(c, want)
        assert c.rows.tolist() == ids
    c = corpus(folder)
    same(c, want)
    assert c.rows.tolist() == ["d0.txt", "d1.txt", "d2.txt", "sub/d3.txt"]
    c = corpus(str(folder / "d*.txt"))
    assert c.rows.tolist() == ["d0.txt", "d1.txt", "d2.txt"]
    assert corpus(tmp_path / "a.txt", lines=False).shape[0] == 1
    assert corpus(str(tmp_path / "[ad].*"), text="body", index="id", lines=False).rows.tolist() == [
        "a.txt",
        *ids,
    ]
    assert list(documents(Documents(["x"]), lines=True)) == [(None, "x")]


def test_absent_texts_are_empty_documents():
    frame = pd.DataFrame({"text": ["one word", None, np.nan, ""]})
    assert corpus(frame).row_counts().tolist() == [2, 0, 0, 0]
    assert corpus(["one word", None]).row_counts().tolist() == [2, 0]


def test_text_with_quotes_newlines_and_marks(tmp_path):
    texts = ['he said "hi, there"', "two\nlines, and a comma", "plain"]
    pd.DataFrame({"text": texts}).to_csv(tmp_path / "q.csv", index=False)
    assert [t for _, t in documents(tmp_path / "q.csv", text="text")] == texts
    (tmp_path / "raw.tsv").write_text('label\ttext\na\t"unclosed quote\nb\tnext\n')
    assert [t for _, t in documents(tmp_path / "raw.tsv", text="text", quotes=False)] == [
        '"unclosed quote',
        "next",
    ]
    (tmp_path / "bom.txt").write_bytes(b"\xef\xbb\xbffirst\nsecond")
    assert [t for _, t in documents(tmp_path / "bom.txt")] == ["first", "second"]
    (tmp_path / "wide.txt").write_text("first\nsecond", encoding="utf-16")
    assert [t for _, t in documents(tmp_path / "wide.txt", encoding="utf-16")] == [
        "first",
        "second",
    ]


def test_bad_files_are_refused_by_name_and_place(tmp_path):
    def refused(name, words, content=None, kind=FileError, **how):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(kind, match=words):
            corpus(tmp_path / name, **how)

    refused("none.txt", r"none.txt does not exist")
    refused(
        "empty.txt",
        r"empty\.txt must hold text, got an empty file \(0 bytes\)",
        b"",
    )
    refused("emty.txt", "near ones are empty.txt")
    refused("bad.txt", r"bad.txt is not utf-8 text: byte 0xff at offset 7", b"line 1\n\xff\n")
    refused(
        "bad.csv",
        r"bad.csv is not utf-8 text: byte 0xe9 at offset 9",
        b"text\nna\nn\xe9e\n",
        text="text",
    )
    refused("bad.jsonl", "line 2 of", b'{"text": "a"}\n{oops\n')
    refused("list.jsonl", "line 1 of", b"[1]\n")
    refused(
        "short.jsonl",
        "the column must be one of the columns of line 1 of",
        b'{"text": "a b"}\n',
        kind=InputError,
        text="texts",
    )
    refused(
        "t.csv",
        "the column must be one of the columns of",
        b"review,label\nbad film,0\n",
        kind=InputError,
        text="reviews",
    )
    refused("t.csv", "the column must be one of the columns of", kind=InputError, text="zzz")
    refused("t.csv", "the column must be one of the columns of", kind=InputError, index="lable")
    refused("two.csv", "one column of", b"a,b\nx x,y y\n", kind=InputError)
    refused("num.csv", "no text among", b"a,b\n1,2\n", kind=InputError)
    refused("cut.txt.gz", "cannot be read", gzip.compress(b"some text\n" * 100)[:25])
    (tmp_path / "void").mkdir()
    refused(
        "void",
        r"void must be a folder of text files, files that end in \.txt, \.text, \.md, \.rst, got none",
    )
    refused("*.nothing", "matches no file")
    for bad in ([], {}, iter(())):
        with pytest.raises(
            InputError, match="the source must hold at least one document, got none"
        ):
            corpus(bad)
    for bad in (5, b"bytes", [3], [("a", "b", "c")], [("a", "b"), "c"], {"a": 7}):
        with pytest.raises(InputTypeError, match="document"):
            corpus(bad)


# ---- the corpus that is always there


def test_docstrings_are_english(sklearn_docs):
    names = [name for name, _ in sklearn_docs]
    assert len(names) > 400
    assert names == sorted(set(names))
    assert "sklearn.cluster.KMeans" in names
    text = dict(sklearn_docs)["sklearn.cluster.KMeans"]
    assert "centroids" in text
    assert ">>>" not in text
    assert len({t for _, t in sklearn_docs}) == len(sklearn_docs)
    with pytest.raises(
        FileError, match="package must be one that is installed, got 'no_such_package'"
    ):
        docstrings(("no_such_package",))
    with pytest.raises(InputError, match="packages"):
        docstrings("numpy")


def test_a_large_corpus_of_reviews_is_read_quickly(shared_data):
    file = shared_data("imdb-reviews") / "imdb.tsv.gz"
    docs = documents(file, text=2, header=False, quotes=False)
    first = [text for _, (_, text) in zip(range(2000), docs)]
    c = corpus(first, min_df=5, max_df=0.5)
    assert c.shape[0] == 2000
    assert {"movie", "film", "acting"} & set(c.columns.tolist())
