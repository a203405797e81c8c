"""Dense, Observed, Counts: meaning of absence, labels, precision, and parts that add up to the
whole."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

from eckart import Counts, Dense, InputError, Observed
from eckart.io.tables.row_blocks import IteratorBlocks
from eckart.matrix import floating, row_parts

gappy = hnp.arrays(
    np.float64,
    hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=9),
    elements=st.floats(-1e6, 1e6) | st.just(np.nan),
)


@given(gappy)
@settings(max_examples=60, deadline=None)
def test_observed_from_nan_stores_exactly_what_is_not_nan(x):
    seen = Observed.from_nan(x)
    assert seen.nnz == np.count_nonzero(~np.isnan(x))
    assert seen.shape == x.shape
    back = np.full(x.shape, np.nan)
    back[np.repeat(np.arange(len(x)), seen.row_counts()), seen.indices] = seen.data
    np.testing.assert_array_equal(back, x)
    np.testing.assert_array_equal(seen.column_counts(), (~np.isnan(x)).sum(axis=0))


@given(gappy, st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_row_parts_concatenate_back(x, rows):
    labels = np.array([f"r{i}" for i in range(len(x))], dtype=object)
    dense = Dense(x, labels)
    parts = list(row_parts(dense, rows))
    np.testing.assert_array_equal(np.concatenate([p.values for p in parts]), x)
    assert [r for p in parts for r in p.rows] == list(labels)
    assert all(p.shape[0] <= rows for p in parts)
    for whole in (
        Observed.from_nan(x, labels),
        Counts.from_scipy(sparse.csr_array(np.nan_to_num(x)), labels),
    ):
        parts = list(row_parts(whole, rows))
        assert {type(p) for p in parts} == {type(whole)}
        got = sparse.vstack([p.to_scipy() for p in parts]).toarray()
        np.testing.assert_array_equal(got, whole.to_scipy().toarray())
        assert sum(p.nnz for p in parts) == whole.nnz
        assert [r for p in parts for r in p.rows] == list(labels)


def test_row_parts_of_a_stream_keep_labels_in_step():
    x = np.arange(14.0).reshape(7, 2)
    stream = Dense(IteratorBlocks([x[:3], x[3:]]), np.arange(7) * 10)
    for part in row_parts(stream, 2):
        np.testing.assert_array_equal(part.rows, part.values[:, 0] / 2 * 10)


@pytest.mark.parametrize(
    ("given_dtype", "wanted"),
    [
        ("f2", "f4"),
        ("f4", "f4"),
        (">f4", "f4"),
        ("f8", "f8"),
        (">f8", "f8"),
        ("g", "f8"),
        ("i1", "f8"),
        ("u8", "f8"),
        ("?", "f8"),
    ],
)
def test_working_precision(given_dtype, wanted):
    assert floating(given_dtype) == np.dtype(wanted)
    assert Dense(np.zeros((2, 2), given_dtype)).dtype == np.dtype(wanted)


@pytest.mark.parametrize("kind", [Observed, Counts])
@pytest.mark.parametrize(
    ("indptr", "indices"),
    [
        ([0, 1, 2], [0, 5]),  # beyond the last column
        ([0, 1, 2], [-1, 0]),  # before the first
        ([0, 2, 1], [0, 1]),  # rows that run backwards
        ([1, 1, 2], [0, 1]),  # does not start at 0
        ([0, 1, 3], [0, 1]),  # ends beyond the entries
        ([], [0, 1]),
    ],
)
def test_an_index_that_a_kernel_would_follow_out_of_bounds_is_refused(kind, indptr, indices):
    with pytest.raises(InputError):
        kind(np.array(indptr, np.int64), np.array(indices, np.int64), np.ones(2), 2)


def test_a_broken_scipy_matrix_is_refused_and_left_alone():
    m = sparse.csr_matrix(np.eye(3))
    m.indices[0] = 77
    with pytest.raises(InputError, match="77"):
        Counts.from_scipy(m)
    dup = sparse.csr_matrix(
        (np.array([1.0, 2.0, 5.0]), np.array([0, 0, 1]), np.array([0, 2, 3])), shape=(2, 2)
    )
    np.testing.assert_array_equal(Counts.from_scipy(dup).to_scipy().toarray(), [[3, 0], [0, 5]])
    assert dup.nnz == 3, "the caller's matrix was changed"


def test_labels_must_fit():
    with pytest.raises(InputError, match="one for each of the columns"):
        Dense(np.zeros((2, 3)), columns=np.array(["a", "b"]))
    with pytest.raises(InputError, match="one for each of the rows"):
        Counts.from_scipy(sparse.eye(3), rows=np.array(["a"]))
    with pytest.raises(InputError, match="2D"):
        Dense(np.zeros(3))


def test_matrices_are_frozen():
    with pytest.raises(AttributeError):
        Dense(np.zeros((1, 1))).values = None
