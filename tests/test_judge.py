"""The judge of topic models, against sums written out by hand."""

from __future__ import annotations

import time

import numpy as np
import pytest
from scipy import sparse

import eckart
from eckart import (
    InputError,
    align_topics,
    coherence,
    document_completion,
    split_tokens,
    topic_diversity,
)
from eckart.explain.topics.judge import top_words
from eckart.factors import Topics


@pytest.fixture
def corpus(rng):
    phi = rng.dirichlet(np.full(30, 0.2), 3)
    return phi, np.vstack(
        [rng.multinomial(60, t @ phi) for t in rng.dirichlet(np.full(3, 0.3), 80)]
    )


def brute(phi, seen, scored, alpha, steps):
    """Document completion, one document and one step after another."""
    phi = np.maximum(phi, 1e-12) / np.maximum(phi, 1e-12).sum(axis=1, keepdims=True)
    total = count = 0.0
    for s, q in zip(seen, scored):
        theta = np.full(len(phi), 1.0 / len(phi))
        for _ in range(steps):
            gamma = theta[:, None] * phi
            gamma = gamma / gamma.sum(axis=0)
            theta = gamma @ s + alpha
            theta = theta / theta.sum()
        total += q @ np.log(theta @ phi)
        count += q.sum()
    return np.exp(-total / count)


def test_document_completion_is_the_sum_written_out(corpus):
    phi, x = corpus
    seen, scored = split_tokens(x, random_state=0)
    expected = brute(phi, seen.to_scipy().toarray(), scored.to_scipy().toarray(), 0.1, 50)
    for threads in (1, 3):
        found = document_completion(phi, seen, scored, prior=0.1, steps=50, n_threads=threads)
        assert found.perplexity == pytest.approx(expected, rel=1e-10)
    assert found.words == scored.data.sum()


def test_true_topics_are_judged_better_than_false_ones(corpus, rng):
    phi, x = corpus
    halves = split_tokens(x, random_state=0)
    truth = document_completion(phi, *halves).perplexity
    assert truth < document_completion(rng.dirichlet(np.ones(30), 3), *halves).perplexity
    assert truth < document_completion(x.sum(axis=0, keepdims=True), *halves).perplexity < 30


def test_judge_refuses_what_does_not_fit(corpus):
    phi, x = corpus
    with pytest.raises(InputError, match="two halves of the same documents"):
        document_completion(phi, x, x[:5])
    with pytest.raises(InputError, match=r"words must have shape \(topics, 30\), got \(3, 4\)"):
        document_completion(phi[:, :4], x, x)
    with pytest.raises(InputError, match="scored must have at least one token, got none"):
        document_completion(phi, x, 0 * x)


def test_split_tokens_keeps_every_token_and_repeats(corpus):
    _, x = corpus
    a, b = split_tokens(x, 0.3, random_state=1)
    np.testing.assert_array_equal((a.to_scipy() + b.to_scipy()).toarray(), x)
    assert a.data.sum() == pytest.approx(0.3 * x.sum(), rel=0.1)
    again, _ = split_tokens(x, 0.3, random_state=1)
    np.testing.assert_array_equal(a.data, again.data)
    whole, rest = split_tokens(x * 0.5 + 0.0, random_state=0)
    np.testing.assert_array_equal((whole.to_scipy() + rest.to_scipy()).toarray(), x * 0.5)
    with pytest.raises(InputError, match="share must be a number between 0 and 1, got 1"):
        split_tokens(x, 1)


def test_npmi_by_hand():
    x = np.array([[1, 1, 0], [2, 0, 0], [1, 3, 0], [0, 0, 1]])
    p0, p1, both = 3 / 4, 2 / 4, 2 / 4
    expected = np.log(both / (p0 * p1)) / -np.log(both)
    assert coherence([[0, 1]], x)[0] == pytest.approx(expected)
    assert coherence([[0, 2]], x)[0] == -1.0
    assert coherence([[0, 1, 2]], x)[0] == pytest.approx((expected - 2) / 3)


def test_npmi_of_blocks_is_that_of_the_whole(corpus, tmp_path):
    phi, x = corpus
    whole = coherence(phi, x, 5)
    blocks = [sparse.csr_array(x[i : i + 17]) for i in range(0, 80, 17)]
    np.testing.assert_allclose(coherence(phi, blocks, 5), whole)
    eckart.write_shards(blocks, tmp_path)
    np.testing.assert_allclose(coherence(phi, eckart.shards(tmp_path / "*.npz"), 5), whole)
    named = eckart.Counts.from_scipy(
        sparse.csr_array(x), columns=np.array([f"w{j}" for j in range(30)], object)
    )
    words = [[f"w{j}" for j in top] for top in top_words(phi, 5)]
    np.testing.assert_allclose(coherence(words, named), whole)
    with pytest.raises(InputError, match="'nothing' of a topic is no column"):
        coherence([["w1", "nothing"]], named)


def test_top_words_by_probability_and_by_lift():
    counts = np.array([[90.0, 9.0, 1.0, 0.0], [90.0, 1.0, 1.0, 8.0]])
    t = Topics(
        counts, np.zeros(2), np.array([0.5, 0.5]), np.array(["the", "cat", "a", "sun"], object)
    )
    assert top_words(t, 2) == [["the", "cat"], ["the", "sun"]]
    assert top_words(t, 1, by="lift") == [["cat"], ["sun"]]
    with pytest.raises(InputError, match="by must be 'probability' or 'lift', got 'rank'"):
        top_words(t, 2, by="rank")


def test_alignment_finds_a_permutation_and_counts_what_is_missing(corpus, rng):
    phi, _ = corpus
    order = np.array([2, 0, 1])
    partner, overlap = align_topics(phi, phi[order])
    np.testing.assert_array_equal(order[partner], np.arange(3))
    np.testing.assert_allclose(overlap, 1.0)
    partner, overlap = align_topics(phi, phi[:2])
    assert list(partner) == [0, 1, -1]
    assert overlap[2] == 0


def test_diversity():
    assert topic_diversity([[0, 1], [0, 1]]) == 0.5
    assert topic_diversity(np.eye(3), n=1) == 1.0


def test_the_number_of_topics_is_a_table_with_the_best_first(corpus, rng):
    phi, _ = corpus
    x = np.vstack(
        [rng.multinomial(60, t @ phi) for t in rng.dirichlet(np.full(3, 0.3), 240)]
    )  # no document twice: copies reward too many topics
    begin = time.perf_counter()
    table = eckart.select_topics(
        eckart.LDA(random_state=0, learning_method="cvb0", n_init=3), x, [1, 3, 8]
    )
    assert 0 < sum(row["seconds"] for row in table) <= time.perf_counter() - begin
    assert [set(row) for row in table] == [
        {"n_components", "perplexity", "npmi", "diversity", "seconds"}
    ] * 3
    assert table[0]["n_components"] == 3
    assert table[0]["perplexity"] < table[1]["perplexity"] < table[2]["perplexity"]
