"""Half sweeps of non-negative factorization: the primitives and their records. Shapes and letters
as in ``protocol``.

X ~ W H is seen from its rows (factor W, the other factor V = H^T) or, as ``x.T``, from its columns.
Weights are those of the placed matrix: D = diag(w) for its rows, v_ij for its entries. W and V are
tall arrays, k columns each.

Multiplicative steps of non-negative factorization under any beta-divergence: the primitives and
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

from eckart.engines.protocol.placed import Placed, Tall
from eckart.errors import InputError


class Totals(NamedTuple):
    """Rows, their weight, the weight of the cells that are known (rows alone weigh here), weighted
    sum and weighted sum of squares of the stored entries; of dense rows the weighted sum of each
    column too."""

    rows: int
    weight: float
    cells: float
    total: float
    square: float
    columns: np.ndarray | None = None

    def merge(self, other: Totals) -> Totals:
        columns = (
            None if self.columns is None or other.columns is None else self.columns + other.columns
        )
        rows, weight, cells, total, square = (a + b for a, b in zip(self[:5], other[:5]))
        return Totals(int(rows), weight, cells, total, square, columns)


class FactorSums(NamedTuple):
    """Of a tall factor F with row weights D: F^T D 1 (k), F^T D F (k x k), the least entry, and the
    largest of each column."""

    mass: np.ndarray
    square: np.ndarray
    least: float
    most: np.ndarray

    def merge(self, other: FactorSums) -> FactorSums:
        least, most = min(self.least, other.least), np.maximum(self.most, other.most)
        return FactorSums(self.mass + other.mass, self.square + other.square, least, most)


class SignSums(NamedTuple):
    """Of each column of a tall array with row weights D: the squared length of its positive and of
    its negative part, and the largest entry of both."""

    squares: np.ndarray
    most: np.ndarray

    def merge(self, other: SignSums) -> SignSums:
        return SignSums(self.squares + other.squares, np.maximum(self.most, other.most))


class Descent(NamedTuple):
    """A factor after a half sweep; the objective of its rows (without what is constant) and their
    squared violations of the optimality conditions before it, summed with the rows' weights:

    least squares   sum_c G_cc min(u_c, g_c / G_cc)^2, g the gradient           (in units of the
    objective)
    KL              m sum_c min(u_c d_c / m, 1 - r_c)^2, d_c the denominator of a step, r_c its
    factor, m = max(sum_j w a, sum_c u_c d_c)
    """

    factor: Tall
    value: float
    kkt: float


class CrossSums(NamedTuple):
    """What a half sweep of the rows leaves to the columns: X^T D W (n x k) and W^T D W of the new
    rows; value and violations as in ``Descent``."""

    value: float
    kkt: float
    cross: np.ndarray
    square: np.ndarray

    def merge(self, other: CrossSums) -> CrossSums:
        sums = self.value + other.value, self.kkt + other.kkt
        return CrossSums(*sums, self.cross + other.cross, self.square + other.square)


class Pass(NamedTuple):
    """The new rows, which stay in the engine, and their sums."""

    factor: Tall
    sums: CrossSums


class KlSums(NamedTuple):
    """R^T D W (n x k), R = A / (W V^T) where A > 0, and sum w (a log(a / s) - a)."""

    up: Tall
    value: float

    def merge(self, other: KlSums) -> KlSums:
        return KlSums(self.up + other.up, self.value + other.value)


class KlRule(NamedTuple):
    """Penalties of a multiplicative step; ``fast`` raises its factor to the power 1.75. A row's
    steps end when one moves less than a share ``tol``; without ``valued`` the objective is not
    measured."""

    l1: float = 0.0
    l2: float = 0.0
    fast: bool = False
    tol: float = 0.0
    valued: bool = True

    @property
    def power(self) -> float:
        """As of ``BetaRule``, for beta = 1."""
        return 1.75 if self.fast else 1.0


class PartsFamily(Protocol):
    """Half sweeps of non-negative factorization."""

    def totals(self, x: Placed) -> Totals:
        """One pass over the stored entries; refuses a negative one, and what ``put`` would have
        refused in dense rows."""
        ...

    def zero_filled(self, x: Placed) -> Placed:
        """A partly observed matrix with zeros where nothing is known; others as they are."""
        ...

    def as_rows(self, tall: Tall, x: Placed) -> Placed:
        """A tall array as dense rows with the weights of the rows of x."""
        ...

    def factor_mass(self, factor: Tall, x: Placed | None = None) -> Tall:
        """F^T D 1 alone: k numbers, which stay where they were made, for the steps of the other
        factor."""
        ...

    def factor_sums(self, factor: Tall, x: Placed | None = None) -> FactorSums:
        """The sums of a factor; with ``x`` its rows weigh what those of x weigh."""
        ...

    def sign_sums(self, factor: Tall, x: Placed | None = None) -> SignSums:
        """The same for a tall array with negative entries."""
        ...

    def rectified(
        self, factor: Tall, scale: np.ndarray, least: float = 0.0, fill: float = 0.0
    ) -> Tall:
        """f_ic s_c where that is larger than ``least`` >= 0, else ``fill``."""
        ...

    def sprinkled(self, factor: Tall, size: float, seed: int) -> Tall:
        """The factor with ``size`` |g| in place of its zeros, g standard normal numbers of
        ``normal(seed, ...)``."""
        ...

    def projected_rows(self, pull: Tall, inverse: np.ndarray, l1: float) -> Tall:
        """max(0, (p_i - l1) G^-1): least squares without the sign, then negative entries set to
        zero."""
        ...

    def leap(self, new: Tall, old: Tall, stride: float) -> Tall:
        """max(0, new + stride (new - old))."""
        ...

    def cleaned(self, factor: Tall, mass: np.ndarray, share: float) -> Tall:
        """The factor with zeros where f_ic mass_c is at most that share of its sum over c."""
        ...

    def hals_rows(
        self,
        gram: np.ndarray,
        pull: Any,
        start: Tall,
        l1: float = 0.0,
        *,
        sweeps: int = 1,
        shrink: float = 0.0,
    ) -> Descent:
        """Coordinate descent on 1/2 u^T G u - (p_i - l1).u over u >= 0 for every row, from
        ``start``; a row may stop when the squared change of a sweep is under ``shrink`` of its
        first."""
        ...

    def hals_pass(
        self,
        x: Placed,
        right: Any,
        left: Tall,
        gram: np.ndarray,
        l1: float,
        *,
        sweeps: int = 1,
        shrink: float = 0.0,
    ) -> Pass:
        """hals_rows with p = X V, and X^T D W, W^T D W of the new rows, where all entries are
        known."""
        ...

    def hals_seen(
        self,
        x: Placed,
        other: Tall,
        start: Tall,
        *,
        l1: float = 0.0,
        l2: float = 0.0,
        sweeps: int = 1,
        shrink: float = 0.0,
    ) -> Descent:
        """Coordinate descent on 1/2 sum_j v_ij (a_ij - u.h_j)^2 + l1 sum u + l2/2 ||u||^2 over the
        observed entries of every row."""
        ...

    def kl_rows(
        self, x: Placed, other: Tall, start: Tall, rule: KlRule, mass: Tall, *, steps: int = 1
    ) -> Descent:
        """Multiplicative steps on sum_j v_ij (a log(a / u.h_j) - a + u.h_j) + l1 sum u + l2/2
        ||u||^2 for every row. ``mass`` is sum_j w_j h_j over all columns, absent ones are zeros;
        where they are unknown only the observed ones count and ``mass`` is not used."""
        ...

    def kl_sums(self, x: Placed, left: Tall, right: Tall, valued: bool = True) -> KlSums:
        """What a multiplicative step of the columns needs to know of dense rows; unless ``valued``,
        the value is 0."""
        ...

    def kl_step(
        self, right: Tall, sums: KlSums, mass: Tall, totals: np.ndarray, rule: KlRule
    ) -> Descent:
        """The step itself: ``mass`` is sum_i w_i W_i, ``totals`` the weighted sum of each
        column."""
        ...

    def square_error(self, x: Placed, left: Tall, right: Tall) -> float:
        """sum v_ij w_i (a_ij - u_i.h_j)^2 over all entries or the observed ones, from the residuals
        themselves."""
        ...


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
        "When beta_loss <= 0 and X contains zeros, the solver may diverge. X must hold numbers > 0 "
        f"with beta_loss={beta:g}, got 0 at row {row}, column {column}, whose divergence is "
        "infinite. Add a small number to X, or use beta_loss='kullback-leibler'."
    )
