"""Rows with gaps on a device, where the CPU engine would give the same answers: that they were made
there, group by group, whatever the groups are."""

from __future__ import annotations

from dataclasses import replace
from weakref import ref

import numpy as np
import pytest
from scipy import sparse
from test_mixture_contract import assert_same, make

torch = pytest.importorskip("torch", reason="the engine needs PyTorch")

from registry import DEVICE, JUDGE, Fetched  # noqa: E402

from eckart.engines import engine_named  # noqa: E402
from eckart.engines.cuda import made  # noqa: E402
from eckart.engines.cuda.held import DeviceMatrix  # noqa: E402
from eckart.engines.protocol.mixtures import Gaussians  # noqa: E402
from eckart.explain.mixtures.families_discrete import Bernoulli, MultinomialComponents  # noqa: E402
from eckart.io.tables.row_blocks import IteratorBlocks  # noqa: E402
from eckart.matrix import Counts, Dense, Observed  # noqa: E402

CPU = engine_named("cpu", 1)


@pytest.fixture(params=["torch"])
def device(request):
    """An engine of its own, whose room holds some rows alone."""
    engine = made(1, DEVICE)
    engine.room.chunk = engine.room.block = 2**15
    return engine


def gappy(rows: int, n: int, seed: int = 0) -> np.ndarray:
    """Rows of which a third are complete, a third have one of two patterns, and the rest gaps of
    their own; one without any entry, one column hardly seen."""
    rng = np.random.default_rng(seed)
    x = 2 * rng.standard_normal((rows, n))
    third = rows // 3
    x[third : 2 * third : 2, 0] = np.nan
    x[third + 1 : 2 * third : 2, 1:3] = np.nan
    rest = x[2 * third :]
    rest[rng.random(rest.shape) < 0.4] = np.nan
    x[-1], x[1:, n - 1] = np.nan, np.nan
    return x[rng.permutation(rows)]


@pytest.mark.parametrize("kind", ["unit", "spherical", "diag", "tied", "full", "factor"])
@pytest.mark.parametrize("form", ["rows", "float32", "entries"])
def test_mixtures_of_rows_with_gaps(device, kind, form):
    x = gappy(420, 5).astype(np.float32 if form == "float32" else np.float64)
    matrix = Observed.from_nan(x) if form == "entries" else Dense(x)
    theta, rng = make(kind, 5, 3)[1], np.random.default_rng(1)
    w = rng.random(420) * (rng.random(420) < 0.8)
    assert_same(
        device.gaussian_statistics(device.put(matrix, w), theta),
        JUDGE.gaussian_statistics(JUDGE.put(matrix, w), theta),
    )
    placed = device.put(matrix)
    for given in ({}, {"shares": True}, {"fill": True}):
        for got, want in zip(
            device.gaussian_posteriors(placed, theta, **given),
            JUDGE.gaussian_posteriors(matrix, theta, **given),
        ):
            assert (got is None) == (want is None)
            if want is not None:
                np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-9)
    assert not device.fallen & {"gaussian_statistics", "gaussian_posteriors"}


@pytest.mark.parametrize("kind", ["diag", "tied", "full"])
def test_more_columns_than_a_word_has_bits(device, kind):
    """Patterns that differ in the last columns alone are two patterns."""
    x = np.random.default_rng(2).standard_normal((140, 70))
    x[::2, 68], x[1::2, 69] = np.nan, np.nan
    theta = make(kind, 70, 2)[1]
    assert_same(
        device.gaussian_statistics(Dense(x), theta), JUDGE.gaussian_statistics(Dense(x), theta)
    )
    assert not device.fallen


def test_small_components_far_apart_keep_their_digits(device):
    """Spreads of 1e-5 at distances of a thousand: a square that is expanded would be wrong in its
    third digit."""
    rng = np.random.default_rng(3)
    means = 1e3 * rng.standard_normal((3, 4))
    x = means[rng.integers(0, 3, 90)] + 1e-5 * rng.standard_normal((90, 4))
    x[rng.random(x.shape) < 0.3] = np.nan
    theta = Gaussians("diag", np.full(3, 1 / 3), means + 1e-5, np.full((3, 4), 1e-10))
    got, want = (e.gaussian_statistics(Dense(x), theta) for e in (device, JUDGE))
    assert_same(got, want, 1e-6)
    np.testing.assert_allclose(got.scatter, want.scatter, rtol=1e-5)
    assert not device.fallen


