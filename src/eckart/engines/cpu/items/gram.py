"""X^T X of sparse rows, dense or sparse, and products of sparse rows with weights between columns.
Kernels are serial, over ranges of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from eckart.compiling import OUTSIDE
from eckart.engines.cpu.entries.sparse import balanced
from eckart.engines.cpu.entries.top import _keep_best, _mask
from eckart.engines.host import Host
from eckart.engines.protocol.items import SparseRows
from eckart.scheduler import run_lanes

ROWS = 16
"""Rows of a tile of scores: of 40,000 columns in single precision it takes 2.5 MB, the share of a
thread in the last cache."""


@njit(**OUTSIDE)
def _gram_rows(t_indptr, t_indices, t_data, indptr, indices, data, first, last, out):
    """out[j] = sum over rows i with column j of x_ij x_i, for columns first..last."""
    for j in range(first, last):
        for k in range(out.shape[1]):
            out[j, k] = 0
        for p in range(t_indptr[j], t_indptr[j + 1]):
            i = t_indices[p]
            a = t_data[p]
            for q in range(indptr[i], indptr[i + 1]):
                out[j, indices[q]] += a * data[q]


@njit(**OUTSIDE, fastmath={"contract", "reassoc", "nsz"})
def _dense_products(indptr, indices, data, rows, first, last, weights, out):
    """out[q - first] = x_i W for the rows i = rows[q]."""
    m = weights.shape[1]
    for q in range(first, last):
        i = rows[q]
        for c in range(m):
            out[q - first, c] = 0
        for p in range(indptr[i], indptr[i + 1]):
            a = out.dtype.type(data[p])
            w = weights[indices[p]]
            for c in range(m):
                out[q - first, c] += a * w[c]


@njit(**OUTSIDE)
def _sparse_products(indptr, indices, data, rows, first, last, w_indptr, w_indices, w_data, out):
    for q in range(first, last):
        i = rows[q]
        for c in range(out.shape[1]):
            out[q - first, c] = 0
        for p in range(indptr[i], indptr[i + 1]):
            a = out.dtype.type(data[p])
            j = indices[p]
            for s in range(w_indptr[j], w_indptr[j + 1]):
                out[q - first, w_indices[s]] += a * w_data[s]


def column_gram(placed: Host, dtype: Any, threads: int) -> np.ndarray:
    """Dense G. Every row of it belongs to one piece of work."""
    x, t = placed.matrix, placed.T.matrix
    out = np.empty((x.n_columns, x.n_columns), dtype)
    values, t_values = x.data.astype(dtype, copy=False), t.data.astype(dtype, copy=False)

    def step(_: None, part: tuple[int, int], scratch: dict) -> None:
        _gram_rows(t.indptr, t.indices, t_values, x.indptr, x.indices, values, *part, out)

    run_lanes(balanced(t.indptr, 256), [None] * 64, step, threads)
    return out


def _fill(
    x: SparseRows, rows: np.ndarray, first: int, last: int, weights: Any, out: np.ndarray
) -> None:
    if isinstance(weights, SparseRows):
        _sparse_products(*x, rows, first, last, *weights, out)
    else:
        _dense_products(*x, rows, first, last, weights, out)


def best_products(
    x: SparseRows,
    rows: np.ndarray,
    weights: Any,
    columns: int,
    n: int,
    more: Any = None,
    allowed: Any = None,
    excluded: Any = None,
    *,
    threads: int,
) -> tuple[np.ndarray, np.ndarray]:
    """The n best columns of each row of X[rows] W + L R^T; a tile of scores never leaves the
    cache."""
    rows = np.asarray(rows, np.int64)
    dtype = (weights.data if isinstance(weights, SparseRows) else weights).dtype
    n = min(n, columns)
    where, best = np.full((len(rows), n), -1, np.int64), np.full((len(rows), n), -np.inf, dtype)
    right = None if more is None else np.ascontiguousarray(more[1].T, dtype)

    def step(_: None, first: int, scratch: dict) -> None:
        last = min(first + ROWS, len(rows))
        if "tile" not in scratch:
            scratch["tile"] = np.empty((ROWS, columns), dtype)
        tile = scratch["tile"][: last - first]
        _fill(x, rows, first, last, weights, tile)
        if right is not None:
            tile += more[0][first:last].astype(dtype, copy=False) @ right
        if allowed is not None:
            tile[:, ~allowed] = -np.inf
        if excluded is not None:
            indptr, indices, of = excluded
            _mask(indptr, indices, of, first, last, 0, tile, np.full(last - first, -1, np.int8))
        _keep_best(tile, 0, best[first:last], where[first:last])

    run_lanes(range(0, len(rows), ROWS), [None] * 64, step, threads)
    where[np.isneginf(best)] = -1
    return where, best
