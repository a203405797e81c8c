"""Every primitive on every engine against the oracle, on data where each argument matters."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from registry import ENGINES, cpu
from scipy import sparse

from eckart.engines.protocol import GapsFound, Moments, RidgeRule, Sketch
from eckart.errors import InputError
from eckart.io.tables.row_blocks import IteratorBlocks
from eckart.matrix import Counts, Dense, Observed
from oracle import JUDGE

PLAIN = JUDGE
ROWS, N = 5000, 23


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
    np.testing.assert_allclose(
        np.asarray(got) / scale, np.asarray(want) / scale, atol=limit, rtol=0
    )


@cases
@dtypes
@weighted
def test_moments(engine, kind, dtype, weighted):
    x, w, probe = make(kind, dtype), weights(weighted), np.random.default_rng(3).standard_normal(N)
    got, want = engine.moments(engine.put(x, w), probe), PLAIN.moments(PLAIN.put(x, w), probe)
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
    got, want = engine.column_moments(engine.put(x, w)), PLAIN.column_moments(PLAIN.put(x, w))
    assert_close(got.mean, want.mean, dtype)
    assert_close(got.square, want.square, dtype)


@cases
@dtypes
@weighted
@pytest.mark.parametrize("width", [1, 5, 40])
@pytest.mark.parametrize("centered", [False, True, "implicitly"])
def test_gram_times(engine, kind, dtype, weighted, width, centered):
    x, w = make(kind, dtype), weights(weighted)
    mean = PLAIN.column_moments(PLAIN.put(x, w)).mean if centered else None
    v = np.random.default_rng(4).standard_normal((N, width)).astype(dtype)
    if centered == "implicitly" and kind == "far from zero":
        pytest.skip("implicit centering is for means that are not large against the spread")
    got = engine.gram_times(engine.put(x, w), v, mean, implicit=centered == "implicitly")
    assert_close(
        got,
        PLAIN.gram_times(PLAIN.put(x, w), v, mean),
        dtype,
        10 if centered == "implicitly" else 3,
    )


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


@dtypes
@weighted
@pytest.mark.parametrize("shape", [(0, 3, 2), (1, 3, 2), (ROWS, 7, 3), (200_000, 8, 5)], ids=str)
def test_inner_and_outer(engine, shape, dtype, weighted):
    rows, a, b = shape
    rng = np.random.default_rng(0)
    q, w, plus = (engine.take(rng.standard_normal((rows, c)), dtype) for c in (a, b, b))
    s = rng.standard_normal((a, b))
    om = engine.take(rng.random(rows) * (np.arange(rows) % 3)) if weighted else None
    host = [PLAIN.take(engine.get(each)) for each in (q, w, plus)]
    got = engine.inner(q, w, om)
    assert got.dtype == np.float64
    assert_close(got, PLAIN.inner(host[0], host[1], om), dtype, 10)
    assert_close(
        engine.inner(q[:, 1:], w[:, :1], om), PLAIN.inner(host[0], host[1], om)[1:, :1], dtype, 10
    )
    assert engine.outer(q, s).dtype == dtype
    assert_close(engine.get(engine.outer(q, s)), PLAIN.outer(host[0], s), dtype)
    assert_close(engine.get(engine.outer(q, s, plus)), PLAIN.outer(host[0], s, host[2]), dtype)
    assert_close(
        engine.get(engine.outer(q, s, plus, -0.3)), PLAIN.outer(host[0], s, host[2], -0.3), dtype
    )


def test_eigh_top(engine):
    rng = np.random.default_rng(0)
    a = rng.standard_normal((30, 30))
    for k in (0, 1, 5, 30):
        values, vectors = engine.eigh_top(a + a.T, k)
        assert_close(values, PLAIN.eigh_top(a + a.T, k)[0], np.float64)
        assert_close((a + a.T) @ vectors, vectors * values, np.float64)


@pytest.mark.parametrize("centered", [True, False])
def test_covariance(engine, centered):
    rng = np.random.default_rng(0)
    scatter, mean = rng.standard_normal((9, 9)), rng.standard_normal(9)
    got = engine.covariance(scatter, 3.0, None if centered else mean)
    assert_close(got, PLAIN.covariance(scatter, 3.0, None if centered else mean), np.float64)
    assert (got == got.T).all()


def test_is_below(engine):
    """At the largest eigenvalue the answer turns, whatever C and the low-rank part share."""
    rng = np.random.default_rng(0)
    c, (q, r) = rng.standard_normal((9, 9)), rng.standard_normal((2, 9, 3))
    c = c + c.T
    top = float(np.linalg.eigvalsh(c + q @ r.T + r @ q.T)[-1])
    assert engine.is_below(c, q, r, top + 1e-9)
    assert not engine.is_below(c, q, r, top - 1e-9)


@pytest.mark.parametrize("k", [0, 1, 4, 9])
@weighted
@pytest.mark.parametrize("few", [False, True], ids=["masks", "entries"])
def test_gaps_by_masks_and_by_entries(engine, few, k, weighted):
    """Where many and where hardly any entries are seen."""
    rng = np.random.default_rng(8)
    x = rng.standard_normal((300, 9)) + 3
    x[rng.random(x.shape) < 0.4] = np.nan
    if few:
        x[:, 1:8] = np.nan
        x[20:] = np.nan
    x[5] = np.nan  # nothing observed
    seen = Observed.from_nan(x)
    w, mean = rng.standard_normal((9, k)), rng.standard_normal(9)
    om = weights(True)[:300] if weighted else None
    want = PLAIN.gap_statistics(PLAIN.put(seen, om), w, mean, 0.7)
    for got, right in zip(engine.gap_statistics(engine.put(seen, om), w, mean, 0.7), want):
        assert_close(got, np.asarray(right), np.float64)
    for got, right in zip(
        engine.gap_codes(seen, w, mean, 0.7), PLAIN.gap_codes(seen, w, mean, 0.7)
    ):
        assert_close(engine.get(got), right, np.float64, 10)
    u = np.linalg.qr(w)[0]
    got, right = (e.gap_expect(seen, u, np.full(k, 2.0), mean, 0.7) for e in (engine, PLAIN))
    assert_close(engine.get(got), right, np.float64, 10)


@weighted
def test_rows_with_the_same_gaps_share_their_work(engine, weighted):
    """Five kinds of gaps in 300 rows, in any order: the same statistics."""
    rng = np.random.default_rng(8)
    x = rng.standard_normal((300, 9)) + 3
    x[(rng.random((5, 9)) < 0.4)[rng.integers(0, 5, 300)]] = np.nan
    om = weights(True)[:300] if weighted else None
    seen, (w, mean) = Observed.from_nan(x), (rng.standard_normal((9, 4)), rng.standard_normal(9))
    for got, right in zip(
        engine.gap_statistics(engine.put(seen, om), w, mean, 0.7),
        PLAIN.gap_statistics(PLAIN.put(seen, om), w, mean, 0.7),
    ):
        assert_close(got, np.asarray(right), np.float64)


@dtypes
@weighted
def test_gaps_start_solve_and_expected_codes(engine, dtype, weighted):
    rng = np.random.default_rng(8)
    x = rng.standard_normal((300, 9)) + 300
    x[rng.random(x.shape) < 0.4] = np.nan
    x[5] = np.nan  # nothing observed
    om = weights(True)[:300] if weighted else None
    seen = Observed.from_nan(x.astype(dtype))
    got, want = engine.put(seen, om), PLAIN.put(seen, om)
    for a, b in zip(engine.seen_columns(got), PLAIN.seen_columns(want)):
        assert_close(a, b, dtype)
    mean = PLAIN.seen_columns(want).mean
    v = rng.standard_normal((9, 5))
    assert_close(engine.gram_times(got, v, mean), PLAIN.gram_times(want, v, mean), np.float64, 10)
    u, gain = np.linalg.qr(rng.standard_normal((9, 3)))[0], np.array([2.0, 1.0, 0.0])
    assert_close(
        engine.get(engine.gap_expect(got, u, gain, mean, 0.7)),
        PLAIN.gap_expect(want, u, gain, mean, 0.7),
        dtype,
    )
    stats = PLAIN.gap_statistics(want, u * gain, mean, 0.7)
    for a, b in zip(engine.gap_solve(stats), PLAIN.gap_solve(stats)):
        assert_close(a, b, np.float64, 1e4)  # systems of condition 1e5: the mean is far from zero
    np.testing.assert_array_equal(np.isnan(engine.entries(got)), np.isnan(x))
    assert engine.largest(got) == np.nanmax(np.abs(x.astype(dtype)))


@cases
@dtypes
@weighted
@pytest.mark.parametrize("centered", [False, True])
def test_svd_sketch_entries_and_scale(engine, kind, dtype, weighted, centered):
    x, w = make(kind, dtype), weights(weighted)
    got, want = engine.svd(engine.put(x, w), centered), PLAIN.svd(PLAIN.put(x, w), centered)
    assert (got.rows, got.weight) == (want.rows, pytest.approx(want.weight))
    assert_close(got.mean, want.mean, dtype)
    assert_close(got.values, want.values, dtype, 10)
    assert_close(
        (got.right.T * got.values**2) @ got.right,
        (want.right.T * want.values**2) @ want.right,
        dtype,
        10,
    )
    fresh = Sketch(N, 30, np.dtype(np.float64), centered)  # wider than the data: nothing is lost
    a, b = engine.sketch(engine.put(x, w), fresh), PLAIN.sketch(PLAIN.put(x, w), fresh)
    assert a.rows == b.rows == ROWS
    for p, q in (
        (a.weight, b.weight),
        (a.total, b.total),
        (a.mean, b.mean),
        (a.b.T @ a.b, b.b.T @ b.b),
    ):
        assert_close(p, q, dtype, 10)
    entries = engine.entries(engine.put(x))
    assert entries.dtype == dtype
    np.testing.assert_array_equal(entries, PLAIN.entries(PLAIN.put(x)))
    assert engine.largest(engine.put(x)) == np.abs(entries).max()
    np.testing.assert_array_equal(
        engine.entries(engine.scaled(engine.put(x, w), 0.5)), entries * dtype(0.5)
    )


@pytest.mark.parametrize("record", ["columns", "seen", "gaps", "sketch"])
def test_every_record_of_a_sum_merges(record):
    """The parts of the rows, merged in two orders, say what all rows say."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((90, 4)) * [1, 10, 0.1, 5] + 1000
    gappy = np.where(rng.random(x.shape) < 0.3, np.nan, x)
    om = rng.random(90)
    measure = {
        "columns": lambda at: PLAIN.column_moments(PLAIN.put(Dense(x[at]), om[at])),
        "seen": lambda at: PLAIN.seen_columns(PLAIN.put(Observed.from_nan(gappy[at]))),
        "gaps": lambda at: PLAIN.gap_statistics(
            PLAIN.put(Observed.from_nan(gappy[at]), om[at]), np.eye(4)[:, :2], x.mean(axis=0), 0.5
        ),
        "sketch": lambda at: PLAIN.sketch(
            PLAIN.put(Dense(x[at]), om[at]), Sketch(4, 9, np.dtype(np.float64), True)
        ),
    }[record]
    a, b, c = (measure(slice(i, i + 30)) for i in (0, 30, 60))
    whole = measure(slice(None))
    for got in (a.merge(b).merge(c), a.merge(b.merge(c))):
        if record == "sketch":
            assert (got.rows, got.total) == (90, pytest.approx(whole.total))
            assert_close(got.b.T @ got.b, whole.b.T @ whole.b, np.float64, 100)
        else:
            for one, other in zip(got, whole):
                assert_close(one, other, np.float64, 100)


