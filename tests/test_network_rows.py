"""Rows for a network: mean and spread from stored entries, and the principal subspace of data with
gaps, without a dense copy."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy import sparse

from eckart import PCA
from eckart.matrix import Counts, Dense, Observed
from eckart.reduce.compare import principal_subspace

torch = pytest.importorskip("torch", reason="networks need PyTorch")

from eckart.nn import batches as rows_module  # noqa: E402
from eckart.nn.batches import NetworkRows, scale_of  # noqa: E402
from eckart.nn.place import DevicePlace  # noqa: E402


@pytest.fixture
def gappy(rng):
    """Far from 0, a stored zero, an empty row and a column without an entry."""
    x = 100 + rng.standard_normal((50, 7))
    x[rng.random(x.shape) < 0.6] = np.nan
    x[4], x[:, 5], x[0, 0] = np.nan, np.nan, 0.0
    return x


def by_hand(x, centered=True):
    """Mean, spread and entries a row of a dense array with NaN at its gaps."""
    seen = ~np.isnan(x)
    count, all_seen = seen.sum(axis=0), x[seen]
    mean = np.where(count, np.nansum(x, axis=0) / np.maximum(count, 1), all_seen.mean()) * centered
    size = np.sqrt(np.mean((x - mean)[seen] ** 2))
    return mean, np.where(count, size, 0.0), len(all_seen) / len(x)


@pytest.mark.parametrize("centered", [True, False])
@pytest.mark.parametrize("block", [2**25, 64])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_mean_and_spread_are_those_of_the_entries(gappy, centered, block, dtype, monkeypatch):
    monkeypatch.setattr(rows_module, "BLOCK_BYTES", block)
    x = gappy.astype(dtype)
    zeros = np.nan_to_num(x)
    for matrix, dense in (
        (Dense(x), x),
        (Observed.from_nan(x), x),
        (Dense(zeros), zeros),
        (Counts.from_scipy(sparse.csr_array(zeros)), zeros),
        (Dense(zeros.astype(int)), zeros.astype(int)),
    ):
        scale = scale_of(matrix, centered)
        mean, spread, per_row = by_hand(dense.astype(np.float64), centered)
        np.testing.assert_allclose(scale.mean, mean, rtol=1e-12)
        np.testing.assert_allclose(scale.spread, spread, rtol=1e-9)
        assert scale.per_row == pytest.approx(per_row)


@pytest.mark.parametrize("kind", [Observed, Counts])
def test_mean_and_spread_of_nothing_and_of_constants(kind):
    nothing = scale_of(kind.from_scipy(sparse.csr_array((3, 2))))
    np.testing.assert_array_equal(nothing.mean, 0)
    np.testing.assert_array_equal(nothing.spread, 0 if kind is Observed else 1)
    constant = scale_of(kind.from_scipy(sparse.csr_array(np.full((3, 2), 1e6))))
    np.testing.assert_array_equal(constant.mean, 1e6)
    np.testing.assert_array_equal(constant.spread, 1)


@pytest.mark.parametrize("kind", [Observed, Counts])
def test_sparse_data_are_scaled_and_start_at_pca_without_a_dense_copy(rng, kind):
    n, m, stored = 3000, 6000, 20_000
    at = rng.integers(0, n, stored), rng.integers(2, m, stored)
    some = sparse.csr_array((1 + rng.random(stored), at), shape=(n, m)).tolil()
    some[:, [0, 1]] = rng.standard_normal((n, 2)) * [100, 50]
    x = kind.from_scipy(some)
    dense = 8 * n * m
    for work, share in ((scale_of, 0.05), (lambda matrix: principal_subspace(matrix, 2), 0.35)):
        work(kind.from_scipy(some[:50]))  # what compiling takes is not on the bill
        tracemalloc.start()
        work(x)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < share * dense


def test_wide_dense_data_are_scaled_in_blocks_of_bounded_size(rng):
    x = rng.standard_normal((4000, 4000)).astype(np.float32)
    tracemalloc.start()
    scale_of(Dense(x))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.6 * 8 * x.size


def test_the_principal_subspace_sees_gaps_at_the_mean_of_their_column(rng):
    x = (
        5
        + rng.standard_normal((80, 4)) @ rng.standard_normal((4, 12))
        + 0.1 * rng.standard_normal((80, 12))
    )
    x[rng.random(x.shape) < 0.3] = np.nan
    want = PCA(3, random_state=0).fit(np.where(np.isnan(x), np.nanmean(x, axis=0), x)).components_
    for matrix in (Dense(x), Observed.from_nan(x)):
        u = principal_subspace(matrix, 3)
        np.testing.assert_allclose(u @ u.T, want.T @ want, atol=1e-8)


def test_rows_that_do_not_fit_the_device_leave_through_pinned_memory(rng, monkeypatch):
    """A place that says "cuda" and a ``to`` that stays here: what is pinned can be seen without a
    GPU."""
    pinned = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda t: pinned.append(tuple(t.shape)) or t)
    monkeypatch.setattr(torch.Tensor, "to", lambda t, *a, **k: t)
    x = rng.standard_normal((20, 3))
    x[0, 0] = np.nan
    rows = NetworkRows(
        Dense(x),
        scale_of(Dense(x)),
        DevicePlace(torch.device("cuda"), torch.float64, resident=False),
        np.arange(20),
    )
    assert pinned == []
    batch = rows.take(rows.index(np.array([3, 4])))
    np.testing.assert_array_equal(batch.y.numpy(), [3, 4])
    assert sorted(pinned) == [(2,), (2, 3), (2, 3)]
