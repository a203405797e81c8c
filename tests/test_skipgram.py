"""SkipGram: the optimum is known, threads and interruptions are harmless, bad input is refused in
words."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import eckart
from eckart.certify.pairs import PairWeights, measure
from eckart.embed import skipgram_train
from eckart.embed.sequences import keep_probability, sequences
from eckart.embed.skipgram import SkipGram, thinned
from eckart.engines.cpu.engine import CpuEngine
from eckart.errors import InputError
from eckart.factors import Embedding
from eckart.matrix import Counts
from eckart.trace import StopReason


def table(seed=0, n=7):
    """Counts of pairs that all occur."""
    rng = np.random.default_rng(seed)
    a = rng.integers(1, 60, (n, n)).astype(float)
    return counts_of(a + a.T)


def counts_of(a):
    from scipy import sparse

    x = sparse.csr_array(a)
    words = np.array([f"w{i}" for i in range(len(a))], object)
    return Counts(x.indptr, x.indices, x.data, len(a), words, words)


def topics(seed=0, sentences=3000, length=8):
    """Sentences about one of three things each."""
    rng = np.random.default_rng(seed)
    groups = [[f"{g}{i}" for i in range(12)] for g in "abc"]
    return [[str(w) for w in rng.choice(groups[rng.integers(3)], length)] for _ in range(sentences)]


@pytest.mark.parametrize("r", [1, 5])
def test_exact_vectors_end_at_shifted_pmi(r):
    x = table()
    model = SkipGram(
        7, negatives=r, noise_exponent=1.0, max_iter=5000, tol=1e-15, random_state=0
    ).fit(x)
    n = x.to_scipy().toarray()
    pmi = np.log(n * n.sum() / np.outer(n.sum(axis=1), n.sum(axis=0)))
    f = model.fit_.factors
    np.testing.assert_allclose(f.vectors @ f.context.T, pmi - np.log(r), atol=2e-3)
    assert model.certificate_.holds
    assert abs(model.certificate_["gap"]) < 1e-6


def test_exact_softmax_ends_at_the_conditional_distribution():
    x = table(1)
    model = SkipGram(7, loss="softmax", bias=True, max_iter=5000, tol=1e-15, random_state=0).fit(x)
    f = model.fit_.factors
    s = f.vectors @ f.context.T + f.context_bias
    p = np.exp(s) / np.exp(s).sum(axis=1, keepdims=True)
    n = x.to_scipy().toarray()
    np.testing.assert_allclose(p, n / n.sum(axis=1, keepdims=True), atol=1e-4)
    assert model.certificate_["gap"] == pytest.approx(0, abs=1e-6)


def test_stochastic_vectors_come_near_pmi():
    rng = np.random.default_rng(0)
    transition = rng.dirichlet(np.full(6, 2.0), 6)
    walk = [0]
    for _ in range(200_000):
        walk.append(int(np.searchsorted(np.cumsum(transition[walk[-1]]), rng.random())))
    lines = np.array_split(np.array(walk) % 6, 400)
    model = SkipGram(
        6,
        window=1,
        negatives=1,
        noise_exponent=1.0,
        sample=None,
        min_count=1,
        max_iter=30,
        learning_rate=0.05,
        random_state=0,
        deterministic=True,
    ).fit([line.tolist() for line in lines])
    n = (
        eckart.cooccurrence([line.tolist() for line in lines], window=1, min_count=1)
        .to_scipy()
        .toarray()
    )
    pmi = np.log(n * n.sum() / np.outer(n.sum(axis=1), n.sum(axis=0)))
    f = model.fit_.factors
    assert np.abs(f.vectors @ f.context.T - pmi).max() < 0.1


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    loss=st.sampled_from(["negative", "softmax"]),
    r=st.sampled_from([1.0, 3.0, 5.0]),
)
def test_no_vectors_beat_the_lower_bound(seed, loss, r):
    rng = np.random.default_rng(seed)
    x = counts_of(rng.poisson(1.5, (6, 6)) * rng.integers(1, 4, (6, 6)) + np.eye(6))
    k = int(rng.integers(1, 7))
    f = Embedding(*rng.normal(0, rng.random() * 3, (2, 6, k)), None, rng.standard_normal(6))
    m = measure(PairWeights(x, rng.dirichlet(np.ones(6)), r, loss), f, CpuEngine(1))
    assert m.loss >= m.bound - 1e-9


@pytest.mark.parametrize("loss", ["negative", "softmax"])
def test_measured_gradient_is_the_derivative_of_the_measured_loss(loss):
    rng = np.random.default_rng(3)
    x = counts_of(rng.poisson(2.0, (5, 5)) + np.eye(5))
    vectors, context = rng.standard_normal((2, 5, 3))
    problem = PairWeights(x, np.full(5, 0.2), 2.0, loss)
    slope = np.zeros_like(vectors)
    for at in np.ndindex(vectors.shape):
        ends = []
        for h in (1e-5, -1e-5):
            moved = vectors.copy()
            moved[at] += h
            ends.append(measure(problem, Embedding(moved, context), CpuEngine(1)).loss)
        slope[at] = (ends[0] - ends[1]) / 2e-5
    s = vectors @ context.T
    n = x.to_scipy().toarray()
    total = n.sum(axis=1, keepdims=True)
    if loss == "negative":
        plus, minus = n / (1 + np.exp(s)), 2.0 * total * 0.2 / (1 + np.exp(-s))
    else:
        plus, minus = n, total * np.exp(s) / np.exp(s).sum(axis=1, keepdims=True)
    size = np.linalg.norm(plus @ context) + np.linalg.norm(minus @ context)
    expected = np.linalg.norm(slope) * n.sum() / size
    assert measure(problem, Embedding(vectors, context), CpuEngine(1)).gradient == pytest.approx(
        expected, rel=1e-5
    )


def test_words_of_one_group_are_neighbours():
    model = SkipGram(16, min_count=1, sample=None, max_iter=5, random_state=0).fit(topics())
    v = model.vectors_
    for word in v.words:
        assert all(near[0] == word[0] for near, _ in v.neighbours(word, 5))
    assert model.certificate_.holds
    assert len(model.fit_.trace.values) == 5
    assert model.fit_.trace.values[-1] < model.fit_.trace.values[0]


def grouped(groups, words, sentences, length, seed=0):
    """Sentences of the words of one group each."""
    rng = np.random.default_rng(seed)
    drawn = rng.integers(words // groups, size=(sentences, length)) * groups + rng.integers(
        groups, size=(sentences, 1)
    )
    return [[f"w{j}" for j in row] for row in drawn]


@pytest.mark.parametrize(
    ("groups", "words", "sentences"), [(4, 20, 200), (6, 60, 500), (10, 300, 500)]
)
def test_few_and_frequent_words_are_learned_by_default(groups, words, sentences):
    model = SkipGram(random_state=0, deterministic=True).fit(grouped(groups, words, sentences, 8))
    # the groups alone are worth log(groups) of a pair, and more
    assert model.certificate_["loss over chance"] < -1
    assert model.certificate_.holds
    v = model.vectors_
    near = [v.neighbours(word, 1)[0][0] for word in v.words]
    assert all((int(a[1:]) - int(b[1:])) % groups == 0 for a, b in zip(near, v.words))
    assert model.fit_.plan["sample"] == pytest.approx(max(1e-3, 1 / len(v.words)))
    assert 5 < model.fit_.plan["passes"] <= 1000


def test_vectors_that_know_only_counts_have_no_certificate_and_say_what_to_do():
    with pytest.warns(UserWarning, match="use PMI, which uses every pair"):
        model = SkipGram(random_state=0, sample=1e-3, max_iter=5, deterministic=True).fit(
            grouped(6, 60, 500, 8)
        )
    assert not model.certificate_.holds
    assert "loss over chance" in model.certificate_.reason


def test_passes_follow_the_length_of_the_text():
    assert [SkipGram()._passes(kept) for kept in (1e3, 1e5, 1e7, 2e7, 1e9)] == [1000, 15, 15, 8, 5]
    assert SkipGram(max_iter=2)._passes(10.0) == 2
    assert SkipGram()._sample(50_000) == 1e-3
    assert SkipGram(sample=None)._sample(10) is None


def test_untrained_vectors_have_no_certificate():
    model = SkipGram(
        16, min_count=1, max_iter=1, learning_rate=1e-9, last_learning_rate=0, random_state=0
    ).fit(topics())
    assert not model.certificate_.holds
    assert "loss over chance" in model.certificate_.reason


@pytest.mark.parametrize("bias", [False, True])
def test_deterministic_bits_do_not_depend_on_threads(bias):
    def fit(threads, seed=0):
        return SkipGram(
            8,
            min_count=1,
            max_iter=2,
            deterministic=True,
            bias=bias,
            random_state=seed,
            n_threads=threads,
        )

    ends = [fit(t).fit(topics()).fit_.factors for t in (1, 2, 5)]
    other = fit(1, seed=1).fit(topics()).fit_.factors
    for f in ends[1:]:
        assert f.vectors.tobytes() == ends[0].vectors.tobytes()
        assert f.context.tobytes() == ends[0].context.tobytes()
    assert (ends[0].context_bias is not None) == bias
    assert other.vectors.tobytes() != ends[0].vectors.tobytes()


def test_items_may_be_numbers():
    rng = np.random.default_rng(0)
    baskets = [rng.choice(np.arange(10) + 100 * (i % 2), 8).tolist() for i in range(2000)]
    model = SkipGram(8, min_count=1, sample=None, random_state=0).fit(baskets)
    assert all(item >= 100 for item, _ in model.vectors_.neighbours(103, 5))
    means = model.transform([[103, 104], [3], [55555], []])
    assert means.shape == (4, 8)
    assert means[:2].any(axis=1).all()
    assert not means[2:].any()


def test_text_in_vectors_out_in_a_pipeline():
    texts = [" ".join(words) for words in topics(1, 600)]
    labels = [text[0] for text in texts]
    model = make_pipeline(
        SkipGram(8, min_count=1, max_iter=10, sample=None, random_state=0), LogisticRegression()
    )
    assert model.fit(texts[:400], labels[:400]).score(texts[400:], labels[400:]) > 0.99
    first = model[0]
    np.testing.assert_allclose(
        first.transform(["a1 a1 b2 zzz"])[0],
        (2 * first.vectors_["a1"] + first.vectors_["b2"]) / 3,
        rtol=1e-5,
    )
    assert first.get_feature_names_out().tolist() == [f"skipgram{i}" for i in range(8)]
    assert clone(first).get_params() == first.get_params()


def test_saved_and_loaded(tmp_path):
    model = SkipGram(8, min_count=1, max_iter=2, bias=True, random_state=0).fit(topics())
    model.save(tmp_path / "m.safetensors")
    again = eckart.load(tmp_path / "m.safetensors")
    assert again.vectors_.vectors.tobytes() == model.vectors_.vectors.tobytes()
    assert again.vectors_.words.tolist() == model.vectors_.words.tolist()
    assert (again.fit_.factors.context_bias == model.fit_.factors.context_bias).all()
    assert (again.transform(["a1 b2"]) == model.transform(["a1 b2"])).all()
    assert str(again.certificate_) == str(model.certificate_)


def test_certificate_can_be_measured_again():
    text = topics()
    model = SkipGram(8, min_count=1, max_iter=2, random_state=0, deterministic=True).fit(text)
    again = model.certify(text)
    assert again["loss of a pair"] == model.certificate_["loss of a pair"]
    assert again.holds == model.certificate_.holds
    with pytest.raises(InputError, match="other words"):
        model.certify(text[:20])


def test_interrupted_training_keeps_the_present_state(monkeypatch):
    monkeypatch.setattr(skipgram_train, "PART_WORDS", 1000)
    steps = CpuEngine.pair_step
    calls = []

    def step(self, *args, **kwargs):
        calls.append(1)
        if len(calls) == 9:
            raise KeyboardInterrupt
        return steps(self, *args, **kwargs)

    monkeypatch.setattr(CpuEngine, "pair_step", step)
    model = SkipGram(8, min_count=1, random_state=0).fit(topics())
    assert model.fit_.trace.reason is StopReason.INTERRUPTED
    assert not model.certificate_.holds
    assert model.vectors_.vectors.any()


RUN = """
import json, sys, time
from eckart.embed import skipgram_train
from eckart.embed.skipgram import SkipGram
from eckart.engines.cpu.engine import CpuEngine
from eckart.io.models import checkpoint

