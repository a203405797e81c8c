"""The draws of a chain, and what is said from them, against slow plain re-statements of their
formulas: loops over cells and draws, dense algebra."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

from eckart.complete.bayes import posterior
from eckart.complete.bayes.posterior import Posterior, SideDraws, TimeDraws, pairs_of_normals
from eckart.engines import engine_named
from eckart.factors import LowRank
from eckart.matrix import Observed
from eckart.terms import loss_named

S, K, ROWS, COLUMNS, BINS = 3, 2, 4, 5, 3
MEAN, SCALE = 1.7, 0.6
I, J = np.array([0, 1, 3, 3]), np.array([4, 0, 2, 3])


def positive(rng, *shape):
    return 0.5 + rng.random(shape)


def precisions_of(rng, d):
    a = rng.standard_normal((S, d, d))
    return a @ a.transpose(0, 2, 1) + 2 * np.eye(d)


def side(rng, n, **more):
    return SideDraws(
        rng.standard_normal((n, S)),
        rng.standard_normal((S, K + 1)),
        precisions_of(rng, K + 1),
        positive(rng, S, 2),
        **more,
    )


@pytest.fixture
def drawn(rng):
    """U and V of every draw, the model that holds them side by side, and the rest of the draws."""
    u, v = rng.standard_normal((ROWS, S, K)), rng.standard_normal((COLUMNS, S, K))
    root = np.sqrt(SCALE / S)
    f = LowRank((root * u).reshape(ROWS, S * K), (root * v).reshape(COLUMNS, S * K))
    p = Posterior(
        side(rng, ROWS, precisions=positive(rng, ROWS, S)),
        side(rng, COLUMNS, precisions=positive(rng, COLUMNS, S)),
        positive(rng, S),
        MEAN,
        SCALE,
        1,
    )
    return u, v, f, p


def cells(u, v, p):
    """a_s = mean + scale (b_is + c_js + u_is.v_js), one at a time."""
    return np.array(
        [
            [
                MEAN + SCALE * (p.rows.bias[i, s] + p.columns.bias[j, s] + u[i, s] @ v[j, s])
                for s in range(S)
            ]
            for i, j in zip(I, J)
        ]
    )


def test_cells_in_every_draw_their_mean_and_both_variances(drawn):
    u, v, f, p = drawn
    np.testing.assert_allclose(p.draws(f, I, J), cells(u, v, p))
    noise = [
        np.mean(
            [
                SCALE**2 / (p.alpha[s] * p.rows.precisions[i, s] * p.columns.precisions[j, s])
                for s in range(S)
            ]
        )
        for i, j in zip(I, J)
    ]
    np.testing.assert_allclose(p.noise(I, J), noise)
    mean, spread, told = p.moments(f, I, J)
    np.testing.assert_allclose(mean, cells(u, v, p).mean(axis=1))
    np.testing.assert_allclose(spread, cells(u, v, p).var(axis=1, ddof=1))
    np.testing.assert_allclose(told, noise)


def test_moments_of_many_cells_are_those_of_each(drawn, monkeypatch):
    _, _, f, p = drawn
    whole = p.moments(f, I, J)
    assert posterior.cells_at_once(f) == posterior.CELL_BYTES // (8 * S * K)
    monkeypatch.setattr(posterior, "CELL_BYTES", 2 * 8 * S * K)
    for one, other in zip(p.moments(f, I, J), whole):
        np.testing.assert_allclose(one, other)


def test_time_moves_the_factors_and_the_biases_of_a_cell(drawn, rng):
    """(u_i + w_t - own means).(v_j + w_t - own means) less u_i.v_j - ... : both sides move by what
    the bin differs from the row's own times."""
    u, v, f, p = drawn
    own = rng.dirichlet(np.ones(BINS), ROWS)
    own[3] = 0.0  # a row that came later
    factors = rng.standard_normal((S, BINS, K + 1))
    p = replace(p, time=TimeDraws(factors, np.array([0.0, 1.0]), sparse.csr_array(own)))
    t = np.array([0, 2, 1, 0])
    wanted = cells(u, v, p)
    for at, (i, j, b) in enumerate(zip(I, J, t)):
        for s in range(S):
            usual = own[i] @ factors[s]  # (w, d) at the times of the row
            w, d = (factors[s, b] - usual)[:-1], (factors[s, b] - usual)[-1]
            # u.v + u.w_t + v.w_t of a model in which u stands at u - usual
            wanted[at, s] += SCALE * ((u[i, s] + v[j, s] - usual[:-1]) @ w + d)
    np.testing.assert_allclose(p.draws(f, I, J, t), wanted)
    np.testing.assert_allclose(p.moments(f, I, J, t)[0], wanted.mean(axis=1))
    later = p.time.with_rows(np.array([1, -1, -1]))
    np.testing.assert_allclose(
        later.own.toarray(), np.vstack([own * [[1], [0], [1], [1]], np.zeros((2, BINS))])
    )


