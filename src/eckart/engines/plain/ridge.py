"""One small ridge problem for every row, in NumPy: slow and obviously right."""

from __future__ import annotations

import numpy as np

from eckart.engines.plain.rows import entry_rows, ones_or
from eckart.engines.protocol import (
    RidgeRule,
    RowSolution,
)
from eckart.matrix import Observed


class PlainRidge:
    """One small ridge problem for every row."""

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
        omega = ones_or(weights, x.nnz)
        for i, (seen, data) in enumerate(entry_rows(x)):
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
        omega, out = ones_or(weights, x.nnz), np.zeros(x.shape[0])
        for i, (seen, values) in enumerate(entry_rows(x)):
            w = omega[x.indptr[i] : x.indptr[i + 1]]
            if w.sum() + ridge[i] > 0:
                out[i] = w @ (values - offset[seen]) / (w.sum() + ridge[i])
        return out


def _least(gram: np.ndarray, rhs: np.ndarray, nonnegative: bool) -> np.ndarray:
    """argmin 1/2 u^T G u - r.u, of least norm where there are many; over u >= 0 where asked."""
    if not nonnegative:
        return np.linalg.lstsq(gram, rhs, rcond=1e-11)[0]
    from scipy.optimize import nnls

    values, vectors = np.linalg.eigh(gram)
    kept = values > 1e-11 * max(values.max(initial=0.0), 1e-300)
    root = np.sqrt(values[kept])
    return nnls(root[:, None] * vectors[:, kept].T, vectors[:, kept].T @ rhs / root)[0] if kept.any() else 0.0 * rhs
