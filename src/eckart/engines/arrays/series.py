"""Rows that are time series, all of them at once by LAPACK: the precisions of the states of all rows
are blocks of one tridiagonal matrix, that of a chain of rows has 2k bands.

``own_*``: with Q the precision of r of a row over all columns, M the 0/1 mask of what it sees and
K = Q + M / s, the covariance C of its entries has

    C^-1 a = (a - x) / s,   K x = a / s,      log |C| = log |K| - log |Q| + seen log s
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.engines.host import place
from eckart.engines.protocol.series import LagProducts


class ArraySeries:
    """The family ``series``."""

    def own_likelihood(self, x: Any, data: np.ndarray, own: np.ndarray) -> np.ndarray:
        series = _Own(x, own)
        y = series.scattered(data)
        m = series.expected(y[:, :, None])[:, :, 0]
        miss, s = np.where(series.seen, y - m, 0.0), own[:, 2]
        square = (miss * miss).sum(axis=1) / s + series.square(m)
        seen = series.seen.sum(axis=1)
        logs = series.logdet + seen * (np.log(2 * np.pi) + np.log(s))
        return np.where(seen > 0, -0.5 * (square + logs), 0.0)[:, None]

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
        series, k = _Own(x, own), right.shape[1]
        a = np.empty((*series.seen.shape, k + 1))
        a[:, :, :k], a[:, :, k] = right * series.seen[:, :, None], series.scattered(data)
        rest = np.where(series.seen[:, :, None], a - series.expected(a), 0.0)
        both = a[:, :, :k].mT @ rest / own[:, 2, None, None]
        gram = both[:, :, :k]
        root = np.linalg.cholesky(base + (gram + gram.mT) / 2)
        z = np.linalg.solve(root, (prior + both[:, :, k])[:, :, None])
        z = z if noise is None else z + noise[:, :, None]
        return np.linalg.solve(root.mT, z)[:, :, 0]

    def state_rows(
        self, x: Any, data: np.ndarray, length: int, rule: np.ndarray, noise: np.ndarray | None
    ) -> np.ndarray:
        from scipy.linalg.blas import dtbsv

        m, n = place(x).matrix, x.shape[0]
        phi, a, q, p = rule.T
        at = np.repeat(np.arange(n), m.row_counts()) * length + m.indices % length
        h = np.repeat(p, length) * np.bincount(at, data, n * length)
        diagonal = p[:, None] * np.bincount(at, minlength=n * length).reshape(n, length)
        diagonal += q[:, None]
        diagonal[:, 0] += a - q
        diagonal[:, :-1] += (phi * phi * q)[:, None]
        pivots, off_diagonal = _factored(diagonal, -phi * q)
        # L = (unit lower bidiagonal) pivots^1/2
        bands = np.empty((2, n * length))
        bands[0] = root = np.sqrt(pivots)
        bands[1, :-1], bands[1, -1] = off_diagonal * root[:-1], 0.0
        z = dtbsv(1, bands, h, lower=1)
        z = z if noise is None else z + noise.reshape(-1)
        return dtbsv(1, bands, z, lower=1, trans=1).reshape(n, length)

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


class _Own:
    """Which entries rows see, and the precision of their own parts."""

    def __init__(self, x: Any, own: np.ndarray):
        m, shape = place(x).matrix, x.shape
        self.where = np.repeat(np.arange(shape[0]), m.row_counts()), m.indices
        self.seen = np.zeros(shape, bool)
        self.seen[self.where] = True
        phi, v, self.noise = own.T
        step = 1.0 / (v * (1.0 - phi * phi))  # of an innovation
        self.diagonal = np.empty(shape)
        self.diagonal[:] = (step * (1.0 + phi * phi))[:, None]
        self.diagonal[:, -1] = step
        self.diagonal[:, 0] = np.where(shape[1] > 1, step, 1.0 / v)
        self.off_diagonal = -phi * step
        whole = self.diagonal + self.seen / self.noise[:, None]
        self.factor = _factored(whole, self.off_diagonal)
        pivots = np.log(self.factor[0]).reshape(shape).sum(axis=1)
        self.logdet = pivots + np.log(v) - (shape[1] - 1) * np.log(step)

    def scattered(self, data: np.ndarray) -> np.ndarray:
        """Numbers at the entries among zeros."""
        out = np.zeros(self.seen.shape)
        out[self.where] = data
        return out

    def expected(self, a: np.ndarray) -> np.ndarray:
        """K^-1 a / s for columns of numbers, zero where nothing is seen (n x T x columns)."""
        from scipy.linalg.lapack import dpttrs

        heavy = (a / self.noise[:, None, None]).reshape(-1, a.shape[2])
        return np.ascontiguousarray(dpttrs(*self.factor, heavy)[0]).reshape(a.shape)

    def square(self, m: np.ndarray) -> np.ndarray:
        """m^T Q m of every row."""
        steps = (m[:, 1:] * m[:, :-1]).sum(axis=1)
        return (self.diagonal * m * m).sum(axis=1) + 2 * self.off_diagonal * steps


def _factored(diagonal: np.ndarray, off_diagonal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pivots and multipliers of the tridiagonal matrices of all rows in one, n x T on the diagonal
    and a number for each row beside it."""
    from scipy.linalg.lapack import dpttrf

    off = np.repeat(off_diagonal[:, None], diagonal.shape[1], axis=1)
    off[:, -1] = 0.0  # rows do not touch
    pivots, multipliers, failed = dpttrf(diagonal.reshape(-1), off.reshape(-1)[:-1])
    if failed:
        raise np.linalg.LinAlgError("the precision of a time series is not positive definite")
    return pivots, multipliers
