"""NMF: scikit-learn as an oracle, optimality, missing entries, weights, streams, restarts,
manners."""

from __future__ import annotations

import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.decomposition import NMF as Rival
from sklearn.decomposition import non_negative_factorization

import eckart
from eckart import NMF, select_rank
from eckart.engines.cpu.engine import CpuEngine
from eckart.matrix import Counts, Observed
from eckart.trace import StopReason

warnings.filterwarnings("ignore", module="sklearn")
EVERY = [
    NMF(3, random_state=0, max_iter=500),
    NMF(3, random_state=0, beta_loss="kl", max_iter=500),
    NMF(3, init="random", random_state=0, alpha_W=0.01, l1_ratio=0.5, max_iter=500),
]


def parts(rng, rows=60, n=25, k=3, noise=0.02, dtype=np.float64):
    a = rng.gamma(0.5, 1.0, (rows, k)) @ rng.gamma(0.5, 1.0, (k, n))
    return (a + noise * rng.random((rows, n))).astype(dtype)


@pytest.fixture(params=EVERY, ids=lambda e: repr(e)[:70])
def model(request):
    return clone(request.param)


# ---- scikit-learn


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize(
    ("alpha_w", "alpha_h", "ratio"), [(0, 0, 0), (0.01, 0.02, 0.3), (0.02, 0, 1), (0, 0.05, 0)]
)
def test_one_sweep_is_the_coordinate_descent_of_scikit_learn(rng, kind, alpha_w, alpha_h, ratio):
    x = parts(rng)
    w0, h0 = rng.random((60, 4)), rng.random((4, 25))
    w, h, _ = non_negative_factorization(
        x,
        w0.copy(),
        h0.copy(),
        n_components=4,
        init="custom",
        solver="cd",
        max_iter=7,
        tol=0,
        alpha_W=alpha_w,
        alpha_H=alpha_h,
        l1_ratio=ratio,
    )
    ours = NMF(
        4,
        init="custom",
        solver="cd",
        max_iter=7,
        tol=0,
        alpha_W=alpha_w,
        alpha_H=alpha_h,
        l1_ratio=ratio,
    )
    np.testing.assert_allclose(ours.fit_transform(kind(x), W=w0, H=h0), w, atol=1e-9)
    np.testing.assert_allclose(ours.components_, h, atol=1e-9)
    assert ours.reconstruction_err_ == pytest.approx(np.linalg.norm(x - w @ h), rel=1e-9)
    assert ours.n_iter_ == 7


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, Observed.from_nan])
@pytest.mark.parametrize("alpha", [0.0, 0.05])
def test_one_step_is_the_multiplicative_update_of_scikit_learn(rng, kind, alpha):
    x = parts(rng) * (rng.random((60, 25)) < 0.7)
    w0, h0 = rng.random((60, 4)) + 0.1, rng.random((4, 25)) + 0.1
    rival = Rival(
        4,
        init="custom",
        solver="mu",
        beta_loss="kullback-leibler",
        max_iter=9,
        tol=0,
        alpha_W=alpha,
        l1_ratio=1,
    )
    w = rival.fit_transform(x, W=w0.copy(), H=h0.copy())
    ours = NMF(
        4,
        init="custom",
        solver="mu",
        beta_loss="kullback-leibler",
        max_iter=9,
        tol=0,
        alpha_W=alpha,
        l1_ratio=1,
    )
    np.testing.assert_allclose(ours.fit_transform(kind(x), W=w0, H=h0), w, atol=1e-6)
    np.testing.assert_allclose(ours.components_, rival.components_, atol=1e-6)
    assert ours.reconstruction_err_ == pytest.approx(rival.reconstruction_err_, rel=1e-6)


@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler"])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_the_objective_is_at_most_that_of_scikit_learn(digits, loss, kind):
    x = digits[:300] + (0.01 if loss != "frobenius" else 0.0)
    solver = "cd" if loss == "frobenius" else "mu"
    rival = Rival(
        8, init="nndsvda", solver=solver, beta_loss=loss, max_iter=300, random_state=0, tol=0
    ).fit(x)
    ours = NMF(8, beta_loss=loss, max_iter=300, random_state=0).fit(kind(x))
    assert ours.reconstruction_err_ < 1.005 * rival.reconstruction_err_


