"""Line 3.5 of the specification, one test for each statement."""

from __future__ import annotations

import numpy as np
import pytest

import eckart
from eckart import (
    PMI,
    Counts,
    GloVe,
    SkipGram,
    Vectors,
    cooccurrence,
    metrics,
    read_vectors,
    sequences,
)
from eckart.embed.pmi import pmi_matrix


def walk(words=6, steps=60_000, seed=0):
    """Sentences of a walk in which every word follows every other, some often and some rarely."""
    rng = np.random.default_rng(seed)
    follows = np.cumsum(rng.dirichlet(np.full(words, 2.0), words), axis=1)
    at, out = 0, []
    for u in rng.random(steps):
        at = min(int(np.searchsorted(follows[at], u)), words - 1)
        out.append(f"w{at}")
    return [out[i : i + 100] for i in range(0, steps, 100)]


@pytest.fixture(scope="module")
def text():
    return walk()


@pytest.fixture(scope="module")
def counts(text):
    return cooccurrence(text, window=1, min_count=1)


def pmi_of(counts):
    n = counts.to_scipy().toarray()
    return np.log(n * n.sum() / np.outer(n.sum(axis=1), n.sum(axis=0)))


@pytest.mark.parametrize("weighting", ["flat", "harmonic", "linear"])
def test_3_5_co_occurrence_is_counted_over_a_window_with_optional_distance_weighting(
    text, weighting
):
    window = 3
    weight = {
        "flat": lambda d: 1.0,
        "harmonic": lambda d: 1 / d,
        "linear": lambda d: (window - d + 1) / window,
    }
    names = sorted({w for line in text for w in line})
    plain = dict.fromkeys(((a, b) for a in names for b in names), 0.0)
    for line in text[:50]:
        for p, a in enumerate(line):
            for d in range(1, window + 1):
                for q in (p - d, p + d):
                    if 0 <= q < len(line):
                        plain[a, line[q]] += weight[weighting](d)
    n = cooccurrence(text[:50], window=window, weighting=weighting, min_count=1)
    found = n.to_scipy().toarray()
    for i, a in enumerate(n.rows):
        for j, b in enumerate(n.columns):
            assert found[i, j] == pytest.approx(plain[a, b])


def test_3_5_co_occurrence_is_counted_out_of_core():
    rng = np.random.default_rng(0)
    s = sequences([rng.integers(0, 3000, 400_000).tolist()], min_count=1)
    in_memory = cooccurrence(s, window=5)
    on_disk = cooccurrence(s, window=5, max_memory=2**20)
    assert isinstance(on_disk.data, np.memmap) or isinstance(on_disk.data.base, np.memmap)
    for a, b in (
        (in_memory.indptr, on_disk.indptr),
        (in_memory.indices, on_disk.indices),
        (in_memory.data, on_disk.data),
    ):
        np.testing.assert_array_equal(a, b)


def test_3_5_exact_softmax_for_small_vocabularies(counts):
    model = SkipGram(6, loss="softmax", bias=True, max_iter=5000, tol=1e-15, random_state=0).fit(
        counts
    )
    f = model.fit_.factors
    s = f.vectors @ f.context.T + f.context_bias
    n = counts.to_scipy().toarray()
    np.testing.assert_allclose(
        np.exp(s) / np.exp(s).sum(axis=1, keepdims=True),
        n / n.sum(axis=1, keepdims=True),
        atol=1e-4,
    )
    with pytest.raises(eckart.InputError, match="5000"):
        SkipGram(2, loss="softmax", min_count=1).fit([[f"w{i}", f"w{i + 1}"] for i in range(5500)])


@pytest.mark.parametrize("exponent", [0.75, 1.0])
def test_3_5_noise_words_are_drawn_by_shares_to_the_three_quarters(counts, exponent):
    assert SkipGram().noise_exponent == 0.75
    model = SkipGram(
        6, negatives=2, noise_exponent=exponent, max_iter=5000, tol=1e-15, random_state=0
    ).fit(counts)
    n, f = counts.to_scipy().toarray(), model.fit_.factors
    q = n.sum(axis=0) ** exponent / (n.sum(axis=0) ** exponent).sum()
    np.testing.assert_allclose(
        f.vectors @ f.context.T, np.log(n / (2 * n.sum(axis=1)[:, None] * q)), atol=2e-3
    )


