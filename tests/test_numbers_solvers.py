"""Numbers of solvers compared with their definitions, computed from dense matrices or by the
plainest loop; stops and counts as they are promised."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import optimize, sparse
from scipy.special import gammaln

from eckart import ALS, BayesianMF, InputError, LinearAutoencoder, Projection, coherence
from eckart.complete.bayes.features import Iterative
from eckart.complete.nuclear.operators import randomized_svd
from eckart.complete.nuclear.recovery import recovery
from eckart.embed.sequences import BATCH_CHARACTERS, _Occurrences, _Parts
from eckart.explain.mixtures.mixture import FamilyStatistics
from eckart.explain.parts.consensus import _losses
from eckart.explain.topics import lda_variational, topic_em
from eckart.explain.topics.lda import LDA
from eckart.matrix import Dense, Observed
from eckart.optim.descend import descend, norm
from eckart.optim.rules import AdaGrad, Adam, GradientDescent, HeavyBall, Nesterov, rule_named
from eckart.reduce import plan, rank
from eckart.reduce.train_linear import risk_objective, train
from eckart.report.held_out import HeldOut
from eckart.trace import StopReason

# ---- gradient steps


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("ridge", [0.0, 0.7])
def test_the_risk_of_a_linear_network_is_its_definition(rng, tied, ridge):
    """R = 1/2 tr (I - P) C (I - P)^T + rho/2 (||V||^2 + ||W||^2), and its gradients those of
    differences."""
    n, k = 5, 2
    x = rng.standard_normal((30, n))
    c = x.T @ x / 30
    v, w = rng.standard_normal((n, k)), rng.standard_normal((k, n))
    params = [v] if tied else [v, w]
    objective = risk_objective(lambda a: c @ a, float(np.trace(c)), tied, ridge)

    def value(flat):
        d = flat[: n * k].reshape(n, k)
        e = d.T if tied else flat[n * k :].reshape(k, n)
        rest = np.eye(n) - d @ e
        return 0.5 * np.trace(rest @ c @ rest.T) + 0.5 * ridge * ((d**2).sum() + (e**2).sum())

    at = np.concatenate([p.ravel() for p in params])
    found, grads = objective(params)
    assert found == pytest.approx(value(at), rel=1e-12)
    slopes = optimize.approx_fprime(at, value, 1e-7)
    np.testing.assert_allclose(
        np.concatenate([g.ravel() for g in grads]), slopes, atol=1e-4 * np.abs(slopes).max()
    )
    assert norm(grads) == pytest.approx(np.linalg.norm(slopes), rel=1e-4)


def test_the_step_of_a_linear_network_is_one_over_its_curvature(rng):
    c = np.diag([4.0, 2.0, 1.0])
    for optimizer, tied, lr in (
        ("gd", False, 1 / 3),
        ("gd", True, 1 / 6),
        ("nesterov", False, 1 / 3),
        ("adam", True, 0.02),
        ("adagrad", False, 0.1),
    ):
        how = {
            "optimizer": optimizer,
            "learning_rate": "auto",
            "tied": tied,
            "ridge": 0.0,
            "tol": 1e-9,
            "max_iter": 3,
        }
        found = train(lambda a: c @ a, 3, 1, 7.0, 4.0, rng=np.random.default_rng(0), **how)
        assert found.lr == pytest.approx(lr)
        v, w = found.decoder, found.encoder
        assert min(found.trace.values) == pytest.approx(
            0.5 * np.trace((np.eye(3) - v @ w) @ c @ (np.eye(3) - v @ w).T) / 4, rel=1e-9
        )


def test_rules_step_as_they_are_written(rng):
    g = [rng.standard_normal(3) for _ in range(6)]
    start = rng.standard_normal(3)

    def path(rule):
        params, state, out = [start], rule.init([start]), []
        for grad in g:
            out.append(rule.ahead(params, state)[0])
            params, state = rule.step(params, [grad], state, 0.1)
            out.append(params[0])
        return np.array(out)

    def points(rule):
        return path(rule)[1::2]

    x = start
    for got, grad in zip(points(GradientDescent()), g):
        x = x - 0.1 * grad
        np.testing.assert_allclose(got, x)
    before, x = start, start
    for got, grad in zip(points(HeavyBall(0.8)), g):
        before, x = x, x - 0.1 * grad + 0.8 * (x - before)
        np.testing.assert_allclose(got, x)
    before, x, t, both = start, start, 1.0, path(Nesterov())
    for i, grad in enumerate(g):
        after = (1 + np.sqrt(1 + 4 * t**2)) / 2
        y = x + (t - 1) / after * (x - before)
        before, x, t = x, y - 0.1 * grad, after
        np.testing.assert_allclose(both[2 * i], y)
        np.testing.assert_allclose(both[2 * i + 1], x)
    x, square = start, np.zeros(3)
    for got, grad in zip(points(AdaGrad(1e-3)), g):
        square = square + grad**2
        x = x - 0.1 * grad / (np.sqrt(square) + 1e-3)
        np.testing.assert_allclose(got, x)
    x, m, s = start, np.zeros(3), np.zeros(3)
    for t, (got, grad) in enumerate(zip(points(Adam(0.8, 0.9, 1e-3)), g), 1):
        m, s = 0.8 * m + 0.2 * grad, 0.9 * s + 0.1 * grad**2
        x = x - 0.1 * (m / (1 - 0.8**t)) / (np.sqrt(s / (1 - 0.9**t)) + 1e-3)
        np.testing.assert_allclose(got, x)


def test_rules_have_their_usual_constants():
    assert HeavyBall().beta == 0.9
    assert (Adam().beta1, Adam().beta2, Adam().eps, AdaGrad().eps) == (0.9, 0.999, 1e-8, 1e-10)
    assert {
        name: rule_named(name).default_lr
        for name in ("gd", "heavy_ball", "nesterov", "adagrad", "adam")
    } == {
        "gd": 1.0,
        "heavy_ball": 1.0,
        "nesterov": 1.0,
        "adagrad": 0.1,
        "adam": 0.02,
    }
    with pytest.raises(
        InputError,
        match="optimizer must be one of gd, heavy_ball, nesterov, adagrad, adam, got 'fast'",
    ):
        rule_named("fast")


def test_descent_tells_its_steps_and_ends_where_the_gradient_is_small():
    told = []
    best, trace, size = descend(
        lambda p: (float(p[0] @ p[0]), [2 * p[0]]),
        [np.array([8.0])],
        GradientDescent(),
        lr=0.25,
        tol=0.5,
        max_iter=9,
        watch=lambda *words: told.append(words),
    )
    assert trace.values == [64.0, 16.0, 4.0, 1.0, 0.25, 0.0625]
    assert (best[0][0], size, trace.reason) == (0.25, 0.5, StopReason.CONVERGED)
    assert told == [("gradient steps", step, 9) for step in range(1, 7)]


def test_a_step_that_leaves_the_numbers_is_quartered_and_a_plateau_halves():
    asked = []

    def wall(p):
        asked.append(float(p[0][0]))
        return (float("nan"), [p[0]]) if p[0][0] < 0 else (float(p[0][0]), [np.ones(1)])

    best, trace, _ = descend(
        wall, [np.array([1.0])], GradientDescent(), lr=4.0, tol=0.0, max_iter=8
    )
    # a step of 4 leads to -3: from 1 again with 1, to 0; then -1 three times, each a quarter of the
    # last
    np.testing.assert_allclose(asked[:6], [1.0, -3.0, 1.0, 0.0, -1.0, 0.0])
    assert best[0][0] == 0.0
    flat, trace, _ = descend(
        lambda p: (1.0, [np.ones(1)]),
        [np.zeros(1)],
        GradientDescent(),
        lr=1.0,
        tol=0.0,
        max_iter=500,
        patience=3,
    )
    # after each 4 points the step is halved, until it is below a millionth: 20 times
    assert (len(flat), len(trace), trace.reason) == (1, 4 * 20, StopReason.STALLED)
    nothing, trace, _ = descend(
        lambda p: (float("nan"), [p[0]]),
        [np.ones(1)],
        GradientDescent(),
        lr=1.0,
        tol=0.0,
        max_iter=500,
    )
    # 4^-14 < 1e-8
    assert (nothing[0][0], len(trace), trace.reason) == (1.0, 14, StopReason.STALLED)


def test_momentum_is_dropped_where_the_objective_rises():
    """Of a bowl, a heavy ball passes the bottom; after each rise it starts again from rest, so that
    no point is as high as two before."""
    objective = lambda p: (float(p[0] @ p[0]), [2 * p[0]])  # noqa: E731
    _, trace, _ = descend(
        objective, [np.array([1.0])], HeavyBall(0.95), lr=0.05, tol=1e-8, max_iter=400
    )
    rises = [i for i in range(2, len(trace)) if trace.values[i] > trace.values[i - 1]]
    assert rises
    assert all(trace.values[i + 1] <= trace.values[i] for i in rises[:-1])
    assert trace.reason is StopReason.CONVERGED


def test_ridge_of_a_linear_network_shrinks_the_map():
    x = np.random.default_rng(0).standard_normal((60, 4)) * [4.0, 3.0, 0.1, 0.1]
    model = LinearAutoencoder(2, ridge=0.05, random_state=0, tol=1e-8).fit(x)
    # with V = W^T the best map has 1 - rho lambda_1 / lambda_i along eigenvector i
    values = np.linalg.eigvalsh(np.cov(x.T, bias=True))[::-1][:2]
    kept = np.linalg.svd(model.decoder_ @ model.encoder_, compute_uv=False)[:2]
    np.testing.assert_allclose(np.sort(kept), np.sort(1 - 0.05 * values[0] / values), rtol=1e-4)


# ---- ranks and plans


def test_minkas_evidence_is_its_formula(rng):
    """On many short samples of spectra that fall slowly: where two ranks are nearly as likely,
    every term decides."""

    def evidence(values, q, rows):
        n, v = len(values), values[q:].mean()
        m = n * q - q * (q + 1) / 2
        prior = -q * np.log(2)
        for i in range(1, q + 1):
            prior += gammaln((n - i + 1) / 2) - (n - i + 1) / 2 * np.log(np.pi)
        hessian = 0.0
        for i in range(q):
            for j in range(i + 1, n):
                other = values[j] if j < q else v
                hessian += np.log((1 / other - 1 / values[i]) * (values[i] - values[j]) * rows)
        fit = -rows / 2 * np.log(values[:q]).sum() - rows * (n - q) / 2 * np.log(v)
        return prior + fit + (m + q) / 2 * np.log(2 * np.pi) - hessian / 2 - q / 2 * np.log(rows)

    for _ in range(150):
        n, rows = int(rng.integers(4, 9)), int(rng.integers(12, 60))
        values = np.sort(rng.gamma(1.0, 1.0, n) + 0.3)[::-1].copy()
        assert rank.minka(values, rows) == 1 + int(
            np.argmax([evidence(values, q, rows) for q in range(1, n)])
        )


def test_the_median_of_noise_is_that_of_noise(rng):
    """Eigenvalues of a wide sample of noise: half of them lie below the median of the law."""
    for rows, n in ((1200, 300), (500, 450)):
        # the median of one sample strays by 0.8%: by rigidity about one eigenvalue to either side;
        # that of four together by half of it
        values = np.concatenate(
            [np.linalg.eigvalsh(np.cov(rng.standard_normal((rows, n)).T)) for _ in range(4)]
        )
        assert np.median(values) == pytest.approx(rank.marchenko_pastur_median(n / rows), rel=0.02)
    # the table of Gavish and Donoho
    for beta, known in ((0.1, 1.6089), (0.5, 2.1711), (1.0, 2.8582)):
        assert rank.threshold_factor(beta) / np.sqrt(
            rank.marchenko_pastur_median(beta)
        ) == pytest.approx(known, abs=3e-4)


def test_gavish_and_donoho_iterate_the_noise_to_a_fixed_point():
    rows, n = 400, 40
    values = np.concatenate([[50.0, 20.0, 3.0], np.ones(n - 3)])
    total = float(values.sum())
    assert rank.gavish_donoho(values, rows, n) == 3
    assert rank.gavish_donoho(values[:5], rows, n, total) == 3
    assert rank.gavish_donoho(values[:5], rows, n, total + 100.0) == 2  # the rest is larger noise
    assert rank.gavish_donoho(values[:5], rows, n, total + 400.0) == 1
    assert rank.gavish_donoho(np.zeros(4), rows, n) == 0
    assert rank.gavish_donoho(np.zeros(0), rows, n) == 0


def test_the_speed_of_the_machine_is_that_of_its_fastest_product(monkeypatch):
    now = iter(
        np.cumsum([0.0, 3.0, 1.0, 0.5, 1.0, 0.25, 1.0, 9.0, 1.0, 0.5, 1.0, 0.5])
    )  # a product ends at every second look at the clock
    monkeypatch.setattr(plan.time, "perf_counter", lambda: next(now))
    assert plan.measured_speed() == pytest.approx(1024 * 512**2 / 0.25 / plan.FLOPS)
    monkeypatch.undo()
    assert plan.measured_speed() > 0


def test_plans_count_what_a_solver_does():
    rows, n, k = 3000, 400, 10
    x = Dense(np.zeros((rows, n), np.float32))
    costs = plan.costs(x, k)
    read, block = rows * n * 4 / plan.BYTES, 4 * max(plan.BLOCK, 128 * n * 4)
    gram = read + (0.7 * rows * n * n + 4 * n**3) / plan.FLOPS
    wanted = {
        "eigh": (1, gram, 8 * 9 * n * n + block),
        "svd": (1, read + 6 * rows * n * n / plan.FLOPS, 2 * rows * n * 4 + 8 * n * n),
        "randomized": (8, 8 * read + 4 * rows * n * 60 / plan.FLOPS, 9 * k * n * 4 + block),
        "lanczos": (2 * k + 20, (2 * k + 20) * read * 2, n * 4 * 4 * k + block),
        "power": (1, gram + 300 * k * 2 * n * n / plan.FLOPS, 8 * 9 * n * n + block),
        "gradient": (1, gram + 0.03 + 2000 * 4 * n * n * k / plan.FLOPS, 8 * 9 * n * n + block),
    }
    assert costs.keys() == wanted.keys()
    for name, numbers in wanted.items():
        np.testing.assert_allclose(costs[name], numbers, rtol=1e-12, err_msg=name)
    wide = plan.costs(Dense(np.zeros((n, rows), np.float32)), k)
    assert wide["eigh"][2] == 8 * 3 * n * n + 8 * rows * n * 4
    gaps = Observed.from_nan(np.where(np.eye(30, 20) > 0, np.nan, 1.0))
    assert plan.em_plan(gaps, 3).seconds == pytest.approx(100 * 580 * 9 / plan.FLOPS * 20)
    assert plan.em_plan(gaps, 3).memory == 20 * 8 * 16


def test_directions_below_the_tolerance_count_as_zero():
    # singular values in the ratio sqrt(2) to 1
    span = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]) * 7.0
    assert [Projection.onto(span, tol=tol).rank for tol in (0.5, 0.7, 0.71, 0.9)] == [2, 2, 1, 1]
    tiny = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1e-15]])
    assert Projection.onto(tiny).rank == 2  # just above 3 eps sqrt(2)
    assert Projection.onto(tiny * [1.0, 0.5]).rank == 1


# ---- sums of parts, counts


def test_statistics_of_two_parts_are_those_of_both():
    a, b = np.arange(6.0).reshape(3, 2), np.ones((3, 2))
    both = topic_em.Sweep(a, a[0], 1.0, 2.0, 3.0).merge(topic_em.Sweep(b, b[0], 4.0, 5.0, 7.0))
    np.testing.assert_array_equal(both.counts, a + 1)
    np.testing.assert_array_equal(both.sizes, a[0] + 1)
    assert (both.likelihood, both.bound, both.weight) == (5.0, 7.0, 10.0)
    both = lda_variational.VariationalSweep(a, a[0], 1.0, 2.0, None).merge(
        lda_variational.VariationalSweep(b, b[0], 4.0, 5.0, None)
    )
    np.testing.assert_array_equal(both.counts, a + 1)
    np.testing.assert_array_equal(both.logs, a[0] + 1)
    assert (both.bound, both.weight) == (5.0, 7.0)

    class Found:
        def __init__(self, value):
            self.value = value

        def merge(self, other):
            return Found(self.value + other.value)

    both = FamilyStatistics(1.0, 2.0, a, Found(3)).merge(FamilyStatistics(10.0, 20.0, b, Found(30)))
    np.testing.assert_array_equal(both.counts, a + 1)
    assert (both.weight, both.bound, both.found.value) == (11.0, 22.0, 33)


def test_links_of_sparse_features_solve_the_ridge_equations(rng):
    """B = (X^T X + lambda I)^-1 (X^T (rest + e) + sqrt(lambda) e'), with the noise drawn alike."""
    x = sparse.csr_array(np.where(rng.random((20, 6)) < 0.4, rng.standard_normal((20, 6)), 0.0))
    rest, right = rng.standard_normal((20, 2)), rng.standard_normal((6, 2))
    link = Iterative(x, 2)
    dense = x.toarray()
    np.testing.assert_allclose(link.diagonal, (dense**2).sum(axis=0))
    np.testing.assert_allclose(
        link._solve(right),
        np.linalg.solve(dense.T @ dense + link.strength * np.eye(6), right),
        rtol=1e-2,
        atol=1e-3,
    )
    root, strength = np.array([[2.0, 0.5], [0.0, 1.0]]), link.strength
    z = np.random.default_rng(5).standard_normal((26, 2))
    e = np.linalg.solve(root.T, z.T).T
    now = link.draw(np.random.default_rng(5), rest, root.T @ root, root)
    wanted = np.linalg.solve(
        dense.T @ dense + strength * np.eye(6),
        dense.T @ (rest + e[:20]) + np.sqrt(strength) * e[20:],
    )
    np.testing.assert_allclose(link.weights(), wanted, rtol=1e-2, atol=2e-3)
    np.testing.assert_allclose(now, dense @ link.weights())


def test_occurrences_grow_with_the_largest_number():
    seen = _Occurrences()
    seen.add(np.zeros(0, int), np.zeros(0, int))
    seen.add(np.array([0, 2]), np.array([3, 1]))
    seen.add(np.array([9000, 2]), np.array([4, 5]))
    assert seen.total == 13
    counts = seen.counts(9001)
    assert (counts[0], counts[2], counts[9000], counts.sum(), len(counts)) == (3, 6, 4, 13, 9001)
    assert len(seen.counts(30_000)) == 30_000
    assert len(seen._counts) == 2 * 9001


def test_long_texts_are_cut_behind_spaces():
    long = "ab " * (BATCH_CHARACTERS // 3 + 5)
    one = "x" * (BATCH_CHARACTERS + 10) + " tail"
    parts = _Parts([long, "short", one], whole=False)
    found = list(parts)
    assert "".join(found) == long + "short" + one
    assert max(map(len, found[:2])) <= BATCH_CHARACTERS
    assert found[0].endswith(" ")
    assert found[3:] == ["x" * (BATCH_CHARACTERS + 10) + " ", "tail"]
    assert parts.begins(0, 5).tolist() == [True, False, True, True, False]
    assert parts.begins(2, 3).tolist() == [True, True, False]
    assert list(_Parts([long], whole=True)) == [long]
    word = "x" * (BATCH_CHARACTERS + 10)
    assert list(_Parts([word], whole=False)) == [word]


@pytest.mark.parametrize("beta", [2, 1, 0, 0.5, 1.5, 3])
def test_losses_of_held_out_entries_are_divergences(beta):
    """Zero where both are equal, of slope zero there, and of curvature a^(beta - 2)."""
    a = np.array([0.5, 1.0, 2.0])
    step = 1e-4
    np.testing.assert_allclose(_losses(a, a, beta), 0, atol=1e-12)
    up, down = _losses(a, a + step, beta), _losses(a, a - step, beta)
    np.testing.assert_allclose((up + down) / step**2, a ** (beta - 2.0), rtol=1e-4)
    np.testing.assert_allclose((up - down) / step, 0, atol=1e-3)
    # along s the slope is s^(beta - 2) (s - a)
    s = a * 1.7
    np.testing.assert_allclose(
        (_losses(a, s + step, beta) - _losses(a, s - step, beta)) / (2 * step),
        s ** (beta - 2.0) * (s - a),
        rtol=1e-5,
    )
    if beta > 0:
        zero = {2: 0.5 * 9.0, 1: 3.0}.get(beta, 3.0**beta / beta)
        np.testing.assert_allclose(_losses(np.zeros(1), np.array([3.0]), beta), zero)


def test_held_out_judgements_count_their_share():
    x = Observed.from_nan(np.array([[1.0, np.nan], [2.0, 3.0]]))
    one = HeldOut(
        x,
        Observed.from_nan(np.array([[np.nan, 4.0], [np.nan, np.nan]])),
        {"model": {"RMSE": 1.0}, "mean only": {"RMSE": 2.0}},
        np.ones(1),
    )
    assert one.share == 0.25
    assert one.useful
    assert one.rows.tolist() == [0]
    assert one.lines()[0].split()[:3] == ["1", "entries", "(25%)"]


def test_recovery_counts_what_it_says():
    gaps = np.full((5, 4), np.nan)
    gaps[:3, :2], gaps[3:, 2:], gaps[4, 3] = 1.0, 1.0, np.nan
    found = recovery(gaps, 2)
    assert (found.degrees, found.entries, found.connected, found.possible) == (
        2 * (5 + 4 - 2),
        9,
        False,
        False,
    )
    assert [len(rows) + len(columns) for rows, columns in found.parts] == [5, 4]
    assert (found.thin_rows.tolist(), found.thin_columns.tolist()) == ([4], [3])
    assert found.oversampling == 9 / 14


def test_an_interrupt_before_the_first_documents_is_raised():
    """There is no answer yet: it is not a lack of documents."""

    def blocks():
        raise KeyboardInterrupt
        yield

    with pytest.raises(KeyboardInterrupt):
        LDA(2, learning_method="online").fit(blocks())


def test_words_that_always_and_never_meet_have_coherence_one_and_minus_one():
    x = np.array(
        [[1.0, 2.0, 0.0, 1.0], [3.0, 1.0, 0.0, 1.0], [1.0, 1.0, 0.0, 0.0], [1.0, 5.0, 4.0, 0.0]]
    )
    assert coherence([[0, 1]], x).tolist() == [1.0]  # in every document
    assert coherence([[2, 3]], x).tolist() == [-1.0]
    # p(0, 3) = p(3) = 1/2 and p(0) = 1: log(p / (p p(0))) = 0
    assert coherence([[0, 3]], x)[0] == pytest.approx(0.0)
    assert coherence([[0, 1], [2, 3]], x).tolist() == [1.0, -1.0]


def test_conjugate_gradients_are_taken_where_they_are_apt():
    steps = {"feedback": "implicit", "cg_steps": 4}
    assert [
        ALS(solver=s, **steps)._cg(0.1, k) for s in ("auto", "cg", "cholesky") for k in (63, 64)
    ] == [
        0,
        4,
        4,
        4,
        0,
        0,
    ]
    assert ALS(biases=False, cg_steps=4)._cg(0.1, 64) == 4
    for unapt in ({"biases": True}, {"biases": False, "nonnegative": True}):
        assert ALS(cg_steps=4, **unapt)._cg(0.1, 64) == 0
    assert ALS(biases=False, cg_steps=4)._cg(0.0, 64) == 0


def test_strengths_that_are_raw_stay_as_they_are():
    x = Observed.from_nan(
        np.where(np.eye(6, 5) > 0, np.nan, 1.0 + np.arange(30.0).reshape(6, 5) ** 3)
    )
    assert ALS(feedback="implicit", strengths="raw")._log_scaling(x) is None
    assert ALS(strengths="log")._log_scaling(x) is None  # explicit values are no strengths
    assert ALS(feedback="implicit", strengths="log")._log_scaling(x) is not None


def test_an_interrupt_in_the_first_sweep_of_a_chain_is_raised(monkeypatch):
    from eckart.complete.bayes.chain import FactorChain

    def stop(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(FactorChain, "sweep", stop)
    with pytest.raises(KeyboardInterrupt):
        BayesianMF(1, n_samples=2, burn_in=1, random_state=0).fit(
            np.where(np.eye(6, 5) > 0, np.nan, np.arange(30.0).reshape(6, 5))
        )


def test_the_ridge_of_the_absolute_loss_has_no_unit_and_that_of_squares_has():
    x = Observed.from_nan(
        np.where(np.eye(40, 9) > 0, np.nan, 1.0 + np.arange(360.0).reshape(40, 9) % 7 % 5)
    )
    far = replace(x, data=1024 * x.data)
    for loss, codes, biases in (("squared", 1024, 1), ("absolute", 1, 1 / 1024)):
        near, there = ALS(loss=loss).ridge_for(x), ALS(loss=loss).ridge_for(far)
        assert (there.l2, there.l2_bias) == pytest.approx(
            (codes * near.l2, biases * near.l2_bias), rel=1e-6
        )


@pytest.mark.parametrize("single_pass", [False, True])
@pytest.mark.parametrize("rank", [0, 1, 3])
def test_as_many_triples_as_were_asked_for_whatever_the_rank(rank, single_pass):
    """Beyond the rank: zeros, with vectors that are orthonormal to all others."""
    rng = np.random.default_rng(11)
    a = rng.standard_normal((8, rank)) @ rng.standard_normal((rank, 6))
    for k in range(7):
        u, s, v = randomized_svd(a, k, oversampling=2, single_pass=single_pass, random_state=0)
        assert (u.shape, s.shape, v.shape) == ((8, k), (k,), (6, k))
        np.testing.assert_allclose(u.T @ u, np.eye(k), atol=1e-9)
        np.testing.assert_allclose(v.T @ v, np.eye(k), atol=1e-9)
        np.testing.assert_allclose(
            s, np.r_[np.linalg.svd(a, compute_uv=False), np.zeros(k)][:k], atol=1e-9
        )
        if k >= rank:
            np.testing.assert_allclose(u * s @ v.T, a, atol=1e-9)