def test_what_is_new_stands_at_the_mean_of_its_prior(drawn):
    u, v, f, p = drawn
    i, j = np.array([-1, 2, -1, 0]), np.array([3, -1, -1, 1])
    wanted = []
    for a, b in zip(i, j):
        left = [p.rows.mu[s] if a < 0 else np.append(u[a, s], p.rows.bias[a, s]) for s in range(S)]
        right = [
            p.columns.mu[s] if b < 0 else np.append(v[b, s], p.columns.bias[b, s]) for s in range(S)
        ]
        wanted.append(
            np.mean([MEAN + SCALE * (x[:-1] @ y[:-1] + x[-1] + y[-1]) for x, y in zip(left, right)])
        )
    np.testing.assert_allclose(p.of_new(f, i, j), wanted)


@pytest.mark.parametrize("clip", [None, (1.0, 2.0)])
def test_whole_rows_are_means_over_draws_inside_the_range(drawn, clip):
    u, v, f, p = drawn
    rows = np.array([2, 0])
    each = MEAN + SCALE * (
        np.einsum("isk,jsk->sij", u[rows], v)
        + p.rows.bias[rows].T[:, :, None]
        + p.columns.bias.T[:, None, :]
    )
    np.testing.assert_allclose(
        p.block(f, rows, False, clip), (each if clip is None else np.clip(each, *clip)).mean(axis=0)
    )
    own = np.array([0.3, -0.2, 0.1, 0.4])
    new = replace(f, row_bias=own, column_bias=np.zeros(COLUMNS))
    each += own[rows][None, :, None] - SCALE * p.rows.bias[rows].T[:, :, None]
    np.testing.assert_allclose(p.block(new, rows, True), each.mean(axis=0))


def test_the_noise_of_a_typical_cell_by_chain(drawn):
    _, _, _, p = drawn
    wanted = [
        -np.log(p.alpha[s])
        - np.log(p.rows.precisions[:, s]).mean()
        - np.log(p.columns.precisions[:, s]).mean()
        for s in range(S)
    ]
    np.testing.assert_allclose(replace(p, chains=3).log_noise(), np.array(wanted)[:, None])


def test_grades_have_the_thresholds_of_each_draw_and_noise_of_their_own(drawn):
    """P(grade at most c) = the distribution function at t_c - s, sharper by sqrt(p_i q_j); the mean
    over draws, and its quantiles from below."""
    u, v, f, p = drawn
    loss = loss_named("ordered_probit").fitted_to(np.array([1.0, 2.0, 2.0, 4.0, 4.0]), None)
    cuts = np.sort(np.random.default_rng(1).standard_normal((S, 2)) + MEAN, axis=1)
    p = replace(p, loss=loss, thresholds=cuts)
    at, grades = cells(u, v, p), loss.grades()
    chance = np.zeros((len(I), 3))
    for c, (i, j) in enumerate(zip(I, J)):
        for s in range(S):
            own = replace(loss, thresholds=tuple(cuts[s])).steeper(
                np.sqrt(p.rows.precisions[[i], s] * p.columns.precisions[[j], s])
            )
            chance[c] += own.probabilities(at[[c], s])[0] / S
    np.testing.assert_allclose(p.over_draws(at, I, J, "probabilities"), chance)
    mean, spread, noise = p.moments(f, I, J)
    np.testing.assert_allclose(mean, chance @ grades)
    np.testing.assert_allclose(
        spread + noise, chance @ grades**2 - mean**2 + spread / S, rtol=1e-6
    )  # spread has the divisor S - 1
    below = chance.cumsum(axis=1)
    for level in (0.5, 0.9):
        low, high = p.interval(f, I, J, level)
        tail = (1 - level) / 2
        for c in range(len(I)):
            assert low[c] == grades[np.flatnonzero(below[c] >= tail)[0]]
            assert high[c] == grades[np.flatnonzero(below[c] >= 1 - tail)[0]]


@pytest.fixture
def seen(rng):
    x = np.where(rng.random((3, COLUMNS)) < 0.7, rng.standard_normal((3, COLUMNS)) + MEAN, np.nan)
    x[:, 0] = 1.0
    return x


