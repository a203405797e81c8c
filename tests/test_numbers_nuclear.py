"""Certificates of nuclear norms and of exact recovery: every number is what its definition says.

The numbers are computed again from dense matrices in NumPy, at points that are no answers: at an
answer most of them are zero and a wrong formula looks right.
"""

from __future__ import annotations

import numpy as np
import pytest

from dense_points import ENGINE, K, M, N, Nuclear
from eckart import Observed
from eckart.certify import nuclear, nuclear_losses, recovery, spectral
from eckart.factors import LowRank
from eckart.optim.tangent import Coordinates, Sampling, Tangent
from eckart.terms import LOSSES


@pytest.fixture(autouse=True)
def at_work():
    with ENGINE.at_work():
        yield


@pytest.mark.parametrize("ridge", [False, True])
@pytest.mark.parametrize("tau", [0.5, 50.0])
def test_duality_gap(rng, ridge, tau):
    t = Nuclear(rng)
    c = nuclear.gap_certificate(t.x, t.f, tau, tol=1e-3, rng=rng, engine=ENGINE, ridge=ridge)
    penalty = tau / 2 * (np.sum(t.u**2) + np.sum(t.v**2)) if ridge else tau * t.s.sum()
    value = 0.5 * np.sum(t.rest**2) + penalty
    # by blocks: inside T exactly, outside by its own norm, as the module says
    core = [
        [t.pu @ t.rest @ t.pv, t.pu @ t.rest @ (np.eye(M) - t.pv)],
        [(np.eye(N) - t.pu) @ t.rest @ t.pv, t.outside(t.rest)],
    ]
    norm = np.linalg.norm([[np.linalg.norm(z, 2) for z in row] for row in core], 2)
    assert norm >= np.linalg.norm(t.rest, 2) - 1e-12
    inner = np.sum(t.rest * t.target)
    y = min(max(inner / np.sum(t.rest**2), 0.0), tau / norm) * t.rest
    dual = np.sum(y * t.target) - 0.5 * np.sum(y**2)
    assert c["value"] == pytest.approx(value)
    assert c["residual norm is at most"] == pytest.approx(norm, rel=1e-6)
    assert c["residual norm ||R||_2"] <= c["residual norm is at most"]
    assert c["duality gap"] == pytest.approx((value - dual) / value, rel=1e-6)
    assert c["no matrix is below"] == pytest.approx(dual, rel=1e-6)
    assert c["relative residual"] == pytest.approx(
        np.linalg.norm(t.rest) / np.linalg.norm(t.target)
    )
    assert c["rank"] == K
    assert ("within tau" in c.notes[0]) == (norm <= tau * (1 + 1e-3))
    for share, within in ((0.9, True), (1.1, True), (1.3, False)):  # of tau, to a tolerance of 0.2
        near = nuclear.gap_certificate(
            t.x, t.f, norm / share, tol=0.2, rng=rng, engine=ENGINE, ridge=ridge
        )
        assert ("within tau" in near.notes[0]) == within


def test_svt_numbers(rng):
    t = Nuclear(rng)
    tau = 200.0
    c = nuclear.svt_certificate(t.x, t.f, tau, tol=1e-6, rng=rng, engine=ENGINE)
    goal = t.left @ np.diag(t.s + tau) @ t.right.T
    y = t.least(goal)
    assert c["dual equation"] == pytest.approx(
        np.linalg.norm(t.inside(y) - goal) / np.linalg.norm(goal), abs=1e-7
    )
    assert c["dual bound"] == pytest.approx(np.linalg.norm(t.outside(y), 2) / tau, rel=1e-5)
    assert c["dual norm outside, / tau"] == pytest.approx(c["dual bound"], rel=1e-6)
    assert c["feasibility"] == pytest.approx(np.linalg.norm(t.rest) / np.linalg.norm(t.target))
    assert c["value"] == pytest.approx(tau * t.s.sum() + 0.5 * np.sum(t.s**2))
    assert {check.name: check.limit for check in c.checks} == {
        "feasibility": 1.5e-6,
        "dual equation": 1e-6,
        "dual bound": 1.0,
    }
    # the value of the dual, where Y is feasible: all entries seen
    full = Observed.from_nan(t.a)
    plain = LowRank(t.u, t.v)
    c = nuclear.svt_certificate(full, plain, tau, tol=1e-6, rng=rng, engine=ENGINE)
    rest = t.a - t.u @ t.v.T
    dual = np.sum(goal * t.a) - 0.5 * np.sum(t.s**2)
    assert c["dual value"] == pytest.approx(dual)
    r, size = np.linalg.norm(rest), np.linalg.norm(t.s)
    upper = tau * (t.s.sum() + np.sqrt(M) * r) + 0.5 * (size + r) ** 2
    assert c["relative distance from the minimiser at most"] == pytest.approx(
        np.sqrt(2 * max(upper - dual, 0.0)) / size
    )
    short = nuclear.svt_certificate(t.x, t.f, 1e-3, tol=1e-6, rng=rng, engine=ENGINE)
    assert short["dual bound"] > 1
    with pytest.raises(KeyError):
        short["dual value"]  # Y is not feasible: nothing is known


