"""Factors by their definitions, and every refusal of what a file may hold: one sound example of
each class, spoiled in one place."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from eckart.errors import FileError
from eckart.factors.basis import Basis
from eckart.factors.checks import covariances, names, numbers, value
from eckart.factors.components import Components
from eckart.factors.embedding import Embedding
from eckart.factors.item_weights import ItemWeights
from eckart.factors.lowrank import LowRank
from eckart.factors.mixed_columns import MixedColumns
from eckart.factors.network import Network
from eckart.factors.series import Series
from eckart.factors.topics import Topics
from eckart.io.models.header_checks import check_extras

A, B = np.arange(12.0).reshape(4, 3) + 1, np.arange(15.0).reshape(5, 3) - 4
IDS = np.array(["a", "b", "c", "d", "e"], dtype=object)


def basis(**other):
    components = np.eye(3)[:2]
    held = {
        "total": 14.0,
        "noise": 0.5,
        "weight": 5.0,
        "rows": 5,
        "centered": True,
        "tail_shape": None,
    }
    return Basis(np.array([1.0, 2.0, 3.0]), components, np.array([8.0, 4.0]), **(held | other))


def lowrank(**other):
    return replace(LowRank(A, B, 0.5), **other)


def embedding(**other):
    whole = Embedding(
        A,
        context=A[::-1].copy(),
        bias=np.arange(4.0),
        context_bias=10 * np.arange(4.0),
        counts=np.arange(4),
    )
    return replace(whole, **other)


def topics(**other):
    return replace(Topics(np.array([[1.0, 3.0], [0.0, 0.0]]), np.ones(2), np.ones(2)), **other)


def items(**other):
    whole = {
        "indptr": np.array([0, 1, 3, 3]),
        "indices": np.array([2, 0, 1]),
        "data": np.ones(3),
        "left": np.ones((3, 2)),
        "right": np.ones((3, 2)),
        "multipliers": np.ones(3),
    }
    return ItemWeights(2, 3, **(whole | other))


def mixed(**other):
    return replace(
        MixedColumns(2, np.ones((3, 1)), np.zeros(3), np.ones(3), columns=IDS[:2]), **other
    )


def network(**other):
    weights = {"a": np.ones((2, 2), np.float32)}
    return replace(
        Network(weights, {"kind": "coder"}, np.zeros(2), np.ones(2), 2, classes=IDS[:2], rows=3),
        **other,
    )


def components(family="gaussian diag", **other):
    held = {"means": np.full((2, 3), 0.5), "spread": np.ones((2, 3))}
    return replace(Components(np.array([0.25, 0.75]), family, held, 3), **other)


def series(**other):
    rng = np.random.default_rng(3)
    s, n, t, k, p = 4, 2, 6, 2, 3
    own = np.stack(
        [rng.uniform(0.1, 0.9, (s, n)), rng.uniform(0.5, 2, (s, n)), rng.uniform(0.1, 0.4, (s, n))],
        axis=2,
    )
    whole = Series(
        rng.standard_normal((n, t)),
        rng.uniform(0.5, 1, (n, t)),
        np.array([2.0, 3.0]),
        np.array([5.0, -1.0]),
        np.array([2.0, 0.5]),
        rng.standard_normal((s, n, k)),
        rng.standard_normal((s, k)),
        0.5 * rng.standard_normal((s, k, k)),
        np.stack([np.diag([0.3, 0.2])] * s),
        own,
        rng.standard_normal((s, n)),
        rng.standard_normal((s, n, p)),
        rng.standard_normal((2, 2, 3)),
        rng.standard_normal((2, 2)),
    )
    return replace(whole, **other)


SOUND = [basis, lowrank, embedding, topics, items, mixed, network, components, series]


@pytest.mark.parametrize("make", SOUND)
def test_the_sound_example_passes_and_comes_back_from_its_state(make):
    factors = make()
    factors.check()
    arrays, values = factors.to_state()
    sides = (getattr(factors, side, None) for side in ("rows", "columns"))
    again = type(factors).from_state(arrays, values, *sides)
    again.check()
    for name, array in again.to_state()[0].items():
        np.testing.assert_array_equal(array, arrays[name])


SPOILED = {
    "orthonormal": lambda: basis().__class__(
        np.zeros(3), np.ones((2, 3)), np.ones(2), 1.0, 0.0, 5.0, 5, True, None
    ),
    "components are not orthonormal": lambda: replace(
        basis(), components=np.array([[1.0, 0, 0], [0.02, 0.999, 0]])
    ),
    "at most as many rows": lambda: replace(basis(), components=np.zeros((4, 3))),
    r"mean must have shape \(3,\), got \(2,\)": lambda: replace(basis(), mean=np.zeros(2)),
    "scatter must hold numbers >= 0, got numbers from -1 to 1": lambda: replace(
        basis(), scatter=np.array([1.0, -1.0])
    ),
    r"3 \w+": lambda: replace(basis(), columns=IDS[:2]),
    "total=-1": lambda: basis(total=-1.0),
    "noise=nan": lambda: basis(noise=float("nan")),
    "weight must be that of some rows, got 0": lambda: basis(weight=0.0),
    "rows=2.5": lambda: basis(rows=2.5),
    "tail_shape=-3": lambda: basis(tail_shape=-3.0),
    "centered=1": lambda: basis(centered=1),
    "left must hold float32 or float64, got int64": lambda: lowrank(left=A.astype(int)),
    r"right must have shape \(any, 3\), got \(5, 2\)": lambda: lowrank(right=B[:, :2].copy()),
    "right must hold float64, got float32": lambda: lowrank(right=B.astype(np.float32)),
    "mean='x'": lambda: lowrank(mean="x"),
    "row_bias": lambda: lowrank(row_bias=np.ones(5)),
    "column_scale": lambda: lowrank(column_scale=np.full(5, np.inf)),
    "5 labels came for 4 rows": lambda: lowrank(rows=IDS),
    "columns are not distinct": lambda: lowrank(columns=np.array([1, 2, 3, 3, 5])),
    "rows are not distinct": lambda: lowrank(rows=np.array(["a", None, "c", "d"], dtype=object)),
    r"context must have shape \(4, 3\), got \(3, 3\)": lambda: embedding(context=A[:3]),
    "context_bias": lambda: embedding(context_bias=np.ones(3)),
    "counts are not numbers": lambda: embedding(counts=np.array([1, 2, 3, -1])),
    "counts are not": lambda: embedding(counts=np.ones(3)),
    "texts in part": lambda: embedding(columns=np.array(["a", 1, 2, 3], dtype=object)),
    "labels of vectors must be texts or numbers, got lists": lambda: embedding(
        columns=np.array([{}, {}, {}, {}], dtype=object)
    ),
    "a topic and a word": lambda: topics(
        counts=np.zeros((0, 3)), prior=np.zeros(0), sizes=np.zeros(0)
    ),
    "prior": lambda: topics(prior=np.ones(3)),
    "sizes": lambda: topics(sizes=-np.ones(2)),
    "n_rows=-1": lambda: replace(items(), n_rows=-1),
    "n=0 is not": lambda: replace(items(), n=0),
    "one of weights, data, left and shares must be there, got none": lambda: ItemWeights(2, 3),
    r"weights must have shape \(3, 3\), got \(3, 2\)": lambda: items(weights=np.ones((3, 2))),
    "indptr does not hold 4": lambda: items(indptr=np.array([0, 1, 3])),
    "indices does not hold 3 whole": lambda: items(indices=np.ones(3)),
    "compressed rows": lambda: items(indices=np.array([3, 0, 1])),
    "compressed rows of": lambda: items(indices=np.array([-1, 0, 1])),
    "compressed rows of 3": lambda: items(indptr=np.array([0, 2, 1, 3])),
    "not compressed": lambda: items(indptr=np.array([1, 1, 3, 3])),
    "are not compressed": lambda: items(indptr=np.array([0, 1, 2, 2])),
    r"right must have shape \(3, 2\), got \(3, 1\)": lambda: items(right=np.ones((3, 1))),
    "multipliers": lambda: items(multipliers=np.ones(2)),
    "1 labels came for 2 rows": lambda: items(rows=IDS[:1]),
    "cannot be solved": lambda: mixed(noise=np.array([1.0, 1.0, 1e-299])),
    "noise must hold numbers >= 1e-300, got numbers from 0 to 0": lambda: mixed(noise=np.zeros(3)),
    "those of a table": lambda: mixed(columns=None),
    "are not those of a table": lambda: mixed(aside=[]),
    r"more must have shape \(any, any\), got \(3,\)": lambda: mixed(tables={"more": np.ones(3)}),
    "description of a network": lambda: network(architecture={"kind": 3}),
    "k=-1": lambda: network(k=-1),
    "spread must hold numbers >= 0, got numbers from -1 to 1": lambda: network(
        spread=np.array([1.0, -1.0])
    ),
    "a must hold finite numbers, got NaN or infinity": lambda: network(
        weights={"a": np.array([np.nan])}
    ),
    "2 labels came for 3 classes": lambda: network(k=3),
    "classes are not distinct": lambda: network(classes=np.array(["a", "a"], dtype=object)),
    "add up to 1$": lambda: components(weights=np.array([0.25, 0.7])),
    r"weights must hold numbers from 0 to 1, got numbers from -0\.5 to 1\.5": lambda: components(
        weights=np.array([1.5, -0.5])
    ),
    "a name and a number": lambda: components(n=0),
    "parameters must be means for bernoulli, got means, spread": lambda: components("bernoulli"),
    r"means must have shape \(2, 3\), got \(2, 1\)": lambda: components(
        parameters={"means": np.ones((2, 1)), "spread": np.ones((2, 3))}
    ),
    "spread must hold positive variances, got 0": lambda: components(
        parameters={"means": np.ones((2, 3)), "spread": np.zeros((2, 3))}
    ),
    "spread are not symmetric": lambda: components(
        "gaussian tied", parameters={"means": np.ones((2, 3)), "spread": np.triu(np.ones((3, 3)))}
    ),
    "spread are not positive": lambda: components(
        "gaussian tied", parameters={"means": np.ones((2, 3)), "spread": np.ones((3, 3))}
    ),
    r"means must hold numbers from 0 to 1, got numbers from 0\.5 to 1\.5": lambda: components(
        "bernoulli", parameters={"means": np.array([[0.5, 1.5, 1], [1, 1, 1]])}
    ),
    "do not add up": lambda: components(
        "multinomial", parameters={"probabilities": np.full((2, 3), 0.3), "length": np.ones(1)}
    ),
    "no number of draws": lambda: components(
        "multinomial",
        parameters={"probabilities": np.full((2, 3), 1 / 3), "length": np.array([1e17])},
    ),
    "family must be gaussian, bernoulli or multinomial, got 'gaussian wide'": lambda: components(
        "gaussian wide"
    ),
    "a series must have at least one draw, period and column": lambda: series(
        profile=np.zeros((4, 2, 0))
    ),
    "own must hold a memory phi below 1, got 1 or more": lambda: series(
        own=series().own + np.array([1.0, 0, 0])
    ),
    "of 4 draws in all": lambda: series(probes=np.ones((2, 3, 3)), levels=np.ones((2, 3))),
    "scale must hold numbers >= 1e-300, got numbers from 0 to 1": lambda: series(
        scale=np.array([1.0, 0.0])
    ),
    "shock are not positive": lambda: series(shock=np.zeros((4, 2, 2))),
    r"transition must have shape \(4, 2, 2\), got \(4, 2, 1\)": lambda: series(
        transition=np.zeros((4, 2, 1))
    ),
    "rows are not distinct ids": lambda: series(rows=np.array(["a", "a"], dtype=object)),
}


FAMILIES = {
    "gaussian full": {"means": np.ones((2, 3)), "spread": np.stack([np.eye(3)] * 2)},
    "gaussian tied": {
        "means": np.ones((2, 3)),
        "spread": np.array([[2.0, -1, 0], [-1, 2, 0], [0, 0, 1]]),
    },
    "gaussian spherical": {"means": np.ones((2, 3)), "spread": np.ones(2)},
    "gaussian unit": {"means": np.ones((2, 3))},
    "gaussian factor": {
        "means": np.ones((2, 3)),
        "spread": np.ones((2, 3)),
        "loadings": np.ones((2, 3, 1)),
        "origin": np.zeros(3),
    },
    "bernoulli": {"means": np.ones((2, 3))},
    "multinomial": {"probabilities": np.full((2, 3), 1 / 3), "length": np.array([20.0])},
}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_has_its_arrays_and_no_others(family):
    held = FAMILIES[family]
    components(family, parameters=held).check()
    for name in held:
        with pytest.raises(FileError, match=f"^parameters must be .* for {family}, got"):
            components(
                family, parameters={other: held[other] for other in held if other != name}
            ).check()
        with pytest.raises(FileError, match=name):
            components(family, parameters=held | {name: np.concatenate([held[name]] * 2)}).check()


@pytest.mark.parametrize("words", SPOILED)
def test_what_does_not_fit_is_refused_in_words(words):
    with pytest.raises(FileError, match=words):
        SPOILED[words]().check()


def test_checks_stop_at_their_limits():
    numbers("x", np.array([0.0, 1.0]), (2,), 0.0, 1.0)
    with pytest.raises(FileError, match="from 0 to 1"):
        numbers("x", np.array([0.0, 1.1]), (2,), 0.0, 1.0)
    value("x", 3, 3, whole=True)
    for bad in (True, 2, 3.5):
        with pytest.raises(FileError, match="x="):
            value("x", bad, 3, whole=True)
    names(np.array([1, 1]), 2, "rows")
    covariances("c", np.array([[2.0, 1.0], [1.0 + 1e-7, 2.0]]))
    with pytest.raises(FileError, match="symmetric"):
        covariances("c", np.array([[2.0, 1.0], [1.0 + 1e-4, 2.0]]))


def test_a_basis_by_its_definition():
    b = basis()
    assert (b.k, b.n, b.degrees) == (2, 3, 4.0)
    assert basis(weight=0.5).degrees == 0.5
    np.testing.assert_array_equal(b.variances, [2.0, 1.0])
    x = np.arange(6.0).reshape(2, 3)
    np.testing.assert_allclose(b.encode(x), (x - b.mean)[:, :2])
    np.testing.assert_allclose(b.decode(np.ones((1, 2))), [[2.0, 3.0, 3.0]])
    assert [
        replace(b, scatter=np.array(s)).rank for s in ([8.0, 4.0], [8.0, 1e-15], [0.0, 0.0])
    ] == [2, 1, 0]


def test_cells_of_low_rank_by_their_definition():
    f = lowrank(
        row_bias=np.arange(4.0),
        column_bias=10 * np.arange(5.0),
        row_scale=np.arange(4.0) + 1,
        column_scale=np.arange(5.0) + 2,
    )
    want = (
        (A @ B.T * f.row_scale[:, None] + f.row_bias[:, None]) * f.column_scale
        + f.column_bias
        + 0.5
    )
    i, j = np.nonzero(np.ones((4, 5)))
    np.testing.assert_allclose(f.at(i, j).reshape(4, 5), want)
    np.testing.assert_allclose(f.block(slice(None)), want)
    np.testing.assert_allclose(f.block([2, 0], [1, 3]), want[[2, 0]][:, [1, 3]])
    parts = list(f.blocks(80))
    assert [(first, len(rows)) for first, rows in parts] == [(0, 2), (2, 2)]
    np.testing.assert_allclose(np.vstack([rows for _, rows in parts]), want)
    long = np.zeros(2**21, np.int64)  # more pairs than fit into one step of 4 MiB
    assert (f.at(long, long) == f.at([0], [0])).all()


def test_scores_topics_and_item_weights_by_their_definitions():
    e, w, v = embedding(), np.array([0, 3]), np.array([2, 1])
    other = np.einsum("pk,pk->p", A[w], A[::-1][v])
    np.testing.assert_allclose(e.scores(w, v), other + e.bias[w] + e.context_bias[v])
    np.testing.assert_allclose(embedding(bias=None, context_bias=None).scores(w, v), other)
    np.testing.assert_allclose(Embedding(A).scores(w, v), np.einsum("pk,pk->p", A[w], A[v]))
    np.testing.assert_array_equal(topics().words, [[0.25, 0.75], [0.0, 0.0]])
    assert topics()._repr_html_().index(">1 0<") > 0
    assert (items().k, items(left=None, right=None).k, items().dtype) == (2, 0, np.float64)


def test_forecasts_of_a_series_are_those_of_its_draws():
    f, steps = series(), 5
    mean, deviation = f.ahead(steps)
    each, within = np.zeros((4, 2, steps)), np.zeros((4, 2, steps))
    for d in range(4):
        for h in range(1, steps + 1):
            power = np.linalg.matrix_power(f.transition[d], h)
            phi, v, s = f.own[d].T
            each[d, :, h - 1] = (
                f.profile[d][:, (5 + h) % 3] + phi**h * f.state[d] + f.left[d] @ power @ f.last[d]
            )
            shocks = sum(
                np.linalg.matrix_power(f.transition[d], g)
                @ f.shock[d]
                @ np.linalg.matrix_power(f.transition[d], g).T
                for g in range(h)
            )
            within[d, :, h - 1] = (
                (1 - phi ** (2 * h)) * v
                + s
                + np.einsum("ij,jk,ik->i", f.left[d], shocks, f.left[d])
            )
    np.testing.assert_allclose(mean, f.centre[:, None] + f.scale[:, None] * each.mean(axis=0))
    np.testing.assert_allclose(
        deviation, f.scale[:, None] * np.sqrt(within.mean(axis=0) + each.var(axis=0))
    )
    np.testing.assert_allclose(
        f.deviation([0, 1], [2, 3]), np.hypot(f.spread[[0, 1], [2, 3]], f.sigma)
    )
    np.testing.assert_array_equal(
        f.deviation([0, 1], [2, 3], noise=False), f.spread[[0, 1], [2, 3]]
    )


def test_arrays_of_a_posterior_fit_each_other():
    draws, inner = 2, 2  # k = S (d - 1): each draw has its own columns of the factors
    f = LowRank(np.ones((4, draws * inner)), np.ones((5, draws * inner)))
    sound = {
        "posterior.alpha": np.ones(draws),
        "posterior.rows.bias": np.zeros((4, draws)),
        "posterior.columns.bias": np.zeros((5, draws)),
        "posterior.rows.precisions": np.ones((4, draws)),
        "posterior.rows.mu": np.zeros((draws, inner + 1)),
        "posterior.rows.precision": np.stack([np.eye(inner + 1)] * draws),
        "posterior.rows.noise": np.ones((draws, 2)),
    }
    check_extras(f, sound)
    for words, spoiled in {
        "factors of 4 columns came for 2 draws of 3 numbers": {
            "posterior.rows.mu": np.zeros((2, 4)),
            "posterior.rows.precision": np.stack([np.eye(4)] * 2),
        },
        "finite": {"posterior.alpha": np.array([1.0, np.nan])},
        r"posterior\.alpha must hold numbers >= 1e-300, got numbers from 0 to 1": {
            "posterior.alpha": np.array([1.0, 0.0])
        },
        r"posterior\.rows\.bias must have shape \(4, 2\), got \(5, 2\)": {
            "posterior.rows.bias": np.zeros((5, 2))
        },
        r"posterior\.columns\.bias must have shape \(5, 2\), got \(4, 2\)": {
            "posterior.columns.bias": np.zeros((4, 2))
        },
        r"posterior\.rows\.precisions must hold numbers >= 1e-300, got numbers from -1 to -1": {
            "posterior.rows.precisions": -np.ones((4, 2))
        },
        r"posterior\.rows\.noise must have shape \(2, 2\), got \(2, 3\)": {
            "posterior.rows.noise": np.ones((2, 3))
        },
        "positive definite": {"posterior.rows.precision": np.zeros((2, 3, 3))},
    }.items():
        with pytest.raises(FileError, match=words):
            check_extras(f, sound | spoiled)
    with pytest.raises(FileError, match=r"eta must have shape \(2, 2\), got \(3, 2\)"):
        check_extras(topics(), {"eta": np.ones((3, 2))})
    check_extras(topics(), {"eta": np.ones((2, 2))})
    check_extras(topics(), {"eta": np.ones(1)})
