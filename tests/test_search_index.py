"""Vectors for search services: inner products are the scores, all lengths are one, indexes find
what exact search finds, nothing is half written."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from eckart import ALS, PCA, PMI, export_vectors
from eckart.cli.main import app
from eckart.errors import FileError, InputError, InputTypeError
from eckart.serve.search_index import SearchVectors


@pytest.fixture(scope="module")
def films():
    rng = np.random.default_rng(0)
    cells = rng.choice(60 * 400, 5000, replace=False)
    ratings = [(f"u{c // 400}", int(c % 400) + 1000, float(rng.integers(1, 11)) / 2) for c in cells]
    return ALS(6, random_state=0).fit(ratings, rows=0, columns=1, values=2)


@pytest.fixture(scope="module")
def words():
    rng = np.random.default_rng(1)
    return PMI(5, min_count=1, random_state=0).fit(
        [[str(w) for w in rng.integers(0, 40, 12)] for _ in range(200)]
    )


def test_inner_products_are_scores_and_lengths_are_one(films):
    v = SearchVectors.of(films)
    length = np.linalg.norm(v.vectors.astype(np.float64), axis=1)
    np.testing.assert_allclose(length, length[0], rtol=1e-5)
    row, columns = 7, v.ids[:50]
    predicted = films.predict([v.query_ids[row]] * 50, columns)
    low, high = films.fit_.plan["clip"]
    inside = (predicted > low) & (predicted < high)
    shift = (predicted - v.vectors[:50] @ v.queries[row])[inside]
    assert len(shift) > 20
    np.testing.assert_allclose(shift, shift[0], rtol=1e-4)
    found = films.recommend(v.query_ids[row], 10, by="prediction", exclude_seen=False).columns[0]
    assert set(v.ids[v.best(np.array([row]), 10)[0]].tolist()) == set(found.tolist())


def test_an_embedding_is_its_unit_vectors(words):
    v = SearchVectors.of(words)
    near = words.vectors_.neighbours(v.ids[3], 5)
    found = [i for i in v.best(np.array([3]), 6)[0] if i != 3]
    assert {v.ids[i] for i in found} == {word for word, _ in near}


@pytest.mark.parametrize(("ending", "module"), [(".usearch", "usearch"), (".faiss", "faiss")])
def test_an_index_finds_what_exact_search_finds(films, words, tmp_path, ending, module):
    pytest.importorskip(module, reason=f"{module} is not installed", exc_type=ImportError)
    for model in (films, words):
        told = export_vectors(model, tmp_path / f"m{ending}", queries=tmp_path / "q.parquet")
        assert told.recall > 0.99
        assert f"recall@10 of {told.asked}" in str(told)
        v = SearchVectors.of(model)
        ids, queries = (
            pq.read_table(told.ids_path)["id"].to_pylist(),
            pq.read_table(tmp_path / "q.parquet"),
        )
        assert ids == v.ids.tolist()
        q = np.array(queries["vector"].to_pylist(), np.float32)
        if module == "faiss":
            import faiss

            found = faiss.read_index(str(told.path)).search(q, 1)[1][:, 0]
        else:
            from usearch.index import Index

            found = Index.restore(str(told.path)).search(q, 1).keys.ravel().astype(np.int64)
        exact = v.best(np.arange(len(q)), 1)[:, 0]
        assert np.mean(found == exact) > 0.99
        assert not list(tmp_path.glob("*.part"))


def test_a_table_needs_no_package(films, tmp_path):
    told = export_vectors(films, tmp_path / "items.parquet")
    table = pq.read_table(tmp_path / "items.parquet")
    assert told.recall is None
    assert table["id"].to_pylist() == SearchVectors.of(films).ids.tolist()
    assert table.schema.field("vector").type.list_size == told.dimension == 8


def test_what_cannot_be_exported_is_refused(films, tmp_path):
    with pytest.raises(
        InputTypeError,
        match=r"the model must be a fitted completion with factors \(such as ALS\) or an embedding, got a",
    ):
        export_vectors(
            PCA(2).fit(np.random.default_rng(0).normal(size=(20, 4))), tmp_path / "x.parquet"
        )
    with pytest.raises(
        FileError,
        match=r"x\.txt must end in one of \.usearch, \.faiss, \.parquet, got '\.txt'",
    ):
        export_vectors(films, tmp_path / "x.txt")
    with pytest.raises(FileError, match="does not exist"):
        export_vectors(films, tmp_path / "no" / "x.parquet")
    with pytest.raises(InputError, match="sample must be an int >= 1, got 0"):
        export_vectors(films, tmp_path / "x.parquet", sample=0)
    assert not list(tmp_path.iterdir())


def test_from_the_shell(films, tmp_path):
    films.save(tmp_path / "m.safetensors")
    done = CliRunner().invoke(
        app, ["export", str(tmp_path / "m.safetensors"), str(tmp_path / "items.parquet")]
    )
    assert done.exit_code == 0, done.output
    assert "400 vectors of 8 numbers" in done.output
