"""ridge_rows: the normal equations of rows, assembled and solved in cache.

Row i sees the columns j of its stored entries with weight w and target y. Its code u (and, where
asked, its bias b) minimises

    1/2 sum_j w (y - b - u.v_j)^2 + 1/2 u^T P u - h_i.u + 1/2 l_i ||u||^2 + 1/2 m_i b^2,

so (sum_j w v_j v_j^T + P + l_i I) u = sum_j w (y - b) v_j + h_i. P is one matrix for all rows (the
Gram matrix of implicit feedback, a prior precision), h an optional right-hand side, and noise z
turns the solution into a draw: u + R^-1 z, R^T R being the matrix above.

Entries are gathered in chunks that stay in cache, scaled by sqrt(w), and the Gram matrix grows
strip by strip in registers (``registers``); the bias is eliminated (a rank-one downdate), the
matrix is factored by tiles, two triangular solves follow. The value of the objective at the
solution comes for free: 1/2 (sum w y^2 - u.r - b t). Factors are padded to whole tiles with zeros,
which stay zero.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from eckart.compiling import INSIDE, OUTSIDE
from eckart.engines.cpu.entries.entry import AHEAD, FAST
from eckart.engines.cpu.registers.prefetch import prefetch
from eckart.engines.cpu.registers.tiles import (
    add_rows,
    backward_tile,
    factor_tile,
    forward_tile,
    grow_gram,
    pack_row,
    solve_panel,
    take_gram,
)


class RidgeRows(NamedTuple):
    """Where the entries of each row stand, and their columns."""

    indptr: Any
    indices: Any


class RidgePenalties(NamedTuple):
    """P (k x k, or its diagonal), l_i, m_i, h (rows x k, one row for all, or none) and z (rows x k
    or none)."""

    base: Any
    ridge: Any
    bias_ridge: Any
    prior: Any
    noise: Any


class Form(NamedTuple):
    """Columns that are no padding, rows of a tile, the share of the largest diagonal entry under
    which a pivot counts as zero, and the steps of conjugate gradients or whether codes are
    non-negative, for the kernels that ask."""

    real: int
    size: int
    level: float
    steps: int


class SolvedRows(NamedTuple):
    """Where the results go: codes, biases (length 0: none) and the objective of each row."""

    left: Any
    bias: Any
    value: Any


@njit(**INSIDE, fastmath=FAST)
def cholesky(g, size):
    """Factor the upper triangle of g in place, R^T R = g; returns the smallest pivot (not positive:
    the factor is useless)."""
    n = g.shape[0]
    least = g[0, 0]
    for t in range(0, n, size):
        if t > 0:
            take_gram(g, t, t, t + size, g, size)
        least = min(least, factor_tile(g, t))
        for c in range(t + size, n, size):
            solve_panel(g, t, c)
    return least


@njit(**INSIDE, fastmath=FAST)
def assemble(indices, right, a, count, known, at, chunk, scaled, gram, rhs, side, size):
    """Gram matrix, right-hand side and (``side``) weighted sum of v of the row whose entries are
    a.. in ``indices`` and at.. in ``known`` (w, y and q).

    Returns sum q y, sum q and sum w in float64. ``scaled`` (2 rows, as long as the chunk) gets the
    factors of sqrt(w) v in ``side`` and in the right-hand side.
    """
    k = right.shape[1]
    line = 64 // right.itemsize
    square, total, weight = 0.0, 0.0, 0.0
    end = indices.shape[0] - 1
    done, last = 0, count
    while done < last:
        count = min(chunk.shape[0], last - done)
        b = at + done
        ws, ys, qs = known[0, b : b + count], known[1, b : b + count], known[2, b : b + count]
        for t in range(count):
            w, y, q = ws[t], ys[t], qs[t]
            root = np.sqrt(w)
            scaled[0, t] = root
            scaled[1, t] = q / root if root > 0 else 0
            square += q * y
            total += q
            weight += w
        for t in range(count):
            soon = indices[min(a + done + t + AHEAD, end)]
            for c in range(0, k, line):
                prefetch(right, soon, c)
            pack_row(right, indices[a + done + t], scaled[0, t], chunk, t)
        grow_gram(chunk, count, gram, size)
        add_rows(chunk, scaled[1:], count, rhs)
        if side.shape[0] > 0:
            add_rows(chunk, scaled, count, side)
        done += count
    return square, total, weight


@njit(**INSIDE, fastmath=FAST)
def equations(rows, right, penalties, i, known, at, chunk, scaled, gram, rhs, side, size):
    """The normal equations of row i, whose numbers are at.. in ``known``, with the bias eliminated.

    Returns sum q y, sum q, 1 / (sum w + m_i) and the trace before the bias took its part.
    """
    k, base, prior = gram.shape[0], penalties.base, penalties.prior
    biased, ridge = side.shape[0] > 0, penalties.ridge[i]
    for r in range(k):
        for c in range(r, k):
            gram[r, c] = base[r, c]
        gram[r, r] += ridge
        rhs[0, r] = prior[i if prior.shape[0] > 1 else 0, r] if prior.shape[0] > 0 else 0
    for r in range(k if biased else 0):
        side[0, r] = 0
    a = rows.indptr[i]
    count = rows.indptr[i + 1] - a
    square, total, weight = assemble(
        rows.indices, right, a, count, known, at, chunk, scaled, gram, rhs, side, size
    )
    trace = 0.0
    for r in range(k):
        trace += gram[r, r]
    if not biased:
        return square, total, 0.0, trace
    slack = weight + penalties.bias_ridge[i]
    scale = 1.0 / slack if slack > 0 else 0.0
    root = np.sqrt(scale)
    for r in range(k):
        rhs[0, r] -= side[0, r] * scale * total
        side[0, r] *= root
    # as in ``cholesky``: constants would compile it again
    take_gram(side, np.int64(1), np.int64(0), k, gram, size)
    return square, total, scale, trace


@njit(**OUTSIDE, fastmath=FAST)
def cholesky_range(rows, known, right, penalties, form, chosen, first, last, chunk, gram, out):
    """Solve the rows chosen[first..last]; a row whose matrix is singular at this precision gets the
    value NaN and is left to ``rare``."""
    k = right.shape[1]
    biased = out.bias.shape[0] > 0
    rhs, side, keep = (
        np.empty((1, k), right.dtype),
        np.empty((1 if biased else 0, k), right.dtype),
        np.empty(k),
    )
    scaled = np.empty((2, chunk.shape[0]), right.dtype)
    left, bias, value, noise = out.left, out.bias, out.value, penalties.noise
    real, size, level, indptr = form.real, form.size, form.level, rows.indptr
    at = np.int64(0)  # a plain 0 would compile ``equations`` for the constant as well
    for n in range(first, last):
        i = chosen[n]
        square, total, scale, _ = equations(
            rows, right, penalties, i, known, at, chunk, scaled, gram, rhs, side, size
        )
        at += indptr[i + 1] - indptr[i]
        for r in range(k):
            keep[r] = rhs[0, r]
        top = gram[0, 0]
        for r in range(real):
            top = max(top, gram[r, r])
        for r in range(real, k):
            gram[r, r] = top
        if not cholesky(gram, size) > level * top:
            value[i] = np.nan
            continue
        for t in range(0, k, size):
            forward_tile(gram, t, rhs)
        if noise.shape[0] > 0:
            for r in range(k):
                rhs[0, r] += noise[i, r]
        for t in range(k - size, -1, -size):
            backward_tile(gram, t, rhs)
        gain = 0.0
        for r in range(k):
            left[i, r] = rhs[0, r]
            gain += rhs[0, r] * keep[r]
        if biased:
            s = 0.0
            for r in range(k):
                s += side[0, r] * rhs[0, r]
            bias[i] = total * scale - s * np.sqrt(scale)
            gain += scale * total * total
        value[i] = 0.5 * (square - gain)
