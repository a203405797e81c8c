"""ridge_rows on threads: padded factors, ranges of rows balanced by their work, rare rows apart.
See ``cholesky`` for the mathematics."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from eckart.compiling import OUTSIDE
from eckart.decompositions import eigh
from eckart.engines.cpu import buffers
from eckart.engines.cpu.buffers import aligned_zeros
from eckart.engines.cpu.dense.thin import by_rows, thin
from eckart.engines.cpu.dense.thin import cuts_of as thin_cuts
from eckart.engines.cpu.entries.entry import (
    ALL,
    entries_of,
    known_room,
    looking,
    next_rows,
)
from eckart.engines.cpu.entries.sparse import cuts_of
from eckart.engines.cpu.native.pool import address_of, call_kernel, run_parts
from eckart.engines.cpu.registers.vectors import tile_size
from eckart.engines.cpu.ridge.kernels import (
    Form,
    RidgePenalties,
    RidgeRows,
    SolvedRows,
    cg_range,
    cholesky_range,
    dual_range,
    rare_range,
)
from eckart.engines.host import Host
from eckart.engines.protocol import RidgeRule, RowSolution

CHUNK_BYTES = 2**14
"""Gathered entries beside a Gram matrix of k = 64: half of a first-level cache each."""
LEAST_RANGE, RANGES = 2**14, 256
"""Entries of a range (0.2 ms and more of one core, so that handing it out costs little), and ranges
at the most: four for each of 64 threads."""
SHARE = 0.6
"""Rows with at most this share of k entries are solved in the space of their entries."""
WORTH = 1e7
"""Multiplications that this must spare in a sweep, about 3 ms: over the sweeps of a fit they then
last as long as its kernel takes to compile."""
USUAL, SHORT, RARE, LONG = 0, 1, 2, 3
CG_BYTES = 2**19
"""Room for gathered entries in conjugate gradients: rows that fit are gathered once."""
MOST_GRAM = 128
"""Up to this k, rows that do not fit are solved by their k x k matrix: their factors then come from
memory once, not in every step. Measured with 20,000 entries a row: 150 against 310 ns an entry at k
= 64 and 5 M factors, 125 against 140 at 30,000; 350 against 490 to 590 at k = 128."""


def ranges(entries: int) -> int:
    """Into how many ranges the rows are cut."""
    return int(np.clip(entries // LEAST_RANGE, 1, RANGES))


def padded(
    factor: np.ndarray, dtype: np.dtype, turn: np.ndarray | None = None, threads: int = 1
) -> np.ndarray:
    """The factor (times ``turn``) with zero columns up to whole tiles, rows starting on cache
    lines; itself where it is so already."""
    size, k = tile_size(dtype), factor.shape[1]
    width = -(-max(1, k) // size) * size
    if turn is None:
        return buffers.padded(factor, width, dtype)
    out = aligned_zeros((len(factor), width), dtype)
    return _turned(factor, turn, out, threads)


def _turned(factor: np.ndarray, turn: np.ndarray, out: np.ndarray, threads: int) -> np.ndarray:
    """``out`` with factor times ``turn`` in its first columns, by ranges of rows."""
    k, dtype = factor.shape[1], out.dtype
    own, here = by_rows(factor, dtype), out[:, :k]
    thin(thin_cuts(len(own), k * k), here, left=own, s=by_rows(turn, dtype), threads=threads)
    return out


def ridges(x: Host, rule: RidgeRule) -> tuple[np.ndarray, np.ndarray]:
    """l_i and m_i of all rows, made once for a matrix and a rule."""
    key = f"ridges of {rule}"
    if key not in x.kept:
        x.kept[key] = rule.ridges(x.counts)
    return x.kept[key]


def ridge_rows(
    x: Host,
    right: np.ndarray,
    rule: RidgeRule,
    *,
    base: np.ndarray | None = None,
    prior: np.ndarray | None = None,
    noise: np.ndarray | None = None,
    start: np.ndarray | None = None,
    cg_steps: int = 0,
    turned: np.ndarray | None = None,
    threads: int = 1,
    **given: Any,
) -> RowSolution:
    """The codes (and biases) of all rows of x given the column factors ``right``; ``given`` is what
    ``entries_of`` takes.

    With ``turned`` the factors come times this matrix already, and ``base`` is diagonal (see
    ``turned_once``); start and codes are as without.
    """
    dtype = np.dtype(right.dtype)
    k, size = right.shape[1], tile_size(dtype)
    turn, spread = (
        _diagonal(base, k) if turned is None and turns(base, noise, rule) else (None, None)
    )
    v = padded(right, dtype, turn, threads)
    if turned is not None and base is not None:
        turn, spread = turned, np.diagonal(base)
    rows, width = x.counts.shape[0], v.shape[1]
    ridge, bias_ridge = ridges(x, rule)
    out = SolvedRows(
        aligned_zeros((rows, width), dtype),
        np.zeros(rows if rule.bias else 0, dtype),
        np.zeros(rows),
    )
    if start is not None:
        if turn is None:
            out.left[:, :k] = start
        else:
            _turned(start, turn, out.left, threads)
    e = entries_of(x, dtype, rule, **given)
    matrix = aligned_zeros((width, width), dtype)
    if spread is not None:
        matrix[np.arange(k), np.arange(k)] = spread
    elif base is not None:
        matrix[:k, :k] = base
    h = prior if prior is None or turn is None else prior @ turn
    penalties = RidgePenalties(
        matrix,
        ridge.astype(dtype),
        bias_ridge.astype(dtype),
        _wide(h, width, dtype, threads),
        _wide(noise, width, dtype, threads),
    )
    apart = (
        noise is None
        and prior is None
        and not rule.nonnegative
        and (base is None or spread is not None)
    )
    bare = ridge <= 0 if spread is None or (spread <= 0).any() else np.zeros(rows, bool)
    route = _routes(x.counts, k, bare, bias_ridge if rule.bias else ridge, apart, rule.nonnegative)
    if cg_steps and apart and not rule.bias:
        once = (x.counts <= cg_room(width, dtype)) | (k > MOST_GRAM)
        route[(route == USUAL) & once] = LONG
    form = Form(k, size, 4 * float(np.finfo(dtype).eps), cg_steps)
    work = x.counts + 0.5 * k  # a row's own system costs about as much as k / 2 entries
    for kind, kernel, cost in (
        (USUAL, cholesky_range, work),
        (SHORT, dual_range, x.counts**2 + 1),
        (LONG, cg_range, work),
    ):
        chosen = np.flatnonzero(route == kind)
        room = int(x.counts[chosen].max(initial=1)) if kind == SHORT else -1 if kind == LONG else 0
        own = penalties if kind != LONG or base is not None else penalties._replace(base=matrix[:0])
        _solve(kernel, x, (e, v, own, form), chosen, cost, room, out, threads)
    rare = np.flatnonzero((route == RARE) | np.isnan(out.value))
    if len(rare):
        _rare(
            rare,
            x,
            (e, v, penalties, form._replace(level=1e-11, steps=int(rule.nonnegative))),
            work,
            out,
            threads,
        )
    left = out.left[:, :k]
    if turn is not None:
        left = _turned(left, turn.T, aligned_zeros((rows, width), dtype), threads)[:, :k]
    return RowSolution(left, out.bias if rule.bias else None, float(out.value.sum()))


@njit(**OUTSIDE)
def solve_part(part, who, cuts, look, kernel, e, known, given, chosen, room, out):
    """A range of the chosen rows: what is known of their entries, and then the kernel, some rows at
    a time. ``look`` and ``kernel`` are addresses."""
    rows, right, penalties, form = given
    chunk, gram = room
    first, last = cuts[part], cuts[part + 1]
    while first < last:
        end = next_rows(e.indptr, chosen, first, last)
        call_kernel(look, (e, chosen, first, end, known[who]))
        call_kernel(
            kernel,
            (
                rows,
                known[who],
                right,
                penalties,
                form,
                chosen,
                first,
                end,
                chunk[who],
                gram[who],
                out,
            ),
        )
        first = end


def _solve(
    kernel: Any,
    x: Host,
    given: Any,
    chosen: np.ndarray,
    cost: np.ndarray,
    room: int,
    out: SolvedRows,
    threads: int,
) -> None:
    """The chosen rows by one kernel, in ranges of about equal cost."""
    if not len(chosen):
        return
    e, *rest = given
    width, dtype, rows = out.left.shape[1], rest[0].dtype, RidgeRows(e.indptr, e.indices)
    cuts = cuts_of(
        np.concatenate([[0], np.cumsum(cost[chosen])]),
        min(len(chosen), ranges(int(cost[chosen].sum()))),
    )
    threads = min(threads, len(cuts) - 1)
    known, (chunk, gram) = (
        known_room(x, e.data.dtype, threads),
        row_scratch(width, dtype, room, threads),
    )
    code = address_of(kernel, (rows, known[0], *rest, chosen, 0, 0, chunk[0], gram[0], out))
    arguments = (
        cuts,
        looking(e, chosen, known),
        code,
        e,
        known,
        (rows, *rest),
        chosen,
        (chunk, gram),
        out,
    )
    run_parts(solve_part, len(cuts) - 1, arguments, threads)


def _routes(
    counts: np.ndarray,
    k: int,
    bare: np.ndarray,
    bias_ridge: np.ndarray,
    apart: bool,
    nonnegative: bool,
) -> np.ndarray:
    """How each row is solved: by its k x k matrix, in the space of its few entries, or with the
    care of ``rare``."""
    route = np.full(len(counts), RARE if nonnegative else USUAL, np.int8)
    if apart:
        short = ~bare & (bias_ridge > 0) & (counts <= SHARE * k)
        if np.count_nonzero(short) * k**3 / 6 >= WORTH:
            route[short] = SHORT
        route[bare & (counts <= 2 * k)] = RARE
    return route


def turns(base: np.ndarray | None, noise: np.ndarray | None, rule: RidgeRule) -> bool:
    """Whether rows are solved in the basis in which their common matrix is diagonal: there, few
    entries make a small system. A draw keeps its noise's basis, a sign that of its codes."""
    return base is not None and noise is None and not rule.nonnegative


