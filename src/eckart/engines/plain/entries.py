"""Low rank met at the stored entries, in NumPy: slow and obviously right."""

from __future__ import annotations

from typing import Any

import numpy as np


class PlainEntries:
    """Low rank met at the stored entries."""

    def sampled(self, x: Any, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        i, j = positions(x)
        return np.einsum("pc,pc->p", np.asarray(left, np.float64)[i], np.asarray(right, np.float64)[j])

    def residual(self, x: Any, data: np.ndarray, left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, float]:
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


def positions(x: Any) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of every stored entry, in row order."""
    matrix = getattr(x, "matrix", x)
    return np.repeat(np.arange(matrix.shape[0]), matrix.row_counts()), matrix.indices
