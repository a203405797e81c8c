"""Multiplicative steps of non-negative factorization under any beta-divergence: the primitives and
their records. Letters as in ``protocol.parts``.

    d(a | s) = (a^b + (b - 1) s^b - b a s^(b - 1)) / (b (b - 1)),     b = 0: a/s - log(a/s) - 1,
    b = 1: a log(a/s) - a + s,     b = 2: (a - s)^2 / 2

With num = sum_j v_j a_j s_j^(b - 2) h_j and den = sum_j v_j s_j^(b - 1) h_j of a row u, s = H u,
the step is u <- u p^g where p is the positive root of

    l2 u p^2 + (den + l1) p = num,        g = 1 / (2 - b) for b < 1,   1 for 1 <= b <= 2,   1 / (b -
    1) for b > 2.

It never raises the objective. The part of d that is convex in s is bounded by Jensen's inequality
and the concave part by its tangent (Fevotte and Idier 2011), so that with r the factor of one entry
of u, the derivative of the bound is den r^x - num r^y + l1 + l2 u r with (x, y) = (0, b - 2), (b -
1, b - 2), (b - 1, 0). Put r = p^g: it becomes l2 u (p^g - p), (l1 + l2 u p)(1 - p^(b - 1)), l1 (1 -
p) + l2 u (p^g - p^2), which is never negative for p < 1 and never positive for p > 1. The bound is
convex, so r lies between 1, where it touches the objective, and its minimum.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from eckart.engines.protocol.parts import Descent, Pass
from eckart.engines.protocol.placed import Placed, Tall
from eckart.errors import InputError

LOWEST = 1e-15
"""Share of a row's mean below which s = u.h is taken for that: powers below zero stay finite."""


class BetaRule(NamedTuple):
    """The divergence and the penalties of a step; ``fast`` raises its factor to the power 1.75. A
    row's steps end when one moves it by less than a share ``tol``."""

    beta: float
    l1: float = 0.0
    l2: float = 0.0
    fast: bool = False
    tol: float = 0.0

    @property
    def power(self) -> float:
        """g, times 1.75 where steps are over-relaxed."""
        b = self.beta
        return (1 / (2 - b) if b < 1 else 1 / (b - 1) if b > 2 else 1.0) * (
            1.75 if self.fast else 1.0
        )


class BetaSums(NamedTuple):
    """What a step of the columns needs to know of the rows: num and den (n x k), the weighted sum
    of each column, and the divergence."""

    up: np.ndarray
    down: np.ndarray
    totals: np.ndarray
    value: float

    def merge(self, other: BetaSums) -> BetaSums:
        return BetaSums(
            self.up + other.up,
            self.down + other.down,
            self.totals + other.totals,
            self.value + other.value,
        )


class DivergencesFamily(Protocol):
    """Multiplicative steps. Violations are m sum_c min(u_c d_c / m, 1 - num_c / d_c)^2 with d = den
    + l1 + l2 u and m = max(u.num, u.d) of a row: the share of m that the entries of u could still
    move, in units of the objective."""

    def beta_size(self, x: Placed, beta: float) -> float:
        """sum v_ij w_i a_ij^beta over the known entries (those > 0 for beta > 0); refuses a zero
        where beta <= 0: its divergence is infinite."""
        ...

    def beta_rows(
        self,
        x: Placed,
        other: Tall,
        start: Tall,
        rule: BetaRule,
        mass: np.ndarray,
        *,
        steps: int = 1,
    ) -> Descent:
        """Steps of every row; ``mass`` is the sum of the rows of ``other``. A row of zeros starts
        at equal shares. The value is the divergence with the penalties of these rows."""
        ...

    def beta_sums(self, x: Placed, left: Tall, right: Tall, beta: float) -> BetaSums:
        """The sums for a step of the columns."""
        ...

    def beta_step(self, right: Tall, sums: BetaSums, mass: np.ndarray, rule: BetaRule) -> Descent:
        """The step itself; ``mass`` is the weighted sum of the rows of W."""
        ...

    def multiplied_rows(
        self, gram: np.ndarray, pull: Tall, start: Tall, l1: float = 0.0
    ) -> Descent:
        """u <- u pull / (G u + l1) for every row, the step for least squares; value and violations
        as ``hals_rows`` gives them."""
        ...

    def multiplied_pass(
        self, x: Placed, right: Any, left: Tall, gram: np.ndarray, l1: float = 0.0
    ) -> Pass:
        """multiplied_rows with pull = X V, and X^T D W, W^T D W of the new rows, where all entries
        are known."""
        ...


def no_zeros(row: int, column: int, beta: float) -> InputError:
    """The error for a zero whose divergence from any s > 0 is infinite."""
    return InputError(
        f"X must hold numbers > 0 with beta_loss={beta:g}, got 0 at row {row}, column "
        f"{column}: the divergence of a zero is infinite for beta_loss <= 0. Add a small "
        "number to X, or use beta_loss='kullback-leibler'."
    )
