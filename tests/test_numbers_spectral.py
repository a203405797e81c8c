"""Certificates of subspaces and of chains: every number is what its definition says.

The numbers are computed again from dense matrices in NumPy, at points that are no answers: at an
answer most of them are zero and a wrong formula looks right.
"""

from __future__ import annotations

import numpy as np
import pytest

from dense_points import ENGINE, K, M, N, Table, traced
from eckart.certify import chains, spectral


@pytest.fixture(autouse=True)
def at_work():
    with ENGINE.at_work():
        yield


@pytest.mark.parametrize("dense", [True, False])
def test_subspace_numbers(rng, dense):
    n, k = 20, 3
    values = np.concatenate([[9.0, 7.0, 5.0], np.linspace(4.0, 0.1, n - k)])
    q = np.linalg.qr(rng.standard_normal((n, n)))[0]
    c = (q * values) @ q.T
    v = np.linalg.qr(q[:, :k] + 0.2 * rng.standard_normal((n, k)))[0]
    claimed = np.array([8.5, 6.5, 4.0])
    got = spectral.certify_subspace(
        lambda a: c @ a,
        v.T,
        claimed,
        float(values.sum()),
        rng=rng,
        tol=1e-8,
        held=(ENGINE, c) if dense else None,
        probe=(17, 1),
    )
    residuals = np.linalg.norm(c @ v - v * claimed, axis=0)
    assert got["Ritz residual"] == pytest.approx(residuals.max() / 8.5)
    assert got["largest residual"] == pytest.approx(residuals.max())
    inside = v.T @ c @ v
    assert got["captured variance"] == pytest.approx(np.trace(inside))
    off = np.eye(n) - v @ v.T
    rest = np.linalg.norm(off @ c @ off, 2)
    assert got["remainder norm"] == pytest.approx(rest, rel=1e-6)
    theta = np.linalg.eigvalsh(inside)[::-1]
    upper = np.maximum(theta, rest).sum() + np.linalg.norm(off @ c @ v, "nuc")
    # a Cholesky factor is sought at 1.0001 times the norm found
    assert got["upper bound for any k directions"] == pytest.approx(
        upper, rel=1.1e-4 if dense else 1e-6
    )
    assert got["upper bound for any k directions"] >= upper * (1 - 1e-9)
    assert got["share of the upper bound captured"] == pytest.approx(
        np.trace(inside) / upper, rel=1e-3
    )
    limits = {check.name: check.limit for check in got.checks}
    eps = np.finfo(float).eps
    assert limits["orthonormality"] == 1e-12
    assert limits["Ritz residual"] == 1e-4
    rounding = 30 * eps * np.sqrt(n)
    assert limits["nothing larger left out"] == pytest.approx(
        theta[-1] * (1 + 0.3e-4) / 8.5 + 1e-4 / 3 + rounding
    )
    assert limits["variance not overcounted"] == 1e3 * eps
    assert got["variance not overcounted"] == pytest.approx((np.trace(inside) - values.sum()) / 8.5)


def test_subspace_in_single_precision_and_at_the_edges(rng):
    n = 9
    q = np.linalg.qr(rng.standard_normal((n, n)))[0]
    values = np.linspace(3.0, 1.0, n)
    c = (q * values) @ q.T
    eps = float(np.finfo(np.float32).eps)

    def made(k, dtype=np.float32, **how):
        rows = np.ascontiguousarray(q[:, :k].T.astype(dtype))
        return spectral.certify_subspace(
            lambda a: c @ a, rows, values[:k], values.sum(), rng=rng, tol=0.0, **how
        )

    four = made(4)
    limits = {check.name: check.limit for check in four.checks}
    assert limits["orthonormality"] == pytest.approx(50 * eps * 2)
    assert limits["Ritz residual"] == pytest.approx(30 * eps * 3)
    assert limits["nothing larger left out"] == pytest.approx(
        values[3] / 3 + 30 * eps + 30 * eps * 3, rel=1e-6
    )
    assert four.holds
    every = made(n, np.float64)
    assert every["upper bound for any k directions"] == pytest.approx(values.sum())
    assert every["remainder norm"] == 0.0
    assert "all there are" in every["how the bound is known"]
    none = made(0)
    assert (none["k"], none["captured variance"], none["total variance"]) == (0, 0.0, values.sum())
    # eigenvalues under the floor cannot be told from zero: everything is measured against it
    assert made(2, floor=30.0)["Ritz residual"] == pytest.approx(
        made(2)["Ritz residual"] * 0.1, rel=1e-3
    )


