"""ridge_rows on threads: padded factors, ranges of rows balanced by entries, rare rows apart. See ``ridge`` for the mathematics."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from eckart.engines.cpu.entries.sparse import balanced
from eckart.engines.cpu.registers.prefetch import aligned_zeros
from eckart.engines.cpu.registers.tiles import tile_size
from eckart.engines.protocol import RidgeRule, RowSolution
from eckart.matrix import Observed
from eckart.scheduler import run_lanes

CHUNK_BYTES = 2**14
RANGES = 128
SHARE = 0.6
"""Rows with at most this share of k entries are solved in the space of their entries."""
USUAL, SHORT, RARE, LONG = 0, 1, 2, 3
CG_BYTES = 2**19
"""Room for gathered entries in conjugate gradients: rows that fit are gathered once."""


def ranges(entries: int) -> int:
    """Into how many ranges the rows are cut: enough for balance, few enough that handing them out costs nothing."""
    return int(np.clip(entries // 2**16, 8, RANGES))


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
    cg_steps: int = 0,
    threads: int = 1,
) -> RowSolution:
    """The codes (and biases) of all rows of x given the column factors ``right``."""
    from eckart.engines.cpu.ridge.cholesky import ridge_range

    dtype = np.dtype(right.dtype)
    k, size = right.shape[1], tile_size(dtype)
    turn, spread = _diagonal(base, k) if base is not None and noise is None and not rule.nonnegative else (None, None)
    v = padded(right if turn is None else right @ turn.astype(dtype), dtype)
    rows, width = x.shape[0], v.shape[1]
    counts = np.diff(x.indptr)
    ridge, bias_ridge = rule.ridges(counts)
    left, bias = aligned_zeros((rows, width), dtype), np.zeros(rows if rule.bias else 0, dtype)
    if start is not None:
        left[:, :k] = start if turn is None else start @ turn.astype(dtype)
    value = np.zeros(rows)
    data = (
        x.indptr, x.indices, np.asarray(x.data, dtype), _given(weights, (0,), dtype), v,
        np.zeros(x.n_columns, dtype) if offset is None else np.asarray(offset, dtype),
        dtype.type(rule.alpha), dtype.type(rule.shift),
    )  # fmt: skip
    matrix = aligned_zeros((width, width), dtype)
    if spread is not None:
        matrix[np.arange(k), np.arange(k)] = spread
    elif base is not None:
        matrix[:k, :k] = base
    penalties = ridge.astype(dtype), bias_ridge.astype(dtype)
    level = 4 * float(np.finfo(dtype).eps)
    apart = noise is None and prior is None and not rule.nonnegative and (base is None or spread is not None)
    route = _routes(counts, k, ridge, bias_ridge if rule.bias else ridge, spread, apart, rule.nonnegative)
    if cg_steps and apart and not rule.bias:
        route[route == USUAL] = LONG
    first, second = (
        _wide(prior if turn is None or prior is None else prior @ turn, width, dtype),
        _wide(noise, width, dtype),
    )

    def usual(_: Any, part: tuple[int, int], scratch: dict) -> None:
        chunk, gram = _scratch(scratch, width, dtype)
        ridge_range(
            *data,
            matrix,
            *penalties,
            first,
            second,
            k,
            size,
            level,
            route == USUAL,
            *part,
            chunk,
            gram,
            left,
            bias,
            value,
        )

    if (route == USUAL).any():
        parts = balanced(np.concatenate([[0], np.cumsum(np.where(route == USUAL, counts, 0))]), ranges(x.nnz))
        run_lanes(parts, list(range(len(parts))), usual, threads)
    if (route == LONG).any():
        _conjugate(
            x,
            data,
            matrix if base is not None else matrix[:0],
            penalties[0],
            cg_steps,
            route == LONG,
            left,
            value,
            threads,
        )
    short = np.flatnonzero(route == SHORT)
    if len(short):
        _dual(short, int(counts[short].max()), data, matrix, penalties, k, level, left, bias, value, threads)
    rare = np.flatnonzero((route == RARE) | np.isnan(value))
    if len(rare):
        _rare(rare, data, (matrix, *penalties), rule.nonnegative, left, bias, value, threads)
    out = left[:, :k] if turn is None else left[:, :k] @ turn.T.astype(dtype)
    return RowSolution(out, bias if rule.bias else None, float(value.sum()))


def _dual(
    rows: np.ndarray,
    longest: int,
    data: Any,
    matrix: np.ndarray,
    penalties: Any,
    k: int,
    level: float,
    left: Any,
    bias: Any,
    value: Any,
    threads: int,
) -> None:
    """Rows with few entries, in the space of their entries; the common matrix is diagonal."""
    from eckart.engines.cpu.ridge.dual import dual_range

    width, dtype = left.shape[1], left.dtype
    size = tile_size(dtype)
    room = -(-max(1, longest) // size) * size
    diagonal = np.ascontiguousarray(matrix.diagonal())
    diagonal[k:] = 1.0

    def solve(_: Any, part: tuple[int, int], scratch: dict) -> None:
        chunk, gram = _scratch(scratch, width, dtype, room)
        dual_range(*data, diagonal, *penalties, size, level, rows, *part, chunk, gram, left, bias, value)

    run_lanes(*_even(len(rows)), solve, threads)


def _conjugate(
    x: Observed,
    data: Any,
    base: np.ndarray,
    ridge: np.ndarray,
    steps: int,
    wanted: np.ndarray,
    left: Any,
    value: Any,
    threads: int,
) -> None:
    """The wanted rows by conjugate gradients from the codes in ``left``."""
    from eckart.engines.cpu.ridge.cg import cg_range

    width, dtype = left.shape[1], left.dtype

    def solve(_: Any, part: tuple[int, int], scratch: dict) -> None:
        if "cg" not in scratch:
            scratch["cg"] = aligned_zeros((max(64, CG_BYTES // (width * dtype.itemsize)) + 4, width), dtype)
        cg_range(*data, base, ridge, steps, wanted, *part, scratch["cg"], left, value)

    parts = balanced(x.indptr, ranges(x.nnz))
    run_lanes(parts, list(range(len(parts))), solve, threads)


def _routes(
    counts: np.ndarray, k: int, ridge: np.ndarray, bias_ridge: np.ndarray, spread: Any, apart: bool, nonnegative: bool
) -> np.ndarray:
    """How each row is solved: by its k x k matrix, in the space of its few entries, or with the care of ``ridge_rare``."""
    route = np.full(len(counts), USUAL, np.int8)
    if nonnegative:
        route[:] = RARE
    elif apart:
        bare = (ridge <= 0) & (True if spread is None else bool((spread <= 0).any()))
        route[~bare & (bias_ridge > 0) & (counts <= SHARE * k)] = SHORT
        route[bare & (counts <= 2 * k)] = RARE
    return route


def _diagonal(base: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvectors and eigenvalues (>= 0) of the common matrix: in their basis it is diagonal for every row."""
    values, vectors = np.linalg.eigh(base[:k, :k])
    return vectors, np.maximum(values, 0.0)


