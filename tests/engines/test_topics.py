"""The primitives of topic models against their plain twins, on documents where each argument matters."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import sparse

from eckart.engines import engine_named
from eckart.matrix import Counts

PLAIN = engine_named("plain")
D, N, K = 300, 41, 19


@pytest.fixture(params=[np.float32, np.float64])
def data(request):
    rng = np.random.default_rng(3)
    a = rng.poisson(0.3, (D, N)) * rng.integers(1, 4, (D, N)).astype(float)
    a[7] = 0  # an empty document
    a[:, 4] = 0  # a word that never occurs
    a[9, 5:] = 0
    words = rng.dirichlet(np.full(N, 0.3), K).T
    words[11] = 0  # a word that no topic holds
    shares = rng.dirichlet(np.full(K, 0.5), D)
    prior = rng.random(K) * np.where(np.arange(K) == 2, 0, 1)
    kind = request.param
    return Counts.from_scipy(sparse.csr_array(a.astype(kind))), words.astype(kind), prior, shares.astype(kind)


def close(a, b, dtype, size=1.0):
    np.testing.assert_allclose(a, b, rtol=2e-4 if dtype == np.float32 else 1e-9, atol=size * (1e-5 if dtype == np.float32 else 1e-10))  # fmt: skip


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_topic_sweep(engine, data, steps):
    x, words, prior, shares = data
    a, b = (e.topic_sweep(x, words, prior, shares, steps=steps) for e in (engine, PLAIN))
    close(a.shares, b.shares, x.dtype)
    close(a.counts, b.counts, x.dtype)
    close(a.value, b.value, x.dtype, abs(b.value))
    assert a.seen == b.seen == x.data.sum() - x.data[x.indices == 11].sum()
    np.testing.assert_allclose(a.counts.sum(), a.seen, rtol=1e-5)
    assert a.shares.dtype == a.counts.dtype == x.dtype
    only = engine.topic_sweep(x, words, prior, shares, steps=steps, collect=False)
    close(only.shares, a.shares, x.dtype)
    assert only.counts is None


def test_topic_sweep_without_prior_leaves_empty_documents_alone(engine, data):
    x, words, prior, shares = data
    found = engine.topic_sweep(x, words, 0 * prior, shares, steps=3)
    np.testing.assert_array_equal(found.shares[7], shares[7])
    close(found.shares, PLAIN.topic_sweep(x, words, 0 * prior, shares, steps=3).shares, x.dtype)


def test_topic_sweep_stops_documents_that_stand_still(engine, data):
    x, words, prior, shares = data
    far = engine.topic_sweep(x, words, prior + 0.1, shares, steps=2000, collect=False).shares
    near = engine.topic_sweep(x, words, prior + 0.1, shares, steps=2000, tol=1e-5, collect=False).shares
    assert np.abs(far - near).sum(axis=1).max() < 0.02
    both = engine.topic_sweep(x, words, prior + 0.1, shares, steps=2000, tol=1e-5)
    assert np.abs(far - both.shares).sum(axis=1).max() < 0.02


def test_topic_bayes(engine, data):
    x, words, prior, shares = data
    words, prior = words + 1e-3, prior + 0.05
    gamma = shares.astype(float) * 10 + 0.1
    a, b = (e.topic_bayes(x, words.astype(x.dtype), prior, gamma, steps=7, tol=0.0) for e in (engine, PLAIN))
    close(a.shares, b.shares, x.dtype)
    close(a.counts, b.counts, x.dtype)
    close(a.logs, b.logs, x.dtype, 1e3)
    close(a.value, b.value, x.dtype, abs(b.value))


def test_topic_scores(engine, data):
    x, words, _, shares = data
    for a, b in zip(engine.topic_scores(x, words, shares, 1e-12), PLAIN.topic_scores(x, words, shares, 1e-12)):
        close(a, b, x.dtype, 100)


def test_threads_do_not_change_a_bit(data):
    x, words, prior, shares = data
    results = []
    for threads in (1, 2, 3, 5):
        e = engine_named("cpu", threads)
        s, g = (
            e.topic_sweep(x, words, prior, shares, steps=2),
            e.topic_bayes(x, words + x.dtype.type(0.01), prior + 0.1, shares + 1.0),
        )
        results.append(s.counts.tobytes() + s.shares.tobytes() + g.counts.tobytes() + g.logs.tobytes() + str(s.value + g.value).encode())  # fmt: skip
    assert len(set(results)) == 1


# ---- the sampler


def tiny():
    """Two documents of two and three tokens: 2^5 states."""
    return Counts.from_scipy(sparse.csr_array(np.array([[1.0, 1.0, 0.0], [0.0, 2.0, 1.0]])))


def log_joint(z, alpha, b):
    """log p(z, w) up to a constant, by the chain rule over tokens."""
    words, docs = [0, 1, 1, 1, 2], [0, 0, 1, 1, 1]
    nd, nw, nz, total = np.zeros((2, 2)), np.zeros((3, 2)), np.zeros(2), 0.0
    for i, t in enumerate(z):
        d, w = docs[i], words[i]
        total += np.log(nd[d, t] + alpha[t]) - np.log(nd[d].sum() + alpha.sum())
        total += np.log(nw[w, t] + b[w, t]) - np.log(nz[t] + b[:, t].sum())
        nd[d, t] += 1
        nw[w, t] += 1
        nz[t] += 1
    return total


@pytest.mark.parametrize("name", ["plain", "cpu"])
def test_the_chain_visits_states_as_often_as_they_are_probable(name):
    alpha, b = np.array([0.5, 1.5]), np.array([[0.3, 0.7], [0.5, 0.2], [0.4, 0.6]])
    states = list(itertools.product([0, 1], repeat=5))
    logs = np.array([log_joint(z, alpha, b) for z in states])
    p = np.exp(logs - logs.max())
    p /= p.sum()
    expected = sum(q * np.bincount(z, minlength=2)[0] for q, z in zip(p, states))
    in_word = sum(q * sum(t == 0 for t in z[1:4]) for q, z in zip(p, states))
    sweeps = 1500 if name == "plain" else 4000
    chain = engine_named(name, 1).topic_chain(tiny(), np.full((3, 2), 1 / 3), np.full((2, 2), 0.5), b, 5)
    for _ in range(sweeps):
        chain.sweep(alpha, average=True)
    mean = chain.mean_counts()
    assert mean[:, 0].sum() == pytest.approx(expected, abs=0.15)
    assert mean[1, 0] == pytest.approx(in_word, abs=0.15)


def test_chain_keeps_its_books(engine, data):
    x, words, prior, shares = data
    chain = engine.topic_chain(x, words + 1e-3, shares, np.full(words.shape, 0.1), 3)
    for i in range(6):
        assert np.isfinite(chain.sweep(prior + 0.1, average=i > 2))
        np.testing.assert_array_equal(chain.counts().sum(axis=1), np.bincount(x.indices, x.data, minlength=N))
        np.testing.assert_array_equal(chain.document_counts().sum(axis=1), np.asarray(x.to_scipy().sum(axis=1)).ravel())
    np.testing.assert_array_equal(chain.counts().sum(axis=0), chain.document_counts().sum(axis=0))
    before = chain.counts()
    chain.set_prior(np.full(words.shape, 2.0))
    np.testing.assert_array_equal(chain.counts(), before)
    np.testing.assert_allclose(chain.mean_counts().sum(), x.data.sum(), rtol=1e-6)


def test_chain_does_not_depend_on_threads(monkeypatch, data):
    import eckart.engines.cpu.topics.chain as module

    monkeypatch.setattr(module, "TOKENS_A_LANE", 200)
    x, words, prior, shares = data
    states = set()
    for threads in (1, 2, 4):
        chain = engine_named("cpu", threads).topic_chain(x, words + 1e-3, shares, np.full(words.shape, 0.1), 3)
        assert len(chain.parts) == 4
        values = [chain.sweep(prior + 0.1, average=True) for _ in range(4)]
        states.add(chain.topics.tobytes() + chain.mean_counts().tobytes() + str(values).encode())
    assert len(states) == 1


def test_the_value_of_a_sweep_is_the_log_likelihood_of_tokens_given_the_others():
    """With one topic nothing is random: the sum over tokens can be written out."""
    x = tiny()
    b = np.full((3, 1), 0.5)
    for name in ("plain", "cpu"):
        chain = engine_named(name, 1).topic_chain(x, np.full((3, 1), 1 / 3), np.ones((2, 1)), b, 0)
        counts, value = np.array([1.0, 3.0, 1.0]), 0.0
        for w in (0, 1, 1, 1, 2):
            value += np.log((counts[w] - 1 + 0.5) / (4 + 1.5))
        assert chain.sweep(np.array([0.7])) == pytest.approx(value, rel=1e-5)