def test_directions_that_are_rounding_are_dropped(rng):
    basis = np.linalg.qr(rng.standard_normal((12, 3)))[0]
    w = np.hstack([basis[:, :1], np.zeros((12, 1)), rng.standard_normal((12, 2))])
    w = np.hstack([w, w[:, 2:3] * 5.0])
    got = spectral._outside(w, basis)
    assert got.shape == (12, 2)
    assert np.abs(got.T @ got - np.eye(2)).max() < 1e-13
    assert np.abs(basis.T @ got).max() < 1e-13
    near = (
        basis[:, :1]
        + 1e-7 * np.linalg.qr(np.hstack([basis, rng.standard_normal((12, 1))]))[0][:, -1:]
    )
    got = spectral._outside(near, basis)
    assert got.shape == (12, 1)  # small, but no rounding
    assert np.abs(basis.T @ got).max() < 1e-12


def test_a_remainder_that_was_searched_whole_is_exact(rng):
    values = np.array([5.0, 4.0, 3.0, 2.0, 1.0])
    v = np.eye(5)[:, :1]

    def of(steps, block, dim=5):
        return spectral.remainder_norm(
            lambda a: values[:, None] * a,
            v,
            np.dtype(float),
            np.random.default_rng(0),
            10.0,
            steps,
            block,
        )

    for steps, block in ((4, 1), (2, 2), (9, 1)):
        xi, beta, words = of(steps, block)
        assert xi == beta == pytest.approx(4.0)
        assert words.startswith("exact")
    xi, beta, words = of(2, 1)
    assert xi < beta
    assert "0.999" in words
    # a single direction is left whatever the start: the space is exhausted
    xi, beta, words = spectral.remainder_norm(
        lambda a: 2.0 * a, v, np.dtype(float), np.random.default_rng(0), 8.0, 3, 2
    )
    assert (xi, beta) == (pytest.approx(2.0), pytest.approx(2.0))
    assert "exhausted" in words
    eps = (np.log(1.648 * np.sqrt(5) / 1e-3 ** (1 / 2)) / 3) ** 2
    assert eps > 1  # so few steps prove nothing: the trace is the bound
    many = np.linspace(3, 0, 4000)
    xi, beta, _ = spectral.remainder_norm(
        lambda a: many[:, None] * a,
        np.zeros((4000, 0)),
        np.dtype(float),
        np.random.default_rng(1),
        1e9,
        12,
        2,
    )
    eps = (np.log(1.648 * np.sqrt(4000) / 1e-3 ** (1 / 2)) / 23) ** 2
    assert beta == pytest.approx(xi / (1 - eps))


def test_a_proven_norm_is_one(rng):
    a = rng.standard_normal((15, 15))
    a = a @ a.T
    top = float(np.linalg.eigvalsh(a)[-1])
    none = np.zeros((15, 0))

    def norm(c, v=none, turn=none):
        return spectral.proven_norm(
            lambda x: c @ x, ENGINE, c, v, turn, np.random.default_rng(0), 1e9
        )

    xi, beta, words = norm(a)
    assert xi == pytest.approx(top)
    assert top <= beta <= 1.00011 * top
    assert "Cholesky" in words
    nothing = norm(np.zeros((15, 15)))
    assert nothing[1] < 1e-300
    assert "Cholesky" in nothing[2]
    # the remainder C + V turn^T + turn V^T off a subspace
    v = np.linalg.qr(rng.standard_normal((15, 3)))[0]
    image = a @ v
    turn = 0.5 * v @ (v.T @ image) - image
    off = np.eye(15) - v @ v.T
    rest = float(np.linalg.eigvalsh(off @ a @ off)[-1])
    xi, beta, words = norm(a, v, turn)
    assert xi == pytest.approx(rest)
    assert rest <= beta <= 1.00011 * rest
    assert "Cholesky" in words


