"""L-BFGS: the least value, falling all the way; an interrupt and a kill leave a point to go on
from."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize, rosen, rosen_der

from eckart.io.models.checkpoint import Memory
from eckart.optim.lbfgs import minimise
from eckart.trace import StopReason


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31), n=st.integers(1, 30), decades=st.floats(0, 5))
def test_a_quadratic_ends_at_its_least_point(seed, n, decades):
    rng = np.random.default_rng(seed)
    q = np.linalg.qr(rng.standard_normal((n, n)))[0]
    a, b = q * 10.0 ** rng.uniform(-decades, 0, n) @ q.T, rng.standard_normal(n)

    def value(x):
        return 0.5 * float(x @ a @ x) - float(b @ x), a @ x - b

    x, trace = minimise(value, rng.standard_normal(n), tol=0.0, max_iter=5000)
    least = value(np.linalg.solve(a, b))[0]
    assert trace.values[-1] - least <= 1e-8 * max(1.0, abs(least))
    assert all(b <= a for a, b in zip(trace.values, trace.values[1:]))
    assert value(x)[0] == trace.values[-1]


def test_a_bent_valley_takes_about_the_steps_of_scipy():
    def value(x):
        return float(rosen(x)), rosen_der(x)

    x, trace = minimise(value, np.full(6, -1.2), tol=1e-16, max_iter=500)
    there = minimize(
        value, np.full(6, -1.2), jac=True, method="L-BFGS-B", options={"maxcor": 20, "ftol": 1e-16}
    )
    np.testing.assert_allclose(x, there.x, atol=1e-3)
    assert trace.reason is StopReason.CONVERGED
    assert len(trace) < 2 * there.nit


@pytest.mark.parametrize("at", [0, 1, 7, 23])
def test_a_state_that_was_kept_goes_on_to_the_same_bits(at):
    def value(x):
        return float(rosen(x)), rosen_der(x)

    states = []

    class Kept(Memory):
        def offer(self, state):
            copied = {
                name: part.copy() if hasattr(part, "copy") else part for name, part in state.items()
            }
            states.append(copied | {"trace": [list(part) for part in state["trace"]]})

    class Resumed(Memory):
        def last(self):
            return states[at]

    whole, trace = minimise(value, np.full(4, 2.0), tol=0.0, max_iter=40, memory=Kept())
    again, second = minimise(value, np.full(4, 9.0), tol=0.0, max_iter=40, memory=Resumed())
    assert whole.tobytes() == again.tobytes()
    assert trace.values == second.values


def test_an_interrupt_returns_the_last_point_and_a_wall_is_gone_round():
    calls = []

    def value(x):
        calls.append(1)
        if len(calls) == 9:
            raise KeyboardInterrupt
        return float(rosen(x)), rosen_der(x)

    x, trace = minimise(value, np.full(3, -1.0), tol=0.0, max_iter=50)
    assert trace.reason is StopReason.INTERRUPTED
    assert float(rosen(x)) == trace.values[-1]

    def walled(x):  # log beyond its range is not a number: steps are halved until they are inside
        with np.errstate(invalid="ignore", divide="ignore"):
            return float((x - np.log(x)).sum()), 1 - 1 / x

    x, trace = minimise(walled, np.array([0.01, 30.0]), tol=1e-15, max_iter=100)
    np.testing.assert_allclose(x, 1.0, atol=1e-5)
    assert trace.reason in (StopReason.CONVERGED, StopReason.STALLED)
