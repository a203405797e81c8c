"""Contract of the primitive of tables: every engine against the oracle, where the conditional
distribution of each row is written out."""

from __future__ import annotations

import numpy as np
import pytest
from registry import ENGINES, JUDGE, SLOW

from eckart.engines.protocol import FactorRule
from eckart.matrix import Observed


@pytest.fixture(params=[*ENGINES, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def engine(request):
    return (ENGINES | SLOW)[request.param]


def table(rows, seed, repeated=False):
    """Rows with gaps: one complete, one without any entry, one with a single one; with ``repeated``
    few different patterns."""
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((rows, 9)) * 2 + 1
    gaps = rng.random((5 if repeated else rows, 9)) < 0.4
    a[gaps[np.arange(rows) % len(gaps)]] = np.nan
    a[2], a[3, 1:], a[4] = np.nan, np.nan, rng.standard_normal(9)
    return Observed.from_nan(a), rng


@pytest.mark.parametrize("k", [1, 4, 12])
@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.parametrize("robust", [False, True])
def test_filled_moments(engine, k, repeated, robust):
    x, rng = table(150, 3 * k + repeated, repeated)
    w, mean, noise = rng.standard_normal((9, k)), rng.standard_normal(9), rng.uniform(0.1, 2, 9)
    more = (
        {"width": np.where(np.arange(9) % 2, np.inf, 0.7), "codes": rng.standard_normal((150, k))}
        if robust
        else {}
    )
    found, codes = engine.filled_moments(engine.put(x), w, mean, noise, **more)
    wanted, his = JUDGE.filled_moments(JUDGE.put(x), w, mean, noise, **more)
    np.testing.assert_allclose(codes, his, rtol=1e-8, atol=1e-9)
    for one, two in zip(found, wanted):
        np.testing.assert_allclose(one, two, rtol=1e-8, atol=1e-8)
    assert np.all(np.asarray(codes)[2] == 0)
    assert np.any(found.wild > 0) == robust
    np.testing.assert_array_equal(found.wild[1::2], 0)


@pytest.mark.parametrize("robust", [False, True])
def test_rows_count_as_often_as_they_weigh(engine, robust):
    x, rng = table(60, 5, repeated=True)
    w, mean, noise, times = (
        rng.standard_normal((9, 3)),
        rng.standard_normal(9),
        rng.uniform(0.1, 2, 9),
        rng.integers(0, 4, 60),
    )
    wide, start = {"width": np.full(9, 0.7)} if robust else {}, rng.standard_normal((60, 3))
    dense = np.full(x.shape, np.nan)
    dense[np.repeat(np.arange(60), x.row_counts()), x.indices] = x.data
    found, codes = engine.filled_moments(
        engine.put(x),
        w,
        mean,
        noise,
        **wide,
        **({"codes": start} if robust else {}),
        weights=times.astype(float),
    )
    each = np.repeat(np.arange(60), times)
    own = {"codes": start[each]} if robust else {}
    wanted, his = engine.filled_moments(
        engine.put(Observed.from_nan(dense[each])), w, mean, noise, **wide, **own
    )
    for one, two in zip(found, wanted):
        np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(np.asarray(codes)[each], his, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize("robust", [False, True])
def test_left_out_rows(engine, k, robust):
    """A part of three scores, which are seen together, and two of one: each as expected from the
    rest of its row, whatever it is itself."""
    rng, parts = np.random.default_rng(k + 10 * robust), np.array([[0, 3], [4, 5], [8, 9]])
    a = rng.standard_normal((150, 9)) * 2 + 1
    a[rng.random((150, 9)) < 0.3] = np.nan
    a[rng.random(150) < 0.3, :3] = np.nan
    a[np.isnan(a[:, :3]).any(axis=1), :3] = np.nan
    a[5], a[6] = np.nan, rng.standard_normal(9)
    w, mean, noise = rng.standard_normal((9, k)), rng.standard_normal(9), rng.uniform(0.1, 2, 9)
    more = (
        {
            "width": np.where(np.isin(np.arange(9), [3, 6]), 0.7, np.inf),
            "codes": rng.standard_normal((150, k)),
        }
        if robust
        else {}
    )
    x = Observed.from_nan(a)
    found = np.asarray(engine.left_out_rows(engine.put(x), w, mean, noise, parts, **more))
    np.testing.assert_allclose(
        found,
        JUDGE.left_out_rows(JUDGE.put(x), w, mean, noise, parts, **more),
        rtol=1e-8,
        atol=1e-9,
    )
    other = np.where(np.arange(9) == 4, a + 5, a)
    again = np.asarray(
        engine.left_out_rows(engine.put(Observed.from_nan(other)), w, mean, noise, parts, **more)
    )
    np.testing.assert_allclose(again[:, 4], found[:, 4], rtol=1e-8, atol=1e-9)
    assert np.abs(again[:, 8] - found[:, 8]).max() > 1e-3


def test_many_parts_add_up(engine):
    """More rows than one part holds."""
    x, rng = table(8000, 7)
    dense = np.full(x.shape, np.nan)
    dense[np.repeat(np.arange(8000), x.row_counts()), x.indices] = x.data
    w, mean, noise = rng.standard_normal((9, 3)), rng.standard_normal(9), rng.uniform(0.1, 2, 9)
    whole, codes = engine.filled_moments(engine.put(x), w, mean, noise)
    halves = [
        engine.filled_moments(engine.put(Observed.from_nan(dense[rows])), w, mean, noise)
        for rows in np.split(np.arange(8000), 2)
    ]
    for one, two in zip(whole, halves[0][0].merge(halves[1][0])):
        np.testing.assert_allclose(one, two, rtol=1e-9)
    np.testing.assert_allclose(codes, np.concatenate([np.asarray(z) for _, z in halves]), rtol=1e-9)


@pytest.mark.parametrize("k", [1, 4, 8])
@pytest.mark.parametrize("l2", [0.1, 50.0])
@pytest.mark.parametrize("still", [0.0, 0.05])
def test_factor_steps(engine, k, l2, still):
    """The same steps as the oracle, down its objective, which ends where noises stand still; a
    column of little noise meets the least allowed."""
    rng = np.random.default_rng(10 * k + int(l2))
    y = rng.standard_normal((300, 3)) @ rng.standard_normal((3, 9)) + rng.standard_normal(
        (300, 9)
    ) * np.linspace(0, 1, 9)
    cov, w, noise = np.cov(y.T), rng.standard_normal((9, k)), rng.uniform(0.1, 2, 9)
    rule = FactorRule(300.0, l2, rng.uniform(0, 3, 9), 2.0 + k, 0.05, 25, still)

    def value(w, noise):
        s = w @ w.T + np.diag(noise)
        fit = 150 * (np.linalg.slogdet(s)[1] + np.trace(np.linalg.solve(s, cov)))
        return (
            fit
            + 0.5 * l2 * ((w**2).sum(axis=1) / noise).sum()
            + 0.5 * (rule.degrees * np.log(noise) + rule.more / noise).sum()
        )

    found, wanted = (
        engine.factor_steps(cov, w, noise, rule),
        JUDGE.factor_steps(cov, w, noise, rule),
    )
    np.testing.assert_allclose(found[1], wanted[1], rtol=1e-7)
    np.testing.assert_allclose(found[0] @ found[0].T, wanted[0] @ wanted[0].T, rtol=1e-6, atol=1e-7)
    assert found[1].min() >= 0.05
    assert noise.max() < 2  # what was given stays
    values = [
        value(*engine.factor_steps(cov, w, noise, rule._replace(steps=steps, still=0.0)))
        for steps in (0, 1, 2, 5, 25)
    ]
    assert np.all(np.diff(values) < 0)
    assert (value(*found) > values[-1]) == (still > 0)


def test_rows_in_the_order_of_their_gaps_are_held_once(rng):
    import tracemalloc

    from eckart.engines.cpu.tables.kernels import Seen
    from eckart.matrix import Observed

    y = rng.standard_normal((20_000, 24))
    y[rng.random(y.shape) < 0.2] = np.nan
    x = Observed.from_nan(y)
    tracemalloc.start()
    seen = Seen.of(x.indptr, x.indices, x.data, 24)
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    np.testing.assert_array_equal(seen.scores[:, :24], np.nan_to_num(y)[seen.order])
    assert held <= 1.6 * y.nbytes, held / y.nbytes  # 2.3 with a number for each 1 and 0
    assert peak <= 2.5 * y.nbytes, peak / y.nbytes
