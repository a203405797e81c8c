"""One small ridge problem for every row, in NumPy: slow and obviously right."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.decompositions import eigh
from eckart.engines.host import place
from eckart.engines.protocol import PrecisionDraws, RidgeRule, RowSolution
from eckart.rng import streams
from oracle.rows import entry_rows, ones_or


class OracleRidge:
    """One small ridge problem for every row."""

    def ridge_rows(
        self,
        x: Any,
        right: np.ndarray,
        rule: RidgeRule,
        *,
        mean: float = 0.0,
        offset: np.ndarray | None = None,
        weights: np.ndarray | None = None,
        own: np.ndarray | float | None = None,
        other: np.ndarray | None = None,
        base: np.ndarray | None = None,
        prior: np.ndarray | None = None,
        noise: np.ndarray | None = None,
        start: np.ndarray | None = None,
        cg_steps: int = 0,
    ) -> RowSolution:
        """The minimum itself, from wherever an iteration would start and however many steps it
        would take."""
        x = place(x)
        v = np.asarray(right, np.float64)
        rows, k = x.counts.shape[0], v.shape[1]
        ridge, bias_ridge = rule.ridges(x.counts)
        left, bias, value = np.zeros((rows, k)), np.zeros(rows), 0.0
        heavy = np.broadcast_to(1.0 if own is None else np.ravel(own), rows)
        omega = entry_weights(x, weights, other)
        h_rows = None if prior is None else np.broadcast_to(np.atleast_2d(prior), (rows, k))
        for i, (seen, data) in enumerate(entry_rows(x.matrix)):
            w = heavy[i] * omega[part_of(x, i)]
            y = data - mean - at(offset, seen)
            pull = w * y
            if rule.alpha:  # weight alpha r of s^2, and alpha r + shift of the linear term
                w = rule.alpha * data
                pull = np.where(w > 0, w + rule.shift, 0.0)
            h = np.zeros(k) if h_rows is None else np.asarray(h_rows[i], np.float64)
            penalty = ridge[i] * np.eye(k) + (0.0 if base is None else base)
            gram, rhs = v[seen].T @ (w[:, None] * v[seen]) + penalty, pull @ v[seen] + h
            slack = w.sum() + bias_ridge[i]
            if rule.bias and slack > 0:  # b = (sum w y - side.u) / slack at any u
                side = w @ v[seen]
                gram, rhs = gram - np.outer(side, side) / slack, rhs - side * pull.sum() / slack
            u = _least(gram, rhs, rule.nonnegative)
            if noise is not None:
                u = u + np.linalg.solve(
                    np.linalg.cholesky(gram).T, np.asarray(noise[i], np.float64)
                )
            b = (pull.sum() - w @ (v[seen] @ u)) / slack if rule.bias and slack > 0 else 0.0
            s = v[seen] @ u + b
            fit = np.sum(pull - 2 * pull * s + w * s**2) if rule.alpha else np.sum(w * (y - s) ** 2)
            value += float(0.5 * fit + 0.5 * u @ penalty @ u - h @ u + 0.5 * bias_ridge[i] * b**2)
            left[i], bias[i] = u, b
        return RowSolution(left, bias if rule.bias else None, value)

    def bias_rows(
        self,
        x: Any,
        rule: RidgeRule,
        offset: np.ndarray | None,
        weights: np.ndarray | None = None,
        *,
        mean: float = 0.0,
    ) -> np.ndarray:
        x = place(x)
        _, ridge = rule.ridges(x.counts)
        omega, out = entry_weights(x, weights), np.zeros(len(ridge))
        for i, (seen, values) in enumerate(entry_rows(x.matrix)):
            w = omega[part_of(x, i)]
            if w.sum() + ridge[i] > 0:
                out[i] = w @ (values - mean - at(offset, seen)) / (w.sum() + ridge[i])
        return out

    def ridge_penalty(
        self, x: Any, rule: RidgeRule, factor: np.ndarray, bias: np.ndarray | None
    ) -> float:
        ridge, bias_ridge = rule.ridges(place(x).counts)
        total = ridge @ (np.asarray(factor, np.float64) ** 2).sum(axis=1)
        return float(
            0.5 * total
            + (0.0 if bias is None else 0.5 * bias_ridge @ np.asarray(bias, np.float64) ** 2)
        )

    def misfit_rows(
        self,
        x: Any,
        left: np.ndarray,
        right: np.ndarray,
        *,
        offset: np.ndarray | None = None,
        other: np.ndarray | None = None,
    ) -> np.ndarray:
        x = place(x)
        u, v = np.asarray(left, np.float64), np.asarray(right, np.float64)
        omega, out = entry_weights(x, None, other), np.zeros((len(u), 1))
        for i, (seen, values) in enumerate(entry_rows(x.matrix)):
            out[i] = omega[part_of(x, i)] @ (values - at(offset, seen) - v[seen] @ u[i]) ** 2
        return out

    def pair_rows(
        self, one: np.ndarray, two: np.ndarray, first: np.ndarray, second: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        x, y = np.asarray(one, np.float64)[first], np.asarray(two, np.float64)[second]
        design = np.column_stack([x[:, :-1] + y[:, :-1], np.ones(len(x))])
        return design, (x[:, -1] + y[:, -1] + (x[:, :-1] * y[:, :-1]).sum(axis=1))[:, None]

    def precision_rows(
        self,
        seed: tuple[int, ...],
        misfit: np.ndarray,
        counts: np.ndarray,
        shape: float,
        scale: float,
        floor: float,
    ) -> PrecisionDraws:
        p = np.empty_like(misfit)
        for rows, rng in streams(seed, len(p)):
            p[rows] = rng.gamma(0.5 * (shape + counts[rows])) / (
                0.5 * (shape / scale + misfit[rows])
            )
        p = np.clip(p, floor, 1.0 / floor)
        return PrecisionDraws(
            p, float(p.sum()), float(np.log(p).sum()), float((counts * np.log(p)).sum())
        )


def part_of(x: Any, i: int) -> slice:
    """Where the entries of row i stand."""
    return slice(x.matrix.indptr[i], x.matrix.indptr[i + 1])


def at(numbers: np.ndarray | None, seen: np.ndarray) -> Any:
    """Numbers of the columns seen, 0 where there are none."""
    return 0.0 if numbers is None else np.ravel(np.asarray(numbers, np.float64))[seen]


def entry_weights(
    x: Any, weights: np.ndarray | None, other: np.ndarray | None = None
) -> np.ndarray:
    """The weight of every entry, those of its column included."""
    omega = ones_or(x.entry_weights if weights is None else weights, x.nnz)
    return (
        omega
        if other is None
        else omega * np.ravel(np.asarray(other, np.float64))[x.matrix.indices]
    )


def _least(gram: np.ndarray, rhs: np.ndarray, nonnegative: bool) -> np.ndarray:
    """argmin 1/2 u^T G u - r.u, of least norm where there are many; over u >= 0 where asked."""
    if not nonnegative:
        return np.linalg.lstsq(gram, rhs, rcond=1e-11)[0]
    from scipy.optimize import nnls

    values, vectors = eigh(gram)
    kept = values > 1e-11 * max(values.max(initial=0.0), 1e-300)
    root = np.sqrt(values[kept])
    return (
        nnls(root[:, None] * vectors[:, kept].T, vectors[:, kept].T @ rhs / root)[0]
        if kept.any()
        else 0.0 * rhs
    )
