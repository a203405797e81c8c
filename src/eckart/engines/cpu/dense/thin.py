"""Products of tall thin matrices by ranges of rows on threads: Q^T W, W - Q H, Q S, each with the same bits for any thread count."""

from __future__ import annotations

import itertools

import numpy as np

from eckart.scheduler import run_lanes

PARTS = 8


def _parts(rows: int, work: int) -> list[tuple[int, int]]:
    """Ranges of rows; ``work`` is the number of multiply-adds a row. Small products are not worth a thread."""
    count = PARTS if rows * work >= 2**23 else 1
    cuts = np.linspace(0, rows, count + 1).astype(int)
    return [(int(a), int(b)) for a, b in itertools.pairwise(cuts)]


def inner(q: np.ndarray, w: np.ndarray, threads: int) -> np.ndarray:
    """Q^T W in float64, summed over fixed ranges of rows."""
    parts = _parts(len(q), q.shape[1] * w.shape[1])
    sums = [np.zeros((q.shape[1], w.shape[1])) for _ in parts]

    def step(total: np.ndarray, part: tuple[int, int], scratch: dict) -> None:
        total += q[part[0] : part[1]].T @ w[part[0] : part[1]]

    run_lanes(parts, sums, step, threads)
    return np.sum(sums, axis=0)


def subtract(w: np.ndarray, q: np.ndarray, h: np.ndarray, threads: int) -> None:
    """W <- W - Q H in place."""
    h = h.astype(w.dtype, copy=False)
    parts = _parts(len(w), q.shape[1] * w.shape[1])

    def step(_: None, part: tuple[int, int], scratch: dict) -> None:
        w[part[0] : part[1]] -= q[part[0] : part[1]] @ h

    run_lanes(parts, [None] * len(parts), step, threads)


def outer(q: np.ndarray, s: np.ndarray, threads: int) -> np.ndarray:
    """Q S."""
    s = s.astype(q.dtype, copy=False)
    out = np.empty((len(q), s.shape[1]), q.dtype)
    parts = _parts(len(q), q.shape[1] * s.shape[1])

    def step(_: None, part: tuple[int, int], scratch: dict) -> None:
        np.matmul(q[part[0] : part[1]], s, out=out[part[0] : part[1]])

    run_lanes(parts, [None] * len(parts), step, threads)
    return out
