"""The rows of docs/migrate.rst, held against the libraries themselves: ``make test-migrate``
installs them and runs this.

Each check is one statement of that page. A library that is not installed is said so and skipped; a
statement that is false ends the run with an error.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
import warnings
from collections.abc import Callable

import numpy as np
from scipy import sparse

import eckart

CHECKS: list[tuple[str, Callable[[], None]]] = []


def check(needs: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """List a check that needs a library."""

    def add(do: Callable[[], None]) -> Callable[[], None]:
        CHECKS.append((needs, do))
        return do

    return add


def tables() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, columns and values of ratings from 1 to 5."""
    rng = np.random.default_rng(0)
    full = np.clip(3.2 + rng.standard_normal((60, 2)) @ rng.standard_normal((2, 40)), 1, 5)
    i, j = np.nonzero(rng.random(full.shape) < 0.4)
    return i, j, full[i, j]


def sentences() -> list[list[str]]:
    rng = np.random.default_rng(1)
    words = np.array(["red", "apple", "plum", "ripe", "moon", "star", "near", "night"])
    themes = rng.dirichlet(np.full(8, 0.4), 2)
    return [rng.choice(words, 12, p=themes[k % 2]).tolist() for k in range(200)]


# ---- implicit


def implicit_model(alpha: float, regularization: float, strength: sparse.csr_matrix):
    from implicit.als import AlternatingLeastSquares

    model = AlternatingLeastSquares(
        factors=3,
        regularization=regularization,
        alpha=alpha,
        iterations=400,
        use_cg=False,
        use_gpu=False,
        random_state=0,
        dtype=np.float64,
        num_threads=1,
    )
    model.fit(strength, show_progress=False)
    return model


def strengths() -> sparse.csr_matrix:
    i, j, value = tables()
    return sparse.csr_matrix((np.round(value), (i, j)), shape=(60, 40))


def solved(
    y: np.ndarray,
    x: sparse.csr_matrix,
    ridge: float,
    confidence: Callable[[np.ndarray], np.ndarray],
) -> np.ndarray:
    """Every row of (Y^T Y + sum (c - 1) y y^T + l I) u = sum c y: unobserved entries weigh 1,
    observed ones c."""
    out = np.empty((x.shape[0], y.shape[1]))
    for row in range(len(out)):
        part = slice(x.indptr[row], x.indptr[row + 1])
        z, c = y[x.indices[part]], confidence(x.data[part])
        out[row] = np.linalg.solve(
            y.T @ y + z.T @ ((c - 1)[:, None] * z) + ridge * np.eye(y.shape[1]), c @ z
        )
    return out


@check("implicit")
def the_confidence_of_implicit_is_alpha_r() -> None:
    alpha, ridge, x = 5.0, 0.5, strengths()
    model = implicit_model(alpha, ridge, x)
    came, y = (np.asarray(f, np.float64) for f in (model.user_factors, model.item_factors))
    right, other = (
        solved(y, x, ridge, lambda r: alpha * r),
        solved(y, x, ridge, lambda r: 1 + alpha * r),
    )
    assert np.abs(came - right).max() < 1e-3 * np.abs(right).max(), np.abs(came - right).max()
    assert np.abs(came - other).max() > 3 * np.abs(came - right).max()


@check("implicit")
def als_on_alpha_r_minus_one_is_implicits_problem() -> None:
    alpha, ridge, x = 5.0, 0.5, strengths()
    how = {
        "feedback": "implicit",
        "zeros": "unobserved",
        "unobserved_weight": 1.0,
        "l2_power": 0,
        "l2": ridge,
        "random_state": 0,
    }
    for values, scale, confidence in (
        (alpha * x.data - 1, 1.0, lambda r: alpha * r),
        (x.data, alpha, lambda r: 1 + alpha * r),
    ):
        given = sparse.csr_matrix((values, x.indices, x.indptr), shape=x.shape)
        f = eckart.ALS(3, alpha=scale, max_iter=1000, tol=1e-12, **how).fit(given).fit_.factors
        wanted = solved(f.right.astype(float), x, ridge, confidence)
        assert np.abs(f.left - wanted).max() < 1e-3 * np.abs(wanted).max(), np.abs(
            f.left - wanted
        ).max()