def test_new_rows_as_in_scikit_learn(digits):
    rival = Rival(8, init="nndsvda", max_iter=400, random_state=0, tol=1e-6).fit(digits[:300])
    w0, h0 = rival.transform(digits[:300]), rival.components_
    ours = NMF(8, init="custom", max_iter=1, tol=0, solver="cd")
    ours.fit(digits[:300], W=w0, H=h0)
    h = ours.components_
    new = digits[300:340]
    exact = np.array([minimize_row(h, row) for row in new])
    got = ours.transform(new)
    np.testing.assert_allclose(got @ h, exact @ h, atol=1e-5)
    rival.components_ = h
    assert np.linalg.norm(new - got @ h) <= np.linalg.norm(new - rival.transform(new) @ h) + 1e-9


def minimize_row(h, row):
    from scipy.optimize import nnls

    return nnls(h.T, row)[0]


@pytest.mark.parametrize("beta", [-0.5, "itakura-saito", 1.0, 1.5, 2.0, 2.5])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, Observed.from_nan])
def test_multiplicative_steps_of_any_divergence_are_those_of_scikit_learn(rng, beta, kind):
    x = parts(rng) + 0.01
    w0, h0 = rng.random((60, 4)) + 0.1, rng.random((4, 25)) + 0.1
    how = {
        "init": "custom",
        "solver": "mu",
        "beta_loss": beta,
        "max_iter": 9,
        "tol": 0,
        "alpha_W": 0.02,
        "l1_ratio": 1,
    }
    rival, ours = Rival(4, **how), NMF("auto", **how)
    w = rival.fit_transform(x, W=w0.copy(), H=h0.copy())
    np.testing.assert_allclose(ours.fit_transform(kind(x), W=w0, H=h0), w, atol=1e-9)
    np.testing.assert_allclose(ours.components_, rival.components_, atol=1e-9)
    assert ours.reconstruction_err_ == pytest.approx(rival.reconstruction_err_, rel=1e-7)
    assert ours.n_components_ == 4  # "auto" with custom factors is their number
    assert (np.diff(ours.fit_.trace.values) <= 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("beta", [0, -0.5, 0.5, 1.5, 3])
def test_fits_and_streams_of_any_divergence(rng, beta):
    x = parts(rng, rows=80) + 0.05
    model = NMF(3, beta_loss=beta, alpha_W=0.002, random_state=0, max_iter=2000).fit(x)
    assert model.certificate_.holds, model.certificate_
    assert f"beta = {beta:g}" in model.certificate_.problem or beta == 0
    assert model.certify(x).holds
    new = model.transform(x[:20])
    assert (
        beta_divergence(x[:20], new @ model.components_, beta)
        <= 1.001 * beta_divergence(x[:20], model.fit_.factors.block(slice(0, 20)), beta) + 1e-3
    )
    np.testing.assert_allclose(model.transform(x[3:4]), new[3:4], rtol=1e-6, atol=1e-9)
    stream = NMF(3, beta_loss=beta, alpha_W=0.002, random_state=0)
    for _ in range(6):
        for part in np.split(x, 4):
            stream.partial_fit(part)
    own, whole = (beta_divergence(x, m.transform(x) @ m.components_, beta) for m in (stream, model))
    assert own < 2 * whole + 1.0
    broken = replace(model.fit_.factors, right=model.fit_.factors.right * 1.5)
    model.fit_ = replace(model.fit_, factors=broken)
    assert not model.certify(x).holds


def beta_divergence(a, s, beta):
    if beta == 0:
        return float((a / s - np.log(a / s) - 1).sum())
    return float(
        (a**beta + (beta - 1) * s**beta - beta * a * s ** (beta - 1)).sum() / (beta * (beta - 1))
    )


@pytest.mark.parametrize("solver", ["hals", "cd", "mu"])
def test_random_fill_of_a_start(digits, solver):
    how = {"solver": solver, "max_iter": 300, "tol": 0}
    a, b, c = (
        NMF(8, init=init, random_state=seed, **how).fit(digits[:100])
        for init, seed in (("nndsvdar", 0), ("nndsvdar", 1), ("nndsvda", 0))
    )
    assert not np.array_equal(a.components_, b.components_)
    assert a.reconstruction_err_ == pytest.approx(c.reconstruction_err_, rel=0.03)


# ---- optimality


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 12),
    st.integers(1, 9),
    st.integers(1, 4),
    st.integers(0, 10**6),
    st.sampled_from(["dense", "counts", "observed"]),
    st.sampled_from(["frobenius", "kl"]),
    st.sampled_from([0.0, 0.02]),
)
def test_the_objective_never_rises_and_the_end_is_stationary(rows, n, k, seed, kind, loss, alpha):
    rng = np.random.default_rng(seed)
    x = np.round(rng.gamma(0.5, 4.0, (rows, n)) * (rng.random((rows, n)) < 0.7))
    data = {
        "dense": x,
        "counts": sparse.csr_matrix(x),
        "observed": np.where(rng.random(x.shape) < 0.3, np.nan, x),
    }[kind]
    m = NMF(
        k,
        init="random",
        beta_loss=loss,
        alpha_W=alpha,
        l1_ratio=0.5,
        random_state=seed,
        max_iter=1500,
    ).fit(data)
    values = np.array(m.fit_.trace.values)
    assert np.isfinite(values).all()
    assert (np.diff(values) <= 1e-12 * max(values[0], 1.0)).all()
    assert (m.fit_.factors.left >= 0).all()
    assert (m.components_ >= 0).all()
    assert np.isfinite(m.fit_.factors.left).all()
    if m.fit_.trace.reason is StopReason.CONVERGED:
        assert m.certificate_.holds, m.certificate_