def test_merging_moments_is_associative():
    rng = np.random.default_rng(0)
    x, probe = rng.standard_normal((90, 4)) * [1, 10, 0.1, 5] + 1000, rng.standard_normal(4)
    engine = ENGINES["cpu, 1 thread"]
    parts = [engine.moments(Dense(x[i : i + 30]), probe) for i in (0, 30, 60)]
    left = Moments.empty(4, probe)
    for part in parts:
        left.merge(part)
    right = parts[2]
    right.merge(parts[1]).merge(parts[0])
    whole = PLAIN.moments(Dense(x), probe)
    for got in (left, right):
        assert_close(got.scatter, whole.scatter, np.float64, 100)
        assert_close(got.mean, whole.mean, np.float64)


CALLS = {
    "moments": lambda e, x: e.moments(x, np.ones(N)),
    "column_moments": lambda e, x: e.column_moments(x),
    "times": lambda e, x: e.times(x, np.ones((N, 2)), None),
    "times_t": lambda e, x: e.times_t(x, np.ones((ROWS, 2)), None),
    "gram_times": lambda e, x: e.gram_times(x, np.ones((N, 5)), None),
    "misfit": lambda e, x: e.misfit(x, np.eye(N)[:, :2], np.zeros(N)),
    "svd": lambda e, x: e.svd(x, True),
    "sketch": lambda e, x: e.sketch(x, Sketch(N, 8, np.dtype(np.float64), True)),
    "entries": lambda e, x: e.entries(x),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("form", ["array", "blocks"])
def test_bad_entries_never_pass(engine, call, form):
    """The first pass that reads dense rows looks at them, whatever it computes."""
    x = make("array", np.float64).values.copy()

    def placed():
        return engine.put(
            Dense(
                x
                if form == "array"
                else IteratorBlocks([x[i : i + 777] for i in range(0, ROWS, 777)])
            )
        )

    x[4321, 11] = np.nan
    with pytest.raises(GapsFound) as found:
        CALLS[call](engine, placed())
    assert (found.value.row, found.value.column) == (4321, 11)
    x[4321, 11] = -np.inf
    with pytest.raises(InputError, match="inf at row 4321, column 11"):
        CALLS[call](engine, placed())


def test_bad_stored_entries_never_pass_the_door(engine):
    s = make("sparse", np.float64)
    row = int(np.searchsorted(s.indptr, 100, side="right")) - 1
    for bad, words in ((np.inf, "inf at"), (np.nan, "NaN at")):
        s.data[100] = bad
        with pytest.raises(InputError, match=f"{words} row {row}, column {s.indices[100]}"):
            engine.put(s)


def test_bits_do_not_depend_on_threads():
    results = []
    for threads in (1, 2, 3, 5, 16):
        engine = cpu(threads, 0)
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
    assert len(set(results)) == 1


def test_64_bit_indices():
    """Index arrays of 64 bits give what 32 bits give, and row pointers beyond 2^31 are not
    truncated."""
    s = make("sparse", np.float64)
    wide = Counts(s.indptr.astype(np.int64), s.indices.astype(np.int64), s.data, s.n_columns)
    engine = ENGINES["cpu, 1 thread"]
    v = np.random.default_rng(4).standard_normal((N, 3))
    np.testing.assert_array_equal(engine.gram_times(wide, v, None), engine.gram_times(s, v, None))
    far = Counts(np.array([0, 1], np.int64), np.array([2**31 + 5], np.int64), np.ones(1), 2**31 + 6)
    assert far.shape == (1, 2**31 + 6)


@weighted
@dtypes
@pytest.mark.parametrize("rounds", [False, True], ids=["at once", "rounds"])
def test_tiles_give_the_products_of_plain_rows(weighted, dtype, rounds, monkeypatch):
    """Large sparse data are copied into tiles for repeated products; the products do not change,
    whether a thread takes a group of chunks or shares it."""
    if rounds:  # eleven chunks, five at a time
        from eckart.engines.cpu.entries import tiles

        monkeypatch.setattr(tiles, "CHUNK", 512)
        monkeypatch.setattr(tiles, "IMAGE_BYTES", 5 * 512 * 6 * np.dtype(dtype).itemsize)
    rng = np.random.default_rng(0)
    rows, n, each = 5500, 3000, 300
    columns = np.minimum((n * rng.random((rows, each)) ** 3).astype(np.int64), n - 1)
    s = sparse.csr_array(
        (rng.standard_normal(rows * each), (np.repeat(np.arange(rows), each), columns.ravel())),
        shape=(rows, n),
    )
    x = Counts.from_scipy(s.astype(dtype))
    w = rng.random(rows) if weighted else None
    v = rng.standard_normal((n, 6)).astype(dtype)
    results = []
    for threads in (1, 2, 3, 4, 5, 16):
        engine = cpu(threads, 0)
        placed = engine.put(x, w)
        mean = engine.column_moments(placed).mean
        results.append(engine.gram_times(placed, v, mean))
        np.testing.assert_array_equal(np.sort(placed.kept["tiles"].values), np.sort(x.data))
    assert len({result.tobytes() for result in results}) == 1
    assert_close(results[0], products_by_scipy(s, v, mean, w), dtype, 5)
    small = engine.put(make("sparse", dtype))
    engine.gram_times(small, np.ones((N, 6), dtype), None)
    assert small.kept["tiles"] is None  # small data stay as they are


def products_by_scipy(s, v, mean, w):
    """Xc^T diag(w) Xc V in float64 without a dense X."""
    w = np.ones(s.shape[0]) if w is None else w
    y = (s @ v.astype(float) - mean @ v) * w[:, None]
    return s.T @ y - np.outer(mean, y.sum(axis=0))


# ---- completion: ridge_rows, bias_rows, sampled, top_columns

COLUMNS = 300


def ratings(dtype, kind: str = "ratings") -> Observed:
    """Rows of 0 to 300 entries; an empty column, repeated values, and for implicit feedback
    strengths > 0."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((40, COLUMNS)) + 2
    x[rng.random(x.shape) < rng.random((40, 1))] = np.nan
    x[5] = np.nan  # an empty row
    x[6] = 1.5  # full, all values equal: more entries than a chunk holds
    x[7] = np.nan
    x[7, 11] = -3.0  # one entry
    x[:, 12] = np.nan  # an empty column
    return Observed.from_nan((np.abs(x) + 0.1 if kind == "strengths" else x).astype(dtype))


RULES = {
    "one ridge": (RidgeRule(0.7), ()),
    "ridge by count": (RidgeRule(0.05, 1.0), ("weights", "offset")),
    "bias": (RidgeRule(0.3, 1.0, bias=True, bias_l2=0.1), ("weights", "offset")),
    "bias without ridge": (RidgeRule(0.3, bias=True), ("offset",)),
    "base and prior": (RidgeRule(0.0), ("weights", "base", "prior")),
    "bias, base and prior": (RidgeRule(0.2, bias=True, bias_l2=2.0), ("base", "prior")),
    "draws": (RidgeRule(0.4), ("weights", "base", "prior", "noise")),
    "draws with bias": (RidgeRule(0.4, bias=True, bias_l2=1.0), ("base", "noise")),
    "implicit": (RidgeRule(0.01, 1.0, alpha=2.0, extra=30.0), ("base",)),
    "implicit, unobserved zeros": (
        RidgeRule(0.01, 0.5, alpha=2.0, shift=0.3, extra=30.0),
        ("base",),
    ),
    "nonnegative": (RidgeRule(0.5, nonnegative=True), ("weights", "offset", "start")),
    "nonnegative, implicit": (
        RidgeRule(0.01, 1.0, nonnegative=True, alpha=1.0, extra=30.0),
        ("base", "start"),
    ),
    "no ridge": (RidgeRule(0.0), ()),
    "no ridge, bias": (RidgeRule(0.0, bias=True, bias_l2=0.5), ("offset",)),
}


def ridge_arguments(names, x: Observed, k: int, dtype):
    rng = np.random.default_rng(k)
    root = rng.standard_normal((k, k + 3))
    made = {
        "weights": rng.random(x.nnz) * 3,
        "offset": rng.standard_normal(COLUMNS),
        "base": root @ root.T / k + 0.5 * np.eye(k),
        "prior": rng.standard_normal((x.shape[0], k)),
        "noise": rng.standard_normal((x.shape[0], k)),
        "start": rng.random((x.shape[0], k)),
    }
    made["weights"][::7] = 0.0
    return {n: made[n] if n == "base" else made[n].astype(dtype) for n in names}


def ridge_problem(name: str, k: int, dtype):
    rule, names = RULES[name]
    x = ratings(dtype, "strengths" if rule.alpha else "ratings")
    right = np.random.default_rng(9).standard_normal((COLUMNS, k)).astype(dtype)
    right[20] = right[21]  # repeated columns
    return x, right, ridge_arguments(names, x, k, dtype)


@functools.cache
def plain_rows(name: str, k: int, dtype):
    x, right, more = ridge_problem(name, k, dtype)
    return PLAIN.ridge_rows(x, right, RULES[name][0], **more)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("k", [1, 16, 37])
@dtypes
def test_ridge_rows(engine, name, k, dtype, monkeypatch):
    monkeypatch.setattr(
        "eckart.engines.cpu.ridge.schedule.WORTH", 0.0
    )  # rows with few entries by their own kernel, as in large data
    rule, names = RULES[name]
    x, right, more = ridge_problem(name, k, dtype)
    got, want = engine.ridge_rows(x, right, rule, **more), plain_rows(name, k, dtype)
    assert got.left.shape == (x.shape[0], k)
    assert got.left.dtype == dtype
    # by coordinate descent, which nears the minimum: judged by its value, and loosely by place
    if rule.nonnegative:
        assert (got.left >= 0).all()
        assert want.value * (1 - 1e-5) <= got.value <= want.value * (1 + 1e-4)
        assert_close(got.left, want.left, np.float32, 100)
        return
    factor = 30 if rule.l2 or "base" in names else 3000
    assert_close(got.left, want.left, dtype, factor)
    assert (got.bias is None) == (want.bias is None)
    if want.bias is not None:
        assert_close(got.bias, want.bias, dtype, factor)
    if "noise" not in names:  # the value of a draw is not promised
        assert_close(got.value, want.value, dtype, 100)
    if not ("prior" in names or "noise" in names):
        assert np.abs(got.left[5]).max() < 1e-6  # nothing seen, nothing claimed


@pytest.mark.parametrize(
    "name", ["one ridge", "ridge by count", "implicit", "implicit, unobserved zeros"]
)
@pytest.mark.parametrize("k", [5, 37])
@dtypes
def test_ridge_rows_by_conjugate_gradients(engine, name, k, dtype):
    """Many steps end at the minimum; few steps from ``start`` lie between it and where they began,
    and nearer with every step."""
    x, right, more = ridge_problem(name, k, dtype)
    rule, want = RULES[name][0], plain_rows(name, k, dtype)
    start = ridge_arguments(("start",), x, k, dtype)["start"]
    values = []
    for steps in (1, 2, 4):
        got = engine.ridge_rows(x, right, rule, start=start, cg_steps=steps, **more)
        assert got.left.dtype == dtype
        values.append(got.value)
    assert values == sorted(values, reverse=True)
    assert values[-1] >= want.value * (1 - 1e-4)
    done = engine.ridge_rows(x, right, rule, start=start, cg_steps=300, **more)
    assert_close(done.value, want.value, np.float32, 10)
    assert_close(done.left, want.left, np.float32, 100)


@dtypes
def test_every_argument_of_ridge_rows_matters(engine, dtype):
    x, k = ratings(dtype), 5
    right = np.random.default_rng(9).standard_normal((COLUMNS, k)).astype(dtype)
    plain = engine.ridge_rows(x, right, RidgeRule(0.7)).left
    for name in ("weights", "offset", "base", "prior", "noise"):
        other = engine.ridge_rows(
            x, right, RidgeRule(0.7), **ridge_arguments((name,), x, k, dtype)
        ).left
        assert np.abs(other - plain).max() > 1e-2, name
    for rule in (
        RidgeRule(0.8),
        RidgeRule(0.7, 1.0),
        RidgeRule(0.7, bias=True),
        RidgeRule(0.7, nonnegative=True),
    ):
        assert np.abs(engine.ridge_rows(x, right, rule).left - plain).max() > 1e-3, rule


def test_noise_draws_from_the_posterior(engine):
    """u + R^-1 z, R^T R = G: over draws of z the covariance is G^-1, and with R upper triangular R
    z' = e_1 is known exactly."""
    rng = np.random.default_rng(0)
    k, draws = 5, 4000
    right = rng.standard_normal((COLUMNS, k))
    one = Observed.from_nan(
        np.where(rng.random((1, COLUMNS)) < 0.1, rng.standard_normal((1, COLUMNS)), np.nan)
    )
    many = Observed.from_codes(
        np.repeat(np.arange(draws), one.nnz),
        np.tile(one.indices, draws),
        np.tile(one.data, draws),
        (draws, COLUMNS),
    )
    mean = engine.ridge_rows(one, right, RidgeRule(0.5)).left
    u = (
        engine.ridge_rows(many, right, RidgeRule(0.5), noise=rng.standard_normal((draws, k))).left
        - mean
    )
    gram = right[one.indices].T @ right[one.indices] + 0.5 * np.eye(k)
    whitened = u @ np.linalg.cholesky(gram)
    np.testing.assert_allclose(whitened.T @ whitened / draws, np.eye(k), atol=0.1)


@dtypes
def test_rank_above_the_data_without_ridge_is_of_least_norm(engine, dtype):
    rng = np.random.default_rng(0)
    x = Observed.from_nan(
        np.where(rng.random((20, 12)) < 0.5, rng.standard_normal((20, 12)), np.nan).astype(dtype)
    )
    right = rng.standard_normal((12, 20)).astype(dtype)
    left = engine.ridge_rows(x, right, RidgeRule(0.0)).left
    for i in range(20):
        part = slice(x.indptr[i], x.indptr[i + 1])
        want = np.linalg.pinv(right[x.indices[part]].astype(float)) @ x.data[part]
        np.testing.assert_allclose(left[i], want, atol=5e-4 if dtype == np.float32 else 1e-8)


@dtypes
def test_dependent_factor_columns_without_ridge_stay_finite(engine, dtype):
    """Rows with many entries whose Gram matrix is singular all the same: twins among the columns of
    V."""
    x, rng = ratings(dtype), np.random.default_rng(0)
    right = rng.standard_normal((COLUMNS, 4)).astype(dtype)
    twin = np.column_stack([right, right[:, :2], np.zeros((COLUMNS, 1), dtype)])
    got, want = (
        engine.ridge_rows(x, twin, RidgeRule(0.0)),
        PLAIN.ridge_rows(x, twin, RidgeRule(0.0)),
    )
    assert_close(got.left, want.left, dtype, 1e3)
    assert_close(got.value, want.value, dtype, 100)


@dtypes
@weighted
def test_bias_rows(engine, dtype, weighted):
    x, rng = ratings(dtype), np.random.default_rng(1)
    offset = rng.standard_normal(COLUMNS).astype(dtype)
    w = (rng.random(x.nnz) * 2).astype(dtype) if weighted else None
    for rule in (RidgeRule(1.0, bias=True), RidgeRule(1.0, 1.0, bias=True, bias_l2=0.3)):
        got = engine.bias_rows(x, rule, offset, w)
        assert got.dtype == dtype
        assert_close(got, PLAIN.bias_rows(x, rule, offset, w), dtype)
        assert got[5] == 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [0, 1, 3, 8, 21])
