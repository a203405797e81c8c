"""Chapter 1 of the specification, one test (or several) for each numbered line, named after it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import eckart
from conftest import planted
from eckart import PCA, LinearAutoencoder, Projection, power_method, principal_angles
from eckart.reduce.train_linear import risk_objective

SOLVERS = ("eigh", "svd", "power", "randomized", "lanczos", "gradient")


def risk(model, x):
    return 0.5 * np.mean(np.sum((x - model.inverse_transform(model.transform(x))) ** 2, axis=1))


@pytest.mark.parametrize(
    "model", [PCA(3), PCA(3, whiten=True), PCA(3, rotation="varimax"), LinearAutoencoder(3)]
)
def test_1_1_every_model_encodes_decodes_and_reports_its_risk(model, rng):
    x = planted(rng)
    new = planted(rng)
    model = model.fit(x)
    assert model.transform(new).shape == (len(new), 3)
    assert model.inverse_transform(model.transform(new)).shape == new.shape
    assert model.reconstruction_error(new) == pytest.approx(risk(model, new), rel=1e-6)


def test_1_2_the_best_affine_map_is_the_best_linear_map_of_centered_data(rng):
    x = planted(rng, mean=50.0)
    affine = PCA(3).fit(x)
    linear = PCA(3, center=False).fit(x - x.mean(axis=0))
    assert principal_angles(affine.components_.T, linear.components_.T).max() < 1e-6
    assert affine.reconstruction_error(x) < PCA(3, center=False).fit(x).reconstruction_error(x)
    np.testing.assert_allclose(affine.mean_, x.mean(axis=0))


def test_1_2_sparse_mapped_and_chunked_data_are_centered_without_a_dense_copy(
    tmp_path, rng, monkeypatch
):
    x = sparse.random(3000, 700, 0.02, random_state=0, format="csr") + sparse.csr_array(
        (np.ones(3000), (np.arange(3000), np.zeros(3000, int))), (3000, 700)
    )
    dense = x.toarray()
    exact = PCA(5, svd_solver="svd").fit(dense)
    for kind in (sparse.csr_array, sparse.csc_matrix, sparse.coo_array):
        monkeypatch.setattr(kind, "toarray", lambda *_: pytest.fail("densified"))
        monkeypatch.setattr(kind, "todense", lambda *_: pytest.fail("densified"))
    got = PCA(5, svd_solver="lanczos", random_state=0).fit(sparse.csc_matrix(x))
    assert principal_angles(got.components_.T, exact.components_.T).max() < 1e-3
    np.testing.assert_allclose(got.explained_variance_, exact.explained_variance_, rtol=1e-6)
    np.save(tmp_path / "x.npy", dense)
    for source in (tmp_path / "x.npy", (dense[i : i + 100] for i in range(0, 3000, 100))):
        other = PCA(5).fit(source)
        np.testing.assert_allclose(other.explained_variance_, exact.explained_variance_, rtol=1e-9)
        np.testing.assert_allclose(other.mean_, exact.mean_, atol=1e-12)


spans = arrays(
    np.float64,
    st.tuples(st.integers(1, 6), st.integers(0, 6)),
    elements=st.floats(-3, 3).map(lambda v: round(v, 3)),
)


@settings(max_examples=150, deadline=None)
@given(spans, st.integers(0, 2**32 - 1))
def test_1_3_projections(v, seed):
    rng = np.random.default_rng(seed)
    p = Projection.onto(v)
    m = p.matrix()
    size = max(1.0, float(np.abs(v).max(initial=0)))
    assert p.rank == np.linalg.matrix_rank(v) if v.size else p.rank == 0
    np.testing.assert_allclose(m, m.T, atol=1e-12)  # symmetric
    np.testing.assert_allclose(m @ m, m, atol=1e-12)  # idempotent
    np.testing.assert_allclose(m @ v, v, atol=1e-9 * size)  # P V = V
    # P = V V^+
    np.testing.assert_allclose(m, v @ np.linalg.pinv(v) if v.size else 0 * m, atol=1e-6)
    a, b = rng.standard_normal((2, len(v)))
    assert abs(p(a) @ (b - p(b))) < 1e-10 * (
        1 + np.linalg.norm(a) * np.linalg.norm(b)
    )  # range and null space orthogonal
    np.testing.assert_allclose(p(2 * a - 3 * b), 2 * p(a) - 3 * p(b), atol=1e-10)  # linear
    other = p(a) + p(rng.standard_normal(len(v)))  # any other point of the subspace is further away
    assert np.linalg.norm(a - p(a)) <= np.linalg.norm(a - other) + 1e-12
    c = p.complement()
    assert p.rank + c.rank == len(v)
    np.testing.assert_allclose(p(a) + c(a), a, atol=1e-10)


def test_1_3_affine_offset_distance_composition_and_angles(rng):
    mu = rng.standard_normal(5)
    p = Projection.onto(rng.standard_normal((5, 2)), mu)
    x = rng.standard_normal((4, 5))
    np.testing.assert_allclose(p(x), mu + (x - mu) @ p.matrix())
    np.testing.assert_allclose(p.distance(x), np.linalg.norm(x - p(x), axis=1))
    np.testing.assert_allclose(p.distance(mu + 3 * p.basis[:, 0]), 0, atol=1e-12)
    q = Projection.onto(rng.standard_normal((5, 3)), rng.standard_normal(5))
    np.testing.assert_allclose((p @ q)(x), p(q(x)), atol=1e-12)
    np.testing.assert_allclose((p @ q).matrix(), p.matrix() @ q.matrix(), atol=1e-12)
    assert not (p @ q).is_projection()
    assert (p @ Projection(p.basis)).is_projection()
    angle = 0.3
    turned = np.array([[np.cos(angle)], [np.sin(angle)], [0.0]])
    np.testing.assert_allclose(
        Projection.onto([[1.0], [0], [0]]).angles(Projection.onto(turned)), [angle]
    )


def test_1_3_rank_deficient_spans_are_not_inverted():
    v = np.array([[1.0, 1.0 + 2.3e-16], [1.0, 1.0], [0.0, 0.0]])
    p = Projection.onto(v)
    assert p.rank == 1
    np.testing.assert_allclose(p([2.0, 0.0, 5.0]), [1.0, 1.0, 0.0], atol=1e-9)


def test_1_4_risk_is_half_the_variance_left_out(rng):
    x = planted(rng)
    values = np.linalg.eigvalsh(np.cov(x.T, bias=True))[::-1]
    for k in (1, 4, 29):
        pca = PCA(k).fit(x)
        assert pca.reconstruction_error(x) == pytest.approx(0.5 * values[k:].sum(), rel=1e-9)
        u = pca.components_
        sigma = np.cov(x.T, bias=True)
        assert pca.reconstruction_error(x) == pytest.approx(
            0.5 * (np.trace(sigma) - np.trace(u @ sigma @ u.T)), rel=1e-9
        )
    np.testing.assert_allclose(
        PCA().fit(x).explained_variance_, values * len(x) / (len(x) - 1), rtol=1e-9
    )


def test_1_4_codes_are_decorrelated_means_agree_and_pythagoras_holds(rng):
    x = planted(rng)
    pca = PCA(4).fit(x)
    codes = pca.transform(x)
    covariance = np.cov(codes.T)
    np.testing.assert_allclose(
        covariance, np.diag(pca.explained_variance_), atol=1e-9 * covariance.max()
    )
    np.testing.assert_allclose(
        pca.inverse_transform(codes).mean(axis=0), x.mean(axis=0), atol=1e-10
    )
    c = x - pca.mean_
    projected = pca.inverse_transform(codes) - pca.mean_
    np.testing.assert_allclose(
        (c**2).sum(axis=1), (projected**2).sum(axis=1) + ((c - projected) ** 2).sum(axis=1)
    )
    np.testing.assert_allclose(pca.spe(x), ((c - projected) ** 2).sum(axis=1), rtol=1e-8)


def test_1_4_mean_and_second_moment_are_sufficient(rng):
    x = planted(rng)
    shuffled = rng.permutation(x)
    turned = x.copy()
    q = np.linalg.qr(np.column_stack([np.ones(len(x)), rng.standard_normal((len(x), len(x) - 1))]))[
        0
    ][:, 1:]
    other = x.mean(axis=0) + (
        q @ np.linalg.qr(rng.standard_normal((len(x) - 1, len(x) - 1)))[0] @ q.T
    ) @ (turned - x.mean(axis=0))
    for same in (shuffled, other):
        np.testing.assert_allclose(
            np.abs(PCA(3).fit(same).components_), np.abs(PCA(3).fit(x).components_), atol=1e-7
        )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("solver", SOLVERS)
def test_1_5_all_solvers_agree(solver, dtype, rng):
    x = planted(rng, dtype=dtype)
    exact = PCA(6, svd_solver="svd").fit(x.astype(np.float64))
    variance, following = exact.explained_variance_[:5], exact.explained_variance_[5]
    got = PCA(5, svd_solver=solver, random_state=1).fit(x)
    # what the Krylov solvers promise is a share of the captured variance that they may miss: so
    # much in one variance, and the square of the sine of an angle costs at least the gap of the
    # spectrum
    missing = {"randomized": 1e-4, "lanczos": 1e-7}.get(solver, 0.0) * variance.sum()
    angle = np.sqrt(missing / (variance[-1] - following))
    least = 2e-3 if dtype == np.float32 else 1e-4 if solver == "power" else 1e-5
    assert principal_angles(got.components_.T, exact.components_[:5].T).max() < max(angle, least)
    # float32 sums over N rows round by about eps sqrt(N) = 1.7e-6 relative, in an order that
    # depends on the CPU's registers; a margin of ten over that
    rounding = 10 * np.finfo(np.float32).eps * np.sqrt(len(x)) if dtype == np.float32 else 0.0
    np.testing.assert_allclose(
        got.explained_variance_, variance, rtol=max(2e-6, rounding), atol=missing
    )
    assert got.certificate_.holds, got.certificate_
    assert got.fit_.plan["solver"] == solver


def test_1_5_streaming_agrees_and_merges_in_any_order(rng):
    x = planted(rng, rows=101)
    whole = PCA(2).fit(x)
    for order in (range(0, 101, 10), reversed(range(0, 101, 10))):
        stream = PCA(2)
        for i in order:
            stream.partial_fit(x[i : i + 10])  # the last block has one row
        assert stream.n_samples_seen_ == 101
        np.testing.assert_allclose(stream.components_, whole.components_, atol=1e-9)
        np.testing.assert_allclose(
            stream.explained_variance_, whole.explained_variance_, rtol=1e-10
        )
        assert stream.certificate_.holds


def test_1_5_auto_chooses_by_shape_sparsity_and_k_and_says_why(rng):
    cases = [
        (rng.standard_normal((100, 20)), 3, "svd"),
        (rng.standard_normal((20000, 30)), 3, "eigh"),
        (rng.standard_normal((40, 3000)), 3, None),
        (sparse.random(3000, 9000, 0.001, random_state=0), 5, "randomized"),
        (rng.standard_normal((3000, 2500)).astype(np.float32), 5, "randomized"),
    ]
    for x, k, solver in cases:
        plan = PCA(k, random_state=0).fit(x).fit_.plan
        assert solver in (None, plan["solver"])
        assert str(x.shape[1]) in plan["reason"]


def test_1_6_power_method_finds_pairs_at_the_rate_of_the_ratio():
    a = np.diag([4.0, 3.0, 1.0, 0.5])
    pairs = power_method(a, 3, tol=1e-10, random_state=0)
    np.testing.assert_allclose(pairs.values, [4, 3, 1], rtol=1e-9)
    np.testing.assert_allclose(np.abs(pairs.vectors), np.eye(4)[:, :3], atol=1e-8)
    assert pairs.converged
    assert (pairs.residuals <= 1e-9 * pairs.values).all()
    assert pairs.rates[0] == pytest.approx(3 / 4, rel=0.02)
    assert pairs.rates[1] == pytest.approx(1 / 3, rel=0.05)
    # a start far from u_1, whose residuals still rise when the pair is found in the plane of two
    # iterates: the rate is that of the ratio all the same
    late = power_method(a, 1, tol=1e-10, start=np.array([1e-3, 1.0, 0.0, 0.0]), random_state=0)
    assert late.iterations[0] < 20
    assert late.rates[0] == pytest.approx(3 / 4, rel=1e-6)


def test_1_6_only_products_are_needed_and_the_matrix_is_never_rewritten(rng):
    b = rng.standard_normal((50, 8))
    calls = []

    def product(v):
        calls.append(v.shape)
        return b.T @ (b @ v)

    pairs = power_method(product, 2, n=8, tol=1e-9, random_state=0)
    np.testing.assert_allclose(pairs.values, np.linalg.eigvalsh(b.T @ b)[::-1][:2], rtol=1e-9)
    assert set(calls) == {(8,)}
    a = b.T @ b
    before = a.copy()
    power_method(a, 3, random_state=0)
    np.testing.assert_array_equal(a, before)


def test_1_6_defined_behaviour_of_hard_cases():
    start = np.array([0.0, 1.0, 1.0])
    orthogonal = power_method(np.diag([5.0, 2.0, 1.0]), 1, start=start, random_state=0)
    assert orthogonal.values[0] == pytest.approx(5)
    repeated = power_method(np.diag([3.0, 3.0, 1.0]), 2, random_state=0)
    np.testing.assert_allclose(repeated.values, [3, 3])
    assert abs(repeated.vectors[:, 0] @ repeated.vectors[:, 1]) < 1e-10
    zero = power_method(np.zeros((4, 4)), 2, random_state=0)
    assert zero.converged
    np.testing.assert_array_equal(zero.values, 0)
    indefinite = power_method(np.diag([-5.0, 4.0, 1.0]), 2, random_state=0)
    np.testing.assert_allclose(indefinite.values, [-5, 4])
    paired = power_method(np.array([[0.0, 2.0], [2.0, 0.0]]), 2, random_state=0)
    np.testing.assert_allclose(paired.values, [2, -2], rtol=1e-6)
    with pytest.raises(eckart.InputError, match="not symmetric"):
        power_method(np.array([[1.0, 2.0], [0.0, 1.0]]))


def test_1_6_a_limit_that_is_too_small_is_reported():
    pairs = power_method(np.diag([1.0, 0.999]), 1, max_iter=3, random_state=0)
    assert not pairs.converged
    assert pairs.trace.reason.name == "MAX_ITER"
    assert pairs.iterations[0] == 3


def test_1_7_gradients_are_those_of_the_risk(rng):
    x = rng.standard_normal((40, 6))
    sigma = x.T @ x / len(x)
    v, w = rng.standard_normal((6, 2)), rng.standard_normal((2, 6))
    p = v @ w
    value, (dv, dw) = risk_objective(lambda a: sigma @ a, float(np.trace(sigma)), False, 0.0)(
        [v, w]
    )
    assert value == pytest.approx(0.5 * np.mean(np.sum((x - x @ p.T) ** 2, axis=1)))
    np.testing.assert_allclose(dv, (p - np.eye(6)) @ sigma @ w.T, atol=1e-12)
    np.testing.assert_allclose(dw, v.T @ (p - np.eye(6)) @ sigma, atol=1e-12)
    for ridge, tied in ((0.0, True), (0.7, False), (0.7, True)):
        objective = risk_objective(lambda a: sigma @ a, float(np.trace(sigma)), tied, ridge)
        params = [v] if tied else [v, w]
        _, grads = objective(params)
        for g, q in zip(grads, params):
            i, j, h = 1, 1, 1e-6
            q[i, j] += h
            up = objective(params)[0]
            q[i, j] -= 2 * h
            down = objective(params)[0]
            q[i, j] += h
            assert g[i, j] == pytest.approx((up - down) / (2 * h), rel=1e-5)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("optimizer", ["gd", "heavy_ball", "nesterov", "adagrad", "adam"])
def test_1_7_linear_autoencoder_reaches_the_pca_subspace_and_risk_from_random_starts(
    optimizer, tied, rng
):
    x = planted(rng, n=12, rank=3, noise=0.2)
    pca = PCA(3).fit(x)
    for seed in (0, 1, 2):
        model = LinearAutoencoder(3, optimizer=optimizer, tied=tied, random_state=seed).fit(x)
        assert principal_angles(model.components_.T, pca.components_.T).max() < 1e-3
        assert model.reconstruction_error(x) == pytest.approx(pca.reconstruction_error(x), rel=1e-6)
        np.testing.assert_allclose(model.components_, pca.components_, atol=1e-3)  # canonical form
        assert model.certificate_.holds, model.certificate_


@pytest.mark.parametrize("optimizer", ["gd", "heavy_ball", "nesterov", "adagrad", "adam"])
def test_1_7_minibatches_come_close(optimizer, rng):
    x = planted(rng, n=12, rank=3, noise=0.2)
    model = LinearAutoencoder(3, optimizer=optimizer, batch_size=20, random_state=0).fit(x)
    assert principal_angles(model.components_.T, PCA(3).fit(x).components_.T).max() < 0.1
    assert model.reconstruction_error(x) < 1.02 * PCA(3).fit(x).reconstruction_error(x)


def test_1_7_ridge_shrinks_the_map_and_keeps_the_subspace(rng):
    x = planted(rng, n=12, rank=3, noise=0.2)
    plain = LinearAutoencoder(2, random_state=0).fit(x)
    ridge = LinearAutoencoder(2, ridge=0.1, random_state=0).fit(x)
    gain = [np.linalg.svd(m.decoder_ @ m.encoder_, compute_uv=False)[0] for m in (plain, ridge)]
    assert gain[1] < 0.95 * gain[0]
    assert principal_angles(ridge.components_.T, plain.components_.T).max() < 1e-2


def test_1_9_pca_is_the_best_factorization(rng):
    x = planted(rng, rows=60, n=20)
    pca = PCA(4).fit(x)
    centered = x - x.mean(axis=0)
    u, s, _ = np.linalg.svd(centered, full_matrices=False)
    error = np.sum((x - pca.inverse_transform(pca.transform(x))) ** 2)
    assert error == pytest.approx(np.sum(s[4:] ** 2))
    # Z = U S
    np.testing.assert_allclose(np.abs(pca.transform(x)), np.abs(u[:, :4] * s[:4]), atol=1e-9)
    np.testing.assert_allclose(pca.singular_values_, s[:4])
    for _ in range(20):
        z, v = rng.standard_normal((60, 4)), rng.standard_normal((4, 20))
        v = v + 3 * pca.components_  # even a start near the answer, refitted, is no better
        z = np.linalg.lstsq(v.T, centered.T, rcond=None)[0].T
        assert np.sum((centered - z @ v) ** 2) >= error - 1e-9


def test_1_9_signs_come_from_the_components_alone(rng):
    x = planted(rng)
    reference = PCA(4, svd_solver="svd").fit(x)
    top = np.abs(reference.components_).argmax(axis=1)
    assert (reference.components_[np.arange(4), top] > 0).all()
    for other in (
        PCA(4, svd_solver="eigh").fit(x),
        PCA(4, svd_solver="lanczos", random_state=3).fit(x[::-1]),
        PCA(4).partial_fit(x),
    ):
        np.testing.assert_allclose(other.components_, reference.components_, atol=1e-3)


def test_1_9_k_by_number_share_and_threshold(rng):
    x = planted(rng, rows=600, n=40, rank=5, noise=0.1)
    assert PCA(7).fit(x).n_components_ == 7
    shares = np.cumsum(PCA().fit(x).explained_variance_ratio_)
    for solver in ("svd", "eigh", "randomized"):
        share = PCA(0.9, svd_solver=solver, random_state=0).fit(x)
        assert share.n_components_ == np.searchsorted(shares, 0.9, side="right") + 1
        assert PCA("auto", svd_solver=solver, random_state=0).fit(x).n_components_ == 5
    assert PCA("auto").fit(rng.standard_normal((600, 40))).n_components_ == 0


def test_1_10_digits_as_mean_and_components_reconstructions_classifier_and_map():
    x, y = load_digits(return_X_y=True)
    pca = PCA(30).fit(x[:1200])
    b = pca.fit_.factors
    errors = []
    for k in (0, 2, 10, 30):
        made = b.mean + b.encode(x[1200:])[:, :k] @ b.components[:k]
        errors.append(np.mean((x[1200:] - made) ** 2))
    assert errors[0] > errors[1] > errors[2] > errors[3]
    assert errors[3] < 0.1 * errors[0]
    pipe = make_pipeline(PCA(20, whiten=True), LogisticRegression(max_iter=500)).fit(
        x[:1200], y[:1200]
    )
    assert pipe.score(x[1200:], y[1200:]) > 0.88
    flat = PCA(2).fit_transform(x)
    near = np.argsort(((flat[:300, None] - flat[None, :300]) ** 2).sum(axis=2), axis=1)[:, 1:6]
    # neighbours on the map share their digit, chance is 0.1
    assert np.mean(y[:300][near] == y[:300, None]) > 0.4


def test_1_10_eigenfaces(shared_data):
    from scipy.io import loadmat

    faces = loadmat(shared_data("olivetti-faces") / "olivettifaces.mat")["faces"].T.astype(
        np.float32
    )
    people = np.repeat(np.arange(40), 10)
    train = np.arange(400) % 10 < 7
    pca = PCA(60, whiten=True, random_state=0).fit(faces[train])
    assert pca.certificate_.holds, pca.certificate_
    assert pca.explained_variance_ratio_.sum() > 0.85
    clf = LogisticRegression(max_iter=300).fit(pca.transform(faces[train]), people[train])
    assert clf.score(pca.transform(faces[~train]), people[~train]) > 0.85
