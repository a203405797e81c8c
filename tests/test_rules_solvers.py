"""Rules by which solvers shorten, restart and end, one by one, on histories made for them: what a whole run rarely meets."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from eckart import SVP, Autoencoder
from eckart.complete.nuclear import svt
from eckart.complete.nuclear.operators import Triples
from eckart.errors import InputError
from eckart.trace import Trace


def ascent(misfits, eta=8.0, accelerate=False, slopes=None):
    """The steps of an SVT whose residuals have these norms; what eta is after each, and the state at the end."""
    told = iter(misfits)
    rest = np.array([0.5, -0.5])

    def residual(b, left, right):
        return rest if slopes is None else rest * next(slopes), next(told) ** 2

    found = object.__new__(svt._Ascent)
    found.pattern, found.b, found.rank, found.eta, found.tau = SimpleNamespace(residual=residual), np.ones(2), 1, eta, 1.0
    found.y = found.z = np.zeros(2)
    found.t, found.accuracy, found.strikes, found.stale, found.least, found.last = 1.0, 1e-3, 0, 0, np.inf, np.inf
    found.shrunk = lambda y, tol: Triples(np.ones((2, 1)), np.ones(1), np.ones((2, 1)), np.zeros(1))
    trace, steps = Trace("r"), []
    for _ in misfits:
        found._step(accelerate, 1e-9, trace)
        steps.append(found.eta)
    return steps, found


def test_svt_halves_its_step_after_three_residuals_in_a_row_above_twice_the_best():
    assert (svt.STRIKES, svt.BURST, svt.STALE) == (3, 20, 25)
    assert ascent([1.0, 2.1, 2.1, 2.1])[0] == [8.0, 8.0, 8.0, 4.0]
    assert ascent([1.0, 2.1, 2.1, 1.9, 2.1, 2.1])[0] == [8.0] * 6
    assert ascent([1.0, 1.9, 1.9, 1.9, 1.9])[0] == [8.0] * 5


def test_svt_halves_its_step_at_a_burst_and_where_no_best_is_found():
    assert ascent([1.0, 19.9])[0] == [8.0, 8.0]
    assert ascent([1.0, 20.1])[0] == [8.0, 4.0]
    steps, _ = ascent([1.0] + [1.5] * 25)
    assert steps == [8.0] * 25 + [4.0]


def test_svt_goes_back_to_the_best_point_and_never_below_a_step_of_one():
    steps, found = ascent([1.0, 30.0])
    assert steps[-1] == 4.0
    np.testing.assert_array_equal(found.z, found.best_y)
    assert (found.t, found.strikes, found.stale, found.last) == (1.0, 0, 0, np.inf)
    assert ascent([1.0, 30.0], eta=1.5)[0] == [1.5, 1.0]
    steps, found = ascent([1.0, 30.0], eta=1.0)  # a step of one always falls in the end
    assert steps == [1.0, 1.0]
    np.testing.assert_allclose(found.z, 2 * np.array([0.5, -0.5]))


def test_svt_takes_momentum_while_the_residual_falls():
    """t' = (1 + sqrt(1 + 4 t^2)) / 2, z = y' + (t - 1) / t' (y' - y); a rise, or a step against the last move, begins anew."""
    rest = np.array([0.5, -0.5])
    golden = (1 + np.sqrt(5)) / 2
    _, found = ascent([1.0], eta=2.0, accelerate=True)
    assert found.t == pytest.approx(golden)
    np.testing.assert_allclose(found.z, 2 * rest)
    _, found = ascent([1.0, 0.9], eta=2.0, accelerate=True)
    after = (1 + np.sqrt(1 + 4 * golden**2)) / 2
    assert found.t == pytest.approx(after)
    np.testing.assert_allclose(found.y, 4 * rest)
    np.testing.assert_allclose(found.z, 4 * rest + (golden - 1) / after * 2 * rest)
    _, found = ascent([1.0, 1.1], eta=2.0, accelerate=True)
    assert found.t == 1.0
    np.testing.assert_allclose(found.z, found.y)
    _, found = ascent([1.0, 0.9, 0.8], eta=2.0, accelerate=True, slopes=iter([1.0, 1.0, -0.1]))
    assert found.t == pytest.approx(golden)  # of 1.0: the residual points back


def test_svp_takes_no_more_steps_than_allowed_over_all_its_rounds():
    """A start in the wrong directions is exchanged after a round; what the rounds have left is counted together."""
    rng = np.random.default_rng(0)
    for seed in range(2):
        a = rng.standard_normal((30, 3)) @ rng.standard_normal((3, 20)) + rng.standard_normal((30, 20))
        a[rng.random(a.shape) < 0.7] = np.nan
        a[np.arange(30), np.arange(30) % 20] = 1.0
        for most in (7, 30):
            model = SVP(3, tol=1e-10, max_iter=most, random_state=seed).fit(a)
            assert 1 <= model.n_iter_ <= most


def test_a_number_of_samples_of_a_variational_network():
    pytest.importorskip("torch")
    x = np.random.default_rng(0).random((20, 4))
    model = Autoencoder(1, variational=1.0, max_iter=1, random_state=0).fit(x)
    assert model.sample(3, random_state=0).shape == (3, 4)
    for bad in (0, -1, 2.0):
        with pytest.raises(InputError, match=f"n_samples={bad} came, wanted an int"):
            model.sample(bad)
