"""Low rank met at the stored entries, and the best columns of each row: the primitives and their
records. Shapes and letters as in ``protocol``."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from eckart.engines.protocol.placed import Tall
from eckart.engines.protocol.ridge import RidgeRule


class EvidenceSums(NamedTuple):
    """Sums over stored entries and rows that a certificate is made of; s = u_i.v_j, R the negative
    gradient of the data term by B."""

    value: float  # the data term
    linear: float  # explicit: sum (a - mean) R
    square: float  # explicit: 1/2 sum R^2 / w; implicit: sum z^2 / 2W with z = a0 s - R, W = a0 + w
    cross: float  # implicit: sum z q / W
    constant: float  # implicit: sum q^2 / 2W - q / 2
    dots: float  # implicit: sum s^2
    zero: float  # the data term at B = mean
    # ||push - pull||^2, the gradient by U: push_i = l_i u_i + a0 V^T V u_i, pull_i = sum_j R_ij
    # v_j; of u = 0 <= u only what could fall
    slope: float
    pull: float  # ||pull||^2
    push: float  # ||push||^2
    bias_slope: float  # the same by b: push_i = m_i b_i, pull_i = sum_j R_ij
    bias_pull: float
    bias_push: float
    bias_cost: float  # sum_i (sum_j R_ij)^2 / m_i

    def merge(self, other: EvidenceSums) -> EvidenceSums:
        """Sums over the rows of both."""
        return EvidenceSums(*(a + b for a, b in zip(self, other)))


class Evidence(NamedTuple):
    """Sums, and what they were made of: sum_j R_ij v_j and sum_j R_ij of each row."""

    pull: Tall
    row_sum: Tall
    sums: EvidenceSums

    @property
    def value(self) -> float:
        """The data term."""
        return self.sums.value


class EntriesFamily(Protocol):
    """Low rank met at the stored entries, and the best columns of each row. Where ``weights`` are
    not given, those of the placed matrix count."""

    def sampled(self, x: Any, left: Tall, right: Tall) -> Tall:
        """U V^T at the stored entries of x, in row order."""
        ...

    def residual(self, x: Any, data: Tall, left: Tall, right: Tall) -> tuple[Tall, float]:
        """data - U V^T at the stored entries of x, in row order, and the sum of its squares in
        float64; ``data`` stands in place of the stored values."""
        ...

    def by_columns(self, x: Any, data: Tall) -> Tall:
        """Numbers at the stored entries of x, given in row order, in the order of columns."""
        ...

    def entry_times(self, x: Any, data: Tall, v: Tall) -> Tall:
        """R V for the sparse R with ``data`` (row order) at the stored entries of x."""
        ...

    def entry_times_t(self, x: Any, t_data: Tall, y: Tall) -> Tall:
        """R^T Y for the sparse R with ``t_data`` (column order, see ``by_columns``)."""
        ...

    def evidence_rows(
        self,
        x: Any,
        left: Tall,
        right: Tall,
        rule: RidgeRule,
        *,
        mean: float = 0.0,
        own: Tall | None = None,
        other: Tall | None = None,
        weights: Tall | None = None,
        spread: float = 0.0,
    ) -> Evidence:
        """Value and gradient of the data term, and what a dual bound needs, in one pass; ``own``
        and ``other`` are biases b and c, ``spread`` is a0."""
        ...

    def residual_gram(
        self,
        x: Any,
        left: Tall,
        right: Tall,
        v: Tall,
        q: Tall,
        rule: RidgeRule,
        *,
        mean: float = 0.0,
        own: Tall | None = None,
        other: Tall | None = None,
        spread: float = 0.0,
    ) -> Tall:
        """M^T diag(q) M V with M = R - a0 U V^T, R as in ``evidence_rows`` on the stored entries
        and zero elsewhere; neither is ever stored."""
        ...

    def offset_times(
        self,
        x: Any,
        v: Tall,
        mean: float,
        own: Tall | None,
        other: Tall | None,
        row_scale: Tall | None = None,
        column_scale: Tall | None = None,
    ) -> Tall:
        """D (A - mean - b 1^T - 1 c^T) C V on the stored entries, without weights; D and C are
        diagonal, given by ``row_scale`` and ``column_scale``."""
        ...

    def top_columns(
        self,
        left: np.ndarray,
        right: np.ndarray,
        n: int,
        offset: np.ndarray | None = None,
        excluded: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Positions and scores of the n best columns of each row of U V^T + offset, best first;
        excluded: (indptr, indices, rows)."""
        ...
