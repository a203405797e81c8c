"""The mixture primitives of every engine against the oracle: every kind of covariance, weights,
gaps, blocks, float32, more columns than a tile."""

from __future__ import annotations

import numpy as np
import pytest
from registry import ENGINES
from scipy import sparse

from eckart.engines.cpu.mixtures.layout import WIDE
from eckart.engines.protocol import GapsFound
from eckart.engines.protocol.mixtures import KINDS, Gaussians
from eckart.errors import InputError
from eckart.explain.mixtures.families_discrete import Bernoulli, MultinomialComponents
from eckart.explain.mixtures.families_gaussian import Gaussian
from eckart.io.tables.row_blocks import IteratorBlocks
from eckart.matrix import Counts, Dense, Observed
from oracle import JUDGE

PLAIN = JUDGE
ROWS = 50
kinds = pytest.mark.parametrize("kind", KINDS)


def make(kind: str, n: int = 11, k: int = 5, far: float = 0.0):
    """Rows and components that do not fit them too well, so that shares are spread."""
    rng = np.random.default_rng(3)
    x = 2 * rng.standard_normal((ROWS, n)) + far
    a = rng.standard_normal((k, n, n))
    full = a @ a.transpose(0, 2, 1) / n + 0.3 * np.eye(n)
    spread = {
        "unit": np.empty(0),
        "spherical": rng.random(k) + 0.5,
        "diag": rng.random((k, n)) + 0.5,
        "tied": full[0],
        "full": full,
        "factor": rng.random((k, n)) + 0.5,
    }[kind]
    loadings = rng.standard_normal((k, n, 3)) if kind == "factor" else None
    means = rng.standard_normal((k, n)) + far
    return x, Gaussians(kind, rng.dirichlet(np.ones(k)), means, spread, loadings, x.mean(axis=0))


def holes(x, rng):
    out = x.copy()
    out[rng.random(x.shape) < 0.3] = np.nan
    out[4] = np.nan
    out[5, :-1] = np.nan
    out[20:40] = x[20:40]
    return out


def assert_same(got, want, rtol=1e-9):
    assert type(got) is type(want)
    for name, value in vars(want).items():
        if isinstance(value, str):
            continue
        a, b = np.asarray(getattr(got, name)), np.asarray(value)
        np.testing.assert_allclose(
            a,
            np.broadcast_to(b, a.shape) if name == "seen" else b,
            rtol=rtol,
            atol=rtol * np.abs(b).max(),
            err_msg=name,
        )


