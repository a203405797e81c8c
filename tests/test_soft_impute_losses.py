"""SoftImpute under convex losses: global minima proven by the gap and met by another method, and
what happens at the edges."""

from __future__ import annotations

import numpy as np
import pytest

import eckart
from eckart import ALS, InputError
from eckart.complete.nuclear.soft_impute import SoftImpute
from test_als_losses import LOSSES, table


@pytest.mark.parametrize("loss", LOSSES)
def test_the_gap_closes(loss):
    x, _ = table(loss, n=25, m=10)
    model = SoftImpute(loss=loss, tau=3.0, tol=1e-3, random_state=0).fit(x)
    assert model.certificate_.kind == "global"
    assert model.certificate_.holds, str(model.certificate_)
    assert model.certificate_["gradient norm is at most"] <= 3.0 * 1.1
    assert model.certify(x)["value"] == pytest.approx(model.certificate_["value"])


def test_the_bound_is_below_and_bites():
    """Another tau is not the minimum, and the certificate of its answer says so; nothing that was
    tried lies below the bound."""
    x, _ = table("logistic", n=30, m=12)
    model = SoftImpute(loss="logistic", tau=2.0, tol=1e-4, random_state=0).fit(x)
    other = SoftImpute(loss="logistic", tau=4.0, tol=1e-4, random_state=0).fit(x)
    low = model.certificate_["no matrix is below"]
    other.fit_.plan["tau"] = 2.0
    seen = other.certify(x)
    assert not seen.holds
    assert seen["value"] > model.certificate_["value"]
    assert seen["no matrix is below"] <= model.certificate_["value"] * (1 + 1e-9)
    assert low <= model.certificate_["value"]


@pytest.mark.parametrize("loss", ["logistic", "poisson"])
def test_alternating_ridges_find_the_same_minimum(loss):
    """1/2 (||U||^2 + ||V||^2) is the nuclear norm: ALS of full rank with l2 = tau has the same
    value."""
    x, _ = table(loss, n=14, m=8)
    convex = SoftImpute(loss=loss, tau=2.0, normalise=None, tol=1e-5, random_state=0).fit(x)
    factors = ALS(
        8, loss=loss, l2=2.0, l2_power=0.0, biases=False, random_state=0, tol=1e-9, max_iter=400
    ).fit(x)
    assert factors.objective_ == pytest.approx(convex.certificate_["value"], rel=1e-3)
    np.testing.assert_allclose(
        factors.predict(np.arange(14)), convex.predict(np.arange(14)), atol=0.05
    )


def test_nothing_is_left_above_the_largest_tau():
    x, _ = table("logistic", n=30, m=12)
    model = SoftImpute(loss="logistic", tau=1e3, random_state=0).fit(x)
    assert model.rank_ == 0
    assert model.certificate_["duality gap"] <= 1e-8


def test_tau_is_chosen_on_the_loss_and_helps():
    x, a = table("logistic", n=120, m=30, seed=2)
    model = SoftImpute(loss="logistic", random_state=0, tol=1e-2).fit(x)
    losses = [row[1] for row in model.fit_.plan["tau chosen on hidden entries"]]
    assert min(losses) < losses[-1]  # the path went on beyond the best
    hidden, p = np.isnan(x), model.predict(np.arange(120))
    assert ((p > 0) & (p < 1)).all()
    plain = np.broadcast_to(np.nanmean(x, axis=0), x.shape)
    # a column of a hundred ones and zeros says little: the gain was 6 percent at the least on 30
    # seeds
    assert np.mean((p - a)[hidden] ** 2) < 0.97 * np.mean((plain - a)[hidden] ** 2)


def test_files_and_new_rows(tmp_path):
    x, _ = table("ordered", n=60, m=15)
    model = SoftImpute(loss="ordered", tau=3.0, random_state=0).fit(x)
    model.save(tmp_path / "m.safetensors")
    back = eckart.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(
        back.predict_proba([0, 1], [1, 2]), model.predict_proba([0, 1], [1, 2])
    )
    assert (
        np.abs(back.predict(x[:4]) - model.predict(np.arange(4))).max() < 0.5
    )  # a row of its own is free of the others


def test_what_does_not_go_together_is_named():
    x, _ = table("logistic")
    with pytest.raises(InputError, match="debias must be False with loss='logistic', got True"):
        SoftImpute(loss="logistic", debias=True).fit(x)
    with pytest.raises(
        InputError,
        match="normalise must be 'auto', 'bias', 'global' or None with loss='logistic', got 'column'",
    ):
        SoftImpute(loss="logistic", normalise="column").fit(x)
    with pytest.raises(
        InputError,
        match=r"X must hold 0 and 1 \(or shares between them\) with loss='logistic', got 2\.0 at row 0,",
    ):
        SoftImpute(loss="logistic").fit(np.where(np.isnan(x), np.nan, 2.0 + 0 * x))
