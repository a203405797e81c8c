"""The report of an embedding: neighbours, map, vocabulary, facts about the text, evidence and
pictures of the fit; names are escaped, nothing is linked."""

from __future__ import annotations

import re

import numpy as np
import pytest

from eckart import PMI, GloVe, SkipGram, Vectors, cooccurrence, sequences
from eckart.report import embed as module
from eckart.report.embed import corpus_facts, embed_report, telling
from pages import Page

GROUPS = (["<b>ale</b>", "beer", "cider", "perry"], ["goat", "hen", "pig", "sheep"])


def lists(count=300, seed=0):
    """Six words for each list, four of five from one group, after a word that all have; a rare word
    and an empty list."""
    rng = np.random.default_rng(seed)

    def one(i):
        return ["the", *(str(rng.choice(GROUPS[(i + (rng.random() < 0.2)) % 2])) for _ in range(6))]

    return [one(i) for i in range(count)] + [["rare"], []]


@pytest.fixture(scope="module")
def text():
    return sequences(lists())


def fitted(kind, text):
    models = {
        "SkipGram": SkipGram(4, sample=None, max_iter=8, deterministic=True, random_state=0),
        "PMI": PMI(4, window=5, random_state=0),
        "GloVe": GloVe(4, window=5, max_iter=40, random_state=0),
    }
    return models[kind].fit(text)


@pytest.mark.parametrize(("kind", "pictures"), [("SkipGram", 4), ("PMI", 3), ("GloVe", 4)])
def test_a_page(kind, pictures, text, tmp_path):
    model = fitted(kind, text)
    html = (
        embed_report(model, text, name="my <text>")
        .write(tmp_path / "r.html")
        .read_text(encoding="utf-8")
    )
    page = Page(html)
    assert not re.search(r"https?://", re.sub(r"base64,[^\"]*", "", html))
    assert page.tags.count("img") == pictures
    assert "<b>ale</b>" in page.text
    for words in (
        "Embed: my <text>",
        f"9 words as vectors of 4 numbers, by {kind}",
        "Words and their neighbours",
        "A map of words",
        "words read 2,101",
        "words outside of the vocabulary, left out 1",
        "sentences 302",
        "The certificate holds",
        "length of its vector",
        "How it was computed",
    ):
        assert words in page.text
    near = [word for word, _ in model.vectors_.neighbours("beer", 8)]
    assert f"beer {', '.join(near)}" in page.text
    assert not set(near[:2]) & set(GROUPS[1])


def test_counts_of_pairs_give_a_page_without_facts_about_text():
    n = cooccurrence(lists(), window=5)
    for model in (SkipGram(4, max_iter=30, random_state=0), GloVe(4, random_state=0)):
        page = Page(embed_report(model.fit(n), n).render())
        assert page.tags.count("img") == 4
        assert "words read" not in page.text
        assert "sentences" not in page.text
    softmax = SkipGram(4, loss="softmax", max_iter=30, random_state=0).fit(n)
    assert Page(embed_report(softmax, n).render()).tags.count("img") == 3, "no PMI for the softmax"


def test_without_the_source_and_with_a_long_one(text, monkeypatch):
    model = fitted("SkipGram", text)
    assert Page(embed_report(model).render()).tags.count("img") == 3
    monkeypatch.setattr(module, "MOST_WORDS", 100)
    assert Page(embed_report(model, text).render()).tags.count("img") == 3


def test_chosen_words(text):
    page = Page(embed_report(fitted("PMI", text), text, words=["goat", "hen", "pig"]).render())
    assert "3 words on the two principal components" in page.text
    assert "beer" in page.text


@pytest.mark.parametrize("kind", ["SkipGram", "PMI", "GloVe"])
def test_one_word_and_two(kind):
    for words, said in ((["so"] * 3, "has no neighbour"), (["so", "it"] * 2, "largest cosine")):
        s = sequences([words] * 20)
        params = {"sample": None} if kind == "SkipGram" else {}
        model = {"SkipGram": SkipGram, "PMI": PMI, "GloVe": GloVe}[kind](
            1, random_state=0, **params
        ).fit(s)
        assert said in Page(embed_report(model, s).render()).text


def test_telling_words_are_frequent_and_mean_something():
    v = Vectors(
        ["the", "sea", "9", "x", "ship", "of", "sail"], np.eye(7), counts=[9, 1, 5, 5, 7, 8, 3]
    )
    assert telling(v, 3) == ["ship", "sail", "sea"]
    assert telling(Vectors(["the", "of"], np.eye(2)), 5) == ["the", "of"]
    assert telling(Vectors([7, 8, 9], np.eye(3), counts=[1, 2, 3]), 2) == [9, 8]


def test_facts_about_the_text(text):
    facts = corpus_facts(text)
    assert facts["sentences"] == 302
    assert facts["sentences of fewer than two words of the vocabulary"] == 2
    assert facts["longest sentence"] == 7
    assert (
        facts["words kept"]
        == facts["words read"] - facts["words outside of the vocabulary, left out"]
        == 2100
    )
    assert facts["different words kept"] == 9
    assert not any("no text" in name for name in facts)
