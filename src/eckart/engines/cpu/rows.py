"""ridge_rows on threads: padded factors, ranges of rows balanced by entries, rare rows apart. See ``ridge`` for the mathematics."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from eckart.engines.cpu.prefetch import aligned_zeros
from eckart.engines.cpu.registers import tile_size
from eckart.engines.cpu.sparse import balanced
from eckart.engines.pool import run_lanes
from eckart.engines.protocol import RidgeRule, RowSolution
from eckart.matrix import Observed

CHUNK_BYTES = 2**14
RANGES = 128


def padded(factor: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The factor with zero columns up to whole tiles, rows starting on cache lines; itself where it is so already."""
    size = tile_size(dtype)
    width = -(-max(1, factor.shape[1]) // size) * size
    if factor.shape[1] == width and factor.dtype == dtype and factor.flags.c_contiguous:
        return factor
    out = aligned_zeros((len(factor), width), dtype)
    out[:, : factor.shape[1]] = factor
    return out


def ridge_rows(
    x: Observed,
    right: np.ndarray,
    rule: RidgeRule,
    *,
    offset: np.ndarray | None = None,
    weights: np.ndarray | None = None,
    base: np.ndarray | None = None,
    prior: np.ndarray | None = None,
    noise: np.ndarray | None = None,
    start: np.ndarray | None = None,
    threads: int = 1,
) -> RowSolution:
    """The codes (and biases) of all rows of x given the column factors ``right``."""
    from eckart.engines.cpu.ridge import ridge_range

    dtype = np.dtype(right.dtype)
    k, v = right.shape[1], padded(right, dtype)
    rows, width, size = x.shape[0], v.shape[1], tile_size(dtype)
    counts = np.diff(x.indptr)
    ridge, bias_ridge = rule.ridges(counts)
    left, bias = aligned_zeros((rows, width), dtype), np.zeros(rows if rule.bias else 0, dtype)
    if start is not None:
        left[:, :k] = start
    value = np.zeros(rows)
    data = (
        x.indptr, x.indices, np.asarray(x.data, dtype), _given(weights, (0,), dtype), v,
        np.zeros(x.n_columns, dtype) if offset is None else np.asarray(offset, dtype),
        dtype.type(rule.alpha), dtype.type(rule.shift),
    )  # fmt: skip
    matrix = aligned_zeros((width, width), dtype)
    if base is not None:
        matrix[: len(base), : len(base)] = base
    tail = (matrix, ridge.astype(dtype), bias_ridge.astype(dtype))
    alone = base is None and prior is None
    short = np.arange(rows) if rule.nonnegative else _deficient(counts, k, ridge, alone)
    usual = _wide(prior, width, dtype), _wide(noise, width, dtype)
    level = 4 * float(np.finfo(dtype).eps)

    def solve(_: Any, part: tuple[int, int], scratch: dict) -> None:
        chunk, gram = _scratch(scratch, width, dtype)
        ridge_range(*data, *tail, *usual, k, size, level, *part, chunk, gram, left, bias, value)

    if len(short) < rows:
        parts = balanced(x.indptr, RANGES)
        run_lanes(parts, list(range(len(parts))), solve, threads)
    rare = np.union1d(short, np.flatnonzero(np.isnan(value)))
    if len(rare):
        _rare(rare, data, tail, rule.nonnegative, size, left, bias, value, threads)
    return RowSolution(left[:, :k], bias if rule.bias else None, float(value.sum()))


def _rare(
    rows: np.ndarray, data: Any, tail: Any, nonnegative: bool, size: int, left: Any, bias: Any, value: Any, threads: int
) -> None:
    from eckart.engines.cpu.ridge_rare import rare_range

    width, dtype = left.shape[1], left.dtype
    level = 1e-5 if dtype == np.float32 else 1e-11

    def solve(_: Any, part: tuple[int, int], scratch: dict) -> None:
        chunk, gram = _scratch(scratch, width, dtype)
        rare_range(*data, *tail, size, nonnegative, level, rows, *part, chunk, gram, left, bias, value)

    cuts = np.linspace(0, len(rows), min(RANGES, len(rows)) + 1).astype(int)
    parts = [(int(a), int(b)) for a, b in itertools.pairwise(cuts)]
    run_lanes(parts, list(range(len(parts))), solve, threads)


def _deficient(counts: np.ndarray, k: int, ridge: np.ndarray, alone: bool) -> np.ndarray:
    """Rows without ridge that observe fewer columns than there are unknowns."""
    if not alone or ridge.min(initial=1.0) > 0:
        return np.empty(0, np.int64)
    return np.flatnonzero((ridge <= 0) & (counts <= 2 * k))


def _given(array: np.ndarray | None, empty: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    return np.empty(empty, dtype) if array is None else np.ascontiguousarray(array, dtype)


def _wide(array: np.ndarray | None, width: int, dtype: np.dtype) -> np.ndarray:
    return np.empty((0, width), dtype) if array is None else padded(array, dtype)


def _scratch(scratch: dict, width: int, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Buffers of this thread: a chunk of gathered rows and a Gram matrix."""
    key = ("ridge", width, dtype)
    if key not in scratch:
        entries = int(np.clip(CHUNK_BYTES // (width * dtype.itemsize), 16, 128))
        scratch[key] = aligned_zeros((entries, width), dtype), aligned_zeros((width, width), dtype)
    return scratch[key]


def bias_rows(x: Observed, rule: RidgeRule, offset: np.ndarray, weights: np.ndarray | None, threads: int) -> np.ndarray:
    """b_i = sum_j w (a_ij - offset_j) / (sum_j w + bias ridge of row i): the biases alone, without factors."""
    from eckart.engines.cpu.ridge import bias_range

    dtype = x.dtype
    _, ridge = rule.ridges(np.diff(x.indptr))
    out = np.zeros(x.shape[0], dtype)
    data = (
        x.indptr,
        x.indices,
        np.asarray(x.data, dtype),
        _given(weights, (0,), dtype),
        np.asarray(offset, dtype),
        ridge,
    )
    parts = balanced(x.indptr, RANGES)
    run_lanes(parts, list(range(len(parts))), lambda _, part, scratch: bias_range(*data, *part, out), threads)
    return out


def dots(x: Observed, left: np.ndarray, right: np.ndarray, threads: int) -> np.ndarray:
    """(U V^T) at the stored entries, in row order."""
    from eckart.engines.cpu.sampled import _dots

    out = np.empty(x.nnz, right.dtype)
    u, v = np.ascontiguousarray(left, right.dtype), np.ascontiguousarray(right)
    parts = balanced(x.indptr, RANGES)
    run_lanes(parts, list(range(len(parts))), lambda _, p, scratch: _dots(x.indptr, x.indices, u, v, *p, out), threads)
    return out
