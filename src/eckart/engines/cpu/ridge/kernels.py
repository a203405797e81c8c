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

Rows solved by a few warm-started steps of conjugate gradients: for large k, where a k x k matrix
for every row costs too much.

M u = sum_j w v_j (v_j.u + b) + P u + l_i u is applied entry by entry, never formed; n_i k work a
step in place of n_i k^2. Each step lowers the row's objective, so sweeps still never rise. Entries
are gathered once into a buffer that stays in cache where the row fits, else chunk by chunk.

Rows with few entries, solved in the space of their entries.

With P = diag(d) + l_i I a row's code is u = P^-1 V^T y, where (W^-1 + V P^-1 V^T + 1/m_i 11^T) y =
W^-1 p: n_i unknowns in place of k. V holds the columns that the row observes, W their weights, p
their right-hand side weights; b = sum(y) / m_i is the bias. The fitted values are V u + b = W^-1 (p
- y), so the objective is 1/2 (constant - p.W^-1 (p - y)).

Rows whose normal equations need more than a Cholesky factor: minimum-norm solutions, and
non-negative ones.

``minimum_norm_row``   u = G^+ r by eigenvalues of G, those under the rounding level dropped: the
least-squares solution of least norm (lambda = 0). Where
                       the old u has a part in the dropped directions that the fit needs, that part
                       stays: the objective never rises.
``nonnegative_row``    min 1/2 u^T G u - r.u over u >= 0 by coordinate descent from the old u; stops
when no coordinate moves by more than 1e-6 of the largest.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from eckart.compiling import INSIDE, OUTSIDE
from eckart.engines.cpu.entries.entry import AHEAD, FAST
from eckart.engines.cpu.registers.tiles import (
    add_rows,
    backward_tile,
    dot_tile,
    factor_tile,
    forward_tile,
    grow_gram,
    pack_row,
    row_dots,
    scale_row,
    solve_panel,
    take_gram,
)
from eckart.engines.cpu.registers.windows import prefetch


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


