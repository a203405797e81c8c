"""PCA against scikit-learn as the oracle, and its behaviour at the edges."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse, stats
from sklearn.decomposition import PCA as SklearnPCA
from sklearn.decomposition import TruncatedSVD

import eckart
from conftest import planted
from eckart import PCA, principal_angles

ATTRIBUTES = (
    "components_",
    "explained_variance_",
    "explained_variance_ratio_",
    "singular_values_",
    "mean_",
    "noise_variance_",
)


def rounding(rows):
    """Sums of float32 over N rows round by about eps sqrt(N), in an order that depends on the CPU's
    registers; a margin of ten over that, at least 1e-5."""
    return max(1e-5, 10 * float(np.finfo(np.float32).eps) * np.sqrt(rows))


@pytest.mark.parametrize("shape", [(1797, 64), (40, 64), (700, 20), (60, 900)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [1, 7, None])
def test_scikit_learn_results_are_reproduced(shape, dtype, k, rng):
    x = planted(rng, *shape, rank=8, noise=0.5, dtype=dtype)
    theirs = SklearnPCA(k, svd_solver="full").fit(x.astype(np.float64))
    ours = PCA(k, svd_solver="auto").fit(x)
    # the last direction of N <= n rows is noise
    shown = slice(None) if k else slice(0, min(shape) - 1)
    limit = rounding(shape[0]) if dtype == np.float32 else 1e-9
    for name in ATTRIBUTES:
        a, b = np.asarray(getattr(ours, name)), np.asarray(getattr(theirs, name))
        assert a.shape == b.shape, name
        if name == "components_":
            stable = np.r_[
                True, np.diff(theirs.explained_variance_) / theirs.explained_variance_[0] < -1e-3
            ][: len(b)]
            firm = stable & np.r_[stable[1:], True]
            np.testing.assert_allclose(
                a[firm][:7], b[firm][:7], atol=2e-4 if dtype == np.float32 else 1e-8, err_msg=name
            )
        else:
            scale = np.abs(b).max() or 1.0
            np.testing.assert_allclose(
                np.atleast_1d(a)[shown] / scale,
                np.atleast_1d(b)[shown] / scale,
                atol=limit,
                err_msg=name,
            )
    assert ours.n_components_ == theirs.n_components_
    assert ours.n_samples_ == theirs.n_samples_


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_attributes_of_digits_are_those_of_scikit_learn(digits, dtype):
    theirs = SklearnPCA(10, svd_solver="full").fit(digits)
    ours = PCA(10).fit(digits.astype(dtype))
    close = rounding(len(digits)) if dtype == np.float32 else 1e-5
    for name in ATTRIBUTES:
        np.testing.assert_allclose(
            getattr(ours, name), getattr(theirs, name), rtol=close, atol=close, err_msg=name
        )
    np.testing.assert_allclose(
        ours.transform(digits.astype(dtype)),
        theirs.transform(digits),
        atol=1e-3 if dtype == np.float32 else 1e-9,
    )
    np.testing.assert_allclose(ours.score_samples(digits), theirs.score_samples(digits), rtol=1e-5)
    np.testing.assert_allclose(ours.get_covariance(), theirs.get_covariance(), atol=1e-3)
    np.testing.assert_allclose(ours.get_precision(), theirs.get_precision(), atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_attributes_of_sparse_rows_are_those_of_scikit_learn(dtype):
    x = sparse.random(2000, 300, 0.05, random_state=3, format="csr", dtype=dtype)
    x = x @ sparse.diags_array(np.linspace(1, 6, 300).astype(dtype))
    theirs = SklearnPCA(5, svd_solver="arpack", random_state=0).fit(x.astype(np.float64))
    close = rounding(x.shape[0]) if dtype == np.float32 else 1e-5
    for solver in ("auto", "lanczos"):
        ours = PCA(5, svd_solver=solver, tol=1e-12, random_state=0).fit(x)
        for name in ATTRIBUTES[1:]:
            np.testing.assert_allclose(
                getattr(ours, name), getattr(theirs, name), rtol=close, atol=1e-6, err_msg=name
            )
        np.testing.assert_allclose(
            ours.components_, theirs.components_, atol=2e-3 if dtype == np.float32 else 1e-5
        )


def test_uncentered_is_truncated_svd():
    x = sparse.random(500, 60, 0.1, random_state=3, format="csr")
    theirs = TruncatedSVD(4, algorithm="arpack", random_state=0).fit(x)
    for data in (x, x.toarray()):
        # codes stray by the root of the energy that may be missing (tol), over the gap: the default
        # tolerance would be what is seen here
        ours = PCA(4, center=False, svd_solver="lanczos", tol=1e-14, random_state=0).fit(data)
        np.testing.assert_allclose(ours.singular_values_, theirs.singular_values_, rtol=1e-6)
        np.testing.assert_allclose(
            np.abs(ours.transform(data)), np.abs(theirs.transform(x)), atol=1e-5
        )
        assert not ours.mean_.any()
        assert (np.diff(ours.explained_variance_) <= 0).all()
        np.testing.assert_allclose(ours.fit_transform(data), ours.fit(data).transform(data))


def test_minka_choice_is_scikit_learns(rng):
    x = planted(rng, rows=500, n=20, rank=5, noise=0.5)
    assert PCA("mle").fit(x).n_components_ == SklearnPCA("mle").fit(x).n_components_ == 5


@pytest.mark.parametrize("solver", ["eigh", "svd", "randomized", "lanczos", "power"])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_weights_are_repetitions_and_zero_removes(solver, kind, rng):
    x = rng.standard_normal((60, 8)) @ np.diag([8, 4, 2, 1, 0.5, 0.4, 0.3, 0.2])
    w = rng.integers(0, 4, 60)
    make = sparse.csr_array if kind == "sparse" else np.asarray
    a = PCA(2, svd_solver=solver, tol=1e-9, random_state=0).fit(make(x), sample_weight=w)
    b = PCA(2, svd_solver=solver, tol=1e-9, random_state=0).fit(make(np.repeat(x, w, axis=0)))
    np.testing.assert_allclose(a.components_, b.components_, atol=1e-4)
    np.testing.assert_allclose(a.explained_variance_, b.explained_variance_, rtol=1e-7)
    np.testing.assert_allclose(a.mean_, b.mean_, atol=1e-12)
    assert a.noise_variance_ == pytest.approx(b.noise_variance_)


def test_weights_with_gaps_are_repetitions(rng):
    x = planted(rng, rows=80, n=6, rank=2)
    x[rng.random(x.shape) < 0.2] = np.nan
    w = rng.integers(0, 4, 80)
    a, b = (
        PCA(2, random_state=0, tol=1e-12).fit(x, sample_weight=w),
        PCA(2, random_state=0, tol=1e-12).fit(np.repeat(x, w, axis=0)),
    )
    np.testing.assert_allclose(a.explained_variance_, b.explained_variance_, rtol=1e-4)
    np.testing.assert_allclose(a.components_, b.components_, atol=1e-3)


def test_bad_weights_are_named(rng):
    x = rng.standard_normal((5, 3))
    with pytest.raises(eckart.InputError, match=r"sample_weight is -1.0 at row 2"):
        PCA(1).fit(x, sample_weight=[1, 1, -1, 1, 1])
    with pytest.raises(eckart.InputError, match=r"shape \(4,\), wanted \(5,\)"):
        PCA(1).fit(x, sample_weight=np.ones(4))


def test_whitening_rank_deficient_data_stays_small(rng):
    x = rng.standard_normal((1000, 2)) @ rng.standard_normal((2, 10))
    for solver in ("svd", "eigh"):
        pca = PCA(10, whiten=True, svd_solver=solver).fit(x)
        codes = pca.transform(x)
        assert np.abs(codes).max() < 10
        assert pca.n_rank_deficient_ == 8
        np.testing.assert_allclose(codes[:, :2].std(axis=0, ddof=1), 1)
        np.testing.assert_allclose(pca.inverse_transform(codes), x, atol=1e-6)


def test_rotations_simplify_and_keep_the_subspace(rng):
    simple = np.kron(np.eye(3), np.ones((1, 4)))  # three groups of four columns
    x = rng.standard_normal((800, 3)) * [3, 2.8, 2.6] @ simple + 0.1 * rng.standard_normal(
        (800, 12)
    )
    plain = PCA(3).fit(x)
    for kind in ("varimax", "promax"):
        pca = PCA(3, rotation=kind).fit(x)
        np.testing.assert_allclose(
            pca.inverse_transform(pca.transform(x)),
            plain.inverse_transform(plain.transform(x)),
            atol=1e-9,
        )
        size = np.abs(pca.loadings_)
        # one large loading a column
        assert (np.sort(size, axis=1)[:, -2] < 0.1 * size.max(axis=1)).all()
        assert {name for name, _ in pca.top_features(4)[0]} in [
            set(range(4)),
            set(range(4, 8)),
            set(range(8, 12)),
        ]
    scores = PCA(3, rotation="varimax").fit(x).transform(x)
    np.testing.assert_allclose(np.cov(scores.T), np.eye(3), atol=1e-9)
    promax = PCA(3, rotation="promax").fit(x)
    np.testing.assert_allclose(
        np.cov(promax.transform(x).T), promax.rotation_.correlation, atol=1e-9
    )
    np.testing.assert_allclose(np.diagonal(promax.rotation_.correlation), 1)


@pytest.mark.parametrize("kind", ["varimax", "promax"])
def test_shares_of_variance_are_those_of_the_rotated_components(kind, rng):
    x = rng.standard_normal((300, 6)) @ rng.standard_normal((6, 6))
    plain, turned = PCA(3).fit(x), PCA(3, rotation=kind).fit(x)
    total = x.var(axis=0, ddof=1).sum()
    # what is lost when the codes of a component are left out, the variance that it shares with
    # others counted in proportion
    codes, pattern = turned.transform(x), turned.loadings_
    parts = codes[:, None, :] * pattern[None]
    whole = parts.sum(axis=2)
    shares = [
        sum(np.cov(parts[:, i, j], whole[:, i])[0, 1] for i in range(6)) / total for j in range(3)
    ]
    np.testing.assert_allclose(turned.explained_variance_ratio_, shares, atol=1e-9)
    np.testing.assert_allclose(turned.explained_variance_ / total, shares, atol=1e-9)
    np.testing.assert_allclose(sum(shares), plain.explained_variance_ratio_.sum())
    assert np.abs(np.array(shares) - plain.explained_variance_ratio_).max() > 0.01
    if kind == "varimax":
        np.testing.assert_allclose(shares, (pattern**2).sum(axis=0) / total)
    turned.mean_ = turned.mean_ + 1  # setting one attribute keeps the others
    np.testing.assert_allclose(turned.explained_variance_ratio_, shares, atol=1e-9)


def test_outlier_limits_hold_for_new_ordinary_rows_and_catch_odd_ones(rng):
    basis = np.linalg.qr(rng.standard_normal((12, 3)))[0]

    def draw(rows):
        return (
            rng.standard_normal((rows, 3)) * [5, 3, 2] @ basis.T
            + 0.2 * rng.standard_normal((rows, 12))
            + 1
        )

    # the share beyond a limit moves by x f(x) = 0.18 times the relative error of three variances,
    # sqrt(2 / (3 rows)): 0.002 here
    pca = PCA(3).fit(draw(5000))
    scores = pca.outliers(draw(20000), level=0.95)
    assert np.mean(scores.t2 > scores.t2_limit) == pytest.approx(0.05, abs=0.015)
    assert np.mean(scores.spe > scores.spe_limit) == pytest.approx(0.05, abs=0.015)
    odd = draw(2)
    odd[0] += 60 * basis[:, 0]
    direction = rng.standard_normal(12)
    odd[1] += 5 * (direction - basis @ (basis.T @ direction))
    found = pca.outliers(odd, level=0.999)
    assert found.flagged.all()
    assert found.t2[0] > found.t2_limit
    assert found.spe[1] > found.spe_limit
    np.testing.assert_allclose(pca.contributions(odd).sum(axis=1), found.spe, rtol=1e-8)


def test_score_is_the_gaussian_density(rng):
    x = planted(rng, rows=200, n=6, rank=2)
    pca = PCA(2).fit(x)
    want = stats.multivariate_normal(pca.mean_, pca.get_covariance()).logpdf(x)
    np.testing.assert_allclose(pca.score_samples(x), want, rtol=1e-8)
    np.testing.assert_allclose(pca.get_precision() @ pca.get_covariance(), np.eye(6), atol=1e-9)
    holes = x.copy()
    holes[:, 3] = np.nan
    keep = [0, 1, 2, 4, 5]
    want = stats.multivariate_normal(
        pca.mean_[keep], pca.get_covariance()[np.ix_(keep, keep)]
    ).logpdf(x[:, keep])
    np.testing.assert_allclose(pca.score_samples(holes), want, rtol=1e-6)


def test_imputation_is_the_conditional_mean(rng):
    x = planted(rng, rows=300, n=6, rank=2)
    pca = PCA(2).fit(x)
    c, mu = pca.get_covariance(), pca.mean_
    row = x[:1].copy()
    row[0, [1, 4]] = np.nan
    o, m = [0, 2, 3, 5], [1, 4]
    want = mu[m] + c[np.ix_(m, o)] @ np.linalg.solve(c[np.ix_(o, o)], row[0, o] - mu[o])
    filled = pca.impute(row)
    np.testing.assert_allclose(filled[0, m], want, rtol=1e-6)
    np.testing.assert_array_equal(filled[0, o], row[0, o])
    np.testing.assert_allclose(pca.transform(row), pca.transform(filled), atol=1e-8)


@pytest.mark.parametrize(
    "solver", ["auto", "eigh", "svd", "randomized", "lanczos", "power", "gradient"]
)
@pytest.mark.parametrize(
    ("name", "x", "k"),
    [
        ("one row", np.array([[1.0, 2.0, 3.0]]), 1),
        ("one column", np.arange(5.0)[:, None], 1),
        ("one entry", np.array([[3.0]]), 1),
        ("zero matrix", np.zeros((6, 4)), 2),
        ("constant columns", np.ones((6, 4)) * [1, 2, 3, 4.0], 2),
        ("k above rank", np.outer(np.arange(6.0), [1, 2, 3.0]), 3),
        ("k = 0", np.random.default_rng(0).standard_normal((9, 4)), 0),
        ("k = n", np.random.default_rng(0).standard_normal((9, 4)), 4),
        ("repeated eigenvalues", np.vstack([np.eye(4), -np.eye(4)]), 2),
        ("identical rows", np.ones((7, 3)) * [1.0, -2.0, 0.5], 1),
    ],
)
def test_edges(solver, name, x, k):
    pca = PCA(k, svd_solver=solver, random_state=0).fit(x)
    assert pca.components_.shape == (k, x.shape[1])
    np.testing.assert_allclose(pca.components_ @ pca.components_.T, np.eye(k), atol=1e-8)
    codes = pca.transform(x)
    assert codes.shape == (len(x), k)
    assert np.isfinite(codes).all()
    values = np.sort(np.linalg.eigvalsh(np.cov(x.T, bias=True).reshape(x.shape[1], -1)))[::-1][:k]
    np.testing.assert_allclose(pca.fit_.factors.scatter / len(x), np.maximum(values, 0), atol=1e-8)
    left = np.sum(np.var(x, axis=0)) - values.sum()
    assert 2 * pca.reconstruction_error(x) == pytest.approx(left, abs=1e-8)
    for attribute in ATTRIBUTES:
        assert np.isfinite(getattr(pca, attribute)).all(), attribute
    assert pca.certificate_.holds, pca.certificate_


@pytest.mark.parametrize("scale", [1e150, 1e-150])
def test_huge_and_tiny_entries(scale, rng):
    x = planted(rng, rows=50, n=6, rank=2)
    reference = PCA(2, svd_solver="svd").fit(x)
    for solver in ("svd", "eigh", "randomized"):
        pca = PCA(2, svd_solver=solver, random_state=0).fit(x * scale)
        assert principal_angles(pca.components_.T, reference.components_.T).max() < 5e-2
        assert pca.certificate_.holds, pca.certificate_
        np.testing.assert_allclose(
            pca.explained_variance_ratio_, reference.explained_variance_ratio_, rtol=1e-2
        )
        np.testing.assert_allclose(
            pca.transform(x * scale) / scale, reference.transform(x), atol=0.3
        )


@pytest.mark.parametrize("scale", [1e300, 1e-300])
def test_entries_whose_variance_is_no_number_are_refused(scale, rng):
    with pytest.raises(eckart.InputError, match="variance is beyond the range of float64"):
        PCA(2).fit(planted(rng, rows=50, n=6, rank=2) * scale)


@pytest.mark.parametrize("scale", [1e25, 1e-25])
def test_huge_and_tiny_float32(scale, rng):
    x = planted(rng, rows=5000, n=6, rank=2)
    pca = PCA(2).fit((x * scale).astype(np.float32))
    np.testing.assert_allclose(
        pca.explained_variance_ / scale**2, PCA(2).fit(x).explained_variance_, rtol=1e-4
    )


@pytest.mark.parametrize(
    ("k", "words"),
    [
        (9, "n_components=9 came, wanted 0 to 4"),
        (-1, "n_components=-1"),
        (1.5, "n_components=1.5"),
        ("many", "n_components='many'"),
        (True, "n_components=True"),
    ],
)
def test_bad_component_counts_are_named(k, words, rng):
    with pytest.raises(eckart.InputError, match=words):
        PCA(k).fit(rng.standard_normal((9, 4)))


def test_unknown_solver_and_options_are_named(rng):
    x = rng.standard_normal((9, 4))
    for parameters in (
        {"svd_solver": "magic"},
        {"tol": -1.0},
        {"rotation": "spin"},
        {"whiten": "yes"},
        {"n_threads": 0},
        {"n_oversamples": 0},
        {"iterated_power": -2},
        {"max_iter": 0},
        {"random_state": "seed"},
        {"power_iteration_normalizer": "SVD"},
    ):
        with pytest.raises(eckart.InputError, match=next(iter(parameters))):
            PCA(2, **parameters).fit(x)


def test_infinity_and_strings_are_refused_with_their_place(rng):
    x = rng.standard_normal((50, 4))
    x[31, 2] = np.inf
    for call in (PCA(2).fit, PCA(2).partial_fit, PCA(2).fit(np.nan_to_num(x, posinf=0)).transform):
        with pytest.raises(eckart.InputError, match="inf at row 31, column 2"):
            call(x)
    with pytest.raises(eckart.InputError, match="'tall' at row 1, column 0"):
        PCA(1).fit(np.array([["1", "2"], ["tall", "3"]], dtype=object))
    gappy = x.copy()
    gappy[3, 3] = np.nan
    with pytest.raises(eckart.InputError, match="inf at row 31, column 2"):
        PCA(2).fit(gappy)


def test_memory_maps_and_iterators_do_not_load_the_data(tmp_path, rng):
    import tracemalloc

    x = planted(rng, rows=300000, n=64, dtype=np.float32)
    np.save(tmp_path / "x.npy", x)
    exact = PCA(4).fit(x)
    tracemalloc.start()
    mapped = PCA(4, n_threads=1).fit(tmp_path / "x.npy")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.6 * x.nbytes  # blocks and statistics, not the 77 MB of data
    np.testing.assert_allclose(mapped.components_, exact.components_, atol=1e-6)
    streamed = PCA(4).fit(x[i : i + 25000] for i in range(0, 300000, 25000))
    assert streamed.n_samples_ == 300000
    np.testing.assert_allclose(streamed.components_, exact.components_, atol=1e-4)
    assert streamed.certificate_.holds


@pytest.mark.parametrize("steps", range(8, 14))
def test_a_limit_of_steps_is_met_wherever_the_space_begins_anew(steps, rng):
    """Two components in blocks of two: the space holds 20 vectors, and is begun anew after the
    tenth step."""
    x = rng.standard_normal((500, 300))
    model = PCA(2, svd_solver="lanczos", max_iter=steps, tol=1e-12, random_state=0).fit(x)
    assert np.abs(model.components_ @ model.components_.T - np.eye(2)).max() < 1e-10
    assert np.allclose(model.transform(x).var(axis=0, ddof=1), model.explained_variance_, rtol=1e-8)


def test_interrupt_keeps_the_best_state(rng, monkeypatch):
    x = sparse.random(3000, 2500, 0.01, random_state=0, format="csr")
    calls = []
    from eckart.reduce.covariance import Covariance

    original = Covariance.product

    def product(self, v):
        calls.append(v.shape)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return original(self, v)

    monkeypatch.setattr(Covariance, "product", product)
    pca = PCA(5, svd_solver="randomized", tol=1e-12, random_state=0).fit(x)
    assert pca.fit_.trace.reason.name == "INTERRUPTED"
    assert pca.transform(x).shape == (3000, 5)
    assert not pca.certificate_.holds  # stopped far from the tolerance that was asked for


def test_bfi_components_line_up_with_the_five_traits(shared_data):
    """A survey with genuine gaps: each trait's five questions load on a factor of their own."""
    table = eckart.read(shared_data("bfi") / "bfi.csv")
    names = [str(n) for n in table.columns]
    items = [n for n in names if n[0] in "ACENO" and n[1:].isdigit()]
    matrix = eckart.read(shared_data("bfi") / "bfi.csv", columns=items)
    pca = PCA(5, rotation="varimax", random_state=0).fit(matrix)
    assert pca.fit_.plan["gaps"] > 0
    assert pca.certificate_.holds, pca.certificate_
    found = set()
    for top in pca.top_features(4):
        letters = [name[0] for name, _ in top]
        found.add(max(set(letters), key=letters.count))
        assert max(letters.count(c) for c in set(letters)) >= 3
    assert found == set("ACENO")