def test_svp_numbers(rng):
    t = Nuclear(rng)
    c = nuclear.svp_certificate(t.x, t.f, tol=1e-3, fitted=1e-6, rng=rng, engine=ENGINE)
    assert c["stationarity"] == pytest.approx(
        np.linalg.norm(t.inside(t.rest)) / np.linalg.norm(t.rest)
    )
    outside = np.linalg.norm(t.outside(t.rest), 2)
    assert c["fixed point"] == pytest.approx(outside / t.s[-1], rel=1e-6)
    assert c["largest step outside, eta ||P_Tperp R||"] == pytest.approx(
        outside / (t.seen.sum() / (N * M)), rel=1e-6
    )
    assert c["value"] == pytest.approx(0.5 * np.sum(t.rest**2))
    assert c["smallest singular value"] == pytest.approx(t.s[-1])
    assert c["relative residual"] == pytest.approx(
        np.linalg.norm(t.rest) / np.linalg.norm(t.target)
    )
    exact = nuclear.svp_certificate(
        Observed.from_nan(np.where(t.seen, t.u @ t.v.T, np.nan)),
        LowRank(t.u, t.v),
        tol=1e-3,
        fitted=1e-6,
        rng=rng,
        engine=ENGINE,
    )
    assert exact.kind == "global"
    assert [check.name for check in exact.checks] == ["stationarity"]
    assert exact.holds


def test_a_model_of_other_data_is_refused(rng):
    t = Nuclear(rng)
    from eckart.errors import InputError

    with pytest.raises(InputError, match="shape"):
        nuclear.MeasuredSpectrum(t.x, LowRank(t.u[1:], t.v), ENGINE)
    with pytest.raises(InputError, match="rescaled"):
        nuclear.MeasuredSpectrum(t.x, LowRank(t.u, t.v, row_scale=np.ones(N)), ENGINE)


def test_rounding_makes_no_directions(rng):
    t = Nuclear(rng)
    double = LowRank(np.hstack([t.u, t.u[:, :1] * 1e-16]), np.hstack([t.v, t.v[:, 1:]]))
    assert len(nuclear.MeasuredSpectrum(t.x, double, ENGINE).s) == K
    small = LowRank(
        np.hstack([t.u, 1e-12 * rng.standard_normal((N, 1))]),
        np.hstack([t.v, rng.standard_normal((M, 1))]),
    )
    assert len(nuclear.MeasuredSpectrum(t.x, small, ENGINE).s) == K + 1


@pytest.mark.parametrize("tau", [0.2, 40.0])
@pytest.mark.parametrize("name", ["logistic", "poisson"])
def test_duality_gap_under_a_loss(rng, tau, name):
    t = Nuclear(rng)
    loss = LOSSES[name]()
    a = (t.a > 0.5).astype(float) if name == "logistic" else np.floor(np.abs(t.a) * 3)
    x = Observed.from_nan(np.where(t.seen, a, np.nan))
    c = nuclear_losses.loss_gap_certificate(x, t.f, loss, tau, tol=1e-3, rng=rng, engine=ENGINE)
    o = t.mean + t.b[:, None] + t.c
    s = o + t.u @ t.v.T
    g = np.where(t.seen, loss.gradient(a, s), 0.0)
    norm = np.linalg.norm(g, 2)
    shrink = min(1.0, tau / norm)
    value = np.sum(loss.value(a, s)[t.seen]) + tau * t.s.sum()
    below = shrink * np.sum(g * o) - np.sum(loss.conjugate(a, shrink * g)[t.seen])
    assert c["value"] == pytest.approx(value)
    assert c["gradient norm ||G||_2"] == pytest.approx(norm, rel=1e-6)
    assert c["gradient norm is at most"] == pytest.approx(norm, rel=1e-6)
    assert c["no matrix is below"] == pytest.approx(below, rel=1e-6)
    assert c["duality gap"] == pytest.approx((value - below) / value, rel=1e-6)
    assert c["loss of an entry"] == pytest.approx(np.mean(loss.value(a, s)[t.seen]))
    assert c["rank"] == K
    assert c["how the bound is known"] == "exact up to rounding"


