"""The mixture primitives in NumPy, slow and obviously right: whole arrays, dense covariances, one
row and one component at a time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from eckart.engines.host import place
from eckart.engines.protocol import refuse_bad
from eckart.engines.protocol.mixtures import (
    DIAGONAL,
    TINY,
    FactorStatistics,
    Gaussians,
    GaussianStatistics,
    GroupSums,
    Posteriors,
    raw_to_statistics,
)
from eckart.matrix import Counts, Dense
from eckart.trace import Watcher, silent
from oracle.rows import entry_rows, ones_or


class OracleMixtures:
    """The mixture part of ``OracleEngine``."""

    def gaussian_statistics(self, x: Any, theta: Gaussians, watch: Watcher = silent) -> Any:
        a = _rows(x)
        w = ones_or(place(x).weights, len(a))
        loglik, q = _posterior(a, theta)
        q = q * w[:, None]
        bound = float(w @ np.where(w > 0, loglik, 0.0))
        if theta.kind == "factor":
            return _factor_statistics(a, q, theta, float(w.sum()), bound)
        k, n = theta.means.shape
        shift, scatter, seen = np.zeros((k, n)), np.zeros((k, n, n)), np.zeros((k, n))
        for i, row in enumerate(a):
            there = ~np.isnan(row)
            for z in range(k):
                mean, covariance = _completed(row, theta.means[z], theta.covariance(z))
                d = mean - theta.means[z]
                if theta.kind in DIAGONAL:  # what is missing is left out, not expected
                    covariance = np.zeros((n, n))
                    seen[z] += q[i, z] * there
                shift[z] += q[i, z] * d
                scatter[z] += q[i, z] * (np.outer(d, d) + covariance)
        gaps = theta.kind in DIAGONAL and bool(np.isnan(a).any())
        sums: Any = {
            "diag": np.diagonal(scatter, axis1=1, axis2=2),
            "tied": scatter.sum(axis=0),
            "full": scatter,
        }["diag" if theta.kind in DIAGONAL else theta.kind]
        raw = SimpleNamespace(
            counts=q.sum(axis=0),
            seen=seen if gaps else None,
            shift=shift,
            scatter=sums,
            weight=float(w.sum()),
            bound=bound,
        )
        return raw_to_statistics(theta, raw)

    def share_statistics(self, x: Any, shares: np.ndarray, kind: str) -> GaussianStatistics:
        a = _rows(x)
        if np.isnan(a).any():
            refuse_bad(a)
        q = shares * ones_or(place(x).weights, len(a))[:, None]
        counts = q.sum(axis=0)
        means = q.T @ a / np.where(counts > 0, counts, 1.0)[:, None]
        scatter: Any = np.array(
            [(a - m).T @ (q[:, z, None] * (a - m)) for z, m in enumerate(means)]
        )
        if kind in DIAGONAL:
            scatter = np.diagonal(scatter, axis1=1, axis2=2)
        elif kind == "tied":
            scatter = scatter.sum(axis=0)
        return GaussianStatistics(
            kind,
            float(ones_or(place(x).weights, len(a)).sum()),
            0.0,
            counts,
            counts[:, None],
            means,
            scatter,
        )

    def gaussian_posteriors(
        self, x: Any, theta: Gaussians, *, shares: bool = False, fill: bool = False
    ) -> Posteriors:
        a = _rows(x)
        loglik, q = _posterior(a, theta)
        if not fill:
            return Posteriors(loglik, q if shares else None)
        filled, variance = np.zeros(a.shape), np.zeros(a.shape)
        for i, row in enumerate(a):
            parts = [_completed(row, theta.means[z], theta.covariance(z)) for z in range(theta.k)]
            means, variances = (
                np.array([m for m, _ in parts]),
                np.array([np.diagonal(c) for _, c in parts]),
            )
            filled[i] = q[i] @ means
            variance[i] = q[i] @ (variances + means**2) - filled[i] ** 2
        there = ~np.isnan(a)
        return Posteriors(loglik, q, np.where(there, a, filled), np.where(there, 0.0, variance))

    def check_family(self, x: Any, family: Any) -> None:
        a = _rows(x)
        if not getattr(family, "gaps", False):
            refuse_bad(a)
        if hasattr(family, "check"):
            family.check(a, 0)

    def family_statistics(
        self, x: Any, family: Any, weights: np.ndarray, parameters: Any
    ) -> tuple[float, float, np.ndarray, Any]:
        a = _rows(x)
        w = ones_or(place(x).weights, len(a))
        loglik, q = self.family_posteriors(x, family, weights, parameters)[:2]
        assert q is not None
        q = q * w[:, None]
        return (
            float(w.sum()),
            float(w @ np.where(w > 0, loglik, 0.0)),
            q.sum(axis=0),
            family.statistics(a, q),
        )

    def family_posteriors(
        self, x: Any, family: Any, weights: np.ndarray, parameters: Any
    ) -> Posteriors:
        return Posteriors(
            *_shares(np.log(np.maximum(weights, TINY)) + family.log_prob(_rows(x), parameters))
        )

    def rows_at(self, x: Any, rows: np.ndarray | None = None) -> np.ndarray:
        a = _rows(x).astype(x.dtype)
        return a if rows is None else a[rows[rows < len(a)]]

    def gap_patterns(self, x: Any) -> list[tuple[np.ndarray, np.ndarray]]:
        seen = ~np.isnan(_rows(x))
        masks, which = np.unique(seen, axis=0, return_inverse=True)
        return [(np.flatnonzero(which.ravel() == g), mask) for g, mask in enumerate(masks)]

    def distances(self, x: Any, centres: np.ndarray) -> np.ndarray:
        return ((_rows(x)[:, None] - centres) ** 2).sum(axis=2)

    def group_sums(self, x: Any, centres: np.ndarray) -> GroupSums:
        a = _rows(x)
        q = (
            np.eye(len(centres))[self.nearest(x, centres)]
            * ones_or(place(x).weights, len(a))[:, None]
        )
        return GroupSums(q.sum(axis=0), q.T @ a)

    def nearest(self, x: Any, centres: np.ndarray) -> np.ndarray:
        return self.distances(x, centres).argmin(axis=1)


def _rows(x: Any) -> np.ndarray:
    """All rows in float64, NaN at unknown entries; an infinity is refused."""
    matrix = place(x).matrix
    if isinstance(matrix, Dense):
        blocks = (
            [matrix.values] if isinstance(matrix.values, np.ndarray) else matrix.values.blocks(1024)
        )
        out = np.concatenate([np.array(b, matrix.dtype) for b in blocks]).astype(np.float64)
    else:
        out = np.full(matrix.shape, 0.0 if isinstance(matrix, Counts) else np.nan)
        for i, (columns, values) in enumerate(entry_rows(matrix)):
            out[i, columns] = values
    if np.isinf(out).any():
        refuse_bad(out)
    return out


def _posterior(a: np.ndarray, theta: Gaussians) -> tuple[np.ndarray, np.ndarray]:
    """log p of the observed entries of each row, and shares."""
    logp = np.empty((len(a), theta.k))
    for i, row in enumerate(a):
        there = ~np.isnan(row)
        for z in range(theta.k):
            s, d = theta.covariance(z)[np.ix_(there, there)], (row - theta.means[z])[there]
            logdet = np.linalg.slogdet(2 * np.pi * s)[1]
            logp[i, z] = theta.log_weights[z] - 0.5 * (logdet + d @ np.linalg.solve(s, d))
    return _shares(logp)


def _shares(logp: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    total = np.logaddexp.reduce(logp, axis=1)
    return total, np.exp(logp - total[:, None])


def _completed(row: np.ndarray, mean: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """E[x | observed] and Cov[x | observed] under one Gaussian."""
    there, gone = ~np.isnan(row), np.isnan(row)
    out, covariance = row.copy(), np.zeros(s.shape)
    gain = np.linalg.solve(s[np.ix_(there, there)], s[np.ix_(there, gone)])
    out[gone] = mean[gone] + (row - mean)[there] @ gain
    covariance[np.ix_(gone, gone)] = s[np.ix_(gone, gone)] - s[np.ix_(gone, there)] @ gain
    return out, covariance


def _factor_statistics(
    a: np.ndarray, q: np.ndarray, theta: Gaussians, weight: float, bound: float
) -> FactorStatistics:
    assert theta.loadings is not None
    assert theta.origin is not None
    k, n, r = theta.loadings.shape
    second, cross, square = np.zeros((k, r + 1, r + 1)), np.zeros((k, n, r + 1)), np.zeros((k, n))
    for i, row in enumerate(a):
        for z in range(k):
            w = theta.loadings[z]
            both = np.block([[theta.covariance(z), w], [w.T, np.eye(r)]])  # of (x, code) together
            whole, spread = _completed(
                np.concatenate([row, np.full(r, np.nan)]),
                np.concatenate([theta.means[z], np.zeros(r)]),
                both,
            )
            y = np.concatenate([whole[:n] - theta.origin, whole[n:], [1.0]])
            moment = np.outer(y, y)
            moment[: n + r, : n + r] += spread
            second[z] += q[i, z] * moment[n:, n:]
            cross[z] += q[i, z] * moment[:n, n:]
            square[z] += q[i, z] * np.diagonal(moment)[:n]
    return FactorStatistics("factor", weight, bound, q.sum(axis=0), second, cross, square)
