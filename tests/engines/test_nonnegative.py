"""The primitives of non-negative factorization against the oracle, on data where each argument
matters."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
from registry import ENGINES
from scipy import sparse

from eckart.engines import engine_named
from eckart.engines.protocol import GapsFound, KlRule
from eckart.errors import InputError
from eckart.matrix import Counts, Dense, Observed
from oracle import JUDGE

PLAIN = JUDGE
ROWS, N = 211, 37
dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64])
sizes = pytest.mark.parametrize("k", [1, 5, 40])
weighted = pytest.mark.parametrize("weighted", [False, True])


def data(dtype, kind="dense", weighted=False, part=slice(None), turned=False):
    """A placed matrix with an empty row, an empty column and repeated rows; row weights and, where
    entries are observed, entry weights."""
    rng = np.random.default_rng(5)
    a = rng.gamma(0.5, 2.0, (ROWS, N)) * (rng.random((ROWS, N)) < 0.4)
    a[7], a[:, 4] = 0.0, 0.0
    a[10:14] = a[9]
    hidden = rng.random(a.shape) < 0.5
    w = rng.integers(0, 4, ROWS).astype(float)[part] if weighted else None
    a, hidden = a[part].astype(dtype), hidden[part]
    if kind == "dense":
        return PLAIN.put(Dense(a), w)
    if kind == "counts":
        found = PLAIN.put(Counts.from_scipy(sparse.csr_matrix(np.round(a * 3))), w)
    else:
        x = Observed.from_nan(np.where(hidden, np.nan, a).astype(dtype))
        found = PLAIN.put(x, w, np.random.default_rng(3).random(x.nnz) if weighted else None)
    return found.T if turned else found


def factors(dtype, k, turned=False):
    rng = np.random.default_rng(6)
    w, h = rng.random((ROWS, k)), rng.random((N, k))
    w[rng.random(w.shape) < 0.2] = 0.0
    w, h = w.astype(dtype), h.astype(dtype)
    return (h, w) if turned else (w, h)


def assert_close(got, want, dtype, factor=1.0):
    limit = (3e-5 if dtype == np.float32 else 1e-10) * factor
    scale = float(np.abs(want).max(initial=0.0)) or 1.0
    np.testing.assert_allclose(np.asarray(got) / scale, want / scale, atol=limit, rtol=0)


def assert_same(got, want, dtype, factor=1.0):
    limit = (3e-5 if dtype == np.float32 else 1e-10) * factor
    assert_close(got.factor, want.factor, dtype, factor)
    assert got.factor.dtype == dtype
    assert got.factor.shape == want.factor.shape
    assert got.value == pytest.approx(want.value, rel=limit * 10, abs=limit)
    # squared violations at an optimum
    rounding = float(10 * np.finfo(dtype).eps) ** 2 * abs(want.value)
    assert got.kkt == pytest.approx(
        want.kkt, rel=1e-3 if dtype == np.float32 else 1e-8, abs=rounding
    )


@dtypes
@weighted
@pytest.mark.parametrize("kind", ["dense", "counts", "observed"])
def test_totals(engine, dtype, weighted, kind):
    x = data(dtype, kind, weighted)
    got, want = engine.totals(x), PLAIN.totals(x)
    np.testing.assert_allclose(got[:5], want[:5], rtol=1e-5 if dtype == np.float32 else 1e-12)
    assert (got.columns is None) == (want.columns is None) == (kind != "dense")
    if kind == "dense":
        assert_close(got.columns, want.columns, dtype)


@pytest.mark.parametrize("judge", [False, True])
def test_totals_refuse_what_is_negative_infinite_or_absent(engine, judge):
    engine = PLAIN if judge else engine
    for bad, error, words in (
        (-1.0, InputError, "row 3, column 2"),
        (np.inf, InputError, "inf at row 3, column 2"),
        (np.nan, GapsFound, "row 3"),
    ):
        a = np.ones((5, 4))
        a[3, 2] = bad
        with pytest.raises(error, match=words):
            engine.totals(engine.put(Dense(a)))
        with pytest.raises(InputError, match="row 3, column 2"):
            engine.totals(engine.put(Counts.from_scipy(sparse.csr_matrix(a))))


@dtypes
@sizes
@weighted
def test_sums_of_a_factor(engine, dtype, k, weighted):
    w, x = factors(dtype, k)[0], data(dtype, "dense", weighted)
    for got, want in zip(engine.factor_sums(w, x), PLAIN.factor_sums(w, x)):
        assert_close(np.asarray(got), np.asarray(want), dtype)
    assert_close(engine.factor_mass(w, x), PLAIN.factor_mass(w, x), dtype)
    assert_close(engine.factor_mass(w), PLAIN.factor_sums(w).mass, dtype)
    assert_close(engine.factor_sums(w).square, w.T.astype(float) @ w, dtype)
    signed = w - dtype(0.4)
    for got, want in zip(engine.sign_sums(signed, x), PLAIN.sign_sums(signed, x)):
        assert_close(got, want, dtype)


@dtypes
@sizes
def test_changes_of_a_factor(engine, dtype, k):
    w = factors(dtype, k)[0]
    scale, mass = np.linspace(-1, 1, k) + 0.05, np.linspace(0, 2, k)
    signed = w - dtype(0.4)
    for name, args in (
        ("rectified", (signed, scale)),
        ("rectified", (signed, scale, 0.1, 7.0)),
        ("projected_rows", (signed, np.eye(k) - 0.3, 0.1)),
        ("leap", (w, w[::-1], 0.7)),
        ("cleaned", (w, mass, 0.05)),
    ):
        got, want = getattr(engine, name)(*args), getattr(PLAIN, name)(*args)
        assert_close(got, want, dtype)
        assert got.dtype == want.dtype == dtype
        assert (got == 0).any() or k == 1 or name in ("rectified", "projected_rows")


def test_views_of_a_placed_matrix(engine):
    x = data(np.float64, "observed", True)
    filled = engine.zero_filled(x)
    assert filled.kind == "counts"
    np.testing.assert_allclose(
        engine.totals(filled)[:5], PLAIN.totals(PLAIN.zero_filled(x))[:5], rtol=1e-12
    )
    v = factors(np.float64, 3)[1]
    assert_close(
        engine.times(filled, v, None), PLAIN.times(PLAIN.zero_filled(x), v, None), np.float64
    )
    image = PLAIN.times(PLAIN.zero_filled(x), v, None)
    assert_close(
        engine.times_t(filled, image, None),
        PLAIN.times_t(PLAIN.zero_filled(x), image, None),
        np.float64,
    )
    assert engine.zero_filled(data(np.float64)).kind == "dense"
    tall = factors(np.float64, 3)[0]
    rows = engine.as_rows(tall, x)
    assert rows.shape == tall.shape
    assert engine.totals(rows).weight == PLAIN.totals(x).weight


@dtypes
@sizes
def test_hals_rows(engine, dtype, k):
    (w, h), x = factors(dtype, k), data(dtype)
    gram, pull = h.T @ h + dtype(0.1) * np.eye(k, dtype=dtype), x.matrix.array @ h
    for sweeps in (0, 1, 3):
        assert_same(
            engine.hals_rows(gram, pull, w, 0.2, sweeps=sweeps),
            PLAIN.hals_rows(gram, pull, w, 0.2, sweeps=sweeps),
            dtype,
            5,
        )


@dtypes
@sizes
@weighted
@pytest.mark.parametrize("kind", ["dense", "counts"])
def test_hals_pass(engine, dtype, k, weighted, kind):
    (w, h), x = factors(dtype, k), data(dtype, kind, weighted)
    gram = h.T @ h
    for sweeps in (0, 2):
        got = engine.hals_pass(x, h, w, gram, 0.1, sweeps=sweeps)
        want = PLAIN.hals_pass(x, h, w, gram, 0.1, sweeps=sweeps)
        assert_close(got.factor, want.factor, dtype, 5)
        for a, b in zip(got.sums, want.sums):
            assert_close(np.asarray(a), np.asarray(b), dtype, 30)


@dtypes
@sizes
@weighted
@pytest.mark.parametrize("turned", [False, True])
def test_hals_seen(engine, dtype, k, weighted, turned):
    (w, h), x = factors(dtype, k, turned), data(dtype, "observed", weighted, turned=turned)
    args = {"l1": 0.1, "l2": 0.3, "shrink": 0.0}
    for sweeps in (1, 3):
        got, want = (e.hals_seen(x, h, w, sweeps=sweeps, **args) for e in (engine, PLAIN))
        assert_same(got, want, dtype, 20)


@dtypes
@sizes
@weighted
@pytest.mark.parametrize(
    ("kind", "turned"),
    [("dense", False), *((k, t) for k in ("counts", "observed") for t in (0, 1))],
)
@pytest.mark.parametrize(
    "rule", [KlRule(), KlRule(0.1, 0.0, True), KlRule(0.1, 0.4), KlRule(tol=1e-3)]
)
def test_kl_rows(engine, dtype, k, weighted, kind, turned, rule):
    (w, h), x = factors(dtype, k, turned), data(dtype, kind, weighted, turned=turned)
    mass = PLAIN.factor_sums(h, data(dtype, kind, weighted) if turned else None).mass
    got, want = (e.kl_rows(x, h, w, rule, mass, steps=2) for e in (engine, PLAIN))
    assert_same(got, want, dtype, 20)
    again, want = (e.kl_rows(x, h, f.factor, rule, mass) for e, f in ((engine, got), (PLAIN, want)))
    assert_same(again, want, dtype, 60)  # a factor of the engine, handed back


@dtypes
@weighted
def test_a_step_of_the_columns_of_dense_rows(engine, dtype, weighted):
    (w, h), x = factors(dtype, 5), data(dtype, "dense", weighted)
    mass, totals = PLAIN.factor_sums(w, x).mass, PLAIN.totals(x).columns
    got, want = engine.kl_sums(x, w, h), PLAIN.kl_sums(x, w, h)
    assert_close(got.up, want.up, dtype, 5)
    assert got.value == pytest.approx(want.value, rel=1e-5 if dtype == np.float32 else 1e-10)
    for rule in (KlRule(), KlRule(0.1, 0.4, True)):
        assert_same(
            engine.kl_step(h, got, mass, totals, rule),
            PLAIN.kl_step(h, want, mass, totals, rule),
            dtype,
            20,
        )


@dtypes
@weighted
@pytest.mark.parametrize("kind", ["dense", "counts", "observed"])
def test_square_error(engine, dtype, weighted, kind):
    (w, h), x = factors(dtype, 5), data(dtype, kind, weighted)
    assert engine.square_error(x, w, h) == pytest.approx(PLAIN.square_error(x, w, h), rel=1e-5)


@weighted
def test_sums_of_parts_of_the_rows_merge(engine, weighted):
    (w, h), whole = factors(np.float64, 5), data(np.float64, "dense", weighted)
    cuts = [slice(0, 50), slice(50, 51), slice(51, ROWS)]
    parts = [(data(np.float64, "dense", weighted, cut), w[cut]) for cut in cuts]
    gram = h.T @ h
    for name, each in (
        ("totals", lambda x, u: engine.totals(x)),
        ("factor_sums", lambda x, u: engine.factor_sums(u, x)),
        ("sign_sums", lambda x, u: engine.sign_sums(u - 0.4, x)),
        ("hals_pass", lambda x, u: engine.hals_pass(x, h, u, gram, 0.1).sums),
        ("kl_sums", lambda x, u: engine.kl_sums(x, u, h)),
    ):
        merged = reduce(lambda a, b: a.merge(b), (each(*part) for part in parts))
        for got, want in zip(merged, each(whole, w)):
            np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-10, err_msg=name)


@dtypes
def test_bits_do_not_depend_on_threads(dtype):
    rng = np.random.default_rng(0)
    a = (rng.random((5000, 300)) * (rng.random((5000, 300)) < 0.3)).astype(dtype)
    w, h = rng.random((5000, 12)).astype(dtype), rng.random((300, 12)).astype(dtype)
    dense, counts = Dense(a), Counts.from_scipy(sparse.csr_matrix(a))
    seen = Observed.from_nan(np.where(a > 0, a, np.nan))
    mass, gram = h.sum(axis=0), h.T @ h
    engines = [engine_named("cpu", t) for t in (1, 2, 3, 5, 16)]
    for name, args in (
        ("totals", (dense,)),
        ("totals", (counts,)),
        ("factor_sums", (w,)),
        ("kl_rows", (counts, h, w, KlRule(), mass)),
        ("kl_rows", (dense, h, w, KlRule(), mass)),
        ("kl_rows", (dense, h, w, KlRule(tol=1e-3), mass)),
        ("kl_sums", (dense, w, h)),
        ("hals_seen", (seen, h, w)),
        ("hals_rows", (gram, w, w)),
        ("hals_pass", (dense, h, w, gram, 0.1)),
        ("hals_pass", (counts, h, w, gram, 0.1)),
    ):
        found = {_bits(getattr(e, name)(*args)) for e in engines}
        assert len(found) == 1, name
    assert len({e.square_error(x, w, h) for e in engines for x in (dense,)}) == 1
    assert ENGINES


def _bits(record):
    return tuple(_bits(a) if isinstance(a, tuple) else np.asarray(a).tobytes() for a in record)
