"""Chapter 6.5 of the specification (docs/spec_features.rst), one test (or several) for each
numbered line, named after it."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eckart import ALS, BayesianMF, observed
from eckart.certify.mapped import look
from eckart.complete.bayes.likelihood import AttributeLink, SeveralLinks
from eckart.complete.bayes.times import level, settle
from eckart.complete.factors import mapped
from eckart.complete.side_information import TimeBins
from eckart.io.tables.attributes import Encoding
from eckart.metrics import rmse


def planted(seed=0, n=70, m=50, share=0.35, noise=0.2, hidden=8):
    """Entries whose row biases and codes are what attributes say plus a little; and the true values
    of rows that are hidden whole."""
    rng = np.random.default_rng(seed)
    age, job = rng.normal(40, 12, n), rng.integers(0, 3, n)
    f = np.column_stack([(age - 40) / 12, np.eye(3)[job]])
    u = f @ rng.normal(0, 0.7, (4, 2)) + rng.normal(0, 0.2, (n, 2))
    v, c = rng.normal(0, 1, (m, 2)), rng.normal(0, 0.5, m)
    a = (
        3
        + c
        + (f @ np.array([0.3, 0.5, -0.5, 0.0]))[:, None]
        + u @ v.T
        + rng.normal(0, noise, (n, m))
    )
    i, j = np.nonzero(rng.random((n, m)) < share)
    kept = i < n - hidden
    table = pd.DataFrame(
        {
            "user": i[kept],
            "item": j[kept],
            "value": a[i[kept], j[kept]],
            "when": rng.random(kept.sum()),
        }
    )
    frame = pd.DataFrame({"user": np.arange(n), "age": age, "job": np.array(["x", "y", "z"])[job]})
    frame.loc[3, "age"] = np.nan
    return table, frame, a, n - hidden


NAMES = {"rows": "user", "columns": "item", "values": "value"}


def fit(model, data=None, **more):
    table, frame, *_ = planted() if data is None else data
    return model.fit(table, **NAMES, row_features=frame, **more)


def problem_of(model, table):
    """The mapped problem of a fitted model, its point in the coordinates of the objective, and the
    engine."""
    x = model._with_all_rows(observed(table, **NAMES))
    engine = model._engine()
    plain = model._problem(engine, x, None, model._ridge_used())
    p = mapped.mapped(
        engine, plain, (model.features_.rows.numbers, None), model.fit_.plan["l2_features"][0]
    )
    return x, p, engine


# ---- 6.5.1


@settings(max_examples=30, deadline=None)
@given(st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6)), min_size=3, max_size=12), st.data())
def test_6_5_1_zeros_mean_that_nothing_is_known(numbers, data):
    levels = data.draw(
        st.lists(
            st.sampled_from(["a", "b", "c", None]), min_size=len(numbers), max_size=len(numbers)
        )
    )
    frame = pd.DataFrame(
        {
            "id": range(len(numbers)),
            "x": np.array(numbers, float),
            "g": levels,
            "always": ["p", "q", "p"] + ["q"] * (len(numbers) - 3),
        }
    )
    encoding, found = Encoding.of(frame, "id", "row_features")
    f = encoding.encode(found, "row_features")
    assert np.isfinite(f).all()
    unknown = pd.DataFrame({"id": [-1], "x": [np.nan], "g": ["never met"], "always": [None]})
    assert not encoding.read(unknown, "row_features")[1].any()
    names = encoding.names()
    if "x" in names:
        x = f[:, names.index("x")]
        flag = set(np.array(numbers, float)[~np.isnan(np.array(numbers, float))]) <= {0.0, 1.0}
        assert abs(x.mean()) < 1e-6
        assert flag or np.isclose((x**2).sum(), sum(v is not None for v in numbers), rtol=1e-6)
    for g in ("a", "b", "c"):
        assert (f"g={g}" in names) == (levels.count(g) >= 2)
        if f"g={g}" in names:
            assert np.array_equal(
                f[:, names.index(f"g={g}")] == 1, np.array([v == g for v in levels])
            )


# ---- 6.5.2 to 6.5.4


def test_6_5_2_the_objective_is_what_it_says_and_its_gradient_vanishes_at_the_answer():
    data = planted()
    model = fit(ALS(2, l2=0.05, random_state=0, tol=1e-10, max_iter=200), data)
    f, maps = model.fit_.factors, model.maps_
    x, p, _ = problem_of(model, data[0])
    rows, s = np.repeat(np.arange(x.shape[0]), x.row_counts()), maps.stretch
    ridge, ridge_t = (
        rule.ridges(c)[0]
        for rule, c in ((p.plain.rule, x.row_counts()), (p.plain.rule_t, x.column_counts()))
    )
    u, v = np.column_stack([f.left, f.row_bias / s]), np.column_stack([f.right, f.column_bias / s])
    ones = np.ones((len(u), 1))
    away = u - np.hstack([ones, model.features_.rows.numbers]) @ maps.rows
    value = 0.5 * np.sum((x.data - f.at(rows, x.indices)) ** 2)
    value += 0.5 * np.sum(ridge * (x.row_counts() > 0) * (away**2).sum(1)) + 0.5 * ridge_t @ (
        (v - maps.columns) ** 2
    ).sum(1)
    value += 0.5 * p.rows.rho * np.sum(maps.rows**2) + 0.5 * model.fit_.plan["l2_features"][
        1
    ] * np.sum(maps.columns**2)
    assert model.objective_ == pytest.approx(value, rel=1e-9)
    assert model.certificate_["relative gradient"] < 1e-4
    assert model.certificate_.holds


@pytest.mark.parametrize("feedback", ["explicit", "implicit"])
def test_6_5_2_the_gradient_is_that_of_finite_differences(feedback):
    table, frame, *_ = planted(n=9, m=7, hidden=1, share=0.5)
    table = table.assign(value=np.abs(table.value))
    model = fit(
        ALS(1, feedback=feedback, random_state=0, max_iter=2, tol=0, strengths="raw"),
        (table, frame),
    )
    x, p, engine = problem_of(model, table)
    p = p._replace(columns=p.columns._replace(rho=model.fit_.plan["l2_features"][1]))
    f, maps, s = model.fit_.factors, model.maps_, model.maps_.stretch
    blocks = [f.left, f.right, maps.rows, maps.columns]
    if s:
        blocks[:2] = (
            np.column_stack([f.left, f.row_bias / s]),
            np.column_stack([f.right, f.column_bias / s]),
        )
    if feedback == "explicit":
        # rows without entries have no term
        blocks[0] = np.where(x.row_counts()[:, None] > 0, blocks[0], 0.0)

    def at(b):
        return look(
            p,
            mapped.RidgePoint(
                np.ascontiguousarray(b[0]),
                np.ascontiguousarray(b[1]),
                None,
                None,
                f.mean,
                b[2],
                b[3],
            ),
            engine,
        )

    square, step = 0.0, 1e-5
    for b, cell in itertools.chain.from_iterable(
        zip(itertools.repeat(n), np.ndindex(a.shape)) for n, a in enumerate(blocks)
    ):
        ends = []
        for way in (step, -step):
            moved = [c.copy() for c in blocks]
            moved[b][cell] += way
            ends.append(at(moved).value)
        square += ((ends[0] - ends[1]) / (2 * step)) ** 2
    assert at(blocks).gradient == pytest.approx(np.sqrt(square), rel=1e-4)
    assert at(blocks).slope > 1e-3  # far from converged, so the comparison says something


def test_6_5_3_every_half_sweep_lowers_the_objective():
    for feedback in ("explicit", "implicit"):
        table, frame, *_ = planted()
        table = table.assign(value=np.abs(table.value)) if feedback == "implicit" else table
        model = ALS(
            3, feedback=feedback, random_state=1, max_iter=25, tol=1e-12, strengths="raw"
        ).fit(table, **NAMES, row_features=frame)
        values = model.fit_.trace.values
        assert all(b <= a + 1e-9 * abs(a) for a, b in itertools.pairwise(values))
        assert values[-1] == pytest.approx(model.objective_, rel=1e-8)


def test_6_5_4_the_maps_solve_their_ridge_regression():
    data = planted()
    model = fit(ALS(2, random_state=0, tol=1e-10, max_iter=200), data)
    x, p, _ = problem_of(model, data[0])
    f, maps = model.fit_.factors, model.maps_
    u = np.column_stack([f.left, f.row_bias / maps.stretch])
    ridge = np.where(x.row_counts() > 0, p.plain.rule.ridges(x.row_counts())[0], 0.0)
    features = np.hstack([np.ones((len(u), 1)), model.features_.rows.numbers])
    left = features.T @ (features * ridge[:, None]) + p.rows.rho * np.eye(features.shape[1])
    assert np.allclose(
        maps.rows, np.linalg.solve(left, features.T @ (ridge[:, None] * u)), atol=1e-6
    )


# ---- 6.5.5 to 6.5.7


def test_6_5_5_with_a_large_ridge_the_maps_vanish_and_attributes_with_them():
    table, frame, *_ = planted()
    plain = ALS(2, l2=0.05, random_state=0, tol=1e-10, max_iter=200).fit(table, **NAMES)
    heavy = ALS(2, l2=0.05, random_state=0, tol=1e-10, max_iter=200, l2_features=1e12).fit(
        table, **NAMES, row_features=frame
    )
    rows = plain.row_ids.names(np.arange(plain.row_ids.size))
    assert np.allclose(heavy.predict(rows[:20], 7), plain.predict(rows[:20], 7), atol=2e-3)


@pytest.mark.parametrize(
    "model",
    [ALS(2, random_state=0), BayesianMF(2, n_samples=20, burn_in=40, thin=1, random_state=0)],
)
def test_6_5_6_rows_of_which_only_attributes_are_known_are_predicted_better_than_by_biases(model):
    table, frame, a, first = planted(noise=0.1)
    model = fit(model, (table, frame))
    cold = np.arange(first, len(a))
    at, to = np.repeat(cold, a.shape[1]), np.tile(np.arange(a.shape[1]), len(cold))
    biases = table.groupby("item").value.mean().reindex(np.arange(a.shape[1])).to_numpy()
    assert rmse(a[at, to], model.predict(at, to)) < 0.7 * rmse(a[at, to], biases[to])
    assert set(cold) <= set(model.row_ids.labels)


def test_6_5_6_a_cold_row_is_what_the_map_says_and_the_same_whenever_it_comes():
    table, frame, _, first = planted()
    model = fit(ALS(2, random_state=0), (table, frame))
    late = ALS(2, random_state=0).fit(table, **NAMES, row_features=frame[frame.user < first])
    f, maps = model.fit_.factors, model.maps_
    at = model.row_ids.index_of(first)
    means = maps.means(model.features_.rows.numbers[[at]], 1)[0]
    assert np.allclose(np.append(f.left[at], f.row_bias[at] / maps.stretch), means)
    fresh = frame[frame.user >= first]
    assert late.predict(first, 3, row_features=fresh) == pytest.approx(
        late.update(row_features=fresh).predict(first, 3)
    )


def test_6_5_7_the_history_of_a_fitted_row_gives_that_row_again():
    table, frame, *_ = planted()
    model = fit(ALS(2, random_state=0, tol=1e-10, max_iter=200), (table, frame))
    x = observed(table[table.user == 5], **NAMES)
    u = model.fold_in(x)
    assert np.allclose(u[0], model.fit_.factors.left[model.row_ids.index_of(5)], atol=1e-4)


# ---- 6.5.8


def test_6_5_8_coefficients_of_attributes_are_drawn_from_their_conditional():
    rng = np.random.default_rng(0)
    f, d, groups = rng.standard_normal((40, 3)), 2, np.array([0, 0, 1])
    rest, root = (
        rng.standard_normal((40, d)),
        np.linalg.cholesky(np.array([[2.0, 0.6], [0.6, 1.0]])),
    )
    precision, strength = root @ root.T, np.array([3.0, 8.0])
    link, draws = AttributeLink(f, groups, d), []
    for _ in range(300):
        link.put(link.coefficients, strength)
        link.draw(rng, rest, precision, root)
        draws.append(link.coefficients)
    draws = np.array(draws)
    h = f.T @ f + np.diag(strength[groups])
    covariance = np.kron(np.linalg.inv(h), np.linalg.inv(precision))
    flat = draws.reshape(len(draws), -1)
    error = np.sqrt(np.diag(covariance) / len(draws))
    assert (np.abs(draws.mean(0) - np.linalg.solve(h, f.T @ rest)).ravel() < 5 * error).all()
    assert np.allclose(
        np.cov(flat.T), covariance, atol=5 * np.sqrt(2 / len(draws)) * np.diag(covariance).max()
    )


def test_6_5_8_links_one_after_the_other_keep_their_sum():
    rng = np.random.default_rng(1)
    parts = [AttributeLink(rng.standard_normal((20, p)), np.zeros(p, int), 3) for p in (2, 4)]
    several = SeveralLinks(parts)
    several.draw(rng, rng.standard_normal((20, 3)), np.eye(3), np.eye(3))
    both = np.hstack([part.f for part in parts]) @ several.weights()
    assert np.allclose(several.now, both)
    again = several.fresh()
    again.put(several.coefficients, several.strength)
    assert np.allclose(again.now, several.now)


# ---- 6.5.9


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_6_5_9_without_a_time_predictions_are_means_over_the_times_of_the_row(seed):
    rng = np.random.default_rng(seed)
    s, n, m, bins, d = 3, 4, 5, 6, 3
    u, v, w = (
        rng.standard_normal((s, n, d)),
        rng.standard_normal((s, m, d)),
        rng.standard_normal((s, bins, d)),
    )
    shares = rng.dirichlet(np.ones(bins))
    root = rng.standard_normal((s, d, d))
    prior = {
        "mu": rng.standard_normal((s, d)),
        "precision": root @ root.transpose(0, 2, 1) + np.eye(d),
    }
    draws = {"rows.factors": u, "columns.factors": v, "time.factors": w}
    draws |= {f"{side}.{name}": a for side in ("rows", "columns") for name, a in prior.items()}
    new = level(draws, shares)

    def cells(u, v, w):
        dots = np.einsum("snk,smk->snm", u[..., :-1], v[..., :-1])[..., None]
        dots = dots + np.einsum("snk,stk->snt", u[..., :-1], w[..., :-1])[:, :, None]
        dots = dots + np.einsum("smk,stk->smt", v[..., :-1], w[..., :-1])[:, None]
        return dots + u[:, :, None, None, -1] + v[:, None, :, None, -1] + w[:, None, None, :, -1]

    before = cells(u, v, w)
    after = cells(new["rows.factors"], new["columns.factors"], new["time.factors"])
    assert np.allclose(before, after)
    flat = np.einsum(
        "snk,smk->snm", new["rows.factors"][..., :-1], new["columns.factors"][..., :-1]
    )
    flat = flat + new["rows.factors"][:, :, None, -1] + new["columns.factors"][:, None, :, -1]
    assert np.allclose(before @ shares, flat)
    own = rng.dirichlet(np.ones(bins), n)
    moved = settle(new, own)["rows.factors"]
    flat = np.einsum("snk,smk->snm", moved[..., :-1], new["columns.factors"][..., :-1])
    flat = flat + moved[:, :, None, -1] + new["columns.factors"][:, None, :, -1]
    assert np.allclose(np.einsum("snmt,nt->snm", before, own), flat)
    # the prior turns with the factors: its distances stay
    for side, a in (("rows", u), ("columns", v)):
        far = [
            np.einsum("snd,sde,sne->sn", x - mu[:, None], p, x - mu[:, None])
            for x, mu, p in (
                (a, prior["mu"], prior["precision"]),
                (new[f"{side}.factors"], new[f"{side}.mu"], new[f"{side}.precision"]),
            )
        ]
        assert np.allclose(*far)


def test_6_5_9_a_drift_over_time_is_found():
    rng = np.random.default_rng(3)
    table, *_ = planted(hidden=0)
    table = table.assign(
        value=table.value + 2 * (table.when > 0.5) + rng.normal(0, 0.1, len(table))
    )
    model = BayesianMF(2, n_samples=20, burn_in=40, thin=1, random_state=0).fit(
        table, **NAMES, time="when"
    )
    early, late = (model.predict(np.arange(20), 4, time=t) for t in (0.1, 0.9))
    assert np.abs((late - early) - 2).max() < 0.6
    times = np.asarray(table.when[table.user == 7])
    assert model.predict(7, 4)[0] == pytest.approx(
        np.mean(model.predict(7, [4] * len(times), time=times)), abs=1e-6
    )
    new = model.update(observed(table[table.user == 7].assign(user=500), **NAMES))
    shares = TimeBins.of(np.asarray(table.when))[0].counts / len(table)
    ends = np.concatenate([[-1.0], model.posterior_.time.ends])
    assert new.predict(500, 4)[0] == pytest.approx(
        shares @ new.predict(500, [4] * len(ends), time=ends + 1e-9), abs=1e-6
    )


# ---- 6.5.10


def test_6_5_10_the_parts_of_an_explanation_add_up():
    table, frame, _, first = planted()
    als = fit(ALS(2, random_state=0, tol=1e-10, max_iter=200), (table, frame))
    bayes = fit(
        BayesianMF(2, n_samples=4, burn_in=6, thin=1, random_state=0, implicit_features=True),
        (table, frame),
        time="when",
    )
    for model, more in ((als, {}), (bayes, {"time": 0.5})):
        for row in (5, first):
            e = model.explain(row, 4, n=1000, **more)
            assert sum(e.parts.values()) == pytest.approx(e.prediction)
            assert set(e.parts) == {"history", "attributes", "bias"} | set(more)
            assert e.base + sum(share for _, _, share in e.shares) == pytest.approx(e.prediction)
        assert e.parts["history"] == pytest.approx(0, abs=1e-9)  # the last row has none
    assert als.explain(5, 4).prediction == pytest.approx(als.predict(5, 4)[0], abs=1e-3)
