"""Certificates of ridge factorizations, with other losses and with attributes, and of tables: every
number is what its definition says.

The numbers are computed again from dense matrices in NumPy, at points that are no answers: at an
answer most of them are zero and a wrong formula looks right.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dense_points import ENGINE, K, M, N, Table, traced
from eckart import ALS, Observed
from eckart.certify import losses, mapped, spectral, stationary, tables
from eckart.engines.protocol import RidgeRule
from eckart.terms import LOSSES
from eckart.trace import StopReason


@pytest.fixture(autouse=True)
def at_work():
    with ENGINE.at_work():
        yield


def relative(parts):
    """||sum of differences|| / ||sums of sizes|| over blocks (slope, one part, other part)."""
    square = sum(np.sum(slope**2) for slope, _, _ in parts)
    size = sum((np.linalg.norm(one) + np.linalg.norm(two)) ** 2 for _, one, two in parts)
    return np.sqrt(square / size)


@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize("power", [0.0, 1.0])
def test_ridge(rng, biases, power):
    t = Table(rng)
    rule = RidgeRule(0.7, power, biases, 0.3)
    l, m = (0.7 * n**power for n in t.counts)
    lb, mb = (0.3 * n**power for n in t.counts)
    c = stationary.certify_factors(
        stationary.RidgeProblem.of(ENGINE, t.placed(), rule),
        t.point(biases),
        ENGINE,
        traced(9.0, 7.0, 7.5),
    )
    s = t.scores(biases)
    r = t.w * (t.a - s)
    data = 0.5 * np.sum(t.w * (t.a - s) ** 2)
    penalty = 0.5 * (l @ np.sum(t.u**2, axis=1) + m @ np.sum(t.v**2, axis=1))
    penalty += 0.5 * (lb @ t.b**2 + mb @ t.c**2) if biases else 0.0
    assert c["data term"] == pytest.approx(data)
    assert c["objective"] == pytest.approx(data + penalty)
    blocks = [
        (l[:, None] * t.u - r @ t.v, r @ t.v, l[:, None] * t.u),
        (m[:, None] * t.v - r.T @ t.u, r.T @ t.u, m[:, None] * t.v),
    ]
    if biases:
        blocks += [
            (lb * t.b - r.sum(axis=1), r.sum(axis=1), lb * t.b),
            (mb * t.c - r.sum(axis=0), r.sum(axis=0), mb * t.c),
        ]
    assert c["relative gradient"] == pytest.approx(relative(blocks))
    norm = np.linalg.norm(r / np.sqrt(np.outer(l, m)), 2)
    shrunk = r * min(1.0, 1.0 / norm)
    dual = np.sum((t.a - t.mean) * shrunk) - 0.5 * np.sum(shrunk[t.seen] ** 2 / t.w[t.seen])
    if biases:
        dual -= 0.5 * np.sum(shrunk.sum(axis=1) ** 2 / lb) + 0.5 * np.sum(
            shrunk.sum(axis=0) ** 2 / mb
        )
    assert c["residual norm / ridge"] == pytest.approx(norm, rel=1e-6)
    assert c["duality gap"] == pytest.approx((data + penalty - dual) / (data + penalty), rel=1e-6)
    assert c["never rises"] == pytest.approx(
        0.5 / max(9.0, 0.5 * np.sum(t.w * (t.a - t.mean) ** 2))
    )
    assert f"more than {c['duality gap']:.1%} lower" in c.notes[0]


def test_ridge_held_out(rng):
    t = Table(rng)
    p = stationary.RidgeProblem.of(ENGINE, t.placed(), RidgeRule(0.7))
    c = stationary.certify_factors(p, t.point(False), ENGINE, traced(9.0), [0.5, 0.3, 0.4, 0.6])
    assert (c.kind, c["held-out error"], c["sweeps after the best"]) == ("statistical", 0.3, 2)
    assert c.holds  # a good predictor need not be stationary


def test_without_a_ridge_the_data_are_the_scale(rng):
    t = Table(rng)
    p = stationary.RidgeProblem.of(ENGINE, t.placed(False), RidgeRule(0.0))
    at = t.point(False)._replace(mean=0.0)
    r, full = t.seen * (t.a - t.u @ t.v.T), t.seen * t.a
    blocks = [(-r @ t.v, r @ t.v, full @ t.v), (-r.T @ t.u, r.T @ t.u, full.T @ t.u)]
    assert stationary.relative_gradient(p, at, ENGINE) == pytest.approx(relative(blocks))


def test_no_bound_where_a_ridge_is_zero(rng):
    t = Table(rng)
    p = stationary.RidgeProblem.of(ENGINE, t.placed(), RidgeRule(0.7, bias=True, bias_l2=0.0))
    at = t.point()
    gap, norm, words = stationary.duality_gap(p, at, stationary.look(p, at, ENGINE), 1.0, ENGINE)
    assert gap == np.inf
    assert np.isnan(norm)
    assert "ridge is zero" in words


def test_implicit_feedback(rng):
    t = Table(rng, positive=True)
    a0, alpha, shift, l2 = 0.2, 0.8, 1.0, 0.5
    rule = RidgeRule(l2, 1.0, alpha=alpha, shift=shift)
    at = t.point(False)._replace(mean=0.0)
    c = stationary.certify_factors(
        stationary.RidgeProblem.of(ENGINE, t.placed(False), rule, a0), at, ENGINE, traced(1.0)
    )
    s = t.u @ t.v.T
    whole, q = a0 + np.where(t.seen, alpha * t.a, 0.0), np.where(t.seen, alpha * t.a + shift, 0.0)
    l, m = l2 * (t.counts[0] + a0 * M), l2 * (t.counts[1] + a0 * N)
    data = np.sum(0.5 * whole * s**2 - q * s + 0.5 * q)
    value = data + 0.5 * (l @ np.sum(t.u**2, axis=1) + m @ np.sum(t.v**2, axis=1))
    assert c["data term"] == pytest.approx(data)
    assert c["objective"] == pytest.approx(value)
    r = q - whole * s
    pull, push = (q - (whole - a0) * s) @ t.v, l[:, None] * t.u + a0 * t.u @ t.v.T @ t.v
    down, up = (q - (whole - a0) * s).T @ t.u, m[:, None] * t.v + a0 * t.v @ t.u.T @ t.u
    assert c["relative gradient"] == pytest.approx(
        relative([(push - pull, pull, push), (up - down, down, up)])
    )
    norm = np.linalg.norm(r / np.sqrt(np.outer(l, m)), 2)
    z = -r * min(1.0, 1.0 / norm)
    dual = -np.sum((z + q) ** 2 / (2 * whole) - q / 2)
    assert c["residual norm / ridge"] == pytest.approx(norm, rel=1e-6)
    assert c["duality gap"] == pytest.approx((value - dual) / abs(value), rel=1e-6)


@pytest.mark.parametrize("name", ["logistic", "poisson", "huber"])
@pytest.mark.parametrize("biases", [True, False])
def test_losses(rng, name, biases):
    loss = LOSSES[name]()
    t = Table(rng, positive=name == "poisson")
    if name == "logistic":
        t.a = (t.a > 0.5).astype(float)
        t.x = Observed.from_nan(np.where(t.seen, t.a, np.nan))
    rule = RidgeRule(0.7, 1.0, biases, 0.3)
    (l, m), (lb, mb) = ([k * n for n in t.counts] for k in (0.7, 0.3))
    p = stationary.RidgeProblem.of(ENGINE, t.placed(), rule)
    c = losses.certify_loss(
        p, t.point(biases, loss), ENGINE, traced(90.0, 70.0, reason=StopReason.MAX_ITER)
    )
    s = t.scores(biases)
    data = float(np.sum((t.w * loss.value(t.a, s))[t.seen]))
    penalty = 0.5 * (l @ np.sum(t.u**2, axis=1) + m @ np.sum(t.v**2, axis=1))
    penalty += 0.5 * (lb @ t.b**2 + mb @ t.c**2) if biases else 0.0
    value = data + penalty
    y = np.where(t.seen, t.w * loss.gradient(t.a, s), 0.0)
    assert c["data term"] == pytest.approx(data, rel=1e-6)
    assert c["objective"] == pytest.approx(value, rel=1e-6)
    assert c["loss of an entry"] == pytest.approx(data / t.x.nnz, rel=1e-6)
    blocks = [
        (l[:, None] * t.u + y @ t.v, y @ t.v, l[:, None] * t.u),
        (m[:, None] * t.v + y.T @ t.u, y.T @ t.u, m[:, None] * t.v),
    ]
    if biases:
        blocks += [
            (lb * t.b + y.sum(axis=1), y.sum(axis=1), lb * t.b),
            (mb * t.c + y.sum(axis=0), y.sum(axis=0), mb * t.c),
        ]
    assert c["relative gradient"] == pytest.approx(relative(blocks), rel=1e-5)
    norm = np.linalg.norm(y / np.sqrt(np.outer(l, m)), 2)
    shrink = min(1.0, 1.0 / norm)
    z = shrink * y
    dual = t.mean * z.sum() - np.sum(
        (t.w * loss.conjugate(t.a, shrink * loss.gradient(t.a, s)))[t.seen]
    )
    if biases:
        dual -= 0.5 * np.sum(z.sum(axis=1) ** 2 / lb) + 0.5 * np.sum(z.sum(axis=0) ** 2 / mb)
    assert c["gradient norm / ridge"] == pytest.approx(norm, rel=1e-5)
    assert c["duality gap"] == pytest.approx(max((value - dual) / abs(value), 0.0), rel=1e-5)
    rise = max(value - 70.0, 0.0) / max(90.0, value)
    assert c["never rises"] == pytest.approx(rise, rel=1e-6)
    interrupted = losses.certify_loss(
        p, t.point(biases, loss), ENGINE, traced(90.0, 70.0, reason=StopReason.INTERRUPTED)
    )
    # what came after the last value is not part of an interrupted trace
    assert interrupted["never rises"] == 0.0


def test_thresholds(rng):
    """What a Newton step of the thresholds gains, from numerical derivatives of the loss."""
    t = Table(rng)
    levels = rng.integers(0, 3, (N, M)).astype(float)
    x = Observed.from_nan(np.where(t.seen, levels, np.nan))
    loss = replace(LOSSES["ordered"](), thresholds=(-0.5, 0.9))
    p = stationary.RidgeProblem.of(ENGINE, ENGINE.put(x), RidgeRule(0.7))
    at = t.point(False, loss)

    def value(thresholds):
        return float(
            np.sum(
                replace(loss, thresholds=tuple(thresholds)).value(levels, t.scores(False))[t.seen]
            )
        )

    base, step = np.array(loss.thresholds), 1e-4
    unit = step * np.eye(2)
    slope = np.array([(value(base + e) - value(base - e)) / (2 * step) for e in unit])
    bend = np.array(
        [
            [
                (
                    value(base + e + f)
                    - value(base + e - f)
                    - value(base - e + f)
                    + value(base - e - f)
                )
                / (4 * step**2)
                for f in unit
            ]
            for e in unit
        ]
    )
    expected = 0.5 * slope @ np.linalg.solve(bend, slope) / value(base)
    found = losses.best_thresholds(
        ENGINE.threshold_sums(p.x, at.loss, at.left, at.right, **losses.given(at)), None
    )
    assert found.value == pytest.approx(expected, rel=1e-3)
    c = losses.certify_loss(p, at, ENGINE, traced(1.0))
    assert c["thresholds"] == pytest.approx(expected, rel=1e-3)
    limits = {check.name: check.limit for check in c.checks}
    assert limits["thresholds"] == stationary.GRADIENT_LIMIT**2
    early = losses.certify_loss(p, at, ENGINE, traced(1.0), [0.3])
    assert {
        check.limit for check in early.checks if check.name in ("thresholds", "relative gradient")
    } == {1.0}


@pytest.mark.parametrize(("stretch", "a0"), [(0.0, 0.0), (1.3, 0.0), (0.0, 0.2)])
def test_attributes(rng, stretch, a0):
    """The gradient by codes and maps, and the objective, by the formulas of the module."""
    t = Table(rng, positive=bool(a0))
    d = K + bool(stretch)
    u, v = 0.6 * rng.standard_normal((N, d)), 0.6 * rng.standard_normal((M, d))
    f, g = (np.hstack([np.ones((n, 1)), rng.standard_normal((n, 2))]) for n in (N, M))
    rule = RidgeRule(0.7, 1.0, alpha=0.8 if a0 else 0.0, shift=1.0 if a0 else 0.0)
    plain = stationary.RidgeProblem.of(ENGINE, t.placed(False), rule, a0)
    l, m = (
        r.ridges(side.counts)[0] for r, side in ((plain.rule, plain.x), (plain.rule_t, plain.x.T))
    )
    rows, columns = (
        mapped.SideMap.of(ENGINE, h, ridge, 0.9, np.float64) for h, ridge in ((f, l), (g, m))
    )
    p = mapped.MappedProblem(plain, rows, columns, stretch)
    a, b = rng.standard_normal((3, d)), rng.standard_normal((3, d))
    mean = 0.0 if a0 else t.mean
    at = stationary.RidgePoint(u, v, None, None, mean, a, b)
    k = K if stretch else d
    s = u[:, :k] @ v[:, :k].T + (stretch * (u[:, k:] + v[:, k:].T) if stretch else 0.0)
    if a0:
        whole, q = np.where(t.seen, 0.8 * t.a, 0.0), np.where(t.seen, 0.8 * t.a + 1.0, 0.0)
        r = q - whole * s
        data = np.sum(0.5 * whole * s**2 - q * s + 0.5 * q) + 0.5 * a0 * np.sum(s**2)
    else:
        r = t.seen * (t.a - mean - s)
        data = 0.5 * np.sum(r**2)
    du, dv = (
        np.hstack([w[:, :k], np.full((len(w), 1), stretch)]) if stretch else w for w in (u, v)
    )
    off, off_t = u - f @ a, v - g @ b
    penalty = 0.5 * (l @ np.sum(off**2, axis=1) + m @ np.sum(off_t**2, axis=1)) + 0.45 * (
        np.sum(a**2) + np.sum(b**2)
    )
    seen = mapped.look(p, at, ENGINE)
    assert seen.data == pytest.approx(data)
    assert seen.value == pytest.approx(data + penalty)
    blocks, size = [], 0.0
    for own, o, ridge, design, rest, h, c in (
        (u, off, l, dv, r, f, a),
        (v, off_t, m, du, r.T, g, b),
    ):
        pull, push = rest @ design, ridge[:, None] * own + a0 * own @ design.T @ design
        shift = ridge[:, None] * (h @ c)
        blocks += [push - pull - shift, 0.9 * c - h.T @ (ridge[:, None] * o)]
        size += (np.linalg.norm(pull) + np.linalg.norm(push) + np.linalg.norm(shift)) ** 2
        size += np.sum((h.T @ (ridge[:, None] * own)) ** 2)
    gradient = np.sqrt(sum(np.sum(block**2) for block in blocks))
    assert seen.gradient == pytest.approx(gradient)
    assert seen.slope == pytest.approx(gradient / np.sqrt(size))
    c = mapped.certify_mapped(p, at, ENGINE, traced(90.0, 70.0, 71.0))
    assert c["never rises"] == pytest.approx(1.0 / max(90.0, seen.zero))
    assert {check.name: check.limit for check in c.checks} == {
        "relative gradient": stationary.GRADIENT_LIMIT,
        "finite": 0.0,
        "never rises": 50 * np.finfo(float).eps,
    }
    early = mapped.certify_mapped(p, at, ENGINE, traced(90.0), [0.5, 0.3, 0.4])
    assert (early.kind, early["held-out error"], early["sweeps after the best"]) == (
        "statistical",
        0.3,
        1,
    )
    assert ("implicit" in c.problem) == bool(a0)
    best = rows.best(rows.pull(ENGINE, u))
    assert best == pytest.approx(
        np.linalg.solve(f.T @ (l[:, None] * f) + 0.9 * np.eye(3), f.T @ (l[:, None] * u))
    )


def test_table():
    def made(
        value=3.0,
        gradient=0.9 * tables.GRADIENT_LIMIT,
        move=0.9 * tables.STEP_LIMIT,
        link=0.9 * tables.LINK_LIMIT,
        last=2.0,
    ):
        return tables.certify_table(
            value, gradient, move, {"age": link, "sex": 0.0}, traced(4.0, 2.0, last), {}
        )

    assert made().holds
    assert "relative gradient is" in made(gradient=1.1 * 2e-2).reason
    assert "EM step is" in made(move=1.1 * 5e-2).reason
    assert "links is" in made(link=1.1e-3).reason
    assert "'age'" in made(link=1.1e-3).reason
    assert "finite is" in made(value=-np.inf).reason
    assert "finite is" in made(value=np.nan).reason
    assert "never rises is" in made(last=2.0 + 1.1 * 4e-9).reason
    assert made(last=2.0 + 0.9 * 4e-9).holds
    assert made()["never rises"] == 0.0
    assert [c.name for c in tables.certify_table(1.0, 0.0, 0.0, {}, traced(1.0), {}).checks] == [
        "relative gradient",
        "EM step",
        "finite",
    ]
    assert len(tables.certify_table(1.0, 0.0, 0.0, {}, None, {}).notes) == 1


def test_the_step_of_a_table(rng):
    """Of complete rows: means and noises after one EM step of factor analysis, row by row; W
    stays."""
    from types import SimpleNamespace

    from eckart.complete.tables.factor_em import (
        LEAST_NOISE,
        PRIOR_ROWS,
        GaussianFactors,
        em_move,
        prior_noise,
    )

    rows, n, k, l2 = 30, 4, 2, 0.7
    y, w, mu, psi = (
        rng.standard_normal((rows, n)),
        rng.standard_normal((n, k)),
        rng.standard_normal(n),
        rng.random(n) + 0.1,
    )
    wild = rng.random(n)
    new = y.mean(axis=0)
    s = np.linalg.inv(np.eye(k) + w.T @ (w / psi[:, None]))
    misfit = np.zeros(n)
    for row in y - new:
        z = s @ w.T @ (row / psi)
        misfit += (row - w @ z) ** 2 + np.einsum("jk,kl,jl->j", w, s, w)
    noise = (misfit + l2 * (w**2).sum(axis=1) + 2 * wild + PRIOR_ROWS * prior_noise(l2)) / (
        rows + PRIOR_ROWS + k
    )
    wanted = max(
        np.max(np.abs(new - mu) / np.sqrt(psi + (w**2).sum(axis=1))),
        np.max(np.abs(np.maximum(noise, LEAST_NOISE) / psi - 1)),
    )
    moments = SimpleNamespace(first=y.sum(axis=0), second=y.T @ y, wild=wild)
    assert em_move(GaussianFactors(w, mu, psi), moments, rows, l2) == pytest.approx(wanted)
    still = em_move(GaussianFactors(w, new, psi), moments, rows, l2)
    assert still == pytest.approx(np.max(np.abs(np.maximum(noise, LEAST_NOISE) / psi - 1)))


def test_als_says_how_far_the_best_can_be(rng):
    """End to end: no start finds an objective below the bound."""
    t = Table(rng)
    fits = [
        ALS(2, l2=0.5, l2_power=0.0, random_state=seed, tol=1e-10, max_iter=300)
        .fit(t.x)
        .certificate_
        for seed in range(3)
    ]
    below = max(c["objective"] * (1 - c["duality gap"]) for c in fits)
    assert below <= min(c["objective"] for c in fits) * (1 + 1e-9)


@pytest.mark.parametrize(("l2", "steps"), [(1000.0, [4, 60]), (0.01, [4])])
@pytest.mark.parametrize("module", [losses, stationary])
def test_a_norm_is_looked_at_again_where_it_may_be_small_enough(
    rng, monkeypatch, module, l2, steps
):
    """Of many entries: twice where the first look leaves a small gap (a ridge so large that zero is
    nearly the best), once where it cannot be small."""
    t, seen, norm = Table(rng), [], spectral.remainder_norm
    monkeypatch.setattr(module, "SMALL", 0)
    monkeypatch.setattr(
        module, "remainder_norm", lambda *told: (seen.append(told[5]), norm(*told))[1]
    )
    t.u, t.v = 1e-6 * t.u, 1e-6 * t.v
    p = stationary.RidgeProblem.of(ENGINE, t.placed(), RidgeRule(l2))
    certify = losses.certify_loss if module is losses else stationary.certify_factors
    certify(p, t.point(False, LOSSES["huber"]() if module is losses else None), ENGINE, traced(1.0))
    assert seen == steps
