"""One small ridge problem for every row: the primitives and their records. Shapes and letters as in
``protocol``."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from eckart.engines.protocol.placed import Tall


class RidgeRule(NamedTuple):
    """How the rows of a factorization are penalised: l_i = l2 count_i^power for the code, bias_l2
    count_i^bias_power (None: the same power) for the bias of row i.

    ``alpha`` > 0 is implicit feedback: entry r has weight alpha r, target 1, and its right-hand
    side weight is alpha r + ``shift``.
    """

    l2: float
    power: float = 0.0
    bias: bool = False
    bias_l2: float = 0.0
    nonnegative: bool = False
    alpha: float = 0.0
    shift: float = 0.0
    extra: float = 0.0
    bias_power: float | None = None

    def ridges(self, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The ridge of every row and of its bias; ``extra`` is added to the counts (the unobserved
        weight of all cells of a row)."""
        grown = self._grown(counts, self.power)
        same = self.bias_power is None or self.bias_power == self.power
        return self.l2 * grown, self.bias_l2 * (
            grown if same else self._grown(counts, self.bias_power)
        )

    def _grown(self, counts: np.ndarray, power: float | None) -> np.ndarray:
        scale = (np.maximum(counts, 0) + self.extra) ** power if power else np.ones(len(counts))
        return np.where(scale > 0, scale, 1.0)


class RowSolution(NamedTuple):
    """Codes, biases or None, and the objective of all rows at this solution."""

    left: Tall
    bias: Tall | None
    value: float


class PrecisionDraws(NamedTuple):
    """Noise precisions p of all rows (N x 1), sum p, sum log p and sum n_i log p_i."""

    values: Tall
    total: float
    logs: float
    heavy_logs: float


class RidgeFamily(Protocol):
    """One small ridge problem for every row. Where ``weights`` of entries are not given, those of
    the placed matrix count."""

    def ridge_rows(
        self,
        x: Any,
        right: Tall,
        rule: RidgeRule,
        *,
        mean: float = 0.0,
        offset: Tall | None = None,
        weights: Tall | None = None,
        own: Tall | float | None = None,
        other: Tall | None = None,
        base: np.ndarray | None = None,
        prior: Tall | None = None,
        noise: Tall | None = None,
        start: Tall | None = None,
        cg_steps: int = 0,
    ) -> RowSolution:
        """min over u_i, b_i of 1/2 sum_j w (a_ij - mean - offset_j - b_i - u_i.v_j)^2 + 1/2 u^T (P
        + l_i I) u - h_i.u + 1/2 m_i b_i^2 for every row: w = weights_ij own_i other_j (``own`` may
        be one number), P = ``base``, h = ``prior`` (one row for each, or one for all); ``noise``
        turns solutions into draws; ``start`` is where non-negative rows and conjugate gradients
        (``cg_steps`` > 0) begin."""
        ...

    def bias_rows(
        self,
        x: Any,
        rule: RidgeRule,
        offset: Tall | None,
        weights: Tall | None = None,
        *,
        mean: float = 0.0,
    ) -> Tall:
        """b_i = sum_j w (a_ij - mean - offset_j) / (sum_j w + m_i)."""
        ...

    def ridge_penalty(self, x: Any, rule: RidgeRule, factor: Tall, bias: Tall | None) -> float:
        """1/2 sum_i l_i ||u_i||^2 + 1/2 sum_i m_i b_i^2."""
        ...

    def misfit_rows(
        self,
        x: Any,
        left: Tall,
        right: Tall,
        *,
        offset: Tall | None = None,
        other: Tall | None = None,
    ) -> Tall:
        """sum_j weights_ij other_j (a_ij - offset_j - u_i.v_j)^2 of every row, N x 1 in float64."""
        ...

    def pair_rows(
        self, one: Tall, two: Tall, first: np.ndarray, second: np.ndarray
    ) -> tuple[Tall, Tall]:
        """For x = (u, b) = one[first[p]] and y = (w, d) = two[second[p]], k numbers and a bias
        each: the design (u + w, 1) and the offset b + d + u.w of every pair p (pairs x 1), in
        float64."""
        ...

    def precision_rows(
        self,
        seed: tuple[int, ...],
        misfit: Tall,
        counts: Tall,
        shape: float,
        scale: float,
        floor: float,
    ) -> PrecisionDraws:
        """p_i ~ Gamma((nu + n_i) / 2) / ((nu / tau + misfit_i) / 2) between ``floor`` and its
        inverse, drawn from ``rng.streams``; nu is ``shape``, tau ``scale``, n (N x 1) the
        ``counts``."""
        ...
