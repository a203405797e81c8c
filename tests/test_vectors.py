"""Vectors: looking up, neighbours, analogies, likeness and means, against sums written out."""

from __future__ import annotations

import datetime as dt
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eckart import InputError, Vectors
from eckart.embed.neighbours import answers, nearest
from eckart.errors import UnknownWord

WORDS = ["man", "woman", "king", "queen", "tea", "milk"]
V = np.array([[3, 0, 1], [0, 3, 1], [3, 0, 4], [0, 3, 4], [0.5, 1, -4], [1, 0.6, -3]])


@pytest.fixture
def v():
    return Vectors(WORDS, V, counts=[90, 80, 30, 20, 50, 5])


def cosines(a, b):
    """By the definition, one pair at a time."""
    return np.array([[x @ y / (np.linalg.norm(x) * np.linalg.norm(y)) for y in b] for x in a])


def some(n=500, k=7, seed=0, dtype=np.float32):
    x = np.random.default_rng(seed).standard_normal((n, k)).astype(dtype)
    return Vectors([f"w{i}" for i in range(n)], x, counts=np.arange(n)[::-1])


def test_questions_by_the_names_of_gensim(v):
    assert v.index_to_key == WORDS
    assert [v.key_to_index[word] for word in v.index_to_key] == list(range(6))
    assert [word for word, _ in v.most_similar("king", 3)] == [
        word for word, _ in v.neighbours("king", 3)
    ]
    unit = V / np.linalg.norm(V, axis=1, keepdims=True)
    goal = unit[2] + unit[1] - unit[0]
    wanted = unit @ goal / np.linalg.norm(goal)
    found = v.most_similar(positive=["king", "woman"], negative="man", topn=3)
    order = [j for j in np.argsort(-wanted) if j not in (0, 1, 2)]
    assert [word for word, _ in found] == [WORDS[j] for j in order]
    np.testing.assert_allclose([cosine for _, cosine in found], wanted[order])
    for bad, words in (
        ({"positive": []}, "positive must be"),
        ({"positive": "king", "topn": ["man"]}, r"topn must be an int, got \['man'\]"),
        ({"positive": "kin"}, "word must be one of the 6 words, got"),
    ):
        with pytest.raises(InputError, match=words):
            v.most_similar(**bad)


# ---- looking up


def test_words_and_lists_of_words(v):
    np.testing.assert_array_equal(v["king"], V[2])
    np.testing.assert_array_equal(v[["tea", "man"]], V[[4, 0]])
    np.testing.assert_array_equal(v[np.array(["tea"])], V[[4]])
    np.testing.assert_array_equal(v["tea", "man"], V[[4, 0]])
    assert "king" in v
    assert "knave" not in v
    assert 3 not in v
    assert None not in v
    assert len(v) == 6
    assert v.words.tolist() == WORDS
    assert "6 words x 3" in repr(v)


def test_an_unknown_word_is_a_key_error_that_names_near_ones(v):
    with pytest.raises(UnknownWord, match="word must be one of the 6 words, got 'kings'") as error:
        v["kings"]
    assert isinstance(error.value, KeyError)
    assert isinstance(error.value, InputError)
    assert not str(error.value).startswith('"'), "no quotes of a KeyError"
    with pytest.raises(
        UnknownWord, match=r"word must be one of the 6 words, got 'x' \(1 more are unknown\)"
    ):
        v[["man", "x", "y"]]
    with pytest.raises(UnknownWord, match="word must be one of the 6 words, got"):
        v["King"]
    with pytest.raises(InputError, match="word must be text, got 3: the labels are text"):
        v[3]


def test_what_a_missing_word_becomes(v):
    np.testing.assert_array_equal(v.get(["tea", "x"], "zeros"), [V[4], [0, 0, 0]])
    np.testing.assert_array_equal(v.get(["x", "tea"], "skip"), [V[4]])
    assert v.get("x", "skip") is None
    np.testing.assert_array_equal(v.get("x", "zeros"), [0, 0, 0])
    with pytest.raises(
        InputError, match="missing must be 'error', 'skip' or 'zeros', got 'nothing'"
    ):
        v.get("x", "nothing")