@pytest.mark.parametrize("loss", ["frobenius", "kl"])
def test_the_certificate_fails_on_other_factors(rng, loss):
    x = parts(rng, noise=0.3)
    m = NMF(3, beta_loss=loss, random_state=0, max_iter=3000).fit(x)
    again = m.certify(x)
    assert m.certificate_.holds, m.certificate_
    assert again.holds
    assert again["objective"] == pytest.approx(m.certificate_["objective"], rel=1e-12)
    good = m.fit_
    for name in ("left", "right"):
        for change in ("scaled", "one entry", "zeroed", "negative"):
            factor = getattr(good.factors, name).copy()
            if change == "scaled":
                factor *= 1.3
            elif change == "one entry":
                factor[3, 1] += 2 * factor.max()
            elif change == "zeroed":
                factor[: len(factor) // 2, factor.sum(axis=0).argmax()] = 0
            else:
                factor[0, 0] = -1e-3
            m.fit_ = replace(good, factors=replace(good.factors, **{name: factor}))
            c = m.certify(x)
            assert not c.holds, (name, change)
            assert "DOES NOT HOLD" in str(c)


def test_an_unfinished_fit_says_so(digits):
    c = NMF(10, max_iter=2, random_state=0).fit(digits).certificate_
    assert not c.holds
    assert "residual of" in c.reason
    assert c["stopped"] == StopReason.MAX_ITER.value


def test_projected_least_squares_is_the_plain_method(rng):
    x = parts(rng, noise=0.1)
    plain = NMF(3, solver="als", random_state=0).fit(x)
    best = NMF(3, random_state=0, max_iter=1000).fit(x)
    assert best.reconstruction_err_ <= plain.reconstruction_err_ < 1.5 * best.reconstruction_err_
    assert (np.diff(plain.fit_.trace.values) <= 0).all()


def test_a_sketch_comes_first_on_large_dense_data(rng):
    x = parts(rng, rows=3000, n=700, k=6, dtype=np.float32)
    m = NMF(6, random_state=0).fit(x)
    assert "sketch" in m.fit_.plan
    assert m.certificate_.holds
    slow = NMF(6, random_state=0, solver="cd").fit(x)
    assert m.reconstruction_err_ < 1.01 * slow.reconstruction_err_
    assert m.n_iter_ < slow.n_iter_
    w, h = np.ones((3000, 6)), rng.random((6, 700))
    assert "sketch" in NMF(6, init="custom").fit(x, W=w, H=h).fit_.plan


# ---- missing entries


def masked_best(x, k, loss, seed, starts=5):
    """The least objective that a quasi-Newton method finds from many starts."""
    seen = ~np.isnan(x)
    a = np.where(seen, x, 0.0)
    rng = np.random.default_rng(seed)

    def value(z):
        w, h = z[: len(x) * k].reshape(-1, k), z[len(x) * k :].reshape(k, -1)
        s = w @ h
        if loss == "frobenius":
            r = np.where(seen, s - a, 0.0)
            return 0.5 * (r**2).sum(), np.concatenate([(r @ h.T).ravel(), (w.T @ r).ravel()])
        s = np.maximum(s, 1e-12)
        g = np.where(seen, 1 - a / s, 0.0)
        f = np.where(
            seen, np.where(a > 0, a * np.log(np.maximum(a, 1e-300) / s), 0.0) - a + s, 0.0
        ).sum()
        return f, np.concatenate([(g @ h.T).ravel(), (w.T @ g).ravel()])

    size = k * (x.shape[0] + x.shape[1])
    runs = [
        minimize(
            value,
            rng.random(size) + 0.1,
            jac=True,
            bounds=[(0, None)] * size,
            options={"maxiter": 400},
        ).fun
        for _ in range(starts)
    ]
    return min(runs)


@pytest.mark.parametrize("loss", ["frobenius", "kl"])
@pytest.mark.parametrize("seed", [0, 1])
def test_missing_entries_against_brute_force(loss, seed):
    rng = np.random.default_rng(seed)
    x = rng.gamma(1.0, 1.0, (8, 7))
    x[rng.random(x.shape) < 0.2] = np.nan
    starts = (
        30 if loss == "frobenius" else 10
    )  # numbers without structure have many local minima: ten starts miss the lowest now and then
    m = NMF(2, beta_loss=loss, n_init=starts, random_state=0, tol=1e-3, max_iter=1000).fit(x)
    value = m.certificate_["objective"]
    assert value < 1.01 * masked_best(x, 2, loss, seed)
    assert value == pytest.approx(
        divergence(x, m.fit_.factors.left @ m.components_, loss), rel=1e-6
    )


def divergence(x, s, loss):
    """The objective on what is observed, from its formula."""
    seen = ~np.isnan(x)
    a, s = x[seen], s[seen]
    return 0.5 * np.sum((a - s) ** 2) if loss == "frobenius" else np.sum(a * np.log(a / s) - a + s)


def test_hidden_entries_are_predicted(rng):
    truth = parts(rng, 120, 40, 3, noise=0.0)
    hidden = rng.random(truth.shape) < 0.3
    for loss in ("frobenius", "kl"):
        m = NMF(3, beta_loss=loss, random_state=0, n_init=3, max_iter=1000).fit(
            np.where(hidden, np.nan, truth)
        )
        guess = m.inverse_transform(m.fit_.factors.left)
        assert np.sqrt(np.mean((guess - truth)[hidden] ** 2)) < 0.1 * truth[hidden].std()


@pytest.mark.parametrize("loss", ["frobenius", "kl"])
def test_all_observed_is_the_same_as_dense_and_sparse(rng, loss):
    x = parts(rng) * (rng.random((60, 25)) < 0.8)
    w, h = rng.random((60, 3)) + 0.1, rng.random((3, 25)) + 0.1
    ends = [
        NMF(
            3,
            init="custom",
            beta_loss=loss,
            max_iter=15,
            tol=0,
            solver="cd" if loss == "frobenius" else "mu",
        ).fit(data, W=w, H=h)
        for data in (x, sparse.csr_matrix(x), Observed.from_nan(x))
    ]
    for other in ends[1:]:
        np.testing.assert_allclose(other.components_, ends[0].components_, rtol=1e-7, atol=1e-9)
        assert other.certificate_["objective"] == pytest.approx(
            ends[0].certificate_["objective"], rel=1e-8
        )


# ---- weights


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, Observed.from_nan])
@pytest.mark.parametrize("loss", ["frobenius", "kl"])
def test_integer_weights_are_repeated_rows(rng, kind, loss):
    x, times = parts(rng, 40, 12), rng.integers(0, 4, 40)
    params = {
        "beta_loss": loss,
        "random_state": 0,
        "max_iter": 60,
        "tol": 0,
        "alpha_W": 0.01,
        "l1_ratio": 0.5,
    }
    weighted = NMF(3, **params).fit(kind(x), sample_weight=times)
    repeated = NMF(3, **params).fit(kind(np.repeat(x, times, axis=0)))
    np.testing.assert_allclose(weighted.components_, repeated.components_, rtol=1e-5, atol=1e-7)
    assert weighted.certificate_["objective"] == pytest.approx(
        repeated.certificate_["objective"], rel=1e-8
    )