def test_recovery_numbers(rng, monkeypatch):
    t = Nuclear(rng)
    b = t.u @ t.v.T
    x = Observed.from_nan(np.where(t.seen, b, np.nan))
    c = recovery.recovery_certificate(LowRank(t.u, t.v), x)
    basis = [np.outer(t.left[:, i], t.right[:, j]) for i in range(K) for j in range(K)]
    q, p = (np.linalg.qr(z, mode="complete")[0][:, K:] for z in (t.left, t.right))
    basis += [np.outer(q[:, i], t.right[:, j]) for i in range(N - K) for j in range(K)]
    basis += [np.outer(t.left[:, j], p[:, i]) for i in range(M - K) for j in range(K)]
    sampled = np.stack([z[t.seen] for z in basis], axis=1)
    low = np.linalg.eigvalsh(sampled.T @ sampled)[0]
    assert c["degrees of freedom"] == K * (N + M - K) == len(basis)
    assert c["smallest eigenvalue on T"] == pytest.approx(low, rel=1e-6)
    assert c["injectivity"] == pytest.approx(-low, rel=1e-6)
    y = t.least(t.left @ t.right.T)
    outside = np.linalg.norm(t.outside(y), 2)
    assert c["||P_Tperp Y||_2"] == pytest.approx(outside, rel=1e-5)
    assert c["dual certificate"] == pytest.approx(outside, rel=1e-4)
    assert c["dual certificate"] >= c["||P_Tperp Y||_2"] * (1 - 1e-9)
    assert c["||P_T Y - E||_F"] <= 1e-7
    nothing = recovery.recovery_certificate(LowRank(np.zeros((N, 1)), np.zeros((M, 1))), x)
    assert nothing["verdict"] == "disproven"
    zero = Observed.from_nan(np.where(t.seen, 0.0, np.nan))
    assert (
        recovery.recovery_certificate(LowRank(np.zeros((N, 1)), np.zeros((M, 1))), zero)["verdict"]
        == "proven"
    )
    # by Lanczos: a bound from below, by the theorem's share of the distance to the largest
    # eigenvalue
    tangent = Tangent(Sampling(x, ENGINE), t.left, t.right)
    assert f"size {len(basis)}" in recovery.smallest(tangent, x, np.random.default_rng(0))[1]
    monkeypatch.setattr(recovery, "DENSE", len(basis) - 1)
    bound, words, direct = recovery.smallest(tangent, x, np.random.default_rng(0))
    assert 0 <= bound <= low * (1 + 1e-9)
    assert "0.999" in words
    assert not direct
    top = np.linalg.eigvalsh(sampled.T @ sampled)[-1]

    def apply(g):
        return tangent.adjoint(tangent.forward(g))

    start = tangent.inside(Coordinates(*(rng.standard_normal(s) for s in ((K, K), (N, K), (M, K)))))
    found, steps = recovery._extreme(tangent, apply, start, 46)
    assert found == pytest.approx(top, rel=1e-8)
    assert steps <= 46
    few, _ = recovery._extreme(tangent, apply, start, 6)
    assert 0.5 * top < few <= top * (1 + 1e-12)
    assert recovery._loss(1000, 60, 5e-4) == pytest.approx(
        (np.log(1.648 * np.sqrt(1000) / 5e-4) / 119) ** 2
    )
    assert recovery._loss(1000, 1, 5e-4) == 0.99
    # many steps are enough for a bound above zero
    monkeypatch.setattr(recovery, "LANCZOS", 2000)
    monkeypatch.setattr(recovery, "_extreme", lambda t, f, g, n: (_dense_top(f, g, t), n))
    bound, _, _ = recovery._lanczos_smallest(tangent, np.random.default_rng(0), len(basis))
    shares = [1 - recovery._loss(len(basis), n, spectral.FAILURE / 2) for n in (30, 2000)]
    mu = min(1.0, top / shares[0])
    assert bound == pytest.approx(max(mu - (mu - low) / shares[1], 0.0), rel=1e-6)