@check("implicit")
def similar_items_of_implicit_begin_with_the_item_itself() -> None:
    model = implicit_model(5.0, 0.5, strengths())
    ids, scores = model.similar_items(7, N=4)
    assert ids[0] == 7
    assert abs(scores[0] - 1) < 1e-6
    how = {
        "feedback": "implicit",
        "zeros": "unobserved",
        "unobserved_weight": 1.0,
        "alpha": 5.0,
        "l2_power": 0,
        "l2": 0.5,
    }
    ours = eckart.ALS(3, random_state=0, **how).fit(strengths()).similar(columns=7, n=4)
    assert 7 not in ours.columns[0].tolist()


@check("implicit")
def n_and_filter_already_liked_items_mean_the_same() -> None:
    x = strengths()
    ids, _ = implicit_model(5.0, 0.5, x).recommend(3, x[3], N=7, filter_already_liked_items=True)
    ours = eckart.ALS(3, feedback="implicit", random_state=0).fit(x)
    top = ours.recommend(3, N=7, filter_already_liked_items=True)
    assert len(ids) == top.columns.shape[1] == 7
    liked = set(x[3].indices.tolist())
    assert not liked & set(ids.tolist())
    assert not liked & set(top.columns[0].tolist())
    assert liked & set(
        ours.recommend(3, N=40, filter_already_liked_items=False).columns[0].tolist()
    )


# ---- Surprise


@check("surprise")
def an_unknown_user_of_surprise_gets_the_mean_and_the_bias_of_the_item() -> None:
    import pandas as pd
    from surprise import SVD, Dataset, Reader

    i, j, value = tables()
    frame = pd.DataFrame({"user": i, "item": j, "rating": value})
    model = SVD(n_factors=4, random_state=0).fit(
        Dataset.load_from_df(frame, Reader(rating_scale=(1, 5))).build_full_trainset()
    )
    got, inner = model.predict("nobody", 7), model.trainset.to_inner_iid(7)
    assert abs(got.est - np.clip(model.trainset.global_mean + model.bi[inner], 1, 5)) < 1e-9
    assert not got.details["was_impossible"]
    ours = eckart.ALS(4, random_state=0).fit(frame, rows="user", columns="item", values="rating")
    try:
        ours.predict(999, 7)
    except eckart.InputError:
        pass
    else:
        raise AssertionError("an unknown id did not raise")
    mean = ours.predict(999, 7, unknown="mean")
    at = int(ours.column_ids.index_of(7))
    assert (
        abs(
            float(mean[0]) - np.clip(ours.mean_ + ours.column_biases_[at], value.min(), value.max())
        )
        < 1e-6
    )


# ---- scikit-learn


@check("sklearn")
def the_list_of_stop_words_of_scikit_learn_has_its_own_name() -> None:
    from sklearn.feature_extraction.text import CountVectorizer

    texts = [
        "the whole system of empty fire describes ten moons",
        "a bill for the top moon and ten systems",
    ] * 3
    theirs = set(CountVectorizer(stop_words="english").fit(texts).get_feature_names_out())
    assert set(eckart.corpus(texts, stop_words="scikit-learn").columns.tolist()) == theirs
    assert set(eckart.corpus(texts, stop_words="english").columns.tolist()) != theirs


# ---- gensim


def word2vec():
    from gensim.models import Word2Vec

    return Word2Vec(
        sentences(),
        vector_size=8,
        window=3,
        min_count=1,
        sg=1,
        negative=5,
        epochs=5,
        workers=1,
        seed=0,
    )


def through_a_file(model) -> eckart.Vectors:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "v.bin")
        model.wv.save_word2vec_format(path, binary=True)
        return eckart.read_vectors(path)


