"""Every certificate, in one shape: the true answer holds; the answer spoiled a little beyond a
limit fails by that check, and names it.

A case is (a certificate of the true answer, {check: certificates of spoiled answers}). Where a
certificate is made from numbers, they are set to 0.9 and to 1.1 times the limit; where it is
measured on data, the answer is spoiled until the number passes its limit by a factor of ten at the
most.
"""

from __future__ import annotations

import importlib
from dataclasses import replace

import numpy as np
import pytest

from eckart import ALS, SVP, SVT, GloVe, Observed, SkipGram, SoftImpute
from eckart.certify import chains, network, nonnegative, pairs, recovery, stationary, topics
from eckart.certify.ascent import certify_ascent
from eckart.certify.certificate import Check
from eckart.certify.nuclear import gap_certificate, svp_certificate, svt_certificate
from eckart.certify.recovery import recovery_certificate
from eckart.certify.spectral import certify_subspace, mean_check, remainder_norm
from eckart.engines import engine_named
from eckart.engines.protocol import FactorSums, Totals
from eckart.factors import LowRank, Topics
from eckart.optim.tangent import Sampling, Tangent
from eckart.trace import StopReason, Trace
from oracle import JUDGE

ENGINE = engine_named("auto", None)


def traced(*values, reason=StopReason.CONVERGED):
    trace = Trace("value", reason=reason)
    for value in values:
        trace.add(value)
    return trace


def bites(true, spoiled):
    """``true`` holds; each of ``spoiled`` fails, by the check it is listed under. Returns the names
    of the checks."""
    assert true.holds, str(true)
    names = {check.name for check in true.checks}
    for name, certificate in spoiled.items():
        assert not certificate.holds, (name, str(certificate))
        assert f"{name} is " in certificate.reason, (name, certificate.reason)
    return names


def test_a_check_passes_up_to_its_limit_and_not_beyond():
    for value, passed in (
        (1.0, True),
        (0.0, True),
        (-1.0, True),
        (1.0 + 1e-12, False),
        (np.nan, False),
        (np.inf, False),
    ):
        assert Check("c", value, 1.0, "").passed is passed


LIMITS = {
    "ascent": {"FALL": 1e-9, "STILL": 1e-8},
    "chains": {"RHAT_LIMIT": 1.1, "ERROR_LIMIT": 0.2, "SHORTEST": 8},
    "gaps": {"STEP_LIMIT": 2e-3},
    "network": {"GRADIENT_LIMIT": 1.0},
    "nonnegative": {"SQUARE_LIMIT": 1e-2, "KL_LIMIT": 2e-2},
    "pairs": {"GRADIENT": {"stochastic": 0.05, "exact": 1e-2}, "GRADIENT_LIMIT": 0.02},
    "recovery": {"DENSE": 3000},
    "spectral": {"FAILURE": 1e-3},
    "stationary": {"GLOBAL_GAP": 1e-3, "GRADIENT_LIMIT": 0.02},
    "topics": {"GAIN": 1e-3, "DRIFT": 0.1, "CLIMB": 5e-3, "NEWS": 0.02},
}
"""What ``holds`` means, in numbers. A limit is a promise: whoever loosens it changes this table,
and says why."""


@pytest.mark.parametrize("module", LIMITS)
def test_limits_are_those_promised(module):
    found = importlib.import_module(f"eckart.certify.{module}")
    assert {name: getattr(found, name) for name in LIMITS[module]} == LIMITS[module]


def test_ascent():
    def made(gain=0.9e-6, second=-1.0, third=-0.5, tol=1e-6, excused=()):
        return certify_ascent(
            "p", trace=traced(-2.0, second, third), bound=-0.5, gain=gain, tol=tol, excused=excused
        )

    fell = made(third=-1.0 - 1.1 * 2 * 1e-9)  # a fall is measured against 1 + |bound|
    assert made(third=-1.0 - 0.9 * 2 * 1e-9).holds
    assert made(third=-1.0 - 1.1 * 2 * 1e-9, excused={2}).holds
    names = bites(made(), {"largest fall": fell, "one more step": made(gain=1.1e-6)})
    assert names == {"largest fall", "one more step"}
    assert not made(gain=-1.1e-6).holds
    assert made()["EM steps"] == 2
    starts = certify_ascent(
        "p", trace=traced(-2.0, -1.0), bound=-1.0, gain=0.0, tol=1e-6, ends=[-1.0, -1.75]
    )
    assert starts["spread over starts"] == 0.75
    assert made(gain=0.9e-8, tol=0.0).holds
    assert not made(gain=1.1e-8, tol=0.0).holds


