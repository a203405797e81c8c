"""Non-negative elastic net of every column on all others, by coordinate descent on the Gram matrix
G.

    min over w >= 0, w_j = 0 of  1/2 w^T G w - w^T G_j + l1 sum w + l2/2 ||w||^2      (+ G_jj / 2)

A column keeps the set of weights that may be positive. Rounds: weights outside it whose gradient is
below zero by at least half as much as the worst one join the set; coordinate descent inside the
set, where a step costs the size of the set; then the gradient of all weights, g = G w - G_j + l1 +
l2 w. The problem is strongly convex with constant l2, so

    F(w) - min F <= sum_i max over t >= -w_i of (-g_i t - l2 t^2 / 2)

which is measured after every round: the column ends when that is at most tol G_jj / 2.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from eckart.compiling import INSIDE, OUTSIDE
from eckart.engines.protocol.items import SparseColumns
from eckart.scheduler import run_lanes

INNER = 100
"""Sweeps over the set within a round, at most: after them the gradient of all weights is looked at
again."""
SHARE = 0.25
"""Share of the allowed gap that the set itself may leave."""


@njit(**INSIDE)
def _fall(g, w, l2):
    """The most that one weight can lower its bound: max over t >= -w of -g t - l2 t^2 / 2."""
    t = max(-g / l2, -w)
    return -g * t - 0.5 * l2 * t * t


@njit(**INSIDE)
def _column(gram, j, l1, l2, tol, max_iter, w, grad, members, inside, start):
    """Solves column j; w comes and leaves zero outside the set. Gives the size of the set, the gap
    and the sweeps."""
    n = gram.shape[0]
    allowed = 0.5 * tol * gram[j, j]
    for i in range(n):
        grad[i] = l1 - gram[j, i]
    size, sweeps, gap = 0, 0, 0.0
    for _ in range(max_iter + 1):
        worst, gap = 0.0, 0.0
        for i in range(n):
            if i != j:
                gap += _fall(grad[i], w[i], l2)
                if not inside[i]:
                    worst = min(worst, grad[i])
        if gap <= allowed or _ == max_iter:
            break
        if worst < 0:
            for i in range(n):
                if i != j and not inside[i] and grad[i] <= 0.5 * worst:
                    members[size] = i
                    inside[i] = True
                    size += 1
        for a in range(size):
            start[a] = w[members[a]]
        # inside the set: grad is kept for its members only
        for _sweep in range(INNER):
            sweeps += 1
            left = 0.0
            for a in range(size):
                i = members[a]
                left += _fall(grad[i], w[i], l2)
                curvature = gram[i, i] + l2
                new = max(0.0, w[i] - grad[i] / curvature)
                step = new - w[i]
                if step != 0.0:
                    w[i] = new
                    row = gram[i]
                    for b in range(size):
                        grad[members[b]] += step * row[members[b]]
                    grad[i] += step * l2
            if left <= SHARE * allowed:
                break
        # the same steps for all others
        for a in range(size):
            i = members[a]
            step = w[i] - start[a]
            if step != 0.0:
                row = gram[i]
                for k in range(n):
                    if not inside[k]:
                        grad[k] += step * row[k]
    return size, gap, sweeps


@njit(**OUTSIDE)
def _columns(gram, first, last, l1, l2, tol, max_iter, counts, gaps, sweeps):
    """Columns first..last: rows and values one column after another, rows ascending."""
    n = gram.shape[0]
    w, grad, start = np.zeros(n), np.zeros(n), np.zeros(n)
    members, inside = np.empty(n, np.int64), np.zeros(n, np.bool_)
    rows, values, filled = np.empty(64, np.int64), np.empty(64), 0
    for j in range(first, last):
        size, gap, rounds = _column(gram, j, l1, l2, tol, max_iter, w, grad, members, inside, start)
        if filled + size > len(rows):
            rows = np.concatenate((rows, np.empty(len(rows) + size, np.int64)))
            values = np.concatenate((values, np.empty(len(values) + size)))
        before = filled
        for i in np.sort(members[:size]):
            if w[i] > 0:
                rows[filled], values[filled] = i, w[i]
                filled += 1
            w[i] = 0.0
            inside[i] = False
        counts[j], gaps[j], sweeps[j] = filled - before, gap, rounds
    return rows[:filled], values[:filled]


def nonnegative_columns(
    gram: np.ndarray,
    l1: float,
    l2: float,
    tol: float,
    max_iter: int,
    span: tuple[int, int] | None = None,
    *,
    threads: int,
) -> SparseColumns:
    """The columns of a span, or all, shared out in ranges that depend on their number alone."""
    n, (first, last) = len(gram), span or (0, len(gram))
    counts, gaps, sweeps = np.zeros(n, np.int64), np.zeros(n), np.zeros(n, np.int64)
    cuts = np.unique(np.linspace(first, last, min(last - first, 256) + 1).astype(np.int64))
    found: list = [None] * (len(cuts) - 1)

    def step(_: None, part: int, scratch: dict) -> None:
        found[part] = _columns(
            gram,
            cuts[part],
            cuts[part + 1],
            float(l1),
            float(l2),
            float(tol),
            int(max_iter),
            counts,
            gaps,
            sweeps,
        )

    run_lanes(range(len(found)), [None] * 64, step, threads)
    indptr = np.concatenate([[0], np.cumsum(counts[first:last])])
    rows, values = (np.concatenate([part[side] for part in found]) for side in (0, 1))
    return SparseColumns(
        indptr, rows, values.astype(gram.dtype), gaps[first:last], sweeps[first:last]
    )
