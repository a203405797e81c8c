"""Splits: nothing lost, nothing twice, what must stay stays, and a seed repeats."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from eckart import Counts, InputError, Observed
from eckart.complete.split import folds, split
from eckart.errors import InputTypeError

gappy = hnp.arrays(
    np.float64,
    hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=9),
    elements=st.integers(-50, 50).map(float) | st.just(np.nan),
)
seeds = st.integers(0, 2**31)


def labelled(x):
    rows = np.array([f"r{i}" for i in range(x.shape[0])], dtype=object)
    columns = np.array([f"c{j}" for j in range(x.shape[1])], dtype=object)
    return Observed.from_nan(x, rows, columns)


def dense(matrix):
    out = np.full(matrix.shape, np.nan)
    out[np.repeat(np.arange(matrix.shape[0]), matrix.row_counts()), matrix.indices] = matrix.data
    return out


def together(*parts):
    """The union of matrices that share no entry."""
    out = np.full(parts[0].shape, np.nan)
    for part in map(dense, parts):
        assert np.isnan(out[~np.isnan(part)]).all(), "an entry came twice"
        out = np.where(np.isnan(part), out, part)
    return out


def big(rng, n=200, m=80, density=0.2, dtype=np.float64):
    x = rng.standard_normal((n, m)).astype(dtype)
    x[rng.random((n, m)) > density] = np.nan
    return labelled(x)


@given(gappy, st.floats(0.01, 0.99), seeds)
@settings(max_examples=150, deadline=None)
def test_by_entry_loses_nothing_and_keeps_every_row_and_column(x, share, seed):
    seen = labelled(x)
    try:
        parts = split(seen, share, random_state=seed)
    except InputError:
        # only where each entry is the last of its row or of its column, or all but such entries are
        # protected
        assert seen.nnz <= seen.shape[0] + seen.shape[1]
        return
    np.testing.assert_array_equal(together(parts.train, parts.test), x)
    np.testing.assert_array_equal(parts.train.row_counts() > 0, seen.row_counts() > 0)
    np.testing.assert_array_equal(parts.train.column_counts() > 0, seen.column_counts() > 0)
    assert parts.test.nnz <= max(1, round(share * seen.nnz))
    for part in (parts.train, parts.test):
        assert list(part.rows) == list(seen.rows)
        assert list(part.columns) == list(seen.columns)
    again = split(seen, share, random_state=seed)
    np.testing.assert_array_equal(dense(again.test), dense(parts.test))


def test_by_entry_reaches_the_share_and_draws_uniformly(rng):
    seen = big(rng)
    drawn = np.zeros(seen.shape)
    for seed in range(200):
        parts = split(seen, 0.1, random_state=seed)
        assert parts.test.nnz == round(0.1 * seen.nnz)
        drawn += ~np.isnan(dense(parts.test))
    rate = drawn[~np.isnan(dense(seen))] / 200
    assert rate.mean() == pytest.approx(0.1, rel=0.01)
    assert rate.std() == pytest.approx(np.sqrt(0.09 / 200), rel=0.1)  # that of independent draws


def test_by_entry_without_protection_reaches_any_number(rng):
    seen = big(rng, 20, 10, 0.3)
    assert split(seen, seen.nnz - 1, keep_rows=False, random_state=0).train.nnz == 1
    kept = split(seen, 0.99, random_state=0)
    assert kept.train.nnz >= max((seen.row_counts() > 0).sum(), (seen.column_counts() > 0).sum())
    assert (kept.train.row_counts() > 0).sum() == (seen.row_counts() > 0).sum()


@given(gappy, st.floats(0.05, 0.9), st.floats(0.05, 0.95), seeds)
@settings(max_examples=150, deadline=None)
def test_by_row_is_the_fold_in_protocol(x, share, shown, seed):
    seen = labelled(x)
    try:
        parts = split(seen, share, by="row", fold_in=shown, random_state=seed)
    except InputError:
        able = (seen.row_counts() >= 2).sum()
        number = min(max(1, round(share * len(x))), able)
        assert number in (0, len(x))
        return
    both = np.sort(np.concatenate([parts.train_rows, parts.test_rows]))
    np.testing.assert_array_equal(both, np.arange(len(x)))
    np.testing.assert_array_equal(dense(parts.train), x[parts.train_rows])
    np.testing.assert_array_equal(together(parts.fold_in, parts.test), x[parts.test_rows])
    assert list(parts.train.rows) == list(seen.rows[parts.train_rows])
    assert list(parts.test.rows) == list(parts.fold_in.rows) == list(seen.rows[parts.test_rows])
    count = seen.row_counts()[parts.test_rows]
    np.testing.assert_array_equal(
        parts.fold_in.row_counts(), np.clip(np.rint(shown * count), 1, count - 1)
    )
    assert (parts.test.row_counts() >= 1).all()
    again = split(seen, share, by="row", fold_in=shown, random_state=seed)
    np.testing.assert_array_equal(again.test_rows, parts.test_rows)
    np.testing.assert_array_equal(dense(again.test), dense(parts.test))


@given(
    gappy,
    st.floats(0.05, 0.95),
    st.sampled_from(["whole", "fraction", "date", "matrix", "huge"]),
    seeds,
)
@settings(max_examples=150, deadline=None)
def test_by_time_overall_is_a_clean_cut(x, share, kind, seed):
    seen = labelled(x)
    times = np.random.default_rng(seed).integers(0, 6, seen.nnz)
    given_times = {
        "whole": times,
        "fraction": times * 0.37 - 1,
        "date": np.datetime64("2020-01-01") + times,
        "matrix": Observed(seen.indptr, seen.indices, times.astype(float), seen.n_columns),
        "huge": times * 1e300,
    }[kind]
    number = min(max(1, round(share * seen.nnz)), seen.nnz)
    if number in (0, seen.nnz):
        with pytest.raises(InputError, match="held_out"):
            split(seen, share, by="time", times=given_times)
        return
    parts = split(seen, share, by="time", times=given_times)
    np.testing.assert_array_equal(together(parts.train, parts.test), x)
    assert parts.test.nnz == number
    stamp = dense(Observed(seen.indptr, seen.indices, times.astype(float), seen.n_columns))
    assert stamp[~np.isnan(dense(parts.train))].max() <= stamp[~np.isnan(dense(parts.test))].min()
    latest = np.argsort(times, kind="stable")[seen.nnz - number :]
    wanted = np.zeros(seen.nnz, dtype=bool)
    wanted[latest] = True
    np.testing.assert_array_equal(parts.test.data, seen.data[wanted])


@given(
    gappy,
    st.floats(0.05, 0.95) | st.integers(1, 4),
    st.sampled_from([1, 0.37, 2**60]),
    st.booleans(),
    seeds,
)
@settings(max_examples=150, deadline=None)
def test_by_time_per_row_takes_the_latest_of_each(x, held_out, unit, keep, seed):
    seen = labelled(x)
    times = np.random.default_rng(seed).integers(0, 5, seen.nnz) * unit
    hidden = np.zeros(seen.nnz, dtype=bool)
    for a, b in zip(seen.indptr, seen.indptr[1:]):
        take = round(held_out * (b - a)) if isinstance(held_out, float) else min(held_out, b - a)
        take = min(take, max(0, b - a - 1)) if keep else take
        hidden[a + np.argsort(times[a:b], kind="stable")[b - a - take :]] = True
    arguments = {"by": "time", "times": times, "per_row": True, "keep_rows": keep}
    if not hidden.any() or hidden.all():
        with pytest.raises(InputError, match="held_out"):
            split(seen, held_out, **arguments)
        return
    parts = split(seen, held_out, **arguments)
    np.testing.assert_array_equal(together(parts.train, parts.test), x)
    np.testing.assert_array_equal(parts.test.data, seen.data[hidden])
    if keep:
        np.testing.assert_array_equal(parts.train.row_counts() > 0, seen.row_counts() > 0)


@given(gappy, st.integers(2, 7), seeds)
@settings(max_examples=100, deadline=None)
def test_folds_partition_the_entries_evenly(x, n, seed):
    seen = labelled(x)
    if n > seen.nnz:
        with pytest.raises(InputError, match="n must be an int from 2 to the number of entries,"):
            folds(seen, n)
        return
    parts = list(folds(seen, n, random_state=seed))
    assert len(parts) == n
    np.testing.assert_array_equal(together(*(p.test for p in parts)), x)
    sizes = [p.test.nnz for p in parts]
    assert max(sizes) - min(sizes) <= 1
    per_row = np.array([p.test.row_counts() for p in parts])
    assert (np.ptp(per_row, axis=0) <= 1).all()
    for p in parts:
        np.testing.assert_array_equal(together(p.train, p.test), x)
        assert (p.train.row_counts()[seen.row_counts() >= 2] >= 1).all()
    again = [dense(p.test) for p in folds(seen, n, random_state=seed)]
    for p, q in zip(parts, again):
        np.testing.assert_array_equal(dense(p.test), q)


def test_folds_are_random_also_for_rows_of_one_entry():
    seen = Observed(np.arange(101), np.zeros(100, np.int32), np.arange(100.0), 1)
    first = next(folds(seen, 5, random_state=1)).test.data
    assert len(first) == 20
    assert len(set(first % 5)) > 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", [Observed, Counts])
def test_kind_and_precision_are_kept(rng, dtype, kind):
    seen = big(rng, dtype=dtype)
    given_matrix = kind(seen.indptr.astype(np.int32), seen.indices, seen.data, seen.n_columns)
    parts = [split(given_matrix, random_state=0), split(given_matrix, by="row", random_state=0)]
    parts.append(next(folds(given_matrix, 3, random_state=0)))
    for part in (m for p in parts for m in (p.train, p.test, p.fold_in) if m is not None):
        assert type(part) is kind
        assert part.data.dtype == dtype
        assert part.indptr.dtype == np.int32
        assert part.indices.dtype == seen.indices.dtype
        assert part.rows is None


def test_a_generator_goes_on_and_other_seeds_differ(rng):
    seen = big(rng)
    stream = np.random.default_rng(5)
    a, b = (split(seen, random_state=stream).test for _ in range(2))
    assert not np.array_equal(a.indices, b.indices)
    c = split(seen, random_state=5).test
    np.testing.assert_array_equal(a.indices, c.indices)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"held_out": 0.0},
            r"held_out must be a share between 0 and 1, or a number of at least 1, got 0\.0",
        ),
        (
            {"held_out": 1.0},
            r"held_out must be a share between 0 and 1, or a number of at least 1, got 1\.0",
        ),
        (
            {"held_out": 0},
            "held_out must be a share between 0 and 1, or a number of at least 1, got 0",
        ),
        ({"held_out": True}, "held_out must be a number or an int, got True"),
        ({"held_out": np.nan}, "held_out must be a number or an int, got nan"),
        ({"held_out": 10**9, "keep_rows": False}, "leaves a training entry"),
        ({"by": "user"}, "by must be 'entry', 'row' or 'time', got 'user'"),
        ({"by": "time"}, "times must be one time for each entry, with by='time', got 'None'"),
        ({"times": np.arange(3)}, "with by='entry'"),
        ({"per_row": True}, "per_row must be False unless by='time', got True"),
        ({"by": "row", "fold_in": 1.0}, r"fold_in must be a share between 0 and 1, got 1\.0"),
        ({"by": "row", "held_out": 200}, "leaves rows in both parts"),
        ({"by": "time", "times": np.arange(3)}, r"shape \(3,\)"),
        ({"by": "time", "times": np.array(["a"])}, "shape"),
        ({"random_state": -1}, "random_state"),
    ],
)
def test_what_is_refused(rng, arguments, message):
    seen = big(rng, 200, 80, 0.9)
    with pytest.raises(InputError, match=message):
        split(seen, **arguments)


def test_times_that_are_refused(rng):
    seen = big(rng)
    times = np.zeros(seen.nnz)
    times[7] = np.nan
    with pytest.raises(
        InputError, match=r"times must be a time for every entry, got np\.float64\(nan\)"
    ):
        split(seen, by="time", times=times)
    dates = np.full(seen.nnz, np.datetime64("2020-01-01"))
    dates[3] = np.datetime64("NaT")
    with pytest.raises(
        InputError, match=r"times must be a time for every entry, got np\.datetime64\('NaT','D'\)"
    ):
        split(seen, by="time", times=dates)
    with pytest.raises(InputError, match="numbers or datetime64"):
        split(seen, by="time", times=np.full(seen.nnz, "monday"))
    other = Observed(seen.indptr, (seen.indices + 1) % seen.n_columns, seen.data, seen.n_columns)
    with pytest.raises(InputError, match="other entries"):
        split(seen, by="time", times=other)


def test_matrices_that_are_refused():
    for bad in (np.zeros((2, 2)), None):
        with pytest.raises(InputTypeError, match="observed must be Observed or Counts, got"):
            split(bad)
        with pytest.raises(InputTypeError, match="observed must be Observed or Counts, got"):
            folds(bad)
    empty = Observed(np.zeros(4, np.int64), np.zeros(0, np.int32), np.zeros(0), 3)
    for arguments in ({}, {"by": "row"}, {"by": "time", "times": []}):
        with pytest.raises(InputError, match="held_out"):
            split(empty, **arguments)
    alone = Observed.from_nan(np.eye(3) + np.where(np.eye(3) == 1, 0, np.nan))
    with pytest.raises(InputError, match="keep_rows=False"):
        split(alone)
    with pytest.raises(InputError, match="n must be an int from 2 to the number of entries,"):
        folds(alone, 1)