checkpoint.SECONDS, skipgram_train.PART_WORDS = 0.0, 2000
step = CpuEngine.pair_step
def slow(*args, **kwargs):
    time.sleep(float(sys.argv[4]))
    return step(*args, **kwargs)
CpuEngine.pair_step = slow
text = json.load(open(sys.argv[1]))
SkipGram(8, min_count=1, deterministic=True, checkpoint=sys.argv[2], random_state=0, n_threads=1).fit(text).save(sys.argv[3])
"""


@pytest.mark.slow
def test_a_killed_fit_resumes_to_the_same_bits(tmp_path, monkeypatch):
    import json

    text = topics(2, 1500)
    (tmp_path / "text.json").write_text(json.dumps(text))
    state, model = tmp_path / "state.safetensors", tmp_path / "m.safetensors"
    command = [sys.executable, "-c", RUN, str(tmp_path / "text.json"), str(state), str(model)]
    child = subprocess.Popen([*command, "0.2"])
    for _ in range(3000):
        if state.exists():
            break
        time.sleep(0.02)
    time.sleep(0.5)
    child.kill()
    child.wait()
    assert state.exists()
    assert not model.exists()
    subprocess.run([*command, "0"], check=True)
    assert not state.exists()
    monkeypatch.setattr(skipgram_train, "PART_WORDS", 2000)
    whole = SkipGram(8, min_count=1, deterministic=True, random_state=0, n_threads=2).fit(text)
    resumed = eckart.load(model)
    assert resumed.vectors_.vectors.tobytes() == whole.vectors_.vectors.tobytes()
    assert resumed.fit_.trace.values == whole.fit_.trace.values


def test_checkpoint_of_other_work_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("eckart.io.models.checkpoint.SECONDS", 0.0)
    monkeypatch.setattr(skipgram_train, "PART_WORDS", 1000)
    step, calls = CpuEngine.pair_step, []

    def stop(self, *args, **kwargs):
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError("lost")
        return step(self, *args, **kwargs)

    monkeypatch.setattr(CpuEngine, "pair_step", stop)
    path = tmp_path / "c.safetensors"
    with pytest.raises(RuntimeError, match="lost"):
        SkipGram(8, min_count=1, checkpoint=path, random_state=0).fit(topics())
    with pytest.raises(eckart.FileError, match="other work"):
        SkipGram(8, min_count=1, window=3, checkpoint=path, random_state=0).fit(topics())


def test_thinning_keeps_the_expected_share():
    text = sequences([["the"] * 90 + ["word"] * 10] * 300, min_count=1)
    keep = keep_probability(text.counts, 0.05)
    part = thinned(text, keep, text.n_tokens)
    seen = np.bincount(part.ids, minlength=2) / text.counts
    np.testing.assert_allclose(seen, keep, atol=0.02)
    assert len(part) == len(text)
    assert part.pointers[-1] == len(part.ids)
    shorter = thinned(text, np.ones(2), 3000)
    assert shorter.n_tokens <= 3100


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_components": 0}, "n_components"),
        ({"window": 0}, "window"),
        ({"negatives": 0}, "negatives"),
        ({"loss": "hinge"}, "loss"),
        ({"solver": "magic"}, "solver"),
        ({"solver": "stochastic", "loss": "softmax"}, "solver"),
        ({"learning_rate": -1.0}, "learning_rate"),
        ({"sample": -0.1}, "sample"),
        ({"max_iter": 0}, "max_iter"),
        ({"min_count": 0}, "min_count"),
    ],
)
def test_bad_parameters_are_named(options, words):
    with pytest.raises(InputError, match=words):
        SkipGram(**{"min_count": 1, **options}).fit(topics(0, 20))


def test_text_without_pairs_is_refused():
    with pytest.raises(
        InputError, match="at least one sentence must have two words of the vocabulary, got none"
    ):
        SkipGram(min_count=1).fit([["one"], ["two"], []])
    with pytest.raises(InputError, match="min_count"):
        SkipGram().fit([["one", "two"]])
    with pytest.raises(InputError, match="words x words"):
        SkipGram().fit(Counts(np.array([0, 1]), np.array([0]), np.array([1.0]), 3))


@pytest.mark.parametrize(
    "options", [{"solver": "exact"}, {"loss": "softmax"}, {"deterministic": True}], ids=str
)
def test_a_sample_that_leaves_no_pair_is_refused(options):
    model = SkipGram(2, min_count=1, sample=1e-9, random_state=0, **options)
    with pytest.raises(InputError, match=r"sample=1e-09 .* no two of them .* sample=None"):
        model.fit([["a", "b"], ["b", "c"], ["c", "a"]] * 4)
    assert not hasattr(model, "fit_")


@pytest.mark.parametrize("model", [eckart.PMI, eckart.GloVe])
def test_counting_models_refuse_text_without_pairs_too(model):
    with pytest.raises(InputError, match="near each other"):
        model(2, min_count=1).fit([["one"], ["two"], []])


def test_a_vocabulary_of_one_word():
    model = SkipGram(4, min_count=1, sample=None, random_state=0).fit([["so", "so", "so"]] * 50)
    assert np.isfinite(model.vectors_.vectors).all()
    assert model.vectors_.words.tolist() == ["so"]


def test_softmax_of_a_large_vocabulary_is_refused():
    with pytest.raises(InputError, match="5000"):
        SkipGram(2, loss="softmax", min_count=1).fit([[f"w{i}", f"w{i + 1}"] for i in range(5500)])


def test_a_rate_that_explodes_is_said():
    with pytest.raises(InputError, match="learning_rate"):
        SkipGram(8, min_count=1, learning_rate=1e30, last_learning_rate=1e30, random_state=0).fit(
            topics()
        )
