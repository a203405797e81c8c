"""Word similarity and analogies: against SciPy, against loops written out, and on the real
files."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from eckart import FileError, InputError, Vectors, metrics
from eckart.word_metrics import analogy_scores, spearman


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(-4, 4), st.integers(-4, 4)), min_size=3, max_size=30))
def test_spearman_with_ties_is_scipys(pairs):
    x, y = (np.array(side, float) for side in zip(*pairs))
    if len(set(x)) == 1 or len(set(y)) == 1:
        with pytest.raises(InputError, match="equal ones: ranks of equals say nothing"):
            spearman(x, y)
        return
    wanted = stats.spearmanr(x, y)
    rho, p = spearman(x, y)
    assert rho == pytest.approx(wanted.statistic, abs=1e-12)
    assert p == pytest.approx(wanted.pvalue, abs=1e-9)


def some(n=60, k=5, seed=0, dtype=np.float32):
    x = np.random.default_rng(seed).standard_normal((n, k)).astype(dtype)
    return Vectors([f"w{i}" for i in range(n)], x)


def pairs_of(v, count=40, seed=1):
    rng = np.random.default_rng(seed)
    at = rng.integers(0, len(v), (count, 2))
    return [(f"w{a}", f"w{b}", float(rng.integers(0, 10))) for a, b in at]


# ---- word similarity


def cosines(v, pairs):
    """Of a word with itself exactly 1, which single precision may miss by a bit."""
    return [1.0 if a == b else v.similarity(a, b) for a, b, _ in pairs]


def test_word_similarity_is_the_rank_correlation_of_cosines():
    v = some()
    pairs = pairs_of(v)
    wanted = stats.spearmanr(cosines(v, pairs), [s for *_, s in pairs])
    found = metrics.word_similarity(v, pairs)
    assert found.rho == pytest.approx(wanted.statistic)
    assert found.p == pytest.approx(wanted.pvalue)
    assert (found.found, found.total, found.missing, found.coverage) == (40, 40, (), 1.0)


def test_words_beside_themselves_tie():
    v = some()
    same = [(f"w{i}", f"w{i}", float(i)) for i in range(20)]
    other = [("w1", "w2", 3.0), ("w3", "w4", 2.0)]
    found = metrics.word_similarity(v, [*same, *other]).rho
    assert found == pytest.approx(
        stats.spearmanr(cosines(v, [*same, *other]), [s for *_, s in [*same, *other]]).statistic
    )


def test_pairs_without_vectors_are_left_out_and_counted():
    v = some()
    pairs = pairs_of(v)
    more = [*pairs, ("w1", "unknown", 9.0), ("strange", "w2", 9.0), ("unknown", "strange", 1.0)]
    found = metrics.word_similarity(v, more)
    assert found.rho == metrics.word_similarity(v, pairs).rho
    assert (found.found, found.total) == (40, 43)
    assert found.missing == ("unknown", "strange")
    assert "40 of 43 pairs (93.0%)" in str(found)
    zeros = metrics.word_similarity(v, more, missing="zeros")
    assert zeros.rho == pytest.approx(
        stats.spearmanr([*cosines(v, pairs), 0, 0, 0], [s for *_, s in more]).statistic
    )
    with pytest.raises(InputError, match="'unknown' has no vector"):
        metrics.word_similarity(v, more, missing="error")
    with pytest.raises(InputError, match="missing must be 'skip', 'zeros' or 'error', got 'drop'"):
        metrics.word_similarity(v, more, missing="drop")
    with pytest.raises(
        InputError, match="at least 3 pairs of words must have vectors to correlate, got 0"
    ):
        metrics.word_similarity(v, more[-1:])


def test_case_is_ignored_unless_it_matters():
    v = Vectors(
        ["Paris", "paris", "rome", "oslo"], [[1.0, 0.0], [0.0, 1.0], [1.0, 0.1], [1.0, 0.9]]
    )
    pairs = [("Paris", "ROME", 9), ("paris", "Rome", 1), ("PARIS", "oslo", 5), ("rome", "oslo", 6)]
    assert metrics.word_similarity(v, pairs).found == 4
    with pytest.raises(
        InputError, match="at least 3 pairs of words must have vectors to correlate, got 1"
    ):
        metrics.word_similarity(v, pairs, ignore_case=False)
    exact = metrics.word_similarity(
        v, [("Paris", "rome", 3), ("paris", "rome", 2), ("paris", "oslo", 2.5)]
    )
    assert exact.rho == 1.0, "a word as it is written comes before one that differs in case"


@pytest.mark.parametrize(
    "text",
    [
        "w1\tw2\t3\nw3\tw4\t5\nw5\tw6\t1\n",
        "w1 w2 3\nw3 w4 5\nw5 w6 1",
        "Word 1,Word 2,Human (mean)\nw1,w2,3\nw3,w4,5\nw5,w6,1\n",
        "# a comment\r\nw1;w2;3\r\n\r\nw3;w4;5\r\nw5;w6;1\r\n",
        "\ufeffw1\tw2\t3\textra\nw3\tw4\t5\textra\nw5\tw6\t1\textra\n",
    ],
)
def test_files_of_pairs(tmp_path, text):
    (tmp_path / "p.txt").write_text(text, encoding="utf-8", newline="")
    v = some()
    wanted = metrics.word_similarity(v, [("w1", "w2", 3), ("w3", "w4", 5), ("w5", "w6", 1)])
    assert metrics.word_similarity(v, tmp_path / "p.txt") == wanted


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (
            "a b 3\nc d\n",
            r"p\.txt, line 2 must be two words and a number, got 'c d'",
        ),
        ("a b 3\nc d high\n", "line 2"),
        ("a b 3\nc d nan\n", "line 2"),
        ("\n", "pairs must have at least one pair of words, got none"),
        (b"a\tb\t3\nna\xefve\tc\t2\n", "cannot be read as utf-8"),
    ],
)
def test_broken_files_of_pairs(tmp_path, text, match):
    (tmp_path / "p.txt").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises((FileError, InputError), match=match):
        metrics.word_similarity(some(), tmp_path / "p.txt")


def test_what_is_no_pairs():
    for bad in (3, [("a", "b")], [("a", "b", "c")]):
        with pytest.raises(InputError, match="pairs"):
            metrics.word_similarity(some(), bad)
    with pytest.raises(FileError, match="cannot be read"):
        metrics.word_similarity(some(), "no such file")
    with pytest.raises(InputError, match="encoding"):
        metrics.word_similarity(some(), __file__, encoding="no such")


# ---- analogies


def asked_of(v, count=50, seed=2):
    rng = np.random.default_rng(seed)
    return [tuple(f"w{i}" for i in rng.choice(len(v), 4, replace=False)) for _ in range(count)]


@pytest.mark.parametrize("method", ["add", "multiply"])
def test_analogies_one_at_a_time(method, monkeypatch):
    v = some(12, dtype=np.float64)
    questions = asked_of(v, 80)
    wanted = sum(v.analogy(a, b, c, method=method)[0][0] == d for a, b, c, d in questions)
    assert 0 < wanted < 80
    found = metrics.analogies(v, {"s": questions}, method=method)
    assert found.all.right == wanted
    monkeypatch.setattr("eckart.word_metrics.BLOCK_SCORES", 30)
    assert metrics.analogies(v, {"s": questions}, method=method) == found


def test_scores_by_their_formula():
    u = some(9, dtype=np.float64).unit
    q = np.array([[0, 1, 2], [3, 4, 8]])
    for (a, b, c), add, multiply in zip(
        q, analogy_scores(u, q, "add"), analogy_scores(u, q, "multiply")
    ):
        for x in set(range(9)) - {a, b, c}:
            goal = u[b] - u[a] + u[c]
            assert add[x] == pytest.approx(u[x] @ goal / np.linalg.norm(goal))
            s = [(1 + u[x] @ u[y]) / 2 for y in (a, b, c)]
            assert multiply[x] == pytest.approx(s[1] * s[2] / (s[0] + 1e-3))
        assert np.isneginf(add[[a, b, c]]).all()
        assert np.isneginf(multiply[[a, b, c]]).all()


ROYAL = Vectors(
    ["man", "woman", "king", "queen", "tea", "walk", "walks"],
    [
        [1, 0, 0.1, 0],
        [0, 1, 0.1, 0],
        [1, 0, 1, 0],
        [0, 1, 1, 0],
        [0.1, 0.1, 0, -1],
        [0.5, 0.5, -1, 1],
        [0.5, 0.5, -1, 2],
    ],
)
QUESTIONS = """: family
man king woman queen
king man queen woman
man king woman knave
: gram1-plural
walk walks man tea
: currency
euro france yen japan
"""


def test_sections_totals_and_coverage(tmp_path):
    (tmp_path / "q.txt").write_text(QUESTIONS)
    found = metrics.analogies(ROYAL, tmp_path / "q.txt")
    assert [(s.name, s.right, s.asked, s.total) for s in found.sections] == [
        ("family", 2, 2, 3),
        ("gram1-plural", 0, 1, 1),
        ("currency", 0, 0, 1),
    ]
    assert found.sections[2].accuracy is None
    assert (found.semantic.right, found.semantic.asked, found.semantic.total) == (2, 2, 4)
    assert (found.syntactic.right, found.syntactic.asked) == (0, 1)
    assert found.accuracy == pytest.approx(2 / 3)
    assert found.coverage == pytest.approx(3 / 5)
    assert "nothing asked of 1" in str(found)


def test_restrict_keeps_to_the_first_words():
    asked = {"s": [("man", "king", "woman", "queen")]}
    assert metrics.analogies(ROYAL, asked, restrict=4).all.asked == 1
    assert metrics.analogies(ROYAL, asked, restrict=3).all.asked == 0
    assert metrics.analogies(ROYAL, asked, restrict=None).all.right == 1
    for bad in (0, -1, 1.5, True):
        with pytest.raises(InputError, match="restrict"):
            metrics.analogies(ROYAL, asked, restrict=bad)


def test_case_of_questions():
    asked = {"s": [("Man", "KING", "Woman", "Queen")]}
    assert metrics.analogies(ROYAL, asked).all.right == 1
    assert metrics.analogies(ROYAL, asked, ignore_case=False).all.asked == 0
    twice = Vectors(
        [*ROYAL.words, "Queen", "WOMAN"],
        np.vstack([ROYAL.vectors, [[0, 1, 1.1, 0], [0, 1, 0.9, 0]]]),
    )
    assert metrics.analogies(twice, asked).all.right == 1, (
        "words that differ in case only do not compete"
    )


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (
            "a b c\n",
            r"q\.txt, line 1 must be four words, or ': section', got 'a b c'",
        ),
        (": only a section\n", "questions must have at least one question, got none"),
        ("", "questions must have at least one question, got none"),
    ],
)
def test_broken_questions(tmp_path, text, match):
    (tmp_path / "q.txt").write_text(text)
    with pytest.raises((FileError, InputError), match=match):
        metrics.analogies(ROYAL, tmp_path / "q.txt")


def test_what_is_no_questions():
    with pytest.raises(
        InputError, match=r"questions\['s'\]\[0\] must be four words, got \('a', 'b'\)"
    ):
        metrics.analogies(ROYAL, {"s": [("a", "b")]})
    with pytest.raises(
        InputError,
        match=r"questions must be the name of a file or \{section: questions\}, got a list",
    ):
        metrics.analogies(ROYAL, [("a", "b", "c", "d")])
    with pytest.raises(InputError, match="method must be 'add' or 'multiply', got 'minus'"):
        metrics.analogies(ROYAL, {"s": [("man", "king", "woman", "queen")]}, method="minus")


# ---- the real files


def test_the_real_files_are_read(shared_data):
    folder = shared_data("word-eval")
    rng = np.random.default_rng(0)
    files = {
        file: [line.split() for line in file.read_text(encoding="utf-8").splitlines()]
        for file in folder.glob("EN-*.txt")
    }
    assert len(files) == 13
    words = sorted({word.lower() for rows in files.values() for a, b, _ in rows for word in (a, b)})
    v = Vectors(words, rng.standard_normal((len(words), 20)))
    for file, rows in files.items():
        found = metrics.word_similarity(v, file)
        assert found.found == found.total == len(rows)
        assert abs(found.rho) < 5 / np.sqrt(len(rows)), "chance vectors know nothing"
    lines = (folder / "questions-words.txt").read_text().splitlines()
    words = sorted({w.lower() for line in lines if not line.startswith(":") for w in line.split()})
    v = Vectors(words, rng.standard_normal((len(words), 20)).astype(np.float32))
    found = metrics.analogies(v, folder / "questions-words.txt")
    assert found.all.total == found.all.asked == 19544
    assert found.semantic.total == 8869
    assert found.syntactic.total == 10675
    assert len(found.sections) == 14
    assert found.accuracy < 0.02