def test_chains(rng):
    def made(shift=0.0, noise_shift=0.0, draws=400, memory=0.0, n_chains=4):
        x = rng.standard_normal((n_chains, draws, 60))
        for t in range(1, draws):
            x[:, t] = memory * x[:, t - 1] + np.sqrt(1 - memory**2) * x[:, t]
        x[0] += shift
        noise = rng.standard_normal((n_chains, draws))
        noise[0] += noise_shift
        return chains.certify_chains(x, noise, problem="p")

    names = bites(
        made(),
        {
            "split R-hat": made(shift=1.5),  # between / within = 9/28: R-hat 1.15
            "Monte Carlo error": made(draws=60, memory=0.9, n_chains=2),
            "missing draws": made(draws=chains.SHORTEST - 1),
        },
    )
    assert names == {"split R-hat", "Monte Carlo error", "missing draws"}
    assert not any(
        check.name == "missing draws" and not check.passed
        for check in made(draws=chains.SHORTEST).checks
    )


def test_split_rhat_is_the_textbook_value():
    x = np.array([[1.0, 2.0, 3.0, 4.0], [2.0, 4.0, 6.0, 9.0]])
    halves = np.array([[1.0, 2.0], [3.0, 4.0], [2.0, 4.0], [6.0, 9.0]])
    within, between = halves.var(axis=1, ddof=1).mean(), halves.mean(axis=1).var(ddof=1)
    assert float(chains.split_rhat(x[..., None])[0]) == pytest.approx(
        np.sqrt(0.5 + between / within)
    )
    assert float(
        chains.ess(np.random.default_rng(0).standard_normal((4, 2000, 1)))[0]
    ) == pytest.approx(8000, rel=0.15)


def test_network():
    def made(objective=2.0, gradient=0.9, size=2.0, noise=None, **more):
        return network.certify_network("p", objective, gradient, size, noise, {}, **more)

    over = (1.1, 1.0, "the mean")
    names = bites(
        made(against=(0.9, 1.0, "the mean")),
        {
            "relative gradient": made(gradient=1.1),  # 1.1 * 2 / 2
            "gradient / noise": made(gradient=1.1, noise=1.0),
            "finite": made(objective=np.nan),
            "diverged": made(stopped=StopReason.DIVERGED.value),
            "error against trivial": made(against=over),
        },
    )
    assert {"finite", "relative gradient", "error against trivial"} == names
    assert made(gradient=0.9, noise=1.0).holds
    assert not made(gradient=np.inf).holds
    # batches that agree on a slope
    assert "relative gradient" in made(gradient=1.1, noise=0.0).reason
    assert made(gradient=0.9, noise=0.0).holds
    assert not made(against=(1e-3, 0.0, "the mean")).holds


@pytest.mark.parametrize(
    ("loss", "limit"), [("frobenius", nonnegative.SQUARE_LIMIT), ("kl", nonnegative.KL_LIMIT)]
)
def test_parts(loss, limit):
    sums = FactorSums(*(np.zeros(2) for _ in FactorSums._fields))._replace(
        least=0.0, most=np.ones(2), square=np.ones(2)
    )
    totals = Totals(*(1.0 for _ in Totals._fields))

    def made(residuals=(0.9, 0.9), least=0.0, objective=0.5, values=(3.0, 2.0, 1.0), square=1.0):
        factor = sums._replace(least=least, square=np.full(2, square))
        found = nonnegative.MeasuredFactors(
            loss,
            objective,
            0.5,
            tuple(limit * r for r in residuals),
            (sums, factor),
            totals,
            1.0,
            np.dtype(float),
        )
        return nonnegative.certify_parts(found, traced(*values))

    rounding = 50 * np.finfo(float).eps * 3.0
    names = bites(
        made(),
        {
            "residual of W": made((1.1, 0.9)),
            "residual of H": made((0.9, 1.1)),
            "negative part": made(least=-1e-300),
            "finite": made(objective=np.inf),
            "never rises": made(values=(3.0, 2.0, 2.0 + 1.1 * rounding)),
        },
    )
    assert len(names) == 5
    assert not made(square=np.nan).holds
    assert made(values=(3.0, 2.0, 2.0 + 0.8 * rounding)).holds


