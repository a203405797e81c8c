"""The E step of full and tied Gaussian mixtures on rows with missing entries.

A row sees the columns O and misses M. With S the covariance of a component, P = S^-1 and d = x - m
its deviation on O, the missing part has mean d_M = S_MO S_OO^-1 d_O = -P_MM^-1 P_MO d_O and
covariance S_MM - S_MO S_OO^-1 S_OM = P_MM^-1. The shorter way is taken: the inverse of P_MM where
few entries are missing, of S_OO where few are there. Then log |S_OO| = log |S| + log |P_MM| and
d_O^T S_OO^-1 d_O = d^T P d at the d just completed.

B components are worked on at once, one in each lane of a register (``registers.lanes``): they see
and miss the same columns of a row. Rows with the same pattern of gaps that follow one another share
the inverses.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from eckart.compiling import INSIDE, OUTSIDE
from eckart.engines.cpu.registers.mixtures import TILE, lanes_add, lanes_line, lanes_sum
from eckart.engines.protocol.mixtures import Gaussians

BEYOND = -46.0
LOG_2PI = np.log(2 * np.pi)


class Stack(NamedTuple):
    """Components, for rows with gaps, B in a group: number (r, c) of a matrix of group g is row (g
    n + r) n + c, number j of a mean row g n + j.

    ``roots`` are lower triangular, L with P = L^T L; a group that is not full is filled up with
    components of no weight.
    """

    means: np.ndarray
    spread: np.ndarray
    precision: np.ndarray
    roots: np.ndarray
    constants: np.ndarray


class MissingRoom(NamedTuple):
    """What is worked on: inverses of a pattern, a full-length vector, two short ones (groups in
    one), deviations, lanes of numbers, shares of a pattern."""

    inverse: np.ndarray
    full: np.ndarray
    short: np.ndarray
    d: np.ndarray
    few: np.ndarray
    group: np.ndarray


def stacked(theta: Gaussians) -> Stack:
    """The components in lanes."""
    k, n = theta.means.shape
    groups = -(-k // TILE)

    def lanes(stack: np.ndarray, rest: np.ndarray) -> np.ndarray:
        wide = np.empty((groups * TILE, *rest.shape))
        wide[:k], wide[k:] = stack, rest
        return np.ascontiguousarray(np.moveaxis(wide.reshape(groups, TILE, -1), 1, 2)).reshape(
            -1, TILE
        )

    roots, one = theta.roots, np.eye(n)
    precision = roots @ np.swapaxes(roots, -1, -2)
    constants = np.full(groups * TILE, -np.inf)
    constants[:k] = theta.constants
    return Stack(
        lanes(theta.means, np.zeros(n)),
        lanes(theta.spread, one),
        lanes(precision, one),
        lanes(np.swapaxes(roots, -1, -2), one),
        constants.reshape(-1, TILE),
    )


@njit(**INSIDE)
def invert(a, first, size, few, logs):
    """The positive definite matrices at a[first:], size x size, become their inverses (Gauss and
    Jordan); the logarithms of half their determinants are added to few[logs]."""
    for p in range(size):
        own = first + p * size
        for z in range(TILE):
            pivot = max(a[own + p, z], 1e-300)
            few[logs, z] += 0.5 * np.log(pivot)
            few[0, z] = 1.0 / pivot
            a[own + p, z] = 1.0
        lanes_line(a, own, few, 0, a, own, size)
        for r in range(size):
            if r != p:
                for z in range(TILE):
                    few[0, z] = -a[first + r * size + p, z]
                    a[first + r * size + p, z] = 0.0
                lanes_add(a, first + r * size, few, 0, a, own, size)


@njit(**INSIDE)
def learn_pattern(row, seen, missing, stack, room):
    """What rows that see and miss the same columns share: these columns, the inverses of the
    shorter way, and in ``few`` (from 2 on, one for each group) what is to be taken off log
    |S|^(-1/2). Returns how many columns are seen."""
    n, o, m = len(row), 0, 0
    for j in range(n):
        if np.isnan(row[j]):
            missing[m] = j
            m += 1
        else:
            seen[o] = j
            o += 1
    short, of, size = (missing, stack.precision, m) if m <= o else (seen, stack.spread, o)
    for g in range(len(stack.constants)):
        for r in range(size):
            for c in range(size):
                for z in range(TILE):
                    room.inverse[g * n * n + r * size + c, z] = of[
                        (g * n + short[r]) * n + short[c], z
                    ]
        for z in range(TILE):
            room.few[2 + g, z] = 0.0
        invert(room.inverse, g * n * n, size, room.few, 2 + g)
        if m > o:  # log |S_OO|^(1/2) until here; relative to |S|^(1/2) as above
            for j in range(n):
                for z in range(TILE):
                    room.few[2 + g, z] += np.log(stack.roots[(g * n + j) * n + j, z])
    return o


@njit(**INSIDE)
def complete_row(g, n, seen, o, missing, m, stack, room):
    """d of a group, which is zero at the missing columns, is completed there; few[1] becomes d_O^T
    S_OO^-1 d_O."""
    at, matrix, short, d, few = g * n, g * n * n, room.short, room.d, room.few
    if m <= o:
        for r in range(m):
            lanes_sum(short, r, stack.precision, matrix + missing[r] * n, d, at, n)
        for r in range(m):
            lanes_sum(few, 0, room.inverse, matrix + r * m, short, 0, m)
            for z in range(TILE):
                d[at + missing[r], z] = -few[0, z]
    else:
        for q in range(o):
            for z in range(TILE):
                short[q, z] = d[at + seen[q], z]
        room.full[:] = 0.0
        for q in range(o):
            lanes_sum(room.full, seen[q], room.inverse, matrix + q * o, short, 0, o)
        for r in range(m):
            lanes_sum(d, at + missing[r], stack.spread, matrix + missing[r] * n, room.full, 0, n)
    for j in range(n):
        lanes_sum(room.full, j, stack.roots, matrix + j * n, d, at, j + 1)
    lanes_sum(few, 1, room.full, 0, room.full, 0, n)


@njit(**INSIDE)
def add_missing_covariances(n, seen, o, missing, m, stack, room, scatter):
    """scatter[M, M] of each group += the shares of a pattern times the covariances of the missing
    entries, upper triangles."""
    for g in range(len(stack.constants)):
        matrix = g * n * n
        for c in range(m):
            if m > o:
                for q in range(o):
                    for z in range(TILE):
                        room.short[q, z] = stack.spread[matrix + seen[q] * n + missing[c], z]
                room.full[:] = 0.0
                for q in range(o):
                    lanes_sum(room.full, seen[q], room.inverse, matrix + q * o, room.short, 0, o)
            for r in range(c + 1):
                place = matrix + missing[r] * n + missing[c]
                if m <= o:
                    lanes_add(scatter, place, room.group, g, room.inverse, matrix + r * m + c, 1)
                else:
                    lanes_sum(room.few, 0, stack.spread, matrix + missing[r] * n, room.full, 0, n)
                    for z in range(TILE):
                        scatter[place, z] += room.group[g, z] * (
                            stack.spread[place, z] - room.few[0, z]
                        )
        for z in range(TILE):
            room.group[g, z] = 0.0


@njit(**INSIDE)
def differ(a, b):
    """Whether two rows miss different columns."""
    apart = False
    for j in range(len(a)):
        apart |= np.isnan(a[j]) != np.isnan(b[j])
    return apart


@njit(**OUTSIDE)
def gap_rows(x, weights, stack, loglik, shares, counts, shift, scatter):
    """log p of each row and shares; where ``counts`` has entries, sums about the means are added
    too: numbers of the components, the others in lanes."""
    n, k, groups = x.shape[1], shares.shape[1], len(stack.constants)
    room = MissingRoom(
        np.empty((groups * n * n, TILE)),
        np.empty((n, TILE)),
        np.empty((n, TILE)),
        np.empty((groups * n, TILE)),
        np.zeros((2 + groups, TILE)),
        np.zeros((groups, TILE)),
    )
    seen, missing = np.empty(n, np.int64), np.empty(n, np.int64)
    logp, share = np.empty((groups, TILE)), np.zeros((groups, TILE))
    o = 0
    for i in range(len(x)):
        if i == 0 or differ(x[i - 1], x[i]):
            o = learn_pattern(x[i], seen, missing, stack, room)
        m = n - o
        top = -np.inf
        for g in range(groups):
            for j in range(n):
                there = not np.isnan(x[i, j])
                for z in range(TILE):
                    room.d[g * n + j, z] = x[i, j] - stack.means[g * n + j, z] if there else 0.0
            complete_row(g, n, seen, o, missing, m, stack, room)
            for z in range(TILE):
                square = min(room.few[1, z], 1e300)
                logp[g, z] = (
                    stack.constants[g, z] + 0.5 * m * LOG_2PI - room.few[2 + g, z] - 0.5 * square
                )
                top = max(top, logp[g, z])
        total = 0.0
        for z in range(k):
            less = logp[z // TILE, z % TILE] - top
            shares[i, z] = np.exp(less) if less >= BEYOND else 0.0
            total += shares[i, z]
        loglik[i] = top + np.log(total)
        weight = weights[i] if len(weights) else 1.0
        for z in range(k):
            shares[i, z] /= total
            share[z // TILE, z % TILE] = shares[i, z] * weight
        if len(counts) == 0:
            continue
        for g in range(groups):
            some = False
            for z in range(TILE):
                some |= share[g, z] > 0
                room.group[g, z] += share[g, z]
            if not some:
                continue
            lanes_add(shift, g * n, share, g, room.d, g * n, n)
            for r in range(n):
                lanes_line(room.few, 0, share, g, room.d, g * n + r, 1)
                lanes_add(scatter, (g * n + r) * n + r, room.few, 0, room.d, g * n + r, n - r)
        for z in range(k):
            counts[z] += share[z // TILE, z % TILE]
        if i + 1 == len(x) or differ(x[i], x[i + 1]):
            add_missing_covariances(n, seen, o, missing, m, stack, room, scatter)