@pytest.mark.parametrize("k", [1, 3, 19])
@pytest.mark.parametrize("kind", ["tied", "full"])
@pytest.mark.parametrize("share", [0.05, 0.5, 0.9])
def test_gaps_of_every_share_with_patterns_that_return(engine, kind, k, share):
    """Both ways to complete a row (few entries are missing, few are there), fewer and more
    components than lanes of a register, rows that share a pattern."""
    rng = np.random.default_rng(8)
    x, theta = make(kind, k=k)
    patterns = rng.random((6, x.shape[1])) < share
    x[patterns[rng.integers(0, 6, len(x))]] = np.nan
    weights = rng.random(len(x))
    assert_same(
        engine.gaussian_statistics(engine.put(Dense(x), weights), theta),
        PLAIN.gaussian_statistics(PLAIN.put(Dense(x), weights), theta),
    )
    got, want = (
        e.gaussian_posteriors(e.put(Dense(x)), theta, shares=True) for e in (engine, PLAIN)
    )
    # 0 where nothing is seen
    np.testing.assert_allclose(engine.get(got.loglik), want.loglik, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(engine.get(got.shares), want.shares, atol=1e-9)


@kinds
@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_statistics(engine, kind, gaps, weighted):
    x, theta = make(kind)
    rng = np.random.default_rng(1)
    x = holes(x, rng) if gaps else x
    w = rng.random(ROWS) * (rng.random(ROWS) < 0.8) if weighted else None
    placed = PLAIN.put(Dense(x), w)
    assert_same(
        engine.gaussian_statistics(engine.put(Dense(x), w), theta),
        PLAIN.gaussian_statistics(placed, theta),
    )


@kinds
@pytest.mark.parametrize(("n", "k"), [(1, 1), (2, 7), (8, 3), (17, 4)])
def test_statistics_of_every_width(engine, kind, n, k):
    x, theta = make(kind, n, k)
    assert_same(
        engine.gaussian_statistics(Dense(x), theta), PLAIN.gaussian_statistics(Dense(x), theta)
    )


@pytest.mark.parametrize("kind", ["full", "tied"])
@pytest.mark.parametrize("far", [0.0, 1e5])
def test_wide_rows(engine, kind, far):
    x, theta = make(kind, WIDE + 3, 3, far)
    rng = np.random.default_rng(0)
    x, w = (
        np.tile(theta.means, (2, 1)) + rng.standard_normal((6, WIDE + 3)),
        rng.random(6) + 0.1,
    )  # two rows of each: without any a mean says nothing
    x[3, 7] = np.nan
    placed = PLAIN.put(Dense(x), w)
    assert_same(
        engine.gaussian_statistics(engine.put(Dense(x), w), theta),
        PLAIN.gaussian_statistics(placed, theta),
        1e-6,
    )
    got, want = (e.gaussian_posteriors(Dense(x), theta, shares=True) for e in (engine, PLAIN))
    np.testing.assert_allclose(got.loglik, want.loglik, rtol=1e-8)


@kinds
def test_far_from_zero_nothing_cancels(engine, kind):
    x, theta = make(kind, far=1e6)
    near = make(kind)[0]
    got = engine.gaussian_statistics(Dense(x), theta)
    want = PLAIN.gaussian_statistics(Dense(near), make(kind)[1])
    np.testing.assert_allclose(got.counts, want.counts, rtol=1e-6)
    if kind not in ("factor",):
        np.testing.assert_allclose(
            got.scatter, want.scatter, rtol=1e-6, atol=1e-6 * np.abs(want.scatter).max()
        )


@kinds
def test_the_way_rows_come_does_not_matter(engine, kind):
    x, theta = make(kind)
    gaps = holes(x, np.random.default_rng(1))
    want = PLAIN.gaussian_statistics(Dense(gaps), theta)
    blocks = Dense(IteratorBlocks([gaps[i : i + 7] for i in range(0, ROWS, 7)]))
    for matrix in (blocks, Observed.from_nan(gaps), Dense(np.asfortranarray(gaps))):
        assert_same(engine.gaussian_statistics(matrix, theta), want)
    rounded = Dense(x.astype(np.float32))
    assert_same(
        engine.gaussian_statistics(rounded, theta), PLAIN.gaussian_statistics(rounded, theta)
    )


@kinds
def test_parts_merge_to_the_whole(kind):
    x, theta = make(kind)
    engine = ENGINES["cpu, 1 thread"]
    a, b = (engine.gaussian_statistics(Dense(part), theta) for part in (x[:31], x[31:]))
    assert_same(a.merge(b), engine.gaussian_statistics(Dense(x), theta))
    twice = engine.gaussian_statistics(engine.put(Dense(x), np.full(ROWS, 2.0)), theta)
    assert_same(engine.gaussian_statistics(Dense(x), theta).scaled(2.0), twice)


@kinds
def test_posteriors(engine, kind):
    x, theta = make(kind)
    x = holes(x, np.random.default_rng(1))
    got = engine.gaussian_posteriors(Dense(x), theta, shares=True, fill=True)
    want = PLAIN.gaussian_posteriors(Dense(x), theta, shares=True, fill=True)
    for a, b in zip(got, want):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9)
    assert engine.gaussian_posteriors(Dense(x), theta).shares is None


@kinds
def test_threads_do_not_change_a_bit(kind):
    rng = np.random.default_rng(0)
    _, theta = make(kind, 6)
    x = Dense(rng.standard_normal((60000, 6)))
    a, b = (
        e.gaussian_statistics(x, theta) for name, e in ENGINES.items() if name.startswith("cpu")
    )
    for name, value in vars(a).items():
        assert (
            isinstance(value, str)
            or np.asarray(value).tobytes() == np.asarray(getattr(b, name)).tobytes()
        ), name


@kinds
def test_infinity_is_refused_with_its_place(engine, kind):
    x, theta = make(kind)
    x[7, 2] = np.inf
    for work in (engine.gaussian_statistics, engine.gaussian_posteriors):
        with pytest.raises(InputError, match="inf at row 7, column 2"):
            work(Dense(x), theta)