@njit(**INSIDE, fastmath=FAST)
def _gather(indices, right, scales, a, count, at, chunk):
    """Rows sqrt(w) v of entries a.. into the chunk, zeros up to a multiple of four."""
    k = right.shape[1]
    line = 64 // right.itemsize
    end = indices.shape[0] - 1
    for t in range(count):
        soon = indices[min(a + t + AHEAD, end)]
        for c in range(0, k, line):
            prefetch(right, soon, c)
        pack_row(right, indices[a + t], scales[at + t], chunk, t)
    for t in range(count, (count + 3) // 4 * 4):
        for c in range(k):
            chunk[t, c] = 0


@njit(**INSIDE, fastmath=FAST)
def _apply(indices, right, penalties, i, scales, at, a, n, chunk, dots, u, out):
    """out <- M u without the bias, the numbers of the row being at.. in ``scales``; ``dots`` is
    scratch. A row that fits into the chunk is there already."""
    k, base, ridge = right.shape[1], penalties.base, penalties.ridge[i]
    held = n <= chunk.shape[0] - 4
    for c in range(k):
        out[0, c] = ridge * u[0, c]
    if base.shape[0] > 0:
        row_dots(base, k, u, dots)
        for c in range(k):
            out[0, c] += dots[0, c]
    done = 0
    while done < n:
        count = n if held else min(chunk.shape[0] - 4, n - done)
        if not held:
            _gather(indices, right, scales, a + done, count, at + done, chunk)
        row_dots(chunk, count, u, dots)
        add_rows(chunk, dots, count, out)
        done += count


@njit(**OUTSIDE, fastmath=FAST)
def cg_range(rows, known, right, penalties, form, chosen, first, last, chunk, nothing, out):
    """Improve the codes of the rows chosen[first..last] by ``form.steps`` steps; no bias, no
    prior."""
    k, indices, indptr = right.shape[1], rows.indices, rows.indptr
    left, value = out.left, out.value
    u, r, d, q, rhs = (
        np.zeros((1, k), right.dtype),
        np.zeros((1, k), right.dtype),
        np.zeros((1, k), right.dtype),
        np.zeros((1, k), right.dtype),
        np.zeros((1, k), right.dtype),
    )
    at, n = np.int64(0), np.int64(0)
    scales, pulls = known[0], known[2:]
    dots = np.zeros((1, max(chunk.shape[0], k) + 4), right.dtype)
    for m in range(first, last):
        i = chosen[m]
        a = indptr[i]
        at += n  # behind the row before
        n = indptr[i + 1] - a
        constant = 0.0
        for t in range(at, at + n):
            constant += pulls[0, t] * known[1, t]
            scales[t] = np.sqrt(scales[t])
            pulls[0, t] = pulls[0, t] / scales[t] if scales[t] > 0 else 0
        for c in range(k):
            rhs[0, c] = 0
            u[0, c] = left[i, c]
        done = np.int64(0)
        while done < n:
            count = min(chunk.shape[0] - 4, n - done)
            _gather(indices, right, scales, a + done, count, at + done, chunk)
            add_rows(chunk, pulls[:, at + done :], count, rhs)
            done += count
        _apply(indices, right, penalties, i, scales, at, a, n, chunk, dots, u, q)
        rr = 0.0
        for c in range(k):
            r[0, c] = rhs[0, c] - q[0, c]
            d[0, c] = r[0, c]
            rr += np.float64(r[0, c]) * r[0, c]
        start = rr
        for _ in range(form.steps):
            if not rr > 1e-14 * start or rr <= 0:
                break
            _apply(indices, right, penalties, i, scales, at, a, n, chunk, dots, d, q)
            dq = 0.0
            for c in range(k):
                dq += np.float64(d[0, c]) * q[0, c]
            if not dq > 0:
                break
            step = right.dtype.type(rr / dq)
            new = 0.0
            for c in range(k):
                u[0, c] += step * d[0, c]
                r[0, c] -= step * q[0, c]
                new += np.float64(r[0, c]) * r[0, c]
            turn = right.dtype.type(new / rr)
            rr = new
            for c in range(k):
                d[0, c] = r[0, c] + turn * d[0, c]
        gain = 0.0
        for c in range(k):
            left[i, c] = u[0, c]
            gain += np.float64(u[0, c]) * (rhs[0, c] + r[0, c])
        value[i] = 0.5 * (constant - gain)


@njit(**OUTSIDE, fastmath=FAST)
def dual_range(rows, known, right, penalties, form, chosen, first, last, chunk, flat, out):
    """Rows chosen[first..last]; ``chunk`` has room for the longest of them, ``flat`` for its
    square; P is given by its diagonal."""
    k, size, real, level = right.shape[1], form.size, form.real, form.level
    indptr, indices, base, ridge, bias_ridge = (
        rows.indptr,
        rows.indices,
        penalties.base,
        penalties.ridge,
        penalties.bias_ridge,
    )
    one = right.dtype.type(1)
    line = 64 // right.itemsize
    left, bias, value = out
    biased = bias.shape[0] > 0
    roots, code = np.empty((1, k), right.dtype), np.empty((1, k), right.dtype)
    inverse, pull = np.empty(chunk.shape[0], right.dtype), np.empty(chunk.shape[0], right.dtype)
    at = 0
    wide = np.zeros((1, chunk.shape[0]), right.dtype)
    end = indices.shape[0] - 1
    for m in range(first, last):
        i = chosen[m]
        a = indptr[i]
        n = indptr[i + 1] - a
        if n == 0:
            for t in range(k):
                left[i, t] = 0
            if biased:
                bias[i] = 0
            value[i] = 0.0
            continue
        whole = (n + size - 1) // size * size
        for t in range(k):
            p = base[t, t] + ridge[i] if t < real else one
            roots[0, t] = np.sqrt(one / p) if p > 0 else 0
        constant = 0.0
        for t in range(n):
            soon = indices[min(a + t + AHEAD, end)]
            for c in range(0, k, line):
                prefetch(right, soon, c)
            scale_row(right, indices[a + t], roots, chunk, t)
        for t in range(n):
            w, pull[t] = known[0, at + t], known[2, at + t]
            constant += pull[t] * known[1, at + t]
            inverse[t] = one / w if w > 0 else 0
        at += n
        for t in range(n, whole):
            for c in range(k):
                chunk[t, c] = 0
        gram = flat[: whole * whole].reshape(whole, whole)
        for r in range(0, whole, 4):
            for c in range(r // size * size, whole, 4):
                dot_tile(chunk, r, c, gram)
        extra = one / bias_ridge[i] if biased else 0 * one
        top = gram[0, 0] + inverse[0]
        for t in range(n):
            if biased:
                for c in range(n):
                    gram[t, c] += extra
            if inverse[t] > 0:
                gram[t, t] += inverse[t]
            else:
                for c in range(n):
                    gram[t, c] = 0
                    gram[c, t] = 0
                gram[t, t] = top
            top = max(top, gram[t, t])
            wide[0, t] = inverse[t] * pull[t]
        for t in range(n, whole):
            gram[t, t] = top
            wide[0, t] = 0
        if not cholesky(gram, size) > level * top:
            value[i] = np.nan
            continue
        for t in range(0, whole, size):
            forward_tile(gram, t, wide)
        for t in range(whole - size, -1, -size):
            backward_tile(gram, t, wide)
        for t in range(k):
            code[0, t] = 0
        add_rows(chunk, wide, n, code)
        for t in range(k):
            left[i, t] = code[0, t] * roots[0, t]
        gain, total = 0.0, 0.0
        for t in range(n):
            gain += pull[t] * inverse[t] * (pull[t] - wide[0, t])
            total += wide[0, t]
        if biased:
            bias[i] = total * extra
        value[i] = 0.5 * (constant - gain)


PASSES = 200


@njit(**INSIDE)
def minimum_norm_row(gram, rhs, old, cut, square):
    """The solution of least norm of G u = r, G given by its upper triangle; eigenvalues up to
    ``cut`` count as zero.

    ``square`` is the scale of the objective: the old u keeps its dropped part if that lowers the
    objective by more than rounding.
    """
    n = gram.shape[0]
    full = np.empty((n, n))
    for r in range(n):
        for c in range(r, n):
            full[r, c] = gram[r, c]
            full[c, r] = gram[r, c]
    values, vectors = np.linalg.eigh(full)  # noqa: TID251  (compiled)
    out, kept = np.zeros(n), np.zeros(n)
    worth = 0.0
    for t in range(n):
        pull, at = 0.0, 0.0
        for r in range(n):
            pull += vectors[r, t] * rhs[0, r]
            at += vectors[r, t] * old[r]
        if values[t] > cut:
            for r in range(n):
                out[r] += pull / values[t] * vectors[r, t]
        else:
            worth += 2.0 * at * pull - values[t] * at * at
            for r in range(n):
                kept[r] += at * vectors[r, t]
    if worth > 1e-11 * square and np.isfinite(worth):
        out += kept
    return out


@njit(**INSIDE, fastmath=FAST)
def nonnegative_row(gram, rhs, start, floor):
    """Coordinate descent on u >= 0, G given by its upper triangle; a coordinate whose diagonal
    entry is under ``floor`` has no curvature and stays 0."""
    n = gram.shape[0]
    u = start.copy()
    for r in range(n):
        if gram[r, r] <= floor:
            u[r] = 0.0
    slope = np.empty(n)
    for r in range(n):
        s = -np.float64(rhs[0, r])
        for c in range(n):
            s += (gram[r, c] if c >= r else gram[c, r]) * u[c]
        slope[r] = s
    for _ in range(PASSES):
        largest, moved = 0.0, 0.0
        for r in range(n):
            d = gram[r, r]
            if d <= floor:
                continue
            new = max(u[r] - slope[r] / d, 0.0)
            step = new - u[r]
            if step != 0.0:
                u[r] = new
                for c in range(n):
                    slope[c] += step * (gram[r, c] if c >= r else gram[c, r])
            largest, moved = max(largest, new), max(moved, abs(step))
        if moved <= 1e-6 * largest:
            break
    return u


@njit(**OUTSIDE, fastmath=FAST)
def rare_range(rows, known, right, penalties, form, chosen, first, last, chunk, gram, out):
    """Rows chosen[first..last] solved by one of the methods above: non-negative codes where
    ``form.steps`` is 1."""
    k = right.shape[1]
    left, bias, value = out
    biased = bias.shape[0] > 0
    rhs, side = np.empty((1, k), right.dtype), np.empty((1 if biased else 0, k), right.dtype)
    scaled, indptr, at = np.empty((2, chunk.shape[0]), right.dtype), rows.indptr, np.int64(0)
    start = np.zeros(k)
    for m in range(first, last):
        i = chosen[m]
        square, total, scale, trace = equations(
            rows, right, penalties, i, known, at, chunk, scaled, gram, rhs, side, form.size
        )
        at += indptr[i + 1] - indptr[i]
        if form.steps:
            floor = 0.0
            for r in range(k):
                start[r] = max(left[i, r], 0.0)
                floor = max(floor, gram[r, r] + side[0, r] ** 2 if biased else gram[r, r])
            u = nonnegative_row(gram, rhs, start, 16.0 * np.finfo(right.dtype).eps * floor)
        else:
            for r in range(k):
                start[r] = left[i, r]
            # against the trace before the bias took its part: what remains of it may be rounding
            # alone
            u = minimum_norm_row(gram, rhs, start, form.level * trace, square)
        gain = scale * total * total
        for r in range(k):
            left[i, r] = u[r]
            s = 2.0 * rhs[0, r] - gram[r, r] * u[r]
            for c in range(r + 1, k):
                s -= 2.0 * gram[r, c] * u[c]
            gain += s * u[r]
        if biased:
            s = 0.0
            for r in range(k):
                s += side[0, r] * u[r]
            bias[i] = total * scale - s * np.sqrt(scale)
        value[i] = 0.5 * (square - gain)