@pytest.mark.parametrize("loss", ["frobenius", "kl"])
def test_an_entry_of_weight_zero_is_missing(rng, loss):
    x, seen = parts(rng, 40, 12), rng.random((40, 12)) < 0.7
    params = {"init": "random", "beta_loss": loss, "random_state": 0, "max_iter": 40, "tol": 0}
    a = NMF(3, **params).fit(x, weights=seen.astype(float))
    b = NMF(3, **params).fit(np.where(seen, x, np.nan))
    assert a.certificate_["objective"] == pytest.approx(b.certificate_["objective"], rel=0.2)
    start = {"W": np.ones((40, 3)), "H": rng.random((3, 12))}
    a, b = (
        NMF(3, **(params | {"init": "custom"})).fit(d, weights=w, **start)
        for d, w in ((x, seen.astype(float)), (np.where(seen, x, np.nan), None))
    )
    np.testing.assert_allclose(a.components_, b.components_, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(
        a.certify(x, weights=seen.astype(float))["objective"], a.certificate_["objective"]
    )


# ---- awkward data


@pytest.mark.parametrize("loss", ["frobenius", "kl"])
@pytest.mark.parametrize(
    "kind",
    [
        np.asarray,
        *(
            pytest.param(kind, marks=pytest.mark.slow)
            for kind in (sparse.csr_matrix, Observed.from_nan)
        ),
    ],
)
def test_zero_rows_zero_columns_zero_entries_and_many_components(loss, kind):
    x = np.array([[0, 0, 0, 0], [0, 2, 0, 1], [0, 0, 3, 0], [0, 1, 1, 5.0]])
    for data in (x, np.zeros((3, 4)), np.eye(3), np.full((2, 5), 7.0), np.array([[3.0]])):
        for k in (1, 2, 9):
            for init in ("random", None):
                m = NMF(k, beta_loss=loss, init=init, random_state=0).fit(kind(data))
                assert np.isfinite(m.fit_.factors.left).all()
                assert np.isfinite(m.components_).all()
                assert np.isfinite(m.certificate_["objective"])
                codes = m.transform(kind(data))
                assert np.isfinite(codes).all()
                assert (codes[np.asarray(data).sum(axis=1) == 0] == 0).all()


@pytest.mark.parametrize("scale", [1e-12, 1e12])
@pytest.mark.parametrize("loss", ["frobenius", "kl"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_unit_of_the_data_does_not_matter(rng, scale, loss, dtype):
    x = parts(rng, dtype=dtype)
    one = NMF(3, beta_loss=loss, random_state=0, max_iter=30).fit(x)
    other = NMF(3, beta_loss=loss, random_state=0, max_iter=30).fit(x * dtype(scale))
    power = 2 if loss == "frobenius" else 1
    assert other.certificate_["objective"] / scale**power == pytest.approx(
        one.certificate_["objective"], rel=0.1
    )


# ---- streams


@pytest.mark.parametrize("loss", ["frobenius", "kl"])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_blocks_of_rows_come_near_the_whole(rng, loss, kind):
    x = parts(rng, 1001, 30, 3, noise=0.05)
    whole = NMF(3, beta_loss=loss, random_state=0).fit(x)
    online = NMF(3, beta_loss=loss, random_state=0)
    for a in range(0, 1001, 125):
        online.partial_fit(kind(x[a : a + 125]))
    guess, best = (m.transform(x) @ m.components_ for m in (online, whole))
    assert np.linalg.norm(x - guess) < 1.3 * np.linalg.norm(x - best)
    assert online.certificate_.holds
    assert "last block" in online.certificate_.notes[0]
    assert online.fit_.factors.left.shape == (1, 3)


def test_a_loaded_stream_does_not_start_over_in_silence(rng, tmp_path):
    NMF(2, random_state=0).partial_fit(parts(rng)).save(tmp_path / "m.safetensors")
    with pytest.raises(eckart.InputError, match="running statistic"):
        eckart.load(tmp_path / "m.safetensors").partial_fit(parts(rng))


def test_an_iterator_is_read_once_and_a_file_again_and_again(rng, tmp_path):
    x = parts(rng, 3000, 30, 3, dtype=np.float32)
    np.save(tmp_path / "x.npy", x)
    file, array = (NMF(3, random_state=0).fit(data) for data in (tmp_path / "x.npy", x))
    np.testing.assert_array_equal(file.components_, array.components_)
    once = NMF(3, random_state=0)
    codes = once.fit_transform(x[i : i + 500] for i in range(0, 3000, 500))
    assert codes.shape == (3000, 3)
    assert once.fit_.factors.left.shape == (500, 3)  # the model keeps those of the last block
    guess = codes @ once.components_
    assert np.linalg.norm(x - guess) < 1.5 * array.reconstruction_err_
    listed = NMF(3, random_state=0).fit([x[i : i + 500] for i in range(0, 3000, 500)])
    assert listed.reconstruction_err_ == pytest.approx(array.reconstruction_err_, rel=1e-3)


# ---- restarts


def test_restarts_agree_where_the_parts_are_there(rng):
    w = np.kron(np.eye(4), np.ones((20, 1))) + 0.05 * rng.random((80, 4))
    h = np.kron(np.eye(4), np.ones((1, 6)))
    m = NMF(4, n_init=6, init="random", random_state=0).fit(w @ h)
    c = m.consensus_
    assert c.score > 0.99
    assert c.cophenetic > 0.99
    assert m.certificate_["objective"] == min(c.objectives)
    noise = NMF(9, n_init=6, init="random", random_state=0).fit(rng.random((80, 24))).consensus_
    assert noise.score < 0.95 * c.score
    assert noise.cophenetic < c.cophenetic


@pytest.mark.blocks_of(7, "28 fits of hundreds of steps, each of them 50 to 150 calls: minutes")
def test_the_planted_rank_is_chosen(rng):
    # noise in proportion: what is added everywhere would be a fifth part
    x = parts(rng, 100, 30, 4, noise=0.0) * rng.uniform(0.9, 1.1, (100, 30))
    found = select_rank(x, range(2, 8), random_state=0, n_init=3)
    assert found.choices["held_out"] == 4
    assert "stability" in str(found)
    assert len(found.table["cophenetic"]) == 6
    counts = sparse.csr_matrix(rng.poisson(20 * parts(rng, 150, 30, 3)))
    assert (
        select_rank(counts, [1, 2, 3, 4, 6], random_state=0, n_init=2, beta_loss="kl").choices[
            "held_out"
        ]
        == 3
    )


# ---- manners


def test_normal_form(rng):
    x = parts(rng)
    x[4] = 0
    m = NMF(3, beta_loss="kl", random_state=0).fit(x)
    form = m.normal_form()
    np.testing.assert_allclose(form.parts.sum(axis=1), 1)
    np.testing.assert_allclose(np.delete(form.shares.sum(axis=1), 4), 1)
    np.testing.assert_allclose(
        form.totals[:, None] * form.shares @ form.parts,
        m.fit_.factors.left @ m.components_,
        atol=1e-9,
    )


@pytest.mark.blocks_of(
    7, "2,500 rows are cut into 147 blocks of 17 rows, whatever smaller height is asked for"
)
def test_threads_and_seed_do_not_change_a_bit(model, rng):
    for dtype in (np.float32, np.float64):
        x = parts(rng, 2500, 40, 3, dtype=dtype)
        for data in (x, sparse.csr_matrix(x), np.where(rng.random(x.shape) < 0.2, np.nan, x)):
            threads = (1, 2, 3, 5, 16) if dtype == np.float32 else (1, 3)
            fits = [clone(model).set_params(n_threads=t, max_iter=8).fit(data) for t in threads]
            assert len({m.components_.tobytes() + m.fit_.factors.left.tobytes() for m in fits}) == 1
            assert fits[0].components_.dtype == dtype
            assert fits[0].transform(data).dtype == dtype


def test_save_load_pickle_clone(model, rng, tmp_path):
    x = parts(rng)
    before = model.get_params()
    model.fit(x).save(tmp_path / "m.safetensors")
    assert model.get_params() == before
    for back in (eckart.load(tmp_path / "m.safetensors"), pickle.loads(pickle.dumps(model))):
        assert back.get_params() == before
        np.testing.assert_array_equal(back.transform(x), model.transform(x))
        np.testing.assert_array_equal(back.components_, model.components_)
        assert back.certificate_ == model.certificate_
        assert back.certify(x).holds == model.certificate_.holds
    with pytest.raises(AttributeError, match="loaded"):
        eckart.load(tmp_path / "m.safetensors").consensus_  # noqa: B018


def test_new_rows_reproduce_the_fit_and_come_one_at_a_time(model, rng):
    x = parts(rng, noise=0.1)
    w = model.set_params(tol=1e-5, max_iter=3000).fit_transform(x)
    whole = model.transform(x)
    np.testing.assert_allclose(
        whole @ model.components_, w @ model.components_, atol=2e-2 * x.max()
    )
    for i in range(4):
        np.testing.assert_allclose(model.transform(x[i : i + 1]), whole[i : i + 1], atol=1e-9)
    holes = np.where(rng.random(x.shape) < 0.2, np.nan, x)
    assert np.median(np.abs(model.transform(holes) - whole)) < 0.1 * whole.mean()


def test_frames_in_frames_out(model, rng):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(parts(rng), columns=[f"c{i}" for i in range(25)], index=range(100, 160))
    out = model.set_output(transform="pandas").fit(frame).transform(frame)
    assert list(out.index) == list(frame.index)
    assert list(out.columns) == ["nmf0", "nmf1", "nmf2"]
    assert list(model.feature_names_in_) == list(frame.columns)
    with pytest.raises(ValueError, match="feature names should match"):
        model.transform(frame.rename(columns={"c0": "other"}))


@pytest.mark.in_one_piece
def test_ctrl_c_keeps_the_best_state(rng, monkeypatch):
    x, calls = parts(rng), []
    original = CpuEngine.hals_pass

    def interrupted(self, *args, **more):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return original(self, *args, **more)

    monkeypatch.setattr(CpuEngine, "hals_pass", interrupted)
    m = NMF(3, random_state=0, tol=0).fit(x)
    assert m.fit_.trace.reason is StopReason.INTERRUPTED
    assert (np.diff(m.fit_.trace.values) <= 1e-9).all()
    assert np.isfinite(m.components_).all()


def test_a_failed_fit_leaves_the_old_state(model, rng):
    x = parts(rng)
    before = model.fit(x).components_.tobytes()
    for bad, words in ((-1.0, "-1.0 at row 3, column 2"), (np.inf, "inf at row 3, column 2")):
        broken = x.copy()
        broken[3, 2] = bad
        with pytest.raises(eckart.InputError, match=words):
            model.fit(broken)
        with pytest.raises(eckart.InputError, match=words):
            model.transform(broken)
        with pytest.raises(eckart.InputError, match="row 3, column 2"):
            model.fit(Counts.from_scipy(sparse.csr_matrix(broken)))
    assert model.components_.tobytes() == before


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"n_components": 0}, "n_components must be an int >= 1, 'auto' or None, got 0"),
        ({"n_components": 2.5}, "n_components"),
        (
            {"beta_loss": "hinge"},
            r"beta_loss must be 'frobenius', 'kullback-leibler', 'itakura-saito' or a number \(beta\),",
        ),
        (
            {"beta_loss": "kl", "solver": "hals"},
            "does not handle beta_loss = 'kl'. solver must be one of 'auto', 'mm', 'mu', got 'hals'",
        ),
        (
            {"solver": "mm"},
            "solver must be one of 'auto', 'hals', 'cd', 'als', 'mu', got",
        ),
        (
            {"solver": "cd", "beta_loss": 1.0},
            r"beta_loss = 1\.0\. solver must be one of 'auto', 'mm', 'mu', got 'cd'",
        ),
        (
            {"beta_loss": float("nan")},
            r"beta_loss must be 'frobenius', 'kullback-leibler', 'itakura-saito' or a number \(beta\),",
        ),
        (
            {"beta_loss": True},
            r"beta_loss must be 'frobenius', 'kullback-leibler', 'itakura-saito' or a number \(beta\),",
        ),
        (
            {"init": "spam"},
            "init must be None, 'nndsvd', 'nndsvda', 'nndsvdar', 'random' or 'custom', got 'spam'",
        ),
        ({"tol": -1}, "tol must be None or a number >= 0, got -1"),
        ({"max_iter": 0}, "max_iter must be an int >= 1, got 0"),
        ({"alpha_W": -1}, "alpha_W must be a number >= 0, got -1"),
        ({"alpha_H": "other"}, "alpha_H must be a number >= 0 or 'same', got 'other'"),
        ({"l1_ratio": 2}, "l1_ratio must be a number from 0 to 1, got 2"),
        ({"n_init": 0}, "n_init must be an int from 1 to 100000, got 0"),
        ({"init": "custom"}, "init='custom' came without W"),
        (
            {"n_components": 99, "init": "nndsvd"},
            "init = 'nndsvd' can only be used .* for 60 rows and 25 columns. Use init='random'",
        ),
    ],
)
def test_bad_arguments_are_named(rng, params, words):
    with pytest.raises(eckart.InputError, match=words):
        NMF(**({"n_components": 2} | params)).fit(parts(rng))