def test_ill_conditioned_covariance_keeps_its_digits(engine):
    """Condition 1e9: the triangular form is as good as LAPACK's."""
    rng = np.random.default_rng(2)
    q = np.linalg.qr(rng.standard_normal((12, 12)))[0]
    s = (q * np.geomspace(1e-8, 10, 12)) @ q.T
    x = rng.multivariate_normal(np.full(12, 30.0), s, 50, method="svd")
    theta = Gaussians(
        "full",
        np.array([0.5, 0.5]),
        np.stack([np.full(12, 30.0), np.full(12, -30.0)]),
        np.stack([s, s]),
    )
    got = engine.gaussian_posteriors(Dense(x), theta).loglik
    whitened = np.linalg.solve(np.linalg.cholesky(s), (x - 30.0).T)
    want = np.log(0.5) - 0.5 * (np.linalg.slogdet(2 * np.pi * s)[1] + (whitened**2).sum(axis=0))
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_exp_of_the_kernel_is_exact_to_rounding():
    from eckart.engines.cpu.mixtures.kernels import exp_below

    a = np.linspace(-60, 0, 4097)
    powers, parts = np.empty(4097), np.empty(4097)
    got = a.copy()
    exp_below(got, np.zeros(4097), powers, parts, parts.view(np.int64), powers.view(np.int64))
    want = np.where(a >= -46, np.exp(a), 0.0)
    np.testing.assert_allclose(got, want, rtol=4e-16 * 2)


def placed(x, gaps=False, weighted=True):
    """Rows as one array, as row blocks, in float32 and as sparse entries, with weights of which
    some are zero."""
    rng = np.random.default_rng(5)
    w = rng.random(len(x)) * (rng.random(len(x)) < 0.8) if weighted else None
    x = holes(x, rng) if gaps else x
    yield Dense(x), w
    yield Dense(IteratorBlocks([x[i : i + 7] for i in range(0, len(x), 7)])), w
    yield Dense(x.astype(np.float32)), w
    yield Observed.from_nan(x), w
    if not gaps:
        yield Counts.from_scipy(sparse.csr_array(np.where(x > 1, x, 0.0))), w


@pytest.mark.parametrize("kind", ["unit", "spherical", "diag", "tied", "full"])
@pytest.mark.parametrize("n", [1, 11, WIDE + 1])
def test_statistics_with_shares_that_are_given(engine, kind, n):
    rng = np.random.default_rng(0)
    x = make("unit", n)[0] + 100
    q = rng.dirichlet(np.ones(5), ROWS) * (rng.random((ROWS, 5)) < 0.7)
    q[:, 3] = 0.0  # a component without rows
    for matrix, w in placed(x):
        if matrix.shape[0] is None:
            continue  # a sample is in memory
        got, want = (e.share_statistics(e.put(matrix, w), q, kind) for e in (engine, PLAIN))
        assert_same(got, want)
    with pytest.raises(GapsFound):
        engine.share_statistics(Dense(np.where(x > x.mean(), x, np.nan)), q, kind)


def test_distances_and_groups(engine):
    x = make("unit", 11)[0]
    x[7] = x[3]
    centres = x[[3, 8, 7, 20]]  # the third never wins over the first, which is as near
    for matrix, w in placed(x):
        if matrix.shape[0] is None:
            continue  # a sample is in memory
        ours, plain = engine.put(matrix, w), PLAIN.put(matrix, w)
        np.testing.assert_allclose(
            engine.distances(ours, centres), PLAIN.distances(plain, centres), rtol=1e-9, atol=1e-5
        )
        np.testing.assert_array_equal(engine.nearest(ours, centres), PLAIN.nearest(plain, centres))
        for got, want in zip(engine.group_sums(ours, centres), PLAIN.group_sums(plain, centres)):
            np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)
    parts = [engine.group_sums(engine.put(Dense(part)), centres) for part in (x[:20], x[20:])]
    for got, want in zip(parts[0].merge(parts[1]), PLAIN.group_sums(PLAIN.put(Dense(x)), centres)):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("gaps", [False, True])
def test_rows_and_patterns(engine, gaps):
    x = make("unit", 11)[0]
    for matrix, w in placed(x, gaps):
        ours, plain = engine.put(matrix, w), PLAIN.put(matrix, w)
        for rows in (None, np.array([0, 3, 49]), np.array([40, 49, 50, 1000])):
            got = engine.rows_at(ours, rows)
            np.testing.assert_array_equal(got, PLAIN.rows_at(plain, rows))
            assert got.dtype == matrix.dtype
        found = {mask.tobytes(): rows.tolist() for rows, mask in engine.gap_patterns(ours)}
        assert found == {mask.tobytes(): rows.tolist() for rows, mask in PLAIN.gap_patterns(plain)}