def test_named_columns_must_be_those_of_the_training_data(tmp_path, rng):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(rng.standard_normal((20, 4)), columns=list("abcd"))
    frame.to_csv(tmp_path / "abcd.csv", index=False)
    frame[list("badc")].to_csv(tmp_path / "badc.csv", index=False)
    pca = PCA(1).fit(tmp_path / "abcd.csv")
    np.testing.assert_allclose(pca.transform(tmp_path / "abcd.csv"), pca.transform(frame))
    for wrong in (tmp_path / "badc.csv", eckart.read(frame[list("badc")])):
        with pytest.raises(eckart.InputError, match="column 0 of X is 'b', wanted 'a'"):
            pca.transform(wrong)
    with pytest.raises(TypeError, match="string names"):
        PCA(1).fit(frame.rename(columns={"a": 1}))


def test_rounding_alone_flags_no_row(rng):
    x = rng.standard_normal((50, 4))
    deficient = x[:, :2] @ rng.standard_normal((2, 6))
    for data, k in ((x, 4), (deficient, 2), (deficient.astype(np.float32), 2)):
        scores = PCA(k).fit(data).outliers(data, level=0.9999)
        assert not (scores.spe > scores.spe_limit).any()


def test_one_shot_streams_are_scored_once(rng):
    x = planted(rng, rows=60, n=5)
    pca = PCA(2).fit(x)
    np.testing.assert_allclose(pca.score_samples(iter([x[:30], x[30:]])), pca.score_samples(x))
    np.testing.assert_allclose(pca.outliers(iter([x[:30], x[30:]])).spe, pca.spe(x))
    np.testing.assert_allclose(pca.contributions([x[:30], x[30:]]), pca.contributions(x))