def test_3_5_sampled_noise_follows_the_exponent():
    """Words drawn independently have PMI 0, so a score says only how much rarer or commoner a word
    is in the noise than in the text."""
    rng = np.random.default_rng(0)
    share = np.array([0.6, 0.25, 0.1, 0.05])
    text = [rng.choice(4, 100, p=share).tolist() for _ in range(400)]
    options = {
        "window": 1,
        "negatives": 2,
        "sample": None,
        "min_count": 1,
        "max_iter": 30,
        "learning_rate": 0.05,
    }
    f = SkipGram(4, **options, deterministic=True, random_state=0).fit(text).fit_.factors
    scores = (f.vectors @ f.context.T)[0]
    own = f.counts / f.counts.sum()
    for exponent, near in ((0.75, True), (1.0, False), (0.5, False)):
        q = own**exponent / (own**exponent).sum()
        assert (np.abs(scores - np.log(own / (2 * q))).max() < 0.12) == near


def test_3_5_input_and_output_vectors_are_separate(text):
    f = (
        SkipGram(4, min_count=1, max_iter=2, deterministic=True, random_state=0)
        .fit(text)
        .fit_.factors
    )
    assert f.vectors.shape == f.context.shape == (6, 4)
    assert not np.allclose(f.vectors, f.context, atol=1e-2)


@pytest.mark.parametrize("r", [1, 5])
def test_3_5_the_optimum_is_pmi_minus_log_r(text, counts, r):
    exact = SkipGram(
        6, negatives=r, noise_exponent=1.0, max_iter=5000, tol=1e-15, random_state=0
    ).fit(counts)
    f = exact.fit_.factors
    np.testing.assert_allclose(f.vectors @ f.context.T, pmi_of(counts) - np.log(r), atol=2e-3)
    assert exact.certificate_["gap"] == pytest.approx(0, abs=1e-6)
    options = {
        "window": 1,
        "negatives": r,
        "noise_exponent": 1.0,
        "sample": None,
        "min_count": 1,
        "max_iter": 40,
    }
    sampled = SkipGram(6, **options, learning_rate=0.05, deterministic=True, random_state=0).fit(
        text
    )
    g = sampled.fit_.factors
    assert np.abs(g.vectors @ g.context.T - (pmi_of(counts) - np.log(r))).max() < 0.2