@pytest.mark.parametrize("family", [Bernoulli(), MultinomialComponents(), Gaussian("diag")])
def test_families(engine, family):
    """Sums of a family's own; ``check_family`` refuses the first bad row, whatever the number of
    threads."""
    rng = np.random.default_rng(0)
    x = (rng.random((ROWS, 6)) < 0.4).astype(float)
    w = rng.random(ROWS) * (rng.random(ROWS) < 0.8)
    parameters, weights = (
        family.weighted_fit(x, rng.dirichlet(np.ones(3), ROWS)),
        np.array([0.2, 0.3, 0.5]),
    )
    ours, plain = engine.put(Dense(x), w), PLAIN.put(Dense(x), w)
    if hasattr(family, "statistics"):
        got, want = (
            e.family_statistics(e.put(Dense(x), w), family, weights, parameters)
            for e in (engine, PLAIN)
        )
        np.testing.assert_allclose(got[0], want[0])
        np.testing.assert_allclose(got[1], want[1])
        np.testing.assert_allclose(got[2], want[2])
        for name, a in want[3].arrays.items():
            np.testing.assert_allclose(got[3].arrays[name], a)
    else:
        got, want = (
            e.gaussian_posteriors(
                e.put(Dense(x)), family.gaussians(weights, parameters), shares=True
            )
            for e in (engine, PLAIN)
        )
        by_hand = PLAIN.family_posteriors(plain, family, weights, parameters)
        np.testing.assert_allclose(by_hand.shares, want.shares, rtol=1e-8)
    a, b = (
        e.family_posteriors(p, family, weights, parameters)
        for e, p in ((engine, ours), (PLAIN, plain))
    )
    np.testing.assert_allclose(a.loglik, b.loglik)
    np.testing.assert_allclose(a.shares, b.shares, atol=1e-12)
    engine.check_family(ours, family)
    x[[30, 40], 2] = np.nan
    if getattr(family, "gaps", False):
        engine.check_family(engine.put(Dense(x)), family)
    else:
        with pytest.raises(GapsFound, match="row 30, column 2"):
            engine.check_family(engine.put(Dense(x)), family)
    x[45, 1] = np.inf
    with pytest.raises(InputError, match="inf at row 45, column 1"):
        engine.check_family(engine.put(Dense(x)), family)


@pytest.mark.parametrize("kind", ["counts", "gaps", "entries"])
@pytest.mark.parametrize("family", [Bernoulli(), MultinomialComponents()])
def test_families_of_sparse_rows_and_of_rows_with_gaps(engine, family, kind):
    rng = np.random.default_rng(1)
    most = 1 if hasattr(family, "gaps") else 3
    x = rng.integers(0, most, (ROWS, 6), endpoint=True).astype(np.float32)
    x[7] = 0
    w, weights = rng.random(ROWS) * (rng.random(ROWS) < 0.8), np.array([0.2, 0.8, 0.0])
    parameters = family.weighted_fit(x.astype(np.float64), rng.dirichlet(np.ones(3), ROWS))
    if kind != "counts":
        if not hasattr(family, "gaps"):
            pytest.skip("counts with gaps are refused")
        x[rng.random(x.shape) < 0.3] = np.nan
        x[9] = np.nan
    matrix = {
        "counts": lambda: Counts.from_scipy(sparse.csr_array(x)),
        "gaps": lambda: Dense(x),
        "entries": lambda: Observed.from_nan(x),
    }[kind]()
    engine.check_family(engine.put(matrix, w), family)
    got, want = (
        e.family_statistics(e.put(matrix, w), family, weights, parameters) for e in (engine, PLAIN)
    )
    np.testing.assert_allclose(got[:2], want[:2])
    np.testing.assert_allclose(got[2], want[2])
    for name, a in want[3].arrays.items():
        np.testing.assert_allclose(got[3].arrays[name], a, atol=1e-12 * ROWS)
    a, b = (
        e.family_posteriors(e.put(matrix), family, weights, parameters) for e in (engine, PLAIN)
    )
    np.testing.assert_allclose(a.loglik, b.loglik)
    np.testing.assert_allclose(a.shares, b.shares, atol=1e-12)