def test_topics_steps(rng):
    counts = np.vstack(
        [
            rng.multinomial(40, p, 30)
            for p in ([0.4, 0.3, 0.1, 0.1, 0.05, 0.05], [0.05, 0.05, 0.1, 0.1, 0.3, 0.4])
        ]
    )
    from eckart import PLSA

    model = PLSA(2, random_state=0, tol=1e-7, max_iter=2000).fit(counts.astype(float))
    t = model.fit_.factors
    problem = topics_problem(counts, t)

    def made(t=t, values=(-3.0, -2.0, -1.99), reason=StopReason.CONVERGED, moves=()):
        return topics.certify_em(
            problem, t, trace=traced(*values, reason=reason), tol=1e-6, name="PLSA", moves=moves
        )

    moved = replace(t, counts=t.counts * np.exp(0.5 * rng.standard_normal(t.counts.shape)))
    fell = (-3.0, -2.0, -2.0 - 1.1 * 2e-6)
    names = bites(
        made(),
        {
            "gain of one more step": made(moved),
            "falls of the bound": made(values=fell),
        },
    )
    assert names == {"gain of one more step", "falls of the bound"}
    assert made(values=(-3.0, -2.0, -2.0 - 0.8 * 2e-6)).holds
    assert made(values=fell, moves=(2,)).holds
    late = {"last gain": made(values=(-3.0, -2.0, -2.0 + 1.1e-3), reason=StopReason.MAX_ITER)}
    bites(made(values=(-3.0, -2.0, -2.0 + 0.9e-3), reason=StopReason.MAX_ITER), late)


def topics_problem(counts, t):
    from eckart.explain.topics.documents import as_counts
    from eckart.explain.topics.topic_em import TopicProblem
    from eckart.io.read import read

    return TopicProblem(
        ENGINE.put(as_counts(read(counts.astype(float)), "PLSA")),
        ENGINE,
        t.prior,
        0.0,
        dtype=t.counts.dtype,
    )


def test_topics_of_streams_and_of_chains(rng):
    from eckart.explain.topics.documents import as_counts, every_other
    from eckart.io.read import read

    words = np.array([[0.4, 0.3, 0.1, 0.1, 0.05, 0.05], [0.05, 0.05, 0.1, 0.1, 0.3, 0.4]])
    shares = rng.dirichlet([0.2, 0.2], 400)
    x = as_counts(
        read(np.vstack([rng.multinomial(60, s @ words) for s in shares]).astype(float)), "LDA"
    )
    halves = [ENGINE.put(half) for half in every_other(x)]

    def of(p):
        return Topics(p * 12000.0 + 0.1, np.full(2, 0.2), np.full(2, 0.5))

    flat = 0.5 * words + 0.5 * words.mean(axis=0)
    bites(
        topics.certify_stream(halves, of(words), engine=ENGINE),
        {"gain on other documents": topics.certify_stream(halves, of(flat), engine=ENGINE)},
    )
    placed = ENGINE.put(x)
    turned = words[:, ::-1] * 0.35 + words * 0.65
    bites(
        topics.certify_gibbs(placed, of(words), 0.1, engine=ENGINE),
        {
            "drift": topics.certify_gibbs(placed, of(turned), 0.1, engine=ENGINE),
            "climb": topics.certify_gibbs(
                placed, of(np.full((2, 6), 1 / 6) + 1e-3 * words), 0.1, engine=ENGINE
            ),
        },
    )