@check("gensim")
def the_word_to_row_map_and_the_questions_are_those_of_gensim() -> None:
    model = word2vec()
    wv, v = model.wv, through_a_file(model)
    assert v.key_to_index == wv.key_to_index
    assert v.index_to_key == wv.index_to_key
    np.testing.assert_array_equal(v["moon"], wv["moon"])
    np.testing.assert_allclose(
        v.similarity("moon", "star"), wv.similarity("moon", "star"), atol=1e-6
    )
    for (a, s), (b, t) in zip(v.neighbours("moon", 3), wv.most_similar("moon", topn=3)):
        assert a == b
        assert abs(s - t) < 1e-6
    for asked in ({"positive": "moon"}, {"positive": ["plum", "star"], "negative": ["apple"]}):
        ours, theirs = v.most_similar(**asked, topn=4), wv.most_similar(**asked, topn=4)
        assert [w for w, _ in ours] == [w for w, _ in theirs]
        np.testing.assert_allclose([s for _, s in ours], [s for _, s in theirs], atol=1e-6)
    ours, theirs = (
        v.analogy("apple", "plum", "star", 3),
        wv.most_similar(positive=["plum", "star"], negative=["apple"], topn=3),
    )
    assert [w for w, _ in ours] == [w for w, _ in theirs]
    assert v.odd_one_out(["moon", "star", "apple"]) == wv.doesnt_match(["moon", "star", "apple"])


@check("gensim")
def get_mean_vector_is_the_mean_of_unit_vectors() -> None:
    model = word2vec()
    wv, v, words = model.wv, through_a_file(model), ["moon", "star", "apple"]
    np.testing.assert_allclose(v.mean(words, unit=True), wv.get_mean_vector(words), atol=1e-6)
    np.testing.assert_allclose(
        v.mean(words), wv.get_mean_vector(words, pre_normalize=False), atol=1e-6
    )
    assert np.abs(v.mean(words) - wv.get_mean_vector(words)).max() > 1e-3


@check("gensim")
def a_kv_file_is_refused_with_what_to_do() -> None:
    model = word2vec()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "v.kv")
        model.wv.save(path)
        said = ""
        try:
            eckart.read_vectors(path)
        except eckart.FileError as error:
            said = str(error)
        assert "save_word2vec_format" in said, said or "a pickle was read"


@check("gensim")
def gensim_reads_what_eckart_writes() -> None:
    from gensim.models import KeyedVectors

    v = (
        eckart.SkipGram(6, window=3, min_count=1, sample=None, deterministic=True, random_state=0)
        .fit(sentences())
        .vectors_
    )
    with tempfile.TemporaryDirectory() as folder:
        for name, binary in (("v.bin", True), ("v.txt", False)):
            path = os.path.join(folder, name)
            v.write(path)
            back = KeyedVectors.load_word2vec_format(path, binary=binary)
            assert back.key_to_index == v.key_to_index
            np.testing.assert_allclose(back.vectors, v.vectors, atol=1e-6)


@check("gensim")
def the_parameters_of_gensims_lda_have_their_names() -> None:
    from gensim.corpora import Dictionary

    tokens = sentences()
    dictionary = Dictionary(tokens)
    dictionary.filter_extremes(no_below=2, no_above=1.0)
    counts = eckart.corpus([" ".join(t) for t in tokens], tokenizer=str.split, min_df=2, max_df=1.0)
    assert set(counts.columns.tolist()) == set(dictionary.token2id)
    names = eckart.LDA().get_params()
    assert {"max_iter", "batch_size", "learning_decay", "learning_offset"} <= names.keys()


def main() -> int:
    warnings.simplefilter("ignore")
    failed = 0
    for needs, do in CHECKS:
        if importlib.util.find_spec(needs) is None:
            print(f"skipped  {do.__name__}: {needs} is not installed")
            continue
        try:
            do()
            print(f"true     {do.__name__}")
        except AssertionError as error:
            failed += 1
            print(f"FALSE    {do.__name__}: {error}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
