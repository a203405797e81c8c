"""Every loss and penalty: derivatives, majorisers, conjugates, prox, draws, files. A loss joins by
being listed in ``LOSSES`` and given values here."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eckart.errors import FileError, InputError
from eckart.terms import LOSSES, PENALTIES, Huber, Multinomial, loss_from, loss_named

COLUMNS = {
    "squared": np.array([-2.0, 0.5, 3.0, 1.0]),
    "absolute": np.array([-2.0, 0.5, 3.0, 1.0]),
    "huber": np.array([-2.0, 0.5, 3.0, 1.0, 40.0]),
    "logistic": np.array([0.0, 1.0, 1.0, 0.0, 1.0]),
    "ordered": np.array([1.0, 2.0, 2.0, 3.0, 5.0, 5.0]),
    "ordered_probit": np.array([1.0, 2.0, 2.0, 3.0, 5.0, 5.0]),
    "poisson": np.array([0.0, 3.0, 1.0, 7.0]),
    "quantile": np.array([-2.0, 0.5, 3.0, 1.0]),
    "multinomial": np.array(["red", "blue", "green", "blue"]),
}
NAMES = [*sorted(LOSSES), "quantile 0.8"]


def made(name):
    """A loss with its own parameters, and the encoded values of its column."""
    column = COLUMNS[name.split()[0]]
    loss = loss_named(name).fitted_to(column)
    return loss, loss.encode(column)


def points(loss, a, rng, spread=3.0):
    return spread * rng.standard_normal((*a.shape, loss.width) if loss.width > 1 else a.shape)


def test_every_loss_has_a_column_here():
    assert set(COLUMNS) == set(LOSSES)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_gradient_is_the_slope_of_the_value(name, seed):
    loss, a = made(name)
    s, h = points(loss, a, np.random.default_rng(seed)), 1e-6
    for at in range(loss.width):
        step = h * np.eye(loss.width)[at] if loss.width > 1 else h
        slope = (loss.value(a, s + step) - loss.value(a, s - step)) / (2 * h)
        got = loss.gradient(a, s)[..., at] if loss.width > 1 else loss.gradient(a, s)
        smooth = (
            np.ones(a.shape, bool)
            if name != "absolute"
            else np.abs(np.abs(a - s) - loss.corner) > 1e-4
        )
        np.testing.assert_allclose(got[smooth], slope[smooth], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), away=st.floats(0.01, 20.0))
def test_the_parabola_lies_above(name, seed, away):
    loss, a = made(name)
    rng = np.random.default_rng(seed)
    s, d = points(loss, a, rng), points(loss, a, rng, away)
    if not loss.everywhere:  # between s and the minimum of the loss
        least = np.log(np.maximum(a, 1e-9)) - s
        d = np.clip(d, np.minimum(least, 0), np.maximum(least, 0))
    g, c = loss.gradient(a, s), loss.curvature(a, s)
    above = g * d + 0.5 * c * d * d
    above = loss.value(a, s) + (above.sum(axis=-1) if loss.width > 1 else above)
    there = loss.value(a, s + d)
    assert np.all(above >= there - 1e-9 * (1 + np.abs(there)))
    if loss.bound is not None:
        assert np.all(c <= loss.bound * (1 + 1e-12))


@pytest.mark.parametrize("name", NAMES)
def test_the_bound_is_the_largest_second_derivative(name):
    loss, a = made(name)
    if loss.bound is None or loss.width > 1:
        pytest.skip("no bound, or one for all directions at once (tested as a parabola above)")
    grid, h = np.linspace(-8, 8, 4001)[:, None], 1e-4
    a, s = np.broadcast_arrays(a[None], grid)
    second = (loss.value(a, s + h) - 2 * loss.value(a, s) + loss.value(a, s - h)) / h**2
    assert second.max() <= loss.bound + 1e-4
    assert (
        second.max() >= (0.7 if name.startswith("ordered") else 0.99) * loss.bound
    )  # thresholds at a distance share it


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), shrink=st.floats(0.0, 1.0))
def test_fenchel_young(name, seed, shrink):
    """l(s) + l*(y) >= y s for all s and y, with equality at the gradient; a gradient shrunk towards
    0 keeps a finite conjugate."""
    loss, a = made(name)
    rng = np.random.default_rng(seed)
    s, t = points(loss, a, rng), points(loss, a, rng)
    y = loss.gradient(a, s)
    product = (lambda p, q: (p * q).sum(axis=-1)) if loss.width > 1 else np.multiply
    conjugate = loss.conjugate(a, y)
    np.testing.assert_allclose(loss.value(a, s) + conjugate, product(y, s), rtol=1e-8, atol=1e-8)
    small = loss.conjugate(a, shrink * y)
    assert np.isfinite(small).all()
    assert np.all(loss.value(a, t) + small >= product(shrink * y, t) - 1e-8)


@pytest.mark.parametrize(
    ("name", "y"), [("logistic", 1.5), ("absolute", 1.01), ("poisson", -8.0), ("ordered", -1.5)]
)
def test_the_conjugate_is_infinite_where_no_line_fits(name, y):
    loss, a = made(name)
    assert np.isinf(loss.conjugate(a, np.full(a.shape, y))).all()
    assert np.isinf(
        loss_named("multinomial")
        .fitted_to(np.arange(3))
        .conjugate(np.zeros(1), np.full((1, 3), 0.5))
    )


@pytest.mark.parametrize("name", NAMES)
def test_draws_have_the_mean(name):
    loss, a = made(name)
    rng = np.random.default_rng(3)
    s = points(loss, a[:3], rng, 0.7)
    n = 40000
    draws = loss.draw(np.broadcast_to(s, (n, *s.shape)), rng)
    if loss.name == "quantile":  # what it predicts is the value that a share lies below
        np.testing.assert_allclose((draws <= s).mean(axis=0), loss.level, atol=2.5 / np.sqrt(n))
        return
    if loss.width > 1:
        shares = np.stack([(draws == g).mean(axis=0) for g in range(loss.width)], axis=-1)
        np.testing.assert_allclose(shares, loss.mean(s), atol=0.015)
        return
    if loss.discrete and name != "logistic":
        draws = np.asarray(loss.levels, np.float64)[draws.astype(int)]
    wide = draws.std(axis=0).max()
    # five standard errors
    np.testing.assert_allclose(draws.mean(axis=0), loss.mean(s), atol=5 * wide / np.sqrt(n))


@pytest.mark.parametrize("name", [n for n in LOSSES if LOSSES[n].discrete])
def test_probabilities_are_those_of_the_loss(name):
    loss, a = made(name)
    s = points(loss, a, np.random.default_rng(0))
    p = loss.probabilities(s)
    np.testing.assert_allclose(p.sum(axis=-1), 1, rtol=1e-12)
    np.testing.assert_allclose(
        np.take_along_axis(p, a.astype(int)[:, None], -1)[:, 0],
        np.exp(-loss.value(a, s)),
        rtol=1e-9,
    )


def test_only_levels_have_probabilities():
    with pytest.raises(
        InputError,
        match="the loss must be for yes/no, ordered or plain categories, got squared, which has no",
    ):
        loss_named("squared").probabilities(np.zeros(1))


@pytest.mark.parametrize("name", NAMES)
def test_offset_is_the_best_constant_and_gaps_do_not_count(name):
    column = COLUMNS[name.split()[0]]
    loss = loss_named(name).fitted_to(column)
    place = loss.offset_and_scale(column)
    a = loss.encode(column)

    def cost(offset):
        s = (
            np.broadcast_to(offset, (*a.shape, loss.width))
            if loss.width > 1
            else np.full(a.shape, offset[0])
        )
        return loss.value(a, s).mean()

    best = cost(place.offset)
    assert place.scale > 0
    assert best == pytest.approx(place.cost)
    for way in np.vstack([np.eye(loss.width), -np.eye(loss.width)]):
        assert cost(place.offset + 0.05 * way) >= best - 1e-9
    gaps = (
        np.append(column.astype(object), None)
        if column.dtype.kind == "U"
        else np.append(column, np.nan)
    )
    again = loss_named(name).fitted_to(gaps)
    assert again.parameters() == loss.parameters()
    np.testing.assert_allclose(again.offset_and_scale(gaps).offset, place.offset)


@pytest.mark.parametrize("name", ["squared", "huber", "absolute"])
def test_units_follow_the_data(name):
    """A column in other units has the same place in units of its scale, and the same cost up to the
    unit of the loss."""
    column = np.array([1.0, 2.0, 4.0, 8.0, 9.0])
    here, there = (
        loss_named(name).fitted_to(c).offset_and_scale(c) for c in (column, 1000 * column)
    )
    assert there.scale == pytest.approx(1000 * here.scale)
    np.testing.assert_allclose(there.offset, 1000 * here.offset)


@pytest.mark.parametrize("name", ["squared", "absolute", "huber", "logistic", "poisson"])
def test_a_column_that_is_constant_or_empty(name):
    for column in (np.ones(4), np.full(3, np.nan)):
        place = loss_named(name).fitted_to(column).offset_and_scale(column)
        assert np.isfinite([*place.offset, place.scale, place.cost]).all()
        assert place.cost > 0


@pytest.mark.parametrize("name", NAMES)
def test_parameters_survive_a_file(name):
    loss, a = made(name)
    back = loss_from(json.loads(json.dumps(loss.to_state())))
    assert back == loss
    s = points(loss, a, np.random.default_rng(1))
    np.testing.assert_array_equal(back.value(a, s), loss.value(a, s))


def test_what_no_loss_takes_is_named():
    with pytest.raises(
        InputError,
        match=r"values must be 0 and 1 \(or shares between them\) for loss='logistic', got 2\.0 at",
    ):
        loss_named("logistic").encode(np.array([0, 2]))
    with pytest.raises(
        InputError, match=r"values must be counts >= 0 for loss='poisson', got -1\.0 at position 0"
    ):
        loss_named("poisson").encode(np.array([-1]))
    with pytest.raises(
        InputError, match="values must be one of 'blue', 'red' for loss='multinomial', got 'pink'"
    ):
        Multinomial(("blue", "red")).encode(np.array(["red", "pink"]))
    with pytest.raises(
        InputError,
        match=r"loss must be one of 'squared' \(numbers with errors of about the same size\), 'absolute'",
    ):
        loss_named("cubic")
    for state in (
        {"name": "huber", "width": 3},
        {"name": "huber", "delta": -1.0},
        {"name": "cubic"},
        "huber",
        {"name": "ordered", "levels": [1, 2, 3], "thresholds": [0.5]},
        {"name": "ordered", "levels": [1, 2, 3], "thresholds": [0.5, 0.1]},
        {"name": "ordered", "levels": [1, 2], "thresholds": ["a"]},
    ):
        with pytest.raises(FileError, match=r"the (parameters of the )?loss must"):
            loss_from(state)


@pytest.mark.parametrize("name", sorted(PENALTIES))
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10**6), t=st.floats(0.01, 5.0), strength=st.floats(0.1, 3.0))
def test_prox_is_the_minimum_and_moreau(name, seed, t, strength):
    """No step from prox(v, t) lowers its objective, and v = prox(v) + t y with y a subgradient: <x,
    y> = penalty(x) + conjugate(y)."""
    penalty = PENALTIES[name](strength)
    rng = np.random.default_rng(seed)
    v = 2 * rng.standard_normal((4, 3))
    x = penalty.prox(v, t)

    def cost(z):
        return penalty.value(z) + ((z - v) ** 2).sum() / (2 * t)

    best = cost(x)
    for size in (1e-3, 0.3):
        step = size * rng.standard_normal(v.shape)
        assert cost(x + step) >= best - 1e-9
        assert cost(np.maximum(x + step, 0)) >= best - 1e-9  # steps that a constraint allows
    y = (v - x) / t
    assert np.vdot(x, y) == pytest.approx(
        penalty.value(x) + penalty.conjugate(y), rel=1e-6, abs=1e-8
    )


def test_huber_is_squared_error_within_its_width():
    s = np.linspace(-1, 1, 9)
    np.testing.assert_allclose(Huber(10.0).value(np.zeros(9), s), 0.5 * s**2)
