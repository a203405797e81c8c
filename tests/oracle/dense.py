"""Rows against thin matrices, and rows with gaps, in NumPy: slow and obviously right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from eckart.decompositions import eigh, svd
from eckart.engines.host import Host, place
from eckart.engines.protocol import (
    ColumnMoments,
    Decomposition,
    GapCodes,
    GapStatistics,
    Keeper,
    Moments,
    SeenColumns,
    Sketch,
    refuse_bad,
)
from eckart.matrix import Dense, Matrix
from eckart.trace import Watcher, silent
from oracle.rows import entry_rows, ones_or


def _array(x: Host) -> np.ndarray:
    """All entries in float64, NaN where unknown."""
    m = x.matrix
    if x.kind == "observed":
        out = np.full(m.shape, np.nan)
        for i, (seen, values) in enumerate(entry_rows(m)):
            out[i, seen] = values
        return out
    if x.kind == "counts":
        return m.to_scipy().toarray().astype(np.float64)
    out = (
        np.asarray(m.values, np.float64)
        if m.in_memory
        else np.concatenate([np.asarray(b, np.float64) for b in m.stream.blocks(1024)])
    )
    refuse_bad(out)
    return out


def _centered(x: Host, mean: np.ndarray | None) -> np.ndarray:
    """Entries minus the mean; nothing where they are unknown."""
    return np.nan_to_num(_array(x) - (0 if mean is None else mean))


class OracleDense:
    """Rows against thin matrices, and rows with gaps."""

    def moments(
        self,
        x: Matrix | Host,
        probe: np.ndarray,
        watch: Watcher = silent,
        keeper: Keeper | None = None,
    ) -> Moments:
        x = place(x)
        a = _array(x)
        w = ones_or(x.weights, len(a))
        mean = w @ a / w.sum()
        c = a - mean
        scatter = c.T @ (w[:, None] * c)
        return Moments(len(a), float(w.sum()), mean, scatter, probe, c.T @ (w * (c @ probe)))

    def column_moments(self, x: Matrix | Host, watch: Watcher = silent) -> ColumnMoments:
        x = place(x)
        a = _array(x)
        w = ones_or(x.weights, len(a))
        mean = w @ a / w.sum()
        return ColumnMoments(len(a), float(w.sum()), mean, w @ (a - mean) ** 2)

    def seen_columns(self, x: Matrix | Host) -> SeenColumns:
        a = _array(place(x))
        seen = ~np.isnan(a)
        count = seen.sum(axis=0)
        mean = np.nansum(a, axis=0) / np.maximum(count, 1)
        return SeenColumns(count, mean, np.nansum((a - mean) ** 2, axis=0))

    def times(self, x: Matrix | Host, v: np.ndarray, mean: np.ndarray | None) -> np.ndarray:
        return _centered(place(x), mean) @ v

    def times_t(self, x: Matrix | Host, y: np.ndarray, mean: np.ndarray | None) -> np.ndarray:
        return _centered(place(x), mean).T @ y

    def gram_times(
        self,
        x: Matrix | Host,
        v: np.ndarray,
        mean: np.ndarray | None,
        weights: np.ndarray | None = None,
        implicit: bool = False,
        rough: bool = False,
    ) -> np.ndarray:
        x = place(x, weights)
        a = _centered(x, mean)
        return a.T @ (ones_or(x.weights, len(a))[:, None] * (a @ v))

    def misfit(self, x: Matrix | Host, u: np.ndarray, mean: np.ndarray) -> np.ndarray:
        a = _centered(place(x), mean)
        return ((a - (a @ u) @ u.T) ** 2).sum(axis=1)

    def row_gram(self, x: Matrix | Host, mean: np.ndarray | None) -> np.ndarray:
        a = _centered(place(x), mean)
        return a @ a.T

    def svd(self, x: Matrix | Host, centered: bool) -> Decomposition:
        x = place(x)
        a = _array(x)
        w = ones_or(x.weights, len(a))
        mean = w @ a / w.sum() if centered else np.zeros(a.shape[1])
        _, values, right = svd(np.sqrt(w)[:, None] * (a - mean), full_matrices=False)
        return Decomposition(len(a), float(w.sum()), mean, values, right)

    def sketch(self, x: Matrix | Host, state: Sketch, watch: Watcher = silent) -> Sketch:
        x = place(x)
        return state.add(_array(x), x.weights)

    def entries(self, x: Matrix | Host) -> np.ndarray:
        x = place(x)
        return _array(x).astype(x.dtype)

    def largest(self, x: Matrix | Host) -> float:
        return float(np.nanmax(np.abs(_array(place(x))), initial=0.0))

    def scaled(self, x: Matrix | Host, factor: float) -> Host:
        x = place(x)
        m = x.matrix
        if x.kind == "dense":
            return place(Dense((_array(x) * factor).astype(x.dtype), m.rows, m.columns), x.weights)
        return place(replace(m, data=(m.data * factor).astype(x.dtype)), x.weights, x.entry_weights)

    def orth(self, v: np.ndarray, against: np.ndarray | None = None) -> np.ndarray:
        u = np.asarray(v, np.float64)
        least = 1e-10 * max(np.linalg.norm(u, axis=0).max(initial=0.0), 1e-300)
        # what the first subtraction leaves of ``against`` by rounding, the second takes off
        for _ in range(2):
            u = u if against is None else u - against @ (against.T @ u)
            u, s, _ = svd(u, full_matrices=False)
            u, least = u[:, s > least], 0.5
        return u

    def inner(self, q: np.ndarray, w: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
        heavy = np.asarray(q, np.float64) * ones_or(weights, len(q))[:, None]
        return heavy.T @ np.asarray(w, np.float64)

    def outer(
        self, q: np.ndarray, s: np.ndarray, plus: np.ndarray | None = None, scale: float = 1.0
    ) -> np.ndarray:
        out = np.asarray(q, np.float64) @ s
        return (out if plus is None else out + scale * np.asarray(plus, np.float64)).astype(q.dtype)

    def triangle(self, v: np.ndarray) -> np.ndarray:
        return np.asarray(np.linalg.qr(np.asarray(v, np.float64), mode="r"))

    def write_columns(self, into: np.ndarray, first: int, columns: np.ndarray) -> None:
        into[:, first : first + columns.shape[1]] = columns

    def eigh_top(self, c: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        values, vectors = eigh(np.asarray(c, np.float64))
        return values[::-1][:k], vectors[:, ::-1][:, :k]

    def covariance(
        self, scatter: np.ndarray, weight: float, mean: np.ndarray | None = None
    ) -> np.ndarray:
        c = scatter / weight
        if mean is not None:
            c += np.outer(mean, mean)
        return (c + c.T) / 2

    def is_below(self, c: np.ndarray, q: np.ndarray, r: np.ndarray, bound: float) -> bool:
        whole = c + q @ r.T + r @ q.T
        try:
            np.linalg.cholesky(bound * np.eye(len(c)) - (whole + whole.T) / 2)
        except np.linalg.LinAlgError:
            return False
        return True

    def gap_statistics(
        self, x: Matrix | Host, w: np.ndarray, mean: np.ndarray, noise: float
    ) -> GapStatistics:
        x = place(x)
        n, k = w.shape
        gram, cross, square = np.zeros((n, k + 1, k + 1)), np.zeros((n, k + 1)), np.zeros(n)
        second, loglik = np.zeros((k + 1, k + 1)), 0.0
        omega = ones_or(x.weights, x.matrix.shape[0])
        for i, (seen, values) in enumerate(entry_rows(x.matrix)):
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

    def gap_solve(self, stats: GapStatistics) -> tuple[np.ndarray, np.ndarray]:
        a, misfit = np.empty(stats.cross.shape), np.empty(len(stats.cross))
        for j, (gram, cross) in enumerate(zip(stats.gram, stats.cross)):
            ridge = 1e-12 * np.trace(gram) / len(gram)
            a[j] = np.linalg.solve(gram + ridge * np.eye(len(gram)), cross)
            misfit[j] = stats.square[j] - 2 * a[j] @ cross + a[j] @ gram @ a[j]
        return a, misfit

    def gap_codes(
        self, x: Matrix | Host, w: np.ndarray, mean: np.ndarray, noise: float
    ) -> GapCodes:
        x = place(x)
        rows = x.matrix.shape[0]
        codes, loglik, misfit = np.zeros((rows, w.shape[1])), np.zeros(rows), np.zeros(rows)
        for i, (seen, values) in enumerate(entry_rows(x.matrix)):
            codes[i], _, loglik[i] = _posterior(values, w[seen], mean[seen], noise)
            misfit[i] = np.sum((values - mean[seen] - w[seen] @ codes[i]) ** 2)
        return GapCodes(codes, loglik, misfit)

    def gap_expect(
        self, x: Matrix | Host, u: np.ndarray, gain: np.ndarray, mean: np.ndarray, noise: float
    ) -> np.ndarray:
        x = place(x)
        u, a = np.asarray(u, np.float64), _array(x)
        expected = self.gap_codes(x, u * gain, mean, noise).codes @ (u * gain).T
        return (np.where(np.isnan(a), expected, a - mean) @ u).astype(x.dtype)


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