def test_products_at_the_stored_entries(engine, k, dtype):
    rng = np.random.default_rng(k)
    x = Observed.from_nan(
        np.where(rng.random((230, 170)) < 0.3, rng.standard_normal((230, 170)), np.nan).astype(
            dtype
        )
    )
    placed = engine.put(x)
    u, v = rng.standard_normal((230, k)).astype(dtype), rng.standard_normal((170, k)).astype(dtype)
    data = rng.standard_normal(x.nnz).astype(dtype)
    left, right, at = (engine.take(a) for a in (u, v, data))
    rest, square = engine.residual(placed, at, left, right)
    wanted = PLAIN.residual(x, data, u, v)
    assert_close(engine.get(rest), wanted[0], dtype)
    assert square == pytest.approx(wanted[1], rel=1e-5 if dtype == np.float32 else 1e-12)
    turned = engine.by_columns(placed, at)
    np.testing.assert_array_equal(engine.get(turned), PLAIN.by_columns(x, data))
    if k:
        assert_close(
            engine.get(engine.entry_times(placed, at, right)), PLAIN.entry_times(x, data, v), dtype
        )
        assert_close(
            engine.get(engine.entry_times_t(placed, turned, left)),
            PLAIN.entry_times_t(x, PLAIN.by_columns(x, data), u),
            dtype,
        )
        r = engine.triangle(left)
        assert_close(r.T @ r, u.T.astype(np.float64) @ u, dtype, 10)
        np.testing.assert_allclose(np.tril(r, -1), 0, atol=0)


