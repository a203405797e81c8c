"""LDA by its four methods: topics that were planted, evidence, manners, edges."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.special import digamma
from sklearn.base import clone
from sklearn.decomposition import LatentDirichletAllocation

import eckart
from eckart import LDA, PLSA, InputError, align_topics
from eckart.engines import engine_named
from eckart.engines.protocol.topics import TopicDraw
from eckart.explain.topics.lda_variational import VariationalProblem
from eckart.explain.topics.lda_variational import solve as solve_variational
from eckart.explain.topics.priors import (
    TABLE,
    Priors,
    _Rise,
    dirichlet_of_logs,
    learned_alpha,
    learned_eta,
    symmetric_of_logs,
)
from eckart.factors import Topics
from eckart.fit import Fit
from eckart.matrix import Counts
from eckart.trace import StopReason

METHODS = ("gibbs", "cvb0", "variational", "online")
every = pytest.mark.parametrize("method", METHODS)


def corpus(rng, documents=400, words=60, k=4, length=80, alpha=0.2):
    phi = rng.dirichlet(np.full(words, 0.1), k)
    theta = rng.dirichlet(np.full(k, alpha), documents)
    return phi, theta, np.vstack([rng.multinomial(length, t @ phi) for t in theta])


@pytest.fixture(scope="module")
def planted():
    return corpus(np.random.default_rng(0))


@every
def test_planted_topics_are_found(planted, method):
    phi, theta, x = planted
    starts = {"cvb0": 4, "variational": 4}.get(
        method, 1
    )  # a single climb may end where two topics share one; Gibbs tries several by itself
    model = LDA(4, learning_method=method, random_state=0, n_init=starts).fit(x)
    partner, overlap = align_topics(phi, model)
    assert overlap.min() > 0.97
    assert np.abs(model.transform(x)[:, partner] - theta).mean() < 0.06
    assert model.certificate_.holds, model.certificate_
    assert (np.diff(model.sizes_) <= 0).all() or method == "online"
    assert model.fit_.plan["method"] == method
    halves = eckart.split_tokens(x, random_state=0)
    assert model.perplexity(x) < 1.02 * eckart.document_completion(phi, *halves).perplexity
    assert model.perplexity(x) == pytest.approx(np.exp(-model.score(x)))


@every
def test_threads_and_seeds_give_the_same_bits(method, monkeypatch):
    import eckart.engines.cpu.topics.gibbs as module
    import eckart.engines.cpu.topics.layout as layout

    monkeypatch.setattr(module, "EXACT_TOKENS", 2000)  # documents side by side, many ranges
    monkeypatch.setattr(module, "WORK", 500)
    monkeypatch.setattr(layout, "WORK", 500)
    _, _, x = corpus(np.random.default_rng(1), 200)
    bits = set()
    for threads in (1, 2, 3, 5, 16, 2):
        model = LDA(
            4,
            learning_method=method,
            max_iter=8,
            burn_in=7,
            n_samples=3,
            batch_size=50,
            random_state=3,
            n_threads=threads,
        ).fit(x)
        bits.add(
            model.components_.tobytes()
            + model.doc_topic_prior_.tobytes()
            + model.transform(x).tobytes()
        )
    assert len(bits) == 1
    other = LDA(4, learning_method=method, max_iter=8, random_state=4).fit(x)
    assert other.components_.tobytes() not in bits


@every
def test_bits_do_not_depend_on_where_memory_is_found(method):
    """Small arrays of a fit lie now near to each other, now apart; a sum that the compiler takes by
    vectors in one case alone is rounded otherwise."""
    _, _, x = corpus(np.random.default_rng(2), 60, 20, 3, 30)
    told, held = set(), []
    for size in (0, 40, 100, 200, 60, 24, 333, 80):
        held += [np.empty(size, np.uint8) for _ in range(5)]
        model = LDA(
            3,
            learning_method=method,
            max_iter=6,
            burn_in=6,
            n_samples=3,
            batch_size=30,
            random_state=0,
        ).fit(x)
        told.add(
            repr(model.fit_.trace.values)
            + repr(model.certificate_.facts)
            + repr(model.components_.tobytes())
        )
        del held[::2]
    assert len(told) == 1


@every
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype_is_kept_and_rows_are_shares(planted, method, dtype):
    x = planted[2][:60].astype(dtype)
    model = LDA(3, learning_method=method, max_iter=5, burn_in=2, n_samples=2, random_state=0).fit(
        sparse.csr_array(x)
    )
    assert model.components_.dtype == model.transform(x).dtype == dtype
    np.testing.assert_allclose(model.transform(x).sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(model.topic_word_.sum(axis=1), 1, rtol=1e-5)
    assert list(model.get_feature_names_out()) == ["lda0", "lda1", "lda2"]


@every
def test_edges(planted, method):
    x = planted[2][:40].copy()
    x[3], x[:, 5] = 0, 0
    options = {
        "learning_method": method,
        "max_iter": 5,
        "burn_in": 3,
        "n_samples": 2,
        "random_state": 0,
    }
    model = LDA(3, **options).fit(x)
    assert (model.topic_word_[:, 5] > 0).all()
    mean = model.doc_topic_prior_ / model.doc_topic_prior_.sum()
    np.testing.assert_allclose(model.transform(np.zeros((1, 60)))[0], mean, rtol=1e-4)
    assert np.isfinite(model.transform(np.eye(60)[[5]])).all()
    one = LDA(2, **options).fit(np.full((6, 1), 3))
    np.testing.assert_allclose(one.topic_word_, 1)
    assert np.isfinite(LDA(9, **options).fit(x[:3]).components_).all()
    empty = LDA(2, **options).fit(np.zeros((3, 4)))
    assert np.isfinite(empty.components_).all()
    np.testing.assert_allclose(empty.topic_word_, 0.25, atol=0.05)


@pytest.mark.parametrize("method", ["cvb0", "variational", "online"])
def test_huge_counts_and_weights(planted, method):
    x = planted[2][:80]
    options = {
        "learning_method": method,
        "random_state": 0,
        "doc_topic_prior": 0.1,
        "topic_word_prior": 0.05,
    }
    huge = LDA(3, **options).fit(x * 1e9)
    assert np.isfinite(huge.components_).all()
    assert huge.components_.sum() == pytest.approx(x.sum() * 1e9, rel=1e-3)
    weights = LDA(3, **options).fit(x * 0.37)
    assert np.isfinite(weights.perplexity(x * 0.37))
    assert LDA(3, random_state=0, max_iter=3).fit(x * 0.37).fit_.plan["method"] == "cvb0"
    with pytest.raises(
        InputError,
        match=r"X must hold whole numbers, got 3\.33 at row 0, word 5: learning_method='gibbs' samples a",
    ):
        LDA(3, learning_method="gibbs").fit(x * 0.37)


@pytest.mark.parametrize("method", ["gibbs", "cvb0", "variational"])
def test_two_thousand_topics_in_single_precision_are_finite(rng, method):
    x = rng.poisson(0.4, (60, 80)).astype(np.float32)
    options = {
        "max_iter": 2,
        "burn_in": 1,
        "n_samples": 1,
        "doc_topic_prior": None,
        "topic_word_prior": None,
    }
    model = LDA(2000, learning_method=method, random_state=0, **options).fit(x)
    assert model.components_.dtype == np.float32
    assert np.isfinite(model.components_).all()
    assert np.isfinite(model.transform(x)).all()
    assert np.isfinite(model.perplexity(x))


@pytest.mark.parametrize("most", [3, TABLE - 1, TABLE, TABLE + 1, 3 * TABLE])
def test_sums_of_a_prior_step_are_differences_of_digamma(rng, most):
    """Counts beyond the table have their own way; at its edge both must agree."""
    n = rng.integers(0, most, (40, 3))
    n[0], n[1] = most, [0, most, 1]
    a = np.array([0.03, 0.7, 12.0])
    assert_allclose(_Rise(n)(a), (digamma(n + a) - digamma(a)).sum(axis=0), rtol=1e-10)


# ---- the variational bound


@pytest.mark.parametrize("learn", [False, True])
def test_the_variational_bound_never_falls(planted, learn):
    x = engine_named("cpu", 2).put(Counts.from_scipy(sparse.csr_array(planted[2].astype(float))))
    priors = Priors(np.full(4, 0.3), 0.2, None, learn, learn)
    best = solve_variational(
        x,
        priors,
        tol=0.0,
        max_iter=40,
        n_init=1,
        inner=20,
        inner_tol=1e-4,
        engine=engine_named("cpu", 2),
        rng=np.random.default_rng(0),
    )
    values = np.array(best.trace.values)
    assert len(values) == 41
    assert (np.diff(values) > -1e-11).all()


def test_the_bound_and_the_document_step_are_those_of_scikit_learn(planted):
    x = planted[2][:100]
    rival = LatentDirichletAllocation(
        4,
        doc_topic_prior=0.3,
        topic_word_prior=0.2,
        max_iter=3,
        learning_method="batch",
        random_state=0,
        mean_change_tol=1e-9,
        max_doc_update_iter=2000,
    ).fit(x)
    c = Counts.from_scipy(sparse.csr_array(x.astype(float)))
    engine, priors = engine_named("cpu", 1), Priors(np.full(4, 0.3), 0.2, None, False, False)
    problem = VariationalProblem(engine.put(c), priors, engine, 5000, 1e-10)
    value = problem.expect(problem.begin(np.ascontiguousarray(rival.components_.T))).bound
    gamma = np.array(engine.get(problem.gamma))
    theirs, _ = rival._e_step(sparse.csr_matrix(x.astype(float)), False, False)
    np.testing.assert_allclose(gamma, theirs, rtol=1e-5, atol=1e-6)
    assert value == pytest.approx(
        rival._approx_bound(sparse.csr_matrix(x.astype(float)), gamma, sub_sampling=False), rel=1e-8
    )


# ---- priors


def _minka_eta(drawn, eta):
    """One step, written out."""
    n = drawn.n
    up = n / len(drawn.words) * (digamma(drawn.words + eta) - digamma(eta)).sum()
    return eta * up / (n * (digamma(drawn.sizes + n * eta) - digamma(n * eta)).sum())


def test_learned_priors_are_those_that_made_the_counts(rng):
    alpha = np.array([0.1, 0.3, 0.8])
    n = np.vstack([rng.multinomial(100, rng.dirichlet(alpha)) for _ in range(3000)])
    np.testing.assert_allclose(learned_alpha(n, np.full(3, 0.5), 200), alpha, rtol=0.1)
    words = rng.multinomial(5000, rng.dirichlet(np.full(500, 0.05), 20)[:, :]).T
    assert learned_eta(TopicDraw(n, words, 500, words.sum(axis=0)), 0.5, 100) == pytest.approx(
        0.05, rel=0.1
    )
    # counts beyond the table of sums
    big = TopicDraw(n, words[::2] * 5000, 500, words.sum(axis=0) * 5000)
    wanted = _minka_eta(big, 0.5)
    assert learned_eta(big, 0.5, 1) == pytest.approx(wanted, rel=1e-10)
    logs = np.log(rng.dirichlet(alpha, 20000)).mean(axis=0)
    np.testing.assert_allclose(dirichlet_of_logs(logs, np.ones(3), 500), alpha, rtol=0.05)
    log = np.log(rng.dirichlet(np.full(50, 0.4), 5000)).mean()
    assert symmetric_of_logs(log, 1.0, 50, 500) == pytest.approx(0.4, rel=0.05)


@every
def test_priors_are_kept_or_learned(planted, method):
    x = planted[2]
    options = {"learning_method": method, "random_state": 0, "batch_size": 40}
    kept = LDA(4, doc_topic_prior=0.3, topic_word_prior=0.07, **options).fit(x)
    np.testing.assert_array_equal(kept.doc_topic_prior_, np.full(4, 0.3))
    assert kept.topic_word_prior_ == 0.07
    none = LDA(4, doc_topic_prior=None, topic_word_prior=None, **options).fit(x)
    assert none.doc_topic_prior_[0] == none.topic_word_prior_ == 0.25
    learned = LDA(4, **options).fit(x)
    assert len(set(learned.doc_topic_prior_)) == 4
    assert 0.1 < learned.doc_topic_prior_.mean() < 0.4
    array = LDA(
        4, doc_topic_prior=[0.1, 0.2, 0.3, 0.4], topic_word_prior=np.full((4, 60), 0.1), **options
    ).fit(x)
    np.testing.assert_array_equal(array.doc_topic_prior_, [0.1, 0.2, 0.3, 0.4])
    assert array.topic_word_prior_.shape == (4, 60)


@pytest.mark.parametrize(
    ("option", "match"),
    [
        ({"doc_topic_prior": -1.0}, r"doc_topic_prior must be finite numbers > 0, got -1\.0"),
        (
            {"doc_topic_prior": "fixed"},
            "doc_topic_prior must be 'auto', None, a number > 0 or an array of them, got 'fixed'",
        ),
        (
            {"topic_word_prior": np.ones(7)},
            r"topic_word_prior must have shape \(\) or \(60,\) or \(4, 60\), got \(7,\)",
        ),
        (
            {"learning_method": "em"},
            "learning_method must be 'auto', 'gibbs', 'cvb0', 'variational', 'batch' or 'online',",
        ),
        ({"learning_decay": 2.0}, r"learning_decay must be a number > 0 and <= 1, got 2\.0"),
        ({"n_samples": 0}, "n_samples must be an int >= 1, got 0"),
        ({"max_iter": -1}, "max_iter must be None or an int >= 0, got -1"),
        ({"seed_words": {9: [1]}}, "seed_words must be topics from 0 to 3, got 9"),
        ({"seed_words": {0: ["nothing"]}}, "'nothing' for topic 0"),
    ],
)
def test_refusals(planted, option, match):
    with pytest.raises(InputError, match=match):
        LDA(4, **option).fit(planted[2][:20])


# ---- numbers of topics


@every
def test_seed_words_lean_topics_and_fix_their_numbers(planted, method):
    phi, _, x = planted
    seeds = {z: np.argsort(-phi[z])[:3].tolist() for z in (2, 0)}
    model = LDA(4, learning_method=method, seed_words=seeds, random_state=1).fit(x)
    for z in seeds:
        assert align_topics(phi[[z]], model.topic_word_[[z]])[1][0] > 0.9


@every
def test_a_warm_start_keeps_the_numbers(planted, method):
    x = planted[2]
    model = LDA(4, learning_method=method, random_state=0, warm_start=True).fit(x[:200])
    before = model.topic_word_.copy()
    partner, overlap = align_topics(before, model.fit(x))
    np.testing.assert_array_equal(partner, np.arange(4))
    assert overlap.min() > 0.95


# ---- streams


def test_partial_fit_and_shards_see_each_document_once(planted, tmp_path):
    phi, _, x = planted
    parts = [sparse.csr_array(x[i : i + 50]) for i in range(0, 400, 50)]
    model = LDA(4, random_state=0)
    for part in parts:
        model.partial_fit(part)
    assert align_topics(phi, model)[1].min() > 0.9
    assert model.fit_.plan["documents"] == 400
    assert model.fit_.plan["tokens"] == x.sum()
    eckart.write_shards(parts, tmp_path)
    streamed = LDA(4, random_state=0, max_iter=2).fit(eckart.shards(tmp_path / "*.npz"))
    assert align_topics(phi, streamed)[1].min() > 0.9
    assert streamed.fit_.plan["batches"] == 9
    again = LDA(4, random_state=0, max_iter=2).fit(parts)
    np.testing.assert_array_equal(again.components_, streamed.components_)
    half = LDA(4, random_state=0)
    for part in parts[:4]:
        half.partial_fit(part)
    half.save(tmp_path / "half.safetensors")
    back = eckart.load(tmp_path / "half.safetensors")
    for part in parts[4:]:
        back.partial_fit(part)
    assert back.fit_.plan["documents"] == 400
    np.testing.assert_allclose(back.topic_word_, model.topic_word_, atol=1e-3)
    with pytest.raises(InputError, match="60 features"):
        model.partial_fit(x[:3, :10])
    with pytest.raises(eckart.FileError, match="matches no file"):
        eckart.shards(tmp_path / "*.parquet")


# ---- evidence


@every
def test_the_certificate_is_measured_again_and_fails_on_other_topics(planted, method, rng):
    x = planted[2]
    starts = {"cvb0": 4, "variational": 4}.get(method, 1)  # as above
    model = LDA(4, learning_method=method, random_state=0, n_init=starts).fit(x)
    assert model.certify(x).holds
    t = model.fit_.factors
    wrong = clone(model)
    wrong._eta = model._eta
    shuffled = np.ascontiguousarray(t.counts[:, rng.permutation(60)])
    wrong.fit_ = Fit(
        Topics(shuffled, t.prior, t.sizes), model.certificate_, model.fit_.trace, model.fit_.plan
    )
    assert not wrong.certify(x).holds


def test_chains_from_several_starts_are_compared(planted):
    model = LDA(4, n_init=2, random_state=0).fit(planted[2])
    assert model.certificate_["starts"] == 2
    assert model.certificate_["overlap between starts"] > 0.98


@every
def test_save_load_and_pickle(planted, method, tmp_path):
    x = planted[2][:80]
    model = LDA(3, learning_method=method, max_iter=4, burn_in=2, n_samples=2, random_state=0).fit(
        x
    )
    model.save(tmp_path / "m.safetensors")
    for back in (eckart.load(tmp_path / "m.safetensors"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(back.transform(x), model.transform(x))
        assert back.topic_word_prior_ == model.topic_word_prior_
        assert back.certificate_ == model.certificate_
        assert back.certify(x).kind == model.certificate_.kind


@pytest.mark.in_one_piece
@pytest.mark.parametrize("method", ["gibbs", "cvb0", "online"])
def test_an_interrupt_keeps_what_there_is(planted, method, monkeypatch):
    import eckart.engines.cpu.topics.primitives as topics
    from eckart.engines.arrays.topics import ArrayChain

    owner, name, at = (
        (ArrayChain, "sweep", 8)
        if method == "gibbs"
        else (topics.TopicPrimitives, "topic_sweep", 12)
    )
    real, calls = getattr(owner, name), []

    def interrupted(self, *args, **more):
        calls.append(1)
        if len(calls) == at:
            raise KeyboardInterrupt
        return real(self, *args, **more)

    monkeypatch.setattr(owner, name, interrupted)
    options = {"batch_size": 100} if method == "online" else {}
    monkeypatch.setattr("eckart.explain.topics.lda_online.PASSES", 9)
    model = LDA(4, learning_method=method, random_state=0, **options).fit(planted[2])
    assert model.fit_.trace.reason is StopReason.INTERRUPTED
    assert not model.certificate_.holds
    assert "interrupted" in model.certificate_.reason
    assert np.isfinite(model.topic_word_).all()


def test_scores_do_not_depend_on_how_many_documents_there_are():
    rng = np.random.default_rng(5)
    _, _, x = corpus(rng, 1400)
    model = LDA(4, random_state=0).fit(x[:400])
    whole = model.score(x[400:])
    few = [model.score(x[i : i + 10]) for i in range(400, 500, 10)]
    assert np.mean(few) == pytest.approx(
        whole, abs=5 * np.std(few, ddof=1) / np.sqrt(len(few))
    )  # five standard errors of ten groups of documents
    assert (
        np.max(np.abs(np.array(few) - whole)) < 1.0
    )  # groups of ten deviate by 0.13; a sum over documents in place of a mean would by tens


@pytest.mark.parametrize("model", [LDA(2, random_state=0), PLSA(2, random_state=0)])
def test_texts_are_counted_without_the_words_of_most_documents(model):
    texts = ["said cat purrs", "said dog barks", "said cat dog", "rain falls said", "rain on cat"]
    model.fit(texts)
    words = {word for topic in model.top_words(10) for word in topic}
    assert "said" not in words
    assert {"dog", "rain", "barks"} <= words
    shares = model.transform(["said rain again", "dog"])
    assert_allclose(shares.sum(axis=1), 1.0)
    assert_allclose(shares[1], model.transform(np.array(["dog"]))[0])
