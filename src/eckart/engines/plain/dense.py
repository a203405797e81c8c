"""Rows against thin matrices, and rows with gaps, in NumPy: slow and obviously right."""

from __future__ import annotations

import numpy as np

from eckart.engines.plain.rows import entry_rows, ones_or
from eckart.engines.protocol import (
    ColumnMoments,
    GapCodes,
    GapStatistics,
    Keeper,
    Moments,
    refuse_bad,
)
from eckart.matrix import Counts, Dense, Observed
from eckart.trace import Watcher, silent


def _array(x: Dense | Counts) -> np.ndarray:
    """All entries in float64."""
    if isinstance(x, Counts):
        out = x.to_scipy().toarray().astype(np.float64)
    elif isinstance(x.values, np.ndarray):
        out = np.asarray(x.values, np.float64)
    else:
        out = np.concatenate([np.asarray(b, np.float64) for b in x.values.blocks(1024)])
    if not np.isfinite(out).all():
        refuse_bad(out, 0)
    return out


class PlainDense:
    """Rows against thin matrices, and rows with gaps."""

    def moments(
        self,
        x: Dense | Counts,
        probe: np.ndarray,
        weights: np.ndarray | None = None,
        watch: Watcher = silent,
        keeper: Keeper | None = None,
    ) -> Moments:
        a = _array(x)
        w = ones_or(weights, len(a))
        mean = w @ a / w.sum()
        c = a - mean
        scatter = c.T @ (w[:, None] * c)
        return Moments(len(a), float(w.sum()), mean, scatter, probe, c.T @ (w * (c @ probe)))

    def column_moments(
        self, x: Dense | Counts, weights: np.ndarray | None = None, watch: Watcher = silent
    ) -> ColumnMoments:
        a = _array(x)
        w = ones_or(weights, len(a))
        mean = w @ a / w.sum()
        return ColumnMoments(len(a), float(w.sum()), mean, w @ (a - mean) ** 2)

    def times(self, x: Dense | Counts, v: np.ndarray, mean: np.ndarray | None) -> np.ndarray:
        return (_array(x) - (0 if mean is None else mean)) @ v

    def times_t(self, x: Dense | Counts, y: np.ndarray, mean: np.ndarray | None) -> np.ndarray:
        return (_array(x) - (0 if mean is None else mean)).T @ y

    def gram_times(
        self,
        x: Dense | Counts,
        v: np.ndarray,
        mean: np.ndarray | None,
        weights: np.ndarray | None = None,
        implicit: bool = False,
    ) -> np.ndarray:
        a = _array(x) - (0 if mean is None else mean)
        return a.T @ (ones_or(weights, len(a))[:, None] * (a @ v))

    def misfit(self, x: Dense | Counts, u: np.ndarray, mean: np.ndarray) -> np.ndarray:
        a = _array(x) - mean
        return ((a - (a @ u) @ u.T) ** 2).sum(axis=1)

    def row_gram(self, x: Dense | Counts, mean: np.ndarray | None) -> np.ndarray:
        a = _array(x) - (0 if mean is None else mean)
        return a @ a.T

    def orth(self, v: np.ndarray, against: np.ndarray | None = None) -> np.ndarray:
        v = np.asarray(v, np.float64)
        if against is not None:
            v = v - against @ (against.T @ v)
        size = np.linalg.norm(v, axis=0).max(initial=0.0)
        u, s, _ = np.linalg.svd(v, full_matrices=False)
        return u[:, s > 1e-10 * max(size, 1e-300)]

    def inner(self, q: np.ndarray, w: np.ndarray) -> np.ndarray:
        return q.T.astype(np.float64) @ w

    def outer(self, q: np.ndarray, s: np.ndarray) -> np.ndarray:
        return q @ s

    def eigh_top(self, c: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        values, vectors = np.linalg.eigh(np.asarray(c, np.float64))
        return values[::-1][:k], vectors[:, ::-1][:, :k]

    def gap_statistics(
        self, x: Observed, w: np.ndarray, mean: np.ndarray, noise: float, weights: np.ndarray | None
    ) -> GapStatistics:
        n, k = w.shape
        gram, cross, square = np.zeros((n, k + 1, k + 1)), np.zeros((n, k + 1)), np.zeros(n)
        second, loglik = np.zeros((k + 1, k + 1)), 0.0
        omega = ones_or(weights, x.shape[0])
        for i, (seen, values) in enumerate(entry_rows(x)):
            post, inverse, row_loglik = _posterior(values, w[seen], mean[seen], noise)
            moment = np.zeros((k + 1, k + 1))
            moment[:k, :k] = noise * inverse + np.outer(post, post)
            moment[:k, k] = moment[k, :k] = post
            moment[k, k] = 1.0
            gram[seen] += omega[i] * moment
            cross[seen] += omega[i] * np.outer(values, moment[k])
            square[seen] += omega[i] * values**2
            second += omega[i] * moment
            loglik += omega[i] * row_loglik
        return GapStatistics(loglik, gram, cross, square, second)

    def gap_codes(self, x: Observed, w: np.ndarray, mean: np.ndarray, noise: float) -> GapCodes:
        rows = x.shape[0]
        codes, loglik, misfit = np.zeros((rows, w.shape[1])), np.zeros(rows), np.zeros(rows)
        for i, (seen, values) in enumerate(entry_rows(x)):
            codes[i], _, loglik[i] = _posterior(values, w[seen], mean[seen], noise)
            misfit[i] = np.sum((values - mean[seen] - w[seen] @ codes[i]) ** 2)
        return GapCodes(codes, loglik, misfit)


def _posterior(
    values: np.ndarray, w: np.ndarray, mean: np.ndarray, noise: float
) -> tuple[np.ndarray, np.ndarray, float]:
    """E[z], (W^T W + noise I)^-1 and the Gaussian log density of one row's observed entries."""
    k = w.shape[1]
    inverse = np.linalg.inv(w.T @ w + noise * np.eye(k))
    post = inverse @ (w.T @ (values - mean))
    covariance = w @ w.T + noise * np.eye(len(values))
    residual = values - mean
    _, logdet = np.linalg.slogdet(covariance)
    quadratic = residual @ np.linalg.solve(covariance, residual)
    return post, inverse, float(-0.5 * (len(values) * np.log(2 * np.pi) + logdet + quadratic))