def test_one_free_factor_is_pointed_out(rng):
    m = NMF(2, alpha_W=0.1, alpha_H=0.0, random_state=0).fit(parts(rng))
    assert "H is not penalised" in m.certificate_.notes[0]
    assert NMF(2, alpha_W=0.1, random_state=0).fit(parts(rng)).certificate_.notes == ()


# ---- pictures


def test_parts_beside_components_and_a_row_as_their_sum(rng):
    from eckart import PCA, plots

    x = parts(rng, 50, 12)
    m = NMF(3, random_state=0).fit(x)
    ax = plots.parts_and_components(m, PCA(5).fit(x), (3, 4), count=4, columns=2)
    sheet = np.asarray(ax.images[0].get_array())
    assert sheet.shape[2] == 3
    h = m.components_.reshape(3, 3, 4)
    tile = sheet[1:4, 1:5, 0]
    assert np.corrcoef(tile.ravel(), h[0].ravel())[0, 1] < -0.8  # dark is much
    ax = plots.sum_of_parts(m, x[2], (3, 4), count=2)
    words = [text.get_text() for text in ax.texts]
    assert words[0] == "row"
    assert words[-1] == "sum of all"
    assert words[1].endswith("%")
    assert float(words[1][:-1]) >= float(words[2][:-1])
    with pytest.raises(
        eckart.InputError, match=r"shape must be height x width = 12 columns, got \(5, 5\)"
    ):
        plots.parts_and_components(m, PCA(2).fit(x), (5, 5))


