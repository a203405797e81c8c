"""Line 4.2 of the specification: the update rules and their theory. (4.1 and 4.3 belong to the
networks.)"""

from __future__ import annotations

import numpy as np
import pytest

from eckart.optim.descend import descend, norm
from eckart.optim.rules import RULES, rule_named


def quadratic(eigenvalues):
    h = np.asarray(eigenvalues, float)
    return lambda p: (0.5 * float(h @ p[0] ** 2), [h * p[0]])


def test_4_2_updates_by_hand():
    p, g, lr = [np.array([1.0])], [np.array([2.0])], 0.1
    gd = rule_named("gd")
    assert gd.step(p, g, gd.init(p), lr)[0][0][0] == pytest.approx(1 - 0.2)
    ball = rule_named("heavy_ball")
    once, state = ball.step(p, g, ball.init(p), lr)
    twice, _ = ball.step(once, g, state, lr)
    assert twice[0][0] == pytest.approx(0.8 - 0.2 + 0.9 * (0.8 - 1.0))
    ada = rule_named("adagrad")
    once, state = ada.step(p, g, ada.init(p), lr)
    assert once[0][0] == pytest.approx(1 - 0.1)
    assert ada.step(once, g, state, lr)[0][0][0] == pytest.approx(0.9 - 0.1 * 2 / np.sqrt(8))
    adam = rule_named("adam")
    once, state = adam.step(p, g, adam.init(p), lr)
    # bias correction makes the first step lr sign(g)
    assert once[0][0] == pytest.approx(1 - 0.1, abs=1e-6)
    fast = rule_named("nesterov")
    once, state = fast.step(p, g, fast.init(p), lr)
    t = (1 + np.sqrt(5)) / 2
    after = (1 + np.sqrt(1 + 4 * t**2)) / 2
    assert fast.ahead(once, state)[0][0] == pytest.approx(0.8 + (t - 1) / after * (0.8 - 1.0))


@pytest.mark.parametrize("seed", range(5))
def test_4_2_smooth_descent_finds_a_critical_point_in_time(seed):
    """L-smooth, step 1/L: within 2 L (l0 - l*) / eps^2 steps some gradient is below eps."""
    rng = np.random.default_rng(seed)
    a = rng.standard_normal(4)

    def f(p):  # not convex: sum cos, 1-smooth in each coordinate
        return float(np.sum(np.cos(p[0] - a))), [-np.sin(p[0] - a)]

    p, eps, smooth, lowest = [rng.standard_normal(4)], 1e-2, 1.0, -4.0
    limit = int(2 * smooth * (f(p)[0] - lowest) / eps**2)
    rule = rule_named("gd")
    sizes = []
    for _ in range(limit):
        _, g = f(p)
        sizes.append(norm(g))
        if sizes[-1] <= eps:
            break
        p, _ = rule.step(p, g, {}, 1 / smooth)
    assert min(sizes) <= eps
    assert len(sizes) <= limit


def test_4_2_pl_rate():
    """mu-PL: l_k - l* <= (1 - mu/L)^k (l0 - l*)."""
    h = np.array([4.0, 1.0, 0.5])
    f, p = quadratic(h), [np.array([1.0, -2.0, 3.0])]
    first = f(p)[0]
    rule = rule_named("gd")
    for k in range(1, 60):
        p, _ = rule.step(p, f(p)[1], {}, 1 / h.max())
        assert f(p)[0] <= (1 - h.min() / h.max()) ** k * first * (1 + 1e-12)


@pytest.mark.parametrize("name", list(RULES))
def test_4_2_every_rule_minimises_a_badly_conditioned_quadratic(name):
    rule = rule_named(name)
    lr = {"adagrad": 0.5, "adam": 0.1}.get(name, 1 / 50.0)
    best, trace, size = descend(
        quadratic([50.0, 1.0]), [np.array([1.0, 1.0])], rule, lr=lr, tol=1e-5, max_iter=5000
    )
    assert trace.reason.name == "CONVERGED"
    assert size <= 1e-5
    np.testing.assert_allclose(best[0], 0, atol=1e-4)


def test_4_2_momentum_beats_plain_descent():
    steps = {}
    for name in ("gd", "heavy_ball", "nesterov"):
        _, trace, _ = descend(
            quadratic([100.0, 1.0]),
            [np.array([1.0, 1.0])],
            rule_named(name),
            lr=0.01,
            tol=1e-6,
            max_iter=5000,
        )
        steps[name] = len(trace)
    assert steps["heavy_ball"] < 0.5 * steps["gd"]
    assert steps["nesterov"] < 0.7 * steps["gd"]


def test_4_2_a_step_that_is_too_long_is_tamed_and_the_best_point_kept():
    best, trace, size = descend(
        quadratic([10.0]), [np.array([1.0])], rule_named("gd"), lr=1e3, tol=1e-8, max_iter=2000
    )
    assert np.isfinite(best[0]).all()
    assert size <= 1e-8, trace.reason
