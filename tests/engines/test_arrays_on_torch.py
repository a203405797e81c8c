"""Ridge problems by arrays on tensors, where a device has no kernels for them: in pieces, too."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from registry import DEVICE, JUDGE, Fetched
from test_ridge_evidence import RULES, K, problem

from eckart.engines.arrays.evidence import ArrayEntries
from eckart.engines.cuda import made


@pytest.fixture(params=[2**24, 2**13])
def engine(request):
    engine = made(1, DEVICE)
    engine.room.chunk = request.param
    return engine


@pytest.mark.parametrize("name", RULES)
def test_ridge_problems_and_their_evidence(engine, name, monkeypatch):
    rule = RULES[name]
    x, left, right, more, _ = problem(rule, np.float64)
    monkeypatch.setattr("eckart.engines.arrays.ridge.PAIRS", engine.room.chunk)
    given = {n: more[m] for n, m in (("mean", "mean"), ("offset", "other")) if m in more}
    prior = np.linspace(-1, 1, K)
    given |= {} if rule.nonnegative else {"prior": prior}
    placed = engine.put(x)
    got = ArrayEntries.ridge_rows(engine, placed, right, rule, **given)
    want = JUDGE.ridge_rows(JUDGE.put(x), right, rule, **given)
    tolerance = 1e-4 if rule.nonnegative else 1e-7
    np.testing.assert_allclose(engine.get(got.left), want.left, rtol=tolerance, atol=tolerance)
    assert got.value == pytest.approx(want.value, rel=1e-7)
    spread = 0.4 if rule.alpha else 0.0
    sums, judged = (
        e.evidence_rows(m, left, right, rule, spread=spread, **more).sums
        for e, m in ((_Arrays(engine), placed), (JUDGE, JUDGE.put(x)))
    )
    np.testing.assert_allclose(sums, judged, rtol=1e-9, atol=1e-9 * abs(judged.value))
    v, q = np.ones((x.shape[1], 2)), np.ones(x.shape[0])
    found, want = (
        e.residual_gram(m, left, right, v, q, rule, spread=spread, **more)
        for e, m in ((_Arrays(engine), placed), (JUDGE, JUDGE.put(x)))
    )
    np.testing.assert_allclose(found, want, rtol=1e-8, atol=1e-8 * np.abs(want).max())


def test_what_has_no_kernel_stays_on_the_device(engine):
    x, _, right, _, _ = problem(RULES["no ridge"], np.float64)
    Fetched(engine).ridge_rows(engine.put(x), right, RULES["no ridge"])
    assert not engine.fallen


class _Arrays:
    """The array primitives in the place of the engine's own."""

    def __init__(self, engine):
        self.engine = engine

    def __getattr__(self, name):
        do = getattr(ArrayEntries, name)
        return lambda *a, **n: Fetched(self.engine)._back(do(self.engine, *a, **n))