def test_more_components_than_the_rank_are_used():
    """Swimmers: a body and four limbs, each in one of four positions. Their rank is 13, their parts
    are 17; equal starts of the rest would stay one part."""
    pose = np.zeros((256, 17))
    pose[:, 16] = 1
    for limb in range(4):
        pose[np.arange(256), 4 * limb + np.arange(256) // 4**limb % 4] = 1
    x = pose @ np.kron(np.eye(17), np.ones(5))
    assert np.linalg.matrix_rank(x) == 13
    model = NMF(17, random_state=0, max_iter=500).fit(x)
    assert model.reconstruction_err_ < 0.05 * np.linalg.norm(x)


@pytest.mark.parametrize("seed", range(4))
def test_of_starts_that_end_as_low_the_first_is_taken_whatever_form_the_data_have(seed):
    """A matrix of exact rank has many factorizations without an error: rounding, which differs
    between dense and sparse rows, must not choose among them."""
    a = np.abs(np.random.default_rng(seed).standard_normal((10, 10)))
    a[:, ::2] = 0.0  # rank 5, and five parts: each start can reach an error of 0
    dense, thin = (
        eckart.MiniBatchNMF(5, init="random", random_state=seed, tol=0, max_iter=100).fit(x)
        for x in (a, sparse.csr_array(a))
    )
    assert dense.reconstruction_err_ < 5e-3 * np.linalg.norm(
        a
    )  # at most 1.7e-3 on 120 tables after as many passes; with a part less 0.05 would be left
    np.testing.assert_allclose(thin.components_, dense.components_, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("verb", ["fit", "fit_transform", "partial_fit"])
def test_mini_batches_take_the_number_of_parts_from_a_given_start(rng, verb):
    x, w, h = rng.random((40, 6)), rng.random((40, 3)), rng.random((3, 6))
    model = eckart.MiniBatchNMF(init="custom", random_state=0)
    getattr(model, verb)(x, W=w, H=h)
    assert model.components_.shape == (3, 6)
    assert model.partial_fit(x[:10]).n_components_ == 3
