"""Files of vectors: what other programs write is read, what is written comes back, and what is
broken is refused in words."""

from __future__ import annotations

import gzip
import os
import struct
import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eckart import FileError, InputError, Vectors, read_vectors

X = np.array([[0.5, -1.25, 3e-8], [1.0, 2.0, 0.1], [-0.0, 1e20, 7.0]], np.float32)
WORDS = ["the", "naïve", "東京"]


def word2vec_binary(words, vectors, newline=b"\n", count=None, k=None):
    """As the C tool writes it (with a line end after each vector), or gensim (without)."""
    head = f"{len(words) if count is None else count} {vectors.shape[1] if k is None else k}\n".encode()
    rows = (w.encode() + b" " + v.astype("<f4").tobytes() + newline for w, v in zip(words, vectors))
    return head + b"".join(rows)


@pytest.fixture
def file(tmp_path):
    """Write bytes under a name and read them as vectors."""

    def read(data, name="v.txt", **how):
        path = tmp_path / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return read_vectors(path, **how)

    return read


def refused(file, data, match, name="v.txt", **how):
    with pytest.raises(FileError, match=match) as error:
        file(data, name, **how)
    assert name in str(error.value)


def check(v, words, vectors):
    assert v.words.tolist() == words
    np.testing.assert_array_equal(v.vectors, vectors)
    assert v.vectors.dtype == np.float32


# ---- what others write


TEXT = "3 3\nthe 0.5 -1.25 3e-08\nnaïve 1.0 2.0 0.1\n東京 -0.0 1e+20 7\n"


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        # the C tool and fastText end lines with a space
        TEXT.replace("\n", " \n").replace("3 3 \n", "3 3\n"),
        TEXT.replace("\n", "\r\n"),
        TEXT.rstrip("\n"),
        "\ufeff" + TEXT,
        TEXT + "\n\n",
        TEXT.replace(" ", "\t").replace("3\t3", "3 3"),
    ],
)
def test_word2vec_text(file, text):
    check(file(text), WORDS, X)
    check(file(gzip.compress(text.encode()), "v.vec.gz"), WORDS, X)


def test_glove_text(file):
    body = TEXT.split("\n", 1)[1]
    check(file(body), WORDS, X)
    check(file(body, format="glove"), WORDS, X)
    check(file(gzip.compress(body.encode()), "glove.gz"), WORDS, X)


@pytest.mark.parametrize("newline", [b"\n", b""])
@pytest.mark.parametrize("name", ["v.bin", "v", "v.txt"])
def test_word2vec_binary(file, newline, name):
    data = word2vec_binary(WORDS, X, newline)
    check(file(data, name), WORDS, X)
    check(file(gzip.compress(data), name + ".gz"), WORDS, X)


def test_a_word_with_spaces(file):
    """GloVe 840B has such words: the last k fields are the numbers."""
    text = "the 1 2\n. . . 3 4\nat name@domain.com 5 6\n1 2 3 7 8\n"
    check(
        file(text),
        ["the", ". . .", "at name@domain.com", "1 2 3"],
        [[1, 2], [3, 4], [5, 6], [7, 8]],
    )
    check(
        file("4 2\n" + text),
        ["the", ". . .", "at name@domain.com", "1 2 3"],
        [[1, 2], [3, 4], [5, 6], [7, 8]],
    )
    check(file("new york 1 2\nthe 3 4\n"), ["new york", "the"], [[1, 2], [3, 4]])


def test_odd_but_clear_words(file):
    words = ['"', "'", "#", ",", "\u00a0", "\x85", "3.5", "-", "nan", "a,b", "\\"]
    text = "".join(f"{w} {i} 0.5\n" for i, w in enumerate(words))
    check(file(text), words, [[i, 0.5] for i in range(len(words))])


def test_limit(file):
    check(file(TEXT, limit=2), WORDS[:2], X[:2])
    check(file(TEXT, limit=99), WORDS, X)
    check(file(word2vec_binary(WORDS, X), "v.bin", limit=1), WORDS[:1], X[:1])
    check(file(TEXT.split("\n", 1)[1], limit=2), WORDS[:2], X[:2])
    for bad in (0, -1, 1.5, True):
        with pytest.raises(InputError, match="limit"):
            file(TEXT, limit=bad)


