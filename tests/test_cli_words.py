"""eckart neighbours and analogy: files of vectors in, lists out; one line and exit code 2 on bad
input."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from eckart import Vectors

WORDS = ["man", "woman", "king", "queen", "tea", "new"]
V = np.array([[3, 0, 1], [0, 3, 1], [3, 0, 4], [0, 3, 4], [0.5, 1, -4], [1, 1, -3]])


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vectors")
    v = Vectors(WORDS, V, counts=[9, 8, 7, 6, 5, 4])
    for name in ("v.txt", "v.bin", "v.safetensors", "v.vec.gz"):
        v.write(folder / name)
    v.write(folder / "glove.txt", "glove")
    Vectors([30, 42, 7], np.eye(3) + 0.2).write(folder / "items.safetensors")
    (folder / "twice.txt").write_text("a 1 2\nb 2 1\na 3 3\n")
    (folder / "broken.txt").write_text("2 2\na 1 2\nb 1\n")
    (folder / "latin.txt").write_bytes("caf\xe9 1 2\nth\xe9 2 1\n".encode("latin-1"))
    return folder


def table(out):
    return [line.split() for line in out.splitlines()]


@pytest.mark.parametrize("file", ["v.txt", "v.bin", "v.safetensors", "v.vec.gz", "glove.txt"])
def test_neighbours_from_every_format(done, file):
    rows = table(done("neighbours", file, "king", "-n", 2))
    assert rows[0] == ["rank", "neighbour", "cosine"]
    wanted = Vectors(WORDS, V).neighbours("king", 2)
    assert rows[1:] == [[str(i + 1), w, f"{c:.4f}"] for i, (w, c) in enumerate(wanted)]


def test_neighbours_of_several_words_without_some(done):
    rows = table(
        done("neighbours", "v.txt", "king", "tea", "-n", 1, "--without", "man", "--without", "new")
    )
    assert rows[0] == ["word", "rank", "neighbour", "cosine"]
    assert [(r[0], r[2]) for r in rows[1:]] == [("king", "queen"), ("tea", "woman")]


def test_items_have_ids_of_their_kind(done, refused):
    assert [r[1] for r in table(done("neighbours", "items.safetensors", 42))[1:]] == ["30", "7"]
    assert "word must be an integer, got 'tea'. The labels are integers." in refused(
        "neighbours", "items.safetensors", "tea"
    )


def test_lists_go_to_a_file(done):
    assert "(5 rows)" in done("neighbours", "v.txt", "king", "--out", "n.csv")
    frame = pd.read_csv("n.csv")
    assert frame.columns.tolist() == ["rank", "neighbour", "cosine"]
    assert frame["neighbour"].tolist() == [w for w, _ in Vectors(WORDS, V).neighbours("king")]
    done("analogy", "v.txt", "man", "king", "woman", "--out", "a.parquet")
    assert pd.read_parquet("a.parquet")["answer"].tolist()[0] == "queen"


@pytest.mark.parametrize("method", ["add", "multiply"])
def test_analogy(done, method):
    rows = table(done("analogy", "v.txt", "man", "king", "woman", "--method", method, "-n", 3))
    assert rows[0] == ["rank", "answer", "cosine" if method == "add" else "score"]
    wanted = Vectors(WORDS, V.astype(np.float32)).analogy("man", "king", "woman", 3, method)
    assert [r[1] for r in rows[1:]] == [w for w, _ in wanted]
    assert rows[1][1] == "queen"


def test_limit_encoding_and_format(done, refused):
    assert len(table(done("neighbours", "v.txt", "king", "--limit", 3))) == 3
    assert "thé" in done("neighbours", "latin.txt", "café", "--encoding", "latin-1")
    assert "is not utf-8" in refused("neighbours", "latin.txt", "café")
    assert "queen" in done("neighbours", "glove.txt", "king", "--format", "glove")


def test_a_word_that_came_twice_is_said(eckart_):
    code, out, err = eckart_("neighbours", "twice.txt", "a")
    assert code == 0
    assert "b" in out
    assert err.startswith("eckart: note: ")
    assert err.count("\n") == 1
    assert "'a' for one; the first vector of each is kept" in err


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (
            ("neighbours", "v.txt", "kings"),
            "word must be one of the 6 words, got 'kings'. Near ones are 'king'.",
        ),
        (("neighbours", "none.txt", "king"), "does not exist"),
        (
            ("neighbours", "broken.txt", "a"),
            "line 3: 'b 1' must have a word and 2 numbers, got 1 numbers",
        ),
        (("neighbours", "v.txt", "king", "-n", 0), "-n must be a number of 1 or more, got 0"),
        (
            ("neighbours", "v.txt", "king", "--without", "x"),
            "word must be one of the 6 words, got 'x'",
        ),
        (("neighbours", "v.txt", "king", "--out", "v.txt"), "got '.txt'"),
        (("neighbours", "v.txt", "king", "--format", "csv"), "got 'csv'"),
        (
            ("neighbours", "v.txt", "king", "--limit", 0),
            "--limit must be None or an int >= 1, got 0",
        ),
        (("neighbours", "v.txt"), "Missing argument 'WORDS'"),
        (("analogy", "v.txt", "man", "king", "x"), "word must be one of the 6 words, got 'x'"),
        (("analogy", "v.txt", "man", "king"), "Missing argument"),
        (
            ("analogy", "v.txt", "man", "king", "woman", "--method", "minus"),
            "--method must be add or multiply, got 'minus'",
        ),
    ],
)
def test_bad_input_is_one_line(refused, words, match):
    assert match in refused(*words)


def test_a_model_of_another_chapter_is_refused(refused):
    from eckart import PCA

    PCA(1).fit(V).save("m.safetensors")
    assert "must hold a model of embeddings or be a file of vectors, got a PCA" in refused(
        "neighbours", "m.safetensors", "king"
    )


def test_help_tells_both(done):
    assert "neighbours" in done("--help")
    assert "3CosAdd" in done("analogy", "--help")
    assert Path("v.vec.gz").read_bytes()[:2] == gzip.compress(b"")[:2]