def test_subspace(rng):
    n, k, tol = 30, 3, 1e-8
    values = np.concatenate([[9.0, 7.0, 5.0], np.linspace(2, 0, n - k)])
    q = np.linalg.qr(rng.standard_normal((n, n)))[0]
    c = (q * values) @ q.T

    whole = float(values.sum())

    def made(v=q[:, :k], theta=values[:k], total=whole, extra=(), **how):
        return certify_subspace(
            lambda a: c @ a,
            v.T,
            theta,
            total,
            rng=np.random.default_rng(0),
            tol=tol,
            extra=extra,
            **how,
        )

    allowed = np.sqrt(tol)  # of the residual, / theta_1
    long = q[:, :k] * np.array([1.0, 1.0, np.sqrt(1 + 5e-12)])
    tilted = q[:, :k] + np.outer(q[:, k], [0.0, 0.0, 3 * allowed * 9.0 / 3.0])
    swapped = q[:, [0, 1, 3]]
    for how in ({}, {"held": (JUDGE, c)}):
        names = bites(
            made(**how),
            {
                "orthonormality": made(long, **how),
                "Ritz residual": made(tilted / np.linalg.norm(tilted, axis=0), **how),
                "nothing larger left out": made(swapped, values[[0, 1, 3]], **how),
                "variance not overcounted": made(total=21.0 * (1 - 1e-11), **how),
            },
        )
        assert len(names) == 4
        assert "orthonormality" not in made(q[:, :k] * np.sqrt(1 + 3e-13)).reason
    proven = made(held=(JUDGE, c))
    assert "Cholesky" in proven["how the bound is known"]
    assert 21.0 * (1 - 1e-9) <= proven["upper bound for any k directions"] <= 21.0 * (1 + 1e-3)
    found, spread = np.full(4, 2.0), 3.0
    limit = 20 * np.finfo(float).eps * (1 + 4.0 / spread)
    assert mean_check(
        found + np.array([0.9 * limit * spread, 0, 0, 0]), found, spread, np.dtype(float)
    ).passed
    assert not mean_check(
        found + np.array([1.3 * limit * spread, 0, 0, 0]), found, spread, np.dtype(float)
    ).passed


def test_the_bound_of_the_remainder():
    """Between the estimate and a small multiple of it after some steps; the trace where the steps
    prove nothing."""
    values = np.concatenate([[10.0, 8.0], np.linspace(3, 0, 500)])
    v, most = np.eye(502)[:, :2], float(values[2:].sum())

    def bound(steps, block):
        rng = np.random.default_rng(0)
        return remainder_norm(
            lambda a: values[:, None] * a, v, np.dtype(float), rng, most, steps, block
        )

    xi, beta, _ = bound(5, 8)
    assert 3.0 <= beta <= 1.5 * xi  # eps = (log(1.648 sqrt(502) / 0.42) / 9)^2 = 0.25
    xi, beta, _ = bound(1, 1)
    assert beta == most


def planted(rng, n=40, m=30, k=2, share=0.6, noise=0.0, sizes=1.0):
    a = (rng.standard_normal((n, k)) * sizes) @ rng.standard_normal(
        (k, m)
    ) + noise * rng.standard_normal((n, m))
    return a, Observed.from_nan(np.where(rng.random(a.shape) < share, a, np.nan))


def test_gap(rng):
    _, x = planted(rng, noise=0.1)
    f = SoftImpute(tau=1.0, tol=1e-6, random_state=0).fit(x).fit_.factors

    def made(scale=1.0, tol=1e-3):
        g = LowRank(f.left * scale, f.right)
        return gap_certificate(x, g, 1.0, tol=tol, rng=np.random.default_rng(0), engine=ENGINE)

    bites(made(), {"duality gap": made(1.1)})
    true = made(1.1)["duality gap"]
    assert made(1.1, tol=1.1 * true).holds
    assert not made(1.1, tol=0.9 * true).holds
    # the bound is one: no value lies below it
    assert made()["no matrix is below"] <= made()["value"] * (1 + 1e-12)
    assert made(1.1)["no matrix is below"] <= made()["value"] * (1 + 1e-12)