def test_a_loaded_stream_does_not_forget_silently(tmp_path, rng):
    x = planted(rng, rows=60, n=5)
    PCA(2).partial_fit(x).save(tmp_path / "m.safetensors")
    with pytest.raises(eckart.InputError, match="does not hold its running statistic"):
        eckart.load(tmp_path / "m.safetensors").partial_fit(x)


def test_codes_and_weights_that_are_no_numbers_are_refused(rng):
    x = rng.standard_normal((20, 4))
    pca = PCA(2).fit(x)
    for codes in ([["a", "b"]], [[1j, 0.0]]):
        with pytest.raises(eckart.InputError):
            pca.inverse_transform(codes)
    with pytest.raises(eckart.InputError, match="sample_weight is not numeric"):
        pca.fit(x, sample_weight=["a"] * 20)
    assert PCA(2, tol=np.float32(0.1)).fit(x).n_components_ == 2


MEMORY = """
import resource, sys
import numpy as np
from eckart import PCA, IncrementalPCA
what, rows, columns = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rng = np.random.default_rng(0)
make = lambda n: rng.standard_normal((rows, n), dtype=np.float32)
model = (lambda: IncrementalPCA(10, n_threads=1)) if what == "batches" else (lambda: PCA(n_threads=1))
model().partial_fit(make(3000)) if what == "batches" else model().fit(make(3000))
x = make(columns)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
m = model()
for _ in range(3 if what == "batches" else 0):
    m.partial_fit(x)
if what != "batches":
    m.fit(x)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / x.nbytes, m.certificate_.holds)
"""


