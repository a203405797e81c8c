"""PLSA: likelihood, manners, and what it says about documents it has not seen."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

import eckart
from eckart import PLSA, InputError, align_topics
from eckart.engines import engine_named
from eckart.explain.em import climb
from eckart.explain.topics.topic_em import TopicProblem, start
from eckart.factors import Topics
from eckart.matrix import Counts
from eckart.trace import StopReason


def corpus(rng, documents=200, words=50, k=4, length=100, sparsity=0.1):
    phi = rng.dirichlet(np.full(words, sparsity), k)
    theta = rng.dirichlet(np.full(k, 0.3), documents)
    return phi, np.vstack([rng.multinomial(length, t @ phi) for t in theta])


def loglik(x, theta, words):
    p = theta @ words
    return float((x[x > 0] * np.log(p[x > 0])).sum() / x.sum())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("inner", [1, 3])
def test_the_likelihood_never_falls_and_is_that_of_the_trace(rng, dtype, inner):
    _, x = corpus(rng)
    engine = engine_named("cpu", 2)
    c = engine.put(Counts.from_scipy(sparse.csr_array(x.astype(dtype))))
    problem = TopicProblem(c, engine, np.zeros(4), 0.0, inner)
    before = []

    def expect(state, real=problem.expect):
        before.append(np.broadcast_to(engine.get(problem.shares), (200, 4)).copy())
        return real(state)

    problem.expect = expect
    found = climb(problem, problem.begin(start(c, 4, rng, dtype, engine)), tol=0.0, max_iter=60)
    values = np.array(found.trace.values)
    assert len(values) == 61
    assert (np.diff(values) > -(1e-6 if dtype == np.float32 else 1e-12)).all()
    if inner == 1:
        again = loglik(x, np.float64(before[-1]), np.float64(found.theta.words.T))
        assert values[-1] == pytest.approx(again, rel=1e-5 if dtype == np.float32 else 1e-11)


def test_planted_topics_are_found(rng):
    phi, x = corpus(rng, documents=600)
    model = PLSA(4, random_state=0).fit(x)
    assert align_topics(phi, model)[1].min() > 0.97
    assert model.certificate_.holds, model.certificate_
    assert (np.diff(model.sizes_) <= 0).all()
    assert model.sizes_.sum() == pytest.approx(1)
    np.testing.assert_allclose(model.components_.sum(), x.sum(), rtol=1e-9)


@pytest.mark.parametrize("kind", ["array", "csr", "coo", "frame", "counts", "float32"])
def test_every_door_gives_the_same_topics(rng, kind):
    pd = pytest.importorskip("pandas")
    _, x = corpus(rng, 60, 20, 2)
    doors = {
        "array": x,
        "csr": sparse.csr_matrix(x),
        "coo": sparse.coo_array(x),
        "frame": pd.DataFrame(x, columns=[f"w{j}" for j in range(20)]),
        "counts": Counts.from_scipy(sparse.csr_array(x)),
        "float32": x.astype(np.float32),
    }
    a, b = PLSA(2, random_state=3).fit(x), PLSA(2, random_state=3).fit(doors[kind])
    np.testing.assert_allclose(
        a.topic_word_, b.topic_word_, atol=1e-4 if kind == "float32" else 1e-12
    )
    assert b.components_.dtype == (np.float32 if kind == "float32" else np.float64)
    if kind == "frame":
        assert b.top_words(1)[0][0].startswith("w")


def test_seeds_and_threads_do_not_change_a_bit(rng):
    _, x = corpus(rng, 300, 80, 4)
    bits = {
        PLSA(4, random_state=5, n_threads=t, max_iter=20).fit(x).components_.tobytes()
        for t in (1, 2, 3)
    }
    assert len(bits) == 1


def test_empty_documents_unseen_words_and_small_shapes(rng):
    _, x = corpus(rng, 40, 20, 2)
    x[3], x[:, 5] = 0, 0
    model = PLSA(2, random_state=0).fit(x)
    assert (model.topic_word_[:, 5] == 0).all()
    shares = model.transform(np.vstack([np.zeros(20), np.eye(20)[5], x[0]]))
    np.testing.assert_allclose(shares[:2], 0.5)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert np.isfinite(model.score(x))
    one = PLSA(2, random_state=0).fit(np.full((5, 1), 3))
    np.testing.assert_allclose(one.topic_word_, 1)
    many = PLSA(12, random_state=0).fit(x[:3])
    assert np.isfinite(many.components_).all()
    nothing = PLSA(2, random_state=0).fit(np.zeros((3, 4)))
    np.testing.assert_allclose(nothing.topic_word_, 0.25)
    huge = PLSA(2, random_state=0).fit(x * 1e9)
    np.testing.assert_allclose(huge.topic_word_, model.topic_word_, atol=1e-6)


def test_refusals_name_the_place(rng):
    _, x = corpus(rng, 20, 6, 2)
    bad = x.astype(float)
    bad[2, 4] = -1
    with pytest.raises(
        InputError,
        match=r"Negative values in data passed.*: X must hold counts >= 0, got -1\.0 at row 2, word 4",
    ):
        PLSA(2).fit(bad)
    named = Counts.from_scipy(sparse.csr_array(bad), columns=np.array(list("abcdef"), object))
    with pytest.raises(InputError, match="word 'e'"):
        PLSA(2).fit(named)
    bad[2, 4] = np.inf
    with pytest.raises(InputError, match="inf at row 2, word 4"):
        PLSA(2).fit(bad)
    bad[2, 4] = np.nan
    with pytest.raises(InputError, match="NaN"):
        PLSA(2).fit(bad)
    with pytest.raises(InputError, match="write 0 where a word does not occur"):
        PLSA(2).fit(eckart.Observed.from_nan(bad))
    with pytest.raises(InputError, match="n_components must be an int >= 1, got 0"):
        PLSA(0).fit(x)
    with pytest.raises(InputError, match="6 features"):
        PLSA(2, random_state=0).fit(x).transform(x[:, :3])


def test_certificate_is_measured_again_and_fails_on_other_topics(rng):
    _, x = corpus(rng)
    model = PLSA(4, random_state=0, n_init=2).fit(x)
    again = model.certify(x)
    assert again.holds
    assert again["log-likelihood of a token"] == pytest.approx(
        model.certificate_["log-likelihood of a token"], rel=1e-9
    )
    assert model.certificate_["spread over starts"] >= 0
    t = model.fit_.factors
    wrong = clone(model)
    wrong.fit_ = eckart.fit.Fit(
        Topics(t.counts[:, ::-1].copy() + 0.5, t.prior, t.sizes),
        model.certificate_,
        model.fit_.trace,
    )
    failed = wrong.certify(x)
    assert not failed.holds
    assert "another EM step would add" in failed.reason
    short = PLSA(4, random_state=0, max_iter=16, tol=0).fit(x)
    assert not short.certificate_.holds or short.certificate_["last gain"] < 1e-3


def test_warm_start_keeps_the_numbers_of_topics(rng):
    _, x = corpus(rng, 300)
    model = PLSA(4, random_state=0, warm_start=True).fit(x[:150])
    before = model.topic_word_.copy()
    model.fit(x)
    partner, overlap = align_topics(before, model)
    np.testing.assert_array_equal(partner, np.arange(4))
    assert overlap.min() > 0.9


def test_save_load_pickle_and_parameters(rng, tmp_path):
    _, x = corpus(rng, 60, 20, 2)
    model = PLSA(2, random_state=0).fit(x)
    model.save(tmp_path / "m.safetensors")
    for back in (eckart.load(tmp_path / "m.safetensors"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(back.transform(x), model.transform(x))
        assert back.get_params() == model.get_params()
        assert back.certify(x).holds


def test_an_interrupt_keeps_the_last_state(rng, monkeypatch):
    _, x = corpus(rng, 60, 20, 2)
    calls = []
    real = TopicProblem.expect

    def expect(self, state):
        calls.append(1)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return real(self, state)

    monkeypatch.setattr(TopicProblem, "expect", expect)
    model = PLSA(2, random_state=0).fit(x)
    assert model.fit_.trace.reason is StopReason.INTERRUPTED
    assert model.n_iter_ == 4
    assert np.isfinite(model.topic_word_).all()
