"""Contract of the primitives of time series: every engine against the oracle, where covariances and
precisions are written out."""

from __future__ import annotations

import numpy as np
import pytest
from registry import ENGINES, JUDGE

from eckart.matrix import Observed


@pytest.fixture(params=list(ENGINES), ids=lambda name: name)
def engine(request):
    return ENGINES[request.param]


def table(rows=9, columns=31, seed=0):
    """Rows with gaps of many lengths, one row without an entry, one with a single one, a column
    that nobody has."""
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((rows, columns))
    a[rng.random(a.shape) < 0.4] = np.nan
    a[2], a[3, 1:], a[:, 5] = np.nan, np.nan, np.nan
    return Observed.from_nan(a), rng


def described(rng, rows):
    """Own parts that differ from row to row; one without memory, one with hardly any noise."""
    own = np.column_stack(
        [rng.uniform(0.1, 0.99, rows), rng.uniform(0.1, 3, rows), rng.uniform(0.05, 2, rows)]
    )
    own[0, 0], own[1, 2] = 0.0, 1e-6
    return own


def test_own_likelihood(engine):
    x, rng = table()
    own, data = described(rng, x.shape[0]), rng.standard_normal(x.nnz)
    found = engine.own_likelihood(engine.put(x), engine.take(data), engine.take(own))
    wanted = JUDGE.own_likelihood(JUDGE.put(x), data, own)
    np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-9)
    assert found[2, 0] == 0


@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize("drawn", [False, True])
def test_own_rows(engine, k, drawn):
    x, rng = table(seed=1)
    n, columns = x.shape
    own, data, right = (
        described(rng, n),
        rng.standard_normal(x.nnz),
        rng.standard_normal((columns, k)),
    )
    root, prior = rng.standard_normal((k, k)), rng.standard_normal(k)
    base, z = root @ root.T + np.eye(k), rng.standard_normal((n, k)) if drawn else None
    taken = [engine.take(a) for a in (data, right, own)]
    found = engine.own_rows(
        engine.put(x), *taken, base, prior, None if z is None else engine.take(z)
    )
    np.testing.assert_allclose(
        found, JUDGE.own_rows(JUDGE.put(x), data, right, own, base, prior, z), rtol=1e-7, atol=1e-9
    )


@pytest.mark.parametrize("length", [1, 7, 31])
@pytest.mark.parametrize("drawn", [False, True])
def test_state_rows(engine, length, drawn):
    x, rng = table(seed=2)
    n = x.shape[0]
    rule = np.column_stack([rng.uniform(0, 1, n), rng.uniform(0.1, 2, (n, 3))])
    data, z = rng.standard_normal(x.nnz), rng.standard_normal((n, length)) if drawn else None
    found = engine.state_rows(
        engine.put(x),
        engine.take(data),
        length,
        engine.take(rule),
        None if z is None else engine.take(z),
    )
    wanted = JUDGE.state_rows(JUDGE.put(x), data, length, rule, z)
    np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-10)
    less = engine.less_states(engine.put(x), engine.take(data), engine.take(wanted), -2.0)
    np.testing.assert_allclose(
        less, JUDGE.less_states(JUDGE.put(x), data, wanted, -2.0), rtol=1e-12
    )
    np.testing.assert_allclose(
        engine.step_squares(engine.take(wanted)), JUDGE.step_squares(wanted), rtol=1e-12
    )


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("drawn", [False, True])
def test_chain_rows(engine, k, drawn):
    x, rng = table(seed=3)
    n, columns = x.shape
    data, right, other = (
        rng.standard_normal(x.nnz),
        rng.standard_normal((columns, k)),
        rng.uniform(0.1, 3, (columns, 1)),
    )
    link, roots = 0.4 * rng.standard_normal((k, k)), rng.standard_normal((2, k, k))
    first, step = (r @ r.T + np.eye(k) for r in roots)
    z = rng.standard_normal((n, k)) if drawn else None
    taken = [engine.take(a) for a in (data, right, other)]
    found = engine.chain_rows(
        engine.put(x), *taken, link, first, step, None if z is None else engine.take(z)
    )
    wanted = JUDGE.chain_rows(JUDGE.put(x), data, right, other, link, first, step, z)
    np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-10)
    for a, b in zip(engine.lag_products(engine.take(wanted)), JUDGE.lag_products(wanted)):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


def test_threads_do_not_change_a_bit():
    x, rng = table(200, 300, seed=4)
    own, data, right = (
        described(rng, 200),
        rng.standard_normal(x.nnz),
        rng.standard_normal((300, 3)),
    )
    one, three = (
        ENGINES[name].own_rows(ENGINES[name].put(x), data, right, own, np.eye(3), np.zeros(3), None)
        for name in ("cpu, 1 thread", "cpu, 3 threads")
    )
    np.testing.assert_array_equal(one, three)