NUMBERS = [
    "0.1",
    "-0.1",
    "+0.5",
    ".5",
    "5.",
    "1e-5",
    "1E+5",
    "123456789.123456789",
    "0.30000001192092896",
    "1e-45",
    "3.4028235e38",
    "1.17549435e-38",
    "0.00000000000000000000000000000000012345",
    "16777217.0000000001",
    "9007199254740993",
    "00000000000000000000001.5",
    "1e-400",
    "-0",
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_are_rounded_right(file, dtype):
    v = file("".join(f"w{i} {x} 1\n" for i, x in enumerate(NUMBERS)), dtype=dtype)
    wanted = np.array([float(x) for x in NUMBERS]).astype(dtype)
    np.testing.assert_array_equal(v.vectors[:, 0], wanted)
    np.testing.assert_array_equal(np.signbit(v.vectors[:, 0]), np.signbit(wanted))


def test_numbers_halfway_between_two_of_single_precision(file):
    """Of 18 digits, so near to the middle that a last bit of double precision decides."""
    middles = 1 + (2 * np.arange(0, 2**22, 2111) + 1) * 2.0**-24
    texts = [f"{m + d * 2.0**-52:.17f}" for m in middles for d in (-1, 0, 1)]
    v = file("".join(f"w{i} {x}\n" for i, x in enumerate(texts)), format="glove")
    np.testing.assert_array_equal(
        v.vectors[:, 0], np.array([float(x) for x in texts]).astype(np.float32)
    )


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False, width=64), min_size=2, max_size=2),
    st.integers(1, 20),
)
def test_any_digits_are_read_as_python_reads_them(tmp_path_factory, values, digits):
    texts = [f"{x:.{digits}g}" for x in values] + [f"{x % 1000:.{digits}f}" for x in values]
    path = tmp_path_factory.getbasetemp() / "digits.txt"
    path.write_text(f"w {' '.join(texts)}\n")
    v = (
        read_vectors(path, "glove", dtype=np.float64)
        if np.isfinite([float(t) for t in texts]).all()
        else None
    )
    if v is not None:
        np.testing.assert_array_equal(v.vectors[0], [float(t) for t in texts])
    with np.errstate(over="ignore"):
        single = np.array([float(t) for t in texts]).astype(np.float32)
    if np.isfinite(single).all():
        np.testing.assert_array_equal(read_vectors(path, "glove").vectors[0], single)


def test_many_chunks_and_threads(file, monkeypatch):
    monkeypatch.setattr("eckart.io.vectors.word_rows.CHUNK", 1000)
    monkeypatch.setattr("eckart.io.vectors.text_format.CHUNK", 1000)
    monkeypatch.setattr("eckart.io.vectors.files.CHUNK", 1000)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((500, 7)).astype(np.float32)
    words = [f"w{i}" * (1 + i % 9) for i in range(500)]
    lines = [w + " " + " ".join(map(str, row)) for w, row in zip(words, x)]
    text = "500 7\n" + "\n".join(lines)
    for threads in (1, 3):
        check(file(text, n_threads=threads), words, x)
    check(file("\n".join(lines), limit=333), words[:333], x[:333])
    check(file(word2vec_binary(words, x), "v.bin"), words, x)
    check(file(gzip.compress(word2vec_binary(words, x, b"")), "v.bin.gz"), words, x)
    lines[400] = "bad 1 2"
    refused(
        file,
        "\n".join(lines),
        r"v\.txt, line 401: 'bad 1 2' must have a word and 7 numbers, got 2 numbers",
    )


# ---- round trips


words = st.lists(
    st.text(
        st.characters(codec="utf-8", exclude_characters=" \t\n\r\x0b\x0c\0"), min_size=1, max_size=9
    ),
    min_size=1,
    max_size=12,
    unique=True,
).filter(lambda ws: not any(w.startswith("\ufeff") for w in ws))


