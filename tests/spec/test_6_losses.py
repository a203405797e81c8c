"""Chapter 6 of the specification, lines 1 to 4 (losses), one test (or several) for each numbered
line, named after it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm, poisson

from eckart import ALS, BayesianMF
from eckart.complete.nuclear.soft_impute import SoftImpute
from eckart.terms import LOSSES, Huber, OrderedLogit, OrderedProbit, loss_named


def answers(n=60, m=15, seed=0):
    """Yes and no of a rank-1 model with biases, three of ten missing; and all of them."""
    rng = np.random.default_rng(seed)
    s = (
        rng.standard_normal((n, 1))
        + rng.standard_normal(m)
        + rng.standard_normal((n, 1)) @ rng.standard_normal((1, m))
    )
    a = (rng.random(s.shape) < 1 / (1 + np.exp(-s))).astype(float)
    return np.where(rng.random(s.shape) < 0.7, a, np.nan), a


def test_6_1_every_loss_is_listed_with_all_its_parts():
    assert set(LOSSES) == {
        "squared",
        "absolute",
        "huber",
        "logistic",
        "ordered",
        "ordered_probit",
        "poisson",
        "quantile",
        "multinomial",
    }
    for kind in LOSSES.values():
        for part in ("value", "gradient", "curvature", "conjugate", "draw"):
            assert any(part in vars(base) for base in kind.__mro__[:2]), (kind.name, part)


def test_6_1_values_are_negative_log_likelihoods():
    """Against the distributions of SciPy, written independently."""
    s = np.array([-1.5, 0.2, 2.0])
    np.testing.assert_allclose(
        loss_named("poisson").value(np.full(3, 4.0), s), -poisson.logpmf(4, np.exp(s))
    )
    np.testing.assert_allclose(loss_named("logistic").value(np.ones(3), s), np.log1p(np.exp(-s)))
    cuts = (-1.0, 0.4, 1.7)
    mass = np.diff(
        np.concatenate([np.zeros((1, 3)), norm.cdf(np.array(cuts)[:, None] - s), np.ones((1, 3))]),
        axis=0,
    )
    for grade in range(4):
        probit = OrderedProbit((0, 1, 2, 3), cuts).value(np.full(3, grade), s)
        np.testing.assert_allclose(probit, -np.log(mass[grade]))
    logit = 1 / (1 + np.exp(-(0.4 - s))) - 1 / (1 + np.exp(-(-1.0 - s)))
    np.testing.assert_allclose(
        OrderedLogit((0, 1, 2, 3), cuts).value(np.ones(3), s), -np.log(logit)
    )
    np.testing.assert_allclose(Huber(1.0).value(np.zeros(3), s), [1.0, 0.02, 1.5])
    three = loss_named("multinomial").fitted_to(np.arange(3)).value(np.array([2]), s[None])
    np.testing.assert_allclose(three, np.log(np.exp(s).sum()) - 2.0)


def test_6_2_the_objective_never_rises_and_the_certificate_speaks_of_the_loss():
    x, a = answers(
        n=150,
        m=30,
        # of 60 rows with 10 answers each, the hidden ones are too few to tell a model from the
        # means of the columns
    )
    model = ALS(1, loss="logistic", random_state=0, tol=1e-8, max_iter=300).fit(x)
    values = np.append(model.fit_.trace.values, model.objective_)
    assert np.diff(values).max() <= 1e-10 * values[0]
    assert model.certificate_.holds
    f, seen = model.fit_.factors, ~np.isnan(x)
    g = np.where(seen, 1 / (1 + np.exp(-f.block(slice(None)))) - np.where(seen, x, 0.0), 0.0)
    plan = model.fit_.plan
    counts = seen.sum(axis=1) ** plan["l2_power"]
    slope = g @ f.right + plan["l2"] * counts[:, None] * f.left
    assert np.linalg.norm(slope) <= 0.02 * 2 * np.linalg.norm(g @ f.right)
    p, hidden = model.predict(np.arange(150)), np.isnan(x)
    assert np.mean((p - a)[hidden] ** 2) < 0.95 * np.mean(
        (np.nanmean(x, axis=0)[None] - a)[hidden] ** 2
    )


def test_6_3_no_matrix_is_below_the_bound():
    """A thousand others, near and far, lie above what the certificate says nothing is below."""
    x, _ = answers(n=25, m=10)
    model = SoftImpute(loss="logistic", tau=2.0, tol=1e-4, random_state=0).fit(x)
    assert model.certificate_.kind == "global"
    assert model.certificate_.holds
    f, seen = model.fit_.factors, ~np.isnan(x)
    o = f.mean + f.row_bias[:, None] + f.column_bias
    rng = np.random.default_rng(0)

    def value(b):
        s = o + b
        return (
            np.sum((np.logaddexp(0, s) - np.where(seen, x, 0.0) * s)[seen])
            + 2.0 * np.linalg.svd(b, compute_uv=False).sum()
        )

    best = f.left @ f.right.T
    assert value(best) == pytest.approx(model.certificate_["value"])
    others = [
        value(best + size * rng.standard_normal(x.shape))
        for size in (1e-4, 1e-3, 1e-2, 1.0)
        for _ in range(50)
    ]
    others += [value(share * best) for share in np.linspace(0, 2, 21) if share != 1]
    assert min(others) >= model.certificate_["no matrix is below"]


def test_6_4_probabilities_are_calibrated():
    """Of cells with a predicted chance of about p a share of about p says yes."""
    x, a = answers(n=120, m=20, seed=1)
    model = BayesianMF(
        1, likelihood="probit", n_samples=40, burn_in=40, thin=1, random_state=0
    ).fit(x)
    i, j = np.nonzero(np.isnan(x))
    p = model.predict_proba(i, j)[:, 1]
    order = np.argsort(p)
    for part in np.array_split(order, 4):  # 180 cells each: a deviation of 0.04
        assert abs(p[part].mean() - a[i, j][part].mean()) < 0.12
    assert -np.mean(np.log(np.where(a[i, j] == 1, p, 1 - p))) < 0.95 * np.log(2)
