"""Line 3.2 of the specification, one test for each statement."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy import sparse
from sklearn.decomposition import NMF

import eckart
from eckart import PLSA
from eckart.engines import engine_named
from eckart.explain.em import climb
from eckart.explain.topics.topic_em import TopicProblem, start
from eckart.matrix import Counts


@pytest.fixture
def x(rng):
    phi, theta = rng.dirichlet(np.full(40, 0.2), 3), rng.dirichlet(np.full(3, 0.4), 90)
    return np.vstack([rng.multinomial(70, t @ phi) for t in theta]).astype(float)


def kl(x, y):
    """The generalised KL divergence of x from y."""
    held = x > 0
    return float((x[held] * np.log(x[held] / y[held])).sum() - x.sum() + y.sum())


def factors(x, k, steps, rng):
    engine = engine_named("cpu", 1)
    c = engine.put(Counts.from_scipy(sparse.csr_array(x)))
    problem, shares = TopicProblem(c, engine, np.zeros(k), 0.0), []

    def each(words, statistics, trace):
        shares.append(np.array(engine.get(problem.shares)))

    found = climb(
        problem, problem.begin(start(c, k, rng, float, engine)), tol=0.0, max_iter=steps, each=each
    )
    return shares[-1], np.array(found.theta.words).T, found.trace


def test_3_2_the_model_is_a_mixture_of_topics_and_its_likelihood_is_what_is_maximised(x):
    model = PLSA(3, random_state=0).fit(x)
    p = model.transform(x) @ model.topic_word_
    np.testing.assert_allclose(p.sum(axis=1), 1)
    mine = (x[x > 0] * np.log(p[x > 0])).sum() / x.sum()
    # the certificate folds documents in to 1e-3 of a share, ``transform`` further: what is left can
    # only rise, and by less than that
    assert -1e-6 < mine - model.certificate_["log-likelihood of a token"] < 1e-3
    rng = np.random.default_rng(1)
    for _ in range(20):
        noise = model.topic_word_ * np.exp(0.05 * rng.standard_normal((3, 40)))
        q = model.transform(x) @ (noise / noise.sum(axis=1, keepdims=True))
        assert (x[x > 0] * np.log(q[x > 0])).sum() / x.sum() < mine


def test_3_2_em_works_on_counts_never_on_tokens(x):
    a, b = PLSA(3, random_state=0).fit(x), PLSA(3, random_state=0).fit(x * 1e6)
    np.testing.assert_allclose(a.topic_word_, b.topic_word_, atol=1e-8)
    big = sparse.random(4000, 2000, 0.02, format="csr", random_state=0)
    big.data = np.rint(big.data * 1e4)
    PLSA(32, random_state=0, max_iter=2).fit(big[:200])  # what compiling takes is not on the bill
    tracemalloc.start()
    PLSA(32, random_state=0, max_iter=16).fit(big)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.5 * big.nnz * 32 * 8


def test_3_2_new_documents_by_fold_in(x):
    model = PLSA(3, random_state=0).fit(x[:60])
    shares = model.transform(x[60:])
    y = x[60:]
    best = (y * np.log(np.maximum(shares @ model.topic_word_, 1e-300))).sum(axis=1)
    rng = np.random.default_rng(0)
    for _ in range(30):
        other = rng.dirichlet(np.ones(3), len(y)) * 0.1 + 0.9 * shares
        assert (
            best >= (y * np.log(np.maximum(other @ model.topic_word_, 1e-300))).sum(axis=1) - 1e-2
        ).all()


def test_3_2_top_words_per_topic(x):
    model = PLSA(3, random_state=0).fit(x)
    tops = model.top_words(5)
    for z in range(3):
        assert tops[z] == np.argsort(-model.topic_word_[z], kind="stable")[:5].tolist()


def test_3_2_plsa_is_nmf_under_kl_divergence_up_to_scaling(x, rng):
    """One EM step is one pair of multiplicative updates, and the optima agree."""
    theta, words, trace = factors(x, 3, 3000, rng)
    scale = x.sum(axis=1)
    divergence = kl(x, (scale[:, None] * theta) @ words)
    constant = (x[x > 0] * np.log(x[x > 0])).sum() - (x.sum(axis=1) * np.log(x.sum(axis=1))).sum()
    assert divergence == pytest.approx(constant - x.sum() * trace.values[-1] + 0.0, rel=1e-9)
    w, h = scale[:, None] * theta, words.copy()
    rival = NMF(3, solver="mu", beta_loss="kullback-leibler", init="custom", max_iter=2000, tol=0)
    w2 = rival.fit_transform(x, W=w.copy(), H=h.copy())
    theirs = kl(x, w2 @ rival.components_)
    assert theirs == pytest.approx(divergence, rel=1e-4)
    rescaled = rival.components_ / rival.components_.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(rescaled, words, atol=2e-3)
    mixed = w2 * rival.components_.sum(axis=1)
    np.testing.assert_allclose(mixed.sum(axis=1), scale, rtol=1e-3)  # KL keeps the rows' sums


def test_3_2_plsa_is_the_nmf_of_this_library_under_kl_divergence(x):
    """From the optimum of one, the other finds nothing better; both certificates speak of the same
    factors."""
    model = PLSA(3, random_state=0, tol=1e-9, max_iter=2000).fit(x)
    w, h = x.sum(axis=1, keepdims=True) * model.transform(x), model.topic_word_
    nmf = eckart.NMF(3, beta_loss="kullback-leibler", random_state=0, max_iter=2000, tol=1e-8)
    mine, theirs = kl(x, w @ h), kl(x, nmf.fit_transform(x) @ nmf.components_)
    assert mine == pytest.approx(theirs, rel=5e-3)
    rescaled = nmf.components_ / nmf.components_.sum(axis=1, keepdims=True)
    assert eckart.align_topics(h, rescaled)[1].min() > 0.99