def test_gap_statistics_numbers(rng):
    """One EM step of probabilistic PCA with gaps, row by row."""
    from eckart.certify.gaps import certify_gaps
    from eckart.factors import Basis

    t = Table(rng)
    w, mean, noise = 0.8 * rng.standard_normal((M, K)), 0.3 * rng.standard_normal(M), 0.6
    x = ENGINE.put(t.x)
    basis = Basis(
        mean,
        np.linalg.qr(rng.standard_normal((M, K)))[0].T,
        np.array([20.0, 10.0]),
        50.0,
        noise,
        float(N),
        N,
    )
    gram, pulls, squares = np.zeros((M, K + 1, K + 1)), np.zeros((M, K + 1)), np.zeros(M)
    likelihood = 0.0
    for i in range(N):
        o = t.seen[i]
        y, wo = t.a[i, o] - mean[o], w[o]
        spread = noise * np.linalg.inv(wo.T @ wo + noise * np.eye(K))
        z = np.append(spread @ wo.T @ y / noise, 1.0)
        second = np.outer(z, z)
        second[:K, :K] += spread
        gram[o] += second
        pulls[o] += t.a[i, o][:, None] * z
        squares[o] += t.a[i, o] ** 2
        cov = wo @ wo.T + noise * np.eye(o.sum())
        likelihood -= 0.5 * (
            o.sum() * np.log(2 * np.pi) + np.linalg.slogdet(cov)[1] + y @ np.linalg.solve(cov, y)
        )
    after = np.stack([np.linalg.solve(gram[j], pulls[j]) for j in range(M)])
    misfit = (
        sum(squares[j] - 2 * after[j] @ pulls[j] + after[j] @ gram[j] @ after[j] for j in range(M))
        / t.x.nnz
    )
    size = np.sqrt(np.mean(w**2)) + np.sqrt(noise)
    steps = [
        np.sqrt(np.mean((after[:, :K] - w) ** 2)) / size,
        np.sqrt(np.mean((after[:, K] - mean) ** 2)) / size,
        abs(misfit - noise) / noise,
    ]
    c = certify_gaps(
        x, basis, (w, mean, noise), False, engine=ENGINE, trace=traced(-50.0, -40.0, -41.0)
    )
    assert c["log-likelihood"] == pytest.approx(likelihood)
    assert c["EM step"] == pytest.approx(max(steps))
    floored = certify_gaps(x, basis, (w, mean, noise), True, engine=ENGINE)
    assert floored["EM step"] == pytest.approx(max(steps[:2]))
    assert "floor" in floored.notes[-1]
    assert c["likelihood never falls"] == 1.0
    limits = {check.name: check.limit for check in c.checks}
    assert limits == {"EM step": 2e-3, "likelihood never falls": pytest.approx(41e-9)}
    assert c["share observed"] == pytest.approx(t.seen.mean())
    assert c["captured variance"] == pytest.approx(30.0 / N)
    assert c["total variance"] == pytest.approx(50.0 / N)
    rising = certify_gaps(
        x, basis, (w, mean, noise), True, engine=ENGINE, trace=traced(-50.0, -40.0)
    )
    assert rising["likelihood never falls"] == 0.0
    still = certify_gaps(x, basis, (np.zeros((M, 0)), mean, noise), True, engine=ENGINE)
    average = np.array([t.a[t.seen[:, j], j].mean() for j in range(M)])
    assert still["EM step"] == pytest.approx(
        np.sqrt(np.mean((average - mean) ** 2)) / np.sqrt(noise)
    )


