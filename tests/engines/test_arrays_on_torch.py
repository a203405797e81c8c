"""Families by arrays on tensors that a device leaves to kernels or to the CPU engine: in pieces,
too."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from registry import DEVICE, JUDGE, Fetched
from test_ridge_evidence import RULES, K, problem
from test_table_primitives import table

from eckart.engines.arrays.evidence import ArrayEntries
from eckart.engines.arrays.tables import ArrayTables
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


@pytest.mark.parametrize("robust", [False, True])
@pytest.mark.parametrize("repeated", [False, True])
def test_tables(engine, robust, repeated):
    x, rng = table(150, 3, repeated)
    w, mean, noise = rng.standard_normal((9, 4)), rng.standard_normal(9), rng.uniform(0.1, 2, 9)
    more = {"width": np.full(9, 0.7), "codes": rng.standard_normal((150, 4))} if robust else {}
    times, parts = rng.uniform(0, 2, 150), np.array([[0, 1], [4, 5]])
    ways = (_Arrays(engine, ArrayTables), engine.put(x)), (JUDGE, JUDGE.put(x))
    (got, codes), (want, judged) = (
        e.filled_moments(m, w, mean, noise, weights=times, **more) for e, m in ways
    )
    for one, two in zip((*got, codes), (*want, judged)):
        np.testing.assert_allclose(one, two, rtol=1e-8, atol=1e-8)
    left, other = (e.left_out_rows(m, w, mean, noise, parts, **more) for e, m in ways)
    np.testing.assert_allclose(left, other, rtol=1e-8, atol=1e-8)


class _Arrays:
    """The array primitives in the place of the engine's own."""

    def __init__(self, engine, bodies=ArrayEntries):
        self.engine, self.bodies = engine, bodies

    def __getattr__(self, name):
        do = getattr(self.bodies, name)
        return lambda *a, **n: Fetched(self.engine)._back(do(self.engine, *a, **n))