@settings(max_examples=60, deadline=None)
@given(words, st.integers(1, 5), st.data())
def test_what_is_written_comes_back(tmp_path_factory, words, k, data):
    n = len(words)
    numbers = st.floats(allow_nan=False, allow_infinity=False, width=32)
    x = np.array(data.draw(st.lists(numbers, min_size=n * k, max_size=n * k)), np.float32).reshape(
        n, k
    )
    v = Vectors(words, x, counts=np.arange(n))
    folder = tmp_path_factory.getbasetemp()
    for name in ("r.vec", "r.bin", "r.safetensors", "r.txt.gz", "r.bin.gz"):
        v.write(folder / name)
        back = read_vectors(folder / name)
        check(back, words, x)
        assert (np.signbit(back.vectors) == np.signbit(x)).all()
    v.write(folder / "g.txt", "glove")
    check(read_vectors(folder / "g.txt", "glove"), words, x)


def test_written_text_is_the_shortest_that_is_exact(tmp_path):
    Vectors(["a", "b"], np.array([[0.1, 1e-7], [1 / 3, 2]], np.float32)).write(tmp_path / "v.vec")
    head, *lines = (tmp_path / "v.vec").read_text().splitlines()
    assert head == "2 2"
    assert [[float(f) for f in line.split()[1:]] for line in lines] == [
        [0.1, 1e-7],
        [0.33333334, 2],
    ]
    assert lines[1].startswith("b 0.33333334 ")


def test_written_bytes_of_binary(tmp_path):
    Vectors(["é"], np.array([[1.5, -2]], np.float32)).write(tmp_path / "v.bin")
    assert (tmp_path / "v.bin").read_bytes() == b"1 2\n\xc3\xa9 " + struct.pack(
        "<2f", 1.5, -2
    ) + b"\n"


def test_float64_keeps_its_bits_where_asked(tmp_path):
    x = np.random.default_rng(0).standard_normal((5, 3)) * np.pi
    v = Vectors(list("abcde"), x)
    v.write(tmp_path / "v.txt")
    np.testing.assert_array_equal(read_vectors(tmp_path / "v.txt", dtype=float).vectors, x)
    np.testing.assert_array_equal(read_vectors(tmp_path / "v.txt").vectors, x.astype(np.float32))
    v.write(tmp_path / "v.safetensors")
    np.testing.assert_array_equal(read_vectors(tmp_path / "v.safetensors").vectors, x)
    assert read_vectors(tmp_path / "v.safetensors", dtype=np.float32).vectors.dtype == np.float32


def test_safetensors_keep_ids_counts_and_any_word(tmp_path):
    path = tmp_path / "v.safetensors"
    Vectors([30, 42], [[1.0], [2.0]], counts=[5, 4]).write(path)
    back = read_vectors(path)
    assert back[42].tolist() == [2.0]
    assert back.counts.tolist() == [5, 4]
    Vectors(["a b", "", "c\nd"], np.ones((3, 1))).write(path)
    assert read_vectors(path).words.tolist() == ["a b", "", "c\nd"]
    assert read_vectors(path, limit=1).words.tolist() == ["a b"]


def test_items_are_written_as_text(tmp_path):
    Vectors([30, 42], [[1.0], [2.0]]).write(tmp_path / "v.vec")
    assert read_vectors(tmp_path / "v.vec").words.tolist() == ["30", "42"]