@pytest.mark.parametrize(
    "ids",
    [
        [30, 42, 7],
        [dt.date(2024, 5, 1), dt.date(2024, 5, 2), dt.date(2024, 5, 3)],
        [("a", 1), ("b", 2), ("c", 3)],
    ],
)
def test_items_of_any_kind(ids):
    v = Vectors(ids, np.eye(3) + 0.1)
    np.testing.assert_array_equal(v[ids[1]], v.vectors[1])
    np.testing.assert_array_equal(v[[ids[2], ids[0]]], v.vectors[[2, 0]])
    assert ids[0] in v
    assert len(v.neighbours(ids[0])) == 2
    assert "30" not in v


def test_dtype_is_kept_and_vectors_are_not_changed():
    x = np.array([[3.0, 4.0], [0.0, 0.0]], np.float32)
    v = Vectors(["a", "b"], x)
    assert v.unit.dtype == v.vectors.dtype == np.float32
    np.testing.assert_allclose(
        v.unit, [[0.6, 0.8], [0, 0]], rtol=4 * np.finfo(np.float32).eps
    )  # two squares, their sum, its root, a division
    np.testing.assert_array_equal(x, [[3, 4], [0, 0]])
    assert Vectors(["a"], [[1, 2]]).vectors.dtype == np.float64
    assert Vectors(["a"], np.ones((1, 2), np.float16)).vectors.dtype == np.float32
    assert v.unit is v.unit, "computed once"
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(v))["a"], [3, 4])


@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1e30, 1e200])
def test_lengths_that_squares_cannot_hold(scale):
    dtype = np.float32 if 1e-30 <= scale <= 1e30 else np.float64
    v = Vectors(["a", "b"], (np.array([[3, 4], [4, 3]]) * scale).astype(dtype))
    np.testing.assert_allclose(v.unit, [[0.6, 0.8], [0.8, 0.6]], rtol=1e-6)


@pytest.mark.parametrize(
    ("words", "vectors", "counts", "match"),
    [
        (["a", "b", "a"], np.ones((3, 2)), None, "words must differ, got 'a' twice"),
        (["a"], [[np.nan, 1]], None, "word 'a' holds a number that is not finite"),
        (["a", "b"], np.ones((3, 2)), None, "2 rows"),
        (["a"], [1.0], None, "vectors"),
        ([], np.ones((0, 2)), None, "vectors"),
        (["a"], [["x"]], None, "matrix of numbers"),
        (["a"], [[1.0]], [-1], "counts"),
        (["a"], [[1.0]], [1, 2], "counts"),
        ("ab", [[1.0], [2.0]], None, "ids must be a list of ids, got 'ab'"),
    ],
)
def test_what_does_not_fit_together_is_refused(words, vectors, counts, match):
    with pytest.raises(InputError, match=match):
        Vectors(words, vectors, counts)


# ---- neighbours


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 5, 499, 600])
def test_neighbours_are_those_of_a_full_sort(dtype, n):
    v = some(dtype=dtype)
    asked = ["w3", "w499", "w250"]
    found = v.neighbours(asked, n)
    full = cosines(v[asked].astype(float), v.vectors.astype(float))
    bound = (
        10 * (v.vectors.shape[1] + 4) * float(np.finfo(dtype).eps) / 2
    )  # of a cosine: k products and their sum, two lengths, two divisions; times ten
    for i, word in enumerate(asked):
        own = int(word[1:])
        order = [j for j in np.argsort(-full[i], kind="stable") if j != own][:n]
        met = [int(name[1:]) for name, _ in found[i]]
        assert sorted({*met, own}) == sorted([*met, own])  # each once, and not the word itself
        np.testing.assert_allclose(
            [score for _, score in found[i]], full[i, order], rtol=0, atol=bound
        )
        np.testing.assert_allclose(
            full[i, met], full[i, order], rtol=0, atol=bound
        )  # those of the same cosine may change places
    assert v.neighbours("w3", n) == [(w, pytest.approx(s, abs=bound)) for w, s in found[0]]