@pytest.mark.parametrize("kind", ["pmi", "positive"])
@pytest.mark.parametrize("shift", [1.0, 3.0])
def test_3_5_pmi_positive_and_shifted_by_svd(counts, kind, shift):
    wanted = pmi_of(counts) - np.log(shift)
    if kind == "positive":
        wanted = np.maximum(wanted, 0)
    m = pmi_matrix(counts, kind=kind, shift=shift, smoothing=1.0)
    assert isinstance(m, Counts)
    np.testing.assert_allclose(m.to_scipy().toarray(), wanted, atol=1e-12)
    k = 3
    model = PMI(k, kind=kind, shift=shift, smoothing=1.0, random_state=0).fit(counts)
    u, s, vt = np.linalg.svd(wanted)
    f = model.fit_.factors
    np.testing.assert_allclose(model.singular_values_, s[:k], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(f.vectors @ f.context.T, (u[:, :k] * s[:k]) @ vt[:k], atol=1e-4)
    assert model.certificate_.holds
    assert model.certificate_.kind == "global"


@pytest.mark.parametrize("solver", ["adagrad", "als"])
def test_3_5_glove_minimises_its_weighted_squares(solver):
    rng = np.random.default_rng(0)
    n = cooccurrence(
        [rng.choice(30, 40, p=np.arange(1, 31) / 465).tolist() for _ in range(400)],
        window=4,
        min_count=1,
    )
    model = GloVe(4, solver=solver, n_max=50.0, max_iter=60, tol=0.0, random_state=0).fit(n)
    f, dense = model.fit_.factors, n.to_scipy().toarray()
    seen = dense > 0
    weight = np.minimum(1, (dense[seen] / 50.0) ** 0.75)
    residual = (
        np.log(dense[seen]) - (f.vectors @ f.context.T + f.bias[:, None] + f.context_bias)[seen]
    )
    assert model.loss_ == pytest.approx(np.mean(weight * residual**2), rel=1e-3)
    assert GloVe().power == 0.75
    plain = np.log(dense[seen]) - np.average(np.log(dense[seen]), weights=weight)
    assert model.loss_ < 0.3 * np.mean(weight * plain**2)
    values = np.array(model.fit_.trace.values)
    assert values[-1] < values[0]
    if solver == "als":
        assert model.certificate_.holds
        objective = np.array(model.fit_.plan["objective"])
        assert (np.diff(objective) <= 1e-5 * objective[:-1]).all(), "ALS never rises"


def test_3_5_als_and_adagrad_have_the_same_objective():
    n = cooccurrence(walk(12, 30_000, 1), window=3, min_count=1)
    als, sgd = (  # AdaGrad comes as far with more passes only
        GloVe(3, solver=s, max_iter=passes, tol=0.0, l2=1e-5, random_state=0).fit(n).loss_
        for s, passes in (("als", 200), ("adagrad", 1000))
    )
    assert als == pytest.approx(sgd, rel=0.25)
    assert als < 1.02 * sgd


def test_3_5_unseen_pairs_are_missing_to_glove(counts):
    """It is completion of log N: a pair that was not seen does not count, whatever the scores say
    of it."""
    n = counts.to_scipy().toarray()
    holes = n.copy()
    holes[0, 1] = holes[1, 0] = 0.0
    from scipy import sparse

    model = GloVe(1, max_iter=50, tol=0.0, random_state=0).fit(sparse.csr_array(holes))
    f = model.fit_.factors
    score = f.vectors @ f.context.T + f.bias[:, None] + f.context_bias
    assert score[0, 1] > np.log(n[n > 0].min()) - 3, "an unseen pair is not pushed towards log 0"
    assert model.fit_.plan["pairs"] == n.size - 2


def test_3_5_neighbours_and_analogies():
    v = Vectors(
        ["man", "woman", "king", "queen", "tea"],
        [[3, 0, 1], [0, 3, 1], [3, 0, 4], [0, 3, 4], [0.5, 1, -4]],
    )
    cosines = v.unit @ v.unit[2]
    assert [w for w, _ in v.neighbours("king", 4)] == [
        str(v.words[i]) for i in np.argsort(-cosines) if i != 2
    ]
    assert v.analogy("man", "king", "woman")[0][0] == "queen"
    assert v.analogy("man", "king", "woman", method="multiply")[0][0] == "queen"


def test_3_5_word_similarity_scores():
    v = Vectors(["a", "b", "c"], [[1.0, 0.0], [1.0, 0.2], [0.0, 1.0]])
    good = metrics.word_similarity(
        v, [("a", "b", 9.0), ("b", "c", 3.0), ("a", "c", 1.0), ("a", "zebra", 5.0)]
    )
    assert good.rho == pytest.approx(1.0)
    assert (good.found, good.total) == (3, 4)
    bad = metrics.word_similarity(v, [("a", "b", 1.0), ("b", "c", 3.0), ("a", "c", 9.0)])
    assert bad.rho == pytest.approx(-1.0)


@pytest.mark.parametrize("name", ["v.txt", "v.bin", "v.vec.gz"])
def test_3_5_word2vec_text_and_binary_in_and_out(tmp_path, text, name):
    v = SkipGram(4, min_count=1, max_iter=1, deterministic=True, random_state=0).fit(text).vectors_
    v.write(tmp_path / name)
    back = read_vectors(tmp_path / name)
    assert back.words.tolist() == v.words.tolist()
    np.testing.assert_array_equal(back.vectors, v.vectors)
    if name == "v.txt":
        head, first = (tmp_path / name).read_text().splitlines()[:2]
        assert head == "6 4"
        assert first.split()[0] == v.words[0]
    if name == "v.bin":
        data = (tmp_path / name).read_bytes()
        assert data.startswith(
            b"6 4\n" + v.words[0].encode() + b" " + v.vectors[0].astype("<f4").tobytes()
        )