def test_svt(rng):
    _, x = planted(rng, share=0.8)
    model = SVT(tol=1e-7, max_iter=20000, random_state=0).fit(x)
    f, tau = model.fit_.factors, float(model.fit_.plan["tau"])

    def made(f=f, tau=tau, tol=1e-6, x=x):
        return svt_certificate(x, f, tau, tol=tol, rng=np.random.default_rng(0), engine=ENGINE)

    off = 1e-6 * 1.5
    few = Observed.from_nan(np.where(np.arange(40)[:, None] < 2, x.to_scipy().toarray(), np.nan))
    names = bites(
        made(),
        {
            "feasibility": made(LowRank(f.left * (1 + 1.1 * off), f.right)),
            "dual bound": made(tau=tau / 1e5),
            "dual equation": made(LowRank(f.left, f.right), x=few),
        },
    )
    assert names == {"feasibility", "dual equation", "dual bound"}
    assert "feasibility" not in made(LowRank(f.left * (1 + 0.8 * off), f.right)).reason


def test_svp(rng):
    # without the first direction 0.8 s_1 is left, which must be above s_2
    _a, x = planted(rng, share=0.8, noise=0.2, sizes=(3.0, 1.0))
    f = SVP(2, tol=1e-6, random_state=0).fit(x).fit_.factors

    def made(f=f, tol=1e-3):
        return svp_certificate(
            x, f, tol=tol, fitted=1e-6, rng=np.random.default_rng(0), engine=ENGINE
        )

    push = 1e-2 * rng.standard_normal(f.left.shape)
    u, s, vt = np.linalg.svd(f.left @ f.right.T, full_matrices=False)
    # a stationary point would keep the larger direction
    second = LowRank(u[:, 1:2] * s[1], vt[1:2].T)
    names = bites(
        made(),
        {
            "stationarity": made(LowRank(f.left + push, f.right)),
            "fixed point": made(second, tol=10.0),
        },
    )
    assert names == {"stationarity", "fixed point"}


def test_recovery(rng, monkeypatch):
    a, x = planted(rng, share=0.85)
    u, s, vt = np.linalg.svd(a, full_matrices=False)
    f = LowRank(u[:, :2] * s[:2], vt[:2].T)

    def made(f=f, x=x, tol=1e-6):
        return recovery_certificate(f, x, tol=tol)

    kept = rng.random(a.shape) < 0.25
    for j in range(4):  # no row or column of fewer entries than leave a direction free
        kept[np.arange(40), (np.arange(40) + j) % 30] = True
    few = Observed.from_nan(np.where(kept, a, np.nan))
    hole = a.copy()
    hole[0, 1:] = np.nan  # a row of rank 2 with one entry: a direction is free
    names = bites(
        made(),
        {
            "agreement": made(LowRank(f.left * (1 + 1.1e-6), f.right)),
            "injectivity": made(x=Observed.from_nan(hole)),
            "dual certificate": made(x=few),
        },
    )
    assert names == {"agreement", "injectivity", "dual certificate"}
    assert made()["verdict"] == "proven"
    assert made(x=few)["verdict"] == "not proven"
    assert made(x=Observed.from_nan(hole))["verdict"] == "disproven"
    assert made(LowRank(f.left * (1 + 0.9e-6), f.right)).holds
    # the same by Lanczos, where dim T is too large for a dense problem: a free direction is told as
    # one
    exact = made()["smallest eigenvalue on T"]
    monkeypatch.setattr(recovery, "DENSE", 0)
    assert made()["smallest eigenvalue on T"] <= exact * (1 + 1e-9)
    t = Tangent(Sampling(Observed.from_nan(hole), ENGINE), u[:, :2], vt[:2].T)
    with ENGINE.at_work():
        low, _, direct = recovery.smallest(t, Observed.from_nan(hole), np.random.default_rng(0))
        assert low == 0.0
        assert direct
        t = Tangent(Sampling(x, ENGINE), u[:, :2], vt[:2].T)
        _, _, direct = recovery.smallest(t, x, np.random.default_rng(0))
        assert not direct


