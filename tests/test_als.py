"""Alternating least squares: the formulas, judged by brute force on small problems, and what
happens at the edges."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import minimize, nnls

import eckart
from eckart import ALS, InputError, Observed
from eckart.complete.factors import als as als_module
from eckart.engines import engine_named
from eckart.engines.cpu.engine import CpuEngine
from eckart.engines.protocol import RidgeRule
from oracle import JUDGE

PLAIN = JUDGE
TO_THE_END = {"tol": 1e-14, "max_iter": 1000, "random_state": 0}
BARE = {"biases": False, "normalise": None, "l2_power": 0.0}


def holes(rng, n=12, m=9, rank=2, share=0.4, noise=0.1, mean=0.0):
    """A noisy matrix of low rank with NaN where nothing was seen; every row and column keeps an
    entry."""
    a = (
        rng.standard_normal((n, rank)) @ rng.standard_normal((rank, m))
        + noise * rng.standard_normal((n, m))
        + mean
    )
    gone = rng.random(a.shape) < share
    gone[np.arange(n), np.arange(n) % m] = False
    gone[np.arange(m) % n, np.arange(m)] = False
    return np.where(gone, np.nan, a)


def strengths(rng, n=12, m=9):
    r = rng.integers(1, 5, (n, m)).astype(float)
    return np.where(rng.random((n, m)) < 0.6, np.nan, r)


def factors(model):
    f = model.fit_.factors
    b = np.zeros(f.shape[0]) if f.row_bias is None else f.row_bias
    c = np.zeros(f.n) if f.column_bias is None else f.column_bias
    return f.left.astype(float), f.right.astype(float), b.astype(float), c.astype(float), f.mean


def ridges(counts, l2, power):
    return l2 * np.where(counts > 0, counts, 1.0) ** power


def explicit(a, point, l2, power, l2_bias, weights=None):
    """F by its formula, with dense arrays."""
    u, v, b, c, mean = point
    seen = ~np.isnan(a)
    w = np.where(seen, 1.0 if weights is None else weights, 0.0)
    miss = np.where(seen, a, 0.0) - (mean + b[:, None] + c[None, :] + u @ v.T)
    rows, columns = seen.sum(axis=1), seen.sum(axis=0)
    value = 0.5 * np.sum(w * miss**2)
    value += 0.5 * ridges(rows, l2, power) @ (u**2).sum(axis=1) + 0.5 * ridges(
        columns, l2, power
    ) @ (v**2).sum(axis=1)
    return (
        value
        + 0.5 * ridges(rows, l2_bias, power) @ b**2
        + 0.5 * ridges(columns, l2_bias, power) @ c**2
    )


def implicit(r, point, l2, power, alpha, a0, zeros):
    """F with a weight and a target for every cell."""
    u, v = point[:2]
    seen = ~np.isnan(r)
    s = u @ v.T
    strength = alpha * np.where(seen, r, 0.0)
    if zeros == "all":
        value = 0.5 * np.sum(strength * (1 - s) ** 2) + 0.5 * a0 * np.sum(s**2)
    else:
        value = 0.5 * np.sum(np.where(seen, a0 + strength, a0) * (seen - s) ** 2)
    rows, columns = seen.sum(axis=1) + a0 * r.shape[1], seen.sum(axis=0) + a0 * r.shape[0]
    return (
        value
        + 0.5 * l2 * rows**power @ (u**2).sum(axis=1)
        + 0.5 * l2 * columns**power @ (v**2).sum(axis=1)
    )


# ---- the objective


@settings(max_examples=25, deadline=None)
# one entry in a column: the bias takes all of it
@example(0, (2, 8, 2), 0.0, 0.0, True, False, False)
@example(5376, (4, 4, 2), 0.0, 0.5, True, True, True)  # free biases in the thousands
@given(
    st.integers(0, 2**32 - 1),
    st.tuples(st.integers(1, 9), st.integers(1, 8), st.integers(1, 5)),
    st.sampled_from([0.0, 0.01, 0.5]),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_the_objective_is_the_formula_and_falls_every_half_sweep(
    seed, shape, l2, power, biases, nonnegative, weighted
):
    rng = np.random.default_rng(seed)
    n, m, k = shape
    a = holes(rng, n, m, mean=1.0)
    w = rng.random(a.shape) * 2 + 0.1 if weighted else None
    model = ALS(
        k,
        l2=l2,
        l2_power=power,
        biases=biases,
        nonnegative=nonnegative,
        normalise=None,
        max_iter=8,
        tol=0.0,
        random_state=0,
    ).fit(a, weights=w)
    values = np.array(model.fit_.trace.values)
    point = factors(model)
    rounding = 1e-11 * (
        np.nansum(a**2) + (sum(np.sum(b**2) for b in point[2:4]) if biases else 0.0)
    )
    assert (np.diff(values) <= rounding).all()
    want = explicit(a, point, l2, power, l2, w)
    assert values[-1] == pytest.approx(want, rel=1e-8, abs=rounding)
    assert model.objective_ == pytest.approx(want, rel=1e-8, abs=rounding)
    assert np.isfinite(model.predict(np.arange(n), np.arange(n) % m)).all()
    if nonnegative:
        assert min(model.row_factors_.min(), model.column_factors_.min()) >= 0


@settings(max_examples=20, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(["all", "unobserved"]),
    st.sampled_from([0.0, 1.0]),
    st.sampled_from([0.1, 1.0]),
    st.booleans(),
)
def test_the_implicit_objective_is_that_of_all_cells(seed, zeros, power, a0, nonnegative):
    rng = np.random.default_rng(seed)
    r = strengths(rng)
    r[0, 0] = 2.0
    model = ALS(
        3,
        feedback="implicit",
        zeros=zeros,
        l2=0.05,
        l2_power=power,
        alpha=1.5,
        unobserved_weight=a0,
        nonnegative=nonnegative,
        max_iter=6,
        tol=0.0,
        random_state=0,
    ).fit(r)
    values = np.array(model.fit_.trace.values)
    assert (np.diff(values) <= 1e-10 * values.max()).all()
    want = implicit(r, factors(model), 0.05, power, 1.5, a0, zeros)
    assert model.objective_ == pytest.approx(want, rel=1e-9)
    assert values[-1] == pytest.approx(want, rel=1e-9)


@pytest.mark.parametrize("zeros", ["all", "unobserved"])
def test_implicit_rows_are_the_dense_weighted_solutions(rng, zeros):
    """Given V, each u_i = (sum_j W_ij v_j v_j^T + l I)^-1 sum_j W_ij P_ij v_j over all cells;
    likewise for columns at the end."""
    r = strengths(rng)
    model = ALS(
        3,
        feedback="implicit",
        zeros=zeros,
        l2=0.1,
        l2_power=0.0,
        unobserved_weight=1.0,
        **TO_THE_END,
    ).fit(r)
    u, v = model.row_factors_, model.column_factors_
    seen = ~np.isnan(r)
    strength = np.where(seen, r, 0.0)
    weight = strength + 1.0
    pull = np.where(seen, strength + (1.0 if zeros == "unobserved" else 0.0), 0.0)
    for own, other, w, q in ((u, v, weight, pull), (v, u, weight.T, pull.T)):
        for i in range(len(own)):
            want = np.linalg.solve((other.T * w[i]) @ other + 0.1 * np.eye(3), other.T @ q[i])
            np.testing.assert_allclose(own[i], want, atol=1e-4)


def best_by_scipy(function, sizes, starts=3):
    rng = np.random.default_rng(1)
    cuts = np.cumsum([int(np.prod(s)) for s in sizes])

    def value(z):
        return function([part.reshape(s) for part, s in zip(np.split(z, cuts[:-1]), sizes)])

    runs = [
        minimize(value, rng.standard_normal(cuts[-1]), method="L-BFGS-B", options={"maxiter": 2000})
        for _ in range(starts)
    ]
    return min(run.fun for run in runs)


@pytest.mark.parametrize("biases", [False, True])
def test_explicit_against_a_general_minimiser(rng, biases):
    a = holes(rng, 5, 4, rank=1, mean=1.0)
    model = ALS(2, l2=0.3, l2_power=1.0, biases=biases, normalise=None, **TO_THE_END).fit(a)
    mean = model.mean_
    sizes = [(5, 2), (4, 2)] + ([(5,), (4,)] if biases else [])

    def value(parts):
        u, v, *more = parts
        b, c = more if biases else (np.zeros(5), np.zeros(4))
        return explicit(a, (u, v, b, c, mean), 0.3, 1.0, 0.3)

    best = best_by_scipy(value, sizes)
    assert model.objective_ == pytest.approx(best, rel=1e-5)


@pytest.mark.parametrize("zeros", ["all", "unobserved"])
def test_implicit_against_a_general_minimiser(rng, zeros):
    r = strengths(rng, 5, 4)
    model = ALS(
        2,
        feedback="implicit",
        unobserved_weight=0.1,
        zeros=zeros,
        l2=0.2,
        l2_power=1.0,
        **TO_THE_END,
    ).fit(r)
    best = best_by_scipy(
        lambda parts: implicit(r, parts, 0.2, 1.0, 1.0, 0.1, zeros), [(5, 2), (4, 2)]
    )
    assert model.objective_ == pytest.approx(best, rel=1e-5)


# ---- rows


@pytest.mark.parametrize(
    "options", [{}, {"l2_power": 0.0}, {"biases": True, "normalise": None}, {"nonnegative": True}]
)
def test_columns_are_the_plain_ridge_solution_given_the_rows(rng, options):
    """The last half sweep solved the columns exactly."""
    a = holes(rng)
    model = ALS(
        3, **{"l2": 0.1, "biases": False, "max_iter": 7, "tol": 0.0, "random_state": 0, **options}
    ).fit(a)
    f, norm = model.fit_.factors, model.normaliser_
    y = Observed.from_nan(a) if norm is None else norm.apply(Observed.from_nan(a))
    rule = RidgeRule(0.1, options.get("l2_power", 1.0), model.biases, 0.1, model.nonnegative)
    offset = None if norm is not None or f.row_bias is None else f.row_bias + f.mean
    want = PLAIN.ridge_rows(y.transposed(), f.left, rule, offset=offset)
    np.testing.assert_allclose(f.right, want.left, atol=1e-4 if model.nonnegative else 1e-10)
    if model.biases:
        np.testing.assert_allclose(f.column_bias, want.bias, atol=1e-10)


def test_a_weight_of_two_is_half_the_ridge(rng):
    a = holes(rng)
    two = ALS(3, l2=0.4, l2_power=0.0, max_iter=20, tol=0.0, random_state=0).fit(
        a, weights=np.full(a.shape, 2.0)
    )
    one = ALS(3, l2=0.2, l2_power=0.0, max_iter=20, tol=0.0, random_state=0).fit(a)
    np.testing.assert_allclose(two.row_factors_, one.row_factors_, atol=1e-9)
    assert two.objective_ == pytest.approx(2 * one.objective_)


def test_a_row_with_integer_weights_is_the_row_with_repeated_observations(rng):
    """w copies of an observation in w columns with the same v: the same code."""
    right = rng.standard_normal((4, 3))
    right = np.vstack([right, right[[1, 1]]])  # column 1 three times
    weighted = Observed.from_nan(np.array([[1.0, 2.0, -1.0, np.nan, np.nan, np.nan]]))
    repeated = Observed.from_nan(np.array([[1.0, 2.0, -1.0, np.nan, 2.0, 2.0]]))
    engine, rule = engine_named("cpu", 1), RidgeRule(0.3, 0.0, True, 0.2)
    got = engine.ridge_rows(weighted, right, rule, weights=np.array([1.0, 3.0, 1.0]))
    want = engine.ridge_rows(repeated, right, rule)
    np.testing.assert_allclose(got.left, want.left, atol=1e-12)
    np.testing.assert_allclose(got.bias, want.bias, atol=1e-12)
    assert got.value == pytest.approx(want.value)


def test_a_weight_of_zero_is_no_observation(rng):
    a = holes(rng)
    w = np.ones(a.shape)
    w[3, 3], w[0, 0] = 0.0, 0.0
    b = np.where(w > 0, a, np.nan)
    options = {**BARE, **TO_THE_END, "l2": 0.5}
    np.testing.assert_allclose(
        ALS(2, **options).fit(a, weights=w).predict(np.arange(9), np.arange(9)),
        ALS(2, **options).fit(b).predict(np.arange(9), np.arange(9)),
        atol=1e-4,
    )


def test_weights_in_every_form_are_the_same(rng):
    a = holes(rng)
    w = rng.random(a.shape) + 0.5
    x = Observed.from_nan(a)
    forms = w, w[~np.isnan(a)], replace(x, data=w[~np.isnan(a)])
    models = [ALS(2, random_state=0).fit(x, weights=form) for form in forms]
    assert (
        models[0].row_factors_.tobytes()
        == models[1].row_factors_.tobytes()
        == models[2].row_factors_.tobytes()
    )


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (lambda a: np.ones(3), "shape"),
        (lambda a: -np.ones(a.shape), "finite number >= 0"),
        (lambda a: np.full(a.shape, np.nan), "finite number >= 0"),
        (lambda a: np.zeros(a.shape), "zero for every entry"),
        (lambda a: Observed.from_nan(a[:, ::-1]), "same entries"),
    ],
)
def test_bad_weights_are_refused(rng, weights, message):
    a = holes(rng)
    with pytest.raises(InputError, match=message):
        ALS(2).fit(a, weights=weights(a))


def test_weights_that_would_be_ignored_are_refused(rng):
    with pytest.raises(InputError, match="implicit"):
        ALS(2, feedback="implicit").fit(strengths(rng), weights=np.ones((12, 9)))
    with pytest.raises(InputError, match="held_out"):
        ALS(2, stop="held_out").fit(holes(rng), weights=np.ones((12, 9)))


@pytest.mark.parametrize(
    "options",
    [{"biases": False}, {"feedback": "implicit"}, {"feedback": "implicit", "zeros": "unobserved"}],
)
@pytest.mark.parametrize("steps", [1, 3])
def test_conjugate_gradients_fall_every_half_sweep_to_the_same_minimum(rng, options, steps):
    a = strengths(rng) if "feedback" in options else holes(rng)
    options = {"l2": 0.1, "random_state": 0, "max_iter": 400, "tol": 1e-10, **options}
    by_steps, exact = (
        ALS(3, solver="cg", cg_steps=steps, **options).fit(a),
        ALS(3, solver="cholesky", **options).fit(a),
    )
    values = np.array(by_steps.fit_.trace.values)
    assert (np.diff(values) <= 1e-9 * values.max()).all()
    assert by_steps.objective_ == pytest.approx(values[-1], rel=1e-8)
    assert by_steps.objective_ == pytest.approx(exact.objective_, rel=1e-3)


def test_conjugate_gradients_are_refused_where_they_do_not_apply(rng):
    with pytest.raises(
        InputError,
        match="solver must be 'auto' or 'cholesky' with biases, nonnegative factors or l2=0, got 'cg'",
    ):
        ALS(3, solver="cg", nonnegative=True).fit(np.abs(holes(rng)))


# ---- no ridge, non-negative


def test_without_ridge_an_exact_matrix_is_found(rng):
    a = rng.standard_normal((20, 2)) @ rng.standard_normal((2, 15))
    b = np.where(rng.random(a.shape) < 0.3, np.nan, a)
    # without a ridge some starts lead to where factors grow without bound and cancel; the
    # objective, which is 0 at the matrix, tells them
    models = [
        ALS(2, l2=0.0, **BARE, **TO_THE_END | {"random_state": start, "max_iter": 200}).fit(b)
        for start in range(6)
    ]
    best = min(models, key=lambda model: model.objective_)
    np.testing.assert_allclose(best.fit_.factors.block(slice(None)), a, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_without_ridge_and_with_too_many_components_rows_are_of_least_norm(rng, dtype):
    a = holes(rng, 8, 6).astype(dtype)
    model = ALS(10, l2=0.0, **BARE, max_iter=20, random_state=0).fit(a)
    assert np.isfinite(model.row_factors_).all()
    x = Observed.from_nan(a).transposed()
    for j in range(6):
        part = slice(x.indptr[j], x.indptr[j + 1])
        rows = model.row_factors_[x.indices[part]].astype(float)
        # directions of 1e-5 of the largest are the data's own in float64, and normal equations lose
        # the square of the condition
        least = 1e-4 if dtype == np.float32 else 1e-9
        want, sizes = (
            np.linalg.pinv(rows, rcond=least) @ x.data[part],
            np.linalg.svd(rows, compute_uv=False),
        )
        condition = sizes[0] / sizes[sizes > least * sizes[0]].min()
        rounding = 20 * np.finfo(float).eps * condition**2
        np.testing.assert_allclose(
            model.column_factors_[j],
            want,
            atol=1e-3 if dtype == np.float32 else max(1e-6, rounding),
        )


def test_nonnegative_factors_meet_the_kkt_conditions_and_nnls(rng):
    a = np.abs(holes(rng, 15, 10))
    model = ALS(3, l2=0.2, nonnegative=True, **BARE, **TO_THE_END).fit(a)
    u, v = model.row_factors_, model.column_factors_
    assert u.min() >= 0
    assert v.min() >= 0
    seen = ~np.isnan(a)
    gradient = 0.2 * u - np.where(seen, np.nan_to_num(a) - u @ v.T, 0.0) @ v
    assert gradient[u == 0].min(initial=0) > -1e-4
    assert np.abs(gradient[u > 0]).max() < 1e-3
    for j in range(10):
        rows = seen[:, j]
        stacked = np.vstack([u[rows], np.sqrt(0.2) * np.eye(3)])
        np.testing.assert_allclose(
            v[j], nnls(stacked, np.append(a[rows, j], np.zeros(3)))[0], atol=1e-4
        )
    assert model.certificate_.holds


# ---- edges


EDGES = {
    "an empty row": lambda a: _set(a, np.s_[3], np.nan),
    "an empty column": lambda a: _set(a, np.s_[:, 2], np.nan),
    "one observation": lambda a: _set(np.full_like(a, np.nan), np.s_[2, 3], 7.0),
    "all values equal": lambda a: np.where(np.isnan(a), np.nan, 4.0),
    "all zero": lambda a: np.where(np.isnan(a), np.nan, 0.0),
    "one row": lambda a: a[:1],
    "one column": lambda a: a[:, :1],
    "huge": lambda a: a * 1e12,
    "tiny": lambda a: a * 1e-12,
    "disconnected": lambda a: _set(_set(a, np.s_[:6, 4:], np.nan), np.s_[6:, :4], np.nan),
}


def _set(a, where, value):
    a = a.copy()
    a[where] = value
    return a


@pytest.mark.parametrize("name", EDGES)
@pytest.mark.parametrize(
    "options",
    [{}, {"biases": False}, {"biases": False, "scale": True}, {"l2": 0.0}, {"nonnegative": True}],
)
def test_edges_are_defined_and_finite(rng, name, options):
    a = EDGES[name](holes(rng, mean=3.0))
    model = ALS(20, random_state=0, max_iter=10, **options).fit(a)
    b = model.fit_.factors.block(slice(None))
    assert np.isfinite(b).all()
    assert np.isfinite(model.row_factors_).all()
    assert np.isfinite(model.objective_)
    assert np.isfinite(model.transform(a)).all()
    if name == "all values equal":
        np.testing.assert_allclose(
            b, 4.0, rtol=0.4 if options.get("biases", True) and options else 1e-3
        )
    if name == "one observation" and not options:
        assert b[2, 3] == pytest.approx(7.0)


def test_an_empty_row_is_answered_by_mean_and_column_biases(rng):
    a = _set(holes(rng, mean=3.0), np.s_[3], np.nan)
    learned = ALS(2, random_state=0).fit(a)
    np.testing.assert_allclose(
        learned.predict(3, np.arange(9)), learned.mean_ + learned.column_biases_
    )
    taken = ALS(2, biases=False, random_state=0).fit(a)
    np.testing.assert_allclose(taken.predict(3, np.arange(9)), np.nanmean(a, axis=0))


@pytest.mark.parametrize("feedback", ["explicit", "implicit"])
@pytest.mark.parametrize("l2", [None, 0.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_identity_interactions_with_more_factors_than_rows(feedback, l2, dtype):
    model = ALS(15, feedback=feedback, l2=l2, random_state=0).fit(
        sparse.eye(10, format="csr", dtype=dtype)
    )
    assert np.isfinite(model.row_factors_).all()
    assert np.isfinite(model.column_factors_).all()
    assert np.isfinite(model.recommend(n=3, exclude_seen=False).scores).all()


@pytest.mark.parametrize("bad", [np.inf, -np.inf])
def test_an_infinity_is_refused_by_row_and_column(rng, bad):
    with pytest.raises(InputError, match="inf at row 4, column 2"):
        ALS(2).fit(_set(holes(rng), np.s_[4, 2], bad))
    s = sparse.csr_array(np.nan_to_num(holes(rng)))
    s.data[0] = np.nan
    with pytest.raises(InputError, match="nan at row 0, column 0"):
        ALS(2).fit(s)


def test_nothing_observed_and_negative_strengths_are_refused(rng):
    with pytest.raises(
        InputError,
        match="X must have at least one observed entry among 3 rows and 3 columns, got none",
    ):
        ALS(2).fit(np.full((3, 3), np.nan))
    with pytest.raises(
        InputError,
        match=r"Negative values in data: X must hold strengths >= 0 with feedback='implicit', got -2\.0",
    ):
        ALS(2, feedback="implicit").fit(np.array([[1.0, 1.0], [-2.0, 1.0]]))


@pytest.mark.parametrize(
    "options",
    [
        {"n_components": 0},
        {"n_components": 2.5},
        {"n_components": True},
        {"feedback": "both"},
        {"stop": "never"},
        {"zeros": "some"},
        {"l2": -1.0},
        {"l2": np.nan},
        {"l2": "x"},
        {"l2_power": -1.0},
        {"l2_bias": -1.0},
        {"tol": np.inf},
        {"max_iter": 0},
        {"alpha": -1.0},
        {"unobserved_weight": np.nan},
        {"patience": 0},
        {"normalise": "column"},
        {"normalise": "none", "biases": False},
        {"normalise": "row", "feedback": "implicit"},
        {"stop": "held_out", "held_out": 1.5},
        {"random_state": "seed"},
        {"n_threads": 0},
    ],
)
def test_bad_parameters_are_refused_by_name(rng, options):
    a = np.abs(holes(rng))
    with pytest.raises(
        InputError, match=f"^({next(reversed(options))}|{next(iter(options))}|by|normalise) must be"
    ):
        ALS(**options).fit(a)


# ---- stopping, growing, interrupting


def test_stops_at_a_critical_point_when_asked(rng):
    model = ALS(3, stop="gradient", tol=1e-6, max_iter=5000, random_state=0).fit(holes(rng))
    assert model.fit_.trace.converged
    assert model.certificate_["relative gradient"] <= 1e-6
    assert (
        ALS(3, stop="gradient", tol=1e-6, max_iter=2, random_state=0)
        .fit(holes(rng))
        .fit_.trace.reason.name
        == "MAX_ITER"
    )


def test_stops_on_held_out_entries_and_keeps_the_best_sweep(rng):
    a = holes(rng, 60, 40, noise=1.0, share=0.4)
    model = ALS(
        5,
        l2=1e-3,
        biases=False,
        stop="held_out",
        held_out=0.2,
        patience=4,
        max_iter=200,
        random_state=0,
    ).fit(a)
    errors = model.held_out_errors_
    assert model.n_iter_ == int(np.argmin(errors)) + 1
    assert len(errors) == model.n_iter_ + 4
    assert model.certificate_.kind == "statistical"
    assert model.certificate_["held-out error"] == min(errors)


def test_growing_the_rank_keeps_what_was_learned(rng):
    a = holes(rng, 40, 30, rank=6, share=0.5)
    model = ALS(2, warm_start=True, l2=0.01, random_state=0, tol=1e-5, max_iter=300).fit(a)
    assert model.fit_.trace.converged
    before, old = model.objective_, model.row_factors_.copy()
    assert model.fit(a).n_iter_ == 2  # nothing left to do: the least number of sweeps that shows it
    assert model.objective_ <= before
    first = ALS(2, warm_start=True, l2=0.01, random_state=0, tol=1e-5, max_iter=300).fit(a)
    first.set_params(n_components=6, max_iter=1).fit(a)
    model.set_params(n_components=6).fit(a)
    assert model.objective_ < 0.5 * before
    assert model.row_factors_.shape == (40, 6)
    assert (
        eckart.principal_angles(first.row_factors_, old).max()
        < eckart.principal_angles(
            ALS(6, l2=0.01, random_state=0, max_iter=1).fit(a).row_factors_, old
        ).max()
    )
    with pytest.raises(InputError, match="same rows and columns"):
        model.fit(a[:10])


def test_a_warm_start_to_nonnegative_factors_is_nonnegative(rng):
    a = np.abs(holes(rng))
    model = (
        ALS(3, warm_start=True, random_state=0)
        .fit(a)
        .set_params(nonnegative=True, max_iter=1)
        .fit(a)
    )
    assert min(model.row_factors_.min(), model.column_factors_.min()) >= 0


@pytest.mark.parametrize("at", [1, 3])
@pytest.mark.parametrize("stop", ["decrease", "held_out"])
def test_an_interrupt_keeps_the_last_whole_sweep(rng, monkeypatch, at, stop):
    a = holes(rng, 40, 30)

    class Watch:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            return False

        def __call__(self, stage, done, total):
            if done == at:
                raise KeyboardInterrupt

    monkeypatch.setattr(als_module, "progress", lambda show: Watch())
    model = ALS(3, stop=stop, random_state=0).fit(a)
    assert model.fit_.trace.reason.name == "INTERRUPTED"
    monkeypatch.undo()
    if stop == "decrease":
        assert model.n_iter_ == at
        assert len(model.fit_.trace) == 2 * at
        same = ALS(3, max_iter=at, random_state=0).fit(a)
        assert model.row_factors_.tobytes() == same.row_factors_.tobytes()
    assert np.isfinite(model.predict(0, 0)).all()


@pytest.mark.in_one_piece
@pytest.mark.parametrize("half", [4, 5, 6])
def test_an_interrupt_keeps_the_last_half_sweep(rng, monkeypatch, half):
    """The factors, the trace and the objective belong to one point, wherever a sweep was when it
    was left."""
    a, seen = holes(rng, 40, 30), []
    solve = CpuEngine.ridge_rows

    def stops(*args, **named):
        seen.append(1)
        if len(seen) > half:
            raise KeyboardInterrupt
        return solve(*args, **named)

    monkeypatch.setattr(CpuEngine, "ridge_rows", stops)
    model = ALS(3, l2=0.05, random_state=0, tol=0.0, max_iter=9, biases=False).fit(a)
    monkeypatch.undo()
    assert model.fit_.trace.reason.name == "INTERRUPTED"
    assert len(model.fit_.trace) == len(model.fit_.trace.seconds) == half
    assert model.n_iter_ == half // 2
    last = model.fit_.trace.values[-1]
    assert (
        last * 0.99 < model.objective_ < last * (1 + 1e-6)
    )  # a sweep begins by balancing both sides, at a lower penalty
    if half == 5:
        assert model.objective_ == pytest.approx(last, rel=1e-9)


def test_an_interrupt_before_the_first_sweep_leaves_the_old_model(rng, monkeypatch):
    a = holes(rng)
    model = ALS(3, random_state=0).fit(a)
    before = model.row_factors_.tobytes()

    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("eckart.complete.factors.alternate.sweep", stop)
    with pytest.raises(KeyboardInterrupt):
        model.fit(a)
    assert model.row_factors_.tobytes() == before


# ---- certificates


def nuclear_norm_minimiser(a, tau, steps=20000):
    """argmin 1/2 ||Pi(A - B)||^2 + tau ||B||_* by proximal gradient steps with full SVDs."""
    seen = ~np.isnan(a)
    b = np.zeros(a.shape)
    for _ in range(steps):
        u, s, vt = np.linalg.svd(b + np.where(seen, np.nan_to_num(a) - b, 0.0), full_matrices=False)
        new = (u * np.maximum(s - tau, 0)) @ vt
        if np.abs(new - b).max() < 1e-13:
            break
        b = new
    return b, 0.5 * np.sum(np.where(seen, np.nan_to_num(a) - b, 0.0) ** 2) + tau * np.linalg.svd(b)[
        1
    ].sum()


def test_the_global_certificate_is_the_nuclear_norm_minimum(rng):
    a = holes(rng, 8, 6)
    b, value = nuclear_norm_minimiser(a, 0.8)
    model = ALS(6, l2=0.8, **BARE, **TO_THE_END).fit(a)
    assert model.certificate_.kind == "global"
    assert model.certificate_.holds
    assert model.objective_ == pytest.approx(value, rel=1e-6)
    np.testing.assert_allclose(model.fit_.factors.block(slice(None)), b, atol=1e-3)
    assert model.certificate_["residual norm / ridge"] <= 1 + 1e-3
    # too small a rank: critical, and not called global
    rank_one = ALS(1, l2=0.1, **BARE, **TO_THE_END).fit(a)
    assert rank_one.certificate_.kind == "stationary"
    assert rank_one.certificate_["residual norm / ridge"] > 1.01


def test_the_certificate_fails_for_perturbed_factors(rng):
    a = holes(rng, 8, 6)
    model = ALS(6, l2=0.8, **BARE, **TO_THE_END).fit(a)
    f = model.fit_.factors
    for size in (0.1, 1.0):
        noise = size * rng.standard_normal(f.left.shape)
        model.fit_ = replace(model.fit_, factors=replace(f, left=f.left + noise))
        c = model.certify(a)
        assert not (c.kind == "global" and c.holds)
        assert not c.holds
        assert "gradient" in c.reason


CONVEX = {
    "one ridge": {"biases": False, "normalise": None, "l2_power": 0.0},
    "by count": {"biases": False, "normalise": None},
    "biases": {"normalise": None},
    "normalised": {"biases": False},
    "implicit": {"feedback": "implicit", "l2": 0.3},
    "implicit, unobserved": {
        "feedback": "implicit",
        "l2": 0.3,
        "zeros": "unobserved",
        "unobserved_weight": 1.0,
    },
}


@pytest.mark.parametrize("name", CONVEX)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_duality_gap_bounds_the_best_objective_from_below(rng, name, weighted):
    """Measured far from the optimum, value x (1 - gap) lies below the best value; at the optimum of
    full rank the gap closes."""
    implicit_ = "implicit" in name
    if implicit_ and weighted:
        pytest.skip("implicit feedback takes no weights")
    a = strengths(rng) if implicit_ else holes(rng, mean=1.0)
    w = rng.random(a.shape) + 0.5 if weighted else None
    options = {"l2": 0.15, **CONVEX[name], "random_state": 0}
    best = ALS(9, **options, tol=1e-13, max_iter=3000).fit(a, weights=w)
    assert best.certificate_["duality gap"] < 1e-4, best.certificate_
    assert best.certificate_.kind == "global"
    for k, sweeps in ((1, 1), (2, 3), (4, 2), (9, 1)):
        rough = ALS(k, **options, max_iter=sweeps).fit(a, weights=w)
        bound = rough.objective_ * (1 - rough.certificate_["duality gap"])
        assert bound <= best.objective_ * (1 + 1e-9)


@pytest.mark.parametrize("name", CONVEX)
def test_the_certificate_is_measured_again_from_model_and_data(rng, tmp_path, name):
    a = strengths(rng) if "implicit" in name else holes(rng, mean=1.0)
    model = ALS(3, **CONVEX[name], random_state=0).fit(a)
    # certificate_ adds how the fit does beside biases and mean
    assert model.certify(a) == model.fit_.certificate
    model.save(tmp_path / "m.safetensors")
    back = eckart.load(tmp_path / "m.safetensors")
    assert back.certificate_ == model.certificate_
    assert back.certify(a) == model.fit_.certificate
    assert back.certify(np.where(np.isnan(a), np.nan, a + 1)).facts != model.fit_.certificate.facts


def test_an_unfinished_fit_does_not_claim_to_be_critical(rng):
    model = ALS(8, l2=1e-4, biases=False, max_iter=1, random_state=0).fit(
        holes(rng, 60, 40, rank=8, share=0.6)
    )
    assert not model.certificate_.holds
    assert "relative gradient" in model.certificate_.reason


# ---- repeatable


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"nonnegative": True},
        {"l2": 0.0},
        {"feedback": "implicit"},
        {"biases": False, "scale": True},
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_seed_and_threads_do_not_change_a_bit(rng, options, dtype):
    a = np.abs(holes(rng, 300, 80, share=0.8)).astype(dtype)
    states = set()
    for threads in (1, 2, 3, 1):
        m = ALS(9, random_state=5, n_threads=threads, max_iter=4, **options).fit(a)
        assert m.row_factors_.dtype == m.column_factors_.dtype == dtype
        assert m.predict([0, 1], [1, 2]).dtype == dtype
        assert m.transform(a[:3]).dtype == dtype
        states.add(
            m.row_factors_.tobytes() + m.column_factors_.tobytes() + str(m.certificate_).encode()
        )
    assert len(states) == 1


def test_any_layout_of_the_same_entries_is_the_same_fit(rng):
    a = holes(rng)
    x = Observed.from_nan(a)
    order = rng.permutation(x.nnz)
    rows = np.repeat(np.arange(12), x.row_counts())
    triples = Observed.from_triples(rows[order], x.indices[order], x.data[order], shape=x.shape)
    forms = x, a, triples, x.to_scipy(), x.to_scipy().tocoo(), x.to_scipy().tocsc()
    assert len({ALS(3, random_state=0).fit(form).row_factors_.tobytes() for form in forms}) == 1


def test_skewed_strengths_are_brought_together(rng):
    """Plays with a long tail: 3 log(1 + r / median) / mean, in the fit, in folding, in the
    certificate and in explanations; clicks stay as they are."""
    r = strengths(rng, 40, 25)
    plays = np.where(np.isnan(r), np.nan, np.exp(2 * rng.standard_normal(r.shape) + 5))
    median = np.nanmedian(plays)
    log = np.log1p(plays / median)
    log *= 3 / np.nanmean(log)
    model = ALS(3, feedback="implicit", random_state=0).fit(plays)
    same = ALS(3, feedback="implicit", strengths="raw", random_state=0).fit(log)
    np.testing.assert_allclose(model.row_factors_, same.row_factors_, rtol=1e-6)
    assert model.fit_.plan["strengths"]["median"] == pytest.approx(median)
    assert model.certify(plays).holds
    np.testing.assert_allclose(model.fold_in(plays[:5]), same.fold_in(log[:5]), rtol=1e-6)
    seen = np.flatnonzero(~np.isnan(plays[0]))
    assert model.explain(0, 1).prediction == pytest.approx(same.explain(0, 1).prediction)
    assert model.explain(0, 1, n=1).shares[0][1] in plays[0, seen]
    for other in (
        ALS(3, feedback="implicit", random_state=0).fit(r),
        ALS(3, feedback="implicit", alpha=2.0, random_state=0).fit(plays),
    ):
        assert "strengths" not in other.fit_.plan


def test_rows_of_very_many_entries_are_solved_by_their_matrix_beside_conjugate_gradients():
    """One step of conjugate gradients leaves a row of 100 entries away from its solution; one of
    3,000, which would be gathered in every step, is solved."""
    from eckart.engines.cpu.engine import CpuEngine
    from eckart.engines.protocol import RidgeRule

    rng, k = np.random.default_rng(0), 64
    right = (0.3 * rng.standard_normal((4000, k))).astype(np.float32)
    lengths = [100, 3000]
    indices = np.concatenate([np.sort(rng.choice(4000, n, replace=False)) for n in lengths]).astype(
        np.int32
    )
    x = Observed(
        np.concatenate([[0], np.cumsum(lengths)]), indices, np.ones(sum(lengths), np.float32), 4000
    )
    engine, rule = CpuEngine(1), RidgeRule(0.01, 1.0, alpha=1.0, extra=40.0)
    engine.small = 0  # small data are solved at once
    base, start = 0.1 * engine.inner(right, right), np.zeros((2, k), np.float32)
    exact, steps = (
        engine.ridge_rows(engine.put(x), right, rule, base=base, start=start, cg_steps=n)
        for n in (0, 1)
    )
    size = np.linalg.norm(exact.left, axis=1)
    away = np.linalg.norm(steps.left - exact.left, axis=1) / size
    assert away[1] < 1e-5
    assert away[0] > 1e-3
    assert steps.value >= exact.value
