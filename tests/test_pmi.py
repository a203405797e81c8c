"""PMI: the matrix by its definition, its best approximation, words that are near."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import eckart
from eckart import PMI, Counts, InputError, cooccurrence, sequences
from eckart.embed.pmi import pmi_matrix


def plain(n, smoothing, shift, positive):
    """By the definition, dense: pairs that were not seen are 0."""
    n = np.asarray(n, float)
    joint, own = n / n.sum(), n.sum(axis=1) / n.sum()
    beside = n.sum(axis=0) ** smoothing * (n.sum(axis=0) > 0)
    beside /= beside.sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        m = np.log(joint / np.outer(own, beside)) - np.log(shift)
    m = np.where(n > 0, m, 0.0)
    return np.maximum(m, 0) if positive else m


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 9),
    st.integers(0, 2**32),
    st.sampled_from([0.5, 0.75, 1.0]),
    st.sampled_from([0.5, 1.0, 5.0]),
    st.booleans(),
)
def test_the_matrix_is_that_of_the_definition(n, seed, smoothing, shift, positive):
    rng = np.random.default_rng(seed)
    counts = rng.poisson(1.0, (n, n)) * rng.random((n, n))
    counts[0, 0] = 1.0
    kind = "positive" if positive else "pmi"
    m = pmi_matrix(
        Counts.from_scipy(sparse.csr_array(counts)), kind=kind, shift=shift, smoothing=smoothing
    )
    np.testing.assert_allclose(
        m.to_scipy().toarray(), plain(counts, smoothing, shift, positive), atol=1e-12
    )
    assert (m.data != 0).all()


def test_threads_change_nothing(text):
    counts = cooccurrence(text)
    one = pmi_matrix(counts, n_threads=1)
    for threads in (2, 3, 5, 16):
        other = pmi_matrix(counts, n_threads=threads)
        for name in ("indptr", "indices", "data"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@pytest.fixture(scope="module")
def text():
    """Sentences about two subjects."""
    rng = np.random.default_rng(4)
    subjects = [[f"{s}{i}" for i in range(30)] for s in ("cook", "sail")]
    common = [f"the{i}" for i in range(10)]
    out = []
    for _ in range(1500):
        own = subjects[rng.integers(2)]
        out.append(
            [
                own[rng.integers(30)] if rng.random() < 0.6 else common[rng.integers(10)]
                for _ in range(8)
            ]
        )
    return sequences(out)


def test_the_factors_are_the_best_of_their_rank(text):
    counts = cooccurrence(text)
    m = pmi_matrix(counts).to_scipy().toarray()
    u, s, vt = np.linalg.svd(m)
    for exponent in (0.0, 0.5, 1.0):
        model = PMI(7, exponent=exponent, random_state=0).fit(text)
        f = model.fit_.factors
        np.testing.assert_allclose(model.singular_values_, s[:7], rtol=1e-4)
        best = (u[:, :7] * s[:7]) @ vt[:7]
        np.testing.assert_allclose(f.vectors @ f.context.T, best, atol=1e-3)
        np.testing.assert_allclose(np.linalg.norm(f.vectors, axis=0), s[:7] ** exponent, rtol=1e-3)
        np.testing.assert_allclose(
            np.linalg.norm(f.context, axis=0), s[:7] ** (1 - exponent), rtol=1e-3
        )
        assert f.vectors.dtype == np.float32


def test_a_large_matrix_goes_through_products_only(monkeypatch, text):
    monkeypatch.setattr("eckart.embed.pmi.SMALL", 5)
    want = PMI(4, random_state=0).fit(text)
    monkeypatch.setattr("eckart.matrix.Counts.to_scipy", forbid_dense(Counts.to_scipy))
    model = PMI(4, random_state=0).fit(text)
    assert "randomized" in model.fit_.plan["method"]
    assert model.certificate_.holds
    np.testing.assert_array_equal(model.components_, want.components_)


def forbid_dense(to_scipy):
    class Never(sparse.csr_array):
        def toarray(self, *args, **how):
            raise AssertionError("the matrix was made dense")

        todense = toarray

    return lambda self: Never(to_scipy(self))


def test_words_of_a_subject_are_near(text):
    model = PMI(2, random_state=0).fit(text)
    near = [word for word, _ in model.vectors_.neighbours("cook3", 10)]
    assert sum(word.startswith("cook") for word in near) >= 9
    both = PMI(2, add_context=True, random_state=0).fit(text)
    f = both.fit_.factors
    np.testing.assert_allclose(both.components_, f.vectors + f.context, rtol=1e-5)  # exponent 1/2


def test_counts_text_and_sequences_are_the_same(text):
    whole = PMI(3, random_state=0).fit(text)
    counts = PMI(3, random_state=0).fit(cooccurrence(text))
    np.testing.assert_array_equal(whole.components_, counts.components_)
    words = [text.sentence(i) for i in range(len(text))]
    np.testing.assert_array_equal(PMI(3, random_state=0).fit(words).components_, whole.components_)
    np.testing.assert_array_equal(
        PMI(3, random_state=0).fit([" ".join(w) for w in words]).components_, whole.components_
    )
    assert list(counts.vectors_.words) == list(whole.vectors_.words) == text.words.tolist()
    unnamed = PMI(2, random_state=0).fit(cooccurrence(text).to_scipy())
    assert list(unnamed.vectors_.words)[:3] == [0, 1, 2]


def test_the_certificate_tells_good_from_bad(text):
    model = PMI(5, random_state=0).fit(text)
    c = model.certify(text)
    assert c.holds
    assert c.kind == "global"
    assert 0 < c["share in the tail"] < 1
    assert c["captured variance"] == pytest.approx(
        model.certificate_["captured variance"], rel=1e-4
    )
    other = PMI(5, random_state=0).fit(text)
    other.fit_.factors.context[:] = other.fit_.factors.context[::-1].copy()
    assert not other.certify(text).holds
    with pytest.raises(InputError, match="other words"):
        model.certify([["a", "b"]] * 9)


def test_small_vocabularies_and_wrong_parameters(text):
    alone = PMI(1, min_count=1, random_state=0).fit(["a a a"])  # PMI of a word with itself is 0
    assert alone.components_.tolist() == [[0.0]]
    with pytest.raises(
        InputError, match="at least one pair of words must stand near each other, got none"
    ):
        PMI(1, min_count=1).fit(["a", "b"])
    with pytest.raises(
        InputError, match="at least one pair of words must stand near each other, got none"
    ):
        PMI(1).fit(cooccurrence(["a", "b"], min_count=1))
    with pytest.raises(InputError, match="n_components must be 1 to 2 for 2 words, got 3"):
        PMI(3, min_count=1).fit(["a b"])
    assert PMI(min_count=1, random_state=0).fit(["a b c"] * 9).components_.shape == (
        3,
        3,
    )  # what is there, where no number was asked for
    for how in (
        {"kind": "shifted"},
        {"shift": 0},
        {"smoothing": -1},
        {"exponent": np.nan},
        {"tol": "x"},
    ):
        with pytest.raises(InputError, match=next(iter(how))):
            PMI(2, **how).fit(text)
    with pytest.raises(
        InputError, match=r"co-occurrences must be words x words, got shape \(2, 3\)"
    ):
        PMI(1).fit(sparse.csr_array(np.ones((2, 3))))
    with pytest.raises(
        InputError,
        match=r"co-occurrences must hold finite counts >= 0, got -1\.0 at row 0, column 1",
    ):
        PMI(1).fit(sparse.csr_array([[1.0, -1.0], [1.0, 1.0]]))


def test_seeds_threads_save_and_transform(text, tmp_path):
    model = PMI(4, random_state=0, n_threads=1).fit(text)
    again = PMI(4, random_state=0, n_threads=3).fit(text)
    assert model.components_.tobytes() == again.components_.tobytes()
    model.save(tmp_path / "m.safetensors")
    kept = eckart.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(kept.components_, model.components_)
    np.testing.assert_array_equal(
        kept.transform(["cook1 sail2", "nothing"]), model.transform(["cook1 sail2", "nothing"])
    )
    mean = (model.vectors_["cook1"] + model.vectors_["sail2"]) / 2
    np.testing.assert_allclose(model.transform(["cook1 sail2"])[0], mean, rtol=1e-5)
    assert kept.certify(text).holds


def test_real_text_gives_scores(shared_data):
    from scipy.stats import spearmanr

    s = sequences(shared_data("text8-prefix") / "text8-prefix.txt.gz", min_count=20)
    model = PMI(50, random_state=0).fit(s)
    assert model.certificate_.holds
    rows = [line.split() for line in open(shared_data("word-eval") / "EN-WS-353-ALL.txt")]  # noqa: SIM115
    at = {w: i for i, w in enumerate(s.words)}
    v = model.components_ / np.linalg.norm(model.components_, axis=1, keepdims=True)
    pairs = [(v[at[a]] @ v[at[b]], float(c)) for a, b, c in rows if a in at and b in at]
    assert len(pairs) > 200
    assert spearmanr(*zip(*pairs))[0] > 0.5