def test_factors(rng):
    _, x = planted(rng, noise=0.1)
    for options in ({}, {"biases": False}, {"nonnegative": True}):
        y = replace(x, data=np.abs(x.data)) if options.get("nonnegative") else x
        model = ALS(2, tol=1e-10, max_iter=500, random_state=0, **options).fit(y)
        assert model.certify(y).holds, str(model.certify(y))
        f = model.fit_.factors
        model.fit_ = replace(
            model.fit_,
            factors=replace(f, left=f.left * (1 + 0.2 * rng.standard_normal(f.left.shape))),
        )
        if options.get("nonnegative"):
            left = f.left.copy()
            left[:8] = 0.0  # entries at zero whose gradient points inside: no first-order point
            model.fit_ = replace(model.fit_, factors=replace(f, left=left))
        assert "relative gradient is " in model.certify(y).reason
    model = ALS(2, tol=1e-10, max_iter=500, random_state=0).fit(x)
    problem = model._problem(ENGINE, x, None, model._ridge_used())
    f = model.fit_.factors
    at = stationary.RidgePoint(f.left, f.right, f.row_bias, f.column_bias, f.mean)

    def made(*values, left=f.left):
        return stationary.certify_factors(problem, at._replace(left=left), ENGINE, traced(*values))

    top = 1e4
    rounding = 50 * np.finfo(float).eps * top
    broken = f.left.copy()
    broken[0] = np.nan
    with np.errstate(all="ignore"):
        bites(
            made(top, 10.0, 10.0 + 0.8 * rounding),
            {"never rises": made(top, 10.0, 10.0 + 1.2 * rounding), "finite": made(left=broken)},
        )


def test_a_converged_als_has_a_gradient_within_its_limit(rng):
    """CONVERGED is said of a point whose gradient passes the certificate's own limit, whatever the
    tolerance of the decrease."""
    for seed in range(6):
        _, x = planted(np.random.default_rng(seed), noise=0.3)
        model = ALS(4, tol=0.5, max_iter=500, random_state=seed).fit(x)
        if model.fit_.trace.reason is StopReason.CONVERGED:
            assert model.certificate_["relative gradient"] <= stationary.GRADIENT_LIMIT


TEXT = [
    list(
        np.random.default_rng(i).permutation(
            ["a", "b", "c", "d"] if i % 2 else ["x", "y", "z", "a"]
        )
    )
    for i in range(80)
]


def spoiled(model, **parts):
    model.fit_ = replace(model.fit_, factors=replace(model.fit_.factors, **parts))
    return model


def test_glove(rng):
    model = GloVe(2, min_count=1, max_iter=200, tol=1e-9, random_state=0).fit(TEXT)
    assert model.certify(TEXT).holds, str(model.certify(TEXT))
    f = model.fit_.factors
    for part in ("vectors", "context", "bias", "context_bias"):
        noisy = getattr(f, part) + 0.5 * rng.standard_normal(getattr(f, part).shape).astype(
            f.vectors.dtype
        )
        assert "relative gradient is " in spoiled(model, **{part: noisy}).certify(TEXT).reason, part
        spoiled(model, **{part: getattr(f, part)})


def test_pairs(rng, monkeypatch):
    model = SkipGram(2, min_count=1, sample=None, solver="exact", random_state=0).fit(TEXT)
    assert model.certify(TEXT).holds, str(model.certify(TEXT))
    f = model.fit_.factors
    assert "gradient is " in spoiled(model, vectors=f.vectors * 1.3).certify(TEXT).reason
    assert "loss over chance is " in spoiled(model, vectors=-3 * f.vectors).certify(TEXT).reason
    # rows drawn stand for all: the number of rows, and of pairs, is kept
    monkeypatch.setattr(pairs, "ALL", 20)
    monkeypatch.setattr(pairs, "OFTEN", 5)
    monkeypatch.setattr(pairs, "OTHERS", 10)
    total = rng.random(100)
    chosen, weights = pairs._sample(total, 0)
    assert weights.sum() == 100
    assert set(np.argsort(-total)[:5]) <= set(chosen[:5])
    assert len(set(chosen)) == 15
    assert pairs._sample(total, 1)[0].tolist() != chosen.tolist()
