"""Normalisation: hand-computed, the ridge problem against a dense solve, and exact inversion."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from eckart import Counts, InputError, Observed
from eckart.complete.normalise import KINDS, Normaliser, normalise
from eckart.errors import InputTypeError

nan = np.nan
settled = [
    (by, scale) for by in KINDS for scale in (False, True) if not (scale and by in ("bias", None))
]


def gappy(dtype=np.float64, low=-1e6, high=1e6):
    width = 8 * np.dtype(dtype).itemsize
    return hnp.arrays(
        dtype,
        hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=8),
        elements=st.floats(low, high, width=width) | st.just(nan),
    )


def rows_of(seen):
    return np.repeat(np.arange(seen.shape[0]), seen.row_counts())


def dense(seen):
    out = np.full(seen.shape, nan)
    out[rows_of(seen), seen.indices] = seen.data
    return out


def or_zero(array, size):
    return np.zeros(size) if array is None else array


def or_one(array, size):
    return np.ones(size) if array is None else array


@pytest.mark.parametrize(("by", "scale"), settled)
@given(gappy())
@settings(max_examples=60, deadline=None)
def test_inversion_is_exact_in_double_precision(by, scale, a):
    seen = Observed.from_nan(a)
    normaliser, x = normalise(seen, by, scale=scale)
    back = normaliser.invert(x.data, rows_of(seen), seen.indices)
    size = np.abs(seen.data).max(initial=0.0)
    np.testing.assert_allclose(back, seen.data, rtol=0, atol=1e-12 * size)
    assert x.data.dtype == np.float64
    n, m = seen.shape
    i, j = rows_of(seen), seen.indices
    formula = (
        normaliser.mean
        + or_zero(normaliser.column_offset, m)[j]
        + or_one(normaliser.column_scale, m)[j]
        * (or_zero(normaliser.row_offset, n)[i] + or_one(normaliser.row_scale, n)[i] * x.data)
    )
    np.testing.assert_allclose(back, formula, rtol=0, atol=1e-13 * max(size, 1e-300))


@pytest.mark.parametrize(("by", "scale"), settled)
@given(gappy(np.float32, -1000, 1000))
@settings(max_examples=40, deadline=None)
def test_inversion_is_exact_to_the_last_places_in_single_precision(by, scale, a):
    seen = Observed.from_nan(a)
    normaliser, x = normalise(seen, by, scale=scale)
    assert x.data.dtype == np.float32
    back = normaliser.invert(x.data, rows_of(seen), seen.indices)
    assert back.dtype == np.float32
    size = np.abs(seen.data).max(initial=np.float32(0))
    assert np.abs(back - seen.data).max(initial=0) <= 4 * np.spacing(size)


@pytest.mark.parametrize("axis", [0, 1])
@given(gappy())
@settings(max_examples=60, deadline=None)
def test_columns_and_rows_have_mean_zero_and_spread_one(axis, a):
    seen = Observed.from_nan(a)
    normaliser, x = normalise(seen, "column" if axis == 0 else "row", scale=True)
    counts = seen.column_counts() if axis == 0 else seen.row_counts()
    offset = normaliser.column_offset if axis == 0 else normaliser.row_offset
    scale = normaliser.column_scale if axis == 0 else normaliser.row_scale
    for g in range(len(counts)):
        values = a.take(g, axis=1 - axis)
        values = values[~np.isnan(values)]
        got = dense(x).take(g, axis=1 - axis)
        got = got[~np.isnan(got)]
        size = np.abs(values).max(initial=0)
        if len(values) == 0:
            assert offset[g] == 0
            assert scale[g] == 1
            continue
        assert normaliser.mean + offset[g] == pytest.approx(
            values.mean(), rel=1e-12, abs=1e-12 * np.abs(seen.data).max()
        )
        if np.ptp(values) == 0:
            assert scale[g] == 1
        elif values.std() > 1e-6 * np.abs(seen.data).max():
            assert scale[g] == pytest.approx(values.std(), rel=1e-6)
            assert got.std() == pytest.approx(1)
            assert abs(got.mean()) <= 1e-6
        assert np.abs(got * scale[g]).max() <= 2.1 * size + 1e-9


def test_hand_computed_means_over_observed_entries_only():
    seen = Observed.from_nan(np.array([[1.0, nan, 0.0], [3.0, nan, nan], [nan, nan, 4.0]]))
    column, x = normalise(seen, "column")
    assert column.mean == 2.0
    assert column.column_offset.tolist() == [0.0, 0.0, 0.0]
    assert x.data.tolist() == [-1.0, -2.0, 1.0, 2.0]
    row, x = normalise(seen, "row", scale=True)
    assert (row.mean + row.row_offset).tolist() == [0.5, 3.0, 4.0]
    assert row.row_scale.tolist() == [0.5, 1.0, 1.0]
    assert x.data.tolist() == [1.0, -1.0, 0.0, 0.0]
    both, x = normalise(Observed.from_nan(np.array([[1.0, 6.0], [3.0, nan]])), "both")
    assert (both.mean + both.column_offset).tolist() == pytest.approx([2.0, 6.0])
    assert both.row_offset.tolist() == pytest.approx([-0.5, 1.0])
    assert x.data.tolist() == pytest.approx([-0.5, 0.5, 0.0])
    everything, x = normalise(seen, "global", scale=True)
    assert x.data.mean() == pytest.approx(0)
    assert x.data.std() == pytest.approx(1)
    assert everything.column_scale.tolist() == pytest.approx([seen.data.std()] * 3)
    nothing, x = normalise(seen, None)
    assert x is seen
    assert nothing.invert([7.0], [0], [1]).tolist() == [7.0]


def test_both_with_scales_is_columns_then_rows(rng):
    a = rng.standard_normal((30, 12)) * rng.uniform(0.5, 4, 12) + rng.standard_normal(12)
    a[rng.random(a.shape) < 0.3] = nan
    x = (a - np.nanmean(a, axis=0)) / np.nanstd(a, axis=0)
    x = (x - np.nanmean(x, axis=1)[:, None]) / np.nanstd(x, axis=1)[:, None]
    np.testing.assert_allclose(
        dense(normalise(Observed.from_nan(a), "both", scale=True)[1]), x, rtol=1e-10, atol=1e-12
    )


def ridge_by_dense_solve(a, l2, by_count):
    """(b, c) from the normal equations of all unknowns at once; minimum norm where they are
    singular."""
    seen = Observed.from_nan(a)
    n, m = a.shape
    design = np.zeros((seen.nnz, n + m))
    design[np.arange(seen.nnz), rows_of(seen)] = 1
    design[np.arange(seen.nnz), n + seen.indices] = 1
    weight = (
        np.concatenate([seen.row_counts(), seen.column_counts()]) if by_count else np.ones(n + m)
    )
    y = seen.data - seen.data.mean()
    solution = np.linalg.lstsq(design.T @ design + np.diag(l2 * weight), design.T @ y, rcond=1e-12)[
        0
    ]
    return solution[:n], solution[n:], design, y


@given(gappy(low=-10, high=10), st.sampled_from([0.05, 1.0, 7.0]), st.booleans())
@settings(max_examples=120, deadline=None)
def test_biases_minimise_the_ridge_problem(a, l2, by_count):
    seen = Observed.from_nan(a)
    normaliser, x = normalise(seen, "bias", l2=l2, l2_by_count=by_count)
    assert normaliser.residual <= 1e-10
    if seen.nnz == 0:
        return
    b, c, design, y = ridge_by_dense_solve(a, l2, by_count)
    np.testing.assert_allclose(normaliser.row_offset, b, rtol=0, atol=1e-8)
    np.testing.assert_allclose(normaliser.column_offset, c, rtol=0, atol=1e-8)
    np.testing.assert_allclose(x.data, y - design @ np.concatenate([b, c]), rtol=0, atol=1e-8)


@given(gappy(low=-10, high=10))
@settings(max_examples=80, deadline=None)
def test_biases_without_ridge_are_a_least_squares_fit(a):
    seen = Observed.from_nan(a)
    normaliser, x = normalise(seen, "bias", l2=0)
    assert normaliser.residual <= 1e-9
    if seen.nnz:
        b, c, design, y = ridge_by_dense_solve(a, 0.0, False)
        np.testing.assert_allclose(x.data, y - design @ np.concatenate([b, c]), rtol=0, atol=1e-6)
        assert (normaliser.row_offset[seen.row_counts() == 0] == 0).all()
        assert (normaliser.column_offset[seen.column_counts() == 0] == 0).all()


def test_biases_of_an_additive_matrix_are_found_in_few_iterations(rng):
    n, m = 3000, 200
    a = 3 + rng.standard_normal((n, 1)) + rng.standard_normal(m) + 0.1 * rng.standard_normal((n, m))
    a[rng.random((n, m)) < 0.8] = nan
    seen = Observed.from_nan(a)
    short, x = normalise(seen, "bias", l2=0.1, iterations=15)
    full, _ = normalise(seen, "bias", l2=0.1)
    assert short.residual < 1e-6
    assert full.residual < 1e-11
    assert normalise(seen, "bias", l2=0.1, iterations=1)[0].residual > short.residual
    assert x.data.std() == pytest.approx(0.1, rel=0.03)
    np.testing.assert_allclose(short.column_offset, full.column_offset, atol=1e-4)
    i, j, y, c = rows_of(seen), seen.indices, seen.data - full.mean, np.zeros(m)
    for _ in range(15):
        b = np.bincount(i, y - c[j], n) / (seen.row_counts() + 0.1)
        c = np.bincount(j, y - b[i], m) / (seen.column_counts() + 0.1)
    plain = np.abs(c - full.column_offset).max()
    assert plain > 100 * np.abs(short.column_offset - full.column_offset).max()


@pytest.mark.parametrize(("by", "scale"), settled)
def test_new_rows_of_the_fitted_rows_are_those_of_the_fit(rng, by, scale):
    a = rng.standard_normal((40, 9)) + 3
    a[rng.random(a.shape) < 0.4] = nan
    a[5] = nan
    seen = Observed.from_nan(a)
    normaliser, x = normalise(seen, by, scale=scale)
    offset, spread = normaliser.new_rows(seen)
    for got, wanted in ((offset, normaliser.row_offset), (spread, normaliser.row_scale)):
        assert (got is None) == (wanted is None)
        if wanted is not None:
            np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9)
    some = Observed.from_nan(a[3:10])
    new = normaliser.for_rows(some)
    assert new.shape == (7, 9)
    np.testing.assert_allclose(dense(new.apply(some)), dense(x)[3:10], rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(
        new.invert(new.apply(some).data, rows_of(some), some.indices),
        some.data,
        rtol=1e-12,
        atol=1e-12,
    )
    columns_only = dense(normaliser.apply_columns(some))
    wanted = (a[3:10] - normaliser.mean - or_zero(normaliser.column_offset, 9)) / or_one(
        normaliser.column_scale, 9
    )
    np.testing.assert_allclose(columns_only, wanted, rtol=1e-12)


@pytest.mark.parametrize(("by", "scale"), [s for s in settled if s[0] is not None])
def test_empty_rows_and_columns_are_predicted_by_what_is_known(by, scale):
    seen = Observed.from_nan(
        np.array([[5.0, nan, 3.0], [nan, nan, nan], [4.0, nan, 2.0], [nan, nan, nan]])
    )
    normaliser, _ = normalise(seen, by, scale=scale)
    for array, at, wanted in (
        (normaliser.row_offset, [1, 3], 0),
        (normaliser.row_scale, [1, 3], 1),
        (normaliser.column_offset, [1], 0),
    ):
        if array is not None:
            assert (array[at] == wanted).all()
    assert normaliser.invert([0.0], [1], [1]).tolist() == [3.5]
    void = Observed(np.zeros(3, np.int64), np.zeros(0, np.int32), np.zeros(0), 2)
    normaliser, x = normalise(void, by, scale=scale)
    assert x.nnz == 0
    assert normaliser.invert(np.zeros((2, 2)), np.arange(2)[:, None], np.arange(2)).tolist() == [
        [0.0, 0.0],
        [0.0, 0.0],
    ]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_constant_that_has_no_exact_binary_form_has_no_spread(dtype):
    a = np.column_stack([np.full(30_000, 0.1), np.linspace(0, 1, 30_000)]).astype(dtype)
    normaliser, x = normalise(Observed.from_nan(a), "column", scale=True)
    assert normaliser.column_scale[0] == 1
    assert np.abs(x.data[::2]).max() < 1e-7
    additive = (np.full((50, 7), 0.1) + np.arange(50)[:, None]).astype(dtype)
    assert (normalise(Observed.from_nan(additive), "both", scale=True)[0].row_scale == 1).all()


def test_spreads_of_extreme_values_neither_overflow_nor_vanish():
    for unit in (1e-200, 1e200):
        a = Observed.from_nan(np.array([[1.0, 2.0], [3.0, 2.0]]) * unit)
        assert normalise(a, "column", scale=True)[0].column_scale.tolist() == pytest.approx(
            [unit, 1.0]
        )


def test_single_precision_sums_are_double():
    a = np.full((200_000, 1), 16777216.0, dtype=np.float32)
    a[::2] += 2
    assert normalise(Observed.from_nan(a))[0].mean == 16777217.0


def test_blocks_and_lists_are_inverted_alike(rng):
    a = rng.standard_normal((6, 5))
    normaliser, x = normalise(Observed.from_nan(a), "both", scale=True)
    block = dense(x)[2:5]
    rows = np.arange(2, 5)
    np.testing.assert_allclose(
        normaliser.invert(block, rows[:, None], np.arange(5)), a[2:5], rtol=1e-12
    )
    np.testing.assert_allclose(normaliser.invert(block[0], 2, np.arange(5)), a[2], rtol=1e-12)
    assert normaliser.invert(0, [0, 1], [0, 1]).shape == (2,)
    assert normaliser.invert(np.zeros(0), [], []).shape == (0,)
    kept = block.copy()
    normaliser.invert(block, rows[:, None], np.arange(5))
    np.testing.assert_array_equal(block, kept)


@pytest.mark.parametrize(("by", "scale"), settled)
def test_labels_are_kept_input_untouched_and_state_goes_through_json(rng, by, scale):
    a = rng.standard_normal((6, 4))
    a[1, 2] = nan
    seen = Observed.from_nan(a, np.array(list("abcdef")), np.array(list("wxyz")))
    before = seen.data.copy()
    normaliser, x = normalise(seen, by, scale=scale, l2=2)
    np.testing.assert_array_equal(seen.data, before)
    assert x.rows is seen.rows
    assert x.columns is seen.columns
    np.testing.assert_array_equal(normaliser.apply(seen).data, x.data)
    arrays, values = normaliser.to_state()
    again = Normaliser.from_state(arrays, json.loads(json.dumps(values)))
    for name in Normaliser.__dataclass_fields__:
        np.testing.assert_array_equal(getattr(again, name), getattr(normaliser, name))
    np.testing.assert_array_equal(again.apply(seen).data, x.data)
    np.testing.assert_array_equal(
        again.for_rows(seen).apply(seen).data, normaliser.for_rows(seen).apply(seen).data
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"by": "item"}, "by must be 'column', 'row', 'both', 'bias', 'global', None, got 'item'"),
        ({"by": "bias", "scale": True}, "scale must be False with by='bias', got True"),
        ({"by": None, "scale": True}, "scale must be False with by=None, got True"),
        ({"by": "bias", "l2": -1.0}, r"l2 must be a number >= 0, got -1\.0"),
        ({"by": "bias", "l2": nan}, "l2 must be a number, got nan"),
        ({"by": "bias", "l2": "much"}, "l2 must be a number, got 'much'"),
        ({"by": "bias", "iterations": 0}, "iterations must be an int >= 1, got 0"),
    ],
)
def test_what_is_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        normalise(Observed.from_nan(np.eye(3)), **arguments)


def test_data_that_are_refused():
    with pytest.raises(InputTypeError, match="observed must be Observed, got"):
        normalise(np.eye(3))
    with pytest.raises(InputTypeError, match="observed must be Observed, got"):
        normalise(Counts(np.array([0, 1]), np.array([0]), np.array([1.0]), 1))
    broken = Observed(np.array([0, 0, 2]), np.array([0, 2]), np.array([1.0, np.inf]), 3)
    with pytest.raises(InputError, match="observed must be finite entries, got inf"):
        normalise(broken)
    normaliser, _ = normalise(Observed.from_nan(np.eye(3)), "row")
    with pytest.raises(InputError, match="observed must be the 3 rows of the fit, got '2 rows'"):
        normaliser.apply(Observed.from_nan(np.zeros((2, 3))))
    for call in (normaliser.apply, normaliser.apply_columns, normaliser.new_rows):
        with pytest.raises(InputError, match="4 columns"):
            call(Observed.from_nan(np.zeros((3, 4))))
    for rows, columns, message in (
        ([-1], [0], "rows must be positions from 0 to 2, got -1"),
        ([0], [3], "columns must be positions from 0 to 2, got 3"),
        ([0.0], [0], "integer positions"),
        ([0, 1, 2], [0, 1], "broadcast"),
    ):
        with pytest.raises(InputError, match=message):
            normaliser.invert([0.0], rows, columns)