def conditional(p, s, x, lam, pull, v):
    """The mean of (u, b) of a row given its entries: G^-1 (pull + sum_j w_j (y_j - c_j) (v_j, 1)),
    G = L + sum_j w_j (v_j, 1)(v_j, 1)^T."""

    def solved(weight):
        g, h = lam.copy(), pull.copy()
        for j in np.flatnonzero(~np.isnan(x)):
            design, w = np.append(v[j, s], 1.0), weight * p.columns.precisions[j, s]
            g += w * np.outer(design, design)
            h += w * ((x[j] - MEAN) / SCALE - p.columns.bias[j, s]) * design
        return np.linalg.solve(g, h)

    return solved


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("heavy", [False, True])
def test_new_rows_are_conditional_means_in_every_draw(drawn, seen, own, heavy):
    """With precisions of rows: p at tau first, then (nu + n_i) / (nu / tau + misfit); with heavy
    tails w = (nu' + d) / (nu' + (u - m)^T L (u - m))."""
    _, v, f, p = drawn
    degrees = np.array([4.0, 6.0, 8.0])
    rows = replace(
        p.rows,
        precisions=p.rows.precisions if own else None,
        tails=np.ones((ROWS, S)) if heavy else None,
        degrees=degrees if heavy else None,
    )
    p = replace(p, rows=rows)
    with (engine := engine_named("cpu", 1)).at_work():
        folded, draws = p.fold(f, Observed.from_nan(seen), engine)
    wanted, noise, tails = np.zeros((3, S, K + 1)), np.zeros((3, S)), np.zeros((3, S))
    for i in range(3):
        for s in range(S):
            nu, tau = p.rows.noise[s]
            lam, mu = p.rows.precision[s], p.rows.mu[s]
            solved = conditional(p, s, seen[i], lam, lam @ mu, v)
            weight, w = (tau if own else p.alpha[s]), 1.0
            first = solved(weight)
            at = np.flatnonzero(~np.isnan(seen[i]))
            rest = (
                (seen[i, at] - MEAN) / SCALE
                - p.columns.bias[at, s]
                - v[at, s] @ first[:-1]
                - first[-1]
            )
            if own:
                weight = noise[i, s] = (nu + len(at)) / (
                    nu / tau + p.columns.precisions[at, s] @ rest**2
                )
            if heavy:
                w = tails[i, s] = (degrees[s] + K + 1) / (
                    degrees[s] + (first - mu) @ lam @ (first - mu)
                )
            wanted[i, s] = solved(weight / w)
    root = np.sqrt(SCALE / S)
    np.testing.assert_allclose(
        folded.left.reshape(3, S, K), root * wanted[:, :, :-1], rtol=1e-9, atol=1e-12
    )
    np.testing.assert_allclose(draws.bias, wanted[:, :, -1], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(
        folded.row_bias, SCALE * wanted[:, :, -1].mean(axis=1), rtol=1e-9, atol=1e-12
    )
    if own:
        np.testing.assert_allclose(draws.precisions, noise, rtol=1e-9)
    if heavy:
        np.testing.assert_allclose(draws.tails, tails, rtol=1e-9)


@pytest.mark.parametrize("attributes", [False, True])
def test_shares_of_entries_and_what_is_left_make_the_conditional_mean(drawn, seen, rng, attributes):
    """Each entry adds goal G^-1 w_j (y_j - c_j) v_j in every draw; what is left are the prior mean,
    attributes among it, and the bias of the column."""
    _, v, f, p = drawn
    link = rng.standard_normal((S, 2 + COLUMNS, K + 1))
    p = replace(p, rows=replace(p.rows, link=link), columns=p.columns)
    numbers = rng.standard_normal((1, 2)) if attributes else None
    if not attributes:
        p = replace(p, rows=replace(p.rows, link=link[:, 2:]))
    x, j = seen[0], 3
    at = np.flatnonzero(~np.isnan(x))
    x_row = np.zeros(COLUMNS)
    x_row[at] = 1 / np.sqrt(len(at))
    features = x_row if numbers is None else np.append(numbers[0], x_row)
    mean, adds, told, bias = 0.0, np.zeros(len(at)), 0.0, 0.0
    for s in range(S):
        lam, mu = p.rows.precision[s], p.rows.mu[s]
        goal, weight = np.append(v[j, s], 1.0), p.rows.precisions[1, s]
        solved = conditional(p, s, x, lam, lam @ (mu + features @ p.rows.link[s]), v)
        mean += MEAN / S + SCALE / S * (goal @ solved(weight) + p.columns.bias[j, s])
        for c, entry in enumerate(at):
            alone = np.full(COLUMNS, np.nan)
            # entries that say nothing, but for one
            alone[at] = MEAN + SCALE * p.columns.bias[at, s]
            nothing = conditional(p, s, alone, lam, np.zeros(K + 1), v)(weight)
            alone[entry] = x[entry]
            adds[c] += (
                SCALE
                / S
                * goal
                @ (conditional(p, s, alone, lam, np.zeros(K + 1), v)(weight) - nothing)
            )
        silent = np.full(COLUMNS, np.nan)
        silent[at] = MEAN + SCALE * p.columns.bias[at, s]
        bias += (
            SCALE
            / S
            * (goal @ conditional(p, s, silent, lam, lam @ mu, v)(weight) + p.columns.bias[j, s])
        )
        if numbers is not None:
            told += (
                SCALE
                / S
                * goal
                @ conditional(p, s, silent, lam, lam @ (numbers[0] @ p.rows.link[s][:2]), v)(weight)
            )
    shares, base, parts = p.shares(f, 1, j, at, x[at], numbers)
    np.testing.assert_allclose(shares, adds)
    assert shares.sum() + base == pytest.approx(mean)
    assert parts == (
        {}
        if numbers is None
        else {"attributes": pytest.approx(told), "bias": pytest.approx(MEAN + bias)}
    )


def test_cold_rows_are_drawn_in_pairs_around_their_prior(drawn, rng):
    """Two neighbouring draws lie on either side of mu + B^T x, as far as the root of L^-1 takes a
    normal vector; wider by nu' / (nu' - 2) with heavy tails."""
    _, _, f, p = drawn
    link, numbers = rng.standard_normal((S, 2, K + 1)), rng.standard_normal((2, 2))
    degrees = np.array([4.0, 6.0, 8.0])
    x = Observed.from_nan(np.array([[np.nan] * COLUMNS, [1.0] + [np.nan] * (COLUMNS - 1)]))
    away = pairs_of_normals(1, S, K + 1, 0)
    np.testing.assert_array_equal(away[:, 1], -away[:, 0])
    for heavy in (False, True):
        rows = replace(
            p.rows,
            link=link,
            seen=False,
            precisions=None,
            degrees=degrees if heavy else None,
            tails=np.ones((ROWS, S)) if heavy else None,
        )
        with (engine := engine_named("cpu", 1)).at_work():
            _, draws = replace(p, rows=rows).fold(f, x, engine, numbers)
        for s in range(S):
            wide = np.sqrt(degrees[s] / (degrees[s] - 2)) if heavy else 1.0
            r = np.linalg.cholesky(p.rows.precision[s]).T
            wanted = p.rows.mu[s] + numbers[0] @ link[s] + wide * np.linalg.inv(r) @ away[0, s]
            assert draws.bias[0, s] == pytest.approx(wanted[-1])


def test_rows_with_heavy_tails_are_drawn_from_their_conditional(rng, monkeypatch):
    """G = w L + alpha sum_j x_j x_j^T = R^T R, and u = G^-1 (w L mu + alpha sum_j (a_ij - c_j) x_j)
    + R^-1 z; then w from how far u lies from mu."""
    from eckart.complete.bayes.chain import FLOOR, TAIL_STREAM, ChainSide, FactorChain

    a, d = rng.standard_normal((ROWS, COLUMNS)), K + 1
    mu, lam, w = rng.standard_normal(d), precisions_of(rng, d)[0], positive(rng, ROWS)
    root, told = np.linalg.cholesky(lam), []
    with (engine := engine_named("cpu", 1)).at_work():
        x = engine.put(Observed.from_nan(a))
        rows = ChainSide.of(engine, x, np.full(ROWS, COLUMNS), d, None)
        columns = ChainSide.of(engine, x.T, np.full(COLUMNS, ROWS), d, None)
        chain = FactorChain(rows, columns, "common", "heavy", rng, engine)
        chain.alpha, chain.sweeps = 2.5, 1
        rows.tails, v = engine.take(w[:, None]), rng.standard_normal((COLUMNS, d))
        columns.factors = engine.take(v)
        original = engine.precision_rows

        def spied(*args):
            told.append(args)
            return original(*args)

        monkeypatch.setattr(chain, "_prior", lambda *args: (mu, lam, root))
        monkeypatch.setattr(
            type(engine), "precision_rows", lambda self, *args: spied(*args), raising=False
        )
        chain._draw(rows, columns, 0)
        z, u = (
            engine.get(engine.normal((chain.seed, 1, 0), (ROWS, d), np.float64)),
            engine.get(rows.factors),
        )
    design = np.column_stack([v[:, :K], np.ones(COLUMNS)])
    for i in range(ROWS):
        g = w[i] * lam + 2.5 * design.T @ design
        mean = np.linalg.solve(g, w[i] * lam @ mu + 2.5 * design.T @ (a[i] - v[:, K]))
        np.testing.assert_allclose(
            u[i], mean + np.linalg.solve(np.linalg.cholesky(g).T, z[i]), rtol=1e-8
        )
    ((stream, away, counts, degrees, scale, floor),) = told
    assert stream == (chain.seed, 1, TAIL_STREAM)
    assert (degrees, scale, floor) == (8.0, 1.0, FLOOR)
    np.testing.assert_allclose(
        engine.get(away)[:, 0], [(r - mu) @ lam @ (r - mu) for r in u], rtol=1e-8
    )
    np.testing.assert_array_equal(engine.get(counts), d)
