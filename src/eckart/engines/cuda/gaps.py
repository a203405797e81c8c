"""Rows with gaps under a Gaussian of low rank on a device (``arrays.gaps``). The CPU engine takes
over where the noise is so small that rounding hides it and M has no Cholesky factor, and where
hardly an entry is seen: masks are zeros almost everywhere then."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from eckart.engines.arrays.gaps import ArrayGaps
from eckart.engines.protocol import GapCodes, GapStatistics, SeenColumns

FEW = 0.02
"""Share of seen entries below which masks do not pay: a product in float64 makes some fifty
multiply-adds in the time in which a number is fetched."""


class DeviceGaps(ArrayGaps):
    """Statistics, codes and expected entries of rows that are seen in part."""

    on_cpu: Any
    held: Any

    def seen_columns(self, x: Any) -> SeenColumns:
        x = self.held(x)
        return super().seen_columns(x) if x.kind == "observed" else self.on_cpu("seen_columns", x)

    def largest(self, x: Any) -> float:
        x = self.held(x)
        if x.kind == "dense":
            return self.on_cpu("largest", x)
        return float(x.entries.data.abs().amax()) if x.nnz else 0.0

    def gap_statistics(
        self, x: Any, w: np.ndarray, mean: np.ndarray, noise: float
    ) -> GapStatistics:
        x = self.held(x)
        found = None if _hardly_seen(x) else super().gap_statistics(x, w, mean, noise)
        if found is None or not np.isfinite(found.loglik):
            return self.on_cpu("gap_statistics", x, w, mean, noise)
        return found

    def gap_codes(self, x: Any, w: np.ndarray, mean: np.ndarray, noise: float) -> GapCodes:
        x = self.held(x)
        found = None if _hardly_seen(x) else super().gap_codes(x, w, mean, noise)
        if found is None or not bool(torch.isfinite(found.loglik.tensor.sum())):
            return self.on_cpu("gap_codes", x, w, mean, noise)
        return found

    def gap_expect(
        self, x: Any, u: np.ndarray, gain: np.ndarray, mean: np.ndarray, noise: float
    ) -> Any:
        x = self.held(x)
        found = None if _hardly_seen(x) else super().gap_expect(x, u, gain, mean, noise)
        if found is None or not bool(torch.isfinite(found.tensor.sum())):
            return self.on_cpu("gap_expect", x, u, gain, mean, noise)
        return found


def _hardly_seen(x: Any) -> bool:
    rows, n = x.shape
    return not rows or x.nnz < FEW * rows * n