@pytest.mark.parametrize("kind", ["full", "factor"])
def test_complete_rows_are_filled_with_themselves(device, kind):
    x, theta = make(kind, 4, 2)
    got = device.gaussian_posteriors(Dense(x), theta, fill=True)
    np.testing.assert_array_equal(got.filled, x)
    np.testing.assert_array_equal(got.variance, np.zeros_like(x))
    counts = Counts.from_scipy(sparse.csr_array(np.where(x > 1, x, 0.0)))
    assert_same(device.gaussian_statistics(counts, theta), JUDGE.gaussian_statistics(counts, theta))
    assert not device.fallen


def test_factors_of_a_stream_and_of_rows_far_from_the_mean(device):
    """Complete rows in several blocks, weights and all; loadings large against the spread cost no
    digits that matter."""
    x, theta = make("factor", 11, 3)
    theta = replace(theta, loadings=1e3 * theta.loadings)
    w = np.linspace(0, 2, len(x))
    device.room.chunk, device.room.block = 2**14, 2**10
    want = JUDGE.gaussian_statistics(JUDGE.put(Dense(x), w), theta)
    for values in (x, IteratorBlocks([x[i : i + 7] for i in range(0, len(x), 7)])):
        got = device.gaussian_statistics(device.put(Dense(values), w), theta)
        assert_same(got, want, 1e-6)
    assert not device.fallen


def test_a_covariance_without_a_root_is_mended(device):
    """Rounding left it indefinite: its eigenvalues are raised, on the device as on the CPU."""
    x = gappy(60, 4)
    singular = np.ones((2, 4, 4)) - 1e-15 * np.eye(4)
    theta = Gaussians("full", np.array([0.5, 0.5]), np.zeros((2, 4)), singular)
    got, want = (e.gaussian_statistics(Dense(x), theta) for e in (device, CPU))
    assert np.isfinite(want.bound)
    assert np.isfinite(got.bound)
    np.testing.assert_allclose(got.counts, want.counts, rtol=0.02)  # of condition 1e15
    found = device.gaussian_posteriors(Dense(x), theta, shares=True)
    assert np.isfinite(found.loglik).all()
    np.testing.assert_allclose(found.shares.sum(axis=1), 1.0)
    assert not device.fallen


@pytest.mark.parametrize("patterns", [0, 4])
def test_gaps_of_one_gaussian_in_many_blocks(device, patterns):
    """Blocks of some rows, cut inside runs of rows with the same gaps; sums are added as they come
    and not held for all blocks."""
    rng = np.random.default_rng(8)
    x = rng.standard_normal((300, 9)) + 3
    x[
        (rng.random((patterns, 9)) < 0.4)[rng.integers(0, patterns, 300)]
        if patterns
        else rng.random(x.shape) < 0.4
    ] = np.nan
    seen, w, mean = Observed.from_nan(x), rng.standard_normal((9, 4)), rng.standard_normal(9)
    device.room.chunk = 2**12
    placed = device.put(seen)
    want = JUDGE.gap_statistics(seen, w, mean, 0.7)
    for _ in range(2):  # found runs, then kept ones
        for got, right in zip(device.gap_statistics(placed, w, mean, 0.7), want):
            np.testing.assert_allclose(got, right, rtol=1e-9, atol=1e-9 * np.abs(right).max())
    for got, right in zip(
        Fetched(device).gap_codes(placed, w, mean, 0.7), JUDGE.gap_codes(seen, w, mean, 0.7)
    ):
        np.testing.assert_allclose(got, right, rtol=1e-8, atol=1e-9)
    assert not device.fallen


