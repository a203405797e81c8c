"""Measures of predictions and of lists: hand-computed, against scikit-learn, and what must fail."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.metrics import (
    average_precision_score,
    mean_absolute_error,
    ndcg_score,
    root_mean_squared_error,
)

import eckart
from eckart import InputError, Observed
from eckart.metrics import (
    bootstrap_interval,
    coverage_at_k,
    hit_rate_at_k,
    mae,
    map_at_k,
    mrr_at_k,
    ndcg_at_k,
    precision_at_k,
    ranking,
    recall_at_k,
    rmse,
)

PER_ROW = ("precision", "recall", "recall_truncated", "ndcg", "map", "mrr", "hit_rate")


@st.composite
def lists(draw, full=False):
    """Random lists with and without gaps, and a random relevant set for each row, at least one of
    them not empty."""
    n, m = draw(st.integers(1, 6)), draw(st.integers(2, 12))
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    recommended = np.argsort(rng.random((n, m)), axis=1)
    if not full:
        recommended = np.where(rng.random((n, m)) < 0.2, -1, recommended)
    mask = rng.random((n, m)) < draw(st.sampled_from([0.1, 0.5, 0.95]))
    mask[rng.integers(n), rng.integers(m)] = True
    return recommended, mask


def by_hand(recommended, mask, k):
    """Every measure from python sets, row by row."""
    out = {name: [] for name in PER_ROW}
    for row, relevant in zip(recommended.tolist(), mask):
        wanted = set(np.flatnonzero(relevant).tolist())
        if not wanted:
            continue
        hit = [c in wanted for c in row[:k]]
        most = min(k, len(wanted))
        out["precision"].append(sum(hit) / k)
        out["recall"].append(sum(hit) / len(wanted))
        out["recall_truncated"].append(sum(hit) / most)
        gain = sum(h / math.log2(q + 2) for q, h in enumerate(hit))
        out["ndcg"].append(gain / sum(1 / math.log2(q + 2) for q in range(most)))
        out["map"].append(sum(h * sum(hit[: q + 1]) / (q + 1) for q, h in enumerate(hit)) / most)
        out["mrr"].append(next((1 / (q + 1) for q, h in enumerate(hit) if h), 0.0))
        out["hit_rate"].append(float(any(hit)))
    return out


@given(lists(), st.data())
@settings(max_examples=80, deadline=None)
def test_every_measure_agrees_with_sets(case, data):
    recommended, mask = case
    k = data.draw(st.integers(1, mask.shape[1]))
    wanted = by_hand(recommended, mask, k)
    got = ranking(recommended, sparse.csr_array(mask), k, PER_ROW, per_row=True)
    as_lists = ranking(recommended, [np.flatnonzero(row) for row in mask], k, PER_ROW)
    assert got.rows == mask.any(axis=1).sum()
    assert got.rows + got.left_out == len(mask)
    np.testing.assert_array_equal(got.counted, np.flatnonzero(mask.any(axis=1)))
    for name in PER_ROW:
        np.testing.assert_allclose(got.per_row[name], wanted[name], rtol=1e-12, atol=1e-15)
        assert got.mean[name] == pytest.approx(np.mean(wanted[name]), rel=1e-12, abs=1e-15)
        assert as_lists.mean[name] == got.mean[name]
        if got.rows > 1:
            error = np.std(wanted[name], ddof=1) / np.sqrt(got.rows)
            assert got.standard_error[name] == pytest.approx(error, rel=1e-9, abs=1e-12)
        else:
            assert got.standard_error[name] is None


@given(lists(full=True), st.data())
@settings(max_examples=60, deadline=None)
def test_ndcg_and_average_precision_are_those_of_scikit_learn(case, data):
    recommended, mask = case
    k = data.draw(st.integers(1, mask.shape[1]))
    score = np.empty(mask.shape)
    np.put_along_axis(score, recommended, -np.arange(mask.shape[1], dtype=float)[None, :], axis=1)
    rows = mask.any(axis=1)
    relevant = sparse.csr_array(mask)
    assert ndcg_at_k(recommended, relevant, k) == pytest.approx(
        ndcg_score(mask[rows], score[rows], k=k)
    )
    full = np.mean([average_precision_score(mask[i], score[i]) for i in np.flatnonzero(rows)])
    assert map_at_k(recommended, relevant, mask.shape[1]) == pytest.approx(full)


@given(lists())
@settings(max_examples=60, deadline=None)
def test_recall_never_falls_with_k_and_precision_falls_past_the_relevant(case):
    recommended, mask = case
    relevant = sparse.csr_array(mask)
    m = mask.shape[1]
    table = [ranking(recommended, relevant, k, PER_ROW) for k in range(1, m + 1)]
    for name in ("recall", "hit_rate", "mrr"):
        values = [r.mean[name] for r in table]
        assert (np.diff(values) >= -1e-15).all()
    for r in table:
        assert all(0 <= v <= 1 + 1e-12 for v in r.mean.values())
        assert r.mean["recall"] <= r.mean["recall_truncated"] + 1e-15
    ideal = np.argsort(~mask, axis=1, kind="stable")
    most = int(mask.sum(axis=1).max())
    falls = [precision_at_k(ideal, relevant, k) for k in range(most, m + 1)]
    assert (np.diff(falls) < 0).all()
    assert recall_at_k(ideal, relevant, most) == pytest.approx(1)
    for measure in (ndcg_at_k, map_at_k, mrr_at_k, hit_rate_at_k):
        assert measure(ideal, relevant, min(3, m)) == pytest.approx(1)


def test_hand_computed_lists():
    recommended = [[4, 0, 2, 1], [3, 1, 4, 0], [0, 1, 2, 3]]
    relevant = [[0, 1, 3], [], [4]]
    assert precision_at_k(recommended, relevant, 4) == pytest.approx((2 / 4 + 0) / 2)
    assert recall_at_k(recommended, relevant, 4) == pytest.approx((2 / 3) / 2)
    assert recall_at_k(recommended, relevant, 2) == pytest.approx((1 / 3) / 2)
    assert recall_at_k(recommended, relevant, 2, truncated=True) == pytest.approx((1 / 2) / 2)
    gain = 1 / math.log2(3) + 1 / math.log2(5)
    assert ndcg_at_k(recommended, relevant, 4) == pytest.approx(
        gain / (1 + 1 / math.log2(3) + 0.5) / 2
    )
    assert map_at_k(recommended, relevant, 4) == pytest.approx((1 / 2 + 2 / 4) / 3 / 2)
    assert mrr_at_k(recommended, relevant, 4) == pytest.approx(0.5 / 2)
    assert hit_rate_at_k(recommended, relevant, 4) == pytest.approx(0.5)
    assert coverage_at_k(recommended, 10, 2) == pytest.approx(4 / 10)
    assert ranking(recommended, relevant, 4).left_out == 1


def test_no_recommendation_is_a_miss_and_never_the_last_column_of_the_row_before():
    relevant = sparse.csr_array(np.array([[0, 1], [1, 0]]))
    assert hit_rate_at_k([[1, -1], [-1, -1]], relevant, 2) == 0.5
    assert mrr_at_k([[-1, 1], [-1, 0]], relevant, 2) == 0.5
    assert coverage_at_k([[-1, -1]], 3, 2) == 0


def test_a_stored_zero_is_relevant_and_unsorted_rows_and_duplicates_do_not_matter():
    stored = sparse.csr_array((np.zeros(3), np.array([2, 0, 0]), np.array([0, 3])), shape=(1, 3))
    got = ranking([[0, 1, 2]], stored, 2, ("recall", "coverage"))
    assert got.mean == {"recall": 0.5, "coverage": pytest.approx(2 / 3)}
    seen = Observed(np.array([0, 2]), np.array([2, 0]), np.zeros(2), 3)
    assert recall_at_k([[0, 1, 2]], seen, 3) == 1
    assert recall_at_k([[0, 1, 2]], sparse.coo_array(stored), 3) == 1


def test_coverage_counts_every_row_and_has_no_error():
    got = ranking(
        [[0], [1]],
        sparse.csr_array(np.array([[1, 0, 0, 0], [0, 0, 0, 0]])),
        1,
        ("coverage", "recall"),
    )
    assert got.mean["coverage"] == 0.5
    assert got.standard_error == {"coverage": None, "recall": None}
    assert (got.rows, got.left_out) == (1, 1)
    assert "1 without a relevant column" in str(got)
    assert got.per_row is None


@pytest.mark.parametrize(
    ("recommended", "relevant", "k", "message"),
    [
        ([[0, 1]], [[0]], 0, "k must be an int >= 1, got 0"),
        ([[0, 1]], [[0]], True, "k must be an int, got True"),
        ([[0, 1]], [[0]], 1.0, r"k must be an int, got 1\.0"),
        ([[0, 1]], [[0]], 3, "at most 2, the length of the lists"),
        ([0, 1], [[0]], 1, "a 1-d array"),
        ([[0.5, 1.0]], [[0]], 1, "float64"),
        (
            [[0, 1], [2, 2]],
            [[0], [0]],
            2,
            "recommended must hold each column once in a row, got column 2 twice in row 1",
        ),
        (
            [[0, -2]],
            [[0]],
            2,
            r"recommended\[0, 1\] must be -1 \(none\) or a column position, got -2",
        ),
        (
            [[0, 1]],
            [[0], [1]],
            2,
            "recommended must be 2, one for each row of relevant, got '1 rows'",
        ),
        ([[0, 1]], [[]], 2, "no column in any row"),
        (
            [[0, 1]],
            [[1, 1]],
            2,
            "relevant must hold each column once in a row, got column 1 twice in row 0",
        ),
        ([[0, 1]], [[-1]], 2, r"relevant\[0\]"),
        ([[0, 1]], np.array([[True, False]]), 2, r"relevant\[0\]"),
        ([[0, 1]], [0], 2, r"relevant\[0\]"),
        (
            [[0, 1]],
            3,
            2,
            "relevant must be Observed, a SciPy sparse matrix or one integer array per row, got 'int'",
        ),
        (
            [[0, 9]],
            sparse.csr_array(np.eye(1, 4)),
            2,
            r"recommended\[0, 1\] must be -1 \(none\) or a column position below 4, got 9",
        ),
    ],
)
def test_lists_that_are_refused(recommended, relevant, k, message):
    with pytest.raises(InputError, match=message):
        precision_at_k(recommended, relevant, k)


def test_repeats_beyond_k_are_not_read():
    assert precision_at_k([[0, 1, 1]], [[0]], 2) == 0.5


def test_unknown_measures_are_refused():
    with pytest.raises(
        InputError,
        match="metrics must be names among precision, recall, recall_truncated, ndcg, map, mrr,",
    ):
        ranking([[0]], [[0]], 1, ("f1",))
    with pytest.raises(InputError, match="coverage_at_k"):
        ranking([[0]], [[0]], 1, "coverage")
    with pytest.raises(InputError, match="n_columns"):
        coverage_at_k([[0]], 0, 1)


pairs = st.lists(
    st.tuples(*[st.floats(-1e6, 1e6)] * 2, st.floats(1e-3, 10)), min_size=1, max_size=30
)


@given(pairs)
@settings(max_examples=60, deadline=None)
def test_errors_are_those_of_scikit_learn(triples):
    t, p, w = np.array(triples).T
    assert rmse(t, p) == pytest.approx(root_mean_squared_error(t, p), rel=1e-12)
    assert mae(t, p) == pytest.approx(mean_absolute_error(t, p), rel=1e-12)
    assert rmse(t, p, w) == pytest.approx(root_mean_squared_error(t, p, sample_weight=w), rel=1e-9)
    assert mae(t, p, w) == pytest.approx(mean_absolute_error(t, p, sample_weight=w), rel=1e-9)
    assert mae(t, p) <= rmse(t, p) * (1 + 1e-12)


def test_errors_of_extreme_and_single_precision_values():
    assert rmse([1e200, 0.0], [0.0, 0.0]) == pytest.approx(1e200 / math.sqrt(2))
    assert mae([1.5e308, 1.5e308], [0.0, 0.0]) == pytest.approx(1.5e308)
    assert rmse([3e-200], [0.0]) == 3e-200
    assert rmse([2.0, 2.0], [2.0, 2.0]) == 0
    ones = np.ones(3_000_000, np.float32)
    assert mae(ones, ones + np.float32(0.25)) == 0.25


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0, 2.0], [1.0, np.nan]), r"predicted\[1\] must be a finite number, got nan"),
        (([1.0, np.inf], [1.0, 1.0]), r"truth\[1\] must be a finite number, got inf"),
        (
            ([[1.0], [2.0]], [1.0, 2.0]),
            r"predicted must be shape \(2, 1\), that of truth, got 'an array of shape \(2,\)'",
        ),
        (([], []), "no value"),
        (
            ([1.0], [1.0], [-1.0]),
            r"sample_weight must be weights >= 0, not all of them 0, got -1\.0",
        ),
        (([1.0], [1.0], [0.0]), "not all of them 0"),
        (([1.0], [1.0], [1.0, 2.0]), "sample_weight"),
        ((["a"], [1.0]), "truth must be an array of numbers, got 'list'"),
    ],
)
@pytest.mark.parametrize("measure", [rmse, mae])
def test_predictions_that_are_refused(measure, arguments, message):
    with pytest.raises(InputError, match=message):
        measure(*arguments)


def test_bootstrap_interval_covers_like_the_normal_one_and_repeats():
    values = np.random.default_rng(1).random(400)
    low, high = bootstrap_interval(values, 0.9, random_state=3)
    half = 1.645 * values.std(ddof=1) / 20
    assert low == pytest.approx(values.mean() - half, abs=0.15 * half)
    assert high == pytest.approx(values.mean() + half, abs=0.15 * half)
    assert (low, high) == bootstrap_interval(values, 0.9, random_state=3)
    for bad in ({"level": 1.0}, {"resamples": 0}):
        with pytest.raises(InputError, match=next(iter(bad))):
            bootstrap_interval(values, **bad)
    for bad in ([], [[1.0]], [np.nan]):
        with pytest.raises(InputError, match="values"):
            bootstrap_interval(bad)


def test_lists_of_138k_rows_are_scored_without_a_loop_over_rows():
    rng = np.random.default_rng(0)
    n, m, k = 138_000, 20_000, 20
    recommended = (rng.integers(m, size=(n, 1)) + np.arange(k) * 731) % m
    relevant = sparse.random_array((n, m), density=5e-4, format="csr", rng=rng)
    start = time.process_time()
    got = ranking(recommended, relevant, k, PER_ROW)
    # 0.3 to 0.6 s measured on a busy 2-core machine; the rest is margin
    assert time.process_time() - start < 20
    assert got.mean["recall"] == pytest.approx(k / m, rel=0.2)


def test_recommendations_are_matched_with_hidden_entries_by_id():
    """Their positions were taken for those of the hidden entries, which have columns of their
    own."""
    entries = [
        (f"u{i}", f"c{j}", float((i * j) % 5)) for i in range(12) for j in range(8) if (i + j) % 3
    ]
    model = eckart.ALS(2, random_state=0).fit(entries, rows=0, columns=1, values=2)
    found = model.recommend(n=2)
    best = dict(zip(found.rows, found.columns[:, 0]))
    rows = [row for row in found.rows if row != "u3"]
    hidden = eckart.Observed.from_triples(
        [*rows, "stranger"], [*(best[row] for row in rows), "new"], None
    )
    got = eckart.metrics.ranking(found, hidden, 2, ("mrr", "hit_rate"))
    assert (got.mean["mrr"], got.mean["hit_rate"]) == (1.0, 1.0)
    assert got.left_out == 1
    nobody = eckart.Observed.from_triples(list(found.rows), ["new"] * len(found.rows), None)
    assert eckart.metrics.ranking(found, nobody, 2, "hit_rate").mean["hit_rate"] == 0.0
