"""Texts of a Dask bag: counted by the workers, with the same pairs as in one place, to the last
bit."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import eckart
from eckart import PMI, GloVe, Projection, SkipGram
from eckart.errors import InputError

db = pytest.importorskip("dask.bag")
da = pytest.importorskip("dask.array")

pytestmark = pytest.mark.usefixtures("threads")


@pytest.fixture(scope="module")
def texts():
    rng = np.random.default_rng(0)
    words = np.array(
        ["sun", "moon", "star", "cat", "dog", "fish", "red", "blue", "green", "tree", "once"]
    )
    return [" ".join(words[rng.integers(3 * (i % 3), 3 * (i % 3) + 5, 25)]) for i in range(90)] + [
        "",
        "once upon",
    ]


@pytest.mark.parametrize("partitions", [1, 3, 20])
@pytest.mark.parametrize(
    "how", [{"window": 5}, {"window": 3, "weighting": "linear", "sides": "left", "max_words": 6}]
)
def test_pairs_are_those_of_the_texts_in_one_place(texts, partitions, how):
    found = eckart.cooccurrence(db.from_sequence(texts, npartitions=partitions), min_count=2, **how)
    wanted = eckart.cooccurrence(texts, min_count=2, **how)
    assert found.columns.tolist() == wanted.columns.tolist()
    for name in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))


def test_lists_of_items_and_partitions_without_any():
    baskets = [["milk", "bread"], [], ["tea", "bread", "milk"], ["tea", "tea"]]
    bag = db.from_sequence(baskets, npartitions=4).filter(lambda basket: basket != ["tea", "tea"])
    found, wanted = (
        eckart.cooccurrence(bag, min_count=1),
        eckart.cooccurrence(baskets[:3], min_count=1),
    )
    assert found.columns.tolist() == wanted.columns.tolist()
    np.testing.assert_array_equal(found.to_scipy().toarray(), wanted.to_scipy().toarray())
    # a partition of signs alone has no word, the others have
    words = ["milk bread tea", "... !", "bread tea"]
    found, wanted = (
        eckart.cooccurrence(x, min_count=1) for x in (db.from_sequence(words, npartitions=3), words)
    )
    np.testing.assert_array_equal(found.to_scipy().toarray(), wanted.to_scipy().toarray())


@pytest.mark.parametrize("model", [PMI(4), GloVe(4, solver="als")], ids=["PMI", "GloVe"])
def test_word_models_of_a_bag_are_those_of_the_texts(texts, model):
    model.set_params(random_state=0, min_count=1, window=4)
    one, parts = (
        type(model)(**model.get_params()).fit(x)
        for x in (texts, db.from_sequence(texts, npartitions=4))
    )
    assert parts.fit_.plan["engine"] == "dask"
    assert parts.certificate_.holds == one.certificate_.holds
    assert parts.fit_.plan["words"] == one.fit_.plan["words"]
    np.testing.assert_array_equal(parts.fit_.factors.counts, one.fit_.factors.counts)
    np.testing.assert_allclose(parts.components_, one.components_, rtol=1e-4, atol=1e-5)
    codes = parts.transform(db.from_sequence(texts, npartitions=4))
    np.testing.assert_allclose(codes.compute(), one.transform(texts), rtol=1e-4, atol=1e-5)


def test_what_walks_through_sentences_says_what_to_use(texts):
    with pytest.raises(InputError, match=r"SkipGram walks through sentences.*use PMI or GloVe"):
        SkipGram(4).fit(db.from_sequence(texts))


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ([], "the collection must hold at least one sentence, got none"),
        (["", ""], "at least one word must be left, got none of 0 in a text of 0"),
        ([["a", 0.5]], "partition 0"),
        ([sparse.csr_array(np.eye(2))], "csr_array.*partition 0"),
    ],
    ids=["empty", "no words", "a number", "a matrix"],
)
def test_bad_bags_are_named(items, words):
    with pytest.raises(InputError, match=words):
        eckart.cooccurrence(
            db.from_sequence(items or ["x"], npartitions=2).filter(lambda _: bool(items)),
            min_count=1,
        )


def test_a_projection_of_an_array_is_an_array_later():
    rng = np.random.default_rng(0)
    rows, p = (
        rng.standard_normal((50, 6)),
        Projection.onto(rng.standard_normal((6, 2)), rng.standard_normal(6)),
    )
    x = da.from_array(rows, chunks=(20, 4))
    for ask in (p, p.codes, p.distance):
        assert hasattr(ask(x), "dask")
        np.testing.assert_allclose(ask(x).compute(), ask(rows))
    with pytest.raises(InputError, match="6"):
        p(x[:, :5])
