"""Losses at the stored entries against the oracle, on data where each argument matters: weights,
biases, an empty row, both precisions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from registry import JUDGE
from test_contract import COLUMNS, assert_close, dtypes, ratings

from eckart.engines.protocol import RidgeRule
from eckart.terms import loss_named

K = 5
RULE = RidgeRule(0.3, 0.5, bias=True, bias_l2=0.1)
NAMES = ["squared", "huber", "absolute", "logistic", "ordered", "ordered_probit", "poisson"]


def problem(name, dtype, weighted=True):
    """Entries that the loss takes (an empty row and an empty column among them), factors,
    biases."""
    rng = np.random.default_rng(4)
    x = ratings(dtype)
    grade = np.argsort(np.argsort(x.data, kind="stable"), kind="stable") * 4 // x.nnz
    values = {
        "logistic": grade > 1,
        "poisson": grade,
        "ordered": grade,
        "ordered_probit": grade,
    }.get(name, x.data)
    loss = loss_named(name).fitted_to(np.asarray(values, np.float64))
    x = replace(x, data=loss.encode(np.asarray(values, np.float64)).astype(dtype))
    left, right = (0.6 * rng.standard_normal((n, K)).astype(dtype) for n in (40, COLUMNS))
    at = {
        "mean": 0.3,
        "own": 0.5 * rng.standard_normal(40).astype(dtype),
        "other": 0.5 * rng.standard_normal(COLUMNS).astype(dtype),
    }
    w = (rng.random(x.nnz) * 2).astype(dtype)
    w[::7] = 0.0
    return x, loss, left, right, at, w if weighted else None


@pytest.mark.parametrize(
    ("name", "weighted"),
    [*((name, True) for name in NAMES), ("logistic", False), ("poisson", False)],
)
@dtypes
def test_linearised(engine, name, weighted, dtype):
    """The ridge problem of the targets has the same solution as by the judge, and its residual at s
    is the gradient of the loss."""
    x, loss, left, right, at, w = problem(name, dtype, weighted)
    got, value = engine.linearised(engine.put(x, entry_weights=w), loss, left, right, **at)
    want, judged = JUDGE.linearised(JUDGE.put(x, entry_weights=w), loss, left, right, **at)
    assert value == pytest.approx(judged, rel=1e-4 if dtype == np.float32 else 1e-11)
    assert got.nnz == x.nnz
    # the columns' view has the same targets and weights
    for one, two in ((got, want), (got.T, want.T)):
        factor = right if one is got else left
        offset = at["other"] if one is got else at["own"]
        mine = engine.ridge_rows(one, factor, RULE, mean=0.3, offset=offset)
        his = JUDGE.ridge_rows(two, factor, RULE, mean=0.3, offset=offset)
        # weights of absolute errors differ by a factor of 1000
        assert_close(mine.left, his.left, dtype, 500)
    seen = engine.evidence_rows(got, left, right, RULE, **at)
    slope = JUDGE.loss_sums(JUDGE.put(x, entry_weights=w), loss, left, right, **at).slope
    assert np.sum(seen.row_sum) == pytest.approx(
        -slope, rel=1e-3 if dtype == np.float32 else 1e-9, abs=1e-4
    )


@pytest.mark.parametrize("name", ["logistic", "ordered", "ordered_probit", "poisson"])
@dtypes
def test_loss_sums(engine, name, dtype):
    x, loss, left, right, at, w = problem(name, dtype)
    for more in ({}, {"shrink": 1.0}, {"shrink": 0.4}):
        got = engine.loss_sums(engine.put(x, entry_weights=w), loss, left, right, **at, **more)
        want = JUDGE.loss_sums(JUDGE.put(x, entry_weights=w), loss, left, right, **at, **more)
        np.testing.assert_allclose(
            got,
            want,
            rtol=1e-3 if dtype == np.float32 else 1e-9,
            atol=1e-3 if dtype == np.float32 else 1e-9,
        )
        assert np.isfinite(got.conjugate)
        assert (got.conjugate == 0) == (not more)


def test_every_argument_of_loss_sums_matters(engine):
    x, loss, left, right, at, w = problem("logistic", np.float64)
    whole = engine.loss_sums(engine.put(x, entry_weights=w), loss, left, right, **at).value
    for name in at:
        less = {n: v for n, v in at.items() if n != name}
        assert engine.loss_sums(
            engine.put(x, entry_weights=w), loss, left, right, **less
        ).value != pytest.approx(whole, rel=1e-4)
    assert engine.loss_sums(engine.put(x), loss, left, right, **at).value != pytest.approx(
        whole, rel=1e-3
    )


@pytest.mark.parametrize("name", ["ordered", "ordered_probit"])
@dtypes
def test_threshold_sums(engine, name, dtype):
    """Against the judge, and the judge against differences of the value."""
    x, loss, left, right, at, w = problem(name, dtype)
    got = engine.threshold_sums(engine.put(x, entry_weights=w), loss, left, right, **at)
    placed = JUDGE.put(x, entry_weights=w)
    want = JUDGE.threshold_sums(placed, loss, left, right, **at)
    close = {"rtol": 1e-3, "atol": 1e-2} if dtype == np.float32 else {"rtol": 1e-9, "atol": 1e-8}
    for one, two in zip(got, want):
        np.testing.assert_allclose(one, two, **close)
    for t, cut in enumerate(np.eye(len(loss.thresholds))):
        up, down = (
            JUDGE.threshold_sums(placed, loss.moved(h * cut), left, right, **at)
            for h in (1e-5, -1e-5)
        )
        assert want.gradient[t] == pytest.approx((up.value - down.value) / 2e-5, rel=1e-5, abs=1e-4)
        np.testing.assert_allclose(
            want.bend[t], (up.gradient - down.gradient) / 2e-5, rtol=1e-4, atol=1e-3
        )


@pytest.mark.parametrize("name", ["poisson", "logistic"])
@pytest.mark.parametrize("reach", [0.3, 40.0])
@dtypes
def test_shortened_rows(engine, name, reach, dtype):
    """No row rises; where whole steps are good they are taken, and where they are far too long they
    are cut."""
    x, loss, left, right, at, w = problem(name, dtype)
    placed = engine.put(x, entry_weights=w)
    got, _ = engine.linearised(placed, loss, left, right, **at)
    step = engine.ridge_rows(got, right, RULE, mean=at["mean"], offset=at["other"])
    new = (left + reach * (np.asarray(step.left) - left)).astype(dtype)
    beside = (at["own"] + reach * (np.asarray(step.bias) - at["own"])).astype(dtype)
    given = {"mean": at["mean"], "own": at["own"], "new_own": beside, "other": at["other"]}
    mine = engine.shortened_rows(placed, loss, right, RULE, left, new, **given)
    his = JUDGE.shortened_rows(JUDGE.put(x, entry_weights=w), loss, right, RULE, left, new, **given)
    assert_close(mine.left, his.left, dtype, 100)
    assert_close(mine.bias, his.bias, dtype, 100)
    assert mine.value == pytest.approx(his.value, rel=1e-4 if dtype == np.float32 else 1e-10)
    start = JUDGE.shortened_rows(
        JUDGE.put(x, entry_weights=w),
        loss,
        right,
        RULE,
        left,
        left,
        **(given | {"new_own": at["own"]}),
    )
    assert mine.value < start.value
    whole = np.allclose(np.asarray(mine.left), new, atol=1e-5)
    assert whole == (reach < 1)


@dtypes
def test_augmented(engine, dtype):
    """Latent numbers lie in their grades and are those of the judge; weights stay."""
    x, loss, left, right, at, w = problem("ordered_probit", dtype)
    noise = np.random.default_rng(0).standard_normal((x.nnz, 1))
    got = engine.augmented(engine.put(x, entry_weights=w), loss, left, right, noise, **at)
    want = JUDGE.augmented(JUDGE.put(x, entry_weights=w), loss, left, right, noise, **at)
    mine, his = (
        e.ridge_rows(p, right, RULE, mean=0.3, offset=at["other"])
        for e, p in ((engine, got), (JUDGE, want))
    )
    assert_close(mine.left, his.left, dtype, 50)
    low, high = loss.ends(x.data)
    assert np.all((want.matrix.data >= low - 1e-5) & (want.matrix.data <= high + 1e-5))


def test_steepness_of_rows_and_columns(engine):
    """Every primitive of grades with noise levels of their own is that of the judge, and each of
    both sides matters; the judge against differences."""
    x, loss, left, right, at, w = problem("ordered_probit", np.float64)
    rng = np.random.default_rng(2)
    steep = {
        "row_steep": rng.uniform(0.5, 2.0, (40, 1)),
        "column_steep": rng.uniform(0.5, 2.0, (COLUMNS, 1)),
    }
    noise, found = rng.standard_normal((x.nnz, 1)), []
    for e in (engine, JUDGE):
        placed = e.put(x, entry_weights=w)
        for less in ("", *steep):
            here = at | {name: a for name, a in steep.items() if name != less}
            bound, value = e.linearised(placed, loss, left, right, **here)
            latent = e.augmented(placed, loss, left, right, noise, **here)
            sums = e.threshold_sums(placed, loss, left, right, **here)
            solved = [
                e.ridge_rows(p, right, RULE, mean=0.3, offset=at["other"]).left
                for p in (bound, latent)
            ]
            found.append([value, *e.loss_sums(placed, loss, left, right, **here), *sums, *solved])
    for one, two in zip(found[:3], found[3:]):
        for a, b in zip(one, two):
            np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8)
    for other in found[4:]:
        # the value, the slope, the gradient of thresholds, both solutions
        for place in (0, 2, 5, 7, 8):
            assert not np.allclose(found[3][place], other[place], rtol=1e-3)
    placed, both = JUDGE.put(x, entry_weights=w), at | steep
    up, down = (
        JUDGE.loss_sums(placed, loss, left, right, **both | {"mean": 0.3 + h})
        for h in (1e-5, -1e-5)
    )
    assert found[3][2] == pytest.approx((up.value - down.value) / 2e-5, rel=1e-5)


def test_slice_rows(engine):
    """The moved rows are those of the judge; rows without entries lie on their ellipse where the
    first angle says."""
    x, loss, left, right, at, _ = problem("poisson", np.float64)
    rng = np.random.default_rng(1)
    here = {"mean": at["mean"], "other": at["other"]}
    centre, drawn = (0.3 * rng.standard_normal(left.shape) for _ in range(2))
    noise = rng.standard_normal((40, 12))
    got = engine.slice_rows(
        engine.put(x), loss, left, right, 0.5 * left, centre, drawn, noise, **here
    )
    want = JUDGE.slice_rows(
        JUDGE.put(x), loss, left, right, 0.5 * left, centre, drawn, noise, **here
    )
    np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-10)
    from scipy.special import ndtr

    t = 2 * np.pi * ndtr(noise[5, 1])
    np.testing.assert_allclose(
        np.asarray(got)[5],
        centre[5] + (left[5] - centre[5]) * np.cos(t) + (drawn[5] - centre[5]) * np.sin(t),
    )
    assert np.mean(np.any(np.asarray(got) != left, axis=1)) > 0.5