def test_words_with_spaces_are_written_only_as_asked(tmp_path):
    v = Vectors(["new york", "the"], [[1.0, 3.0], [2.0, 4.0]])
    for name in ("v.vec", "v.bin"):
        with pytest.raises(
            InputError, match="words must have no white space for this format, got 'new york'"
        ):
            v.write(tmp_path / name)
        assert not (tmp_path / name).exists()
        v.write(tmp_path / name, space="_")
        assert read_vectors(tmp_path / name).words.tolist() == ["new_york", "the"]
    v.write(tmp_path / "s.vec", space=" ")
    assert read_vectors(tmp_path / "s.vec").words.tolist() == ["new york", "the"]
    with pytest.raises(
        InputError,
        match=r"space must be None, or what to write for a space, such as '_' \(in text also ' '\), got '",
    ):
        v.write(tmp_path / "v.bin", space=" ")
    with pytest.raises(InputError, match="both written as 'a_b'"):
        Vectors(["a b", "a_b"], [[1.0], [2.0]]).write(tmp_path / "x.vec", space="_")
    for word in ("a\nb", "", "a\tb", " a"):
        with pytest.raises(InputError, match="words must have no white space for this format, got"):
            Vectors([word], [[1.0]]).write(tmp_path / "x.vec", space="_")
    with pytest.raises(InputError, match="UTF-8"):
        Vectors(["\ud800"], [[1.0]]).write(tmp_path / "x.vec")


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path):
    path = tmp_path / "v.bin"
    path.write_bytes(b"old")
    with pytest.raises(InputError, match="too large for float32"):
        Vectors(["a", "b"], [[1.0], [1e300]]).write(path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["v.bin"]
    for name, match in (
        (
            "v.png",
            r"v\.png must end in \.vec, \.txt, \.w2v, \.bin, \.safetensors, got '\.png'",
        ),
        ("no/v.vec", "not a folder"),
        ("v.safetensors.gz", "alone"),
    ):
        with pytest.raises((InputError, FileError), match=match):
            Vectors(["a"], [[1.0]]).write(tmp_path / name)
    with pytest.raises(
        InputError,
        match="format must be None or one of text, glove, binary, safetensors, got 'csv'",
    ):
        Vectors(["a"], [[1.0]]).write(path, "csv")


# ---- what is broken


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "must hold words and their vectors, got an empty file"),
        ("\n \n", "must hold words and their vectors, got an empty file"),
        ("3 2\na 1 2\nb 3 4\n", r"3 vectors are promised, 2 came.*limit=2"),
        ("1 2\na 1 2\nb 3 4\n", "1 vectors are promised, but line 3 holds one more.*limit=1"),
        (
            "2 3\na 1 2\nb 3 4\n",
            r"v\.txt, line 2: 'a 1 2' must have a word and 3 numbers, got 2 numbers",
        ),
        ("2 1\na 1 2\nb 3 4\n", "1 numbers a vector are promised, the lines below hold 2"),
        (
            "-2 2\na 1 2\nb 3 4\n",
            r"v\.txt, line 1 must give a count >= 0 and 1 to 1048576 numbers, got -2 vectors of 2",
        ),
        ("2 0\na 1 2\nb 3 4\n", "2 vectors of 0 numbers"),
        ("2 -1\na 1 2\nb 3 4\n", "2 vectors of -1 numbers"),
        (
            "0 2\n",
            r"v\.txt must hold words and their vectors, got none",
        ),
        ("9999999999999 2\na 1 2\n", "9999999999999 vectors of 2 numbers are promised, which need"),
        (
            "2 9999999999999\na 1 2\n",
            r"v\.txt, line 1 must give a count >= 0 and 1 to 1048576 numbers, got 2 vectors of",
        ),
        ("2 1000000\na 1 2\n", "are promised, which need"),
        (
            "a 1 2\nb 3\n",
            r"v\.txt, line 2: 'b 3' must have a word and 2 numbers, got 1 numbers",
        ),
        (
            "a 1 2\nb 3 x\nc 5 6\n",
            r"v\.txt, line 2: field 2 of 2 must be a number, got 'x'",
        ),
        (
            "a 1 2\nb 1_0 2\nc 5 6\n",
            r"v\.txt, line 2: field 1 of 2 must be a number, got '1_0'",
        ),
        (
            "a 1 2\nb nan 2\nc 1 2\n",
            r"v\.txt, line 2: number 1 of 'b' must be finite, got nan",
        ),
        (
            "a 1 2\nb 1 -inf\nc 1 2\n",
            r"v\.txt, line 2: number 2 of 'b' must be finite, got -inf",
        ),
        (
            "a 1 2\nb 1 1e99\nc 1 2\n",
            r"v\.txt, line 2: number 2 of 'b' must be finite, got inf",
        ),
        (
            "a 1 2\n 3 4\nc 1 2\n",
            r"v\.txt, line 2 must be a word and 2 numbers, got numbers without a word",
        ),
        (
            "no numbers here\n",
            r"v\.txt, line 1 must be a word and its numbers, got 'no numbers here'",
        ),
    ],
)
def test_broken_text(file, text, match):
    refused(file, text, match)


