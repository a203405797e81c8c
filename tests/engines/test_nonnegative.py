"""The primitives of non-negative factorization on the CPU engine against ``plain``, on data where each argument matters."""

from __future__ import annotations

import numpy as np
import pytest
from registry import ENGINES
from scipy import sparse

from eckart.engines import engine_named
from eckart.engines.protocol import GapsFound, KlRule
from eckart.errors import InputError
from eckart.matrix import Counts, Dense, Observed

PLAIN = engine_named("plain")
ROWS, N = 211, 37
dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64])
sizes = pytest.mark.parametrize("k", [1, 5, 40])
weighted = pytest.mark.parametrize("weighted", [False, True])


def data(dtype, kind="dense"):
    rng = np.random.default_rng(5)
    a = rng.gamma(0.5, 2.0, (ROWS, N)) * (rng.random((ROWS, N)) < 0.4)
    a[7], a[:, 4] = 0.0, 0.0  # an empty row, an empty column
    a[10:14] = a[9]
    if kind == "dense":
        return Dense(a.astype(dtype))
    if kind == "counts":
        return Counts.from_scipy(sparse.csr_matrix(np.round(a * 3).astype(dtype)))
    return Observed.from_nan(np.where(rng.random(a.shape) < 0.5, np.nan, a).astype(dtype))


def factors(dtype, k):
    rng = np.random.default_rng(6)
    w, h = rng.random((ROWS, k)), rng.random((N, k))
    w[rng.random(w.shape) < 0.2] = 0.0
    return w.astype(dtype), h.astype(dtype)


def row_weights(use, size=ROWS):
    return np.random.default_rng(2).integers(0, 4, size).astype(float) if use else None


def same(got, want, dtype, factor=1.0):
    limit = (3e-5 if dtype == np.float32 else 1e-10) * factor
    scale = np.abs(want.factor).max(initial=1e-300)
    np.testing.assert_allclose(got.factor / scale, want.factor / scale, atol=limit, rtol=0)
    assert got.factor.dtype == dtype
    assert got.value == pytest.approx(want.value, rel=limit * 10, abs=limit)
    assert got.kkt == pytest.approx(want.kkt, rel=1e-3 if dtype == np.float32 else 1e-8)


@dtypes
@weighted
@pytest.mark.parametrize("kind", ["dense", "counts", "observed"])
def test_totals(engine, dtype, weighted, kind):
    x, w = data(dtype, kind), row_weights(weighted)
    np.testing.assert_allclose(engine.totals(x, w), PLAIN.totals(x, w), rtol=1e-5 if dtype == np.float32 else 1e-12)


def test_totals_refuse_what_is_negative_infinite_or_absent(engine):
    for bad, error, words in (
        (-1.0, InputError, "row 3, column 2"),
        (np.inf, InputError, "inf at row 3, column 2"),
        (np.nan, GapsFound, "row 3"),
    ):
        a = np.ones((5, 4))
        a[3, 2] = bad
        with pytest.raises(error, match=words):
            engine.totals(Dense(a))
        if not np.isnan(bad):
            with pytest.raises(InputError, match="row 3, column 2"):
                engine.totals(Counts.from_scipy(sparse.csr_matrix(a)))


@dtypes
@sizes
@weighted
def test_hals_rows(engine, dtype, k, weighted):
    (w, h), x = factors(dtype, k), data(dtype)
    gram, pull = h.T @ h + dtype(0.1) * np.eye(k, dtype=dtype), x.array @ h - dtype(0.2)
    for sweeps in (1, 3):
        args = {"sweeps": sweeps, "shrink": 0.0, "weights": row_weights(weighted)}
        same(engine.hals_rows(gram, pull, w, **args), PLAIN.hals_rows(gram, pull, w, **args), dtype, 5)


@dtypes
@sizes
@weighted
def test_hals_pass(engine, dtype, k, weighted):
    (w, h), x, weights = factors(dtype, k), data(dtype), row_weights(weighted)
    gram = h.T @ h
    got = engine.hals_pass(x, h, w, gram, 0.1, weights=weights)
    want = PLAIN.hals_pass(x, h, w, gram, 0.1, weights=weights)
    same(got.rows, want.rows, dtype, 5)
    for a, b in ((got.cross, want.cross), (got.square, want.square)):
        np.testing.assert_allclose(a, b, atol=(1e-4 if dtype == np.float32 else 1e-10) * np.abs(b).max())


@dtypes
@sizes
@weighted
def test_hals_seen(engine, dtype, k, weighted):
    (w, h), x = factors(dtype, k), data(dtype, "observed")
    entry = np.random.default_rng(3).random(x.nnz) if weighted else None
    args = {"l1": 0.1, "l2": 0.3, "shrink": 0.0, "entry_weights": entry, "weights": row_weights(weighted)}
    for sweeps in (1, 3):
        same(
            engine.hals_seen(x, h, w, sweeps=sweeps, **args), PLAIN.hals_seen(x, h, w, sweeps=sweeps, **args), dtype, 20
        )


@dtypes
@sizes
@weighted
@pytest.mark.parametrize("kind", ["dense", "counts", "observed"])
@pytest.mark.parametrize("rule", [KlRule(), KlRule(0.1, 0.0, True), KlRule(0.1, 0.4)])
def test_kl_rows(engine, dtype, k, weighted, kind, rule):
    (w, h), x = factors(dtype, k), data(dtype, kind)
    args = {"steps": 2, "weights": row_weights(weighted)}
    if kind != "dense" and weighted:
        args["entry_scale"] = row_weights(True, N)
    same(engine.kl_rows(x, h, w, rule, **args), PLAIN.kl_rows(x, h, w, rule, **args), dtype, 20)


@dtypes
@weighted
def test_kl_pass_is_kl_rows_of_the_transpose(engine, dtype, weighted):
    (w, h), x, weights = factors(dtype, 5), data(dtype), row_weights(weighted)
    totals = (np.ones(ROWS) if weights is None else weights) @ x.array
    for rule in (KlRule(), KlRule(0.1, 0.4, True)):
        args = w, h, rule, totals, weights
        same(engine.kl_pass(x, *args), PLAIN.kl_pass(x, *args), dtype, 20)


@dtypes
@weighted
@pytest.mark.parametrize("kind", ["dense", "counts"])
def test_square_error(engine, dtype, weighted, kind):
    (w, h), x, weights = factors(dtype, 5), data(dtype, kind), row_weights(weighted)
    assert engine.square_error(x, w, h, weights) == pytest.approx(PLAIN.square_error(x, w, h, weights), rel=1e-5)


@dtypes
def test_bits_do_not_depend_on_threads(dtype):
    (w, h), x = factors(dtype, 5), data(dtype, "counts")
    one, three = ENGINES.values()
    for name, args in (
        ("kl_rows", (x, h, w, KlRule())),
        ("hals_seen", (data(dtype, "observed"), h, w)),
        ("hals_rows", (h.T @ h, w, w)),
    ):
        a, b = getattr(one, name)(*args), getattr(three, name)(*args)
        np.testing.assert_array_equal(a.factor, b.factor)
        assert a[1:] == b[1:]