def _rare(
    rows: np.ndarray, data: Any, tail: Any, nonnegative: bool, left: Any, bias: Any, value: Any, threads: int
) -> None:
    """Rows by ``ridge_rare``; minimum-norm solutions in double precision, since small eigenvalues decide them."""
    from eckart.engines.cpu.ridge.rare import rare_range

    width, dtype = left.shape[1], left.dtype
    if not nonnegative and dtype != np.float64:
        dtype = np.dtype(np.float64)
        data = tuple(a.astype(dtype) if isinstance(a, np.ndarray) and a.dtype.kind == "f" else a for a in data)
        tail = tuple(a.astype(dtype) for a in tail)
        fine, fine_bias = np.zeros(left.shape), np.zeros(bias.shape)
        _solve_rare(rare_range, rows, data, tail, nonnegative, width, dtype, fine, fine_bias, value, threads)
        left[rows] = fine[rows]
        if len(bias):
            bias[rows] = fine_bias[rows]
        return
    _solve_rare(rare_range, rows, data, tail, nonnegative, width, dtype, left, bias, value, threads)


def _solve_rare(
    kernel: Any,
    rows: Any,
    data: Any,
    tail: Any,
    nonnegative: bool,
    width: int,
    dtype: Any,
    left: Any,
    bias: Any,
    value: Any,
    threads: int,
) -> None:
    level = 1e-11

    def solve(_: Any, part: tuple[int, int], scratch: dict) -> None:
        chunk, gram = _scratch(scratch, width, dtype)
        kernel(*data, *tail, tile_size(dtype), nonnegative, level, rows, *part, chunk, gram, left, bias, value)

    run_lanes(*_even(len(rows)), solve, threads)


