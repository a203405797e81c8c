"""Triples (i, j, a_ij) to compressed rows, in linear time: sort by row and column, merge what
stands at one place, transpose; and what such rows must be.

Entries ``data[indptr[i]:indptr[i+1]]`` stand in row i at ascending columns ``indices[...]``.
Pointers count entries in 64 bits; indices take 32 bits while they can.
"""

from __future__ import annotations

import numpy as np

from eckart.errors import InputError, invalid
from eckart.parameters import is_int

LEAST_COMPILED = 2**20
"""From this many entries on, the counting sorts of ``eckart.index.counting`` pay for being
loaded."""

RULES = ("error", "last", "mean", "sum")
"""What may be done with several entries at one place."""


def index_dtype(size: int) -> np.dtype:
    """The type of an index below ``size``: int32 below 2^31, int64 from there on.

    >>> index_dtype(2**31 - 1).name, index_dtype(2**31).name
    ('int32', 'int64')
    """
    return np.dtype(np.int32 if size < 2**31 else np.int64)


def compress(
    rows: np.ndarray, columns: np.ndarray, values: np.ndarray, shape: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """indptr, indices and data of the triples; entries at one place stay side by side, in the order
    they came.

    >>> compress(np.array([1, 0, 1]), np.array([0, 1, 0]), np.array([5.0, 6.0, 7.0]), (2, 2))
    (array([0, 1, 3]), array([1, 0, 0], dtype=int32), array([6., 5., 7.]))
    """
    if len(values) >= LEAST_COMPILED:
        from eckart.index.counting import by_key, flip

        pointers, moved, data = by_key(columns, rows, values, shape[1])
        indptr = np.empty(shape[0] + 1, np.int64)
        indices, out = np.empty(len(data), index_dtype(shape[1])), np.empty_like(data)
        flip(pointers, moved, data, indptr, indices, out, 0)
        return indptr, indices, out
    order = np.lexsort((columns, rows))
    return (
        _pointers(rows, shape[0]),
        columns[order].astype(index_dtype(shape[1]), copy=False),
        values[order],
    )


def transpose(
    indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, n_columns: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compressed rows of A^T from those of A, each row of the result in ascending order.

    >>> transpose(np.array([0, 2, 3]), np.array([1, 0, 1]), np.array([5.0, 6.0, 7.0]), 2)
    (array([0, 1, 3]), array([0, 0, 1], dtype=int32), array([6., 5., 7.]))
    """
    rows = len(indptr) - 1
    kind = index_dtype(rows)
    if len(data) >= LEAST_COMPILED:
        from eckart.index.counting import flip

        out = np.empty(n_columns + 1, np.int64), np.empty(len(data), kind), np.empty_like(data)
        flip(indptr, indices, data, *out, 0)
        return out
    from scipy import sparse

    flipped = sparse.csr_array((data, indices, indptr), shape=(rows, n_columns)).tocsc()
    return (
        flipped.indptr.astype(np.int64, copy=False),
        flipped.indices.astype(kind, copy=False),
        flipped.data,
    )


def check_compressed(indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, n: int) -> None:
    """Refuse compressed rows that a kernel would follow out of bounds."""
    for name, array, kinds in (
        ("indptr", indptr, "iu"),
        ("indices", indices, "iu"),
        ("data", data, "fiub"),
    ):
        if getattr(array, "ndim", None) != 1 or array.dtype.kind not in kinds:
            raise invalid(
                name,
                array,
                f"an array of {'whole ' if kinds == 'iu' else ''}numbers of one "
                "dimension; build the matrix with eckart.read",
            )
    if not is_int(n) or n < 0:
        raise invalid("n_columns", n, "an int >= 0")
    check_pointers(indptr, indices, data)
    # one look for both ends: a negative number, read without its sign, is larger than any index
    ends = indices.view(f"u{indices.itemsize}") if indices.dtype.kind == "i" else indices
    if len(indices) and not (ends.max() < n and (ends is not indices or ends.min() >= 0)):
        raise InputError(
            f"column indices must be 0 to {n - 1} for {n} columns, got {indices.min()} to "
            f"{indices.max()}"
        )


def check_pointers(indptr: np.ndarray, indices: np.ndarray, data: np.ndarray) -> None:
    """The part of it that takes no look at every entry."""
    if (
        len(indptr) == 0
        or indptr[0] != 0
        or len(indices) != len(data)
        or indptr[-1] != len(data)
        or (np.diff(indptr) < 0).any()
    ):
        raise InputError(
            "indptr, indices and data do not belong together; build the matrix with eckart.read"
        )


def first_repeat(indptr: np.ndarray, indices: np.ndarray) -> tuple[int, int] | None:
    """Row and column of the first place that holds more than one entry, or None."""
    again = _again(indptr, indices)
    if not again.any():
        return None
    p = int(again.argmax())
    return int(np.searchsorted(indptr, p, side="right")) - 1, int(indices[p])


def merge(
    indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, rule: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One entry a place: the last that came, the mean or the sum (in float64, in the order they
    came).

    >>> merge(np.array([0, 3]), np.array([0, 0, 1]), np.array([1.0, 4.0, 9.0]), "mean")
    (array([0, 2]), array([0, 1]), array([2.5, 9. ]))
    """
    again = _again(indptr, indices)
    if not again.any():
        return indptr, indices, data
    starts = np.flatnonzero(~again)
    ends = np.append(starts[1:], len(data))
    if rule == "last":
        merged = data[ends - 1]
    else:
        with np.errstate(over="ignore"):
            merged = np.add.reduceat(data, starts, dtype=np.float64)
            if rule == "mean":
                merged /= ends - starts
            merged = merged.astype(data.dtype)
    return np.searchsorted(starts, indptr).astype(np.int64, copy=False), indices[starts], merged


def _again(indptr: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Whether an entry stands where the one before it stands."""
    again = np.zeros(len(indices), bool)
    np.equal(indices[1:], indices[:-1], out=again[1:])
    again[indptr[:-1][indptr[:-1] < len(indices)]] = False
    return again


def _pointers(keys: np.ndarray, size: int) -> np.ndarray:
    out = np.zeros(size + 1, np.int64)
    np.cumsum(np.bincount(keys, minlength=size), out=out[1:])
    return out
