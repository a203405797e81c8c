"""Every primitive on every engine against ``plain``, on data where each argument matters."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from eckart.engines import engine_named
from eckart.engines.cpu import gaps, gaps_dense
from eckart.engines.protocol import GapsFound, Moments
from eckart.errors import InputError
from eckart.io.sources import IteratorBlocks
from eckart.matrix import Counts, Dense, Observed

PLAIN = engine_named("plain")
ENGINES = {"cpu, 1 thread": engine_named("cpu", 1), "cpu, 3 threads": engine_named("cpu", 3)}
ROWS, N = 5000, 23


@pytest.fixture(params=list(ENGINES))
def engine(request):
    return ENGINES[request.param]


def make(kind: str, dtype) -> Dense | Counts:
    rng = np.random.default_rng(5)
    x = rng.standard_normal((ROWS, N)) @ rng.standard_normal((N, N)) + rng.standard_normal(N)
    x[:, 3] = 7.0  # constant
    x[10:20] = x[9]  # repeated rows
    if kind == "far from zero":
        x += 300.0
    if kind in ("array", "far from zero"):
        return Dense(x.astype(dtype))
    if kind == "fortran":
        return Dense(np.asfortranarray(x.astype(dtype)))
    if kind == "blocks":
        return Dense(IteratorBlocks([x[i : i + 777].astype(dtype) for i in range(0, ROWS, 777)]))
    s = sparse.random(ROWS, N, 0.15, random_state=1, format="csr", dtype=np.float64)
    keep = np.ones(s.nnz, bool)
    keep[s.indptr[7] : s.indptr[8]] = False  # empty row
    keep[s.indices == 4] = False  # empty column
    s.data[~keep] = 0
    s.eliminate_zeros()
    return Counts.from_scipy(s.astype(dtype))


KINDS = ("array", "far from zero", "fortran", "blocks", "sparse")
cases = pytest.mark.parametrize("kind", KINDS)
dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64])
weighted = pytest.mark.parametrize("weighted", [False, True])


def weights(use: bool):
    if not use:
        return None
    w = np.random.default_rng(2).random(ROWS) * 3
    w[:40] = 0.0
    return w


def assert_close(got, want, dtype, factor=1.0):
    limit = (2e-5 if dtype == np.float32 else 1e-11) * factor
    scale = np.abs(want).max(initial=1e-300)
    np.testing.assert_allclose(np.asarray(got) / scale, np.asarray(want) / scale, atol=limit, rtol=0)


@cases
@dtypes
@weighted
def test_moments(engine, kind, dtype, weighted):
    x, w, probe = make(kind, dtype), weights(weighted), np.random.default_rng(3).standard_normal(N)
    got, want = engine.moments(x, probe, w), PLAIN.moments(x, probe, w)
    assert got.rows == ROWS
    assert_close(got.weight, want.weight, np.float64)
    assert_close(got.mean, want.mean, dtype)
    assert_close(got.scatter, want.scatter, dtype)
    assert_close(got.probed, want.probed, dtype)
    assert got.probe_error() < (1e-5 if dtype == np.float32 else 1e-12)


@cases
@dtypes
@weighted
def test_column_moments(engine, kind, dtype, weighted):
    x, w = make(kind, dtype), weights(weighted)
    got, want = engine.column_moments(x, w), PLAIN.column_moments(x, w)
    assert_close(got.mean, want.mean, dtype)
    assert_close(got.square, want.square, dtype)


@cases
@dtypes
@weighted
@pytest.mark.parametrize("width", [1, 5, 40])
@pytest.mark.parametrize("centered", [False, True, "implicitly"])
def test_gram_times(engine, kind, dtype, weighted, width, centered):
    x, w = make(kind, dtype), weights(weighted)
    mean = PLAIN.column_moments(x, w).mean if centered else None
    v = np.random.default_rng(4).standard_normal((N, width)).astype(dtype)
    if centered == "implicitly" and kind == "far from zero":
        pytest.skip("implicit centering is for means that are not large against the spread")
    got = engine.gram_times(x, v, mean, w, implicit=centered == "implicitly")
    assert_close(got, PLAIN.gram_times(x, v, mean, w), dtype, 10 if centered == "implicitly" else 3)


@cases
@dtypes
@pytest.mark.parametrize("centered", [False, True])
def test_times_and_times_t(engine, kind, dtype, centered):
    x = make(kind, dtype)
    mean = PLAIN.column_moments(x).mean if centered else None
    rng = np.random.default_rng(4)
    v, y = rng.standard_normal((N, 6)).astype(dtype), rng.standard_normal((ROWS, 6)).astype(dtype)
    assert_close(engine.times(x, v, mean), PLAIN.times(x, v, mean), dtype)
    assert_close(engine.times_t(x, y, mean), PLAIN.times_t(x, y, mean), dtype, 10)


@cases
@dtypes
def test_misfit(engine, kind, dtype):
    x = make(kind, dtype)
    mean = PLAIN.column_moments(x).mean
    u = np.linalg.qr(np.random.default_rng(4).standard_normal((N, 4)))[0].astype(dtype)
    assert_close(engine.misfit(x, u, mean), PLAIN.misfit(x, u.astype(float), mean), dtype, 10)


@dtypes
@pytest.mark.parametrize("kind", ["array", "sparse"])
def test_row_gram(engine, kind, dtype):
    x = make(kind, dtype)
    short = Dense(x.values[:50]) if kind == "array" else Counts.from_scipy(x.to_scipy()[:50])
    mean = PLAIN.column_moments(short).mean
    assert_close(engine.row_gram(short, mean), PLAIN.row_gram(short, mean), dtype)


@dtypes
def test_orth_spans_the_same_and_drops_dependent_columns(engine, dtype):
    rng = np.random.default_rng(0)
    base = rng.standard_normal((6000, 5)).astype(dtype)
    v = np.column_stack([base, base @ rng.standard_normal((5, 3)).astype(dtype)])
    q = engine.orth(v)
    assert q.shape == (6000, 5)
    assert_close(q.T @ q, np.eye(5), dtype)
    assert_close(q @ (q.T @ base), base, dtype, 10)
    against = engine.orth(rng.standard_normal((6000, 4)).astype(dtype))
    r = engine.orth(np.column_stack([base, against[:, 0]]), against)
    assert r.shape == (6000, 5)
    np.testing.assert_allclose(against.T @ r, 0, atol=1e-6 if dtype == np.float32 else 1e-13)
    assert engine.orth(np.zeros((10, 3), dtype)).shape == (10, 0)


def test_inner_outer_and_eigh_top(engine):
    rng = np.random.default_rng(0)
    q, w, s = rng.standard_normal((9000, 7)), rng.standard_normal((9000, 3)), rng.standard_normal((7, 2))
    assert_close(engine.inner(q, w), PLAIN.inner(q, w), np.float64)
    assert_close(engine.outer(q, s), PLAIN.outer(q, s), np.float64)
    a = rng.standard_normal((30, 30))
    for k in (0, 1, 5, 30):
        values, vectors = engine.eigh_top(a + a.T, k)
        assert_close(values, PLAIN.eigh_top(a + a.T, k)[0], np.float64)
        assert_close((a + a.T) @ vectors, vectors * values, np.float64)


@pytest.mark.parametrize("k", [0, 1, 4, 9])
@weighted
@pytest.mark.parametrize("kernel", [gaps, gaps_dense], ids=["rows", "masks"])
def test_gap_kernels(kernel, k, weighted):
    rng = np.random.default_rng(8)
    x = rng.standard_normal((300, 9)) + 3
    x[rng.random(x.shape) < 0.4] = np.nan
    x[5] = np.nan  # nothing observed
    seen = Observed.from_nan(x)
    w, mean = rng.standard_normal((9, k)), rng.standard_normal(9)
    om = weights(True)[:300] if weighted else None
    want = PLAIN.gap_statistics(seen, w, mean, 0.7, om)
    for threads in (1, 3):
        for got, right in zip(kernel.gap_statistics(seen, w, mean, 0.7, om, threads), want):
            assert_close(got, np.asarray(right), np.float64)
        for got, right in zip(kernel.gap_codes(seen, w, mean, 0.7, threads), PLAIN.gap_codes(seen, w, mean, 0.7)):
            assert_close(got, right, np.float64, 10)


def test_merging_moments_is_associative():
    rng = np.random.default_rng(0)
    x, probe = rng.standard_normal((90, 4)) * [1, 10, 0.1, 5] + 1000, rng.standard_normal(4)
    engine = ENGINES["cpu, 1 thread"]
    parts = [engine.moments(Dense(x[i : i + 30]), probe) for i in (0, 30, 60)]
    left = Moments.empty(4, probe)
    for part in parts:
        left.merge_with(part)
    right = parts[2]
    right.merge_with(parts[1])
    right.merge_with(parts[0])
    whole = PLAIN.moments(Dense(x), probe)
    for got in (left, right):
        assert_close(got.scatter, whole.scatter, np.float64, 100)
        assert_close(got.mean, whole.mean, np.float64)


@pytest.mark.parametrize("call", ["moments", "column_moments"])
def test_bad_entries_never_pass(engine, call):
    x = make("array", np.float64).values.copy()
    arguments = (np.ones(N),) if call == "moments" else ()
    x[4321, 11] = np.nan
    with pytest.raises(GapsFound) as found:
        getattr(engine, call)(Dense(x), *arguments)
    assert (found.value.row, found.value.column) == (4321, 11)
    x[4321, 11] = -np.inf
    with pytest.raises(InputError, match="inf at row 4321, column 11"):
        getattr(engine, call)(Dense(x), *arguments)
    s = make("sparse", np.float64)
    s.data[100] = np.inf
    row = int(np.searchsorted(s.indptr, 100, side="right")) - 1
    if call == "column_moments":
        with pytest.raises(InputError, match=f"inf at row {row}, column {s.indices[100]}"):
            engine.column_moments(s)


def test_bits_do_not_depend_on_threads():
    results = []
    for threads in (1, 2, 5):
        engine = engine_named("cpu", threads)
        parts = []
        for kind in ("array", "sparse"):
            x = make(kind, np.float32)
            v = np.random.default_rng(4).standard_normal((N, 12)).astype(np.float32)
            parts += [
                engine.moments(x, np.ones(N)).scatter,
                engine.gram_times(x, v, None),
                engine.times_t(x, engine.times(x, v, None), None),
            ]
            parts += [engine.column_moments(x).square]
        results.append(b"".join(p.tobytes() for p in parts))
    assert results[0] == results[1] == results[2]


def test_64_bit_indices():
    """Index arrays of 64 bits give what 32 bits give, and row pointers beyond 2^31 are not truncated."""
    s = make("sparse", np.float64)
    wide = Counts(s.indptr.astype(np.int64), s.indices.astype(np.int64), s.data, s.n_columns)
    engine = ENGINES["cpu, 1 thread"]
    v = np.random.default_rng(4).standard_normal((N, 3))
    np.testing.assert_array_equal(engine.gram_times(wide, v, None), engine.gram_times(s, v, None))
    far = Counts(np.array([0, 1], np.int64), np.array([2**31 + 5], np.int64), np.ones(1), 2**31 + 6)
    assert far.shape == (1, 2**31 + 6)


@weighted
@dtypes
def test_tiles_give_the_products_of_plain_rows(weighted, dtype):
    """Large sparse data are copied into tiles for repeated products; the products do not change."""
    rng = np.random.default_rng(0)
    rows, n, each = 5500, 3000, 300
    columns = np.minimum((n * rng.random((rows, each)) ** 3).astype(np.int64), n - 1)
    s = sparse.csr_array(
        (rng.standard_normal(rows * each), (np.repeat(np.arange(rows), each), columns.ravel())), shape=(rows, n)
    )
    x = Counts.from_scipy(s.astype(dtype))
    w = rng.random(rows) if weighted else None
    v = rng.standard_normal((n, 6)).astype(dtype)
    results = []
    for threads in (1, 3):
        engine = engine_named("cpu", threads)
        placed = engine.put(x)
        assert type(placed).__name__ == "TiledCounts"
        np.testing.assert_array_equal(np.sort(placed.values), np.sort(x.data))
        mean = engine.column_moments(x, w).mean
        results.append(engine.gram_times(placed, v, mean, w))
    assert results[0].tobytes() == results[1].tobytes()
    assert_close(results[0], products_by_scipy(s, v, mean, w), dtype, 5)
    assert (
        ENGINES["cpu, 1 thread"].put(make("sparse", dtype)).nnz == make("sparse", dtype).nnz
    )  # small data stay as they are


def products_by_scipy(s, v, mean, w):
    """Xc^T diag(w) Xc V in float64 without a dense X."""
    w = np.ones(s.shape[0]) if w is None else w
    y = (s @ v.astype(float) - mean @ v) * w[:, None]
    return s.T @ y - np.outer(mean, y.sum(axis=0))