def turned_once(right: np.ndarray, base: np.ndarray, threads: int) -> dict[str, np.ndarray]:
    """Arguments of ``ridge_rows`` for many calls with the same factors: these in the basis of the
    common matrix."""
    turn, spread = _diagonal(base, right.shape[1])
    return {
        "right": padded(right, np.dtype(right.dtype), turn, threads)[:, : right.shape[1]],
        "base": np.diag(spread),
        "turned": turn,
    }


def _diagonal(base: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvectors and eigenvalues (>= 0) of the common matrix: in their basis it is diagonal for
    every row."""
    values, vectors = eigh(base[:k, :k])
    return vectors, np.maximum(values, 0.0)


def _rare(
    rows: np.ndarray, x: Host, given: Any, cost: np.ndarray, out: SolvedRows, threads: int
) -> None:
    """Rows by ``rare``; minimum-norm solutions in double precision, since small eigenvalues decide
    them."""
    e, v, penalties, form = given
    if form.steps or v.dtype == np.float64:
        _solve(rare_range, x, given, rows, cost, 0, out, threads)
        return
    form = form._replace(size=tile_size(np.dtype(np.float64)))
    given = type(e)(*map(_double, e)), _double(v), RidgePenalties(*map(_double, penalties)), form
    fine = SolvedRows(*map(_double, out[:2]), out.value)
    _solve(rare_range, x, given, rows, cost, 0, fine, threads)
    out.left[rows] = fine.left[rows]
    if len(out.bias):
        out.bias[rows] = fine.bias[rows]


def _double(a: Any) -> Any:
    return a.astype(np.float64) if a.dtype.kind == "f" else a


def _wide(array: np.ndarray | None, width: int, dtype: np.dtype, threads: int) -> np.ndarray:
    return (
        np.empty((0, width), dtype)
        if array is None
        else padded(np.atleast_2d(array), dtype, None, threads)
    )


def cg_room(width: int, dtype: np.dtype) -> int:
    """Entries of a row that conjugate gradients gather once."""
    return max(64, CG_BYTES // (width * dtype.itemsize))


def row_scratch(
    width: int, dtype: np.dtype, room: int = 0, threads: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Buffers of each thread: a chunk of gathered rows and a Gram matrix; with ``room`` for so many
    entries the matrix is flat, and with -1 there is none but the chunk is that of conjugate
    gradients."""
    size = tile_size(dtype)
    whole = -(-room // size) * size
    entries = whole if room > 0 else int(np.clip(CHUNK_BYTES // (width * dtype.itemsize), 16, 128))
    if room < 0:
        entries = cg_room(width, dtype) + 4
    chunk = aligned_zeros((threads * entries, width), dtype).reshape(threads, entries, width)
    if room > 0:
        return chunk, aligned_zeros((threads, whole * whole), dtype)
    columns = width if room == 0 else 0
    return chunk, aligned_zeros((threads * width, columns), dtype).reshape(threads, width, columns)


@njit(**OUTSIDE)
def bias_part(part, who, cuts, look, chosen, e, known, ridge, out):
    """b_i of a range of rows: sums in float64, in the order of the entries."""
    indptr, pull, weight = e.indptr, known[who, 2], known[who, 0]
    first, last = cuts[part], cuts[part + 1]
    while first < last:
        end = next_rows(indptr, chosen, first, last)
        call_kernel(look, (e, chosen, first, end, known[who]))
        away = indptr[first]
        for i in range(first, end):
            total, below = 0.0, ridge[i]
            for p in range(indptr[i] - away, indptr[i + 1] - away):
                total += pull[p]
                below += weight[p]
            if indptr[i + 1] > indptr[i] and below > 0:
                out[i] = total / below
        first = end


def bias_rows(
    x: Host,
    rule: RidgeRule,
    offset: np.ndarray | None,
    weights: np.ndarray | None = None,
    *,
    threads: int,
    **given: Any,
) -> np.ndarray:
    """b_i = sum_j w (a_ij - offset_j) / (sum_j w + bias ridge of row i): the biases alone, without
    factors."""
    e = entries_of(x, x.dtype, None, offset=offset, weights=weights, **given)
    out, (_, ridge) = np.zeros(x.counts.shape[0], x.dtype), ridges(x, rule)
    cuts, known = cuts_of(e.indptr, ranges(x.nnz)), known_room(x, e.data.dtype, threads)
    arguments = cuts, looking(e, ALL, known), ALL, e, known, ridge, out
    run_parts(bias_part, len(cuts) - 1, arguments, threads)
    return out
