"""Cholesky factors of batches by blocks, and rows solved among their entries: on CPU tensors here,
on a GPU by ``make test-gpu``."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from registry import DEVICE

torch = pytest.importorskip("torch", reason="the engine needs PyTorch")

from eckart.engines.cpu.engine import CpuEngine  # noqa: E402
from eckart.engines.cuda import made, normal_equations  # noqa: E402
from eckart.engines.cuda import ridge as dual  # noqa: E402
from eckart.engines.cuda.triangles import Triangle  # noqa: E402
from eckart.engines.protocol import RidgeRule  # noqa: E402
from eckart.matrix import Observed  # noqa: E402


def matrices(seed: int, batch: int, n: int, stiff: float):
    """Positive definite matrices whose eigenvalues span ``stiff`` powers of ten."""
    rng = np.random.default_rng(seed)
    q = np.linalg.qr(rng.standard_normal((batch, n, n)))[0]
    return (q * 10 ** (-stiff * rng.random((batch, 1, n)))) @ q.transpose(0, 2, 1)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 9),
    st.integers(1, 3),
    st.integers(1, 200),
    st.floats(0, 11),
    st.sampled_from([0.0, 1.0]),
)
def test_torch_triangles_are_as_near_as_those_of_lapack(seed, batch, n, stiff, shift):
    a = matrices(seed, batch, n, stiff)
    below = np.where(np.tri(n, dtype=bool), a, np.nan)  # the lower triangle alone is read
    t = Triangle.of(torch.from_numpy(below).to(DEVICE))
    assert not bool(t.failed())
    lower = torch.tril(t.lower).cpu().numpy()
    eps = np.finfo(float).eps * n

    def residual(low):
        return np.abs(low @ low.transpose(0, 2, 1) - a).max()

    assert residual(lower) <= 4 * residual(np.linalg.cholesky(a)) + 4 * eps * np.abs(a).max()
    moved, whole = t.plus(shift) if shift else t, lower + shift * np.eye(n)
    right = np.random.default_rng(seed + 1).standard_normal((batch, n, 2))
    # backward errors: what is left of the right-hand side is small beside |L| |x|, however large x
    # is
    for x, low in (
        (moved.forward(torch.from_numpy(right).to(DEVICE)), whole),
        (moved.backward(torch.from_numpy(right).to(DEVICE)), whole.transpose(0, 2, 1)),
    ):
        x = x.cpu().numpy()
        assert np.abs(low @ x - right).max() <= 100 * eps * (np.abs(low) @ np.abs(x)).max()


@pytest.mark.parametrize(("n", "at"), [(1, 0), (70, 3), (70, 63), (70, 69), (130, 64)])
@pytest.mark.parametrize("pivot", [0.0, -1.0])
def test_torch_triangles_say_that_a_pivot_is_not_positive(n, at, pivot):
    a = np.stack([np.eye(n), np.eye(n)])
    a[1, at, at] = pivot
    assert bool(Triangle.of(torch.from_numpy(a).to(DEVICE)).failed())


def problem(k: int, counts: list[int], seed: int = 0):
    rng = np.random.default_rng(seed)
    n = max(counts) + 5
    columns = [np.sort(rng.choice(n, c, replace=False)) for c in counts]
    indptr = np.concatenate([[0], np.cumsum(counts)])
    x = Observed(
        indptr, np.concatenate(columns).astype(np.int64), rng.standard_normal(sum(counts)), n
    )
    root = rng.standard_normal((k, k + 3))
    base = root @ root.T / k + 0.5 * np.eye(k)
    return x, rng.standard_normal((n, k)), base, rng.standard_normal((len(counts), k)), rng


def dense_rows(x, right, w, base, prior):
    """u and G^-1 of every row, by their definition."""
    out = []
    for i in range(x.shape[0]):
        part = slice(x.indptr[i], x.indptr[i + 1])
        v = right[x.indices[part]]
        inverse = np.linalg.inv(v.T @ (w[part, None] * v) + base)
        out.append((inverse @ (v.T @ (w[part] * x.data[part]) + prior[i]), inverse))
    return out


@pytest.mark.parametrize("given", ["weights", "one weight", "ridges by count"])
def test_torch_rows_solved_among_their_entries(given, monkeypatch):
    """Rows shorter and longer than the columns, and one without entries: solutions, the value, and
    the covariance of draws, root by root."""
    monkeypatch.setattr(dual, "FROM", 8)
    monkeypatch.setattr(normal_equations, "NARROW", ())
    k = 12
    x, right, base, prior, rng = problem(k, [3, 9, 1, 0, 30, 5])
    w = rng.random(x.nnz) * 3
    w[::5] = 0.0
    rule, more = RidgeRule(0.4), {"base": base, "prior": prior, "weights": w}
    if given == "one weight":
        w, more = np.full(x.nnz, 2.5), {"base": base, "prior": prior, "own": 2.5}
    if given == "ridges by count":
        rule, more = RidgeRule(0.4, 1.0), {"weights": w}
        base, prior = np.zeros((k, k)), np.zeros_like(prior)
    engine, cpu = made(None, DEVICE), CpuEngine(1)
    used = []
    solved = dual.Dual.solved
    monkeypatch.setattr(
        dual.Dual, "solved", lambda self, *args: used.append(1) or solved(self, *args)
    )
    found, theirs = (
        engine.ridge_rows(x, right, rule, **more),
        cpu.ridge_rows(cpu.put(x), right, rule, **more),
    )
    assert used
    left = engine.get(found.left)
    ridges = rule.ridges(x.row_counts())[0]
    wanted = [dense_rows(x, right, w, base + l * np.eye(k), prior)[i] for i, l in enumerate(ridges)]
    for i, (u, _) in enumerate(wanted):
        np.testing.assert_allclose(left[i], u, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(found.value, theirs.value, rtol=1e-9)
    roots = np.empty((len(left), k, k))
    for j in range(k):
        z = np.zeros((len(left), k))
        z[:, j] = 1.0
        roots[:, :, j] = engine.get(engine.ridge_rows(x, right, rule, **more, noise=z).left) - left
    for root, (_, inverse) in zip(roots, wanted):
        np.testing.assert_allclose(root @ root.T, inverse, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(("k", "among"), [(13, 8), (70, 8), (70, 10**6)])
def test_torch_draws_in_float32_are_those_in_float64(k, among, monkeypatch):
    """Within a hundredth of a standard deviation in every direction, also of rows with hundreds of
    entries; not taken where noise is so small that rounding would show."""
    monkeypatch.setattr(dual, "FROM", among)
    x, right, base, prior, rng = problem(k, [3, 9, 1, 0, 400, 40, 150], seed=3)
    right[:, -1] = 1.0  # the column of a bias
    base = base * k  # factors whose scores have variance one
    engine, z = made(None, DEVICE), rng.standard_normal(prior.shape)
    sure, dtypes = normal_equations.drawn_in_float32, []
    monkeypatch.setattr(normal_equations, "NARROW", (DEVICE,))

    def told(*args):
        dtypes.append(sure(*args))
        return dtypes[-1]

    monkeypatch.setattr("eckart.engines.cuda.ridge.drawn_in_float32", told)
    for precision, narrow in ((2.5, True), (1e5, False)):
        more = {"base": base, "prior": prior, "own": precision, "noise": z}
        got = np.asarray(engine.get(engine.ridge_rows(x, right, RidgeRule(0.0), **more).left))
        assert dtypes.pop() is narrow
        monkeypatch.setattr(normal_equations, "NARROW", ())
        exact = np.asarray(engine.get(engine.ridge_rows(x, right, RidgeRule(0.0), **more).left))
        monkeypatch.setattr(normal_equations, "NARROW", (DEVICE,))
        assert got.dtype == exact.dtype == np.float64
        for i in range(x.shape[0]):
            v = right[x.indices[x.indptr[i] : x.indptr[i + 1]]]
            moved = got[i] - exact[i]
            assert np.sqrt(moved @ (precision * v.T @ v + base) @ moved) < 0.01
        assert np.array_equal(got, exact) is not narrow