def test_lying_headers_can_be_read_up_to_a_limit(file):
    check(file("1 2\na 1 2\nb 3 4\n", limit=1), ["a"], [[1, 2]])
    check(file("3 2\na 1 2\nb 3 4\n", limit=2), ["a", "b"], [[1, 2], [3, 4]])
    check(file("9999999 2\na 1 2\nb 3 4\n", limit=2), ["a", "b"], [[1, 2], [3, 4]])
    check(file(word2vec_binary(WORDS, X, count=10**9), "v.bin", limit=3), WORDS, X)


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (word2vec_binary(WORDS, X)[:-10], "truncated in vector 3 of 3"),
        (word2vec_binary(WORDS, X, count=4), "promised"),
        (word2vec_binary(WORDS, X, count=2), "2 vectors are promised, but bytes follow"),
        (word2vec_binary(WORDS, X, count=10**15), "promised, which need"),
        (
            word2vec_binary(WORDS, X, k=10**12),
            r"line 1 must give a count >= 0 and 1 to 1048576 numbers, got 3 vectors of",
        ),
        (word2vec_binary(WORDS, X, k=2), "vector"),
        (
            word2vec_binary(["a", "b"], np.array([[np.nan, 1], [1, 2]])),
            "vector 1: 'a' has a number that is not finite",
        ),
        (
            word2vec_binary(["", "b"], np.ones((2, 2))),
            "must be word2vec binary, got no word before vector 1",
        ),
        (b"not a header\0\1\2 at all", "count size"),
        (b"\xba\x16\x4f\x2f\x0c\0\0\0", "fastText model"),
    ],
)
def test_broken_binary(file, data, match):
    refused(file, data, match, "v.bin")
    if not data.startswith((b"not", b"\xba")):
        packed = match.replace("promised, which need", "promised")
        refused(file, gzip.compress(data), packed + "|truncated", "v.bin.gz")


