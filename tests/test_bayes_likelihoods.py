"""BayesianMF for yes/no, grades and counts: draws, calibration on simulated data, files, and what
happens at the edges."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import eckart
from eckart import BayesianMF, InputError
from eckart.complete.bayes.likelihood import drawn_thresholds
from eckart.io.models import checkpoint
from eckart.matrix import Observed
from eckart.terms import OrderedProbit
from oracle import JUDGE

CUTS = np.array([-1.0, 0.0, 1.2])
SHORT = {"n_samples": 50, "burn_in": 40, "thin": 1, "random_state": 0}


def simulated(likelihood, n=60, m=30, seed=0, seen=0.6):
    """Natural parameters, all values, and values with gaps."""
    rng = np.random.default_rng(seed)
    s = 0.7 * rng.standard_normal((n, 1)) @ rng.standard_normal((1, m))
    s += 0.6 * rng.standard_normal(n)[:, None] + 0.5 * rng.standard_normal(m)
    # without tails: a few counts in the hundreds would decide every mean square
    if likelihood == "poisson":
        s = 1 + 0.6 * s
    a = {
        "probit": lambda: (s + rng.standard_normal(s.shape) > 0).astype(float),
        "ordinal": lambda: 1.0 + np.searchsorted(CUTS, s + rng.standard_normal(s.shape)),
        "poisson": lambda: rng.poisson(np.exp(s)).astype(float),
    }[likelihood]()
    return s, a, np.where(rng.random(s.shape) < seen, a, np.nan)


@pytest.mark.parametrize(
    "likelihood", ["probit", "ordinal", pytest.param("poisson", marks=pytest.mark.slow)]
)
def test_intervals_are_calibrated(likelihood):
    """Of hidden cells about 90 % of the natural parameters lie in their 90 % intervals, and no
    fewer of the values do (they are discrete)."""
    s, a, x = simulated(likelihood)
    model = BayesianMF(1, likelihood=likelihood, **SHORT).fit(x)
    i, j = np.nonzero(np.isnan(x))
    drawn = model.posterior_.draws(model._lowrank(), i, j)
    if (
        likelihood == "ordinal"
    ):  # thresholds and biases share a shift; what is known is where s lies among the thresholds
        drawn = drawn - (model.posterior_.thresholds - CUTS).mean(axis=1)
    low, high = np.quantile(drawn, [0.05, 0.95], axis=1)
    inside = np.mean((s[i, j] >= low) & (s[i, j] <= high))
    # about 20 effective draws: their quantiles hold 0.9 * 19 / 21 = 0.81 at the least, and 720
    # cells that share 90 rows and columns deviate by about 0.03
    assert 0.72 <= inside <= 0.97
    low, high = model.interval(i, j, 0.9)
    assert np.mean((a[i, j] >= low) & (a[i, j] <= high)) >= 0.88
    assert np.all((low == np.round(low)) & (high >= low))
    p = model.predict(i, j)
    plain = np.nanmean(x, axis=0)[j]
    assert np.mean((p - a[i, j]) ** 2) < 0.92 * np.mean((plain - a[i, j]) ** 2)
    mean, deviation = model.predict(i, j, return_std=True)
    np.testing.assert_array_equal(mean, p)
    # of rates cell by cell: a few deviations are so large that they would decide a mean of squares;
    # of grades over all cells: one all but certain would
    error = a[i, j] - p
    assert (
        0.75
        < (
            np.std(error / deviation)
            if likelihood == "poisson"
            else np.sqrt(np.mean(error**2) / np.mean(deviation**2))
        )
        < 1.3
    )
    np.testing.assert_allclose(model.predict(np.arange(60))[i[:9], j[:9]], p[:9], rtol=1e-6)
    assert np.isfinite(model.predict(x[:3])).all()
    assert model.certify(x).kind == "statistical"


def test_latent_draws_are_truncated_normals():
    """By Kolmogorov and Smirnov, near and far in the tails."""
    loss, rng = OrderedProbit((1, 2, 3, 4), (-1.0, 0.0, 1.2)), np.random.default_rng(0)
    for code, s in ((0, 0.3), (1, -2.5), (2, 0.4), (3, 5.0), (0, 9.0), (3, -9.0)):
        z = loss.latent(np.full(40_000, float(code)), np.full(40_000, s), rng.random(40_000)) - s
        low, high = (float(end) - s for end in loss.ends(np.array(code)))
        # right draws fall below this once in 100,000 times; those whose scale is wrong by 5 % lie
        # below it in every one of these cases
        assert stats.kstest(z, stats.truncnorm(low, high).cdf).pvalue > 1e-5
    far = loss.latent(np.zeros(5), np.full(5, 60.0), rng.random(5))
    assert np.all(far <= -1.0)
    assert np.isfinite(far).all()


def test_thresholds_are_drawn_from_their_posterior():
    """With s known, many draws have the mean and the deviations of the posterior on a grid.

    They begin 9 deviations away, where a quarter of the draws is taken, each a step of 1.5
    deviations inwards: 60 seeds took 8 draws in the middle and 33 at most, and the first 100 are
    left out. The other 300 are worth half as many independent ones: both limits are four standard
    errors.
    """
    rng = np.random.default_rng(1)
    s = rng.standard_normal((1, 400))
    codes = np.searchsorted([-0.5, 0.8], s + rng.standard_normal(s.shape)).astype(float)
    engine = JUDGE
    x = engine.put(Observed.from_nan(codes))
    left, right = np.ones((1, 1)), s.T.copy()
    loss = OrderedProbit((0, 1, 2), (-0.5, 1.5))
    draws = []
    for _ in range(400):
        loss, value = drawn_thresholds(engine, x, loss, left, right, {}, rng)
        assert value == pytest.approx(loss.value(codes[0], s[0]).sum())
        draws.append(loss.thresholds)
    draws = np.array(draws[100:])
    grid = np.linspace(0.3, 1.4, 400)
    log = [-OrderedProbit((0, 1, 2), (-0.5, float(t))).value(codes[0], s[0]).sum() for t in grid]
    density = np.exp(log - np.max(log))
    density /= density.sum()
    mean = float(grid @ density)
    deviation = float(np.sqrt((grid - mean) ** 2 @ density))
    assert np.all(draws[:, 0] == -0.5)
    assert draws[:, 1].mean() == pytest.approx(mean, abs=6 * deviation / np.sqrt(len(draws)))
    assert draws[:, 1].std() == pytest.approx(deviation, rel=0.25)


def test_seeds_threads_and_files(tmp_path):
    _, _, x = simulated("ordinal", n=25, m=12)
    more = {"n_samples": 8, "burn_in": 6, "thin": 1, "random_state": 3, "likelihood": "ordinal"}
    one, two = BayesianMF(1, n_threads=1, **more).fit(x), BayesianMF(1, n_threads=3, **more).fit(x)
    np.testing.assert_array_equal(one.predict(np.arange(25)), two.predict(np.arange(25)))
    one.save(tmp_path / "m.safetensors")
    back = eckart.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(
        back.predict_proba([0, 1], [2, 3]), one.predict_proba([0, 1], [2, 3])
    )
    np.testing.assert_array_equal(back.predict(x[:2]), one.predict(x[:2]))
    each = one.predict_proba([0, 1], [2, 3])
    np.testing.assert_allclose(each.sum(axis=1), 1)
    np.testing.assert_allclose(each @ one.levels_, one.predict([0, 1], [2, 3]), rtol=1e-6)


def test_a_killed_chain_goes_on(tmp_path, monkeypatch):
    """Thresholds are part of the state."""
    import eckart.complete.bayes.gibbs as room

    _, _, x = simulated("ordinal", n=20, m=10)
    more = {"n_samples": 6, "burn_in": 4, "thin": 1, "random_state": 3, "likelihood": "ordinal"}
    whole = BayesianMF(1, **more).fit(x)
    real, calls = room.KeptDraws.add, []
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)

    def add(self):
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError("killed")
        real(self)

    with monkeypatch.context() as m:
        m.setattr(room.KeptDraws, "add", add)
        with pytest.raises(RuntimeError, match="killed"):
            BayesianMF(1, checkpoint=tmp_path / "state", **more).fit(x)
    again = BayesianMF(1, checkpoint=tmp_path / "state", **more).fit(x)
    np.testing.assert_array_equal(again.predict(np.arange(20)), whole.predict(np.arange(20)))
    np.testing.assert_array_equal(again.posterior_.thresholds, whole.posterior_.thresholds)


def test_rows_of_grades_have_noise_levels_of_their_own(tmp_path):
    """Where half of the rows answer at random, they are told apart, and probabilities are sharper
    where that is right."""
    rng = np.random.default_rng(0)
    s = rng.standard_normal((60, 1)) + 0.7 * rng.standard_normal(40)
    size = np.where(np.arange(60) < 30, 0.2, 3.0)[:, None]
    a = 1.0 + np.searchsorted(CUTS, s + size * rng.standard_normal(s.shape))
    x = np.where(rng.random(s.shape) < 0.7, a, np.nan)
    i, j = np.nonzero(np.isnan(x))
    one, two = (
        BayesianMF(1, likelihood="ordinal", noise=noise, **SHORT).fit(x)
        for noise in ("common", "both")
    )
    p = two.posterior_.rows.precisions.mean(axis=1)
    assert np.mean(p[:30, None] > p[30:]) > 0.95
    scores = [
        -np.log(m.predict_proba(i, j)[np.arange(len(i)), a[i, j].astype(int) - 1]).mean()
        for m in (one, two)
    ]
    assert scores[1] < 0.97 * scores[0]
    np.testing.assert_allclose(two.predict_proba(i, j) @ two.levels_, two.predict(i, j), rtol=1e-6)
    np.testing.assert_allclose(
        two.predict(np.arange(60))[i[:9], j[:9]], two.predict(i[:9], j[:9]), rtol=1e-5
    )
    two.save(tmp_path / "m.safetensors")
    back = eckart.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(back.predict_proba(i, j), two.predict_proba(i, j))
    np.testing.assert_array_equal(back.interval(i, j), two.interval(i, j))
    assert np.isfinite(two.predict(x[:3])).all()


@pytest.mark.parametrize("likelihood", ["ordinal", pytest.param("poisson", marks=pytest.mark.slow)])
def test_grades_and_counts_that_move_in_time(likelihood):
    """Values at a time are nearer than means over time, for every verb that takes one."""
    rng = np.random.default_rng(0)
    i, j = np.nonzero(rng.random((40, 30)) < 0.7)
    t = rng.random(len(i))
    s = rng.standard_normal(40)[i] + 0.5 * rng.standard_normal(30)[j] + 1.5 * np.sin(6 * t)
    a = (
        1.0 + np.searchsorted(CUTS, s + rng.standard_normal(len(s)))
        if likelihood == "ordinal"
        else rng.poisson(np.exp(1 + 0.4 * s))
    )
    kept = rng.random(len(i)) < 0.8
    table = {"who": i[kept], "what": j[kept], "value": a[kept], "when": t[kept]}
    noise = "both" if likelihood == "ordinal" else "common"
    model = BayesianMF(1, likelihood=likelihood, noise=noise, **SHORT)
    model.fit(table, rows="who", columns="what", values="value", time="when")
    i, j, t, a = i[~kept], j[~kept], t[~kept], a[~kept]
    errors = [np.mean((model.predict(i, j, time=at) - a) ** 2) for at in (None, t)]
    assert errors[1] < 0.85 * errors[0]
    mean, deviation = model.predict(i, j, return_std=True, time=t)
    np.testing.assert_array_equal(mean, model.predict(i, j, time=t))
    # 170 cells that share rows and columns: the ratio has a deviation of about 0.08, the share one
    # of 0.023
    assert 0.7 < np.std((a - mean) / deviation) < 1.4
    low, high = model.interval(i, j, 0.9, time=t)
    assert np.mean((a >= low) & (a <= high)) >= 0.82
    if likelihood == "ordinal":
        each = model.predict_proba(i, j, time=t)
        np.testing.assert_allclose(each @ model.levels_, mean, rtol=1e-6)


def test_what_does_not_go_together_is_named():
    _, _, x = simulated("probit", n=10, m=8)
    with pytest.raises(
        InputError, match="noise must be 'common' with likelihood='poisson', got 'row'"
    ):
        BayesianMF(1, likelihood="poisson", noise="row").fit(x)
    with pytest.raises(
        InputError, match="weights need likelihood='gaussian', got likelihood='probit'"
    ):
        BayesianMF(1, likelihood="probit").fit(x, weights=np.ones(x.shape))
    bad = x.copy()
    bad[0, 0] = 2.0
    with pytest.raises(
        InputError,
        match=r"X must hold 0 and 1 with likelihood='probit', got 2\.0 at row 0, column 0",
    ):
        BayesianMF(1, likelihood="probit").fit(bad)
    with pytest.raises(
        InputError,
        match=r"X must hold counts >= 0 with loss='poisson', got -3\.0 at row 0, column 0",
    ):
        BayesianMF(1, likelihood="poisson").fit(-1 - np.abs(bad))
    with pytest.raises(
        InputError, match="likelihood must be 2 to 64 distinct values, X has 200, got 'ordinal'"
    ):
        BayesianMF(1, likelihood="ordinal").fit(np.random.default_rng(0).random((20, 10)))