@pytest.mark.parametrize(
    ("bounds", "last"),
    [
        ([(0.4, 2.0), (0.4, 0.9), (0.4, 0.6), (0.4, 0.5)], 2),
        ([(0.4, 0.6), (0, 0)], 0),
        ([(0.8, 2.0), (0.8, 1.3)], 0),
        ([(0.5, 2.0)] * 2, 1),
    ],
)
def test_a_bound_is_sought_until_it_decides(rng, monkeypatch, bounds, last):
    """The next probe is tried where what was found, with what the dual point misses (0.3 here), is
    below one and its bound is not."""
    t = Nuclear(rng)
    x = Observed.from_nan(np.where(t.seen, t.u @ t.v.T, np.nan))
    monkeypatch.setattr(recovery, "PROBES", range(len(bounds)))
    monkeypatch.setattr(recovery, "smallest", lambda *_: (0.25, "told", True))
    monkeypatch.setattr(recovery, "dual_point", lambda *_: (None, 0.15, None))
    monkeypatch.setattr(
        recovery.MeasuredSpectrum,
        "outside",
        lambda self, y, rng, probe: (*bounds[probe], str(probe)),
    )
    c = recovery.recovery_certificate(LowRank(t.u, t.v), x)
    assert c["how its bound is known"] == str(last)
    assert c["dual certificate"] == pytest.approx(bounds[last][1] + 0.3)


@pytest.mark.parametrize(
    ("norms", "last"), [([(1, 3), (1, 1), (1, 1)], 1), ([(3, 3), (1, 1)], 0), ([(1, 1), (1, 1)], 0)]
)
@pytest.mark.parametrize("under_a_loss", [True, False])
def test_a_gap_is_sought_until_it_decides(rng, monkeypatch, norms, last, under_a_loss):
    """The next probe is tried where the gap at the norm that was found is small enough, and at its
    bound is not."""
    t = Nuclear(rng)
    tau = float(np.linalg.norm(t.rest, 2))

    def gap(tol):
        how = {"tol": tol, "rng": rng, "engine": ENGINE}
        if under_a_loss:
            return nuclear_losses.loss_gap_certificate(t.x, t.f, LOSSES["huber"](), tau, **how)[
                "duality gap"
            ]
        return nuclear.gap_certificate(t.x, t.f, tau, **how)["duality gap"]

    def told(norms):
        module, seen = (nuclear_losses if under_a_loss else nuclear), []
        monkeypatch.setattr(module, "PROBES", [(at, 1) for at in range(len(norms))])

        def norm(self, rest, rng, probe):
            seen.append(probe[0])
            return (*(tau * n for n in norms[probe[0]]), "told")

        monkeypatch.setattr(nuclear.MeasuredSpectrum, "norm", norm)
        monkeypatch.setattr(
            nuclear_losses,
            "remainder_norm",
            lambda *a: (*(n * n for n in norm(None, None, None, a[5:])[:2]), "told"),
        )
        return seen

    told([(1, 1)])
    small = gap(1.0)
    told([(3, 3)])
    large = gap(1.0)
    assert small < 0.9 * large
    seen = told(norms)
    gap((small + large) / 2)
    assert seen == list(range(last + 1))


def _dense_top(apply, like, tangent):
    """The largest eigenvalue of a symmetric map on coordinates, as a dense matrix."""
    shapes = [a.shape for a in like]
    sizes = [a.size for a in like]

    def split(flat):
        parts = np.split(flat, np.cumsum(sizes)[:-1])
        return tangent.inside(
            Coordinates(*(part.reshape(shape) for part, shape in zip(parts, shapes)))
        )

    columns = [np.concatenate([a.ravel() for a in apply(split(e))]) for e in np.eye(sum(sizes))]
    whole = np.stack(columns, axis=1)
    inside = np.stack(
        [np.concatenate([a.ravel() for a in split(e)]) for e in np.eye(sum(sizes))], axis=1
    )
    values, vectors = np.linalg.eigh(inside)
    q = vectors[:, values > 0.5]
    return float(np.linalg.eigvalsh(q.T @ whole @ q)[-1])
