"""Rows with the same gaps share one small system, the smaller of two. O are the scores that they
see, H their gaps, r = y - mean.

codes      M = I + W_O^T noise_O^-1 W_O = L L^T. The code of a row is m = M^-1 W_O^T noise_O^-1 r_O,
a gap is mean_j + w_j.m, and the covariance of the gaps,
           W_H M^-1 W_H^T = A^T A with A = L^-1 W_H^T (and their noise). |O| k^2 / 2 + k^3 / 6 + |H|
           k^2 / 2 + |H|^2 k / 2 for a pattern.
precision  with P = (W W^T + noise)^-1, made once for all rows, P_HH^-1 is the covariance of the
gaps, and they are mean_H - P_HH^-1 P_HO r_O. |H|^3 for a
           pattern, by whole registers, and |H| n for a row: where gaps are few, as they are in most
           rows of most tables, a tenth of the other.

In both, log |cov of r_O| is that of the whole and log |P_HH|, or log |M| + log |noise_O|.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from eckart.compiling import INSIDE, OUTSIDE
from eckart.engines.arrays.gaps import by_gaps
from eckart.engines.cpu.registers.mixtures import TILE, padded
from eckart.engines.cpu.registers.tiles import four_lines, line_dot
from eckart.engines.cpu.small_systems import factor_in_place, solve
from eckart.engines.cpu.tables.factor_steps import invert

FAST = {"contract", "nsz", "arcp"}
SOME = 4096
"""Rows that are put into their order together."""


class Seen(NamedTuple):
    """Rows in the order of their patterns, those of pattern p from starts[p] on: their scores, 0 at
    gaps, in lines of whole registers; where each row stands in the table; and of each pattern 1
    for what is seen, and its gaps, gaps[ends[p]] to gaps[ends[p + 1]]."""

    scores: np.ndarray
    order: np.ndarray
    starts: np.ndarray
    mask: np.ndarray
    gaps: np.ndarray
    ends: np.ndarray

    @classmethod
    def of(cls, indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, n: int) -> Seen:
        """Rows with the same gaps side by side."""
        rows, wide = len(indptr) - 1, padded(max(n, 1))
        order, starts, mask = by_gaps(indptr, indices, wide)
        place, scores = np.empty(rows, np.intp), np.zeros((rows, wide))
        place[order] = np.arange(rows)
        for first in range(0, rows, SOME):  # no number for each entry of all rows
            ends = indptr[first : first + SOME + 1]
            part = slice(ends[0], ends[-1])
            lines = np.repeat(place[first : first + SOME], np.diff(ends))
            scores[lines, indices[part]] = data[part]
        pattern, gaps = np.nonzero(~mask[:, :n])
        ends = np.concatenate([[0], np.cumsum(np.bincount(pattern, minlength=len(mask)))])
        return cls(scores, order, starts, mask.view(np.uint8), gaps.astype(np.int32), ends)


class Scheme(NamedTuple):
    """W, W / noise, P (in lines of whole registers), log of the determinant of P^-1, means, noise,
    widths of Huber's loss (empty: none), the codes from which those are measured, and how often
    rows count, in the order of their patterns (empty: once)."""

    factors: np.ndarray
    scaled: np.ndarray
    precision: np.ndarray
    whole: float
    mean: np.ndarray
    noise: np.ndarray
    width: np.ndarray
    start: np.ndarray
    times: np.ndarray


@njit(**OUTSIDE, fastmath=FAST)
def complete_rows(w, noise, wide):
    """What all rows share: W / noise, the matrix that makes codes of complete rows less their means
    (lines of it for padding are 0), P, and log |P^-1|."""
    n, k = w.shape
    spread, v = np.zeros((k, -(-k // TILE) * TILE)), np.zeros((1, -(-k // TILE) * TILE))
    scaled, to_codes, precision, logs = (
        np.empty((n, k)),
        np.zeros((wide, k)),
        np.zeros((n, wide)),
        0.0,
    )
    for j in range(n):
        logs += np.log(noise[j])
        sharp = 1.0 / noise[j]
        for r in range(k):
            scaled[j, r] = sharp * w[j, r]
        for r in range(k):
            for c in range(k):
                spread[r, c] += scaled[j, r] * w[j, c]
    for r in range(k):
        spread[r, r] += 1.0
    logs += invert(spread, k, v)
    for j in range(n):
        for c in range(k):
            for r in range(k):
                to_codes[j, r] += scaled[j, c] * spread[c, r]
        for i in range(j + 1):
            s = 0.0
            for r in range(k):
                s += scaled[i, r] * to_codes[j, r]
            precision[i, j] = precision[j, i] = -s
        precision[j, j] += 1.0 / noise[j]
    return scaled, to_codes, precision, logs


@njit(**INSIDE, fastmath=FAST)
def _covariance(precision, gaps, m, v):
    """The first |H| lines of M become P_HH^-1, any others 0; returns log |P_HH|. ``v`` is room."""
    m[:] = 0.0
    for g in range(gaps.shape[0]):
        for f in range(gaps.shape[0]):
            m[g, f] = precision[gaps[g], gaps[f]]
    return invert(m, gaps.shape[0], v)


@njit(**INSIDE, fastmath=FAST)
def _system(mask, scheme, m):
    """M of the pattern with this mask, factored in place; returns log |M| + log |noise_O|."""
    k, total = m.shape[0], 0.0
    m[:] = 0.0
    for j in range(scheme.noise.shape[0]):
        if mask[j] > 0:
            total += np.log(scheme.noise[j])
            for r in range(k):
                v = scheme.scaled[j, r]
                for c in range(r + 1):
                    m[r, c] += v * scheme.factors[j, c]
    for r in range(k):
        m[r, r] += 1.0
    return total + factor_in_place(m, k)


@njit(**INSIDE, fastmath=FAST)
def _draw_in(scheme, mask, i, row, times, wild):
    """The scores that row i sees (``row`` has them less the means), drawn to within their widths of
    what its code says."""
    for j in range(scheme.width.shape[0]):
        d = scheme.width[j]
        if d < np.inf and mask[j] > 0:
            t = 0.0
            for r in range(scheme.factors.shape[1]):
                t += scheme.factors[j, r] * scheme.start[i, r]
            y = row[j]
            if y - t > d:
                wild[j] += times * d * (y - t - d)
                row[j] = t + d
            elif t - y > d:
                wild[j] += times * d * (t - y - d)
                row[j] = t - d


@njit(**INSIDE, fastmath=FAST)
def _add_covariance(m, scheme, gaps, times, a, block, second):
    """second[H, H] += times (A^T A + noise_H), A = L^-1 W_H^T, the lower triangle of it; ``a`` and
    ``block`` are room."""
    k, h = m.shape[0], gaps.shape[0]
    for r in range(k):  # a row of A at a time
        for g in range(h):
            a[r, g] = scheme.factors[gaps[g], r]
        for q in range(r):
            v = m[r, q]
            for g in range(h):
                a[r, g] -= v * a[q, g]
        v = 1.0 / m[r, r]
        for g in range(h):
            a[r, g] *= v
    for g in range(h):
        for f in range(g + 1):
            block[g, f] = 0.0
    for r in range(k):
        for g in range(h):
            v = times * a[r, g]
            for f in range(g + 1):
                block[g, f] += v * a[r, f]
    for g in range(h):
        j = gaps[g]
        for f in range(g + 1):
            second[j, gaps[f]] += block[g, f]
        second[j, j] += times * scheme.noise[j]


@njit(**INSIDE, fastmath=FAST)
def _by_codes(scheme, low, gaps, row, z):
    """The gaps of a row by its code."""
    n, k = scheme.factors.shape
    z[:] = 0.0
    for j in range(n):
        for r in range(k):
            z[r] += row[j] * scheme.scaled[j, r]
    solve(low, k, z)
    for g in range(gaps.shape[0]):
        s = 0.0
        for r in range(k):
            s += scheme.factors[gaps[g], r] * z[r]
        row[gaps[g]] = s


@njit(**OUTSIDE, fastmath=FAST)
def filled_patterns(seen, scheme, first, last, away, total, second, wild):
    """Patterns first..last: fills ``away`` (their complete rows less the means, from 0 on), adds
    these to ``total``, the covariance of gaps to ``second`` (lower triangle) and what Huber's loss
    leaves to ``wild``, each row as often as it counts; returns the sum over rows of |O| log 2 pi +
    log |cov of r_O|."""
    (n, k), wide = scheme.factors.shape, seen.scores.shape[1]
    low, room, pull, z = np.empty((k, k)), np.empty(n * wide), np.zeros((1, wide)), np.empty(k)
    a, block = np.empty((k, n)), np.empty((n, n))
    logs = 0.0
    for p in range(first, last):
        begin, end = seen.starts[p], seen.starts[p + 1]
        mask, gaps, rows = (
            seen.mask[p],
            seen.gaps[seen.ends[p] : seen.ends[p + 1]],
            float(end - begin),
        )
        weighted = scheme.times.shape[0] > 0
        if weighted:
            rows = scheme.times[begin:end].sum()
        h = gaps.shape[0]
        across = -(-h // TILE) * TILE
        inverse = room[: h * across].reshape(h, across)
        by_codes = h**3 > (n - h) * k * k * 3 + k**3 + 3 * h * k * k + 3 * h * h * k
        own = (
            _system(mask, scheme, low)
            if by_codes
            else scheme.whole + _covariance(scheme.precision, gaps, inverse, pull)
        )
        logs += rows * ((n - h) * np.log(2.0 * np.pi) + own)
        for at in range(begin, end):
            i, row = at - seen.starts[first], away[at - seen.starts[first]]
            once = scheme.times[at] if weighted else 1.0
            for j in range(wide):
                row[j] = seen.scores[at, j] - mask[j] * scheme.mean[j]
            if scheme.width.shape[0]:
                _draw_in(scheme, mask, seen.order[at], row, once, wild)
            if by_codes:
                _by_codes(scheme, low, gaps, row, z)
            else:
                for g in range(h):
                    pull[0, g] = line_dot(scheme.precision, gaps[g], away, i)
                for g in range(h):
                    row[gaps[g]] = -line_dot(inverse, g, pull, 0)
            for j in range(n):
                total[j] += once * row[j]
        if by_codes:
            _add_covariance(low, scheme, gaps, rows, a, block, second)
        else:
            for g in range(h):
                for f in range(g + 1):
                    second[gaps[g], gaps[f]] += rows * inverse[g, f]
    return logs


@njit(**OUTSIDE, fastmath=FAST)
def left_out_patterns(seen, scheme, parts, first, last, away, out):
    """Patterns first..last, with their complete rows less the means in ``away``: what is expected
    of every score, of a part parts[p, 0] .. parts[p, 1] that is seen without itself. With Q = P_OO
    - P_OH P_HH^-1 P_HO, the inverse of the covariance of what is seen, a part J is y_J - Q_JJ^-1 (P
    r)_J from the rest."""
    n, wide = scheme.factors.shape[0], seen.scores.shape[1]
    high = n + 3  # whole fours of lines
    room, square, pull = np.empty(high * wide), np.empty(n * wide), np.zeros((1, wide))
    lines, pulled = np.zeros((high, wide)), np.zeros((high, wide))
    for p in range(first, last):
        mask, gaps = seen.mask[p], seen.gaps[seen.ends[p] : seen.ends[p + 1]]
        h, start = gaps.shape[0], seen.starts[first]
        tall, across = -(-h // 4) * 4, -(-h // TILE) * TILE
        inverse = room[: tall * across].reshape(tall, across)
        _covariance(scheme.precision, gaps, inverse, pull)
        for g in range(h):
            lines[g] = scheme.precision[gaps[g]]
        for g in range(0, tall, 4):
            four_lines(inverse, g, lines, h, pulled)  # P_HH^-1 P_H
        for at in range(seen.starts[p], seen.starts[p + 1]):
            for j in range(n):
                out[seen.order[at], j] = away[at - start, j] + scheme.mean[j]
        for a, b in parts:
            if mask[a] == 0:
                continue
            if b - a == 1:  # as most parts are: no matrix is made
                s = scheme.precision[a, a]
                for g in range(h):
                    s -= lines[g, a] * pulled[g, a]
                for at in range(seen.starts[p], seen.starts[p + 1]):
                    out[seen.order[at], a] -= line_dot(scheme.precision, a, away, at - start) / s
                continue
            own = square[: (b - a) * (-(-(b - a) // TILE) * TILE)].reshape(
                b - a, -(-(b - a) // TILE) * TILE
            )
            own[:] = 0.0
            for i in range(a, b):
                for j in range(a, b):
                    s = scheme.precision[i, j]
                    for g in range(h):
                        s -= lines[g, i] * pulled[g, j]
                    own[i - a, j - a] = s
            invert(own, b - a, pull)
            for at in range(seen.starts[p], seen.starts[p + 1]):
                for j in range(a, b):
                    pull[0, j - a] = line_dot(scheme.precision, j, away, at - start)
                for j in range(a, b):
                    out[seen.order[at], j] -= line_dot(own, j - a, pull, 0)
