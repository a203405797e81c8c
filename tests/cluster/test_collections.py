"""Dask collections as data: the same answers as in memory, whatever the partitions, and bad input
named by partition and row."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import eckart
from eckart import ALS, LDA, NMF, PCA, GaussianMixture
from eckart.errors import InputError

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
db = pytest.importorskip("dask.bag")
pd = pytest.importorskip("pandas")

pytestmark = pytest.mark.usefixtures("threads")


@pytest.mark.parametrize("solver", ["eigh", "randomized", "lanczos", "power", "svd"])
def test_pca_of_an_array(rows, solver):
    x = da.from_array(rows, chunks=(700, 5))
    model = PCA(3, svd_solver=solver, random_state=0).fit(x)
    local = PCA(3, svd_solver=solver, random_state=0).fit(rows)
    assert model.fit_.plan["engine"] == "dask"
    assert model.certificate_.holds
    assert isinstance(model.components_, np.ndarray)
    np.testing.assert_allclose(model.explained_variance_, local.explained_variance_, rtol=1e-6)
    np.testing.assert_allclose(model.components_, local.components_, atol=1e-5)


@pytest.mark.parametrize("chunks", [4000, 1, (1, 3999), (0, 4000), (1999, 0, 1, 2000)])
def test_any_chunks(rows, chunks):
    if chunks == 1:
        rows, chunks = rows[:40], 1
    x = da.from_array(rows, chunks=(chunks, 4))
    np.testing.assert_allclose(PCA(2).fit(x).components_, PCA(2).fit(rows).components_, atol=1e-9)


def test_unknown_sizes_frames_and_names(rows):
    x = da.from_array(rows, chunks=(700, 12))
    some = rows[rows[:, 0] > 3]
    np.testing.assert_allclose(
        PCA(2).fit(x[x[:, 0] > 3]).components_, PCA(2).fit(some).components_, atol=1e-9
    )
    frame = pd.DataFrame(rows, columns=[f"c{j}" for j in range(12)])
    parted = dd.from_pandas(frame, npartitions=5)
    model = PCA(2).fit(parted)
    assert model.feature_names_in_.tolist() == list(frame.columns)
    codes = model.transform(parted)
    assert codes.columns.tolist() == ["pca0", "pca1"]  # known before anything is computed
    pd.testing.assert_frame_equal(
        codes.compute(),
        pd.DataFrame(model.transform(frame), frame.index, ["pca0", "pca1"]),
        atol=1e-9,
    )
    assert model.score_samples(parted).compute().index.equals(frame.index)
    # the first two partitions are empty now
    few = parted.map_partitions(lambda part: part[part.index >= 1700])
    np.testing.assert_allclose(
        PCA(2).fit(few).components_, PCA(2).fit(frame[1700:]).components_, atol=1e-9
    )


def test_verbs_answer_an_array_by_an_array(rows):
    x = da.from_array(rows, chunks=(700, 5))
    model = PCA(2).fit(x)
    codes = model.transform(x)
    assert (codes.shape, codes.dtype) == ((4000, 2), np.float64)
    np.testing.assert_allclose(codes.compute(), model.transform(rows), atol=1e-12)
    np.testing.assert_allclose(
        model.inverse_transform(codes).compute(), model.inverse_transform(model.transform(rows))
    )
    mixture = GaussianMixture(2, random_state=0, max_iter=5).fit(x)
    np.testing.assert_array_equal(mixture.predict(x).compute(), mixture.predict(rows))
    assert mixture.predict_proba(x).shape == (4000, 2)


def test_gaps_and_sparse_chunks(rows):
    gaps = rows.copy()
    gaps[np.random.default_rng(2).random(gaps.shape) < 0.1] = np.nan
    a, b = (PCA(3, random_state=0).fit(x) for x in (da.from_array(gaps, chunks=(900, 12)), gaps))
    assert a.fit_.plan["solver"] == "em"
    assert a.certificate_.holds
    np.testing.assert_allclose(a.components_, b.components_, atol=1e-6)
    s = sparse.random(900, 40, 0.1, format="csr", random_state=0)
    chunked = da.from_array(s.toarray(), chunks=(200, 40)).map_blocks(sparse.csr_array)
    np.testing.assert_allclose(
        PCA(3, random_state=0).fit(chunked).explained_variance_,
        PCA(3, random_state=0).fit(s).explained_variance_,
        rtol=1e-6,
    )
    bag = db.from_sequence([s[i : i + 100] for i in range(0, 900, 100)], npartitions=4)
    a, b = (NMF(3, random_state=0, max_iter=30).fit(x) for x in (bag, s))
    np.testing.assert_allclose(a.components_, b.components_, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("feedback", ["explicit", "implicit"])
def test_als_of_a_frame(ratings, feedback):
    how = {"rows": "user", "columns": "item", "values": "rating"}
    parted = dd.from_pandas(
        ratings.sample(frac=1, random_state=0, ignore_index=True), npartitions=5
    )
    model = ALS(4, feedback=feedback, random_state=0).fit(parted, **how)
    local = ALS(4, feedback=feedback, random_state=0).fit(ratings, **how)
    assert model.fit_.plan["engine"] == "dask"
    assert model.certificate_.holds
    # the same labels in the same order
    assert model.fit_.factors.rows.tolist() == local.fit_.factors.rows.tolist()
    assert model.fit_.plan.get("clip") == local.fit_.plan.get("clip")
    np.testing.assert_allclose(model.objective_, local.objective_, rtol=1e-6)
    np.testing.assert_allclose(
        model.predict(["u3"] * 2, [101, 102]), local.predict(["u3"] * 2, [101, 102]), atol=1e-4
    )
    assert [line[2] for line in model.recommend("u3", n=3).entries()] == [
        line[2] for line in local.recommend("u3", n=3).entries()
    ]


def test_als_answers_ids_by_partitions(ratings, tmp_path):
    how = {"rows": "user", "columns": "item", "values": "rating"}
    parted = dd.from_pandas(ratings, npartitions=3)
    model = ALS(4, random_state=0).fit(parted, **how)
    guess = model.predict(parted["user"], parted["item"])
    assert (guess.name, guess.dtype) == ("predict", np.float64)
    np.testing.assert_allclose(guess.compute(), model.predict(ratings["user"], ratings["item"]))
    top = model.recommend(parted["user"].drop_duplicates(), n=2)
    assert top.columns.tolist() == ["row", "rank", "column", "score", "observations"]
    assert len(top.compute()) == 2 * ratings["user"].nunique()
    model.save(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(
        eckart.load(tmp_path / "m.safetensors").predict("u3", 101), model.predict("u3", 101)
    )


def test_attributes_by_id_beside_a_frame(ratings):
    """Ids that only the attributes have become rows of the model, and the entries stay on the
    workers."""
    how = {"rows": "user", "columns": "item", "values": "rating"}
    ids = [*sorted(ratings["user"].unique()), "new"]
    users = pd.DataFrame({"user": ids, "age": np.random.default_rng(0).standard_normal(len(ids))})
    model, local = (
        ALS(3, random_state=0, max_iter=4).fit(x, row_features=users, **how)
        for x in (dd.from_pandas(ratings, npartitions=3), ratings)
    )
    assert model.fit_.plan["engine"] == "dask"
    assert model.observed_.shape == model.fit_.factors.shape == (len(ids), 80)
    np.testing.assert_allclose(
        model.predict(["new", "u3"], [101, 102]),
        local.predict(["new", "u3"], [101, 102]),
        rtol=1e-6,
    )
    assert [line[2] for line in model.recommend("u3", n=3).entries()] == [
        line[2] for line in local.recommend("u3", n=3).entries()
    ]


def test_lda_of_texts():
    rng = np.random.default_rng(0)
    animals, weather = ["cat", "dog", "fish"], ["fog", "moon", "rain", "star", "sun", "wind"]
    texts = [" ".join([*rng.choice(weather if i % 3 else animals, 5), "said"]) for i in range(120)]
    texts[24:36] = ["said . . !", "said", *([""] * 10)]  # a partition without a word that is kept
    bag = db.from_sequence(texts, npartitions=10)
    priors = {
        "doc_topic_prior": 0.1,
        "topic_word_prior": 0.01,
    }  # learned ones are drawn, for which documents must be in one place
    model = LDA(2, random_state=0, **priors).fit(bag)
    local = LDA(2, random_state=0, learning_method="cvb0", **priors).fit(texts)
    assert (
        model.feature_names_in_.tolist() == local.feature_names_in_.tolist() == animals + weather
    )  # not the common word
    np.testing.assert_allclose(model.components_, local.components_, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(model.transform(bag).compute(), model.transform(texts), atol=1e-6)
    series = dd.from_pandas(pd.Series(texts), npartitions=4)
    np.testing.assert_allclose(
        LDA(2, random_state=0, **priors).fit(series).components_,
        local.components_,
        rtol=1e-3,
        atol=1e-4,
    )
    np.testing.assert_allclose(model.transform(series).compute(), model.transform(texts), atol=1e-6)


@pytest.mark.parametrize(
    ("items", "words"),
    [
        (
            ["cat dog", "sun", 3, "moon"],
            r"document 0 must be a text \(str\), got a int \(3\) \(partition 1\)",
        ),
        ([{"a": 1}] * 3, "X must be a bag of texts alone or of sparse blocks alone, got dict"),
        (
            [sparse.csr_array(np.eye(3)), "cat"],
            "X must be a bag of texts alone or of sparse blocks alone, got sparse and text",
        ),
        (
            ["a", "b"],
            "at least one word must be left in at most 50% documents, got none of 0 in 2 documents",
        ),
    ],
    ids=["a number", "dicts", "sparse and text", "no words"],
)
def test_bad_bags_are_named(items, words):
    with pytest.raises(InputError, match=words):
        LDA(2).fit(db.from_sequence(items, npartitions=2))


def with_value(table, at, column, value):
    changed = table.copy()
    changed[column] = changed[column].astype(object) if isinstance(value, str) else changed[column]
    changed.loc[at, column] = value
    return changed


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda t: with_value(t, 5000, "rating", np.nan),
            r"column 'rating' must hold finite numbers, got nan at row \d+ .*of partition \d",
        ),
        (
            lambda t: with_value(t, 5000, "user", None),
            r"column 'user' must hold an id, got .* at row \d+.*partition \d",
        ),
        (
            lambda t: pd.concat([t, t.iloc[:1]], ignore_index=True),
            r"one value, got row 'u\d+', column \d+ at row 0 of partition 0 and again at row \d+ of "
            r"partition 3",
        ),
        (
            lambda t: t.rename(columns={"item": "film"}),
            r"the column must be one of the columns of the Dask frame \('user', 'film', 'rating'\), got",
        ),
        (lambda t: t[:0], "the Dask frame must have at least one row, got none"),
    ],
    ids=["NaN", "no id", "twice", "no column", "empty"],
)
def test_bad_tables_are_named_by_partition_and_row(ratings, change, words):
    parted = dd.from_pandas(change(ratings), npartitions=4)
    with pytest.raises(InputError, match=words):
        ALS(2).fit(parted, rows="user", columns="item", values="rating")


def parted_as(table, change, to=2):
    """Five partitions, one of them changed behind the frame's back, as files of another program
    are."""
    parts = [table.iloc[i::5].reset_index(drop=True) for i in range(5)]
    parts[to] = change(parts[to])
    return dd.from_delayed(
        [dask.delayed(part) for part in parts], meta=table.iloc[:0], verify_meta=False
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda p: p.assign(rating="good"),
            "column 'rating' must hold a number, got 'good' at row 0.*row 0 of partition 2",
        ),
        (
            lambda p: p.drop(columns="item"),
            r"must have the same columns, got none called 'item' in this one.*\(partition 2\)",
        ),
        (
            lambda p: p.to_numpy(),
            r"the partition must be a frame with columns, got a ndarray \(partition 2\)",
        ),
        (
            lambda p: p.assign(user=range(len(p))),
            r"column 'user' must hold ids of one kind, got text \('u\d+' at row 0 of partition 0\) and "
            r"numbers \(partition 2\)",
        ),
        (
            lambda p: with_value(p.astype({"item": object}), 3, "item", "x"),
            r"column 'item' must hold ids of one kind, got text \('x' at row 3 of partition 2\) and "
            r"numbers \(partition 0\)",
        ),
    ],
    ids=[
        "words for ratings",
        "no column",
        "an array",
        "numbers among names",
        "a name among numbers",
    ],
)
def test_a_partition_unlike_the_others_is_named(ratings, change, words):
    with pytest.raises(InputError, match=words):
        ALS(2).fit(parted_as(ratings, change), rows="user", columns="item", values="rating")


def test_columns_of_a_partition_are_found_by_name(rows):
    """Never by place: a partition with the same columns in another order is the same partition."""
    frame = pd.DataFrame(rows, columns=[f"c{j}" for j in range(12)])
    wanted = PCA(2).fit(parted_as(frame, lambda p: p)).components_
    np.testing.assert_array_equal(
        PCA(2).fit(parted_as(frame, lambda p: p[p.columns[::-1]])).components_, wanted
    )
    for change in (lambda p: p.drop(columns="c3"), lambda p: p.rename(columns={"c3": "other"})):
        with pytest.raises(
            InputError,
            match=r"the 12 columns that the frame says, got none called 'c3'.*\(partition 2\)",
        ):
            PCA(2).fit(parted_as(frame, change))


def sparse_third(block, block_info=None):
    return (
        sparse.csr_array(block) if block_info and block_info[0]["chunk-location"][0] == 2 else block
    )


def half_of_the_third(block, block_info=None):
    return block[:500] if block_info and block_info[0]["chunk-location"][0] == 2 else block


def with_a_word(part):
    return part.astype(object).replace(part.iloc[1, 1], "bad")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda x: da.from_array(
                np.where(np.arange(len(x))[:, None] == 3333, np.inf, x), chunks=1000
            ),
            r"inf at row 3333, .*row 333 of partition 3",
        ),
        (lambda x: da.from_array(x[:, 0], chunks=100), "1D array"),
        (
            lambda x: dd.from_pandas(pd.Series(x[:, 0]), npartitions=2),
            "X must be an array of two dimensions, a frame with columns, a series of texts, or a bag",
        ),
        (
            lambda x: da.from_array(x.astype(str), chunks=(1000, 12)),
            "X must be a Dask array of numbers, got <U32",
        ),
        (
            lambda x: dd.from_pandas(pd.DataFrame({"a": x[:, 0], "b": "word"}), npartitions=2),
            "column 'b' must hold numbers, got string",
        ),
        (
            lambda x: dd.from_pandas(pd.DataFrame(x), npartitions=4).map_partitions(
                with_a_word, meta=pd.DataFrame(x[:0])
            ),
            r"column 1 is not numeric at row 1 .*row 1 of partition 0",
        ),
        (
            lambda x: da.from_array(x, chunks=(1000, 12)).map_blocks(sparse_third, dtype=float),
            "sparse chunk among dense ones",
        ),
        (
            lambda x: da.from_array(x, chunks=(1000, 12)).map_blocks(
                half_of_the_third, dtype=float
            ),
            r"X must have chunks of 1000 rows as its array says, got 500 \(partition 2\)",
        ),
        (
            lambda x: da.from_array(x, chunks=(1000, 12)).map_blocks(lambda _: None, dtype=float),
            r"a chunk that is None.*\(partition 0\)",
        ),
        (
            lambda x: dask.delayed(x),
            "X must be an array of two dimensions, a frame with columns, a series of texts, or a bag",
        ),
    ],
    ids=[
        "inf",
        "1D",
        "series",
        "text",
        "a column of text",
        "mixed types",
        "mixed chunks",
        "fewer rows than said",
        "no rows",
        "delayed",
    ],
)
def test_bad_rows_are_named_by_partition_and_row(rows, make, words):
    with pytest.raises(InputError, match=words):
        PCA(2).fit(make(rows))


@pytest.mark.cluster
def test_the_same_partition_has_the_same_bits_on_every_runner(rows):
    """In one process and as tasks: the same blocks, the same tree."""
    from eckart.engines.blocks.engine import BlocksEngine
    from eckart.engines.dask.runner import DaskEngine

    for model in (
        PCA(3, svd_solver="randomized"),
        GaussianMixture(2, max_iter=5),
        NMF(2, max_iter=5),
    ):
        x = np.abs(rows)
        model.set_params(random_state=0)
        found = [
            model.set_params(engine=engine).fit(x).fit_.factors
            for engine in (BlocksEngine(1, cut=20), DaskEngine(1, cut=20))
        ]
        for name, value in vars(found[0]).items():
            if isinstance(value, np.ndarray) and value.dtype.kind == "f":
                np.testing.assert_array_equal(
                    getattr(found[1], name), value, err_msg=f"{type(model).__name__} {name}"
                )


@pytest.mark.parametrize("slices", [slice(None), slice(700, 3900)])
def test_a_file_is_read_by_the_workers_block_by_block(rows, tmp_path, monkeypatch, slices):
    from eckart.clusters import client as traffic

    monkeypatch.setattr(traffic, "BLOCK_BYTES", 2**14)
    monkeypatch.setattr(traffic, "FILE_BLOCK_BYTES", 2**14)
    np.save(tmp_path / "x.npy", rows)
    x = (
        tmp_path / "x.npy"
        if slices == slice(None)
        else np.load(tmp_path / "x.npy", mmap_mode="r")[slices]
    )
    for solver in ("eigh", "randomized"):
        model = PCA(3, svd_solver=solver, random_state=0, engine="dask").fit(x)
        assert model.fit_.plan["engine"] == "dask"
        np.testing.assert_allclose(model.mean_, rows[slices].mean(axis=0))
        np.testing.assert_allclose(
            model.components_,
            PCA(3, svd_solver=solver, random_state=0).fit(rows[slices]).components_,
            atol=1e-6,
        )
