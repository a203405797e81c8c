"""Low rank met at the stored entries, and the best columns of each row: the primitives and their
records. Shapes and letters as in ``protocol``.

A loss met at the stored entries: the primitives and their records. Shapes and letters as in
``protocol``; a loss is a value of ``eckart.terms``.

At the entry (i, j) the natural parameter is s = mean + b_i + c_j + u_i.v_j (``own`` b, ``other``
c), its loss w l(a, s), w the weight of the entry, g = dl/ds and c the curvature of a parabola that
lies above l(a, .) and touches it at s. So

    w l(a, t) <= constant + 1/2 w c (s - g / c - t)^2        for all t (or some, see
    ``loss.everywhere``),

which is the data term of a ridge problem with the targets s - g / c and the weights w c:
``ridge_rows`` lowers the loss, and at s itself the residual w c (target - s) is -w g, so
``evidence_rows`` and ``residual_gram`` of those entries speak of the gradient of the loss itself.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, TypedDict, Unpack

import numpy as np

from eckart.engines.protocol.placed import Placed, Tall
from eckart.engines.protocol.ridge import RidgeRule, RowSolution


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


FLATTEST = 1e-12
"""Least curvature: where a loss is flatter its target would leave the range of single precision. A
steeper parabola still lies above."""


class At(TypedDict, total=False):
    """Where s stands beside left and right. ``row_steep`` and ``column_steep`` (of rows and
    columns, for ordered probits alone) make the deviation of the error of an entry 1 / (row_steep_i
    column_steep_j); absent ones are 1."""

    mean: float
    own: Tall | None
    other: Tall | None
    row_steep: Tall | None
    column_steep: Tall | None


class LossSums(NamedTuple):
    """Sums over stored entries."""

    value: float  # sum w l(a, s)
    slope: float  # sum w g
    conjugate: float  # sum w l*(a, shrink g)

    def merge(self, other: LossSums) -> LossSums:
        return LossSums(*(a + b for a, b in zip(self, other)))


class ThresholdSums(NamedTuple):
    """Value, gradient and second derivatives of the loss by the thresholds of ordered levels."""

    value: float
    gradient: np.ndarray
    bend: np.ndarray

    def merge(self, other: ThresholdSums) -> ThresholdSums:
        return ThresholdSums(
            self.value + other.value, self.gradient + other.gradient, self.bend + other.bend
        )


class LossesFamily(Protocol):
    """A loss at the stored entries; weights are those of the placed matrix."""

    def linearised(
        self, x: Any, loss: Any, left: Tall, right: Tall, **at: Unpack[At]
    ) -> tuple[Placed, float]:
        """The same entries with the targets s - g / c in place of values and the weights w c; and
        sum w l(a, s)."""
        ...

    def loss_sums(
        self,
        x: Any,
        loss: Any,
        left: Tall,
        right: Tall,
        *,
        shrink: float | None = None,
        **at: Unpack[At],
    ) -> LossSums:
        """Value, slope, and the conjugate at ``shrink`` times the gradient (0 where None: it may
        take longer than all else)."""
        ...

    def threshold_sums(
        self, x: Any, loss: Any, left: Tall, right: Tall, **at: Unpack[At]
    ) -> ThresholdSums:
        """The loss as a function of its thresholds, s as it is."""
        ...

    def shortened_rows(
        self,
        x: Any,
        loss: Any,
        right: Tall,
        rule: RidgeRule,
        left: Tall,
        new: Tall,
        *,
        new_own: Tall | None = None,
        **at: Unpack[At],
    ) -> RowSolution:
        """From ``left`` (and ``own``) towards ``new`` (and ``new_own``), every row as far as its
        own loss and penalty do not rise: the whole step, or half of it, or half of that, and so on;
        after 40 halves the row stays. The value is that of all rows there."""
        ...

    def augmented(
        self,
        x: Any,
        loss: Any,
        left: Tall,
        right: Tall,
        noise: Tall | tuple[int, ...],
        **at: Unpack[At],
    ) -> Placed:
        """The same entries with draws of ``loss.latent`` in place of values, at the uniform numbers
        Phi(noise), one for each entry in row order; ``noise`` may be the seed of ``normal``, so
        that they are drawn where the entries are."""
        ...

    def slice_rows(
        self,
        x: Any,
        loss: Any,
        left: Tall,
        right: Tall,
        point: Tall,
        centre: Tall,
        drawn: Tall,
        noise: Tall,
        **at: Unpack[At],
    ) -> Tall:
        """Every row moved by an elliptical slice sampler. Its density is exp(-sum w l(a, s)) times
        a prior, and q the normal density of mean ``centre`` and one draw ``drawn`` that has
        exp(-sum 1/2 w c (target - s)^2) in place of the loss, linearised at ``point``. On the
        ellipse centre + (u - centre) cos t + (drawn - centre) sin t the row takes the first t, of a
        bracket that shrinks towards 0, where log density - log q is above its value at u plus log
        U. Uniform numbers are Phi(noise), rows x (2 + trials): U, the first t, the following ones.
        A row whose trials are used up stays."""
        ...


HALVES = 40
"""Halvings after which a step is below rounding."""
