"""The report of an explanation: topics with words, map and examples; mixtures with ellipses and
posteriors; parts; evidence in words; real names."""

from __future__ import annotations

import re

import numpy as np
import pytest

from eckart import LDA, NMF, PLSA, Counts, GaussianMixture, corpus
from eckart.errors import InputError
from eckart.explain.topics.judge import document_completion, split_tokens
from eckart.report.explain import explain_report
from eckart.report.topics import telling
from eckart.report.unseen import judge_topics
from pages import Page

FRUIT, SPACE = ["apple", "<b>banana</b>", "cherry", "mango"], ["comet", "galaxy", "moon", "orbit"]


def bags(documents=80, length=25, seed=0):
    """Counts of words about fruit, space, or both; names with markup; one empty document."""
    rng = np.random.default_rng(seed)
    share = np.array([1.0, 0.0, 0.5])[np.arange(documents) % 3]
    p = np.column_stack(
        [np.repeat(share[:, None] / 4, 4, axis=1), np.repeat((1 - share)[:, None] / 4, 4, axis=1)]
    )
    table = np.array([rng.multinomial(length, row) for row in p]).astype(float)
    table[5] = 0
    names = np.array([f"document <{i}>" for i in range(documents)], object)
    from scipy import sparse

    return Counts.from_scipy(sparse.csr_array(table), names, np.array(FRUIT + SPACE, object))


@pytest.fixture(scope="module")
def counts():
    return bags()


@pytest.fixture(scope="module")
def lda(counts):
    return LDA(2, random_state=0).fit(counts)


@pytest.fixture(scope="module")
def unseen(counts):
    return judge_topics(LDA(2, random_state=0).fit, counts, 0.25, 1)


def test_judge_measures_unseen_words(counts, unseen):
    assert unseen.documents == 20
    assert unseen.useful
    assert 4 < unseen.perplexities["model"] < unseen.perplexities["word frequencies"] < 8.5
    assert "that the fit did not see" in unseen.verdict
    assert len(unseen.lines()) == 3
    assert unseen.plan()["words"] == unseen.words

    def one_topic(train):
        seen.append(train)
        return LDA(1, random_state=0).fit(train)

    seen = []
    alone = judge_topics(one_topic, counts, 0.25, 1)
    assert seen[0].shape == (60, 8)
    assert alone.perplexities["model"] == pytest.approx(
        alone.perplexities["word frequencies"], rel=0.02
    )
    assert alone.words == unseen.words, "every model is asked for the same words"
    for bad in (0.001, 0.99):
        with pytest.raises(InputError, match="held_out"):
            judge_topics(one_topic, counts, bad)


def test_word_frequencies_are_those_of_training(counts):
    found = []
    judged = judge_topics(
        lambda t: found.append(t) or PLSA(2, random_state=0).fit(t), counts, 0.5, 3
    )
    train = found[0]
    hidden = counts.to_scipy().sum(axis=0) - train.to_scipy().sum(axis=0)
    p = (train.to_scipy().sum(axis=0) + 0.5) / (train.data.sum() + 4)
    assert judged.words < hidden.sum()
    often = float(np.exp(-(hidden @ np.log(p)) / hidden.sum()))
    assert judged.perplexities["word frequencies"] == pytest.approx(often, rel=0.05)


def test_a_page_of_topics(counts, lda, unseen, tmp_path):
    texts = [f"text & number {i} of the corpus" for i in range(80)]
    report = explain_report(lda, counts, name="my <texts>", held_out=unseen, excerpts=texts)
    text = report.write(tmp_path / "r.html").read_text(encoding="utf-8")
    page = Page(text)
    assert not re.search(r"https?://", re.sub(r"base64,[^\"]*", "", text))
    assert page.tags.count("img") >= 3
    assert "80 documents, 8 words in the vocabulary" in page.text
    assert f"Perplexity {unseen.perplexities['model']:,.1f}" in page.text
    for words in (
        "my <texts>",
        "<b>banana</b>",
        "galaxy",
        "Coherence",
        "The certificate holds.",
        "set it apart",
        "text & number",
    ):
        assert words in page.text
    shares = lda.transform(counts)
    for z in range(2):
        best = int(np.argmax(np.where(np.arange(80) == 5, 0, shares[:, z])))
        assert f"document <{best}>" in page.text
    for check in lda.certificate_.checks:
        assert check.name in page.text


def test_excerpts_are_asked_for_by_position(counts, lda):
    asked = []

    def few(at):
        asked.extend(at.tolist())
        return {int(i): f"begin of {i}" for i in at}

    page = Page(explain_report(lda, counts, excerpts=few).render())
    assert 2 <= len(set(asked)) <= 4
    assert all(f"begin of {i}" in page.text for i in asked)
    assert "how it begins" not in Page(explain_report(lda, counts).render()).text


def test_telling_words_are_rare_elsewhere():
    p = np.array([[0.5, 0.3, 0.2, 0.0], [0.5, 0.0, 0.2, 0.3]])
    sizes = np.array([0.5, 0.5])
    assert telling(p, sizes, 0)[0] == 1
    assert telling(p, sizes, 1)[0] == 3
    assert telling(p, sizes, 0, balance=1.0)[0] == 0


@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
def test_a_page_of_a_mixture(kind, rng):
    x = np.concatenate([rng.standard_normal((60, 3)), rng.standard_normal((40, 3)) + 6])
    model = GaussianMixture(2, covariance_type=kind, random_state=0).fit(x)
    page = Page(explain_report(model, x, name="two", labels=["<a>"] * 60 + ["b"] * 40).render())
    assert page.tags.count("img") >= 2
    for words in (
        "100 rows and 3 columns",
        "Who belongs where",
        "100% of the rows",
        "0.6",
        "column 1",
        "<a>" if False else "certificate",
    ):
        assert words in page.text


def test_mixtures_of_one_column_two_columns_and_gaps(rng):
    for columns in (1, 2, 5):
        x = np.concatenate(
            [rng.standard_normal((30, columns)), rng.standard_normal((30, columns)) + 8]
        )
        if columns == 5:
            x[rng.random(x.shape) < 0.1] = np.nan
        page = Page(explain_report(GaussianMixture(2, random_state=0).fit(x), x).render())
        assert "Posteriors" in page.text


def test_a_page_of_parts(rng, counts):
    x = rng.random((30, 2)) @ rng.random((2, 12))
    model = NMF(2, random_state=0).fit(x)
    page = Page(explain_report(model, x, name="images", image=(3, 4)).render())
    assert "NMF with 2 parts" in page.text
    assert "its share of the row" in page.text
    words = Page(explain_report(NMF(2, random_state=0).fit(counts), counts).render())
    assert "galaxy" in words.text
    assert "document <" in words.text


@pytest.mark.parametrize("k", [1, 2, 30])
def test_small_corpora(k):
    c = corpus({"a": "one two three", "b": "two three", "c": ""})
    page = Page(explain_report(PLSA(k, random_state=0).fit(c), c).render())
    assert "3 documents, 3 words" in page.text


def test_the_judge_is_the_judge_of_the_chapter(counts, lda):
    seen, scored = split_tokens(counts, random_state=0)
    t = lda.fit_.factors
    assert document_completion(t.words, seen, scored, prior=t.prior).perplexity == pytest.approx(
        lda.perplexity(counts), rel=1e-6
    )