def test_noise_that_rounding_hides_is_left_to_the_cpu(device):
    """Fewer entries than codes and a noise below the rounding of W^T W: there is no Cholesky
    factor."""
    rng = np.random.default_rng(9)
    x = rng.standard_normal((40, 9))
    x[:, 3:] = np.nan
    seen, (u, _) = Observed.from_nan(x), np.linalg.qr(rng.standard_normal((9, 6)))
    gain, mean = np.ones(6), np.zeros(9)
    assert np.isfinite(device.gap_statistics(seen, u * gain, mean, 1e-17).loglik)
    host = Fetched(device)
    assert np.isfinite(host.gap_codes(seen, u * gain, mean, 1e-17).loglik).all()
    assert np.isfinite(host.gap_expect(seen, u, gain, mean, 1e-17)).all()


@pytest.mark.parametrize("family", [Bernoulli(), MultinomialComponents()])
def test_families_of_many_blocks(device, family):
    """Dense rows that lie on the device and rows that stream through it, weights and all."""
    rng = np.random.default_rng(1)
    x = rng.integers(0, 1, (700, 6), endpoint=True).astype(np.float64)
    w, weights = rng.random(700) * (rng.random(700) < 0.8), np.array([0.2, 0.8, 0.0])
    parameters = family.weighted_fit(x, rng.dirichlet(np.ones(3), 700))
    device.room.block = 2**10
    want = JUDGE.family_statistics(JUDGE.put(Dense(x), w), family, weights, parameters)
    for values in (x, IteratorBlocks([x[i : i + 70] for i in range(0, 700, 70)])):
        placed = device.put(Dense(values), w)
        device.check_family(placed, family)
        got = device.family_statistics(placed, family, weights, parameters)
        np.testing.assert_allclose(got[:2], want[:2])
        np.testing.assert_allclose(got[2], want[2])
        for name, a in want[3].arrays.items():
            np.testing.assert_allclose(got[3].arrays[name], a)
        a, b = (
            e.family_posteriors(m, family, weights, parameters)
            for e, m in ((device, placed), (JUDGE, Dense(x)))
        )
        np.testing.assert_allclose(a.loglik, b.loglik)
    assert not device.fallen


def test_a_stream_with_gaps_passes_through_the_device(device):
    x = gappy(140, 6)
    x = np.where(np.isnan(x), np.nan, x > 0)
    rng, family = np.random.default_rng(1), Bernoulli()
    parameters = family.weighted_fit(np.nan_to_num(x), rng.dirichlet(np.ones(2), 140))
    stream = Dense(IteratorBlocks([x[i : i + 70] for i in range(0, 140, 70)]))
    got, want = (
        e.family_statistics(e.put(m), family, np.array([0.5, 0.5]), parameters)
        for e, m in ((device, stream), (JUDGE, Dense(x)))
    )
    np.testing.assert_allclose(got[1], want[1])
    rows = np.random.default_rng(2).standard_normal((140, 6))
    rows[x == 0] = np.nan
    rows[np.isnan(x)] = np.nan
    theta = make("full", 6, 2)[1]
    stream = Dense(IteratorBlocks([rows[i : i + 70] for i in range(0, 140, 70)]))
    assert_same(
        device.gaussian_statistics(stream, theta), JUDGE.gaussian_statistics(Dense(rows), theta)
    )
    assert not device.fallen


@pytest.mark.parametrize("family", [Bernoulli(), MultinomialComponents()])
def test_blocks_of_a_stream_are_let_go(device, family, monkeypatch):
    """Rows that have no room on the device pass through it: no more than two blocks are there at
    once."""
    alive, most, blocks = [], [0], DeviceMatrix.blocks

    def watched(self, watch=None):
        for start, block in blocks(self, watch):
            alive[:] = [one for one in alive if one() is not None] + [ref(block)]
            most[0] = max(most[0], len(alive))
            yield start, block

    monkeypatch.setattr(DeviceMatrix, "blocks", watched)
    rng = np.random.default_rng(1)
    x = rng.integers(0, 1, (1400, 6), endpoint=True).astype(np.float64)
    parameters = family.weighted_fit(x, rng.dirichlet(np.ones(2), 1400))
    device.room.block = 2**10
    placed = device.put(Dense(IteratorBlocks([x[i : i + 100] for i in range(0, 1400, 100)])))
    device.check_family(placed, family)
    device.family_statistics(placed, family, np.array([0.5, 0.5]), parameters)
    assert most[0] == 2
