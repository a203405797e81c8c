"""6.8 Item models: formulas against dense NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from eckart import EASE, SLIM, Blend, Observed, SpectralFilter
from eckart.complete.items.blend_weights import Pool, choose

seeds = st.integers(0, 2**31)


def table(seed, rows=25, columns=9):
    rng = np.random.default_rng(seed)
    a = (rng.random((rows, columns)) < 0.35).astype(float)
    a[np.arange(columns), np.arange(columns)] = 1.0  # no column is empty
    return a, Observed.from_scipy(sparse.csr_array(a))


def weights(model):
    n = model.fit_.factors.n
    return model.fold_in(Observed.from_scipy(sparse.csr_array(np.eye(n))))


@settings(max_examples=10, deadline=None)
@given(seeds, st.floats(0.5, 20.0))
def test_6_8_1_ease_in_closed_form(seed, l2):
    a, x = table(seed)
    p = np.linalg.inv(a.T @ a + l2 * np.eye(a.shape[1]))
    wanted = -p / np.diag(p)
    np.fill_diagonal(wanted, 0.0)
    np.testing.assert_allclose(weights(EASE(l2=l2).fit(x)), wanted, atol=1e-10)


@settings(max_examples=10, deadline=None)
@given(seeds, st.floats(0.5, 20.0))
def test_6_8_2_no_other_weights_gain_more_than_the_bound(seed, l2):
    a, _ = table(seed)
    rng = np.random.default_rng(seed)
    n = a.shape[1]

    def objective(w):
        return 0.5 * np.sum((a - a @ w) ** 2) + 0.5 * l2 * np.sum(w**2)

    w = 0.1 * rng.standard_normal((n, n))
    np.fill_diagonal(w, 0.0)
    r = (a.T @ a + l2 * np.eye(n)) @ w - a.T @ a
    np.fill_diagonal(r, 0.0)
    best = EASE(l2=l2).fit(table(seed)[1]).fit_.factors.weights
    gap = objective(w) - objective(best)
    assert 0 <= gap <= np.sum(r**2) / (2 * l2) * (1 + 1e-9)


@settings(max_examples=10, deadline=None)
@given(seeds, st.floats(0.0, 2.0), st.floats(0.5, 10.0))
def test_6_8_3_slim_meets_its_conditions(seed, l1, l2):
    a, x = table(seed)
    model = SLIM(l2=l2, l1=l1, tol=1e-10, max_iter=5000).fit(x)
    w, g = weights(model), a.T @ a
    slope = g @ w - g + l1 + l2 * w
    off = ~np.eye(len(w), dtype=bool)
    assert (w >= 0).all()
    assert not np.diagonal(w).any()
    assert np.abs(slope[off & (w > 0)]).max(initial=0.0) < 1e-3
    assert slope[off & (w == 0)].min(initial=0.0) > -1e-3
    assert model.certificate_.holds


def test_6_8_4_the_filter_by_a_dense_decomposition():
    a, x = table(3)
    d, e = a.sum(axis=1), a.sum(axis=0)
    normal = a / np.sqrt(np.outer(np.where(d > 0, d, 1), e))
    _, _, vt = np.linalg.svd(normal, full_matrices=False)
    v = vt[:4].T
    wanted = normal.T @ normal + 0.3 * np.diag(e**-0.5) @ v @ v.T @ np.diag(e**0.5)
    np.testing.assert_allclose(weights(SpectralFilter(4, random_state=0).fit(x)), wanted, atol=1e-6)


@pytest.mark.parametrize(
    "model",
    [EASE(l2=2.0), SLIM(l2=1.0, l1=0.2), SpectralFilter(4, random_state=0)],
    ids=lambda m: type(m).__name__,
)
def test_6_8_5_new_rows_and_shares(model):
    a, x = table(4)
    w = weights(model.fit(x))
    new = (np.random.default_rng(9).random((3, 9)) < 0.5).astype(float)
    np.testing.assert_allclose(
        model.fold_in(Observed.from_scipy(sparse.csr_array(new))), new @ w, atol=1e-12
    )
    why = model.explain(2, 5, n=9)
    assert {name: share for name, _, share in why.shares} == pytest.approx(
        {int(i): w[i, 5] for i in np.flatnonzero(a[2])}, abs=1e-12
    )


def test_6_8_6_blends():
    a, x = table(5, 60)
    model = Blend({"ease": EASE(l2=2.0), "slim": SLIM(l2=1.0)}, at=3, random_state=0).fit(x)
    wanted = np.zeros_like(a)
    for name, share in model.shares_.items():
        s = a @ weights(model.members_[name])
        size = np.sqrt(np.mean(s**2, axis=1, keepdims=True))
        wanted += share * s / np.where(size > 0, size, 1.0)  # a user without items has no scores
    np.testing.assert_allclose(model.predict(np.arange(60)), wanted, atol=1e-9)
    rng = np.random.default_rng(0)
    truth = rng.random((300, 40)) < 0.1
    truth[:, 0] = True
    # members that know nothing: no mixture of them can gain
    noise = [rng.normal(size=truth.shape) for _ in range(3)]
    found = choose(Pool.of(noise, sparse.csr_array(truth), 5), rng)
    assert found.gain > found.error or sorted(found.shares) == [0.0, 0.0, 1.0]
