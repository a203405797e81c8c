"""Low rank met at the stored entries, and the best columns of each row: the primitives and their records. Shapes and letters as in ``protocol``."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from eckart.engines.protocol.ridge import RidgeRule
from eckart.matrix import Observed


class Evidence(NamedTuple):
    """Sums over stored entries that a certificate is made of (see ``engines.cpu.entries.evidence``); R is the negative gradient by B."""

    pull: np.ndarray  # sum_j R_ij v_j of each row
    row_sum: np.ndarray  # sum_j R_ij
    residual: np.ndarray | None  # R in row order, where it was asked for
    value: float  # the data term
    linear: float  # explicit: sum (a - mean) R
    square: float  # explicit: 1/2 sum R^2 / w; implicit: sum z^2 / 2W with z = a0 s - R, W = a0 + w
    cross: float  # implicit: sum z q / W
    constant: float  # implicit: sum q^2 / 2W - q / 2
    dots: float  # implicit: sum s^2


class EntriesFamily(Protocol):
    """Low rank met at the stored entries, and the best columns of each row."""

    def sampled(self, x: Observed, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """U V^T at the stored entries of x, in row order."""
        ...

    def evidence_rows(
        self,
        x: Observed,
        left: np.ndarray,
        right: np.ndarray,
        rule: RidgeRule,
        *,
        mean: float = 0.0,
        own: np.ndarray | None = None,
        other: np.ndarray | None = None,
        weights: np.ndarray | None = None,
        spread: float = 0.0,
        keep: bool = False,
    ) -> Evidence:
        """Value and gradient of the data term, and what a dual bound needs, in one pass."""
        ...

    def residual_gram(
        self,
        x: Observed,
        left: np.ndarray,
        right: np.ndarray,
        v: np.ndarray,
        q: np.ndarray,
        *,
        mean: float,
        own: np.ndarray | None,
        other: np.ndarray | None,
        weights: np.ndarray | None,
    ) -> np.ndarray:
        """R^T diag(q) R V with R = w (A - mean - b 1^T - 1 c^T - U V^T) on the stored entries; R is never stored."""
        ...

    def offset_times(
        self, x: Observed, v: np.ndarray, mean: float, own: np.ndarray | None, other: np.ndarray | None
    ) -> np.ndarray:
        """(A - mean - b 1^T - 1 c^T) on the stored entries, times V."""
        ...

    def top_columns(
        self,
        left: np.ndarray,
        right: np.ndarray,
        n: int,
        offset: np.ndarray | None = None,
        excluded: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Positions and scores of the n best columns of each row of U V^T + offset, best first; excluded: (indptr, indices, rows)."""
        ...
