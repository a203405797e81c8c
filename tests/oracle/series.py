"""Rows that are time series, in NumPy: every covariance and every precision is written out."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.engines.protocol.series import LagProducts


class OracleSeries:
    """The primitives of ``protocol.series``."""

    def own_likelihood(self, x: Any, data: np.ndarray, own: np.ndarray) -> np.ndarray:
        out = np.zeros((x.shape[0], 1))
        for i, (columns, values) in enumerate(_rows(x, data)):
            root = (
                np.linalg.cholesky(_covariance(columns, own[i]))
                if len(columns)
                else np.zeros((0, 0))
            )
            z = np.linalg.solve(root, values)
            out[i] = (
                -0.5 * (z @ z) - np.log(np.diagonal(root)).sum() - 0.5 * len(z) * np.log(2 * np.pi)
            )
        return out

    def own_rows(
        self,
        x: Any,
        data: np.ndarray,
        right: np.ndarray,
        own: np.ndarray,
        base: np.ndarray,
        prior: np.ndarray,
        noise: Any,
    ) -> np.ndarray:
        out = np.zeros((x.shape[0], right.shape[1]))
        for i, (columns, values) in enumerate(_rows(x, data)):
            v = np.linalg.solve(
                _covariance(columns, own[i]), np.column_stack([right[columns], values])
            )
            root = np.linalg.cholesky(base + right[columns].T @ v[:, :-1])
            out[i] = _solved(
                root, prior + right[columns].T @ v[:, -1], None if noise is None else noise[i]
            )
        return out

    def state_rows(
        self, x: Any, data: np.ndarray, length: int, rule: np.ndarray, noise: Any
    ) -> np.ndarray:
        out = np.zeros((x.shape[0], length))
        for i, (columns, values) in enumerate(_rows(x, data)):
            phi, a, q, p = rule[i]
            steps = np.eye(length) - phi * np.eye(length, k=-1)
            precision = steps.T @ np.diag(np.append(a, np.full(length - 1, q))) @ steps
            h = np.zeros(length)
            np.add.at(precision, (columns % length, columns % length), p)
            np.add.at(h, columns % length, p * values)
            out[i] = _solved(np.linalg.cholesky(precision), h, None if noise is None else noise[i])
        return out

    def less_states(
        self, x: Any, data: np.ndarray, states: np.ndarray, sign: float = 1.0
    ) -> np.ndarray:
        rows = np.repeat(np.arange(x.shape[0]), x.counts)
        return data - sign * states[rows, x.matrix.indices % states.shape[1]]

    def chain_rows(
        self,
        x: Any,
        data: np.ndarray,
        right: np.ndarray,
        other: np.ndarray,
        link: np.ndarray,
        first: np.ndarray,
        step: np.ndarray,
        noise: Any,
    ) -> np.ndarray:
        n, k = x.shape[0], right.shape[1]
        steps = np.eye(n * k) - np.kron(np.eye(n, k=-1), link)
        inner = np.kron(np.eye(n), step)
        inner[:k, :k] = first
        precision, h = steps.T @ inner @ steps, np.zeros(n * k)
        for i, (columns, values) in enumerate(_rows(x, data)):
            at, v, w = slice(i * k, (i + 1) * k), right[columns], other[columns, 0]
            precision[at, at] += (v.T * w) @ v
            h[at] = v.T @ (w * values)
        return _solved(
            np.linalg.cholesky(precision), h, None if noise is None else noise.reshape(-1)
        ).reshape(n, k)

    def lag_products(self, a: np.ndarray) -> LagProducts:
        return LagProducts(a[:-1].T @ a[:-1], a[:-1].T @ a[1:], a[1:].T @ a[1:], a[0].copy())

    def step_squares(self, states: np.ndarray) -> np.ndarray:
        return np.square(np.diff(states, axis=1)).sum(axis=1, keepdims=True)


def _rows(x: Any, data: np.ndarray) -> Any:
    """Columns and numbers of each row."""
    m = x.matrix
    return (
        (m.indices[a:b].astype(np.int64), data[a:b]) for a, b in zip(m.indptr[:-1], m.indptr[1:])
    )


def _covariance(columns: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Of r + e at these columns."""
    phi, variance, noise = own
    return variance * phi ** np.abs(columns[:, None] - columns) + noise * np.eye(len(columns))


def _solved(root: np.ndarray, h: np.ndarray, noise: np.ndarray | None) -> np.ndarray:
    z = np.linalg.solve(root, h)
    return np.linalg.solve(root.T, z if noise is None else z + noise)