def ess_by_the_book(x):
    """m n / tau for chains x draws of one quantity, sums written out."""
    m, n = x.shape
    centred = x - x.mean(axis=1, keepdims=True)
    acov = np.array([np.mean([np.sum(c[: n - s] * c[s:]) / n for c in centred]) for s in range(n)])
    within = acov[0] * n / (n - 1)
    total = within * (n - 1) / n + (x.mean(axis=1).var(ddof=1) if m > 1 else 0.0)
    rho = 1 - (within - acov * n / (n - 1)) / total
    rho[0] = 1.0
    tau, least = -1.0, np.inf
    for t in range(n // 2):
        pair = rho[2 * t] + rho[2 * t + 1]
        if pair <= 0:
            break
        least = min(least, pair)
        tau += 2 * least
    return m * n / max(tau, 1 / np.log10(m * n))


@pytest.mark.parametrize("shape", [(1, 41), (3, 40), (4, 9)])
def test_effective_samples(rng, shape):
    x = np.cumsum(rng.standard_normal((*shape, 5)), axis=1) * 0.3 + rng.standard_normal((*shape, 5))
    got = chains.ess(x)
    assert got == pytest.approx([ess_by_the_book(x[..., i]) for i in range(5)])
    turning = np.tile([1.0, -1.0], 30)[None] * (1 + 0.1 * rng.standard_normal((2, 60)))
    assert chains.ess(turning) == pytest.approx(120 * np.log10(120))  # never worth more than that
    assert chains.ess(np.ones((2, 10, 3))) == pytest.approx([20.0] * 3)
    assert chains.ess(rng.standard_normal((2, 3, 2))).tolist() == [0.0, 0.0]
    assert chains.ess(rng.standard_normal((2, 4, 2))).min() > 0


def test_split_rhat_edges(rng):
    assert chains.split_rhat(rng.standard_normal((2, 3))) == np.inf
    assert chains.split_rhat(np.ones((2, 8))) == 1.0
    assert chains.split_rhat(np.repeat([[1.0], [2.0]], 8, axis=1)) == np.inf
    odd = rng.standard_normal((2, 9))
    assert chains.split_rhat(odd) == chains.split_rhat(np.delete(odd, 4, axis=1))


def test_chains_judge_the_cell_that_is_worse_than_most(rng):
    x = rng.standard_normal((4, 200, 100))
    x[0, :, :4] += 5.0
    noise = rng.standard_normal((4, 200))
    assert chains.certify_chains(x, noise, problem="p").holds  # four of a hundred cells
    x[0, :, 4:7] += 5.0
    c = chains.certify_chains(x, noise, problem="p")
    assert "split R-hat is" in c.reason
    sizes = np.sort(chains.ess(x))
    assert c["Monte Carlo error"] == pytest.approx(1 / np.sqrt(sizes[4]))
    assert c["effective samples"] == pytest.approx(np.median(sizes))
    assert (c["chains"], c["samples"]) == (4, 800)
    assert c["effective samples of noise"] == pytest.approx(float(chains.ess(noise)))


def test_the_slack_of_a_proof_is_that_of_the_remainder(rng):
    """A remainder of 1e-9 of C is bounded as sharply as it is small, not to rounding of C
    itself."""
    n, k = 60, 3
    q = np.linalg.qr(rng.standard_normal((n, n)))[0]
    v, rest = q[:, :k], 1e-9 * np.linspace(1.0, 0.1, n - k)
    c = v @ v.T + (q[:, k:] * rest) @ q[:, k:].T
    turn = -0.5 * v
    xi, beta, words = spectral.proven_norm(lambda a: c @ a, ENGINE, c, v, turn, rng, 1.0)
    assert "Cholesky" in words
    assert xi == pytest.approx(1e-9, rel=1e-3)
    assert 1e-9 <= beta < 1.002e-9


def test_a_remainder_is_never_larger_than_what_is_left(rng):
    """One step from one start proves nothing about 400 directions: the trace that is not captured
    bounds them."""
    n, k = 400, 2
    values = np.concatenate([[9.0, 7.0], np.full(n - k, 1e-3)])
    v = np.eye(n)[:, :k]
    got = spectral.certify_subspace(
        lambda a: values[:, None] * a,
        v.T,
        values[:k],
        values.sum(),
        rng=rng,
        tol=1e-8,
        probe=(1, 1),
    )
    left = 1e-3 * (n - k)
    assert got["upper bound for any k directions"] == pytest.approx(16.0 + max(0.0, left - 7.0))
    larger = spectral.certify_subspace(
        lambda a: values[:, None] * a,
        v.T[:1],
        values[:1],
        values.sum(),
        rng=rng,
        tol=1e-8,
        probe=(1, 1),
    )
    assert larger["upper bound for any k directions"] == pytest.approx(max(9.0, 7.0 + left))
