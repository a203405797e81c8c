"""Low rank met at the stored entries, in NumPy: slow and obviously right."""

from __future__ import annotations

import numpy as np

from eckart.engines.plain.rows import entry_rows
from eckart.matrix import Observed


class PlainEntries:
    """Low rank met at the stored entries."""

    def sampled(self, x: Observed, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        whole = np.asarray(left, np.float64) @ np.asarray(right, np.float64).T
        return np.concatenate([np.zeros(0), *(whole[i, seen] for i, (seen, _) in enumerate(entry_rows(x)))])

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
