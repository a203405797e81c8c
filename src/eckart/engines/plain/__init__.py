"""Every primitive in NumPy, slow and obviously right: the specification and the judge of the other engines."""

from __future__ import annotations

import numpy as np

from eckart.engines.cpu.row_blocks import refuse_bad
from eckart.engines.plain.mixtures import PlainMixtures
from eckart.engines.plain.parts import PlainNonnegative
from eckart.engines.plain.topics import PlainTopics
from eckart.engines.plain.windows import PlainSkipGram
from eckart.engines.plain.words import PlainPairs
from eckart.engines.protocol import ColumnMoments, GapCodes, GapStatistics, Keeper, Moments, RidgeRule, RowSolution
from eckart.matrix import Counts, Dense, Matrix, Observed
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


def _weights(weights: np.ndarray | None, rows: int) -> np.ndarray:
    return np.ones(rows) if weights is None else np.asarray(weights, np.float64)


class PlainEngine(PlainTopics, PlainMixtures, PlainNonnegative, PlainPairs, PlainSkipGram):
    """The reference engine: float64, one thread, whole arrays."""

    name = "plain"

    def put(self, matrix: Matrix) -> Matrix:
        return matrix

    def moments(
        self,
        x: Dense | Counts,
        probe: np.ndarray,
        weights: np.ndarray | None = None,
        watch: Watcher = silent,
        keeper: Keeper | None = None,
    ) -> Moments:
        a = _array(x)
        w = _weights(weights, len(a))
        mean = w @ a / w.sum()
        c = a - mean
        scatter = c.T @ (w[:, None] * c)
        return Moments(len(a), float(w.sum()), mean, scatter, probe, c.T @ (w * (c @ probe)))

    def column_moments(
        self, x: Dense | Counts, weights: np.ndarray | None = None, watch: Watcher = silent
    ) -> ColumnMoments:
        a = _array(x)
        w = _weights(weights, len(a))
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
        return a.T @ (_weights(weights, len(a))[:, None] * (a @ v))

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
        omega = _weights(weights, x.shape[0])
        for i, (seen, values) in enumerate(_rows(x)):
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
        for i, (seen, values) in enumerate(_rows(x)):
            codes[i], _, loglik[i] = _posterior(values, w[seen], mean[seen], noise)
            misfit[i] = np.sum((values - mean[seen] - w[seen] @ codes[i]) ** 2)
        return GapCodes(codes, loglik, misfit)

    def ridge_rows(
        self,
        x: Observed,
        right: np.ndarray,
        rule: RidgeRule,
        *,
        offset: np.ndarray | None = None,
        weights: np.ndarray | None = None,
        base: np.ndarray | None = None,
        prior: np.ndarray | None = None,
        noise: np.ndarray | None = None,
        start: np.ndarray | None = None,
        cg_steps: int = 0,
    ) -> RowSolution:
        """The minimum itself, from wherever an iteration would start and however many steps it would take."""
        v = np.asarray(right, np.float64)
        k = v.shape[1]
        ridge, bias_ridge = rule.ridges(x.row_counts())
        left, bias, value = np.zeros((x.shape[0], k)), np.zeros(x.shape[0]), 0.0
        omega = _weights(weights, x.nnz)
        for i, (seen, data) in enumerate(_rows(x)):
            w, y = omega[x.indptr[i] : x.indptr[i + 1]], data - (0.0 if offset is None else offset[seen])
            pull = w * y
            if rule.alpha:  # weight alpha r of s^2, and alpha r + shift of the linear term
                w = rule.alpha * data
                pull = np.where(w > 0, w + rule.shift, 0.0)
            h = np.zeros(k) if prior is None else np.asarray(prior[i], np.float64)
            penalty = ridge[i] * np.eye(k) + (0.0 if base is None else base)
            gram, rhs = v[seen].T @ (w[:, None] * v[seen]) + penalty, pull @ v[seen] + h
            slack = w.sum() + bias_ridge[i]
            if rule.bias and slack > 0:  # b = (sum w y - side.u) / slack at any u
                side = w @ v[seen]
                gram, rhs = gram - np.outer(side, side) / slack, rhs - side * pull.sum() / slack
            u = _least(gram, rhs, rule.nonnegative)
            if noise is not None:
                u = u + np.linalg.solve(np.linalg.cholesky(gram).T, np.asarray(noise[i], np.float64))
            b = (pull.sum() - w @ (v[seen] @ u)) / slack if rule.bias and slack > 0 else 0.0
            s = v[seen] @ u + b
            fit = np.sum(pull - 2 * pull * s + w * s**2) if rule.alpha else np.sum(w * (y - s) ** 2)
            value += float(0.5 * fit + 0.5 * u @ penalty @ u - h @ u + 0.5 * bias_ridge[i] * b**2)
            left[i], bias[i] = u, b
        return RowSolution(left, bias if rule.bias else None, value)

    def bias_rows(
        self, x: Observed, rule: RidgeRule, offset: np.ndarray, weights: np.ndarray | None = None
    ) -> np.ndarray:
        _, ridge = rule.ridges(x.row_counts())
        omega, out = _weights(weights, x.nnz), np.zeros(x.shape[0])
        for i, (seen, values) in enumerate(_rows(x)):
            w = omega[x.indptr[i] : x.indptr[i + 1]]
            if w.sum() + ridge[i] > 0:
                out[i] = w @ (values - offset[seen]) / (w.sum() + ridge[i])
        return out

    def sampled(self, x: Observed, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        whole = np.asarray(left, np.float64) @ np.asarray(right, np.float64).T
        return np.concatenate([np.zeros(0), *(whole[i, seen] for i, (seen, _) in enumerate(_rows(x)))])

    def top_columns(
        self,
        left: np.ndarray,
        right: np.ndarray,
        n: int,
        offset: np.ndarray | None = None,
        excluded: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        scores = np.asarray(left, np.float64) @ np.asarray(right, np.float64).T + (0.0 if offset is None else offset)
        if excluded is not None:
            indptr, indices, rows = excluded
            for q, i in enumerate(rows):
                scores[q, indices[indptr[i] : indptr[i + 1]]] = -np.inf
        order = np.argsort(-scores, axis=1, kind="stable")[:, :n]
        best = np.take_along_axis(scores, order, axis=1)
        return np.where(np.isneginf(best), -1, order), best


def _least(gram: np.ndarray, rhs: np.ndarray, nonnegative: bool) -> np.ndarray:
    """argmin 1/2 u^T G u - r.u, of least norm where there are many; over u >= 0 where asked."""
    if not nonnegative:
        return np.linalg.lstsq(gram, rhs, rcond=1e-11)[0]
    from scipy.optimize import nnls

    values, vectors = np.linalg.eigh(gram)
    kept = values > 1e-11 * max(values.max(initial=0.0), 1e-300)
    root = np.sqrt(values[kept])
    return nnls(root[:, None] * vectors[:, kept].T, vectors[:, kept].T @ rhs / root)[0] if kept.any() else 0.0 * rhs


def _rows(x: Observed):
    for i in range(x.shape[0]):
        part = slice(x.indptr[i], x.indptr[i + 1])
        yield x.indices[part], x.data[part].astype(np.float64)


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
