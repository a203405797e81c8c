"""ALS under losses: the objective by its formula, minima by brute force, predictions on the scale
of the data, and what happens at the edges."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

import eckart
from eckart import ALS, InputError, Observed
from eckart.io.models import checkpoint
from eckart.terms import loss_from

RNG = np.random.default_rng
LOSSES = ("logistic", "ordered", "ordered_probit", "poisson", "huber", "absolute")


def table(loss, n=30, m=12, share=0.4, seed=0):
    """Values of the kind that the loss is for, with gaps; and all of them."""
    rng = RNG(seed)
    s = rng.standard_normal((n, 2)) @ rng.standard_normal((2, m)) + rng.standard_normal(n)[:, None]
    a = {
        "logistic": lambda: (rng.random(s.shape) < 1 / (1 + np.exp(-s))).astype(float),
        "poisson": lambda: rng.poisson(np.exp(np.clip(s, -2, 2))).astype(float),
        "huber": lambda: s + rng.standard_t(2, s.shape),
        "absolute": lambda: s + rng.standard_t(2, s.shape),
    }.get(loss, lambda: 1.0 + np.searchsorted([-1.0, 0.5, 1.5], s + rng.logistic(size=s.shape)))()
    gone = rng.random(s.shape) < share
    gone[np.arange(n), np.arange(n) % m] = False
    return np.where(gone, np.nan, a), a


def objective(model, x, weights=None):
    """F by its formula, with dense arrays."""
    f, loss, plan = model.fit_.factors, model._loss(), model.fit_.plan
    seen = ~np.isnan(x)
    s = f.block(slice(None)).astype(float)
    w = np.ones(x.shape) if weights is None else weights
    value = float(np.sum(w[seen] * loss.value(loss.encode(x[seen]), s[seen])))
    for side, counts, bias in (
        (f.left, seen.sum(1), f.row_bias),
        (f.right, seen.sum(0), f.column_bias),
    ):
        scale, scale_of_biases = (
            np.where(counts > 0, counts, 1.0) ** plan[name]
            for name in ("l2_power", "l2_bias_power")
        )
        value += 0.5 * plan["l2"] * float(scale @ (side.astype(float) ** 2).sum(1))
        if bias is not None:
            value += 0.5 * plan["l2_bias"] * float(scale_of_biases @ bias.astype(float) ** 2)
    return value


@pytest.mark.parametrize("loss", LOSSES)
def test_the_objective_falls_and_is_the_formula(loss):
    x, _ = table(loss)
    # its corners take many small steps
    more = {"l2": 1.0, "max_iter": 500} if loss == "absolute" else {"max_iter": 80}
    model = ALS(2, loss=loss, random_state=0, tol=1e-7, **more).fit(x)
    assert model.objective_ == pytest.approx(objective(model, x), rel=1e-6)
    values = np.append(model.fit_.trace.values, model.objective_)
    assert np.diff(values).max() <= 1e-9 * abs(values[0])
    assert values[-1] < 0.999 * values[0]
    assert model.certificate_.holds, str(model.certificate_)
    assert model.certify(x)["objective"] == pytest.approx(model.objective_, rel=1e-9)


@pytest.mark.parametrize("loss", ["logistic", "poisson", "huber"])
def test_a_minimum_by_brute_force(loss):
    """BFGS from where ALS stopped finds nothing lower, and the gradient that the certificate gives
    is that of the formula."""
    x, _ = table(loss, n=7, m=5, share=0.2, seed=3)
    model = ALS(
        1, loss=loss, l2=1.0, l2_power=0.0, l2_bias=0.5, random_state=0, tol=1e-12, max_iter=3000
    ).fit(x)
    f, kind = model.fit_.factors, model._loss()
    seen = ~np.isnan(x)
    a = kind.encode(x[seen])

    def cost(p):
        u, v, b, c = np.split(p, np.cumsum([7, 5, 7]))
        s = f.mean + b[:, None] + c + np.outer(u, v)
        return kind.value(a, s[seen]).sum() + 0.5 * (u @ u + v @ v) + 0.25 * (b @ b + c @ c)

    here = np.concatenate([f.left[:, 0], f.right[:, 0], f.row_bias, f.column_bias])
    found = minimize(cost, here, method="BFGS", options={"gtol": 1e-8})
    assert cost(here) - found.fun <= 1e-6 * abs(found.fun)


def test_a_global_minimum_is_proven_where_the_ridge_is_large():
    """No matrix of any rank is better: the gap closes, and a random search over full rank finds
    nothing lower."""
    x, _ = table("logistic", n=20, m=10, seed=5)
    model = ALS(
        6,
        loss="logistic",
        l2=3.0,
        l2_power=0.0,
        l2_bias=1.0,
        random_state=0,
        tol=1e-12,
        max_iter=2000,
    ).fit(x)
    assert model.certificate_.kind == "global"
    assert model.certificate_["duality gap"] <= 1e-3
    other = ALS(
        10,
        loss="logistic",
        l2=3.0,
        l2_power=0.0,
        l2_bias=1.0,
        random_state=7,
        tol=1e-12,
        max_iter=2000,
    ).fit(x)
    assert other.objective_ == pytest.approx(model.objective_, rel=1e-3)


def test_probabilities_grades_and_rates():
    """Predictions are on the scale of the data and nearer to it than the column means."""
    for loss in ("logistic", "ordered", "poisson"):
        x, a = table(loss, n=150, m=30, seed=1)
        model = ALS(2, loss=loss, random_state=0).fit(x)
        p = model.predict(np.arange(150))
        low, high = {"logistic": (0, 1), "ordered": (1, 4), "poisson": (0, np.inf)}[loss]
        assert (p > low).all()
        assert (p < high).all()
        hidden = np.isnan(x)
        plain = np.broadcast_to(np.nanmean(x, axis=0), x.shape)
        # of the squared error of a yes or no most is its own variance, p (1 - p), which no model
        # takes away
        share = {"logistic": 0.95, "ordered": 0.9, "poisson": 0.75}[loss]
        assert np.mean((p - a)[hidden] ** 2) < share * np.mean((plain - a)[hidden] ** 2)
        assert model.predict(0, 3, unknown="mean")[0] == pytest.approx(p[0, 3])
        assert low < model.predict(999, 3, unknown="mean")[0] < high
        if loss == "poisson":
            with pytest.raises(AttributeError, match="predict_proba"):
                model.predict_proba(0, 3)
        else:
            each = model.predict_proba([0, 1], [3, 4])
            np.testing.assert_allclose(each.sum(axis=1), 1, rtol=1e-9)
            np.testing.assert_allclose(each @ model.levels_, p[[0, 1], [3, 4]], rtol=1e-5)
        best = model.recommend([0, 1], 3)
        np.testing.assert_allclose(best.scores[0], p[0, best.positions[0]], rtol=1e-5)
        assert (np.diff(best.scores, axis=1) <= 1e-12).all()


def test_rates_stay_inside_the_counts():
    """Rates are exponentials: beside the data they would be many times the largest count, and one
    such cell outweighs all others."""
    rng = RNG(5)
    size = np.exp(rng.normal(0, 1.6, 40))[:, None] * np.exp(rng.normal(0, 1.6, 30))
    # rates that end where an exponential does not
    a = rng.poisson(np.minimum(size, 6.0)).astype(float)
    x = np.where((rng.random(a.shape) < 0.4) | (size > 25), np.nan, a)
    fits = {
        clip: ALS(2, loss="poisson", clip=clip, random_state=0).fit(x).predict(np.arange(40))
        for clip in ("auto", False, (0.5, 3.0))
    }
    most = np.nanmax(x)
    assert fits[False].max() > most
    np.testing.assert_allclose(fits["auto"], np.minimum(fits[False], most))
    np.testing.assert_allclose(fits[0.5, 3.0], np.clip(fits[False], 0.5, 3.0))
    assert np.mean((fits["auto"] - a) ** 2) <= np.mean((fits[False] - a) ** 2)


def test_thresholds_are_learned():
    """Grades that were cut unevenly: no step of the thresholds lowers the loss."""
    x, _ = table("ordered", n=120, m=20, seed=2)
    model = ALS(2, loss="ordered", random_state=0).fit(x)
    loss, s, seen = model._loss(), model.fit_.factors.block(slice(None)).astype(float), ~np.isnan(x)
    a = loss.encode(x[seen])
    best = loss.value(a, s[seen]).sum()
    for step in np.vstack([np.eye(3), -np.eye(3)]) * 0.02:
        assert loss.moved(step).value(a, s[seen]).sum() >= best - 1e-6 * best


@pytest.mark.parametrize("seed", [0, 1])
def test_the_default_for_yes_and_no_beats_squares(seed):
    """600 x 120, a third seen: log loss on hidden cells, squares clipped to probabilities."""
    rng = np.random.default_rng(seed)
    logits = rng.standard_normal((600, 3)) @ rng.standard_normal(
        (3, 120)
    ) + 0.5 * rng.standard_normal((600, 1))
    truth = rng.random(logits.shape) < 1 / (1 + np.exp(-logits))
    drawn = rng.random(logits.shape)
    seen, rows, columns = np.where(drawn < 0.3, truth, np.nan), *np.nonzero(drawn > 0.8)

    def log_loss(**more):
        p = np.clip(ALS(random_state=0, **more).fit(seen).predict(rows, columns), 1e-3, 1 - 1e-3)
        return -np.mean(np.log(np.where(truth[rows, columns], p, 1 - p)))

    assert log_loss(loss="logistic") < log_loss() < np.log(2)


@pytest.mark.parametrize("loss", ["logistic", "ordered", "poisson"])
def test_new_rows_are_solved_under_the_loss(loss):
    """A fitted row folded in again comes out where it was."""
    x, _ = table(loss, n=60, m=15, seed=4)
    model = ALS(2, loss=loss, random_state=0, tol=1e-10, max_iter=400).fit(x)
    np.testing.assert_allclose(model.predict(x[:5]), model.predict(np.arange(5)), atol=0.02)
    filled = model.transform(x[:5])
    np.testing.assert_array_equal(filled[~np.isnan(x[:5])], x[:5][~np.isnan(x[:5])])


def test_weights_count():
    x, _ = table("logistic", n=40)
    w = RNG(1).random(x.shape) + 0.1
    model = ALS(2, loss="logistic", random_state=0, tol=1e-8, max_iter=300).fit(x, weights=w)
    assert model.objective_ == pytest.approx(objective(model, x, w), rel=1e-6)
    assert model.certificate_.holds


def test_explanations_add_up():
    x, _ = table("logistic", n=60, m=15, seed=4)
    model = ALS(2, loss="logistic", random_state=0, tol=1e-12, max_iter=2000).fit(x)
    why = model.explain(0, 3)
    assert why.on_scale == pytest.approx(float(model.predict(0, 3)[0]), abs=5e-3)
    assert "on the scale of the data" in str(why)


@pytest.mark.parametrize("loss", ["logistic", "ordered", "huber"])
def test_models_survive_a_file(loss, tmp_path):
    x, _ = table(loss)
    model = ALS(2, loss=loss, random_state=0).fit(x)
    model.save(tmp_path / "m.safetensors")
    back = eckart.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(back.predict(np.arange(30)), model.predict(np.arange(30)))
    assert back._loss() == model._loss()
    if loss == "ordered":
        np.testing.assert_array_equal(back.predict_proba(0, 1), model.predict_proba(0, 1))


def test_a_killed_fit_goes_on(tmp_path, monkeypatch):
    """Thresholds are part of the state: the resumed fit has the same bits."""
    x, _ = table("ordered")
    more = {"loss": "ordered", "random_state": 0, "tol": 0.0, "max_iter": 6}
    whole = ALS(2, **more).fit(x)
    file = tmp_path / "state"
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)
    save, written = checkpoint.Checkpoint.save, []

    def killed(self, arrays):
        save(self, arrays)
        written.append(1)  # one for each sweep
        if len(written) == 3:
            raise RuntimeError("killed")

    with monkeypatch.context() as m:
        m.setattr(checkpoint.Checkpoint, "save", killed)
        with pytest.raises(RuntimeError, match="killed"):
            ALS(2, checkpoint=file, **more).fit(x)
    again = ALS(2, checkpoint=file, **more).fit(x)
    np.testing.assert_array_equal(again.row_factors_, whole.row_factors_)
    assert again._loss() == whole._loss()


def test_held_out_stops_on_the_loss():
    x, _ = table("logistic", n=150, m=30)
    model = ALS(8, loss="logistic", l2=0.05, stop="held_out", random_state=0).fit(x)
    assert 0.3 < min(model.held_out_errors_) < 0.8  # a log loss, not a squared error of codes


def test_float32_stays():
    x, _ = table("logistic")
    model = ALS(2, loss="logistic", random_state=0).fit(x.astype(np.float32))
    assert model.predict([0], [0]).dtype == np.float32
    assert model.certificate_.holds


def test_what_does_not_fit_is_named():
    x, _ = table("logistic")
    x[2, 2] = 3.0
    with pytest.raises(
        InputError,
        match=r"X must hold 0 and 1 \(or shares between them\) with loss='logistic', got 3\.0 at row 2,",
    ):
        ALS(2, loss="logistic").fit(x)
    with pytest.raises(
        InputError, match=r"loss must be 'squared' with feedback='implicit', got 'logistic'"
    ):
        ALS(2, loss="logistic", feedback="implicit").fit(np.abs(x))
    with pytest.raises(
        InputError,
        match=r"normalise must be None or 'auto' with loss='poisson', got 'column'\. biases=True does",
    ):
        ALS(2, loss="poisson", normalise="column", biases=False).fit(np.abs(x))
    with pytest.raises(
        InputError, match=r"loss must be 'squared', 'absolute', .* or 'quantile', got 'cubic'"
    ):
        ALS(2, loss="cubic").fit(x)
    with pytest.raises(InputError, match=r"got 'quantile 1\.5'"):
        ALS(2, loss="quantile 1.5").fit(x)
    with pytest.raises(AttributeError, match="predict_proba"):
        ALS(2).fit(x).predict_proba(0, 0)
    grades = ALS(2, loss="ordered", random_state=0).fit(table("ordered")[0])
    with pytest.raises(
        InputError,
        match=r"X must hold one of 1\.0, 2\.0, 3\.0, 4\.0 with loss='ordered', got 9\.0 at row 0, column 0",
    ):
        grades.transform(np.full((1, 12), 9.0))


def test_a_row_without_entries_and_one_answer_alone():
    """An empty row leans on the columns, and columns that all say yes keep finite factors."""
    x, _ = table("logistic")
    x[:, 3] = 1.0
    x[4] = np.nan
    model = ALS(2, loss="logistic", random_state=0).fit(Observed.from_nan(x))
    p = model.predict(np.arange(30))
    assert np.isfinite(p).all()
    assert 0.5 < p[:, 3].min() <= p[:, 3].max() < 1.0
    np.testing.assert_allclose(model.row_factors_[4], 0)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_quantile_is_above_its_share_of_unseen_values(share):
    rng = np.random.default_rng(0)
    s = rng.standard_normal((200, 2)) @ rng.standard_normal((2, 100))
    x, seen = s + rng.exponential(size=s.shape), rng.random(s.shape) < 0.7
    model = ALS(2, loss=f"quantile {share}", max_iter=200, random_state=0)
    model.fit(np.where(seen, x, np.nan))
    below = np.mean(x[~seen] <= model.predict(*np.nonzero(~seen)))
    assert abs(below - share) < 0.05
    assert model._loss().level == share


def test_a_loss_in_the_plan_is_the_loss():
    x, _ = table("huber")
    model = ALS(2, loss="huber", random_state=0).fit(x)
    kept = model.fit_.plan["loss"]
    assert loss_from(kept) == model._loss()
    assert kept["delta"] == pytest.approx(
        1.345 * 1.4826 * np.median(np.abs(x[~np.isnan(x)] - np.nanmedian(x)))
    )


@pytest.mark.parametrize("seed", [0, 1])
def test_the_logistic_default_is_best_for_yes_and_no(seed):
    """With few hidden entries luck left the codes of the first table out, log loss .606."""
    rng = np.random.default_rng(seed)
    s = 0.5 * rng.standard_normal((600, 3)) @ rng.standard_normal((3, 120))
    s += 0.7 * rng.standard_normal(600)[:, None] + rng.standard_normal(120)
    y, seen = (rng.random(s.shape) < 1 / (1 + np.exp(-s))) * 1.0, rng.random(s.shape) < 0.3
    i, j = np.nonzero(~seen)
    losses = {}
    for loss in ("logistic", "squared"):
        model = ALS(loss=loss, random_state=0).fit(np.where(seen, y, np.nan))
        p = np.clip(model.predict(i, j), 1e-3, 1 - 1e-3)
        losses[loss] = -np.mean(np.log(np.where(y[i, j] > 0, p, 1 - p)))
    assert losses["logistic"] < losses["squared"], losses
