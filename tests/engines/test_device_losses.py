"""Losses on a device: their own formulas, by the functions of PyTorch, and nothing on the CPU
engine where these suffice."""

from __future__ import annotations

import numpy as np
import pytest
from test_losses import RULE, problem

torch = pytest.importorskip("torch", reason="the engine needs PyTorch")

from registry import DEVICE  # noqa: E402

from eckart.engines.cuda import made  # noqa: E402
from eckart.engines.cuda.formulas import Numbers  # noqa: E402
from eckart.terms import Absolute, Huber, Logistic, Poisson, Squared  # noqa: E402

WRITTEN = {
    "squared": Squared(),
    "huber": Huber(0.7),
    "absolute": Absolute(),
    "rounded": Absolute(0.2),
    "logistic": Logistic(),
    "poisson": Poisson(),
}


@pytest.mark.parametrize("engine", ["torch"])
@pytest.mark.parametrize("name", WRITTEN)
def test_formulas_are_those_of_the_host(engine, name):
    """Far from zero, at zero, and where two branches of a formula meet."""
    loss = WRITTEN[name]
    s = np.concatenate(
        [
            np.linspace(-30, 30, 61),
            [-800.0, 800.0, 0.0, 1e-5, -1e-5, 1e-3, np.log(3.0), np.log(3.0) * (1 - 1e-8)],
        ]
    )
    for level in (0.0, 1.0) if name == "logistic" else (0.0, 1.0, 3.0):
        a = np.full(s.shape, level)
        there = Numbers(torch.from_numpy(a).to(DEVICE)), Numbers(torch.from_numpy(s).to(DEVICE))
        with np.errstate(all="ignore"):
            wanted = [
                *loss.parts(a, s),
                loss.conjugate(a, 0.5 * loss.gradient(a, s)),
                loss.value(a, s),
                loss.curvature(a, s),
            ]
        found = [
            *loss.parts(*there),
            loss.conjugate(there[0], 0.5 * loss.gradient(*there)),
            loss.value(*there),
            loss.curvature(*there),
        ]
        for got, want in zip(found, wanted, strict=True):
            np.testing.assert_allclose(got.tensor.cpu().numpy(), want, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("engine", ["torch"])
@pytest.mark.parametrize("name", ["huber", "absolute", "logistic", "poisson", "ordered"])
def test_what_runs_on_the_device(engine, name):
    x, loss, left, right, at, w = problem(name, np.float32)
    own = made(1, DEVICE)
    placed = own.put(x, entry_weights=w)
    bound, _ = own.linearised(placed, loss, left, right, **at)
    own.loss_sums(placed, loss, left, right, shrink=0.5, **at)
    given = {"mean": at["mean"], "own": at["own"], "new_own": at["own"], "other": at["other"]}
    own.shortened_rows(placed, loss, right, RULE, left, left, **given)
    fallen = {"linearised", "loss_sums", "shortened_rows"} if name == "ordered" else set()
    assert own.fallen == fallen
    host = bound.host  # for primitives of the CPU engine: the same targets and weights
    np.testing.assert_array_equal(host.matrix.data, bound.entries.data.cpu().numpy())
    np.testing.assert_array_equal(host.T.entry_weights, bound.T.entries.weights.cpu().numpy())


@pytest.mark.parametrize("engine", ["torch"])
@pytest.mark.parametrize("name", ["huber", "poisson"])
def test_pieces_of_the_entries_make_the_whole(engine, name, monkeypatch):
    x, loss, left, right, at, w = problem(name, np.float64)
    found = []
    for piece in (2**25, 37):
        own = made(1, DEVICE)
        monkeypatch.setattr(type(own.lib), "piece", piece)
        placed = own.put(x, entry_weights=w)
        bound, value = own.linearised(placed, loss, left, right, **at)
        found.append(
            (
                bound.host.matrix.data.tobytes(),
                bound.host.entry_weights.tobytes(),
                [value, *own.loss_sums(placed, loss, left, right, shrink=0.5, **at)],
            )
        )
    assert found[0][:2] == found[1][:2]
    np.testing.assert_allclose(found[0][2], found[1][2], rtol=1e-13)


@pytest.mark.parametrize("engine", ["torch"])
def test_a_formula_does_not_leave_the_device_unseen(engine):
    s = Numbers(torch.ones(3, device=DEVICE))
    for do in (
        lambda: np.asarray(s),
        lambda: np.sinc(s),
        lambda: s + np.ones(3),
        lambda: np.add.reduce(s),
    ):
        with pytest.raises(TypeError):
            do()
    before = s
    s += 1
    assert s is before
    assert s.tensor.tolist() == [2.0] * 3
