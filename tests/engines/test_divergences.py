"""Multiplicative steps under beta-divergences: engines against the oracle, the oracle against the
formulas, and steps that never raise the objective."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from registry import JUDGE
from test_nonnegative import assert_close, assert_same, data, factors

from eckart.engines import engine_named
from eckart.engines.protocol import BetaRule
from eckart.errors import InputError
from eckart.matrix import Dense, Observed

dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64])
weighted = pytest.mark.parametrize("weighted", [False, True])
kinds = pytest.mark.parametrize("kind", ["dense", "counts", "observed"])
RULES = [
    BetaRule(0.5, 0.1, 0.4, True),
    BetaRule(1.0),
    BetaRule(1.5, 0.1, 0.4),
    BetaRule(3.0, 0.1, 0.4),
]


@dtypes
@weighted
@kinds
@pytest.mark.parametrize("rule", RULES)
def test_steps_of_rows_and_columns(engine, dtype, weighted, kind, rule):
    (w, h), x = factors(dtype, 5), data(dtype, kind, weighted)
    loose = 300 if rule.beta < 1 else 20  # s^(b - 2) of a small s magnifies the rounding of s
    got, want = (
        e.beta_rows(x, h, w, rule, h.sum(axis=0, dtype=float), steps=2) for e in (engine, JUDGE)
    )
    assert_same(got, want, dtype, loose)
    got, want = engine.beta_sums(x, w, h, rule.beta), JUDGE.beta_sums(x, w, h, rule.beta)
    for a, b in zip(got, want):
        assert_close(np.asarray(a), np.asarray(b), dtype, loose)
    mass = JUDGE.factor_mass(w, x)
    assert_same(
        engine.beta_step(h, got, mass, rule), JUDGE.beta_step(h, want, mass, rule), dtype, loose
    )
    assert engine.beta_size(x, rule.beta) == pytest.approx(JUDGE.beta_size(x, rule.beta), rel=1e-5)


@dtypes
@weighted
@pytest.mark.parametrize("kind", ["dense", "counts"])
def test_steps_for_least_squares(engine, dtype, weighted, kind):
    (w, h), x = factors(dtype, 5), data(dtype, kind, weighted)
    gram = h.T @ h
    got, want = (e.multiplied_pass(x, h, w, gram, 0.1) for e in (engine, JUDGE))
    assert_close(got.factor, want.factor, dtype, 5)
    for a, b in zip(got.sums, want.sums):
        assert_close(np.asarray(a), np.asarray(b), dtype, 30)
    assert_same(*(e.multiplied_rows(gram, w, w[::-1], 0.1) for e in (engine, JUDGE)), dtype, 5)


@dtypes
def test_zeros_are_sprinkled_with_small_numbers(engine, dtype):
    w = factors(dtype, 5)[0]
    got, want = engine.sprinkled(w, 0.01, 7), JUDGE.sprinkled(w, 0.01, 7)
    assert_close(got, want, dtype)
    assert (got[w > 0] == w[w > 0]).all()
    assert (got[w == 0] > 0).all()
    assert got[w == 0].std() == pytest.approx(0.01 * np.sqrt(1 - 2 / np.pi), rel=0.2)


@pytest.mark.parametrize("judge", [False, True])
def test_a_zero_has_no_divergence_below_zero(engine, judge):
    a = np.ones((5, 4))
    a[3, 2] = 0
    engine = JUDGE if judge else engine
    with pytest.raises(
        InputError,
        match=r"X must hold numbers > 0 with beta_loss=-0\.5, got 0 at row 3, column 2, whose divergence",
    ):
        engine.beta_size(engine.put(Dense(a)), -0.5)
    assert engine.beta_size(
        engine.put(Observed.from_nan(np.where(a > 0, a, np.nan))), -0.5
    ) == pytest.approx(19)


@weighted
def test_sums_of_parts_of_the_rows_merge(engine, weighted):
    (w, h), whole = factors(np.float64, 5), data(np.float64, "dense", weighted)
    cuts = [slice(0, 50), slice(50, 51), slice(51, None)]
    parts = (
        engine.beta_sums(data(np.float64, "dense", weighted, cut), w[cut], h, 1.5) for cut in cuts
    )
    for got, want in zip(
        reduce(lambda a, b: a.merge(b), parts), engine.beta_sums(whole, w, h, 1.5)
    ):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-10)


def test_bits_do_not_depend_on_threads():
    rng = np.random.default_rng(0)
    a, w, h = rng.random((2000, 60)) + 0.1, rng.random((2000, 6)), rng.random((60, 6))
    found = set()
    for threads in (1, 2, 3, 5, 16):
        e = engine_named("cpu", threads)
        x = e.put(Dense(a))
        sums = e.beta_sums(x, w, h, 0.5)
        rows = e.beta_rows(x, h, w, BetaRule(0.5), h.sum(axis=0), steps=2)
        found.add(
            (sums.up.tobytes(), sums.value, rows.factor.tobytes(), rows.value, e.beta_size(x, 0.5))
        )
    assert len(found) == 1


@settings(max_examples=40, deadline=None)
@given(
    st.floats(-2, 4),
    st.integers(1, 9),
    st.integers(1, 4),
    st.integers(0, 10**6),
    st.sampled_from([0.0, 0.01, 1.0, 30.0]),
    st.sampled_from([0.0, 0.01, 1.0, 30.0]),
)
def test_a_step_never_raises_the_objective(beta, n, k, seed, l1, l2):
    rng = np.random.default_rng(seed)
    a, h, w = (
        rng.gamma(0.5, 2.0, (7, n)) + 1e-3,
        rng.random((n, k)) + 1e-3,
        rng.random((7, k)) + 1e-3,
    )
    mass, rule = h.sum(axis=0), BetaRule(beta, l1, l2)
    x = JUDGE.put(Dense(a))
    s = w @ h.T
    kind = {0.0: a / s - np.log(a / s) - 1, 1.0: a * np.log(a / s) - a + s}
    if beta not in kind:
        kind[beta] = (a**beta + (beta - 1) * s**beta - beta * a * s ** (beta - 1)) / (
            beta * (beta - 1)
        )
    first = JUDGE.beta_rows(x, h, w, rule, mass)
    want = float(kind[beta].sum() + l1 * w.sum() + 0.5 * l2 * (w**2).sum())
    scale = float(np.abs(a**beta).sum() + np.abs(s**beta).sum()) / max(
        abs(beta * (beta - 1)), 1e-12
    ) + abs(want)
    assert first.value == pytest.approx(want, abs=1e-10 * scale)
    second = JUDGE.beta_rows(x, h, first.factor, rule, mass)
    assert second.value <= first.value + 1e-12 * scale