@dtypes
@pytest.mark.parametrize("rows", [0, 1, 40_000])
@pytest.mark.parametrize("columns", [0, 1, 9])
def test_columns_are_written_where_they_belong(engine, rows, columns, dtype):
    rng = np.random.default_rng(rows)
    room, more = (rng.standard_normal((rows, k)).astype(dtype) for k in (12, columns))
    wanted = room.copy()
    wanted[:, 2 : 2 + columns] = more
    for part in (more, np.asfortranarray(more)):
        into = engine.take(room.copy())
        engine.write_columns(into, 2, engine.take(part))
        np.testing.assert_array_equal(engine.get(into), wanted)


@dtypes
@pytest.mark.parametrize("k", [1, 7, 16, 33])
def test_sampled(engine, dtype, k):
    x, rng = ratings(dtype), np.random.default_rng(1)
    left, right = (
        rng.standard_normal((40, k)).astype(dtype),
        rng.standard_normal((COLUMNS, k)).astype(dtype),
    )
    got = engine.sampled(x, left, right)
    assert got.dtype == dtype
    assert_close(got, PLAIN.sampled(x, left, right), dtype)


@dtypes
@pytest.mark.parametrize("n", [1, 7, 320])
@pytest.mark.parametrize("masked", [False, True])
def test_top_columns(engine, dtype, n, masked):
    """Small whole numbers: every score is exact, most are tied, and ties go to the lower column."""
    rng = np.random.default_rng(2)
    x = ratings(dtype)
    rows = rng.integers(0, 40, 300)  # more rows than a tile, in any order, repeated
    left, right = (rng.integers(-2, 3, (size, 6)).astype(dtype) for size in (300, COLUMNS))
    offset = rng.integers(-1, 2, COLUMNS).astype(dtype)
    hidden = (x.indptr, x.indices, rows) if masked else None
    for more in (None, offset):
        where, best = engine.top_columns(left, right, n, more, hidden)
        want_where, want_best = PLAIN.top_columns(left, right, n, more, hidden)
        assert best.dtype == dtype
        np.testing.assert_array_equal(where, want_where)
        np.testing.assert_array_equal(best, want_best)
    if masked and n == 320:
        full = np.flatnonzero(rows == 6)
        assert (where[full] >= 0).sum(axis=1).max() == 1  # row 6 has seen all but the empty column