def test_neighbours_of_a_large_vocabulary_do_not_depend_on_threads():
    rng = np.random.default_rng(1)
    # many ties
    v = Vectors(np.arange(40_000), rng.integers(-2, 3, (40_000, 4)).astype(np.float32) + 0.5)
    one, two = (v.neighbours([5, 39_999, 17], 30, n_threads=t) for t in (1, 3))
    np.testing.assert_array_equal(one.positions, two.positions)
    np.testing.assert_array_equal(one.scores, two.scores)
    exact = v.unit[[5, 39_999, 17]] @ v.unit.T
    for row, scores, own in zip(one.positions, exact, (5, 39_999, 17)):
        scores[own] = -np.inf
        np.testing.assert_allclose(scores[row], -np.sort(-scores)[:30], atol=1e-6)
        level = np.round(v.unit[row] @ v.unit[own], 5)
        assert all(a < b for a, b, p, q in zip(row, row[1:], level, level[1:]) if p == q), (
            "ties: the lower first"
        )


def test_neighbours_of_a_vector(v):
    found = v.neighbours(np.array([0.0, 0.0, -2.0]), 2)
    assert [w for w, _ in found] == ["tea", "milk"]
    assert found[0][1] == pytest.approx(4 / np.linalg.norm(V[4]))
    assert v.neighbours(V[2], 1)[0][0] == "king", "a vector is nobody's own"
    assert len(v.neighbours(V[:2], 3)) == 2
    assert v.neighbours(np.zeros(3), 3) == [], "zeros point nowhere"
    with pytest.raises(InputError, match="vectors of 3 numbers"):
        v.neighbours(np.ones(4))
    with pytest.raises(InputError, match="finite"):
        v.neighbours(np.array([np.nan, 1, 1]))


def test_filters(v):
    def names(**how):
        return [w for w, _ in v.neighbours("king", 10, **how)]

    everyone = names()
    assert len(everyone) == 5
    assert names(without=["queen", "tea"]) == [w for w in everyone if w not in ("queen", "tea")]
    assert names(without="queen") == [w for w in everyone if w != "queen"]
    assert names(among=["tea", "king", "milk"]) == [w for w in everyone if w in ("tea", "milk")]
    assert names(among=["king"]) == []
    assert names(min_count=50) == [w for w in everyone if w in ("man", "woman", "tea")]
    assert names(among=lambda w: len(w) == 4) == ["milk"]
    assert names(among=np.arange(6) < 2) == [w for w in everyone if w in ("man", "woman")]
    assert names(among=["man", "tea"], without=["tea"], min_count=1) == ["man"]
    with pytest.raises(UnknownWord, match="'x'"):
        names(without=["x"])
    with pytest.raises(InputError, match="mask of shape"):
        names(among=np.ones(3, bool))
    with pytest.raises(InputError, match="no counts"):
        Vectors(WORDS, V).neighbours("king", min_count=2)


def test_missing_words_among_the_queries(v):
    found = v.neighbours(["king", "x", "tea"], 1, missing="skip")
    assert found.queries.tolist() == ["king", "tea"]
    found = v.neighbours(["king", "x"], 2, missing="zeros")
    assert found[1] == []
    assert found.words[1].tolist() == [None, None]
    assert found.to_table()["word"].tolist() == ["king", "king"]
    assert v.neighbours("x", missing="skip") == []
    with pytest.raises(UnknownWord):
        v.neighbours(["king", "x"])
    with pytest.raises(InputError, match="n must be an int >= 1, got 0"):
        v.neighbours("king", 0)


