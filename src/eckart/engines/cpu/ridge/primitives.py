"""The primitives of the completion chapter, as part of ``CpuEngine``."""

from __future__ import annotations

from typing import Any

import numpy as np

from eckart.engines.protocol import Evidence, RidgeRule, RowSolution
from eckart.matrix import Observed


class CompletionPrimitives:
    """ridge_rows, sampled and top_columns on ``threads`` threads; numba is loaded when the first of them is called."""

    threads: int

    def ridge_rows(self, x: Observed, right: np.ndarray, rule: RidgeRule, **more: Any) -> RowSolution:
        from eckart.engines.cpu.ridge.schedule import ridge_rows

        return ridge_rows(x, right, rule, threads=self.threads, **more)

    def bias_rows(
        self, x: Observed, rule: RidgeRule, offset: np.ndarray, weights: np.ndarray | None = None
    ) -> np.ndarray:
        from eckart.engines.cpu.ridge.schedule import bias_rows

        return bias_rows(x, rule, offset, weights, self.threads)

    def evidence_rows(self, x: Observed, left: np.ndarray, right: np.ndarray, rule: RidgeRule, **more: Any) -> Evidence:
        from eckart.engines.cpu.entries.evidence import evidence_rows

        return evidence_rows(x, left, right, rule, threads=self.threads, **more)

    def residual_gram(
        self, x: Observed, left: np.ndarray, right: np.ndarray, v: np.ndarray, q: np.ndarray, **more: Any
    ) -> np.ndarray:
        from eckart.engines.cpu.entries.residual_gram import residual_gram

        return residual_gram(x, left, right, v, q, threads=self.threads, **more)

    def offset_times(
        self, x: Observed, v: np.ndarray, mean: float, own: np.ndarray | None, other: np.ndarray | None
    ) -> np.ndarray:
        from eckart.engines.cpu.ridge.schedule import offset_times

        return offset_times(x, v, mean, own, other, self.threads)

    def sampled(self, x: Observed, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        from eckart.engines.cpu.ridge.schedule import dots

        return dots(x, left, right, self.threads)

    def top_columns(
        self, left: np.ndarray, right: np.ndarray, n: int, offset: np.ndarray | None = None, excluded: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        from eckart.engines.cpu.entries.top import top_columns

        return top_columns(left, right, n, offset, excluded, self.threads)