def test_a_binary_without_any_space_is_refused(file):
    refused(
        file,
        b"2 2\n" + b"x" * 200_000,
        r"v\.bin must be word2vec binary, got no word in 65536 bytes at vector 1",
        "v.bin",
    )


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    "head", ["999999999 1000000", "1000000000000000 100", "3 1000000", "99999999999999999999999 3"]
)
@pytest.mark.parametrize("name", ["v.txt", "v.bin"])
def test_a_header_that_lies_takes_no_memory(tmp_path, head, name, packed):
    data = head.encode() + b"\na 1 2 3\nb 1 2 3\n"
    path = tmp_path / (name + ".gz" if packed else name)
    path.write_bytes(gzip.compress(data) if packed else data)
    tracemalloc.start()
    with pytest.raises(FileError):
        read_vectors(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200 * 2**20


def test_a_compressed_file_that_was_cut(file):
    data = gzip.compress(TEXT.encode() * 1)
    refused(file, data[:-10], "cannot be read", "v.vec.gz")


def test_a_line_that_never_ends(file, monkeypatch):
    monkeypatch.setattr("eckart.io.vectors.text_format.LONGEST_LINE", 2**16)
    monkeypatch.setattr("eckart.io.vectors.text_format.CHUNK", 2**12)
    refused(
        file,
        b"a 1 2\n" + b"x" * (5 * 2**20),
        r"v\.txt, line 2 must be a word and its numbers, got more than 65536 bytes",
    )


def test_words_that_come_twice_keep_their_first_vector(file):
    with pytest.warns(UserWarning, match="1 words came again, 'a' for one"):
        v = file("a 1 2\nb 3 4\na 5 6\n")
    check(v, ["a", "b"], [[1, 2], [3, 4]])
    with pytest.warns(UserWarning, match="came again"):
        v = file(word2vec_binary(["x", "x", "y"], X), "v.bin")
    check(v, ["x", "y"], X[[0, 2]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        file("a 1 2\nb 3 4\n")


def test_invalid_utf8(file):
    text = b"a 1 2\nna\xefve 3 4\n"
    refused(
        file,
        text,
        r"line 2: the word 'na\\xefve' is not utf-8; pass another encoding=, or "
        r"undecodable='replace'",
    )
    check(file(text, encoding="latin-1"), ["a", "naïve"], [[1, 2], [3, 4]])
    check(file(text, undecodable="replace"), ["a", "na\ufffdve"], [[1, 2], [3, 4]])
    data = b"1 1\n\xff " + struct.pack("<f", 1.0)
    refused(file, data, "vector 1: the word .* is not utf-8", "v.bin")
    for bad in ("utf-16", "no such", 3):
        with pytest.raises(InputError, match="encoding"):
            file(text, encoding=bad)
    with pytest.raises(InputError, match="undecodable must be 'error' or 'replace', got 'ignore'"):
        file(text, undecodable="ignore")


def test_what_is_no_file_of_vectors(tmp_path, file):
    with pytest.raises(FileError, match="does not exist"):
        read_vectors(tmp_path / "none.txt")
    with pytest.raises(FileError, match="does not exist or is not a file"):
        read_vectors(tmp_path)
    with pytest.raises(InputError, match="path must be the name of a file, got 3"):
        read_vectors(3)
    with pytest.raises(
        InputError,
        match="format must be None or one of text, glove, binary, safetensors, got 'csv'",
    ):
        file(TEXT, format="csv")
    with pytest.raises(InputError, match="dtype"):
        file(TEXT, dtype=np.int32)
    refused(file, b"\x10\0\0\0\0\0\0\0 not tensors", "does not hold vectors", "v.safetensors")
    refused(file, "a 1 2\n", "count size", format="text")


def test_broken_safetensors(tmp_path):
    from safetensors.numpy import save_file

    path = tmp_path / "v.safetensors"
    whole = {
        "vectors": np.ones((2, 3)),
        "words": np.frombuffer(b"ab", np.uint8),
        "ends": np.array([1, 2]),
    }
    save_file(whole, path)
    assert read_vectors(path).words.tolist() == ["a", "b"]
    for change in (
        {"vectors": np.ones((3, 3))},
        {"vectors": np.ones(2)},
        {"vectors": np.full((2, 3), np.nan)},
        {"vectors": np.ones((2, 3), np.int64)},
        {"ends": np.array([2, 1])},
        {"ends": np.array([1, 9])},
        {"counts": np.array([1])},
        {"words": np.frombuffer(b"\xffb", np.uint8)},
    ):
        save_file(whole | change, path)
        with pytest.raises(FileError, match="does not hold vectors"):
            read_vectors(path)


def test_a_model_that_is_no_embedding(tmp_path):
    from eckart import PCA

    PCA(1).fit([[0.0, 1.0], [1.0, 3.0], [2.0, 5.0]]).save(tmp_path / "m.safetensors")
    with pytest.raises(
        InputError,
        match=r"m\.safetensors must hold a model of embeddings or be a file of vectors, got a PCA",
    ):
        read_vectors(tmp_path / "m.safetensors")


def test_a_saved_model_gives_its_vectors(tmp_path, monkeypatch):
    from eckart import PCA

    PCA(1).fit([[0.0, 1.0], [1.0, 3.0], [2.0, 5.0]]).save(tmp_path / "m.safetensors")
    held = Vectors(["a", "b"], [[1.0], [2.0]], counts=[7, 3])
    monkeypatch.setattr(
        "eckart.embed.sequences.load", lambda path: type("Model", (), {"vectors_": held})()
    )
    v = read_vectors(tmp_path / "m.safetensors")
    assert v.words.tolist() == ["a", "b"]
    assert v.vectors.dtype == np.float64
    one = read_vectors(tmp_path / "m.safetensors", limit=1, dtype=np.float32)
    assert (one.words.tolist(), one.counts.tolist(), one.vectors.dtype) == (["a"], [7], np.float32)


@pytest.mark.parametrize("content", [b"\n", b"\n\n \n", b" ", b"\t\n"])
def test_a_file_of_blank_lines_is_refused_in_words(content, tmp_path):
    path = tmp_path / "blank.txt"
    path.write_bytes(content)
    with pytest.raises((FileError, InputError)):
        read_vectors(path)