@pytest.mark.parametrize(
    ("what", "rows", "columns", "most"),
    [("fit", 3, 2**20, 8), ("fit", 33, 200_000, 8), ("batches", 50, 100_000, 5)],
)
def test_few_rows_with_many_columns_take_little_memory(what, rows, columns, most):
    import subprocess
    import sys

    found = subprocess.run(
        [sys.executable, "-c", MEMORY, what, str(rows), str(columns)],
        capture_output=True,
        text=True,
        check=True,
    )
    times, holds = found.stdout.split()
    assert holds == "True"
    assert float(times) <= most  # of the data, beyond them


@pytest.mark.parametrize("weights", [False, True])
def test_evidence_of_few_rows_is_that_of_random_directions(weights, rng):
    x = planted(rng, 40, 3000, rank=5, noise=0.5, dtype=np.float64)
    w = rng.uniform(0.5, 2, 40) if weights else None
    pca = PCA(5).fit(x, sample_weight=w)
    c = pca.certificate_
    assert c.holds
    assert "40 x 40" in c.facts["how the bound is known"]
    each = np.full(40, 1 / 40) if w is None else w / w.sum()
    rest = (x - each @ x) * np.sqrt(each)[:, None]
    values = np.linalg.svd(rest, compute_uv=False) ** 2
    assert c.facts["remainder norm"] == pytest.approx(values[5], rel=1e-9)
    assert c.facts["captured variance"] == pytest.approx(values[:5].sum(), rel=1e-12)
    turned = PCA(5).fit(x, sample_weight=w)
    turned.fit_.factors.components[:] = np.linalg.qr(rng.standard_normal((3000, 5)))[0].T
    assert not turned.certify(x, sample_weight=w).holds


