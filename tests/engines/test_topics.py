"""The primitives of topic models against their plain twins, on documents where each argument
matters."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from registry import cpu
from scipy import sparse

from eckart.engines import engine_named
from eckart.matrix import Counts
from oracle import JUDGE

PLAIN = JUDGE
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
    return (
        Counts.from_scipy(sparse.csr_array(a.astype(kind))),
        words.astype(kind),
        prior,
        shares.astype(kind),
    )


def assert_close(a, b, dtype, size=1.0):
    np.testing.assert_allclose(
        a,
        b,
        rtol=2e-4 if dtype == np.float32 else 1e-9,
        atol=size * (1e-5 if dtype == np.float32 else 1e-10),
    )


def get(engine, tall):
    return np.array(engine.get(tall))


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_topic_sweep(engine, data, steps):
    x, words, prior, shares = data
    (theta, a), (wanted, b) = (
        e.topic_sweep(e.put(x), words, prior, shares, steps=steps) for e in (engine, PLAIN)
    )
    assert_close(get(engine, theta), wanted, x.dtype)
    assert_close(a.counts, b.counts, x.dtype)
    assert_close(a.sizes, b.counts.sum(axis=0), x.dtype)
    assert_close(a.value, b.value, x.dtype, abs(b.value))
    assert_close(a.likelihood, b.likelihood, x.dtype, abs(b.value))
    assert a.value < a.likelihood
    assert a.seen == b.seen == x.data.sum() - x.data[x.indices == 11].sum()
    np.testing.assert_allclose(a.counts.sum(), a.seen, rtol=1e-5)
    assert theta.dtype == a.counts.dtype == x.dtype
    assert theta.shape == shares.shape


def test_topic_sweeps_go_on_from_the_shares_that_came_back(engine, data):
    x, words, prior, shares = data
    kept = shares.copy()
    ends = []
    for e in (engine, PLAIN):
        placed = e.put(x)
        theta, first = e.topic_sweep(placed, words, prior, shares, steps=2)
        theta, second = e.topic_sweep(placed, words, prior, theta)
        ends.append((get(e, theta), second.counts, first.merge(second).value))
    for a, b in zip(*ends):
        assert_close(a, b, x.dtype, 1e3)
    np.testing.assert_array_equal(shares, kept)  # an array of the caller is not written to


def test_statistics_of_parts_add_up(engine, data):
    x, words, prior, shares = data
    whole = engine.topic_sweep(x, words, prior, shares)[1]
    a = x.to_scipy()
    parts = [Counts.from_scipy(sparse.csr_array(a[i:j])) for i, j in ((0, 90), (90, D))]
    first, second = (
        engine.topic_sweep(p, words, prior, s)[1] for p, s in zip(parts, (shares[:90], shares[90:]))
    )
    for m, w in zip(first.merge(second)[:5], whole[:5]):
        assert_close(m, w, x.dtype, 1e3)


def test_topic_fold(engine, data):
    x, words, prior, shares = data
    for start in (shares, shares[0]):
        a, b = (e.topic_fold(e.put(x), words, prior, start, steps=4) for e in (engine, PLAIN))
        assert_close(get(engine, a), b, x.dtype)
    a, b = (
        e.topic_fold(x, words, prior + 0.1, shares, steps=50, tol=0.05) for e in (engine, PLAIN)
    )
    assert_close(get(engine, a), b, np.float32)


def test_topic_fold_without_prior_leaves_empty_documents_alone(engine, data):
    x, words, prior, shares = data
    found = get(engine, engine.topic_fold(x, words, 0 * prior, shares, steps=3))
    np.testing.assert_array_equal(found[7], shares[7])
    assert_close(found, PLAIN.topic_fold(x, words, 0 * prior, shares, steps=3), x.dtype)


def test_topic_sweep_stops_documents_that_stand_still(engine, data):
    x, words, prior, shares = data
    far = get(engine, engine.topic_fold(x, words, prior + 0.1, shares, steps=2000))
    near = get(engine, engine.topic_fold(x, words, prior + 0.1, shares, steps=2000, tol=1e-5))
    assert np.abs(far - near).sum(axis=1).max() < 0.02
    both = get(engine, engine.topic_sweep(x, words, prior + 0.1, shares, steps=2000, tol=1e-5)[0])
    assert np.abs(far - both).sum(axis=1).max() < 0.02


def test_topic_bayes(engine, data):
    x, words, prior, shares = data
    words, prior = words + 1e-3, prior + 0.05
    gamma = shares.astype(float) * 10 + 0.1
    (g, a), (h, b) = (
        e.topic_bayes(x, words.astype(x.dtype), prior, gamma, steps=7, tol=0.0)
        for e in (engine, PLAIN)
    )
    tokens = (
        h.sum(axis=1).max()
        # of the longest document: its gammas are its tokens, shared out, and a rounding of the
        # shares moves so many
    )
    assert_close(get(engine, g), h, x.dtype, tokens)
    assert_close(a.counts, b.counts, x.dtype)
    assert_close(a.logs, b.logs, x.dtype, 1e3)
    assert_close(a.value, b.value, x.dtype, abs(b.value))
    assert_close(a.likelihood, b.likelihood, x.dtype, abs(b.value))
    (g, a), (h, b) = (
        e.topic_bayes(x, words.astype(x.dtype), prior, t, steps=2, tol=0.0)
        for e, t in ((engine, g), (PLAIN, h))
    )
    assert_close(get(engine, g), h, x.dtype, tokens)
    same = [
        get(e, e.topic_bayes(x, words.astype(x.dtype), prior, prior + 1, steps=3)[0])
        for e in (engine, PLAIN)
    ]
    assert_close(*same, x.dtype, tokens)


def test_topic_scores(engine, data):
    x, words, _, shares = data
    for a, b in zip(
        engine.topic_scores(x, words, shares, 1e-12), PLAIN.topic_scores(x, words, shares, 1e-12)
    ):
        assert_close(a, b, x.dtype, abs(b))


def test_topic_totals_and_start(engine, data):
    x = data[0]
    totals = engine.topic_totals(x)
    np.testing.assert_array_equal(totals, np.bincount(x.indices, x.data, minlength=N))
    many = np.random.default_rng(0).random(2500)  # more words than draw from one stream
    a, b = (e.topic_start(many, 3, 7, x.dtype) for e in (engine, PLAIN))
    assert_close(a, b, x.dtype, 1e-2)
    assert a.dtype == x.dtype
    np.testing.assert_allclose(a.sum(axis=0), 1, rtol=1e-4)
    assert np.abs(a / PLAIN.topic_start(many, 3, 8, x.dtype) - 1).max() > 0.05


@pytest.mark.parametrize("kind", ["number", "matrix", "none"])
def test_topic_words(engine, data, kind):
    x, words, _, _ = data
    counts = (words * 50).astype(x.dtype)
    counts[:, 6] = 0  # a topic without counts
    prior = {"number": 0.3, "none": 0.0, "matrix": np.random.default_rng(1).random(words.shape)}[
        kind
    ]
    sizes = counts.sum(axis=0, dtype=float)
    a, b = (e.topic_words(counts, sizes, prior) for e in (engine, PLAIN))
    assert_close(a.words, b.words, x.dtype)
    assert_close(a.log_prior, b.log_prior, x.dtype, abs(b.log_prior))
    assert a.words.dtype == x.dtype
    again = engine.topic_words(counts, sizes, prior, np.float64)
    assert again.words.dtype == np.float64
    assert_close(
        engine.topic_words(a.words, np.ones(K), prior).words,
        PLAIN.topic_words(b.words, np.ones(K), prior).words,
        x.dtype,
    )


def test_topic_beliefs(engine, data):
    counts = data[1].astype(float) * 30 + 1e-4
    for prior in (0.2, np.random.default_rng(1).random(counts.shape)):
        for a, b in zip(engine.topic_beliefs(counts, prior), PLAIN.topic_beliefs(counts, prior)):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    tiny = engine.topic_beliefs(np.full((5, 3), 1e-5), 0.1)  # nothing underflows
    np.testing.assert_allclose(tiny.words, 1.0)
    assert np.isfinite(tiny.shift).all()


def test_threads_do_not_change_a_bit(data, monkeypatch):
    import eckart.engines.cpu.topics.layout as layout

    monkeypatch.setattr(layout, "WORK", 200)
    x, words, prior, shares = data
    results = set()
    for threads in (1, 2, 3, 5, 16):
        e = cpu(threads, 0)
        placed = e.put(x)
        theta, s = e.topic_sweep(placed, words, prior, shares, steps=2)
        gamma, g = e.topic_bayes(placed, words + x.dtype.type(0.01), prior + 0.1, shares + 1.0)
        w = e.topic_words(s.counts, s.sizes, 0.1)
        q = e.topic_beliefs(g.counts + 0.1, 0.1)
        assert len(placed.kept["topics"].parts(8)) > 16
        arrays = [theta, gamma, s.counts, s.sizes, g.counts, g.logs, w.words, q.words]
        values = [
            s.value,
            g.value,
            w.log_prior,
            *q[2:],
            *e.topic_scores(placed, words, theta, 1e-9),
        ]
        results.add(
            b"".join(np.ascontiguousarray(a).tobytes() for a in arrays) + str(values).encode()
        )
    assert len(results) == 1


# ---- the sampler


CHAINS = {"cpu": cpu(1, 0), "numpy": engine_named("numpy")}


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


@pytest.mark.parametrize("name", ["plain", *CHAINS])
def test_the_chain_visits_states_as_often_as_they_are_probable(name):
    alpha, b = np.array([0.5, 1.5]), np.array([[0.3, 0.7], [0.5, 0.2], [0.4, 0.6]])
    states = list(itertools.product([0, 1], repeat=5))
    logs = np.array([log_joint(z, alpha, b) for z in states])
    p = np.exp(logs - logs.max())
    p /= p.sum()
    expected = sum(q * np.bincount(z, minlength=2)[0] for q, z in zip(p, states))
    in_word = sum(q * sum(t == 0 for t in z[1:4]) for q, z in zip(p, states))
    sweeps = 1500 if name == "plain" else 4000
    chain = (CHAINS | {"plain": PLAIN})[name].topic_chain(
        tiny(), np.full((3, 2), 1 / 3), np.full((2, 2), 0.5), b, 5
    )
    for _ in range(sweeps):
        chain.sweep(alpha, average=True)
    mean = chain.mean_counts()
    assert mean[:, 0].sum() == pytest.approx(expected, abs=0.15)
    assert mean[1, 0] == pytest.approx(in_word, abs=0.15)


@pytest.mark.parametrize("exact", [True, False])
def test_chain_keeps_its_books(engine, data, exact, monkeypatch):
    import eckart.engines.cpu.topics.gibbs as module

    if not exact:
        monkeypatch.setattr(module, "EXACT_TOKENS", 0)
    x, words, prior, shares = data
    chain = engine.topic_chain(engine.put(x), words + 1e-3, shares, np.full(words.shape, 0.1), 3)
    lengths = np.asarray(x.to_scipy().sum(axis=1)).ravel()
    for i in range(6):
        assert np.isfinite(chain.sweep(prior + 0.1, average=i > 2))
        counts, drawn = chain.counts(), chain.draw(D, N)
        np.testing.assert_array_equal(
            counts.sum(axis=1), np.bincount(x.indices, x.data, minlength=N)
        )
        np.testing.assert_array_equal(drawn.documents.sum(axis=1), lengths)
        np.testing.assert_array_equal(drawn.words, counts)
        np.testing.assert_array_equal(drawn.sizes, counts.sum(axis=0))
        np.testing.assert_array_equal(drawn.documents.sum(axis=0), drawn.sizes)
        if i == 3:
            chain.set_prior(0.3)  # one number for all words
            np.testing.assert_array_equal(chain.counts(), counts)
    before, some = chain.counts(), chain.draw(100, 10)
    chain.set_prior(np.full(words.shape, 2.0))
    np.testing.assert_array_equal(chain.counts(), before)
    np.testing.assert_array_equal(some.documents, chain.draw(D, N).documents[::3])
    np.testing.assert_array_equal(some.words, before[::5])
    np.testing.assert_allclose(chain.mean_counts().sum(), x.data.sum(), rtol=1e-6)


def test_chain_does_not_depend_on_threads(monkeypatch, data):
    import eckart.engines.cpu.topics.gibbs as module
    import eckart.engines.cpu.topics.layout as layout

    monkeypatch.setattr(module, "EXACT_TOKENS", 0)
    monkeypatch.setattr(module, "WORK", 200)
    monkeypatch.setattr(layout, "WORK", 200)
    x, words, prior, shares = data
    states = set()
    for threads in (1, 2, 3, 5, 16):
        chain = cpu(threads, 0).topic_chain(x, words + 1e-3, shares, 0.1, 3)
        assert len(chain.parts) > 16
        assert chain.ends.shape[1] > 5
        values = [chain.sweep(prior + 0.1, average=True) for _ in range(4)]
        states.add(
            chain.topics.tobytes()
            + np.ascontiguousarray(chain.mean_counts()).tobytes()
            + str(values).encode()
        )
    assert len(states) == 1


def test_documents_side_by_side_end_where_the_exact_chain_does(monkeypatch):
    """Documents of two kinds: both samplers part them alike, and their log-likelihoods agree."""
    import eckart.engines.cpu.topics.gibbs as module

    rng = np.random.default_rng(0)
    phi = rng.dirichlet(np.full(60, 0.1), 3)
    a = np.vstack([rng.multinomial(60, t @ phi) for t in rng.dirichlet(np.full(3, 0.2), 400)])
    x, ends = Counts.from_scipy(sparse.csr_array(a.astype(float))), []
    for least, engine in ((10**9, cpu(2, 0)), (0, cpu(2, 0)), (0, CHAINS["numpy"])):
        monkeypatch.setattr(module, "EXACT_TOKENS", least)
        chain = engine.topic_chain(x, np.full((60, 3), 1 / 60), np.full(3, 1 / 3), 0.1, 1)
        values = [chain.sweep(np.full(3, 0.2), average=i >= 150) for i in range(250)]
        ends.append((np.mean(values[150:]) / a.sum(), chain.mean_counts()))
    for other in ends[1:]:
        assert ends[0][0] == pytest.approx(other[0], abs=2e-2)
        p, q = (c / c.sum(axis=0) for c in (ends[0][1], other[1]))
        assert (np.sqrt(p).T @ np.sqrt(q)).max(axis=1).min() > 0.99


def test_the_value_of_a_sweep_is_the_log_likelihood_of_tokens_given_the_others():
    """With one topic nothing is random: the sum over tokens can be written out."""
    x = tiny()
    b = np.full((3, 1), 0.5)
    for engine in (PLAIN, *CHAINS.values()):
        chain = engine.topic_chain(x, np.full((3, 1), 1 / 3), np.ones((2, 1)), b, 0)
        counts, value = np.array([1.0, 3.0, 1.0]), 0.0
        for w in (0, 1, 1, 1, 2):
            value += np.log((counts[w] - 1 + 0.5) / (4 + 1.5))
        assert chain.sweep(np.array([0.7])) == pytest.approx(value, rel=1e-5)
