"""Soft-Impute: the minimiser of 1/2 ||Pi(A - B)||^2 + tau ||B||_*, its path, its duality gap, and
the engine's sampled products."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import eckart
from eckart.certify.nuclear import gap_certificate
from eckart.complete.nuclear import soft_impute
from eckart.complete.nuclear.operators import (
    Operator,
    norms,
    partial_svd,
    randomized_svd,
    rank_one,
    shrink,
)
from eckart.complete.nuclear.soft_impute import SoftImpute
from eckart.engines import engine_named
from eckart.engines.cpu.engine import CpuEngine
from eckart.factors import LowRank
from eckart.matrix import Observed
from eckart.optim.tangent import Sampling
from eckart.trace import StopReason

ODD = {
    "equal": np.full((4, 3), 2.0),
    "one": np.array([[np.nan, 3.0], [np.nan, np.nan]]),
    "empty row and column": np.array(
        [[1.0, np.nan, 2.0], [np.nan, np.nan, np.nan], [2.0, np.nan, 4.0]]
    ),
    "blocks": np.array(
        [[1.0, 2.0, np.nan, np.nan], [2.0, 4.0, np.nan, np.nan], [np.nan, np.nan, 1.0, 1.0]]
    ),
    "zeros": np.zeros((3, 3)),
}
"""Tables that every solver of this family has an answer for."""


def planted(seed=0, n=60, m=50, k=3, share=0.5, noise=0.05, dtype=np.float64):
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((n, k)) @ rng.standard_normal((k, m))
    seen = rng.random((n, m)) < share
    return a, np.where(seen, a + noise * rng.standard_normal((n, m)), np.nan).astype(dtype)


def random_observed(seed, n=23, m=17, share=0.3, dtype=np.float64):
    rng = np.random.default_rng(seed)
    x = sparse.random_array((n, m), density=share, rng=rng, format="csr", dtype=np.float64).astype(
        dtype
    )
    x.data -= 0.5
    return Observed.from_scipy(x)


def value(x, b, tau):
    return 0.5 * np.nansum((x - b) ** 2) + tau * np.linalg.svd(b, compute_uv=False).sum()


def whole(model):
    return np.concatenate([block for _, block in model.complete(keep=False)])


def test_threads_do_not_change_the_bits():
    _, x = planted(n=600, m=500, share=0.4)
    one, two = (
        SoftImpute(tau=2.0, n_threads=t, random_state=0).fit(x).fit_.factors for t in (1, 3)
    )
    assert one.left.tobytes() == two.left.tobytes()
    assert one.right.tobytes() == two.right.tobytes()


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.05, 3.0))
def test_shrink_is_the_proximal_map_of_the_nuclear_norm(seed, tau):
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((9, 7))
    full = partial_svd(_op(a), 7, rng=rng, tol=1e-12)
    low, lower = shrink(full, tau), shrink(full, 1.5 * tau)
    b = (low.left * low.values) @ low.right.T
    best = 0.5 * np.sum((a - b) ** 2) + tau * low.values.sum()
    for _ in range(5):
        c = b + 0.05 * rng.standard_normal(b.shape)
        assert 0.5 * np.sum((a - c) ** 2) + tau * np.linalg.svd(c, compute_uv=False).sum() >= best
    assert len(lower.values) <= len(low.values)


def _op(a):
    from eckart.complete.nuclear.operators import operator

    return operator(a)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6))
def test_norms_and_best_rank_k(seed, k):
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((12, 8))
    s = np.linalg.svd(a, compute_uv=False)
    facts = norms(s)
    assert facts.frobenius**2 == pytest.approx(np.sum(a**2))
    assert facts.spectral == pytest.approx(np.linalg.norm(a, 2))
    assert facts.nuclear == pytest.approx(np.linalg.norm(a, "nuc"))
    found = partial_svd(_op(a), k, rng=rng, tol=1e-12)
    error = np.sum((a - (found.left * found.values) @ found.right.T) ** 2)
    assert error == pytest.approx(facts.tails[k], abs=1e-9)


def test_rank_one_by_alternation():
    a = np.random.default_rng(0).standard_normal((30, 20))
    u, sigma, v = rank_one(a, random_state=0)
    s = np.linalg.svd(a, compute_uv=False)
    assert sigma == pytest.approx(s[0])
    assert np.sum((a - sigma * np.outer(u, v)) ** 2) == pytest.approx(np.sum(s[1:] ** 2))
    assert rank_one(np.zeros((3, 2)), random_state=0)[1] == 0.0


@pytest.mark.parametrize("single_pass", [False, True])
def test_randomized_svd_on_any_operator(single_pass):
    from scipy.sparse.linalg import aslinearoperator

    rng = np.random.default_rng(0)
    a = (rng.standard_normal((80, 60)) * 0.5 ** np.arange(60)) @ np.linalg.qr(
        rng.standard_normal((60, 60))
    )[0]
    s = np.linalg.svd(a, compute_uv=False)
    for kind in (a, sparse.csr_array(a), aslinearoperator(a)):
        u, found, v = randomized_svd(kind, 5, single_pass=single_pass, random_state=0)
        assert np.allclose(found, s[:5], rtol=1e-2 if single_pass else 1e-6)
        assert np.allclose(u.T @ u, np.eye(5), atol=1e-10)
        assert np.linalg.norm(a - (u * found) @ v.T, 2) <= (3 if single_pass else 1.01) * s[5]
    u, found, v = randomized_svd(np.ones((6, 4)), 3, random_state=0)
    assert found.round(9).tolist() == [pytest.approx(24**0.5), 0.0, 0.0]
    assert np.allclose(v.T @ v, np.eye(3))
    with pytest.raises(
        eckart.InputError, match="k must be 0 to 4 for a matrix of 6 rows and 4 columns, got 9"
    ):
        randomized_svd(np.ones((6, 4)), 9)


def test_sparse_plus_low_rank_and_warm_start():
    x = random_observed(3, 40, 30)
    rng = np.random.default_rng(0)
    u, v = (np.linalg.qr(rng.standard_normal((n, 3)))[0] for n in (40, 30))
    z = Operator(Sampling(x, engine_named()), x.data, u, np.array([5.0, 4.0, 3.0]), v)
    dense = x.to_scipy().toarray() + (u * [5.0, 4.0, 3.0]) @ v.T
    s = np.linalg.svd(dense, compute_uv=False)
    cold = partial_svd(z, 4, rng=rng, tol=1e-10)
    assert np.allclose(cold.values, s[:4])
    assert np.allclose(dense @ cold.right, cold.left * cold.values, atol=1e-8)
    warm = partial_svd(z, 4, rng=rng, tol=1e-8, start=cold.right)
    assert warm.products < cold.products / 2
    assert np.allclose(warm.values, s[:4])


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.3, 1.0, 4.0]))
def test_descent_and_proximal_reach_the_same_minimum(seed, tau):
    _, x = planted(seed, 30, 25, 2)
    fast = SoftImpute(tau=tau, tol=1e-6, random_state=0).fit(x)
    slow = SoftImpute(tau=tau, tol=1e-6, method="proximal", random_state=0, max_iter=5000).fit(x)
    a, b = value(x, whole(fast), tau), value(x, whole(slow), tau)
    assert a <= b * (1 + 1e-5)
    assert fast.certificate_.holds


def test_proximal_steps_end_at_a_small_duality_gap():
    """Momentum swings around the minimum: on this table F stood still for a step at a gap of ten
    times the tolerance."""
    rng = np.random.default_rng(901_002_703)
    a = rng.standard_normal((14, 2)) @ rng.standard_normal((2, 12)) + 0.1 * rng.standard_normal(
        (14, 12)
    )
    a[rng.random(a.shape) < 0.3] = np.nan
    tau = 0.1 * np.linalg.norm(np.nan_to_num(a), 2)
    model = SoftImpute(
        tau=tau, method="proximal", tol=1e-5, max_iter=20_000, random_state=901_002_703
    ).fit(a)
    assert model.fit_.trace.reason is StopReason.CONVERGED
    assert model.certificate_.holds
    limited = SoftImpute(
        1, tau=tau, method="proximal", tol=1e-5, max_iter=20_000, random_state=901_002_703
    ).fit(a)
    assert (
        limited.fit_.trace.reason is StopReason.CONVERGED
    )  # a rank that is asked for is no minimum over all ranks, and the fit ends
    assert not limited.certificate_.holds


def test_answer_is_zero_from_tau_max_on():
    _, x = planted()
    top, second = np.linalg.svd(np.nan_to_num(x), compute_uv=False)[:2]
    assert SoftImpute(tau=1.001 * top, random_state=0).fit(x).rank_ == 0
    low = SoftImpute(tau=(top + second) / 2, random_state=0).fit(x)
    assert low.rank_ == 1
    assert low.certificate_.holds


def test_path_goes_down_from_tau_max_and_keeps_singular_values():
    _, x = planted()
    model = SoftImpute(tau=1.0, path=6, random_state=0).fit(x)
    assert len(model.path_taus_) == 6
    assert (np.diff(model.path_taus_) < 0).all()
    assert np.allclose(model.path_singular_values_[-1], model.singular_values_)
    misfits = [p.sum() for p in model.path_singular_values_]
    assert misfits == sorted(misfits)  # the nuclear norm grows as its price falls
    alone = SoftImpute(tau=1.0, random_state=0).fit(x)
    assert np.allclose(alone.singular_values_, model.singular_values_, rtol=1e-2)


def test_debiasing_takes_the_shrinkage_back():
    a, x = planted(noise=0.02)
    shrunk = SoftImpute(tau=3.0, random_state=0).fit(x)
    free = SoftImpute(tau=3.0, debias=True, random_state=0).fit(x)
    assert free.rank_ == shrunk.rank_ == 3
    assert np.linalg.norm(whole(free) - a) < 0.3 * np.linalg.norm(whole(shrunk) - a)
    assert free.certificate_.holds


def test_tau_is_chosen_on_hidden_entries():
    a, x = planted(noise=0.3)
    model = SoftImpute(random_state=0).fit(x)
    errors = [
        np.linalg.norm(whole(SoftImpute(tau=t, random_state=0).fit(x)) - a) for t in (0.05, 20.0)
    ]
    assert np.linalg.norm(whole(model) - a) < min(errors)
    assert model.tau_ > 0


@pytest.mark.parametrize("spoil", ["scale", "noise", "drop"])
def test_certificate_fails_on_a_perturbed_answer(spoil):
    _, x = planted()
    model = SoftImpute(tau=1.0, random_state=0).fit(x)
    f, rng = model.fit_.factors, np.random.default_rng(0)
    changed = {
        "scale": LowRank(1.1 * f.left, f.right),
        "noise": LowRank(f.left + 0.05 * rng.standard_normal(f.left.shape), f.right),
        "drop": LowRank(f.left[:, :-1], f.right[:, :-1]),
    }[spoil]
    entries = Observed.from_nan(x)
    assert gap_certificate(entries, f, 1.0, tol=1e-3, rng=rng, engine=engine_named()).holds
    bad = gap_certificate(entries, changed, 1.0, tol=1e-3, rng=rng, engine=engine_named())
    assert not bad.holds
    assert "duality gap" in bad.reason


def test_gap_bounds_the_distance_from_the_best_value():
    _, x = planted()
    best = SoftImpute(tau=1.0, tol=1e-8, random_state=0).fit(x).certificate_["value"]
    rough = SoftImpute(tau=1.0, tol=0.2, max_iter=3, random_state=0).fit(x).certificate_
    assert rough["no matrix is below"] <= best <= rough["value"]


def test_global_certificate_of_ridge_factors():
    _, x = planted()
    model = SoftImpute(tau=1.0, tol=1e-6, random_state=0).fit(x)
    f, entries = model.fit_.factors, Observed.from_nan(x)
    assert gap_certificate(
        entries, f, 1.0, tol=1e-3, rng=np.random.default_rng(0), engine=engine_named(), ridge=True
    ).holds
    skew = LowRank(2 * f.left, f.right / 2)  # the same matrix, but a larger ridge
    assert not gap_certificate(
        entries,
        skew,
        1.0,
        tol=1e-3,
        rng=np.random.default_rng(0),
        engine=engine_named(),
        ridge=True,
    ).holds
    low = LowRank(f.left[:, :1], f.right[:, :1])
    bad = gap_certificate(
        entries, low, 1.0, tol=1e-3, rng=np.random.default_rng(0), engine=engine_named(), ridge=True
    )
    assert bad["residual norm ||R||_2"] > 1.0
    assert not bad.holds


def test_rank_limit_is_told():
    _, x = planted()
    model = SoftImpute(2, tau=1.0, random_state=0).fit(x)
    assert model.rank_ == 2
    assert not model.certificate_.holds


@pytest.mark.parametrize("x", ODD.values(), ids=ODD)
def test_odd_data_has_a_defined_answer(x):
    model = SoftImpute(tau=0.1, random_state=0).fit(x)
    assert np.isfinite(whole(model)).all()
    assert model.certificate_.holds
    empty = np.isnan(x).all(axis=1)
    assert np.allclose(whole(model)[empty], 0.0)


def test_precision_is_kept_and_bad_arguments_are_named():
    _, x = planted(dtype=np.float32)
    model = SoftImpute(tau=1.0, random_state=0).fit(x)
    assert model.fit_.factors.left.dtype == np.float32
    assert model.certificate_.holds
    for bad, words in (
        ({"tau": -1.0}, r"tau must be None or a number > 0, got -1\.0"),
        ({"tau": 1.0, "method": "x"}, "method must be 'descent' or 'proximal', got 'x'"),
        ({"n_components": 0}, "n_components must be None or an int >= 1, got 0"),
    ):
        with pytest.raises(eckart.InputError, match=words):
            SoftImpute(**bad).fit(x)
    with pytest.raises(eckart.InputError, match="weights"):
        SoftImpute(tau=1.0).fit(x, weights=np.ones_like(x))
    with pytest.raises(AttributeError, match="path=True"):
        _ = model.path_taus_


def test_solver_never_raises_its_objective():
    _, x = planted()
    engine, rng = CpuEngine(1), np.random.default_rng(0)
    found = soft_impute.solve(Observed.from_nan(x), 1.0, engine=engine, rng=rng, start=None)
    tail = found.trace.values[-5:]
    assert all(b <= a * (1 + 1e-12) for a, b in pairwise(tail))


def test_the_chosen_price_is_near_the_best_there_is():
    """tau chosen on hidden entries against the tau of least true error; with debias the planted
    rank is found."""
    rng = np.random.default_rng(5)
    a = rng.standard_normal((50, 2)) @ rng.standard_normal((2, 40))
    x = a + 0.5 * rng.standard_normal(a.shape)
    hidden = rng.random(a.shape) < 0.5
    x[hidden] = np.nan

    def error(**options):
        model = SoftImpute(random_state=0, **options).fit(x)
        filled = model.fit_.factors.block(np.arange(len(a)))
        return float(np.sqrt(np.mean((filled - a)[hidden] ** 2))), model

    chosen, model = error()
    best = min(error(tau=model.tau_ * 1.6**step)[0] for step in (-2, -1, 1, 2))
    assert chosen <= 1.1 * best  # a step of the path away from the least error costs a few percent
    plain, bare = error(debias=True)
    assert bare.rank_ == 2
    assert plain < chosen