def multiplied(pca):
    return int(pca.fit_.trace.note.split()[0])


def test_oversampling_and_steps_are_what_was_asked_for(rng):
    x = planted(rng, 3000, 700, rank=6, noise=0.5, dtype=np.float64)
    asked = {"svd_solver": "randomized", "random_state": 0}
    # was 10, twice the components
    assert multiplied(PCA(5, n_oversamples=100, max_iter=1, **asked).fit(x)) == 100
    assert (
        multiplied(PCA(5, n_oversamples=20, iterated_power=4, tol=0.9, **asked).fit(x)) == 100
    )  # five steps, though the first would do
    few = PCA(5, iterated_power=0, **asked).fit(x).certificate_.facts["captured variance"]
    many = PCA(5, iterated_power=12, **asked).fit(x).certificate_.facts["captured variance"]
    assert many > few


def test_few_rows_of_many_columns_take_little_memory(rng):
    import tracemalloc

    x = rng.standard_normal((3, 2**19), dtype=np.float32)
    PCA().fit(x[:, : 2**16])  # kernels are loaded
    tracemalloc.start()
    model = PCA().fit(x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert model.certificate_.holds
    assert peak <= 6.5 * x.nbytes  # was 7.3; with the data themselves below eight


def test_a_share_with_gaps_is_found_by_fits_of_few_components(rng):
    x = planted(rng, 400, 60, rank=3, noise=0.2, dtype=np.float64)
    holes = np.where(rng.random(x.shape) < 0.1, np.nan, x)
    for share in (0.5, 0.7, 0.8):
        assert abs(PCA(share).fit(holes).n_components_ - PCA(share).fit(x).n_components_) <= 1
