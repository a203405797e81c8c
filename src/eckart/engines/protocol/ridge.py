"""One small ridge problem for every row: the primitives and their records. Shapes and letters as in ``protocol``."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from eckart.matrix import Observed


class RidgeRule(NamedTuple):
    """How the rows of a factorization are penalised: l_i = l2 count_i^power for the code, bias_l2 count_i^power for the bias of row i.

    ``alpha`` > 0 is implicit feedback: entry r has weight alpha r, target 1, and its right-hand side weight is alpha r + ``shift``.
    """

    l2: float
    power: float = 0.0
    bias: bool = False
    bias_l2: float = 0.0
    nonnegative: bool = False
    alpha: float = 0.0
    shift: float = 0.0
    extra: float = 0.0

    def ridges(self, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The ridge of every row and of its bias; ``extra`` is added to the counts (the unobserved weight of all cells of a row)."""
        scale = (np.maximum(counts, 0) + self.extra) ** self.power if self.power else np.ones(len(counts))
        floor = np.where(scale > 0, scale, 1.0)
        return self.l2 * floor, self.bias_l2 * floor


class RowSolution(NamedTuple):
    """Codes, biases or None, and the objective of all rows at this solution."""

    left: np.ndarray
    bias: np.ndarray | None
    value: float


class RidgeFamily(Protocol):
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
        """min over u_i, b_i of 1/2 sum_j w (a_ij - offset_j - b_i - u_i.v_j)^2 + 1/2 u^T (P + l_i I) u - h_i.u + 1/2 m_i b_i^2 for every row:
        P = ``base``, h = ``prior``; ``noise`` turns solutions into draws; ``start`` is where non-negative rows and
        conjugate gradients (``cg_steps`` > 0) begin."""
        ...

    def bias_rows(
        self, x: Observed, rule: RidgeRule, offset: np.ndarray, weights: np.ndarray | None = None
    ) -> np.ndarray:
        """b_i = sum_j w (a_ij - offset_j) / (sum_j w + m_i)."""
        ...