def test_top_columns_over_several_tiles_of_columns(engine):
    rng = np.random.default_rng(2)
    left, right = (
        rng.integers(-3, 4, (20, 5)).astype(float),
        rng.integers(-3, 4, (5001, 5)).astype(float),
    )
    # columns that are left out ascend in some rows and stand in any order in others; row 0 has none
    seen = [rng.permutation(5001)[: 700 * (i > 0)] for i in range(20)]
    indices = np.concatenate([np.sort(row) if i % 2 else row for i, row in enumerate(seen)]).astype(
        np.int32
    )
    hidden = np.concatenate([[0], np.cumsum([len(row) for row in seen])]), indices, np.arange(20)
    for more in (None, hidden):
        for got, want in zip(
            engine.top_columns(left, right, 33, None, more),
            PLAIN.top_columns(left, right, 33, None, more),
        ):
            np.testing.assert_array_equal(got, want)


def test_completion_bits_do_not_depend_on_threads():
    results = []
    x = ratings(np.float32)
    right = np.random.default_rng(9).standard_normal((COLUMNS, 20)).astype(np.float32)
    for threads in (1, 2, 3, 5, 16):
        engine = cpu(threads, 0)
        parts = []
        for rule, names in RULES.values():
            y = ratings(np.float32, "strengths") if rule.alpha else x
            parts.append(
                engine.ridge_rows(y, right, rule, **ridge_arguments(names, y, 20, np.float32)).left
            )
        parts += [engine.sampled(x, parts[0], right), *engine.top_columns(parts[0], right, 9)]
        results.append(b"".join(p.tobytes() for p in parts))
    assert results[0] == results[1] == results[2]


def test_at_work_puts_back_what_it_changes(engine):
    from threadpoolctl import threadpool_info

    before = [library["num_threads"] for library in threadpool_info()]
    with engine.at_work():
        pass
    assert [library["num_threads"] for library in threadpool_info()] == before
