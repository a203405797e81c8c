"""Line 3.3 of the specification, one test for each statement."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import eckart
from eckart import LDA, align_topics, coherence
from eckart.explain.topics.documents import as_counts
from eckart.io.read import read


def corpus(seed=0, documents=500, words=60, k=4, alpha=0.2):
    rng = np.random.default_rng(seed)
    phi, theta = rng.dirichlet(np.full(words, 0.1), k), rng.dirichlet(np.full(k, alpha), documents)
    return phi, np.vstack([rng.multinomial(80, t @ phi) for t in theta])


@pytest.fixture(scope="module")
def planted():
    return corpus()


def test_3_3_unseen_documents_have_a_likelihood(planted):
    _, x = planted
    model = LDA(4, random_state=0).fit(x[:400])
    assert np.isfinite(model.score(x[400:]))
    assert model.score(x[400:]) == pytest.approx(model.score(x[:400]), abs=0.1)
    unigram = x[:400].sum(axis=0, keepdims=True) + 0.05
    halves = eckart.split_tokens(x[400:], random_state=0)
    assert model.perplexity(x[400:]) < 0.8 * eckart.document_completion(unigram, *halves).perplexity


@pytest.mark.parametrize("method", ["gibbs", "cvb0", "variational", "batch", "online"])
def test_3_3_batch_and_online_inference(planted, method):
    phi, x = planted
    for start in range(
        4
        # a climb may end where two topics share one; its certificate says so, and another start is
        # tried
    ):
        model = LDA(4, learning_method=method, random_state=start, batch_size=100).fit(x)
        if model.certificate_.holds:
            break
    assert model.certificate_.holds
    assert align_topics(phi, model)[1].min() > 0.95


def test_3_3_the_batch_bound_never_decreases(planted):
    starts = [
        LDA(4, learning_method="variational", random_state=start, tol=0, max_iter=60).fit(
            planted[1]
        )
        for start in range(4)
    ]
    for model in starts:
        assert (np.diff(model.fit_.trace.values) > -1e-11).all()
    assert any(
        model.certificate_.holds for model in starts
    )  # a climb may end where two topics share one, and be slow there


def test_3_3_alpha_and_eta_are_fixed_or_learned(planted):
    rng = np.random.default_rng(2)
    alpha = np.array([0.05, 0.1, 0.4, 0.8])
    phi = rng.dirichlet(np.full(200, 0.05), 4)
    x = np.vstack([rng.multinomial(150, t @ phi) for t in rng.dirichlet(alpha, 1500)])
    learned = LDA(4, random_state=0, burn_in=60).fit(x)
    partner, overlap = align_topics(phi, learned)
    assert (
        overlap.min() > 0.95
        # every second climb of EM splits the largest topic and loses the smallest: the best of
        # several is taken
    )
    np.testing.assert_allclose(learned.doc_topic_prior_[partner], alpha, rtol=0.35)
    assert learned.topic_word_prior_ == pytest.approx(0.05, rel=0.6)
    fixed = LDA(4, doc_topic_prior=0.5, topic_word_prior=0.01, random_state=0, max_iter=3).fit(
        x[:50]
    )
    assert set(fixed.doc_topic_prior_) == {0.5}
    assert fixed.topic_word_prior_ == 0.01


def test_3_3_perplexity_is_by_document_completion(planted):
    _, x = planted
    model = LDA(4, random_state=0).fit(x[:400])
    seen, scored = eckart.split_tokens(x[400:], random_state=0)
    judged = eckart.document_completion(
        model.topic_word_, seen, scored, prior=model.doc_topic_prior_
    )
    assert model.perplexity(x[400:]) == pytest.approx(judged.perplexity)


def test_3_3_topic_coherence_tells_topics_from_noise(planted):
    _, x = planted
    model = LDA(4, random_state=0).fit(x)
    good = coherence(model, x, 5).mean()
    rng = np.random.default_rng(0)
    bad = coherence([rng.choice(60, 5, replace=False).tolist() for _ in range(20)], x).mean()
    assert good > bad + 0.1


def test_3_3_topic_order_is_stable(planted):
    _, x = planted
    a = LDA(4, random_state=3).fit(x)
    b = LDA(4, random_state=3).fit(sparse.csr_matrix(x))
    np.testing.assert_array_equal(a.components_, b.components_)
    assert (np.diff(a.sizes_) <= 0).all()
    warm = LDA(4, random_state=3, warm_start=True).fit(x[:300])
    before = warm.topic_word_.copy()
    np.testing.assert_array_equal(align_topics(before, warm.fit(x))[0], np.arange(4))


def test_3_3_vectorizer_output_as_it_is():
    text = pytest.importorskip("sklearn.feature_extraction.text")
    documents = [
        "cats purr and cats sleep",
        "dogs bark at cats",
        "stocks fall",
        "markets and stocks rise",
    ] * 10
    counter = text.CountVectorizer()
    x = counter.fit_transform(documents)
    model = LDA(2, random_state=0).fit(x)
    assert model.transform(x).shape == (40, 2)
    assert as_counts(read(x), "x").nnz == x.nnz
