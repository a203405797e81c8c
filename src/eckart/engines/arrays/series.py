"""Rows that are time series, all of them at once: steps go from column to column, and along the
chain of rows by factors of banded matrices.

``own_*``: the Kalman filter of r + e. With m and P the mean and variance of r before a column,
F = P + s and K = P / F,

    likelihood  -1/2 (log 2 pi F + (y - m)^2 / F),    m <- m + K (y - m),  P <- (1 - K) P,    then
    m <- phi m,  P <- v + phi^2 (P - v)    from column to column.

The gains do not depend on the data, so that the same filter on the columns of ``right`` gives rows
t with V^T C^-1 V = sum t t^T / F.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from eckart.engines.host import place
from eckart.engines.protocol.series import LagProducts


class ArraySeries:
    """The family ``series``."""

    def own_likelihood(self, x: Any, data: np.ndarray, own: np.ndarray) -> np.ndarray:
        total = np.zeros(x.shape[0])
        for _, seen, miss, whole in _filtered(x, data, own, np.zeros((x.shape[1], 0))):
            each = np.log(2 * np.pi * whole) + miss[:, -1] ** 2 / whole
            total -= np.where(seen, 0.5 * each, 0.0)
        return total[:, None]

    def own_rows(
        self,
        x: Any,
        data: np.ndarray,
        right: np.ndarray,
        own: np.ndarray,
        base: np.ndarray,
        prior: np.ndarray,
        noise: np.ndarray | None,
    ) -> np.ndarray:
        n, k = x.shape[0], right.shape[1]
        both = np.zeros((n, k, k + 1))
        for _, seen, miss, whole in _filtered(x, data, own, right):
            heavy = np.where(seen, 1.0 / whole, 0.0)[:, None, None]
            both += heavy * miss[:, :k, None] * miss[:, None, :]
        root = np.linalg.cholesky(base + both[:, :, :k])
        z = np.linalg.solve(root, (prior + both[:, :, k])[:, :, None])
        z = z if noise is None else z + noise[:, :, None]
        return np.linalg.solve(root.mT, z)[:, :, 0]

    def state_rows(
        self, x: Any, data: np.ndarray, length: int, rule: np.ndarray, noise: np.ndarray | None
    ) -> np.ndarray:
        """The precision is tridiagonal, its factor bidiagonal: ``diagonal`` and ``beside``."""
        m, n = place(x).matrix, x.shape[0]
        phi, a, q, p = rule.T
        at = np.repeat(np.arange(n), m.row_counts()) * length + m.indices % length
        seen = np.bincount(at, minlength=n * length).reshape(n, length)
        z = p[:, None] * np.bincount(at, data, n * length).reshape(n, length)
        diagonal = seen * p[:, None] + q[:, None]
        diagonal[:, 0] += a - q
        diagonal[:, :-1] += (phi * phi * q)[:, None]
        beside = np.zeros(n)
        kept = np.empty((n, length))
        for t in range(length):
            diagonal[:, t] = np.sqrt(diagonal[:, t] - beside**2)
            z[:, t] = (z[:, t] - (beside * z[:, t - 1] if t else 0.0)) / diagonal[:, t]
            beside = kept[:, t] = -phi * q / diagonal[:, t]
        z = z if noise is None else z + noise
        for t in range(length - 1, -1, -1):
            after = kept[:, t] * z[:, t + 1] if t + 1 < length else 0.0
            z[:, t] = (z[:, t] - after) / diagonal[:, t]
        return z

    def less_states(
        self, x: Any, data: np.ndarray, states: np.ndarray, sign: float = 1.0
    ) -> np.ndarray:
        m = place(x).matrix
        rows = np.repeat(np.arange(m.shape[0]), m.row_counts())
        return data - sign * states[rows, m.indices % states.shape[1]]

    def chain_rows(
        self,
        x: Any,
        data: np.ndarray,
        right: np.ndarray,
        other: np.ndarray,
        link: np.ndarray,
        first: np.ndarray,
        step: np.ndarray,
        noise: np.ndarray | None,
    ) -> np.ndarray:
        """By the Cholesky factor of a matrix of 2k bands."""
        from scipy.linalg import cholesky_banded
        from scipy.linalg.blas import dtbsv

        m, (n, k) = place(x).matrix.to_scipy().astype(np.float64), (x.shape[0], right.shape[1])
        values, ones = (type(m)((a, m.indices, m.indptr), m.shape) for a in (data, 0 * data + 1))
        w = other.reshape(-1, 1)
        blocks = ones @ (w[:, :, None] * right[:, :, None] * right[:, None]).reshape(-1, k * k)
        blocks = blocks.reshape(n, k, k) + step
        blocks[0] += first - step
        blocks[:-1] += link.T @ step @ link
        bands = np.zeros((2 * k, n, k))
        below = -step @ link
        for c in range(k):
            bands[: k - c, :, c] = blocks[:, c:, c].T
            bands[k - c : 2 * k - c, :-1, c] = below[:, c, None]
        root = cholesky_banded(bands.reshape(2 * k, n * k), lower=True)
        z = dtbsv(2 * k - 1, root, (values @ (w * right)).reshape(-1), lower=1)
        z = z if noise is None else z + noise.reshape(-1)
        return dtbsv(2 * k - 1, root, z, lower=1, trans=1).reshape(n, k)

    def lag_products(self, a: np.ndarray) -> LagProducts:
        return LagProducts(a[:-1].T @ a[:-1], a[:-1].T @ a[1:], a[1:].T @ a[1:], a[0].copy())

    def step_squares(self, states: np.ndarray) -> np.ndarray:
        return np.square(np.diff(states, axis=1)).sum(axis=1, keepdims=True)


def _filtered(
    x: Any, data: np.ndarray, own: np.ndarray, right: np.ndarray
) -> Iterator[tuple[int, np.ndarray, np.ndarray, np.ndarray]]:
    """Of every column: which rows see it, what the filter misses of its row of ``right`` and of the
    data (n x k+1), and F."""
    m, (n, columns) = place(x).matrix, x.shape
    where = np.repeat(np.arange(n), m.row_counts()), m.indices
    seen, values = np.zeros((columns, n), bool), np.zeros((columns, n))
    seen[where[::-1]], values[where[::-1]] = True, data
    phi, v, s = own.T
    mean, p = np.zeros((n, right.shape[1] + 1)), v.copy()
    for j in range(columns):
        miss, whole = -mean, p + s
        miss[:, :-1] += right[j]
        miss[:, -1] += values[j]
        yield j, seen[j], miss, whole
        gain = np.where(seen[j], p / whole, 0.0)
        mean = phi[:, None] * (mean + gain[:, None] * miss)
        p = v + phi * phi * ((1.0 - gain) * p - v)
