"""Chapters whose loss is one of ``terms``: those in NumPy take it from there, kernels and networks
keep a form of their own and are tied to it here."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eckart.embed.skipgram_train import _negative, _softmax
from eckart.engines.cpu.words.score_kernels import negative_row, softmax_row
from eckart.engines.cpu.words.window_kernels import SIX, steps_of, window_loss
from eckart.explain.mixtures.families_discrete import Bernoulli
from eckart.explain.mixtures.families_discrete import MultinomialComponents as MultinomialFamily
from eckart.terms import Logistic, Multinomial, Poisson, Squared
from oracle.divergences import _sums

LOGISTIC = Logistic()
seeds = st.integers(0, 2**31)


def words(seed):
    """Counts of 5 x 7 pairs, noise, and scores."""
    rng = np.random.default_rng(seed)
    return (
        rng.poisson(1.0, (5, 7)).astype(float),
        rng.random((5, 7)),
        3 * rng.standard_normal((5, 7)),
    )


@settings(max_examples=20, deadline=None)
@given(seeds)
def test_skip_gram_is_logistic_for_pairs_and_noise_and_multinomial_under_softmax(seed):
    seen, away, s = words(seed)
    total, slope = _negative(seen, away, s)
    one, zero = np.ones_like(s), np.zeros_like(s)
    assert total == pytest.approx(
        float((seen * LOGISTIC.value(one, s) + away * LOGISTIC.value(zero, s)).sum()), rel=1e-12
    )
    np.testing.assert_allclose(
        slope, seen * LOGISTIC.gradient(one, s) + away * LOGISTIC.gradient(zero, s), atol=1e-12
    )
    total, slope = _softmax(seen, s)
    loss = Multinomial(tuple(range(7)))
    codes, rows = np.tile(np.arange(7.0), (5, 1)), np.repeat(s[:, None, :], 7, axis=1)
    assert total == pytest.approx(float((seen * loss.value(codes, rows)).sum()), rel=1e-12)
    np.testing.assert_allclose(
        slope, (seen[:, :, None] * loss.gradient(codes, rows)).sum(axis=1), atol=1e-12
    )


@settings(max_examples=10, deadline=None)
@given(seeds)
def test_kernels_of_windows_step_along_the_logistic_gradient(seed):
    rng = np.random.default_rng(seed)
    s = (4 * rng.standard_normal((3, SIX))).astype(np.float32)
    times = rng.integers(0, 3, SIX).astype(np.float32)
    times[0] = 1.0
    g, label = np.zeros((3, SIX), np.float32), np.zeros(SIX)
    steps_of.py_func(s, 3, times, 0, 1, np.float32(0.5), g)
    label[0] = 1.0
    wanted = -0.5 * times * LOGISTIC.gradient(label, s.astype(float))
    np.testing.assert_allclose(g, wanted, atol=2e-6)  # single precision, by a ratio of polynomials
    total = float((times * LOGISTIC.value(label, s.astype(float))).sum())
    assert window_loss.py_func(s, 3, times, 0, 1) == pytest.approx(total, rel=1e-12)


@settings(max_examples=10, deadline=None)
@given(seeds)
def test_kernels_of_scores_have_the_losses_of_terms(seed):
    seen, _, s = words(seed)
    columns, count = np.flatnonzero(seen[0]), seen[0][seen[0] > 0]
    noise = np.full(7, 1 / 7)
    right, r = np.eye(7), 2.0
    for kernel in (negative_row, softmax_row):
        scores, total, pull = s[0].copy(), np.zeros(4), np.zeros(7)
        kernel.py_func(columns, count, scores, right, noise, r, 1.0, total, pull)
        if kernel is negative_row:
            away = r * seen[0].sum() * noise
            wanted = seen[0] * LOGISTIC.value(np.ones(7), s[0]) + away * LOGISTIC.value(
                np.zeros(7), s[0]
            )
        else:
            wanted = seen[0] * Multinomial(tuple(range(7))).value(
                np.arange(7.0), np.tile(s[0], (7, 1))
            )
        assert total[0] == pytest.approx(float(wanted.sum()), rel=1e-12)


@settings(max_examples=20, deadline=None)
@given(seeds)
def test_divergences_of_parts_are_poisson_and_squared_losses_above_their_least(seed):
    """KL of a and s: the Poisson loss at log s less that at log a. Half the squares: squared
    error."""
    rng = np.random.default_rng(seed)
    a, h, u = rng.poisson(2.0, 9) + 0.5, rng.random((9, 3)) + 0.1, rng.random(3) + 0.1
    s, v = h @ u, rng.random(9)
    poisson = Poisson()
    up, down, value = _sums(a, v, h, u, 1.0)
    assert value == pytest.approx(
        float(v @ (poisson.value(a, np.log(s)) - poisson.value(a, np.log(a)))), rel=1e-9
    )
    np.testing.assert_allclose(
        down - up, (v * poisson.gradient(a, np.log(s)) / s) @ h, atol=1e-12
    )  # by s, not by its logarithm
    up, down, value = _sums(a, v, h, u, 2.0)
    assert value == pytest.approx(float(v @ Squared().value(a, s)), rel=1e-9)
    np.testing.assert_allclose(down - up, (v * Squared().gradient(a, s)) @ h, atol=1e-12)


@settings(max_examples=20, deadline=None)
@given(seeds)
def test_families_of_mixtures_are_logistic_and_multinomial_at_their_means(seed):
    rng = np.random.default_rng(seed)
    m, x = rng.uniform(0.05, 0.95, (2, 6)), (rng.random((4, 6)) < 0.5).astype(float)
    odds = np.log(m / (1 - m))
    wanted = -LOGISTIC.value(x[:, None], np.broadcast_to(odds, (4, 2, 6))).sum(axis=2)
    np.testing.assert_allclose(Bernoulli().log_prob(x, {"means": m}), wanted, rtol=1e-10)
    p = m / m.sum(axis=1, keepdims=True)
    one = np.eye(6)[rng.integers(6, size=4)]  # documents of one word: no multinomial coefficient
    loss, codes = Multinomial(tuple(range(6))), one.argmax(axis=1).astype(float)
    wanted = np.stack([-loss.value(codes, np.tile(np.log(q), (4, 1))) for q in p], axis=1)
    np.testing.assert_allclose(
        MultinomialFamily().log_prob(one, {"probabilities": p}), wanted, rtol=1e-10
    )


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
@pytest.mark.parametrize("kind", ["squared", "bernoulli", "classes", "targets"])
def test_networks_minimise_the_losses_of_terms(kind):
    import torch

    from eckart.nn import rules as losses
    from eckart.nn.batches import RowBatch

    rng = np.random.default_rng(0)
    out = torch.tensor(2 * rng.standard_normal((5, 4)), requires_grad=True)
    x = rng.random((5, 4))
    if kind in ("squared", "bernoulli"):
        back = torch.zeros(4, dtype=torch.float64), torch.ones(4, dtype=torch.float64)
        value = losses._misfit(
            kind, out, torch.tensor(x), back, torch.zeros(4, dtype=torch.float64)
        ).sum()
        term, codes, share = (Squared() if kind == "squared" else LOGISTIC), x, 1.0
    else:
        y = rng.integers(4, size=5)
        loss = losses.class_loss if kind == "classes" else losses.target_loss
        target = torch.tensor(y) if kind == "classes" else torch.tensor(x)
        value = loss(lambda _: out, RowBatch(torch.tensor(x), y=target))
        term, codes = (
            (Multinomial((0, 1, 2, 3)), y.astype(float)) if kind == "classes" else (Squared(), x)
        )
        share = 1 / 5 if kind == "classes" else 1 / 20
    value.backward()
    s = out.detach().numpy()
    assert float(value.detach()) == pytest.approx(
        share * float(term.value(codes, s).sum()), rel=1e-12
    )
    np.testing.assert_allclose(out.grad.numpy(), share * term.gradient(codes, s), atol=1e-12)