def test_one_word_alone_has_no_neighbours():
    assert Vectors(["a"], [[1.0]]).neighbours("a") == []


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 40), st.integers(1, 6), st.integers(1, 45), st.integers(0, 10**6))
def test_nearest_with_any_filter(m, k, n, seed):
    rng = np.random.default_rng(seed)
    unit = Vectors(range(m), rng.standard_normal((m, k))).unit
    kept = rng.random(m) < rng.random()
    own = rng.integers(-1, m, 5)
    queries = unit[rng.integers(0, m, 5)]
    best, scores = nearest(unit, queries, n, own, kept)
    for q in range(5):
        allowed = [j for j in range(m) if kept[j] and j != own[q]]
        wanted = sorted((unit[allowed] @ queries[q]).tolist(), reverse=True)[:n]
        got = best[q][best[q] >= 0]
        assert set(got.tolist()) <= set(allowed)
        assert len(set(got.tolist())) == len(got) == len(wanted)
        np.testing.assert_allclose(scores[q][best[q] >= 0], wanted, atol=1e-12)


# ---- analogies


def by_hand(v, a, b, c, method):
    """The score of every word, written out."""
    u = V / np.linalg.norm(V, axis=1, keepdims=True)
    at = [WORDS.index(w) for w in (a, b, c)]
    if method == "add":
        goal = u[at[1]] - u[at[0]] + u[at[2]]
        scores = u @ goal / np.linalg.norm(goal)
    else:
        s = (1 + u @ u.T) / 2
        scores = s[:, at[1]] * s[:, at[2]] / (s[:, at[0]] + 1e-3)
    return {w: x for w, x in zip(WORDS, scores) if w not in (a, b, c)}


@pytest.mark.parametrize("method", ["add", "multiply"])
@pytest.mark.parametrize(
    "question", [("man", "king", "woman"), ("queen", "tea", "milk"), ("man", "man", "tea")]
)
def test_analogies_by_their_formula(v, method, question):
    wanted = by_hand(v, *question, method)
    found = v.analogy(*question, n=10, method=method)
    assert [w for w, _ in found] == sorted(wanted, key=wanted.get, reverse=True)
    np.testing.assert_allclose(
        [s for _, s in found], sorted(wanted.values(), reverse=True), rtol=1e-12
    )
    assert not set(question) & {w for w, _ in found}


def test_analogies_of_lists_filters_and_missing_words(v):
    assert v.analogy("man", "king", "woman")[0][0] == "queen"
    many = v.analogy(["man", "tea"], ["king", "milk"], ["woman", "queen"], n=2)
    for row, question in zip(many, (("man", "king", "woman"), ("tea", "milk", "queen"))):
        assert row == [(w, pytest.approx(s)) for w, s in v.analogy(*question, 2)]
    assert v.analogy("man", "king", "woman", without=["queen"])[0][0] != "queen"
    assert [w for w, _ in v.analogy("man", "king", "woman", 9, min_count=50)] == ["tea"]
    assert v.analogy("man", "king", "x", missing="skip") == []
    with pytest.raises(UnknownWord, match="'x'"):
        v.analogy("man", "king", "x")
    with pytest.raises(InputError, match="2, 1, 1 words"):
        v.analogy(["man", "tea"], "king", "woman")
    with pytest.raises(InputError, match="method must be 'add' or 'multiply', got 'subtract'"):
        v.analogy("man", "king", "woman", method="subtract")


def test_answers_with_ties_go_to_the_first():
    unit = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0], [0.0, -1.0]])
    assert answers(unit, np.array([[1, 0, 1]]), 2, "add")[0].tolist() == [[2, 3]]


# ---- likeness, odd one out, mean, map


def test_similarity(v):
    wanted = cosines(V, V)
    assert v.similarity("man", "tea") == pytest.approx(wanted[0, 4])
    np.testing.assert_allclose(v.similarity([("man", "tea"), ("king", "king")]), [wanted[0, 4], 1])
    np.testing.assert_allclose(
        v.similarity(["man", "king"], ["tea", "queen"]), [wanted[0, 4], wanted[2, 3]]
    )
    np.testing.assert_array_equal(v.similarity([("man", "x")], missing="zeros"), [0])
    assert np.isnan(v.similarity([("man", "x"), ("man", "man")], missing="skip")).tolist() == [
        True,
        False,
    ]
    with pytest.raises(UnknownWord):
        v.similarity("man", "x")
    with pytest.raises(InputError, match=r"pairs\[0\] must be two words, got 'man'"):
        v.similarity(["man", "tea"])
    with pytest.raises(
        InputError, match="words must be one each, or lists of one length, got 1 and 2"
    ):
        v.similarity(["man"], ["tea", "milk"])


