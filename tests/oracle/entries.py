"""Low rank met at the stored entries, in NumPy: slow and obviously right."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.engines.host import place
from eckart.engines.protocol import Evidence, EvidenceSums, RidgeRule
from oracle.ridge import at, entry_weights
from oracle.rows import entry_rows


class OracleEntries:
    """Low rank met at the stored entries."""

    def sampled(self, x: Any, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        i, j = positions(x)
        return np.einsum(
            "pc,pc->p", np.asarray(left, np.float64)[i], np.asarray(right, np.float64)[j]
        )

    def residual(
        self, x: Any, data: np.ndarray, left: np.ndarray, right: np.ndarray
    ) -> tuple[np.ndarray, float]:
        rest = np.asarray(data, np.float64) - self.sampled(x, left, right)
        return rest, float(rest @ rest)

    def by_columns(self, x: Any, data: np.ndarray) -> np.ndarray:
        return np.asarray(data)[np.argsort(positions(x)[1], kind="stable")]

    def entry_times(self, x: Any, data: np.ndarray, v: np.ndarray) -> np.ndarray:
        i, j = positions(x)
        out = np.zeros((x.shape[0], v.shape[1]))
        np.add.at(out, i, np.asarray(data, np.float64)[:, None] * v[j])
        return out

    def entry_times_t(self, x: Any, t_data: np.ndarray, y: np.ndarray) -> np.ndarray:
        i, j = positions(x)
        order = np.argsort(j, kind="stable")
        out = np.zeros((x.shape[1], y.shape[1]))
        np.add.at(out, j[order], np.asarray(t_data, np.float64)[:, None] * y[i[order]])
        return out

    def evidence_rows(
        self,
        x: Any,
        left: np.ndarray,
        right: np.ndarray,
        rule: RidgeRule,
        *,
        mean: float = 0.0,
        own: np.ndarray | None = None,
        other: np.ndarray | None = None,
        weights: np.ndarray | None = None,
        spread: float = 0.0,
    ) -> Evidence:
        """By the whole matrix."""
        x, u, v = place(x), np.asarray(left, np.float64), np.asarray(right, np.float64)
        r, w, q, y = _residual(x, u, v, rule, mean, own, other, weights)
        s, seen, a = u @ v.T, _dense(x, np.ones(x.nnz)) > 0, _dense(x, x.matrix.data)
        ridge, bias_ridge = rule.ridges(x.counts)
        sums = dict.fromkeys(EvidenceSums._fields, 0.0)
        if rule.alpha:
            whole, z = spread + w[seen], (spread * s - r)[seen]
            sums["value"], sums["zero"] = (
                0.5 * np.sum((q - 2 * q * s + w * s**2)[seen]),
                0.5 * q.sum(),
            )
            sums["square"], sums["cross"] = np.sum(z**2 / (2 * whole)), np.sum(z * q[seen] / whole)
            sums["constant"], sums["dots"] = (
                np.sum(q[seen] ** 2 / (2 * whole) - q[seen] / 2),
                np.sum(s[seen] ** 2),
            )
        else:
            sums["value"] = sums["square"] = 0.5 * np.sum((w * (y - s) ** 2)[seen])
            sums["linear"], sums["zero"] = (
                np.sum(((a - mean) * r)[seen]),
                0.5 * np.sum((w * (a - mean) ** 2)[seen]),
            )
        pull, push, row_sum = r @ v, ridge[:, None] * u + spread * u @ v.T @ v, r.sum(axis=1)
        slope = push - pull
        if rule.nonnegative:
            slope = np.where(u > 0, slope, np.minimum(slope, 0.0))
        sums["slope"], sums["pull"], sums["push"] = (np.sum(m**2) for m in (slope, pull, push))
        if own is not None:
            push = bias_ridge * np.asarray(own, np.float64)
            sums["bias_slope"], sums["bias_pull"], sums["bias_push"] = (
                np.sum(m**2) for m in (push - row_sum, row_sum, push)
            )
            free = bias_ridge <= 0
            sums["bias_cost"] = (
                np.inf if row_sum[free].any() else np.sum(row_sum[~free] ** 2 / bias_ridge[~free])
            )
        return Evidence(
            pull, row_sum, EvidenceSums(**{name: float(value) for name, value in sums.items()})
        )

    def residual_gram(
        self,
        x: Any,
        left: np.ndarray,
        right: np.ndarray,
        v: np.ndarray,
        q: np.ndarray,
        rule: RidgeRule,
        *,
        mean: float = 0.0,
        own: np.ndarray | None = None,
        other: np.ndarray | None = None,
        spread: float = 0.0,
    ) -> np.ndarray:
        u, w = np.asarray(left, np.float64), np.asarray(right, np.float64)
        m = _residual(place(x), u, w, rule, mean, own, other, None)[0] - spread * u @ w.T
        return m.T @ (np.ravel(q)[:, None] * (m @ v))

    def offset_times(
        self,
        x: Any,
        v: np.ndarray,
        mean: float,
        own: np.ndarray | None,
        other: np.ndarray | None,
        row_scale: np.ndarray | None = None,
        column_scale: np.ndarray | None = None,
    ) -> np.ndarray:
        x, block = place(x), np.asarray(v, np.float64)
        out = np.zeros((x.counts.shape[0], block.shape[1]))
        for i, (seen, values) in enumerate(entry_rows(x.matrix)):
            y = values - mean - (0.0 if own is None else own[i]) - at(other, seen)
            out[i] = (y * (1.0 if column_scale is None else at(column_scale, seen))) @ block[seen]
        return out if row_scale is None else np.reshape(row_scale, (-1, 1)) * out

    def top_columns(
        self,
        left: np.ndarray,
        right: np.ndarray,
        n: int,
        offset: np.ndarray | None = None,
        excluded: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        scores = np.asarray(left, np.float64) @ np.asarray(right, np.float64).T + (
            0.0 if offset is None else offset
        )
        if excluded is not None:
            indptr, indices, rows = excluded
            for q, i in enumerate(rows):
                scores[q, indices[indptr[i] : indptr[i + 1]]] = -np.inf
        order = np.argsort(-scores, axis=1, kind="stable")[:, :n]
        best = np.take_along_axis(scores, order, axis=1)
        return np.where(np.isneginf(best), -1, order), best


def positions(x: Any) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of every stored entry, in row order."""
    matrix = getattr(x, "matrix", x)
    return np.repeat(np.arange(matrix.shape[0]), matrix.row_counts()), matrix.indices


def _residual(
    x: Any,
    u: np.ndarray,
    v: np.ndarray,
    rule: RidgeRule,
    mean: float,
    own: Any,
    other: Any,
    weights: Any,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """R, weights, right-hand side weights and targets as whole matrices; R is zero where nothing is
    stored."""
    s, a, seen = u @ v.T, _dense(x, x.matrix.data), _dense(x, np.ones(x.nnz)) > 0
    if rule.alpha:
        w = rule.alpha * a
        q = np.where(w > 0, w + rule.shift, 0.0)
        return np.where(seen, q - w * s, 0.0), w, q, np.ones_like(a)
    w, y = _dense(x, entry_weights(x, weights)), a - mean
    y = (
        y
        - (0.0 if own is None else np.ravel(own)[:, None])
        - (0.0 if other is None else np.ravel(other))
    )
    return np.where(seen, w * (y - s), 0.0), w, w * y, y


def _dense(x: Any, numbers: np.ndarray) -> np.ndarray:
    """Numbers of the stored entries as a whole matrix, zeros elsewhere."""
    out = np.zeros(x.shape)
    out[np.repeat(np.arange(len(out)), x.counts), x.matrix.indices] = numbers
    return out