def _even(count: int) -> tuple[list[tuple[int, int]], list[int]]:
    """Ranges of about equal length, and a lane for each."""
    cuts = np.linspace(0, count, min(RANGES, count) + 1).astype(int)
    parts = [(int(a), int(b)) for a, b in itertools.pairwise(cuts)]
    return parts, list(range(len(parts)))


def _given(array: np.ndarray | None, empty: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    return np.empty(empty, dtype) if array is None else np.ascontiguousarray(array, dtype)


def _wide(array: np.ndarray | None, width: int, dtype: np.dtype) -> np.ndarray:
    return np.empty((0, width), dtype) if array is None else padded(array, dtype)


def _scratch(scratch: dict, width: int, dtype: np.dtype, room: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Buffers of this thread: a chunk of gathered rows and a Gram matrix; with ``room`` for so many entries, the matrix is flat."""
    key = ("ridge", width, dtype, room)
    if key not in scratch:
        entries = room or int(np.clip(CHUNK_BYTES // (width * dtype.itemsize), 16, 128))
        gram = aligned_zeros((1, room * room), dtype)[0] if room else aligned_zeros((width, width), dtype)
        scratch[key] = aligned_zeros((entries, width), dtype), gram
    return scratch[key]


def bias_rows(x: Observed, rule: RidgeRule, offset: np.ndarray, weights: np.ndarray | None, threads: int) -> np.ndarray:
    """b_i = sum_j w (a_ij - offset_j) / (sum_j w + bias ridge of row i): the biases alone, without factors."""
    from eckart.engines.cpu.ridge.cholesky import bias_range

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
    parts = balanced(x.indptr, ranges(x.nnz))
    run_lanes(parts, list(range(len(parts))), lambda _, part, scratch: bias_range(*data, *part, out), threads)
    return out


def dots(x: Observed, left: np.ndarray, right: np.ndarray, threads: int) -> np.ndarray:
    """(U V^T) at the stored entries, in row order."""
    from eckart.engines.cpu.entries.sampled import _dots

    out = np.empty(x.nnz, right.dtype)
    u, v = np.ascontiguousarray(left, right.dtype), np.ascontiguousarray(right)
    parts = balanced(x.indptr, ranges(x.nnz))
    run_lanes(parts, list(range(len(parts))), lambda _, p, scratch: _dots(x.indptr, x.indices, u, v, *p, out), threads)
    return out


def offset_times(x: Observed, v: np.ndarray, mean: float, own: Any, other: Any, threads: int) -> np.ndarray:
    """(a_ij - mean - b_i - c_j) at the stored entries, times V."""
    from eckart.engines.cpu.ridge.cholesky import offset_times_range

    v = padded(v, np.dtype(x.dtype))
    out = np.empty((x.shape[0], v.shape[1]), x.dtype)
    b = np.zeros(x.shape[0], x.dtype) if own is None else np.asarray(own, x.dtype)
    c = np.full(x.n_columns, mean, x.dtype) if other is None else np.asarray(other, x.dtype) + x.dtype.type(mean)
    parts = balanced(x.indptr, ranges(x.nnz))
    data = x.indptr, x.indices, x.data, b, c, v
    run_lanes(parts, list(range(len(parts))), lambda _, p, scratch: offset_times_range(*data, *p, out), threads)
    return out
