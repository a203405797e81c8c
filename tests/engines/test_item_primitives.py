"""Contract of the primitives of item models: every engine against the oracle."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from registry import ENGINES, JUDGE
from scipy import sparse

from eckart.engines.arrays import items as ridge
from eckart.engines.protocol import SparseColumns, SparseRows
from eckart.matrix import Counts


@pytest.fixture(params=list(ENGINES), ids=lambda name: name)
def engine(request):
    return ENGINES[request.param]


def entries(rows=40, columns=23, dtype=np.float64, seed=0):
    """Sparse rows, some of them empty, a column that nobody has, values that differ, and a stored
    zero."""
    rng = np.random.default_rng(seed)
    a = rng.random((rows, columns)) * (rng.random((rows, columns)) < 0.2)
    a[3] = 0
    a[:, 5] = 0
    x = Counts.from_scipy(sparse.csr_array(a.astype(dtype)))
    data = x.data.copy()
    data[0] = 0
    return replace(x, data=data)


def csr(x):
    return SparseRows(x.indptr, x.indices, x.data)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gram_matrices(engine, dtype):
    x = entries(dtype=dtype)
    wanted = JUDGE.column_gram(JUDGE.put(x), np.float64)
    found = engine.column_gram(engine.put(x), dtype)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, wanted, atol=1e-5 if dtype == np.float32 else 1e-12)
    thin, judged = engine.sparse_gram(engine.put(x)), JUDGE.sparse_gram(JUDGE.put(x))
    np.testing.assert_array_equal(thin.indptr, judged.indptr)
    np.testing.assert_array_equal(thin.indices, judged.indices)
    np.testing.assert_allclose(thin.data, judged.data, rtol=1e-5)


@pytest.mark.parametrize("size", [1, 7, 16, 23, 33])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_zero_diagonal_ridge_in_blocks(engine, size, dtype, monkeypatch):
    monkeypatch.setattr(ridge, "BLOCK", 8)
    monkeypatch.setattr(ridge, "TILE", 8)
    gram = JUDGE.column_gram(
        JUDGE.put(entries(60, size)) if size > 5 else JUDGE.put(entries(60, 6)), dtype
    )
    memory = gram.copy()
    found, wanted = (
        engine.zero_diagonal_ridge(memory, 0.3),
        JUDGE.zero_diagonal_ridge(gram.copy(), 0.3),
    )
    assert found.weights is memory
    np.testing.assert_allclose(
        found.weights, wanted.weights, atol=1e-4 if dtype == np.float32 else 1e-12
    )
    np.testing.assert_allclose(
        found.multipliers, wanted.multipliers, rtol=1e-4 if dtype == np.float32 else 1e-12
    )
    assert not np.diagonal(found.weights).any()


def test_a_matrix_that_is_not_positive_definite_is_refused(engine):
    for one in (engine, JUDGE):
        with pytest.raises(np.linalg.LinAlgError):
            one.zero_diagonal_ridge(np.array([[1.0, 2.0], [2.0, 1.0]]), 0.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("l1", "l2"), [(0.0, 0.5), (0.2, 0.1), (100.0, 1.0)])
def test_nonnegative_columns(engine, l1, l2, dtype):
    gram = JUDGE.column_gram(JUDGE.put(entries(80, 23)), dtype)
    found, wanted = (one.nonnegative_columns(gram, l1, l2, 1e-12, 2000) for one in (engine, JUDGE))
    whole = [
        sparse.csc_array((c.data, c.indices, c.indptr), shape=(23, 23)).toarray()
        for c in (found, wanted)
    ]
    np.testing.assert_allclose(*whole, atol=1e-4 if dtype == np.float32 else 1e-5)
    assert found.data.dtype == dtype
    assert (found.gaps <= 0.5e-12 * np.diagonal(gram) + 1e-300).all()
    assert (whole[0] >= 0).all()
    assert not np.diagonal(whole[0]).any()
    if l1 == 100.0:
        assert found.data.size == 0  # nothing is worth that price
    parts = [
        engine.nonnegative_columns(gram, l1, l2, 1e-12, 2000, span)
        for span in ((0, 1), (1, 20), (20, 23))
    ]
    assert all(np.array_equal(a, b) for a, b in zip(SparseColumns.joined(parts), found))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_products_and_the_best_of_them(engine, kind, dtype):
    rng = np.random.default_rng(1)
    x = entries(dtype=dtype)
    dense = (rng.standard_normal((23, 23)) * (rng.random((23, 23)) < 0.5)).astype(dtype)
    w = sparse.csr_array(dense)
    weights = dense if kind == "dense" else SparseRows(w.indptr, w.indices, w.data)
    rows = np.array([7, 3, 0, *range(10, 39), 7])
    close = {"rtol": 1e-4, "atol": 1e-5} if dtype == np.float32 else {"rtol": 1e-11, "atol": 1e-13}
    found = engine.row_products(csr(x), rows, weights, 23)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, JUDGE.row_products(csr(x), rows, weights, 23), **close)
    allowed = rng.random(23) < 0.8
    more = (
        rng.standard_normal((len(rows), 2)).astype(dtype),
        rng.standard_normal((23, 2)).astype(dtype),
    )
    for extra in (None, more):
        for mask in (None, allowed):
            for hidden in (None, (x.indptr, x.indices, rows)):
                asked = (csr(x), rows, weights, 23, 20, extra, mask, hidden)
                (at, scores), (wanted, judged) = (
                    engine.best_products(*asked),
                    JUDGE.best_products(*asked),
                )
                np.testing.assert_allclose(scores, judged, **close)
                np.testing.assert_array_equal(at == -1, wanted == -1)
                if extra is not None:  # no ties
                    np.testing.assert_array_equal(at, wanted)
