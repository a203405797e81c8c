"""TimeFactors: what it takes, what it answers, what it refuses."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from typer.testing import CliRunner

import eckart
from eckart import InputError, TimeFactors
from eckart.cli.main import app
from eckart.complete.series import time_factors
from eckart.complete.series.chain import SeriesChain
from eckart.complete.series.time_factors import bounds_of
from eckart.io.models.checkpoint import Checkpoint
from eckart.trace import StopReason
from oracle import JUDGE

QUICK = {"n_samples": 12, "burn_in": 8, "thin": 1, "random_state": 0}


def table(n=8, columns=60, seed=0, dtype=np.float64):
    """Rows that share a wave of 12 columns, a third of them hidden."""
    rng = np.random.default_rng(seed)
    a = (
        np.outer(rng.uniform(1, 3, n), np.sin(2 * np.pi * np.arange(columns) / 12))
        + 0.2 * rng.standard_normal((n, columns))
        + 5
    )
    a[rng.random(a.shape) < 0.33] = np.nan
    return a.astype(dtype)


def numbers(model):
    return b"".join(
        np.ascontiguousarray(a).tobytes() for a in model.fit_.factors.to_state()[0].values()
    )


@pytest.fixture(scope="module")
def model():
    return TimeFactors(2, **QUICK).fit(table())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_threads_do_not_change_a_bit_and_precision_is_kept(dtype):
    one, two = (TimeFactors(2, **QUICK, n_threads=t).fit(table(dtype=dtype)) for t in (1, 3))
    assert numbers(one) == numbers(two)
    assert one.impute().dtype == one.forecast(2).mean.dtype == one.predict(0, 0).dtype == dtype


def test_every_engine_gives_the_same_answer():
    """A few sweeps: the oracle writes every precision out, and chains of draws part by
    rounding in the end."""
    few = {
        "n_samples": 2,
        "burn_in": 1,
        "thin": 1,
        "random_state": 0,
        "n_components": 2,
        "period": 12,
    }
    a = table(5, 30)
    one, other = (TimeFactors(**few, engine=engine).fit(a) for engine in ("cpu", JUDGE))
    np.testing.assert_allclose(one.impute(), other.impute(), rtol=1e-6)


def test_parameters_stay_and_models_survive_save_pickle_and_clone(model, tmp_path):
    before = model.get_params()
    model.save(tmp_path / "m.safetensors")
    for back in (eckart.load(tmp_path / "m.safetensors"), pickle.loads(pickle.dumps(model))):
        assert back.get_params() == before
        assert numbers(back) == numbers(model)
        np.testing.assert_array_equal(back.impute(), model.impute())
        np.testing.assert_array_equal(back.forecast(3).high, model.forecast(3).high)
        assert back.certificate_ == model.certificate_
    assert not hasattr(clone(model), "fit_")
    with pytest.raises(NotFittedError):
        clone(model).forecast(1)


def test_a_file_with_another_content_is_refused(model, tmp_path):
    from dataclasses import replace

    for name, value, words in (
        (
            "sigma",
            model.fit_.factors.sigma[:-1],
            r"bad\.safetensors cannot be loaded: sigma must have shape \(8,\), got \(7,\)",
        ),
        ("own", model.fit_.factors.own + 1, "memory phi"),
        ("shock", -model.fit_.factors.shock, "not positive definite"),
        ("cells", np.where(np.arange(60) == 3, np.nan, model.fit_.factors.cells), "NaN"),
    ):
        other = pickle.loads(pickle.dumps(model))
        other.fit_ = replace(other.fit_, factors=replace(other.fit_.factors, **{name: value}))
        other.save(tmp_path / "bad.safetensors")
        with pytest.raises(eckart.FileError, match=words):
            eckart.load(tmp_path / "bad.safetensors")


def test_long_tables_and_frames_have_the_same_answer(model):
    pd = pytest.importorskip("pandas")
    a = table()
    i, t = np.nonzero(~np.isnan(a))
    shuffled = np.random.default_rng(0).permutation(len(i))
    days = pd.Timestamp("2026-01-01") + pd.to_timedelta(t, unit="D")
    long = pd.DataFrame({"who": [f"s{r}" for r in i], "day": days, "y": a[i, t]}).iloc[shuffled]
    other = TimeFactors(2, **QUICK).fit(long, rows="who", columns="day", values="y")
    at = [f"s{r}" for r in range(8)]
    np.testing.assert_allclose(
        np.concatenate([b for _, b in other.complete(at)])[~np.isnan(a)], a[~np.isnan(a)]
    )
    assert other.forecast(2).columns[0] == np.datetime64("2026-03-02")
    frame = TimeFactors(2, **QUICK).fit(pd.DataFrame(a, index=at))
    assert numbers(frame) == numbers(model)
    assert frame.predict("s3", 5) == model.predict(3, 5)


@pytest.mark.parametrize("hidden", [0.0, 0.4])
def test_a_certificate_says_that_noise_is_not_predicted(hidden, tmp_path):
    """A row that follows its own noise is close to every entry of the fit, and to no other."""
    rng = np.random.default_rng(0)
    away = rng.random((20, 100)) < hidden
    noise = rng.standard_normal(away.shape)
    options = {"n_samples": 60, "burn_in": 40, "thin": 1, "random_state": 0}
    wave = np.outer(rng.uniform(1, 3, 20), np.sin(2 * np.pi * np.arange(100) / 12)) + 0.5 * noise
    walks = np.cumsum(noise, axis=1)
    for a, says in ((noise, True), (wave, False), (walks, False)):
        model = TimeFactors(**options).fit(np.where(away, np.nan, a))
        words = str(model.certificate_)
        assert ("predicts no better than the mean" in words.splitlines()[0]) == says, words
        assert "error of biases on" in words
    model.save(tmp_path / "m.eckart")
    assert str(eckart.load(tmp_path / "m.eckart").certificate_) == words


def test_predictions_with_deviations_and_unknown_ids(model):
    mean, std = model.predict([0, 1, 99], [1, 2, 3], unknown="nan", return_std=True)
    assert np.isnan(mean[2])
    assert np.isnan(std[2])
    assert (std[:2] > 0).all()
    low, high = model.interval([0, 1], [1, 2], 0.5)
    assert ((low < mean[:2]) & (mean[:2] < high)).all()
    assert model.predict(99, 3, unknown="mean") == pytest.approx(np.mean(model.observed_.data))
    with pytest.raises(InputError, match="99"):
        model.predict(99, 3)
    with pytest.raises(InputError, match="level must be a probability between 0 and 1, got 2"):
        model.interval(0, 0, 2)
    with pytest.raises(InputError, match="steps must be an int >= 1, got 0"):
        model.forecast(0)


def test_one_row_constant_rows_and_rows_without_entries():
    a = table(4)
    a[1] = 7.0
    a[2] = np.nan
    for data in (a, a[:1], a[1:2]):
        model = TimeFactors(**QUICK).fit(data)
        assert np.isfinite(model.impute()).all()
        assert np.isfinite(model.forecast(3).std).all()
    np.testing.assert_allclose(TimeFactors(**QUICK).fit(a).forecast(2).mean[1], 7.0, atol=1.5)


def test_large_and_small_scales_have_the_same_answer(model):
    for scale in (1e40, 1e-40):
        other = TimeFactors(2, **QUICK).fit(table() * scale)
        np.testing.assert_allclose(other.impute() / scale, model.impute(), rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_components": -1}, "n_components must be 'auto' or an int >= 0, got -1"),
        ({"period": 0}, "period must be 'auto', None or an int >= 1, got 0"),
        ({"period": 60}, "less than the 60 columns"),
        ({"thin": 0}, "thin must be 'auto' or an int >= 1, got 0"),
        ({"clip": "x"}, r"clip must be \(low, high\), True, False, 'auto' or 'bounds', got 'x'"),
        ({"n_chains": 0}, "n_chains must be an int >= 1, got 0"),
    ],
)
def test_what_makes_no_sense_is_refused_and_leaves_nothing(options, words):
    fresh = TimeFactors(**QUICK | options)
    with pytest.raises(InputError, match=words):
        fresh.fit(table())
    assert not hasattr(fresh, "fit_")


def test_bad_data_keep_the_old_state(model):
    other = pickle.loads(pickle.dumps(model))
    bad = table()
    bad[3, 2] = np.inf
    with pytest.raises(InputError, match="row 3, column 2"):
        other.fit(bad)
    with pytest.raises(InputError, match="at least 3 times"):
        other.fit(table()[:, :2])
    assert numbers(other) == numbers(model)


def test_an_interrupt_keeps_what_there_is(monkeypatch):
    sweep = SeriesChain.sweep

    def stopped(self, *args):
        if self.sweeps == 10:
            raise KeyboardInterrupt
        return sweep(self, *args)

    monkeypatch.setattr(SeriesChain, "sweep", stopped)
    model = TimeFactors(2, **QUICK).fit(table())
    assert model.fit_.trace.reason is StopReason.INTERRUPTED
    assert not model.certificate_.holds
    assert np.isfinite(model.impute()).all()


def rates(seed=0, zeros=True):
    """Visitors of eight places by the hour: none at night."""
    rng = np.random.default_rng(seed)
    day = np.maximum(0.0, np.sin(2 * np.pi * np.arange(96) / 24))
    a = rng.poisson(np.outer(1 + 4 * rng.random(8), day)).astype(float)
    a = a if zeros else np.exp(a / 2) * 0.01
    return np.where(rng.random(a.shape) < 0.1, np.nan, a)


@pytest.mark.parametrize("zeros", [True, False])
def test_rates_and_their_intervals_are_never_below_zero(zeros, tmp_path):
    a = rates(zeros=zeros)
    model = TimeFactors(2, **QUICK).fit(a)
    assert model.fit_.plan["clip"] == [0.0, np.inf]
    cells = np.nonzero(np.isnan(a))
    low, high = model.interval(*cells)
    ahead = model.forecast(24)
    assert low.min() == 0 == ahead.low.min()  # some would lie below
    assert (high > 0).all()
    assert model.predict(*cells).min() >= 0
    assert ahead.mean.min() >= 0
    free = TimeFactors(2, **QUICK, clip=False).fit(a)
    assert free.interval(*cells)[0].min() < 0
    np.testing.assert_array_equal(np.maximum(free.interval(*cells)[0], 0), low)
    model.save(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(eckart.load(tmp_path / "m.safetensors").interval(*cells)[0], low)


def test_bounds_are_those_that_values_show():
    rng = np.random.default_rng(0)
    assert (
        bounds_of(rng.normal(10, 3, 500).clip(0.1)) is None
    )  # degrees, say: nothing was on 0, and nothing says that there is less
    assert bounds_of(rng.normal(0, 1, 500)) is None
    assert bounds_of(np.append(rng.random(500), [0.0, 1.0])) == [0.0, 1.0]
    assert bounds_of(np.append(100 * rng.random(500), [0.0, 100.0])) == [0.0, 100.0]
    assert bounds_of(np.zeros(5)) is None


def test_clip_bounds_predictions_and_intervals():
    model = TimeFactors(2, **QUICK, clip=(4.0, 6.0)).fit(table())
    assert model.forecast(12).high.max() <= 6.0
    assert min(block.min() for _, block in model.complete(keep=False)) >= 4.0


def test_the_shell_fills_and_forecasts(tmp_path, monkeypatch):
    pd = pytest.importorskip("pandas")
    solve = time_factors.solve
    few = {"n_samples": 8, "burn_in": 4, "thin": 1}
    monkeypatch.setattr(
        time_factors, "solve", lambda *given, **options: solve(*given, **options | few)
    )
    a = table()
    i, t = np.nonzero(~np.isnan(a))
    pd.DataFrame({"s": i, "hour": 100 + 2 * t, "y": a[i, t]}).sample(
        frac=1.0, random_state=0
    ).to_csv(tmp_path / "a.csv", index=False)
    begin = [
        "complete",
        str(tmp_path / "a.csv"),
        "--rows",
        "s",
        "--columns",
        "hour",
        "--values",
        "y",
        "--method",
        "series",
        "--held-out",
        "0",
    ]
    ran = CliRunner().invoke(app, [*begin, "--forecast", "3", "--out", str(tmp_path / "next.csv")])
    # eight draws: the certificate does not hold, and the exit code says so
    assert ran.exit_code == 1, ran.output
    assert "a period of 12 columns" in ran.output
    found = pd.read_csv(tmp_path / "next.csv")
    assert list(found.columns) == ["s", "hour", "mean", "std", "low", "high"]
    assert sorted(found["hour"].unique()) == [220, 222, 224]
    for wrong in (["--forecast", "3"], ["--report", str(tmp_path / "r.html")]):
        assert CliRunner().invoke(app, [*begin, *wrong]).exit_code != 0
    assert (
        CliRunner()
        .invoke(app, [*begin[:-4], "--forecast", "3", "--out", str(tmp_path / "x.csv")])
        .exit_code
        != 0
    )


OPEN = {"n_components": 2, "n_samples": 120, "thin": 1, "random_state": 0, "n_threads": 1}


@pytest.fixture(scope="module")
def found():
    return TimeFactors(**OPEN).fit(table(columns=80))


@pytest.mark.one_seed  # of other tables the chains agree at once, or not at all
def test_chains_that_do_not_agree_go_on_until_they_do(found):
    asked = TimeFactors(**OPEN, burn_in=100).fit(table(columns=80))
    assert not asked.certificate_.holds
    assert found.certificate_.holds
    assert found.fit_.trace.reason is StopReason.CONVERGED
    assert (asked.n_iter_, found.n_iter_) == (320, 440)
    assert found.fit_.plan["sampling"] == "220 sweeps of each chain, 160 at first"
    assert "sampling" not in asked.fit_.plan
    # what was kept at first is not forgotten
    n = len(asked.fit_.factors.left) // 2
    assert np.array_equal(found.fit_.factors.left[:n], asked.fit_.factors.left[:n])


@pytest.mark.one_seed
def test_chains_too_far_apart_for_the_budget_do_not_go_on():
    few = OPEN | {"n_samples": 8, "random_state": 1}
    asked, found = (
        TimeFactors(**few, burn_in=100).fit(table(columns=80)),
        TimeFactors(**few).fit(table(columns=80)),
    )
    assert not found.certificate_.holds
    assert numbers(found) == numbers(asked)
    assert found.fit_.plan["sampling"].endswith("is not enough for chains to agree")


@pytest.mark.one_seed
@pytest.mark.parametrize("at", [200, 360])
def test_chains_that_went_on_resume_with_the_same_bits(at, found, tmp_path, monkeypatch):
    sweep, done = SeriesChain.sweep, []

    def killed(self, *args):
        done.append(1)
        if len(done) == at:
            raise SystemError("killed")
        return sweep(self, *args)

    model = TimeFactors(**OPEN, checkpoint=tmp_path / "state")
    with monkeypatch.context() as m:
        m.setattr(Checkpoint, "due", lambda self: len(done) >= at - 3)
        m.setattr(SeriesChain, "sweep", killed)
        with pytest.raises(SystemError, match="killed"):
            model.fit(table(columns=80))
    model.fit(table(columns=80))
    assert numbers(model) == numbers(found)
    assert model.n_iter_ == found.n_iter_


@pytest.mark.one_seed
def test_an_interrupt_while_chains_go_on_keeps_all_states(monkeypatch):
    sweep, done = SeriesChain.sweep, []

    def stopped(self, *args):
        done.append(1)
        if len(done) == 400:
            raise KeyboardInterrupt
        return sweep(self, *args)

    monkeypatch.setattr(SeriesChain, "sweep", stopped)
    model = TimeFactors(**OPEN).fit(table(columns=80))
    assert model.fit_.trace.reason is StopReason.INTERRUPTED
    assert len(model.fit_.factors.left) == 120 + 399 - 320
    assert np.isfinite(model.deviation([0, 3], [10, 40])).all()