def test_odd_one_out(v):
    assert v.odd_one_out(["man", "king", "tea"]) == "tea"
    assert v.odd_one_out(["tea", "milk", "queen", "x"], missing="skip") == "queen"
    assert Vectors([3, 4, 5], [[1.0, 0], [1, 0.1], [0, 1]]).odd_one_out([3, 4, 5]) == 5
    with pytest.raises(InputError, match="at least 2"):
        v.odd_one_out(["tea"])


def test_mean_of_texts_and_words(v):
    np.testing.assert_allclose(v.mean("Tea, tea & MILK!"), (2 * V[4] + V[5]) / 3)
    np.testing.assert_allclose(v.mean(["tea", "x", "milk"]), (V[4] + V[5]) / 2)
    np.testing.assert_allclose(v.mean(["tea", "x", "milk"], missing="zeros"), (V[4] + V[5]) / 3)
    with pytest.raises(UnknownWord):
        v.mean(["tea", "x"], missing="error")
    np.testing.assert_array_equal(v.mean("nothing known"), [0, 0, 0])
    np.testing.assert_array_equal(v.mean(""), [0, 0, 0])
    np.testing.assert_allclose(
        v.mean("tea|milk", tokenizer=lambda t: t.split("|")), (V[4] + V[5]) / 2
    )


def test_weighted_means(v):
    np.testing.assert_allclose(v.mean(["tea", "milk"], {"tea": 3.0}), (3 * V[4] + V[5]) / 4)
    np.testing.assert_allclose(v.mean(["tea", "milk"], np.arange(6.0)), (4 * V[4] + 5 * V[5]) / 9)
    p = np.array([50, 5]) / 275
    w = 1e-3 / (1e-3 + p)
    np.testing.assert_allclose(v.mean(["tea", "milk"], "sif"), w @ V[4:] / w.sum())
    np.testing.assert_array_equal(v.mean(["tea"], {"tea": 0.0}), [0, 0, 0])
    for bad in ("idf", [1.0], np.full(6, -1.0)):
        with pytest.raises(InputError, match="weights"):
            v.mean("tea", bad)
    with pytest.raises(InputError, match="no counts"):
        Vectors(WORDS, V).mean("tea", "sif")


def test_a_vocabulary_with_capitals_is_looked_up_as_written():
    v = Vectors(["Paris", "paris"], [[1.0], [5.0]])
    assert v.mean("Paris").tolist() == [1.0]
    assert Vectors(["paris"], [[5.0]]).mean("PARIS").tolist() == [5.0]


def test_the_map_is_the_principal_plane(v):
    m = v.map(n=4)
    assert m.words.tolist() == ["man", "woman", "king", "tea"], (
        "the most frequent, in the order of the vocabulary"
    )
    u = V[[0, 1, 2, 4]] / np.linalg.norm(V[[0, 1, 2, 4]], axis=1, keepdims=True)
    centred = u - u.mean(axis=0)
    _, s, vt = np.linalg.svd(centred)
    np.testing.assert_allclose(np.abs(m.xy), np.abs(centred @ vt[:2].T), atol=1e-9)
    assert m.kept == pytest.approx((s[:2] ** 2).sum() / (s**2).sum())
    assert v.map(["tea", "king", "x"], missing="skip").words.tolist() == ["tea", "king"]
    assert Vectors(["a", "b"], [[1.0], [2.0]]).map().xy.tolist() == [[0, 0], [0, 0]]
    with pytest.raises(InputError, match="at least 2"):
        v.map(["tea"])
